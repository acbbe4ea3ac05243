"""Link-time optimisation: objects that hold intermediate code instead of machine code, or beside it.

Probes that the header completes go through intermediate code as they are. Those that are completed after the compiler
can't: what the launcher does then, compiling such a file without LTO, is tested in tests/test_launcher.py; here is what
`instrument` says of such objects.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import pytest
from elftools.elf.elffile import ELFFile

from usdtbuild.elf.image import Image
from usdtbuild.inspection.probes import inspect

PROBES = 'int main(void) { if (APP_REQ_ENABLED()) APP_REQ(1, "x"); APP_START(); return 0; }'
PLAIN = "int main(void) { return 0; }"
FLAVOURS = (
    "gcc -flto", "gcc -flto -ffat-lto-objects", "gcc -flto -flto-partition=1to1", "clang -flto", "clang -flto=thin",
)  # fmt: skip
TWO_FILES = {
    "one.c": "int f(int);\nint main(int n, char **v)\n"
    "{ if (APP_REQ_ENABLED()) APP_REQ(n, v[0]); APP_START(); return f(n) - 3; }",
    "two.c": 'int f(int);\nint f(int n) { APP_REQ(n + 1, "two"); return n + 2; }',
}


@pytest.mark.parametrize("linker", ["bfd", "gold", "lld", "mold"])
@pytest.mark.parametrize("flavour", FLAVOURS)
def test_probes_that_the_header_completes_stay_when_they_are_linked_with_lto(
    flavour: str, linker: str, usdtbuild: Any, run: Any, need: Any, tmp_path: Path
) -> None:
    if linker == "lld" and flavour.startswith("gcc") and "fat" not in flavour:
        pytest.skip("lld has no plugins, and so no way to read GCC's intermediate code")
    need(f"ld.{linker}")
    (tmp_path / "app.d").write_text("provider app { probe start(); probe req(int number, char *what); };\n")
    usdtbuild("header", "app.d", "-o", "app.h", cwd=tmp_path)
    words = [need(flavour.split(maxsplit=1)[0]), *flavour.split()[1:], "-O2"]
    for name, text in TWO_FILES.items():
        (tmp_path / name).write_text(f'#include "app.h"\n{text}\n')
        run(*words, "-c", name, cwd=tmp_path)
    dropped = (
        ["-Wl,--gc-sections"] if linker != "gold" else []
    )  # gold refuses records of what it drops (docs/linkers.md)
    run(*words, f"-fuse-ld={linker}", *dropped, "one.o", "two.o", "-o", "program", cwd=tmp_path)
    run("./program", cwd=tmp_path)
    seen = inspect(Image((tmp_path / "program").read_bytes(), "program"))
    assert [probe.name for probe in seen.probes] == ["req", "start"]
    assert len({site.location.address for probe in seen.probes for site in probe.sites}) >= 3


# --- instrument -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("compiler", "flags", "what"),
    [("gcc", "-flto", "slim LTO object"), ("clang", "-flto", "LLVM bitcode"), ("clang", "-flto=thin", "LLVM bitcode")],
)
def test_an_lto_object_with_probes_is_refused_and_one_without_left_alone(
    bench: Any, need: Any, compiler: str, flags: str, what: str
) -> None:
    need(compiler)
    target = bench.fresh("out.o")
    probes = bench.compile(compiler, PROBES, "-O2", flags)
    done = bench.usdtbuild("instrument", probes, "-o", target, code=1)
    assert re.fullmatch(rf"usdtbuild: {probes}: is (a )?{what}, .*-fno-lto.*\n", done.stderr)
    assert not target.exists()
    plain = bench.compile(compiler, PLAIN, "-O2", flags)
    done = bench.usdtbuild("instrument", "-v", plain, "-o", target)
    assert "left alone: no probe calls" in done.stdout
    assert target.read_bytes() == plain.read_bytes()


@pytest.mark.parametrize("linker", ["bfd", "gold", "mold"])
def test_a_fat_object_loses_its_intermediate_code(bench: Any, check: Any, need: Any, linker: str) -> None:
    """With it the linker's plugin would compile the calls anew, and nothing would define the stubs."""
    need(f"ld.{linker}")
    plain = bench.compile("gcc", PROBES, "-O2", "-flto", "-ffat-lto-objects")
    made = bench.instrument(plain)
    assert ".gnu.lto_" in bench.run("readelf", "-SW", plain).stdout
    assert ".gnu.lto_" not in bench.run("readelf", "-SW", made).stdout
    program = bench.link("-O2", "-flto", f"-fuse-ld={linker}", made)
    reference = bench.link("-fno-lto", f"-fuse-ld={linker}", plain, bench.stubs([plain]))
    assert check.records(check.binary(program), check.binary(reference)) == []


def test_clang_s_fat_objects_lose_their_bitcode(bench: Any) -> None:
    """Clang from version 17 on has -ffat-lto-objects: a section of type SHT_LLVM_LTO."""
    plain = bench.compile("gcc", PROBES, "-O2")
    bitcode = bench.compile("clang", PROBES, "-O2", "-flto")
    fat = bench.fresh("fat.o")
    flags = "--set-section-flags=.llvm.lto=exclude"
    bench.run("llvm-objcopy", f"--add-section=.llvm.lto={bitcode}", flags, plain, fat)
    content = bytearray(fat.read_bytes())
    table = int.from_bytes(content[40:48], "little")
    index = next(i for i, name in sections(bench, fat) if name == ".llvm.lto")
    content[table + 64 * index + 4 : table + 64 * index + 8] = (0x6FFF4C0C).to_bytes(4, "little")
    fat.write_bytes(content)
    made = dict(sections(bench, bench.instrument(fat)))
    assert ".llvm.lto" not in made.values()
    assert ".note.stapsdt" in made.values()


def sections(bench: Any, path: Path) -> list[tuple[int, str]]:
    shown = bench.run("readelf", "-SW", path).stdout
    return [(int(index), name) for index, name in re.findall(r"^ *\[ *(\d+)\] (\S+)", shown, re.MULTILINE)]


def test_a_source_on_standard_input_can_t_be_compiled_again(bench: Any) -> None:
    """It can't be read twice; nothing is left, rather than an object without probes."""
    target = bench.fresh("stdin.o")
    text = f'#include "app.h"\\n{PROBES}'.replace('"', '\\"')
    command = f"'{sys.executable}' -m usdtbuild cc -- gcc -flto -I{bench.folder} -c -x c - -o {target}"
    done = bench.run("bash", "-c", f'printf "%b" "{text}" | {command}', code=1)
    assert "its source isn't a file" in done.stderr
    assert not target.exists()


def test_sections_of_intermediate_code_leave_nothing_in_their_headers(usdtbuild: Any, run: Any, tmp_path: Path) -> None:
    """eu-elflint wants all fields of an SHT_NULL header to be 0."""
    (tmp_path / "app.d").write_text("provider app { probe go(int a); };\n")
    (tmp_path / "main.c").write_text('#include "app.h"\nint main(void) { APP_GO(1); return 0; }\n')
    usdtbuild("header", "--formats=dof", "app.d", "-o", "app.h", cwd=tmp_path)
    run("gcc", "-flto", "-ffat-lto-objects", "-c", "main.c", cwd=tmp_path)
    usdtbuild("instrument", "main.o", "-o", "done.o", cwd=tmp_path)
    with (tmp_path / "done.o").open("rb") as stream:
        dropped = [section.header for section in ELFFile(stream).iter_sections() if section["sh_type"] == "SHT_NULL"]
    assert len(dropped) > 1
    assert all(not value for header in dropped for name, value in header.items() if name != "sh_type")
