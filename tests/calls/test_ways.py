"""Calls are counted exactly whichever way they go: many threads at once, signals, libraries that call or come later."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest

from tests.started import ready, tracing

pytestmark = pytest.mark.skipif(os.uname().machine != "x86_64", reason="the engines are for x86-64")
ENGINES = ["patch", "trap"]
LOWER = """
int lower(int n) { return n + 1; }
static int plain(int n) { return n + 2; }
static int (*choose(void))(int) { return plain; }
int chosen(int n) __attribute__((ifunc("choose")));
"""
UPPER = "int lower(int); int chosen(int); int upper(int n) { return lower(n) + chosen(n); }\n"
THREADS = r"""
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
int lower(int), upper(int);
static pthread_barrier_t all;
static int times;
static void tick(int number) { (void)number; }
static void *work(void *argument)
{
	pthread_barrier_wait(&all); /* so that the first calls are made at once */
	for (int i = 0; i < times; i++) lower(i), upper(i);
	return argument;
}
int main(int argc, char **argv)
{
	struct itimerval often = {{0, 300}, {0, 300}};
	struct sigaction action;
	pthread_t threads[4];
	times = atoi(argv[1]);
	memset(&action, 0, sizeof action);
	action.sa_handler = tick;
	action.sa_flags = SA_RESTART;
	sigaction(SIGALRM, &action, 0);
	setitimer(ITIMER_REAL, &often, 0);
	pthread_barrier_init(&all, 0, 4);
	for (int i = 0; i < 4; i++) pthread_create(&threads[i], 0, work, 0);
	for (int i = 0; i < 4; i++) pthread_join(threads[i], 0);
	return 0;
}
"""
OPENS = r"""
#include <dlfcn.h>
int main(int argc, char **argv)
{
	for (int round = 0; round < 3; round++) {
		void *handle = dlopen(argv[1], RTLD_LAZY);
		int (*upper)(int) = (int (*)(int))dlsym(handle, "upper");
		for (int i = 0; i < 20; i++) upper(i);
		dlclose(handle);
	}
	return 0;
}
"""
WAITS = r"""
#include <stdio.h>
int lower(int), upper(int);
int main(void)
{
	lower(1); /* this slot is filled by now, that of `upper` isn't */
	puts("ready");
	fflush(stdout);
	getchar();
	for (int i = 0; i < 30; i++) lower(i), upper(i);
	return 0;
}
"""
FORMS = {
    "lazy": ("-Wl,-z,lazy",), "now": ("-Wl,-z,now",), "no-plt": ("-fno-plt",), "stripped": ("-Wl,-z,lazy", "-s"),
    "exe": ("-no-pie", "-fno-pie", "-Wl,-z,lazy"),
}  # fmt: skip


@pytest.fixture(scope="module")
def folder(run: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build two libraries, of which one calls the other."""
    made = tmp_path_factory.mktemp("ways")
    sources = {"lower": LOWER, "upper": UPPER, "threads": THREADS, "opens": OPENS, "waits": WAITS}
    for name, text in sources.items():
        (made / f"{name}.c").write_text(text)
    found = ["-Wl,-rpath,$ORIGIN"]
    run("gcc", "-O1", "-shared", "-fPIC", "lower.c", "-o", "liblower.so", cwd=made)
    run("gcc", "-O1", "-shared", "-fPIC", "upper.c", "liblower.so", *found, "-o", "libupper.so", cwd=made)
    return made


@pytest.fixture(scope="module")
def program(run: Any, folder: Path) -> Any:
    """Build one of the programs in one of the forms: `program("threads", "now")`."""

    def build(name: str, form: str) -> Path:
        path = folder / f"{name}-{form}"
        if not path.exists():
            words = ["gcc", "-O1", "-w", "-pthread", *FORMS[form], f"{name}.c", "libupper.so", "liblower.so"]
            run(*words, "-Wl,-rpath,$ORIGIN", "-ldl", "-o", path, cwd=folder)
        return path

    return build


@pytest.fixture(scope="module")
def counted(usdtbuild: Any) -> Any:
    """Return how often each function was called, by any file: `counted(engine, program, arguments...)`."""

    def count(engine: str, *command: Any, names: tuple[str, ...] = ("*er", "chosen")) -> dict[str, int]:
        words = ["--engine", engine, "--count", *(word for name in names for word in ("-L", name)), "--", *command]
        return numbers(usdtbuild("trace", *words).stdout)

    return count


def numbers(text: str) -> dict[str, int]:
    """Return the counts of a table, summed over files."""
    found: dict[str, int] = {}
    for number, name in re.findall(r"^ *(\d+)  (upper|lower|chosen)\b", text, re.MULTILINE):
        found[name] = found.get(name, 0) + int(number)
    return found


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("form", FORMS)
def test_threads_that_make_the_same_first_call_at_once(form: str, engine: str, program: Any, counted: Any) -> None:
    """All slots are lazy in the libraries; signals come all the while."""
    times = 25 if engine == "trap" else 5000
    found = counted(engine, program("threads", form), times)
    assert found == {"lower": 8 * times, "upper": 4 * times, "chosen": 4 * times}


@pytest.mark.parametrize("engine", ENGINES)
def test_a_library_that_is_closed_and_opened_again(engine: str, program: Any, folder: Path, counted: Any) -> None:
    found = counted(engine, program("opens", "lazy"), folder / "libupper.so")
    assert found == {"lower": 60, "chosen": 60}


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("form", FORMS)
def test_a_process_whose_slots_are_partly_filled(form: str, engine: str, program: Any) -> None:
    with ready(program("waits", form)) as process:
        tracer = tracing("--engine", engine, "--count", "-L", "*er", "-L", "chosen", "-p", process.pid)
        process.end("\n")
        output, errors = tracer.communicate(timeout=60)
    assert process.returncode == 0
    assert numbers(output) == {"lower": 60, "upper": 30, "chosen": 30}, errors


@pytest.mark.parametrize("engine", ENGINES)
def test_ifuncs_of_a_static_program(engine: str, run: Any, counted: Any, tmp_path: Path) -> None:
    """There is no dynamic linker: the program's own start code fills their slots."""
    (tmp_path / "main.c").write_text(LOWER + "int main(void) { int s = 0; while (s < 40) s += chosen(0); return 0; }\n")
    path = tmp_path / "main"
    if run("gcc", "-O1", "-static", tmp_path / "main.c", "-o", path, code=None).returncode:
        pytest.skip("no static C library is installed")
    assert counted(engine, path, names=("chosen",)) == {"chosen": 20}
