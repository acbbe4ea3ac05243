"""Where integer and pointer arguments are at a call, by the calling conventions of the machines that count in slots.

All of them but x86-64's follow one scheme, so a convention is a record and not code: arguments fill numbered slots of
a register's size, the first few slots are registers and the rest lie on the stack. What differs is in `Convention`.
Structures by value and floating point registers don't occur: the header passes floating point as bits.

An argument of two slots in registers can't be named by any operand that readers of SDT notes know, which take one
register or one place in memory. It is described by the register with its low half, with a size of 4: readers show the
low 32 bits, sign-extended for a signed type, and the size says that there may be more.
"""

from __future__ import annotations

from ..record import NamedTuple
from .calls import prefix


class Convention(NamedTuple):
    """One calling convention.

    - `registers` are the slots that are registers, spelled as operands spell them.
    - `memory` spells a place on the stack, with `{}` for the offset; `at_zero` spells it where the offset is 0.
    - `stack` is the offset from the stack pointer, at the call, where slot 0 is or, if registers have no home on the
      stack, would be: the first slot after the registers is at `stack + slot size * len(registers)`.
    - `slot` is the size of a slot in bytes; `big` the byte order, which decides where in a slot a short argument lies
      and which register of a pair holds the low half.
    - `even_registers` and `even_stack` say that an argument of two slots starts at a slot of even number: always, or
      only on the stack. Where it needn't, its halves may be divided between the last register and the stack.
    """

    registers: tuple[str, ...]
    memory: str
    at_zero: str
    stack: int
    slot: int
    big: bool = False
    even_registers: bool = False
    even_stack: bool = False


def spell(convention: Convention, arguments: tuple[tuple[int, bool], ...]) -> tuple[str | None, ...]:
    """Return the operands for arguments given as (bytes, signed); see `Machine.operands`."""
    found: list[str | None] = []
    slot, count = 0, len(convention.registers)
    for size, signed in arguments:
        wide = size > convention.slot
        if wide and slot % 2 and (convention.even_registers or (convention.even_stack and slot >= count)):
            slot += 1
        if slot + wide < count:
            low = slot + 1 if wide and convention.big else slot
            found.append(prefix(4 if wide else size, signed) + convention.registers[low])
        elif slot < count:  # the first half in the last register, the second on the stack
            low_half = _memory(convention, slot + 1, 4) if convention.big else convention.registers[slot]
            found.append(prefix(4, signed) + low_half)
        else:
            found.append(prefix(size, signed) + _memory(convention, slot, size))
        slot += 1 + wide
    return tuple(found)


def _memory(convention: Convention, slot: int, size: int) -> str:
    offset = convention.stack + slot * convention.slot
    if convention.big and size < convention.slot:
        offset += convention.slot - size
    return convention.memory.format(offset) if offset else convention.at_zero
