"""`usdtbuild verify` looks at patchable function entries too."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

SOURCE = """
int good(int x) { return x * 3; }
int other(int x) { return x * 5; }
int main(void) { return good(1) + other(2) == 13 ? 0 : 1; }
"""


def build(run: Any, folder: Path, pair: str = "7,5") -> Path:
    (folder / "main.c").write_text(SOURCE)
    run("gcc", "-O1", "-fno-inline", f"-fpatchable-function-entry={pair}", "main.c", "-o", "program", cwd=folder)
    return folder / "program"


def entry_findings(usdtbuild: Any, binary: Path, code: int) -> list[dict[str, Any]]:
    out = usdtbuild("verify", "--json", binary, code=code).stdout
    findings = [finding for file in json.loads(out)["files"] for finding in file["findings"]]
    return [finding for finding in findings if finding["check"].startswith("entry-")]


def test_sound_entries_are_no_finding(run: Any, usdtbuild: Any, tmp_path: Path) -> None:
    assert entry_findings(usdtbuild, build(run, tmp_path), 0) == []


def test_overwritten_entry_is_an_error(run: Any, usdtbuild: Any, tmp_path: Path) -> None:
    binary = build(run, tmp_path)
    address = int(run("nm", binary).stdout.split(" T good")[0].split()[-1], 16)
    content = bytearray(binary.read_bytes())
    content[address] = 0xC3  # a program's text lies at the offset of its address here
    binary.write_bytes(content)
    (finding,) = entry_findings(usdtbuild, binary, 1)
    assert finding["severity"] == "error"
    assert "good" in json.dumps(finding)


@pytest.mark.parametrize("pair", ["5", "1", "3,2"])
def test_entries_made_for_something_else_are_no_error(pair: str, run: Any, usdtbuild: Any, tmp_path: Path) -> None:
    found = entry_findings(usdtbuild, build(run, tmp_path, pair), 0)
    assert {finding["severity"] for finding in found} == {"note"}
