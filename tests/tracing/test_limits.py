"""A tracer that may have little: what it then can't do it says, and does without where there is another way."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

PROGRAM = """\
#include "app.h"
int main(void) {
    for (int i = 0; i < 100; i++) APP_GO(i);
    return 0;
}
"""


@pytest.fixture(scope="module")
def limited(usdtbuild: Any, run: Any, need: Any, tmp_path_factory: Any) -> Any:
    """Trace with files of at most so many KB, or as much of something else: `limited(64, "--count")`."""
    folder = Path(tmp_path_factory.mktemp("limited"))
    (folder / "app.d").write_text("provider app { probe go(int i); };\n")
    (folder / "main.c").write_text(PROGRAM)
    usdtbuild("header", "app.d", "-o", "app.h", cwd=folder)
    usdtbuild("cc", "--", need("gcc"), "-O2", "-c", "main.c", "-o", "main.o", cwd=folder)
    run("gcc", "main.o", "-o", "program", cwd=folder)

    def trace(size: int, *words: str, of: str = "fsize") -> subprocess.CompletedProcess[str]:
        # Python would leave half of what it compiles in its cache.
        environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
        limit = [need("prlimit"), f"--{of}={size << 10}", sys.executable, "-m", "usdtbuild", "trace", *words]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        return subprocess.run(limit, text=True, env=environment, cwd=folder, timeout=120, check=False, **pipes)

    return trace


def test_without_memory_to_share_breakpoints_take_over(limited: Any) -> None:
    done = limited(64, "-v", "--", "./program")
    assert (done.returncode, done.stdout.count("app:go")) == (0, 100)
    assert "traced with trap" in done.stderr


def test_without_memory_to_share_jumps_are_refused_with_the_reason(limited: Any) -> None:
    done = limited(64, "--engine", "patch", "--", "./program")
    assert "not traced: app:go" in done.stderr
    assert "can't be shared" in done.stderr
    assert "file too large" in done.stderr


def test_with_little_address_space_buffers_are_smaller(limited: Any) -> None:
    """Sixteen of the usual size would take more of it than there is."""
    done = limited(1 << 20, "-v", "--", "./program", of="as")
    assert (done.returncode, done.stdout.count("app:go")) == (0, 100), done.stderr
    assert "traced with patch" in done.stderr
    assert "address space is limited (ulimit -v), so buffers have" in done.stderr
    quiet = limited(1 << 20, "--", "./program", of="as")
    assert (quiet.returncode, quiet.stdout.count("app:go"), quiet.stderr) == (0, 100, "")
    assert "address space" not in limited(1 << 20, "-v", "--count", "--", "./program", of="as").stderr  # no buffers
