"""The end of an edit: numbers the symbols, lays out what is appended, and patches what refers to moved symbols.

`ObjectEditor.finish` (`edit`) comes here once for each object; `finish_symbols` writes the symbol and string tables.
"""

from __future__ import annotations

from bisect import bisect_left

from . import layout
from .changes import NewRelocations, ObjectChanges
from .finish_symbols import NewSymbols, SectionNames, write_symbols
from .headers import SectionHeader
from .layout import SectionIndex
from .relocations import RepeatedRelocations, encode, is_plain, join_info, symbol_field
from .tail import Tail
from .uleb import decode_uleb, encode_uleb


class Finisher(Tail):
    """One run of `ObjectEditor.finish`: numbers the symbols, lays out the tail, writes the headers."""

    def __init__(self, changes: ObjectChanges) -> None:
        super().__init__(changes)
        self.symbols = NewSymbols(changes)
        self.names = SectionNames(changes.source, self.symbols)

    def run(self) -> tuple[list[tuple[int, bytes]], bytearray]:
        """Return (patches, tail); see `ObjectEditor.finish`."""
        _renumber_relocations(self)
        self._write_new_sections()
        self._write_groups()
        self._write_address_significance()
        self._write_extended_sections()
        write_symbols(self, self.symbols, self.names)
        for index in self.changes.emptied:
            self.place_header(index, self.header(index)[4], 0)
        for index in self.changes.dropped:
            self.changed[index] = (0, layout.SHT_NULL, 0, 0, 0, 0, 0, 0, 0, 0)
        self._write_headers()
        return self.patches, self.tail

    # -- relocations -------------------------------------------------------------------------------------------------

    def _pack_new(self, relocations: NewRelocations | RepeatedRelocations, *, rela: bool) -> bytes:
        if isinstance(relocations, RepeatedRelocations):
            return relocations.encode(self.number_all)
        symbols = relocations.symbols
        numbers = self.number_all({*symbols})
        named = [numbers[symbol] for symbol in symbols]
        columns = relocations.offsets, relocations.types, named, relocations.addends
        return b"".join(encode(*columns, self.layout, self.source.machine, rela=rela))

    def _write_new_sections(self) -> None:
        first, changes = self.source.section_count, self.changes
        relocations, groups, uses_rela = changes.relocations, changes.new_groups, changes.uses_rela
        for index, (name, type_, flags, content, link, info, align, entsize) in enumerate(changes.sections, first):
            if index in relocations:
                data = self._pack_new(relocations[index][1], rela=uses_rela)
            elif index in groups:
                signature, members = groups[index]
                data = content + b"".join(map(self.layout.u32.pack, members))
                info = self.number(signature)  # noqa: PLW2901 - known only now
            else:
                data = content if uses_rela else self._with_addends(index, content)
            offset = self.append(data, align)
            self.added.append((self.names.place(name), type_, flags, 0, offset, len(data), link, info, align, entsize))

    def _with_addends(self, index: int, data: bytes) -> bytes:
        """Return a new section's bytes with the addends of its relocations, which carry none, in the 32-bit words.

        Whoever writes repeated relocations has put theirs there already.
        """
        header = index + 1
        if header not in self.changes.relocations:
            return data
        target, relocations = self.changes.relocations[header]
        if target != index or isinstance(relocations, RepeatedRelocations):
            return data
        changed = bytearray(data)
        for offset, addend in zip(relocations.offsets, relocations.addends):
            if addend:
                value = self.layout.u32.unpack_from(changed, offset)[0] + addend
                self.layout.u32.pack_into(changed, offset, value & 0xFFFFFFFF)
        return bytes(changed)

    def _write_extended_sections(self) -> None:
        if not (self.changes.extended or self.changes.more_relocations):
            return
        patches = sorted(self.patches)
        starts = [offset for offset, _ in patches]
        for index, added in self.changes.extended.items():
            self._write_again(index, self._patched(index, patches, starts) + added)
        for index, relocations in self.changes.more_relocations.items():
            data = self._patched(index, patches, starts)
            data += self._pack_new(relocations, rela=self.source.sections[index].type == layout.SHT_RELA)
            self._write_again(index, _by_offset(bytes(data), self.source.sections[index].entsize, self.layout))

    def _patched(self, index: SectionIndex, patches: list[tuple[int, bytes]], starts: list[int]) -> bytearray:
        section = self.source.sections[index]
        data = bytearray(self.source.content(index))
        first = bisect_left(starts, section.offset)
        for offset, patch in patches[first : bisect_left(starts, section.offset + section.size)]:
            at = offset - section.offset
            if at + len(patch) <= section.size:  # in a damaged object, sections may overlap
                data[at : at + len(patch)] = patch
        return data

    def _write_again(self, index: int, data: bytes | bytearray) -> None:
        self.place_header(index, self.append(data, self.source.sections[index].align), len(data))

    # -- what else holds symbol and section numbers ------------------------------------------------------------------

    def _write_groups(self) -> None:
        for index in self.source.of_type(layout.SHT_GROUP):
            section = self.source.sections[index]
            if section.link != self.source.symtab:
                continue
            signature = self.number(section.info)
            added = self.changes.group_members.get(index, ())
            if added:
                data = bytes(self.source.content(index)) + b"".join(map(self.layout.u32.pack, added))
                self.place_header(index, self.append(data, 4), len(data), signature)
            elif signature != section.info:
                self.place_header(index, section.offset, section.size, signature)

    def _write_address_significance(self) -> None:
        for index in self.source.of_type(layout.SHT_LLVM_ADDRSIG, layout.SHT_LLVM_CALL_GRAPH_OLD):
            section = self.source.sections[index]
            if section.link != self.source.symtab:
                continue
            if section.type == layout.SHT_LLVM_ADDRSIG:
                symbols = decode_uleb(bytes(self.source.content(index)))
                if any(symbol in self.moved for symbol in symbols):
                    data = b"".join(encode_uleb(self.number(symbol)) for symbol in symbols)
                    self.place_header(index, self.append(data, 1), len(data))
            else:
                self._patch_old_call_graph(section)

    def _patch_old_call_graph(self, section: SectionHeader) -> None:
        """LLVM before 13: entries of (u32 from, u32 to, u64 weight) with symbol numbers in the section itself."""
        for offset in range(section.offset, section.offset + section.size - 15, 16):
            for place in (offset, offset + 4):
                symbol = self.layout.u32.unpack_from(self.source.data, place)[0]
                if symbol in self.moved:
                    self.patches.append((place, self.layout.u32.pack(self.moved[symbol])))

    # -- headers -----------------------------------------------------------------------------------------------------

    def _write_headers(self) -> None:
        count = self.source.section_count + len(self.added)
        extended = count >= layout.SHN_LORESERVE
        if extended:
            self.place_header(0, self.header(0)[4], count)
        fields = list(self.source.header_fields)
        fields[5] = self.append(_packed_headers(self), self.layout.address_size)
        fields[11] = 0 if extended else count
        self.patches.append((16, self.layout.header.pack(*fields)))
        if self.changes.osabi is not None:
            self.patches.append((7, bytes([self.changes.osabi])))


