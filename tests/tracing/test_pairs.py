"""How long it takes from one probe to another, found where the hits come: equal to what the program itself counts."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.test_json import conforms

from .conftest import SOURCES, built_with_probes

PROVIDER = """provider pairs {
    probe start(int kind, int size);
    probe done(int kind, int status);
};
"""
# Nested calls of four kinds, in threads; with a third argument their times, taken within and around the probes.
# Behind each probe is room for a jump, whatever the compiler makes of the program, and wherever things are mapped.
ROOM = r"""
#include "pairs.h"
#define ALONE static __attribute__((noipa, unused)) void
#define ROOM __asm__ volatile("nop; nop; nop; nop")
ALONE START(int kind, int size) { PAIRS_START(kind, size); ROOM; }
ALONE DONE(int kind, int status) { PAIRS_DONE(kind, status); ROOM; }
"""
PROGRAM = r"""
#include "overwrite.h"
#include "room.h"
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#define KINDS 4
static long rounds, calls[KINDS], within[KINDS], around[KINDS];
static int timed, threads;
static long now(void) {
    struct timespec t;
    if (!timed) return 0;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000L + t.tv_nsec;
}
static void nested(int kind, int size) {
    long before = now();
    START(kind, size);
    long begun = now();
    if (kind) nested(kind - 1, size + 1);
    long ends = now();
    DONE(kind, size % 3);
    long after = now();
    __atomic_add_fetch(&calls[kind], 1, __ATOMIC_RELAXED);
    __atomic_add_fetch(&within[kind], ends - begun, __ATOMIC_RELAXED);
    __atomic_add_fetch(&around[kind], after - before, __ATOMIC_RELAXED);
}
static void *work(void *unused) {
    for (long i = 0; i < rounds; i++) nested((int)(i % KINDS), (int)(i % 10));
    return unused;
}
static void all(void) {
    pthread_t made[64];
    for (int i = 0; i < threads; i++) pthread_create(&made[i], 0, work, 0);
    for (int i = 0; i < threads; i++) pthread_join(made[i], 0);
}
static void deep(int depth) {
    START(9, 0);
    if (depth) deep(depth - 1);
    DONE(9, 0);
}
static void *begins_only(void *unused) { START(8, 0); return unused; }
static _Atomic int begun, ended;
static void *ends_what_another_begins(void *unused) {
    while (ended < rounds) if (ended < begun) { DONE(ended, 0); ended++; }
    return unused;
}
static void queue(void) {
    pthread_t made;
    pthread_create(&made, 0, ends_what_another_begins, 0);
    while (begun < rounds) if (begun < ended + 500) { START(begun, 0); begun++; }
    pthread_join(made, 0);
}
static void on_signal(int number) { (void)number; nested(0, 0); }
static void again(void) { nested(3, 0); }
int main(int argc, char **argv) {
    rounds = atol(argv[1]);
    threads = atoi(argv[2]);
    const char *what = argc > 3 ? argv[3] : "";
    timed = !strcmp(what, "timed");
    if (!strcmp(what, "fork")) {
        int killed = fork();
        if (!killed) for (;;) nested(0, 99);
        for (int i = 0; i < 2; i++) if (!fork()) { all(); _exit(0); }
        wait(0), wait(0);
        kill(killed, SIGKILL);
        wait(0);
    } else if (!strcmp(what, "queue")) {
        queue();
        return 0;
    } else if (!strcmp(what, "unpaired")) {
        for (int i = 0; i < 5; i++) DONE(7, 0);
        deep(99);
        for (int i = 0; i < 3; i++) START(8, i);
        return 0;
    } else if (!strcmp(what, "left")) {
        for (int i = 0; i < 1000; i++) START(8, i);
        return 0;
    } else if (!strcmp(what, "signals")) {
        signal(SIGALRM, on_signal);
        ualarm(200, 200);
    } else if (!strcmp(what, "come and go")) {
        int many = threads;
        for (threads = 1; many > 1; many--) all();
    } else if (!strcmp(what, "end open")) {
        pthread_t made;
        for (int i = 0; i < 3000; i++) {
            pthread_create(&made, 0, begins_only, 0);
            pthread_join(made, 0);
        }
    } else if (!strcmp(what, "overwrite"))
        printf("overwritten %d\n", overwrite(300, again));
    all();
    ualarm(0, 0);
    for (int i = 0; i < KINDS; i++) printf("kind %d: %ld %ld %ld\n", i, calls[i], within[i], around[i]);
    return 0;
}
"""
UNITS = {"ns": 1, "us": 1e3, "ms": 1e6, "s": 1e9}
ROW = re.compile(r"^ +([0-9]+)" + 5 * r" +([0-9.]+ [mun]?s)" + r"  (\S+)$", re.MULTILINE)
OWN = re.compile(r"^kind (\d): (\d+) (\d+) (\d+)$", re.MULTILINE)


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory, run: Any) -> Path:
    folder = tmp_path_factory.mktemp("pairs")
    folder.chmod(0o755)
    (folder / "pairs.d").write_text(PROVIDER)
    (folder / "room.h").write_text(ROOM)
    (folder / "pairs.c").write_text(PROGRAM)
    module = sys.executable, "-m", "usdtbuild"
    run(*module, "header", "pairs.d", "-o", "pairs.h", cwd=folder)
    run(*module, "cc", "--", "gcc", "-O2", "-Wall", "-Werror", f"-I{SOURCES}", "-c", "pairs.c", cwd=folder)
    run("gcc", "pairs.o", "-pthread", "-o", "pairs", cwd=folder)
    return folder / "pairs"


@pytest.fixture
def latency(program: Path, run: Any, unprivileged: list[str]) -> Callable[..., Any]:
    def trace(options: str, *arguments: Any, program: Path = program, **more: Any) -> Any:
        words = sys.executable, "-m", "usdtbuild", "trace", "--latency", "start", "done"
        return run(*unprivileged, *words, *options.split("|"), "--", program, *arguments, **more)

    return trace


def rows(text: str) -> dict[str, tuple[float, ...]]:
    """Return calls, total, mean, p50, p99 and the greatest of a table, by key."""
    found = {}
    for calls, *times, key in ROW.findall(text):
        pairs = (one.split() for one in times)
        found[key] = (int(calls), *(float(number) * UNITS[unit] for number, unit in pairs))
    return found


def own(text: str) -> dict[str, tuple[int, ...]]:
    """Return what the program says: calls, and their time within and around the probes, by kind."""
    return {kind: tuple(map(int, numbers)) for kind, *numbers in OWN.findall(text)}


@pytest.mark.parametrize(("threads", "options"), [(1, "--by|kind"), (4, "--by|kind"), (1, "--count|--by|kind")])
def test_pairs_are_exact_at_full_speed(threads: int, options: str, latency: Callable[..., Any]) -> None:
    done = latency(options, 200_000, threads)
    calls = {kind: numbers[0] for kind, numbers in own(done.stdout).items()}
    assert {kind: row[0] for kind, row in rows(done.stdout).items()} == calls
    assert sum(calls.values()) == 500_000 * threads
    assert "paired" not in done.stdout
    assert f"start to done: {500_000 * threads} pairs, 4 values of kind\n" in done.stdout
    assert ("500000  pairs:done\n500000  pairs:start\n" in done.stdout) == ("count" in options)


@pytest.mark.parametrize("threads", [16, 4])
@pytest.mark.parametrize("key", ["kind", "kind,arg0"])
def test_pairs_by_a_key_are_exact_at_full_speed(key: str, threads: int, latency: Callable[..., Any]) -> None:
    """Ends belong to begins of any thread. One in millions found none while others came and went."""
    done = latency(f"--key|{key}|--by|kind", 400_000 // threads, threads)
    calls = {kind: numbers[0] for kind, numbers in own(done.stdout).items()}
    assert {kind: row[0] for kind, row in rows(done.stdout).items()} == calls
    assert "paired" not in done.stdout + done.stderr


def test_an_end_belongs_to_the_begin_with_its_key_in_another_thread(latency: Callable[..., Any]) -> None:
    for engine, rounds in (("auto", 1_000_000), ("trap", 200)):
        done = latency(f"--key|kind|-v|--engine|{engine}", rounds, 1, "queue")
        assert f"start to done by kind: {rounds} pairs\n" in done.stdout
        assert "paired" not in done.stdout
        assert engine == "trap" or "after the hit" not in done.stderr


def test_times_are_between_those_that_the_program_takes_within_and_around_its_probes(latency: Any) -> None:
    done = latency("--by|kind", 40_000, 2, "timed")
    for kind, (calls, within, around) in own(done.stdout).items():
        found = rows(done.stdout)[kind]
        assert found[0] == calls
        assert within * 0.99 <= found[1] <= around * 1.01, kind  # shown with three digits
    totals = [row[1] for row in rows(done.stdout).values()]
    assert totals == sorted(totals, reverse=True)


@pytest.mark.parametrize(
    ("options", "passes"),
    [
        ("--filter|size > 8", lambda i, level: i % 10 + level > 8),
        ("--filter|status == 1", lambda i, level: (i % 10 + level) % 3 == 1),
        ("--filter|kind == 2 or kind == 0", lambda i, level: (i % 4 - level) in (0, 2)),
        ("--filter|kind > 1 and size < 9 and status == 1",
         lambda i, level: i % 4 - level > 1 and i % 10 + level < 9 and (i % 10 + level) % 3 == 1),
        ("--filter|not status == 1 and (size == 3 or size == 5)",
         lambda i, level: i % 10 + level in (3, 5) and (i % 10 + level) % 3 != 1),
    ],
)  # fmt: skip
def test_a_filter_is_for_pairs_by_their_begin_or_else_by_their_end(
    options: str, passes: Callable[[int, int], bool], latency: Any
) -> None:
    """Or by both, where each has what the other lacks."""
    for engine, rounds in (("auto", 40_000), ("trap", 200)):
        wanted = sum(passes(i, level) for i in range(rounds) for level in range(i % 4 + 1))
        done = latency(f"{options}|-v|--engine|{engine}", rounds, 1)
        assert f"start to done: {wanted} pairs\n" in done.stdout
        assert engine == "trap" or "after the hit" not in done.stderr
        assert "paired" not in done.stdout


def test_what_is_not_paired_is_told(latency: Any) -> None:
    done = latency("--by|kind", 1, 1, "unpaired")
    assert {kind: row[0] for kind, row in rows(done.stdout).items()} == {"9": 64}
    assert "not paired: 1 begin had no end by the end of the trace\nnot paired: 2 begins had no end, and" in done.stdout
    assert "not paired: 5 ends had no begin\n" in done.stdout
    assert "not paired: 36 ends whose begin was given up when 64 younger ones of its thread were" in done.stdout


@pytest.mark.parametrize(
    ("options", "count"), [("--by|kind", 1000), ("--filter|size >= 0", 1000), ("--filter|size > 999", 0)]
)
def test_all_begins_that_wait_at_the_end_are_told(options: str, count: int, latency: Any) -> None:
    done = latency(options, 1, 1, "left")
    found = [int(one) for one in re.findall(r"not paired: (\d+) begins? had no end", done.stdout)]
    assert found == ([1, 999] if count else [])
    assert done.stdout.count("had no end, and their thread has begun again since") == bool(count)


# Functions that an exception leaves behind their begin, within others and again and again. `hops` are helpers that
# a compiler calls last in a function, and so jumps to: where they end is where a caller's began.
THROWING = r"""
#include "pairs.h"
#include <cstdlib>
#include <cstring>
#include <unistd.h>
#define ROOM __asm__ volatile("nop; nop; nop; nop")
#define ALONE static __attribute__((noipa))
ALONE void inner(long i, int deeper) {
    volatile char room[64];
    PAIRS_START(2, (int)i); ROOM;
    room[0] = (char)i;
    if (deeper) inner(i, deeper - 1);
    if (i % 3 == 0) throw i;
    PAIRS_DONE(2, 0); ROOM;
}
ALONE void outer(long i, int deeper) {
    PAIRS_START(1, (int)i); ROOM;
    try { inner(i, deeper); } catch (long) { }
    PAIRS_DONE(1, 0); ROOM;
}
ALONE void start(int kind) { PAIRS_START(kind, 0); ROOM; }
ALONE void done(int kind) { PAIRS_DONE(kind, 0); ROOM; }
ALONE void hops(int depth) {
    start(depth);
    if (depth) hops(depth - 1);
    done(depth);
}
int main(int argc, char **argv) {
    long rounds = atol(argv[1]);
    int deeper = argc > 3 ? atoi(argv[3]) : 0;
    if (!strcmp(argv[2], "within")) for (long i = 0; i < rounds; i++) outer(i, deeper);
    if (!strcmp(argv[2], "alone")) for (long i = 0; i < rounds; i++) try { inner(i, deeper); } catch (long) { }
    if (!strcmp(argv[2], "hops")) for (long i = 0; i < rounds; i++) hops(3);
    if (argc > 4) sleep(1);
    return 0;
}
"""
GONE_ON = (
    "begins had no end, and their thread has begun again since at the same depth of its stack, or less deep: an"
    " exception"
)


@pytest.fixture(scope="module")
def throwing(program: Path, run: Any) -> Path:
    folder = program.parent
    (folder / "throwing.cc").write_text(THROWING)
    module = sys.executable, "-m", "usdtbuild"
    run(*module, "cc", "--", "g++", "-O2", "-DUSDT_LIVE", "-c", "throwing.cc", cwd=folder)
    run("g++", "throwing.o", "-o", "throwing", cwd=folder)
    run("strip", "-o", "stripped", "throwing", cwd=folder)
    return folder / "throwing"


EVALUATING = ["patch", "inside", pytest.param("bpftrace", marks=pytest.mark.live)]


@pytest.fixture
def traced(latency: Any, run: Any, request: pytest.FixtureRequest) -> Callable[..., Any]:
    """Trace with an engine that finds pairs where hits come; bpftrace as root."""

    def trace(engine: str, options: str, *arguments: Any, program: Path, **more: Any) -> Any:
        if engine != "bpftrace":
            return latency(f"{options}|--engine|{engine}", *arguments, program=program, **more)
        request.getfixturevalue("bpftrace")
        words = sys.executable, "-m", "usdtbuild", "trace", "--latency", "start", "done", "--engine", engine
        return run(*words, *options.split("|"), "--", program, *arguments, **more)

    return trace


@pytest.mark.parametrize(
    ("engine", "name", "deeper"),
    [("patch", "throwing", 0), ("patch", "stripped", 2), ("inside", "throwing", 2), ("inside", "stripped", 0),
     pytest.param("bpftrace", "stripped", 2, marks=pytest.mark.live)],
)  # fmt: skip
def test_an_end_belongs_to_its_own_begin_though_an_exception_has_left_others(
    engine: str, name: str, deeper: int, throwing: Path, traced: Any
) -> None:
    """They are counted apart, and all others are paired, how many there ever may be."""
    program = throwing.with_name(name)
    done = traced(engine, "--by|kind", 999, "within", deeper, program=program)
    wanted = {"1": 999, "2": 666 * (deeper + 1)}
    assert {kind: row[0] for kind, row in rows(done.stdout).items()} == wanted
    assert re.findall("not paired: .*?(?=, longjmp|$)", done.stdout) == [f"not paired: {333 * (deeper + 1)} {GONE_ON}"]
    line = traced(engine, "--json", 999, "within", deeper, program=program).stdout
    assert conforms("trace-every", line)["unpaired"] == {"begins_left": 333 * (deeper + 1)}


@pytest.mark.parametrize("engine", ["patch", "inside"])
def test_an_end_whose_begin_was_given_up_is_not_taken_for_that_of_a_function_that_an_exception_has_left(
    engine: str, throwing: Path, traced: Any
) -> None:
    line = traced(engine, "--json|--by|kind", 300, "within", 80, program=throwing).stdout
    found = conforms("trace-every", line)
    pairs = {row["key"]: row["pairs"] for row in found["rows"] if "key" in row}
    assert pairs == {"1": 0, "2": 200 * 64} or pairs == {"2": 200 * 64}
    assert found["unpaired"]["too_deep"] == 300 + 200 * 17
    assert sum(count for why, count in found["unpaired"].items() if why.startswith("begins")) == 100 * 81


@pytest.mark.parametrize("engine", EVALUATING)
def test_a_filter_may_ask_begins_and_ends(engine: str, throwing: Path, traced: Any) -> None:
    done = traced(engine, "--by|kind|--filter|size > 500 and status == 0 and kind < 3", 999, "within", program=throwing)
    later = range(501, 999)
    assert {kind: row[0] for kind, row in rows(done.stdout).items()} == {
        "1": len(later), "2": sum(i % 3 > 0 for i in later)
    }  # fmt: skip
    assert f"not paired: {sum(i % 3 == 0 for i in later)} begins had no end, and" in done.stdout
    for wrong, said in (
        ("size > 500 or status == 0", "size and status are not arguments of one hit, so they can't be compared, or"),
        ("size > 1 and nope == 1", "has no argument nope; it has kind, size"),
    ):
        assert said in traced(engine, f"--filter|{wrong}", 1, "within", program=throwing, code=2).stderr


@pytest.mark.parametrize("engine", EVALUATING)
def test_a_thread_whose_functions_exceptions_leave_again_and_again_is_paired_on(
    engine: str, throwing: Path, traced: Any
) -> None:
    done = traced(engine, "--by|kind", 3000, "alone", program=throwing)
    assert {kind: row[0] for kind, row in rows(done.stdout).items()} == {"2": 2000}
    assert re.findall("not paired: .*?(?=, longjmp)", done.stdout) == [f"not paired: 1000 {GONE_ON}"]


@pytest.mark.parametrize("engine", EVALUATING)
def test_ends_that_are_where_the_begins_of_callers_were_belong_to_the_youngest(
    engine: str, throwing: Path, traced: Any
) -> None:
    done = traced(engine, "--by|kind", 1000, "hops", program=throwing)
    assert {kind: row[0] for kind, row in rows(done.stdout).items()} == dict.fromkeys("0123", 1000)
    assert "paired" not in done.stdout


# Functions whose stack pointer is not the same at their begin and at their end, or which a compiler has taken apart:
# the begin comes before registers are saved, room is taken as it is needed, the end is where an exception is caught.
MOVING = r"""
#include "pairs.h"
#include <alloca.h>
#include <cstdlib>
#include <cstring>
#define ROOM __asm__ volatile("nop; nop; nop; nop")
#define ALONE static __attribute__((noipa))
ALONE void inner(long i) {
    volatile char room[64];
    PAIRS_START(9, 0); ROOM;
    room[0] = (char)i;
    if (i % 3 == 0) throw i;
    PAIRS_DONE(9, 0); ROOM;
}
ALONE void caught(long i) {
    PAIRS_START(1, 0); ROOM;
    try { inner(i); PAIRS_DONE(1, 0); ROOM; }
    catch (long) { PAIRS_DONE(1, 1); ROOM; }
}
ALONE long early(long i) {
    PAIRS_START(2, 0); ROOM;
    if (i < 0) { PAIRS_DONE(2, 1); ROOM; return 7; }
    volatile long sum = i;
    long a = i * 3, b = i * 5, c = i * 7;
    try { inner(i); } catch (long thrown) { sum = sum + thrown; }
    PAIRS_DONE(2, 0); ROOM;
    return sum + a * b * c;
}
ALONE void taken(long i) {
    PAIRS_START(3, 0); ROOM;
    char *room = (char *)alloca(16 + i % 7 * 32);
    memset(room, 1, 16);
    __asm__ volatile("" : : "r"(room) : "memory");
    try { inner(i); } catch (long) { }
    PAIRS_DONE(3, 0); ROOM;
}
int main(int argc, char **argv) {
    for (long i = 0; i < atol(argv[1]); i++)
        switch (atoi(argv[2])) {
        case 1: caught(i); break;
        case 2: early(i); break;
        default: taken(i);
        }
    return 0;
}
"""


@pytest.fixture(scope="module")
def moving(program: Path, run: Any) -> Path:
    folder = program.parent
    (folder / "moving.cc").write_text(MOVING)
    for level in ("1", "2"):
        words = sys.executable, "-m", "usdtbuild", "cc", "--", "g++", f"-O{level}", "-DUSDT_LIVE", "-c", "moving.cc"
        run(*words, "-o", f"moving{level}.o", cwd=folder)
        run("g++", f"moving{level}.o", "-o", f"moving{level}", cwd=folder)
        run("g++", f"moving{level}.o", "-s", "-o", f"moving{level}s", cwd=folder)
        run("g++", f"moving{level}.o", "-s", "-static", "-o", f"moving{level}static", cwd=folder)
    framed = "-fno-omit-frame-pointer", "-DUSDT_LIVE", "-c", "moving.cc", "-o", "framed.o"
    run(sys.executable, "-m", "usdtbuild", "cc", "--", "g++", "-O2", *framed, cwd=folder)
    run("g++", "framed.o", "-o", "movingframed", cwd=folder)
    return folder / "moving"


@pytest.mark.parametrize(
    ("engine", "name", "kind"),
    [*(("patch", name, kind) for name in ("1", "2", "2s", "2static") for kind in (1, 2, 3)),
     *(("inside", name, kind) for name in ("2s", "framed") for kind in (1, 2, 3)),
     *(pytest.param("bpftrace", "2", kind, marks=pytest.mark.live) for kind in (1, 2, 3))],
)  # fmt: skip
def test_an_end_belongs_to_its_own_begin_wherever_the_stack_pointer_is(
    engine: str, name: str, kind: int, moving: Path, traced: Any
) -> None:
    done = traced(engine, "--by|kind", 999, kind, program=moving.with_name(f"moving{name}"))
    assert {key: row[0] for key, row in rows(done.stdout).items()} == {str(kind): 999, "9": 666}
    assert re.findall("not paired: .*?(?=, longjmp|$)", done.stdout) == [f"not paired: 333 {GONE_ON}"]


FUNCTIONS = r"""
#include <stdlib.h>
#define ALONE __attribute__((noipa)) void
ALONE start(int kind) { __asm__ volatile("" : : "r"(kind)); }
ALONE done(int kind) { __asm__ volatile("" : : "r"(kind)); }
ALONE hops(int depth) {
    start(depth);
    if (depth) hops(depth - 1);
    done(depth);
}
int main(int argc, char **argv) {
    for (long i = 0; i < atol(argv[1]); i++) hops(3);
    return argc > 9;
}
"""


def test_a_function_that_ends_where_the_function_that_begins_was_called_belongs_to_the_youngest(
    latency: Any, run: Any, tmp_path: Path
) -> None:
    """A compiler jumps to `done`: its frame is where that of a caller's `start` was."""
    tmp_path.chmod(0o755)
    (tmp_path / "functions.c").write_text(FUNCTIONS)
    run("gcc", "-O2", "-fpatchable-function-entry=16,8", "functions.c", "-o", "functions", cwd=tmp_path)
    done = latency("-F|start|-F|done|--json|--engine|patch", 500, program=tmp_path / "functions")
    line = json.loads(done.stdout)
    assert line["rows"][0]["pairs"] == 2000
    assert "unpaired" not in line


