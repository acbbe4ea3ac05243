"""`trace --stack`: the calls that a hit is in are those that gdb and bpftrace see, whatever a program is like."""

from __future__ import annotations

import gzip
import json
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from usdtbuild.machines.numbers import EM_S390, EM_X86_64
from usdtbuild.tracing.model import PROBE, Module, Site, Target
from usdtbuild.tracing.stacks import with_stack

from .conftest import built_with_probes

PROVIDER = "provider calls { probe here(int); };"
PROGRAM = r"""
#define _GNU_SOURCE
#include <alloca.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>
#include "calls.h"

#define APART __attribute__((noinline, noclone))
static volatile int sink;
APART static void leaf(int n) { volatile int own = n; CALLS_HERE(own); sink++; }
static inline __attribute__((always_inline)) void inlined(int n) { leaf(n); sink++; }
APART static void deep(int n) { if (n) deep(n - 1); else inlined(1); sink++; }
APART static int compare(const void *a, const void *b) { leaf(2); return *(const int *)a - *(const int *)b; }
APART static void handler(int number) { leaf(number); sink++; }
APART static void interrupted(void) { raise(SIGUSR1); sink++; }
APART static void sized(int n) { char *text = alloca(n); memset(text, n, n); sink += *text; leaf(4); sink += *text; }
APART static void aligned(void) { _Alignas(64) char text[200]; memset(text, 5, sink + 9); leaf(5); sink += text[sink]; }
APART static void last(int n) { leaf(n); }
APART static void *thread(void *unused) { leaf(7); sink++; return unused; }

int main(void)
{
    int numbers[] = {2, 1};
    pthread_t other;
    signal(SIGUSR1, handler);
    deep(3);
    qsort(numbers, 2, sizeof *numbers, compare);
    interrupted();
    sized(100);
    aligned();
    last(6);
    pthread_create(&other, NULL, thread, NULL);
    pthread_join(other, NULL);
    sink++;
    return 0;
}
"""
CPLUSPLUS = r"""
#include <stdexcept>
#include <vector>
#include <algorithm>
#include "calls.h"
namespace shop {
struct Guard { int n; __attribute__((noinline)) ~Guard() { volatile int own = n; CALLS_HERE(own); } };
template <typename T> __attribute__((noinline)) T thrown(T n)
{
    Guard guard{n};
    if (n > 1) throw std::runtime_error("n");
    return n;
}
bool less(int a, int b) { Guard guard{40}; return a < b; }
class Price { public: __attribute__((noinline)) int of(int n) { Guard guard{20 + n}; return thrown(n) + 1; } };
}
int main()
{
    shop::Price price;
    std::vector<int> numbers{3, 1};
    try { price.of(1); price.of(2); } catch (const std::exception &) { CALLS_HERE(30); }
    std::sort(numbers.begin(), numbers.end(), shop::less);
    return 0;
}
"""
# What needs no stack has its probe before its frame all the same, so `leaf` and `~Guard` use some.
FRAMED = ("-fno-omit-frame-pointer", "-mno-omit-leaf-frame-pointer")
BUILDS = {
    "frameless": ("-O2", "-g", "-fomit-frame-pointer"),
    "framed": ("-O2", "-g", *FRAMED),
    "plain": ("-O0", "-g", "-no-pie", "-fno-pie", *FRAMED),
    "bare": ("-O2",),
    "static": ("-O2", "-g", "-static", *FRAMED),
    "fixed": ("-O1", "-g", "-no-pie", "-fno-pie", *FRAMED),
    "stripped": ("-O2", "-s", "-rdynamic"),
    "exceptions": ("-O2", "-g", *FRAMED),
    "exceptions-plain": ("-O0", "-g", *FRAMED),
    "exceptions-frameless": ("-O2", "-g", "-fomit-frame-pointer"),
}
# What gdb is to do at each hit. It finds calls in the last place of a function by debug information; we don't.
AT_HIT = r"""
import gdb, json
class Here(gdb.Breakpoint):
    def stop(self):
        found, frame = [], gdb.newest_frame()
        while frame is not None:
            if frame.type() == gdb.SIGTRAMP_FRAME:
                found.append("<signal handler called>")
            elif frame.type() != gdb.TAILCALL_FRAME and not (frame.name() or "").startswith("usdtbuild_on_"):
                found.append((frame.name() or "?").partition("(")[0])
            frame = frame.older()
        print("\nHIT" + json.dumps(found))
        return False
for words in ("handle SIGUSR1 nostop noprint", "backtrace past-main on", "backtrace past-entry on"):
    gdb.execute(words if words.startswith("handle") else "set " + words)
gdb.execute("set breakpoint pending on")
Here("-probe-stap PROBE")
gdb.execute("run")
"""


