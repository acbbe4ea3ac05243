"""Who called whom, how often and for how long: the tree that the library inside adds up, and what it says of functions.

`runtime/preload/call_tree.c` writes the file. A function's total is the time from its entry to its return, its own
(self) that without the functions it called, of those that are traced. Nothing here runs while the program does, and
nothing prints: `call_report` does.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeVar

from .measures import Cell, bounds
from .outputs.bars import Distribution

_NODE = struct.Struct("=IIIIQQQQQQ")  # point, child, sibling, ticks/ended, calls, total, self, most, nodes, functions
_NODES, _FUNCTIONS = 1 << 18, 1 << 17
_HISTOGRAM = struct.Struct("=512I")
TREE_SIZE = _NODES * _NODE.size + _FUNCTIONS * _HISTOGRAM.size  # most of which nobody touches
_Item = TypeVar("_Item")


class Calls(NamedTuple):
    """A function as it was called along one way: times in nanoseconds; `below` in the order of first calls. Of `unseen`
    calls nobody knows when they ended: their time is their callers'."""

    name: str
    times: int
    total: int
    own: int
    below: tuple[Calls, ...] = ()
    unseen: int = 0

    @property
    def numbers(self) -> tuple[int, int, int, int]:
        """All of them."""
        return self.times, self.total, self.own, self.unseen


class CallTree(NamedTuple):
    """What was called by nothing that is traced; ways that there was no room for; calls whose return wasn't seen.

    The latter were made while as many others were open as the runtime follows, which are `most`: they have no time.
    It isn't `exact` where hits were lost, and so calls may be missing, and have others' times.
    `spreads` say by function how its calls' times are distributed, each `unit` of so many nanoseconds by so many ticks.
    """

    roots: tuple[Calls, ...]
    lost: int
    deep: int = 0
    most: int = 0
    spreads: Mapping[str, Distribution] = {}
    unit: tuple[int, int] = (1, 1)
    exact: bool = True


class Row(NamedTuple):
    """A function in all its calls. The time of a call within another of the same function counts once. What half of the
    calls take at most (within 6 %), 99 of 100, and the longest, is None where it isn't known."""

    name: str
    times: int = 0
    total: int = 0
    own: int = 0
    unseen: int = 0
    p50: int | None = None
    p99: int | None = None
    longest: int | None = None


def merged(
    first: Iterable[_Item],
    below: Callable[[Sequence[_Item]], Iterable[_Item]],
    read: Callable[[_Item], tuple[str, int, int, int, int]],
) -> tuple[Calls, ...]:
    """Return the tree of some items, of which those of one name below one caller are one function.

    `below` returns what is below items that are one, `read` an item's name, and its numbers as those of `Calls`.
    """
    root: tuple[str, list[_Item], list[int]] = ("", [], [])
    groups = [root]  # callers before what they call; deep recursions are deep trees, so nothing here is recursive
    at = 0
    while at < len(groups):
        found: dict[str, list[_Item]] = {}
        for item in below(groups[at][1]) if at else first:
            found.setdefault(read(item)[0], []).append(item)
        groups[at][2].extend(range(len(groups), len(groups) + len(found)))
        groups += [(name, items, []) for name, items in found.items()]
        at += 1
    made: dict[int, Calls] = {}
    for number in range(len(groups) - 1, 0, -1):
        name, items, inner = groups[number]
        times, total, own, unseen = (sum(column) for column in zip(*(read(item)[1:] for item in items)))
        called = tuple(made.pop(one) for one in inner if one in made)
        if times or called:  # else it was only looked whether it takes long enough
            made[number] = Calls(name, times, total, own, called, unseen)
    return tuple(made[one] for one in root[2] if one in made)


def tree_header() -> bytes:
    """Return what an empty tree's file begins with."""
    return _NODE.pack(*[0] * 8, _NODES, _FUNCTIONS)


