"""How begins and ends are paired, as plainly as can be: what the trampolines of every machine are held against."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from usdtbuild.tracing.measures import Unpaired
from usdtbuild.tracing.model import Cut, Unreadable
from usdtbuild.tracing.patch.code import CUT
from usdtbuild.tracing.predicates import BEGIN

MOST = 64  # begins of a thread that are kept while they wait for their ends
SLOTS = 40  # begins of a bucket, of whichever keys; see `find_bucket` in usdtbuild/machines/x86_64/templates.S
_GOLDEN, _BITS = 0x9E3779B97F4A7C15, (1 << 64) - 1


def number_of(*key: Any) -> int:
    """Return what a key becomes by which pairs are told apart: a number itself, and of all else a hash."""
    if len(key) == 1 and type(key[0]) is int:
        return key[0] & _BITS
    words, number = [0], 0
    for one in key:
        if isinstance(one, bytes):
            words += [len(one) | CUT * isinstance(one, Cut)]
            words += [int.from_bytes(one[at : at + 8], "little") for at in range(0, len(one), 8)]
        else:
            words += [-1, one or 0] if one is None or isinstance(one, Unreadable) else [one]
    for word in words:
        number = (number ^ word) * _GOLDEN & _BITS
        number ^= number >> 32
    return number * _GOLDEN & _BITS


class Begin(NamedTuple):
    """A begin: its key, whether it passes, where on the program's stack it was, and that it was the so-manieth."""

    own: Any
    passes: bool
    where: int
    order: int


class Paired:
    """A thread's hits, or those of a `process` that are told apart by another key: which keys share a bucket depends on
    its number, and `taken` has the bucket of each slot that nobody can have. `by_key` has the pairs; a begin that
    doesn't pass, or has no key, takes its place, too."""

    def __init__(self, process: int | None = None, taken: Iterable[int] = ()) -> None:
        self.by_key = Counter[Any]()
        self._process, self._waiting = process, dict[int | None, list[Begin | None]]()
        self._kept: dict[int, tuple[int, Begin]] = {}  # by their place, with their number
        self._begun = 0
        self._free: dict[int | None, float] = {None: math.inf, **dict.fromkeys(range(256), SLOTS)}
        for one in taken:
            self._free[one] -= 1
        self._unpaired = Unpaired()

    def hit(self, side: str, own: Any, passes: bool, pair_key: int | None = 0, where: int = 0) -> None:
        """Take a begin or an end with its key; of a pair the begin says whether it passes, else the end."""
        none, waiting = self._unpaired, self._waiting.setdefault(pair_key, [])
        bucket = None
        if self._process is not None and pair_key is not None:
            bucket = ((self._process << 32 ^ pair_key) * _GOLDEN & _BITS) >> 56
        if pair_key is None:
            self._unpaired = none._replace(without_key=none.without_key + 1)
        elif side == BEGIN and not self._free[bucket]:
            self._unpaired = none._replace(many=none.many + 1)
        elif side == BEGIN:
            self._free[bucket] -= 1
            self._begun += 1
            begun = Begin(own, passes, where, self._begun)
            self._kept[len(waiting) % MOST] = len(waiting), begun
            waiting.append(begun)
            if self._process is None:
                waiting[:-MOST] = [None] * len(waiting[:-MOST])
        elif not waiting and not passes:
            self._unpaired = none._replace(rejected=none.rejected + 1)
        elif not waiting:
            self._unpaired = none._replace(without_begin=none.without_begin + 1)
        else:
            self._free[bucket] += 1
            self._pair(waiting, own, passes, where)

    def _pair(self, waiting: list[Begin | None], own: Any, passes: bool, where: int) -> None:
        none, at = self._unpaired, len(waiting) - 1
        while at >= 0 and (below := waiting[at]) is not None and below.where < where and self._process is None:
            at -= 1
        if 0 <= at < len(waiting) - 1 and waiting[at] is None:  # its own may be the one that was given up
            waiting[-1] = None
        if at >= 0 and (same := waiting[at]) is not None and same.where == where:
            left = waiting[at + 1 :]
            none = none._replace(left=none.left + sum(one is not None and one.passes for one in left))
            del waiting[at + 1 :]
        begun = waiting.pop()
        if begun is None:
            none = none._replace(deep=none.deep + 1)
        else:
            found = own if begun.own is None else begun.own
            if begun.passes and found is None:
                none = none._replace(without_key=none.without_key + 1)
            elif begun.passes:
                self.by_key[found] += 1
        self._unpaired = none

    @property
    def unpaired(self) -> Unpaired:
        """What is not paired by now."""
        open_ = left = 0
        for waiting in self._waiting.values():
            known = [one for one in waiting if one is not None]
            places = [one.where for one in known] + self._ended(waiting)
            behind = [self._process is None and any(where >= one.where for where in places[index + 1 :])
                      for index, one in enumerate(known)]  # fmt: skip
            passing = [is_behind for one, is_behind in zip(known, behind) if one.passes]
            if len(passing) == len(known):  # nobody knows whether the others pass, nor where they were
                passing += [*behind[:1], False][:1] * (len(waiting) - len(known))
            left += sum(passing)
            open_ += len(passing) - sum(passing)
        return self._unpaired._replace(open=open_, left=self._unpaired.left + left)

    def _ended(self, waiting: Sequence[Begin | None]) -> list[int]:
        """Return where the last begin was of those that came behind all that wait, if it is still there."""
        number, last = self._kept.get(len(waiting) % MOST, (-1, None))
        youngest = waiting[-1] if waiting else None
        return [last.where] if last and youngest and number == len(waiting) and last.order > youngest.order else []
