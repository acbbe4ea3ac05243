"""Where the frame of a call is, from the registers at an address of its code: what a function's unwind record says
(DWARF 5, 6.4; Linux Standard Base, 10.6).

The canonical frame address is the stack pointer before the call, and the same throughout the function, whatever it has
put on the stack. A little-endian file of 64 bits has the records; what is damaged, or computes more than a sum of a
register and a number, says nothing. `inspection.unwind` reads all of a record, for stacks.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from functools import cached_property

from ..record import NamedTuple
from .unwind_table import Common, Reader, common_of, search_table

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

_RECORD = 1 << 14  # bytes of one record, at most
_PC_RELATIVE_32 = 0x1B  # how compilers write where a function begins
# What the bytes behind an instruction are: u: a number of 7-bit pieces, b: so many bytes behind one.
_OTHERS = {
    0x00: "", 0x05: "uu", 0x06: "u", 0x07: "u", 0x08: "u", 0x09: "uu", 0x10: "ub", 0x11: "uu", 0x14: "uu", 0x15: "uu",
    0x16: "ub", 0x2D: "", 0x2E: "u", 0x2F: "uu",
}  # fmt: skip
_ADVANCES = {0x02: 1, 0x03: 2, 0x04: 4}


Frame = tuple[int, int]  # a register, by DWARF's number, and what is added to it


class Rule(NamedTuple):
    """Of an address: where its function's record begins, whether what is there is only a part of one, which is entered
    with a frame; and where the frame is (None: that isn't known)."""

    start: int
    is_part: bool
    frame: Frame | None


class _Record(NamedTuple):
    start: int
    end: int
    is_part: bool
    places: list[int]  # from these addresses on the frame is where the one says that is as far on in `frames`
    frames: list[Frame | None]


class FrameRules:
    """The rules of one file."""

    def __init__(self, read: Callable[[int, int], bytes], header: int, records: tuple[int, int] = (0, 0)) -> None:
        """`read` returns what the file has at an address, or less; `header` is where .eh_frame_hdr is, 0: nowhere.
        There is none in static programs: then `records` is where .eh_frame is, and its size."""
        self._read, self._header, self._records = read, header, records
        self._known: dict[int, _Record | None] = {}
        self._shared: dict[int, tuple[Common, Frame | None] | None] = {}

    def at(self, address: int) -> Rule | None:
        """Return the rule of an address, None if nothing says what function is there."""
        starts, records = self._index
        at = bisect_right(starts, address) - 1
        if at < 0:
            return None
        found = self._record(records[at])
        if found is None or not found.start <= address < found.end:
            return None
        frame = found.frames[bisect_right(found.places, address) - 1]
        return Rule(found.start, found.is_part, frame)

    @cached_property
    def _index(self) -> tuple[list[int], list[int]]:
        starts, records = search_table(self._read, self._header)
        if starts:
            return starts, records
        start, size = self._records
        data, at, found = self._read(start, size), 0, list[tuple[int, int]]()
        while at + 12 <= len(data):
            length, shared, begins = struct.unpack_from("<IIi", data, at)
            if length in {0, 0xFFFFFFFF}:
                break
            if shared:
                found.append((start + at + 8 + begins, start + at))
            at += 4 + length
        found.sort()
        return [begins for begins, _ in found], [record for _, record in found]

    def _record(self, at: int) -> _Record | None:
        if at not in self._known:
            try:
                self._known[at] = self._new(at)
            except (KeyError, IndexError, ValueError, struct.error):
                self._known[at] = None
        return self._known[at]

    def _whole(self, at: int) -> Reader:
        (size,) = struct.unpack("<I", self._read(at, 4))
        return Reader(self._read(at, min(4 + size, _RECORD)), at, 8)

    def _new(self, at: int) -> _Record | None:
        reader = self._whole(at)
        reader.skip(4)
        place = reader.address
        shared = self._common(place - reader.pointer(3, relative=False))
        if shared is None or shared[0].pointers != _PC_RELATIVE_32:
            return None
        common, before = shared
        start = reader.pointer(common.pointers)
        size = reader.pointer(common.pointers & 0xF, relative=False)
        behind = reader.uleb()
        reader.skip(behind)
        places, frames = _run(reader, common, start, before)
        first = frames[bisect_right(places, start) - 1]
        return _Record(start, start + size, first != before, places, frames)

    def _common(self, at: int) -> tuple[Common, Frame | None] | None:
        if at not in self._shared:
            common, found = common_of(self._whole(at)), None
            if common is not None:
                reader = self._whole(at)
                reader.skip(common.rules - at)
                found = common, _run(reader, common, 0, None)[1][-1]
            self._shared[at] = found
        return self._shared[at]


def _run(reader: Reader, common: Common, start: int, frame: Frame | None) -> tuple[list[int], list[Frame | None]]:
    """Return from which addresses on the frame is where; the last of several for one address counts."""
    places, frames, kept = [start], [frame], list[Frame | None]()
    place = start
    while reader.left > 0:
        word = reader.byte()
        if word >> 6 == 1:
            place += (word & 63) * common.code
        elif word in _ADVANCES:
            place += reader.number(_ADVANCES[word]) * common.code
        elif word == 0x0A:
            kept.append(frame)
        elif word == 0x0B:
            frame = kept.pop()
        elif 0x0C <= word <= 0x0F or word in {0x12, 0x13}:
            frame = _defined(word, reader, common, frame)
        else:
            for kind in "u" if word >> 6 == 2 else "" if word >> 6 == 3 else _OTHERS[word]:
                number = reader.uleb()
                reader.skip(number if kind == "b" else 0)
        if frame != frames[-1]:
            places.append(place)
            frames.append(frame)
    return places, frames


def _defined(word: int, reader: Reader, common: Common, frame: Frame | None) -> Frame | None:
    """Return where the frame is behind an instruction that says so."""
    if word == 0x0F:  # what an expression computes
        reader.skip(reader.uleb())
        return None
    if word == 0x0D:
        return reader.uleb(), frame[1] if frame else 0
    if word in {0x0E, 0x13} and frame is None:
        raise ValueError
    register = frame[0] if word in {0x0E, 0x13} and frame else reader.uleb()
    return register, reader.uleb() if word in {0x0C, 0x0E} else reader.sleb() * common.data
