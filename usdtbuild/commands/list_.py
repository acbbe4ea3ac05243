"""`usdtbuild list`: the probes of binaries, objects, archives, folders and running processes."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..elf.debug_files import DEBUG_FOLDER
from ..errors import InputError, UsageError, UsdtError
from ..inspection.probes import Inspection, SeenArgument, SeenProbe, SeenSite, Semaphore, inspect
from ..inspection.targets import Process, contents, files, in_folder, process_number
from ..model import dashed
from ..record import NamedTuple
from ..text import one_line, plural, shown
from . import checked
from .as_json import dumped, headed, print_pieces, with_list
from .looking import Processes, look
from .progress import progress
from .say import Troubles, echo, style
from .table import Column, draw

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from ..elf.image import Image
    from ..inspection.process import ProcessMemory
    from ..inspection.source_lines import Frame

_FLOATS = {4: "float", 8: "double", 16: "long double"}
_DRAWN = (
    Column("PROBE", "bold"), Column("NO.", "dim"), Column("SITE", "cyan"), Column("FUNCTION", "", "elide"),
    Column("ARGUMENTS", "green", "wrap"), Column("SEMAPHORE", ""), Column("SOURCE", "", "wrap"),
)  # fmt: skip
_COLUMNS = tuple(column.heading for column in _DRAWN)


@click.command(name="list", short_help="Show the probes of a binary, object, folder or process.")
@click.argument("targets", nargs=-1, required=True, metavar="BINARY|OBJECT|ARCHIVE|DIR|PID...")
@click.option(
    "-p", "--probe", "patterns", multiple=True, metavar="PROVIDER:PROBE", help="Only these; * and ? match any."
)
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
@click.option("--wide", is_flag=True, help="On a terminal too, cut and wrap nothing.")
@click.option("--source", is_flag=True, help="Show each site's file and line, from debug information.")
@click.option("--debug-dir", metavar="DIR", help="Where separate debug files are.  [default: /usr/lib/debug]")
@click.option("--demangle/--no-demangle", default=True, help="Show C++ and Rust functions as they were written.")
@checked.user
def command(
    targets: tuple[str, ...],
    patterns: tuple[str, ...],
    as_json: bool,
    wide: bool,
    source: bool,
    debug_dir: str | None,
    demangle: bool,
    user: str,
) -> int:
    """Show what tracers see: each probe's sites, with their arguments and semaphore.

    A number means the process with that number; a file of such a name is given as ./1234.
    """
    if debug_dir and not source:
        raise UsageError("--debug-dir: only --source reads debug files")
    wanted = _Wanted(patterns, source, debug_dir or DEBUG_FOLDER)

    def run(processes: Processes) -> int:
        found: list[Inspection] = []
        trouble = Troubles()
        with progress("Looked at", "files") as tick:
            for target in targets:
                seen = trouble.all_of(_look(target, processes, wanted, trouble, tick))
                found += _select(target, seen, patterns) if seen is not None else []
        names = _demangled(found) if demangle else {}
        if as_json:
            print_pieces(_document(found, names))
        else:
            _print(found, names, drawn=not wide and sys.stdout.isatty())
        return int(trouble.any)

    return look(user, targets, run, wanted.debug_folder)


# -- looking -----------------------------------------------------------------------------------------------------------


class _Wanted(NamedTuple):
    patterns: tuple[str, ...]
    source: bool
    debug_folder: str


def _look(
    target: str, processes: Processes, wanted: _Wanted, trouble: Troubles, tick: Callable[[str], None]
) -> Iterator[Inspection]:
    process = processes.of(target)
    if process is not None:
        yield from _process(process, wanted, tick)
        return
    for image in files(target, trouble):
        tick(image.path)
        seen = in_folder(target, trouble, partial(_inspected, image, wanted, tick))
        if seen is not None:
            yield seen


def _inspected(image: Image, wanted: _Wanted, tick: Callable[[str], None]) -> Inspection:
    seen = inspect(image)
    chosen = [probe for probe in seen.probes if _matches(probe, wanted.patterns)]
    if not wanted.source or not chosen:
        return seen
    from ..inspection.source_lines import find_lines  # what reads DWARF takes its time to load

    def place(site: SeenSite) -> tuple[int, int]:
        where = site.location
        return (where.section_number, where.offset) if seen.in_object else (0, where.address)

    places = [place(site) for probe in chosen for site in probe.sites]
    found, trouble = find_lines(image, places, tick, wanted.debug_folder)
    if trouble:
        echo(f"usdtbuild: {image.path}: {trouble}", err=True)
    probes = (
        probe._replace(sites=tuple(site._replace(source=found.get(place(site), ())) for site in probe.sites))
        for probe in seen.probes
    )
    return seen._replace(probes=tuple(probes))


def _process(process: Process, wanted: _Wanted, tick: Callable[[str], None]) -> Iterator[Inspection]:
    trouble = Troubles()  # which is no error: what a process has loaded may have changed or gone
    for image, bias in process.loaded(trouble):
        tick(image.path)
        try:
            seen = _inspected(image, wanted, tick)
        except InputError as error:
            trouble(error)
            continue
        probes = tuple(_at_run_time(probe, bias, process.memory, seen.little) for probe in seen.probes)
        yield seen._replace(probes=probes, pid=process.pid, load_bias=bias)


def _at_run_time(probe: SeenProbe, bias: int, memory: ProcessMemory, little: bool) -> SeenProbe:
    sites = []
    for site in probe.sites:
        semaphore = site.semaphore
        if semaphore is not None:
            raw = memory.read(semaphore.location.address + bias, 2)
            value = int.from_bytes(raw, "little" if little else "big") if raw is not None else None
            semaphore = semaphore._replace(value=value)
        sites.append(site._replace(semaphore=semaphore, runtime_address=site.location.address + bias))
    return probe._replace(sites=tuple(sites))


def _select(target: str, inspections: Sequence[Inspection], patterns: Sequence[str]) -> list[Inspection]:
    """Return the inspections with probes that match; say so on stderr where there are none."""
    chosen = []
    for inspection in inspections:
        probes = tuple(probe for probe in inspection.probes if _matches(probe, patterns))
        if probes:
            chosen.append(inspection._replace(probes=probes))
    if not chosen:
        any_at_all = any(inspection.probes for inspection in inspections)
        what = f"no probe matches {' or '.join(patterns)}" if any_at_all else "no probes found"
        echo(f"usdtbuild: {target}: {what}{_why_none(target, any_at_all)}", err=True)
        if len(inspections) == 1:
            return [inspections[0]._replace(probes=())]
    return chosen


def _why_none(target: str, any_at_all: bool) -> str:
    if any_at_all or process_number(target):
        return ""
    from ..verify.building import calls_stubs, is_slim, traces_of_probes

    with contextlib.suppress(UsdtError):  # what is damaged was said already
        is_later = any(content.is_bitcode for content in contents(target, lambda _: None))
        for image in files(target, lambda _: None):
            is_later = is_later or is_slim(image)
            if calls_stubs(image):
                return f", but calls that nobody has turned into sites; 'usdtbuild verify {target}' names them"
            if traces_of_probes(image):
                return (
                    ", but traces of some: the linker or a tool such as strip removed their records; "
                    f"'usdtbuild verify {target}' says more"
                )
        if is_later:
            return ", but intermediate code (LTO): its probes show when it is linked"
    return ""


def _matches(probe: SeenProbe, patterns: Sequence[str]) -> bool:
    """Whether a probe is wanted; a pattern without a colon is about the probe's own name. `__` is also `-`."""
    if not patterns:
        return True
    names = {probe.name, dashed(probe.name)}
    for pattern in patterns:
        provider, colon, name = pattern.partition(":")
        if not colon:
            provider, name = "*", pattern
        if fnmatchcase(probe.provider, provider or "*") and any(fnmatchcase(text, name or "*") for text in names):
            return True
    return False


