"""Provider files of odd sizes: time and memory stay in proportion to the file, whatever is in it."""

from __future__ import annotations

import resource
import sys
from pathlib import Path
from typing import Any

import pytest

PROBE = b"provider app { probe go(int a); };\n"
FILES = {
    "5 MB of NUL bytes": (b"\0" * 5_000_000, 1),
    "5 MB of stray characters": (b"\1 \2 " * 1_250_000, 1),
    "a comment of 50 MB": (b"/*" + b"x" * 50_000_000 + b"*/\n" + PROBE, 0),
    "a comment of 10 million lines": (b"/*" + b"x\n" * 10_000_000 + b"*/\n" + PROBE, 0),
    "half a million comments": (b"// x\n" * 500_000 + PROBE, 0),
    "100,000 array dimensions": (b"provider app { probe go(int a" + b"[2]" * 100_000 + b"); };\n", 1),
    "100,000 pointers": (b"provider app { probe go(int " + b"*" * 100_000 + b"a); };\n", 1),
}
MEMORY = 500 << 20  # bytes


@pytest.mark.parametrize("name", FILES)
def test_large_files_take_memory_in_proportion(name: str, tmp_path: Path, run: Any) -> None:
    content, code = FILES[name]
    (tmp_path / "app.d").write_bytes(content)
    words = [sys.executable, "-m", "usdtbuild", "header", "app.d", "-o", "app.h"]
    limit = (MEMORY, MEMORY)
    done = run(*words, cwd=tmp_path, code=code, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, limit))
    assert "Traceback" not in done.stderr
    assert len(done.stderr) < 100_000
    assert (tmp_path / "app.h").exists() == (code == 0)


def test_array_dimensions_cost_the_same_each(tmp_path: Path, run: Any) -> None:
    """With the square of their number a million took minutes of processor time; a bound, not a measurement."""
    (tmp_path / "app.d").write_bytes(b"provider app { probe go(int a" + b"[2]" * 1_000_000 + b"); };")
    words = [sys.executable, "-m", "usdtbuild", "header", "app.d", "-o", "app.h"]
    run(*words, cwd=tmp_path, code=1, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, (40, 40)))
