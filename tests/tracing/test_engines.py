"""Counts and arguments are exact, engine by engine, for programs of every shape, without any privilege."""

from __future__ import annotations

import json
import os
import re
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.started import Started, children_of, ready, tracing, wait_for
from usdtbuild.tracing.patch import shards
from usdtbuild.tracing.selection import Wanted, select

from .conftest import PROBES, SHAPES, built_with_probes, check_arguments, parse

ALL = ("-P", "scene:*")


@pytest.mark.parametrize("engine", ["patch", "trap"])
@pytest.mark.parametrize("shape", [*SHAPES, "shared"])
def test_every_hit_with_its_arguments(scene: Any, traced: Any, shape: str, engine: str) -> None:
    program = scene(shape)
    seen = traced(*ALL, "--engine", engine, "--", program, 21, 2, cwd=program.parent)
    check_arguments(seen.hits, 21, 2)
    assert seen.output == ["wrong=0 guarded=42"]
    assert not seen.errors


@pytest.mark.parametrize("nop", ["nop5", "classic"])
@pytest.mark.parametrize("cc", ["gcc", "clang"])
def test_every_form_of_site(scene: Any, traced: Any, need: Any, cc: str, nop: str) -> None:
    need(cc)
    seen = traced(*ALL, "--", scene("pie", cc, nop), 21, 2)
    check_arguments(seen.hits, 21, 2)
    assert seen.output == ["wrong=0 guarded=42"]


@pytest.mark.parametrize("engine", ["patch", "trap"])
def test_counts_are_exact(scene: Any, counted: Any, engine: str) -> None:
    rounds = 100_000 if engine == "patch" else 200
    counts, printed = counted(*ALL, "--engine", engine, "--", scene("pie"), rounds, 4)
    assert counts == {f"scene:{name}": 4 * rounds for name in PROBES}
    assert f"wrong=0 guarded={4 * rounds}" in printed


@pytest.mark.parametrize("engine", ["patch", "trap"])
def test_library_that_is_closed_and_opened_again(scene: Any, counted: Any, engine: str) -> None:
    host = scene("dlopen")
    counts, printed = counted(*ALL, "--engine", engine, "--", host, 100, 2, cwd=host.parent)
    assert counts == {f"scene:{name}": 400 for name in PROBES}
    assert printed.count("wrong=0 guarded=200") == 2


@pytest.mark.parametrize("engine", ["patch", "trap"])
def test_programs_that_the_program_starts(scene: Any, counted: Any, tmp_path: Path, engine: str) -> None:
    """One after the other, one whose parent is gone (the pipe says when it ended), and one in the shell's place."""
    program = scene("pie")
    tmp_path.chmod(0o777)
    script = f"{program} 10; mkfifo ended; chmod 666 ended; ({{ {program} 10 2; echo >ended; }} &)"
    script += f"; read line <ended; rm ended; exec {program} 10 3"
    counts, _ = counted(*ALL, "--engine", engine, "--", "sh", "-c", script, cwd=tmp_path)
    assert counts["scene:last"] == 60
    alone, _ = counted(*ALL, "--engine", engine, "--no-children", "--", "sh", "-c", script, cwd=tmp_path)
    assert alone["scene:last"] == 30


@pytest.mark.parametrize("engine", ["patch", "trap"])
def test_program_in_the_background_outlives_the_command(scene: Any, counted: Any, tmp_path: Path, engine: str) -> None:
    """It is let go when the command ends, wherever it is then, and runs on unharmed; what it says to have done while
    the probe was enabled was counted, but for the passes that its two threads were in."""
    program = scene("pie")
    tmp_path.chmod(0o777)
    os.mkfifo(tmp_path / "said")
    (tmp_path / "said").chmod(0o666)
    both = os.open(tmp_path / "said", os.O_RDWR)  # nobody waits for the other end to be opened
    script = f"({program} 2000 2 >said &); exec {program} 10 3"
    counts, _ = counted(*ALL, "--engine", engine, "--", "sh", "-c", script, cwd=tmp_path)
    with os.fdopen(both, "rb", buffering=0) as stream:
        said = re.fullmatch(rb"wrong=0 guarded=(\d+)\n", stream.readline())
    assert said is not None
    assert int(said[1]) - 2 <= counts["scene:guarded"] - 30 <= int(said[1])


