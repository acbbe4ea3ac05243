"""Folded stacks: `outer;inner 1234`, nanoseconds or hits, as flame graph tools and speedscope read them."""

from __future__ import annotations

from typing import IO, TYPE_CHECKING

from .stacks import StacksOutput, walk

if TYPE_CHECKING:
    from ..model import Report


class Folded(StacksOutput):
    """Writes them at the end."""

    def __init__(self, stream: IO[str], *, calls: bool = False) -> None:
        super().__init__(calls=calls)
        self._stream = stream

    def finish(self, report: Report) -> None:
        """Write a line for each stack."""
        root, _ = self._stacks.finish(report.ended)
        for names, node in walk(root):
            if node.own:
                self._stream.write(f"{';'.join(name.replace(';', ':') for name in names)} {node.own}\n")
