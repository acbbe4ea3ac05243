"""How long usual instructions are, for who asks that of a few and can't wait until a disassembler is loaded.

Not for whoever reads code: what is rare, has a prefix other than REX, or is no instruction, has no length here. The
tables are A-2, A-3 and A-6 of Intel's manual, volume 2.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

_LONGEST = 12  # REX, opcode, ModRM, SIB, displacement and immediate of `mov`
_TWO = 0x0F  # begins opcodes of two bytes, which are 0x0fNN here
_LEA = 0x8D
_NO_MODRM, _ANY, _SHIFTS = (), range(8), (0, 1, 2, 3, 4, 5, 7)


def arithmetic(columns: Iterable[int]) -> list[int]:
    """Return the opcodes of add, or, adc, sbb, and, sub, xor and cmp in these columns of their rows."""
    return [row + column for row in range(0x00, 0x40, 8) for column in columns]


# Opcodes, the values of ModRM's `reg` that make instructions of them, and how many bytes of immediate follow.
_ROWS: tuple[tuple[Iterable[int], Collection[int], int], ...] = (
    (arithmetic(range(4)), _ANY, 0),  # add, or, adc, sbb, and, sub, xor, cmp
    (arithmetic((4,)), _NO_MODRM, 1),
    (arithmetic((5,)), _NO_MODRM, 4),
    ((*range(0x50, 0x60), 0x90, 0x98, 0x99, 0xC3, 0xC9, 0xCC), _NO_MODRM, 0),  # push, pop, nop, cltq, cqto, ret, leave
    ((0x6A, *range(0x70, 0x80), 0xA8, *range(0xB0, 0xB8), 0xEB), _NO_MODRM, 1),  # push, jcc, test, mov, jmp
    ((0x68, 0xA9, 0xE8, 0xE9), _NO_MODRM, 4),  # push, test, call, jmp
    (range(0xB8, 0xC0), _NO_MODRM, 4),  # mov
    ((0x63, *range(0x84, 0x8C), _LEA), _ANY, 0),  # movslq, test, xchg, mov
    ((0x6B, 0x80, 0x83), _ANY, 1),  # imul, arithmetic
    ((0x69, 0x81), _ANY, 4),
    ((0xC0, 0xC1), _SHIFTS, 1),
    (range(0xD0, 0xD4), _SHIFTS, 0),
    ((0xC6,), (0,), 1),  # mov
    ((0xC7,), (0,), 4),
    ((0xF6, 0xF7), range(2, 8), 0),  # not, neg, mul, imul, div, idiv
    ((0xFE,), (0, 1), 0),  # inc, dec
    ((0xFF,), (0, 1, 2, 4, 6), 0),  # inc, dec, call, jmp, push
    ((0x0F1F,), (0,), 0),  # nopl
    ((*range(0x0F40, 0x0F50), *range(0x0F90, 0x0FA0), 0x0FAF, 0x0FB6, 0x0FB7, 0x0FBE, 0x0FBF), _ANY, 0),
    (range(0x0F80, 0x0F90), _NO_MODRM, 4),  # jcc; before it cmovcc, setcc, imul, movzb, movzw, movsb, movsw
)
_KNOWN = {opcode: (registers, size) for opcodes, registers, size in _ROWS for opcode in opcodes}


def usual_length(code: bytes) -> int:
    """Return the length of the instruction that `code` begins with, which goes on behind it; 0: ask a disassembler."""
    if len(code) < _LONGEST:
        return 0
    rex, opcode, at = opened(code)
    registers, immediate = _KNOWN.get(opcode, (None, 0))
    if registers is None:
        return 0
    if not registers:
        return 0 if rex & 8 and 0xB8 <= opcode < 0xC0 else at + immediate  # an immediate of 64 bits
    modrm = code[at]
    if modrm >> 3 & 7 not in registers or (opcode == _LEA and modrm >> 6 == 3):
        return 0
    return at + operand_size(code, at) + immediate


def opened(code: bytes) -> tuple[int, int, int]:
    """Return the REX prefix that `code` begins with, 0 for none, its opcode, and where that ends."""
    rex = code[0] if 0x40 <= code[0] < 0x50 else 0
    at = bool(rex) + 1
    opcode = code[at - 1]
    return (rex, opcode << 8 | code[at], at + 1) if opcode == _TWO else (rex, opcode, at)


def operand_size(code: bytes, at: int) -> int:
    """Return the length of ModRM, SIB and displacement (Intel SDM, volume 2, 2.1), as far as `code` goes."""
    modrm, sib = (*code[at : at + 2], 0, 0)[:2]
    mode, base = modrm >> 6, modrm & 7
    if mode == 3:
        size = 1
    else:
        size = 1 + (base == 4) + (0, 1, 4)[mode]
        size += 4 if mode == 0 and (base == 5 or (base == 4 and sib & 7 == 5)) else 0
    return min(size, len(code) - at)
