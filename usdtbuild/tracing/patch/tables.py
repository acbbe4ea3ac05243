"""Tables in memory shared with the program, in which stubs count hits by the value of an argument.

A table has slots of 16 bytes, a key and its count, behind them one for the key 0 and one for all keys that found no
place. A slot is free while its key is 0. A key is looked for from the slot on that its hash says, and keeps its place,
so a reader may look at any time, and sees counts that were true a moment ago. The code is `by` in `templates`.

The program can write here whatever it likes. It can't do more than lie about itself: all that is read are 64-bit
numbers, of a fixed number of slots.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple

from ..maps import PAGE

if TYPE_CHECKING:
    from collections.abc import Iterable
    from mmap import mmap

_SLOTS = 1 << 12
_SLOT = struct.Struct("<QQ")
SIZE = -(-(_SLOTS + 2) * _SLOT.size // PAGE) * PAGE


class Keys(NamedTuple):
    """How often each value came: the low 64 bits of a value, and its count. `others` came when the table was full."""

    counts: dict[int, int]
    others: int


def read(data: mmap | bytearray, at: int) -> Keys:
    """Return what a table says that is at an offset."""
    size = _SLOT.size * _SLOTS
    counts: dict[int, int] = {}
    for key, count in _SLOT.iter_unpack(data[at : at + size]):
        if key and count:
            counts[key] = counts.get(key, 0) + count
    (_, zeros), (_, others) = _SLOT.iter_unpack(data[at + size : at + size + 2 * _SLOT.size])
    if zeros:
        counts[0] = zeros
    return Keys(counts, others)


def together(tables: Iterable[Keys]) -> Keys:
    """Return the sums of tables."""
    counts: dict[int, int] = {}
    others = 0
    for table in tables:
        others += table.others
        for key, count in table.counts.items():
            counts[key] = counts.get(key, 0) + count
    return Keys(counts, others)
