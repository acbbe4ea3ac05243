"""Every kind of target, and what else a CMake project may switch on: the probes arrive, and the program still works."""

from __future__ import annotations

import ctypes
import json
import re
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.project

ROOT = Path(__file__).resolve().parent.parent.parent
HEAD = """
cmake_minimum_required(VERSION 3.16...4.0)
project(targets LANGUAGES {languages})
find_package(USDTBuild REQUIRED)
usdt_add_provider(probes app.d)
"""
PROVIDER = """
provider app {
    probe go(int number, char *where);
    probe other(long);
};
"""
# Every function fires app:go once and adds one.
PART = '#include "app.h"\nint {name}(int n);\nint {name}(int n) {{ APP_GO(n, "{name}"); return n + 1; }}\n'
PROGRAM = "add_executable(program main.c one.c)\ntarget_usdt_providers(program probes)\n"
MAIN = "{declarations}\nint main(int count, char **words) {{ (void)words; return {calls} - count; }}\n"

Notes = Callable[[Path], "Counter[str]"]


@pytest.fixture(scope="session")
def notes(run: Any) -> Notes:
    """The sites of a binary by `provider:probe`, as readelf, which knows nothing of us, finds them."""

    def count(binary: Path) -> Counter[str]:
        said = run("readelf", "-n", binary, env={"PATH": "/usr/bin:/bin", "LC_ALL": "C"}).stdout
        return Counter(f"{p}:{n}" for p, n in re.findall(r"Provider: (\S+)\n\s*Name: (\S+)", said))

    return count


@pytest.fixture
def parts(project: Any) -> Callable[..., Any]:
    """Write a project with `main.c`, which calls one function of each of the sources named, and those sources."""

    def write(commands: str, *names: str, languages: str = "C", suffix: str = "c") -> Any:
        project.write(CMakeLists__txt=HEAD.format(languages=languages) + commands, app__d=PROVIDER)
        for name in names:
            project.write(**{f"{name}__{suffix}": PART.format(name=name)})
        calls = "count"
        for name in names:
            calls = f"{name}({calls})"
        declarations = "\n".join(f"int {name}(int n);" for name in names)
        project.write(**{f"main__{suffix}": MAIN.format(declarations=declarations, calls=calls)})
        return project

    return write


KINDS = """
add_library(parts STATIC one.c two.c)
add_executable(first main.c)
target_link_libraries(first parts)
add_executable(second main.c)
target_link_libraries(second parts)
add_library(objects OBJECT one.c two.c)
set_target_properties(objects PROPERTIES POSITION_INDEPENDENT_CODE ON)
add_executable(joined main.c $<TARGET_OBJECTS:objects>)
add_library(shared SHARED $<TARGET_OBJECTS:objects>)
add_library(module MODULE one.c)
add_executable(unity main.c one.c two.c)
set_target_properties(unity PROPERTIES UNITY_BUILD ON)
add_executable(precompiled main.c one.c two.c)
target_precompile_headers(precompiled PRIVATE <app.h>)
add_executable(cpp main.cpp one.cpp two.cpp)
foreach(target parts objects module unity precompiled cpp)
  target_usdt_providers(${target} probes)
endforeach()
"""
SHARED = '#include "app.h"\ninline __attribute__((noinline)) int shared(int n) { APP_OTHER(n); return n; }\n'


@pytest.mark.parametrize("formats", ["", "stapsdt;dof"], ids=["header", "post-processed"])
def test_every_kind_of_target(parts: Any, notes: Notes, run: Any, formats: str) -> None:
    project = parts(KINDS, "one", "two", languages="C CXX")
    for name in ("one", "two"):
        text = PART.format(name=name).replace("app.h", "shared.h").replace("return n + 1", "return shared(n) + 1")
        project.write(**{f"{name}__cpp": text})
    project.write(shared__h=SHARED, main__cpp=(project.source / "main.c").read_text())
    project.built(f"-DUSDTBUILD_FORMATS={formats}", "-DCMAKE_C_FLAGS=-fno-inline")
    for name in ("first", "second", "joined", "unity", "precompiled", "cpp"):
        run(project.binary(name), code=2)
        more = {"app:other": 1} if name == "cpp" else {}
        assert notes(project.binary(name)) == {"app:go": 2, **more}, name
    assert notes(project.binary("libshared.so")) == {"app:go": 2}
    module = project.binary("libmodule.so")
    assert notes(module) == {"app:go": 1}
    assert ctypes.CDLL(str(module)).one(41) == 42
    once = [*["main.c"] * 4, "main.cpp", *["one.c"] * 4, "one.cpp", *["two.c"] * 3, "two.cpp", "unity_0_c.c"]
    assert [name for name in project.compiled() if "pch" not in name] == sorted(once)


