"""`usdtbuild cc` beside the bare compiler: what it changes (objects with probes) and what it must not change.

Every form of command line runs twice in the same folder, bare and through the launcher. Sources without probes must
come out the same to the byte, with the same files, messages and exit code; sources with probes must come out complete.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from elftools.elf.elffile import ELFFile

from tests.started import wait_for
from usdtbuild.launch.step import may_have_probes

from .conftest import C_LIBRARIES

PACKAGE = Path(__file__).resolve().parent.parent / "usdtbuild"
LAUNCHER = [sys.executable, "-I", "-S", str(PACKAGE / "launcher.py")]

SOURCES = {
    "main.c": '#include "app.h"\nint util(int);\nint main(int argc, char **argv) {\n'
    '  (void)argv;\n  APP_REQ_DONE(argc, "main");\n  return util(argc) - 2;\n}\n',
    "util.c": '#include "app.h"\nint util(int a) {\n'
    '  if (APP_REQ_DONE_ENABLED()) APP_REQ_DONE(a, "util");\n  return a + 1;\n}\n',
    "warn.c": '#include "app.h"\nint warn(int a) { int unused; APP_REQ_DONE(a, "warn"); return a; }\n',
    "error.c": "int error(void) { return nowhere_to_be_found; }\n",
    "cxx.cpp": '#include "app.h"\ntemplate <class T> T twice(T t) { APP_REQ_DONE(1, "twice"); return t + t; }\n'
    "int twice_int(int a) { return twice(a); }\n",
    "whole.c": '#include "app.h"\nint main(void) { APP_REQ_DONE(1, "whole"); return 0; }\n',
    "only_semaphore.c": '#include "app.h"\nint tested(void) { return APP_REQ_DONE_ENABLED(); }\n',
    "empty.c": "",
    "no_call.c": '#include "app.h"\nint nothing(void) { return 1; }\n',
}
PROVIDER = "provider app { probe req__done(int fd, char *what); };\n"


class Outcome(NamedTuple):
    """What a command left behind."""

    code: int
    out: bytes
    err: str
    files: dict[str, bytes]


@pytest.fixture(scope="session")
def headers(usdtbuild: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the provider's header, once with probes and once with macros that do nothing."""
    folder = tmp_path_factory.mktemp("headers")
    (folder / "app.d").write_text(PROVIDER)
    usdtbuild("header", "--formats=dof", folder / "app.d", "-o", folder / "probes.h")
    usdtbuild("header", "--none", folder / "app.d", "-o", folder / "plain.h")
    return folder


@pytest.fixture
def work(tmp_path: Path, headers: Path) -> Callable[[str], Path]:
    """Fill a folder with fresh sources; always the same folder, because its path gets into objects."""

    def fill(header: str) -> Path:
        folder = tmp_path / "work"
        shutil.rmtree(folder, ignore_errors=True)
        (folder / "sub").mkdir(parents=True)
        shutil.copy(headers / header, folder / "app.h")
        shutil.copy(headers / "app.d", folder / "app.d")
        for name, text in SOURCES.items():
            (folder / name).write_text(text)
        shutil.copy(folder / "whole.c", folder / "program")
        (folder / "compile.rsp").write_text("-c @more.rsp")
        (folder / "more.rsp").write_text("'main.c' -DX=\"a b\" -o sub/with\\ space.o")
        (folder / "quoted.rsp").write_text('-c main.c -o "sub/with\\ space.o"')
        (folder / "link.rsp").write_text("main.c util.c -o app")
        subprocess.run(["gcc", "-DUSDT_DISABLED", "-O1", "-S", "util.c", "-o", "plain.s"], cwd=folder, check=True)
        subprocess.run(["gcc", "-O1", "-S", "util.c", "-o", "util.s"], cwd=folder, check=True)
        return folder

    return fill


def execute(folder: Path, words: list[str], stdin: bytes = b"", **more: Any) -> Outcome:
    before = {path for path in folder.rglob("*") if path.is_file()}
    done = subprocess.run(words, cwd=folder, input=stdin, capture_output=True, timeout=120, check=False, **more)
    written = {path for path in folder.rglob("*") if path.is_file()} - before
    files = {str(path.relative_to(folder)): path.read_bytes() for path in sorted(written)}
    return Outcome(done.returncode, done.stdout, _steady(done.stderr.decode()), files)


def _steady(text: str) -> str:
    """Compilers' temporary files have random names."""
    folder = re.escape(tempfile.gettempdir())
    return re.sub(rf"{folder}/(cc\w{{6}}|[\w-]+-[0-9a-f]{{6}})", "/tmp/TEMPORARY", text)


def split(line: str, compiler: str) -> list[str]:
    return [compiler if word == "CC" else word for word in line.split()]


COMPILER_FORMS = {
    "no-o": "CC -c main.c",
    "o": "CC -O2 -c main.c -o sub/out.o",
    "several": "CC -c main.c util.c whole.c",
    "cxx": "CC -x c++ -c cxx.cpp -O1",
    "response": "CC @compile.rsp",
    "empty": "CC -c empty.c",
    "response-missing": "CC @nowhere.rsp -c main.c",
    "response-of-a-folder": "CC @sub -c main.c",
    "option-asked-for": "CC -O2 -S -o /dev/null -xc /dev/null",
    "language-none": "CC -c -x c program -x none util.c",
    "stdin": "CC -x c -c - -o out.o",
    "assembler": "CC -c plain.s",
    "dependencies-named": "CC -MMD -MP -MF deps.d -MT target -c main.c util.c",
    "split-dwarf": "CC -g -gsplit-dwarf -c main.c -o sub/main.o",
    "coverage": "CC --coverage -frandom-seed=1 -c main.c -o sub/main.o",
    "save-temps": "CC -save-temps -c main.c",
    "werror": "CC -Wall -Werror -c warn.c",
    "error-between": "CC -c main.c error.c util.c",
    "missing": "CC -c nowhere.c",
    "dev-null": "CC -c main.c -o /dev/null",
    "stdout": "CC -c main.c -o -",
    "preprocess": "CC -E main.c",
    "version": "CC --version",
    "nothing": "CC",
    "unknown-option": "CC -c --no-such-option main.c",
    "header-x": "CC -x c-header app.h -o app.pch",
    "lto": "CC -flto -frandom-seed=1 -c main.c",
}
LINK_FORMS = {
    "o": "CC -O1 main.c util.c -o app",
    "a-out": "CC main.c util.c",
    "empty": "CC whole.c empty.c -o app",
    "response": "CC @link.rsp",
    "stdin": "CC -x c - -o app",
    "dependencies-named": "CC -MD -MF app.dep whole.c -o app",
    "split-dwarf": "CC -g -gsplit-dwarf main.c util.c -o app",
    "save-temps": "CC -save-temps main.c util.c -o app",
    "unused": "CC -Wall whole.c -o app -O2 -fPIC -DUNUSED -Inowhere",
    "shared": "CC -shared -fPIC util.c -o libutil.so",
    "static": "CC -static whole.c -o app",
    "relocatable": "CC -r -nostdlib main.c util.c -o both.o",
    "error": "CC main.c error.c util.c -o app",
    "undefined": "CC main.c -o app",
    "lld": "CC -fuse-ld=lld main.c util.c -o app",
    "mold": "CC -fuse-ld=mold main.c util.c -o app",
}


