"""Arm what a process has loaded: which targets there are, and which engine takes each of their sites.

A jump where one is possible, else a breakpoint; what neither can is told, once. When that is to happen, and what
becomes of processes and their threads, is the matter of `processes`.
"""

from __future__ import annotations

import contextlib
import itertools
from collections import defaultdict
from typing import TYPE_CHECKING

from ..errors import InputError
from ..inspection.process import mapped_files
from ..text import one_line
from . import hosts, job, ptrace
from .containers import number_inside
from .errors import LateError, ProgramGoneError, RoomTakenError, TracerError
from .filters import FilterError
from .hosts import HOST
from .keeper import KEEPER
from .lookups import Lookups
from .maps import Area, Memory, areas, has_ended
from .measures import Tables, added
from .model import COUNT, ENTER, RECORD, Refusal, Site, Target, Totals
from .notice import Notice, plan_for
from .numbering import Numbering
from .own_returns import in_place
from .patch import engine as patch
from .patch.evaluated import check
from .patch.rings import FIRST
from .plan import Plan
from .predicates import BEGIN, END, NotHereError, pair_width, side_of
from .stacks import with_stack
from .tracer import TRACERS, Ability
from .trap.breakpoints import TRAP, Breakpoints

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from .job import Job
    from .loader import Loader
    from .others.bpftrace import Kernel
    from .owner import Owner
    from .patch.begins import Begins
    from .patch.changes import Changes
    from .patch.layout import Layout
    from .tracees import Tracees

HOOK = -1  # the target number of what is set in the dynamic linker
_NOT_KEPT = "--filter can't be answered where it is hit, and --last keeps nothing else"
_FEW = 3  # reasons that are told, and targets of each
_FAMILIES = itertools.count(1)
_TRIES = 4  # to patch a process that maps memory meanwhile; it stands from the beginning for the last of them


