"""Programs that call libraries, built once: x86-64, by every compiler and linker, in the ways that change the stubs."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

LIBRARY = """
#include <string.h>
int own_data = 5;
int own_one(int value) { return value; }
int own_inner(int value) { return value * 2; }
int own_two(const char *text, int value) { return (int)strlen(text) + own_inner(value) + own_one(value); }
"""
PROGRAM = """
#include <stdio.h>
#include <string.h>
int own_one(int);
int own_two(const char *, int);
extern int own_data;
__attribute__((weak)) int missing(int);
#ifdef IFUNC
static int chosen_body(int value) { return value + 1; }
static int (*choose(void))(int) { return chosen_body; }
__attribute__((visibility("hidden"))) int chosen(int) __attribute__((ifunc("choose")));
#else
#define chosen(value) (value)
#endif
static int (*volatile taken)(int) = own_one;
int tail(int value) { return own_one(value); }
int main(int argc, char **argv)
{
	puts("ready");
	fflush(stdout);
	int sum = own_two(argv[0], own_data) + taken(argc) + chosen(argc) + tail(argc);
	if (missing)
		sum += missing(1);
	getchar();
	printf("%d\\n", sum);
	return 0;
}
"""


# What returns in the usual way, from a call within a call, by a jump to another function, and not at all.
RETURNING = """
#include <setjmp.h>
int nested(int (*again)(int), int n) { return n ? again(n - 1) + 1 : 0; }
int inner(int n) { return n + 1; }
int outer(int n) { return inner(n * 2); }
int leave(jmp_buf where, int n) { if (n % 2) longjmp(where, 1); return n; }
"""


def shown(text: str) -> dict[str, list[str]]:
    """Return what a trace's lines show of each function's calls and returns."""
    found: dict[str, list[str]] = {}
    for line in text.splitlines():
        name, _, arguments = line[21:].partition(" ")
        found.setdefault(name, []).append(arguments)
    return found


def results(found: dict[str, list[str]], name: str) -> list[int]:
    """Return what the calls of a function have returned."""
    return [int(text.removeprefix("result="), 16) & 0xFFFFFFFF for text in found[f"{name}:return"]]


@pytest.fixture(scope="session")
def cross(need: Callable[[str], str]) -> Callable[..., str]:
    """Return the compiler for another machine; skip the test without it, its C library, or the emulator."""

    def compiler_or_skip(prefix: str, emulator: str) -> str:
        need(emulator)
        if not shutil.which(f"{prefix}-gcc") or not Path(f"/usr/{prefix}").is_dir():
            pytest.skip(f"no {prefix}-gcc with its libraries is installed")
        return f"{prefix}-gcc"

    return compiler_or_skip


@pytest.fixture(scope="session")
def build(run: Any, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Build the program with options, and libown.so beside it, which it finds by itself; `cc` is the compiler."""
    folder = tmp_path_factory.mktemp("calls")
    (folder / "library.c").write_text(LIBRARY)
    (folder / "program.c").write_text(PROGRAM)
    run("gcc", "-O1", "-shared", "-fPIC", "library.c", "-Wl,-soname,libown.so", "-o", "libown.so", cwd=folder)

    def make(*options: str, cc: str = "gcc", code: int | None = 0) -> Path:
        name = "-".join((Path(cc).name, *(option.replace("/", "_").strip("-") for option in options))) or "plain"
        path = folder / name
        if not path.exists():
            words = [cc, "-O2", "-w", *options, "program.c", "libown.so", "-Wl,-rpath,$ORIGIN", "-o", path]
            if run(*words, cwd=folder, code=code).returncode:
                pytest.skip(f"{cc} {' '.join(options)} links no program")
        return path

    return make


@pytest.fixture(scope="session")
def calls_of(usdtbuild: Any) -> Callable[..., dict[str, Any]]:
    """Return what the command says of one file, by the function's name."""

    def ask(path: Any, *options: str) -> dict[str, Any]:
        (file,) = json.loads(usdtbuild("calls", "--json", *options, path).stdout)["files"]
        return {call["name"] or call["resolver"]: call for call in file["calls"]}

    return ask
