"""`usdtbuild trace --count --emulator`: exact counts of threaded programs of other machines, by a plugin of QEMU's.

Four threads make their first calls at the same time, a library is opened, closed and opened again, and a child makes
calls that aren't counted.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.started import Started

# name -> the compiler's prefix, and options
MACHINES = {
    "aarch64": ("aarch64-linux-gnu", ()), "arm": ("arm-linux-gnueabihf", ()), "riscv64": ("riscv64-linux-gnu", ()),
    "s390x": ("s390x-linux-gnu", ()), "ppc64le": ("powerpc64le-linux-gnu", ()), "ppc64": ("powerpc64-linux-gnu", ()),
    "ppc": ("powerpc-linux-gnu", ()), "sparc64": ("sparc64-linux-gnu", ()),
    "ppc-bss-plt": ("powerpc-linux-gnu", ("-Wl,--bss-plt", "-Wl,--no-warn-rwx-segments")),
}  # fmt: skip
FORMS = {
    "lazy": ("-pie", "-fPIE", "-Wl,-z,lazy"),
    "now": ("-pie", "-fPIE", "-Wl,-z,now"),
    "exe": ("-no-pie", "-fno-pie"),
}
LIBRARY = """
#include <stdlib.h>
int inner(int n) { return abs(n) + 1; }
int outer(int n) { return inner(n) + inner(n + 1); }
"""
PROGRAM = r"""
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#define EACH 2500
static int started;
static volatile unsigned sum;
static int deep(int n) { sum += strlen("deep"); return n ? deep(n - 1) + 1 : 0; }
static void *work(void *from)
{
	__atomic_add_fetch(&started, 1, __ATOMIC_SEQ_CST);
	while (__atomic_load_n(&started, __ATOMIC_SEQ_CST) < 4)
		;
	for (int i = 0; i < EACH; i++)
		srand((unsigned)i + (unsigned)(long)from);
	return from;
}
int main(int argc, char **argv)
{
	pthread_t threads[4];
	int status;
	for (long i = 0; i < 4; i++) pthread_create(&threads[i], 0, work, (void *)i);
	for (int i = 0; i < 4; i++) pthread_join(threads[i], 0);
	deep(99);
	for (int i = 0; i < 5; i++) {
		void *library = dlopen(argv[1], RTLD_LAZY);
		int (*outer)(int) = (int (*)(int))dlsym(library, "outer");
		for (int n = 0; n < 10; n++) outer(n);
		dlclose(library);
	}
	if (!fork()) {
		for (int i = 0; i < 77; i++) srand(1);
		_exit(0);
	}
	wait(&status);
	if (argc > 2) {
		puts("waiting");
		fflush(stdout);
		getchar();
		srand(1);
	}
	puts("the end");
	return 5;
}
"""
WANTED = {"srand": 10_000, "strlen": 100, "pthread_create": 4, "pthread_join": 4, "dlopen": 5, "inner": 100, "abs": 100}
TRACE = (sys.executable, "-m", "usdtbuild", "trace")


@pytest.fixture(scope="module")
def program(run: Any, tmp_path_factory: pytest.TempPathFactory, cross: Any) -> Any:
    """Build the program of a machine in a form; returns it, its library, and how it is run."""
    folder = tmp_path_factory.mktemp("counting")
    (folder / "program.c").write_text(PROGRAM)
    (folder / "library.c").write_text(LIBRARY)

    def build(machine: str, form: str) -> tuple[Path, Path, tuple[str, ...]]:
        prefix, options = MACHINES[machine]
        emulator = f"qemu-{machine.partition('-')[0]}"
        gcc = [cross(prefix, emulator), "-O1", "-fno-builtin", "-s"]
        if "-plugin " not in run(emulator, "-h").stdout:
            pytest.skip(f"{emulator} was built without plugins")
        path, library = folder / f"{machine}-{form}", folder / f"lib{machine}-{form}.so"
        run(*gcc, *options, "-fPIC", "-shared", "library.c", "-o", library, cwd=folder)
        run(*gcc, *options, *FORMS[form], "program.c", "-pthread", "-ldl", "-o", path, cwd=folder)
        return path, library, ("--emulator", emulator, "--sysroot", f"/usr/{prefix}")

    return build


def counts(text: str) -> dict[str, int]:
    return {name: int(number) for number, name in re.findall(r"^ *(\d+)  (\S+)(?:  \(.*\))?$", text, re.MULTILINE)}


@pytest.mark.parametrize("form", ["lazy", *(pytest.param(one, marks=pytest.mark.slow) for one in ("now", "exe"))])
@pytest.mark.parametrize("machine", MACHINES)
def test_calls_of_threads_are_all_counted(machine: str, form: str, program: Any, usdtbuild: Any) -> None:
    path, library, emulated = program(machine, form)
    modules = ("--module", path.name, "--module", library.name)
    words = ("trace", "-v", "--count", *emulated, *modules, "-L", "*")
    done = usdtbuild(*words, "--", path, library, code=5)
    assert "the end\n" in done.stdout
    assert "traced with plugin" in done.stderr
    found = counts(done.stdout)
    assert {name: found.get(name) for name in WANTED} == WANTED


def test_a_trace_that_ends_first_lets_the_program_run_on(program: Any) -> None:
    path, library, emulated = program("aarch64", "lazy")
    words = [*TRACE, "--count", *emulated, "--module", path.name, "-L", "srand", "--", path, library, "wait"]
    with Started(*words, stderr=subprocess.PIPE) as tracer:
        assert tracer.line() == "waiting\n"
        tracer.send_signal(signal.SIGINT)
        assert counts(tracer.line()) == {"srand": 10_000}
        assert tracer.wait(60) == 0
        output, errors = tracer.communicate("\n")
    assert output == "the end\n"
    assert re.fullmatch(r"usdtbuild: .* runs on, and isn't traced any more\n", errors)


@pytest.mark.parametrize(
    ("emulator", "environment", "said"),
    [
        ("env qemu-aarch64", {}, "env was built without plugins, or is no emulator of QEMU's"),
        ("qemu-aarch64", {"CC": "no-such-compiler"}, "needs a C compiler, and there is no no-such-compiler"),
    ],
)
def test_without_the_plugin_the_stub_counts_and_that_is_said(
    emulator: str, environment: dict[str, str], said: str, run: Any, program: Any, tmp_path: Path
) -> None:
    _, _, emulated = program("aarch64", "lazy")
    (tmp_path / "main.c").write_text("#include <stdlib.h>\nint main(void) { srand(1); srand(2); return 0; }\n")
    run("aarch64-linux-gnu-gcc", "-O1", "main.c", "-o", "main", cwd=tmp_path)
    system = emulated[emulated.index("--sysroot") :]
    words = [*TRACE, "--count", *system, "--emulator", emulator, "--module", "main", "-L", "srand", "--", "./main"]
    done = run(*words, cwd=tmp_path, env={**os.environ, "XDG_CACHE_HOME": str(tmp_path), **environment})
    assert counts(done.stdout) == {"srand": 2}
    assert said in done.stderr
    assert "counting through its gdb server, which hangs when the program starts threads" in done.stderr


def test_that_threads_are_not_for_the_stub_is_said(run: Any, program: Any, tmp_path: Path) -> None:
    """All hits are in the first thread, which the stub still sees; the other one is there as they come."""
    _, _, emulated = program("aarch64", "lazy")
    (tmp_path / "main.c").write_text("""
#include <pthread.h>
#include <stdlib.h>
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static void *wait_for_it(void *it) { pthread_mutex_lock(&lock); return it; }
int main(void)
{
	pthread_t one;
	pthread_mutex_lock(&lock);
	pthread_create(&one, 0, wait_for_it, 0);
	srand(1);
	pthread_mutex_unlock(&lock);
	pthread_join(one, 0);
	return 0;
}
""")
    run("aarch64-linux-gnu-gcc", "-O1", "main.c", "-o", "main", "-pthread", cwd=tmp_path)
    done = run(*TRACE, *emulated, "--module", "main", "-L", "srand", "--", "./main", cwd=tmp_path, timeout=60)
    assert "srand seed=1" in done.stdout
    assert done.stderr.count("the program has started threads") == 1
