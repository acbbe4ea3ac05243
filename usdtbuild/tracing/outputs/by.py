"""What hits add up to, for each target that has the arguments: which keys come most often, and sums of an argument."""

from __future__ import annotations

from typing import IO, TYPE_CHECKING

from ...errors import UsageError
from ..measures import PROCESS, THREAD, Cell, Measure
from ..model import FLOAT, INTEGER, MISSING, POINTER, STRING, Argument, Unreadable
from . import KEYS
from .histogram import find_argument, lost_too
from .rows import Row
from .values import argument_names, table_headings, title, value_text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ..measures import Tables
    from ..model import Event, Report, Target, Totals, Value

_ROWS = 20
_MOST_VALUES = 1_000_000  # different values of one target; some 100 MB
_OWN = {THREAD: -1, PROCESS: -2}  # what stands for the place of a key that every hit has
_NUMBER = Argument("", "", 4, False, INTEGER)


class By:
    """Writes the keys with the most hits at the end, or, with `of`, those with the greatest sums of this argument."""

    needs = KEYS

    def __init__(self, stream: IO[str], name: str, top: int = 0, of: str = "") -> None:
        """`name` is the key's argument, THREAD or PROCESS; '': all hits of a target together. `top`: so many rows, 0
        for the usual number, and for all in `rows`."""
        self._stream, self._name, self._top, self._of = stream, name, top, of
        self._targets: Sequence[Target] = ()
        self._places: dict[int, int] = {}
        self._values: dict[int, int] = {}
        self._seen: dict[int, dict[str, Cell]] = {}
        self._rest: dict[int, Cell] = {}
        self._is_part = False

    def renew(self) -> None:
        """Forget all hits."""
        self._seen, self._rest, self._is_part = {}, {}, True

    def start(self, targets: Sequence[Target]) -> None:
        """Find the arguments. Raises UsageError, but not for targets that come later: those it leaves out."""
        known, self._targets = len(self._targets), targets
        self._places = dict.fromkeys(range(len(targets)), 0) if not self._name else keys(self._name, targets)
        self._values = find_argument("--sum", self._of, targets) if self._of else {}
        for option, places, wrong, why in (
            ("--by", self._places if self._name else {}, FLOAT, "a floating-point number, of which no two are alike"),
            ("--sum", self._values, STRING, "a string"),
        ):
            for number, place in list(places.items()):
                if place < 0 or targets[number].arguments[place].kind != wrong:
                    continue
                if not known:
                    name = argument_names(targets[number])[place]
                    raise UsageError(f"{option}: {name} of {title(targets[number])} is {why}")
                del places[number]
        if self._of:
            self._places = {number: place for number, place in self._places.items() if number in self._values}
            if targets and not self._places:
                raise UsageError(f"no probe has both {self._name} (--by) and {self._of} (--sum)")

    def events(self, events: Sequence[Event]) -> None:
        """Add them up."""
        for event in events:
            place = self._places.get(event.target)
            if place is None:
                continue
            key = value_of(event, place) if self._name else 0
            value = value_of(event, self._values[event.target]) if self._of else 0
            if value is not MISSING and isinstance(value, (int, float)) and not isinstance(value, Unreadable):
                self._cell(event.target, key).add(value)

    def _cell(self, number: int, value: Value) -> Cell:
        """Return where a key's hits are added up."""
        shown = value_text(self._argument(number), value) if self._name else ""
        seen = self._seen.setdefault(number, {})
        if shown not in seen and len(seen) >= _MOST_VALUES:
            return self._rest.setdefault(number, Cell())
        return seen.setdefault(shown, Cell())

    def _argument(self, number: int) -> Argument:
        return argument_of(self._targets[number], self._places[number])

    def tables(self, tables: Tables, passed: Mapping[int, int]) -> None:
        """Take what was added up where hits came; a key that is in no table could not be read."""
        for number in self._places:
            table = tables.get((number, Measure(self._name, self._of)))
            if table is None:
                continue
            for key, cell in table.cells.items():
                self._cell(number, key).plus(cell)
            self._rest.setdefault(number, Cell()).plus(table.others)
            unread = passed.get(number, 0) - sum(cell.count for cell in [*table.cells.values(), table.others])
            if unread > 0 and not self._of:
                self._cell(number, MISSING).plus(Cell(unread))

    def counts(self, totals: Totals) -> None:
        """Nothing: hits have come as events, or in tables."""

    def finish(self, report: Report) -> None:
        """Write the tables, the most hits or the greatest sum first; keys of which these are the same by their text."""
        headings = self._headings()
        for number, heading in headings.items():
            (self._write_by if self._name else self._write_sum)(number, heading, report)
        if not headings:
            self._stream.write(f"no values of {self._of or self._name} were seen\n")
        self._stream.flush()

    def _headings(self) -> dict[int, str]:
        """Return what the tables are called, of targets that were hit."""
        of = self._values if self._of else self._places
        return table_headings(
            self._targets, [(one, of[one]) for one in self._places if self._seen.get(one)], self._name
        )

    def _sorted(self, number: int) -> list[tuple[str, Cell]]:
        """Return a target's keys, those with the most hits or the greatest sum first."""
        return sorted(
            self._seen[number].items(), key=lambda row: (-(row[1].total if self._of else row[1].count), row[0])
        )

    def rows(self, _: Report) -> list[Row]:
        """Return a row for each key."""
        found = []
        for number, heading in self._headings().items():
            rest = self._rest.get(number, Cell())
            shown: list[tuple[str | None, Cell]] = [*self._sorted(number)[: self._top or None]]
            for key, cell in [*shown, (None, rest)] if rest.count else shown:
                row = Row(heading, key, cell.count, self._name, self._of)
                most = None if self._is_part else cell.most
                found.append(row._replace(total=cell.total, most=most) if self._of else row)
        return found

    def _write_sum(self, number: int, heading: str, report: Report) -> None:
        (cell,) = self._seen[number].values()
        start = f"{heading}: {cell.count} hits, sum {_shown(cell.total)}, mean {cell.total / cell.count:.6g}"
        if self._is_part:  # of which the extremes aren't known
            self._stream.write(f"{start}{lost_too(report, number)}\n")
            return
        least, most = (value_text(self._targets[number].arguments[self._values[number]], one)
                       for one in (cell.least, cell.most))  # fmt: skip
        self._stream.write(f"{start}, min {least}, max {most}{lost_too(report, number)}\n")

    def _write_by(self, number: int, heading: str, report: Report) -> None:
        seen, rest = self._seen[number], self._rest.get(number, Cell())
        total = sum(cell.count for cell in seen.values()) + rest.count
        rows = self._sorted(number)
        values = f"{len(seen)} values" if len(seen) != 1 else "1 value"
        by = f" by {self._name}" if self._of else ""
        self._stream.write(f"{heading}{by}: {values} in {total} hits{lost_too(report, number)}\n")
        most = self._top or _ROWS
        lines = [(cell, shown) for shown, cell in rows[:most]]
        left = Cell()
        for _, cell in rows[most:]:
            left.plus(cell)
        if left.count:
            lines.append((left, f"in {len(rows) - most} more values"))
        after = len(lines)
        if rest.count:
            lines.append((rest, "in values that came when the table was full, and were not told apart"))
        shown_lines = list(self._lines([cell for cell, _ in lines], [text for _, text in lines], total))
        self._stream.writelines(shown_lines[: after + bool(self._of)])
        if self._argument(number).kind == POINTER:
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
                _shown(cell.total),
                f"{cell.total / cell.count:.6g}",
                _shown(cell.least),
                _shown(cell.most),
            )
            for cell in cells
        ]
        columns = [row[:3] for row in columns] if self._is_part else columns
        return aligned(columns, [self._name, *texts])


