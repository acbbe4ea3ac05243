"""How an argument's values are distributed, for each target that has it: by powers of two, or by steps of one width."""

from __future__ import annotations

from typing import IO, TYPE_CHECKING

from ...errors import UsageError
from ..filters import argument_index, said_arguments
from ..model import FLOAT, MISSING, STRING, Unreadable
from . import EVENTS
from .bars import Distribution
from .values import table_headings, title

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..model import Event, Report, Target, Totals


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


class Histogram:
    """Writes the distributions at the end; ARG, or ARG,STEP for steps of one width."""

    needs = EVENTS

    def __init__(self, stream: IO[str], wanted: str) -> None:
        self._stream = stream
        self._name, comma, step = wanted.partition(",")
        try:
            self._step = (float(step) if set(step) & set(".eE") else int(step)) if comma else 0
        except ValueError:
            self._step = -1
        if self._step < 0 or (comma and not 0 < self._step < float("inf")):
            raise UsageError(f"--histogram: {step!r} is no width of a step; one is a number above 0, as in size,100")
        self._targets: Sequence[Target] = ()
        self._places: dict[int, int] = {}
        self._seen: dict[int, Distribution] = {}

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
                if event.target not in self._seen:
                    self._seen[event.target] = Distribution(self._step)
                self._seen[event.target].add(value)

    def counts(self, totals: Totals) -> None:
        """Nothing: hits have come as events."""

    def finish(self, report: Report) -> None:
        """Write the distributions."""
        hit = [row for row in self._places.items() if row[0] in self._seen and self._seen[row[0]].count]
        for number, heading in table_headings(self._targets, hit).items():
            seen = self._seen[number]
            floating = self._targets[number].arguments[self._places[number]].kind == FLOAT
            least, most = (f"{value:g}" if floating else str(value) for value in (seen.least, seen.most))
            self._stream.write(
                f"{heading}: {seen.count} values from {least} to {most}, mean {seen.total / seen.count:.6g}"
                f"{lost_too(report, number)}\n"
            )
            self._stream.writelines(f"{line}\n" for line in seen.lines(_bound))
        if not hit:
            self._stream.write(f"no values of {self._name} were seen\n")
        self._stream.flush()


def _bound(value: float) -> str:
    return str(value) if isinstance(value, int) else f"{value:.15g}"
