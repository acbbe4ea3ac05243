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

from . import layout
from .changes import ABSOLUTE, NewRelocation, NewRelocations, ObjectChanges
from .finish import Finisher
from .layout import SectionIndex
from .relocations import RepeatedRelocations

__all__ = ["ABSOLUTE", "NewRelocation", "NewRelocations", "ObjectEditor"]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from .layout import SymbolIndex
    from .object import Reference

# A symbol that the object doesn't have yet is named by a negative number until `finish` knows its place:
# -2, -4, ... are new local labels, -1, -3, ... new global symbols.
_LABEL = layout.STB_LOCAL << 4 | layout.STT_NOTYPE


class ObjectEditor(ObjectChanges):
    """Collects changes to one object; `finish` returns them as patches and a tail."""

    __slots__ = ()

    # -- what callers change -----------------------------------------------------------------------------------------

    def patch_all(self, section: SectionIndex, patches: Iterable[tuple[int, bytes]]) -> None:
        """Overwrite bytes of an existing section at these offsets."""
        start = self.source.sections[section].offset
        self.patches += [(start + offset, data) for offset, data in patches]

    def set_osabi_gnu(self) -> None:
        """Mark the object as using GNU extensions (SHF_GNU_RETAIN), if it names no other system."""
        if self.source.osabi == layout.ELFOSABI_NONE:
            self.osabi = layout.ELFOSABI_GNU

    @property
    def next_section(self) -> SectionIndex:
        """The index that the next `add_section` or `add_group` will return."""
        return self.section_after(0)

    def section_after(self, others: int) -> SectionIndex:
        """Return the index of the section that is added after so many others; a section's relocations are one."""
        return SectionIndex(self.source.section_count + len(self.sections) + others)

    def add_label(self, section: SectionIndex, value: int, name: str = "") -> int:
        """Add a local label, usually a nameless one, in a section or ABSOLUTE; return its handle."""
        self.labels.append((name, _LABEL, layout.STV_HIDDEN, section, value, 0))
        return -2 * len(self.labels)

    def add_labels(self, section: SectionIndex, values: Sequence[int]) -> Sequence[int]:
        """Add nameless local labels in a section; return their handles."""
        first = -2 * len(self.labels) - 2
        hidden = layout.STV_HIDDEN
        self.labels += [("", _LABEL, hidden, section, value, 0) for value in values]
        return range(first, first - 2 * len(values), -2)

    def add_section_symbol(self, section: SectionIndex) -> int:
        """Add the local symbol that stands for a section and lends it its name; return its handle."""
        self.labels.append(("", layout.STT_SECTION, layout.STV_DEFAULT, section, 0, 0))
        return -2 * len(self.labels)

    def add_global(
        self, name: str, binding: int, section: int = 0, value: int = 0, size: int = 0, type_: int = layout.STT_NOTYPE
    ) -> int:
        """Add a named hidden symbol (undefined by default); return its handle."""
        self.globals.append((name, binding << 4 | type_, layout.STV_HIDDEN, section, value, size))
        return -2 * len(self.globals) + 1

    def change_symbol(
        self,
        index: SymbolIndex,
        binding: int,
        type_: int,
        section: SectionIndex | None = None,
        value: int | None = None,
        size: int = 0,
    ) -> None:
        """Give an existing global symbol another binding and definition, and hide it."""
        self.changed_symbols[index] = (binding << 4 | type_, layout.STV_HIDDEN, section, value, size)

    def leave_undefined(self, symbols: Iterable[SymbolIndex]) -> None:
        """Let undefined symbols, to which nothing refers any more, be what no linker misses: weak and hidden."""
        self.left += symbols

    def retarget(self, reference: Reference, type_: int, symbol: int, addend: int = 0) -> None:
        """Turn an existing relocation into one of another type against another symbol."""
        self.retargeted.append((reference, type_, symbol, addend))

    def tie(self, references: Iterable[Reference], type_: int, symbols: Iterable[int]) -> None:
        """Turn existing relocations into ones of another type against these symbols, one for each."""
        self.retargeted += [(reference, type_, symbol, 0) for reference, symbol in zip(references, symbols)]

    def move(self, reference: Reference, offset: int) -> None:
        """Let an existing relocation apply at another offset, since its instruction moved there."""
        moved = reference._replace(offset=offset)
        self.retargeted.append((moved, moved.type, moved.symbol, moved.addend or 0))

    def add_section(
        self,
        name: str,
        type_: int,
        flags: int,
        data: bytes,
        *,
        align: int,
        link: int = 0,
        entsize: int = 0,
        relocations: NewRelocations | RepeatedRelocations | Sequence[NewRelocation] = (),
        group: int = 0,
    ) -> SectionIndex:
        """Append a section, with its relocations and as a member of `group` (a group section) if given.

        Return its index, which is final. Columns of relocations may be changed until `finish`.
        """
        if group:
            flags |= layout.SHF_GROUP
        index = SectionIndex(self.source.section_count + len(self.sections))
        self.sections.append((name, type_, flags, data, link, 0, align, entsize))
        self._join(group, index)
        if relocations:
            if not isinstance(relocations, (NewRelocations, RepeatedRelocations)):
                relocations = NewRelocations(relocations)
            self._add_relocation_section(name, index, relocations, group)
        return index

    def extend_section(self, section: SectionIndex, data: bytes, relocations: list[NewRelocation]) -> int:
        """Add bytes to the end of a section, with relocations whose offsets count from there; return where that is.

        The section is an existing one that has relocations already, or a new one that was added with some.
        """
        first_new = self.source.section_count
        if section < first_new:
            added = self.extended.setdefault(section, bytearray())
            start = self.source.sections[section].size + len(added)
            added += data
        else:
            name, type_, flags, before, *rest = self.sections[section - first_new]
            start = len(before)
            self.sections[section - first_new] = (name, type_, flags, before + data, *rest)  # type: ignore[assignment]
        self.add_relocations(section, [r._replace(offset=start + r.offset) for r in relocations])
        return start

    def add_relocations(self, section: SectionIndex, relocations: list[NewRelocation]) -> None:
        """Add relocations to a section; where it has some, each goes behind those of its offset and of lower ones."""
        if section >= self.source.section_count:
            columns = self.relocations[section + 1][1]
            assert isinstance(columns, NewRelocations)  # nobody adds to repeated ones
            columns.extend(relocations)
            return
        existing = [i for i in self.source.relocation_sections() if self.source.sections[i].info == section]
        if existing:
            self.more_relocations.setdefault(existing[0], NewRelocations()).extend(relocations)
        else:
            group = self.source.groups().get(section, SectionIndex(0))
            self._add_relocation_section(self.source.section_name(section), section, NewRelocations(relocations), group)

    def _add_relocation_section(
        self, name: str, target: int, relocations: NewRelocations | RepeatedRelocations, group: int
    ) -> None:
        entry = self.layout.rela if self.uses_rela else self.layout.rel
        prefix, type_ = (".rela", layout.SHT_RELA) if self.uses_rela else (".rel", layout.SHT_REL)
        flags = layout.SHF_INFO_LINK | (layout.SHF_GROUP if group else 0)
        index, size = self.source.section_count + len(self.sections), self.layout.address_size
        self.sections.append((prefix + name, type_, flags, b"", self.source.symtab, target, size, entry.size))
        self.relocations[index] = (target, relocations)
        self._join(group, index)

    def _join(self, group: int, index: int) -> None:
        if group in self.new_groups:
            self.new_groups[group][1].append(index)
        elif group:
            self.group_members.setdefault(group, []).append(index)

    def drop_section(self, index: SectionIndex) -> None:
        """Turn an existing section into an empty, nameless SHT_NULL one, which every tool passes over.

        The name goes too, because gcc's linker plugin looks for `.gnu.lto_` names before it looks at types.
        """
        self.dropped.append(index)

    def empty_section(self, index: SectionIndex) -> None:
        """Take all bytes from an existing section, which stays: where `drop_section` would leave a gap in a group."""
        self.emptied.append(index)

    def add_group(self, signature: int, flags: int = layout.GRP_COMDAT) -> SectionIndex:
        """Append a group whose signature is the symbol (index or handle) `signature`; return its index."""
        data = self.layout.u32.pack(flags)
        index = self.add_section(".group", layout.SHT_GROUP, 0, data, align=4, entsize=4, link=self.source.symtab)
        self.new_groups[index] = (signature, [])
        return index

    # -- the result --------------------------------------------------------------------------------------------------

    def finish(self) -> tuple[list[tuple[int, bytes]], bytearray]:
        """Return (patches, tail): bytes to overwrite at file offsets, and bytes to append to the file."""
        return Finisher(self).run()