def test_build_is_the_same_but_for_an_include_folder_and_the_rule_that_makes_the_header(parts: Any) -> None:
    probes = "target_usdt_providers(one probes)\ntarget_usdt_providers(program probes)\n"
    targets = "add_library(one STATIC one.c)\nadd_executable(program main.c)\ntarget_link_libraries(program one)\n"
    edges = []
    for commands in (targets, targets + probes):
        project = parts(commands, "one")
        project.configure()
        text = (project.build / "build.ninja").read_text() + (project.build / "CMakeFiles/rules.ninja").read_text()
        found = re.findall(r"^(?:build|rule) (?:.+\n)(?:  .*\n)*", text, re.M)
        edges.append([edge for edge in found if re.search(r"_(COMPILER|LINKER)__", edge)])
        shutil.rmtree(project.build)
    plain, probed = edges
    include = re.compile(r"  INCLUDES = -I\S+/usdt/probes\n| usdt-header-probes| cmake_object_order\S+| \|\|(?=[ \n])")
    assert [include.sub("", edge) for edge in probed] == [include.sub("", edge) for edge in plain]
    assert sum("  INCLUDES = " in edge for edge in probed) == 2


@pytest.mark.parametrize("compiler", ["gcc", pytest.param("clang", marks=pytest.mark.slow)])
def test_post_processing_with_link_time_optimization(
    parts: Any, notes: Notes, run: Any, need: Any, compiler: str
) -> None:
    optimized = "set_target_properties(program PROPERTIES INTERPROCEDURAL_OPTIMIZATION ON)\n"
    project = parts(PROGRAM.replace("one.c", "one.c two.c") + optimized, "one", "two")
    options = ("-DUSDTBUILD_FORMATS=stapsdt;dof", "-DCMAKE_BUILD_TYPE=Release")
    project.built(f"-DCMAKE_C_COMPILER={need(compiler)}", *options, count=False)
    run(project.binary("program"), code=2)
    assert notes(project.binary("program")) == {"app:go": 2}


def test_plain_linking_is_enough_but_not_for_post_processing(parts: Any, notes: Notes, run: Any) -> None:
    commands = "add_library(parts STATIC one.c)\ntarget_link_libraries(parts PUBLIC probes)\n" \
               "add_executable(program main.c two.c)\ntarget_link_libraries(program PRIVATE parts)\n"  # fmt: skip
    project = parts(commands, "one", "two")
    project.built()
    run(project.binary("program"), code=2)
    assert notes(project.binary("program")) == {"app:go": 2}
    project.compiled()
    project.edit("app.d", "probe other(long)", "probe other(short)")
    project.make()
    assert project.compiled() == ["one.c", "two.c"]
    project.configure("-DUSDTBUILD_FORMATS=dof")
    assert re.search(r"undefined .*__dtrace_app___go___is_made_by_\w*CMake_target_usdt_providers", project.make(code=1))


def test_two_post_processed_providers_for_one_target(parts: Any, notes: Notes, run: Any) -> None:
    project = parts(f"usdt_add_provider(more more.d)\n{PROGRAM}target_usdt_providers(program more)\n", "one")
    project.write(more__d="provider more { probe step(int); };")
    project.edit("one.c", '#include "app.h"', '#include "app.h"\n#include "more.h"')
    project.edit("one.c", "return n + 1", "MORE_STEP(n); return n + 1")
    project.built("-DUSDTBUILD_FORMATS=stapsdt;dof")
    run(project.binary("program"), code=1)
    assert notes(project.binary("program")) == {"app:go": 1, "more:step": 1}
    # One launcher, however often the function was called.
    rules = project.rules()
    launched = [line for line in rules.splitlines() if "/launcher.py" in line]
    assert [line.count("/launcher.py") for line in launched] == [1] * len(launched) != []


