"""A trace on the command line: signals, rights, what is said beside what is shown, and the exit code.

What is traced and shown is said by the command that calls it: `trace`, `top`.
"""

from __future__ import annotations

import math
import os
import signal
import sys
from typing import TYPE_CHECKING, NamedTuple, NoReturn

from ..ending import INTERRUPTED
from ..errors import InputError, UsdtError
from ..launch.orphans import adopt
from ..text import few, one_line
from .say import echo, is_quiet, remark
from .trace_end import by_reason, how_ended, tell, tell_absent, tell_children, tell_many, tell_news

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ..api import Asked
    from ..outputs import Outputs
    from ..tracing.follower import Follower
    from ..tracing.job import Job
    from ..tracing.model import Report, Target
    from ..tracing.outputs.choose import Wishes
    from ..tracing.tracer import Tracer


_NO_HITS = 4  # the exit code of --require-hits
_FEW = 3  # names that are told


def code_of(stopped: list[int], ended: int | None) -> int:
    """Return the code for `end`: of a signal that asked for the end, else of how the command ended (see `Report`)."""
    if stopped:
        return -stopped[0]
    return 0 if ended is None else ended if ended >= 0 else 128 - ended


def end(code: int) -> NoReturn:
    """End with an exit code, or, where it is negative, as that signal would have ended us: all is written.

    Python isn't taken apart, which would take longer than letting go of a program.
    """
    if code < 0:
        signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


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


class EarlyError(Exception):
    """A signal has ended a trace before everything was armed."""

    def __init__(self, number: int) -> None:
        self._number = number
        super().__init__("the trace was ended before everything was armed: all was put back, and nothing is shown")

    def told(self) -> int:
        """Say it, and return the code for `end`."""
        remark(str(self))
        return INTERRUPTED if self._number == signal.SIGINT else -self._number


class Until(NamedTuple):
    """What is said beside what is shown, and how the exit code is meant. `lacking` returns what else there is to say of
    names that nothing of the targets has. `pair` are the names of `--latency` where nothing else says what to trace."""

    verbose: bool = False
    require_hits: bool = False
    lacking: Callable[[Sequence[Target]], Sequence[str]] = lambda _: ()
    pair: tuple[str, ...] = ()


def run(asked: Asked, wishes: Wishes, until: Until) -> int:
    """Trace, and show what is wished; return the code for `end`. Raises UsdtError."""
    from .. import rights
    from ..outputs import Outputs
    from ..tracing.follower import Follower, planned
    from ..tracing.outputs.choose import choose

    job, wishes, sieve = planned(asked.job, wishes, asked.sieve)
    if wishes.latency and asked.job.wanted.is_open:
        until = until._replace(pair=wishes.latency)
    try:
        with tracer_for(job) as tracer, Outputs() as staged, choose(wishes, staged, sys.stdout) as output:
            for note in output.notes:
                remark(note, always=wishes.prometheus is not None and not wishes.prometheus[1])  # which port that is
            code = _trace(Follower(tracer, output, sieve, asked.limit), until, staged)
    except EarlyError as early:
        return early.told()
    except InputError as error:
        raise (rights.with_way_out(error) if job.user is not None else error) from None
    if (broken := output.broken()) is not None:  # only now that the files are there
        raise broken
    return code


