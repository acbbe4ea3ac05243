"""Which functions of a file can be patched at their entry while the program runs, and why the others can't.

The one place where the way from a file to that answer can be read top to bottom: symbols and tables are read, each
table entry is measured, the file's N,M is found (or given), each entry is judged against it, and branches into the NOPs
are looked for. What was compiled without `-fpatchable-function-entry` is listed too, with that as its reason. Knows
nothing of probes, and never changes a file.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from contextlib import contextmanager
from struct import error as struct_error
from typing import TYPE_CHECKING, NamedTuple

from .. import machines
from ..elf.space import ET_DYN, ET_EXEC, Image, map_file
from . import nops as M
from .entry import (
    REASONS,
    Promise,
    Start,
    Starts,
    cache_line,
    find_promise,
    form,
    judge,
    may_be_alignment,
    may_be_relaxed,
    measure,
    protected,
    settle,
    without_alignment,
)
from .symbols import DEBUG_FOLDER, read_symbols, unwind_starts
from .table import read_tables

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from ..elf.headers import Data
    from ..machines.facts import Entries as Machine
    from .entry import Measured
    from .explain import Explanation
    from .table import Entry, Table

    ReadMemory = Callable[[int, int], "bytes | None"]

# Reasons of functions that have no entry: nothing a patcher would touch, so nothing that can go wrong.
HARMLESS = frozenset({"no-table", "no-entry", "cold-part", "format", "machine"})

# What a hotpatchable function may be flagged with.
WARNINGS = {"crosses-cache-line": "its patch crosses a cache line: to be written byte by byte, second byte first"}


class Function(NamedTuple):
    """One function, or one table entry that belongs to none. Lengths are in bytes.

    `address` is the function's, in an object the offset in `section`. `reason` is a key of `REASONS`, empty if the
    function is hotpatchable; `detail` is the sentence about this one. `source` says where the name comes from: symtab,
    dynsym, debug file, debug data, export; for a nameless function: unwind table, or the table section itself.
    """

    name: str
    aliases: tuple[str, ...]
    address: int
    size: int
    hotpatchable: bool
    reason: str
    detail: str
    padding: int
    nops: int
    form: str
    source: str
    section: str = ""
    warnings: tuple[str, ...] = ()
    entry: int = 0  # the address as the image has it, for whoever reads its bytes

    @property
    def names(self) -> tuple[str, ...]:
        """The function's name and its aliases."""
        return (self.name, *self.aliases) if self.name else ()


class Report(NamedTuple):
    """Everything about one file."""

    path: str
    format: str  # ELF, PE, COFF
    machine: str
    type: str  # executable, shared library or PIE, object, ...
    promise: Promise | None
    tables: tuple[Table, ...]
    functions: tuple[Function, ...]
    debug_file: str = ""

    def totals(self, functions: Sequence[Function] | None = None) -> dict[str, int]:
        """Return how many functions are hotpatchable (key "") and how many are not, by reason, the most first."""
        counted = Counter(f.reason for f in (self.functions if functions is None else functions))
        patchable = counted.pop("", 0)
        ordered = sorted(counted.items(), key=lambda item: (-item[1], item[0]))
        return {"": patchable, **dict(ordered)}

    @property
    def relocations(self) -> int:
        """The dynamic relocations that the tables cost at every start of the program."""
        return sum(table.relocations for table in self.tables)


class Options(NamedTuple):
    """How to read: the N,M to hold entries to (None: find it), and where debug files are.

    `taken` are places whose NOPs are somebody else's, as section number and offset (of linked files: 0 and address):
    NOPs from there on are not the entry's, even if they follow its own.
    """

    promise: tuple[int, int] | None = None
    debug_folder: str = DEBUG_FOLDER
    taken: tuple[tuple[int, int], ...] = ()


