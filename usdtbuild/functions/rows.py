"""From judged entries and function starts to the rows of a report, those without an entry and why among them.

Which entries can be patched has been decided before (`read`); nothing here reads tables or branches.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from ..elf.space import AddressSpace
from ..machines.facts import Entries as Machine
from ..machines.facts import Facts
from ..machines.nops import nop_at
from ..record import NamedTuple
from . import nops
from .entry import REASONS, Measured, Promise, Start, Starts, form
from .report import Function
from .table import Table, TableEntry

ReadMemory = Callable[[int, int], "bytes | None"]


class Judged(NamedTuple):
    """One entry's way through the checks."""

    entry: TableEntry
    measured: Measured
    machine: Machine
    reason: str = ""
    detail: str = ""
    warnings: tuple[str, ...] = ()


class Reading(Protocol):
    """What the rows need of a file that has been read."""

    space: AddressSpace
    starts: Starts
    tables: list[Table]
    facts: Facts | None
    machine: Machine | None
    promise: Promise | None


class Rows:
    """Makes the rows of one file; `memory` reads a running process that has it loaded."""

    def __init__(self, reader: Reading, memory: ReadMemory | None) -> None:
        self.space, self.starts, self.tables = reader.space, reader.starts, reader.tables
        self.facts, self.machine, self.promise = reader.facts, reader.machine, reader.promise
        self.memory = memory

    def made_of(self, judged: list[Judged]) -> list[Function]:
        """Return the rows of all entries and of all functions without one, by address."""
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

    def _row(self, one: Judged) -> Function:
        found, start = one.measured, one.measured.start
        if one.reason in ("not-a-function", "null-entry", "unresolved", "duplicate"):
            start = None
        address = found.entry if found.entry > 0 and not found.problem else one.entry.address
        address = start.address if start else address
        place = self.space.place(address)
        reason, detail = one.reason, one.detail
        if not reason and self.memory is not None:
            reason, detail = self._changed(found, self.memory)
        return Function(
            start.name if start else "", start.aliases if start else (), place.address, start.size if start else 0,
            not reason, reason, detail, found.padding, found.nops, form(found, one.machine),
            start.source if start else self.tables[one.entry.table].name, place.section, one.warnings, address,
            start.local_entry if start else 0, found.landing,
        )  # fmt: skip

    def _changed(self, found: Measured, memory: ReadMemory) -> tuple[str, str]:
        """Compare padding and entry with what the process has there; another tool may have patched them."""
        first, size = found.entry - found.padding, found.padding + found.landing + found.nops
        now = memory(first, size)
        if now is None or now == self.space.read(first, size):
            return "", ""
        return "changed-in-memory", f"the process has {now.hex()} there, where the file has NOPs"

    def _without_entry(self, start: Start) -> Function:
        place = self.space.place(start.address)
        hotpatch = self._is_hotpatch(start)
        reason, detail = ("", "") if hotpatch else self._why_no_entry(start)
        padding, size, words = (8, 4, "1 NOP of 4 bytes (-mhotpatch)") if hotpatch else (0, 0, "")
        return Function(
            start.name, start.aliases, place.address, start.size, not reason, reason, detail, padding, size, words,
            start.source, place.section, (), start.address, start.local_entry,
        )  # fmt: skip

    def _is_hotpatch(self, start: Start) -> bool:
        """-mhotpatch=4,2 writes no table; its bytes are known by the symbol they stand around."""
        if self.facts is None or self.facts.hotpatch is None:
            return False
        expected = b"".join(self.facts.hotpatch)
        return self.space.read(start.address - 8, 12) == expected and self.space.executable(start.address)

    def _why_no_entry(self, start: Start) -> tuple[str, str]:
        if self.machine is None:
            return "machine", f"what a patchable entry looks like on ELF machine {self.space.machine} is not known"
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
        if machine is None or promise is None or not nops.has_long_nops(machine) or not promise.m:
            return False
        unit, m = machine.units[0], promise.m
        if m and self.space.read(start.address - m * unit, m * unit) != machine.nops[0][0] * m:
            return False
        code = self.space.read(start.address, 64)
        at = nops.landing_pad(machine, code)[0] or start.local_entry
        wanted, total = (promise.n - m) * unit, 0
        if start.size and wanted > start.size:
            return False
        while total < wanted:
            length = nop_at(machine, code, at + total)
            if not length:
                return False
            total += length
        return total == wanted
