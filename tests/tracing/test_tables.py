"""Tables of a trace: histograms, top values, latencies. Each number is worked out by hand from the recorded trace."""

from __future__ import annotations

import io
import json
import math
import random
import re
from collections.abc import Sequence
from functools import partial
from typing import Any

import pytest

from usdtbuild.errors import UsdtError
from usdtbuild.tracing.filters import Filter
from usdtbuild.tracing.job import Stood
from usdtbuild.tracing.measures import Cell, Measure, Table
from usdtbuild.tracing.model import ENTER, EXIT, Event, Refusal, Report, Stops
from usdtbuild.tracing.outputs.bars import Distribution, duration
from usdtbuild.tracing.outputs.by import By
from usdtbuild.tracing.outputs.count import Count
from usdtbuild.tracing.outputs.folded import Folded
from usdtbuild.tracing.outputs.histogram import Histogram, _bound
from usdtbuild.tracing.outputs.latency import Latency
from usdtbuild.tracing.outputs.normal import normalized
from usdtbuild.tracing.outputs.summary import SummaryFile
from usdtbuild.tracing.session import _Standing

from .recorded import EVENTS, PATH, REPORT, TARGETS, target, written

LOST = "hits were lost: where they were, a begin may be paired with the end of another"  # as `recorded` has it


def lines(text: str) -> list[str]:
    return [" ".join(line.split()) for line in text.splitlines()]


def test_histogram_by_powers_of_two() -> None:
    assert lines(written(Histogram, "id")) == [
        "server:request__start id: 3 values from 1 to 3, mean 2; 1 more was lost",
        "p50 2 p90 3 p99 3 max 3",
        "[1, 2) 1 ####################",
        "[2, 4) 2 ########################################",
        "server:request__done id: 3 values from 1 to 9, mean 4",
        "p50 2 p90 9 p99 9 max 9",
        "[1, 2) 1 ########################################",
        "[2, 4) 1 ########################################",
        "[4, 8) 0",
        "[8, 16) 1 ########################################",
    ]


def test_histogram_by_steps_leaves_long_gaps_out() -> None:
    assert lines(written(Histogram, "status,10")) == [
        "server:request__done status: 3 values from 200 to 500, mean 368",
        "p50 405 p90 500 p99 500 max 500",
        "[200, 210) 1 ########################################",
        "...",
        "[400, 410) 1 ########################################",
        "...",
        "[500, 510) 1 ########################################",
    ]


def test_histogram_of_floats_counts_apart_what_is_no_number() -> None:
    assert lines(written(Histogram, "ratio,0.1")) == [
        "server:mark ratio: 1 value from 0.25 to 0.25, mean 0.25; 1 more is infinite or NaN",
        "p50 0.25 p90 0.25 p99 0.25 max 0.25",
        "[0.2, 0.3) 1 ########################################",
    ]


@pytest.mark.parametrize(
    ("step", "interval"),
    [
        ("", "[8.98847e+307, 1.79769e+308)"),
        (",1", "[1e+308, 1e+308)"),
        (",1e307", "[1e+308, 1.1e+308)"),
    ],
)
def test_histogram_of_huge_numbers_has_short_bounds(step: str, interval: str) -> None:
    place = next(one for one in EVENTS if one.values and 0.25 in one.values)
    huge = place._replace(values=tuple(1e308 if one == 0.25 else one for one in place.values))
    assert lines(written(Histogram, f"ratio{step}", events=[huge]))[2] == f"{interval} 1 {'#' * 40}"


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("width", [1, 1 / 1024, 1e-300, 1e300])
@pytest.mark.parametrize("most", [999, 7])
def test_percentiles_of_floats_are_right_to_6_percent(most: int, width: float, sign: int) -> None:
    """However small they are: many a program counts in seconds."""
    place = next(one for one in EVENTS if one.values and 0.25 in one.values)
    values = [sign * width * number / 256 for number in range(1, most + 1)]
    seen = Histogram(io.StringIO(), "ratio")
    seen.start(TARGETS)
    seen.events([place._replace(values=tuple(value if one == 0.25 else one for one in place.values))
                 for value in values])  # fmt: skip
    (row,) = seen.rows(REPORT)
    for name, found in row.quantiles.items():
        assert found == pytest.approx(sorted(values)[math.ceil(float(name[1:]) / 100 * most) - 1], rel=0.06)
    assert sum(hits for _, _, hits in row.buckets) == most
    assert all(high == (low * 2 if sign > 0 else low / 2) for low, high, _ in row.buckets)