def _compare(form: str, cc: str, work: Any, stdin: bytes) -> tuple[Outcome, Outcome]:
    bare = execute(work("plain.h"), split(form, cc), stdin)
    ours = execute(work("plain.h"), [*LAUNCHER, "--", *split(form, cc)], stdin)
    assert ours.code == bare.code
    assert ours.err == bare.err
    assert ours.out == bare.out
    assert sorted(ours.files) == sorted(bare.files)
    return bare, ours


@pytest.mark.parametrize("form", COMPILER_FORMS.values(), ids=COMPILER_FORMS)
def test_compiling_without_probes_is_as_if_we_were_not_there(form: str, cc: str, work: Any) -> None:
    bare, ours = _compare(form, cc, work, SOURCES["whole.c"].encode())
    differing = [name for name in bare.files if bare.files[name] != ours.files[name]]
    assert [name for name in differing if not name.endswith((".gch", ".pch"))] == []  # they hold times and addresses


@pytest.mark.parametrize("form", LINK_FORMS.values(), ids=LINK_FORMS)
def test_linking_in_one_go_without_probes_is_as_if_we_were_not_there(form: str, cc: str, work: Any) -> None:
    bare, ours = _compare(form, cc, work, SOURCES["whole.c"].encode())
    assert [name for name in bare.files if bare.files[name] != ours.files[name]] == []


# --- objects and programs with probes --------------------------------------------------------------------------------


