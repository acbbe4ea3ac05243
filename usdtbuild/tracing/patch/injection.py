"""Make a stopped process do system calls for us, and leave its thread exactly as it was.

One of its threads is borrowed: its registers and signal mask are saved, it makes a few system calls one by one, which
give it a page of ours, and then runs the loop on that page, which makes any number of them at full speed. No breakpoint
and no single step is used, because SIGTRAP changes what a process does with that signal. At the end the thread stands
in a seized thread's interrupt, from where the kernel restarts the system call that the thread may have been in.

We may be killed at any moment, and the thread then goes on. Before the way back is written (`way_back`) it has its own
registers and mask. Then, in this order: it gets registers that lead to the way back; all signals are blocked, which the
way back undoes; it makes calls, each of which leaves something mapped or open and no more, and goes that way behind it;
and in the loop it waits for a lock that we hold, so it only gets it by our end. At last its mask is set, and then its
registers: in between it still stands before the way back, which sets the same.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import mmap
import os
import signal
import stat
import struct
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ...errors import reason
from .. import ptrace
from ..errors import RoomTakenError, TracerError
from ..hosts import HOST
from ..maps import PAGE, Memory
from ..model import NAME

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from ..tracees import Thread, Tracees
    from .way_back import Gate

NAME_IN_MAPS = f"/memfd:{NAME}"
_KERNEL = HOST.kernel
MMAP, MUNMAP, CLOSE, MADVISE, MEMFD_CREATE = (
    _KERNEL.numbers[name] for name in ("mmap", "munmap", "close", "madvise", "memfd_create")
)
PROT_READ, PROT_WRITE, PROT_EXEC = 1, 2, 4
MAP_SHARED, MAP_PRIVATE, MAP_FIXED, MAP_ANONYMOUS, MAP_FIXED_NOREPLACE = 1, 2, 0x10, 0x20, 0x100000
MADV_DONTNEED, MADV_WIPEONFORK, MADV_POPULATE_WRITE = 4, 18, 23
_MFD_CLOEXEC, _MFD_ALLOW_SEALING, _MFD_EXEC = 1, 2, 0x10
_EINVAL = -22
_PATIENCE = 10.0
_PUNCH_HOLE_KEEP_SIZE = 3
_fallocate = ctypes.CDLL(None).fallocate
_fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_long, ctypes.c_long]
_system_call = ctypes.CDLL(None, use_errno=True).syscall
_ALL_SIGNALS = (1 << 64) - 1

_TABLE = 128  # where the table stands behind the loop
_HEAD = 64  # where the results stand behind the word that says that all is done


class Call(NamedTuple):
    """One system call: its number and arguments."""

    number: int
    arguments: tuple[int, ...]


def map_call(address: int, size: int, protection: int, flags: int, descriptor: int, offset: int) -> Call:
    """Return the call that maps memory at an address where nothing is yet; with MAP_FIXED, in the place of what is."""
    flags |= 0 if flags & MAP_FIXED else MAP_FIXED_NOREPLACE
    return Call(MMAP, (address, size, protection, flags, descriptor & 0xFFFFFFFFFFFFFFFF, offset))


class Borrowed:
    """A stopped thread that makes system calls; `borrow` gives one."""

    def __init__(self, tracees: Tracees, thread: Thread, gate: Gate) -> None:
        """The thread stands in a stop of any kind. Raises TracerError."""
        self.tracees, self.thread, self.gate = tracees, thread, gate
        self._settle()
        self.base = ptrace.registers(thread.tid)
        self.base[ptrace.PC] = _outside_of_rseq(thread.tid, self.base[ptrace.PC], gate.memory)
        self.mask = ptrace.signal_mask(thread.tid)

    def _settle(self) -> None:
        """Bring the thread from any stop to that of an interrupt, with which it has nothing left behind: neither a
        signal that it has yet to get, nor a system call that has yet to return. Raises TracerError."""
        tid = self.thread.tid
        while True:
            owed, self.thread.owed = self.thread.owed, 0
            ptrace.call(ptrace.INTERRUPT, tid)
            ptrace.call(ptrace.CONT, tid, 0, owed)
            if self.thread.lent_to:
                self.tracees.let_borrower_go(self.thread)
            stop = self._next(ptrace.look)
            if stop is None or stop.exited is not None:
                raise self._lost(stop)
            self.tracees.note(self.thread, stop)
            if self.thread.listening:
                raise _is_stopped(self.thread)
            if stop.event == ptrace.EVENT_STOP:
                return

    def _next(self, wait: Callable[[int, int], ptrace.Stop | None]) -> ptrace.Stop | None:
        """Wait for the thread's next stop; None if it doesn't stop."""
        return ptrace.awaited(self.thread.tid, time.monotonic() + self.tracees.patience(_PATIENCE), wait)

    def call(self, number: int, *arguments: int) -> int:
        """Make one system call; return its result, negative for an error. Raises TracerError."""
        self._start(self.gate.address, {_KERNEL.number: number, **dict(zip(_KERNEL.arguments, arguments))})
        for _ in range(2):  # into the call, and out of it
            self._to_edge_of_call()
        result = ptrace.registers(self.thread.tid)[ptrace.RESULT]
        self.interrupt()
        return result - (1 << 64) if result >> 63 else result

    def _to_edge_of_call(self) -> None:
        ptrace.call(ptrace.SYSCALL, self.thread.tid)
        stop = self._next(ptrace.wait)
        if stop is None or not stop.syscall:
            raise self._lost(stop)

    def run(self, code: int, registers: Mapping[str, int]) -> None:
        """Let the thread run at an address, with registers set. Raises OSError."""
        self._start(code, registers)
        ptrace.call(ptrace.CONT, self.thread.tid)

    def stand_at(self, code: int) -> None:
        """Let the thread go on at an address when it goes on. Raises OSError."""
        self._start(code, {})

    def _start(self, code: int, registers: Mapping[str, int]) -> None:
        values = ptrace.Registers(*self.base)
        values[ptrace.PC] = code
        for name, value in (*_KERNEL.idle.items(), *registers.items()):
            values[ptrace.INDEX[name]] = value & 0xFFFFFFFFFFFFFFFF
        ptrace.set_registers(self.thread.tid, values)

    def interrupt(self, *, running: bool = False) -> None:
        """Bring the thread to a stop in which the kernel looks at its registers again. Raises TracerError."""
        while True:
            ptrace.call(ptrace.INTERRUPT, self.thread.tid)
            if not running:  # a thread that runs may have stopped already, and must not be sent on
                ptrace.call(ptrace.CONT, self.thread.tid)
            stop = self._next(ptrace.wait)
            if stop is None or stop.exited is not None:
                raise self._lost(stop)
            if stop.event == ptrace.EVENT_STOP:
                return
            if stop.signal and not stop.event and not stop.syscall:
                self.thread.owed = stop.signal  # SIGSTOP, which can't be blocked
            running = False  # any other stop has taken the interrupt with it (ptrace_stop in kernel/signal.c)

    def take_restart(self, memory: Memory) -> None:
        """Let a thread that stands at a system call get into it, to see with which number the kernel restarts it, and
        out of it again before anything is done; at the end it stands before the call with that number.

        One that hasn't made the call yet gets into it with the number that it has. Raises TracerError.
        """
        if memory.read(self.base[ptrace.PC], len(_KERNEL.instruction)) != _KERNEL.instruction:
            return
        self._to_edge_of_call()
        self.base[ptrace.INDEX[_KERNEL.number]] = ptrace.registers(self.thread.tid)[ptrace.INDEX[_KERNEL.number]]
        ptrace.skip_call(self.thread.tid)
        self.interrupt()

    def _lost(self, stop: ptrace.Stop | None) -> TracerError:
        if stop is not None and stop.exited is not None:
            self.tracees.forget(self.thread.tid, stop.exited)
            return TracerError(f"process {self.thread.pid} ended while it was prepared (seccomp, or a signal?)")
        why = f"signal {stop.signal} comes in between" if stop is not None else "it doesn't stop"
        return TracerError(f"thread {self.thread.tid} of process {self.thread.pid} can't be controlled: {why}")


@contextlib.contextmanager
def borrow(tracees: Tracees, thread: Thread, gate: Gate, memory: Memory) -> Iterator[Borrowed]:
    """Borrow a stopped thread; afterwards it is as it was. Raises TracerError."""
    if thread.listening:
        raise _is_stopped(thread)
    borrowed = Borrowed(tracees, thread, gate)
    try:
        gate.lay(borrowed.base, borrowed.mask)
    except OSError as error:
        raise TracerError(f"process {thread.pid} can't be changed: {reason(error)}") from None
    try:
        if gate.way_back:
            borrowed.stand_at(gate.way_back)
        ptrace.set_signal_mask(thread.tid, _ALL_SIGNALS)
        if _KERNEL.restarts:
            borrowed.take_restart(memory)
        yield borrowed
    finally:
        if thread.tid in tracees.threads:
            ptrace.set_signal_mask(thread.tid, borrowed.mask)
            ptrace.set_registers(thread.tid, borrowed.base)
            gate.clear()
            if thread.owed == signal.SIGSTOP:  # it can't be had in this kind of stop any more
                thread.owed = 0
                os.kill(thread.pid, signal.SIGSTOP)


def _outside_of_rseq(tid: int, at: int, memory: Memory) -> int:
    """Return where a stopped thread goes on: within a restartable sequence, where that is to be begun again.

    The kernel sees to that when a thread goes on that was stopped in one, but not if it does something else first:
    then it has left the sequence, as far as the kernel knows (rseq_ip_fixup() in kernel/rseq.c).
    """
    found = ptrace.rseq(tid)
    described = memory.word(found + 8) if found else 0
    fields = memory.read(described, 32) if described else b""
    if len(fields) < 32:
        return at
    _, start, length, begun_again = struct.unpack("<4Q", fields)
    return int(begun_again) if 0 <= at - start < length else at


def _is_stopped(thread: Thread) -> TracerError:
    return TracerError(f"process {thread.pid} is stopped (job control); let it go on first: kill -CONT {thread.pid}")


class Shared:
    """A file in memory that a process and we have open: first its own control pages, then what the layout wants."""

    def __init__(self, borrowed: Borrowed, size: int) -> None:
        """Make it in the process, and open it here. Raises TracerError."""
        self.size = size
        pid = borrowed.thread.pid
        with _name(borrowed) as name:
            flags = _MFD_CLOEXEC | _MFD_ALLOW_SEALING
            descriptor = borrowed.call(MEMFD_CREATE, name, flags | _MFD_EXEC)
            if descriptor == _EINVAL:  # before Linux 6.3 all of them may be executed
                descriptor = borrowed.call(MEMFD_CREATE, name, flags)
        if descriptor < 0:
            raise TracerError(f"process {pid} can't make shared memory (memfd_create: {os.strerror(-descriptor)})")
        self.descriptor = descriptor
        borrowed.gate.will_close(descriptor)
        self.file = -1
        try:
            self.file = _taken_over(pid, descriptor)
            fcntl.flock(self.file, fcntl.LOCK_EX)  # what the loop waits for
            os.ftruncate(self.file, size)
            # The process can't cut it short under us, which would end us by SIGBUS, or make it cost more memory.
            fcntl.fcntl(self.file, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
            if os.fstat(self.file).st_size != size:
                raise OSError(errno.EBUSY, "its size was changed at the same time")
            self.data = mmap.mmap(self.file, size)
        except OSError as error:  # our limits of open files, of their size (ulimit -f), of memory
            if self.file >= 0:
                os.close(self.file)
            self.close_there(borrowed)
            what = f"{-(-size >> 20)} MB of memory can't be shared with process {pid}"
            raise TracerError(f"{what}: {reason(error)}") from None
        self.inode = os.fstat(self.file).st_ino

    def close_there(self, borrowed: Borrowed) -> None:
        """Let the process close its side; what is mapped stays. Raises TracerError."""
        # First: the number may be another file's when the way back is taken.
        borrowed.gate.will_close(-1)
        borrowed.call(CLOSE, self.descriptor)

    def give(self, start: int, size: int) -> bool:
        """Give memory to a part of the file, which counts as ours, not as the process'; False: there is none."""
        try:
            os.posix_fallocate(self.file, start, size)
        except OSError:
            return False
        return True

    def empty(self, start: int, size: int) -> None:
        """Give a part of the file's memory back. Who still writes there finds zeros, and gets new memory."""
        _fallocate(self.file, _PUNCH_HOLE_KEEP_SIZE, start, size)

    def close(self) -> None:
        """Close our side."""
        with contextlib.suppress(BufferError):
            self.data.close()
        os.close(self.file)


