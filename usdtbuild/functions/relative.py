"""A table of patchable entries that costs nothing at start-up: 32-bit distances instead of addresses.

`__patchable_function_entries` holds an absolute address a function, in a PIE one dynamic relocation each. This replaces
it in an object by sections `.usdtbuild.functions`, one for each section of code that has entries:

    .long function - .        for each entry, read-only, resolved at link time

Each is linked to its code (SHF_LINK_ORDER), a member of its COMDAT group if it has one, and held by an R_*_NONE
relocation at the function's entry, so that linkers keep and drop both together (with --gc-sections too). This also
mends the table of gcc 12, which is outside the groups. The compilers' sections become empty; names and addresses that
they had stay as they were. The name is no C identifier on purpose: `__start_NAME` would find such a section, and mold
would keep all of them alive for that, and their functions with them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..elf import layout as elf
from ..elf.edit import NewRelocation, ObjectEditor
from ..elf.foreign import BITCODE
from ..elf.intermediate import LtoObjectError, refuse_slim_lto
from ..elf.layout import SectionIndex
from ..elf.object import ElfObject, Reference
from ..files import open_input, write_edited
from ..machines import facts_of
from ..record import NamedTuple
from .table import RELATIVE, STANDARD

if TYPE_CHECKING:
    from ..files import Data
    from ..machines.facts import Relocations

_NONE = 0
_CURE = "leave --patchable-table=relative away"


class OldEntry(NamedTuple):
    """One entry of the compiler's table: the relocation that makes it, and the code it names."""

    reference: Reference
    addend: int
    section: SectionIndex
    offset: int


def convert_file(source: str, target: str, path: str = "") -> int:
    """Write the object `source` with a relative table to `target`; return its entries, 0 if nothing was written.

    `path` is what errors call the object, by default `source`.
    Raises UsdtError for an object whose table can't be understood; then `target` is as it was.
    """
    with open_input(source) as data:
        patches, tail, count = convert(data.view, path or source)
        if count:
            write_edited(data, patches, tail, target, mode=data.mode)
    return count


def convert(data: Data, path: str) -> tuple[list[tuple[int, bytes]], bytes | bytearray, int]:
    """Return (bytes to overwrite, bytes to append, entries) for the object file content `data`. Raises UsdtError."""
    if not may_have_table(data):
        return [], b"", 0
    if data[:4] in BITCODE:
        raise LtoObjectError(f"{path}: is LLVM bitcode, which has no table of entries yet; compile it with -fno-lto")
    source = ElfObject(data, path)
    intermediate = refuse_slim_lto(source)
    tables = [index for index in source.sections_named(STANDARD) if source.sections[index].size]
    if not tables:
        return [], b"", 0
    if _types(source) is None:
        raise source.error(f"what a relative table needs on ELF machine {source.machine} is not known", _CURE)
    entries = [entry for index in tables for entry in _entries(source, index)]
    editor = ObjectEditor(source)
    groups = source.groups()
    by_section: dict[SectionIndex, list[OldEntry]] = {}
    for entry in sorted(entries, key=lambda entry: (entry.section, entry.offset)):
        by_section.setdefault(entry.section, []).append(entry)
    for section, members in by_section.items():
        _write(editor, section, members, groups.get(section, SectionIndex(0)))
    for index in tables:
        for unused in (index, *_applied_to(source, index)):
            if unused in groups:
                editor.empty_section(unused)
            else:
                editor.drop_section(unused)
    for index in intermediate:  # a linker's plugin would compile it again, and make the other table
        editor.drop_section(index)
    patches, tail = editor.finish()
    return patches, tail, len(entries)


def _types(source: ElfObject) -> Relocations | None:
    known = facts_of(source.machine)
    return known.relocations if known and known.relocations.pc32 >= 0 else None


def may_have_table(data: Data) -> bool:
    """Tell from an object's bytes whether it may have entries, now or, as an LTO object, when it is linked.

    GCC's LTO objects have the compiler's options as text. In LLVM's bitcode nothing shows as it is.
    """
    return data.find(b"patchable_function_entries") >= 0 or data.find(b"patchable-function") >= 0 or data[:4] in BITCODE


def _applied_to(source: ElfObject, index: SectionIndex) -> list[SectionIndex]:
    return [at for at in source.relocation_sections() if source.sections[at].info == index]


def _entries(source: ElfObject, index: SectionIndex) -> list[OldEntry]:
    """Return the entries of the compiler's table in section `index`; one that isn't understood is an error."""
    section = source.sections[index]
    size = source.layout.address_size
    types = _types(source)
    absolute = types.address(is64=source.layout.is64) if types else -1
    if section.size % size:
        raise source.error(f"{STANDARD} has {section.size} bytes, which is no multiple of {size}", _CURE)
    found: dict[int, OldEntry] = {}
    for relocations in _applied_to(source, index):
        for number in range(source.sections[relocations].size // source.sections[relocations].entsize):
            reference = source.relocation(relocations, number)
            if reference.type == _NONE:
                continue
            symbol = source.symbol(reference.symbol)
            addend = reference.addend
            if addend is None:
                place = section.offset + reference.offset
                addend = int.from_bytes(source.data[place : place + size], "little" if source.layout.little else "big")
            target = source.sections[symbol.section] if symbol.section < len(source.sections) else None
            if reference.type != absolute or target is None or not target.flags & elf.SHF_EXECINSTR:
                raise source.error(
                    f"entry {reference.offset // size} of {STANDARD} is relocated with type {reference.type} "
                    "against something that isn't code of this object", _CURE,
                )  # fmt: skip
            found[reference.offset] = OldEntry(reference, addend, symbol.section, symbol.value + addend)
    if sorted(found) != list(range(0, section.size, size)):
        raise source.error(f"{STANDARD} has {section.size // size} entries and {len(found)} relocations", _CURE)
    return [found[offset] for offset in sorted(found)]


def _write(editor: ObjectEditor, section: SectionIndex, members: list[OldEntry], group: int) -> None:
    """Append the table of one code section, and the relocation that keeps it with the code."""
    source = editor.source
    types = _types(source)
    pc32 = types.pc32 if types else -1
    relocations = [
        NewRelocation(4 * at, pc32, entry.reference.symbol, entry.addend) for at, entry in enumerate(members)
    ]  # fmt: skip
    flags = elf.SHF_ALLOC | elf.SHF_LINK_ORDER
    table = editor.add_section(
        RELATIVE, elf.SHT_PROGBITS, flags, bytes(4 * len(members)),
        align=4, link=section, relocations=relocations, group=group,
    )  # fmt: skip
    tie = NewRelocation(members[0].offset, _NONE, editor.add_label(table, 0), 0)
    editor.add_relocations(section, [tie])
