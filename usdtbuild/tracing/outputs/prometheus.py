"""Counts, sums, distributions and latencies for Prometheus, served over HTTP while the trace runs (`--prometheus`).

What is served is what the last interval has told (`Job.every`), so a scrape touches neither the program nor its
tracer. Text, OpenMetrics and escaping are prometheus_client's. A key is served for as long as the trace lasts, since
counters must not fall: the first `_MOST_KEYS` of a table, all others together.
"""

from __future__ import annotations

import io
import math
import sys
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from ...errors import Told
from ...text import one_line
from ..measures import Tables
from ..model import Event, Report, Target
from . import COUNTS, KEYS, Output, Table, first_lacking, needs_of
from .extras import imported
from .rows import Row
from .values import title

_MOST_KEYS = 2_000
_MOST_CLIENTS, _PATIENCE = 32, 10.0  # at a time; seconds for what one says or reads
_OTHERS = "(others)"
_SECOND = 10**9
# Upper bounds that a distribution has from the beginning, since a series that begins later has no rate.
_DURATIONS = [first * 10**power for power in range(2, 11) for first in (1, 2, 5)]
_POWERS = [1 << power for power in range(0, 33, 2)]
_LABELS = ("table", "by", "key")
_NO_HITS: dict[int, int] = {}


class Prometheus(Output):
    """Serves them until it is closed."""

    def __init__(self, address: tuple[str, int], tables: Sequence[Table]) -> None:
        """Listen at an address. Raises InputError where that can't be had, UsageError without prometheus_client."""
        self._tables = tables
        self.needs = needs_of(tables)
        self._library = imported("prometheus_client", "prometheus", "--prometheus")
        self._families = imported("prometheus_client.metrics_core", "prometheus", "--prometheus")
        self._lock = threading.Lock()
        self._hits: Counter[tuple[str, str]] = Counter()
        self._lost: Counter[tuple[str, str]] = Counter()
        self._report: Report | None = None
        self._shown: dict[str, set[str]] = {}  # by table, the keys that have a series
        registry = self._library.CollectorRegistry()
        registry.register(self)
        host, port = address
        with Told(_joined(host, port), "metrics can't be served there"):
            self._server, _ = self._library.start_http_server(port, host, registry)
        _bound(self._server)
        self.notes = [f"metrics: http://{_joined(*self._server.server_address[:2])}/metrics"]

    # -- from the trace ----------------------------------------------------------------------------------------------

    def start(self, targets: Sequence[Target]) -> None:
        """Learn the targets, which have no hits yet."""
        with self._lock:
            for target in targets:
                self._hits[_labels(target)] += 0
            for one in self._tables:
                one.start(targets)
            self.lacking = first_lacking(self._tables)

    def events(self, events: Sequence[Event]) -> None:
        """Hand hits on."""
        with self._lock:
            for one in self._tables:
                if one.needs != COUNTS:
                    one.events(events)

    def interval(self, report: Report, tables: Tables) -> None:
        """Add an interval up."""
        with self._lock:
            self._report = report
            for target, hits, lost in zip(report.targets, report.counts, report.lost):
                self._hits[_labels(target)] += hits
                self._lost[_labels(target)] += lost
            for one in self._tables:
                if one.needs == KEYS:
                    one.tables(tables, _NO_HITS)

    def finish(self, report: Report) -> None:
        """Say nothing more; the last interval has come."""
        self.notes = ()

    def close(self) -> None:
        """Serve no more."""
        self._server.shutdown()
        self._server.server_close()

    # -- to Prometheus -----------------------------------------------------------------------------------------------

    def describe(self) -> list[Any]:
        """Return nothing: what there is, is known when it is asked for."""
        return []

    def collect(self) -> Iterator[Any]:
        """Yield the families of metrics."""
        with self._lock:
            found = [*self._counters(), *self._values()]
        yield from found

    def _counters(self) -> Iterator[Any]:
        for name, help_, counts in (
            ("usdt_hits", "Hits of probes and functions; with a filter, those that passed.", self._hits),
            ("usdt_lost_hits", "Hits whose arguments were lost; they are hits too.", self._lost),
        ):
            family = self._families.CounterMetricFamily(name, help_, labels=("probe", "module"))
            for labels, count in counts.items():
                family.add_metric(labels, count)
            yield family

    def _values(self) -> Iterator[Any]:
        made = self._families
        keyed = made.CounterMetricFamily("usdt_keyed_hits", "Hits by the value of an argument (--by).", labels=_LABELS)
        sums = [  # of no known type, since a sum that may be negative is no summary's
            made.UnknownMetricFamily(f"usdt_argument_{name}", f"{what} of values (--sum).", labels=_LABELS)
            for name, what in (("count", "Number"), ("sum", "Sum"))
        ]
        values = made.HistogramMetricFamily("usdt_values", "How an argument's values are distributed (--histogram).",
                                            labels=_LABELS)  # fmt: skip
        times = made.HistogramMetricFamily("usdt_latency_seconds", "Time from one probe to another (--latency).",
                                           labels=_LABELS)  # fmt: skip
        quantiles = [
            made.GaugeMetricFamily(f"{name}_percentile", f"{what} that so many percent have not exceeded in all.",
                                   labels=(*_LABELS, "percentile"))
            for name, what in (("usdt_values", "Value"), ("usdt_latency_seconds", "Time"))
        ]  # fmt: skip
        for labels, row in self._rows():
            unit = _SECOND if row.is_time else 1
            if row.quantiles:
                total = (row.total or 0) / unit
                may_be = total >= 0  # by OpenMetrics: neither a negative sum nor NaN
                (times if row.is_time else values).add_metric(labels, _buckets(row, unit), total if may_be else None)
                for name, value in row.quantiles.items() if labels[-1] != _OTHERS else ():
                    quantiles[row.is_time].add_metric((*labels, name[1:]), value / unit)
            elif row.of:
                for family, number in zip(sums, (row.hits, row.total or 0)):
                    family.add_metric(labels, number)
            else:
                keyed.add_metric(labels, row.hits)
        yield from (one for one in (keyed, *sums, values, times, *quantiles) if one.samples)

    def _rows(self) -> Iterator[tuple[tuple[str, str, str], Row]]:
        if self._report is None:
            return
        for one in self._tables:
            others: dict[str, Row] = {}
            for row in one.rows(self._report) if one.needs != COUNTS else ():
                shown = self._shown.setdefault(row.table, set())
                if row.key is not None and (row.key in shown or len(shown) < _MOST_KEYS):
                    shown.add(row.key)
                    yield (row.table, row.by, row.key), row
                else:
                    others[row.table] = others[row.table].plus(row) if row.table in others else row
            yield from (((name, row.by, _OTHERS), row) for name, row in others.items())


