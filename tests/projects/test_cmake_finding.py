"""Ways to find the CMake package: from a wheel in an environment, from an installed prefix, as part of a project."""

from __future__ import annotations

import os
import shutil
import sys
import sysconfig
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from usdtbuild import __version__

pytestmark = pytest.mark.project

ROOT = Path(__file__).resolve().parent.parent.parent
FINDING = """
cmake_minimum_required(VERSION 3.16...4.0)
project(finding LANGUAGES NONE)
find_package(USDTBuild ${WANTED})
get_property(python GLOBAL PROPERTY USDTBUILD_PYTHON)
get_property(package GLOBAL PROPERTY USDTBUILD_PACKAGE)
message(STATUS "found=${USDTBuild_FOUND} version=${USDTBuild_VERSION} python=${python} package=${package}")
"""


@pytest.fixture(scope="session")
def environment(run: Any, wheel: Path, tmp_path_factory: Any) -> Path:
    """A virtual environment with the wheel in it; what the wheel depends on is borrowed from ours."""
    folder = Path(tmp_path_factory.mktemp("environment"), "venv")
    run(sys.executable, "-m", "venv", "--without-pip", folder)
    install = ("install", "--quiet", "--no-deps", "--no-index", wheel)
    run(sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", folder / "bin/python", *install)
    (site_packages(folder) / "borrowed.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")
    return folder


def site_packages(environment: Path) -> Path:
    return next(environment.glob("lib/python3*/site-packages"))


@pytest.fixture
def finding(project: Any) -> Any:
    """A project that does nothing but look for the package."""
    project.write(CMakeLists__txt=FINDING)
    return project


def path_of(folder: Path) -> dict[str, str]:
    """The environment variables of a shell in which `folder` was activated."""
    return {"PATH": f"{folder}/bin:/usr/bin:/bin", "HOME": "/nonexistent"}


@pytest.mark.parametrize("way", ["activated", "prefix", "root", "root-package", "dir"])
def test_found_from_a_wheel_in_an_environment(finding: Any, environment: Path, way: str) -> None:
    site = site_packages(environment)
    options = {
        "activated": [],
        "prefix": [f"-DCMAKE_PREFIX_PATH={site}"],
        "root": [f"-DUSDTBuild_ROOT={environment}"],
        "root-package": [f"-DUSDTBuild_ROOT={site}/usdtbuild/cmake"],
        "dir": [f"-DUSDTBuild_DIR={site}/usdtbuild/cmake"],
    }[way]
    variables = path_of(environment) if way == "activated" else path_of(Path("/usr"))
    said = finding.configure(*options, count=False, find=False, env=variables)
    assert "found=1" in said
    assert f"python={environment}/bin/python" in said
    assert f"package={site}/usdtbuild" in said


def test_found_by_cross_compilers_through_its_folder(finding: Any, environment: Path) -> None:
    root = ["-DCMAKE_FIND_ROOT_PATH=/nonexistent", "-DCMAKE_FIND_ROOT_PATH_MODE_PACKAGE=ONLY"]
    folder = f"-DUSDTBuild_DIR={site_packages(environment)}/usdtbuild/cmake"
    said = finding.configure(*root, folder, count=False, find=False, env=path_of(Path("/usr")))
    assert "found=1" in said
    assert f"python={environment}/bin/python" in said


def test_entry_points_of_scikit_build_core_name_the_folder(environment: Path, run: Any) -> None:
    code = (
        "from importlib.metadata import entry_points, distribution\n"
        "for point in distribution('usdtbuild').entry_points:\n"
        "    if point.group.startswith('cmake.'): print(point.group, point.name, point.load().__path__[0])\n"
    )
    folder = site_packages(environment) / "usdtbuild/cmake"
    said = run(environment / "bin/python", "-I", "-c", code).stdout.splitlines()
    assert sorted(said) == [f"cmake.prefix usdtbuild {folder}", f"cmake.root USDTBuild {folder}"]


@pytest.fixture(scope="session")
def editable(run: Any, tmp_path_factory: Any) -> Path:
    """A virtual environment with an editable install of this checkout."""
    folder = Path(tmp_path_factory.mktemp("editable"), "venv")
    run(sys.executable, "-m", "venv", "--without-pip", folder)
    install = ("install", "--quiet", "--no-deps", "--no-index", "--no-build-isolation", "--editable", ROOT)
    python = ("--disable-pip-version-check", "--python", folder / "bin/python")
    search = {**os.environ, "PYTHONPATH": sysconfig.get_paths()["purelib"]}  # where hatchling is
    run(sys.executable, "-m", "pip", *python, *install, env=search)
    (site_packages(folder) / "borrowed.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")
    return folder


@pytest.mark.parametrize("way", ["activated", "entry-point", "command"])
def test_found_from_an_editable_install(finding: Any, editable: Path, run: Any, way: str) -> None:
    code = (
        "from importlib.metadata import distribution\nfrom importlib.resources import files\n"
        "points = distribution('usdtbuild').entry_points\n"
        "print(*{files(point.load()) for point in points if point.group.startswith('cmake.')})"
    )
    ways: dict[str, Callable[[], list[str]]] = {
        "activated": list,
        "entry-point": lambda: [f"-DUSDTBuild_ROOT={run(editable / 'bin/python', '-I', '-c', code).stdout.strip()}"],
        "command": lambda: [f"-DUSDTBuild_DIR={run(editable / 'bin/usdtbuild', '--cmake-dir').stdout.strip()}"],
    }
    options = ways[way]()
    variables = path_of(editable if way == "activated" else Path("/usr"))
    options.append(f"-DUSDTBuild_PYTHON={editable}/bin/python")
    said = finding.configure(*options, count=False, find=False, env=variables)
    assert "found=1" in said
    assert f"package={ROOT}/usdtbuild" in said


@pytest.mark.parametrize(
    ("wanted", "fits"),
    [
        ("0.1", True),
        (f"{__version__};EXACT", True),
        ("0.0.9", True),
        ("0.1...2.0", True),
        (f"0.1...{__version__}", True),
        (f"0.0.1...<{__version__}", False),
        ("0.0.1...0.0.9", False),
        ("99.0", False),
        ("0.99", False),
        ("0.0.9;EXACT", False),
        ("0.1;COMPONENTS;Build;Verify", True),
        ("0.1;OPTIONAL_COMPONENTS;Nonsense", True),
        ("0.1;COMPONENTS;Nonsense", False),
    ],
)
def test_version_and_components_are_checked(finding: Any, wanted: str, fits: bool) -> None:
    assert f"found={int(fits)}" in finding.configure(f"-DWANTED={wanted}", count=False)


def test_shim_is_resolved_to_the_interpreter_behind_it(finding: Any, tmp_path: Path) -> None:
    shim = tmp_path / "shims" / "python3"
    shim.parent.mkdir()
    shim.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    shim.chmod(0o755)
    said = finding.configure(f"-DUSDTBuild_PYTHON={shim}", count=False)
    assert f"python={sys.executable} " in said


# --- without find_package -------------------------------------------------------------------------------------

WITHOUT = """
cmake_minimum_required(VERSION 3.16...4.0)
project(without LANGUAGES C)
{way}
usdt_add_provider(probes app.d)
add_executable(app main.c)
target_usdt_providers(app probes)
"""
SOURCES = {
    "main__c": '#include "app.h"\nint main(int count, char **names) { (void)names; APP_GO(count); return 0; }\n',
    "app__d": "provider app { probe go(int); };\n",
}


@pytest.mark.parametrize(
    "way",
    [
        f'add_subdirectory("{ROOT}/cmake" usdtbuild)',
        "include(FetchContent)\n"
        f'FetchContent_Declare(usdtbuild SOURCE_DIR "{ROOT}" SOURCE_SUBDIR cmake)\n'
        "FetchContent_MakeAvailable(usdtbuild)",
    ],
    ids=["subdirectory", "FetchContent"],
)
def test_part_of_the_project(project: Any, usdtbuild: Any, way: str) -> None:
    project.write(CMakeLists__txt=WITHOUT.format(way=way), **SOURCES)
    project.built(f"-DUSDTBuild_PYTHON={sys.executable}", find=False)
    assert "go" in usdtbuild("list", project.binary("app")).stdout


def test_what_is_installed_does_not_run_a_python_of_the_checkout(make_project: Any, tmp_path: Path) -> None:
    checkout = tmp_path / "checkout"
    for folder in ("cmake", "usdtbuild"):
        shutil.copytree(ROOT / folder, checkout / folder, ignore=shutil.ignore_patterns("__pycache__"))
    (checkout / ".venv/bin").mkdir(parents=True)
    shim = checkout / ".venv/bin/python3"
    shim.write_text(f"#!/bin/sh\necho used >> '{tmp_path}/used'\nexec '{sys.executable}' \"$@\"\n")
    shim.chmod(0o755)
    tool = make_project(tmp_path / "tool")
    tool.source = checkout / "cmake"
    tool.configure(count=False, code=None, find=False)  # with the system's Python, if that has the modules
    assert not (tmp_path / "used").exists()


def test_installed_by_cmake(project: Any, run: Any, make_project: Any, tmp_path: Path) -> None:
    prefix = tmp_path / "prefix"
    tool = make_project(tmp_path / "tool")
    tool.source = ROOT / "cmake"
    tool.configure(count=False)
    run(tool.cmake, "--install", tool.build, "--prefix", prefix)
    stand_ins = list((prefix / "share/usdtbuild/linker_hook").glob("ld*"))
    assert stand_ins
    assert all(os.access(path, os.X_OK) for path in stand_ins)
    assert __version__ in run(prefix / "bin/usdtbuild", "--version").stdout

    run(prefix / "bin/usdtbuild", "init", "cmake", tmp_path / "web")
    assert (tmp_path / "web/web.d").exists()

    project.write(CMakeLists__txt=WITHOUT.format(way="find_package(USDTBuild REQUIRED)"), **SOURCES)
    project.built(f"-DCMAKE_PREFIX_PATH={prefix}", find=False, env=path_of(Path("/usr")))
    assert "go" in run(prefix / "bin/usdtbuild", "list", project.binary("app")).stdout
