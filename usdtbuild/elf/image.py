"""An opened file, finished binary or object: headers, contents, addresses, symbols, relocations.

Whoever opens a file makes one of these and passes it on; `elf.space` (all of it as one flat address space) and
`elf.dynamic` (what the dynamic linker reads) are views of it. Contents are slices of the file, symbol tables are read
as columns (`elf.symbols`), once. What an address is in an object, where sections have none yet, is the caller's
business: section number and offset.

Nothing here knows probes. Every number of the file is checked before it is used: a damaged file raises InputError and
nothing else, and costs no more memory than it has bytes.
"""

from __future__ import annotations

from bisect import bisect_right
from functools import cached_property, partial
from typing import TYPE_CHECKING

from ..errors import InputError
from ..machines import facts_of, name_of
from ..record import NamedTuple
from . import layout, relocations
from .headers import MAGIC, Headers, SectionHeader, Segment
from .sections import ImageSection, content_of
from .symbols import FunctionIndex, Symbol, SymbolTable
from .tables import SymbolTables
from .tags import DF_1_PIE, DT_FLAGS_1, DT_SONAME, read_tags

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from ..files import Data
    from .relocations import Relocation

__all__ = ["MAGIC", "PROBES", "FunctionAt", "Image", "Purpose", "Segment"]


class Purpose(NamedTuple):
    """What a file is opened for, as errors say it: what was wanted, the usual cure, and why no core dump will do."""

    wanted: str
    cure: str
    core: str


PROBES = Purpose("file", "the file was cut short or damaged; build or copy it again", "is a core dump, not a binary")


def _error(path: str, purpose: Purpose, what: str, cure: str | None = None) -> InputError:
    return InputError(path, what, purpose.cure if cure is None else cure)


class FunctionAt(NamedTuple):
    """The function that contains an address, and how far into it the address is."""

    name: str
    offset: int


