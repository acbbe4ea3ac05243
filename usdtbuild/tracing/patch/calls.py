"""Which calls are recorded, decided where they happen (`Job.cut`): what each thread has open, and the code for it.

A thread's memory holds the calls that were recorded and are open, as `frames` puts them in order: where on the stack
each returns, and to where. Who is entered or returns above them closes those that were left. A call is passed by if so
many are open as may be, or if those around it say so; its return is, too, because nothing that is open returns there.

The tracer chooses once more, of what was recorded, so more may be recorded than is wanted, but nothing less. What tells
of the end of an open call always is; of a call that is to be passed by only that is meant (`Event.frame`). All calls of
a thread for which there is no memory are recorded, too, and those that are deeper than there is room for.
Passed by is also who was jumped to; so a return at the place of an open call is its own. A word behind the memory says
whether calls are passed by until a probe is hit, in a process and those that it forks.

Of which nothing is wanted that doesn't last (`--min-time`), a call is recorded when it returns and has lasted, with the
time of its entry and behind all that are open around it, which have lasted longer. What has lasted and is open at the
end the tracer takes from the memory.

Forked processes share the memory, and may have other rights. So it holds no address that code goes to, and of how much
is open only those bits count that lead to a call of the thread.

The memory is the program's and belongs to a thread by the numbers of thread and process, so a forked child begins with
nothing. Only its thread writes there. The handler of a signal may come between any two instructions; what it opens it
closes, so at worst a call is open that isn't any more, and the next one above it on the stack closes it.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from ...machines.templates import Code
from .. import clock
from ..maps import PAGE
from ..model import ENTER, EXIT, PROBE, RECORD
from ..selection import is_meant
from .code import Choice
from .rings import late_record

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from mmap import mmap

    from ..job import Cut
    from ..model import Site, Target
    from ..plan import Plan
    from .code import Routines
    from .evaluated import Words
    from .injection import Shared
    from .rings import Write
    from .spot import Spot

# As in the templates: for how many threads there is memory, what stands before the calls of each, and bytes of a call.
_THREADS, _HEAD, _CALL = 512, 16, 64
_ROOM = 16 << 10  # bytes for each thread, at most
_SWITCH = 64  # bytes behind them, for one word
_THREAD, _OPEN_CALL = struct.Struct("<III"), struct.Struct("<QQIIQI")
_BELOW, _NOT_BELOW, _GIVEN = 1, 2, 8
_ROUTINES_SIZE = 1536  # at most
_GATE_SIZE = 32  # in each trampoline, with the row's own words


def chooses(plan: Plan) -> bool:
    """Whether some calls are passed by, and the code can tell which."""
    cut = plan.cut if plan.what == RECORD else None
    return cut is not None and any((plan.least, *cut._replace(least=0)))


def size(plan: Plan) -> int:
    """Return how many bytes the threads' memory has, 0 if there is none, or if it is elsewhere already."""
    if plan.cut is None or not chooses(plan) or plan.pairs:
        return 0
    return _THREADS * _own_size(plan.cut) + _SWITCH


def _own_size(cut: Cut) -> int:
    """Return how many bytes each thread has, a power of two; all calls that may be open have room, if they are few."""
    wanted = _HEAD + _CALL * cut.depth if cut.depth else _ROOM
    return min(_ROOM, 1 << (wanted - 1).bit_length())


