"""Projects under test: a copy of a sample or a few lines of CMakeLists.txt or setup.py, and what each build step did.

Compiler runs are counted by a script that stands as `<LANG>_COMPILER_LAUNCHER` where users have ccache: it writes
down what it runs. Our own launcher goes in front of it, so it sees what the compiler is really asked to do.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
SAMPLES = ROOT / "sample_projects"
PACKAGE = ROOT / "usdtbuild"
# `make test` puts the oldest and the newest CMake there; "system" is the distribution's.
CMAKES = ROOT / ".cache"


class Counted:
    """A project's sources in a temporary folder, and a script before its compiler that writes down what that does."""

    def __init__(self, folder: Path, source: str = "source") -> None:
        self.source, self.log, self.counter = folder / source, folder / "compiled", folder / "counter"
        folder.mkdir(parents=True, exist_ok=True)
        self.counter.write_text(f'#!/bin/sh\nprintf "%s\\n" "$*" >> {shlex.quote(str(self.log))}\nexec "$@"\n')
        self.counter.chmod(0o755)

    def write_all(self, files: dict[str, str]) -> None:
        """Write source files, by name."""
        for name, text in files.items():
            path = self.source / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)

    def wait(self) -> None:
        """Wait until file systems can tell the time from that of the last build."""
        time.sleep(0.05)

    def edit(self, name: str, old: str, new: str) -> None:
        """Replace text in a source file, at a time that the build can tell from the one before."""
        self.wait()
        path = self.source / name
        text = path.read_text()
        assert old in text, f"{name} doesn't contain {old!r}"
        path.write_text(text.replace(old, new))

    def logged(self) -> list[str]:
        """The compiler's arguments since the last call."""
        lines = self.log.read_text().splitlines() if self.log.exists() else []
        self.log.unlink(missing_ok=True)
        return lines


class Project(Counted):
    """A CMake project in a temporary folder: `source`, `build`, and the CMake and generator it is built with."""

    def __init__(self, run: Any, folder: Path, cmake: str, generator: str) -> None:
        super().__init__(folder)
        self.run, self.cmake, self.generator, self.build = run, cmake, generator, folder / "build"

    def write(self, **files: str) -> None:
        """Write source files; `__` in a keyword stands for the dot of the name: `main__c="int main..."`."""
        self.write_all({name.replace("__", "."): text for name, text in files.items()})

    def configure(self, *options: str, code: int | None = 0, count: bool = True, find: bool = True, **more: Any) -> str:
        """Configure, and return what CMake said, on one line (it wraps its messages).

        `count` puts the counting script in front of the compilers; `find` says where usdtbuild and its Python are.
        """
        settings = []
        if count:
            settings += [f"-DCMAKE_{language}_COMPILER_LAUNCHER={self.counter}" for language in ("C", "CXX")]
        if find:
            settings += [f"-DUSDTBuild_DIR={ROOT / 'cmake'}", f"-DUSDTBuild_PYTHON={sys.executable}"]
        command = [self.cmake, "-S", self.source, "-B", self.build, "-G", self.generator]
        done = self.run(*command, *settings, *options, code=code, **more)
        return " ".join((done.stdout + done.stderr).split())

    def make(self, *options: str, code: int | None = 0, **more: Any) -> str:
        """Build, and return what the build tool said."""
        done = self.run(self.cmake, "--build", self.build, *options, code=code, **more)
        return str(done.stdout + done.stderr)

    def built(self, *options: str, **more: Any) -> str:
        """Configure, and build; return what the build tool said."""
        self.configure(*options, **more)
        return self.make()

    @property
    def ctest(self) -> Path:
        return Path(self.cmake).with_name("ctest")

    def rules(self) -> str:
        """What Ninja was told."""
        return "".join(path.read_text() for path in self.build.glob("**/*.ninja"))

    def compiled(self) -> list[str]:
        """The sources compiled since the last call, sorted; those that CMake tries at configure time left out."""
        sources = [re.search(r" -c (.+)$", line) for line in self.logged() if "CMakeScratch" not in line]
        return sorted(Path(found[1]).name for found in sources if found)

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


