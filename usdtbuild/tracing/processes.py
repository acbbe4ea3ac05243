"""The processes of one trace and their program images: what happens to them.

A process comes by seizing, by fork or by exec. Each image is armed (`arming`) when its libraries are there (`loader`
tells), again when more come, and forgotten when it goes.
"""

from __future__ import annotations

import contextlib
import signal
from typing import TYPE_CHECKING

from ..errors import InputError
from . import ptrace
from .arming import HOOK, Arming, Process
from .errors import TracerError
from .loader import find_loader
from .maps import Memory, has_ended
from .model import Refusal
from .tracees import status_field

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .job import Job
    from .tracees import Thread, Tracees
    from .worker import Worker


# What the kernel says of a process that has ended: to ptrace and to who writes its memory, to who opens its files.
_ENDED = (ProcessLookupError, FileNotFoundError)


class Processes:
    """All processes of a trace."""

    def __init__(self, tracees: Tracees, wish: Job, worker: Worker) -> None:
        self.tracees, self.wish, self.worker = tracees, wish, worker
        self.main = 0
        self.known: dict[int, Process] = {}
        self.names: dict[int, str] = {}
        self.arming = Arming(tracees, wish, worker)

    def alive(self) -> bool:
        """Whether the traced program is there."""
        return self.main not in self.tracees.ended

    def adopt(self, pid: int) -> None:
        """Take a process that runs already, and arm what it has. Raises UsdtError."""
        # A child that it had before we came isn't ours, and would die of a breakpoint in the memory that they share.
        self.tracees.wait_for_vforks(pid)
        process = self.known[pid] = Process(pid)
        with self.tracees.standing(pid):
            process.loader = find_loader(pid)
            self.arming.arm(process)
            process.watch_loader()
        self.arming.begin(self.main)

    @contextlib.contextmanager
    def _standing(self, process: Process) -> Iterator[None]:
        """Let everybody stand who runs in a process' memory: its threads, and children that it has by vfork."""
        with contextlib.ExitStack() as stack:
            for one in self.known.values():
                if one is process or (one.shares_memory and one.parent is process):
                    stack.enter_context(self.tracees.standing(one.pid))
            yield

    # -- what happens to them ----------------------------------------------------------------------------------------

    def handle(self, stop: ptrace.Stop) -> None:
        """Handle one stop of a thread."""
        if stop.exited is not None:
            self._ended(stop.tid, stop.exited)
            return
        thread = self.tracees.threads.get(stop.tid) or self._new_thread(stop.tid)
        if thread is None:
            return
        self.tracees.note(thread, stop)
        if not stop.event or stop.event == ptrace.EVENT_STOP:
            if thread.trapped:
                self._trapped(thread)
            self.tracees.resume(thread)

    def settle(self) -> None:
        """Handle what happened while something else was waited for; resume whoever stands for it."""
        while self.tracees.unseen:
            stop = self.tracees.unseen.pop(0)
            thread = self.tracees.threads.get(stop.tid)
            if thread is None:
                continue
            if stop.event == ptrace.EVENT_EXEC:
                self._exec(thread)
            elif stop.event in {ptrace.EVENT_FORK, ptrace.EVENT_VFORK, ptrace.EVENT_CLONE}:
                self._forked(thread, stop.event)
            if thread.tid in self.tracees.threads:
                self.tracees.resume(thread)
        for thread in [one for one in self.tracees.threads.values() if one.trapped and one.stopped]:
            self._trapped(thread)
            self.tracees.resume(thread)

    def _ended(self, tid: int, code: int) -> None:
        self.names.setdefault(tid, "")
        self.tracees.forget(tid, code)
        if tid in self.tracees.ended and tid in self.known:
            self.known.pop(tid).close()

    def _new_thread(self, tid: int) -> Thread | None:
        """A thread that a traced one has started."""
        pid = int(status_field(tid, "Tgid") or 0)
        if not pid:
            return None
        thread = self.tracees.add(tid, pid)
        if pid not in self.known and tid == pid:
            parent = self.known.get(int(status_field(pid, "PPid") or 0))
            self.known[pid] = Process(pid, parent)
        return thread

    def _forked(self, thread: Thread, event: int) -> None:
        try:
            new = ptrace.event_message(thread.tid)
        except OSError:
            return
        pid = int(status_field(new, "Tgid") or 0)
        if not pid:
            return
        self.tracees.add(new, pid)
        if pid == thread.pid:
            return
        if pid not in self.known:
            self.known[pid] = Process(pid, self.known.get(thread.pid))
        self.known[pid].parent = self.known.get(thread.pid)
        self.known[pid].shares(event == ptrace.EVENT_VFORK)

    def _exec(self, thread: Thread) -> None:
        """A process runs a new program: nothing of the old one is there any more."""
        pid = thread.pid
        for other in self.tracees.of(pid):
            if other.tid != thread.tid:
                del self.tracees.threads[other.tid]
        old = self.known.get(pid)
        if old is not None:
            old.close()
        process = self.known[pid] = Process(pid)
        if not self.wish.children and pid != self.main:
            return
        try:
            loader = process.loader = find_loader(pid)
            if loader.hook:
                process.points().arm_hook(loader.hook, HOOK)
            elif loader.dynamic and loader.entry:
                process.points().arm_hook(loader.entry, HOOK)
            else:
                self.arming.arm(process)
                self.arming.begin(self.main)
        except (OSError, TracerError, InputError) as error:
            self.arming.tell_refusals([Refusal(f"process {pid}", str(error))])

    def _trapped(self, thread: Thread) -> None:
        """A thread has stopped with SIGTRAP: it has hit a breakpoint, or it is its own.

        Where its process is being ended meanwhile (another thread's exit, SIGKILL) there is nothing left to be done.
        """
        thread.trapped = False
        with contextlib.suppress(*_ENDED):
            self._take_hit(thread)

    def _take_hit(self, thread: Thread) -> None:
        process = self.known.get(thread.pid)
        try:
            hit = process.breakpoints.hit(thread.tid) if process is not None and process.breakpoints else None
        except OSError:
            return
        if hit is None or process is None or process.breakpoints is None:
            if not (process is not None and process.breakpoints and process.breakpoints.was_here(thread.tid)):
                thread.owed = signal.SIGTRAP
            return
        for target, values in hit.seen:
            self.worker.hit(thread.pid, thread.tid, target, values)
        if hit.target == HOOK:
            self._libraries_changed(process)
        if not hit.skip:
            stop = process.breakpoints.step(self.tracees, thread, hit.address)
            if stop is not None:
                if stop.exited is not None:
                    self._ended(thread.tid, stop.exited)
                else:
                    self.tracees.note(thread, stop)

    def _libraries_changed(self, process: Process) -> None:
        memory = Memory(process.pid)
        try:
            consistent = process.loader is None or process.loader.consistent(memory)
        finally:
            memory.close()
        # With RT_DELETE, what goes is unmapped before the list is whole again, and may come back at the same place.
        if consistent:
            try:
                with self._standing(process):
                    self.arming.arm(process)
            except (OSError, TracerError) as error:
                if not has_ended(process.pid):
                    self.arming.tell_refusals([Refusal(f"process {process.pid}", str(error))])
            self.arming.begin(self.main)

    # -- the end -----------------------------------------------------------------------------------------------------

    def release(self) -> None:
        """Put everything back in every process, and let all go. May be called twice."""
        refusals: list[Refusal] = []
        for process in list(self.known.values()):
            if process.pid in self.tracees.ended:
                continue
            with contextlib.suppress(TracerError, OSError):
                with self._standing(process):
                    self._finish_traps(process)
                    refusals += process.put_back()
                self.tracees.stop(process.pid)
                self._finish_traps(process)
                self.tracees.detach(process.pid)
        self.tracees.detach_late()
        self.known = {}
        self.arming.tell_refusals(refusals)

    def _finish_traps(self, process: Process) -> None:
        """Let threads that have run into a breakpoint, without our knowing yet, get past it."""
        for thread in self.tracees.of(process.pid):
            if thread.stopped and not thread.trapped:
                self.tracees.take_pending(thread)
            if thread.stopped and thread.trapped:
                self._trapped(thread)
