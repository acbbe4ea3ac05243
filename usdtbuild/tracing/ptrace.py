"""ptrace(2) for x86-64 Linux, as far as tracing needs it: calls, registers, and stops named.

Thin on purpose: what to do with a stopped thread is decided elsewhere. All calls must come from one thread, the one
that seized; that is the kernel's rule. Numbers are those of <linux/ptrace.h> and <sys/user.h>.
"""

from __future__ import annotations

import ctypes
import os
import signal
from typing import NamedTuple

CONT, SINGLESTEP, DETACH, SYSCALL, GETEVENTMSG = 7, 9, 17, 24, 0x4201
GETREGSET, SETREGSET, SEIZE, INTERRUPT, LISTEN = 0x4204, 0x4205, 0x4206, 0x4207, 0x4208
GETSIGMASK, SETSIGMASK = 0x420A, 0x420B
O_TRACESYSGOOD, O_TRACEFORK, O_TRACEVFORK, O_TRACECLONE, O_TRACEEXEC = 1, 2, 4, 8, 0x10
EVENT_FORK, EVENT_VFORK, EVENT_CLONE, EVENT_EXEC, EVENT_STOP = 1, 2, 3, 4, 128
WALL = 0x40000000
_NT_PRSTATUS, _NT_FPREGSET = 1, 2
# struct user_regs_struct
NAMES = (
    "r15", "r14", "r13", "r12", "rbp", "rbx", "r11", "r10", "r9", "r8", "rax", "rcx", "rdx", "rsi", "rdi", "orig_rax",
    "rip", "cs", "eflags", "rsp", "ss", "fs_base", "gs_base", "ds", "es", "fs", "gs",
)  # fmt: skip
INDEX = {name: index for index, name in enumerate(NAMES)}
RAX, RIP, RSP, ORIG_RAX, FS_BASE = (INDEX[name] for name in ("rax", "rip", "rsp", "orig_rax", "fs_base"))
Registers = ctypes.c_ulonglong * len(NAMES)

_libc = ctypes.CDLL(None, use_errno=True)
_ptrace = _libc.ptrace
_ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
_ptrace.restype = ctypes.c_long


class _Vector(ctypes.Structure):
    _fields_ = (("base", ctypes.c_void_p), ("size", ctypes.c_size_t))


def call(request: int, tid: int, address: int = 0, data: int = 0) -> int:
    """Call ptrace. Raises OSError; ESRCH (ProcessLookupError) also where the thread isn't stopped."""
    result: int = _ptrace(request, tid, address, data)
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


def registers(tid: int) -> ctypes.Array[ctypes.c_ulonglong]:
    """Return the registers of a stopped thread. Raises OSError."""
    values = Registers()
    vector = _Vector(ctypes.addressof(values), ctypes.sizeof(values))
    call(GETREGSET, tid, _NT_PRSTATUS, ctypes.addressof(vector))
    if vector.size != ctypes.sizeof(values):
        raise OSError(0, "the process runs 32-bit code")
    return values


# struct user_fpregs_struct, which is what FXSAVE writes: xmm0 is at 160, each has 16 bytes.
_FXSAVE = ctypes.c_ulonglong * 64
FLOATS = tuple(f"xmm{number}" for number in range(16))


def float_registers(tid: int) -> list[int]:
    """Return the low 64 bits of each of FLOATS, of a stopped thread. Raises OSError."""
    values = _FXSAVE()
    vector = _Vector(ctypes.addressof(values), ctypes.sizeof(values))
    call(GETREGSET, tid, _NT_FPREGSET, ctypes.addressof(vector))
    return values[20:52:2]


def set_registers(tid: int, values: ctypes.Array[ctypes.c_ulonglong]) -> None:
    """Set the registers of a stopped thread. Raises OSError."""
    vector = _Vector(ctypes.addressof(values), ctypes.sizeof(values))
    call(SETREGSET, tid, _NT_PRSTATUS, ctypes.addressof(vector))


def event_message(tid: int) -> int:
    """Return what an event stop says: the number of a new thread or process, or of the one that called exec."""
    value = ctypes.c_ulong()
    call(GETEVENTMSG, tid, 0, ctypes.addressof(value))
    return value.value


def signal_mask(tid: int) -> int:
    """Return the signals that a stopped thread blocks."""
    value = ctypes.c_ulonglong()
    call(GETSIGMASK, tid, 8, ctypes.addressof(value))
    return value.value


def set_signal_mask(tid: int, mask: int) -> None:
    """Set the signals that a stopped thread blocks."""
    value = ctypes.c_ulonglong(mask)
    call(SETSIGMASK, tid, 8, ctypes.addressof(value))


class Stop(NamedTuple):
    """What waitpid says of a thread. Either it ended (`exited`: exit code, negative for a signal), or it stopped: with
    `event` (one of EVENT_...; 0 for none), at a `syscall`, or before a `signal` is delivered to it."""

    tid: int
    exited: int | None = None
    event: int = 0
    signal: int = 0
    syscall: bool = False


def decode(tid: int, status: int) -> Stop:
    """Return what a status of waitpid means, of a thread that was seized with O_TRACESYSGOOD."""
    if os.WIFEXITED(status):
        return Stop(tid, os.WEXITSTATUS(status))
    if os.WIFSIGNALED(status):
        return Stop(tid, -os.WTERMSIG(status))
    number, event = status >> 8 & 0xFF, status >> 16
    if event:
        return Stop(tid, event=event, signal=number)
    if number == signal.SIGTRAP | 0x80:
        return Stop(tid, syscall=True)
    return Stop(tid, signal=number)


def wait(tid: int, flags: int = 0) -> Stop | None:
    """Wait for a thread (-1: any); None where there is nothing (with WNOHANG), or no such thread any more."""
    try:
        found, status = os.waitpid(tid, WALL | flags)
    except ChildProcessError:
        return Stop(tid, 0) if tid > 0 else None
    return decode(found, status) if found else None
