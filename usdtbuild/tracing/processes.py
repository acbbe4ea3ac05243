"""The processes of one trace and their program images: what is armed in each, and what happens to them.

A process comes by seizing, by fork or by exec. Each image is armed when its libraries are there (`loader` tells),
again when more come, and forgotten when it goes. Which engine takes a site is decided here: a jump where one is
possible, else a breakpoint.
"""

from __future__ import annotations

import contextlib
import signal
from typing import TYPE_CHECKING

from ..errors import InputError
from . import job, ptrace
from .engine import Totals
from .errors import TracerError
from .loader import Loader, find_loader
from .maps import Memory, areas
from .model import COUNT, ENTER, Plan, Refusal, Target
from .patch import engine as patch
from .selection import select
from .tracees import status_field
from .trap.breakpoints import Breakpoints

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from .job import Job
    from .maps import Area
    from .model import Site
    from .tracees import Thread, Tracees
    from .worker import Worker

_HOOK = -1  # the target number of the breakpoint in the dynamic linker


class Process:
    """One process and the program that it runs now."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.engines: list[patch.PatchEngine] = []
        self.breakpoints: Breakpoints | None = None
        self.modules: dict[tuple[str, int], tuple[int, int]] = {}
        self.loader: Loader | None = None
        self.shares_memory = False  # a child of vfork, until its exec
        self.parent: Process | None = None

    def points(self) -> Breakpoints:
        """Return its breakpoints."""
        if self.breakpoints is None:
            self.breakpoints = Breakpoints(self.pid)
        return self.breakpoints


class Processes:
    """All processes of a trace."""

    def __init__(self, tracees: Tracees, wish: Job, worker: Worker) -> None:
        self.tracees, self.wish, self.worker = tracees, wish, worker
        self.main = 0
        self.known: dict[int, Process] = {}
        self.names: dict[int, str] = {}
        self.stood_still = 0.0
        self._numbers: dict[tuple[object, ...], int] = {}
        self._engines: list[patch.PatchEngine] = []
        self._told: set[Refusal] = set()
        self._used: set[str] = set()
        self._begun = False

    def alive(self) -> bool:
        """Whether the traced program is there."""
        return self.main not in self.tracees.ended

    def engines(self) -> Iterator[tuple[int, patch.PatchEngine]]:
        """Yield all sets of rings and counters, those of ended programs too."""
        yield from enumerate(self._engines)

    def totals(self) -> Totals:
        """Return hits and lost hits of all jumps."""
        totals = Totals({}, {})
        for one in self._engines:
            for into, found in zip(totals, one.totals()):
                for target, count in found.items():
                    into[target] = into.get(target, 0) + count
        return totals

    # -- arming ------------------------------------------------------------------------------------------------------

    def adopt(self, pid: int) -> None:
        """Take a process that runs already, and arm what it has. Raises UsdtError."""
        process = self.known[pid] = Process(pid)
        with self.tracees.standing(pid):
            process.loader = find_loader(pid)
            self._arm(process)
            self._watch_loader(process)
        self._begin()

    def _begin(self) -> None:
        if not self._begun:
            self._begun = True
            self.worker.tell(job.Started(self.main, tuple(sorted(self._used)), self.stood_still))

    def _arm(self, process: Process) -> None:
        """Arm what the process has loaded since the last time; its threads stand. Raises TracerError."""
        mapped = areas(process.pid)
        gone = [key for key, (start, end) in process.modules.items()
                if not any(a.start <= start < a.end and a.name == key[0] for a in mapped)]  # fmt: skip
        for key in gone:
            self._forget(process, *process.modules.pop(key))
        try:
            found = select(process.pid, self.wish.wanted, 0, frozenset(process.modules))
        except InputError as error:
            raise TracerError(str(error)) from None
        for target in found.targets:
            key = (target.module.path, target.module.load_bias)
            if key not in process.modules:
                process.modules[key] = _extent(target, mapped)
        targets = self._numbered(found.targets)
        self._tell_refusals(found.refusals)
        if targets:
            self._arm_targets(process, targets)

    def _numbered(self, targets: Sequence[Target]) -> list[Target]:
        """Give targets their numbers: one that was seen before, in another process or image, has its old one."""
        numbered, new = [], []
        for target in targets:
            key = (target.kind, target.provider, target.name, target.module.path, target.arguments)
            is_new = key not in self._numbers
            one = target._replace(number=self._numbers.setdefault(key, len(self._numbers)))
            numbered.append(one)
            if is_new:
                new.append(one)
        if new:
            self.worker.tell(job.Targets(tuple(new)))
        return numbered

    def _arm_targets(self, process: Process, targets: Sequence[Target]) -> None:
        plan = Plan(self.wish.what, tuple(targets), self.wish.string_size, self.wish.buffer_size)
        left = [(target, site) for target in targets for site in target.sites]
        reasons: dict[int | None, Refusal] = {}
        if self.wish.engine in {job.AUTO, job.PATCH}:
            reason = patch.why_not(process.pid, targets[0].module.machine)
            refused: list[Refusal] = []
            if not reason:
                refused, reason = self._patch(process, plan)
            if reason:
                refused = [Refusal(target.title, reason, "", site.address) for target, site in left]
            reasons = {refusal.address: refusal for refusal in refused}
            left = [(target, site) for target, site in left if site.address in reasons]
        if self.wish.engine in {job.AUTO, job.TRAP}:
            left = self._trap(process, plan, left, reasons)
        self._tell_refusals([reasons[s.address] for _, s in left if s.address in reasons])

    def _patch(self, process: Process, plan: Plan) -> tuple[list[Refusal], str]:
        """Let the patch engine arm; return what it refuses, and the reason if it refuses everything."""
        made = patch.PatchEngine(self.tracees, process.pid, plan)
        try:
            refused = made.attach()
        except TracerError as error:
            return [], str(error)
        self.stood_still += made.stood_still
        if made.layout is not None and made.layout.spots and made.shared is not None:
            process.engines.append(made)
            self._engines.append(made)
            self._used.add(made.name)
            if self.wish.what != COUNT:
                self.worker.tell(job.Sites(len(self._engines) - 1, made.shape, made.layout.specs))
        return refused, ""

    def _trap(
        self, process: Process, plan: Plan, left: Sequence[tuple[Target, Site]], reasons: dict[int | None, Refusal]
    ) -> list[tuple[Target, Site]]:
        """Put breakpoints at what is left; return what can't have one."""
        may = [one for one in left if one[0].kind != ENTER or self.wish.trap_functions or self.wish.engine == job.TRAP]
        kept = [one for one in left if one not in may]
        if may:
            refused = {refusal.address: refusal for refusal in process.points().arm(plan, may)}
            reasons.update(refused)
            if len(refused) < len(may):
                self._used.add(Breakpoints.name)
            kept += [one for one in may if one[1].address in refused]
        return kept

    def _forget(self, process: Process, start: int, end: int) -> None:
        if process.breakpoints is not None:
            process.breakpoints.forget(start, end)
        for one in process.engines:
            one.forget(start, end)

    def _watch_loader(self, process: Process) -> None:
        """Keep a breakpoint where the dynamic linker tells that libraries have come or gone."""
        loader = process.loader
        if loader is not None and loader.hook:
            process.points().arm_hook(loader.hook, _HOOK)

    def _tell_refusals(self, refusals: Sequence[Refusal]) -> None:
        new = [one for one in refusals if one not in self._told]
        self._told.update(new)
        if new:
            self.worker.tell(job.Refused(new))

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
        name = self.names.get(tid)
        if name is None:
            self.names[tid] = ""
        self.tracees.forget(tid, code)
        if tid in self.tracees.ended and tid in self.known:
            process = self.known.pop(tid)
            if process.breakpoints is not None:
                process.breakpoints.close()

    def _new_thread(self, tid: int) -> Thread | None:
        """A thread that a traced one has started."""
        pid = int(status_field(tid, "Tgid") or 0)
        if not pid:
            return None
        thread = self.tracees.add(tid, pid)
        if pid not in self.known and tid == pid:
            parent = self.known.get(int(status_field(pid, "PPid") or 0))
            self.known[pid] = self._child_of(parent, pid)
        return thread

    def _child_of(self, parent: Process | None, pid: int) -> Process:
        process = Process(pid)
        if parent is not None:
            process.parent = parent
            process.loader = parent.loader
            process.modules = dict(parent.modules)
            if parent.breakpoints is not None:
                process.breakpoints = parent.breakpoints.copy_for(pid)
        return process

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
            self.known[pid] = self._child_of(self.known.get(thread.pid), pid)
        self.known[pid].parent = self.known.get(thread.pid)
        self.known[pid].shares_memory = event == ptrace.EVENT_VFORK

    def _exec(self, thread: Thread) -> None:
        """A process runs a new program: nothing of the old one is there any more."""
        pid = thread.pid
        for other in self.tracees.of(pid):
            if other.tid != thread.tid:
                del self.tracees.threads[other.tid]
        old = self.known.get(pid)
        if old is not None and old.breakpoints is not None:
            old.breakpoints.close()
        process = self.known[pid] = Process(pid)
        if not self.wish.children and pid != self.main:
            return
        try:
            loader = process.loader = find_loader(pid)
            if loader.hook:
                process.points().arm_hook(loader.hook, _HOOK)
            elif loader.dynamic and loader.entry:
                process.points().arm_hook(loader.entry, _HOOK)
            else:
                self._arm(process)
                self._begin()
        except (OSError, TracerError, InputError) as error:
            self._tell_refusals([Refusal(f"process {pid}", str(error))])

    def _trapped(self, thread: Thread) -> None:
        """A thread has stopped with SIGTRAP: it has hit a breakpoint, or it is its own."""
        thread.trapped = False
        process = self.known.get(thread.pid)
        try:
            hit = process.breakpoints.hit(thread.tid) if process is not None and process.breakpoints else None
        except OSError:
            return
        if hit is None or process is None or process.breakpoints is None:
            if not (process is not None and process.breakpoints and process.breakpoints.was_here(thread.tid)):
                thread.owed = signal.SIGTRAP
            return
        address, found, values = hit
        if found.target == _HOOK:
            self._libraries_changed(process)
        else:
            self.worker.hit(thread.pid, thread.tid, found.target, values)
        if not found.skip:
            stop = process.breakpoints.step(self.tracees, thread, address)
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
            with self.tracees.standing(process.pid), contextlib.suppress(InputError, OSError):
                self._arm(process)
            self._begin()

    # -- the end -----------------------------------------------------------------------------------------------------

    def release(self) -> None:
        """Put everything back in every process, and let all go. May be called twice."""
        refusals: list[Refusal] = []
        for process in list(self.known.values()):
            if process.pid in self.tracees.ended:
                continue
            with contextlib.suppress(TracerError, OSError):
                with self.tracees.standing(process.pid):
                    self._finish_traps(process)
                    refusals += self._put_back(process)
                self.tracees.stop(process.pid)
                self._finish_traps(process)
                self.tracees.detach(process.pid)
        self.tracees.detach_late()
        self.known = {}
        self._tell_refusals(refusals)

    def _finish_traps(self, process: Process) -> None:
        """Let threads that have run into a breakpoint, without our knowing yet, get past it."""
        for thread in self.tracees.of(process.pid):
            if thread.stopped and not thread.trapped:
                self.tracees.take_pending(thread)
            if thread.stopped and thread.trapped:
                self._trapped(thread)

    def _put_back(self, process: Process) -> list[Refusal]:
        refusals: list[Refusal] = []
        if process.breakpoints is not None:
            process.breakpoints.disarm(keep_semaphores=process.shares_memory)
        owner: Process | None = process
        while owner is not None and not process.shares_memory:
            for one in owner.engines:
                refusals += one.detach(process.pid)
            owner = owner.parent
        return refusals


def _extent(target: Target, mapped: Sequence[Area]) -> tuple[int, int]:
    """Return where the file that a target is in begins and ends in memory: its mappings, one behind the other."""
    at = target.sites[0].address
    own = next((area for area in mapped if area.start <= at < area.end), None)
    if own is None:
        return at, at + 1
    same = [area for area in mapped if (area.name, area.inode) == (own.name, own.inode)]
    start = end = mapped.index(own)
    while start and mapped[start - 1].end == mapped[start].start and mapped[start - 1] in same:
        start -= 1
    while end + 1 < len(mapped) and mapped[end].end == mapped[end + 1].start and mapped[end + 1] in same:
        end += 1
    return mapped[start].start, mapped[end].end
