"""`usdtbuild add`: projects without probes get one, build as before, and show it; the samples without theirs, too.

Each project is written the way people write them, some after the shape of known programs. Not here: what the build
systems do with probes afterwards.
"""

from __future__ import annotations

import contextlib
import json
import os
import pty
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any, NamedTuple

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
pytestmark = pytest.mark.project

MAIN = """\
/* int main(void) { */
#include <stdio.h>

int main(int argc, char **argv)
{
    return argc - 1 + !argv;
}
"""
EMPTY = "int main(void) { return 0; }\n"
MODULE = """\
#include <Python.h>

static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "clock", NULL, -1, NULL, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit_clock(void) { return PyModule_Create(&definition); }
"""
META = '\n[project]\nname = "clock"\nversion = "1.0"\n'


class Shape(NamedTuple):
    """A project: its files, what builds it, what is told to `add`, which source gets a probe, and what then has it."""

    kind: str
    files: dict[str, str]
    source: str
    built: str
    probe: str = "started"
    options: tuple[str, ...] = ()
    run: str = ""  # a program of the build that fires the probe, where that isn't what has it


C = "cmake_minimum_required(VERSION 3.16)\nproject(clock C)\n"
LIBRARY = """\
#include "clock.h"
static int twice(int n)
{
    return 2 * n;
}
CLOCK_API(int) tick(int n)
{
\tint once;
\tint more = 1;

\tonce = twice(n);
\treturn once + more;
}
"""
HEADER = "#define CLOCK_API(type) type\nint tick(int);\n"
CALLS = '#include "clock.h"\nint main(void) { return tick(1) != 3; }\n'
GENERATOR = """\
#include <stdio.h>
int main(int argc, char **argv)
{
    FILE *file = argc > 1 ? fopen(argv[1], "w") : NULL;
    return !file || fputs("int table = 1;\\n", file) < 0 || fclose(file);
}
"""
USES_TABLE = "extern int table;\n" + MAIN.replace("argc - 1", "argc - table")
GENERATED_BY_MAKE = "table.c: gen\n\t./gen $@\ngen: gen.c\n\t$(CC) gen.c -o $@\n"
CONFIGURE_AC = "AC_INIT([clock], [1.0])\nAC_PROG_CC\nAC_CONFIG_FILES([Makefile])\nAC_OUTPUT\n"

QUICK_CMAKE = {"CMakeLists.txt": C + "add_executable(clock main.c)", "main.c": MAIN}
QUICK = {"Makefile": "clock: main.o\n\t$(CC) $^ -o $@\n", "main.c": MAIN}

