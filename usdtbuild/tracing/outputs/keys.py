"""What hits are told apart by (`--by`): arguments, thread, process, probe and call stack; one, or several together."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

from ...errors import UsageError
from ..filters import argument_index, said_arguments
from ..measures import CALLS, PROBE, PROCESS, THREAD, Key
from ..model import FLOAT, INTEGER, MISSING, POINTER, Argument, Event, Report, Target, Unreadable, Value
from ..stacks import stack_text
from .values import Show, argument_names, files_of, first_of_each, table_headings, title, value_text

_Row = TypeVar("_Row")
JOINT = -1  # the table of all targets together
_OWN = {THREAD: -1, PROCESS: -2, PROBE: -3, CALLS: -4}  # what stands for the place of a key that every hit has
_TARGET = re.compile("\0([0-9]+)\0")  # in texts of keys; no value's text has such a character
_NUMBER = Argument("", "", 4, False, INTEGER)


class Keys:
    """The keys of an option, with their `places` in each target that has them all, by its number."""

    def __init__(self, by: str, show: Show = value_text) -> None:
        """`by` are names, joined by commas; '': there is no key. `show` is how values are shown, and told apart."""
        self._show = show
        self.names = tuple(by.split(",")) if by else ()
        self.places: dict[int, tuple[int, ...]] = {}
        self._targets: Sequence[Target] = ()
        self._first: list[int] = []

    def find(self, targets: Sequence[Target], chosen: Sequence[Target], *, strict: bool) -> None:
        """Find them in the `chosen` of all targets. Raises UsageError if none has all; if `strict`, also where one is
        a floating-point number, else such a target is left out."""
        self._targets = targets
        self._first = first_of_each(targets, [one.title for one in targets])
        found = [_places(name, chosen) for name in self.names]
        self.places = {one.number: tuple(places[one.number] for places in found) for one in chosen
                       if all(one.number in places for places in found)}  # fmt: skip
        if chosen and not self.places:
            raise UsageError(f"--by: no probe has all of {', '.join(self.names)}")
        for number, places in list(self.places.items()):
            arguments = targets[number].arguments
            floating = next((place for place in places if place >= 0 and arguments[place].kind == FLOAT), None)
            if floating is not None and strict:
                name = f"{argument_names(targets[number])[floating]} of {title(targets[number])}"
                raise UsageError(f"--by: {name} is a floating-point number, which makes no key")
            if floating is not None:
                del self.places[number]

    def group(self, number: int) -> int:
        """Return in which table a target's hits are: its own, or, where the probe is a key, one for all."""
        return JOINT if _OWN[PROBE] in self.places[number] else number

    def headings(self, groups: Iterable[int], of: Mapping[int, int] | None = None) -> dict[int, str]:
        """Return what tables are called: by the argument `of` in each target, else by their keys."""
        at = of or {number: places[0] if len(places) == 1 else -1 for number, places in self.places.items()}
        groups = [*groups]
        found = table_headings(self._targets, [(one, at[one]) for one in groups if one != JOINT], self.shown)
        if JOINT in groups:
            number = self.members(JOINT)[0]
            found[JOINT] = argument_names(self._targets[number])[of[number]] if of else self.shown
        return found

    @property
    def shown(self) -> str:
        """What the keys are called."""
        return ", ".join(self.names)

    def members(self, group: int) -> list[int]:
        """Return the targets whose hits are in a table."""
        return [number for number in self.places if self.group(number) == group]

    def are_addresses(self, group: int) -> bool:
        """Whether a key of a table is a pointer."""
        return any(one.kind == POINTER for number in self.members(group) for one in self.arguments(number))

    def arguments(self, number: int) -> list[Argument]:
        """Return those of a target's arguments that are keys."""
        return [self._targets[number].arguments[place] for place in self.places[number] if place >= 0]

    def written_all(self, rows: Mapping[str, _Row]) -> Mapping[str, _Row]:
        """Return a table's rows with the texts of keys as they are shown: a probe that several files have, which is
        only known at the end, with its file."""
        if _OWN[PROBE] not in (place for places in self.places.values() for place in places):
            return rows
        titles = [title(one) + file for one, file in zip(self._targets, files_of(self._targets))]
        return {_TARGET.sub(lambda found: titles[int(found[1])], key): row for key, row in rows.items()}

    def of_event(self, event: Event) -> str:
        """Return the text of a hit's keys, for `written_all`; so do the next two."""
        return self._text(event.target, [value_of(event, place) for place in self.places[event.target]])

    def is_missing(self, event: Event) -> bool:
        """Whether one of a hit's keys could not be read."""
        return any(value_of(event, place) is MISSING for place in self.places[event.target])

    def of_table(self, number: int, key: Key) -> str:
        """Return the text of a key of a target's table, which leaves the probe out."""
        left = list(key) if isinstance(key, tuple) else [key]
        places = self.places[number]
        return self._text(number, [0 if place == _OWN[PROBE] else left.pop(0) for place in places])

    def unreadable(self, number: int) -> str:
        """Return the text of a key that could not be read."""
        return self._text(number, [MISSING] * len(self.places[number]))

    def _text(self, number: int, values: Sequence[Value]) -> str:
        target = self._targets[number]
        return ", ".join(
            f"\0{self._first[number]}\0" if place == _OWN[PROBE]
            else value.decode() if place == _OWN[CALLS] and isinstance(value, bytes)
            else self._show(target.arguments[place] if place >= 0 else _NUMBER, value)
            for place, value in zip(self.places[number], values)
        )  # fmt: skip


def find_argument(option: str, name: str, targets: Sequence[Target]) -> dict[int, int]:
    """Return, for each target that has the argument, its index. Raises UsageError if of some targets none has it."""
    found = {target.number: argument_index(target, name) for target in targets}
    found = {number: index for number, index in found.items() if index >= 0}
    if targets and not found:
        has = max(targets, key=lambda target: len(target.arguments))
        others = f", and none of the other {len(targets) - 1} has it" if len(targets) > 1 else ""
        raise UsageError(f"{option}: {title(has)} has no argument {name}; {said_arguments(has)}{others}")
    return found


def lost_too(report: Report, numbers: Iterable[int], odd: int = 0) -> str:
    """Return what a heading says of hits of some targets that were lost, and of values that are infinite or NaN."""
    lost = sum(report.lost[number] for number in numbers)
    counts = (odd, "is", "are", "infinite or NaN"), (lost, "was", "were", "lost")
    return "".join(f"; {count} more {one if count == 1 else many} {what}" for count, one, many, what in counts if count)


def _places(name: str, targets: Sequence[Target]) -> Mapping[int, int]:
    """Return, for each target that has a key, its argument's index, or what stands for it. Raises UsageError."""
    if name not in _OWN:
        return find_argument("--by", name, targets)
    found = {target.number: _OWN[name] for target in targets}
    with_argument = [target for target in targets if name in argument_names(target)]
    return {**found, **(find_argument("--by", name, with_argument) if with_argument else {})}


def value_of(event: Event, place: int) -> Value:
    """Return a hit's value at a place of `Keys`."""
    if place == _OWN[CALLS]:
        return stack_text(event.stack).encode()
    if place < 0:
        return event.tid if place == _OWN[THREAD] else event.pid
    return event.values[place] if place < len(event.values) else MISSING


def number_of(event: Event, place: int) -> float | None:
    """Return a hit's argument where it is a number."""
    value = value_of(event, place)
    is_number = value is not MISSING and isinstance(value, (int, float)) and not isinstance(value, Unreadable)
    return value if is_number else None  # type: ignore[return-value]
