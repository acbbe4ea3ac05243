"""Threads that we trace: seize them, stop them all, let them go, without losing a signal that is on its way.

The invariant: of each thread in `threads` we know whether it is stopped, and which signal it is owed. Whoever stops
threads resumes or detaches them. A thread that hangs in the kernel (a parent in vfork, a device) can't be stopped; it
runs no code of the program meanwhile, so it is left alone and counted as `late`.
"""

from __future__ import annotations

import contextlib
import errno
import math
import os
import pwd
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from ..errors import reason
from ..text import one_line
from . import ptrace
from .errors import RIGHTS, LateError, TracerError
from .hosts import HOST
from .maps import Memory
from .running import numbers, stat_fields, status_field

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_OPTIONS = ptrace.O_TRACESYSGOOD
FOLLOW = ptrace.O_TRACEFORK | ptrace.O_TRACEVFORK | ptrace.O_TRACECLONE | ptrace.O_TRACEEXEC
# How long to wait for a thread to stop, in seconds, before it is taken for one that hangs in the kernel.
_PATIENCE = 0.3
# How long a process may be in a vfork that began before it was seized, in seconds, until it is left alone.
_VFORK_PATIENCE = 1.0
_LEAST = 1.0
_TURN = 0.005  # seconds that stops may take more than what they interrupt, before that has its turn
# The calls that start a process, of which a machine may lack some, and flags (<linux/sched.h>).
_CALLS = ("fork", "vfork", "clone", "clone3")
_SYS_FORK, _SYS_VFORK, _SYS_CLONE, _SYS_CLONE3 = (
    HOST.kernel.numbers.get(name, -1 - at) for at, name in enumerate(_CALLS)
)
_CLONE_VM, _CLONE_VFORK = 0x100, 0x4000
WORKER = "usdtbuild-trace"  # what our process that traces is called
_GROUP_STOPS = {signal.SIGSTOP, signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU}


class Thread:
    """A seized thread. `owed` is the signal that it gets when it goes on; `listening`: in a stop of job control.
    `lent_to` is the child of a vfork that it waits for when it goes on, 0 for none."""

    __slots__ = ("lent_to", "listening", "owed", "pid", "since", "stopped", "tid", "trapped")

    def __init__(self, tid: int, pid: int) -> None:
        self.tid, self.pid = tid, pid
        self.stopped = self.listening = False
        self.owed = self.lent_to = 0
        self.since = 0  # when it has stopped
        self.trapped = False  # it has run into a breakpoint, or tells something, that nobody has handled yet


def thread_ids(pid: int) -> list[int]:
    """Return the threads of a process; none if it has ended."""
    with contextlib.suppress(OSError):
        return [int(path.name) for path in Path(f"/proc/{pid}/task").iterdir()]
    return []


class _Turns:
    """Lets stops have half of the time at most, and what they interrupt the rest, where both want all of it."""

    def __init__(self) -> None:
        self.next = 0.0  # when stops have their turn again
        self._even = 0.0  # when what they interrupt will have had as much time as they took
        self._began = 0.0

    def begin(self) -> float:
        """Begin with some; return until when they may go on."""
        self._began = time.monotonic()
        return self._began + _TURN

    def are_over(self) -> bool:
        """Count what was begun, and is done; return whether others have to wait for a while."""
        now = time.monotonic()
        self._even = max(self._even, self._began) + 2 * (now - self._began)
        if self._even <= now + _TURN:
            return False
        self.next = self._even
        return True


