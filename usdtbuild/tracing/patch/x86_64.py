"""How sites change on x86-64: which of them can become jumps or load another slot, and what their trampolines are.

The argument why every state in between is valid code is the package's, and for calls that of `slots`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...formats.operands import REGISTER
from ...machines.numbers import EM_X86_64
from ...machines.x86_64 import INT3
from ...machines.x86_64.host import HOST, full_register
from ...machines.x86_64.lengths import usual_length
from ...machines.x86_64.moving import moved
from ...machines.x86_64.templates import TEMPLATES
from ..maps import PAGE, Window, page_start
from ..model import CALL, COUNT, Refusal
from . import calls, code, evaluated, slots
from .code import Through
from .forms import (
    JUMP,
    JUMP_SIZE,
    PADDED,
    SHORT_JUMP,
    Form,
    Padded,
    before_entry,
    call_ends_within,
    form_of,
    is_padded,
    joined_form,
    leads_of,
    steps_of,
)
from .slots import Load
from .spot import Spot

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from ...formats.operands import Operand
    from ..maps import Memory
    from ..model import Site, Target
    from ..plan import Plan
    from .code import Back, Choice, Keeping, Routines, Taken
    from .mirrors import Mirrors, Placed

# What is within 64 MB shares its trampolines, and these may be so far away; the rest of 2 GB is for the way from the
# mirror.
GROUP, REACH = 26, 192 << 20
FILL = INT3
TOLD = TEMPLATES["tell"].labels
count_trampoline, count_routines = code.count_trampoline, code.count_routines
routines, tell_trampoline = code.routines, code.tell_trampoline
SHARDS = True
_LONGEST_SITE = 16
_JUMP = bytes([JUMP])
_FARTHEST = (1 << 31) - PAGE  # that a distance of 32 bits reaches, from anywhere in a trampoline


def find_spots(
    plan: Plan, memory: Memory, mirrors: Mirrors, others: Collection[int] = ()
) -> tuple[list[Spot], list[Refusal]]:
    """Return the sites that can be patched, in the order of their addresses, and why the others can't.

    A jump is as long as five instructions may be, and reads what the next sites change: where one of these, or one of
    `others` (addresses where breakpoints may come), lies within it, its site is left alone. Returns come last, because
    they may read the jump of an entry (`_before_entry`): without its entry nothing is known of a call, without its
    return only when it ended. Those that have the least choice are first.
    """
    spots: list[Spot] = []
    refusals: list[Refusal] = []
    jumps = [(target, site) for target in plan.targets if target.kind != CALL for site in target.sites]
    for target in plan.targets:
        for site in target.sites if target.kind == CALL else ():
            _find_load(target, site, memory, spots, refusals)
    # Where a call can't be patched a breakpoint may come.
    calls = (site.address for target in plan.targets if target.kind == CALL for site in target.sites)
    taken = {site.address for _, site in jumps}.union(others, calls)
    padded = _find_padded(jumps, taken, memory)
    for spot in [*spots, *padded.values()]:
        for address, before, _ in spot.changes:
            taken.update(range(address, address + len(before)))
    window = Window(memory)
    forms = _Forms()
    seen: set[int] = set()
    begun: dict[int, Spot] = {}  # by where their jumps begin
    leaning: dict[int, Site] = {}  # by returns, the entries whose jumps theirs read
    for target, site in sorted(jumps, key=lambda one: (bool(one[1].entry), one[1].unused)):
        if site.address in padded and site.address not in seen:
            seen.add(site.address)
            begun[padded[site.address].mirror] = padded[site.address]._replace(target=target, site=site)
            continue
        before = window.read(site.address, _LONGEST_SITE)
        form, behind = forms.of(before, site.unused)
        form = _on_one_page(form, before, site.address)
        entry = _entry_behind(site, begun) if form is not None and site.entry else None
        reason = _why_not(plan, site, before, form, taken, entry, behind)
        if site.address in seen:
            reason = "another probe is at the same place"
        seen.add(site.address)
        both = None
        if not reason and entry is not None:
            both = _before_entry(Spot(target, site, entry.form, before, b"", 0), entry, mirrors)
            leaning[site.address] = entry.site
        elif not reason and form is not None:
            both = _alone(target, site, before, form, mirrors, behind)
        if both is None:
            reason = reason or "a jump there can lead to a few places only, and there is no free memory at any of them"
            refusals.append(Refusal(target.title, reason, "", site.address))
            continue
        for spot in both:
            begun[spot.changes[0][0]] = spot
    spots = sorted([*spots, *begun.values()], key=lambda spot: spot.changed_at)
    return _whole_functions(plan, spots, refusals, leaning)


def _why_not(
    plan: Plan, site: Site, before: bytes, form: Form | None, taken: set[int], entry: Spot | None,
    behind: Sequence[int],
) -> str:  # fmt: skip
    """Return why a site can't become a jump, '' if it may; `entry` is what it may read of what is `taken`, `behind` as
    of `_Forms`."""
    end = entry.changes[0][0] if entry is not None else site.address + JUMP_SIZE
    if form is not None and plan.returns and call_ends_within(before[form.length :], JUMP_SIZE - form.length):
        return "a call is so close behind it that a jump has no room beside a breakpoint where that returns"
    if not taken.isdisjoint(range(site.address + 1, end)):
        return "another probe, or a call, is so close behind it that a jump has no room"
    if form is None:
        return why_not_free(before)
    # What it hides isn't known, and is back when it goes.
    if INT3[0] in before[1:JUMP_SIZE] and any(before[1 + at] == INT3[0] for at in (*_near(site), *behind)):
        return "another tracer's breakpoint is so close behind it that a jump has no room"
    return ""


def _near(site: Site) -> list[int]:
    return [at - site.address - 1 for at in site.near] if site.near else []


def _entry_behind(site: Site, begun: Mapping[int, Spot]) -> Spot | None:
    """Return the entry whose jump begins within that of a return, nothing but unused bytes between them, if all that
    the return's jump reads is on one page and so changes at once."""
    if page_start(site.address) != page_start(site.address + JUMP_SIZE - 1):
        return None
    within = range(site.address + 1, site.address + 1 + min(site.unused + 1, JUMP_SIZE - 1))
    found = next((begun[at] for at in within if at in begun), None)
    return found if found is not None and isinstance(found.form, Form | Padded) and not found.form.returns else None


