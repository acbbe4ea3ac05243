"""A trace from its start to its end: hits that pass are handed to an output until it is enough.

There is no other way to run a tracer: the command line, the Python interface and the pytest plugin use this one.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from typing import IO

from ..errors import UsdtError
from .frames import Frames
from .job import Job
from .last import check_in_place
from .measures import CALLS, Tables, since
from .model import COUNT, DEEPEST, Event, Report, Totals
from .outputs import EVENTS, Output
from .outputs.choose import All, Wishes, measures, needs
from .selection import PROBE_RULE
from .session import thread_name
from .sieve import Sieve
from .tracer import Reading, Tracer

_QUICKLY = 4096  # hits that wait when the time is over, and are shown still: that takes 50 ms


def planned(job: Job, wishes: Wishes, sieve: Sieve | None) -> tuple[Job, Wishes, Sieve | None]:
    """Return what has to be done so that outputs get what they need, and no more. Raises UsageError.

    Where nothing is said of what to trace, those probes are that are to be paired.
    """
    wanted = job.wanted
    if wishes.latency and wanted.is_open:
        order = (*wanted.order, *((PROBE_RULE, one) for one in wishes.latency)) if wanted.order else ()
        job = job._replace(wanted=wanted._replace(probes=wishes.latency, order=order))
    wanted = job.wanted
    if job.until is not None and not wanted.is_open:
        order = (*wanted.order, (PROBE_RULE, job.until.pattern)) if wanted.order else ()
        job = job._replace(wanted=wanted._replace(probes=(*wanted.probes, job.until.pattern), order=order))
    where = sieve.filter if sieve is not None else None
    if wishes.only_pairs and not (wishes.counting and sieve is not None):  # counts are of hits that pass
        wishes, sieve = wishes._replace(where=where, alone=True), None
    if CALLS in wishes.by.split(",") and not job.stack:
        job = job._replace(stack=DEEPEST)
    wishes = wishes._replace(stacks=bool(job.stack))
    needed, values = needs(wishes)
    # Where a hit is tried in the program, its time is another by some nanoseconds than the one that is tried here.
    is_tried_here = sieve is not None and (wanted.returns or "time" in sieve.filter.names())
    if needed != EVENTS or is_tried_here or wanted.frames or job.patience or job.last is not None:
        job = job._replace(enough=0)
    job = job._replace(arguments=values or sieve is not None)
    if needed != EVENTS:
        return job.adding_up(where, measures(wishes)), wishes, sieve
    return job.passing(where if sieve is not None else None), wishes, sieve


class Follower:
    """Follows one trace: `start`, `go`, all `batches`, `finish`."""

    def __init__(
        self, tracer: Tracer, output: Output | None = None, sieve: Sieve | None = None, limit: int | None = None
    ) -> None:
        """Hits that pass the sieve go to the output. The trace ends after so many hits, or the time of its job."""
        self.tracer, self.output, self.sieve, self.limit = tracer, output or All(), sieve, limit
        self._names, self._intervals = _ThreadNames(here=not tracer.wish.remote), _Intervals(self)
        self._frames = Frames(tracer.wish.cut) if tracer.wish.wanted.frames else None
        self._known = 0
        self._taken: Counter[int] = Counter()  # hits within the limit, where they are events
        self._looked_at = 0  # events until there were these
        self.has_begun = self.is_interrupted = False  # by Ctrl-C

    def start(self, *streams: IO[bytes]) -> None:
        """Begin; the streams are `Tracer.start`'s. Raises UsdtError, also where what is asked for makes no sense with
        what is there: a program that was started only to be traced ends then, without having begun if it is held.
        """
        self.tracer.start(*streams)
        self._announce()
        self.has_begun = True

    def go(self) -> None:
        """Let a program begin that is held."""
        self._until = time.monotonic() + self.tracer.wish.duration
        self.tracer.go()

    def batches(self, timeout: float = 0.05) -> Iterator[Sequence[Event]]:
        """Yield hits that pass, when the output has had them, until it is enough.

        Where hits are only counted, empty batches come. When the time is over files still get all that was seen, and
        tables too. Of lines on a terminal nobody reads millions, so they end. Raises UsdtError.
        """
        tracer, seen, counts = self.tracer, 0, self.tracer.wish.what == COUNT
        batches = tracer.batches(min(timeout, max(0.001, tracer.wish.duration)))
        while True:
            batch = next(batches, None)
            if (reading := tracer.reading()) is not None:
                self._intervals.tell(reading)
            if batch is None:
                return
            self._names.learn(batch)
            all_ = batch
            if len(tracer.targets) > self._known:
                self._announce()
            if self.sieve is not None:
                batch = self.sieve.take(batch)
            if self._frames is not None:
                batch = self._frames.take(batch)
            totals = self.totals()
            if self.limit is not None:
                batch = batch[: self.limit - seen]
                seen = sum(totals.counts.values()) if counts else seen + len(batch)
                if not counts:
                    self._take(batch, all_, is_full=seen >= self.limit)
            if batch:
                self.output.events(batch)
            self.output.counts(totals)
            yield batch
            is_late, is_full = time.monotonic() >= self._until, self.limit is not None and seen >= self.limit
            if is_late or is_full or self.output.broken() is not None:
                tracer.stop()
                if (is_full and not counts) or (
                    is_late and self.output.passing and not tracer.wish.last and tracer.waiting > _QUICKLY
                ):
                    tracer.skip()

    def _take(self, batch: Sequence[Event], all_: Sequence[Event], *, is_full: bool) -> None:
        """Count hits within the limit, and how many there were until then in all, those that don't pass included."""
        if is_full and not batch:  # since the last time
            return
        self._taken.update(event.target for event in batch)
        last = batch[-1] if is_full else None
        self._looked_at += next((at for at, one in enumerate(all_, 1) if one is last), len(all_))

    def finish(self) -> Report:
        """Finish the output; return how the trace was."""
        tracer = self.tracer
        self.output.counts(self.totals())
        report = self.report()
        if self._frames is not None:
            self.output.events(self._frames.finish(report.ended, {one.what for one in report.refusals}))
        if math.isfinite(tracer.wish.every):
            self._intervals.show(report, tracer.tables)
        self.output.tables(tracer.tables, tracer.passed)
        self.output.finish(report)
        return report

    def check(self, *, is_said: bool = False) -> None:
        """Raise what is wrong with what was asked for, if nothing that has come makes sense with it. Where it `is_said`
        that patterns match nothing, that is enough."""
        lacking = self.output.lacking or (self.sieve.lacking if self.sieve is not None else None)
        if lacking is not None and not is_said:
            raise lacking

    def report(self) -> Report:
        """Return how the trace was, of a filter with the hits that have passed."""
        report = self.tracer.report()
        report = report._replace(threads={**report.threads, **self._names.known})
        if self.sieve is not None:
            refusals = (*report.refusals, *self.sieve.refused)
            passed = self.sieve.counts(self.tracer.passed)
            report = report._replace(counts=passed, refusals=refusals, unfiltered=report.counts)
        return self.within_limit(report)

    def within_limit(self, report: Report) -> Report:
        """Return a report that counts no hits beyond the limit, nor those of which it is sure that they were lost
        behind it."""
        if self.limit is None or self._taken.total() < self.limit:
            return report
        counts = tuple(self._taken[one.number] for one in report.targets)
        if self._looked_at <= self.tracer.surely:
            return report._replace(counts=counts, lost=(0,) * len(counts))
        return report._replace(counts=counts, unfiltered=report.hits)

    def totals(self) -> Totals:
        """Return hits so far, of a filter those that have passed."""
        totals = self.tracer.totals
        if self.sieve is None:
            return totals
        return totals._replace(counts=dict(enumerate(self.sieve.counts(self.tracer.passed))))

    def _announce(self) -> None:
        """Tell of the targets that there are; where that is refused at the begin, a program that was started is
        ended."""
        job, targets, is_begin = self.tracer.wish, self.tracer.targets, not self.has_begun
        try:
            self._known = len(targets)
            if self.sieve is not None:
                self.sieve.start(targets, strict=is_begin)
            if self._frames is not None:
                self._frames.start(targets)
            if is_begin and targets and job.until is not None:
                job.until.check(targets)
            for target in targets if is_begin and job.last is not None else ():
                check_in_place(job.where, target)
            self.output.start(targets)
        except UsdtError:
            if is_begin and job.argv:
                self.tracer.kill()
            raise