def probes_of(content: bytes, folder: Path) -> int:
    """Return the number of SDT notes in an ELF file; fail if it still calls a probe's stub."""
    path = folder / "probed.elf"
    path.write_bytes(content)
    with path.open("rb") as stream:
        elf: Any = ELFFile(stream)
        symbols = elf.get_section_by_name(".symtab")
        for symbol in symbols.iter_symbols() if symbols else ():
            waiting = symbol["st_shndx"] == "SHN_UNDEF" and symbol["st_info"]["bind"] == "STB_GLOBAL"
            assert not (waiting and re.search("__dtrace|_semaphore", symbol.name)), symbol.name
        return sum(
            note["n_name"] == "stapsdt"
            and note["n_descdata"][3 * elf.elfclass // 8 :].partition(b"\0")[0].decode() not in C_LIBRARIES
            for section in elf.iter_sections("SHT_NOTE")
            if section.name == ".note.stapsdt"
            for note in section.iter_notes()
        )


# form -> probe sites per object
WITH_PROBES = {
    "no-o": ("CC -c main.c", {"main.o": 1}),
    "o": ("CC -O2 -c main.c -o sub/out.o", {"sub/out.o": 1}),
    "o-joined": ("CC -c -osub/out.o main.c", {"sub/out.o": 1}),
    "several": ("CC -c main.c util.c no_call.c", {"main.o": 1, "util.o": 1, "no_call.o": 0}),
    "response": ("CC @compile.rsp", {"sub/with space.o": 1}),
    "language": ("CC -x c -c program", {"program.o": 1}),
    "stdin": ("CC -x c -c - -o out.o", {"out.o": 1}),
    "stdin-no-o": ("CC -c -x c -", {"-.o": 1}),
    "assembler": ("CC -c util.s", {"util.o": 1}),
    "split-dwarf": ("CC -g -gsplit-dwarf -c main.c -o sub/main.o", {"sub/main.o": 1}),
    "coverage": ("CC --coverage -c main.c", {"main.o": 1}),
    "save-temps": ("CC -save-temps -c main.c", {"main.o": 1}),
    "semaphore": ("CC -c only_semaphore.c", {"only_semaphore.o": 0}),
    "cxx": ("CC -O1 -x c++ -c cxx.cpp", {"cxx.o": 1}),
    "error-after": ("CC -c main.c error.c", {"main.o": 1}),
    "error-before": ("CC -c error.c main.c", {"main.o": 1}),
    "lto": ("CC -flto -c main.c", {"main.o": 1}),
    "lto-several": ("CC -flto -O2 -c main.c util.c", {"main.o": 1, "util.o": 1}),
    "lto-whole": ("CC -flto -O2 -fwhole-program -Wno-ignored-optimization-argument -c util.c", {"util.o": 1}),
    "lto-debug": ("CC -flto -g -MD -c main.c -o sub/x.o", {"sub/x.o": 1}),
    "lto-semaphore": ("CC -flto -c only_semaphore.c", {"only_semaphore.o": 0}),
}
PROGRAMS = {
    "o": ("CC -O1 main.c util.c -o app", 2),
    "a-out": ("CC main.c util.c", 2),
    "response": ("CC @link.rsp", 2),
    "stdin": ("CC -x c - -o app", 1),
    "assembler": ("CC main.c util.s -o app", 2),
    "save-temps": ("CC -save-temps main.c util.c -o app", 2),
    "static": ("CC -static whole.c -o app", 1),
    "cxx": ("CC -O1 -x c++ cxx.cpp whole.c -o app", 2),
    "lto": ("CC -flto -O2 main.c util.c -o app LLD", 2),
    "lto-save-temps": ("CC -flto -save-temps main.c util.c -o app LLD", 2),
    "bfd": ("CC -fuse-ld=bfd main.c util.c -o app", 2),
    "gold": ("CC -fuse-ld=gold main.c util.c -o app", 2),
    "lld": ("CC -fuse-ld=lld main.c util.c -o app", 2),
    "mold": ("CC -fuse-ld=mold main.c util.c -o app", 2),
}


def test_a_backslash_within_quotes_is_what_this_compiler_takes_it_for(cc: str, work: Any, tmp_path: Path) -> None:
    """GCC 16 keeps it, as shells do."""
    ours = execute(work("probes.h"), [*LAUNCHER, cc, "@quoted.rsp"])
    (name,) = (name for name in ours.files if name.endswith("space.o"))
    assert probes_of(ours.files[name], tmp_path) == 1


@pytest.mark.parametrize(("form", "sites"), WITH_PROBES.values(), ids=WITH_PROBES)
def test_objects_with_probes_are_complete(form: str, sites: dict[str, int], cc: str, work: Any, tmp_path: Path) -> None:
    stdin = SOURCES["whole.c"].encode()
    bare = execute(work("probes.h"), split(form, cc), stdin)
    ours = execute(work("probes.h"), [*LAUNCHER, *split(form, cc)], stdin)
    assert (ours.code, ours.out, ours.err) == (bare.code, bare.out, bare.err)
    assert sorted(ours.files) == sorted(bare.files)
    assert {name: probes_of(ours.files[name], tmp_path) for name in sites} == sites
    dependencies = [name for name in bare.files if name.endswith(".d")]
    assert [ours.files[name] for name in dependencies] == [bare.files[name] for name in dependencies]


@pytest.mark.parametrize(("form", "sites"), PROGRAMS.values(), ids=PROGRAMS)
def test_programs_made_in_one_go_have_their_probes(
    form: str, sites: int, cc: str, work: Any, need: Any, tmp_path: Path
) -> None:
    form = form.replace("LLD", "-fuse-ld=lld" if "clang" in cc else "")
    for word in form.split():
        if word.startswith("-fuse-ld="):
            need("ld." + word[9:])
    ours = execute(work("probes.h"), [*LAUNCHER, "--", *split(form, cc)], SOURCES["whole.c"].encode())
    assert (ours.code, ours.err) == (0, "")
    program = "a.out" if "a.out" in ours.files else "app"
    assert probes_of(ours.files[program], tmp_path) == sites
    subprocess.run([tmp_path / "work" / program], check=True)


def test_clangs_linker_given_by_path_is_used(need: Any, work: Any, tmp_path: Path) -> None:
    for option in ("--ld-path=", "-fuse-ld="):
        folder = work("probes.h")
        line = [need("clang"), option + need("ld.lld"), "main.c", "util.c", "-o", "app"]
        assert execute(folder, [*LAUNCHER, *line]).code == 0
        assert b"LLD" in (folder / "app").read_bytes()
        assert probes_of((folder / "app").read_bytes(), tmp_path) == 2


def test_a_compiler_by_another_name_is_asked_whether_it_finds_our_linker(work: Any, tmp_path: Path) -> None:
    folder = work("probes.h")
    script(folder, "wrapped", 'exec gcc "$@"')
    assert probes_of(execute(folder, [*LAUNCHER, "./wrapped", "main.c", "util.c"]).files["a.out"], tmp_path) == 2
    script(folder, "another", 'case "$*" in *-B*) exit 1;; esac; echo "called: $*"')
    assert execute(folder, [*LAUNCHER, "./another", "main.c"]).out == b"called: main.c\n"


def test_objects_the_user_links_are_not_touched(cc: str, work: Any) -> None:
    """A finished object on the line of a compile and link in one go stays as it is, even an unprocessed one."""
    folder = work("probes.h")
    subprocess.run([cc, "-c", "util.c"], cwd=folder, check=True)
    before = (folder / "util.o").read_bytes()
    done = execute(folder, [*LAUNCHER, cc, "main.c", "util.o", "-o", "app"])
    assert done.code == 1
    assert "app_req__done_semaphore" in done.err
    assert (folder / "util.o").read_bytes() == before


def test_an_object_instrumented_twice_stays_the_same(cc: str, work: Any) -> None:
    folder = work("probes.h")
    line = [*LAUNCHER, "--", *LAUNCHER, "--", cc, "-c", "main.c"]
    twice = execute(folder, line).files["main.o"]
    assert execute(work("probes.h"), [*LAUNCHER, "--", cc, "-c", "main.c"]).files["main.o"] == twice


def test_object_on_standard_output_is_complete(need: Any, work: Any, tmp_path: Path) -> None:
    for more in ([], ["-flto"]):
        done = execute(work("probes.h"), [*LAUNCHER, need("clang"), *more, "-c", "main.c", "-o", "-"])
        assert (done.code, done.err, done.files) == (0, "", {})
        assert probes_of(done.out, tmp_path) == 1


def test_cached_objects_stay_pristine_and_come_out_complete(need: Any, work: Any, tmp_path: Path) -> None:
    environment = {**os.environ, "CCACHE_DIR": str(tmp_path / "cache"), "CCACHE_HARDLINK": "1"}
    line = [need("ccache"), "gcc", "-c", "main.c"]
    for _ in range(2):
        done = execute(work("probes.h"), [*LAUNCHER, "--", *line], env=environment)
        assert probes_of(done.files["main.o"], tmp_path) == 1
    pristine = execute(work("probes.h"), line, env=environment)
    assert b"stapsdt" not in pristine.files["main.o"]
    statistics = subprocess.run([line[0], "-s"], env=environment, capture_output=True, text=True, check=True).stdout
    assert re.search(r"Hits: +2 / +3", statistics), statistics


def test_a_cache_before_us_is_told_to_stand_behind(need: Any, work: Any, tmp_path: Path) -> None:
    """ccache moves our `--` to the compiler, which says only that it doesn't know this option."""
    environment = {**os.environ, "CCACHE_DIR": str(tmp_path / "cache")}
    command = tmp_path / "usdtbuild-cc"
    command.write_text(f'#!/bin/sh\nexec {" ".join(LAUNCHER)} "$@"\n')
    command.chmod(0o755)
    done = execute(work("probes.h"), [need("ccache"), str(command), "--", "gcc", "-c", "main.c"], env=environment)
    assert done.code != 0
    assert "usdtbuild cc: ccache runs this command; put it behind: usdtbuild cc -- ccache gcc ..." in done.err


def test_a_one_go_link_through_ccache_works(need: Any, work: Any, tmp_path: Path) -> None:
    environment = {**os.environ, "CCACHE_DIR": str(tmp_path / "cache")}
    done = execute(work("probes.h"), [*LAUNCHER, "--", need("ccache"), "gcc", "main.c", "util.c"], env=environment)
    assert probes_of(done.files["a.out"], tmp_path) == 2


# --- options, messages, exit codes -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--nop=fast", "--", "gcc"], "--nop is one of safe, nop5, nop10, classic, not 'fast'"),
        (["--lto", "maybe", "gcc"], "--lto is one of recompile, error, not 'maybe'"),
        (["--formats=stapsdt,elf", "gcc"], "--formats takes some of stapsdt, dof, usdt, with commas, not 'elf'"),
        (["--target-os=linx", "gcc"], "--target-os is one of linux, freebsd, illumos, oracle, not 'linx'"),
        (
            ["--target-os=linx", "--", "gcc", "-c", "x.c"],
            "--target-os is one of linux, freebsd, illumos, oracle, not 'linx'",
        ),
        (["--frobnicate", "gcc"], "there is no option --frobnicate"),
        (["--provider"], "--provider needs a value"),
        (["-v", "--"], "there is no compiler to run"),
        ([], "there is no compiler to run"),
    ],
)
def test_wrong_use_is_one_line_and_exit_code_2(arguments: list[str], says: str, tmp_path: Path) -> None:
    done = execute(tmp_path, [*LAUNCHER, *arguments])
    assert (done.code, done.err) == (2, f"usdtbuild cc: {says}; try 'usdtbuild cc --help'\n")


def test_help_documents_every_option(usdtbuild: Any, tmp_path: Path) -> None:
    text = usdtbuild("cc", "--help").stdout
    for option in ("--verbose", "--nop", "--formats", "--target-os", "--lto", "--provider", "--tool-version"):
        assert option in text
    assert usdtbuild("cc", "-h").stdout == text
    bare = execute(tmp_path, [*LAUNCHER, "--help"])  # no site-packages, and so no click
    assert (bare.code, "'usdtbuild cc --help'" in bare.err) == (0, True)


