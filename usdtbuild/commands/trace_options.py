"""The options of `trace`, each declared once: a new one is a row here.

A row says all that is said of an option: its words and its help, below which heading the help has it, what its value
becomes, what it doesn't go with, and whether `top` has it, too. Manual pages, completion and the documentation are made
of the same rows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import click

from ..errors import UsageError
from ..tracing.call_report import SORTS
from ..tracing.model import DEEPEST, RANGES
from ..tracing.tracer import ENGINES
from . import checked

HEADINGS = WHAT, KEPT, SHOWN, HOW = "What to trace", "What to keep", "What to show", "How"
# What a value becomes: the argument of `api.trace`, or the field of one of these records, that has the option's name.
TRACE, WISHES, JOB, CUT = "trace", "wishes", "job", "cut"
# What an option doesn't go with: hits are kept, and nothing is done with each; or calls of functions are added up.
LAST, CALLS = "--last", "--report and --graph"


class Option(click.Option):
    """An option; `to` says what its value becomes, if the command doesn't see to it itself, and `never` what the option
    doesn't go with. `rule`: for a pattern, its letter in `tracing.selection.Wanted.order`."""

    def __init__(
        self,
        words: Sequence[str],
        heading: str = SHOWN,
        to: Sequence[str] = (),
        *,
        never: Sequence[str] = (),
        rule: str = "",
        on_screen: bool = True,
        **facts: Any,
    ) -> None:
        self.heading, self.to, self.never, self.rule, self.on_screen = heading, to, never, rule, on_screen
        super().__init__(words, **facts)


