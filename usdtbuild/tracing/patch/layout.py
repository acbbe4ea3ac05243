"""Decide what lies where: mirrors, cells, trampolines, counters and rings, for all sites of a process that can be
patched.

Everything is computed before the process is stopped, from its map and its code as they are; what has changed in
between shows when the pages are mapped (`MAP_FIXED_NOREPLACE`) and when the sites are compared once more.
"""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING

from ...record import NamedTuple
from ..maps import PAGE, Known, unwritable
from ..measures import Measure
from ..model import COUNT, LIBRARIES, STACK, STRING, Refusal
from ..predicates import BEGIN, PROCESS
from ..stacks import BEHIND
from . import code, evaluated, shards, tables
from .calls import Rows, chooses
from .calls import size as remembered
from .evaluated import THERE, Action, asked, awaited, functions_of_begins, is_apart
from .forms import JUMP_SIZE, STEP, Form, Padded, behind_leads, leads_of, steps_of
from .rings import SiteSpec, string_places
from .slots import Load
from .tables import Place

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ...formats.operands import Operand
    from ..maps import Area, Room
    from ..model import Site, Target
    from ..plan import Plan
    from .code import Back, Choice, Keeping, Routines, Shape
    from .machine import Machine
    from .mirrors import Mirrors
    from .shards import Shards
    from .spot import Spot


_TOO_FAR = "a jump there can lead to a few places only, and free memory for its code is more than 2 GB from them"
_COPIED = {STRING: "string", STACK: "stack"}  # kinds of arguments that are copied, and the templates that do it


class Part(NamedTuple):
    """Trampolines of one module: at which address, their code, and behind them the counters (`counters` bytes, with
    their `shards`)."""

    address: int
    code: bytes
    counters: int
    shards: Shards | None = None


class Layout(NamedTuple):
    """Everything that is to be mapped and written. `pages` are mirrors' pages by address, `kept` mirrors on pages of an
    earlier trace. `counter_of[i]` is the address of spot i's counter (of lost records, if records are written),
    `tables` are those of targets, `pairs` is the address of begins that wait, 0 if they do so elsewhere, and `stop`
    that of what ends the records, likewise."""

    spots: tuple[Spot, ...]
    parts: tuple[Part, ...]
    pages: Mapping[int, bytearray]
    kept: Mapping[int, bytes]
    counter_of: tuple[int, ...]
    specs: tuple[SiteSpec, ...]
    tables: tuple[Place, ...] = ()
    pairs: int = 0
    stop: int = 0


