"""`usdtbuild trace`: see probes and functions of a running program, with their arguments."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..errors import UsageError

if TYPE_CHECKING:
    from ..provider.model import Provider
    from ..tracing.inside import Inside
    from ..tracing.job import Job
    from ..tracing.outputs import Output
    from ..tracing.session import Session

_ENGINES = ("auto", "patch", "trap", "inside")


@click.command(
    name="trace",
    short_help="See probes and functions of a program fire, with their arguments.",
    context_settings={"allow_interspersed_args": False},
)
@click.option("-p", "--pid", type=int, help="Trace a process that runs already.")
@click.option("-P", "--probe", "probes", multiple=True, metavar="GLOB", help="Probes: provider:probe, or probe.")
@click.option("-F", "--function", "functions", multiple=True, metavar="GLOB", help="Entries of functions.")
@click.option("-x", "--exclude", multiple=True, metavar="GLOB", help="Leave these probes and functions out.")
@click.option("--module", "modules", multiple=True, metavar="GLOB", help="Only in these files: by path or name.")
@click.option("--provider", "files", multiple=True, metavar="FILE.d", help="Provider files that name arguments.")
@click.option("--count", is_flag=True, help="Count hits instead of showing them.")
@click.option("--duration", type=float, metavar="SECONDS", help="End after so many seconds.")
@click.option("--limit", type=int, metavar="N", help="End after so many hits.")
@click.option("--engine", type=click.Choice(_ENGINES), default="auto", help="How hits are seen.  [default: auto]")
@click.option("--trap", is_flag=True, help="Breakpoints for functions whose entries can't be patched.")
@click.option("--no-children", is_flag=True, help="Don't trace programs that the program starts.")
@click.option("--string-size", type=click.IntRange(8, 4096), default=64, metavar="BYTES",
              help="Longest string.  [default: 64]")  # fmt: skip
@click.option("--buffer", type=click.IntRange(1, 1024), default=4, metavar="MB", help="For each ring.  [default: 4]")
@click.option("-o", "--output", metavar="FILE", help="Write to a file instead of stdout.")
@click.option("-v", "--verbose", is_flag=True, help="Say which engine does what, and what it cost.")
@click.argument("argv", nargs=-1, type=click.UNPROCESSED, metavar="[-- COMMAND ARGS...]")
def command(
    pid: int | None,
    probes: tuple[str, ...],
    functions: tuple[str, ...],
    exclude: tuple[str, ...],
    modules: tuple[str, ...],
    files: tuple[str, ...],
    count: bool,
    duration: float | None,
    limit: int | None,
    engine: str,
    trap: bool,
    no_children: bool,
    string_size: int,
    buffer: int,
    output: str | None,
    verbose: bool,
    argv: tuple[str, ...],
) -> None:
    """See a program's probes fire, from its start or while it runs, without root.

    Without -P and -F all probes of the program and of its libraries are traced, until it ends or you press Ctrl-C.
    """
    from ..tracing.job import Job
    from ..tracing.model import COUNT, RECORD
    from ..tracing.selection import Wanted

    if (pid is None) == (not argv):
        raise UsageError("say what to trace: a process (-p PID), or a command (-- COMMAND ARGS...)")
    wanted = Wanted(probes, functions, exclude, modules, _providers(files))
    job = Job(
        wanted, COUNT if count else RECORD, engine, pid or 0, argv, str(Path.cwd()), dict(os.environ),
        string_size=string_size, buffer_size=buffer << 20, trap_functions=trap, children=not no_children,
    )  # fmt: skip
    stream = Path(output).open("w", encoding="utf-8") if output else sys.stdout  # noqa: SIM115
    try:
        sys.exit(_trace(job, _output(count, stream), duration, limit, verbose))
    finally:
        if output:
            stream.close()


def _providers(files: tuple[str, ...]) -> tuple[Provider, ...]:
    from ..provider.parser import parse_file

    return tuple(provider for path in files for provider in parse_file(path))


def _output(count: bool, stream: object) -> Output:
    from ..tracing.outputs.count import Count
    from ..tracing.outputs.lines import Lines

    return Count(stream) if count else Lines(stream)  # type: ignore[arg-type]


def _trace(job: Job, output: Output, duration: float | None, limit: int | None, verbose: bool) -> int:
    """Do it; return the exit code: the program's own, if it was started here."""
    from ..tracing.inside import Inside
    from ..tracing.session import Session

    with Inside(job) if job.engine == "inside" else Session(job) as session:
        signal.signal(signal.SIGINT, lambda *_: session.stop())  # a traced command gets it too, and may end by it
        session.start()
        if verbose:
            click.echo(f"usdtbuild: tracing process {session.pid}", err=True)
        output.start(session.targets)
        _follow(session, output, duration, limit)
        output.counts(session.totals)
        report = session.report()
        output.finish(report)
        for refusal in report.refusals if verbose or not any(report.counts) else ():
            click.echo(f"usdtbuild: not traced: {refusal}", err=True)
        if not report.targets:
            click.echo("usdtbuild: warning: the program has none of the probes that were asked for", err=True)
        elif report.refusals and any(report.counts) and not verbose:
            click.echo(f"usdtbuild: {len(report.refusals)} places were not traced; -v says which and why", err=True)
        if any(report.lost):
            click.echo(
                f"usdtbuild: warning: {sum(report.lost)} of {sum(report.counts)} hits were lost, because they came"
                " faster than they could be read; --buffer makes more room, --count needs none",
                err=True,
            )
        if verbose:
            click.echo(f"usdtbuild: traced with {' and '.join(report.engines) or 'nothing'}; the program stood still"
                       f" for {session.stood_still * 1000:.1f} ms", err=True)  # fmt: skip
        code = report.exit_code
        return 0 if code is None or not job.argv else code if code >= 0 else 128 - code


def _follow(session: Session | Inside, output: Output, duration: float | None, limit: int | None) -> None:
    """Hand over what comes until it is enough."""
    known, seen = len(session.targets), 0
    deadline = time.monotonic() + duration if duration is not None else None
    batches = session.batches(0.1)
    while True:
        batch = next(batches, None)
        if batch is None:
            return
        if len(session.targets) > known:
            known = len(session.targets)
            output.start(session.targets)
        if limit is not None:
            batch = batch[: limit - seen]
            seen += len(batch)
        if batch:
            output.events(batch)
        output.counts(session.totals)
        if (deadline is not None and time.monotonic() >= deadline) or (limit is not None and seen >= limit):
            session.stop()
