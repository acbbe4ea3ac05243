"""`usdtbuild trace --report` and `--graph`: which functions called which, beside what uftrace says of the program.

The cases are those that uftrace has tests for: all functions, some by name, all but some, only large ones, libraries
that are opened and closed, recursion, longjmp, threads.
"""

from __future__ import annotations

import contextlib
import os
import platform
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.started import TRACE, Started, wait_for
from usdtbuild.errors import InputError
from usdtbuild.tracing.call_report import (
    SORTS,
    around_lines,
    diff_lines,
    graph_lines,
    read_report,
    report_json,
    report_lines,
)
from usdtbuild.tracing.call_tree import Calls, CallTree, Row, read_tree, rows

pytestmark = pytest.mark.usefixtures("native")
HERE = Path(__file__).resolve().parent
LIBRARY = "long inner(long x) { return x + 1; }\nlong in_library(long x) { return inner(x) * 2; }\n"

# (depth, name, calls) of the graph's lines.
Shape = list[tuple[int, str, int]]
WHOLE: Shape = [
    (0, "main", 1), (1, "outer", 1), (2, "middle", 1), (3, "leaf", 2), (1, "large", 1), (2, "leaf", 1),
    (1, "again", 1), (2, "again", 1), (3, "again", 1), (4, "again", 1), (5, "leaf", 1),
]  # fmt: skip


