"""Where begins of pairs of hits wait, as the tracer sees it; the memory itself is described in `tables`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..measures import ALL, Cell, Table, Tables
from . import tables

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from mmap import mmap

    from ..measures import Key, Measure
    from ..plan import Plan
    from .injection import Shared
    from .layout import Layout
    from .tables import Place


class Begins:
    """Those in the memory of one engine, which code of others may use, too, also when this engine is done."""

    def __init__(self, shared: Shared, at: int, plan: Plan, layout: Layout) -> None:
        self._data: mmap | bytes = shared.data
        self._at, self._size = at, tables.pairs_size(plan.measures, plan.pair_width)
        self.shards = layout.parts[0].shards  # all parts have those of the same threads
        # By a key, any thread may end what one has begun. In a container, threads that are gone had other numbers.
        self._are_threads = not plan.apart and any(one.pair and not one.key for one in plan.measures)
        self._open = self._left = 0  # of threads that have ended

    def unpaired(self, measures: Iterable[Measure], time: float) -> Tables:
        """Return what belongs to no pair, by a time."""
        found: Tables = {}
        for measure in measures:
            here = tables.read_pairs(self._data, self._at, keyed=bool(measure.key))
            here = here._replace(open=here.open + self._open, left=here.left + self._left)
            found[ALL, measure] = Table({}, Cell(), here, time)
        return found

    def keys(self, place: Place) -> Sequence[Key]:
        """Return the keys by which pairs are told apart in a table, where they are several words."""
        return tables.read_keys(self._data, self._at + tables.PAIRS_SIZE, place)

    def give_back(self, threads: Iterable[int]) -> None:
        """Let others have the room of threads that have ended."""
        data = self._data
        if not self._are_threads or isinstance(data, bytes):
            return
        for thread in threads:
            waiting, left = tables.give_back(data, self._at, thread)
            self._open, self._left = self._open + waiting, self._left + left

    def keep(self) -> None:
        """Nobody comes there any more, and the memory goes: keep what it says."""
        self._data, self._at = self._data[self._at : self._at + self._size], 0
