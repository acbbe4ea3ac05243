"""Use again what an earlier trace has left mapped in a process, which would fill up if it were traced often.

Nothing of an earlier trace may go while a thread may still be in it, and to rule that out takes a look at all memory of
a process (`leftovers`). Here nothing goes, and no byte of code changes: a trace that needs the very same code at the
same places, as one of the same probes does, gets new data under it, counters, rings and journal, at the same
addresses. Whoever were still in that code would go on in it, and write where the same is expected. Only a record that
was half written could then be half in the new rings; so they are used only if no thread is in the code or has one of
its addresses on its stack, which threads can't get into any more since no site leads there.

Rings are by far the most of what a trace leaves, and hold no code: another trace puts its own in their place, under the
same condition.
"""

from __future__ import annotations

import struct
from itertools import zip_longest
from typing import TYPE_CHECKING

from .. import ptrace
from ..maps import PAGE
from ..tracees import thread_ids
from . import journal
from .changes import in_force
from .code import STOP
from .injection import NAME_IN_MAPS
from .mapping import Mapping

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ..maps import Area, Memory
    from ..model import Refusal
    from ..tracees import Tracees
    from .layout import Layout
    from .spot import Spot

_DEEPEST = 1 << 20  # bytes of a stack that are looked at, for which the program stands still


def candidates(
    mapped: Sequence[Area], memory: Memory, spots: Sequence[Spot], rings_size: int, stop: int = 0
) -> list[journal.Found]:  # fmt: skip
    """Return what earlier traces of the same sites have left, the rings of the same size, if any; not where `stop` is
    (`Plan`)."""
    wanted = [(spot.changed_at, spot.mirror) for spot in spots]
    found = []
    for one in journal.find(mapped, memory):
        sites = ((e.address, e.mirror) for e in one.entries if not e.flags & journal.SEMAPHORE)
        armed = any(entry.flags & journal.ARMED for entry in one.entries)
        rings = one.places.rings
        data = [(address + size, counters) for address, size, counters in one.places.parts]
        data += [(one.address, _journal_size(one)), *([(rings, rings_size)] if rings else [])]
        code = [(address, size) for address, size, _ in one.places.parts]
        if (
            armed
            or any(is_ != was for is_, was in zip_longest(wanted, sites))
            or bool(rings) != bool(rings_size)
            or rings + STOP == stop
            or not one.places.parts
        ):
            continue
        control = one.address + _journal_size(one), one.places.control_size
        cell = any(a.start <= one.places.pid_cell < a.end and a.flags == "rw-p" and not a.inode for a in mapped)
        kept = all(_ours(mapped, *place, "rw-s") for place in data) and all(_ours(mapped, *p, "r-xp") for p in code)
        if cell and kept and _ours(mapped, *control, ""):
            found.append(one)
    return found


def rings_left(mapped: Sequence[Area], memory: Memory, size: int, stop: int = 0) -> int:
    """Return where an earlier trace, all of which is put back, has left rings of so many bytes, but for those where
    `stop` is (`Plan`); 0 for nowhere."""
    for one in journal.find(mapped, memory):
        own = next(area for area in mapped if area.start == one.address)
        same = [area for area in mapped if (area.inode, area.device) == (own.inode, own.device)]
        is_over = next(in_force(one, memory), None) is None  # also in a forked process, which shares the journal
        if is_over and one.places.rings not in {0, stop - STOP} and _ours(same, one.places.rings, size, "rw-s"):
            return one.places.rings
    return 0


def _ours(mapped: Sequence[Area], start: int, size: int, flags: str) -> bool:
    """Whether all of a range is mapped by us, with these flags ('': any)."""
    at = start
    for area in mapped:
        ours = area.name.startswith(NAME_IN_MAPS) and area.flags == (flags or area.flags)
        if ours and area.start <= at < area.end:
            at = area.end
    return at >= start + size


def choose(
    candidates: Sequence[journal.Found],
    build: Callable[[int, int, Sequence[int]], tuple[Layout, list[Refusal]]],
    rings_size: int,
    tracees: Tracees,
    pid: int,
    mapped: Sequence[Area],
    memory: Memory,
) -> tuple[Layout, tuple[int, int, int]] | None:
    """Return the layout that fits what one of the candidates has left, and its places: rings, cell, journal; or None.

    `build` makes a layout for rings, a cell and parts at given addresses.
    """
    for left in candidates:
        places = left.places
        made, refusals = build(places.rings, places.pid_cell, [address for address, _, _ in places.parts])
        mapping = Mapping(made, len(left.entries), rings_size)
        same = not refusals and is_same(left, made, mapping, memory)
        if same and nobody_is_in(tracees, pid, mapped, memory, _code_of(left)):
            return made, (places.rings, places.pid_cell, left.address)
    return None


def code_areas(mapped: Sequence[Area]) -> list[tuple[int, int]]:
    """Return where code of earlier traces begins and ends."""
    return [(one.start, one.end) for one in mapped if one.name.startswith(NAME_IN_MAPS) and one.flags == "r-xp"]


def _code_of(left: journal.Found) -> list[tuple[int, int]]:
    """Return where what an earlier trace has left may be executed: trampolines, and the pages that its calls came
    from."""
    control = left.address + _journal_size(left)
    parts = [(address, address + size) for address, size, _ in left.places.parts]
    return [*parts, (control, control + left.places.control_size)]


def nobody_is_in(
    tracees: Tracees, pid: int, mapped: Sequence[Area], memory: Memory, places: Sequence[tuple[int, int]]
) -> bool:
    """Whether no thread of a seized process is in code that begins and ends at these addresses, or comes back to it, as
    far as its registers and its stack tell."""
    with tracees.standing(pid) as threads:
        if {thread.tid for thread in threads} != set(thread_ids(pid)):
            return False
        for thread in threads:
            registers = ptrace.registers(thread.tid)
            # What a signal's handler or a call goes back to is above the stack pointer.
            stack = registers[ptrace.SP] & -8
            end = next((area.end for area in mapped if area.start <= stack < area.end), 0)
            if not 0 < end - stack <= _DEEPEST:
                return False
            words = struct.iter_unpack("<Q", memory.read(stack, end - stack & -8))
            held = [*registers, *(word for (word,) in words)]
            if any(start <= word < stop for start, stop in places for word in held):
                return False
    return True


def is_same(left: journal.Found, made: Layout, mapping: Mapping, memory: Memory) -> bool:
    """Whether a layout is what an earlier trace has left, byte by byte, in the room that it has left."""
    parts = tuple((part.address, len(part.code), part.counters) for part in made.parts)
    return (
        parts == left.places.parts
        and not made.pages
        and len(mapping.layout.spots) == sum(not entry.flags & journal.SEMAPHORE for entry in left.entries)
        and mapping.journal_size == _journal_size(left)
        and mapping.control_size <= left.places.control_size
        and all(memory.read(part.address, len(part.code)) == part.code for part in made.parts)
    )


def _journal_size(left: journal.Found) -> int:
    return -(-journal.size(len(left.entries), len(left.places.parts)) // PAGE) * PAGE
