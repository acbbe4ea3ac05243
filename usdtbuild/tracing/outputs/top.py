"""A live screen of the busiest probes, keys and latencies: what `every` tells of each interval, sorted by a key press.

Only for a terminal; where standard output is none, the tables of `every` stand for it.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import termios
import tty
from collections.abc import Callable, Sequence
from typing import IO, NamedTuple

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table as Drawn
from rich.text import Text

from ...text import one_line
from ..measures import Tables
from ..model import Report, Target, Totals
from . import COUNTS, Table
from .bars import duration
from .count import hit_rows
from .every import Every
from .rows import Row, rate

_MOST = 20_000  # rows that are kept; what comes later is one of each table
_AROUND = 4  # lines of the screen that are no rows


class _Line(NamedTuple):
    """A row of all hits so far, with how many came in a second of the last interval, and its quantiles."""

    row: Row
    rate: float


def _name(line: _Line) -> str:
    row = line.row
    if not row.by:
        return row.table or row.key or ""
    about = f"{row.table} by {row.by}" if row.of or row.is_time else row.table
    return f"{about}: {row.key if row.key is not None else 'others, when the table was full'}"


# By the key that sorts by it: a column's heading, and what it is; the name upwards, all others downwards.
_COLUMNS: dict[str, tuple[str, Callable[[_Line], float | None]]] = {
    "c": ("COUNT", lambda line: line.row.hits),
    "r": ("RATE", lambda line: line.rate),
    "t": ("TOTAL", lambda line: line.row.total),
    "m": ("MEAN", lambda line: line.row.mean),
    "5": ("P50", lambda line: line.row.quantiles.get("p50")),
    "9": ("P99", lambda line: line.row.quantiles.get("p99")),
    "x": ("MAX", lambda line: line.row.most),
}
_NAME, _QUIT = "n", "q"
_HELP = "q quit    sort by  n name  c count  r rate  t total  m mean  5 p50  9 p99  x max"
_LEFT_OUT_FIRST = "5xmt9cr"  # where names would have less room than this
_LEAST_OF_NAMES = 24


class Top(Every):
    """Draws the screen on a terminal; when it ends, the tables of all hits stay below what was there before."""

    is_live = True

    def __init__(
        self, stream: IO[str], make: Callable[[], Sequence[Table]], heading: str, *, alone: bool = True
    ) -> None:
        """`heading` says what is traced; `alone`: no command has the terminal with us, so q ends nobody but us."""
        super().__init__(stream, make)
        self._heading, self._alone = one_line(heading), alone
        self._lines: dict[tuple[str, str | None], _Line] = {}
        self._sorted_by = "r"
        self._keys: _Keys | None = None
        self._live: Live | None = None
        self._after = self._lost = 0.0

    def start(self, targets: Sequence[Target]) -> None:
        """Hand the targets on, and begin to draw."""
        super().start(targets)
        if self._live is None:
            self._console = Console(file=self._stream, highlight=False, markup=False, emoji=False)
            self._live = Live(console=self._console, screen=True, auto_refresh=False)
            self._live.start()
            self._keys = _Keys()
            self._draw()

    def counts(self, totals: Totals) -> None:
        """Look which keys were pressed."""
        for key in self._keys.pressed() if self._keys is not None else "":
            if key == _QUIT:
                os.kill(os.getpid() if self._alone else 0, signal.SIGINT)  # as Ctrl-C does
            elif key == _NAME or key in _COLUMNS:
                self._sorted_by = key
                self._draw()

    def interval(self, report: Report, tables: Tables) -> None:
        """Add the interval up, and draw."""
        self._began = report.started if self._began is None else self._began
        self._after = (report.ended - self._began) / 1e9
        self._lost += sum(report.lost)
        super().interval(report, tables)
        if self._live is not None:
            self._draw()

    def _show(self, report: Report, tables: Sequence[Table], *, is_total: bool) -> None:
        if is_total:
            super()._show(report, tables, is_total=True)
            return
        seconds = max(1, report.ended - report.started) / 1e9
        rows = [*hit_rows(report), *(row for one in tables if one.needs != COUNTS for row in one.rows(report))]
        self._lines = {key: _Line(line.row, 0.0) for key, line in self._lines.items()}
        for row in rows:
            key: tuple[str, str | None] = row.table, row.key
            if key not in self._lines and len(self._lines) >= _MOST:
                key, row = (row.table, None), row._replace(key=None)  # noqa: PLW2901
            before = self._lines.get(key)
            whole = before.row.plus(row) if before is not None else row
            self._lines[key] = _Line(whole, (before.rate if before is not None else 0.0) + row.hits / seconds)

    def _draw(self) -> None:
        assert self._live is not None
        room = max(1, self._console.size.height - _AROUND)
        lines = sorted(self._lines.values(), key=self._place)
        drawn = Drawn(box=None, expand=True, pad_edge=False, header_style="bold")
        used = {key: [_shown(key, value(line), line) for line in lines[:room]]
                for key, (_, value) in _COLUMNS.items() if any(value(line) is not None for line in lines)}  # fmt: skip
        rest = self._room_for_names(used)
        for key in used:
            drawn.add_column(self._underlined(key, _COLUMNS[key][0]), justify="right", no_wrap=True)
        drawn.add_column(self._underlined(_NAME, "NAME"), ratio=1, no_wrap=True, overflow="ellipsis")
        for line, *values in zip(lines, *used.values()):
            drawn.add_row(*values, Text(_fitted(_name(line), rest)))
        about = f"{self._heading}   {self._after:.0f} s" + (f"   {self._lost:.0f} hits lost" if self._lost else "")
        more = f"   ({len(lines) - room} more)" if len(lines) > room else ""
        above, below = (Text(text, style, no_wrap=True, overflow="ellipsis")
                        for text, style in ((about, "bold"), (_HELP + more, "dim")))  # fmt: skip
        self._live.update(Group(above, drawn, below), refresh=True)

    def _room_for_names(self, used: dict[str, list[str]]) -> int:
        """Leave columns out as long as names have too little room; return how much they have."""
        for left_out in (*_LEFT_OUT_FIRST, ""):
            widths = [2 + max(len(one) for one in (_COLUMNS[key][0], *texts)) for key, texts in used.items()]
            rest = self._console.size.width - sum(widths)
            if rest >= _LEAST_OF_NAMES:
                break
            if left_out != self._sorted_by:
                used.pop(left_out, None)
        return max(rest, 1)

    def _place(self, line: _Line) -> tuple[bool, float, str]:
        """Return by what lines are sorted; those that haven't got it come last."""
        value = _COLUMNS[self._sorted_by][1](line) if self._sorted_by != _NAME else 0
        return value is None, -(value or 0), _name(line)

    def _underlined(self, key: str, heading: str) -> Text:
        return Text(heading, "underline" if key == self._sorted_by else "")

    def finish(self, report: Report) -> None:
        """Leave the screen, and show all hits."""
        self.close()
        super().finish(report)

    def close(self) -> None:
        """Give the terminal back as it was."""
        if self._live is not None:
            self._live.stop()
            self._live = None
        if self._keys is not None:
            self._keys.close()
            self._keys = None


