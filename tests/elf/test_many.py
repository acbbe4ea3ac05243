"""Files of more sections, program headers and symbols than 16 bits count: what each reader makes of them.

The gABI puts what doesn't fit elsewhere: the number of sections into the first section header (e_shnum), their numbers
in symbols into SHT_SYMTAB_SHNDX (SHN_XINDEX), the number of program headers into the first section header (PN_XNUM).
"""

from __future__ import annotations

import json
import struct
import subprocess
from pathlib import Path
from typing import Any

import pytest

from usdtbuild.elf import layout
from usdtbuild.elf.image import Image
from usdtbuild.elf.layout import SymbolIndex
from usdtbuild.elf.object import ElfObject
from usdtbuild.elf.symbols import Strings

# Beyond SHN_LORESERVE, and past the numbers that SHN_ABS (0xfff1) and SHN_COMMON (0xfff2) have in smaller files.
MANY = 65_530

# g branches into the padding of f, through a relocation against a symbol of section 65,531 or so.
LATE = """
    .section .text.late,"ax",@progbits
    .globl f
    .type f,@function
.Lpadding:
    .rept 5
    nop
    .endr
f:  nop
    nop
    xorl %eax, %eax
    ret
    .size f, .-f
    .section .text.other,"ax",@progbits
    .globl g
    .type g,@function
g:  BRANCH
    ret
    .size g, .-g
    .section __patchable_function_entries,"awo",@progbits,.text.late
    .p2align 3
    .quad .Lpadding
    .section .data.late,"aw",@progbits
    .globl absolute
absolute = 0x1234
"""


@pytest.fixture(scope="module")
def many(tmp_path_factory: Any) -> Any:
    """Objects of more than 65,530 sections; `many(BRANCH)` is one in which g does that."""
    folder = tmp_path_factory.mktemp("many")
    made: dict[str, Path] = {}

    def make(branch: str) -> Path:
        if branch not in made:
            source = folder / f"{len(made)}.s"
            sections = "".join(f'.section .d{number},"a"\n' for number in range(MANY))
            source.write_text(sections + LATE.replace("BRANCH", branch))
            made[branch] = source.with_suffix(".o")
            subprocess.run(["as", "--64", "-o", str(made[branch]), str(source)], check=True)
        return made[branch]

    return make


def reasons(usdtbuild: Any, path: Path) -> dict[str, str]:
    (said,) = json.loads(usdtbuild("functions", "--json", path).stdout)["files"]
    return {row["name"]: row["reason"] or "hotpatchable" for row in said["functions"]}


def test_a_branch_into_padding_is_seen_where_sections_have_extended_numbers(usdtbuild: Any, many: Any) -> None:
    assert reasons(usdtbuild, many("call absolute"))["f"] == "hotpatchable"
    assert reasons(usdtbuild, many("jmp f - 3"))["f"] == "jump-into-padding"


def test_symbols_of_sections_with_extended_numbers_are_those_that_readelf_shows(many: Any) -> None:
    path = many("jmp f - 3")
    shown = subprocess.run(["readelf", "-Ws", str(path)], check=True, capture_output=True, text=True).stdout
    expected = {}
    for line in shown.splitlines():
        fields = line.split()
        if len(fields) == 8 and fields[7] in {"f", "g", "absolute"}:
            expected[fields[7]] = (int(fields[1], 16), fields[6])
    assert expected["absolute"] == (0x1234, "ABS")
    image, source = Image(path.read_bytes(), str(path)), ElfObject(path.read_bytes(), str(path))
    for number, symbol in image.symbols_with(layout.SHT_SYMTAB, b""):
        if symbol.name in expected:
            value, place = expected[symbol.name]
            other = source.symbol(SymbolIndex(number))
            for one in (symbol, other):
                assert (one.value, one.section) == (value, 0 if place == "ABS" else int(place))
                assert one.reserved == (layout.SHN_ABS if place == "ABS" else 0)
    assert image.function_at(6, int(expected["f"][1])) == ("f", 1)


