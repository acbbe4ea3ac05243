"""`usdtbuild flags --patchable`: the right option for compiler and machine, or a refusal that says why."""

from __future__ import annotations

import json
import re
import stat
from typing import Any

import pytest


def test_the_machines_usual_pair_is_printed_alone(usdtbuild: Any, cc: str) -> None:
    done = usdtbuild("flags", "--patchable", "--compiler", cc)
    assert done.stdout == "-fpatchable-function-entry=7,5\n"
    assert done.stderr == ""


def test_a_pair_that_fits_is_taken(usdtbuild: Any, cc: str) -> None:
    done = usdtbuild("flags", "--patchable", "8,6", "--compiler", cc, "--", "-O2", "-fcf-protection=none")
    assert done.stdout == "-fpatchable-function-entry=8,6\n"
    done = usdtbuild("flags", "--patchable=7,5", "--compiler", cc, "--", "-fcf-protection", "-ffunction-sections")
    assert done.stdout == "-fpatchable-function-entry=7,5\n"


def test_the_compiler_comes_from_the_environment(usdtbuild: Any, cc: str, monkeypatch: Any) -> None:
    monkeypatch.setenv("CC", cc)
    found = json.loads(usdtbuild("flags", "--patchable", "--json").stdout)
    assert found == {
        "format": "usdtbuild-flags",
        "version": 1,
        "flags": ["-fpatchable-function-entry=7,5"],
        "machine": "x86-64",
        "pair": [7, 5],
        "warnings": [],
        "probe_ran": True,
    }


@pytest.mark.parametrize(
    ("pair", "options", "words"),
    [
        ("7,5", ["-pg"], "-pg and -fpatchable-function-entry=7,5 can't go together"),
        ("7,5", ["-O2", "-pg", "-mfentry"], "-pg and"),
        ("7,5", ["-mfentry"], "-mfentry and"),
        ("7,5", ["-fpatchable-function-entry=2,0"], "the options already have -fpatchable-function-entry=2,0"),
        ("5,0", [], "too small: 0 bytes of padding"),
        ("2", [], "x86-64 needs five bytes of padding for jmp rel32, two at the entry"),
        ("6,5", [], "5 bytes of padding and 1 at the entry are too little"),
        ("8,6", ["-fcf-protection"], "would be f4, hlt"),
        ("8,6", ["-fcf-protection=branch"], "would be f4, hlt"),
        ("12,10", ["-fcf-protection=none"], "would be f4, hlt"),
        ("16,14", [], "would be f0, a lock prefix"),
        ("200,190", [], "can't be patched safely"),
    ],
)
def test_what_cannot_work_is_refused_with_the_reason(
    usdtbuild: Any, cc: str, pair: str, options: list[str], words: str
) -> None:
    done = usdtbuild("flags", "--patchable", pair, "--compiler", cc, "--", *options, code=1)
    assert words in done.stderr
    assert done.stderr.count("\n") == 1
    assert done.stdout == ""


@pytest.mark.parametrize("pair", ["x", "7,", "5,7", "7;5", "1.5,1", "70000,5"])
def test_pairs_that_are_none_are_usage_errors(usdtbuild: Any, pair: str) -> None:
    done = usdtbuild("flags", f"--patchable={pair}", code=2)
    assert "--patchable" in done.stderr
    assert done.stdout == ""


def test_nothing_asked_is_a_usage_error(usdtbuild: Any) -> None:
    assert "say which options" in usdtbuild("flags", code=2).stderr


def test_compilers_that_are_not_there_are_an_error(usdtbuild: Any) -> None:
    done = usdtbuild("flags", "--patchable", "--compiler", "no-such-compiler", code=1)
    assert "no-such-compiler can't be run" in done.stderr


@pytest.fixture
def wrong_compiler(tmp_path: Any, need: Any) -> Any:
    """Make a compiler that does what gcc does, but for what the shell text `change` does to its arguments."""

    def make(change: str) -> str:
        path = tmp_path / "wrong-gcc"
        path.write_text(f'#!/bin/bash\n{change}\nexec {need("gcc")} "$@"\n')
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        return str(path)

    return make


