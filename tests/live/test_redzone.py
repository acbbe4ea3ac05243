"""A traced program keeps its data: the kernel's handling of NOPs never writes where the compiler keeps values."""

from __future__ import annotations

import os
import re
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from .conftest import Tracee
from .test_bpftrace import trace
from .test_perf import cached, event

pytestmark = pytest.mark.live
HERE = Path(__file__).resolve().parent


CALLS = 1_000_000
EXPECTED = "changed 0, first 1855.5"


def build(run: Any, folder: Path, compiler: str, *options: str) -> Tracee:
    """Return the program; the folder has its object, too."""
    (folder / "redzone.d").write_text("provider redzone { probe hit(int x); };\n")
    shutil.copy(HERE / "redzone.c", folder)
    module = (sys.executable, "-m", "usdtbuild")
    run(*module, "header", "--formats=dof", "redzone.d", "-o", "redzone.d.h", cwd=folder)
    run(*module, "cc", *options, "--", compiler, "-O2", "-c", "redzone.c", "-o", "redzone.o", cwd=folder)
    run(compiler, "redzone.o", "-o", "redzone", cwd=folder)
    return Tracee(folder / "redzone", (str(folder / "redzone"), str(CALLS)), folder)


def leaf(run: Any, folder: Path) -> str:
    listing = run("objdump", "-d", "redzone.o", cwd=folder).stdout
    return str(listing[listing.index("<leaf>:") : listing.index("ret", listing.index("<leaf>:"))])


@pytest.mark.parametrize("compiler", ["gcc", "clang"])
@pytest.mark.parametrize("nop", ["safe", "nop5", "classic"])
def test_functions_keep_their_data_under_a_tracer(
    bpftrace: str, run: Any, need: Any, tmp_path: Path, compiler: str, nop: str
) -> None:
    need(compiler)
    tracee = build(run, tmp_path, compiler, f"--nop={nop}")
    below = re.search(r"-0x[0-9a-f]+\(%rsp", leaf(run, tmp_path))
    assert bool(below) == (nop != "nop5")  # what the kernel makes a call of gets a frame
    lines = trace(bpftrace, tracee, "usdt:{binary}:redzone:hit {{ @hits = count(); }}\n")
    assert EXPECTED in lines
    assert f"@hits: {CALLS + 1}" in lines


@pytest.mark.parametrize("compiler", ["gcc", "clang"])
@pytest.mark.parametrize(
    ("engine", "nop", "calls"), [("patch", "safe", CALLS), ("auto", "classic", CALLS // 20), ("inside", "safe", CALLS)]
)
def test_functions_keep_their_data_under_our_own_tracer(
    usdtbuild: Any, run: Any, need: Any, tmp_path: Path, compiler: str, engine: str, nop: str, calls: int
) -> None:
    """Sites are jumps then, whose code has to step over what lies below the stack pointer. Classic NOPs leave each jump
    one distance, so two sites may want the same place; one of them gets a breakpoint."""
    need(compiler)
    tracee = build(run, tmp_path, compiler, f"--nop={nop}")
    assert trace_ours(usdtbuild, tracee, engine, calls) == calls + 1


@pytest.mark.parametrize("calls", [20_000, pytest.param(CALLS, marks=pytest.mark.slow)])
def test_functions_keep_their_data_under_breakpoints_of_ours(
    usdtbuild: Any, run: Any, tmp_path: Path, calls: int
) -> None:
    """A hit takes tens of microseconds."""
    tracee = build(run, tmp_path, "gcc")
    assert trace_ours(usdtbuild, tracee, "trap", calls) == calls + 1


def trace_ours(usdtbuild: Any, tracee: Tracee, engine: str, calls: int) -> int:
    """Run the program under `usdtbuild trace`; return how many hits that saw."""
    words = ["trace", "--engine", engine, "--count", "-P", "redzone:hit", "--", tracee.binary, calls]
    environment = {**os.environ, "XDG_CACHE_HOME": str(tracee.folder)}
    shown = usdtbuild(*words, env=environment, timeout=1800).stdout
    assert EXPECTED in shown.splitlines()
    found = re.findall(r"^\s*(\d+) +redzone:hit", shown, re.MULTILINE)
    assert len(found) == 1, shown
    return int(found[0])


def test_functions_keep_their_data_under_perf(perf: str, run: Any, tmp_path: Path) -> None:
    tracee = build(run, tmp_path, "gcc")
    with cached(run, perf, tracee), event(run, perf, "redzone:hit") as pattern:
        done = run(perf, "stat", "-x", ",", "-e", pattern, *tracee.command)
    assert done.stdout.strip() == EXPECTED
    assert sum(int(line.split(",")[0]) for line in done.stderr.splitlines() if "redzone:hit" in line) == CALLS + 1


@pytest.mark.parametrize("calls", [2000, pytest.param(CALLS, marks=pytest.mark.slow)])
def test_functions_keep_their_data_under_gdb(gdb: str, run: Any, tmp_path: Path, calls: int) -> None:
    """A stop of a debugger takes 0.3 ms, so a million take minutes."""
    tracee = build(run, tmp_path, "clang" if shutil.which("clang") else "gcc")
    script = ["break -probe-stap redzone:hit", f"ignore 1 {2 * calls}", f"run {calls}", "info breakpoints"]
    (tmp_path / "script").write_text("\n".join(script) + "\n")
    done = run(gdb, "-nx", "-batch", "-x", "script", tracee.binary, cwd=tmp_path, timeout=3600).stdout
    assert EXPECTED in done
    assert f"breakpoint already hit {calls + 1} times" in done


# --- what an argument points to ---------------------------------------------------------------------------------

POINTED = """\
#include "app.h"
struct point { int x, y; long long sum; };
__attribute__((noinline)) void shown(int n);
void shown(int n)
{
    struct point p;
    p.x = n;
    p.y = -2 * n;
    p.sum = p.x + p.y;
    APP_POINT(&p);
}
int main(void) { int i; for (i = 1; i < 4; i++) shown(i); return 0; }
"""
SHOW = """
usdt:{binary}:app:point {{ printf("point %d %d %ld\\n", *(int32 *)arg0, *(int32 *)(arg0 + 4), *(int64 *)(arg0 + 8)); }}
"""


@pytest.mark.parametrize("line", ["gcc -O2", "gcc -O3", "clang -O2", "clang -O3", "g++ -O2 -x c++"])
@pytest.mark.parametrize("command", ["header", "dtrace"])
def test_a_struct_that_only_the_probe_reads_is_filled(
    command: str, line: str, bpftrace: str, run: Any, need: Any, tmp_path: Path
) -> None:
    """gcc leaves out stores that nothing reads, and assembly reads no memory unless it says so."""
    words = line.split()
    need(words[0])
    (tmp_path / "app.d").write_text("provider app { probe point(struct point *p); };\n")
    (tmp_path / "main.c").write_text(POINTED)
    module = (sys.executable, "-m", "usdtbuild")
    if command == "header":
        run(*module, "header", "--formats=dof", "app.d", cwd=tmp_path)
    else:
        run(sys.executable, "-m", "usdtbuild.dtrace", "-h", "-s", "app.d", cwd=tmp_path)
    run(*module, "cc", "--", *words, "-c", "main.c", "-o", "main.o", cwd=tmp_path)
    run(words[0], "main.o", "-o", "program", cwd=tmp_path)
    lines = trace(bpftrace, Tracee(tmp_path / "program", (str(tmp_path / "program"),), tmp_path), SHOW)
    assert [line for line in lines if line.startswith("point")] == ["point 1 -2 -1", "point 2 -4 -2", "point 3 -6 -3"]
