"""Tables of intervals (`--every`): what they say adds up to the total, and the total to what the program counts."""

from __future__ import annotations

import json
import os
import random
import re
import struct
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.started import TRACE, Started
from tests.test_json import conforms
from usdtbuild.tracing import progress
from usdtbuild.tracing.job import Job
from usdtbuild.tracing.measures import Cell, Measure, Table, Tables, Unpaired, added, class_of, parts, since
from usdtbuild.tracing.model import Totals
from usdtbuild.tracing.patch import tables
from usdtbuild.tracing.selection import Wanted

from .conftest import built_with_probes

PROVIDER = """provider every {
    probe tick(int id, long size, char *name);
    probe start(int kind);
    probe done(int kind);
};
"""
# Behind each probe is room for a jump, wherever things are mapped.
PROGRAM = r"""
#include "every.h"
#include "overwrite.h"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#define ALONE __attribute__((noipa)) static void
#define ROOM __asm__ volatile("nop; nop; nop; nop; nop")
ALONE tick(int id, long size, char *name) { EVERY_TICK(id, size, name); ROOM; }
ALONE start(int kind) { EVERY_START(kind); ROOM; }
ALONE done(int kind) { EVERY_DONE(kind); ROOM; }
#define IDS 7
static long rounds, sums[IDS], hits[IDS];
static int threads;
static double seconds;
static char *names[] = {"a", "bb", "ccc"};
static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}
static void *work(void *number) {
    unsigned long state = 88172645463325252ul + (unsigned long)number;
    long own[IDS] = {0}, own_hits[IDS] = {0};
    double until = now() + seconds;
    for (long i = 0; seconds ? now() < until : i < rounds; i++) {
        state ^= state << 13, state ^= state >> 7, state ^= state << 17;
        int id = (int)(state % IDS);
        long size = (long)(state >> 20 & 0xffff) - 1000;
        start(id % 3);
        tick(id, size, names[i % 3]);
        done(id % 3);
        own[id] += size, own_hits[id]++;
        if (seconds) usleep(50);
    }
    for (int i = 0; i < IDS; i++) {
        __atomic_add_fetch(&sums[i], own[i], __ATOMIC_RELAXED);
        __atomic_add_fetch(&hits[i], own_hits[i], __ATOMIC_RELAXED);
    }
    return 0;
}
static void again(void) { usleep(2000), start(1), tick(1, 2, names[0]), done(1); }
int main(int argc, char **argv) {
    pthread_t made[64];
    threads = atoi(argv[1]);
    if (strchr(argv[2], '.')) seconds = atof(argv[2]);
    else rounds = atol(argv[2]);
    if (argc > 3 && !strcmp(argv[3], "overwrite")) fprintf(stderr, "overwritten %d\n", overwrite(60, again));
    for (long i = 0; i < threads; i++) pthread_create(&made[i], 0, work, (void *)i);
    for (int i = 0; i < threads; i++) pthread_join(made[i], 0);
    for (int i = 0; i < IDS; i++) fprintf(stderr, "id %d: %ld %ld\n", i, hits[i], sums[i]);
    if (argc > 3 && strcmp(argv[3], "overwrite")) fclose(fopen(argv[3], "w"));
    return 0;
}
"""
OWN = re.compile(r"^id (\d): (\d+) (-?\d+)$", re.MULTILINE)


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory, run: Any) -> Path:
    return built_with_probes(run, tmp_path_factory.mktemp("every"), "every", PROVIDER, PROGRAM)


@pytest.fixture
def every(program: Path, run: Any, unprivileged: list[str]) -> Callable[..., Any]:
    def trace(options: str, *arguments: Any, **more: Any) -> Any:
        words = sys.executable, "-m", "usdtbuild", "trace"
        return run(*unprivileged, *words, *options.split("|"), "--", program, *arguments, **more)

    return trace


def told(text: str) -> tuple[list[Any], Any]:
    """Return the intervals and the total, each as its schema says."""
    found = [conforms("trace-every", line) for line in text.splitlines(keepends=True)]
    assert [one.get("total", False) for one in found] == [False] * (len(found) - 1) + [True]
    return found[:-1], found[-1]


def own(text: str) -> dict[str, tuple[int, int]]:
    """Return what the program says of its hits and the sum of their sizes, by id."""
    return {one: (int(hits), int(total)) for one, hits, total in OWN.findall(text)}


def sums(lines: list[Any], what: str = "hits", of: str = "sum") -> dict[str, tuple[int, int]]:
    """Return what rows of all lines add up to, by key."""
    hits, totals = Counter[str](), Counter[str]()
    for line in lines:
        for row in line.get("rows", ()):
            hits[row["key"]] += row[what]
            totals[row["key"]] += row[of]
    return {key: (hits[key], totals[key]) for key in hits}


