"""Read records out of the shared rings, and make events of them.

`Rings` hands over what is complete as raw bytes, many at a time, so that it keeps up with a program that hits millions
of times a second; `Decoder` turns raw bytes into events whenever there is time. `code` says what a slot looks like.
"""

from __future__ import annotations

import ctypes
import struct
import time
from collections import Counter
from itertools import compress
from typing import TYPE_CHECKING, NamedTuple

from .. import native
from ..model import FLOAT, FRAMES, MISSING, STACK, STRING, Event, Unreadable, string
from ..spare import spare_memory
from .code import CUT, GONE, HEAD, HEADER, READY, RING_HEADER, RINGS, TAIL, WAITED, Shape

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence
    from mmap import mmap

    from ..model import Argument, Value

    Write = Callable[[memoryview], object]
    Give = Callable[[int, int], bool]

# How much of a ring is used again and again while it is emptied often enough, and how often a reader tries to catch it
# empty, each time it reads.
_USED, _TRIES = 256 << 10, 4
# How much of each ring has memory from the start, so that a reader may be late before a ring has grown.
FIRST = 4 << 20
# A slot that was claimed and not completed for so long belongs to a thread that was killed in between (in seconds).
_DEAD = 2.0
_COPIED = 4 << 20  # bytes at a time
# How far a record may stand behind younger ones: their threads were faster between claiming a slot and taking the time.
_DISORDER = 4096
_POOR = 1.0  # how long memory isn't asked for again where there was none, in seconds


