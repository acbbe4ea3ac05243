"""Several keys (`--by a,b`), and the probe as one: where the hit happens and afterwards, always the same."""

from __future__ import annotations

import io
import re
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from usdtbuild.errors import UsageError
from usdtbuild.tracing.measures import Cell, Measure, Table
from usdtbuild.tracing.model import Event
from usdtbuild.tracing.outputs.by import By
from usdtbuild.tracing.outputs.histogram import Histogram

from .recorded import REPORT, TARGETS, written
from .test_every import every, own, program  # noqa: F401  (fixtures)

ROW = re.compile(r"^ +([0-9]+) +(-?[0-9]+) +\S+ +-?[0-9]+ +-?[0-9]+  (\S+), (\S+)$", re.MULTILINE)
COUNTED = re.compile(r"^ +([0-9]+) +[0-9.]+%  (.+)$", re.MULTILINE)


@pytest.mark.parametrize("keys", ["id,thread", "thread,id", "id|--by|process"])
def test_sums_by_two_keys_are_exact_at_full_speed(keys: str, every: Callable[..., Any]) -> None:  # noqa: F811
    done = every(f"-P|tick|--sum|size|--by|{keys}|--top|100|-v", 3, 1_000_000)
    hits, sums, others = Counter[str](), Counter[str](), set()
    for count, total, *both in ROW.findall(done.stdout):
        one, other = reversed(both) if keys.startswith("thread") else both
        hits[one] += int(count)
        sums[one] += int(total)
        others.add(other)
    assert {one: (hits[one], sums[one]) for one in hits} == own(done.stderr)
    assert len(others) == (1 if "process" in keys else 3)
    assert "after the hit" not in done.stderr


def test_distributions_by_key_are_one_table(every: Callable[..., Any]) -> None:  # noqa: F811
    for keys, engine in (("id", "auto"), ("id,probe", "auto"), ("id,name", "trap")):
        rounds = 100_000 if engine == "auto" else 300
        done = every(f"-P|tick|--histogram|size|--by|{keys}|--engine|{engine}|--top|50", 1, rounds)
        first, heading, *rows = done.stdout.splitlines()
        assert re.fullmatch(rf"(every:tick )?size by {keys.replace(',', ', ')}: \d+ values in {rounds} hits", first)
        assert heading.split() == ["hits", "mean", "min", "p50", "p90", "p99", "max", *keys.replace(",", ", ").split()]
        seen = Counter[str]()
        for row in rows:
            hits, _, least, *quantiles, most, _key = row.split(None, 7)
            seen[_key.split(",")[0]] += int(hits)
            numbers = [int(number) for number in (least, *quantiles, most)]
            assert numbers == sorted(numbers)
        assert seen == {one: hits for one, (hits, _) in own(done.stderr).items()}


@pytest.mark.parametrize("engine", ["auto", "trap"])
def test_the_probe_is_a_key_of_one_table(engine: str, every: Callable[..., Any]) -> None:  # noqa: F811
    rounds = 100_000 if engine == "auto" else 200
    done = every(f"-P|every:*|--by|probe|--engine|{engine}", 1, rounds)
    probes = {f"every:{name}": str(rounds) for name in ("tick", "start", "done")}
    assert {key: count for count, key in COUNTED.findall(done.stdout)} == probes
    done = every(f"-P|start|-P|done|--by|kind,probe|--engine|{engine}", 1, rounds)
    kinds = Counter[str]()
    for one, (hits, _) in own(done.stderr).items():
        for name in ("start", "done"):
            kinds[f"{int(one) % 3}, every:{name}"] += hits
    assert {key: int(count) for count, key in COUNTED.findall(done.stdout)} == kinds


@pytest.mark.parametrize("keys", ["id,name", "id,size", "id,thread,process", "id,name|--string-size|400"])
def test_all_keys_are_told_apart_where_the_hit_happens_but_what_has_no_room(
    keys: str,
    every: Callable[..., Any],  # noqa: F811
) -> None:
    # Half of a table's cells at most: beyond it some keys find no place near the one that their hash says.
    done = every(f"-P|tick|--by|{keys}|-v|--top|10000", 1, 2000)
    reasons = re.findall(r"^usdtbuild: every:tick: arguments are evaluated after the hit: (.*)$", done.stderr, re.M)
    assert reasons == ["id,name may take more than 256 bytes"] * ("400" in keys)
    seen = Counter[str]()
    for count, key in COUNTED.findall(done.stdout):
        seen[key.split(",")[0]] += int(count)
    assert seen == {one: hits for one, (hits, _) in own(done.stderr).items()}


def test_pairs_have_several_keys_too(every: Callable[..., Any]) -> None:  # noqa: F811
    done = every("--latency|start|done|--by|kind,probe|-v", 1, 3000)
    rows = re.findall(r"^ +(\d+) .*  (\d), every:start$", done.stdout, re.MULTILINE)
    kinds = Counter[str]()
    for one, (hits, _) in own(done.stderr).items():
        kinds[str(int(one) % 3)] += hits
    assert {kind: int(count) for count, kind in rows} == kinds
    assert "pairs are found after the hit" in done.stderr


def test_patterns_fold_what_has_no_hit(every: Callable[..., Any], program: Any) -> None:  # noqa: F811
    def count(*patterns: str) -> list[str]:
        options = "".join(f"|-P|{one}" for one in patterns)
        shown = every(f"--count|--module|every|--filter|kind < 0{options}", 1, 10).stdout
        return [" ".join(line.split()) for line in shown.splitlines()]

    assert count("s*", "d*") == ["(2 without a hit)"]
    assert count("star?") == ["0 every:start"]
    assert count("s*", "done") == ["0 every:done", "0 every:start"]


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ("--by|id,id", "id is named twice"),
        ("--by|id,", "a name is empty"),
        ("--by|id,kind", "no probe has all of id, kind"),
        ("--by|id,nothing", "has no argument nothing"),
        ("--histogram|size,10|--by|id", "leave out ,10"),
    ],
)
def test_keys_that_make_no_sense_are_refused(options: str, what: str, program: Any, usdtbuild: Any) -> None:  # noqa: F811
    done = usdtbuild("trace", *options.split("|"), "--", program, 1, 1, code=2)
    assert what in done.stderr
    assert "id 0" not in done.stderr


def test_hits_that_come_as_events_and_in_tables_are_added_up_alike() -> None:
    events = [Event(i, 7, 9, i % 2, (i % 3, 100 * i)) for i in range(12)]
    for by in ("id,thread", "probe", "probe,id", "thread"):
        measure, tables = Measure(by), dict[Any, Table]()
        for event in events:
            values = {"id": event.values[0], "thread": event.tid}
            key: Any = tuple(values[name] for name in by.split(",") if name != "probe")
            table = tables.setdefault((event.target, measure), Table({}, Cell()))
            cell = table.cells.setdefault(key if len(key) > 1 else key[0] if key else 0, Cell())
            cell.add(0)
        stream = io.StringIO()
        output = By(stream, by)
        output.start(TARGETS)
        output.tables(tables, {})
        output.finish(REPORT)
        assert stream.getvalue() == written(By, by, events=events)


def test_a_floating_point_number_is_no_key() -> None:
    for make, words in ((By, ("ratio,thread",)), (Histogram, ("ratio", "thread,ratio"))):
        with pytest.raises(UsageError, match="--by: ratio of server:mark is a floating-point number"):
            written(make, *words)