@pytest.mark.parametrize("threads", [1, 4])
def test_sums_of_intervals_are_those_of_the_program_at_full_speed(threads: int, every: Callable[..., Any]) -> None:
    done = every("-P|tick|--sum|size|--by|id|--every|20ms|--json", threads, 2_000_000)
    intervals, total = told(done.stdout)
    assert len(intervals) > 1
    assert sums(intervals) == sums([total]) == own(done.stderr)
    assert total["counts"] == {"every:tick": threads * 2_000_000}
    assert sum(one["counts"]["every:tick"] for one in intervals) == threads * 2_000_000
    assert total["lost"] == 0
    times = [one["time"] for one in intervals]
    assert times == sorted(times)


def test_pairs_and_distributions_of_intervals_add_up(every: Callable[..., Any]) -> None:
    done = every("--latency|start|done|--by|kind|--every|20ms|--json", 3, 500_000)
    intervals, total = told(done.stdout)
    truth = Counter[str]()
    for one, (hits, _) in own(done.stderr).items():
        truth[str(int(one) % 3)] += hits
    pairs = [sums(lines, "pairs", "pairs") for lines in (intervals, [total])]
    assert pairs[0] == pairs[1] == {kind: (hits, hits) for kind, hits in truth.items()}
    done = every("-P|tick|--histogram|size|--every|20ms|--json", 3, 500_000)
    intervals, total = told(done.stdout)
    rows = [row for one in intervals for row in one.get("rows", ())]
    assert sum(row["hits"] for row in rows) == total["rows"][0]["hits"] == 1_500_000
    assert sum(row["sum"] for row in rows) == total["rows"][0]["sum"] == sum(of for _, of in own(done.stderr).values())
    for row in rows:
        assert -1000 <= row["p50"] <= row["p90"] <= row["p99"] <= row["max"] < 1 << 16


@pytest.mark.parametrize("options", ["--engine|trap|--by|id", "--by|name", '--by|name|--filter|name =~ "*b"'])
def test_hits_that_are_recorded_are_told_by_interval_too(options: str, every: Callable[..., Any]) -> None:
    done = every(f"-P|tick|{options}|--every|100ms|--json", 2, "0.7")
    intervals, total = told(done.stdout)
    seen = sum(one["counts"]["every:tick"] for one in intervals)
    assert seen == total["counts"]["every:tick"] > 0
    assert sums(intervals, of="hits") == sums([total], of="hits")
    if "name" not in options:
        assert {key: hits for key, (hits, _) in sums([total], of="hits").items()} == {
            one: hits for one, (hits, _) in own(done.stderr).items()
        }
    assert len([one for one in intervals if one["counts"]["every:tick"]]) > 2


def test_text_has_a_table_for_each_interval_and_one_of_all(every: Callable[..., Any]) -> None:
    done = every("-P|tick|--count|--every|100ms", 1, "0.5")
    *intervals, total = re.split(r"\n\n", done.stdout)
    counts = [re.fullmatch(r"[0-9.]+ s:\n *(\d+)  +[0-9.]+/s  every:tick", one) for one in intervals]
    last = re.fullmatch(r"total, [0-9.]+ s:\n(\d+)  [0-9.]+/s  every:tick\n", total)
    assert last is not None
    assert sum(int(one[1]) for one in counts if one is not None) == int(last[1]) > 0
    assert None not in counts
    assert len(counts) > 2
    text = every("--latency|start|done|--every|100ms", 1, "0.3").stdout
    assert text.count("start to done: ") > 2
    assert "not paired" not in text
    text = every("-P|tick|--sum|size|--every|100ms", 1, "0.3").stdout
    assert re.search(r"^every:tick size: \d+ hits, sum -?\d+, mean [-0-9.e+]+$", text, re.MULTILINE)  # of an interval
    assert re.search(r"^total.*\nevery:tick size: .* min -\d+, max \d+$", text, re.MULTILINE)


def test_lines_arrive_in_a_pipe_while_the_program_runs(program: Path, unprivileged: list[str]) -> None:
    words = [*unprivileged, *TRACE, "-P", "tick", "--json", "--every", "50ms"]
    with Started(*unprivileged, program, 1, 600.0, stdout=None) as traced:
        with Started(*words, "-p", traced.pid, stdin=None) as running:
            lines = [json.loads(running.line()) for _ in range(3)]
            assert running.poll() is None
            rest, _ = running.interrupt()
        assert traced.poll() is None
        traced.kill()
    seen = [*lines, *map(json.loads, rest.splitlines())]
    assert sum(one["counts"]["every:tick"] for one in seen[:-1]) == seen[-1]["counts"]["every:tick"] > 0