class Process:
    """One process and the program that it runs now."""

    def __init__(self, pid: int, parent: Process | None = None) -> None:
        self.pid = pid
        self.inside = number_inside(pid)  # what it is called where it runs, in a container perhaps
        self.family: int = parent.family if parent is not None else next(_FAMILIES)  # see `job.Member`
        self.relatives: set[int] = parent.relatives if parent is not None else set()  # how its family are called
        KEEPER.process(pid, self.family)
        self.engines: list[patch.PatchEngine] = []
        # Those that have armed something in what it was forked from, and what of that it has still.
        self.inherited: list[tuple[patch.PatchEngine, Changes]] = []
        self.breakpoints: Breakpoints | None = None
        self.modules: dict[tuple[str, int], tuple[int, int]] = {}
        self.loader: Loader | None = None
        self.notice: Notice | None = None
        self.shares_memory = False  # a child of vfork, until its exec
        self.parent: Process | None = None
        # Where begins of pairs wait for their ends; 0: hits of pairs are recorded; None: there were none yet.
        self.pairs: int | None = parent.pairs if parent is not None else None
        self.pair_width: int = parent.pair_width if parent is not None else 0  # see `Plan`
        self.begins: Begins | None = parent.begins if parent is not None else None  # those there
        self.stop: int = parent.stop if parent is not None else 0  # see `Plan`
        if parent is not None:  # forked: it has a copy of everything, armed like the first
            self.loader, self.notice = parent.loader, parent.notice
            self.modules = dict(parent.modules)
            if parent.breakpoints is not None:
                self.breakpoints = parent.breakpoints.copy_for(pid)
            self.was_forked_by(parent)

    def was_forked_by(self, parent: Process | None) -> None:
        """Say whose memory it has a copy of; None: of one that is gone already."""
        if parent is not None and parent is not self.parent:
            own = ((one, one.changes) for one in parent.engines if one.changes is not None)
            self.inherited = [(one, changes.forked()) for one, changes in (*own, *parent.inherited)]
        self.parent = parent

    def shares(self, memory: bool) -> None:
        """Say whether it shares its parent's memory, as a child of vfork does."""
        self.shares_memory = memory
        if self.breakpoints is not None:
            self.breakpoints.returns.shares_memory = memory

    def points(self) -> Breakpoints:
        """Return its breakpoints."""
        if self.breakpoints is None:
            self.breakpoints = Breakpoints(self.pid)
        return self.breakpoints

    def tells(self, tid: int) -> bool:
        """Whether a thread has stopped to tell that libraries have come or gone; it goes on behind that. Raises
        OSError."""
        if self.notice is None or not self.notice.is_given(tid):
            return False
        self.notice.take(tid)
        return True

    def has_libraries(self) -> bool:
        """Whether the list of its libraries is whole at the moment. Raises OSError.

        With RT_DELETE, what goes is unmapped before it is, and may come back at the same place.
        """
        with contextlib.closing(Memory(self.pid)) as memory:
            return self.loader is None or self.loader.consistent(memory)

    def places(self) -> int:
        """Return how many places of targets are armed."""
        jumps = [spot.target.number for one in self.engines if one.layout is not None for spot in one.layout.spots]
        traps = [one.target for one in self.breakpoints.armed.values()] if self.breakpoints is not None else []
        return sum(number >= 0 for number in (*jumps, *traps))

    def forget(self, start: int, end: int) -> None:
        """A library that was between two addresses is gone."""
        if self.breakpoints is not None:
            self.breakpoints.forget(start, end)
        self.engines = [one for one in self.engines if not one.forget(start, end)]
        for _, changes in self.inherited:
            changes.forget(start, end)
        self.inherited = [one for one in self.inherited if one[1].armed() or one[0].is_shared]

    def is_armed_like(self, parent: Process) -> bool:
        """Whether all that is armed in the process that has forked this one is armed here. Raises OSError.

        What comes and goes with calls that are under way doesn't count.
        """
        places = [(address, 4) for one in parent.engines for address, _ in one.armed()[:1]]
        places += [(address, 1) for address in parent.breakpoints.firsts] if parent.breakpoints is not None else []
        with contextlib.closing(Memory(self.pid)) as mine, contextlib.closing(Memory(parent.pid)) as other:
            return all(mine.read(*place) == other.read(*place) for place in places)

    def is_copied_to(self, pid: int) -> bool:
        """Whether all that is armed here is in a process that it forks at this moment."""
        with contextlib.suppress(OSError), contextlib.closing(Memory(pid)) as memory:
            return all(memory.read(at, len(there)) == there for at, there in self.changed())
        return False

    def has_forked(self, pid: int) -> bool:
        """Whether something is armed here, or was before this one ended, and all of it is in another process, too."""
        return bool(self.changed()) and self.is_copied_to(pid)

    def changed(self) -> list[tuple[int, bytes]]:
        """Return where something is armed, and what is there; of what was armed at once, one place."""
        armed = [*(one.armed() for one in self.engines), *(changes.armed() for _, changes in self.inherited)]
        places = [place for one in armed for place in one[:1]]
        return places + ([(one, TRAP) for one in self.breakpoints.firsts] if self.breakpoints is not None else [])

    def all_engines(self) -> Iterator[patch.PatchEngine]:
        """Yield those that have armed something here, in what it was forked from too."""
        yield from self.engines
        yield from (one for one, _ in self.inherited)

    def learn_pairs(self) -> None:
        """Let what is armed later remember calls where the first engine does."""
        found = (one.layout.pairs for one in self.all_engines() if one.layout is not None and one.layout.pairs)
        self.pairs = next(found, self.pairs)

    def bring_back(self, tid: int, at: int) -> bool:
        """Let a thread go on that has faulted at an address where it was led by a jump of ours that holds somebody's
        breakpoint; return whether it is one. Raises OSError."""
        for one in self.all_engines():
            if at in one.astray:
                registers = ptrace.registers(tid)
                registers[ptrace.PC] = one.astray[at]
                ptrace.set_registers(tid, registers)
                return True
        return False

    def taken(self) -> list[Refusal]:
        """Return sites that somebody else has changed since they were armed here."""
        found = self.breakpoints.taken() if self.breakpoints is not None else []
        with contextlib.suppress(OSError), contextlib.closing(Memory(self.pid)) as memory:
            found += [taken for one in self.engines if one.changes for taken in one.changes.taken(memory)]
        return found

    def put_back(self) -> list[Refusal]:
        """Take breakpoints and jumps out, those too that it has from the process that forked it; all threads stand."""
        refusals: list[Refusal] = []
        if self.breakpoints is not None:
            self.breakpoints.disarm(keep_semaphores=self.shares_memory)
        if not self.shares_memory:
            for one in self.engines:
                refusals += one.detach()
            for _, changes in self.inherited:
                refusals += changes.put_back_in(self.pid)
        return refusals

    def close(self) -> None:
        """Close what is open for it: it is gone, or what it ran."""
        if self.breakpoints is not None:
            self.breakpoints.close()