@pytest.fixture(scope="session")
def end_build() -> Callable[..., None]:
    """End a build in the middle, one that was started as a session of its own: `end_build(process, "Ninja", log, 0.1)`
    does so some seconds after its first compiler has begun.

    All of it has ended then. A compiler that outlives its build (Ninja gives each command a process group) goes on
    writing: GNU as removes the object that the next build's compiler has just written, and the linker finds none.
    """

    def end(building: subprocess.Popen[Any], generator: str, log: Path, pause: float) -> None:
        deadline = time.monotonic() + 60
        while not log.exists() and time.monotonic() < deadline:
            time.sleep(0.001)
        time.sleep(pause)
        # As if the machine had gone down, for Ninja, which notices what it didn't finish. Make is asked to end: without
        # the time to remove it, it takes what ar was writing for a finished archive, with us or without.
        number = signal.SIGTERM if "Makefiles" in generator else signal.SIGKILL
        _signal(_of_session(building.pid), number)
        deadline = time.monotonic() + 20
        while left := _of_session(building.pid):
            assert time.monotonic() < deadline, f"the build's processes {left} didn't end"
            if number == signal.SIGKILL:
                _signal(left, number)  # they may have started others meanwhile
            building.poll()
            time.sleep(0.001)
        building.wait()

    return end


def _signal(processes: list[int], number: int) -> None:
    for process in processes:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, number)


def _of_session(session: int) -> list[int]:
    """The processes of a session that haven't ended."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            state, _, _, its_session, *_ = path.read_text(errors="replace").rpartition(")")[2].split()
            if state not in "ZX" and int(its_session) == session:
                found.append(int(path.parent.name))
    return found


# --- Python extensions ------------------------------------------------------------------------------------------------


class PythonProject(Counted):
    """A Python project in a temporary folder, and the environment it is built in, where compiler runs are counted."""

    def __init__(self, run: Any, folder: Path, python: Path, environment: dict[str, str]) -> None:
        super().__init__(folder)
        self.run, self.python, self.write = run, python, self.write_all
        self.source.mkdir(exist_ok=True)
        # Several words, as people have them who use ccache.
        self.environment = {**environment, "CC": f"{self.counter} gcc", "CXX": f"{self.counter} g++"}

    def wait(self) -> None:
        """Wait until setuptools can tell the time from that of the last build; the oldest one reads whole seconds."""
        time.sleep(1.05 if "setuptools-oldest" in self.environment.get("PYTHONPATH", "") else 0.05)

    def __call__(self, *arguments: Any, code: int | None = 0, **more: str) -> str:
        """Run Python in the project's folder, and return what it said. `more` are variables of the environment."""
        environment = {**self.environment, **more}
        done = self.run(self.python, *arguments, cwd=self.source, env=environment, code=code)
        return str(done.stdout + done.stderr)

    def setup(self, *arguments: Any, code: int | None = 0, **more: str) -> str:
        """Run setup.py."""
        return self("setup.py", *arguments, code=code, **more)

    def pip(self, *arguments: Any, code: int | None = 0, **more: str) -> str:
        """Run the tests' own pip on the project, for the project's Python."""
        command = [sys.executable, "-m", "pip", "--python", str(self.python), *map(str, arguments)]
        done = self.run(*command, cwd=self.source, env={**self.environment, **more}, code=code)
        return str(done.stdout + done.stderr)

    def compiled(self) -> list[str]:
        """The sources compiled since the last call, sorted."""
        found = [
            re.search(r" -c (?:.* )?(\S+\.c(?:pp)?)\b", line) for line in self.logged() if "usdtbuild-" not in line
        ]
        return sorted(Path(source[1]).name for source in found if source)

    def module(self, name: str) -> Path:
        """The extension module of that name that `build_ext --inplace` put beside the sources."""
        return next((self.source / "src").rglob(f"{name}.*.so"))


def _clean_environment() -> dict[str, str]:
    """The tests' environment without what would change a build, and with a pip that stays off the network."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PIP_", "USDTBUILD_"))}
    for name in ("CC", "CXX", "CFLAGS", "CXXFLAGS", "CPPFLAGS", "LDFLAGS", "LDSHARED", "VIRTUAL_ENV", "CMAKE_ARGS"):
        kept.pop(name, None)
    return {**kept, "PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_NO_INPUT": "1", "PIP_ROOT_USER_ACTION": "ignore"}


@pytest.fixture(scope="session")
def wheelhouse(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheels that builds of Python projects install, this checkout's among them."""
    fetched = CMAKES / "wheelhouse"
    if not fetched.is_dir():
        pytest.skip(f"{fetched} is missing; `make test` fetches it")
    folder = tmp_path_factory.mktemp("wheelhouse")
    for path in [wheel, *fetched.glob("*.whl")]:
        (folder / path.name).symlink_to(path)
    return folder