def test_provider_of_a_subdirectory_is_known_everywhere(project: Any, notes: Notes, run: Any) -> None:
    project.write(
        CMakeLists__txt="cmake_minimum_required(VERSION 3.16...4.0)\nproject(tree LANGUAGES C)\n"
        "add_subdirectory(probes)\nadd_subdirectory(program)\n",
    )
    for folder in ("probes", "program"):
        (project.source / folder).mkdir()
    (project.source / "probes/CMakeLists.txt").write_text(
        "find_package(USDTBuild REQUIRED)\nusdt_add_provider(probes app.d HEADER tree/probes.h)\n"
        "add_library(tree::probes ALIAS probes)\n"
    )
    (project.source / "probes/app.d").write_text(PROVIDER)
    (project.source / "program/CMakeLists.txt").write_text(
        "add_executable(program main.c)\ntarget_usdt_providers(program tree::probes)\n"
    )
    (project.source / "program/main.c").write_text(
        '#include "tree/probes.h"\nint main(void) { APP_GO(1, "main"); return 0; }\n'
    )
    project.built()
    run(project.build / "program/program")
    assert notes(project.build / "program/program") == {"app:go": 1}


def test_one_provider_of_a_file_with_two(parts: Any, notes: Notes) -> None:
    project = parts(
        "usdt_add_provider(second both.d PROVIDERS second)\nadd_executable(program main.c)\n"
        "target_usdt_providers(program second)\n"
    )
    project.write(
        both__d="provider first { probe go(int); };\nprovider second { probe go(int); };\n",
        main__c='#include "both.h"\n#ifdef FIRST_GO\n#error both\n#endif\nint main(void) { SECOND_GO(1); return 0; }\n',
    )
    project.built()
    assert notes(project.binary("program")) == {"second:go": 1}
    project.edit("CMakeLists.txt", "PROVIDERS second", "PROVIDERS third")
    assert "both.d: no provider third in this file; it has first, second" in project.make(code=1)


def test_a_header_that_hides_the_one_that_is_made_is_told(parts: Any) -> None:
    """`usdtbuild add` puts it there, and compilers look beside the source first."""
    project = parts("add_executable(program main.c)\ntarget_usdt_providers(program probes)\n")
    project.write(app__h="")
    said = project.configure()
    assert re.search(r"app\.h include that file, and\s+not the header that the build makes", said)


@pytest.mark.parametrize("generator", ["Ninja", "Unix Makefiles"])
@pytest.mark.parametrize("cmake", ["system", "oldest"])
def test_preprocessed_provider_file(parts: Any, notes: Notes, cmake_of: Any, cmake: str, generator: str) -> None:
    project = parts(
        "usdt_add_provider(pre pre.d PREPROCESS INCLUDES types DEFINES WITH_IT LIMIT=3)\n"
        "add_executable(program main.c)\ntarget_usdt_providers(program pre)\n"
    )
    project.cmake, project.generator = cmake_of(cmake), generator
    (project.source / "types").mkdir()
    (project.source / "types/number.h").write_text("typedef int number;\n")
    project.write(
        pre__d='#include "number.h"\nprovider pre {\n#if defined(WITH_IT) && LIMIT == 3\n'
        "probe it(number);\n#endif\n};\n",
        main__c='#include "pre.h"\nint main(void) { PRE_IT(1); return 0; }\n',
    )
    project.built()
    assert notes(project.binary("program")) == {"pre:it": 1}
    project.compiled()
    if (cmake, generator) != ("oldest", "Unix Makefiles"):
        project.edit("types/number.h", "int", "long")
        project.make()
        assert project.compiled() == ["main.c"]
    project.make()
    assert project.compiled() == []


@pytest.mark.parametrize("generator", ["Ninja", "Unix Makefiles"])
def test_folders_with_spaces_and_other_signs(
    make_project: Any, copy_sample: Any, notes: Notes, run: Any, tmp_path: Path, generator: str
) -> None:
    project = make_project(tmp_path / "a b" / "c+d (e) $f", generator=generator)
    copy_sample("cmake-hello", project.source)
    project.built()
    run(project.binary("hello"), "Ada")
    assert notes(project.binary("hello"))["hello:start"] == 1
    assert project.compiled() == ["greeting.c", "journal.cpp", "main.c"]


