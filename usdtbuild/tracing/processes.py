"""The processes of one trace and their program images: what happens to them.

A process comes by seizing, by fork or by exec. Each image is armed (`arming`) when its libraries are there (`loader`
tells), again when more come, and forgotten when it goes.
"""

from __future__ import annotations

import contextlib
import signal
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager

from ..apart import apart
from ..errors import InputError, UsdtError
from . import job, ptrace
from .arming import HOOK, Arming, Process
from .chosen import Chosen
from .errors import ProgramGoneError, TracerError, told
from .hosts import HOST
from .job import Job
from .keeper import KEEPER
from .loader import Loader, find_loader
from .maps import has_ended
from .meanwhile import Meanwhile
from .model import Refusal
from .owner import Owner
from .running import status_field
from .tracees import FOLLOW, Thread, Tracees
from .trap.breakpoints import Hit

# What the kernel says of a process that has ended: to ptrace and to who writes its memory, to who opens its files.
_ENDED = (ProcessLookupError, FileNotFoundError)

# Seconds between two looks for armed sites that perf, bpftrace or a debugger has changed. What comes there takes the
# hits, and when it goes the file's own code is there again; nothing tells of it.
_LOOKS = 1.0

_LATE = (
    "warning: a thread that blocks SIGURG has opened a library, and such a thread doesn't wait for us: what was hit"
    " there before we came is missing"
)
_FORKS = (ptrace.EVENT_FORK, ptrace.EVENT_VFORK, ptrace.EVENT_CLONE)