def _before_entry(spot: Spot, entry: Spot, mirrors: Mirrors) -> list[Spot] | None:
    """Return a return as it changes, and the entry whose jump it reads; None if there is no room.

    In an entry's padding any bytes may be, so the two jumps are chosen together. The jump of any other entry is what it
    is, and its first byte may be that of the file again.
    """
    site, start, padding = spot.site, entry.changes[0][0], entry.form if isinstance(entry.form, Padded) else None
    unused, near = start - site.address - 1, set(_near(site))
    if padding is None:
        form = before_entry(unused, entry.after, entry.before)
        near.add(unused)
    else:
        form = before_entry(unused, bytes([JUMP]) + padding.tail)
    placed = mirrors.place(site.address, form, sorted(near))
    if placed is None:
        return None
    for step in steps_of(site.address, placed.tail, placed.near, form.was):
        if step + 1 not in {entry.mirror, *leads_of(start, entry.after[1:JUMP_SIZE], entry.near)}:
            return None
    if padding is not None:
        known = placed.tail[unused + 1 :]
        inner = Form(PADDED, False, known.ljust(JUMP_SIZE - 1, b"\0"), tuple(range(len(known), JUMP_SIZE - 1)))
        led = mirrors.place(start, inner, ())
        if led is None:
            return None
        entry = entry._replace(form=padding._replace(tail=led.tail))
    was = spot.before[: 1 + unused] + (form.was or placed.tail)[unused:]
    after = _JUMP + placed.tail
    return [spot._replace(form=form, before=was, after=after, mirror=placed.mirror, near=placed.near), entry]


