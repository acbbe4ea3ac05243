"""`usdtbuild calls`: the functions of libraries that binaries and running processes call, and through what."""

from __future__ import annotations

import gc
from fnmatch import fnmatchcase
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from ..errors import InputError
from ..functions.calls.libraries import Libraries, with_libraries
from ..functions.calls.read import read_calls
from ..inspection.targets import Process, files, in_folder
from ..record import NamedTuple
from ..text import one_line, plural
from . import checked
from .as_json import dumps, headed
from .looking import Processes, look
from .progress import progress
from .say import Troubles, echo

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from ..elf.image import Image
    from ..functions.calls.bound import SlotContent
    from ..functions.calls.model import Call, CallReport, CallSite

# New objects between two looks for garbage: a quarter of the time goes into looking among calls that all stay.
_AT_ONCE = 1 << 18


class _File(NamedTuple):
    """One file's calls, as far as they are wanted; of a process, where the file is and what each slot holds."""

    report: CallReport
    calls: tuple[Call, ...]
    pid: int = 0
    bias: int = 0
    held: tuple[SlotContent, ...] = ()


class _Wanted(NamedTuple):
    patterns: tuple[str, ...]
    libraries: tuple[str, ...]
    sites: bool
    find: Libraries


@click.command(name="calls", short_help="Show the library functions that a binary or process calls, and through what.")
@click.argument("targets", nargs=-1, required=True, metavar="BINARY|DIR|PID...")
@click.option("-p", "--pattern", "patterns", multiple=True, metavar="FUNCTION", help="Only these; * and ? match any.")
@click.option("-l", "--library", "libraries", multiple=True, metavar="LIBRARY", help="Only functions of these.")
@click.option("--sites", is_flag=True, help="Show from where each is called, too.")
@click.option("--sysroot", default="", metavar="DIR", help="Where the libraries of another machine are.")
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
@click.option("--demangle/--no-demangle", default=True, help="Show C++ and Rust functions as they were written.")
@checked.user
def command(
    targets: tuple[str, ...],
    patterns: tuple[str, ...],
    libraries: tuple[str, ...],
    sites: bool,
    sysroot: str,
    as_json: bool,
    demangle: bool,
    user: str,
) -> int:
    """Show the functions of libraries that can be called, with their slots and stubs.

    A number means the process with that number; a file of such a name is given as ./1234.
    """
    gc.set_threshold(_AT_ONCE)
    wanted = _Wanted(patterns, libraries, sites, Libraries(sysroot))

    def run(processes: Processes) -> int:
        found: list[_File] = []
        trouble = Troubles()
        with progress("Looked at", "files") as tick:
            for target in targets:
                seen = trouble.all_of(_look(target, processes, wanted, trouble, tick))
                found += _select(target, seen, wanted) if seen is not None else []
        names = _demangled(found) if demangle else {}
        if as_json:
            echo(_document(found, names))
        else:
            _print(found, names, wanted)
        return int(trouble.any)

    return look(user, targets, run, *([sysroot] if sysroot else []))


# -- looking -----------------------------------------------------------------------------------------------------------


def _look(
    target: str, processes: Processes, wanted: _Wanted, trouble: Troubles, tick: Callable[[str], None]
) -> Iterator[_File]:
    process = processes.of(target)
    if process is not None:
        yield from _process(process, wanted, tick)
        return
    for image in files(target, trouble):
        tick(image.path)
        report = in_folder(target, trouble, partial(_read, image, wanted))
        if report is not None:
            yield _File(report, _chosen(report, wanted))


def _read(image: Image, wanted: _Wanted) -> CallReport:
    report = read_calls(image, sites=wanted.sites)
    return report._replace(calls=with_libraries(image, report.calls, wanted.find))


def _process(process: Process, wanted: _Wanted, tick: Callable[[str], None]) -> Iterator[_File]:
    from ..functions.calls.bound import MappedFiles, held

    trouble = Troubles()  # which is no error: what a process has loaded may have changed or gone
    if unread := process.unread():
        trouble(InputError(f"process {process.pid}", f"{unread}: what slots hold isn't known"))
    places = MappedFiles(process.mapped)
    for image, bias in process.loaded(trouble):
        tick(image.path)
        try:
            report = _read(image, wanted)
        except InputError as error:
            trouble(error)
            continue
        chosen = _chosen(report, wanted)
        content = tuple(held(report, call, bias, process.memory, places) for call in chosen)
        yield _File(report, chosen, process.pid, bias, content)


def _chosen(report: CallReport, wanted: _Wanted) -> tuple[Call, ...]:
    return tuple(
        call
        for call in report.calls
        if (not wanted.patterns or any(_matches((call.name, call.title), pattern) for pattern in wanted.patterns))
        and (not wanted.libraries or any(fnmatchcase(call.library, pattern) for pattern in wanted.libraries))
    )


def _matches(names: Sequence[str], pattern: str) -> bool:
    return any(fnmatchcase(name, pattern) for name in names)


def _select(target: str, seen: list[_File], wanted: _Wanted) -> list[_File]:
    """Return the files with calls; where there are none at all, say so and why on stderr."""
    chosen = [file for file in seen if file.calls]
    if not chosen:
        if any(file.report.calls for file in seen):
            what = f"no call matches {' or '.join((*wanted.patterns, *wanted.libraries))}"
        elif len(seen) == 1 and seen[0].report.problem:
            what = seen[0].report.problem
        else:
            what = "no calls of library functions found"
        echo(f"usdtbuild: {target}: {what}", err=True)
        return seen if len(seen) == 1 else []
    return chosen


