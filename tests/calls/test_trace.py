"""`usdtbuild trace --call`: calls of library functions are counted exactly, through stubs and without."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest
from elftools.elf.elffile import ELFFile

pytestmark = pytest.mark.skipif(os.uname().machine != "x86_64", reason="the engines are for x86-64")
ENGINES = ["patch", "trap"]
SOURCE = r"""
#include <math.h>
#include <netdb.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
int mine(long a, long b, long c, long d, long e, long f);
char *index(const char *s, int c);
#ifdef NUMBERED /* entries as mold 2.34 and newer write them: mov $number,%r11d; jmp *slot(%rip); int3, four times */
#define ENTRY(name) ".p2align 4\n" name "_entry: mov $1, %r11d\njmp *" name "@GOTPCREL(%rip)\n.fill 4, 1, 0xcc\n"
__asm__(ENTRY("rand") ENTRY("srand"));
int rand_entry(void);
void srand_entry(unsigned);
#define rand rand_entry
#define srand srand_entry
#endif
int main(int argc, char **argv)
{
	static const char *texts[] = {"plain", "", "a \"quote\"\n", 0};
	volatile double two = 2.5;
	struct sockaddr address;
	char host[64], *volatile at;
	long sum = 0;
	memset(&address, 0, sizeof address);
	for (int i = 0; i < 50; i++) {
		srand(0x123400 + i);
		sum += rand() + rand();
	}
	for (int i = 0; i < 4; i++)
		if (texts[i])
			sum += setenv("CALLS", texts[i], -i);
	at = getenv("CALLS");
	sum += ldexp(two, -3) > 0;
	sum += getnameinfo(&address, 16, host, sizeof host, 0, 7, NI_NUMERICHOST);
	sum += mine(1, 2, 3, 4, 5, 0x60000000006) + (index(at, 'q') != 0);
	return sum == 0;
}
"""
LIBRARY = """
int mine(long a, long b, long c, long d, long e, long f) { return (int)(a + b + c + d + e + f); }
char *index(const char *s, int c) { (void)c; return (char *)s; }
"""
FORMS = [
    ("-Wl,-z,lazy",), ("-Wl,-z,now",), ("-fno-plt",), ("-fcf-protection=full", "-Wl,-z,ibtplt"), ("-no-pie", "-s"),
    ("-DNUMBERED",),
]  # fmt: skip


@pytest.fixture(scope="module")
def programs(run: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Build the program, called as its folder's `main`, in one of the forms."""
    made: dict[tuple[str, ...], Path] = {}

    def build(form: tuple[str, ...]) -> Path:
        if form not in made:
            folder = tmp_path_factory.mktemp("calls")
            (folder / "main.c").write_text(SOURCE)
            (folder / "library.c").write_text(LIBRARY)
            run("gcc", "-shared", "-fPIC", "library.c", "-o", "libmine.so", cwd=folder)
            words = ["gcc", "-O1", "-fno-builtin", *form, "main.c", "libmine.so", "-Wl,-rpath,$ORIGIN", "-lm"]
            run(*words, "-o", "main", cwd=folder)
            made[form] = folder / "main"
        return made[form]

    return build


@pytest.fixture(params=FORMS, ids=" ".join)
def program(request: Any, programs: Any) -> Path:
    """Return the program in each form."""
    path: Path = programs(request.param)
    return path


@pytest.mark.parametrize("engine", ENGINES)
def test_calls_are_counted_exactly(program: Path, engine: str, usdtbuild: Any) -> None:
    words = ["--engine", engine, "--count", "-L", "*rand", "--module", "main", "--", program]
    done = usdtbuild("trace", *words)
    counts = {name: int(number) for number, name in re.findall(r"(\d+)\s+(s?rand)\b", done.stdout)}
    assert counts == {"srand": 50, "rand": 100}, done.stdout + done.stderr


