"""`usdtbuild add`: projects without probes get one, build as before, and show it; the samples without theirs, too.

Each project is written the way people write them. Not here: what the build systems do with probes afterwards.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from pathlib import Path
from typing import Any

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
MODULE = """\
#include <Python.h>

static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "clock", NULL, -1, NULL, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit_clock(void) { return PyModule_Create(&definition); }
"""
META = '\n[project]\nname = "clock"\nversion = "1.0"\n'
# name -> (files, where the probe must be, the probe's name)
CMAKE = {
    "program": (
        {
            "CMakeLists.txt": "cmake_minimum_required(VERSION 3.16)\nproject(clock C)\nadd_executable(clock main.c)",
            "main.c": MAIN,
        },
        "clock", "started",
    ),
    "variable, folder and test": (
        {
            "CMakeLists.txt": "cmake_minimum_required(VERSION 3.16)\nproject(clock C CXX)\nadd_subdirectory(tests)\n"
            "add_subdirectory(src)\n",
            "src/CMakeLists.txt": "set(SOURCES\n  main.cpp # (the one)\n  other.cpp)\n"
            "if(TRUE)\n  add_executable(\"${PROJECT_NAME}\"\n    ${SOURCES}\n  )\nendif()\n",
            "src/main.cpp": "#ifdef _WIN32\n#include <windows.h>\n#endif\nint main() { return 0; }\n",
            "src/other.cpp": "",
            "tests/CMakeLists.txt": "add_executable(check check.c)\n",
            "tests/check.c": MAIN,
        },
        "src/clock", "started",
    ),
    "library with a header of its name": (
        {
            "CMakeLists.txt": "cmake_minimum_required(VERSION 3.16)\nproject(clock C)\nfile(GLOB all *.c)\n"
            "add_library(tick SHARED ${all})\n",
            "clock.h": "int tick(int);\n",
            "tick.c": '#include "clock.h"\nstatic int twice(int n)\n{\n    return 2 * n;\n}\nint tick(int n)\n{\n'
            "\treturn twice(n);\n}\n",
        },
        "libtick.so", "called",
    ),
}  # fmt: skip
MESON = {
    "program": (
        {"meson.build": "project('clock', 'c')\nexecutable('clock', 'main.c')\n", "main.c": MAIN}, "clock", "started",
    ),
    "dependencies, folder and trailing comma": (
        {
            "meson.build": "project('clock', 'c')\nm = meson.get_compiler('c').find_library('m') # ('\nsubdir('src')\n",
            "src/meson.build": "sources = files(\n  'main.c',\n)\nexe = executable(\n  'clock',\n  sources,\n"
            "  dependencies: [m],\n  install: true,\n)\ntest('it', exe)\n",
            "src/main.c": MAIN,
        },
        "src/clock", "started",
    ),
}  # fmt: skip
MAKE = {
    "rules": (
        {
            "Makefile": "CC = gcc\nCFLAGS = -O1\nclock: main.o\n\t$(CC) $^ -o $@\n"
            "%.o: %.c\n\t$(CC) $(CFLAGS) -c $^ -o $@\nclean:\n\trm -f *.o *.d clock\n",
            "main.c": MAIN,
        },
        "clock", "started",
    ),
    "one command, C++": (
        {
            "Makefile": "clock: src/main.cpp\n\tg++ -O1 src/main.cpp -o $@",
            "src/main.cpp": "int main() { return 0; }\n",
        },
        "clock", "started",
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


def add(usdtbuild: Any, run: Any, project: Path, *options: str) -> None:
    """Let the diff be applied in a copy, write, and see that both are the same; without --write nothing changed."""
    before = snapshot(project)
    diff = usdtbuild("add", *options, project).stdout
    assert snapshot(project) == before
    copy = project.parent / "patched"
    shutil.copytree(project, copy)
    run("patch", "-p1", "-s", cwd=copy, input=diff)
    said = usdtbuild("add", "--write", *options, project)
    assert snapshot(copy) == snapshot(project)
    changed = {line.split(None, 1)[1] for line in said.stdout.splitlines()}
    assert changed == {str(project / path) for path, text in snapshot(project).items() if before.get(path) != text}
    assert "has probes already" in usdtbuild("add", "--write", project, *options, code=1).stderr


def probes_of(usdtbuild: Any, binary: Path) -> set[str]:
    found = json.loads(usdtbuild("list", "--json", binary).stdout)
    return {f"{probe['provider']}:{probe['name']}" for file in found["files"] for probe in file["probes"]}


@pytest.fixture
def path(tmp_path: Path) -> dict[str, str]:
    """An environment in whose PATH this checkout's usdtbuild is."""
    program = tmp_path / "bin/usdtbuild"
    program.parent.mkdir()
    code = "import sys\nfrom usdtbuild.__main__ import main\nsys.exit(main())\n"
    program.write_text(f"#!{sys.executable}\n{code}")
    program.chmod(0o755)
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
    return {**kept, "PATH": f"{program.parent}:{kept['PATH']}", "PYTHONPATH": str(ROOT)}


