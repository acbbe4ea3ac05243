"""How begins and ends are paired, as plainly as can be: what the stubs of every machine are held against."""

from __future__ import annotations

from collections import Counter
from typing import Any

from usdtbuild.tracing.measures import Unpaired
from usdtbuild.tracing.predicates import BEGIN

MOST = 63  # begins of a thread that wait for their ends


class Paired:
    """A thread's hits. `by_key` has the pairs; a begin that doesn't pass, or has no key, takes its place, too."""

    def __init__(self) -> None:
        self.by_key = Counter[Any]()
        self._waiting: list[tuple[Any, bool]] = []
        self._unpaired = Unpaired()

    def hit(self, side: str, own: Any, passes: bool) -> None:
        """Take a begin or an end with its key; of a pair the begin says whether it passes."""
        none = self._unpaired
        if side == BEGIN:
            self._waiting.append((own, passes))
        elif not self._waiting:
            self._unpaired = none._replace(without_begin=none.without_begin + 1)
        elif len(self._waiting) > MOST:
            self._waiting.pop()
            self._unpaired = none._replace(deep=none.deep + 1)
        else:
            begun, passes = self._waiting.pop()
            found = own if begun is None else begun
            if passes and found is None:
                self._unpaired = none._replace(without_key=none.without_key + 1)
            elif passes:
                self.by_key[found] += 1

    @property
    def unpaired(self) -> Unpaired:
        """What is not paired by now."""
        return self._unpaired._replace(open=sum(passes for _, passes in self._waiting[:MOST]))
