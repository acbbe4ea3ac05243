"""`trace --report`, `--graph` and `--diff`: what calls of functions add up to."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from ..api import Asked
from ..errors import Told, UsageError
from ..text import one_line
from ..tracing.absent import Absent
from ..tracing.call_report import REPORT
from ..tracing.call_tree import CallTree
from ..tracing.job import Cut, Job
from ..tracing.model import Report, Target
from ..tracing.outputs.choose import Wishes
from ..tracing.outputs.rows import room_of
from ..tracing.tracer import AUTO
from .follow import EarlyError, Until, code_of, run, start, tracer_for
from .say import echo, remark
from .trace_end import by_reason, tell_absent, tell_many, tell_nothing
from .trace_options import CALLS, CUT, clashing, fields


def compare(said: Mapping[str, Any]) -> int:
    """Show what has changed between two reports; return the code for `end`."""
    from ..tracing.call_report import diff_lines, read_report

    if said.keys() - {"diff", "sort", "top"}:
        raise UsageError("--diff compares two reports and traces nothing; only --sort and --top go with it")
    sort = said.get("sort", "total")
    if sort == "max":
        raise UsageError("--diff shows total, self and calls: --sort by one of these")
    old, new = map(read_report, said["diff"])
    _print(diff_lines(old, new, sort, said.get("top"), room_of(sys.stdout)))
    return 0


def _named(targets: Sequence[Target], pattern: str) -> frozenset[str]:
    """Return the functions that --graph=FUNC means, as they are shown."""
    from ..tracing.outputs.values import function_names
    from ..tracing.selection import called, matches

    names = zip(function_names(targets), targets)
    return frozenset(name for name, one in names if matches(called(one), pattern))


def _lacking(cut: Cut, graph: str | None, targets: Sequence[Target]) -> list[str]:
    """Return what there is to say of names that are not there: of options that choose calls, and of --graph=FUNC."""
    found = [str(_absent(targets, graph, "--graph="))] if graph and targets and not _named(targets, graph) else []
    return found + _missing(cut, targets)


def _missing(cut: Cut, targets: Sequence[Target]) -> list[str]:
    """Return what there is to say of names that choose calls and are not there."""
    from ..tracing.model import ENTER
    from ..tracing.selection import is_meant

    functions = [one for one in targets if one.kind == ENTER]
    named = [("--below", one) for one in cut.below] + [("--not-below", one) for one in cut.not_below]
    probes = [(option, one) for option, one in (("--from", cut.begin), ("--until", cut.end)) if one]
    missing = [each for each in (*named, *probes) if not any(is_meant(one, each[1]) for one in targets)]
    cure = "; the library inside sees probes of -DUSDT_LIVE, --engine patch all"
    return [f"nothing matches {option} {pattern}{cure}" if (option, pattern) in probes
            else str(_absent(functions, pattern, f"{option} ")) for option, pattern in missing]  # fmt: skip


def _unwatched(cut: Cut, report: Report) -> bool:
    """Whether what chooses calls isn't seen wherever it is; say it of what isn't."""
    from ..tracing.model import EXIT
    from ..tracing.selection import is_meant

    patterns = [one for one in (cut.begin, cut.end, *cut.below, *cut.not_below) if one]
    refused = {refusal.what for refusal in report.refusals}
    found = dict.fromkeys(one.title for one in report.targets if one.kind != EXIT and one.title in refused
                          and any(is_meant(one, pattern) for pattern in patterns))  # fmt: skip
    for title in found:
        echo(f"usdtbuild: {one_line(title)} chooses calls, and isn't seen at all of its places: the tables have other"
             " calls than were asked for", err=True)  # fmt: skip
    return bool(found)


def _absent(functions: Sequence[Target], pattern: str, option: str) -> Absent:
    """Return what there is to say of a pattern that matches none of the functions; `option` stands before it."""
    from ..tracing.absent import Absent
    from ..tracing.selection import FUNCTION_RULE, called

    names = tuple(dict.fromkeys(one.shown for one in functions))
    short = tuple(dict.fromkeys(called(one)[-1] for one in functions))
    return Absent(FUNCTION_RULE, pattern, names, short, option)


def _write(name: str, descriptor: int, text: str) -> None:
    with Told(name, "can't be written"), open(descriptor, "w", encoding="ascii") as file:
        file.write(text)


def _print(lines: Iterable[str]) -> None:
    echo("".join(one_line(line.rstrip("\n")) + "\n" for line in lines), nl=False)


class _Shown(NamedTuple):
    """What is shown of a tree of calls."""

    report: bool
    graph: str | None
    sort: str | None
    top: int | None

    def show(self, tree: CallTree, targets: Sequence[Target]) -> bool:
        """Print it; return whether there are the functions that --graph=FUNC names."""
        from ..tracing.call_report import around_lines, graph_lines, report_lines
        from ..tracing.call_tree import rows

        room = room_of(sys.stdout)
        named = _named(targets, self.graph) if self.graph else frozenset[str]()
        shown = [report_lines(rows(tree), self.sort or "total", self.top, room)] if self.report else []
        if self.graph == "":
            shown.append(graph_lines(tree.roots, "function", room))
        elif named:
            shown += around_lines(tree, named, room)
        inexact = ["(hits weren't seen: these numbers aren't exact)\n"] * (not tree.exact)
        for at, lines in enumerate(shown):
            _print([*["\n"] * bool(at), *inexact, *lines])
        return bool(named or not (self.graph and targets))


def add_up(asked: Asked, wishes: Wishes, said: Mapping[str, Any]) -> int:
    """Trace calls of functions, and show what they add up to; return the code for `end`. Raises UsdtError."""
    shown = _Shown("report" in said, said.get("graph"), said.get("sort"), said.get("top"))
    cut = Cut(**fields(CUT, said), end=said.get("awaited", ""))
    job, files = asked.job._replace(cut=cut), wishes.files
    _check(shown, files, said)
    if not (job.pids or job.exes or job.engine == "patch" or not all(one.endswith(REPORT) for one in files)):
        try:
            return _show_calls(job, shown, files)
        except EarlyError as early:
            return early.told()
    functions = cut._replace(begin="", end="")  # which probes there are, `run` tells

    def show(tree: CallTree, report: Report) -> bool:
        return _show_chosen(shown, tree, report, cut, functions)

    until = Until("verbose" in said, lacking=partial(_lacking, functions, shown.graph))
    return run(asked._replace(job=_recording_calls(job)), wishes._replace(calls=show), until)


def _show_chosen(shown: _Shown, tree: CallTree, report: Report, cut: Cut, told: Cut) -> bool:
    """Print a tree; return whether there is all that was asked for. `told` is what of `cut` nobody has looked for."""
    unwatched = _unwatched(cut, report)
    is_whole = shown.show(tree._replace(exact=tree.exact and not unwatched), report.targets)
    lacking = _lacking(told, shown.graph, report.targets)
    for text in lacking:
        remark(text, always=True)
    return is_whole and not lacking and not unwatched


def _check(shown: _Shown, files: Sequence[str], said: Mapping[str, Any]) -> None:
    """Refuse what doesn't go with --report and --graph. Raises UsageError."""
    if not shown.report and any(one.endswith(REPORT) for one in files):
        raise UsageError(f"a file NAME{REPORT} has the report's numbers: give --report, too")
    if (shown.top or shown.sort) and not shown.report:
        which = "--top" if shown.top else "--sort"
        why = ", and --graph is none" if shown.graph is not None else ""
        raise UsageError(f"{which} is about rows of tables{why}; give --report, too")
    if other := clashing(CALLS, said):
        raise UsageError(f"--report and --graph add up calls of functions, and don't go with {other}")