class Image:
    """One ELF file in memory. `path` is what messages call it, `purpose` what they say it was opened for."""

    def __init__(self, data: Data, path: str, purpose: Purpose = PROBES) -> None:
        """Read the headers of `data`. Raises InputError."""
        self.data, self.path, self._purpose = data, path, purpose
        # No method of ours: a circle would keep the content of every file of a folder in memory.
        self._headers = headers = Headers(data, partial(_error, path, purpose), purpose.wanted)
        self.layout = headers.layout
        self.is64, self.little, self.address_size = self.layout.is64, self.layout.little, self.layout.address_size
        self.type, self.machine, self.flags = headers.type, headers.machine, headers.flags
        self.machine_name = name_of(self.machine)  # the usual one, or `machine N`
        self.is_object: bool = self.type == layout.ET_REL  # its addresses are section and offset
        self.entry: int = headers.fields[3]  # of the first instruction, or of a descriptor of it (ppc64 ELFv1)
        if self.type == layout.ET_CORE:
            raise self.error(purpose.core, "give the program that dumped it")
        self.sections = self._named(headers.sections())
        self.segments: list[Segment] = headers.segments()

    def _named(self, sections: list[SectionHeader]) -> list[ImageSection]:
        names, index = b"", self._headers.name_table
        if 0 < index < len(sections) and sections[index].type != layout.SHT_NOBITS:
            start, size = sections[index].offset, sections[index].size
            self._headers.within(start, size, "the section names")
            names = bytes(self.data[start : start + size])
        found = []
        for number, header in enumerate(sections):
            name = names[header.name : max(names.find(b"\0", header.name), header.name)]
            found.append(ImageSection(number, name.decode("utf-8", "backslashreplace"), *header[1:]))
        return found

    # -- what it is --------------------------------------------------------------------------------------------------

    def error(self, what: str, cure: str | None = None) -> InputError:
        """Return an error about this file, for the caller to raise."""
        return _error(self.path, self._purpose, what, cure)

    @cached_property
    def kind(self) -> str:
        """What a user calls such a file: `object`, `executable`, `PIE executable`, `shared library`, ..."""
        if self.is_debug_file:
            return "debug file"
        if self.type != layout.ET_DYN:
            return {layout.ET_REL: "object", layout.ET_EXEC: "executable"}.get(
                self.type, f"ELF file of type {self.type}"
            )
        tags = dict(read_tags(self.data, self.segments, self.layout))
        interpreted = any(segment.type == layout.PT_INTERP for segment in self.segments)
        is_pie = tags.get(DT_FLAGS_1, 0) & DF_1_PIE or (interpreted and DT_SONAME not in tags)
        return "PIE executable" if is_pie else "shared library"

    @cached_property
    def is_debug_file(self) -> bool:
        """Whether the code was left out of the file (`objcopy --only-keep-debug`)."""
        code = [section for section in self.sections if section.executable and section.size]
        return bool(code) and all(section.type == layout.SHT_NOBITS for section in code)

    @cached_property
    def build_id(self) -> bytes:
        """The GNU build-id; empty where there is none."""
        for section in self.sections:
            if section.type == layout.SHT_NOTE and section.name == ".note.gnu.build-id":
                raw = bytes(self.content(section))
                if len(raw) >= 16:
                    name_size, size, _ = (self.layout.u32.unpack_from(raw, at)[0] for at in (0, 4, 8))
                    start = 12 + (name_size + 3 & ~3)
                    return raw[start : start + size]
        return b""

    @property
    def unwind_header(self) -> int:
        """Where .eh_frame_hdr is, 0: nowhere."""
        return next((one.address for one in self.segments if one.type == layout.PT_GNU_EH_FRAME), 0)

    # -- contents and addresses --------------------------------------------------------------------------------------

    @cached_property
    def _by_name(self) -> dict[str, list[ImageSection]]:
        found: dict[str, list[ImageSection]] = {}
        for section in self.sections:
            found.setdefault(section.name, []).append(section)
        return found

    def sections_named(self, name: str) -> Sequence[ImageSection]:
        """Return the sections called `name`, in file order."""
        return self._by_name.get(name, ())

    def content(self, section: ImageSection) -> memoryview:
        """Return the bytes of a section, without copying; none for NOBITS. Raises InputError."""
        return content_of(section, self._headers)

    @cached_property
    def _by_address(self) -> tuple[list[int], list[ImageSection]]:
        # SHF_TLS sections are templates: they occupy no addresses of their own.
        loaded = [s for s in self.sections if s.loaded and s.size and not s.flags & layout.SHF_TLS]
        loaded.sort(key=lambda section: section.address)
        return [section.address for section in loaded], loaded

    def section_at(self, address: int) -> ImageSection | None:
        """Return the loaded section that holds a run-time address."""
        starts, sections = self._by_address
        at = bisect_right(starts, address) - 1
        if at >= 0 and address < sections[at].address + sections[at].size:
            return sections[at]
        return None

    @cached_property
    def loads(self) -> list[Segment]:
        """The PT_LOAD segments, in file order."""
        return [segment for segment in self.segments if segment.type == layout.PT_LOAD]

    def segment_at(self, address: int) -> Segment | None:
        """Return the PT_LOAD segment that holds a run-time address."""
        for segment in self.loads:
            if segment.address <= address < segment.address + segment.memory_size:
                return segment
        return None

    def file_offset(self, address: int) -> int | None:
        """Return where in the file the byte at a run-time address is; None where the file has no byte for it."""
        segment = self.segment_at(address)
        if segment is None or address - segment.address >= segment.file_size:
            return None
        return address - segment.address + segment.offset

    def bytes_at(self, address: int, size: int) -> bytes:
        """Return up to `size` bytes at a run-time address, as they are in the file."""
        segment = self.segment_at(address)
        if segment is None:
            return b""
        start = address - segment.address
        stop = min(start + size, segment.file_size)
        return bytes(self.data[segment.offset + start : segment.offset + stop]) if start < stop else b""

    # -- symbols -----------------------------------------------------------------------------------------------------

    @cached_property
    def tables(self) -> SymbolTables:
        """The symbol tables, which all views of the file share."""
        return SymbolTables(self.sections, self._headers)

    def has_symbols(self, kind: int) -> bool:
        """Whether there is a table of type SHT_SYMTAB or SHT_DYNSYM."""
        return kind in self.tables.by_type

    def symbol_table(self, kind: int) -> SymbolTable:
        """Return the table of type SHT_SYMTAB or SHT_DYNSYM, which must be there."""
        return self.tables.at(self.tables.by_type[kind])

    def symbols_with(self, kind: int, text: bytes) -> Iterator[tuple[int, Symbol]]:
        """Yield (number, symbol) where the name contains `text`; cheap where no name of the table does."""
        return self.tables.containing(kind, text)

    def symbol(self, number: int) -> Symbol | None:
        """Return symbol `number` of SHT_SYMTAB, or None where there is no such symbol."""
        if not self.has_symbols(layout.SHT_SYMTAB):
            return None
        table = self.symbol_table(layout.SHT_SYMTAB)
        return table.symbol(number) if 0 <= number < table.count else None

    def function_at(self, address: int, section: int = 0) -> FunctionAt | None:
        """Return the function around a run-time address; in an object, around an offset of section `section`."""
        found = self._functions.find(address, section) if self._functions is not None else None
        return FunctionAt(*found) if found is not None else None

    @cached_property
    def _functions(self) -> FunctionIndex | None:
        """The functions, of stripped files the exported ones."""
        for kind in (layout.SHT_SYMTAB, layout.SHT_DYNSYM):
            if self.has_symbols(kind):
                moved = moved_by_descriptors(self) if self.is_object else {}
                index = FunctionIndex(self.symbol_table(kind), self.is_object, code_address(self), moved)
                if index:
                    return index
        return None

    # -- relocations -------------------------------------------------------------------------------------------------

    def relocations(self, section: ImageSection) -> list[Relocation]:
        """Return the relocations that apply to a section of an object."""
        found: list[Relocation] = []
        for table in self._relocation_tables.get(section.number, ()):
            content = self.content(table)
            found += relocations.decode(content, self.layout, self.machine, rela=table.type == layout.SHT_RELA)
        return found

    @cached_property
    def _relocation_tables(self) -> dict[int, list[ImageSection]]:
        found: dict[int, list[ImageSection]] = {}
        for table in self.sections:
            if table.type in {layout.SHT_RELA, layout.SHT_REL}:
                found.setdefault(table.info, []).append(table)
        return found


