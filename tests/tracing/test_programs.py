"""Programs that were not built for it, that are confined, or that other tracers watch; and tracers that are killed."""

from __future__ import annotations

import contextlib
import os
import random
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.started import TRACE, Started, ready, tracing, wait_for

from .conftest import SOURCES

# Every probe of sys/sdt.h is a single NOP with live code behind it, and its operands are what the compiler had.
FOREIGN = r"""
#include <stdio.h>
#include <sys/sdt.h>
struct pair { int first; short second; };
static int table[4] = {10, 20, 30, 40};
__attribute__((noinline)) static double work(int i, struct pair *p, const char *s, double d) {
    DTRACE_PROBE5(foreign, mixed, i, p->second, table[i & 3], s, (long)i << 33);
    return d * i;
}
int main(void) {
    struct pair p = {-5, -6};
    double sum = 0;
    for (int i = 0; i < 4; i++) sum += work(i, &p, "text", 1.5);
    printf("%g\n", sum);
    return 0;
}
"""
CONFINED = r"""
#include "scene.h"
#include <linux/seccomp.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>
int main(void) {
    if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT)) return 3;
    for (int i = 0; i < 5; i++) SCENE_LAST(i, 2 * i);
    (void)!write(1, "done\n", 5);
    syscall(SYS_exit, 0);
}
"""


@pytest.mark.parametrize("engine", ["patch", "trap"])
@pytest.mark.parametrize("level", ["-O0", "-O2"])
def test_probes_of_system_headers(counted: Any, tmp_path: Path, engine: str, level: str, compiled: Any) -> None:
    if not any(Path(folder, "sys/sdt.h").exists() for folder in ("/usr/include", "/usr/include/x86_64-linux-gnu")):
        pytest.skip("sys/sdt.h is not installed")
    compiled(tmp_path, "foreign.c", FOREIGN, level)
    program = tmp_path / "foreign"
    counts, printed = counted("--engine", engine, "-P", "foreign:mixed", "--", program)
    assert counts == {"foreign:mixed": 4}
    assert "9\n" in printed


def test_arguments_of_system_headers_agree(run: Any, traced: Any, tmp_path: Path) -> None:
    if not any(Path(folder, "sys/sdt.h").exists() for folder in ("/usr/include", "/usr/include/x86_64-linux-gnu")):
        pytest.skip("sys/sdt.h is not installed")
    (tmp_path / "foreign.c").write_text(FOREIGN)
    (tmp_path / "foreign.d").write_text("provider foreign { probe mixed(int i, short s, int t, char *text, long l); };")
    run("gcc", "-O2", "foreign.c", "-o", "foreign", cwd=tmp_path)
    seen = {}
    for engine in ("patch", "trap"):
        words = ("--engine", engine, "-P", "foreign:mixed", "--provider", tmp_path / "foreign.d")
        seen[engine] = [values for _, values in traced(*words, "--", tmp_path / "foreign").hits]
        assert [values["i"] for values in seen[engine]] == ["0", "1", "2", "3"]
        assert {values["text"] for values in seen[engine]} == {'"text"'}
        assert [values["l"] for values in seen[engine]] == [str(i << 33) for i in range(4)]
        assert {values["s"] for values in seen[engine]} == {"-6"}
    assert seen["patch"] == seen["trap"]


def test_pythons_own_probes(counted: Any) -> None:
    python = Path("/usr/bin/python3")
    if not python.exists() or b".note.stapsdt" not in python.read_bytes():
        pytest.skip("/usr/bin/python3 has no probes")
    code = "import gc\ndef f(): gc.collect()\nfor _ in range(1000): f()"
    words = ("-P", "python:gc*", "--", python, "-I", "-S", "-c", code)
    counts, _ = counted("--engine", "patch", *words)
    assert counts["python:gc__start"] >= 1000
    assert counts == counted("--engine", "trap", *words)[0]


