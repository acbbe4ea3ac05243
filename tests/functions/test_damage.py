"""Damaged files: whatever a byte says, it is listed or refused in one line, and quickly."""

from __future__ import annotations

import random
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from usdtbuild.elf.image import Image
from usdtbuild.errors import InputError
from usdtbuild.functions.read import FunctionReader, read_functions

PAIR = "-fpatchable-function-entry=7,5"
HEADER, SECTION = 64, 64  # bytes of ELF64's headers
FIELDS = {"name": (0, 4), "type": (4, 4), "flags": (8, 8), "address": (16, 8), "offset": (24, 8), "size": (32, 8),
          "link": (40, 4), "info": (44, 4), "align": (48, 8), "entsize": (56, 8)}  # fmt: skip
NOBITS = 8


@pytest.fixture(scope="module")
def files(run: Any, need: Any, usdtbuild: Any, program_c: Path, tmp_path_factory: Any) -> dict[str, bytes]:
    """An object, one with the relative table, a PIE with RELR, the same without symbols."""
    folder = tmp_path_factory.mktemp("whole")
    gcc = [need("gcc"), "-O2", PAIR]
    run(*gcc, "-c", program_c, "-o", folder / "object")
    usdtbuild("cc", "--patchable-table=relative", "--", *gcc, "-c", program_c, "-o", folder / "relative")
    run(*gcc, "-fPIE", "-pie", "-Wl,-z,pack-relative-relocs", "-DHOSTED", program_c, "-o", folder / "pie")
    run("strip", "-s", folder / "pie", "-o", folder / "stripped")
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.suffix != ".c"}


def listed(content: bytes, path: Path) -> bool:
    """Whether the file's functions can be listed. Everything but an InputError is a failure of the test."""
    path.write_bytes(content)
    began, said, count = time.process_time(), "", 0
    try:
        functions = read_functions(str(path)).functions
        count = len(functions)
        FunctionReader(Image(content, str(path))).explain(functions)
    except InputError as error:
        said = str(error)
    assert "\n" not in said
    assert time.process_time() - began < 5
    return count > 0 and not said


def changed(content: bytes, at: int, value: int, size: int) -> bytes:
    return content[:at] + (value & (1 << 8 * size) - 1).to_bytes(size, "little") + content[at + size :]


def headers_changed(content: bytes) -> Iterator[bytes]:
    """Each field of each section header, and of each program header, with numbers that are wrong there."""
    sections, count = struct.unpack_from("<Q", content, 40)[0], struct.unpack_from("<H", content, 60)[0]
    for index in range(count):
        for place, size in FIELDS.values():
            at = sections + index * SECTION + place
            for value in (NOBITS, 1 << 30, -1):
                yield changed(content, at, value, size)
    for at in range(16, HEADER, 2):
        for value in (0, 1, 0x7FFF, 0xFFFF):
            yield changed(content, at, value, 2)


@pytest.mark.parametrize("name", ["object", "relative", "pie", "stripped"])
def test_wrong_headers_are_refused_or_have_no_effect(files: dict[str, bytes], name: str, tmp_path: Path) -> None:
    outcomes = {listed(content, tmp_path / "damaged") for content in headers_changed(files[name])}
    assert outcomes == {True, False}


def test_a_table_that_claims_more_than_the_file_holds(files: dict[str, bytes], functions: Any, tmp_path: Path) -> None:
    """A section without bytes may have any size; its entries aren't counted by it."""
    content = files["object"]
    sections, count = struct.unpack_from("<Q", content, 40)[0], struct.unpack_from("<H", content, 60)[0]
    tables = [
        at
        for at in (sections + index * SECTION for index in range(count))
        if struct.unpack_from("<IQ", content, at + 4) == (1, 0x83)
    ]  # PROGBITS, WAL: only the table is linked to code
    assert tables  # from GCC 13 on, one for each function
    for at in tables:
        content = changed(changed(content, at + 32, 1 << 50, 8), at + 4, NOBITS, 4)
    (tmp_path / "a.o").write_bytes(content)
    found = functions(tmp_path / "a.o")
    assert {table["problem"] for table in found["tables"]} == {"table-truncated"}
    assert found["totals"]["hotpatchable"] == 0


@pytest.mark.parametrize("name", ["object", "relative", "pie", "stripped"])
def test_wrong_bytes_are_refused_or_have_no_effect(files: dict[str, bytes], name: str, tmp_path: Path) -> None:
    random_ = random.Random(f"damage {name}")
    outcomes = []
    for _ in range(150):
        content = bytearray(files[name])
        for _ in range(random_.choice((1, 2, 8))):
            at = random_.choice((random_.randrange(HEADER), random_.randrange(len(content))))
            content[at] = random_.choice((0, 1, 0x7F, 0x80, 0xFF, content[at] ^ 1 << random_.randrange(8)))
        outcomes.append(listed(bytes(content), tmp_path / "damaged"))
    assert set(outcomes) == {True, False}


@pytest.mark.parametrize("name", ["object", "pie"])
def test_files_that_end_early_are_refused_in_one_line(
    files: dict[str, bytes], name: str, usdtbuild: Any, tmp_path: Path
) -> None:
    content = files[name]
    for length in range(0, len(content), max(len(content) // 80, 1)):
        assert not listed(content[:length], tmp_path / "damaged") or name == "pie", length
    (tmp_path / "damaged").write_bytes(content[: len(content) // 2])
    done = usdtbuild("functions", "--explain", tmp_path / "damaged", code=1)
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    assert "Traceback" not in done.stderr