def test_what_is_not_paired_by_a_key_is_told(latency: Any) -> None:
    done = latency("--by|kind|--key|kind", 1, 1, "unpaired")
    (paired,) = (row[0] for kind, row in rows(done.stdout).items() if kind == "9")
    assert paired in {40, 41}  # of a thread with a shard one more
    assert "not paired: 3 begins had no end by the end of the trace\n" in done.stdout
    assert f"not paired: {105 - paired} ends had no begin\n" in done.stdout
    assert f"not paired: {100 - paired} begins for which there was no room; their ends may have been" in done.stdout
    line = json.loads(latency("--key|kind|--json", 1, 1, "unpaired").stdout)
    assert conforms("trace-every", json.dumps(line) + "\n")["unpaired"] == {
        "begins_open": 3, "ends_without_begin": 105 - paired, "no_room": 100 - paired,
    }  # fmt: skip


@pytest.mark.parametrize("key", ["", "|--key|kind"])
def test_forked_processes_pair_their_own_hits_and_one_may_be_killed(key: str, latency: Any) -> None:
    done = latency(f"--by|kind|--filter|size < 99{key}", 20_000, 3, "fork")
    found = rows(done.stdout)
    calls = {kind: numbers[0] for kind, numbers in own(done.stdout).items()}
    assert {kind: row[0] for kind, row in found.items()} == {kind: 3 * count for kind, count in calls.items()}
    assert "ends had no begin" not in done.stdout