def test_a_missing_compiler_is_127(tmp_path: Path) -> None:
    done = execute(tmp_path, [*LAUNCHER, "--", "no-such-compiler", "-c", "a.c"])
    assert (done.code, done.err) == (127, "usdtbuild cc: compiler no-such-compiler: not found\n")
    (tmp_path / "text").write_text("")
    for line in (["./text"], ["./text", "-c", "a.c"], ["./text", "a.c"]):
        done = execute(tmp_path, [*LAUNCHER, "--", *line])
        assert (done.code, done.err) == (126, "usdtbuild cc: can't run ./text: Permission denied\n")


def test_the_command_is_the_launcher(usdtbuild: Any, work: Any, tmp_path: Path) -> None:
    folder = work("probes.h")
    usdtbuild("cc", "--", "gcc", "-c", "main.c", cwd=folder)
    assert probes_of((folder / "main.o").read_bytes(), tmp_path) == 1
    assert usdtbuild("cc", "gcc", "-c", "error.c", cwd=folder, code=1).stdout == ""


def test_verbose_tells_what_was_done(work: Any) -> None:
    line = [*LAUNCHER, "-v", "--tool-version=1.2", "--", "gcc"]
    assert execute(work("probes.h"), [*line, "-c", "main.c"]).err == "usdtbuild: main.o: 1 probe site\n"
    assert execute(work("plain.h"), [*line, "-c", "main.c"]).err == ""
    done = execute(work("probes.h"), [*line, "-flto", "-c", "main.c"])
    assert done.err == (
        "usdtbuild: main.o: has probes, so it is compiled again with -fno-lto\nusdtbuild: main.o: 1 probe site\n"
    )


def test_nop_style_reaches_the_object(work: Any) -> None:
    classic, safe, nop5 = (
        execute(work("probes.h"), [*LAUNCHER, f"--nop={style}", "gcc", "-c", "main.c"]).files["main.o"]
        for style in ("classic", "safe", "nop5")
    )
    assert b"\x90\x90\x90\x90\x90" in classic
    assert b"\x90\x0f\x1f\x40\x00" in safe
    assert b"\x0f\x1f\x44\x00\x00" in nop5


@pytest.mark.parametrize("optimisation", ["-O0", "-O2"])
def test_calls_whose_return_is_checked_stay_calls(optimisation: str, need: Any, work: Any) -> None:
    """With this option of clang the program looks below the stack pointer for what a call has left there."""
    clang = need("clang")
    harden = [optimisation, "-mspeculative-load-hardening", "-DUSDT_PROBES_BY_CALL"]
    for option, in_place in ((harden, 0), ([*harden, "-mno-red-zone"], 0), ([*harden, f"-mno-{harden[1][2:]}"], 2)):
        folder = work("probes.h")
        for launch in ([*LAUNCHER, "--verbose", "--", clang], [*LAUNCHER, "--formats=stapsdt,dof", "--", clang]):
            done = execute(folder, [*launch, *option, "-c", "main.c", "util.c"])
            assert done.code == 0, done.err
            calls = subprocess.run(["objdump", "-dr", "main.o", "util.o"], cwd=folder, check=True, capture_output=True)
            assert calls.stdout.count(b"\t__dtrace_app___req__done") == 2 - in_place, calls.stdout.decode()
            assert execute(folder, [clang, "main.o", "util.o", "-o", "app"]).code == 0
            assert execute(folder, ["./app"]).code == 0
            records = probes_of((folder / "app").read_bytes(), folder)
            assert records == (in_place or 1)
    done = execute(folder, [*LAUNCHER, "--", clang, *harden, "main.c", "util.c", "-o", "app"])
    assert done.code == 0, done.err
    assert execute(folder, ["./app"]).code == 0


def test_an_object_that_cannot_be_instrumented_is_removed(work: Any, cc: str) -> None:
    """Here the section with the provider's description is damaged."""
    folder = work("probes.h")
    (folder / "app.h").write_text((folder / "app.h").read_text().replace("provider\\\\t1", "provider\\\\tX"))
    (folder / "main.o").write_text("from an earlier build")
    done = execute(folder, [*LAUNCHER, "--", cc, "-c", "main.c", "no_call.c"])
    assert done.code == 1
    assert re.fullmatch(r"usdtbuild: main\.o: .*\n", done.err)
    assert not (folder / "main.o").exists()
    assert sorted(done.files) == ["no_call.o"]
    linked = execute(folder, [*LAUNCHER, "--", cc, "whole.c", "-o", "app"])
    assert linked.code == 1
    assert linked.files == {}
    assert re.match(r"usdtbuild: /tmp/TEMPORARY\.o: .*\n", linked.err)


def test_a_provider_named_on_the_command_line_is_read(work: Any) -> None:
    (folder := work("probes.h")).joinpath("bad.d").write_text("provider {")
    done = execute(folder, [*LAUNCHER, "--provider=bad.d", "gcc", "-c", "main.c"])
    assert done.code == 1
    assert "bad.d" in done.err
    assert done.files == {}
    assert execute(folder, [*LAUNCHER, "--provider", "app.d", "gcc", "-c", "main.c"]).code == 0


@pytest.mark.parametrize(
    ("words", "dependencies"),
    [
        ("-MMD -c app.c", "app.d"),
        ("-MD -O2 -c app.c -o app.o", "app.d"),
        ("-MMD app.c -o app", "app.d"),
        ("-MMD -c app.c -o sub/x.y.o", "sub/x.y.d"),
        ("-MMD -MF other.d -c app.c", "other.d"),
        ("-MMD -MFother.d -c app.c", "other.d"),
        ("-Wp,-MMD,.app.o.d -c app.c", ".app.o.d"),
        ("-Wp,-MD,app.d app.c -o app", "app.d"),
        ("-S -MMD app.c", "app.d"),
        ("-E -MMD app.c -o app.i", "app.d"),
        ("-M -MF app.d app.c", "app.d"),
        ("-MM app.c -o app.d", "app.d"),
    ],
)
def test_dependencies_are_not_written_over_a_provider_file(
    words: str, dependencies: str, cc: str, tmp_path: Path
) -> None:
    (tmp_path / "app.c").write_text("int main(void) { return 0; }\n")
    path = tmp_path / dependencies
    path.parent.mkdir(exist_ok=True)
    command = [*LAUNCHER, "--", cc, *words.split()]
    for _ in range(2):  # the compiler does write there, also over its own
        subprocess.run(command, cwd=tmp_path, check=True)
        assert "app.c" in path.read_text()
    path.write_text(PROVIDER)
    done = subprocess.run(command, cwd=tmp_path, check=False, capture_output=True, text=True)
    assert (done.returncode, path.read_text()) == (1, PROVIDER)
    assert done.stderr == (
        f"usdtbuild: {dependencies}: is a provider file, and the compiler would write the source's dependencies over "
        f"it; name another file for these, such as -MF {dependencies}ep\n"
    )