_COUNT = click.IntRange(1)
OPTIONS = [
    Option(["-p", "--pid", "pid"], WHAT, [TRACE], multiple=True, type=int, help="Trace a process that runs already."),
    Option(["--children", "running"], WHAT, [TRACE], is_flag=True,
           help="With -p: its children that run already, too."),
    Option(["--exe", "exes"], WHAT, [TRACE], multiple=True, metavar="PATH", callback=checked.programs,
           help="All processes that run this program, also those that are started later."),
    Option(["-P", "--probe", "probes"], WHAT, [TRACE], never=[CALLS], rule="P", multiple=True, metavar="GLOB",
           help="Probes: provider:probe, or probe."),
    Option(["-F", "--function", "functions"], WHAT, [TRACE], rule="F", multiple=True, metavar="GLOB",
           help="Entries of functions."),
    Option(["-L", "--call", "calls"], WHAT, [TRACE], never=[CALLS], rule="L", multiple=True, metavar="GLOB",
           help="Calls of library functions."),
    Option(["--returns"], WHAT, [TRACE], never=[CALLS], is_flag=True,
           help="With -F and -L: also when these return, and what."),
    Option(["-Z", "--min-size"], WHAT, [TRACE], type=click.IntRange(*RANGES["min_size"]), metavar="BYTES",
           help="Only functions of at least so many bytes."),
    Option(["-x", "--exclude"], WHAT, [TRACE], rule="X", multiple=True, metavar="GLOB",
           help="Not these; a later -P, -F or -L may take some back in."),
    Option(["--mangled"], SHOWN, [TRACE], is_flag=True, help="Show C++ and Rust functions as they are linked."),
    Option(["--members"], SHOWN, [TRACE], type=click.IntRange(*RANGES["members"]), metavar="N",
           help="How deep members of functions' arguments are shown.  [default: 1]"),
    Option(["--debuginfod", "servers"], WHAT, [JOB], is_flag=False, flag_value=checked.ALONE, metavar="[URL]",
           callback=checked.servers, help="Ask a server for missing debug information.  [default: DEBUGINFOD_URLS]"),
    Option(["--module", "modules"], WHAT, [TRACE], multiple=True, metavar="GLOB",
           help="Only in these files: by path or name."),
    Option(["--provider", "providers"], WHAT, [TRACE], multiple=True, metavar="FILE.d",
           help="Provider files that name arguments."),
    Option(["--as", "show_as"], SHOWN, [TRACE], multiple=True, metavar="[PROBE:]ARG:TYPE",
           help="What an argument is: string, pointer, hex, int, unsigned, float."),
    Option(["--filter", "where"], KEPT, [TRACE], never=[CALLS], metavar="TEST", callback=checked.text,
           help="Only hits like this: 'size > 4096 and name == \"x\"'."),
    Option(["--count"], never=[LAST, CALLS], on_screen=False, is_flag=True,
           help="Count hits instead of showing them."),
    Option(["--histogram"], SHOWN, [WISHES], never=[LAST, CALLS], on_screen=False, metavar="ARG[,STEP]",
           callback=checked.text, help="How an argument's values are distributed."),
    Option(["--by"], SHOWN, [WISHES], never=[LAST, CALLS], multiple=True, metavar="KEY[,KEY...]",
           callback=checked.names, help="Count hits by an argument's value, or by thread, process, probe or stack."),
    Option(["--sum"], SHOWN, [WISHES], never=[LAST, CALLS], metavar="ARG", callback=checked.text,
           help="Sum, mean, least and greatest value of an argument; with --by, for each key."),
    Option(["--latency"], SHOWN, [WISHES], never=[LAST, CALLS], nargs=2, metavar="BEGIN END", callback=checked.pair,
           help="How long it takes from one probe to another; with --by for each key."),
    Option(["--key"], SHOWN, [WISHES], metavar="ARG", callback=checked.text,
           help="With --latency: pair hits by this argument, or several (`id,worker`), not by thread."),
    Option(["--slower"], SHOWN, [WISHES], on_screen=False, metavar="TIME", callback=checked.seconds,
           help="With --latency: show each pair that takes so long, as it happens, and no table."),
    Option(["--before"], SHOWN, [WISHES], on_screen=False, type=click.IntRange(1, 10000), metavar="N",
           help="With --slower: also the last hits of its thread."),
    Option(["--report"], never=[LAST], on_screen=False, is_flag=True,
           help="Functions: total and own time, calls, percentiles."),
    Option(["--graph"], never=[LAST], on_screen=False, is_flag=False, flag_value=checked.ALONE, metavar="[FUNC]",
           callback=checked.optional, help="Who calls whom; or who calls these functions, and whom they call."),
    Option(["--sort"], on_screen=False, type=click.Choice(list(SORTS)),
           help="With --report and --diff: by which column.  [default: total]"),
    Option(["--depth"], SHOWN, [CUT], on_screen=False, type=_COUNT, metavar="N",
           help="With --report and --graph: only calls within fewer than N others."),
    Option(["--min-time", "least"], SHOWN, [CUT], on_screen=False, metavar="TIME", callback=checked.nanoseconds,
           help="Likewise: only calls that take so long."),
    Option(["--below"], SHOWN, [CUT], on_screen=False, multiple=True, metavar="FUNC", callback=checked.texts,
           help="Likewise: only these functions, and what they call."),
    Option(["--not-below"], SHOWN, [CUT], on_screen=False, multiple=True, metavar="FUNC", callback=checked.texts,
           help="Likewise: nothing that these functions call."),
    Option(["--from", "begin"], SHOWN, [CUT], on_screen=False, metavar="PROBE", callback=checked.text,
           help="Likewise: only from this probe's hits on, and with --until up to that probe's."),
    Option(["--diff"], on_screen=False, nargs=2, metavar="OLD NEW", callback=checked.texts,
           help="Compare two reports (--report -o NAME.report.json)."),
    Option(["--stack"], SHOWN, [TRACE], never=[CALLS], is_flag=False, flag_value=DEEPEST,
           type=click.IntRange(1, RANGES["stack"][1]), metavar="[N]",
           help=f"The call stack of each hit, at most N frames ({DEEPEST})."),
    Option(["--every"], never=[LAST, CALLS], metavar="TIME", callback=checked.interval,
           help="Print the tables at this interval (1s, 200ms), and the totals at the end."),
    Option(["--json"], SHOWN, [WISHES], never=[LAST, CALLS], on_screen=False, is_flag=True,
           help="Tables as lines of JSON: one for each --every, and the total."),
    Option(["--prometheus"], SHOWN, [WISHES], never=[LAST, CALLS], on_screen=False, metavar="[HOST:]PORT",
           callback=checked.listening,
           help="Serve the tables as metrics meanwhile; on this machine only, unless HOST says more."),
    Option(["--normalize"], SHOWN, [WISHES, JOB], is_flag=True,
           help="Show SQL and the like with ? for its literals, and count them as one."),
    Option(["--otlp"], never=[LAST, CALLS], on_screen=False, metavar="URL", callback=checked.url,
           help="Send what begins and ends to this OpenTelemetry collector, as spans."),
    Option(["--top"], SHOWN, [WISHES], on_screen=False, type=click.IntRange(1, 10000), metavar="N",
           help="Rows of tables, at most."),
    Option(["--duration"], KEPT, [TRACE], metavar="TIME", callback=checked.seconds,
           help="End after so long: 10 (seconds), 200ms, 5m, 1h."),
    Option(["--last"], KEPT, [JOB], on_screen=False, metavar="N|SIZE|TIME", callback=checked.last,
           help="Keep the last hits (1000, 64MB, 30s), and write them at the end, or on SIGUSR1."),
    Option(["--until", "awaited"], KEPT, on_screen=False, metavar="'PROBE TEST'", callback=checked.text,
           help="With --last: end at the first hit like this, 'app:done code > 0'; or see --from."),
    Option(["--lossless", "patience"], KEPT, [JOB], never=[LAST], on_screen=False, is_flag=False, flag_value="5s",
           metavar="[TIME]", callback=checked.seconds,
           help="Let the program wait until hits are read, for so long (5s) if nothing is."),
    Option(["--limit"], KEPT, [TRACE], never=[LAST, CALLS], on_screen=False, type=_COUNT, metavar="N",
           help="End after so many hits."),
    Option(["--engine"], HOW, [TRACE], type=click.Choice(ENGINES), help="What sees the hits.  [default: auto]"),
    Option(["--remote"], WHAT, [TRACE], never=[CALLS], on_screen=False, metavar="HOST:PORT", callback=checked.address,
           help="A program that a gdb server holds (gdbserver, qemu -g PORT)."),
    Option(["--emulator"], WHAT, [TRACE], never=[CALLS], on_screen=False, metavar="COMMAND", callback=checked.text,
           help="Run the command under it: qemu-aarch64, for example."),
    Option(["--sysroot"], WHAT, [TRACE], on_screen=False, metavar="DIR", callback=checked.text,
           help="With these: the root of the program's system."),
    Option(["--trap"], HOW, [TRACE], never=[LAST, CALLS], is_flag=True,
           help="Breakpoints for functions whose entries can't be patched."),
    Option(["--no-children"], WHAT, is_flag=True, help="Don't trace programs that the program starts."),
    Option(["--string-size"], KEPT, [TRACE], type=click.IntRange(*RANGES["string_size"]), metavar="BYTES",
           help="Longest string.  [default: 64; 512 with --normalize]"),
    Option(["--buffer"], KEPT, [TRACE], type=click.IntRange(*RANGES["buffer"]), metavar="MB",
           help="At most, for each ring.  [default: 32]"),
    Option(["-o", "--output", "files"], SHOWN, [WISHES], on_screen=False, multiple=True, metavar="FILE",
           callback=checked.texts,
           help="A file: .html (timeline), .svg (flame graph), .folded, .pb.gz (pprof), .json (Perfetto), .jsonl,"
           " .csv, .parquet; or a folder: .ctf (babeltrace2)"),
    Option(["--user"], HOW, metavar="NAME", callback=checked.text,
           help="As root: run the command and write files as this user."),
    Option(["--require-hits"], never=[CALLS], on_screen=False, is_flag=True,
           help="Exit with 4 if there was no hit, or some may be missing."),
    Option(["-q", "--quiet"], is_flag=True, help="No messages but errors and lost hits."),
    Option(["-v", "--verbose"], on_screen=False, is_flag=True, help="Say which engine does what, and what it cost."),
]  # fmt: skip
ARGUMENT = click.Argument(["argv"], nargs=-1, type=click.UNPROCESSED, metavar="[-- COMMAND ARGS...]")