@pytest.mark.parametrize("key", ["", "|--key|kind", "|--key|kind,arg0"])
def test_a_handler_of_a_signal_has_its_own_pairs_within_those_of_its_thread(key: str, latency: Any) -> None:
    done = latency(f"--by|kind{key}", 2_000_000, 1, "signals")
    assert {kind: row[0] for kind, row in rows(done.stdout).items()} == {
        kind: numbers[0] for kind, numbers in own(done.stdout).items()
    }
    assert "paired" not in done.stdout


def test_more_threads_than_there_is_room_for_come_and_go(latency: Any) -> None:
    done = latency("--by|kind", 4, 3000, "come and go")
    assert {kind: row[0] for kind, row in rows(done.stdout).items()} == {
        "0": 12_000, "1": 9_000, "2": 6_000, "3": 3_000
    }  # fmt: skip
    assert "paired" not in done.stdout


@pytest.mark.parametrize("options", ["--by|kind", "--count|--by|kind"])
def test_threads_that_end_with_begins_open_take_no_room_from_others(options: str, latency: Any) -> None:
    done = latency(options, 4000, 2, "end open")
    assert {kind: row[0] for kind, row in rows(done.stdout).items()} == {
        "0": 8_000, "1": 6_000, "2": 4_000, "3": 2_000
    }  # fmt: skip
    assert [one.strip() for one in done.stdout.splitlines() if "paired" in one] == [
        "not paired: 3000 begins had no end by the end of the trace"
    ]


