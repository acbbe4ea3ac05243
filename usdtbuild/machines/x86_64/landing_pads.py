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

from ..unwind_table import search_table

_RECORD = 1 << 16  # bytes of one record that are read, at most
_TABLE = 1 << 20
_OMITTED, _INDIRECT, _PC_RELATIVE = 0xFF, 0x80, 0x10
_FORMS = {0x2: "<H", 0x3: "<I", 0x4: "<Q", 0xA: "<h", 0xB: "<i", 0xC: "<q"}  # DW_EH_PE_*: the low four bits


class _Reader:
    """Reads numbers of little-endian code, one behind the other; `address` is that of the next one."""

    def __init__(self, data: bytes, address: int, word: int) -> None:
        self._data, self._start, self._word = data, address, word
        self._at = 0

    @property
    def address(self) -> int:
        return self._start + self._at

    def skip(self, count: int) -> None:
        self._at += count

    def byte(self) -> int:
        self._at += 1
        return self._data[self._at - 1]

    def uleb(self) -> int:
        found = shift = 0
        while True:
            byte = self.byte()
            found |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return found

    def text(self) -> bytes:
        end = self._data.index(0, self._at)
        found, self._at = self._data[self._at : end], end + 1
        return found

    def pointer(self, encoding: int, *, relative: bool = True) -> int:
        """Return a pointer, 0 for none; `relative`: it may count from its own place. Raises KeyError for any other."""
        place, form = self.address, encoding & 0xF
        if encoding & _INDIRECT:
            raise KeyError(encoding)
        if form == 1:
            value = self.uleb()
        else:
            form = form or (4 if self._word == 8 else 3)
            (value,) = struct.unpack_from(_FORMS[form], self._data, self._at)
            self._at += struct.calcsize(_FORMS[form])
        if relative and value:
            value += {0: 0, _PC_RELATIVE: place}[encoding & 0x70]
        return int(value) & ((1 << 8 * self._word) - 1)


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

    def _at(self, address: int, size: int) -> _Reader:
        return _Reader(self._read(address, size), address, self._word)

    def _calls(self, record: int) -> list[tuple[int, int, int]]:
        """Return the calls of one function that have a landing pad: from, to, pad."""
        reader = self._at(record, _RECORD)
        reader.skip(4)  # its length
        place = reader.address
        common = self._at(place - reader.pointer(3, relative=False), _RECORD)
        common.skip(8)
        version, names = common.byte(), common.text()
        common.uleb()
        common.uleb()
        if version == 1:
            common.byte()
        else:
            common.uleb()
        if not names.startswith(b"z"):
            return []
        common.uleb()
        code, table = 0, _OMITTED
        for letter in names[1:]:
            if letter == ord("L"):
                table = common.byte()
            elif letter == ord("R"):
                code = common.byte()
            elif letter == ord("P"):
                common.pointer(common.byte() & 0xF, relative=False)
        start = reader.pointer(code)
        reader.pointer(code & 0xF, relative=False)
        reader.uleb()
        found = reader.pointer(table) if table != _OMITTED else 0
        return self._table(found, start) if found else []

    def _table(self, address: int, function: int) -> list[tuple[int, int, int]]:
        reader = self._at(address, _TABLE)
        encoding = reader.byte()
        base = reader.pointer(encoding) if encoding != _OMITTED else function
        if reader.byte() != _OMITTED:  # where the types are
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
