"""Committed headers: projects that build with their probes where there is neither usdtbuild nor its Python.

The build files are those of docs/committed.md and docs/autotools.md, word by word, and the sample's. CMake with
usdtbuild is in test_cmake_targets.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]

ROOT = Path(__file__).resolve().parent.parent.parent
SAMPLE = ROOT / "sample_projects/committed-header"
SITES = {"app:request__start", "app:request__done"}
pytestmark = pytest.mark.project


def block(page: str, kind: str) -> str:
    """The first code block of a page that is written in `kind`."""
    found = re.search(rf"^```{kind}\n(.*?)^```$", (ROOT / "docs" / page).read_text(), re.MULTILINE | re.DOTALL)
    assert found, f"{page} has no block of {kind}"
    return found[1]


def probes_of(usdtbuild: Any, binary: Path) -> set[str]:
    """The probes that `usdtbuild list` finds in a finished file."""
    found = json.loads(usdtbuild("list", "--json", binary).stdout)
    return {f"{probe['provider']}:{probe['name']}" for file in found["files"] for probe in file["probes"]}


@pytest.fixture
def without() -> dict[str, str]:
    """The variables of a machine where usdtbuild isn't installed."""
    folders = [each for each in os.environ["PATH"].split(os.pathsep) if not Path(each, "usdtbuild").exists()]
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS", "PYTHON"))}
    return {**kept, "PATH": os.pathsep.join(folders)}


def with_usdtbuild(variables: dict[str, str]) -> dict[str, str]:
    return {**variables, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}


@pytest.fixture
def app(tmp_path: Path, header_of: Any) -> Path:
    """A folder with the provider file and source of docs/make.md, and the header."""
    header_of(tmp_path, "app.d", block("make.md", "d"))
    (tmp_path / "main.c").write_text(block("make.md", "c"))
    return tmp_path


def test_make(app: Path, run: Any, usdtbuild: Any, without: Any) -> None:
    (app / "Makefile").write_text(block("committed.md", "makefile"))
    run("make", cwd=app, env=without)
    assert probes_of(usdtbuild, app / "app") == SITES
    run("make", "-B", "CFLAGS=-DUSDT_DISABLE", cwd=app, env=without)
    assert probes_of(usdtbuild, app / "app") == set()
    there = with_usdtbuild(without)
    for each in (without, there):  # the header is as it was, and older
        os.utime(app / "app.h", (0, 0))
        run("make", cwd=app, env=each)
        run("make", "-q", cwd=app, env=each)
    (app / "app.d").write_text("provider app { probe lung(lung); };\n")
    os.utime(app / "app.h", (0, 0))
    for _ in range(2):
        assert "unknown type 'lung'" in run("make", cwd=app, env=there, code=2).stderr


def test_meson(app: Path, run: Any, usdtbuild: Any, need: Any, without: Any) -> None:
    need("ninja")
    modules = ROOT / ".cache" / "meson-newest"
    if not modules.is_dir():
        pytest.skip(f"{modules} is missing; `make test` installs it")
    (app / "meson.build").write_text(block("committed.md", "meson"))
    environment = {**without, "PYTHONPATH": str(modules)}
    run(sys.executable, "-m", "mesonbuild.mesonmain", "setup", "build", cwd=app, env=environment)
    run("ninja", "-C", "build", cwd=app, env=environment)
    assert probes_of(usdtbuild, app / "build/app") == SITES


@pytest.mark.parametrize("installed", [False, True])
def test_setuptools(
    app: Path, run: Any, usdtbuild: Any, make_python: Any, once: Any, build_backends: Any, installed: bool
) -> None:
    (app / "app.c").write_text(block("setuptools.md", "c"))
    (app / "setup.py").write_text(block("committed.md", "python"))
    toml = block("setuptools.md", "toml").replace(', "usdtbuild"', "")
    (app / "pyproject.toml").write_text(f'{toml}\n[tool.usdtbuild]\nproviders = ["app.d"]\ncommitted = true\n')
    packages = ("setuptools", "wheel", "scikit-build-core", "meson-python", "ninja")
    alone = once("no-usdtbuild", lambda folder: make_python(*packages, folder=folder))
    python, environment = build_backends if installed else make_python(folder=alone)
    command = [sys.executable, "-m", "pip", "--python", python, "wheel", "--no-deps", "--no-build-isolation", "-wdist"]
    for disabled, expected in (("", SITES), ("1", set())) if installed else (("", SITES),):
        run(*command, ".", cwd=app, env={**environment, "USDTBUILD_DISABLED": disabled})
        with zipfile.ZipFile(next((app / "dist").glob("*.whl"))) as archive:
            archive.extractall(app / "unpacked")
        assert probes_of(usdtbuild, next((app / "unpacked").rglob("*.so"))) == expected
    if installed:
        said = run(*command, ".", cwd=app, env={**environment, "USDTBUILD_FORMATS": "dof"}, code=1)
        assert "a committed header makes SDT notes alone" in said.stdout + said.stderr
        (app / "app.h").unlink()
        said = run(*command, ".", cwd=app, env=environment, code=1)
        assert "there is no header app.h; make it, and commit it: usdtbuild header app.d" in said.stdout + said.stderr


# --- the sample -------------------------------------------------------------------------------------------------------


def test_sample_is_fresh(usdtbuild: Any, tmp_path: Path) -> None:
    usdtbuild("header", "--check", "counter.d", "-o", "counter.h", cwd=SAMPLE)
    usdtbuild("vendor", "cmake", cwd=tmp_path)
    vendored = "cmake/USDTBuild.cmake"
    assert (SAMPLE / vendored).read_text() == (tmp_path / vendored).read_text()