def test_what_a_program_writes_over_its_pairs_does_no_harm_to_itself_or_the_tracer(latency: Any) -> None:
    for keys in ("kind", "kind,thread", "kind|--key|kind", "kind|--key|kind,arg0"):
        done = latency(f"--by|{keys}", 100, 1, "overwrite")
        assert re.search("^overwritten [1-9]", done.stdout, re.MULTILINE)
        assert "start to done" in done.stdout
        assert "Traceback" not in done.stderr


LOADING = r"""
#include "room.h"
#include <dlfcn.h>
#include <stdio.h>
int main(void) {
    START(7, 0);
    DONE(7, 1);
    void (*done)(int) = (void (*)(int))dlsym(dlopen("./libdone.so", RTLD_NOW), "done");
    for (int i = 0; i < 300000; i++) { START(i % 3, i); done(i); }
    printf("wrong %d\n", !done);
    return 0;
}
"""


@pytest.mark.parametrize("options", ["--by|kind", "--filter|status == 1"])
def test_an_end_in_a_library_that_comes_later_finds_its_begin(
    options: str, program: Path, latency: Any, run: Any
) -> None:
    folder = program.parent
    (folder / "loading.c").write_text(LOADING)
    (folder / "done.c").write_text('#include "room.h"\nvoid done(int i) { DONE(9, i % 2); }\n')
    module = sys.executable, "-m", "usdtbuild"
    run(*module, "cc", "--", "gcc", "-O2", "-fPIC", "-c", "done.c", cwd=folder)
    run(*module, "cc", "--", "gcc", "-O2", "-c", "loading.c", cwd=folder)
    run("gcc", "-shared", "done.o", "-o", "libdone.so", cwd=folder)
    run("gcc", "loading.o", "-ldl", "-o", "loading", cwd=folder)
    done = latency(options, program=folder / "loading", cwd=folder)
    if "kind" in options:
        assert {kind: row[0] for kind, row in rows(done.stdout).items()} == {
            "0": 100_000, "1": 100_000, "2": 100_000, "7": 1
        }  # fmt: skip
    else:
        assert "start to done: 150001 pairs\n" in done.stdout
    assert "paired" not in done.stdout + done.stderr


