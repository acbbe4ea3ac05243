"""Editing a relocatable object by appending: what was read stays where it is, everything new goes to the end.

Bytes, relocations and symbols of the input are patched in place; new sections, the grown symbol and string tables,
changed groups and the new section headers follow after the input's last byte. No symbol that the object had changes
its number except the first few global ones: the ELF format wants local symbols first, so the labels we add take the
places of the first globals, which move to the end of the table, and every reference to those few is patched
(relocations, group signatures, `.llvm_addrsig`, extended section indices).

Local labels can't collide with those of any other object, need no invented names, and never reach a dynamic symbol
table. They are nameless, hidden and without type or size, the form that binutils, gdb and perf leave out of symbol
look-ups.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, NamedTuple

from . import layout as L
from .headers import SectionHeader as Section
from .relocations import join_info

if TYPE_CHECKING:
    from .object import ElfObject, Reference

# A symbol that the object doesn't have yet is named by a negative number until `finish` knows its place:
# -2, -4, ... are new local labels, -1, -3, ... new global symbols.


ABSOLUTE = -1  # in place of a section's number: the symbol's value is no address


class NewRelocation(NamedTuple):
    """A relocation in a new section. `symbol` is a symbol index of the input or a handle that this module gave.

    Where relocations of an object carry no addend (SHT_REL), it is added to the 32-bit word at `offset`.
    """

    offset: int
    type: int
    symbol: int
    addend: int


class _Label(NamedTuple):
    name: str
    section: int
    value: int
    type: int
    other: int


class _Global(NamedTuple):
    name: str
    info: int
    section: int
    value: int
    size: int


class _NewSection(NamedTuple):
    name: str
    type: int
    flags: int
    data: bytes
    link: int
    info: int
    align: int
    entsize: int


class ObjectEditor:
    """Collects changes to one object; `finish` returns them as patches and a tail."""

    def __init__(self, source: ElfObject) -> None:
        """Start editing `source`, which is not modified."""
        self.source = source
        self.layout = source.layout
        self.patches: list[tuple[int, bytes]] = []
        self._labels: list[_Label] = []
        self._globals: list[_Global] = []
        self._changed_symbols: dict[int, tuple[int, int, int | None, int | None, int | None]] = {}
        self._retargeted: list[tuple[Reference, int, int, int]] = []
        self._sections: list[_NewSection] = []
        self._relocations: dict[int, tuple[int, list[NewRelocation]]] = {}
        self._group_members: dict[int, list[int]] = {}
        self._new_groups: dict[int, tuple[int, list[int]]] = {}
        self._extended: dict[int, bytearray] = {}
        self._more_relocations: dict[int, list[NewRelocation]] = {}  # existing relocation section -> what it gets
        self._emptied: list[int] = []
        self._dropped: list[int] = []
        self._osabi: int | None = None
        self._rela = self._uses_rela()

    def _uses_rela(self) -> bool:
        """Whether this machine's relocations carry addends: what the object does, and RELA in 64-bit ones."""
        for section in self.source.sections:
            if section.type == L.SHT_RELA:
                return True
            if section.type == L.SHT_REL:
                return False
        return self.layout.is64

    @property
    def uses_rela(self) -> bool:
        """Whether relocations of this object carry their addends (else the addend lies in the relocated bytes)."""
        return self._rela

    # -- what callers change -----------------------------------------------------------------------------------------

    def patch(self, section: int, offset: int, data: bytes) -> None:
        """Overwrite bytes of an existing section."""
        self.patches.append((self.source.sections[section].offset + offset, data))

    def set_osabi_gnu(self) -> None:
        """Mark the object as using GNU extensions (SHF_GNU_RETAIN), if it names no other system."""
        if self.source.osabi == L.ELFOSABI_NONE:
            self._osabi = L.ELFOSABI_GNU

    @property
    def next_section(self) -> int:
        """The index that the next `add_section` or `add_group` will return."""
        return len(self.source.sections) + len(self._sections)

    def add_label(self, section: int, value: int, name: str = "") -> int:
        """Add a local label, usually a nameless one, in a section or ABSOLUTE; return its handle."""
        self._labels.append(_Label(name, section, value, L.STT_NOTYPE, L.STV_HIDDEN))
        return -2 * len(self._labels)

    def add_section_symbol(self, section: int) -> int:
        """Add the local symbol that stands for a section and lends it its name; return its handle."""
        self._labels.append(_Label("", section, 0, L.STT_SECTION, L.STV_DEFAULT))
        return -2 * len(self._labels)

    def add_global(
        self, name: str, binding: int, section: int = 0, value: int = 0, size: int = 0, type_: int = L.STT_NOTYPE
    ) -> int:
        """Add a named hidden symbol (undefined by default); return its handle."""
        self._globals.append(_Global(name, binding << 4 | type_, section, value, size))
        return -2 * len(self._globals) + 1

    def change_symbol(
        self, index: int, binding: int, type_: int, section: int | None = None, value: int | None = None, size: int = 0
    ) -> None:
        """Give an existing global symbol another binding and definition, and hide it."""
        self._changed_symbols[index] = (binding << 4 | type_, L.STV_HIDDEN, section, value, size)

    def retarget(self, reference: Reference, type_: int, symbol: int, addend: int = 0) -> None:
        """Turn an existing relocation into one of another type against another symbol."""
        self._retargeted.append((reference, type_, symbol, addend))

    def move(self, reference: Reference, offset: int) -> None:
        """Let an existing relocation apply at another offset, since its instruction moved there."""
        moved = reference._replace(offset=offset)
        self._retargeted.append((moved, moved.type, moved.symbol, moved.addend or 0))

    def add_section(
        self,
        name: str,
        type_: int,
        flags: int,
        data: bytes,
        *,
        align: int,
        link: int = 0,
        info: int = 0,
        entsize: int = 0,
        relocations: list[NewRelocation] | None = None,
        group: int = 0,
    ) -> int:
        """Append a section, with its relocations and as a member of `group` (a group section) if given.

        Return its index, which is final.
        """
        if group:
            flags |= L.SHF_GROUP
        index = self.next_section
        self._sections.append(_NewSection(name, type_, flags, data, link, info, align, entsize))
        self._join(group, index)
        if relocations:
            self._add_relocation_section(name, index, relocations, group)
        return index

    def extend_section(self, section: int, data: bytes, relocations: list[NewRelocation]) -> int:
        """Add bytes to the end of a section, with relocations whose offsets count from there; return where that is.

        The section is an existing one that has relocations already, or a new one that was added with some.
        """
        first_new = len(self.source.sections)
        if section < first_new:
            added = self._extended.setdefault(section, bytearray())
            start = self.source.sections[section].size + len(added)
            added += data
        else:
            new = self._sections[section - first_new]
            start = len(new.data)
            self._sections[section - first_new] = new._replace(data=new.data + data)
        self.add_relocations(section, [r._replace(offset=start + r.offset) for r in relocations])
        return start

    def add_relocations(self, section: int, relocations: list[NewRelocation]) -> None:
        """Add relocations to a section; where it has some, each goes behind those of its offset and of lower ones."""
        if section >= len(self.source.sections):
            self._relocations[section + 1][1].extend(relocations)
            return
        existing = [i for i in self.source.relocation_sections() if self.source.sections[i].info == section]
        if existing:
            self._more_relocations.setdefault(existing[0], []).extend(relocations)
        else:
            group = self.source.groups().get(section, 0)
            self._add_relocation_section(self.source.section_name(section), section, relocations, group)

    def _add_relocation_section(self, name: str, target: int, relocations: list[NewRelocation], group: int) -> None:
        entry = self.layout.rela if self._rela else self.layout.rel
        prefix, type_ = (".rela", L.SHT_RELA) if self._rela else (".rel", L.SHT_REL)
        flags = L.SHF_INFO_LINK | (L.SHF_GROUP if group else 0)
        index = self.next_section
        header = _NewSection(
            prefix + name, type_, flags, b"", self.source.symtab, target, self.layout.address_size, entry.size
        )
        self._sections.append(header)
        self._relocations[index] = (target, relocations)
        self._join(group, index)

    def _join(self, group: int, index: int) -> None:
        if group in self._new_groups:
            self._new_groups[group][1].append(index)
        elif group:
            self._group_members.setdefault(group, []).append(index)

    def drop_section(self, index: int) -> None:
        """Turn an existing section into an empty, nameless SHT_NULL one, which every tool passes over.

        The name goes too, because gcc's linker plugin looks for `.gnu.lto_` names before it looks at types.
        """
        self._dropped.append(index)

    def empty_section(self, index: int) -> None:
        """Take all bytes from an existing section, which stays: where `drop_section` would leave a gap in a group."""
        self._emptied.append(index)

    def add_group(self, signature: int, flags: int = L.GRP_COMDAT) -> int:
        """Append a group whose signature is the symbol (index or handle) `signature`; return its index."""
        data = self.layout.u32.pack(flags)
        index = self.add_section(".group", L.SHT_GROUP, 0, data, align=4, entsize=4, link=self.source.symtab)
        self._new_groups[index] = (signature, [])
        return index

    # -- the result --------------------------------------------------------------------------------------------------

    def finish(self) -> tuple[list[tuple[int, bytes]], bytes]:
        """Return (patches, tail): bytes to overwrite at file offsets, and bytes to append to the file."""
        return _Finisher(self).run()


