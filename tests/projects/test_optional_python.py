"""Python projects on four machines: usdtbuild is installed, absent, disabled, or absent and required.

Each is what its page says under "Where usdtbuild isn't installed", built by pip; the module is looked at with
`usdtbuild list`. Not here: CMake and Meson by themselves (test_optional), Make and Autoconf (test_optional_make).
"""

from __future__ import annotations

import json
import re
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

DOCS = Path(__file__).resolve().parent.parent.parent / "docs"
pytestmark = pytest.mark.project

KINDS = ("setuptools", "scikit-build-core", "meson-python")
SITES = {"app:request__start", "app:request__done"}
# state -> whether usdtbuild is there, variables, probes
STATES = {
    "present": (True, {}, True),
    "absent": (False, {}, False),
    "disabled": (False, {"USDTBUILD_DISABLED": "1"}, False),
    "present-disabled": (True, {"USDTBUILD_DISABLED": "1"}, False),
    "present-required": (True, {"USDTBUILD_REQUIRED": "1"}, True),
}
SLOW = ("present-disabled", "present-required")
SAID = "usdtbuild is not used: probes compile to nothing"


def blocks(page: str, kind: str) -> list[str]:
    """The code blocks of a page that are written in `kind`, in order."""
    return re.findall(rf"^```{kind}\n(.*?)^```$", (DOCS / page).read_text(), re.MULTILINE | re.DOTALL)


def write_project(folder: Path, kind: str, usdtbuild: Any) -> None:
    """Write the project of a page, with what makes usdtbuild optional."""
    page = f"{kind}.md"
    toml = blocks(page, "toml")
    optional = next(text for text in toml if "usdt_backend" in text)
    metadata = toml[0][toml[0].index("[project]") :].partition("[tool.")[0]
    texts = {"pyproject.toml": optional + metadata, "app.d": blocks(page, "d")[0], "app.c": blocks(page, "c")[0]}
    if kind == "setuptools":
        texts["setup.py"] = blocks(page, "python")[0].replace(', "app.d"]', "]")
        texts["MANIFEST.in"] = "include app.d tools/usdt_*.py\n"
    elif kind == "scikit-build-core":
        whole, include = blocks(page, "cmake")
        texts["CMakeLists.txt"] = whole.replace("find_package(USDTBuild CONFIG REQUIRED)\n", include)
        usdtbuild("vendor-cmake", cwd=folder)
    else:
        ours, subproject = blocks(page, "meson")
        texts["meson.build"] = ours[: ours.index("python.extension_module")] + subproject
        usdtbuild("vendor-meson", cwd=folder)
    for name, text in texts.items():
        (folder / name).write_text(text)
    assert usdtbuild("vendor-python", cwd=folder).stdout == "tools/usdt_backend.py\ntools/usdt_none_header.py\n"


@pytest.fixture(scope="session")
def without_usdtbuild(make_python: Any, once: Any) -> Any:
    """An environment with the build backends, and no usdtbuild."""
    packages = ("setuptools", "wheel", "scikit-build-core", "meson-python", "ninja")
    return make_python(folder=once("no-usdtbuild", lambda folder: make_python(*packages, folder=folder)))


@pytest.fixture
def build(request: Any, tmp_path: Path, run: Any, usdtbuild: Any, build_backends: Any, without_usdtbuild: Any) -> Any:
    """Let pip build a wheel of a kind of project: `build(kind, installed, code, **variables)` says what pip said."""

    def build_wheel(kind: str, installed: bool, code: int = 0, **variables: str) -> tuple[str, set[str]]:
        write_project(tmp_path, kind, usdtbuild)
        python, environment = build_backends if installed else without_usdtbuild
        # Meson looks for `usdtbuild` in PATH, where this machine may have one of its own.
        environment = {**environment, **variables}
        command = [sys.executable, "-m", "pip", "--python", python, "wheel", "-v", "--no-deps", "--no-build-isolation"]
        done = run(*command, "-w", "dist", ".", cwd=tmp_path, env=environment, code=code)
        return done.stdout + done.stderr, probes_of(usdtbuild, tmp_path) if code == 0 else set()

    return build_wheel


