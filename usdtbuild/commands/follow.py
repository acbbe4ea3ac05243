"""A trace from its start to its exit code: hits are handed to outputs until it is enough.

What is traced and shown is said by the command that calls it: `trace`, `top`.
"""

from __future__ import annotations

import math
import os
import signal
import sys
import time
from itertools import zip_longest
from typing import TYPE_CHECKING, NamedTuple

from ..errors import InputError, UsageError
from ..tracing.measures import since
from .say import echo, remark
from .trace_end import tell, tell_children, tell_what_runs_on

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..tracing.job import Job
    from ..tracing.measures import Tables
    from ..tracing.model import Event, Report, Totals
    from ..tracing.outputs.choose import All, Wishes
    from ..tracing.sieve import Sieve
    from ..tracing.tracer import Reading, Tracer


_NO_HITS = 4  # the exit code of --require-hits
_QUICKLY = 4096  # hits that wait when --duration is over, and are shown still: that takes 50 ms


def code_of(stopped: list[int], ended: int | None) -> int:
    """Return the code for `end`: of a signal that asked for the end, else of how the command ended (see `Report`)."""
    if stopped:
        return -stopped[0]
    return 0 if ended is None else ended if ended >= 0 else 128 - ended


def end(code: int) -> None:
    """End with an exit code, or, where it is negative, as that signal would have ended us: all is written."""
    if code < 0:
        signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    sys.exit(code)


def tracer_for(job: Job) -> Tracer:
    """Return the tracer for a job, not started yet, with fewer rights. Raises UsageError and NoTracerError."""
    from ..apart import reader
    from ..rights import give_up
    from ..tracing.tracer import choose

    def tell(text: str) -> None:
        remark(text)

    if job.user is None and not (job.as_user or job.remote or job.emulator):
        reader("")  # who reads files for the worker; root is warned here, which has a terminal
    tracer = choose(job, tell, lambda: give_up(job.user))
    if job.user is not None and job.argv and not job.as_user and not job.remote:
        tell(f"{job.argv[0]} runs as root; --user {job.user.name} runs it as {job.user.name}")
    return tracer


class Until(NamedTuple):
    """When a trace ends (seconds, hits), and what is said then."""

    duration: float | None = None
    limit: int | None = None
    verbose: bool = False
    require_hits: bool = False


def run(job: Job, wishes: Wishes, sieve: Sieve | None, until: Until) -> int:
    """Trace, and show what is wished; return the code for `end`. Raises UsdtError."""
    from .. import rights
    from ..outputs import Outputs
    from ..tracing.outputs import EVENTS
    from ..tracing.outputs.choose import choose, measures, needs

    passing = sieve.filter if sieve is not None else None
    if wishes.only_pairs:
        wishes, sieve = wishes._replace(where=passing), None
    elsewhere = passing if sieve is not None else None
    job = job.adding_up(passing, measures(wishes)) if needs(wishes) != EVENTS else job.passing(elsewhere)
    try:
        with tracer_for(job) as session, Outputs() as staged, choose(wishes, staged, sys.stdout) as output:
            return _trace(session, output, sieve, until)
    except InputError as error:
        raise (rights.with_way_out(error) if job.user is not None else error) from None


def _trace(session: Tracer, output: All, sieve: Sieve | None, until: Until) -> int:
    """Do it; return the exit code: the program's own, if it was started here; minus a signal that asked for the end."""
    from ..tracing.absent import absent, unmatched
    from ..tracing.model import COUNT

    job = session.wish
    stopped = stop_by_signals(session)
    session.start()
    if until.verbose:
        remark(f"tracing process {session.pid}")
    _announce(session, output, sieve, begun=False)
    missing = absent(job, session.targets, session.pid)
    for one in missing:
        remark(f"warning: {one} (libraries that are loaded later are looked at, too)")
    if job.pid and job.children:
        tell_children(job.pid)
    session.go()
    names, intervals = _ThreadNames(here=not job.remote), _Intervals(session, output, sieve)
    _follow(session, output, sieve, names, intervals, until, counts=session.wish.what == COUNT)
    output.counts(_totals(session, sieve))
    report = session.report()
    report = report._replace(threads={**report.threads, **names.known})
    if sieve is not None:
        refusals = (*report.refusals, *sieve.refused)
        report = report._replace(counts=sieve.counts(session.passed), refusals=refusals, unfiltered=report.counts)
    if math.isfinite(job.every):
        intervals.show(report, session.tables)
    output.tables(session.tables, session.passed)
    output.finish(report)
    never = [one for one in missing if (one.rule, one.pattern) in unmatched(job.wanted, report.targets)]
    tell(report, output.notes, job, session.stood_still, until.verbose, never)
    for note in dict.fromkeys([*session.warnings, *(session.notes if until.verbose else ())]):
        remark(note)
    tell_what_runs_on(job, session.pid, report)
    if until.limit is None and session.left_out:
        cure = "; -o FILE has all of them" if output.passing and until.duration is not None and not stopped else ""
        remark(f"warning: {session.left_out} hits were seen and are left out{cure}")
    code = code_of(stopped, report.exit_code if job.argv else None) or bool(never)
    if until.require_hits and not code and (any(report.lost) or not any(report.counts)):
        echo(f"usdtbuild: {'hits were lost' if any(report.lost) else 'nothing was hit'} (--require-hits)", err=True)
        return _NO_HITS
    return code