@pytest.mark.parametrize("way", ["cmake", "cc"])
def test_sample_builds_without_us(way: str, run: Any, usdtbuild: Any, need: Any, without: Any, tmp_path: Path) -> None:
    source = Path(shutil.copytree(SAMPLE, tmp_path / "source"))
    if way == "cmake":
        options = ["-DCMAKE_DISABLE_FIND_PACKAGE_USDTBuild=ON"]
        run(need("cmake"), "-S", source, "-B", tmp_path, *options, env=without)
        run("cmake", "--build", tmp_path, env=without)
    else:
        run(need("cc"), "-O2", "main.c", "-o", tmp_path / "counter", cwd=source, env=without)
    assert run(tmp_path / "counter", input="a\nb\n", env=without).stdout == "2\n"
    assert probes_of(usdtbuild, tmp_path / "counter") == {"counter:line", "counter:done"}


def test_pre_commit_hook_makes_the_headers_that_are_there(app: Path, run: Any) -> None:
    (hook,) = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())
    (app / "other.d").write_text("main.o: main.c\n")  # of a compiler, without a header
    (app / "hello.d").write_text("import std.stdio;\n")  # the language D
    (app / "hello.h").write_text("int hello(void);\n")
    others = ["other.d", "hello.d", "hello.h", "alone.h"]
    assert all(re.search(hook["files"], name) for name in [*others, "app.d", "app.h"])
    entry = [*shlex.split(hook["entry"]), *others]
    before = (app / "app.h").read_bytes()
    environment = with_usdtbuild(dict(os.environ))
    (app / "app.h").write_bytes(before + b"int mine;\n")
    run(*entry, "app.h", cwd=app, env=environment)
    assert (app / "app.h").read_bytes() == before
    for old, new, changes in (("int id", "int id", False), ("int id", "long id", True), ("long id", "lung id", None)):
        text = (app / "app.d").read_text()
        assert old in text
        (app / "app.d").write_text(text.replace(old, new))
        run(*entry, "app.d", cwd=app, env=environment, code=1 if changes is None else 0)
        if changes is not None:
            assert ((app / "app.h").read_bytes() != before) is changes


# --- Autoconf ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory, run: Any, usdtbuild: Any, need: Any) -> Path:
    """The page's project after autoreconf, which runs where usdtbuild isn't."""
    need("autoreconf")
    need("automake")
    folder = tmp_path_factory.mktemp("autotools")
    for kind, name in {"d": "app.d", "c": "main.c", "m4": "configure.ac", "automake": "Makefile.am"}.items():
        (folder / name).write_text(block("autotools.md", kind))
    usdtbuild("header", "app.d", cwd=folder)
    usdtbuild("vendor", "autotools", cwd=folder)
    run("autoreconf", "--install", "-Wall,error", cwd=folder)
    return folder


@pytest.mark.parametrize("option", ["--enable-usdt", "--disable-usdt"])
def test_autotools(option: str, prepared: Path, tmp_path: Path, run: Any, usdtbuild: Any, without: Any) -> None:
    run(prepared / "configure", "-q", option, cwd=tmp_path, env=without)
    run("make", "-j2", cwd=tmp_path, env=without)
    assert probes_of(usdtbuild, tmp_path / "app") == (SITES if option == "--enable-usdt" else set())
    said = run(prepared / "configure", "-q", "--enable-usdt=maybe", cwd=tmp_path, env=without, code=1)
    assert "the values are yes and no" in said.stderr


def test_autotools_makes_the_header_anew_when_the_provider_file_changes(
    prepared: Path, tmp_path: Path, run: Any, usdtbuild: Any
) -> None:
    source = tmp_path / "source"
    shutil.copytree(prepared, source)
    build = tmp_path / "build"
    build.mkdir()
    variables = with_usdtbuild(
        {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
    )
    run(source / "configure", "-q", cwd=build, env=variables)
    run("make", cwd=build, env=variables)
    provider = source / "app.d"
    provider.write_text(provider.read_text().replace("int status", "long status"))
    assert "-c" in run("make", cwd=build, env=variables).stdout
    assert "long status" in usdtbuild("list", build / "app").stdout


@pytest.mark.slow
def test_autotools_distcheck_and_libtool(
    prepared: Path, tmp_path: Path, run: Any, without: Any, usdtbuild: Any, need: Any
) -> None:
    need("libtoolize")
    shutil.copytree(prepared, tmp_path, dirs_exist_ok=True)
    (tmp_path / "lib.c").write_text(block("autotools.md", "c").replace("int main", "int run"))
    edits = {
        "configure.ac": ("AC_PROG_CC\n", "AC_PROG_CC\nAM_PROG_AR\nLT_INIT\n"),
        "Makefile.am": ("EXTRA_DIST", "lib_LTLIBRARIES = libapp.la\nlibapp_la_SOURCES = lib.c\nEXTRA_DIST"),
    }
    for name, (old, new) in edits.items():
        path = tmp_path / name
        path.write_text(path.read_text().replace(old, new))
    run("autoreconf", "--install", cwd=tmp_path)
    run("./configure", "-q", cwd=tmp_path, env=without)
    run("make", "-j2", cwd=tmp_path, env=without)
    assert probes_of(usdtbuild, tmp_path / ".libs/libapp.so.0.0.0") == SITES
    run("make", "distcheck", cwd=tmp_path, env=without)
