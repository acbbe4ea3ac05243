"""Which instructions do the same wherever they stand, and do no harm there.

A processor that jumps into the middle of an instruction which it has just run decodes that code anew each time: 7 ns on
one of Intel's (Cascade Lake, November 2026), a fraction of one on AMD's. That is where a program goes on behind a jump
that has taken the place of a NOP of one byte. So a trampoline runs copies of what the jump reads, if that has no
address that counts from its own place, is no jump or call, and raises no exception: a handler of SIGSEGV may look up
where that was. It reads and writes no memory but what the stack pointer points to.
"""

from __future__ import annotations

from .lengths import arithmetic, opened, usual_length

_NOPS = (b"\x90", b"\x0f\x1f")
_LEA, _SIB, _STACK = 0x8D, 4, 0x24
# Opcodes with a ModRM byte, and the values of its `reg` that are known: add, or, adc, sbb, and, sub, xor, cmp; movslq;
# test; mov; lea; shifts; not and neg; inc and dec; of two bytes, cmov, set, imul, movz and movs.
_OPERANDS = {
    **dict.fromkeys((*arithmetic(range(4)), 0x63, 0x84, 0x85, *range(0x88, 0x8C), _LEA, 0x80, 0x81, 0x83), range(8)),
    **dict.fromkeys((0xC0, 0xC1, *range(0xD0, 0xD4)), (0, 1, 4, 5, 7)),
    **dict.fromkeys((0xC6, 0xC7), (0,)),
    **dict.fromkeys((0xF6, 0xF7), (2, 3)),
    **dict.fromkeys((0xFE, 0xFF), (0, 1)),
    **dict.fromkeys((*range(0x0F40, 0x0F50), *range(0x0F90, 0x0FA0), 0x0FAF, 0x0FB6, 0x0FB7, 0x0FBE, 0x0FBF), range(8)),
}
# And those without: arithmetic, cltq, cqto, test and mov with a constant.
_CONSTANTS = {*arithmetic((4, 5)), 0x98, 0x99, 0xA8, 0xA9, *range(0xB0, 0xC0)}


def moved(code: bytes, least: int) -> tuple[bytes, int] | None:
    """Return what does the same elsewhere as the instructions that `code` begins with, at least so many bytes of them,
    and how many bytes these have; None if that isn't known. NOPs are left out."""
    at, found = 0, b""
    while at < least:
        length = usual_length(code[at:])
        one = code[at : at + length]
        is_nop = one.startswith(_NOPS)
        if not length or not (is_nop or _does_the_same(one)):
            return None
        found += b"" if is_nop else one
        at += length
    return found, at


def _does_the_same(one: bytes) -> bool:
    """Whether an instruction, of which the length is known, does the same elsewhere."""
    rex, opcode, at = opened(one)
    if opcode in _CONSTANTS:
        return True
    if opcode not in _OPERANDS:
        return False
    mode, register, base = one[at] >> 6, one[at] >> 3 & 7, one[at] & 7
    if register not in _OPERANDS[opcode]:
        return False
    if opcode == _LEA:
        return mode != 0 or base != 5  # from its own place on
    return mode == 3 or (base == _SIB and one[at + 1] & 0x3F == _STACK and not rex & 3)
