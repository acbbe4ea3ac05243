"""`--depth`, `--below`, `--not-below`: what is passed by isn't recorded, and tables are those of the library inside."""

from __future__ import annotations

import os
import random
import re
from pathlib import Path
from typing import Any

import pytest

HEAD = """
#include <csetjmp>
#include <cstdio>
#include <cstdlib>
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>
#define PLAIN __attribute__((noipa))
#define STAYS __asm__ volatile("" ::: "memory")
static thread_local unsigned seed;
static thread_local jmp_buf *back;
static inline unsigned next() { seed = seed * 1103515245 + 12345; return seed >> 16; }
"""
# A call, two calls, a call in its own place, a call that throws, one that is caught, one that is left by longjmp.
KINDS = (
    "{{ STAYS; int r = n > 0 ? f{0}(n - 1) : n; STAYS; return r + 1; }}",
    "{{ STAYS; if (n <= 0) return n; int r = f{0}(n - 2); STAYS; r += f{1}(n - 1); STAYS; return r; }}",
    "{{ STAYS; if (n <= 0) return n; return f{0}(n - 1); }}",
    "{{ STAYS; if (next() % 3 == 0) throw n; int r = n > 0 ? f{0}(n - 1) : n; STAYS; return r * 2; }}",
    "{{ STAYS; int r = 0; if (n > 0) try {{ r = f{0}(n - 1); }} catch (int) {{ r = f{1}(n - 3); }} STAYS; return r; }}",
    "{{ jmp_buf here, *before = back; int r = 0; STAYS;"
    " if (setjmp(here) == 0) {{ back = &here; r = n > 0 ? f{0}(n - 1) : 0; }}"
    " STAYS; back = before; return r + (n > 0 ? f{1}(n - 4) : 0); }}",
    "{{ STAYS; if (back && next() % 3 == 0) longjmp(*back, 1);"
    " int r = n > 0 ? f{0}(n - 2) : n; STAYS; return r - 1; }}",
)
END = """
PLAIN int turn(unsigned n) { seed = n; back = nullptr; try { return f0(11); } catch (int e) { return e; } }
static void *thread(void *of) { int sum = 0; for (unsigned n = 0; n < 40; n++) sum += turn(n + (unsigned)(long)of);
    return (void *)(long)sum; }
static void handler(int) { turn(7); }
PLAIN void signals() { STAYS; raise(SIGUSR1); STAYS; }
int main(void)
{
    long sum = 0;
    pthread_t all[3];
    signal(SIGUSR1, handler);
    for (long i = 0; i < 3; i++)
        pthread_create(&all[i], nullptr, thread, (void *)(i * 100));
    for (auto one : all) { void *r; pthread_join(one, &r); sum += (long)r; }
    for (unsigned n = 0; n < 50; n++) { sum += turn(n); if (n % 5 == 0) signals(); }
    std::printf("%ld\\n", sum);
}
"""
FUNCTIONS = 14
NAMES = ("-F", "f[0-9]*", "-F", "turn", "-F", "signals")


def source(number: int) -> str:
    """Return a program of functions that call each other in all ways, the same in each run."""
    made = random.Random(number)
    kinds = [KINDS[i % len(KINDS)] for i in range(FUNCTIONS)]
    made.shuffle(kinds)
    kinds[0] = KINDS[1]
    order = [made.sample(range(FUNCTIONS), FUNCTIONS) for _ in range(2)]  # each is called by somebody
    lines = [f"PLAIN int f{i}(int n);" for i in range(FUNCTIONS)]
    for i, kind in enumerate(kinds):
        lines.append(f"PLAIN int f{i}(int n) " + kind.format(order[0][i], order[1][i]))
    return HEAD + "\n".join(lines) + END


CUTS = (
    (),
    ("--depth", "1"), ("--depth", "4"), ("--depth", "9"), ("--depth", "5000"),
    ("--below", "f3"), ("--below", "f1", "--below", "f[4-8]"), ("--not-below", "f2"), ("--not-below", "f?"),
    ("--below", "f[0-9]*", "--not-below", "f1*"), ("--below", "f[2-6]", "--depth", "3"),
    ("--not-below", "f4", "--depth", "6"), ("--below", "turn", "--not-below", "f[789]", "--depth", "7"),
)  # fmt: skip


@pytest.fixture(scope="module", params=range(2))
def program(request: pytest.FixtureRequest, run: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("chosen")
    (folder / "p.cpp").write_text(source(request.param))
    # Without room between functions, returns right before a padding may be left alone.
    flags = ("-O2", "-pthread", "-falign-functions=64", "-fpatchable-function-entry=7,5")
    run("g++", *flags, "p.cpp", "-o", "p", cwd=folder)
    return folder / "p"


def graph(out: str) -> set[tuple[str, ...]]:
    """Return the ways of a graph, each with its calls; which of a caller's functions was called first says nothing."""
    found, way = set(), list[str]()
    for line in out.splitlines():
        if match := re.match(r".*?(\d+)  ([│├└─ ]*)(\w+)(\(.*)?$", line):
            way[len(match[2]) // 3 :] = [match[3]]
            found.add((*way, match[1]))
    return found


@pytest.mark.parametrize("cut", CUTS, ids=" ".join)
def test_what_is_recorded_adds_up_to_what_is_added_up_inside(
    cut: tuple[str, ...], program: Path, usdtbuild: Any, tmp_path: Path
) -> None:
    found = []
    for engine in ("inside", "patch"):
        done = usdtbuild("trace", "--graph", *cut, "--engine", engine, *NAMES, "--", program,
                         env={**os.environ, "XDG_CACHE_HOME": str(tmp_path)})  # fmt: skip
        assert "lost" not in done.stderr
        found.append(graph(done.stdout))
    assert found[0] == found[1]


MANY = """
#include <stdio.h>
#define PLAIN __attribute__((noipa))
PLAIN long leaf(long n) { __asm__ volatile(""); return n + 1; }
PLAIN long around(long n) { long sum = 0; for (long i = 0; i < n; i++) sum = leaf(sum); return sum + 1; }
int main(void) { printf("%ld\\n", around(3000000)); return 0; }
"""


FEW = (("--depth", "2"), ("--not-below", "around"), ("--below", "main", "--depth", "2"))


@pytest.mark.parametrize("cut", FEW, ids=" ".join)
def test_calls_that_are_not_wanted_take_no_room(cut: tuple[str, ...], run: Any, usdtbuild: Any, tmp_path: Path) -> None:
    """Three million calls have no room in the smallest buffers."""
    (tmp_path / "many.c").write_text(MANY)
    run("gcc", "-O2", "-fpatchable-function-entry=7,5", "many.c", "-o", "many", cwd=tmp_path)
    done = usdtbuild("trace", "--graph", "--engine", "patch", "--buffer", "1", *cut, "--", "./many", cwd=tmp_path)
    assert "lost" not in done.stderr + done.stdout
    assert graph(done.stdout) == {("main", "1"), ("main", "around", "1")}
