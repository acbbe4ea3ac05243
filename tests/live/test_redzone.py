"""A traced program keeps its data: the kernel's handling of NOPs never writes where the compiler keeps values."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from .conftest import Tracee
from .test_bpftrace import trace

pytestmark = pytest.mark.live
HERE = Path(__file__).resolve().parent


@pytest.mark.parametrize("compiler", ["gcc", "clang"])
@pytest.mark.parametrize("nop", ["safe", "nop5", "classic"])
def test_leaf_function_keeps_its_data_under_a_tracer(
    bpftrace: str, run: Any, tmp_path: Path, compiler: str, nop: str
) -> None:
    (tmp_path / "redzone.d").write_text("provider redzone { probe hit(int x); };\n")
    shutil.copy(HERE / "redzone.c", tmp_path)
    module = (sys.executable, "-m", "usdtbuild")
    run(*module, "header", "redzone.d", "-o", "redzone.d.h", cwd=tmp_path)
    run(*module, "cc", f"--nop={nop}", "--", compiler, "-O2", "-c", "redzone.c", "-o", "redzone.o", cwd=tmp_path)
    run(compiler, "redzone.o", "-o", "redzone", cwd=tmp_path)
    tracee = Tracee(tmp_path / "redzone", (str(tmp_path / "redzone"),), tmp_path)
    lines = trace(bpftrace, tracee, "usdt:{binary}:redzone:hit {{ @hits = count(); }}\n")
    assert "changed 0" in lines
    assert "@hits: 1000" in lines
