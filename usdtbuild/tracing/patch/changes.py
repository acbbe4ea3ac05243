"""What is changed in a process, and how it is put back: sites that are jumps or load our cells, and semaphores.

Each change stands in the journal, in the process' own memory, before it is made, so that whoever comes after a tracer
that was killed can put it back too (`clean_up`).
"""

from __future__ import annotations

import contextlib
import copy
import os
import struct
from typing import TYPE_CHECKING, NamedTuple

from ..errors import TracerError
from ..hosts import HOST
from ..maps import PAGE, Memory, areas, page_start
from ..model import TAKEN, Refusal
from . import journal
from .forms import JUMP_SIZE, PADDED, Form, Padded, is_of_nop10
from .slots import Load
from .spot import Word

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from mmap import mmap

    from ..maps import Area
    from ..tracees import Tracees
    from .spot import Spot


class Changes:
    """The changes of one engine in one process. The first are its spots', in their order, then the semaphores'."""

    def __init__(self, spots: Sequence[Spot], memory: Memory) -> None:
        # Armed from the start: until the site has changed, there is nothing that putting it back would change.
        self.entries = [
            journal.Entry(spot.changed_at, spot.mirror, spot.before, spot.after, _flags(spot)) for spot in spots
        ]
        self.data: mmap | None = None  # the shared memory that the journal is in, once there is one
        self._spots = {spot.changed_at: spot for spot in spots}
        self._sites = len(self.entries)
        self.stretches = stretches_of(spots, memory)
        for address in sorted({spot.site.semaphore for spot in spots if spot.site.semaphore}):
            self.entries.append(_semaphore(address, memory.word(address, 2) or 0))

    def packed(self, places: journal.Places) -> bytes:
        """Return the journal as it stands at the start of the shared memory."""
        return journal.packed(os.getpid(), self.entries, places)

    def mark(self, index: int, flags: int) -> None:
        """Write into the journal whether a change is in force."""
        self.entries[index] = self.entries[index]._replace(flags=flags)
        if self.data is not None:
            journal.set_entry(self.data, index, self.entries[index])

    def count_semaphores(self, memory: Memory) -> None:
        """Count the semaphores up; the process stands."""
        for index in range(self._sites, len(self.entries)):
            address = self.entries[index].address
            self.entries[index] = entry = _semaphore(address, memory.word(address, 2) or 0)
            self.mark(index, journal.ARMED | journal.SEMAPHORE)
            memory.write(address, entry.after[:2])

    def armed(self) -> list[tuple[int, bytes]]:
        """Return the addresses of sites that are changed, and the first byte there; the next may be another jump's."""
        armed = (e for e in self.entries if e.flags & journal.ARMED and not e.flags & journal.SEMAPHORE)
        return [(e.address, e.after[:1]) for e in armed]

    def forget(self, start: int, end: int) -> None:
        """A library that was between two addresses is gone, and with it what was changed in it."""
        gone = [index for index, entry in enumerate(self.entries)
                if entry.flags & journal.ARMED and start <= entry.address < end]  # fmt: skip
        self.entries = list(self.entries)  # a forked process has the library still
        for index in gone:
            self.mark(index, self.entries[index].flags & ~journal.ARMED)

    def forked(self) -> Changes:
        """Return what of this is in a process that is forked now. The two share the journal, which stays the first
        one's."""
        made = copy.copy(self)
        made.data = None
        return made

    def put_back_in(self, pid: int) -> list[Refusal]:
        """Put everything back in the process or in one that it forked, as below; one that is gone needs nothing."""
        try:
            memory = Memory(pid)
        except OSError:
            return []
        with contextlib.closing(memory):
            return self.put_back(memory)

    def put_back(self, memory: Memory) -> list[Refusal]:
        """Put everything back in the process or in one that it forked, all threads of which stand; return sites that
        somebody else has changed."""
        done: set[int] = set()
        for stretch in self._untouched(memory):
            # An entry goes back before its padding, which may be on another page, and before a call's distance may be
            # a breakpoint.
            if all(isinstance(spot.form, Form | Word) for _, spot in stretch.spots):
                try:
                    memory.write_code(stretch.start, stretch.before)
                except ProcessLookupError:
                    raise
                except OSError:
                    continue
                done.update(index for index, _ in stretch.spots)
        left = [entry for index, entry in enumerate(self.entries) if index not in done]
        return _restore(left, memory, self._spots)

    def _untouched(self, memory: Memory) -> Iterator[Stretch]:
        """Yield the stretches that are what we have made of them, all sites armed, as most are."""
        for stretch in self.stretches:
            armed = all(self.entries[index].flags & journal.ARMED for index, _ in stretch.spots)
            if armed and not stretch.differs and memory.read(stretch.start, len(stretch.after)) == stretch.after:
                yield stretch

    def taken(self, memory: Memory) -> list[Refusal]:
        """Return sites that somebody else has changed, as far as can be seen: a breakpoint is there, or has been."""
        found, left = [], set(range(self._sites))
        for stretch in self._untouched(memory):
            left.difference_update(index for index, _ in stretch.spots)
        for entry in map(self.entries.__getitem__, sorted(left)):
            size = 4 if entry.flags & (journal.DISTANCE | journal.WORD) else 1
            spot, ours = self._spots[entry.address], {b"", entry.after[:size]}
            if spot.target.number >= 0 and entry.flags & journal.ARMED:
                with contextlib.suppress(OSError):
                    found += [_taken(spot)] * (memory.read(entry.address, size) not in ours)
        return found

    def forget_all(self) -> None:
        """Write into the journal that nothing is in force any more. Processes that were forked share it, and may have
        everything still: `put_back` goes by what is known here, which stays."""
        if self.data is not None:
            for index, entry in enumerate(self.entries):
                journal.set_entry(self.data, index, entry._replace(flags=entry.flags & ~journal.ARMED))


