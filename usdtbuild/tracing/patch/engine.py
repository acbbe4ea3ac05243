"""The patch engine's way, from top to bottom: prepare, stop, arm, let go; read; stop, put back, let go.

It needs a `Tracees` that has seized the process, and leaves it to its user whether the process stays seized: armed
sites need nobody. It works on one program image; after an exec it is gone with the image.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from os import getpid
from typing import TYPE_CHECKING, NamedTuple

from .. import clock, hosts, ptrace
from ..containers import number_inside
from ..errors import ProgramGoneError, TracerError
from ..heap import heap_of
from ..hosts import HOST
from ..maps import PAGE, Memory, Room, areas, far_from_code, spare_addresses
from ..measures import Cell, Table, Tables
from ..model import COUNT, LIBRARIES, STRING, Refusal, Totals
from ..running import status_field
from ..spare import spare_memory
from . import again, calls, code, journal, layout, leftovers, machine, way_back
from .begins import Begins
from .changes import Changes, clean_up, earlier_mirrors
from .counts import Counts
from .injection import NAME_IN_MAPS, borrow
from .kept import Kept
from .mapping import WARM, Mapping
from .mirrors import Mirrors
from .plausible import Plausible
from .rings import FIRST, Rings, shape_for, slot_for

if TYPE_CHECKING:
    from collections.abc import Collection, Container, Iterator, Sequence

    from ..maps import Area
    from ..plan import Plan
    from ..tracees import Thread, Tracees
    from .changes import Stretch
    from .injection import Shared
    from .layout import Layout
    from .rings import Write
    from .way_back import Gate


_LEAST = 64 << 10  # bytes of the smallest ring


def why_not(pid: int, machine: int) -> str:
    """Return why a process can't be patched at all; '' if it can."""
    reason = hosts.why_not(machine)
    if reason or not HOST.kernel.loop:
        return reason or f"there is no machine code for {HOST.title}"
    if status_field(pid, "Seccomp") not in {"", "0"}:
        return "a seccomp filter decides which system calls the process may make"
    return ""


class _Prepared(NamedTuple):
    """What is ready before a process is stopped: where everything goes (`places`: rings, the cell of the process'
    number, journal), whether an earlier trace has left it there, where system calls are made, and what is written."""

    mapping: Mapping
    places: tuple[int, int, int]
    again: bool
    gate: Gate
    journal: bytes
    contents: list[tuple[int, bytes]]