class _Counted:
    """What engines have counted. Of those that are closed, as there are more with each library that goes, it is added
    up once."""

    def __init__(self) -> None:
        self._totals, self._tables = Totals({}, {}), Tables()
        self._open: list[patch.PatchEngine] = []
        self._known = 0  # of all engines

    def _at_work(self, engines: Sequence[patch.PatchEngine]) -> list[patch.PatchEngine]:
        ours = [*self._open, *engines[self._known :]]
        self._open, self._known = [one for one in ours if one.shared is not None], len(engines)
        for one in ours:
            if one.shared is None:
                _sum_up(self._totals, one.totals())
                added(self._tables, one.tables())
        return self._open

    def totals(self, engines: Sequence[patch.PatchEngine]) -> list[Totals]:
        """Return the hits and lost hits of all engines, which add up."""
        return [*(one.totals() for one in self._at_work(engines)), self._totals]

    def tables(self, engines: Sequence[patch.PatchEngine]) -> list[Tables]:
        """Return, likewise, what was added up of hits."""
        return [*(one.tables() for one in self._at_work(engines)), self._tables]


class Arming:
    """What is armed in all processes of a trace."""

    def __init__(self, tracees: Tracees, wish: Job, owner: Owner) -> None:
        self.tracees, self.wish, self.owner = tracees, wish, owner
        self._can = TRACERS[wish.engine].can
        self.stood_still = 0.0
        self._numbers = Numbering(wish.wanted.shown_as)
        self._lookups = Lookups(wish, lambda text: owner.tell(job.Noted(text)))
        self._engines: list[patch.PatchEngine] = []
        self._counted = _Counted()
        self._told, self._used = set[Refusal](), set[str]()
        # Why breakpoints are used where jumps were wanted -> of which target, and where in which file.
        self._fallen_back = defaultdict[str, set[tuple[str, str, int]]](set)
        self.begun = False  # all is armed, or was once
        self._places, self._touched = 0, set[int]()  # that are armed now, and where code may change for them
        self.kernel: Kernel | None = None  # bpftrace, which takes all or nothing

    def engines(self) -> Iterator[tuple[int, patch.PatchEngine]]:
        """Yield all sets of rings and counters, those of ended programs too."""
        yield from enumerate(self._engines)

    def totals(self) -> Totals:
        """Return hits and lost hits of all jumps, or of bpftrace."""
        totals = self.kernel.totals() if self.kernel is not None else Totals({}, {})
        for found in self._counted.totals(self._engines):
            _sum_up(totals, found)
        return totals

    def tables(self) -> Tables:
        """Return what was added up of hits where they happened."""
        found = self.kernel.tables() if self.kernel is not None else {}
        for more in self._counted.tables(self._engines):
            added(found, more)
        return found

    @property
    def used(self) -> tuple[str, ...]:
        """The engines that were at work."""
        return tuple(sorted(self._used))

    def fallen_back(self) -> list[str]:
        """Return what to tell about sites that are watched by breakpoints because no jump was possible."""
        by_places = sorted(self._fallen_back.items(), key=lambda one: -len(one[1]))
        return [_fallen_back(reason, targets) for reason, targets in by_places[:_FEW]]

    def begin(self, main: int) -> None:
        """Say, the first time, that what is to be traced is armed."""
        if not self.begun:
            self.begun = True
            self.owner.tell(job.Started(main, self.used, self.stood_still))
            self.owner.hold()

    @contextlib.contextmanager
    def counted(self) -> Iterator[None]:
        """Add up how long processes stand in the body of the `with`."""
        before = self.tracees.stood_still
        try:
            yield
        finally:
            self.stood_still += self.tracees.stood_still - before

    def watch_loader(self, process: Process) -> None:
        """Hear from now on when libraries come or go in a process that has a dynamic linker."""
        loader = process.loader
        if loader is None or not loader.hook:
            return
        only_stops = self._can & (Ability.JUMPS | Ability.STOPS) == Ability.STOPS
        reason = "breakpoints are wanted" if only_stops else patch.why_not(process.pid, HOST.number)
        if not reason:
            made, refused, reason = self._attached(process, plan_for(loader, HOOK), ())
            reason = reason or next((one.reason for one in refused), "")
        if reason:
            self.owner.tell(job.Noted(f"libraries that come and go are noticed by a breakpoint: {reason}"))
            with self.tracees.standing(process.pid):
                process.points().arm_hook(loader.hook, HOOK, loader.code)
        elif made is not None:
            process.engines.append(made)
            self._engines.append(made)
            process.notice = Notice(made)

    def arm(self, process: Process) -> None:
        """Arm what the process has loaded since the last time. Raises TracerError and OSError.

        Its threads only stand while it is changed, except who has just said that libraries have come or gone: so
        nobody gets ahead of us in what is new, and no library goes while it is looked at.
        """
        self._places = 0
        with self.counted():
            try:
                self._arm(process)
            except LateError:
                raise LateError(process.places(), self._places) from None

    def _arm(self, process: Process) -> None:
        mapped = _areas(process.pid, self.owner if self.wish.stack else None)
        gone = [key for key, (start, end) in process.modules.items()
                if not any(a.start <= start < a.end and a.name == key[0] for a in mapped)]  # fmt: skip
        for key in gone:
            process.forget(*process.modules.pop(key))
        try:
            with self.tracees.calmly():
                found = self._lookups.look(process.pid, frozenset(process.modules))
        except InputError as error:
            raise TracerError(str(error)) from None
        if found.refusals and has_ended(process.pid):
            return  # it has been killed meanwhile, and of its files none can be opened any more
        for target in found.targets:
            key = (target.module.path, target.module.load_bias)
            if key not in process.modules:
                process.modules[key] = _extent(target, mapped)
        targets = self._numbered(found.targets)
        self.tell_refusals(found.refusals)
        if targets:
            self._arm_targets(process, [with_stack(one) for one in targets] if self.wish.stack else targets)

    def _numbered(self, targets: Sequence[Target]) -> list[Target]:
        numbered, new = self._numbers.take(targets)
        if new:
            self.owner.tell(job.Targets(tuple(new)))
        return numbered

    def _arm_targets(self, process: Process, targets: Sequence[Target]) -> None:
        self._places, self._touched = sum(len(target.sites) for target in targets), _touched(targets)
        plan = Plan.of(self.wish, targets)
        evaluating = plan._replace(where=self.wish.where, measures=self.wish.measures, whole=self.wish.normalize,
                                   apart=process.inside != process.pid and Ability.KERNEL not in self._can)  # fmt: skip
        if not evaluating.evaluates:
            self._arm_plan(process, plan._replace(pairs=process.pairs or 0))
            process.learn_pairs()
            return
        targets = self._without_pairs(process, evaluating)
        here, others = list[Target](), list[Target]()
        with self.tracees.calmly():
            for target in targets:
                (here if self._is_evaluated_in_place(target, evaluating) else others).append(target)
        if here:
            self._arm_plan(process, evaluating._replace(targets=tuple(here)))
        self.tell_refusals([Refusal(one.title, _NOT_KEPT) for one in others if plan.keeps])
        if others and not plan.keeps:
            self._arm_plan(process, plan._replace(what=RECORD, targets=tuple(others), enough=0))

    def _without_pairs(self, process: Process, plan: Plan) -> Sequence[Target]:
        """Arm those of the targets that are hits of pairs, all in place or all with records; return the others."""
        sided = tuple(one for one in plan.targets if any(side_of(measure, one) for measure in plan.measures))
        numbers = {one.number for one in sided}
        others = tuple(one for one in plan.targets if one.number not in numbers)
        if not sided:
            return others
        pairs, first = process.pairs, process.begins
        width = process.pair_width if pairs else pair_width(plan.measures, sided, plan.string_size)
        plan = plan._replace(targets=sided, pair_width=width, pair_shards=first.shards if first is not None else None)
        reason = "" if pairs != 0 else "so are those before"
        if not all(self._is_evaluated_in_place(target, plan) for target in sided):
            reason = "arguments are"
        if Ability.KERNEL in self._can:
            reason = reason or ("what one bpftrace keeps no other sees" if pairs is not None else _lacks_side(plan))
            if not reason:
                self._watch(process, plan)
            process.pairs = 0 if reason else 1
        else:
            reason = reason or patch.why_not(process.pid, sided[0].module.machine)
            if not reason:
                refused, reason = self._patch(process, plan._replace(pairs=pairs or 0), self._touched - _touched(sided))
                self.tell_refusals(refused)
            made = process.engines[-1] if process.engines and not reason else None
            process.pairs, process.pair_width = 0, width
            if made is not None and made.layout is not None:
                process.pairs = pairs or made.layout.pairs
                process.begins = made.begins = first or made.begins
        if reason:
            if pairs:
                text = "warning: some begins and ends are in different files, and can't be paired"
                self.owner.tell(job.Noted(f"{text}: {reason}", always=True))
            self.owner.tell(job.Noted(f"pairs are found after the hit: {reason}"))
            self._arm_plan(process, plan._replace(what=RECORD, where=None, measures=()))
        return others

    def _is_evaluated_in_place(self, target: Target, plan: Plan) -> bool:
        """Whether arguments can be evaluated where a target is hit; if not, the front does it, with records of all."""
        if Ability.EVALUATE not in self._can:
            return False
        try:
            if plan.where is not None and not any(side_of(measure, target) for measure in plan.measures):
                plan.where.compile(target)
            (_check_for_kernel if Ability.KERNEL in self._can else check)(plan, target)
        except NotHereError as error:
            self.owner.tell(job.Noted(f"{target.title}: arguments are evaluated after the hit: {error}"))
            return False
        except FilterError:
            return False  # said by the front
        return True

    def _arm_plan(self, process: Process, plan: Plan) -> None:
        targets = plan.targets
        left = [(target, site) for target in targets for site in target.sites]
        reasons: dict[int | None, Refusal] = {}
        if Ability.JUMPS in self._can:
            jumps, trapped, reasons = in_place(targets) if plan.returns else (plan.targets, [], {})
            reason = patch.why_not(process.pid, targets[0].module.machine)
            refused: list[Refusal] = []
            if jumps and not reason:
                # With one engine alone no breakpoint comes.
                others = {site.address for _, site in trapped if Ability.STOPS in self._can}
                others |= self._touched - _touched(targets)
                refused, reason = self._patch(process, plan._replace(targets=jumps), others)
            if reason:
                refused = [Refusal(target.title, reason, "", site.address) for target, site in left]
            reasons.update({refusal.address: refusal for refusal in refused})
            again = {target.number for target in jumps}
            left = [*trapped, *(one for one in left if one[0].number in again and one[1].address in reasons)]
        if Ability.KERNEL in self._can:
            self._watch(process, plan)
        elif Ability.STOPS in self._can:
            wanted = left
            left = self._trap(process, plan, left, reasons)
            if Ability.JUMPS in self._can:
                for reason, place in _by_breakpoints(wanted, left, reasons):
                    self._fallen_back[reason].add(place)
        self.tell_refusals([_of(target, reasons[s.address]) for target, s in left if s.address in reasons])

    def _watch(self, process: Process, plan: Plan) -> None:
        if self.kernel is None:
            from .others.bpftrace import Kernel

            self.kernel = Kernel(self.wish, self.tracees.processes, self.owner.roots, self.tracees.in_time)
        self._used.add(self.kernel.name)
        self.tell_refusals(self.kernel.arm(process.pid, plan))

    def _patch(self, process: Process, plan: Plan, others: Collection[int]) -> tuple[list[Refusal], str]:
        """Let the patch engine arm; return what it refuses, and the reason if it refuses everything. `others` are
        addresses where breakpoints will be, or what another patch engine changes."""
        made, refused, reason = self._attached(process, plan._replace(stop=process.stop), others)
        if made is None:
            return [], reason
        for note in _notes(made):
            self.owner.tell(note)
        if made.layout is not None and made.layout.spots and made.shared is not None:
            process.engines.append(made)
            process.stop = process.stop or made.layout.stop
            self._engines.append(made)
            self._used.add(made.name)
            if plan.what != COUNT:
                self.owner.tell(_sites(len(self._engines) - 1, process.family, made, made.layout))
        return refused, ""

    def _attached(
        self, process: Process, plan: Plan, others: Collection[int]
    ) -> tuple[patch.PatchEngine | None, list[Refusal], str]:
        """Return an engine that has armed what it can, and what it refuses; or None, nothing, and why not."""
        for left in reversed(range(_TRIES)):
            made = patch.PatchEngine(self.tracees, process.pid, plan, others, process.relatives)
            try:
                with self.tracees.standing(process.pid) if not left else contextlib.nullcontext():
                    return made, made.attach(), ""
            except (LateError, ProgramGoneError):
                raise
            except RoomTakenError as error:
                reason = str(error)
            except TracerError as error:
                return None, [], str(error)
        return None, [], reason

    def _trap(
        self, process: Process, plan: Plan, left: Sequence[tuple[Target, Site]], reasons: dict[int | None, Refusal]
    ) -> list[tuple[Target, Site]]:
        reason = hosts.why_not(plan.targets[0].module.machine)
        if reason:
            cure = "gdb can (--engine gdb), and gdbserver with --remote"
            reasons.update({site.address: Refusal(one.title, reason, cure, site.address) for one, site in left})
            return list(left)
        all_may = self.wish.trap_functions or self.wish.wanted.returns or Ability.JUMPS not in self._can
        may = [one for one in left if one[0].kind != ENTER or all_may]
        kept = [one for one in left if one[0].kind == ENTER and not all_may]
        for _, site in kept:
            if site.address in reasons:
                reasons[site.address] = reasons[site.address]._replace(cure=_OFFERED)
        if may:
            self.owner.expect_stops()
            with self.tracees.standing(process.pid):
                if self.tracees.has_become_another(process.pid):
                    raise ProgramGoneError(process.pid)
                found = process.points().arm(plan, may, self.tracees.in_time)
            refused = {refusal.address: refusal for refusal in found}
            reasons.update(refused)
            if len(refused) < len(may):
                self._used.add(Breakpoints.name)
            kept += [one for one in may if one[1].address in refused]
        return kept

    def tell_refusals(self, refusals: Sequence[Refusal]) -> None:
        """Say what is not traced, each once."""
        new = [one for one in dict.fromkeys(refusals) if one not in self._told]
        self._told.update(new)
        if new:
            self.owner.tell(job.Refused(new))