def _fitted(name: str, room: int) -> str:
    """Return a name, without its middle if it has no room: its end says of which key the row is."""
    if len(name) <= room:
        return name
    end = min(room // 2, 16)
    return f"{name[: max(0, room - end - 1)]}…{name[len(name) - end :]}"


def _shown(key: str, value: float | None, line: _Line) -> str:
    if value is None:
        return ""
    if key == "c":
        return str(value)
    if key == "r":
        return f"{rate(line.rate, 1)}/s"
    if line.row.is_time:
        return duration(value)
    return str(value) if isinstance(value, int) else f"{value:.6g}"


class _Keys:
    """Keys as they are pressed, if standard input is the terminal and is ours."""

    def __init__(self) -> None:
        self._terminal = sys.stdin.fileno() if sys.stdin.isatty() else -1
        if self._terminal >= 0 and os.tcgetpgrp(self._terminal) != os.getpgrp():
            self._terminal = -1  # who is in the background would be stopped for it
        if self._terminal >= 0:
            self._before = termios.tcgetattr(self._terminal)
            tty.setcbreak(self._terminal)

    def pressed(self) -> str:
        if self._terminal < 0 or not select.select([self._terminal], [], [], 0)[0]:
            return ""
        found = os.read(self._terminal, 64)
        if not found:  # the terminal has gone
            self._terminal = -1
        return found.decode("ascii", "ignore")

    def close(self) -> None:
        if self._terminal >= 0:
            termios.tcsetattr(self._terminal, termios.TCSADRAIN, self._before)
            self._terminal = -1