def read_functions(
    path: str, options: Options | None = None, memory: ReadMemory | None = None, data: Data | None = None
) -> Report:
    """Return the report about the file at `path`; `memory` reads a running process that has it loaded.

    `data` is the file's content, if the caller has it. Raises InputError if the file can't be read or is damaged.
    """
    given = data
    data = map_file(path) if data is None else data
    if data[:2] in {b"MZ", b"\x64\x86", b"\x4c\x01", b"\x64\xaa"}:
        from .pe import read_pe

        return read_pe(data, path)
    image = Image(data, path)
    try:
        with _damage_told(image):
            return _Reader(image, options or Options(), memory).report()
    finally:
        if given is None:
            image.close()


@contextmanager
def _damage_told(image: Image) -> Iterator[None]:
    """Make an InputError of what comes of reading a place that a damaged file names and hasn't got."""
    try:
        yield
    except (struct_error, IndexError, OverflowError):
        raise image.error("its symbols or relocations are damaged") from None


_TYPES = {1: "object", ET_EXEC: "executable", ET_DYN: "PIE or shared library"}


class _Judged(NamedTuple):
    """One entry's way through the checks."""

    entry: Entry
    measured: Measured
    machine: Machine
    reason: str = ""
    detail: str = ""
    warnings: tuple[str, ...] = ()