class Stretch(NamedTuple):
    """Code with sites on pages one behind the other, which is read and written at once: what is there before, and what
    is to be there. `spots` have their places in the list of all. `differs`: a site isn't what it was any more."""

    start: int
    before: bytes
    after: bytes
    spots: list[tuple[int, Spot]]
    differs: bool


def stretches_of(spots: Sequence[Spot], memory: Memory) -> list[Stretch]:
    """Return the stretches in which sites change, as their code is now."""
    groups: list[list[tuple[int, Spot]]] = []
    bounds: list[tuple[int, int]] = []
    for (start, stop), index in sorted((spot.extent, index) for index, spot in enumerate(spots)):
        if not bounds or page_start(start) > page_start(bounds[-1][1] - 1) + PAGE:
            groups.append([])
            bounds.append((start, stop))
        groups[-1].append((index, spots[index]))
        bounds[-1] = bounds[-1][0], max(bounds[-1][1], stop)
    return [_stretch(group, start, memory.read(start, stop - start)) for group, (start, stop) in zip(groups, bounds)]


def _stretch(group: list[tuple[int, Spot]], start: int, before: bytes) -> Stretch:
    after, differs = bytearray(before), False
    for _, spot in reversed(group):  # a return's jump reads what changes behind it
        for address, was, becomes in spot.changes:
            at = address - start
            differs |= after[at : at + len(was)] != was
            after[at : at + len(was)] = becomes
    return Stretch(start, before, bytes(after), group, differs)


BEHIND = journal.DISTANCE | journal.WORD  # kinds whose bytes change behind a site's first
_KINDS: dict[type, int] = {Load: journal.DISTANCE, Word: journal.WORD, Padded: journal.PADDED}


def _flags(spot: Spot) -> int:
    joined = journal.JOINED if isinstance(spot.form, Form) and spot.form.behind else 0
    return journal.ARMED | _KINDS.get(type(spot.form), joined) | sum([journal.NEAR << index for index in spot.near])


def _semaphore(address: int, value: int) -> journal.Entry:
    before, after = (struct.pack("<H", number & 0xFFFF) for number in (value, value + 1))
    return journal.Entry(address, 0, before, after, journal.SEMAPHORE)


def _restore(entries: Iterable[journal.Entry], memory: Memory, spots: dict[int, Spot]) -> list[Refusal]:
    """Put back what entries say; return sites that somebody else has changed meanwhile."""
    refusals = []
    for entry in entries:
        if entry.flags & journal.ARMED:
            spot = spots.get(entry.address)
            try:
                taken = _put_back(entry, memory, spot)
            except ProcessLookupError:
                raise
            except OSError:  # no code, or no data, is there any more; or never was, in a journal that a process forged
                continue
            if spot is not None and taken:
                refusals.append(_taken(spot))
    return refusals


def _taken(spot: Spot) -> Refusal:
    return Refusal(spot.target.title, TAKEN, "", spot.site.address)


def _put_back(entry: journal.Entry, memory: Memory, spot: Spot | None) -> bool:
    """Put one change back; return whether somebody else has changed the place. Raises OSError."""
    if entry.flags & journal.SEMAPHORE:
        value = memory.word(entry.address, 2)
        if value:
            memory.write(entry.address, struct.pack("<H", value - 1))
        return False
    if entry.flags & journal.PADDED:
        return _put_back_padded(entry, memory)
    if not entry.flags & (journal.DISTANCE | journal.WORD):
        return _put_back_jump(entry, memory)
    found = memory.read(entry.address, 4)
    if found != entry.after[:4]:
        return bool(found)
    memory.write(entry.address, entry.before[:4])
    # What stands before a distance may be a breakpoint by now.
    return spot is not None and HOST.traps.stands(memory.read(spot.site.address, 4))


