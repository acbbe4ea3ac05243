"""Where a borrowed thread makes its system calls, and how it gets back if we are killed meanwhile.

Whoever is stopped goes on when its tracer dies, with the registers that it has at that moment. So from the moment on
in which these aren't its own any more, the code that they lead to must end by loading its own: its signal mask, its
registers, and the system call that it was stopped in begun again as the kernel does (`machines.host.WayBack`).

The code, and the registers that it loads, stand behind the end of the vdso, on its last page: every process has it,
nobody runs there, and nothing need be mapped first. The page becomes a copy of the process' own. What was there, zeros,
is put back when the thread is itself again. Where a tracer was killed, the code stays, and the next one takes the room
beside it; if there is none left, that of one that no thread is in any more.

A machine without such a way has only a system call instruction of the vdso.
"""

from __future__ import annotations

import re
import struct
from typing import TYPE_CHECKING

from .. import ptrace
from ..errors import TracerError
from ..hosts import HOST
from ..maps import areas
from ..model import NAME

if TYPE_CHECKING:
    import ctypes
    from collections.abc import Callable

    from ..maps import Memory

_TEXT = NAME.encode()
_KERNEL = HOST.kernel
_WAY = HOST.kernel.way_back
_ALIGNED = 16


class Gate:
    """A place in a process for system calls: `address` is that of the instruction."""

    def __init__(self, memory: Memory, address: int) -> None:
        self.memory, self.address = memory, address

    @property
    def way_back(self) -> int:
        """Where a thread goes on that is to be itself again, 0 if it can't."""
        return self.address + _WAY.begins if _WAY is not None else 0

    @property
    def name(self) -> int:
        """Where the process has our name as a text, 0 for nowhere."""
        return self.address + _WAY.name if _WAY is not None else 0

    def lay(self, registers: ctypes.Array[ctypes.c_ulonglong], mask: int) -> None:
        """Write the way back of a thread that has these registers, and this signal mask. Raises OSError."""
        if _WAY is None:
            return
        values = _WAY.resumed(dict(zip(ptrace.NAMES, registers)))
        code = bytearray(_WAY.size)
        code[: len(_WAY.code)] = _WAY.code
        code[_WAY.name : _WAY.name + len(_TEXT)] = _TEXT
        struct.pack_into("<iQ", code, _WAY.file, -1, 0)
        struct.pack_into("<Q", code, _WAY.mask, mask)
        struct.pack_into(f"<{len(_WAY.registers)}Q", code, _WAY.values, *(values[name] for name in _WAY.registers))
        self.memory.write(self.address, bytes(code))

    def will_close(self, descriptor: int) -> None:
        """Let the way back close a file of the process; -1 for none. Raises OSError."""
        if _WAY is not None:
            self.memory.write(self.address + _WAY.file, struct.pack("<i", descriptor))

    def clear(self) -> None:
        """Put back what was there; nobody is there any more. Raises OSError."""
        if _WAY is not None:
            self.memory.write(self.address, bytes(_WAY.size))


def find(pid: int, memory: Memory, is_empty: Callable[[int, int], bool]) -> Gate:
    """Return a place for system calls in a process; `is_empty` says whether no thread is within a range. Raises
    TracerError."""
    for area in areas(pid):
        if area.name == "[vdso]":
            code = memory.read(area.start, area.end - area.start)
            at = _instruction(code) if _WAY is None else _room(code, area.start, is_empty)
            if at is not None:
                return Gate(memory, area.start + at)
    raise TracerError(f"process {pid} has no vdso with room for a system call")


def _instruction(code: bytes) -> int | None:
    # What is found in the middle of something else is an instruction too, where these may begin anywhere.
    found = (at.start() for at in re.finditer(re.escape(_KERNEL.instruction), code))
    return next((at for at in found if not at % HOST.alignment), None)


def _room(code: bytes, start: int, is_empty: Callable[[int, int], bool]) -> int | None:
    """Return where there is room behind code that begins at an address: zeros, or what a killed tracer has left."""
    assert _WAY is not None
    at = -(-len(code.rstrip(b"\0")) // _ALIGNED) * _ALIGNED
    if at + _WAY.size <= len(code):
        return at
    for one in re.finditer(re.escape(_TEXT), code):
        at = one.start() - _WAY.name
        if at >= 0 and code.startswith(_WAY.code, at) and is_empty(start + at, start + at + _WAY.size):
            return at
    return None
