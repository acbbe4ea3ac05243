"""Calls that are watched and let go all the while, under running threads: no result changes, no argument is wrong."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.skipif(os.uname().machine != "x86_64", reason="calls are patched on x86-64")
SOURCE = Path(__file__).with_name("stress.c")
TOGGLE = SOURCE.parent.parent / "tracing" / "toggle.py"
FORMS = {
    "lazy": ("-fPIE", "-pie", "-Wl,-z,lazy"), "ibt": ("-fcf-protection=full", "-Wl,-z,ibtplt", "-Wl,-z,lazy"),
    "no-plt": ("-fno-plt", "-fPIE", "-pie"), "exe": ("-fno-pie", "-no-pie", "-Wl,-z,now"),
}  # fmt: skip


@pytest.fixture(scope="session")
def stress(tmp_path_factory: pytest.TempPathFactory, run: Any, need: Any) -> Any:
    """Build the program in one of the forms: `stress("lazy", "gcc")`."""
    made: dict[tuple[str, str], Path] = {}

    def build(form: str, cc: str) -> Path:
        if (form, cc) not in made:
            folder = tmp_path_factory.mktemp("stress")
            run(need(cc), "-O2", "-DLIBRARY", "-shared", "-fPIC", SOURCE, "-o", "libwork.so", cwd=folder)
            words = [cc, "-O2", *FORMS[form], SOURCE, "libwork.so", "-Wl,-rpath,$ORIGIN", "-pthread"]
            run(*words, "-o", "stress", cwd=folder)
            made[form, cc] = folder / "stress"
        return made[form, cc]

    return build


def hammer(program: Path, what: str, times: int, threads: int) -> int:
    """Run the program while its calls are toggled; returns its passes. Fails on any wrong result."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([program, str(threads)], **pipes) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            words = [sys.executable, str(TOGGLE), str(process.pid), "calls", what, str(1 << 16), str(times)]
            toggled = subprocess.run(words, capture_output=True, text=True, timeout=280, check=False)
            output, _ = process.communicate("\n", timeout=60)
        finally:
            process.kill()
    ended = re.fullmatch(r"wrong=0 passes=(\d+) signals=1\n", output)
    assert (process.returncode, bool(ended)) == (0, True), (process.returncode, output, toggled)
    assert re.fullmatch(r"toggles=\d+ hits=\d+ bad=0\n", toggled.stdout), toggled
    assert ended
    return int(ended[1])


@pytest.mark.parametrize(
    ("form", "what"),
    [("lazy", "count"), ("ibt", "record"), ("no-plt", "count"), ("no-plt", "record"), ("exe", "count")],
)
def test_watched_and_let_go_all_the_while(stress: Any, form: str, what: str) -> None:
    hammer(stress(form, "gcc"), what, 25, 2)


@pytest.mark.slow
@pytest.mark.parametrize("what", ["count", "record"])
@pytest.mark.parametrize("cc", ["gcc", "clang"])
def test_watched_and_let_go_for_long(stress: Any, what: str, cc: str) -> None:
    for form in FORMS:
        passes = 0
        while passes < 3 * 10**7:
            passes += hammer(stress(form, cc), what, 500, 4)
