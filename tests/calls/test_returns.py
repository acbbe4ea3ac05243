"""`usdtbuild trace --call --returns`: calls that return tell what, once, whatever happens in between."""

from __future__ import annotations

import os
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.started import ready, tracing

from .conftest import RETURNING, results, shown

pytestmark = pytest.mark.skipif(os.uname().machine != "x86_64", reason="the engines are for x86-64")
LIBRARY = RETURNING + "double half(double x) { return x / 2; }\nlong square(long n) { return n * n; }\n"
PROGRAM = r"""
#include <pthread.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
int nested(int (*again)(int), int n);
int outer(int n);
int leave(jmp_buf where, int n);
double half(double x);
long square(long n);
static jmp_buf where;
static int again(int n) { return nested(again, n); }
static void *work(void *from) { for (long i = 0; i < 25; i++) square((long)from + i); return 0; }
int main(int argc, char **argv)
{
	pthread_t threads[4];
	int status;
	if (argc > 1) {
		puts("ready");
		fflush(stdout);
		getchar();
		printf("%ld\n", square(12));
		return 0;
	}
	again(5);
	outer(10);
	half(5);
	for (int i = 0; i < 6; i++)
		if (!setjmp(where))
			leave(where, i);
	for (long i = 0; i < 4; i++) pthread_create(&threads[i], 0, work, (void *)(1000 * i));
	for (int i = 0; i < 4; i++) pthread_join(threads[i], 0);
	if (!fork()) _exit((int)square(3));
	wait(&status);
	pid_t child = vfork();
	if (!child) execl("/bin/true", "true", (char *)0);
	waitpid(child, &status, 0);
	setenv("CALLS", "text", 1);
	free(strdup(getenv("CALLS")));
	return access("/nowhere", 0) + 1;
}
"""
FORMS = {"lazy": ("-Wl,-z,lazy",), "no-plt": ("-fno-plt",), "exe": ("-no-pie", "-fno-pie", "-Wl,-z,now")}


@pytest.fixture(scope="module")
def programs(run: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Build the program in one of the forms."""
    folder = tmp_path_factory.mktemp("returns")
    (folder / "library.c").write_text(LIBRARY)
    (folder / "program.c").write_text(PROGRAM)
    run("gcc", "-O2", "-shared", "-fPIC", "library.c", "-o", "libreturns.so", cwd=folder)

    def build(form: str) -> Path:
        words = ["gcc", "-O1", "-w", "-fno-builtin", *FORMS[form], "program.c", "libreturns.so", "-Wl,-rpath,$ORIGIN"]
        run(*words, "-pthread", "-o", form, cwd=folder)
        return folder / form

    return build


@pytest.mark.parametrize("form", FORMS)
def test_every_return_with_its_result(form: str, programs: Any, usdtbuild: Any) -> None:
    program = programs(form)
    words = ["-L", "*", "--module", form, "--module", "libreturns.so", "--returns", "--no-children"]
    found = shown(usdtbuild("trace", *words, "-o", "/dev/stderr", "--", program).stderr)

    assert results(found, "nested") == [0, 1, 2, 3, 4, 5]
    assert results(found, "inner") == results(found, "outer") == [21]  # `outer` ends with a jump to `inner`
    assert (len(found["nested"]), len(found["leave"]), len(found["square"])) == (6, 6, 101)
    assert results(found, "leave") == [0, 2, 4]  # the others leave with longjmp
    squares = Counter((1000 * thread + i) ** 2 for thread in range(4) for i in range(25))
    assert Counter(results(found, "square")) == squares + Counter([9])  # the last one in a forked process
    assert found["setenv:return"] == ["result=0"]
    assert found["getenv:return"] == found["strdup:return"] == ['result="text"']
    assert found["free:return"] == [""]
    assert found["access:return"] == ["result=-1"]
    assert found["pthread_create:return"] == ["result=0"] * 4
    assert len(found["waitpid:return"]) == 1


def test_counts_and_latencies_know_returns(programs: Any, usdtbuild: Any) -> None:
    program = programs("lazy")
    done = usdtbuild("trace", "-L", "square", "--count", "--returns", "--", program)
    assert re.findall(r"(\d+)  (square\S*)", done.stdout) == [("101", "square"), ("101", "square:return")]
    done = usdtbuild("trace", "-L", "square", "--returns", "--latency", "square", "square:return", "--", program)
    assert "square to square:return: 101 pairs" in done.stdout


def test_filters_know_calls_and_what_they_return(programs: Any, usdtbuild: Any) -> None:
    """The calls of four threads, a filter that the call answers, and one that only the result does."""
    program = programs("lazy")
    for test, wanted in (("arg1 == 1003", 1), ("result == 1006009", 1), ("result >= 4000000", 50)):
        done = usdtbuild("trace", "-L", "square", "--returns", "--filter", test, "--", program)
        calls = [int(found, 16) for found in re.findall(r"square arg1=(\S+)", done.stdout)]
        results = [int(found, 16) for found in re.findall(r"square:return result=(\S+)", done.stdout)]
        assert len(calls) == wanted
        assert sorted(results) == sorted(number**2 for number in calls)


def test_a_process_is_left_while_somebody_is_expected(programs: Any) -> None:
    """The program waits in getchar(), to which the breakpoint of its return belongs, as the trace ends."""
    with ready(programs("lazy"), "wait") as process:
        tracer = tracing("-L", "*", "--returns", "-p", process.pid)
        _, errors = tracer.interrupt()
        assert tracer.returncode == 0, errors
        assert (process.end("\n"), process.returncode) == ("144\n", 0)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--returns",), "say which, -F GLOB or -L GLOB"),
        (("--returns", "-L", "puts", "--engine", "patch"), "the engine patch sees no returns of calls"),
    ],
)
def test_what_makes_no_sense_is_said(words: tuple[str, ...], said: str, usdtbuild: Any) -> None:
    done = usdtbuild("trace", *words, "--", "true", code=2)
    assert said in done.stderr
    assert done.stderr.count("\n") == 1
