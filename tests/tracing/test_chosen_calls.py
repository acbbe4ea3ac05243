"""`--depth`, `--below`, `--from` and their like: what is passed by isn't recorded, and tables are those of the library
inside."""

from __future__ import annotations

import os
import random
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.started import Started, tracing

HEAD = """
#include <csetjmp>
#include <cstdio>
#include <cstdlib>
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>
#include "own.h"
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
    "{{ jmp_buf *before = back; int r = 0; STAYS; if (n > 0) try {{ r = f{0}(n - 1); }}"
    " catch (int) {{ back = before; r = f{1}(n - 3); }} STAYS; return r; }}",
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
PLAIN void windows(void)
{
    for (unsigned n = 0; n < 40; n++) {
        turn(n);
        if (n % 7 == 2) OWN_BEGIN(n);
        turn(n + 50);
        if (n % 7 == 4) OWN_END();
    }
}
int main(void)
{
    long sum = 0;
    pthread_t all[3];
    windows();
    signal(SIGUSR1, handler);
    for (long i = 0; i < 3; i++)
        pthread_create(&all[i], nullptr, thread, (void *)(i * 100));
    for (auto one : all) { void *r; pthread_join(one, &r); sum += (long)r; }
    for (unsigned n = 0; n < 50; n++) { sum += turn(n); if (n % 5 == 0) signals(); }
    std::printf("%ld\\n", sum);
}
"""
FUNCTIONS = 14
NAMES = ("-F", "f[0-9]*", "-F", "turn", "-F", "signals", "-F", "windows")


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
    ("--from", "own:begin", "--until", "own:end"), ("--from", "own:end"), ("--until", "own:begin"),
    ("--from", "own:begin", "--until", "own:end", "--depth", "5", "--not-below", "f4"),
)  # fmt: skip


