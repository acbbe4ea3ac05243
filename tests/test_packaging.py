"""What a wheel and an sdist carry: everything that works in a checkout must work when it is installed."""

from __future__ import annotations

import re
import sys
import tarfile
import zipfile
from email.parser import Parser
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent
FORWARD = ROOT / "cmake/forward"
# Folder of the checkout -> what it is in a wheel.
FOLDERS = {"usdtbuild": "usdtbuild", "cmake": "usdtbuild/cmake", "meson": "usdtbuild/meson"}


def source_files(folder: str) -> set[Path]:
    """All files of a folder of the checkout, relative to it."""
    files = (path.relative_to(ROOT / folder) for path in (ROOT / folder).rglob("*") if path.is_file())
    return {path for path in files if "__pycache__" not in path.parts and path.suffix != ".pyc"}


@pytest.fixture(scope="module")
def contents(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


def metadata(wheel: Path, name: str) -> str:
    with zipfile.ZipFile(wheel) as archive:
        (path,) = (entry for entry in archive.namelist() if entry.endswith(f".dist-info/{name}"))
        return archive.read(path).decode()


def test_wheel_carries_every_file_of_the_package(contents: set[str]) -> None:
    for folder, inside in FOLDERS.items():
        expected = {f"{inside}/{path.as_posix()}" for path in source_files(folder) if path.parts[0] != "forward"}
        assert expected
        assert expected - contents == set()


def test_wheel_has_the_cmake_package_itself_where_a_checkout_hands_on(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        assert archive.namelist().count("usdtbuild/cmake/USDTBuildConfig.cmake") == 1
        inside = archive.read("usdtbuild/cmake/USDTBuildConfig.cmake")
    assert inside == (ROOT / "cmake/USDTBuildConfig.cmake").read_bytes()
    assert inside != (ROOT / "usdtbuild/cmake/USDTBuildConfig.cmake").read_bytes()


def test_no_folder_of_the_checkout_hides_a_package_of_somebody_elses() -> None:
    # `python -m pytest` puts the checkout first in the path, where an __init__.py would make cmake/ PyPI's `cmake`.
    assert not [folder for folder in ("cmake", "meson") if (ROOT / folder / "__init__.py").exists()]


def test_wheel_puts_the_cmake_package_where_an_activated_environment_has_it(contents: set[str]) -> None:
    shared = {name.split(".data/data/")[1] for name in contents if ".data/data/share/cmake/" in name}
    forwarded = {f"share/cmake/USDTBuild/{path.name}" for path in FORWARD.iterdir()}
    assert shared == forwarded != set()


def test_wheel_has_nothing_outside_its_package(contents: set[str]) -> None:
    outside = {name.split("/")[0] for name in contents} - {"usdtbuild"}
    assert all(name.endswith((".dist-info", ".data")) for name in outside)


def test_metadata_names_licence_and_entry_points(wheel: Path, contents: set[str]) -> None:
    said = Parser().parsestr(metadata(wheel, "METADATA"))
    assert said["License-Expression"] == "Apache-2.0 AND MIT"
    assert said["Requires-Python"] == ">=3.10"
    assert said["Description-Content-Type"] == "text/markdown"
    for licence in ("LICENSE", "usdtbuild/tracing/outputs/page/uPlot.LICENSE"):
        assert any(name.endswith(f".dist-info/licenses/{licence}") for name in contents)
    points = metadata(wheel, "entry_points.txt")
    for line in ("usdtbuild = usdtbuild.__main__:main", "[cmake.prefix]", "[cmake.root]"):
        assert line in points


def test_sdist_carries_what_is_needed_to_build_and_test_it(run: Any, tmp_path: Path) -> None:
    run(sys.executable, "-m", "build", "--sdist", "--no-isolation", "--outdir", tmp_path, ROOT)
    (sdist,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = {name.split("/", 1)[1] for name in archive.getnames() if "/" in name}
    wanted = {
        "Makefile",
        "README.md",
        "CHANGELOG.md",
        "LICENSE",
        "SECURITY.md",
        "sbom.cdx.json",
        "tools/locked/test.txt",
        "pyproject.toml",
        "docs/index.md",
        "tools/prepare.py",
        "tests/conftest.py",
        "benchmarks/README.md",
        "sample_projects/cmake-hello/CMakeLists.txt",
    }
    wanted |= {f"{folder}/{path.as_posix()}" for folder in FOLDERS for path in source_files(folder)}
    assert wanted - names == set()


def test_folders_that_are_printed_hold_what_they_promise(usdtbuild: Any) -> None:
    folder = usdtbuild("--cmake-dir").stdout.strip()
    assert Path(folder, "CMakeLists.txt").is_file()
    assert Path(folder, "USDTBuildFunctions.cmake").is_file()
    assert Path(usdtbuild("--meson-dir").stdout.strip(), "dependency/meson.build").is_file()
    assert Path(usdtbuild("--pkgconfig-dir").stdout.strip(), "usdtbuild.pc").is_file()
    assert Path(usdtbuild("--include-dir").stdout.strip(), "usdt_dof_register.c").is_file()
    assert usdtbuild("--version").stdout.startswith("usdtbuild, version ")


def test_no_folder_of_the_wheel_is_hidden(wheel: Path) -> None:
    """Debian's lintian warns of `.github` among Python's packages; the source distribution has the sample's."""
    names = zipfile.ZipFile(wheel).namelist()
    assert any("/committed-header/" in name for name in names)
    assert [name for name in names if re.search(r"(^|/)\.[^/]+/", name)] == []


def test_the_index_would_take_wheel_and_source_distribution(wheel: Path, run: Any, tmp_path: Path) -> None:
    pytest.importorskip("twine")
    run(sys.executable, "-m", "build", "--sdist", "--no-isolation", "--outdir", tmp_path, ROOT)
    (sdist,) = tmp_path.glob("*.tar.gz")
    said = run(sys.executable, "-m", "twine", "check", "--strict", wheel, sdist).stdout
    assert said.count("PASSED") == 2
