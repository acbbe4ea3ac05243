"""Decide what lies where: mirrors, stubs, counters and rings, for all sites of a process that can become jumps.

Everything is computed before the process is stopped, from its map and its code as they are; what has changed in
between shows when the pages are mapped (`MAP_FIXED_NOREPLACE`) and when the sites are compared once more.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple

from ..maps import PAGE, page_start
from ..model import COUNT, STRING, Refusal
from . import code
from .forms import JUMP, Form, form_of
from .rings import SiteSpec, string_places

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ..maps import Memory, Room
    from ..model import Plan, Site, Target
    from .code import Shape

# How far stubs may be from a site; the rest of 2 GB is for the way from the mirror.
_REACH = 192 << 20
_LONGEST_SITE = 16


class Spot(NamedTuple):
    """A site that becomes a jump: before and after, and where its mirror is."""

    target: Target
    site: Site
    form: Form
    before: bytes
    after: bytes
    mirror: int


class Part(NamedTuple):
    """Stubs of one module: at which address, their code, and behind them the counters (`counters` bytes)."""

    address: int
    code: bytes
    counters: int


class Layout(NamedTuple):
    """Everything that is to be mapped and written. `pages` are mirrors' pages by address, `kept` mirrors on pages of an
    earlier trace. `counter_of[i]` is the address of spot i's counter (of lost records, if records are written)."""

    spots: tuple[Spot, ...]
    parts: tuple[Part, ...]
    pages: Mapping[int, bytearray]
    kept: Mapping[int, bytes]
    counter_of: tuple[int, ...]
    specs: tuple[SiteSpec, ...]


class Mirrors:
    """Pages with mirrors, as they are given out."""

    def __init__(self, room: Room, earlier: Mapping[int, int]) -> None:
        """`earlier` are mirrors of earlier traces of the process, by site, which stand on pages that it has."""
        self.room, self.earlier = room, earlier
        self.pages: dict[int, bytearray] = {}
        self.taken: set[int] = set()
        self._hint: dict[tuple[bytes, tuple[int, ...]], bytes] = {}

    def place(self, address: int, form: Form) -> tuple[int, bytes] | None:
        """Return where a site's mirror is to be, and the four bytes that lead there; None if there is no room."""
        old = self.earlier.get(address)
        if old is not None:
            tail = struct.pack("<i", old - address - 5)
            if all(tail[i] == form.tail[i] or i in form.free for i in range(4)):
                return old, tail
        kind = (form.tail, form.free)
        hint = self._hint.get(kind)
        if hint is not None:
            mirror = address + 5 + int.from_bytes(hint, "little", signed=True)
            if self._fits(mirror):
                return self._take(mirror), hint
        for distance, tail in form.distances():
            if self._fits(address + 5 + distance):
                self._hint[kind] = tail
                return self._take(address + 5 + distance), tail
        return None

    def _fits(self, mirror: int) -> bool:
        if any(byte in self.taken for byte in range(mirror, mirror + 5)):
            return False
        return all(
            page in self.pages or self.room.is_free(page, page + PAGE)
            for page in {page_start(mirror), page_start(mirror + 4)}
        )

    def _take(self, mirror: int) -> int:
        self.taken.update(range(mirror, mirror + 5))
        for page in (page_start(mirror), page_start(mirror + 4)):
            if page not in self.pages:
                self.pages[page] = bytearray(b"\xcc" * PAGE)
                self.room.take(page, page + PAGE)
        return mirror

    def write(self, mirror: int, data: bytes) -> None:
        """Write into pages that were given out."""
        for offset, byte in enumerate(data):
            self.pages[page_start(mirror + offset)][(mirror + offset) % PAGE] = byte


def find_spots(plan: Plan, memory: Memory, mirrors: Mirrors) -> tuple[list[Spot], list[Refusal]]:
    """Return the sites that can become jumps, and why the others can't."""
    spots, refusals = [], []
    for target in plan.targets:
        for site in target.sites:
            before = memory.read(site.address, _LONGEST_SITE)
            form = form_of(before) if len(before) >= 6 else None
            if form is None:
                refusals.append(Refusal(target.title, why_no_form(before), "", site.address))
                continue
            placed = mirrors.place(site.address, form)
            if placed is None:
                reason = "there is no free memory where its bytes would make a jump lead"
                refusals.append(Refusal(target.title, reason, "", site.address))
                continue
            after = bytes([JUMP]) + placed[1]
            spots.append(Spot(target, site, form, before[:5], after, placed[0]))
    return spots, refusals


