"""Returns of functions and of library calls through gdbserver, in several threads at once: each with its result."""

from __future__ import annotations

import platform
import re
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

THREADS, EACH = 4, 15
LIBRARY = """
#include <setjmp.h>
int plain(int n) { return n * 3; }
int nested(int (*again)(int), int n) { return n > 0 ? again(n - 1) + 1 : n; }
int inner(int n) { return n + 1; }
int outer(int n) { return inner(n * 2); }
int leave(jmp_buf where, int n) { if (n % 2) longjmp(where, 1); return n; }
"""
# All threads call the same functions at the same time; a child returns from what its parent has called, too.
PROGRAM = r"""
#include <pthread.h>
#include <setjmp.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>
int plain(int), nested(int (*)(int), int), outer(int), leave(jmp_buf, int);
static pthread_barrier_t barrier;
static int again(int n) { return nested(again, n); }
static void *work(void *first)
{
	jmp_buf where;
	long sum = 0;
	for (volatile int i = 0; i < EACH; i++) {
		pthread_barrier_wait(&barrier);
		sum += plain((int)(long)first + i);
		sum += again(3) + outer(i);
		if (!setjmp(where))
			sum += leave(where, i);
	}
	return (void *)sum;
}
static int forking(int n)
{
	return fork() ? n : n + 1;
}
int (*volatile forks)(int) = forking;
int main(void)
{
	pthread_t threads[THREADS];
	long sum = 0;
	int status;
	pthread_barrier_init(&barrier, 0, THREADS);
	for (long i = 0; i < THREADS; i++)
		pthread_create(&threads[i], 0, work, (void *)(i * 1000));
	for (int i = 0; i < THREADS; i++) {
		void *one;
		pthread_join(threads[i], &one);
		sum += (long)one;
	}
	if (forks(70) == 71)
		_exit(plain(4));
	wait(&status);
	printf("%ld %d\n", sum, WIFEXITED(status) ? WEXITSTATUS(status) : -1);
	return 0;
}
"""

# Compilers put what follows a throw or a catch into parts of their own (.cold), which are symbols and entered by jumps.
THROWING = r"""
#include <cstdio>
#include <stdexcept>
#define N __attribute__((noinline))
N int deep(int n) { if (n == 0) throw std::runtime_error("x"); return deep(n - 1) + 1; }
struct Counting { int &count; ~Counting() { count++; } };
N int guard(int n) { int k = 0; { Counting one{k}; if (n & 1) deep(3); } return k + n; }
N int catcher(int n) { try { return guard(n); } catch (const std::exception &e) { return -1; } }
N int rethrower(int n) { try { return catcher(n) + (n == 5 ? deep(1) : 0); } catch (...) { throw; } }
N long fact(long n) { return n < 2 ? 1 : n * fact(n - 1); }
int main()
{
	int s = 0;
	for (int i = 0; i < 10; i++)
		try { s += rethrower(i); } catch (...) { s += 100; }
	std::printf("%d %ld\n", s, fact(10));
	return 0;
}
"""
# Says what is in data of which a function that was jumped to has the address where its return address would be.
JUMPING = r"""
#include <stdio.h>
unsigned char data[16] = {85};
const unsigned char constant[16] = {85};
__asm__(".pushsection .text\n"
	".type part, @function\npart: pop %rax\nmovzbl (%rax), %eax\nret\n.size part, . - part\n"
	".type enter, @function\nenter: push %rdi\njmp part\n.size enter, . - enter\n.popsection");
int enter(const unsigned char *);
int main(void) { printf("%d %d\n", enter(data), enter(constant)); return 0; }
"""


