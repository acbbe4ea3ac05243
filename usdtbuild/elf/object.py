"""A relocatable object: sections, symbols and relocations, as far as instrumenting needs them.

Made for one pass over many small objects or one huge one: records are unpacked a column at a time and looked up by
their strings, so that a million symbols cost tenths of a second. Finished binaries are `elf.image`.

Everything read is checked against the file's size first: a damaged object raises `ElfError`, which names the section
and the offset, and nothing else.
"""

from __future__ import annotations

from ..errors import InputError
from ..record import NamedTuple
from . import layout, relocations
from .headers import Headers, SectionHeader
from .layout import SectionIndex, SymbolIndex

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence
    from collections.abc import Set as AbstractSet

    from ..files import Data


class ElfError(InputError):
    """The object is damaged, cut short, or no relocatable ELF object at all."""


class ObjectSymbol(NamedTuple):
    """One symbol table entry.

    `section` is the number of the section that it is in, an extended one (SHN_XINDEX) resolved; 0 where it is in none:
    then it is undefined, or `reserved` says what else it is (SHN_ABS, SHN_COMMON, ...).
    """

    name: int
    info: int
    other: int
    section: SectionIndex
    value: int
    size: int
    reserved: int = 0

    @property
    def binding(self) -> int:
        """STB_LOCAL, STB_GLOBAL, STB_WEAK, ..."""
        return self.info >> 4

    @property
    def type(self) -> int:
        """STT_NOTYPE, STT_FUNC, ..."""
        return self.info & 15

    @property
    def is_undefined(self) -> bool:
        """Whether another object defines it."""
        return not self.section and not self.reserved


class Reference(NamedTuple):
    """One relocation: which relocation section, which entry of it, and the entry's fields.

    `addend` is None in SHT_REL sections, where it lies in the bytes that are relocated.
    """

    relocations: SectionIndex
    entry: int
    offset: int
    type: int
    symbol: SymbolIndex
    addend: int | None


