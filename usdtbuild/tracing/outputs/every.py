"""The tables of each interval, and those of all hits at the end; as text, or as a line of JSON each.

Each table stands here twice: one for the interval, which is emptied when it was shown, one for all. So an interval
looks as a whole trace does.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from typing import IO, Any

from ..measures import Tables
from ..model import Event, Report, Target
from . import Several, Table
from .summary import summed_up
from .values import title


class Every(Several):
    """Writes the tables that `make` makes, as text."""

    def __init__(self, stream: IO[str], make: Callable[[], Sequence[Table]]) -> None:
        super().__init__(make())
        self._stream, self._parts = stream, make()
        self._interval = Several(self._parts)
        self._began: int | None = None
        for one in self._parts:
            one.renew()

    def start(self, targets: Sequence[Target]) -> None:
        """Hand the targets on."""
        self._interval.start(targets)
        super().start(targets)

    def events(self, events: Sequence[Event]) -> None:
        """Hand hits on."""
        self._interval.events(events)
        super().events(events)

    def interval(self, report: Report, tables: Tables) -> None:
        """Show an interval: `report` is of its hits alone, and so is what they have added up to."""
        self._interval.tables(tables, {})
        self._show(report, self._parts, is_total=False)
        for one in self._parts:
            one.renew()

    def finish(self, report: Report) -> None:
        """Show all hits."""
        self._show(report, self._tables, is_total=True)

    def _show(self, report: Report, tables: Sequence[Table], *, is_total: bool) -> None:
        if self._began is None:
            self._began = report.started
        lasted = (report.ended - report.started) / 1e9
        at = (report.ended - self._began) / 1e9
        self._stream.write(f"total, {lasted:.3f} s:\n" if is_total else f"{at:.3f} s:\n")
        for one in tables:
            one.finish(report)
        self._stream.write("" if is_total else "\n")
        self._stream.flush()


class EveryJson(Every):
    """Writes a line of JSON for each interval, which is there at once also for who reads a pipe."""

    def _show(self, report: Report, tables: Sequence[Table], *, is_total: bool) -> None:
        lasted = max(1, report.ended - report.started) / 1e9
        counts: Counter[str] = Counter()
        for target, count in zip(report.targets, report.counts):
            counts[title(target)] += count
        line: dict[str, Any] = {"version": 1, "time": round((report.ended + report.wall_offset) / 1e9, 3)}
        line |= {"total": True} if is_total else {}
        line |= {"seconds": round(lasted, 6), "counts": dict(counts)}
        line["rates"] = {name: float(f"{count / lasted:.6g}") for name, count in counts.items()}
        line["lost"] = sum(report.lost)
        self._stream.write(json.dumps(line | summed_up(tables, report)) + "\n")
        self._stream.flush()
