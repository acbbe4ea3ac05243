"""The patch engine's way, from top to bottom: prepare, stop, arm, let go; read; stop, put back, let go.

It needs a `Tracees` that has seized the process, and leaves it to its user whether the process stays seized: armed
sites need nobody. It works on one program image; after an exec it is gone with the image.
"""

from __future__ import annotations

import contextlib
import os
import struct
import time
from pathlib import Path
from typing import TYPE_CHECKING

from .. import ptrace
from ..errors import TracerError
from ..maps import PAGE, Memory, Room, areas, page_start
from ..model import COUNT, STRING, Plan, Refusal
from ..tracees import status_field
from . import code, journal, layout
from .injection import (
    CLOSE,
    MADV_WIPEONFORK,
    MADVISE,
    MAP_ANONYMOUS,
    MAP_PRIVATE,
    MAP_SHARED,
    PROT_EXEC,
    PROT_READ,
    PROT_WRITE,
    Call,
    Shared,
    borrow,
    control_size,
    find_gate,
    map_call,
    perform,
)
from .rings import Rings, shape_for

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ..engine import Totals
    from ..model import Target
    from ..tracees import Thread, Tracees
    from .layout import Layout, Spot

_NUMBER = 62  # e_machine of what the stubs are written for; see `code`
# Where C libraries keep a thread's number, from its thread pointer: glibc (struct pthread.tid), musl.
_TID_OFFSETS = (0x2D0, 0x30, 0x38)


def why_not(pid: int, machine: int) -> str:
    """Return why a process can't be patched at all; '' if it can."""
    if machine != _NUMBER:
        return "only x86-64 programs are patched"
    if os.uname().machine != "x86_64":
        return f"this machine is {os.uname().machine}"
    if status_field(pid, "Seccomp") not in {"", "0"}:
        return "a seccomp filter decides which system calls the process may make"
    return ""