class Tracees:
    """All threads that this process has seized."""

    def __init__(self) -> None:
        self.threads: dict[int, Thread] = {}
        self.processes: set[int] = set()  # all that ever were among them
        self.ended: dict[int, int] = {}  # processes that ended, and how
        self.names: dict[int, str] = {}  # threads that have ended
        self.gone: list[int] = []  # those that have since somebody has emptied this
        self.unseen: list[ptrace.Stop] = []  # what happened while something else was waited for
        self.astray: Callable[[Thread], bool] = lambda _: False  # whether a fault is due to us, and made good by now
        self.tells: Callable[[Thread], bool] = lambda _: False  # whether it has stopped to tell us something
        self.stop_cost = 0  # nanoseconds that a stop takes beyond what we see of it, if it was measured
        self.keeps_stood = False  # whether anybody asks for `stood`
        self.stood: list[tuple[int, int, int]] = []  # thread, since when, and for how long: stops that are over
        self.stood_still = 0.0  # seconds that processes stood for somebody's `standing`
        self.calm = False  # nothing is half done, so whoever hears that the front is gone may leave off
        self.is_called = False  # the front has said something, or is gone
        self.has_news = False  # a thread has stopped, or a child has ended
        self.has_served = False  # such threads were met since somebody has looked through `unseen`
        self.meanwhile: Callable[[float], object] = int  # takes the stops that there are, until then
        self.look: Callable[[], object] = int  # looks at that
        self.until = math.inf  # when nothing more is begun, of the monotonic clock
        self._inner = 0
        self._turns = _Turns()

    def of(self, pid: int) -> list[Thread]:
        """Return the seized threads of a process."""
        return [thread for thread in self.threads.values() if thread.pid == pid]

    def add(self, tid: int, pid: int) -> Thread:
        """Return the record of a thread that the kernel has seized for us, as a child of one that was."""
        if tid not in self.threads:
            self.threads[tid] = Thread(tid, pid)
            self.processes.add(pid)
        return self.threads[tid]

    # -- seizing and stopping ----------------------------------------------------------------------------------------

    def seize(self, pid: int, options: int = 0) -> None:
        """Seize all threads of a process; they run on. Raises TracerError."""
        self.processes.add(pid)
        while True:
            new = [tid for tid in thread_ids(pid) if tid not in self.threads]
            taken = 0
            for tid in new:
                try:
                    ptrace.call(ptrace.SEIZE, tid, 0, _OPTIONS | options)
                except OSError as error:
                    # A thread that has just ended, or a leader that has ended before the others (a zombie).
                    if error.errno == errno.ESRCH or status_field(tid, "State")[:1] in {"", "Z", "X"}:
                        continue
                    # One that a seized thread has started since: the kernel has seized it for us.
                    if not self.has(tid):
                        raise not_allowed(pid, error) from None
                self.threads[tid] = Thread(tid, pid)
                taken += 1
            if not taken:
                break
        if not self.of(pid):
            raise TracerError(f"process {pid} has ended")

    def stop(self, pid: int) -> list[Thread]:
        """Stop all threads of a seized process, those too that it starts meanwhile; return those that stand."""
        deadline = time.monotonic() + _PATIENCE
        while True:
            running = [thread for thread in self.of(pid) if not thread.stopped]
            for thread in running:
                with contextlib.suppress(OSError):
                    ptrace.call(ptrace.INTERRUPT, thread.tid)
            late = [thread for thread in running if not self.has_stopped(thread, deadline)]
            before = len(self.of(pid))
            with contextlib.suppress(TracerError):
                self.seize(pid, 0)
            if len(self.of(pid)) == before and len(late) == len([t for t in self.of(pid) if not t.stopped]):
                return [thread for thread in self.of(pid) if thread.stopped]

    def wait_for_vforks(self, pid: int) -> None:
        """Wait until no thread of a seized process that runs is in a vfork any more. Raises TracerError."""
        deadline = time.monotonic() + _VFORK_PATIENCE
        while any(_in_vfork(thread) for thread in self.of(pid)):
            if time.monotonic() > deadline:
                raise TracerError(
                    f"process {pid} has started another that still runs in its memory (vfork), and must not see it"
                    " change; trace it when that one has ended or become a program of its own"
                )
            time.sleep(0.002)

    def has_stopped(self, thread: Thread, deadline: float | None = None) -> bool:
        """Wait for one thread; return whether it stands (or has ended)."""
        stop = ptrace.awaited(thread.tid, deadline or time.monotonic() + _PATIENCE, ptrace.look)
        if stop is not None and stop.exited is not None:
            self.forget(thread.tid, stop.exited)
        elif stop is not None:
            self.note(thread, stop)
        return stop is not None

    def let_borrower_go(self, thread: Thread) -> None:
        """Let the child of a vfork run that a thread waits for, from where the kernel has stopped it for us."""
        child = self.add(thread.lent_to, thread.lent_to)
        if self.has_stopped(child):
            self.resume(child)

    def note(self, thread: Thread, stop: ptrace.Stop) -> None:
        """Remember that a thread has stopped, and what it is owed."""
        if not thread.stopped:
            thread.since = time.monotonic_ns()
        thread.stopped = True
        thread.listening = stop.event == ptrace.EVENT_STOP and stop.signal in _GROUP_STOPS
        if stop.event and stop.event != ptrace.EVENT_STOP:
            with contextlib.suppress(OSError):  # it may go on before anybody has time for this
                stop = stop._replace(message=ptrace.event_message(thread.tid))
            if stop.event == ptrace.EVENT_FORK:  # the call's words are there only now
                stop = stop._replace(copies=not _clone_flags(thread, _CLONE_VM) & _CLONE_VM)
            self.unseen.append(stop)
        thread.lent_to = stop.message if stop.event == ptrace.EVENT_VFORK else 0
        if not stop.event and not stop.syscall and stop.signal:
            if stop.signal == signal.SIGTRAP or (stop.signal == signal.SIGURG and self.tells(thread)):
                thread.trapped = True
            else:
                thread.owed = stop.signal

    def untold(self) -> list[int]:
        """Return processes that the kernel has seized for us, and nobody has told of: who forked them was killed."""
        return [one for one in numbers() if one not in self.threads and self.has(one)]

    @staticmethod
    def has(tid: int) -> bool:
        """Whether the kernel holds a thread for us."""
        return status_field(tid, "TracerPid") == str(os.getpid())

    def forget(self, tid: int, code: int) -> None:
        """A thread has ended."""
        self.names.setdefault(tid, "")
        self.gone.append(tid)
        thread = self.threads.pop(tid, None)
        if thread is not None and tid == thread.pid:
            self.ended[tid] = code

    # -- letting go --------------------------------------------------------------------------------------------------

    def resume(self, thread: Thread) -> None:
        """Let a stopped thread go on, with the signal that it is owed."""
        if not thread.stopped:
            return
        owed, thread.owed = self._owed(thread), 0
        thread.stopped = False
        if self.keeps_stood:
            self.stood.append((thread.tid, thread.since, time.monotonic_ns() - thread.since + self.stop_cost))
        with contextlib.suppress(OSError):
            if thread.listening and not owed:
                ptrace.call(ptrace.LISTEN, thread.tid)
            else:
                ptrace.call(ptrace.CONT, thread.tid, 0, owed)

    def _owed(self, thread: Thread) -> int:
        return 0 if thread.owed == signal.SIGSEGV and self.astray(thread) else thread.owed

    def detach(self, pid: int) -> None:
        """Let go of all stopped threads of a process for good; the others are let go when they stop."""
        for thread in self.of(pid):
            if thread.stopped:
                with contextlib.suppress(OSError):
                    ptrace.call(ptrace.DETACH, thread.tid, 0, self._owed(thread))
                del self.threads[thread.tid]

    def detach_late(self) -> None:
        """Let go of threads that were late, as they stop."""
        for thread in list(self.threads.values()):
            stop = ptrace.look(thread.tid, os.WNOHANG)
            if stop is not None and stop.exited is not None:
                self.forget(thread.tid, stop.exited)
            elif stop is not None:
                self.note(thread, stop)
                self.detach(thread.pid)

    def has_become_another(self, pid: int) -> bool:
        """Whether a process has called exec, and nobody knows yet: of what it was nothing is there any more."""
        return any(
            stop.event == ptrace.EVENT_EXEC and stop.tid in self.threads and self.threads[stop.tid].pid == pid
            for stop in self.unseen
        )

    def trapped(self, pid: int) -> Iterator[Thread]:
        """Yield the standing threads of a process that have run into a breakpoint, without our knowing yet."""
        for thread in self.of(pid):
            if thread.stopped and not thread.trapped:
                self.take_pending(thread)
            if thread.stopped and thread.trapped:
                yield thread

    def take_pending(self, thread: Thread) -> None:
        """Let a stopped thread go on to the stop of a trap that it has run into already, if there is one.

        The kernel reports an interrupt before a trap that was there first; the trap must not be forgotten.
        """
        pending = status_field(thread.tid, "SigPnd")
        if thread.listening or not pending or not int(pending, 16) >> (signal.SIGTRAP - 1) & 1:
            return
        owed, thread.owed = thread.owed, 0
        with contextlib.suppress(OSError):
            ptrace.call(ptrace.CONT, thread.tid)
            thread.stopped = False
            self.has_stopped(thread)
        thread.owed = thread.owed or owed

    @contextlib.contextmanager
    def standing(self, pid: int) -> Iterator[list[Thread]]:
        """Stop all threads of a seized process for the body of the `with`; those that stood before stand after."""
        calm, self.calm = self.calm, False
        started = time.monotonic()
        before = {thread.tid for thread in self.of(pid) if thread.stopped}
        stopped = self.stop(pid)
        self._inner += 1
        try:
            yield stopped
        finally:
            self._inner -= 1
            self.stood_still += time.monotonic() - started if not self._inner else 0.0
            for thread in self.of(pid):
                # A child of vfork stands until somebody handles `unseen`, and without it nobody could stop its parent.
                if thread.tid not in before and not thread.trapped and not thread.lent_to:
                    self.resume(thread)
            self.calm, self.has_news = calm, True
            self.serve()

    def limit(self, seconds: float) -> None:
        """Let nothing begin when so much time is over, counted from now, or from when this was said first."""
        if seconds < self.until - time.monotonic():
            self.until = time.monotonic() + seconds
            signal.signal(signal.SIGALRM, self._alarm)
            self._wake(self.until)

    def _alarm(self, *_: object) -> None:
        if time.monotonic() < self.until:
            self._wake(self.until)
            self.serve()
        elif self.calm:
            self._end_late()

    def _wake(self, at: float) -> None:
        """Let an alarm come at a time, or when nothing more may begin."""
        seconds = min(at, self.until) - time.monotonic()
        signal.setitimer(signal.ITIMER_REAL, max(seconds, 1e-6) if seconds < math.inf else 0)

    def _end_late(self) -> NoReturn:
        """Leave off. Whoever puts things back then isn't interrupted again."""
        self.calm = False
        raise LateError

    def patience(self, usual: float) -> float:
        """Return how many seconds to wait for what takes up to `usual` ones: hardly longer than the trace may take."""
        return min(usual, max(self.until - time.monotonic(), 0.0) + _LEAST)

    def in_time(self) -> None:
        """Raise LateError if it is too late to begin anything, UnwantedError if nobody wants it any more."""
        calm = self.calm
        while self.is_called:
            self.is_called = self.calm = False  # a call that comes meanwhile is looked at afterwards
            self.look()
            self.calm = calm
        if time.monotonic() > self.until:
            self._end_late()

    @contextlib.contextmanager
    def calmly(self) -> Iterator[None]:
        """Let the body of the `with` end by UnwantedError if the front goes, and by LateError if it takes too long,
        except where processes stand; and let threads go on that stop for reasons of their own (`meanwhile`)."""
        self.calm = self.has_news = True
        signal.signal(signal.SIGALRM, self._alarm)
        signal.signal(signal.SIGCHLD, self._child_has_news)
        mask = signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})
        try:
            self.serve()
            self.in_time()
            yield
        finally:
            try:
                self.calm = False
            finally:
                signal.pthread_sigmask(signal.SIG_SETMASK, mask)

    def _child_has_news(self, *_: object) -> None:
        self.has_news = True
        self.serve()

    def serve(self) -> None:
        """Take the stops that there are, if nothing is half done. Where they come without end, as from breakpoints that
        are hit all the time, what they interrupt goes on for as long as they took."""
        if self.calm and self.has_news and time.monotonic() < self._turns.next:
            self._wake(self._turns.next)
            return
        while self.has_news and self.calm:
            self.has_news = self.calm = False  # what comes meanwhile is looked at afterwards
            self.meanwhile(self._turns.begin())
            self.calm = self.has_served = True
            self.in_time()
            if self._turns.are_over():
                self._wake(self._turns.next)
                break


