"""One project, four machines: usdtbuild is installed, absent, disabled, or absent and required.

Each way of building is the documented recipe, and each result is looked at with `usdtbuild list`: probes where
usdtbuild is, none where it isn't, and an error that names it where a packager asked for that.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
pytestmark = pytest.mark.project

PROVIDER = """\
/* provider old { probe gone(int); }; */
provider my_app {
    // probe commented__out(int);
    probe request__begin(int fd, const char *path);
    probe done();
    probe nothing( void );
    probe
        spread__out
        (int);
};
provider other { probe hit(uint64_t, struct thing *); };
"""
MAIN = """\
#include "app.h"
int main(int argc, char **argv)
{
    int only_for_a_probe = argc;
    MY_APP_REQUEST_BEGIN(only_for_a_probe, argv[0]);
    MY_APP_DONE();
    MY_APP_NOTHING();
    MY_APP_SPREAD_OUT(argc);
    if (OTHER_HIT_ENABLED())
        OTHER_HIT(argc, 0);
    return 0;
}
"""
STRICT = "-Wall -Wextra -Wpedantic -Werror"
SITES = {"my_app:request__begin", "my_app:done", "my_app:nothing", "my_app:spread__out", "other:hit"}
CMAKE = """\
cmake_minimum_required(VERSION 3.16)
project(app C CXX)
include(cmake/USDTBuildOptional.cmake)
enable_testing()
usdt_add_provider(app-probes app.d PROVIDERS my_app other)
add_executable(app main.c)
add_executable(app++ main.cpp)
foreach(target app app++)
  target_usdt_providers(${target} app-probes)
  usdt_verify(${target} PROVIDERS app-probes)
