"""Who called whom, how often and for how long: the tree that the library inside adds up, and how it is shown.

`runtime/preload/call_tree.c` writes the file. A function's total is the time from its entry to its return, its own
(self) that without the functions it called, of those that are traced. Nothing here runs while the program does.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

_NODE = struct.Struct("=IIIIQQQQ16x")  # point, child, sibling, -, calls, total, self, of the root also `most`
TREE_SIZE = (1 << 18) * _NODE.size


class Calls(NamedTuple):
    """A function as it was called along one way: times in nanoseconds; `below` in the order of first calls."""

    name: str
    times: int
    total: int
    own: int
    below: tuple[Calls, ...] = ()


class CallTree(NamedTuple):
    """What was called by nothing that is traced; ways that there was no room for; calls whose return wasn't seen.

    The latter were made while as many others were open as the runtime follows, which are `most`: they have no time.
    """

    roots: tuple[Calls, ...]
    lost: int
    deep: int = 0
    most: int = 0


class Row(NamedTuple):
    """A function in all its calls. The time of a call within another of the same function counts once."""

    name: str
    times: int
    total: int
    own: int


class _Way(NamedTuple):
    """The nodes of one function below one caller: more than one if a library was opened again, by point anew."""

    name: str
    nodes: list[int]
    below: list[_Way]


def read_tree(data: bytes, names: Mapping[int, str]) -> CallTree:
    """Return the tree in the file's bytes; `names` are the functions' by their number in the file of counts.

    Functions of one name are one.
    """
    root = _Way("", [0], [])
    waiting = [root]
    order = []  # callers before what they call; deep recursions are deep trees, so nothing here is recursive
    while waiting:
        way = waiting.pop()
        order.append(way)
        found: dict[str, list[int]] = {}
        for node in sorted(child for parent in way.nodes for child in _children(data, parent)):
            found.setdefault(names.get(_NODE.unpack_from(data, node * _NODE.size)[0], "?"), []).append(node)
        way.below.extend(_Way(name, nodes, []) for name, nodes in found.items())
        waiting += way.below
    made: dict[int, Calls] = {}
    for way in reversed(order):
        numbers = [_NODE.unpack_from(data, node * _NODE.size)[4:7] for node in way.nodes]
        times, total, own = (sum(column) for column in zip(*numbers))
        made[id(way)] = Calls(way.name, times, total, own, tuple(made.pop(id(one)) for one in way.below))
    most = _NODE.unpack_from(data)[7]
    return CallTree(made[id(root)].below, made[id(root)].total, made[id(root)].own, most)


def _children(data: bytes, node: int) -> Iterator[int]:
    """Yield the nodes below one, in no order."""
    child = _NODE.unpack_from(data, node * _NODE.size)[1]
    while child:
        yield child
        child = _NODE.unpack_from(data, child * _NODE.size)[2]


def rows(tree: CallTree) -> list[Row]:
    """Return each function once, the one that took the longest first."""
    found: dict[str, Row] = {}
    waiting: list[tuple[Calls, frozenset[str]]] = [(one, frozenset()) for one in tree.roots]
    while waiting:
        calls, above = waiting.pop()
        row = found.get(calls.name, Row(calls.name, 0, 0, 0))
        total = 0 if calls.name in above else calls.total
        found[calls.name] = Row(calls.name, row.times + calls.times, row.total + total, row.own + calls.own)
        waiting += [(one, above | {calls.name}) for one in calls.below]
    return sorted(found.values(), key=lambda row: (-row.total, -row.own, row.name))


def report_lines(tree: CallTree, top: int | None = None) -> Iterator[str]:
    """Yield the lines of the report: a function a line, of the first `top`."""
    yield f"{'total':>12} {'self':>12} {'calls':>10}  function"
    found = rows(tree)
    for row in found[:top]:
        yield f"{_time(row.total):>12} {_time(row.own):>12} {row.times:>10}  {row.name}"
    left = len(found[top:]) if top else 0
    if left:
        yield f"(and {left} more)"


def graph_lines(tree: CallTree) -> Iterator[str]:
    """Yield the lines of the call graph: below each function what it called, once for each way there."""
    yield f"{'total':>12} {'self':>12} {'calls':>10}  function"
    waiting = [(one, "", "") for one in reversed(tree.roots)]
    while waiting:
        calls, branch, further = waiting.pop()
        yield f"{_time(calls.total):>12} {_time(calls.own):>12} {calls.times:>10}  {branch}{calls.name}"
        waiting += _branches(calls.below, further)


def _branches(below: Sequence[Calls], further: str) -> Iterator[tuple[Calls, str, str]]:
    """Yield the functions below one, the last first, with what stands before them and before theirs."""
    for i, one in enumerate(reversed(below)):
        yield one, further + ("├─ " if i else "└─ "), further + ("│  " if i else "   ")


def _time(nanoseconds: int) -> str:
    """Return a time with the unit that leaves one to three digits before the point."""
    value, units = float(nanoseconds), ["ns", "us", "ms", "s"]
    while value >= 999.9995 and len(units) > 1:
        value /= 1000
        units.pop(0)
    return f"{value:.0f} {units[0]}" if units[0] == "ns" else f"{value:.3f} {units[0]}"
