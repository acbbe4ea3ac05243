"""An ELF file as one flat address space: sections, segments and bytes, for executables, libraries and objects alike.

Made for bulk reading: nothing is turned into Python objects before it is asked for. In a relocatable object every
section starts at address 0; here each allocated section is given an address of its own, so that the same questions
("which bytes are at X", "is X executable") have one answer. `place` turns such an address back into what a reader of
the object would write. Not a parser of symbols, relocations or instructions.
"""

from __future__ import annotations

import mmap
from bisect import bisect_right
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ..errors import InputError
from . import layout as L
from .headers import Headers
from .relocations import decode
from .symbols import Strings, SymbolTable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .headers import Data
    from .relocations import Relocation

ET_EXEC, ET_DYN, ET_CORE = L.ET_EXEC, L.ET_DYN, L.ET_CORE

# Where the first section of a relocatable object is put, and the least distance between two: no function of one
# section may ever seem to be next to a function of another.
_FIRST, _APART = 0x10000, 0x1000


class Section(NamedTuple):
    """One section: its header's fields, its name, and the address it has here."""

    name: str
    type: int
    flags: int
    address: int
    offset: int
    size: int
    link: int
    info: int
    align: int
    entsize: int


class Span(NamedTuple):
    """A stretch of the address space with bytes in the file: [start, end), from file offset `offset` on."""

    start: int
    end: int
    offset: int
    executable: bool


class Place(NamedTuple):
    """Where an address is for a reader: the address itself, or in an object the section and the offset in it."""

    section: str
    address: int