def _demangled(found: Sequence[_File]) -> dict[str, str]:
    """Return mangled -> written names; nothing where no demangler is installed."""
    from ..inspection.demangle import demangle_if_possible

    return demangle_if_possible({call.name for file in found for call in file.calls if call.name})


# -- text --------------------------------------------------------------------------------------------------------------


def _print(found: Sequence[_File], names: dict[str, str], wanted: _Wanted) -> None:
    for number, file in enumerate(file for file in found if file.calls):
        if number:
            echo()
        echo(_title(file))
        rows = [_row(file, at, names, wanted) for at in range(len(file.calls))]
        headings = ["FUNCTION", "LIBRARY", "KIND", "SLOT", "STUBS", *(["SITES"] if wanted.sites else []),
                    *(["HOLDS"] if file.held else [])]  # fmt: skip
        widths = [max(map(len, column)) for column in zip(headings, *rows)]
        form = "  " + "  ".join(f"{{:{width}}}" for width in widths)
        # At once: large programs have tens of thousands of lines.
        echo("\n".join([form.format(*row).rstrip() for row in (headings, *rows)]))
        if file.report.first_call_only:
            echo("  (calls load the slot themselves; a stub is called until its function's address is known)")
        if file.report.missing:
            echo(f"  ({file.report.missing})")


def _title(file: _File) -> str:
    report = file.report
    stubs = sum(len(call.stubs) for call in file.calls)
    place = f", loaded at {file.bias:#x} in process {file.pid}" if file.pid else ""
    when = "bound lazily" if report.lazy else "bound at the start"
    counts = f"{plural(len(file.calls), 'function')}, {plural(stubs, 'stub')}"
    return f"{one_line(report.path)}: {report.kind}, {report.machine}{place}: {counts}, {when}"


def _row(file: _File, at: int, names: dict[str, str], wanted: _Wanted) -> list[str]:
    call, bias = file.calls[at], file.bias
    title = call.title
    if call.name in names:
        title = names[call.name] + title[len(call.name) :]
    kind = call.kind + (", canonical" if call.canonical else "") + (", weak" if call.weak else "")
    stubs = ", ".join(f"{stub + bias:#x}" for stub in call.stubs)
    row = [one_line(title), one_line(call.library), kind, f"{call.slot + bias:#x}", stubs or _no_stub(call)]
    if wanted.sites:
        row.append(", ".join(_site(site, bias) for site in call.sites))
    if file.held:
        row.append(_held(file.held[at]))
    return row


def _no_stub(call: Call) -> str:
    through = sum(site.through_slot for site in call.sites)
    return f"none ({plural(through, 'call site')})" if through else "none"


def _site(site: CallSite, bias: int) -> str:
    way = f" *{site.place or 'slot'}" if site.through_slot else ""
    return f"{site.address + bias:#x} {site.kind}{way}"


def _held(held: SlotContent) -> str:
    if held.value is None:
        return "?"
    if held.unresolved:
        return "not called yet" if held.value else "nothing"
    return f"{one_line(held.path)}+{held.offset:#x}" if held.path else f"{held.value:#x}"


# -- JSON --------------------------------------------------------------------------------------------------------------


def _document(found: Sequence[_File], names: dict[str, str]) -> str:
    """Return the whole as JSON with a line for each call: json takes a second to indent 36,000 of them."""
    files = []
    for file in found:
        record = as_record(file, names)
        lines = ",\n".join(f"    {dumps(call, indent=None)}" for call in record.pop("calls"))
        files.append(dumps(record)[: -len("\n}")] + f',\n  "calls": [\n{lines}\n  ]\n}}')
    head = dumps(headed("calls", {}))[: -len("\n}")]
    return head + ',\n"files": [\n' + ",\n".join(files) + "\n]\n}"


def as_record(file: _File, names: dict[str, str]) -> dict[str, Any]:
    """Return one file as docs/commands/calls.md describes it. Addresses are hexadecimal strings, those of the file."""
    report = file.report
    record: dict[str, Any] = {
        "path": report.path, "kind": report.kind, "machine": report.machine, "address_size": report.address_size,
        "byte_order": "little" if report.little else "big", "build_id": report.build_id or None,
        "needed": list(report.needed), "binding": "lazy" if report.lazy else "now",
        "problem": report.problem or None, "first_call_only": report.first_call_only,
        "missing": report.missing or None,
    }  # fmt: skip
    if file.pid:
        record["process"] = {"pid": file.pid, "load_bias": f"{file.bias:#x}"}
    record["calls"] = [_call_record(file, at, names) for at in range(len(file.calls))]
    return record


def _call_record(file: _File, at: int, names: dict[str, str]) -> dict[str, Any]:
    call = file.calls[at]
    record: dict[str, Any] = {
        "name": call.name or None, "demangled": names.get(call.name, call.name) or None,
        "version": call.version or None, "library": call.library or None, "kind": call.kind, "weak": call.weak,
        "slot": hex(call.slot), "stubs": [hex(stub) for stub in call.stubs],
        "canonical": hex(call.canonical) if call.canonical else None,
        "resolver": hex(call.resolver) if call.resolver else None,
        "sites": [
            {
                "address": hex(site.address), "kind": site.kind, "through": "slot" if site.through_slot else "stub",
                "register": site.place or None,
            }
            for site in call.sites
        ],
    }  # fmt: skip
    if file.held:
        held = file.held[at]
        record["holds"] = {
            "value": hex(held.value) if held.value is not None else None, "path": held.path or None,
            "offset": hex(held.offset) if held.path else None, "resolved": not held.unresolved,
        }  # fmt: skip
    return record
