"""What sees hits: what every tracer is, the table of engines, and the one place where an engine is chosen.

A tracer is what the command and the pytest plugin use; they know nothing of engines. A new engine is a class with the
methods of `Tracer` and a row in `TRACERS`.
"""

from __future__ import annotations

import importlib
import math
import time
from enum import Flag, auto
from typing import IO, TYPE_CHECKING

from ..errors import UsageError
from ..options import one_of
from ..record import NamedTuple
from .begin import end_ahead
from .errors import TracerError
from .model import RECORD, Event, Refusal, Report, Stops, Target, Totals

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from .call_tree import CallTree
    from .job import Job
    from .measures import Tables


class Ability(Flag):
    """What an engine can do, beyond counting hits of probes."""

    START = auto()  # start a command
    ATTACH = auto()  # trace a process that runs already
    SEVERAL = auto()  # trace several of them
    SERVER = auto()  # a program that a gdb server holds
    EMULATOR = auto()  # a program under an emulator
    RECORD = auto()  # arguments and times of hits
    FUNCTIONS = auto()
    RETURNS = auto()  # of functions
    CALLS = auto()  # of library functions
    CALL_RETURNS = auto()
    TREE = auto()  # add up which functions call which
    KEEP = auto()  # keep the last hits only, where they happen
    STACKS = auto()  # call stacks of hits
    TRAP = auto()  # breakpoints for functions that can't be patched
    WAIT = auto()  # let the program wait until all its hits are read
    EVALUATE = auto()  # filter, and add up; where an engine can't, hits are recorded, and evaluated afterwards
    # How the worker sees hits; nobody asks for these.
    JUMPS = auto()  # sites become jumps
    STOPS = auto()  # threads stop at breakpoints
    KERNEL = auto()  # the kernel has the breakpoints


_LACKING = {
    Ability.START: "starts no program here; say which program: --remote HOST:PORT, or --emulator COMMAND",
    Ability.ATTACH: "traces commands that it starts (-- COMMAND ARGS...), not processes",
    Ability.SEVERAL: "traces one process, and not several",
    Ability.SERVER: "traces programs of this machine only",
    Ability.EMULATOR: "traces programs of this machine only",
    Ability.RECORD: "only counts",
    Ability.FUNCTIONS: "sees no functions",
    Ability.RETURNS: "sees no returns",
    Ability.CALLS: "sees no calls of library functions",
    Ability.CALL_RETURNS: "sees no returns of calls",
    Ability.TREE: "doesn't add up calls (--report, --graph)",
    Ability.STACKS: "sees no call stacks (--stack)",
    Ability.TRAP: "sets no breakpoints for functions (--trap)",
    Ability.WAIT: "doesn't let the program wait for it (--lossless)",
    Ability.KEEP: "doesn't keep the last hits in the program's memory (--last)",
}


class Reading(NamedTuple):
    """How far a trace was at a time: hits; with Ability.EVALUATE those that had passed, and what they added up to."""

    time: int
    totals: Totals
    passed: dict[int, int]
    tables: Tables


