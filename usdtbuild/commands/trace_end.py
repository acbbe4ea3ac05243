"""What `usdtbuild trace` says at its end beside what was seen: what wasn't traced, what was lost, what runs on."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import time
from typing import TYPE_CHECKING

from ..text import few, one_line
from .say import echo, remark

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ..tracing.job import Job
    from ..tracing.model import Refusal, Report, Target
    from ..tracing.selection import Wanted
    from ..tracing.tracer import Tracer

_CROWD = 10_000  # functions, which take a second to be switched on
_FEW = 3  # so many places that were not traced are told one by one, unasked
_PATIENCE = 100  # hundredths of a second for the worker, which has nothing left to do, to end
_MANY = 8  # more of them are told together where nothing was hit


def _nothing_of(wanted: Wanted) -> str:
    asked = {"probes": wanted.probes, "functions": wanted.functions, "library calls": wanted.calls}
    named = {what: patterns for what, patterns in asked.items() if patterns}
    cures = {"probes": "usdtbuild list FILE", "functions": "usdtbuild functions FILE", "library calls": "nm -uD FILE"}
    cure = f"; {' and '.join(cures[what] for what in named or ['probes'])} would show what a file has"
    if not named and (wanted.exclude or wanted.modules):
        return f"no probes that -x and --module leave{cure}"
    if not named:
        return f"no probes, and neither have its libraries{cure}; -F GLOB traces functions"
    which = ", ".join(one for patterns in named.values() for one in patterns)
    return f"none of the {' or '.join(named)} that were asked for ({which}){cure}"


def tell_nothing(report: Report, what: str, *, always: bool = False) -> None:
    """Say `what` a program hasn't got, of which nothing was traced, if that is known: of all files, and looked up.
    `always` is as for `remark`."""
    if not report.looked_up:
        remark("the trace ended before it was known what there is to trace", always=always)
    elif not report.refusals:
        remark(f"warning: the program has {what}", always=always)


def tell(
    report: Report, job: Job, stood_still: float, verbose: bool,
    never: Sequence[str] | None = None, limit: int | None = None,
) -> None:  # fmt: skip
    """Say what a user must know beside what was seen.

    `stood_still` is in seconds; `never` says which patterns nothing has matched, as far as that isn't told yet; None if
    there are none. `limit` is how many hits are enough, all of them.
    """
    told = verbose or not any(report.counts) or len(report.refusals) <= _FEW
    lines = map(str, report.refusals) if verbose else by_reason(report.refusals) if told else ()
    for line in lines:
        remark(f"not traced: {line}")
    for one in never or ():
        echo(f"usdtbuild: {one}", err=True)
    if job.exes and not report.looked_up:
        remark(f"warning: no process has run {' or '.join(job.exes)}")
    elif not report.targets and never is None:
        tell_nothing(report, _nothing_of(job.wanted))
    elif not told:
        remark(f"{len(report.refusals)} places were not traced; -v says which and why")
    if any(report.lost):
        unseen = report.unfiltered and job.where is None
        filtered = ", and the filter didn't see them" if unseen else ""
        if unseen and limit is not None:
            filtered = f", some of them perhaps before the last of these {limit}"
        cure = "; --buffer makes more room" + ("" if unseen else ", --count needs none")
        why = ", because they came faster than they could be read"
        echo(
            f"usdtbuild: warning: {sum(report.lost)} of {sum(report.hits)} hits were lost"
            + (filtered if report.is_damaged else why + filtered + cure),
            err=True,  # also with --quiet: what is shown doesn't say what it lacks
        )
    for target, count, lost in zip(report.targets, report.hits, report.lost) if verbose else ():
        if lost:
            remark(f"lost: {lost} of {count} hits of {target.title}")
    if verbose and report.stops is not None:
        cost = f", each for {report.stops.cost / 1000:.0f} us and what is done there" if report.stops.cost else ""
        remark(f"breakpoints have stopped threads {report.stops.times} times{cost}")
    if verbose:
        who = "all processes together" if job.several else "the program"
        still = f"; {who} stood still for {stood_still * 1000:.1f} ms" if stood_still else ""
        remark(f"traced with {' and '.join(report.engines) or 'nothing'}{still}")


def tell_absent(absent: Sequence[str]) -> None:
    """Say what isn't there when a trace begins."""
    for one in absent:
        remark(f"warning: {one} (libraries that are loaded later are looked at, too)")


