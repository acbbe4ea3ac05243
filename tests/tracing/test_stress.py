"""Sites switched on and off under running threads, at every offset in a cache line, never change a result."""

from __future__ import annotations

import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.started import ready

from .conftest import SOURCES

TOGGLE = Path(__file__).with_name("toggle.py")


@pytest.fixture(scope="session")
def stress(tmp_path_factory: pytest.TempPathFactory, run: Any, need: Any) -> Any:
    """Build the program: `stress("gcc", "-fPIE", "-pie")`."""

    def build(cc: str, *options: str) -> Path:
        folder = tmp_path_factory.mktemp("stress")
        for name in ("stress.c", "returns.c", "stress.d", "places.h"):
            shutil.copy(SOURCES / name, folder)
        module = sys.executable, "-m", "usdtbuild"
        run(*module, "header", "--formats=dof", "stress.d", "-o", "stress.h", cwd=folder)
        run(*module, "cc", "--", need(cc), "-O2", "-Wall", *options, "-c", "stress.c", cwd=folder)
        run(cc, *options, "-pthread", "stress.o", "-o", "stress", cwd=folder)
        return folder / "stress"

    return build


@pytest.fixture(scope="session")
def returns(tmp_path_factory: pytest.TempPathFactory, run: Any, need: Any) -> Any:
    """Build a program of functions with returns: `returns("gcc")`."""

    def build(cc: str, name: str = "returns", *options: str) -> Path:
        folder = tmp_path_factory.mktemp(name)
        run(need(cc), "-O2", "-w", "-pthread", *options, SOURCES / f"{name}.c", "-o", name, cwd=folder)
        return folder / name

    return build


def hammer(program: Path, what: str, seconds: float, threads: int) -> tuple[int, int]:
    """Run the program while its sites are toggled; returns its passes and the toggles. Fails on any wrong result.

    Where the machine is so busy that this happened hardly ever, it runs longer.
    """
    process = ready(program, seconds, threads)
    words = [sys.executable, str(TOGGLE), str(process.pid), "probes", what]
    toggled = subprocess.run(words, capture_output=True, text=True, timeout=60 + 2 * seconds, check=False)
    output = process.end()
    ended = re.fullmatch(r"wrong=0 passes=(\d+) signals=1\n", output)
    assert (process.returncode, bool(ended)) == (0, True), (process.returncode, output, toggled)
    seen = re.fullmatch(r"toggles=(\d+) hits=(\d+) bad=0\n", toggled.stdout)
    assert seen, toggled
    assert ended
    if seconds < 30 and (int(seen[1]) <= 3 or not int(seen[2])):
        return hammer(program, what, 4 * seconds, threads)
    assert int(seen[1]) > 3
    assert int(seen[2]) > 0
    return int(ended[1]), int(seen[1])


@pytest.mark.parametrize("what", ["count", "record"])
@pytest.mark.parametrize("options", [("-fPIE", "-pie"), ("-fno-pie", "-no-pie")], ids=["pie", "exe"])
def test_toggled_all_the_while(stress: Any, what: str, options: tuple[str, ...]) -> None:
    hammer(stress("gcc", *options), what, 2, 2)


@pytest.mark.skipif(platform.machine() != "x86_64", reason="jumps of x86-64 stand behind the sites")
@pytest.mark.parametrize("what", ["count", "record"])
def test_toggled_where_a_jump_behind_the_site_changes_with_it(stress: Any, what: str) -> None:
    """A handler of a signal, too, may come between the two. Without the jumps behind, all sites were refused."""
    hammer(stress("gcc", "-fPIE", "-pie", "-DJUMPS"), what, 2, 2)


@pytest.mark.parametrize("options", [("-fPIE", "-pie"), ("-fno-pie", "-no-pie")], ids=["pie", "exe"])
def test_traced_again_and_again(stress: Any, options: tuple[str, ...]) -> None:
    """What each trace leaves behind, buffers of usual size among it, doesn't take the room that the next one needs."""
    with ready(stress("gcc", *options), 60, 1) as process:
        words: list[str | Path] = [sys.executable, TOGGLE, str(process.pid), "probes", "record", str(4 << 20), "20"]
        toggled = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)
        process.kill()
    assert re.fullmatch(r"toggles=20 hits=\d+ bad=0\n", toggled.stdout), toggled


@pytest.mark.parametrize("what", ["count", "record"])
def test_returns_toggled_all_the_while(returns: Any, hammered: Callable[..., int], what: str) -> None:
    hammered(returns("gcc"), "returns", what, 25, threads=2)


@pytest.mark.skipif(platform.machine() != "x86_64", reason="elsewhere the cases of a `switch` aren't told")
@pytest.mark.parametrize("what", ["count", "record"])
def test_returns_beside_other_ends_toggled_all_the_while(returns: Any, hammered: Callable[..., int], what: str) -> None:
    """Of functions that may also end by a jump to another one, or have a `switch`."""
    hammered(returns("gcc", "switches", "-fPIE", "-pie"), "ends", what, 25, threads=2)


@pytest.mark.skipif(platform.machine() != "x86_64", reason="elsewhere a return's branch reads nothing behind it")
@pytest.mark.parametrize("what", ["count", "record"])
@pytest.mark.parametrize("entry", ["7,5", "5"])
def test_returns_right_before_entries_toggled_all_the_while(
    returns: Any, hammered: Callable[..., int], entry: str, what: str
) -> None:
    """Their jumps read those of the entries, of which breakpoints come and go."""
    options = ("-falign-functions=1", "-fno-toplevel-reorder", "-fcf-protection=none", "-fPIE", "-pie")
    hammered(returns("gcc", "adjacent", *options, f"-DENTRY={entry}"), "returns", what, 25, threads=2)


@pytest.mark.slow
@pytest.mark.parametrize("what", ["count", "record"])
def test_returns_toggled_for_long(returns: Any, hammered: Callable[..., int], what: str) -> None:
    program, passes = returns("gcc"), 0
    while passes < 10**8:
        passes += hammered(program, "returns", what, 500, threads=4)


@pytest.mark.slow
@pytest.mark.parametrize("what", ["count", "record"])
@pytest.mark.parametrize("cc", ["gcc", "clang"])
def test_toggled_for_long(stress: Any, what: str, cc: str) -> None:
    program, passes = stress(cc, "-fPIE", "-pie"), 0
    while passes < 10**8:
        passes += hammer(program, what, 20, 4)[0]
