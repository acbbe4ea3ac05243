"""Read a probe's arguments from a stopped thread: its registers and the memory that operands name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...formats.operands import CONSTANT, MEMORY, REGISTER
from .. import arguments
from ..hosts import HOST
from ..ptrace import FLOATS, INDEX, NAMES

if TYPE_CHECKING:
    import ctypes
    from collections.abc import Callable, Sequence

    from ...formats.operands import Operand
    from ..maps import Memory
    from ..model import Argument, Held, Value

    Registers = ctypes.Array[ctypes.c_ulonglong] | Sequence[int]
    Reader = Callable[[Registers, Memory], Value]

_MASK = (1 << 64) - 1
_REGISTERS = HOST.registers


def reader(argument: Argument, operand: Operand, string_size: int) -> Reader:
    """Return a function that reads one argument, given a thread's registers and its memory.

    The registers are as ptrace has them; behind them those of `ptrace.FLOATS`, where the operand `is_float_register`.
    """
    return arguments.reader(argument, operand, _raw(operand), string_size)


def holds(held: Held) -> Callable[[Registers, Memory], bool]:
    """Return a function that says whether a call by a register is one of the function that a slot leads to."""
    read = _raw(held.place)

    def check(registers: Registers, memory: Memory) -> bool:
        found = read(registers, memory)
        return found is not None and found == memory.word(held.slot)

    return check


def is_float_register(operand: Operand) -> bool:
    """Whether an operand is among `ptrace.FLOATS`."""
    return operand.place.kind == REGISTER and bool(_REGISTERS.float_part(operand.place.register))


def _raw(operand: Operand) -> Callable[[Registers, Memory], int | None]:
    """Return a function that gives the bits of an operand; None where they can't be had."""
    place, size = operand.place, operand.size or 8
    if place.kind == CONSTANT:
        return lambda _registers, _memory: place.displacement & _MASK
    if is_float_register(operand):
        position = len(NAMES) + FLOATS.index(_REGISTERS.float_part(place.register))
        return lambda registers, _memory: registers[position] >> place.displacement
    if place.kind == REGISTER:
        if place.register in _REGISTERS.zero:
            return lambda _registers, _memory: 0
        found = _REGISTERS.part(place.register)
        if found is None:
            return lambda _registers, _memory: None
        index, shift = INDEX[found[0]], found[1] + place.displacement
        return lambda registers, _memory: registers[index] >> shift
    if place.kind != MEMORY or place.symbol:
        return lambda _registers, _memory: None
    parts = []
    for name, scale in ((place.base, 1), (place.index_register, place.scale)):
        known = _REGISTERS.part(name) if name else None
        if name and known is None:
            return lambda _registers, _memory: None
        if known is not None:
            parts.append((INDEX[known[0]], scale))

    def read(registers: Registers, memory: Memory) -> int | None:
        address = place.displacement + sum(registers[index] * scale for index, scale in parts)
        return memory.word(address & _MASK, size)

    return read
