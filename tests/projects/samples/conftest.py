"""The life of every sample, built with a wheel of this checkout: what each build compiles, and whether probes fire.

The folders here are the matrix: build system, which version of it, and the generator below it. Each builds the samples
of its build system in its way. One table says of each sample what there is to edit and what is to be seen; one class
for each build system says how to build. Every test takes a copy of a sample through its whole life, because each step
needs the one before. cmake-hello, with more steps and on all CMakes by default, is in ../test_cmake_builds.py too.
"""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from usdtbuild.pytest_plugin.user import Usdt
from usdtbuild.tracing.job import Job
from usdtbuild.tracing.others import watching
from usdtbuild.tracing.selection import Wanted

ROOT = Path(__file__).resolve().parent.parent.parent.parent
CACHE = ROOT / ".cache"


class Sample(NamedTuple):
    """What there is to edit in a sample, and what is to be seen. Edits are a file, what stands there, what shall.

    `sources` are what the first build compiles; `users`, what includes the header of `provider`. `fire` is a command,
    or for an extension module what Python runs; `hits` are probes that it fires, with their arguments.
    """

    system: str
    sources: tuple[str, ...]
    provider: str
    users: tuple[str, ...]
    source_edit: tuple[str, str, str]
    wrong_use: tuple[str, str, str]
    binary: str
    fire: tuple[str, ...]
    hits: tuple[tuple[str, tuple[Any, ...]], ...]


SAMPLES = {
    "cmake-hello": Sample(
        "cmake", ("greeting.c", "journal.cpp", "main.c"), "hello.d", ("greeting.c", "main.c"),
        ("greeting.c", "return strlen(text)", "return 0 + strlen(text)"),
        ("journal.cpp", "JOURNAL_APPEND(line, lines)", "JOURNAL_APPEND(line)"),
        "hello", ("hello", "Ada"),
        (("hello:start", (1, "Ada")), ("hello:greet__begin", ("Ada",)), ("hello:greet__done", ("Ada", 1, 11)),
         ("hello:finish", (1, 11))),
    ),
    "cmake-library": Sample(
        "cmake", ("tally.c",), "tally.d", ("tally.c",),
        ("tally.c", "return -1", "return 0 - 1"),
        ("tally.c", "TALLY_ADD(name, count, tallies[i].total)", "TALLY_ADD(name)"),
        "consumer/consumer", ("consumer/consumer", *"abcdefghi", "a"),
        (*(("tally:add", (word, 1, 1)) for word in "abcdefgh"), ("tally:full", ("i",)), ("tally:add", ("a", 1, 2))),
    ),
    "cpp-templates": Sample(
        "cmake", ("main.cpp", "words.cpp"), "ring.d", ("main.cpp", "words.cpp"),
        ("words.cpp", "i < count", "i + 0 < count"),
        ("ring.hpp", "RING_DROP(this, Room)", "RING_DROP(this, Room, 1)"),
        "ring", ("ring", "one", "two", "three"), (),
    ),
    "meson-hello": Sample(
        "meson", ("greeting.c", "journal.cpp", "main.c"), "hello.d", ("greeting.c", "main.c"),
        ("greeting.c", "return strlen(text)", "return 0 + strlen(text)"),
        ("journal.cpp", "JOURNAL_APPEND(line, lines)", "JOURNAL_APPEND(line)"),
        "hello", ("hello", "Ada"),
        (("hello:start", (1, "Ada")), ("hello:greet__begin", ("Ada",)), ("hello:greet__done", ("Ada", 1, 11)),
         ("hello:finish", (1, 11))),
    ),
    "meson-python-extension": Sample(
        "meson-python", ("_core.c",), "primes.d", ("_core.c",),
        ("src/primes/_core.c", "limit < 2", "2 > limit"),
        ("src/primes/_core.c", "PRIMES_CROSSED_OUT(n, multiples)", "PRIMES_CROSSED_OUT(n)"),
        "_core.*.so", ("import primes; primes.count(10)",),
        (("primes:sieve__start", (10,)), ("primes:crossed__out", (2, 4)), ("primes:crossed__out", (3, 1)),
         ("primes:sieve__done", (10, 4))),
    ),
    "setuptools-extension": Sample(
        "setuptools", ("_core.c",), "wordcount.d", ("_core.c",),
        ("src/wordcount/_core.c", "start = i + 1", "start = 1 + i"),
        ("src/wordcount/_core.c", "WORDCOUNT_WORD((size_t)start, (size_t)(i - start))", "WORDCOUNT_WORD(1)"),
        "_core.*.so", ("import wordcount; wordcount.count('to be')",),
        (("wordcount:count__start", ("to be", 5)), ("wordcount:word", (0, 2)), ("wordcount:word", (3, 2)),
         ("wordcount:count__done", (2,))),
    ),
    "pybind11-extension": Sample(
        "setuptools", ("ledger.cpp",), "ledger.d", ("ledger.cpp",),
        ("src/ledger.cpp", "balance_ += amount", "balance_ += amount + 0"),
        ("src/ledger.cpp", "LEDGER_WITHDRAW(owner_.c_str(), amount, balance_)", "LEDGER_WITHDRAW(amount)"),
        "ledger.*.so", ("import ledger; a = ledger.Account('Ada'); a.deposit(7); a.withdraw(3)",),
        (("ledger:deposit", ("Ada", 7, 7)), ("ledger:withdraw", ("Ada", 3, 4))),
    ),
    "scikit-build-core-extension": Sample(
        "scikit-build-core", ("_core.c",), "checksum.d", ("_core.c",),
        ("src/checksum/_core.c", "low + data[i]", "data[i] + low"),
        ("src/checksum/_core.c", "CHECKSUM_UPDATE_START(length, before)", "CHECKSUM_UPDATE_START(length)"),
        "_core.*.so", ("import checksum; checksum.adler32(b'Wikipedia')",),
        (("checksum:update__start", (9, 1)), ("checksum:update__done", (9, 0x11E60398))),
    ),
}  # fmt: skip


