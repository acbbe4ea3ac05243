"""Make the value of an argument from the bits that its operand names, whoever can read registers and memory.

Which bits those are is the engines' business: `trap` has a thread under ptrace, `remote` one that a gdb server holds,
`others` has them from another tool.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Protocol, TypeVar

from ..formats.operands import CONSTANT, MEMORY, REGISTER, Operand
from .model import FLOAT, MISSING, STACK, STRING, Argument, Unreadable, Value, string


class Texts(Protocol):
    """Memory in which strings stand."""

    def text(self, address: int, longest: int, /) -> bytes | None:
        """Return the string at an address, at most `longest` bytes of it, Cut where it goes on in memory that can't be
        read; None where nothing of it can."""

    def read(self, address: int, size: int, /) -> bytes:
        """Return `size` bytes, or fewer where memory ends."""


RegistersT = TypeVar("RegistersT")
MemoryT = TypeVar("MemoryT", bound=Texts)


def is_floating(argument: Argument, operand: Operand) -> bool:
    """Whether an argument's bits are a floating-point number's, of 4 or 8 bytes."""
    return (argument.kind == FLOAT or operand.floating) and (operand.size or 8) in (4, 8)


def number(argument: Argument, operand: Operand, bits: int) -> int | float:
    """Return what the low bits of a number stand for; those above the operand's size don't matter."""
    size = operand.size or 8
    bits &= (1 << 8 * size) - 1
    if is_floating(argument, operand):
        value: float = struct.unpack("<f" if size == 4 else "<d", bits.to_bytes(size, "little"))[0]
        return value
    return bits - (1 << 8 * size) if operand.signed and bits >> 8 * size - 1 else bits


def raw(
    operand: Operand,
    register: Callable[[str], Callable[[RegistersT], int | None]],
    word: Callable[[MemoryT, int, int], int | None],
) -> Callable[[RegistersT, MemoryT], int | None]:
    """Return a function that gives the bits of an operand; None where they can't be had.

    `register` returns what gives the value of the register of a name; `word` gives so many bytes at an address.
    """
    place, size = operand.place, operand.size or 8
    if place.kind == CONSTANT:
        return lambda _registers, _memory: place.displacement
    if place.kind == REGISTER:
        get = register(place.register)
        return lambda registers, _: None if (found := get(registers)) is None else found >> place.displacement
    if place.kind != MEMORY or place.symbol:
        return lambda _registers, _memory: None
    named = ((place.base, 1), (place.index_register, place.scale))
    parts = [(register(name), scale) for name, scale in named if name]

    def read(registers: RegistersT, memory: MemoryT) -> int | None:
        address = place.displacement
        for part, scale in parts:
            found = part(registers)
            if found is None:
                return None
            address += found * scale
        return word(memory, address, size)

    return read


def reader(
    argument: Argument,
    operand: Operand,
    raw: Callable[[RegistersT, MemoryT], int | None],
    string_size: int,
) -> Callable[[RegistersT, MemoryT], Value]:
    """Return a function that reads one argument, given a thread's registers and its memory.

    `raw` gives the bits of the operand, and maybe more above them; None where they can't be had.
    """

    def read(registers: RegistersT, memory: MemoryT) -> Value:
        found = raw(registers, memory)
        return number(argument, operand, found) if found is not None else MISSING

    def read_string(registers: RegistersT, memory: MemoryT) -> Value:
        pointer = read(registers, memory)
        if not isinstance(pointer, int) or pointer is MISSING:
            return pointer
        if not pointer:
            return None
        text = memory.text(pointer, string_size)
        return Unreadable(pointer) if text is None else string(text, string_size)

    def read_stack(registers: RegistersT, memory: MemoryT) -> Value:
        pointer = read(registers, memory)
        return memory.read(pointer, argument.size) if isinstance(pointer, int) and pointer is not MISSING else MISSING

    return {STRING: read_string, STACK: read_stack}.get(argument.kind, read)