def test_a_reader_that_does_not_read_never_stops_the_program(
    program: Path, unprivileged: list[str], tmp_path: Path
) -> None:
    tmp_path.chmod(0o777)
    words = [*unprivileged, sys.executable, "-m", "usdtbuild", "trace", "-P", "*", "--json", "--every", "10ms"]
    words += ["--by", "size", "--top", "5000", "--", str(program), "2", "2000000", str(tmp_path / "over")]
    into, out = os.pipe()
    errors = tmp_path / "errors"
    with errors.open("w") as stream, subprocess.Popen(words, stdout=out, stderr=stream) as running:
        os.close(out)
        with os.fdopen(into) as reader:
            for _ in range(600):
                if (tmp_path / "over").exists() or running.poll() is not None:
                    break
                subprocess.run(["sleep", "0.1"], check=True)
            assert (tmp_path / "over").exists()  # and nobody has read a line
            intervals, total = told(reader.read())
    assert sum(one["counts"]["every:tick"] for one in intervals) == total["counts"]["every:tick"] == 4_000_000


def test_what_a_program_writes_over_its_tables_is_only_its_own_lie(every: Callable[..., Any]) -> None:
    for table in ("-P|tick|--sum|size|--by|id", "--latency|start|done|--by|kind", "-P|tick|--histogram|size"):
        done = every(f"{table}|--every|10ms|--json", 1, 1000, "overwrite", timeout=120)
        assert re.search("^overwritten [1-9]", done.stderr, re.MULTILINE)
        assert "Traceback" not in done.stderr
        told(done.stdout)


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ("--every|1ms", "10ms is the shortest interval"),
        ("--every|0", "not in the range"),
        ("--every|1x", "is no time"),
        ("--every|1s|-o|x.html", "--every, --json and --prometheus are about tables"),
        ("--every|1s|--report|-F|main", "don't go with --every"),
    ],
)
def test_what_makes_no_sense_is_refused_before_anything_starts(
    options: str, what: str, program: Path, usdtbuild: Any
) -> None:
    done = usdtbuild("trace", *options.split("|"), "--", program, 1, 1, code=2)
    assert what in done.stderr
    assert "id 0" not in done.stderr


# -- differences of tables, without a program --------------------------------------------------------------------------

MEASURE = Measure("id", "size", classes=True)


def some(random_: random.Random, hits: int, into: Tables) -> None:
    for _ in range(hits):
        value, key = random_.choice((-1, 1)) * random_.getrandbits(random_.randrange(40)), random_.randrange(5)
        cell = into[random_.randrange(2), MEASURE].cells.setdefault(key, Cell())
        cell.add(value)
        cell.classes[class_of(value)] += 1


@pytest.mark.parametrize("seed", range(20))
def test_what_came_since_and_what_was_before_are_all(seed: int) -> None:
    random_, now = random.Random(seed), {(number, MEASURE): Table({}, Cell()) for number in range(2)}
    some(random_, random_.randrange(50), now)
    before: Tables = {}
    added(before, now)
    some(random_, random_.randrange(50), now)
    later = since(now, before)
    again: Tables = {}
    for part in parts(now, random_.randrange(1, 30)):
        added(again, part)
    assert again == now
    for key, table in now.items():
        for number, cell in table.cells.items():
            new = later[key].cells.get(number, Cell())
            old = before[key].cells.get(number, Cell())
            assert (old.count + new.count, old.total + new.total) == (cell.count, cell.total)
            assert old.classes + new.classes == cell.classes
            if new.count:
                assert cell.least <= new.least <= new.most <= cell.most
                assert class_of(new.least) == min(new.classes) or new.least == cell.least
                assert class_of(new.most) == max(new.classes) or new.most == cell.most


def test_counts_that_have_become_less_are_none() -> None:
    lie = Table({1: Cell(3, 5, 1, 2)}, Cell(), Unpaired(1, 1, 1, 1, 1))
    before = Table({1: Cell(9, 100, 1, 2), 2: Cell(1)}, Cell(4), Unpaired(5, 5, 5, 5, 5))
    assert lie.since(before) == Table({}, Cell(0, 0), Unpaired())