def test_a_failing_compiler_leaves_old_objects_to_the_compiler(work: Any) -> None:
    """An object that this run didn't write isn't ours, whatever is in it."""
    folder = work("probes.h")
    subprocess.run(["gcc", "-c", "main.c", "-o", "old.o"], cwd=folder, check=True)
    before = (folder / "old.o").read_bytes()
    script(folder, "failing", "exit 3")
    assert execute(folder, [*LAUNCHER, "./failing", "-c", "main.c", "-o", "old.o"]).code == 3
    assert (folder / "old.o").read_bytes() == before


@pytest.mark.parametrize("output", ["-", "/dev/stdout"])
def test_a_failure_with_standard_output_for_an_object_is_one(output: str, need: Any, work: Any) -> None:
    """Of the compiler and of ours: nobody may take what came for an object."""
    folder = work("probes.h")
    (folder / "broken.c").write_text("int broken(void) { return\n")
    command = [*LAUNCHER, need("clang"), "-c"]
    done = execute(folder, [*command, "broken.c", "-o", output])
    assert (done.code, done.out, done.files) == (1, b"", {})
    (folder / "app.h").write_text((folder / "app.h").read_text().replace("provider\\\\t1", "provider\\\\tX"))
    done = execute(folder, [*command, "main.c", "-o", output])
    assert (done.code, done.out, done.files) == (1, b"", {})
    assert "line 'provider" in done.err


# --- LTO ---------------------------------------------------------------------------------------------------------


def test_lto_objects_without_probes_stay_lto(cc: str, work: Any) -> None:
    folder = work("probes.h")
    (folder / "sem.c").write_text("extern short my_semaphore; int f(void) { return my_semaphore; }\n")
    done = execute(folder, [*LAUNCHER, "--", cc, "-flto", "-c", "no_call.c", "sem.c"])
    assert done.code == 0
    for name in ("no_call.o", "sem.o"):
        content = done.files[name]
        assert b"__gnu_lto_slim" in content or content[:4] == b"BC\xc0\xde"


def test_lto_behind_an_unknown_wrapper_is_compiled_again_by_the_same_compiler(work: Any, tmp_path: Path) -> None:
    folder = work("probes.h")
    script(folder, "wrapper", 'echo "$1" >> ran; exec "$@"')
    done = execute(folder, [*LAUNCHER, "./wrapper", "gcc", "-flto", "-c", "main.c", "util.c"])
    assert done.code == 0, done.err
    assert done.files["ran"] == b"gcc\n" * 3
    assert probes_of(done.files["main.o"], tmp_path) == 1


def test_fat_lto_objects_keep_their_probes_when_linked_with_lto(work: Any, linker: str, tmp_path: Path) -> None:
    """They need no second run: their intermediate code is neutralised, and their machine code has the probes."""
    folder = work("probes.h")
    options = ["-O2", "-g", "-flto", "-ffat-lto-objects"]
    script(folder, "counted", 'echo >> ran; exec gcc "$@"')
    assert execute(folder, [*LAUNCHER, "--", "./counted", *options, "-c", "main.c"]).code == 0
    assert (folder / "ran").read_text() == "\n"
    assert execute(folder, [*LAUNCHER, "--", "gcc", *options, "-c", "util.c"]).code == 0
    linked = execute(folder, ["gcc", f"-fuse-ld={linker}", *options, "main.o", "util.o", "-o", "app"])
    assert linked.code == 0, linked.err
    assert probes_of(linked.files["app"], tmp_path) == 2


def test_mixed_lto_links(cc: str, work: Any, tmp_path: Path) -> None:
    folder = work("probes.h")
    lld = ["-fuse-ld=lld"] if "clang" in cc else []
    assert execute(folder, [*LAUNCHER, "--", cc, "-flto", "-O2", "-c", "main.c", "util.c", "no_call.c"]).code == 0
    linked = execute(folder, [cc, "-flto", "-O2", *lld, "main.o", "util.o", "no_call.o", "-o", "app"])
    assert linked.code == 0, linked.err
    assert probes_of(linked.files["app"], tmp_path) == 2
    subprocess.run([folder / "app"], check=True)


def test_lto_error_refuses(cc: str, work: Any) -> None:
    done = execute(work("probes.h"), [*LAUNCHER, "--lto=error", cc, "-flto", "-c", "main.c", "no_call.c"])
    assert done.code == 1
    assert re.fullmatch(r"usdtbuild: main\.o: is (a slim LTO object|LLVM bitcode), .*-fno-lto.*\n", done.err)
    assert sorted(done.files) == ["no_call.o"]


def test_lto_of_what_cannot_be_read_again_is_an_error(cc: str, work: Any) -> None:
    source = SOURCES["whole.c"].encode()
    for line in (["-c", "-x", "c", "-"], ["-x", "c", "-", "-o", "app"]):
        done = execute(work("probes.h"), [*LAUNCHER, cc, "-flto", *line], source)
        assert done.code == 1
        assert "its source isn't a file; compile it with -fno-lto\n" in done.err
        assert done.files == {}


@pytest.mark.parametrize("name", ["main.o", f"{'x' * 245}.o"], ids=["short", "long"])
def test_a_recompiled_object_that_is_refused_is_removed(name: str, cc: str, work: Any) -> None:
    """The second object, without LTO, is found to be damaged; one with a long name can't be held under another."""
    folder = work("probes.h")
    (folder / "app.h").write_text((folder / "app.h").read_text().replace("provider\\\\t1", "provider\\\\tX"))
    done = execute(folder, [*LAUNCHER, "--", cc, "-flto", "-c", "main.c", "-o", name])
    assert done.code == 1
    assert "line 'provider" in done.err
    assert done.files == {}


@pytest.mark.parametrize("insists", ["-fsanitize=cfi", "-fwhole-program-vtables"])
def test_lto_that_an_option_insists_on_is_an_error_with_the_compilers_words(
    insists: str, need: Any, work: Any, usdtbuild: Any
) -> None:
    folder = work("probes.h")
    more = ["-fno-sanitize-ignorelist"] if "sanitize" in insists else []  # the list may not be installed
    words = [*LAUNCHER, need("clang"), "-flto", "-fvisibility=hidden", insists, *more, "-c", "main.c"]
    done = execute(folder, words)
    assert done.code == 1
    assert f"'{insists}' only allowed with '-flto'" in done.err
    assert "usdtbuild: main.o: is an LTO object with probes, and compiling it with -fno-lto failed" in done.err
    assert done.files == {}
    assert "make it with `usdtbuild header`, without dof and usdt among its --formats" in done.err
    usdtbuild("header", "app.d", "-o", "app.h", cwd=folder)
    done = execute(folder, words)
    assert (done.code, list(done.files)) == (0, ["main.o"])


def test_warnings_of_a_recompiled_source_appear_once(cc: str, work: Any) -> None:
    done = execute(work("probes.h"), [*LAUNCHER, cc, "-flto", "-Wall", "-c", "warn.c"])
    assert done.err.count("unused variable") == 1


