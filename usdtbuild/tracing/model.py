"""The words that tracing is spoken in: what is traced, what was seen, what was lost, what was refused.

Plain records without behaviour beyond names and values, so that engines and outputs need to know nothing of each other.
Times are nanoseconds of CLOCK_MONOTONIC; addresses are those of the traced process.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ..record import NamedTuple
from ..text import one_line

if TYPE_CHECKING:
    from ..formats.operands import Operand

# Kinds of targets and thereby of events.
PROBE, ENTER, EXIT, CALL, RETURN = "probe", "function-enter", "function-exit", "call", "call-return"
# Where the dynamic linker says that libraries have come or gone, which is a target for us alone.
LIBRARIES = "libraries"
# Kinds of arguments: what `Argument.kind` says, and what a value of it is.
INTEGER, POINTER, FLOAT, STRING = "integer", "pointer", "float", "string"
STACK = "stack"  # the top of the stack: a value of it is its bytes, at most the argument's size
# What is asked of an engine: to count, or to record each hit with its arguments.
COUNT, RECORD = "count", "record"
# Frames of a call stack, where nobody says how many.
DEEPEST = 127
# Numbers that a user may give, least and greatest, by their options.
RANGES = {"string_size": (8, 4096), "buffer": (1, 1024), "stack": (0, 1000), "min_size": (0, 1 << 30),
          "members": (0, 8)}  # fmt: skip
# What a traced process calls the memory that it shares with us.
NAME = "usdtbuild-trace"


class Unreadable(int):
    """The address of a string that could not be read; shown as 0x...."""

    __slots__ = ()


class Cut(bytes):
    """The beginning of a string that may be longer: so many bytes were wanted, or can be read, and none of them is its
    end."""

    __slots__ = ()


def string(raw: bytes, longest: int, *, is_cut: bool = False) -> bytes:
    """Return the value of a string of which at most `longest` bytes were read. `is_cut`: what follows can't be."""
    return Cut(raw) if is_cut or len(raw) >= longest else raw


# int for integers and pointers, float for floating point, bytes for strings (without the NUL; at most
# `Plan.string_size` bytes, Cut where there may be more or it goes on in memory that can't be read), None for the string
# that NULL is, Unreadable for a string at an address that can't be read. A value that an engine can't get at all is
# MISSING.
Value = int | float | bytes | None


class _Missing(int):
    """An argument that the engine had no way to read; shown as ?. It is a number (0) to whoever doesn't care."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "?"

    def __reduce__(self) -> str:
        return "MISSING"  # the same one in the process that it is sent to


MISSING = _Missing(0)


class Argument(NamedTuple):
    """How an argument is read and shown. `name` is '' where nobody gave it one; `type` is the C type as declared, or
    '' where the record only gives `size` (bytes) and `signed`. `kind` is INTEGER, POINTER, FLOAT or STRING. `values`
    are names of some of its values, as enumerators have them."""

    name: str
    type: str
    size: int
    signed: bool
    kind: str
    values: tuple[tuple[int, str], ...] = ()


# What is recorded of functions with `Wanted.frames`, behind their arguments: the stack pointer, and where they return.
FRAMES = (Argument("frame", "", 8, False, POINTER), Argument("back", "", 8, False, POINTER))


def without_frames(arguments: tuple[Argument, ...]) -> tuple[Argument, ...]:
    """Return what a function has been called with."""
    return tuple(one for one in arguments if one not in FRAMES)


class As(NamedTuple):
    """A type that a user gives an argument of the probes or functions that a pattern is for, '' for all."""

    pattern: str
    argument: str
    type: str

    def __str__(self) -> str:
        return ":".join(filter(None, self))


class Slot(NamedTuple):
    """A lazily bound slot in a process: its address, that of the word which holds the dynamic linker's own address once
    PLT entries may be run, and what registers hold when the slot's function is entered (`machines.stubs.Lazy`)."""

    address: int
    resolver: int
    loads: tuple[tuple[int, str], ...]