@pytest.fixture(scope="module")
def programs(run: Any, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The program with the entries that we patch and with those that uftrace does, and its library for each."""
    folder = tmp_path_factory.mktemp("calls")
    (folder / "library.c").write_text(LIBRARY)
    made = {}
    for name, entries in (("ours", "7,5"), ("theirs", "5")):
        # Without room between functions, returns right before a padding may be left alone, and times with them.
        flags = ("-O0", "-g", "-falign-functions=32", f"-fpatchable-function-entry={entries}")
        made[name], made[f"{name}.so"] = folder / name / "calls", folder / name / "library.so"
        made[name].parent.mkdir()
        run("gcc", *flags, "-Wall", "-Wextra", "-Werror", HERE / "calls.c", "-lpthread", "-ldl", "-o", made[name])
        run("gcc", *flags, "-shared", "-fPIC", folder / "library.c", "-o", made[f"{name}.so"])
    return made


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def trace(usdtbuild: Any, cache: Path, programs: Any) -> Any:
    """Trace the program, or another command; who may not trace skips the test."""

    def trace_calls(*words: Any, way: str = "", command: tuple[Any, ...] = (), **more: Any) -> Any:
        command = command or (programs["ours"], programs["ours.so"], way)
        variables = {**os.environ, "XDG_CACHE_HOME": str(cache), **more.pop("env", {})}
        done = usdtbuild("trace", *words, "--", *command, env=variables, **more)
        if done.returncode and "ptrace" in done.stderr:
            pytest.skip("this user may not trace")
        return done

    return trace_calls


@pytest.fixture
def trace_of(trace: Any, run: Any, tmp_path: Path) -> Any:
    """Trace a program that is built of a text, with entries that can be patched: `trace_of(text, "--graph")`."""

    def trace_text(text: str, *words: Any, compiler: str = "gcc", options: tuple[str, ...] = (), **more: Any) -> Any:
        name = "t.cpp" if compiler == "g++" else "t.c"
        (tmp_path / name).write_text(text)
        run(compiler, "-O1", "-fpatchable-function-entry=7,5", *options, name, "-lpthread", "-o", "t", cwd=tmp_path)
        return trace(*words, command=(tmp_path / "t",), **more)

    return trace_text


def shape_of(out: str) -> Shape:
    """Return the shape of what `--graph` printed."""
    found = []
    for line in out.splitlines()[1:]:
        match = re.match(r" *(?:>?[\d.]+ [mnu]?s +>?[\d.]+ [mnu]?s|- +-) +(\d+)  ([│├└─ ]*)(\S+)$", line)
        assert match is not None, line
        found.append((len(match.group(2)) // 3, match.group(3), int(match.group(1))))
    return found


def merged(lines: list[str]) -> Shape:
    """Return the shape of what `uftrace replay -f none` printed: calls by the same way are one."""
    tree: dict[str, Any] = {}
    counts: dict[int, int] = {}
    way = [tree]
    for line in lines:
        match = re.match(r" *(\w+)\(\)( \{|;)$", line)
        if match:
            below = way[-1].setdefault(match.group(1), {})
            counts[id(below)] = counts.get(id(below), 0) + 1
        if match and match.group(2) == " {":
            way.append(below)
        elif re.match(r" *\} /\* \w+ \*/$", line):
            way.pop()

    def walk(level: dict[str, Any], depth: int) -> Shape:
        return [each for name, below in level.items()
                for each in ((depth, name, counts[id(below)]), *walk(below, depth + 1))]  # fmt: skip

    return walk(tree, 0)


CASES = {
    "all": ((), ("-P", "."), "", WHOLE),
    "by name": (("-F", "outer"), ("-P", "^outer$"), "", [(0, "outer", 1)]),
    "two names": (("-F", "outer", "-F", "lea?"), ("-P", "^outer$", "-P", "^lea.$"), "",
                  [(0, "outer", 1), (1, "leaf", 2), (0, "leaf", 2)]),
    "all but one": (("-F", "!*", "-x", "middle"), ("-P", ".", "-U", "^middle$"), "",
                    [(0, "main", 1), (1, "outer", 1), (2, "leaf", 2), *WHOLE[4:]]),
    "some taken back in": (("-F", "!*", "-x", "[lm]*", "-F", "leaf"), ("-P", ".", "-U", "^[lm]", "-P", "^leaf$"), "",
                           [(0, "outer", 1), (1, "leaf", 2), (0, "leaf", 1), (0, "again", 1), (1, "again", 1),
                            (2, "again", 1), (3, "again", 1), (4, "leaf", 1)]),
    "large ones": (("-F", "la*", "-F", "le*", "-Z", "100"), ("-P", "^la", "-P", "^le", "-Z", "100"), "",
                   [(0, "large", 1)]),
    "a library that comes and goes": (("-F", "main", "-F", "library.so!*"), ("-P", "^main$", "-P", ".@library.so"),
                                      "opens", [(0, "main", 1), (1, "in_library", 2), (2, "inner", 2)]),
}  # fmt: skip


@pytest.mark.parametrize("engine", ["inside", "patch"])
@pytest.mark.parametrize("case", list(CASES))
def test_the_tree_is_what_was_called(case: str, engine: str, trace: Any) -> None:
    words, _, way, shape = CASES[case]
    done = trace("--graph", *words, "--engine", engine, way=way, code=None)
    assert shape_of(done.stdout) == shape


# By which compiler, with which entries, and what runs the program there.
ELSEWHERE = {
    "musl": ("musl-gcc", "7,5", ()),
    "aarch64": ("aarch64-linux-gnu-gcc", "1,0", ("qemu-aarch64", "-L", "/usr/aarch64-linux-gnu")),
    "riscv64": ("riscv64-linux-gnu-gcc", "5,4", ("qemu-riscv64", "-L", "/usr/riscv64-linux-gnu")),
}
TAILS = """
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>
#define PLAIN __attribute__((noinline))
PLAIN int leaf(int n) { __asm__ volatile(""); return n; }
PLAIN int tail(int n) { __asm__ volatile(""); return leaf(n + 1); }
PLAIN int both(int n) { return leaf(n) + tail(n); }
int main(void)
{
    int sum = 0;
    for (int i = 0; i < 100; i++)
        sum += both(i);
    if (!fork()) {
        leaf(1);
        _exit(0);
    }
    wait(NULL);
    return printf("%d\\n", sum) < 0;
}
"""


@pytest.mark.parametrize("where", list(ELSEWHERE))
def test_the_tree_with_another_c_library_and_on_other_machines(
    where: str, trace: Any, need: Any, tmp_path: Path, compiled: Any
) -> None:
    """What is preloaded into programs of musl is what glibc gets. The emulator's own start ignores it."""
    compiler, pair, emulator = ELSEWHERE[where]
    for tool in (compiler, *emulator[:1]):
        need(tool)
    compiled(tmp_path, "tails.c", TAILS, "-O2", f"-fpatchable-function-entry={pair}", cc=compiler)
    more = {"env": {"CC": compiler} if emulator else {}, "command": (*emulator, tmp_path / "tails")}
    done = trace("--graph", **more)
    assert shape_of(done.stdout.removeprefix("10000\n")) == [
        (0, "main", 1), (1, "both", 100), (2, "leaf", 100), (2, "tail", 100), (3, "leaf", 100), (0, "leaf", 1),
    ]  # fmt: skip
    done = trace("--engine", "inside", "-F", "*", "--count", **more)
    counts = dict(map(reversed, re.findall(r"^ *(\d+)  (\w+)$", done.stdout, re.MULTILINE)))
    assert counts == {"main": "1", "both": "100", "tail": "100", "leaf": "201"}


@pytest.mark.parametrize("case", [case for case in CASES if not case.startswith("a library")])
def test_uftrace_says_the_same(case: str, run: Any, need: Any, programs: Any, tmp_path: Path) -> None:
    """But for a library that is opened twice: uftrace 0.13 shows what is called there the first time."""
    uftrace = need("uftrace")
    _, words, way, shape = CASES[case]
    record = (uftrace, "record", "-d", tmp_path / "data", "--no-libcall", *words)
    run(*record, programs["theirs"], programs["theirs.so"], way)
    out = run(uftrace, "replay", "-d", tmp_path / "data", "-f", "none").stdout
    theirs = merged(out.splitlines())
    if not theirs:
        pytest.skip("this uftrace patches no such entries")
    assert theirs == shape


def test_what_is_left_by_longjmp_is_no_caller_of_what_comes_then(trace: Any) -> None:
    """uftrace 0.13 shows the second catches() below the first jumps()."""
    shape = shape_of(trace("--graph", "-F", "catches", "-F", "jumps", "-F", "leaf", "-F", "main", way="jumps").stdout)
    assert shape[-3:] == [(1, "catches", 3), (2, "jumps", 3), (2, "leaf", 3)]


def test_threads_are_added_up(trace: Any) -> None:
    shape = shape_of(trace("--graph", "-F", "runs", "-F", "leaf", "-F", "threads", way="threads").stdout)
    assert (0, "runs", 4) in shape
    assert shape[shape.index((0, "runs", 4)) + 1] == (1, "leaf", 8000)
    assert (0, "threads", 1) in shape


def test_a_child_s_calls_are_its_own(trace: Any) -> None:
    """It was forked below main() and forks(), which return in its parent."""
    shape = shape_of(trace("--graph", "-F", "forks", "-F", "outer", way="forks").stdout)
    assert sorted(shape) == [(0, "forks", 1), (0, "outer", 2)]


def test_what_is_open_when_the_program_ends_has_its_time(trace: Any) -> None:
    done = trace("--graph", "-F", "main", "-F", "ends", way="ends", code=3)
    assert shape_of(done.stdout) == [(0, "main", 1), (1, "ends", 1)]
    assert not re.search(r"^ +0 ns", done.stdout, re.MULTILINE)


LOOP = """
#include <unistd.h>
__attribute__((noipa)) void tick(void) { usleep(1000); }
__attribute__((noipa)) void loop(void) { for (int i = 0; i < 1500; i++) tick(); }
int main(void) { loop(); return 0; }
"""


def test_what_is_open_when_the_trace_ends_has_no_time(trace_of: Any) -> None:
    done = trace_of(LOOP, "--report", "--graph", "--duration", "0.5")
    report, graph = done.stdout.split("\n\n")
    assert [line.split() for line in graph.splitlines()[1:3]] == [
        ["-", "-", "1", "main"], ["-", "-", "1", "└─", "loop"],
    ]  # fmt: skip
    assert {line.split()[-1] for line in report.splitlines() if line.split()[0] == "-"} == {"main", "loop"}


THROWN = """
#define PLAIN __attribute__((noipa))
PLAIN int thrower(int n) { __asm__ volatile(""); if (n % 3 == 2) throw n; return n; }
PLAIN int outer(int n) { return thrower(n) + 1; }
PLAIN int catcher(int n) { try { return outer(n); } catch (int) { return 0; } }
int main() { int sum = 0; for (int n = 0; n < 9; n++) sum += catcher(n); return sum < 0; }
"""


@pytest.mark.parametrize("engine", ["inside", "patch"])
def test_times_that_lack_some_calls_are_marked_in_the_tree_too(engine: str, trace_of: Any) -> None:
    """Three of nine calls end by an exception. The tree of what was added up inside had its times without a mark."""
    options = {"compiler": "g++", "options": ("-O2", "-falign-functions=32"), "code": None}
    functions = [word for name in ("catcher", "outer", "thrower") for word in ("-F", name)]
    done = trace_of(THROWN, "--report", "--graph", "--engine", engine, *functions, **options)
    marked = [(">" in line, line.split()[-1]) for table in done.stdout.split("\n\n") for line in table.splitlines()[1:]]
    assert sorted(marked) == sorted(2 * [(False, "catcher(int)"), (True, "outer(int)"), (True, "thrower(int)")])
    assert "of outer(int) (3), thrower(int) (3): left by an exception" in done.stderr


def test_calls_that_are_too_deep_are_counted_and_told_of(trace: Any) -> None:
    """main(), and 6,001 of deep(): each without a frame is counted, and has no return."""
    done = trace("--report", "-F", "main", "-F", "deep", way="deep")
    assert {line.split()[-1]: int(line.split()[-2]) for line in done.stdout.splitlines()[1:]} == {
        "main": 1, "deep": 6001,
    }  # fmt: skip
    found = re.search(r"warning: (\d+) calls were too deep", done.stderr)
    assert found is not None
    assert int(found[1]) == 6002 - 4080
    assert "(more than 4,080 open at a time)" in done.stderr
    assert "too deep" not in trace("--report", "-F", "main", "-F", "again").stderr


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("what", ["--report", "--count"])
def test_a_signal_ends_it_with_its_number(what: str, number: signal.Signals, cache: Path) -> None:
    with endless(cache, cache, "--engine", "inside", what) as tracer:
        tracer.send_signal(number)
        tracer.wait(60)
    out, said = tracer.communicate()
    assert tracer.returncode == -number
    if what == "--report" and "ended before everything was armed" not in said:  # the program may be faster than we
        assert out.split() == ["total", "self", "p50", "p99", "max", "calls", "function"]


def test_a_tracer_that_is_killed_leaves_nothing_behind(cache: Path, tmp_path: Path) -> None:
    with endless(cache, tmp_path, "--engine", "inside", "--report") as tracer:
        wait_for(lambda: not list(tmp_path.iterdir()))
        tracer.kill()
        tracer.wait()
    tracer.communicate()
    assert list(tmp_path.iterdir()) == []


@contextlib.contextmanager
def endless(cache: Path, temporary: Path, *words: str) -> Iterator[Started]:
    """A tracer of a program that runs until the body of the `with` has ended."""
    environment = {**os.environ, "XDG_CACHE_HOME": str(cache), "TMPDIR": str(temporary)}
    command = *TRACE, *words, "--", "sh", "-c", "echo $$; exec sleep 1000"
    tracer = Started(*command, env=environment, stdin=None, stderr=subprocess.PIPE)
    pid = int(tracer.line())
    try:
        yield tracer
    finally:
        os.kill(pid, signal.SIGKILL)


def test_the_report_has_each_function_once(trace: Any) -> None:
    out = trace("--report", "--graph").stdout
    report, graph = out.split("\n\n")
    found = {line.split()[-1]: int(line.split()[-2]) for line in report.splitlines()[1:]}
    assert found == {"main": 1, "outer": 1, "middle": 1, "leaf": 4, "large": 1, "again": 4}
    assert report.splitlines()[1].endswith("main")
    assert shape_of(graph) == WHOLE


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--engine", "trap"), "the engine trap doesn't add up calls (--report, --graph); --engine inside can"),
        (("--engine", "trap", "-o", "x.json"), "add up what the engine patch records; leave out --engine trap"),
        (("-o", "x.csv"), "-o x.csv: it shows hits one by one"),
        (("--count",), "don't go with --count"),
        (("-P", "app:*"), "don't go with -P"),
        (("--trap",), "don't go with --trap"),
        (("--returns", "-F", "main"), "don't go with --returns"),
    ],
)
def test_what_does_not_go_together_is_said(words: tuple[str, ...], says: str, trace: Any) -> None:
    assert says in trace("--report", *words, code=2).stderr


