"""How an argument's values are distributed, for each target that has it: by powers of two, or by steps of one width."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import IO

from ...errors import UsageError
from ...text import plural
from ..measures import Measure, Tables
from ..model import FLOAT, STRING, Event, Report, Target
from . import KEYS, Table
from .bars import Distribution
from .keys import Keys, find_argument, lost_too, number_of
from .rows import Row, aligned, number_text
from .values import Show, title, value_text

_ROWS = 20
_MOST_KEYS = 100_000  # different keys of one table; some 100 MB
_FULL = "in values that came when the table was full, and were not told apart"
_GREATEST = 10**20  # of bounds that have all their digits: those of integers do
_QUANTILES = (0.5, 0.9, 0.99)


def histogram_of(wanted: str, by: str = "") -> Measure:
    """Return what `ARG` or `ARG,STEP` asks for. Raises UsageError."""
    name, comma, step = wanted.partition(",")
    if comma and by:
        raise UsageError(f"--histogram: with --by there is a row for each key, which has no steps; leave out ,{step}")
    if not comma:
        return Measure(by, name, classes=True)
    try:
        width = float(step) if set(step) & set(".eE") else int(step)
    except ValueError:
        width = -1
    if not 0 < width < float("inf"):
        raise UsageError(f"--histogram: {step!r} is no width of a step; one is a number above 0, as in size,100")
    return Measure(name, name, width)


class Histogram(Table):
    """Writes the distributions at the end; ARG, or ARG,STEP for steps of one width; with keys, a row for each."""

    needs = KEYS

    def __init__(self, stream: IO[str], wanted: str, by: str = "", top: int = 0, show: Show = value_text) -> None:
        """`by` are keys (`Keys`), '' for none; `top`: so many rows, 0 for the usual number, and for all in `rows`."""
        self._stream, self._measure, self._top = stream, histogram_of(wanted, by), top
        self._name, self._keys = self._measure.of, Keys(by, show)
        self._places: dict[int, int] = {}
        self._seen: dict[int, dict[str, Distribution]] = {}  # by table
        self._rest: dict[int, Distribution] = {}
        self._odd: Counter[int] = Counter()  # values that belong to no class, by table

    def renew(self) -> None:
        """Forget all values."""
        self._seen, self._rest, self._odd = {}, {}, Counter()

    def find(self, targets: Sequence[Target], *, strict: bool) -> None:
        """Find the arguments."""
        self._places = find_argument("--histogram", self._name, targets)
        for number, index in list(self._places.items()):
            if targets[number].arguments[index].kind != STRING:
                continue
            if strict:
                of = title(targets[number])
                raise UsageError(f"--histogram: {self._name} of {of} is a string; --by counts how often each comes,"
                                 f" and -x {of} leaves the probe out")  # fmt: skip
            del self._places[number]
        self._keys.find(targets, [targets[number] for number in self._places], strict=strict)

    def events(self, events: Sequence[Event]) -> None:
        """Sort their values in."""
        for event in events:
            if event.target in self._keys.places:
                value = number_of(event, self._places[event.target])
                if value is not None and not math.isfinite(value):
                    self._odd[self._keys.group(event.target)] += 1
                elif value is not None:
                    self._distribution(event.target, self._keys.of_event(event)).add(value)

    def _distribution(self, number: int, key: str) -> Distribution:
        group = self._keys.group(number)
        seen = self._seen.setdefault(group, {})
        if key not in seen and len(seen) >= _MOST_KEYS:
            return self._rest.setdefault(group, self._new(group))
        if key not in seen:
            seen[key] = self._new(group)
        return seen[key]

    def _new(self, group: int) -> Distribution:
        return Distribution(self._measure.step, floating=any(map(self._is_floating, self._keys.members(group))))

    def tables(self, tables: Tables, _: Mapping[int, int]) -> None:
        """Take what was sorted in where hits came."""
        for number in self._keys.places:
            table = tables.get((number, self._measure))
            for key, cell in table.cells.items() if table is not None else ():
                if self._measure.classes:
                    self._distribution(number, self._keys.of_table(number, key)).take(cell, cell.classes)
                elif isinstance(key, int):
                    self._distribution(number, "").take(cell, {key: cell.count})
            if table is not None and table.others.count:
                if self._keys.names:
                    rest = self._rest.setdefault(self._keys.group(number), self._new(self._keys.group(number)))
                    rest.take(table.others, table.others.classes)
                else:
                    self._distribution(number, "").take(table.others, {})

    def finish(self, report: Report) -> None:
        """Write the distributions."""
        headings = self._headings()
        for group, heading in headings.items():
            lost = lost_too(report, self._keys.members(group), self._odd[group])
            if not self._seen.get(group):
                self._stream.write(f"{heading}: no finite values{lost}\n")
                continue
            self._stream.writelines(
                self._rows(group, heading, lost) if self._keys.names else self._drawn(group, heading, lost)
            )
        if not headings:
            self._stream.write(f"no values of {self._name} were seen\n")
        self._stream.flush()

    def _drawn(self, number: int, heading: str, lost: str) -> Iterator[str]:
        (seen,) = self._seen[number].values()
        floating = self._is_floating(number)
        least, most = (self._shown(value, floating=floating) for value in (seen.all.least, seen.all.most))
        mean = seen.all.total / seen.all.count
        yield f"{heading}: {plural(seen.all.count, 'value')} from {least} to {most}, mean {mean:.6g}{lost}\n"
        parts = (f"p{100 * part:g} {self._shown(seen.quantile(part), floating=floating)}" for part in _QUANTILES)
        yield f"  {'  '.join(parts)}  max {most}\n"
        yield from (f"{line}\n" for line in seen.lines(partial(_bound, digits=15 if self._measure.step else 6)))
        if seen.unsorted:
            yield f"  {seen.unsorted} values more came when the table was full, and are in no class\n"

    def _rows(self, group: int, heading: str, lost: str) -> Iterator[str]:
        sorted_, most = self._sorted(group), self._top or _ROWS
        values = plural(len(sorted_), "value")
        shown, left = sorted_[:most], self._new(group)
        for _, one in sorted_[most:]:
            left.plus(one)
        rest = self._rest.get(group, self._new(group))
        hits = plural(sum(one.all.count for _, one in sorted_) + rest.all.count, "hit")
        more = [(f"in {plural(len(sorted_) - most, 'more value')}", left), (_FULL, rest)]
        shown += [(text, one) for text, one in more if one.all.count]
        columns: list[tuple[str, ...]] = [("hits", "mean", "min", "p50", "p90", "p99", "max")]
        floating = any(map(self._is_floating, self._keys.members(group)))
        for _, one in shown:
            numbers = (one.all.least, *map(one.quantile, _QUANTILES), one.all.most)
            columns.append((str(one.all.count), number_text(one.all.total / one.all.count),
                            *(self._shown(number, floating=floating) for number in numbers)))  # fmt: skip
        least = "at least " * bool(rest.all.count)
        yield f"{heading} by {self._keys.shown}: {least}{values} in {hits}{lost}\n"
        yield from aligned(columns, [self._keys.shown, *(text for text, _ in shown)])

    def _is_floating(self, number: int) -> bool:
        return self._targets[number].arguments[self._places[number]].kind == FLOAT

    @staticmethod
    def _shown(value: float, *, floating: bool) -> str:
        return number_text(float(value) if floating else value)

    def _sorted(self, group: int) -> list[tuple[str, Distribution]]:
        seen = self._keys.written_all(self._seen.get(group, {}))
        return sorted(seen.items(), key=lambda row: (-row[1].all.count, row[0]))

    def _headings(self) -> dict[int, str]:
        groups = dict.fromkeys(self._keys.group(number) for number in self._keys.places)
        hit = [group for group in groups
               if self._odd[group] or any(one.all.count for one in self._seen.get(group, {}).values())]  # fmt: skip
        return self._keys.headings(hit, self._places)

    def odd(self) -> dict[str, int]:
        """Return how many values were infinite or NaN, by table."""
        return {heading: self._odd[group] for group, heading in self._headings().items() if self._odd[group]}

    def rows(self, _: Report) -> list[Row]:
        """Return a row for each distribution."""
        found = []
        for group, heading in self._headings().items():
            rest: list[tuple[str | None, Distribution]] = [(None, self._rest[group])] if group in self._rest else []
            for key, seen in [*self._sorted(group)[: self._top or None], *rest]:
                quantiles = {f"p{100 * part:g}": seen.quantile(part) for part in _QUANTILES}
                row = Row(heading, key, seen.all.count, self._keys.shown, self._name, seen.all.total, quantiles)
                found.append(row._replace(least=seen.all.least, most=seen.all.most, buckets=seen.buckets(),
                                          step=self._measure.step))  # fmt: skip
        return found


def _bound(value: float, digits: int = 15) -> str:
    """Return a number with so many digits that count; 2^1024, a bound of the greatest, is no floating-point number."""
    if isinstance(value, int) and abs(value) <= _GREATEST:
        return str(value)
    try:
        return f"{float(value):.{digits}g}"
    except OverflowError:
        from decimal import Decimal

        return f"{Decimal(value):.{digits}g}"
