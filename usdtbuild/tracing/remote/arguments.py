"""Read a hit's arguments, as its operands have them, from the registers and the memory of a program in a stub."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from ...formats.operands import CONSTANT, MEMORY, REGISTER
from ..model import FLOAT, MISSING, STRING, Unreadable

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...formats.operands import Operand
    from ...machines.facts import Stopped
    from ..model import Argument, Value
    from .registers import Registers
    from .stub import Stub

    Reader = Callable[[Registers, Stub], Value]
    Raw = Callable[[Registers, Stub], "int | None"]


def reader(argument: Argument, operand: Operand, stopped: Stopped, string_size: int) -> Reader:
    """Return a function that reads one argument of a stopped thread."""
    raw = _raw(operand, stopped)
    size, signed = operand.size or 8, operand.signed
    mask, sign = (1 << 8 * size) - 1, 1 << 8 * size - 1
    floating = (argument.kind == FLOAT or operand.floating) and size in (4, 8)
    # Of a double in two registers a record names one, and half a floating-point number says nothing.
    half = floating and size == 4 and "double" in argument.type

    def read(registers: Registers, stub: Stub) -> Value:
        found = raw(registers, stub)
        if found is None or half:
            return MISSING
        bits = found & mask
        if floating:
            value: float = struct.unpack("<f" if size == 4 else "<d", bits.to_bytes(size, "little"))[0]
            return value
        return bits - (1 << 8 * size) if signed and bits & sign else bits

    def read_string(registers: Registers, stub: Stub) -> Value:
        pointer = read(registers, stub)
        if not isinstance(pointer, int) or pointer is MISSING:
            return pointer
        if not pointer:
            return None
        text = stub.text(pointer, string_size)
        return Unreadable(pointer) if text is None else text

    return read_string if argument.kind == STRING else read


def register_name(spelling: str, stopped: Stopped) -> str:
    """Return what a register of an operand is called in a description: `%r2` and `$4` are r2 and r4."""
    bare = spelling.lstrip("$%")
    return stopped.spelled.get(bare, bare)


def _register(spelling: str, stopped: Stopped) -> Callable[[Registers], int | None]:
    bare = spelling.lstrip("$%")
    if bare in stopped.zero:
        return lambda _: 0
    shift = 8 if bare in stopped.high else 0
    name = stopped.high.get(bare) or register_name(spelling, stopped)

    def get(registers: Registers) -> int | None:
        found = registers.get(name)
        return found >> shift if found is not None else None

    return get


def _raw(operand: Operand, stopped: Stopped) -> Raw:
    """Return a function that gives the bits of an operand; None where they can't be had."""
    place, size = operand.place, operand.size or 8
    if place.kind == CONSTANT:
        return lambda _registers, _stub: place.displacement
    if place.kind == REGISTER:
        get = _register(place.register, stopped)
        return lambda registers, _stub: get(registers)
    if place.kind != MEMORY or place.symbol:
        return lambda _registers, _stub: None
    parts = [
        (_register(name, stopped), scale)
        for name, scale in ((place.base, 1), (place.index_register, place.scale))
        if name
    ]

    def read(registers: Registers, stub: Stub) -> int | None:
        address = place.displacement
        for part, scale in parts:
            found = part(registers)
            if found is None:
                return None
            address += found * scale
        return stub.number(address, size)

    return read