class Variant(NamedTuple):
    """One way of building: the build tool's version ("system", "oldest", "newest") and the generator below it."""

    tool: str
    generator: str


CMAKES = [Variant(tool, way) for tool in ("oldest", "system", "newest") for way in ("Ninja", "Unix Makefiles")]
# The versions that each build system is tried with. The first of each is what every test run takes.
VARIANTS = {
    "cmake": [Variant("system", "Ninja"), *(one for one in CMAKES if one != Variant("system", "Ninja"))],
    "meson": [Variant("newest", "Ninja"), Variant("oldest", "Ninja")],
    "setuptools": [Variant("newest", "")],
    "scikit-build-core": [Variant("system", "Ninja"), Variant("newest", "Ninja"), Variant("newest", "Unix Makefiles")],
    "meson-python": [Variant("newest", "Ninja")],
}
# Ten seconds a compilation: in every test run it is built once, its provider file is touched, and its probes fired.
SLOW_TO_COMPILE = "pybind11-extension"


def folder_of(system: str, variant: Variant) -> str:
    """The folder with the tests of a build system in one variant: `cmake-oldest-make`."""
    generator = {"Ninja": "ninja", "Unix Makefiles": "make", "": ""}[variant.generator]
    return "-".join(filter(None, (system, variant.tool, generator)))


FOLDERS = {folder_of(system, one): (system, one) for system, variants in VARIANTS.items() for one in variants}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Give `sample` its values: the samples of the folder's build system."""
    if "sample" in metafunc.fixturenames:
        system, variant = FOLDERS[Path(metafunc.module.__file__ or "").parent.name]
        first = variant == VARIANTS[system][0]
        marks = [pytest.mark.project, pytest.mark.live("gdb")]
        for_all = [] if first else [pytest.mark.slow]
        found = []
        for name in (name for name, sample in SAMPLES.items() if sample.system == system):
            slow = [pytest.mark.slow] if name == SLOW_TO_COMPILE else []
            found.append(pytest.param((name, True), id=name, marks=[*marks, *(for_all or slow)]))
            if slow and first:
                found.append(pytest.param((name, False), id=f"{name}-short", marks=marks))
        metafunc.parametrize("sample", found)


# --- how each build system builds -----------------------------------------------------------------------------------


