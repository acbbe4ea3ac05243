"""ptrace(2) on Linux, as far as tracing needs it: calls, registers, and stops named.

Thin on purpose: what to do with a stopped thread is decided elsewhere. All calls must come from one thread, the one
that seized; that is the kernel's rule. Numbers are those of <linux/ptrace.h>; what registers there are is the
matter of `hosts`.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import time
from collections.abc import Callable

from ..record import NamedTuple
from .hosts import HOST

CONT, SINGLESTEP, DETACH, SYSCALL, GETEVENTMSG = 7, 9, 17, 24, 0x4201
GETREGSET, SETREGSET, SEIZE, INTERRUPT, LISTEN = 0x4204, 0x4205, 0x4206, 0x4207, 0x4208
GETSIGMASK, SETSIGMASK, GET_RSEQ_CONFIGURATION = 0x420A, 0x420B, 0x420F
O_TRACESYSGOOD, O_TRACEFORK, O_TRACEVFORK, O_TRACECLONE, O_TRACEEXEC = 1, 2, 4, 8, 0x10
EVENT_FORK, EVENT_VFORK, EVENT_CLONE, EVENT_EXEC, EVENT_STOP = 1, 2, 3, 4, 128
WALL = 0x40000000
_NT_PRSTATUS, _NT_FPREGSET, _NT_ARM_SYSTEM_CALL = 1, 2, 0x404
NAMES = HOST.registers.names
INDEX = {name: index for index, name in enumerate(NAMES)}
# The instruction pointer, the stack pointer, and the result of a system call.
PC, SP, RESULT = (INDEX[name] for name in (HOST.registers.counter, HOST.registers.stack, HOST.registers.result))
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


_Floats = ctypes.c_ulonglong * HOST.registers.float_words
FLOATS = HOST.registers.floats


def float_registers(tid: int) -> list[int]:
    """Return the low 64 bits of each of FLOATS, of a stopped thread. Raises OSError."""
    values = _Floats()
    vector = _Vector(ctypes.addressof(values), ctypes.sizeof(values))
    call(GETREGSET, tid, _NT_FPREGSET, ctypes.addressof(vector))
    return [values[place] for place in HOST.registers.float_places]


def set_registers(tid: int, values: ctypes.Array[ctypes.c_ulonglong]) -> None:
    """Set the registers of a stopped thread. Raises OSError."""
    vector = _Vector(ctypes.addressof(values), ctypes.sizeof(values))
    call(SETREGSET, tid, _NT_PRSTATUS, ctypes.addressof(vector))


def thread_pointer(tid: int) -> int:
    """Return the thread pointer of a stopped thread. Raises OSError."""
    where = HOST.thread_pointer
    if isinstance(where, str):
        return registers(tid)[INDEX[where]]
    value = ctypes.c_ulonglong()
    vector = _Vector(ctypes.addressof(value), ctypes.sizeof(value))
    call(GETREGSET, tid, where, ctypes.addressof(vector))
    return value.value


def event_message(tid: int) -> int:
    """Return what an event stop says: the number of a new thread or process, or of the one that called exec."""
    value = ctypes.c_ulong()
    call(GETEVENTMSG, tid, 0, ctypes.addressof(value))
    return value.value


def skip_call(tid: int) -> None:
    """Let a thread that stands at the start of a system call not make it (aarch64 only). Raises OSError."""
    value = ctypes.c_int(-1)
    vector = _Vector(ctypes.addressof(value), ctypes.sizeof(value))
    call(SETREGSET, tid, _NT_ARM_SYSTEM_CALL, ctypes.addressof(vector))


def signal_mask(tid: int) -> int:
    """Return the signals that a stopped thread blocks."""
    value = ctypes.c_ulonglong()
    call(GETSIGMASK, tid, 8, ctypes.addressof(value))
    return value.value


def set_signal_mask(tid: int, mask: int) -> None:
    """Set the signals that a stopped thread blocks."""
    value = ctypes.c_ulonglong(mask)
    call(SETSIGMASK, tid, 8, ctypes.addressof(value))


class _Rseq(ctypes.Structure):
    _fields_ = (("pointer", ctypes.c_uint64), ("size", ctypes.c_uint32), ("rest", ctypes.c_uint32 * 3))


def rseq(tid: int) -> int:
    """Return where a stopped thread has its `struct rseq` (<linux/rseq.h>), 0 for nowhere or before Linux 5.13."""
    value = _Rseq()
    try:
        call(GET_RSEQ_CONFIGURATION, tid, ctypes.sizeof(value), ctypes.addressof(value))
    except OSError:
        return 0
    return int(value.pointer)


class Stop(NamedTuple):
    """What waitpid says of a thread. Either it ended (`exited`: exit code, negative for a signal), or it stopped: with
    `event` (one of EVENT_...; 0 for none), at a `syscall`, or before a `signal` is delivered to it. `message` is what
    the event says (`event_message`), 0 where nobody has asked; of a process that was forked, `copies` is whether it has
    memory of its own."""

    tid: int
    exited: int | None = None
    event: int = 0
    signal: int = 0
    syscall: bool = False
    message: int = 0
    copies: bool = False


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


def awaited(tid: int, deadline: float, take: Callable[[int, int], Stop | None]) -> Stop | None:
    """Return a thread's next stop, as `take` (`wait` or `look`) says; None if there is none by then (monotonic)."""
    pause = 0.0
    while (stop := take(tid, os.WNOHANG)) is None and time.monotonic() <= deadline:
        time.sleep(pause)
        pause = min(0.001, pause + 0.000005)
    return stop


def first() -> int:
    """Return the first of our children that has stopped or ended, which stays so; 0 if none has."""
    with contextlib.suppress(ChildProcessError):
        seen = os.waitid(os.P_ALL, 0, os.WSTOPPED | os.WEXITED | os.WNOWAIT | os.WNOHANG | WALL)
        return seen.si_pid if seen is not None else 0
    return 0


def look(tid: int, flags: int = 0) -> Stop | None:
    """Wait as `wait` does, for who lets the thread go on by CONT or DETACH before it waits for all again; but where a
    signal is to be delivered, only look.

    Who has waited for such a stop has the signal, and it would be lost if we were killed then; as long as nobody has,
    the kernel delivers it to a thread whose tracer dies (wait_task_stopped(), ptrace_stop() in the kernel).
    """
    which = (os.P_PID, tid) if tid > 0 else (os.P_ALL, 0)
    try:
        seen = os.waitid(*which, os.WSTOPPED | os.WEXITED | os.WNOWAIT | WALL | flags)
    except ChildProcessError:
        return Stop(tid, 0) if tid > 0 else None
    if seen is None:
        return None
    # Those of calls, and with an event, are numbers beyond (`decode`).
    if seen.si_code in {os.CLD_TRAPPED, os.CLD_STOPPED} and seen.si_status < 0x80:
        return Stop(seen.si_pid, signal=seen.si_status)
    return wait(seen.si_pid, flags)
