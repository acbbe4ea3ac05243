"""An opened file (`elf.image`) seen as one flat address space, executables, libraries and objects alike.

In a relocatable object every section starts at address 0; here each allocated section is given an address of its own,
so that the same questions ("which bytes are at X", "is X executable") have one answer. `place` turns such an address
back into what a reader of the object would write. Nothing is parsed here a second time: headers, symbol tables and
contents are the opened file's.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator

from ..errors import InputError
from ..record import NamedTuple
from . import layout
from .image import Image, Purpose
from .relocations import Relocation, decode
from .sections import ImageSection
from .symbols import SymbolTable

FUNCTIONS = Purpose("functions", "build it again", "is a core dump")

# Where the first section of a relocatable object is put, and the least distance between two: no function of one
# section may ever seem to be next to a function of another.
_FIRST, _APART = 0x10000, 0x1000


class Span(NamedTuple):
    """A stretch of the address space with bytes in the file: [start, end), from file offset `offset` on."""

    start: int
    end: int
    offset: int
    executable: bool


class ShownAddress(NamedTuple):
    """Where an address is for a reader: the address itself, or in an object the section and the offset in it."""

    section: str
    address: int


class AddressSpace:
    """One opened file as one address space. Raises InputError when it is damaged or has no code to look at.

    `sections` are the file's, in an object each with the address it has here.
    """

    def __init__(self, file: Image, *, debug_file: bool = False) -> None:
        """Lay out `file`. Only a `debug_file` may be without its code."""
        self.file, self.data, self.path, self.layout = file, file.data, file.path, file.layout
        self.type, self.machine = file.type, file.machine
        self.relocatable = file.is_object  # its addresses are only ours
        self.sections = self._laid_out()
        self.spans = self._spans()
        if file.is_debug_file and not debug_file:
            raise self.error("is a separate debug file, without the code", "give the program it belongs to")
        self.code = self._code()
        self._starts = [span.start for span in self.spans]
        self._names = {section.address: section.name for section in self.sections} if self.relocatable else {}

    def error(self, what: str, cure: str = FUNCTIONS.cure) -> InputError:
        """Return an error about this file, for the caller to raise."""
        return InputError(self.path, what, cure)

    @property
    def order(self) -> str:
        """The struct prefix of the file's byte order."""
        return "<" if self.layout.little else ">"

    # -- where everything is -----------------------------------------------------------------------------------------

    def _laid_out(self) -> list[ImageSection]:
        size = len(self.data)
        for section in self.file.sections:
            if section.type not in (layout.SHT_NOBITS, layout.SHT_NULL) and section.offset + section.size > size:
                what = f"section {section.number} at {section.offset:#x} with {section.size:#x} bytes"
                raise self.error(f"{what} ends after the file")
        if not self.relocatable:
            return self.file.sections
        address, sections = _FIRST, []
        for section in self.file.sections:
            start = 0
            if section.flags & layout.SHF_ALLOC:
                step = max(section.align, 64)
                start = -(-address // step) * step
                address = start + section.size + _APART
            number, name, kind, flags, _, offset, length, link, info, align, entsize = section
            sections.append(ImageSection(number, name, kind, flags, start, offset, length, link, info, align, entsize))
        return sections

    def _spans(self) -> list[Span]:
        if self.relocatable:
            return sorted(
                Span(s.address, s.address + s.size, s.offset, bool(s.flags & layout.SHF_EXECINSTR))
                for s in self.sections
                if s.flags & layout.SHF_ALLOC and s.type != layout.SHT_NOBITS and s.size
            )
        spans = []
        for segment in self.file.loads:
            if segment.file_size:
                length = min(segment.file_size, max(len(self.data) - segment.offset, 0))
                executable = bool(segment.flags & layout.PF_X)
                spans.append(Span(segment.address, segment.address + length, segment.offset, executable))
        return sorted(spans)

    def _code(self) -> list[Span]:
        """Return where instructions are: the executable sections, since their segments may hold data too.

        RISC-V's linkers, and others with `-z noseparate-code`, load strings and constants with the code. A file
        without section headers has its executable segments for code.
        """
        segments = [span for span in self.spans if span.executable]
        wanted = layout.SHF_ALLOC | layout.SHF_EXECINSTR
        sections = [s for s in self.sections if s.flags & wanted == wanted and s.type != layout.SHT_NOBITS and s.size]
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

    def content(self, section: ImageSection) -> bytes:
        """Return the bytes of `section`."""
        return bytes(self.file.content(section))

    def named(self, name: str) -> list[ImageSection]:
        """Return all sections called `name`, in file order."""
        return [self.sections[section.number] for section in self.file.sections_named(name)]

    # -- symbols and relocations -------------------------------------------------------------------------------------

    def symbols(self, index: int) -> SymbolTable:
        """Return the symbol table that is section `index`, whose strings must be in the file. Raises InputError."""
        section = self.file.sections[index] if index < len(self.sections) else None
        if section is None or section.entsize != self.layout.symbol.size or section.link >= len(self.sections):
            what = f"{section.name} has entries of {section.entsize} bytes" if section else "is not there"
            raise self.error(f"its symbol table {what}, not {self.layout.symbol.size}")
        return self.file.tables.at(section)

    def symbol_address(self, table: int, number: int) -> int | None:
        """Return the address of an object's symbol; None where it is undefined or no place in this object."""
        symbols = self.symbols(table)
        home = symbols.section(number) if number < symbols.count else 0
        if not 0 < home < len(self.sections) or not self.sections[home].address:
            return None
        return self.sections[home].address + symbols.values[number]

    def relocations(self, section: ImageSection) -> Iterator[Relocation]:
        """Yield the entries of a SHT_RELA or SHT_REL section."""
        return decode(self.content(section), self.layout, self.machine, rela=section.type == layout.SHT_RELA)

    def place(self, address: int) -> ShownAddress:
        """Return what a reader calls `address`: in an object, an offset in a section."""
        if not self.relocatable:
            return ShownAddress("", address)
        index = bisect_right(self._starts, address) - 1
        if index < 0 or address > self.spans[index].end:
            return ShownAddress("", address)
        return ShownAddress(self._names[self.spans[index].start], address - self.spans[index].start)
