"""The machine code of stubs for aarch64; what they do, and what a record looks like, is told in `code`.

A stub must assume that all registers and the flags are alive; nothing is below the stack pointer (AAPCS64, 6.4.5.1), so
what it uses is pushed. Vector registers it only reads. It is reached and left by direct branches, so branch protection
asks nothing of it, and its own calls return, so that guarded control stacks and return predictors stay in balance.

Memory is weakly ordered here: a record's sequence is stored with release, so whoever sees it sees the record; the room
of a slot is only written behind a branch that depends on the ring's `tail`.

In a record stub x6 is the slot and x7 its sequence. Counters and rings use FEAT_LSE where the processor has it: loops
of exclusive loads and stores do badly there with many processors, and the architecture doesn't promise that all get on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ...formats.operands import CONSTANT, MEMORY, REGISTER
from ..hosts.aarch64 import HOST, float_register, full_register
from . import a64
from .code import HEAD, RING_HEADER, RINGS, TAIL, Instruction, Routines

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...formats.operands import Operand
    from .code import Back, Shape, Taken

# What is on the stack in a record stub: x0 to x9, x30 and the flags.
_FRAME = 96
_SAVED = {**{f"x{number}": 8 * number for number in range(10)}, "x30": 80}
_X30, _EFAULT, _NO_HOW = 30, 14, 99
_SEQUENCE, _TIME, _THREAD, _SITE, _PROCESS, _MISSING = 0, 8, 16, 20, 24, 28


class Features(NamedTuple):
    """What the processor has: atomic instructions (FEAT_LSE), tagged memory (FEAT_MTE)."""

    atomics: bool
    tags: bool


# The most bytes that stubs take: one that counts, one that records, more for each argument; routines.
COUNT_SIZE, RECORD_SIZE, ARGUMENT_SIZE, ROUTINES_SIZE = 48, 192, 112, 1024


def _back(made: a64.Code, target: Back) -> None:
    """Let a stub go on."""
    if isinstance(target, Instruction):
        made.add(target.word)
    elif isinstance(target, int):
        made.add(a64.branch(made.here, target))
    else:
        made.add(a64.RET)


def count_stub(at: int, counter: int, back: Back, features: Features) -> bytes:
    """Return a stub that adds 1 to a counter and goes `back`."""
    made = a64.Code(at)
    made.add(a64.push(16, 17, 32), a64.access(a64.STORE, 15, a64.SP, 16))
    made.address(16, counter)
    _count(made, 16, 17, 15, features)
    made.add(a64.access(a64.LOAD, 15, a64.SP, 16), a64.pop(16, 17, 32))
    _back(made, back)
    return made.packed()


def _count(made: a64.Code, place: int, number: int, status: int, features: Features) -> None:
    """Add 1 to the counter at an address in a register; two others change."""
    if features.atomics:
        made.add(*a64.number(number, 1), a64.add_atomic(number, place))
        return
    made.label("count")
    made.add(a64.exclusive(True, number, place, ordered=False), a64.add(number, number, 1))
    made.add(a64.exclusive(False, number, place, status, ordered=False))
    made.go("count", a64.zero(status, wanted=False))


# -- routines --------------------------------------------------------------------------------------------------------


def routines(
    at: int, shape: Shape, rings: int, pid_cell: int, tid_offset: int | None, features: Features
) -> tuple[bytes, Routines]:
    """Return the code of the routines, to stand at an address; see `code.routines`."""
    claim = _claim(a64.Code(at), shape, rings, pid_cell, tid_offset, features)
    copy = _copy(a64.Code(at + len(claim)), shape.string_size, features)
    tried = at + len(claim) + len(copy)
    return claim + copy + _probe(a64.Code(tried)), Routines(at, at + len(claim), tried)


def _call(made: a64.Code, name: str) -> None:
    """Make a system call without arguments that matter; its result is in x0."""
    made.add(*a64.number(8, HOST.kernel.numbers[name]), a64.SVC)


def _claim(
    made: a64.Code, shape: Shape, rings: int, pid_cell: int, tid_offset: int | None, features: Features
) -> bytes:
    """Claim a slot: x6 = its address or 0, x7 = the sequence to store last. Changes x0 to x5, x8."""
    made.add(*a64.number(4, pid_cell), a64.access(a64.LOAD4, 5, 4, 0, 4))
    made.go("known", a64.zero(5, wanted=False))
    _call(made, "getpid")
    made.add(a64.move(5, 0), a64.access(a64.STORE4, 5, 4, 0, 4))
    made.label("known")
    if tid_offset is not None:
        made.add(a64.read_special(0, a64.TPIDR), *a64.number(1, tid_offset), a64.add_register(0, 0, 1))
        made.add(a64.access(a64.LOAD4, 3, 0, 0, 4))
    else:
        _call(made, "gettid")
        made.add(a64.move(3, 0))
    made.add(a64.low_bits(4, 3, RINGS.bit_length() - 1), a64.shift_left(4, 4, shape.stride.bit_length() - 1))
    made.add(*a64.number(2, rings), a64.add_register(4, 4, 2), *a64.number(8, shape.slots))
    made.label("again")
    made.add(
        a64.access(a64.LOAD, 0, 4, HEAD), a64.access(a64.LOAD, 2, 4, TAIL), a64.subtract(2, 0, 2), a64.compare(2, 8)
    )
    made.go("full", a64.when(a64.GREATER_OR_EQUAL))
    made.add(a64.add(7, 0, 1))
    if features.atomics:
        made.add(a64.move(2, 0), a64.swap_atomic(2, 7, 4), a64.compare(2, 0))
        made.go("again", a64.when(a64.NOT_EQUAL))
    else:
        made.add(a64.exclusive(True, 2, 4, ordered=True), a64.compare(2, 0))
        made.go("again", a64.when(a64.NOT_EQUAL))
        made.add(a64.exclusive(False, 7, 4, 2, ordered=True))
        made.go("again", a64.zero(2, wanted=False))
    made.add(a64.low_bits(6, 0, shape.slots.bit_length() - 1), *a64.number(2, shape.slot), a64.multiply_add(6, 6, 2, 4))
    made.add(a64.add(6, 6, RING_HEADER), a64.access(a64.STORE4, 3, 6, _THREAD, 4))
    made.add(a64.access(a64.STORE, 5, 6, _PROCESS))  # and nothing missing
    made.add(a64.read_special(0, a64.TICKS), a64.access(a64.STORE, 0, 6, _TIME), a64.RET)
    made.label("full")
    made.add(*a64.number(6, 0), a64.RET)
    return made.packed()


def _try(made: a64.Code, failed: str) -> None:
    """Go to a label if the 8 aligned bytes at x1 can't be read. Changes x0, x2, x3, x8."""
    made.go(failed, a64.zero(1))  # NULL means something else to the system call
    made.add(*a64.number(0, _NO_HOW), *a64.number(2, 0), *a64.number(3, 8))
    _call(made, "rt_sigprocmask")
    made.add(a64.compare_negative(0, _EFAULT))
    made.go(failed, a64.when(a64.EQUAL))


