"""One line a hit: time since the start, thread, name, and arguments by name. What a user sees without asking.

Of several processes each line has the process, too, before the thread. Where several files have a probe of one name,
the file ends the line.

A function whose arguments are known is shown as a call, `price(amount=39)`, and its return with the call's arguments
and the result, `price(amount=39) = 3822`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import IO

from ...inspection.demangle import without_parameters
from ...text import one_line
from ..model import ENTER, EXIT, Event, Target
from ..stacks import frame_text
from . import Hits
from .values import Show, files_of, value_text

_DEEPEST = 10_000  # calls of one thread that wait for their return


class Lines(Hits):
    """Writes lines to a stream."""

    passing = True

    def __init__(self, stream: IO[str], show: Show = value_text, *, several: bool = False) -> None:
        self._stream, self._show, self._several = stream, show, several
        self._files: list[str] = []
        self.began: int | None = None
        self._calls: list[str] = []  # what functions are called that are shown as calls, '' for all others
        self._open: dict[int, list[tuple[int, str]]] = {}  # by thread, calls that haven't returned
        self._returns: dict[int, int] = {}  # by the number of a call's target that of its return's

    def start(self, targets: Sequence[Target]) -> None:
        """Learn the targets."""
        super().start(targets)
        self._files = files_of(targets)
        self._calls = [_call(target) for target in targets]
        entered = {_place(one): one.number for one in targets if one.kind == ENTER}
        self._returns = {entered.get(_place(one), -1): one.number for one in targets if one.kind == EXIT}
        for call, back in self._returns.items():
            if call >= 0 and self._calls[back] and not targets[call].arguments:
                self._calls[call] = self._calls[back]

    def events(self, events: Sequence[Event]) -> None:
        """Write them."""
        if events and self.began is None:
            self.began = events[0].time
        self._stream.writelines(map(self._line, events))
        self._stream.flush()

    def _line(self, event: Event) -> str:
        after = (event.time - (self.began or 0)) / 1e9
        number = event.target
        shown = (self._call if self._calls[number] else self._hit)(event)
        process = f"{event.pid:>7} " if self._several else ""
        stack = "".join(f"{'':20} {frame_text(frame)}\n" for frame in event.stack)
        return f"{after:12.6f} {process}{event.tid:>7} {shown}{self._files[number]}\n{stack}"

    def _values(self, event: Event) -> list[tuple[str, str]]:
        number = event.target
        given = zip(self._names[number], self._targets[number].arguments, event.values)
        return [(name, self._show(argument, value)) for name, argument, value in given]

    def _hit(self, event: Event) -> str:
        return self._titles[event.target] + "".join(f" {name}={text}" for name, text in self._values(event))

    def _call(self, event: Event) -> str:
        number, values = event.target, self._values(event)
        waiting = self._open.setdefault(event.tid, [])
        if self._targets[number].kind == ENTER:
            shown = f"{self._calls[number]}({', '.join(f'{name}={text}' for name, text in values)})"
            if number in self._returns:
                waiting.append((self._returns[number], shown))
                del waiting[:-_DEEPEST]
            return shown
        at = next((at for at in range(len(waiting) - 1, -1, -1) if waiting[at][0] == number), None)
        call = waiting[at][1] if at is not None else f"{self._calls[number]}(...)"
        del waiting[at:]
        if len(values) == 1 and values[0][0] == "result":
            return f"{call} = {values[0][1]}"
        members = ", ".join(f"{name.removeprefix('result.')}={text}" for name, text in values)
        return f"{call} = {{{members}}}" if values else f"{call} returns"


def _place(target: Target) -> tuple[str, str, int]:
    return target.name, target.module.path, target.module.load_bias


def _call(target: Target) -> str:
    """Return the name of a function whose arguments are known, or its result."""
    known = bool(target.arguments) and all(one.type for one in target.arguments)
    is_call = (target.kind == ENTER and known) or (target.kind == EXIT and (known or not target.arguments))
    return one_line(without_parameters(target.shown)) if is_call else ""
