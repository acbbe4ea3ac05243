"""How each build system configures and builds a copy of a project, and what it says that it installs.

The commands are those that people type. A build runs the project's own code, as theirs does.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import zipfile
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from ..errors import InputError, UsdtError, reason
from ..text import shown
from .recorder import Recorder

Tick = Callable[[str], None]

KINDS = ("cmake", "meson", "autotools", "make", "setuptools", "scikit-build-core", "meson-python")
# What stands in [build-system] build-backend -> what `usdtbuild add` calls it.
_BACKENDS = {
    "setuptools.build_meta": "setuptools", "scikit_build_core.build": "scikit-build-core", "mesonpy": "meson-python",
}  # fmt: skip
_FILES = {
    "cmake": ("CMakeLists.txt",),
    "meson": ("meson.build",),
    "setuptools": ("setup.py",),
    "autotools": ("configure", "configure.ac", "configure.in"),
    "make": ("GNUmakefile", "makefile", "Makefile"),
}
_LAST_LINES = 15
_OPTIONS = {"cmake": "-DBUILD_SHARED_LIBS=ON", "meson": "-Dtests=false", "autotools": "--without-zlib"}
_PACKAGES = {"autoreconf": "autoconf", "aclocal": "automake", "libtoolize": "libtool"}  # Debian's, for programs
# Words that stand before a program which a build runs, and the program; where an option has it behind `--`.
_RUN = re.compile(r"(?:^(?:\[\d+/\d+\])?|[;&|(]|\s--\s)\s*(?:\w+=\S*\s+)*([^\s;&|()<>'\"]*/[^\s;&|()<>'\"]+)")

# What libtool installs for `libclock.la`, as that says itself.
_MADE_BY_LIBTOOL = re.compile(r"^(?:library_names|old_library)='(.*)'$", re.MULTILINE)


class BuildError(UsdtError):
    """A build that failed: its message ends with what the build said last."""

    def __init__(self, command: Sequence[str], code: int, said: Sequence[str]) -> None:
        lines = "".join(f"\n    {shown(line)}" for line in said)
        super().__init__(f"{shown(' '.join(command))}: ended with {code} in a copy of the project, and said:{lines}")

    def without_probe(self, kind: str) -> UsdtError:
        """Return the error for a project that fails as it is: with what to do about it."""
        absent = re.search(r'Can\'t exec "(\w+)"', str(self))
        lacks = f"{absent[1]} ({_PACKAGES.get(absent[1], 'not installed')})" if absent else "what it lacks"
        return UsdtError(
            f"{self}\nThe project fails like this without a probe, and nothing is changed. Install {lacks}, or give the"
            f" options that you build it with, such as --option {_OPTIONS.get(kind, 'NAME=VALUE')}."
        )


def find_kind(root: Path, wanted: str | None = None) -> str:
    """Return what builds the project in a folder, or what the user `wanted` if it can. Raises InputError."""
    there = {path.name for path in root.iterdir()} if root.is_dir() else set()
    if wanted:
        names = _FILES.get(wanted, ("pyproject.toml",))
        if not there.intersection((*names, "pyproject.toml") if wanted == "setuptools" else names):
            raise InputError(str(root), f"has no {' or '.join(names)}, so --for {wanted} can't build it")
        return wanted
    if "pyproject.toml" in there:
        backend = _backend(root / "pyproject.toml")
        others = {"CMakeLists.txt", "meson.build"} & there
        if backend and (backend != "setuptools" or not others or "setup.py" in there):
            return backend
    found = [kind for kind, names in _FILES.items() if there.intersection(names)]
    if not found:
        cure = f"run this where one of {', '.join(name for names in _FILES.values() for name in names)} is"
        raise InputError(str(root), "has no build file that usdtbuild knows", cure)
    if found[-1] == "make" and found[0] in ("setuptools", "autotools"):
        found.pop()  # which calls the other, or is made by it
    if len(found) > 1:
        raise InputError(str(root), f"can be built by {' or '.join(found)}", f"choose one with --for {found[0]}")
    return found[0]


def _backend(path: Path) -> str:
    """Return the build backend as `_BACKENDS` calls it, "" for one that isn't known. Raises InputError."""
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    try:
        system: Any = tomllib.loads(path.read_text(encoding="utf-8")).get("build-system", {})
        return _BACKENDS.get(str(system.get("build-backend", "setuptools.build_meta")).partition(":")[0], "")
    except (OSError, ValueError, AttributeError) as error:
        raise InputError(str(path), f"is no TOML that can be read: {error}") from None