def _alone(
    target: Target, site: Site, before: bytes, form: Form, mirrors: Mirrors, behind: Sequence[int]
) -> list[Spot] | None:  # fmt: skip
    """Return a site as it changes; None if there is no room. `behind` as of `_Forms`."""
    form, placed = _placed(site.address, before, form, mirrors, _near(site), behind)
    if placed is None:
        return None
    after = _JUMP + placed.tail + before[JUMP_SIZE : form.size]
    back = _behind(site.address, before, form, placed.tail)
    return [Spot(target, site, form, before[: form.size], after, placed.mirror, placed.near, back)]


def _behind(address: int, before: bytes, form: Form, tail: bytes) -> code.Behind | None:
    """Return how a trampoline goes on with what stands behind a NOP of one byte; None if it can't but there."""
    found = moved(before[1:], JUMP_SIZE - 1) if form.length == 1 and not form.returns and not form.behind else None
    if found is None:
        return None
    return code.Behind(address + 1, int.from_bytes(tail, "little"), found[0], address + 1 + found[1])


def _placed(
    address: int, before: bytes, form: Form, mirrors: Mirrors, near: Sequence[int], behind: Sequence[int]
) -> tuple[Form, Placed | None]:
    """Return how a site changes, and where its jump leads; with what is behind it where that alone finds memory."""
    placed = mirrors.place_for_any(address, form, near, behind)
    joined = joined_form(before) if placed is None else None
    if joined is None or page_start(address) != page_start(address + joined.size - 1):
        return form, placed
    return joined, mirrors.place_for_any(address, joined, near, behind)


class _Forms:
    """How sites can become jumps, by their code; many are alike."""

    def __init__(self) -> None:
        # By the bytes that a jump replaces, where they are whole instructions: nothing behind them matters.
        self._known: dict[bytes, tuple[Form | None, list[int]]] = {}

    def of(self, before: bytes, unused: int) -> tuple[Form | None, list[int]]:
        """Return how a site with this code can become a jump, and which of the four bytes behind the first begin
        instructions that run, where breakpoints may come. Nobody runs `unused` bytes behind a return."""
        found = self._known.get(before[:JUMP_SIZE]) if not unused else None
        if found is None:
            form = form_of(before, unused) if len(before) > JUMP_SIZE else None
            if form is None or form.returns:
                return form, []
            behind, end = _begin_within(before, form.length)
            found = form, behind
            if end == JUMP_SIZE and not unused:
                self._known[before[:JUMP_SIZE]] = found
        return found


def _begin_within(before: bytes, at: int) -> tuple[list[int], int]:
    """Return of the four bytes behind the first which begin instructions, from one on; and where the last of these
    ends."""
    found = []
    while at < JUMP_SIZE:
        found.append(at - 1)
        at += usual_length(before[at:]) or _any_length(before[at:])
    return found, at


def _any_length(code: bytes) -> int:
    from ...machines.disassembly import instructions  # loading capstone takes longer than all else while threads stand

    return next((length for _, length, _, _ in instructions(EM_X86_64, code, at_once=1)), JUMP_SIZE)


def _find_padded(
    jumps: Sequence[tuple[Target, Site]], taken: Collection[int], memory: Memory
) -> dict[int, Spot]:  # fmt: skip
    """Return, by address, functions' entries that change by their padding: where no other site's jump reads that, but
    for returns'."""
    found: dict[int, Spot] = {}
    entries = [(target, site) for target, site in jumps if site.padding]
    others = [site.address for _, site in jumps if not site.padding and not site.entry] if entries else []
    read = {address + at for address in others for at in range(1, JUMP_SIZE)}
    for target, site in entries:
        start = site.address - site.padding
        entry, padding = memory.read(site.address, PADDED), memory.read(start, JUMP_SIZE)
        changed = {*range(start, start + JUMP_SIZE), site.address + 1}
        # The entry's bytes change at once.
        one_page = site.address % PAGE != PAGE - 1
        if one_page and is_padded(padding, entry) and changed.isdisjoint(read) and changed.isdisjoint(taken):
            found[site.address] = Spot(target, site, Padded(PADDED, start), entry + padding, b"", start)
    return found