SHAPES = {
    "cmake: a variable, a folder, a test, and an #if around an include": Shape(
        "cmake",
        {
            "CMakeLists.txt": "cmake_minimum_required(VERSION 3.16)\nproject(clock C CXX)\nadd_subdirectory(tests)\n"
            "add_subdirectory(src)\n",
            "src/CMakeLists.txt": "set(SOURCES\n  main.cpp # (the one)\n  other.cpp)\n"
            'if(TRUE)\n  add_executable("${PROJECT_NAME}"\n    ${SOURCES}\n  )\nendif()\n',
            "src/main.cpp": "#ifdef _WIN32\n#include <windows.h>\n#endif\nint main() { return 0; }\n",
            "src/other.cpp": "",
            "tests/CMakeLists.txt": "add_executable(check check.c)\n",
            "tests/check.c": MAIN,
        },
        "src/main.cpp", "src/clock",
    ),
    "leveldb: one source in a library and in tests, a tool": Shape(
        "cmake",
        {
            "CMakeLists.txt": C.replace("C)", "CXX)") + 'add_library(clock "")\n'
            "target_sources(clock PRIVATE db/tick.cc)\ntarget_include_directories(clock PUBLIC include)\n"
            "add_executable(clockutil db/util.cc)\ntarget_link_libraries(clockutil clock)\n"
            "add_executable(tests db/tick.cc db/tick_test.cc)\ntarget_include_directories(tests PRIVATE include)\n"
            "install(TARGETS clock)\n",
            "include/clock.h": HEADER, "db/tick.cc": LIBRARY, "db/util.cc": CALLS, "db/tick_test.cc": CALLS,
        },
        "db/tick.cc", "libclock.a", "called", run="clockutil",
    ),
    "libuv: static and shared twins in C90": Shape(
        "cmake",
        {
            "CMakeLists.txt": C + "add_compile_options(-std=c90 -pedantic-errors -Werror=declaration-after-statement)\n"
            "add_library(clock SHARED src/tick.c)\nadd_library(clock_a STATIC src/tick.c)\n"
            "target_include_directories(clock PUBLIC include)\ntarget_include_directories(clock_a PUBLIC include)\n"
            "add_executable(uses uses.c)\ntarget_link_libraries(uses clock)\ninstall(TARGETS clock clock_a)\n",
            "include/clock.h": HEADER, "src/tick.c": LIBRARY, "uses.c": CALLS,
        },
        "src/tick.c", "libclock.so", "called", run="uses",
    ),
    "spdlog: a library of headers, one that is built, and a source that isn't": Shape(
        "cmake",
        {
            "CMakeLists.txt": C + 'option(BUNDLED "" OFF)\nset(sources src/tick.c)\nif(BUNDLED)\n'
            "  list(PREPEND sources src/bundled.c)\nendif()\nadd_library(clock STATIC ${sources})\n"
            "target_include_directories(clock PUBLIC include)\nadd_library(clock_headers INTERFACE)\n"
            "target_include_directories(clock_headers INTERFACE include)\nadd_executable(example example/example.c)\n"
            "target_link_libraries(example clock)\ninstall(TARGETS clock clock_headers)\n",
            "include/clock.h": HEADER, "src/bundled.c": LIBRARY, "src/tick.c": LIBRARY,
            "example/example.c": CALLS,
        },
        "src/tick.c", "libclock.a", "called", run="example",
    ),
    "lighttpd: Autotools, a program that makes a source, and one that is installed": Shape(
        "autotools",
        {
            "configure.ac": CONFIGURE_AC,
            "Makefile.in": "CC = @CC@\nprefix = @prefix@\nall: clock\nclock: server.o table.o\n\t$(CC) $^ -o $@\n"
            + GENERATED_BY_MAKE + "install: all\n\tcp clock $(prefix)/bin\nclean:\n\trm -f *.o *.d table.c gen clock\n",
            "gen.c": GENERATOR, "server.c": USES_TABLE,
        },
        "server.c", "clock",
    ),
    "libevent: Automake and libtool, a library that is installed, a program that isn't": Shape(
        "autotools",
        {
            "configure.ac": "AC_INIT([clock], [1])\nAM_INIT_AUTOMAKE([foreign])\nAC_PROG_CC\nAM_PROG_AR\nLT_INIT\n"
            "AC_CONFIG_FILES([Makefile])\nAC_OUTPUT\n",
            "Makefile.am": "lib_LTLIBRARIES = libclock.la\nlibclock_la_SOURCES = tick.c clock.h\n"
            "libclock_la_LDFLAGS = -release 2.1\nnoinst_PROGRAMS = uses\nuses_LDADD = libclock.la\n",
            "clock.h": HEADER, "tick.c": LIBRARY, "uses.c": CALLS,
        },
        "tick.c", ".libs/libclock-2.1.so", "called", run="uses",
    ),
    "redis: Make in folders, a main in an #ifdef, an #include within a function": Shape(
        "make",
        {
            "Makefile": "all install clean:\n\t$(MAKE) -C src $@\n",
            "src/Makefile": "CFLAGS = -std=gnu99 -MMD\nall: clock-server clock-benchmark\n"
            "clock-server: adlist.o server.o ../deps/dep.o\n\t$(CC) $^ -o $@\n"
            "clock-benchmark: benchmark.o adlist.o\n\t$(CC) $^ -o $@\n-include *.d\n"
            "install: all\n\tinstall clock-server clock-benchmark $(PREFIX)/bin\nclean:\n\trm -f *.o *.d clock-*\n",
            "src/adlist.c": "int list(void) { return 0; }\n#ifdef LIST\nint main(void) { return 1; }\n#endif\n",
            "src/server.c": 'int list(void);\nint dep(void);\nint logo(void)\n{\n#include "logo.h"\n}\n'
            "int main(int argc, char **argv) {\n    int first = list();\n\n"
            "    return first + dep() + logo() + argc - 1 + !argv;\n}\n",
            "src/logo.h": "return 0;\n", "src/benchmark.c": "int list(void);\nint main(void) { return list(); }\n",
            "deps/dep.c": "int dep(void) { return 0; }\n",
        },
        "src/server.c", "src/clock-server",
    ),
    "haproxy: Make that wants to be told for what": Shape(
        "make",
        {
            "Makefile": "ifeq ($(TARGET),)\nall:\n\t@echo 'Please choose a TARGET' >&2; exit 1\nelse\n"
            "all: clock\nendif\nclock: src/clock.o\n\t$(CC) -o $@ $^\n%.o: %.c\n\t$(CC) -DFOR=$(TARGET) -c $< -o $@\n",
            "src/clock.c": "#ifdef FOR\n" + MAIN + "#endif\n",
        },
        "src/clock.c", "clock", options=("TARGET=linux-glibc",),
    ),
    "make: one command, C++, no line at the end": Shape(
        "make",
        {"Makefile": "clock: src/main.cpp\n\tg++ -O1 src/main.cpp -o $@", "src/main.cpp": "int main() { return 0; }"},
        "src/main.cpp", "clock",
    ),
    "make: a main as before C89": Shape(
        "make",
        {**QUICK, "main.c": "int main(argc, argv)\nint argc;\nchar **argv;\n{\n    return argc - 1 + !argv;\n}\n"},
        "main.c", "clock",
    ),
    "meson: a generated source, dependencies, a folder": Shape(
        "meson",
        {
            "meson.build": "project('clock', 'c')\nm = meson.get_compiler('c').find_library('m') # ('\nsubdir('src')\n",
            "src/meson.build": "gen = executable('gen', 'gen.c')\n"
            "table = custom_target('table', output: 'table.c', command: [gen, '@OUTPUT@'])\n"
            "sources = files(\n  'main.c',\n)\nexe = executable(\n  'clock',\n  table,\n  sources,\n"
            "  dependencies: [m],\n)\ntest('it', exe)\n",
            "src/gen.c": GENERATOR, "src/main.c": USES_TABLE,
        },
        "src/main.c", "src/clock",
    ),
}  # fmt: skip
SETUP = (
    'from setuptools import Extension, setup\n\nsetup(name="clock", ext_modules=[Extension("clock", ["clock.c"])])\n'
)
PYTHON = {
    "setuptools": {
        "pyproject.toml": '[build-system]\nrequires = [\n    "setuptools>=61",\n]\n'
        f'build-backend = "setuptools.build_meta"\n{META}',
        "setup.py": SETUP.replace('name="clock", ', ""),
    },
    "setup.py alone": {"setup.py": SETUP},
    "scikit-build-core": {
        "pyproject.toml": '[build-system]\nrequires = ["scikit-build-core"]\n'
        f'build-backend = "scikit_build_core.build"\n{META}',
        "CMakeLists.txt": "cmake_minimum_required(VERSION 3.18)\nproject(clock C)\n"
        "find_package(Python REQUIRED COMPONENTS Interpreter Development.Module)\n"
        "python_add_library(clock MODULE WITH_SOABI clock.c)\ninstall(TARGETS clock DESTINATION .)\n",
    },
    "meson-python": {
        "pyproject.toml": "[build-system] # [\nrequires = ['meson-python']\nbuild-backend = 'mesonpy'\n" + META,
        "meson.build": "project('clock', 'c', version: '1.0')\npy = import('python').find_installation(pure: false)\n"
        "py.extension_module('clock', 'clock.c', install: true)\n",
    },
}


