"""The flight recorder (`--last`, `--until`): what is written are the last hits, whole, and in order, as the program
itself knows them."""

from __future__ import annotations

import json
import mmap
import os
import random
import re
import signal
import struct
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from usdtbuild.tracing.patch.code import HEAD, RING_HEADER, RINGS, Shape
from usdtbuild.tracing.patch.kept import Kept, Piece, latest

from .conftest import built_with_probes
from .numbered import Running, of_its_own

Hit = tuple[str, int, int]  # name, thread, number


def hits_of(lines: Iterable[dict[str, Any]]) -> list[Hit]:
    """Return hits of lines of JSON, which must be in order and whole, those of each thread without a gap."""
    found, times, following = list[Hit](), list[int](), dict[int, int]()
    for one in lines:
        values = one["args"]
        if "check" in values:
            assert values["check"] == ~values["number"] * 3
            assert following.get(values["thread"], values["number"]) == values["number"]
            following[values["thread"]] = values["number"] + 1
        times.append(one["time"])
        found.append((one["probe"], values["thread"], values["number"]))
    assert times == sorted(times)
    return found


@pytest.fixture
def recorded(run: Any, unprivileged: list[str], tmp_path: Path) -> Callable[..., tuple[list[Hit], Any]]:
    """Run a trace without privileges, with `words` before the command; return hits, and how it was."""
    tmp_path.chmod(0o777)

    def record(*words: Any, **more: Any) -> tuple[list[Hit], Any]:
        file = tmp_path / "hits.jsonl"
        done = run(*unprivileged, sys.executable, "-m", "usdtbuild", "trace", "-o", file, *of_its_own(words), **more)
        return hits_of(map(json.loads, file.read_text().splitlines())), done

    return record


@pytest.mark.parametrize("threads", [1, 8, 40])
def test_the_last_hits_of_all_threads_are_written(numbered: Path, recorded: Any, threads: int) -> None:
    each = 200_000 // threads
    hits, done = recorded("--last", 1000, "--", numbered, threads, "fire", each)
    assert len(hits) == 1000
    ends = {thread: number for _, thread, number in hits}
    assert set(ends.values()) == {each - 1}
    assert not done.stderr


def test_of_few_hits_all_are_written(numbered: Path, recorded: Any) -> None:
    hits, _ = recorded("--last", "1h", "--", numbered, 8, "fire", 500)
    assert sorted(hits) == [("last:tick", thread, number) for thread in range(8) for number in range(500)]


def test_a_size_is_that_of_records(numbered: Path, recorded: Any) -> None:
    hits, _ = recorded("--last", "56KB", "-P", "last:tick", "--", numbered, 2, "fire", 100_000)
    assert len(hits) == 1024  # of 32 bytes, and 8 for each argument


def test_what_led_to_a_killed_program_is_written(numbered: Path, recorded: Any) -> None:
    hits, done = recorded("--last", 5000, "--", numbered, 8, "fire", 50_000, "kill", code=137)
    assert len(hits) == 5000
    assert {number for thread, number in {thread: number for _, thread, number in hits}.items()} == {49_999}
    assert set(done.stdout.split()) == {"50000"}


def numbers(lines: Iterable[str]) -> list[int]:
    return [int(line.partition("number=")[2].split()[0]) for line in lines]


def test_a_signal_asks_for_the_last_hits_and_each_comes_once(numbered: Path, unprivileged: list[str]) -> None:
    words = ["fire", 5000, "wait", "fire", 300, "wait", "fire", 10]
    trace = Running(unprivileged, "--last", 1000, "--", numbered, 1, *words)
    trace.waits()
    trace.dump()
    assert numbers(trace.lines(1000)) == list(range(4000, 5000))
    trace.go_on()
    trace.waits()
    trace.dump()
    assert numbers(trace.lines(300)) == list(range(5000, 5300))
    trace.go_on()
    assert numbers(trace.end().splitlines()) == list(range(5300, 5310))


