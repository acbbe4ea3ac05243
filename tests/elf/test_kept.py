"""What else of an object holds numbers of sections and symbols, or says something of a symbol: all of it stays true."""

from __future__ import annotations

import io
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from elftools.elf.elffile import ELFFile

from usdtbuild.elf import layout
from usdtbuild.elf.edit import NewRelocation, ObjectEditor
from usdtbuild.elf.layout import SectionIndex, SymbolIndex
from usdtbuild.elf.object import ElfError, ElfObject
from usdtbuild.instrument.context import first_strong_definition

from .test_write import apply

GROUPED = """
    .section .text.shared,"axG",@progbits,shared,comdat
    .globl shared
shared: ret
"""
# Three globals, defined in sections of their own, and a section whose content and header the tests fill in: it takes
# the place of what compilers write only into very large objects, or older ones wrote.
FILLED = """
    .globl first, second, third
    .text
first: call second
    .section .text.second,"ax",@progbits
second: call third
    .section .text.third,"ax",@progbits
third: ret
    .section .filled,"",@progbits
    .fill 64,4,0
"""


def filled(path: Path, type_: int, entsize: int, words: Mapping[Any, int], size: int) -> bytearray:
    """Return the object with `.filled` as a section of `type_` that belongs to the symbol table, holding `words`."""
    source = ElfObject(path.read_bytes(), str(path))
    (index,) = source.sections_named(".filled")
    section = source.sections[index]
    data = bytearray(path.read_bytes())
    header = section._replace(type=type_, link=source.symtab, size=size, entsize=entsize, flags=0)
    place = source.header_fields[5] + index * source.layout.section.size
    data[place : place + source.layout.section.size] = source.layout.section.pack(*header)
    for at, word in words.items():
        struct.pack_into("<I", data, section.offset + 4 * at, word)
    return data


def numbers(source: ElfObject) -> dict[str, SymbolIndex]:
    """Return the number of each symbol that has a name."""
    table = map(SymbolIndex, range(1, source.symbol_count))
    return {source.symbol_name(i): i for i in table if source.symbol(i).name}


def add_labels(path: Path, count: int = 2) -> ElfObject:
    """Add so many labels that as many globals move to the end of the table; return the object read again."""
    editor = ObjectEditor(ElfObject(path.read_bytes(), str(path)))
    section = editor.next_section
    relocations = [NewRelocation(8 * i, 1, editor.add_label(section, 8 * i), 0) for i in range(count)]
    editor.add_section(".new", layout.SHT_NOTE, 0, bytes(8 * count), align=4, relocations=relocations)
    return ElfObject(apply(path, editor), str(path))


def read_last(path: Path) -> int:
    """Return the section of an object's last symbol."""
    source = ElfObject(path.read_bytes(), str(path))
    return source.symbol(SymbolIndex(source.symbol_count - 1)).section


def with_extended_numbers(path: Path, short: int = 0) -> None:
    """Let the symbols `first`, `second` and `third` have their sections' numbers in a table of their own."""
    source = ElfObject(path.read_bytes(), str(path))
    found = numbers(source)
    words = {found[name]: source.symbol(found[name]).section for name in ("first", "second", "third")}
    data = filled(path, layout.SHT_SYMTAB_SHNDX, 4, words, 4 * (source.symbol_count - short))
    start = source.sections[source.symtab].offset
    for number in words:
        struct.pack_into("<H", data, start + 24 * number + 6, layout.SHN_XINDEX)
    path.write_bytes(data)


def test_extended_section_numbers_move_with_their_symbols(assemble: Any) -> None:
    path = assemble(FILLED)
    before = ElfObject(path.read_bytes(), str(path))
    wanted = {name: before.section_name(before.symbol(i).section) for name, i in numbers(before).items()}
    with_extended_numbers(path)
    after = add_labels(path)
    assert after.symbol(numbers(after)["first"]).section
    names = {name: after.section_name(after.symbol(i).section) for name, i in numbers(after).items()}
    assert names == wanted
    assert wanted["third"] == ".text.third"


def test_a_table_of_extended_numbers_one_entry_short_is_an_error(assemble: Any) -> None:
    path = assemble(FILLED)
    last = ElfObject(path.read_bytes(), str(path))
    assert last.symbol_name(SymbolIndex(last.symbol_count - 1)) in ("first", "second", "third")
    with_extended_numbers(path)
    assert read_last(path)
    with_extended_numbers(path, short=1)
    with pytest.raises(ElfError):
        read_last(path)


