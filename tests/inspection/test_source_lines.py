"""`usdtbuild list --source`: file and line of each site, inlined calls included, as `addr2line -i` finds them."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

PROBES = "provider app { probe hit(int number); probe out(int x); };\n"
DEEP = """
#include "app.h"
static inline __attribute__((always_inline)) int deepest(int x) {
  APP_HIT(x);
  return x * 2;
}
static inline __attribute__((always_inline)) int middle(int x) {
  return deepest(x + 1)
    + deepest(x + 2);
}
"""
MAIN = """
#include "inc/deep.h"
namespace space {
template <class T> struct Thing { __attribute__((noinline)) int go(T x) { return middle(x) + 1; } };
__attribute__((noinline)) int outer(int x) {
  Thing<int> t;
  APP_OUT(x);
  return t.go(x) + middle(3);
}
}
int main(int count, char **) { return space::outer(count); }
"""
VARIANTS = {
    "gcc": ("g++", ["-g", "-O2"]),
    "gcc-4": ("g++", ["-gdwarf-4", "-O2", "-ffunction-sections"]),
    "gcc-compressed": ("g++", ["-g", "-gz", "-O1"]),
    "gcc-unoptimised": ("g++", ["-g", "-O0"]),
    "clang": ("clang++", ["-g", "-O2"]),
    "clang-4": ("clang++", ["-gdwarf-4", "-O2", "-ffunction-sections"]),
}


def build(usdtbuild: Any, run: Any, folder: Path, compiler: str, options: list[str]) -> Path:
    """Return a program of two files with probes in functions that are inlined twice."""
    (folder / "inc").mkdir()
    (folder / "inc/deep.h").write_text(DEEP)
    (folder / "main.cc").write_text(MAIN)
    other = "int other(int x); int other(int x) { return middle(x); }\n"
    (folder / "other.cc").write_text('#include "inc/deep.h"\n' + other)
    (folder / "app.d").write_text(PROBES)
    usdtbuild("header", "--formats=dof", "app.d", "-o", "app.h", cwd=folder)
    for name in ("main", "other"):
        words = [compiler, *options, "-I.", "-c", f"{name}.cc", "-o", f"{name}.o"]
        usdtbuild("cc", "--", *words, cwd=folder)
    run(compiler, *options, "-Wl,--build-id=sha1", "main.o", "other.o", "-o", "program", cwd=folder)
    return folder / "program"


@pytest.fixture(
    scope="module",
    params=[pytest.param(name, marks=pytest.mark.slow) if name[-2:] == "-4" else name for name in VARIANTS],
)
def program(request: Any, usdtbuild: Any, run: Any, need: Any, tmp_path_factory: Any) -> Path:
    compiler, options = VARIANTS[request.param]
    return build(usdtbuild, run, tmp_path_factory.mktemp("lines"), need(compiler), options)


@pytest.fixture(scope="module")
def one(usdtbuild: Any, run: Any, need: Any, tmp_path_factory: Any) -> Path:
    """A program that tests may copy and strip."""
    return build(usdtbuild, run, tmp_path_factory.mktemp("one"), need("g++"), ["-g", "-O2"])


def sites(usdtbuild: Any, path: Path, *options: Any, code: int = 0) -> list[dict[str, Any]]:
    done = usdtbuild("list", "--source", "--json", *options, path, code=code)
    return [site for file in json.loads(done.stdout)["files"] for probe in file["probes"] for site in probe["sites"]]


def chain(site: dict[str, Any]) -> list[tuple[str, int]]:
    return [(frame["file"], frame["line"]) for frame in site["source"]]


def addr2line(path: Path, address: str, *options: str) -> list[tuple[str, int]]:
    """Return binutils' chain for an address: path and line, the innermost first, but for what the header adds."""
    command = ["addr2line", "-i", "-e", str(path), *options, address]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    found = re.findall(r"^(.*):(\d+)(?: \(discriminator \d+\))?$", text, re.MULTILINE)
    return [(os.path.normpath(file), int(line)) for file, line in found if not file.endswith("/app.h")]


