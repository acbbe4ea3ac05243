"""x86-64 Linux: <sys/user.h>, <asm/unistd_64.h>; encodings from Intel's manual, volume 2."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from ...machines.x86_64 import INT3
from .record import RETURN, Host, Kernel, Registers, Space, Traps, WayBack

if TYPE_CHECKING:
    from collections.abc import Mapping

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
    from ..patch.forms import nop_length

    if code[:4] == _ENDBR64:
        return 4
    if code[:1] == b"\xc3":
        return RETURN
    nop = nop_length(code)
    return nop[0] if nop is not None else 0


# r12: table, r13: how many, r14: results, r15: the word that says that all is done, rbx: the way back, ebp: the file.
# Flags stay what they are, because the way back has none to load.
_LOOP = bytes.fromhex(
    "4c 89 e9 e3 36"  # 1: mov %r13,%rcx; jrcxz 2f
    "49 8b 04 24 49 8b 7c 24 08 49 8b 74 24 10"  # mov (%r12),%rax; mov 8(%r12),%rdi; mov 16(%r12),%rsi
    "49 8b 54 24 18 4d 8b 54 24 20 4d 8b 44 24 28 4d 8b 4c 24 30"  # rdx, r10, r8, r9
    "0f 05 49 89 06"  # syscall; mov %rax,(%r14)
    "4d 8d 64 24 38 4d 8d 76 08 4d 8d 6d ff"  # lea 56(%r12),%r12; lea 8(%r14),%r14; lea -1(%r13),%r13
    "eb c5"  # jmp 1b
    "49 c7 07 01 00 00 00"  # 2: movq $1,(%r15)
    "b8 49 00 00 00 89 ef be 02 00 00 00 0f 05"  # mov $73,%eax (flock); mov %ebp,%edi; mov $2,%esi (LOCK_EX); syscall
    "ff e3"  # jmp *%rbx
)
_CLOBBERED = (
    "rax", "rbx", "rcx", "rdx", "rsi", "rdi", "rbp", "r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15", "rip",
)  # fmt: skip
_NAME_SIZE, _RESTART_SYSCALL = 16, 219
_RESTARTED, _RESTARTED_BY_BLOCK = (-512, -513, -514), -516  # ERESTART..., <linux/errno.h>


def _way_back() -> WayBack:
    """Return the code, with the distances of its data, all from the instruction pointer on."""
    parts = (
        ("0f 05", ""),  # syscall
        ("8b 3d", "file"), ("b8 03 00 00 00 0f 05", ""),  # mov file(%rip),%edi; mov $3,%eax (close); syscall
        ("48 8d 35", "mask"),  # lea mask(%rip),%rsi
        # mov $14,%eax (rt_sigprocmask); mov $2,%edi (SIG_SETMASK); mov $0,%edx; mov $8,%r10d; syscall
        ("b8 0e 00 00 00 bf 02 00 00 00 ba 00 00 00 00 41 ba 08 00 00 00 0f 05", ""),
        # mov value(%rip),%register
        *(
            (f"{0x48 | NUMBERS[name] >> 3 << 2:02x} 8b {(NUMBERS[name] & 7) << 3 | 5:02x}", name)
            for name in _CLOBBERED[:-1]
        ),
        ("ff 25", "rip"),  # jmp *value(%rip)
    )  # fmt: skip
    size = sum(len(bytes.fromhex(code)) + (4 if data else 0) for code, data in parts)
    name = -(-size // 16) * 16
    file, mask, values = name + _NAME_SIZE, name + _NAME_SIZE + 8, name + _NAME_SIZE + 16
    at = {"file": file, "mask": mask, **{one: values + 8 * index for index, one in enumerate(_CLOBBERED)}}
    made = b""
    for code, data in parts:
        made += bytes.fromhex(code)
        if data:
            made += struct.pack("<i", at[data] - len(made) - 4)
    return WayBack(made, values + 8 * len(_CLOBBERED), 2, name, file, mask, values, _CLOBBERED, _resumed)


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
    Kernel(
        {
            "mmap": 9, "close": 3, "madvise": 28, "memfd_create": 319, "pidfd_getfd": 438, "getpid": 39, "gettid": 186,
            "rt_sigprocmask": 14, "clone": 56, "vfork": 58, "clone3": 435,
        },
        "rax", ("rdi", "rsi", "rdx", "r10", "r8", "r9"), b"\x0f\x05", {"orig_rax": (1 << 64) - 1}, False,
        _LOOP, ("r12", "r13", "r14", "r15", "rbx", "rbp"), _way_back(),
    ),
    Traps(INT3, 1, lambda code: code.startswith(INT3), _skip),
    # With 47 bits: at most a few terabytes below the end (mmap_base(), arch/x86/mm/mmap.c), and programs far below.
    # The highest mapping, [vsyscall], is the kernel's.
    Space(lambda _: 0x7FFFFFFFF000, 14), 1,
    "fs_base",
    (0x2D0, 0x30, 0x38),  # glibc (struct pthread.tid), musl
    ticks=bytes.fromhex("0f 31 48 c1 e2 20 48 09 d0 c3"),  # rdtsc; shl $32,%rdx; or %rdx,%rax; ret
    ticks_a_second=b"",
    # mov %rsi,%rax; lock cmpxchg %rdx,(%rdi); jne 1f; mov %rdx,(%rcx); 1: sete %al; movzbl %al,%eax; ret
    skip=bytes.fromhex("48 89 f0 f0 48 0f b1 17 75 03 48 89 11 0f 94 c0 0f b6 c0 c3"),
    fence=b"",
)  # fmt: skip