@pytest.mark.parametrize("engine", ENGINES)
def test_calls_are_shown_with_their_arguments(program: Path, engine: str, usdtbuild: Any) -> None:
    """Names, types and texts of the C library's functions; more integers and floats than there are registers for."""
    done = usdtbuild("trace", "--engine", engine, "-L", "*", "--module", "main", "--", program)
    shown: dict[str, list[str]] = {}
    for line in done.stdout.splitlines():
        name, _, arguments = line[21:].partition(" ")
        shown.setdefault(name, []).append(arguments)
    assert shown["srand"] == [f"seed={0x123400 + number}" for number in range(50)]
    assert shown["rand"] == [""] * 100
    texts = [r'"plain"', '""', r'"a \"quote\"\n"']
    assert shown["setenv"] == [f'name="CALLS" value={text} overwrite={-i}' for i, text in enumerate(texts)]
    assert shown["getenv"] == ['name="CALLS"']
    assert shown["ldexp"] == ["x=2.5 exp=-3"]
    (found,) = shown["getnameinfo"]
    assert re.fullmatch(r"addr=0x\w+ addrlen=16 host=0x\w+ hostlen=64 serv=0x0 servlen=7 flags=1", found)
    assert shown["mine"] == ["arg1=0x1 arg2=0x2 arg3=0x3 arg4=0x4 arg5=0x5 arg6=0x60000000006"]


@pytest.mark.parametrize("engine", ENGINES)
def test_a_librarys_own_function_is_not_taken_for_the_c_librarys(programs: Any, engine: str, usdtbuild: Any) -> None:
    """The program's `index` comes from a library of its own, which has no versions."""
    done = usdtbuild("trace", "--engine", engine, "-L", "index", "--module", "main", "--", programs(FORMS[0]))
    (line,) = done.stdout.splitlines()
    assert re.search(r" index arg1=0x\w+ arg2=0x71 arg3=", line)


def test_the_engine_inside_says_that_it_sees_no_calls(usdtbuild: Any) -> None:
    done = usdtbuild("trace", "--engine", "inside", "-L", "puts", "--", "true", code=2)
    assert "sees no calls" in done.stderr
    assert done.stderr.count("\n") == 1


TWO_PAGES = """
#include <stdlib.h>
int main(void)
{
\tfor (int i = 0; i < 30; i++)
\t\t__asm__ volatile("jmp 1f\\n.balign 4096, 0xcc\\n.skip %d, 0x90\\n1: xorl %%%%edi, %%%%edi\\n"
\t\t\t"call *srand@GOTPCREL(%%%%rip)" ::: "rax", "rcx", "rdx", "rsi", "rdi", "r8", "r9", "r10", "r11", "memory", "cc");
\treturn 0;
}
"""


@pytest.mark.parametrize("where", [0, 2, 4])
def test_a_distance_that_lies_on_two_pages_is_left_to_breakpoints(
    where: int, tmp_path: Path, run: Any, usdtbuild: Any
) -> None:
    """It couldn't be written whole if the tracer were killed meanwhile."""
    (tmp_path / "main.c").write_text(TWO_PAGES % (4096 - where - 4))
    words = ["gcc", "-O1", "-fPIE", "-pie", "-mno-red-zone", "-Wl,-z,now", "main.c", "-o", "main"]
    run(*words, cwd=tmp_path)
    done = usdtbuild("trace", "-v", "--count", "-L", "srand", "--", tmp_path / "main")
    assert re.search(r"^ *30  .*srand", done.stdout, re.MULTILINE), done
    alone = usdtbuild("trace", "--engine", "patch", "--count", "-L", "srand", "--", tmp_path / "main")
    counted = re.search(r"^ *30  .*srand", alone.stdout, re.MULTILINE) is not None
    assert counted == (where in {0, 4}), alone
    assert ("loads no slot in a way that may change" in alone.stderr) == (not counted)


