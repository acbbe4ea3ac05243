"""`--report` and `--graph` of recorded calls: with -p and -o, and what becomes of calls whose end isn't seen."""

from __future__ import annotations

import json
import os
import re
import subprocess
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.started import tracing
from usdtbuild.tracing.call_report import graph_lines, report_json, report_lines
from usdtbuild.tracing.call_tree import CallTree, rows
from usdtbuild.tracing.frames import LEFT, Frames
from usdtbuild.tracing.model import ENTER, EXIT, Event, Module, Report, Site, Target
from usdtbuild.tracing.outputs.calls import CallTables

SOURCE = """
#include <cstdio>
#include <cstdlib>
#include <unistd.h>
#define PLAIN __attribute__((noipa))
#define STAYS __asm__ volatile("")
PLAIN int leaf(int n) { STAYS; return n; }
PLAIN int tail(int n) { STAYS; return leaf(n + 1); }
PLAIN int outside(int n) { STAYS; return n < 99 ? getppid() : n; }
PLAIN int thrower(int n) { STAYS; if (n) throw n; return leaf(n); }
PLAIN int catcher(int n) { try { return thrower(n) + 1; } catch (int) { return leaf(n) + 2; } }
PLAIN int chooses(int n)
{
    switch (n) {
    case 0: return leaf(1) + 1;
    case 1: return leaf(2) * 5;
    case 2: return leaf(3) ^ 7;
    case 3: return leaf(4) - 8;
    case 4: return leaf(5) | 9;
    case 5: return leaf(6) & 3;
    }
    return 0;
}
PLAIN int turn(int n) { return tail(n) + catcher(n & 1) + outside(n) % 3 + chooses(n % 6); }
int main(int argc, char **argv)
{
    int sum = 0;
    for (int n = 0; n < 60 || argc > 1; n++) {
        sum += turn(n);
        if (argc > 1)
            usleep(100);
    }
    std::printf("%d\\n", sum);
    (void)argv;
}
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory, compiled: Any) -> Path:
    folder = tmp_path_factory.mktemp("calls")
    return compiled(folder, "calls.cpp", SOURCE, "-O2", "-fpatchable-function-entry=7,5", cc="g++")


def counts_of(table: str) -> dict[str, int]:
    """Return the calls that a report shows."""
    return {name: int(times) for times, name in re.findall(r"(\d+)  (\w+)\(?.*$", table, re.MULTILINE)}


# Each turn has three leaf(): of tail, of thrower or catcher, of chooses.
CALLS = {"main": 1, "leaf": 180, **dict.fromkeys(("turn", "tail", "catcher", "thrower", "outside", "chooses"), 60)}


def test_table_tree_and_timeline_are_of_the_same_calls(program: Path, usdtbuild: Any, tmp_path: Path) -> None:
    file = tmp_path / "x.json"
    done = usdtbuild("trace", "--report", "--graph", "-o", file, "--", program)
    report, graph = done.stdout.partition("\n")[2].split("\n\n")
    assert counts_of(report) == CALLS
    branches = [re.sub(r".*\d  |\(.*", "", line) for line in graph.splitlines()[1:]]
    assert branches == [
        "main", "└─ turn", "   ├─ tail", "   │  └─ leaf", "   ├─ catcher", "   │  ├─ thrower", "   │  │  └─ leaf",
        "   │  └─ leaf", "   ├─ outside", "   └─ chooses", "      └─ leaf",
    ]  # fmt: skip
    spans = Counter(one["name"].partition("(")[0] for one in json.loads(file.read_text())["traceEvents"]
                    if one["ph"] == "X")  # fmt: skip
    assert spans == CALLS
    assert "thrower(int) (30)" in done.stderr
    assert "outside(int) (60)" in done.stderr


def test_a_process_that_runs_has_a_report(program: Path) -> None:
    with subprocess.Popen([program, "on"]) as running:
        try:
            trace = tracing("--report", "-p", running.pid)
            time.sleep(2)
            shown, said = trace.interrupt()
        finally:
            running.kill()
    found = counts_of(shown)
    assert found["turn"] > 1
    assert abs(found["leaf"] - 3 * found["turn"]) <= 3
    assert "breakpoint" not in said


LEFT_BEHIND = """
#include <csetjmp>
#include <unistd.h>
#define PLAIN __attribute__((noipa))
static std::jmp_buf back;
PLAIN void jumper(void) { usleep(1000); std::longjmp(back, 1); }
PLAIN void leaf(void) { usleep(2000); }
PLAIN void thrower(void) { leaf(); throw 1; }
PLAIN void setter(void) { if (!setjmp(back)) jumper(); usleep(50000); }
PLAIN void catcher(void) { try { thrower(); } catch (int) { } usleep(30000); }
int main() { setter(); catcher(); usleep(20000); return 0; }
"""


def test_no_file_shows_more_time_of_what_was_left_than_is_known(usdtbuild: Any, tmp_path: Path, compiled: Any) -> None:
    """It had all that passed until the next hit told that it was over; the table said `-`."""
    compiled(tmp_path, "l.cpp", LEFT_BEHIND, "-O1", "-fpatchable-function-entry=7,5", cc="g++")
    run_it = ("--report", "-o", "l.json", "-o", "l.folded", "--", "./l")
    report = usdtbuild("trace", *run_it, cwd=tmp_path).stdout.splitlines()
    assert [line.split()[-1] for line in report if line.split()[:2] == ["-", "-"]] == ["jumper()", "thrower()"]
    spans = {one["name"]: one["dur"] for one in json.loads((tmp_path / "l.json").read_text())["traceEvents"]
             if one["ph"] == "X"}  # fmt: skip
    assert spans["jumper()"] == 0
    assert spans["leaf()"] <= spans["thrower()"] < spans["catcher()"] - 29_000
    own = dict(line.rsplit(" ", 1) for line in (tmp_path / "l.folded").read_text().splitlines())
    assert not any(stack.endswith(("jumper()", "thrower()")) for stack in own)
    assert int(own["main;setter()"]) > 50_000_000
    assert int(own["main;catcher()"]) > 30_000_000
    assert int(own["main;catcher();thrower();leaf()"]) > 2_000_000


CLOSE = """
#include "own.h"
#define PLAIN __attribute__((noipa))
PLAIN void leaf(int n) { __asm__ volatile("" :: "r"(n)); }
PLAIN void ends(void) { OWN_STOP(); OWN_STOP(); }
int main(void) { OWN_GO(); leaf(1); ends(); leaf(2); return 0; }
"""


def test_a_probe_that_chooses_calls_and_is_not_seen_everywhere_is_an_error(
    usdtbuild: Any, tmp_path: Path, compiled: Any, header_of: Any
) -> None:
    """The table had calls that weren't asked for, and nothing said so."""
    header_of(tmp_path, "own.d", "provider own { probe go(); probe stop(); };\n")
    compiled(tmp_path, "c.c", CLOSE, "-O1", "-fpatchable-function-entry=7,5")
    words = ("--report", "-q", "-F", "leaf", "--from", "own:go", "--until", "own:stop", "--engine", "patch")
    done = usdtbuild("trace", *words, "--", "./c", cwd=tmp_path, code=1)
    assert "own:stop chooses calls, and isn't seen at all of its places" in done.stderr
    assert "these numbers aren't exact" in done.stdout