class Held(NamedTuple):
    """Where a call by a register gets the function's address from, and the slot (an address in the process) that holds
    the same if it is a call of the slot's function: the code before may have loaded something else."""

    place: Operand
    slot: int


class Around(NamedTuple):
    """The function around a place: where in the file it begins, 0 where that isn't known; or a part of one, which a
    compiler has put elsewhere. `offset` bytes above the stack pointer, or the frame pointer (`by_frame`), is the frame,
    which is the same in all of a call. Where nobody knows, it is further up than callees' frames, but not callers'."""

    function: int = 0
    is_part: bool = False
    by_frame: bool = False
    offset: int = 8


class Site(NamedTuple):
    """One place in the process' code where a target is hit.

    `address` is that of the process, `file_address` that of the file. `operands` say where the arguments are, in order.
    `semaphore` is the address of its semaphore in the process, 0 where it has none. `function` is the name of the
    function around it, '' where that isn't known. A PLT entry as a site has a `slot`: all calls come by once the slot
    leads there, and then need no other site of the target. `calls`: it is the call instruction, not the function; of
    `size` bytes, where not all such have the same. What is `held` there says whether the target is called at all.

    `returns` are the sites of a function's own returns, which stand for this one, its entry, where they can be watched
    instead; `unknown` is why they can't be told. Of such a site `entry` is the function's entry, without which it isn't
    traced, and `unused` how many bytes behind the return nobody runs.

    `padding`: as many bytes before `address` begins the padding of a function whose entry may be patched; `begins`
    is the function's own address in the file, and `body` the first one behind the NOPs of its entry.

    `near` are addresses of other places, up to four bytes behind it, where somebody else might put a breakpoint.
    `around` is the function around a probe, where somebody wants to know it (`Wanted.pairs`).
    `leads` are where, in the file, a function jumps to others, which then return in its place (`Wanted.frames`).
    """

    address: int
    file_address: int
    operands: tuple[Operand, ...]
    semaphore: int = 0
    function: str = ""
    slot: Slot | None = None
    calls: bool = False
    returns: tuple[Site, ...] = ()
    unknown: str = ""
    entry: int = 0
    unused: int = 0
    size: int = 0
    held: Held | None = None
    near: tuple[int, ...] = ()
    padding: int = 0
    begins: int = 0
    body: int = 0
    leads: tuple[int, ...] = ()
    around: Around = Around()


class Module(NamedTuple):
    """A file that a process has loaded as code: the path by which the process knows it, where it is, and what it is.

    `opens` is a path that opens it from here, '' where nothing does; `machine` is the ELF number of its machine,
    `build_id` what its linker has named it, in hexadecimal digits.
    """

    path: str
    load_bias: int
    opens: str
    machine: int
    build_id: str = ""

    @property
    def is_library(self) -> bool:
        """Whether it is called as shared libraries are."""
        return bool(re.search(r"\.so(\.[^/]*)?$", self.path))


class Target(NamedTuple):
    """Something that can be traced: a probe of one module with all its sites, or a function.

    `number` is its place in lists of counts and what events call it, given by the session; `kind` is PROBE, ENTER
    or another of these. For functions and calls `provider` is '' and `name` the function's, as it is linked; `written`
    is how its author wrote it, '' where that is the same. It is shown so, if not as it is linked (`mangled`).
    """

    number: int
    kind: str
    provider: str
    name: str
    module: Module
    arguments: tuple[Argument, ...]
    sites: tuple[Site, ...]
    written: str = ""
    mangled: bool = False

    @property
    def shown(self) -> str:
        """The name for people."""
        return (not self.mangled and self.written) or self.name

    @property
    def title(self) -> str:
        """`provider:probe`, or the function's name, with `:return` behind it for what it returns."""
        if self.kind in {EXIT, RETURN}:
            return f"{self.shown}:return"
        return f"{self.provider}:{self.name}" if self.provider else self.shown


