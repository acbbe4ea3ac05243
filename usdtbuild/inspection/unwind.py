"""Who has called whom: from registers and the top of a stack to the addresses of its frames, innermost first.

Each file says for each address of its code, in .eh_frame, where its caller's registers are (DWARF 5, 6.4, and the
Linux Standard Base, 10.6). pyelftools reads these records, here one function at a time: a large program has a million.
Code without them is left by its frame pointer, if that can be one. The stack is a copy, and what it leads to outside of
it is unknown, so nothing that a program has there can do harm.
"""

from __future__ import annotations

import contextlib
import functools
import struct
from bisect import bisect_right
from io import BytesIO
from typing import TYPE_CHECKING, Any

from ..machines import facts_of
from ..machines.unwind_table import RECORD, search_table
from ..record import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from elftools.dwarf.callframe import FDE

    from ..elf.image import Image
    from ..machines.calling import Calling

_EXPRESSION = 64  # bytes of one that are read, at most
_MASK = (1 << 64) - 1
# Rules that compute something, and whether that is where the register has been stored, or its value.
_PLACES = {"OFFSET": True, "EXPRESSION": True, "VAL_OFFSET": False, "VAL_EXPRESSION": False}
# Why a stack ends before its outermost frame: what comes then was not copied (or not asked for); nobody knows.
CUT, LOST = "[...]", "[?]"


@functools.cache
def library() -> tuple[Any, Any, Any]:
    """Import what reads records, which takes long, and has to be done before rights are given up."""
    from elftools.dwarf import callframe, dwarf_expr, structs

    return callframe, dwarf_expr, structs.DWARFStructs(little_endian=True, dwarf_format=32, address_size=8)


class Row(NamedTuple):
    """How the caller of code at an address is found: its stack pointer is `register` plus `offset`, or what an
    `expression` gives, and `rules` say for registers by number where its values are (pyelftools' names of rules).
    `is_signal`: the kernel has made the frame, and the caller stands at its address, not behind a call."""

    register: int
    offset: int
    expression: bytes
    rules: tuple[tuple[int, str, int | bytes], ...]
    is_signal: bool


class Rows:
    """The rows of one little-endian file of 64 bits."""

    def __init__(self, image: Image) -> None:
        self._read = image.bytes_at
        self._starts, self._records = search_table(image.bytes_at, image.unwind_header)
        self._known: dict[int, FDE] = {}
        for section in image.sections_named(".eh_frame") if not self._starts else ():  # as in static programs
            with contextlib.suppress(Exception):  # pyelftools raises anything on damaged input
                whole = _entries(bytes(image.content(section)), section.address)
                self._known = {one["initial_location"]: one for one in whole}
                self._starts = self._records = sorted(self._known)

    def at(self, address: int) -> Row | None:
        """Return the row of an address of the file, None if there is none."""
        at = bisect_right(self._starts, address) - 1
        if at < 0:
            return None
        try:
            entry = self._entry(self._records[at])
            start = entry["initial_location"]
            if not start <= address < start + entry["address_range"]:
                return None
            found = [one for one in entry.get_decoded().table if one["pc"] <= address][-1]
            cfa = found["cfa"]
            rules = ((number, rule.type, rule.arg if not isinstance(rule.arg, list) else bytes(rule.arg))
                     for number, rule in found.items() if isinstance(number, int))  # fmt: skip
            expression = bytes(cfa.expr or b"")
            if len(expression) > _EXPRESSION:
                return None
            return Row(cfa.reg or 0, cfa.offset or 0, expression, tuple(rules), b"S" in entry.cie["augmentation"])
        except Exception:  # pyelftools raises anything on damaged input
            return None

    def _entry(self, record: int) -> Any:
        """Return the record at an address, read as a section that has it and what it shares with others, only."""
        if record not in self._known:
            own, shared = self._piece(record), record + 4 - self._number(record + 4)
            common = self._piece(shared)
            section = common + own[:4] + struct.pack("<I", len(common) + 4) + own[8:]
            (self._known[record],) = _entries(section, record - len(common))
        return self._known[record]

    def _piece(self, at: int) -> bytes:
        return self._read(at, min(4 + self._number(at), RECORD))

    def _number(self, at: int) -> int:
        return int(struct.unpack("<I", self._read(at, 4))[0])


def _entries(section: bytes, address: int) -> list[FDE]:
    callframe, _, structs = library()
    found = callframe.CallFrameInfo(BytesIO(section), len(section), address, structs, for_eh_frame=True).get_entries()
    return [one for one in found if isinstance(one, callframe.FDE)]


class Top(NamedTuple):
    """The innermost frame: the address behind the instruction that is executed (0: the stack pointer leads to it, as
    behind a call), the stack pointer, what stands there, and the other registers that functions keep, by number."""

    behind: int
    pointer: int
    memory: bytes
    registers: Mapping[int, int]


class _UnknownError(Exception):
    """What is asked for is not in the copy."""


