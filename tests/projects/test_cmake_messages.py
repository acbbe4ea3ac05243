"""Wrong use of the CMake functions: each is rejected at configure time with a sentence that says what to do."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.project

PROVIDER = "provider app { probe go(int); };\n"
SAMPLES = Path(__file__).resolve().parent.parent.parent / "sample_projects"
WRONG = {
    "no file": ("usdt_add_provider(probes)", "needs a name for the target and a provider file"),
    "file that isn't there": ("usdt_add_provider(probes missing.d)", "there is no provider file"),
    "folder for a file": ("usdt_add_provider(probes ${CMAKE_SOURCE_DIR})", "there is no provider file"),
    "unknown option": ("usdt_add_provider(probes app.d LANGUAGE C)", "don't know what to do with 'LANGUAGE C'"),
    "option without value": ("usdt_add_provider(probes app.d HEADER)", "HEADER needs a value"),
    "header without a header's name": ("usdt_add_provider(probes app.d HEADER probes)", "is not the name of a header"),
    "header outside": ("usdt_add_provider(probes app.d HEADER ../probes.h)", "leads out of the folder that sources"),
    "two headers of one name": (
        "usdt_add_provider(p app.d)\nusdt_add_provider(q app.d)\ntarget_usdt_providers(app p q)",
        "p and q have the same header, app.h, and sources would get one of them only. Call one otherwise:"
        " usdt_add_provider(q FILE.d HEADER q/app.h)",
    ),
    "unknown format": ("usdt_add_provider(probes app.d FORMATS elf)", "there is no record format 'elf'"),
    "includes without the preprocessor": ("usdt_add_provider(p app.d INCLUDES .)", "add PREPROCESS"),
    "name taken": ("usdt_add_provider(app app.d)", "there is a target named app already"),
    "committed header that isn't there": ("usdt_add_provider(p app.d COMMITTED app.h)", "usdtbuild header"),
    "committed header for another format": (
        "usdt_add_provider(p app.d COMMITTED app.h FORMATS dof)",
        "a COMMITTED header is where it is and makes SDT notes",
    ),
    "no provider": ("target_usdt_providers(app)", "needs a target and one or more providers"),
    "file for a provider": ("target_usdt_providers(app app.d)", "usdt_add_provider(NAME app.d) makes a target"),
    "unknown provider": ("target_usdt_providers(app probes)", "usdt_add_provider() must come first"),
    "target that is no provider": ("target_usdt_providers(app app)", "not one that usdt_add_provider() made"),
    "unknown target": (
        "usdt_add_provider(p app.d)\ntarget_usdt_providers(nobody p)",
        "there is no target nobody; call this after add_executable() or add_library()",
    ),
    "interface target": (
        "usdt_add_provider(p app.d)\nadd_library(i INTERFACE)\ntarget_usdt_providers(i p)",
        "has no sources of its own to compile",
    ),
    "imported target": (
        "usdt_add_provider(p app.d)\nadd_library(i STATIC IMPORTED)\ntarget_usdt_providers(i p)",
        "i is imported, so nothing of it is built here",
    ),
    "public": (
        "usdt_add_provider(p app.d)\ntarget_usdt_providers(app PUBLIC p)",
        "PUBLIC and INTERFACE don't work here",
    ),
    "patchable without numbers": (
        "usdt_add_provider(p app.d)\ntarget_usdt_providers(app p PATCHABLE_FUNCTION_ENTRY)",
        "PATCHABLE_FUNCTION_ENTRY needs numbers",
    ),
    "patchable with more before the entry than there are": (
        "usdt_add_provider(p app.d)\ntarget_usdt_providers(app p PATCHABLE_FUNCTION_ENTRY 2,3)",
        "which can't be more",
    ),
    "patchable table alone": (
        "usdt_add_provider(p app.d)\ntarget_usdt_providers(app p PATCHABLE_TABLE relative)",
        "goes with PATCHABLE_FUNCTION_ENTRY",
    ),
    "launcher replaced afterwards": (
        "usdt_add_provider(p app.d FORMATS dof)\ntarget_usdt_providers(app p)\n"
        "set_target_properties(app PROPERTIES C_COMPILER_LAUNCHER time)",
        "C_COMPILER_LAUNCHER was changed afterwards, to 'time'",
    ),
    "generator that ignores launchers": (
        "set(CMAKE_GENERATOR Xcode)\nusdt_add_provider(p app.d FORMATS stapsdt dof)",
        'ignores compiler launchers, which these formats or settings need. Configure with -G Ninja or -G "Unix',
    ),
    "verifying nothing": ("usdt_verify()", "usdt_verify needs a target"),
    "verifying objects": (
        "add_library(objects OBJECT main.c)\nusdt_verify(objects)",
        "verify the executable or library that contains it",
    ),
}


@pytest.fixture
def one_target(project: Any) -> Any:
    """A project with an executable `app`, for which no compiler is looked up: that takes longer than the test."""
    project.write(main__c="int main(void) { return 0; }\n", app__d=PROVIDER)

    def write(commands: str) -> Any:
        project.write(
            CMakeLists__txt="cmake_minimum_required(VERSION 3.16...4.0)\nproject(wrong LANGUAGES NONE)\n"
            f"find_package(USDTBuild REQUIRED)\nadd_executable(app main.c)\n{commands}\n"
        )
        return project

    return write


@pytest.mark.parametrize("name", WRONG)
def test_wrong_use_says_what_to_do(one_target: Any, name: str) -> None:
    commands, message = WRONG[name]
    said = one_target(commands).configure(code=1)
    assert "CMake Error" in said
    assert message in said


def test_generator_without_launchers_is_welcome_for_sdt_notes(one_target: Any) -> None:
    said = one_target("set(CMAKE_GENERATOR Xcode)\nusdt_add_provider(p app.d)").configure(code=None)
    assert "ignores compiler launchers" not in said


def test_ccache_as_a_rule_launcher_is_warned_of(one_target: Any) -> None:
    said = one_target(
        "set_property(GLOBAL PROPERTY RULE_LAUNCH_COMPILE ccache)\n"
        "usdt_add_provider(p app.d FORMATS dof)\ntarget_usdt_providers(app p)"
    ).configure(code=None)
    assert "CMake Warning" in said
    assert "Use CMAKE_C_COMPILER_LAUNCHER and CMAKE_CXX_COMPILER_LAUNCHER instead" in said


UNUSED = "no target uses the provider probes. Call target_usdt_providers(TARGET probes)"


def test_a_provider_that_no_target_uses_is_named(one_target: Any) -> None:
    """Its header isn't found by the compiler, or isn't made yet, and the compiler can't say why."""
    assert UNUSED in one_target("usdt_add_provider(probes app.d)").configure(code=None)


