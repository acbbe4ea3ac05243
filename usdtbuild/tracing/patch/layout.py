"""Decide what lies where: mirrors, cells, stubs, counters and rings, for all sites of a process that can be patched.

Everything is computed before the process is stopped, from its map and its code as they are; what has changed in
between shows when the pages are mapped (`MAP_FIXED_NOREPLACE`) and when the sites are compared once more.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple

from ...machines.x86_64 import INT3
from ..maps import PAGE, page_start
from ..measures import Measure
from ..model import COUNT, LIBRARIES, STRING, Refusal
from ..predicates import BEGIN
from . import code, tables
from .evaluated import Action, asked
from .forms import JUMP_SIZE, Form
from .rings import SiteSpec, string_places
from .slots import Load
from .tables import Place

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from ...formats.operands import Operand
    from ..maps import Room
    from ..plan import Plan
    from .code import Back, Routines, Shape
    from .machine import Machine
    from .spot import Spot


class Part(NamedTuple):
    """Stubs of one module: at which address, their code, and behind them the counters (`counters` bytes)."""

    address: int
    code: bytes
    counters: int


class Layout(NamedTuple):
    """Everything that is to be mapped and written. `pages` are mirrors' pages by address, `kept` mirrors on pages of an
    earlier trace. `counter_of[i]` is the address of spot i's counter (of lost records, if records are written),
    `tables` are those of targets, `pairs` is the address of begins that wait, 0 if they do so elsewhere."""

    spots: tuple[Spot, ...]
    parts: tuple[Part, ...]
    pages: Mapping[int, bytearray]
    kept: Mapping[int, bytes]
    counter_of: tuple[int, ...]
    specs: tuple[SiteSpec, ...]
    tables: tuple[Place, ...] = ()
    pairs: int = 0


class Mirrors:
    """Pages with mirrors, as they are given out."""

    def __init__(
        self, room: Room, earlier: Mapping[int, int], kept: Sequence[tuple[int, int]] = (),
        code: Sequence[tuple[int, int]] = (),
    ) -> None:  # fmt: skip
        """`earlier` are mirrors of earlier traces of the process, by site, which stand on pages that it has: `kept`.
        `code` is where it has any."""
        self.room, self.earlier, self.kept, self.code = room, earlier, kept, code
        self.astray: dict[int, int] = {}  # where breakpoints may lead a jump, without a page of ours -> its mirror
        self.more: dict[int, tuple[int, ...]] = {}  # by site, where its jump leads under somebody's breakpoints
        self.pages: dict[int, bytearray] = {}
        self.taken: set[int] = set()
        self._hint: dict[tuple[bytes, tuple[int, ...]], bytes] = {}

    def place(self, address: int, form: Form, near: Sequence[int] = ()) -> tuple[int, bytes] | None:
        """Return where a site's mirror is to be, and the four bytes that lead there; None if there is no room.

        `near` are those of the four bytes, by index, that may become somebody's breakpoint while the jump is there.
        """
        old = self.earlier.get(address)
        if old is not None:
            tail = struct.pack("<i", old - address - 5)
            same = all(tail[i] == form.tail[i] or i in form.free for i in range(4))
            others = _others(address, tail, near)
            # A journal may outlive the pages of another trace that its mirrors are on.
            if same and all(any(start <= one <= end - JUMP_SIZE for start, end in self.kept) for one in (old, *others)):
                self.more[address] = others
                return old, tail
        kind = (form.tail, form.free)
        hint = self._hint.get(kind)
        if hint is not None and self._take(address, hint, near):
            return address + 5 + int.from_bytes(hint, "little", signed=True), hint
        for near_heap in (False, True):
            for distance, tail in form.distances():
                if self._take(address, tail, near, near_heap=near_heap):
                    self._hint[kind] = tail
                    return address + 5 + distance, tail
        return None

    def place_for_any(
        self, address: int, form: Form, near: Collection[int], behind: Collection[int]
    ) -> tuple[int, bytes] | None:
        """Return as `place`, for breakpoints at all of `behind` too, which nobody knows to be wanted.

        Where there is no memory for these, nothing may be there that can be executed: a thread that is led there
        faults, and who traces it lets it go on (`astray`). None where it would not fault.
        """
        placed = self.place(address, form, sorted({*near, *behind}))
        if placed is not None:
            return placed
        placed = self.place(address, form, sorted(near))
        if placed is None:
            return None
        own = [placed[0], *self.more[address]]
        leads = {*_others(address, placed[1], sorted({*near, *behind}))}.difference(own)
        taken = {byte for one in leads for byte in range(one, one + 5)}
        if not self.taken.isdisjoint(taken) or any(start <= one < end for start, end in self.code for one in leads):
            return None
        self.taken |= taken
        self.astray.update({one & (1 << 64) - 1: placed[0] for one in leads})
        return placed

    def _take(self, address: int, tail: bytes, near: Sequence[int], *, near_heap: bool = False) -> bool:
        """Take what the four bytes behind a site need, if it is free."""
        others = _others(address, tail, near)
        places = [address + 5 + int.from_bytes(tail, "little", signed=True), *others]
        bytes_ = [byte for place in places for byte in range(place, place + 5)]
        if len({*bytes_}) < len(bytes_) or not self.taken.isdisjoint(bytes_):
            return False
        pages = {page_start(byte) for place in places for byte in (place, place + 4)}
        if any(
            page not in self.pages and not self.room.is_free(page, page + PAGE, near_heap=near_heap) for page in pages
        ):
            return False
        self.taken.update(bytes_)
        self.more[address] = others
        for page in pages - self.pages.keys():
            self.pages[page] = bytearray(INT3 * PAGE)
            self.room.take(page, page + PAGE)
        return True

    def write(self, mirror: int, data: bytes) -> None:
        """Write into pages that were given out."""
        for offset, byte in enumerate(data):
            self.pages[page_start(mirror + offset)][(mirror + offset) % PAGE] = byte


def _others(address: int, tail: bytes, near: Sequence[int]) -> tuple[int, ...]:
    """Return where a site's jump leads when some of its bytes, or all, are somebody's breakpoints."""
    found = []
    for chosen in range(1, 1 << len(near)):
        changed = bytearray(tail)
        for number, index in enumerate(near):
            if chosen >> number & 1:
                changed[index] = INT3[0]
        found.append(address + 5 + int.from_bytes(changed, "little", signed=True))
    return tuple(found)


def build(
    machine: Machine, plan: Plan, spots: Sequence[Spot], mirrors: Mirrors, room: Room, shape: Shape, rings: int,
    pid_cell: int, tid_offset: int | None, first_site: int, starts: Sequence[int] = (),
) -> tuple[Layout, list[Refusal]]:  # fmt: skip
    """Return the layout for spots: stubs are written, and mirrors that lead to them. Parts are where there is room, or
    at `starts`."""
    groups: dict[int, list[Spot]] = {}
    for spot in spots:
        groups.setdefault(spot.site.address >> machine.GROUP, []).append(spot)
    kept: list[Spot] = []
    parts, counters, specs, refusals, places = [], [], [], [], list[Place]()
    old: dict[int, bytes] = {}
    pairs = plan.pairs
    for number, group in enumerate(groups.values()):
        size = machine.size(plan, group)
        own, waiting, counter_size = _tables(plan, group)
        start = room.find(size + counter_size, group[0].site.address, machine.REACH) if not starts else None
        if number < len(starts):
            start = starts[number]
        if start is None:
            refusals += [Refusal(s.target.title, "there is no free memory near it", "", s.site.address) for s in group]
            continue
        if not starts:
            room.take(start, start + size + counter_size)
        pairs = pairs or start + size + waiting
        text = bytearray()
        calls = None
        if plan.what != COUNT:
            text += (made := machine.routines(start, shape, rings, pid_cell, tid_offset))[0]
            calls = made[1]
        elif plan.evaluates:
            text += (made := machine.counting_routines(start, pid_cell, tid_offset))[0]
            calls = made[1]
        for index, spot in enumerate(group):
            placed = machine.place(spot, start + len(text))
            if isinstance(placed, str):
                refusals.append(Refusal(spot.target.title, placed, "", spot.site.address))
                continue
            spot, lead, back = placed  # noqa: PLW2901  (now with the bytes that it changes to)
            text += lead
            at, counter = start + len(text), start + size + 8 * index
            spec = _spec(plan, spot)
            table_of = {one.measure: start + size + one.address for one in own if one.target == spot.target.number}
            counts = counter, table_of, pairs
            text += _stub(machine, plan, spot, spec, at, calls, counts, back, first_site + len(kept))
            if isinstance(spot.form, Form):
                _lead(spot, at, mirrors, old)
            kept.append(spot)
            counters.append(counter)
            specs.append(spec)
        places += [one._replace(address=start + size + one.address) for one in own]
        parts.append(Part(start, bytes(text) + machine.FILL * ((size - len(text)) // len(machine.FILL)), counter_size))
    has_pairs = not plan.pairs and any(measure.pair for measure in plan.measures)
    return Layout(tuple(kept), tuple(parts), mirrors.pages, old, tuple(counters), tuple(specs), tuple(places),
                  pairs if has_pairs else 0), refusals  # fmt: skip


def _tables(plan: Plan, group: Sequence[Spot]) -> tuple[list[Place], int, int]:
    """Return the tables of targets among spots, which begin behind the spots' counters, at addresses from these on;
    where, behind them, begins of pairs may wait; and how many bytes all of it has."""
    found, at = dict[tuple[int, Measure], Place](), -(-8 * len(group) // 64) * 64
    for spot in group if plan.measures else ():
        operands = spot.site.operands
        for tally in asked(plan, spot.target, operands)[1]:
            if tally.side != BEGIN and (spot.target.number, tally.measure) not in found:
                signs = (True, False) if tally.side else tally.signs(operands)
                place = Place(spot.target.number, tally.measure, at, *signs)
                found[spot.target.number, tally.measure] = place
                at += tables.size(tally.measure)
    size = at + tables.PAIRS_SIZE * any(measure.pair for measure in plan.measures)
    return list(found.values()), at, -(-size // PAGE) * PAGE


def _stub(
    machine: Machine, plan: Plan, spot: Spot, spec: SiteSpec, at: int, calls: Routines | None,
    counts: tuple[int, Mapping[Measure, int], int], back: Back, site: int,
) -> bytes:  # fmt: skip
    """Return a spot's stub, to stand at an address; `counts` are the addresses of its counter, of its tables, and of
    begins of pairs."""
    if spot.target.kind == LIBRARIES:
        return machine.tell_stub(at, counts[0], back)
    if calls is None:
        return machine.count_stub(at, counts[0], back)
    operands = tuple(_moved(operand, _pushed(spot)) for operand in spot.site.operands)
    predicate, found = asked(plan, spot.target, operands)
    to = [(tally, counts[1].get(tally.measure, 0)) for tally in found]
    action = Action(predicate, operands, counts[0], to, counts[2])
    if plan.what == COUNT:
        return machine.evaluated_stub(at, action, calls, back)
    gate = machine.gate(at, action, calls, back)
    return gate + machine.record_stub(at + len(gate), site, _taken(spot, spec), calls, counts[0], back)


def _lead(spot: Spot, stub: int, mirrors: Mirrors, old: dict[int, bytes]) -> None:
    """Let a spot's mirror lead to its stub; `old` gets what is to be written on pages of an earlier trace."""
    for place in (spot.mirror, *mirrors.more.get(spot.site.address, ())):
        lead = code.jump(place, stub)
        if mirrors.earlier.get(spot.site.address) == spot.mirror:
            old[place] = lead
        else:
            mirrors.write(place, lead)


def _spec(plan: Plan, spot: Spot) -> SiteSpec:
    arguments = spot.target.arguments[: len(spot.site.operands)]
    sizes = tuple((one.size or 8, one.signed, one.floating) for one in spot.site.operands[: len(arguments)])
    return SiteSpec(spot.target.number, arguments, sizes, string_places(arguments, plan.string_size))


def _taken(spot: Spot, spec: SiteSpec) -> list[code.Taken]:
    return [
        code.Taken(_moved(operand, _pushed(spot)), argument.kind == STRING, code.HEADER + 8 * index, place)
        for index, (operand, argument, place) in enumerate(zip(spot.site.operands, spec.arguments, spec.strings))
    ]


def _pushed(spot: Spot) -> int:
    """Return how far down the stack pointer is: operands are those before a call instruction, and a stub of ours that
    it calls finds the return address below them."""
    return 8 if isinstance(spot.form, Load) and spot.form.is_call else 0


def _moved(operand: Operand, by: int) -> Operand:
    if operand.place.base != "rsp":
        return operand
    return operand._replace(place=operand.place._replace(displacement=operand.place.displacement + by))
