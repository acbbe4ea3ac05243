"""Whole programs with probes in their innermost loops, as branches and as calls: CPython, and snappy with ours.

`benchmarks/projects.py` builds them from the distribution's sources, and measures what they cost. Here is whether they
are right: they print the same, verify is content, and tracers see what the program says of itself.
"""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
pytestmark = [pytest.mark.project, pytest.mark.slow]
PYTHON = {
    "audit": 2, "function__entry": 3, "function__return": 3, "gc__done": 1, "gc__start": 1,
    "import__find__load__done": 2, "import__find__load__start": 1, "line": 3,
}  # fmt: skip
SNAPPY = {"literal": 1, "match": 2, "tag": 2}
COMPLETED = ["completed", "completed-calls"]


def build(run: Any, need: Any, folder: Path, project: str, package: str) -> Path:
    """Let the benchmark build a project's variants in a folder."""
    for program in ("cmake", "make", "gcc", "g++"):
        need(program)
    fetched = run(sys.executable, ROOT / "tools" / "sources.py", package, timeout=1500, code=None)
    if fetched.returncode:
        pytest.skip(fetched.stderr.strip())
    run(sys.executable, ROOT / "benchmarks" / "projects.py", project, "--build", folder, timeout=3600)
    return folder


@pytest.fixture(scope="module")
def snappy(run: Any, need: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(run, need, tmp_path_factory.mktemp("snappy"), "snappy", "snappy")


@pytest.fixture(scope="module")
def cpython(run: Any, need: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(run, need, tmp_path_factory.mktemp("cpython"), "python", "python3.11")


def check(usdtbuild: Any, binary: Path, provider: str, expected: dict[str, int]) -> None:
    """The file has these probes, each with so many arguments, and verify finds nothing wrong."""
    found = json.loads(usdtbuild("list", "--json", binary).stdout)["files"][0]["probes"]
    shown = {probe["name"]: {len(site["arguments"]) for site in probe["sites"]} for probe in found}
    assert shown == {name: {count} for name, count in expected.items()}
    assert {probe["provider"] for probe in found} == {provider}
    said = json.loads(usdtbuild("verify", "--json", binary).stdout)["files"][0]["findings"]
    assert [each for each in said if each["severity"] != "note"] == []


def counted(run: Any, program: Path, *words: Any, **more: Any) -> int:
    """How many instructions a command takes."""
    tool = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null"]
    return int(re.findall(r"Collected : (\d+)", run(*tool, program, *words, **more).stderr)[-1])


# --- snappy -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("variant", ["header", *COMPLETED])
def test_snappy_has_its_probes(snappy: Path, variant: str, usdtbuild: Any, run: Any) -> None:
    program = snappy / f"snappy-{variant}"
    check(usdtbuild, program, "codec", SNAPPY)
    assert run(program, 2).stdout == run(snappy / "snappy-none", 2).stdout


@pytest.mark.live
@pytest.mark.parametrize("variant", ["header", *COMPLETED])
def test_each_pass_of_snappys_loops_fires(snappy: Path, variant: str, trace: Any, run: Any) -> None:
    """Hits, and the sums of what the last argument was, are what the same code counts by itself."""
    sizes, numbers = run(snappy / "snappy-counted", 3).stdout.splitlines()
    program = snappy / f"snappy-{variant}"
    names = {"literal": "arg0", "match": "arg1", "tag": "arg1"}
    script = " ".join(
        f"usdt:{program}:codec:{name} {{ @{name}_hits = count(); @{name}_sum = sum({last}); }}"
        for name, last in names.items()
    )
    seen = dict(line.lstrip("@").split(": ") for line in trace(script, program, 3) if line.startswith("@"))
    assert [seen[f"{name}_{what}"] for name in names for what in ("hits", "sum")] == numbers.split()
    size = 3 * int(sizes.split()[0])  # each byte is part of a literal or of a match
    assert int(seen["literal_sum"]) + int(seen["match_sum"]) == size


def test_snappys_loops_take_more_instructions_with_calls(snappy: Path, need: Any, run: Any) -> None:
    """A branch costs its NOP and the moves of its arguments; a call also what the compiler saves for it."""
    need("valgrind")
    taken = {name: counted(run, snappy / f"snappy-{name}", 3) for name in ("none", "header", *COMPLETED)}
    numbers = [int(word) for word in run(snappy / "snappy-counted", 3).stdout.split()]
    hits = sum(numbers[2::2])
    # The site's two, two moves, and what these move away.
    assert taken["header"] - taken["none"] <= 6 * hits
    assert taken["completed"] - taken["none"] <= 6 * hits
    assert taken["completed-calls"] > taken["completed"]


# --- CPython ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def environment(cpython: Path) -> dict[str, str]:
    library = next(cpython.glob("Python-3*")) / "Lib"
    return {**os.environ, "PYTHONPATH": str(library), "PYTHONHASHSEED": "0", "PYTHONDONTWRITEBYTECODE": "1"}


@pytest.mark.parametrize("variant", [*COMPLETED, "dtrace-h", "dtrace-h-calls"])
def test_cpython_has_its_probes(
    cpython: Path, variant: str, usdtbuild: Any, run: Any, environment: dict[str, str]
) -> None:
    program, words = cpython / f"python-{variant}", ("-S", "-s", cpython / "work.py", 1)
    check(usdtbuild, program, "python", PYTHON)
    expected = run(cpython / "python-none", *words, env=environment).stdout
    assert run(program, *words, env=environment).stdout == expected


@pytest.mark.live
@pytest.mark.parametrize("variant", [*COMPLETED, "dtrace-h", "dtrace-h-calls"])
def test_each_call_of_a_python_function_fires(
    cpython: Path, variant: str, trace: Any, environment: dict[str, str]
) -> None:
    """This CPython shows entries only to those who look at lines, too (ceval.c, DO_TRACING)."""
    program = cpython / f"python-{variant}"
    script = f"""
        usdt:{program}:python:function__entry /str(arg1) == "fib"/ {{ @entries = count(); @lines = sum(arg2); }}
        usdt:{program}:python:line /str(arg1) == "fib"/ {{ @of_fib = count(); }}
        usdt:{program}:python:function__return /str(arg1) == "fib"/ {{ @returns = count(); }}
        usdt:{program}:python:import__find__load__start {{ printf("import %s\\n", str(arg0)); }}
    """
    seen = trace(script, program, "-S", "-s", cpython / "work.py", 1, env=environment)
    calls = 2 * 4181 - 1  # of fib(18): two for each of the sums that fib(19) = 4181 is made of, but for the first
    assert {f"@entries: {calls}", f"@returns: {calls}", f"@lines: {2 * calls}", "import encodings"} <= set(seen)


def test_cpython_behind_its_tests_takes_no_more_instructions_with_calls(
    cpython: Path, need: Any, run: Any, environment: dict[str, str]
) -> None:
    """All of its probes are behind is-enabled tests, which are the same; the classic header's become calls, too."""
    need("valgrind")
    words = ("-S", "-s", cpython / "work.py", 1)
    taken = {
        name: counted(run, cpython / f"python-{name}", *words, env=environment)
        for name in ("none", *COMPLETED, "dtrace-h", "dtrace-h-calls")
    }
    assert taken["none"] < taken["completed"] < taken["dtrace-h-calls"]
    assert taken["dtrace-h"] < taken["dtrace-h-calls"]
    # gcc 12: 9,355 of the 5.8 million that the tests take, and no more for a workload three times as long
    assert abs(taken["completed-calls"] - taken["completed"]) * 10 < taken["completed"] - taken["none"]
