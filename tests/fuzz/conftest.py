"""What the fuzzers share: seeds of every machine that a compiler here knows, and a command that is run within bounds.

The number of cases is fixed, and so is what each of them is, so that `make test` says the same anywhere. With
FUZZ_SECONDS in the environment (`make fuzz`) each fuzzer goes on for that long, from a beginning that FUZZ_SEED names;
what fails is left in .cache/fuzz.
"""

from __future__ import annotations

import json
import os
import platform
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

HERE = Path(__file__).resolve().parent
KEPT = HERE.parent.parent / ".cache/fuzz"
MEMORY, SECONDS = 500 << 20, 5
# Machine -> clang's target, the prefix of the GNU tools.
MACHINES = {
    "x86-64": ("x86_64-linux-gnu", "x86_64-linux-gnu-"), "i386": ("i686-linux-gnu", "i686-linux-gnu-"),
    "aarch64": ("aarch64-linux-gnu", "aarch64-linux-gnu-"), "arm": ("armv7-linux-gnueabihf", "arm-linux-gnueabihf-"),
    "ppc64": ("powerpc64-linux-gnu", "powerpc64-linux-gnu-"), "s390x": ("s390x-linux-gnu", "s390x-linux-gnu-"),
    "ppc64le": ("powerpc64le-linux-gnu", "powerpc64le-linux-gnu-"),
    "riscv64": ("riscv64-linux-gnu", "riscv64-linux-gnu-"), "mips": ("mips-linux-gnu", "mips-linux-gnu-"),
    "mips64el": ("mips64el-linux-gnuabi64", "mips64el-linux-gnuabi64-"),
    "sparc64": ("sparc64-linux-gnu", "sparc64-linux-gnu-"), "loongarch64": ("loongarch64-linux-gnu", ""),
}  # fmt: skip
HOST = "x86-64" if platform.machine() == "x86_64" else platform.machine()
PROVIDER = "provider app { probe start(); probe req__done(int fd, char *name, int64_t n); };\n"
SOURCE = """
#include "app.h"
void (*pointer)(void) = __dtrace_app___start;
static __attribute__((noinline)) int inner(int n) { APP_REQ_DONE(n, "x", 7); return n * 2; }
int work(int n) { if (APP_REQ_DONE_ENABLED()) APP_REQ_DONE(n, "y", n); APP_START(); return inner(n); }
__attribute__((noinline)) int other(int n) { while (n-- > 3) APP_START(); return n; }
"""
# In C++ the inline function, and with it a site, is in a group.
SHARED = "inline int shared(int n) { APP_START(); return n + 1; }\nint use(int n) { return shared(n); }\n"


class Seed(NamedTuple):
    """A good file: of which machine, and what it is."""

    machine: str
    kind: str
    content: bytes

    def __str__(self) -> str:
        return f"{self.machine}-{self.kind}"


class Answer(NamedTuple):
    """What became of a command: exit code (negative: a signal), processor time in s, memory in bytes, output."""

    code: int
    seconds: float
    memory: int
    out: str
    err: str