class PatchEngine:
    """Sites of one process as jumps into memory that we share with it."""

    name = "patch"

    def __init__(self, tracees: Tracees, pid: int, plan: Plan) -> None:
        self.tracees, self.pid, self.plan = tracees, pid, plan
        self.shared: Shared | None = None
        self.rings: Rings | None = None
        self.layout: Layout | None = None
        self.stood_still = 0.0  # seconds, in all
        self._entries: list[journal.Entry] = []
        self._counters: list[int] = []
        self._mapping: _Mapping | None = None
        arguments = [len(target.arguments) for target in plan.targets]
        strings = [sum(one.kind == STRING for one in target.arguments) for target in plan.targets]
        self.shape = shape_for(arguments, strings, plan.string_size, plan.buffer_size)

    # -- arming ------------------------------------------------------------------------------------------------------

    def attach(self) -> list[Refusal]:
        """Arm all sites that can be; return what can't. The process must be seized. Raises TracerError."""
        memory = Memory(self.pid)
        try:
            clean_up(self.tracees, self.pid, memory)
            return self._attach(memory)
        finally:
            memory.close()

    def _attach(self, memory: Memory) -> list[Refusal]:
        mapped = areas(self.pid)
        room = Room(mapped)
        earlier = {e.address: e.mirror for found in journal.find(mapped, memory) for e in found.entries if e.mirror}
        mirrors = layout.Mirrors(room, earlier)
        spots, refusals = layout.find_spots(self.plan, memory, mirrors)
        if not spots:
            return refusals
        record = self.plan.what != COUNT
        rings_size = code.RINGS * self.shape.stride if record else 0
        rings_at = room.find(rings_size, spots[0].site.address, 1 << 46) if record else 0
        if rings_at is None:
            raise TracerError(f"process {self.pid} has no room for {rings_size >> 20} MB of buffers")
        room.take(rings_at, rings_at + rings_size)
        pid_cell = room.find(PAGE, spots[0].site.address, 1 << 46) or 0
        room.take(pid_cell, pid_cell + PAGE)
        tid_offset = _tid_offset(self.tracees, self.pid, memory) if record else None
        self.layout, more = layout.build(self.plan, spots, mirrors, room, self.shape, rings_at, pid_cell, tid_offset, 0)
        refusals += more
        if not self.layout.spots:
            return refusals
        self._prepare_journal(memory)
        gate = find_gate(self.pid, memory)
        written = journal.packed(os.getpid(), self._entries)
        started = time.monotonic()
        with self.tracees.standing(self.pid) as threads:
            self._install(threads, gate, rings_at, pid_cell, memory, room, written)
            refusals += self._arm(memory)
        self.stood_still += time.monotonic() - started
        assert self._mapping is not None
        self._counters = [self._mapping.file_offset(address) for address in self.layout.counter_of]
        return refusals

    def _prepare_journal(self, memory: Memory) -> None:
        assert self.layout is not None
        for spot in self.layout.spots:
            # Armed from the start: until the site has changed, there is nothing that putting it back would change.
            entry = journal.Entry(spot.site.address, spot.mirror, spot.before, spot.after, journal.ARMED)
            self._entries.append(entry)
        for address in sorted({spot.site.semaphore for spot in self.layout.spots if spot.site.semaphore}):
            value = memory.word(address, 2) or 0
            self._entries.append(_semaphore(address, value))

    def _install(
        self,
        threads: Sequence[Thread],
        gate: int,
        rings_at: int,
        pid_cell: int,
        memory: Memory,
        room: Room,
        written: bytes,
    ) -> None:
        """Map everything into the stopped process. Raises TracerError."""
        assert self.layout is not None
        plan = _Mapping(self.layout, len(self._entries), code.RINGS * self.shape.stride if rings_at else 0)
        thread = next((one for one in threads if one.tid == self.pid), threads[0])
        # Nothing is left to the kernel's choice, which might be a place that is needed for something else.
        near = self.layout.spots[0].site.address
        journal_at = room.find(plan.journal_size + plan.control_size, near, 1 << 46)
        if journal_at is None:
            raise TracerError(f"process {self.pid} has no free memory")
        control = journal_at + plan.journal_size
        with borrow(self.tracees, thread, gate) as borrowed:
            self.shared = Shared(borrowed, plan.size)
            plan.fill(self.shared.data)
            self.shared.data[: len(written)] = written
            calls = plan.calls(self.shared.descriptor, rings_at, pid_cell, journal_at)
            results = perform(borrowed, self.shared, plan.control, calls, control)
        failed = next((-r for call, r in zip(calls, results) if -PAGE < r < 0 and call.number != MADVISE), 0)
        if failed:
            raise TracerError(f"process {self.pid} can't map the memory that it shares with us: {os.strerror(failed)}")
        self._mapping = plan
        if rings_at:
            self.rings = Rings(self.shared.data, plan.rings, self.shape)
        for mirror, lead in self.layout.kept.items():
            memory.write(mirror, lead)

    def _arm(self, memory: Memory) -> list[Refusal]:
        """Switch the sites on in the stopped process, page by page, then the semaphores."""
        assert self.layout is not None
        assert self.shared is not None
        refusals = []
        by_page: dict[int, list[tuple[int, Spot]]] = {}
        for index, spot in enumerate(self.layout.spots):
            by_page.setdefault(page_start(spot.site.address), []).append((index, spot))
        for page, spots in by_page.items():
            text = bytearray(memory.read(page, 2 * PAGE))
            for index, spot in spots:
                at = spot.site.address - page
                if text[at : at + 5] != spot.before:
                    reason = layout.why_no_form(bytes(text[at : at + 5]))
                    refusals.append(Refusal(spot.target.title, reason, "", spot.site.address))
                    self._mark(index, 0)
                    continue
                text[at : at + 5] = spot.after
            last = max(spot.site.address for _, spot in spots) - page + 5
            memory.write(page, bytes(text[:last]))
        for index in range(len(self.layout.spots), len(self._entries)):
            address = self._entries[index].address
            entry = _semaphore(address, memory.word(address, 2) or 0)
            self._entries[index] = entry
            self._mark(index, journal.ARMED | journal.SEMAPHORE)
            memory.write(address, entry.after[:2])
        return refusals

    def _mark(self, index: int, flags: int) -> None:
        assert self.shared is not None
        self._entries[index] = self._entries[index]._replace(flags=flags)
        journal.set_entry(self.shared.data, index, self._entries[index])

    def forget(self, start: int, end: int) -> None:
        """A library that was between two addresses is gone, and with it what was changed in it."""
        for index, entry in enumerate(self._entries):
            if entry.flags & journal.ARMED and start <= entry.address < end:
                self._mark(index, entry.flags & ~journal.ARMED)

    # -- reading -----------------------------------------------------------------------------------------------------

    def collect(self, write: Callable[[bytes], object], *, final: bool = False) -> int:
        """Hand over raw records; return how many."""
        return self.rings.collect(write, final=final) if self.rings is not None else 0

    def totals(self) -> Totals:
        """Return hits by target (with COUNT), and lost hits by target (with RECORD)."""
        from ..engine import Totals

        found: dict[int, int] = {}
        if self.shared is not None and self.layout is not None:
            data = self.shared.data
            for spot, at in zip(self.layout.spots, self._counters):
                (value,) = struct.unpack_from("<Q", data, at)
                found[spot.target.number] = found.get(spot.target.number, 0) + value
        return Totals(found, {}) if self.plan.what == COUNT else Totals({}, found)

    # -- putting back ------------------------------------------------------------------------------------------------

    def detach(self, pid: int | None = None) -> list[Refusal]:
        """Switch everything off in the process, or in one that it forked; return what was not traced to the end.

        The process needs not be seized: each byte that changes back leaves valid code. Raises nothing: a process that
        is gone needs nothing.
        """
        pid = pid or self.pid
        try:
            memory = Memory(pid)
        except OSError:
            return []
        spots = self.layout.spots if self.layout is not None else ()
        try:
            refusals = _restore(self._entries, memory, {spot.site.address: spot.target for spot in spots})
        finally:
            memory.close()
        if pid == self.pid:
            for index, entry in enumerate(self._entries):
                self._mark(index, entry.flags & ~journal.ARMED)
        return refusals

    def forked(self) -> list[int]:
        """Return other processes that have our memory: forked ones, armed like the first."""
        if self.shared is None:
            return []
        found = []
        for name in (path.name for path in Path("/proc").iterdir()):
            if name.isdigit() and int(name) != self.pid:
                with contextlib.suppress(OSError):
                    if any(area.inode == self.shared.inode and NAME_IN_MAPS in area.name for area in areas(int(name))):
                        found.append(int(name))
        return found

    def close(self) -> None:
        """Give the memory back, except what threads may still be in."""
        if self.rings is not None and self.shared is not None:
            self.rings.close()
            self.shared.empty(self.rings.offset, code.RINGS * self.shape.stride)
            self.rings = None
        if self.shared is not None:
            self.shared.close()
            self.shared = None