def keys(name: str, targets: Sequence[Target]) -> dict[int, int]:
    """Return, for each target that has the key, its argument's index, or what stands for it. Raises UsageError."""
    if name not in _OWN:
        return find_argument("--by", name, targets)
    found = {target.number: _OWN[name] for target in targets}
    with_argument = [target for target in targets if name in argument_names(target)]
    return {**found, **(find_argument("--by", name, with_argument) if with_argument else {})}


def argument_of(target: Target, place: int) -> Argument:
    """Return the argument of a target that `keys` says."""
    return target.arguments[place] if place >= 0 else _NUMBER


def value_of(event: Event, place: int) -> Value:
    """Return a hit's value at a place that `keys` says."""
    if place < 0:
        return event.tid if place == _OWN[THREAD] else event.pid
    return event.values[place] if place < len(event.values) else MISSING


def aligned(columns: Sequence[Sequence[str]], texts: Sequence[str]) -> list[str]:
    """Return the lines of a table: numbers, and what each line is about behind them."""
    widths = [max(map(len, column)) for column in zip(*columns)]
    return [
        "  " + "  ".join(f"{one:>{width}}" for one, width in zip(row, widths)) + f"  {text}\n"
        for row, text in zip(columns, texts)
    ]


def _shown(number: float) -> str:
    return str(number) if isinstance(number, int) else f"{number:.6g}"