def test_a_program_without_entries_is_told_of(trace: Any) -> None:
    done = trace("--report", command=("true",))
    assert "none of the functions that were asked for; compile it with -fpatchable-function-entry" in done.stderr
    assert len(done.stdout.splitlines()) == 1


@pytest.mark.skipif(platform.machine() != "x86_64", reason="a matter of x86-64's jumps")
def test_why_no_entry_can_be_patched_is_said(trace_of: Any) -> None:
    """Where that was so of all entries, each was said to have other padding than most."""
    text = "__attribute__((noipa)) int leaf(int x) { return x; } int main() { return leaf(0); }"
    options = "-fcf-protection=none", "-fpatchable-function-entry=16,14"
    said = trace_of(text, "--report", "-F", "leaf", options=options, code=1).stderr
    assert "leaf at 0x" in said
    assert "the second byte of a jump from the entry to its padding would be a harmful instruction" in said


def test_what_helps_where_all_entries_are_of_another_kind(trace_of: Any) -> None:
    """They are held to what the library can patch; the engine patch needs less. That was a success, and -q hid why the
    table is empty."""
    text = "__attribute__((noipa)) int leaf(int x) { return x; } int main() { return leaf(0); }"
    options = ("-fpatchable-function-entry=5",)
    said = trace_of(text, "--report", options=options, code=1).stderr
    assert trace_of(text, "--report", "-q", options=options, code=1).stderr.count("use --engine patch\n") == 2
    assert "nothing matches -F nobody" in trace_of(text, "--report", "-q", "-F", "nobody", code=1).stderr
    assert said.count("; compile it with what `usdtbuild flags --patchable` gives, or use --engine patch\n") == 2
    assert said.count("not traced: ") == 2