@pytest.fixture(scope="session")
def once(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, Callable[[Path], None]], Path]:
    """Let the first of a test run's processes that comes here fill a folder for all of them: `once("name", fill)`."""
    own = tmp_path_factory.getbasetemp()
    shared = own.parent if "PYTEST_XDIST_WORKER" in os.environ else own

    def fill_once(name: str, fill: Callable[[Path], None]) -> Path:
        folder = shared / name
        with folder.with_suffix(".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not (folder / ".filled").exists():
                shutil.rmtree(folder, ignore_errors=True)
                folder.mkdir()
                fill(folder)
                (folder / ".filled").touch()
        return folder

    return fill_once


@pytest.fixture(scope="session")
def make_python(
    run: Any, wheelhouse: Path, tmp_path_factory: pytest.TempPathFactory
) -> Callable[..., tuple[Path, dict[str, str]]]:
    """Make a fresh environment with some packages of the wheelhouse; return its Python, and variables for its use.

    An environment that has been made in `folder` is returned as it is.
    """

    def make(*packages: Any, folder: Path | None = None) -> tuple[Path, dict[str, str]]:
        if not Path(sysconfig.get_path("include"), "Python.h").exists():
            pytest.skip("Python.h is not installed")
        folder = folder or tmp_path_factory.mktemp("python")
        python = folder / "bin" / "python"
        environment = {
            **_clean_environment(),
            "PIP_NO_INDEX": "1",
            "PIP_FIND_LINKS": str(wheelhouse),
            "PATH": f"{folder / 'bin'}:{os.environ['PATH']}",
        }
        if python.exists():
            return python, environment
        run(sys.executable, "-m", "venv", "--without-pip", folder)
        if packages:
            run(sys.executable, "-m", "pip", "--python", python, "-q", "install", *packages, env=environment)
        return python, environment

    return make


@pytest.fixture(scope="session")
def build_backends(make_python: Any) -> Any:
    """An environment with this checkout's wheel and every build backend that the samples use: Python, and variables."""
    backends = ("setuptools", "wheel", "pybind11", "scikit-build-core", "meson-python", "ninja")
    return make_python("usdtbuild", *backends)


@pytest.fixture(scope="session")
def setuptools_of(make_python: Any, once: Any) -> Callable[[str], tuple[Path, dict[str, str]]]:
    """An environment with usdtbuild and a setuptools: "newest", or "oldest", the oldest we support."""

    def get(name: str) -> tuple[Path, dict[str, str]]:
        oldest = CMAKES / "setuptools-oldest"
        if name == "oldest" and not oldest.is_dir():
            pytest.skip(f"{oldest} is missing; `make test` fetches it")
        if name == "oldest" and sys.version_info >= (3, 12):
            pytest.skip("setuptools 61 doesn't run on Python 3.12 or newer")
        packages = ["usdtbuild", *(["setuptools", "wheel", "pybind11", "Cython"] if name == "newest" else [])]
        folder = once(f"setuptools-{name}", lambda folder: make_python(*packages, folder=folder))
        python, environment = make_python(folder=folder)
        return python, environment if name == "newest" else {**environment, "PYTHONPATH": str(oldest)}

    return get


@pytest.fixture
def python_project(run: Any, setuptools_of: Any, tmp_path: Path) -> PythonProject:
    """An empty Python project, for the newest setuptools."""
    return PythonProject(run, tmp_path, *setuptools_of("newest"))


@pytest.fixture(scope="session")
def make_python_project(run: Any, setuptools_of: Any) -> Callable[..., PythonProject]:
    """Make an empty Python project, for a setuptools by name or for what make_python made."""

    def make(folder: Path, setuptools: Any = "newest") -> PythonProject:
        return PythonProject(run, folder, *(setuptools_of(setuptools) if isinstance(setuptools, str) else setuptools))

    return make