def test_project_written_for_the_policies_of_long_ago(parts: Any, notes: Notes) -> None:
    project = parts(PROGRAM, "one")
    project.edit("CMakeLists.txt", "VERSION 3.16...4.0", "VERSION 3.1")
    project.configure("-DCMAKE_POLICY_VERSION_MINIMUM=3.5")  # CMake 4 asks for it; others don't know it
    project.make()
    assert notes(project.binary("program")) == {"app:go": 1}


def test_disabled_provider_compiles_to_nothing_beside_one_that_works(parts: Any, notes: Notes, run: Any) -> None:
    project = parts(
        "usdt_add_provider(off off.d DISABLED)\nadd_executable(program main.c one.c)\n"
        "target_usdt_providers(program probes off)\nenable_testing()\nusdt_verify(program)\n",
        "one",
    )
    project.write(off__d="provider off { probe step(int); };")
    project.edit("one.c", '#include "app.h"', '#include "app.h"\n#include "off.h"')
    # What is passed is looked at by the compiler, and never evaluated.
    project.edit("one.c", "return n + 1", "OFF_STEP(n = 40); return n + 1 + OFF_STEP_ENABLED()")
    project.built()
    run(project.binary("program"), code=1)
    assert notes(project.binary("program")) == {"app:go": 1}
    assert "off" not in run("nm", project.binary("program")).stdout
    project.edit("one.c", "OFF_STEP(n = 40)", 'OFF_STEP(1, "two")')
    assert "OFF_STEP" in project.make(code=1)


def test_formats_are_the_providers_own_or_else_the_users(parts: Any, usdtbuild: Any) -> None:
    project = parts(
        "usdt_add_provider(both more.d FORMATS stapsdt usdt)\n"
        "add_library(own MODULE one.c)\ntarget_usdt_providers(own both)\n"
        "add_library(users MODULE two.c)\ntarget_usdt_providers(users probes)\n",
        "one",
        "two",
    )
    project.write(more__d="provider more { probe step(int); };")
    project.edit("one.c", 'APP_GO(n, "one")', "if (MORE_STEP_ENABLED()) MORE_STEP(n)")
    project.edit("one.c", "app.h", "more.h")
    project.built("-DUSDTBUILD_FORMATS=stapsdt;dof")
    for name, expected in (("libown.so", {"stapsdt", "usdt"}), ("libusers.so", {"stapsdt", "dof"})):
        said = json.loads(usdtbuild("list", "--json", project.binary(name)).stdout)
        assert {probe["format"] for file in said["files"] for probe in file["probes"]} == expected
    usdtbuild("verify", "--strict", project.binary("libown.so"))  # any tracer can make ..._ENABLED() true


@pytest.mark.parametrize("generator", ["Ninja", "Unix Makefiles"])
@pytest.mark.parametrize(
    ("header", "included", "where"),
    [("${CMAKE_BINARY_DIR}/made/by/us.hpp", "us.hpp", "made/by/us.hpp"), ("by/us.h", "by/us.h", "usdt/more/by/us.h")],
    ids=["absolute", "in a folder"],
)
def test_header_goes_where_it_is_to(
    parts: Any, notes: Notes, generator: str, header: str, included: str, where: str
) -> None:
    project = parts(
        f"usdt_add_provider(more app.d HEADER {header})\n"
        "add_executable(program main.c one.c)\ntarget_usdt_providers(program more)\n",
        "one",
    )
    project.generator = generator
    project.edit("one.c", '"app.h"', f'"{included}"')
    project.built()
    assert (project.build / where).exists()
    assert notes(project.binary("program")) == {"app:go": 1}


@pytest.mark.parametrize("generator", ["Ninja", "Unix Makefiles"])
def test_provider_file_that_the_build_makes(parts: Any, notes: Notes, generator: str) -> None:
    project = parts(
        "set(copy ${CMAKE_COMMAND} -E copy ${CMAKE_SOURCE_DIR}/app.d made.d)\n"
        "add_custom_command(OUTPUT made.d COMMAND ${copy} DEPENDS app.d)\n"
        "usdt_add_provider(made ${CMAKE_CURRENT_BINARY_DIR}/made.d)\n"
        "add_executable(program main.c one.c)\ntarget_usdt_providers(program made)\n",
        "one",
    )
    project.generator = generator
    project.edit("one.c", "app.h", "made.h")
    project.built()
    assert notes(project.binary("program")) == {"app:go": 1}
    project.compiled()
    project.edit("app.d", "probe other(long)", "probe other(short)")
    project.make()
    assert project.compiled() == ["one.c"]


