"""`usdtbuild trace`: see probes and functions of a running program, with their arguments."""

from __future__ import annotations

import math
import os
import sys
from collections import Counter
from functools import partial
from pathlib import PurePath
from typing import TYPE_CHECKING, NamedTuple

import click
from click.core import ParameterSource

from ..errors import InputError, UsageError
from ..text import one_line
from ..tracing.call_report import REPORT, SORTS
from ..tracing.job import Cut
from ..tracing.model import DEEPEST
from ..tracing.outputs.rows import room_of
from ..tracing.tracer import AUTO, ENGINES
from . import checked
from .follow import EarlyError, Until, code_of, end, run, start, tracer_for
from .say import echo, remark
from .trace_end import tell_absent, tell_many, tell_nothing

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ..api import Asked
    from ..tracing.absent import Absent
    from ..tracing.call_tree import CallTree
    from ..tracing.job import Job
    from ..tracing.last import Last
    from ..tracing.last import Until as Awaited
    from ..tracing.model import Report, Target
    from ..tracing.outputs.choose import Wishes


_SOME, _WHOLE = 64, 512  # bytes of a string; where it is normalized
_SERVED = 1.0  # seconds: what is served is so old at most
# Of options whose order counts, the letter that `tracing.selection.Wanted.order` has for each.
_RULES = {"probes": "P", "functions": "F", "calls": "L", "exclude": "X"}


# Under which heading the help has an option; all others are about what is shown.
_SHOWN = "What to show"
_GROUPS = {
    "What to trace": ("pids", "running", "exes", "probes", "functions", "calls", "returns", "min_size", "exclude",
                      "modules", "files", "servers", "no_children", "remote", "emulator", "sysroot"),
    "What to keep": ("wanted_hits", "last", "awaited", "lossless", "duration", "limit", "string_size", "buffer"),
    _SHOWN: (),
    "How": ("engine", "trap", "user"),
}  # fmt: skip