@pytest.mark.parametrize("engine", ["inside", "patch"])
def test_a_file_alone_means_its_functions(engine: str, trace: Any) -> None:
    """Not those of the program, which are none of the file's."""
    done = trace("--graph", "--engine", engine, "--module", "library.so", way="opens")
    assert shape_of(done.stdout) == [(0, "in_library", 2), (1, "inner", 2)]


def test_small_functions_are_left_out_with_every_engine(trace: Any) -> None:
    done = trace("--count", "-F", "la*", "-F", "le*", "-Z", "100", "--trap", code=None)
    assert re.findall(r"^ *(\d+) +(\w+)$", done.stdout, re.MULTILINE) == [("1", "large")]


@pytest.mark.parametrize(
    ("words", "seen"),
    [
        (("-F", "[lm]*", "-x", "l*", "-F", "leaf"), {"leaf", "main", "middle"}),
        (("-x", "l*", "-F", "[lm]*", "-F", "leaf"), {"main", "middle"}),
    ],
    ids=["taken back in", "left out for good"],
)
@pytest.mark.parametrize("engine", ["inside", "auto"])
def test_the_last_pattern_decides_with_every_engine(
    engine: str, words: tuple[str, ...], seen: set[str], trace: Any
) -> None:
    more = ("--trap",) if engine == "auto" else ()
    done = trace("--count", *words, "--engine", engine, *more, "--module", "calls", code=None)
    assert set(re.findall(r"^ *\d+ +(\w+)$", done.stdout, re.MULTILINE)) == seen


# -- beside -finstrument-functions -------------------------------------------------------------------------------------

WAYS = ("exceptions", "longjmp", "coroutines", "contexts", "threads", "signals", "forks")