def test_confined_by_seccomp(scene: Any, run: Any, traced: Any) -> None:
    """A process that may not make system calls gets breakpoints, even if it is confined before it is seen."""
    folder = scene("pie").parent
    (folder / "confined.c").write_text(CONFINED)
    run(sys.executable, "-m", "usdtbuild", "cc", "--", "gcc", "-O2", "-c", "confined.c", cwd=folder)
    run("gcc", "confined.o", "-o", "confined", cwd=folder)
    seen = traced("--engine", "trap", "-P", "scene:*", "--", folder / "confined")
    assert [values for _, values in seen.hits] == [{"round": str(i), "sum": str(2 * i)} for i in range(5)]
    assert seen.output == ["done"]


@pytest.mark.parametrize("engine", ["auto", "patch", "trap"])
def test_a_program_of_32_bits_is_left_alone_and_that_is_told(
    run: Any, traced: Any, need: Any, need_c_library: Any, tmp_path: Path, engine: str
) -> None:
    cc = need("i686-linux-gnu-gcc")
    need_c_library(cc)
    for name in ("scene.c", "scene.d"):
        (tmp_path / name).write_bytes((SOURCES / name).read_bytes())
    tmp_path.chmod(0o755)
    run(sys.executable, "-m", "usdtbuild", "header", "--formats=dof", "scene.d", "-o", "scene.h", cwd=tmp_path)
    run(sys.executable, "-m", "usdtbuild", "cc", "--", cc, "-O2", "-c", "scene.c", cwd=tmp_path)
    run(cc, "-static", "-pthread", "scene.o", "-o", "scene", cwd=tmp_path)
    try:
        subprocess.run([tmp_path / "scene", "1"], check=True, capture_output=True)
    except (OSError, subprocess.SubprocessError) as error:
        pytest.skip(f"this kernel runs no programs of 32 bits: {error}")
    seen = traced("--engine", engine, "-P", "scene:last", "--", tmp_path / "scene", "2")
    assert seen.output == ["wrong=0 guarded=0"]
    assert not seen.hits
    assert "scene:last at 0x" in seen.errors
    assert "only x86-64 programs can be traced like this on this machine" in seen.errors


@pytest.mark.parametrize("engine", ["patch", "trap"])
@pytest.mark.parametrize("times", [6, pytest.param(200, marks=pytest.mark.slow)])
def test_tracer_killed_at_any_moment(scene: Any, engine: str, times: int) -> None:
    chance = random.Random(times)
    program = Started(scene("pie"), 200_000 if engine == "patch" else 20_000, 2, "wait")
    for _ in range(times):
        words = [*TRACE, "--engine", engine, "-P", "scene:*", "-p", str(program.pid)]
        tracer = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(chance.uniform(0.1, 0.7))
        tracer.kill()
        tracer.wait()
    time.sleep(0.5)
    assert program.end("\n", timeout=120) == "ready\nwrong=0 guarded=0\n"
    assert program.returncode == 0


class Sharing:
    """A program whose child runs in its memory and waits for a byte; then it waits for one itself."""

    def __init__(self, run: Any, folder: Path, times: int = 1, *, first: bool = False) -> None:
        run("gcc", "-O1", SOURCES / "vfork.c", "-o", folder / "sharing")
        self.process = ready(folder / "sharing", times, *(["wait"] if first else []))
        if not first:
            wait_for(lambda: _system_call(self.process.pid) in {"56", "58", "435"})

    def go(self) -> None:
        """Give the one that waits its byte."""
        self.process.tell()

    def end(self) -> None:
        """See that it has ended well, and its child too."""
        assert (self.process.end(), self.process.returncode) == ("done\n", 0)


def _system_call(pid: int) -> str:
    return Path(f"/proc/{pid}/syscall").read_text().split()[0]


@pytest.mark.parametrize("engine", ["patch", "trap"])
def test_a_child_that_shares_the_memory_of_what_is_attached_to_is_waited_for(
    run: Any, tmp_path: Path, engine: str
) -> None:
    """It isn't traced, and a breakpoint in the memory that it shares would end it."""
    sharing = Sharing(run, tmp_path)
    words = [*TRACE, "-v", "--count", "-L", "srand", "--engine", engine, "-p", sharing.process.pid]
    with Started(*words, stdin=None, stderr=subprocess.PIPE) as tracer:
        wait_for(lambda: "TracerPid:\t0\n" not in Path(f"/proc/{sharing.process.pid}/status").read_text())
        sharing.go()
        assert "tracing process" in tracer.said()
        sharing.go()
        sharing.end()
        output = tracer.end()
    assert output.split()[:2] == ["5", "srand"]


