"""Which sites can become a jump, and over which distances: what the bytes of a site allow.

A jump is `e9` and four bytes of distance, counted from the end of the five. The first byte of the site becomes `e9`;
the other four stay what they are, except where another value makes a NOP of the same length, or no code at all. So each
site has a set of distances: one if all four bytes are fixed, 256 for the last byte free, and so on.

NOPs: Intel's manual, volume 2, "NOP"; ModRM and SIB bytes of `0f 1f` name memory that is never accessed.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import product
from typing import TYPE_CHECKING

from ...functions.entry import all_nops
from ...functions.nops import machine_for
from ...machines.nops import nops_of
from ...machines.numbers import EM_X86_64
from ...machines.x86_64 import INT3
from ...record import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from ...machines.facts import Entries

JUMP, JUMP_SIZE = 0xE9, 5
SHORT_JUMP, PADDED = 0xEB, 2  # and how many bytes of an entry it takes
STEP, STEP_DISTANCE = bytes([SHORT_JUMP, JUMP]), JUMP - 256
_DIRECT = (b"\xe8", b"\xe9")  # call and jump, which four bytes of distance follow
_LONG = b"\x0f\x1f"  # nopl, which a ModRM byte follows
# The first bytes of the ten-byte NOP, and of `lea -0x80(%rsp),%rsp; call`, which Linux 7.2 makes of it where somebody
# has a uprobe on it. Both begin with a breakpoint while it comes or goes (int3_update_optimize(),
# int3_update_unoptimize(), arch/x86/kernel/uprobes.c).
_NOP10, _LEA = b"\x66\x2e\x0f\x1f", b"\x48\x8d\x64\x24"
_NOP10_TAILS = tuple(first + code[1:] for code in (_NOP10, _LEA) for first in (code[:1], INT3))


class Form(NamedTuple):
    """How a site can be switched. `length` is that of the instruction at the site, behind which the program goes on;
    `returns`: the instruction is a return instead. `tail` are the four bytes behind the first, `free` the indexes of
    those that may have any value.

    `behind` is a jump or call right behind a NOP of one byte, where its distance changes as well. `was` is the tail
    before what stands behind a return became an entry's jump, if that may be the file's again (`leads_of`)."""

    length: int
    returns: bool
    tail: bytes
    free: tuple[int, ...]
    behind: bytes = b""
    was: bytes = b""

    @property
    def size(self) -> int:
        """How many bytes a site has that are changed, or read by what they become."""
        return 1 + len(self.behind) if self.behind else JUMP_SIZE

    def distances(self) -> Iterator[tuple[int, bytes]]:
        """Yield every distance that is possible, with the four bytes, small ones first; at most 1,024."""
        if not self.free:
            yield int.from_bytes(self.tail, "little", signed=True), self.tail
            return
        top = self.free[-1]
        changed = bytearray(self.tail)
        # The top byte moves by 16 MB, which is what finds room; the one below only helps where two sites collide.
        below = range(0, 256, 64) if len(self.free) > 1 else (None,)
        for low in below:
            if low is not None:
                changed[self.free[-2]] = low
            for step in range(256):
                # 0x20, 0xe0, 0x21, 0xdf, ...: half a gigabyte up, half down, then on in small steps.
                value = 0x20 + step // 2 if step % 2 == 0 else 0xE0 - step // 2
                changed[top] = value & 0xFF
                yield int.from_bytes(changed, "little", signed=True), bytes(changed)


class Padded(NamedTuple):
    """How a function's entry can be switched by its padding, which begins at `at` and has room for a jump: the entry,
    `length` bytes of NOPs, becomes a short jump there. `tail` are the jump's four bytes if they lead to a mirror."""

    length: int
    at: int
    returns: bool = False
    tail: bytes = b""

    @property
    def mirror(self) -> int:
        """Where the padding's jump leads, if that is a mirror."""
        return leads(self.at, self.tail)


def before_entry(unused: int, jump: bytes, was: bytes = b"") -> Form:
    """Return how a return can become a jump, `unused` bytes behind which another site's jump begins: `jump`, of which
    any bytes may be missing yet, if it isn't an entry's own, whose first byte may be that of `was` again."""
    tail = bytes(unused) + jump[: JUMP_SIZE - 1 - unused]
    free = (*range(unused), *range(len(tail), JUMP_SIZE - 1))
    tail = tail.ljust(JUMP_SIZE - 1, b"\0")
    return Form(1, True, tail, free, was=tail[:unused] + was[:1] + tail[unused + 1 :] if was else b"")


def is_padded(padding: bytes, entry: bytes) -> bool:
    """Whether the padding of an entry (as many bytes as a jump has) and the entry are NOPs that may become jumps.

    A thread may stand behind the entry's first byte if that is a NOP of its own. It runs the second, `functions` says,
    as an instruction that changes nothing but a flag.
    """
    machine = _entries()
    return len(padding) == JUMP_SIZE and all(all_nops(machine, one) for one in (padding, entry[:PADDED]))


def nop_length(code: bytes) -> tuple[int, tuple[int, ...]] | None:
    """Return the length of the NOP that `code` starts with and its free bytes; None if it starts with none.

    The machine's facts say what a NOP is, to `functions` as well. What stands behind a ModRM byte is free: an index and
    a displacement of memory that is never accessed.
    """
    length = _nops()(code, 0)
    return (length, _inside(code[:length])) if length else None


@lru_cache
def _inside(nop: bytes) -> tuple[int, ...]:
    long = nop.find(_LONG)
    return tuple(range(long + len(_LONG) + 1, len(nop))) if long >= 0 else ()