@pytest.fixture(scope="module")
def program(run: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the program and its library."""
    if platform.machine() != "x86_64":
        pytest.skip("gdbserver's program is to be one of x86-64")
    folder = tmp_path_factory.mktemp("remote-returns")
    (folder / "library.c").write_text(LIBRARY)
    (folder / "program.c").write_text(PROGRAM)
    run("gcc", "-O2", "-shared", "-fPIC", "library.c", "-Wl,-soname,libown.so", "-o", "libown.so", cwd=folder)
    options = ["-O1", "-pthread", f"-DTHREADS={THREADS}", f"-DEACH={EACH}", "-Wl,-rpath,$ORIGIN", "-Wl,-z,lazy"]
    run("gcc", *options, "program.c", "libown.so", "-o", "program", cwd=folder)
    return folder / "program"


def results(output: str, name: str) -> Counter[int]:
    """Count a function's returns by their results."""
    return Counter(int(value, 16) for value in re.findall(rf"\b{re.escape(name)}:return result=0x(\w+)", output))


@pytest.mark.parametrize("what", ["calls", "functions"])
def test_returns_of_all_threads_at_once(program: Path, run: Any, served: Any, what: str) -> None:
    where, server = served(program)
    names = ("plain", "nested", "outer", "leave")
    if what == "calls":
        chosen = ["--module", "program", *(word for name in names for word in ("-L", name))]
    else:
        chosen = [word for name in (*names, "forking") for word in ("-F", name)]
    done = run(sys.executable, "-m", "usdtbuild", "trace", "-v", "--remote", where, *chosen, "--returns")
    rounds = [i for i in range(EACH) for _ in range(THREADS)]
    plain = Counter(3 * (1000 * thread + i) for thread in range(THREADS) for i in range(EACH))
    plain[12] += 1  # in the child
    assert results(done.stdout, "plain") == plain
    assert results(done.stdout, "nested") == {n: len(rounds) for n in range(4)}
    assert results(done.stdout, "outer") == Counter(2 * i + 1 for i in rounds)
    assert results(done.stdout, "leave") == Counter(i for i in rounds if i % 2 == 0)
    if what == "functions":
        assert results(done.stdout, "forking") == {70: 1, 71: 1}
    summed = sum(3 * (1000 * t + i) + 3 + 2 * i + 1 + (0 if i % 2 else i) for t in range(THREADS) for i in range(EACH))
    assert server.communicate(timeout=60)[0] == f"{summed} 12\n"


def test_every_function_of_a_program_that_throws(run: Any, served: Any, tmp_path: Path, compiled: Any) -> None:
    """What is no return address is left alone, and who is left by an exception doesn't return."""
    if platform.machine() != "x86_64":
        pytest.skip("gdbserver's program is to be one of x86-64")
    options = ["-O2", "-fno-optimize-sibling-calls", "-fpatchable-function-entry=7,5"]
    compiled(tmp_path, "throwing.cc", THROWING, *options, cc="g++")
    where, server = served(tmp_path / "throwing")
    words = ["--remote", where, "--module", "throwing", "-F", "*", "--returns"]
    done = run(sys.executable, "-m", "usdtbuild", "trace", "-v", *words)
    assert server.communicate(timeout=60)[0] == "121 3628800\n"
    even = Counter(n + 1 for n in range(0, 10, 2))
    assert results(done.stdout, "deep(int)") == {}
    assert results(done.stdout, "guard(int)") == even
    assert sum(results(done.stdout, "catcher(int)").values()) == 10
    assert sum(results(done.stdout, "rethrower(int)").values()) == 9
    assert sum(results(done.stdout, "fact(long)").values()) == 10


@pytest.mark.parametrize("segments", ["separate-code", "noseparate-code"])  # constants are executable without
def test_function_that_is_jumped_to(run: Any, served: Any, tmp_path: Path, segments: str, compiled: Any) -> None:
    """There is no return address, and what is there instead is left alone."""
    if platform.machine() != "x86_64":
        pytest.skip("gdbserver's program is to be one of x86-64")
    compiled(tmp_path, "jumping.c", JUMPING, "-O2", f"-Wl,-z,{segments}")
    where, server = served(tmp_path / "jumping")
    words = ["--remote", where, "-F", "enter", "-F", "part", "--returns"]
    done = run(sys.executable, "-m", "usdtbuild", "trace", *words)
    assert server.communicate(timeout=60)[0] == "85 85\n"
    assert results(done.stdout, "enter") == {85: 2}
    assert len(re.findall(r"\bpart\b", done.stdout)) == 2