def _demangled(inspections: Sequence[Inspection]) -> dict[str, str]:
    """Return mangled -> written names of all functions; nothing where no demangler is installed."""
    from ..inspection.demangle import demangle_if_possible

    sites = [site for found in inspections for probe in found.probes for site in probe.sites]
    names = {site.function.name for site in sites if site.function}
    names |= {frame.function for site in sites for frame in site.source or ()}
    return demangle_if_possible(names)


# -- text --------------------------------------------------------------------------------------------------------------


def _print(inspections: Sequence[Inspection], names: dict[str, str], drawn: bool) -> None:
    """Print a table for each file: `drawn` to fit a terminal; else columns and blanks, nothing cut off or wrapped."""
    for at, found in enumerate(found for found in inspections if found.probes):
        if at:
            echo()
        rows = [_row(found, probe, number, site, names)
                for probe in found.probes for number, site in enumerate(probe.sites, 1)]  # fmt: skip
        if drawn:
            _draw(_title(found), rows)
        else:
            _write(_title(found), rows)


def _title(found: Inspection) -> str:
    count = f"{plural(found.probe_count, 'probe')}, {plural(found.site_count, 'site')}"
    formats = len({probe.format for probe in found.probes})
    count += f", in {formats} formats" if formats > 1 else ""
    loaded_at = f", loaded at {found.load_bias:#x} in process {found.pid}" if found.load_bias is not None else ""
    return f"{one_line(found.path)}: {found.kind}, {found.machine}{loaded_at}: {count}"


