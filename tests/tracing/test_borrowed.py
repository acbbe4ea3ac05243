"""A thread that works for us is itself again afterwards, and also if all that traces it is killed at any moment."""

from __future__ import annotations

import contextlib
import os
import random
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.started import TRACE, Started, children_of, ready, tracing
from usdtbuild.tracing.maps import Memory, areas
from usdtbuild.tracing.model import COUNT
from usdtbuild.tracing.patch.engine import PatchEngine
from usdtbuild.tracing.plan import Plan
from usdtbuild.tracing.selection import Wanted, select
from usdtbuild.tracing.tracees import Tracees

from .conftest import SOURCES, built_with_probes

ROOT = Path(__file__).resolve().parent.parent.parent


@pytest.fixture(scope="module")
def borrowed(run: Any, need: Any, tmp_path_factory: Any) -> Path:
    folder: Path = tmp_path_factory.mktemp("borrowed")
    for name in ("borrowed.c", "stress.d"):
        shutil.copy(SOURCES / name, folder)
    module = sys.executable, "-m", "usdtbuild"
    run(*module, "header", "--formats=dof", "stress.d", "-o", "stress.h", cwd=folder)
    run(*module, "cc", "--", need("gcc"), "-O2", "-Wno-unused-result", "-c", "borrowed.c", cwd=folder)
    run("gcc", "-pthread", "borrowed.o", "-o", "borrowed", cwd=folder)
    return folder / "borrowed"


@pytest.fixture
def running(borrowed: Path) -> Iterator[Started]:
    with ready(borrowed) as process:
        yield process
        process.kill()


def ends_well(process: Started) -> None:
    """Registers, sleeps, reads, polls, signals, and its signal mask were what they would have been."""
    assert (process.end("\n"), process.returncode) == ("wrong=0,0,0,0,0,0 lost=0 turned=1\n", 0)


@pytest.mark.parametrize("what", [pytest.param("count", marks=pytest.mark.slow), "record"])
def test_killed_before_each_step(running: Any, what: str) -> None:
    """The first thread makes system calls for us, and goes on whatever it was about to do when we are gone."""
    for _ in range(2):  # with nothing there, and with what the killed ones have left
        words = [sys.executable, "-m", "tests.tracing.dying", str(running.pid), what]
        done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=240, check=False)
        found = re.fullmatch(r"killed=(\d+) status=0\n", done.stdout)
        assert found, (done, running.poll())
        assert int(found[1]) > 60
    ends_well(running)