def stacks_of_gdb(run: Any, gdb: str, program: Path, probe: str = "calls:here") -> list[list[str]]:
    """The functions of each hit's stack as gdb finds them."""
    script = program.with_suffix(".py")
    script.write_text(AT_HIT.replace("PROBE", probe))
    out = run(gdb, "-batch", "-nx", "-x", script, program, env={"DEBUGINFOD_URLS": ""}).stdout
    return [json.loads(line[3:]) for line in out.splitlines() if line.startswith("HIT")]


def traced_stacks(usdtbuild: Any, folder: Path, program: Path, *words: Any, **more: Any) -> list[list[str]]:
    """The same by `trace --stack -o FILE.jsonl`."""
    file = folder / "hits.jsonl"
    usdtbuild("trace", *words, "--stack", "-P", "calls:here", "-o", file, "--", program, **more)
    return [[_name(frame) for frame in json.loads(row)["stack"]] for row in file.read_text().splitlines()]


def _name(frame: dict[str, Any]) -> str:
    end = next((one for one in ("cut", "lost") if one in frame), "")
    return f"[{end}]" if end else str(frame.get("function", "?"))


@pytest.fixture(scope="module")
def program(run: Any, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    made: dict[str, Path] = {}

    def build(name: str) -> Path:
        if name not in made:
            throws = "exceptions" in name
            source = CPLUSPLUS if throws else PROGRAM
            options = *BUILDS[name], *(("-Wl,--no-as-needed", "-lstdc++", "-xc++") if throws else ("-pthread",))
            made[name] = built_with_probes(run, tmp_path_factory.mktemp(name), "calls", PROVIDER, source, *options)
        return made[name]

    return build


@pytest.mark.parametrize("engine", ["auto", "trap"])
@pytest.mark.parametrize("build", BUILDS)
def test_stacks_are_those_that_gdb_sees(
    program: Any, build: str, engine: str, usdtbuild: Any, run: Any, need: Any, tmp_path: Path
) -> None:
    found = traced_stacks(usdtbuild, tmp_path, program(build), "--engine", engine)
    assert len(found) >= 6
    by_gdb = stacks_of_gdb(run, need("gdb"), program(build))
    if "exceptions" in build:  # of an unwound function's destructor, too; templates' arguments each writes its own way
        assert ["shop::Guard::~Guard", "shop::thrown<int>"] in [stack[:2] for stack in found]
        found, by_gdb = ([[re.split("[<(]", one)[0] or one for one in stack] for stack in stacks]
                         for stacks in (found, by_gdb))  # fmt: skip
    if build == "static":  # of several names for one address each chooses one
        names = dict(line.split()[::-2] for line in run("nm", program(build)).stdout.splitlines() if line[:1] != " ")
        names |= {name.rpartition(".")[0]: at for name, at in names.items() if ".part." in name}
        found, by_gdb = ([[names.get(one, one) for one in stack] for stack in stacks] for stacks in (found, by_gdb))
    assert found == by_gdb


# A stack that ends with its memory, one in a signal's own place, and a frame pointer that is none.
PLACES = r"""
#define _GNU_SOURCE
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>
#include "calls.h"

#define APART __attribute__((noinline, noclone))
static volatile int sink;
static ucontext_t back, coroutine;
APART static void leaf(int n) { CALLS_HERE(n); sink++; }
APART static void routine(void) { leaf(1); sink++; }
APART static void handler(int number) { leaf(number); sink++; }
APART static void with_base(uintptr_t base)
{
    __asm__ volatile("mov %%rbp, %%r12\n\tmov %0, %%rbp" : : "r"(base) : "r12", "memory");
    CALLS_HERE(3);
    __asm__ volatile("mov %%r12, %%rbp" : : : "memory");
}

int main(void)
{
    const size_t page = 4096, size = 16 * page;
    char *memory = mmap(NULL, size + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    mprotect(memory + size, page, PROT_NONE);
    getcontext(&coroutine);
    coroutine.uc_stack.ss_sp = memory;
    coroutine.uc_stack.ss_size = size;
    coroutine.uc_link = &back;
    makecontext(&coroutine, routine, 0);
    swapcontext(&back, &coroutine);
    stack_t other = {.ss_sp = memory, .ss_size = size};
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_ONSTACK};
    sigaltstack(&other, NULL);
    sigaction(SIGUSR1, &action, NULL);
    raise(SIGUSR1);
    uintptr_t bases[] = {0, 1, 0x41414141, -8, (uintptr_t)memory, (uintptr_t)memory + size - 8, (uintptr_t)&bases};
    bases[6] = (uintptr_t)&bases[6];
    for (int i = 0; i < 7; i++)
        with_base(bases[i]);
    sink++;
    return 7;
}
"""


@pytest.mark.parametrize("engine", ["patch", "trap"])
@pytest.mark.parametrize("tables", [True, False])
def test_stacks_end_where_nothing_more_is_known(
    tables: bool, engine: str, usdtbuild: Any, run: Any, need: Any, tmp_path: Path
) -> None:
    options = ("-O2", "-g") if tables else ("-O2", "-g", "-fno-asynchronous-unwind-tables")
    program = built_with_probes(run, tmp_path, "calls", PROVIDER, PLACES, "-fomit-frame-pointer", *options)
    found = traced_stacks(usdtbuild, tmp_path, program, "--engine", engine, code=7)
    by_gdb = stacks_of_gdb(run, need("gdb"), program)
    assert len(found) == len(by_gdb) == 9
    if not tables:
        assert found[0] == ["leaf", "[lost]"]
        assert all(stack[0] == "with_base" and stack[-1] == "[lost]" for stack in found[2:])
        return
    assert found[0] == ["leaf", "routine", "?", "[lost]"]  # a coroutine's outermost call has come from nowhere
    assert found[0][:3] == by_gdb[0][:3]
    assert found[1][-1] == "[cut]"  # the interrupted one is on the other stack
    assert found[1][:-1] == by_gdb[1][: len(found[1]) - 1]
    assert len(found[1]) == 5
    assert found[2:] == by_gdb[2:]


THREADS = r"""
#include <pthread.h>
#include "calls.h"
static void *thread(void *unused) {
    for (volatile int i = 0; i < 5; i++) { CALLS_HERE(i); __asm__ volatile("nop; nop; nop; nop; nop"); }
    return unused;
}
int main(void)
{
    pthread_t threads[8];
    pthread_attr_t small;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 16384);
    pthread_attr_setguardsize(&small, 0);
    for (int round = 0; round < 100; round++) {
        for (int i = 0; i < 8; i++) pthread_create(&threads[i], &small, thread, 0);
        for (int i = 0; i < 8; i++) pthread_join(threads[i], 0);
    }
    return 0;
}
"""


@pytest.mark.parametrize("engine", ["patch", "trap"])
def test_threads_whose_stacks_come_and_go_survive(engine: str, usdtbuild: Any, run: Any, tmp_path: Path) -> None:
    """Their stacks end right above the first frame, and beside others that are unmapped meanwhile."""
    program = built_with_probes(run, tmp_path, "calls", PROVIDER, THREADS, "-O2", "-pthread")
    file = tmp_path / "stacks.folded"
    usdtbuild("trace", "--engine", engine, "--lossless", "--stack", "-P", "calls:here", "-o", file, "--", program)
    (line,) = file.read_text().splitlines()
    assert line.endswith(";thread;calls:here 4000")


def test_outputs_count_hits_by_their_stacks(program: Any, usdtbuild: Any, tmp_path: Path) -> None:
    folded, svg, profile = (tmp_path / f"stacks{ending}" for ending in (".folded", ".svg", ".pb.gz"))
    files = [word for file in (folded, svg, profile) for word in ("-o", file)]
    usdtbuild("trace", "--stack", "-P", "calls:here", *files, "--", program("frameless"))
    lines = dict(line.rsplit(" ", 1) for line in folded.read_text().splitlines())
    main = next(line.partition(";main;")[0] for line in lines if ";main;" in line)
    assert lines[f"{main};main;deep;deep;deep;deep;inlined;leaf;calls:here"] == "1"
    assert sum(map(int, lines.values())) >= 7
    assert "interrupted" in svg.read_text()
    assert b"interrupted" in gzip.decompress(profile.read_bytes())
    rows = usdtbuild("trace", "--by", "stack", "-P", "calls:here", "--", program("frameless")).stdout
    by = {stack: count for count, stack in re.findall(r"^ +([0-9]+) +[0-9.]+%  (.*)$", rows, re.MULTILINE)}
    assert by == {line.rpartition(";calls:here")[0]: count for line, count in lines.items()}
    both = usdtbuild("trace", "--by", "arg0,stack", "--filter", "arg0 == 4", "-P", "calls:here", "--",
                     program("frameless")).stdout  # fmt: skip
    assert f"  1  100.0%  4, {main};main;sized;leaf\n" in both


def test_lines_say_where_in_the_source_a_call_is(program: Any, usdtbuild: Any) -> None:
    shown = usdtbuild("trace", "--stack=4", "-P", "calls:here", "--limit", 1, "--", program("frameless")).stdout
    deep = next(at for at, text in enumerate(PROGRAM.splitlines(), 1) if "void deep" in text)
    found = re.findall(r"^ {21}(.*)$", shown, re.MULTILINE)
    assert found[1:] == [f"inlined (calls.c:{deep - 1})", *[f"deep (calls.c:{deep})"] * 2, "[...]"]
    assert found[0].startswith("leaf (calls.c:")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--count",), "leave out other tables"),
        (("-o", "x.csv"), "leave out -o x.csv"),
        (("--engine", "inside"), "sees no call stacks"),
        (("--report", "-F", "*"), "--stack"),
    ],
)
def test_stacks_that_nothing_would_show_are_refused(refused: Callable[..., str], words: Any, said: str) -> None:
    assert said in refused("--stack", *words)


