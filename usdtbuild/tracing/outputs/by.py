"""Which values an argument has most often, for each target that has it."""

from __future__ import annotations

from typing import IO, TYPE_CHECKING

from ..model import MISSING, POINTER
from . import KEYS
from .histogram import find_argument, lost_too
from .values import table_headings, value_text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ..model import Event, Report, Target, Totals, Value
    from ..patch.tables import Keys

_MOST_VALUES = 1_000_000  # different values of one target; some 100 MB


class By:
    """Writes the values with the most hits at the end."""

    needs = KEYS

    def __init__(self, stream: IO[str], name: str, top: int = 20) -> None:
        self._stream, self._name, self._top = stream, name, top
        self._targets: Sequence[Target] = ()
        self._places: dict[int, int] = {}
        self._seen: dict[int, dict[str, int]] = {}
        self._rest: dict[int, int] = {}

    def start(self, targets: Sequence[Target]) -> None:
        """Find the argument. Raises UsageError."""
        self._targets = targets
        self._places = find_argument("--by", self._name, targets)

    def events(self, events: Sequence[Event]) -> None:
        """Count their values."""
        for event in events:
            place = self._places.get(event.target, -1)
            if place >= 0:
                self._add(event.target, place, event.values[place] if place < len(event.values) else MISSING, 1)

    def _add(self, number: int, place: int, value: Value, count: int) -> None:
        shown = value_text(self._targets[number].arguments[place], value)
        seen = self._seen.setdefault(number, {})
        if shown in seen or len(seen) < _MOST_VALUES:
            seen[shown] = seen.get(shown, 0) + count
        else:
            self._rest[number] = self._rest.get(number, 0) + count

    def keys(self, tables: Mapping[int, Keys], passed: Mapping[int, int]) -> None:
        """Take values that were counted where they came; what is in no table could not be read."""
        for number, (counts, others) in tables.items():
            place = self._places.get(number, -1)
            if place < 0:
                continue
            signed = self._targets[number].sites[0].operands[place].signed
            for key, count in counts.items():
                self._add(number, place, key - (1 << 64) if signed and key >> 63 else key, count)
            self._rest[number] = self._rest.get(number, 0) + others
            unread = passed.get(number, 0) - sum(counts.values()) - others
            if unread > 0:
                self._add(number, place, MISSING, unread)

    def counts(self, totals: Totals) -> None:
        """Nothing: hits have come as events."""

    def finish(self, report: Report) -> None:
        """Write the tables, the most hits first; values with as many hits by their text."""
        hit = [row for row in self._places.items() if row[0] in self._seen]
        for number, heading in table_headings(self._targets, hit).items():
            seen, rest = self._seen[number], self._rest.get(number, 0)
            total = sum(seen.values()) + rest
            rows = sorted(seen.items(), key=lambda row: (-row[1], row[0]))
            values = f"{len(seen)} values" if len(seen) != 1 else "1 value"
            self._stream.write(f"{heading}: {values} in {total} hits{lost_too(report, number)}\n")
            width = len(str(rows[0][1]))
            for shown, count in rows[: self._top]:
                self._stream.write(f"  {count:>{width}}  {count / total:>6.1%}  {shown}\n")
            left = sum(count for _, count in rows[self._top :])
            if left:
                self._stream.write(f"  {left:>{width}}  {left / total:>6.1%}  in {len(rows) - self._top} more values\n")
            if self._targets[number].arguments[self._places[number]].kind == POINTER:
                self._stream.write("  (these are addresses; what stands there isn't read)\n")
            if rest:
                self._stream.write(
                    f"  {rest:>{width}}  {rest / total:>6.1%}  in values that came when the table was full,"
                    " and were not told apart\n"
                )
        if not self._seen:
            self._stream.write(f"no values of {self._name} were seen\n")
        self._stream.flush()
