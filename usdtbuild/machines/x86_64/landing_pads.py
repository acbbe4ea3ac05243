"""Where exceptions are caught or cleaned up after, for each call: what a function's unwind record says.

The search table of .eh_frame_hdr leads to a function's record in .eh_frame, and that to its table of calls in
.gcc_except_table. All of it is loaded with the program: neither strip nor missing section headers take it away. What
is damaged, or written in a form that no linker or compiler writes, is as if it weren't there.

Formats: Linux Standard Base 5.0, 10.6; "Itanium C++ ABI: Exception Handling", 7.1.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Callable
from functools import cached_property

from ..unwind_table import OMITTED, RECORD, Reader, common_of, search_table

_TABLE = 1 << 20


class LandingPads:
    """The landing pads of one little-endian file."""

    def __init__(self, read: Callable[[int, int], bytes], header: int, word: int) -> None:
        """`read` returns what a file has at an address, or less; `header` is where .eh_frame_hdr is (0: nowhere), and
        `word` how many bytes an address has."""
        self._read, self._header, self._word = read, header, word
        self._known: dict[int, list[tuple[int, int, int]]] = {}

    def of(self, address: int) -> int:
        """Return where an exception that comes out of the call at an address is caught; 0 if nowhere."""
        starts, records = self._index
        at = bisect_right(starts, address) - 1
        if at < 0:
            return 0
        record = records[at]
        if record not in self._known:
            try:
                self._known[record] = self._calls(record)
            except (KeyError, IndexError, ValueError, struct.error):
                self._known[record] = []
        return next((pad for start, end, pad in self._known[record] if start <= address < end), 0)

    @cached_property
    def _index(self) -> tuple[list[int], list[int]]:
        return search_table(self._read, self._header)

    def _at(self, address: int, size: int) -> Reader:
        return Reader(self._read(address, size), address, self._word)

    def _calls(self, record: int) -> list[tuple[int, int, int]]:
        """Return the calls of one function that have a landing pad: from, to, pad."""
        reader = self._at(record, RECORD)
        reader.skip(4)  # its length
        place = reader.address
        common = common_of(self._at(place - reader.pointer(3, relative=False), RECORD))
        if common is None:
            return []
        start = reader.pointer(common.pointers)
        reader.pointer(common.pointers & 0xF, relative=False)
        reader.uleb()
        found = reader.pointer(common.tables) if common.tables != OMITTED else 0
        return self._table(found, start) if found else []

    def _table(self, address: int, function: int) -> list[tuple[int, int, int]]:
        reader = self._at(address, _TABLE)
        encoding = reader.byte()
        base = reader.pointer(encoding) if encoding != OMITTED else function
        if reader.byte() != OMITTED:  # where the types are
            reader.uleb()
        encoding = reader.byte()
        length = reader.uleb()
        end = reader.address + length
        found = []
        while reader.address < end:
            start, size, pad = (reader.pointer(encoding, relative=False) for _ in range(3))
            reader.uleb()  # what is done there
            if pad:
                found.append((function + start, function + start + size, base + pad))
        return found
