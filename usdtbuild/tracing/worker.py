"""The process that traces: it alone touches what is traced, and tells the front what it sees.

It outlives a front that is killed just long enough to put everything back. Started by `session` with `main`.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import gc
import math
import os
import resource
import select
import signal
import sys
import time
from collections.abc import Collection, Iterator, Sequence
from multiprocessing.connection import Connection
from pathlib import Path

from ..errors import UsdtError
from ..inspection.process import check_numbers, in_container
from ..text import few
from . import clock, hosts, job, ptrace, stops
from .arming import Process
from .begin import FRONTS
from .errors import TracerError, UnwantedError, told
from .job import Job
from .keeper import KEEPER
from .looks import Looks
from .maps import Memory
from .measures import Tables
from .model import COUNT, RECORD, Event, Stops
from .outbox import Outbox
from .patch import machine
from .patch.engine import PatchEngine
from .patch.plausible import fits
from .processes import Processes
from .progress import COUNTING, Progress
from .recorder import Recorder
from .running import Running, checked, status_field
from .spawn import Spawned
from .spool import Writer
from .tracees import FOLLOW, WORKER, Tracees, not_allowed
from .tracer import TRACERS, Ability
from .waiting import Waiting

# How often rings are emptied, in seconds: at once again where they filled up quickly, less often where nothing comes.
_TICK, _LONGEST_TICK = 0.004, 0.012
_MUCH = 1 << 20  # bytes of records in one tick, a quarter of a ring of the usual size
_ARMING = 2.0  # seconds beyond --duration that arming may take
_FEW = 10  # processes that are named
_BATCH = 2000  # events of traps in one message


@contextlib.contextmanager
def _keeping_all() -> Iterator[None]:
    """Look for no garbage: what is made in the body of the `with` stays."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


