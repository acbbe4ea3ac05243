"""One line a hit: time since the start, thread, name, and arguments by name. What a user sees without asking.

Of several processes each line has the process, too, before the thread.
"""

from __future__ import annotations

from typing import IO, TYPE_CHECKING

from . import EVENTS, Output
from .values import Show, argument_names, title, value_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..model import Event, Target


class Lines(Output):
    """Writes lines to a stream."""

    needs = EVENTS
    passing = True

    def __init__(self, stream: IO[str], show: Show = value_text, *, several: bool = False) -> None:
        self._stream, self._show, self._several = stream, show, several
        self._targets: Sequence[Target] = ()
        self._titles: list[str] = []
        self._names: list[tuple[str, ...]] = []
        self._began: int | None = None

    def start(self, targets: Sequence[Target]) -> None:
        """Learn the targets."""
        self._targets = targets
        self._titles = [title(target) for target in targets]
        self._names = [argument_names(target) for target in targets]

    def events(self, events: Sequence[Event]) -> None:
        """Write them."""
        if events and self._began is None:
            self._began = events[0].time
        self._stream.writelines(map(self._line, events))
        self._stream.flush()

    def _line(self, event: Event) -> str:
        number = event.target
        after = (event.time - (self._began or 0)) / 1e9
        shown = "".join(
            f" {name}={self._show(argument, value)}"
            for name, argument, value in zip(self._names[number], self._targets[number].arguments, event.values)
        )
        process = f"{event.pid:>7} " if self._several else ""
        return f"{after:12.6f} {process}{event.tid:>7} {self._titles[number]}{shown}\n"
