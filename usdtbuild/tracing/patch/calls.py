"""Which calls are recorded, decided where they happen (`Job.cut`): what each thread has open, and the code for it.

A thread's memory holds the calls that were recorded and are open, as `frames` puts them in order: where on the stack
each returns, and to where. Who is entered or returns above them closes those that were left. A call is passed by if so
many are open as may be, or if those around it say so; its return is, too, because nothing that is open returns there.

The tracer chooses once more, of what was recorded, so more may be recorded than is wanted, but nothing less. What tells
of the end of an open call always is. So are all calls of a thread for which there is no memory, and those that are
deeper than there is room for. Passed by is also who was jumped to; so a return at the place of an open call is its own.

The memory is the program's and belongs to a thread by the numbers of thread and process, so a forked child begins with
nothing. Only its thread writes there. The handler of a signal may come between any two instructions; what it opens it
closes, so at worst a call is open that isn't any more, and the next one above it on the stack closes it.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from ...machines.templates import Code
from ..model import ENTER, EXIT, RECORD
from ..selection import is_meant
from .code import Choice

if TYPE_CHECKING:
    from ..job import Cut
    from ..model import Site, Target
    from ..plan import Plan
    from .code import Routines
    from .evaluated import Words

# As in the templates: for how many threads there is memory, what stands before the calls of each, and bytes of a call.
_THREADS, _HEAD, _CALL = 512, 16, 24
_ROOM = 16 << 10  # bytes for each thread, at most
_BELOW, _NOT_BELOW = 1, 2
ROUTINES_SIZE = 1024  # at most
GATE_SIZE = 32  # in each stub, with the row's own words


def chooses(plan: Plan) -> bool:
    """Whether some calls are passed by, and the code can tell which."""
    cut = plan.cut if plan.what == RECORD else None
    return cut is not None and bool(cut.depth or cut.below or cut.not_below)


def size(plan: Plan) -> int:
    """Return how many bytes the threads' memory has, 0 if there is none, or if it is elsewhere already."""
    return _THREADS * _own_size(plan.cut) if plan.cut is not None and chooses(plan) and not plan.pairs else 0


def _own_size(cut: Cut) -> int:
    """Return how many bytes each thread has, a power of two; all calls that may be open have room, if they are few."""
    wanted = _HEAD + _CALL * cut.depth if cut.depth else _ROOM
    return min(_ROOM, 1 << (wanted - 1).bit_length())


class Rows:
    """What the code is told of each function of a plan."""

    def __init__(self, plan: Plan) -> None:
        self._roles: dict[int, int] = {}
        self._leaders: dict[int, list[int]] = {}
        if plan.cut is None or not chooses(plan):
            return
        entries = [(target, site) for target in plan.targets if target.kind == ENTER for site in target.sites]
        found = {(target.module, site.begins): site.address for target, site in entries}
        for target, site in entries:
            patterns = (_BELOW, plan.cut.below), (_NOT_BELOW, plan.cut.not_below)
            self._roles[site.address] = sum(role for role, names in patterns
                                            if any(is_meant(target, one) for one in names))  # fmt: skip
            for lead in site.leads:
                if (target.module, lead) in found:
                    self._leaders.setdefault(found[target.module, lead], []).append(site.address)

    def choice(self, target: Target, site: Site) -> Choice | None:
        """Return what a site's stub asks; None if it records all hits."""
        if target.kind == ENTER and site.address in self._roles:
            words = [site.address, self._roles[site.address], *self._leaders.get(site.address, ()), 0]
            return Choice("entered", struct.pack(f"<{len(words)}I", *(word & 0xFFFFFFFF for word in words)))
        if target.kind == EXIT and site.entry in self._roles:
            return Choice("returned", struct.pack("<I", site.entry & 0xFFFFFFFF))
        return None

    def size(self, target: Target, site: Site) -> int:
        """Return how many bytes that takes in its stub."""
        choice = self.choice(target, site)
        return GATE_SIZE + len(choice.row) if choice is not None else 0


def routines(
    words: Words, at: int, plan: Plan, calls: int, pid_cell: int, tid_offset: int | None, claim: int
) -> tuple[bytes, Routines]:
    """Return the code of the routines that choose, to stand at an address, and where each is; none where a thread
    can't tell its number without a system call. `calls` is the address of the threads' memory, `claim` of what
    claims a slot for a process and a thread."""
    if tid_offset is None or plan.cut is None or not chooses(plan):
        return b"", {}
    cut, own = plan.cut, _own_size(plan.cut)
    room = (own - _HEAD) // _CALL
    is_limited = 0 < cut.depth <= room  # then never more are open, and none is recorded for lack of room
    values = {
        "calls": calls, "calls_bits": own.bit_length() - 1, "calls_size": own, "calls_mask": _THREADS * own - 1,
        "nothing_open": 0 if cut.below else _BELOW, "deepest": _CALL * cut.depth, "room": _CALL * room + is_limited,
        "above": words.saved + 8, "pid_cell": pid_cell, "tid_offset": tid_offset,
    }  # fmt: skip
    text, found = b"", {}
    for name in ("entered", "returned"):
        found[name] = at + len(text)
        made = Code(words.templates, found[name])
        made.add("own_calls", **values)
        made.label("looked")
        made.add(name, **values)
        if name == "entered":
            made.label("entered_within")
            if is_limited:
                made.add("not_too_deep", **values)
            made.label("entered_alone")
            made.add("open_call", **values)
            made.label("chosen")
            made.add("is_chosen", **values)
        made.label("passed_over")
        made.add("is_passed_over")
        if name == "entered":
            made.label("left")
            made.add("close_left")
        else:
            made.label("chosen")
            made.add("is_chosen", **values)
        made.label("look")
        made.add("look_for_calls", **values)
        made.pad(words.fill, 16)
        text += made.packed(claim_slot_for=claim, **words.numbers)
    return text, found