@pytest.mark.parametrize("more", [(), ("-o", "x.json")], ids=["inside", "recorded"])
def test_files_may_be_named_by_relative_paths_and_must_be_there(
    more: tuple[str, ...], program: Path, usdtbuild: Any, tmp_path: Path
) -> None:
    (tmp_path / "calls").symlink_to(program)
    words, path = ("trace", "--report", "--module"), f"{program.parent}:{os.environ['PATH']}"
    found = usdtbuild(*words, "./calls", *more, "--", program.name,
                      cwd=tmp_path, env={**os.environ, "PATH": path}, code=1)  # fmt: skip
    assert "main" not in found.stdout  # another path, if the same file
    found = usdtbuild(*words, "./calls", *more, "--", "./calls", cwd=program.parent)
    assert counts_of(found.stdout) == CALLS
    said = usdtbuild(*words, "no.so", *more, "--", program, cwd=tmp_path, code=1).stderr
    assert ("nothing has matched --module no.so" in said) == bool(more)


# -- calls in order ---------------------------------------------------------------------------------------------------

F, F_END, G, G_END, H, H_END = range(6)
MODULE = Module("/x", 0, "", 62)
TARGETS = [
    Target(F, ENTER, "", "f", MODULE, (), (Site(16, 16, (), begins=16, leads=(32,)),)),
    Target(F_END, EXIT, "", "f", MODULE, (), ()),
    Target(G, ENTER, "", "g", MODULE, (), (Site(32, 32, (), begins=32),)),
    Target(G_END, EXIT, "", "g", MODULE, (), ()),
    Target(H, ENTER, "", "h", MODULE, (), (Site(48, 48, (), begins=48, leads=(64,)),)),  # to what isn't traced
    Target(H_END, EXIT, "", "h", MODULE, (), ()),
]
CASES: dict[str, tuple[list[Any], list[Any]]] = {
    "a call within": (
        [(F, (800, 5)), (G, (700, 6)), (G_END, (700,)), (F_END, (800,))],
        [(0, F), (1, G), (2, G_END), (3, F_END)],
    ),
    "a tail call": ([(F, (800, 5)), (G, (800, 5)), (G_END, (800,))], [(0, F), (1, G), (2, G_END), (2, F_END)]),
    "left, then called from elsewhere": (
        [(F, (800, 5)), (G, (800, 6)), (G_END, (800,))],
        [(0, F), (1, F_END, LEFT), (1, G), (2, G_END)],
    ),
    "no jump leads there": ([(G, (800, 5)), (F, (800, 5))], [(0, G), (1, G_END, LEFT), (1, F), (1, F_END, LEFT)]),
    "left by longjmp": (
        [(F, (800, 5)), (G, (700, 6)), (G, (600, 7)), (F_END, (800,))],
        [(0, F), (1, G), (2, G), (3, G_END, LEFT), (3, G_END, LEFT), (3, F_END)],
    ),
    "called before the trace": ([(G, (700, 6)), (F_END, (800,))], [(0, G), (1, G_END, LEFT)]),
    "another stack": (
        [(F, (800, 5)), (G, (1 << 40, 6)), (G_END, (1 << 40,)), (F_END, (800,))],
        [(0, F), (1, G), (2, G_END), (3, F_END)],
    ),
    "open at the end": ([(F, (800, 5)), (G, (700, 6))], [(0, F), (1, G), (1, G_END, LEFT), (1, F_END)]),
    "over, maybe": ([(F, (800, 5)), (H, (700, 6))], [(0, F), (1, H), (1, H_END, LEFT), (1, F_END)]),
    "open, surely": ([(H, (800, 5)), (F, (700, 6))], [(0, H), (1, F), (1, F_END, LEFT), (1, H_END)]),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_ends_of_calls(case: str) -> None:
    given, wanted = CASES[case]
    frames = Frames()
    frames.start(TARGETS)
    found = frames.take([Event(time, 1, 2, number, (), 0, place) for time, (number, place) in enumerate(given)])
    found += frames.finish(99)
    assert [(one.time, one.target, *([LEFT] if one.frame == LEFT else [])) for one in found] == wanted


@pytest.mark.parametrize("why", ["leads elsewhere", "a return was refused", "not all returns are known"])
def test_what_may_be_over_at_the_end_has_no_time(why: str) -> None:
    """Its time was all that had passed since, though nothing would have told of its end."""
    targets, function = list(TARGETS), H if why == "leads elsewhere" else G
    refused = ["g:return"] * (why == "a return was refused")
    if why == "not all returns are known":
        targets[G_END] = TARGETS[G_END]._replace(sites=(Site(32, 32, (), unknown="nobody knows"),))
    for whole in (False, True):
        frames = Frames()
        frames.start(targets)
        within = [Event(6, 1, 1, F, (), 0, (0x800, 3))]
        hits = [Event(1, 1, 1, F, (), 0, (0x1000, 1)), Event(5, 1, 1, function, (), 0, (0x900, 2))]
        found = frames.take(hits + within * whole) + frames.finish(99, refused)
        ends = [(one.time, one.target, one.frame == LEFT) for one in found[2 + whole :]]
        assert ends == [(99, F_END, False)] * whole + [(99, function + 1, not whole), (99, F_END, False)]


def test_what_a_thread_hit_last_has_no_time() -> None:
    """Its call may have ended by a jump to what isn't traced, long before the trace."""
    frames = Frames()
    frames.start(TARGETS)
    found = frames.take([Event(1, 1, 2, F, (), 0, (0x1000, 1)), Event(5, 1, 2, G, (), 0, (0x900, 2))])
    found += frames.finish(99)
    assert [(one.time, one.target, one.frame == LEFT) for one in found[2:]] == [(5, G_END, True), (5, F_END, False)]


def test_calls_that_are_100_000_deep_take_no_longer_each() -> None:
    """Nor do returns of what was called before the trace, and isn't known: this took minutes."""
    frames = Frames()
    frames.start(TARGETS)
    deep = [Event(at, 1, 1, F, (), 0, ((1 << 40) - 48 * at, 7)) for at in range(100_000)]
    unknown = [Event(10**6, 1, 1, G_END, (), 0, ((1 << 40) - 48 * 200_000 - at, 7)) for at in range(20_000)]
    back = [one._replace(target=F_END, time=10**7 - at) for at, one in enumerate(deep)][::-1]
    found = frames.take([*deep, *unknown, *back])
    assert len(found) == 200_000
    assert not any(one.frame == LEFT for one in found)


def test_times_of_calls_that_end_unseen_are_their_callers() -> None:
    trees: list[CallTree] = []
    table = CallTables(lambda tree, _: trees.append(tree) is None)  # type: ignore[func-returns-value]
    table.start(TARGETS)
    hits = [(0, F, ()), (10, G, ()), (20, F, ()), (25, F_END, ()), (40, G_END, LEFT), (100, F_END, ())]
    table.events([Event(time, 1, 1, number, (), 0, frame) for time, number, frame in hits])
    table.finish(Report(tuple(TARGETS), (3, 3, 1, 0), (0, 1, 0, 0), (), (), 0, 0, 0, {}))
    shown = [line.split() for line in report_lines(rows(trees[0]), "total", None, 0)]
    assert shown[1] == ["100", "ns", "100", "ns", "5", "ns", "99", "ns", "100", "ns", "2", "f"]
    assert shown[2] == ["-", "-", "?", "?", "?", "1", "g"]
    assert [line.split()[2:4] for line in graph_lines(trees[0].roots, "", 0)[1:2]] == [["95", "ns"]]
    assert any("hits were lost" in note for note in table.notes)
    assert not trees[0].exact
    assert '"exact": false' in report_json(trees[0])
    assert any("of g (1)" in note for note in table.notes)