CLANG_ONLY = {
    "working directory": ("clang -working-directory=$PWD/sub -c main.c -o made.o", "sub/made.o"),
    "working directory, two words": ("clang -working-directory $PWD/sub -c main.c", "sub/main.o"),
    "configuration file with -c": ("clang --config $PWD/options main.c -o made.o", "made.o"),
    "configuration file with -o": ("clang --config $PWD/named -c main.c", "named.o"),
    "overridden options": ("env CCC_OVERRIDE_OPTIONS=+-c clang main.c -o made.o", "made.o"),
    "overridden output": ("env 'CCC_OVERRIDE_OPTIONS=+-o +made.o' clang -c main.c", "made.o"),
    "overridden options of an assembler's": (
        "env CCC_OVERRIDE_OPTIONS=+-c clang -fno-integrated-as main.c -o made.o", "made.o",
    ),
    "an output that looks like an option": ("clang -c main.c -objx.o", "bjx.o"),
}  # fmt: skip


@pytest.mark.parametrize("form", CLANG_ONLY)
def test_what_only_clang_understands(form: str, need: Any, work: Any, tmp_path: Path) -> None:
    need("clang")
    line, made = CLANG_ONLY[form]
    folder = work("probes.h")
    for name in ("main.c", "app.h"):
        shutil.copy(folder / name, folder / "sub" / name)
    (folder / "options").write_text("-c")
    (folder / "named").write_text("-o named.o")
    environment, clang, rest = line.rpartition("clang ")
    words = f"{environment}{' '.join(LAUNCHER)} -- {clang}{rest}"
    done = execute(folder, ["sh", "-c", words])
    assert (done.code, sorted(done.files)) == (0, [made])
    assert probes_of(done.files[made], tmp_path) == 1


@pytest.mark.parametrize("line", ["gcc -c main.c -objx.o", "as util.s -o bjx.o", "as -obx.o util.s", "as util.s"])
def test_odd_names_of_outputs_and_an_assembler_for_a_compiler(line: str, work: Any) -> None:
    done = execute(work("probes.h"), [*LAUNCHER, "--", *line.split()])
    assert done.code == 0
    (content,) = done.files.values()
    assert b".note.stapsdt" in content


# --- interruptions ---------------------------------------------------------------------------------------------------


def script(folder: Path, name: str, text: str) -> None:
    """A compiler of our own, in shell."""
    (folder / name).write_text(f"#!/bin/sh\n{text}\n")
    (folder / name).chmod(0o755)


@pytest.fixture
def slow(work: Any) -> Path:
    """A folder with a compiler that waits before and after it writes: phase `before`, then `after`."""
    folder = work("probes.h")
    script(
        folder,
        "slowcc",
        "trap 'echo signalled > caught; exit 1' TERM INT HUP USR1 XCPU 37\n"
        "echo $$ > before; while [ -e hold-before ]; do sleep 0.02; done\n"
        'gcc "$@" || exit\n'
        "echo $$ > after; while [ -e hold-after ]; do sleep 0.02; done\n"
        "exit 0",
    )
    return folder


def start(folder: Path, *arguments: str, **more: Any) -> subprocess.Popen[bytes]:
    words = [*LAUNCHER, *arguments, "--", "./slowcc", "-c", "main.c"]
    return subprocess.Popen(words, cwd=folder, stdin=subprocess.DEVNULL, **more)


def has_ended(pid: int) -> bool:
    """Whether a process runs no more; that its entry is gone is up to whoever waits for orphans."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return True


def complete_or_absent(folder: Path, tmp_path: Path) -> bool:
    """Whether main.o is complete; False if it isn't there; an object that still calls stubs fails the test."""
    path = folder / "main.o"
    if path.exists():
        assert probes_of(path.read_bytes(), tmp_path) == 1
    return path.exists()


@pytest.mark.parametrize(
    "number",
    [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGXCPU, 37],
    ids=["INT", "TERM", "HUP", "USR1", "XCPU", "a real-time one"],
)
@pytest.mark.parametrize("phase", ["before", "after"])
def test_a_signal_while_compiling_ends_both_and_leaves_no_raw_object(
    number: int, phase: str, slow: Path, tmp_path: Path
) -> None:
    (slow / f"hold-{phase}").touch()
    process = start(slow)
    wait_for((slow / phase).exists, phase)
    process.send_signal(number)
    assert process.wait(20) == -number
    assert (slow / "caught").exists()
    assert complete_or_absent(slow, tmp_path) == (phase == "after")
    assert not list(slow.glob(".*"))


LATE = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
/* The signal comes when whoever waits has looked for one, and before the call that waits for whatever comes. */
static void late(void)
{
    static int done;
    if (strncmp(program_invocation_short_name, "python", 6) == 0 && !done++) kill(getpid(), SIGTERM);
}
int waitid(idtype_t kind, id_t which, siginfo_t *info, int options)
{
    typedef int function(idtype_t, id_t, siginfo_t *, int);
    if (!(options & WNOHANG)) late();
    return ((function *)dlsym(RTLD_NEXT, "waitid"))(kind, which, info, options);
}
int sigwait(const sigset_t *set, int *number)
{
    typedef int function(const sigset_t *, int *);
    late();
    return ((function *)dlsym(RTLD_NEXT, "sigwait"))(set, number);
}
"""


def test_a_signal_that_comes_just_before_the_launcher_waits_is_not_lost(slow: Path, tmp_path: Path, run: Any) -> None:
    """It was, until the compiler ended."""
    (tmp_path / "late.c").write_text(LATE)
    run("gcc", "-shared", "-fPIC", "late.c", "-o", "late.so", "-ldl", cwd=tmp_path)
    (slow / "hold-before").touch()
    process = start(slow, env={**os.environ, "LD_PRELOAD": str(tmp_path / "late.so")})
    try:
        assert process.wait(20) == -signal.SIGTERM
    finally:
        (slow / "hold-before").unlink()
        process.wait()
    assert not (slow / "main.o").exists()


def test_a_launcher_to_which_ends_of_children_are_nothing(slow: Path, tmp_path: Path) -> None:
    """A shell's `trap '' CHLD` is handed on to all that it starts."""
    process = start(slow, preexec_fn=lambda: signal.signal(signal.SIGCHLD, signal.SIG_IGN))
    assert process.wait(60) == 0
    assert complete_or_absent(slow, tmp_path)


def test_a_compiler_that_ignores_the_signal_is_waited_for(slow: Path, tmp_path: Path) -> None:
    text = (slow / "slowcc").read_text().replace("'echo signalled > caught; exit 1'", "'echo > caught'")
    (slow / "slowcc").write_text(text)
    (slow / "hold-before").touch()
    process = start(slow)
    wait_for((slow / "before").exists, "before")
    process.send_signal(signal.SIGTERM)
    wait_for((slow / "caught").exists, "the signal")
    (slow / "hold-before").unlink()
    assert process.wait(20) == -signal.SIGTERM
    assert complete_or_absent(slow, tmp_path)