def test_a_target_of_a_machine_whose_stacks_are_not_read_stays_as_it_is() -> None:
    site = Site(0x1000, 0x1000, ())
    target = Target(0, PROBE, "calls", "here", Module("/app", 0, "", EM_S390), (), (site,))
    assert with_stack(target) is target
    ours = with_stack(target._replace(module=Module("/app", 0, "", EM_X86_64)))
    assert [len(one.operands) for one in ours.sites] == [len(ours.arguments)]


@pytest.mark.live
@pytest.mark.parametrize("build", [one if one in {"framed", "exceptions"} else pytest.param(one, marks=pytest.mark.slow)
                                   for one in BUILDS])  # fmt: skip
def test_stacks_are_those_that_bpftrace_sees(
    program: Any, build: str, run: Any, bpftrace: str, need: Any, tmp_path: Path
) -> None:
    """The kernel follows frame pointers only. So all must agree from the probe to the first function that isn't ours
    (libc's, or the place where a signal's handler returns to); without them, only the probe."""
    path, file = program(build), tmp_path / "hits.jsonl"
    # The same addresses in both runs, and one processor: of several, bpftrace mixes what they print.
    same = need("setarch"), "-R", need("taskset"), "-c", str(min(os.sched_getaffinity(0)))
    text = f'usdt:{path}:calls:here {{ printf("HIT%s", ustack(perf)); }}'
    out = run(*same, bpftrace, "-e", text, "-c", path).stdout
    theirs = [[int(at, 16) for at in re.findall("^\t([0-9a-f]+) ", hit, re.MULTILINE)] for hit in out.split("HIT")[1:]]
    run(*same, sys.executable, "-m", "usdtbuild", "trace", "--stack", "-P", "calls:here", "-o", file, "--", path)
    ours = [json.loads(row)["stack"] for row in file.read_text().splitlines()]
    assert len(ours) == len(theirs) >= 6
    names = "|".join(re.findall(r"(\w+)\([^()]*\)\s*{", PROGRAM))
    own = re.compile(rf"(shop::.*|{names})([.<(].*)?")
    framed, agreed = set(FRAMED) <= set(BUILDS[build]) or "-O0" in BUILDS[build], []
    for frames, other in zip(ours, theirs):
        calls = [frame for frame in frames if not frame.get("inlined")]
        mine = [int(frame["address"], 16) + (at > 0) for at, frame in enumerate(calls)]  # to where a call returns
        until = next(at for at, frame in enumerate(calls) if not own.fullmatch(frame.get("function", "?")))
        until = max(1, until) if framed else 1  # libraries are not at the same addresses in both runs
        assert other[:until] == mine[:until], (frames, other)
        agreed.append(until)
    assert max(agreed) >= (3 if framed else 1)