def read_tree(data: bytes | mmap.mmap, names: Mapping[int, str], clock: Callable[[], tuple[int, int]]) -> CallTree:
    """Return the tree in the file's bytes; `names` are the functions' by their number in the file of counts. `clock`
    returns how many nanoseconds some ticks of the processor's clock are, and these.

    Functions of one name are one: a library that was opened again has them anew. Whatever the bytes are, each node is
    taken once.
    """
    taken = bytearray(min(len(data) // _NODE.size, _NODES))
    longest: dict[str, int] = {}

    def children(nodes: Sequence[int]) -> Iterator[int]:
        for node in nodes:
            child = _NODE.unpack_from(data, node * _NODE.size)[1]
            while 0 < child < len(taken) and not taken[child]:
                taken[child] = 1
                yield child
                child = _NODE.unpack_from(data, child * _NODE.size)[2]

    def read(node: int) -> tuple[str, int, int, int, int]:
        point, _, _, ended, times, total, own, most, _, _ = _NODE.unpack_from(data, node * _NODE.size)
        name = names.get(point, "?")
        longest[name] = max(longest.get(name, 0), most)
        unseen = (times - ended) % (1 << 32)
        if unseen > times:  # it was written to meanwhile, or isn't ours
            unseen = 0
        return name, times, total * unit[0] // unit[1], own * unit[0] // unit[1], unseen

    _, _, _, in_ticks, _, lost, deep, most, _, _ = _NODE.unpack_from(data)
    unit = clock() if in_ticks else (1, 1)
    threads = list(children((0,)))
    roots = merged(sorted(children(threads)), lambda nodes: sorted(children(nodes)), read)
    return CallTree(roots, lost, deep, most, _spreads(data, names, longest), unit)


def _spreads(
    data: bytes | mmap.mmap, names: Mapping[int, str], longest: Mapping[str, int]
) -> Mapping[str, Distribution]:
    found: dict[str, Distribution] = {}
    for point, name in names.items():
        at = _NODES * _NODE.size + point * _HISTOGRAM.size
        if name in longest and at + _HISTOGRAM.size <= len(data):
            classes = {number: count for number, count in enumerate(_HISTOGRAM.unpack_from(data, at)) if count}
            seen = Cell(sum(classes.values()), 0, bounds(min(classes, default=0))[0], longest[name])
            found.setdefault(name, Distribution()).take(seen, classes)
    return found


def _walk(roots: Sequence[Calls]) -> Iterator[tuple[Calls, frozenset[str], _Way | None]]:
    waiting: list[tuple[Calls, frozenset[str], _Way | None]] = [(one, frozenset(), None) for one in reversed(roots)]
    while waiting:
        found = calls, above, way = waiting.pop()
        yield found
        if calls.name not in above:
            above |= {calls.name}
        waiting += [(one, above, _Way(calls.name, way)) for one in reversed(calls.below)]


class _Way(NamedTuple):
    """A caller, and how it was reached."""

    name: str
    above: _Way | None


def rows(tree: CallTree) -> list[Row]:
    """Return each function once."""
    found: dict[str, Row] = {}
    for calls, above, _ in _walk(tree.roots):
        row = found.get(calls.name, Row(calls.name))
        total = 0 if calls.name in above else calls.total
        found[calls.name] = Row(calls.name, row.times + calls.times, row.total + total, row.own + calls.own,
                                row.unseen + calls.unseen)  # fmt: skip
    return [_timed(row, tree.spreads.get(row.name), tree.unit) for row in found.values()]


def _timed(row: Row, spread: Distribution | None, unit: tuple[int, int]) -> Row:
    if spread is None or not spread.all.count:
        return row
    times = (spread.quantile(0.5), spread.quantile(0.99), spread.all.most)
    p50, p99, longest = (int(one) * unit[0] // unit[1] for one in times)
    return row._replace(p50=p50, p99=p99, longest=longest)


def around(tree: CallTree, names: frozenset[str]) -> tuple[tuple[Calls, ...], tuple[Calls, ...]]:
    """Return who called these functions, as trees that lead from each to its callers, and what they called.

    A call within another of them belongs to that. A caller's numbers are those of the function's calls by this way.
    """
    outermost = [(calls, way) for calls, above, way in _walk(tree.roots) if calls.name in names and not names & above]

    def up(items: Sequence[tuple[Calls, str, _Way | None]]) -> Iterator[tuple[Calls, str, _Way | None]]:
        return ((calls, way.name, way.above) for calls, _, way in items if way is not None)

    callers = merged([(calls, calls.name, way) for calls, way in outermost], up,
                     lambda one: (one[1], *one[0].numbers))  # fmt: skip
    called = merged([calls for calls, _ in outermost], lambda items: [one for item in items for one in item.below],
                    lambda one: (one.name, *one.numbers))  # fmt: skip
    return callers, called
