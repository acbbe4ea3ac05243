"""Values of `usdtbuild trace`'s options that make no sense are refused before anything is started."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from .conftest import built_with_probes


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--limit", "0"), "'--limit': 0 is not in the range x>=1"),
        (("--limit", "-3"), "'--limit': -3 is not in the range x>=1"),
        (("--duration", "-1"), "'--duration': -1 is not in the range 0<x<=1000000000"),
        (("--duration", "0"), "'--duration': 0 is not in the range 0<x<=1000000000"),
        (("--duration", "nan"), "'--duration': nan is not in the range 0<x<=1000000000"),
        (("--duration", "inf"), "'--duration': inf is not in the range 0<x<=1000000000"),
        (("--duration", "5x"), "'--duration': '5x' is no time; one is a number of seconds, or has a unit: 200ms"),
        (("--duration", "m"), "'--duration': 'm' is no time"),
        (("--duration", "1e9h"), "'--duration': 3.6e+12 is not in the range"),
        (("--quiet", "-v"), "--quiet and --verbose contradict each other"),
        (("--emulator", ""), "'--emulator': it is empty"),
        (("--remote", " "), "'--remote': it is empty"),
        (("--sysroot", ""), "'--sysroot': it is empty"),
        (("--filter", ""), "'--filter': it is empty"),
        (("--remote", "localhost:99999"), "'--remote': the port 99999 is not in the range 1<=x<=65535"),
        (("--remote", "[::1]:0"), "'--remote': the port 0 is not in the range 1<=x<=65535"),
        (("--", ""), "the command's name is empty"),
        (("--limit", "1", "--limit", "2"), "--limit is given 2 times, and can have one value only"),
        (("--sum", "a", "--sum", "b"), "--sum is given 2 times, and can have one value only"),
        *(
            ((f"{option}=",), f"'{option}': it is empty")
            for option in ("--graph", "--histogram", "--sum", "--key", "--diff", "--debuginfod", "--below", "--until")
        ),
        (("--output=",), "'--output': it is empty"),
        (("--lossless=",), "'--lossless': '' is no time"),
        (("--stack=",), "'--stack': '' is not"),
        (("--latency", "", "x"), "'--latency': it is empty"),
        (("--latency", "start", "-p", "1"), "'--latency': two names are needed, of the probes that begin and end"),
        (("--engine", "bpftrace", "--trap"), "the engine bpftrace sets no breakpoints for functions (--trap); "),
        (("--engine", "gdb", "--trap"), "the engine gdb sets no breakpoints for functions (--trap); "),
        (("--engine", "inside", "--trap"), "the engine inside sets no breakpoints for functions (--trap); "),
        (("-p", "1"), "both a process (-p 1) and a command ("),
    ],
)
def test_values_out_of_range(usdtbuild: Any, words: tuple[str, ...], said: str) -> None:
    done = usdtbuild("trace", *words, "--", sys.executable, "-c", "print('started')", code=2)
    assert said in done.stderr
    assert "started" not in done.stdout


@pytest.mark.parametrize(
    "option", ["--filter", "--remote", "--emulator", "--sysroot", "--sum", "--histogram", "--output"]
)
def test_value_that_is_missing_before_the_command(usdtbuild: Any, option: str) -> None:
    done = usdtbuild("trace", option, "--", sys.executable, "-c", "print('started')", code=2)
    assert f"{option}': its value is missing: '--', which stands there, begins the command" in done.stderr
    assert "started" not in done.stdout


@pytest.mark.parametrize(
    ("more", "rounds", "code", "said"),
    [
        ((), 3, 0, ""),
        (("--filter", "f > 5"), 3, 4, "usdtbuild: nothing was hit (--require-hits)"),
        (("-P", "scene:none"), 3, 1, "usdtbuild: nothing has matched -P scene:none"),
    ],
)
def test_a_script_can_require_hits(
    scene: Any, usdtbuild: Any, more: tuple[str, ...], rounds: int, code: int, said: str
) -> None:
    words = "trace", "--count", "--require-hits", "-P", "scene:ints", *more
    done = usdtbuild(*words, "--", scene("pie"), rounds, 1, code=code)
    assert said in done.stderr
    quiet = usdtbuild(*words, "-q", "--", scene("pie"), rounds, 1, code=code)
    assert quiet.stdout == done.stdout
    assert quiet.stderr == (f"{said}\n" if said else "")


def test_required_hits_of_a_place_that_is_not_traced(usdtbuild: Any, run: Any, tmp_path: Path) -> None:
    """The first of two probes side by side has no room for a jump."""
    provider = "provider two { probe one(int i); probe other(int i); };\n"
    source = '#include "two.h"\nint main(int n, char **v) { (void)v; TWO_ONE(n); TWO_OTHER(n); return 0; }\n'
    program = built_with_probes(run, tmp_path, "two", provider, source)
    words = "trace", "--count", "-q", "--require-hits", "-P", "two:*"
    assert usdtbuild(*words, "--", program).stderr == ""
    done = usdtbuild(*words, "--engine", "patch", "--", program, code=4)
    missing = "hits may be missing: not all places of two:one were traced"
    assert done.stderr == f"usdtbuild: {missing} (--require-hits)\n"
    assert usdtbuild(*words, "--engine", "patch", "-x", "two:one", "--", program).stdout == "1  two:other\n"


def test_a_duration_has_a_unit(usdtbuild: Any) -> None:
    done = usdtbuild("trace", "--count", "--duration", "200ms", "--", "sleep", "2")
    assert "runs on, and isn't traced any more" in done.stderr
