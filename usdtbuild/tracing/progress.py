"""What the worker tells of how far it is: hits, whenever there are more, and readings, every so often."""

from __future__ import annotations

import math
import time
from collections import Counter

from . import job
from .arming import Arming
from .job import Job
from .measures import parts
from .outbox import Outbox

COUNTING = 0.05  # how often counters are read, in seconds
_SHARE = 10  # and where that takes long, in one of so many parts of the time
_PART = 400  # numbers of tables in one message: some 40 KB


class Progress:
    """Reads counters and tables, which go on meanwhile. `hits` are those of breakpoints that are only counted."""

    def __init__(self, wish: Job, outbox: Outbox, arming: Arming) -> None:
        self._wish, self._outbox, self._armed = wish, outbox, arming
        self.hits: Counter[int] = Counter()
        self.next = math.inf  # when the next reading is due
        self._next_count = 0.0
        self._told: tuple[dict[int, int], dict[int, int]] = ({}, {})

    def begin(self) -> None:
        """Let the first interval begin."""
        self.next = time.monotonic() + self._wish.every

    def _totals(self) -> tuple[dict[int, int], dict[int, int]]:
        counts, lost = self._armed.totals()
        found = dict(counts)
        for target, count in self.hits.items():
            found[target] = found.get(target, 0) + count
        return found, lost

    def count(self, *, final: bool) -> None:
        """Tell of hits and lost hits, if there are more than before; now and then, and at the end."""
        begun = time.monotonic()
        if begun < self._next_count and not final:
            return
        totals = self._totals()
        self._next_count = begun + max(COUNTING, _SHARE * (time.monotonic() - begun))
        if totals != self._told:
            self._told = totals
            self._outbox.put(job.Counted(*totals))

    def read(self, now: int) -> None:
        """Tell how far we are, if that is due.

        Where the front hasn't taken what was told before, it learns of both intervals the next time; likewise where
        reading takes longer than half of one.
        """
        begun = time.monotonic()
        if begun < self.next:
            return
        if not self._outbox.holds(job.Read):
            self._tell(now)
        done = time.monotonic()
        # Who is stopped waits for us meanwhile, so as much time as it has taken is left for him.
        self.next += ((2 * done - begun - self.next) // self._wish.every + 1) * self._wish.every

    def _tell(self, now: int) -> None:
        counts, lost = self._totals()
        for part in parts(self._armed.tables(), _PART) if self._wish.measures else ():
            self._outbox.put(job.Read(now, {}, {}, part, is_last=False))
        self._outbox.put(job.Read(now, counts, lost, {}, is_last=True))