@pytest.fixture(scope="module")
def crowded(tmp_path_factory: Any) -> Path:
    """A program of 66,000 program headers, of which the loaded ones come last; their number is in section header 0."""
    folder = tmp_path_factory.mktemp("crowded")
    source = folder / "main.c"
    source.write_text("int __attribute__((noinline)) f(int x) { return x + 1; }\nint main(void) { return f(-1); }\n")
    program = folder / "program"
    option = "-fpatchable-function-entry=7,5"
    subprocess.run(["gcc", "-O1", "-no-pie", option, "-o", str(program), str(source)], check=True)
    data = bytearray(program.read_bytes())
    start, count = struct.unpack_from("<Q", data, 32)[0], struct.unpack_from("<H", data, 56)[0]
    headers = bytes(data[start : start + 56 * count])
    empty = 66_000 - count
    data += bytes(-len(data) % 8)
    struct.pack_into("<Q", data, 32, len(data))
    struct.pack_into("<H", data, 56, 0xFFFF)
    struct.pack_into("<I", data, struct.unpack_from("<Q", data, 40)[0] + 44, empty + count)
    program.write_bytes(bytes(data + bytes(56 * empty) + headers))
    return program


def test_program_headers_beyond_16_bits_are_all_read(usdtbuild: Any, crowded: Path) -> None:
    shown = subprocess.run(["readelf", "-hW", str(crowded)], check=True, capture_output=True, text=True).stdout
    assert "(66000)" in shown
    image = Image(crowded.read_bytes(), str(crowded))
    assert len(image.segments) == 66_000
    assert reasons(usdtbuild, crowded)["f"] == "hotpatchable"


def test_a_number_of_program_headers_that_the_file_does_not_hold_is_damage(usdtbuild: Any, crowded: Path) -> None:
    data = bytearray(crowded.read_bytes())
    struct.pack_into("<I", data, struct.unpack_from("<Q", data, 40)[0] + 44, 0xFFFFFFFF)
    broken = crowded.with_name("broken")
    broken.write_bytes(data)
    for command in ("functions", "verify", "list"):
        assert "the program headers at offset" in usdtbuild(command, broken, code=1).stderr


def test_the_table_of_extended_numbers_is_looked_for_once(many: Any) -> None:
    """Looked for at each symbol, it took minutes for a C++ object of 50,000 COMDAT groups."""

    class Counted(list[Any]):
        walks = 0

        def __iter__(self) -> Any:
            self.walks += 1
            return super().__iter__()

    path = many("call absolute")
    source = ElfObject(path.read_bytes(), str(path))
    source.sections = sections = Counted(source.sections)
    asked: list[int] = []
    of_type = source.of_type
    source.of_type = lambda *types: asked.extend(types) or of_type(*types)  # type: ignore[func-returns-value, method-assign]
    found = [source.symbol(SymbolIndex(index)).section for index in range(source.symbol_count)]
    assert max(found) > layout.SHN_LORESERVE
    assert sections.walks == 0
    assert asked == [layout.SHT_SYMTAB_SHNDX]


def test_names_that_contain_a_text_are_those_that_readelf_shows(many: Any) -> None:
    """Also those that are the end of another's name, and lie within it."""
    image = Image(many("jmp f - 3").read_bytes(), "many")
    table = image.symbol_table(layout.SHT_SYMTAB)
    names = [table.name(number) for number in range(table.count)]
    for text in ("f", "absolute", "abs", "olute", "e", "nowhere", ""):
        found = [number for number, _ in image.symbols_with(layout.SHT_SYMTAB, text.encode())]
        assert found == [number for number, name in enumerate(names) if text in name]


def test_strings_with_a_text_in_a_table_that_ends_within_one() -> None:
    data = b"xx\0abcab\0cab\0ab"
    assert Strings(data, 2, len(data)).places(b"ab") == ([1, 4, 8], [1, 1, 7])
    assert Strings(data, 2, len(data)).places(b"b") == ([2, 5, 9], [1, 1, 7])
    assert Strings(data, 2, 6).places(b"ab") == ([], [])
