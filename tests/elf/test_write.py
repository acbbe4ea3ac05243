"""Editing by appending: the object's own symbols and references stay what they were, and what is new is where it
should be, read back with pyelftools."""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import Any

import pytest
from elftools.elf.elffile import ELFFile
from hypothesis import given
from hypothesis import strategies as st

from usdtbuild.elf import layout
from usdtbuild.elf.edit import NewRelocation, ObjectEditor
from usdtbuild.elf.layout import SectionIndex, SymbolIndex
from usdtbuild.elf.object import ElfObject
from usdtbuild.elf.uleb import decode_uleb, encode_uleb
from usdtbuild.files import edited

# Globals before and behind each other, referred to from code, data, a group's signature and each other.
TEXT = """
    .globl first, second, third
    .text
first: call second
    call third
    call elsewhere
second: ret
    .data
    .quad first, second, third, elsewhere
    .section .text.third,"axG",@progbits,third,comdat
third: jmp first
"""


def apply(path: Path, editor: ObjectEditor) -> bytes:
    return bytes(edited(path.read_bytes(), *editor.finish()))


def edit(path: Path, labels: int, names: tuple[str, ...] = ()) -> Any:
    """Add a note section with `labels` labels on it and globals with `names`; return the object read back."""
    source = ElfObject(path.read_bytes(), str(path))
    editor = ObjectEditor(source)
    index = editor.next_section
    handles = [editor.add_global(name, layout.STB_GLOBAL, index, 4) for name in names]
    handles += [editor.add_label(index, 8 * number) for number in range(labels)]
    relocations = [NewRelocation(8 * number, 1, handle, number) for number, handle in enumerate(handles)]
    content = bytes(8 * (labels + 1))
    assert editor.add_section(".new", layout.SHT_NOTE, 0, content, align=4, relocations=relocations) == index
    return ELFFile(io.BytesIO(apply(path, editor)))


def references(elf: Any) -> dict[tuple[str, int], str]:
    """Return (section, offset) -> name of the symbol that a relocation names, and each group's signature."""
    symbols = elf.get_section_by_name(".symtab")
    found = {}
    for section in elf.iter_sections():
        if section["sh_type"] == "SHT_RELA" and section.name != ".rela.new":
            for relocation in section.iter_relocations():
                symbol = symbols.get_symbol(relocation["r_info_sym"])
                found[section.name, relocation["r_offset"]] = symbol.name
        elif section["sh_type"] == "SHT_GROUP":
            found["group", len(found)] = symbols.get_symbol(section["sh_info"]).name
    return found


@pytest.mark.parametrize("compiler", ["gcc", "clang"])
@pytest.mark.parametrize("labels", [0, 1, 2, 3, 4, 5, 40])
def test_references_keep_their_symbols(assemble: Any, need: Any, compiler: str, labels: int) -> None:
    """The first globals move to make room for local labels, also where there are more labels than globals."""
    need(compiler)
    path = assemble(TEXT, compiler, "-Wa,-mrelax-relocations=no")
    before: Any = ELFFile(io.BytesIO(path.read_bytes()))
    after = edit(path, labels, ("extra", "more"))
    assert references(after) == references(before)
    symbols = list(after.get_section_by_name(".symtab").iter_symbols())
    first_global = after.get_section_by_name(".symtab")["sh_info"]
    assert [s["st_info"]["bind"] == "STB_LOCAL" for s in symbols] == [i < first_global for i in range(len(symbols))]
    definitions = {s.name: (s["st_shndx"], s["st_value"]) for s in symbols if s["st_info"]["bind"] != "STB_LOCAL"}
    for symbol in before.get_section_by_name(".symtab").iter_symbols():
        if symbol["st_info"]["bind"] != "STB_LOCAL":
            assert definitions[symbol.name] == (symbol["st_shndx"], symbol["st_value"])


def test_new_relocations_name_the_new_symbols(assemble: Any) -> None:
    elf = edit(assemble(TEXT), 3, ("extra",))
    symbols = elf.get_section_by_name(".symtab")
    found = [symbols.get_symbol(r["r_info_sym"]) for r in elf.get_section_by_name(".rela.new").iter_relocations()]
    assert [(s.name, s["st_info"]["bind"], s["st_value"]) for s in found] == [
        ("extra", "STB_GLOBAL", 4), ("", "STB_LOCAL", 0), ("", "STB_LOCAL", 8), ("", "STB_LOCAL", 16),
    ]  # fmt: skip
    assert {s["st_other"]["visibility"] for s in found} == {"STV_HIDDEN"}


def test_only_the_tail_grows(assemble: Any) -> None:
    """Without labels nothing that was there changes, but for the ELF header's pointer to the section headers."""
    path = assemble(TEXT)
    editor = ObjectEditor(ElfObject(path.read_bytes(), str(path)))
    editor.add_section(".new", layout.SHT_PROGBITS, 0, b"new", align=1)
    assert apply(path, editor)[64 : path.stat().st_size] == path.read_bytes()[64:]


def test_a_new_section_may_join_an_existing_group_and_a_new_one(assemble: Any) -> None:
    path = assemble(TEXT)
    source = ElfObject(path.read_bytes(), str(path))
    editor = ObjectEditor(source)
    old = source.groups()[source.sections_named(".text.third")[0]]
    member = editor.add_section(".new", layout.SHT_PROGBITS, 0, b"1", align=1, group=old)
    new = editor.add_group(editor.add_label(member, 0, "signature"), 0)
    other = editor.add_section(".other", layout.SHT_PROGBITS, 0, b"2", align=1, group=new)
    again = ElfObject(apply(path, editor), "again")
    assert (again.groups()[member], again.groups()[other]) == (old, new)
    assert again.symbol_name(SymbolIndex(again.sections[new].info)) == "signature"
    assert again.sections[member].flags & again.sections[other].flags & layout.SHF_GROUP
    assert again.data[again.sections[new].offset] == 0
    assert again.data[again.sections[old].offset] == layout.GRP_COMDAT


@pytest.mark.parametrize("labels", [1, 3])
def test_clang_s_tables_of_symbol_numbers_follow(
    assemble: Any, need: Any, run: Any, tmp_path: Path, labels: int
) -> None:
    """`.llvm_addrsig` and the call graph profile name symbols by number (the profile through relocations since 13)."""
    need("clang")
    profile = "\n.addrsig\n.addrsig_sym first\n.addrsig_sym third\n.cg_profile first, second, 32\n"
    path = assemble(TEXT + profile, "clang")
    changed = tmp_path / "changed.o"
    editor = ObjectEditor(ElfObject(path.read_bytes(), str(path)))
    for number in range(labels):
        editor.add_label(SectionIndex(1), number)
    changed.write_bytes(apply(path, editor))
    for option in ("--addrsig", "--cg-profile"):
        shown = [named(run("llvm-readelf", "--elf-output-style=LLVM", option, each).stdout) for each in (path, changed)]
        assert shown[0][0] == "first"
        assert shown[0] == shown[1]


def named(text: str) -> list[str]:
    """Return the names of symbols in a dump, without their numbers: `Sym: first (5)`."""
    return re.findall(r": (\w+) \(\d+\)", text)


@given(st.lists(st.integers(0, 2**64)))
def test_uleb_is_read_as_it_was_written(numbers: list[int]) -> None:
    assert decode_uleb(b"".join(map(encode_uleb, numbers))) == numbers


@given(st.binary())
def test_any_bytes_are_some_uleb_numbers(data: bytes) -> None:
    assert all(number >= 0 for number in decode_uleb(data))
