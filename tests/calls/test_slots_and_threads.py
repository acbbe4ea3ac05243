"""Slots that lead back to their PLT entries while threads make first calls all at once, through gdbserver.

Compilers for x86-64 write no code that loads a slot of the PLT, so assembly does: the scheme is the same on every
machine, and threads of other machines than this one have no stub here that lets them run.
"""

from __future__ import annotations

import json
import platform
import re
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

FUNCTIONS, THREADS, ROUNDS = 40, 4, 3
LISTED = ("-m", "usdtbuild", "calls", "--json")
# Each function's first call is made by all threads at once: nobody goes on to the next before all have made it.
PROGRAM = r"""
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
#define EACH(what) %(each)s
#define DECLARE(n) int own_##n(int); int slot_##n(int);
EACH(DECLARE)
/* So that there are slots. */
int never(void)
{
	int sum = 0;
#define CALL(n) sum += own_##n(n);
	EACH(CALL)
	return sum;
}
static int (*const slots[])(int) = {
#define NAME(n) slot_##n,
	EACH(NAME)
};
static pthread_barrier_t barrier;
static void *work(void *sum)
{
	for (int round = 0; round < ROUNDS; round++)
		for (int n = 0; n < FUNCTIONS; n++) {
			pthread_barrier_wait(&barrier);
			*(long *)sum += slots[n](round);
			*(long *)sum += slots[n](round + 100);
		}
	return 0;
}
int main(int argc, char **argv)
{
	static long sums[THREADS];
	static pthread_t threads[THREADS];
	if (argc > 5)
		return never();
	pthread_barrier_init(&barrier, 0, THREADS);
	for (int n = 0; n < THREADS; n++)
		pthread_create(&threads[n], 0, work, &sums[n]);
	for (int n = 0; n < THREADS; n++)
		pthread_join(threads[n], 0);
	if (argc > 1) { /* children have slots of their own, or with vfork their parent's */
		int status, last = slots[0](50);
		if (!fork())
			_exit(slots[0](60) == 60);
		wait(&status);
		if (!vfork())
			execl("/bin/true", "true", (char *)0);
		wait(0);
		sums[0] += WEXITSTATUS(status) + last + slots[1](70);
	}
	printf("%%ld\n", sums[0] + sums[1] + sums[2] + sums[3]);
	return 0;
}
"""
# What calls a function by its slot, at a distance from the table's beginning.
ASSEMBLY = """
\t.globl slot_{n}
\t.type slot_{n},@function
slot_{n}:
\tsub $8, %rsp
\tcall *_GLOBAL_OFFSET_TABLE_+{distance}(%rip)
\tadd $8, %rsp
\tret
"""
ARGUMENTS = [*range(ROUNDS), *range(100, 100 + ROUNDS)]
SUM = THREADS * sum(n + value for n in range(FUNCTIONS) for value in ARGUMENTS)


def built_twice(run: Any, folder: Path, name: str, count: int, *more: Any) -> Path:
    """Build a program with assembly for `count` functions twice: the first time tells where which slot is."""
    options = ["-O1", "-pthread", "-fcf-protection=none", "-fuse-ld=bfd", "-Wl,-z,lazy", "-Wl,-rpath,$ORIGIN"]
    calls: dict[str, Any] = {}
    for _ in range(2):
        slots = {int(call["slot"], 16): name for name, call in calls.items()}
        start = min(slots, default=0) - 24  # the table's own three words
        names = {name: slot - start for slot, name in slots.items()}
        text = "".join(ASSEMBLY.format(n=n, distance=names.get(f"own_{n}", 0)) for n in range(count))
        (folder / "slots.s").write_text(text + '\t.section .note.GNU-stack,"",@progbits\n')
        run("gcc", *options, f"{name}.c", "slots.s", *more, "-o", name, cwd=folder)
        (file,) = json.loads(run(sys.executable, *LISTED, folder / name).stdout)["files"]
        calls = {call["name"]: call for call in file["calls"] if call["kind"] == "lazy"}
    for n in range(count):
        assert "slot" in [site["through"] for site in calls[f"own_{n}"]["sites"]]
    return folder / name


