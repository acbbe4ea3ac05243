"""How long it takes from one probe to another: quantiles, and a distribution, or a row for each value of an argument.

A pair are the hits of one thread, or, with a key, those of one process that have the same value of an argument. An
end belongs to the youngest begin that waits for it. Pairs are found where the hits come, if nothing else is asked for:
of the slowest ones the arguments are only known from records.

A filter is for pairs: it is answered by the begin, if that has the arguments, else by the end; if neither has all of
them, each answers those of its conditions that it can. Hits that don't pass are paired like all others. So is the value
that pairs are told apart by.
"""

from __future__ import annotations

import heapq
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import IO

from ...errors import UsageError
from ...text import plural
from ..absent import Absent, AbsentError
from ..filters import Filter, Test, argument_index, own_of, said_arguments
from ..measures import ALL, Cell, Key, Measure, Tables, bounds, class_of
from ..model import CALL, ENTER, FLOAT, MISSING, STRING, Cut, Event, Report, Target, Value
from ..selection import is_meant
from ..stops import said_of
from . import EVENTS, KEYS, Table
from .bars import Distribution, duration, round_duration
from .keys import Keys
from .rows import Row, aligned
from .values import Show, argument_names, title, value_text

Slot = int | tuple[Value, ...]

_QUANTILES = (0.5, 0.9, 0.99, 0.999)
_ROWS = 20
_MOST_WAITING = 1_000_000
_LEFT = (
    "had no end, and their thread has begun again since at the same depth of its stack, or less deep: an exception,"
    " longjmp or a return has ended them, or several are open at a time"
)
_BITS = 10  # durations are told apart to 1 part in 1024


class _Times:
    def __init__(self) -> None:
        self.seen, self._classes = Distribution(decimal=True), Counter[int]()

    def add(self, lasted: int) -> None:
        self.seen.add(lasted)
        self._classes[class_of(lasted, _BITS)] += 1

    def take(self, cell: Cell, rate: float) -> None:
        """Add those that have been added up elsewhere, by a clock that ticks so often in a nanosecond."""
        drawn: Counter[int] = Counter()
        for number, count in cell.classes.items():
            middle = int(min(max(sum(bounds(number)) / 2, cell.least), cell.most) / rate)
            drawn[self.seen.class_of(middle)] += count
            self._classes[class_of(middle, _BITS)] += count
        least, most = (one if math.isnan(one) else int(one / rate) for one in (cell.least, cell.most))
        self.seen.take(Cell(cell.count, cell.total / rate, least, most), drawn)

    def plus(self, other: _Times) -> None:
        self.seen.plus(other.seen)
        self._classes.update(other._classes)

    def quantile(self, part: float) -> float:
        """Return the least duration that so many don't exceed, to a class, and within the extremes."""
        wanted, seen = part * self._classes.total(), 0
        for number in sorted(self._classes):
            seen += self._classes[number]
            if seen >= wanted:
                return min(max(sum(bounds(number, _BITS)) / 2, self.seen.all.least), self.seen.all.most)
        return self.seen.all.most


def _absent(targets: Sequence[Target], names: Sequence[str]) -> AbsentError | None:
    """Return what to say of a name that none of some targets has."""
    for pattern in names if targets else ():
        if not any(is_meant(target, pattern) for target in targets):
            there = tuple(sorted({title(target) for target in targets}))
            return AbsentError(str(Absent("-latency", pattern, there)), pattern)
    return None


