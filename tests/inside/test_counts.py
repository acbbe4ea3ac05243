"""Counting without a locked addition loses no hit, whatever threads, signals, and children do."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.usefixtures("native")
ENTRIES = ("-O2", "-fpatchable-function-entry=7,5")
ROUNDS = {"threads": 30001, "children": 30001, "many": 1501}


def numbers(out: str) -> dict[str, int]:
    return {name: int(value) for name, value in re.findall(r"([a-z]+) (\d+)", out)}


def filtered() -> bool:
    """Whether these tests run under a seccomp filter, as in most containers."""
    return "Seccomp:\t0\n" not in Path("/proc/self/status").read_text()


@pytest.mark.parametrize("compiler", ["gcc", "clang"])
@pytest.mark.parametrize("case", list(ROUNDS))
def test_every_hit_is_counted(case: str, compiler: str, build: Any, run: Any, need: Any) -> None:
    need(compiler)
    found = numbers(run(build("counts.c", compiler, flags=ENTRIES), case, ROUNDS[case]).stdout)
    assert found["counted"] == found["entries"] == found["hits"] > 1000
    assert found["failed"] == 0
    assert (found["locked"] == 0) == (not filtered())
    assert found.get("grown", 0) < 200, "what 1,501 threads left behind isn't used again"


def test_under_a_seccomp_filter_additions_are_locked_and_that_is_said(build: Any, run: Any) -> None:
    """A thread's first hit must not make a system call there that the filter may forbid."""
    out = run(build("counts.c", flags=ENTRIES), "seccomp", 1001).stdout
    found = numbers(out)
    assert found["counted"] == found["entries"] == found["hits"]
    assert found["locked"] > 1
    assert "counted with locked additions: a seccomp filter is there" in out


def test_a_thread_that_switches_on_asks_the_system_for_nothing_when_it_hits(build: Any, run: Any) -> None:
    """A server switches its counts on, then confines itself: its first hit would end it."""
    found = numbers(run(build("counts.c", flags=ENTRIES), "later", 1001).stdout)
    assert found["counted"] == found["hits"] == 1001
