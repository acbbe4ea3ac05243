"""The symbol table of an edited object, its extended section numbers, and the string tables that have grown."""

from __future__ import annotations

from . import layout
from .changes import ABSOLUTE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from .changes import NewSymbol, ObjectChanges
    from .layout import SectionIndex
    from .object import ElfObject
    from .tail import Tail

_NOT_LOCAL = bytes(range(1 << 4, 256))  # st_info of all bindings but STB_LOCAL


class NewSymbols:
    """The table entries of new symbols, and their names in the order in which they go to the end of the strings."""

    def __init__(self, changes: ObjectChanges) -> None:
        source = changes.source
        self.names = bytearray()
        base = source.sections[source.sections[source.symtab].link].size
        self.labels = self._packed(changes.labels, base, changes.layout)
        self.globals = self._packed(changes.globals, base, changes.layout)

    def _packed(self, symbols: Sequence[NewSymbol], base: int, records: layout.Layout) -> bytes:
        entries, names, is64, pack = [], self.names, records.is64, records.symbol.pack
        for name, info, other, section, value, size in symbols:
            place = 0
            if name:
                place = base + len(names)
                names += name.encode("utf-8", "surrogateescape") + b"\0"
            if not 0 <= section < layout.SHN_LORESERVE:
                section = _section_field(section)  # noqa: PLW2901
            if is64:
                entries.append(pack(place, info, other, section, value, size))
            else:
                entries.append(pack(place, value, size, info, other, section))
        return b"".join(entries)


class SectionNames:
    """The names of new sections, at the end of the table of names, which may be that of strings as well (clang)."""

    def __init__(self, source: ElfObject, symbols: NewSymbols) -> None:
        self.added = bytearray()
        shared = source.sections[source.symtab].link == source.shstrndx
        self._base = source.sections[source.shstrndx].size + (len(symbols.names) if shared else 0)
        self._places: dict[str, int] = {}

    def place(self, name: str) -> int:
        """Return where in the table a section's name is."""
        if name not in self._places:
            self._places[name] = self._base + len(self.added)
            self.added += name.encode() + b"\0"
        return self._places[name]


def write_symbols(tail: Tail, symbols: NewSymbols, names: SectionNames) -> None:
    """Append the symbol table with the new labels and symbols in their places, and what belongs to it."""
    changes, source, size = tail.changes, tail.source, tail.layout.symbol.size
    old = source.content(source.symtab)
    _check_order(tail, old)
    first, stop = tail.first_global * size, (tail.first_global + len(tail.moved)) * size
    table = bytearray(old[:first])
    table += symbols.labels
    table += old[stop:]
    table += old[first:stop]
    table += symbols.globals
    _apply_changes(tail, table)
    offset = tail.append(table, tail.layout.address_size)
    tail.place_header(source.symtab, offset, len(table), tail.first_global + len(changes.labels))
    _write_extended_indices(tail, names, len(table) // size)
    strtab = layout.SectionIndex(source.sections[source.symtab].link)
    if strtab == source.shstrndx:
        _grow(tail, strtab, symbols.names + names.added)
    else:
        _grow(tail, strtab, symbols.names)
        _grow(tail, source.shstrndx, names.added)


def _check_order(tail: Tail, table: memoryview) -> None:
    """Raise ElfError if local symbols, the null entry among them, stand where globals would give place to labels."""
    size, first = tail.layout.symbol.size, tail.first_global
    infos = bytes(table[first * size + (4 if tail.layout.is64 else 12) :: size])
    if infos.translate(None, _NOT_LOCAL):
        index = tail.source.symtab
        what = f"symbol table (section {index}) has more local symbols than its info field says ({first})"
        raise tail.source.error(what)


def _section_field(section: int) -> int:
    """Return what a symbol's 16 bits for its section hold."""
    if section == ABSOLUTE:
        return layout.SHN_ABS
    return layout.SHN_XINDEX if section >= layout.SHN_LORESERVE else section


def _apply_changes(tail: Tail, table: bytearray) -> None:
    """Give symbols that were there another definition. They keep their names, the first four bytes of an entry."""
    is64, pack, size = tail.layout.is64, tail.layout.symbol.pack, tail.layout.symbol.size
    others = 5 if is64 else 13  # where an entry's st_other is
    number = tail.number

    def entry(info: int, other: int, section: int, value: int, length: int) -> bytes:
        section = _section_field(section)
        if is64:
            return pack(0, info, other, section, value, length)[4:]
        return pack(0, value, length, info, other, section)[4:]

    for index, (info, other, section, value, length) in tail.changes.changed_symbols.items():
        place = number(index) * size
        other |= table[place + others] & ~3  # noqa: PLW2901 - machines have bits of their own
        table[place + 4 : place + size] = entry(info, other, section or 0, value or 0, length or 0)
    left: dict[int, bytes] = {}  # st_other -> entries, of which an object has many
    moved = tail.moved.get
    for index in tail.changes.left:
        place = moved(index, index) * size
        other = table[place + others] & ~3 | layout.STV_HIDDEN
        if other not in left:
            left[other] = entry(layout.STB_WEAK << 4 | layout.STT_NOTYPE, other, 0, 0, 0)
        table[place + 4 : place + size] = left[other]


def _write_extended_indices(tail: Tail, names: SectionNames, count: int) -> None:
    """Write the table of section indices that don't fit 16 bits, if the object has or now needs one."""
    changes, source = tail.changes, tail.source
    table = source.extended_table()
    if not table and source.section_count + len(tail.added) <= layout.SHN_LORESERVE:
        return
    defined = [(tail.number(-2 * (i + 1)), label[3]) for i, label in enumerate(changes.labels)]
    defined += [(tail.number(-2 * i - 1), new[3]) for i, new in enumerate(changes.globals)]
    defined += [(tail.number(i), change[2] or 0) for i, change in changes.changed_symbols.items()]
    defined += [(tail.number(i), 0) for i in changes.left]
    if not table and all(section < layout.SHN_LORESERVE for _, section in defined):
        return
    words = [0] * count
    if table:
        for old, (word,) in enumerate(tail.layout.u32.iter_unpack(source.content(table))):
            if old < tail.count:
                words[tail.number(old)] = word
    for place, section in defined:
        words[place] = section if section >= layout.SHN_LORESERVE else 0
    data = b"".join(map(tail.layout.u32.pack, words))
    offset = tail.append(data, 4)
    if table:
        tail.place_header(table, offset, len(data))
    else:
        name = names.place(".symtab_shndx")
        tail.added.append((name, layout.SHT_SYMTAB_SHNDX, 0, 0, offset, len(data), source.symtab, 0, 4, 4))


def _grow(tail: Tail, index: SectionIndex, added: bytearray) -> None:
    if added:
        data = bytes(tail.source.content(index)) + added
        tail.place_header(index, tail.append(data, 1), len(data))
