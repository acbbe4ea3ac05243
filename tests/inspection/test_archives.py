"""Archives as ar, llvm-ar and BSD's ar write them, and damaged ones."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from usdtbuild.elf import archive
from usdtbuild.errors import InputError

LONG = "a_name_that_is_longer_than_the_sixteen_letters_of_a_header.o"


@pytest.fixture
def members(tmp_path: Path) -> dict[str, bytes]:
    contents = {"short.o": b"odd", LONG: b"even", "with blank.o": b"x" * 100}
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
    return contents


def read(path: Path) -> dict[str, bytes]:
    data = path.read_bytes()
    found = {}
    for member in archive.members(data, str(path)):
        content = Path(member.file).read_bytes() if member.file else data[member.offset : member.offset + member.size]
        found[member.name] = content
    return found


@pytest.mark.parametrize("tool", ["ar rc", "ar rcT", "llvm-ar rc", "llvm-ar --format=bsd rc", "llvm-ar --thin rc"])
def test_every_kind_of_archive_gives_its_members(
    tool: str, members: dict[str, bytes], tmp_path: Path, run: Any, need: Callable[[str], str]
) -> None:
    program, *options = tool.split()
    run(need(program), *options, "lib.a", *members, cwd=tmp_path)
    assert read(tmp_path / "lib.a") == members


def test_symbol_tables_are_no_members(tmp_path: Path, run: Any, compiled: Any) -> None:
    compiled(tmp_path, "f.c", "int f(void) { return 1; }\n", "-c")
    run("ar", "rcs", "lib.a", "f.o", cwd=tmp_path)
    assert list(read(tmp_path / "lib.a")) == ["f.o"]


def test_an_empty_archive_has_no_members(tmp_path: Path, run: Any) -> None:
    run("ar", "rc", "lib.a", cwd=tmp_path)
    assert read(tmp_path / "lib.a") == {}


@pytest.mark.parametrize("keep", [9, 40, 67, 70, 90, 200])
def test_an_archive_that_was_cut_short_is_an_error(
    keep: int, members: dict[str, bytes], tmp_path: Path, run: Any
) -> None:
    run("ar", "rc", "lib.a", *members, cwd=tmp_path)
    data = (tmp_path / "lib.a").read_bytes()[:keep]
    with pytest.raises(InputError, match=r"lib\.a: the archive (is damaged at|ends inside)"):
        list(archive.members(data, "lib.a"))


@pytest.mark.parametrize(
    ("field", "offset"),
    [(b"9999999999", 48), (b"-1        ", 48), (b"          ", 48), (b"/999999 ", 0), (b"#1/999  ", 0)],
)
def test_a_header_with_impossible_numbers_is_an_error(
    field: bytes, offset: int, members: dict[str, bytes], tmp_path: Path, run: Any
) -> None:
    run("ar", "rc", "lib.a", "short.o", cwd=tmp_path)
    data = bytearray((tmp_path / "lib.a").read_bytes())
    data[8 + offset : 8 + offset + len(field)] = field
    with pytest.raises(InputError, match=r"lib\.a: "):
        list(archive.members(bytes(data), "lib.a"))