def why_no_form(found: bytes) -> str:
    """Return why bytes at a site can't become a jump."""
    if not found:
        return "its code can't be read"
    if found[0] == 0xCC:
        return "a breakpoint is there already: another tracer (perf, bpftrace, gdb) watches it"
    if found[0] == JUMP:
        return "a jump is there already: another tracer watches it"
    return f"the instruction there is no NOP (bytes {found[:4].hex(' ')})"


def build(
    plan: Plan, spots: Sequence[Spot], mirrors: Mirrors, room: Room, shape: Shape, rings: int, pid_cell: int,
    tid_offset: int | None, first_site: int,
) -> tuple[Layout, list[Refusal]]:  # fmt: skip
    """Return the layout for spots: stubs are written, and mirrors that lead to them."""
    groups: dict[int, list[Spot]] = {}
    for spot in spots:
        groups.setdefault(spot.site.address >> 26, []).append(spot)  # what is within 64 MB shares its stubs
    kept: list[Spot] = []
    parts, counters, specs, refusals = [], [], [], []
    old: dict[int, bytes] = {}
    for group in groups.values():
        size = _size(plan, group)
        counter_size = -(-8 * len(group) // PAGE) * PAGE
        start = room.find(size + counter_size, group[0].site.address, _REACH)
        if start is None:
            refusals += [Refusal(s.target.title, "there is no free memory near it", "", s.site.address) for s in group]
            continue
        room.take(start, start + size + counter_size)
        text = bytearray()
        calls = None
        if plan.what != COUNT:
            text += (made := code.routines(start, shape, rings, pid_cell, tid_offset))[0]
            calls = made[1]
        for index, spot in enumerate(group):
            text += b"\xcc" * (-len(text) % 16)
            at, counter = start + len(text), start + size + 8 * index
            back = None if spot.form.returns else spot.site.address + spot.form.length
            spec = _spec(plan, spot)
            if calls is None:
                text += code.count_stub(at, counter, back)
            else:
                number = first_site + len(kept)
                text += code.record_stub(at, number, _taken(spot, spec), calls, counter, back, {})
            lead = code.jump(spot.mirror, at)
            if spot.site.address in mirrors.earlier and mirrors.earlier[spot.site.address] == spot.mirror:
                old[spot.mirror] = lead
            else:
                mirrors.write(spot.mirror, lead)
            kept.append(spot)
            counters.append(counter)
            specs.append(spec)
        parts.append(Part(start, bytes(text).ljust(size, b"\xcc"), counter_size))
    return Layout(tuple(kept), tuple(parts), mirrors.pages, old, tuple(counters), tuple(specs)), refusals


def _size(plan: Plan, group: Sequence[Spot]) -> int:
    """Return how many bytes stubs need at most, whole pages."""
    if plan.what == COUNT:
        return -(-16 * len(group) // PAGE) * PAGE
    # The longest argument is an indexed memory operand that is tried: 65 bytes, with a string 84.
    return -(-(512 + sum(112 + 96 * len(spot.site.operands) for spot in group)) // PAGE) * PAGE


def _spec(plan: Plan, spot: Spot) -> SiteSpec:
    arguments = spot.target.arguments[: len(spot.site.operands)]
    sizes = tuple((one.size or 8, one.signed, one.floating) for one in spot.site.operands[: len(arguments)])
    return SiteSpec(spot.target.number, arguments, sizes, string_places(arguments, plan.string_size))


def _taken(spot: Spot, spec: SiteSpec) -> list[code.Taken]:
    return [
        code.Taken(operand, argument.kind == STRING, code.HEADER + 8 * index, place)
        for index, (operand, argument, place) in enumerate(zip(spot.site.operands, spec.arguments, spec.strings))
    ]
