"""Threads that count on their own (`patch.shards`): no hit is lost, whoever begins, ends, forks or interrupts."""

from __future__ import annotations

import json
import platform
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from .conftest import built_with_probes

PROVIDER = "provider shards { probe tick(int key, long value); };\n"

# Arguments: threads at a time, hits of each, generations of threads; then what else is to happen. It prints how often
# it has hit, and the sum of the values.
PROGRAM = r"""
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>
#include "shards.h"
static long each;
static _Atomic long *hits, *sum;
static void hit(long value) { SHARDS_TICK((int)(value % 100), value); }
static void some(long number)
{
    for (long i = 0; i < number; i++) hit(i);
    atomic_fetch_add(hits, number), atomic_fetch_add(sum, number * (number - 1) / 2);
}
static void *thread(void *unused) { some(each); return unused; }
static void handler(int unused) { (void)unused; hit(7); atomic_fetch_add(hits, 1), atomic_fetch_add(sum, 7); }
static void scribble(void)
{
    char line[512];
    FILE *maps = fopen("/proc/self/maps", "r");
    while (fgets(line, sizeof line, maps)) {
        unsigned long start, end;
        char flags[8];
        if (sscanf(line, "%lx-%lx %7s", &start, &end, flags) != 3 || strcmp(flags, "rw-s")) continue;
        if (strstr(line, "usdtbuild")) memset((char *)start, 0xff, end - start);
    }
    _exit(0);
}
static void child(int raw)
{
    pid_t pid = raw ? (pid_t)syscall(SYS_fork) : fork();
    if (pid == 0) {
        pthread_t one;
        some(each);
        if (!raw && pthread_create(&one, 0, thread, 0) == 0) pthread_join(one, 0);
        _exit(0);
    }
}
int main(int count, char **words)
{
    int threads = atoi(words[1]), generations = atoi(words[3]);
    const char *what = count > 4 ? words[4] : "";
    pthread_t *ids = calloc(threads, sizeof *ids);
    each = atol(words[2]);
    hits = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0), sum = hits + 1;
    if (strstr(what, "wait")) printf("ready\n"), fflush(stdout), getchar();
    if (strstr(what, "signals")) {
        struct itimerval often = {{0, 50}, {0, 50}};
        struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART};
        sigaction(SIGPROF, &action, 0);
        setitimer(ITIMER_PROF, &often, 0);
    }
    if (strstr(what, "scribbles")) { if (fork() == 0) scribble(); wait(0); }
    for (int generation = 0; generation < generations; generation++) {
        for (int i = 0; i < threads; i++) if (pthread_create(ids + i, 0, thread, 0)) return 9;
        for (int i = 0; i < 4 && strstr(what, "forks"); i++) child(i & 1);
        if (strstr(what, "vforks") && vfork() == 0) { hit(3); _exit(0); }
        if (strstr(what, "vforks")) atomic_fetch_add(hits, 1), atomic_fetch_add(sum, 3);
        for (int i = 0; i < threads; i++) pthread_join(ids[i], 0);
        while (wait(0) > 0) {}
    }
    if (strstr(what, "signals")) signal(SIGPROF, SIG_IGN);
    printf("%ld %ld\n", *hits, *sum);
    return 0;
}
"""
CASES = {
    "all": ("30", "50000", "3", "signals forks vforks"),
    "many": ("150", "20000", "2"),  # more than have one of their own, and than a process remembers
    "signals": ("4", "2000000", "2", "signals"),
    "children": ("4", "200000", "3", "forks"),
    "vfork": ("4", "200000", "20", "vforks"),
    "eight": ("8", "500000", "1"),
    "one": ("1", "2000000", "1"),
}


@pytest.fixture(scope="module")
def program(run: Any, tmp_path_factory: Any) -> Path:
    return built_with_probes(run, tmp_path_factory.mktemp("shards"), "shards", PROVIDER, PROGRAM, "-O2", "-pthread")


def truth(output: str) -> tuple[int, int]:
    found = re.search(r"^(\d+) (\d+)$", output, re.MULTILINE)
    assert found is not None, output
    return int(found[1]), int(found[2])


@pytest.mark.parametrize("case", CASES)
def test_every_hit_is_counted(case: str, program: Path, usdtbuild: Any) -> None:
    found = usdtbuild("trace", "-P", "shards:*", "--count", "--", program, *CASES[case])
    assert f"{truth(found.stdout)[0]}  shards:tick" in found.stdout


@pytest.mark.parametrize("case", CASES)
def test_values_are_added_up_by_key(case: str, program: Path, usdtbuild: Any) -> None:
    words = "-P", "shards:*", "--by", "key", "--histogram", "value", "--json"
    output = usdtbuild("trace", *words, "--", program, *CASES[case]).stdout
    hits, total = truth(output)
    rows = json.loads(next(line for line in output.splitlines() if line.startswith("{")))["rows"]
    assert (sum(row["hits"] for row in rows), sum(row["sum"] for row in rows)) == (hits, total)
    assert len(rows) == 100


def test_a_filter_counts_what_passes(program: Path, usdtbuild: Any) -> None:
    found = usdtbuild("trace", "-P", "shards:*", "--count", "--filter", "key < 25", "--", program, *CASES["eight"])
    assert f"{truth(found.stdout)[0] // 4}  shards:tick" in found.stdout


def test_each_thread_has_its_own_row(program: Path, usdtbuild: Any) -> None:
    found = usdtbuild("trace", "-P", "shards:*", "--sum", "value", "--by", "thread", "--", program, *CASES["eight"])
    assert len(re.findall(r"^ +500000 ", found.stdout, re.MULTILINE)) == 8


def test_a_process_that_is_traced_again_begins_anew(program: Path, usdtbuild: Any) -> None:
    """In the same memory, where nobody has a shard any more: two threads in one would lose what they count."""
    pipe = subprocess.PIPE
    with subprocess.Popen([program, "4", "30000000", "400", "wait"], stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdout.readline()
        process.stdin.write("\n")
        process.stdin.flush()
        for _ in range(4):
            words = "-P", "shards:*", "--sum", "value", "--by", "thread", "--json", "-p", str(process.pid)
            found = json.loads(usdtbuild("trace", *words, "--duration", "0.5").stdout)
            hits, listed = found["counts"]["shards:tick"], sum(row["hits"] for row in found["rows"])
            assert 0 <= listed - hits <= 4  # who has added its value, and not counted it yet
            assert hits > 1000
        process.kill()


@pytest.mark.skipif(platform.machine() != "x86_64", reason="elsewhere all threads count together")
def test_a_child_that_scribbles_sends_nobody_astray(program: Path, usdtbuild: Any) -> None:
    """Its parent may have more rights: what the child writes into the memory that both count in leads to no place that
    isn't for counting."""
    for words in (["--count"], ["--by", "key"], ["--histogram", "value"]):
        found = usdtbuild("trace", "-P", "shards:*", *words, "--", program, "8", "20000", "2", "scribbles")
        assert truth(found.stdout)[0] == 320_000, (words, found)