class Tracer:
    """A trace: `batches` gives what it sees, `report` says how it was. Use it in a `with`."""

    def __init__(self, wish: Job, tell: Callable[[str], None] = lambda _: None) -> None:
        """`tell` takes what a user should read while the trace runs."""
        self.wish, self.tell = wish, tell
        self.targets: list[Target] = []
        self.refusals: list[Refusal] = []
        self.warnings: list[str] = []
        self.notes: list[str] = []  # of interest with -v only
        self.news: list[str] = []  # of interest at once
        self.engines: tuple[str, ...] = ()
        self.pid = 0
        self.stood_still = 0.0  # seconds for which the program was stopped, where that is added up
        self.left_out = 0  # hits that were seen and, after `skip`, are not handed over
        self.started = self.finished = time.monotonic_ns()
        self.exit_code: int | None = None
        self.threads: dict[int, str] = {}
        self.passed: dict[int, int] = {}  # with Ability.EVALUATE, by target hits that passed and are only counted
        self.tables: Tables = {}  # at the end, what was added up of these hits
        self.looked_up = False  # what the program has
        self.stops: Stops | None = None  # what breakpoints have taken
        self.damage: list[str] = []  # what the program has done to its buffers and counters
        self.surely = math.inf  # none of so many first hits is lost
        self._next_reading = time.monotonic() + wish.every

    def start(
        self, stdin: IO[bytes] | None = None, stdout: IO[bytes] | None = None, stderr: IO[bytes] | None = None
    ) -> None:
        """Begin; return once everything that is there is armed. Raises UsdtError.

        The streams are those of the program that is started; None for each of ours.
        """

    def start_worker(self) -> None:
        """Start the process that touches the program, if it is another; it waits for `start`."""

    def go(self) -> None:
        """Let a program begin that was started and is held for it (`Job.hold`); not every engine can hold one."""

    def batches(self, timeout: float = 0.1) -> Iterator[Sequence[Event]]:
        """Yield events, oldest first, as they come, until the program ends or the trace is stopped.

        An empty batch comes at least every `timeout` seconds. Between batches `targets`, `totals` and `refusals` are
        up to date. Raises UsdtError.
        """
        raise NotImplementedError

    @property
    def totals(self) -> Totals:
        """Hits so far, and those of them that are lost, by target."""
        raise NotImplementedError

    @property
    def waiting(self) -> int:
        """Hits that were seen and are still to be handed over."""
        return 0

    def reading(self) -> Reading | None:
        """Return how far it is, if another `Job.every` is over. Ask when a batch has come, before it is looked at."""
        if (now := time.monotonic()) < self._next_reading:
            return None
        self._next_reading = max(now, self._next_reading + self.wish.every)
        return Reading(time.monotonic_ns(), self.totals, {}, {})

    def tree(self) -> CallTree:
        """Return who called whom so far, from an engine with Ability.TREE."""
        raise NotImplementedError

    def stop(self) -> None:
        """Ask for the end: everything is put back, the last events come, and the program goes on without us."""

    def dump(self) -> None:
        """Ask for the last hits now (`Job.last`)."""

    def skip(self) -> None:
        """From now on only count hits, of which many may wait."""

    def kill(self) -> None:
        """End the program that was started, with SIGKILL."""

    def close(self) -> None:
        """Let go of everything."""

    def report(self) -> Report:
        """Return how the trace was."""
        counts, lost = self.totals
        numbers = range(len(self.targets))
        return Report(
            tuple(self.targets), tuple(counts.get(one, 0) for one in numbers),
            tuple(lost.get(one, 0) for one in numbers), tuple(self.refusals), self.engines, self.started,
            self.finished, time.time_ns() - time.monotonic_ns(), self.threads, self.exit_code, self.looked_up,
            stops=self.stops, is_damaged=bool(self.damage),
        )  # fmt: skip

    def __enter__(self) -> Tracer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Engine(NamedTuple):
    """A way to see hits: a class in a module of this folder, and what it can do.

    `asked` is the module whose `why_not(job)` tells why it can't be used here ('' if it can). `cost` is what a user
    must know who gets it for want of a better one. `hidden`: it isn't chosen by name. `worker`: what touches the
    program is a process of its own, which alone needs our rights.
    """

    module: str
    name: str
    can: Ability
    asked: str
    cost: str = ""
    hidden: bool = False
    worker: bool = False


_ELSEWHERE = Ability.SERVER | Ability.EMULATOR
_JUMPS = Ability.JUMPS | Ability.EVALUATE
_ALONE = _JUMPS | Ability.KEEP  # without breakpoints
_HERE = ~(_ELSEWHERE | _ALONE | Ability.TREE | Ability.STOPS | Ability.KERNEL)
_INSIDE = Ability.START | Ability.RECORD | Ability.FUNCTIONS | Ability.TREE | Ability.EVALUATE
_ONLY_PROBES = Ability.START | Ability.ATTACH | Ability.RECORD
# In the order in which "auto", patch and trap together, looks for one that can do what is asked and works here.
TRACERS: dict[str, Engine] = {
    "auto": Engine("session", "Session", _HERE | _JUMPS | Ability.STOPS, "session", worker=True),
    "patch": Engine("session", "Session", _HERE & ~Ability.CALL_RETURNS | _ALONE, "session", worker=True),
    "trap": Engine("session", "Session", _HERE | Ability.STOPS, "session", worker=True),
    "inside": Engine("inside", "Inside", _INSIDE, "inside"),
    "plugin": Engine("remote.counting", "Counting", Ability.EMULATOR | Ability.FUNCTIONS | Ability.CALLS
                     | Ability.TRAP, "remote.counting", hidden=True),
    "remote": Engine("remote.session", "Remote",
                     _HERE & ~(Ability.START | Ability.ATTACH | Ability.STACKS) | _ELSEWHERE, "remote.session",
                     "counting through its gdb server, which hangs when the program starts threads"),
    "bpftrace": Engine("session", "Session", _ONLY_PROBES | Ability.SEVERAL | Ability.KERNEL | Ability.EVALUATE,
                       "others.watching",
                       "arguments are read as far as it can", worker=True),
    "gdb": Engine("others.gdb", "Gdb", _ONLY_PROBES, "others.gdb", "each hit stops the program for a millisecond"),
}  # fmt: skip
AUTO = "auto"
ENGINES = tuple(name for name, engine in TRACERS.items() if not engine.hidden)