@pytest.mark.parametrize(
    "use",
    [
        "target_usdt_providers(app probes)",
        "target_link_libraries(app PRIVATE probes)",
        'target_link_libraries(app PRIVATE "$<BUILD_INTERFACE:probes>")',
    ],
)
def test_a_provider_that_is_used_is_not_named(one_target: Any, use: str) -> None:
    assert "no target uses" not in one_target(f"usdt_add_provider(probes app.d)\n{use}").configure(code=None)


def test_the_sample_says_how_to_install_what_is_missing(project: Any) -> None:
    """`find_package` alone says that a file is missing, and not that `pip install` brings it."""
    sample = SAMPLES / "cmake-hello"
    for path in sample.iterdir():
        project.write(**{path.name: path.read_text()})
    said = project.configure("-DCMAKE_DISABLE_FIND_PACKAGE_USDTBuild=ON", code=1, find=False)
    assert "python3 -m pip install usdtbuild" in said
    assert "CMAKE_PREFIX_PATH" not in said


@pytest.mark.parametrize(
    ("does", "said"),
    [
        # no site-packages: nothing installed
        (f'exec {sys.executable} -S "$@"', "{0}: lacks click rich pyelftools capstone ({0} -m pip install"),
        ("printf '/usr/bin/python3\\n3.8.10\\n\\n'", "{0}: is Python 3.8.10, and usdtbuild needs 3.10 or newer"),
    ],
    ids=["lacks what we need", "too old"],
)
def test_python_that_will_not_do_is_named(one_target: Any, tmp_path: Path, does: str, said: str) -> None:
    python = tmp_path / "python3"
    python.write_text(f"#!/bin/sh\n{does}\n")
    python.chmod(0o755)
    assert said.format(python) in one_target("").configure(f"-DUSDTBuild_PYTHON={python}", code=1)


def test_build_folder_that_cmake_allows_no_commands_in(make_project: Any, tmp_path: Path) -> None:
    """CMake's own message is about an OUTPUT that the user has never written; a source folder may be called so."""
    project = make_project(tmp_path / "a#b")
    listed = "cmake_minimum_required(VERSION 3.16)\nproject(app C)\nfind_package(USDTBuild CONFIG REQUIRED)\n"
    project.write(app__d=PROVIDER, CMakeLists__txt=listed + "usdt_add_provider(app-probes app.d)\n")
    said = project.configure(code=1)
    assert "CMake allows no commands in folders with a '#' in their path" in said
    assert "OUTPUT containing" not in said
    project.build = tmp_path / "build"
    project.configure()
    project.make("--target", "usdt-header-app-probes")


def test_source_folder_that_makefiles_cannot_have(make_project: Any, tmp_path: Path) -> None:
    """Without us it is configured, and then `make` ends in `Unterminated quoted string`."""
    project = make_project(tmp_path / "a#b", "system", "Unix Makefiles")
    listed = "cmake_minimum_required(VERSION 3.16)\nproject(app C)\nfind_package(USDTBuild CONFIG REQUIRED)\n"
    project.write(app__d=PROVIDER, CMakeLists__txt=listed + "usdt_add_provider(app-probes app.d)\n")
    project.build = tmp_path / "build"
    said = " ".join(project.configure(code=1).split())
    assert "CMake's Makefiles can't be run where the sources' folder has a '#' in its path" in said
    assert "Use cmake -G Ninja, or another folder." in said
