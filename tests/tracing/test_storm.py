"""Traces by every engine, one behind the other, of which most are killed: the program never computes anything wrong,
and when the last has ended its code is as it was, and no descriptor and hardly any memory is left in it."""

from __future__ import annotations

import contextlib
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.started import ready
from usdtbuild.tracing.maps import Memory, areas
from usdtbuild.tracing.patch.injection import NAME_IN_MAPS

PROGRAM = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include "storm.h"
static volatile int over, wrong;
static volatile long children, threads_begun;
__attribute__((noipa)) long work(long i) { STORM_TICK(i, 2 * i); return 3 * i + 1; }
__attribute__((noipa)) long outer(long i) { return work(i) + work(i + 1); }
static void passes(long count) {
    long sum = 0;
    for (long i = 0; i < count; i++) sum += outer(i) + labs(-i);
    if (sum != 3 * count * count - 3 * count + 5 * count + count * (count - 1) / 2) wrong++;
}
static void *fire(void *data) {
    while (!over) { passes(1000); usleep(10000); }
    return data;
}
static void *shortly(void *data) { passes(50); return data; }
static void *begin(void *data) {  /* threads that come and go, and a library */
    while (!over) {
        pthread_t threads[4];
        void *library = dlopen("libm.so.6", RTLD_NOW);
        double (*root)(double) = library ? (double (*)(double))dlsym(library, "sqrt") : NULL;
        if (!root || root(16.0) != 4.0) wrong++;
        for (int i = 0; i < 4; i++) if (pthread_create(threads + i, NULL, shortly, NULL)) wrong++;
        for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
        if (dlclose(library)) wrong++;
        threads_begun += 4;
        usleep(2000);
    }
    return data;
}
static void *breed(void *data) {  /* children, of which every second one is killed */
    while (!over) {
        int status, kills = children % 2;
        pid_t child = fork();
        if (!child) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            do { passes(200); usleep(1000); } while (kills);
            _exit(wrong != 0);
        }
        usleep(20000);
        if (kills) kill(child, SIGKILL);
        if (waitpid(child, &status, 0) != child) wrong++;
        if (kills ? !WIFSIGNALED(status) || WTERMSIG(status) != SIGKILL : status != 0) wrong++;
        children++;
    }
    return data;
}
int main(void) {
    char line[8];
    pthread_t threads[4];
    void *(*const bodies[])(void *) = {fire, fire, begin, breed};
    for (int i = 0; i < 4; i++) pthread_create(threads + i, NULL, bodies[i], NULL);
    puts("ready");
    fflush(stdout);
    if (!fgets(line, sizeof line, stdin)) return 1;
    over = 1;
    for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
    printf("wrong=%d some=%d\n", wrong, children > 2 && threads_begun > 8);
    return 0;
}
"""
MODULE = (sys.executable, "-m", "usdtbuild")
ENGINES = {
    "auto": ("-P", "storm:*", "-F", "work", "-F", "outer", "--returns", "-L", "labs"),
    "patch": ("-P", "storm:*", "-F", "work", "--filter", "arg0 >= 990"),
    "trap": ("-P", "storm:*", "-F", "outer"),
    "count": ("--engine", "patch", "--count", "-F", "*"),
    "gdb": ("-P", "storm:*"),
    "bpftrace": ("-P", "storm:*"),
}


@pytest.fixture(scope="module")
def program(run: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder: Path = tmp_path_factory.mktemp("storm")
    folder.chmod(0o755)
    (folder / "storm.c").write_text(PROGRAM)
    (folder / "storm.d").write_text("provider storm { probe tick(long i, long twice); };")
    run(*MODULE, "header", "storm.d", "-o", "storm.h", cwd=folder)
    patchable = "-fpatchable-function-entry=7,5"
    run("gcc", "-O2", "-fno-builtin", patchable, "-pthread", "storm.c", "-o", "storm", "-ldl", cwd=folder)
    return folder / "storm"


def below(pid: int) -> list[int]:
    """Return the processes that a tracer has started, and those that these have."""
    try:
        found = [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []
    return [*found, *(one for child in found for one in below(child))]


def send(pids: list[int], number: int) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def code_of(pid: int) -> dict[tuple[str, int], bytes]:
    """Return the code of all files of a process that stay loaded."""
    with contextlib.closing(Memory(pid)) as memory:
        return {
            (one.name, one.start): memory.read(one.start, one.end - one.start)
            for one in areas(pid)
            if one.flags == "r-xp" and one.inode and "libm" not in one.name and not one.name.startswith(NAME_IN_MAPS)
        }


def left_in(pid: int) -> tuple[int, list[str]]:
    """Return how many mappings of ours a process has, and what its descriptors are."""
    mapped = sum(one.name.startswith(NAME_IN_MAPS) for one in areas(pid))
    return mapped, sorted(str(one.readlink()) for one in Path(f"/proc/{pid}/fd").iterdir())


def attach(pid: int, engine: str, chance: random.Random) -> str:
    """Trace, and end that by one of many ways at any moment; returns how."""
    named = () if engine == "count" else ("--engine", engine)
    words = [*MODULE, "trace", *named, *ENGINES[engine], "--duration", "3", "-p", str(pid)]
    slow = engine in {"gdb", "bpftrace"}
    with subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as tracer:
        time.sleep(chance.uniform(0.1, 4.0 if slow else 1.0))
        # Who sets breakpoints may not be killed alone (docs/trace.md): until others know of that, a thread that meets
        # one ends the program. Jumps need nobody.
        ways = ["front", "term", "interrupt"] + ["helper", "all"] * (engine in {"patch", "count"})
        way = chance.choice(ways)
        helpers = below(tracer.pid)
        if way == "helper" and helpers:
            send([chance.choice(helpers)], signal.SIGKILL)
        elif way == "all":
            send([*reversed(helpers), tracer.pid], signal.SIGKILL)
        send([tracer.pid], {"front": signal.SIGKILL, "interrupt": signal.SIGINT}.get(way, signal.SIGTERM))
        tracer.wait(120)
    return way


@pytest.mark.slow
@pytest.mark.parametrize("attaches", [8, 300])
def test_attached_to_and_killed_again_and_again(program: Path, attaches: int) -> None:
    chance = random.Random(attaches)

    others = [name for name in ("gdb", "bpftrace") if shutil.which(name) and os.geteuid() == 0]
    with ready(program) as process:
        before, descriptors = code_of(process.pid), left_in(process.pid)[1]
        ways = []
        for number in range(attaches):
            engine = others[number // 25 % 2] if others and number % 25 == 24 else chance.choice(list(ENGINES)[:4])
            ways.append((engine, attach(process.pid, engine, chance)))
            assert process.poll() is None, ways
        deadline = time.monotonic() + 60
        while True:  # who has lost the others puts back
            last = subprocess.run([*MODULE, "trace", "-P", "storm:*", "--limit", "5", "-p", str(process.pid)],
                                  capture_output=True, text=True, timeout=120, check=False)  # fmt: skip
            if last.stdout.count("storm:tick i=") == 5 or time.monotonic() > deadline:
                break
        assert last.stdout.count("storm:tick i=") == 5, (last, ways)
        assert re.search(r"^TracerPid:\t0$", Path(f"/proc/{process.pid}/status").read_text(), re.MULTILINE)
        changed = [key for key, code in code_of(process.pid).items() if before.get(key, code) != code]
        assert not changed, ways
        mapped, descriptors_left = left_in(process.pid)
        assert descriptors_left == descriptors
        assert mapped < 100, ways  # the last two traces' own
        output = process.end("\n")
    assert (process.returncode, output) == (0, "wrong=0 some=1\n"), ways