class Builder:
    """A copy of a sample, and the commands that build it with a compiler that counts."""

    build_folder = "build"

    def __init__(
        self, run: Any, folder: Path, sample: Sample, variant: Variant, python: tuple[Path, dict[str, str]]
    ) -> None:
        self.run, self.sample, self.variant = run, sample, variant
        self.source, self.log = folder / "source", folder / "compiled"
        self.python = python[0]
        self.environment = {**python[1], "CC": self.counting(folder, "gcc"), "CXX": self.counting(folder, "g++")}
        if sample.system == "setuptools":  # with the flags of a Python, pybind11's templates take 12 seconds each time
            self.environment.update(CFLAGS="-O0 -g0", CXXFLAGS="-O0 -g0")

    def counting(self, folder: Path, compiler: str) -> str:
        """Write a compiler that writes down what it is asked to compile."""
        script = folder / compiler
        script.write_text(f'#!/bin/sh\nprintf "%s\\n" "$*" >> {shlex.quote(str(self.log))}\nexec {compiler} "$@"\n')
        script.chmod(0o755)
        return str(script)

    @property
    def build(self) -> Path:
        return self.source / self.build_folder

    def first(self) -> list[list[Any]]:
        """The commands of the first build."""
        raise NotImplementedError

    def again(self, jobs: int = 2) -> list[Any]:
        """The command of every other build."""
        raise NotImplementedError

    def clean(self) -> None:
        """Remove what was built, and leave what was configured."""
        self.do([*self.again(), "--target", "clean"])

    def finish(self) -> None:
        """Do what comes between the build and the use of what was built."""

    def binary(self) -> Path:
        """The file with the probes."""
        return next(path for path in sorted(self.build.rglob(self.sample.binary)) if "_skbuild" not in str(path))

    def command(self) -> list[str]:
        """The command that fires the probes."""
        return [str(self.build / self.sample.fire[0]), *self.sample.fire[1:]]

    def do(self, command: list[Any], code: int | None = 0) -> str:
        done = self.run(*command, cwd=self.source, env=self.environment, code=code)
        return str(done.stdout + done.stderr)

    def start(self, command: list[Any]) -> subprocess.Popen[bytes]:
        words = [str(word) for word in command]
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        return subprocess.Popen(words, cwd=self.source, env=self.environment, **quiet)

    def compiled(self) -> list[str]:
        """The sample's sources that were compiled since the last call, sorted."""
        if not self.log.exists():
            return []
        lines = self.log.read_text().splitlines()
        self.log.unlink()
        words = [word for line in lines if " -c " in f"{line} " for word in line.split()]
        return sorted(Path(word).name for word in words if Path(word).name in self.sample.sources)

    def edit(self, name: str, old: str, new: str) -> None:
        time.sleep(0.05)
        path = self.source / name
        text = path.read_text()
        assert old in text, f"{name} doesn't contain {old!r}"
        path.write_text(text.replace(old, new))


class CMake(Builder):
    """Configured as the samples' READMEs say."""

    def tool(self) -> str:
        return cmake_of(self.variant.tool)

    def first(self) -> list[list[Any]]:
        folder = self.run(self.python.parent / "usdtbuild", "--cmake-dir", env=self.environment).stdout.strip()
        configure = [self.tool(), "-S", ".", "-B", "build", "-G", self.variant.generator, f"-DUSDTBuild_DIR={folder}"]
        return [configure, self.again()]

    def again(self, jobs: int = 2) -> list[Any]:
        return [self.tool(), "--build", "build", "-j", jobs]

    def finish(self) -> None:
        if not (self.source / "consumer").exists():
            return
        self.do([self.tool(), "--install", "build", "--prefix", "installed"])
        there = f"-DCMAKE_PREFIX_PATH={self.source / 'installed'}"
        generator = ["-G", self.variant.generator]
        self.do([self.tool(), "-S", "consumer", "-B", "build/consumer", *generator, there])
        self.do([self.tool(), "--build", "build/consumer"])


class Setuptools(Builder):
    """`setup.py build_ext --inplace`, which is what an editable install runs."""

    build_folder = "src"

    def first(self) -> list[list[Any]]:
        return [self.again()]

    def again(self, jobs: int = 2) -> list[Any]:
        return [self.python, "setup.py", "build_ext", "--inplace", "-j", jobs]

    def clean(self) -> None:
        self.do([self.python, "setup.py", "clean", "--all"])
        self.binary().unlink()

    def command(self) -> list[str]:
        return [str(self.python), "-c", f"import sys; sys.path.insert(0, 'src'); {self.sample.fire[0]}"]