def test_a_process_whose_memory_another_shares_all_the_while_is_left_alone(
    run: Any, usdtbuild: Any, tmp_path: Path
) -> None:
    sharing = Sharing(run, tmp_path)
    before = time.monotonic()
    done = usdtbuild("trace", "--count", "-L", "srand", "-p", sharing.process.pid, code=1)
    assert time.monotonic() - before < 5  # a second, and Python starts besides; the child never ends by itself
    assert "still runs in its memory (vfork)" in done.stderr
    sharing.go()
    sharing.go()
    sharing.end()


@pytest.mark.parametrize("engine", ["patch", "trap"])
def test_a_trace_that_ends_while_a_child_shares_the_memory(run: Any, tmp_path: Path, engine: str) -> None:
    sharing = Sharing(run, tmp_path, 20000, first=True)
    with tracing("--limit", 50, "-L", "srand", "--engine", engine, "-p", sharing.process.pid) as tracer:
        sharing.go()
        sharing.go()
        output = tracer.end(timeout=120)
    assert output.count("srand") == 50
    sharing.go()
    sharing.end()


def test_program_of_this_folder_is_named_with_it(usdtbuild: Any, tmp_path: Path) -> None:
    """As for a shell, a plain name is looked for in PATH; the message says what was meant."""
    (tmp_path / "app-here").write_text("")
    said = usdtbuild("trace", "app-here", cwd=tmp_path, code=1).stderr
    assert "app-here: can't be run: no such file or directory; it is in this folder" in said
    assert "./app-here" in said
    assert "./" not in usdtbuild("trace", "app-nowhere", cwd=tmp_path, code=1).stderr


THROWS = r"""
#include <cstdio>
int main(int argc, char **) {
    for (int i = 0; i < argc; i++) try { throw i; } catch (int) {}
}
"""


def test_probes_that_nobody_asked_for(need: Any, usdtbuild: Any, tmp_path: Path, compiled: Any) -> None:
    """Those of libraries that have no hit are one line; who names probes, even all of them, gets them one by one."""
    compiled(tmp_path, "throws.cc", THROWS, "-O2", cc=need("g++"))
    named = usdtbuild("trace", "--count", "-P", "*", "--", tmp_path / "throws").stdout
    rows = re.findall(r"^ *([0-9]+)  (\w+:\w+)", named, re.MULTILINE)
    if ("1", "libstdcxx:throw") not in rows or all(int(number) for number, _ in rows):
        pytest.skip("this C++ library has no probes, or none that are quiet")
    shown = usdtbuild("trace", "--count", "--", tmp_path / "throws").stdout
    left = sum(number == "0" for number, _ in rows)
    assert re.findall(r"^ *([0-9]+)  (\w+:\w+)", shown, re.MULTILINE) == [row for row in rows if row[0] != "0"]
    assert re.search(rf"^\(and {left} probes? of libraries without a hit\)$", shown, re.MULTILINE)


OWN_AND_OTHERS = """
#include <stdexcept>
#include "app.h"
int main()
{
	for (int i = 0; i < 5; i++) {
		APP_GO(i);
		try { if (i > 2) throw std::runtime_error("odd"); } catch (const std::exception &) { }
	}
}
"""