def test_every_site_of_a_program_is_where_addr2line_says(usdtbuild: Any, need: Any, program: Path) -> None:
    need("addr2line")
    found = sites(usdtbuild, program)
    assert len(found) >= 5
    for site in found:
        assert chain(site) == addr2line(program, site["address"])
    assert max(len(site["source"]) for site in found) == 3


def test_every_site_of_an_object_is_where_addr2line_says(usdtbuild: Any, need: Any, program: Path) -> None:
    need("addr2line")
    found = sites(usdtbuild, program.parent / "main.o")
    assert len(found) >= 5
    for site in found:
        expected = addr2line(program.parent / "main.o", site["offset"], "-j", site["section"])
        assert chain(site) == expected


def test_functions_that_were_inlined_are_named(usdtbuild: Any, one: Path) -> None:
    text = usdtbuild("list", "--source", one, cwd=one.parent).stdout
    assert re.search(r"SEMAPHORE +SOURCE$", text, re.MULTILINE)
    assert re.search(
        r"inc/deep\.h:4 \(deepest.*?\) from inc/deep\.h:9 \(middle.*?\) from main\.cc:8$", text, re.MULTILINE
    )
    assert re.search(r"app:out .* main\.cc:7$", text, re.MULTILINE)
    for site in sites(usdtbuild, one):
        if len(site["source"]) == 3:
            names = [frame["function"].partition("(")[0] for frame in site["source"]]
            assert names[:2] == ["deepest", "middle"]


def test_without_the_option_nothing_is_said_of_sources(usdtbuild: Any, one: Path) -> None:
    done = usdtbuild("list", "--json", one)
    assert "source" not in json.loads(done.stdout)["files"][0]["probes"][0]["sites"][0]
    assert "SOURCE" not in usdtbuild("list", one).stdout


@pytest.mark.parametrize("kind", ["build id", "debug link", "debug link in a folder"])
def test_separate_debug_files_are_read(usdtbuild: Any, run: Any, one: Path, tmp_path: Path, kind: str) -> None:
    expected = [chain(site) for site in sites(usdtbuild, one)]
    program, debug, folder = tmp_path / "program", tmp_path / "program.debug", tmp_path / "store"
    run("objcopy", "--only-keep-debug", one, debug)
    shutil.copy(one, program)
    run("strip", "--strip-debug", program)
    options: list[Any] = []
    if kind == "build id":
        identity = re.findall(r"Build ID: (\w+)", run("readelf", "-n", program).stdout)[0]
        place = folder / ".build-id" / identity[:2] / f"{identity[2:]}.debug"
        options = ["--debug-dir", folder]
    else:
        place = tmp_path / (".debug/program.debug" if "folder" in kind else "program.debug")
        run("objcopy", f"--add-gnu-debuglink={debug}", program)
    place.parent.mkdir(parents=True, exist_ok=True)
    debug.rename(place)
    assert [chain(site) for site in sites(usdtbuild, program, *options)] == expected
    # A debug file of another program under the same name isn't read.
    other = shutil.copy("/bin/true", place) if Path("/bin/true").exists() else place.unlink()
    done = usdtbuild("list", "--source", "--json", *options, program)
    assert "has no debug information" in done.stderr, other
    assert '"source": []' in done.stdout


def test_a_program_without_debug_information_is_listed_and_that_is_said(
    usdtbuild: Any, run: Any, one: Path, tmp_path: Path
) -> None:
    shutil.copy(one, tmp_path / "bare")
    run("strip", "--strip-debug", tmp_path / "bare")
    done = usdtbuild("list", "--source", tmp_path / "bare")
    assert done.stderr == (
        f"usdtbuild: {tmp_path / 'bare'}: has no debug information, and no debug file of its own was found: "
        "compile it with -g\n"
    )
    assert "app:out" in done.stdout