# -- where a function symbol's code is, on machines where that isn't the symbol's value ------------------------------
#
# ARM marks Thumb code by bit 0. Function symbols of 64-bit PowerPC's first ABI (ELFv1) are descriptors in `.opd`, whose
# first word is the code's address.


def code_address(image: Image) -> Callable[[int], int] | None:
    """Return what turns a function symbol's value into its code's address; None where they are the same."""
    known = facts_of(image.machine)
    if known and known.thumb:
        return lambda value: value & ~1
    moved = descriptors(image)
    return (lambda value: moved.get(value, value)) if moved else None


def descriptors(image: Image) -> dict[int, int]:
    """Return the code's address behind each function descriptor of a linked file."""
    found: dict[int, int] = {}
    known = facts_of(image.machine)
    if known and known.descriptors and not image.is_object:
        for section in image.sections_named(layout.DESCRIPTORS):
            content = image.content(section)
            words = image.layout.word.iter_unpack(content[: len(content) & ~7])
            for index, (value,) in enumerate(words):
                found[section.address + 8 * index] = value
    return found


def moved_by_descriptors(image: Image) -> dict[int, int]:
    """Return the same for an object, where relocations say it; both places are `section << 64 | offset`."""
    found: dict[int, int] = {}
    known = facts_of(image.machine)
    if known and known.descriptors:
        for section in image.sections_named(layout.DESCRIPTORS):
            for relocation in image.relocations(section):
                symbol = image.symbol(relocation.symbol) if relocation.type == known.descriptors else None
                if symbol is not None:
                    place = symbol.section << 64 | symbol.value + (relocation.addend or 0)
                    found[section.number << 64 | relocation.offset] = place
    return found
