"""Read the last records out of rings that keep them, while others may write there, and choose the last of all.

`code` says what such a ring looks like, and why a record of which the number is the same before and after it was copied
is that record. Nothing else that a ring says is believed: a head that is anything leads to slots whose numbers differ.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from .. import native
from .code import HEAD, RING_HEADER, RINGS, STOP, Shape

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from mmap import mmap

    from .rings import Give, Write

_PIECE = 256 << 10  # bytes that are copied between two looks at their numbers
_WORD = (1 << 64) - 1
_TRIES = 4  # to copy what isn't overwritten meanwhile


class Kept:
    """The rings of one shared memory, as `rings.Rings`, of which nothing is handed over but by `take`."""

    def __init__(self, data: mmap, offset: int, shape: Shape, give: Give) -> None:
        self.offset, self.shape, self._give = offset, shape, give
        self._bytes = memoryview(data)
        self._words = self._bytes.cast("Q")
        self._fence = native.fence()
        self._from = [0] * RINGS  # the number of the next record that was not looked at
        self._open: list[list[int]] = [[] for _ in range(RINGS)]  # numbers of records that weren't complete then
        self.dropped = self.given = 0  # see `rings.Rings`
        self.overwritten = 0  # records that were, while they were read
        self.covered = 0  # where a ring has more than it keeps: up to this time records may be missing

    def close(self) -> None:
        """Let go of the memory."""
        self._words.release()
        self._bytes.release()

    def prepare(self, ring: int, size: int) -> bool:
        """Give memory to so many bytes of a ring's slots; False: there is none. What is beyond them comes as it is
        used."""
        shape = self.shape
        return self._give(self.offset + ring * shape.stride, RING_HEADER + min(size, shape.slots * shape.slot))

    def collect(self, write: Write, *, final: bool = False) -> int:
        """Hand over nothing."""
        return 0

    def holds(self) -> bool:
        """Nothing waits to be handed over."""
        return False

    def told(self) -> tuple[int, int]:
        """As above; nobody waits."""
        return self.dropped, 0

    def heads(self) -> list[int]:
        """Return how many records each ring has had."""
        return [self._words[(self.offset + ring * self.shape.stride + HEAD) // 8] for ring in range(RINGS)]

    def are_read(self, heads: Sequence[int]) -> bool:
        """Nothing waits."""
        return True

    def stopped(self) -> int:
        """Return the time of the record that was waited for, 0 if it hasn't come."""
        return self._words[(self.offset + STOP) // 8]

    def hold(self, *, on: bool) -> None:
        """Let nothing be recorded, as if that had come, or let it be again."""
        at = (self.offset + STOP) // 8
        if self._words[at] == (not on):
            self._words[at] = on

    def take(self, most: int) -> list[bytes]:
        """Return the records that are complete and were not returned before, of each ring `most` at most (0: all that
        there are)."""
        found = []
        for ring in range(RINGS):
            for left in reversed(range(_TRIES)):
                before, waiting = self.overwritten, self._open[ring]
                begun, self._open[ring] = self._from[ring], []
                pieces = list(self._take(ring, most or self.shape.slots, waiting))
                if self.overwritten == before or not left:
                    break
                self._from[ring], self._open[ring], self.overwritten = begun, waiting, before
            found += pieces
        return found

    def _take(self, ring: int, most: int, waiting: Sequence[int]) -> Iterator[bytes]:
        shape, start = self.shape, self.offset + ring * self.shape.stride
        head = self._words[(start + HEAD) // 8]
        first = max(self._from[ring], head - min(most, shape.slots))
        for number in waiting:
            if head - shape.slots <= number < first:
                yield from self._copied(ring, number, number + 1)
        if first > self._from[ring] and first == head - shape.slots:
            self.covered = max(self.covered, self._words[(start + RING_HEADER) // 8 + (first & shape.slots - 1)
                                                         * shape.slot // 8 + 1])  # fmt: skip
        while first < head:
            behind = first & (shape.slots - 1)
            end = first + min(head - first, shape.slots - behind, max(1, _PIECE // shape.slot))
            yield from self._copied(ring, first, end)
            first = end
        self._from[ring] = max(head, self._from[ring])

    def _copied(self, ring: int, first: int, end: int) -> Iterator[bytes]:
        """Yield those of the records with numbers up to `end` that are complete, whose slots stand one behind the
        other."""
        slot = self.shape.slot
        at = self.offset + ring * self.shape.stride + RING_HEADER + (first & (self.shape.slots - 1)) * slot
        words = self._words[at // 8 : at // 8 + (end - first) * slot // 8 : slot // 8]
        wanted = list(range(first + 1, end + 1))
        before = words.tolist()
        self._fence()
        raw = bytes(self._bytes[at : at + (end - first) * slot])
        self._fence()
        after = words.tolist()
        if wanted == before == after:
            yield raw
            return
        good = [was == number == now for was, number, now in zip(before, wanted, after)]
        for index, (number, now) in enumerate(zip(wanted, after)):
            if good[index]:
                yield raw[index * slot : (index + 1) * slot]
            elif now == _WORD - number or now < number:  # it is being written, or nobody has begun to
                self._open[ring].append(number - 1)
            else:
                self.overwritten += 1


class Piece(NamedTuple):
    """Records of one set of rings (`number`, and `slot` bytes each), those of one thread in their order."""

    number: int
    slot: int
    raw: bytes

    def times(self) -> list[int]:
        """Return their times."""
        return memoryview(self.raw).cast("Q")[1 :: self.slot // 8].tolist()

    def between(self, since: int, until: int) -> Piece:
        """Return those of them whose time is from `since` to `until`."""
        times = self.times()
        if all(since <= time <= until for time in times):
            return self
        kept = [index for index, time in enumerate(times) if since <= time <= until]
        return self._replace(raw=b"".join(self.raw[one * self.slot : (one + 1) * self.slot] for one in kept))


def latest(pieces: Sequence[Piece], most: int) -> list[Piece]:
    """Return the `most` last records of pieces, by their times."""
    if sum(len(one.raw) // one.slot for one in pieces) <= most:
        return list(pieces)
    since = sorted(time for one in pieces for time in one.times())[-most]
    found = [one.between(since, _WORD) for one in pieces]
    excess = sum(len(one.raw) // one.slot for one in found) - most  # of the same time
    for index, one in enumerate(found):
        times = one.times()
        same = [place for place, time in enumerate(times) if time == since][:excess] if excess else []
        excess -= len(same)
        if same:
            left = (one.raw[at * one.slot : (at + 1) * one.slot] for at in range(len(times)) if at not in Counter(same))
            found[index] = one._replace(raw=b"".join(left))
    return found