def _in_vfork(thread: Thread) -> bool:
    """Whether a thread waits in the kernel until a child gives its memory back."""
    # One that stands for us has its memory back: a signal (its child's SIGCHLD) stops it on its way out of the call.
    return bool(_clone_flags(thread) & _CLONE_VFORK) and status_field(thread.tid, "State")[:1] not in {"t", "T"}


def _clone_flags(thread: Thread, unknown: int = 0) -> int:
    """Return what flags a thread has given the call by which it starts another; `unknown` if it is in no such call."""
    try:
        words = Path(f"/proc/{thread.pid}/task/{thread.tid}/syscall").read_text("ascii").split()
        if not words[0].isdigit():
            return unknown
        number, first = int(words[0]), int(words[1], 16)
        if number == _SYS_CLONE3:
            with contextlib.closing(Memory(thread.pid)) as memory:
                flags = memory.word(first)
            return unknown if flags is None else flags
    except OSError:
        return unknown
    return {_SYS_FORK: 0, _SYS_VFORK: _CLONE_VFORK | _CLONE_VM, _SYS_CLONE: first}.get(number, unknown)


def _described(pid: int) -> str:
    """Return what a process is, for people: its command, whose it is, and for how long it has run."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        if status_field(pid, "Name") == WORKER:  # it was started by what the user knows
            parent = int(status_field(pid, "PPid"))
            if parent == 1:
                return f"what is left of a trace that was killed (process {pid}), and is putting everything back"
            return _described(parent)
        command = one_line(b" ".join(words).strip() or status_field(pid, "Name").encode())
        started = int(stat_fields(pid)[19]) / os.sysconf("SC_CLK_TCK")
        ran = time.clock_gettime(time.CLOCK_BOOTTIME) - started
        owner = int(status_field(pid, "Uid").split()[0])
    except (OSError, ValueError, IndexError):
        return f"process {pid}"
    try:
        user = pwd.getpwuid(owner).pw_name
    except KeyError:
        user = str(owner)
    return f"process {pid} of user {user}, which has run for {ran:.0f} s: {command[:80]}"


def not_allowed(pid: int, error: OSError) -> TracerError:
    """Return the error that says why a process can't be traced, and what helps."""
    tracer = status_field(pid, "TracerPid")
    if tracer not in {"", "0"}:
        return TracerError(f"process {pid} is traced already, by {_described(int(tracer))}; one tracer can, at a time")
    if error.errno != errno.EPERM:
        return TracerError(f"process {pid} can't be traced: {reason(error)}")
    owner = status_field(pid, "Uid").split()[:1]
    if owner and owner[0] != str(os.geteuid()) and os.geteuid() != 0:
        return TracerError(f"process {pid} belongs to another user ({owner[0]}); trace it as that user, as {RIGHTS}")
    with contextlib.suppress(OSError, ValueError):
        scope = int(Path("/proc/sys/kernel/yama/ptrace_scope").read_text("ascii"))
        if scope == 1:
            return TracerError(
                f"process {pid} was not started by us, and kernel.yama.ptrace_scope is 1; start it with"
                " `usdtbuild trace -- COMMAND`, trace as root, or ask for `sysctl kernel.yama.ptrace_scope=0`"
            )
        if scope > 1:
            return TracerError(
                f"kernel.yama.ptrace_scope is {scope}, which forbids tracing;"
                " ask for `sysctl kernel.yama.ptrace_scope=0`"
            )
    return TracerError(
        f"process {pid} may not be traced (operation not permitted): it may have changed its user, or forbid it"
        " (PR_SET_DUMPABLE), or the container lacks --cap-add=SYS_PTRACE or --cap-add=DAC_OVERRIDE; trace it as root"
    )
