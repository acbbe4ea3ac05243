"""One line a hit: time since the start, thread, name, and arguments by name. What a user sees without asking."""

from __future__ import annotations

from typing import IO, TYPE_CHECKING

from ..model import FLOAT, MISSING, POINTER, Unreadable
from . import EVENTS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..engine import Totals
    from ..model import Argument, Event, Report, Target, Value


class Lines:
    """Writes lines to a stream."""

    needs = EVENTS

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream
        self._targets: Sequence[Target] = ()
        self._began: int | None = None

    def start(self, targets: Sequence[Target]) -> None:
        """Learn the targets."""
        self._targets = targets

    def events(self, events: Sequence[Event]) -> None:
        """Write them."""
        if events and self._began is None:
            self._began = events[0].time
        self._stream.writelines(map(self._line, events))
        self._stream.flush()

    def _line(self, event: Event) -> str:
        target = self._targets[event.target]
        after = (event.time - (self._began or 0)) / 1e9
        shown = "".join(
            f" {argument.name or f'arg{index}'}={value_text(argument, value)}"
            for index, (argument, value) in enumerate(zip(target.arguments, event.values))
        )
        return f"{after:12.6f} {event.tid:>7} {target.title}{shown}\n"

    def counts(self, totals: Totals) -> None:
        """Nothing: hits have come as events."""

    def finish(self, report: Report) -> None:
        """Nothing more."""


def value_text(argument: Argument, value: Value) -> str:
    """Return a value as a user reads it: strings in quotes, pointers and what can't be read in hexadecimal."""
    if value is MISSING:
        return "?"
    if value is None:
        return "NULL"
    if isinstance(value, bytes):
        text = value.decode("utf-8", "backslashreplace")
        return '"' + "".join(c if c.isprintable() and c not in '"\\' else _escaped(c) for c in text) + '"'
    if isinstance(value, Unreadable) or argument.kind == POINTER:
        return f"{value:#x}"
    return f"{value:g}" if argument.kind == FLOAT else str(value)


def _escaped(character: str) -> str:
    if character in '"\\':
        return "\\" + character
    return character.encode("unicode_escape").decode("ascii")
