"""What `usdtbuild trace --report`, `--graph` and `--diff` print of a tree of calls, and the file between them."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from .. import limits
from ..errors import InputError
from ..files import open_input
from ..text import ELLIPSIS, one_line, plural
from .call_tree import Calls, CallTree, Row, around, rows
from .outputs.bars import duration
from .outputs.rows import aligned

SORTS: dict[str, Callable[[Row], int]] = {
    "total": lambda row: row.total, "self": lambda row: row.own, "calls": lambda row: row.times,
    "max": lambda row: row.longest or 0,
}  # fmt: skip
REPORT = ".report.json"  # how the name of a file with a report's numbers ends
FORMAT, _VERSION = "usdtbuild-trace-report", 1
_FIELDS = {"calls": "times", "total_ns": "total", "self_ns": "own"}
_UNSEEN = "calls_without_time"  # of those that have some
_TIMES = {"p50_ns": "p50", "p99_ns": "p99", "max_ns": "longest"}  # None where it isn't known
_DEEPEST = 120  # characters before a name in a graph: what is deeper is drawn from there
_FEW = 3  # functions that are named
_MOST = 1 << 64  # no number is as large


def report_lines(found: Sequence[Row], sort: str, top: int | None, room: int) -> list[str]:
    """Return the lines of the report: a function a line, of the first `top`, within so many characters (0: any)."""
    found = sorted(found, key=lambda row: (-SORTS[sort](row), -row.total, -row.own, row.name))
    columns: list[Sequence[str]] = [("total", "self", "p50", "p99", "max", "calls")]
    for row in found[:top]:
        times = (math.nan if one is None else one for one in (row.p50, row.p99, row.longest))
        total, own, calls = _cells(row)
        columns.append((total, own, *map(duration, times), calls))
    return _table(columns, [row.name for row in found], top, room)


def _cells(one: Calls | Row) -> tuple[str, str, str]:
    """Return the numbers of a function; times that lack some calls' are more than this, and `-` where they lack all."""
    mark = ">" if one.unseen else ""
    total, own = ("-" if one.unseen == one.times > 0 else mark + duration(time) for time in (one.total, one.own))
    return total, own, str(one.times)


def without_time(tree: CallTree) -> Iterator[str]:
    """Yield what there is to say of calls whose times aren't in the numbers."""
    unseen = [one for one in rows(tree) if one.unseen]
    if sum(one.unseen for one in unseen) > tree.deep:  # what was too deep is told of anyway
        few = ", ".join(f"{one_line(one.name)} ({one.unseen})" for one in unseen[:_FEW])
        more = f" and {plural(len(unseen) - _FEW, 'more function')}" if len(unseen) > _FEW else ""
        yield (f"the ends of some calls weren't seen, of {few}{more}: left by an exception, longjmp, or a jump to what"
               " isn't traced, or open at the end. They are counted, and their time is their callers'")  # fmt: skip


def _table(columns: Sequence[Sequence[str]], names: Sequence[str], top: int | None, room: int) -> list[str]:
    left = len(names[top:]) if top else 0
    return [*aligned(columns, ["function", *names[:top]], room), *([f"(and {left} more)\n"] if left else [])]


def graph_lines(roots: Sequence[Calls], heading: str, room: int) -> list[str]:
    """Return the lines of a tree: below each function what it called, once for each way there."""
    columns, texts = [("total", "self", "calls")], [heading]
    waiting = [(one, "", "") for one in reversed(roots)]
    while waiting:
        calls, branch, further = waiting.pop()
        columns.append(_cells(calls))
        texts.append((branch if len(branch) <= _DEEPEST else ELLIPSIS + branch[1 - _DEEPEST :]) + calls.name)
        waiting += _branches(calls.below, further[-_DEEPEST:])
    return aligned(columns, texts, room)


def _branches(below: Sequence[Calls], further: str) -> Iterator[tuple[Calls, str, str]]:
    """Yield the functions below one, the last first, with what stands before them and before theirs."""
    for i, one in enumerate(reversed(below)):
        yield one, further + ("├─ " if i else "└─ "), further + ("│  " if i else "   ")


def around_lines(tree: CallTree, names: frozenset[str], room: int) -> list[list[str]]:
    """Return the two tables about functions: who called them, and what they called."""
    headings = ("function, and below it who called it", "function, and below it what it called")
    return [graph_lines(roots, heading, room) for roots, heading in zip(around(tree, names), headings)]


def report_json(tree: CallTree) -> str:
    """Return the report as a file has it (docs/json.md)."""
    fields = {**_FIELDS, **_TIMES}
    functions = [{"name": row.name, **{field: getattr(row, name) for field, name in fields.items()},
                  **({_UNSEEN: row.unseen} if row.unseen else {})}
                 for row in sorted(rows(tree), key=lambda row: row.name)]  # fmt: skip
    inexact = {} if tree.exact else {"exact": False}
    return json.dumps({"format": FORMAT, "version": _VERSION, **inexact, "functions": functions}, indent=1) + "\n"


def read_report(path: str) -> dict[str, Row]:
    """Return the functions of a report that was written as JSON, by name. Raises InputError."""
    cure = f"write one by usdtbuild trace --report -o NAME{REPORT} -- COMMAND"
    with open_input(path) as file:
        if len(file.view) > limits.REPORT:
            raise InputError(path, f"has more than {limits.REPORT >> 20} MB, which no report has", cure)
        data = bytes(file.view)
    try:
        found = json.loads(data)
        if found["format"] != FORMAT or found["version"] != _VERSION:
            raise ValueError
        return {row.name: row for row in map(_row, found["functions"])}
    except (ValueError, LookupError, TypeError, RecursionError):
        raise InputError(path, "is no report of this version of usdtbuild", cure) from None


def _row(found: dict[str, Any]) -> Row:
    times = {name: found[field] for field, name in _TIMES.items() if found[field] is not None}
    numbers = {name: found[field] for field, name in _FIELDS.items()}
    row = Row(found["name"], **numbers, **times, unseen=found.get(_UNSEEN, 0))
    known = [*numbers.values(), *times.values(), row.unseen]
    if not isinstance(row.name, str) or not all(type(one) is int and 0 <= one < _MOST for one in known):
        raise ValueError
    return row


def diff_lines(old: dict[str, Row], new: dict[str, Row], sort: str, top: int | None, room: int) -> list[str]:
    """Return the lines that compare two reports: each function's new numbers, and by how much they have changed."""
    pairs = [(old.get(name, Row(name)), new.get(name, Row(name))) for name in {**old, **new}]
    by = SORTS[sort]
    pairs.sort(key=lambda pair: (-abs(by(pair[1]) - by(pair[0])), pair[0].name))
    columns: list[Sequence[str]] = [("total", "change", "self", "change", "calls", "change")]
    for before, now in pairs[:top]:
        times = ((now.total, before.total), (now.own, before.own))
        shown = _cells(now)
        known = not any(one.unseen == one.times > 0 for one in (before, now))
        changes = [_signed(one - other, duration) if known else "?" for one, other in times]
        columns.append([shown[0], changes[0], shown[1], changes[1], shown[2], _signed(now.times - before.times, str)])
    return _table(columns, [before.name for before, _ in pairs], top, room)


def _signed(number: int, shown: Callable[[int], str]) -> str:
    return f"{'+' if number > 0 else '-'}{shown(abs(number))}" if number else "0"
