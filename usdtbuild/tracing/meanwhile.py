"""Threads that stop while something is looked up: they go on at once, for a server can't wait until files are read.

A signal (SIGCHLD) tells that one has stopped, and is taken between two steps of what is looked up. Whoever calls exec,
or tells that libraries have come or gone, stands until that is done: it changes what is looked up.

A child that is forked while its parent is being armed for the first time is put back to what it would be without us,
and let go. It waits for its turn as one that was found running, because the parent runs on and may fork hundreds more.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator, Mapping

from . import ptrace
from .arming import HOOK, Process
from .chosen import Chosen
from .keeper import KEEPER
from .running import running, status_field
from .tracees import Thread, Tracees

_STARTS = (ptrace.EVENT_FORK, ptrace.EVENT_CLONE)


class Meanwhile:
    """Takes these stops."""

    def __init__(
        self, tracees: Tracees, known: Mapping[int, Process], chosen: Chosen, trapped: Callable[[Thread], None],
        forked: Callable[[Thread, ptrace.Stop], None],
    ) -> None:  # fmt: skip
        """`trapped` handles a breakpoint that a thread has hit, `forked` another that it has started."""
        self._tracees, self._known, self._chosen, self._trapped, self._forked = tracees, known, chosen, trapped, forked
        self._new: Process | None = None
        tracees.meanwhile, tracees.tells = self._take_all, self._tells

    @contextlib.contextmanager
    def adopting(self, process: Process) -> Iterator[None]:
        """In the body of the `with`, a process is armed for the first time."""
        self._new = process
        try:
            yield
        finally:
            self._new = None

    def _take_all(self, until: float) -> None:
        """Take what was left while something was half done, and the stops that there are by now, or until then."""
        for told in [one for one in self._tracees.unseen if one.event in _STARTS]:
            thread = self._tracees.threads.get(told.tid)
            if thread is None or self._goes_on(thread, told):
                self._tracees.unseen.remove(told)
                if thread is not None:
                    self._resume_after(thread, told)
        while tid := ptrace.first():
            thread = self._tracees.threads.get(tid)
            if thread is None or thread.stopped:
                break
            self._look(thread)
            if time.monotonic() > until:
                self._tracees.has_news = True
                return
        else:
            return
        # What is first is a child of ours, or has to stand: all are looked at, once.
        for one in [one for one in self._tracees.threads.values() if not one.stopped]:
            self._look(one)

    def _look(self, thread: Thread) -> None:
        stop = ptrace.look(thread.tid, os.WNOHANG)
        if stop is not None:
            self._take(thread, stop)

    def _take(self, thread: Thread, stop: ptrace.Stop) -> None:
        if stop.exited is not None:
            self._tracees.forget(thread.tid, stop.exited)
            return
        self._tracees.note(thread, stop)
        if stop.event in _STARTS:
            told = self._tracees.unseen.pop()
            if not self._goes_on(thread, told):
                self._tracees.unseen.append(told)
                return
        elif stop.event and stop.event != ptrace.EVENT_STOP:
            return
        elif thread.trapped:
            if self._tells(thread) or self._is_hook(thread):
                return
            self._trapped(thread)
        self._tracees.resume(thread)

    def _goes_on(self, thread: Thread, told: ptrace.Stop) -> bool:
        """Learn of a thread or a process that a thread has started; return whether that is all that is to be done."""
        pid = int(status_field(told.message, "Tgid") or 0)
        of = self._known.get(thread.pid)
        has_ended = status_field(told.message, "State")[:1] in {"Z", "X", ""}
        if pid not in {thread.pid, *self._known} and not has_ended:
            if of is not None and of is self._new:
                if not told.copies:  # a child in the same memory can't be put back alone
                    return False
                self._resume_after(thread, told)
                return self._pass_by(pid, of)
            if of is None or not of.is_copied_to(pid):
                return False
        self._forked(thread, told)
        self._tracees.has_news = True  # it may have stopped before anybody knew of it
        return True

    def _resume_after(self, thread: Thread, told: ptrace.Stop) -> None:
        """Let a thread go on that has told of a child, unless it has run on already, and stands for something else."""
        if not thread.trapped and all(stop is told or stop.tid != thread.tid for stop in self._tracees.unseen):
            self._tracees.resume(thread)

    def _pass_by(self, pid: int, parent: Process) -> bool:
        """Let a child go as it would be without us; return whether it has stopped for that, or is gone."""
        child = self._tracees.add(pid, pid)
        if not child.stopped and not self._tracees.has_stopped(child):
            return False
        if child.tid in self._tracees.threads:
            with contextlib.suppress(OSError):
                copy = Process(pid, parent)
                copy.put_back()
                copy.close()
            self._tracees.detach(pid)
            if (one := running(pid)) is not None:
                self._chosen.later.append(one)
        KEEPER.gone(pid)
        return True

    def _tells(self, thread: Thread) -> bool:
        """Whether a thread that has stopped by SIGURG tells that libraries have come or gone."""
        process = self._known.get(thread.pid)
        with contextlib.suppress(OSError):
            return process is not None and process.notice is not None and process.notice.is_given(thread.tid)
        return False

    def _is_hook(self, thread: Thread) -> bool:
        """Whether a thread has run into the breakpoint that tells of the same, or is of a process that nobody knows."""
        process = self._known.get(thread.pid)
        with contextlib.suppress(OSError):
            return process is None or (
                process.breakpoints is not None and process.breakpoints.target_at(thread.tid) == HOOK
            )
        return False