class Image:
    """One ELF file, mapped. `path` is what messages call it. Raises InputError when it is damaged or no ELF file."""

    def __init__(self, data: Data, path: str, *, debug_file: bool = False) -> None:
        """Read the headers of `data`. Only a `debug_file` may be without its code."""
        self.data, self.path = data, path
        headers = Headers(data, self.error, "functions")
        self.layout = headers.layout
        self.type, self.machine, self.flags = headers.type, headers.machine, headers.flags
        self.sections = self._read_sections(headers)
        self.spans = self._spans(headers)
        self._tables: dict[int, SymbolTable] = {}
        code = [section for section in self.sections if section.flags & L.SHF_EXECINSTR and section.size]
        if self.type == ET_CORE:
            raise self.error("is a core dump", "give the program that dumped it")
        if code and all(section.type == L.SHT_NOBITS for section in code) and not debug_file:
            raise self.error("is a separate debug file, without the code", "give the program it belongs to")
        self.code = self._code()
        self._starts = [span.start for span in self.spans]
        self._names = {section.address: section.name for section in self.sections} if self.relocatable else {}

    def error(self, what: str, cure: str = "build it again") -> InputError:
        """Return an error about this file, for the caller to raise."""
        return InputError(self.path, what, cure)

    @property
    def relocatable(self) -> bool:
        """Whether this is an object whose addresses are only ours."""
        return bool(self.type == L.ET_REL)

    @property
    def order(self) -> str:
        """The struct prefix of the file's byte order."""
        return "<" if self.layout.little else ">"

    # -- headers -----------------------------------------------------------------------------------------------------

    def _read_sections(self, file: Headers) -> list[Section]:
        headers = file.sections()
        names, at = b"", file.name_table
        if 0 < at < len(headers):
            names = bytes(self.data[headers[at].offset : headers[at].offset + headers[at].size])
        address, sections = _FIRST, []
        for index, header in enumerate(headers):
            start, kind, flags, real, offset, length, link, info, align, entsize = header
            if kind not in (L.SHT_NOBITS, L.SHT_NULL) and offset + length > len(self.data):
                raise self.error(f"section {index} at {offset:#x} with {length:#x} bytes ends after the file")
            if self.type == L.ET_REL:
                real = 0
                if flags & L.SHF_ALLOC:
                    step = max(align, 64)
                    real = -(-address // step) * step
                    address = real + length + _APART
            name = names[start : max(names.find(b"\0", start), start)].decode("utf-8", "replace")
            sections.append(Section(name, kind, flags, real, offset, length, link, info, align, entsize))
        return sections

    def _spans(self, file: Headers) -> list[Span]:
        if self.type == L.ET_REL:
            return sorted(
                Span(s.address, s.address + s.size, s.offset, bool(s.flags & L.SHF_EXECINSTR))
                for s in self.sections
                if s.flags & L.SHF_ALLOC and s.type != L.SHT_NOBITS and s.size
            )
        spans = []
        for segment in file.segments():
            if segment.type == L.PT_LOAD and segment.file_size:
                length = min(segment.file_size, max(len(self.data) - segment.offset, 0))
                executable = bool(segment.flags & L.PF_X)
                spans.append(Span(segment.address, segment.address + length, segment.offset, executable))
        return sorted(spans)

    def _code(self) -> list[Span]:
        """Return where instructions are: the executable sections, since their segments may hold data too.

        RISC-V's linkers, and others with `-z noseparate-code`, load strings and constants with the code. A file
        without section headers has its executable segments for code.
        """
        segments = [span for span in self.spans if span.executable]
        wanted = L.SHF_ALLOC | L.SHF_EXECINSTR
        sections = [s for s in self.sections if s.flags & wanted == wanted and s.type != L.SHT_NOBITS and s.size]
        if self.relocatable or not sections:
            return segments
        found = []
        for section in sections:
            for segment in segments:
                start = max(section.address, segment.start)
                end = min(section.address + section.size, segment.end)
                if start < end:
                    found.append(Span(start, end, segment.offset + start - segment.start, True))
        return sorted(set(found))

    # -- questions ---------------------------------------------------------------------------------------------------

    def span(self, address: int) -> Span | None:
        """Return the stretch of file bytes that holds `address`."""
        index = bisect_right(self._starts, address) - 1
        if index >= 0 and address < self.spans[index].end:
            return self.spans[index]
        return None

    def read(self, address: int, size: int) -> bytes:
        """Return up to `size` bytes at `address`; fewer at the end of a segment, none outside all of them."""
        index = bisect_right(self._starts, address) - 1
        if index < 0 or size <= 0:
            return b""
        start, end, offset, _ = self.spans[index]
        if address >= end:
            return b""
        at = offset + address - start
        return bytes(self.data[at : at + min(size, end - address)])

    def address_of(self, section: int, offset: int) -> int:
        """Return the address here of a place in an object; of other files, `offset` is the address itself."""
        if not self.relocatable:
            return offset
        return self.sections[section].address + offset if 0 < section < len(self.sections) else 0

    def executable(self, address: int) -> bool:
        """Whether `address` lies in an executable segment (in an object: section)."""
        span = self.span(address)
        return span is not None and span.executable

    def content(self, section: Section) -> bytes:
        """Return the bytes of `section`."""
        if section.type == L.SHT_NOBITS:
            return b""
        return bytes(self.data[section.offset : section.offset + section.size])

    def named(self, name: str) -> list[int]:
        """Return the indices of all sections called `name`, in file order."""
        return [index for index, section in enumerate(self.sections) if section.name == name]

    # -- symbols and relocations -------------------------------------------------------------------------------------

    def symbols(self, index: int) -> SymbolTable:
        """Return the symbol table that is section `index`, whose strings must be in the file. Raises InputError."""
        if index not in self._tables:
            section = self.sections[index] if index < len(self.sections) else None
            if section is None or section.entsize != self.layout.symbol.size or section.link >= len(self.sections):
                what = f"{section.name} has entries of {section.entsize} bytes" if section else "is not there"
                raise self.error(f"its symbol table {what}, not {self.layout.symbol.size}")
            strings = self.sections[section.link]
            extended = None
            for other in self.sections:
                if other.type == L.SHT_SYMTAB_SHNDX and other.link == index:
                    extended = memoryview(self.content(other))
            there = Strings(self.data, strings.offset, strings.offset + strings.size)
            self._tables[index] = SymbolTable(memoryview(self.content(section)), self.layout, there, extended)
        return self._tables[index]

    def symbol_address(self, table: int, number: int) -> int | None:
        """Return the address of an object's symbol; None where it is undefined or no place in this object."""
        symbols = self.symbols(table)
        home = symbols.section(number) if number < symbols.count else 0
        if not 0 < home < len(self.sections) or not self.sections[home].address:
            return None
        return self.sections[home].address + symbols.values[number]

    def relocations(self, section: Section) -> Iterator[Relocation]:
        """Yield the entries of a SHT_RELA or SHT_REL section."""
        return decode(self.content(section), self.layout, self.machine, rela=section.type == L.SHT_RELA)

    def place(self, address: int) -> Place:
        """Return what a reader calls `address`: in an object, an offset in a section."""
        if not self.relocatable:
            return Place("", address)
        index = bisect_right(self._starts, address) - 1
        if index < 0 or address > self.spans[index].end:
            return Place("", address)
        return Place(self._names[self.spans[index].start], address - self.spans[index].start)

    def close(self) -> None:
        """Let go of the file."""
        if isinstance(self.data, mmap.mmap):
            self.data.close()


def map_file(path: str) -> Data:
    """Return the bytes of the file at `path`, mapped where that is possible. Raises InputError."""
    try:
        with Path(path).open("rb") as file:
            try:
                return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            except ValueError:  # an empty file can't be mapped
                return b""
            except OSError:  # a pipe or a device: read what it gives
                return file.read()
    except OSError as error:
        raise InputError(path, f"can't be read: {error.strerror}") from None