def probes_of(usdtbuild: Any, folder: Path) -> set[str]:
    """The probes of the one module in the wheel."""
    with zipfile.ZipFile(next((folder / "dist").glob("*.whl"))) as archive:
        archive.extractall(folder / "unpacked")
    (module,) = (folder / "unpacked").rglob("*.so")
    found = json.loads(usdtbuild("list", "--json", module).stdout)
    return {f"{probe['provider']}:{probe['name']}" for file in found["files"] for probe in file["probes"]}


@pytest.mark.parametrize("state", [pytest.param(name, marks=[pytest.mark.slow] * (name in SLOW)) for name in STATES])
@pytest.mark.parametrize("kind", KINDS)
def test_build_without_isolation(kind: str, state: str, build: Any) -> None:
    installed, variables, probes = STATES[state]
    said, found = build(kind, installed, **variables)
    assert found == (SITES if probes else set())
    assert (SAID in said) is not installed or (SAID in said and not probes)


@pytest.mark.parametrize("kind", KINDS)
def test_build_without_usdtbuild_where_it_is_required(kind: str, build: Any) -> None:
    said, _ = build(kind, False, 1, USDTBUILD_REQUIRED="1")
    assert "usdt_backend: usdtbuild isn't installed, and USDTBUILD_REQUIRED is set" in said
    assert "Traceback" not in said


@pytest.mark.parametrize("kind", [KINDS[0], *(pytest.param(kind, marks=pytest.mark.slow) for kind in KINDS[1:])])
def test_isolated_build_asks_for_usdtbuild_unless_disabled(
    kind: str, tmp_path: Path, run: Any, usdtbuild: Any, make_python: Any, once: Any, wheelhouse: Path
) -> None:
    """From a folder of wheels that lacks usdtbuild, and no network."""
    write_project(tmp_path, kind, usdtbuild)
    python, environment = make_python(folder=once("no-packages", lambda folder: make_python(folder=folder)))
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    for path in wheelhouse.glob("*.whl"):
        if not path.name.startswith("usdtbuild"):
            (wheels / path.name).symlink_to(path.resolve())
    environment = {**environment, "PIP_FIND_LINKS": str(wheels)}
    command = [sys.executable, "-m", "pip", "--python", python, "wheel", "--no-deps", "--no-cache-dir", "-wdist", "."]
    done = run(*command, cwd=tmp_path, env=environment, code=1)
    assert "No matching distribution found for usdtbuild" in done.stdout + done.stderr
    run(*command, cwd=tmp_path, env={**environment, "USDTBUILD_DISABLED": "1"})
    assert probes_of(usdtbuild, tmp_path) == set()


def test_setuptools_source_distribution_holds_what_a_build_needs(
    tmp_path: Path, run: Any, usdtbuild: Any, without_usdtbuild: Any
) -> None:
    write_project(tmp_path, "setuptools", usdtbuild)
    python, environment = without_usdtbuild
    code = "import sys; sys.path.insert(0, 'tools'); import usdt_backend as b; print(b.build_sdist('dist'))"
    run(python, "-c", code, cwd=tmp_path, env=environment)
    run("tar", "xf", next((tmp_path / "dist").glob("*.tar.gz")), cwd=tmp_path)
    there = {str(path.relative_to(tmp_path / "app-1.0")) for path in (tmp_path / "app-1.0").rglob("*")}
    assert {"app.d", "tools/usdt_backend.py", "tools/usdt_none_header.py"} <= there


@pytest.mark.parametrize("command", ["vendor-python", "vendor-autotools"])
def test_vendored_files_are_replaced_only_if_they_are_ours(command: str, usdtbuild: Any, tmp_path: Path) -> None:
    first, *_ = (tmp_path / name for name in usdtbuild(command, "its", cwd=tmp_path).stdout.split())
    ours = first.read_text()
    first.write_text(ours.replace("0.1.0", "0.0.1"))
    usdtbuild(command, "its", cwd=tmp_path)
    assert first.read_text() == ours
    first.write_text("mine\n")
    assert "isn't a copy of ours" in usdtbuild(command, "its", cwd=tmp_path, code=1).stderr
    assert first.read_text() == "mine\n"