def _on_one_page(form: Form | None, before: bytes, address: int) -> Form | None:
    """Return the form with no bytes to change on another page than the first: the kernel writes page by page, and we
    may be killed between two of them."""
    last = page_start(address) + PAGE - 1
    if form is None or not form.free or address + JUMP_SIZE - 1 <= last:
        return form
    free = tuple(index for index in form.free if address + 1 + index <= last)
    tail = bytes(form.tail[i] if i in free else before[1 + i] for i in range(JUMP_SIZE - 1))
    return form._replace(free=free, tail=tail)


def _whole_functions(
    plan: Plan, spots: Sequence[Spot], refusals: list[Refusal], leaning: Mapping[int, Site]
) -> tuple[list[Spot], list[Refusal]]:
    """Take no function of which an entry or a return is refused, if breakpoints may watch returns: who hears of returns
    by a breakpoint hears of entries so. Nor one with a return that is `leaning` on an entry which isn't taken."""
    if not plan.returns:
        return list(spots), refusals
    sites = [(target, site) for target in plan.targets for site in target.sites]
    returning = {site.entry for _, site in sites if site.entry}
    refused = {refusal.address: refusal for refusal in refusals}
    broken = {_entry_of(site): refused[site.address] for _, site in sites if site.address in refused}
    broken = {entry: refusal for entry, refusal in broken.items() if entry in returning}
    leans = [(spot.site.entry, _entry_of(leaning[at])) for spot in spots if (at := spot.site.address) in leaning]
    while more := {entry: broken[on] for entry, on in leans if on in broken and entry not in broken}:
        broken.update(more)
    kept: list[Spot] = []
    more_refusals: list[Refusal] = []
    for spot in spots:
        why = broken.get(_entry_of(spot.site))
        if why is None:
            kept.append(spot)
        else:
            where = f"another place where the function is entered or left, {why.address or 0:#x}, can't be patched"
            more_refusals.append(Refusal(spot.target.title, f"{where}: {why.reason}", "", spot.site.address))
    return kept, refusals + more_refusals


def _entry_of(site: Site) -> int:
    return site.entry or site.address


def _find_load(target: Target, site: Site, memory: Memory, spots: list[Spot], refusals: list[Refusal]) -> None:
    if site.held is not None:
        refusals.append(Refusal(target.title, slots.BY_REGISTER, "", site.address))
        return
    found = memory.read(site.address, slots.LONGEST)
    load = slots.load_of(found, site.address)
    if load is None or memory.word(load.slot) is None:
        refusals.append(Refusal(target.title, slots.why_no_load(found), "", site.address))
        return
    at = load.changed_at - site.address
    spots.append(Spot(target, site, load, found[at : at + 4], b"", 0))


def why_not_free(found: bytes) -> str:
    """Return why bytes at a site can't become a jump."""
    if not found:
        return "its code can't be read"
    if found.startswith(INT3):
        return "a breakpoint is there already: another tracer (perf, bpftrace, gdb) watches it"
    if found[0] in {JUMP, SHORT_JUMP}:
        return "there is a jump already: the program's own, or another tracer's"
    return f"the instruction there is no NOP (bytes {found[:4].hex(' ')})"


