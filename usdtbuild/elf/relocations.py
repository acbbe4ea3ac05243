"""Relocation records: REL, RELA, RELR, and MIPS' own order of fields, taken apart and put together in one place.

An entry is offset, type, symbol number and addend. Which sections hold them, and what the types mean, is known
elsewhere (`elf.object`, `elf.image`, `elf.dynamic`; the machines).
"""

from __future__ import annotations

import sys

from ..machines.numbers import EM_MIPS
from ..record import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from .layout import Layout

    Entry = tuple[int, int, int, int]  # offset, type, symbol number, addend

NATIVE_LITTLE = sys.byteorder == "little"
LARGE = 1 << 18  # bytes, from where an array's faster columns are worth the milliseconds that importing array takes


class Relocation(NamedTuple):
    """One relocation: offset (in an object) or address, type, symbol number, addend (None where it is in place)."""

    offset: int
    type: int
    symbol: int
    addend: int | None


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


def encode(entries: Iterable[Entry], layout: Layout, machine: int, *, rela: bool) -> list[bytes]:
    """Return the bytes of relocations given as (offset, type, symbol number, addend): SHT_RELA's, or SHT_REL's."""
    if not layout.is64:
        infos = [(offset, symbol << 8 | type_, addend) for offset, type_, symbol, addend in entries]
    elif machine == EM_MIPS and layout.little:
        infos = [(offset, join_info(symbol, type_, layout, machine), a) for offset, type_, symbol, a in entries]
    else:
        infos = [(offset, symbol << 32 | type_, addend) for offset, type_, symbol, addend in entries]
    if rela:
        pack = layout.rela.pack
        return [pack(offset, info, addend) for offset, info, addend in infos]
    pack = layout.rel.pack
    return [pack(offset, info) for offset, info, _ in infos]


def symbols(column: Sequence[int], layout: Layout, machine: int, entry_size: int) -> Sequence[int]:
    """Return the symbol numbers of a relocation section, given as `words` of 4 bytes: fast for a million entries."""
    per_entry = entry_size // 4
    if not layout.is64:
        return [info >> 8 for info in column[1::per_entry]]
    return column[3 if layout.little and machine != EM_MIPS else 2 :: per_entry]


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