def write(folder: Path, files: dict[str, str]) -> Path:
    """Write a project into a folder named clock."""
    for name, text in files.items():
        path = folder / "clock" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder / "clock"


def snapshot(folder: Path) -> dict[str, str]:
    return {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*") if path.is_file()}


def probes_of(usdtbuild: Any, binary: Path) -> set[str]:
    found = json.loads(usdtbuild("list", "--json", binary).stdout)
    return {f"{probe['provider']}:{probe['name']}" for file in found["files"] for probe in file["probes"]}


@pytest.fixture
def people(tmp_path: Path, need: Any) -> dict[str, str]:
    """Variables as people have them who have no usdtbuild: Meson and Ninja are in PATH."""
    modules = ROOT / ".cache" / "meson-newest"
    if not modules.is_dir():
        pytest.skip(f"{modules} is missing; `make test` installs it")
    need("ninja")
    program = tmp_path / "bin" / "meson"
    program.parent.mkdir()
    code = "import sys\nfrom mesonbuild.mesonmain import main\nsys.exit(main())\n"
    program.write_text(f"#!{sys.executable}\nimport sys\nsys.path.insert(0, {str(modules)!r})\n{code}")
    program.chmod(0o755)
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS", "PYTHON"))}
    folders = [each for each in kept["PATH"].split(":") if not Path(each, "usdtbuild").exists()]
    return {**kept, "PATH": ":".join([str(program.parent), *folders]), "PYTHONPATH": str(ROOT)}


@pytest.fixture
def python_people(build_backends: Any, tmp_path: Path) -> dict[str, str]:
    """Variables with which `python3` has pip and all build backends."""
    python, environment = build_backends
    (tmp_path / "modules").mkdir()
    (tmp_path / "modules" / "pip").symlink_to(Path(sysconfig.get_path("purelib"), "pip"))
    program = tmp_path / "programs" / "python3"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nPYTHONPATH={tmp_path / "modules"} exec {python} "$@"\n')
    program.chmod(0o755)
    return {**environment, "PATH": f"{program.parent}:{environment['PATH']}", "PYTHONPATH": str(ROOT)}


BUILDS = {
    "cmake": (("cmake", "-S", ".", "-B", "build"), ("cmake", "--build", "build")),
    "meson": (("meson", "setup", "build"), ("meson", "compile", "-C", "build")),
    "autotools": (("autoreconf", "-fi"), ("./configure",), ("make",)),
    "make": (("make",),),
    "python": (("python3", "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "-w", "dist", "."),),
}


def built(run: Any, source: Path, kind: str, environment: dict[str, str], *options: str) -> Path:
    """Build a project as people do who have no usdtbuild; return the folder with what was built."""
    for words in BUILDS[kind]:
        run(*words, *(options if kind == "make" else ()), cwd=source, env=environment)
    if kind == "python":
        (wheel,) = (source / "dist").glob("*.whl")
        run(sys.executable, "-m", "zipfile", "-e", wheel, source / "dist")
    return source / {"cmake": "build", "meson": "build", "python": "dist"}.get(kind, "")


def add(usdtbuild: Any, source: Path, changed: set[str], environment: dict[str, str], *options: str) -> Any:
    """Write, and see that nothing but a source changed, and that the new files are a provider and its header."""
    before = snapshot(source)
    said = usdtbuild("add", "--write", source, *options, env=environment)
    after = snapshot(source)
    assert {path for path in after if after[path] != before.get(path)} - before.keys() == {
        path for path in after if path not in before
    }
    new = {path for path in after if path not in before} - {"MANIFEST.in"}
    assert sorted(Path(path).suffix for path in new) == [".d", ".h"]
    assert {path for path in before if after[path] != before[path]} == changed
    (path,) = changed
    assert len(after[path].splitlines()) - len(before[path].splitlines()) in (1, 2)
    named = {line.split(None, 1)[1] for line in said.stdout.splitlines()}
    assert named == {str(source / path) for path in after if after[path] != before.get(path)}
    return said


def undone(usdtbuild: Any, source: Path, before: dict[str, str]) -> None:
    usdtbuild("add", "--undo", source)
    assert {path: (source / path).read_text() for path in before} == before


@pytest.mark.parametrize("name", SHAPES)
def test_a_project_of_this_shape_builds_with_a_probe_that_fires(
    name: str, tmp_path: Path, usdtbuild: Any, run: Any, people: Any, need: Any
) -> None:
    shape = SHAPES[name]
    if "libtool" in name:
        need("libtoolize")
    source = write(tmp_path, shape.files)
    options = [word for each in shape.options for word in ("--option", each)]
    said = add(usdtbuild, source, {shape.source}, people, *options)
    text = (source / shape.source).read_text()
    assert "tick(" not in text.partition("CLOCK_CALLED();")[2], "a static function came before one that others call"
    assert f"{shape.kind} builds {Path(shape.built).name}, a " in said.stderr
    written = {path: (source / path).read_bytes() for path in snapshot(source)}
    folder = built(run, source, shape.kind, people, *shape.options)
    assert probes_of(usdtbuild, folder / shape.built) == {f"clock:{shape.probe}"}
    hits = usdtbuild("trace", "--require-hits", "--", folder / (shape.run or shape.built)).stdout
    assert shape.probe in hits
    assert {path: (source / path).read_bytes() for path in written} == written
    undone(usdtbuild, source, shape.files)


@pytest.mark.parametrize(
    "name", [pytest.param(each, marks=[pytest.mark.slow] * (each != "setuptools")) for each in PYTHON]
)
def test_python(name: str, tmp_path: Path, usdtbuild: Any, run: Any, python_people: Any) -> None:
    files = {**PYTHON[name], "clock.c": MODULE}
    source = write(tmp_path, files)
    add(usdtbuild, source, {"clock.c"}, python_people)
    folder = built(run, source, "python", python_people)
    assert probes_of(usdtbuild, next(folder.rglob("*.so"))) == {"clock:loaded"}
    undone(usdtbuild, source, files)


def test_the_diff_makes_what_write_makes(tmp_path: Path, usdtbuild: Any, run: Any, people: Any) -> None:
    source = write(tmp_path, QUICK_CMAKE)
    diff = usdtbuild("add", source, env=people).stdout
    assert snapshot(source) == QUICK_CMAKE
    copy = Path(shutil.copytree(source, tmp_path / "patched"))
    run("patch", "-p1", "-s", cwd=copy, input=diff)
    add(usdtbuild, source, {"main.c"}, people)
    assert snapshot(copy) == snapshot(source)
    assert "is a provider file: the project has probes" in usdtbuild("add", "--write", source, code=1).stderr


def test_a_line_that_ends_as_windows_ends_lines_stays_so(tmp_path: Path, usdtbuild: Any) -> None:
    source = write(tmp_path, {"Makefile": "clock: main.o\n\t$(CC) $^ -o $@\n"})
    before = MAIN.replace("\n", "\r\n").encode() + b"/* \xe9 */\r\n"
    (source / "main.c").write_bytes(before)
    usdtbuild("add", "--write", source)
    text = (source / "main.c").read_bytes()
    assert text.count(b"\n") == text.count(b"\r\n") == MAIN.count("\n") + 3
    assert b"\xe9" in text
    usdtbuild("add", "--undo", source)
    assert (source / "main.c").read_bytes() == before
    assert sorted(path.name for path in source.iterdir()) == ["Makefile", "main.c"]


def test_target_and_source_are_chosen(tmp_path: Path, usdtbuild: Any, people: Any) -> None:
    source = write(tmp_path, SHAPES["leveldb: one source in a library and in tests, a tool"].files)
    said = usdtbuild("add", source, "--target", "clockutil", env=people)
    assert "+ CLOCK_STARTED();" in said.stdout.replace("{", "\n+")
    assert "--target libclock.a, tests" in said.stderr


def test_what_git_ignores_is_not_copied_and_named_and_a_compiler_is_given_by_its_path(
    tmp_path: Path, usdtbuild: Any, run: Any
) -> None:
    source = write(tmp_path, {**QUICK, ".gitignore": "*.d\nleft/\n", "left/big.c": "#error not this\n"})
    (source / "Makefile").write_text("clock: main.o $(wildcard left/*.c)\n\t$(CC) $^ -o $@\n")
    (source / "outside").symlink_to("/nonexistent/outside")
    run("git", "-c", "init.defaultBranch=main", "init", "-q", cwd=source)
    said = usdtbuild("add", "--source", "./main.c", source, env={**os.environ, "CC": str(shutil.which("cc"))})
    assert "Git ignores probes/clock.d; git add --force adds it." in said.stderr


WRONG: dict[str, tuple[dict[str, str], list[str], int, str]] = {
    "nothing that builds": ({"main.c": MAIN}, [], 1, "has no build file that usdtbuild knows"),
    "another build system": (
        {"Makefile": "all:\n"}, ["--for", "cmake"], 1, "has no CMakeLists.txt, so --for cmake can't build it",
    ),
    "two build systems": (
        {"CMakeLists.txt": "", "meson.build": ""}, [], 1, "can be built by cmake or meson; choose one with --for cmake",
    ),
    "headers only": (
        {"CMakeLists.txt": C + "add_library(x INTERFACE)\n"}, [], 1, "of its own (a library of headers only, or a",
    ),
    "a compiler by its full path": (
        {**QUICK, "Makefile": f"clock: main.c\n\t{shutil.which('cc')} $^ -o $@\n"}, [], 1,
        "or a compiler that isn't called by its name); add probes by hand",
    ),
    "no function": (
        {"CMakeLists.txt": C + "add_library(x x.c)", "x.c": "int x;\n"}, [], 1, "there is no function in x.c that can",
    ),
    "wrong target": (QUICK, ["--target", "app"], 2, "--target app: the build makes no such program or library; it"),
    "a source that isn't built": (
        {**QUICK, "other.c": MAIN}, ["--source", "other.c"], 2, "is compiled into none of the programs and libraries",
    ),
    "wrong name": (QUICK, ["--name", "My-App"], 2, "'My-App' is no name for a provider"),
    "wrong TOML": ({"pyproject.toml": "[build"}, [], 1, "is no TOML"),
    "names taken": ({**QUICK, "clock.h": "", "clock_probes.h": ""}, [], 1, "are there already; choose another --name"),
    "undo with another option": (QUICK, ["--undo"], 2, "--undo takes no other option"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_what_it_can_not_do_is_said_and_changes_nothing(name: str, tmp_path: Path, usdtbuild: Any) -> None:
    files, options, code, message = WRONG[name]
    source = write(tmp_path, files)
    done = usdtbuild("add", "--write", source, *options, code=code)
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert snapshot(source) == files


FAILS = {
    "haproxy without what it is for": (
        SHAPES["haproxy: Make that wants to be told for what"].files, "make V=1: ended with 2", "choose a TARGET",
    ),
    "what the compiler says, made fit for a terminal": (
        {**QUICK, "main.c": "#error \x1b[31mred\n"}, "make V=1: ended with 2", "#error \\x1b[31mred",
    ),
    "a build that takes no other folder": (
        {**QUICK, "Makefile": 'clock: main.c\n\ttest -z "$$(find . -mindepth 1 -type d)"\n\t$(CC) $^ -o $@\n'},
        "make V=1: ended with 2", "clock] Error 1",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FAILS)
def test_a_build_that_fails_is_shown_and_changes_nothing(name: str, tmp_path: Path, usdtbuild: Any) -> None:
    files, command, said = FAILS[name]
    source = write(tmp_path, files)
    done = usdtbuild("add", "--write", source, code=1)
    assert f"{command} in a copy of the project, and said:\n" in done.stderr
    assert said in done.stderr
    unchanged = "fails like this without a probe, and nothing is changed. Install what it lacks, or give the options"
    assert (unchanged in done.stderr) == (name != "a build that takes no other folder")
    assert snapshot(source) == files


@pytest.mark.parametrize(
    ("absent", "said"),
    [
        ("libtoolize", "Install libtoolize (libtool), or give the options that you build it with"),
        ("autoreconf", "autoreconf: can't be run: no such file or directory; install it (Debian: autoconf)"),
    ],
)
def test_a_tool_that_is_not_installed_is_named(
    absent: str, said: str, tmp_path: Path, usdtbuild: Any, need: Any
) -> None:
    programs = tmp_path / "programs"
    programs.mkdir()
    need("autoreconf")
    for program in Path("/usr/bin").iterdir():
        if program.name != absent:
            (programs / program.name).symlink_to(program)
    configure = "AC_INIT([clock],[1.0])\nAM_INIT_AUTOMAKE([foreign])\nAC_PROG_CC\nLT_INIT\nAC_OUTPUT\n"
    source = write(tmp_path / "clock", {"configure.ac": configure, "main.c": MAIN})
    done = usdtbuild("add", source, code=1, env={"PATH": str(programs)})
    assert said in done.stderr


def test_a_folder_is_left_out_for_what_is_in_it_and_not_for_its_name(tmp_path: Path, usdtbuild: Any, run: Any) -> None:
    """libevent's `build-aux` is needed; what a build has left is not, for then nothing would be compiled."""
    rules = "build-out/clock: main.c\n\tmkdir -p build-out\n\t$(CC) $^ -o $@\n"
    source = write(tmp_path, {"Makefile": "include build-aux/rules\n", "build-aux/rules": rules, "main.c": MAIN})
    run("make", cwd=source)
    usdtbuild("add", "--write", source)
    run("make", cwd=source)
    assert probes_of(usdtbuild, source / "build-out/clock") == {"clock:started"}


@pytest.mark.parametrize("committed", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_msgpack_has_generated_sources_only(
    committed: bool, tmp_path: Path, usdtbuild: Any, python_people: Any
) -> None:
    code = "/* Generated by Cython 3.0.11 */\n" + MODULE
    cython = f"from pathlib import Path\nPath('clock.c').write_text({code!r})\n"
    files = {**PYTHON["setup.py alone"], "clock.pyx": "", **({"clock.c": code} if committed else {})}
    files["setup.py"] = ("" if committed else cython) + files["setup.py"]
    source = write(tmp_path, files)
    done = usdtbuild("add", "--write", source, code=1, env=python_people)
    assert "of its own (clock.c is generated)" in done.stderr
    assert snapshot(source) == files


CHANGED = {
    "the provider file": ("probes/clock.d", "();", "(int number);", "has no provider file that is still as"),
    "the header": ("probes/clock.h", "SDT notes", "notes", "isn't the header that was written with the provider file"),
    "one probe more": (
        "main.c",
        "return argc",
        "CLOCK_STARTED();\n    return argc",
        "has more or less of CLOCK_STARTED",
    ),
    "no probe any more": ("main.c", "CLOCK_STARTED();", "", "CLOCK_STARTED is in 0 sources, not in one"),
}


@pytest.fixture(scope="module")
def added(tmp_path_factory: pytest.TempPathFactory, usdtbuild: Any) -> Path:
    source = write(tmp_path_factory.mktemp("added"), QUICK)
    usdtbuild("add", "--write", source)
    return source


@pytest.mark.parametrize("name", CHANGED)
def test_what_was_changed_since_is_not_undone(name: str, tmp_path: Path, added: Path, usdtbuild: Any) -> None:
    source = Path(shutil.copytree(added, tmp_path / "clock"))
    path, old, new, message = CHANGED[name]
    text = (source / path).read_text()
    assert old in text
    (source / path).write_text(text.replace(old, new))
    before = snapshot(source)
    assert message in usdtbuild("add", "--undo", source, code=1).stderr
    assert snapshot(source) == before


def test_copies_in_a_build_folder_are_no_sources(tmp_path: Path, added: Path, usdtbuild: Any) -> None:
    source = Path(shutil.copytree(added, tmp_path / "clock"))
    copy = source / "build" / "lib"
    shutil.copytree(source / "probes", copy / "probes")
    shutil.copy(source / "main.c", copy)
    usdtbuild("add", "--undo", source)
    assert (source / "main.c").read_text() == QUICK["main.c"]
    assert not (source / "probes").exists()
    assert "CLOCK_STARTED" in (copy / "main.c").read_text()


def test_a_file_that_can_not_be_written_leaves_all_as_it_was(tmp_path: Path, usdtbuild: Any) -> None:
    source = write(tmp_path, {**QUICK, "probes": ""})
    before = snapshot(source)
    done = usdtbuild("add", "--write", source, code=1)
    assert "probes" in done.stderr
    assert snapshot(source) == before


def test_what_the_build_says_is_shown_on_a_terminal(tmp_path: Path) -> None:
    slow = "clock: main.c\n\t@printf 'now \\033comes main\\n'; sleep 1\n\t$(CC) $^ -o $@\n"
    source = write(tmp_path, {**QUICK, "Makefile": slow})
    ours, theirs = pty.openpty()
    words = [sys.executable, "-m", "usdtbuild", "add", str(source)]
    with subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=theirs, env={**os.environ, "TERM": "xterm"}):
        os.close(theirs)
        shown = b""
        with contextlib.suppress(OSError):  # at its end
            while data := os.read(ours, 4096):
                shown += data
    os.close(ours)
    assert b"Building a copy:" in shown
    assert b"now \\x1bcomes main" in shown


def test_an_interrupted_build_leaves_nothing(tmp_path: Path) -> None:
    source = write(tmp_path, {"Makefile": "all:\n\ttouch started\n\tsleep 60\n", "main.c": MAIN})
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    words = [sys.executable, "-m", "usdtbuild", "add", "--write", str(source)]
    with subprocess.Popen(words, env={**os.environ, "TMPDIR": str(scratch)}, stderr=subprocess.PIPE) as process:
        while not list(scratch.rglob("started")):
            assert process.poll() is None
        process.terminate()
        assert process.wait(30) == -15
    assert list(scratch.iterdir()) == []


# --- the samples without their probes ---------------------------------------------------------------------------------

# sample -> the provider files that it includes headers of, what builds it, and the binary that gets the probe
SAMPLES = {
    "cmake-hello": (("hello.d", "journal.d"), "cmake", "hello"),
    "cmake-library": (("tally.d",), "cmake", "libtally.a"),
    "cpp-templates": (("ring.d",), "cmake", "ring"),
    "meson-hello": (("hello.d", "journal_probes.d"), "meson", "hello"),
    "setuptools-extension": (("wordcount.d",), "python", ""),
    "scikit-build-core-extension": (("checksum.d",), "python", ""),
    "pybind11-extension": (("ledger.d",), "python", ""),
    "meson-python-extension": (("primes.d",), "python", ""),
}
QUICK_SAMPLES = ("cmake-hello",)
_TAKEN_OUT = (
    r"^if\(NOT USDTBuild_FOUND\)\n.*\nendif\(\)\n|^\[tool\.cibuildwheel.*\n(?:[^\[\n].*\n)*",
    r"^.*(?:usdt_verify|usdt_add_provider|target_usdt_providers|find_package\(USDTBuild).*\n",
    r"^usdt_provider = .*\n  .*\n|^usdtbuild = .*\n|^test\('probes.*\n|^.*dependencies: usdt_provider\(.*\n",
    r"^  usdt_provider\.process\([^)]*\),\n",
    r"^\[tool\.usdtbuild\]\n.*\n|^\[tool\.meson-python\]\n.*\n",
    r", usdt_provider\.process\([^)]*\)|, \"usdtbuild\"|, \"\w+\.d\"",
)


def macros_of(provider: str) -> str:
    """Macros that do nothing, for a provider file."""
    (word,) = re.findall(r"^provider (\w+)", provider, re.M)
    probes = [f"{word}_{probe.replace('__', '_')}".upper() for probe in re.findall(r"^\s*probe (\w+)", provider, re.M)]
    return "".join(f"#define {name}(...) ((void)0)\n#define {name}_ENABLED() 0\n" for name in probes)


def without_probes(name: str, folder: Path) -> Path:
    """Copy a sample, and take out what has to do with probes; its macros do nothing, and come from nowhere."""
    leftovers = shutil.ignore_patterns("build", "dist", "*.so", "*.egg-info", "subprojects", "consumer", "__pycache__")
    target = Path(shutil.copytree(ROOT / "sample_projects" / name, folder / "clock", ignore=leftovers))
    texts = {provider: macros_of((target / provider).read_text()) for provider in SAMPLES[name][0]}
    for path in [each for each in target.rglob("*") if each.is_file()]:
        text = path.read_text()
        if path.suffix == ".d":
            path.unlink()
        elif path.suffix in (".c", ".cpp", ".hpp"):
            for provider, macros in texts.items():
                stem = f"{provider[:-2]}-probes" if (target / f"{provider[:-2]}.h").exists() else provider[:-2]
                include = rf'#include "{stem}(?:-probes)?\.h"[^\n]*\n'
                text = re.sub(include, macros, text)
            path.write_text(text)
        elif path.suffix != ".md":
            for expression in _TAKEN_OUT:
                text = re.sub(expression, "", text, flags=re.MULTILINE)
            assert "usdt" not in re.sub(r"#.*", "", text).lower(), (path, text)
            path.write_text(text)
    return target


@pytest.mark.parametrize(
    "name", [pytest.param(each, marks=[pytest.mark.slow] * (each not in QUICK_SAMPLES)) for each in SAMPLES]
)
def test_sample_without_its_probes(
    name: str, tmp_path: Path, usdtbuild: Any, run: Any, people: Any, python_people: Any
) -> None:
    source = without_probes(name, tmp_path)
    kind, binary = SAMPLES[name][1:]
    environment = python_people if kind == "python" else people
    usdtbuild("add", "--write", source, env=environment)
    folder = built(run, source, kind, environment)
    assert len(probes_of(usdtbuild, folder / binary if binary else next(folder.rglob("*.so")))) == 1
