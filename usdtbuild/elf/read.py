"""Reading a relocatable object: sections, symbols and relocations, as far as instrumenting needs them.

Made for one pass over many small objects or one huge one: records are unpacked a column at a time and looked up by
their strings, so that a million symbols cost tenths of a second. Not a general ELF library: finished binaries are read
with pyelftools in `usdtbuild.inspect`.

Everything read is checked against the file's size first: a damaged object raises `ElfError`, which names the section
and the offset, and nothing else.
"""

from __future__ import annotations

import sys
from array import array
from struct import error as struct_error
from typing import TYPE_CHECKING, NamedTuple, Union

from ..errors import InputError
from . import layout as L

if TYPE_CHECKING:
    from collections.abc import Collection, Container, Iterable, Iterator
    from mmap import mmap

    Data = Union[bytes, bytearray, mmap]

_NATIVE_LITTLE = sys.byteorder == "little"


class ElfError(InputError):
    """The object is damaged, cut short, or no relocatable ELF object at all."""


class Section(NamedTuple):
    """One section header, fields in file order (gABI, `Elf64_Shdr`)."""

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


class Symbol(NamedTuple):
    """One symbol table entry; `section` has any SHN_XINDEX already resolved."""

    name: int
    info: int
    other: int
    section: int
    value: int
    size: int

    @property
    def binding(self) -> int:
        """STB_LOCAL, STB_GLOBAL, STB_WEAK, ..."""
        return self.info >> 4

    @property
    def type(self) -> int:
        """STT_NOTYPE, STT_FUNC, ..."""
        return self.info & 15


class Reference(NamedTuple):
    """One relocation: which relocation section, which entry of it, and the entry's fields.

    `addend` is None in SHT_REL sections, where it lies in the bytes that are relocated.
    """

    relocations: int
    entry: int
    offset: int
    type: int
    symbol: int
    addend: int | None


