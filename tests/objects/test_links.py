"""Every linker in every mode: each record names a probe's NOP, nothing is missing, nothing is added.

The samples are a C and a C++ program of two objects each, one compiled with -O0 and one with -O2, which share inline
functions and templates. The whole matrix is slow; the default run takes each linker in each mode, plainly and with
--gc-sections in turns.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from usdtbuild.instrument.main import Options

MODES = {
    "no-pie": ("-fno-pie", ("-no-pie",)),
    "pie": ("-fPIE", ("-pie",)),
    "static": ("-fno-pie", ("-static",)),
    "static-pie": ("-fPIE", ("-static-pie",)),
    "shared": ("-fPIC", ("-shared",)),
}
LANGUAGES = {"c": ("first.c", "second.c"), "c++": ("first.cpp", "second.cpp")}
DRIVERS = {("gcc", "c"): "gcc", ("gcc", "c++"): "g++", ("clang", "c"): "clang", ("clang", "c++"): "clang++"}
OPTIONS = {
    "plain": (),
    "gc": ("-Wl,--gc-sections",),
    "strict": ("-Wl,-z,now,-z,relro,-z,text",),
    "separate-code": ("-Wl,-z,separate-code",),
    "no-separate-code": ("-Wl,-z,noseparate-code",),
    "icf-all": ("-Wl,--icf=all",),
    "icf-safe": ("-Wl,--icf=safe",),
    "icf-gc": ("-Wl,--icf=all,--gc-sections",),
    "emit-relocs": ("-Wl,--emit-relocs",),
    "emit-relocs-gc": ("-Wl,--emit-relocs,--gc-sections",),
    "build-id": ("-Wl,--build-id=sha1,--hash-style=gnu,-O1,--as-needed",),
}
# What a linker doesn't have at all.
LACKS = {
    "bfd": {"icf-all", "icf-safe", "icf-gc"},
    # "--no-dynamic-linker: unknown option"; "internal error in do_layout", with and without probes
    "gold": {"static-pie", "separate-code", "no-separate-code", "emit-relocs-gc"},
    # mold 1.10 stops at an assertion on every C++ program with COMDAT groups, with and without probes
    "mold": {"emit-relocs", "emit-relocs-gc"},
}


class Sample(NamedTuple):
    """The objects of one sample, as the compiler wrote them and instrumented, and the program around them."""

    plain: list[Path]
    instrumented: list[Path]
    everything: list[Path]  # with the records of all formats; DOF as FreeBSD has it, which needs no dynamic relocation
    stubs: Path
    host: Path
    driver: str


@pytest.fixture(scope="session")
def sample(session_bench: Any, check: Any) -> Any:
    """Compile and instrument a sample, once for each kind of position independence: `sample("gcc", "c", "-fPIC")`."""
    made: dict[tuple[str, ...], Sample] = {}

    def make(compiler: str, language: str, position: str) -> Sample:
        key = (compiler, language, position)
        if key not in made:
            driver = DRIVERS[compiler, language]
            flags = (position, "-Wall", "-Wextra", "-Werror", "-ffunction-sections", "-fdata-sections")
            plain = [
                session_bench.compile(driver, check.samples / name, level, *flags)
                for name, level in zip(LANGUAGES[language], ("-O0", "-O2"))
            ]
            instrumented = [session_bench.instrument(path) for path in plain]
            options = Options(formats=check.formats, target_os="freebsd")
            everything = [session_bench.instrument(path, options) for path in plain]
            host = session_bench.compile("gcc", check.samples / "host.c", "-O1", position)
            made[key] = Sample(plain, instrumented, everything, session_bench.stubs(plain), host, driver)
        return made[key]

    return make


@pytest.fixture(scope="session")
def host(session_bench: Any, check: Any) -> Any:
    """Run what was linked: a program itself, a library under a program made for it."""

    def output(binary: Path, mode: str) -> str:
        if mode == "shared":
            binary = session_bench.link(check.samples / "host.c", binary)
        return session_bench.output(binary)

    return output


def link(bench: Any, sample: Sample, objects: list[Any], mode: str, linker: str, *flags: str) -> Path:
    around = [] if mode == "shared" else [sample.host]
    words = (f"-fuse-ld={linker}", "-Wl,--fatal-warnings", *MODES[mode][1], *around, *objects, *flags)
    return bench.link(*words, driver=sample.driver)


def matrix(names: list[str]) -> list[Any]:
    return [
        pytest.param(linker, mode, name, id=f"{linker}-{mode}-{name}")
        for linker in ("bfd", "gold", "lld", "mold")
        for mode in MODES
        for name in names
        if not {mode, name} & LACKS.get(linker, set())
    ]


def compare(bench: Any, check: Any, sample: Any, host: Any, linker: str, mode: str, flags: tuple[str, ...]) -> None:
    """Link every sample with and without probes, and compare records, what was added, and what the programs print."""
    for compiler, language in DRIVERS:
        made = sample(compiler, language, MODES[mode][0])
        reference_flags = [re.sub("--icf=[a-z]+", "--icf=none", flag) for flag in flags]
        plain = link(bench, made, [*made.plain, made.stubs], mode, linker, *reference_flags)
        reference, output = check.binary(plain), host(plain, mode)
        for objects, formats in ((made.instrumented, ("stapsdt",)), (made.everything, check.formats)):
            linked = link(bench, made, objects, mode, linker, *flags)
            program = check.binary(linked)
            compare_formats(check, program, reference, language, formats, folded=any("--icf" in flag for flag in flags))
            assert host(linked, mode) == output


def compare_formats(
    check: Any, program: Any, reference: Any, language: str, formats: tuple[str, ...], folded: bool
) -> None:
    for format_ in formats:
        in_stubs = check.records(program, reference, format_, folded=folded)
        assert sorted(record.probe for record in in_stubs) == [{"c": "rare", "c++": "shape"}[language]]
    if formats == check.formats:
        check.agreement(program)
    if not folded:
        check.nothing_added(program, reference)


def in_turns(rows: list[Any]) -> list[Any]:
    """Mark half of the rows as slow: every other one, of each linker and mode the one that the mode before hadn't."""
    modes = list(MODES)
    return [
        pytest.param(*row.values, id=row.id, marks=pytest.mark.slow)
        if (modes.index(row.values[1]) + (row.values[2] == "gc")) % 2
        else row
        for row in rows
    ]