def build(
    machine: Machine, plan: Plan, spots: Sequence[Spot], mirrors: Mirrors, room: Room, shape: Shape, rings: int,
    pid_cell: int, tid_offset: int | None, mapped: Sequence[Area], heap: tuple[int, int] | None = None,
    starts: Sequence[int] = (),
) -> tuple[Layout, list[Refusal]]:  # fmt: skip
    """Return the layout for spots: trampolines are written, and mirrors that lead to them. Parts are where there is
    room, or at `starts`."""
    groups: dict[int, list[Spot]] = {}
    known = Known(heap_end=pid_cell) if heap is None else Known(0, 0, *heap)
    for spot in spots:
        groups.setdefault(spot.site.address >> machine.GROUP, []).append(spot)
    kept: list[Spot] = []
    parts, counters, specs, refusals, places = [], [], [], [], list[Place]()
    old: dict[int, bytes] = {}
    pairs, rows = plan.pairs, Rows(plan)
    begins = functions_of_begins(plan.measures, ((spot.target, spot.site) for spot in spots))
    counted = [tables_of(plan, [(spot.target, spot.site) for spot in group]) for group in groups.values()]
    wish = _shards(machine, plan, pid_cell, tid_offset, [used for _, used, _ in counted])
    for group, (own, waiting, _), number in zip(groups.values(), counted, count()):
        size = machine.size(plan, group) + rows.room(group)
        behind = _behind(plan._replace(pairs=pairs), waiting)
        counter_size = behind + (-(-wish.room(waiting) // PAGE) * PAGE if wish is not None else 0)
        start = room.find(size + counter_size, group[0].site.address, machine.REACH) if not starts else None
        if number < len(starts):
            start = starts[number]
        if start is None:
            refusals += [Refusal(s.target.title, "there is no free memory near it", "", s.site.address) for s in group]
            continue
        if not starts:
            room.take(start, start + size + counter_size)
        pairs = pairs or start + size + waiting
        own_shards = wish.of_part(start + size, behind, waiting) if wish is not None else None
        wish = wish._replace(left=own_shards.left) if wish is not None and own_shards is not None else None
        places_of = rings, pid_cell, pairs
        text, calls = _routines(machine, plan, start, shape, places_of, tid_offset, _file_known(known, group, mapped),
                                (own_shards, plan.pair_shards if plan.pairs else own_shards))  # fmt: skip
        for index, spot in enumerate(group):
            placed = machine.place(spot, start + len(text))
            if isinstance(placed, str):
                refusals.append(Refusal(spot.target.title, placed, "", spot.site.address))
                continue
            spot, lead, back = placed  # noqa: PLW2901  (now with the bytes that it changes to)
            text += lead
            at, counter = start + len(text), start + size + 8 * index
            if not _lead(spot, at, mirrors, old):
                refusals.append(Refusal(spot.target.title, _TOO_FAR, "", spot.site.address))
                continue
            spec = _spec(plan, spot) if plan.what != COUNT else _UNREAD
            table_of = {one.measure: start + size + one.address for one in own if one.target == spot.target.number}
            counts = counter, table_of, pairs, own_shards, is_apart(begins, spot.target, spot.site)
            keeping = _keeping(plan, spot, rings) if shape.keeps else None
            text += _trampoline(machine, plan, spot, spec, at, calls, counts, back, len(kept), keeping,
                                rows.choice(spot.target, spot.site))  # fmt: skip
            kept.append(spot)
            counters.append(counter)
            specs.append(spec)
        places += [one._replace(address=start + size + one.address) for one in own]
        assert len(text) <= size
        text += machine.FILL * ((size - len(text)) // len(machine.FILL))
        parts.append(Part(start, bytes(text), counter_size, own_shards))
    has_pairs = not plan.pairs and (chooses(plan) or any(measure.pair for measure in plan.measures))
    return Layout(tuple(kept), tuple(parts), mirrors.pages, old, tuple(counters), tuple(specs), tuple(places),
                  pairs if has_pairs else 0,
                  rings + code.STOP if plan.keeps and not plan.stop else 0), refusals  # fmt: skip


def _shards(
    machine: Machine, plan: Plan, pid_cell: int, tid_offset: int | None, used: Sequence[int]
) -> shards.Wanted | None:
    """Return what shards are made of; None if there are none."""
    if plan.what != COUNT or not machine.SHARDS or plan.targets[0].kind == LIBRARIES:
        return None
    return shards.wanted(pid_cell, tid_offset, used)


def _routines(
    machine: Machine, plan: Plan, start: int, shape: Shape, places: tuple[int, int, int], tid_offset: int | None,
    known: Known, own: tuple[Shards | None, Shards | None],
) -> tuple[bytearray, Routines]:  # fmt: skip
    """Return what trampolines call, to stand at an address; `places` are those of the rings, of the cell of the
    process' number, and of what threads remember, `own` shards of what is counted, and where begins wait."""
    rings, pid_cell, remembered_at = places
    text = bytearray()
    calls: Routines = {}

    def here() -> int:
        text.extend(machine.FILL * (-len(text) % 16 // len(machine.FILL)))
        return start + len(text)

    def add(made: tuple[bytes, Routines]) -> None:
        text.extend(made[0])
        calls.update((name, at) for name, at in made[1].items() if name not in calls)

    if plan.what != COUNT:
        add(machine.routines(start, shape, rings, pid_cell, tid_offset, known))
    if plan.evaluates:
        add(evaluated.routines(machine.words(), here(), pid_cell, tid_offset, plan.string_size, known, *own))
    elif own[0] is not None:
        add(machine.count_routines(here(), own[0]))
    if chooses(plan):
        add(machine.choosing_routines(here(), plan, remembered_at, pid_cell, tid_offset, calls))
    return text, calls


def _file_known(known: Known, group: Sequence[Spot], mapped: Sequence[Area]) -> Known:
    """Return what is known and, of the file that spots are in, what is mapped to be read only. Their trampolines need
    not try it before they read there: whoever unmaps a file unmaps the spots with it, of which none is hit then. All
    other memory but the heap may be gone by the next hit, also a page that was just read, and is tried."""
    if len({spot.target.module[:2] for spot in group}) > 1:
        return known
    start, size = unwritable(mapped, group[0].site.address)
    return known._replace(known_from=start, known_size=size)


def tables_of(plan: Plan, group: Sequence[tuple[Target, Site]]) -> tuple[list[Place], int, int]:
    """Return the tables of targets at sites, which begin behind the sites' counters, at addresses from these on;
    where, behind them, begins of pairs may wait; and how many bytes all of it has."""
    found, at = dict[tuple[int, Measure], Place](), -(-8 * len(group) // 64) * 64
    for target, site in group if plan.measures else ():
        for tally in asked(plan, target, site.operands)[1]:
            if tally.side != BEGIN and (target.number, tally.measure) not in found:
                signs = (True, False, None) if tally.side else tally.signs(site.operands)
                own = tally.keys.index(PROCESS) if PROCESS in tally.keys else -1
                place = Place(target.number, tally.measure, at, *signs, tally.width, plan.string_size, own)
                found[target.number, tally.measure] = place
                at += tables.size(tally.measure, 0 if tally.side else tally.width)
    return list(found.values()), at, _behind(plan, at)


def _behind(plan: Plan, used: int) -> int:
    """Return how many bytes counters and tables have with what waits behind them."""
    return -(-(used + tables.pairs_size(plan.measures, plan.pair_width) + remembered(plan)) // PAGE) * PAGE


def _trampoline(
    machine: Machine, plan: Plan, spot: Spot, spec: SiteSpec, at: int, calls: Routines,
    counts: tuple[int, Mapping[Measure, int], int, Shards | None, bool], back: Back, site: int,
    keeping: Keeping | None, choice: Choice | None,
) -> bytes:  # fmt: skip
    """Return a spot's trampoline, to stand at an address; `counts` are the addresses of its counter, of its tables, and
    of begins of pairs, their shards, and whether no begin is in the same function."""
    if spot.target.kind == LIBRARIES:
        return machine.tell_trampoline(at, counts[0], back)
    if plan.what == COUNT and not plan.evaluates:
        return machine.count_trampoline(at, counts[0], back, counts[3], calls)
    operands = tuple(_moved(operand, _pushed(spot)) for operand in spot.site.operands)
    predicate, found = asked(plan, spot.target, operands)
    to = [(tally, counts[1].get(tally.measure, 0)) for tally in found]
    there = None if not plan.pairs else THERE if plan.pair_shards is not None else ""
    action = Action(predicate, operands, counts[0], to, counts[2], counts[3], _pushed(spot), spot.site.around,
                    counts[4], there)  # fmt: skip
    if plan.what == COUNT:
        return evaluated.trampoline(machine.words(), at, action, calls, back)
    gate = evaluated.gate(machine.words(), at, action, calls, back)
    choice = choice if choice is not None and choice.chooser in calls else None
    return gate + machine.record_trampoline(
        at + len(gate), site, _taken(spot, spec), calls, counts[0], back, keeping, choice
    )


def _keeping(plan: Plan, spot: Spot, rings: int) -> Keeping:
    """Return what a spot's trampoline does for rings at an address that keep the last records."""
    operands = tuple(_moved(operand, _pushed(spot)) for operand in spot.site.operands)
    return code.Keeping(plan.stop or rings + code.STOP, awaited(plan, spot.target, operands), operands)


def _lead(spot: Spot, trampoline: int, mirrors: Mirrors, old: dict[int, bytes]) -> bool:
    """Let a spot's mirror, if any, lead to its trampoline, and what is behind its NOP to where it led before; `old`
    gets what is to be written on pages of an earlier trace. Return whether jumps reach that far; if not, nothing was
    done."""
    form, address, after = spot.form, spot.site.address, spot.after
    steps: tuple[int, ...] = ()
    if isinstance(form, Padded):
        address, mirror = form.at, form.mirror
        goals = {mirror: trampoline} if form.tail else {}
    elif not isinstance(form, Form):
        return True
    else:
        mirror, tail = spot.mirror, after[1:JUMP_SIZE]
        goals = dict.fromkeys((mirror, *leads_of(address, tail, spot.near, form.was)), trampoline)
        if form.behind:
            goals[behind_leads(address, after)] = behind_leads(address, spot.before)
        steps = steps_of(address, tail, spot.near, form.was)  # the jump of an entry is behind these
    try:
        written = {place: code.jump(place, goal) for place, goal in goals.items()}
    except OverflowError:
        return False
    if steps:
        written |= dict.fromkeys(steps, STEP[:1])
    if mirrors.earlier.get(address) == mirror:
        old.update(written)
        return True
    for place, lead in written.items():
        mirrors.write(place, lead)
    return True


_UNREAD = SiteSpec(0, (), (), ())  # of a site that is counted only


def _spec(plan: Plan, spot: Spot) -> SiteSpec:
    arguments = spot.target.arguments[: len(spot.site.operands)]
    sizes = tuple((one.size or 8, one.signed, one.floating) for one in spot.site.operands[: len(arguments)])
    return SiteSpec(spot.target.number, arguments, sizes, string_places(arguments, plan.string_size))


def _taken(spot: Spot, spec: SiteSpec) -> list[code.Taken]:
    return [
        code.Taken(
            _moved(operand, _pushed(spot)),
            _COPIED.get(argument.kind, ""),
            code.HEADER + 8 * index,
            place,
            argument.size,
        )
        for index, (operand, argument, place) in enumerate(zip(spot.site.operands, spec.arguments, spec.strings))
    ]


def _pushed(spot: Spot) -> int:
    """Return how far down the stack pointer is: operands are those before a call instruction, and a trampoline of ours
    that it calls finds the return address below them."""
    return 8 if isinstance(spot.form, Load) and spot.form.is_call else 0


def _moved(operand: Operand, by: int) -> Operand:
    if by and operand.text == BEHIND:  # what the call has left says so
        return operand._replace(place=operand.place._replace(displacement=0))
    if operand.place.base != "rsp":
        return operand
    return operand._replace(place=operand.place._replace(displacement=operand.place.displacement + by))
