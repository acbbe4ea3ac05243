"""The documentation as a site: the generator finds nothing wrong with any page, and every page is in the menu."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest

import usdtbuild

DOCS = Path(__file__).resolve().parent.parent / "docs"
PAGES = ("index", "tutorial", "case-study", "trace", "cmake", "ide", "containers", "architectures", "commands/trace")
REFERENCES = ("live-reference", "api-reference", "json-reference")


@pytest.fixture(scope="module")
def site(run: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("sphinx")
    folder = tmp_path_factory.mktemp("site")
    words = ["-q", "-W", "--keep-going", "-b", "html", "-d", folder / "cache", DOCS, folder / "html"]
    done = run(sys.executable, "-m", "sphinx", *words)
    assert done.stderr == ""
    return folder / "html"


def test_every_page_is_in_the_site_and_in_its_menu(site: Path) -> None:
    menu = (site / "index.html").read_text()
    pages = [path.relative_to(DOCS).with_suffix(".html") for path in DOCS.rglob("*.md")]
    assert len(pages) > 30
    for page in pages:
        assert (site / page).is_file()
        assert f'href="{page}"' in menu or page.name == "index.html", f"{page} is missing in docs/_toc.yml"


def test_first_page_begins_as_the_readme_does(site: Path) -> None:
    """What it is, and for whom; a provider file, a program, commands, what they print; a picture."""
    page = (site / "index.html").read_text()
    door = page[page.index("<h1>") : page.index("<h2>")]
    assert "C, C++ and Python extensions" in door
    assert door.count("<pre>") == 4
    assert 'src="_images/timeline.png"' in door


def test_links_out_of_the_documentation_are_names(site: Path) -> None:
    text = (site / "cmake.html").read_text()
    assert "sample_projects/cmake-hello" in text
    assert 'href="../' not in text


def test_reference_has_each_name_of_the_header(site: Path) -> None:
    """It is made from the header's comments: a declaration that the reader of them misses would be missing."""
    header = (DOCS.parent / "usdtbuild/runtime/live/usdt_live.h").read_text()
    declared = {
        *re.findall(r"^(?:int|void|unsigned long long|const char \*|static .*?)\s?\*?(usdt_live_\w+)\(", header, re.M)
    }
    declared |= {*re.findall(r"^} (usdt_live_\w+);", header, re.M)}
    assert len(declared) > 15
    page = (site / "live-reference.html").read_text()
    titles = " ".join(re.findall(r"<h3>(.*?)</h3>", page, re.DOTALL))
    assert {name for name in declared if f">{name}<" not in titles} == set()
    assert "<h2>Handlers<" in page


def test_reference_of_json_has_each_field(site: Path) -> None:
    page = (site / "json-reference.html").read_text()
    schemas = list((DOCS.parent / "usdtbuild/schemas").glob("*.json"))
    assert len(schemas) > 8

    def fields(part: object) -> set[str]:
        if isinstance(part, list):
            return {name for each in part for name in fields(each)}
        if not isinstance(part, dict):
            return set()
        own = part.get("properties", {})
        return {*own} | {name for each in part.values() for name in fields(each)}

    for path in schemas:
        missing = [
            name for name in fields(json.loads(path.read_text())) if not re.search(rf"\b{re.escape(name)}<", page)
        ]
        assert missing == [], path.name


def test_reference_of_python_has_each_public_name(site: Path) -> None:
    page = (site / "api-reference.html").read_text()
    names = [name for name in usdtbuild.__all__ if name != "__version__"]
    assert [name for name in names if f'id="usdtbuild.{name}"' not in page] == []


@pytest.mark.slow  # a browser is big, and installed by `make test-all` only
@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [360, 1280, 1366, 1440, 1600, 1920])
def test_nothing_runs_off_the_window(width: int, dark: bool, site: Path, tool: Any) -> None:
    chromium = tool("chromium")
    if chromium.find_browser() is None:
        pytest.skip("chromium is not installed")
    # Where there is no room for it, the menu of the page waits beside the window until it is asked for.
    beyond = """[...document.querySelectorAll('.toc-drawer a, article a, article pre, article img, article table')]
        .filter(it => it.getClientRects().length && it.getBoundingClientRect().right > innerWidth
                      && !it.closest('.table-wrapper')
                      && getComputedStyle(it.closest('.toc-drawer') || it).position != 'fixed')
        .map(it => it.outerHTML.slice(0, 80))"""
    with chromium.Browser(width, 900, dark=dark) as browser:
        for page in (*PAGES, *REFERENCES):
            browser.open(site / f"{page}.html")
            assert browser.ask("innerWidth") == width
            assert browser.ask(beyond) == [], page
            assert browser.ask("document.documentElement.scrollWidth <= innerWidth"), page
