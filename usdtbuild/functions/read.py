"""Which functions of a file can be patched at their entry while the program runs, and why the others can't.

The one place where the way from a file to that answer can be read top to bottom: symbols and tables are read, each
table entry is measured, the file's N,M is found (or given), each entry is judged against it, and branches into the NOPs
are looked for. What was compiled without `-fpatchable-function-entry` is listed too, with that as its reason. Knows
nothing of probes, and never changes a file.
"""

from __future__ import annotations

from bisect import bisect_left
from contextlib import contextmanager
from functools import cached_property
from struct import error as struct_error
from typing import TYPE_CHECKING

from .. import machines
from ..elf import layout as elf
from ..elf.debug_files import DEBUG_FOLDER
from ..elf.image import Image
from ..elf.space import FUNCTIONS, AddressSpace
from ..files import open_input
from ..machines.nops import nop_at
from ..record import NamedTuple
from . import nops
from .entry import (
    Measured,
    Promise,
    Starts,
    cache_line,
    find_promise,
    judge,
    may_be_alignment,
    may_be_relaxed,
    measure,
    protected,
    settle,
    without_alignment,
)
from .report import Function, FunctionReport
from .rows import Judged, ReadMemory, Rows
from .symbols import read_symbols, unwind_starts
from .table import read_tables

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from ..machines.facts import Entries as Machine
    from .explain import Explanation
    from .jumps import Jump


_TYPES = {elf.ET_REL: "object", elf.ET_EXEC: "executable", elf.ET_DYN: "PIE or shared library"}


class ReadOptions(NamedTuple):
    """How to read: the N,M to hold entries to (None: find it), and where debug files are.

    `taken` gives places whose NOPs are somebody else's, offsets by section number (of linked files: addresses, under
    0): NOPs from there on are not the entry's, even if they follow its own. It is asked only where there are entries.
    """

    promise: tuple[int, int] | None = None
    debug_folder: str = DEBUG_FOLDER
    taken: Callable[[], dict[int, list[int]]] | None = None


def read_functions(path: str, options: ReadOptions | None = None) -> FunctionReport:
    """Return the report about the file at `path`. Raises InputError if it can't be read or is damaged."""
    with open_input(path) as opened:
        return FunctionReader(Image(opened.view, path, FUNCTIONS), options).report


@contextmanager
def _damage_told(space: AddressSpace) -> Iterator[None]:
    """Make an InputError of what comes of reading a place that a damaged file names and hasn't got."""
    try:
        yield
    except (struct_error, IndexError, OverflowError):
        raise space.error("its symbols or relocations are damaged") from None