class _Hitting(bytearray):
    """A table of ten keys whose program hits once with each (value 1) whenever one of its parts is read, but for that
    part's key."""

    measure = Measure("id", "size", classes=True)

    def __getitem__(self, part: Any) -> Any:
        found = super().__getitem__(part)
        if part.stop - part.start == tables._CLASSES.size:
            behind = part.start - tables._cells(self.measure) * tables._CELL.size
            self.hit(but=behind // tables._CLASSES.size)
        return found

    def hit(self, but: int = -1) -> None:
        for row in {*range(10)} - {but}:
            at, classes = tables._CELL.size * row, tables._cells(self.measure) * tables._CELL.size
            count = tables._CELL.unpack_from(self, at)[2] + 1
            tables._CELL.pack_into(self, at, row + 1, 0, count, 0, 1, (1 << 64) - 2)
            struct.pack_into("=Q", self, classes + tables._CLASSES.size * row + 8, count)


def test_what_is_told_of_a_key_is_of_the_same_hits() -> None:
    """Else means of intervals are wrong, the more the fewer hits there are."""
    memory = _Hitting(tables.size(_Hitting.measure))
    memory.hit()
    found = tables.read(memory, 0, tables.Place(0, _Hitting.measure, 0))
    assert len(found.cells) == 10
    assert [cell.total for cell in found.cells.values()] == [cell.count for cell in found.cells.values()]
    assert [cell.count for cell in found.cells.values()][-1] == 10


class _Slow:
    """What counts, and takes so long to read."""

    def __init__(self, clock: SimpleNamespace, takes: float) -> None:
        self.clock, self.takes, self.read = clock, takes, list[float]()

    def totals(self) -> Totals:
        return Totals({}, {})

    def tables(self) -> Tables:
        self.read.append(self.clock.now)
        self.clock.now += self.takes
        return {}


@pytest.mark.parametrize(("takes", "times"), [
    (0.0, [1, 2, 3, 4, 5, 6, 7, 8, 9]), (0.4, [1, 2, 3, 4, 5, 6, 7, 8, 9]), (0.75, [1, 3, 5, 7, 9]), (3.5, [1, 9]),
])  # fmt: skip
def test_reading_tables_takes_half_of_the_time_at_most(
    takes: float, times: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Threads that open libraries stand until somebody sees to them, which was once after each reading."""
    clock: Any = SimpleNamespace(now=0.0)
    monkeypatch.setattr(progress, "time", SimpleNamespace(monotonic=lambda: clock.now))
    slow, told = _Slow(clock, takes), SimpleNamespace(holds=lambda _: False, put=lambda _: None)
    wish = Job(Wanted(), every=1.0, measures=(Measure(by="id"),))
    reads = progress.Progress(wish, told, slow)  # type: ignore[arg-type]
    reads.begin()
    while clock.now < 10:
        reads.read(0)
        clock.now += 0.125
    assert [int(one) for one in slow.read] == times


OPENS_OFTEN = """
#include <dlfcn.h>
int main(int argc, char **argv) {
    for (int i = 0; i < 40; i++) {
        void *library = dlopen(argv[1 + i % 2], RTLD_NOW);
        void (*hit)(int) = (void (*)(int))dlsym(library, "hit");
        for (int times = 0; times <= i; times++) hit(times % 5);
        if (i % 7) dlclose(library);
    }
    return argc != 3;
}
"""


@pytest.mark.parametrize("options", ["--by|kind", "--count", "--latency|start|done|--by|kind"])
def test_what_many_libraries_have_counted_that_have_gone_is_there_once(
    options: str, run: Any, unprivileged: list[str], tmp_path: Path
) -> None:
    tmp_path.chmod(0o755)
    (tmp_path / "every.d").write_text(PROVIDER)
    run(*TRACE[:-1], "header", "every.d", "-o", "every.h", cwd=tmp_path)
    room = '__asm__ volatile("nop; nop; nop; nop; nop")'
    text = f"void hit(int kind) {{ EVERY_START(kind); {room}; EVERY_DONE(kind); {room}; }}\n"
    (tmp_path / "hits.c").write_text(f'#include "every.h"\n{text}')
    (tmp_path / "opens.c").write_text(OPENS_OFTEN)
    for name in ("one.so", "two.so"):
        run("gcc", "-O2", "-fPIC", "-shared", "hits.c", "-o", name, cwd=tmp_path)
    run("gcc", "-O2", "opens.c", "-ldl", "-o", "opens", cwd=tmp_path)
    words = *unprivileged, *TRACE, "--every", "10ms", "--json", *options.split("|"), "-P", "start", "-P", "done"
    done = run(*words, "--", tmp_path / "opens", tmp_path / "one.so", tmp_path / "two.so")
    *intervals, total = map(json.loads, done.stdout.splitlines())
    assert total["counts"] == {"every:start": 820, "every:done": 820}
    by_key = Counter[str]()
    for row in total.get("rows", ()):
        by_key[row["key"]] += row.get("hits", 0) + row.get("pairs", 0)
    times = 1 + ("latency" not in options)
    per_key = {str(kind): times * sum((i + 5 - kind) // 5 for i in range(40)) for kind in range(5)}
    assert by_key == ({} if options == "--count" else per_key)
    for name in ("every:start", "every:done"):
        assert sum(one["counts"].get(name, 0) for one in intervals) == 820
