"""aarch64 Linux: <asm/ptrace.h>, <asm-generic/unistd.h>; encodings from the Arm ARM, C6.2.

The kernel prepares the restart of a system call before it lets a stop be seen: the thread then stands at the `svc`
again, with the first argument in x0 and the number in x8; only where the call goes on with what is left of a timeout
(restart_syscall) the number becomes another one, when the thread goes on (do_signal(), arch/arm64/kernel/signal.c).
"""

from __future__ import annotations

import struct

from .record import RETURN, Host, Kernel, Registers, Space, Traps

_BRK, _SVC, _RET = 0xD4200000, 0xD4000001, 0xD65F03C0
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


def _words(*words: int) -> bytes:
    return struct.pack(f"<{len(words)}I", *words)


# x19: table, x20: how many, x21: results, x22: the word that says that all is done.
_LOOP = _words(
    0xB4000154,  # 1: cbz x20, 2f
    0xF9400268, 0xA9408660, 0xA9418E62, 0xA9429664,  # ldr x8, [x19]; ldp x0, x1, [x19, #8]; x2, x3; x4, x5
    _SVC, 0xF80086A0,  # svc #0; str x0, [x21], #8
    0x9100E273, 0xD1000694, 0x17FFFFF7,  # add x19, x19, #56; sub x20, x20, #1; b 1b
    0xD2800020, 0xC89FFEC0,  # 2: mov x0, #1; stlr x0, [x22]
    0xD503203F, 0x17FFFFFF,  # 3: yield; b 3b
)  # fmt: skip
# 1: ldaxr x4, [x0]; cmp x4, x1; b.ne 2f; stlxr w5, x2, [x0]; cbnz w5, 1b; stlr x2, [x3]; mov w0, #1; ret
# 2: clrex; mov w0, #0; ret
_SKIP = _words(
    0xC85FFC04, 0xEB01009F, 0x540000C1, 0xC805FC02, 0x35FFFF85, 0xC89FFC62, 0x52800020, _RET,
    0xD5033F5F, 0x52800000, _RET,
)  # fmt: skip

HOST = Host(
    183, "aarch64",
    Registers(
        _NAMES, "pc", "sp", "x0", "x30", full_register, frozenset({"xzr", "wzr"}),
        _FLOATS, 66, range(0, 64, 2), float_register,  # struct user_fpsimd_state
    ),
    Kernel(
        {
            "mmap": 222, "close": 57, "madvise": 233, "memfd_create": 279, "pidfd_getfd": 438,
            "getpid": 172, "gettid": 178, "rt_sigprocmask": 135, "clone": 220, "clone3": 435,
        },
        "x8", ("x0", "x1", "x2", "x3", "x4", "x5"), _words(_SVC), {}, True,
        _LOOP, ("x19", "x20", "x21", "x22"),
        None,  # the last instruction would have to jump to any address without a register
    ),
    Traps(_words(_BRK), 0, is_trap, _skip),
    # User space has 36 to 48 bits, and the stack is right below its end. Libraries come from the end down, at most an
    # eighth (arch_mmap_rnd()) and the stack's limit; programs are from two thirds on, and a little more.
    Space(lambda last: 1 << max(36, (last - 1).bit_length()), 13), 4,
    _NT_ARM_TLS,
    # struct pthread ends at the thread pointer (_thread_db_pthread_tid, _thread_db_sizeof_pthread): glibc 2.36, 2.41.
    (208 - 1856, 208 - 1824),
    ticks=_words(0xD53BE040, _RET),  # mrs x0, cntvct_el0
    ticks_a_second=_words(0xD53BE000, _RET),  # mrs x0, cntfrq_el0
    skip=_SKIP,
    fence=_words(0xD5033BBF, _RET),  # dmb ish
)  # fmt: skip