def test_a_signal_that_comes_early_ends_nothing(numbered: Path, tmp_path: Path) -> None:
    """It comes while the command line is read, here for as long as a pipe holds a provider file back."""
    file = tmp_path / "other.d"
    os.mkfifo(file)
    trace = Running([], "--last", 1000, "--provider", file, "--", numbered, 1, "fire", 5000, "wait", "fire", 10)
    gives = os.open(file, os.O_WRONLY)  # waits until the trace reads
    trace.dump()
    time.sleep(0.1)
    os.write(gives, b"provider other { probe one(); };\n")
    os.close(gives)
    trace.waits()
    trace.dump()
    assert numbers(trace.lines(1000)) == list(range(4000, 5000))
    trace.go_on()
    assert numbers(trace.end().splitlines()) == list(range(5000, 5010))


def test_a_program_killed_while_it_hits_leaves_whole_records(numbered: Path, unprivileged: list[str]) -> None:
    trace = Running(unprivileged, "--last", 3000, "--", numbered, 4, "wait", "forever")
    pid = trace.waits()
    trace.go_on()
    trace.dump()
    trace.lines(1)
    os.kill(pid, signal.SIGKILL)
    found = [dict(re.findall(r"(\w+)=(-?\d+)", line)) for line in trace.end(137).splitlines()][-3000:]
    assert all(int(one["check"]) == ~int(one["number"]) * 3 for one in found)
    for thread in {one["thread"] for one in found}:
        own = [int(one["number"]) for one in found if one["thread"] == thread]
        assert own == list(range(own[0], own[0] + len(own)))


def test_what_is_read_while_threads_write_is_whole(numbered: Path, unprivileged: list[str], tmp_path: Path) -> None:
    """`check` is of the same hit in each record, and numbers only grow, whatever is overwritten meanwhile."""
    tmp_path.chmod(0o777)
    file = tmp_path / "hits.jsonl"
    trace = Running(unprivileged, "--last", "2000", "-o", file, "--", numbered, 20, "wait", "forever")
    pid = trace.waits()
    trace.go_on()
    for _ in range(30):
        trace.dump()
        time.sleep(0.02)
    os.kill(pid, signal.SIGALRM)
    trace.end()
    seen: dict[int, int] = {}
    lines = [json.loads(line)["args"] for line in file.read_text().splitlines()]
    for one in lines:
        assert one["check"] == ~one["number"] * 3
        assert one["number"] > seen.get(one["thread"], -1)
        seen[one["thread"]] = one["number"]
    assert len(lines) > 2000


@pytest.mark.parametrize("threads", [1, 8])
@pytest.mark.parametrize("until", ["last:error code > 4", "last:error not (code <= 4)", "l*:err*"])
def test_the_hit_that_is_waited_for_is_the_last(numbered: Path, recorded: Any, threads: int, until: str) -> None:
    code = 3 if "code" not in until else 0
    words = ["fire", 20_000, "error", code, "fire", 1000, "error", 5, "fire", 20_000]
    hits, done = recorded("--last", 300, "--until", until, "--", numbered, threads, *words)
    assert len(hits) == 300
    assert hits[-1] == ("last:error", 0, 20_000 if "code" not in until else 21_000)
    assert all(number < 21_001 for _, _, number in hits)
    assert "no hit was" not in done.stderr


FAR = r"""
#include "far.h"
#include <dlfcn.h>
#include <stdlib.h>
#define ROOM __asm__ volatile("nop; nop; nop; nop")
void hit(int number) { FAR_TICK(number); ROOM; }
void fail(int number) { FAR_ERROR(number); ROOM; }
int main(int argc, char **argv) {
    void (*hits[3])(int) = {hit}, (*fails)(int) = fail, *first = dlopen(argv[1], RTLD_NOW);
    for (int i = 1; i < 3; i++) {
        void *library = dlopen(argv[i], RTLD_NOW);
        hits[i] = (void (*)(int))dlsym(library, "hit"), fails = (void (*)(int))dlsym(library, "fail");
    }
    int number = 0;
    for (; number < 1000; number++) hits[number % 3](number);
    if (argc > 3) dlclose(first), dlclose(first), hits[1] = hit;
    for (; number < 2000; number++) hits[number % 3](number);
    fails(2000);
    for (; number < 200000; number++) hits[number % 3](number);
    return 0;
}
"""


