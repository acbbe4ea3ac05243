"""Functions' arguments are those that gdb shows at a breakpoint on the same call, or `?`."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.skipif(os.uname().machine != "x86_64", reason="entries of x86-64")

SOURCE = Path(__file__).parent / "sources" / "arguments.cc"
FUNCTIONS = ("numbers", "floats", "texts", "structs", "many", "Basket::add")
TURNS = 3  # of main's loop


def value_of(text: str) -> Any:
    """Return what gdb prints of a number, character, text or enumerator, as a hit has it."""
    if text.startswith('"'):
        return text[1:-1]
    if text in {"true", "false"}:
        return text == "true"
    try:
        return float(text.split(" '", maxsplit=1)[0])
    except ValueError:
        return text


def gdb_s(text: str) -> dict[str, Any]:
    """Return the arguments and members of one `info args`; of pointers nothing."""
    found = {}
    for line in text.strip().splitlines():
        name, _, value = line.partition(" = ")
        if not value.startswith("{"):
            found[name] = value_of(value)
        for member, number in re.findall(r"(\w+) = ([^,}]+)", value) if value.startswith("{") else ():
            found[f"{name}.{member}"] = value_of(number)
    return {name: value for name, value in found.items() if value not in {"", "<optimized out>"}}


@pytest.mark.parametrize("level", ["-O0", "-O1", "-O2"])
@pytest.mark.parametrize("compiler", ["g++", "clang++"])
def test_arguments_are_what_gdb_says(
    compiler: str, level: str, run: Any, need: Any, usdtbuild: Any, tmp_path: Path
) -> None:
    gdb = need("gdb")
    for name, entries in (("arguments", "7,5"), ("plain", "0")):  # gdb takes an entry's NOPs for the whole prologue
        run(need(compiler), "-g", level, f"-fpatchable-function-entry={entries}", SOURCE, "-o", tmp_path / name)
    wanted = [word for name in FUNCTIONS for word in ("-F", name)]
    usdtbuild("trace", *wanted, "-o", tmp_path / "hits.jsonl", "--", tmp_path / "arguments")
    ours = [json.loads(line) for line in (tmp_path / "hits.jsonl").read_text().splitlines()]
    assert len(ours) == TURNS * len(FUNCTIONS)
    words = ["set print address off", *(f"break {name}" for name in FUNCTIONS), "run"]
    words += ["echo <<<\\n", "info args", "echo >>>\\n", "continue"] * len(ours)
    done = run(gdb, "-nx", "-batch", *(word for one in words for word in ("-ex", one)), tmp_path / "plain")
    theirs = re.findall(r"<<<\n(.*?)>>>\n", done.stdout, re.DOTALL)
    assert len(theirs) == len(ours)
    compared = 0
    for hit, text in zip(ours, theirs):
        shown = gdb_s(text)
        both = {name for name, value in hit["args"].items() if name in shown and not isinstance(value, dict)}
        assert {name: hit["args"][name] for name in both} == {name: shown[name] for name in both}, hit["probe"]
        compared += len(both)
    assert compared >= (20 if level == "-O2" else 24) * TURNS