def _of_program(job: Job) -> Job:
    """Return a job that is about the program's own functions, or those of the modules, if it isn't said which."""
    wanted = job.wanted
    if not wanted.functions:
        own = "*" if wanted.modules else "!*"
        wanted = wanted._replace(functions=(own,), order=(("F", own), *wanted.order))
    return job._replace(wanted=wanted)


def _recording_calls(job: Job) -> Job:
    """Return the job that records calls and returns, to add them up. Raises UsageError."""
    from ..machines import facts_of
    from ..tracing.hosts import HOST

    if job.engine not in {AUTO, "patch"}:
        raise UsageError("with -p, --exe and -o, --report and --graph add up what the engine patch records; leave out"
                         f" --engine {job.engine}")  # fmt: skip
    known = facts_of(HOST.number)
    if known is None or not known.returns:
        raise UsageError("--report and --graph with -p, --exe, -o or --engine patch need to know all returns of a"
                         f" function, and of {HOST.title} nobody does")  # fmt: skip
    job = _of_program(job)
    probes = tuple(filter(None, (job.cut.begin, job.cut.end)))
    order = (*job.wanted.order, *(("P", one) for one in probes))
    return job._replace(wanted=job.wanted._replace(returns=True, frames=True, probes=probes, order=order),
                        engine="patch")  # fmt: skip


def _show_calls(job: Job, shown: _Shown, outputs: Sequence[str]) -> int:
    """Run a command and show which functions it called, for how long; return the code for `end`."""
    from ..outputs import Outputs
    from ..tracing.absent import absent
    from ..tracing.call_report import report_json, without_time
    from ..tracing.follower import Follower

    inside = _of_program(job)
    inside = inside._replace(wanted=inside.wanted._replace(returns=False), tree=True)
    with tracer_for(inside) as session, Outputs() as staged:
        files = [staged.open(one) for one in outputs]
        follower = Follower(session)
        stopped = start(follower)
        tell_absent(_lacking(job.cut, shown.graph, session.targets))
        follower.go()
        for _ in follower.batches():
            pass
        tree, found = session.tree(), session.report()
        for name, descriptor in zip(outputs, files):
            _write(name, descriptor, report_json(tree))
        is_asked = job.wanted.functions or job.wanted.modules or found.refusals
        staged.is_dropped = is_nothing = bool(not found.targets and is_asked)
    is_there = _show_chosen(shown, tree, found, job.cut, job.cut)
    tell_many(found.targets)
    for line in by_reason(found.refusals) if not found.targets else ():
        remark(f"not traced: {line}", always=True)
    plain = found.looked_up and not any("!" in one for one in job.wanted.functions)  # such a pattern names a module
    never = absent(inside, found.targets, session.pid) if plain else []
    for one in never:
        remark(str(one), always=True)
    if not found.targets and not never:
        tell_nothing(found, "none of the functions that were asked for; compile it with -fpatchable-function-entry"
                     " (usdtbuild flags), or, if it starts another that is, add --engine patch",
                     always=is_nothing)  # fmt: skip
    elif found.refusals:
        number = "1 function was" if len(found.refusals) == 1 else f"{len(found.refusals)} functions were"
        remark(f"{number} not traced; usdtbuild functions says why")
    for text in without_time(tree):
        remark(text)
    if tree.deep:
        remark(f"warning: {tree.deep} calls were too deep (more than {tree.most:,} open at a time): they"
                   " are counted, and their time is their callers'")  # fmt: skip
    if tree.lost:
        remark(f"warning: there was no room for {tree.lost} ways through the program")
    sys.stdout.flush()
    return code_of(stopped, found.exit_code) or bool(never or not is_there or is_nothing)