@pytest.mark.parametrize(
    "inherited",
    [lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN),
     lambda: signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP})],
    ids=["ignored", "blocked"],
)  # fmt: skip
def test_signals_that_are_ignored_or_blocked_stay_so(
    inherited: Callable[[], object], slow: Path, tmp_path: Path
) -> None:
    (slow / "hold-before").touch()
    process = start(slow, preexec_fn=inherited)
    wait_for((slow / "before").exists, "before")
    process.send_signal(signal.SIGHUP)
    time.sleep(0.2)
    (slow / "hold-before").unlink()
    assert process.wait(20) == 0
    assert complete_or_absent(slow, tmp_path)
    assert not (slow / "caught").exists()


@pytest.fixture
def hangs(slow: Path) -> Path:
    """The folder with a pipe for a provider file, at which the launcher hangs when the compiler has ended."""
    (slow / "app.d").rename(slow / "good.d")
    os.mkfifo(slow / "app.d")
    return slow


def is_held(folder: Path) -> None:
    wait_for(lambda: list(folder.glob(".main.o.*.usdtbuild")), "the object being held")


def test_killed_while_instrumenting_no_object_is_there_and_the_next_build_makes_it(hangs: Path, tmp_path: Path) -> None:
    process = start(hangs, "--provider=app.d")
    is_held(hangs)
    process.kill()
    assert process.wait(20) == -signal.SIGKILL
    assert not (hangs / "main.o").exists()
    (hangs / "good.d").rename(hangs / "app.d")
    assert start(hangs, "--provider=app.d").wait(20) == 0
    assert complete_or_absent(hangs, tmp_path)
    assert not list(hangs.glob(".*"))


def test_two_builds_of_one_object_at_once_both_succeed(hangs: Path, tmp_path: Path) -> None:
    """The first hangs at a pipe while it holds its object; the second makes the same object meanwhile."""
    first = start(hangs, "--provider=app.d")
    is_held(hangs)
    assert start(hangs, "--provider=good.d").wait(20) == 0
    assert complete_or_absent(hangs, tmp_path)
    (hangs / "app.d").write_text((hangs / "good.d").read_text())
    assert first.wait(20) == 0
    assert complete_or_absent(hangs, tmp_path)
    assert not list(hangs.glob(".*"))


def test_make_killed_as_a_whole_rebuilds(hangs: Path, need: Any, tmp_path: Path) -> None:
    """Make takes a target that is there and new for done, so that a killed build must leave none."""
    (hangs / "Makefile").write_text(f"main.o: main.c\n\t{' '.join(LAUNCHER)} --provider=app.d -- ./slowcc -c main.c\n")
    make = subprocess.Popen([need("make")], cwd=hangs, start_new_session=True, stdout=subprocess.DEVNULL)
    is_held(hangs)
    os.killpg(make.pid, signal.SIGKILL)
    make.wait(20)
    (hangs / "good.d").rename(hangs / "app.d")
    subprocess.run([need("make")], cwd=hangs, check=True, capture_output=True, timeout=60)
    assert complete_or_absent(hangs, tmp_path)


# The signal comes when the compiler runs, and its number isn't known yet.
EARLY = """\
import os, posix, runpy, signal, sys, time
spawn = posix.posix_spawn
def spawned(*words, **more):
    child = spawn(*words, **more)
    while not os.path.exists("before") or not open("before").read().endswith("\\n"):
        time.sleep(0.01)
    os.kill(os.getpid(), signal.SIGTERM)
    return child
posix.posix_spawn = spawned
sys.argv = [sys.argv[1], "--", "./slowcc", "-c", "main.c"]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


@pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGTERM, 0], ids=["USR1", "TERM", "an early one"])
def test_what_the_compiler_leaves_running_ends_too(number: int, slow: Path, tmp_path: Path) -> None:
    """A compiler's driver dies of a signal, and its assembler would write the object when nobody is there any more."""
    script(
        slow,
        "slowcc",
        "(sh -c 'echo $PPID' > before; while [ -e hold-before ]; do sleep 0.02; done; gcc \"$@\") & wait",
    )
    (slow / "hold-before").touch()
    early = [sys.executable, "-c", EARLY, str(PACKAGE / "launcher.py")]
    process = start(slow) if number else subprocess.Popen(early, cwd=slow, stdin=subprocess.DEVNULL)
    wait_for(lambda: (slow / "before").exists() and (slow / "before").read_text().endswith("\n"), "before")
    if number:
        process.send_signal(number)
    assert process.wait(20) == -(number or signal.SIGTERM)
    left = int((slow / "before").read_text())
    wait_for(lambda: has_ended(left), "end of what the compiler left")
    assert not complete_or_absent(slow, tmp_path)


def test_half_an_object_is_removed(slow: Path) -> None:
    cut = "head -c 700 main.o > m; mv m main.o; echo $$ > after"
    text = (slow / "slowcc").read_text().replace("echo $$ > after", cut)
    (slow / "slowcc").write_text(text)
    (slow / "hold-after").touch()
    process = start(slow)
    wait_for((slow / "after").exists, "after")
    process.send_signal(signal.SIGTERM)
    assert process.wait(20) == -signal.SIGTERM
    assert not (slow / "main.o").exists()
    assert not list(slow.glob(".*"))


def test_a_zombie_is_no_running_launcher(slow: Path, tmp_path: Path) -> None:
    dead = subprocess.Popen(["true"])
    os.waitid(os.P_PID, dead.pid, os.WEXITED | os.WNOWAIT)
    (slow / f".main.o.{dead.pid}.usdtbuild").touch()
    (slow / f".main.o.{os.getpid()}.usdtbuild").touch()
    assert start(slow).wait(20) == 0
    assert complete_or_absent(slow, tmp_path)
    assert [path.name for path in slow.glob(".*")] == [f".main.o.{os.getpid()}.usdtbuild"]
    assert dead.wait() == 0


@pytest.mark.parametrize("streams", ["2>&-", "2>/dev/full", ">&- 2>&-", "<&- >&- 2>&-", ">/dev/full", "<&-"])
@pytest.mark.parametrize("kind", ["-c", "link"])
def test_closed_and_full_streams_change_nothing(streams: str, kind: str, work: Any) -> None:
    words = "-c main.c -o made" if kind == "-c" else "whole.c -o made"
    line = " ".join([*LAUNCHER, "-v", "--", "gcc", words, streams])
    done = execute(work("probes.h"), ["sh", "-c", line])
    assert (done.code, sorted(done.files)) == (0, ["made"])
    assert b".note.stapsdt" in done.files["made"]


def test_the_exit_code_of_a_killed_compiler_is_the_shells(work: Any) -> None:
    folder = work("probes.h")
    script(folder, "crashing", "kill -SEGV $$")
    assert execute(folder, [*LAUNCHER, "./crashing", "-c", "main.c"]).code == 128 + signal.SIGSEGV
    script(folder, "odd", "exit 77")
    assert execute(folder, [*LAUNCHER, "./odd", "-c", "main.c"]).code == 77