class Processes:
    """All processes of a trace."""

    def __init__(self, tracees: Tracees, wish: Job, owner: Owner) -> None:
        self.tracees, self.wish, self.owner = tracees, wish, owner
        self.known: dict[int, Process] = {}
        self._gone: deque[Process] = deque(maxlen=8)  # that have ended: children of theirs may be heard of later
        self._leaving = self._is_one_killed = False  # leaving: everything is being put back
        self.arming = Arming(tracees, wish, owner)
        self._next_look = 0.0  # at what others have changed
        self.chosen = Chosen(wish, owner, self.arming.tell_refusals)
        self._meanwhile = Meanwhile(tracees, self.known, self.chosen, self._trapped, self._forked)
        tracees.astray = self._bring_back

    def alive(self) -> bool:
        """Whether a process is there that the trace is about, or may come."""
        self._bury()
        return self.chosen.are_there()

    def _bury(self) -> None:
        """Forget threads and processes that have ended; their numbers may soon be others'."""
        _give_back(self.tracees, self.arming)
        while self.tracees.ended:
            pid, code = self.tracees.ended.popitem()
            KEEPER.gone(pid)
            self._is_one_killed |= code < 0
            if pid in self.known:
                self._gone.append(self.known.pop(pid))
                self._gone[-1].close()
            self.chosen.ended(pid, code)

    def take_next(self) -> None:
        """Seize the process that has waited longest, if one does, and arm what it has. Raises UsdtError and OSError, if
        that was named, and hasn't ended."""
        if self.tracees.has_served:
            self.settle()
        if (one := self.chosen.next(self.known)) is None:
            return
        try:
            if self.tracees.has(one.pid):  # one of ours has forked it meanwhile, with all that is armed there
                one = one._replace(is_root=False)
                self._new_thread(one.pid)
            else:
                self.chosen.begins(one)
                self.tracees.seize(one.pid, FOLLOW)
                if one.is_there():
                    self._adopt(one.pid)
        except (OSError, UsdtError) as error:
            is_there = one.is_there()
            if (is_there and one.pid in self.wish.pids) or (one.is_root and not self.wish.several):
                raise
            self.chosen.refuse([one], *([Refusal(f"process {one.pid}", told(error))] if is_there else []))
        finally:
            self.settle()
        if one.pid in self.known and not self.chosen.is_refused(one):
            self.chosen.armed(one)
            return
        if self.tracees.of(one.pid):
            self._let_go(self.known.pop(one.pid) if one.pid in self.known else Process(one.pid))
        self.chosen.left_out(one)

    def begin(self) -> None:
        """Say, the first time, that what there is to be traced is armed."""
        if not self.chosen.pending:
            self.arming.begin(self.chosen.first)

    def _enter(self, process: Process) -> Process:
        """Know a process, and tell of it before any of its hits is."""
        self.known[process.pid] = process
        process.relatives.add(process.inside)
        self.owner.tell(job.Member(process.pid, process.family, process.inside))
        return process

    def _adopt(self, pid: int) -> None:
        """Take a process that runs already, and arm what it has. Raises UsdtError, OSError."""
        # A child that it had before we came isn't ours, and would die of a breakpoint in the memory that they share.
        self.tracees.wait_for_vforks(pid)
        process = self._enter(Process(pid))
        with contextlib.suppress(ProgramGoneError), self._meanwhile.adopting(process):  # `settle` sees what it is now
            process.loader = _loader_of(pid, self.tracees, self.wish)
            with self.arming.counted():
                self.arming.watch_loader(process)
                # Who loads or unloads a library waits for his turn from here on: what is there is looked up meanwhile.
                with self.tracees.standing(pid):
                    begins = _begins(process)
            if not begins:
                self.arming.arm(process)

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
            self.tracees.forget(stop.tid, stop.exited)
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
        self.tracees.has_served = False
        while self.tracees.unseen:
            stop = self.tracees.unseen.pop(0)
            thread = self.tracees.threads.get(stop.tid)
            if thread is None:
                continue
            if stop.event == ptrace.EVENT_EXEC:
                self._exec(thread)
            elif stop.event in _FORKS:
                self._forked(thread, stop)
            if thread.tid in self.tracees.threads:
                self.tracees.resume(thread)
        for thread in [one for one in self.tracees.threads.values() if one.trapped and one.stopped]:
            self._trapped(thread)
            self.tracees.resume(thread)
        self._bury()

    def _new_thread(self, tid: int) -> Thread | None:
        pid = int(status_field(tid, "Tgid") or 0)
        if not pid:
            return None
        thread = self.tracees.add(tid, pid)
        if pid not in self.known and tid == pid:
            self._child(pid, int(status_field(pid, "PPid") or 0))
        return thread

    def _forked(self, thread: Thread, stop: ptrace.Stop) -> None:
        pid = int(status_field(stop.message, "Tgid") or 0)
        # Of a child that has been seen to end before this, nothing may be kept: its number will be another's.
        if not pid or (stop.message not in self.tracees.threads and status_field(stop.message, "State")[:1] in "ZX"):
            return
        self.tracees.add(stop.message, pid)
        if pid == thread.pid:
            return
        if pid not in self.known:
            self._child(pid, thread.pid)
        child = self.known.get(pid)
        if child is not None and child.parent is not None:
            child.was_forked_by(self.known.get(thread.pid))
            child.shares(stop.event == ptrace.EVENT_VFORK)

    def _child(self, pid: int, parent: int) -> None:
        """Learn of a process that one of ours has forked, if it hasn't been killed already."""
        with contextlib.suppress(*_ENDED):
            if (of := self.known.get(parent)) is not None and not self._leaving:
                with contextlib.suppress(*_ENDED):  # its parent may end meanwhile
                    self._enter(_forked_from(of, pid, self.arming))
                    return
            likely = (one for one in (*self._gone, *self.known.values()) if one.has_forked(pid))  # and was killed
            self._enter(Process(pid, of or next(likely, None)))

    def _exec(self, thread: Thread) -> None:
        """A process runs a new program: nothing of the old one is there any more."""
        pid = thread.pid
        for other in self.tracees.of(pid):
            if other.tid != thread.tid:
                del self.tracees.threads[other.tid]
        old = self.known.get(pid)
        if old is not None:
            old.close()
        process = self._enter(Process(pid))
        if not (self.wish.children or self.chosen.is_one(pid)):
            return
        try:
            loader = process.loader = _loader_of(pid, self.tracees, self.wish)
            if loader.hook:
                self.arming.watch_loader(process)
            elif loader.dynamic and loader.entry:
                process.points().arm_hook(loader.entry, HOOK)
            else:
                self.arming.arm(process)
                self.begin()
        except (OSError, TracerError, InputError) as error:
            if not has_ended(pid):
                self.arming.tell_refusals([Refusal(f"process {pid}", told(error))])

    def _trapped(self, thread: Thread) -> None:
        """A thread has stopped with SIGTRAP: it has hit a breakpoint, or it is its own. Where its process is being
        ended meanwhile (another thread's exit, SIGKILL) there is nothing left to be done."""
        thread.trapped = False
        with contextlib.suppress(*_ENDED):
            self._take_hit(thread)

    def _bring_back(self, thread: Thread, behind: int = 0) -> bool:
        """Let a thread go on that a jump of ours has led to a fault, `behind` which it stands; whether it is one."""
        process = self.known.get(thread.pid)
        with contextlib.suppress(OSError):
            at = ptrace.registers(thread.tid)[ptrace.PC] - behind
            return process is not None and process.bring_back(thread.tid, at)
        return False

    def _take_hit(self, thread: Thread) -> None:
        process = self.known.get(thread.pid)
        if process is not None and process.tells(thread.tid):
            if process.notice is not None and process.notice.engine.armed():
                self._libraries_changed(process)
            return
        try:
            hit = _hit(process, thread.tid, self._standing if self.wish.wanted.returns else None)
        except OSError:
            return
        if hit is None or process is None or process.breakpoints is None:
            if self._bring_back(thread, HOST.traps.behind):
                return
            if not (process is not None and process.breakpoints and process.breakpoints.was_here(thread.tid)):
                thread.owed = signal.SIGTRAP
            return
        for target, values in hit.seen:
            self.owner.hit(thread.pid, thread.tid, target, values)
        if hit.target == HOOK:
            self._libraries_changed(process)
        if not hit.skip:
            stop = process.breakpoints.step(self.tracees, thread, hit.address)
            if stop is not None:
                if stop.exited is not None:
                    self.tracees.forget(thread.tid, stop.exited)
                else:
                    self.tracees.note(thread, stop)

    def look_for_changes(self) -> None:
        """Arm what has come in processes whose threads couldn't stop to tell, and tell of sites that were taken."""
        for process in _flagged(self.known):
            before = process.places()
            self._libraries_changed(process)
            if process.places() > before:
                self.owner.tell(job.Noted(_LATE, always=True))
        if time.monotonic() >= self._next_look:
            self._next_look = time.monotonic() + _LOOKS
            self.arming.tell_refusals([taken for process in self.known.values() for taken in process.taken()])

    def _libraries_changed(self, process: Process) -> None:
        if self._leaving:  # whoever tells us now only has to go on; what is armed late could end the way back
            return
        try:
            if not process.has_libraries():
                return
            is_shared = any(one.shares_memory and one.parent is process for one in self.known.values())
            with self._standing(process) if is_shared else contextlib.nullcontext():
                self.arming.arm(process)
        except ProgramGoneError:
            return  # `settle` sees what it is now
        except (OSError, TracerError) as error:
            if not has_ended(process.pid):
                self.arming.tell_refusals([Refusal(f"process {process.pid}", told(error))])
        self.begin()

    # -- the end -----------------------------------------------------------------------------------------------------

    def _let_go(self, process: Process) -> list[Refusal]:
        """Put everything back in a process, and let it go; return what was not traced to the end."""
        refusals: list[Refusal] = []
        with contextlib.suppress(TracerError, OSError):
            with self._standing(process):
                # Children that it has forked without anybody's having looked have its breakpoints, and can't have more.
                for stop in self.tracees.unseen:
                    thread = self.tracees.threads.get(stop.tid)
                    if thread is not None and thread.pid == process.pid and stop.event in _FORKS:
                        self._forked(thread, stop)
                for one in self.tracees.trapped(process.pid):
                    self._trapped(one)
                refusals = process.put_back()
            self.tracees.stop(process.pid)
            for one in self.tracees.trapped(process.pid):
                self._trapped(one)
            self.tracees.detach(process.pid)
        return refusals

    def release(self) -> list[int]:
        """Put everything back in every process, and let all go; return those that ran then. May be called twice."""
        self._leaving = True
        self._bury()
        for pid in self.tracees.untold() if self._is_one_killed else ():
            self._new_thread(pid)
        refusals, done, alive = list[Refusal](), set[int](), list[int]()
        while left := [one for one in self.known if one not in {*done, *self.tracees.ended}]:
            # Children first: who is killed now leaves journals that say what is still in force in their parents.
            alone = [one for one in left if not self.known[one].shares_memory]
            done.add(last := (alone or left)[-1])
            alive += [] if has_ended(last) else [last]
            refusals += self._let_go(self.known[last])
        self.tracees.detach_late()
        self._bury()
        self.known = {}
        self.arming.tell_refusals(refusals)
        return sorted(alive)


