"""Decide what lies where: mirrors, cells, stubs, counters and rings, for all sites of a process that can be patched.

Everything is computed before the process is stopped, from its map and its code as they are; what has changed in
between shows when the pages are mapped (`MAP_FIXED_NOREPLACE`) and when the sites are compared once more.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple

from ...machines.x86_64 import INT3
from ..maps import PAGE, page_start
from ..model import CALL, COUNT, STRING, Refusal
from . import code, slots
from .forms import JUMP, Form, form_of
from .rings import SiteSpec, string_places
from .slots import Load

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ...formats.operands import Operand
    from ..maps import Memory, Room
    from ..model import Plan, Site, Target
    from .code import Shape

# How far stubs may be from a site; the rest of 2 GB is for the way from the mirror.
_REACH = 192 << 20
_LONGEST_SITE = 16
_FARTHEST = (1 << 31) - PAGE  # that a distance of 32 bits reaches, from anywhere in a stub


class Spot(NamedTuple):
    """A site that changes: from which bytes, to which, and where its mirror is if it becomes a jump, else 0."""

    target: Target
    site: Site
    form: Form | Load
    before: bytes
    after: bytes
    mirror: int

    @property
    def changed_at(self) -> int:
        """The address of the bytes that change."""
        return self.form.distance_at if isinstance(self.form, Load) else self.site.address


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
                self.pages[page] = bytearray(INT3 * PAGE)
                self.room.take(page, page + PAGE)
        return mirror

    def write(self, mirror: int, data: bytes) -> None:
        """Write into pages that were given out."""
        for offset, byte in enumerate(data):
            self.pages[page_start(mirror + offset)][(mirror + offset) % PAGE] = byte


def find_spots(plan: Plan, memory: Memory, mirrors: Mirrors) -> tuple[list[Spot], list[Refusal]]:
    """Return the sites that can be patched, and why the others can't."""
    spots: list[Spot] = []
    refusals: list[Refusal] = []
    for target in plan.targets:
        for site in target.sites:
            if target.kind == CALL:
                _find_load(target, site, memory, spots, refusals)
                continue
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


def _find_load(target: Target, site: Site, memory: Memory, spots: list[Spot], refusals: list[Refusal]) -> None:
    found = memory.read(site.address, slots.LONGEST)
    load = slots.load_of(found, site.address)
    if load is None or memory.word(load.slot) is None:
        refusals.append(Refusal(target.title, slots.why_no_load(found), "", site.address))
        return
    at = load.distance_at - site.address
    spots.append(Spot(target, site, load, found[at : at + 4], b"", 0))


def why_no_form(found: bytes) -> str:
    """Return why bytes at a site can't become a jump."""
    if not found:
        return "its code can't be read"
    if found.startswith(INT3):
        return "a breakpoint is there already: another tracer (perf, bpftrace, gdb) watches it"
    if found[0] == JUMP:
        return "a jump is there already: another tracer watches it"
    return f"the instruction there is no NOP (bytes {found[:4].hex(' ')})"