@pytest.mark.parametrize("name", CMAKE)
def test_cmake(name: str, make_project: Any, tmp_path: Path, usdtbuild: Any, run: Any) -> None:
    files, binary, probe = CMAKE[name]
    add(usdtbuild, run, write(tmp_path, files))
    project = make_project(tmp_path)
    project.source = tmp_path / "clock"
    project.configure()
    project.make()
    assert probes_of(usdtbuild, project.build / binary) == {f"clock:{probe}"}


@pytest.mark.parametrize("name", MESON)
def test_meson(name: str, tmp_path: Path, usdtbuild: Any, run: Any, path: Any, need: Any) -> None:
    files, binary, probe = MESON[name]
    source = write(tmp_path, files)
    add(usdtbuild, run, source)
    modules = ROOT / ".cache" / "meson-newest"
    if not modules.is_dir():
        pytest.skip(f"{modules} is missing; `make test` installs it")
    need("ninja")
    environment = {**path, "PYTHONPATH": f"{modules}:{ROOT}"}
    run(sys.executable, "-m", "mesonbuild.mesonmain", "setup", "build", cwd=source, env=environment)
    run("ninja", "-C", "build", cwd=source, env=environment)
    assert probes_of(usdtbuild, source / "build" / binary) == {f"clock:{probe}"}


@pytest.mark.parametrize("name", MAKE)
def test_make(name: str, tmp_path: Path, usdtbuild: Any, run: Any, path: Any) -> None:
    files, binary, probe = MAKE[name]
    source = write(tmp_path, files)
    add(usdtbuild, run, source)
    run("make", cwd=source, env=path)
    assert probes_of(usdtbuild, source / binary) == {f"clock:{probe}"}
    assert "up to date" in run("make", cwd=source, env=path).stdout


@pytest.mark.parametrize("name", PYTHON)
def test_python(name: str, tmp_path: Path, usdtbuild: Any, run: Any, build_backends: Any) -> None:
    source = write(tmp_path, {**PYTHON[name], "clock.c": MODULE})
    add(usdtbuild, run, source)
    python, environment = build_backends
    command = [sys.executable, "-m", "pip", "--python", python, "wheel", "--no-deps", "--no-build-isolation"]
    run(*command, "-w", "dist", ".", cwd=source, env=environment)
    (wheel,) = (source / "dist").glob("*.whl")
    run(sys.executable, "-m", "zipfile", "-e", wheel, tmp_path / "unpacked")
    assert probes_of(usdtbuild, next((tmp_path / "unpacked").rglob("*.so"))) == {"clock:loaded"}


def test_a_line_that_ends_as_windows_ends_lines_stays_so(tmp_path: Path, usdtbuild: Any) -> None:
    source = write(tmp_path, {"CMakeLists.txt": CMAKE["program"][0]["CMakeLists.txt"]})
    (source / "main.c").write_bytes(MAIN.replace("\n", "\r\n").encode() + b"/* \xe9 */\r\n")
    usdtbuild("add", "--write", source)
    text = (source / "main.c").read_bytes()
    assert text.count(b"\n") == text.count(b"\r\n") == MAIN.count("\n") + 3
    assert b"\xe9" in text


