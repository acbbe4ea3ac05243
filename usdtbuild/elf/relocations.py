"""Relocation records: REL, RELA, RELR, and MIPS' own order of fields, taken apart and put together in one place.

An entry is offset, type, symbol number and addend. Which sections hold them, and what the types mean, is known
elsewhere (`elf.object`, `elf.image`, `elf.dynamic`; the machines).
"""

from __future__ import annotations

import sys
from struct import Struct

from ..machines.numbers import EM_MIPS
from ..record import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from typing import Literal

    from .layout import Layout

NATIVE_LITTLE = sys.byteorder == "little"
LARGE = 1 << 18  # bytes, from where an array's faster columns are worth the milliseconds that importing array takes


class Relocation(NamedTuple):
    """One relocation: offset (in an object) or address, type, symbol number, addend (None where it is in place)."""

    offset: int
    type: int
    symbol: int
    addend: int | None


def is_plain(layout: Layout, machine: int) -> bool:
    """Whether r_info has 64 bits, of which the upper half is the symbol's number and the lower one the type."""
    return layout.is64 and not (machine == EM_MIPS and layout.little)


def split_info(info: int, layout: Layout, machine: int) -> tuple[int, int]:
    """Return the symbol number and the type that r_info holds.

    MIPS n64 has a 32-bit symbol, then the bytes ssym, type3, type2, type, in this order whatever the byte order (its
    ABI, `r_sym`); the four bytes are taken for one type, whose low byte is the first operation.
    """
    if not layout.is64:
        return info >> 8, info & 0xFF
    if machine == EM_MIPS and layout.little:
        return info & 0xFFFFFFFF, int.from_bytes((info >> 32).to_bytes(4, "little"), "big")
    return info >> 32, info & 0xFFFFFFFF


def join_info(symbol: int, type_: int, layout: Layout, machine: int) -> int:
    """Return the r_info of a symbol number and a type."""
    if not layout.is64:
        return symbol << 8 | type_
    if machine == EM_MIPS and layout.little:
        return int.from_bytes(type_.to_bytes(4, "big"), "little") << 32 | symbol
    return symbol << 32 | type_