class FunctionReader:
    """Reads one opened ELF file; each method is one step of the module's first sentence."""

    def __init__(self, file: Image, options: ReadOptions | None = None, memory: ReadMemory | None = None) -> None:
        """Read the symbols and tables of `file`. Raises InputError if it is damaged, or has no code."""
        self.space = space = AddressSpace(file)
        self.options, self._memory = options or ReadOptions(), memory
        self.facts = machines.facts_of(space.machine)
        self.machine = nops.machine_for(space.machine, space.layout.is64, space.layout.little)
        self.thumb = self.facts.thumb if self.facts and self.machine else None
        self.promise: Promise | None = None
        with _damage_told(space):
            self.symbols = read_symbols(space, self.options.debug_folder)
            self.starts = Starts(self.symbols.symbols, () if self.symbols.complete else unwind_starts(space))
            self.tables, self.entries = read_tables(space)
        self._begins = {entry.address for entry in self.entries}
        taken = self.options.taken() if self.options.taken and self.entries else {}
        if space.relocatable:
            self.taken = sorted(space.address_of(section, at) for section, places in taken.items() for at in places)
        else:
            self.taken = sorted(taken.get(0, ()))

    @cached_property
    def report(self) -> FunctionReport:
        """What the file says about its functions. Raises InputError if it is damaged."""
        with _damage_told(self.space):
            judged = self._judge() if self.machine is not None else []
            rows = Rows(self, self._memory).made_of(judged)
        name = self.machine.name if self.machine else f"ELF machine {self.space.machine}"
        return FunctionReport(
            self.space.path, name, _TYPES.get(self.space.type, f"ELF type {self.space.type}"),
            self.promise if self.tables else None, tuple(self.tables), tuple(rows), self.symbols.debug_file,
        )  # fmt: skip

    def explain(self, functions: Sequence[Function]) -> list[Explanation]:
        """Return what a patcher would do with the prologue of each of `functions`, which are rows of the report.

        Raises InputError if the file is damaged.
        """
        from .explain import ExplainedFunction, explain

        starts = self.starts.by_address
        subjects = [ExplainedFunction(f.entry, f.size, f.entry in starts and starts[f.entry].thumb) for f in functions]
        with _damage_told(self.space):
            return explain(self.space, self.starts, subjects)

    # -- entries -----------------------------------------------------------------------------------------------------

    def _judge(self) -> list[Judged]:
        assert self.machine is not None
        complete = self.symbols.complete and self.starts.named > 0
        judged: list[Judged] = []
        seen: set[int] = set()
        for entry in self.entries:
            table = self.tables[entry.table]
            problem, detail = (table.problem, table.detail) if table.problem else (entry.problem, entry.detail)
            machine = self._machine_at(entry.address)
            measured = measure(entry, machine, self.starts, self._read, complete)
            if not problem and entry.address in seen:
                problem, detail = "duplicate", f"an earlier table entry names {entry.address:#x} too"
            seen.add(entry.address)
            judged.append(Judged(entry, measured, machine, problem, detail))
        self.promise = self._promise([j.measured for j in judged if not j.reason])
        judged = [self._against_promise(j, self.promise) for j in judged]
        return self._without_branches(judged, self.promise)

    def _read(self, address: int, size: int) -> bytes:
        index = bisect_left(self.taken, address)
        if index < len(self.taken) and self.taken[index] < address + size:
            size = self.taken[index] - address
        return self.space.read(address, size)

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
        return self.machine if nop_at(self.machine, self.space.read(address, 4), 0) else self.thumb

    def _promise(self, measured: list[Measured]) -> Promise:
        assert self.machine is not None
        if self.options.promise:
            return Promise(*self.options.promise, "given")
        machine = self.machine
        if self.thumb is not None and measured:
            thumbs = sum(1 for found in measured if self._machine_at(found.table_address) is self.thumb)
            machine = self.thumb if 2 * thumbs > len(measured) else machine
        return find_promise(machine, measured)

    def _against_promise(self, judged: Judged, promise: Promise) -> Judged:
        if judged.reason:
            return judged
        measured = settle(judged.measured, promise)
        if not self.space.relocatable and may_be_relaxed(measured, promise, judged.machine):
            measured = without_alignment(measured, promise)
        reason, detail = judge(measured, promise, judged.machine, self.space.executable)
        warnings: tuple[str, ...] = ()
        if not self.space.relocatable and measured.pieces and cache_line(measured, judged.machine):
            warnings = ("crosses-cache-line",)
        return judged._replace(measured=measured, reason=reason, detail=detail, warnings=warnings)

    def _goes_behind_its_end(self, jump: Jump) -> bool:
        """Whether a branch goes to where its function ends, as compilers write it for what is never executed.

        Where the next function's padding begins there, who came by would find NOPs, or a patcher's whole jump.
        """
        around = self.starts.around(jump.source)
        is_end = around is not None and around.address + around.size == jump.target
        return is_end and jump.target in self._begins

    def _without_branches(self, judged: list[Judged], promise: Promise) -> list[Judged]:
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
                end = may_be_alignment(one.measured, promise, one.machine, self._read)
                if end:
                    heads[end] = number
        if not padding and not inside and not heads:
            return judged
        from .jumps import find_jumps  # capstone takes its time to load

        jumps = find_jumps(self.space, self.starts, {**padding, **inside, **heads}, self._goes_behind_its_end)
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
                where = self.space.place(jump.source)
                at = f"{where.section}+{where.address:#x}" if where.section else f"{where.address:#x}"
                goes = jump.target - judged[number].measured.entry
                detail = f"{jump.text} at {at} goes to the entry{goes:+d}"
                judged[number] = judged[number]._replace(reason=code, detail=detail)
        return judged
