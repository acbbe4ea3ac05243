"""Every linker in every mode: each record names a probe's NOP, nothing is missing, nothing is added.

The samples are a C and a C++ program of two objects each, one compiled with -O0 and one with -O2, which share inline
functions and templates. The whole matrix is slow; the default run takes each linker in each mode, plainly and with
--gc-sections.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import pytest

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
    "strict": ("-Wl,-z,now,-z,relro,-z,text,-z,separate-code",),
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
    "gold": {"static-pie"},  # "--no-dynamic-linker: unknown option"
}


class Sample(NamedTuple):
    """The objects of one sample, as the compiler wrote them and instrumented, and the program around them."""

    plain: list[Path]
    instrumented: list[Path]
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
            host = session_bench.compile("gcc", check.samples / "host.c", "-O1", position)
            made[key] = Sample(plain, instrumented, session_bench.stubs(plain), host, driver)
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
    folded = any("--icf" in flag for flag in flags)
    for compiler, language in DRIVERS:
        made = sample(compiler, language, MODES[mode][0])
        program = link(bench, made, made.instrumented, mode, linker, *flags)
        reference_flags = tuple(flag.replace("--icf=all", "--icf=none").replace("--icf=safe", "--icf=none") for flag in flags)
        reference = link(bench, made, [*made.plain, made.stubs], mode, linker, *reference_flags)
        in_stubs = check.records(check.binary(program), check.binary(reference), folded=folded)
        assert sorted(record.probe for record in in_stubs) == [{"c": "rare", "c++": "shape"}[language]]
        if not folded:
            check.nothing_added(check.binary(program), check.binary(reference))
        assert host(program, mode) == host(reference, mode)


@pytest.mark.parametrize(("linker", "mode", "name"), matrix(["plain", "gc"]))
def test_records_are_the_calls(
    session_bench: Any, check: Any, sample: Any, host: Any, need: Any, linker: str, mode: str, name: str
) -> None:
    need(f"ld.{linker}")
    compare(session_bench, check, sample, host, linker, mode, OPTIONS[name])
