"""`usdtbuild verify`: will the probes of finished binaries work, with every tracer?"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import click

from .. import apart
from ..elf.image import Image
from ..errors import UsageError, UsdtError
from ..inspection.targets import Content, contents, in_folder
from ..model import Provider
from ..text import one_line, plural
from ..verify import NAMES, missing_everywhere, verify
from ..verify.building import LATER
from ..verify.report import ERROR, NOTE, WARNING, Finding, FoundAt, Verified
from . import checked
from .as_json import dumped, headed, print_pieces, with_list
from .progress import progress
from .say import Troubles, echo

_SHOWN_PLACES = 3
_STYLES = {ERROR: "bold red", WARNING: "bold yellow", NOTE: "bold cyan"}


@click.command(name="verify", short_help="Check that the probes of a finished binary will work.")
@click.argument("targets", nargs=-1, required=True, metavar="BINARY|OBJECT|ARCHIVE|DIR...")
@click.option("--provider", "provider_files", multiple=True, metavar="FILE.d", help="Its probes must all have a site.")
@click.option("--strict", is_flag=True, help="Exit with 1 on warnings too.")
@click.option("--ignore", "ignored", multiple=True, metavar="NAME", help="Leave out these findings.",
              shell_complete=checked.completes(sorted(NAMES)))  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
@checked.user
def command(
    targets: tuple[str, ...], provider_files: tuple[str, ...], strict: bool, ignored: tuple[str, ...], as_json: bool,
    user: str,
) -> int:  # fmt: skip
    """Check everything that is known to keep probes from being seen or from firing.

    Each finding says what is wrong, where, and what cures it. Exits with 1 if there is an error.
    """
    from ..provider.files import read_providers

    _check_names(ignored)
    trouble = Troubles()
    expected: dict[str, Provider] = {}
    try:
        expected = read_providers(provider_files)
    except UsdtError as error:
        trouble(error)
        targets = ()

    def run() -> int:
        reports: list[Verified] = []
        is_whole = True
        with progress("Verified", "files") as tick:
            for target in targets:
                found = trouble.all_of(_look(target, expected, trouble, tick))
                is_whole &= found is not None
                reports += found or []
        if expected and is_whole:
            missing = missing_everywhere(reports, expected, ", ".join(provider_files))
            reports += [missing] if missing else []
        for number, report in enumerate(reports):
            kept = (finding for finding in report.findings if finding.check not in ignored)
            reports[number] = report._replace(findings=tuple(kept))
        counted = [ERROR, WARNING] if strict else [ERROR]
        failed = trouble.any or any(report.count(severity) for report in reports for severity in counted)
        if as_json:
            document = headed("verify", {"passed": not failed})
            print_pieces(with_list(document, "files", map(_report, reports)))
        else:
            _print(reports)
        return int(failed)

    return apart.look(user, targets, run)


def _check_names(ignored: Sequence[str]) -> None:
    known = set(NAMES)
    if any(name.startswith("entry-") for name in ignored):
        from ..verify.entries import entry_checks

        known = {*known, *entry_checks()}
    for name in ignored:
        if name not in known:
            raise UsageError(f"--ignore {name}: there is no such finding; there are {', '.join(sorted(known))}")


# -- looking -----------------------------------------------------------------------------------------------------------


def _look(
    target: str, expected: dict[str, Provider], trouble: Troubles, tick: Callable[[str], None]
) -> Iterator[Verified]:
    yield from list(_reports(target, expected, trouble, tick)) or [_nothing_in(target)]


def _reports(
    target: str, expected: dict[str, Provider], trouble: Troubles, tick: Callable[[str], None]
) -> Iterator[Verified]:
    """Yield a report on each file; in folders and archives only on those that have to do with probes."""
    later: list[FoundAt] = []
    for content in contents(target, trouble):
        tick(content.path)
        report = in_folder(target, trouble, partial(_report_on, content, expected))
        if report is None:
            continue
        matters = report.probes or any(one.check != "no-probes" and one != LATER for one in report.findings)
        if content.path == target or matters:
            yield report
        elif LATER in report.findings:
            later.append(FoundAt("", content.path, None, "", 0))
    if later:
        yield Verified(target, _kind(target), 0, 0, (LATER._replace(places=tuple(later)),))


def _report_on(content: Content, expected: dict[str, Provider]) -> Verified:
    if content.is_bitcode:
        return Verified(content.path, "LLVM bitcode", 0, 0, (LATER,))
    return verify(Image(content.data, content.path), expected)


def _nothing_in(target: str) -> Verified:
    cure = "see that the probe calls are compiled in; build it with `usdtbuild cc` as the compiler"
    return Verified(
        target, _kind(target), 0, 0, (Finding("no-probes", WARNING, "none of its files has a probe", (), cure),)
    )


def _kind(target: str) -> str:
    return "folder" if apart.is_folder(target) else "archive"


# -- text --------------------------------------------------------------------------------------------------------------


def _print(reports: Sequence[Verified]) -> None:
    for report in reports:
        for finding in report.findings:
            _print_finding(report, finding)
        echo(one_line(_summary(report)))


def _print_finding(report: Verified, finding: Finding) -> None:
    severity = finding.severity
    if sys.stdout.isatty():
        from rich.console import Console
        from rich.text import Text

        line = Text.assemble(one_line(f"{report.path}: "), (f"{severity}: ", _STYLES[severity]), one_line(finding.what))
        line.append(f" [{finding.check}]", style="dim")
        Console(highlight=False).print(line, soft_wrap=True)
    else:
        echo(one_line(f"{report.path}: {severity}: {finding.what} [{finding.check}]"))
    for place in finding.places[:_SHOWN_PLACES]:
        echo(one_line(f"    {_place(place)}"))
    if len(finding.places) > _SHOWN_PLACES:
        echo(f"    and {len(finding.places) - _SHOWN_PLACES} more")
    echo(one_line(f"    cure: {finding.cure}"))


def _place(place: FoundAt) -> str:
    function = f" in {place.function}" if place.function and place.function not in place.where else ""
    where = f"at {place.where}{function}" if place.where else ""
    return ", ".join(filter(None, (where, place.probe and f"probe {place.probe}")))


def _summary(report: Verified) -> str:
    counts = [plural(report.count(severity), severity) for severity in (ERROR, WARNING, NOTE) if report.count(severity)]
    size = (
        f"{plural(report.probes, 'probe')}, {plural(report.sites, 'site')}: " if report.kind != "provider file" else ""
    )
    return f"{report.path}: {report.kind}: {size}{', '.join(counts) or 'nothing found'}"


# -- JSON --------------------------------------------------------------------------------------------------------------


def _report(report: Verified) -> Iterator[str]:
    """Yield one report as docs/commands/verify.md describes it."""
    record = {
        "path": report.path,
        "kind": report.kind,
        "probes": report.probes,
        "sites": report.sites,
        "errors": report.count(ERROR),
        "warnings": report.count(WARNING),
        "notes": report.count(NOTE),
    }
    return with_list(record, "findings", map(_finding, report.findings))


def _finding(finding: Finding) -> Iterator[str]:
    record = {"check": finding.check, "severity": finding.severity, "what": finding.what, "cure": finding.cure}
    return with_list(record, "places", dumped(map(_place_record, finding.places)))


def _place_record(place: FoundAt) -> dict[str, Any]:
    return {
        "probe": place.probe or None,
        "address": f"{place.address:#x}" if place.address is not None else None,
        "section": place.section or None,
        "offset": f"{place.offset:#x}",
        "function": place.function or None,
        "text": place.where or "no site",
    }
