"""How begins and ends are paired, as plainly as can be: what the trampolines of every machine are held against."""

from __future__ import annotations

from collections import Counter
from typing import Any

from usdtbuild.tracing.measures import Unpaired
from usdtbuild.tracing.predicates import BEGIN

MOST = 63  # begins of a thread that wait for their ends


class Paired:
    """A thread's hits, or those of a process that are told apart by another key, of which `most` begins have room.
    `by_key` has the pairs; a begin that doesn't pass, or has no key, takes its place, too."""

    def __init__(self, most: int = MOST) -> None:
        self.by_key = Counter[Any]()
        self._most, self._waiting = most, dict[Any, list[tuple[Any, bool]]]()
        self._unpaired = Unpaired()

    def hit(self, side: str, own: Any, passes: bool, pair_key: Any = 0) -> None:
        """Take a begin or an end with its key; of a pair the begin says whether it passes, else the end."""
        none, waiting = self._unpaired, self._waiting.setdefault(pair_key, [])
        if pair_key is None:
            self._unpaired = none._replace(without_key=none.without_key + 1)
        elif side == BEGIN:
            waiting.append((own, passes))
        elif not waiting and not passes:
            self._unpaired = none._replace(rejected=none.rejected + 1)
        elif not waiting:
            self._unpaired = none._replace(without_begin=none.without_begin + 1)
        elif len(waiting) > self._most:
            waiting.pop()
            self._unpaired = none._replace(deep=none.deep + 1)
        else:
            begun, passes = waiting.pop()
            found = own if begun is None else begun
            if passes and found is None:
                self._unpaired = none._replace(without_key=none.without_key + 1)
            elif passes:
                self.by_key[found] += 1

    @property
    def unpaired(self) -> Unpaired:
        """What is not paired by now."""
        open_ = sum(passes for waiting in self._waiting.values() for _, passes in waiting[: self._most])
        return self._unpaired._replace(open=open_)