class Running:
    """The scene as a process that waits for a line before it begins."""

    def __init__(self, program: Any, rounds: int, threads: int) -> None:
        self.process = ready(program, rounds, threads, "wait")

    def end(self) -> str:
        """Let it run to its end; returns what it wrote."""
        output = self.process.end("\n")
        assert self.process.returncode == 0
        return output


def watch(pid: int, *options: str) -> Started:
    """Start `usdtbuild trace` on a process, and wait until it is armed, which the semaphore in the count tells."""
    return tracing(*ALL, *options, "-p", pid)


CLOSE = r"""
#define SITE(name) "990: nop\n.pushsection .note.stapsdt,\"?\",\"note\"\n.balign 4\n.4byte 992f-991f, 994f-993f, 3\n" \
    "991: .asciz \"stapsdt\"\n992: .balign 4\n993: .8byte 990b, 0, 0\n.asciz \"own\", \"" name "\", \"\"\n" \
    "994: .balign 4\n.popsection\n"
int main(void)
{
    __asm__ volatile(SITE("one") SITE("two") SITE("three") SITE("four") SITE("five") ".skip 8, 0x90");
    return 0;
}
"""


def test_probes_that_cost_a_breakpoint_are_named(traced: Any, tmp_path: Path, compiled: Any) -> None:
    """Behind a NOP of one byte no jump has room if the next site is there."""
    compiled(tmp_path, "own.c", CLOSE)
    shown = traced("--count", "-P", "own:*", "--", tmp_path / "own").errors
    assert re.search(r"[0-9] sites are watched by a breakpoint \(own:\w+, own:\w+, own:\w+ and [12] more\): ", shown), (
        shown
    )
    assert "; -x leaves them out)" in shown


@pytest.mark.parametrize(
    ("options", "most"),
    [
        (("--count",), 1 << 18), (("--count", "--filter", "a > 2"), 1 << 18), (("--sum", "f"), 1 << 18),
        (("--by", "f", "--sum", "f"), (1 << 21) + shards.MEMORY), (("--histogram", "f"), 1 << 21),
        (("--latency", "scene:ints", "scene:wide"), 1 << 22),
    ],
)  # fmt: skip
def test_what_is_only_added_up_needs_no_buffers(scene: Any, options: tuple[str, ...], most: int) -> None:
    """A process shares tables and code with the tracer, and rings only for records, each of megabytes."""
    running = Running(scene("pie"), 5, 1)
    tracer = watch(running.process.pid, "-x", "scene:[tgel]*", "--engine", "patch", *options)
    maps = Path(f"/proc/{running.process.pid}/maps").read_text()
    _, errors = tracer.interrupt()
    assert tracer.returncode == 0, errors
    running.end()
    shared = re.findall(r"^([0-9a-f]+)-([0-9a-f]+) .*usdtbuild-trace", maps, re.MULTILINE)
    assert 0 < sum(int(end, 16) - int(start, 16) for start, end in shared) < most


@pytest.mark.parametrize("engine", ["patch", "trap"])
def test_running_process_attached_and_let_go_three_times(scene: Any, engine: str) -> None:
    running = Running(scene("pie"), 50, 2)
    before = code_of(running.process.pid)
    for _ in range(2):
        tracer = watch(running.process.pid, "--count", "--engine", engine)
        assert code_of(running.process.pid) != before
        output, errors = tracer.interrupt()
        assert tracer.returncode == 0, errors
        assert output == "(6 without a hit)\n"
        assert code_of(running.process.pid) == before
    tracer = watch(running.process.pid, "--count", "--engine", engine)
    assert running.end() == "wrong=0 guarded=100\n"
    output, errors = tracer.communicate(timeout=60)
    assert sorted(output.split()) == sorted([word for name in PROBES for word in ("100", f"scene:{name}")])