def test_floats_have_classes_below_1_too() -> None:
    seen = Distribution(floating=True)
    for value in (0.0, -0.0, 0.25, 0.3, 1.0, 1.9, 2.0, -0.125, 5e-324, 1.7e308):
        seen.add(value)
    seen.take(Cell(1, 3, 3, 3), {3: 1})  # of an integer, added up elsewhere
    shown = [re.sub(r"\s+", " ", line.strip()) for line in seen.lines(partial(_bound, digits=6))]
    assert [line.rstrip(" #") for line in shown] == [
        "(-0.25, -0.125] 1", "...", "0 2", "[4.94066e-324, 9.88131e-324) 1", "...", "[0.25, 0.5) 2", "[0.5, 1) 0",
        "[1, 2) 2", "[2, 4) 2", "...", "[8.98847e+307, 1.79769e+308) 1",
    ]  # fmt: skip


@pytest.mark.parametrize("step", [0.1, 0.01, 0.7])
def test_a_float_that_is_a_bound_is_in_the_class_that_begins_there(step: float) -> None:
    seen = Distribution(step, floating=True)
    for number in range(-100, 100):
        seen.add(float(f"{number * step:.10g}"))
    assert all(hits == 1 for _, _, hits in seen.buckets())


@pytest.mark.parametrize(
    ("values", "intervals"),
    [
        ([0, 1], ["[0, 1)", "[1, 2)"]),
        ([-1, -2, -3, 0], ["(-4, -2]", "(-2, -1]", "[0, 1)"]),
        ([1 << 62, (1 << 62) - 1], [f"[{1 << 61}, {1 << 62})", f"[{1 << 62}, {1 << 63})"]),
    ],
)
def test_classes(values: Sequence[float], intervals: list[str]) -> None:
    seen = Distribution()
    for value in values:
        seen.add(value)
    assert [line.strip().rsplit("  ", 2)[0] for line in seen.lines()] == intervals


def test_decimal_classes() -> None:
    seen = Distribution(decimal=True)
    for value in (0, 1, 2, 4, 5, 9, 10, 19, 1999, 2000):
        seen.add(value)
    shown = [line.split()[:3] for line in seen.lines()]
    assert shown[:4] == [["[0,", "1)", "1"], ["[1,", "2)", "1"], ["[2,", "5)", "2"], ["[5,", "10)", "2"]]
    assert shown[-2:] == [["[1000,", "2000)", "1"], ["[2000,", "5000)", "1"]]


@pytest.mark.parametrize(
    ("nanoseconds", "shown"),
    [
        (0, "0 ns"), (999, "999 ns"), (999.6, "1.00 us"), (1000, "1.00 us"), (9_994, "9.99 us"), (9_996, "10.0 us"),
        (99_960, "100 us"), (999_600, "1.00 ms"), (1_500_000_000, "1.50 s"), (1e12, "1000 s"),
    ],
)  # fmt: skip
def test_durations_have_three_digits(nanoseconds: float, shown: str) -> None:
    assert duration(nanoseconds) == shown


def test_by_shows_the_most_frequent_values_and_what_is_left() -> None:
    events = [Event(i, 1, 1, 0, (value, None)) for i, value in enumerate([7, 7, 7, 5, 5, 1, 2])]
    assert lines(written(By, "id", 2, events=events)) == [
        "server:request__start id: 4 values in 7 hits; 1 more was lost",
        "3 42.9% 7", "2 28.6% 5", "2 28.6% in 2 more values",
    ]  # fmt: skip