def decode(content: bytes | memoryview, layout: Layout, machine: int, *, rela: bool) -> Iterator[Relocation]:
    """Yield the entries of a SHT_RELA or SHT_REL section; a ragged end is cut off."""
    record = layout.rela if rela else layout.rel
    whole = content[: len(content) // record.size * record.size]
    for offset, info, *addend in record.iter_unpack(whole):
        symbol, type_ = split_info(info, layout, machine)
        yield Relocation(offset, type_, symbol, addend[0] if addend else None)


def encode(
    offsets: Iterable[int], types: Iterable[int], symbols: Iterable[int], addends: Iterable[int], layout: Layout,
    machine: int, *, rela: bool,
) -> list[bytes]:  # fmt: skip
    """Return the bytes of relocations given as columns of the same length: SHT_RELA's, or SHT_REL's."""
    if not layout.is64:
        infos = [symbol << 8 | type_ for symbol, type_ in zip(symbols, types)]
    elif machine == EM_MIPS and layout.little:
        infos = [join_info(symbol, type_, layout, machine) for symbol, type_ in zip(symbols, types)]
    else:
        infos = [symbol << 32 | type_ for symbol, type_ in zip(symbols, types)]
    if rela:
        return list(map(layout.rela.pack, offsets, infos, addends))
    return list(map(layout.rel.pack, offsets, infos))


class RelocationForm:
    """Relocations that come again and again with other offsets and symbols, which are packed in one step."""

    def __init__(
        self, rows: Sequence[tuple[int, int, int, int]], place: int, layout: Layout, machine: int, *, rela: bool
    ) -> None:
        """Take rows of offset, type, which symbol (-1 for none) and addend; `place` is the number of one of them."""
        self._rows = [(offset, join_info(0, type_, layout, machine), which, a) for offset, type_, which, a in rows]
        self.unit = join_info(1, 0, layout, machine)  # what a symbol's number is multiplied with in r_info
        record = (layout.rela if rela else layout.rel).format
        self._pack = Struct(record[0] + record[1:] * len(rows)).pack
        self._place = 3 * place + 2 if rela else -1

    def encode(self, start: int, symbols: Sequence[int], infos: dict[int, int], addend: int) -> bytes:
        """Return the bytes for these symbols, with `start` added to all offsets and `addend` to the place's addend.

        The last symbol is 0, for rows that have none; `infos` are the symbols' numbers, as they stand in r_info.
        """
        fields: list[int] = []
        if self._place < 0:
            for offset, info, which, _ in self._rows:
                fields += (start + offset, info + infos[symbols[which]])
        else:
            for offset, info, which, value in self._rows:
                fields += (start + offset, info + infos[symbols[which]], value)
            fields[self._place] += addend
        return self._pack(*fields)


class RepeatedRelocations:
    """The relocations of a new section that all have a form. Rows are form, start, symbols or their handles, addend.

    All forms are of one machine; the last of a row's symbols is 0.
    """

    __slots__ = ("rows",)

    def __init__(self, rows: list[tuple[RelocationForm, int, tuple[int, ...], int]]) -> None:
        self.rows = rows

    def __len__(self) -> int:
        return len(self.rows)

    def encode(self, number_all: Callable[[Iterable[int]], dict[int, int]]) -> bytes:
        """Return the section's bytes; `number_all` returns the numbers that symbols and handles have in the end."""
        numbers, unit = number_all({symbol for row in self.rows for symbol in row[2]}), self.rows[0][0].unit
        infos = {symbol: number * unit for symbol, number in numbers.items()}
        return b"".join([form.encode(at, symbols, infos, addend) for form, at, symbols, addend in self.rows])


def symbol_field(layout: Layout, machine: int) -> tuple[int, int, Literal["little", "big"]]:
    """Return where in an entry the symbol's number stands: offset, bytes, byte order. See `split_info`."""
    order: Literal["little", "big"] = "little" if layout.little else "big"
    if not layout.is64:  # three bytes of r_info, whose lowest is the type
        return 5 if layout.little else 4, 3, order
    return 12 if layout.little and machine != EM_MIPS else 8, 4, order


def symbols(column: Sequence[int], layout: Layout, machine: int, entry_size: int) -> Sequence[int]:
    """Return the symbol numbers of a relocation section, given as `words` of 4 bytes: fast for a million entries."""
    per_entry = entry_size // 4
    if not layout.is64:
        return [info >> 8 for info in column[1::per_entry]]
    return column[3 if layout.little and machine != EM_MIPS else 2 :: per_entry]  # as in `symbol_field`


def relr(content: bytes | memoryview, layout: Layout, low: int = 0, high: int = 1 << 64) -> Iterator[int]:
    """Yield the addresses that RELR relocates (gABI, Relative Relocation Table): one, then bitmaps of the next words.

    Only those from `low` to `high`: what is far away is passed over a bitmap at a time.
    """
    size = layout.address_size
    place = 0
    for word in words(content, size, layout):
        if not word & 1:
            if low <= word < high:
                yield word
            place = word + size
            continue
        if place < high and place + 8 * size * size > low:
            for bit in range(8 * size - 1):
                if word >> (bit + 1) & 1 and low <= place + bit * size < high:
                    yield place + bit * size
        place += (8 * size - 1) * size


def words(content: bytes | memoryview, size: int, layout: Layout) -> Sequence[int]:
    """Return `content`, in the file's byte order, as unsigned words of 2, 4 or 8 bytes; a ragged end is cut off."""
    code = {2: "H", 4: "I", 8: "Q"}[size]
    whole = content[: len(content) // size * size]
    if len(whole) < LARGE and layout.little == NATIVE_LITTLE:
        return memoryview(bytes(whole)).cast(code)  # type: ignore[call-overload, no-any-return]
    from array import array

    column: array[int] = array(code)
    column.frombytes(whole)
    if layout.little != NATIVE_LITTLE:
        column.byteswap()
    return column