@pytest.fixture(scope="module")
def ways(run: Any, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A program of many ways, with our entries, and with calls of what writes down who calls whom."""
    folder = tmp_path_factory.mktemp("ways")
    plain = ("-g", "-O0", "-fno-omit-frame-pointer", "-pie", "-fPIE", "-lpthread")
    run("gcc", "-c", "-O1", "-fPIE", *plain[2:3], "-Wno-frame-address", HERE / "truth.c", "-o", folder / "truth.o")
    for name, more in (("ours", ("-fpatchable-function-entry=7,5",)),
                       ("truth", ("-finstrument-functions", folder / "truth.o"))):  # fmt: skip
        run("g++", "-std=c++20", HERE / "ways.cc", *more, *plain, "-o", folder / name)
    return {name: folder / name for name in ("ours", "truth")}


def in_order(lines: list[tuple[int, str, int]]) -> Any:
    """Return a tree in which the order of functions below one caller, and constructors' two names, say nothing."""
    levels: list[dict[str, Any]] = [{}]
    for depth, name, count in lines:
        del levels[depth + 1 :]
        found = levels[depth].setdefault(re.sub(r"([CD])[12](?=E)", r"\1", name), {"calls": 0, "below": {}})
        found["calls"] += count
        levels.append(found["below"])
    return levels[0]


@pytest.mark.parametrize("way", WAYS)
def test_all_ways_are_what_the_compiler_s_own_calls_say(
    way: str, trace: Any, ways: Any, run: Any, tmp_path: Path
) -> None:
    run(ways["truth"], way, env={**os.environ, "TRUTH": str(tmp_path / "truth")})
    symbols = run("nm", "--defined-only", ways["truth"]).stdout.splitlines()
    names = {int(line.split()[0], 16): line.split()[2] for line in symbols}
    truth = [line.split() for line in (tmp_path / "truth").read_text().splitlines()]
    ours = in_order(shape_of(trace("--graph", "--mangled", command=(ways["ours"], way)).stdout))
    assert ours["main"]["calls"] == 1
    assert ours == in_order([(int(depth), names[int(offset, 16)], int(calls)) for depth, offset, calls in truth])


def test_a_recursion_of_100_000(cache: Path, ways: Any) -> None:
    """Each call is counted; the graph's lines don't grow with their depth."""
    environment = {**os.environ, "XDG_CACHE_HOME": str(cache)}
    deep = ("sh", "-c", 'ulimit -s 65536; exec "$@"', "sh")
    trace = (sys.executable, "-m", "usdtbuild", "trace", "--report", "--graph", "-F", "recursion*")
    words = (*deep, *trace, "--", ways["ours"], "99999")
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=True)
    report, graph = done.stdout.split("\n\n")
    assert " 100000 " in report.splitlines()[1]
    assert max(map(len, graph.splitlines())) < 200


# -- what has no entry, and a library that is linked ------------------------------------------------------------------

