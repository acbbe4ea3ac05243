"""The search table of .eh_frame_hdr, which leads to the unwind record of a function, and what such records begin with
(Linux Standard Base, 10.6).

It is loaded with the program: neither strip nor missing section headers take it away.
"""

from __future__ import annotations

import struct

from ..record import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

RECORD = 1 << 16  # bytes of one record that are read, at most
OMITTED, _INDIRECT, _PC_RELATIVE = 0xFF, 0x80, 0x10
_FORMS = {0x2: "<H", 0x3: "<I", 0x4: "<Q", 0xA: "<h", 0xB: "<i", 0xC: "<q"}  # DW_EH_PE_*: the low four bits


def search_table(read: Callable[[int, int], bytes], header: int) -> tuple[list[int], list[int]]:
    """Return where functions begin, sorted, and where their records are; nothing for a damaged table.

    `read` returns what a little-endian file has at an address, or less; `header` is where .eh_frame_hdr is, 0: nowhere.
    """
    head = read(header, 12) if header else b""
    # version 1, pointer (any), count udata4, table datarel sdata4: the one form that linkers write
    if len(head) < 12 or head[0] != 1 or head[2:4] != b"\x03\x3b":
        return [], []
    (count,) = struct.unpack_from("<I", head, 8)
    raw = read(header + 12, 8 * count)
    numbers = struct.unpack_from(f"<{len(raw) // 8 * 2}i", raw)
    pairs = sorted((header + a, header + b) for a, b in zip(numbers[::2], numbers[1::2]))
    return [start for start, _ in pairs], [record for _, record in pairs]


class Common(NamedTuple):
    """What records share: the units of code and data, how they write pointers to code and to tables of calls, and what
    is so at the entry of each function: where that is, and its bytes."""

    code: int
    data: int
    pointers: int
    tables: int
    rules: int


def common_of(reader: Reader) -> Common | None:
    """Return what a shared record says; None if nothing says how long its additions are. Raises as `Reader` does."""
    reader.skip(8)
    version, names = reader.byte(), reader.text()
    code, data = reader.uleb(), reader.sleb()
    if version == 1:
        reader.byte()
    else:
        reader.uleb()
    if not names.startswith(b"z"):
        return None
    size = reader.uleb()
    rules = reader.address + size
    pointers, tables = 0, OMITTED
    for letter in names[1:]:
        if letter == ord("L"):
            tables = reader.byte()
        elif letter == ord("R"):
            pointers = reader.byte()
        elif letter == ord("P"):
            reader.pointer(reader.byte() & 0xF, relative=False)
    return Common(code, data, pointers, tables, rules)


class Reader:
    """Reads numbers of little-endian code, one behind the other; `address` is that of the next one."""

    def __init__(self, data: bytes, address: int, word: int) -> None:
        self._data, self._start, self._word = data, address, word
        self._at = 0

    @property
    def address(self) -> int:
        """Return where the next number is."""
        return self._start + self._at

    @property
    def left(self) -> int:
        """Return how many bytes there are still."""
        return len(self._data) - self._at

    def skip(self, count: int) -> None:
        """Leave bytes out."""
        self._at += count

    def byte(self) -> int:
        """Return a byte."""
        self._at += 1
        return self._data[self._at - 1]

    def number(self, size: int) -> int:
        """Return an unsigned number of so many bytes."""
        self._at += size
        return int.from_bytes(self._data[self._at - size : self._at], "little")

    def uleb(self) -> int:
        """Return an unsigned number of 7-bit pieces."""
        found = shift = 0
        while True:
            byte = self.byte()
            found |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return found

    def sleb(self) -> int:
        """Return a signed number of 7-bit pieces."""
        at = self._at
        found = self.uleb()
        return found - (1 << 7 * (self._at - at)) if self._data[self._at - 1] & 64 else found

    def text(self) -> bytes:
        """Return the bytes up to a 0, which is left out."""
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