def _sum_up(totals: Totals, more: Totals) -> None:
    for into, found in zip(totals, more):
        for target, count in found.items():
            into[target] = into.get(target, 0) + count


_COST = "20 microseconds or more"
_OFFERED = f"--trap watches it by a breakpoint, for {_COST} a hit"


def _touched(targets: Sequence[Target]) -> set[int]:
    """Return where code may change for targets: at sites, at returns, and in the padding of entries.

    A jump that one engine has made must not read what another changes: it would lead somewhere else then."""
    sites = (one for target in targets for site in target.sites for one in (site, *site.returns))
    return {at for site in sites for at in range(site.address - site.padding, site.address + 1)}


def _sites(rings: int, family: int, made: patch.PatchEngine, layout: Layout) -> job.Sites:
    return job.Sites(rings, family, made.first, made.shape, layout.specs)


def _notes(made: patch.PatchEngine) -> Iterator[job.Noted]:
    """Yield what is to be said of an engine's buffers, which are smaller than they should be."""
    if made.buffer_size < made.wanted_size:
        what = "there is little memory to spare" if made.plan.keeps else "address space is limited (ulimit -v)"
        size = f"buffers have {made.buffer_size >> 10} KB instead of {made.wanted_size >> 20} MB"
        yield job.Noted(f"{what}, so {size}", always=made.plan.keeps)
    if made.is_short:
        what = f"there is little memory to spare, so buffers begin with {made.first >> 10} KB instead of"
        yield job.Noted(f"{what} {FIRST >> 20} MB", always=True)


