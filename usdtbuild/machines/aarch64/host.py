"""aarch64 Linux: <asm/ptrace.h>, <asm-generic/unistd.h>; the code is in templates.S.

The kernel prepares the restart of a system call before it lets a stop be seen: the thread then stands at the `svc`
again, with the first argument in x0 and the number in x8; only where the call goes on with what is left of a timeout
(restart_syscall) the number becomes another one, when the thread goes on (do_signal(), arch/arm64/kernel/signal.c).
"""

from __future__ import annotations

import struct

from ..calls import signed
from ..host import GENERIC, RETURN, Host, Kernel, Registers, Space, Traps
from .templates import TEMPLATES

_BRK, _SVC, _RET = 0xD4200000, 0xD4000001, 0xD65F03C0
_BL, _BLR = 0x94000000, 0xD63F0000  # a distance in words; a register in bits 5 to 9
_NAMES = (*(f"x{number}" for number in range(31)), "sp", "pc", "pstate")  # struct user_pt_regs
_FLOATS = tuple(f"v{number}" for number in range(32))
_NT_ARM_TLS = 0x401


def full_register(name: str) -> tuple[str, int] | None:
    """Return the 64-bit register that a name is the whole or the lower half of, and 0; None for others."""
    if name in {"sp", "wsp"}:
        return "sp", 0
    if name[:1] in {"x", "w"} and name[1:].isdigit() and int(name[1:]) < 31:
        return f"x{int(name[1:])}", 0
    return None


def float_register(name: str) -> str:
    """Return the vector register that a name is the low bits of, '' for others."""
    known = name[:1] in set("bhsdqv") and name[1:].isdigit() and int(name[1:]) < 32
    return f"v{int(name[1:])}" if known else ""


def is_nop(instruction: int) -> bool:
    """Whether an instruction does nothing for us: `nop`, or a landing pad of branch protection (`bti`, any kind)."""
    return instruction == 0xD503201F or instruction & 0xFFFFFF3F == 0xD503241F


def is_trap(code: bytes) -> bool:
    """Whether code begins with a `brk`; debuggers and the kernel have numbers of their own in it."""
    return len(code) >= 4 and struct.unpack_from("<I", code)[0] & 0xFFE0001F == _BRK


def _skip(code: bytes) -> int:
    if len(code) < 4:
        return 0
    (instruction,) = struct.unpack_from("<I", code)
    if instruction == _RET:
        return RETURN
    return 4 if is_nop(instruction) else 0


def _calls(code: bytes) -> int:
    return 4 if int.from_bytes(code[:4], "little") & ~0x3E0 == _BLR else 0


def _called(code: bytes, back: int) -> int | None:
    word = int.from_bytes(code[-4:], "little")
    return back - 4 + 4 * signed(word & 0x3FFFFFF, 26) if word & 0xFC000000 == _BL else None


def _words(*words: int) -> bytes:
    return struct.pack(f"<{len(words)}I", *words)


_CODE = {name: TEMPLATES[name].code for name in ("call_loop", "ticks", "ticks_a_second", "fence", "skip")}

HOST = Host(
    183, "aarch64",
    Registers(
        _NAMES, "pc", "sp", "x0", "x30", full_register, frozenset({"xzr", "wzr"}),
        _FLOATS, 66, range(0, 64, 2), float_register,  # struct user_fpsimd_state
    ),
    Traps(_words(_BRK), 0, is_trap, _skip, _called, _calls),
    Kernel(
        GENERIC,
        "x8", ("x0", "x1", "x2", "x3", "x4", "x5"), _words(_SVC), {}, True,
        _CODE["call_loop"], ("x19", "x20", "x21", "x22"),
        None,  # the last instruction would have to jump to any address without a register
    ),
    # User space has 36 to 48 bits, and the stack is right below its end. Libraries come from the end down, at most an
    # eighth (arch_mmap_rnd()) and the stack's limit; programs are from two thirds on, and a little more.
    Space(lambda last: 1 << max(36, (last - 1).bit_length()), 13), 4,
    _NT_ARM_TLS,
    # struct pthread ends at the thread pointer (_thread_db_pthread_tid, _thread_db_sizeof_pthread): glibc 2.36, 2.41.
    (208 - 1856, 208 - 1824),
    ticks=_CODE["ticks"],
    ticks_a_second=_CODE["ticks_a_second"],
    skip=_CODE["skip"],
    fence=_CODE["fence"],
)  # fmt: skip
