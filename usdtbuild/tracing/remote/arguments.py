"""Read a hit's arguments, as its operands have them, from the registers and memory of a program that a server holds."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from ...formats.operands import Operand
from ...machines.facts import Stopped
from .. import arguments
from ..arguments import is_floating
from ..model import Argument, Held, Value
from .registers import Registers
from .server import Server

Reader = Callable[[Registers, Server], Value]
Raw = Callable[[Registers, Server], "int | None"]


def reader(argument: Argument, operand: Operand, stopped: Stopped, string_size: int) -> Reader:
    """Return a function that reads one argument of a stopped thread."""
    # Of a double in two registers a record names one, and half a floating-point number says nothing.
    half = is_floating(argument, operand) and operand.size == 4 and "double" in argument.type
    bits: Raw = (lambda _registers, _server: None) if half else _raw(operand, stopped)
    return arguments.reader(argument, operand, bits, string_size)


def holds(held: Held, stopped: Stopped, registers: Registers, server: Server) -> bool:
    """Whether a call by a register is one of the function that a slot leads to."""
    found = _raw(held.place, stopped)(registers, server)
    return found is not None and found == server.number(held.slot)


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
    return arguments.raw(operand, lambda name: _register(name, stopped), Server.number)


class Watched(NamedTuple):
    """One target's site at an address: the target's number, how its arguments are read, what tells it from others."""

    target: int
    readers: tuple[Reader, ...]
    held: Held | None = None
