"""Returns of calls in programs of other machines: each with its result, through recursion, longjmp and tail calls."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from .conftest import RETURNING, results, shown
from .test_other_machines import MACHINES

PROGRAM = """
#include <setjmp.h>
#include <stdlib.h>
#include <string.h>
int nested(int (*again)(int), int n);
int outer(int n);
int leave(jmp_buf where, int n);
static jmp_buf where;
static int again(int n) { return nested(again, n); }
int main(void)
{
	volatile int i;
	again(5);
	outer(10);
	for (i = 0; i < 6; i++)
		if (!setjmp(where))
			leave(where, i);
	setenv("CALLS", "text", 1);
	free(strdup(getenv("CALLS")));
	return 7;
}
"""
# The parts where it is thrown and caught are symbols, too (.cold), which are entered by jumps.
THROWING = """
#include <cstdio>
extern "C" {
int thrower(int n) { if (n % 2) throw n; return n; }
int (*volatile throws)(int) = thrower;
int between(int n) { return throws(n) + 1; }
int (*volatile passes)(int) = between;
int catcher(int n) { int got; try { got = passes(n); } catch (int m) { got = -m; } return got; }
int variadic(int n, ...) { if (n % 2) throw n; return n; }
int (*volatile varies)(int, ...) = variadic;
int catches(int n) { int got; try { got = varies(n, 1); } catch (int m) { got = -m; } return got; }
}
int (*volatile first)(int) = catcher, (*volatile second)(int) = catches;
int main()
{
	int sum = 0;
	for (int i = 0; i < 6; i++)
		sum += first(i) + second(i);
	std::printf("sum=%d\\n", sum);
	return 7;
}
"""
FORMS = {"lazy": ("-Wl,-z,lazy",), "no-plt": ("-fno-plt",), "exe": ("-no-pie", "-fno-pie", "-Wl,-z,now")}
# Where call sites without stubs are known.
HAVE_NO_PLT = ("aarch64", "i386", "ppc64le")


@pytest.fixture(scope="module")
def traced(usdtbuild: Any, run: Any, tmp_path_factory: pytest.TempPathFactory, cross: Any) -> Any:
    """Build the program of a machine in a form, trace it with options, and return what was printed."""
    folder = tmp_path_factory.mktemp("other-returns")
    (folder / "library.c").write_text(RETURNING)
    (folder / "program.c").write_text(PROGRAM)

    def trace(machine: str, form: str, *options: str) -> str:
        prefix, emulator = MACHINES[machine]
        path, library = folder / f"{machine}-{form}", folder / f"lib{machine}.so"
        gcc = [cross(prefix, emulator), "-fno-builtin", "-w"]
        run(*gcc, "-O2", "-shared", "-fPIC", "library.c", "-o", library, cwd=folder)
        run(*gcc, "-O1", *FORMS[form], "program.c", library, f"-Wl,-rpath,{folder}", "-o", path, cwd=folder)
        words = ("--emulator", emulator, "--sysroot", f"/usr/{prefix}", "--module", path.name, "--module", library.name)
        done = usdtbuild("trace", *words, "--returns", *(options or ("-L", "*")), "--", path, code=7)
        return str(done.stdout)

    return trace


@pytest.mark.parametrize(
    ("machine", "form"),
    [
        *((machine, "lazy") for machine in MACHINES),
        *((machine, "no-plt") for machine in HAVE_NO_PLT),
        *(pytest.param(machine, "exe", marks=pytest.mark.slow) for machine in MACHINES),
    ],
)
def test_every_return_with_its_result(machine: str, form: str, traced: Any) -> None:
    found = shown(traced(machine, form))

    assert results(found, "nested") == [0, 1, 2, 3, 4, 5]
    assert results(found, "outer") == [21]
    assert results(found, "inner") == [21]  # `outer` ends with a jump to it, where the machine can
    assert len(found["leave"]) == 6
    assert results(found, "leave") == [0, 2, 4]  # the others leave with longjmp
    assert found["setenv:return"] == ["result=0"]
    assert found["getenv:return"] == found["strdup:return"] == ['result="text"']
    assert found["free:return"] == [""]


def test_both_entries_of_a_function_lead_by_one_breakpoint(
    usdtbuild: Any, run: Any, tmp_path: Path, cross: Any
) -> None:
    """ppc64le: who shares a function's TOC enters it behind its first instructions, a pointer leads before them."""
    prefix, emulator = MACHINES["ppc64le"]
    compiler = cross(prefix, emulator)
    (tmp_path / "main.c").write_text(
        "int sum;\n__attribute__((noinline)) int work(int n) { return sum += n; }\n"
        "int (*volatile pointer)(int) = work;\n"
        "int main(void) { for (int i = 0; i < 5; i++) work(i); for (int i = 0; i < 3; i++) pointer(i); return sum; }\n"
    )
    run(compiler, "-O1", "main.c", "-o", "main", cwd=tmp_path)
    words = ("--emulator", emulator, "--sysroot", f"/usr/{prefix}", "--returns")
    text = usdtbuild("trace", *words, "-F", "work", "--", tmp_path / "main", code=13).stdout
    assert len(shown(text)["work"]) == len(shown(text)["work:return"]) == 8
    counted = usdtbuild("trace", *words, "-F", "work", "--count", "--", tmp_path / "main", code=13).stdout
    assert re.findall(r"(\d+)  (work\S*)", counted) == [("8", "work"), ("8", "work:return")]


def test_returns_are_counted_and_filtered(traced: Any) -> None:
    counted = traced("aarch64", "lazy", "--count", "-L", "*")
    numbers = {name: int(number) for number, name in re.findall(r"^ *(\d+)  (\S+)", counted, re.MULTILINE)}
    assert (numbers["leave"], numbers["leave:return"], numbers["nested:return"]) == (6, 3, 6)
    filtered = shown(traced("aarch64", "lazy", "-L", "leave", "-L", "nested", "--filter", "result == 4"))
    assert {name: len(lines) for name, lines in filtered.items()} == {
        "leave": 1, "leave:return": 1, "nested": 1, "nested:return": 1,
    }  # fmt: skip


@pytest.mark.parametrize("machine", MACHINES)
def test_exceptions(machine: str, usdtbuild: Any, need: Any, run: Any, tmp_path: Path) -> None:
    """Of all functions, those return that no exception has left; nothing else in the program is touched."""
    prefix, emulator = MACHINES[machine]
    need(emulator)
    if not shutil.which(f"{prefix}-g++") or not Path(f"/usr/{prefix}/lib/libstdc++.so.6").exists():
        pytest.skip(f"no {prefix}-g++ with its library is installed")
    (tmp_path / "throwing.cc").write_text(THROWING)
    run(f"{prefix}-g++", "-O2", "-w", "throwing.cc", "-o", "throwing", cwd=tmp_path)
    words = ("--emulator", emulator, "--sysroot", f"/usr/{prefix}", "--module", "throwing", "-F", "*", "--returns")
    text = str(usdtbuild("trace", *words, "--", tmp_path / "throwing", code=7).stdout)
    assert "sum=-3\n" in text
    found = shown(text)

    def results(name: str) -> list[int]:
        numbers = [int(line.removeprefix("result="), 16) & 0xFFFFFFFF for line in found[f"{name}:return"]]
        return [number - (number >> 31 << 32) for number in numbers]

    assert results("thrower") == results("variadic") == [0, 2, 4]
    assert results("between") == [1, 3, 5]
    assert results("catcher") == [1, -1, 3, -3, 5, -5]
    assert results("catches") == [0, -1, 2, -3, 4, -5]
