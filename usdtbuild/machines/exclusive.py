"""Sequences that reserve memory and store into it if nobody else has: a stop in between takes the reservation away.

Who steps through one instruction by instruction comes to its beginning again and again, because the store fails. So it
is run as one step, to where it can have ended. Machines that exchange memory in one instruction (x86, s390x, SPARC)
have none. Each machine says what its two instructions look like.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

_LONGEST = 16  # instructions; architectures promise success for about as many (Arm ARM B2.9.5, RISC-V 8.3)


class Exclusive(NamedTuple):
    """A machine's sequences: masks and values of the instructions that reserve and that store, the distance that a
    branch leads, and how many bytes the instruction has that begins with a halfword."""

    loads: tuple[tuple[int, int], ...]
    stores: tuple[tuple[int, int], ...]
    branch: Callable[[int], int | None]
    length: Callable[[int], int] = lambda half: 4

    def ends(self, code: bytes, address: int, little: bool) -> tuple[int, ...]:
        """Return where the sequence that `code` at an address begins with may have ended; nothing if none begins."""
        found: list[tuple[int, int]] = []  # address, instruction
        at = 0
        while len(found) < _LONGEST and at + 2 <= len(code):
            half = int.from_bytes(code[at : at + 2], "little" if little else "big")
            size = self.length(half)
            if at + size > len(code):
                return ()
            found.append((address + at, int.from_bytes(code[at : at + size], "little" if little else "big")))
            at += size
            if not _is(found[0][1], self.loads):
                return ()
            if _is(found[-1][1], self.stores):
                leads = {place + (self.branch(one) or 0) for place, one in found[:-1]}
                return (address + at, *sorted(one for one in leads if not address <= one <= address + at))
        return ()


def _is(instruction: int, forms: Sequence[tuple[int, int]]) -> bool:
    return any(instruction & mask == value for mask, value in forms)
