"""The process that traces: it alone touches what is traced, and tells the front what it sees.

It outlives a front that is killed just long enough to put everything back. Started by `session` with `main`.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
import traceback
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING

from ..errors import UsdtError
from . import clock, job, ptrace
from .arming import Process
from .errors import TracerError
from .model import COUNT, Event
from .processes import Processes
from .spawn import Spawned
from .tracees import FOLLOW, Tracees, thread_ids

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .job import Job

# How often rings are emptied and counters read while nothing happens, in seconds.
_TICK = 0.004
_BATCH = 2000  # events of traps in one message


class Worker:
    """One trace, from the start of a program or the seizing of a process to the last byte put back."""

    def __init__(self, link: Connection, wish: Job, mask: set[int]) -> None:
        self.link, self.wish, self.mask = link, wish, mask
        self.tracees = Tracees()
        self.processes = Processes(self.tracees, wish, self)
        self.events: list[Event] = []
        self.counts: dict[int, int] = {}
        self.stopping = False
        self._next_tick = 0.0
        self._over_at = 0
        self._spooled = 0
        self._told: tuple[dict[int, int], dict[int, int]] = ({}, {})

    # -- telling the front -------------------------------------------------------------------------------------------

    def tell(self, message: job.Message) -> None:
        """Send a message; a front that is gone means that it is time to stop."""
        try:
            self.link.send(message)
        except OSError:
            self.stopping = True

    def hit(self, pid: int, tid: int, target: int, values: tuple[object, ...]) -> None:
        """Take a hit of a breakpoint."""
        if self.wish.what == COUNT:
            self.counts[target] = self.counts.get(target, 0) + 1
            return
        self.events.append(Event(time.monotonic_ns(), pid, tid, target, values))  # type: ignore[arg-type]
        if len(self.events) >= _BATCH:
            self._flush()

    def _flush(self) -> None:
        if self.events:
            self.tell(job.Seen(self.events))
            self.events = []

    def tick(self, *, final: bool = False) -> None:
        """Empty rings, and say how far we are."""
        ticks, now = clock.now()
        until = self._watched(now, final=final)
        for number, engine in self.processes.arming.engines():
            size = self._spooled
            engine.collect(self._spool, final=final)
            if self._spooled > size:
                self.tell(job.Raw(number, self._spooled - size))
        self._flush()
        totals = self.processes.arming.totals()
        counts = dict(totals.counts)
        for target, count in self.counts.items():
            counts[target] = counts.get(target, 0) + count
        if (counts, totals.lost) != self._told:
            self._told = (counts, totals.lost)
            self.tell(job.Counted(*self._told))
        self.tell(job.Mark(ticks if not final else 1 << 63, now, until))
        self._next_tick = time.monotonic() + (_TICK if self.wish.what != COUNT else 0.05)

    def _watched(self, now: int, *, final: bool) -> int:
        """Take what bpftrace has seen; return the time up to which that is all."""
        kernel = self.processes.arming.kernel
        if kernel is None:
            return now
        events, until = kernel.take() if not final else (kernel.finish(self._over_at), now)
        self.events += events
        return min(until, now)

    def _spool(self, raw: bytes) -> None:
        view = memoryview(raw)
        while view:
            written = os.write(self.wish.spool, view)
            view = view[written:]
        self._spooled += len(raw)

    # -- the way -----------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Trace until the program ends or the front has had enough."""
        if self.wish.argv:
            self._start()
        else:
            self._attach()
        self.tick()
        try:
            self._loop()
        finally:
            self._over_at = time.monotonic_ns()
            self.processes.release()
        self.tick(final=True)
        code = self.tracees.ended.get(self.processes.main)
        self.tell(job.Ended(code, self.processes.arming.stood_still, self.processes.names))

    def _start(self) -> None:
        environment = self.wish.env if self.wish.env is not None else os.environ
        child = Spawned(self.wish.argv, self.wish.cwd, environment, self.wish.group, self.mask)
        self.processes.main = child.pid
        self.tracees.seize(child.pid, FOLLOW)
        child.go()
        while True:
            stop = ptrace.wait(child.pid)
            if stop is None or stop.exited is not None:
                child.check()
                raise TracerError(f"{self.wish.argv[0]} ended before it began")
            thread = self.tracees.threads[child.pid]
            if stop.event == ptrace.EVENT_EXEC:
                break
            self.tracees.note(thread, stop)
            self.tracees.resume(thread)
        child.check()
        self.handle(stop)

    def _attach(self) -> None:
        pid = self.processes.main = self.wish.pid
        if not thread_ids(pid):
            raise TracerError(f"there is no process {pid}")
        if pid in {os.getpid(), 1}:
            raise TracerError(f"process {pid} can't be traced by this one")
        if self.wish.engine == job.BPFTRACE:  # which takes long, and changes nothing in the process itself
            self.processes.arming.arm(Process(pid))
        self.tracees.seize(pid, FOLLOW)
        try:
            self.processes.adopt(pid)
        finally:
            self.processes.settle()

    def _loop(self) -> None:
        while not self.stopping and self.processes.alive():
            busy = self._stops()
            if time.monotonic() >= self._next_tick:
                self.tick()
                self._listen()
            if not busy:
                signal.sigtimedwait({signal.SIGCHLD}, _TICK)

    def _listen(self) -> None:
        try:
            while self.link.poll():
                said = self.link.recv()
                if said == job.STOP:
                    self.stopping = True
                elif said == job.KILL and self.wish.argv:
                    os.kill(self.processes.main, signal.SIGKILL)
        except (EOFError, OSError):
            self.stopping = True

    def _stops(self) -> bool:
        """Handle everything that has stopped; return whether there was anything."""
        busy = False
        for _ in range(1000):
            stop = ptrace.wait(-1, os.WNOHANG)
            if stop is None:
                break
            busy = True
            self.handle(stop)
        return busy

    def handle(self, stop: ptrace.Stop) -> None:
        """Handle one stop, and what else happened meanwhile."""
        self.processes.handle(stop)
        self.processes.settle()


def serve(link: Connection, mask: set[int]) -> None:
    """Receive a job and do it; every error becomes a message."""
    wish = link.recv()
    for descriptor in (link.fileno(), wish.spool):
        os.set_inheritable(descriptor, False)  # the program that is started has nothing to do with them
    worker = Worker(link, wish, mask)
    try:
        worker.run()
    except UsdtError as error:
        worker.tell(job.Failed(str(error), error.exit_code))
    except ProcessLookupError:
        worker.tell(job.Failed("the process ended while it was looked at", 1))
    except Exception:
        worker.tell(job.Failed("usdtbuild trace has a bug:\n" + traceback.format_exc(), 1))
    finally:
        with contextlib.suppress(OSError, UsdtError):
            worker.processes.release()
        if worker.processes.arming.kernel is not None:
            worker.processes.arming.kernel.close()


def main(arguments: Sequence[str]) -> None:
    """Be the worker: the first argument is the number of the descriptor that leads to the front."""
    mask = {int(number) for number in signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})}
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM, signal.SIGQUIT):
        signal.signal(number, signal.SIG_IGN)
    with contextlib.suppress(OSError):
        os.setpgid(0, 0)
    serve(Connection(int(arguments[0])), mask)


if __name__ == "__main__":
    main(sys.argv[1:])
