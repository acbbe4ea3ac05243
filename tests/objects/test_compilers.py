"""What compilers do to functions: every optimisation level, clones, cold parts, sections for blocks, instrumentation.

Each row compiles both objects of a sample with the same options, instruments them, and compares records and output
with the same program without probes.
"""

from __future__ import annotations

import re
from typing import Any

import pytest

DRIVERS = {("gcc", "c"): "gcc", ("gcc", "c++"): "g++", ("clang", "c"): "clang", ("clang", "c++"): "clang++"}
SOURCES = {"c": ("first.c", "second.c"), "c++": ("first.cpp", "second.cpp")}
LEVELS = ("-O0", "-O1", "-O2", "-O3", "-Os", "-Og", "-Ofast")
GCC_ONLY = {
    "every clone": "-O3 -fipa-cp-clone -fipa-sra -fno-inline-small-functions",
    "partial inlining": "-O2 -fpartial-inlining --param=partial-inlining-entry-probability=99",
    "split cold code": "-O2 -freorder-blocks-and-partition -fno-guess-branch-probability",
    "whole program": "-O2 -fno-toplevel-reorder",
    "no PLT": "-O2 -fno-plt -fPIC",
    "sections for all": "-O2 -ffunction-sections -fdata-sections -fno-merge-constants",
    "profiled": "-O1 -pg",
    "coverage": "-O0 --coverage",
    "address sanitizer": "-O1 -fsanitize=address,undefined",
    "thread sanitizer": "-O1 -fsanitize=thread",
    "branch protection": "-O2 -fcf-protection=full",
    "stack protector": "-O2 -fstack-protector-all -fstack-clash-protection",
    "split debug information": "-O2 -gsplit-dwarf",
    "compressed debug information": "-O2 -g3 -gz",
    "no unwind tables": "-O2 -fno-asynchronous-unwind-tables",
    "old debug information": "-Og -gdwarf-2",
    "small code": "-Os -fno-function-cse -falign-functions=1 -freorder-functions",
    "native": "-O3 -march=x86-64-v3",
    "retpolines": "-O2 -mindirect-branch=thunk -mfunction-return=thunk",
    "frame pointers": "-O2 -fno-omit-frame-pointer -mno-red-zone",
    "instrumented functions": "-O1 -finstrument-functions",
}
CLANG_ONLY = {
    "smallest": "-Oz",
    "sections for blocks": "-O2 -fbasic-block-sections=all",
    "sections with one name": "-O2 -ffunction-sections -fno-unique-section-names",
    "sections for blocks with one name": "-O2 -fbasic-block-sections=all -fno-unique-section-names",
    "block addresses": "-O2 -fbasic-block-sections=labels",
    "address significance": "-O2 -faddrsig -ffunction-sections",
    "outlined": "-Oz -moutline",
    "retpolines": "-O2 -mretpoline -fno-plt",
    "branch protection": "-O2 -fcf-protection=full",
    "hot patching": "-O2 -fpatchable-function-entry=16,8",
    "foreign assembler": "-O2 -fno-integrated-as",
    "debug information": "-O2 -g -gz=zlib",
    "split cold code": "-O2 -mllvm -hot-cold-split=true",
    "hidden": "-O2 -fvisibility=hidden -fPIC",
}
ESSENTIAL = {"every clone", "split cold code", "sections for blocks", "sections with one name", "address sanitizer"}
# Not here: clang's sanitizers and profiles, whose runtime library distributions package apart, and gcc's
# -fpatchable-function-entry, which by itself can't link a C++ function that two objects share.


def rows() -> list[Any]:
    found = []
    for compiler, options in (("gcc", GCC_ONLY), ("clang", CLANG_ONLY)):
        for level in LEVELS:
            marks = [] if level in ("-O1", "-Os") else [pytest.mark.slow]
            found.append(pytest.param(compiler, level, id=f"{compiler}-{level[1:]}", marks=marks))
        for name, flags in options.items():
            marks = [] if name in ESSENTIAL else [pytest.mark.slow]
            found.append(pytest.param(compiler, flags, id=f"{compiler}-{name}", marks=marks))
    return found


@pytest.mark.parametrize(("compiler", "flags"), rows())
def test_programs_compute_the_same_and_have_a_record_for_every_call(
    session_bench: Any, check: Any, need: Any, compiler: str, flags: str
) -> None:
    need(compiler)
    for language, sources in SOURCES.items():
        compare(session_bench, check, DRIVERS[compiler, language], [check.samples / s for s in sources], flags.split())


def compare(bench: Any, check: Any, driver: str, sources: list[Any], flags: list[str]) -> None:
    plain = [bench.compile(driver, source, *flags) for source in sources]
    made = [bench.instrument(path) for path in plain]
    host = bench.compile("gcc", check.samples / "host.c", "-O1")
    linking = [flag for flag in flags if re.match("-fsanitize|--coverage|-pg|-fprofile|-O|-g", flag)]
    program = bench.link(*linking, host, *made, driver=driver)
    reference = bench.link(*linking, host, *plain, bench.stubs(plain), driver=driver)
    check.records(check.binary(program), check.binary(reference))
    assert bench.output(program) == bench.output(reference)
