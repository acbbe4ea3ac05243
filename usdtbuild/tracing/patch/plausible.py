"""Whether counters and tables can be what stubs have counted: the program can write into them, too.

Stubs only count up, and each hit takes a nanosecond of a processor at least. Smaller lies of a program about its own
hits can't be found out.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ..measures import Table

_SLACK = 1 << 20


class Plausible:
    """Judges what is read of one engine; `is_damaged` once something can't be."""

    def __init__(self) -> None:
        self._since, self._before = time.monotonic_ns(), list[int]()
        self.is_damaged = False

    def _most(self) -> int:
        return (time.monotonic_ns() - self._since) * (os.cpu_count() or 1) + _SLACK

    def counters(self, now: Sequence[int]) -> None:
        """Look at all counters, always in the same order."""
        self.is_damaged |= sum(now) > self._most() or any(map(int.__lt__, now, self._before))
        self._before = list(now)

    def tables(self, found: Iterable[Table]) -> None:
        """Look at all tables, each of which has a hit once at most."""
        most = self._most()
        for cells in ([*table.cells.values(), table.others] for table in found):
            counts = sum(cell.count for cell in cells), sum(sum(cell.classes.values()) for cell in cells)
            beyond = any(abs(cell.total) > cell.count << 64 for cell in cells)
            self.is_damaged |= max(counts) > most or beyond
