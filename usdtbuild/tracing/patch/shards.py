"""Where threads count each on their own, so that they don't wait for each other's processors.

What trampolines count and add up in stands in memory several times, as shards. The one of the number 0 is everybody's:
there each addition is atomic, which takes a processor 2 to 6 ns, and many times that if another one has just written
there. Each of the others belongs to the first thread that takes it, for good: there a plain addition is right, because
nobody else writes, and a handler of a signal comes before an instruction or behind it. Who reads adds all shards up.

A process remembers in a page of its own which threads have which shards, by their numbers (`owners`). The kernel wipes
that page in a forked child, so its threads take other shards, although the memory where they count is the same. Where a
kernel doesn't do that (before Linux 4.14), there are no shards but number 0; nor where it isn't known where a thread
finds its own number. Threads with the same number in one process are one after the other, or one stands until the
other is done (vfork). A program that lets two run at once with the same thread pointer, by clone(2) without
CLONE_SETTLS, may lose counts; none is known. Neither does a thread stand within an addition when it forks, unless in a
handler of a signal that came there. What else is a thread's own goes by the number of its shard: where its pairs of
hits wait, and, for the first few, where begins of pairs by a key do (`tables`). Each engine has owners of its own, so a
thread may have another number, or none, in that of a library that comes later: for pairs the one counts that it has
where the begins wait.

How many shards are left is a word in the memory that all processes of a trace write to. It says at most what number the
next one has, and a number that never was is none: a child with fewer rights can't send another one's counts elsewhere.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...record import NamedTuple
from ..spare import spare_memory

if TYPE_CHECKING:
    from collections.abc import Sequence

OWNERS_AT = 2048  # in the page with the process' number
MOST = 63  # threads with one of their own
_ALIGNED = 128  # processors fetch two cache lines at once
MEMORY = 16 << 20  # of all shards, which we touch first, so that it counts as ours
_LITTLE = 1 << 18  # for so much nobody is asked what memory there is, which takes a millisecond


class Shards(NamedTuple):
    """The shards of one part: what a trampoline needs to find that of its thread (`owners`, `tid_offset`, `left`: where
    the word is that says how many are left of `most`), and how far apart they are: what is at an address in number 0 is
    `ahead` + number * `block` behind it."""

    owners: int
    tid_offset: int
    left: int
    most: int
    block: int
    ahead: int

    def holes(self) -> dict[str, int]:
        """Return what fills the holes of templates, but for addresses."""
        return {"owners": self.owners, "tid_offset": self.tid_offset, "block": self.block, "shards_left": self.left,
                "most_shards": self.most}  # fmt: skip


class Wanted(NamedTuple):
    """What a trace needs for shards: where the page with the process' number is, where a thread finds its own, how many
    threads have a shard, and where the word is that says how many are left, 0 for behind the first part."""

    pid_cell: int
    tid_offset: int
    most: int
    left: int = 0

    def of_part(self, start: int, size: int, used: int) -> Shards:
        """Return the shards of a part whose counters, and what else is behind them, begin at an address and have this
        size; what is counted in is the `used` bytes of it."""
        left = self.left or start + size
        return Shards(self.pid_cell + OWNERS_AT, self.tid_offset, left, self.most, _block(used),
                      size + _ALIGNED - _block(used))  # fmt: skip

    def room(self, used: int) -> int:
        """Return how many bytes shards take behind a part."""
        return _ALIGNED + self.most * _block(used)


def wanted(pid_cell: int, tid_offset: int | None, used: Sequence[int]) -> Wanted | None:
    """Return what shards are made of, for parts in which so many bytes are counted in; None if there are none."""
    if tid_offset is None or not used:
        return None
    each = sum(map(_block, used))
    room = _LITTLE if each * MOST <= _LITTLE else min(MEMORY, spare_memory() // 8)
    most = min(MOST, room // each)
    return Wanted(pid_cell, tid_offset, most) if most else None


def _block(used: int) -> int:
    return -(-max(used, 1) // _ALIGNED) * _ALIGNED