def _by_offset(relocations: bytes, size: int, records: layout.Layout) -> bytes:
    """Return relocations in the order of their offsets, those of one offset as they were."""
    word = records.word
    entries = [relocations[at : at + size] for at in range(0, len(relocations), size)]
    return b"".join(sorted(entries, key=lambda entry: int(word.unpack_from(entry)[0])))


def _renumber_relocations(finisher: Finisher) -> None:
    """Patch the existing relocations that are other ones now, and the symbol number of those whose symbol moved."""
    records, machine = finisher.layout, finisher.source.machine
    plain, handles, moved = is_plain(records, machine), finisher.handles, finisher.moved
    patches = finisher.patches
    done: dict[SectionIndex, list[int]] = {}
    current, entries, start, size, rela = -1, [], 0, 0, False  # of the section that the last one was in
    for (section, entry, offset, _, _, _), type_, symbol, addend in finisher.changes.retargeted:
        if section != current:
            _, kind, _, _, start, _, _, _, _, size = finisher.source.sections[section]
            current, entries, rela = section, done.setdefault(section, []), kind == layout.SHT_RELA
        entries.append(entry)
        number = handles[symbol] if symbol < 0 else moved.get(symbol, symbol)  # type: ignore[call-overload]
        info = number << 32 | type_ if plain else join_info(number, type_, records, machine)
        data = records.rela.pack(offset, info, addend) if rela else records.rel.pack(offset, info)
        patches.append((start + entry * size, data))
    if finisher.moved:
        _renumber_symbols(finisher, done)


def _renumber_symbols(finisher: Finisher, done: dict[SectionIndex, list[int]]) -> None:
    source, moved = finisher.source, finisher.moved
    at, width, order = symbol_field(finisher.layout, source.machine)
    for section, entries in source.entries_against(moved.keys()):
        numbers = source.relocation_symbols(section)
        start, size = source.sections[section].offset + at, source.sections[section].entsize
        passed = {*done.get(section, ())}
        finisher.patches += [
            (start + entry * size, moved[numbers[entry]].to_bytes(width, order))
            for entry in entries
            if entry not in passed
        ]


def _packed_headers(finisher: Finisher) -> bytearray:
    """Return the table of section headers, which begins with the existing ones: what stays is taken from there."""
    source, record = finisher.source, finisher.layout.section
    start, size = source.header_fields[5], record.size
    table = bytearray(memoryview(source.data)[start : start + source.section_count * size])
    for index, header in finisher.changed.items():
        record.pack_into(table, index * size, *header)
    if finisher.added:
        pack = record.pack
        table += b"".join([pack(*header) for header in finisher.added])
    return table
