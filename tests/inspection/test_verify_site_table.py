"""The loaded table of sites beside the notes: sound files have no findings, and each kind of damage has its own."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from usdtbuild.elf.image import Image
from usdtbuild.formats import site_table

PROVIDER = "provider tab { probe step(int number); probe asked(long twice, char *name); };\n"
INLINE = """
#include "tab.h"
inline int shared(int n) { TAB_STEP(n); return n; }
"""
ONE = """
#include "inline.h"
int other(int);
__attribute__((used)) static int dead(int n) { TAB_STEP(n); return n; }
int asks(int n) { if (TAB_ASKED_ENABLED()) TAB_ASKED(n, (char *)"x"); return shared(n); }
int main(int argc, char **argv) { (void)argv; TAB_STEP(argc); return asks(argc) + other(argc) > 99; }
"""
TWO = """
#include "inline.h"
int other(int n) { return shared(n) + 1; }
"""
LINKERS = ["bfd", "lld", "gold", "mold"]


class Objects:
    """Objects of two files that share an inline function, with or without tables."""

    def __init__(self, folder: Path, usdtbuild: Any, compiler: str) -> None:
        self.folder, self.usdtbuild, self.compiler = folder, usdtbuild, compiler
        (folder / "tab.d").write_text(PROVIDER)
        usdtbuild("header", "--formats=dof", folder / "tab.d", "-o", folder / "tab.h")
        (folder / "inline.h").write_text(INLINE)
        for name, text in (("one", ONE), ("two", TWO)):
            (folder / f"{name}.cc").write_text(text)

    def __call__(self, name: str, *, table: bool = True) -> Path:
        made = self.folder / f"{name}-{table}.o"
        if not made.exists():
            words = (self.compiler, "-O1", "-fno-inline", "-ffunction-sections", "-fPIE", "-I", self.folder)
            option = ("--site-table",) if table else ()
            self.usdtbuild("cc", *option, "--", *words, "-c", self.folder / f"{name}.cc", "-o", made)
        return made


@pytest.fixture(scope="module")
def objects(tmp_path_factory: pytest.TempPathFactory, usdtbuild: Any, need: Any) -> Objects:
    return Objects(tmp_path_factory.mktemp("tables"), usdtbuild, need("g++"))


@pytest.fixture(scope="module")
def linked(objects: Objects, run: Any) -> Path:
    program = objects.folder / "program"
    run("g++", "-pie", objects("one"), objects("two"), "-o", program)
    return program


def findings(path: Path, usdtbuild: Any, code: int | None = 0) -> dict[str, Any]:
    """Return the findings of verify that are about tables."""
    done = usdtbuild("verify", "--json", path, code=code)
    (report,) = json.loads(done.stdout)["files"]
    return {f["check"]: f for f in report["findings"] if f["check"].startswith("site-table")}


@pytest.mark.parametrize("linker", LINKERS)
@pytest.mark.parametrize("strip", [(), ("strip",)], ids=["whole", "stripped"])
def test_dropped_and_shared_functions_are_no_finding(
    strip: tuple[str, ...], linker: str, objects: Objects, run: Any, usdtbuild: Any, need: Any, tmp_path: Path
) -> None:
    need({"mold": "mold"}.get(linker, f"ld.{linker}"))
    program = tmp_path / "program"
    run("g++", f"-fuse-ld={linker}", "-pie", "-Wl,--gc-sections", objects("one"), objects("two"), "-o", program)
    if strip:
        run(*strip, program)
    assert findings(program, usdtbuild) == {}
    assert len([entry for entry in table_of(program)[2] if not entry.is_semaphore]) >= 3


def test_an_object_without_a_table_leaves_sites_out(objects: Objects, run: Any, usdtbuild: Any, tmp_path: Path) -> None:
    program = tmp_path / "program"
    run("g++", "-pie", objects("one", table=False), objects("two"), "-o", program)
    found = findings(program, usdtbuild)["site-table"]
    assert (found["severity"], found["cure"]) == ("warning", "compile all objects with --site-table, or none")
    assert "lacks" in found["what"]


def table_of(path: Path) -> tuple[int, int, list[site_table.TableRow]]:
    """Return where the table is in the file and in memory, and what is in it."""
    image = Image(path.read_bytes(), str(path))
    (section,) = image.sections_named(site_table.SECTION)
    return (
        section.offset,
        section.address,
        site_table.decode(bytes(image.content(section)), section.address, little=image.little),
    )


def changed(linked: Path, tmp_path: Path, at: int, new: bytes) -> Path:
    """Return a copy of the file with other bytes at an offset."""
    copy = tmp_path / "changed"
    shutil.copy(linked, copy)
    with copy.open("r+b") as file:
        file.seek(at)
        assert file.read(len(new)) != new
        file.seek(at)
        file.write(new)
    return copy


def entry_field(linked: Path, *, semaphore: bool) -> int:
    """Return where in the file the first entry of a site, or of a semaphore, is."""
    offset, _, _ = table_of(linked)
    data = linked.read_bytes()
    at = offset
    while True:
        if data[at : at + 4] == bytes(4):
            at += 4
            continue
        size, count = (int.from_bytes(data[at + i : at + i + 4], "little") for i in (4, 8))
        for i in range(count):
            entry = at + site_table.FIRST + site_table.ENTRY * i
            if bool(data[entry + 7] & 0x80) == semaphore:
                return entry
        at += size


def test_each_damage_is_named(linked: Path, usdtbuild: Any, tmp_path: Path) -> None:
    offset, _, _ = table_of(linked)
    data = linked.read_bytes()
    image = Image(data, str(linked))
    (note,) = image.sections_named(site_table.NOTE_SECTION)
    site, semaphore = entry_field(linked, semaphore=False), entry_field(linked, semaphore=True)
    operands = data.index(b"4@%edi\0", offset)
    type_ = data.index(b"s4|int|number", offset)
    cases = {
        "can't be read": (offset, b"x", "site-table-damaged"),
        "leads elsewhere": (note.offset + site_table.NOTE_FIELD, b"\x01\x02\x03\x04", "site-table-damaged"),
        "no record has": (site, bytes([data[site] ^ 8]), "site-table"),
        "other operands": (operands + 3, b"s", "site-table"),
        "other arguments": (type_ + 1, b"8", "site-table"),
        "another semaphore": (semaphore, bytes([data[semaphore] ^ 8]), "site-table"),
    }
    assert findings(linked, usdtbuild) == {}
    for says, (at, new, name) in cases.items():
        done = usdtbuild("verify", "--json", changed(linked, tmp_path, at, new), code=1)
        (report,) = json.loads(done.stdout)["files"]
        found = [f for f in report["findings"] if f["check"].startswith("site-table")]
        assert {f["check"] for f in found} == {name}, (says, found)
        assert any(says in f["what"] and f["severity"] == "error" and f["cure"] for f in found), (says, found)


def test_a_table_without_a_way_in_is_named(linked: Path, run: Any, usdtbuild: Any, tmp_path: Path) -> None:
    run("objcopy", "--remove-section", site_table.NOTE_SECTION, linked, tmp_path / "without")
    found = findings(tmp_path / "without", usdtbuild, code=1)["site-table-damaged"]
    assert "missing" in found["what"]
