"""The symbol table of an edited object, its extended section numbers, and the string tables that have grown."""

from __future__ import annotations

from . import layout
from .headers import SectionHeader

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from .finish import Finisher
    from .layout import SectionIndex

ABSOLUTE = layout.SectionIndex(-1)  # in place of a section's number: the symbol's value is no address


def write_symbols(finisher: Finisher) -> None:
    """Append the symbol table with the new labels and symbols in their places, and what belongs to it."""
    editor, source, size = finisher.editor, finisher.source, finisher.layout.symbol.size
    strtab = layout.SectionIndex(source.sections[source.symtab].link)
    strings = bytearray()
    string_base = source.sections[strtab].size
    old = source.content(source.symtab)
    table = bytearray(old[: finisher.first_global * size])
    pack = _packer(finisher)
    for text, section, value, type_, other in editor._labels:
        table += pack(_add_string(strings, string_base, text) if text else 0, type_, other, section, value, 0)
    stop = finisher.first_global + len(finisher.moved)
    table += old[stop * size :]
    table += old[finisher.first_global * size : stop * size]
    for text, info, section, value, length in editor._globals:
        table += pack(_add_string(strings, string_base, text), info, layout.STV_HIDDEN, section, value, length)
    _apply_changes(finisher, table)
    offset = finisher.append(table, finisher.layout.address_size)
    finisher.headers[source.symtab] = source.sections[source.symtab]._replace(
        offset=offset, size=len(table), info=finisher.first_global + len(editor._labels)
    )
    _write_extended_indices(finisher, len(table) // size)
    _write_strings(finisher, strtab, strings)


def _add_string(strings: bytearray, base: int, text: str) -> int:
    place = base + len(strings)
    strings += text.encode("utf-8", "surrogateescape") + b"\0"
    return place


def _apply_changes(finisher: Finisher, table: bytearray) -> None:
    size, unpack, pack = finisher.layout.symbol.size, finisher.layout.symbol.unpack_from, _packer(finisher)
    for index, (info, other, section, value, length) in finisher.editor._changed_symbols.items():
        place = finisher.number(index) * size
        if finisher.layout.is64:
            name, _, before, *_ = unpack(table, place)
        else:
            name, _, _, _, before, _ = unpack(table, place)
        table[place : place + size] = pack(name, info, before & ~3 | other, section or 0, value or 0, length or 0)


def _packer(finisher: Finisher) -> Callable[[int, int, int, int, int, int], bytes]:
    """Return what makes a symbol of its name, info, other, section, value and size."""
    record, is64 = finisher.layout.symbol.pack, finisher.layout.is64

    def pack(name: int, info: int, other: int, section: int, value: int, size: int) -> bytes:
        if section == ABSOLUTE:
            section = layout.SHN_ABS
        elif section >= layout.SHN_LORESERVE:
            section = layout.SHN_XINDEX
        if is64:
            return record(name, info, other, section, value, size)
        return record(name, value, size, info, other, section)

    return pack


def _write_extended_indices(finisher: Finisher, count: int) -> None:
    """Write the table of section indices that don't fit 16 bits, if the object has or now needs one."""
    editor, source = finisher.editor, finisher.source
    table = source.extended_table()
    if not table and len(finisher.headers) <= layout.SHN_LORESERVE:
        return
    defined = [(finisher.number(-2 * (i + 1)), label.section) for i, label in enumerate(editor._labels)]
    defined += [(finisher.number(-2 * i - 1), new.section) for i, new in enumerate(editor._globals)]
    defined += [(finisher.number(i), change[2] or 0) for i, change in editor._changed_symbols.items()]
    if not table and all(section < layout.SHN_LORESERVE for _, section in defined):
        return
    words = [0] * count
    if table:
        for old, (word,) in enumerate(finisher.layout.u32.iter_unpack(source.content(table))):
            if old < finisher.count:
                words[finisher.number(old)] = word
    for place, section in defined:
        words[place] = section if section >= layout.SHN_LORESERVE else 0
    data = b"".join(map(finisher.layout.u32.pack, words))
    offset = finisher.append(data, 4)
    if table:
        finisher.headers[table] = source.sections[table]._replace(offset=offset, size=len(data))
    else:
        name = finisher.name_number(".symtab_shndx")
        header = (name, layout.SHT_SYMTAB_SHNDX, 0, 0, offset, len(data), source.symtab, 0, 4, 4)
        finisher.headers.append(SectionHeader._make(header))


def _write_strings(finisher: Finisher, strtab: SectionIndex, strings: bytearray) -> None:
    """Append the grown symbol and section name tables, which may be one and the same section (clang)."""
    source = finisher.source
    shstrtab = source.shstrndx
    if strtab != shstrtab:
        _grow(finisher, strtab, strings)
        strings = bytearray()
    base = source.sections[shstrtab].size
    places = []
    for name in finisher.names:
        places.append(base + len(strings))
        strings += name.encode() + b"\0"
    _grow(finisher, shstrtab, strings)
    for index in range(len(source.sections), len(finisher.headers)):
        header = finisher.headers[index]
        finisher.headers[index] = SectionHeader._make((places[header.name], *header[1:]))


def _grow(finisher: Finisher, index: SectionIndex, added: bytearray) -> None:
    if added:
        data = bytes(finisher.source.content(index)) + bytes(added)
        section = finisher.source.sections[index]
        finisher.headers[index] = section._replace(offset=finisher.append(data, 1), size=len(data))
