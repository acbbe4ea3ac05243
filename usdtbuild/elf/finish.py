"""The end of an edit: numbers the symbols, lays out what is appended, and patches what refers to moved symbols.

`ObjectEditor.finish` (`edit`) comes here once for each object; `finish_symbols` writes the symbol and string tables.
"""

from __future__ import annotations

from bisect import bisect_left

from . import layout
from .finish_symbols import write_symbols
from .headers import SectionHeader
from .layout import SymbolIndex
from .relocations import encode
from .uleb import decode_uleb, encode_uleb

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from .edit import NewRelocation, ObjectEditor
    from .layout import SectionIndex
    from .object import ElfObject, Reference
    from .relocations import Entry


class Finisher:
    """One run of `ObjectEditor.finish`: numbers the symbols, lays out the tail, writes the headers."""

    def __init__(self, editor: ObjectEditor) -> None:
        self.editor = editor
        self.source = editor.source
        self.layout = editor.layout
        self.tail = bytearray()
        self.base = len(self.source.data)
        self.patches = editor.patches
        self.headers: list[SectionHeader] = list(self.source.sections)
        self.first_global = self.source.sections[self.source.symtab].info
        self.count = self.source.symbol_count
        labels = len(editor._labels)
        # The first globals give their places to the labels and go to the end, in order.
        stop = min(self.first_global + labels, self.count)
        start = max(self.count, self.first_global + labels)
        self.moved: dict[SymbolIndex, int] = {
            SymbolIndex(old): start + i for i, old in enumerate(range(self.first_global, stop))
        }
        self.first_new_global = self.count + labels
        self.names: dict[str, int] = {}

    def run(self) -> tuple[list[tuple[int, bytes]], bytes]:
        """Return (patches, tail); see `ObjectEditor.finish`."""
        self._renumber_relocations()
        self._write_new_sections()
        self._write_groups()
        self._write_address_significance()
        self._write_extended_sections()
        write_symbols(self)
        for index in self.editor._emptied:
            self.headers[index] = self.headers[index]._replace(size=0)
        for index in self.editor._dropped:
            self.headers[index] = SectionHeader(*(0 for _ in self.headers[index]))  # SHT_NULL and all else are 0
        self._write_headers()
        return self.patches, bytes(self.tail)

    def number(self, symbol: int) -> int:
        """Return the final index of an input symbol or of a handle."""
        if symbol >= 0:
            return self.moved.get(SymbolIndex(symbol), symbol)
        if symbol % 2 == 0:
            return self.first_global - symbol // 2 - 1
        return self.first_new_global + (-symbol - 1) // 2

    def append(self, data: bytes | bytearray, align: int) -> int:
        """Append to the tail at an aligned file offset, and return that offset.

        Sixteen bytes are enough for any record; a section aligned to a page needs no page of padding in an object.
        """
        self.tail.extend(bytes(-(self.base + len(self.tail)) % min(max(align, 1), 16)))
        offset = self.base + len(self.tail)
        self.tail.extend(data)
        return offset

    # -- relocations -------------------------------------------------------------------------------------------------

    def _renumber_relocations(self) -> None:
        number, moved = self.number, self.moved
        changes = [(ref, (ref.offset, type_, number(symbol), addend)) for ref, type_, symbol, addend
                   in self.editor._retargeted]  # fmt: skip
        if moved:
            done = {ref[:2] for ref, _ in changes}  # section and entry
            changes += [
                (ref, (ref.offset, ref.type, moved[ref.symbol], ref.addend or 0))
                for ref in self.source.references(moved.keys())
                if ref[:2] not in done
            ]
        by_section: dict[SectionIndex, list[tuple[Reference, Entry]]] = {}
        for change in changes:
            by_section.setdefault(change[0].relocations, []).append(change)
        for index, members in by_section.items():
            section = self.source.sections[index]
            start, size = section.offset, section.entsize
            packed = self._encode([entry for _, entry in members], rela=section.type == layout.SHT_RELA)
            self.patches += [(start + ref.entry * size, data) for (ref, _), data in zip(members, packed)]

    def _encode(self, entries: Iterable[Entry], *, rela: bool) -> list[bytes]:
        return encode(entries, self.layout, self.source.machine, rela=rela)

    def _pack_new(self, relocations: list[NewRelocation], *, rela: bool) -> bytes:
        number = self.number
        numbers = {symbol: number(symbol) for symbol in {relocation[2] for relocation in relocations}}
        entries = [(offset, type_, numbers[symbol], addend) for offset, type_, symbol, addend in relocations]
        return b"".join(self._encode(entries, rela=rela))

    def _write_new_sections(self) -> None:
        first, editor = len(self.source.sections), self.editor
        relocations, groups, uses_rela = editor._relocations, editor._new_groups, editor.uses_rela
        for index, (name, type_, flags, content, link, info, align, entsize) in enumerate(editor._sections, first):
            if index in relocations:
                data = self._pack_new(relocations[index][1], rela=uses_rela)
            elif index in groups:
                signature, members = groups[index]
                data = content + b"".join(map(self.layout.u32.pack, members))
                info = self.number(signature)  # noqa: PLW2901 - known only now
            else:
                data = content if uses_rela else self._with_addends(index, content)
            offset = self.append(data, align)
            number = self.name_number(name)
            header = (number, type_, flags, 0, offset, len(data), link, info, align, entsize)
            self.headers.append(SectionHeader._make(header))

    def name_number(self, name: str) -> int:
        """Return the number of a new section's name, which its header has until the table of names is written."""
        return self.names.setdefault(name, len(self.names))

    def _with_addends(self, index: int, data: bytes) -> bytes:
        """Return a new section's bytes with the addends of its relocations, which carry none, in the 32-bit words."""
        header = index + 1
        if header not in self.editor._relocations:
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
            data += self._pack_new(relocations, rela=self.source.sections[index].type == layout.SHT_RELA)
            self._write_again(index, _by_offset(bytes(data), self.source.sections[index].entsize, self.layout))

    def _patched(self, index: SectionIndex, patches: list[tuple[int, bytes]], starts: list[int]) -> bytearray:
        """Return an existing section's content with the `patches`, which begin at the offsets `starts`."""
        section = self.source.sections[index]
        data = bytearray(self.source.content(index))
        first = bisect_left(starts, section.offset)
        for offset, patch in patches[first : bisect_left(starts, section.offset + section.size)]:
            at = offset - section.offset
            if at + len(patch) <= section.size:  # in a damaged object, sections may overlap
                data[at : at + len(patch)] = patch
        return data

    def _write_again(self, index: int, data: bytes | bytearray) -> None:
        offset = self.append(data, self.source.sections[index].align)
        self.headers[index] = self.headers[index]._replace(offset=offset, size=len(data))

    # -- what else holds symbol and section numbers ------------------------------------------------------------------

    def _write_groups(self) -> None:
        for index in self.source.of_type(layout.SHT_GROUP):
            section = self.source.sections[index]
            if section.link != self.source.symtab:
                continue
            signature = self.number(section.info)
            added = self.editor._group_members.get(index, ())
            if added:
                data = bytes(self.source.content(index)) + b"".join(self.layout.u32.pack(m) for m in added)
                self.headers[index] = section._replace(info=signature, offset=self.append(data, 4), size=len(data))
            elif signature != section.info:
                self.headers[index] = section._replace(info=signature)

    def _write_address_significance(self) -> None:
        for index in self.source.of_type(layout.SHT_LLVM_ADDRSIG, layout.SHT_LLVM_CALL_GRAPH_OLD):
            section = self.source.sections[index]
            if section.link != self.source.symtab:
                continue
            if section.type == layout.SHT_LLVM_ADDRSIG:
                symbols = decode_uleb(bytes(self.source.content(index)))
                if any(symbol in self.moved for symbol in symbols):
                    data = b"".join(encode_uleb(self.number(symbol)) for symbol in symbols)
                    self.headers[index] = section._replace(offset=self.append(data, 1), size=len(data))
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
        count = len(self.headers)
        extended = count >= layout.SHN_LORESERVE
        if extended:
            self.headers[0] = self.headers[0]._replace(size=count)
        fields = list(self.source.header_fields)
        fields[5] = self.append(_packed_headers(self.source, self.headers), self.layout.address_size)
        fields[11] = 0 if extended else count
        self.patches.append((16, self.layout.header.pack(*fields)))
        if self.editor._osabi is not None:
            self.patches.append((7, bytes([self.editor._osabi])))


def _packed_headers(source: ElfObject, headers: list[SectionHeader]) -> bytes:
    """Return the table of section headers, which begins with those of `source`; what stays is taken from its table."""
    record, old, start = source.layout.section, source.sections, source.header_fields[5]
    table = bytearray(memoryview(source.data)[start : start + len(old) * record.size])
    place = 0
    for header, before in zip(headers, old):
        if header is not before:
            record.pack_into(table, place, *header)
        place += record.size
    return bytes(table) + b"".join([record.pack(*header) for header in headers[len(old) :]])


def _by_offset(relocations: bytes, size: int, records: layout.Layout) -> bytes:
    """Return relocations in the order of their offsets, those of one offset as they were."""
    word = records.word
    entries = [relocations[at : at + size] for at in range(0, len(relocations), size)]
    return b"".join(sorted(entries, key=lambda entry: int(word.unpack_from(entry)[0])))