class Walk:
    """Goes from frame to frame of one machine's stacks."""

    def __init__(self, machine: int, row_of: Callable[[int], Row | None], is_code: Callable[[int], bool]) -> None:
        """`row_of` and `is_code` are asked for addresses of the process."""
        facts = facts_of(machine)
        assert facts is not None
        assert facts.calling is not None
        self._calling: Calling = facts.calling()
        self._stack = next(number for number, name in self._calling.kept.items() if name == self._calling.stack)
        self._row_of, self._is_code = row_of, is_code

    def frames(self, top: Top, most: int) -> tuple[list[int], str]:
        """Return an address in the instruction that each frame executes, and why there are no more ('': it is all)."""
        memory, mask = _Memory(top), (1 << self._calling.bits) - 1
        registers = {**top.registers, self._stack: top.pointer}
        behind, found, row = top.behind, list[int](), None
        try:
            if not behind:
                behind, registers[self._stack] = memory.word(top.pointer), top.pointer + 8
            at = behind - 1
            while self._is_code(at):
                found.append(at)
                if len(found) >= most:
                    return found, CUT
                row, before = self._row_of(at), registers[self._stack]
                back = self._by_row(row, registers, memory) if row is not None else self._by_frame(registers, memory)
                behind = back & mask
                if not behind:
                    return found, ""
                if registers[self._stack] <= before - (not self._calling.frame) and not (row and row.is_signal):
                    return found, LOST
                at = behind if row and row.is_signal else behind - 1
        except _UnknownError:
            return found, CUT if row is not None else LOST
        return found, LOST

    def _by_row(self, row: Row, registers: dict[int, int], memory: _Memory) -> int:
        """Let registers be the caller's; return its address, 0 if there is none."""
        if row.expression:
            cfa = _value(row.expression, registers, memory)
        else:
            cfa = _known(registers, row.register) + row.offset
        before = dict(registers)
        registers[self._stack] = cfa & _MASK
        for number, rule, value in row.rules:
            if rule == "UNDEFINED":
                registers.pop(number, None)
            elif rule == "REGISTER":
                registers[number] = _known(before, int(value))
            elif rule in _PLACES:
                found = cfa + value if isinstance(value, int) else _value(value, before, memory, cfa)
                registers[number] = memory.word(found) if _PLACES[rule] else found & _MASK
        return registers.get(self._calling.back, 0)

    def _by_frame(self, registers: dict[int, int], memory: _Memory) -> int:
        """The same, by the frame pointer: it leads to the caller's, and that stands below the return address."""
        frame = registers.get(self._calling.framed, 0)
        back = memory.word(frame + 8)
        registers[self._calling.framed] = memory.word(frame)
        registers[self._stack] = frame + 16
        if not self._is_code((back & (1 << self._calling.bits) - 1) - 1):
            raise _UnknownError
        return back


class _Memory:
    def __init__(self, top: Top) -> None:
        self._start, self._memory = top.pointer, top.memory

    def word(self, address: int, size: int = 8) -> int:
        """Return the number at an address. Raises _UnknownError."""
        at = (address & _MASK) - self._start
        if not 0 <= at <= len(self._memory) - size:
            raise _UnknownError
        return int.from_bytes(self._memory[at : at + size], "little")


def _known(registers: Mapping[int, int], number: int) -> int:
    if number not in registers:
        raise _UnknownError
    return registers[number]


def _value(expression: bytes, registers: Mapping[int, int], memory: _Memory, cfa: int | None = None) -> int:
    """Return what an expression of a row gives: of those in use, a PLT's, a signal frame's, an aligned stack's. Raises
    _UnknownError."""
    stack = [] if cfa is None else [cfa]
    try:
        _, dwarf_expr, structs = library()
        for one in dwarf_expr.DWARFExprParser(structs).parse_expr(list(expression)):
            name = one.op_name.removeprefix("DW_OP_")
            if name.startswith("breg"):
                stack.append(_known(registers, int(name[4:])) + one.args[0])
            elif name.startswith("lit"):
                stack.append(int(name[3:]))
            elif name.startswith("const"):
                stack.append(one.args[0])
            elif name == "plus_uconst":
                stack[-1] += one.args[0]
            elif name == "deref":
                stack[-1] = memory.word(stack[-1])
            elif name == "dup":
                stack.append(stack[-1])
            else:
                right = stack.pop()
                stack[-1] = int(_OPERATIONS[name](stack[-1], right))
            stack[-1] &= _MASK
        return stack[-1]
    except _UnknownError:
        raise
    except Exception:  # pyelftools raises anything on damaged input, and an operation may not be known here
        raise _UnknownError from None


_OPERATIONS: dict[str, Callable[[int, int], int]] = {
    "plus": lambda a, b: a + b,
    "minus": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "and": lambda a, b: a & b,
    "or": lambda a, b: a | b,
    "shl": lambda a, b: a << min(b, 64),
    "shr": lambda a, b: a >> min(b, 64),
    "ge": lambda a, b: a >= b,
    "gt": lambda a, b: a > b,
    "eq": lambda a, b: a == b,
}