def _put_back_padded(entry: journal.Entry, memory: Memory) -> bool:
    """Put back an entry, then its padding; return as `_put_back`. The entry's first byte is somebody else's while a
    breakpoint is there, and the file's when it is gone; the second is ours."""
    before, after = entry.before[:PADDED], entry.after[:PADDED]
    found = memory.read(entry.address, PADDED)
    taken = found[:1] != after[:1]
    if found in {after, before[:1] + after[1:], HOST.traps.instruction + after[1:]}:
        memory.write(entry.address, before if not taken else found[:1] + before[1:])
    elif found != before:
        return True
    size = PADDED + JUMP_SIZE
    if memory.read(entry.mirror, JUMP_SIZE) == entry.after[PADDED:size]:
        memory.write(entry.mirror, entry.before[PADDED:size])
    return taken


def _put_back_jump(entry: journal.Entry, memory: Memory) -> bool:
    """Put back the five bytes of a jump; return whether somebody else has taken the site.

    Any of them may be somebody's breakpoint, and stays; the jump led to where it should nevertheless (`layout`). Where
    a breakpoint came to the first byte and is gone, that is the file's again. The others that are ours lie within a
    NOP, or behind a return, where any value does; the first goes back before them, because it gives them a meaning.
    Those of a ten-byte NOP are never ours.
    """
    before, after = entry.before[:JUMP_SIZE], entry.after[:JUMP_SIZE]
    found, trap = memory.read(entry.address, JUMP_SIZE), HOST.traps.instruction[0]
    others = [at + 1 for at in entry.near if before[at + 1] != after[at + 1]]  # first bytes of an entry's jump
    ours = [byte in {mine, trap} or (at in others and byte == before[at]) for at, (byte, mine) in
            enumerate(zip(found, after))]  # fmt: skip
    nop10 = is_of_nop10(after[1:]) and is_of_nop10(found[1:])
    if not (nop10 or all(ours[1:])) or not (ours[:1] == [True] or found[:1] == before[:1]):
        return bool(found)
    if found[:1] == after[:1]:
        memory.write(entry.address, before[:1])
    if nop10:
        return found[:1] != after[:1]
    back = bytes(was if byte == mine and at not in others else byte
                 for at, (byte, mine, was) in enumerate(zip(found, after, before)))  # fmt: skip
    memory.write(entry.address, back)
    return found[:1] != after[:1]


def earlier_mirrors(mapped: Sequence[Area], memory: Memory) -> dict[int, int]:
    """Return by site the mirrors that earlier traces have left in a process."""
    earlier: dict[int, int] = {}
    for found in journal.find(mapped, memory):
        trampolines = [(address, address + size) for address, size, _ in found.places.parts]
        for one in found.entries:
            if not one.flags & journal.PADDED:
                earlier.update({one.address: one.mirror} if one.mirror else {})
            elif not any(start <= lead < end for lead in one.leads() for start, end in trampolines):
                earlier[one.mirror] = one.leads()[0]  # by the jump in the padding
    return earlier


def in_force(found: journal.Found, memory: Memory) -> Iterator[journal.Entry]:
    """Yield what a journal tells of that may still be in the code: a process that was forked has a copy of the code,
    but shares the journal."""
    for entry in found.entries:
        if entry.flags & journal.ARMED:
            yield entry
        elif not entry.flags & journal.SEMAPHORE:
            # A jump's other bytes may be somebody's breakpoints; what is behind a NOP leads to us without that, too.
            start, end = (0, 4) if entry.flags & BEHIND else (2, 5) if entry.flags & journal.JOINED else (0, 1)
            if memory.read(entry.address + start, end - start) == entry.after[start:end]:
                yield entry._replace(flags=entry.flags | journal.ARMED)


def clean_up(tracees: Tracees, pid: int, memory: Memory) -> None:
    """Put back what a tracer left that was killed. Raises TracerError if it is alive."""
    if put_back_left(tracees, pid, memory):
        clear_left(pid, memory)


def put_back_left(tracees: Tracees, pid: int, memory: Memory) -> bool:
    """Do that, but leave the journals as they are, for processes that share them; return whether there was anything.
    Raises TracerError."""
    found = {one: list(in_force(one, memory)) for one in journal.find(areas(pid), memory)}
    # What we have changed looks as a trace before us would have left it that was of the same site.
    ours = {entry.address for one, entries in found.items() if one.owner == os.getpid() for entry in entries}
    left = {one: [entry for entry in entries if entry.address not in ours] for one, entries in found.items()}
    left = {one: entries for one, entries in left.items() if entries and one.owner != os.getpid()}
    alive = next((one.owner for one in left if one.owner), 0)
    if alive:
        raise TracerError(f"process {pid} is traced already, by `usdtbuild trace` (process {alive})")
    if left:
        with tracees.standing(pid):
            for entries in left.values():
                _restore(entries, memory, {})
    return bool(left)


def clear_left(pid: int, memory: Memory) -> None:
    """Write into the journals of tracers that were killed that nothing is in force any more."""
    for found in journal.find(areas(pid), memory):
        if not found.owner:
            with contextlib.suppress(OSError):  # a process can take the right to write there away, if it forged it
                journal.clear(memory, found)