@pytest.mark.parametrize(("linker", "mode", "name"), in_turns(matrix(["plain", "gc"])))
def test_records_are_the_calls(
    session_bench: Any, check: Any, sample: Any, host: Any, need: Any, linker: str, mode: str, name: str
) -> None:
    need(f"ld.{linker}")
    compare(session_bench, check, sample, host, linker, mode, OPTIONS[name])


@pytest.mark.slow
@pytest.mark.parametrize(("linker", "mode", "name"), matrix([name for name in OPTIONS if name not in ("plain", "gc")]))
def test_records_are_the_calls_under_every_option(
    session_bench: Any, check: Any, sample: Any, host: Any, need: Any, linker: str, mode: str, name: str
) -> None:
    need(f"ld.{linker}")
    compare(session_bench, check, sample, host, linker, mode, OPTIONS[name])


@pytest.mark.parametrize("mode", ["no-pie", "pie", "shared"])
@pytest.mark.parametrize("linker", ["bfd", "gold", "lld", "mold"])
def test_dof_of_absolute_addresses(
    session_bench: Any, check: Any, sample: Any, host: Any, need: Any, linker: str, mode: str
) -> None:
    """Oracle's flavour: nothing but a relative relocation for each address, in a section that the loader may write."""
    need(f"ld.{linker}")
    made = sample("gcc", "c++", MODES[mode][0])
    objects = [
        session_bench.instrument(path, Options(formats=check.formats, target_os="oracle")) for path in made.plain
    ]
    flags = ("-Wl,--gc-sections", "-Wl,-z,text,-z,relro,-z,now")
    linked, plain = (
        link(session_bench, made, each, mode, linker, *flags) for each in (objects, [*made.plain, made.stubs])
    )
    program, reference = check.binary(linked), check.binary(plain)
    for format_ in check.formats:
        check.records(program, reference, format_)
    check.agreement(program)
    added = program.dynamic_relocations - reference.dynamic_relocations
    assert set(added) <= {(8, "")}  # R_X86_64_RELATIVE
    places = {(record.function, record.probe) for record in program.records("dof")}
    assert bool(added) == (mode != "no-pie")
    assert added[8, ""] in ({0} if mode == "no-pie" else range(len(places), 2 * len(places)))
    assert program.section_flags[".SUNW_dof"] == 3
    assert host(linked, mode) == host(plain, mode)