@pytest.mark.parametrize("times", [12, pytest.param(200, marks=pytest.mark.slow)])
def test_command_and_what_traces_for_it_killed_at_any_moment(running: Any, times: int) -> None:
    chance = random.Random(times)
    words = [*TRACE, "--engine", "patch", "-P", "stress:*", "-p", str(running.pid)]
    for number in range(times):
        tracer = Started(*words, "-v", stdin=None, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        if number % 4 == 0:  # when all is armed
            assert "tracing process" in tracer.said()
        else:
            time.sleep(chance.uniform(0.1, 0.7))
        for worker in children_of(tracer.pid):
            os.kill(worker, 9)
        tracer.kill()
        tracer.communicate()
    last = subprocess.run([*words, "-v", "--limit", "5"], capture_output=True, text=True, timeout=120, check=False)
    assert last.stdout.count("stress:pass place=1 n=2 thrice=3 inverse=4 ") == 5, last
    ends_well(running)


def test_what_a_trace_changes_behind_the_vdso_is_put_back(running: Any, usdtbuild: Any) -> None:
    (area,) = [one for one in areas(running.pid) if one.name == "[vdso]"]
    with contextlib.closing(Memory(running.pid)) as memory:
        before = memory.read(area.start, area.end - area.start)
        done = usdtbuild("trace", "--engine", "patch", "-P", "stress:*", "--limit", "5", "-p", running.pid)
        assert "stress:pass" in done.stdout
        assert memory.read(area.start, area.end - area.start) == before
    ends_well(running)


def test_a_restartable_sequence_is_begun_again(run: Any, need: Any, tmp_path: Path) -> None:
    """What a thread does without being interrupted, or anew, as allocators do: the kernel sees to it, and so do we."""
    shutil.copy(SOURCES / "stress.d", tmp_path)
    run(sys.executable, "-m", "usdtbuild", "header", "--formats=dof", "stress.d", "-o", "stress.h", cwd=tmp_path)
    compile_ = [sys.executable, "-m", "usdtbuild", "cc", "--", need("gcc"), "-O2", "-I.", SOURCES / "sequence.c"]
    if run(*compile_, "-o", "sequence", cwd=tmp_path, code=None).returncode:
        pytest.skip("this C library registers no restartable sequences (glibc does from 2.35 on)")
    with Started(tmp_path / "sequence") as process:
        word, address = process.line().split()
        if word == "none":
            pytest.skip("this kernel has no restartable sequences")
        targets = select(process.pid, Wanted(("stress:*",))).targets
        memory = Memory(process.pid)
        for number in range(20):
            tracees = Tracees()
            tracees.seize(process.pid)
            with tracees.standing(process.pid):
                engine = PatchEngine(tracees, process.pid, Plan(COUNT, targets))
                assert not engine.attach()
                memory.write(int(address, 16), bytes([number + 1]))
                engine.detach()
            tracees.stop(process.pid)
            tracees.detach(process.pid)
            time.sleep(0.01)
        memory.close()
        output = process.end("\n")
    assert re.fullmatch(r"wrong=0 done=[1-9]\d* again=[1-9]\d*\n", output), output


def end_all(tracer: Started) -> None:
    """Kill a command, what traces for it, and what would put things back for that one."""
    for worker in children_of(tracer.pid):
        for one in (*children_of(worker), worker):
            os.kill(one, 9)
    tracer.kill()
    tracer.communicate()


LOADING = r"""
#include <dlfcn.h>
#include <stdio.h>
#include "stress.h"
int main(void) {
    char line[8];
    puts("ready");
    fflush(stdout);
    while (fgets(line, sizeof line, stdin)) {
        STRESS_PASS(1, 2, 3, 4, (char *)"loading");
        void *library = dlopen("libm.so.6", RTLD_NOW);
        puts(library && !dlclose(library) ? "loaded" : "failed");
        fflush(stdout);
    }
    return 0;
}
"""


RELOADING = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>
static volatile int over, handled, wrong;
static void urgent(int number) { (void)number; handled++; }
static void *load(void *mask) {
    pthread_sigmask(SIG_BLOCK, mask, NULL);
    while (!over) {
        void *library = dlopen("libm.so.6", RTLD_NOW);
        double (*root)(double) = library ? (double (*)(double))dlsym(library, "sqrt") : NULL;
        if (!root || root(16.0) != 4.0 || dlclose(library)) wrong++;
        usleep(500);
    }
    return NULL;
}
int main(int argc, char **argv) {
    char line[8];
    sigset_t none, some;
    pthread_t threads[2];
    sigemptyset(&none);
    sigemptyset(&some);
    sigaddset(&some, SIGURG);
    if (argc > 1) signal(SIGURG, urgent);
    pthread_create(&threads[0], NULL, load, &none);
    pthread_create(&threads[1], NULL, load, argc > 2 ? &some : &none);
    printf("ready %s\n", argv[0]);
    fflush(stdout);
    if (!fgets(line, sizeof line, stdin)) return 1;
    over = 1;
    pthread_join(threads[0], NULL);
    pthread_join(threads[1], NULL);
    printf("wrong=%d handled=%d\n", wrong, handled);
    return 0;
}
"""


@pytest.fixture(scope="module")
def reloading(tmp_path_factory: Any, compiled: Any) -> Path:
    folder: Path = tmp_path_factory.mktemp("reloading")
    return compiled(folder, "reloading.c", RELOADING, "-O2", "-fno-builtin", "-pthread", "-ldl")


@pytest.mark.parametrize("times", [6, pytest.param(100, marks=pytest.mark.slow)])
def test_all_killed_at_any_moment_while_libraries_come_and_go(reloading: Path, usdtbuild: Any, times: int) -> None:
    chance = random.Random(times)
    with ready(reloading) as process:
        pid = str(process.pid)
        memory = Memory(process.pid)
        (linker,) = [one for one in areas(process.pid) if "ld-" in one.name and one.flags == "r-xp"]
        before = memory.read(linker.start, linker.end - linker.start)
        words = [*TRACE, "-v", "--count", "-F", "*root", "-p", pid]
        for number in range(times):
            tracer = Started(*words, stdin=None, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
            if number % 2:
                time.sleep(chance.uniform(0.1, 0.6))
            else:
                tracer.said()
            end_all(tracer)
        usdtbuild("trace", "--count", "-F", "*root", "--duration", "0.2", "-p", pid, code=None)
        changed = set(zip(before, memory.read(linker.start, linker.end - linker.start)))
        # A newer linker has probes, NOPs, where another test's bpftrace may have come or gone.
        assert {one for one in changed if one[0] != one[1]} <= {(0x90, 0xCC), (0xCC, 0x90)}
        memory.close()
        output = process.end("\n")
    assert (process.returncode, output) == (0, "wrong=0 handled=0\n")


@pytest.mark.parametrize("options", [["handles"], ["handles", "blocks"]], ids=lambda words: words[-1])
def test_the_signal_that_tells_of_libraries_never_gets_to_the_program(
    reloading: Path, usdtbuild: Any, options: list[str]
) -> None:
    with ready(reloading, *options) as process:
        words = ["trace", "--count", "--every", "20ms", "-F", "*root", "--duration", "0.5", "-p", process.pid]
        said = usdtbuild(*words, code=None).stderr
        output = process.end("\n")
    assert (process.returncode, output) == (0, "wrong=0 handled=0\n")
    assert "damaged" not in said  # a flag is set and cleared where other trampolines count up


BLOCKING = r"""
#include <dlfcn.h>
#include <signal.h>
#include <unistd.h>
#include "late.h"
void hit(void) { LATE_ONE(1); }
int enabled(void) { return LATE_ONE_ENABLED(); }
int main(int argc, char **argv) {
    sigset_t all;
    sigfillset(&all);
    if (argc > 2) sigprocmask(SIG_BLOCK, &all, 0);
    void *library = dlopen(argv[1], RTLD_NOW);
    int (*there)(void) = (int (*)(void))dlsym(library, "enabled");
    while (!there()) usleep(1000);
    ((void (*)(void))dlsym(library, "hit"))();
    return 0;
}
"""


@pytest.mark.parametrize("more", [[], ["blocks"]])
def test_a_library_that_nobody_waits_in_is_told_of(more: list[str], run: Any, usdtbuild: Any, tmp_path: Path) -> None:
    program = built_with_probes(run, tmp_path, "late", "provider late { probe one(int number); };\n", BLOCKING)
    run("gcc", "-O2", "-fPIC", "-shared", "late.c", "-o", "liblate.so", cwd=tmp_path)
    done = usdtbuild("trace", "--count", "-P", "late:one", "--", program, tmp_path / "liblate.so", *more)
    assert re.search(r"^1  late:one  \(.*/liblate\.so\)$", done.stdout, re.MULTILINE)
    assert ("a thread that blocks SIGURG has opened a library" in done.stderr) == bool(more)


def test_the_next_trace_cleans_up_behind_a_killed_one(run: Any, tmp_path: Path) -> None:
    """Jumps, that in the dynamic linker too. The keeper is killed, too, so until then the program runs on with them."""
    (tmp_path / "loading.c").write_text(LOADING)
    shutil.copy(SOURCES / "stress.d", tmp_path)
    run(sys.executable, "-m", "usdtbuild", "header", "--formats=dof", "stress.d", "-o", "stress.h", cwd=tmp_path)
    run(sys.executable, "-m", "usdtbuild", "cc", "--", "gcc", "loading.c", "-o", "loading", "-ldl", cwd=tmp_path)
    with ready(tmp_path / "loading") as process:
        memory = Memory(process.pid)
        code = [one for one in areas(process.pid) if one.flags == "r-xp" and one.inode]
        before = [memory.read(one.start, one.end - one.start) for one in code]
        for number in range(3):
            tracer = tracing("--count", "--engine", "patch", "-p", process.pid)
            if number < 2:  # the jump in the dynamic linker, and those that the probe has, lead nobody astray
                end_all(tracer)
                assert [memory.read(one.start, one.end - one.start) for one in code] != before
            process.tell()
            assert process.line() == "loaded\n"
            if number < 2:
                continue
            tracer.terminate()
            assert "1  stress:pass" in tracer.end()
        assert [memory.read(one.start, one.end - one.start) for one in code] == before
        memory.close()
        assert process.end("\n") == "loaded\n"
        assert process.returncode == 0