LINKED = {
    "program.c": """
long in_library(long x);
__attribute__((noinline)) long low(long x) { __asm__ volatile("" : "+r"(x)); return x + 1; }
__attribute__((noinline, patchable_function_entry(0, 0))) long bare(long x) { return low(x) + 1; }
__attribute__((noinline)) long high(long x) { return bare(x) + 1; }
long nowhere_called(long x) { return x; }
int main(int argc, char **argv) { (void)argv; return high(argc) + in_library(argc) > 99; }
""",
    "library.c": """
long left(long x) { __asm__ volatile("" : "+r"(x)); return x - 1; }
long right(long x) { return left(x) - 1; }
long in_library(long x) { return right(x) - 1; }
""",
}
PROGRAM: Shape = [(0, "main", 1), (1, "high", 1), (2, "low", 1)]
LINKED_CASES: dict[str, tuple[tuple[str, ...], tuple[str, ...], Shape]] = {
    "what has no entry is passed over": (("-F", "!*"), ("-P", "."), PROGRAM),
    "the program but one": (("-F", "!*", "-x", "high"), ("-P", ".", "-U", "^high$"),
                            [(0, "main", 1), (1, "low", 1)]),
    "a library but one": (
        ("-F", "!*", "-F", "liblinked.so!*", "-x", "liblinked.so!right"),
        ("-P", ".", "-P", ".@liblinked.so", "-U", "^right$@liblinked.so"),
        [*PROGRAM, (1, "in_library", 1), (2, "left", 1)],
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def linked(run: Any, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A program that --gc-sections went through, and its library, with our entries and with uftrace's."""
    made = {}
    for name, entries in (("ours", "7,5"), ("theirs", "5")):
        folder = tmp_path_factory.mktemp("linked")
        for file, text in LINKED.items():
            (folder / file).write_text(text)
        flags = ("-O0", "-ffunction-sections", f"-fpatchable-function-entry={entries}")
        run("gcc", *flags, "-shared", "-fPIC", folder / "library.c", "-o", folder / "liblinked.so")
        made[name] = folder / "program"
        run("gcc", *flags, folder / "program.c", f"-L{folder}", "-llinked", f"-Wl,-rpath,{folder},--gc-sections",
            "-o", made[name])  # fmt: skip
    return made


@pytest.mark.parametrize("case", list(LINKED_CASES))
def test_linked_programs_have_their_tree(case: str, usdtbuild: Any, cache: Path, linked: Any) -> None:
    words, _, shape = LINKED_CASES[case]
    environment = {**os.environ, "XDG_CACHE_HOME": str(cache)}
    assert shape_of(usdtbuild("trace", "--graph", *words, "--", linked["ours"], env=environment).stdout) == shape


@pytest.mark.parametrize("case", list(LINKED_CASES))
def test_uftrace_says_the_same_of_linked_programs(case: str, run: Any, need: Any, linked: Any, tmp_path: Path) -> None:
    uftrace = need("uftrace")
    _, words, shape = LINKED_CASES[case]
    run(uftrace, "record", "-d", tmp_path / "data", "--no-libcall", *words, linked["theirs"])
    theirs = merged(run(uftrace, "replay", "-d", tmp_path / "data", "-f", "none").stdout.splitlines())
    if not theirs:
        pytest.skip("this uftrace patches no such entries")
    assert theirs == shape


# -- the numbers ------------------------------------------------------------------------------------------------------


def test_the_time_of_a_recursion_counts_once() -> None:
    inner = Calls("f", 2, 30, 30)
    tree = CallTree((Calls("f", 1, 100, 60, (Calls("g", 1, 40, 10, (inner,)),)), Calls("g", 1, 5, 5)), 0)
    assert [row[:4] for row in rows(tree)] == [("f", 3, 100, 90), ("g", 2, 45, 15)]
    assert report_lines(rows(tree), "total", None, 0)[1].split() == ["100", "ns", "90", "ns", "?", "?", "?", "3", "f"]
    assert shape_of("".join(graph_lines(tree.roots, "", 0))) == [(0, "f", 1), (1, "g", 1), (2, "f", 2), (0, "g", 1)]


def test_rows_by_each_column() -> None:
    found = [Row("a", 1, 300, 1), Row("b", 3, 100, 20), Row("c", 2, 200, 30, 0, 9, 9, 9)]
    order = {key: [line.split()[-1] for line in report_lines(found, key, 2, 0)[1:]] for key in SORTS}
    assert order == {
        "total": ["a", "c", "more)"],
        "self": ["c", "b", "more)"],
        "calls": ["b", "c", "more)"],
        "max": ["c", "a", "more)"],
    }


def test_callers_and_callees_of_a_function() -> None:
    """f is called by main and by g; what f calls within f belongs to the outer one."""
    f = Calls("f", 2, 30, 10, (Calls("h", 4, 20, 15, (Calls("f", 1, 5, 5),)),))
    tree = CallTree((Calls("main", 1, 100, 40, (f, Calls("g", 1, 25, 15, (Calls("f", 3, 10, 10),)))),), 0)
    callers, called = ("".join(lines) for lines in around_lines(tree, frozenset({"f"}), 0))
    assert shape_of(callers) == [(0, "f", 5), (1, "main", 2), (1, "g", 3), (2, "main", 3)]
    assert shape_of(called) == [(0, "f", 5), (1, "h", 4), (2, "f", 1)]


def test_two_reports_and_what_has_changed(tmp_path: Path, usdtbuild: Any) -> None:
    for name, numbers in (("old", ((2, 100, 60), (1, 5, 5))), ("new", ((5, 80, 90),))):
        roots = tuple(Calls(title, *each) for title, each in zip("fg", numbers))
        (tmp_path / name).write_text(report_json(CallTree(roots, 0)))
    assert read_report(str(tmp_path / "old")) == {"f": Row("f", 2, 100, 60), "g": Row("g", 1, 5, 5)}
    out = usdtbuild("trace", "--diff", tmp_path / "old", tmp_path / "new", "--sort", "self").stdout.splitlines()
    assert [line.split() for line in out[1:]] == [
        ["80", "ns", "-20", "ns", "90", "ns", "+30", "ns", "5", "+3", "f"],
        ["0", "ns", "-5", "ns", "0", "ns", "-5", "ns", "0", "-1", "g"],
    ]
    assert diff_lines({}, {}, "total", None, 0)
    for more in (("--", "true"), ("--depth", "3"), ("--below", "f"), ("--sort", "max")):
        done = usdtbuild("trace", "--diff", tmp_path / "old", tmp_path / "new", *more, code=2)
        assert re.search("--diff (compares two reports|shows total, self and calls)", done.stderr)
    unknown = {"f": Row("f", 3, 0, 0, 3)}
    shown = diff_lines({"f": Row("f", 2, 100, 60)}, unknown, "total", None, 0)[1].split()
    assert shown == ["-", "?", "-", "?", "3", "+1", "f"]


@pytest.mark.parametrize("text", [
    "", "[]", "[" * 100_000, '{"format": "usdtbuild-trace-report", "version": 2, "functions": []}',
    *('{"format": "usdtbuild-trace-report", "version": 1, "functions": [' + one + "]}" for one in (
        "1", "{}", '{"name": "f", "calls": -1, "total_ns": 1, "self_ns": 1}',
        '{"name": "f", "calls": 1e300, "total_ns": 1, "self_ns": 1}',
        *('{"name": "f", "p50_ns": 1, "p99_ns": 1, "max_ns": 1, ' + numbers + "}" for numbers in (
            '"calls": null, "total_ns": 1, "self_ns": 1', '"calls": 1, "total_ns": null, "self_ns": 1',
            '"calls": 1, "total_ns": 1, "self_ns": null',
            '"calls": 1, "total_ns": 1, "self_ns": 1, "calls_without_time": null')),
        *('{"name": "f", "calls": 1, "total_ns": 1, "self_ns": 1, "p50_ns": null, "p99_ns": ' + number + "}"
          for number in ("-1", "1e300", '"x"', "true", "99999999999999999999")))),
])  # fmt: skip
def test_what_is_no_report_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "r.report.json").write_text(text)
    with pytest.raises(InputError, match="is no report"):
        read_report(str(tmp_path / "r.report.json"))


def test_a_function_s_callers_are_traced(trace: Any, tmp_path: Path) -> None:
    done = trace("--report", "--sort", "calls", "--graph=leaf", "-o", tmp_path / "r.report.json")
    report, callers, called = done.stdout.split("\n\n")
    counts = [int(line.split()[-2]) for line in report.splitlines()[1:]]
    assert counts == sorted(counts, reverse=True)
    assert shape_of(callers) == [(0, "leaf", 4), (1, "middle", 2), (2, "outer", 2), (3, "main", 2), (1, "large", 1),
                                 (2, "main", 1), (1, "again", 1), (2, "again", 1), (3, "again", 1), (4, "again", 1),
                                 (5, "main", 1)]  # fmt: skip
    assert shape_of(called) == [(0, "leaf", 4)]
    assert read_report(str(tmp_path / "r.report.json"))["leaf"].times == 4
    done = trace("--graph=lief", code=1)
    assert (done.stdout, "nothing matches --graph=lief; did you mean leaf?" in done.stderr) == ("", True)


def test_percentiles_and_the_longest_call(trace_of: Any, tmp_path: Path) -> None:
    """96 calls do nothing, and four wait for 20 ms and longer."""
    text = "#include <unistd.h>\nvoid waits(int n) { if (n % 25 == 24) usleep(20000 + 100 * n); }\n" \
           "int main(void) { for (int i = 0; i < 100; i++) waits(i); return 0; }\n"  # fmt: skip
    trace_of(text, "--report", "-o", tmp_path / "w.report.json", options=("-fno-inline",))
    row = read_report(str(tmp_path / "w.report.json"))["waits"]
    assert row.p50 is not None
    assert row.p99 is not None
    assert row.longest is not None
    assert row.p50 < 20_000_000 <= row.p99 <= row.longest <= row.total
    assert row.longest >= 29_900_000
    assert row.p50 <= row.total / 50


def test_a_damaged_tree_ends() -> None:
    """The traced program can write to it: a node that is its own sibling or child is taken once."""
    node = (7).to_bytes(4, "little") + (1).to_bytes(4, "little") * 2 + b"\0" * 52
    assert [one.name for one in read_tree(node * 3 + b"\xff" * 64, {}, lambda: (1, 1)).roots] == []


def test_a_tree_is_read_in_the_order_of_first_calls() -> None:
    def node(point: int, child: int, sibling: int, calls: int, total: int = 0, most: int = 0, ended: int = 0) -> bytes:
        numbers = [*(n.to_bytes(4, "little") for n in (point, child, sibling, ended)),
                   *(n.to_bytes(8, "little") for n in (calls, total, 0, most))]  # fmt: skip
        return b"".join(numbers).ljust(64, b"\0")

    five = node(5, 0, 0, 4, 30, ended=3)
    threads = node(0, 4, 0, 3, 7, 99), node(5, 3, 0, 1), node(6, 0, 1, 2), five, node(9, 2, 5, 0)
    data = b"".join((*threads, node(9, 6, 0, 0), node(6, 0, 7, 1), node(8, 0, 0, 0, ended=9)))
    tree = read_tree(data, {5: "five"}, lambda: (1, 1))
    assert (tree.lost, tree.most) == (7, 99)
    assert [(one.name, one.times) for one in tree.roots] == [("five", 1), ("?", 3)]
    assert tree.roots[0].below == (Calls("five", 4, 30, 0, (), 1),)
    data = data[:12] + b"\1\0\0\0" + data[16:]
    assert read_tree(data, {5: "five"}, lambda: (1, 3)).roots[0].below == (Calls("five", 4, 10, 0, (), 1),)


# -- which calls are added up -----------------------------------------------------------------------------------------

CUTS: dict[str, tuple[tuple[str, ...], Shape]] = {
    "not deep": (("--depth", "2"), [(0, "main", 1), (1, "outer", 1), (1, "large", 1), (1, "again", 1)]),
    "within": (("--below", "middle", "--below", "large"),
               [(0, "middle", 1), (1, "leaf", 2), (0, "large", 1), (1, "leaf", 1)]),
    "nothing within": (("--not-below", "outer", "--not-below", "ag*"),
                       [(0, "main", 1), (1, "outer", 1), (1, "large", 1), (2, "leaf", 1), (1, "again", 1)]),
    "within, and not deep": (("--below", "again", "--depth", "2"), [(0, "again", 1), (1, "again", 1)]),
    "too short": (("--min-time", "1h"), []),
}  # fmt: skip


@pytest.mark.parametrize("engine", ["inside", "patch"])
@pytest.mark.parametrize("case", CUTS)
def test_only_some_calls_are_added_up(case: str, engine: str, trace: Any) -> None:
    words, shape = CUTS[case]
    done = trace("--graph", *words, "--engine", engine, code=None)
    assert shape_of(done.stdout) == shape


WINDOWED = """
#include <unistd.h>
#include "own.h"
#define KEPT __attribute__((noinline))
KEPT void quick(void) { __asm__ volatile(""); }
KEPT void lasts(void) { quick(); sleep(1); }
KEPT void turn(int n) { quick(); if (n == 2) OWN_BEGIN(); quick(); if (n == 4) OWN_END(); }
int main(void)
{
    for (int n = 0; n < 6; n++)
        turn(n);
    lasts();
    return 0;
}
"""


@pytest.fixture(scope="module")
def windowed(tmp_path_factory: pytest.TempPathFactory, compiled: Any, header_of: Any) -> Path:
    folder = tmp_path_factory.mktemp("windowed")
    header_of(folder, "own.d", "provider own { probe begin(); probe end(); };\n")
    return compiled(folder, "w.c", WINDOWED, "-O1", "-DUSDT_LIVE", "-fpatchable-function-entry=7,5")


@pytest.mark.parametrize(
    ("words", "shape"),
    [
        (("--from", "own:begin", "--until", "own:end"), [(0, "quick", 1), (0, "turn", 2), (1, "quick", 4)]),
        (("--from", "own:end"), [(0, "turn", 1), (1, "quick", 2), (0, "lasts", 1), (1, "quick", 1)]),
        (("--until", "own:begin"), [(0, "main", 1), (1, "turn", 3), (2, "quick", 5)]),
        (("--min-time", "500ms"), [(0, "main", 1), (1, "lasts", 1)]),
    ],
)
def test_calls_between_probes_and_long_ones(words: tuple[str, ...], shape: Shape, windowed: Path, trace: Any) -> None:
    assert sorted(shape_of(trace("--graph", *words, command=(windowed,)).stdout)) == sorted(shape)


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (("--depth", "2", "--count"), 2, "choose the calls of --report and --graph"),
        (("--report", "--from", "a:b", "--engine", "patch"), 1, "nothing has matched --from a:b"),
        (("--report", "--not-below", "nobody", "--engine", "patch"), 1, "nothing matches --not-below nobody"),
        (("--report", "--below", "nobody"), 1, "nothing matches --below nobody"),
        (("--report", "--until", "a:b"), 1, "nothing matches --until a:b"),
    ],
)
def test_what_chooses_nothing_is_said(words: tuple[str, ...], code: int, says: str, trace: Any) -> None:
    assert says in trace(*words, code=code).stderr


