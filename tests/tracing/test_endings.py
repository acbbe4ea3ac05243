"""Threads that begin and end while they are seized or handled: a trace misses none, and isn't lost for their sake."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from usdtbuild.tracing.errors import TracerError
from usdtbuild.tracing.job import Job
from usdtbuild.tracing.selection import Wanted
from usdtbuild.tracing.session import Session

from .conftest import SOURCES

SEIZE = """\
import sys
from usdtbuild.tracing.tracees import FOLLOW, Tracees

pid = int(sys.argv[1])
for _ in range(40):
    tracees = Tracees()
    tracees.seize(pid, FOLLOW)
    tracees.stop(pid)
    tracees.detach(pid)
"""


@pytest.fixture(scope="module")
def restless(run: Any, need: Any, tmp_path_factory: Any) -> Path:
    program = Path(tmp_path_factory.mktemp("restless")) / "restless"
    run(need("gcc"), "-O1", "-fcf-protection=none", SOURCES / "restless.c", "-pthread", "-ldl", "-o", program)
    return program


def test_threads_that_begin_while_others_are_seized(restless: Path) -> None:
    """The kernel seizes those that a seized thread starts; they are nobody else's."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([restless], text=True, **pipes) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            words = [sys.executable, "-c", SEIZE, str(process.pid)]
            done = subprocess.run(words, capture_output=True, text=True, timeout=240, check=False)
            process.communicate("\n", timeout=60)
        finally:
            process.kill()
    assert (done.returncode, done.stderr, process.returncode) == (0, "", 0)


def test_processes_that_end_while_their_threads_are_stepped(restless: Path, usdtbuild: Any) -> None:
    """One thread's exit ends all others, those too that stand for us in the middle of a breakpoint."""
    done = usdtbuild("trace", "--engine", "trap", "--count", "-F", "work", "--", restless, 8, code=7)
    assert re.fullmatch(r" *[1-9]\d*  work\n", done.stdout), done.stdout
    assert done.stderr == ""


def test_processes_that_are_killed_while_their_libraries_are_looked_at(restless: Path, usdtbuild: Any) -> None:
    """Files of theirs can't be opened then, which is neither a matter of permissions nor the end of the trace."""
    done = usdtbuild("trace", "--engine", "trap", "--count", "-F", "work", "--", restless, 20, "killed", code=7)
    assert done.stderr == ""


def test_children_that_are_killed_as_soon_as_they_are_there(
    run: Any, need: Any, usdtbuild: Any, tmp_path: Path
) -> None:
    """By another thread, while the one that forked stands for us; the trace goes on."""
    run(need("gcc"), "-O1", SOURCES / "newborn.c", "-pthread", "-o", tmp_path / "newborn")
    if run(tmp_path / "newborn", 1, code=None).returncode == 3:
        pytest.skip("this kernel doesn't list children (CONFIG_PROC_CHILDREN)")
    done = usdtbuild("trace", "--engine", "trap", "--count", "-F", "work", "--", tmp_path / "newborn", 60, code=7)
    assert re.fullmatch(r" *\d+  work\n", done.stdout), done.stdout
    assert done.stderr == ""


def test_a_worker_that_ends_at_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What it was to be told has nobody to read it; that is an error like any other."""

    class Ended(subprocess.Popen):  # type: ignore[type-arg]
        def __init__(self, words: Any, **more: Any) -> None:
            super().__init__([shutil.which("false"), *words[1:]], **more)
            self.wait()

    monkeypatch.setattr(subprocess, "Popen", Ended)
    with Session(Job(Wanted(), argv=("true",))) as session, pytest.raises(TracerError, match="ended unexpectedly"):
        session.start()