def stop_by_signals(session: Tracer) -> list[int]:
    """Let signals end the trace and not us, so that what was seen gets written; return where those come that end us.

    Ctrl-C is how a trace is ended, and doesn't. A traced command gets it too, and may end by it. A second signal leaves
    out what was seen and not shown yet, which may be more than anybody wants to wait for.
    """
    came: list[int] = []
    again = False

    def stop(number: int, _: object) -> None:
        nonlocal again
        if number != signal.SIGINT:
            came.append(number)
        if again:
            session.skip()
        again = True
        session.stop()

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) != signal.SIG_IGN:  # as under nohup
            signal.signal(number, stop)
    return came


def _announce(session: Tracer, output: All, sieve: Sieve | None, *, begun: bool = True) -> None:
    """Tell of the targets that there are. Raises UsageError where what is asked for makes no sense with them.

    A program that was started only to be traced ends then; if it is held, without having begun.
    """
    try:
        if sieve is not None:
            sieve.start(session.targets)
        output.start(session.targets)
    except UsageError:
        if session.wish.argv:
            (session.terminate if begun else session.kill)()
        raise


def _follow(
    session: Tracer, output: All, sieve: Sieve | None, names: _ThreadNames, intervals: _Intervals,
    until: Until, *, counts: bool,
) -> None:  # fmt: skip
    """Hand over what comes until it is enough; `counts`: no hits come, only how many there were.

    When the time is over files still get all that was seen, and tables too. Of lines on a terminal nobody reads
    millions, so they end.
    """
    known, seen = len(session.targets), 0
    duration, limit = until.duration, until.limit
    deadline = time.monotonic() + duration if duration is not None else None
    batches = session.batches(0.05)
    while True:
        batch: Sequence[Event] | None = next(batches, None)
        if (reading := session.reading()) is not None:
            intervals.tell(reading)
        if batch is None:
            return
        names.learn(batch)
        if len(session.targets) > known:
            known = len(session.targets)
            _announce(session, output, sieve)
        if sieve is not None:
            batch = sieve.take(batch)
        totals = _totals(session, sieve)
        if limit is not None:
            batch = batch[: limit - seen]
            seen = sum(totals.counts.values()) if counts else seen + len(batch)
        if batch:
            output.events(batch)
        output.counts(totals)
        is_over = deadline is not None and time.monotonic() >= deadline
        if is_over or (limit is not None and seen >= limit):
            session.stop()
            if (limit is not None and seen >= limit and not counts) or (
                is_over and output.passing and session.waiting > _QUICKLY
            ):
                session.skip()


def _totals(session: Tracer, sieve: Sieve | None) -> Totals:
    """Return hits so far, of a filter those that have passed."""
    totals = session.totals
    return totals if sieve is None else totals._replace(counts=dict(enumerate(sieve.counts(session.passed))))


class _Intervals:
    """Tells an output of the hits between one reading and the next."""

    def __init__(self, session: Tracer, output: All, sieve: Sieve | None) -> None:
        self._session, self._output, self._sieve = session, output, sieve
        self._before: Report | None = None
        self._tables: Tables = {}

    def tell(self, reading: Reading) -> None:
        """Tell of what has come since the reading before."""
        numbers = range(len(self._session.targets))
        hits, lost = (tuple(found.get(number, 0) for number in numbers) for found in reading.totals)
        report = self._session.report()._replace(counts=hits, lost=lost, ended=reading.time)
        if self._sieve is not None:
            report = report._replace(counts=self._sieve.counts(reading.passed), unfiltered=hits)
        self.show(report, reading.tables)

    def show(self, report: Report, tables: Tables) -> None:
        """Tell of what has come since then, of hits and tables up to now."""
        before, self._before = self._before or _nothing(report), report
        passed = report._replace(
            counts=_more(report.counts, before.counts), lost=_more(report.lost, before.lost),
            unfiltered=_more(report.unfiltered, before.unfiltered),
            started=before.ended,
        )  # fmt: skip
        self._output.interval(passed, since(tables, self._tables))
        self._tables = tables


def _nothing(report: Report) -> Report:
    """Return the report of a trace's beginning."""
    return report._replace(counts=(), lost=(), unfiltered=(), ended=report.started)


def _more(now: Sequence[int], before: Sequence[int]) -> tuple[int, ...]:
    """Return by how much counts have grown."""
    return tuple(max(0, count - was) for count, was in zip_longest(now, before, fillvalue=0))


class _ThreadNames:
    """What threads are called, learned while they are there: at once, and ten times a second, since names change."""

    def __init__(self, *, here: bool) -> None:
        """`here`: they are threads of this machine."""
        self._here = here
        self.known: dict[int, str] = {}
        self._again = 0.0

    def learn(self, events: Sequence[Event]) -> None:
        """Look at the threads of these hits."""
        from ..tracing.session import thread_name

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
