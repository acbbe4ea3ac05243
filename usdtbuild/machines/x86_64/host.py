"""x86-64 Linux: <sys/user.h>, <asm/unistd_64.h>; the code is in templates.S."""

from __future__ import annotations

from collections.abc import Mapping

from ..calls import signed
from ..host import RETURN, Host, Kernel, Registers, Space, Traps, WayBack
from ..nops import nop_at
from ..numbers import EM_X86_64
from ..templates import Code
from . import INT3, facts
from .templates import TEMPLATES

_NAMES = (  # struct user_regs_struct
    "r15", "r14", "r13", "r12", "rbp", "rbx", "r11", "r10", "r9", "r8", "rax", "rcx", "rdx", "rsi", "rdi", "orig_rax",
    "rip", "cs", "eflags", "rsp", "ss", "fs_base", "gs_base", "ds", "es", "fs", "gs",
)  # fmt: skip
# Their numbers in instructions.
NUMBERS = {
    name: number
    for number, name in enumerate(
        ("rax", "rcx", "rdx", "rbx", "rsp", "rbp", "rsi", "rdi", "r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15")
    )
}
_FLOATS = tuple(f"xmm{number}" for number in range(16))
_ENTRIES = facts()[EM_X86_64].entries(True, True)
_ENDBR64 = b"\xf3\x0f\x1e\xfa"


def full_register(name: str) -> tuple[str, int] | None:
    """Return the 64-bit register that a name is a part of, and how many bits up the part is; None for others."""
    if name in NUMBERS:
        return name, 0
    if name in {"ah", "bh", "ch", "dh"}:
        return f"r{name[0]}x", 8
    if name[:1] == "r" and name[-1:] in {"d", "w", "b"} and name[:-1] in NUMBERS:
        return name[:-1], 0
    if name[:1] == "e" and "r" + name[1:] in NUMBERS:
        return "r" + name[1:], 0
    if "r" + name in NUMBERS:
        return "r" + name, 0
    low = {"al": "rax", "bl": "rbx", "cl": "rcx", "dl": "rdx", "sil": "rsi", "dil": "rdi", "bpl": "rbp", "spl": "rsp"}
    return (low[name], 0) if name in low else None


def _skip(code: bytes) -> int:
    if code[:4] == _ENDBR64:
        return 4
    if code[:1] == b"\xc3":
        return RETURN
    return nop_at(_ENTRIES, code, 0) if _ENTRIES is not None else 0


def _called(code: bytes, back: int) -> int | None:  # call rel32
    return back + signed(int.from_bytes(code[-4:], "little"), 32) if code[-5:-4] == b"\xe8" else None


_CLOBBERED = (
    "rax", "rbx", "rcx", "rdx", "rsi", "rdi", "rbp", "r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15", "rip",
)  # fmt: skip
_NAME_SIZE, _RESTART_SYSCALL = 16, 219
_RESTARTED, _RESTARTED_BY_BLOCK = (-512, -513, -514), -516  # ERESTART..., <linux/errno.h>


_NUMBERS_OF_CALLS = {
    "mmap": 9, "munmap": 11, "close": 3, "madvise": 28, "memfd_create": 319, "pidfd_getfd": 438, "getpid": 39,
    "gettid": 186, "rt_sigprocmask": 14, "clone": 56, "fork": 57, "vfork": 58, "clone3": 435, "flock": 73,
    "tgkill": 234, "futex": 202,
}  # fmt: skip


def _made(name: str) -> bytes:
    made = Code(TEMPLATES)
    made.add(name)
    return made.packed(**_NUMBERS_OF_CALLS)


def _way_back() -> WayBack:
    code, at = _made("way_back"), TEMPLATES["way_back"].labels
    begins, name, file, mask, values = (at[one] for one in ("begins", "name", "file", "mask", "values"))
    return WayBack(code[: at["code_ends"]], len(code), begins, name, file, mask, values, _CLOBBERED, _resumed)


def _resumed(registers: Mapping[str, int]) -> dict[str, int]:
    """See `WayBack`; arch_do_signal_or_restart(), arch/x86/kernel/signal.c."""
    result = registers["rax"] - (registers["rax"] >> 63 << 64)
    resumed = dict(registers)
    if registers["orig_rax"] >> 63 or result not in {*_RESTARTED, _RESTARTED_BY_BLOCK}:
        return resumed
    resumed["rax"] = _RESTART_SYSCALL if result == _RESTARTED_BY_BLOCK else registers["orig_rax"]
    resumed["rip"] -= 2
    return resumed


HOST = Host(
    62, "x86-64",
    Registers(
        _NAMES, "rip", "rsp", "rax", "", full_register, frozenset(),
        # struct user_fpregs_struct, which is what FXSAVE writes: xmm0 is at 160, each has 16 bytes.
        _FLOATS, 64, range(20, 52, 2), lambda name: name if name in _FLOATS else "",
    ),
    Traps(INT3, 1, lambda code: code.startswith(INT3), _skip, _called),
    Kernel(
        _NUMBERS_OF_CALLS,
        "rax", ("rdi", "rsi", "rdx", "r10", "r8", "r9"), b"\x0f\x05", {"orig_rax": (1 << 64) - 1}, False,
        _made("call_loop"), ("r12", "r13", "r14", "r15", "rbx", "rbp"), _way_back(),
    ),
    # With 47 bits: at most a few terabytes below the end (mmap_base(), arch/x86/mm/mmap.c), and programs far below.
    # The highest mapping, [vsyscall], is the kernel's.
    Space(lambda _: 0x7FFFFFFFF000, 14), 1,
    "fs_base",
    (0x2D0, 0x30, 0x38),  # glibc (struct pthread.tid), musl
    ticks=_made("ticks"),
    ticks_a_second=b"",
    skip=_made("skip"),
    fence=b"",
)  # fmt: skip
