"""Reading the tables of patchable entries: the compilers' absolute one, and our PC-relative one, relocated or not.

gcc and clang write an address a function into `__patchable_function_entries`. In an executable at a fixed address the
section's bytes are those addresses. In a PIE or library they are what the dynamic linker makes of them: the addend of
an R_*_RELATIVE relocation (the bytes may be zero), or the bytes themselves where relocations have no addend (REL and
RELR). In an object they are what the linker will make of them. `.usdtbuild.functions` holds 32-bit distances
from each entry to its function, which need none of that after the link.

Every way in which a table is not what it should be ends in a problem with a code, never in a guess.
"""

from __future__ import annotations

from struct import error as struct_error

from ..elf import layout as elf
from ..elf.relocations import relr, words
from ..elf.sections import ImageSection
from ..elf.space import AddressSpace
from ..machines import facts_of
from ..machines.facts import Relocations
from ..record import NamedTuple

STANDARD = "__patchable_function_entries"
RELATIVE = ".usdtbuild.functions"


class TableEntry(NamedTuple):
    """One entry: the address it names, and what is wrong with the entry itself ("" if nothing)."""

    address: int
    table: int
    number: int
    problem: str = ""
    detail: str = ""


class Table(NamedTuple):
    """One section of entries. `relocations` counts the dynamic relocations that it costs at start-up."""

    name: str
    address: int
    entries: int
    relative: bool
    relocations: int
    problem: str = ""
    detail: str = ""


def read_tables(space: AddressSpace) -> tuple[list[Table], list[TableEntry]]:
    """Return every table of `space` and all their entries, in file order. Raises InputError for a damaged file."""
    tables: list[Table] = []
    entries: list[TableEntry] = []
    dynamic: _Dynamic | None = None
    applied = _relocation_sections(space) if space.relocatable else {}
    for name in (STANDARD, RELATIVE):
        for section in space.named(name):
            relative = name == RELATIVE
            size = 4 if relative else space.layout.address_size
            problem, detail = _shape(space, section, size)
            try:
                if space.relocatable:
                    values = _through_relocations(space, section, applied.get(section.number, []), size, relative)
                    relocations = 0
                else:
                    dynamic = dynamic or _Dynamic(space)
                    values, relocations = _finished(space, section, size, relative, dynamic)
            except (struct_error, IndexError, OverflowError):
                raise space.error(f"the relocations of {name} are damaged") from None
            number = len(tables)
            tables.append(Table(name, section.address, len(values), relative, relocations, problem, detail))
            entries += [
                TableEntry(address, number, at, wrong, why)
                for at, (address, wrong, why) in enumerate(values)
            ]  # fmt: skip
    return tables, entries


def _shape(space: AddressSpace, section: ImageSection, size: int) -> tuple[str, str]:
    """Say what is wrong with the section as a whole, as a reason code and a sentence."""
    if section.type == elf.SHT_NOBITS:
        return "table-truncated", "the table's bytes are not in this file"
    if section.size % size:
        return "table-truncated", f"the table has {section.size} bytes, which is no multiple of {size}"
    if not section.flags & elf.SHF_ALLOC:
        return "table-not-loaded", "the table is not loaded with the program (no SHF_ALLOC)"
    if section.address % size or (space.relocatable and section.align % size):
        where = f"is aligned to {section.align}" if space.relocatable else f"lies at {section.address:#x}"
        return "table-misaligned", f"the table {where}, and its entries have {size} bytes"
    return "", ""


_Value = tuple[int, str, str]


def _types(space: AddressSpace) -> Relocations:
    known = facts_of(space.machine)
    return known.relocations if known else Relocations()


def _null(address: int) -> _Value:
    if address:
        return address, "", ""
    return (
        0,
        "null-entry",
        "the entry is null: the linker dropped the function, or the copy of it that the entry was for",
    )


# -- finished files --------------------------------------------------------------------------------------------------


