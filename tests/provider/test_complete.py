"""The header that completes its probes, beside sys/sdt.h: the same notes, no more sites or code, in many builds.

Notes are read with pyelftools. What tracers make of them is seen in tests/dtrace/test_header.py, with gdb and bpftrace,
for this header too.
"""

from __future__ import annotations

import os
import platform
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, NamedTuple

import pytest
from elftools.elf.elffile import ELFFile
from elftools.elf.sections import NoteSection

from ..conftest import C_LIBRARIES

HERE = Path(__file__).parent
PROVIDER = """\
/* What the table of builds is about. */
provider app {
	/* Nothing is passed. */
	probe none();
	probe types(int a, unsigned char b, short c, unsigned long d, int64_t e, char *f);
	probe many(int a, int b, int c, int d, int e, int f, int g, int h, int i, int j, int k, int l);
	probe wide__name(uint64_t a, void *b, double c, bool d);
};
"""
# Macros of the same names, made with sys/sdt.h; it has the types of expressions, so these are cast.
THEIRS = """\
#include <sys/sdt.h>
#define APP_NONE() STAP_PROBE(app, none)
#define APP_TYPES(a, b, c, d, e, f) STAP_PROBE6(app, types, (int)(a), (unsigned char)(b), (short)(c), \\
	(unsigned long)(d), (long)(e), (const char *)(f))
#define APP_MANY(a, b, c, d, e, f, g, h, i, j, k, l) STAP_PROBE12(app, many, a, b, c, d, e, f, g, h, i, j, k, l)
#define APP_WIDE_NAME(a, b, c, d) STAP_PROBE4(app, wide__name, (unsigned long)(a), (const void *)(b), \\
	(unsigned long)(c), (unsigned char)(d))
"""
PROGRAM = """\
#include HEADER
#ifdef __cplusplus
template <class T> static T both(T x) { APP_TYPES(x, 2, 3, 4, 5, "template"); return x; }
#else
static int both(int x) { APP_TYPES(x, 2, 3, 4, 5, "function"); return x; }
#endif
static __inline__ int in_header(int x) { APP_NONE(); return x + 1; }
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
__attribute__((__naked__, __noinline__)) void naked(void);
void naked(void) { APP_NONE(); __asm__("ret"); }
#else
static void naked(void) { APP_NONE(); }
#endif
int main(int argc, char **argv)
{
	int i, n = 0;
	naked();
	APP_TYPES(argc, argc + 1, -argc, 1000000, (long)argc << 40, argv[0]);
	for (i = 0; i < argc + 2; i++) {
		APP_MANY(1, argc, 3, i, 5, n, 7, 8, 9, 10, 11, 12);
		n += both(i);
	}
	APP_WIDE_NAME(18446744073709551615ul, argv, 2, argc);
	return in_header(n) != 4;
}
"""
BUILDS = [
    "gcc -O0", "gcc -O0 -fPIC -pie", "gcc -O1 -std=c89", "gcc -O2", "gcc -O2 -fno-plt -fPIE -pie -fcf-protection",
    "gcc -O3 -funroll-loops", "gcc -Os -static", "gcc -O2 -flto", "gcc -O2 -flto -ffat-lto-objects", "gcc -Og -g3",
    "gcc -O2 -masm=intel", "gcc -O2 -mcmodel=large -fno-pie -no-pie", "gcc -O2 -fsanitize=address,undefined",
    "gcc -O2 -ffunction-sections -Wl,--gc-sections", "gcc -O2 -fomit-frame-pointer -fno-inline", "gcc -O2 -pg",
    "gcc -O2 -finstrument-functions", "gcc -O2 -fprofile-generate", "gcc -O2 -fstack-protector-all", "gcc -O2 -std=c2x",
    "gcc -O2 -mno-red-zone", "gcc -O2 -fpatchable-function-entry=5", "gcc -O2 -ffixed-r12 -ffixed-r13",
    "g++ -O0 -std=c++98", "g++ -O2 -std=c++11", "g++ -O2 -std=c++20 -flto", "g++ -O3 -std=c++23",
    "clang -O0", "clang -O1 -std=c89", "clang -O2", "clang -O3 -fPIE -pie", "clang -Os", "clang -Oz -std=c2x",
    "clang -O2 -flto -fuse-ld=lld", "clang -O2 -flto=thin -fuse-ld=lld", "clang -O2 -fno-integrated-as",
    "clang -O2 -masm=intel", "clang -O2 -fsanitize=undefined -fsanitize-trap=all",
    "clang -O2 -mcmodel=large -fno-pie -no-pie",
    "clang -O2 -flto -fuse-ld=lld -fsanitize=cfi -fvisibility=hidden -fno-sanitize-ignorelist",
    "clang -O2 -ffunction-sections -fuse-ld=lld -Wl,--gc-sections,--icf=all",
    "clang++ -O0 -std=c++98", "clang++ -O2 -std=c++14", "clang++ -O2 -std=c++20 -flto=thin -fuse-ld=lld",
    "clang-19 -O2", "clang-19 -O0 -fPIC", "clang++-19 -O2 -std=c++23", "clang-19 -O2 -masm=intel",
]  # fmt: skip
# What is tried with every compiler that has a number in its name and is installed: those that a distribution has beside
# its own (apt-get install gcc-13 g++-13 clang-16 ...).
NUMBERED = sorted(
    {path.name for folder in os.get_exec_path() for path in Path(folder).glob("*-[0-9]*")}
    & {f"{name}-{version}" for name in ("gcc", "g++", "clang", "clang++") for version in range(8, 40)}
)
OPTIONS = {
    False: ["-O0", "-O1 -std=c89", "-O2 -std=c11", "-O3 -fPIC", "-Os", "-O2 -masm=intel", "-O2 -std=c2x -g",
            "-O2 -ffunction-sections -Wl,--gc-sections",
            "-O2 -fsanitize=undefined -fsanitize-undefined-trap-on-error"],
    True: ["-O0 -std=c++98", "-O2 -std=c++11", "-O2 -std=c++17 -fPIC", "-O3 -std=c++20", "-Os -std=c++2b"],
}  # fmt: skip
# A constant, or a register of 64 bits: what nearly every tracer reads.
OPERAND = re.compile(r"(-?[1248])@(?:%r\w\w?|\$-?\d+)")