LOADING_THREADS = r"""
#include "room.h"
#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
static int threads, turn;
static void (*start)(int, int), (*done)(int, int);
static void await(int which) { while (__atomic_load_n(&turn, __ATOMIC_ACQUIRE) < which) sched_yield(); }
static void next(void) { __atomic_add_fetch(&turn, 1, __ATOMIC_RELEASE); }
static void *calls(void *number) {
    int kind = (int)(long)number;
    await(kind);
    START(kind, 0);
    next();
    await(2 * threads - 1 - kind);
    done(kind, 0);
    next();
    await(2 * threads);
    for (int i = 0; i < 10000; i++) {
        if (i % 2) START(kind, i);
        else start(kind, i);
        if (i % 3) DONE(kind, i);
        else done(kind, i);
    }
    return 0;
}
int main(int argc, char **argv) {
    pthread_t each[64];
    threads = atoi(argv[1]);
    for (int opened = 0; opened < 2; opened++) {
        void *library = dlopen(argv[2], RTLD_NOW);
        start = (void (*)(int, int))dlsym(library, "start"), done = (void (*)(int, int))dlsym(library, "done");
        start(63, 0), DONE(63, 0), START(63, 0), done(63, 0);
        turn = 0;
        for (long i = 0; i < threads; i++) pthread_create(&each[i], 0, calls, (void *)i);
        for (long i = 0; i < threads; i++) pthread_join(each[i], 0);
        dlclose(library);
    }
    return argc - 3;
}
"""


