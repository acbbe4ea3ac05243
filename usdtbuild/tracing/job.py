"""What the front asks of the worker, and what the worker tells it: the records that go between the two processes.

The worker holds everything that touches the traced process, in a process of its own, so that a killed front leaves
nothing behind: the worker notices, puts everything back, and goes too.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from ..record import NamedTuple
from .model import COUNT, RECORD, Event, Refusal, Stops, Target

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ..inspection.process import MappedFile
    from ..rights import User
    from .filters import Filter
    from .last import Last, Until
    from .measures import Measure, Tables
    from .patch.code import Shape
    from .patch.rings import SiteSpec
    from .selection import Wanted

AUTO = "auto"


class Cut(NamedTuple):
    """Which calls are added up: where at most `depth` are open (0: any), that take so many nanoseconds at `least`, in
    calls of functions `below` or `not_below`, and from the hit of a probe on (`begin`), up to that of another (`end`).
    """

    depth: int = 0
    least: int = 0
    below: tuple[str, ...] = ()
    not_below: tuple[str, ...] = ()
    begin: str = ""
    end: str = ""


class Job(NamedTuple):
    """What to trace. Either `pids`, or `argv` with what a program is started with, in our process group or `alone`.

    `trap_functions`: functions whose entries can't be patched may get breakpoints. `children`: processes that the
    program starts are traced too. `spool` is a descriptor of a file for raw records, `keeper` one that stays open for
    as long as somebody may still have to put something back. `remote` is
    where a gdb server listens, `emulator` the words that start one with a program, `sysroot` the folder that is the
    root of a program's system; only the engine `remote` asks for these. `tree`: only add up
    which functions call which. `where`: only hits that pass it are counted, or recorded, where that can be decided at
    once; where it can't, records come of all, also when only counts are asked for. `user` is whose rights suffice to
    read files, None if ours must; `as_user`: the program that is started is that user's, too. `measures`: like
    `where`, what of hits is added up. `hold`: a program that is started waits, armed and before its own first
    instruction, until the front says GO. `every`: how far it is, is told so often (seconds).
    `last`: hits stay where they are until they are asked for, and only the last ones are kept; `until` ends the trace.
    `patience`: threads whose records have no room wait, for so many seconds while nothing is read.
    `enough`: so many recorded hits that pass are enough, 0 if it isn't known before they are looked at.
    `running`: the children of `pids` that run already are traced, too. `exes`: all processes that run these files are.
    `silent`: a program that is started reads nothing, and what it writes is lost; somebody else has the terminal.
    `normalize`: texts are shown with `?` for their literals.
    `arguments`: something is done with what functions are called with. `servers` may be asked for debug information.
    `stack`: each hit brings its call stack, of so many frames at most; 0: none.
    `cut`: which calls are added up.
    """

    wanted: Wanted
    what: str = RECORD
    engine: str = AUTO
    pids: tuple[int, ...] = ()
    running: bool = False
    exes: tuple[str, ...] = ()
    argv: tuple[str, ...] = ()
    cwd: str = ""
    env: Mapping[str, str] | None = None
    alone: bool = True
    string_size: int = 64
    buffer_size: int = 32 << 20
    trap_functions: bool = False
    children: bool = True
    spool: int = -1
    keeper: int = -1
    remote: str = ""
    emulator: tuple[str, ...] = ()
    sysroot: str = ""
    tree: bool = False
    where: Filter | None = None
    duration: float = math.inf  # seconds
    user: User | None = None
    as_user: bool = False
    measures: tuple[Measure, ...] = ()
    hold: bool = False
    every: float = math.inf
    silent: bool = False
    last: Last | None = None
    until: Until | None = None
    normalize: bool = False
    patience: float = 0.0
    arguments: bool = True
    servers: tuple[str, ...] = ()
    stack: int = 0
    cut: Cut = Cut()
    enough: int = 0

    @property
    def program(self) -> str:
        """The path of the command's program, as far as it is found; '' without a command."""
        import shutil
        from pathlib import Path

        name = self.argv[0] if self.argv else ""
        return ("/" not in name and shutil.which(name)) or (name and str(Path(self.cwd, name)))

    @property
    def evaluates(self) -> bool:
        """Whether a hit's arguments decide what is counted."""
        return self.where is not None or bool(self.measures)

    @property
    def only_counts(self) -> bool:
        """Whether all hits of a probe are alike."""
        return self.what == COUNT and not self.evaluates

    @property
    def is_late(self) -> bool:
        """Whether calls are recorded when they have lasted, which their arguments don't."""
        return bool(self.wanted.frames and self.cut.least) and not self.arguments

    @property
    def several(self) -> bool:
        """Whether there may be several processes that are to be traced, besides those that they start."""
        return len(self.pids) > 1 or self.running or bool(self.exes)

    @property
    def needs_arguments(self) -> bool:
        """Whether anything is done with the arguments of hits."""
        return (self.what == RECORD and self.arguments) or self.evaluates

    def adding_up(self, where: Filter | None, measures: tuple[Measure, ...] = ()) -> Job:
        """Return the job for one who wants no hits, only how many pass or what they add up to.

        Whether a return passes may depend on its call, so a filter of both needs hits; so do pairs of both, whose
        calls may be left without one.
        """
        if (where is not None or any(measure.pair for measure in measures)) and self.wanted.returns:
            return self
        wanted = self.wanted._replace(pairs=any(one.pair and not one.key for one in measures))
        return self._replace(wanted=wanted, what=COUNT, where=where, measures=measures)

    def passing(self, where: Filter | None) -> Job:
        """Return the job for one who wants the hits that pass: of others no record comes where that can be known."""
        return self if self.wanted.returns else self._replace(where=where)