def _trace(follower: Follower, until: Until, staged: Outputs) -> int:
    """Do it; return the exit code: the program's own, if it was started here; minus a signal that asked for the end."""
    from ..tracing.absent import absent, still
    from ..tracing.retyped import unused
    from ..tracing.running import named

    session, output = follower.tracer, follower.output
    job = session.wish
    stopped = _started(follower, until.pair)
    tell_news(session)
    if until.verbose:
        remark(f"tracing {named(job.pids or (session.pid,))}" if session.pid else "tracing")
    tell_many(session.targets)
    missing = absent(job, session.targets, session.pid, until.pair)
    # What a command has only begun to load isn't missed yet, unless something there has nearly that name.
    late = [one for one in missing if job.argv and not (one.near or one.cure or one.without)]
    tell_absent([*(str(one) for one in missing if one not in late), *until.lacking(session.targets)])
    for pid in job.pids if job.children and not job.running else ():
        tell_children(pid, job)
    follower.go()
    for _ in follower.batches():
        if not output.is_live:
            tell_news(session)
    report = follower.finish()
    tell_news(session)
    never = still(missing, job.wanted, report)
    for note in output.notes:
        if output.has_failed:
            echo(f"usdtbuild: {note}", err=True)
        else:
            remark(note)
    limit = follower.limit if follower.sieve is None else None
    # Said once: at the begin, if nothing has come since; else now, in full if it wasn't said then.
    ends = [str(one) if one in late and one.names else one.was for one in never
            if one in late or report.targets or is_quiet()]  # fmt: skip
    tell(report, job, session.stood_still, until.verbose, ends if never else None, limit)
    for note in session.damage:
        remark(note, always=True)  # what is shown doesn't say that it is wrong
    untyped = unused(job.wanted.shown_as, report.targets)
    for note in dict.fromkeys([*untyped, *session.warnings, *(session.notes if until.verbose else ())]):
        remark(note)
    ended = how_ended(job, session.pid, report, follower.is_interrupted)
    if follower.limit is None and session.left_out:
        cure = "; -o FILE has all of them" if output.passing and math.isfinite(job.duration) and not stopped else ""
        remark(f"warning: {session.left_out} hits were seen and are left out{cure}")
    if follower.limit is not None and (beyond := sum(report.counts) - follower.limit) > 0:
        remark(f"{beyond} more hits than --limit came before the trace ended, and are counted, too")
    staged.is_dropped = is_nothing = not report.targets and bool(never or report.refusals)
    code = code_of(stopped, ended) or bool(never or output.has_failed or is_nothing)
    follower.check(is_said=bool(never))
    if until.require_hits and not code and (why := _incomplete(report)):
        echo(f"usdtbuild: {why} (--require-hits)", err=True)
        return _NO_HITS
    return code


def _started(follower: Follower, pair: tuple[str, ...]) -> list[int]:
    """Do as `start` does. Of a name of --latency that nothing has, say what there is instead, or why it isn't traced:
    who pairs hits knows only of what is traced."""
    from ..tracing.absent import AbsentError, absent, refused_as

    try:
        return start(follower)
    except AbsentError as error:
        tracer = follower.tracer
        if pair and (missing := absent(tracer.wish, tracer.targets, tracer.pid, pair)):
            raise AbsentError("\n".join(map(str, missing))) from None
        if refused := refused_as(error.pattern, tracer.refusals):
            raise AbsentError("\n".join(f"not traced: {one}" for one in by_reason(refused))) from None
        raise


def _incomplete(report: Report) -> str:
    """Return why hits aren't all there, '' if they are."""
    if any(report.lost):
        return "hits were lost"
    if report.is_damaged:
        return "the program has damaged what was traced"
    if not any(report.counts):
        return "nothing was hit"
    unseen = few([*map(one_line, report.unseen)], _FEW)
    return unseen and f"hits may be missing: not all places of {unseen} were traced"


def start(follower: Follower) -> list[int]:
    """Start the trace; return where signals come that end us. Raises UsdtError, and EarlyError if one has come before
    everything was armed."""
    early: list[int] = []
    came = _stop_by_signals(follower, early)
    try:
        follower.start()
    except UsdtError:
        if not early:  # else what is wrong comes from that
            raise
    if early:
        raise EarlyError(early[0])
    return came


def _stop_by_signals(follower: Follower, early: list[int]) -> list[int]:
    """Let signals end the trace and not us, so that what was seen gets written; return where those come that end us.

    Ctrl-C is how a trace is ended, and doesn't once that has begun. A traced command gets it too, and may end by it. A
    second signal leaves out what was seen and not shown yet, which may be more than anybody wants to wait for. What
    comes before the trace has begun is in `early`: a command ends then that has only been started to be traced.
    """
    came: list[int] = []
    again = False
    session = follower.tracer

    def stop(number: int, _: object) -> None:
        nonlocal again
        follower.is_interrupted |= number == signal.SIGINT
        if not follower.has_begun:
            early.append(number)
            session.kill()
        elif number != signal.SIGINT:
            came.append(number)
        if again:
            session.skip()
        again = True
        if session.wish.argv:
            adopt()  # the program may end when the worker, whose child it is, is gone
        session.stop()

    if session.wish.last is not None:
        signal.signal(signal.SIGUSR1, lambda *_: session.dump())
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) != signal.SIG_IGN:  # as under nohup
            signal.signal(number, stop)
    return came
