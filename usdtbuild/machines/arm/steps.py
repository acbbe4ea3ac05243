"""What ARM's and Thumb's instructions do to registers, as far as calls that load a slot themselves are told by it.

Encodings: Arm Architecture Reference Manual (ARMv7-A), A5 and A6. What writes a register in a way that isn't needed
here is unsure, and where that isn't looked at closely so is whatever stands where registers usually stand.
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
    unsure,
)  # fmt: skip


def steps() -> Callable[[int, int], Step]:
    """Return what says what an ARM instruction does; of a conditional one, that its register is unsure."""
    return decoder(
        Form(0xFF000000, 0xEA000000, lambda value, address: Step(JUMP, -1, _target(value, address))),  # b
        Form(0xFE000000, 0xFA000000, always(CALL)),  # blx
        Form(0x0F000000, 0x0B000000, always(CALL)),  # bl
        Form(0x0F000000, 0x0A000000, lambda value, address: Step(BRANCH, -1, _target(value, address))),  # b<condition>
        Form(0x0FFFFFF0, 0x012FFF30, always(CALL)),  # blx register
        Form(0xFFFFFFF0, 0xE12FFF10, always(JUMP)),  # bx
        Form(0x0E100000, 0x08100000, lambda value, address: _listed(value, value >> 28 == 14)),  # ldm
        Form(0x0E100000, 0x08000000, always(OTHER)),  # stm: sp is its function's place
        Form(0xFF700000, 0xE5100000, lambda value, address: _at_distance(LOAD, value, address)),  # ldr rt, [rn, #]
        Form(0xFF700000, 0xE5000000, lambda value, address: _at_distance(STORE, value, address)),  # str rt, [rn, #]
        Form(0xFFF00FF0, 0xE7900000, lambda value, address: Step(LOADS, *_where(value), value & 15)),  # ldr rt, [rn, r]
        Form(0x0C300000, 0x04200000, unsure(15, 16)),  # str that changes it
        Form(0x0C100000, 0x04000000, always(OTHER)),  # str
        Form(0xFFE00FF0, 0xE0800000, lambda value, address: _added(value >> 12 & 15, value, address + 8)),  # add
        Form(0xFFE00000, 0xE2800000, _number),  # add rd, rn, #
        Form(0xFFE00000, 0xE2400000, _number),  # sub rd, rn, #
        Form(0xFFEF0FF0, 0xE1A00000, lambda value, address: Step(SUM, value >> 12 & 15, value & 15)),  # mov
        Form(0xFFF00000, 0xE3000000, lambda value, address: Step(CONSTANT, value >> 12 & 15, _half(value))),  # movw
        Form(0xFFF00000, 0xE3400000, lambda value, address: Step(
            CONSTANT_HIGH, value >> 12 & 15, _half(value) << 16, 16)),  # movt
        Form(0x0F900000, 0x03100000, always(OTHER)),  # tst, teq, cmp, cmn of a number
        Form(0x0F900090, 0x01100080, always(OTHER)),  # the same of a register
        Form(0x0F900010, 0x01100000, always(OTHER)),
        Form(0x0F900090, 0x01100010, always(OTHER)),
        Form(0x0E000000, 0x02000000, unsure(15, 12)),  # arithmetic with a number
        Form(0x0E000010, 0x00000000, unsure(15, 12)),  # with a register
        Form(0x0E000090, 0x00000010, unsure(15, 12)),
        Form(0, 0, unsure(15, 12, 16)),
    )  # fmt: skip


def _where(value: int) -> tuple[int, int]:
    return value >> 12 & 15, value >> 16 & 15


def _at_distance(kind: int, value: int, address: int) -> Step:
    register, first = _where(value)
    distance = (value & 0xFFF) * (1 if value >> 23 & 1 else -1)
    return Step(kind, register, first, distance) if first != 15 else Step(kind, register, -1, address + 8 + distance)


def _number(value: int, address: int) -> Step:
    register, first = _where(value)
    turn = (value >> 8 & 15) * 2
    found = ((value & 0xFF) >> turn | (value & 0xFF) << (32 - turn)) & 0xFFFFFFFF
    found = found if value & 0x00800000 else -found
    return Step(SUM, register, first, found) if first != 15 else Step(CONSTANT, register, address + 8 + found)


def _added(register: int, value: int, pc: int) -> Step:
    first, last = value >> 16 & 15, value & 15
    if 15 in {first, last}:
        return Step(SUM, register, first + last - 15, pc)
    return Step(SUMS, register, first, last)


def _half(value: int) -> int:
    return (value >> 4 & 0xF000) | value & 0xFFF


def _listed(value: int, always_run: bool) -> Step:
    return Step(JUMP, -1, -1) if value >> 15 & 1 and always_run else Step(OTHER, -1, value & 0xFFFF)


def _target(value: int, address: int) -> int:
    return address + 8 + signed(value & 0xFFFFFF, 24) * 4


def thumb_steps() -> Callable[[int, int], Step]:
    """Return what says what a Thumb instruction does. What is in an IT block is taken as if it did it always."""
    wide = decoder(
        Form(0xF800D000, 0xF0008000, _t_branch_of(BRANCH)), Form(0xF800D000, 0xF0009000, _t_branch_of(JUMP)),
        Form(0xF800C000, 0xF000C000, always(CALL)),  # bl, blx
        Form(0xFFFF0000, 0xF8DF0000, lambda value, address: _t_literal(value >> 12 & 15, value & 0xFFF, address)),
        Form(0xFFFF0000, 0xF85F0000, lambda value, address: _t_literal(value >> 12 & 15, -(value & 0xFFF), address)),
        Form(0xFFF00000, 0xF8D00000, _t_memory(LOAD, 0xFFF)),  # ldr rt, [rn, #]
        Form(0xFFF00000, 0xF8C00000, _t_memory(STORE, 0xFFF)),  # str rt, [rn, #]
        Form(0xFFF00FF0, 0xF8500000, _t_memory(LOADS, 15)),  # ldr rt, [rn, rm]
        Form(0xFBF08000, 0xF2400000, lambda value, address: Step(CONSTANT, value >> 8 & 15, _t_half_word(value))),
        Form(0xFBF08000, 0xF2C00000, lambda value, address: Step(
            CONSTANT_HIGH, value >> 8 & 15, _t_half_word(value) << 16, 16)),  # movt
        Form(0xFFF0F0F0, 0xEB000000, lambda value, address: _added(value >> 8 & 15, value, address + 4)),  # add
        Form(0xFE500000, 0xE8100000, lambda value, address: _listed(value, True)),  # ldm, pop
        Form(0xFE500000, 0xE8000000, always(OTHER)),  # stm, push
        Form(0xFE500000, 0xE8400000, unsure(15, 0)),  # strd, strex
        Form(0xFF100000, 0xF8000000, always(OTHER)),  # str and its like
        Form(0xFE000000, 0xEA000000, unsure(15, 8)),  # arithmetic with registers
        Form(0xF8008000, 0xF0000000, unsure(15, 8)),  # with a number
        Form(0, 0, unsure(15, 12, 8)),
    )  # fmt: skip
    narrow = decoder(
        Form(0xFD00, 0x4400, _t_any_register),
        Form(0xFF80, 0x4780, always(CALL)), Form(0xFF80, 0x4700, always(JUMP)),
        Form(0xF800, 0xE000, _t_branch_of(JUMP)), Form(0xF000, 0xD000, _t_branch_of(BRANCH)),
        Form(0xF500, 0xB100, _t_branch_of(BRANCH)),
        Form(0xF800, 0x4800, lambda value, address: _t_literal(value >> 8 & 7, 4 * (value & 0xFF), address)),
        Form(0xF800, 0x9800, lambda value, address: Step(LOAD, value >> 8 & 7, 13, 4 * (value & 0xFF))),
        Form(0xF800, 0x9000, lambda value, address: Step(STORE, value >> 8 & 7, 13, 4 * (value & 0xFF))),
        Form(0xF800, 0x6800, lambda value, address: Step(LOAD, value & 7, value >> 3 & 7, value >> 4 & 0x7C)),
        Form(0xF800, 0x6000, lambda value, address: Step(STORE, value & 7, value >> 3 & 7, value >> 4 & 0x7C)),
        Form(0xFE00, 0x5800, lambda value, address: Step(LOADS, value & 7, value >> 3 & 7, value >> 6 & 7)),
        Form(0xFE00, 0x1800, lambda value, address: Step(SUMS, value & 7, value >> 3 & 7, value >> 6 & 7)),
        Form(0xF800, 0x3000, lambda value, address: Step(SUM, value >> 8 & 7, value >> 8 & 7, value & 0xFF)),
        Form(0xF800, 0x2800, always(OTHER)),  # cmp
        Form(0xF000, 0x2000, unsure(7, 8)),  # movs
        Form(0xF000, 0x3000, unsure(7, 8)),  # subs
        Form(0xF800, 0x7000, always(OTHER)), Form(0xF800, 0x8000, always(OTHER)),
        Form(0xFE00, 0x5000, always(OTHER)), Form(0xFC00, 0x5400, always(OTHER)),
        Form(0xF000, 0xA000, unsure(7, 8)),  # adr, add rd, sp, #
        Form(0xFF00, 0xBD00, always(JUMP)),  # pop with pc
        Form(0xFF00, 0xBC00, lambda value, address: Step(OTHER, -1, value & 0xFF)),
        Form(0xFC00, 0xB400, always(OTHER)), Form(0xFF00, 0xB000, always(OTHER)),
        Form(0xFF00, 0xBF00, always(OTHER)),  # it, nop
        Form(0xF800, 0xC800, lambda value, address: Step(OTHER, -1, value & 0xFF | 1 << (value >> 8 & 7))),  # ldm
        Form(0xF800, 0xC000, unsure(7, 8)),  # stm
        Form(0xFF00, 0x4200, lambda value, address: Step(
            OTHER, -1, 1 << (value & 7) if value & 0xC0 == 0x40 else 0)),
        Form(0, 0, unsure(7, 0)),
    )  # fmt: skip
    return lambda value, address: wide(value, address) if value >> 16 else narrow(value, address)


def _t_literal(register: int, distance: int, address: int) -> Step:
    return Step(LOAD, register, -1, (address + 4 & ~3) + distance)


def _t_any_register(value: int, address: int) -> Step:
    target, source = value >> 4 & 8 | value & 7, value >> 3 & 15
    if target == 15:
        return Step(JUMP, -1, -1)
    if value & 0x0200:  # mov
        return Step(SUM, target, source) if source != 15 else Step(CONSTANT, target, address + 4)
    return Step(SUMS, target, target, source) if source != 15 else Step(SUM, target, target, address + 4)


def _t_branch_of(kind: int) -> Callable[[int, int], Step]:
    def step(value: int, address: int) -> Step:
        half, following = (value >> 16, value & 0xFFFF) if value >> 16 else (value, 0)
        distance = thumb_branch(half, following)
        return Step(kind, -1, address + distance) if distance is not None else Step(OTHER)

    return step


def _t_half_word(value: int) -> int:
    return value >> 4 & 0xF000 | value >> 15 & 0x800 | value >> 4 & 0x700 | value & 0xFF


def _t_memory(kind: int, mask: int) -> Callable[[int, int], Step]:
    return lambda value, address: Step(kind, value >> 12 & 15, value >> 16 & 15, value & mask)


def thumb_branch(half: int, following: int) -> int | None:
    """Arm ARM A8.8.18 (B, T1-T4), A8.8.25 (BL), A8.8.29 (CBZ)."""
    if half & 0xF000 == 0xD000 and half & 0x0F00 < 0x0E00:
        return signed(half & 0xFF, 8) * 2 + 4
    if half & 0xF800 == 0xE000:
        return signed(half & 0x7FF, 11) * 2 + 4
    if half & 0xF500 == 0xB100:
        return ((half >> 9 & 1) << 6 | (half >> 3 & 31) << 1) + 4
    if half & 0xF800 == 0xF000 and following & 0x8000:
        sign, j1, j2 = half >> 10 & 1, following >> 13 & 1, following >> 11 & 1
        if following & 0x5000 == 0:
            if half >> 6 & 15 >= 14:
                return None
            high = sign << 20 | j2 << 19 | j1 << 18 | (half & 0x3F) << 12
            return signed(high | (following & 0x7FF) << 1, 21) + 4
        high = sign << 24 | (1 ^ j1 ^ sign) << 23 | (1 ^ j2 ^ sign) << 22 | (half & 0x3FF) << 12
        return signed(high | (following & 0x7FF) << 1, 25) + 4
    return None