def _row(found: Inspection, probe: SeenProbe, number: int, site: SeenSite, names: dict[str, str]) -> tuple[str, ...]:
    where = f"{site.runtime_address:#x}" if site.runtime_address is not None else site.location.text(found.in_object)
    function = ""
    if site.function is not None:
        function = f"{names.get(site.function.name, site.function.name)}+{site.function.offset:#x}"
    remarks = [probe.format] if probe.format != "stapsdt" else []
    remarks += ["is-enabled"] if site.record.is_enabled else []
    name = f"{probe.provider}:{probe.name}" + (f" ({', '.join(remarks)})" if remarks else "")
    arguments = ", ".join(map(_argument, site.arguments))
    cells = (
        name, f"{number}/{len(probe.sites)}", where, function, arguments, _semaphore(found, site.semaphore),
        _source(site.source or (), names),
    )  # fmt: skip
    return tuple(map(one_line, cells))


def _source(frames: Sequence[Frame], names: dict[str, str]) -> str:
    """Return `send.h:12 (send_all) from main.c:40`: the functions that were inlined, and where each was called."""
    shown = []
    for number, frame in enumerate(frames):
        text = f"{_short(frame.file)}:{frame.line or '?'}"
        function = names.get(frame.function, frame.function)
        shown.append(f"{text} ({function})" if number + 1 < len(frames) and function else text)
    return " from ".join(shown)


def _short(path: str) -> str:
    here = f"{Path.cwd()}/"
    return path.removeprefix(here)


def _argument(argument: SeenArgument) -> str:
    """Return `int fd %edi`, or with nothing but the record to go by `int32_t %edi`."""
    spelling = argument.type or _width(argument)
    blank = "" if not argument.name or spelling.endswith("*") else " "
    return f"{spelling}{blank}{argument.name} {argument.operand.place.text}".strip()


def _width(argument: SeenArgument) -> str:
    operand = argument.operand
    if operand.floating:
        return _FLOATS.get(operand.size, f"float{8 * operand.size}")
    return f"{'' if operand.signed else 'u'}int{8 * operand.size}_t" if operand.size else ""


def _semaphore(found: Inspection, semaphore: Semaphore | None) -> str:
    if semaphore is None:
        return ""
    where = semaphore.location
    text = f"{where.address + found.load_bias:#x}" if found.load_bias is not None else where.text(found.in_object)
    if semaphore.value is not None:
        text += f" = {semaphore.value}"
    return text + (" (not in the file)" if semaphore.backed is False else "")


def _write(title: str, rows: list[tuple[str, ...]]) -> None:
    columns = _COLUMNS if any(row[-1] for row in rows) else _COLUMNS[:-1]
    widths = [max(map(len, column)) for column in zip(columns, *rows)]
    echo(title)
    for row in [columns, *rows]:
        cells = (cell.ljust(width) for cell, width in zip(row, widths))
        echo(("  " + "  ".join(cells)).rstrip())


def _draw(title: str, rows: list[tuple[str, ...]]) -> None:
    plain = bool(os.environ.get("NO_COLOR")) or os.environ.get("TERM") == "dumb"
    width = shutil.get_terminal_size().columns
    echo(shown(title) if plain else style(title, bold=True), styled=True)
    for line in draw(_DRAWN, rows, width):
        while line and not line[-1][0].strip():
            line.pop()
        pieces = [*line[:-1], (line[-1][0].rstrip(), line[-1][1])] if line else []
        echo("".join(shown(text) if plain else _styled(text, how) for text, how in pieces), styled=True)