def build(
    plan: Plan, spots: Sequence[Spot], mirrors: Mirrors, room: Room, shape: Shape, rings: int, pid_cell: int,
    tid_offset: int | None, first_site: int, starts: Sequence[int] = (),
) -> tuple[Layout, list[Refusal]]:  # fmt: skip
    """Return the layout for spots: stubs are written, and mirrors that lead to them. Parts are where there is room, or
    at `starts`."""
    groups: dict[int, list[Spot]] = {}
    for spot in spots:
        groups.setdefault(spot.site.address >> 26, []).append(spot)  # what is within 64 MB shares its stubs
    kept: list[Spot] = []
    parts, counters, specs, refusals = [], [], [], []
    old: dict[int, bytes] = {}
    for number, group in enumerate(groups.values()):
        size = _size(plan, group)
        counter_size = -(-8 * len(group) // PAGE) * PAGE
        start = room.find(size + counter_size, group[0].site.address, _REACH) if not starts else None
        if number < len(starts):
            start = starts[number]
        if start is None:
            refusals += [Refusal(s.target.title, "there is no free memory near it", "", s.site.address) for s in group]
            continue
        if not starts:
            room.take(start, start + size + counter_size)
        text = bytearray()
        calls = None
        if plan.what != COUNT:
            text += (made := code.routines(start, shape, rings, pid_cell, tid_offset))[0]
            calls = made[1]
        for index, spot in enumerate(group):
            placed = _place(spot, start + len(text))
            if placed is None:
                refusals.append(Refusal(spot.target.title, "its slot is too far away", "", spot.site.address))
                continue
            spot, lead, back = placed  # noqa: PLW2901  (now with the bytes that it changes to)
            text += lead
            at, counter = start + len(text), start + size + 8 * index
            spec = _spec(plan, spot)
            if calls is None:
                text += code.count_stub(at, counter, back)
            else:
                site = first_site + len(kept)
                text += code.record_stub(at, site, _taken(spot, spec), calls, counter, back, {})
            if spot.mirror:
                _lead(spot, at, mirrors, old)
            kept.append(spot)
            counters.append(counter)
            specs.append(spec)
        parts.append(Part(start, bytes(text).ljust(size, INT3), counter_size))
    return Layout(tuple(kept), tuple(parts), mirrors.pages, old, tuple(counters), tuple(specs)), refusals


def _place(spot: Spot, at: int) -> tuple[Spot, bytes, code.Back] | None:
    """Return a spot with the bytes that it changes to, what stands before its stub if that begins at `at` or a little
    behind it, and where the stub goes on; None if that is too far."""
    lead = INT3 * (-at % 16)
    form = spot.form
    if not isinstance(form, Load):
        return spot, lead, None if form.returns else spot.site.address + form.length
    cell = at + len(lead)
    if max(abs(form.slot - cell), abs(form.counts_from - cell)) > _FARTHEST:
        return None
    lead += slots.cell(cell + 8) + slots.landing_pad()
    return spot._replace(after=slots.distance(form, cell)), lead, code.Through(form.slot)


def _lead(spot: Spot, stub: int, mirrors: Mirrors, old: dict[int, bytes]) -> None:
    """Let a spot's mirror lead to its stub; `old` gets what is to be written on pages of an earlier trace."""
    lead = code.jump(spot.mirror, stub)
    if mirrors.earlier.get(spot.site.address) == spot.mirror:
        old[spot.mirror] = lead
    else:
        mirrors.write(spot.mirror, lead)


def _size(plan: Plan, group: Sequence[Spot]) -> int:
    """Return how many bytes stubs need at most, whole pages."""
    if plan.what == COUNT:
        sizes = [slots.SIZE if isinstance(spot.form, Load) else 16 for spot in group]
        return -(-sum(sizes) // PAGE) * PAGE
    # The longest argument is an indexed memory operand that is tried: 65 bytes, with a string 84.
    return -(-(512 + sum(144 + 96 * len(spot.site.operands) for spot in group)) // PAGE) * PAGE


def _spec(plan: Plan, spot: Spot) -> SiteSpec:
    arguments = spot.target.arguments[: len(spot.site.operands)]
    sizes = tuple((one.size or 8, one.signed, one.floating) for one in spot.site.operands[: len(arguments)])
    return SiteSpec(spot.target.number, arguments, sizes, string_places(arguments, plan.string_size))


def _taken(spot: Spot, spec: SiteSpec) -> list[code.Taken]:
    # Operands are those before a call instruction; a stub of ours that it calls finds the return address below them.
    pushed = 8 if isinstance(spot.form, Load) and spot.form.is_call else 0
    return [
        code.Taken(_moved(operand, pushed), argument.kind == STRING, code.HEADER + 8 * index, place)
        for index, (operand, argument, place) in enumerate(zip(spot.site.operands, spec.arguments, spec.strings))
    ]


def _moved(operand: Operand, by: int) -> Operand:
    if operand.place.base != "rsp":
        return operand
    return operand._replace(place=operand.place._replace(displacement=operand.place.displacement + by))