@pytest.mark.parametrize("more", [[], ["close"]])
def test_the_hit_that_is_waited_for_may_be_in_a_library_that_comes_later(
    more: list[str], run: Any, usdtbuild: Any, tmp_path: Path
) -> None:
    """Nothing is kept behind it, nowhere in the process; one library may be gone by then."""
    program = built_with_probes(run, tmp_path, "far", "provider far { probe tick(int n); probe error(int n); };\n", FAR)
    libraries = [program.with_name(f"libfar{number}.so") for number in range(2)]
    for one in libraries:
        run("gcc", "-O2", "-fPIC", "-shared", "far.c", "-o", one, cwd=tmp_path)
    done = usdtbuild("trace", "-P", "far:*", "--last", 25, "--until", "far:error", "--", program, *libraries, *more)
    assert [int(one) for one in re.findall(r"far:\w+ n=(\d+)", done.stdout)] == [*range(1976, 2000), 2000]


def test_a_hit_that_never_comes_is_told(numbered: Path, recorded: Any) -> None:
    hits, done = recorded("--last", 300, "--until", "last:error code > 9", "--", numbered, 1, "fire", 5000, "error", 9)
    assert hits[-1] == ("last:error", 0, 5000)
    assert "no hit was what --until waits for: last:error code > 9" in done.stderr


def test_only_hits_that_pass_are_kept(numbered: Path, recorded: Any) -> None:
    hits, _ = recorded("--last", 50, "--filter", "number < 700 and number >= 100", "-P", "last:tick", "--", numbered, 1,
                       "fire", 100_000)  # fmt: skip
    assert [number for _, _, number in hits] == list(range(650, 700))


def test_probes_that_are_waited_for_are_traced_beside_others(numbered: Path, recorded: Any) -> None:
    words = "--last", 2, "-P", "last:tick", "--until", "last:error"
    hits, _ = recorded(*words, "--", numbered, 1, "fire", 10, "error", 1, "fire", 10)
    assert hits == [("last:tick", 0, 9), ("last:error", 0, 10)]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--last", "0"), "0 is not in the range 1<=x<=10000000"),
        (("--last", "2GB"), "2GB is not in the range"),
        (("--last", "many"), "'many' is no number of hits (1000), no size (64MB), and no time (200ms, 30s, 5m)"),
        (("--last", "-3s"), "'-3s' is no number of hits"),
        (("--last", "9", "--count"), "--last keeps the last hits one by one, and doesn't go with --count"),
        (("--last", "9", "--latency", "a", "b"), "doesn't go with --latency"),
        (("--last", "9", "--limit", "5"), "doesn't go with --limit"),
        (("--last", "9", "--engine", "trap"), "the engine trap doesn't keep the last hits in the program's memory"),
        (("--last", "9", "--engine", "gdb"), "--engine patch can"),
        (("--until", "last:error"), "--until says when --last writes what it has kept: say how much"),
        (("--last", "9", "--until", "last:none"), "--until: there is no probe last:none"),
        (("--last", "9", "--until", "last:error kode > 0"), "--until: last:error has no argument kode; it has thread"),
        (("--last", "9", "--until", "last:error code >"), "--until: an argument, a number or a string must stand here"),
        (("--last", "9", "--until", 'last:say what == "x"'), "--until: with --last, tests are made where the hit"),
        (("--last", "9", "--filter", 'what =~ "*x"', "-P", "last:say"), "--filter: with --last, tests are made where"),
    ],
)
def test_what_makes_no_sense_is_refused_before_anything_starts(
    refused: Callable[..., str], words: tuple[str, ...], said: str
) -> None:
    assert said in refused(*words)


