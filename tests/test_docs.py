"""The documentation hangs together: links lead somewhere, each command has its page, and the index knows all pages."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from usdtbuild import __version__
from usdtbuild.cli import COMMANDS

ROOT = Path(__file__).resolve().parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "sample_projects").rglob("*.md")])


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_to_files_and_headings(page: Path) -> None:
    for target in links(page):
        if "://" in target:
            continue
        path, _, anchor = target.partition("#")
        file = page.parent / path if path else page
        assert file.exists(), f"{target}: there is no {file}"
        if anchor:
            assert anchor in headings(file), f"{target}: there is no such heading in {file}"


def links(page: Path) -> list[str]:
    """What the links of a page lead to."""
    return re.findall(r"\]\(([^)\s]+)\)", page.read_text())


def test_the_pages_are_there_and_have_links() -> None:
    """Else the tests above would look at nothing."""
    assert len(PAGES) > 40
    assert len(COMMANDS) > 10
    indexed = {target.partition("#")[0] for target in links(ROOT / "docs/index.md")}
    assert {"cmake.md", "commands/list.md", "design.md"} <= indexed
    assert headings(ROOT / "README.md") >= {"install-it", "use-it"}
    pages = {str(page.relative_to(ROOT / "docs")) for page in PAGES if ROOT / "docs" in page.parents} - {"index.md"}
    assert pages - indexed == set(), "pages that the index doesn't know"


def headings(page: Path) -> set[str]:
    """The anchors of a page, made as code forges make them."""
    titles = re.findall(r"^#+ (.+)$", page.read_text(), re.M)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_has_a_page_that_the_overview_and_the_index_link(command: str) -> None:
    assert (ROOT / f"docs/commands/{command}.md").is_file()
    assert f"({command}.md)" in (ROOT / "docs/commands/usdtbuild.md").read_text()
    assert f"(commands/{command}.md)" in (ROOT / "docs/index.md").read_text()


def test_pages_say_whether_it_is_published() -> None:
    """As long as it isn't, whoever is told to install it is told from what; afterwards no page says that it isn't."""
    assert re.search(rf"^## {re.escape(__version__)} \(.+\)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    telling = [page for page in PAGES if re.search(r"pip3? install .*\busdtbuild$", page.read_text(), re.MULTILINE)]
    assert len(telling) > 5
    unpublished = re.compile(r"neither on PyPI nor in a distribution yet|not published yet|ntil usdtbuild is published")
    said = [page for page in PAGES if page.name != "CHANGELOG.md" and unpublished.search(page.read_text())]
    if not said:
        return
    assert {ROOT / "README.md", ROOT / "docs/packagers.md"} <= set(said)
    for page in telling:
        assert re.search(r"checkout|published", page.read_text()), page
