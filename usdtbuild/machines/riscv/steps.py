"""What RISC-V's instructions do to registers, as far as calls that load a slot themselves are told by it.

Encodings: unprivileged ISA 2, 16, 24. What writes a register in a way that isn't needed here is unsure.
"""

from __future__ import annotations

from collections.abc import Callable

from ..calls import signed
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


def steps(is64: bool) -> Callable[[int, int], Step]:
    """Return what says what an instruction does, which is given as its units, the first as the highest."""
    wide, narrow = _wide(is64), _narrow(is64)

    def step(value: int, address: int) -> Step:  # the first unit is the low half
        return wide(value >> 16 | (value & 0xFFFF) << 16, address) if value >> 16 else narrow(value, address)

    return step


def _wide(is64: bool) -> Callable[[int, int], Step]:
    doubles = 0x3000 if is64 else 0x2000  # ld, sd; lw, sw
    return decoder(
        Form(0x5F, 0x17, _upper),
        Form(0xFFF, 0x06F, _led(JUMP)), Form(0x7F, 0x6F, always(CALL)),  # jal
        Form(0x7F, 0x67, lambda value, address: Step(CALL if value & 0x80 else JUMP, -1, -1)),  # jalr
        Form(0x7F, 0x63, _led(BRANCH)),
        Form(0x707F, 0x0013, lambda value, address: Step(
            SUM, value >> 7 & 31, value >> 15 & 31, signed(value >> 20, 12))),  # addi
        Form(0x707F, 0x0003 | doubles, lambda value, address: Step(
            LOAD, value >> 7 & 31, value >> 15 & 31, signed(value >> 20, 12))),
        Form(0x707F, 0x0023 | doubles, lambda value, address: Step(
            STORE, value >> 20 & 31, value >> 15 & 31, signed(value >> 20 & ~31 | value >> 7 & 31, 12))),
        Form(0xFE00707F, 0x00000033, lambda value, address: Step(
            SUMS, value >> 7 & 31, value >> 15 & 31, value >> 20 & 31)),  # add
        Form(0x7F, 0x07, always(OTHER)),  # loads of what isn't integers
        Form(0x7F, 0x03, unsure(31, 7)),
        Form(0x7F, 0x27, always(OTHER)),
        Form(0x7F, 0x23, always(OTHER)),  # stores
        Form(0, 0, unsure(31, 7)),
    )  # fmt: skip


