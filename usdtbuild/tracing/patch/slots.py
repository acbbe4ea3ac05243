"""Calls through slots: stubs, and call sites that have none, whose instruction loads the slot from a distance.

Of such a site only the four bytes of the distance change: they lead to a *cell* of ours, which holds the address of a
trampoline of ours, and that jumps on through the slot, whatever the slot holds by then: lazy binding, IFUNCs and
canonical stubs go on as if nothing had happened, and the slot itself, which may be read-only, is never touched.

Why every state in between is valid: cell and trampoline are mapped before a distance changes, and stay for good. A
distance only changes while all threads of the process stand, each before or behind an instruction, none within one, so
the four bytes are read as they were or as they are, also where they cross a cache line. With either of them the call
gets to its function, so it doesn't matter after how many sites we are stopped or killed. The kernel writes page by
page, and we may be killed between two of them: a distance that lies on two pages is left alone.

Calls by a register that was loaded some code before are left to breakpoints. They have two or three bytes, no room for
a jump. And the load may not lead elsewhere: what it loads may be compared, kept or handed on as the function's address,
and a thread that has loaded before would not be seen.

Forms: what `machines.x86_64` says of stubs; Intel's manual, volume 2, "JMP", "CALL", "MOV".
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from ...machines.x86_64 import INT3
from ..maps import page_start

LONGEST = 20
BY_REGISTER = "it calls by a register, in two or three bytes, where nothing has room but a breakpoint"
SIZE = 48  # bytes of a cell and of a trampoline that counts, at most, with what aligns them
_ENDBR64 = b"\xf3\x0f\x1e\xfa"
# What may stand before the load, in this order, and its size: endbr64; mold's mov $number,%r11d; bnd.
_LEADS = ((_ENDBR64, 4), (b"\x41\xbb", 6), (b"\xf2", 1))
_CALL, _JUMP, _LOAD = b"\xff\x15", b"\xff\x25", b"\x4c\x8b\x1d"  # through slot(%rip); mov slot(%rip),%r11


class Load(NamedTuple):
    """How a site gets its slot. The distance, four bytes, stands at `changed_at` and counts from `counts_from`.

    `slot` is the slot's address. `is_call`: the site is a call instruction, so what it calls finds another address on
    the stack.
    """

    changed_at: int
    counts_from: int
    slot: int
    is_call: bool


def load_of(code: bytes, address: int) -> Load | None:
    """Return how the code at an address (LONGEST bytes) loads a slot; None if it isn't of a form that may change."""
    at = 0
    for lead, size in _LEADS:
        at += size * code.startswith(lead, at)
    for opcode in (_CALL, _JUMP, _LOAD):
        if code.startswith(opcode, at):
            place = at + len(opcode)
            if len(code) < place + 4:
                return None
            (distance,) = struct.unpack_from("<i", code, place)
            end = address + place + 4
            if page_start(address + place) != page_start(end - 1):
                return None
            return Load(address + place, end, end + distance, opcode == _CALL)
    return None


def why_no_load(found: bytes) -> str:
    """Return why bytes at a site are left alone."""
    if not found:
        return "its code can't be read"
    if found.startswith(INT3):
        return "a breakpoint is there already: another tracer (perf, bpftrace, gdb) watches it"
    return f"the instruction there loads no slot in a way that may change (bytes {found[:8].hex(' ')})"


def cell(trampoline: int) -> bytes:
    """Return a cell that leads to a trampoline, and what that begins with: with IBT, jumps through memory land nowhere
    else."""
    return struct.pack("<Q", trampoline) + _ENDBR64


def distance(load: Load, target: int) -> bytes:
    """Return the four bytes that lead a site to another address. Raises struct.error if it is too far."""
    return struct.pack("<i", target - load.counts_from)