@pytest.mark.parametrize("threads", [2, 19])
@pytest.mark.parametrize("options", ["--by|kind", "--by|kind|--key|kind"])
@pytest.mark.parametrize("first", ["program", "library"])
def test_threads_that_end_in_a_library_that_comes_later_find_their_own_begins(
    first: str, options: str, threads: int, program: Path, latency: Any, run: Any
) -> None:
    """In which order ever they come there, and how ever many tables have room there. Where begins wait, is what was
    loaded first, and may go before the others."""
    folder = program.parent
    exported = "void start(int kind, int i) { START(kind, i); }\nvoid done(int kind, int i) { DONE(kind, i); }\n"
    (folder / "both.c").write_text(f'#include "room.h"\n{exported}')
    module = sys.executable, "-m", "usdtbuild"
    run(*module, "cc", "--", "gcc", "-O2", "-fPIC", "-c", "both.c", cwd=folder)
    run("gcc", "-shared", "both.o", "-o", "libboth.so", cwd=folder)
    text = LOADING_THREADS
    if first == "library":  # then the program has no probes of its own
        calls = "#define START(kind, i) start(kind, i)\n#define DONE(kind, i) done(kind, i)\n"
        text = text.replace('#include "room.h"\n', "").replace("static void await", calls + "static void await")
    (folder / "threads.c").write_text(text)
    run(*module, "cc", "--", "gcc", "-O2", "-c", "threads.c", cwd=folder)
    run("gcc", "threads.o", "-ldl", "-pthread", "-o", f"threads-{first}", cwd=folder)
    done = latency(options, threads, folder / "libboth.so", program=folder / f"threads-{first}", cwd=folder)
    assert {kind: row[0] for kind, row in rows(done.stdout).items()} == {
        **{str(kind): 20_002 for kind in range(threads)}, "63": 4
    }, done.stdout + done.stderr  # fmt: skip
    assert "paired" not in done.stdout + done.stderr


