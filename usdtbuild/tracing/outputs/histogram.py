"""How an argument's values are distributed, for each target that has it: by powers of two, or by steps of one width."""

from __future__ import annotations

from typing import IO, TYPE_CHECKING

from ...errors import UsageError
from ..filters import argument_index, said_arguments
from ..measures import Measure
from ..model import FLOAT, MISSING, STRING, Unreadable
from . import KEYS
from .bars import Distribution
from .rows import Row
from .values import table_headings, title

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ..measures import Tables
    from ..model import Event, Report, Target, Totals


_QUANTILES = (0.5, 0.9, 0.99)


def find_argument(option: str, name: str, targets: Sequence[Target]) -> dict[int, int]:
    """Return, for each target that has the argument, its index. Raises UsageError if of some targets none has it."""
    found = {target.number: argument_index(target, name) for target in targets}
    found = {number: index for number, index in found.items() if index >= 0}
    if targets and not found:
        has = max(targets, key=lambda target: len(target.arguments))
        others = f", and of {len(targets) - 1} others none has it either" if len(targets) > 1 else ""
        raise UsageError(f"{option}: {title(has)} has no argument {name}; {said_arguments(has)}{others}")
    return found


def lost_too(report: Report, number: int) -> str:
    """Return what a heading says of hits of a target that were lost."""
    return f"; {report.lost[number]} more were lost" if report.lost[number] else ""


def histogram_of(wanted: str) -> Measure:
    """Return what `ARG` or `ARG,STEP` asks for. Raises UsageError."""
    name, comma, step = wanted.partition(",")
    if not comma:
        return Measure(of=name, classes=True)
    try:
        width = float(step) if set(step) & set(".eE") else int(step)
    except ValueError:
        width = -1
    if not 0 < width < float("inf"):
        raise UsageError(f"--histogram: {step!r} is no width of a step; one is a number above 0, as in size,100")
    return Measure(name, name, width)


class Histogram:
    """Writes the distributions at the end; ARG, or ARG,STEP for steps of one width."""

    needs = KEYS

    def __init__(self, stream: IO[str], wanted: str) -> None:
        self._stream, self._measure = stream, histogram_of(wanted)
        self._name = self._measure.of
        self._targets: Sequence[Target] = ()
        self._places: dict[int, int] = {}
        self._seen: dict[int, Distribution] = {}

    def renew(self) -> None:
        """Forget all values."""
        self._seen = {}

    def start(self, targets: Sequence[Target]) -> None:
        """Find the argument. Raises UsageError, but not for targets that come later: those it leaves out."""
        known, self._targets = len(self._targets), targets
        self._places = find_argument("--histogram", self._name, targets)
        for number, index in list(self._places.items()):
            if targets[number].arguments[index].kind != STRING:
                continue
            if not known:
                who = f"{self._name} of {title(targets[number])}"
                raise UsageError(f"--histogram: {who} is a string; --by counts how often each comes")
            del self._places[number]

    def events(self, events: Sequence[Event]) -> None:
        """Sort their values in."""
        for event in events:
            place = self._places.get(event.target, -1)
            value = event.values[place] if 0 <= place < len(event.values) else MISSING
            if isinstance(value, (int, float)) and value is not MISSING and not isinstance(value, Unreadable):
                self._distribution(event.target).add(value)

    def _distribution(self, number: int) -> Distribution:
        if number not in self._seen:
            self._seen[number] = Distribution(self._measure.step)
        return self._seen[number]

    def tables(self, tables: Tables, _: Mapping[int, int]) -> None:
        """Take what was sorted in where hits came."""
        for number in self._places:
            table = tables.get((number, self._measure))
            for key, cell in table.cells.items() if table is not None else ():
                self._distribution(number).take(cell, cell.classes if self._measure.classes else {key: cell.count})
            if table is not None and table.others.count:
                self._distribution(number).take(table.others, {})

    def counts(self, totals: Totals) -> None:
        """Nothing: hits have come as events, or in tables."""

    def finish(self, report: Report) -> None:
        """Write the distributions."""
        headings = self._headings()
        for number, heading in headings.items():
            seen = self._seen[number]
            floating = self._targets[number].arguments[self._places[number]].kind == FLOAT
            least, most = (f"{value:g}" if floating else str(value) for value in (seen.all.least, seen.all.most))
            self._stream.write(
                f"{heading}: {seen.all.count} values from {least} to {most}, mean {seen.all.total / seen.all.count:.6g}"
                f"{lost_too(report, number)}\n"
            )
            if not floating:
                parts = "  ".join(f"p{100 * part:g} {seen.quantile(part)}" for part in _QUANTILES)
                self._stream.write(f"  {parts}  max {most}\n")
            self._stream.writelines(f"{line}\n" for line in seen.lines(_bound))
            if seen.unsorted:
                self._stream.write(f"  {seen.unsorted} values more came when the table was full, and are in no class\n")
        if not headings:
            self._stream.write(f"no values of {self._name} were seen\n")
        self._stream.flush()

    def _headings(self) -> dict[int, str]:
        """Return what the distributions are called, of targets that were hit."""
        hit = [row for row in self._places.items() if row[0] in self._seen and self._seen[row[0]].all.count]
        return table_headings(self._targets, hit)

    def rows(self, _: Report) -> list[Row]:
        """Return a row for each distribution."""
        found = []
        for number, heading in self._headings().items():
            seen = self._seen[number]
            quantiles = {f"p{100 * part:g}": seen.quantile(part) for part in _QUANTILES}
            found.append(Row(heading, "", seen.all.count, "", self._name, seen.all.total, quantiles, seen.all.most))
        return found


def _bound(value: float) -> str:
    return str(value) if isinstance(value, int) else f"{value:.15g}"