WRONG: dict[str, tuple[dict[str, str], list[str], int, str]] = {
    "nothing that builds": ({"main.c": MAIN}, [], 1, "has no build file that usdtbuild knows"),
    "two build systems": (
        {"CMakeLists.txt": "", "meson.build": ""}, [], 1, "is built by cmake and meson; choose one with --for cmake",
    ),
    "no target": ({"CMakeLists.txt": "project(x)\n"}, [], 1, "has no target with a C or C++ source"),
    "no function": ({"CMakeLists.txt": "add_library(x x.c)", "x.c": "int x;\n"}, [], 1, "in which there is a function"),
    "wrong target": (CMAKE["program"][0], ["--target", "app"], 2, "there is no such target; there are clock"),
    "wrong name": (CMAKE["program"][0], ["--name", "My-App"], 2, "'My-App' is no name for a provider"),
    "wrong TOML": ({"pyproject.toml": "[build"}, [], 1, "is no TOML"),
    "names taken": (
        {**CMAKE["program"][0], "clock.h": "", "clock_probes.h": ""}, [], 1, "are there already; choose another --name",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_what_it_can_not_do_is_said_and_changes_nothing(name: str, tmp_path: Path, usdtbuild: Any) -> None:
    files, options, code, message = WRONG[name]
    source = write(tmp_path, files)
    done = usdtbuild("add", "--write", source, *options, code=code)
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert snapshot(source) == files


def test_a_file_that_can_not_be_written_leaves_all_as_it_was(tmp_path: Path, usdtbuild: Any) -> None:
    source = write(tmp_path, {"Makefile": MAKE["rules"][0]["Makefile"], "main.c": MAIN, "probes": ""})
    before = snapshot(source)
    done = usdtbuild("add", "--write", source, code=1)
    assert "probes" in done.stderr
    assert snapshot(source) == before


# --- the samples without their probes ---------------------------------------------------------------------------------

# sample -> the provider files that it includes headers of, and the binary that gets the probe
SAMPLES = {
    "cmake-hello": (("hello.d", "journal.d"), "hello"),
    "cmake-library": (("tally.d",), "libtally.a"),
    "cpp-templates": (("ring.d",), "ring"),
    "meson-hello": (("hello.d", "journal_probes.d"), "hello"),
    "setuptools-extension": (("wordcount.d",), ""),
    "scikit-build-core-extension": (("checksum.d",), ""),
    "pybind11-extension": (("ledger.d",), ""),
    "meson-python-extension": (("primes.d",), ""),
}
QUICK = ("cmake-hello", "setuptools-extension")
_TAKEN_OUT = (
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
    "name", [pytest.param(each, marks=[pytest.mark.slow] * (each not in QUICK)) for each in SAMPLES]
)
def test_sample_without_its_probes(
    name: str, tmp_path: Path, usdtbuild: Any, run: Any, path: Any, make_project: Any, build_backends: Any
) -> None:
    source = without_probes(name, tmp_path)
    add(usdtbuild, run, source)
    binary = SAMPLES[name][1]
    if not binary:
        python, environment = build_backends
        command = [sys.executable, "-m", "pip", "--python", python, "wheel", "--no-deps", "--no-build-isolation"]
        run(*command, "-w", tmp_path / "dist", ".", cwd=source, env={**environment, "CFLAGS": "-O0"})
        run(sys.executable, "-m", "zipfile", "-e", next((tmp_path / "dist").glob("*.whl")), tmp_path / "unpacked")
        found = next((tmp_path / "unpacked").rglob("*.so"))
    elif name.startswith("meson"):
        environment = {**path, "PYTHONPATH": f"{ROOT / '.cache' / 'meson-newest'}:{ROOT}"}
        run(sys.executable, "-m", "mesonbuild.mesonmain", "setup", "build", cwd=source, env=environment)
        run("ninja", "-C", "build", cwd=source, env=environment)
        found = source / "build" / binary
    else:
        project = make_project(tmp_path)
        project.source = source
        project.configure()
        project.make()
        found = project.build / binary
    assert len(probes_of(usdtbuild, found)) == 1
