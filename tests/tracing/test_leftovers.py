"""What traces leave in a process: as much after forty of them as after two, whatever they traced."""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import signal
import struct
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.started import TRACE, Started, children_of, code_of, ready, tracing, wait_for
from usdtbuild.tracing.maps import PAGE, Area, Memory, areas
from usdtbuild.tracing.model import RECORD, Target
from usdtbuild.tracing.patch import journal
from usdtbuild.tracing.patch.engine import PatchEngine
from usdtbuild.tracing.patch.injection import NAME_IN_MAPS
from usdtbuild.tracing.patch.leftovers import Ours
from usdtbuild.tracing.plan import Plan
from usdtbuild.tracing.running import status_field
from usdtbuild.tracing.selection import Wanted, select
from usdtbuild.tracing.tracees import Tracees

from .conftest import built_with_probes

PROBES = "abcdefgh"
PROGRAM = r"""
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <ucontext.h>
#include "sets.h"
static volatile int over, seen;
static ucontext_t here, there;
static char stack[1 << 18];
static void *fire(void *nothing) {
    for (int i = 0; !over; i++) {
        SETS_A(i); seen = i; SETS_B(i); seen = i; SETS_C(i); seen = i; SETS_D(i); seen = i;
        SETS_E(i); seen = i; SETS_F(i); seen = i; SETS_G(i); seen = i; SETS_H(i); seen = i;
    }
    return nothing;
}
static void handle(int number, siginfo_t *info, void *context) {  /* a coroutine is interrupted, and another goes on */
    (void)number; (void)info; (void)context;
    swapcontext(&there, &here);
}
static void coroutine(void) { fire(NULL); }
int main(int argc, char **argv) {
    char line[8];
    pthread_t threads[2];
    struct sigaction action = {.sa_flags = SA_SIGINFO | SA_NODEFER};
    action.sa_sigaction = handle;
    sigaction(SIGUSR1, &action, NULL);
    if (argc > 1) {
        getcontext(&there);
        there.uc_stack.ss_sp = stack;
        there.uc_stack.ss_size = sizeof stack;
        there.uc_link = &here;
        makecontext(&there, coroutine, 0);
    }
    sigset_t one;
    sigemptyset(&one);
    sigaddset(&one, SIGUSR1);
    pthread_sigmask(SIG_BLOCK, &one, NULL);
    pthread_create(&threads[0], NULL, fire, NULL);
    pthread_create(&threads[1], NULL, fire, NULL);
    pthread_sigmask(SIG_UNBLOCK, &one, NULL);
    printf("ready %s\n", argv[0]);
    fflush(stdout);
    while (fgets(line, sizeof line, stdin) && line[0] != 'x') {
        swapcontext(&here, &there);
        puts("back");
        fflush(stdout);
    }
    over = 1;
    if (argc > 1) swapcontext(&here, &there);
    pthread_join(threads[0], NULL);
    pthread_join(threads[1], NULL);
    puts("well");
    return 0;
}
"""


