"""What a process does while its functions are looked up for a trace: it forks, starts threads and takes signals."""

from __future__ import annotations

import contextlib
import mmap
import re
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from usdtbuild.inspection.process import mapped_files

from .conftest import built_with_probes

PROVIDER = "provider busy { probe hit(int worker); };\n"
FUNCTIONS = 4000  # which take a while to be looked up
WORKERS = 8

# Counts in the file of its first argument: what it has done, and children and threads that didn't end as they should.
BUSY = (
    r"""
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>
#include "busy.h"
#define F(n) __attribute__((noipa)) int f##n(int i) { return i + n; }
#define TEN(n) F(n##0) F(n##1) F(n##2) F(n##3) F(n##4) F(n##5) F(n##6) F(n##7) F(n##8) F(n##9)
#define HUNDRED(n) TEN(n##0) TEN(n##1) TEN(n##2) TEN(n##3) TEN(n##4) TEN(n##5) TEN(n##6) TEN(n##7) TEN(n##8) TEN(n##9)
"""
    + "".join(f"HUNDRED({n})" for n in range(10, 10 + FUNCTIONS // 100))
    + r"""
static volatile long *done;
__attribute__((noipa)) static void hit(int worker) { BUSY_HIT(worker); }
static void *thread(void *one) { hit(-2); return one; }
static void alarmed(int number) { (void)number; done[0]++; }
static int traced(void)
{
    char text[4096] = "", *at;
    int file = open("/proc/self/status", O_RDONLY);
    if (read(file, text, sizeof text - 1) < 0) return 0;
    close(file);
    at = strstr(text, "TracerPid:\t");
    return at && at[11] != '0';
}
int main(int count, char **words)
{
    int file = open(words[1], O_RDWR), status;
    (void)count;
    done = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (!strcmp(words[2], "signal")) {
        struct itimerval often = {{0, 1000}, {0, 1000}};
        signal(SIGALRM, alarmed);
        setitimer(ITIMER_REAL, &often, 0);
        while (!done[2]) pause();
    }
    if (!strcmp(words[2], "once")) return hit(-4), 7;
    if (!strcmp(words[2], "execs")) {
        for (int i = 0; i < """
    + str(WORKERS)
    + r"""; i++)
            if (fork() == 0) {
                while (!done[0]);
                execl(words[0], words[0], words[1], "once", (char *)0);
            }
        done[0] = 1;
        while (wait(&status) > 0) done[1] += status != 7 << 8;
        return (int)done[1];
    }
    if (!strcmp(words[2], "workers")) {
        done[0] = 100;
        while (!traced()) usleep(100);
        for (int i = 0; i < """
    + str(WORKERS)
    + r"""; i++)
            if (fork() == 0) {
                while (!done[2]) hit(i), usleep(1000);
                _exit(0);
            }
        while (!done[2]) hit(-1), usleep(1000);
        while (wait(&status) > 0) done[1] += status != 0;
        return 0;
    }
    while (!done[2]) {
        if (!strcmp(words[2], "thread")) {
            pthread_t one;
            void *result;
            if (pthread_create(&one, 0, thread, &one) || pthread_join(one, &result) || result != &one) done[1]++;
        } else {
            pid_t child = fork();
            if (!child) hit(-3), _exit(7);
            if (waitpid(child, &status, 0) != child || status != 7 << 8) done[1]++;
        }
        done[0]++;
    }
    return 0;
}
"""
)

# The command line, whose first look-up lasts until the program has counted ten more, or stands for good; before that,
# where all is stopped for the first time, a thread comes to its next stop by itself.
HELD = """
import struct, sys, time
from usdtbuild.__main__ import main
from usdtbuild.tracing.lookups import Lookups
from usdtbuild.tracing.tracees import Tracees

look, stop, counts = Lookups.look, Tracees.stop, sys.argv.pop(1)

def done():
    with open(counts, "rb") as file:
        return struct.unpack("<q", file.read(8))[0]

def held(*words):
    Lookups.look = look
    found, began, until = look(*words), done(), time.monotonic() + 30
    while done() < began + 10:
        assert time.monotonic() < until, "the program stands while it is looked at"
        time.sleep(0.001)
    return found

def stopped_late(*words):
    Tracees.stop = stop
    time.sleep(0.05)
    return stop(*words)

Lookups.look, Tracees.stop = held, stopped_late
sys.exit(main())
"""


class Running:
    """The program, and what it has counted."""

    def __init__(self, program: Path, folder: Path, what: str) -> None:
        (folder / "done").write_bytes(bytes(4096))
        with (folder / "done").open("r+b") as file:
            self.memory = mmap.mmap(file.fileno(), 4096)
        self.process = subprocess.Popen([program, folder / "done", what])
        wait_until(lambda: self.done() > 10)

    def done(self) -> int:
        return int(struct.unpack_from("<q", self.memory)[0])

    def end(self) -> int:
        """Let it end; return how many children and threads didn't end as they should."""
        struct.pack_into("<q", self.memory, 16, 1)
        assert self.process.wait(60) == 0
        return int(struct.unpack_from("<q", self.memory, 8)[0])


def wait_until(condition: Callable[[], object]) -> None:
    until = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.005)


def status(pid: int, field: str) -> str:
    with contextlib.suppress(OSError):
        found = re.search(rf"^{field}:\s*(.*)$", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
        return found[1] if found else ""
    return ""


@contextlib.contextmanager
def tracing(pid: int, counts: Path, *words: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", HELD, str(counts), "trace", "-v", "-F", "f1000", "-P", "busy:*", *words]
    command += ["-p", str(pid)]
    tracer = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        yield tracer
    finally:
        tracer.kill()
        tracer.communicate()


@pytest.fixture(scope="module")
def busy(run: Any, tmp_path_factory: Any) -> Path:
    options = "-O1", "-pthread", "-fpatchable-function-entry=7,5"
    return built_with_probes(run, tmp_path_factory.mktemp("busy"), "busy", PROVIDER, BUSY, *options)


def code_of(pid: int, program: Path) -> bytes:
    (file,) = (one for one in mapped_files(pid) if one.path == str(program))
    (code,) = (one for one in file.mappings if one.executable)
    with open(f"/proc/{pid}/mem", "rb") as memory:  # noqa: PTH123
        memory.seek(code.start)
        return memory.read(code.end - code.start)


@pytest.mark.parametrize("engine", ["patch", "trap"])
@pytest.mark.parametrize("what", ["fork", "thread", "signal"])
def test_it_goes_on(busy: Path, tmp_path: Path, what: str, engine: str) -> None:
    program = Running(busy, tmp_path, what)
    try:
        before = code_of(program.process.pid, busy)
        with tracing(program.process.pid, tmp_path / "done", "--engine", engine, "--count") as tracer:
            assert tracer.stderr is not None
            said = ""
            while "tracing process" not in said:
                said = tracer.stderr.readline()
                assert said
            armed = program.done()
            wait_until(lambda: program.done() > armed + 10)
            tracer.send_signal(signal.SIGINT)
            _, errors = tracer.communicate(timeout=60)
        assert tracer.returncode == 0, errors
        assert code_of(program.process.pid, busy) == before
        assert program.end() == 0
    finally:
        program.process.kill()
        program.process.wait()


@pytest.mark.parametrize("engine", ["patch", "trap"])
def test_children_that_it_forks_are_traced_in_the_end_and_put_back(busy: Path, tmp_path: Path, engine: str) -> None:
    program = Running(busy, tmp_path, "workers")
    pid = program.process.pid
    try:
        before = code_of(pid, busy)
        hits = tmp_path / "hits"
        with hits.open("w") as file:
            command = [sys.executable, "-m", "usdtbuild", "trace", "--engine", engine, "-F", "f1000", "-P", "busy:*"]
            tracer = subprocess.Popen([*command, "-p", str(pid)], stdout=file, stderr=subprocess.PIPE, text=True)
            try:
                wait_until(lambda: len(set(re.findall(r"worker=(\d+)", hits.read_text()))) == WORKERS)
                workers = list(map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split()))
                tracer.send_signal(signal.SIGINT)
                _, errors = tracer.communicate(timeout=60)
            finally:
                tracer.kill()
                tracer.communicate()
        assert tracer.returncode == 0, errors
        assert len(workers) == WORKERS
        assert all(code_of(one, busy) == before and status(one, "TracerPid") == "0" for one in (pid, *workers))
        assert program.end() == 0
    finally:
        struct.pack_into("<q", program.memory, 16, 1)
        program.process.wait(60)


@pytest.mark.parametrize("engine", ["patch", "trap"])
def test_programs_that_come_while_one_is_armed(busy: Path, run: Any, tmp_path: Path, engine: str) -> None:
    """All at once; of those that stop meanwhile none is forgotten."""
    for _ in range(3):
        (tmp_path / "done").write_bytes(bytes(4096))
        command = [sys.executable, "-m", "usdtbuild", "trace", "--engine", engine, "--count", "-P", "busy:*"]
        done = run(*command, "--", busy, tmp_path / "done", "execs", timeout=60)
        assert f"{WORKERS}  busy:hit" in done.stdout