# --- objects on their way to the link -------------------------------------------------------------------------

# name -> command that turns all objects into what is linked, and the words that link it. The relocatable output of the
# other linkers is no better without probes: mold 1.10 writes COMDAT groups that nothing can read, gold's C++ programs
# crash when they throw (see docs/linkers.md).
WAYS = {
    "bfd-r": (["ld.bfd", "-r", "{objects}", "-o", "{out}.o"], ("{out}.o",)),
    "lld-r": (["ld.lld", "-r", "{objects}", "-o", "{out}.o"], ("{out}.o",)),
    "archive": (["ar", "rcs", "{out}.a", "{objects}"], ("{out}.a",)),
    "thin-archive": (["ar", "rcsT", "{out}.a", "{objects}"], ("{out}.a",)),
    "whole-archive": (
        ["ar", "rcs", "{out}.a", "{objects}"],
        ("-Wl,--whole-archive", "{out}.a", "-Wl,--no-whole-archive"),
    ),
}
EACH = {
    "objcopy": ["objcopy", "{object}", "{out}.o"],
    "llvm-objcopy": ["llvm-objcopy", "{object}", "{out}.o"],
    "strip-debug": ["strip", "-g", "{object}", "-o", "{out}.o"],
    "llvm-strip-debug": ["llvm-strip", "-g", "{object}", "-o", "{out}.o"],
    "strip-unneeded": ["strip", "--strip-unneeded", "{object}", "-o", "{out}.o"],
    "llvm-strip-unneeded": ["llvm-strip", "--strip-unneeded", "{object}", "-o", "{out}.o"],
    "eu-strip-debug": ["eu-strip", "-g", "{object}", "-o", "{out}.o"],
}


def fill(words: Any, **values: Any) -> list[Any]:
    """Fill a command's place holders; `{objects}` becomes several words."""
    filled: list[Any] = []
    for word in words:
        filled += values["objects"] if word == "{objects}" else [word.format(**values)]
    return filled


def on_the_way(bench: Any, way: str, linker: str, objects: list[Path]) -> list[Any]:
    """Take objects the given way; return the words that link what came out."""
    if way in WAYS:
        command, linked = WAYS[way]
        values = {"objects": objects, "out": bench.fresh("way")}
        bench.run(*fill(command, **values))
        return fill(linked, **values)
    words = []
    for each in objects:
        out = bench.fresh("way")
        bench.run(*fill(EACH[way], object=each, out=out, objects=[]))
        words.append(f"{out}.o")
    return words


def ways() -> list[Any]:
    pairs = [(linker, way) for linker in ("bfd", "gold", "lld", "mold") for way in WAYS]
    pairs.remove(("gold", "lld-r"))  # "invalid section group 33 refers to earlier section 8", as with any group
    return [pytest.param(linker, way, id=f"{linker}-{way}") for linker, way in pairs]


@pytest.mark.parametrize(("linker", "way"), ways())
def test_records_survive_the_way_to_the_link(
    session_bench: Any, check: Any, sample: Any, host: Any, need: Any, linker: str, way: str
) -> None:
    need(f"ld.{linker}")
    compare_ways(session_bench, check, sample, host, linker, way)


@pytest.mark.parametrize("way", EACH)
def test_records_survive_tools_for_objects(
    session_bench: Any, check: Any, sample: Any, host: Any, need: Any, way: str
) -> None:
    need(EACH[way][0])
    compare_ways(session_bench, check, sample, host, "mold", way)