class WheelBuilder(Builder):
    """A wheel built by pip in a folder that stays; then the build tool below is run as often as something changes."""

    def pip_wheel(self, *settings: str) -> list[Any]:
        options = ["--no-build-isolation", "--no-deps", "--config-settings=build-dir=build", *settings, "-w", "dist"]
        return [sys.executable, "-m", "pip", "--python", self.python, "wheel", *options, "."]

    def finish(self) -> None:
        shutil.rmtree(self.source / "dist", ignore_errors=True)
        self.do(self.first()[0])
        (wheel,) = (self.source / "dist").glob("*.whl")
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(self.source / "unpacked")

    def binary(self) -> Path:
        return next((self.source / "unpacked").rglob(self.sample.binary))

    def command(self) -> list[str]:
        return [str(self.python), "-c", f"import sys; sys.path.insert(0, 'unpacked'); {self.sample.fire[0]}"]


class ScikitBuildCore(WheelBuilder):
    def first(self) -> list[list[Any]]:
        self.environment["CMAKE_EXECUTABLE"] = cmake_of(self.variant.tool)
        self.environment["CMAKE_GENERATOR"] = self.variant.generator
        return [self.pip_wheel()]

    def again(self, jobs: int = 2) -> list[Any]:
        return [cmake_of(self.variant.tool), "--build", "build", "-j", jobs]


class Meson(Builder):
    def tool(self) -> list[Any]:
        folder = CACHE / f"meson-{self.variant.tool}"
        if not folder.exists():
            pytest.skip(f"{folder} is missing; `make test` installs it")
        self.environment["PYTHONPATH"] = str(folder)
        return [self.python, "-m", "mesonbuild.mesonmain"]

    def first(self) -> list[list[Any]]:
        return [[*self.tool(), "setup", "build"], self.again()]

    def again(self, jobs: int = 2) -> list[Any]:
        return ["ninja", "-C", "build", f"-j{jobs}"]

    def clean(self) -> None:
        self.do(["ninja", "-C", "build", "-t", "clean"])


class MesonPython(WheelBuilder):
    def first(self) -> list[list[Any]]:
        return [self.pip_wheel()]

    def again(self, jobs: int = 2) -> list[Any]:
        return ["ninja", "-C", "build", f"-j{jobs}"]

    def clean(self) -> None:
        self.do(["ninja", "-C", "build", "-t", "clean"])


BUILDERS = {
    "cmake": CMake,
    "setuptools": Setuptools,
    "scikit-build-core": ScikitBuildCore,
    "meson": Meson,
    "meson-python": MesonPython,
}


def cmake_of(version: str) -> str:
    """The path of a CMake by name."""
    path = CACHE / f"cmake-{version}/cmake/data/bin/cmake" if version != "system" else shutil.which("cmake")
    if path is None or not Path(path).exists():
        pytest.skip(f"{path or 'cmake'} is missing; `make test` installs it")
    return str(path)


# --- one life ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def builder_of(request: Any, tmp_path: Path, run: Any, build_backends: Any, need: Any) -> Callable[[str], Any]:
    """Copy a sample, to be built as the test's folder says: `builder_of("cmake-hello")`."""

    def copy(name: str) -> Builder:
        _, variant = FOLDERS[request.path.parent.name]
        need("make" if "Makefiles" in variant.generator else "ninja")
        sample = SAMPLES[name]
        builder: Builder = BUILDERS[sample.system](run, tmp_path, sample, variant, build_backends)
        leftovers = shutil.ignore_patterns("build", "installed", "*.so", "__pycache__", "*.egg-info")
        shutil.copytree(ROOT / "sample_projects" / name, builder.source, ignore=leftovers)
        return builder

    return copy


@pytest.fixture
def live(builder_of: Callable[[str], Any], end_build: Any) -> Callable[[tuple[str, bool]], None]:
    """Take a sample through its life: `live(sample)`."""

    def all_of_it(sample: tuple[str, bool]) -> None:
        name, whole = sample
        one_life(builder_of(name), whole, end_build)

    return all_of_it


def one_life(builder: Builder, whole: bool, end_build: Any) -> None:
    for command in builder.first():
        builder.do(command)
    assert builder.compiled() == sorted(builder.sample.sources), "first build"
    no_op(builder)

    touched(builder)
    if whole:
        edits(builder, end_build)
    builder.finish()
    look(builder)
    fire(builder)


