"""The program that a server holds, with all the processes that it has started: what each of their stops means.

All of them run or stand. `look` takes a stop, after which they stand; `go_on` lets them run; `leave` puts everything
back.

Processes that the program starts are held too (`--no-children`: without breakpoints, and for one reason only: a server
asks the program to stop by a signal to its process group, which would end those that nobody holds). While one of them
is in its parent's memory (vfork), the thread that waits for it stands: the kernel lets nobody stop it, so the server
would wait for it for ever.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from ...errors import InputError
from ..job import Job
from ..model import COUNT, Event, Refusal, Value
from .interrupts import Interrupts
from .modules import Found
from .process import Process
from .server import Server, Stop, process_of, thread_number

# Seconds after which an interrupt that hasn't come is lost: gdbserver sends it to the program's process group, which a
# program that it attached to needs not lead.
_LOST = 3.0


class Program:
    """One program. Its methods raise TracerError when the server is gone."""

    def __init__(self, server: Server, wish: Job, sysroot: str) -> None:
        """Find out what it is; it stands. Raises InputError, TracerError."""
        self.server, self.wish = server, wish
        self.counts: dict[int, int] = {}
        self.events: list[Event] = []
        self.exited: int | None = None
        self.running = False
        self.asked = False  # the trap that `leave` asks for is still to come, perhaps before a step
        self.found = Found(wish.wanted)
        self._sysroot = sysroot
        self._owed: list[tuple[str, int]] = []
        self._held: dict[str, str] = {}  # processes that share a memory, and the threads that wait for them
        self.main = Process(self, server.first.thread)
        self.processes = {self.main.name: self.main}
        self.interrupts = Interrupts(server, self.processes)
        self.main.arm(wish.argv[0] if wish.argv else "", sysroot)

    # -- what happens ------------------------------------------------------------------------------------------------

    def go_on(self) -> None:
        """Let everything run that stands, with the signals that it is owed."""
        self.running = True
        only: list[str] = []
        if self._held:
            waiting = set(self._held.values())
            theirs = {process_of(thread) for thread in waiting}
            only = [f"p{name}.-1" for name in self.processes if name not in theirs]
            only += [one for one in self.server.threads() if process_of(one) in theirs and one not in waiting]
        self._owed = self.server.start(self._owed, only)

    def look(self, stop: Stop, *, own_traps: bool = True) -> bool:
        """Take what a stop tells, and step past its breakpoint; return whether there is a program left to go on.

        `own_traps`: a trap that is none of ours is the program's, which gets it.
        """
        self.running = False
        process = self.processes.get(stop.process) or self.main
        if stop.exited is not None:
            process.ended(stop)
        elif stop.event:
            self.hear(stop)
        else:
            process.look(stop, own_traps=own_traps)
        # A thread that was stepped may have been another process' end, too.
        for one in list(self.processes.values()):
            self._forget(one)
        return self.exited is None

    def ask_to_stop(self) -> None:
        """Ask for a stop of whatever runs."""
        self.interrupts.ask()

    def see(self, process: Process, thread: str, seen: Iterable[tuple[int, tuple[Value, ...]]]) -> None:
        """Take the hits of a thread: numbers of targets, and arguments."""
        now, tid = time.monotonic_ns(), thread_number(thread)
        for number, values in seen:
            self.counts[number] = self.counts.get(number, 0) + 1
            if self.wish.what != COUNT:
                self.events.append(Event(now, process.pid, tid or process.pid, number, values))

    def owe(self, stop: Stop) -> None:
        """Keep a signal until its thread goes on, unless it is an interrupt that was asked for here."""
        if not self.interrupts.swallow(stop):
            self._owed.append((stop.thread, stop.signal))

    def _forget(self, process: Process) -> None:
        """Forget a process if it has ended; the program ends with its first one."""
        if process.exited is None:
            return
        for known in (self._held, self.interrupts.asked, self.processes):
            known.pop(process.name, None)
        self._owed = [one for one in self._owed if process_of(one[0]) != process.name]
        if process is self.main:
            self.exited = process.exited
            self.release()

    def hear(self, stop: Stop) -> Process | None:
        """Take the news that a process has started another or become another program; return what it is now."""
        process = self.processes.get(stop.process)
        if process is None:
            return None
        if stop.forked:
            child = process.forked(stop.forked, shares=stop.shares)
            self.processes[child.name] = child
            child.counted = child.counted and self.wish.children
            if stop.shares:
                self._held[child.name] = stop.thread
            elif not child.counted:
                child.put_back()
        elif stop.became:
            self._held.pop(process.name, None)
            process = self._begun(process)
        return process

    def _begun(self, old: Process) -> Process:
        process = self.processes[old.name] = Process(self, f"p{old.name}.0" if old.name else self.server.first.thread)
        process.pid = old.pid
        if old is self.main:
            self.main = process
        elif not self.wish.children:
            process.counted = False
            return process
        try:
            process.arm("", self._sysroot)
        except InputError as error:
            self.found.refuse([Refusal(error.where, error.what, error.cure)])
        return process

    # -- the end -----------------------------------------------------------------------------------------------------

    def _calm(self) -> None:
        """Let each process take the interrupt that waits for it, which would end it once nobody holds it."""
        for process in list(self.processes.values()):
            deadline = time.monotonic() + _LOST
            standing = {process_of(thread) for thread in self._held.values()}
            while (
                process.name in self.processes.keys() - standing
                and self.interrupts.wait_for(process)
                and time.monotonic() < deadline
            ):
                self.server.start((), [f"p{process.name}.-1"])
                stop = None
                while stop is None:
                    stop = self.server.wait(1.0)
                self.interrupts.asked[process.name] = deadline
                if not self.look(stop, own_traps=False):
                    return

    def leave(self, ask: Callable[[], None] | None, tell: Callable[[str], None]) -> None:
        """Stop the program if it runs, put everything back, and let it go. Raises TracerError.

        `ask` asks for the stop, which comes as a trap (it always does); without, an interrupt is sent. Where an
        interrupt is lost, the next hit is a stop as well: nothing else in the program minds breakpoints, so there is
        time until then, and `tell` says what is waited for.
        """
        for process in self.processes.values():
            process.leave_alone()
        deadline = time.monotonic() + _LOST
        while self._stand(ask, tell):
            if not self._held or time.monotonic() >= deadline:
                self._calm()
                if self.exited is None:
                    self.release()
                return
            # Let those be done that are in another's memory.
            while self._held and time.monotonic() < deadline:
                if not self.running:
                    self.go_on()
                stop = self.server.wait(0.1)
                if stop is not None and not self.look(stop):
                    return

    def _stand(self, ask: Callable[[], None] | None, tell: Callable[[str], None]) -> bool:
        """Let the program stand, without what was asked for that being still to come; return whether it is there."""
        self.asked = self.running and ask is not None
        if self.running:
            (ask or self.interrupts.ask)()
        deadline, told = time.monotonic() + _LOST, False
        while self.running:
            self.server.link.check_time()
            stop = self.server.wait(0.1)
            lost = time.monotonic() > deadline
            if stop is None:
                if lost and not told:
                    told = True
                    tell(f"{self.server.link.name} doesn't stop the program; the trace ends with its next hit")
                continue
            process = self.processes.get(stop.process) or self.main
            hit = process.hit(stop)
            asked = stop.trapped and not hit if ask else self.interrupts.swallow(stop)
            if asked and stop.exited is None:
                self.running = False
                break
            # Something else was first. What was asked for is still to come, and must not be left behind: it would end
            # a program that nobody holds.
            if not self.look(stop, own_traps=False):
                return False
            if not self.asked if ask else (lost and hit) or not self.interrupts.asked:  # nothing is still to come
                break
            self.go_on()
        return True

    def release(self) -> None:
        """Put everything back in all processes, which stand, and let them go, the first one last."""
        others = [one for one in self.processes.values() if one is not self.main]
        rest = [*reversed(others), *(one for one in self.processes.values() if one is self.main)]
        for process in rest:
            process.put_back()
        for process in rest:
            process.let_go()
        self.processes.clear()