def place(spot: Spot, at: int) -> tuple[Spot, bytes, Back] | str:
    """Return a spot with the bytes that it changes to, what stands before its trampoline if that begins at `at` or a
    little behind it, and where the trampoline goes on; or why not."""
    lead = INT3 * (-at % 16)
    form = spot.form
    if isinstance(form, Padded):
        short = bytes([SHORT_JUMP, -(PADDED + spot.site.padding) & 0xFF])
        jump = bytes([JUMP]) + form.tail if form.tail else code.jump(form.at, at + len(lead))
        return spot._replace(after=short + jump), lead, spot.site.address + form.length
    if not isinstance(form, Load):
        return spot, lead, None if form.returns else spot.back or spot.site.address + form.length
    cell = at + len(lead)
    if max(abs(form.slot - cell), abs(form.counts_from - cell)) > _FARTHEST:
        return "its slot is too far away"
    lead += slots.cell(cell + 8)
    return spot._replace(after=slots.distance(form, cell)), lead, Through(form.slot)


def size(plan: Plan, spots: Sequence[Spot]) -> int:
    """Return how many bytes trampolines need at most, with the routines, whole pages."""
    if plan.evaluates and plan.what == COUNT:
        sizes = [slots.SIZE + WORDS.most(plan, spot.target, spot.site.operands) for spot in spots]
        return -(-(evaluated.ROUTINES_SIZE + sum(sizes)) // PAGE) * PAGE
    if plan.what == COUNT:
        sizes = [(slots.SIZE if isinstance(spot.form, Load) else 0) + code.COUNT_SIZE for spot in spots]
        return -(-(code.COUNT_ROUTINES_SIZE + sum(sizes)) // PAGE) * PAGE
    # The longest argument is an indexed memory operand that is tried: 65 bytes, with a string 84.
    fixed = 144 + 2 * code.GO_ON_SIZE
    sizes = [fixed + 96 * len(s.site.operands) + WORDS.around(plan, s.target, s.site.operands) for s in spots]
    sizes.append(768 + evaluated.ROUTINES_SIZE * plan.evaluates)
    return -(-sum(sizes) // PAGE) * PAGE


def record_trampoline(
    at: int, site: int, arguments: Sequence[Taken], calls: Routines, lost: int, back: Back,
    keeping: Keeping | None = None, choice: Choice | None = None,
) -> bytes:  # fmt: skip
    """See `code.record_trampoline`."""
    return code.record_trampoline(at, site, arguments, calls, lost, back, {}, keeping, evaluated.ending(WORDS), choice)


def choosing_routines(
    at: int, plan: Plan, calls_at: int, pid_cell: int, tid_offset: int | None, claims: Routines
) -> tuple[bytes, Routines]:
    """See `calls.routines`."""
    return calls.routines(WORDS, at, plan, calls_at, pid_cell, tid_offset, claims)


def _as_it_is(operand: Operand, constant: int) -> str:
    """See `evaluated.Words`: any register, if the constant has room in the instruction."""
    size = operand.size or 8
    found = full_register(operand.place.register) if operand.place.kind == REGISTER else None
    has_room = size < 8 or -(1 << 31) <= constant < 1 << 31
    whole = found is not None and not found[1] and not operand.place.displacement
    return f"compare_{size}_{found[0]}" if has_room and found is not None and whole else ""


WORDS = evaluated.Words(
    TEMPLATES, "",
    {"==": ("e", "e"), "!=": ("ne", "ne"), "<": ("l", "b"), "<=": ("le", "be"), ">": ("g", "a"), ">=": ("ge", "ae")},
    code.go_on, code.load_register, lambda made, place: code.address(made, place, {}), _as_it_is,
    HOST.kernel.numbers, INT3,
    copy="copy",
    comparison_size=192,  # an indexed operand in memory that is tried, twice, or a text and what it is compared with
    size=256 + 3 * code.GO_ON_SIZE, saved=code.SAVED, held=code.SAVED - code.RED_ZONE, pushed=8,
)  # fmt: skip


def words() -> evaluated.Words:
    """Return what trampolines need that try a hit."""
    return WORDS
