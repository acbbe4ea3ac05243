"""One trace as its user has it: start the worker, take what it tells, make events of raw records, hand all to outputs.

`Session` is what the command and the pytest plugin use. It never touches the traced process itself.
"""

from __future__ import annotations

import contextlib
import sys
import time
from bisect import bisect_right
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from operator import itemgetter
from pathlib import Path
from typing import Any

from ..errors import UsdtError
from ..record import NamedTuple
from . import hosts, job
from .begin import Begun, another_python, begun
from .containers import Family
from .errors import TracerError
from .job import Job
from .measures import Tables, added
from .model import COUNT, ENTER, Event, Totals, without_frames
from .native import ticks_a_second
from .patch.plausible import DAMAGED
from .patch.rings import Decoder
from .spool import Reader
from .stacks import Stacks, calling_of
from .tracer import Reading, Tracer

_PIECE = 512 << 10
_PORTION = 4096  # events at once: who has had enough is heard between two
_SLACK = 10**9  # nanoseconds that two clocks may be apart


class _Clock:
    """Ticks to nanoseconds, between marks that the worker gives: a line from each to the next. A mark is taken after
    the records that it comes with, so all of these lie on lines that no later mark changes: times never go back."""

    def __init__(self) -> None:
        self._ticks: list[int] = []
        self._times: list[int] = []
        # Of the line that was used last: from which ticks to which, where it is at the first, and how steep.
        self._line = 0, 1 << 64, 0, 0, 1, 1

    def mark(self, ticks: int, at: int) -> None:
        """Take a moment of both clocks; one that is too close to the one before is on the line so far."""
        if not self._ticks:
            self._ticks, self._times = [ticks - ticks_a_second()], [at - 10**9]
        elif at - self._times[-1] < job.APART or ticks <= self._ticks[-1]:
            return
        self._ticks.append(ticks)
        self._times.append(at)
        self._line = 0, 0, 0, 0, 1, 1
        if len(self._ticks) > 64:
            del self._ticks[:32], self._times[:32]

    def __call__(self, ticks: int) -> int:
        low, high, first, time, span, steps = self._line
        if not low <= ticks < high:
            known, times = self._ticks, self._times
            at = min(max(bisect_right(known, ticks) - 1, 0), len(known) - 2)
            low, high = (known[at] if at else 0), (known[at + 1] if at < len(known) - 2 else 1 << 64)
            first, time, span, steps = known[at], times[at], times[at + 1] - times[at], known[at + 1] - known[at]
            self._line = low, high, first, time, span, steps
        return time + (ticks - first) * span // steps


class _Standing:
    """How long threads have stood since their first hits."""

    def __init__(self) -> None:
        self._stops: dict[int, deque[tuple[int, int]]] = {}  # by thread, those that no hit came behind yet
        self._before: dict[int, int] = {}  # by thread, how long those before have lasted

    def take(self, message: job.Stood) -> None:
        for tid, since, lasted in message.stops:
            self._stops.setdefault(tid, deque()).append((since, lasted))

    def told(self, events: list[Event]) -> list[Event]:
        """Return hits with how long their threads had stood; those of a thread come in their order."""
        return [self._of(one) if one.tid in self._stops else one for one in events] if self._stops else events

    def _of(self, event: Event) -> Event:
        stops, held = self._stops[event.tid], self._before.get(event.tid)
        while stops and stops[0][0] + stops[0][1] <= event.time:
            lasted = stops.popleft()[1]
            held = held if held is None else held + lasted
        self._before[event.tid] = held = held or 0
        if stops or held:
            return event._replace(held=held + (max(0, event.time - stops[0][0]) if stops else 0))
        del self._stops[event.tid]
        return event


class _Piece(NamedTuple):
    """Records of one ring set: when the oldest was, in ticks; what decodes them; whose they can be; and they."""

    since: int
    decoder: Decoder
    processes: Family
    raw: bytes

    @property
    def records(self) -> int:
        return len(self.raw) // self.decoder.slot


