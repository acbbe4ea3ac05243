"""Link-time optimisation: objects that hold intermediate code instead of machine code, or beside it.

What the launcher does by default, compiling such a file without LTO, is tested in tests/test_launcher.py. Here: what
`instrument` says of such objects, and `--lto=keep`, where stubs in the intermediate code carry the probes.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from elftools.elf.elffile import ELFFile

from usdtbuild.errors import UsdtError
from usdtbuild.instrument.lto import stub_source
from usdtbuild.instrument.main import Options

PROBES = 'int main(void) { if (APP_REQ_ENABLED()) APP_REQ(1, "x"); APP_START(); return 0; }'
PLAIN = "int main(void) { return 0; }"
FLAVOURS = {
    "gcc": ("gcc", "-flto"),
    "gcc-fat": ("gcc", "-flto -ffat-lto-objects"),
    "gcc-partitions": ("gcc", "-flto -flto-partition=1to1"),
    "clang": ("clang", "-flto"),
    "clang-thin": ("clang", "-flto=thin"),
}
LANGUAGES = {"c": ("first.c", "second.c"), "c++": ("first.cpp", "second.cpp")}
# The samples' probes, those that are called.
_COMMON = {"start", "item", "item__done", "wide", "rare"}
CALLED = {"c": _COMMON, "c++": _COMMON | {"shape"}}


class Parts(NamedTuple):
    """LTO objects of a sample with stubs for its probes, its host program, and how to link them."""

    objects: list[Path]
    host: Path
    driver: str
    flags: list[str]


def driver_of(compiler: str, language: str) -> str:
    return compiler if language == "c" else {"gcc": "g++", "clang": "clang++"}[compiler]


@pytest.fixture(scope="session")
def kept(session_bench: Any, check: Any, need: Any) -> Any:
    """Compile a sample with --lto=keep: `kept("clang-thin", "c++")`."""
    made: dict[tuple[str, str], Parts] = {}

    def make(flavour: str, language: str) -> Parts:
        if (flavour, language) not in made:
            compiler, options = FLAVOURS[flavour]
            need(compiler)
            driver, flags = driver_of(compiler, language), ["-O2", "-fPIE", *options.split()]
            include = f"-I{session_bench.folder}"
            objects = []
            for name in LANGUAGES[language]:
                target = session_bench.fresh("kept.o")
                command = (driver, *flags, include, "-c", check.samples / name, "-o", target)
                session_bench.usdtbuild("cc", "--lto=keep", "--", *command)
                objects.append(target)
            host = session_bench.compile(compiler, check.samples / "host.c", *flags)
            made[flavour, language] = Parts(objects, host, driver, flags)
        return made[flavour, language]

    return make


def rows() -> list[Any]:
    found = []
    for flavour in FLAVOURS:
        for linker in ("bfd", "gold", "lld", "mold"):
            if linker == "lld" and flavour in ("gcc", "gcc-partitions"):
                continue  # lld has no plugins, and so no way to read GCC's intermediate code
            for language in LANGUAGES:
                essential = (language == "c++" and linker in ("bfd", "lld")) or linker == "mold"
                marks = [] if essential else [pytest.mark.slow]
                found.append(pytest.param(flavour, linker, language, id=f"{flavour}-{linker}-{language}", marks=marks))
    return found


@pytest.mark.parametrize(("flavour", "linker", "language"), rows())
@pytest.mark.parametrize(
    "dropped", [pytest.param((), id="all"), pytest.param(("-Wl,--gc-sections",), id="gc", marks=pytest.mark.slow)]
)
def test_stubs_carry_the_probes_of_lto_objects(
    session_bench: Any, check: Any, kept: Any, need: Any, flavour: str, linker: str, language: str, dropped: Any
) -> None:
    need(f"ld.{linker}")
    parts = kept(flavour, language)
    around = (*parts.flags, "-pie", f"-fuse-ld={linker}", "-Wl,--fatal-warnings", *dropped, parts.host)
    program = session_bench.link(*around, *parts.objects, driver=parts.driver)
    binary = check.binary(program)
    records = binary.records()
    assert {record.probe for record in records} == CALLED[language]
    assert len({record.address for record in records}) == len(records)
    # lld keeps every object's copy of a stub that ThinLTO has compiled, and only the first has a function's symbol; but
    # each copy's site has a name of its own.
    places = {symbol["st_value"]: symbol.name for symbol in binary.symbols if symbol.name.startswith("usdtbuild.")}
    for record in records:
        assert binary.bytes_from(record.address)[:2] == b"\x90\xc3"
        assert places[record.address].endswith(f".__dtrace_sample___{record.probe}")
    assert not any("dtrace" in name for name in binary.dynamic_symbols)
    assert session_bench.output(program) == session_bench.output(expected(session_bench, check, language))


def expected(bench: Any, check: Any, language: str) -> Path:
    """The same program, made without LTO and without probes."""
    driver = driver_of("gcc", language)
    plain = [bench.compile(driver, check.samples / name, "-O1") for name in LANGUAGES[language]]
    host = bench.compile("gcc", check.samples / "host.c", "-O1")
    return Path(bench.link(host, *plain, bench.stubs(plain), driver=driver))


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_kept_objects_work_from_an_archive_and_beside_plain_ones(
    session_bench: Any, check: Any, kept: Any, need: Any, flavour: str
) -> None:
    parts = kept(flavour, "c")
    tool = {"gcc": "gcc-ar", "clang": "llvm-ar"}[FLAVOURS[flavour][0]]
    archive = session_bench.fresh("libkept.a")
    plain = session_bench.instrument(session_bench.compile("gcc", check.samples / "second.c", "-O2", "-fPIE"))
    session_bench.run(need(tool), "rcs", archive, parts.objects[0], plain)
    linker = "lld" if FLAVOURS[flavour][0] == "clang" else "bfd"
    program = session_bench.link(*parts.flags, "-pie", f"-fuse-ld={linker}", parts.host, archive)
    binary = check.binary(program)
    records = binary.records()
    assert {record.probe for record in records} == CALLED["c"]
    # The plain object's calls are sites in place, next to the stubs.
    assert len(records) > len(CALLED["c"])
    assert session_bench.output(program) == session_bench.output(expected(session_bench, check, "c"))


@pytest.mark.live
@pytest.mark.parametrize("flavour", ["gcc", "clang-thin"])
def test_a_tracer_sees_every_hit_with_arguments(session_bench: Any, kept: Any, trace: Any, flavour: str) -> None:
    parts = kept(flavour, "c")
    linker = "mold" if flavour == "gcc" else "lld"
    layout = ("-Wl,--gc-sections", f"-fuse-ld={linker}")
    program = session_bench.link(*parts.flags, "-pie", *layout, parts.host, *parts.objects)
    # bpftrace knows six arguments; the others are where the note says: behind the return address of the stub's call.
    script = f"""
        usdt:{program}:sample:wide {{ printf("wide %d %s %d %d\\n", arg0, str(arg1),
            *(int32 *)(reg("sp") + 8), *(int64 *)(reg("sp") + 16)); }}
        usdt:{program}:sample:item__done {{ printf("done %s\\n", str(arg1)); }}
    """
    lines = trace(script, program)
    assert lines.count("wide 1 b 5 8") == 1
    # The program tests whether a tracer is there before all but one of these.
    assert lines.count("done loop") == 5


def test_kept_objects_are_the_same_each_time(session_bench: Any, check: Any) -> None:
    content = set()
    target = session_bench.fresh("same.o")
    for _ in range(2):
        command = ("clang", "-g3", "-O1", "-flto", f"-I{session_bench.folder}", "-c", check.samples / "first.c")
        session_bench.usdtbuild("cc", "--lto=keep", "--", *command, "-o", target)
        content.add(target.read_bytes())
    assert len(content) == 1


def test_only_what_the_object_mentions_gets_a_stub(session_bench: Any) -> None:
    source = session_bench.write("one.c", '#include "app.h"\nint main(void) { APP_REQ_DONE(1, "x", 2); return 0; }')
    target = session_bench.fresh("one.o")
    session_bench.usdtbuild("cc", "--lto=keep", "--", "clang", "-flto", "-c", source, "-o", target)
    program = session_bench.link("-flto", "-fuse-ld=lld", target, driver="clang")
    names = set(re.findall(r"__dtrace_\w+", session_bench.run("nm", program).stdout))
    assert names == {"__dtrace_app___req__done"}  # and not `req`, with which the name begins


@pytest.mark.parametrize("compiler", ["gcc", "clang"])
def test_dependency_files_don_t_name_the_stubs(session_bench: Any, need: Any, compiler: str) -> None:
    need(compiler)
    source = session_bench.write(f"{compiler}.c", f'#include "app.h"\n{PROBES}\n')
    target = session_bench.fresh("deps.o")
    before = {path.name for path in session_bench.folder.iterdir()}
    strict = ("-std=c90", "-pedantic", "-Wall", "-Wextra", "-Werror", "-Wno-variadic-macros")
    command = (compiler, "-flto", *strict, "-MD", "-MF", f"{compiler}.d", "-c", source, "-o", target)
    session_bench.usdtbuild("cc", "--lto=keep", "--", *command)
    dependencies = (session_bench.folder / f"{compiler}.d").read_text()
    assert "app.h" in dependencies
    assert "usdtbuild" not in dependencies
    assert {path.name for path in session_bench.folder.iterdir()} - before == {f"{compiler}.d", target.name}


def test_other_records_can_t_be_kept(session_bench: Any) -> None:
    source = session_bench.write("dof.c", f'#include "app.h"\n{PROBES}')
    target = session_bench.fresh("dof.o")
    command = ("gcc", "-flto", "-c", source, "-o", target)
    done = session_bench.usdtbuild("cc", "--lto=keep", "--formats=dof", "--", *command, code=1)
    assert "can only be kept with --formats=stapsdt; compile this file without LTO" in done.stderr
    assert not target.exists()


def test_other_machines_can_t_be_kept(bench: Any) -> None:
    content = bytearray(bench.compile("gcc", PROBES).read_bytes())
    content[18:20] = (183).to_bytes(2, "little")  # aarch64
    with pytest.raises(UsdtError, match=r"x\.o: .* can't be kept on aarch64; compile this file without LTO"):
        stub_source(b"__dtrace_app___start", bytes(content), "x.o", Options())


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


def test_a_source_on_standard_input_can_t_be_kept(bench: Any) -> None:
    """It can't be read twice; nothing is left, rather than an object without probes."""
    target = bench.fresh("stdin.o")
    text = f'#include "app.h"\\n{PROBES}'.replace('"', '\\"')
    command = f"'{sys.executable}' -m usdtbuild cc --lto=keep -- gcc -flto -I{bench.folder} -c -x c - -o {target}"
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