@pytest.fixture(scope="module", params=[0, pytest.param(1, marks=pytest.mark.slow)])
def program(request: pytest.FixtureRequest, run: Any, usdtbuild: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built(source(request.param), run, usdtbuild, tmp_path_factory.mktemp("chosen"))


def built(made: str, run: Any, usdtbuild: Any, folder: Path) -> Path:
    (folder / "own.d").write_text("provider own { probe begin(int n); probe end(); };\n")
    (folder / "p.cpp").write_text(made)
    usdtbuild("header", folder / "own.d", "-o", folder / "own.h")
    # Without room between functions, returns right before a padding may be left alone.
    flags = ("-O2", "-pthread", "-DUSDT_LIVE", "-falign-functions=64", "-fpatchable-function-entry=7,5")
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


@pytest.mark.parametrize("cut", [
    pytest.param(one, id=" ".join(one), marks=[pytest.mark.slow] * (at % 2)) for at, one in enumerate(CUTS)
])  # fmt: skip
def test_what_is_recorded_adds_up_to_what_is_added_up_inside(
    cut: tuple[str, ...], program: Path, usdtbuild: Any, tmp_path: Path
) -> None:
    found = graphs(cut, program, usdtbuild, tmp_path)
    assert found[0] == found[1]


def graphs(cut: tuple[str, ...], program: Path, usdtbuild: Any, tmp_path: Path) -> list[set[tuple[str, ...]]]:
    """Return what the library inside shows, and what is recorded."""
    found = []
    for engine in ("inside", "patch"):
        # A C library's mathematics have f32addf128 and the like.
        done = usdtbuild("trace", "--graph", *cut, "--engine", engine, *NAMES, "--module", program.name, "--", program,
                         env={**os.environ, "XDG_CACHE_HOME": str(tmp_path)})  # fmt: skip
        assert "lost" not in done.stderr
        found.append(graph(done.stdout))
    return found


MANY = """
#include <stdio.h>
#include <unistd.h>
#include "own.h"
#define PLAIN __attribute__((noipa))
PLAIN long leaf(long n) { __asm__ volatile(""); return n + 1; }
PLAIN long around(long n, int us)
{
    long sum = 0;
    for (long i = 0; i < n; i++) sum = leaf(sum);
    usleep(us);
    return sum + 1;
}
PLAIN void before(void) { __asm__ volatile(""); }
int main(int argc, char **argv)
{
    (void)argv;
    before();
    OWN_END();
    printf("%ld\\n", around(3000000, argc > 1 ? 999999 : 0));
    return 0;
}
"""


FEW = (
    (("--depth", "2"), "before around"), (("--not-below", "around"), "before around"),
    (("--below", "main", "--depth", "2"), "before around"), (("--until", "own:end"), "before"),
    (("--min-time", "900ms"), "around"),
)  # fmt: skip


@pytest.mark.parametrize(("cut", "within"), FEW, ids=str)
def test_calls_that_are_not_wanted_take_no_room(
    cut: tuple[str, ...], within: str, usdtbuild: Any, tmp_path: Path, compiled: Any, header_of: Any
) -> None:
    """Three million calls have no room in the smallest buffers. On a busy machine a short call may last for long."""
    header_of(tmp_path, "own.d", "provider own { probe end(); };\n")
    compiled(tmp_path, "many.c", MANY, "-O2", "-fpatchable-function-entry=7,5")
    done = usdtbuild("trace", "--graph", "--engine", "patch", "--buffer", "1", *cut, "--", "./many",
                     *["lasts"] * ("--min-time" in cut), cwd=tmp_path)  # fmt: skip
    assert "lost" not in done.stderr + done.stdout
    assert graph(done.stdout) == {("main", "1"), *(("main", one, "1") for one in within.split())}


SLOW = """static thread_local unsigned slow;
#define STAYS do { __asm__ volatile("" ::: "memory"); slow = slow * 1103515245 + 777; \\
    if ((slow >> 16) % 1021 == 0) usleep(30000); } while (0)
"""
LASTING = (
    ("--min-time", "10ms"), ("--min-time", "10ms", "--depth", "4"), ("--min-time", "20ms", "--below", "f[2-6]"),
    ("--min-time", "10ms", "--from", "own:begin", "--until", "own:end"),
)  # fmt: skip


@pytest.fixture(scope="module")
def sleeping(run: Any, usdtbuild: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = source(8).replace("turn(unsigned n) {", "turn(unsigned n) { slow = n;")
    made = re.sub(r"#define STAYS .*\n", lambda _: SLOW, made)
    return built(made, run, usdtbuild, tmp_path_factory.mktemp("sleeping"))


@pytest.mark.parametrize("cut", LASTING, ids=" ".join)
def test_calls_that_last_are_those_of_the_library_inside(
    cut: tuple[str, ...], sleeping: Path, usdtbuild: Any, tmp_path: Path
) -> None:
    """A busy machine makes any call last, so more tries are allowed. All returns of this program are seen."""
    for _ in range(4):
        found = graphs(cut, sleeping, usdtbuild, tmp_path)
        if found[0] == found[1]:
            break
    assert found[0] == found[1]
    assert len(found[0]) > 5


LEFT = """
#include <stdlib.h>
#include <unistd.h>
#define PLAIN __attribute__((noipa))
PLAIN int leaf(int n) { __asm__ volatile(""); return n + 1; }
PLAIN void ends(int n) { usleep(50000); exit(leaf(n)); }
PLAIN int deep(int n) { if (n) n = deep(n - 1); else usleep(50000); __asm__ volatile(""); return n; }
int main(void) { leaf(0); if (deep(1500)) return 1; leaf(1); ends(-1); return 2; }
"""


def test_calls_that_last_and_are_open_at_the_end_or_too_deep_for_what_is_remembered(
    run: Any, usdtbuild: Any, tmp_path: Path
) -> None:
    (tmp_path / "left.c").write_text(LEFT)
    run("gcc", "-O1", "-fno-optimize-sibling-calls", "-fpatchable-function-entry=7,5", "left.c", "-o", "left",
        cwd=tmp_path)  # fmt: skip
    done = usdtbuild("trace", "--report", "--min-time", "20ms", "--engine", "patch", "--", "./left", cwd=tmp_path)
    rows = [line.split()[-2:] for line in done.stdout.splitlines()[1:]]
    assert sorted(rows) == [["1", "ends"], ["1", "main"], ["1501", "deep"]]


FAMILY = """
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
#include "own.h"
#define PLAIN __attribute__((noipa))
PLAIN int leaf(int n) { __asm__ volatile(""); return n + 1; }
PLAIN int turn(int n) { n = leaf(n) + 1; __asm__ volatile(""); return n; }
int main(int argc, char **argv)
{
    char *line = NULL;
    size_t size = 0;
    int sum = 0;
    while (getline(&line, &size, stdin) > 0) {
        void *library = dlopen(argv[argc - 1], RTLD_NOW);
        int (*more)(int (*)(int), int) = (int (*)(int (*)(int), int))dlsym(library, "more");
        sum += turn(1);
        OWN_BEGIN();
        sum += turn(2) + more(leaf, 3);
        if (fork() == 0) {
            sum += turn(4) + more(turn, 5);
            _exit(0);
        }
        wait(NULL);
        OWN_END();
        sum += turn(6) + more(leaf, 7);
        dlclose(library);
        printf("%d\\n", sum);
        fflush(stdout);
    }
    return 0;
}
"""
MORE = 'int more(int (*f)(int), int n) { n = f(n) + 1; __asm__ volatile(""); return n; }\n'


def test_a_running_process_with_children_and_a_library_that_comes_and_goes(
    run: Any, tmp_path: Path, header_of: Any
) -> None:
    """What threads have open is in one place for all code of a process; each process has its own."""
    header_of(tmp_path, "own.d", "provider own { probe begin(); probe end(); };\n")
    (tmp_path / "p.c").write_text(FAMILY)
    (tmp_path / "more.c").write_text(MORE)
    flags = ("-O2", "-falign-functions=64", "-fpatchable-function-entry=7,5")
    run("gcc", *flags, "-DUSDT_LIVE", "p.c", "-ldl", "-o", "p", cwd=tmp_path)
    run("gcc", *flags, "-shared", "-fPIC", "more.c", "-o", "more.so", cwd=tmp_path)
    with Started(tmp_path / "p", tmp_path / "more.so") as running:
        wanted = ["-F", "turn", "-F", "leaf", "-F", "more", "--from", "own:begin", "--until", "own:end"]
        tracer = tracing("--graph", "--depth", 2, *wanted, "-p", running.pid)
        for _ in range(5):
            running.tell("go")
            assert running.line()
        running.end()
        out, errors = tracer.communicate(timeout=60)
    assert running.returncode == 0
    assert tracer.returncode == 0, errors
    assert graph(out) == {
        ("turn", "10"), ("turn", "leaf", "10"), ("more", "10"), ("more", "leaf", "5"), ("more", "turn", "5"),
    }, out + errors  # fmt: skip


HOSTILE = """
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#define PLAIN __attribute__((noipa))
PLAIN long leaf(long n) { __asm__ volatile(""); return n + 1; }
PLAIN long mid(long n) { n = leaf(n) + 1; __asm__ volatile(""); return n; }
PLAIN long deep(long n) { if (n) n = deep(n - 1) + 1; __asm__ volatile(""); return n; }
static void overwrite(void)
{
    unsigned long starts[64], ends[64], count = 0;
    unsigned seed = 1;
    char line[512];
    FILE *maps = fopen("/proc/self/maps", "r");
    while (fgets(line, sizeof line, maps))
        if (strstr(line, "usdtbuild") && strstr(line, "rw-s")) {
            sscanf(line, "%lx-%lx", &starts[count], &ends[count]);
            count += ends[count] - starts[count] <= 64ul << 20;
        }
    for (;;)
        for (unsigned long i = 0; i < count; i++)
            for (unsigned long at = starts[i]; at < ends[i]; at += 4) {
                seed = seed * 1103515245 + 12345;
                if ((seed >> 16) % 7 == 0) *(volatile unsigned *)at = seed >> 8 & (seed & 64 ? ~0u : 0xfff);
            }
}
int main(void)
{
    long sum = 0, other = fork();
    if (!other) overwrite();
    for (long i = 0; i < 150; i++) {
        for (long j = 0; j < 300; j++) sum += mid(j);
        sum += deep(300);
        usleep(3000);
    }
    kill(other, SIGKILL);
    wait(NULL);
    printf("%ld\\n", sum);
    return 0;
}
"""


@pytest.mark.parametrize("cut", [("--depth", "2"), ("--below", "mid"), ("--min-time", "1ms")], ids=" ".join)
def test_a_forked_process_that_overwrites_what_is_shared_only_spoils_the_tables(
    cut: tuple[str, ...], usdtbuild: Any, tmp_path: Path, compiled: Any
) -> None:
    """What threads have open stands there; nothing that they do may come of it."""
    compiled(tmp_path, "h.c", HOSTILE, "-O1", "-fno-optimize-sibling-calls", "-fpatchable-function-entry=7,5")
    words = ("--report", "--engine", "patch", "-F", "leaf", "-F", "mid", "-F", "deep")
    done = usdtbuild("trace", *words, *cut, "--", "./h", cwd=tmp_path, code=None)
    assert done.stdout.splitlines()[0] == str(150 * (300 * 301 // 2 + 600 - 300 + 300)), done
    assert done.returncode in {0, 1}
    assert "Traceback" not in done.stderr


WAITS = """
#include <stdio.h>
__attribute__((noipa)) int leaf(int n) { __asm__ volatile(""); return n; }
int main(void) { return leaf(getchar()) != 'x'; }
"""


@pytest.mark.parametrize("engine", ["patch", "inside"])
@pytest.mark.parametrize("option", ["--below=laef", "--not-below=laef", "--graph=laef"])
def test_a_name_that_is_not_there_is_said_at_once(tmp_path: Path, option: str, engine: str, compiled: Any) -> None:
    compiled(tmp_path, "waits.c", WAITS, "-O2", "-fpatchable-function-entry=7,5")
    more = ["--engine", "patch"] if engine == "patch" else []
    words = [sys.executable, "-m", "usdtbuild", "trace", *more, "--report", option, "--", str(tmp_path / "waits")]
    with Started(*words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as traced:
        assert traced.stderr is not None
        said = next(line for line in traced.stderr if "laef" in line)  # the program waits meanwhile
        shown = option if "graph" in option else option.replace("=", " ")
        assert f"warning: nothing matches {shown}; did you mean leaf?" in said
        _, rest = traced.communicate("x", timeout=60)
    assert f"usdtbuild: nothing matches {shown}; did you mean leaf?" in rest
    assert traced.returncode == 1
