"""What MIPS' instructions do to registers, as far as calls that load a slot themselves are told by it.

Encodings: MIPS Architecture for Programmers, volume II. What writes a register in a way that isn't needed
here is unsure.
"""

from __future__ import annotations

from collections.abc import Callable

from ..calls import signed
from ..stubs import low16
from ..values import (
    BRANCH,
    CALL,
    CONSTANT,
    JUMP,
    LOAD,
    OTHER,
    STORE,
    SUM,
    SUMS,
    Form,
    Step,
    always,
    decoder,
    unsure,
)  # fmt: skip

_JAL, _J = 0x0C000000, 0x08000000


def steps() -> Callable[[int, int], Step]:
    """Return what says what an instruction does."""
    return decoder(
        Form(0xFC00003E, 0x00000008, lambda value, address: Step(
            CALL if value >> 11 & 31 and value & 1 else JUMP, -1, -1)),  # jr, jalr
        Form(0xFC0007FF, 0x00000021, _summed), Form(0xFC0007FF, 0x0000002D, _summed),  # addu, daddu
        Form(0xFC0007FF, 0x00000025, _either), Form(0xFC000000, 0x00000000, unsure(31, 11)),
        Form(0xFC000000, 35 << 26, _memory(LOAD)), Form(0xFC000000, 55 << 26, _memory(LOAD)),  # lw, ld
        Form(0xFC000000, 43 << 26, _memory(STORE)), Form(0xFC000000, 63 << 26, _memory(STORE)),  # sw, sd
        Form(0xFC000000, 9 << 26, _added), Form(0xFC000000, 25 << 26, _added),  # addiu, daddiu
        Form(0xFFE00000, 15 << 26, lambda value, address: Step(CONSTANT, value >> 16 & 31, low16(value) << 16)),  # lui
        Form(0xFC100000, 0x04100000, _led(CALL)), Form(0xFC000000, 0x04000000, _led(BRANCH)),  # bal; bltz, bgez
        Form(0xFC000000, _J, _far(JUMP)), Form(0xFC000000, _JAL, _far(CALL)),
        Form(0xFFFF0000, 0x10000000, _led(JUMP)), Form(0xF0000000, 0x10000000, _led(BRANCH)),  # b; beq to bgtz
        Form(0xF0000000, 0x50000000, _led(BRANCH)),  # beql to bgtzl
        Form(0xFF000000, 0x45000000, _led(BRANCH)),  # bc1f, bc1t; of release 6 also bc1eqz
        Form(0xFC000000, 50 << 26, _led(JUMP, 26, 1)), Form(0xFC000000, 58 << 26, _led(CALL, 26, 1)),  # bc, balc
        Form(0xFFE00000, 54 << 26, _compact(JUMP)), Form(0xFFE00000, 62 << 26, _compact(CALL)),  # jic, jialc
        Form(0xFC000000, 54 << 26, _led(BRANCH, 21, 1)), Form(0xFC000000, 62 << 26, _led(BRANCH, 21, 1)),  # beqzc
        # Other stores, and loads of what isn't integers.
        *(Form(0xFC000000, opcode << 26, always(OTHER)) for opcode in (40, 41, 42, 44, 45, 46, 47, 49, 51, 53, 57, 61)),
        Form(0, 0, unsure(31, 16)),
    )  # fmt: skip


def _where(value: int) -> tuple[int, int, int]:
    return value >> 16 & 31, value >> 21 & 31, low16(value)


def _added(value: int, address: int) -> Step:
    register, first, number = _where(value)
    return Step(SUM, register, first, number) if first else Step(CONSTANT, register, number)


def _summed(value: int, address: int) -> Step:
    second, first, _ = _where(value)
    register = value >> 11 & 31
    return Step(SUMS, register, first, second) if first and second else Step(SUM, register, first | second)


def _either(value: int, address: int) -> Step:  # or: a move
    return _summed(value, address) if not value >> 21 & 31 or not value >> 16 & 31 else unsure(31, 11)(value, address)


def _led(kind: int, bits: int = 16, compact: int = 0) -> Callable[[int, int], Step]:
    def step(value: int, address: int) -> Step:
        return Step(kind, -1, address + 4 + signed(value & (1 << bits) - 1, bits) * 4, compact)

    return step


def _far(kind: int) -> Callable[[int, int], Step]:
    return lambda value, address: Step(kind, -1, (address + 4 & ~0xFFFFFFF) | (value & 0x3FFFFFF) << 2)


def _compact(kind: int) -> Callable[[int, int], Step]:
    return lambda value, address: Step(kind, -1, -1, 1)


def _memory(kind: int) -> Callable[[int, int], Step]:
    return lambda value, address: Step(kind, *_where(value))