def given(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the command line says, without what it doesn't: who gets a value knows what is meant without one."""
    return {name: value for name, value in values.items() if value is not None and value is not False and value != ()}


def fields(place: str, said: Mapping[str, Any]) -> dict[str, Any]:
    """Return what becomes arguments of `api.trace`, or fields of a record."""
    return {str(one.name): said[str(one.name)] for one in OPTIONS if place in one.to and one.name in said}


def clashing(what: str, said: Mapping[str, Any]) -> str:
    """Return the first option that is given and doesn't go with something; '' if there is none."""
    return next((one.opts[0] for one in OPTIONS if what in one.never and one.name in said), "")


class Command(click.Command):
    """A command that remembers in which order patterns were given, for `rules`, and whose help has headings."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options below their headings; those that every command has are about what is shown."""
        groups: dict[str, list[tuple[str, str]]] = {heading: [] for heading in HEADINGS}
        for one in self.get_params(ctx):
            if isinstance(one, click.Option) and (record := one.get_help_record(ctx)):
                groups[getattr(one, "heading", SHOWN)].append(record)
        for heading, records in groups.items():
            with formatter.section(heading):
                formatter.write_dl(records)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse once for the order, and again for all else."""
        parsed, _, order = self.make_parser(ctx).parse_args(list(args))
        for one, times in Counter(order).items():
            if isinstance(one, click.Option) and times > 1 and not one.multiple and not one.is_flag:
                raise UsageError(f"{one.opts[0]} is given {times} times, and can have one value only")
        patterns = [one for one in order if isinstance(one, Option) and one.rule]
        values: dict[str | None, Iterator[str]] = {one.name: iter(parsed[str(one.name)]) for one in patterns}
        ctx.meta[__name__] = tuple((one.rule, next(values[one.name])) for one in patterns)
        return super().parse_args(ctx, args)


def rules() -> tuple[tuple[str, str], ...]:
    """Return the patterns in their order, each with its letter."""
    found: tuple[tuple[str, str], ...] = click.get_current_context().meta[__name__]
    return found
