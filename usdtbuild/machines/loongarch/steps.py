"""What LoongArch's instructions do to registers, as far as calls that load a slot themselves are told by it.

Encodings: LoongArch reference manual, volume 1, 2. What writes a register in a way that isn't needed here is unsure.
"""

from __future__ import annotations

from collections.abc import Callable

from ..calls import signed
from ..values import (
    BRANCH,
    CALL,
    CONSTANT,
    CONSTANT_HIGH,
    JUMP,
    LOAD,
    LOADS,
    OTHER,
    STORE,
    SUM,
    SUMS,
    Form,
    Step,
    always,
    decoder,
)  # fmt: skip

_BL, _B, _JIRL = 0x54000000, 0x50000000, 0x4C000000


def steps() -> Callable[[int, int], Step]:
    """Return what says what an instruction does."""
    return decoder(
        Form(0xFE000000, 0x1A000000, _page),  # pcalau12i
        Form(0xFE000000, 0x1C000000, lambda value, address: Step(
            CONSTANT, value & 31, address + (signed(value >> 5 & 0xFFFFF, 20) << 12))),  # pcaddu12i
        Form(0xFE000000, 0x14000000, lambda value, address: Step(
            CONSTANT, value & 31, signed(value >> 5 & 0xFFFFF, 20) << 12)),  # lu12i.w
        Form(0xFE000000, 0x16000000, lambda value, address: Step(
            CONSTANT_HIGH, value & 31, signed(value >> 5 & 0xFFFFF, 20) << 32, 32)),  # lu32i.d
        Form(0xFFC00000, 0x03000000, _top),
        Form(0xFF800000, 0x02800000, _added), Form(0xFFC00000, 0x02C00000, _added),  # addi.w, addi.d
        Form(0xFFFF8000, 0x00108000, _three(SUMS)), Form(0xFFFF8000, 0x00150000, _either),  # add.d, or
        Form(0xFFC00000, 0x28C00000, lambda value, address: Step(LOAD, *_where(value), _low(value))),  # ld.d
        Form(0xFFC00000, 0x29C00000, lambda value, address: Step(STORE, *_where(value), _low(value))),  # st.d
        Form(0xFFFF8000, 0x380C0000, _three(LOADS)),  # ldx.d
        Form(0xFC000000, _BL, always(CALL)),
        Form(0xFC000000, _B, lambda value, address: Step(JUMP, -1, address + _near(value, 26))),
        Form(0xFC00001F, _JIRL, always(JUMP)),
        Form(0xFC000000, _JIRL, always(CALL)),
        Form(0xF8000000, 0x40000000, lambda value, address: Step(BRANCH, -1, address + _near(value, 21))),  # beqz, bnez
        Form(0xF8000000, 0x58000000, lambda value, address: Step(BRANCH, -1, address + _near(value, 16))),  # beq, bne
        Form(0xF0000000, 0x60000000, lambda value, address: Step(BRANCH, -1, address + _near(value, 16))),  # blt, bge
        Form(0xFF000000, 0x29000000, always(OTHER)),  # stores
        Form(0, 0, _unsure),
    )  # fmt: skip


def _where(value: int) -> tuple[int, int]:
    return value & 31, value >> 5 & 31


def _low(value: int) -> int:
    return signed(value >> 10 & 0xFFF, 12)


def _page(value: int, address: int) -> Step:
    return Step(CONSTANT, value & 31, (address & ~0xFFF) + (signed(value >> 5 & 0xFFFFF, 20) << 12))


def _added(value: int, address: int) -> Step:
    register, first = _where(value)
    return Step(SUM, register, first, _low(value)) if first else Step(CONSTANT, register, _low(value))


def _top(value: int, address: int) -> Step:  # lu52i.d
    register, first = _where(value)
    same = register == first
    return Step(CONSTANT_HIGH, register, _low(value) << 52, 52) if same else _unsure(value, address)


def _either(value: int, address: int) -> Step:  # or: a move
    register, first = _where(value)
    second = value >> 10 & 31
    return Step(SUM, register, first | second) if 0 in {first, second} else _unsure(value, address)


def _unsure(value: int, address: int) -> Step:
    return Step(OTHER, -1, 1 << (value & 31))


def _near(value: int, bits: int) -> int:
    return signed(value >> 10 & 0xFFFF | (value & (1 << bits - 16) - 1) << 16, bits) * 4


def _three(kind: int) -> Callable[[int, int], Step]:
    return lambda value, address: Step(kind, *_where(value), value >> 10 & 31)
