"""What a probe's stub gets from a macro, and what a macro does when it is off, seen in running programs.

The programs here are linked with stubs written by hand, in place of what `usdtbuild instrument` makes of the calls; so
they are compiled with -DUSDT_PROBES_BY_CALL, and -DUSDT_PLAIN_NAMES for DTrace's names of the stubs.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

MakeHeader = Callable[..., Path]
BY_CALL, WARNINGS = ["-DUSDT_PROBES_BY_CALL", "-DUSDT_PLAIN_NAMES"], ["-Wall", "-Wextra", "-Werror"]

PROVIDER = """
provider app {
  probe reals(double d, float f, double e);
  probe bools(bool a, bool b, bool c, bool d);
  probe integers(int8_t a, uint8_t b, int16_t c, uint64_t d, long e, size_t f);
  probe pointers(char *s, struct conn *c, void (*f)(int), int x[2]);
  probe once(int a, double b, bool c);
};
"""
STUBS = """
#include <stdint.h>
#include <stdio.h>
#include <string.h>
unsigned short app_reals_semaphore = 0, app_once_semaphore = 7, app_bools_semaphore, app_integers_semaphore;
unsigned short app_pointers_semaphore;
int __dtraceenabled_app___once(void) { puts("asked"); return 1; }
int __dtraceenabled_app___reals(void) { puts("asked"); return 0; }
void __dtrace_app___reals(uint64_t d, uint32_t f, uint64_t e)
{ printf("reals %016llx %08x %016llx\\n", (unsigned long long)d, f, (unsigned long long)e); }
void __dtrace_app___bools(unsigned char a, unsigned char b, unsigned char c, unsigned char d)
{ printf("bools %d %d %d %d\\n", a, b, c, d); }
void __dtrace_app___integers(signed char a, unsigned char b, short c, uint64_t d, long e, size_t f)
{ printf("integers %d %d %d %llx %ld %zu\\n", a, b, c, (unsigned long long)d, e, f); }
void __dtrace_app___pointers(const char *s, const void *c, void (*f)(int), const int *x)
{ printf("pointers %s %s %d\\n", s, (const char *)c, x[1]); f(3); }
void __dtrace_app___once(int a, uint64_t b, unsigned char c)
{ printf("once %d %016llx %d\\n", a, (unsigned long long)b, c); }
"""
PROGRAM = """
#include <stdio.h>
#include "app.h"
struct conn { char name[8]; };
static int evaluated;
static int count(int x) { evaluated++; return x; }
static void called(int n) { printf("called %d\\n", n); }
int main(void)
{
	const struct conn conn = { "conn" };
	const int numbers[2] = {1, 2};
	char text[] = "text";
	const char *pointer = text;
	APP_REALS(1.0, 0.5f, -0.0);
	APP_REALS(3, 2.0f, 1e300);
	APP_BOOLS(256, pointer, 0.5 > 1, evaluated);
	APP_INTEGERS(-1, 255, -30000, 0x123456789abcdef0u, -5L, sizeof(int));
	APP_POINTERS(text, &conn, called, numbers);
	APP_ONCE(count(1), count(2), count(3));
	printf("evaluated %d\\n", evaluated);
	if (APP_ONCE_ENABLED()) puts("once is on");
	if (APP_REALS_ENABLED()) puts("reals is on");
	return 0;
}
"""
HITS = """\
reals 3ff0000000000000 3f000000 8000000000000000
reals 4008000000000000 40000000 7e37e43c8800759c
bools 1 1 0 0
integers -1 255 -30000 123456789abcdef0 -5 4
pointers text conn 2
called 3
once 1 4000000000000000 1
"""


def build_and_run(tmp_path: Path, *commands: list[str]) -> str:
    for command in commands:
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
    return subprocess.run(["./program"], capture_output=True, text=True, check=True, cwd=tmp_path).stdout


@pytest.fixture
def sources(tmp_path: Path, make_header: MakeHeader) -> Path:
    make_header(PROVIDER)
    (tmp_path / "stubs.c").write_text(STUBS)
    (tmp_path / "program.c").write_text(PROGRAM)
    return tmp_path


@pytest.mark.parametrize("optimisation", ["-O0", "-O2"])
@pytest.mark.parametrize("language", [["-x", "c"], ["-x", "c", "-std=c99"], ["-x", "c++"]], ids=["c", "c99", "c++"])
def test_stubs_get_the_values(sources: Path, cc: str, optimisation: str, language: list[str]) -> None:
    printed = build_and_run(
        sources,
        [cc, optimisation, "-c", "stubs.c", "-o", "stubs.o"],
        [cc, optimisation, *language, *BY_CALL, *WARNINGS, "-c", "program.c", "-o", "program.o"],
        [cc, "program.o", "stubs.o", "-o", "program"],
    )
    assert printed == HITS + "evaluated 3\nonce is on\n"


def test_enabled_may_be_asked_by_a_call(sources: Path, cc: str) -> None:
    printed = build_and_run(sources, [cc, "-DUSDT_ENABLED_BY_CALL", *BY_CALL, "program.c", "stubs.c", "-o", "program"])
    assert printed == HITS + "evaluated 3\nasked\nonce is on\nasked\n"


def test_a_semaphore_is_read_every_time(sources: Path, cc: str) -> None:
    """A tracer changes it behind the compiler's back, so a loop must not read it once."""
    (sources / "loop.c").write_text(
        '#include "app.h"\nvoid f(void);\nvoid f(void) { while (!APP_ONCE_ENABLED()) { } }\n'
    )
    subprocess.run([cc, "-O2", "-c", "loop.c", "-o", "loop.o"], check=True, cwd=sources)
    code = subprocess.run(["objdump", "-d", "--no-show-raw-insn", "loop.o"], capture_output=True, text=True, check=True,
                          cwd=sources).stdout  # fmt: skip
    jumps = [line.split() for line in code.split("\n") if "\tj" in line]
    reads = [line for line in code.split("\n") if "(%rip)" in line]
    assert reads
    first_read = int(reads[0].split(":")[0], 16)
    assert any(int(words[2], 16) <= first_read < int(words[0][:-1], 16) for words in jumps)