PRELINKED = r"""
#include <stdio.h>
int mine(long a, long b, long c, long d, long e, long f);
__attribute__((noinline)) int filled_in(long a, long b, long c, long d, long e, long f)
{
	return (int)(1000 + a + b + c + d + e + f);
}
int main(int argc, char **argv)
{
	int sum = argc > 5 ? filled_in(1, 2, 3, 4, 5, argc) : 0;
	for (long n = 0; n < 20; n++)
		sum += mine(n, 1, 1, 1, 1, 1);
	printf("%d\n", sum);
	return 0;
}
"""


@pytest.mark.parametrize("engine", ENGINES)
def test_slot_that_is_filled_in_the_file(programs: Any, engine: str, run: Any, usdtbuild: Any, tmp_path: Path) -> None:
    """A prelinked file, made by hand: of a program at a fixed address lazy slots stay as they are in the file."""
    library = programs(FORMS[0]).with_name("libmine.so")
    (tmp_path / "main.c").write_text(PRELINKED)
    options = ["-O1", "-no-pie", "-fno-pie", "-Wl,-z,lazy", "-fuse-ld=bfd", "-fcf-protection=none"]
    run("gcc", *options, "main.c", library, f"-Wl,-rpath,{library.parent}", "-o", "main", cwd=tmp_path)
    (file,) = json.loads(usdtbuild("calls", "--json", tmp_path / "main").stdout)["files"]
    (slot,) = [int(call["slot"], 16) for call in file["calls"] if call["name"] == "mine"]
    data = bytearray((tmp_path / "main").read_bytes())
    with (tmp_path / "main").open("rb") as opened:
        elf: Any = ELFFile(opened)
        (at,) = elf.address_offsets(slot)
        (function,) = elf.get_section_by_name(".symtab").get_symbol_by_name("filled_in")
        data[at : at + 8] = function["st_value"].to_bytes(8, "little")
    (tmp_path / "main").write_bytes(data)
    wanted = str(sum(1000 + n + 5 for n in range(20)))
    assert run(tmp_path / "main").stdout.split() == [wanted]
    done = usdtbuild("trace", "--engine", engine, "-L", "mine", "--module", "main", "--", tmp_path / "main")
    lines = done.stdout.splitlines()
    assert [line for line in lines if line.isdigit()] == [wanted]
    shown = re.findall(r"mine arg1=(\w+) arg2=0x1 ", done.stdout)
    assert [int(value, 16) for value in shown] == list(range(20))


TWO_CALLERS = """
#include <stdlib.h>
static void put(const char *value) { setenv("CALLS", value, 1); }
"""


@pytest.mark.parametrize(
    ("options", "heading"),
    [
        (("--by", "overwrite"), "setenv overwrite ({}): 1 value in"),
        (("--histogram", "overwrite"), "setenv overwrite ({}): "),
    ],
)
def test_tables_of_one_function_say_whose_calls_they_are(
    options: tuple[str, ...], heading: str, run: Any, usdtbuild: Any, tmp_path: Path
) -> None:
    """The program and a library call the same function: each has a table, and a library that doesn't has none."""
    (tmp_path / "library.c").write_text(f'{TWO_CALLERS}void others(void) {{ put("1"); put("2"); }}\n')
    main = f'{TWO_CALLERS}void others(void);\nint main(void) {{ put("3"); others(); return 0; }}\n'
    (tmp_path / "main.c").write_text(main)
    run("gcc", "-shared", "-fPIC", "library.c", "-o", "libothers.so", cwd=tmp_path)
    run("gcc", "main.c", "./libothers.so", "-o", "main", cwd=tmp_path)
    said = usdtbuild("trace", "-L", "setenv", *options, "--", "./main", cwd=tmp_path).stdout
    headings = [line for line in said.splitlines() if line.startswith("setenv")]
    assert len(headings) == 2, said
    for line, name in zip(headings, ("main", "libothers.so")):
        assert line.startswith(heading.format(tmp_path / name)), said
    alone = usdtbuild("trace", "-L", "setenv", "--module", "main", *options, "--", "./main", cwd=tmp_path).stdout
    assert alone.startswith("setenv overwrite: 1 value"), alone
