"""What hits add up to, for each target that has the arguments: which keys come most often, and sums of an argument."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import IO

from ...errors import UsageError
from ...text import plural
from ..measures import Cell, Measure, Tables
from ..model import STRING, Event, Report, Target
from . import KEYS, Table
from .keys import Keys, find_argument, lost_too, number_of
from .rows import Row, aligned, number_text
from .values import Show, argument_names, title, value_text

_ROWS = 20
_MOST_VALUES = 1_000_000  # different values of one target; some 100 MB


class By(Table):
    """Writes the keys with the most hits at the end, or, with `of`, those with the greatest sums of this argument."""

    needs = KEYS

    def __init__(self, stream: IO[str], name: str, top: int = 0, of: str = "", show: Show = value_text) -> None:
        """`name` are the keys (`Keys`); '': all hits of a target together. `top`: so many rows, 0 for the usual number,
        and for all in `rows`."""
        self._stream, self._name, self._top, self._of = stream, name, top, of
        self._keys = Keys(name, show)
        self._values: dict[int, int] = {}
        self._seen: dict[int, dict[str, Cell]] = {}  # by table
        self._rest: dict[int, Cell] = {}
        self._odd: Counter[int] = Counter()  # values that belong to no sum, by table
        self._is_part = False

    def renew(self) -> None:
        """Forget all hits."""
        self._seen, self._rest, self._odd, self._is_part = {}, {}, Counter(), True

    def find(self, targets: Sequence[Target], *, strict: bool) -> None:
        """Find the arguments."""
        self._keys.find(targets, targets, strict=strict)
        if not self._of:
            return
        unfit = UsageError(f"no probe has both {self._name} (--by) and {self._of} (--sum)")
        self._values = find_argument("--sum", self._of, targets)
        for number, place in list(self._values.items()):
            if targets[number].arguments[place].kind == STRING:
                name, of = argument_names(targets[number])[place], title(targets[number])
                unfit = UsageError(f"--sum: {name} of {of} is a string; leave the probe out with -x {of}")
                if strict:
                    raise unfit
                del self._values[number]
        places = self._keys.places
        self._keys.places = {number: place for number, place in places.items() if number in self._values}
        if targets and not self._keys.places:
            raise unfit

    def events(self, events: Sequence[Event]) -> None:
        """Add them up."""
        for event in events:
            if event.target not in self._keys.places:
                continue
            value = number_of(event, self._values[event.target]) if self._of else 0
            if value is not None and not math.isfinite(value):
                self._odd[self._keys.group(event.target)] += 1
            elif value is not None:
                self._cell(event.target, self._keys.of_event(event)).add(value)

    def _cell(self, number: int, shown: str) -> Cell:
        group = self._keys.group(number)
        seen = self._seen.setdefault(group, {})
        if shown not in seen and len(seen) >= _MOST_VALUES:
            return self._rest.setdefault(group, Cell())
        return seen.setdefault(shown, Cell())

    def tables(self, tables: Tables, passed: Mapping[int, int]) -> None:
        """Take what was added up where hits came; a key that is in no table could not be read."""
        for number in self._keys.places:
            table = tables.get((number, Measure(self._name, self._of)))
            if table is None:
                continue
            for key, cell in table.cells.items():
                self._cell(number, self._keys.of_table(number, key)).plus(cell)
            self._rest.setdefault(self._keys.group(number), Cell()).plus(table.others)
            unread = passed.get(number, 0) - sum(cell.count for cell in [*table.cells.values(), table.others])
            if unread > 0 and not self._of:
                self._cell(number, self._keys.unreadable(number)).plus(Cell(unread))

    def finish(self, report: Report) -> None:
        """Write the tables, the most hits or the greatest sum first; keys of which these are the same by their text."""
        headings = self._headings()
        for number, heading in headings.items():
            if not self._seen.get(number):
                self._stream.write(f"{heading}: no finite values{lost_too(report, [], self._odd[number])}\n")
                continue
            (self._write_by if self._name else self._write_sum)(number, heading, report)
        if not headings:
            self._stream.write(f"no values of {self._of or self._keys.shown} were seen\n")
        self._stream.flush()

    def _headings(self) -> dict[int, str]:
        groups = dict.fromkeys(self._keys.group(one) for one in self._keys.places)
        return self._keys.headings([one for one in groups if self._seen.get(one) or self._odd[one]], self._values)

    def odd(self) -> dict[str, int]:
        """Return how many values were infinite or NaN, by table."""
        return {heading: self._odd[number] for number, heading in self._headings().items() if self._odd[number]}

    def _sorted(self, number: int) -> list[tuple[str, Cell]]:
        seen = self._keys.written_all(self._seen.get(number, {}))
        return sorted(seen.items(), key=lambda row: (-(row[1].total if self._of else row[1].count), row[0]))

    def rows(self, _: Report) -> list[Row]:
        """Return a row for each key."""
        found = []
        for number, heading in self._headings().items():
            rest = self._rest.get(number, Cell())
            shown: list[tuple[str | None, Cell]] = [*self._sorted(number)[: self._top or None]]
            for key, cell in [*shown, (None, rest)] if rest.count else shown:
                row = Row(heading, key, cell.count, self._keys.shown, self._of)
                least, most = (None, None) if self._is_part else (cell.least, cell.most)
                found.append(row._replace(total=cell.total, least=least, most=most) if self._of else row)
        return found

    def _write_sum(self, number: int, heading: str, report: Report) -> None:
        (cell,) = self._seen[number].values()
        lost = lost_too(report, [number], self._odd[number])
        sum_ = f"sum {number_text(cell.total)}, mean {cell.total / cell.count:.6g}"
        start = f"{heading}: {plural(cell.count, 'hit')}, {sum_}"
        if self._is_part:  # of which the extremes aren't known
            self._stream.write(f"{start}{lost}\n")
            return
        least, most = (value_text(self._targets[number].arguments[self._values[number]], one)
                       for one in (cell.least, cell.most))  # fmt: skip
        self._stream.write(f"{start}, min {least}, max {most}{lost}\n")

    def _write_by(self, group: int, heading: str, report: Report) -> None:
        seen, rest = self._seen[group], self._rest.get(group, Cell())
        total = sum(cell.count for cell in seen.values()) + rest.count
        rows, lost = self._sorted(group), lost_too(report, self._keys.members(group), self._odd[group])
        values = plural(len(seen), "value")
        by = f" by {self._keys.shown}" if self._of else ""
        self._stream.write(f"{heading}{by}: {'at least ' * bool(rest.count)}{values} in {plural(total, 'hit')}{lost}\n")
        most = self._top or _ROWS
        lines = [(cell, shown) for shown, cell in rows[:most]]
        left = Cell()
        for _, cell in rows[most:]:
            left.plus(cell)
        if left.count:
            lines.append((left, f"in {plural(len(rows) - most, 'more value')}"))
        after = len(lines)
        if rest.count:
            lines.append((rest, "in values that came when the table was full, and were not told apart"))
        shown_lines = list(self._lines([cell for cell, _ in lines], [text for _, text in lines], total))
        self._stream.writelines(shown_lines[: after + bool(self._of)])
        if self._keys.are_addresses(group):
            self._stream.write("  (these are addresses; what stands there isn't read)\n")
        self._stream.writelines(shown_lines[after + bool(self._of) :])

    def _lines(self, cells: Sequence[Cell], texts: Sequence[str], total: int) -> list[str]:
        if not self._of:
            width = max(len(str(cell.count)) for cell in cells)
            return [
                f"  {cell.count:>{width}}  {cell.count / total:>6.1%}  {text}\n" for cell, text in zip(cells, texts)
            ]
        columns: list[tuple[str, ...]] = [("hits", "sum", "mean", "min", "max")]
        columns += [
            (
                str(cell.count),
                number_text(cell.total),
                number_text(cell.total / cell.count),
                number_text(cell.least),
                number_text(cell.most),
            )
            for cell in cells
        ]
        columns = [row[:3] for row in columns] if self._is_part else columns
        return aligned(columns, [self._keys.shown, *texts])