def test_the_compiler_gets_its_pipe_signal_back(work: Any) -> None:
    """Python ignores SIGPIPE from its start, and what is ignored stays so across exec."""
    folder = work("probes.h")
    script(folder, "show", "grep SigIgn /proc/self/status")
    ignored = [execute(folder, [*LAUNCHER, "./show", *words]).out for words in ([], ["-c", "a.c"], ["a.c"])]
    real_time = 1 << 31  # signals from 32 on, which the C library keeps for itself
    assert {int(line.split()[1], 16) % real_time for line in ignored} == {0}


# --- odd outputs ---------------------------------------------------------------------------------------------------


def test_an_output_with_a_name_too_long_to_rename_beside(work: Any, tmp_path: Path) -> None:
    name = "n" * 250 + ".o"
    done = execute(work("probes.h"), [*LAUNCHER, "gcc", "-c", "main.c", "-o", name])
    assert (done.code, sorted(done.files)) == (0, [name])
    assert probes_of(done.files[name], tmp_path) == 1


def test_an_output_behind_a_symbolic_link(cc: str, work: Any, tmp_path: Path) -> None:
    folder = work("probes.h")
    (folder / "main.o").symlink_to("real.o")
    assert execute(folder, [*LAUNCHER, cc, "-c", "main.c"]).code == 0
    assert probes_of((folder / "main.o").read_bytes(), tmp_path) == 1


def test_the_object_keeps_its_mode(work: Any) -> None:
    folder = work("probes.h")
    execute(folder, [*LAUNCHER, "gcc", "-c", "main.c"], umask=0o027)
    assert stat.S_IMODE((folder / "main.o").stat().st_mode) == 0o640


def test_file_names_that_are_no_utf8(work: Any, tmp_path: Path) -> None:
    folder = os.fsencode(work("probes.h"))
    os.rename(folder + b"/main.c", folder + b"/\xff.c")  # noqa: PTH104
    words = [*(os.fsencode(word) for word in LAUNCHER), b"gcc", b"-c", b"\xff.c"]
    assert subprocess.run(words, cwd=folder, check=False).returncode == 0
    with open(folder + b"/\xff.o", "rb") as stream:  # noqa: PTH123
        assert probes_of(stream.read(), tmp_path) == 1


# --- the launcher itself -------------------------------------------------------------------------------------------


def test_a_compile_without_probes_loads_next_to_nothing(work: Any) -> None:
    """Every module costs each object of a build; the targets in docs/performance.md rest on this list."""
    words = [sys.executable, "-I", "-S", "-X", "importtime", str(PACKAGE / "launcher.py"), "gcc", "-c", "main.c"]
    listing = execute(work("plain.h"), words).err
    loaded = {line.rpartition("|")[2].strip() for line in listing.splitlines()}
    baseline = execute(work("plain.h"), [sys.executable, "-I", "-S", "-X", "importtime", "-c", ""]).err
    known = {line.rpartition("|")[2].strip() for line in baseline.splitlines()}
    own = {"usdtbuild", "usdtbuild.compilers", "usdtbuild.launch"}
    own |= {f"usdtbuild.launch.{name}" for name in ("compile", "settings", "step")}
    assert loaded - known == {"__future__", *own}


def test_names_across_the_pieces_that_a_large_object_is_read_in_are_found(tmp_path: Path) -> None:
    piece = 1 << 20
    for content, answer in (
        (b"x" * (piece - 4) + b"__dtrace_app___go" + b"x" * piece, True),
        (b"x" * (piece - 4) + b"__dtra" + b"x" * piece, False),
        (b"x" * (piece - 4) + b"_semaphore" + b"x" * (piece - 15) + b".usdtbuild.provider", True),
        (b"_semaphore" + b"x" * (2 * piece - 13) + b"BC\xc0\xde", True),
        (b"_semaphore" + b"x" * piece, False),
        (b".usdtbuild.provider" + b"x" * piece, False),
        (b"", False),
    ):
        (tmp_path / "object").write_bytes(content)
        assert may_have_probes(str(tmp_path / "object")) == answer


def test_modules_named_like_pythons_own_do_not_hide_them(work: Any, tmp_path: Path) -> None:
    """Also without -I, where Python puts the script's folder, with our inspect.py in it, first on the path."""
    words = [sys.executable, str(PACKAGE / "launcher.py"), "gcc", "-flto", "-c", "main.c"]
    assert probes_of(execute(work("probes.h"), words).files["main.o"], tmp_path) == 1


def test_the_linkers_stand_ins_are_programs_and_all_the_same() -> None:
    stand_ins = sorted((PACKAGE / "linker_hook").iterdir())
    assert [path.name for path in stand_ins] == ["ld", "ld.bfd", "ld.gold", "ld.lld", "ld.mold"]
    assert all(os.access(path, os.X_OK) for path in stand_ins)
    assert len({path.read_bytes() for path in stand_ins}) == 1


def test_a_stand_in_run_by_mistake_says_so(tmp_path: Path) -> None:
    done = execute(tmp_path, [str(PACKAGE / "linker_hook" / "ld"), "--version"])
    assert done.code != 0
    assert "only usdtbuild cc runs this program" in done.err


@pytest.mark.parametrize("packed", ["::", "-1:", " 3:abc", "+1:a", "0x2:ab", "9:a", "1", ":" * 5000, f"{'9' * 20}:"])
def test_what_others_put_in_the_linkers_variables_is_refused(packed: str, tmp_path: Path) -> None:
    environment = {**os.environ, "USDTBUILD_LINK_PYTHON": sys.executable, "USDTBUILD_LINK_0": packed,
                   "USDTBUILD_LINK_LAUNCHER": str(PACKAGE / "launcher.py")}  # fmt: skip
    done = execute(tmp_path, [str(PACKAGE / "linker_hook" / "ld"), "--version"], env=environment)
    assert done.code == 126
    assert done.err.startswith("usdtbuild cc: USDTBUILD_LINK_0 is not what usdtbuild cc has put there")


def test_long_command_lines_reach_the_linker_step(work: Any, tmp_path: Path) -> None:
    """One environment string holds 128 KiB at most."""
    many = ["--tool-version=" + "\N{LATIN SMALL LETTER E WITH ACUTE}" * 200] * 400
    done = execute(work("probes.h"), [*LAUNCHER, *many, "gcc", "main.c", "util.c"])
    assert (done.code, done.err) == (0, "")
    assert probes_of(done.files["a.out"], tmp_path) == 2


@pytest.mark.parametrize("formats", ["dof", "usdt", "stapsdt,dof"])
def test_a_format_of_dtrace_is_asked_for_once(formats: str, work: Any, usdtbuild: Any) -> None:
    """DTrace increments no semaphore, so `..._ENABLED()` is a call, which headers must know."""
    folder = work("probes.h")
    words = [*LAUNCHER, f"--formats={formats}", "gcc", "-O2", "main.c", "util.c", "-o", "app"]
    assert execute(folder, words).code == 0
    found = usdtbuild("verify", "app", cwd=folder, code=None).stdout
    assert "enabled-by-semaphore" not in found
