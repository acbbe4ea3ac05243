"""Spans for a collector of OpenTelemetry (`--otlp URL`): what begins and what ends, nested as it was, with arguments.

The SDK makes and encodes spans, sends them over HTTP and tries again. What is here is a bounded queue, so that a slow
collector doesn't take our memory or hold the trace up, and a count of the spans that were not delivered.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Sequence
from typing import Any

from ..._version import __version__
from ...text import one_line
from ..model import MISSING, Event, Report, Target, Value
from ..selection import is_meant
from ..spans import BEGIN, END, POINT, Role, Spans
from . import Hits
from .extras import imported
from .values import Plain, arguments_of, merged, title

_QUEUED = 20_000  # spans; some 40 MB
_BATCH = 512
_TRIED = 5.0  # seconds that one batch may take, with all its tries
_PATIENCE = 10.0  # seconds that all that is queued may take at the end
_REASON = 500  # characters
_WAITING = 1_000_000  # begins that wait for their end


class Otlp(Hits):
    """Sends them as they end. `service` is what the program is called there."""

    def __init__(self, url: str, service: str, latency: tuple[str, str] | None = None, key: str = "") -> None:
        """`latency` are the probes that begin and end a span, `key` the argument that pairs them; otherwise names do.
        Raises UsageError without the SDK."""

        def part(name: str) -> Any:
            return imported(f"opentelemetry.{name}", "otlp", "--otlp")

        self._sdk, self._api = part("sdk.trace"), part("trace")
        exporter = part("exporter.otlp.proto.http.trace_exporter").OTLPSpanExporter
        self._said = _Last()
        self._ids = part("sdk.trace.id_generator").RandomIdGenerator()
        self._scope = part("sdk.util.instrumentation").InstrumentationScope("usdtbuild", __version__)
        self._resource = part("sdk.resources").Resource.create({"service.name": service})
        self._url, self._latency, self._key = url, latency, key
        self._spans = Spans(self._roles) if latency else Spans()
        self._contexts: dict[int, tuple[Any, Any]] = {}  # of begins that wait, by identity: their span's, its parent's
        self._by_key: dict[tuple[int, Value], list[Event]] = {}
        self._offset = time.time_ns() - time.monotonic_ns()
        session = imported("requests", "otlp", "--otlp").Session()
        session.hooks["response"].append(_refuse_elsewhere)
        self._sender = _Sender(exporter(endpoint=url, timeout=_TRIED, session=session))
        self._total = 0

    def _roles(self, targets: Sequence[Target]) -> list[Role]:
        assert self._latency is not None
        begin, end = self._latency
        kinds = [BEGIN if is_meant(one, begin) else END if is_meant(one, end) else POINT for one in targets]
        return [Role(kind, ("", "latency"), title(one)) for kind, one in zip(kinds, targets)]

    def start(self, targets: Sequence[Target]) -> None:
        """Learn the targets."""
        super().start(targets)
        self._spans.start(targets)

    def events(self, events: Sequence[Event]) -> None:
        """Send what has ended."""
        for event in events:
            role = self._spans.roles[event.target]
            if role.kind == BEGIN:
                self._open(event, role)
            elif role.kind == END:
                self._close(event)

    def _slot(self, event: Event) -> tuple[int, Value] | None:
        names = self._names[event.target]
        value = event.values[names.index(self._key)] if self._key in names else MISSING
        return None if value is MISSING else (event.pid, value)

    def _open(self, event: Event, role: Role) -> None:
        slot = self._slot(event) if self._key else None
        if len(self._contexts) >= _WAITING or (self._key and slot is None):
            return
        around = None if self._key else self._spans.innermost(event.tid)
        parent = self._contexts[id(around)][0] if around is not None and id(around) in self._contexts else None
        trace = parent.trace_id if parent is not None else self._ids.generate_trace_id()
        flags = self._api.TraceFlags(self._api.TraceFlags.SAMPLED)
        context = self._api.SpanContext(trace, self._ids.generate_span_id(), is_remote=False, trace_flags=flags)
        if slot is not None:
            self._by_key.setdefault(slot, []).append(event)
        else:
            self._spans.add(event)
        if slot is not None or self._spans.innermost(event.tid) is event:  # or there was no room for it
            self._contexts[id(event)] = context, parent

    def _close(self, event: Event) -> None:
        if self._key:
            slot = self._slot(event)
            waiting = self._by_key.get(slot) if slot is not None else None
            begin = waiting.pop() if waiting else None
            if slot is not None and not waiting:
                self._by_key.pop(slot, None)
            name = self._spans.roles[begin.target].name if begin is not None else ""
        else:
            span = self._spans.add(event)
            begin, name = (span.begin, span.name) if span is not None else (None, "")
        found = self._contexts.pop(id(begin), None) if begin is not None else None
        if begin is None or found is None:
            return
        context, parent = found
        self._total += 1
        self._sender.take(self._sdk.ReadableSpan(
            name=one_line(name), context=context, parent=parent, resource=self._resource,
            attributes=self._attributes(begin, event), instrumentation_scope=self._scope,
            start_time=begin.time + self._offset, end_time=max(begin.time, event.time) + self._offset,
        ))  # fmt: skip

    def _attributes(self, begin: Event, end: Event) -> dict[str, Any]:
        both = [arguments_of(self._names[one.target], self._targets[one.target], one) for one in (begin, end)]
        found: dict[str, Any] = {"process.pid": begin.pid, "thread.id": begin.tid}
        for name, value in merged(*both).items():
            found |= _attribute(name, value)
        return found

    def finish(self, report: Report) -> None:
        """Wait for what is queued, for some seconds; say what could not be delivered."""
        self._sender.finish()
        if lost := self._total - self._sender.delivered:
            self.has_failed = True
            why = one_line(self._said.text[:_REASON]) or "the collector takes too long"
            self.notes = [f"{self._url}: {lost:,} of {self._total:,} spans were not delivered: {why}"]

    def close(self) -> None:
        """Send no more."""
        self._sender.finish(patience=0.0)


def _refuse_elsewhere(answer: Any, *_: object, **__: object) -> None:
    """Make an error of an answer that leads elsewhere: nobody has taken the spans, but to the SDK it is a success."""
    if answer.status_code // 100 == 3:
        answer.reason = f"{answer.status_code}, the collector is at {answer.headers.get('Location', 'another place')}"
        answer.status_code = 400


def _attribute(name: str, value: Plain) -> dict[str, Any]:
    """Return an argument as attributes; behind its name it says what it is, where no attribute can be that."""
    if value is None:
        return {f"{name}.null": True}
    if isinstance(value, dict):
        if "text" in value:
            return {name: value["text"], f"{name}.cut": True}
        if "integer" in value and -(1 << 63) <= (number := int(value["integer"])) < 1 << 63:
            return {name: number}
        numbers = ("pointer", "integer", "float")
        return {name if kind in numbers else f"{name}.{kind}": one for kind, one in value.items()}
    return {name: value}


class _Sender:
    """Hands spans to an exporter in a thread of its own. `delivered` is how many a collector has taken."""

    def __init__(self, exporter: Any) -> None:
        self._exporter = exporter
        self._queue: queue.Queue[Any] = queue.Queue(_QUEUED)
        self.delivered = 0
        self._is_over = False
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def take(self, span: Any) -> None:
        try:
            self._queue.put_nowait(span)
        except queue.Full:
            return

    def _run(self) -> None:
        while True:
            batch = []
            try:
                batch.append(self._queue.get(timeout=0.1))
                while len(batch) < _BATCH:
                    batch.append(self._queue.get_nowait())
            except queue.Empty:
                if not batch and self._is_over:
                    return
            if batch and getattr(self._exporter.export(batch), "name", "") == "SUCCESS":
                self.delivered += len(batch)

    def finish(self, patience: float = _PATIENCE) -> None:
        self._is_over = True
        self._thread.join(patience)
        self._exporter.shutdown()


class _Last(logging.Handler):
    """Keeps what the SDK would print, of which the last is the reason."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.text = self._trouble = ""
        logger = logging.getLogger("opentelemetry")
        logger.addHandler(self)
        logger.propagate = False

    def emit(self, record: logging.LogRecord) -> None:
        """Keep it; a failure with the trouble before it, because it may say only that tries have run out."""
        said = record.getMessage()
        if record.levelno < logging.ERROR:
            self.text = self._trouble = said
        else:
            self.text, self._trouble = f"{said} {self._trouble}".rstrip(), ""
