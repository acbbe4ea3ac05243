"""Trace events as JSON, which Perfetto (ui.perfetto.dev) and chrome://tracing open; written as hits come.

Format: "Trace Event Format", Google, 2016; times are microseconds, here since the first hit, with three decimals.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import IO, Any

from ...text import one_line
from ..model import Event, Report, Target
from ..spans import POINT, Spans
from . import Hits
from .values import Plain, arguments_of, merged


class TraceEvents(Hits):
    """Writes spans as complete events ("X"), those that overlap others as asynchronous ones, and points as instants."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream
        self._spans = Spans()
        self._first: int | None = None
        self._processes: dict[int, int] = {}
        self._overlapping = 0
        self._separator = "\n"
        stream.write('{"displayTimeUnit":"ns","traceEvents":[')

    def start(self, targets: Sequence[Target]) -> None:
        """Learn the targets."""
        super().start(targets)
        self._spans.start(targets)

    def events(self, events: Sequence[Event]) -> None:
        """Write those that end something, and the points."""
        if events and self._first is None:
            self._first = events[0].time
        for event in events:
            self._processes[event.tid] = event.pid
            if self._spans.roles[event.target].kind == POINT:
                self._write(self._titles[event.target], "i", event, {"s": "t", "args": self._arguments(event)})
            else:
                span = self._spans.add(event)
                if span is not None:
                    self._span(span.name, span.begin, span.end, span.nested)

    def _span(self, name: str, begin: Event, end: Event, nested: bool) -> None:
        arguments = merged(self._arguments(begin), self._arguments(end))
        if nested:
            self._write(name, "X", begin, {"dur": _us(end.time - begin.time), "args": arguments})
            return
        self._overlapping += 1
        more = {"cat": "span", "id": self._overlapping}
        self._write(name, "b", begin, {**more, "args": arguments})
        self._write(name, "e", end, more)

    def _arguments(self, event: Event) -> dict[str, Plain]:
        return arguments_of(self._names[event.target], self._targets[event.target], event)

    def _write(self, name: str, phase: str, event: Event, more: dict[str, Any]) -> None:
        after = event.time - (self._first or 0)
        record = {"name": one_line(name), "ph": phase, "ts": _us(after), "pid": event.pid, "tid": event.tid, **more}
        self._stream.write(self._separator + json.dumps(record, separators=(",", ":")))
        self._separator = ",\n"

    def finish(self, report: Report) -> None:
        """Write what had not ended, and the threads' names."""
        for event in self._spans.unfinished():
            name = self._spans.roles[event.target].label(event)
            self._write(name, "B", event, {"args": self._arguments(event)})
        for tid in sorted(self._processes):
            if report.threads.get(tid):
                record = {"name": "thread_name", "ph": "M", "pid": self._processes[tid], "tid": tid,
                          "args": {"name": one_line(report.threads[tid])}}  # fmt: skip
                self._stream.write(self._separator + json.dumps(record, separators=(",", ":")))
                self._separator = ",\n"
        self._stream.write("\n]}\n")


def _us(nanoseconds: int) -> float:
    return nanoseconds / 1000