class _Dynamic:
    """The dynamic relocations of a finished file, by the address they apply to; only those inside tables are kept."""

    def __init__(self, space: AddressSpace) -> None:
        self.space = space
        self.values: dict[int, tuple[int, str] | None] = {}  # None: the addend lies in the relocated bytes
        spans = [(s.address, s.address + s.size) for s in space.sections if s.name == STANDARD]
        for section in space.sections:
            if not section.flags & elf.SHF_ALLOC or not spans:
                continue
            if section.type in (elf.SHT_RELA, elf.SHT_REL):
                self._read(section, min(spans)[0], max(end for _, end in spans))
            elif section.type in (elf.SHT_RELR, elf.SHT_ANDROID_RELR):
                low, high = min(spans)[0], max(end for _, end in spans)
                self.values.update(dict.fromkeys(relr(space.content(section), space.layout, low, high)))

    def _read(self, section: ImageSection, low: int, high: int) -> None:
        space = self.space
        size = space.layout.address_size
        rela = section.type == elf.SHT_RELA
        step = 3 if rela else 2
        column = words(space.content(section), size, space.layout)
        shift, mask = (32, 0xFFFFFFFF) if size == 8 else (8, 0xFF)
        types = _types(space)
        for at, offset in enumerate(column[::step]):
            if not low <= offset < high:
                continue
            info = column[at * step + 1]
            addend = column[at * step + 2] if rela else None
            kind = info & mask
            if kind == types.relative:
                self.values[offset] = None if addend is None else (addend, "")
            elif kind in (types.absolute, types.address(is64=False)) and info >> shift:
                symbol = self._symbol(section, info >> shift)
                add = addend if addend is not None else words(space.read(offset, size), size, space.layout)[0]
                self.values[offset] = ((symbol + add) & (1 << 8 * size) - 1, "" if symbol else "unresolved")
            else:
                self.values[offset] = (0, "unresolved")

    def _symbol(self, section: ImageSection, number: int) -> int:
        """Return the value of dynamic symbol `number`; 0 when another file defines it."""
        table = self.space.sections[section.link] if section.link < len(self.space.sections) else None
        if table is None or table.type != elf.SHT_DYNSYM:
            return 0
        return self.space.symbols(section.link).values[number]


def _finished(
    space: AddressSpace, section: ImageSection, size: int, relative: bool, dynamic: _Dynamic
) -> tuple[list[_Value], int]:
    """Return the addresses of a linked file's table, and how many dynamic relocations make them."""
    raw = words(space.content(section), size, space.layout)
    start = section.address
    if relative:
        signed = (word - (word >> 31 << 32) for word in raw)
        return [_null(start + 4 * at + distance if distance else 0) for at, distance in enumerate(signed)], 0
    movable = space.type == elf.ET_DYN
    values: list[_Value] = []
    count = 0
    known = dynamic.values
    for at, word in enumerate(raw):
        place = start + at * size
        if place not in known:
            if movable and word:
                what = "no dynamic relocation makes this entry an address of the loaded program"
                values.append((word, "entry-not-relocated", what))
            else:
                values.append(_null(word))
            continue
        count += 1
        found = known[place]
        if found is None:
            values.append(_null(word))
        elif found[1]:
            values.append((found[0], found[1], "another file's symbol, or an unknown relocation, makes this entry"))
        else:
            values.append(_null(found[0]))
    return values, count


# -- objects ---------------------------------------------------------------------------------------------------------


def _relocation_sections(space: AddressSpace) -> dict[int, list[ImageSection]]:
    found: dict[int, list[ImageSection]] = {}
    for section in space.sections:
        if section.type in (elf.SHT_RELA, elf.SHT_REL):
            found.setdefault(section.info, []).append(section)
    return found


def _through_relocations(
    space: AddressSpace, section: ImageSection, applied: list[ImageSection], size: int, relative: bool
) -> list[_Value]:
    """Return the addresses that the linker will put into a table section of an object."""
    slots: dict[int, _Value] = {}
    for relocations in applied:
        for offset, kind, symbol, addend in space.relocations(relocations):
            if kind:  # R_*_NONE ties the entry to its function
                added = _in_place(space, section, offset, size) if addend is None else addend
                slots[offset] = _slot(space, relocations.link, symbol, kind, added, relative)
    if section.type == elf.SHT_NOBITS:  # a table without bytes may claim any number of entries
        return [slots[offset] for offset in sorted(slots)]
    missing = (0, "null-entry", "no relocation makes this entry an address")
    return [slots.get(offset, missing) for offset in range(0, section.size - size + 1, size)]


def _in_place(space: AddressSpace, section: ImageSection, offset: int, size: int) -> int:
    if offset + size > section.size:
        return 0
    return words(bytes(space.data[section.offset + offset : section.offset + offset + size]), size, space.layout)[0]


def _slot(space: AddressSpace, table: int, symbol: int, kind: int, addend: int, relative: bool) -> _Value:
    types = _types(space)
    wanted = types.pc32 if relative else types.address(is64=space.layout.is64)
    if kind != wanted:
        return 0, "unresolved", f"relocation type {kind} makes this entry, which is not an address"
    address = space.symbol_address(table, symbol)
    if address is None:
        return 0, "unresolved", "the entry's symbol is not defined in this object"
    return address + addend & 0xFFFFFFFFFFFFFFFF, "", ""
