"""Entries of functions, as compilers write them: each is seen by a jump, and the code is as it was afterwards."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.started import TRACE, Started, code_of, ready, tracing

pytestmark = pytest.mark.skipif(os.uname().machine != "x86_64", reason="entries of x86-64")

SOURCE = r"""
#include <stdio.h>
#include <stdlib.h>
#define PLAIN __attribute__((noinline))
static volatile int zero;
PLAIN int leaf(int n) { __asm__ volatile(""); return n; }
int fib(int n);
static int (*volatile again)(int) = fib;
PLAIN int fib(int n) { return n < 2 ? n : again(n - 1) + again(n - 2); }
PLAIN int sum(int n) { int all = 0; for (int i = 0; i < n; i++) all += leaf(i) + zero; return all; }
PLAIN void never(int n) { if (!n) __builtin_unreachable(); zero = 0; }
PLAIN int behind(int n) { never(1); return n + zero; }
PLAIN int fails(int n) { if (n) return n + zero; fprintf(stderr, "%d", n); abort(); }
int main(int argc, char **argv) {
    char line[8];
    do {
        for (int i = 0; i < 10; i++) if (behind(i) != i || fails(i + 1) != i + 1) return 1;
        printf("%d %d\n", sum(100), fib(15));
        fflush(stdout);
    } while (argc > 1 && fgets(line, sizeof line, stdin));
    return 0;
}
"""
COUNTS = {"leaf": 100, "fib": 1973, "sum": 1, "never": 10, "behind": 10, "fails": 10, "main": 1}
FORMS = {
    "gcc": "gcc -O2 -fcf-protection=none",
    "gcc-endbr": "gcc -O2 -fcf-protection=full",
    "gcc-exe": "gcc -O2 -fcf-protection=full -fno-pie -no-pie",
    "gcc-plain": "gcc -O0 -fcf-protection=full",
    "clang": "clang -O2",
    "clang-endbr": "clang -O2 -fcf-protection=full",
    "clang-plain": "clang -O0",
}


@pytest.fixture(scope="module", params=FORMS)
def program(request: pytest.FixtureRequest, run: Any, need: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program, as a compiler writes it."""
    return build(FORMS[request.param], "7,5", run, need, tmp_path_factory)


def build(words: str, pair: str, run: Any, need: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiler, *options = words.split()
    folder = tmp_path_factory.mktemp("entries")
    folder.chmod(0o755)
    (folder / "program.c").write_text(SOURCE)
    command = need(compiler), *options, f"-fpatchable-function-entry={pair}"
    run(*command, "program.c", "-o", "program", cwd=folder)
    return folder / "program"


def rows(text: str) -> dict[str, int]:
    return {name: int(count) for count, name in re.findall(r"^ *(\d+)  (\S+)$", text, re.MULTILINE)}


def test_every_function_is_counted_without_a_breakpoint(program: Path, counted: Any) -> None:
    """Behind `endbr64`, or without; of two instructions; behind one that ends in no return. And nothing else is."""
    _, printed = counted("--engine", "patch", "-v", "--module", "program", "-F", "*", "--", program)
    assert rows(printed) == COUNTS
    assert "not traced" not in printed
    assert "traced with patch;" in printed


def test_returns_of_a_leaf_without_breakpoints(program: Path, counted: Any) -> None:
    """Its return is so close to its entry that a jump over five bytes would read it."""
    _, printed = counted("-v", "--module", "program", "-F", "leaf", "--returns", "--", program)
    assert rows(printed) == {"leaf": COUNTS["leaf"], "leaf:return": COUNTS["leaf"]}
    assert "traced with patch;" in printed or "no free memory" in printed, printed


@pytest.mark.parametrize(("compiler", "pair"), [("clang -O2", "15,5"), ("gcc -O2", "5,0"), ("gcc -O2", "16,14")])
def test_other_pairs_are_counted_by_the_entry_alone(
    compiler: str, pair: str, run: Any, need: Any, tmp_path_factory: pytest.TempPathFactory, counted: Any
) -> None:
    """Where `functions` says that the padding is of no use."""
    made = build(compiler, pair, run, need, tmp_path_factory)
    _, printed = counted("--engine", "patch", "-v", "--module", "program", "-F", "*", "--", made)
    assert "is no NOP" not in printed
    assert rows(printed)["fib"] == COUNTS["fib"] or "no free memory" in printed


@pytest.mark.parametrize("killed", [False, True])
def test_the_code_is_as_it_was(program: Path, run: Any, killed: bool) -> None:
    with Started(program, "wait") as process:
        process.line()
        before = code_of(process.pid, program)
        words = ["-p", process.pid, "--count", "-F", "*", "--module", "program", "--returns"]
        with tracing(*words) as tracer:
            assert code_of(process.pid, program) != before
            process.tell()
            assert process.line() == "4950 610\n"
            (tracer.kill if killed else tracer.terminate)()
            tracer.communicate(timeout=60)
        if killed:
            run(*TRACE, *words, "--duration", "0.1")
        assert code_of(process.pid, program) == before
        assert (process.end(), process.returncode) == ("", 0)


def test_parts_and_start_files_are_traced_by_their_very_names(program: Path, counted: Any) -> None:
    _, printed = counted("--trap", "--module", "program", "-F", "_start", "-F", "fib", "--", program)
    assert rows(printed) == {"_start": 1, "fib": COUNTS["fib"]}


# -- libraries that come while the trace runs --------------------------------------------------------------------------

OPENS = """
#include <dlfcn.h>
#include <stdio.h>
int main(int argc, char **argv) {
    char line[8];
    while (puts("ready") && !fflush(stdout) && fgets(line, sizeof line, stdin)) {
        void *library = dlopen(argv[argc - 1], RTLD_NOW);
        ((int (*)(int))dlsym(library, "price"))(3);
        dlclose(library);
    }
    return 0;
}
"""


@pytest.mark.parametrize("padded", [True, False], ids=["padded", "plain"])
@pytest.mark.parametrize("words", [(), ("--trap",)], ids=["jumps", "--trap"])
def test_functions_of_a_library_that_is_opened_while_its_process_is_traced(
    padded: bool, words: tuple[str, ...], run: Any, tmp_path: Path
) -> None:
    (tmp_path / "opens.c").write_text(OPENS)
    (tmp_path / "shop.c").write_text("int price(int amount) { return 98 * amount; }\n")
    run("gcc", "opens.c", "-ldl", "-o", "opens", cwd=tmp_path)
    run("gcc", "-g", "-O1", "-shared", "-fPIC", *["-fpatchable-function-entry=7,5"] * padded, "shop.c", "-o", "shop.so",
        cwd=tmp_path)  # fmt: skip
    with ready(tmp_path / "opens", tmp_path / "shop.so") as process:
        command = [*TRACE, "-v", "-F", "price", *words, "-p", process.pid]
        with Started(*command, stdin=None, stderr=subprocess.PIPE) as tracer:
            while "warning: nothing matches" not in tracer.said():
                pass
            for _ in range(2):
                process.tell()
                process.line()
            process.end()
            out, errors = tracer.communicate(timeout=60)
    assert out.count("price(amount=3)") == (2 if padded or words else 0)
    offered = re.search(r"not traced: price at 0x\w+: .*; --trap watches it .* 20 microseconds or more a hit", errors)
    assert bool(offered) == (not padded and not words)
