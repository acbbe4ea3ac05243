"""What the steps of a build import: every module costs all objects of all builds, so that one more is one too many.

The interpreter says itself what it loads (`-v`), in the process that a build starts.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

PACKAGE = Path(__file__).resolve().parent.parent / "usdtbuild"
VERBOSE = [sys.executable, "-I", "-S", "-v"]
# Modules of Python's own that the launcher's path needs; `_signal`, `posix` and the like are built in. Some of the
# others import a dozen more.
ALLOWED = {"__future__", "_bisect", "_collections", "_signal", "_struct", "bisect", "posix", "struct", "time"}
PLAIN, PROBES = 6, 45  # of our own, packages included
ALLOWED_IN_HEADERS = {"__future__", "_blake2", "_collections", "_struct"}
ALLOWED_IN_HEADERS |= {"encodings.utf_8_sig", "errno", "gc", "struct"}
# The launcher starts a bare Python. For other steps it has its environment, and thereby what `site` loads.
BARE, WITH_ENVIRONMENT = "pass", "import site"
HEADER, DTRACE, INSTRUMENT = 32, 28, 45  # of our own


@pytest.fixture
def folder(tmp_path: Path, header_of: Any) -> Path:
    header_of(tmp_path, "app.d", "provider app { probe go(int x, char *text); };\n", "--formats=dof")
    (tmp_path / "probed.c").write_text('#include "app.h"\nvoid f(int x) { APP_GO(x, "text"); }\n')
    (tmp_path / "plain.c").write_text("int g(int x) { return x; }\n")
    return tmp_path


def imported(folder: Path, started: str, *words: str) -> set[str]:
    """The modules that a Python with these words loads beyond those that it has when it has started."""

    def said(*command: str) -> set[str]:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
        return set(re.findall(r"^import '([\w.]+)'", done.stderr, re.M))

    return said(*VERBOSE, *words) - said(*VERBOSE, "-c", started)


@pytest.mark.parametrize(("source", "most"), [("plain.c", PLAIN), ("probed.c", PROBES)])
def test_nothing_is_imported_that_an_object_does_not_need(source: str, most: int, folder: Path) -> None:
    found = imported(folder, BARE, str(PACKAGE / "launcher.py"), "--", "gcc", "-c", source, "-o", "x.o")
    ours = {name for name in found if name.split(".")[0] == "usdtbuild"}
    assert found - ours <= ALLOWED
    assert len(ours) <= most, sorted(ours)
    assert (b".note.stapsdt" in (folder / "x.o").read_bytes()) is (source == "probed.c")


def test_nothing_is_imported_that_a_rule_for_an_object_does_not_need(folder: Path) -> None:
    script = f"import sys; sys.path.append({str(PACKAGE.parent)!r}); from usdtbuild.__main__ import main; main()"
    subprocess.run(["gcc", "-c", "probed.c", "-o", "x.o"], cwd=folder, check=True)
    found = imported(folder, WITH_ENVIRONMENT, "-c", script, "instrument", "x.o", "-o", "made.o")
    ours = {name for name in found if name.split(".")[0] == "usdtbuild"}
    assert found - ours <= ALLOWED | ALLOWED_IN_HEADERS
    assert len(ours) <= INSTRUMENT, sorted(ours)
    assert b".note.stapsdt" in (folder / "made.o").read_bytes()


@pytest.mark.parametrize(
    ("module", "words", "most"),
    [("__main__", "header app.d -o made.h", HEADER), ("dtrace", "-h -s app.d -o made.h", DTRACE)],
    ids=["header", "dtrace"],
)
def test_nothing_is_imported_that_a_header_does_not_need(module: str, words: str, most: int, folder: Path) -> None:
    script = f"import sys; sys.path.append({str(PACKAGE.parent)!r}); from usdtbuild.{module} import main; main()"
    found = imported(folder, WITH_ENVIRONMENT, "-c", script, *words.split())
    ours = {name for name in found if name.split(".")[0] == "usdtbuild"}
    assert found - ours <= ALLOWED_IN_HEADERS
    assert len(ours) <= most, sorted(ours)
    assert "APP_GO" in (folder / "made.h").read_text()


def test_a_trace_of_probes_imports_nothing_that_reads_debug_information() -> None:
    """Of what attaching takes, most is imports, of two processes."""
    for module in ("worker", "session", "follower"):
        script = f"import sys, usdtbuild.tracing.{module}; sys.exit('elftools' in sys.modules)"
        subprocess.run([sys.executable, "-c", script], check=True)