class Rings:
    """The rings of one shared memory, from their offset on.

    A ring is long, so that a reader may be late, but only its first part has memory, which the reader gives, and so
    pays for: what the traced process touched first would count as its own, and a limit may end it for that. Where a
    ring is used beyond half of what it has, it gets twice as much. Writers that come to its end sooner take memory
    themselves; if they are `limited`, their hits are lost until the ring is empty, and sent back to its start.

    A reader that is not late sends the writers back to the start of a ring before: where it finds a ring empty that is
    in use beyond _USED bytes, the head becomes the number of the next slot that is the first, in one atomic step that
    fails if anything was claimed meanwhile, and so does the tail. Slots that were passed over were never claimed and
    nobody waits for them. Between the two stores, head - tail is what it would be if those slots were full, which is
    less than there are, so no hit is lost for it while the used ones last. A writer that had read the old head fails to
    claim with it, and reads again; numbers only grow, so none comes back.
    """

    def __init__(
        self, data: mmap, offset: int, shape: Shape, give: Give, enough: int = 0, *, limited: bool = True
    ) -> None:
        """`give` gives memory to so many bytes from an offset of `data` on; False: there is none. Where the first
        records of all rings are `enough`, no more of each is read than could be among them."""
        self.data, self.offset, self.shape, self._give, self._limited = data, offset, shape, give, limited
        self._bytes = memoryview(data)
        self._words = self._bytes.cast("Q")
        self._place: ctypes.c_char | None = ctypes.c_char.from_buffer(data)
        self._address = ctypes.addressof(self._place)
        self._skip = native.skip()
        self._fence = native.fence()
        self._tails, self._ready = [0] * RINGS, [0] * RINGS
        self._left = [enough + _DISORDER if enough else 1 << 64] * RINGS  # how many more of each are read
        self.given, self._are_enough = 0, bool(enough)  # records so far; none where all are wanted
        self._poor_until = 0.0
        self._holes: dict[int, tuple[int, float]] = {}
        self.holes = 0
        self._ends: dict[int, int] = {}  # where a ring ends for us, once nobody is to write there any more
        self._damaged: set[int] = set()
        self._turn = 0  # which ring is emptied first: not always the same, where there is little room
        self.nobody_waits = False  # for room, from the next time on that rings are emptied
        self.dropped = 0  # records in rings whose numbers can't be: the program has written there

    def close(self) -> None:
        """Let go of the memory."""
        self._place = None
        self._words.release()
        self._bytes.release()

    def prepare(self, ring: int, size: int) -> bool:
        """Let a ring have so many bytes of slots, or all; False: there is no memory for more than it has."""
        shape, start = self.shape, self.offset + ring * self.shape.stride
        slots = min(max(size // shape.slot, 1), shape.slots)
        known = self._ready[ring]
        before = RING_HEADER + known * shape.slot if known else 0
        if slots > known:
            if not self._give(start + before, RING_HEADER + slots * shape.slot - before):
                return False
            self._ready[ring] = slots
            self._words[(start + READY) // 8] = slots if self._limited else shape.slots
        return True

    def _grow(self, ring: int) -> None:
        """Let a ring have more that is used beyond half of what it has, if there is memory to spare."""
        ready, now = self._ready[ring], time.monotonic()
        used = self._head(ring) & (self.shape.slots - 1)
        if ready == self.shape.slots or 2 * used <= ready or now < self._poor_until:
            return
        size = ready * self.shape.slot
        if size > spare_memory() // 4 or not self.prepare(ring, 2 * size):
            self._poor_until = now + _POOR

    def collect(self, write: Write, *, final: bool = False) -> int:
        """Hand all complete records over as raw bytes; return how many. `final`: what isn't complete never will be.

        What `write` gets is there until it returns. Where it returns False, it has no room: the rest stays.
        """
        total = 0
        first = self._turn
        for ring in (*range(first, RINGS), *range(first)):
            start = self.offset + ring * self.shape.stride
            if not final:
                self._grow(ring)
                if self.shape.patience and self._words[(start + GONE) // 8] != self.nobody_waits:
                    self._words[(start + GONE) // 8] = self.nobody_waits
            for _ in range(_TRIES):
                count, room = self._empty(ring, start, write, final=final)
                total += count
                if not room:
                    self._turn = (ring + 1) % RINGS
                    return total
                if final or self._sent_back(ring, start):
                    break
        return total

    def told(self) -> tuple[int, int]:
        """Return `dropped`, and for how many ticks threads have waited for us, as the program has it."""
        starts = range(self.offset, self.offset + RINGS * self.shape.stride, self.shape.stride)
        return self.dropped, sum(self._words[(start + WAITED) // 8] for start in starts)

    def heads(self) -> list[int]:
        """Return up to where each ring is filled."""
        return [self._head(ring) for ring in range(RINGS)]

    def are_read(self, heads: Sequence[int]) -> bool:
        """Whether all that was in the rings when they were filled up to here has been handed over."""
        return all(
            tail >= heads[ring] or not self._left[ring] or ring in self._damaged
            for ring, tail in enumerate(self._tails)
        )

    def _head(self, ring: int) -> int:
        """Return up to where a ring is to be read. The program can write anything there, so nothing of it is believed.

        Writers claim a slot only where one is free, so the head is never before our tail, nor more than all slots
        after it. A ring of which that isn't true is not read any more. At the end, what was claimed by then is all.
        """
        tail = self._tails[ring]
        if ring in self._damaged:
            return tail
        head = self._words[(self.offset + ring * self.shape.stride + HEAD) // 8]
        if not tail <= head <= tail + self.shape.slots:
            self._damaged.add(ring)
            self.dropped += min(abs(head - tail), self.shape.slots)
            return tail
        return min(head, self._ends.get(ring, head))

    def _empty(self, ring: int, start: int, write: Write, *, final: bool) -> tuple[int, bool]:
        """Hand over what is complete in a ring; return how many records, and whether there was room for all."""
        shape, total = self.shape, 0
        head = min(self._head(ring), self._tails[ring] + self._left[ring])
        if final:
            self._ends.setdefault(ring, head)
        while self._tails[ring] < head:
            count = self._piece(start, self._tails[ring], head)
            if count:
                at = start + RING_HEADER + (self._tails[ring] & (shape.slots - 1)) * shape.slot
                if write(self._bytes[at : at + count * shape.slot]) is False:
                    return total, False
                total += count
                self.given += count * self._are_enough
                self._left[ring] -= count
                self._advance(ring, start, count)
            elif final or self._is_dead(ring):
                self.holes += 1
                self._advance(ring, start, 1)
            else:
                break
        return total, True

    def _sent_back(self, ring: int, start: int) -> bool:
        """Send the writers of a ring back to its start, if that is worth it; False: it would be, but it isn't empty."""
        tail, slots = self._tails[ring], self.shape.slots
        if (tail & (slots - 1)) * self.shape.slot < min(_USED, self._ready[ring] * self.shape.slot // 2):
            return True
        first = (tail | (slots - 1)) + 1
        if not self._skip(self._address + start + HEAD, tail, first, self._address + start + TAIL):
            return False
        self._tails[ring] = first
        return True

    def holds(self) -> bool:
        """Whether any ring has something that was not handed over."""
        return any(self._left[ring] and self._head(ring) > tail for ring, tail in enumerate(self._tails))

    def _advance(self, ring: int, start: int, count: int) -> None:
        self._fence()  # what was read is read before its room is given back
        self._tails[ring] += count
        self._words[(start + TAIL) // 8] = self._tails[ring]
        self._holes.pop(ring, None)

    def _piece(self, start: int, tail: int, head: int) -> int:
        """Return how many complete slots stand one behind the other from the tail on."""
        shape = self.shape
        first = tail & (shape.slots - 1)
        count = min(head - tail, shape.slots - first, max(1, _COPIED // shape.slot))
        at = start + RING_HEADER + first * shape.slot
        step = shape.slot // 8
        sequences = self._words[at // 8 : at // 8 + count * step : step].tolist()
        if sequences != list(range(tail + 1, tail + count + 1)):
            count = next(i for i, sequence in enumerate(sequences) if sequence != tail + 1 + i)
        self._fence()  # sequences are read before what they say is complete
        return count

    def _is_dead(self, ring: int) -> bool:
        tail, since = self._holes.get(ring, (-1, 0.0))
        now = time.monotonic()
        if tail != self._tails[ring]:
            self._holes[ring] = (self._tails[ring], now)
            return False
        return now - since > _DEAD


class SiteSpec(NamedTuple):
    """How the records of one site are read: its target's number, and per argument (size, signed) as its operand has
    it, and where its string is in the slot (0 where it is none)."""

    target: int
    arguments: tuple[Argument, ...]
    sizes: tuple[tuple[int, bool, bool], ...]
    strings: tuple[int, ...]


_INTEGERS = {1: "B7x", 2: "H6x", 4: "I4x", 8: "Q"}
_FLOATS = {4: "f4x", 8: "d"}
_HEADER = struct.Struct("<QIII")  # behind the sequence: time, thread, site, process
_TICKS_AT, _SITE_AT, _THREAD_AT, _PROCESS_AT = 8, 20, 16, 24
_FEW = 16  # so many sites are counted faster one by one
_MOST_THREADS = 1 << 22  # the kernel's limit of thread numbers (PID_MAX_LIMIT)
_TELLS = 1 << 31  # with a thread's number: the record only tells of ends of calls, and its frame is longer
# Likewise: the record is of a call that was entered before, with its target's number in place of the site's.
_LATE = 1 << 30
_LATE_RECORD, _FRAME = struct.Struct("<QQIIIIQQ"), struct.Struct("<QQ")


class Decoder:
    """Raw bytes of slots to events; `clock` turns what the processor's clock said into nanoseconds."""

    def __init__(self, shape: Shape, specs: Sequence[SiteSpec], functions: Collection[int] = ()) -> None:
        """`functions` are the numbers of targets, now and later, of which there may be records that came late."""
        self._shape, self.slot, self._functions = shape, shape.slot, functions
        self._sites = [
            (spec.target, _reader(spec, shape.string_size), sum(one in FRAMES for one in spec.arguments))
            for spec in specs
        ]
        self.dropped = 0  # records that can't be: the program has written into its rings

    def checked(self, raw: bytes, processes: Collection[int]) -> bytes:
        """Return a chunk without the records that name a site, a process or a thread that can't be, which are counted.

        The program can write whatever it likes into its rings. All records of a chunk are looked at a column at a time.
        """
        words, step = memoryview(raw).cast("I"), self.slot // 4
        sites, pids, tids = (words[at // 4 :: step].tolist() for at in (_SITE_AT, _PROCESS_AT, _THREAD_AT))
        count = len(self._sites)
        known = all(pid in processes for pid in set(pids))
        if known and max(sites, default=0) < count and max(tids, default=0) <= _MOST_THREADS:
            return raw
        kept = [
            raw[at * self.slot : (at + 1) * self.slot]
            for at, (site, pid, tid) in enumerate(zip(sites, pids, tids))
            if (site in self._functions if tid & _LATE else site < count)
            and pid in processes
            and tid & ~(_TELLS | _LATE) <= _MOST_THREADS
        ]
        self.dropped += len(sites) - len(kept)
        return b"".join(kept)

    def since(self, raw: bytes) -> int:
        """Return when the oldest record of a chunk is from, in ticks, as far as it can be believed."""
        return min(memoryview(raw).cast("Q")[_TICKS_AT // 8 :: self.slot // 8].tolist(), default=0)

    def events(self, raw: bytes, clock: Callable[[int], int], since: int = 0, until: int = 1 << 64) -> list[Event]:
        """Return the events of a `checked` chunk. What says that it is of another time than that between `since` and
        `until`, or has a string that is longer than its room, is counted in `dropped`."""
        unpack, sites, made = _HEADER.unpack_from, self._sites, Event._make
        found: list[Event] = []
        for at in range(0, len(raw), self._shape.slot):
            ticks, tid, site, pid = unpack(raw, at + 8)
            when = clock(ticks)
            if tid & _LATE:
                target, values, frames = site, _FRAME.unpack_from(raw, at + HEADER), len(FRAMES)
            else:
                target, read, frames = sites[site]
                values = read(raw, at)
            if values is None or not since <= when <= until:
                self.dropped += 1
            elif frames:
                frame = values[-frames:] if tid < _TELLS else (*values[-frames:], 0)
                found.append(made((when, pid, tid & ~(_TELLS | _LATE), target, values[:-frames], 0, frame, ())))
            else:
                found.append(made((when, pid, tid & ~_TELLS, target, values, 0, (), ())))
        return found

    def count(self, raw: bytes) -> Counter[int]:
        """Return how many events of each target a chunk holds, which takes a fraction of the time."""
        found: Counter[int] = Counter()
        words, step = memoryview(raw).cast("I"), self.slot // 4
        if len(self._sites) <= _FEW and not self._functions:
            numbers, *above = (raw[_SITE_AT + byte :: self.slot] for byte in range(4))
            if not any(column.strip(b"\0") for column in above):
                for number, (target, _, _) in enumerate(self._sites):
                    found[target] += numbers.count(number)
                return +found
        sites: Sequence[int] = words[_SITE_AT // 4 :: step].tolist()
        if self._functions:
            late = [tid & _LATE for tid in words[_THREAD_AT // 4 :: step].tolist()]
            found.update(compress(sites, late))
            sites = [site for site, is_late in zip(sites, late) if not is_late]
        for site, count in Counter(sites).items():
            if site < len(self._sites):
                found[self._sites[site][0]] += count
        return found


def late_record(time: int, tid: int, number: int, pid: int, frame: tuple[int, int]) -> bytes:
    """Return a record of a call that was entered before, of a target with this number."""
    return _LATE_RECORD.pack(0, time, tid | _LATE, number, pid, 0, *frame)


def _reader(spec: SiteSpec, longest: int) -> Callable[[bytes, int], tuple[Value, ...] | None]:
    """Return a function that reads the arguments of a slot; it returns None where one can't be, which is a string of
    more than `longest` bytes."""
    pattern = "<"
    for argument, (size, signed, floating) in zip(spec.arguments, spec.sizes):
        if (argument.kind == FLOAT or floating) and size in _FLOATS:
            pattern += _FLOATS[size]
        else:
            letters = _INTEGERS.get(size, "Q")
            pattern += letters.lower() if signed else letters
    unpack = struct.Struct(pattern).unpack_from
    stacks = [i for i, argument in enumerate(spec.arguments) if argument.kind == STACK]
    strings = [(i, at) for i, at in enumerate(spec.strings) if at and i not in stacks]
    missing_at = struct.Struct("<I").unpack_from

    def plain(raw: bytes, at: int) -> tuple[Value, ...]:
        values: tuple[Value, ...] = unpack(raw, at + HEADER)
        (missing,) = missing_at(raw, at + 28)
        if missing:
            return tuple(MISSING if missing >> min(i, 31) & 1 else value for i, value in enumerate(values))
        return values

    def with_strings(raw: bytes, at: int) -> tuple[Value, ...] | None:
        values = list(plain(raw, at))
        for index, place in strings:
            pointer = values[index]
            length = int.from_bytes(raw[at + place : at + place + 8], "little", signed=True)
            if pointer is MISSING:
                continue
            size = length & ~CUT
            is_cut = size != length
            if length != -1 and (not 0 <= size <= longest or (is_cut and not size)):  # of a cut one there is something
                return None
            if not pointer:
                values[index] = None
            elif length < 0:
                values[index] = Unreadable(pointer)
            else:
                values[index] = string(raw[at + place + 8 : at + place + 8 + size], longest, is_cut=is_cut)
        return tuple(values)

    def with_stacks(raw: bytes, at: int) -> tuple[Value, ...] | None:
        found = with_strings(raw, at)
        if found is None:
            return None
        values = list(found)
        for index in stacks:
            place, most = at + spec.strings[index], spec.arguments[index].size
            length = int.from_bytes(raw[place : place + 8], "little")
            if length > most:
                return None
            values[index] = raw[place + 8 : place + 8 + length]
        return tuple(values)

    return with_stacks if stacks else with_strings if strings else plain


def slot_for(argument_counts: Sequence[int], string_counts: Sequence[int], string_size: int, stack: int = 0) -> int:
    """Return how many bytes a slot needs for any of targets with so many arguments and strings, and bytes of stack."""
    padded = -(-string_size // 8) * 8
    sizes = (8 * n + (8 + padded) * s for n, s in zip(argument_counts, string_counts))
    return HEADER + max(sizes, default=0) + (8 + stack if stack else 0)


def shape_for(
    argument_counts: Sequence[int], string_counts: Sequence[int], string_size: int, buffer: int, stack: int = 0
) -> Shape:
    """Return the shape of slots and rings for targets with so many arguments and strings; `buffer` bytes a ring."""
    slot = slot_for(argument_counts, string_counts, string_size, stack)
    slots = 64
    while slots * 2 * slot <= buffer:
        slots *= 2
    stride = 1 << (RING_HEADER + slots * slot - 1).bit_length()
    return Shape(slot, slots, stride, string_size)


def string_places(arguments: Sequence[Argument], string_size: int) -> tuple[int, ...]:
    """Return where in a slot the string of each argument is; 0 for arguments that are none."""
    padded = -(-string_size // 8) * 8
    places, at = [], HEADER + 8 * len(arguments)
    for argument in arguments:
        if argument.kind in {STRING, STACK}:
            places.append(at)
            at += 8 + (padded if argument.kind == STRING else argument.size)
        else:
            places.append(0)
    return tuple(places)