class Note(NamedTuple):
    """One SDT note: its names, its operands, and whether it has a semaphore."""

    provider: str
    name: str
    operands: tuple[str, ...]
    semaphore: int

    @property
    def sizes(self) -> tuple[str, str, tuple[str, ...]]:
        """The names, and what the note says of the arguments' sizes and signs."""
        return self.provider, self.name, tuple(operand.partition("@")[0] for operand in self.operands)


def notes_of(path: Path) -> list[Note]:
    """Return the notes of a file on a 64-bit machine, as pyelftools reads them."""
    found = []
    with path.open("rb") as file:
        elf = ELFFile(file)
        order: Literal["little", "big"] = "little" if elf.little_endian else "big"
        for section in elf.iter_sections():
            if isinstance(section, NoteSection) and section.name == ".note.stapsdt":
                for note in section.iter_notes():
                    desc = note["n_descdata"]
                    provider, name, operands = desc[24:].split(b"\0")[:3]
                    words = tuple(operands.decode().split())
                    if provider.decode() in C_LIBRARIES:
                        continue
                    found.append(Note(provider.decode(), name.decode(), words, int.from_bytes(desc[16:24], order)))
    return found


@pytest.fixture
def app(tmp_path: Path, usdtbuild: Any) -> Path:
    """A folder with the header, and the one of the same macros by sys/sdt.h."""
    (tmp_path / "app.d").write_text(PROVIDER)
    usdtbuild("header", "app.d", "-o", "app.h", cwd=tmp_path)
    (tmp_path / "theirs.h").write_text(THEIRS)
    return tmp_path


LIVE_USES = """
#include "app.h"
int f(int id, const char *name, long a, long b, long c)
{
    APP_FIVE(id, name, a, b, c);
    g(5);
    APP_FIVE(id, name, c, a, b);
    for (int i = 0; i < id; i++) { APP_FIVE(i, name, a + i, b, 7); a += g(i); }
    APP_SIX(id, name, a, b, c, id);
    return h(name) + (int)(a + b + c) + g(id);
}
"""


@pytest.mark.parametrize("level", ["-O0", "-O1", "-O2", "-O3", "-Os", "-Og"])
@pytest.mark.parametrize("compiler", ["gcc", "g++", "clang", "clang++"])
@pytest.mark.skipif(platform.machine() != "x86_64", reason="elsewhere the header has no NOPs with room")
def test_live_arguments_may_stay_in_use(
    compiler: str, level: str, tmp_path: Path, usdtbuild: Any, run: Any, need: Any
) -> None:
    """GCC called the constraints impossible where an argument is used again behind a call."""
    (tmp_path / "app.d").write_text(
        "provider app { probe five(int, char *, long, long, long); probe six(int, char *, long, long, long, int); };\n"
    )
    usdtbuild("header", "app.d", "-o", "app.h", cwd=tmp_path)
    start = 'extern "C" ' * compiler.endswith("++")
    (tmp_path / "uses.c").write_text(f"{start}int g(int); {start}int h(const char *);\n{LIVE_USES}")
    words = [need(compiler), "-x", "c++" if start else "c", level, "-DUSDT_LIVE"]
    run(*words, "-c", "uses.c", "-o", "uses.o", cwd=tmp_path)
    operands = [word for note in notes_of(tmp_path / "uses.o") if note.name == "five" for word in note.operands]
    places = {word.partition("@")[2] for word in operands}
    assert {place for place in places if not place.startswith("$")} == {"%rdi", "%rsi", "%rdx", "%rcx", "%rax"}


