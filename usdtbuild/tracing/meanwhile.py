"""Threads that stop while something is looked up: they go on at once, for a server can't wait until files are read.

A signal (SIGCHLD) tells that one has stopped, and is taken between two steps of what is looked up. Whoever calls exec,
or tells that libraries have come or gone, stands until that is done: it changes what is looked up.

A child that is forked while its parent is being armed for the first time is put back to what it would be without us,
and let go. It waits for its turn as one that was found running, because the parent runs on and may fork hundreds more.
"""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING

from . import ptrace
from .arming import HOOK, Process
from .keeper import KEEPER
from .running import running, status_field

if TYPE_CHECKING:
    from .processes import Processes
    from .tracees import Thread

_PATIENCE = 0.3  # seconds until a child that has been forked stops for us, for the first time


class Meanwhile:
    """Takes these stops."""

    def __init__(self, processes: Processes) -> None:
        self._processes, self._tracees = processes, processes.tracees

    def take(self, thread: Thread, stop: ptrace.Stop) -> None:
        """Handle the stop of a thread, or leave it for later."""
        if stop.exited is not None:
            self._tracees.forget(thread.tid, stop.exited)
            return
        self._tracees.note(thread, stop)
        if stop.event in {ptrace.EVENT_FORK, ptrace.EVENT_CLONE}:
            told = self._tracees.unseen.pop()
            if not self._goes_on(thread, told):
                self._tracees.unseen.append(told)
                return
        elif stop.event and stop.event != ptrace.EVENT_STOP:
            return
        elif thread.trapped:
            if self._tells(thread):
                return
            self._processes.trapped(thread)
        self._tracees.resume(thread)

    def _goes_on(self, thread: Thread, told: ptrace.Stop) -> bool:
        """Learn of a thread or a process that a thread has started; return whether that is all that is to be done."""
        pid = int(status_field(told.message, "Tgid") or 0)
        of = self._processes.known.get(thread.pid)
        if pid and pid != thread.pid:
            if of is None or not (of is self._processes.adopted or of.is_copied_to(pid)):
                return False
            if of is self._processes.adopted:
                self._tracees.resume(thread)
                return self._pass_by(pid, of)
        self._processes.forked(thread, told)
        return True

    def _pass_by(self, pid: int, parent: Process) -> bool:
        """Let a child go as it would be without us; return whether it has stopped for that, or is gone."""
        child = self._tracees.add(pid, pid)
        if not child.stopped and not self._tracees.has_stopped(child, time.monotonic() + _PATIENCE):
            return False
        if child.tid in self._tracees.threads:
            with contextlib.suppress(OSError):
                copy = Process(pid, parent)
                copy.put_back()
                copy.close()
            self._tracees.detach(pid)
            if (one := running(pid)) is not None:
                self._processes.chosen.later.append(one)
        KEEPER.gone(pid)
        return True

    def _tells(self, thread: Thread) -> bool:
        """Whether a thread has stopped where libraries come and go."""
        process = self._processes.known.get(thread.pid)
        if process is None or self._tracees.tells(thread):
            return True
        with contextlib.suppress(OSError):
            return process.breakpoints is not None and process.breakpoints.target_at(thread.tid) == HOOK
        return False
