"""Pairs that took long (`--slower`): each is shown with what its thread hit before, and no other."""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from usdtbuild.tracing.model import Event
from usdtbuild.tracing.outputs.slow import Slow

from .recorded import NUMBER, REPORT, target

TARGETS = [target(0, "start", NUMBER), target(1, "step", NUMBER), target(2, "done", NUMBER)]
START, STEP, DONE = range(3)
MS = 1_000_000


def shown(events: list[Event], before: int, least: int = MS, **more: Any) -> list[list[str]]:
    """Return what is written of each slow pair, a word and a number for each hit, and last what is said at the end."""
    stream = io.StringIO()
    output = Slow(stream, "server:start", "server:done", "", least, before, **more)
    output.start(TARGETS)
    output.events(events[: len(events) // 2])
    output.events(events[len(events) // 2 :])
    output.finish(REPORT._replace(targets=tuple(TARGETS), counts=(0,) * 3, lost=(0,) * 3))
    found: list[list[str]] = []
    for line in stream.getvalue().splitlines():
        hit = re.fullmatch(r" +[0-9.]+ +[0-9]+ server:(\w+) \w+=(\d+)", line)
        if hit is None:
            found.append([])
        found[-1].append(line if hit is None else f"{hit[1]} {hit[2]}")
    return found


def hits(*what: tuple[int, int, int, int]) -> list[Event]:
    """Return hits of (microseconds, thread, target, value)."""
    return [Event(time * 1000, 1, tid, number, (value,)) for time, tid, number, value in what]


EVENTS = hits(
    (0, 7, STEP, 1), (10, 7, STEP, 2), (20, 7, START, 3), (30, 8, START, 4), (40, 7, STEP, 5), (50, 8, DONE, 6),
    (1100, 7, DONE, 7), (1200, 8, START, 8), (1210, 8, STEP, 9), (2209, 8, DONE, 10), (2300, 7, START, 11),
)  # fmt: skip


@pytest.mark.parametrize(
    ("before", "expected"),
    [(0, ["start 3", "done 7"]), (1, ["start 3", "step 5", "done 7"]), (2, ["step 2", "start 3", "step 5", "done 7"]),
     (9, ["step 1", "step 2", "start 3", "step 5", "done 7"])],
)  # fmt: skip
def test_a_slow_pair_is_shown_with_what_its_thread_hit_before(before: int, expected: list[str]) -> None:
    first, second, end, open_ = shown(EVENTS, before)
    assert first == ["1.08 ms from server:start to server:done, thread 7:", *expected]
    assert second[0] == "1.01 ms from server:start to server:done, thread 8:"
    assert second[-1] == "done 10"
    assert end == ["server:start to server:done: 2 of 3 pairs took 1.00 ms or longer"]
    assert open_ == ["not paired: 1 begin had no end by the end of the trace"]


def test_hits_of_a_thread_stay_in_order_where_times_go_back() -> None:
    """Times that were taken apart follow clocks that are known to some microseconds."""
    events = hits((0, 7, STEP, 0), (12, 7, DONE, 1), (10, 7, START, 2), (14, 7, STEP, 3), (1100, 7, DONE, 4))
    assert shown(events, 2)[0][1:] == ["done 1", "start 2", "step 3", "done 4"]


def test_pairs_that_are_quicker_are_counted() -> None:
    assert shown(EVENTS, 3, 10 * MS)[0] == ["server:start to server:done: 0 of 3 pairs took 10.0 ms or longer"]


PROVIDER = "provider slow { probe start(int id); probe step(int id, int what); probe done(int id); };\n"
PROGRAM = r"""
#include "slow.h"
#include <unistd.h>
#define ROOM __asm__ volatile("nop; nop; nop; nop; nop")
int main(void) {
    for (int id = 0; id < 300; id++) {
        SLOW_START(id); ROOM;
        SLOW_STEP(id, 1); ROOM;
        if (id % 100 == 7) usleep(60000);
        SLOW_DONE(id); ROOM;
    }
    return 0;
}
"""


def test_what_a_slow_program_did_is_shown(usdtbuild: Any, tmp_path: Path, compiled: Any, header_of: Any) -> None:
    header_of(tmp_path, "slow.d", PROVIDER)
    compiled(tmp_path, "slow.c", PROGRAM, "-O2")
    words = "trace", "-P", "slow:*", "--latency", "slow:start", "slow:done", "--slower", "50ms", "--before", 2
    done = usdtbuild(*words, "--", "./slow", cwd=tmp_path)
    pairs = re.findall(r"^(\S+) ms from slow:start to slow:done, thread \d+:\n((?: .*\n)+)", done.stdout, re.MULTILINE)
    by_id = {int(text.split("id=")[-1]): text for _, text in pairs}
    assert {7, 107, 207} <= set(by_id)  # others too, where the machine is busy
    for number, text in by_id.items():
        hits_of = re.findall(r"slow:(\w+) id=(\d+)", text)
        last = [("done", number - 1)] * bool(number)
        expected = [*last, ("start", number), ("step", number), ("done", number)]
        assert hits_of == [(name, str(value)) for name, value in expected]
    assert f"slow:start to slow:done: {len(by_id)} of 300 pairs took 50.0 ms or longer" in done.stdout


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--slower", "1ms"), "--slower says which pairs of --latency are shown one by one; give both"),
        (("--before", "3", "--latency", "a", "b"), "--before says how many hits are shown before a slow pair"),
        (("--slower", "1ms", "--latency", "a", "b", "--by", "c"), "--slower shows slow pairs, and no tables"),
        (("--slower", "1ms", "--latency", "a", "b", "-o", "x.html"), "--slower shows slow pairs, and no tables"),
        (("--slower", "0", "--latency", "a", "b"), "'--slower': 0 is not in the range"),
        (("--before", "0", "--slower", "1ms", "--latency", "a", "b"), "'--before': 0 is not in the range"),
    ],
)
def test_what_makes_no_sense_is_refused_before_anything_starts(
    refused: Callable[..., str], words: tuple[str, ...], said: str
) -> None:
    assert said in refused(*words)
