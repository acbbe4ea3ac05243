"""A symbol table as columns: fast for a million symbols, of which a handful are asked for.

Columns are slices of arrays, made once; a symbol becomes an object only when it is asked for. `FunctionIndex` finds the
function around an address. Nothing here knows sections' names or files.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from itertools import compress

from ..record import NamedTuple
from . import layout
from .relocations import words

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from ..files import Data

# st_info -> 1 for STT_FUNC and STT_GNU_IFUNC
_IS_FUNCTION = bytes(1 if info & 15 in {2, 10} else 0 for info in range(256))
_RANKS = {1: 3, 2: 2, 0: 1}  # STB_GLOBAL goes before STB_WEAK before STB_LOCAL: the name that the source gives
# How many symbols in front of an address are looked at: aliases of one function, and entry points inside it.
_NEIGHBOURS = 64


class Symbol(NamedTuple):
    """One symbol: name, type (STT_), binding (STB_), visibility, section number, value, size in bytes.

    `section` is 0 where the symbol is in none: it is undefined, or `reserved` says what else it is (SHN_ABS, ...).
    """

    name: str
    type: int
    binding: int
    visibility: int
    section: int
    value: int
    size: int
    reserved: int = 0


class Strings(NamedTuple):
    """Where a string table is in the file."""

    data: Data
    start: int
    stop: int

    def at(self, offset: int) -> bytes:
        """Return the string at `offset`; empty where it doesn't end in the table."""
        end = self.data.find(b"\0", self.start + offset, self.stop)
        return bytes(self.data[self.start + offset : end]) if end >= 0 else b""

    def holds(self, text: bytes) -> bool:
        """Whether the bytes `text` stand anywhere in the table."""
        return self.data.find(text, self.start, self.stop) >= 0

    def places(self, text: bytes) -> tuple[list[int], list[int]]:
        """Return where the bytes `text` stand in the table, and where the string begins that each is in."""
        places, starts = list[int](), list[int]()
        place, start, end = self.data.find(text, self.start, self.stop), 0, -1
        while place >= 0:
            if place >= end:  # in another string than the one before
                start, end = self.data.rfind(b"\0", self.start, place) + 1, self.data.find(b"\0", place, self.stop)
            if end < 0:  # it doesn't end in the table
                break
            places.append(place - self.start)
            starts.append(max(start - self.start, 0))
            place = self.data.find(text, place + 1, self.stop)
        return places, starts


class SymbolTable:
    """The columns of one table. `extended` gives section numbers that don't fit 16 bits, by symbol."""

    def __init__(
        self, content: memoryview, records: layout.Layout, strings: Strings, extended: memoryview | None
    ) -> None:
        """Take the table's bytes; a ragged end is cut off."""
        self.strings = strings
        size = records.symbol.size
        self.count = len(content) // size
        raw = bytes(content[: self.count * size])
        columns, halves = words(raw, 4, records), words(raw, 2, records)
        self.names = columns[:: size // 4]
        if records.is64:
            wide = words(raw, 8, records)
            self.infos, self.others = raw[4::24], raw[5::24]
            self._sections, self.values, self.sizes = halves[3::12], wide[1::3], wide[2::3]
        else:
            self.infos, self.others = raw[12::16], raw[13::16]
            self._sections, self.values, self.sizes = halves[7::8], columns[1::4], columns[2::4]
        self._extended = words(extended, 4, records) if extended else ()

    def section(self, number: int) -> int:
        """Return the number of the section that symbol `number` is in; 0 for one that is undefined, or in none."""
        section = self._sections[number]
        if section < layout.SHN_LORESERVE:
            return section
        if section == layout.SHN_XINDEX and number < len(self._extended):
            return self._extended[number]
        return 0

    def reserved(self, number: int) -> int:
        """Return SHN_ABS, SHN_COMMON or the like for a symbol that is in no section and is not undefined; else 0."""
        section = self._sections[number]
        return section if layout.SHN_LORESERVE <= section < layout.SHN_XINDEX else 0

    def symbol(self, number: int) -> Symbol:
        """Return symbol `number`, which must be less than `count`."""
        info = self.infos[number]
        place = self.section(number), self.values[number], self.sizes[number]
        return Symbol(self.name(number), info & 15, info >> 4, self.others[number] & 3, *place, self.reserved(number))

    def containing(self, text: bytes) -> Iterator[tuple[int, Symbol]]:
        """Yield (number, symbol) where the name contains `text`."""
        places, starts = self.strings.places(text)
        for number, name in enumerate(self.names):
            place = bisect_left(places, name)
            if place < len(places) and starts[place] <= name:
                yield number, self.symbol(number)

    def name(self, number: int) -> str:
        """Return the name of symbol `number`."""
        return self.strings.at(self.names[number]).decode("utf-8", "backslashreplace")

    def functions(self) -> list[int]:
        """Return the numbers of the functions that are defined, or at least in a section with a reserved number."""
        numbers = compress(range(self.count), self.infos.translate(_IS_FUNCTION))
        return [number for number in numbers if self._sections[number]]


class FunctionIndex:
    """The functions of a table by address; in an object, with `by_section`, by section and offset.

    `address` turns a symbol's value into its code's address, for machines where they differ; in an object, `moved`
    says of the places that symbols name where the code is. Both are `section << 64 | offset`.
    """

    def __init__(
        self, table: SymbolTable, by_section: bool, address: Callable[[int], int] | None, moved: dict[int, int]
    ) -> None:
        self._table, self._by_section = table, by_section
        values: Sequence[int] | dict[int, int] = table.values
        numbers = [number for number in table.functions() if table.sizes[number]]
        if address is not None:
            values = {number: address(table.values[number]) for number in numbers}
        numbers.sort(key=values.__getitem__)
        if by_section:
            places = {number: table.section(number) << 64 | values[number] for number in numbers}
            if moved:
                places = {number: moved.get(place, place) for number, place in places.items()}
            numbers.sort(key=places.__getitem__)
            self._keys = [places[number] for number in numbers]
        else:
            self._keys = [values[number] for number in numbers]
        self._numbers = numbers
        self._last = 0, 0, ""  # what was found last: from its start to where nothing else is, and its name

    def __bool__(self) -> bool:
        return bool(self._numbers)

    def find(self, address: int, section: int) -> tuple[str, int] | None:
        """Return the name of the function around an address, and how far into it the address is."""
        key = section << 64 | address if self._by_section else address
        start, end, name = self._last
        if start <= key < end:
            return name, key - start
        best: tuple[int, int, int] | None = None  # start, rank, number
        at = bisect_right(self._keys, key) - 1
        for index in range(at, max(at - _NEIGHBOURS, -1), -1):
            start, number = self._keys[index], self._numbers[index]
            if best is not None and start < best[0]:
                break
            if key < start + self._table.sizes[number]:
                found = (start, _RANKS.get(self._table.infos[number] >> 4, 2), number)
                best = found if best is None else max(best, found, key=lambda candidate: candidate[1])
        if best is None:
            return None
        start, number = best[0], best[2]
        name = self._table.name(number)
        if self._keys[at] == start and (at == 0 or self._keys[at - 1] < start):  # no other begins there
            following = self._keys[at + 1] if at + 1 < len(self._keys) else start + self._table.sizes[number]
            self._last = start, min(following, start + self._table.sizes[number]), name
        return name, key - start
