"""Functions whose entry and return are watched, left in every way there is, and switched by the thousand under load."""

from __future__ import annotations

import re
from typing import Any

import pytest

pytestmark = pytest.mark.usefixtures("native")

PATCHABLE = "-fpatchable-function-entry=7,5"
# case -> (enters, leaves, and their order where it is short); None: more than one order or number is right
CASES: dict[str, tuple[int | None, int | None, str]] = {
    "recursion": (11, 11, "+recurse" * 11 + "-recurse" * 11),
    "struct": (1, 1, "+struct-struct"),
    "double": (1, 1, "+double-double"),
    "long-double": (1, 1, "+long_double-long_double"),
    "wide": (1, 1, "+wide-wide"),
    "exception": (5, 1, "+catches+throws+throws+throws+throws-catches"),
    "many-exceptions": (None, None, ""),
    "longjmp": (None, None, ""),
    "many-longjmps": (None, None, ""),
    "tail": (3, 3, ""),
    "coroutine": (None, None, ""),
    "coroutine-moves": (None, None, ""),
    "signal": (2, 2, "+raises+in_handler-in_handler-raises"),
    "signal-stack": (2, 2, "+raises+in_handler-in_handler-raises"),
    "thread": (11001, 11001, ""),
    "thread-exit": (None, None, ""),
    "thread-cancel": (1, 0, "+cancelled"),
    "deep": (20001, 4080, ""),
    "after-deep": (11, 11, "+recurse" * 11 + "-recurse" * 11),
}


@pytest.mark.parametrize(("compiler", "cc"), [("g++", "gcc"), ("clang++", "clang")])
@pytest.mark.parametrize("level", ["-O0", "-O2"])
def test_frames_are_left_in_every_way(compiler: str, cc: str, level: str, build: Any, run: Any, need: Any) -> None:
    need(compiler)
    out = run(build("frames.cc", compiler, cc=cc, flags=(level, PATCHABLE))).stdout
    seen = {}
    for line in out.splitlines():
        match = re.match(r"(\S+) enters=(\d+) leaves=(\d+) (\w+) ?(.*)", line)
        if match:
            seen[match.group(1)] = (int(match.group(2)), int(match.group(3)), match.group(4), match.group(5))
    for case, (enters, leaves, trail) in CASES.items():
        got = seen[case]
        assert got[2] == "right", (case, got)
        assert enters in (None, got[0]), (case, got)
        assert leaves in (None, got[1]), (case, got)
        assert not trail or trail == got[3] or got[3] == "", (case, got)
    # What is left without a return is what was thrown or jumped over.
    assert seen["coroutine"][0] == seen["coroutine"][1]
    assert seen["many-exceptions"][1] == seen["many-longjmps"][1] == 6000
