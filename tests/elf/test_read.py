"""Reading objects: sections, symbols and relocations as pyelftools sees them, and errors that say what is damaged."""

from __future__ import annotations

import io
import random
import re
import struct
from pathlib import Path
from typing import Any

import pytest
from elftools.elf.elffile import ELFFile

from usdtbuild.elf import layout
from usdtbuild.elf.layout import SymbolIndex
from usdtbuild.elf.object import ElfError, ElfObject, find_symbols
from usdtbuild.elf.symbols import FunctionIndex, Strings, SymbolTable
from usdtbuild.instrument.context import first_strong_definition

TEXT = """
    .text
    .globl work
    .type work,@function
work:
    call __dtrace_app___req
    call __dtrace_app___start
    ret
    .data
    .quad work
    .quad mydtrace_app___req
    .section .text.inline,"axG",@progbits,inline,comdat
    .weak inline
inline: ret
"""


def read(path: Path) -> ElfObject:
    return ElfObject(path.read_bytes(), str(path))


@pytest.mark.parametrize("compiler", ["gcc", "clang"])
def test_sections_symbols_and_relocations_are_those_that_pyelftools_reads(
    assemble: Any, need: Any, compiler: str
) -> None:
    need(compiler)
    path = assemble(TEXT, compiler)
    ours: Any = read(path)
    theirs: Any = ELFFile(io.BytesIO(path.read_bytes()))
    names = [section.name for section in theirs.iter_sections()]
    assert [ours.section_name(i) for i in range(len(ours.sections))] == names
    symbols = list(theirs.get_section_by_name(".symtab").iter_symbols())
    assert ours.symbol_count == len(symbols)
    for index, symbol in enumerate(symbols):
        assert ours.symbol(index).value == symbol["st_value"]
        if symbol["st_info"]["type"] != "STT_SECTION":
            assert ours.symbol_name(index) == symbol.name
    index = next(i for i, symbol in enumerate(symbols) if symbol.name == "__dtrace_app___req")
    reference = ours.references({index})[0]
    relocations = list(theirs.get_section_by_name(".rela.text").iter_relocations())
    entry = relocations[reference.entry]
    assert (reference.offset, reference.type, reference.addend) == (
        entry["r_offset"], entry["r_info_type"], entry["r_addend"],
    )  # fmt: skip


def test_a_name_inside_another_is_no_match(assemble: Any) -> None:
    """Assemblers share the ends of names, so a name may begin in the middle of a string; it must not just end one."""
    source = read(assemble(TEXT))
    assert sorted(find_symbols(source, (b"__dtrace",)).values()) == ["__dtrace_app___req", "__dtrace_app___start"]


def test_a_name_that_shares_the_end_of_another_is_found(assemble: Any) -> None:
    path = assemble(".globl x__dtrace_p___q\n.quad x__dtrace_p___q\n.globl __dtrace_p___q\n.quad __dtrace_p___q")
    assert path.read_bytes().count(b"__dtrace_p___q\0") == 1, "the assembler no longer shares the ends of names"
    assert list(find_symbols(read(path), (b"__dtrace",)).values()) == ["__dtrace_p___q"]


def test_names_are_found_whole(assemble: Any) -> None:
    source = read(assemble(".quad a_req_semaphore\n.quad req_semaphore\n.quad b_semaphore\n.quad req_semaphore2"))
    found = find_symbols(source, names={b"req_semaphore"}, ending=b"_semaphore")
    assert list(found.values()) == ["req_semaphore"]


def test_members_of_groups(assemble: Any) -> None:
    source = read(assemble(TEXT))
    inline = source.sections_named(".text.inline")[0]
    group = source.groups()[inline]
    assert source.sections[group].type == layout.SHT_GROUP
    assert source.symbol_name(SymbolIndex(source.sections[group].info)) == "inline"


def test_the_first_strong_definition_is_neither_weak_nor_in_a_group(assemble: Any) -> None:
    source = read(assemble(".weak weak\nweak: .globl undefined\n.quad undefined\n.comm common,4\n" + TEXT))
    assert source.symbol_name(first_strong_definition(source, source.groups())) == "work"


def test_an_object_with_nothing_strong_has_no_such_definition(assemble: Any) -> None:
    source = read(assemble(".weak weak\nweak: ret\nlocal: ret\n.comm common,4\n.globl absolute\nabsolute = 5"))
    assert first_strong_definition(source, source.groups()) == 0


# --- damage ---------------------------------------------------------------------------------------------------