@pytest.mark.parametrize("build", BUILDS)
def test_notes_are_those_of_systemtaps_header(build: str, app: Path, run: Any, need: Any) -> None:
    """As many, of the same probes, with the same sizes and signs; and no operand that some tracer can't read."""
    need(build.split(maxsplit=1)[0])
    compare(build, app, run)


@pytest.mark.slow
@pytest.mark.parametrize("compiler", NUMBERED)
def test_every_compiler_that_is_installed(compiler: str, app: Path, run: Any) -> None:
    """The same notes, no warning, and what a site costs, for each version of GCC and Clang."""
    for options in OPTIONS["++" in compiler]:
        compare(f"{compiler} {options}", app, run)
        language = [word for word in options.split() if word.startswith("-std=")] + ["-x", "c++"] * ("++" in compiler)
        (app / "use.c").write_text(USED)
        run(compiler, *language, *_ALL.split(), "-c", "use.c", "-o", "use.o", cwd=app)
    shapes(app, lambda _, header: run(sys.executable, "-m", "usdtbuild", "header", "shapes.d", "-o", header, cwd=app))
    for level in ("-O1", "-O2", "-O3", "-Os") if "++" not in compiler else ():
        ours, theirs = (cost([compiler, level], header, app) for header in ("ours.h", "theirs.h"))
        assert ours.sites <= theirs.sites
        assert (ours.in_memory, ours.instructions) <= (0, theirs.instructions + theirs.in_memory)


def compare(build: str, app: Path, run: Any) -> None:
    """Compile the program with both headers, and compare the notes."""
    compiler, *options = build.split()
    (app / "main.c").write_text(PROGRAM)
    language = ["-x", "c++"] if "++" in compiler else []
    counted = {}
    for header in ("app.h", "theirs.h"):
        if header == "theirs.h":  # in Intel's dialect theirs has operands without a sign, and with blanks
            options = [option for option in options if option != "-masm=intel"]
        run(compiler, *language, *options, f'-DHEADER="{header}"', "-w", "main.c", "-o", header[:-2], cwd=app)
        run(f"./{header[:-2]}", cwd=app)
        counted[header] = notes_of(app / header[:-2])
    ours = counted["app.h"]
    assert {note.sizes for note in ours} == {note.sizes for note in counted["theirs.h"]}
    assert len(ours) <= len(counted["theirs.h"])
    for note in ours:
        assert len(note.operands) > 10 or all(OPERAND.fullmatch(operand) for operand in note.operands), note


# --- what a site costs ----------------------------------------------------------------------------------------------

SHAPES = [f"{cc} {level}" for cc in ("gcc", "clang", "clang-19") for level in ("-O1", "-O2", "-O3", "-Os")]


class Cost(NamedTuple):
    """What an object of the shapes has: sites, instructions, bytes of code, and operands in memory."""

    sites: int
    instructions: int
    size: int
    in_memory: int


def cost(words: list[str], header: str, folder: Path) -> Cost:
    """Compile the shapes with probes of this header."""
    target = folder / "shapes.o"
    subprocess.run([*words, f'-DSHAPES="{header}"', "-I", folder, "-c", HERE / "shapes.c", "-o", target], check=True)
    lines = subprocess.run(["objdump", "-d", "--no-show-raw-insn", target], capture_output=True, text=True, check=True)
    notes = notes_of(target)
    with target.open("rb") as file:
        size = sum(s["sh_size"] for s in ELFFile(file).iter_sections() if s["sh_flags"] & 4 and s.name[:5] == ".text")
    instructions = len(re.findall(r"^\s+[0-9a-f]+:\t", lines.stdout, re.MULTILINE))
    in_memory = sum("(" in operand for note in notes for operand in note.operands)
    return Cost(len(notes), instructions, size, in_memory)


def shapes(folder: Path, make: Callable[[str, str], None]) -> None:
    """Write both headers for the shapes; `make` makes a header of a provider file."""
    arguments = {0: "", 2: "int, char *", 6: ", ".join(["int"] * 6), 7: ", ".join(["int"] * 7)}
    probes = " ".join(f"probe p{count}({types});" for count, types in arguments.items())
    (folder / "shapes.d").write_text(f"provider shapes {{ {probes} }};\n")
    make("shapes.d", "made.h")
    names = {count: ", ".join("abcdefg"[:count]) for count in arguments}
    (folder / "ours.h").write_text(
        '#include "made.h"\n' + "".join(f"#define SHAPES_{n}({a}) SHAPES_P{n}({a})\n" for n, a in names.items())
    )
    (folder / "theirs.h").write_text(
        "#include <sys/sdt.h>\n"
        + "".join(
            f"#define SHAPES_{n}({a}) STAP_PROBE{n or ''}(shapes, p{n}{', ' if n else ''}{a})\n"
            for n, a in names.items()
        )
    )


