"""What the commands that write into projects make of odd folders and files: one error, nothing changed; or it works."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import pytest

from usdtbuild import __version__
from usdtbuild.commands.vendor import signed

ODD = "pä th #1 'q'"
LISTED = "cmake_minimum_required(VERSION 3.16)\nproject(clock C)\nadd_executable(clock main.c)\n"
BUILD_FILES = {
    "CMakeLists.txt": "cmake", "meson.build": "meson", "pyproject.toml": "pip", "setup.py": "pip", "Makefile": "make",
}  # fmt: skip
VENDOR = {"cmake": "USDTBuild.cmake", "meson": "usdtbuild/meson.build", "autotools": "usdtbuild.m4"}


def state(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def refused(done: Any, name: str) -> None:
    """One line that begins with us and names the file, and nothing else."""
    assert done.stdout == ""
    assert done.stderr.startswith("usdtbuild: ")
    assert done.stderr.count("\n") == 1
    assert name in done.stderr


@pytest.mark.parametrize("content", ["empty", "foreign"])
@pytest.mark.parametrize("name", BUILD_FILES)
def test_add_refuses_a_build_file_without_a_place_for_a_probe(
    usdtbuild: Any, tmp_path: Path, name: str, content: str
) -> None:
    data = b"" if content == "empty" else Path(sys.executable).read_bytes()[:50000]
    (tmp_path / name).write_bytes(data)
    done = usdtbuild("add", "--write", tmp_path, code=1)
    said, _, more = done.stderr.partition("\n")  # what the build itself has said may follow
    assert done.stdout == ""
    assert re.match(rf"usdtbuild: .*({re.escape(str(tmp_path))}|\b{BUILD_FILES[name]}\b)", said)
    assert "usdtbuild: " not in more
    assert state(tmp_path) == {name: data}


@pytest.mark.parametrize("content", ["empty", "foreign"])
def test_add_refuses_a_source_without_a_function(usdtbuild: Any, tmp_path: Path, content: str) -> None:
    (tmp_path / "CMakeLists.txt").write_text(LISTED)
    (tmp_path / "main.c").write_bytes(b"" if content == "empty" else Path(sys.executable).read_bytes()[:50000])
    before = state(tmp_path)
    done = usdtbuild("add", "--write", tmp_path, code=1)
    assert done.stdout == ""
    assert done.stderr.startswith("usdtbuild: ")
    assert state(tmp_path) == before


@pytest.mark.parametrize("command", ["add", "init cmake", *(f"vendor {kind}" for kind in VENDOR)])
@pytest.mark.parametrize("content", ["empty", "foreign"])
def test_a_file_where_a_folder_should_be(usdtbuild: Any, tmp_path: Path, command: str, content: str) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"" if content == "empty" else b"\x7fELF" + bytes(100))
    before = state(tmp_path)
    refused(usdtbuild(*command.split(), file, code=1), "file")
    assert state(tmp_path) == before


@pytest.mark.parametrize("content", ["empty", "foreign", "edited"])
@pytest.mark.parametrize("kind", VENDOR)
def test_a_copy_of_ours_is_replaced_and_anything_else_stays(
    usdtbuild: Any, tmp_path: Path, kind: str, content: str
) -> None:
    target = tmp_path / VENDOR[kind]
    assert str(target) in usdtbuild("vendor", kind, tmp_path).stdout.splitlines()
    ours = state(tmp_path)
    earlier = signed(target.read_text().rpartition("# usdtbuild vendor ")[0].replace(__version__, "0.0.1"))
    for end in ("\n", "\r\n"):  # Git may have changed them
        target.write_text(earlier, newline=end)
        usdtbuild("vendor", kind, tmp_path)
        assert state(tmp_path) == ours
    edited = {"empty": b"", "foreign": b"\x7fELF" + bytes(100), "edited": ours[VENDOR[kind]] + b"# mine\n"}
    for mine in (edited[content], b"# mine\n" + edited[content]):
        target.write_bytes(mine)
        before = state(tmp_path)
        done = usdtbuild("vendor", kind, tmp_path, code=1)
        refused(done, target.name)
        assert "isn't a copy as usdtbuild wrote it" in done.stderr
        assert state(tmp_path) == before


def test_odd_names_of_folders_are_taken(usdtbuild: Any, tmp_path: Path) -> None:
    """Spaces, quotes, `#` and letters beyond ASCII; names made of them are names of C."""
    folder = tmp_path / ODD
    folder.mkdir()
    (folder / "CMakeLists.txt").write_text(LISTED)
    (folder / "main.c").write_text("int main(void)\n{\n    return 0;\n}\n")
    said = usdtbuild("add", "--write", cwd=folder).stderr
    assert "the probe pa_th_1_q:started is in main.c" in said
    assert {"pa_th_1_q.d", "pa_th_1_q.h"} <= set(state(folder))
    for kind, name in VENDOR.items():
        usdtbuild("vendor", kind, folder / "vendored é")
        assert (folder / "vendored é" / name).read_text()
    made = usdtbuild("init", "cmake", "café-server", cwd=tmp_path).stdout
    assert made.startswith("café-server: the project is called cafe_server (--name gives it another name)")
    assert "provider cafe_server" in (tmp_path / "café-server/cafe_server.d").read_text()


def test_a_name_that_nothing_can_be_made_of(usdtbuild: Any, tmp_path: Path) -> None:
    done = usdtbuild("init", "cmake", "日本", cwd=tmp_path, code=2)
    assert "name the project with --name" in done.stderr
    assert not list(tmp_path.iterdir())