def test_traced_eight_times_it_has_no_more_mapped_than_after_the_first_two(scene: Any) -> None:
    """A trace of the same probes uses again what an earlier one has left, counting and recording in turn."""
    running = Running(scene("pie"), 50, 2)
    pid, mapped = running.process.pid, []
    for number in range(8):
        tracer = watch(pid, *(("--count",) if number % 2 else ()))
        output, errors = tracer.interrupt()
        assert tracer.returncode == 0, errors
        assert "traced with patch" in errors
        mapped.append(len(Path(f"/proc/{pid}/maps").read_text().splitlines()))
    assert mapped[0] < mapped[1]
    assert set(mapped[2:]) == {mapped[1]}
    size = _mapped_size(pid)
    for name in ("text", "last"):  # other traces, which have code of their own, but not rings
        tracer = watch(pid, "-x", name)
        assert _mapped_size(pid) < size + (8 << 20)
        tracer.interrupt()
    tracer = watch(pid, "-x", "text")
    assert running.end() == "wrong=0 guarded=100\n"
    output, errors = tracer.communicate(timeout=60)
    found = parse(output).count()
    assert found == {f"scene:{name}": 100 for name in PROBES if name != "text"}, errors


def _mapped_size(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[0]) << 12


@pytest.mark.parametrize("what", ["count", "record"])
def test_hits_of_a_trace_in_what_another_has_left(scene: Any, what: str) -> None:
    running = Running(scene("pie"), 21, 2)
    pid = running.process.pid
    options = ("--count",) if what == "count" else ()
    tracer = watch(pid, *options)
    tracer.send_signal(signal.SIGINT)
    tracer.communicate(timeout=60)
    before = len(Path(f"/proc/{pid}/maps").read_text().splitlines())
    tracer = watch(pid, *options)
    assert len(Path(f"/proc/{pid}/maps").read_text().splitlines()) == before
    assert running.end() == "wrong=0 guarded=42\n"
    output, _ = tracer.communicate(timeout=60)
    if what == "record":
        check_arguments(parse(output).hits, 21, 2)
    else:
        assert sorted(output.split()) == sorted([word for name in PROBES for word in ("42", f"scene:{name}")])


@pytest.mark.parametrize("engine", ["patch", "trap"])
@pytest.mark.parametrize("killed", ["front", "worker", "both"])
def test_tracer_killed(scene: Any, engine: str, killed: str) -> None:
    """Nothing is left in the program, which runs on unharmed; and it can be traced again."""
    running = Running(scene("pie"), 50, 2)
    before = code_of(running.process.pid)
    tracer = watch(running.process.pid, "--engine", engine)
    (worker,) = children_of(tracer.pid)
    assert code_of(running.process.pid) != before
    if killed != "worker":
        tracer.kill()
    if killed != "front":
        os.kill(worker, signal.SIGKILL)
    _, errors = tracer.communicate(timeout=60)
    if killed == "worker":  # the front waits until all is put back
        assert "has ended unexpectedly" in errors
        assert code_of(running.process.pid) == before
    wait_for(lambda: code_of(running.process.pid) == before, "what the killed one changed is put back")
    tracer = watch(running.process.pid, "--count", "--engine", engine)
    assert running.end() == "wrong=0 guarded=100\n"
    output, _ = tracer.communicate(timeout=60)
    assert "100  scene:last" in output


def code_of(pid: int) -> bytes:
    """Return the program's code, the dynamic linker's, and the semaphores, as they are in its memory."""
    found = b""
    with open(f"/proc/{pid}/maps") as maps, open(f"/proc/{pid}/mem", "rb") as memory:  # noqa: PTH123
        for line in maps:
            if ("/ld-" in line or line.rstrip().endswith("/scene")) and "w" not in line.split()[1]:
                start, end = (int(word, 16) for word in line.split()[0].split("-"))
                memory.seek(start)
                found += memory.read(end - start)
        sites = [site for target in select(pid, Wanted(probes=("scene:*",))).targets for site in target.sites]
        for address in sorted({site.semaphore for site in sites if site.semaphore}):
            memory.seek(address)
            found += memory.read(2)
    return found


EDGES = r"""
#include "edges.h"
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
int main(void)
{
    char *page = mmap(0, 4 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    char *untouched = mmap(0, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memset(page, 'a', 3 * 4096);
    mprotect(page + 4096, 4096, PROT_NONE);
    munmap(page + 3 * 4096, 4096);
    EDGES_TEXT(page + 4092), getppid();
    EDGES_TEXT(page + 3 * 4096 - 3), getppid();
    EDGES_TEXT(page + 4096), getppid();
    EDGES_TEXT(untouched), getppid();
    strcpy(page + 4092, "end");
    EDGES_TEXT(page + 4092), getppid();
    return 0;
}
"""


