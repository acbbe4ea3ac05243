"""What is added up of hits instead of keeping them: counts by value, sums, extremes, distributions.

The same whether hits are added up where they happen (`patch.tables`) or, as events, by the tracer.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from operator import add
from typing import NamedTuple

from .model import Value

Key = Value | tuple[Value, ...]  # a key, or several

ALL = -1  # stands for a target's number where a table is of none alone
# Keys that every hit has, where no argument is called so.
THREAD, PROCESS, PROBE, CALLS = "thread", "process", "probe", "stack"
_CLASS_BITS = 3  # 2^3 classes for each power of two: whatever stands for one is at most 6 % wrong


class Measure(NamedTuple):
    """What is added up: hits by the key `by` ('': all together; several keys are joined by commas), and of them the
    argument `of` ('': only counts).

    `step`: keys are told apart by their quotient only. `classes`: values are counted by class, too. `pair`: what is
    added up is how long it takes from a hit of the first of these probes to the next of the second, in a thread, or
    with the same value of `key` (several are joined by commas), in a process.
    """

    by: str = ""
    of: str = ""
    step: float = 0
    classes: bool = False
    pair: tuple[str, str] | None = None
    key: str = ""


class Unpaired(NamedTuple):
    """How many hits belong to no pair, by reason; `deep` and `many`: there was no room for the begin, any more or at
    all; `rejected`: ends without one, of which nothing is told since they don't pass the filter; `left`: begins whose
    thread has gone on without an end."""

    without_begin: int = 0
    deep: int = 0
    many: int = 0
    without_key: int = 0
    open: int = 0
    rejected: int = 0
    left: int = 0

    def plus(self, other: Unpaired) -> Unpaired:
        """Return the sums."""
        return Unpaired(*map(add, self, other))

    def since(self, before: Unpaired) -> Unpaired:
        """Return what has come since then; begins that are open now may have an end yet."""
        return Unpaired(*(max(0, one - other) for one, other in zip(self, before)))._replace(open=0)


class Cell:
    """What has been added up. `total` is exact; `least` and `most` mean nothing while `count` is 0."""

    __slots__ = ("classes", "count", "least", "most", "total")

    def __init__(self, count: int = 0, total: float = 0, least: float = 0, most: float = 0) -> None:
        self.count, self.total, self.least, self.most = count, total, least, most
        self.classes: Counter[int] = Counter()

    def add(self, value: float) -> None:
        """Add a value of a hit."""
        if not self.count:
            self.least = self.most = value
        elif value < self.least:
            self.least = value
        elif value > self.most:
            self.most = value
        self.count += 1
        self.total += value

    def plus(self, other: Cell) -> None:
        """Add what has been added up elsewhere."""
        if other.count:
            self.least = min(self.least, other.least) if self.count else other.least
            self.most = max(self.most, other.most) if self.count else other.most
        self.count += other.count
        self.total += other.total
        self.classes.update(other.classes)

    def since(self, before: Cell) -> Cell:
        """Return what has been added since then. The extremes are as narrow as the classes tell, or those of all.

        Both may come from memory that a program can write to, so nothing is taken for granted: counts aren't negative.
        """
        total = self.total if math.isinf(self.total) else self.total - before.total  # what overflows stays so
        found = Cell(max(0, self.count - before.count), total, self.least, self.most)
        found.classes = self.classes - before.classes
        if found.classes:
            low, high = (sorted((one if number >= 0 else -one) for one in bounds(number))
                         for number in (min(found.classes), max(found.classes)))  # fmt: skip
            found.least, found.most = max(self.least, low[0]), min(self.most, high[1])
        return found

    def __repr__(self) -> str:
        return f"Cell({self.count}, {self.total}, {self.least}, {self.most}, {sorted(self.classes.items())})"

    def __eq__(self, other: object) -> bool:
        return repr(self) == repr(other)

    __hash__ = None  # type: ignore[assignment]


class Table(NamedTuple):
    """Cells by key (0 where there is none), which leaves the probe out; `others` are all hits whose key came when the
    table was full.

    Of pairs the one for ALL has how many are `unpaired`, and the `rate` of the clock of all others: ticks a nanosecond.
    """

    cells: dict[Key, Cell]
    others: Cell
    unpaired: Unpaired = Unpaired()
    rate: float = 0.0

    def plus(self, other: Table) -> Table:
        """Add another table; return this one."""
        for key, cell in other.cells.items():
            self.cells.setdefault(key, Cell()).plus(cell)
        self.others.plus(other.others)
        return self._replace(unpaired=self.unpaired.plus(other.unpaired), rate=self.rate or other.rate)

    def since(self, before: Table) -> Table:
        """Return what has been added since then; a key without a hit is left out."""
        cells = {key: cell.since(before.cells.get(key, _NOTHING)) for key, cell in self.cells.items()}
        return Table({key: cell for key, cell in cells.items() if cell.count}, self.others.since(before.others),
                     self.unpaired.since(before.unpaired), self.rate)  # fmt: skip


_NOTHING = Cell()
# By target's number and measure.
Tables = dict[tuple[int, Measure], Table]


def added(into: Tables, more: Tables) -> None:
    """Add tables to others."""
    for key, table in more.items():
        into[key] = into.get(key, Table({}, Cell())).plus(table)


def since(now: Tables, before: Tables) -> Tables:
    """Return what has been added to tables since an earlier look at them."""
    return {key: table.since(before.get(key, Table({}, Cell()))) for key, table in now.items()}


def parts(tables: Tables, most: int) -> Iterator[Tables]:
    """Yield tables in parts of about so many numbers; all together are `added` up to the same."""
    for key, table in tables.items():
        part, size = Table({}, table.others, table.unpaired, table.rate), 0
        for number, cell in table.cells.items():
            part.cells[number] = cell
            size += 1 + len(cell.classes)
            if size >= most:
                yield {key: part}
                part, size = Table({}, Cell()), 0
        yield {key: part}


def class_of(value: float, bits: int = _CLASS_BITS) -> int:
    """Return the class of a number: itself below 2^(bits+1), then 2^bits classes for each power of two; negative ones
    likewise, with a sign. What is behind the point doesn't count."""
    whole = int(abs(value))
    shift = max(0, whole.bit_length() - bits - 1)
    number = (shift << bits) + (whole >> shift)
    return number if value >= 0 else -number


def bounds(number: int, bits: int = _CLASS_BITS) -> tuple[int, int]:
    """Return the least and the greatest integer of a class, by their absolute values."""
    number = abs(number)
    shift = max(0, (number >> bits) - 1)
    low = (number - (shift << bits)) << shift
    return low, low + (1 << shift) - 1