class Started(NamedTuple):
    """The process is there, and all that was there to be armed is armed. `stood_still`: seconds, so far."""

    pid: int
    engines: tuple[str, ...]
    stood_still: float


class Targets(NamedTuple):
    """New targets."""

    targets: tuple[Target, ...]


class Refused(NamedTuple):
    """What is not traced."""

    refusals: Sequence[Refusal]


class Noted(NamedTuple):
    """A message for the user: printed with -v only, or `always`, at the end; or `at_once`."""

    text: str
    always: bool = False
    at_once: bool = False


class Member(NamedTuple):
    """A process that is traced, and its family: the processes that write into the same rings, because one has forked
    the others. `inside` is the number that it writes there: that of its own PID namespace."""

    pid: int
    family: int
    inside: int


class Mapped(NamedTuple):
    """What a process has mapped as code: files, and places without one (`Job.stack`)."""

    pid: int
    files: Sequence[MappedFile]
    anonymous: Sequence[tuple[int, int]]


class Sites(NamedTuple):
    """How raw records of one ring set are read, and of which family's processes they can be. So many `first` bytes of
    each ring have memory before any is read."""

    rings: int
    family: int
    first: int
    shape: Shape
    specs: tuple[SiteSpec, ...]


class Raw(NamedTuple):
    """More raw records stand in the spool: of which ring set, how many bytes."""

    rings: int
    size: int


LAST = 1 << 63  # later than every time
APART = 1_000_000  # nanoseconds between two marks, but for the last: in less, their errors say too much about the rate


class Mark(NamedTuple):
    """A moment after the records told of so far, in ticks of rdtsc and nanoseconds of CLOCK_MONOTONIC; `until` is the
    time up to which all records are there; LAST at the end. The last moment counts, too: a short program has no other,
    and a rate that is not measured is wrong by a sixth on some processors."""

    ticks: int
    time: int
    until: int


class Seen(NamedTuple):
    """Events, oldest first."""

    events: Sequence[Event]


class Stood(NamedTuple):
    """Stops of threads that are over: the thread, since when, and for how long."""

    stops: Sequence[tuple[int, int, int]]


class Counted(NamedTuple):
    """Hits and lost hits so far, by target."""

    counts: dict[int, int]
    lost: dict[int, int]


class Tabled(NamedTuple):
    """What was added up of hits where they happened."""

    tables: Tables


class Read(NamedTuple):
    """How far it was at a time: hits and lost hits, and what was added up (`Job.every`). It comes in parts, so that
    each can be sent without waiting; of all but the last, only tables count. A Mark follows."""

    time: int
    counts: dict[int, int]
    lost: dict[int, int]
    tables: Tables
    is_last: bool


class Failed(NamedTuple):
    """The worker can't go on; what the user reads, and the exit code."""

    message: str
    exit_code: int


class Ended(NamedTuple):
    """All is over and put back, at a `time`. `exit_code` is the program's, None if it runs on; `engines` those that
    were at work; `damaged`: counters or tables can't be what was counted."""

    exit_code: int | None
    engines: tuple[str, ...]
    stood_still: float
    threads: dict[int, str]
    dropped: int = 0  # records in rings that the program has damaged
    stops: Stops | None = None
    damaged: bool = False
    time: int = 0


Told = Noted | Stood | Member | Mapped | Sites | Raw | Mark | Seen | Counted | Tabled | Read
Message = Started | Targets | Refused | Told | Failed | Ended
# What the front may ask later, as plain bytes: who has no rights must not say anything that is unpickled by who has.
STOP, KILL, GO, DUMP = b"stop", b"kill", b"go", b"dump"
SAID = 4  # bytes, at most