def _by_breakpoints(
    wanted: Sequence[tuple[Target, Site]], left: Sequence[tuple[Target, Site]], reasons: Mapping[int | None, Refusal]
) -> Iterator[tuple[str, tuple[str, str, int]]]:
    """Yield why wanted sites that are not left have no jumps; with what was to be traced, and where in which file."""
    not_armed = {site.address for _, site in left}
    for target, site in wanted:
        why, module = reasons.get(site.address), target.module
        if why is not None and site.address not in not_armed:
            yield why.reason, (why.what, module.path, site.address - module.load_bias)


def _fallen_back(reason: str, places: Collection[tuple[str, str, int]]) -> str:
    number, names = len(places), sorted({one_line(what) for what, _, _ in places})
    more = f" and {len(names) - _FEW} more" if len(names) > _FEW else ""
    cost = f"a breakpoint costs {_COST} a hit, a jump some nanoseconds"
    return (f"{'1 site is' if number == 1 else f'{number} sites are'} watched by a breakpoint"
            f" ({', '.join(names[:_FEW])}{more}): {reason} ({cost}; -x leaves them out)")  # fmt: skip


def _check_for_kernel(plan: Plan, target: Target) -> None:
    """Raise NotHereError if bpftrace can't."""
    from .others.program import check

    check(plan, target)


def _lacks_side(plan: Plan) -> str:
    """Return what is lacking if a plan's targets are only begins of pairs, or only ends."""
    sides = {side_of(measure, one) for one in plan.targets for measure in plan.measures}
    return next((f"there is no {side} here" for side in (BEGIN, END) if side not in sides), "")


def _of(target: Target, refusal: Refusal) -> Refusal:
    """Return a refusal of a function's returns as one of its entry, where it is that which isn't traced either."""
    is_entry = target.kind == ENTER and refusal.what == f"{target.title}:return"
    return refusal._replace(what=target.title) if is_entry else refusal


def _areas(pid: int, owner: Owner | None) -> list[Area]:
    """Return what a process has mapped; an owner is told what of it is code."""
    mapped = areas(pid)
    anonymous = [(one.start, one.end) for one in mapped if "x" in one.flags and not one.inode]
    with contextlib.suppress(InputError):  # it has ended
        if owner is not None:
            owner.tell(job.Mapped(pid, mapped_files(pid), anonymous))
    return mapped


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