def _bound(server: Any) -> None:
    """Let clients be few, and none take long: anybody can connect, and each has a thread and a descriptor of ours."""
    free, handle = threading.Semaphore(_MOST_CLIENTS), server.process_request_thread

    def handled(request: object, address: object) -> None:
        try:
            handle(request, address)
        finally:
            free.release()

    server.process_request_thread = handled
    server.verify_request = lambda *_: free.acquire(blocking=False)
    server.handle_error = lambda *_: None  # that a client has gone is nothing to tell
    quiet = {"timeout": _PATIENCE, "get_stderr": lambda _: io.StringIO()}
    server.RequestHandlerClass = type("_Handler", (server.RequestHandlerClass,), quiet)


def _labels(target: Target) -> tuple[str, str]:
    return title(target), one_line(target.module.path)


def _joined(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _buckets(row: Row, unit: int) -> list[tuple[str, float]]:
    """Return how many values are not greater than each bound, in order; of floating-point numbers those below it."""
    whole = not row.is_time and isinstance(row.total, int)
    seen: Counter[float] = Counter()
    for low, high, hits in row.buckets:
        is_open = row.step or low >= 0  # classes by powers of two hold their upper bound below 0
        seen[math.ceil(high) - 1 if whole and is_open else high] += hits
    always = [] if row.step or min(seen, default=0) < 0 else [bound - whole for bound in _POWERS]
    found, below = [], 0
    for bound in sorted({*seen, *(_DURATIONS if row.is_time else always)}):
        below += seen[bound]
        if bound <= sys.float_info.max:
            found.append((repr(bound / unit), below))
    return [*found, ("+Inf", row.hits)]
