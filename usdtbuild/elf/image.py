"""Finished binaries, and objects as a linker sees them: headers, contents, addresses, symbols, relocations.

pyelftools reads the headers; contents are slices of the file, and the two tables that can hold millions of records are
read as columns (`elf.symbols`) and unpacked with `struct` (relocations). It shares no code with `elf.read`, which
`instrument` trusts, so that what one of them gets wrong the other shows.

Nothing here knows probes. Every number of the file is checked before it is used: a damaged file raises InputError and
nothing else, and costs no more memory than it has bytes.
"""

from __future__ import annotations

from bisect import bisect_right
from functools import cached_property
from io import BytesIO
from typing import TYPE_CHECKING, Any, NamedTuple, Union

from elftools.common.utils import struct_parse
from elftools.elf.elffile import ELFFile

from ..errors import InputError
from . import layout as L
from .symbols import FunctionIndex, Strings, Symbol, SymbolTable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from mmap import mmap

    Data = Union[bytes, mmap]

MAGIC = b"\x7fELF"
ET_EXEC, ET_DYN, ET_CORE = 2, 3, 4
PF_X, PF_W, PF_R = 1, 2, 4
# e_machine -> the name a user knows
MACHINES = {
    2: "sparc", 3: "i386", 8: "mips", 18: "sparc", 20: "ppc", 21: "ppc64", 22: "s390", 40: "arm", 43: "sparc64",
    62: "x86-64", 183: "aarch64", 243: "riscv", 258: "loongarch",
}  # fmt: skip
_DT_SONAME, _DT_FLAGS_1, _DF_1_PIE = 14, 0x6FFFFFFB, 0x08000000
_EM_MIPS, _EM_PPC64, _EM_ARM = 8, 21, 40
_R_PPC64_ADDR64 = 38
_CUT_SHORT = "the file was cut short or damaged; build or copy it again"


class Section(NamedTuple):
    """One section header. `type` is pyelftools' name for it (`SHT_NOTE`), or a number where it has none."""

    number: int
    name: str
    type: str | int
    flags: int
    address: int
    offset: int
    size: int
    link: int
    info: int
    align: int
    entry_size: int

    @property
    def loaded(self) -> bool:
        """Whether the section is part of the running program."""
        return bool(self.flags & L.SHF_ALLOC)

    @property
    def executable(self) -> bool:
        """Whether the section holds code."""
        return bool(self.flags & L.SHF_EXECINSTR)


class Segment(NamedTuple):
    """One program header; `flags` are PF_X, PF_W, PF_R."""

    type: str | int
    flags: int
    offset: int
    address: int
    file_size: int
    memory_size: int
    align: int


class Relocation(NamedTuple):
    """One relocation of an object: offset in its section, type, symbol number, addend (None where it is in place)."""

    offset: int
    type: int
    symbol: int
    addend: int | None


class Function(NamedTuple):
    """The function that contains an address, and how far into it the address is."""

    name: str
    offset: int