def edits(builder: Builder, end_build: Any) -> None:
    """Everything that compiles something."""
    builder.edit(*builder.sample.source_edit)
    builder.do(builder.again())
    assert builder.compiled() == [Path(builder.sample.source_edit[0]).name], "edit of a source"

    new_probe(builder)
    wrong_use(builder)
    interrupted(builder, end_build)
    no_op(builder)

    builder.clean()
    builder.do(builder.again(jobs=8))
    assert builder.compiled() == sorted(builder.sample.sources), "build after cleaning"
    no_op(builder)


def no_op(builder: Builder) -> None:
    """Nothing has changed, so no compiler runs."""
    builder.do(builder.again())
    assert builder.compiled() == [], "build of what is built already"


def new_probe(builder: Builder) -> None:
    """Another probe in the provider file compiles the users of its header, and no others."""
    provider = builder.sample.provider
    for old, new in (("};", "\tprobe more(long);\n};"), ("\tprobe more(long);\n};", "};")):
        builder.edit(provider, old, new)
        builder.do(builder.again())
        assert builder.compiled() == sorted(builder.sample.users), f"edit of {provider}"
    no_op(builder)


def touched(builder: Builder) -> None:
    """A provider file with another date compiles nothing."""
    time.sleep(0.05)
    (builder.source / builder.sample.provider).touch()
    builder.do(builder.again())
    assert builder.compiled() == [], f"touched {builder.sample.provider}"


def wrong_use(builder: Builder) -> None:
    """Too few arguments stop the build with the macro's name; mended, the next build is right."""
    file, good, bad = builder.sample.wrong_use
    builder.edit(file, good, bad)
    macro = good.partition("(")[0]
    said = builder.do(builder.again(), code=None)
    assert re.search(rf"{re.escape(Path(file).name)}:\d+.*error", said), said
    assert re.search(rf'macro ["‘]{macro}["’]', said), said  # GCC 16 has other quotes
    builder.edit(file, bad, good)
    builder.do(builder.again())
    builder.compiled()
    no_op(builder)


def interrupted(builder: Builder, end_build: Any) -> None:
    """A build that is killed in the middle goes on where it stopped."""
    for pause in (0.0, 0.05) if builder.sample.system != "setuptools" else (0.02,):
        builder.compiled()
        builder.edit(builder.sample.provider, "};", "\tprobe killed(long);\n};")
        building = builder.start(builder.again())
        end_build(building, builder.variant.generator, builder.log, pause)
        builder.do(builder.again())
        builder.edit(builder.sample.provider, "\tprobe killed(long);\n};", "};")
        builder.do(builder.again())
        builder.compiled()


def look(builder: Builder) -> None:
    """What `usdtbuild list` and `usdtbuild verify` say of the result."""
    tool, binary = builder.python.parent / "usdtbuild", builder.binary()
    shown = builder.run(tool, "list", binary, env=builder.environment).stdout
    declared = re.findall(r"^\s*probe (\w+)", (builder.source / builder.sample.provider).read_text(), re.M)
    for probe in declared:
        assert re.search(rf":{probe}\b", shown), shown
    builder.run(tool, "verify", "--provider", builder.source / builder.sample.provider, binary, env=builder.environment)


def fire(builder: Builder) -> None:
    """The probes fire, with gdb and, where that can be had, with bpftrace."""
    tracers = ["gdb"] + (["bpftrace"] if not watching.why_not(Job(Wanted())) else [])
    for tracer in tracers:
        usdt = Usdt(tracer, True, builder.source)
        ran = usdt.run(builder.command(), binary=builder.binary(), cwd=builder.source, env=builder.environment)
        assert ran.returncode == 0, ran.stderr
        seen = [(f"{hit.provider}:{hit.probe}", hit.args) for hit in ran.hits]
        if builder.sample.binary == "ring":  # arguments that are addresses
            rings_hits(ran.hits, tracer)
            continue
        expected = list(builder.sample.hits)
        if builder.sample.provider == "hello.d":  # its journal is another file
            seen = [hit for hit in seen if hit[0].startswith("hello:")]
        assert seen == expected, tracer


def rings_hits(hits: Any, tracer: str) -> None:
    """Three words: each goes into a ring of strings and two of integers, each with room for two."""
    sizes = [hit.args[2] for hit in hits["ring:push"]]
    assert sorted(sizes) == [4] * 6 + [32] * 3, tracer
    assert [hit.args[1] for hit in hits["ring:drop"]] == [2] * 3, tracer
    assert [hit.args[1] for hit in hits["ring:drain"]] == [2] * 3, tracer
    assert len({hit.args[0] for hit in hits}) == 3, tracer
