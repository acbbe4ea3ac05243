"""Breakpoints on aarch64 at sequences that reserve memory for a store, on a processor that is played here.

On a machine of its own `guest.py` does the same.
"""

from __future__ import annotations

import struct
from typing import Any

import pytest

from usdtbuild.machines.aarch64 import host as aarch64
from usdtbuild.tracing import ptrace
from usdtbuild.tracing.trap import breakpoints

CODE = 0x10000
LOAD, STORE, ADD, COMPARE, LEAVE, AGAIN, RETURN = (
    0xC85F7C01,  # ldxr x1, [x0]
    0xC8027C01,  # stxr w2, x1, [x0]
    0x91000421,  # add x1, x1, #1
    0xEB03003F,  # cmp x1, x3
    0x54000061,  # b.ne, three instructions on
    0x35FFFF82,  # cbnz w2, four instructions back
    0xD65F03C0,  # ret
)
BREAK = int.from_bytes(aarch64.HOST.traps.instruction, "little")


class Processor:
    """A thread and its memory. Every stop takes the reservation away."""

    def __init__(self, *code: int, equal: bool) -> None:
        self.code = dict(zip(range(CODE, CODE + 4 * len(code), 4), code))
        self.at, self.value, self._loaded, self._failed = CODE, 7, 0, False
        self._reserved, self._equal = False, equal

    def read(self, address: int, size: int) -> bytes:
        """Return what is there, as `Memory` does."""
        words = [self.code[at] for at in range(address, address + size, 4) if at in self.code]
        return struct.pack(f"<{len(words)}I", *words)

    def write(self, address: int, data: bytes) -> None:
        """Change an instruction."""
        (self.code[address],) = struct.unpack("<I", data)

    def call(self, request: int, tid: int) -> int:
        """Let the thread run up to a breakpoint, or for one instruction."""
        self._reserved = False
        for _ in range(100):
            if self.code[self.at] == BREAK:
                break
            self.at = self._execute(self.code[self.at])
            if request == ptrace.SINGLESTEP:
                break
        return 0

    def _execute(self, instruction: int) -> int:
        if instruction == LOAD:
            self._loaded, self._reserved = self.value, True
        elif instruction == ADD:
            self._loaded += 1
        elif instruction == STORE:
            self._failed = not self._reserved
            self.value = self._loaded if self._reserved else self.value
        elif instruction == LEAVE and not self._equal:
            return self.at + 12
        elif instruction == AGAIN and self._failed:
            return self.at - 16
        return self.at + 4


@pytest.mark.parametrize(
    ("code", "equal", "end", "value"),
    [
        ((LOAD, ADD, ADD, STORE, AGAIN, RETURN), True, 16, 9),
        ((LOAD, COMPARE, LEAVE, STORE, AGAIN, RETURN), True, 16, 7),
        ((LOAD, COMPARE, LEAVE, STORE, AGAIN, RETURN), False, 20, 7),
        ((ADD, LOAD, COMPARE, STORE, AGAIN, RETURN), True, 4, 7),
        ((LOAD, ADD, RETURN), True, 4, 7),
    ],
    ids=["adds", "exchanges", "leaves", "begins later", "no store"],
)
def test_a_sequence_is_one_step(
    code: tuple[int, ...], equal: bool, end: int, value: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    processor: Any = Processor(*code, equal=equal)
    trap = aarch64.HOST.traps.instruction
    for name, what in {"HOST": aarch64.HOST, "TRAP": trap, "_SIZE": len(trap)}.items():
        monkeypatch.setattr(breakpoints, name, what)
    monkeypatch.setattr(ptrace, "call", processor.call)
    monkeypatch.setattr(ptrace, "wait", lambda tid: ptrace.Stop(tid, signal=5))
    assert breakpoints._pass(processor, 1, CODE) is None
    assert (processor.at - CODE, processor.value) == (end, value)
    assert tuple(processor.code.values()) == code  # all is put back
