"""A program with a limit on its memory is traced: what the trace needs is the tracer's, and counts as the tracer's."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

LIMIT, OWN = 64 << 20, 16 << 20  # of the program; what it may take at most itself, stacks and page tables and all


class Group(NamedTuple):
    """A control group: its folder, and its files with the limit, what was used at most, and how many were ended."""

    folder: Path
    limit: str
    used: str
    events: str

    def most(self) -> int:
        """Return the most memory that was used (or what is, where the kernel doesn't keep that)."""
        for name in (self.used, "memory.current"):
            if (self.folder / name).exists():
                return int((self.folder / name).read_text())
        return 0


def _mounted(kind: str, option: str = "") -> Iterator[Path]:
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        words = line.split()
        if words[words.index("-") + 1] == kind and (not option or option in words[-1].split(",")):
            yield Path(words[4])


@pytest.fixture
def limited() -> Iterator[Group]:
    """A control group with a limit on memory, of either version."""
    name = f"usdtbuild-test-{os.getpid()}"
    found = [Group(folder / name, "memory.limit_in_bytes", "memory.max_usage_in_bytes", "memory.oom_control")
             for folder in _mounted("cgroup", "memory")]  # fmt: skip
    found += [Group(folder / name, "memory.max", "memory.peak", "memory.events") for folder in _mounted("cgroup2")]
    for group in found:
        try:
            group.folder.mkdir()
        except OSError:
            continue
        try:
            (group.folder / group.limit).write_text(str(LIMIT))
        except OSError:  # this version has the memory elsewhere
            group.folder.rmdir()
            continue
        yield group
        deadline = time.monotonic() + 10
        while (group.folder / "cgroup.procs").read_text() and time.monotonic() < deadline:
            time.sleep(0.05)
        group.folder.rmdir()
        return
    pytest.skip("this machine lets nobody limit memory by control groups")


@pytest.mark.parametrize("size", [pytest.param("1", marks=pytest.mark.slow), "64"])
def test_buffers_count_as_the_tracers_memory(built: Any, limited: Group, size: str) -> None:
    """Sixteen rings, full of hits from the first moment on: the program stays far below its limit, and isn't ended."""
    program = built("crowd", "-pthread")
    pipe = subprocess.PIPE
    traced = subprocess.Popen([program, "1"], stdin=pipe, stdout=pipe, text=True)
    assert traced.stdin is not None
    assert traced.stdout is not None
    try:
        (limited.folder / "cgroup.procs").write_text(str(traced.pid))
        # Normalized keys are made of recorded hits.
        options = ["--buffer", size, "--by", "text", "--normalize", "--string-size", "64"]
        words = [sys.executable, "-m", "usdtbuild", "trace", "-p", str(traced.pid), *options]
        tracer = subprocess.Popen(words, stdout=pipe, stderr=pipe, text=True)
        deadline = time.monotonic() + 60
        while "memfd:usdtbuild" not in Path(f"/proc/{traced.pid}/maps").read_text():
            assert time.monotonic() < deadline
            assert tracer.poll() is None, tracer.communicate()
            time.sleep(0.01)
        time.sleep(1)
        traced.stdin.write("\n")
        traced.stdin.flush()
        said = traced.stdout.readline()
        most = limited.most()
        assert said == "over\n", (traced.poll(), (limited.folder / limited.events).read_text())
        for _ in range(2):  # nobody wants to wait for what was seen
            tracer.send_signal(signal.SIGINT)
            time.sleep(0.2)
        _, errors = tracer.communicate(timeout=60)
        traced.communicate("\n", timeout=60)
    finally:
        traced.kill()
        traced.wait()
        tracer.kill()
        tracer.communicate()
    assert traced.returncode == 0
    assert tracer.returncode == 0, errors
    assert most < OWN
    assert re.search(r"[1-9]\d* hits were seen and are left out", errors), errors


def test_a_tracer_that_may_take_little_says_so(built: Any, limited: Group) -> None:
    """It is the tracer that is limited now: its buffers are smaller."""
    program = built("victim")
    script = f'echo $$ > "{limited.folder}/cgroup.procs" && exec "$@"'
    words = [sys.executable, "-m", "usdtbuild", "trace", "--", str(program)]
    done = subprocess.run(["sh", "-c", script, "sh", *words], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert re.search(r"^usdtbuild: there is little memory to spare, so buffers begin with \d+ KB instead of 4 MB$",
                     done.stderr, re.MULTILINE), done.stderr  # fmt: skip
    assert "victim:tick" in done.stdout
