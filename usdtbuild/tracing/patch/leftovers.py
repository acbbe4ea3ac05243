"""Unmap what earlier traces have left in a process, once nobody can be in it any more, or get back to it.

No site leads there any more (their journals say so, and the sites' own bytes), so only who is there already counts:
a thread whose registers say so, or one that a signal has taken out of it. What such a thread goes back to is saved in
memory: on its stack, on that of the signals, or where a coroutine has put it. So all that the process can write is
searched for an address of ours, but for what is below the stack pointers, while all threads stand. Where that is too
much to let them stand for, nothing goes, and `again` uses rings and code of the same probes another time.
"""

from __future__ import annotations

import os
import re
import struct
from bisect import bisect_right
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from .. import ptrace
from ..maps import PAGE, page_start
from ..tracees import thread_ids
from . import journal
from .again import code_areas
from .changes import BEHIND, in_force
from .injection import NAME_IN_MAPS
from .slots import LONGEST

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from ..maps import Area, Memory
    from ..tracees import Tracees

_MOST = 32 << 20  # bytes that are searched, for which the program stands still some milliseconds
_WIDEST = 4 << 30  # of address space that may hold them
_NEAR = 1 << 15  # jumps with further places where they lead, which take a while to compute
_RED_ZONE = 128
_SAME = 24  # bits of the addresses that are searched for at once
_THERE = re.compile(rb"[\x40-\xff]+")  # pages that are in memory or swapped out (pagemap, bits 63 and 62)


def unused(
    tracees: Tracees, pid: int, mapped: Sequence[Area], memory: Memory, wanted: Collection[int]
) -> list[tuple[int, int]]:
    """Return where memory of earlier traces begins, and how long it is, that nobody needs any more, a journal last of
    what belongs to it. Nothing if one of them was of the sites that are `wanted`: its code is used again."""
    journals = journal.find(mapped, memory)
    over = [one for one in journals if not one.owner and next(in_force(one, memory), None) is None]
    if not over or any(_is_for(one, wanted) for one in over):
        return []
    if sum(entry.flags >= journal.NEAR for one in journals for entry in one.entries) > _NEAR:
        return []
    ours = Ours(mapped)
    goes = {one.address for one in over}
    needed = {area for one in journals if one.address not in goes for area in ours.of(one)}
    files = [[area for area in ours.of(one) if area not in needed] for one in over]
    found = []
    held = _held(tracees, pid, mapped, memory, code_areas([area for file in files for area in file]))
    for one, file in zip(over, files):
        if held is not None and not any(start <= word < end for word in held for start, end in code_areas(file)):
            at = one.places.pid_cell
            if at % PAGE == 0 and any(a.start <= at < a.end and a.flags == "rw-p" and not a.inode for a in mapped):
                found.append((at, PAGE))
            found += [(area.start, area.end - area.start) for area in file]
    return list(dict.fromkeys(found))


class Ours:
    """What is mapped by us in a process."""

    def __init__(self, mapped: Sequence[Area]) -> None:
        self._areas = sorted(area for area in mapped if area.name.startswith(NAME_IN_MAPS))
        self._starts = [area.start for area in self._areas]
        self._files: dict[tuple[int, int], list[Area]] = {}
        for area in self._areas:
            self._files.setdefault((area.inode, area.device), []).append(area)

    def of(self, one: journal.Found) -> list[Area]:
        """Return what belongs to a journal: all of its own file, and code that it has from an earlier one. The journal
        is the start of its file, so it comes last."""
        parts = (address for address, _, _ in one.places.parts)
        places = chain((one.address,), parts, chain.from_iterable(entry.leads() for entry in one.entries))
        found = {area for at in places if (area := self._at(at)) is not None}
        own = self._at(one.address)
        found.update(self._files[own.inode, own.device] if own is not None else ())
        return sorted(found, key=lambda area: (-area.offset, area.start))

    def _at(self, address: int) -> Area | None:
        index = bisect_right(self._starts, address)
        return self._areas[index - 1] if index and address < self._areas[index - 1].end else None


def _is_for(found: journal.Found, wanted: Collection[int]) -> bool:
    """Whether a journal is of these sites; a call's bytes change somewhat behind its beginning."""
    sites = [entry for entry in found.entries if not entry.flags & journal.SEMAPHORE]
    return len(sites) == len(wanted) and all(
        any(one.address - back in wanted for back in range(LONGEST if one.flags & BEHIND else 1)) for one in sites
    )


def _held(
    tracees: Tracees, pid: int, mapped: Sequence[Area], memory: Memory, places: Sequence[tuple[int, int]]
) -> set[int] | None:
    """Return addresses in code that begins and ends at these places which somebody is at, or may come back to; None if
    that can't be told."""
    searched = [area for area in mapped if area.flags[1] == "w" and not area.name.startswith(NAME_IN_MAPS)]
    if sum(area.end - area.start for area in searched) > _WIDEST:
        return None
    with tracees.standing(pid) as threads:
        if {thread.tid for thread in threads} != set(thread_ids(pid)):
            return None
        all_registers = [ptrace.registers(thread.tid) for thread in threads]
        stacks = [registers[ptrace.SP] - _RED_ZONE for registers in all_registers]
        pieces = list(_in_memory(pid, searched, stacks))
        if sum(end - start for start, end in pieces) > _MOST:
            return None
        found = {word for registers in all_registers for word in registers}
        for start, end in pieces:
            found.update(_named(memory.read(start, end - start), places))
    return {word for word in found if any(start <= word < end for start, end in places)}


def _in_memory(pid: int, searched: Sequence[Area], stacks: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield where memory begins and ends that is there, and not free for a stack to grow. Raises OSError."""
    with Path(f"/proc/{pid}/pagemap").open("rb", buffering=0) as pages:
        for area in searched:
            lowest = max((at for at in stacks if area.start <= at < area.end), default=area.start) & -8
            first = page_start(lowest)
            there = os.pread(pages.fileno(), (area.end - first) // PAGE * 8, first // PAGE * 8)[7::8]
            for run in _THERE.finditer(there):
                yield max(lowest, first + run.start() * PAGE), first + run.end() * PAGE


def _named(data: bytes, places: Sequence[tuple[int, int]]) -> Iterator[int]:
    """Yield what stands in memory, at multiples of 8, that is close to one of these places, or in it."""
    for high in {at >> _SAME for start, end in places for at in (*range(start, end, 1 << _SAME), end - 1)}:
        ending = struct.pack("<Q", high << _SAME)[_SAME // 8 :]
        at = data.find(ending)
        while at >= 0:
            word = at - _SAME // 8
            if not word & 7:
                yield int.from_bytes(data[word : word + 8], "little")
            at = data.find(ending, at + 1)
