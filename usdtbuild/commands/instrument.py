"""`usdtbuild instrument`: objects in, instrumented objects out."""

from __future__ import annotations

import click

from ..errors import UsageError
from ..instrument.main import Instrumented, Options
from ..instrument.several import InstrumentRequest, run
from ..model import Provider
from ..options import FORMATS, RELATIVE, SYSTEMS
from .say import echo
from .steps import take


@click.command(name="instrument", short_help="Turn an object's probe calls into NOPs and write the tracers' records.")
@click.argument("objects", nargs=-1, required=True, metavar="OBJECT...")
@click.option("-o", "--output", metavar="FILE", help="Where to write the instrumented object (one OBJECT only).")
@click.option("--output-dir", metavar="DIR", help="Where to write several objects, under their own names.")
@take("--nop", "--formats", "--target-os", "--provider", "--patchable-table", "--site-table")
@click.option("-v", "--verbose", is_flag=True, help="Say what was done to each object.")
def command(
    objects: tuple[str, ...], output: str | None, output_dir: str | None, nop: str, formats: str, target_os: str,
    provider: tuple[str, ...], patchable_table: str, site_table: bool, verbose: bool,
) -> None:  # fmt: skip
    """Turn probe calls in OBJECTs into NOPs, and add the records that tracers read.

    Inputs are never modified. An object without probe calls is copied as it is, and so is one that is instrumented
    already.
    """
    if output == "" or output_dir == "":
        raise UsageError("the name of an output is empty")
    if target_os and target_os not in SYSTEMS:
        raise UsageError(f"--target-os: {target_os} is an unknown system; there are {', '.join(SYSTEMS)}")
    options = Options(nop, _formats(formats), _parse(provider), target_os=target_os, site_table=site_table)
    afterwards = _convert if patchable_table == RELATIVE else None
    reports = run(InstrumentRequest(objects, output or "", output_dir or "", options, afterwards))
    if verbose:
        for source, report in reports:
            _tell(source, report)


def _convert(written: str, source: str) -> None:
    from ..functions.relative import convert_file

    convert_file(written, written, source)


def _formats(text: str) -> tuple[str, ...]:
    chosen = tuple(dict.fromkeys(item.strip() for item in text.split(",") if item.strip()))
    unknown = [item for item in chosen if item not in FORMATS]
    if unknown:
        raise UsageError(f"--formats: {', '.join(unknown)} is no record format; there are {', '.join(FORMATS)}")
    return chosen


def _parse(paths: tuple[str, ...]) -> tuple[Provider, ...]:
    if not paths:
        return ()
    from ..provider.parser import parse_file

    return tuple(provider for path in paths for provider in parse_file(path))


def _tell(source: str, report: Instrumented) -> None:
    if not report.changed:
        echo(f"{source}: left alone: {report.reason}")
        return
    echo(f"{source}: {len(report.sites)} sites")
    for site in report.sites:
        kind = " (is-enabled)" if site.enabled else ""
        place = "stub" if site.in_stub else "call"
        echo(f"  {site.provider}:{site.probe}{kind} {place} at {site.section}+{site.offset:#x}")
