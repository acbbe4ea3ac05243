"""`usdtbuild functions`: which functions of a file or process can be patched at their entry, and why not the others."""

from __future__ import annotations

import fnmatch
import re
import sys
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from ..elf.image import Image
from ..elf.space import FUNCTIONS
from ..errors import InputError, UsageError
from ..functions.entry import REASONS
from ..functions.read import FunctionReader, ReadOptions
from ..functions.report import WARNINGS, Function, FunctionReport
from ..inspection.records import site_places
from ..inspection.targets import Content, Process, contents, in_folder
from ..record import NamedTuple
from ..text import one_line, plural, shown
from . import checked
from .as_json import dumps, headed
from .looking import Processes, look
from .say import echo, print_table, style

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ..functions.explain import Explanation
    from ..functions.rows import ReadMemory
    from ..inspection.process import ProcessMemory

    Match = Callable[[str], bool]

# Beyond glob's own characters, only regular expressions have these; a pattern without them is taken for a glob.
_REGEX_ONLY = re.compile(r"[\^$|()+\\{}]|\.\*|\.\+")


class _File(NamedTuple):
    report: FunctionReport
    functions: list[Function]
    names: dict[str, str]  # mangled -> demangled
    explanations: list[Explanation | None]
    bias: int = 0
    brief: bool = False  # say the totals only
    note: str = ""


class _Wanted(NamedTuple):
    include: list[Match]
    exclude: list[Match]
    min_size: int
    only: str
    demangle: bool
    explain: bool
    options: ReadOptions


@click.command(name="functions", short_help="Show which functions can be patched while the program runs, and why not.")
@click.argument("targets", nargs=-1, required=True, metavar="BINARY|OBJECT|ARCHIVE|DIR|PID...")
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
@click.option(
    "-P", "--pattern", "include", multiple=True, metavar="PATTERN", help="Show only functions whose names match."
)
@click.option("-U", "--exclude", multiple=True, metavar="PATTERN", help="Leave out functions whose names match.")
@click.option(
    "--match",
    type=click.Choice(["auto", "glob", "regex"]),
    default="auto",
    show_default=True,
    help="What a PATTERN is; auto: a regular expression if it has ^ $ | ( ) + \\ { } or .*, else a glob.",
)
@click.option("-Z", "--min-size", type=click.IntRange(0), default=0, metavar="BYTES", help="Only functions this large.")
@click.option("--only", type=click.Choice(["patchable", "unpatchable"]), help="Only one kind.")
@click.option("--demangle", "-C", is_flag=True, help="Show and match C++ names as they were written.")
@click.option("--patchable", metavar="N,M", help="What the file was compiled with; else what most entries have.")
@click.option("--explain", is_flag=True, help="Say what a patch of the other functions' first instructions would need.")
@click.option("--totals", is_flag=True, help="Print the totals only.")
@click.option("--all-modules", is_flag=True, help="Of a process, list the files without patchable entries too.")
@click.option("--debug-dir", metavar="DIR", help="Where separate debug files are.  [default: /usr/lib/debug]")
@checked.user
def command(
    targets: tuple[str, ...],
    as_json: bool,
    include: tuple[str, ...],
    exclude: tuple[str, ...],
    match: str,
    min_size: int,
    only: str | None,
    demangle: bool,
    patchable: str | None,
    explain: bool,
    totals: bool,
    all_modules: bool,
    debug_dir: str | None,
    user: str,
) -> int:
    """List the functions of each BINARY, OBJECT or process, hotpatchable or not, with the reason.

    A number means the process with that number; to name a file like that, write ./1234.

    A function is hotpatchable if its table entry and the bytes around it are exactly what
    -fpatchable-function-entry=N,M promises, and no branch goes between its NOPs.
    """
    from ..compilers.flags import parse_pair

    options = ReadOptions(parse_pair(patchable, "--patchable") if patchable else None)
    if debug_dir:
        options = options._replace(debug_folder=debug_dir)
    wanted = _Wanted(
        _patterns(include, match), _patterns(exclude, match), min_size, only or "", demangle, explain, options
    )

    def run(processes: Processes) -> None:
        files: list[_File] = []
        for target in targets:
            process = processes.of(target)
            files += _process(process, wanted, all_modules) if process is not None else _files(target, wanted)
        if as_json:
            echo(dumps(headed("functions", {"files": [_as_json(file) for file in files]})))
            return
        for number, file in enumerate(files):
            _print(file._replace(brief=file.brief or totals), number > 0)

    return look(user, targets, run, options.debug_folder)


# -- selecting -------------------------------------------------------------------------------------------------------


def _patterns(patterns: tuple[str, ...], kind: str) -> list[Match]:
    return [_pattern(pattern, kind) for pattern in patterns]


