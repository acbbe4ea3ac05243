"""perf finds the probes through its build-id cache, records every hit, and shows the arguments."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from .conftest import ROUNDS

pytestmark = pytest.mark.live


@contextmanager
def cached(run: Any, perf: str, tracee: Any) -> Iterator[None]:
    """Add the binary to perf's cache, and afterwards take out what was added."""
    run(perf, "buildid-cache", "--add", tracee.binary)
    try:
        yield
    finally:
        run(perf, "buildid-cache", "--remove", tracee.binary)


@contextmanager
def event(run: Any, perf: str, name: str) -> Iterator[str]:
    """Define the uprobe events of one SDT probe, and remove them again; give the pattern that names them all."""
    pattern = f"{name}*"
    run(perf, "probe", "-q", f"sdt_{name}")
    try:
        yield f"sdt_{pattern}"
    finally:
        run(perf, "probe", "-q", "-d", f"sdt_{pattern}")


def record(run: Any, perf: str, tracee: Any, pattern: str) -> list[str]:
    """Record the program's hits; return perf script's lines."""
    run(perf, "record", "-q", "-o", "perf.data", "-e", pattern, *tracee.command, cwd=tracee.folder)
    lines = run(perf, "script", "-i", "perf.data", "-F", "event,trace", cwd=tracee.folder).stdout.splitlines()
    return [line.strip() for line in lines if line.strip()]


@pytest.mark.parametrize("shape", ["exe", "pie", "static-pie", "shared", "dlopen", "stripped"])
def test_record_sees_every_hit_with_arguments(perf: str, build_tracee: Any, run: Any, shape: str) -> None:
    tracee = build_tracee(shape)
    with cached(run, perf, tracee):
        listed = run(perf, "list", "sdt").stdout
        assert "sdt_live:twelve" in listed
        with event(run, perf, "live:twelve") as pattern:
            lines = record(run, perf, tracee, pattern)
    assert len(lines) == ROUNDS
    shown = dict(re.findall(r"arg(\d+)=(-?\d+)", lines[0]))
    assert shown["1"] == "1"
    assert shown["6"] == "-6"
    assert int(shown["7"]) % 256 == -7 % 256  # perf script 6.1 prints signed bytes as unsigned
    assert shown["8"] == "60000"
    assert shown["10"] == "-1099511627776"
    assert shown["12"] == "-12"


@pytest.mark.parametrize("shape", ["exe", "pie"])
@pytest.mark.parametrize("linker", ["gold", "lld", "mold"])
def test_hits_in_the_layout_that_each_linker_chooses(
    perf: str, build_tracee: Any, run: Any, need: Any, linker: str, shape: str
) -> None:
    """lld and mold put code and read-only data at different distances from their addresses; perf knows one distance."""
    need(f"ld.{linker}")
    tracee = build_tracee(shape, linker=linker, link_flags=("-Wl,--gc-sections",))
    with cached(run, perf, tracee):
        for probe in ("twelve", "guarded"):
            with event(run, perf, f"live:{probe}") as pattern:
                assert len(record(run, perf, tracee, pattern)) == ROUNDS


def test_semaphore_is_raised_by_perf(perf: str, build_tracee: Any, run: Any) -> None:
    tracee = build_tracee("pie")
    with cached(run, perf, tracee), event(run, perf, "live:guarded") as pattern:
        lines = record(run, perf, tracee, pattern)
    assert [re.findall(r"arg1=(\d+)", line) for line in lines] == [[str(i)] for i in range(ROUNDS)]
