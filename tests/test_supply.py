"""What comes from Python's index: versions and hashes are listed, and so is what the product is made of."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent
LISTS = sorted((ROOT / "tools/locked").glob("*.txt"))


def listed(path: Path) -> dict[str, list[str]]:
    """Return the requirements of a list, each with its hashes."""
    found: dict[str, list[str]] = {}
    for entry in re.sub(r"\\\n", " ", path.read_text()).splitlines():
        if entry and not entry.startswith("#"):
            requirement, *hashes = entry.split("--hash=")
            found[requirement.strip()] = hashes
    return found


@pytest.mark.parametrize("path", LISTS, ids=lambda path: path.stem)
def test_every_package_has_a_version_and_hashes(path: Path) -> None:
    entries = listed(path)
    assert entries
    for requirement, hashes in entries.items():
        assert re.fullmatch(r"[\w.-]+==[\w.+!]+( ; .+)?", requirement), requirement
        assert hashes, requirement
        assert all(re.fullmatch(r"sha256:[0-9a-f]{64}\s*", one) for one in hashes), requirement


def test_all_is_listed_that_is_asked_for(tool: Any) -> None:
    assert {path.stem for path in LISTS} == set(tool("lock").LISTS)
    project = (ROOT / "pyproject.toml").read_text()
    for name, section in (("demo", "dependencies"), ("test", "test"), ("test", "docs")):
        (body,) = re.findall(rf"^{section} = \[\n(.*?)^\]", project, re.MULTILINE | re.DOTALL)
        asked = {word.lower() for word in re.findall(r'^  "([\w.-]+)[>=]', body, re.MULTILINE)}
        has = {requirement.split("==")[0] for requirement in listed(ROOT / f"tools/locked/{name}.txt")}
        assert asked - has == set(), f"make lock: tools/locked/{name}.txt lacks them"


def test_what_the_product_is_made_of() -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "tools/sbom.py", "--check"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    document = json.loads((ROOT / "sbom.cdx.json").read_text())
    names = {one["name"] for one in document["components"]}
    assert names >= {"click", "rich", "pyelftools", "capstone", "uPlot"}
    assert document["metadata"]["component"]["name"] == "usdtbuild"


@pytest.mark.parametrize(
    ("said", "looked_at", "found"),
    [
        ("", 0, []),
        ("no connection", 0, []),
        ('{"dependencies": [{"name": "x", "skip_reason": "not found"}]}', 0, []),
        ('{"dependencies": [{"name": "x", "version": "1", "vulns": []}]}', 1, []),
        (
            '{"dependencies": [{"name": "x", "version": "1", "vulns": [{"id": "PYSEC-1", "fix_versions": ["2"]}]}]}',
            1,
            [("x", "1", "PYSEC-1, fixed in 2")],
        ),
    ],
)
def test_answers_about_vulnerabilities(tool: Any, said: str, looked_at: int, found: list[tuple[str, str, str]]) -> None:
    assert tool("audit").read(said) == (looked_at, found)