def _pieces(spool: Reader, size: int, decoder: Decoder, processes: Family) -> Iterator[_Piece]:
    for raw in spool.take(size, max(1, _PIECE // decoder.slot) * decoder.slot):
        yield _Piece(decoder.since(raw), decoder, processes, raw)


class WorkerError(UsdtError):
    """What the worker could not do."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code


def why_not(wish: Job) -> str:
    """Return why no process can be traced from here, '' if one can."""
    if not sys.platform.startswith("linux"):
        return f"our own tracer is for Linux, and this is {sys.platform}"
    if wish.stack and not hosts.why_not() and calling_of(hosts.HOST.number) is None:
        return f"call stacks of {hosts.HOST.title} programs are not read"
    with contextlib.suppress(OSError, ValueError):
        if not hosts.why_not() and int(Path("/proc/sys/kernel/yama/ptrace_scope").read_text("ascii")) > 2:
            return "kernel.yama.ptrace_scope forbids tracing"
    return hosts.why_not()


class Session(Tracer):
    """A trace by our own engines, and by bpftrace: what touches the process is a worker, in a process of its own."""

    def __init__(self, wish: Job, tell: Callable[[str], None] = lambda _: None) -> None:
        super().__init__(wish, tell)
        self._families: dict[int, Family] = {}  # processes by family
        self._ended: job.Ended | None = None
        self._counted = Totals({}, {})
        self._begun = time.monotonic_ns()
        self._clock = _Clock()
        self._decoders: dict[int, Decoder] = {}
        self._functions: set[int] = set()  # targets of which calls may be recorded late
        self._members: dict[int, Family] = {}  # processes of which the records of a ring set can be
        self._recorded: Counter[int] = Counter()
        self._waiting: deque[job.Raw | job.Seen | job.Mark | job.Read] = deque()  # hits that nobody has looked at yet
        self._skipping = self._stop_early = False
        self._marks = 0  # how many of these are marks
        self._pieces: list[_Piece] = []  # of records before a mark, the oldest at the end
        self._reading: Tables = {}  # what has come of the one that comes
        self._coming: Reading | None = None
        self._due: Reading | None = None
        self._held: list[Event] = []
        self._stood = _Standing()
        self._worker: Begun | None = None
        self._has_job = self._has_started = self._is_stopping = False
        self._stacks = Stacks(wish.stack, hosts.HOST.number, mangled=wish.wanted.mangled)

    # -- the worker --------------------------------------------------------------------------------------------------

    def start(self, stdin: Any = None, stdout: Any = None, stderr: Any = None) -> None:
        """Start the worker, and with it the trace; wait until everything is armed. Raises UsdtError."""
        if self._worker is None:
            self._begin_worker(lambda: Begun(partial(another_python, streams=(stdin, stdout, stderr))))
        assert self._worker is not None
        spool, keeper = self._worker.numbers
        alone = not self.wish.argv or stdin is not None
        with contextlib.suppress(OSError):  # who hears of it finds out that the worker has ended
            self._worker.link.send(self.wish._replace(spool=spool, keeper=keeper, alone=alone))
        self._has_job = True
        if self._stop_early:
            self.stop()
        while not self._has_started and self._ended is None:
            self._take(self._receive())

    def start_worker(self) -> None:
        """Start the process that keeps our rights, as the command line does; ours may be given up then."""
        self._begin_worker(begun)

    def _begin_worker(self, begin: Callable[[], Begun]) -> None:
        try:
            self._worker = begin()
        except OSError as error:
            what = f"{error.filename}: " if error.filename else ""
            raise TracerError(f"the process that traces can't be started: {what}{error.strerror}") from None

    def _receive(self) -> job.Message:
        assert self._worker is not None
        try:
            message: job.Message = self._worker.link.recv()
        except (EOFError, OSError):
            raise TracerError("the process that traces has ended unexpectedly") from None
        return message

    def go(self) -> None:
        """Let the program that was started begin."""
        self._ask(job.GO)

    def stop(self) -> None:
        """Ask for the end: everything is put back, and the last events come. It is said once: a worker with much to
        tell doesn't listen, and would have us wait."""
        self._stop_early = not self._has_job
        if self._ended is None and not self._is_stopping:
            self._is_stopping = self._has_job
            if self.wish.argv and self.pid == 0:  # a program that hasn't begun may have missed what ends us
                self._ask(job.KILL)
            self._ask(job.STOP)

    def dump(self) -> None:
        """Ask for the last hits."""
        self._ask(job.DUMP)

    def skip(self) -> None:
        """From now on only count records, which may be many that wait: `left_out` is how many there were."""
        self._skipping = True

    def kill(self) -> None:
        """End the program that was started, with SIGKILL."""
        if self._ended is None and self.wish.argv:
            self._ask(job.KILL)

    def _ask(self, what: bytes) -> None:
        """Tell the worker something; that it has ended already is found out by who hears of it."""
        if self._worker is not None and self._has_job:
            with contextlib.suppress(OSError):
                self._worker.link.send_bytes(what)

    def close(self) -> None:
        """Let go of the worker; it puts everything back if it hasn't yet."""
        if self._worker is not None:
            self._worker.close()
            self._worker = None
        self._stacks.close()

    # -- what it tells -----------------------------------------------------------------------------------------------

    def batches(self, timeout: float = 0.1) -> Iterator[Sequence[Event]]:
        """Yield events, as `Tracer.batches` says."""
        while self._ended is None:
            assert self._worker is not None
            if self._worker.link.poll(0.0 if self._marks else timeout):
                self._take(self._receive())
                for _ in range(200):
                    if self._ended is not None or not self._worker.link.poll():
                        break
                    self._take(self._receive())
            elif not self._marks:
                yield []
            if self._marks:
                yield from self._portions()
        while self._marks:
            yield from self._portions()
        dropped = self._ended.dropped + sum(one.dropped for one in self._decoders.values())
        if dropped:
            self.damage.append(f"warning: the program has damaged its buffers: {dropped} records were dropped")
        self.warnings += self._stacks.warnings
        if self._ended.damaged:
            self.damage.append(DAMAGED)

    def _take(self, message: job.Message) -> None:
        if isinstance(message, (job.Raw, job.Seen, job.Mark, job.Read)):
            self._waiting.append(message)
            self._marks += isinstance(message, job.Mark)
        else:
            self._HANDLERS[type(message)](self, message)

    def _on_started(self, message: job.Started) -> None:
        self.pid, self.engines, self.stood_still = message
        self._has_started, self.looked_up = True, bool(self.pid)
        self.started = time.monotonic_ns()

    def _on_targets(self, message: job.Targets) -> None:
        self.targets += (one._replace(arguments=without_frames(one.arguments)) for one in message.targets)
        if self.wish.is_late:
            self._functions.update(one.number for one in message.targets if one.kind == ENTER)

    def _on_refused(self, message: job.Refused) -> None:
        self.refusals += message.refusals

    def _on_member(self, message: job.Member) -> None:
        family = self._families.setdefault(message.family, Family())
        self._stacks.forked(message.pid, family.values())
        family[message.inside] = message.pid
        self.looked_up |= self._has_started  # one that came later

    def _on_mapped(self, message: job.Mapped) -> None:
        self._stacks.mapped(*message)

    def _on_noted(self, message: job.Noted) -> None:
        (self.news if message.at_once else self.warnings if message.always else self.notes).append(message.text)

    def _on_sites(self, message: job.Sites) -> None:
        self.surely = min(self.surely, message.shape.holds(message.first))
        self._decoders[message.rings] = Decoder(message.shape, message.specs, self._functions)
        self._members[message.rings] = self._families.setdefault(message.family, Family())

    def _on_stood(self, message: job.Stood) -> None:
        self._stood.take(message)

    def _on_counted(self, message: job.Counted) -> None:
        self._counted = Totals(*message)
        if self.wish.evaluates:
            self.passed = message.counts

    def _on_tabled(self, message: job.Tabled) -> None:
        self.tables = message.tables

    def _on_failed(self, message: job.Failed) -> None:
        raise WorkerError(message.message, message.exit_code)

    def _on_ended(self, message: job.Ended) -> None:
        self.engines = message.engines  # those too that came to work later, with libraries
        self._ended = message
        self.exit_code, self.threads, self.stops = message.exit_code, message.threads, message.stops
        self.stood_still = message.stood_still
        self.finished = message.time or time.monotonic_ns()

    _HANDLERS: dict[type, Callable[[Session, Any], None]] = {  # noqa: RUF012
        job.Started: _on_started, job.Targets: _on_targets, job.Refused: _on_refused, job.Sites: _on_sites,
        job.Member: _on_member, job.Mapped: _on_mapped, job.Stood: _on_stood, job.Tabled: _on_tabled,
        job.Noted: _on_noted, job.Counted: _on_counted, job.Failed: _on_failed,
        job.Ended: _on_ended,
    }  # fmt: skip

    def _portions(self) -> Iterator[Sequence[Event]]:
        """Yield events up to the next mark, some at a time, until nobody wants any more."""
        for ready in self._decoded():
            for at in range(0, len(ready), _PORTION):
                if self._skipping:
                    self.left_out += len(ready) - at
                    break
                yield ready[at : at + _PORTION]
        yield []
        self._due, self._coming = self._coming or self._due, None

    def _decoded(self) -> Iterator[Sequence[Event]]:
        """Yield what is waiting, up to the first mark: what is younger may still have older company.

        It is decoded a piece at a time, oldest first: who wants few events doesn't wait for millions. Nothing that is
        older than the oldest record of the next piece is still to come.
        """
        last, tables = None, self._reading
        while not isinstance(message := self._waiting.popleft(), job.Mark):
            if isinstance(message, job.Raw):
                assert self._worker is not None
                which = message.rings
                self._pieces += _pieces(self._worker.spool, message.size, self._decoders[which], self._members[which])
                continue
            if isinstance(message, job.Seen):
                self._held += self._stacks.resolved(message.events)
                self._recorded.update(event.target for event in message.events)
                continue
            added(self._reading, message.tables)
            if message.is_last:  # one that came before it is out of date
                last, tables, self._reading = message, self._reading, {}
        self._marks -= 1
        self._clock.mark(message.ticks, message.time)
        self._pieces.sort(key=itemgetter(0), reverse=True)
        while self._pieces:
            self._decode(*self._pieces.pop())
            if self._pieces:
                yield self._ready(min(message.until, self._clock(self._pieces[-1].since)))
        if last is not None:
            self._coming = Reading(last.time, self._all(last.counts, last.lost), last.counts, tables)
        yield self._ready(message.until)

    def _ready(self, until: int) -> list[Event]:
        self._held.sort(key=itemgetter(0))
        at = bisect_right(self._held, (until,))
        ready, self._held = self._held[:at], self._held[at:]
        return self._stood.told(ready)

    def _decode(self, _: int, decoder: Decoder, processes: Family, raw: bytes) -> None:
        if not self._skipping:
            raw = decoder.checked(raw, processes)
        counts = decoder.count(raw)
        self._recorded.update(counts)
        if self._skipping:
            self.left_out += sum(counts.values())
        else:
            events = decoder.events(raw, self._clock, self._begun - _SLACK, time.monotonic_ns() + _SLACK)
            self._held += self._stacks.resolved(processes.here(events))

    @property
    def totals(self) -> Totals:
        """Hits so far: those that were counted only, those that were recorded, and those whose record is lost."""
        return self._all(*self._counted)

    def _all(self, counted: dict[int, int], lost: dict[int, int]) -> Totals:
        counts = dict(counted if self.wish.what == COUNT else {})
        for more in (lost, self._recorded):
            for number, count in more.items():
                counts[number] = counts.get(number, 0) + count
        return Totals(counts, lost)

    def reading(self) -> Reading | None:
        """Return what the worker has told, once all events before it have been handed over."""
        found, self._due = self._due, None
        return found

    @property
    def waiting(self) -> int:
        """Hits that were seen and are still to be handed over."""
        told = sum(len(one.events) if isinstance(one, job.Seen) else one.size // self._decoders[one.rings].slot
                   for one in self._waiting if isinstance(one, (job.Raw, job.Seen)))  # fmt: skip
        return len(self._held) + sum(one.records for one in self._pieces) + told


def thread_name(tid: int) -> str:
    """Return the name of a thread, '' if it has ended."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{tid}/comm").read_text("utf-8", "replace").rstrip("\n")
    return ""
