"""The dynamic segment: tags, symbols, versions and relocations as readelf shows them, with section headers or not."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from usdtbuild.elf.dynamic import Dynamic
from usdtbuild.elf.image import Image

SOURCE = """
#include <stdio.h>
#include <stdlib.h>
int exported(int x) { return printf("%d\\n", x); }
int (*pointer)(const char *) = puts;
const char *const names[] = {"one", "two", "three"};
int main(void) { return pointer("x") + exported(atoi("4")); }
"""
# What a linker is told -> what it then writes: where slots are, which hash table, packed relative relocations.
LINKS = {
    "lazy": ("-pie", "-Wl,-z,lazy"),
    "now": ("-pie", "-Wl,-z,now"),
    "fixed": ("-no-pie", "-fno-pic"),
    "library": ("-shared",),
    "old-hash": ("-pie", "-Wl,--hash-style=sysv"),
    "gnu-hash": ("-shared", "-Wl,--hash-style=gnu"),
    "relr": ("-pie", "-Wl,-z,pack-relative-relocs"),
}


@pytest.fixture(scope="module", params=LINKS)
def linked(request: Any, tmp_path_factory: Any, compiled: Any) -> Path:
    folder = tmp_path_factory.mktemp(request.param)
    compiled(folder, "main.c", SOURCE, "-O1", "-fPIC", *LINKS[request.param], to="linked")
    return Path(folder, "linked")


def without_sections(path: Path) -> Path:
    data = bytearray(path.read_bytes())
    data[40:48] = bytes(8)  # e_shoff
    data[58:64] = data[58:60] + bytes(4)  # e_shnum, e_shstrndx
    bare = path.with_name("bare")
    bare.write_bytes(data)
    return bare


def dynamic(path: Path) -> Dynamic:
    return Dynamic(Image(path.read_bytes(), str(path)))


def test_relocations_are_those_that_readelf_shows(linked: Path, run: Any) -> None:
    shown = run("readelf", "-rW", linked).stdout
    expected = sorted(
        (int(offset, 16), int(info, 16) >> 32, int(info, 16) & 0xFFFFFFFF)
        for offset, info in re.findall(r"^([0-9a-f]{16})  ([0-9a-f]{16}) R_", shown, re.M)
    )
    relr = sorted(int(word, 16) for word in re.findall(r"^\d{4}: +[0-9a-f]{16} ([0-9a-f]{16})$", shown, re.M))
    for path in (linked, without_sections(linked)):
        found = dynamic(path)
        assert sorted((r.offset, r.symbol, r.type) for r in (*found.relocations, *found.jumps)) == expected != []
        if relr:
            assert sorted(found.relative) == relr
        assert {r.type for r in found.jumps} <= {7}  # R_X86_64_JUMP_SLOT


def test_symbols_and_versions_are_those_that_readelf_shows(linked: Path, run: Any) -> None:
    shown = run("readelf", "--dyn-syms", "-W", linked).stdout
    rows = re.findall(r"^ +(\d+): ([0-9a-f]{16}) +\d+ \w+ +\w+ +\w+ +(\w+) (\S+)", shown, re.M)
    expected = {int(number): (int(value, 16), *name.partition("@")[::2]) for number, value, _, name in rows}
    for path in (linked, without_sections(linked)):
        found = dynamic(path)
        for number, (value, name, version) in expected.items():
            symbol = found.symbol(number)
            assert symbol is not None
            assert (symbol.name, symbol.value) == (name, value)
            known = found.version(number)
            assert (known.name if known else "") == version.lstrip("@")
            if known and "GLIBC" in known.name:
                assert known.library == "libc.so.6"
        assert found.symbol(len(expected) + 1) is None


def test_tables_outside_the_file_are_damage(linked: Path) -> None:
    found = dynamic(linked)
    for tag in list(found.tags):
        found.tags[tag] = 0x7FFFFFFFFFFF
    for read in (lambda: found.jumps, lambda: found.symbols):
        with pytest.raises(Exception, match="is not in the file"):
            read()
