"""The machine code of trampolines: count a hit, or write a record of it, and go back as if nothing had happened.

A trampoline must assume that every register and the 128 bytes below the stack pointer (the red zone) are alive, and
only the flags are not: a probe's inline assembly gives them up, and functions don't get any. It calls nothing but what
stands beside it, and makes a system call only where a pointer must be tried (`rt_sigprocmask` with a wrong first
argument: EFAULT where 8 bytes can't be read, else EINVAL, and no other effect). What was found readable is tried again
at the next hit: the program may have unmapped it, and a fault would end it if the tracer, too, has been killed. That is
most of what a string costs: 98 of 150 ns, where a system call that does nothing takes 79, and others that look at
memory first (setitimer, epoll_ctl, timerfd_settime, setrlimit) as long or longer.

A record is a slot of a ring, and every thread that hits claims the next slot of the ring that its number chooses:

    0   sequence   u64   number of the slot in its ring, plus 1; written last: the record is complete
    8   time       u64   what rdtsc says
    16  thread     u32
    20  site       u32
    24  process    u32
    28  missing    u32   bit i: argument i lies in memory that can't be read
    32  arguments, 8 bytes each; behind them for each string its length (i64, -1: can't be read) and its bytes

A string that goes on where nothing can be read has CUT in its length.

A ring is a page with `head` (0: slots claimed), `tail` (64: slots read) and `ready` (72: how many slots, from the first
on, the tracer has given memory), then its slots. A full ring takes nothing, nor does one whose next slot isn't ready,
and the hit is counted as lost. Claims are atomic, so it doesn't matter when two threads share a ring, or a signal
handler hits a probe while its thread is in a trampoline.

With --lossless a thread waits instead, as long as the tracer reads. `gone` (80) says that it doesn't, or that nobody
may wait; `waited` (88) adds up for how many ticks threads have waited.

A ring that keeps the last records has neither `tail` nor `ready`: each claim takes the next number, and its slot if
nobody is writing there. The slot's word has all bits turned round while that goes on, and only grows, so a reader that
finds the same number before and after it has copied a record has that record. `claim_kept` in the templates says more.
`stop` in the first ring is the time of the record that was waited for; nothing is recorded any more then, nor while it
is 1: who reads rings one after the other wants them all of one moment. Code of libraries that come later looks there,
too.

The code itself is `templates.S` of the machine; here its templates are put together. tests/tracing runs it.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import TYPE_CHECKING

from ...formats.operands import CONSTANT, MEMORY, REGISTER
from ...machines.templates import Code, Template, filled, joined, with_filled
from ...machines.x86_64 import INT3
from ...machines.x86_64.host import HOST, full_register
from ...machines.x86_64.templates import TEMPLATES
from ...record import NamedTuple
from ..maps import NONE_KNOWN, Known
from .forms import JUMP, JUMP_SIZE

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ...formats.operands import Operand, OperandPlace
    from ..predicates import Predicate
    from .shards import Shards

    Branch = Callable[[Code, "Keeping"], None]

HEADER, HEAD, TAIL, READY, GONE, WAITED, STOP, RING_HEADER = 32, 0, 64, 72, 80, 88, 128, 4096
RINGS = 16
CUT = 1 << 62
RED_ZONE = 128
SAVED = RED_ZONE + 40  # bytes from the stack pointer up to the program's own, behind `save_all`: 5 registers, too


class Shape(NamedTuple):
    """What all trampolines of one trace agree on: bytes of a slot, slots of a ring (a power of two), bytes between
    rings (a power of two), the longest string, whether rings keep the last records, and for how many ticks a thread
    waits for room while nothing is read (0: it doesn't)."""

    slot: int
    slots: int
    stride: int
    string_size: int
    keeps: bool = False
    patience: int = 0

    def holds(self, size: int) -> int:
        """Return how many slots lie in the first bytes of a ring."""
        return min(self.slots, (size - RING_HEADER) // self.slot)

    def add_claim(self, made: Code, rings: int, named: Callable[[str], str] = str) -> None:
        """Add what claims a slot, by templates that have these names on a machine."""
        values = {"rings": rings, "stride_bits": self.stride.bit_length() - 1, "slots": self.slots,
                  "slots_mask": self.slots - 1, "slot_size": self.slot, "patience": self.patience}  # fmt: skip
        made.label("again")
        made.add(named("claim_kept" if self.keeps else "claim_slot"), **values)
        if not self.keeps:
            made.label("full")
            if self.patience:
                made.add(named("wait_for_room"), **values)
            made.label("none")
            made.add("no_room")


_JUMP = struct.Struct("<Bi")


def jump(at: int, target: int) -> bytes:
    """Return `jmp target`, to stand at an address. Raises OverflowError where that is too far away."""
    try:
        return _JUMP.pack(JUMP, target - at - JUMP_SIZE)
    except struct.error:
        raise OverflowError(f"a jump from {at:#x} doesn't reach {target:#x}") from None


class Through(NamedTuple):
    """Where a trampoline goes on: at the address that the slot holds by then."""

    slot: int


class Instruction(NamedTuple):
    """With which instruction a trampoline goes on (aarch64): one that has the same meaning wherever it stands."""

    word: int


class Behind(NamedTuple):
    """With copies of the instructions that a site's jump reads, and then at the address `end`; but at `behind`, where
    they begin, if the four bytes there aren't `tail` any more: another tracer's breakpoint has come."""

    behind: int
    tail: int
    copies: bytes
    end: int


# An address, to where a slot leads, by an instruction or copies; None: it returns from the function instead.
Back = int | Through | Instruction | Behind | None
GO_ON_SIZE = 48  # bytes that this takes, at most


def go_on(made: Code, target: Back) -> None:
    """Let a trampoline go on."""
    way, values = _onward(target)
    made.put(_going_on(way), **values)


def _onward(target: Back) -> tuple[str | bytes, dict[str, int]]:
    """Return which template lets a trampoline go on, or which copies, and what fills its holes."""
    if isinstance(target, Behind):
        return target.copies, {"behind": target.behind, "tail": target.tail, "target": target.end}
    if isinstance(target, Through):
        return "jump_through", {"slot": target.slot}
    return ("jump", {"target": target}) if isinstance(target, int) else ("return", {})


@lru_cache(maxsize=1024)
def _going_on(way: str | bytes) -> Template:
    """Return the template that lets a trampoline go on, by its name or with copies of instructions."""
    if isinstance(way, str):
        return TEMPLATES[way]
    checked = joined(TEMPLATES["if_as_armed"], Template(way))
    found = joined(checked, joined(TEMPLATES["jump"], TEMPLATES["jump_behind"]))
    return with_filled(found, changed=len(found.code) - len(TEMPLATES["jump_behind"].code))


# Bytes of a trampoline that counts, and of what those of a part call, at most.
COUNT_SIZE, COUNT_ROUTINES_SIZE = 112 + GO_ON_SIZE, 256


def count_trampoline(
    at: int, counter: int, back: Back, shards: Shards | None = None, calls: Routines | None = None
) -> bytes:
    """Return a trampoline that adds 1 to a counter, or to this thread's own among `shards`, and goes `back`."""
    way, values = _onward(back)
    if shards is None or calls is None:
        return filled(_counting(way), at, counter=counter, **values)
    values |= {"counter": counter + shards.ahead, "common": counter, "find_shard": calls["find_shard"]}
    return filled(_counting_apart(way, shards), at, **values)


@lru_cache(maxsize=1024)
def _counting(way: str | bytes) -> Template:
    """Return a template that counts and goes on."""
    return joined(TEMPLATES["count"], _going_on(way))


@lru_cache(maxsize=1024)
def _counting_apart(way: str | bytes, shards: Shards) -> Template:
    """Return a template that counts in a shard and goes on; what is the same for all sites is filled in."""
    own, unknown = TEMPLATES["count_own"], TEMPLATES["count_unknown"]
    first = joined(own, _going_on(way))
    labels = {**own.labels, "unknown": len(first.code), "shared": len(first.code) + unknown.labels["shared"]}
    return with_filled(joined(first, unknown), **labels, **shards.holes())


def count_routines(at: int, shards: Shards) -> tuple[bytes, Routines]:
    """Return what trampolines call that count only, to stand at an address."""
    made = Code(TEMPLATES, at)
    made.add("find_shard", **shards.holes())
    made.pad(INT3, 16)
    return made.packed(), {"find_shard": at}


def tell_trampoline(at: int, flag: int, back: Back) -> bytes:
    """Return a trampoline that tells the tracer that libraries have come or gone, by a signal or `flag`, and goes
    `back`."""
    made = Code(TEMPLATES, at)
    made.add("tell", flag=flag)
    go_on(made, back)
    return made.packed(**HOST.kernel.numbers)


# Addresses of what trampolines call, by name.
Routines = dict[str, int]


def routines(
    at: int, shape: Shape, rings: int, pid_cell: int, tid_offset: int | None, known: Known = NONE_KNOWN
) -> tuple[bytes, Routines]:
    """Return the code of the routines, to stand at an address.

    `rings` is the address of the first ring, `pid_cell` that of a word that holds the number of this process, or 0 in a
    process that was forked and doesn't know its own yet. `tid_offset` is where the C library keeps the number of a
    thread, from its thread pointer; None: ask the kernel each time. Texts are read without being tried first where they
    are in memory that is `known`.
    """
    made = Code(TEMPLATES, at)
    made.add("claim_process", pid_cell=pid_cell)
    if tid_offset is not None:
        made.add("thread_at_offset", tid_offset=tid_offset)
    else:
        made.add("thread_by_call")
    claim_for = made.here
    shape.add_claim(made, rings)
    made.pad(INT3, 16)
    copy = made.here
    made.add("copy", string_size=shape.string_size, **known._asdict())
    made.pad(INT3, 16)
    probe = made.here
    made.add("probe")
    made.pad(INT3, 16)
    copy_stack = made.here
    made.add("copy_stack")
    found = {"claim": at, "claim_for": claim_for, "copy": copy, "probe": probe, "copy_stack": copy_stack}
    return made.packed(**HOST.kernel.numbers), found


# -- record trampolines ------------------------------------------------------------------------------------------------


class Taken(NamedTuple):
    """An argument for a record trampoline: its operand, and where in the slot it goes. `copied` is the template that
    copies what it points to, '' for none: its length goes to `string_at`, and it has at most `size` bytes if it is a
    stack."""

    operand: Operand
    copied: str
    at: int
    string_at: int
    size: int = 0


class Choice(NamedTuple):
    """What a trampoline does before it records a call or a return: which routine it asks, of which function
    (`calls`)."""

    chooser: str
    row: bytes


class Keeping(NamedTuple):
    """What a record trampoline does for a ring that keeps the last records: where `stop` is (0: nothing stops it), and
    whether the record is what is waited for, as a predicate of the site's operands."""

    stop: int = 0
    until: Predicate = False
    operands: Sequence[Operand] = ()

    def begin(self, made: Code) -> None:
        """Add what stands before the record."""
        if self.stop:
            made.add("unless_stopped", stop=self.stop)

    def end(self, made: Code, branch: Branch) -> None:
        """Add what completes the record; `branch` goes to the labels "holds" and "kept", of which "holds" is behind."""
        if self.until is True or not isinstance(self.until, bool):
            if self.until is not True:
                branch(made, self)
            made.label("holds")
            made.add("record_end_stopping", stop=self.stop)
            made.add("jump", target="over")
        made.label("kept")
        made.add("record_end_kept")
        made.label("over")


def record_trampoline(
    at: int,
    site: int,
    arguments: Sequence[Taken],
    calls: Routines,
    lost: int,
    back: Back,
    symbols: Mapping[str, int],
    keeping: Keeping | None = None,
    branch: Branch | None = None,
    choice: Choice | None = None,
) -> bytes:
    """Return a trampoline that writes a record and goes `back`. `symbols` are addresses of symbols that operands
    name."""
    made = Code(TEMPLATES, at)
    made.add("save_all")
    if keeping is not None:
        keeping.begin(made)
    if choice is None:
        made.add("record_begin", site=site)
    else:
        made.add("record_chosen", site=site, chooser=calls[choice.chooser])
    for index, argument in enumerate(arguments):
        _take(made, index, argument, symbols)
    if keeping is not None and branch is not None:
        keeping.end(made, branch)
    else:
        made.add("record_end")
    made.label("passed_by")
    made.add("restore_all")
    go_on(made, back)
    made.label("full")
    made.add("count", counter=lost)
    made.add("restore_all")
    go_on(made, back)
    if choice is not None:
        made.label("row")
        made.append(choice.row)
    return made.packed(**calls, above=SAVED)


def _take(made: Code, index: int, argument: Taken, symbols: Mapping[str, int]) -> None:
    """Store one argument. It may change rax, rcx and rdx, which are on the stack."""
    operand, place, bit = argument.operand, argument.operand.place, 1 << min(index, 31)
    if place.kind == CONSTANT:
        made.add("constant", value=place.displacement & 0xFFFFFFFFFFFFFFFF)
        made.add("store", at=argument.at)
    elif place.kind == REGISTER and load_register(made, place):
        made.add("store", at=argument.at)
    elif place.kind == MEMORY and operand.size in {1, 2, 4, 8} and (way := address(made, place, symbols)):
        made.add(f"{way}_{'signed' if operand.signed else 'unsigned'}_{operand.size}", at=argument.at, bit=bit)
    else:
        made.add("missing", bit=bit)
    if argument.copied:
        made.add(argument.copied, at=argument.at, string_at=argument.string_at, size=argument.size)


def load_register(made: Code, place: OperandPlace) -> bool:
    """Load a register, as it was at the site, into rax, and let what is wanted begin at its lowest bit; False if there
    is no way."""
    name = place.register
    found = (name, 0) if f"load_rax_from_{name}" in TEMPLATES else full_register(name)
    if found is not None:
        made.add(f"load_rax_from_{found[0]}")
        if shift := found[1] + place.displacement:
            made.add(f"shift_{shift}")
    return found is not None


def address(made: Code, place: OperandPlace, symbols: Mapping[str, int]) -> str:
    """Put the address of a memory operand into rdx. Return which way it is read, "read" or "try"; "" if there is none.

    What lies on the stack or beside the code is there. Any other pointer may be wild, because the program itself may
    never follow it, and is tried first.
    """
    if place.base in {"rip", "eip"} or (place.symbol and not place.base and not place.index_register):
        if place.symbol not in symbols:
            return ""
        made.add("address", value=symbols[place.symbol] + place.displacement)
        return "read"
    base, index = full_register(place.base or "rax"), full_register(place.index_register or "rax")
    if base is None or index is None or place.symbol or place.scale not in {1, 2, 4, 8}:
        return ""
    if not -(1 << 31) <= place.displacement < 1 << 31:
        return ""
    made.add(f"load_rdx_from_{base[0]}" if place.base else "no_base")
    if place.index_register:
        made.add(f"load_rcx_from_{index[0]}")
        made.add(f"add_index_{place.scale}")
    made.add("add_displacement", displacement=place.displacement)
    return "read" if base[0] == "rsp" and not place.index_register else "try"
