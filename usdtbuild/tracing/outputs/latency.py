"""How long it takes from one probe to another: quantiles, a distribution, and the slowest pairs with their arguments.

A pair are the hits of one thread, or, with a key, those of one process that have the same value of an argument. An
end belongs to the youngest begin that waits for it.
"""

from __future__ import annotations

import fnmatch
import heapq
from typing import IO, TYPE_CHECKING

from ...errors import UsageError
from ..filters import argument_index, said_arguments
from ..model import CALL, ENTER, MISSING
from ..selection import called
from ..stops import said_of
from . import EVENTS
from .bars import Distribution, duration, round_duration
from .values import argument_names, title, value_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..model import Event, Report, Target, Totals, Value

    Key = int | tuple[int, Value]

_QUANTILES = (0.5, 0.9, 0.99, 0.999)
_MOST_WAITING = 1_000_000
_SHIFT = 10  # durations are told apart to 1 part in 1024


class Latency:
    """Writes what it found at the end."""

    needs = EVENTS

    def __init__(self, stream: IO[str], begin: str, end: str, key: str = "", top: int = 10) -> None:
        self._stream, self._begin, self._end, self._key, self._top = stream, begin, end, key, top
        self._targets: Sequence[Target] = ()
        self._begins: dict[int, int] = {}  # number -> index of the key argument
        self._ends: dict[int, int] = {}
        self._waiting: dict[Key, list[Event]] = {}
        self._is_waiting = self._without_begin = self._without_key = self._dropped = self._order = 0
        self._classes: dict[int, int] = {}
        self._seen = Distribution(decimal=True)
        self._first: int | None = None
        self._slowest: list[tuple[int, int, Event, Event]] = []  # a heap: the least slow first, of those the last

    def start(self, targets: Sequence[Target]) -> None:
        """Find the two probes and the key. Raises UsageError; later targets without the key it leaves out."""
        known, self._targets = len(self._targets), targets
        self._begins = self._side(self._begin, known)
        self._ends = self._side(self._end, known)
        both = set(self._begins) & set(self._ends)
        if both and not known:
            raise UsageError(f"--latency: {title(targets[min(both)])} is meant by both names")

    def _side(self, pattern: str, known: int) -> dict[int, int]:
        found = [target for target in self._targets if _is_meant(target, pattern)]
        if self._targets and not found:
            names = ", ".join(sorted({title(target) for target in self._targets})[:10])
            raise UsageError(f"--latency: no probe {pattern} is traced; there are {names}")
        if not self._key:
            return {target.number: -1 for target in found}
        places = {target.number: argument_index(target, self._key) for target in found}
        for target in found:
            if places[target.number] < 0 and not known:
                raise UsageError(f"--key: {title(target)} has no argument {self._key}; {said_arguments(target)}")
        return {number: place for number, place in places.items() if place >= 0}

    def events(self, events: Sequence[Event]) -> None:
        """Pair them."""
        if events and self._first is None:
            self._first = events[0].time
        for event in events:
            if event.target in self._begins:
                self._open(event)
            elif event.target in self._ends:
                self._close(event)

    def _slot(self, event: Event, place: int) -> Key | None:
        if not self._key:
            return event.tid
        value = event.values[place] if place < len(event.values) else MISSING
        if value is MISSING:
            self._without_key += 1
            return None
        return event.pid, value

    def _open(self, event: Event) -> None:
        slot = self._slot(event, self._begins[event.target])
        if slot is None:
            return
        if self._is_waiting >= _MOST_WAITING:
            self._dropped += 1
            return
        self._is_waiting += 1
        self._waiting.setdefault(slot, []).append(event)

    def _close(self, event: Event) -> None:
        slot = self._slot(event, self._ends[event.target])
        if slot is None:
            return
        waiting = self._waiting.get(slot)
        if not waiting:
            self._without_begin += 1
            return
        begin = waiting.pop()
        self._is_waiting -= 1
        if not waiting:
            del self._waiting[slot]
        lasted = max(0, event.own - begin.own if event.tid == begin.tid else event.time - begin.time)
        self._seen.add(lasted)
        number = _class(lasted)
        self._classes[number] = self._classes.get(number, 0) + 1
        self._order += 1
        found = lasted, -self._order, begin, event
        if len(self._slowest) < self._top:
            heapq.heappush(self._slowest, found)
        elif self._top and found > self._slowest[0]:
            heapq.heapreplace(self._slowest, found)

    def counts(self, totals: Totals) -> None:
        """Nothing: hits have come as events."""

    def finish(self, report: Report) -> None:
        """Write it all."""
        write = self._stream.write
        by = f" by {self._key}" if self._key else ""
        pairs = f"{self._seen.all.count} pairs" if self._seen.all.count != 1 else "1 pair"
        write(f"{self._begin} to {self._end}{by}: {pairs}\n")
        if self._seen.all.count:
            mean = self._seen.all.total / self._seen.all.count
            quantiles = "  ".join(f"p{100 * part:g} {duration(self._quantile(part))}" for part in _QUANTILES)
            write(f"  min {duration(self._seen.all.least)}  mean {duration(mean)}  {quantiles}"
                  f"  max {duration(self._seen.all.most)}\n")  # fmt: skip
            if report.stops is not None:
                write(f"  {said_of(report.stops)}\n")
            write("\n")
            self._stream.writelines(f"{line}\n" for line in self._seen.lines(round_duration))
            self._write_slowest()
        self._write_unpaired()
        if any(report.lost[number] for number in (*self._begins, *self._ends)):
            write("hits were lost: where they were, a begin may be paired with the end of another\n")
        self._stream.flush()

    def _write_slowest(self) -> None:
        slowest = sorted(self._slowest, key=lambda row: (-row[0], -row[1]))
        if slowest:
            self._stream.write(f"\nthe slowest{f' {len(slowest)}' if len(slowest) > 1 else ''}:\n")
        for lasted, _, begin, end in slowest:
            after = (begin.time - (self._first or 0)) / 1e9
            self._stream.write(
                f"  {duration(lasted):>8}  at {after:.6f} s  thread {begin.tid} {self._shown(begin)} ->"
                f" {self._shown(end)}\n"
            )

    def _shown(self, event: Event) -> str:
        target = self._targets[event.target]
        pairs = zip(argument_names(target), target.arguments, event.values)
        return " ".join([title(target), *(f"{name}={value_text(argument, value)}" for name, argument, value in pairs)])

    def _write_unpaired(self) -> None:
        calls = all(self._targets[number].kind in (ENTER, CALL) for number in self._begins)
        open_ = "calls had not returned by the end of the trace: they go on, or an exception or longjmp has ended them"
        for count, what in (
            (self._is_waiting, open_ if calls else "begins had no end by the end of the trace"),
            (self._without_begin, "ends had no begin"),
            (self._without_key, f"hits had no value of {self._key}"),
            (self._dropped, f"begins were not paired, because {_MOST_WAITING:,} were waiting for their end"),
        ):
            if count:
                self._stream.write(f"not paired: {count} {what}\n")

    def _quantile(self, part: float) -> float:
        """Return the least duration that so many pairs don't exceed, to 1 part in 1024, and within the extremes."""
        wanted, seen = part * self._seen.all.count, 0
        for number in sorted(self._classes):
            seen += self._classes[number]
            if seen >= wanted:
                return min(max(_middle(number), self._seen.all.least), self._seen.all.most)
        return self._seen.all.most


def _class(value: int) -> int:
    """Return the class of a duration: itself below 2048, then 1024 classes for each power of two."""
    shift = max(0, value.bit_length() - _SHIFT - 1)
    return (shift << _SHIFT) + (value >> shift)


def _middle(number: int) -> float:
    shift = max(0, (number >> _SHIFT) - 1)
    low = (number - (shift << _SHIFT)) << shift
    return low + ((1 << shift) - 1) / 2


def _is_meant(target: Target, pattern: str) -> bool:
    whole = (target.title, target.name) if target.provider else called(target)
    names = {*whole, *(name.replace("__", "-") for name in whole)}
    return any(fnmatch.fnmatchcase(name, pattern) for name in names)
