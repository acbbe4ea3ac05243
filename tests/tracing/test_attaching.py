"""A process that is attached to runs on while its probes are looked up; nothing that happens meanwhile is missed."""

from __future__ import annotations

import json
import multiprocessing
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.started import Started, ready, tracing
from usdtbuild.tracing.errors import UnwantedError
from usdtbuild.tracing.running import status_field
from usdtbuild.tracing.worker import Worker

from .conftest import SOURCES

PROVIDER = "provider changing { probe fire(int number, int pid); probe fired(int number, int pid); };"
TRACE = sys.executable, "-m", "usdtbuild", "trace"
ROUNDS = 40


@pytest.fixture(scope="module")
def changing(run: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the program and of the library that it loads."""
    folder = tmp_path_factory.mktemp("changing")
    shutil.copy(SOURCES / "changing.c", folder)
    (folder / "changing.d").write_text(PROVIDER)
    module = sys.executable, "-m", "usdtbuild"
    run(*module, "header", "--formats=dof", "changing.d", "-o", "changing.h", cwd=folder)
    for name, options in (("program", ()), ("library", ("-fPIC", "-DLIBRARY"))):
        run(*module, "cc", "--", "gcc", "-O2", *options, "-c", "changing.c", "-o", f"{name}.o", cwd=folder)
    run("gcc", "program.o", "-o", "program", "-ldl", cwd=folder)
    run("gcc", "-shared", "library.o", "-o", "library.so", cwd=folder)
    return folder


@pytest.mark.parametrize("engine", ["patch", "trap"])
@pytest.mark.parametrize("what", ["load", "fork", "map"])
def test_nothing_is_missed(changing: Path, tmp_path: Path, what: str, engine: str) -> None:
    """Each round that began after the trace did is seen, once, and so is each child of which its parent tells."""
    for attempt in range(3):
        hits = tmp_path / f"{attempt}.jsonl"
        with ready(changing / "program", changing / "library.so", what) as program:
            tracer = tracing("--engine", engine, "-P", "changing:*", "-o", hits, "-p", program.pid)
            assert program.end("x", timeout=120) == "done\n"
            _, errors = tracer.communicate(timeout=120)
        assert (program.returncode, tracer.returncode) == (0, 0), errors
        found = [json.loads(line) for line in hits.read_text().splitlines()]
        fired = [one["args"] for one in found if one.get("probe") == "changing:fire"]
        assert [one["number"] for one in fired if one["number"] >= 0] == list(range(ROUNDS)), errors
        told = [one["args"]["pid"] for one in found if one.get("probe") == "changing:fired"]
        # The first child may be older than the trace.
        assert set(told[1:]) <= {one["pid"] for one in fired}
        assert what != "fork" or len(told) >= ROUNDS


STARTING = r"""
#include <sys/wait.h>
#include <unistd.h>
#include "changing.h"
__attribute__((noinline)) static void work(int i)
{
    CHANGING_FIRE(i, 0);
    __asm__ volatile(".byte 0x66,0x0f,0x1f,0x44,0,0" ::: "memory");
}
int main(void)
{
    write(1, "ready\n", 6);
    for (int i = 0; ; i++) {
        work(i);
        pid_t child = i & 1 ? vfork() : fork();
        if (!child) {
            if (i & 2) execl("/bin/true", "true", (char *)0);
            _exit(0);
        }
        waitpid(child, 0, 0);
    }
}
"""


def test_a_program_that_starts_others_all_the_time(
    tmp_path: Path, usdtbuild: Any, compiled: Any, header_of: Any
) -> None:
    """It often stands where it has just started a child that has its memory: both go on, and it is patched as ever."""
    header_of(tmp_path, "changing.d", PROVIDER)
    compiled(tmp_path, "starting.c", STARTING, "-O2")
    with ready(tmp_path / "starting") as process:
        hits = 0
        for _ in range(12):
            done = usdtbuild("trace", "-P", "changing:*", "-p", process.pid, "--count", "--duration=0.2", timeout=60)
            assert "watched by" not in done.stderr
            assert "not traced" not in done.stderr
            hits += int(done.stdout.split()[0])
        assert process.poll() is None
        assert hits > 0
        process.kill()


FAR = r"""
#include "changing.h"
int main(void)
{
    for (int i = 0; i < 1000; i++) {
        CHANGING_FIRE(i, 0);
        __asm__ volatile(".byte 0xb8, 0xff, 0xff, 0x7f, 0" ::: "eax");  /* as a distance, as far as a jump leads */
        CHANGING_FIRED(i, 0);
        __asm__ volatile(".byte 0xb8, 0, 0, 0x80, 0" ::: "eax");  /* and as far back */
    }
    return 0;
}
"""


@pytest.mark.parametrize("what", ["--count", "--limit=5000"])
def test_a_jump_that_would_lead_too_far_is_none(
    tmp_path: Path, usdtbuild: Any, what: str, compiled: Any, header_of: Any
) -> None:
    """From there a second one must reach what is done for a hit, which is on the other side of one of the sites."""
    said = r"1 site is watched by a breakpoint \(changing:fired?\): a jump there can lead to a few"
    header_of(tmp_path, "changing.d", PROVIDER)
    compiled(tmp_path, "far.c", FAR, "-O2", "-pie", "-fPIE")
    done = usdtbuild("trace", "-P", "changing:*", what, "--", tmp_path / "far")
    assert re.search(said, done.stderr)
    twice = usdtbuild("trace", "-P", "changing:*", "--count", "--", "sh", "-c", f"{tmp_path}/far; {tmp_path}/far")
    assert re.search(said, twice.stderr)
    counts = Counter(re.findall(r"changing:\w+", done.stdout))
    assert counts == dict.fromkeys(counts, 1 if what == "--count" else 1000)
    assert len(counts) == 2


@pytest.mark.skipif(Path("/proc/self/ns/pid").stat().st_ino != 0xEFFFFFFC, reason="this is a container")
def test_the_first_process_of_a_system_is_refused(usdtbuild: Any) -> None:
    assert "while it stands still, so does the system" in usdtbuild("trace", "-p", 1, code=1).stderr


def test_a_front_that_is_gone_before_it_can_be_heard_is_missed() -> None:
    """It may be killed when it has just sent its wish: no signal comes then."""
    ours, theirs = multiprocessing.Pipe()
    theirs.close()
    worker = object.__new__(Worker)
    worker.link = ours
    before = signal.getsignal(signal.SIGIO)
    try:
        with pytest.raises(UnwantedError):
            worker.watch_front()
    finally:
        signal.signal(signal.SIGIO, before)
        ours.close()


BREEDING = r"""
#include <pthread.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>
#include "changing.h"
static volatile int over, harmed, born;
__attribute__((noinline)) static void work(int i) { CHANGING_FIRE(i, 0); }
static void *breed(void *data)
{
    while (!over) {
        int status;
        pid_t child = fork();
        if (!child) {
            for (int i = 0; i < 200; i++) work(i);
            _exit(0);
        }
        if (waitpid(child, &status, 0) != child || status) harmed++;
        born++;
    }
    return data;
}
int main(void)
{
    char line[8];
    pthread_t threads[2];
    for (int i = 0; i < 2; i++) pthread_create(threads + i, NULL, breed, NULL);
    puts("ready");
    fflush(stdout);
    if (!fgets(line, sizeof line, stdin)) return 1;
    over = 1;
    for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
    printf("harmed=%d some=%d\n", harmed, born > 20);
    return 0;
}
"""


@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGKILL, marks=pytest.mark.slow)])
def test_children_that_are_born_at_the_end_are_not_harmed(
    tmp_path: Path, usdtbuild: Any, number: int, compiled: Any, header_of: Any
) -> None:
    """They have their parent's breakpoints, and nobody has heard of them yet when these are put back."""
    header_of(tmp_path, "changing.d", PROVIDER)
    compiled(tmp_path, "breeding.c", BREEDING, "-O2", "-pthread")
    with ready(tmp_path / "breeding") as process:
        for _ in range(8):
            words = [*TRACE, "-v", "--engine", "trap", "--count", "-p", process.pid]
            with Started(*words, stdin=None, stderr=subprocess.PIPE) as tracer:
                while "tracing process" not in tracer.said():
                    assert tracer.poll() is None
                tracer.send_signal(number)
                tracer.communicate(timeout=60)
        if number == signal.SIGKILL:  # the worker puts back, a little later
            usdtbuild("trace", "--count", "--duration=0.1", "-p", str(process.pid), code=None)
        assert process.end("\n") == "harmed=0 some=1\n"


def test_nothing_is_imported_that_a_count_does_not_need(changing: Path) -> None:
    """Most of what attaching takes is imports. The worker imports its own while the front does, and what only the front
    needs is not among it."""
    with ready(changing / "program", changing / "library.so", "map") as program:
        words = [sys.executable, "-v", *TRACE[1:], "-P", "fire", "--count", "--duration", "0.5", "-p", str(program.pid)]
        traced = subprocess.run(words, capture_output=True, text=True, timeout=60, check=True)
        program.kill()
    assert re.fullmatch(r"[1-9]\d*  changing:fire\n", traced.stdout)
    ours = Counter(re.findall(r"^import '([\w.]+)'", traced.stderr, re.MULTILINE))
    assert ours["usdtbuild.tracing.arming"] == 1
    both = {name for name, times in ours.items() if times > 1}
    assert not {name for name in both if re.match(r"click|usdtbuild\.(api|cli|commands|tracing\.outputs)\b", name)}
    assert not {name.split(".")[0] for name in ours} & {"capstone", "elftools", "rich", "asyncio", "concurrent"}
    assert len({"usdtbuild.tracing.patch.aarch64", "usdtbuild.tracing.patch.x86_64"} & {*ours}) == 1


@pytest.mark.parametrize("engine", ["auto", "patch", "trap", "gdb", pytest.param("bpftrace", marks=pytest.mark.live)])
def test_what_runs_no_program_is_called_what_it_is(
    engine: str, usdtbuild: Any, need: Any, request: pytest.FixtureRequest
) -> None:
    """A process that has ended and wasn't collected yet, and a thread of the kernel."""
    request.getfixturevalue("bpftrace") if engine == "bpftrace" else need("gdb")
    with subprocess.Popen(["true"]) as child:
        while status_field(child.pid, "State")[:1] != "Z":
            time.sleep(0.01)
        said = usdtbuild("trace", "--engine", engine, "-p", child.pid, code=1).stderr
        assert f"process {child.pid} has ended, and waits for its parent ({os.getpid()}) to collect it" in said
    if Path("/proc/2/cmdline").exists() and not Path("/proc/2/cmdline").read_bytes() and status_field(2, "PPid") == "0":
        said = usdtbuild("trace", "--engine", engine, "-p", 2, code=1).stderr
        assert "process 2 is a thread of the kernel, which nobody can trace" in said