def tell_many(targets: Sequence[Target]) -> None:
    """Say how many functions there are to trace, if that takes seconds, and how there are fewer."""
    if len(targets) > _CROWD:
        remark(f"{len(targets):,} functions and probes are traced; narrower patterns, -x and -Z choose fewer")


def by_reason(refusals: Sequence[Refusal]) -> Iterator[str]:
    """Yield what wasn't traced: each for itself if they are few, else a few of those with the same reason."""
    if len(refusals) <= _MANY:
        yield from map(str, refusals)
        return
    alike: dict[tuple[str, str], list[Refusal]] = {}
    for one in refusals:
        alike.setdefault((re.sub(r" \(bytes [^)]*\)", "", one.reason), one.cure), []).append(one)
    for (reason, cure), group in sorted(alike.items(), key=lambda item: -len(item[1]))[:_MANY]:
        names = list(dict.fromkeys(one_line(one.what) for one in group))
        yield f"{few(names, _FEW)}: {reason}" + (f"; {cure}" if cure else "")
    yield f"{len(refusals):,} places in all; -v names each"


def how_ended(job: Job, pid: int, report: Report, interrupted: bool) -> int | None:
    """Return how a program that was started only to be traced has ended, as `Report` does; say it if it runs on.

    Ctrl-C is for the program, too: it may die of it just when it is let go, and how may be nobody's to know.
    """
    if not job.argv or report.exit_code is not None or not pid:
        return report.exit_code if job.argv else None
    from ..tracing.running import status_field

    if (code := _code_of_orphan(pid)) is not None:
        return code
    if status_field(pid, "State")[:1] not in {"", "Z", "X"}:
        remark(f"{job.argv[0]} (process {pid}) runs on, and isn't traced any more")
        return None
    return -signal.SIGINT if interrupted else None


def _code_of_orphan(pid: int) -> int | None:
    """Return how a program has ended whose parent, the tracer's worker, is gone or going; None if it hasn't, or if that
    is left to somebody else."""
    from ..tracing.running import status_field

    for _ in range(_PATIENCE):
        with contextlib.suppress(ChildProcessError):
            found, status = os.waitpid(pid, os.WNOHANG)
            return os.waitstatus_to_exitcode(status) if found else None
        if status_field(pid, "State")[:1] != "Z":
            break
        time.sleep(0.01)
    return None


def tell_news(session: Tracer) -> None:
    """Say what is of interest at once."""
    for text in session.news:
        remark(text)
    session.news.clear()


def tell_children(pid: int, job: Job) -> None:
    """Say it if a process that is attached to has children that run already: without --children those aren't traced,
    unless they are named, too. What it has started since is."""
    from ..tracing.running import descendants, status_field

    children = [one for one in descendants([pid]) if one.parent == pid and one.pid not in job.pids]
    left = [one.pid for one in children if one.is_there() and status_field(one.pid, "TracerPid") == "0"]
    if left:
        few = ", ".join(map(str, left[:_FEW])) + (", ..." if len(left) > _FEW else "")
        number = "a child that runs" if len(left) == 1 else f"{len(left)} children that run"
        which = "that isn't" if len(left) == 1 else "these aren't"
        others = ("only what it starts from now on; --children traces all" if job.engine != "gdb" else
                  "nor is what it starts; --children without --engine gdb traces all")  # fmt: skip
        remark(f"process {pid} has {number} already ({few}): {which} traced, {others}")
