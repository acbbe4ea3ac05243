"""Sites of a NOP and a ten-byte NOP, of which Linux 7.2 makes a call where somebody has a uprobe. The program itself
plays that kernel's part here, so that each state of the code is seen on any kernel."""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.started import Started, code_of, ready

from .test_engines import watch

pytestmark = pytest.mark.skipif(platform.machine() != "x86_64", reason="the NOP is x86-64's")
# For each line that comes it changes its site's ten-byte NOP as the line says, and hits the site 500 times. What is
# called pops the return address and the 128 bytes that were spared; the data below the stack pointer must be whole.
PROGRAM = r"""
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>
#include "app.h"
static unsigned char *site, whole[] = {0x66, 0x2e, 0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0};
static unsigned char call[] = {0x48, 0x8d, 0x64, 0x24, 0x80, 0xe8, 0, 0, 0, 0};
volatile long calls __attribute__((__used__, __visibility__("hidden")));
static volatile long traps;
__asm__(".text\n called: lock incq calls(%rip)\n ret $128\n");
extern char called[], __executable_start[], etext[];
__attribute__((noinline)) long hit(long n)
{
    volatile long below[4] = {n, n, n, n};
    APP_GO(n);
    return below[0] + below[3];
}
static void trap(int number, siginfo_t *info, void *context)
{
    ucontext_t *all = context;
    (void)number, (void)info;
    if (all->uc_mcontext.gregs[REG_RIP] != (long)site + 2) _exit(3);
    all->uc_mcontext.gregs[REG_RIP] = (long)site + 11;
    traps++;
}
int main(void)
{
    char line[8];
    struct sigaction action = {.sa_sigaction = trap, .sa_flags = SA_SIGINFO};
    sigaction(SIGTRAP, &action, 0);
    unsigned char *page = (unsigned char *)((long)hit & -4096);
    if (mprotect(page, 8192, PROT_READ | PROT_WRITE | PROT_EXEC)) return 1;
    site = (unsigned char *)memmem((void *)hit, 256, whole, sizeof whole) - 1;
    *(int *)(call + 6) = (int)((long)called - (long)(site + 11));
    puts("ready");
    fflush(stdout);
    while (fgets(line, sizeof line, stdin)) {
        if (*line == 'c') memcpy(site + 1, call, 10);
        if (*line == 'n') memcpy(site + 1, whole, 10);
        if (*line == 'C' || *line == 'N') memcpy(site + 2, (*line == 'C' ? call : whole) + 1, 9), site[1] = 0xcc;
        long wrong = 0;
        calls = traps = 0;
        for (long i = 0; i < 500; i++) wrong += hit(i) != 2 * i;
        printf("%ld %ld %ld\n", calls, traps, wrong);
        fflush(stdout);
    }
    return 0;
}
"""
SEEN = {"n": "0 0 0\n", "c": "500 0 0\n", "N": "0 500 0\n", "C": "0 500 0\n"}


@pytest.fixture(scope="module", params=["gcc -pie -fPIE", "gcc -no-pie", "clang"])
def program(tmp_path_factory: pytest.TempPathFactory, request: Any, compiled: Any, header_of: Any) -> Path:
    folder = tmp_path_factory.mktemp("nop10")
    folder.chmod(0o755)
    header_of(folder, "app.d", "provider app { probe go(long n); };\n")
    return compiled(folder, "program.c", PROGRAM, "-O2", "-DUSDT_NOP10", cc=request.param)


@pytest.fixture
def running(program: Path, need: Any) -> Iterator[Started]:
    """The program, with its heap right behind it: elsewhere it may be where the one jump that these bytes allow leads,
    and then the site is refused."""
    fixed = [need("setarch"), "-R"]
    if subprocess.run([*fixed, "true"], stderr=subprocess.DEVNULL, check=False).returncode:
        pytest.skip("addresses can't be fixed here (in a container that forbids it, for one)")
    with ready(*fixed, program) as process:
        yield process
        process.kill()


def step(process: Started, state: str) -> None:
    process.tell(state)
    assert process.line() == SEEN[state]


def end(tracer: Started) -> str:
    output, errors = tracer.interrupt()
    assert "not traced" not in errors
    return output


def test_the_header_writes_it(program: Path, usdtbuild: Any) -> None:
    assert b"\x90\x66\x2e\x0f\x1f\x84\0\0\0\0\0" in program.read_bytes()
    usdtbuild("verify", program)


@pytest.mark.parametrize("last", SEEN)
def test_every_state_of_the_kernels_change_is_counted(program: Path, running: Started, last: str) -> None:
    """A jump's four bytes change with it; the site is put back in any state, and what the kernel wrote stays."""
    code = code_of(running.pid, program)
    tracer = watch(running.pid, "--count", "--engine", "patch", "-P", "app:go")
    states = "nNCcCNn" + last
    for state in states:
        step(running, state)
    assert f"{500 * len(states)}  app:go\n" in end(tracer)
    step(running, last)
    step(running, "n")
    assert code_of(running.pid, program) == code


def test_a_trace_may_begin_when_somebody_is_there(program: Path, running: Started) -> None:
    code = code_of(running.pid, program)
    step(running, "c")
    tracer = watch(running.pid, "--count", "--engine", "patch", "-P", "app:go")
    for state in "cCNnNCc":
        step(running, state)
    assert "3500  app:go\n" in end(tracer)
    step(running, "n")
    assert code_of(running.pid, program) == code


def test_a_breakpoint_that_hides_what_is_behind_a_site_is_told(running: Started) -> None:
    step(running, "N")
    tracer = watch(running.pid, "--count", "--engine", "patch", "-P", "app:go")
    step(running, "n")
    assert "another tracer's breakpoint is so close behind it" in "".join(tracer.interrupt())
    step(running, "n")


@pytest.mark.live
@pytest.mark.skipif(os.geteuid() != 0, reason="uprobes need root")
def test_bpftrace_reads_it(program: Path, bpftrace: str) -> None:
    script = f"usdt:{program}:app:go {{ @sum = sum(arg0); @hits = count(); }}"
    words = [bpftrace, "-e", script, "-c", str(program)]
    done = subprocess.run(words, input="n\n", capture_output=True, text=True, timeout=120, check=True)
    assert "@hits: 500\n" in done.stdout
    assert f"@sum: {sum(range(500))}\n" in done.stdout
