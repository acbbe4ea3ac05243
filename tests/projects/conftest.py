"""CMake projects under test: a copy of a sample or a few lines of CMakeLists.txt, and what each build step did.

Compiler runs are counted by a script that stands as `<LANG>_COMPILER_LAUNCHER` where users have ccache: it writes
down what it runs. Our own launcher goes in front of it, so it sees what the compiler is really asked to do.
"""

from __future__ import annotations

import re
import shlex
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
SAMPLES = ROOT / "sample_projects"
PACKAGE = ROOT / "src" / "usdtbuild"
# `make test` puts the oldest and the newest CMake there; "system" is the distribution's.
CMAKES = ROOT / ".cache"

class Project:
    """A CMake project in a temporary folder: `source`, `build`, and the CMake and generator it is built with."""

    def __init__(self, run: Any, folder: Path, cmake: str, generator: str) -> None:
        self.run, self.cmake, self.generator = run, cmake, generator
        self.source, self.build = folder / "source", folder / "build"
        self.log = folder / "compiled"
        self.counter = folder / "counter"
        folder.mkdir(parents=True, exist_ok=True)
        self.counter.write_text(f'#!/bin/sh\nprintf "%s\\n" "$*" >> {shlex.quote(str(self.log))}\nexec "$@"\n')
        self.counter.chmod(0o755)

    def write(self, **files: str) -> None:
        """Write source files; `__` in a keyword stands for the dot of the name: `main__c="int main..."`."""
        for name, text in files.items():
            path = self.source / name.replace("__", ".")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)

    def configure(self, *options: str, code: int | None = 0, count: bool = True, find: bool = True, **more: Any) -> str:
        """Configure, and return what CMake said, on one line (it wraps its messages).

        `count` puts the counting script in front of the compilers; `find` says where usdtbuild and its Python are.
        """
        settings = []
        if count:
            settings += [f"-DCMAKE_{language}_COMPILER_LAUNCHER={self.counter}" for language in ("C", "CXX")]
        if find:
            settings += [f"-DUSDTBuild_DIR={PACKAGE / 'cmake'}", f"-DUSDTBuild_PYTHON={sys.executable}"]
        command = [self.cmake, "-S", self.source, "-B", self.build, "-G", self.generator]
        done = self.run(*command, *settings, *options, code=code, **more)
        return " ".join((done.stdout + done.stderr).split())

    def make(self, *options: str, code: int | None = 0, **more: Any) -> str:
        """Build, and return what the build tool said."""
        done = self.run(self.cmake, "--build", self.build, *options, code=code, **more)
        return str(done.stdout + done.stderr)

    def compiled(self) -> list[str]:
        """The sources compiled since the last call, sorted; those that CMake tries at configure time left out."""
        if not self.log.exists():
            return []
        lines = self.log.read_text().splitlines()
        self.log.unlink()
        sources = [re.search(r" -c (.+)$", line) for line in lines if "CMakeScratch" not in line]
        return sorted(Path(found[1]).name for found in sources if found)

    def edit(self, name: str, old: str, new: str) -> None:
        """Replace text in a source file, at a time that file systems can tell from the build before."""
        time.sleep(0.05)
        path = self.source / name
        text = path.read_text()
        assert old in text, f"{name} doesn't contain {old!r}"
        path.write_text(text.replace(old, new))

    def binary(self, name: str) -> Path:
        """A file that the build made, wherever the generator puts it."""
        return next(path for path in (self.build / name, self.build / "Debug" / name) if path.exists())


@pytest.fixture(scope="session")
def cmake_of(need: Callable[[str], str]) -> Callable[[str], str]:
    """The path of a CMake by name: "system", "oldest" or "newest"."""

    def path(name: str) -> str:
        if name == "system":
            return need("cmake")
        found = CMAKES / f"cmake-{name}" / "cmake/data/bin/cmake"
        if not found.exists():
            pytest.skip(f"{found} is missing; `make test` installs it")
        return str(found)

    return path


@pytest.fixture(scope="session")
def make_project(run: Any, cmake_of: Callable[[str], str], need: Callable[[str], str]) -> Callable[..., Project]:
    """Make an empty project in a folder: `make_project(folder, "oldest", "Ninja")`."""

    def make(folder: Path, cmake: str = "system", generator: str = "Ninja") -> Project:
        need("make" if "Makefiles" in generator else "ninja")
        return Project(run, folder, cmake_of(cmake), generator)

    return make


@pytest.fixture
def project(make_project: Callable[..., Project], tmp_path: Path) -> Project:
    """An empty project for the system's CMake and Ninja."""
    new = make_project(tmp_path)
    new.source.mkdir()
    return new


@pytest.fixture(scope="session")
def copy_sample() -> Callable[[str, Path], None]:
    """Copy a sample project: `copy_sample("cmake-hello", folder)`."""

    def copy(name: str, target: Path) -> None:
        shutil.copytree(SAMPLES / name, target, ignore=shutil.ignore_patterns("build"))

    return copy
