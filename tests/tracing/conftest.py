"""Programs to trace, built once each through the public commands, and what their trace must say."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from .numbered import PROGRAM, PROVIDER

SOURCES = Path(__file__).resolve().parent / "sources"
PROBES = ("ints", "wide", "text", "eight", "guarded", "last")
TEXTS = [
    '""', '"hello"', '"a text of more than sixty-four bytes, which is what is copied of"...',
    '"\\x01 café \\"quoted\\""', "NULL", "0x10", "0x123456789abcdef",
]  # fmt: skip
# shape -> options of the compiler and of the linker
SHAPES = {
    "pie": (("-fPIE",), ("-pie",)),
    "exe": (("-fno-pie",), ("-no-pie",)),
    "static": (("-fno-pie",), ("-static",)),
    "static-pie": (("-fPIE",), ("-static-pie",)),
    "stripped": (("-fPIE",), ("-pie", "-s")),
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Everything here that runs programs does so on the machine that the engines are for."""
    if platform.machine() == "x86_64" and sys.platform == "linux":
        return
    for item in items:
        if item.path.parent == SOURCES.parent:
            item.add_marker(pytest.mark.skip(reason="the patch and trap engines are for x86-64 Linux"))


@pytest.fixture(scope="session")
def scene(tmp_path_factory: pytest.TempPathFactory, run: Any) -> Callable[..., Path]:
    """Build the program in a shape: `scene("pie")`, `scene("dlopen", cc="clang")`; returns its path."""
    made: dict[tuple[str, ...], Path] = {}

    def build(shape: str, cc: str = "gcc", nop: str = "safe") -> Path:
        if (shape, cc, nop) not in made:
            folder = tmp_path_factory.mktemp("scene")
            folder.chmod(0o755)
            made[shape, cc, nop] = _build(run, folder, shape, cc, nop)
        return made[shape, cc, nop]

    return build


def _build(run: Any, folder: Path, shape: str, cc: str, nop: str) -> Path:
    for path in SOURCES.iterdir():
        shutil.copy(path, folder)
    module = sys.executable, "-m", "usdtbuild"
    run(*module, "header", "--formats=dof", "scene.d", "-o", "scene.h", cwd=folder)
    library = shape in {"shared", "dlopen"}
    compile_, link = (("-fPIC", "-DLIBRARY"), ("-shared",)) if library else SHAPES[shape]
    run(*module, "cc", f"--nop={nop}", "--", cc, "-O2", "-Wall", "-Werror", *compile_, "-c", "scene.c", cwd=folder)
    output = "libscene.so" if library else "scene"
    run(cc, *link, "-pthread", "scene.o", "-o", output, cwd=folder)
    if shape == "dlopen":
        run(cc, "host.c", "-o", "host", "-ldl", cwd=folder)
    elif shape == "shared":
        (folder / "main.c").write_text("int scene(int, char **);\nint main(int c, char **v) { return scene(c, v); }\n")
        run(cc, "main.c", "./libscene.so", "-Wl,-rpath,$ORIGIN", "-o", "host", cwd=folder)
    return folder / ("host" if library else "scene")