@pytest.mark.parametrize("line", SHAPES)
def test_a_site_costs_what_one_of_systemtaps_header_does(line: str, tmp_path: Path, usdtbuild: Any, need: Any) -> None:
    """No site is copied more often; and an instruction more at most for each operand that theirs has in memory."""
    words = line.split()
    need(words[0])
    shapes(tmp_path, lambda source, header: usdtbuild("header", source, "-o", header, cwd=tmp_path))
    ours, theirs = (cost(words, header, tmp_path) for header in ("ours.h", "theirs.h"))
    assert ours.sites <= theirs.sites
    assert ours.instructions <= theirs.instructions + theirs.in_memory
    assert ours.in_memory == 0
    as_theirs = cost([*words, "-DUSDT_OPERANDS_IN_MEMORY"], "ours.h", tmp_path)
    if "clang" in line:  # which stores every operand of theirs
        assert (ours.instructions, ours.size) < (theirs.instructions, theirs.size)
        assert as_theirs == ours
    else:
        assert (as_theirs.instructions, as_theirs.size) <= (theirs.instructions, theirs.size)
        assert as_theirs.in_memory == theirs.in_memory


# --- what is in the user's code -----------------------------------------------------------------------------------

USED = """\
#include "app.h"
#include "app.h"
extern int use(int number, char *text);
int use(int number, char *text)
{
	APP_NONE();
	APP_TYPES(number, 2, 3, 4, 5, text);
	if (APP_TYPES_ENABLED())
		APP_TYPES(number + 1, 2, 3, 4, 5, "text");
	APP_MANY(1, 2, number, 4, 5, 6, 7, 8, 9, 10, 11, 12);
	APP_WIDE_NAME(1, text, 2.5, number > 1);
	number ? APP_NONE() : APP_MANY(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12);
	return number;
}
"""
_ALL = "-Werror -pedantic-errors -Wall -Wextra -Wshadow -Wconversion -Wsign-conversion -Wundef -Wcast-qual"
GCC = f"{_ALL} -Wredundant-decls -Wmissing-declarations -Wvariadic-macros -Wlong-long -Wunused-macros"
STRICT = [
    *(f"gcc -std={std} {GCC} -Wstrict-prototypes -Wc++-compat -Wbad-function-cast -Wdeclaration-after-statement"
      for std in ("c89", "gnu89", "c99", "c11", "c17", "c2x")),
    *(f"g++ -std={std} {GCC} -Wold-style-cast -Wuseless-cast -Wzero-as-null-pointer-constant"
      for std in ("c++98", "c++11", "c++14", "c++17", "c++20", "c++23")),
    *(f"{cc} -std={std} -Weverything {_ALL}" for cc in ("clang", "clang-19") for std in ("c89", "c99", "c17", "c2x")),
    *(f"{cc} -std={std} -Weverything {_ALL}" for cc in ("clang++", "clang++-19")
      for std in ("c++98", "c++11", "c++17", "c++20", "c++2b")),
]  # fmt: skip


@pytest.mark.parametrize("line", STRICT)
def test_nothing_warns_in_the_users_code(line: str, app: Path, run: Any, need: Any) -> None:
    words = line.split()
    need(words[0])
    source = app / ("use.cpp" if "++" in words[0] else "use.c")
    source.write_text(USED)
    for more in ([], ["-O2"], ["-DUSDT_DISABLE"]):
        run(*words, *more, "-c", source, "-o", "/dev/null", cwd=app)


CAPTURED = """\
#include "app.h"
static int calls;
static int call(void) { return ++calls; }
int main(void)
{
	int usdt_0 = 5, usdt_1 = 6, usdt_a0 = 7, usdt_b = 8, usdt_s0 = 9, usdt_cells = 10, arg0 = 11, x0 = 12,
		T0 = 13, v0 = 14, memory = 15, numbers = 16;
	const char *text = 0, *arg5 = 0;
	APP_TYPES(usdt_0, usdt_1, usdt_a0, usdt_b, usdt_s0, text);
	APP_MANY(usdt_0, usdt_1, usdt_a0, usdt_b, usdt_s0, usdt_cells, arg0, x0, T0, v0, memory, numbers);
	APP_TYPES(arg0, x0, T0, v0, memory, arg5);
	APP_TYPES(call(), 1, 1, 1, 1, text);
	if (APP_TYPES_ENABLED())
		APP_TYPES(call(), 1, 1, 1, 1, text);
	return calls != 1;
}
"""