def test_threads_that_come_and_go_share_what_they_have(trace_of: Any) -> None:
    """A thread goes on with the nodes of one that has ended: 3,000 have room, and are one."""
    text = '#include <pthread.h>\nvoid *runs(void *p) { __asm__ volatile(""); return p; }\n' \
           "int main(void) { for (int i = 0; i < 3000; i++) { pthread_t t; pthread_create(&t, 0, runs, 0);" \
           " pthread_join(t, 0); } return 0; }\n"  # fmt: skip
    done = trace_of(text, "--graph")
    assert sorted(shape_of(done.stdout)) == [(0, "main", 1), (0, "runs", 3000)]
    assert "no room" not in done.stderr


def test_a_function_that_calls_thousands(trace_of: Any) -> None:
    """Each is found again among its siblings, in whatever order it is called."""
    most = 400
    calls = ["".join(f"f{number}();" for number in order) for order in (range(most), range(most - 1, -1, -2))]
    functions = "".join(f'KEPT void f{number}(void) {{ __asm__ volatile(""); }}\n' for number in range(most))
    main = f"int main(void) {{ for (int i = 0; i < 3; i++) {{ {calls[0]} }} {calls[1]} return 0; }}\n"
    done = trace_of(f"#define KEPT __attribute__((noinline))\n{functions}{main}", "--graph")
    expected = [(0, "main", 1), *((1, f"f{number}", 3 + number % 2) for number in range(most))]
    assert shape_of(done.stdout) == expected