class _Finisher:
    """One run of `ObjectEditor.finish`: numbers the symbols, lays out the tail, writes the headers."""

    def __init__(self, editor: ObjectEditor) -> None:
        self.editor = editor
        self.source = editor.source
        self.layout = editor.layout
        self.tail = bytearray()
        self.base = len(self.source.data)
        self.patches = editor.patches
        self.headers: list[Section] = list(self.source.sections)
        self.first_global = self.source.sections[self.source.symtab].info
        self.count = self.source.symbol_count
        labels = len(editor._labels)
        # The first globals give their places to the labels and go to the end, in order.
        stop = min(self.first_global + labels, self.count)
        start = max(self.count, self.first_global + labels)
        self.moved = {old: start + i for i, old in enumerate(range(self.first_global, stop))}
        self.first_new_global = self.count + labels
        self.names: dict[str, int] = {}

    def run(self) -> tuple[list[tuple[int, bytes]], bytes]:
        self._renumber_relocations()
        self._write_new_sections()
        self._write_groups()
        self._write_address_significance()
        self._write_extended_sections()
        self._write_symbols()
        for index in self.editor._emptied:
            self.headers[index] = self.headers[index]._replace(size=0)
        for index in self.editor._dropped:
            self.headers[index] = Section(*(0 for _ in self.headers[index]))  # SHT_NULL and all else are 0
        self._write_headers()
        return self.patches, bytes(self.tail)

    def number(self, symbol: int) -> int:
        """Return the final index of an input symbol or of a handle."""
        if symbol >= 0:
            return self.moved.get(symbol, symbol)
        if symbol % 2 == 0:
            return self.first_global - symbol // 2 - 1
        return self.first_new_global + (-symbol - 1) // 2

    def _append(self, data: bytes | bytearray, align: int) -> int:
        """Append to the tail at an aligned file offset, and return that offset.

        Sixteen bytes are enough for any record; a section aligned to a page needs no page of padding in an object.
        """
        self.tail.extend(bytes(-(self.base + len(self.tail)) % min(max(align, 1), 16)))
        offset = self.base + len(self.tail)
        self.tail.extend(data)
        return offset

    # -- relocations -------------------------------------------------------------------------------------------------

    def _renumber_relocations(self) -> None:
        retargeted = set()
        for reference, type_, symbol, addend in self.editor._retargeted:
            retargeted.add((reference.relocations, reference.entry))
            self._patch_relocation(reference, type_, self.number(symbol), addend)
        if not self.moved:
            return
        for reference in self.source.references(set(self.moved)):
            if (reference.relocations, reference.entry) not in retargeted:
                self._patch_relocation(reference, reference.type, self.moved[reference.symbol], reference.addend or 0)

    def _patch_relocation(self, reference: Reference, type_: int, symbol: int, addend: int) -> None:
        section = self.source.sections[reference.relocations]
        rela = section.type == L.SHT_RELA
        packed = self._pack_relocation(reference.offset, type_, symbol, addend, rela=rela)
        self.patches.append((section.offset + reference.entry * section.entsize, packed))

    def _pack_relocation(self, offset: int, type_: int, symbol: int, addend: int, *, rela: bool) -> bytes:
        info = join_info(symbol, type_, self.layout, self.source.machine)
        return self.layout.rela.pack(offset, info, addend) if rela else self.layout.rel.pack(offset, info)

    def _write_new_sections(self) -> None:
        first = len(self.source.sections)
        for index, section in enumerate(self.editor._sections, first):
            data: bytes | bytearray = self._with_addends(index, section.data)
            if index in self.editor._relocations:
                data = bytearray()
                for relocation in self.editor._relocations[index][1]:
                    data += self._pack_relocation(
                        relocation.offset,
                        relocation.type,
                        self.number(relocation.symbol),
                        relocation.addend,
                        rela=self.editor.uses_rela,
                    )
            info = section.info
            if index in self.editor._new_groups:
                signature, members = self.editor._new_groups[index]
                data = section.data + b"".join(map(self.layout.u32.pack, members))
                info = self.number(signature)
            offset = self._append(data, section.align)
            header = _header(section.name, section.type, offset, len(data), section.link, self.names)
            self.headers.append(
                header._replace(flags=section.flags, info=info, align=section.align, entsize=section.entsize)
            )

    def _with_addends(self, index: int, data: bytes) -> bytes:
        """Return a new section's bytes; where its relocations carry no addends, with these in the 32-bit words."""
        header = index + 1
        if self.editor.uses_rela or header not in self.editor._relocations:
            return data
        target, relocations = self.editor._relocations[header]
        changed = bytearray(data)
        for relocation in relocations if target == index else ():
            if relocation.addend:
                value = self.layout.u32.unpack_from(changed, relocation.offset)[0] + relocation.addend
                self.layout.u32.pack_into(changed, relocation.offset, value & 0xFFFFFFFF)
        return bytes(changed)

    def _write_extended_sections(self) -> None:
        """Write existing sections that have grown, with what was patched in them, and the relocations of others."""
        if not (self.editor._extended or self.editor._more_relocations):
            return
        patches = sorted(self.patches)
        starts = [offset for offset, _ in patches]
        for index, added in self.editor._extended.items():
            self._write_again(index, self._patched(index, patches, starts) + added)
        for index, relocations in self.editor._more_relocations.items():
            data = self._patched(index, patches, starts)
            rela = self.source.sections[index].type == L.SHT_RELA
            for r in relocations:
                data += self._pack_relocation(r.offset, r.type, self.number(r.symbol), r.addend, rela=rela)
            self._write_again(index, self._by_offset(bytes(data), self.source.sections[index].entsize))

    def _patched(self, index: int, patches: list[tuple[int, bytes]], starts: list[int]) -> bytearray:
        """Return an existing section's content with the `patches`, which begin at the offsets `starts`."""
        section = self.source.sections[index]
        data = bytearray(self.source.content(index))
        first = bisect_left(starts, section.offset)
        for offset, patch in patches[first : bisect_left(starts, section.offset + section.size)]:
            at = offset - section.offset
            if at + len(patch) <= section.size:  # in a damaged object, sections may overlap
                data[at : at + len(patch)] = patch
        return data

    def _by_offset(self, relocations: bytes, size: int) -> bytes:
        """Return relocations in the order of their offsets, those of one offset as they were."""
        word = self.layout.word
        records = [relocations[at : at + size] for at in range(0, len(relocations), size)]
        return b"".join(sorted(records, key=lambda record: int(word.unpack_from(record)[0])))

    def _write_again(self, index: int, data: bytes | bytearray) -> None:
        offset = self._append(data, self.source.sections[index].align)
        self.headers[index] = self.headers[index]._replace(offset=offset, size=len(data))

    # -- what else holds symbol and section numbers ------------------------------------------------------------------

    def _write_groups(self) -> None:
        for index, section in enumerate(self.source.sections):
            if section.type != L.SHT_GROUP or section.link != self.source.symtab:
                continue
            added = self.editor._group_members.get(index, ())
            header = section._replace(info=self.number(section.info))
            if added:
                data = bytes(self.source.content(index)) + b"".join(self.layout.u32.pack(m) for m in added)
                header = header._replace(offset=self._append(data, 4), size=len(data))
            self.headers[index] = header

    def _write_address_significance(self) -> None:
        for index, section in enumerate(self.source.sections):
            if section.type == L.SHT_LLVM_ADDRSIG and section.link == self.source.symtab:
                symbols = decode_uleb(bytes(self.source.content(index)))
                if any(symbol in self.moved for symbol in symbols):
                    data = b"".join(encode_uleb(self.number(symbol)) for symbol in symbols)
                    self.headers[index] = section._replace(offset=self._append(data, 1), size=len(data))
            elif section.type == L.SHT_LLVM_CALL_GRAPH_OLD and section.link == self.source.symtab:
                self._patch_old_call_graph(section)

    def _patch_old_call_graph(self, section: Section) -> None:
        """LLVM before 13: entries of (u32 from, u32 to, u64 weight) with symbol numbers in the section itself."""
        for offset in range(section.offset, section.offset + section.size - 15, 16):
            for place in (offset, offset + 4):
                symbol = self.layout.u32.unpack_from(self.source.data, place)[0]
                if symbol in self.moved:
                    self.patches.append((place, self.layout.u32.pack(self.moved[symbol])))

    # -- symbols -----------------------------------------------------------------------------------------------------

    def _write_symbols(self) -> None:
        editor, source, size = self.editor, self.source, self.layout.symbol.size
        strtab = source.sections[source.symtab].link
        strings = bytearray()
        string_base = source.sections[strtab].size
        old = source.content(source.symtab)
        table = bytearray(old[: self.first_global * size])
        for label in editor._labels:
            name = self._add_string(strings, string_base, label.name) if label.name else 0
            table += self._pack_symbol(name, label.type, label.other, label.section, label.value, 0)
        stop = self.first_global + len(self.moved)
        table += old[stop * size :]
        table += old[self.first_global * size : stop * size]
        for new in editor._globals:
            name = self._add_string(strings, string_base, new.name)
            table += self._pack_symbol(name, new.info, L.STV_HIDDEN, new.section, new.value, new.size)
        self._apply_symbol_changes(table)
        offset = self._append(table, self.layout.address_size)
        self.headers[source.symtab] = source.sections[source.symtab]._replace(
            offset=offset, size=len(table), info=self.first_global + len(editor._labels)
        )
        self._write_extended_indices(len(table) // size)
        self._write_strings(strtab, strings)

    @staticmethod
    def _add_string(strings: bytearray, base: int, text: str) -> int:
        place = base + len(strings)
        strings += text.encode("utf-8", "surrogateescape") + b"\0"
        return place

    def _apply_symbol_changes(self, table: bytearray) -> None:
        size = self.layout.symbol.size
        for index, (info, other, section, value, length) in self.editor._changed_symbols.items():
            old = self.source.symbol(index)
            place = self.number(index) * size
            table[place : place + size] = self._pack_symbol(
                old.name, info, old.other & ~3 | other, section or 0, value or 0, length or 0
            )

    def _pack_symbol(self, name: int, info: int, other: int, section: int, value: int, size: int) -> bytes:
        short = L.SHN_ABS if section == ABSOLUTE else section if section < L.SHN_LORESERVE else L.SHN_XINDEX
        if self.layout.is64:
            return self.layout.symbol.pack(name, info, other, short, value, size)
        return self.layout.symbol.pack(name, value, size, info, other, short)

    def _write_extended_indices(self, count: int) -> None:
        """Write the table of section indices that don't fit 16 bits, if the object has or now needs one."""
        editor, source = self.editor, self.source
        table = source.extended_table()
        defined = [(self.number(-2 * (i + 1)), label.section) for i, label in enumerate(editor._labels)]
        defined += [(self.number(-2 * i - 1), new.section) for i, new in enumerate(editor._globals)]
        defined += [(self.number(i), change[2] or 0) for i, change in editor._changed_symbols.items()]
        if not table and all(section < L.SHN_LORESERVE for _, section in defined):
            return
        words = [0] * count
        if table:
            for old, (word,) in enumerate(self.layout.u32.iter_unpack(source.content(table))):
                if old < self.count:
                    words[self.number(old)] = word
        for place, section in defined:
            words[place] = section if section >= L.SHN_LORESERVE else 0
        data = b"".join(map(self.layout.u32.pack, words))
        offset = self._append(data, 4)
        if table:
            self.headers[table] = source.sections[table]._replace(offset=offset, size=len(data))
        else:
            header = _header(".symtab_shndx", L.SHT_SYMTAB_SHNDX, offset, len(data), source.symtab, self.names)
            self.headers.append(header._replace(align=4, entsize=4))

    def _write_strings(self, strtab: int, strings: bytearray) -> None:
        """Append the grown symbol and section name tables, which may be one and the same section (clang)."""
        source = self.source
        shstrtab = source.shstrndx
        if strtab != shstrtab:
            self._grow_strings(strtab, strings)
            strings = bytearray()
        base = source.sections[shstrtab].size
        places = []
        for name in self.names:
            places.append(base + len(strings))
            strings += name.encode() + b"\0"
        self._grow_strings(shstrtab, strings)
        for index in range(len(source.sections), len(self.headers)):
            self.headers[index] = self.headers[index]._replace(name=places[self.headers[index].name])

    def _grow_strings(self, index: int, added: bytearray) -> None:
        if added:
            data = bytes(self.source.content(index)) + bytes(added)
            self.headers[index] = self.source.sections[index]._replace(offset=self._append(data, 1), size=len(data))

    # -- headers -----------------------------------------------------------------------------------------------------

    def _write_headers(self) -> None:
        count = len(self.headers)
        extended = count >= L.SHN_LORESERVE
        if extended:
            self.headers[0] = self.headers[0]._replace(size=count)
        packed = b"".join(self.layout.section.pack(*header) for header in self.headers)
        fields = list(self.source.header_fields)
        fields[5] = self._append(packed, self.layout.address_size)
        fields[11] = 0 if extended else count
        self.patches.append((16, self.layout.header.pack(*fields)))
        if self.editor._osabi is not None:
            self.patches.append((7, bytes([self.editor._osabi])))


def _header(name: str, type_: int, offset: int, size: int, link: int, names: dict[str, int]) -> Section:
    """A header whose name field is, until the name table is written, the name's number in `names`."""
    number = names.setdefault(name, len(names))
    return Section(number, type_, 0, 0, offset, size, link, 0, 0, 0)


def decode_uleb(data: bytes) -> list[int]:
    """Return the unsigned LEB128 numbers that `data` holds; a number cut short at the end is dropped."""
    numbers, value, shift = [], 0, 0
    for byte in data:
        value |= (byte & 0x7F) << shift
        shift += 7
        if not byte & 0x80:
            numbers.append(value)
            value = shift = 0
    return numbers


def encode_uleb(value: int) -> bytes:
    """Return `value` as unsigned LEB128."""
    out = bytearray()
    while True:
        byte = value & 0x7F
        value >>= 7
        out.append(byte | (0x80 if value else 0))
        if not value:
            return bytes(out)