def _narrow(is64: bool) -> Callable[[int, int], Step]:
    def loaded_from(value: int) -> int:  # c.ldsp, c.lwsp
        if is64:
            return value >> 7 & 0x20 | value >> 2 & 0x18 | value << 4 & 0x1C0
        return value >> 7 & 0x20 | value >> 2 & 0x1C | value << 4 & 0xC0

    def stored_to(value: int) -> int:
        return value >> 7 & 0x38 | value >> 1 & 0x1C0 if is64 else value >> 7 & 0x3C | value >> 1 & 0xC0

    def near(value: int) -> int:  # c.ld, c.lw: the word's distance
        rest = value << 1 & 0xC0 if is64 else value >> 4 & 4 | value << 1 & 0x40
        return value >> 7 & 0x38 | rest

    load, store = (0x6002, 0xE002) if is64 else (0x4002, 0xC002)  # c.ldsp, c.sdsp; c.lwsp, c.swsp
    return decoder(
        Form(0xFFFF, 0x0001, always(OTHER)),  # c.nop
        Form(0xF07F, 0x8002, always(JUMP)), Form(0xF07F, 0x9002, always(CALL)),
        Form(0xF003, 0x8002, lambda value, address: Step(SUM, _target(value), value >> 2 & 31)),  # c.mv
        Form(0xF003, 0x9002, lambda value, address: Step(SUMS, _target(value), _target(value), value >> 2 & 31)),
        Form(0xE003, load, lambda value, address: Step(LOAD, _target(value), 2, loaded_from(value))),
        Form(0xE003, store, lambda value, address: Step(STORE, value >> 2 & 31, 2, stored_to(value))),
        Form(0xE003, 0x6000 if is64 else 0x4000, lambda value, address: Step(
            LOAD, 8 + (value >> 2 & 7), 8 + (value >> 7 & 7), near(value))),
        Form(0xE003, 0xE000 if is64 else 0xC000, lambda value, address: Step(
            STORE, 8 + (value >> 2 & 7), 8 + (value >> 7 & 7), near(value))),
        Form(0xE003, 0xA001, _led(JUMP)), Form(0xC003, 0xC001, _led(BRANCH)),
        Form(0xE003, 0x2001, lambda value, address: Step(OTHER, -1, 1 << _target(value)) if is64 else Step(CALL)),
        Form(0xE003, 0x4001, lambda value, address: Step(
            CONSTANT, _target(value), signed(value >> 7 & 32 | value >> 2 & 31, 6))),  # c.li
        Form(0xE003, 0x0001, lambda value, address: Step(
            SUM, _target(value), _target(value), signed(value >> 7 & 32 | value >> 2 & 31, 6))),  # c.addi
        Form(0xE003, 0x8001, lambda value, address: Step(OTHER, -1, 1 << (8 + (value >> 7 & 7)))),
        Form(0xA003, 0xA000, always(OTHER)), Form(0xA003, 0xA002, always(OTHER)),
        Form(0xC003, 0xC000, always(OTHER)), Form(0xC003, 0xC002, always(OTHER)),
        Form(0xE003, 0x2000, always(OTHER)), Form(0xE003, 0x2002, always(OTHER)),
        Form(0x8003, 0x0000, lambda value, address: Step(OTHER, -1, 1 << (8 + (value >> 2 & 7)))),
        Form(0, 0, unsure(31, 7)),
    )  # fmt: skip


def _target(value: int) -> int:
    return value >> 7 & 31


def _led(kind: int) -> Callable[[int, int], Step]:
    def step(value: int, address: int) -> Step:
        distance = branch(value & 0xFFFF, value >> 16)
        return Step(kind, -1, address + distance) if distance is not None else Step(OTHER)

    return step


def _upper(value: int, address: int) -> Step:
    high = signed(value & 0xFFFFF000, 32)
    return Step(CONSTANT, value >> 7 & 31, high + (0 if value & 0x20 else address))  # lui; auipc


def branch(half: int, following: int) -> int | None:
    """RISC-V unprivileged ISA 2.5 (JAL, branches) and 16.4 (c.j, c.beqz, c.bnez)."""
    if half & 3 == 3:
        value = half | following << 16
        if value & 0x7F == 0x6F:
            parts = (value >> 31) << 20 | (value >> 12 & 0xFF) << 12 | (value >> 20 & 1) << 11
            return signed(parts | (value >> 21 & 0x3FF) << 1, 21)
        if value & 0x7F == 0x63:
            parts = (value >> 31) << 12 | (value >> 7 & 1) << 11 | (value >> 25 & 0x3F) << 5 | (value >> 8 & 15) << 1
            return signed(parts, 13)
        return None
    if half & 0xE003 == 0xA001:
        value = (
            (half >> 12 & 1) << 11 | (half >> 8 & 1) << 10 | (half >> 9 & 3) << 8 | (half >> 6 & 1) << 7
            | (half >> 7 & 1) << 6 | (half >> 2 & 1) << 5 | (half >> 11 & 1) << 4 | (half >> 3 & 7) << 1
        )  # fmt: skip
        return signed(value, 12)
    if half & 0xC003 == 0xC001:
        value = (
            (half >> 12 & 1) << 8 | (half >> 5 & 3) << 6 | (half >> 2 & 1) << 5
            | (half >> 10 & 3) << 3 | (half >> 3 & 3) << 1
        )  # fmt: skip
        return signed(value, 9)
    return None