class Ordered(click.Command):
    """A command that remembers in which order patterns were given, for `command`, and whose help has headings."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options below the headings of `_GROUPS`."""
        headings = {name: heading for heading, names in _GROUPS.items() for name in names}
        groups: dict[str, list[tuple[str, str]]] = {heading: [] for heading in _GROUPS}
        for one in self.get_params(ctx):
            if isinstance(one, click.Option) and (record := one.get_help_record(ctx)):
                groups[headings.get(one.name or "", _SHOWN)].append(record)
        for heading, records in groups.items():
            with formatter.section(heading):
                formatter.write_dl(records)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse once for the order, and again for all else."""
        given, _, order = self.make_parser(ctx).parse_args(list(args))
        for one, times in Counter(order).items():
            if isinstance(one, click.Option) and times > 1 and not one.multiple and not one.is_flag:
                raise UsageError(f"{one.opts[0]} is given {times} times, and can have one value only")
        values = {name: iter(given.get(name) or ()) for name in _RULES}
        ctx.meta[__name__] = tuple(
            (_RULES[one.name], next(values[one.name])) for one in order if one.name is not None and one.name in _RULES
        )
        return super().parse_args(ctx, args)


@click.command(
    name="trace",
    cls=Ordered,
    short_help="See probes and functions of a program fire, with their arguments.",
    context_settings={"allow_interspersed_args": False},
)
@click.option("-p", "--pid", "pids", multiple=True, type=int, help="Trace a process that runs already.")
@click.option("--children", "running", is_flag=True, help="With -p: its children that run already, too.")
@click.option("--exe", "exes", multiple=True, metavar="PATH", callback=checked.programs,
              help="All processes that run this program, also those that are started later.")  # fmt: skip
@click.option("-P", "--probe", "probes", multiple=True, metavar="GLOB", help="Probes: provider:probe, or probe.")
@click.option("-F", "--function", "functions", multiple=True, metavar="GLOB", help="Entries of functions.")
@click.option("-L", "--call", "calls", multiple=True, metavar="GLOB", help="Calls of library functions.")
@click.option("--returns", is_flag=True, help="With -F and -L: also when these return, and what.")
@click.option("-Z", "--min-size", type=click.IntRange(0, 1 << 30), default=0, metavar="BYTES",
              help="Only functions of at least so many bytes.")  # fmt: skip
@click.option(
    "-x", "--exclude", multiple=True, metavar="GLOB", help="Not these; a later -P, -F or -L may take some back in."
)
@click.option("--mangled", is_flag=True, help="Show C++ and Rust functions as they are linked.")
@click.option("--members", type=click.IntRange(0, 8), default=1, metavar="N",
              help="How deep members of functions' arguments are shown.  [default: 1]")  # fmt: skip
@click.option("--debuginfod", "servers", is_flag=False, flag_value=checked.ALONE, metavar="[URL]",
              callback=checked.servers,
              help="Ask a server for missing debug information.  [default: DEBUGINFOD_URLS]")  # fmt: skip
@click.option("--module", "modules", multiple=True, metavar="GLOB", help="Only in these files: by path or name.")
@click.option("--provider", "files", multiple=True, metavar="FILE.d", help="Provider files that name arguments.")
@click.option("--as", "show_as", multiple=True, metavar="[PROBE:]ARG:TYPE",
              help="What an argument is: string, pointer, hex, int, unsigned, float.")  # fmt: skip
@click.option("--filter", "wanted_hits", metavar="TEST", callback=checked.text,
              help="Only hits like this: 'size > 4096 and name == \"x\"'.")  # fmt: skip
@click.option("--count", is_flag=True, help="Count hits instead of showing them.")
@click.option("--histogram", metavar="ARG[,STEP]", callback=checked.text,
              help="How an argument's values are distributed.")  # fmt: skip
@click.option("--by", multiple=True, metavar="KEY[,KEY...]", callback=checked.names,
              help="Count hits by an argument's value, or by thread, process, probe or stack.")  # fmt: skip
@click.option(
    "--sum",
    "sum_of",
    metavar="ARG",
    callback=checked.text,
    help="Sum, mean, least and greatest value of an argument; with --by, for each key.",
)
@click.option("--latency", nargs=2, metavar="BEGIN END", callback=checked.pair,
              help="How long it takes from one probe to another; with --by for each key.")  # fmt: skip
@click.option("--key", metavar="ARG", callback=checked.text,
              help="With --latency: pair hits by this argument, or several (`id,worker`), not"
              " by thread.")  # fmt: skip
@click.option("--slower", metavar="TIME", callback=checked.seconds,
              help="With --latency: show each pair that takes so long, as it happens, and no table.")  # fmt: skip
@click.option("--before", type=click.IntRange(1, 10000), metavar="N",
              help="With --slower: also the last hits of its thread.")  # fmt: skip
@click.option("--report", is_flag=True, help="Functions: total and own time, calls, percentiles.")
@click.option("--graph", is_flag=False, flag_value=checked.ALONE, metavar="[FUNC]", callback=checked.optional,
              help="Who calls whom; or who calls these functions, and whom they call.")  # fmt: skip
@click.option("--sort", type=click.Choice(list(SORTS)),
              help="With --report and --diff: by which column.  [default: total]")  # fmt: skip
@click.option("--depth", type=click.IntRange(1), metavar="N", expose_value=False, callback=checked.cut,
              help="With --report and --graph: only calls within fewer than N others.")  # fmt: skip
@click.option("--min-time", "least", metavar="TIME", expose_value=False, callback=checked.least,
              help="Likewise: only calls that take so long.")  # fmt: skip
@click.option("--below", multiple=True, metavar="FUNC", expose_value=False, callback=checked.cut,
              help="Likewise: only these functions, and what they call.")  # fmt: skip
@click.option("--not-below", multiple=True, metavar="FUNC", expose_value=False, callback=checked.cut,
              help="Likewise: nothing that these functions call.")  # fmt: skip
@click.option("--from", "begin", metavar="PROBE", expose_value=False, callback=checked.cut,
              help="Likewise: only from this probe's hits on, and with --until up to that probe's.")  # fmt: skip
@click.option(
    "--diff",
    nargs=2,
    metavar="OLD NEW",
    callback=checked.texts,
    help="Compare two reports (--report -o NAME.report.json).",
)
@click.option("--stack", is_flag=False, flag_value=DEEPEST, type=click.IntRange(1, 1000), metavar="[N]",
              help=f"The call stack of each hit, at most N frames ({DEEPEST}).")  # fmt: skip
@click.option("--every", metavar="TIME", callback=checked.interval,
              help="Print the tables at this interval (1s, 200ms), and the totals at the end.")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Tables as lines of JSON: one for each --every, and the total.")
@click.option("--prometheus", metavar="[HOST:]PORT", callback=checked.listening,
              help="Serve the tables as metrics meanwhile; on this machine only, unless HOST says more.")  # fmt: skip
@click.option("--normalize", is_flag=True, help="Show SQL and the like with ? for its literals, and count them as one.")
@click.option("--otlp", metavar="URL", callback=checked.url,
              help="Send what begins and ends to this OpenTelemetry collector, as spans.")  # fmt: skip
@click.option("--top", type=click.IntRange(1, 10000), metavar="N", help="Rows of tables, at most.")
@click.option("--duration", metavar="TIME", callback=checked.seconds,
              help="End after so long: 10 (seconds), 200ms, 5m, 1h.")  # fmt: skip
@click.option("--last", metavar="N|SIZE|TIME", callback=checked.last,
              help="Keep the last hits (1000, 64MB, 30s), and write them at the end, or on SIGUSR1.")  # fmt: skip
@click.option("--until", "awaited", metavar="'PROBE TEST'", callback=checked.text,
              help="With --last: end at the first hit like this, 'app:done code > 0'; or see --from.")  # fmt: skip
@click.option("--lossless", is_flag=False, flag_value="5s", metavar="[TIME]", callback=checked.seconds,
              help="Let the program wait until hits are read, for so long (5s) if nothing is.")  # fmt: skip
@click.option("--limit", type=click.IntRange(1), metavar="N", help="End after so many hits.")
@click.option("--engine", type=click.Choice(ENGINES), default=AUTO, help="What sees the hits.  [default: auto]")
@click.option("--remote", default="", metavar="HOST:PORT", callback=checked.address,
              help="A program that a gdb server holds (gdbserver, qemu -g PORT).")  # fmt: skip
@click.option("--emulator", default="", metavar="COMMAND", callback=checked.text,
              help="Run the command under it: qemu-aarch64, for example.")  # fmt: skip
@click.option(
    "--sysroot", default="", metavar="DIR", callback=checked.text, help="With these: the root of the program's system."
)
@click.option("--trap", is_flag=True, help="Breakpoints for functions whose entries can't be patched.")
@click.option("--no-children", is_flag=True, help="Don't trace programs that the program starts.")
@click.option("--string-size", type=click.IntRange(8, 4096), metavar="BYTES",
              help="Longest string.  [default: 64; 512 with --normalize]")  # fmt: skip
@click.option("--buffer", type=click.IntRange(1, 1024), default=32, metavar="MB",
              help="At most, for each ring.  [default: 32]")  # fmt: skip
@click.option("-o", "--output", "outputs", multiple=True, metavar="FILE", callback=checked.texts,
              help="A file: .html (timeline), .svg (flame graph), .folded, .pb.gz (pprof), .json (Perfetto), .jsonl,"
              " .csv, .parquet; or a folder: .ctf (babeltrace2)")  # fmt: skip
@click.option("--user", default="", metavar="NAME", callback=checked.text,
              help="As root: run the command and write files as this user.")  # fmt: skip
@click.option("--require-hits", is_flag=True, help="Exit with 4 if there was no hit, or some may be missing.")
@click.option("-q", "--quiet", is_flag=True, help="No messages but errors and lost hits.")
@click.option("-v", "--verbose", is_flag=True, help="Say which engine does what, and what it cost.")
@click.argument("argv", nargs=-1, type=click.UNPROCESSED, metavar="[-- COMMAND ARGS...]")
def command(
    pids: tuple[int, ...],
    running: bool,
    exes: tuple[str, ...],
    probes: tuple[str, ...],
    functions: tuple[str, ...],
    calls: tuple[str, ...],
    returns: bool,
    min_size: int,
    exclude: tuple[str, ...],
    mangled: bool,
    members: int,
    servers: tuple[str, ...],
    modules: tuple[str, ...],
    files: tuple[str, ...],
    show_as: tuple[str, ...],
    wanted_hits: str | None,
    count: bool,
    histogram: str | None,
    by: str,
    sum_of: str | None,
    latency: tuple[str, str] | None,
    key: str | None,
    slower: float | None,
    before: int | None,
    report: bool,
    graph: str | None,
    sort: str | None,
    diff: tuple[str, str] | None,
    top: int | None,
    duration: float | None,
    last: Last | None,
    awaited: str | None,
    lossless: float | None,
    limit: int | None,
    engine: str,
    remote: str,
    emulator: str,
    sysroot: str,
    trap: bool,
    no_children: bool,
    string_size: int | None,
    buffer: int,
    outputs: tuple[str, ...],
    user: str,
    require_hits: bool,
    quiet: bool,
    verbose: bool,
    stack: int | None,
    every: float | None,
    as_json: bool,
    prometheus: tuple[str, int] | None,
    normalize: bool,
    otlp: str | None,
    argv: tuple[str, ...],
    screen: bool = False,
) -> None:
    """See a program's probes fire, from its start or while it runs, without root.

    Without -P and -F all probes of the program and of its libraries are traced, until it ends or you press Ctrl-C.
    """
    from .. import api, rights
    from ..tracing.outputs.choose import Wishes

    if quiet and verbose:
        raise UsageError("--quiet and --verbose contradict each other: leave one of them out")
    if diff:
        end(_compare(*diff, sort, top))
    asked = api.trace(
        pid=pids or None, running=running, exes=exes, command=argv, probes=probes, functions=functions, calls=calls,
        exclude=exclude, modules=modules, returns=returns, min_size=min_size, mangled=mangled, members=members,
        where=wanted_hits, limit=limit, engine=engine, trap=trap, duration=math.inf if duration is None else duration,
        children=not no_children, buffer=buffer, string_size=string_size or (_WHOLE if normalize else _SOME),
        providers=files, show_as=show_as, remote=remote, emulator=emulator, sysroot=sysroot, stack=stack or 0,
    ).asked  # fmt: skip
    counting = count or bool((every or as_json or prometheus) and not (histogram or by or sum_of or latency))
    wishes = Wishes(counting, histogram or "", by, sum_of or "", latency, key or "", top or 0, outputs,
                    asked.heading[:200], live=not argv, every=bool(every or as_json), json=as_json, before=before or 0,
                    otlp=(otlp, _service(pids, exes, argv)) if otlp else None, prometheus=prometheus, screen=screen,
                    folded=_folded((*probes, *functions, *calls), bool(exclude or modules)),
                    normalize=normalize, several=asked.job.several, slower=slower or 0.0)  # fmt: skip
    whose = rights.chosen(user)
    os.environ.update(whose.environment() if whose is not None and user else {})
    job = asked.job._replace(wanted=asked.job.wanted._replace(order=click.get_current_context().meta[__name__]),
                             every=every or (_SERVED if prometheus else math.inf), last=last, patience=lossless or 0.0,
                             silent=screen, until=_until(last, awaited), user=whose,
                             env={**os.environ}, as_user=bool(user), normalize=normalize, servers=servers)  # fmt: skip
    if (shown := _Shown(report, graph, sort, top)).is_wanted(outputs):
        end(_add_up_calls(asked._replace(job=job), wishes, shown))
    end(run(asked._replace(job=job), wishes, Until(verbose, require_hits)))


# What --last, which keeps hits, has no use for.
_NOT_WITH_LAST = {
    "count": "--count", "by": "--by", "sum_of": "--sum", "histogram": "--histogram", "latency": "--latency",
    "every": "--every", "as_json": "--json", "report": "--report", "graph": "--graph", "limit": "--limit",
    "trap": "--trap", "prometheus": "--prometheus", "otlp": "--otlp", "lossless": "--lossless",
}  # fmt: skip


def _given() -> set[str]:
    """Return the options that the command line has."""
    context = click.get_current_context()
    return {name for name in context.params if context.get_parameter_source(name) is ParameterSource.COMMANDLINE}


def _until(last: Last | None, awaited: str | None) -> Awaited | None:
    """Return what ends a trace that keeps the last hits, None if nothing does. Raises UsageError for what doesn't go
    together."""
    from ..tracing.last import until

    given = _given()
    others = [option for name, option in _NOT_WITH_LAST.items() if last is not None and name in given]
    if others:
        raise UsageError(f"--last keeps the last hits one by one, and doesn't go with {others[0]}")
    if last is not None and {"returns", "wanted_hits"} <= given:
        raise UsageError("--last keeps hits that pass at once, and --filter tests returns later: leave one of them out")
    adds_up = not given.isdisjoint({"report", "graph"})
    if checked.cuts(click.get_current_context()) and not adds_up:
        raise UsageError("--depth, --min-time, --below, --not-below and --from choose the calls of --report and"
                         " --graph: give one of those")  # fmt: skip
    if awaited is not None and last is None and not adds_up:
        raise UsageError("--until says when --last writes what it has kept: say how much, --last N, SIZE or TIME")
    return until(awaited) if awaited is not None and last is not None else None


def _service(pids: tuple[int, ...], exes: tuple[str, ...], argv: tuple[str, ...]) -> str:
    """Return what a program is called where many are watched."""
    from ..tracing.session import thread_name

    path = (*argv, *exes)[:1]
    return one_line(PurePath(path[0]).name if path else thread_name((*pids, 0)[0])) or "program"


def _folded(patterns: Sequence[str], chosen: bool) -> str:
    """Return which rows of 0 are one line: libraries' where nothing is chosen, all where names were only patterns."""
    if not patterns:
        return "" if chosen else "libraries"
    return "all" if all(set(one) & set("*?[") for one in patterns) else ""


