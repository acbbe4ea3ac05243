"""LoongArch Linux: <asm/ptrace.h>, <asm-generic/unistd.h>. For the trap engine alone.

Before Linux 6.5 the kernel has no PTRACE_SINGLESTEP here, so a breakpoint waits where the instruction leads. Whoever
runs into a `break` stands at it.
"""

from __future__ import annotations

from collections.abc import Mapping

from ..calls import signed
from ..host import GENERIC, Host, Kernel, Registers, Traps, skip_by
from ..numbers import EM_LOONGARCH
from . import branch, facts

_BREAK, _SYSCALL, _JIRL, _BL = 0x002A, 0x0056, 19, 21  # 17 bits at the top, 6 bits at the top
_FACTS = facts()[EM_LOONGARCH]
_SPELLED = _FACTS.stopped.spelled
# struct user_pt_regs
_NAMES = (*(f"r{number}" for number in range(32)), "orig_a0", "pc", "badv", *(f"reserved{n}" for n in range(10)))
_FLOATS = tuple(f"f{number}" for number in range(32))


def _part(name: str) -> tuple[str, int] | None:
    bare = name.lstrip("$")
    found = _SPELLED.get(bare, bare)
    return (found, 0) if found in _NAMES else None


def _float(name: str) -> str:
    bare = name.lstrip("$")
    if bare[:2] == "fa" and bare[2:].isdigit():  # psABI: $fa0 is $f0
        bare = f"f{bare[2:]}"
    return bare if bare in _FLOATS else ""


def _word(code: bytes) -> int:
    return int.from_bytes(code[:4], "little")


def is_trap(code: bytes) -> bool:
    """Whether code begins with a `break`, whatever its number."""
    return len(code) >= 4 and _word(code) >> 15 == _BREAK << 1


def _leads(code: bytes, address: int, registers: Mapping[str, int]) -> tuple[int, ...]:
    """See `Traps.leads`; volume 1, 2.2.7. Where a system call leads only the kernel knows."""
    word = _word(code)
    if len(code) < 4 or word >> 15 == _SYSCALL:
        return ()
    if word >> 26 == _JIRL:
        return ((registers.get(f"r{word >> 5 & 31}", 0) + signed(word >> 10 & 0xFFFF, 16) * 4) & (1 << 64) - 1,)
    distance = _far(word) if word >> 26 == _BL else branch(word)
    return (address + 4, *([address + distance] if distance is not None else []))


def _far(word: int) -> int:
    return signed(word >> 10 & 0xFFFF | (word & 0x3FF) << 16, 26) * 4


def _calls(code: bytes) -> int:
    word = _word(code)
    return 4 if word >> 26 == _JIRL and word & 31 == 1 else 0


def _called(code: bytes, back: int) -> int | None:
    """See `Traps.called`: bl, or pcaddu18i and jirl."""
    high, low = _word(code), _word(code[4:])
    if low >> 26 == _BL:
        return back - 4 + _far(low)
    if high >> 25 == 0x0F and low >> 26 == _JIRL and low & 31 == 1 and high & 31 == low >> 5 & 31:
        return back - 8 + (signed(high >> 5 & 0xFFFFF, 20) << 18) + signed(low >> 10 & 0xFFFF, 16) * 4
    return None


HOST = Host(
    EM_LOONGARCH, "loongarch64",
    Registers(
        _NAMES, "pc", "r3", "r4", "r1", _part, frozenset({"$zero", "zero", "$r0"}),
        _FLOATS, 34, range(32), _float,  # struct user_fp_state
    ),
    Traps((0x002A0005).to_bytes(4, "little"), 0, is_trap, skip_by(_FACTS.quiet), _called, _calls, _leads),  # as gdb's
    Kernel(GENERIC),
)  # fmt: skip
