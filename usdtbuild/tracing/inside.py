"""The engine inside: a library of ours, preloaded into a command, switches its probes; no ptrace, no other rights.

For containers that forbid ptrace. `Inside` needs no worker, because nothing
must be put back: what the library changed goes with the process. They share four files in a private folder, which
`runtime/preload/usdt_live_preload.c` describes. The library is compiled once for each version and compiler, and
kept in the user's cache.

What the arguments of hits decide is evaluated there, too, by `programs`; what can't be is recorded for the front.
"""

from __future__ import annotations

import contextlib
import fcntl
import mmap
import os
import re
import shutil
import struct
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from ..apart import open_binary
from ..elf.dynamic import Dynamic
from ..elf.image import Image
from ..elf.tags import DT_NEEDED
from ..errors import InputError, UsageError
from ..folders import folder as folder_of
from ..inspection.demangle import demangle_if_possible
from ..text import one_line
from . import clock
from .call_tree import TREE_SIZE, CallTree, read_tree, tree_header
from .compiled import compiled
from .job import Job
from .model import (
    COUNT,
    ENTER,
    FLOAT,
    INTEGER,
    MISSING,
    POINTER,
    PROBE,
    STRING,
    Argument,
    Around,
    Event,
    Module,
    Refusal,
    Site,
    Target,
    Totals,
    Unreadable,
    Value,
    string,
)
from .outputs.values import function_names
from .patch.plausible import DAMAGED, Plausible, fits
from .programs import Point, Programs, operand
from .selection import EXCLUDE_RULE, FUNCTION_RULE, PROBE_RULE, with_enumerators
from .spawn import Spawned
from .surroundings import Surroundings
from .tracer import Reading, Tracer

_PAGE, _SLOT, _CELL = 4096, 256, 64
_HEADER = struct.Struct("=QQQQQQQ")  # head, tail, lost, slots, quiet, asked, answered
_RECORD = struct.Struct("=QQIIII12Q")  # sequence, time, pid, tid, point, bytes of text, values
_TEXT = 128  # where a slot's strings begin: 16 + 16 + 12 * 8
_LONGEST = 64  # bytes of a string, as far as there is room
_CUT = 128  # is added to its length if it goes on where nothing can be read
_MEASURED = 50_000_000  # nanoseconds from which on a clock's rate is known by its start and end
_MEMORY = "/dev/shm"  # where it is there, and has room  # noqa: S108
_WAIT = 30.0  # seconds for the library's first words
_FUNCTION = "2"
_IN_PART = 1 << 10  # threads that may have ended amid a hit
# What helps where the library refuses a place; the entries are those that only the library can't patch.
_CURES = {
    **dict.fromkeys(("other-nm", "padding-short", "padding-long"),
                    "compile it with what `usdtbuild flags --patchable` gives, or use --engine patch"),
    "too-small": "other engines trace it",
}  # fmt: skip
_NOT_LOADED = "it is static, or runs with other rights, and loads no library of ours", "use another engine"
_NOT_FIRST = (
    "AddressSanitizer ends programs with a preloaded library, as ours is",
    "set ASAN_OPTIONS=verify_asan_link_order=0",
)
# A pattern that may be a C++ function's whole name without parameters; the length of a name that begins so.
_PLAIN = re.compile(r"[A-Za-z_]\w*[*?\[\]\w]*$")
_LENGTHS = ("[0-9]", "[0-9][0-9]")


# -- the library -----------------------------------------------------------------------------------------------------


def library() -> Path:
    """Return the library to preload, compiled if the cache hasn't got it yet. Raises TracerError."""
    runtime = folder_of("runtime")
    sources = [*sorted((runtime / "live").glob("*.c")), *sorted((runtime / "preload").glob("*.c"))]
    headers = [*sorted((runtime / "live").glob("*.h")), *sorted((runtime / "preload").glob("*.h"))]
    return compiled("usdt-live", sources, headers, [runtime / "live"], needs="the engine inside")