@pytest.mark.live("gdb")
@pytest.mark.parametrize(
    "line", ["gcc -O0", "gcc -O2", "clang -O0", "clang -O2", "g++ -x c++ -O2", "gcc -O2 -masm=intel"]
)
def test_no_name_is_captured_and_arguments_are_evaluated_once(
    line: str, app: Path, run: Any, need: Any, gdb: str
) -> None:
    words = line.split()
    need(words[0])
    (app / "main.c").write_text(CAPTURED)
    run(*words, "-w", "main.c", "-o", "program", cwd=app)
    run("./program", cwd=app)
    script = ["set breakpoint pending off", "break -probe-stap app:types", "break -probe-stap app:many", "run"]
    for count in (5, 12, 5):
        shown = " ".join(["%d"] * count), ", ".join(f"(int)$_probe_arg{i}" for i in range(count))
        script += [f'printf "{shown[0]}\\n", {shown[1]}', "continue"]
    (app / "script").write_text("\n".join(script) + "\n")
    lines = run(gdb, "-nx", "-batch", "-x", "script", "program", cwd=app).stdout.splitlines()
    rows = [each for each in lines if re.fullmatch(r"[\d ]+", each)]
    assert rows == ["5 6 7 8 9", "5 6 7 8 9 10 11 12 13 14 15 16", "11 12 13 14 15"]


@pytest.mark.parametrize("options", ["", "-m32", "-DUSDT_DISABLE"])
@pytest.mark.parametrize("compiler", ["gcc", "clang", "g++ -x c++", "clang++ -x c++"])
def test_no_macro_of_the_users_gets_into_the_header(
    compiler: str, options: str, app: Path, run: Any, need: Any
) -> None:
    need(compiler.split(maxsplit=1)[0])
    words = "semaphore value cell v0 arg0 arg1 bits both x0 type of name on i T T0 text memory numbers provider probe"
    (app / "main.c").write_text(
        "".join(f"#define {word} 1\n" for word in words.split())
        + '#include "app.h"\nint main(int n, char **w) { APP_MANY(n, n, n, n, n, n, n, n, n, n, n, n);'
        " if (APP_TYPES_ENABLED()) APP_TYPES(n, 2, 3, 4, 5, *w); return 0; }\n"
    )
    run(*compiler.split(), *options.split(), "-Wall", "-Werror", "-c", "main.c", "-o", "main.o", cwd=app)


@pytest.mark.parametrize("more", [(), ("--none",), ("--formats", "dof")], ids=" ".join)
def test_headers_of_one_name_are_all_read(more: tuple[str, ...], app: Path, run: Any, usdtbuild: Any) -> None:
    """As in a unity build; and of one provider's two, one of which is stale, the compiler tells."""
    for name, text in (("one", "app { probe go(int a); }"), ("two", "lib { probe go(int a); }"),
                       ("old", "app { probe go(long a); }")):  # fmt: skip
        (app / name).mkdir()
        (app / f"{name}/probes.d").write_text(f"provider {text};\n")
        usdtbuild("header", "probes.d", *more, cwd=app / name)
    main = "int main(void) { APP_GO(1); LIB_GO(2); return 0; }\n"
    (app / "main.c").write_text(f'#include "one/probes.h"\n#include "two/probes.h"\n#include "one/probes.h"\n{main}')
    run("gcc", "-Wall", "-Werror", "-c", "main.c", cwd=app)
    (app / "main.c").write_text(f'#include "one/probes.h"\n#include "two/probes.h"\n#include "old/probes.h"\n{main}')
    told = run("gcc", "-c", "main.c", cwd=app, code=1).stderr
    assert "two headers describe provider app differently" in told


# --- linking ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("compiler", ["gcc", "clang"])
def test_functions_that_differ_in_their_probes_alone_are_not_folded(
    compiler: str, linker: str, app: Path, run: Any, need: Any
) -> None:
    """With --icf=all sys/sdt.h's records say that both probes are in one function; lld would drop one of ours."""
    (app / "main.c").write_text(
        '#include "app.h"\n#define NOINLINE __attribute__((noinline))\n'
        "int one(int), same(int), two(void *), main(void);\n"
        "NOINLINE int one(int n) { APP_NONE(); return n * 3; }\n"
        "NOINLINE int same(int n) { APP_NONE(); return n * 3; }\n"
        "NOINLINE int two(void *p) { APP_WIDE_NAME(0, 0, 0, 0); return (int)(long)p * 3; }\n"
        "int main(void) { return one(1) + same(1) + two((void *)1) - 9; }\n"
    )
    words = [need(compiler), "-O2", "-ffunction-sections", f"-fuse-ld={linker}", "-Wl,--gc-sections"]
    run(*words, *["-Wl,--icf=all"] * (linker != "bfd"), "main.c", "-o", "program", cwd=app)
    run("./program", cwd=app)
    assert {note.name for note in notes_of(app / "program")} == {"none", "wide__name"}
    symbols = run("nm", "--defined-only", "program", cwd=app).stdout.splitlines()
    places = {name: address for address, _, name in map(str.split, symbols)}
    assert places["one"] != places["two"]
    assert (places["one"] == places.get("same", places["one"])) == (linker != "bfd")  # mold forgets the name


