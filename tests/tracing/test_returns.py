"""`usdtbuild trace -F GLOB --returns`: functions tell their returns, once each, and none where they don't return."""

from __future__ import annotations

import json
import os
import re
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.started import ready, tracing

SOURCE = """
#include <csetjmp>
#include <cstdio>
#include <execinfo.h>
#include <pthread.h>
static jmp_buf where;
static int other;
extern "C" {
int fib(int n);
static int (*volatile again)(int) = fib;  // a compiler would make a loop of some of its calls
__attribute__((noipa)) int fib(int n) { return n < 2 ? n : again(n - 1) + again(n - 2); }
__attribute__((noipa)) int thrower(int n) { if (n % 2) throw n; return n; }
__attribute__((noipa)) int catcher(int n) { try { return thrower(n); } catch (int m) { return -m; } }
__attribute__((noipa)) int jumper(int n) { if (n % 2) longjmp(where, 1); return n; }
__attribute__((noipa)) int last(int n) { return n + 1; }
__attribute__((noipa)) int tail(int n) { return last(n * 2); }
__attribute__((noipa)) void nothing(void) { other++; }
int frames(int n);
static int (*volatile deeper)(int) = frames;
__attribute__((noipa)) int frames(int n) {
    void *found[64];
    return n ? deeper(n - 1) + 1000 : backtrace(found, 64);
}
__attribute__((noipa)) int waits(void) { return getchar() - 1; }
}
static void *work(void *p) { for (int i = 0; i < 20; i++) tail(i); return p; }
int main(int argc, char **argv) {
    int (*volatile by_pointer)(int) = jumper;
    if (argc > 1) {
        std::puts("ready");
        std::fflush(stdout);
        return waits() + waits() == 0;
    }
    long sum = fib(6) + deeper(5);
    pthread_t threads[3];
    for (int i = 0; i < 6; i++) sum += catcher(i);
    for (volatile int i = 0; i < 6; i++) {
        if (setjmp(where)) { nothing(); continue; }
        sum += by_pointer(i);
    }
    for (int i = 0; i < 3; i++) pthread_create(&threads[i], 0, work, 0);
    for (int i = 0; i < 3; i++) pthread_join(threads[i], 0);
    std::printf("%ld\\n", sum);
}
"""
FORMS = {"patchable": ("-fpatchable-function-entry=7,5",), "ordinary": (), "guarded": ("-fcf-protection", "-no-pie")}
# Code in a file that is no program's; while it is on its way, it is copied, and then the copy runs.
JIT = r"""
#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
static unsigned char code[] = {  // sub $8,%rsp; mov $...,%rax; call *%rax; add $8,%rsp; ret
    0x48, 0x83, 0xec, 8, 0x48, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xd0, 0x48, 0x83, 0xc4, 8, 0xc3,
};
static void *made, *moved;
__attribute__((noipa)) int work(void) {
    if (!moved) {
        moved = mmap(0, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        memcpy(moved, made, sizeof code);
    }
    return 7;
}
int main(void) {
    int file = memfd_create("made", 0), sum = 0;
    void *address = (void *)work;
    memcpy(code + 6, &address, 8);
    if (write(file, code, sizeof code) != sizeof code) return 1;
    made = mmap(0, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, file, 0);
    for (int i = 0; i < 3; i++) sum += ((int (*)(void))(moved ? moved : made))();
    printf("%d\n", sum + work());
    return 0;
}
"""
NAMES = ("fib", "thrower", "catcher", "jumper", "last", "tail", "nothing", "frames")
ENTERED = {"fib": 25, "thrower": 6, "catcher": 6, "jumper": 6, "last": 60, "tail": 60, "nothing": 3, "frames": 6}
RETURNED = {**ENTERED, "thrower": 3, "jumper": 3}  # what is thrown or jumped out of doesn't return


