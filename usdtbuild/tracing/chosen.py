"""The processes that a trace is about: those that were started or named, and those that run a program.

With `Job.running` their children that run already belong to the trace, too. What all of these fork later is seized by
the kernel, and is the matter of `processes`.
"""

from __future__ import annotations

import os
import signal
import time
from collections import deque
from collections.abc import Callable, Collection, Sequence

from ..limits import TARGETS
from . import job
from .job import Job
from .model import Refusal
from .owner import Owner
from .running import Programs, Running, descendants, named


class Chosen:
    """Which processes these are, as far as they are known, and which of them wait to be seized and armed."""

    def __init__(self, wish: Job, owner: Owner, refuse: Callable[[Sequence[Refusal]], None]) -> None:
        self._wish, self._owner, self._refuse = wish, owner, refuse
        self.roots: dict[int, bool] = {}  # those that the trace is about, and whether they are there
        self.exit_code: int | None = None  # of the last of them that has ended
        self.waiting: deque[Running] = deque()
        self.later: deque[Running] = deque()  # those were forked while others were armed; nobody waits for them
        self.programs = Programs(wish.exes)
        self._unsearched = False  # there may be children that aren't known yet
        self._new: list[int] = []  # those that run a program, and that nobody was told of
        self._passed: set[tuple[int, int]] = set()  # number and start of those that can't be traced, which was told

    @property
    def first(self) -> int:
        """The first of them; 0: there is none yet."""
        return next(iter(self.roots), 0)

    @property
    def pending(self) -> bool:
        """Whether there are processes to be armed, or to be looked for, before the trace can begin."""
        return bool(self.waiting) or self._unsearched

    def are_there(self) -> bool:
        """Whether one is there, or may come."""
        return bool(self._wish.exes or self.waiting) or any(self.roots.values())

    def is_one(self, pid: int) -> bool:
        """Whether the trace is about a process that is there."""
        return bool(self.roots.get(pid)) or self.programs.runs(pid)

    def look(self, known: Collection[int]) -> None:
        """Let those wait that aren't known, if it is time to look for them: children, until there are no more, and what
        runs a program."""
        if self._unsearched and not self.waiting:
            self._unsearched = self._wait(descendants([one for one, is_there in self.roots.items() if is_there]), known)
        if time.monotonic() >= self.programs.next:
            self._wait(self.programs.look(), known)

    def next(self, known: Collection[int]) -> Running | None:
        """Return the process that has waited longest, None if none does; one that is known by now was forked by
        another."""
        self.look(known)
        while self.waiting or self.later:
            is_late = not self.waiting
            if (one := (self.waiting or self.later).popleft()).pid not in known and (not is_late or one.is_there()):
                return one
        return None

    def _wait(self, found: Sequence[Running], known: Collection[int]) -> bool:
        """Let those of the processes wait that are new, as many as there may be; return whether there are any."""
        there, ours = {one.pid for one in self.waiting}, {os.getpid(), os.getppid()}
        new = [one for one in found if one.pid not in known and one.pid not in there and one[:2] not in self._passed]
        new = [one for one in new if not ours & {one.pid, one.parent}]
        room = max(0, TARGETS - len(known) - len(there))
        if new[room:]:
            what = f"{TARGETS} processes are traced, which is the most at once"
            self.refuse(new[room:], Refusal(named([one.pid for one in new[room:]]), what))
        self.waiting += new[:room]
        return bool(new[:room])

    def begins(self, one: Running) -> None:
        """Take a process that is about to be seized."""
        if one.is_root:
            self.roots[one.pid] = True
            self._unsearched |= self._wish.running

    def refuse(self, those: Sequence[Running], *reasons: Refusal) -> None:
        """Leave processes out for good, and say why."""
        self._passed.update(one[:2] for one in those)
        self._refuse(reasons)

    def is_refused(self, one: Running) -> bool:
        """Whether it was left out."""
        return one[:2] in self._passed

    def left_out(self, one: Running) -> None:
        """Take a process that isn't to be traced after all, or has ended."""
        if one.is_there():
            self.roots.pop(one.pid, None)
        self.ended(one.pid)

    def armed(self, one: Running) -> None:
        """Take a process whose hits are counted from now on, and tell of those that run a program."""
        if one.is_root and one.pid not in self._wish.pids:
            self._new.append(one.pid)
        if self._new and not self.waiting:
            text = f"from now on {named(self._new)} {'is' if len(self._new) == 1 else 'are'} traced"
            self._say(f"{text} ({' or '.join(self._wish.exes)})")
            self._new = []

    def ended(self, pid: int, code: int | None = None) -> None:
        """Tell of it if the trace is about a process that has ended; `code` says how, if that is known."""
        if self.roots.get(pid):
            self.roots[pid], self.exit_code = False, code
            if self._wish.several:
                self._say(f"process {pid} has ended" + (f" ({_ending(code)})" if code is not None else ""))

    def tell_none(self) -> None:
        """Say it if there is nothing to trace yet."""
        if not self.roots and self._wish.exes:
            self._say(f"no process runs {' or '.join(self._wish.exes)} yet; one that does will be traced")

    def _say(self, text: str) -> None:
        self._owner.tell(job.Noted(text, at_once=True))


def _ending(code: int) -> str:
    return f"exit code {code}" if code >= 0 else f"signal {-code}, {signal.strsignal(-code)}"