class Worker:
    """One trace, from the start of a program or the seizing of a process to the last byte put back."""

    def __init__(self, link: Connection, wish: Job, mask: set[int], deaf: Sequence[int] = ()) -> None:
        self.link, self.wish, self.mask, self.deaf = link, wish, mask, deaf
        self.spool = Writer(wish.spool)
        self.outbox = Outbox(link, self.spool)
        self.tracees = Tracees()
        self.tracees.keeps_stood, self.tracees.look = wish.what == RECORD, self._look_for_front
        self.processes = Processes(self.tracees, wish, self)
        self.progress = Progress(wish, self.outbox, self.processes.arming)
        self.recorder = Recorder(wish.last, wish.until) if wish.last is not None else None
        self.waiting = Waiting(wish.patience)
        self.looks = Looks(self.processes.known, self.tell, is_over=wish.what == COUNT)
        self.events: list[Event] = []
        self.stopping = self._is_measured = False
        self._fits, self._since = True, time.monotonic_ns()  # whether tables can be what they say
        self.stops = self._spread = self._told_until = self._over_at = self._next_mark = 0
        self._next_tick, self._pause, self._turn = 0.0, _TICK, 0
        self._deadline = math.inf
        self._sweep: tuple[int, list[tuple[PatchEngine, list[int]]]] | None = None  # see `tick`

    @property
    def roots(self) -> Collection[int]:
        """The processes that the trace is about, also those that have ended."""
        return self.processes.chosen.roots

    # -- telling the front -------------------------------------------------------------------------------------------

    def tell(self, message: job.Message) -> None:
        """Say something to the front, once there is time."""
        if isinstance(message, job.Started):
            left = min(self.wish.duration, max(0.0, self.tracees.until - time.monotonic()))
            self._deadline = time.monotonic() + left
            if f"{left:.1f}" != f"{self.wish.duration:.1f}":
                what = f"arming took so long that {left:.1f} s of --duration were left"
                self.outbox.put(job.Noted(what, always=True))
            self.tracees.limit(self.wish.duration + _ARMING)
            self.progress.begin()
        self.looks.learn(message)
        self.outbox.put(message)

    def hit(self, pid: int, tid: int, target: int, values: tuple[object, ...]) -> None:
        """Take a hit of a breakpoint."""
        if self.wish.only_counts:
            self.progress.hits[target] += 1
            return
        at = max(self.tracees.threads[tid].since, self._told_until)  # what is older has been told to be whole
        self.stops += 1
        self.events.append(Event(at, pid, tid, target, values))  # type: ignore[arg-type]
        if len(self.events) >= _BATCH:
            self._flush()

    def _flush(self) -> None:
        if self.events:
            self.looks.at_events(self.events)
            self.tell(job.Seen(self.events))
            self.events = []

    def tick(self, *, final: bool = False) -> None:
        """Empty rings, and say how far we are.

        Where there is too little room for all that is in them, more comes all the time; then what is there now has been
        told when it has been read, after some ticks.
        """
        self.processes.look_for_changes()
        now = time.monotonic_ns()
        until = self._watched(now, final=final)
        engines = [*self.processes.arming.engines()]
        sweep = self._sweep or (until, [(one, one.rings.heads()) for _, one in engines if one.rings])
        taken = self._empty_rings(final=final)
        self.stopping |= 0 < self.wish.enough <= sum(one.rings.given for _, one in engines if one.rings)
        self._flush()
        self.progress.count(final=final)
        if not final:
            self.progress.read(now)
        self._told_until = until
        if self.tracees.stood:
            self.tell(job.Stood(self.tracees.stood))
            self.tracees.stood = []
        self._sweep, whole = sweep, final or not self.spool.full
        # Else there are older records to come.
        told = whole or all(not one.rings or one.rings.are_read(heads) for one, heads in sweep[1])
        if told and (final or now >= self._next_mark):
            self._sweep = None
            ticks, at = clock.now()
            self._next_mark = at + job.APART
            self.tell(job.Mark(ticks, at, job.LAST if final else until if whole else sweep[0]))
        self._pause = COUNTING if self.wish.only_counts else _pause(taken, self._pause)
        self._next_tick = min(time.monotonic() + self._pause, self.progress.next)

    def _empty_rings(self, *, final: bool) -> int:
        """Write what is in the rings to the spool, as far as there is room; return how many bytes."""
        before, self.spool.full = self.spool.size, False
        in_use = {one for process in self.processes.known.values() for one in process.all_engines()}
        engines = list(self.processes.arming.engines())
        self.waiting.look(self.processes.known, engines)
        if self.recorder is not None:
            self.recorder.empty(engines, in_use, self.spool, self.tell, final=final)
            self.stopping |= self.recorder.has_come
        self._turn = at = (self._turn + 1) % max(1, len(engines))  # else the first would have all the room
        for number, engine in (*engines[at:], *engines[:at]):
            size, over = self.spool.size, final or engine not in in_use
            if engine.holds():
                engine.collect(self.looks.beside(self.spool.write, number), final=over)
            if over and engine.shared is not None and not engine.holds():
                engine.close()
            if self.spool.size > size:
                self.tell(job.Raw(number, self.spool.size - size))
        return self.spool.size - before

    def _watched(self, now: int, *, final: bool) -> int:
        kernel = self.processes.arming.kernel
        if kernel is None:
            return now
        events, until = kernel.take() if not final else (kernel.finish(self._over_at), now)
        self.events += events
        return min(until, now)

    def _finish(self) -> None:
        """Empty rings for the last time, for which there may have to be room first. Raises TracerError, OSError."""
        self._empty_rings(final=True)
        while self.spool.full and not self.outbox.closed:
            self.outbox.send_all()
            self._empty_rings(final=True)
        self.tick(final=True)
        if self.wish.measures:  # after what was counted in all: each hit is in its table first
            tables = self.processes.arming.tables()
            self._fits = _can_be(tables, self.processes, self._since)
            self.tell(job.Tabled(tables))

    # -- the way -----------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Trace until the program ends or the front has had enough."""
        self.tell(job.Mark(*clock.now(), 0))  # all records are later
        if self.wish.argv:
            if not self._start():
                self.tell(job.Ended(-signal.SIGINT, (), 0.0, {}))
                self.outbox.send_all()
                return
        else:
            with _keeping_all():
                self._attach()
        self.tick()
        try:
            self._loop()
            is_over = not self.processes.alive()
        finally:
            self._over_at = time.monotonic_ns()
            left = self.processes.release()
        self._finish()
        if is_over and left:
            self.tell(job.Noted(_outlived(left), always=True))
        arming = self.processes.arming
        notes = arming.fallen_back() + self.waiting.notes(arming.engines(), len(self.tracees.names) + 1)
        for note in notes + [text for one in (self.recorder, arming.kernel) if one for text in one.notes()]:
            self.tell(job.Noted(note, always=True))
        dropped = sum(one.dropped for _, one in arming.engines())
        told = Stops(self.stops, self.tracees.stop_cost, self._spread) if self.stops else None
        damaged = not self._fits or any(one.plausible.is_damaged for _, one in arming.engines())
        self.tell(job.Ended(self.processes.chosen.exit_code, arming.used, arming.stood_still, self.tracees.names,
                            dropped, told, damaged, time.monotonic_ns()))  # fmt: skip
        self.outbox.send_all()

    def expect_stops(self) -> None:
        """Breakpoints come, so find out, once, what each takes that nobody sees of it, if anybody asks."""
        if self.tracees.keeps_stood and not self._is_measured:
            self._is_measured = True
            with contextlib.suppress(OSError):
                self.tracees.stop_cost, self._spread = stops.measure()

    def _start(self) -> bool:
        """Start the program; return whether it has begun before somebody wanted it to end."""
        wish = self.wish
        become = wish.user.become if wish.user is not None and wish.as_user else int
        with Path(os.devnull).open("r+b") as nowhere:
            child = Spawned(wish.argv, wish.cwd, wish.env, mask=self.mask, before=become, deaf=self.deaf,
                            streams=[nowhere] * 3 if wish.silent else ())  # fmt: skip
        _leave()
        self.processes.chosen.begins(Running(child.pid, 0, is_root=True))
        self.tracees.seize(child.pid, FOLLOW)
        self._listen()
        if self.stopping:  # what ends the front came before there was a program that it could end, too
            os.kill(child.pid, signal.SIGKILL)
            return False
        child.go()
        while True:
            stop = ptrace.wait(child.pid)
            if stop is None or stop.exited is not None:
                child.check()
                self._listen()
                if self.stopping:
                    return False
                raise TracerError(f"{self.wish.argv[0]} ended before it began")
            thread = self.tracees.threads[child.pid]
            if stop.event == ptrace.EVENT_EXEC:
                break
            self.tracees.note(thread, stop)
            self.tracees.resume(thread)
        child.check()
        self.handle(stop)
        return True

    def _attach(self) -> None:
        self.tracees.limit(self.wish.duration + _ARMING)
        found = [_checked(pid) for pid in self.wish.pids]
        _raise_limit()
        if Ability.KERNEL in TRACERS[self.wish.engine].can:  # takes long, and changes nothing in the processes
            for pid in self.wish.pids:
                self.processes.arming.arm(Process(pid))
        chosen = self.processes.chosen
        chosen.waiting += found
        chosen.look(self.processes.known)
        while chosen.pending and not self.stopping:
            self._turn_once()
        chosen.tell_none()
        self.processes.begin()

    def _loop(self) -> None:
        while not self.stopping and self.processes.alive() and time.monotonic() < self._deadline:
            if not self._turn_once():
                until = min(self._next_tick, self._deadline, self.processes.chosen.programs.next)
                _wait(self.link, until - time.monotonic())
                self._listen()
        self._listen()  # to what the front said before it went

    def _turn_once(self) -> bool:
        """Do all that is due now; return whether anything had stopped."""
        self.processes.take_next()
        busy = self._stops() or self.processes.chosen.pending
        if time.monotonic() >= self._next_tick:
            self.tick()
            self._listen()
        self.outbox.send()
        self.stopping |= self.outbox.closed
        return busy or self.tracees.has_served

    def hold(self) -> None:
        """Let a program that was started, and stands with everything armed, wait until the front lets it begin."""
        if self.wish.hold and self.wish.argv and not self.stopping:
            self.outbox.send_all()
            while not self.stopping and self._heard() != job.GO:
                pass

    def _listen(self) -> bool:
        """Take what the front has said; return whether it wants the end."""
        with contextlib.suppress(OSError):  # after a message that is none, nothing more is read
            while self.link.poll() and self._heard():
                pass
        return self.stopping

    def _heard(self) -> bytes:
        """Take what the front says next, and do it; return it, nothing if it is gone."""
        try:
            said = self.link.recv_bytes(job.SAID)
        except (EOFError, OSError):
            said = b""
        if said in {job.STOP, b""}:
            self.stopping = True
        elif said == job.DUMP and self.recorder is not None:
            self.recorder.is_asked = True
        elif said == job.KILL and self.wish.argv and self.processes.alive():
            os.kill(self.processes.chosen.first, signal.SIGKILL)
        return said

    def _stops(self) -> bool:
        """Handle what has stopped, until rings are to be emptied; return whether there was anything.

        One stop may take long, where a program loads libraries all the time.
        """
        busy = False
        while not busy or time.monotonic() < min(self._next_tick, self._deadline):
            if (stop := ptrace.look(-1, os.WNOHANG)) is None:
                break
            busy = True
            self.handle(stop)
        return busy

    def watch_front(self) -> None:
        """Hear by a signal that the front is gone, or wants no trace any more. Raises OSError, UnwantedError."""
        signal.signal(signal.SIGIO, self._front_is_heard)
        number = self.link.fileno()
        fcntl.fcntl(number, fcntl.F_SETOWN, os.getpid())
        fcntl.fcntl(number, fcntl.F_SETFL, fcntl.fcntl(number, fcntl.F_GETFL) | os.O_ASYNC)
        self._look_for_front()

    def _front_is_heard(self, *_: object) -> None:
        self.tracees.is_called = True
        if self.tracees.calm:
            self.tracees.in_time()

    def _look_for_front(self) -> None:
        if _is_gone(self.link) or (not self.processes.arming.begun and self._listen()):
            raise UnwantedError

    def handle(self, stop: ptrace.Stop) -> None:
        """Handle one stop, and what else happened meanwhile."""
        self.processes.handle(stop)
        self.processes.settle()