NAME_IN_MAPS = "/memfd:usdtbuild-trace"


def _tid_offset(tracees: Tracees, pid: int, memory: Memory) -> int | None:
    """Return where all threads of a process keep their number; None if nowhere that is known."""
    with tracees.standing(pid) as threads:
        pointers = {thread.tid: ptrace.registers(thread.tid)[ptrace.FS_BASE] for thread in threads}
    for offset in _TID_OFFSETS:
        if pointers and all(p and memory.word(p + offset, 4) == tid for tid, p in pointers.items()):
            return offset
    return None


def _semaphore(address: int, value: int) -> journal.Entry:
    before, after = (struct.pack("<H", number & 0xFFFF) for number in (value, value + 1))
    return journal.Entry(address, 0, before, after, journal.SEMAPHORE)


def _restore(entries: Sequence[journal.Entry], memory: Memory, targets: dict[int, Target]) -> list[Refusal]:
    """Put back what entries say; return sites that somebody else has changed meanwhile."""
    refusals = []
    for entry in entries:
        if not entry.flags & journal.ARMED:
            continue
        if entry.flags & journal.SEMAPHORE:
            value = memory.word(entry.address, 2)
            if value:
                memory.write(entry.address, struct.pack("<H", value - 1))
            continue
        found = memory.read(entry.address, 5)
        if found == entry.after[:5]:
            memory.write(entry.address, entry.before[:1])
            memory.write(entry.address, entry.before[:5])
        elif found and entry.address in targets:
            reason = "another tracer took the site meanwhile; its count is not complete"
            refusals.append(Refusal(targets[entry.address].title, reason, "", entry.address))
    return refusals