class PatchEngine:
    """Sites of one process as jumps into memory that we share with it."""

    name = "patch"

    def __init__(self, tracees: Tracees, pid: int, plan: Plan, others: Collection[int] = (),
                 processes: Container[int] | None = None) -> None:  # fmt: skip
        """`others` are addresses where breakpoints may come; `processes` write into its memory, None: who knows."""
        self.tracees, self.pid, self.plan, self.others, self._writers = tracees, pid, plan, others, processes
        self.machine = machine.here()
        self.shared: Shared | None = None
        self.rings: Rings | Kept | None = None
        self.astray: dict[int, int] = {}  # see `mirrors.Mirrors`
        self.layout: Layout | None = None
        self.changes: Changes | None = None
        self._counts: Counts | None = None
        self._totals, self._tables = Totals({}, {}), Tables()  # once it is retired
        arguments = [len(target.arguments) for target in plan.targets]
        strings = [sum(one.kind == STRING for one in target.arguments) for target in plan.targets]
        # Bytes that each ring should have, and how many it has.
        self.wanted_size = plan.ring_size(slot_for(arguments, strings, plan.string_size, plan.stack))
        self.buffer_size = self.wanted_size if plan.what == COUNT else _affordable(self.wanted_size, pid, plan.keeps)
        self.shape = plan.shaped(shape_for(arguments, strings, plan.string_size, self.buffer_size, plan.stack))
        self.first, self.is_short = FIRST, False  # bytes of each ring with memory from the start; they should be more
        self._unused: list[tuple[int, int]] = []  # what earlier traces have left that goes now
        self.begins: Begins | None = None  # where begins of pairs wait, here or in another engine's memory
        self._limited = self._over = False  # over: the rings take the place of an earlier trace's
        self.dropped = self.waited = 0  # records in damaged rings, and ticks that threads have waited for room
        self._begun, self.plausible, self._open = clock.now(), Plausible(), calls.LeftOpen(plan, self.shape.slot)

    # -- arming ------------------------------------------------------------------------------------------------------

    def attach(self) -> list[Refusal]:
        """Arm all sites that can be; return what can't. The process must be seized. Raises TracerError."""
        with contextlib.closing(Memory(self.pid)) as memory:
            clean_up(self.tracees, self.pid, memory)
            return self._attach(memory)

    def _attach(self, memory: Memory) -> list[Refusal]:
        with self.tracees.calmly():
            refusals, prepared = self._prepared(memory)
        if refusals and any(measure.pair for measure in self.plan.measures):
            raise TracerError(refusals[0].reason)  # a pair whose hits are seen in two ways would be none
        if prepared is None:
            return refusals
        self.mapping = prepared.mapping
        with self._all_standing() as threads:
            self._install(threads, prepared, memory)
        if self.rings is not None:  # while the process runs on
            for ring in range(code.RINGS):
                if not self.rings.prepare(ring, self.first):
                    raise TracerError("there is no memory for buffers; --count needs none")
        with self._all_standing():
            refusals += self._arm(memory)
        assert self.layout is not None
        pairs = self.layout.pairs and self.mapping.file_offset(self.layout.pairs)
        self._open.begin(self.shared, pairs)
        self.begins = Begins(self.shared, pairs, self.plan, self.layout) if pairs and self.shared is not None else None
        return refusals

    def _prepared(self, memory: Memory) -> tuple[list[Refusal], _Prepared | None]:
        """Look up and lay out everything; return what is refused, and what is ready, None if nothing is to be done.

        Raises TracerError.
        """
        mapped = areas(self.pid)
        self._unused = self._find_unused(mapped, memory)
        gone = {start for start, _ in self._unused}
        mapped = [area for area in mapped if area.start not in gone]
        room = Room(mapped)
        code_areas = [(one.start, one.end) for one in mapped if "x" in one.flags]
        mirrors = Mirrors(room, earlier_mirrors(mapped, memory), again.code_areas(mapped), code_areas)
        self.astray = mirrors.astray
        spots, refusals = self.machine.find_spots(self.plan, memory, mirrors, self.others)
        if not spots:
            return refusals, None
        record = self.plan.what != COUNT
        if record:
            self.first = min(FIRST, spare_memory() // 4 // code.RINGS)
            if self.first < _LEAST:
                raise TracerError("there is too little memory to spare for buffers; --count needs none")
            self.is_short = self.first < FIRST and not self.shape.keeps
            self._limited = not self.shape.keeps and spare_memory(self.pid) // 4 < code.RINGS * self.shape.stride
            if not self._limited:  # it may take some itself, should we be late
                self.first = min(self.first, WARM)
        rings_size = code.RINGS * self.shape.stride if record else 0
        asks = record or self.plan.measures or (self.machine.SHARDS and self.plan.targets[0].kind != LIBRARIES)
        tid_offset = _tid_offset(self.tracees, self.pid, memory) if asks else None
        heap = heap_of(self.pid, mapped, memory) if self.plan.takes_texts else None

        def build(rings: int, cell: int, starts: Sequence[int] = ()) -> tuple[Layout, list[Refusal]]:
            return layout.build(
                self.machine, self.plan, spots, mirrors, room, self.shape, rings, cell, tid_offset, mapped, heap, starts
            )

        candidates = again.candidates(mapped, memory, spots, rings_size, self.plan.stop)
        left = again.choose(candidates, build, rings_size, self.tracees, self.pid, mapped, memory)
        if left is not None:
            self.layout, where = left
        else:
            rings = again.rings_left(mapped, memory, rings_size, self.plan.stop) if rings_size else 0
            code_left = again.code_areas(mapped)
            if rings and not again.nobody_is_in(self.tracees, self.pid, mapped, memory, code_left):
                rings = 0
            where = *_take_room(self.pid, room, 0 if rings else rings_size, mapped), 0
            where, self._over = (rings or where[0], *where[1:]), bool(rings)
            self.layout, more = build(*where[:2])
            refusals += more
        if not self.layout.spots:
            return refusals, None
        self.changes = Changes(self.layout.spots, memory)
        return refusals, self._prepare(memory, room, where)

    def _find_unused(self, mapped: Sequence[Area], memory: Memory) -> list[tuple[int, int]]:
        """Return what earlier traces have left that goes when this one comes."""
        if self.plan.targets[0].kind == LIBRARIES:  # another engine comes right behind
            return []
        wanted = {site.address for target in self.plan.targets for site in target.sites}
        return leftovers.unused(self.tracees, self.pid, mapped, memory, wanted)

    @contextlib.contextmanager
    def _all_standing(self) -> Iterator[Sequence[Thread]]:
        """Let all threads stand in the body of the `with`. Raises TracerError."""
        with self.tracees.standing(self.pid) as threads:
            if self.tracees.has_become_another(self.pid):
                raise ProgramGoneError(self.pid)
            if not threads:
                raise TracerError(f"all threads of process {self.pid} hang in the kernel")
            yield threads

    def _prepare(self, memory: Memory, room: Room, places: tuple[int, int, int]) -> _Prepared:
        """Do all that can be done while the process runs; of the places the last is 0 where no earlier trace has left
        them. Raises TracerError."""
        rings_at, pid_cell, left_at = places
        assert self.layout is not None
        assert self.changes is not None
        mapping = Mapping(self.layout, len(self.changes.entries), code.RINGS * self.shape.stride if rings_at else 0,
                          over=self._over, unused=self._unused)  # fmt: skip
        # Nothing is left to the kernel's choice, which might be a place that is needed for something else. The calls
        # that unmap what is unused come from pages beside the journal.
        for start, size in self._unused:
            room.take(start, start + size)
        journal_at = left_at or room.find(mapping.journal_size + mapping.control_size, pid_cell, 1 << 46)
        if journal_at is None:
            raise TracerError(f"process {self.pid} has no free memory")
        parts = tuple((part.address, len(part.code), part.counters) for part in self.layout.parts)
        written = self.changes.packed(journal.Places(rings_at, pid_cell, mapping.control_size, parts))
        return _Prepared(
            mapping, (rings_at, pid_cell, journal_at), bool(left_at), way_back.find(self.pid, memory, self._is_empty),
            written, mapping.contents(),
        )  # fmt: skip

    def _is_empty(self, start: int, end: int) -> bool:
        """Whether no thread is in the code between two addresses."""
        with contextlib.closing(Memory(self.pid)) as memory:
            return again.nobody_is_in(self.tracees, self.pid, areas(self.pid), memory, [(start, end)])

    def _install(self, threads: Sequence[Thread], prepared: _Prepared, memory: Memory) -> None:
        """Map everything into the stopped process. Raises TracerError."""
        assert self.layout is not None
        assert self.changes is not None
        rings_at = prepared.places[0]
        # The first thread, if it has nothing else to do for us.
        thread = min(threads, key=lambda one: (one.trapped, bool(one.lent_to), bool(one.owed), one.tid != self.pid))
        with borrow(self.tracees, thread, prepared.gate, memory) as borrowed:
            used = sorted({thread.tid & (code.RINGS - 1) for thread in threads}) if rings_at else []
            warm = [rings_at + self.shape.stride * ring for ring in used]
            self.shared = prepared.mapping.install(
                borrowed, prepared.places, prepared.journal, prepared.contents, warm, self.first, again=prepared.again
            )
        self.changes.data = self.shared.data
        self._counts = Counts(self.shared, prepared.mapping, self.layout)
        if rings_at:
            place = self.shared.data, prepared.mapping.rings, self.shape, self.shared.give
            self.rings = Kept(*place) if self.shape.keeps else Rings(*place, self.plan.enough, limited=self._limited)
        try:
            for mirror, lead in self.layout.kept.items():
                memory.write(mirror, lead)
        except OSError as error:  # the process has unmapped what an earlier trace left
            raise TracerError(f"process {self.pid}: can't write its memory: {error.strerror}") from None

    def _arm(self, memory: Memory) -> list[Refusal]:
        """Switch the sites on in the stopped process, stretch by stretch, then the semaphores."""
        assert self.changes is not None
        refusals = []
        for stretch in self.changes.stretches:
            found = memory.read(stretch.start, len(stretch.before))
            if found == stretch.before and not stretch.differs:
                memory.write_code(stretch.start, stretch.after)
                continue
            refusals += self._arm_one_by_one(stretch, found, memory)
        self.changes.count_semaphores(memory)
        return refusals

    def _arm_one_by_one(self, stretch: Stretch, found: bytes, memory: Memory) -> list[Refusal]:
        """Switch the sites of a stretch on whose code is not what it was; return those that have changed themselves."""
        assert self.changes is not None
        text, refusals = bytearray(found), []
        for index, spot in reversed(stretch.spots):  # a return's jump reads what changes behind it
            places = [(slice(at - stretch.start, at - stretch.start + len(was)), was, becomes)
                      for at, was, becomes in spot.changes]  # fmt: skip
            other = next((text[place] for place, was, _ in reversed(places) if text[place] != was), None)
            if other is not None:
                reason = self.machine.why_not_free(bytes(other))
                refusals.append(Refusal(spot.target.title, reason, "", spot.site.address))
                self.changes.mark(index, 0)
                continue
            for place, _, becomes in places:
                text[place] = becomes
        if len(refusals) < len(stretch.spots):
            memory.write_code(stretch.start, bytes(text))
        return refusals

    def forget(self, start: int, end: int) -> bool:
        """A library that was between two addresses is gone, and with it what was changed in it; return whether that was
        all, and nothing is in our memory that others need."""
        if self.changes is not None:
            self.changes.forget(start, end)
        return not (self.armed() or self.is_shared)

    @property
    def is_shared(self) -> bool:
        """Whether code of other engines uses our memory."""
        return self.layout is not None and bool(self.layout.pairs or self.layout.stop)

    def armed(self) -> list[tuple[int, bytes]]:
        """Return where its changes begin that are in force, and their first bytes; all were made at once, while all
        threads stood."""
        return self.changes.armed() if self.changes is not None else []

    # -- reading -----------------------------------------------------------------------------------------------------

    def collect(self, write: Write, *, final: bool = False) -> int:
        """Hand over raw records, as `Rings.collect`; return how many."""
        if self.rings is None:
            return 0
        count, self.dropped, self.waited = self.rings.collect(write, final=final), *self.rings.told()
        return count + (self._open.give(write) if final else 0)

    def holds(self) -> bool:
        """Whether records are left in the rings."""
        holds, self.dropped = (self.rings.holds(), self.rings.dropped) if self.rings else (False, self.dropped)
        return holds or self._open.waits

    def totals(self) -> Totals:
        """Return hits by target (with COUNT), and lost hits by target (with RECORD)."""
        if self.shared is None or self.plan.targets[0].kind == LIBRARIES:  # whose counter is a flag (`notice`)
            return self._totals
        found = Counter[int]()
        if self.layout is not None and self._counts is not None:
            values = self._counts.counters()
            self.plausible.counters(values)
            for spot, value in zip(self.layout.spots, values):
                found[spot.target.number] += value
        return Totals(found, {}) if self.plan.what == COUNT else Totals({}, found)

    def counter_at(self, index: int) -> int:
        """Return where in the shared memory the counter of a spot is."""
        assert self._counts is not None
        return self._counts.places[index]

    def tables(self) -> Tables:
        """Return what was added up so far."""
        if self.shared is None or self.layout is None or self._counts is None:
            return self._tables
        found: Tables = {}
        for place in self.layout.tables:  # of one target there may be several, in code that is far apart
            keys = self.begins.keys(place) if self.begins and place.width and place.measure.pair else ()
            key = place.target, place.measure
            found[key] = found.get(key, Table({}, Cell())).plus(self._counts.table(place, keys, self._writers))
        if self.begins is not None and self.layout.pairs:
            found |= self.begins.unpaired(self.plan.measures, clock.since(self._begun)[1])
        self.plausible.tables(found.values())
        return found

    # -- putting back ------------------------------------------------------------------------------------------------

    def detach(self) -> list[Refusal]:
        """Switch everything off in the process; return what was not traced to the end.

        All threads stand. Raises nothing: a process that is gone needs nothing.
        """
        if self.changes is None:
            return []
        refusals = self.changes.put_back_in(self.pid)
        self.changes.forget_all()
        return refusals

    def close(self) -> None:
        """Give the memory back, except what threads may still be in; what was counted stays known."""
        self._totals, self._tables = self.totals(), self.tables()
        if self.begins is not None and self.layout is not None and self.layout.pairs:
            self.begins.keep()
        if self.rings is not None and self.shared is not None:
            self.rings.close()
            self.shared.empty(self.rings.offset, code.RINGS * self.shape.stride)
            self.rings = None
        if self.shared is not None:
            self.shared.close()
            self.shared = None


def _affordable(buffer_size: int, pid: int, keeps: bool) -> int:
    """Return how many bytes a ring may have where address space is limited, the process' or ours: all of them together
    take a quarter of what is left. Rings that keep hits are used to their end, so memory is what is limited, too."""
    spare = [found for found in (spare_addresses(pid), spare_addresses(getpid())) if found is not None]
    if keeps:
        spare += [2 * spare_memory(), 2 * spare_memory(pid)]
    while spare and buffer_size > _LEAST and 4 * 2 * code.RINGS * buffer_size > min(spare):
        buffer_size //= 2  # a ring may take twice as much address space (`rings.shape_for`)
    return buffer_size


def _take_room(pid: int, room: Room, rings_size: int, mapped: list[Area]) -> tuple[int, int]:
    """Take room for the rings, if there are any, and for the cell with the process' number. Raises TracerError."""
    # Only what trampolines reach by a distance must be near; a few traces with their buffers would fill a program's
    # neighbourhood, and nothing of an old trace can go while a thread may still be in it.
    far = far_from_code(mapped, NAME_IN_MAPS)
    rings_at = room.find(rings_size, far, 1 << 46) if rings_size else 0
    if rings_at is None:
        raise TracerError(f"process {pid} has no room for {rings_size >> 20} MB of buffers")
    room.take(rings_at, rings_at + rings_size)
    pid_cell = room.find(PAGE, far, 1 << 46) or 0
    room.take(pid_cell, pid_cell + PAGE)
    return rings_at, pid_cell


def _tid_offset(tracees: Tracees, pid: int, memory: Memory) -> int | None:
    """Return where all threads of a process keep their number; None if nowhere that is known."""
    with tracees.standing(pid) as threads:
        pointers = {thread.tid: ptrace.thread_pointer(thread.tid) for thread in threads}
    for offset in HOST.tids:
        if pointers and all(p and memory.word(p + offset, 4) == number_inside(tid) for tid, p in pointers.items()):
            return offset
    return None