def _pause(taken: int, before: float) -> float:
    """Return how long to wait until rings are emptied again, from which so many bytes were taken after a pause."""
    return 0.0 if taken > _MUCH else _TICK if taken else min(_LONGEST_TICK, before + _TICK / 4)


def _is_gone(link: Connection) -> bool:
    poll = select.poll()
    poll.register(link.fileno(), 0)
    return any(events & select.POLLHUP for _, events in poll.poll(0))


def _wait(link: Connection, seconds: float) -> None:
    """Wait until a child has stopped, or, if that may take long, the front says something (`Worker.watch_front`)."""
    if seconds <= _LONGEST_TICK:
        signal.sigtimedwait({signal.SIGCHLD}, max(0.0, seconds))
        return
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGIO})
    try:
        if not link.poll():
            signal.sigtimedwait({signal.SIGCHLD, signal.SIGIO}, seconds)
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGIO})


def _checked(pid: int) -> Running:
    """Return a process. Raises TracerError if it isn't there, or may not be traced."""
    found = checked(pid)
    if pid == 1 and not in_container():
        raise TracerError("process 1 is not traced: while it stands still, so does the system")
    if pid in {os.getpid(), os.getppid()}:
        raise TracerError(f"process {pid} is this trace itself")
    try:
        Memory(pid).close()
        if status_field(pid, "TracerPid") != "0":
            raise PermissionError(errno.EPERM, "")
    except OSError as error:
        denied = isinstance(error, PermissionError)
        raise not_allowed(pid, PermissionError(errno.EPERM, "") if denied else error) from None
    return found._replace(is_root=True)