def build(form: str, run: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the program, with entries of one form."""
    folder = tmp_path_factory.mktemp("returns")
    folder.chmod(0o755)
    (folder / "program.cc").write_text(SOURCE)
    run("g++", "-O2", *FORMS[form], "-pthread", "program.cc", "-o", "program", cwd=folder)
    return folder / "program"


@pytest.fixture(scope="module", params=FORMS)
def program(request: pytest.FixtureRequest, run: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program, with entries of each form."""
    return build(request.param, run, tmp_path_factory)


@pytest.fixture(scope="module")
def patchable(run: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program, with entries that can be patched."""
    return build("patchable", run, tmp_path_factory)


@pytest.mark.parametrize("engine", ["auto", "trap"])
def test_returns_are_counted_where_there_are_some(program: Path, run: Any, counted: Any, engine: str) -> None:
    """A number of stack frames among the results: who walks the stack finds what is always there."""
    words = [word for name in NAMES for word in ("-F", name)]
    _, printed = counted("--engine", engine, *words, "--returns", "-v", "--", program)
    rows = re.findall(r"^ *([0-9]+)  (\S+)$", printed, re.MULTILINE)
    assert {name: int(number) for number, name in rows} == {
        **ENTERED, **{f"{name}:return": number for name, number in RETURNED.items()}
    }  # fmt: skip
    assert run(program).stdout in printed
    assert re.search(r"traced with (patch and )?trap" if engine == "auto" else "traced with trap", printed)


def test_what_can_be_seen_without_breakpoints(patchable: Path, counted: Any) -> None:
    """All functions but one that ends in a jump to another; none is seen by half."""
    words = [word for name in NAMES for word in ("-F", name)]
    _, printed = counted("--engine", "patch", *words, "--returns", "-v", "--", patchable)
    rows = {name: number for number, name in re.findall(r"^ *([0-9]+|-)  (\S+)$", printed, re.MULTILINE)}
    assert "traced with patch;" in printed
    assert re.search(r"not traced: tail:return.*: it jumps to another function", printed)
    for name in NAMES:
        # Where a jump's bytes lead there may be other memory; then neither the entry nor the return is seen.
        refused = re.search(rf"not traced: {name}(:return)? at ", printed)
        seen = ("-", "-") if refused else (str(ENTERED[name]), str(RETURNED[name]))
        assert (rows[name], rows[f"{name}:return"]) == seen, name
        assert name == "tail" or not refused or "no free memory" in printed


def test_a_call_that_was_under_way(patchable: Path, counted: Any) -> None:
    """Its return is seen in the function's own code, and its breakpoint is only put there by a call."""
    for engine, returns in (("patch", 2), ("trap", 1)):
        with ready(patchable, "wait") as process:
            tracer = tracing("--engine", engine, "--count", "-F", "waits", "--returns", "-p", process.pid)
            process.end("ab")
            table, errors = tracer.communicate(timeout=60)
        rows = re.findall(r"^ *([0-9]+)  (\S+)$", table, re.MULTILINE)
        if "no free memory" not in errors:
            assert dict(map(reversed, rows)) == {"waits": "1", "waits:return": str(returns)}, errors


def test_results_and_spans(program: Path, run: Any, tmp_path: Path) -> None:
    """Each return has its result, and one file pairs calls with returns, recursion too."""
    words = [sys.executable, "-m", "usdtbuild", "trace", "-F", "fib", "-F", "catcher", "--returns"]
    run(*words, "-o", tmp_path / "t.json", "-o", tmp_path / "t.jsonl", "--", program)
    hits = [json.loads(line) for line in (tmp_path / "t.jsonl").read_text().splitlines()]
    results = [hit["args"]["result"] for hit in hits if hit.get("probe") == "catcher:return"]
    numbers = [int(next(iter(one.values())), 0) for one in results]  # of a function whose type nobody knows, pointers
    assert Counter(one & 0xFFFFFFFF for one in numbers) == Counter(one & 0xFFFFFFFF for one in (0, -1, 2, -3, 4, -5))
    events = json.loads((tmp_path / "t.json").read_text())["traceEvents"]
    assert sum(event["ph"] == "X" and event["name"] == "fib" for event in events) == 25


def test_filter_knows_a_function_and_its_return_as_one(program: Path, run: Any) -> None:
    words = [sys.executable, "-m", "usdtbuild", "trace", "-F", "last", "--returns"]
    done = run(*words, "--filter", "result == 0x15", "--", program)
    assert Counter(re.findall(r" (last\S*)", done.stdout)) == {"last": 3, "last:return": 3}


SPLIT = r"""
#include <sys/sdt.h>
__attribute__((noipa, optimize("align-functions=1"), patchable_function_entry(7, 5))) int near(int n) { return n + 1; }
__attribute__((noipa, optimize("align-functions=1"))) int next(int n, double *of)
{
    DTRACE_PROBE1(close, next, *of);
    return n + 2;
}
int main(void)
{
    double half = 0.5;
    for (int i = 0; i < 2000; i++)
        if (near(i) + next(i, &half) != 2 * i + 3) return 1;
    return 0;
}
"""


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="jumps take five bytes on x86-64")
def test_the_place_that_keeps_a_function_from_being_seen_is_named(
    usdtbuild: Any, tmp_path: Path, compiled: Any
) -> None:
    compiled(tmp_path, "split.c", SPLIT, "-O2", "-fno-toplevel-reorder")
    words = "--engine", "patch", "--returns", "-F", "near", "-P", "close:*", "--sum", "arg0", "-v"
    said = usdtbuild("trace", *words, "--", tmp_path / "split").stderr
    assert re.search(r"not traced: near at 0x\w+: another place where .*, 0x\w+, can't be patched: .* so close", said)


@pytest.mark.parametrize("more", [(), ("--latency", "near", "near:return")])
@pytest.mark.parametrize("engine", ["auto", "patch"])
def test_what_is_summed_and_what_is_recorded_lie_side_by_side(
    engine: str, more: tuple[str, ...], usdtbuild: Any, tmp_path: Path, compiled: Any
) -> None:
    """Of a floating-point number the sum needs records, so its probe is another engine's than the return before it,
    whose jump would read that probe's."""
    compiled(tmp_path, "split.c", SPLIT, "-O2", "-fno-toplevel-reorder")
    words = "--engine", engine, "--returns", "-F", "near", "-P", "close:*", *(more or ("--sum", "arg0"))
    done = usdtbuild("trace", *words, "--", tmp_path / "split")
    if not more:
        assert "close:next arg0: 2000 hits, sum 1000, mean 0.5" in done.stdout
    assert ("near:return result: 2000 hits" in done.stdout) == (engine == "auto" and not more), done.stdout


def test_returns_of_nothing_are_refused(run: Any) -> None:
    words = sys.executable, "-m", "usdtbuild", "trace", "--returns"
    done = run(*words, "--", "true", code=2)
    assert "-F GLOB" in done.stderr
    done = run(*words, "-L", "*", "--engine", "patch", "--", "true", code=2)
    assert "--engine trap" in done.stderr


def test_code_that_a_program_moves_gets_no_breakpoint(run: Any, traced: Any, tmp_path: Path) -> None:
    """A JIT compiler's may lie in a file; what returns there isn't seen, and is as it would be."""
    (tmp_path / "jit.c").write_text(JIT)
    tmp_path.chmod(0o755)
    run("gcc", "-O1", "jit.c", "-o", "jit", cwd=tmp_path)
    seen = traced("--engine", "trap", "--count", "-F", "work", "--returns", "--", tmp_path / "jit")
    assert [line.strip() for line in seen.output] == ["28", "4  work", "1  work:return"]


OPENS = '#include <stdio.h>\nint main(void) { for (int i = 0; i < 200; i++) fclose(fopen("/dev/null", "r")); }\n'


def test_what_breakpoints_take_is_not_shown_as_the_programs(usdtbuild: Any, tmp_path: Path, compiled: Any) -> None:
    """Between the hits of one thread lies what the tracer did at the first; --latency takes it out, and says so."""
    compiled(tmp_path, "opens.c", OPENS, "-O1")
    words = ("-L", "fopen", "--returns", "--latency", "fopen", "fopen:return", "-o", "t.jsonl", "-o", "t.json")
    done = usdtbuild("trace", "--engine", "trap", *words, "-o", "t.txt", "--", "./opens", cwd=tmp_path)
    text = (tmp_path / "t.txt").read_text()
    found = re.search(r"200 pairs\n.* p50 ([0-9.]+) (ns|us|ms)", text)
    assert found is not None, text
    shown = float(found[1]) * {"ns": 0.001, "us": 1, "ms": 1000}[found[2]]
    times = [json.loads(line)["time"] for line in (tmp_path / "t.jsonl").read_text().splitlines()]
    between = sorted((end - begin) / 1000 for begin, end in zip(times[::2], times[1::2]))
    assert 2 * shown < between[100], (shown, between[100])
    assert "(without the time of stops at breakpoints; accurate to " in text
    assert "t.json: the times include stops at breakpoints" in done.stderr