# -- rings that say anything -------------------------------------------------------------------------------------------

SHAPE = Shape(48, 64, 1 << 13, 64, keeps=True)


def memory() -> mmap.mmap:
    return mmap.mmap(-1, RINGS * SHAPE.stride)


def kept(data: mmap.mmap) -> Kept:
    return Kept(data, 0, SHAPE, lambda start, size: True)


def put(data: mmap.mmap, number: int, *, ring: int = 0, is_whole: bool = True) -> None:
    """Write a record as a trampoline does."""
    at = ring * SHAPE.stride + RING_HEADER + number % SHAPE.slots * SHAPE.slot
    word = number + 1 if is_whole else (1 << 64) - 2 - number
    struct.pack_into("<QQ", data, at, word, 100 * number + ring)
    struct.pack_into("<Q", data, ring * SHAPE.stride + HEAD, number + 1)


def taken(rings: Kept, most: int = 0) -> list[int]:
    return [number - 1 for raw in rings.take(most) for (number, *_) in struct.iter_unpack("<6Q", raw)]


def test_a_record_that_is_not_whole_comes_when_it_is() -> None:
    with memory() as data:
        rings = kept(data)
        for number in range(10):
            put(data, number, is_whole=number != 4)
        assert taken(rings) == [0, 1, 2, 3, 5, 6, 7, 8, 9]
        put(data, 4)
        put(data, 10)
        assert taken(rings) == [4, 10]
        assert taken(rings) == []
        rings.close()


def test_of_a_ring_that_went_round_what_is_left_comes() -> None:
    with memory() as data:
        rings = kept(data)
        for number in range(200):
            put(data, number, ring=3, is_whole=number != 150)
        assert taken(rings, 20) == list(range(180, 200))
        for number in range(200, 300):
            put(data, number, ring=3)
        assert taken(rings) == list(range(236, 300))
        rings.close()


def test_whatever_a_program_writes_into_its_rings_is_read_without_harm() -> None:
    chance = random.Random(3)
    with memory() as data:
        for _ in range(50):
            rings = kept(data)
            for _ in range(5):
                for _ in range(3000):
                    word = chance.choice([chance.getrandbits(64), chance.getrandbits(8), (1 << 64) - 1])
                    struct.pack_into("<Q", data, 8 * chance.randrange(len(data) // 8), word)
                for ring in range(RINGS):
                    struct.pack_into("<Q", data, ring * SHAPE.stride + HEAD, chance.getrandbits(chance.choice([7, 64])))
                assert sum(map(len, rings.take(chance.choice([0, 10])))) <= len(data)
            rings.close()


def test_of_several_rings_the_last_are_chosen_by_time() -> None:
    chance = random.Random(5)
    for _ in range(100):
        pieces, times = [], []
        for number in range(chance.randrange(1, 5)):
            own = sorted(chance.randrange(60) for _ in range(chance.randrange(30)))
            times += own
            raw = b"".join(struct.pack("<6Q", 0, time, 0, 0, 0, 0) for time in own)
            pieces.append(Piece(number, 48, raw))
        most = chance.randrange(1, 50)
        found = sorted(time for piece in latest(pieces, most) for time in piece.times())
        assert found == sorted(times)[-most:]


def test_what_was_kept_goes_with_the_trace(numbered: Path, unprivileged: list[str]) -> None:
    """A trace that is killed leaves a program that runs on, unchanged."""
    trace = Running(unprivileged, "--last", 100, "--", numbered, 1, "fire", 1000, "wait", "fire", 1000, "wait")
    pid = trace.waits()
    code = Path(f"/proc/{pid}/status").read_text("ascii")
    os.kill(int(code.partition("TracerPid:")[2].split()[0]), signal.SIGKILL)
    trace.go_on()
    trace.waits()
    trace.go_on()
    trace.end(code=1)