def test_libraries_may_have_providers_of_one_name(app: Path, run: Any, usdtbuild: Any) -> None:
    """Each has its own semaphores and declarations, and so has the program."""
    parts = {"main": "int", "one": "int, char *", "two": "double, int, int"}
    values = {"main": "1", "one": '2, "two"', "two": "0.5, 3, 4"}
    for name, types in parts.items():
        (app / f"{name}.d").write_text(f"provider app {{ probe go({types}); }};\n")
        usdtbuild("header", f"{name}.d", cwd=app)
        body = f"if (APP_GO_ENABLED()) APP_GO({values[name]});"
        others = "one() + two()" if name == "main" else "0"
        text = f"int one(void), two(void), main(void);\nint {name}(void) {{ {body} return {others}; }}\n"
        (app / f"{name}.c").write_text(f'#include "{name}.h"\n{text}')
    for name in ("one", "two"):
        run("gcc", "-O2", "-shared", "-fPIC", f"{name}.c", "-o", f"lib{name}.so", cwd=app)
    run("gcc", "-O2", "main.c", "-L.", "-lone", "-ltwo", "-Wl,-rpath,.", "-o", "program", cwd=app)
    fired = usdtbuild("trace", "--", "./program", cwd=app).stdout
    found = re.findall(r"app:go (.*) \(.*/(.*)\)", fired)
    assert found == [
        ("arg0=1", "program"), ('arg0=2 arg1="two"', "libone.so"), ("arg0=0.5 arg1=3 arg2=4", "libtwo.so")
    ]  # fmt: skip
    # Linked into one file, they are two versions of one provider: verify says so.
    run("gcc", "-O2", "main.c", "one.c", "two.c", "-o", "mixed", cwd=app)
    assert "holds" in usdtbuild("verify", "mixed", cwd=app).stdout


# --- mistakes -----------------------------------------------------------------------------------------------------

_CONVERSION = "|(pointer to integer|integer to pointer|invalid) conversion|no matching function"
MISTAKES = {  # the code of main(), options, and what the compilers say
    "too few arguments": ("APP_TYPES(1, 2, 3);", "", "requires 6 arguments, but only 3 giv|too few arguments prov"),
    "too many arguments": ("APP_NONE(1);", "", "passed 1 arguments, but takes just 0|too many arguments provided"),
    "a struct for an integer": (
        "struct { int i; } s; s.i = 1; APP_TYPES(s, 2, 3, 4, 5, 0);", "",
        "incompatible types|invalid init|initializing 'int' with|cannot convert|no matching function",
    ),
    "a pointer for an integer": (
        'APP_TYPES("text", 2, 3, 4, 5, 0);', "-Werror", f"makes integer from pointer{_CONVERSION}",
    ),
    "an integer for a pointer": (
        "APP_TYPES(1, 2, 3, 4, 5, 6);", "-Werror", f"makes pointer from integer{_CONVERSION}",
    ),
    "an unknown machine": (";", "-U__x86_64__", "no probes on this machine: compile with -DUSDT_DISABLE"),
    "DOF is asked for": (";", "-DUSDT_ENABLED_BY_CALL", "make it with usdtbuild header --formats"),
    "a provider that isn't included": (
        "OTHER_GO(1);", "-Werror", "(declaration of function|identifier) .OTHER_GO|OTHER_GO. was not declared",
    ),
    "a stale header": (
        "APP_LATER(1);", "-Werror", "(declaration of function|identifier) .APP_LATER|APP_LATER. was not declared",
    ),
    "another version": (";", "-include newer.h", "two headers were written by different versions of usdtbuild"),
    "two providers of one name": (";", "-include two.h", "two headers describe provider app differently"),
}  # fmt: skip


@pytest.mark.parametrize("compiler", ["gcc", "clang", "g++", "clang++"])
@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes_are_errors_of_the_compiler(
    name: str, compiler: str, app: Path, run: Any, need: Any, usdtbuild: Any
) -> None:
    code, options, message = MISTAKES[name]
    need(compiler)
    (app / "newer.h").write_text(
        (app / "app.h").read_text().replace("COMPLETE 1", "COMPLETE 2").replace("HEADER_1_", "HEADER_2_")
    )
    (app / "two.d").write_text("provider app { probe none(int); };\n")
    usdtbuild("header", "two.d", cwd=app)
    (app / "main.c").write_text(f'#include "app.h"\nint main(void) {{ {code} return 0; }}\n')
    language = ["-x", "c++"] if "++" in compiler else []
    done = run(compiler, *language, *options.split(), "-c", "main.c", "-o", "main.o", cwd=app, code=1)
    assert re.search(message, done.stderr)