class Image:
    """One ELF file in memory. `path` is what messages call it."""

    def __init__(self, data: Data, path: str) -> None:
        """Read the headers of `data`. Raises InputError."""
        self.data, self.path = data, path
        self._elf = self._open()
        header: Any = self._guard("the ELF header", lambda: self._elf.header)
        self.is64, self.little = self._elf.elfclass == 64, bool(self._elf.little_endian)
        self.layout = L.LAYOUTS[self.is64, self.little]
        self.type, self.machine, self.flags = self._raw_header()
        self._header = header
        if self.type == ET_CORE:
            raise self.error("is a core dump, not a binary", "give the program that dumped it")
        self.sections: list[Section] = self._guard("the section headers", self._read_sections)
        self.segments: list[Segment] = self._guard("the program headers", self._read_segments)
        self._loaded_tables: dict[str, SymbolTable] = {}

    # -- what it is --------------------------------------------------------------------------------------------------

    def error(self, what: str, cure: str = _CUT_SHORT) -> InputError:
        """Return an error about this file, for the caller to raise."""
        return InputError(self.path, what, cure)

    @property
    def address_size(self) -> int:
        """Bytes in an address, 4 or 8."""
        return 8 if self.is64 else 4

    @property
    def is_object(self) -> bool:
        """Whether this is a relocatable object, whose addresses are section and offset."""
        return self.type == L.ET_REL

    @property
    def machine_name(self) -> str:
        """The machine's usual name, or `machine N`."""
        return MACHINES.get(self.machine, f"machine {self.machine}")

    @cached_property
    def kind(self) -> str:
        """What a user calls such a file: `object`, `executable`, `PIE executable`, `shared library`, ..."""
        if self.is_debug_file:
            return "debug file"
        if self.type == L.ET_REL:
            return "object"
        if self.type == ET_EXEC:
            return "executable"
        if self.type != ET_DYN:
            return f"ELF file of type {self.type}"
        dynamic = self.dynamic
        interpreted = any(segment.type == "PT_INTERP" for segment in self.segments)
        is_pie = dynamic.get(_DT_FLAGS_1, 0) & _DF_1_PIE or (interpreted and _DT_SONAME not in dynamic)
        return "PIE executable" if is_pie else "shared library"

    @cached_property
    def is_debug_file(self) -> bool:
        """Whether the code was left out of the file (`objcopy --only-keep-debug`)."""
        code = [section for section in self.sections if section.executable and section.size]
        return bool(code) and all(section.type == "SHT_NOBITS" for section in code)

    @cached_property
    def dynamic(self) -> dict[int, int]:
        """The dynamic section's tags and values; of a repeated tag the last."""
        found: dict[int, int] = {}
        for segment in self.segments:
            if segment.type == "PT_DYNAMIC":
                raw = bytes(self.data[segment.offset : segment.offset + segment.file_size])
                word = self.layout.word
                words = [value for (value,) in word.iter_unpack(raw[: len(raw) // word.size * word.size])]
                for tag, value in zip(words[::2], words[1::2]):
                    if tag == 0:
                        break
                    found[tag] = value
        return found

    @cached_property
    def build_id(self) -> bytes:
        """The GNU build-id; empty where there is none."""
        for section in self.sections:
            if section.type == "SHT_NOTE" and section.name == ".note.gnu.build-id":
                raw = bytes(self.content(section))
                if len(raw) >= 16:
                    name_size, size, _ = (self.layout.u32.unpack_from(raw, at)[0] for at in (0, 4, 8))
                    start = 12 + (name_size + 3 & ~3)
                    return raw[start : start + size]
        return b""

    # -- headers -----------------------------------------------------------------------------------------------------

    def _guard(self, what: str, read: Any) -> Any:
        """Run a reader of pyelftools; whatever it raises on damaged input becomes an InputError."""
        try:
            return read()
        except InputError:
            raise
        except Exception as error:
            detail = str(error) or type(error).__name__
            raise self.error(f"{what} can't be read ({detail.splitlines()[0][:80]})") from None

    def _open(self) -> Any:
        start = bytes(self.data[:16])
        if start[:4] != MAGIC:
            raise not_elf(self.path, start)
        if len(start) < 16 or start[4] not in (1, 2) or start[5] not in (1, 2):
            raise self.error("the ELF header is damaged")
        if len(self.data) < (64 if start[4] == 2 else 52):
            raise self.error("the file ends inside the ELF header")
        stream: Any = BytesIO(self.data) if isinstance(self.data, bytes) else self.data
        return self._guard("the ELF header", lambda: ELFFile(stream))

    def _raw_header(self) -> tuple[int, int, int]:
        """Return e_type, e_machine and e_flags as numbers: pyelftools has names for some of them only."""
        fields = self.layout.header.unpack_from(self.data, 16)
        return fields[0], fields[1], fields[6]

    def _read_sections(self) -> list[Section]:
        start, entry_size, count = (self._header[name] for name in ("e_shoff", "e_shentsize", "e_shnum"))
        names_at = self._header["e_shstrndx"]
        if start == 0:
            return []
        size = self.layout.section.size
        if entry_size != size:
            raise self.error(f"section headers of {entry_size} bytes, where {size} are expected")
        self._within(start, size, "the section headers")
        first = self._section_header(start)
        if count == 0:  # 65,280 sections or more: the count stands in the first header (gABI, e_shnum)
            count = first["sh_size"]
        if names_at == L.SHN_XINDEX:
            names_at = first["sh_link"]
        self._within(start, count * size, "the section headers")
        headers = [self._section_header(start + index * size) for index in range(count)]
        names = self._name_table(headers, names_at)
        return [_section(index, header, names) for index, header in enumerate(headers)]

    def _section_header(self, at: int) -> Any:
        return struct_parse(self._elf.structs.Elf_Shdr, self._elf.stream, at)

    def _name_table(self, headers: list[Any], index: int) -> bytes:
        if not 0 < index < len(headers) or headers[index]["sh_type"] == "SHT_NOBITS":
            return b""
        start, size = headers[index]["sh_offset"], headers[index]["sh_size"]
        self._within(start, size, "the section names")
        return bytes(self.data[start : start + size])

    def _read_segments(self) -> list[Segment]:
        start, entry_size, count = (self._header[name] for name in ("e_phoff", "e_phentsize", "e_phnum"))
        if start == 0 or count == 0:
            return []
        if count == 0xFFFF and self._header["e_shoff"]:  # PN_XNUM: the count stands in the first section header
            count = self._section_header(self._header["e_shoff"])["sh_info"]
        if entry_size != (56 if self.is64 else 32):
            raise self.error(f"program headers of {entry_size} bytes, where {56 if self.is64 else 32} are expected")
        self._within(start, count * entry_size, "the program headers")
        parse = self._elf.structs.Elf_Phdr
        headers = (struct_parse(parse, self._elf.stream, start + index * entry_size) for index in range(count))
        names = ("p_type", "p_flags", "p_offset", "p_vaddr", "p_filesz", "p_memsz", "p_align")
        return [Segment(*(header[name] for name in names)) for header in headers]

    def _within(self, offset: int, size: int, what: str) -> None:
        if offset + size > len(self.data):
            raise self.error(
                f"{what} at offset {offset:#x} with {size:#x} bytes end after the file's {len(self.data):#x} bytes"
            )

    # -- contents and addresses --------------------------------------------------------------------------------------

    def sections_named(self, name: str) -> list[Section]:
        """Return the sections called `name`, in file order."""
        return [section for section in self.sections if section.name == name]

    def content(self, section: Section) -> memoryview:
        """Return the bytes of a section, without copying; none for NOBITS. Raises InputError."""
        if section.type in {"SHT_NOBITS", "SHT_NULL"}:
            return memoryview(b"")
        self._within(section.offset, section.size, f"section {section.name or section.number}")
        return memoryview(self.data)[section.offset : section.offset + section.size]

    @cached_property
    def _by_address(self) -> tuple[list[int], list[Section]]:
        # SHF_TLS sections are templates: they occupy no addresses of their own.
        loaded = [section for section in self.sections if section.loaded and section.size and not section.flags & 0x400]
        loaded.sort(key=lambda section: section.address)
        return [section.address for section in loaded], loaded

    def section_at(self, address: int) -> Section | None:
        """Return the loaded section that holds a run-time address."""
        starts, sections = self._by_address
        at = bisect_right(starts, address) - 1
        if at >= 0 and address < sections[at].address + sections[at].size:
            return sections[at]
        return None

    @cached_property
    def loads(self) -> list[Segment]:
        """The PT_LOAD segments, in file order."""
        return [segment for segment in self.segments if segment.type == "PT_LOAD"]

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
    def _tables(self) -> dict[str | int, Section]:
        """The symbol tables that can be read, by type; the first of each."""
        found: dict[str | int, Section] = {}
        for section in self.sections:
            strings = self.sections[section.link] if section.link < len(self.sections) else section
            if section.type in {"SHT_SYMTAB", "SHT_DYNSYM"} and strings.type == "SHT_STRTAB":
                found.setdefault(section.type, section)
        return found

    def has_symbols(self, kind: str) -> bool:
        """Whether there is a table of type SHT_SYMTAB or SHT_DYNSYM."""
        return kind in self._tables

    def _strings(self, kind: str) -> Strings:
        strings = self.sections[self._tables[kind].link]
        self._within(strings.offset, strings.size, f"section {strings.name or strings.number}")
        return Strings(self.data, strings.offset, strings.offset + strings.size)

    def _columns(self, kind: str) -> SymbolTable:
        if kind not in self._loaded_tables:
            table = self._tables[kind]
            extended = None
            for section in self.sections:
                if section.type == "SHT_SYMTAB_SHNDX" and section.link == table.number:
                    extended = self.content(section)
            self._loaded_tables[kind] = SymbolTable(self.content(table), self.layout, self._strings(kind), extended)
        return self._loaded_tables[kind]

    def symbols_with(self, kind: str, text: bytes) -> Iterator[tuple[int, Symbol]]:
        """Yield (number, symbol) where the name contains `text`; cheap where no name of the table does."""
        if kind in self._tables and self._strings(kind).holds(text):
            yield from self._columns(kind).containing(text)

    def symbol(self, number: int) -> Symbol | None:
        """Return symbol `number` of SHT_SYMTAB, or None where there is no such symbol."""
        if "SHT_SYMTAB" not in self._tables:
            return None
        table = self._columns("SHT_SYMTAB")
        return table.symbol(number) if 0 <= number < table.count else None

    def function_at(self, address: int, section: int = 0) -> Function | None:
        """Return the function around a run-time address; in an object, around an offset of section `section`."""
        found = self._functions.find(address, section) if self._functions else None
        return Function(*found) if found else None

    @cached_property
    def _functions(self) -> FunctionIndex | None:
        """The functions, of stripped files the exported ones."""
        for kind in ("SHT_SYMTAB", "SHT_DYNSYM"):
            if kind in self._tables:
                moved = self._moved_by_descriptors() if self.is_object else {}
                index = FunctionIndex(self._columns(kind), self.is_object, self._code_address(), moved)
                if index:
                    return index
        return None

    def _code_address(self) -> Callable[[int], int] | None:
        """Return what turns a function symbol's value into its code's address, where they differ."""
        if self.machine == _EM_ARM:
            return lambda value: value & ~1  # bit 0 says Thumb
        descriptors = self._descriptors()
        return (lambda value: descriptors.get(value, value)) if descriptors else None

    def _descriptors(self) -> dict[int, int]:
        """Return, for ppc64 ELFv1, the code's address behind each function descriptor in `.opd`."""
        found: dict[int, int] = {}
        if self.machine == _EM_PPC64 and not self.is_object:
            for section in self.sections_named(".opd"):
                content = self.content(section)
                words = self.layout.word.iter_unpack(content[: len(content) & ~7])
                for index, (value,) in enumerate(words):
                    found[section.address + 8 * index] = value
        return found

    def _moved_by_descriptors(self) -> dict[int, int]:
        """Return the same for an object, where relocations say it; both places are `section << 64 | offset`."""
        found: dict[int, int] = {}
        if self.machine == _EM_PPC64:
            for section in self.sections_named(".opd"):
                for relocation in self.relocations(section):
                    symbol = self.symbol(relocation.symbol) if relocation.type == _R_PPC64_ADDR64 else None
                    if symbol is not None:
                        place = symbol.section << 64 | symbol.value + (relocation.addend or 0)
                        found[section.number << 64 | relocation.offset] = place
        return found

    # -- relocations -------------------------------------------------------------------------------------------------

    def relocations(self, section: Section) -> list[Relocation]:
        """Return the relocations that apply to a section of an object."""
        found: list[Relocation] = []
        for table in self._relocation_tables.get(section.number, ()):
            layout = self.layout.rela if table.type == "SHT_RELA" else self.layout.rel
            content = self.content(table)
            for fields in layout.iter_unpack(content[: len(content) // layout.size * layout.size]):
                type_, symbol = self._split(fields[1])
                found.append(Relocation(fields[0], type_, symbol, fields[2] if len(fields) > 2 else None))
        return found

    @cached_property
    def _relocation_tables(self) -> dict[int, list[Section]]:
        found: dict[int, list[Section]] = {}
        for table in self.sections:
            if table.type in {"SHT_RELA", "SHT_REL"}:
                found.setdefault(table.info, []).append(table)
        return found

    def _split(self, info: int) -> tuple[int, int]:
        if not self.is64:
            return info & 0xFF, info >> 8
        if self.machine == _EM_MIPS and self.little:  # n64: the symbol's four bytes come first in either byte order
            return info >> 56, info & 0xFFFFFFFF
        return info & 0xFFFFFFFF, info >> 32


def _section(number: int, header: Any, names: bytes) -> Section:
    start = header["sh_name"]
    end = names.find(b"\0", start)
    name = names[start:end].decode("utf-8", "backslashreplace") if 0 <= start < end else ""
    fields = ("type", "flags", "addr", "offset", "size", "link", "info", "addralign", "entsize")
    return Section(number, name, *(header["sh_" + field] for field in fields))


_KNOWN = (
    (b"!<arch>\n", "is an archive"),
    (b"BC\xc0\xde", "is LLVM bitcode, which holds no machine code yet"),
    (b"\xde\xc0\x17\x0b", "is wrapped LLVM bitcode, which holds no machine code yet"),
    (b"MZ", "is a Windows (PE) file"),
    (b"\xcf\xfa\xed\xfe", "is a Mach-O file"),
    (b"\xca\xfe\xba\xbe", "is a Mach-O universal file"),
    (b"#!", "is a script"),
)


def not_elf(path: str, start: bytes) -> InputError:
    """Return the error for a file that is no ELF file, named for what its first bytes say it is."""
    if not start:
        return InputError(path, "is empty")
    for magic, what in _KNOWN:
        if start.startswith(magic):
            cure = "compile it with -fno-lto" if "bitcode" in what else ""
            if what == "is a script":
                cure = "give the binary it runs"
            return InputError(path, what, cure)
    return InputError(path, "is not an ELF file")