class Build:
    """One copy of a project, built by what `kind` names; `scratch` is a folder for all that comes of it."""

    def __init__(self, kind: str, root: Path, scratch: Path, options: Sequence[str], tick: Tick) -> None:
        self.kind, self.root, self.options, self.tick = kind, root, list(options), tick
        self._build, self._log = scratch / "build", scratch / "log"
        self._results = scratch / "wheel"
        self.recorder = Recorder(scratch)
        self._runs: set[str] = set()
        self._isolated = False

    @cached_property
    def environment(self) -> dict[str, str]:
        """The variables of all that is run; versions that come from a repository's tags aren't there in a copy."""
        return {"SETUPTOOLS_SCM_PRETEND_VERSION": "0", **self.recorder.environment()}

    def configure(self) -> None:
        """Configure the copy. Raises BuildError and InputError."""
        if self.kind == "cmake":
            query = self._build / ".cmake/api/v1/query"
            query.mkdir(parents=True)
            (query / "codemodel-v2").touch()
            ninja = "CMAKE_GENERATOR" not in os.environ and any(
                os.access(Path(each, "ninja"), os.X_OK) for each in os.get_exec_path()
            )
            generator = ["-G", "Ninja"] if ninja else []
            self.run(["cmake", "-S", str(self.root), "-B", str(self._build), *generator, *self.options])
        elif self.kind == "meson":
            self.run(["meson", "setup", str(self._build), str(self.root), *self.options])
        elif self.kind == "autotools":
            if not (self.root / "configure").exists():
                self.run(["autoreconf", "-fi"])
            self.run(["./configure", *self.options])
        self.recorder.forget()

    def build(self) -> None:
        """Build the copy, again where something has changed. Raises BuildError and InputError."""
        jobs = str(len(os.sched_getaffinity(0)))
        if self.kind == "cmake":
            self.run(["cmake", "--build", str(self._build), "--verbose", "--parallel", jobs])
        elif self.kind == "meson":
            self.run(["meson", "compile", "-C", str(self._build), "-v"])
        elif self.kind in ("make", "autotools"):
            words = ["V=1", *(self.options if self.kind == "make" else ())]
            try:
                self.run(["make", f"-j{jobs}", *words])
            except BuildError:
                self.run(["make", *words])  # not every Makefile says all that one thing needs of another
        else:
            self._wheel()

    def _wheel(self) -> None:
        """Make a wheel and unpack its libraries: without build isolation if what it takes is installed."""
        kept = [f"build-dir={self._build}"] if self.kind == "scikit-build-core" else []
        settings = [f"--config-settings={word}" for word in [*kept, *self.options]]
        command = ["python3", "-m", "pip", "wheel", "--no-deps", "--disable-pip-version-check", "-v", *settings]
        isolation = [] if self._isolated else ["--no-build-isolation", "--check-build-dependencies"]
        wheels = self._results / "made"
        for old in wheels.glob("*.whl"):
            old.unlink()
        try:
            self.run([*command, *isolation, "-w", str(wheels), "."])
        except BuildError as error:
            # setuptools before 70.1 has no bdist_wheel without the package wheel, which it asks for in isolation only.
            if self._isolated or not any(one in str(error) for one in ("build dependencies", "'bdist_wheel'")):
                raise
            self._isolated = True
            self._wheel()
            return
        for wheel in wheels.glob("*.whl"):
            with zipfile.ZipFile(wheel) as opened:
                opened.extractall(
                    self._results / "content", [each for each in opened.namelist() if each.endswith(".so")]
                )

    def results(self, product: str) -> list[Path]:
        """Return the files in which a product is now that everything is built: itself, or those of its name."""
        if not self.is_python:
            return [Path(product)] if Path(product).is_file() else []
        return [path for path in self._contents() if path.name == Path(product).name]

    @property
    def is_python(self) -> bool:
        """Whether a wheel is built."""
        return self.kind not in ("cmake", "meson", "autotools", "make")

    def _contents(self) -> list[Path]:
        return sorted((self._results / "content").rglob("*.so"))

    def installed(self) -> Callable[[str], bool]:
        """Return what says of a product's real path whether the build system installs it."""
        if self.kind == "cmake":
            paths = set(self._cmake_installs())
        elif self.kind == "meson":
            said = self._ask(["meson", "introspect", "--installed", str(self._build)])
            paths = {os.path.realpath(path) for path in json.loads(said or "{}")}
        elif self.is_python:
            names = {path.name for path in self._contents()}
            return lambda path: Path(path).name in names
        else:  # -n: nothing is installed, it is only said what would be
            words = self.options if self.kind == "make" else []
            told = self._ask(["make", "-n", "install", *words])
            install = {Path(word).name for word in re.findall(r"[^\s'\";=]+", told)}
            for archive in [path for path in self.root.rglob("*.la") if path.name in install]:
                made = _MADE_BY_LIBTOOL.findall(archive.read_text("utf-8", "replace"))
                install.update(" ".join(made).split())
            return lambda path: Path(path).name in install
        return lambda path: path in paths

    def _cmake_installs(self) -> Iterator[str]:
        """Yield the real paths of what targets with an install rule make, as CMake's file API says."""
        for reply in (self._build / ".cmake/api/v1/reply").glob("target-*.json"):
            target = json.loads(reply.read_text(encoding="utf-8"))
            if target.get("install"):
                for artifact in target.get("artifacts", ()):
                    yield os.path.realpath(self._build / artifact["path"])

    def runs(self, product: str) -> bool:
        """Whether the build itself has run a product, as it runs what makes sources."""
        return Path(product).name in self._runs

    def survives_cleaning(self, paths: Sequence[Path]) -> bool:
        """Whether files are still there after `make clean`; other build systems keep their hands off sources."""
        if self.kind in ("make", "autotools"):
            self._ask(["make", "clean"])
        return all(path.exists() for path in paths)

    def _ask(self, command: list[str]) -> str:
        """Return what a command prints; "" where it fails. Raises InputError."""
        try:
            done = subprocess.run(
                command, cwd=self.root, env=self.environment, capture_output=True, check=False, stdin=subprocess.DEVNULL
            )
        except OSError as error:
            raise _not_run(command[0], error) from None
        return done.stdout.decode("utf-8", "replace") if not done.returncode else ""

    def run(self, command: list[str]) -> None:
        """Run a command in the copy, to its end. Raises BuildError and InputError."""
        with self._log.open("w+b") as log:
            try:
                process = subprocess.Popen(
                    command, cwd=self.root, env=self.environment, stdout=log.fileno(), stderr=subprocess.STDOUT,
                    stdin=subprocess.DEVNULL,
                )  # fmt: skip
            except OSError as error:
                raise _not_run(command[0], error) from None
            with self._log.open("rb") as said:
                try:
                    last = self._follow(process, said, command)
                except BaseException:
                    process.terminate()
                    process.wait()
                    raise
        if process.returncode:
            raise BuildError(command, process.returncode, last)

    def _follow(self, process: subprocess.Popen[bytes], said: Any, command: list[str]) -> list[str]:
        """Read what a command says until it ends; return its last lines."""
        last, rest, ended = deque[str](maxlen=_LAST_LINES), b"", False
        while True:
            data = said.read(1 << 20)
            *lines, rest = (rest + data).split(b"\n")
            for line in (each.decode("utf-8", "replace") for each in lines):
                if line.strip():
                    last.append(line[:500])
                self._runs |= {Path(word).name for word in _RUN.findall(line[:10_000])}
            if data:
                continue
            if ended:
                return [*last, *([rest.decode("utf-8", "replace")[:500]] if rest.strip() else [])]
            self.tick(last[-1] if last else " ".join(command))
            try:
                process.wait(0.1)
                ended = True
            except subprocess.TimeoutExpired:
                pass


def _not_run(program: str, error: OSError) -> InputError:
    cure = f"install it (Debian: {_PACKAGES.get(program, program)})"
    return InputError(program, f"can't be run: {reason(error)}", cure)