@pytest.mark.parametrize("what", [("--report",), ("--engine", "inside", "-P", "*")])
def test_what_the_program_writes_is_in_memory(
    usdtbuild: Any, cache: Path, tmp_path: Path, what: tuple[str, ...]
) -> None:
    """Else it waits for the disk, and what that takes for its first page is a function's time. TMPDIR is followed."""
    where = {**os.environ, "XDG_CACHE_HOME": str(cache)}
    where.pop("TMPDIR", None)
    command = ("trace", *what, "--", "sh", "-c", "echo $USDT_LIVE_INSIDE")
    memory = os.statvfs("/dev/shm") if Path("/dev/shm").is_dir() else None
    if memory is not None and memory.f_bavail * memory.f_frsize > 1 << 30 and os.access("/dev/shm", os.W_OK):
        folder = usdtbuild(*command, env=where, code=None).stdout.split()[0]
        assert folder.startswith("/dev/shm/usdtbuild-")
        assert not Path(folder).exists()
    folder = usdtbuild(*command, env={**where, "TMPDIR": str(tmp_path)}, code=None).stdout.split()[0]
    assert folder.startswith(f"{tmp_path}/usdtbuild-")


@pytest.mark.slow
def test_thousands_of_functions_are_told_of(trace_of: Any) -> None:
    """It is said how many there are, and what chooses fewer."""
    kept = '__attribute__((noinline)) void f%d(void) { __asm__ volatile(""); }\n'
    text = "".join(kept % number for number in range(10_500)) + "int main(void) { f5(); f9999(); return 0; }\n"
    for words in (("--graph",), ("--count", "--engine", "inside")):
        for glob, told in (("f*", True), ("f99*", False)):
            done = trace_of(text, *words, "-F", glob)
            assert ("10,500 functions and probes are traced; narrower patterns, -x" in done.stderr) == told
            assert ("f5" in done.stdout.split(), "f9999" in done.stdout.split()) == (told, True)