endforeach()
add_library(lib STATIC main.c)
target_usdt_providers(lib app-probes PATCHABLE_FUNCTION_ENTRY 7,5)
install(TARGETS lib EXPORT all ARCHIVE DESTINATION lib)
install(EXPORT all DESTINATION lib/cmake)
"""
STATES = {
    "present": ([], True),
    "absent": (["-DCMAKE_DISABLE_FIND_PACKAGE_USDTBuild=ON"], False),
    "disabled": (["-DUSDTBUILD_DISABLED=ON"], False),
    "present-disabled": (["-DUSDTBUILD_DISABLED=ON"], False),
    "present-required": (["-DUSDTBUILD_REQUIRED=ON"], True),
}


def probes_of(usdtbuild: Any, binary: Path) -> set[str]:
    """The probes that `usdtbuild list` finds in a finished file."""
    found = json.loads(usdtbuild("list", "--json", binary).stdout)
    return {f"{probe['provider']}:{probe['name']}" for file in found["files"] for probe in file["probes"]}


@pytest.fixture(params=[pytest.param("oldest", marks=pytest.mark.slow), "newest"])
def cmake_project(request: Any, make_project: Any, tmp_path: Path, usdtbuild: Any) -> Any:
    project = make_project(tmp_path, request.param)
    project.write(app__d=PROVIDER, main__c=MAIN, main__cpp=MAIN, CMakeLists__txt=CMAKE)
    usdtbuild("vendor-cmake", project.source / "cmake")
    return project


@pytest.mark.parametrize("state", STATES)
def test_cmake(state: str, cmake_project: Any, usdtbuild: Any) -> None:
    options, probes = STATES[state]
    flags = [f"-DCMAKE_C_FLAGS={STRICT} -std=c99", f"-DCMAKE_CXX_FLAGS={STRICT}"]
    said = cmake_project.configure(*flags, *options, find=state.startswith("present"))
    assert ("usdtbuild is not used: probes compile to nothing" in said) is not probes
    cmake_project.make()
    for name in ("app", "app++"):
        assert probes_of(usdtbuild, cmake_project.binary(name)) == (SITES if probes else set())
    said = cmake_project.make("--target", "test")
    assert ("usdt-verify-app" in said) is probes


def test_cmake_makes_the_header_anew_when_the_provider_file_changes(cmake_project: Any) -> None:
    cmake_project.configure("-DUSDTBUILD_DISABLED=ON", find=False)
    cmake_project.make()
    cmake_project.edit("app.d", "request__begin", "request__start")
    assert "MY_APP_REQUEST_BEGIN" in cmake_project.make(code=None)
    cmake_project.edit("main.c", "REQUEST_BEGIN", "REQUEST_START")
    cmake_project.edit("main.cpp", "REQUEST_BEGIN", "REQUEST_START")
    cmake_project.make()


def test_cmake_required(cmake_project: Any) -> None:
    absent = ["-DCMAKE_DISABLE_FIND_PACKAGE_USDTBuild=ON"]
    said = cmake_project.configure("-DUSDTBUILD_REQUIRED=ON", *absent, find=False, code=1)
    assert "USDTBuild" in said


def test_cmake_finds_usdtbuild_where_packages_are_looked_for_in_the_targets_root_only(
    cmake_project: Any, tmp_path: Path
) -> None:
    (tmp_path / "root").mkdir()
    options = ["-DCMAKE_FIND_ROOT_PATH_MODE_PACKAGE=ONLY", f"-DCMAKE_FIND_ROOT_PATH={tmp_path / 'root'}"]
    where = [f"-DCMAKE_PREFIX_PATH={ROOT}", f"-DUSDTBuild_PYTHON={sys.executable}"]
    cmake_project.configure("-DUSDTBUILD_REQUIRED=ON", *options, *where, find=False)
    assert usdtbuild_dir(cmake_project).startswith(f"USDTBuild_DIR={ROOT}")


def usdtbuild_dir(project: Any) -> str:
    """Where CMake found the package, as USDTBuild_DIR=FOLDER."""
    cache = (project.build / "CMakeCache.txt").read_text()
    return next(line for line in cache.splitlines() if line.startswith("USDTBuild_DIR")).replace(":PATH", "")


def test_cmake_file_is_replaced_only_if_it_is_ours(usdtbuild: Any, tmp_path: Path) -> None:
    target = tmp_path / "cmake" / "USDTBuildOptional.cmake"
    assert usdtbuild("vendor-cmake", cwd=tmp_path).stdout == "cmake/USDTBuildOptional.cmake\n"
    ours = target.read_text()
    target.write_text(ours.replace("0.1.0", "0.0.1"))
    usdtbuild("vendor-cmake", cwd=tmp_path)
    assert target.read_text() == ours
    target.write_text("message(STATUS mine)\n")
    assert "isn't a copy of ours" in usdtbuild("vendor-cmake", cwd=tmp_path, code=1).stderr
    assert target.read_text() == "message(STATUS mine)\n"


# --- Meson ------------------------------------------------------------------------------------------------------------

MESON = f"""\
project('app', 'c', 'cpp', meson_version: '>=1.0.0')
usdt_provider = subproject('usdtbuild').get_variable('usdt_provider')
usdt_dep = dependency('usdtbuild')
usdt_verify = subproject('usdtbuild').get_variable('usdt_verify')
add_project_arguments({", ".join(map(repr, STRICT.split()))}, language: ['c', 'cpp'])
app = executable('app', 'main.c', usdt_provider.process('app.d'), dependencies: usdt_dep)
test('probes', usdt_verify, args: ['verify', app])
executable('app++', 'main.cpp', usdt_provider.process('app.d'), dependencies: usdt_dep)
"""
MESON_STATES = {
    "present": (True, "", True),
    "absent": (False, "", False),
    "disabled": (False, "-Dusdtbuild:probes=disabled", False),
    "present-disabled": (True, "-Dusdtbuild:probes=disabled", False),
    "present-required": (True, "-Dusdtbuild:probes=enabled", True),
}


@pytest.fixture(params=[pytest.param("oldest", marks=pytest.mark.slow), "newest"])
def meson_build(request: Any, tmp_path: Path, run: Any, need: Any, usdtbuild: Any) -> Any:
    """Set up and build the project: `meson_build(installed, options, code)` returns what Meson and Ninja said."""
    need("ninja")
    modules = ROOT / ".cache" / f"meson-{request.param}"
    if not modules.is_dir():
        pytest.skip(f"{modules} is missing; `make test` installs it")
    for name, text in {"app.d": PROVIDER, "main.c": MAIN, "main.cpp": MAIN, "meson.build": MESON}.items():
        (tmp_path / name).write_text(text)
    usdtbuild("vendor-meson", tmp_path / "subprojects")
    tool = tmp_path / "usdtbuild"
    tool.write_text(f"#!{sys.executable}\nimport sys\nfrom usdtbuild.__main__ import main\nsys.exit(main())\n")
    tool.chmod(0o755)
    environment = dict(os.environ, PYTHONPATH=f"{modules}:{ROOT}")

    def build(installed: bool, option: str, code: int = 0) -> str:
        command = tool if installed else "/nowhere/usdtbuild"
        options = [f"-Dusdtbuild:command={command}", *([option] if option else [])]
        meson = [sys.executable, "-m", "mesonbuild.mesonmain", "setup", "build", *options]
        said = run(*meson, cwd=tmp_path, env=environment, code=code).stdout
        if code == 0:
            run("ninja", "-C", "build", cwd=tmp_path, env=environment)
            said += run(*meson[:3], "test", "-C", "build", cwd=tmp_path, env=environment).stdout
        return str(said)

    return build


@pytest.mark.parametrize("state", MESON_STATES)
def test_meson(state: str, meson_build: Any, tmp_path: Path, usdtbuild: Any) -> None:
    installed, option, probes = MESON_STATES[state]
    said = meson_build(installed, option)
    assert ("probes compile to nothing" in said) is (state == "absent")
    assert ("No tests defined." in said) is not probes
    for name in ("app", "app++"):
        assert probes_of(usdtbuild, tmp_path / "build" / name) == (SITES if probes else set())


def test_meson_required(meson_build: Any) -> None:
    assert 'The program "/nowhere/usdtbuild" was not found' in meson_build(False, "-Dusdtbuild:probes=enabled", code=1)