# What --report and --graph, which add up calls, have no use for.
_NOT_WITH_CALLS = {
    "probes": "-P", "calls": "-L", "returns": "--returns",
    "wanted_hits": "--filter", "count": "--count", "by": "--by", "sum_of": "--sum", "every": "--every",
    "prometheus": "--prometheus", "otlp": "--otlp", "as_json": "--json",
    "require_hits": "--require-hits", "histogram": "--histogram", "latency": "--latency", "limit": "--limit",
    "stack": "--stack", "remote": "--remote", "emulator": "--emulator", "trap": "--trap",
}  # fmt: skip


def _compare(old: str, new: str, sort: str | None, top: int | None) -> int:
    """Show what has changed between two reports; return the code for `end`."""
    from ..tracing.call_report import diff_lines, read_report

    if _given() - {"diff", "sort", "top"} or checked.cuts(click.get_current_context()):
        raise UsageError("--diff compares two reports and traces nothing; only --sort and --top go with it")
    if sort == "max":
        raise UsageError("--diff shows total, self and calls: --sort by one of these")
    reports = read_report(old), read_report(new)
    _print(diff_lines(*reports, sort or "total", top, room_of(sys.stdout)))
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
    try:
        with open(descriptor, "w", encoding="ascii") as file:
            file.write(text)
    except OSError as error:
        raise InputError(name, f"can't be written: {(error.strerror or str(error)).lower()}") from None