def test_a_filter_is_for_the_programs_own_probes_where_none_are_named(
    need: Any, usdtbuild: Any, tmp_path: Path, compiled: Any, header_of: Any
) -> None:
    """The C++ library has probes, too, of which none has such an argument; who names them hears of that."""
    header_of(tmp_path, "app.d", "provider app { probe go(int id); };")
    compiled(tmp_path, "app.cc", OWN_AND_OTHERS, "-O2", cc=need("g++"))
    trace = ["trace", "--filter"]
    hits = usdtbuild(*trace, "id > 1", "--", "./app", cwd=tmp_path).stdout
    assert re.findall(r"(\w+:\w+) id=(\d)", hits) == [("app:go", "2"), ("app:go", "3"), ("app:go", "4")]
    assert "3  app:go" in usdtbuild(*trace, "id > 1", "--count", "--", "./app", cwd=tmp_path).stdout
    said = usdtbuild(*trace, "idd > 1", "--", "./app", cwd=tmp_path, code=2).stderr
    assert "--filter: app:go has no argument idd; it has id" in said
    said = usdtbuild(*trace, "id > 1", "-P", "*", "--", "./app", cwd=tmp_path, code=None).stderr
    assert not said or re.search(r"--filter: lib\w+:\w+ has no argument id", said)  # some libraries have no probes


def test_a_program_without_anything_that_may_be_traced(usdtbuild: Any, tmp_path: Path, compiled: Any) -> None:
    compiled(tmp_path, "nothing.c", "int main(void) { return 0; }\n")
    said = usdtbuild("trace", "-x", "*", "--", tmp_path / "nothing").stderr
    assert "warning: the program has no probes that -x and --module leave; usdtbuild list FILE would show" in said


@pytest.fixture
def held_back(run: Any, tmp_path: Path, compiled: Any) -> Path:
    """A program that waits in the dynamic linker: one of its libraries is a FIFO, `libslow.so`."""
    (tmp_path / "main.c").write_text("int slow(void);\nint main(void) { return slow(); }\n")
    compiled(tmp_path, "slow.c", "int slow(void) { return 0; }\n", "-shared", "-fPIC", to="libslow.so")
    run("gcc", "main.c", "./libslow.so", "-o", "main", cwd=tmp_path)
    (tmp_path / "libslow.so").unlink()
    os.mkfifo(tmp_path / "libslow.so")
    return tmp_path / "main"


def writer_of(fifo: Path) -> int:
    """Open a FIFO for writing, once somebody waits for what comes out of it."""
    for _ in range(1000):
        with contextlib.suppress(OSError):
            return os.open(fifo, os.O_WRONLY | os.O_NONBLOCK)
        time.sleep(0.03)
    raise AssertionError("nobody has opened it")


@pytest.mark.parametrize(
    "words",
    [
        (),
        ("--engine", "gdb"),
        ("--engine", "inside"),
        ("--report",),
        ("--emulator", "qemu-x86_64"),
        ("--count", "--emulator", "qemu-x86_64"),
    ],
    ids=" ".join,
)
def test_what_was_not_looked_up_is_not_said_to_be_missing(need: Any, held_back: Path, words: tuple[str, ...]) -> None:
    if words and words[-1] in {"gdb", "qemu-x86_64"}:
        need(words[-1])
    line = *TRACE, *words, "--", "./main"
    with Started(*line, cwd=held_back.parent, stdin=None, stdout=None, stderr=subprocess.PIPE) as tracer:
        writer = writer_of(held_back.with_name("libslow.so"))
        tracer.send_signal(signal.SIGINT)
        time.sleep(0.2)
        os.close(writer)
        said = tracer.communicate()[1]
    early = "ended before it was known what there is to trace", "was ended before everything was armed"
    assert f"usdtbuild: the trace {early['--emulator' not in words]}" in said
    assert "warning" not in said
    assert "Traceback" not in said


@pytest.mark.parametrize("engine", ["auto", "trap"])
def test_a_file_that_cannot_be_read_is_not_said_to_have_no_probes(
    usdtbuild: Any, tmp_path: Path, engine: str, compiled: Any
) -> None:
    compiled(tmp_path, "main.c", "int main(void) { return 3; }\n")
    content = bytearray((tmp_path / "main").read_bytes())
    content[40:48] = (1 << 40).to_bytes(8, "little")  # e_shoff: programs run without sections
    (tmp_path / "main").write_bytes(content)
    said = usdtbuild("trace", "--engine", engine, "--", "./main", cwd=tmp_path, code=3).stderr
    first, *others = said.splitlines()
    assert re.fullmatch(r"usdtbuild: not traced: \S+/main: the section headers at offset .*", first)
    assert all("libc:" in one for one in others)  # which may have probes of its own