def test_damaged_debug_information_is_no_traceback(usdtbuild: Any, run: Any, one: Path, tmp_path: Path) -> None:
    damaged = tmp_path / "damaged"
    for section in (".debug_info", ".debug_line", ".debug_abbrev"):
        (tmp_path / "junk").write_bytes(bytes(range(1, 200)))
        run("objcopy", "--update-section", f"{section}={tmp_path / 'junk'}", one, damaged)
        done = usdtbuild("list", "--source", damaged)
        assert "Traceback" not in done.stderr
        assert "its debug information can't be read" in done.stderr
        assert "app:out" in done.stdout


def test_a_folder_for_debug_files_needs_the_option(usdtbuild: Any, one: Path) -> None:
    done = usdtbuild("list", "--debug-dir", "/nowhere", one, code=2)
    assert "--debug-dir: only --source reads debug files" in done.stderr


def test_sites_of_a_process_have_lines(usdtbuild: Any, run: Any, need: Any, tmp_path: Path, header_of: Any) -> None:
    header_of(tmp_path, "app.d", PROBES, "--formats=dof")
    (tmp_path / "f.c").write_text(
        '#include "app.h"\n#include <stdio.h>\nint main(void) {\n  APP_HIT(1);\n  return getchar();\n}\n'
    )
    usdtbuild("cc", "--", need("gcc"), "-g", "-c", "f.c", "-o", "f.o", cwd=tmp_path)
    run("gcc", "f.o", "-o", "f", cwd=tmp_path)
    process = subprocess.Popen([tmp_path / "f"], stdin=subprocess.PIPE)
    try:
        (site,) = sites(usdtbuild, process.pid, "-p", "app:*")  # type: ignore[arg-type]
        assert chain(site) == [(str(tmp_path / "f.c"), 4)]
    finally:
        process.kill()
        process.communicate()


def test_only_probes_that_are_shown_are_looked_up(usdtbuild: Any, one: Path) -> None:
    found = sites(usdtbuild, one, "-p", "app:out")
    assert [chain(site)[0][1] for site in found] == [7]


MACHINES = {"aarch64": "aarch64-linux-gnu-gcc", "riscv64": "riscv64-linux-gnu-gcc", "arm": "arm-linux-gnueabihf-gcc",
            "ppc64": "powerpc64-linux-gnu-gcc", "s390x": "s390x-linux-gnu-gcc", "mips": "mips-linux-gnu-gcc",
            "i386": "i686-linux-gnu-gcc"}  # fmt: skip


@pytest.mark.parametrize(
    "machine", [pytest.param(m, marks=pytest.mark.slow) if m not in ("aarch64", "riscv64") else m for m in MACHINES]
)
def test_objects_and_programs_of_other_machines_have_lines(
    usdtbuild: Any, run: Any, need: Any, tmp_path: Path, machine: str, header_of: Any
) -> None:
    compiler = need(MACHINES[machine])
    header_of(tmp_path, "app.d", PROBES, "--formats=dof")
    (tmp_path / "deep.h").write_text(DEEP)
    (tmp_path / "f.c").write_text('#include "deep.h"\nvoid _start(void);\nvoid _start(void) { middle(3); for (;;); }\n')
    usdtbuild("cc", "--", compiler, "-g", "-O2", "-c", "f.c", "-o", "f.o", cwd=tmp_path)
    run(compiler, "-nostdlib", "-static", "f.o", "-o", "f", cwd=tmp_path)
    for name in ("f", "f.o"):
        if (machine, name) == ("riscv64", "f.o"):  # pyelftools doesn't apply all relocations of its objects
            done = usdtbuild("list", "--source", tmp_path / name)
            assert "its debug information can't be read" in done.stderr
            continue
        # the stub that MIPS keeps is nobody's line
        found = [site for site in sites(usdtbuild, tmp_path / name) if "__dtrace" not in site["function"]["name"]]
        lines = [[(Path(file).name, line) for file, line in chain(site)] for site in found]
        assert lines == [[("deep.h", 4), ("deep.h", n), ("f.c", 3)] for n in (8, 9)]