@pytest.fixture(scope="module")
def program(run: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder: Path = tmp_path_factory.mktemp("sets")
    (folder / "sets.c").write_text(PROGRAM)
    (folder / "sets.d").write_text(f"provider sets {{ {' '.join(f'probe {name}(int i);' for name in PROBES)} }};")
    module = sys.executable, "-m", "usdtbuild"
    run(*module, "header", "--formats=dof", "sets.d", "-o", "sets.h", cwd=folder)
    run(*module, "cc", "--", "gcc", "-O2", "-pthread", "sets.c", "-o", "sets", cwd=folder)
    return folder / "sets"


@pytest.fixture
def running(program: Path, request: Any) -> Iterator[Started]:
    with ready(program, *getattr(request, "param", [])) as process:
        yield process
        process.kill()


@contextlib.contextmanager
def traced(pid: int, targets: tuple[Target, ...]) -> Iterator[PatchEngine]:
    """Record hits of what can be patched in the body of the `with`, where the process isn't seized."""
    tracees = Tracees()
    engine = PatchEngine(tracees, pid, Plan(RECORD, targets, 8, 1 << 16))
    with seized(tracees, pid):
        refused = engine.attach()
        assert engine.layout is not None, refused
        assert engine.layout.spots, refused
    yield engine
    with seized(tracees, pid), tracees.standing(pid):
        engine.detach()
    engine.close()


@contextlib.contextmanager
def seized(tracees: Tracees, pid: int) -> Iterator[None]:
    tracees.seize(pid)
    try:
        yield
    finally:
        tracees.stop(pid)
        tracees.detach(pid)


def in_another_process(function: Callable[[], None]) -> None:
    """What a tracer has left is used by others when it is gone."""
    child = os.fork()
    if not child:
        status = 1
        try:
            function()
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0


SINGLE = r"""
#include <unistd.h>
#include "single.h"
__attribute__((noinline)) static void work(int i) {
    SINGLE_START(i); usleep(100); SINGLE_DONE(i); SINGLE_TICK(i); usleep(50);
}
int main(void) {
    write(1, "ready\n", 6);
    for (int i = 0; ; i++) work(i);
}
"""


def test_a_site_of_a_single_nop_is_patched_again_by_each_trace(tmp_path: Path, run: Any, usdtbuild: Any) -> None:
    """Its jump leads to one page only, which an earlier trace of other probes may have, or have shared."""
    (tmp_path / "single.c").write_text(SINGLE)
    (tmp_path / "single.d").write_text("provider single { probe start(int i); probe done(int i); probe tick(int i); };")
    usdtbuild("header", "single.d", "-o", "single.h", cwd=tmp_path)
    run("gcc", "-O2", "single.c", "-o", "single", cwd=tmp_path)
    told = []
    with ready(tmp_path / "single") as process:
        for more in (["--latency", "start", "done", "--duration=0.2"], *[["--limit=3"]] * 4):
            done = usdtbuild("trace", "-p", str(process.pid), *more)
            assert done.stdout.count(" single:") == 3 or "--latency" in more
            told.append(sorted(line for line in done.stderr.splitlines() if "watched by" in line))
        assert process.poll() is None
        process.kill()
    assert all(one == told[1] for one in told[2:]), told


def test_pages_that_a_jump_leads_to_under_a_breakpoint_are_needed_with_it() -> None:
    """Its mirror, and where it leads with a breakpoint in its third byte, are on pages of an earlier trace."""
    site, journal_at = 0x7F0000001000, 0x7F1000000000
    mirror, lead = (site + 5 + distance for distance in (0x1018E, 0x1CC8E))
    files = {journal_at: 1, mirror & -PAGE: 2, lead & -PAGE: 2, site + 1000 * PAGE: 2}
    mapped = [Area(at, at + PAGE, "rw-s" if at == journal_at else "r-xp", NAME_IN_MAPS, 0, files[at]) for at in files]
    jump = bytes.fromhex("e98e010100")
    for flags, needed in ((0, {journal_at, mirror & -PAGE}), (journal.NEAR << 1, {*files} - {site + 1000 * PAGE})):
        entry = struct.pack("<QQ8s8sQ", site, mirror, b"\x90", jump, flags)
        found = journal.Found(journal_at, 0, journal.Entries(entry), journal.Places(0, 0, 0, ()))
        assert {area.start for area in Ours(mapped).of(found)} == needed


def trace(pid: int, probes: tuple[str, ...]) -> None:
    """Record the probes for a moment."""
    targets = select(pid, Wanted(probes=tuple(f"sets:{name}" for name in probes))).targets
    with traced(pid, targets) as engine:
        time.sleep(0.01)
        assert sum(engine.collect(len) for _ in range(20))


def ours(pid: int) -> tuple[int, int]:
    """Return how many mappings of traces a process has, and its address space in KB."""
    return sum(one.name.startswith(NAME_IN_MAPS) for one in areas(pid)), int(status_field(pid, "VmSize").split()[0])


def test_forty_traces_of_different_probes_leave_what_two_leave(running: Any) -> None:
    sets = [one for size in (1, 2, 3) for one in itertools.combinations(PROBES, size)][:40]
    sizes = []
    for one in sets:
        in_another_process(lambda probes=one: trace(running.pid, probes))  # type: ignore[misc]
        sizes.append(ours(running.pid))
    mappings, spaces = zip(*sizes)
    assert max(mappings[2:]) <= max(mappings[:2]) + 6
    assert max(spaces[2:]) <= max(spaces[:2]) + 1024
    assert running.end("x\n") == "well\n"


def test_what_takes_over_the_code_of_another_trace_goes_with_it(running: Any) -> None:
    """A trace that uses mirrors, or code, of an earlier one whose own memory goes before or after it."""
    for probes in (("a", "b"), ("a", "b", "c"), ("a", "b", "c"), ("a", "b")) * 2:
        in_another_process(lambda probes=probes: trace(running.pid, probes))  # type: ignore[misc]
    first = ours(running.pid)
    for probes in (("a", "b"), ("a", "b", "c"), ("a", "b", "c"), ("a", "b")) * 3:
        in_another_process(lambda probes=probes: trace(running.pid, probes))  # type: ignore[misc]
    assert ours(running.pid)[0] <= first[0] + 4
    assert running.poll() is None


@pytest.mark.parametrize("running", [["coroutine"]], indirect=True)
def test_what_a_coroutine_goes_back_to_stays(running: Any) -> None:
    """A signal takes it out of wherever it is, often out of code of ours, and its stack is in memory of the program."""
    leader = os.pidfd_open(running.pid)
    for number in range(12):
        targets = select(running.pid, Wanted(probes=(f"sets:{PROBES[number % 8]}", "sets:a"))).targets

        def interrupt(wanted: tuple[Target, ...] = targets) -> None:
            with traced(running.pid, wanted):
                running.stdin.write("\n")
                running.stdin.flush()
                time.sleep(0.02)
                signal.pidfd_send_signal(leader, signal.SIGUSR1)
                assert running.line() == "back\n"

        in_another_process(interrupt)
    assert running.end("x\n") == "well\n"


LOADS = r"""
#include <dlfcn.h>
#include <stdio.h>
#include "loads.h"
void hit(int number) { LOADS_ONE(number); }
int main(int argc, char **argv) {
    char line[8];
    printf("ready %s\n", argv[0]);
    fflush(stdout);
    if (!fgets(line, sizeof line, stdin)) return argc;
    void (*other)(int) = (void (*)(int))dlsym(dlopen(argv[1], RTLD_NOW), "hit");
    for (int i = 0; i < 1000; i++) { hit(i); other(i); }
    return 0;
}
"""


@pytest.mark.parametrize("first", [["--count"], ["--by", "number"], ["-o", os.devnull]])
def test_a_library_that_comes_while_a_process_is_traced_again_puts_nothing_else_back(
    first: list[str], run: Any, usdtbuild: Any, tmp_path: Path
) -> None:
    """What the trace has changed in the program looks like what the one before could have left there."""
    program = built_with_probes(run, tmp_path, "loads", "provider loads { probe one(int number); };\n", LOADS)
    run("gcc", "-O2", "-fPIC", "-shared", "loads.c", "-o", "libloads.so", cwd=tmp_path)
    with ready(program, tmp_path / "libloads.so") as process:
        usdtbuild("trace", "-P", "loads:one", *first, "--duration", "0.1", "-p", process.pid)
        with tracing("-P", "loads:one", "--count", "--filter", "number >= 0", "-p", process.pid) as tracer:
            process.end("\n")
            said = tracer.end()
        assert re.findall(r"^(\d+)  loads:one", said, re.MULTILINE) == ["1000", "1000"], said


FORKS = r"""
#include <stdio.h>
#include <unistd.h>
#include "forks.h"
#define ROOM __asm__ volatile("nop; nop; nop; nop")  /* for a jump: of a breakpoint they would die */
int main(void) {  /* a line in: another child, which its number says; all hit until they are killed */
    char line[8];
    int is_parent = 1;
    printf("%p\n", (void *)&forks_tick_semaphore);
    fflush(stdout);
    for (;;) {
        if (is_parent && fgets(line, sizeof line, stdin)) {
            pid_t child = fork();
            is_parent = child != 0;
            if (child) { printf("%d\n", (int)child); fflush(stdout); }
        }
        for (int i = 0; i < (is_parent ? 20 : 1); i++) {
            usleep(1000);
            if (FORKS_TICK_ENABLED()) { FORKS_TICK(i); ROOM; }
            FORKS_TOCK(i);
            ROOM;
        }
    }
}
"""


@pytest.fixture(scope="module")
def forks(run: Any, usdtbuild: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = Path(tmp_path_factory.mktemp("forks"))
    (folder / "forks.c").write_text(FORKS)
    (folder / "forks.d").write_text("provider forks { probe tick(int i); probe tock(int i); };")
    usdtbuild("header", "forks.d", "-o", "forks.h", cwd=folder)
    run("gcc", "-O2", "forks.c", "-o", "forks", cwd=folder)
    return folder / "forks"


@pytest.mark.parametrize("how", ["ends", "worker", "all"])
def test_children_that_live_on_have_nothing_left_in_them(how: str, forks: Path, usdtbuild: Any) -> None:
    """They share the journal with the process that forked them, which is put back as well."""
    with Started(forks) as process:
        semaphore, pids = int(process.line(), 16), [process.pid]
        before = code_of(process.pid, forks)
        try:
            with Started(*TRACE, "--count", "-o", os.devnull, "-p", process.pid, stderr=subprocess.DEVNULL) as tracer:
                wait_for(lambda: _semaphore(process.pid, semaphore) == 1)
                for _ in range(2):
                    process.tell()
                    pids.append(int(process.line()))
                wait_for(lambda: all(code_of(pid, forks) != before for pid in pids))
                children = children_of(tracer.pid)
                killed = children if how == "worker" else [*_below(tracer.pid), tracer.pid] if how == "all" else []
                for pid in killed:
                    os.kill(pid, signal.SIGKILL)
                if how == "ends":
                    tracer.send_signal(signal.SIGINT)
                tracer.wait(60)
            if how == "all":  # the next traces put it back, whichever process they are of
                for pid in (pids[1], pids[0], pids[2]):
                    usdtbuild("trace", "--count", "--duration", "0.1", "-p", str(pid))
                assert [code_of(pid, forks) == before for pid in pids] == [True] * 3
                return
            assert [code_of(pid, forks) == before for pid in pids] == [True] * 3
            assert [_semaphore(pid, semaphore) for pid in pids] == [0] * 3
        finally:
            process.kill()
            for pid in pids[1:]:
                os.kill(pid, signal.SIGKILL)


def _semaphore(pid: int, address: int) -> int:
    with contextlib.closing(Memory(pid)) as memory:
        return memory.word(address, 2) or 0


def _below(pid: int) -> list[int]:
    """The processes below one, those that were started last first."""
    found = children_of(pid)
    return [*(below for one in found for below in _below(one)), *found]