@pytest.fixture(scope="session")
def numbered(run: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the program whose threads number their hits."""
    return built_with_probes(run, tmp_path_factory.mktemp("numbered"), "last", PROVIDER, PROGRAM)


def built_with_probes(run: Any, folder: Path, name: str, provider: str, program: str, *options: str) -> Path:
    """Return a program that was built in a folder with the header of a provider file; both are called `name`."""
    folder.chmod(0o755)
    (folder / f"{name}.d").write_text(provider)
    (folder / f"{name}.c").write_text(program)
    run(sys.executable, "-m", "usdtbuild", "header", f"{name}.d", cwd=folder)
    given = options or ("-O2", "-Wall", "-Werror", "-pthread")
    run("gcc", *given, f"-I{SOURCES}", f"{name}.c", "-o", name, cwd=folder)
    return folder / name


@pytest.fixture
def refused(numbered: Path, usdtbuild: Any) -> Callable[..., str]:
    """Trace that program with options that make no sense; return what is said of them before anything starts."""

    def traced(*words: str) -> str:
        done = usdtbuild("trace", *words, "--", numbered, 1, "wait", code=2, stdin=subprocess.DEVNULL)
        assert "waiting" not in done.stdout
        return str(done.stderr)

    return traced


class Traced(NamedTuple):
    """What `usdtbuild trace` printed: hits as (name, {argument: text}), what the program wrote, and stderr."""

    hits: list[tuple[str, dict[str, str]]]
    output: list[str]
    errors: str

    def count(self) -> Counter[str]:  # type: ignore[override]
        """How often each probe was hit."""
        return Counter(name for name, _ in self.hits)


_LINE = re.compile(r" *[0-9]+\.[0-9]{6} +[0-9]+ (\w+:\w+)((?: \w+=(?:\"(?:[^\"\\]|\\.)*\"(?:\.\.\.)?|[^\" ]+))*)\n?")
_VALUE = re.compile(r" (\w+)=(\"(?:[^\"\\]|\\.)*\"(?:\.\.\.)?|[^\" ]+)")


def parse(text: str, errors: str = "") -> Traced:
    """Take the default output apart; the program's own lines stand between the hits."""
    hits, output = [], []
    for line in text.splitlines():
        found = _LINE.fullmatch(line)
        if found:
            hits.append((found[1], dict(_VALUE.findall(found[2]))))
        elif line:
            output.append(line)
    return Traced(hits, output, errors)


@pytest.fixture(scope="session")
def unprivileged(need: Any, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Words to put before a command so that it runs without any privilege, and can never get one."""
    words = [need("setpriv"), "--no-new-privs"]
    if os.geteuid() == 0:
        words += ["--reuid", "65534", "--regid", "65534", "--clear-groups", "--inh-caps=-all"]
        # An interpreter or a folder of pytest's that is closed to other users is for a root that has no capabilities.
        again = "import os, subprocess, sys, usdtbuild; subprocess.run([sys.executable, '-c', ''], check=True); "
        again += f"os.chdir({str(tmp_path_factory.mktemp('open', numbered=False))!r})"
        probe = subprocess.run([*words, sys.executable, "-c", again], capture_output=True, check=False)
        if probe.returncode:
            words = [words[0], "--no-new-privs", "--bounding-set=-all", "--inh-caps=-all"]
    return words


@pytest.fixture(scope="session")
def traced(run: Any, unprivileged: list[str]) -> Callable[..., Traced]:
    """Run `usdtbuild trace` without privileges: `traced("--engine", "trap", "--", program)`."""

    def trace(*arguments: Any, **more: Any) -> Traced:
        done = run(*unprivileged, sys.executable, "-m", "usdtbuild", "trace", *arguments, **more)
        return parse(done.stdout, done.stderr)

    return trace


@pytest.fixture(scope="session")
def counted(run: Any, unprivileged: list[str]) -> Callable[..., tuple[dict[str, int], str]]:
    """Run `usdtbuild trace --count`; returns the hits by name, and everything that was printed."""

    def count(*arguments: Any, **more: Any) -> tuple[dict[str, int], str]:
        words = sys.executable, "-m", "usdtbuild", "trace", "--count", *arguments
        done = run(*unprivileged, *words, **more)
        rows = re.findall(r"^ *([0-9]+)  (\S+:\S+)", done.stdout, re.MULTILINE)
        return {name: int(number) for number, name in rows}, done.stdout + done.stderr

    return count


def check_arguments(hits: Sequence[tuple[str, dict[str, str]]], rounds: int, threads: int = 1) -> None:
    """Every hit of the scene has the arguments that it must have, each exactly as often as it was fired."""
    expected: Counter[tuple[str, str]] = Counter()
    for i in range(rounds):
        length = [0, 5, 76, 16, -1, -1, -1][i % 7]
        for name, values in (
            ("ints", [_signed(-i, 8), i & 0xFF, _signed(-i, 16), i & 0xFFFF, -i, i]),
            ("wide", [-i, i << 40, f"{i / 4:g}", f"{i / 2:g}"]),
            ("text", [TEXTS[i % 7], length]),
            ("eight", [i, 2, 3, 4, 5, 6, -7, i << 33]),
            ("guarded", [i]),
            ("last", [i, 3]),
        ):
            expected[f"scene:{name}", " ".join(map(str, values))] += threads
    found = Counter(
        (name, " ".join(text for key, text in values.items() if (name, key) != ("scene:wide", "e")))
        for name, values in hits
        if name.startswith("scene:")
    )
    assert found == expected


def _signed(value: int, bits: int) -> int:
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> (bits - 1) else value