class NoTracerError(TracerError):
    """No engine that could do what is asked works here; the message says what each lacks."""


def needed(wish: Job) -> Ability:
    """Return the abilities that a trace asks for."""
    wanted = wish.wanted
    abilities = {
        Ability.SERVER: bool(wish.remote),
        Ability.EMULATOR: bool(wish.emulator),
        Ability.ATTACH: bool(wish.pids or wish.exes),
        Ability.SEVERAL: wish.several,
        Ability.START: bool(wish.argv and not wish.emulator and not wish.remote),
        Ability.RECORD: wish.what == RECORD and not wish.tree,
        Ability.FUNCTIONS: bool(wanted.functions),
        Ability.CALLS: bool(wanted.calls),
        Ability.RETURNS: bool(wanted.returns and wanted.functions),
        Ability.CALL_RETURNS: bool(wanted.returns and wanted.calls),
        Ability.TREE: wish.tree,
        Ability.KEEP: wish.last is not None,
        Ability.WAIT: bool(wish.patience),
        Ability.STACKS: bool(wish.stack),
        Ability.TRAP: wish.trap_functions,
    }
    found = Ability(0)
    for ability, asked in abilities.items():
        if asked:
            found |= ability
    return found


def _job_for(engine: Engine, wish: Job) -> Job:
    """Return a job as an engine can do it: hits are recorded where it can't evaluate their arguments."""
    if not wish.evaluates or Ability.EVALUATE in engine.can:
        return wish
    return wish._replace(what=RECORD, where=None, measures=())


def choose(
    wish: Job, tell: Callable[[str], None] = lambda _: None, give_up: Callable[[], None] | None = None
) -> Tracer:
    """Return a tracer for a job, not started yet: with the engine that is named, or the first that can do it here.

    `give_up` gives up, for good, the rights that only a worker needs. Engines without one start programs from here,
    which get what we have: there rights go before, and only if the program has none either.

    Raises UsageError where the engine that is named can't do what is asked, NoTracerError where none works here.
    """
    if wish.engine not in ENGINES:
        raise UsageError(f"there is no tracer {wish.engine}; there are {', '.join(ENGINES)}")
    jobs = {name: _job_for(engine, wish) for name, engine in TRACERS.items()}
    able = [name for name, engine in TRACERS.items() if needed(jobs[name]) in engine.can]
    names = able if wish.engine == AUTO else [wish.engine]
    if not set(names) & set(able):
        raise UsageError(_lacking(wish.engine, needed(jobs[wish.engine]), able))
    reasons: list[str] = []
    for name in names:
        engine = TRACERS[name]
        reason: str = importlib.import_module(f".{engine.asked}", __package__).why_not(wish)
        if not reason:
            for one in reasons[-1:]:
                tell(f"{one}: {engine.cost or f'the engine {name} does it'}")
            made: type[Tracer] = getattr(importlib.import_module(f".{engine.module}", __package__), engine.name)
            if not engine.worker:
                end_ahead()
                if give_up is not None and (wish.as_user or wish.remote):
                    give_up()
            tracer = made(jobs[name]._replace(engine=name), tell)
            if jobs[name].evaluates != wish.evaluates:
                tracer.notes.append(f"arguments are evaluated after the hit: the engine {name} records hits")
            if give_up is not None and engine.worker:
                tracer.start_worker()
                give_up()
            return tracer
        if reason not in reasons:
            reasons.append(reason)
    if wish.engine != AUTO:
        raise NoTracerError(f"the engine {wish.engine} can't be used: {reasons[0]}")
    raise NoTracerError("; ".join(reasons))


def _lacking(name: str, wants: Ability, able: list[str]) -> str:
    missing = wants & ~TRACERS[name].can
    why = next(text for ability, text in _LACKING.items() if ability & missing)
    if name == AUTO:
        return f"no engine does all that is asked: {' or '.join(able) or 'leave something out'}"
    if wants & _ELSEWHERE:
        return f"the engine {name} {why}; leave out --engine"
    others = [one for one in able if one != AUTO and not TRACERS[one].hidden]
    return f"the engine {name} {why}" + (f"; --engine {one_of(tuple(others))} can" if others else "")