def clean_up(tracees: Tracees, pid: int, memory: Memory) -> None:
    """Put back what a tracer left that was killed. Raises TracerError if it is alive."""
    left = [found for found in journal.find(areas(pid), memory) if any(e.flags & journal.ARMED for e in found.entries)]
    if not left:
        return
    with tracees.standing(pid):
        for found in left:
            if found.owner == os.getpid():
                continue
            if found.owner:
                raise TracerError(f"process {pid} is traced already, by `usdtbuild trace` (process {found.owner})")
            _restore(found.entries, memory, {})
            journal.clear(memory, found)


class _Mapping:
    """Where in the shared file everything is, and the system calls that map it."""

    def __init__(self, made: Layout, entries: int, rings_size: int) -> None:
        self.layout, self.rings_size = made, rings_size
        self.journal_size = -(-journal.size(entries) // PAGE) * PAGE
        self.rings = self.journal_size
        at = self.rings + rings_size
        self.parts = []
        for part in made.parts:
            self.parts.append(at)
            at += len(part.code) + part.counters
        self.pages = at
        self.ordered = sorted(made.pages)
        at += PAGE * len(self.ordered)
        self.control = at
        self.control_size = control_size(8 + 2 * len(self.parts) + len(self.ordered))
        self.size = at + self.control_size

    def fill(self, data: object) -> None:
        """Write stubs and mirrors into the shared file."""
        view = memoryview(data)  # type: ignore[arg-type]
        for part, at in zip(self.layout.parts, self.parts):
            view[at : at + len(part.code)] = part.code
        for index, page in enumerate(self.ordered):
            at = self.pages + PAGE * index
            view[at : at + PAGE] = self.layout.pages[page]
        view.release()

    def calls(self, descriptor: int, rings_at: int, pid_cell: int, journal_at: int) -> list[Call]:
        """Return the system calls, in order."""
        text, data = PROT_READ | PROT_EXEC, PROT_READ | PROT_WRITE
        calls = [map_call(journal_at, self.journal_size, data, MAP_SHARED, descriptor, 0)]
        calls.append(map_call(pid_cell, PAGE, data, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0))
        calls.append(Call(MADVISE, (pid_cell, PAGE, MADV_WIPEONFORK)))
        if rings_at:
            calls.append(map_call(rings_at, self.rings_size, data, MAP_SHARED, descriptor, self.rings))
        for part, at in zip(self.layout.parts, self.parts):
            size = len(part.code)
            calls.append(map_call(part.address, size, text, MAP_PRIVATE, descriptor, at))
            calls.append(map_call(part.address + size, part.counters, data, MAP_SHARED, descriptor, at + size))
        index = 0
        while index < len(self.ordered):
            start = index
            while index + 1 < len(self.ordered) and self.ordered[index + 1] == self.ordered[index] + PAGE:
                index += 1
            index += 1
            size, at = PAGE * (index - start), self.pages + PAGE * start
            calls.append(map_call(self.ordered[start], size, text, MAP_PRIVATE, descriptor, at))
        return [*calls, Call(CLOSE, (descriptor,))]

    def file_offset(self, address: int) -> int:
        """Return where in the shared file an address among counters is."""
        for part, at in zip(self.layout.parts, self.parts):
            start = part.address + len(part.code)
            if start <= address < start + part.counters:
                return at + address - part.address
        raise AssertionError(address)
