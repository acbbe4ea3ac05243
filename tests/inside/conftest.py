"""Programs that switch their own probes and functions, with the live runtime compiled into them.

The runtime is compiled once for each compiler. Programs are built by the public commands and run for themselves: what
they print is what the tests look at.
"""

from __future__ import annotations

import platform
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).resolve().parent
RUNTIME = HERE.parent.parent / "usdtbuild" / "runtime" / "live"
WARNINGS = ("-Wall", "-Wextra", "-Werror")

Build = Callable[..., Path]
# case -> (enters, leaves, and their order where it is short); None: more than one order or number is right
CASES: dict[str, tuple[int | None, int | None, str]] = {
    "recursion": (11, 11, "+recurse" * 11 + "-recurse" * 11),
    "struct": (1, 1, "+struct-struct"),
    "double": (1, 1, "+double-double"),
    "long-double": (1, 1, "+long_double-long_double"),
    "wide": (1, 1, "+wide-wide"),
    "exception": (5, 1, "+catches+throws+throws+throws+throws-catches"),
    "exception-of-jump": (10, 3, ""),
    "many-exceptions": (None, None, ""),
    "longjmp": (None, None, ""),
    "many-longjmps": (None, None, ""),
    "tail": (3, 3, ""),
    "coroutine": (None, None, ""),
    "coroutine-moves": (None, None, ""),
    "signal": (2, 2, "+raises+in_handler-in_handler-raises"),
    "signal-stack": (2, 2, "+raises+in_handler-in_handler-raises"),
    "thread": (11001, 11001, ""),
    "thread-exit": (None, None, ""),
    "thread-cancel": (1, 0, "+cancelled"),
    "deep": (20001, 4080, ""),
    "after-deep": (11, 11, "+recurse" * 11 + "-recurse" * 11),
    "fast": (202, 202, ""),
}


@pytest.fixture(scope="session")
def native() -> None:
    """Skip where this machine's own programs have no live runtime."""
    if platform.machine() != "x86_64" or not sys.platform.startswith("linux"):
        pytest.skip("the native live runtime is for x86-64 Linux; others run under qemu")


@pytest.fixture(scope="session")
def runtime(run: Any, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., list[Path]]:
    """Return the runtime's objects for a compiler and its options: `runtime("gcc", "-O2")`."""
    made: dict[tuple[str, ...], list[Path]] = {}

    def compile_runtime(*compiler: str) -> list[Path]:
        if compiler not in made:
            folder = tmp_path_factory.mktemp("runtime")
            made[compiler] = []
            for source in sorted(RUNTIME.glob("*.c")):
                made[compiler].append(folder / f"{source.stem}.o")
                run(*compiler, "-std=gnu99", *WARNINGS, "-c", source, "-o", made[compiler][-1])
        return made[compiler]

    return compile_runtime


@pytest.fixture(scope="session")
def build(run: Any, runtime: Any, usdtbuild: Any, tmp_path_factory: pytest.TempPathFactory) -> Build:
    """Build a program of this folder with the runtime, each once: `build("stress_probes.c", "gcc", "-no-pie")`.

    Its probes are complete by their header, or, for programs that write calls of stubs themselves, post-processed.
    """
    made: dict[tuple[Any, ...], Path] = {}

    def build_program(
        source: str | Path, compiler: str = "gcc", *link: str, cc: str = "", flags: tuple[str, ...] = ("-O2",),
        runtime_flags: tuple[str, ...] = ("-O2",),
    ) -> Path:  # fmt: skip
        key = (source, compiler, link, flags, runtime_flags)
        if key not in made:
            folder = tmp_path_factory.mktemp("program")
            path = HERE / source
            by_call = "__dtrace_" in path.read_text() and "-DUSDT_LIVE" not in flags
            for provider in HERE.glob("*.d"):
                formats = "dof" if by_call else "stapsdt"
                usdtbuild("header", f"--formats={formats}", provider, "-o", folder / f"{provider.stem}.h")
            warnings = ("-Wno-infinite-recursion",) if "clang" not in compiler else ()
            compile_ = (compiler, "-g", *WARNINGS, *warnings, *flags, "-I", folder, "-I", RUNTIME)
            compile_ = (*compile_, *([] if by_call else ["-DUSDT_LIVE"]), "-c", path, "-o", folder / "program.o")
            usdtbuild("cc", "--", *compile_) if by_call else run(*compile_)
            objects = runtime(cc or compiler, *runtime_flags)
            run(compiler, folder / "program.o", *objects, *link, "-lpthread", "-ldl", "-o", folder / "program")
            made[key] = folder / "program"
        return made[key]

    return build_program


@pytest.fixture(scope="session")
def many_functions() -> Callable[[Path, int], Path]:
    """Return what writes the file of functions that many_functions.c calls: `many_functions(folder, 1000)`."""

    def write(folder: Path, count: int) -> Path:
        """Write `count` functions and the table of them."""
        lines = [f"__attribute__((noinline)) long g_{i}(long x) {{ return x * 3 + {i}; }}\n" for i in range(count)]
        table = ",".join(f"g_{i}" for i in range(count))
        (folder / "many.c").write_text("".join(lines) + f"long (*const functions[])(long) = {{{table}}};\n")
        return folder / "many.c"

    return write


@pytest.fixture(scope="session")
def check_frames() -> Callable[[str, int], None]:
    """Return what compares the output of frames.cc with what is right on every machine."""

    def check(out: str, times: int) -> None:
        """Compare what frames.cc tells with what is right."""
        seen = {}
        for line in out.splitlines():
            match = re.match(r"(\S+) enters=(\d+) leaves=(\d+) (\w+) ?(.*)", line)
            if match:
                seen[match.group(1)] = (int(match.group(2)), int(match.group(3)), match.group(4), match.group(5))
        for case, (enters, leaves, trail) in CASES.items():
            got = seen[case]
            assert got[2] == "right", (case, got)
            assert enters in (None, got[0]), (case, got)
            assert leaves in (None, got[1]), (case, got)
            assert not trail or trail == got[3] or got[3] == "", (case, got)
        # What is left without a return is what was thrown or jumped over.
        assert seen["coroutine"][0] == seen["coroutine"][1]
        assert seen["many-exceptions"][1] == seen["many-longjmps"][1] == 2 * times

    return check