def test_sums_are_shown_with_and_without_a_key() -> None:
    events = [Event(i, 7, 9 - i % 2, 1, (i % 2, 100 * i)) for i in range(5)]
    assert lines(written(By, "", of="status", events=events)) == [
        "server:request__done status: 5 hits, sum 1000, mean 200, min 0, max 400",
    ]  # fmt: skip
    assert lines(written(By, "id", 1, "status", events=events)) == [
        "server:request__done status by id: 2 values in 5 hits",
        "hits sum mean min max id",
        "3 600 200 0 400 0",
        "2 400 200 100 300 in 1 more value",
    ]
    assert lines(written(By, "thread", of="status", events=events))[2:] == ["3 600 200 0 400 9", "2 400 200 100 300 8"]
    assert lines(written(By, "process", events=events[:3])) == [
        "server:request__done process: 1 value in 3 hits",
        "3 100.0% 7",
    ]
    text = written(By, "", of="ratio", events=[Event(1, 1, 1, 4, (0, ratio, b"")) for ratio in (0.5, 0.25)])
    assert text == "server:mark ratio: 2 hits, sum 0.75, mean 0.375, min 0.25, max 0.5\n"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("SELECT * FROM t1 WHERE id = 17", "SELECT * FROM t1 WHERE id = ?"),
        ("select a.b2 from x where y > -1.5e-3 and z=.5", "select a.b2 from x where y > ? and z=?"),
        ("INSERT INTO t VALUES (1, 'it''s', NULL), (2, E'\\'', -3)", "INSERT INTO t VALUES (?, ?, NULL), (?, ?, ?)"),
        ("INSERT INTO t (a, b) VALUES (1, 'x'), (2, 'y') ,(3,'z')", "INSERT INTO t (a, b) VALUES (?)"),
        ("SELECT 1 WHERE a IN (1, 2,3) AND b in ('x') LIMIT 10", "SELECT ? WHERE a IN (?) AND b in (?) LIMIT ?"),
        ("UPDATE t SET h = 0xFF, x = X'1f', n = N'a' WHERE k = $1", "UPDATE t SET h = ?, x = ?, n = ? WHERE k = $1"),
        ('SELECT "2nd", `3rd` FROM "T" WHERE a = "x" AND "b"."c" = "d"."e"',
         'SELECT "2nd", `3rd` FROM "T" WHERE a = ? AND "b"."c" = "d"."e"'),
        ("SELECT  $$a 'b'$$, $x$ $$ $x$\n  FROM t -- don't\n WHERE a=1", "SELECT ?, ? FROM t WHERE a=?"),
        ("/* trace='00-1' */ DELETE FROM t WHERE a BETWEEN -1 AND -2", "DELETE FROM t WHERE a BETWEEN ? AND ?"),
        ("SELECT a-1, f(2,3), b + -4 FROM t", "SELECT a-?, f(?,?), b + ? FROM t"),
        ("SELECT 'cut off", "SELECT ?"), ("WHERE a IN (1, 2, ", "WHERE a IN (?)"), ("GET /x/12/y7", "GET /x/?/y7"),
        ("", ""),
    ],
)  # fmt: skip
def test_statements_are_shown_without_their_literals(text: str, shown: str) -> None:
    assert normalized(text.encode()) == shown.encode()
    assert normalized(shown.encode()) == shown.encode()


def test_hostile_texts_lose_their_literals_in_time() -> None:
    for one in ("'", "''", "$", "$a$", "(", "IN (?", "?,", '"', "/*", "--", "1", "-", "= ", "\\", "e'", "0x", "`"):
        assert len(normalized((one * 4096)[:4096].encode())) <= 4097


def test_by_shows_strings_harmlessly() -> None:
    text = written(By, "path")
    assert text.isprintable() or set(text) - {"\n"} == {c for c in text if c.isprintable()}
    assert '"/a"' in text
    assert "0x10" in text
    assert "?" in text
    assert "NULL" in text


@pytest.mark.parametrize(
    ("make", "words", "said"),
    [
        (Histogram, ("size",), "--histogram: server:mark has no argument size; it has where, ratio, path"),
        (By, ("size",), "--by: server:mark has no argument size"),
        (By, ("ratio",), "--by: ratio of server:mark is a floating-point number, which makes no key"),
        (By, ("", 20, "path"), "--sum: path of server:request__start is a string; leave the probe out with -x"),
        (By, ("status", 20, "size"), "--sum: server:mark has no argument size"),
        (By, ("status", 20, "ratio"), "no probe has both status (--by) and ratio (--sum)"),
        (Histogram, ("path",), "path of server:request__start is a string; --by counts how often each comes, and -x"),
        (Histogram, ("id,0",), "'0' is no width"),
        (Histogram, ("id,-3",), "'-3' is no width"),
        (Histogram, ("id,nan",), "'nan' is no width"),
        (Histogram, ("id,",), "'' is no width"),
        (Latency, ("request-start", "reply"), "nothing matches --latency reply; there are server:mark"),
        (Latency, ("request-strat", "reply"), "--latency request-strat; did you mean server:request__start? There are"),
        (Latency, ("request-*", "request-done"), "server:request__done is meant by both"),
        (Latency, ("request-start", "request-done", "path"), "--key: server:request__done has no argument path"),
        (Latency, ("request-start", "mark", "arg1"), "--key: arg1 of server:mark is a floating-point number"),
        (Latency, ("request-start", "request-done", "arg1"), "arg1 is a string of server:request__start, and a"),
    ],
)
def test_what_there_is_not(make: Any, words: tuple[str, ...], said: str) -> None:
    with pytest.raises(UsdtError) as caught:
        written(make, *words)
    assert said in str(caught.value)


