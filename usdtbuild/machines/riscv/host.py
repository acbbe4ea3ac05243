"""riscv64 Linux: <asm/ptrace.h>, <asm-generic/unistd.h>. For the trap engine alone.

The kernel has no PTRACE_SINGLESTEP here, so a breakpoint waits where the instruction leads. Ours are `c.ebreak`, two
bytes, because a NOP may have no more; whoever runs into it stands at it. Debian and all others of Linux want the C
extension.
"""

from __future__ import annotations

from collections.abc import Mapping

from ..calls import signed
from ..host import GENERIC, Host, Kernel, Registers, Traps, skip_by
from ..numbers import EM_RISCV
from . import facts
from .steps import branch

_TRAP, _OTHER_TRAP = b"\x02\x90", b"\x73\0\x10\0"  # c.ebreak, ebreak
_FACTS = facts()[EM_RISCV]
_SPELLED = _FACTS.stopped.spelled
_BY_NUMBER = tuple(_SPELLED[f"x{number}"] for number in range(32))
_NAMES = ("pc", *_BY_NUMBER[1:])  # struct user_regs_struct
_FLOATS = tuple(f"f{number}" for number in range(32))
# psABI, "Floating-point Register Convention"
_FLOATS_SPELLED = dict(zip(
    (*(f"ft{n}" for n in range(8)), "fs0", "fs1", *(f"fa{n}" for n in range(8)), *(f"fs{n}" for n in range(2, 12)),
     *(f"ft{n}" for n in range(8, 12))), _FLOATS))  # fmt: skip


def _part(name: str) -> tuple[str, int] | None:
    found = _SPELLED.get(name, name)
    return (found, 0) if found in _NAMES else None


def _float(name: str) -> str:
    found = _FLOATS_SPELLED.get(name, name)
    return found if found in _FLOATS else ""


def _halves(code: bytes) -> tuple[int, int]:
    return int.from_bytes(code[:2], "little"), int.from_bytes(code[2:4], "little")


def _jumps(half: int, following: int) -> tuple[int, int, int] | None:
    """Return the registers that a jump through one reads and writes, and what it adds; None for others."""
    if half & 0xE07F == 0x8002 and half & 0xF80:  # c.jr, c.jalr
        return half >> 7 & 31, half >> 12 & 1, 0
    value = half | following << 16
    return (value >> 15 & 31, value >> 7 & 31, signed(value >> 20, 12)) if value & 0x707F == 0x67 else None  # jalr


def _leads(code: bytes, address: int, registers: Mapping[str, int]) -> tuple[int, ...]:
    """See `Traps.leads`; unprivileged ISA 2.5, 16.4. Where a system call leads only the kernel knows."""
    half, following = _halves(code)
    size = 4 if half & 3 == 3 else 2
    if len(code) < size or (size == 4 and (half & 0x707F) == 0x73) or half == 0:
        return ()
    jump, distance = _jumps(half, following), branch(half, following)
    if jump is not None:
        return ((registers.get(_BY_NUMBER[jump[0]], 0) + jump[2]) & (1 << 64) - 2,)
    return (address + size, *([address + distance] if distance is not None else []))


def _calls(code: bytes) -> int:
    half, following = _halves(code)
    jump = _jumps(half, following)
    return (4 if half & 3 == 3 else 2) if jump is not None and jump[1] else 0


def _called(code: bytes, back: int) -> int | None:
    """See `Traps.called`: jal, or auipc and jalr."""
    high, low = int.from_bytes(code[:4], "little"), int.from_bytes(code[4:], "little")
    if low & 0xFFF == 0xEF:
        return back - 4 + (branch(low & 0xFFFF, low >> 16) or 0)
    if high & 0x7F == 0x17 and low & 0x7FFF == 0xE7 and high >> 7 & 31 == low >> 15 & 31:
        return back - 8 + signed(high & 0xFFFFF000, 32) + signed(low >> 20, 12)
    return None


HOST = Host(
    EM_RISCV, "riscv64",
    Registers(
        _NAMES, "pc", "sp", "a0", "ra", _part, _FACTS.stopped.zero,
        _FLOATS, 33, range(32), _float,  # struct __riscv_d_ext_state
    ),
    Traps(_TRAP, 0, lambda code: code.startswith((_TRAP, _OTHER_TRAP)), skip_by(_FACTS.quiet), _called, _calls, _leads),
    Kernel(GENERIC),
)  # fmt: skip