def _raise_limit() -> None:
    """Be allowed to have as many files open as we may: each process takes some."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def _outlived(pids: Sequence[int]) -> str:
    """Say of processes that the program has started that the trace has ended before them."""
    named = few([*map(str, pids)], _FEW)
    if len(pids) == 1:
        return f"process {named}, which the program has started, outlived it, and wasn't traced to its end"
    return f"processes {named}, which the program has started, outlived it, and weren't traced to their ends"


def _can_be(tables: Tables, processes: Processes, since: int) -> bool:
    """Return whether tables can be what hits have added up to since a time: the program can write there, too, if they
    aren't the kernel's."""
    if processes.arming.kernel is not None:
        return True
    in_part = len(processes.tracees.names) + (os.cpu_count() or 1)  # threads that may have ended, or be, amid a hit
    hits, _ = processes.arming.totals()
    return fits(tables, hits, in_part, time.monotonic_ns() - since)


def failed(error: Exception) -> job.Failed:
    """Return what the front is told of an error, in the `except` that has caught it."""
    if isinstance(error, UsdtError):
        return job.Failed(str(error), error.exit_code)
    # A process that has just ended has no files in /proc.
    lacking = isinstance(error, FileNotFoundError) and str(error.filename).startswith("/proc/")
    if lacking or isinstance(error, ProcessLookupError):
        return job.Failed("the process ended while it was looked at", 1)
    if isinstance(error, PermissionError):
        return job.Failed(told(error), 1)
    import traceback

    return job.Failed("usdtbuild trace has a bug:\n" + traceback.format_exc(), 1)


def serve(link: Connection, mask: set[int], deaf: Sequence[int]) -> None:
    """Receive a job and do it; every error becomes a message.

    A program that is started blocks the signals of `mask`, and doesn't ignore those of `deaf`, which we do.
    """
    try:
        wish = link.recv()
    except EOFError:  # the command line made no sense
        return
    for descriptor in (link.fileno(), wish.spool):
        os.set_inheritable(descriptor, False)  # the program that is started has nothing to do with them
    if wish.alone:
        _leave()
    worker = Worker(link, wish, mask, deaf)
    try:
        KEEPER.start(wish.keeper)
        worker.watch_front()
        check_numbers()
        worker.run()
    except UnwantedError:
        worker.outbox.closed = _is_gone(link)
        worker.outbox.put_last(job.Ended(-signal.SIGINT, (), 0.0, {}))
    except Exception as error:
        worker.outbox.put_last(failed(error))
    finally:
        with contextlib.suppress(OSError, UsdtError):
            worker.processes.release()
        KEEPER.end()
        worker.outbox.send_all()
        if worker.processes.arming.kernel is not None:
            worker.processes.arming.kernel.close()


def _leave() -> None:
    """Leave the front's process group, whose signals aren't for us, and its session.

    A program that we have started stays there. If we were in another group of the same session, that program would be
    one that has a parent elsewhere in its session. Under cron and the like nobody else in the group has, and when the
    last such process ends, the kernel sends SIGHUP to all of the group, if any of it is stopped (POSIX, `_exit`).
    """
    with contextlib.suppress(OSError):
        os.setsid()


def main(arguments: Sequence[str]) -> None:
    """Be the worker. The arguments are the number of the descriptor that leads to the front, and those of the signals
    that the front blocked before it blocked those of `FRONTS` for us to be started."""
    mask = set(map(int, arguments[1:]))
    deaf = [number for number in FRONTS if signal.getsignal(number) != signal.SIG_IGN]  # as under nohup
    for number in FRONTS:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_SETMASK, {*mask, signal.SIGCHLD} - {signal.SIGALRM, signal.SIGIO})
    with contextlib.suppress(OSError):
        Path("/proc/self/comm").write_text(WORKER, "ascii")
    if not hosts.why_not():
        machine.here()  # else it would be imported while threads stand
    serve(Connection(int(arguments[0])), mask, deaf)
    os._exit(0)  # Python's own end takes milliseconds, and a SIGIO that comes meanwhile has no handler any more


if __name__ == "__main__":
    main(sys.argv[1:])