def _pattern(pattern: str, kind: str) -> Match:
    """Return a test of names; a name always matches itself, whatever characters it has."""
    if kind == "regex" or (kind == "auto" and _REGEX_ONLY.search(pattern)):
        try:
            expression = re.compile(pattern)
        except re.error as error:
            raise UsageError(f"{pattern!r} is no regular expression: {error}") from None
        return lambda name: name == pattern or expression.search(name) is not None
    glob = re.compile(fnmatch.translate(pattern))
    return lambda name: name == pattern or glob.match(name) is not None


def _select(function: Function, wanted: _Wanted, names: dict[str, str]) -> bool:
    if function.size < wanted.min_size:
        return False
    if wanted.only and (wanted.only == "patchable") != function.hotpatchable:
        return False
    if not wanted.include and not wanted.exclude:
        return True
    known = [text for name in function.names for text in (name, names.get(name, ""))]
    if wanted.include and not any(match(name) for match in wanted.include for name in known if name):
        return False
    return not any(match(name) for match in wanted.exclude for name in known if name)


def _files(target: str, wanted: _Wanted) -> Iterator[_File]:
    """Yield a file, an archive's members or a folder's files; in a folder, what can't be read is named and passed over.

    Raises InputError.
    """
    for content in contents(target, _warn):
        file = in_folder(target, _warn, partial(_of_content, content, wanted))
        if file is not None:
            yield file


def _warn(error: InputError) -> None:
    echo(f"usdtbuild: warning: {error}", err=True)


def _of_content(content: Content, wanted: _Wanted) -> _File:
    return _elf(Image(content.data, content.path, FUNCTIONS), wanted)


def _elf(image: Image, wanted: _Wanted, memory: ReadMemory | None = None) -> _File:
    options = wanted.options._replace(taken=partial(site_places, image))
    reader = FunctionReader(image, options, memory)
    return _selected(reader.report, reader, wanted)


def _selected(report: FunctionReport, reader: FunctionReader | None, wanted: _Wanted) -> _File:
    names: dict[str, str] = {}
    if wanted.demangle:
        from ..inspection.demangle import demangle

        names = demangle(name for function in report.functions for name in function.names)
    functions = [f for f in report.functions if _select(f, wanted, names)]
    explanations: list[Explanation | None] = [None] * len(functions)
    if wanted.explain and reader is not None:
        others = [number for number, function in enumerate(functions) if not function.hotpatchable and function.name]
        for number, explanation in zip(others, reader.explain([functions[number] for number in others])):
            explanations[number] = explanation
    return _File(report, functions, names, explanations)


def _process(process: Process, wanted: _Wanted, all_modules: bool) -> list[_File]:
    files = []
    unread = process.unread()
    note = f"{unread}: only its files were checked" if unread else ""
    for image, bias in process.loaded(_warn, FUNCTIONS):
        file = _elf(image, wanted, None if unread else _at_bias(process.memory, bias))
        files.append(file._replace(bias=bias, note=note, brief=not all_modules and not file.report.tables))
    if not files:
        raise InputError(f"process {process.pid}", "has no file in memory whose functions can be read")
    return files


def _at_bias(memory: ProcessMemory, bias: int) -> Callable[[int, int], bytes | None]:
    """Return a reader of the process's memory that takes the addresses of a file loaded at `bias`."""
    return lambda address, size: memory.read(address + bias, size)


# -- JSON ------------------------------------------------------------------------------------------------------------


def _as_json(file: _File) -> dict[str, Any]:
    report = file.report
    promise = report.promise
    totals = report.totals(file.functions)
    return {
        "file": report.path,
        "format": "ELF",
        "machine": report.machine,
        "type": report.type,
        "debug_file": report.debug_file or None,
        "bias": file.bias,
        "note": file.note or None,
        "promise": {"n": promise.n, "m": promise.m, "origin": promise.origin} if promise else None,
        "tables": [
            {
                "section": table.name, "address": table.address, "entries": table.entries,
                "relative": table.relative, "dynamic_relocations": table.relocations,
                "problem": table.problem or None,
            }
            for table in report.tables
        ],
        "totals": {
            "functions": len(file.functions),
            "hotpatchable": totals[""],
            "unpatchable": {reason: count for reason, count in totals.items() if reason},
        },
        "functions": [] if file.brief else [
            _row_as_json(function, file, explanation)
            for function, explanation in zip(file.functions, file.explanations)
        ],
    }  # fmt: skip