def _give_back(tracees: Tracees, arming: Arming) -> None:
    """Give the room of threads that have ended, where begins of pairs wait, to others."""
    gone, tracees.gone = tracees.gone, []
    for begins in {one.begins for _, one in arming.engines() if one.begins is not None} if gone else ():
        begins.give_back(one for one in gone if one not in tracees.threads)


def _flagged(known: Mapping[int, Process]) -> list[Process]:
    """Return processes of which a thread has told, without stopping, that libraries have come or gone."""
    told = {one for process in known.values() if (one := process.notice) is not None and one.take_flag()}
    return [one for one in known.values() if one.notice in told]


def _loader_of(pid: int, tracees: Tracees, wish: Job) -> Loader:
    """Return what is known of a process' dynamic linker. Raises InputError, OSError."""
    with tracees.calmly():
        loader: Loader = apart(wish.user, lambda opened: find_loader(pid, opened))
    return loader


def _begins(process: Process) -> bool:
    """Whether a standing process has only just been started, and will tell when it has its libraries: it has no thread
    pointer yet."""
    with contextlib.suppress(OSError):  # a thread that hangs in the kernel, and so has begun
        return process.loader is not None and bool(process.loader.hook) and not ptrace.thread_pointer(process.pid)
    return False


def _forked_from(parent: Process, pid: int, arming: Arming) -> Process:
    """Return a process that another has forked, armed like that one. Raises OSError if it has ended."""
    child = Process(pid, parent)
    if child.is_armed_like(parent) or has_ended(parent.pid):  # whose memory goes before its children do
        return child
    # It was forked while we were arming, so some of what the other has now is missing.
    again = Process(pid)
    again.loader = parent.loader
    with arming.tracees.standing(pid):
        if arming.tracees.has_become_another(pid):
            return again
        child.put_back()
        child.close()
        arming.watch_loader(again)
        try:
            arming.arm(again)
        except TracerError as error:
            if not has_ended(pid):
                arming.tell_refusals([Refusal(f"process {pid}", str(error))])
    return again


def _hit(
    process: Process | None, tid: int, standing: Callable[[Process], AbstractContextManager[None]] | None
) -> Hit | None:
    """Return what a thread has hit. With returns breakpoints come and go meanwhile; see `Breakpoints._out`."""
    if process is None or process.breakpoints is None:
        return None
    with standing(process) if standing is not None and HOST.registers.link else contextlib.nullcontext():
        return process.breakpoints.hit(tid)