OTHER_TYPES = r"""
#include "room.h"
#include <dlfcn.h>
int main(int argc, char **argv) {
    for (int i = 0; i < 3; i++) { START(i, i); DONE(i, i); }
    void (*pair)(int) = (void (*)(int))dlsym(dlopen(argv[1], RTLD_NOW), "pair");
    for (int i = 0; i < 3000; i++) pair(i % 3);
    return argc - 2;
}
"""


def test_an_argument_of_a_library_that_comes_later_may_take_more_room_in_keys(
    program: Path, latency: Any, run: Any
) -> None:
    """Begins wait where there is room for what the program has: its pairs and those of the library are found apart."""
    folder, module = program.parent, (sys.executable, "-m", "usdtbuild")
    (folder / "texts.d").write_text("provider texts { probe start(int kind, char *size); probe done(int kind); };\n")
    (folder / "texts.c").write_text("""#include "texts.h"
#define ROOM __asm__ volatile("nop; nop; nop; nop")
void pair(int kind) { TEXTS_START(kind, "the size of it"); ROOM; TEXTS_DONE(kind); ROOM; }
""")
    (folder / "types.c").write_text(OTHER_TYPES)
    run(*module, "header", "texts.d", "-o", "texts.h", cwd=folder)
    run("gcc", "-O2", "-fPIC", "-shared", "texts.c", "-o", "libtexts.so", cwd=folder)
    run("gcc", "-O2", "types.c", "-ldl", "-o", "types", cwd=folder)
    done = latency("--by|size,kind|--json", folder / "libtexts.so", program=folder / "types")
    assert {row["key"]: row["pairs"] for row in json.loads(done.stdout)["rows"]} == {
        **{f"{kind}, {kind}": 1 for kind in range(3)}, **{f'"the size of it", {kind}': 1000 for kind in range(3)}
    }  # fmt: skip
    assert "some begins and ends are in different files, and can't be paired" in done.stderr