@pytest.mark.parametrize(
    "options",
    ["-DUSDT_DISABLE", "-DUSDT_DISABLED", "-U__linux__", "-U__ELF__", "-U__GNUC__ -std=c99", "-U__GNUC__ -std=c89"],
)
def test_without_probes_arguments_are_checked_and_not_evaluated(options: str, app: Path, run: Any) -> None:
    (app / "main.c").write_text(
        '#include "app.h"\nint main(void)\n{\n\tint calls = 0;\n\tAPP_TYPES(++calls, 2, 3, 4, 5, "text");\n'
        "\tif (APP_TYPES_ENABLED())\n\t\treturn 2;\n\treturn calls;\n}\n"
    )
    warnings = ["-Wall", "-Wextra", "-Wno-unused-function", "-Werror"]
    run("gcc", *options.split(), *warnings, "main.c", "-o", "program", cwd=app)
    run("./program", cwd=app)
    assert notes_of(app / "program") == []
    assert b".usdtbuild" not in (app / "program").read_bytes()
    (app / "wrong.c").write_text(
        '#include "app.h"\nint main(void) { struct { int i; } s; APP_TYPES(s, 2, 3, 4, 5, 0); }\n'
    )
    run("gcc", *options.split(), "-c", "wrong.c", "-o", "/dev/null", cwd=app, code=1)


# --- C++ ----------------------------------------------------------------------------------------------------------

CORNERS = """\
#include <coroutine>
#include "app.h"
struct task {
	struct promise_type {
		task get_return_object() { return {}; }
		std::suspend_never initial_suspend() { return {}; }
		std::suspend_never final_suspend() noexcept { return {}; }
		void return_void() { APP_NONE(); }
		void unhandled_exception() {}
	};
};
static task coroutine(int x) { APP_TYPES(x, 2, 3, 4, 5, "coroutine"); co_return; }
constexpr int constant(int x) { if (x < 0) APP_NONE(); return x + 1; }
static_assert(constant(1) == 2);
static auto lambda = [](auto x) { APP_TYPES(x, 2, 3, 4, 5, "lambda"); return x; };
template <class T> struct held {
	T value;
	held(T x) : value(x) { APP_WIDE_NAME(sizeof value, this, 1.5, true); }
	~held() { APP_NONE(); }
};
namespace inner { inline int function() { APP_NONE(); return 1; } }
enum class scoped { one = 1 };
struct converts { operator int() const { return 3; } };
int main(int argc, char **)
{
	coroutine(argc);
	held<int> kept(lambda(argc));
	APP_TYPES(converts(), 2, 3, 4, 5, "conversion");
	APP_TYPES(static_cast<int>(scoped::one), 2, 3, 4, 5, nullptr);
	try { APP_NONE(); throw 1; } catch (int) { APP_NONE(); }
	return constant(argc) + inner::function() - 3;
}
"""


@pytest.mark.parametrize(
    "line", ["g++ -O0 -std=c++20", "g++ -O2 -std=c++23", "clang++-19 -O0 -std=c++20", "clang++-19 -O2 -std=c++23"]
)
def test_corners_of_cpp(line: str, app: Path, run: Any, need: Any) -> None:
    words = line.split()
    need(words[0])
    (app / "main.cpp").write_text(CORNERS)
    run(*words, "-Wall", "-Wextra", "-Werror", "-Wno-unused-function", "main.cpp", "-o", "program", cwd=app)
    run("./program", cwd=app)
    assert Counter(note.name for note in notes_of(app / "program"))["types"] >= 4


UNITS = {
    "unit.cpp": """module;
#include "app.h"
export module unit;
export inline int inlined(int x) { APP_TYPES(x, 2, 3, 4, 5, "inline"); return x; }
export template <class T> T made(T x) { APP_TYPES(x, 2, 3, 4, 5, "template"); return x; }
export int kept(int x) { if (APP_NONE_ENABLED()) APP_NONE(); return x; }
""",
    "main.cpp": "import unit;\nint main(int argc, char **) { return inlined(argc) + made(argc) - kept(2); }\n",
}
MODULES = {
    "g++": ["g++ -std=c++20 -fmodules-ts -O2 unit.cpp main.cpp -o program"],
    "clang++-19": [
        "clang++-19 -std=c++20 -O2 --precompile -x c++-module unit.cpp -o unit.pcm",
        "clang++-19 -std=c++20 -O2 -fmodule-file=unit=unit.pcm unit.pcm main.cpp -o program",
    ],
}


@pytest.mark.parametrize("compiler", MODULES)
def test_modules(compiler: str, app: Path, run: Any, need: Any) -> None:
    """What a module exports keeps its probes in units that import it, which know nothing of the header."""
    need(compiler)
    for name, text in UNITS.items():
        (app / name).write_text(text)
    for command in MODULES[compiler]:
        run(*command.split(), cwd=app)
    run("./program", cwd=app)
    assert Counter(note.name for note in notes_of(app / "program")) == {"types": 2, "none": 1}