def test_latency_by_thread() -> None:
    found = lines(written(Latency, "request-start", "server:request-done", "", 10))
    assert found[0] == "request-start to server:request-done: 2 pairs"
    assert found[1].startswith("min 5.00 us mean 5.00 us p50 5.00 us")
    assert found[-5:] == [
        '5.00 us at 0.000000 s thread 10 server:request__start id=1 path="/a" -> server:request__done id=1 status=200',
        next(line for line in found if "thread 11" in line),
        "not paired: 1 begin had no end by the end of the trace",
        "not paired: 1 end had no begin",
        LOST,
    ]


def test_latency_by_key_pairs_across_threads_and_recursion_pairs_the_youngest() -> None:
    hits = [
        (0, 1, 0, (1, None)), (10, 1, 0, (2, None)), (30, 2, 1, (1, 0)), (35, 3, 1, (2, 0)), (50, 1, 0, (3, None)),
        (60, 1, 0, (3, None)), (61, 1, 1, (3, 0)), (90, 1, 1, (3, 0)), (91, 1, 1, (3, 0)),
    ]  # fmt: skip
    events = [Event(time, 1, tid, number, values) for time, tid, number, values in hits]
    found = lines(written(Latency, "request-start", "request-done", "id", 10, events=events))
    assert found[0] == "request-start to request-done by id: 4 pairs"
    assert found[1].startswith("min 1 ns mean 24 ns p50 25 ns p90 40 ns")
    assert [line.split()[0] for line in found if " thread " in line] == ["40", "30", "25", "1"]
    assert found[-2:] == ["not paired: 1 end had no begin", LOST]


def test_latency_by_a_value_of_the_begin_or_else_of_the_end_with_a_filter_of_pairs() -> None:
    hits = [
        (0, 1, 0, (1, None)), (10, 1, 0, (2, None)), (30, 1, 1, (2, 5)), (50, 1, 1, (1, 7)),
        (60, 1, 0, (2, None)), (64, 1, 1, (2, 7)), (70, 1, 1, (2, 7)), (80, 1, 0, (3, None)), (81, 1, 0, (1, None)),
    ]  # fmt: skip
    events = [Event(time, 1, tid, number, values) for time, tid, number, values in hits]

    def rows(by: str, where: str = "") -> list[str]:
        made = Filter(where) if where else None
        return lines(written(Latency, "request-start", "request-done", by=by, where=made, events=events))[3:]

    end = ["not paired: 1 end had no begin", LOST]
    two = "not paired: 2 begins had no end by the end of the trace"
    one = two.replace("2 begins", "1 begin")
    assert rows("id") == ["calls total mean p50 p99 max id", "1 50 ns 50 ns 50 ns 50 ns 50 ns 1",
                          "2 24 ns 12 ns 4 ns 20 ns 20 ns 2", two, *end]  # fmt: skip
    assert rows("status")[1:3] == ["2 54 ns 27 ns 4 ns 50 ns 50 ns 7", "1 20 ns 20 ns 20 ns 20 ns 20 ns 5"]
    assert rows("status", "id != 1")[1:] == ["1 20 ns 20 ns 20 ns 20 ns 20 ns 5", "1 4 ns 4 ns 4 ns 4 ns 4 ns 7",
                                             one, *end]  # fmt: skip
    assert rows("id", "status == 7")[1:3] == ["1 50 ns 50 ns 50 ns 50 ns 50 ns 1", "1 4 ns 4 ns 4 ns 4 ns 4 ns 2"]
    assert rows("thread", "id == 2")[1:] == ["2 24 ns 12 ns 4 ns 20 ns 20 ns 1", *end]