def _copy(made: a64.Code, string_size: int, features: Features) -> bytes:
    """Copy the string at x4 to 8(x5), its length to (x5): -1 if it can't be read. Changes x0 to x4, x8, x9.

    Each page is tried once, where the string enters it. Behind a string the memory may be another's, with another tag.
    """
    made.add(*a64.number(9, 0), a64.add(0, 9, -1), a64.access(a64.STORE, 0, 5))
    made.label("page")
    made.add(a64.aligned(1, 4))
    _try(made, "failed")
    if features.tags:
        made.add(a64.read_special(3, a64.TAG_CHECKS_OFF), a64.TAG_CHECKS_OFF_NOW)
    made.add(*a64.number(8, string_size))
    made.label("byte")
    made.add(a64.next_byte(0, 4), a64.add_register(1, 5, 9), a64.access(a64.STORE1, 0, 1, 8, 1))
    made.go("done", a64.zero(0))
    made.add(a64.add(9, 9, 1), a64.compare(9, 8))
    made.go("done", a64.when(a64.EQUAL))
    made.add(a64.low_bits(2, 4, 12))
    made.go("byte", a64.zero(2, wanted=False))
    if features.tags:
        made.add(a64.write_special(a64.TAG_CHECKS_OFF, 3))
    made.go("page")
    made.label("failed")  # at the first byte: the -1 stays; later: what is there is kept
    made.go("end", a64.zero(9))
    made.go("kept")
    made.label("done")
    if features.tags:
        made.add(a64.write_special(a64.TAG_CHECKS_OFF, 3))
    made.label("kept")
    made.add(a64.access(a64.STORE, 9, 5))
    made.label("end")
    made.add(a64.RET)
    return made.packed()


