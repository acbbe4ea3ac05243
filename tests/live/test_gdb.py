"""gdb sees the probes and reads all their arguments, as root and without root."""

from __future__ import annotations

import os
import re
from typing import Any

import pytest

from .conftest import SHAPES

pytestmark = pytest.mark.live("gdb")


def values(run: Any, gdb: str, tracee: Any, probe: str, count: int) -> tuple[int, list[int]]:
    """Run to the first hit of a probe; return gdb's argument count and the values."""
    prints = [word for i in range(count) for word in ("-ex", f"p (long)$_probe_arg{i}")]
    stop = ("-ex", "set breakpoint pending on", "-ex", f"break -probe-stap live:{probe}", "-ex", "run")
    done = run(
        gdb, "-nx", "-batch", *stop, "-ex", "p $_probe_argc", *prints, "--args", *tracee.command, cwd=tracee.folder,
        env={**os.environ, "LC_ALL": "C", "DEBUGINFOD_URLS": ""},
    )  # fmt: skip
    found = [int(value) for value in re.findall(r"^\$\d+ = (-?\d+)", done.stdout, re.MULTILINE)]
    assert found, done.stdout + done.stderr
    return found[0], found[1:]


@pytest.mark.parametrize("shape", [s for s in SHAPES if s != "dlopen"])
def test_twelve_arguments_with_stack_ones(gdb: str, build_tracee: Any, run: Any, shape: str) -> None:
    count, found = values(run, gdb, build_tracee(shape), "twelve", 12)
    assert count == 12
    assert found == [1, 2, 3, 4, 5, -6, -7, 60000, -9, -1099511627776, 11, -12]


def test_every_width_and_sign(gdb: str, build_tracee: Any, run: Any) -> None:
    count, found = values(run, gdb, build_tracee("pie"), "ints", 8)
    assert (count, found) == (8, [-1, 255, -300, 65535, -70000, 4000000000, -5000000000, -1])


def test_stack_arguments_of_a_tail_call(gdb: str, build_tracee: Any, run: Any) -> None:
    count, found = values(run, gdb, build_tracee("pie"), "tail__call", 8)
    assert (count, found[:7]) == (8, [1, 2, 3, 4, 5, 6, -7])


def test_guarded_probe_stops_because_gdb_sets_the_semaphore(gdb: str, build_tracee: Any, run: Any) -> None:
    assert values(run, gdb, build_tracee("pie"), "guarded", 1) == (1, [0])


@pytest.mark.parametrize("shape", SHAPES)
def test_info_probes_lists_them_all(gdb: str, build_tracee: Any, run: Any, shape: str) -> None:
    listed = run(gdb, "-nx", "-batch", "-ex", "info probes stap live", build_tracee(shape).binary).stdout
    rows = [line.split() for line in listed.splitlines() if line.startswith("stap ")]
    assert {row[2] for row in rows} == {"ints", "text", "twelve", "tail__call", "guarded", "real"}
    semaphores = {row[2] for row in rows if len(row) > 5 and row[4].startswith("0x")}
    assert semaphores == {"guarded"}
