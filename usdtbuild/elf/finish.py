"""The end of an edit: numbers the symbols, lays out what is appended, and patches what refers to moved symbols.

`ObjectEditor.finish` (`edit`) comes here once for each object; `finish_symbols` writes the symbol and string tables.
"""

from __future__ import annotations

from bisect import bisect_left

from . import layout
from .finish_symbols import new_header, write_symbols
from .headers import SectionHeader
from .layout import SymbolIndex
from .relocations import join_info
from .uleb import decode_uleb, encode_uleb

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .edit import NewRelocation, ObjectEditor
    from .layout import SectionIndex
    from .object import Reference


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
        rela = section.type == layout.SHT_RELA
        packed = self._pack_relocation(reference.offset, type_, symbol, addend, rela=rela)
        self.patches.append((section.offset + reference.entry * section.entsize, packed))

    def _pack_relocation(self, offset: int, type_: int, symbol: int, addend: int, *, rela: bool) -> bytes:
        info = join_info(symbol, type_, self.layout, self.source.machine)
        return self.layout.rela.pack(offset, info, addend) if rela else self.layout.rel.pack(offset, info)

    def _pack_relocations(self, relocations: list[NewRelocation]) -> bytes:
        number, records, machine = self.number, self.layout, self.source.machine
        entries = [
            (offset, join_info(number(symbol), type_, records, machine), addend)
            for offset, type_, symbol, addend in relocations
        ]
        if self.editor.uses_rela:
            return b"".join([records.rela.pack(*entry) for entry in entries])
        return b"".join([records.rel.pack(offset, info) for offset, info, _ in entries])

    def _write_new_sections(self) -> None:
        first = len(self.source.sections)
        for index, section in enumerate(self.editor._sections, first):
            data: bytes | bytearray = self._with_addends(index, section.data)
            if index in self.editor._relocations:
                data = self._pack_relocations(self.editor._relocations[index][1])
            info = section.info
            if index in self.editor._new_groups:
                signature, members = self.editor._new_groups[index]
                data = section.data + b"".join(map(self.layout.u32.pack, members))
                info = self.number(signature)
            offset = self.append(data, section.align)
            header = new_header(section.name, section.type, offset, len(data), section.link, self.names)
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
            rela = self.source.sections[index].type == layout.SHT_RELA
            for r in relocations:
                data += self._pack_relocation(r.offset, r.type, self.number(r.symbol), r.addend, rela=rela)
            self._write_again(index, self._by_offset(bytes(data), self.source.sections[index].entsize))

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

    def _by_offset(self, relocations: bytes, size: int) -> bytes:
        """Return relocations in the order of their offsets, those of one offset as they were."""
        word = self.layout.word
        records = [relocations[at : at + size] for at in range(0, len(relocations), size)]
        return b"".join(sorted(records, key=lambda record: int(word.unpack_from(record)[0])))

    def _write_again(self, index: int, data: bytes | bytearray) -> None:
        offset = self.append(data, self.source.sections[index].align)
        self.headers[index] = self.headers[index]._replace(offset=offset, size=len(data))

    # -- what else holds symbol and section numbers ------------------------------------------------------------------

    def _write_groups(self) -> None:
        for index, section in self.source.numbered():
            if section.type != layout.SHT_GROUP or section.link != self.source.symtab:
                continue
            added = self.editor._group_members.get(index, ())
            header = section._replace(info=self.number(section.info))
            if added:
                data = bytes(self.source.content(index)) + b"".join(self.layout.u32.pack(m) for m in added)
                header = header._replace(offset=self.append(data, 4), size=len(data))
            self.headers[index] = header

    def _write_address_significance(self) -> None:
        for index, section in self.source.numbered():
            if section.type == layout.SHT_LLVM_ADDRSIG and section.link == self.source.symtab:
                symbols = decode_uleb(bytes(self.source.content(index)))
                if any(symbol in self.moved for symbol in symbols):
                    data = b"".join(encode_uleb(self.number(symbol)) for symbol in symbols)
                    self.headers[index] = section._replace(offset=self.append(data, 1), size=len(data))
            elif section.type == layout.SHT_LLVM_CALL_GRAPH_OLD and section.link == self.source.symtab:
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
        packed = b"".join(self.layout.section.pack(*header) for header in self.headers)
        fields = list(self.source.header_fields)
        fields[5] = self.append(packed, self.layout.address_size)
        fields[11] = 0 if extended else count
        self.patches.append((16, self.layout.header.pack(*fields)))
        if self.editor._osabi is not None:
            self.patches.append((7, bytes([self.editor._osabi])))