class ObjectSections:
    """The headers, sections and names of a relocatable object in memory. `path` is what error messages call it."""

    def __init__(self, data: Data, path: str) -> None:
        """Read headers and section headers of `data`. Raises ElfError."""
        self.data, self.path = data, path
        headers = Headers(data, self.error, "object")
        self.layout, self.osabi, self.header_fields = headers.layout, headers.osabi, headers.fields
        self.type, self.machine, self.flags = headers.type, headers.machine, headers.flags
        if self.type != layout.ET_REL:
            kind = {2: "an executable", 3: "a shared library or PIE", 4: "a core dump"}.get(self.type, "an ELF file")
            raise self.error(f"is {kind}, not a relocatable object", "give the .o file that the compiler wrote")
        self.sections = headers.sections()
        self.section_count = len(self.sections)
        self.shstrndx = SectionIndex(headers.name_table)
        self._words: memoryview | None = None  # the whole file as numbers of 32 bits, once it was asked for
        self._names = [section[0] for section in self.sections]  # where in their table the sections' names are
        self._by_type: dict[int, list[SectionIndex]] = {}  # in file order
        self._check_sections()

    def error(self, what: str, cure: str = "compile it again") -> ElfError:
        """Return an error about this object, for the caller to raise."""
        return ElfError(self.path, what, cure)

    # -- headers -----------------------------------------------------------------------------------------------------

    def _check_sections(self) -> None:
        if not self.section_count:
            raise self.error("has no section headers")
        if not 0 < self.shstrndx < self.section_count:
            raise self.error(f"section name table index {self.shstrndx} of {self.section_count} sections")
        end, by_type = len(self.data), self._by_type
        for index, (_, type_, _, _, offset, size, _, _, _, _) in self.numbered():
            if offset + size > end and type_ not in {layout.SHT_NOBITS, layout.SHT_NULL}:
                raise self.error(
                    f"section {index} at offset {offset:#x} with {size:#x} bytes ends after the file's {end:#x} bytes"
                )
            if type_ in by_type:
                by_type[type_].append(index)
            else:
                by_type[type_] = [index]
        if self.sections[self.shstrndx].type != layout.SHT_STRTAB:
            raise self.error(f"section {self.shstrndx} should hold the section names, and is no string table")

    def numbered(self) -> Iterable[tuple[SectionIndex, SectionHeader]]:
        """Return all sections with their numbers."""
        return enumerate(self.sections)  # type: ignore[return-value]

    def of_type(self, *types: int) -> Sequence[SectionIndex]:
        """Return the numbers of all sections of these types, in file order."""
        if len(types) == 1:
            return self._by_type.get(types[0], ())
        found = [self._by_type[type_] for type_ in types if type_ in self._by_type]
        if len(found) < 2:
            return found[0] if found else ()
        return sorted(index for indexes in found for index in indexes)

    # -- sections ----------------------------------------------------------------------------------------------------

    def content(self, index: SectionIndex) -> memoryview:
        """Return the bytes of section `index`, without copying. NOBITS sections have none."""
        section = self.sections[index]
        if section.type == layout.SHT_NOBITS:
            return memoryview(b"")
        return memoryview(self.data)[section.offset : section.offset + section.size]

    def string(self, table: int, offset: int) -> str:
        """Return the NUL-terminated string at `offset` of string table section `table`."""
        return self.strings(table, (offset,))[0]

    def strings(self, table: int, offsets: Iterable[int]) -> list[str]:
        """Return the NUL-terminated strings at these offsets of string table section `table`."""
        data, section = self.data, self.sections[table]
        start, stop, find = section.offset, section.offset + section.size, data.find
        found = []
        for offset in offsets:
            begin = start + offset
            end = find(b"\0", begin, stop)
            if end < 0 or begin >= stop:
                raise self.error(f"string at {offset:#x} of section {table} runs out of its table")
            found.append(data[begin:end].decode("utf-8", "surrogateescape"))
        return found

    def words(self, index: SectionIndex) -> Sequence[int]:
        """Return the content of a section as numbers of 32 bits; a ragged end is cut off."""
        section = self.sections[index]
        start, size = section.offset, section.size
        if start % 4 or size >= relocations.LARGE or self.layout.little != relocations.NATIVE_LITTLE:
            return relocations.words(self.content(index), 4, self.layout)
        if self._words is None:
            self._words = memoryview(self.data)[: len(self.data) // 4 * 4].cast("I")
        return self._words[start // 4 : (start + size) // 4]

    def section_name(self, index: SectionIndex) -> str:
        """Return the name of section `index`."""
        return self.string(self.shstrndx, self.sections[index].name)

    def sections_named(self, name: str) -> list[SectionIndex]:
        """Return the indices of all sections called `name`, in file order."""
        table = self.sections[self.shstrndx]
        offsets = set(_string_offsets(self.data, table, name.encode() + b"\0"))
        if offsets.isdisjoint(self._names):
            return []
        return [i for i, name in enumerate(self._names) if name in offsets]  # type: ignore[misc]

    def groups(self) -> dict[SectionIndex, SectionIndex]:
        """Return section index -> index of the SHT_GROUP section it is a member of."""
        members: dict[SectionIndex, SectionIndex] = {}
        for index in self.of_type(layout.SHT_GROUP):
            for member in self.words(index)[1:]:
                members[SectionIndex(member)] = index
        return members


class ElfObject(ObjectSections):
    """A relocatable object in memory, with its symbols and relocations."""

    def __init__(self, data: Data, path: str) -> None:
        """Read headers and section headers of `data`. Raises ElfError."""
        super().__init__(data, path)
        self.symtab = self._find_symtab()
        self._symbol_count = self.sections[self.symtab].size // self.layout.symbol.size if self.symtab else 0
        self._symbols_start = self.sections[self.symtab].offset
        record = self.layout.symbol
        self._symbol_record = record.unpack_from, record.size, self.layout.is64
        self._extended = SectionIndex(-1)  # not looked for yet
        self._entries_at: dict[SectionIndex, dict[int, list[int]]] = {}  # relocation section -> offset -> entries
        self._relocation_sections: list[SectionIndex] | None = None
        self._columns: dict[SectionIndex, Sequence[int]] = {}  # relocation section -> symbols of its entries

    # -- symbols -----------------------------------------------------------------------------------------------------

    def _find_symtab(self) -> SectionIndex:
        for index in self.of_type(layout.SHT_SYMTAB):
            section = self.sections[index]
            if section.entsize != self.layout.symbol.size or section.size % section.entsize:
                raise self.error(f"symbol table (section {index}) has entries of {section.entsize} bytes")
            in_table = 0 < section.link < self.section_count
            has_strings = in_table and self.sections[section.link].type == layout.SHT_STRTAB
            if not has_strings or section.info > section.size // section.entsize:
                raise self.error(f"symbol table (section {index}) has a bad link or info field")
            return index
        return SectionIndex(0)

    @property
    def symbol_count(self) -> int:
        """How many entries the symbol table has, the null entry included."""
        return self._symbol_count

    def symbol_indexes(self, start: int = 0) -> Sequence[SymbolIndex]:
        """Return the numbers of all symbols from one on."""
        return range(start, self.symbol_count)  # type: ignore[return-value]

    def symbol(self, index: SymbolIndex) -> ObjectSymbol:
        """Return symbol `index`, with an extended section index resolved."""
        return ObjectSymbol._make(self.symbol_fields(index))

    def symbol_fields(self, index: SymbolIndex) -> tuple[int, int, int, SectionIndex, int, int, int]:
        """Return the fields of symbol `index` without names, which cost as much as the rest."""
        if index >= self._symbol_count:
            raise self.error(f"symbol {index} of a table with {self._symbol_count}")
        unpack, size, is64 = self._symbol_record
        fields = unpack(self.data, self._symbols_start + index * size)
        if is64:
            name, info, other, section, value, size = fields
        else:
            name, value, size, info, other, section = fields
        if section < layout.SHN_LORESERVE:
            return name, info, other, section, value, size, 0
        if section == layout.SHN_XINDEX:
            return name, info, other, self._extended_index(index), value, size, 0
        return name, info, other, SectionIndex(0), value, size, section

    def symbol_name(self, index: SymbolIndex) -> str:
        """Return the name of symbol `index`."""
        return self.string(self.sections[self.symtab].link, self.symbol_fields(index)[0])

    def extended_table(self) -> SectionIndex:
        """Return the index of the SHT_SYMTAB_SHNDX section that belongs to the symbol table, or 0."""
        if self._extended < 0:  # each symbol of an object with many sections asks
            tables = self.of_type(layout.SHT_SYMTAB_SHNDX)
            self._extended = next((i for i in tables if self.sections[i].link == self.symtab), SectionIndex(0))
        return self._extended

    def _extended_index(self, index: SymbolIndex) -> SectionIndex:
        table = self.extended_table()
        if not table or self.sections[table].size < 4 * (index + 1):
            raise self.error(f"symbol {index} needs an extended section index, and there is none")
        (section,) = self.layout.u32.unpack_from(self.data, self.sections[table].offset + 4 * index)
        return SectionIndex(section)

    # -- relocations -------------------------------------------------------------------------------------------------

    def relocation_sections(self) -> list[SectionIndex]:
        """Return the indices of the SHT_RELA and SHT_REL sections that use the symbol table."""
        if self._relocation_sections is None:
            self._relocation_sections = self._find_relocation_sections()
        return self._relocation_sections

    def _find_relocation_sections(self) -> list[SectionIndex]:
        found = []
        for index in self.of_type(layout.SHT_RELA, layout.SHT_REL):
            section = self.sections[index]
            if section.link == self.symtab and section.size:
                entry = self.layout.rela if section.type == layout.SHT_RELA else self.layout.rel
                if section.entsize != entry.size or section.size % entry.size:
                    raise self.error(f"relocation section {index} has entries of {section.entsize} bytes")
                if section.info >= self.section_count:
                    raise self.error(f"relocation section {index} applies to section {section.info}, which isn't there")
                found.append(index)
        return found

    def relocation_symbols(self, index: SectionIndex) -> Sequence[SymbolIndex]:
        """Return the column of symbol indices of relocation section `index`. A small one is taken apart once."""
        if index in self._columns:
            return self._columns[index]  # type: ignore[return-value]
        section = self.sections[index]
        column = relocations.symbols(self.words(index), self.layout, self.machine, section.entsize)
        if section.size < relocations.LARGE:
            self._columns[index] = column = list(column)
        return column  # type: ignore[return-value]

    def relocation(self, index: SectionIndex, entry: int) -> Reference:
        """Return entry number `entry` of relocation section `index`."""
        return self._entries(index, (entry,))[0]

    def _entries(self, index: SectionIndex, entries: Iterable[int]) -> list[Reference]:
        section = self.sections[index]
        start, rela = section.offset, section.type == layout.SHT_RELA
        record = self.layout.rela if rela else self.layout.rel
        data, unpack, size, make = self.data, record.unpack_from, record.size, Reference._make
        found = []
        if rela and relocations.is_plain(self.layout, self.machine):
            for entry in entries:
                offset, info, addend = unpack(data, start + entry * size)
                found.append(make((index, entry, offset, info & 0xFFFFFFFF, info >> 32, addend)))
            return found
        for entry in entries:
            fields = unpack(data, start + entry * size)
            symbol, kind = relocations.split_info(fields[1], self.layout, self.machine)
            found.append(make((index, entry, fields[0], kind, symbol, fields[2] if rela else None)))
        return found

    def relocations_at(self, index: SectionIndex, offset: int) -> list[Reference]:
        """Return the entries of relocation section `index` that apply at `offset` (more than one on RISC-V)."""
        if index not in self._entries_at:
            entries_at = self._entries_at[index] = {}
            count = self.sections[index].size // self.sections[index].entsize
            for reference in self._entries(index, range(count)):
                entries_at.setdefault(reference.offset, []).append(reference.entry)
        return self._entries(index, self._entries_at[index].get(offset, ()))

    def entries_against(self, wanted: AbstractSet[SymbolIndex]) -> Iterator[tuple[SectionIndex, list[int]]]:
        """Yield each relocation section with entries against one of the `wanted` symbols, and their numbers."""
        for index in self.relocation_sections():
            column = self._columns.get(index) or self.relocation_symbols(index)
            if not wanted.isdisjoint(column):
                yield index, [entry for entry, symbol in enumerate(column) if symbol in wanted]

    def references(self, wanted: AbstractSet[SymbolIndex]) -> list[Reference]:
        """Return every relocation against one of the `wanted` symbols, in file order."""
        found: list[Reference] = []
        for index, entries in self.entries_against(wanted):
            found += self._entries(index, entries)
        return found


def find_symbols(
    source: ElfObject, prefixes: Iterable[bytes] = (), names: Collection[bytes] = (), ending: bytes = b""
) -> dict[SymbolIndex, str]:
    """Return symbol index -> name of the symbols that start with a prefix, or are one of `names`.

    All of `names` must end with `ending`. Assemblers share the tails of names, so a name may begin in the middle
    of another string: candidates are found in the string table first, wherever they stand, and then looked up in
    the column of name offsets. Raises ElfError if a name runs out of its table.
    """
    if not source.symtab:
        return {}
    symtab = source.sections[source.symtab]
    strings = source.sections[symtab.link]
    starts: set[int] = set()
    for prefix in prefixes:
        starts.update(_string_offsets(source.data, strings, prefix))
    if names:
        starts.update(_starts_of(source.data, strings, names, ending))
    if not starts:
        return {}
    column = source.words(source.symtab)[:: source.layout.symbol.size // 4]
    found = {i: name for i, name in enumerate(column) if name in starts}
    return dict(zip(found, source.strings(symtab.link, found.values())))  # type: ignore[arg-type]


def _starts_of(data: Data, strings: SectionHeader, names: Collection[bytes], ending: bytes) -> list[int]:
    """Return where in a string table one of `names` stands, found by their common `ending`."""
    ends = _string_offsets(data, strings, ending + b"\0")
    if not ends:
        return []
    found = []
    lengths = {len(name) for name in names}
    for offset in ends:
        end = strings.offset + offset + len(ending)
        starts = [end - length for length in lengths if end - length >= strings.offset]
        found += [start - strings.offset for start in starts if data[start:end] in names]
    return found


def _string_offsets(data: Data, table: SectionHeader, text: bytes) -> list[int]:
    """Return every offset in a string table where `text` stands, also as the tail of a longer string."""
    start, found = table.offset, []
    end = start + table.size
    position = data.find(text, start, end)
    while position >= 0:
        found.append(position - start)
        position = data.find(text, position + 1, end)
    return found
