"""The headers of an ELF file: what it is, its sections, its program headers. Every reader of ELF begins here.

Numbers that don't fit their 16 bits are resolved here, once: the number of sections and the name table's number stand
in the first section header, and so does the number of program headers (gABI, e_shnum, e_shstrndx and PN_XNUM). What a
header says is checked against the file's size before it is used: damage is one `InputError`, which names the header and
the offset. Contents, names, symbols and relocations are read elsewhere.
"""

from __future__ import annotations

from struct import error as struct_error

from ..record import NamedTuple
from . import layout
from .foreign import not_elf

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from struct import Struct

    from ..errors import InputError
    from ..files import Data

MAGIC = b"\x7fELF"


class SectionHeader(NamedTuple):
    """One section header, fields in file order (gABI, `Elf64_Shdr`); `name` is an offset in the name table.

    Objects are instrumented with these alone; an opened `Image` has its sections' names too (`sections.ImageSection`).
    """

    name: int
    type: int
    flags: int
    address: int
    offset: int
    size: int
    link: int
    info: int
    align: int
    entsize: int


class Segment(NamedTuple):
    """One program header; `flags` are PF_X, PF_W, PF_R."""

    type: int
    flags: int
    offset: int
    address: int
    file_size: int
    memory_size: int
    align: int


class Headers:
    """The headers of `data`. `fail` makes an error of a sentence that says what is wrong, and maybe a cure."""

    def __init__(self, data: Data, fail: Callable[..., InputError], wanted: str = "file") -> None:
        """Read the ELF header. Raises InputError: for a file that is no ELF file one that names what it is."""
        self.data, self._fail = data, fail
        if len(data) < 20 or data[:4] != MAGIC:
            raise fail(*not_elf(bytes(data[:16]), wanted))
        found = layout.LAYOUTS.get((data[4] == 2, data[5] == 1)) if data[4] in (1, 2) and data[5] in (1, 2) else None
        if found is None or data[6] != 1:
            raise fail(f"ELF class {data[4]}, byte order {data[5]}, version {data[6]} are not valid")
        self.layout: layout.Layout = found
        try:
            self.fields: tuple[int, ...] = found.header.unpack_from(data, 16)
        except struct_error:
            raise fail("the file ends inside the ELF header") from None
        self.type, self.machine, self.flags = self.fields[0], self.fields[1], self.fields[6]
        self.osabi: int = data[7]
        self.name_table = 0  # the number of the section that holds the sections' names; 0 where there is none

    def sections(self) -> list[SectionHeader]:
        """Return all section headers; none where the file has none (`strip --strip-section-headers`)."""
        _, _, _, _, _, start, _, _, _, _, entry_size, count, self.name_table = self.fields
        if start == 0:
            self.name_table = 0
            return []
        record = self.layout.section
        if entry_size != record.size:
            raise self._fail(f"section headers of {entry_size} bytes, where {record.size} are expected")
        self.within(start, record.size, "the section headers")
        if count == 0 or self.name_table == layout.SHN_XINDEX:
            first = SectionHeader(*record.unpack_from(self.data, start))
            count = count or first.size
            self.name_table = first.link if self.name_table == layout.SHN_XINDEX else self.name_table
        return list(map(SectionHeader._make, self._table(record, start, count, "the section headers")))

    def segments(self) -> list[Segment]:
        """Return all program headers."""
        start, entry_size, count = (self.fields[i] for i in (4, 8, 9))
        if start == 0 or count == 0:
            return []
        record = self.layout.segment
        if entry_size != record.size:
            raise self._fail(f"program headers of {entry_size} bytes, where {record.size} are expected")
        if count == layout.PN_XNUM and self.fields[5]:
            self.within(self.fields[5], self.layout.section.size, "the section headers")
            count = SectionHeader(*self.layout.section.unpack_from(self.data, self.fields[5])).info
        table = self._table(record, start, count, "the program headers")
        if self.layout.is64:
            return [Segment(t, flags, at, va, files, mems, align) for t, flags, at, va, _, files, mems, align in table]
        return [Segment(t, flags, at, va, files, mems, align) for t, at, va, _, files, mems, flags, align in table]

    def _table(self, record: Struct, start: int, count: int, what: str) -> Iterator[tuple[int, ...]]:
        size = count * record.size
        self.within(start, size, what)
        return record.iter_unpack(memoryview(self.data)[start : start + size])

    def within(self, offset: int, size: int, what: str) -> None:
        """Raise the error that `what` ends after the file, if it does."""
        if offset + size > len(self.data):
            raise self._fail(
                f"{what} at offset {offset:#x} with {size:#x} bytes end after the file's {len(self.data):#x} bytes"
            )