def test_quantiles_are_right_to_a_thousandth() -> None:
    choice = random.Random(7)
    times = [int(10 ** choice.uniform(0, 10)) for _ in range(5000)]
    events = []
    for i, lasted in enumerate(times):
        events += [Event(i * 10**11, 1, 1, 0, (i, None)), Event(i * 10**11 + lasted, 1, 1, 1, (i, 0))]
    made = Latency(None, "request-start", "request-done")  # type: ignore[arg-type]
    made.start(TARGETS)
    made.events(events)
    times.sort()
    for part in (0.001, 0.5, 0.9, 0.99, 0.999, 1):
        exact = times[max(0, round(part * len(times) + 0.499999) - 1)]
        assert made._of("").quantile(part) == pytest.approx(exact, rel=0.001)


def test_the_slowest_are_the_slowest() -> None:
    choice = random.Random(3)
    events, times = [], []
    for i in range(500):
        times.append(choice.randrange(1, 900))
        events += [Event(i * 1000, 1, 1, 0, (i, None)), Event(i * 1000 + times[-1], 1, 1, 1, (i, 0))]
    text = written(Latency, "request-start", "request-done", "", 5, events=events)
    slowest = [int(line.split()[0]) for line in text.splitlines() if " thread " in line]
    assert slowest == sorted(times, reverse=True)[:5]
    assert len(EVENTS) == 12


def counted(output: Any, report: Report) -> list[str]:
    output.finish(report)
    return lines(output._stream.getvalue())


def many(hits: Sequence[int], refused: Sequence[int] = ()) -> Report:
    targets = tuple(target(number, f"t{number:02}") for number in range(len(hits)))
    refusals = tuple(Refusal(targets[number].title, "no room") for number in refused)
    return REPORT._replace(targets=targets, counts=tuple(hits), lost=(0,) * len(hits), refusals=refusals)


def test_very_many_targets_without_a_hit_are_one_line() -> None:
    assert len(counted(Count(io.StringIO()), many([5] + [0] * 20))) == 21
    assert counted(Count(io.StringIO()), many([5] + [0] * 7600)) == ["5 server:t00", "(and 7600 more without a hit)"]
    rows = counted(Count(io.StringIO()), many([5, 0] + [0] * 30, refused=range(2, 32)))
    assert rows == ["5 server:t00", "0 server:t01", "(and 30 more that were not traced everywhere)"]
    assert counted(Count(io.StringIO(), top=1), many([5, 6, 7])) == ["7 server:t02", "(and 2 more)"]


def test_a_count_that_has_lost_hits_does_not_look_like_one() -> None:
    """A filter wasn't asked about hits that were lost."""
    report = many([10, 20])._replace(lost=(750, 0), unfiltered=(1000, 20))
    assert counted(Count(io.StringIO()), report) == [
        "20 server:t01", ">=10 server:t00 (about 40, if what was lost is like what was seen)",
    ]  # fmt: skip
    stream = io.StringIO()
    SummaryFile(stream, ".json").finish(report)
    assert [row["exact"] for row in json.loads(stream.getvalue())["counts"]] == [False, True]
    damaged = io.StringIO()
    SummaryFile(damaged, ".json").finish(report._replace(is_damaged=True))
    assert [row["exact"] for row in json.loads(damaged.getvalue())["counts"]] == [False, False]
    assert counted(Count(io.StringIO()), report._replace(unfiltered=())) == ["20 server:t01", "10 server:t00"]


@pytest.mark.parametrize(("ending", "rows"), [(".jsonl", 2), (".csv", 3)])
def test_counts_as_rows(ending: str, rows: int) -> None:
    stream = io.StringIO()
    SummaryFile(stream, ending).finish(many([3, 0], refused=[1]))
    lines_ = stream.getvalue().splitlines()
    assert len(lines_) == rows
    assert lines_[-1] in {
        '{"probe": "server:t01", "kind": "probe", "module": "/opt/server", "hits": 0, "exact": false, "lost": 0}',
        "server:t01,probe,/opt/server,0,false,0",
    }


