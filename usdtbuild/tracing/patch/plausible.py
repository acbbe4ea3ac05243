"""Whether counters and tables can be what trampolines have counted: the program can write into them, too.

Trampolines only count up, each hit takes a nanosecond of a processor at least, and what is told of the same hits must
fit together. Smaller lies of a program about its own hits can't be found out.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

from ..measures import ALL, bounds, class_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ..measures import Cell, Measure, Table, Tables, Unpaired

_SLACK = 1 << 20
_WHAT = "there are more hits than there was time for, fewer than before, or values that no hits add up to"
DAMAGED = f"warning: the program has damaged its counters, or left hits by siglongjmp: {_WHAT}"
_SECOND = 1_000_000_000


class Plausible:
    """Judges what is read of one engine while hits come; `is_damaged` once something can't be."""

    def __init__(self) -> None:
        self._since, self._before = time.monotonic_ns(), list[int]()
        self.is_damaged = False

    def _most(self) -> int:
        return (time.monotonic_ns() - self._since) * (os.cpu_count() or 1) + _SLACK

    def counters(self, now: Sequence[int]) -> None:
        """Look at all counters, always in the same order."""
        self.is_damaged |= sum(now) > self._most() or any(map(int.__lt__, now, self._before))
        self._before = list(now)

    def tables(self, found: Iterable[Table]) -> None:
        """Look at all tables, each of which has a hit once at most."""
        most = self._most()
        for cells in ([*table.cells.values(), table.others] for table in found):
            self.is_damaged |= sum(cell.count for cell in cells) > most


def fits(tables: Tables, hits: Mapping[int, int], spare: int, lasted: int) -> bool:
    """Return whether all tables of a trace fit together, when no more hits come.

    `hits` are those that were counted beside the tables, by target. `lasted` is how long the trace has, in nanoseconds.
    A thread that is killed amid a hit has added its value, but not counted it. `spare` is the number of such threads.
    Sums that they have led below or above all values are corrected.
    """
    found = [_table_fits(key, tables, hits, spare, lasted) for key in tables]  # of all: sums are corrected
    return all(found)


def _table_fits(key: tuple[int, Measure], tables: Tables, hits: Mapping[int, int], spare: int, lasted: int) -> bool:
    (number, measure), table = key, tables[key]
    if number == ALL:
        return _unpaired_fit(table.unpaired, measure, tables, hits, spare)
    cells = [cell for cell in (*table.cells.values(), table.others) if cell.count]
    found = [sum(cell.count for cell in cells) <= hits.get(number, 0) + spare]
    if measure.of or measure.pair:
        found += [_sum_fits(cell, spare) for cell in cells]
        found += [_classes_fit(cell, spare) for cell in cells if measure.classes]
    if measure.pair and (ALL, measure) in tables:
        longest = tables[ALL, measure].rate * (lasted + _SECOND)
        found += [cell.least >= 0 and cell.most <= longest for cell in cells]
    return all(found)


def _sum_fits(cell: Cell, spare: int) -> bool:
    """Whether as many values between the least and the greatest can add up to the sum."""
    low, high, more = cell.least * cell.count, cell.most * cell.count, _reach(cell) * spare
    found = cell.least <= cell.most and low - more <= cell.total <= high + more
    if found:
        cell.total = min(max(cell.total, low), high)
    return found


def _reach(cell: Cell) -> float:
    return max(abs(cell.least), abs(cell.most))


def _classes_fit(cell: Cell, spare: int) -> bool:
    """Whether all values that were counted are in classes between those of the least and the greatest, and whether such
    values can add up to the sum."""
    least, most, low, high = class_of(cell.least), class_of(cell.most), 0, 0
    between = {number: count for number, count in cell.classes.items() if least <= number <= most}
    for number, count in between.items():
        ends = bounds(number) if number >= 0 else [-one for one in reversed(bounds(number))]
        low, high = low + ends[0] * count, high + ends[1] * count
    more = _reach(cell) * spare
    return (
        sum(between.values()) == cell.count and low - more <= cell.total <= high + more
        and bool(spare or (cell.classes[least] and cell.classes[most]))
    )  # fmt: skip


def _unpaired_fit(unpaired: Unpaired, measure: Measure, tables: Tables, hits: Mapping[int, int], spare: int) -> bool:
    """Whether there were as many begins and ends as were paired, and not paired."""
    of_ends = {number: table for (number, one), table in tables.items() if one == measure and number != ALL}
    pairs = sum(cell.count for table in of_ends.values() for cell in (*table.cells.values(), table.others))
    ends = sum(hits.get(number, 0) for number in of_ends)
    begins = sum(hits.values()) - ends
    unkeyed = unpaired.without_key if measure.key else 0  # begins and ends
    alone = unpaired.without_begin + unpaired.rejected
    taken = max(0, ends - alone - unkeyed)  # of the begins that had room
    return (
        pairs + alone + unpaired.deep + unpaired.without_key - unkeyed <= ends + spare
        and taken + unpaired.many + unpaired.open + unpaired.left <= begins + spare
    )
