"""The pictures of the documentation: all are shown, and the script that makes them runs the real commands."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent


def test_every_picture_is_shown_on_a_page() -> None:
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    shown = {name for page in pages for name in re.findall(r"!\[[^\]]+\]\(\S*pictures/([\w.]+)\)", page.read_text())}
    assert shown == {path.name for path in (ROOT / "docs/pictures").iterdir()}
    assert len(shown) >= 4


def test_drawings_are_of_the_real_program(tmp_path: Path, run: Any, need: Any) -> None:
    """What a terminal shows is drawn in its colours, and the way of a probe goes from a call to a NOP to a hit."""
    if os.uname().machine != "x86_64":
        pytest.skip("the picture is of x86-64 code")
    need("gcc")
    need("objdump")
    lines = (
        "import sys, pathlib, drawings",
        "folder, ours = pathlib.Path(sys.argv[1]), (sys.executable, '-m', 'usdtbuild')",
        "drawings.build(folder, ours)",
        "drawings.terminal(folder, ours, ('usdtbuild list kitchen',), folder / 'list.svg')",
        "drawings.way(folder, ours, folder / 'way.html')",
    )
    run(sys.executable, "-c", "\n".join(lines), tmp_path, env={**os.environ, "PYTHONPATH": f"{ROOT / 'tools'}:{ROOT}"})
    drawn = (tmp_path / "list.svg").read_text()
    assert "kitchen:order__start" in drawn
    assert len(set(re.findall(r"fill: (#\w+)", drawn))) > 2, "no colours"
    assert "http" not in drawn.replace('xmlns="http://www.w3.org/2000/svg"', "")
    way = (tmp_path / "way.html").read_text()
    assert re.search(r"<b>.*call .*nop.*Arguments: -4@%edi 8@%rsi.*dish=\"pancakes\"", way, re.DOTALL)