def test_tool_is_a_target_for_commands_of_the_project(parts: Any) -> None:
    command = "TARGET program POST_BUILD COMMAND USDTBuild::usdtbuild list $<TARGET_FILE:program>"
    assert "app:go" in parts(f"{PROGRAM}add_custom_command({command})\n", "one").built()


def test_options_of_verify_are_passed_on(parts: Any, run: Any) -> None:
    project = parts(
        "add_executable(program main.c)\nenable_testing()\n"
        "usdt_verify(program NAME lax)\nusdt_verify(program NAME strict ARGS --strict)\n"
    )
    project.built()
    said = run(project.ctest, cwd=project.build, code=8).stdout
    assert re.search(r"lax [ .]*Passed", said)
    assert re.search(r"strict [ .*]*Failed", said)


@pytest.fixture
def committed(parts: Any, usdtbuild: Any) -> Any:
    """A project whose header is in a folder of its sources."""
    project = parts(
        "enable_testing()\nusdt_add_provider(ours app.d COMMITTED include/app.h)\n"
        "add_executable(program main.c one.c)\ntarget_usdt_providers(program ours)\nusdt_verify(program)\n",
        "one",
    )
    project.edit("CMakeLists.txt", "usdt_add_provider(probes app.d)\n", "")
    (project.source / "include").mkdir()
    usdtbuild("header", project.source / "app.d", "-o", project.source / "include/app.h")
    return project


def test_committed_header_is_used_as_it_is(committed: Any, notes: Notes, run: Any) -> None:
    committed.built()
    assert notes(committed.binary("program")) == {"app:go": 1}

    assert "100% tests passed" in run(committed.ctest, cwd=committed.build).stdout
    committed.edit("app.d", "probe other(long)", "probe other(short)")
    assert "no work to do" in committed.make()
    assert "usdt-header-ours (Failed)" in run(committed.ctest, cwd=committed.build, code=8).stdout
    committed.built("-DUSDTBUILD_DISABLED=ON")
    assert notes(committed.binary("program")) == {}


def test_committed_header_is_enough_where_usdtbuild_is_not(committed: Any, notes: Notes, usdtbuild: Any) -> None:
    usdtbuild("vendor", "cmake", committed.source / "cmake")
    committed.edit("CMakeLists.txt", "find_package(USDTBuild REQUIRED)", "include(cmake/USDTBuild.cmake)")
    absent = ["-DCMAKE_DISABLE_FIND_PACKAGE_USDTBuild=ON"]
    committed.built(*absent, find=False)
    assert notes(committed.binary("program")) == {"app:go": 1}
    committed.built("-DUSDTBUILD_DISABLED=ON", find=False)
    assert notes(committed.binary("program")) == {}
    said = committed.configure("-DUSDTBUILD_FORMATS=dof", find=False, code=1)
    assert "this needs usdtbuild, which wasn't found: python3 -m pip install usdtbuild" in said


# --- what else is in front of a compiler, or changes what is built -------------------------------------------


@pytest.mark.parametrize("generator", ["Ninja", "Unix Makefiles"])
def test_probes_can_be_switched_off_and_on(parts: Any, notes: Notes, run: Any, generator: str) -> None:
    project = parts(PROGRAM, "one")
    project.generator = generator
    for disabled, expected in (("OFF", {"app:go": 1}), ("ON", {}), ("OFF", {"app:go": 1})):
        project.built(f"-DUSDTBUILD_DISABLED={disabled}")
        assert notes(project.binary("program")) == expected
        run(project.binary("program"), code=1)


def test_system_without_tracers_gets_probes_that_do_nothing(project: Any) -> None:
    project.write(CMakeLists__txt=HEAD.format(languages="NONE"), app__d=PROVIDER)
    said = project.configure("-DCMAKE_SYSTEM_NAME=Windows")
    assert "usdtbuild: no probes on Windows; they compile to nothing" in said
    project.make("--target", "usdt-header-probes")
    assert "__dtrace" not in (project.build / "usdt/probes/app.h").read_text()


