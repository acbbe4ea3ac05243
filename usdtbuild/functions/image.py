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
from struct import error as struct_error
from typing import TYPE_CHECKING, NamedTuple, Union

from ..elf import layout as L
from ..errors import InputError

if TYPE_CHECKING:
    Data = Union[bytes, mmap.mmap]

ET_EXEC, ET_DYN, ET_CORE = 2, 3, 4
PT_LOAD, PF_X = 1, 1
SHT_DYNSYM, SHT_RELR = 11, 19

# Where the first section of a relocatable object is put, and the least distance between two: no function of one
# section may ever seem to be next to a function of another.
_FIRST, _APART = 0x10000, 0x1000

_FOREIGN = (
    (b"!<arch>\n", "is an archive", "give one of its objects (ar x)"),
    (b"!<thin>\n", "is a thin archive", "give one of the objects it names"),
    (b"BC\xc0\xde", "is LLVM bitcode: its functions have no bytes yet", "give the linked file"),
    (b"\xde\xc0\x17\x0b", "is wrapped LLVM bitcode: its functions have no bytes yet", "give the linked file"),
    (b"\xcf\xfa\xed\xfe", "is a Mach-O file", "only ELF, PE and COFF files are read"),
    (b"\xca\xfe\xba\xbe", "is a Mach-O universal file", "only ELF, PE and COFF files are read"),
    (b"#!", "is a script", "give the program that runs it"),
)


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
        if len(data) < 20 or data[:4] != b"\x7fELF":
            raise not_readable(path, bytes(data[:16]))
        known = data[4] in (1, 2) and data[5] in (1, 2)
        layout = L.LAYOUTS.get((data[4] == 2, data[5] == 1)) if known else None
        if layout is None:
            raise self.error(f"ELF class {data[4]} and byte order {data[5]} are not valid")
        self.layout = layout
        try:
            fields = layout.header.unpack_from(data, 16)
            self.type, self.machine, self.flags = fields[0], fields[1], fields[6]
            self.sections = self._read_sections(fields)
            self.spans = self._spans(fields)
        except (struct_error, IndexError, OverflowError):
            raise self.error("the file ends inside its headers") from None
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

    def _read_sections(self, fields: tuple[int, ...]) -> list[Section]:
        shoff, size, count, names_index = fields[5], fields[10], fields[11], fields[12]
        record = self.layout.section
        if shoff == 0:
            return []
        if size != record.size:
            raise self.error(f"section headers of {size} bytes, where {record.size} are expected")
        first = record.unpack_from(self.data, shoff)
        count = count or first[5]  # 65,280 sections or more: the count is in the first header (gABI, e_shnum)
        names_index = first[6] if names_index == L.SHN_XINDEX else names_index
        if shoff + count * size > len(self.data):
            raise self.error(f"{count} section headers at {shoff:#x} end after the file's {len(self.data):#x} bytes")
        headers = list(record.iter_unpack(self.data[shoff : shoff + count * size]))
        names = b""
        if 0 < names_index < count:
            names = bytes(self.data[headers[names_index][4] : headers[names_index][4] + headers[names_index][5]])
        address, sections = _FIRST, []
        for index, header in enumerate(headers):
            _, kind, flags, real, offset, length, link, info, align, entsize = header
            if kind not in (L.SHT_NOBITS, L.SHT_NULL) and offset + length > len(self.data):
                raise self.error(f"section {index} at {offset:#x} with {length:#x} bytes ends after the file")
            if self.type == L.ET_REL:
                real = 0
                if flags & L.SHF_ALLOC:
                    step = max(align, 64)
                    real = -(-address // step) * step
                    address = real + length + _APART
            name = names[header[0] : max(names.find(b"\0", header[0]), header[0])].decode("utf-8", "replace")
            sections.append(Section(name, kind, flags, real, offset, length, link, info, align, entsize))
        return sections

    def _spans(self, fields: tuple[int, ...]) -> list[Span]:
        if self.type == L.ET_REL:
            return sorted(
                Span(s.address, s.address + s.size, s.offset, bool(s.flags & L.SHF_EXECINSTR))
                for s in self.sections
                if s.flags & L.SHF_ALLOC and s.type != L.SHT_NOBITS and s.size
            )
        phoff, size, count = fields[4], fields[8], fields[9]
        spans = []
        for index in range(count):
            kind, flags, offset, address, length = self._segment(phoff + index * size)
            if kind == PT_LOAD and length:
                length = min(length, max(len(self.data) - offset, 0))
                spans.append(Span(address, address + length, offset, bool(flags & PF_X)))
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

    def _segment(self, at: int) -> tuple[int, int, int, int, int]:
        """Return type, flags, file offset, address and bytes in the file of the program header at `at`."""
        word, u32 = self.layout.word, self.layout.u32
        kind = u32.unpack_from(self.data, at)[0]
        if self.layout.is64:
            flags = u32.unpack_from(self.data, at + 4)[0]
            offset, address, length = (word.unpack_from(self.data, at + place)[0] for place in (8, 16, 32))
        else:
            flags = u32.unpack_from(self.data, at + 24)[0]
            offset, address, length = (word.unpack_from(self.data, at + place)[0] for place in (4, 8, 16))
        return kind, flags, offset, address, length

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


def not_readable(path: str, start: bytes) -> InputError:
    """Return the error for a file that is no ELF file, named for what its first bytes say it is."""
    if not start:
        return InputError(path, "is empty", "build it again")
    if start.startswith(b"\x7fELF"):
        return InputError(path, "the file ends inside the ELF header", "build it again")
    for magic, what, cure in _FOREIGN:
        if start.startswith(magic):
            return InputError(path, what, cure)
    return InputError(path, "is not a program, a library or an object", "give an ELF, PE or COFF file, or a process")
