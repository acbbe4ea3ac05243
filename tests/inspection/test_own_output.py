"""What usdtbuild makes, from the provider file to the linked program, shows itself fully and is found sound."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from usdtbuild.formats import usdt_note

APP_D = """
provider app {
    probe request__start(int fd, char *path, uint64_t size);
    probe request__done(int8_t a, uint16_t b, long c, double d, unsigned e, short f, int seventh, char *eighth);
    probe idle();
    probe never__called(int x);
};
"""
MAIN_C = r"""
#include "app.h"
#include <stdio.h>
int last(int fd) { APP_REQUEST_START(fd, "tail", 1); return 0; }
__attribute__((noinline)) void go(int fd)
{
    if (APP_IDLE_ENABLED())
        APP_IDLE();
    APP_REQUEST_START(fd, "call", 2);
    APP_REQUEST_DONE(-1, 2, -3, 4.5, 5, -6, 7, "eight");
}
__attribute__((noinline)) void tail(int fd) { APP_REQUEST_START(fd, "tail", 3); }
int main(int argc, char **argv) { (void)argv; go(argc); tail(argc); return last(argc); }
"""
LINKERS = ("bfd", "gold", "lld", "mold")
# What perf alone minds in files that lld and mold lay out.
PERF_ONLY = {"perf-offset", "build-id"}


@pytest.fixture(scope="session")
def app(tmp_path_factory: pytest.TempPathFactory, run: Any, usdtbuild: Any, header_of: Any) -> Callable[..., Path]:
    """Compile with `usdtbuild cc`, and link: `app("gcc", "lld", "-O2")`."""
    made: dict[tuple[str, ...], Path] = {}

    def build(compiler: str, linker: str, *flags: str) -> Path:
        key = (compiler, linker, *flags)
        if key not in made:
            folder = tmp_path_factory.mktemp("app")
            header_of(folder, "app.d", APP_D, "--formats=dof")
            (folder / "main.c").write_text(MAIN_C)
            compile_flags = [flag for flag in flags if not flag.startswith("-Wl")]
            usdtbuild("cc", "--", compiler, *compile_flags, "-c", folder / "main.c", "-o", folder / "main.o")
            run(compiler, *flags, folder / "main.o", f"-fuse-ld={linker}", "-o", folder / "app")
            made[key] = folder / "app"
        return made[key]

    return build


def listed(usdtbuild: Any, path: Path) -> dict[str, Any]:
    (file,) = json.loads(usdtbuild("list", "--json", path).stdout)["files"]
    return file


def found(usdtbuild: Any, *arguments: Any) -> dict[str, str]:
    files = json.loads(usdtbuild("verify", "--json", *arguments, code=None).stdout)["files"]
    return {finding["check"]: finding["severity"] for file in files for finding in file["findings"]}


@pytest.mark.parametrize("optimise", ["-O0", "-O2"])
def test_every_argument_has_its_declared_type_and_name(optimise: str, cc: str, app: Any, usdtbuild: Any) -> None:
    file = listed(usdtbuild, app(cc, "bfd", optimise))
    probes = {probe["name"]: probe["sites"] for probe in file["probes"]}
    assert set(probes) == {"request__start", "request__done", "idle"}
    shown = [(a["type"], a["name"], a["size"], a["signed"]) for a in probes["request__done"][0]["arguments"]]
    assert shown == [
        ("int8_t", "a", 1, True), ("uint16_t", "b", 2, False), ("long", "c", 8, True), ("double", "d", 8, False),
        ("unsigned", "e", 4, False), ("short", "f", 2, True), ("int", "seventh", 4, True),
        ("char *", "eighth", 8, False),
    ]  # fmt: skip
    functions = [site["function"]["name"] for site in probes["request__start"]]
    assert {"go", "tail"} <= set(functions)
    (idle,) = probes["idle"]
    assert (idle["semaphore"]["section"], idle["semaphore"]["backed"]) == (".probes", True)
    declared = {probe["name"] for provider in file["providers"] for probe in provider["probes"]}
    assert declared == {*probes, "never__called"}


def test_the_object_shows_what_the_program_shows(cc: str, app: Any, usdtbuild: Any) -> None:
    program = app(cc, "bfd", "-O2")

    def summary(path: Path) -> list[tuple[str, str, str]]:
        probes = listed(usdtbuild, path)["probes"]
        return sorted((p["name"], s["function"]["name"], s["operands"]) for p in probes for s in p["sites"])

    assert summary(program.with_name("main.o")) == summary(program)


@pytest.mark.parametrize("flags", [(), ("-no-pie", "-fno-pie"), ("-Wl,--gc-sections", "-ffunction-sections")])
def test_programs_are_sound(flags: tuple[str, ...], linker: str, app: Any, usdtbuild: Any) -> None:
    path = app("gcc", linker, "-O2", *flags)
    expected = {"no-site": "note"}
    problems = found(usdtbuild, path)
    assert "error" not in problems.values(), problems
    assert set(problems) - PERF_ONLY - {"foreign-note"} == set(expected)
    if linker == "bfd":
        assert problems == expected


def test_objects_are_sound(cc: str, app: Any, usdtbuild: Any) -> None:
    for flags in (("-O2",), ("-O0", "-ffunction-sections"), ("-O2", "-fno-plt", "-fPIC")):
        assert found(usdtbuild, app(cc, "bfd", *flags).with_name("main.o")) == {}


def test_the_provider_file_agrees_but_for_what_is_never_called(cc: str, app: Any, usdtbuild: Any) -> None:
    path = app(cc, "bfd", "-O2")
    provider = path.with_name("app.d")
    assert found(usdtbuild, "--provider", provider, path) == {"no-site": "error"}
    trimmed = path.with_name("trimmed.d")
    trimmed.write_text(APP_D.replace("    probe never__called(int x);\n", ""))
    assert "declared-type" not in found(usdtbuild, "--provider", trimmed, path)
    changed = path.with_name("changed.d")
    changed.write_text(APP_D.replace("int fd", "long fd"))
    assert found(usdtbuild, "--provider", changed, path)["declared-type"] == "error"


def test_an_object_that_missed_its_step_is_found(app: Any, usdtbuild: Any, run: Any) -> None:
    folder = app("gcc", "bfd", "-O2").parent
    run("gcc", "-O2", "-c", folder / "main.c", "-o", folder / "raw.o")
    assert found(usdtbuild, folder / "raw.o") == {"not-processed": "error"}


def test_stripping_costs_function_names_and_nothing_else(app: Any, usdtbuild: Any, run: Any, tmp_path: Path) -> None:
    path = app("gcc", "bfd", "-O2")
    run("strip", "-s", path, "-o", tmp_path / "stripped")
    before, after = listed(usdtbuild, path), listed(usdtbuild, tmp_path / "stripped")
    for file in (before, after):
        for site in (site for probe in file["probes"] for site in probe["sites"]):
            del site["function"]
    assert after["probes"] == before["probes"]
    assert after["providers"] == before["providers"]
    assert found(usdtbuild, tmp_path / "stripped") == {"no-site": "note"}


# -- other formats -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("system", ["freebsd", "illumos"])
def test_dof_and_notes_of_one_build_show_the_same_sites(system: str, app: Any, usdtbuild: Any, run: Any) -> None:
    folder = app("gcc", "bfd", "-O2").parent
    raw, made, linked = (folder / f"{system}{suffix}" for suffix in (".raw.o", ".o", ""))
    run("gcc", "-O2", "-c", folder / "main.c", "-o", raw)
    usdtbuild("instrument", raw, "-o", made, "--formats", "stapsdt,dof", "--target-os", system)
    run("gcc", "-no-pie", made, "-o", linked)
    for path in (made, linked):
        shown: dict[str, set[tuple[str, str, str]]] = {"stapsdt": set(), "dof": set()}
        for probe in listed(usdtbuild, path)["probes"]:
            for site in probe["sites"]:
                place = site["address"] or f"{site['section']}+{site['offset']}"
                function = site["function"]["name"]
                shown[probe["format"]].add((probe["name"].replace("__", "-"), place, function))
        assert shown["dof"] == shown["stapsdt"]
        assert len(shown["dof"]) >= 5
    types = {probe["name"]: [a["type"] for a in probe["sites"][0]["arguments"]]
             for probe in listed(usdtbuild, linked)["probes"] if probe["format"] == "dof"}  # fmt: skip
    assert types["request-start"] == ["int", "char *", "uint64_t"]
    assert "error" not in found(usdtbuild, linked).values()


def test_is_enabled_sites_of_dof_are_marked(app: Any, usdtbuild: Any, run: Any) -> None:
    folder = app("gcc", "bfd", "-O2").parent
    raw, made = folder / "called.raw.o", folder / "called.o"
    run("gcc", "-O2", "-DUSDT_ENABLED_BY_CALL", "-c", folder / "main.c", "-o", raw)
    usdtbuild("instrument", raw, "-o", made, "--formats", "dof", "--target-os", "freebsd")
    (idle,) = [probe for probe in listed(usdtbuild, made)["probes"] if probe["name"] == "idle"]
    assert sorted(site["is_enabled"] for site in idle["sites"]) == [False, True]
    assert re.search(r"app:idle \(dof, is-enabled\) +1/2 ", usdtbuild("list", made).stdout)
    assert found(usdtbuild, made) == {}


def test_a_question_has_none_of_the_declared_arguments(app: Any, usdtbuild: Any, compiled: Any) -> None:
    folder = app("gcc", "bfd", "-O2").parent
    source = '#include "app.h"\nint ask(void) { return APP_REQUEST_START_ENABLED() || APP_REQUEST_DONE_ENABLED(); }\n'
    compiled(folder, "ask.c", source, "-O2", "-DUSDT_ENABLED_BY_CALL", "-c", to="ask.raw.o")
    usdtbuild("instrument", "ask.raw.o", "-o", "ask.o", "--formats", "dof", "--target-os", "freebsd", cwd=folder)
    asked = {probe["name"] for probe in listed(usdtbuild, folder / "ask.o")["probes"]}
    assert asked == {"request-start", "request-done"}
    assert found(usdtbuild, folder / "ask.o") == {}


# target -> which arguments of request__done and request__start are seen by half: those in two registers.
HALVES = {
    "armv7-linux-gnueabihf": ["argument 2 (uint64_t size)"], "mipsel-linux-gnu": ["argument 2 (uint64_t size)"],
    "powerpc-linux-gnu": ["argument 2 (uint64_t size)", "argument 3 (double d)"],
    "i386-linux-gnu": [], "aarch64-linux-gnu": [],
}  # fmt: skip


@pytest.mark.parametrize("target", HALVES)
def test_arguments_that_are_seen_by_half_are_named(
    target: str, app: Any, usdtbuild: Any, need: Any, tmp_path: Path
) -> None:
    shutil.copy(app("gcc", "bfd", "-O2").with_name("app.h"), tmp_path)
    (tmp_path / "main.c").write_text(MAIN_C.replace("#include <stdio.h>", ""))
    clang = (need("clang"), f"--target={target}", "-ffreestanding", "-O2")
    usdtbuild("cc", "--", *clang, "-c", "main.c", "-o", "main.o", cwd=tmp_path)
    (file,) = json.loads(usdtbuild("verify", "--json", tmp_path / "main.o").stdout)["files"]
    assert {finding["check"] for finding in file["findings"]} == ({"half-argument"} if HALVES[target] else set())
    shown = [finding["what"] for finding in file["findings"]]
    assert len(shown) == len(HALVES[target])
    for what in HALVES[target]:
        assert any(what in text for text in shown), shown


def test_notes_for_oracle_are_shown(program: Any, usdtbuild: Any) -> None:
    site = usdt_note.SiteNote(0, 0, "pv", "ask", ("-4@%edi", "8@%rsi"))
    raw = [usdt_note.encode(one, little=True) for one in (site, site._replace(probe="asked", enabled=True))]
    section = '\n .pushsection .note.usdt,"","note"\n .balign 4\n'
    for content in raw:
        before, after = content[: usdt_note.PC_FIELD], content[usdt_note.PC_FIELD + 8 :]
        section += f" .byte {','.join(map(str, before))}\n .8byte .Lsite0\n .byte {','.join(map(str, after))}\n"
    for flags in ((), ("-c",)):
        path = program(section + " .popsection\n", flags=flags)
        probes = listed(usdtbuild, path)["probes"]
        assert [(probe["name"], probe["format"]) for probe in probes] == [("ask", "usdt"), ("asked", "usdt")]
        assert [probe["sites"][0]["is_enabled"] for probe in probes] == [False, True]
        assert {probe["sites"][0]["function"]["name"] for probe in probes} == {"main"}
        assert [argument["size"] for argument in probes[0]["sites"][0]["arguments"]] == [4, 8]


@pytest.mark.parametrize("section", [".SUNW_dof", ".note.usdt"])
def test_damaged_records_of_other_formats(section: str, program: Any, usdtbuild: Any) -> None:
    content = "0x7f,0x44,0x4f,0x46,2,1,2,2,8,8" if "dof" in section else "5,0,0,0,200,0,0,0,1,0,0,0"
    path = program(f'\n .section {section},"a"\n .byte {content}\n', flags=("-c",))
    assert f"section {section}: " in usdtbuild("list", path, code=1).stderr
    assert found(usdtbuild, path)["notes-damaged"] == "error"