def header(content: bytes, index: int) -> int:
    """Return where section header `index` is in the file."""
    return int(struct.unpack_from("<Q", content, 40)[0]) + 64 * index


def with_field(content: bytes, index: int, offset: int, form: str, value: int) -> bytes:
    """Return the object with one field of a section header changed; `offset` is the field's in the header."""
    changed = bytearray(content)
    struct.pack_into(form, changed, header(content, index) + offset, value)
    return bytes(changed)


@pytest.fixture
def content(assemble: Any) -> bytes:
    return bytes(assemble(TEXT).read_bytes())


def section(content: bytes, type_: int) -> int:
    return next(i for i, s in enumerate(ElfObject(content, "x.o").sections) if s.type == type_)


def read_all(content: bytes) -> None:
    source: Any = ElfObject(content, "x.o")
    source.references({1, 2, 3, 4, 5})
    for index in range(source.symbol_count):
        source.symbol_name(index)


def refused(content: bytes, pattern: str) -> None:
    with pytest.raises(ElfError) as caught:
        read_all(content)
    assert str(caught.value).startswith("x.o: ")
    assert re.search(pattern, str(caught.value))


def test_a_section_that_ends_after_the_file(content: bytes) -> None:
    text = section(content, layout.SHT_PROGBITS)
    refused(with_field(content, text, 32, "<Q", 1 << 40), rf"section {text} at offset .* ends after the file's")


def test_a_string_table_without_bytes(content: bytes) -> None:
    """A section of type NOBITS may have any size; as a string table it would grow by that size."""
    for index in (read_link(content), int.from_bytes(content[62:64], "little")):
        nobits = with_field(content, index, 4, "<I", layout.SHT_NOBITS)
        refused(with_field(nobits, index, 32, "<Q", 1 << 63), "string table|bad link")


def read_link(content: bytes) -> int:
    return ElfObject(content, "x.o").sections[section(content, layout.SHT_SYMTAB)].link


FIELDS = {  # the section, where the field is in its header, its form, its value, and what is said
    "a symbol table with odd entries": (layout.SHT_SYMTAB, 56, "<Q", 25, "has entries of 25 bytes"),
    "a symbol table without strings": (layout.SHT_SYMTAB, 40, "<I", 0xFFFF, "bad link or info"),
    "more local symbols than there are": (layout.SHT_SYMTAB, 44, "<I", 1000, "bad link or info"),
    "relocations with odd entries": (layout.SHT_RELA, 56, "<Q", 16, "relocation section .* entries of 16"),
    "relocations of no section": (layout.SHT_RELA, 44, "<I", 999, "section 999, which isn't there"),
}


@pytest.mark.parametrize("what", FIELDS)
def test_a_field_of_a_section_header(what: str, content: bytes) -> None:
    kind, offset, form, value, said = FIELDS[what]
    refused(with_field(content, section(content, kind), offset, form, value), said)


@pytest.mark.parametrize(
    ("form", "offset", "value", "said"),
    [
        ("<I", 0, 0xFFFFFF, r"string at 0xffffff of section \d+ runs out"),
        ("<H", 6, layout.SHN_XINDEX, "needs an extended section index"),
    ],
    ids=["a name outside its table", "an extended section index without a table"],
)
def test_a_field_of_a_symbol(form: str, offset: int, value: int, said: str, content: bytes) -> None:
    symtab = ElfObject(content, "x.o").sections[section(content, layout.SHT_SYMTAB)]
    changed = bytearray(content)
    struct.pack_into(form, changed, symtab.offset + symtab.size - 24 + offset, value)
    refused(bytes(changed), said)


def test_the_function_around_an_address_does_not_depend_on_what_was_asked_before() -> None:
    """Functions may overlap, be nested, and have several names."""
    source = random.Random(3)
    records = layout.LAYOUTS[True, True]
    for _ in range(50):
        functions = [(source.randrange(64), source.choice((1, 4, 16, 60))) for _ in range(source.randrange(1, 12))]
        names = b"\0" + b"".join(b"f%d\0" % number for number in range(len(functions)))
        content = b"".join(
            records.symbol.pack(names.index(b"f%d\0" % number), source.choice((0x12, 0x22, 0x02)), 0, 1, start, size)
            for number, (start, size) in enumerate(functions)
        )
        table = SymbolTable(memoryview(content), records, Strings(names, 0, len(names)), None)
        index = FunctionIndex(table, by_section=False, address=None, moved={})
        for address in source.choices(range(130), k=200):
            fresh = FunctionIndex(table, by_section=False, address=None, moved={})
            assert index.find(address, 0) == fresh.find(address, 0)