def test_bounds_of_classes_are_exact_however_large() -> None:
    bounds = [(1 << 62) + 10, (1 << 62) + 11]
    seen = Distribution(10)
    for value in bounds:
        seen.add(value)
    low = (1 << 62) // 10 * 10 + 10
    assert [line.split("  ")[1] for line in seen.lines(str)] == [f"[{low}, {low + 10})"]
    shown = written(Histogram, "arg0", events=[Event(1, 1, 1, 2, ((1 << 62) + 1,))])
    assert f"[{1 << 62}, {1 << 63})" in shown


def test_bounds_that_floating_point_numbers_do_not_tell_apart_are_exact() -> None:
    """Both were -9.22337203685478e+18."""
    seen = Distribution(0.5)
    seen.add(-(1 << 63))
    assert [line.split("  ")[1] for line in seen.lines(_bound)] == ["[-9223372036854775808.0, -9223372036854775807.5)"]


def test_what_is_in_no_row_of_distributions_is_counted_once() -> None:
    """It was there twice, the second time as what came when the table was full."""
    events = [Event(i, 1, 1, 1, (i % 3, 200)) for i in range(7)]
    found = lines(written(Histogram, "status", "id", 1, events=events))
    assert found[0] == "server:request__done status by id: 3 values in 7 hits"
    assert [line.split(" ", 7)[::7] for line in found[2:]] == [["3", "0"], ["4", "in 2 more values"]]


def test_one_is_told_as_one() -> None:
    one = [Event(1, 1, 1, 1, (0, 200))]
    assert "server:request__done id: 1 value in 1 hit\n" in written(By, "id", events=one)
    assert "server:request__done status: 1 hit, sum" in written(By, "", of="status", events=one)
    assert "server:request__done status by id: 1 value in 1 hit\n" in written(Histogram, "status", "id", events=one)
    two = [*one, Event(2, 1, 1, 1, (1, 200))]
    for shown in (written(By, "id", 1, events=two), written(Histogram, "status", "id", top=1, events=two)):
        assert "in 1 more value\n" in shown
    pair = written(Latency, "server:request-start", "server:request-done", events=[Event(1, 1, 1, 0, (0, None))])
    assert "not paired: 1 begin had no end by the end of the trace\n" in pair


@pytest.mark.parametrize(
    ("step", "values", "kind"),
    [
        (1, [10**9, 5, 4], "int"),
        (1, [3 * 10**12], "int"),
        (100, [(1 << 63) - 1, -(1 << 63)], "int"),
        (1e-300, [3, 5], "int"),
        (5e-324, [1.7976931348623157e308, -1.0], "float"),
        (1e-3, [1e308, 0.5], "float"),
        (1.5e308, [1.7e308, -1.7e308], "float"),
    ],
    ids=["long ago", "longer", "extremes", "tiny step", "all of them", "no number", "one step"],
)
def test_steps_of_one_width_take_every_value(step: float, values: Sequence[float], kind: str) -> None:
    """A value comes from the program: what is done with it takes no time or memory that grows with it."""
    seen = Distribution(step)
    for value in values:
        seen.add(value)
    found = [seen.quantile(part) for part in (0, 0.5, 1)]
    assert all(min(values) <= one <= max(values) for one in found)
    assert {type(one).__name__ for one in found} == {kind}
    assert len([*seen.lines(_bound)]) <= 2 * len(values) + 3
    assert sum(count for _, _, count in seen.buckets()) == len(values)
    assert all(low <= high for low, high, _ in seen.buckets())


def test_more_classes_than_there_is_room_for_are_one() -> None:
    seen = Distribution(1)
    for value in range(100_010):
        seen.add(value)
    assert (seen.all.count, len(seen.buckets()), seen.unsorted) == (100_010, 100_000, 10)


def test_pairs_of_values_that_are_not_told_apart_make_more_values() -> None:
    stream = io.StringIO()
    made = Latency(stream, "request-start", "request-done", by="status")
    made.start(TARGETS)
    number = next(number for number, one in enumerate(TARGETS) if one.title == "server:request__done")
    measure = Measure("status", classes=True, pair=("request-start", "request-done"))
    one, others = Cell(1, 5, 5, 5), Cell(9, 45, 5, 5)
    one.classes[5], others.classes[5] = 1, 9
    made.tables({(number, measure): Table({200: one}, others)}, {})
    made.finish(REPORT._replace(lost=(0,) * len(TARGETS)))
    assert lines(stream.getvalue())[0] == "request-start to request-done: 10 pairs, at least 1 value of status"


