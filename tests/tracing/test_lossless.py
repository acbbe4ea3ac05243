"""`--lossless`: a program waits until its hits are read, and doesn't wait for a tracer that stands still or is gone."""

from __future__ import annotations

import ctypes
import json
import mmap
import os
import re
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.started import Started, code_of
from usdtbuild.tracing.hosts import HOST
from usdtbuild.tracing.patch.code import GONE, RINGS, Shape
from usdtbuild.tracing.patch.rings import Rings
from usdtbuild.tracing.running import status_field
from usdtbuild.tracing.waiting import Waiting

from .numbered import Running

TINY = "--buffer", 1, "-P", "last:tick"  # rings that 20,000 records fill


@pytest.mark.parametrize("threads", [1, 8, 24])
@pytest.mark.parametrize("hits", [240_000, pytest.param(4_800_000, marks=pytest.mark.slow)])
def test_no_hit_is_lost_at_full_speed(
    numbered: Path, run: Any, unprivileged: list[str], tmp_path: Path, threads: int, hits: int
) -> None:
    tmp_path.chmod(0o777)
    file, each = tmp_path / "hits.csv", hits // threads
    trace = [*unprivileged, sys.executable, "-m", "usdtbuild", "trace", "-o", file, *TINY, "--lossless", "100s"]
    done = run(*trace, "--", numbered, threads, "fire", each)
    assert "lost" not in done.stderr.replace("(--lossless)", "")
    with file.open() as lines:
        names = next(lines).rstrip().split(",")
        thread, number, check = (names.index(one) for one in ("thread", "number", "check"))
        following = Counter[str]()
        for line in lines:
            values = line.rstrip().split(",")
            assert int(values[number]) == following[values[thread]]
            assert int(values[check]) == ~int(values[number]) * 3
            following[values[thread]] += 1
    assert following == {str(one): each for one in range(threads)}


def worker_of(pid: int) -> int:
    """Return the process that traces a program."""
    return int(status_field(pid, "TracerPid"))


def written(file: Path) -> int:
    return len(file.read_text().splitlines())


@pytest.mark.parametrize("threads", [1, 8])
def test_a_tracer_that_stands_still_is_not_waited_for_beyond_the_time(
    numbered: Path, unprivileged: list[str], tmp_path: Path, threads: int
) -> None:
    tmp_path.chmod(0o777)
    file = tmp_path / "hits.jsonl"
    words = "-o", file, *TINY, "--lossless", "200ms", "--", numbered, threads
    trace = Running(unprivileged, *words, "wait", "fire", 100_000, "wait", "fire", 1000)
    worker = worker_of(pid := trace.waits())
    os.kill(worker, signal.SIGSTOP)
    trace.go_on()
    trace.waits()  # it gets there while nobody reads
    os.kill(worker, signal.SIGCONT)
    trace.go_on()
    trace.end()
    (lost,) = re.findall(r"warning: ([0-9]+) of [0-9]+ hits were lost", trace.errors)
    assert int(lost) + written(file) == 101_000 * threads
    assert "nothing was read for 0.2 s, so threads went on without (--lossless)" in trace.errors
    (waited,) = re.findall(r"have waited for ([0-9.e+-]+) s in all until their hits were read", trace.errors)
    assert float(waited) >= 0.19 * min(threads, RINGS)
    assert not Path(f"/proc/{pid}").exists()


def waits_for_room(pid: int) -> bool:
    """Whether a thread of a process is in a futex(2)."""
    calls = (one.read_text("ascii").split()[0] for one in Path(f"/proc/{pid}/task").glob("*/syscall"))
    return str(HOST.kernel.numbers["futex"]) in calls


def test_a_tracer_that_is_killed_is_not_waited_for_and_the_code_is_as_it_was(numbered: Path) -> None:
    with Started(numbered, 1, "wait", "fire", 200_000, "wait") as started:
        assert [started.line() for _ in range(2)][1] == "waiting\n"
        before = code_of(started.pid, numbered)
        trace = Running([], *TINY, "--lossless", "3s", "-p", started.pid)
        while code_of(started.pid, numbered) == before:
            time.sleep(0.01)
        worker = worker_of(started.pid)
        os.kill(worker, signal.SIGSTOP)
        started.tell()
        while not waits_for_room(started.pid):
            time.sleep(0.01)
        os.kill(worker, signal.SIGKILL)
        assert [started.line() for _ in range(2)][1] == "waiting\n"
        trace.end(code=1)
        assert code_of(started.pid, numbered) == before
        started.end("\n")
        assert started.returncode == 0


def test_a_program_that_gets_a_filter_of_system_calls_does_not_wait() -> None:
    """A filter that lets all pass, since it could be any."""
    install = (
        "import ctypes, sys\n"
        "class Program(ctypes.Structure): _fields_ = [('length', ctypes.c_ushort), ('code', ctypes.c_void_p)]\n"
        "code = ctypes.create_string_buffer(bytes.fromhex('060000000000ff7f'))\n"
        "program = Program(1, ctypes.addressof(code))\n"
        "call = ctypes.CDLL(None).prctl\n"
        "assert call(38, 1, 0, 0, 0) == 0 and call(22, 2, ctypes.byref(program), 0, 0) == 0\n"
        "print('installed', flush=True)\nsys.stdin.read()\n"
    )
    shape = Shape(48, 64, 1 << 13, 64, patience=1)
    with mmap.mmap(-1, RINGS * shape.stride) as data:
        rings = Rings(data, 0, shape, lambda start, size: True)
        rings.prepare(0, 4096)
        engine: Any = SimpleNamespace(rings=rings, waited=0)
        waiting = Waiting(1.0)
        waiting.look([os.getpid()], [(0, engine)])
        rings.collect(lambda raw: True)
        assert ctypes.c_uint64.from_buffer_copy(data, GONE).value == (status_field(os.getpid(), "Seccomp") != "0")
        with Started(sys.executable, "-c", install) as child:
            assert child.line() == "installed\n"
            waiting.look([child.pid], [(0, engine)])
            child.communicate()
        rings.collect(lambda raw: True)
        assert ctypes.c_uint64.from_buffer_copy(data, GONE).value == 1
        rings.close()
    assert "has got a seccomp filter" in waiting.notes([], 1)[0]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--lossless", "0"), "'--lossless': 0 is not in the range"),
        (("--lossless", "soon"), "'--lossless': 'soon' is no time"),
        (("--lossless", "--last", "5"), "--last keeps the last hits one by one, and doesn't go with --lossless"),
        (("--lossless", "--engine", "gdb"), "the engine gdb doesn't let the program wait for it (--lossless)"),
    ],
)
def test_what_makes_no_sense_is_refused_before_anything_starts(
    refused: Callable[..., str], words: tuple[str, ...], said: str
) -> None:
    assert said in refused(*words)


def test_without_a_time_it_is_five_seconds(numbered: Path, usdtbuild: Any, tmp_path: Path) -> None:
    file = tmp_path / "hits.jsonl"
    usdtbuild("trace", "-P", "last:*", "--lossless", "-o", file, "--", numbered, 2, "fire", 100)
    assert Counter(json.loads(one)["args"]["thread"] for one in file.read_text().splitlines()) == {0: 100, 1: 100}