class _Reader:
    """Reads one ELF file; each method is one step of the module's first sentence."""

    def __init__(self, image: Image, options: Options, memory: ReadMemory | None) -> None:
        self.image, self.options, self.memory = image, options, memory
        self.facts = machines.facts_of(image.machine)
        self.machine = M.machine_for(image.machine, image.layout.is64, image.layout.little)
        self.thumb = self.facts.thumb if self.facts and self.machine else None
        self.symbols = read_symbols(image, options.debug_folder)
        self.starts = Starts(self.symbols.symbols, () if self.symbols.complete else unwind_starts(image))
        self.tables, self.entries = read_tables(image)
        self.promise: Promise | None = None
        self.taken = sorted({image.address_of(*place) for place in self.options.taken})

    def report(self) -> Report:
        """Return what the file says about its functions."""
        judged = self._judge() if self.machine is not None else []
        rows = self._rows(judged)
        name = self.machine.name if self.machine else f"ELF machine {self.image.machine}"
        return Report(
            self.image.path, "ELF", name, _TYPES.get(self.image.type, f"ELF type {self.image.type}"),
            self.promise if self.tables else None, tuple(self.tables), tuple(rows), self.symbols.debug_file,
        )  # fmt: skip

    # -- entries -----------------------------------------------------------------------------------------------------

    def _judge(self) -> list[_Judged]:
        assert self.machine is not None
        complete = self.symbols.complete and self.starts.named > 0
        judged: list[_Judged] = []
        seen: set[int] = set()
        for entry in self.entries:
            table = self.tables[entry.table]
            problem, detail = (table.problem, table.detail) if table.problem else (entry.problem, entry.detail)
            machine = self._machine_at(entry.address)
            measured = measure(entry, machine, self.starts, self._read, complete)
            if not problem and entry.address in seen:
                problem, detail = "duplicate", f"an earlier table entry names {entry.address:#x} too"
            seen.add(entry.address)
            judged.append(_Judged(entry, measured, machine, problem, detail))
        self.promise = self._promise([j.measured for j in judged if not j.reason])
        judged = [self._against_promise(j, self.promise) for j in judged]
        return self._without_branches(judged, self.promise)

    def _read(self, address: int, size: int) -> bytes:
        """Return the bytes at an address, up to the next place that is taken."""
        index = bisect_left(self.taken, address)
        if index < len(self.taken):
            size = min(size, self.taken[index] - address)
        return self.image.read(address, size)

    def _machine_at(self, address: int) -> Machine:
        """ARM has two instruction sets; a symbol, or the NOPs themselves, say which one is meant."""
        assert self.machine is not None
        if self.thumb is None:
            return self.machine
        start = self.starts.at_or_after(address)
        around = self.starts.around(address)
        if around is not None and address < around.address + around.size:
            start = around
        if start is not None and start.address - address <= 4096:
            return self.thumb if start.thumb else self.machine
        return self.machine if M.nop_at(self.machine, self.image.read(address, 4), 0) else self.thumb

    def _promise(self, measured: list[Measured]) -> Promise:
        assert self.machine is not None
        if self.options.promise:
            return Promise(*self.options.promise, "given")
        machine = self.machine
        if self.thumb is not None and measured:
            thumbs = sum(1 for found in measured if self._machine_at(found.table_address) is self.thumb)
            machine = self.thumb if 2 * thumbs > len(measured) else machine
        return find_promise(machine, measured)

    def _against_promise(self, judged: _Judged, promise: Promise) -> _Judged:
        if judged.reason:
            return judged
        measured = settle(judged.measured, promise)
        if not self.image.relocatable and may_be_relaxed(measured, promise, judged.machine):
            measured = without_alignment(measured, promise)
        reason, detail = judge(measured, promise, judged.machine, self.image.executable)
        warnings: tuple[str, ...] = ()
        if not self.image.relocatable and measured.pieces and cache_line(measured, judged.machine):
            warnings = ("crosses-cache-line",)
        return judged._replace(measured=measured, reason=reason, detail=detail, warnings=warnings)

    def _without_branches(self, judged: list[_Judged], promise: Promise) -> list[_Judged]:
        """Refuse entries that a branch goes into; take NOPs too many for a loop's alignment if a branch says so."""
        padding: dict[int, int] = {}
        inside: dict[int, int] = {}
        heads: dict[int, int] = {}
        for number, one in enumerate(judged):
            if not one.reason:
                before, within = protected(one.measured)
                padding.update(dict.fromkeys(before, number))
                inside.update(dict.fromkeys(within, number))
            elif one.reason == "entry-long":
                end = may_be_alignment(one.measured, promise)
                if end:
                    heads[end] = number
        if not padding and not inside and not heads:
            return judged
        from .jumps import find_jumps  # capstone takes its time to load

        jumps = find_jumps(self.image, self.starts, {**padding, **inside, **heads})
        for target in sorted(jumps):
            if target in heads:
                number = heads[target]
                trimmed = without_alignment(judged[number].measured, promise)
                again = judged[number]._replace(measured=trimmed, reason="", detail="")
                judged[number] = self._against_promise(again, promise)
        for target, jump in sorted(jumps.items()):
            number, code = (padding[target], "jump-into-padding") if target in padding else (
                inside.get(target, -1), "jump-into-entry")  # fmt: skip
            if number >= 0 and not judged[number].reason:
                where = self.image.place(jump.source)
                at = f"{where.section}+{where.address:#x}" if where.section else f"{where.address:#x}"
                goes = jump.target - judged[number].measured.entry
                detail = f"{jump.text} at {at} goes to the entry{goes:+d}"
                judged[number] = judged[number]._replace(reason=code, detail=detail)
        return judged

    # -- rows --------------------------------------------------------------------------------------------------------

    def _rows(self, judged: list[_Judged]) -> list[Function]:
        rows = []
        done: set[int] = set()
        for one in judged:
            row = self._row(one)
            if one.measured.start is not None and one.reason not in ("duplicate", "not-a-function"):
                done.add(one.measured.start.address)
            rows.append(row)
        rows += [self._without_entry(start) for start in self.starts.by_address.values() if start.address not in done]
        rows.sort(key=lambda row: (row.entry, row.name, row.reason))
        return rows

    def _row(self, one: _Judged) -> Function:
        found, start = one.measured, one.measured.start
        if one.reason in ("not-a-function", "null-entry", "unresolved", "duplicate"):
            start = None
        address = found.entry if found.entry > 0 and not found.problem else one.entry.address
        address = start.address if start else address
        place = self.image.place(address)
        reason, detail = one.reason, one.detail
        if not reason and self.memory is not None:
            reason, detail = self._changed(found, self.memory)
        return Function(
            start.name if start else "", start.aliases if start else (), place.address, start.size if start else 0,
            not reason, reason, detail, found.padding, found.nops, form(found, one.machine),
            start.source if start else self.tables[one.entry.table].name, place.section, one.warnings, address,
        )  # fmt: skip

    def _changed(self, found: Measured, memory: ReadMemory) -> tuple[str, str]:
        """Compare padding and entry with what the process has there; another tool may have patched them."""
        first, size = found.entry - found.padding, found.padding + found.landing + found.nops
        now = memory(first, size)
        if now is None or now == self.image.read(first, size):
            return "", ""
        return "changed-in-memory", f"the process has {now.hex()} there, where the file has NOPs"

    def _without_entry(self, start: Start) -> Function:
        place = self.image.place(start.address)
        hotpatch = self._is_hotpatch(start)
        reason, detail = ("", "") if hotpatch else self._why_no_entry(start)
        padding, nops, words = (8, 4, "1 NOP of 4 bytes (-mhotpatch)") if hotpatch else (0, 0, "")
        return Function(
            start.name, start.aliases, place.address, start.size, not reason, reason, detail, padding, nops, words,
            start.source, place.section, (), start.address,
        )  # fmt: skip

    def _is_hotpatch(self, start: Start) -> bool:
        """-mhotpatch=4,2 writes no table; its bytes are known by the symbol they stand around."""
        if self.facts is None or self.facts.hotpatch is None:
            return False
        expected = b"".join(self.facts.hotpatch)
        return self.image.read(start.address - 8, 12) == expected and self.image.executable(start.address)

    def _why_no_entry(self, start: Start) -> tuple[str, str]:
        if self.machine is None:
            return "machine", f"what a patchable entry looks like on ELF machine {self.image.machine} is not known"
        if start.name.endswith(".cold") or ".cold." in start.name:
            return "cold-part", REASONS["cold-part"]
        if self._looks_patchable(start):
            return "lost-entry", f"{REASONS['lost-entry']}: the linker dropped it, or the object was edited"
        if not self.tables:
            return "no-table", REASONS["no-table"]
        return "no-entry", REASONS["no-entry"]

    def _looks_patchable(self, start: Start) -> bool:
        """Whether a function without an entry has the very NOPs of N,M, so that its entry must have been lost.

        Only x86 can tell: elsewhere the NOPs that align a function look like its padding.
        """
        machine, promise = self.machine, self.promise
        if machine is None or promise is None or not M.has_long_nops(machine) or not promise.m:
            return False
        unit, m = machine.units[0], promise.m
        if m and self.image.read(start.address - m * unit, m * unit) != machine.nops[0][0] * m:
            return False
        code = self.image.read(start.address, 64)
        at = M.landing_pad(machine, code)[0] or start.local_entry
        wanted, total = (promise.n - m) * unit, 0
        if start.size and wanted > start.size:
            return False
        while total < wanted:
            length = M.nop_at(machine, code, at + total)
            if not length:
                return False
            total += length
        return total == wanted


def explain_functions(
    path: str, functions: Sequence[Function], options: Options | None = None, data: Data | None = None
) -> list[Explanation]:
    """Return what a patcher would do with the prologue of each of `functions`, which `read_functions` gave for `path`.

    `data` is the file's content, if the caller has it. Raises InputError if the file can't be read, is damaged, or is
    no ELF file.
    """
    from .explain import Subject, explain

    image = Image(map_file(path) if data is None else data, path)
    try:
        with _damage_told(image):
            reader = _Reader(image, options or Options(), None)
            starts = reader.starts.by_address
            subjects = [Subject(f.entry, f.size, f.entry in starts and starts[f.entry].thumb) for f in functions]
            return explain(image, reader.starts, subjects)
    finally:
        if data is None:
            image.close()
