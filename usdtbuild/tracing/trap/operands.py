"""Read a probe's arguments from a stopped thread: its registers and the memory that operands name."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence

from ...formats.operands import REGISTER, Operand
from .. import arguments
from ..hosts import HOST
from ..maps import Memory
from ..model import Argument, Held, Value
from ..ptrace import FLOATS, INDEX, NAMES

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
    return arguments.raw(operand, _register, lambda memory, address, size: memory.word(address & _MASK, size))


def _register(name: str) -> Callable[[Registers], int | None]:
    if name in _REGISTERS.zero:
        return lambda _: 0
    if floating := _REGISTERS.float_part(name):
        position = len(NAMES) + FLOATS.index(floating)
        return lambda registers: registers[position]
    found = _REGISTERS.part(name)
    if found is None:
        return lambda _: None
    index, shift = INDEX[found[0]], found[1]
    return lambda registers: registers[index] >> shift