def _row_as_json(function: Function, file: _File, explanation: Explanation | None) -> dict[str, Any]:
    row: dict[str, Any] = {
        "name": file.names.get(function.name, function.name) or None,
        "symbol": function.name or None,
        "aliases": [file.names.get(name, name) for name in function.aliases],
        "address": function.address + file.bias,
        "section": function.section or None,
        "size": function.size,
        "hotpatchable": function.hotpatchable,
        "reason": function.reason or None,
        "detail": function.detail or None,
        "padding": function.padding,
        "nops": function.nops,
        "form": function.form or None,
        "source": function.source,
        "warnings": list(function.warnings),
    }
    if explanation is not None:
        row["explain"] = {
            "possible": explanation.possible,
            "needed": explanation.needed,
            "covered": explanation.covered,
            "against": list(explanation.against),
            "instructions": [
                {"address": i.address + file.bias, "code": i.code, "text": i.text, "fix": i.fix or None}
                for i in explanation.instructions
            ],
        }
    return row


# -- text ------------------------------------------------------------------------------------------------------------

_COLUMNS = ("ADDRESS", "SIZE", "PATCHABLE", "PADDING", "NOPS", "NOP FORM", "SOURCE", "NAME")
_LEFT = (False, False, True, False, False, True, True, True)


def _print(file: _File, apart: bool) -> None:
    report = file.report
    lines = [""] if apart else []
    lines.append(style(one_line(report.path), bold=True) + f": ELF {report.type}, {report.machine}")
    if report.debug_file:
        lines.append(f"names from {one_line(report.debug_file)}")
    lines += [shown(_tables(name, report)) for name in dict.fromkeys(table.name for table in report.tables)]
    if report.promise:
        origin = {"given": "as given", "found": "what most entries have", "usual": "the machine's usual"}
        lines.append(f"held to N,M = {report.promise} ({origin[report.promise.origin]})")
    if file.note:
        lines.append(shown(f"note: {file.note}"))
    if not file.brief:
        lines += ["", *_rows(file)]
    echo("\n".join(lines), styled=True)
    _print_totals(file)


def _tables(name: str, report: FunctionReport) -> str:
    """Return the line about all sections called `name`; an object has one for each of its functions' sections."""
    tables = [table for table in report.tables if table.name == name]
    relocations = sum(table.relocations for table in tables)
    several = f" in {len(tables)} sections" if len(tables) > 1 else ""
    cost = f", {relocations} dynamic relocations at every start" if relocations else ""
    return f"table {name}: {sum(table.entries for table in tables)} entries{several}{cost}"


def _rows(file: _File) -> list[str]:
    """Return the listing. Not a rich table: its layout takes 0.35 ms a row, which 10,000 functions can't afford."""
    rows = [_row(function, file) for function in file.functions]
    widths = [max(map(len, column)) for column in zip(_COLUMNS, *rows)]
    widths[-1] = 0
    lines = [_line(_COLUMNS, widths)]
    colour = sys.stdout.isatty()
    for function, explanation, row in zip(file.functions, file.explanations, rows):
        line = _line(row, widths)
        lines.append(style(line, fg="green") if colour and function.hotpatchable else shown(line))
        if function.detail and function.detail != REASONS.get(function.reason):
            lines.append(shown(f"    {function.detail}"))
        lines += [f"    {WARNINGS[warning]}" for warning in function.warnings]
        if explanation is not None:
            lines += map(shown, _explanation(explanation, file.bias))
    return lines


def _row(function: Function, file: _File) -> tuple[str, ...]:
    place = f"{function.address + file.bias:#x}"
    name = one_line(" = ".join(file.names.get(name, name) for name in function.names)) or "-"
    return (
        f"{function.section}+{place}" if function.section else place,
        str(function.size),
        "yes" if function.hotpatchable else f"no: {function.reason}",
        str(function.padding),
        str(function.nops),
        function.form or "-",
        function.source,
        name,
    )


def _line(cells: tuple[str, ...], widths: list[int]) -> str:
    parts = [cell.ljust(width) if left else cell.rjust(width) for cell, width, left in zip(cells, widths, _LEFT)]
    return "  ".join(parts).rstrip()


def _explanation(explanation: Explanation, bias: int) -> list[str]:
    if explanation.possible:
        head = f"a prologue patch of {explanation.needed} bytes would cover {explanation.covered}, and could be made"
    else:
        head = "no prologue patch: " + "; ".join(explanation.against)
    covered = [
        f"      {i.address + bias:#x}  {i.code:<16}  {i.text}" + (f"    <- {i.fix}" if i.fix else "")
        for i in explanation.instructions
    ]
    return [f"    {head}", *covered]


def _print_totals(file: _File) -> None:
    from rich.console import Console
    from rich.table import Table

    totals = file.report.totals(file.functions)
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(justify="right")
    table.add_column(no_wrap=True)
    table.add_column()
    table.add_row(str(totals[""]), "hotpatchable", "")
    for reason, count in totals.items():
        if reason:
            table.add_row(str(count), reason, REASONS[reason])
    console = Console(highlight=False, markup=False, width=None if sys.stdout.isatty() else 160)
    console.print(f"\n{plural(len(file.functions), 'function')}")
    print_table(console, table)