def _styled(text: str, how: str) -> str:
    if not how or not text.strip():
        return shown(text)
    return style(text, bold=how == "bold" or None, dim=how == "dim" or None,
                 fg=how if how not in {"bold", "dim"} else None)  # fmt: skip


# -- JSON --------------------------------------------------------------------------------------------------------------


def _document(found: Sequence[Inspection], names: dict[str, str]) -> Iterator[str]:
    """Yield the JSON that docs/commands/list.md describes."""
    files = (with_list(_file_record(one), "probes", _probes(one, names)) for one in found)
    return with_list(headed("list", {}), "files", files)


def _probes(found: Inspection, names: dict[str, str]) -> Iterator[Iterator[str]]:
    for probe in found.probes:
        record = {"provider": probe.provider, "name": probe.name, "format": probe.format}
        yield with_list(record, "sites", dumped(_site_record(found, site, names) for site in probe.sites))


def _file_record(found: Inspection) -> dict[str, Any]:
    """Return one file without its probes. Addresses are hexadecimal strings, sizes are numbers."""
    record: dict[str, Any] = {
        "path": found.path,
        "kind": found.kind,
        "machine": found.machine,
        "address_size": found.address_size,
        "byte_order": "little" if found.little else "big",
        "build_id": found.build_id or None,
    }
    if found.load_bias is not None:
        record["process"] = {"pid": found.pid, "load_bias": f"{found.load_bias:#x}"}
    record["providers"] = [
        {"name": provider.name, "hash": hash_, "probes": [_declared(probe) for probe in provider.probes]}
        for provider, hash_ in found.providers.values()
    ]
    return record


def _declared(probe: Any) -> dict[str, Any]:
    arguments = [{"type": argument.type.spelling, "name": argument.name or None} for argument in probe.arguments]
    return {"name": probe.written, "arguments": arguments}


def _site_record(found: Inspection, site: SeenSite, names: dict[str, str]) -> dict[str, Any]:
    record: dict[str, Any] = {
        "address": None if found.in_object else f"{site.location.address:#x}",
        "section": site.location.section or None,
        "offset": f"{site.location.offset:#x}",
        "function": None,
        "is_enabled": site.record.is_enabled,
        "operands": site.operands,
        "arguments": [_argument_record(argument) for argument in site.arguments],
        "semaphore": None,
    }
    if site.runtime_address is not None:
        record["runtime_address"] = f"{site.runtime_address:#x}"
    if site.function is not None:
        name = site.function.name
        record["function"] = {"name": name, "demangled": names.get(name, name), "offset": f"{site.function.offset:#x}"}
    if site.source is not None:
        record["source"] = [
            {"file": f.file or None, "line": f.line or None, "function": names.get(f.function, f.function) or None}
            for f in site.source
        ]
    if site.semaphore is not None:
        record["semaphore"] = _semaphore_record(found, site.semaphore)
    return record


def _argument_record(argument: SeenArgument) -> dict[str, Any]:
    operand, place = argument.operand, argument.operand.place
    where: dict[str, Any] = {"kind": place.kind, "text": place.text}
    if place.kind == "register":
        where["register"] = place.register
    elif place.kind == "constant":
        where["value"] = place.displacement
    elif place.kind == "memory":
        where["base"] = place.base or None
        where["displacement"] = place.displacement
        if place.index_register:
            where["index"], where["scale"] = place.index_register, place.scale
        if place.symbol:
            where["symbol"] = place.symbol
    return {
        "size": operand.size or None,
        "signed": operand.signed,
        "floating": operand.floating,
        "place": where,
        "type": argument.type or None,
        "name": argument.name or None,
    }


def _semaphore_record(found: Inspection, semaphore: Semaphore) -> dict[str, Any]:
    where = semaphore.location
    record: dict[str, Any] = {
        "address": None if found.in_object else f"{where.address:#x}",
        "section": where.section or None,
        "offset": f"{where.offset:#x}",
        "symbol": where.symbol or None,
        "backed": semaphore.backed,
    }
    if found.load_bias is not None:
        record["runtime_address"] = f"{where.address + found.load_bias:#x}"
        record["value"] = semaphore.value
    return record
