"""A table with one row a hit and one column for each argument's name: for spreadsheets and databases.

Rows go to a temporary file as hits come, because the header, with all columns, stands before them.
"""

from __future__ import annotations

import contextlib
import csv
import io
import tempfile
from collections.abc import Sequence
from typing import IO, Any

from ..model import Argument, Event, Report, Target
from . import Hits
from .values import cell, cell_value, column_kind

_HEAD = ("time", "pid", "tid", "probe")


class Csv(Hits):
    """Writes RFC 4180, but for the lines' ends, which are newlines only.

    In an empty cell's column the probe has no argument.
    """

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream
        self._columns: dict[str, int] = {}
        self._places: list[list[int]] = []
        self._rows = tempfile.TemporaryFile("w+", encoding="utf-8", newline="", prefix="usdtbuild-")  # noqa: SIM115
        self._parts: list[list[int]] = []  # [rows, columns they have]

    def start(self, targets: Sequence[Target]) -> None:
        """Learn the targets, and which columns there are."""
        super().start(targets)
        self._titles = [cell(name) for name in self._titles]
        self._places = [
            [self._place(name, argument) for name, argument in zip(names, target.arguments)]
            for names, target in zip(self._names, targets)
        ]
        self._parts.append([0, len(self._columns)])

    def _place(self, name: str, argument: Argument) -> int:
        shown = f"{name}.{column_kind(argument)}" if name in _HEAD else name
        return self._columns.setdefault(shown, len(self._columns))

    def events(self, events: Sequence[Event]) -> None:
        """Write them to the temporary file."""
        csv.writer(self._rows, lineterminator="\n").writerows(map(self._row, events))
        self._parts[-1][0] += len(events)

    def _row(self, event: Event) -> list[Any]:
        row: list[Any] = [""] * len(self._columns)
        arguments = self._targets[event.target].arguments
        for place, argument, value in zip(self._places[event.target], arguments, event.values):
            row[place] = cell_value(argument, value)
        return [event.time, event.pid, event.tid, self._titles[event.target], *row]

    def finish(self, report: Report) -> None:
        """Write the header, and the rows behind it, each with all columns."""
        head = io.StringIO()
        csv.writer(head, lineterminator="\n").writerow([*_HEAD, *map(cell, self._columns)])
        self._stream.write(head.getvalue())
        self._rows.seek(0)
        for rows, columns in self._parts:
            more = "," * (len(self._columns) - columns) + "\n"
            for _ in range(rows):  # a row is a line: control characters are escaped
                self._stream.write(self._rows.readline().rstrip("\n") + more)
        self.close()

    def close(self) -> None:
        """Let go of the temporary file."""
        with contextlib.suppress(OSError):
            self._rows.close()