def test_a_program_needs_no_stubs_when_probes_are_off(sources: Path, cc: str, make_header: MakeHeader) -> None:
    """Neither with -DUSDT_DISABLED nor with --none is an argument evaluated, at any optimisation."""
    for optimisation in ("-O0", "-O2"):
        command = [cc, optimisation, "-Wall", "-Wextra", "-Werror", "program.c", "-o", "program"]
        assert build_and_run(sources, [*command, "-DUSDT_DISABLED"]) == "evaluated 0\n"
    make_header(PROVIDER, "app", "--none")
    for optimisation in ("-O0", "-O2"):
        command = [cc, optimisation, "-Wall", "-Wextra", "-Werror", "program.c", "-o", "program"]
        assert build_and_run(sources, command) == "evaluated 0\n"


@pytest.mark.parametrize("mode", ["on", "off", "none"])
@pytest.mark.parametrize(
    "wrong",
    [
        "APP_ONCE(1, 2.0)", "APP_ONCE(1, 2.0, 1, 1)", "APP_ONCE(conn, 2.0, 1)", "APP_ONCE(1, conn, 1)",
        "APP_ONCE(1, 2.0, conn)", "APP_POINTERS(1.5, &conn, called, numbers)",
        "APP_POINTERS(text, numbers, called, numbers)",
        "APP_POINTERS(text, &conn, called, 3)", "APP_POINTERS(text, &conn, conn, numbers)", "APP_NOTHING()",
    ],
)  # fmt: skip
def test_arguments_are_checked_in_every_mode(
    sources: Path, make_header: MakeHeader, need: Callable[[str], str], mode: str, wrong: str
) -> None:
    if mode == "none":
        make_header(PROVIDER, "app", "--none")
    flags = ["-Werror", *(["-DUSDT_DISABLED"] if mode == "off" else [])]
    right = "APP_ONCE(1, 2.0, 1)"
    for call, succeeds in ((right, True), (wrong, False)):
        (sources / "check.c").write_text(PROGRAM.replace("APP_ONCE(count(1), count(2), count(3))", call))
        command = [need("gcc"), *flags, "-fsyntax-only", "check.c"]
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=sources)
        assert (done.returncode == 0) == succeeds, done.stderr
