"""Make and Autoconf on four machines: usdtbuild is installed, absent, disabled, or absent and required.

The projects are those of docs/make.md ("Where usdtbuild isn't installed") and docs/autotools.md, word by word.
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

DOCS = Path(__file__).resolve().parent.parent.parent / "docs"
pytestmark = pytest.mark.project

SITES = {"app:request__start", "app:request__done"}


def block(page: str, kind: str) -> str:
    """The first code block of a page that is written in `kind`."""
    found = re.search(rf"^```{kind}\n(.*?)^```$", (DOCS / page).read_text(), re.MULTILINE | re.DOTALL)
    assert found, f"{page} has no block of {kind}"
    return found[1]


def probes_of(usdtbuild: Any, binary: Path) -> set[str]:
    """The probes that `usdtbuild list` finds in a finished file."""
    found = json.loads(usdtbuild("list", "--json", binary).stdout)
    return {f"{probe['provider']}:{probe['name']}" for file in found["files"] for probe in file["probes"]}


@pytest.fixture(scope="module")
def tool(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for PATH in which this checkout's usdtbuild is, and nothing else."""
    folder = tmp_path_factory.mktemp("bin")
    program = folder / "usdtbuild"
    program.write_text(
        f"#!{sys.executable}\nimport sys\nsys.path.insert(0, {str(DOCS.parent)!r})\n"
        "from usdtbuild.__main__ import main\nsys.exit(main())\n"
    )
    program.chmod(0o755)
    return folder


@pytest.fixture
def environment(tool: Path) -> Any:
    """The variables of a machine where usdtbuild is installed, or isn't."""
    folders = [each for each in os.environ["PATH"].split(os.pathsep) if not Path(each, "usdtbuild").exists()]
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}

    def of(installed: bool) -> dict[str, str]:
        return {**kept, "PATH": os.pathsep.join([*([str(tool)] if installed else []), *folders])}

    return of


def write(folder: Path, page: str, usdtbuild: Any, **names: str) -> None:
    """Write a page's blocks, and the header without probes."""
    for kind, name in names.items():
        (folder / name).write_text(block(page, kind))
    (folder / "none").mkdir()
    usdtbuild("header", "--formats=dof", "app.d", "--none", "-o", "none/app.h", cwd=folder)


# state -> whether usdtbuild is there, what Make is told, what configure is told, whether there are probes
STATES: dict[str, tuple[bool, list[str], list[str], bool]] = {
    "present": (True, [], [], True),
    "absent": (False, [], [], False),
    "disabled": (True, ["USDT=no"], ["--disable-usdt"], False),
    "present-required": (True, ["USDT=yes"], ["--enable-usdt"], True),
}


@pytest.fixture
def make_project(tmp_path: Path, usdtbuild: Any) -> Path:
    write(tmp_path, "make.md", usdtbuild, d="app.d", c="main.c", makefile="Makefile")
    return tmp_path


@pytest.mark.parametrize("state", STATES)
def test_make(state: str, make_project: Path, run: Any, usdtbuild: Any, environment: Any) -> None:
    installed, words, _, probes = STATES[state]
    committed = (make_project / "none/app.h").read_text()
    run("make", "-j2", *words, cwd=make_project, env=environment(installed))
    assert probes_of(usdtbuild, make_project / "app") == (SITES if probes else set())
    assert (make_project / "none/app.h").read_text() == committed
    done = run("make", *words, cwd=make_project, env=environment(installed))
    assert "app.h" not in done.stdout


def test_make_required(make_project: Path, run: Any, environment: Any) -> None:
    done = run("make", "USDT=yes", cwd=make_project, env=environment(False), code=2)
    assert "USDT=yes, and usdtbuild was not found" in done.stderr
    assert not (make_project / "app").exists()


# --- Autoconf ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory, run: Any, usdtbuild: Any, need: Any) -> Path:
    """The page's project after autoreconf, which runs where usdtbuild isn't."""
    need("autoreconf")
    need("automake")
    folder = tmp_path_factory.mktemp("autotools")
    names = {"d": "app.d", "c": "main.c", "m4": "configure.ac", "automake": "Makefile.am"}
    write(folder, "autotools.md", usdtbuild, **names)
    assert usdtbuild("vendor-autotools", cwd=folder).stdout == "m4/usdtbuild.m4\n"
    run("autoreconf", "--install", "-Wall,error", cwd=folder)
    return folder


@pytest.fixture
def configure(prepared: Path, tmp_path: Path, run: Any, environment: Any) -> Any:
    """Configure in a folder of its own: `configure(installed, *options)` returns what configure said."""

    def run_configure(installed: bool, *options: str, code: int = 0) -> str:
        done = run(prepared / "configure", "-q", *options, cwd=tmp_path, env=environment(installed), code=code)
        return str(done.stdout + done.stderr + (tmp_path / "config.log").read_text())

    return run_configure


@pytest.mark.parametrize("state", STATES)
def test_autotools(state: str, configure: Any, tmp_path: Path, run: Any, usdtbuild: Any, environment: Any) -> None:
    installed, _, options, probes = STATES[state]
    said = configure(installed, *options)
    assert ("no, probes compile to nothing" in said) is not probes
    run("make", "-j2", cwd=tmp_path, env=environment(installed))
    assert probes_of(usdtbuild, tmp_path / "app") == (SITES if probes else set())


def test_autotools_required(configure: Any) -> None:
    said = configure(False, "--enable-usdt", code=1)
    assert "usdtbuild was not found, and --enable-usdt=yes wants probes" in said
    assert "the values are auto, yes and no" in configure(False, "--enable-usdt=maybe", code=1)


def test_autotools_makes_the_header_anew_when_the_provider_file_changes(
    prepared: Path, tmp_path: Path, run: Any, environment: Any, usdtbuild: Any
) -> None:
    source = tmp_path / "source"
    shutil.copytree(prepared, source)
    build, variables = tmp_path / "build", environment(True)
    build.mkdir()
    run(source / "configure", "-q", cwd=build, env=variables)
    run("make", cwd=build, env=variables)
    provider = source / "app.d"
    provider.write_text(provider.read_text().replace("int status", "long status"))
    assert "-c" in run("make", cwd=build, env=variables).stdout
    assert "long status" in usdtbuild("list", build / "app").stdout


@pytest.mark.slow
def test_autotools_distcheck_and_libtool(
    prepared: Path, tmp_path: Path, run: Any, environment: Any, usdtbuild: Any, need: Any
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
    variables = environment(True)
    run("./configure", "-q", cwd=tmp_path, env=variables)
    run("make", "-j2", cwd=tmp_path, env=variables)
    assert probes_of(usdtbuild, tmp_path / ".libs/libapp.so.0.0.0") == SITES
    run("make", "distcheck", cwd=tmp_path, env=variables)