def _taken_over(pid: int, number: int) -> int:
    """Return a descriptor of our own for the memory file that a process has just made as its `number`.

    The number may be something else by now: a process that shares its descriptors with the stopped one, and is not
    traced, can put any file there. So nothing is opened by a path that the process controls. pidfd_getfd(2) copies a
    descriptor without opening the file. What it copied is ours only if it is what we asked for: a memory file, empty,
    which can still be sealed and has our name. Such a file can do no harm, whoever made it. It is then opened again
    through our own table of descriptors, because the lock that the loop waits for belongs to an opened file, and the
    process has the other one.

    Raises OSError.
    """
    process = os.pidfd_open(pid)
    try:
        copied = _system_call(_KERNEL.numbers["pidfd_getfd"], process, number, 0)
        if copied < 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    finally:
        os.close(process)
    ours = f"/proc/self/fd/{copied}"
    try:
        status = os.fstat(copied)
        # F_GET_SEALS fails for what is no file in memory, and is F_SEAL_SEAL for files of tmpfs.
        is_ours = (
            stat.S_ISREG(status.st_mode)
            and (status.st_nlink, status.st_size) == (0, 0)
            and str(Path(ours).readlink()) == f"{NAME_IN_MAPS} (deleted)"
            and fcntl.fcntl(copied, fcntl.F_GET_SEALS) == 0
        )
        if not is_ours:
            raise OSError(errno.EINVAL, "it is another file than the one that was made for us")
        return os.open(ours, os.O_RDWR | os.O_CLOEXEC)
    finally:
        os.close(copied)