def _print(lines: Iterable[str]) -> None:
    echo("".join(one_line(line.rstrip("\n")) + "\n" for line in lines), nl=False)


class _Shown(NamedTuple):
    """What is shown of a tree of calls."""

    report: bool
    graph: str | None
    sort: str | None
    top: int | None

    def is_wanted(self, outputs: Sequence[str]) -> bool:
        """Whether there is a tree. Raises UsageError where a file is to have its numbers, and nothing asks for them."""
        if not self.report and any(one.endswith(REPORT) for one in outputs):
            raise UsageError(f"a file NAME{REPORT} has the report's numbers: give --report, too")
        return bool(self.report or self.graph is not None or self.sort)

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


def _add_up_calls(asked: Asked, wishes: Wishes, shown: _Shown) -> int:
    """Trace calls of functions, and show what they add up to; return the code for `end`. Raises UsdtError."""
    params = click.get_current_context().params
    cut = Cut(**{**checked.cuts(click.get_current_context()), "end": params["awaited"] or ""})
    job, files = asked.job._replace(cut=cut), wishes.files
    _check_calls(shown)
    if not (job.pids or job.exes or job.engine == "patch" or not all(one.endswith(REPORT) for one in files)):
        try:
            return _show_calls(job, shown, files)
        except EarlyError as early:
            return early.told()
    functions = cut._replace(begin="", end="")  # which probes there are, `run` tells

    def show(tree: CallTree, report: Report) -> bool:
        return _show_chosen(shown, tree, report, cut, functions)

    until = Until(params["verbose"], lacking=partial(_lacking, functions, shown.graph))
    return run(asked._replace(job=_recording_calls(job)), wishes._replace(calls=show), until)