@pytest.fixture(scope="module")
def edges(run: Any, tmp_path_factory: Any) -> Path:
    provider = "provider edges { probe text(string t); };\n"
    return built_with_probes(run, tmp_path_factory.mktemp("edges"), "edges", provider, EDGES, "-O2", "-DUSDT_LIVE")


@pytest.mark.parametrize("more", [(), ("--by", "t"), ("--filter", 't != "b"')])
@pytest.mark.parametrize("engine", ["patch", "trap", "inside", "gdb"])
def test_strings_end_where_the_program_can_not_read(
    edges: Path, usdtbuild: Any, need: Any, engine: str, more: tuple[str, ...]
) -> None:
    """Whoever reads them could read more: root, gdb and who traces may read what is protected from the program."""
    if engine == "gdb":
        need("gdb")
    shown = usdtbuild("trace", "--engine", engine, "-P", "edges:*", *more, "--", edges).stdout
    found = [re.sub("0x[0-9a-f]{6,}", "0x...", text) for text in re.findall(r'0x[0-9a-f]+|"\w*"(?:\.\.\.)?', shown)]
    assert sorted(found) == ['"aaa"...', '"aaaa"...', '"end"', *["0x..."] * (2 if "--filter" not in more else 0)]


FLOATS = r"""
#include <math.h>
#include <unistd.h>
#include "floats.h"
int main(void)
{
    volatile double values[] = {1, -1, NAN, INFINITY, -INFINITY, 0, -NAN, 2.5};
    for (int i = 0; i < 8; i++) {
        double value = values[i];
        FLOATS_ONE(i, value);
        getppid();
    }
    return 0;
}
"""


@pytest.fixture(scope="module")
def floats(run: Any, tmp_path_factory: Any) -> Path:
    provider = "provider floats { probe one(int i, double d); };\n"
    return built_with_probes(run, tmp_path_factory.mktemp("floats"), "floats", provider, FLOATS, "-O2", "-DUSDT_LIVE")


@pytest.mark.parametrize("engine", ["patch", "trap", "inside", "gdb"])
@pytest.mark.parametrize(
    ("test", "passing"),
    [("not (d > 0)", [1, 4, 5]), ("d <= 0", [1, 4, 5]), ("not (d == 1)", [1, 2, 3, 4, 5, 6, 7]),
     ("not (d == d)", [2, 6]), ("d > 0 or not (d < -5)", [0, 1, 3, 5, 7])],
)  # fmt: skip
def test_nan_in_filters(floats: Path, usdtbuild: Any, need: Any, engine: str, test: str, passing: list[int]) -> None:
    """The engine tests them where the hit happens, or the tracer."""
    if engine == "gdb":
        need("gdb")
    shown = usdtbuild("trace", "--engine", engine, "-P", "floats:*", "--filter", test, "--", floats).stdout
    assert [int(one) for one in re.findall(r" i=(\d)", shown)] == passing


def test_infinite_values_and_nan_are_counted_apart(floats: Path, usdtbuild: Any) -> None:
    def traced(*words: str) -> list[str]:
        shown: str = usdtbuild("trace", "-P", "floats:*", *words, "--", floats).stdout
        return [" ".join(line.split()) for line in shown.splitlines()]

    odd = "; 4 more are infinite or NaN"
    sum_ = f"floats:one d: 4 hits, sum 2.5, mean 0.625, min -1, max 2.5{odd}"
    assert traced("--sum", "d") == [sum_]
    assert traced("--histogram", "d")[0] == f"floats:one d: 4 values from -1 to 2.5, mean 0.625{odd}"
    assert traced("--sum", "d", "--by", "i")[:3] == [
        f"floats:one d by i: 4 values in 4 hits{odd}", "hits sum mean min max i", "1 2.5 2.5 2.5 2.5 7"]  # fmt: skip
    assert traced("--histogram", "d", "--by", "i")[0] == f"floats:one d by i: 4 values in 4 hits{odd}"
    only = "--filter", "not (d == d)"
    for one in ("--sum", "--histogram"):
        assert traced(one, "d", *only) == ["floats:one d: no finite values; 2 more are infinite or NaN"]
    (line,) = map(json.loads, traced("--json", "--sum", "d"))
    assert (line["not_finite"], line["rows"][0]["hits"]) == ({"floats:one d": 4}, 4)