@pytest.mark.parametrize("compiler", ["g++", "clang++", "clang++-19"])
def test_header_units(compiler: str, app: Path, run: Any, need: Any) -> None:
    """A header unit exports macros too."""
    need(compiler)
    (app / "main.cpp").write_text('import "app.h";\nint main() { APP_NONE(); return 0; }\n')
    if compiler == "g++":
        run(compiler, "-std=c++20", "-fmodules-ts", "-x", "c++-header", "app.h", cwd=app)
        run(compiler, "-std=c++20", "-fmodules-ts", "main.cpp", "-o", "program", cwd=app)
    elif compiler == "clang++":
        pytest.skip("clang 14 has no -fmodule-header")
    else:
        run(compiler, "-std=c++20", "-fmodule-header", "-xc++-header", "app.h", "-o", "app.pcm", cwd=app)
        run(compiler, "-std=c++20", "-fmodule-file=app.pcm", "main.cpp", "-o", "program", cwd=app)
    run("./program", cwd=app)
    assert [note.name for note in notes_of(app / "program")] == ["none"]


@pytest.mark.parametrize("compiler", ["gcc", "clang", "g++", "clang++"])
def test_precompiled_headers_and_unity_builds(compiler: str, app: Path, run: Any, need: Any) -> None:
    need(compiler)
    suffix = "cpp" if "++" in compiler else "c"
    (app / "all.h").write_text('#include "app.h"\n')
    run(compiler, "-x", "c++-header" if "++" in compiler else "c-header", "all.h", "-o", "all.h.pch", cwd=app)
    (app / "all.h.pch").rename(app / ("all.h.gch" if compiler[0] == "g" else "all.h.pch"))
    for name in ("a", "b"):
        (app / f"{name}.{suffix}").write_text(f'#include "app.h"\nint {name}(void) {{ APP_NONE(); return 0; }}\n')
    (app / f"main.{suffix}").write_text(
        f'#include "a.{suffix}"\n#include "b.{suffix}"\nint main(void) {{ return a() + b(); }}\n'
    )
    run(compiler, "-include", "all.h", f"main.{suffix}", "-o", "program", cwd=app)
    run("./program", cwd=app)
    assert [note.name for note in notes_of(app / "program")] == ["none", "none"]


# --- the text -----------------------------------------------------------------------------------------------------


def test_the_first_screen_shows_the_probes(tmp_path: Path, usdtbuild: Any) -> None:
    """Whatever a comment says, it stays one."""
    (tmp_path / "app.d").write_text(
        "// All of it. */ #error out\nprovider app {\n\t/* A request is done. /* */\n"
        "\tprobe req__done(int fd, char *path);\n};\n"
    )
    usdtbuild("header", "app.d", "-o", "app.h", cwd=tmp_path)
    text = (tmp_path / "app.h").read_text()
    first = text.partition(" */\n")[0]
    assert first.count("*/") == 0
    assert first.count("/*") == 1
    for words in (
        "APP_REQ_DONE(int fd, char *path)\n       A request is done.", "APP_REQ_DONE_ENABLED()",
        "bpftrace -l", "USDT_DISABLE",
        """bpftrace -e 'usdt:PROGRAM:app:req__done { printf("req__done fd=%lld path=%s\\n", arg0, str(arg1)); }'""",
        "usdtbuild trace -- PROGRAM", "(usdtbuild ", "digest ",
    ):  # fmt: skip
        assert words in first
    assert len(text.splitlines()) <= 250


# --- other machines -----------------------------------------------------------------------------------------------

CELLS = r"{}\(%eax\)"
TARGETS = {  # what an argument's place is written as; {} is the offset of a cell
    "aarch64-linux-gnu": r"x\d+", "riscv64-linux-gnu": r"([ast]\d+|-?\d+)", "s390x-linux-gnu": r"(%r\d+|-?\d+)",
    "powerpc64le-linux-gnu": r"(\d+|i-?\d+)", "armv7-linux-gnueabihf": r"\[r\d+, #{}\]", "i686-linux-gnu": CELLS,
}  # fmt: skip


@pytest.mark.parametrize("compiler", ["clang", "clang-19", "clang++"])
@pytest.mark.parametrize("target", TARGETS)
def test_other_machines(target: str, compiler: str, app: Path, run: Any, need: Any) -> None:
    """Zero is a constant of its own on some: a register that no tracer knows."""
    need(compiler)
    language = ["-x", "c++"] if "++" in compiler else []
    (app / "use.c").write_text(USED.replace("APP_TYPES(number, 2,", "APP_TYPES(number, 0,"))
    for options in (["-O0", "-fPIC"], ["-O2"]):
        command = [f"--target={target}", *language, *options, "-c", "use.c", "-o", "use.o"]
        run(compiler, *command, "-Wall", "-Wextra", "-Werror", cwd=app)
        shown = re.findall("Arguments: ?(.*)", run("readelf", "-nW", "use.o", cwd=app).stdout)
        assert len(shown) == 7
        for line in filter(None, shown):
            operands = re.findall(r"-?[1248]@(?:\[[^]]*\]|\S+)", line)
            assert len(operands) in (4, 6, 12)
            for i, operand in enumerate(operands):
                places = TARGETS[target].format(8 * i), r"\d+\(%r\d+\)"  # s390x has cells from nine arguments on
                assert any(re.fullmatch(rf"-?[1248]@{place}", operand) for place in places), line