def _show_chosen(shown: _Shown, tree: CallTree, report: Report, cut: Cut, told: Cut) -> bool:
    """Print a tree; return whether there is all that was asked for. `told` is what of `cut` nobody has looked for."""
    unwatched = _unwatched(cut, report)
    is_whole = shown.show(tree._replace(exact=tree.exact and not unwatched), report.targets)
    lacking = _lacking(told, shown.graph, report.targets)
    for text in lacking:
        remark(text)
    return is_whole and not lacking and not unwatched


def _check_calls(shown: _Shown) -> None:
    """Refuse what doesn't go with --report and --graph. Raises UsageError."""
    if (shown.top or shown.sort) and not shown.report:
        which = "--top" if shown.top else "--sort"
        why = ", and --graph is none" if shown.graph is not None else ""
        raise UsageError(f"{which} is about rows of tables{why}; give --report, too")
    others = [option for name, option in _NOT_WITH_CALLS.items() if click.get_current_context().params[name]]
    if others:
        raise UsageError(f"--report and --graph add up calls of functions, and don't go with {others[0]}")


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
        staged.is_dropped = is_nothing = bool(not found.targets and (job.wanted.functions or job.wanted.modules))
    is_there = _show_chosen(shown, tree, found, job.cut, job.cut)
    tell_many(found.targets)
    for refusal in found.refusals if not found.targets else ():
        remark(f"not traced: {refusal}")
    plain = found.looked_up and not any("!" in one for one in job.wanted.functions)  # such a pattern names a module
    never = absent(inside, found.targets, session.pid) if plain else []
    for one in never:
        remark(str(one))
    if not found.targets and not never:
        tell_nothing(found, "none of the functions that were asked for; compile it with -fpatchable-function-entry"
                     " (usdtbuild flags), or, if it starts another that is, add --engine patch")  # fmt: skip
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