@pytest.mark.parametrize(("formats", "users"), [("", ["one.c"]), ("dof", ["main.c", "one.c"])])
def test_new_version_of_the_tool_compiles_the_users_of_probes(
    parts: Any, tmp_path: Path, formats: str, users: list[str]
) -> None:
    for name in ("usdtbuild", "cmake"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    project = parts(f"{PROGRAM}add_library(plain main.c)\n", "one")
    project.generator = "Unix Makefiles"
    project.built(f"-DUSDTBuild_DIR={tmp_path}/cmake", f"-DUSDTBUILD_FORMATS={formats}")
    project.compiled()
    (tmp_path / "usdtbuild/_version.py").write_text('__version__ = "0.1.99"\n')
    project.make()
    assert project.compiled() == users


def test_settings_reach_the_launcher(parts: Any) -> None:
    project = parts(
        "usdt_add_provider(both app.d FORMATS stapsdt dof)\nadd_library(one one.c)\ntarget_usdt_providers(one both)\n",
        "one",
    )
    project.configure("-DCMAKE_SYSTEM_NAME=FreeBSD", "-DUSDTBUILD_NOP=nop5", "-DUSDTBUILD_SITE_TABLE=ON")
    rules = project.rules()
    assert "--target-os=freebsd --nop=nop5 --site-table --formats=stapsdt,dof -- " in rules


def test_verify_fails_where_the_probes_were_stripped_away(parts: Any, need: Any, run: Any) -> None:
    project = parts(f"{PROGRAM}enable_testing()\nusdt_verify(program NAME probes-of-program)\n", "one")
    project.built()
    assert "100% tests passed" in run(project.ctest, cwd=project.build).stdout
    run(need("llvm-strip"), "-s", project.binary("program"))
    said = run(project.ctest, "--output-on-failure", cwd=project.build, code=8)
    assert "probes-of-program (Failed)" in said.stdout


def test_verify_fails_where_a_declared_probe_is_missing(parts: Any, run: Any) -> None:
    project = parts(f"{PROGRAM}enable_testing()\nusdt_verify(program PROVIDERS probes)\n", "one")
    project.built()
    assert "app:other" in run(project.ctest, "--output-on-failure", cwd=project.build, code=8).stdout
    project.edit("one.c", "return n + 1", "APP_OTHER(n); return n + 1")
    project.make()
    run(project.ctest, cwd=project.build)


@pytest.mark.parametrize(("provider", "option"), [("probes", "-DUSDTBUILD_DISABLED=ON"), ("off", "-DNOTHING=1")])
def test_no_verify_test_is_added_where_probes_are_disabled(parts: Any, run: Any, provider: str, option: str) -> None:
    project = parts(
        "usdt_add_provider(off app.d DISABLED HEADER off.h)\n"
        "add_executable(program main.c)\ntarget_usdt_providers(program probes off)\n"
        f"enable_testing()\nusdt_verify(program PROVIDERS {provider})\n"
    )
    project.configure(option)
    assert "Total Tests: 0" in run(project.ctest, "-N", cwd=project.build).stdout


def test_compile_commands_show_the_compiler_alone(parts: Any) -> None:
    project = parts("add_library(one one.c)\ntarget_usdt_providers(one probes)\n", "one")
    project.configure("-DCMAKE_EXPORT_COMPILE_COMMANDS=ON", "-DUSDTBUILD_FORMATS=stapsdt;dof")
    written = (project.build / "compile_commands.json").read_text()
    assert "launcher" not in written
    version = re.findall(r"\d+", project.run(project.cmake, "--version").stdout)
    if list(map(int, version[:2])) >= [3, 20]:
        assert {Path(entry["file"]).name for entry in json.loads(written)} == {"one.c"}  # nothing of USDTBuild::live


@pytest.mark.parametrize(("numbers", "flag"), [("9,5", "=9,5"), ("auto", "=7,5")])
def test_patchable_function_entries(parts: Any, run: Any, numbers: str, flag: str) -> None:
    project = parts(PROGRAM.replace("probes)", f"probes PATCHABLE_FUNCTION_ENTRY {numbers})"), "one")
    project.configure()
    project.make("-v")
    assert f"-fpatchable-function-entry{flag}\n" in (project.build / "build.ninja").read_text()
    assert "__patchable_function_entries" in run("readelf", "-SW", project.binary("program")).stdout


def test_table_of_patchable_function_entries_reaches_the_launcher(parts: Any) -> None:
    options = "PATCHABLE_FUNCTION_ENTRY auto PATCHABLE_TABLE relative"
    project = parts(PROGRAM.replace("probes)", f"probes {options})"), "one")
    project.configure()
    rules = project.rules()
    assert " --patchable-table=relative -" in rules
    project.make()


def test_the_cxx_flaw_of_gcc_is_warned_of_where_the_table_has_it(project: Any) -> None:
    for table in ("absolute", "relative"):
        project.write(
            CMakeLists__txt="cmake_minimum_required(VERSION 3.18)\nproject(p CXX)\nfind_package(USDTBuild REQUIRED)\n"
            "usdt_add_provider(probes p.d)\nadd_library(one one.cc)\n"
            f"target_usdt_providers(one probes PATCHABLE_FUNCTION_ENTRY 7,5 PATCHABLE_TABLE {table})\n",
            p__d="provider p { probe x(); };\n", one__cc="int one() { return 1; }\n",
        )  # fmt: skip
        said = project.configure()
        assert "--patchable-table" not in said
        assert "outside their COMDAT groups" not in said or (table == "absolute" and "PATCHABLE_TABLE relative" in said)


def test_patchable_function_entries_that_no_patch_fits_into_are_refused(parts: Any) -> None:
    said = parts(PROGRAM.replace("probes)", "probes PATCHABLE_FUNCTION_ENTRY 2,1)"), "one").configure(code=1)
    assert "PATCHABLE_FUNCTION_ENTRY can't be had with" in said
    assert "2,1 is too small" in said
    assert "use 7,5" in said


def test_patchable_component_asks_the_compilers(project: Any, tmp_path: Path) -> None:
    project.write(
        CMakeLists__txt="cmake_minimum_required(VERSION 3.16...4.0)\nproject(component LANGUAGES C)\n"
        "find_package(USDTBuild COMPONENTS PatchableFunctionEntry)\n"
        'message(STATUS "found=${USDTBuild_FOUND} component=${USDTBuild_PatchableFunctionEntry_FOUND}")\n'
    )
    assert "found=1 component=TRUE" in project.configure()
    compiler = tmp_path / "cc"
    compiler.write_text('#!/bin/sh\ncase "$*" in *patchable*) exit 1;; esac\nexec gcc "$@"\n')
    compiler.chmod(0o755)
    shutil.rmtree(project.build)
    assert "found=0 component=FALSE" in project.configure(f"-DCMAKE_C_COMPILER={compiler}")


# --- installing, linking ----------------------------------------------------------------------------------------

LIBRARY = """
add_library(parts STATIC one.c)
target_usdt_providers(parts probes)
install(TARGETS parts EXPORT parts ARCHIVE DESTINATION lib)
install(EXPORT parts FILE PartsConfig.cmake NAMESPACE parts:: DESTINATION lib/cmake/Parts)
"""
CONSUMER = """
cmake_minimum_required(VERSION 3.16...4.0)
project(consumer LANGUAGES C)
find_package(Parts REQUIRED)
add_executable(program main.c)
target_link_libraries(program PRIVATE parts::parts)
install(TARGETS program DESTINATION bin)
"""


def test_installed_library_brings_its_probes_to_projects_that_know_nothing_of_us(
    parts: Any, make_project: Any, notes: Notes, run: Any, tmp_path: Path
) -> None:
    library = parts(LIBRARY, "one")
    library.built()
    run(library.cmake, "--install", library.build, "--prefix", tmp_path / "prefix")
    assert "USDT" not in (tmp_path / "prefix/lib/cmake/Parts/PartsConfig.cmake").read_text().upper()

    consumer = make_project(tmp_path / "consumer")
    consumer.source.mkdir()
    consumer.write(CMakeLists__txt=CONSUMER)
    shutil.copy(library.source / "main.c", consumer.source)
    consumer.built(f"-DCMAKE_PREFIX_PATH={tmp_path / 'prefix'}", find=False)
    run(consumer.cmake, "--install", consumer.build, "--prefix", tmp_path / "out", "--strip")
    program = tmp_path / "out/bin/program"
    run(program, code=1)
    assert notes(program) == {"app:go": 1}