def compare_ways(bench: Any, check: Any, sample: Any, host: Any, linker: str, way: str) -> None:
    for index, (compiler, language) in enumerate(DRIVERS):
        mode = ("pie", "no-pie", "shared", "pie")[index]
        made = sample(compiler, language, MODES[mode][0])
        # The archive's members are pulled by the host program; a library has none, so it takes the whole archive.
        flags = ["-Wl,--gc-sections", *(["-Wl,-u,sample_run"] if mode == "shared" else [])]
        # The archives' and joined objects' records of all formats; tools for objects have but SDT notes to spoil.
        objects, formats = (made.everything, check.formats) if index % 2 else (made.instrumented, ("stapsdt",))
        program = link(bench, made, on_the_way(bench, way, linker, objects), mode, linker, *flags)
        plain = on_the_way(bench, way, linker, made.plain)
        reference = link(bench, made, [*plain, made.stubs], mode, linker, *flags)
        for format_ in formats:
            check.records(check.binary(program), check.binary(reference), format_)
        check.nothing_added(check.binary(program), check.binary(reference))
        assert host(program, mode) == host(reference, mode)


# --- finished programs ----------------------------------------------------------------------------------------

FINISHED = {
    "strip": ["strip", "-s", "{program}", "-o", "{out}"],
    "strip-debug": ["strip", "-g", "{program}", "-o", "{out}"],
    "objcopy": ["objcopy", "{program}", "{out}"],
    "llvm-objcopy": ["llvm-objcopy", "{program}", "{out}"],
    "llvm-strip-debug": ["llvm-strip", "-g", "{program}", "-o", "{out}"],
    "llvm-strip-unneeded": ["llvm-strip", "--strip-unneeded", "{program}", "-o", "{out}"],
    # Without --keep-section, --strip-all of LLVM's tools deletes every note (docs/linkers.md).
    "llvm-strip-keep": [
        "llvm-strip", "-s", "--keep-section=.note.stapsdt", "{program}", "-o", "{out}",
    ],
    "eu-strip": ["eu-strip", "{program}", "-o", "{out}"],
    "eu-strip-split": ["eu-strip", "{program}", "-o", "{out}", "-f", "{out}.debug"],
}  # fmt: skip


@pytest.fixture(scope="session")
def finished(session_bench: Any, sample: Any) -> Any:
    """A finished C++ program of a linker."""
    made: dict[str, Path] = {}

    def make(linker: str) -> Path:
        if linker not in made:
            parts = sample("gcc", "c++", "-fPIE")
            made[linker] = link(session_bench, parts, parts.instrumented, "pie", linker, "-Wl,--gc-sections")
        return made[linker]

    return make


@pytest.mark.parametrize("tool", FINISHED)
@pytest.mark.parametrize("linker", ["bfd", "gold", "lld", "mold"])
def test_records_survive_stripping(
    session_bench: Any, check: Any, finished: Any, need: Any, linker: str, tool: str
) -> None:
    need(f"ld.{linker}")
    need(FINISHED[tool][0])
    program, out = finished(linker), session_bench.fresh("stripped")
    session_bench.run(*(word.format(program=program, out=out) for word in FINISHED[tool]))
    records = check.binary(program).records()
    assert len(records) > 20
    assert check.binary(out).records() == records
    assert session_bench.output(out) == session_bench.output(program)


def test_records_survive_split_debug_information(session_bench: Any, check: Any, finished: Any) -> None:
    program = finished("bfd")
    debug, stripped = session_bench.fresh("program.debug"), session_bench.fresh("stripped")
    session_bench.run("objcopy", "--only-keep-debug", program, debug)
    session_bench.run("objcopy", "--strip-all", f"--add-gnu-debuglink={debug}", program, stripped)
    assert check.binary(stripped).records() == check.binary(program).records()
    assert session_bench.output(stripped) == session_bench.output(program)


def test_llvm_strip_all_deletes_every_record_and_nothing_else(session_bench: Any, check: Any, finished: Any) -> None:
    """What docs/linkers.md warns of; when this fails, LLVM has learnt to keep notes."""
    program, stripped = finished("lld"), session_bench.fresh("stripped")
    session_bench.run("llvm-strip", "-s", program, "-o", stripped)
    assert check.binary(stripped).records() == []
    assert session_bench.output(stripped) == session_bench.output(program)
