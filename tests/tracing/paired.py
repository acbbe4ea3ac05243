"""How begins and ends are paired, as plainly as can be: what the trampolines of every machine are held against."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from usdtbuild.tracing.measures import Unpaired
from usdtbuild.tracing.model import Cut, Unreadable
from usdtbuild.tracing.patch.code import CUT
from usdtbuild.tracing.predicates import BEGIN

MOST = 63  # begins of a thread that wait for their ends
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


class Paired:
    """A thread's hits, or those of a `process` that are told apart by another key: which keys share a bucket depends on
    its number, and `taken` has the bucket of each slot that nobody can have. `by_key` has the pairs; a begin that
    doesn't pass, or has no key, takes its place, too."""

    def __init__(self, process: int | None = None, taken: Iterable[int] = ()) -> None:
        self.by_key = Counter[Any]()
        self._process, self._waiting = process, dict[int | None, list[tuple[Any, bool]]]()
        self._free: dict[int | None, float] = {None: math.inf, **dict.fromkeys(range(256), SLOTS)}
        for one in taken:
            self._free[one] -= 1
        self._unpaired = Unpaired()

    def hit(self, side: str, own: Any, passes: bool, pair_key: int | None = 0) -> None:
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
            waiting.append((own, passes))
        elif not waiting and not passes:
            self._unpaired = none._replace(rejected=none.rejected + 1)
        elif not waiting:
            self._unpaired = none._replace(without_begin=none.without_begin + 1)
        elif len(waiting) > MOST:
            waiting.pop()
            self._unpaired = none._replace(deep=none.deep + 1)
        else:
            self._free[bucket] += 1
            begun, passes = waiting.pop()
            found = own if begun is None else begun
            if passes and found is None:
                self._unpaired = none._replace(without_key=none.without_key + 1)
            elif passes:
                self.by_key[found] += 1

    @property
    def unpaired(self) -> Unpaired:
        """What is not paired by now."""
        return self._unpaired._replace(open=sum(map(_open, self._waiting.values())))


def _open(waiting: Sequence[tuple[Any, bool]]) -> int:
    known = [passes for _, passes in waiting[:MOST]]
    return sum(known) + (len(waiting) - len(known)) * all(known)  # nobody knows whether the others pass
