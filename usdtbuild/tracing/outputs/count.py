"""How often each target was hit: a table at the end, kept up to date meanwhile on a terminal.

Who asks for nothing in particular gets the probes of all libraries too, dozens that nobody has heard of and that never
fire: those without a hit are one line then. A program's own are told one by one; that one isn't reached may be news,
unless there are very many, or a pattern has named them. A line instead of a number says that it isn't known: something
of the target was not traced, and nothing of it was seen. `>=` before a number says that hits were lost before a filter
could look at them.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from typing import IO, NamedTuple

from ...text import one_line
from ..model import Report, Target, Totals
from . import COUNTS, Table
from .rows import Row, rate
from .values import title

LIBRARIES, ALL = "libraries", "all"
_MOST_ZEROS = 20  # so many targets without a hit are told one by one
_EVERY = 0.5  # seconds between two tables
_UP, _CLEAR = "\x1b[{}A", "\x1b[J"  # ECMA-48: CUU, ED


class Count(Table):
    """Writes the table to a stream; if `live`, and the stream is a terminal, also while the trace runs."""

    needs = COUNTS

    def __init__(self, stream: IO[str], live: bool = False, folded: str = "", top: int = 0, *,
                 rates: bool = False) -> None:  # fmt: skip
        """`folded`: which rows without a hit are one line, LIBRARIES or ALL. `top`: at most so many rows, 0 for all.
        `rates`: with hits a second."""
        self._stream, self._top, self._rates = stream, top, rates
        self._folded = folded
        self.is_live = live and stream.isatty()
        self._shown = 0  # lines of the table that is on the terminal
        self._next = 0.0

    def counts(self, totals: Totals) -> None:
        """Write the table anew, over the one that was there, as far as there is room."""
        now = time.monotonic()
        if not self.is_live or now < self._next:
            return
        self._next = now + _EVERY
        size = shutil.get_terminal_size()
        rows = [_Row(totals.counts.get(target.number, 0), target, "") for target in self._targets]
        lines = [line[: size.columns - 1].rstrip("\n") + "\n" for line in self._table(rows)]
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
        unseen = report.unseen
        rows = []
        for count, target in zip(report.counts, report.targets):
            sign, about = "", 0
            if not count and target.title in unseen:
                sign = "-"
            elif not report.is_exact(target.number):
                all_, lost = report.hits[target.number], report.lost[target.number]
                sign, about = ">=", count * all_ // max(1, all_ - lost)
            rows.append(_Row(count, target, sign, about))
        self._stream.writelines(self._table(rows, (report.ended - report.started) / 1e9 if self._rates else 0))
        self._stream.flush()

    def rows(self, report: Report) -> list[Row]:
        """Return a row for each target that was hit."""
        return hit_rows(report)

    def _table(self, rows: list[_Row], seconds: float = 0) -> list[str]:
        """Return the lines; those of an interval of so many seconds have rates."""
        rows.sort(key=lambda row: (-row.hits, row.target.title))
        several = len({row.target.module.path for row in rows}) > 1
        left: dict[str, int] = {}
        if self._folded == LIBRARIES:
            rows = _leave(rows, lambda row: row.is_zero and row.target.module.is_library, left,
                          "{} probe{} of libraries without a hit")  # fmt: skip
        if sum(row.is_zero for row in rows) > (1 if self._folded == ALL else _MOST_ZEROS):
            rows = _leave(rows, lambda row: row.is_zero, left, "{} more without a hit")
        if sum(row.sign == "-" for row in rows) > _MOST_ZEROS:
            rows = _leave(rows, lambda row: row.sign == "-", left, "{} more that were not traced everywhere")
        if self._top and len(rows) > self._top:
            left["{} more"] = len(rows) - self._top
            rows = rows[: self._top]
        width = max((len(row.number) for row in rows), default=1)
        rates = [f"{rate(row.hits, seconds)}/s" if seconds > 0 else "" for row in rows]
        rate_width = max(map(len, rates), default=0)
        lines = [
            f"{row.number:>{width}}  {f'{hit:>{rate_width}}  ' if hit else ''}{title(row.target)}"
            + (f"  (about {row.about}, if what was lost is like what was seen)" if row.about else "")
            + (f"  ({one_line(row.target.module.path)})" if several else "")
            + "\n"
            for row, hit in zip(rows, rates)
        ]
        told = [text.format(count, "s" if count > 1 else "") for text, count in left.items()]
        if not lines:
            return [f"({text.replace(' more', '', 1)})\n" for text in told]
        return lines + [f"(and {text})\n" for text in told]


def hit_rows(report: Report) -> list[Row]:
    """Return a row for each target that was hit."""
    return [Row("", title(target), count) for count, target in zip(report.counts, report.targets) if count]


class _Row(NamedTuple):
    """A target's count; `sign` is `-` where it isn't known, `>=` where there may have been more, `about` so many."""

    hits: int
    target: Target
    sign: str
    about: int = 0

    @property
    def number(self) -> str:
        return "-" if self.sign == "-" else f"{self.sign}{self.hits}"

    @property
    def is_zero(self) -> bool:
        return self.number == "0"


def _leave(rows: list[_Row], those: Callable[[_Row], bool], left: dict[str, int], text: str) -> list[_Row]:
    """Return the rows without those that are told by one line, whose number is put into `left`."""
    kept = [row for row in rows if not those(row)]
    if len(kept) < len(rows):
        left[text] = len(rows) - len(kept)
    return kept