class ElfObject:
    """A relocatable object in memory. `path` is what error messages call it."""

    def __init__(self, data: Data, path: str) -> None:
        """Read headers and section headers of `data`. Raises ElfError."""
        self.data, self.path = data, path
        self.layout = self._identify()
        self.osabi: int = data[7]
        try:
            fields = self.layout.header.unpack_from(data, 16)
        except struct_error:
            raise self.error("the file ends inside the ELF header") from None
        self.type, self.machine, self.flags = fields[0], fields[1], fields[6]
        self.header_fields: tuple[int, ...] = fields
        if self.type != L.ET_REL:
            kind = {2: "an executable", 3: "a shared library or PIE", 4: "a core dump"}.get(self.type, "an ELF file")
            raise self.error(f"is {kind}, not a relocatable object", "give the .o file that the compiler wrote")
        self.sections = self._read_sections()
        self.symtab = self._find_symtab()
        self._entries_at: dict[int, dict[int, list[int]]] = {}  # relocation section -> offset -> entries

    def error(self, what: str, cure: str = "compile it again") -> ElfError:
        """Return an error about this object, for the caller to raise."""
        return ElfError(self.path, what, cure)

    # -- headers -----------------------------------------------------------------------------------------------------

    def _identify(self) -> L.Layout:
        data = self.data
        if len(data) < 20 or data[:4] != b"\x7fELF":
            raise not_elf(self.path, bytes(data[:16]))
        found = L.LAYOUTS.get((data[4] == 2, data[5] == 1)) if data[4] in (1, 2) and data[5] in (1, 2) else None
        if found is None or data[6] != 1:
            raise self.error(f"ELF class {data[4]}, byte order {data[5]}, version {data[6]} are not valid")
        return found

    def _read_sections(self) -> list[Section]:
        shoff, shentsize, shnum, self.shstrndx = (self.header_fields[i] for i in (5, 10, 11, 12))
        unpack = self.layout.section
        if shoff == 0:
            raise self.error("has no section headers")
        if shentsize != unpack.size:
            raise self.error(f"section headers of {shentsize} bytes, where {unpack.size} are expected")
        self._within(shoff, unpack.size, "the section headers")
        first = Section(*unpack.unpack_from(self.data, shoff))
        if shnum == 0:  # 65,280 sections or more: the count is in the first header's size (gABI, e_shnum)
            shnum = first.size
        if self.shstrndx == L.SHN_XINDEX:
            self.shstrndx = first.link
        self._within(shoff, shnum * unpack.size, "the section headers")
        if not 0 < self.shstrndx < shnum:
            raise self.error(f"section name table index {self.shstrndx} of {shnum} sections")
        headers = memoryview(self.data)[shoff : shoff + shnum * unpack.size]
        sections = [Section(*fields) for fields in unpack.iter_unpack(headers)]
        headers.release()
        size = len(self.data)
        for index, section in enumerate(sections):
            if section.type not in {L.SHT_NOBITS, L.SHT_NULL} and section.offset + section.size > size:
                raise self.error(
                    f"section {index} at offset {section.offset:#x} with {section.size:#x} bytes "
                    f"ends after the file's {size:#x} bytes"
                )
        if sections[self.shstrndx].type != L.SHT_STRTAB:
            raise self.error(f"section {self.shstrndx} should hold the section names, and is no string table")
        return sections

    def _find_symtab(self) -> int:
        for index, section in enumerate(self.sections):
            if section.type == L.SHT_SYMTAB:
                if section.entsize != self.layout.symbol.size or section.size % section.entsize:
                    raise self.error(f"symbol table (section {index}) has entries of {section.entsize} bytes")
                tables = range(1, len(self.sections))
                has_strings = section.link in tables and self.sections[section.link].type == L.SHT_STRTAB
                if not has_strings or section.info > section.size // section.entsize:
                    raise self.error(f"symbol table (section {index}) has a bad link or info field")
                return index
        return 0

    def _within(self, offset: int, size: int, what: str) -> None:
        if offset + size > len(self.data):
            raise self.error(
                f"{what} at offset {offset:#x} with {size:#x} bytes end after the file's {len(self.data):#x} bytes"
            )

    # -- sections ----------------------------------------------------------------------------------------------------

    def content(self, index: int) -> memoryview:
        """Return the bytes of section `index`, without copying. NOBITS sections have none."""
        section = self.sections[index]
        if section.type == L.SHT_NOBITS:
            return memoryview(b"")
        return memoryview(self.data)[section.offset : section.offset + section.size]

    def string(self, table: int, offset: int) -> str:
        """Return the NUL-terminated string at `offset` of string table section `table`."""
        section = self.sections[table]
        start = section.offset + offset
        end = self.data.find(b"\0", start, section.offset + section.size)
        if offset >= section.size or end < 0:
            raise self.error(f"string at {offset:#x} of section {table} runs out of its table")
        return str(bytes(self.data[start:end]), "utf-8", "surrogateescape")

    def section_name(self, index: int) -> str:
        """Return the name of section `index`."""
        return self.string(self.shstrndx, self.sections[index].name)

    def sections_named(self, name: str) -> list[int]:
        """Return the indices of all sections called `name`, in file order."""
        table = self.sections[self.shstrndx]
        offsets = set(self._string_offsets(table, name.encode() + b"\0"))
        return [i for i, s in enumerate(self.sections) if s.name in offsets] if offsets else []

    def _string_offsets(self, table: Section, text: bytes) -> Iterator[int]:
        """Yield every offset in a string table where `text` stands, also as the tail of a longer string."""
        position = self.data.find(text, table.offset, table.offset + table.size)
        while position >= 0:
            yield position - table.offset
            position = self.data.find(text, position + 1, table.offset + table.size)

    def groups(self) -> dict[int, int]:
        """Return section index -> index of the SHT_GROUP section it is a member of."""
        members: dict[int, int] = {}
        for index, section in enumerate(self.sections):
            if section.type == L.SHT_GROUP:
                for member in self._words(self.content(index))[1:]:
                    members[member] = index
        return members

    def _words(self, content: memoryview) -> array[int]:
        """Return the content as 32-bit words in the machine's own order; a ragged end is cut off."""
        words = array("I")
        words.frombytes(content[: len(content) & ~3])
        if self.layout.little != _NATIVE_LITTLE:
            words.byteswap()
        return words

    # -- symbols -----------------------------------------------------------------------------------------------------

    @property
    def symbol_count(self) -> int:
        """How many entries the symbol table has, the null entry included."""
        if not self.symtab:
            return 0
        return self.sections[self.symtab].size // self.layout.symbol.size

    def find_symbols(
        self, prefixes: Iterable[bytes] = (), names: Collection[bytes] = (), ending: bytes = b""
    ) -> dict[int, str]:
        """Return symbol index -> name of the symbols that start with a prefix, or are one of `names`.

        All of `names` must end with `ending`. Assemblers share the tails of names, so a name may begin in the middle
        of another string: candidates are found in the string table first, wherever they stand, and then looked up in
        the column of name offsets.
        """
        if not self.symtab:
            return {}
        symtab = self.sections[self.symtab]
        strings = self.sections[symtab.link]
        starts = {offset for prefix in prefixes for offset in self._string_offsets(strings, prefix)}
        if names:
            starts.update(self._starts_of(strings, names, ending))
        if not starts:
            return {}
        column = self._words(self.content(self.symtab))[:: self.layout.symbol.size // 4]
        return {i: self.string(symtab.link, name) for i, name in enumerate(column) if name in starts}

    def _starts_of(self, strings: Section, names: Collection[bytes], ending: bytes) -> Iterator[int]:
        """Yield where in a string table one of `names` stands, found by their common `ending`."""
        lengths = {len(name) for name in names}
        for offset in self._string_offsets(strings, ending + b"\0"):
            end = strings.offset + offset + len(ending)
            for length in lengths:
                if end - length >= strings.offset and self.data[end - length : end] in names:
                    yield end - length - strings.offset

    def symbol(self, index: int) -> Symbol:
        """Return symbol `index`, with an extended section index resolved."""
        if index >= self.symbol_count:
            raise self.error(f"symbol {index} of a table with {self.symbol_count}")
        offset = self.sections[self.symtab].offset + index * self.layout.symbol.size
        fields = self.layout.symbol.unpack_from(self.data, offset)
        if self.layout.is64:
            symbol = Symbol(*fields)
        else:
            name, value, size, info, other, section = fields
            symbol = Symbol(name, info, other, section, value, size)
        if symbol.section == L.SHN_XINDEX:
            symbol = symbol._replace(section=self._extended_index(index))
        return symbol

    def first_strong_definition(self, grouped: Container[int]) -> int:
        """Return the first symbol that no other object of a link may define too, or 0 if there is none.

        That is a global, not weak definition in a section that is in none of the `grouped` sections.
        """
        for index in range(self.sections[self.symtab].info, self.symbol_count):
            symbol = self.symbol(index)
            # Of 65,280 sections some have the numbers of SHN_ABS and SHN_COMMON; passing over them does no harm.
            special = symbol.section in {L.SHN_ABS, L.SHN_COMMON} or not 0 < symbol.section < len(self.sections)
            if symbol.binding == L.STB_GLOBAL and not special and symbol.section not in grouped:
                return index
        return 0

    def always_kept(self, grouped: Container[int]) -> set[int]:
        """Return the sections that run at start and end, and all that these refer to by local symbols, and so on.

        Linkers keep these, `--gc-sections` or not. What is in one of the `grouped` sections may be another object's.
        """
        relocations: dict[int, list[int]] = {}
        for index in self.relocation_sections():
            relocations.setdefault(self.sections[index].info, []).append(index)
        pending = [i for i, s in enumerate(self.sections) if s.type in L.RUN_BY_LOADER or self._is_run_by_name(i)]
        kept: set[int] = set()
        while pending:
            section = pending.pop()
            if section in kept or section in grouped:
                continue
            kept.add(section)
            for index in relocations.get(section, ()):
                for number in set(self.relocation_symbols(index)):
                    symbol = self.symbol(number)
                    if symbol.binding == L.STB_LOCAL and 0 < symbol.section < len(self.sections):
                        pending.append(symbol.section)
        return kept

    def _is_run_by_name(self, section: int) -> bool:
        name = self.section_name(section)
        return name in {".init", ".fini"} or name.startswith((".ctors", ".dtors", ".init_array", ".fini_array"))

    def symbol_name(self, index: int) -> str:
        """Return the name of symbol `index`."""
        return self.string(self.sections[self.symtab].link, self.symbol(index).name)

    def extended_table(self) -> int:
        """Return the index of the SHT_SYMTAB_SHNDX section that belongs to the symbol table, or 0."""
        for index, section in enumerate(self.sections):
            if section.type == L.SHT_SYMTAB_SHNDX and section.link == self.symtab:
                return index
        return 0

    def _extended_index(self, index: int) -> int:
        table = self.extended_table()
        if not table or self.sections[table].size < 4 * (index + 1):
            raise self.error(f"symbol {index} needs an extended section index, and there is none")
        return int(self.layout.u32.unpack_from(self.data, self.sections[table].offset + 4 * index)[0])

    # -- relocations -------------------------------------------------------------------------------------------------

    def relocation_sections(self) -> list[int]:
        """Return the indices of the SHT_RELA and SHT_REL sections that use the symbol table."""
        found = []
        for index, section in enumerate(self.sections):
            if section.type in {L.SHT_RELA, L.SHT_REL} and section.link == self.symtab and section.size:
                entry = self.layout.rela if section.type == L.SHT_RELA else self.layout.rel
                if section.entsize != entry.size or section.size % entry.size:
                    raise self.error(f"relocation section {index} has entries of {section.entsize} bytes")
                if section.info >= len(self.sections):
                    raise self.error(f"relocation section {index} applies to section {section.info}, which isn't there")
                found.append(index)
        return found

    def relocation_symbols(self, index: int) -> array[int] | list[int]:
        """Return the column of symbol indices of relocation section `index`."""
        section = self.sections[index]
        words = self._words(self.content(index))
        per_entry = section.entsize // 4
        if not self.layout.is64:
            return [info >> 8 for info in words[1::per_entry]]
        # r_info is symbol << 32 | type; MIPS stores the symbol first in either byte order (n64 ABI, `r_sym`).
        high = 3 if self.layout.little and self.machine != L.EM_MIPS else 2
        return words[high::per_entry]

    def relocation(self, index: int, entry: int) -> Reference:
        """Return entry number `entry` of relocation section `index`."""
        section = self.sections[index]
        rela = section.type == L.SHT_RELA
        layout = self.layout.rela if rela else self.layout.rel
        fields = layout.unpack_from(self.data, section.offset + entry * layout.size)
        info = fields[1]
        if not self.layout.is64:
            symbol, type_ = info >> 8, info & 0xFF
        elif self.machine == L.EM_MIPS:
            symbol, type_ = _split_mips64(info, self.layout.little)
        else:
            symbol, type_ = info >> 32, info & 0xFFFFFFFF
        return Reference(index, entry, fields[0], type_, symbol, fields[2] if rela else None)

    def relocations_at(self, index: int, offset: int) -> list[Reference]:
        """Return the entries of relocation section `index` that apply at `offset` (more than one on RISC-V)."""
        if index not in self._entries_at:
            entries_at = self._entries_at[index] = {}
            count = self.sections[index].size // self.sections[index].entsize
            for entry in range(count):
                entries_at.setdefault(self.relocation(index, entry).offset, []).append(entry)
        return [self.relocation(index, entry) for entry in self._entries_at[index].get(offset, ())]

    def references(self, wanted: Container[int]) -> list[Reference]:
        """Return every relocation against one of the `wanted` symbols, in file order."""
        found = []
        for index in self.relocation_sections():
            column = self.relocation_symbols(index)
            for entry, symbol in enumerate(column):
                if symbol in wanted:
                    found.append(self.relocation(index, entry))
        return found


def _split_mips64(info: int, little: bool) -> tuple[int, int]:
    """MIPS n64: 32-bit symbol, then four bytes ssym, type3, type2, type, in this order whatever the byte order."""
    if little:
        return info & 0xFFFFFFFF, int.from_bytes((info >> 32).to_bytes(4, "little"), "big")
    return info >> 32, info & 0xFFFFFFFF


# How files of LLVM's intermediate code begin, bare or wrapped.
BITCODE = (b"BC\xc0\xde", b"\xde\xc0\x17\x0b")
_FOREIGN = (
    (b"!<arch>\n", "is an archive", "instrument the objects before they are put into it"),
    (b"!<thin>\n", "is a thin archive", "instrument the objects it names"),
    (BITCODE[0], "is LLVM bitcode", "compile this file with -fno-lto"),
    (BITCODE[1], "is wrapped LLVM bitcode", "compile this file with -fno-lto"),
    (b"MZ", "is a Windows (PE) file", "only ELF objects can carry these probes"),
    (b"\xcf\xfa\xed\xfe", "is a Mach-O file", "only ELF objects can carry these probes"),
    (b"\xca\xfe\xba\xbe", "is a Mach-O universal file", "only ELF objects can carry these probes"),
    (b"\x64\x86", "is a Windows (COFF) object", "only ELF objects can carry these probes"),
    (b"#!", "is a script", "give the .o file that the compiler wrote"),
)


def not_elf(path: str, start: bytes) -> ElfError:
    """Return the error for a file that is no ELF object, named for what its first bytes say it is."""
    if not start:
        return ElfError(path, "is empty", "compile it again")
    for magic, what, cure in _FOREIGN:
        if start.startswith(magic):
            return ElfError(path, what, cure)
    if start.startswith(b"\x7fELF"):
        return ElfError(path, "the file ends inside the ELF header", "compile it again")
    return ElfError(path, "is not an ELF object", "give the .o file that the compiler wrote")