class Server:
    """Runs commands in children of a process that has imported the product already."""

    def __init__(self) -> None:
        """Start it."""
        self.process = subprocess.Popen(
            [sys.executable, HERE / "server.py"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def run(self, folder: Path, *command: object) -> Answer:
        """Run `usdtbuild` or `dtrace` in a folder."""
        assert self.process.stdin
        assert self.process.stdout
        print(json.dumps({"cwd": str(folder), "command": [str(word) for word in command]}), file=self.process.stdin)
        self.process.stdin.flush()
        return Answer(**json.loads(self.process.stdout.readline()))

    def end(self) -> None:
        """End it."""
        self.process.communicate(timeout=60)


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    server = Server()
    yield server
    server.end()


def tool(machine: str, name: str) -> str | None:
    """Return the path of a GNU tool for a machine's files, or of LLVM's, which know all machines, or None."""
    prefix = MACHINES[machine][1]
    others = {"ld": ("ld.lld-19", "ld.lld"), "strip": ("llvm-strip-19", "llvm-strip"),
              "objcopy": ("llvm-objcopy-19", "llvm-objcopy")}[name]  # fmt: skip
    return next(filter(None, map(shutil.which, (*([f"{prefix}{name}"] if prefix else []), *others))), None)


def compilers(machine: str) -> Iterator[list[str]]:
    """Return the commands that may compile for a machine."""
    target, prefix = MACHINES[machine]
    if machine == "x86-64":
        yield ["gcc"]
    yield [f"{prefix}gcc"]
    for clang in ("clang-19", "clang"):
        yield [clang, f"--target={target}"]


def build(machine: str, folder: Path, server: Server) -> list[Seed]:
    """Return a machine's seeds, as far as there are a compiler and a linker for it."""
    command = next((words for words in compilers(machine) if shutil.which(words[0]) and compiles(words, folder)), None)
    if command is None:
        return []
    made, linked = folder / "made.o", folder / "linked"
    patchable = ["-fpatchable-function-entry=4,2"]
    if subprocess.run([*command, *patchable, "-c", "app.c", "-o", "app.o"], cwd=folder, capture_output=True,
                      check=False).returncode:  # fmt: skip
        patchable = []
    seeds = []
    for kind, language in (("object", "c"), ("group", "c++")):
        words = [*command, *patchable, "-O1", "-g", "-fPIC", "-ffunction-sections", "-x", language]
        words += ["-fno-exceptions", "-w", "-c", "app.c" if language == "c" else "app.cc", "-o", "app.o"]
        if subprocess.run(words, cwd=folder, capture_output=True, check=False).returncode:
            continue  # gcc without C++
        seeds.append(Seed(machine, kind, (folder / "app.o").read_bytes()))
        # Together the three formats are read by every reader; a machine without a relocation for DOF has the others.
        for formats in ("stapsdt,dof,usdt", "stapsdt,usdt"):
            answer = server.run(folder, "usdtbuild", "instrument", "app.o", "-o", made.name, "--formats", formats)
            if not answer.code:
                break
        assert answer.code == 0, f"{machine}: {answer.err}"
        seeds.append(Seed(machine, f"instrumented-{kind}", made.read_bytes()))
        linker = tool(machine, "ld")
        for what, link in (("library", ["-shared"]), ("program", ["-e", "work"])):
            words = [linker or "false", *link, str(made), "-o", str(linked)]
            if not subprocess.run(words, capture_output=True, check=False).returncode:
                seeds.append(Seed(machine, f"{what}-{kind}", linked.read_bytes()))
    words = [*command, "-O1", "-fPIC", "-w", "-DUSDT_PROBES_BY_CALL", "-c", "app.c", "-o", "app.o"]
    if not subprocess.run(words, cwd=folder, capture_output=True, check=False).returncode:
        seeds.append(Seed(machine, "calls", (folder / "app.o").read_bytes()))
    return seeds


def compiles(words: list[str], folder: Path) -> bool:
    """Tell whether a compiler knows its target."""
    done = subprocess.run([*words, "-w", "-c", "app.c", "-o", "app.o"], cwd=folder, capture_output=True, check=False)
    return done.returncode == 0


@pytest.fixture(scope="session")
def seeds(tmp_path_factory: pytest.TempPathFactory, server: Server) -> list[Seed]:
    """Good files of each machine: objects, instrumented ones, shared libraries and programs."""
    folder = tmp_path_factory.mktemp("seeds")
    (folder / "app.d").write_text(PROVIDER)
    assert server.run(folder, "usdtbuild", "header", "--formats=dof", "app.d").code == 0
    (folder / "app.c").write_text(SOURCE)
    (folder / "app.cc").write_text(SOURCE + SHARED)
    found = [seed for machine in MACHINES for seed in build(machine, folder, server)]
    if not found:
        pytest.skip("no compiler is installed")
    return found


class Case(NamedTuple):
    """One case: its name, from which it can be made again, and the numbers that decide it."""

    name: str
    source: random.Random


@pytest.fixture
def cases(request: pytest.FixtureRequest) -> Callable[[int], Iterator[Case]]:
    """Return the cases of a fuzzer: so many, or with FUZZ_SECONDS as many as can be had in that time."""

    def each(count: int) -> Iterator[Case]:
        seconds = float(os.environ.get("FUZZ_SECONDS", "0"))
        begin = os.environ.get("FUZZ_SEED", str(time.time_ns()) if seconds else "0")
        until, number = time.monotonic() + seconds, 0
        while time.monotonic() < until if seconds else number < count:
            name = f"{request.node.originalname} {begin} {number}"
            yield Case(name, random.Random(name))
            number += 1
        request.node.user_properties.append(("cases", f"{number} cases, FUZZ_SEED={begin}"))

    return each


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Say how many cases each fuzzer has had."""
    for reports in terminalreporter.stats.values():
        for report in reports:
            for name, said in getattr(report, "user_properties", ()):
                if name == "cases" and report.when == "call":
                    terminalreporter.write_line(f"{report.nodeid.partition('::')[2]}: {said}")


@pytest.fixture
def attempt(server: Server, tmp_path: Path) -> Callable[..., Answer]:
    """Run a command on one changed file, in a folder that has nothing else, and hold it to what is promised of all.

    `attempt(case, content, "input.o", "usdtbuild", "instrument", "input.o", "-o", "out.o", output="out.o")`
    """

    def run(case: Case, content: bytes, name: str, *command: object, output: str = "") -> Answer:
        folder = tmp_path / "case"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        (folder / name).write_bytes(content)
        answer = server.run(folder, *command)
        wrong = []
        if "Traceback" in answer.err or answer.code not in (0, 1):
            wrong.append(f"it ended with {answer.code}")
        if answer.code == 1 and not answer.err and not answer.out:
            wrong.append("it failed without a word")
        if answer.seconds > SECONDS:
            wrong.append(f"it took {answer.seconds:.1f} s")
        if answer.memory > MEMORY:
            wrong.append(f"it took {answer.memory >> 20} MB")
        if (folder / name).read_bytes() != content:
            wrong.append("it changed its input")
        left = {path.name for path in folder.iterdir()} - {name}
        if left - {output} or (answer.code and left):
            wrong.append(f"it left {', '.join(sorted(left))}")
        if wrong:
            KEPT.mkdir(parents=True, exist_ok=True)
            kept = KEPT / f"{case.name.replace(' ', '-')}-{name}"
            kept.write_bytes(content)
            words = " ".join(map(str, command))
            pytest.fail(f"{case.name}: {words}: {'; '.join(wrong)}\n{answer.err[-3000:]}\n{kept}", pytrace=False)
        return answer

    return run


@pytest.fixture
def made(tmp_path: Path) -> Path:
    """The folder in which the last attempt was made."""
    return tmp_path / "case"


def pick(seeds: list[Seed], *kinds: str) -> list[Seed]:
    """Return the seeds of some kinds."""
    return [seed for seed in seeds if seed.kind in kinds]


Attempt = Callable[..., Any]
