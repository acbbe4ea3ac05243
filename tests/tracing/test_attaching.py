"""A process that is attached to runs on while its probes are looked up; nothing that happens meanwhile is missed."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from .conftest import SOURCES

PROVIDER = "provider changing { probe fire(int number, int pid); probe fired(int number, int pid); };"
TRACE = sys.executable, "-m", "usdtbuild", "trace"
ROUNDS = 40


@pytest.fixture(scope="module")
def changing(run: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the program and of the library that it loads."""
    folder = tmp_path_factory.mktemp("changing")
    shutil.copy(SOURCES / "changing.c", folder)
    (folder / "changing.d").write_text(PROVIDER)
    module = sys.executable, "-m", "usdtbuild"
    run(*module, "header", "--formats=dof", "changing.d", "-o", "changing.h", cwd=folder)
    for name, options in (("program", ()), ("library", ("-fPIC", "-DLIBRARY"))):
        run(*module, "cc", "--", "gcc", "-O2", *options, "-c", "changing.c", "-o", f"{name}.o", cwd=folder)
    run("gcc", "program.o", "-o", "program", "-ldl", cwd=folder)
    run("gcc", "-shared", "library.o", "-o", "library.so", cwd=folder)
    return folder


@pytest.mark.parametrize("engine", ["patch", "trap"])
@pytest.mark.parametrize("what", ["load", "fork", "map"])
def test_nothing_is_missed(changing: Path, tmp_path: Path, what: str, engine: str) -> None:
    """Each round that began after the trace did is seen, once, and so is each child of which its parent tells."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    for attempt in range(3):
        hits = tmp_path / f"{attempt}.jsonl"
        program = subprocess.Popen([changing / "program", changing / "library.so", what], **pipes)  # type: ignore[call-overload]
        try:
            assert program.stdout.readline() == "ready\n"
            words = [*TRACE, "-v", "--engine", engine, "-P", "changing:*", "-o", str(hits), "-p", str(program.pid)]
            tracer = subprocess.Popen(words, stderr=subprocess.PIPE, text=True)
            assert tracer.stderr is not None
            assert "tracing process" in tracer.stderr.readline()
            assert program.communicate("x", timeout=120)[0] == "done\n"
            _, errors = tracer.communicate(timeout=120)
        finally:
            program.kill()
            program.communicate()
        assert (program.returncode, tracer.returncode) == (0, 0), errors
        found = [json.loads(line) for line in hits.read_text().splitlines()]
        fired = [one["args"] for one in found if one.get("probe") == "changing:fire"]
        assert [one["number"] for one in fired if one["number"] >= 0] == list(range(ROUNDS)), errors
        told = [one["args"]["pid"] for one in found if one.get("probe") == "changing:fired"]
        # The first child may be older than the trace.
        assert set(told[1:]) <= {one["pid"] for one in fired}
        assert what != "fork" or len(told) >= ROUNDS