def _probe(made: a64.Code) -> bytes:
    """Try whether the 8 bytes at x4 can be read: x0 = 0 if not. Changes x0 to x3, x8."""
    made.add(a64.aligned(1, 4))
    _try(made, "no")
    made.add(a64.add(1, 4, 7), a64.aligned(1, 1))  # where the last byte lies
    _try(made, "no")
    made.add(*a64.number(0, 1), a64.RET)
    made.label("no")
    made.add(*a64.number(0, 0), a64.RET)
    return made.packed()


# -- record stubs ----------------------------------------------------------------------------------------------------


def record_stub(
    at: int, site: int, arguments: Sequence[Taken], calls: Routines, lost: int, back: Back, features: Features
) -> bytes:
    """Return a stub that writes a record and goes `back`; see `code.record_stub`."""
    made = a64.Code(at)
    made.add(a64.push(0, 1, _FRAME), *(a64.pair(False, n, n + 1, a64.SP, 8 * n) for n in (2, 4, 6, 8)))
    made.add(a64.read_special(0, a64.NZCV), a64.pair(False, _X30, 0, a64.SP, _SAVED["x30"]))
    made.call(calls.claim)
    made.go("full", a64.zero(6))
    made.add(*a64.number(0, site), a64.access(a64.STORE4, 0, 6, _SITE, 4))
    for index, argument in enumerate(arguments):
        _take(made, index, argument, calls)
    made.add(a64.store_release(7, 6))
    made.label("out")
    made.add(a64.pair(True, _X30, 0, a64.SP, _SAVED["x30"]), a64.write_special(a64.NZCV, 0))
    made.add(*(a64.pair(True, n, n + 1, a64.SP, 8 * n) for n in (2, 4, 6, 8)), a64.pop(0, 1, _FRAME))
    _back(made, back)
    made.label("full")
    made.address(4, lost)
    _count(made, 4, 5, 3, features)
    made.go("out")
    return made.packed()


def _take(made: a64.Code, index: int, argument: Taken, calls: Routines) -> None:
    """Store one argument. It may change x0 to x5, x8 and x9, which are on the stack."""
    if not _load(made, argument.operand, calls):
        made.go("missing")
    made.add(a64.access(a64.STORE, 0, 6, argument.at))
    if argument.is_string:
        made.add(a64.access(a64.LOAD, 4, 6, argument.at))
        made.add(*a64.number(5, argument.string_at), a64.add_register(5, 5, 6))
        made.call(calls.copy)
    made.go("taken")
    made.label("missing")
    made.add(a64.access(a64.LOAD4, 0, 6, _MISSING, 4), *a64.number(1, 1 << min(index, 31)), a64.either(0, 0, 1))
    made.add(a64.access(a64.STORE4, 0, 6, _MISSING, 4))
    made.label("taken")
    made.settle("missing", "taken")


def _load(made: a64.Code, operand: Operand, calls: Routines) -> bool:
    """Load an operand into x0, or go to "missing"; False if there is no way."""
    place = operand.place
    if place.kind == CONSTANT:
        made.add(*a64.number(0, place.displacement))
        return True
    if place.kind == REGISTER:
        vector, found = float_register(place.register), full_register(place.register)
        if vector:
            made.add(a64.from_float(0, int(vector[1:])))
        elif place.register in HOST.registers.zero:
            made.add(a64.move(0, a64.ZERO))
        elif found is not None:
            _copy_register(made, 0, found[0])
        return bool(vector) or found is not None or place.register in HOST.registers.zero
    load = a64.LOADS.get((operand.size, operand.signed))
    base = full_register(place.base or "")
    if place.kind != MEMORY or load is None or base is None or place.symbol or place.index_register:
        return False
    _copy_register(made, 4, base[0])
    if place.displacement:
        made.add(*a64.number(0, place.displacement), a64.add_register(4, 4, 0))
    if base[0] != "sp":  # what lies on the stack is there; any other pointer may be wild
        made.call(calls.probe)
        made.go("missing", a64.zero(0))
    made.add(load | 4 << 5)
    return True


def _copy_register(made: a64.Code, target: int, name: str) -> None:
    """Load a register as it was at the site."""
    if name in _SAVED:
        made.add(a64.access(a64.LOAD, target, a64.SP, _SAVED[name]))
    elif name == "sp":
        made.add(a64.add(target, a64.SP, _FRAME))
    else:
        made.add(a64.move(target, int(name[1:])))
