"""Forked processes have their own say about libraries: one closes what the other goes on to use, or opens its own."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from usdtbuild.tracing.maps import Memory

PROVIDER = "provider heirs { probe one(int number); probe two(int number); };\n"
LIBRARY = r"""
#include "heirs.h"
void hit(int number) { HIT(number); }
void *semaphore(void) { return (void *)&SEMAPHORE; }
int enabled(void) { return ENABLED(); }
void *site(void) { return (void *)hit; }
"""
# The child outlives the trace. What it says: its number, where a semaphore was or would be, and where code is.
PROGRAM = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
struct library { void *handle; void (*hit)(int); char *semaphore, *site; };
static struct shared { int turn; char *semaphore; } *both;
static void await(int which) { while (__atomic_load_n(&both->turn, __ATOMIC_ACQUIRE) < which) sched_yield(); }
static void next(void) { __atomic_add_fetch(&both->turn, 1, __ATOMIC_RELEASE); }
static struct library open_one(const char *path) {
    void *handle = dlopen(path, RTLD_NOW);
    if (!handle) abort();
    return (struct library){handle, (void (*)(int))dlsym(handle, "hit"),
        ((char *(*)(void))dlsym(handle, "semaphore"))(), ((char *(*)(void))dlsym(handle, "site"))()};
}
static void own(char *semaphore) {  /* memory of the program's, where a semaphore was, or is in the other process */
    char *page = (char *)((unsigned long)semaphore & ~4095ul);
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE;
    if (mmap(page, 4096, PROT_READ | PROT_WRITE, flags, -1, 0) != page) abort();
    memset(page, 1, 4096);
}
int main(int count, char **words) {
    both = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    struct library one = open_one("./libone.so"), two = {0};
    one.hit(0);
    int pid = fork(), is_parent = pid != 0;
    if (!strcmp(words[1], "parent")) {
        if (is_parent) { dlclose(one.handle); next(); await(2); }
        else {
            await(1);
            for (int i = 1; i <= 300; i++) { one.hit(i); usleep(1000); }  /* counters are looked at meanwhile */
            two = open_one("./libtwo.so");
            for (int i = 301; i <= 600; i++) { one.hit(i); two.hit(i); }
            next();
        }
    } else if (!strcmp(words[1], "child")) {
        if (is_parent) await(1);
        else { dlclose(one.handle); own(one.semaphore); next(); }
    } else {  /* "later": only the parent has the second library */
        if (is_parent) { two = open_one("./libtwo.so"); two.hit(1); both->semaphore = two.semaphore; next(); await(2); }
        else { await(1); own(one.semaphore = both->semaphore); next(); }
    }
    if (is_parent) return count - 2;
    printf("child %d %p %p\n", getpid(), one.semaphore, one.site);
    fflush(stdout);
    int nowhere = open("/dev/null", O_RDWR);
    dup2(nowhere, 1), dup2(nowhere, 2);
    for (;;) pause();
}
"""


class Heir(NamedTuple):
    """What a trace has said, what the semaphore's place says in the child that is left, and 16 bytes of its code."""

    said: str
    semaphore: int
    code: bytes


@pytest.fixture(scope="module")
def heirs(run: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("heirs")
    folder.chmod(0o755)
    (folder / "heirs.d").write_text(PROVIDER)
    (folder / "heirs.c").write_text(PROGRAM)
    (folder / "library.c").write_text(LIBRARY)
    run(sys.executable, "-m", "usdtbuild", "header", "heirs.d", cwd=folder)
    for name in ("one", "two"):
        upper = f"HEIRS_{name.upper()}"
        defined = f"-DHIT={upper}", f"-DENABLED={upper}_ENABLED", f"-DSEMAPHORE=heirs_{name}_semaphore"
        run("gcc", "-O2", "-fPIC", "-shared", *defined, "library.c", "-o", f"lib{name}.so", cwd=folder)
    run("gcc", "-O2", "heirs.c", "-ldl", "-o", "heirs", cwd=folder)
    return folder / "heirs"


@pytest.fixture
def traced(heirs: Path, usdtbuild: Any) -> Iterator[Callable[..., Heir]]:
    children: list[int] = []

    def trace(who: str, *options: str) -> Heir:
        done = usdtbuild("trace", "-P", "heirs:*", *options, "--", heirs, who, cwd=heirs.parent)
        found = re.search(r"^child (\d+) (0x\w+) (0x\w+)$", done.stdout, re.MULTILINE)
        assert found is not None, done.stdout + done.stderr
        children.append(int(found[1]))
        with contextlib.closing(Memory(int(found[1]))) as memory:
            return Heir(done.stdout, memory.word(int(found[2], 16), 2) or 0, memory.read(int(found[3], 16), 16))

    yield trace
    for child in children:
        os.kill(child, signal.SIGKILL)


@pytest.mark.parametrize("options", ["--count", "--count --filter number>=0", "--by number", "--count --engine trap"])
def test_a_child_counts_on_in_a_library_that_its_parent_has_closed(options: str, traced: Any) -> None:
    said = traced("parent", *options.split()).said
    hits = r"^(\d+)  heirs:(\w+)" if "--by" not in options else r"heirs:(\w+).* values in (\d+) hits"
    assert {tuple(sorted(found)) for found in re.findall(hits, said, re.MULTILINE)} == {("601", "one"), ("300", "two")}


def test_records_of_a_library_that_its_parent_has_closed_are_not_taken_for_those_of_another(traced: Any) -> None:
    said = traced("parent").said
    found = [(name, int(number)) for name, number in re.findall(r"heirs:(\w+) number=(\d+)", said)]
    both = [(name, number) for number in range(301, 601) for name in ("one", "two")]
    assert found == [*(("one", number) for number in range(301)), *both]


@pytest.mark.parametrize("options", ["", "--count"])
def test_what_a_child_has_of_a_library_that_its_parent_has_closed_is_put_back(
    options: str, traced: Any, heirs: Path
) -> None:
    heir = traced("parent", *options.split())
    assert heir.semaphore == 0
    assert heir.code in (heirs.parent / "libone.so").read_bytes()


@pytest.mark.parametrize("engine", ["patch", "trap"])
@pytest.mark.parametrize("who", ["child", "later"])
def test_what_a_child_has_where_its_parent_has_a_library_is_left_alone(who: str, engine: str, traced: Any) -> None:
    """It has closed that itself, or never had it."""
    assert traced(who, "--count", "--engine", engine).semaphore == 0x0101