class Latency(Table):
    """Writes what it found at the end."""

    def __init__(
        self, stream: IO[str], begin: str, end: str, key: str = "", top: int = 0, *, by: str = "",
        where: Filter | None = None, alone: bool = False, show: Show = value_text,
    ) -> None:  # fmt: skip
        """`top`: so many of the slowest pairs are shown, or, with `by`, so many rows. `alone`: nothing else is shown,
        so hits need no records."""
        self._stream, self._begin, self._end, self._key, self._top = stream, begin, end, key, top
        self._by, self._where, self._keys = by, where, Keys(by, show)
        self.needs = KEYS if alone and (by or not top) else EVENTS
        self._begins: dict[int, tuple[int, ...]] = {}  # number -> indices of the key's arguments
        self._ends: dict[int, tuple[int, ...]] = {}
        self._tests: dict[int, Test] = {}
        self._partly: set[int] = set()  # which of them answer only a part of the filter
        self._waiting: dict[Slot, list[Event]] = {}
        self._is_waiting = self._order = 0
        self._first: int | None = None
        self._forget(is_part=False)

    def _forget(self, *, is_part: bool) -> None:
        self._is_part = is_part
        self._without_begin = self._without_key = self._dropped = self._deep = self._many = self._open_elsewhere = 0
        self._left = 0
        self._times: dict[str, _Times] = {}
        self._rest = _Times()
        self._slowest: list[tuple[int, int, Event, Event]] = []  # a heap: the least slow first, of those the last

    def renew(self) -> None:
        """Forget all pairs; begins wait on."""
        self._forget(is_part=True)

    def find(self, targets: Sequence[Target], *, strict: bool) -> None:
        """Find the two probes and the key."""
        absent = _absent(targets, (self._begin, self._end))
        if absent is not None and strict:
            raise absent
        self._begins, self._ends = (self._side(one, strict=strict) for one in (self._begin, self._end))
        both = set(self._begins) & set(self._ends)
        if both and strict:
            raise UsageError(f"--latency: {title(targets[min(both)])} is meant by both names")
        sides = [targets[number] for number in (*self._begins, *self._ends)]
        if self._key and strict:
            self._check_key(targets)
        if self._by and sides:
            self._keys.find(targets, sides, strict=strict)
        if self._where is not None and sides:
            self._find_tests(self._where, sides)
        if absent is not None:
            raise absent

    def _find_tests(self, where: Filter, sides: Sequence[Target]) -> None:
        """Find what a hit says of the filter. Raises FilterError if begins and ends together lack an argument;
        while there are only some of either, others may have it."""
        whole = {one.number: where.compile(one) for one in sides if where.is_for(one)}
        if whole and not self._partly:
            self._tests = whole
            return
        for one in where.conditions if self._begins and self._ends else ():
            if any(map(one.is_for, sides)):
                continue
            of_both = sorted(name for name in one.names() if any(argument_index(side, name) >= 0 for side in sides))
            if len(of_both) > 1 and set(of_both) == one.names():
                names = " and ".join(of_both)
                raise UsageError(f"{where.option}: {names} are not arguments of one hit, so they can't be compared, or"
                                 " joined by or; conditions of both hits are joined by and")  # fmt: skip
            one.compile(sides[0])
        parts = {one.number: part for one in sides if (part := where.part_for(one)) and one.number not in whole}
        self._partly = set(parts)
        self._tests = whole | {number: part.compile(self._targets[number]) for number, part in parts.items()}

    def _side(self, pattern: str, *, strict: bool) -> dict[int, tuple[int, ...]]:
        found = [target for target in self._targets if is_meant(target, pattern)]
        keys = self._key.split(",") if self._key else []
        places = {target.number: tuple(argument_index(target, name) for name in keys) for target in found}
        for target in found:
            if -1 in places[target.number] and strict:
                lacking = keys[places[target.number].index(-1)]
                raise UsageError(f"--key: {title(target)} has no argument {lacking}; {said_arguments(target)}")
        return {number: indices for number, indices in places.items() if -1 not in indices}

    def _check_key(self, targets: Sequence[Target]) -> None:
        places = {**self._begins, **self._ends}
        for index, name in enumerate(self._key.split(",")):
            kinds = {targets[number].arguments[place[index]].kind: title(targets[number])
                     for number, place in places.items()}  # fmt: skip
            if FLOAT in kinds:
                what = f"{name} of {kinds[FLOAT]}"
                raise UsageError(f"--key: {what} is a floating-point number, which makes no key")
            others = [who for kind, who in kinds.items() if kind != STRING]
            if STRING in kinds and others:
                raise UsageError(f"--key: {name} is a string of {kinds[STRING]}, and a number of {others[0]}")

    def events(self, events: Sequence[Event]) -> None:
        """Pair them."""
        if events and self._first is None:
            self._first = events[0].time
        for event in events:
            if event.target in self._begins:
                self._open(event)
            elif event.target in self._ends:
                self._close(event)

    def _slot(self, event: Event, places: tuple[int, ...]) -> Slot | None:
        if not self._key:
            return event.tid
        values = [event.values[place] if place < len(event.values) else MISSING for place in places]
        if any(value is MISSING for value in values):
            self._without_key += 1
            return None
        return event.pid, *values, *(type(value) is Cut for value in values)  # what isn't whole may go on otherwise

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
            self._without_begin += self._may_pass(event)
            return
        begin = waiting.pop()
        self._is_waiting -= 1
        if not waiting:
            del self._waiting[slot]
        lasted = max(0, event.own - begin.own if event.tid == begin.tid else event.time - begin.time)
        if self._where is None or self._passes(begin, event):
            self.found(lasted, begin, event)

    def _passes(self, begin: Event, event: Event) -> bool:
        """Whether a pair passes the filter: as the begin says, or what that can't say, the end."""
        if begin.target in self._tests and begin.target not in self._partly:
            return self._may_pass(begin)
        says_all = event.target not in self._partly or begin.target in self._partly
        return event.target in self._tests and says_all and self._may_pass(begin) and self._may_pass(event)

    def found(self, lasted: int, begin: Event, event: Event) -> None:
        """Add up a pair that passes."""
        if not self._by:
            self._of("").add(lasted)
        elif (shown := self._told_apart(begin, event)) is not None:
            self._of(shown).add(lasted)
        self._order += 1
        found = lasted, -self._order, begin, event
        if len(self._slowest) < self._top:
            heapq.heappush(self._slowest, found)
        elif self._top and found > self._slowest[0]:
            heapq.heapreplace(self._slowest, found)

    def _may_pass(self, event: Event) -> bool:
        """Whether a hit passes the filter, or can't be asked."""
        test = self._tests.get(event.target)
        return test is None or test(event.values, own_of(event))

    def _of(self, shown: str) -> _Times:
        return self._times.setdefault(shown, _Times())

    def _told_apart(self, begin: Event, end: Event) -> str | None:
        """Return the text of the value that a pair is told apart by; None if neither hit has one."""
        for event in (begin, end):
            if event.target in self._keys.places and not self._keys.is_missing(event):
                return self._keys.of_event(event)
        self._without_key += 1
        return None

    def tables(self, tables: Tables, _: Mapping[int, int]) -> None:
        """Take the pairs that were found where hits came."""
        measure = Measure(self._by, classes=True, pair=(self._begin, self._end), key=self._key)
        rate = tables[ALL, measure].rate if (ALL, measure) in tables else 1.0
        for number in self._ends:
            table = tables.get((number, measure))
            for key, cell in table.cells.items() if table is not None else ():
                self._of(self._key_text(key) if self._by else "").take(cell, rate)
            if table is not None and table.others.count:
                self._rest.take(table.others, rate)
        if (ALL, measure) in tables:
            unpaired = tables[ALL, measure].unpaired
            self._without_begin += unpaired.without_begin
            self._without_key += unpaired.without_key
            self._deep, self._many, self._open_elsewhere = unpaired.deep, unpaired.many, unpaired.open
            self._left = unpaired.left

    def _key_text(self, key: Key) -> str:
        """Return the text of a value that comes from a table, where one that is a number is a signed one."""
        number = next(number for number in (*self._begins, *self._ends) if number in self._keys.places)
        if type(key) is int and key < 0 and any(not argument.signed for argument in self._keys.arguments(number)):
            key += 1 << 64
        return self._keys.of_table(number, key)

    def finish(self, report: Report) -> None:
        """Write it all."""
        write, all_ = self._stream.write, _Times()
        for one in (*self._times.values(), self._rest):
            all_.plus(one)
        seen = all_.seen.all
        by = f" by {self._key}" if self._key else ""
        least = "at least " * bool(self._rest.seen.all.count)
        values = f", {least}{plural(len(self._times), 'value')} of {self._keys.shown}" if self._by else ""
        write(f"{self._begin} to {self._end}{by}: {plural(seen.count, 'pair')}{values}\n")
        if seen.count:
            quantiles = "  ".join(f"p{100 * part:g} {duration(all_.quantile(part))}" for part in _QUANTILES)
            write(f"  min {duration(seen.least)}  mean {duration(seen.total / seen.count)}  {quantiles}"
                  f"  max {duration(seen.most)}\n")  # fmt: skip
            if report.stops is not None:
                write(f"  {said_of(report.stops)}\n")
            write("\n")
            if self._by:
                self._stream.writelines(self._lines())
            else:
                self._stream.writelines(f"{line}\n" for line in all_.seen.lines(round_duration))
                self._write_slowest()
        self.finish_pairs(report)

    def finish_pairs(self, report: Report) -> None:
        """Write what was not paired, or perhaps wrongly."""
        for _, count, noun, what in self._unpaired():
            if count:
                self._stream.write(f"not paired: {plural(count, noun)} {what}\n")
        if any(report.lost[number] for number in (*self._begins, *self._ends)):
            self._stream.write("hits were lost: where they were, a begin may be paired with the end of another\n")
        self._stream.flush()

    def _lines(self) -> list[str]:
        sorted_, most = self._sorted(), self._top or _ROWS
        shown = [(text, one) for text, one in sorted_[:most]]
        rest = _Times()
        for _, one in sorted_[most:]:
            rest.plus(one)
        more = [(f"in {plural(len(sorted_) - most, 'more value')}", rest),
                ("in values that came when the table was full, and were not told apart", self._rest)]  # fmt: skip
        shown += [(text, one) for text, one in more if one.seen.all.count]
        columns: list[tuple[str, ...]] = [("calls", "total", "mean", "p50", "p99", "max")]
        for _, one in shown:
            cell = one.seen.all
            times = (cell.total, cell.total / cell.count, one.quantile(0.5), one.quantile(0.99), cell.most)
            columns.append((str(cell.count), *map(duration, times)))
        return aligned(columns, [self._keys.shown, *(text for text, _ in shown)])

    def _sorted(self) -> list[tuple[str, _Times]]:
        return sorted(self._keys.written_all(self._times).items(), key=lambda row: (-row[1].seen.all.total, row[0]))

    def rows(self, _: Report) -> list[Row]:
        """Return a row for each value."""
        found, heading = [], f"{self._begin} to {self._end}"
        rest: list[tuple[str | None, _Times]] = [(None, self._rest)] if self._rest.seen.all.count else []
        for key, one in [*self._sorted()[: self._top or None], *rest]:
            cell = one.seen.all
            quantiles = {f"p{100 * part:g}": one.quantile(part) for part in _QUANTILES}
            row = Row(heading, key, cell.count, self._keys.shown, "", cell.total, quantiles, cell.most)
            found.append(row._replace(is_time=True, least=cell.least, buckets=one.seen.buckets()))
        return found

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

    def _unpaired(self) -> Iterator[tuple[str, int, str, str]]:
        """Yield what was not paired: what it is called in JSON, how much, what one is, and more in words."""
        calls = all(self._targets[number].kind in (ENTER, CALL) for number in self._begins)
        open_ = "had not returned by the end of the trace: they go on, or an exception or longjmp has ended them"
        waiting = () if self._is_part else [one for begins in self._waiting.values() for one in begins]
        still_open = self._open_elsewhere + sum(map(self._may_pass, waiting))
        ended = ("call", open_) if calls else ("begin", "had no end by the end of the trace")
        yield "begins_open", still_open, *ended
        yield "begins_left", self._left, "begin", _LEFT
        yield "ends_without_begin", self._without_begin, "end", "had no begin"
        keyless = f"had no value of {self._keys.shown or self._key}"
        yield "without_key", self._without_key, "pair" if self._by else "hit", keyless
        yield "too_deep", self._deep, "end", "whose begin was given up when 64 younger ones of its thread were waiting"
        wrong = "; their ends may have been taken for those of others, whose times are wrong then"
        of, more = ("", wrong) if self._key else ("of threads ", "")
        yield "no_room", self._many, "begin", f"{of}for which there was no room{more}"
        dropped = f"were not paired, because {_MOST_WAITING:,} were waiting for their end"
        yield "dropped", self._dropped, "begin", dropped

    def unpaired(self) -> dict[str, int]:
        """Return how much was not paired, by why."""
        return {name: count for name, count, *_ in self._unpaired() if count}