def test_both_symbols_of_an_old_call_graphs_edges_are_renumbered(assemble: Any) -> None:
    """LLVM before 13 wrote symbol numbers into the section: from, to, weight."""
    path = assemble(FILLED)
    found = numbers(ElfObject(path.read_bytes(), str(path)))
    edges = [("first", "second"), ("second", "third"), ("third", "first")]
    words: dict[int, int] = {4 * i + side: found[edge[side]] for i, edge in enumerate(edges) for side in (0, 1)}
    words.update({4 * i + 2: 7 + i for i in range(len(edges))})
    path.write_bytes(filled(path, layout.SHT_LLVM_CALL_GRAPH_OLD, 16, words, 16 * len(edges)))
    after = add_labels(path)
    (index,) = [i for i, s in enumerate(after.sections) if s.type == layout.SHT_LLVM_CALL_GRAPH_OLD]
    entries = list(struct.iter_unpack("<IIQ", bytes(after.content(SectionIndex(index)))))
    assert [(after.symbol_name(a), after.symbol_name(b)) for a, b, _ in entries] == edges
    assert [weight for *_, weight in entries] == [7, 8, 9]


def test_what_a_symbol_says_beside_its_visibility_stays(assemble: Any, need: Any) -> None:
    """`.variant_pcs`: its function keeps other registers, so that a lazy binding would be wrong."""
    need("clang")
    text = ".variant_pcs there\n.globl work\nwork: bl there\n"
    path = assemble(text, "clang", "--target=aarch64-linux-gnu")
    source = ElfObject(path.read_bytes(), str(path))
    other = source.symbol(numbers(source)["there"]).other
    assert other & ~3, "the assembler no longer marks the symbol"
    editor = ObjectEditor(source)
    editor.change_symbol(numbers(source)["there"], layout.STB_WEAK, layout.STT_NOTYPE)
    after = ElfObject(apply(path, editor), str(path))
    assert after.symbol(numbers(after)["there"]).other == other | layout.STV_HIDDEN


def test_labels_are_hidden_and_section_symbols_are_not(assemble: Any) -> None:
    path = assemble(".globl work\nwork: ret")
    editor = ObjectEditor(ElfObject(path.read_bytes(), str(path)))
    section = editor.next_section
    editor.add_label(section, 4, "label")
    editor.add_section_symbol(section)
    editor.add_labels(section, [5, 6])
    editor.add_section(".new", layout.SHT_PROGBITS, layout.SHF_ALLOC, bytes(8), align=4)
    after = ElfObject(apply(path, editor), str(path))
    symbols = [after.symbol(SymbolIndex(i)) for i in range(after.symbol_count)]
    ours = [symbol for symbol in symbols if symbol.section == section]
    assert [(symbol.info & 15, symbol.other, symbol.value) for symbol in ours] == [
        (layout.STT_NOTYPE, layout.STV_HIDDEN, 4), (layout.STT_SECTION, layout.STV_DEFAULT, 0),
        (layout.STT_NOTYPE, layout.STV_HIDDEN, 5), (layout.STT_NOTYPE, layout.STV_HIDDEN, 6),
    ]  # fmt: skip


def members(content: bytes) -> dict[str, set[str]]:
    """Return the names of each group's members, by its signature; each must be flagged as one."""
    elf: Any = ELFFile(io.BytesIO(content))
    symbols = elf.get_section_by_name(".symtab")
    found: dict[str, set[str]] = {}
    for section in elf.iter_sections():
        if section["sh_type"] == "SHT_GROUP":
            _, *indexes = struct.unpack(f"<{section['sh_size'] // 4}I", section.data())
            each = [elf.get_section(index) for index in indexes]
            assert all(member["sh_flags"] & layout.SHF_GROUP for member in each), [member.name for member in each]
            found[symbols.get_symbol(section["sh_info"]).name] = {member.name for member in each}
    return found


def test_relocations_of_a_groups_section_join_the_group(assemble: Any) -> None:
    """Those of a new section, in an old group and in a new one, and the first of an old section."""
    path = assemble(GROUPED + ".globl lone\n.text\nlone: ret")
    source = ElfObject(path.read_bytes(), str(path))
    editor = ObjectEditor(source)
    (code,) = source.sections_named(".text.shared")
    (group,) = set(source.groups().values())
    fresh = editor.add_group(numbers(source)["lone"])
    for name, each in (("old", group), ("fresh", fresh)):
        label = editor.add_label(code, 0)
        editor.add_section(f".in.{name}", layout.SHT_PROGBITS, layout.SHF_ALLOC, bytes(8), align=8,
                           relocations=[NewRelocation(0, 1, label, 0)], group=each)  # fmt: skip
    editor.add_relocations(code, [NewRelocation(0, 0, editor.add_label(code, 0), 0)])
    assert members(apply(path, editor)) == {
        "shared": {".text.shared", ".in.old", ".rela.in.old", ".rela.text.shared"},
        "lone": {".in.fresh", ".rela.in.fresh"},
    }


def test_a_symbol_in_a_group_is_not_this_objects_own(assemble: Any) -> None:
    """A name made of it would stand in every object that has the group."""
    lone = "\n.globl {0}\n.text\n{0}: ret"
    for name in ("aaa", "zzz"):  # before and behind the group's symbol in the table
        source = ElfObject(assemble(GROUPED + lone.format(name)).read_bytes(), name)
        assert source.symbol_name(first_strong_definition(source, source.groups())) == name
    source = ElfObject(assemble(GROUPED).read_bytes(), "grouped")
    assert first_strong_definition(source, source.groups()) == 0