@lru_cache
def _nops() -> Callable[[bytes, int], int]:
    return nops_of(_entries())


@lru_cache
def _entries() -> Entries:
    machine = machine_for(EM_X86_64, is64=True, little=True)
    assert machine is not None
    return machine


_MORE = frozenset((_LONG[0], 0xC3))  # with what begins of which bytes may be free behind a NOP of one byte


@lru_cache
def _is_short(first: bytes) -> bool:
    return nop_length(first) == (1, ())


def form_of(code: bytes, unused: int = 0) -> Form | None:
    """Return how a site with these bytes (12 or more) can become a jump; None if it can't.

    Nobody runs `unused` bytes behind a return.
    """
    tail = code[1:5]
    if len(tail) < 4:
        return None
    if code[0] == 0xC3:
        # Zeros, so that sites that are alike can share a distance, and thereby the pages that they lead to.
        alike = bytes(0 if index < unused else byte for index, byte in enumerate(tail))
        return Form(1, True, alike, tuple(range(min(unused, 4))) or tuple(_free_behind(code)))
    if code[1] not in _MORE and _is_short(code[:1]):  # nearly always
        return Form(1, False, tail, ())
    nop = nop_length(code)
    if nop is None:
        return None
    length, inside = nop
    free = [at - 1 for at in inside if at < 5]
    if length == 1:
        free += _free_behind(code)
    return Form(length, False, tail, tuple(free))


def joined_form(code: bytes) -> Form | None:
    """Return how a NOP of one byte and the jump or call behind it, whose four bytes count from its end, can change
    together; None if they aren't there, or on two pages."""
    if not _is_short(code[:1]) or code[1:2] not in _DIRECT or len(code) < 1 + JUMP_SIZE:
        return None
    return Form(1, False, code[1:JUMP_SIZE], (1, 2, 3), code[1 : 1 + JUMP_SIZE])


def leads(address: int, tail: bytes) -> int:
    """Return where a jump at an address leads, by its four bytes."""
    return address + JUMP_SIZE + int.from_bytes(tail, "little", signed=True)


def behind_leads(address: int, code: bytes) -> int:
    """Return where the jump or call leads that is behind the first byte of a site, of which this is the code."""
    return leads(address + 1, code[2 : 1 + JUMP_SIZE])


def is_of_nop10(tail: bytes) -> bool:
    """Whether four bytes behind a site are what the kernel makes of a ten-byte NOP, or that itself."""
    return tail in _NOP10_TAILS


def _free_behind(code: bytes) -> list[int]:
    """Return which bytes of the tail may change because of what stands behind a NOP of one byte."""
    if code[1:6] == b"\xc3\x0f\x1f\x40\x00":  # a return, and a NOP that nobody gets to
        return [1, 2, 3]
    behind = nop_length(code[1:])
    return [at for at in behind[1] if at < 4] if behind is not None and code[1] == 0x0F else []


def leads_of(address: int, tail: bytes, near: Sequence[int], was: bytes = b"") -> tuple[int, ...]:
    """Return where a site's jump leads when some of its bytes, or all, are somebody's breakpoints.

    Where a ten-byte NOP begins right behind the site, the kernel may make other bytes of it as well. Where an entry's
    jump begins within these bytes, its first may be what it `was` again, after a breakpoint has come and gone.
    """
    return tuple(address + distance for distance in _distances(tail, tuple(near), was))


@lru_cache(maxsize=4096)  # sites that are alike have the same bytes
def _distances(tail: bytes, near: tuple[int, ...], was: bytes) -> tuple[int, ...]:
    """Return as `leads_of`, counted from the site."""
    is_nop10 = 0 in near and is_of_nop10(tail)
    tails = [one for one in _NOP10_TAILS if is_nop10 and one[1:] != tail[1:]]
    choices = [dict.fromkeys((tail[at], *((INT3[0], (was or tail)[at]) if at in near else ())))
               for at in range(JUMP_SIZE - 1)]  # fmt: skip
    tails += list(map(bytes, product(*choices)))[1:]
    steps = steps_of(0, tail, near, was)
    found = (leads(0, one) for one in tails)
    return tuple(lead + len(STEP) + STEP_DISTANCE if lead in steps else lead for lead in found)


def steps_of(address: int, tail: bytes, near: Sequence[int], was: bytes) -> tuple[int, ...]:
    """Return where a return's jump leads that has room for a step only.

    An entry of NOPs of one byte, right behind a return: when its first byte is the file's again, or a breakpoint, the
    return's jump leads to one byte before where the entry's own may lead. There stands the short jump `STEP`, whose
    distance is the first byte of the jump that stands behind it for the entry, `e9`.
    """
    if 0 not in near or not was or was[0] == tail[0] or was != was[:1] * len(was):
        return ()
    return leads(address, was), leads(address, INT3 + was[1:])


def call_length(code: bytes) -> int:
    """Return the length of the call that `code` starts with, one through a register or through memory that one names,
    `ff /2`, with or without a REX prefix (Intel's manual, volume 2, "CALL"); 0 if it starts with none."""
    at = 1 if code[:1] and 0x40 <= code[0] < 0x50 else 0
    if len(code) < at + 2 or code[at] != 0xFF or code[at + 1] >> 3 & 7 != 2:
        return 0
    mode, base = code[at + 1] >> 6, code[at + 1] & 7
    return at + 2 + (base == 4 and mode != 3) + (4 if mode == 2 or (mode == 0 and base == 5) else mode == 1)


def call_ends_within(code: bytes, size: int) -> bool:
    """Whether the first instruction is a call as in `call_length` that ends within so many bytes."""
    return 0 < call_length(code) < size
