"""An opened file is passed on: no command opens one, or takes its headers apart, a second time.

The command runs as ever, in a process of its own; there a wrapper around the one reader of ELF headers counts the
contents that it is given, and an audit hook the paths that are opened.
"""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from usdtbuild.elf.headers import Headers
from usdtbuild.elf.image import Image
from usdtbuild.formats import stapsdt
from usdtbuild.inspection.targets import Loaded
from usdtbuild.tracing.model import ENTER, PROBE
from usdtbuild.tracing.selection import Wanted, targets_in

COUNTED = """\
import hashlib, os, sys

from usdtbuild.__main__ import main
from usdtbuild.elf.headers import Headers

result, watched = os.open(sys.argv.pop(1), os.O_CREAT | os.O_WRONLY | os.O_APPEND), os.path.realpath(sys.argv.pop(1))
original = Headers.__init__

def counting(self, data, *rest):
    os.write(result, f"parsed {hashlib.sha256(data).hexdigest()}\\n".encode())
    original(self, data, *rest)

def hook(event, arguments):
    if event == "open" and isinstance(arguments[0], str) and os.path.realpath(arguments[0]) == watched:
        if not arguments[2] & os.O_PATH:  # which only looks what it is
            os.write(result, b"opened\\n")

Headers.__init__ = counting
sys.addaudithook(hook)
sys.exit(main())
"""
SOURCE = """\
#include "app.h"
int work(int x) { APP_GO(x, "text"); return x + 1; }
int main(int count, char **words) { (void)words; return work(count) == 0; }
"""
OPTIONS = ["-O2", "-g", "-fpatchable-function-entry=7,5", "-c", "app.c", "-o"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, usdtbuild: Any, run: Any, header_of: Any) -> Path:
    """An object and a program with probes and entries, and a stripped program whose symbols are in another file."""
    place = tmp_path_factory.mktemp("once")
    header_of(place, "app.d", "provider app { probe go(int x, char *text); };\n", "--formats=dof")
    (place / "app.c").write_text(SOURCE)
    usdtbuild("cc", "--", "gcc", *OPTIONS, "app.o", cwd=place)
    run("gcc", "app.o", "-Wl,--build-id=sha1", "-o", "app", cwd=place)
    run("objcopy", "--only-keep-debug", "app", "app.debug", cwd=place)
    run("objcopy", "--strip-all", "--add-gnu-debuglink=app.debug", "app", "stripped", cwd=place)
    return place


@pytest.fixture
def counts(folder: Path, run: Any, tmp_path: Path) -> Any:
    """Run a command; return how often each content was taken apart, and how often the file was opened."""

    def count(path: str, *words: str) -> Any:
        result = tmp_path / "counts"  # of all processes of the command
        run(sys.executable, "-c", COUNTED, result, folder / path, *words, cwd=folder)
        counted = Counter(result.read_text().splitlines())
        return {"opened": counted.pop("opened", 0), "parsed": sorted(counted.values())}

    return count


@pytest.mark.parametrize("name", ["app", "app.o"])
@pytest.mark.parametrize(
    "words",
    [
        ["list"], ["list", "--source"], ["list", "--json"], ["verify"],
        ["functions"], ["functions", "--json"], ["functions", "--explain"],
    ],
    ids=" ".join,
)  # fmt: skip
def test_a_file_is_opened_once_and_its_headers_are_read_once(words: list[str], name: str, counts: Any) -> None:
    assert counts(name, *words, name) == {"parsed": [1], "opened": 1}


@pytest.mark.parametrize("words", [["functions", "--explain"], ["list", "--source"]], ids=" ".join)
def test_a_separate_debug_file_is_another_one(words: list[str], counts: Any) -> None:
    assert counts("stripped", *words, "stripped") == {"parsed": [1, 1], "opened": 1}


def test_an_object_is_read_once_when_it_is_compiled(counts: Any, folder: Path) -> None:
    assert counts("new.o", "cc", "--", "gcc", *OPTIONS, "new.o")["parsed"] == [1]
    assert (folder / "new.o").read_bytes() == (folder / "app.o").read_bytes()


def test_an_object_with_a_relative_table_is_read_once_for_each_edit(counts: Any) -> None:
    found = counts("new.o", "cc", "--patchable-table=relative", "--", "gcc", *OPTIONS, "new.o")
    assert found["parsed"] == [1, 1]  # what the compiler wrote, and what that became


def test_a_loaded_file_is_read_once_whatever_of_it_is_traced(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parsed = []
    original = Headers.__init__

    def counting(self: Headers, data: Any, *rest: Any) -> None:
        parsed.append(len(data))
        original(self, data, *rest)

    monkeypatch.setattr(Headers, "__init__", counting)
    file = Loaded(Image((folder / "app").read_bytes(), "app"), 0x10000)
    found = list(targets_in(file, Wanted(probes=("go",), functions=("work",), calls=("*",))))
    assert [(target.kind, target.name) for target in found[:2]] == [(PROBE, "go"), (ENTER, "work")]
    assert len(parsed) == 1


def test_the_short_way_to_the_places_of_notes_is_the_long_one() -> None:
    note = stapsdt.Note(0x1234, 0x2000, 0, "app", "go", "-4@%edi")
    for size in (4, 8):
        for little in (True, False):
            ours = stapsdt.encode(note, size, little=little)
            foreign = ours.replace(stapsdt.OWNER, b"another\0")
            for data in (b"", ours, ours * 3, foreign + ours, ours + foreign, ours + bytes(4)):
                decoded = stapsdt.decode(data, size, little=little)
                assert stapsdt.places(data, size, little=little) == [(each.pc, each.base) for each in decoded]
            with pytest.raises(stapsdt.NoteError):
                stapsdt.places(ours + ours[:-4], size, little=little)
