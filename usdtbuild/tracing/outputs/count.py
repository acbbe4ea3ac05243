"""How often each target was hit: a table at the end, kept up to date meanwhile on a terminal.

Who asks for nothing in particular gets the probes of all libraries too, dozens that nobody has heard of and that never
fire: those without a hit are one line then. A program's own are told one by one; that one isn't reached may be news.
A line instead of a number says that it isn't known: something of the target was not traced, and nothing of it was seen.
"""

from __future__ import annotations

import re
import shutil
import time
from typing import IO, TYPE_CHECKING

from ...text import one_line
from . import COUNTS
from .values import title

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..model import Event, Report, Target, Totals


_EVERY = 0.5  # seconds between two tables
_LIBRARY = re.compile(r"\.so(\.[^/]*)?$")
_UP, _CLEAR = "\x1b[{}A", "\x1b[J"  # ECMA-48: CUU, ED


class Count:
    """Writes the table to a stream; if `live`, and the stream is a terminal, also while the trace runs."""

    needs = COUNTS

    def __init__(self, stream: IO[str], live: bool = False, folded: bool = False) -> None:
        self._stream = stream
        self._folded = folded
        self._live = live and stream.isatty()
        self._targets: Sequence[Target] = ()
        self._shown = 0  # lines of the table that is on the terminal
        self._next = 0.0

    def start(self, targets: Sequence[Target]) -> None:
        """Learn the targets."""
        self._targets = targets

    def events(self, events: Sequence[Event]) -> None:
        """Nothing: engines count."""

    def counts(self, totals: Totals) -> None:
        """Write the table anew, over the one that was there, as far as there is room."""
        now = time.monotonic()
        if not self._live or now < self._next:
            return
        self._next = now + _EVERY
        size = shutil.get_terminal_size()
        counts = [totals.counts.get(target.number, 0) for target in self._targets]
        lines = [line[: size.columns - 1].rstrip("\n") + "\n" for line in self._table(counts, self._targets, set())]
        del lines[max(1, size.lines - 2) :]
        self._wipe()
        self._stream.writelines(lines)
        self._stream.flush()
        self._shown = len(lines)

    def _wipe(self) -> None:
        if self._shown:
            self._stream.write(_UP.format(self._shown) + _CLEAR)
        self._shown = 0

    def finish(self, report: Report) -> None:
        """Write the table, the most hits first."""
        self._wipe()
        refused = {refusal.what for refusal in report.refusals}
        self._stream.writelines(self._table(report.counts, report.targets, refused))
        self._stream.flush()

    def _table(self, counts: Sequence[int], targets: Sequence[Target], refused: set[str]) -> list[str]:
        rows = sorted(zip(counts, targets), key=lambda row: (-row[0], row[1].title))
        shown = [row for row in rows if not self._folded or row[0] or not _LIBRARY.search(row[1].module.path)]
        numbers = [str(count) if count or target.title not in refused else "-" for count, target in shown]
        width = max(map(len, numbers), default=1)
        several = len({target.module.path for target in targets}) > 1
        lines = [
            f"{number:>{width}}  {title(target)}" + (f"  ({one_line(target.module.path)})" if several else "") + "\n"
            for number, (_, target) in zip(numbers, shown)
        ]
        left = len(rows) - len(shown)
        return lines + [f"(and {left} {'probe' if left == 1 else 'probes'} of libraries without a hit)\n"] * bool(left)