class Frame(NamedTuple):
    """A call that is under way: its function, '' where that has no name, and its source line, 0 if that isn't known.

    `address` is one in the instruction that it executes, `offset` how far that is from the function's beginning, or in
    the file if it has no name; `module` is the file, '' for none. `inlined`: it is a part of the next one's code.
    """

    function: str
    file: str = ""
    line: int = 0
    module: str = ""
    address: int = 0
    offset: int = 0
    inlined: bool = False


class Event(NamedTuple):
    """One hit. `target` is the number of its Target; `values` are its arguments in order.

    `held` is for how long, in nanoseconds, its thread has stood for the tracer before: `own` time goes on without that.
    `frame` is where on the stack a call's return address is, and at its entry what that is (`Wanted.frames`); with a
    third number the call isn't meant, only what is over when it is entered.
    `stack` are the calls that it is in, the innermost first, if these are asked for.
    """

    time: int
    pid: int
    tid: int
    target: int
    values: tuple[Value, ...]
    held: int = 0
    frame: tuple[int, ...] = ()
    stack: tuple[Frame, ...] = ()

    @property
    def own(self) -> int:
        """The hit's time on a clock that stands while its thread stands for the tracer."""
        return self.time - self.held


class Refusal(NamedTuple):
    """What is not traced (a probe's or function's title, or one site of it), why, and what helps ('' if nothing)."""

    what: str
    reason: str
    cure: str = ""
    address: int | None = None

    def __str__(self) -> str:
        where = f" at {self.address:#x}" if self.address is not None else ""
        return f"{one_line(self.what)}{where}: {self.reason}" + (f"; {self.cure}" if self.cure else "")


# Why a site's hits aren't all known, if somebody else's breakpoint has come to it.
TAKEN = "another tracer took the site meanwhile; its count is not complete"


class Totals(NamedTuple):
    """Hits by the target's number so far, and those of them whose events are lost."""

    counts: dict[int, int]
    lost: dict[int, int]


class Stops(NamedTuple):
    """How many stops of threads at breakpoints there were, what each took beyond what was seen of it, and by how much
    that varies (nanoseconds)."""

    times: int
    cost: int
    spread: int


class Report(NamedTuple):
    """How a trace ended. `counts[number]` are all hits of a target, the lost ones too; `lost[number]` those of them
    whose event is missing. `refusals` are what was not traced at all or not to the end.

    `started` and `ended` are times as in events; add `wall_offset` to a time to get nanoseconds since 1970.
    `exit_code` is how the program ended: its code, negative for a signal, None if it didn't end or isn't ours.
    `threads` are names of threads by number, as far as they were seen; `engines` names of what did the work.
    `looked_up`: what the program and its libraries have was looked up before the trace ended.
    `stops` says what breakpoints have taken, None where there were none; it isn't in `held` if its cost is 0.
    `is_damaged`: the program has written into its buffers or counters, so hits may be lost, or numbers wrong, by that.
    `unfiltered`: with a filter, `counts` are hits that passed, and these all hits, of which `lost` never got there.
    """

    targets: tuple[Target, ...]
    counts: tuple[int, ...]
    lost: tuple[int, ...]
    refusals: tuple[Refusal, ...]
    engines: tuple[str, ...]
    started: int
    ended: int
    wall_offset: int
    threads: dict[int, str]
    exit_code: int | None = None
    looked_up: bool = True
    unfiltered: tuple[int, ...] = ()
    stops: Stops | None = None
    is_damaged: bool = False

    @property
    def hits(self) -> tuple[int, ...]:
        """All hits of each target, whether or not they passed a filter."""
        return self.unfiltered or self.counts

    @property
    def unseen(self) -> dict[str, None]:
        """The titles of targets of which some place was not traced, or not to the end: hits may be missing."""
        refused = {refusal.what for refusal in self.refusals}
        return dict.fromkeys(one.title for one in self.targets if one.title in refused)

    def is_exact(self, number: int) -> bool:
        """Whether a target's count is one: a filter can't be asked about a hit that was lost."""
        return not (self.unfiltered and self.lost[number])