def test_percentiles_are_not_known_where_some_values_are_in_no_class() -> None:
    """They were those of the values that came first."""
    seen = Histogram(io.StringIO(), "id,1")
    seen.start(TARGETS)
    number = next(number for number, one in enumerate(TARGETS) if one.title == "server:request__start")
    table = Table({value: Cell(1, value, value, value) for value in range(5)}, Cell(9, 900, 100, 100))
    seen.tables({(number, seen._measure): table}, {})
    (row,) = seen.rows(REPORT)
    assert [name for name in row.as_json() if name[0] == "p"] == []
    shown = io.StringIO()
    seen._stream = shown
    seen.finish(REPORT)
    assert lines(shown.getvalue())[1] == "p50 ? p90 ? p99 ? max 100"
    assert lines(shown.getvalue())[-1] == "9 values more came when the table was full, and are in no class"


def test_addresses_are_told_to_be_some() -> None:
    assert "these are addresses" in written(By, "where")
    assert "these are addresses" not in written(By, "id")


def test_calls_that_an_exception_ended_may_not_have_returned() -> None:
    pair = [target(0, "f", kind=ENTER, provider=""), target(1, "f", kind=EXIT, provider="")]
    text = written(Latency, "f", "f:return", targets=pair, events=[Event(1, 1, 1, 0, ())])
    assert "1 call had not returned by the end of the trace: they go on, or an exception or longjmp" in text


def test_what_a_stop_takes_is_no_time_of_the_program() -> None:
    pair = [target(0, "f", kind=ENTER, provider=""), target(1, "f", kind=EXIT, provider="")]
    events = [Event(0, 1, 1, 0, ()), Event(90_000, 1, 1, 1, (), 80_000), Event(91_000, 1, 2, 0, ()),
              Event(180_000, 1, 1, 0, (), 160_000), Event(190_000, 1, 2, 1, (), 98_000)]  # fmt: skip
    report = REPORT._replace(targets=tuple(pair), lost=(0, 0), ended=200_000, stops=Stops(5, 9_000, 3_000))
    stream, tree = io.StringIO(), io.StringIO()
    for output in Latency(stream, "f", "f:return"), Folded(tree):
        output.start(pair)
        output.events(events)
        output.finish(report)
    found = lines(stream.getvalue())
    assert found[1].startswith("min 1.00 us mean 5.50 us")
    assert found[2].startswith("(without the time of stops at breakpoints; accurate to 12 us for each stop")
    assert tree.getvalue() == "f 31000\n"  # 10 and 1 us, and 20 of the one that is open


def test_hits_know_how_long_their_thread_has_stood() -> None:
    stood = _Standing()
    stood.take(Stood([(7, 100, 50), (8, 100, 500), (7, 200, 100), (7, 400, 10)]))
    hits = [Event(time, 1, 7, 0, ()) for time in (90, 100, 160, 200, 250, 300, 500)]
    assert [one.held for one in stood.told(hits)] == [0, 0, 50, 50, 100, 150, 160]
    assert [one.own for one in stood.told([Event(300, 1, 8, 0, ())])] == [100]


def test_targets_that_come_later_and_do_not_fit_are_left_out() -> None:
    """A library that is loaded later must not end a trace."""
    late = [*TARGETS, target(5, "late", PATH._replace(name="id")), target(6, "request__done", PATH, provider="other")]
    hits = [
        Event(1, 1, 1, 0, (4, None)),
        Event(2, 1, 1, 5, (b"x",)),
        Event(3, 1, 1, 6, (b"x",)),
        Event(9, 1, 1, 1, (4, 0)),
    ]
    for make, words, said in (
        (Histogram, ("id",), "server:request__start id: 1 value from 4 to 4"),
        (Latency, ("request-start", "request-done", "id"), "request-start to request-done by id: 1 pair\n  min 8 ns"),
    ):
        stream = io.StringIO()
        output = make(stream, *words)
        output.start(TARGETS)
        output.start(late)
        output.events(hits)
        output.finish(REPORT)
        assert stream.getvalue().startswith(said)