class Rows:
    """What the code is told of each function of a plan."""

    def __init__(self, plan: Plan) -> None:
        self._roles: dict[int, int] = {}
        self._leaders: dict[int, list[int]] = {}
        self._cut = plan.cut if chooses(plan) else None
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
        """Return what a site's trampoline asks; None if it records all hits."""
        if target.kind == ENTER and site.address in self._roles:
            leaders = self._leaders.get(site.address, ())
            words = [site.address, self._roles[site.address], target.number, *leaders, 0]
            return Choice("entered", struct.pack(f"<{len(words)}I", *(word & 0xFFFFFFFF for word in words)))
        if target.kind == EXIT and site.entry in self._roles:
            return Choice("returned", struct.pack("<I", site.entry & 0xFFFFFFFF))
        if target.kind == PROBE and self._cut is not None:
            is_end = is_meant(target, self._cut.end)
            return Choice("switched", struct.pack("<I", _waits(self._cut) if is_end else 1))
        return None

    def room(self, spots: Sequence[Spot]) -> int:
        """Return how many bytes all of that takes at most, with the routines, whole pages."""
        if self._cut is None:
            return 0
        choices = filter(None, (self.choice(spot.target, spot.site) for spot in spots))
        return -(-(_ROUTINES_SIZE + sum(_GATE_SIZE + len(one.row) for one in choices)) // PAGE) * PAGE


def _waits(cut: Cut) -> int:
    """Return what the word is while calls are passed by; it is 0 at first."""
    return int(not cut.begin)


def routines(
    words: Words, at: int, plan: Plan, calls: int, pid_cell: int, tid_offset: int | None, claims: Routines
) -> tuple[bytes, Routines]:
    """Return the code of the routines that choose, to stand at an address, and where each is. Where a thread can't tell
    its number without a system call, calls are only passed by until a probe is hit. `calls` is the address of the
    threads' memory, `claims` has that of what claims a slot, and of what does for a process and a thread."""
    cut = plan.cut
    if cut is None or not chooses(plan):
        return b"", {}
    own = _own_size(cut)
    room = (own - _HEAD) // _CALL
    is_limited = 0 < cut.depth <= room  # then never more are open, and none is recorded for lack of room
    values: dict[str, int | str] = {
        "calls": calls, "calls_bits": own.bit_length() - 1, "calls_size": own, "calls_mask": _THREADS * own - 1,
        "most_open": own - _CALL,
        "nothing_open": 0 if cut.below else _BELOW, "deepest": _CALL * cut.depth, "room": _CALL * room + is_limited,
        "above": words.saved + 8, "pid_cell": pid_cell, "tid_offset": tid_offset or 0,
        "switch": calls + _THREADS * own, "waits": _waits(cut),
        "least": plan.least,
        "target": "chosen" if tid_offset is not None else "claim_slot",
    }  # fmt: skip
    waiting = ("is_waiting",) if cut.begin or cut.end else ()
    deep = ("not_too_deep",) if is_limited else ()
    found, text = {}, b""

    def add(name: str, *pieces: str) -> None:
        nonlocal text
        found[name] = at + len(text)
        made = Code(words.templates, found[name])
        for piece in pieces:
            if piece.endswith(":"):
                made.label(piece[:-1])
            else:
                made.add(piece, **values)
        made.pad(words.fill, 16)
        claim, claim_for = claims["claim"], claims["claim_for"]
        text += made.packed(claim_slot=claim, claim_slot_for=claim_for, give=found.get("give", 0), **words.numbers)

    over = "passed_over:", "is_passed_over"
    later = "_later" * bool(plan.least)
    deeper = ("too_deep:", "give_all") if later else ()
    opened = f"open_call{later}", *(() if later else ("too_deep:",)), "chosen:", "is_chosen"
    unknown = ("unknown_thread", *waiting) if waiting else ()
    if tid_offset is not None:
        if plan.least:
            add("give", "give_calls")
        add("entered", "own_calls", "looked:", "entered", "entered_within:", *deep, "entered_alone:", *waiting,
            *opened, *over, "tells:", "only_tells", "left:", "close_left", *deeper,
            "look:", "look_for_calls", "unknown:", *unknown, "jump")  # fmt: skip
        add("returned", "own_calls", "looked:", "returned", *over, "tells:", "unknown:", "chosen:", "is_chosen",
            "ended:", f"close_ended{later}", "look:", "look_for_calls")  # fmt: skip
    elif waiting:
        add("entered", *unknown, "jump", *over, "tells:", "only_tells", "chosen:", "jump")
    if waiting:
        add("switched", "switched")
    return text, found


class LeftOpen:
    """Calls that processes' first threads have open at the end, that have lasted and aren't recorded: nothing comes any
    more that would have them recorded. `waits`: they are still to be handed over."""

    def __init__(self, plan: Plan, slot: int) -> None:
        self._plan, self._slot, self._at = plan, slot, 0
        self._shared: Shared | None = None
        self.waits = False

    def begin(self, shared: Shared | None, at: int) -> None:
        """They are remembered in shared memory from here on; 0: elsewhere."""
        self._shared, self._at, self.waits = shared, at, bool(at and self._plan.least)

    def give(self, write: Write) -> int:
        """Hand over their records, once; return how many."""
        if not self.waits or self._shared is None:
            return 0
        found = list(self._found(self._shared.data, clock.now()[0]))
        self.waits = write(memoryview(b"".join(found))) is False
        return 0 if self.waits else len(found)

    def _found(self, data: mmap, now: int) -> Iterator[bytes]:
        """Yield their records; the program may have written anything there."""
        own = _own_size(self._plan.cut) if self._plan.cut is not None else 0
        for at in range(self._at, self._at + _THREADS * own, own):
            tid, pid, size = _THREAD.unpack_from(data, at)
            last = at + _HEAD + min(size, own - _HEAD - _CALL + 1)
            for call in range(at + _HEAD, last, _CALL) if tid == pid else ():
                place, back, _, roles, since, number = _OPEN_CALL.unpack_from(data, call)
                if not roles & _GIVEN and now - since >= self._plan.least:
                    yield late_record(since, tid, number, pid, (place, back)).ljust(self._slot, b"\0")