# -- a trace ---------------------------------------------------------------------------------------------------------


def _shared(path: Path, size: int) -> mmap.mmap:
    with path.open("w+b") as file:
        file.truncate(size)
        return mmap.mmap(file.fileno(), size)


def _has_room(size: int) -> bool:
    """Whether what the program writes can be in memory. On a disk the first page that is written may take 10 ms, which
    the program would wait for. Who has set TMPDIR is followed."""
    try:
        found = os.statvfs(_MEMORY)
    except OSError:
        return False
    is_ours = "TMPDIR" not in os.environ and os.access(_MEMORY, os.W_OK | os.X_OK)
    return is_ours and found.f_bavail * found.f_frsize >= 2 * size


def why_not(_: Job) -> str:
    """Return why a library can't be preloaded here, '' if one can: it is found out when it is compiled."""
    return ""


class Inside(Tracer):
    """A trace of a command from inside."""

    def __init__(self, wish: Job, tell: Callable[[str], None] = lambda _: None) -> None:
        super().__init__(wish, tell)
        self._points: dict[int, int] = {}  # number in the counts file -> target
        self._numbers: dict[tuple[str, ...], int] = {}
        self._recorded: dict[int, int] = {}
        self._written: dict[str, str] = {}  # functions by what they are linked as
        self._program: Spawned | None = None
        self._stopped = False
        self._rest = ""
        self._began = clock.now() if wish.tree and clock.is_kernels() else None
        self._slots = self.surely = max(1, wish.buffer_size // _SLOT)
        size = self._slots * _SLOT + (TREE_SIZE if wish.tree else 0)
        self._folder = Path(tempfile.mkdtemp(prefix="usdtbuild-", dir=_MEMORY if _has_room(size) else None))
        self._ring = _shared(self._folder / "ring", _PAGE + self._slots * _SLOT)
        _HEADER.pack_into(self._ring, 0, 0, 0, 0, self._slots, 0, 0, 0)
        self._lock = (self._folder / "ring").open("rb")  # for as long as we are here
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        self._programs = (
            Programs(wish, self._folder, self.notes.append, self.warnings.append) if wish.evaluates else None
        )
        self._new: list[tuple[int, Site]] = []  # points that no program was asked for yet
        self._has_asked = False
        self._plausible = Plausible()
        for name in ("counts", "points"):
            (self._folder / name).touch(0o600)
        self._nodes = _shared(self._folder / "tree", TREE_SIZE) if wish.tree else None
        if self._nodes is not None:
            self._nodes[: len(tree_header())] = tree_header()
        self._log = (self._folder / "points").open("rb")
        self._counts = (self._folder / "counts").open("rb")
        (self._folder / "rules").write_text("".join(self._rules()), encoding="utf-8")

    def _rules(self) -> Iterator[str]:
        wanted = self.wish.wanted
        if wanted.shown_as:
            raise UsageError("--as: with the engine inside, arguments are read in the program, as it declares them")
        if self.wish.tree:
            yield f"T {int(self._began is not None)}\n"
            yield from self._cut()
        elif self.wish.what != COUNT:
            yield "R\n"
        elif self.wish.evaluates:
            yield "C\n"
        if self.wish.evaluates:
            yield f"E {self.wish.string_size}\n"
        if wanted.smallest:
            yield f"Z {wanted.smallest}\n"
        modules = [f"{one}!" for one in wanted.modules] or [""]
        if not wanted.probes and not wanted.functions and not self.wish.tree:
            yield from (f"{PROBE_RULE} {module}*\n" for module in modules)
        for letter, pattern in _with_linked(wanted.ordered):
            if len(pattern) > 200 or not pattern.isprintable():
                raise UsageError(f"the engine inside takes no pattern like {pattern[:40]!r}")
            here = modules if letter != EXCLUDE_RULE else ("",)
            yield from (f"{letter} {module}{pattern}\n" for module in here)

    def _cut(self) -> Iterator[str]:
        cut = self.wish.cut
        if cut.least:
            yield f"M {cut.least * clock.rate() // 10**9 if self._began is not None else cut.least}\n"
        if cut.depth:
            yield f"D {cut.depth}\n"
        for letter, patterns in (("B", cut.below), ("N", cut.not_below)):
            for _, pattern in _with_linked((FUNCTION_RULE, one) for one in patterns):
                yield f"{letter} {pattern}\n{FUNCTION_RULE} {pattern}\n"
        yield from (f"{letter} {one}\n" for letter, one in (("A", cut.begin), ("O", cut.end)) if one)

    def _ticks(self) -> tuple[int, int]:
        began, now = self._began or (0, 0), clock.now()
        if now[1] - began[1] < _MEASURED:
            return 10**9, clock.rate()
        return now[1] - began[1], max(1, now[0] - began[0])

    def start(self, stdin: Any = None, stdout: Any = None, stderr: Any = None) -> None:
        """Start the program, and wait until its probes are on. Raises UsdtError."""
        preload = library()
        environment = dict(self.wish.env if self.wish.env is not None else os.environ)
        before = environment.get("LD_PRELOAD", "")
        environment["LD_PRELOAD"] = f"{preload}:{before}" if before else str(preload)
        environment["USDT_LIVE_INSIDE"] = str(self._folder)
        argv, streams = self.wish.argv, (stdin, stdout, stderr)
        self._program = Spawned(argv, self.wish.cwd, environment, streams=streams).begin()
        self.pid = self._program.pid
        self.started = time.monotonic_ns()
        deadline = time.monotonic() + _WAIT
        while not (self.looked_up or self._stopped) and self._program.poll() is None and time.monotonic() < deadline:
            self._learn()
            time.sleep(0.001)
        self._learn()
        self.engines = ("inside",)
        if self._programs is not None and self.looked_up and not self._has_asked:
            self.notes.append("arguments are evaluated after the hit: the program can't map the tables' file")
        if self.looked_up:
            # It has opened what it needs, those that it starts find nothing, and who kills us leaves nothing behind.
            shutil.rmtree(self._folder, ignore_errors=True)
        elif not self._stopped:
            why, cure = _NOT_FIRST if _needs_asan(self.wish) else _NOT_LOADED
            self.refusals.append(Refusal(argv[0], why, cure))

    # -- what the library writes -------------------------------------------------------------------------------------

    def _learn(self) -> None:
        *lines, self._rest = (self._rest + self._log.read().decode("utf-8", "replace")).split("\n")
        fields = (line.split("\t") for line in lines)
        self._written.update(demangle_if_possible(one[3] for one in fields if len(one) > 3 and one[1] == _FUNCTION))
        for line in lines:
            if line == "ready":
                self.looked_up = True
            elif line == "asks":
                self._answer()
            elif line.startswith("failed "):
                refusal = Refusal(self.wish.argv[0], line.partition(" ")[2])
                self.refusals += [refusal] if refusal not in self.refusals else []
            elif "\t" in line:
                self._point(line.split("\t"))

    def _point(self, fields: Sequence[str]) -> None:
        index, kind, provider, name, path, bias, address, semaphore, reason, detail, *arguments = fields
        title = f"{provider}:{name}" if provider else name
        if reason:
            why = f"in {one_line(path)}: {detail or reason}"
            self.refusals.append(Refusal(title, why, _CURES.get(reason, ""), int(address, 16)))
            return
        is_function = kind == _FUNCTION
        shown = () if is_function else tuple(_argument(text) for text in arguments)
        operands = tuple(operand(place, one.size, one.signed) for place, one in enumerate(shown))
        in_file = int(address, 16) - int(bias, 16)
        around = _around(path, in_file) if self.wish.wanted.pairs and not is_function else Around()
        site = Site(int(address, 16), in_file, operands, int(semaphore, 16), around=around)
        key = (kind, path, bias, provider, name)
        number = self._numbers.setdefault(key, len(self.targets))
        self._points[int(index)] = number
        self._new.append((int(index), site))
        if number < len(self.targets):
            known = self.targets[number]
            self.targets[number] = known._replace(sites=(*known.sites, site))
            return
        module = Module(path, int(bias, 16), path, 0)
        kind = ENTER if is_function else PROBE
        written, mangled = self._written.get(name, ""), self.wish.wanted.mangled
        target = Target(number, kind, provider, name, module, shown, (site,), written, mangled)
        self.targets.append(target if is_function else with_enumerators(target, self.wish.wanted))

    def _answer(self) -> None:
        """Send programs for new points: the program waits for them before it hits any."""
        if self._programs is not None:
            self._programs.answer([Point(index, self.targets[self._points[index]], site) for index, site in self._new])
        self._new.clear()
        self._has_asked = True
        *_, answered = _HEADER.unpack_from(self._ring, 0)
        struct.pack_into("=Q", self._ring, _HEADER.size - 8, answered + 1)

    def batches(self, timeout: float = 0.1) -> Iterator[Sequence[Event]]:
        """Yield events, as `Tracer.batches` says."""
        assert self._program is not None
        over = False
        while not over:
            over = self._stopped or self._program.poll() is not None
            self._learn()
            events = self._events()
            self._look()
            if not events and not over:
                self._program.wait(min(timeout, 0.02))
            yield events
        self.exit_code = self._program.poll()
        self.finished = time.monotonic_ns()
        if self._programs is not None:
            self.tables = self._programs.tables()
            self._look()
            self._plausible.tables(self.tables.values())
            lasted = self.finished - self.started
            if self._plausible.is_damaged or not fits(self.tables, self.passed, _IN_PART, lasted):
                self.damage.append(DAMAGED)

    def _look(self) -> None:
        self.passed = {}
        if self._programs is not None and self.wish.what == COUNT:
            for point, count in self._programs.counts().items():
                number = self._points[point]
                self.passed[number] = self.passed.get(number, 0) + count

    def reading(self) -> Reading | None:
        """Return how far it is, with what was added up."""
        found = super().reading()
        if found is None or self._programs is None:
            return found
        tables = self._programs.tables()
        self._look()
        return found._replace(passed=self.passed, tables=tables)

    def _events(self) -> list[Event]:
        found = []
        head, tail, *_ = _HEADER.unpack_from(self._ring, 0)
        while tail < head:
            at = _PAGE + tail % self._slots * _SLOT
            sequence, when, pid, tid, point, used, *values = _RECORD.unpack_from(self._ring, at)
            if sequence != tail + 1:
                break  # being written; or its writer was killed, and there will be no more
            tail += 1
            number = self._points.get(point)
            if number is None:
                self._learn()
                number = self._points.get(point)
            if number is not None:
                text = bytes(self._ring[at + _TEXT : at + _TEXT + min(used, _SLOT - _TEXT)])
                found.append(Event(when, pid, tid, number, _values(self.targets[number].arguments, values, text)))
                self._recorded[number] = self._recorded.get(number, 0) + 1
        struct.pack_into("=Q", self._ring, 8, tail)
        return sorted(found)

    def tree(self) -> CallTree:
        """Return who called whom so far; the trace must have been asked for it."""
        assert self._nodes is not None
        self._learn()
        shown = function_names(self.targets)
        names = {point: shown[number] for point, number in self._points.items()}
        return read_tree(self._nodes, names, self._ticks)

    @property
    def totals(self) -> Totals:
        """Hits so far, by target, of a filter those that pass as far as that is known, and those whose event is
        missing."""
        counts = {**dict.fromkeys(range(len(self.targets)), 0), **self.passed}
        recorded = dict.fromkeys(counts, 0)
        known = self._programs.counts() if self._programs is not None else {}
        self._counts.seek(0)
        data = self._counts.read()
        for point, number in self._points.items():
            if _CELL * point + 8 > len(data) or (point in known and self.wish.what == COUNT):
                continue
            recorded[number] += struct.unpack_from("=Q", data, _CELL * point)[0] - known.get(point, 0)
        for number, count in recorded.items():
            counts[number] += count
        if self.wish.what == COUNT and self._programs is None:
            return Totals(counts, {})
        lost = {number: max(0, count - self._recorded.get(number, 0)) for number, count in recorded.items()}
        return Totals(counts, lost)

    # -- the end -----------------------------------------------------------------------------------------------------

    def stop(self) -> None:
        """End the trace; the program goes on, and its probes only count."""
        if not self._stopped:
            struct.pack_into("=Q", self._ring, 32, 1)
            self._stopped = True

    def kill(self) -> None:
        """End the program, with SIGKILL."""
        if self._program is not None:
            self._program.kill()

    def close(self) -> None:
        """Let go; the files' memory lives on in a program that runs on."""
        self.stop()
        self._log.close()
        self._counts.close()
        self._lock.close()
        if self._programs is not None:
            self._programs.close()
        shutil.rmtree(self._folder, ignore_errors=True)


def _around(path: str, address: int) -> Around:
    """Return what is around an address of a file."""
    with contextlib.suppress(InputError, OSError):
        opened = open_binary(path)
        if opened is not None:
            with opened:
                return Surroundings(Image(opened.view, path)).of(address, None)
    return Around()


def _needs_asan(wish: Job) -> bool:
    """Whether a command's program needs the library of AddressSanitizer (GCC's, or Clang's with -shared-libasan)."""
    with contextlib.suppress(InputError, OSError):
        opened = open_binary(wish.program)
        if opened is not None:
            with opened:
                return any("asan" in one for one in Dynamic(Image(opened.view, wish.program)).texts(DT_NEEDED))
    return False


def _with_linked(rules: Iterable[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """Yield rules, and behind one for `price` or `price*` those for C++'s `price(...)` as it is linked: the program may
    have no library that can read such names."""
    for letter, pattern in rules:
        yield letter, pattern
        if letter in {FUNCTION_RULE, EXCLUDE_RULE} and _PLAIN.match(pattern):
            exact = pattern.isidentifier()
            linked = [f"{len(pattern)}{pattern}[^I]"] if exact else [f"{digits}{pattern}" for digits in _LENGTHS]
            yield from ((letter, f"_Z{static}{one}*") for static in ("", "L") for one in linked)


def _argument(text: str) -> Argument:
    size, signed, is_text, name, type_ = text.split("|", 4)
    if is_text == "1":
        kind = STRING
    elif "*" in type_:
        kind = POINTER
    else:
        kind = FLOAT if type_ in {"float", "double"} else INTEGER
    return Argument(name, type_, int(size), signed == "1", kind)


def _values(arguments: Sequence[Argument], raw: Sequence[int], text: bytes) -> tuple[Value, ...]:
    found: list[Value] = []
    at = 0
    for index, argument in enumerate(arguments):
        value = raw[index] if index < len(raw) else None
        if value is None:
            found.append(MISSING)
        elif argument.kind == STRING:
            if at >= len(text):  # there was no room for it
                found.append(MISSING)
                continue
            length = text[at]
            at += 1
            if length == 255:
                found.append(Unreadable(value) if value else None)
            else:
                size = length & ~_CUT
                found.append(string(text[at : at + size], min(_LONGEST, _SLOT - _TEXT - at), is_cut=size != length))
                at += size
        elif argument.kind == FLOAT:
            size, form = (4, "=f") if argument.size == 4 else (8, "=d")
            found.append(struct.unpack(form, value.to_bytes(8, "little")[:size])[0])
        else:
            found.append(value - (1 << 64) if argument.signed and value >> 63 else value)
    return tuple(found)