WRONG = {  # what a compiler does, and what is said of it
    "ignores the option": (
        'set -- "${@/-fpatchable-function-entry=*/-O1}"',
        "miscompiles -fpatchable-function-entry=7,5 on x86-64: usdtbuild_leaf.*no table of patchable entries",
    ),
    "makes other entries": (
        'set -- "${@/-fpatchable-function-entry=*/-fpatchable-function-entry=7,4}"', "4 bytes of padding",
    ),
    # Right entries and a wrong program: on ppc64le, gcc before 13 lets functions read globals at a wrong address.
    "has a program that fails": (
        'for a; do case $a in *.c) sed -i "s/usdtbuild_seven = 7/usdtbuild_seven = 8/" "$a";; esac; done',
        "a program built with it ended with 2, not 0",
    ),
    "rejects the option": (
        'for a; do case $a in -fpatch*) echo "wrong-gcc: error: no such option" >&2; exit 1;; esac; done',
        "does not take -fpatchable-function-entry=7,5 for x86-64: wrong-gcc: error: no such option",
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", WRONG)
def test_a_wrong_compiler_is_refused(what: str, usdtbuild: Any, wrong_compiler: Any) -> None:
    change, said = WRONG[what]
    done = usdtbuild("flags", "--patchable", "--compiler", wrong_compiler(change), code=1)
    assert re.search(said, done.stderr, re.DOTALL)


def test_the_cxx_flaw_of_gcc_is_warned_of_if_it_is_there(usdtbuild: Any, cxx: str, run: Any, tmp_path: Any) -> None:
    source, built = tmp_path / "a.cc", tmp_path / "a.o"
    source.write_text("inline int f(int x) { return x; }\nint (*keep)(int) = f;\nint g() { return keep(1); }\n")
    run(cxx, "-O2", "-fpatchable-function-entry=7,5", "-c", source, "-o", built)
    flawed = "__patchable_function_entries" not in run("readelf", "-gW", built).stdout
    done = usdtbuild("flags", "--patchable", "--compiler", cxx)
    assert done.stdout == "-fpatchable-function-entry=7,5\n"
    assert ("outside their COMDAT groups" in done.stderr) == flawed
    words = ("flags", "--patchable", "--patchable-table")
    assert ("outside their COMDAT groups" in usdtbuild(*words, "absolute", "--compiler", cxx).stderr) == flawed
    assert usdtbuild(*words, "relative", "--compiler", cxx).stderr == ""  # which is its cure
    hook = ("hook", "--into", tmp_path / "hook", "--patchable", "7,5", "--patchable-table")
    assert ("outside their COMDAT groups" in usdtbuild(*hook, "absolute", "--", cxx).stderr) == flawed
    assert usdtbuild(*hook, "relative", "--", cxx).stderr == ""
    # The compiler's name doesn't matter, the language does.
    plain = cxx.replace("clang++", "clang").replace("g++", "gcc")
    done = usdtbuild("flags", "--patchable", "--compiler", plain, "--language", "c++", "--", "-lstdc++")
    assert ("outside their COMDAT groups" in done.stderr) == flawed


def test_without_a_probe_nothing_is_compiled(usdtbuild: Any, wrong_compiler: Any) -> None:
    compiler = wrong_compiler('for a; do [ "$a" = -c ] && exit 1; done')
    done = usdtbuild("flags", "--patchable", "--no-probe", "--compiler", compiler)
    assert done.stdout == "-fpatchable-function-entry=7,5\n"
    usdtbuild("flags", "--patchable", "--compiler", compiler, code=1)


def test_a_launcher_before_the_compiler_is_run_too(usdtbuild: Any, need: Any) -> None:
    done = usdtbuild("flags", "--patchable", "--compiler", f"env USDTBUILD_X=1 {need('gcc')}")
    assert done.stdout == "-fpatchable-function-entry=7,5\n"


def test_the_options_of_the_project_decide_the_machine(usdtbuild: Any, need: Any) -> None:
    done = usdtbuild("flags", "--patchable", "--json", "--compiler", need("clang"), "--", "-m32", "-o", "x", "-c")
    assert json.loads(done.stdout)["machine"] == "i386"
