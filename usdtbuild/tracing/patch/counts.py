"""Read what trampolines have counted and added up, in all shards."""

from __future__ import annotations

import struct
from operator import add
from typing import TYPE_CHECKING

from . import tables

if TYPE_CHECKING:
    from collections.abc import Container, Sequence

    from ..measures import Key, Table
    from .injection import Shared
    from .layout import Layout
    from .mapping import Mapping
    from .shards import Shards
    from .tables import Place

_LEFT = struct.Struct("<Q")


class Counts:
    """What trampolines have counted and added up, in the memory that is shared with them."""

    def __init__(self, shared: Shared, mapping: Mapping, layout: Layout) -> None:
        self._shared, self._mapping = shared, mapping
        self.places = [mapping.file_offset(address) for address in layout.counter_of]  # of counters, in the file
        parts = [mapping.shards(address) for address in layout.counter_of]
        any_part = next((one for one in parts if one is not None), None)  # of a trace, all parts have as many
        self._left = mapping.file_offset(any_part.left) if any_part is not None else 0
        if any_part is not None and mapping.wipes:  # from now on threads take some
            _LEFT.pack_into(shared.data, self._left, any_part.most)
        # Counters that stand one behind the other: which is the first, how many there are, and their shards.
        self._runs: list[tuple[int, int, Shards | None]] = []
        for index, (place, part) in enumerate(zip(self.places, parts)):
            if index and place == self.places[index - 1] + 8 and part == parts[index - 1]:
                first, count, _ = self._runs[-1]
                self._runs[-1] = first, count + 1, part
            else:
                self._runs.append((index, 1, part))

    def counters(self) -> list[int]:
        """Return what the counters say."""
        found: list[int] = []
        for first, count, shards in self._runs:
            numbers, at = struct.Struct(f"<{count}Q"), self.places[first]
            values = numbers.unpack_from(self._shared.data, at)
            for offset in self._taken(shards):
                values = tuple(map(add, values, numbers.unpack_from(self._shared.data, at + offset)))
            found += values
        return found

    def table(self, place: Place, keys: Sequence[Key | None], processes: Container[int] | None) -> Table:
        """Return what a table says; see `tables.read`."""
        at = self._mapping.file_offset(place.address)
        found = tables.read(self._shared.data, at, place, keys, processes)
        for offset in self._taken(self._mapping.shards(place.address)):
            found = found.plus(tables.read(tables.Memory(self._shared.file, at + offset), 0, place, keys, processes))
        return found

    def _taken(self, shards: Shards | None) -> list[int]:
        """Return how far the shards that threads have taken are from that of the number 0."""
        if shards is None:
            return []
        left = _LEFT.unpack_from(self._shared.data, self._left)[0]
        return [shards.ahead + number * shards.block for number in range(min(left, shards.most) + 1, shards.most + 1)]