class _Intervals:
    """Tells an output of the hits between one reading and the next."""

    def __init__(self, follower: Follower) -> None:
        self._follower = follower
        self._before: Report | None = None
        self._tables: Tables = {}

    def tell(self, reading: Reading) -> None:
        tracer, sieve = self._follower.tracer, self._follower.sieve
        numbers = range(len(tracer.targets))
        hits, lost = (tuple(found.get(number, 0) for number in numbers) for found in reading.totals)
        report = tracer.report()._replace(counts=hits, lost=lost, ended=reading.time)
        if sieve is not None:
            report = report._replace(counts=sieve.counts(reading.passed), unfiltered=hits)
        self.show(self._follower.within_limit(report), reading.tables)

    def show(self, report: Report, tables: Tables) -> None:
        before, self._before = self._before or _nothing(report), report
        passed = report._replace(
            counts=_more(report.counts, before.counts), lost=_more(report.lost, before.lost),
            unfiltered=_more(report.unfiltered, before.unfiltered),
            started=before.ended,
        )  # fmt: skip
        self._follower.output.interval(passed, since(tables, self._tables))
        self._tables = tables


def _nothing(report: Report) -> Report:
    return report._replace(counts=(), lost=(), unfiltered=(), ended=report.started)


def _more(now: Sequence[int], before: Sequence[int]) -> tuple[int, ...]:
    return tuple(max(0, count - was) for count, was in zip_longest(now, before, fillvalue=0))


class _ThreadNames:
    """What threads are called, learned while they are there: at once, and ten times a second, since names change."""

    def __init__(self, *, here: bool) -> None:
        """`here`: they are threads of this machine."""
        self._here = here
        self.known: dict[int, str] = {}
        self._again = 0.0

    def learn(self, events: Sequence[Event]) -> None:
        tids = {event.tid for event in events} if self._here else set()
        now = time.monotonic()
        if now < self._again:
            tids.difference_update(self.known)
        else:
            self._again = now + 0.1
        for tid in tids:
            name = thread_name(tid)
            if name:
                self.known[tid] = name
