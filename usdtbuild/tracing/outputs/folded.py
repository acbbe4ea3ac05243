"""Folded stacks: `outer;inner 1234`, nanoseconds or hits, as flame graph tools and speedscope read them."""

from __future__ import annotations

from ..model import Report
from .stacks import StacksOutput, walk


class Folded(StacksOutput):
    """Writes them at the end."""

    def finish(self, report: Report) -> None:
        """Write a line for each stack."""
        root, _ = self._stacks.finish(report.ended)
        for names, node in walk(root):
            if node.own:
                self._stream.write(f"{';'.join(name.replace(';', ':') for name in names)} {node.own}\n")
