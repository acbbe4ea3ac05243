"""Folded stacks: `outer;inner 1234`, nanoseconds or hits, as flame graph tools and speedscope read them."""

from __future__ import annotations

from typing import IO, TYPE_CHECKING

from . import EVENTS, Output
from .stacks import Stacks, walk

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..model import Event, Report, Target


class Folded(Output):
    """Writes them at the end."""

    needs = EVENTS
    values = False

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream
        self._stacks = Stacks()

    def start(self, targets: Sequence[Target]) -> None:
        """Learn the targets."""
        self._stacks.start(targets)

    def events(self, events: Sequence[Event]) -> None:
        """Take them in."""
        self._stacks.add(events)

    def finish(self, report: Report) -> None:
        """Write a line for each stack."""
        root, _ = self._stacks.finish(report.ended)
        for names, node in walk(root):
            if node.own:
                self._stream.write(f"{';'.join(name.replace(';', ':') for name in names)} {node.own}\n")