@contextlib.contextmanager
def _name(borrowed: Borrowed) -> Iterator[int]:
    """Give the address of our name in the process; where nothing of ours is there yet, on the thread's stack."""
    if borrowed.gate.name:
        yield borrowed.gate.name
        return
    memory, stack = borrowed.gate.memory, (borrowed.base[ptrace.SP] - 4096) & -16
    kept = memory.read(stack, 32)
    memory.write(stack, NAME.encode() + b"\0")
    try:
        yield stack
    finally:
        if kept:
            memory.write(stack, kept)


def control_size(calls: int) -> int:
    """Return how many bytes the control pages need for a number of calls."""
    return _pages(_TABLE + 56 * calls) + _pages(_HEAD + 8 * calls)


def perform(
    borrowed: Borrowed, shared: Shared, offset: int, calls: Sequence[Call], address: int, *, fixed: int
) -> list[int]:
    """Make system calls at full speed, by way of control pages; return the results.

    The pages are at an offset of the shared file, and at an address where nothing is (`fixed`: MAP_FIXED_NOREPLACE), or
    where those of an earlier trace are, which nobody is in any more (MAP_FIXED).
    The control pages stay mapped: nothing tells when nobody is in them, and they are few. Raises TracerError.
    """
    table = offset + _TABLE
    for index, one in enumerate(calls):
        arguments = (*one.arguments, 0, 0, 0, 0, 0, 0)[:6]
        words = [word & 0xFFFFFFFFFFFFFFFF for word in (one.number, *arguments)]
        struct.pack_into("<7Q", shared.data, table + 56 * index, *words)
    shared.data[offset : offset + len(_KERNEL.loop)] = _KERNEL.loop
    code_size = _pages(_TABLE + 56 * len(calls))
    results_size = _pages(_HEAD + 8 * len(calls))
    private, common = MAP_PRIVATE | fixed, MAP_SHARED | fixed
    code = borrowed.call(MMAP, address, code_size, PROT_READ | PROT_EXEC, private, shared.descriptor, offset)
    if -PAGE < code < 0:
        kind = RoomTakenError if -code == errno.EEXIST else TracerError
        raise kind(f"process {borrowed.thread.pid} may not map code (mmap: {os.strerror(-code)})")
    results_at = offset + code_size
    behind = address + code_size
    results = borrowed.call(MMAP, behind, results_size, PROT_READ | PROT_WRITE, common, shared.descriptor, results_at)
    if -PAGE < results < 0:
        kind = RoomTakenError if -results == errno.EEXIST else TracerError
        raise kind(f"process {borrowed.thread.pid} can't map memory (mmap: {os.strerror(-results)})")
    struct.pack_into("<Q", shared.data, results_at, 0)
    values = (code + _TABLE, len(calls), results + _HEAD, results, borrowed.gate.way_back, shared.descriptor)
    borrowed.run(code, dict(zip(_KERNEL.loop_registers, values)))
    deadline = time.monotonic() + borrowed.tracees.patience(_PATIENCE)
    while not struct.unpack_from("<Q", shared.data, results_at)[0]:
        if time.monotonic() > deadline:
            break
        time.sleep(0.00002)
    done = struct.unpack_from("<Q", shared.data, results_at)[0]
    borrowed.interrupt(running=True)
    if not done:
        raise TracerError(f"process {borrowed.thread.pid} doesn't make the system calls that it should")
    start = results_at + _HEAD
    return [value for (value,) in struct.iter_unpack("<q", shared.data[start : start + 8 * len(calls)])]


def _pages(size: int) -> int:
    return -(-size // PAGE) * PAGE