ALONE = """
#include <unistd.h>
#include "alone.h"
int main(void)
{
    for (int i = 0; i < 10; i++) {
        if (i % 2)
            ALONE_BEGIN(i, i), getppid();
        ALONE_END(i), getppid();
    }
    return 0;
}
"""


@pytest.mark.parametrize("key", [[], ["--key", "id"]])
@pytest.mark.parametrize("engine", ["patch", "trap", "inside", "gdb"])
def test_ends_without_begin_that_the_filter_rejects_are_not_told(
    usdtbuild: Any, run: Any, need: Any, engine: str, key: list[str], tmp_path: Path
) -> None:
    if engine == "gdb":
        need("gdb")
    provider = "provider alone { probe begin(int id, int own); probe end(int id); };\n"
    program = built_with_probes(run, tmp_path, "alone", provider, ALONE, "-O2", "-DUSDT_LIVE")
    words = "trace", "--engine", engine, "--latency", "alone:begin", "alone:end", *key
    for test, pairs, alone in (("id > 5", 2, 2), ("id == 7", 1, 0), ("own > 5", 2, 5)):  # an end has no argument own
        done = usdtbuild(*words, "--filter", test, "--", program)
        assert re.search(rf": {pairs} pairs?\n", done.stdout)
        assert re.findall(r"not paired: .*", done.stdout) == [f"not paired: {alone} ends had no begin"] * bool(alone)
        assert "damaged" not in done.stderr