@pytest.fixture(scope="module")
def program(run: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the program and its library."""
    if platform.machine() != "x86_64":
        pytest.skip("the assembly is x86-64's")
    folder = tmp_path_factory.mktemp("threads")
    each = " ".join(f"what({n})" for n in range(FUNCTIONS))
    (folder / "program.c").write_text(PROGRAM % {"each": each})
    (folder / "library.c").write_text("".join(f"int own_{n}(int v) {{ return v + {n}; }}\n" for n in range(FUNCTIONS)))
    defines = [f"-D{name}={globals()[name]}" for name in ("FUNCTIONS", "THREADS", "ROUNDS")]
    run("gcc", "-shared", "-fPIC", "library.c", "-Wl,-soname,libown.so", "-o", "libown.so", cwd=folder)
    return built_twice(run, folder, "program", FUNCTIONS, *defines, "libown.so")


def hits(output: str) -> Counter[tuple[str, str]]:
    """Count the calls in a trace's lines, by function and argument."""
    return Counter(re.findall(r"(own_\d+) arg1=(\w+)", output))


def test_first_calls_of_all_threads_at_once(program: Path, run: Any, served: Any) -> None:
    where, server = served(program)
    done = run(
        sys.executable, "-m", "usdtbuild", "trace", "-v", "--remote", where, "--module", "program", "-L", "own_*"
    )
    assert hits(done.stdout) == {(f"own_{n}", hex(r)): THREADS for n in range(FUNCTIONS) for r in ARGUMENTS}
    assert server.communicate(timeout=60)[0].split() == [str(SUM)]


@pytest.mark.parametrize("followed", [True, False])
def test_children_find_slots_as_they_would_be(program: Path, run: Any, served: Any, followed: bool) -> None:
    where, server = served(program, "children")
    words = ["trace", "-v", "--remote", where, "--module", "program", "-L", "own_*"]
    done = run(sys.executable, "-m", "usdtbuild", *words, *([] if followed else ["--no-children"]))
    child = {("own_0", "0x3c"): 1} if followed else {}
    wanted = {(f"own_{n}", hex(r)): THREADS for n in range(FUNCTIONS) for r in ARGUMENTS}
    assert hits(done.stdout) == {**wanted, ("own_0", "0x32"): 1, ("own_1", "0x46"): 1, **child}
    assert server.communicate(timeout=60)[0].split() == [str(SUM + 1 + 50 + 71)]


# A thread opens a library, whose constructor takes its time; meanwhile the dynamic linker's lock is held, which a first
# call needs whose function is in another library that was opened.
WAITS = r"""
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>
int own_0(int), own_1(int), slot_0(int), slot_1(int);
volatile int entered, calling;
static void *open_slow(void *path)
{
	return dlopen(path, RTLD_NOW);
}
int main(int argc, char **argv)
{
	pthread_t thread;
	if (argc > 5)
		return own_0(0) + own_1(1);
	dlopen(argv[1], RTLD_NOW | RTLD_GLOBAL);
	pthread_create(&thread, 0, open_slow, argv[2]);
	while (!entered)
		usleep(1000);
	calling = 1;
	int sum = slot_0(1);
	pthread_join(thread, 0);
	sum += slot_1(2) + slot_0(3) + slot_1(4);
	printf("%d\n", sum);
	return 0;
}
"""
SLOW = r"""
#include <unistd.h>
extern volatile int entered, calling;
__attribute__((constructor)) static void slow(void)
{
	entered = 1;
	while (!calling)
		usleep(1000);
	sleep(3); /* far more than from there to the call */
}
"""


def test_first_call_that_waits_for_another_thread(program: Path, run: Any, served: Any, compiled: Any) -> None:
    """Stepped alone it would wait for ever; it is let go with the others, and what may be missing is said."""
    folder = program.parent
    (folder / "waits.c").write_text(WAITS)
    compiled(folder, "slow.c", SLOW, "-shared", "-fPIC", to="libslow.so")
    loose = ("-Wl,--unresolved-symbols=ignore-all", "-rdynamic")
    built_twice(run, folder, "waits", 2, *loose)
    where, server = served(folder / "waits", folder / "libown.so", folder / "libslow.so")
    done = run(sys.executable, "-m", "usdtbuild", "trace", "-v", "--remote", where, "--module", "waits", "-L", "own_*")
    assert re.findall(r"(own_\d) arg1=0x(\d)", done.stdout) == [
        ("own_0", "1"),
        ("own_1", "2"),
        ("own_0", "3"),
        ("own_1", "4"),
    ]
    assert "own_0: its first call had to wait for another thread" in done.stderr
    assert server.communicate(timeout=60)[0].split() == [str(1 + 3 + 3 + 5)]


WITHIN = r"""
#include <stdio.h>
int own_0(int), own_1(int), slot_0(int), slot_1(int);
int called_back(void)
{
	return slot_1(5);
}
int main(int argc, char **argv)
{
	if (argc > 5)
		return own_0(0) + own_1(1);
	printf("%d\n", slot_0(1) + slot_0(2) + slot_1(3));
	return 0;
}
"""
IFUNC = r"""
int called_back(void);
static int body(int value)
{
	return value + 100;
}
static int (*choose(void))(int)
{
	return called_back() ? body : 0;
}
int own_0(int) __attribute__((ifunc("choose")));
"""


def test_first_call_within_a_first_call(program: Path, run: Any, served: Any, compiled: Any) -> None:
    """An IFUNC's resolver is run by the dynamic linker, and makes a first call itself."""
    folder = program.parent
    (folder / "within.c").write_text(WITHIN)
    compiled(folder, "ifunc.c", IFUNC, "-shared", "-fPIC", "-Wl,-soname,libifunc.so", to="libifunc.so")
    built_twice(run, folder, "within", 2, "-rdynamic", "libifunc.so", "libown.so")
    where, server = served(folder / "within")
    done = run(sys.executable, "-m", "usdtbuild", "trace", "-v", "--remote", where, "--module", "within", "-L", "own_*")
    seen = re.findall(r"(own_\d) arg1=0x(\d)", done.stdout)
    assert seen == [("own_0", "1"), ("own_1", "5"), ("own_0", "2"), ("own_1", "3")]
    assert server.communicate(timeout=60)[0].split() == [str(101 + 102 + 4)]
