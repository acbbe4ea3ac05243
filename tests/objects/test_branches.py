"""Probes whose branch the header writes itself: every one becomes a NOP, and the compiler loses nothing at it.

What the code computes is compared with the same code whose probes are calls (-DUSDT_PROBES_BY_CALL).
"""

from __future__ import annotations

import json
import platform
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from usdtbuild.provider import describe

from ..conftest import C_LIBRARIES

PROVIDER = """\
provider app {
  probe none(); probe one(int a); probe text(char *s, int n); probe reals(double d, float f);
  probe small(int8_t a, uint8_t b, short c, uint16_t d, bool e);
  probe six(long a, long b, int c, int d, char *e, long f);
  probe seven(int a, int b, int c, int d, int e, int f, int g);
};
"""
PROBES = set(re.findall(r"probe (\w+)\(", PROVIDER))
# Leaf functions keep data below the stack pointer, and the flags and registers of loops are alive at the sites.
SOURCE = r"""
#include "app.h"
#include <stdio.h>
#define NOINLINE __attribute__((__noinline__))
struct point { int x, y; };
NOINLINE static int leaf(int n)
{
	volatile int kept[16];
	int i, sum = 0;
	for (i = 0; i < 16; i++) kept[i] = n + i;
	APP_ONE(n);
	for (i = 0; i < 16; i++) sum += kept[i];
	return sum;
}
NOINLINE static long loop(const int *p, int n)
{
	long sum = 0;
	int i;
	for (i = 0; i < n; i++) { sum += p[i] * 3; APP_NONE(); APP_ONE(p[i]); APP_SIX(sum, i, i / 3, i % 5, "six", -sum); }
	return sum;
}
NOINLINE static double reals(double a, double b, float c)
{
	double s = a, t = b, u = c;
	int i;
	for (i = 0; i < 9; i++) { s += t * u; t += s; u -= 1; APP_REALS(s, (float)t); APP_REALS(i, c); }
	return s + t + u;
}
NOINLINE static int small(int n)
{
	signed char a = (signed char)n;
	if (n & 1) APP_SMALL(a, (unsigned char)n, (short)n, (unsigned short)n, n);
	else APP_SEVEN(1, 2, 3, 4, 5, 6, n);
	return n ? a * n : (APP_ONE(n), 7);
}
NOINLINE static void tail(int n) { APP_ONE(n); }
NOINLINE static int structure(int n)
{
	struct point p;
	p.x = n;
	p.y = n + 1;
	APP_TEXT((const char *)&p, (int)sizeof p);
	return n;
}
int main(void)
{
	static const int numbers[] = {5, -7, 11, 13, 1 << 20, -1};
	int i;
	for (i = 0; i < 4; i++) { tail(i); printf("%d %d %d\n", leaf(i), small(i * 77), structure(i)); }
	printf("%ld %.17g\n", loop(numbers, 6), reals(1.5, 2.25, 3));
	return 0;
}
"""
CALLS = "-DUSDT_PROBES_BY_CALL"
LINES = [
    "gcc -O0 -g", "gcc -O2 -std=c89 -pedantic -Wall -Wextra -Wshadow -Werror", "gcc -O3 -fPIC -fno-plt",
    "gcc -Os -std=gnu17", "gcc -O1 -std=c99 -pedantic -Wall -Wextra -Werror", "gcc -O2 -std=c2x -Wall -Wextra -Werror",
    "gcc -O2 -masm=intel", "gcc -O2 -fno-inline", "gcc -O2 -fno-pie -no-pie -mcmodel=large",
    "gcc -O2 -fsanitize=address,undefined", "gcc -O2 -fomit-frame-pointer -fcf-protection=full", "gcc -O1 -pg",
    "clang -O0", "clang -O2 -std=c2x -Wall -Wextra -Werror",
    "clang -O1 -std=c89 -fno-inline -pedantic -Wall -Werror", "clang -O3 -fno-integrated-as", "clang -Oz -masm=intel",
    "clang -O2 -mspeculative-load-hardening", "clang -O1 -fsanitize=undefined -fsanitize-trap=undefined",
    "clang -O2 -fstack-protector-all",
    "g++ -x c++ -O2 -std=c++98 -pedantic -Wall -Wextra -Werror", "g++ -x c++ -O0 -std=c++11 -fkeep-inline-functions",
    "g++ -x c++ -O3 -std=c++20 -Wall -Wextra -Werror", "clang++ -x c++ -O2 -std=c++17 -Wall -Wextra -Werror",
    "clang++ -x c++ -O0 -std=c++20",
]  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, header_of: Any) -> Path:
    folder = tmp_path_factory.mktemp("branches")
    header_of(folder, "app.d", PROVIDER, "--formats=dof")
    (folder / "main.c").write_text(SOURCE)
    return folder


def build(run: Any, usdtbuild: Any, folder: Path, line: str, *more: str) -> tuple[Path, str]:
    """Compile main.c by `usdtbuild cc`; return the object and what the program prints."""
    words = line.split()
    usdtbuild("cc", "--", *words, *more, "-c", "main.c", "-o", "main.o", cwd=folder)
    linked = [word for word in words if word not in ("-x", "c++") and not word.startswith(("-W", "-pedantic"))]
    run(*linked, "main.o", "-o", "program", cwd=folder)
    return folder / "main.o", run("./program", cwd=folder).stdout


def defined(run: Any, path: Path) -> set[str]:
    """Return the probes whose stub an object defines."""
    found = re.findall(r" [TVW] __dtrace_app___(\w+)$", run("nm", path).stdout, re.MULTILINE)
    return {describe.plain_name(name) for name in found}


def recorded(run: Any, program: Path) -> set[str]:
    """Return the probes of which a file has records."""
    return set(re.findall(r"^ +Name: (\w+)$", run("readelf", "-nW", program).stdout, re.MULTILINE))


@pytest.mark.parametrize("line", LINES)
def test_every_branch_becomes_a_nop_and_nothing_else_changes(
    line: str, folder: Path, run: Any, need: Any, usdtbuild: Any
) -> None:
    need(line.split(maxsplit=1)[0])
    usual, printed = build(run, usdtbuild, folder, line)
    # Calls stay calls where registers end (seven), as far as the compiler writes them so.
    assert defined(run, usual) <= ({"seven"} if "large" in line or "hardening" in line else set())
    assert not re.search(r" U __dtrace", run("nm", usual).stdout)
    assert recorded(run, folder / "program") == PROBES  # none was taken for code without effect
    assert build(run, usdtbuild, folder, line, CALLS)[1] == printed
    assert printed == "120 7 0\n136 5929 1\n152 -15708 2\n168 -5775 3\n3145791 54.75\n"


@pytest.mark.parametrize(
    "line", ["gcc -O0", "gcc -O2", "g++ -x c++ -O2", f"gcc -O2 -mabi=ms {CALLS}", "i686-linux-gnu-gcc -O2",
             "i686-linux-gnu-gcc -O2 -mregparm=3 -mrtd", "clang -m32 -O1 -mregparm=3 -mrtd"],
)  # fmt: skip
def test_values_arrive(
    line: str, folder: Path, run: Any, need: Any, need_c_library: Any, usdtbuild: Any, gdb: str
) -> None:
    """Typed by the provider file, converted as a call's arguments are; whatever calls are like otherwise."""
    words = line.split()
    need(words[0])
    if platform.machine() != "x86_64" and line not in ("gcc -O0", "gcc -O2", "g++ -x c++ -O2"):
        pytest.skip("programs for x86-64 and i386")
    linker = words[0].replace("g++", "gcc") + (" -m32" if "-m32" in words else "")
    if "-m32" in words or words[0].startswith("i686"):
        linker += " -static"  # a cross compiler's C library isn't where programs look for one
    need_c_library(*linker.split())
    (folder / "values.c").write_text("""\
#include "app.h"
static volatile int one = 1;
int main(void)
{
	int argc = one;
	long long wide = ((long long)argc << 40) + 7;
	APP_ONE(wide);
	APP_SMALL(wide + 250, wide + 250, wide - 8, wide - 8, wide);
	APP_SIX(wide * 3, argc * 3, wide, argc - 2, "six", -wide);
	APP_REALS(argc + 0.5, argc + 1);
	return 0;
}
""")
    long_values: list[int | str] = [((1 << 40) + 7) * 3, 3, 7, -1, "six", -(1 << 40) - 7]
    if "-m32" in words or words[0].startswith("i686"):  # a long has 32 bits
        long_values = [to_int(value) if isinstance(value, int) else value for value in long_values]
    shown: list[tuple[str, list[int | str]]] = [
        ("one", [7]), ("small", [1, 1, -1, 65535, 1]), ("six", long_values),
        ("reals", [0x3FF8000000000000, 0x40000000]),
    ]  # fmt: skip
    usdtbuild("cc", "--", *words, "-w", "-c", "values.c", "-o", "values.o", cwd=folder)
    run(*linker.split(), "values.o", "-o", "values", cwd=folder)
    assert run("./values", cwd=folder).stdout == ""
    script = ["set breakpoint pending off", *(f"break -probe-stap app:{name}" for name, _ in shown), "run"]
    for _, values in shown:
        for index, value in enumerate(values):
            how = '"= %s\\n", (char *)' if value == "six" else '"= %lld\\n", (long long)'
            script.append(f"printf {how}$_probe_arg{index}")
        script.append("continue")
    (folder / "script").write_text("\n".join(script) + "\n")
    lines = run(gdb, "-nx", "-batch", "-x", "script", "values", cwd=folder).stdout.splitlines()
    assert [line[2:] for line in lines if line.startswith("= ")] == [str(v) for _, values in shown for v in values]


def to_int(value: int) -> int:
    """A value as an int of 32 bits holds it."""
    return (value + (1 << 31)) % (1 << 32) - (1 << 31)


def test_a_loop_with_a_probe_is_the_loop_without_it(folder: Path, run: Any, need: Any, usdtbuild: Any) -> None:
    """No spill, no frame: the site is the only difference but for the moves into argument registers."""
    (folder / "sums.c").write_text("""\
#include "app.h"
double sums(const double *p, int n)
{
	double a = 0, b = 1, c = 2, d = 3, e = 4, f = 5, g = 6, h = 7;
	int i;
	for (i = 0; i < n; i++) {
		a += p[i]; b *= p[i]; c -= p[i]; d += b; e += c; f += d; g += e; h += f;
		SITE;
	}
	return a + b + c + d + e + f + g + h;
}
int leaf(int a, int b) { SITE; return a * b; }
""")
    for compiler in ("gcc", "clang"):
        need(compiler)
        texts = {}
        for name, site in (("none", '__asm__ volatile("")'), ("probe", "APP_NONE()")):
            usdtbuild("cc", "--", compiler, "-O2", f"-DSITE={site}", "-c", "sums.c", "-o", "sums.o", cwd=folder)
            listing = run("objdump", "-d", "--no-show-raw-insn", "sums.o", cwd=folder).stdout
            words = re.findall(r"^ +[0-9a-f]+:\t(\w+)", listing, re.MULTILINE)
            texts[name] = sorted(word for word in words if not word.startswith(("nop", "data16", "xchg", "cs")))
        assert texts["probe"] == texts["none"]


@pytest.mark.parametrize("mode", ["-no-pie", "-pie", "-static", "-pie -Wl,--gc-sections", "-shared"])
def test_links(mode: str, linker: str, folder: Path, run: Any, usdtbuild: Any, tmp_path: Path) -> None:
    """As many records as sites, in every kind of file, and nothing for verify to say but of layouts."""
    position = {"-no-pie": "-fno-pie", "-static": "-fno-pie", "-shared": "-fPIC"}.get(mode, "-fPIE")
    cc = ["cc", "--", "gcc", "-O2", position, "-ffunction-sections"]
    usdtbuild(*cc, "-c", folder / "main.c", "-o", "main.o", cwd=tmp_path)
    words = ["gcc", *mode.split(), f"-fuse-ld={linker}", "-Wl,--build-id=sha1"]
    run(*words, "main.o", "-o", "program", cwd=tmp_path)
    records = run("readelf", "-nW", "program", cwd=tmp_path).stdout.count("Provider: app")
    code = run("objdump", "-d", "main.o", cwd=tmp_path).stdout
    assert records == len(re.findall(r"\b90 +\tnop\n.*0f 1f 40 00", code))
    said = json.loads(usdtbuild("verify", "--json", "program", cwd=tmp_path, code=None).stdout)["files"][0]["findings"]
    whose = {each["check"]: {str(place["probe"]).split(":")[0] for place in each["places"]} for each in said}
    assert {check for check, names in whose.items() if not names or names - C_LIBRARIES} <= {"perf-offset", "no-probes"}
    if mode != "-shared":
        assert run("./program", cwd=tmp_path).stdout.startswith("120 7 0\n")


OWN_ASSEMBLY = r"""
#include HEADER
#include <stdio.h>
__attribute__((__noinline__)) static int jumps(int n)
{
	int i, sum = 0;
	for (i = 0; i < n; i++) {
		APP_ONE(i);
		__asm__ goto("test %0, %0\n\tjz %l1" : : "r"(i & 1) : "cc" : even);
		APP_TEXT("odd", i);
		sum += 2;
		continue;
	even:
		APP_NONE();
		sum += i;
	}
	return sum;
}
#if defined(NAKED)
int bare(int n);
__attribute__((__naked__, __noinline__)) int bare(int n) { APP_NONE(); __asm__("lea 1(%rdi), %eax\n\tret"); }
#else
static int bare(int n) { return n + 1; }
#endif
int main(void) { printf("%d %d\n", jumps(10), bare(4)); return 0; }
"""


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the program has instructions of x86-64")
@pytest.mark.parametrize("line", ["gcc -O0", "gcc -O2 -DNAKED", "g++ -O2 -x c++ -DNAKED", "clang -O2", "clang -O0"])
@pytest.mark.parametrize("header", ["app.h", "classic.h"])
def test_beside_assembly_of_the_program_s(
    header: str, line: str, folder: Path, run: Any, need: Any, usdtbuild: Any
) -> None:
    """Labels that assembly jumps to, and functions without a frame, where gcc took calls (clang takes no C there)."""
    words = line.split()
    need(words[0])
    run(sys.executable, "-m", "usdtbuild.dtrace", "-h", "-s", "app.d", "-o", "classic.h", cwd=folder)
    (folder / "own.c").write_text(OWN_ASSEMBLY)
    for more in ([], [CALLS]):
        words = [*line.split(), "-fno-unroll-loops", *more, f'-DHEADER="{header}"', "-Wall", "-Wextra", "-c", "own.c"]
        done = usdtbuild("cc", "--", *words, "-o", "own.o", cwd=folder)
        assert "NAKED" in line or done.stderr == ""
        run(words[0], "own.o", "-o", "own", cwd=folder)
        assert run("./own", cwd=folder).stdout == "30 5\n"
        found = run("readelf", "-nW", "own", cwd=folder).stdout
        assert found.count("Name: none\n") == 1 + ("NAKED" in line)
        assert {"one", "text"} <= set(re.findall(r"Name: (\w+)", found))


# --- C++ --------------------------------------------------------------------------------------------------------

CPP = r"""
#include "app.h"
#include <cstdio>
#include <vector>
static_assert(noexcept(APP_ONE(1)) && noexcept(APP_NONE()) && noexcept(APP_SEVEN(1, 2, 3, 4, 5, 6, 7)), "");
constexpr int twice(int n) { return n > 100 ? (APP_ONE(n), 2 * n) : 2 * n; }
static_assert(twice(4) == 8, "");
template <class T> struct Box {
	T value;
	Box(T v) : value(v) { APP_ONE(static_cast<int>(v)); }
	template <class U> auto with(U u) const { APP_REALS(value, u); return value + u; }
	~Box() noexcept { APP_NONE(); }
};
struct Thrown { int code; };
static int thrown(int n)
{
	try { Box<int> box(n); if (n & 1) throw Thrown{n}; APP_ONE(n); return n; }
	catch (const Thrown &t) { APP_ONE(t.code); return -t.code; }
}
#if defined(__cpp_impl_coroutine)
#include <coroutine>
struct Task {
	struct promise_type {
		int current = 0;
		Task get_return_object() { return {std::coroutine_handle<promise_type>::from_promise(*this)}; }
		std::suspend_always initial_suspend() noexcept { APP_NONE(); return {}; }
		std::suspend_always final_suspend() noexcept { return {}; }
		std::suspend_always yield_value(int v) { current = v; APP_ONE(v); return {}; }
		void return_void() {}
		void unhandled_exception() {}
	};
	std::coroutine_handle<promise_type> handle;
};
static Task numbers(int n) { for (int i = 0; i < n; i++) { APP_TEXT("coroutine", i); co_yield i * i; } }
static int sum(int n)
{
	Task task = numbers(n);
	int total = 0;
	for (task.handle.resume(); !task.handle.done(); task.handle.resume()) total += task.handle.promise().current;
	task.handle.destroy();
	return total;
}
#else
static int sum(int n) { return (n - 1) * n * (2 * n - 1) / 6; }
#endif
int main()
{
	auto lambda = [count = 0](auto x) mutable { count += x; APP_SIX(count, x, 3, 4, "lambda", count); return count; };
	std::vector<double> values{1, 2, 3};
	double total = 0;
	for (auto v : values) total += Box<double>(v).with(2.0f) + lambda(static_cast<int>(v));
	enum Color { red, green };
	enum class Level : short { low = 3 };
	APP_ONE(green);
	APP_SMALL(static_cast<short>(Level::low), 'c', 1, 2, nullptr == nullptr);
	std::printf("%g %d %d %d %d\n", total, thrown(3), thrown(4), twice(200), sum(5));
	return 0;
}
"""


@pytest.mark.parametrize(
    "line", ["g++ -std=c++14 -O0", "g++ -std=c++17 -O2", "g++ -std=c++20 -O2", "g++ -std=c++23 -O3 -fno-exceptions",
             "clang++ -std=c++17 -O2", "clang++-19 -std=c++20 -O2", "clang++-19 -std=c++20 -O0"],
)  # fmt: skip
def test_cpp(line: str, folder: Path, run: Any, need: Any, usdtbuild: Any) -> None:
    words = line.split()
    need(words[0])
    text = CPP
    if "-fno-exceptions" in words:
        start, end = text.index("\ttry {"), text.index("\n}\n#if defined(__cpp")
        text = text[:start] + "\tBox<int> box(n); APP_ONE(n); return n & 1 ? -n : n;" + text[end:]
    (folder / "main.cc").write_text(text)
    usdtbuild("cc", "--", *words, "-Wall", "-Wextra", "-Werror", "-c", "main.cc", "-o", "cpp.o", cwd=folder)
    run(words[0], "cpp.o", "-o", "cpp", cwd=folder)
    assert run("./cpp", cwd=folder).stdout == "22 -3 4 400 30\n"
    assert not defined(run, folder / "cpp.o")
    # Only the coroutine fires "text"; "seven" stands where nothing is evaluated.
    standard = int(re.findall(r"\+\+(\d+) ", line)[0])
    assert recorded(run, folder / "cpp") == PROBES - {"seven"} - (set() if standard >= 20 else {"text"})


@pytest.mark.parametrize("line", ["g++ -std=c++20 -fmodules-ts -O2", "clang++-19 -std=c++20 -O2"])
def test_modules(line: str, folder: Path, run: Any, need: Any, usdtbuild: Any) -> None:
    words = line.split()
    need(words[0])
    (folder / "m.cppm").write_text(
        'module;\n#include "app.h"\nexport module m;\n'
        "export inline int probed(int n) { APP_ONE(n); return n + 1; }\n"
        "export template <class T> T shown(T t) { APP_REALS(t, t); return t + t; }\n"
    )
    (folder / "user.cc").write_text("import m;\nint main() { return probed(1) + shown(2) - 6; }\n")
    cc = ["cc", "--provider=app.d", "--", *words]
    if "clang" in line:
        run(*words, "--precompile", "m.cppm", "-o", "m.pcm", cwd=folder)
        usdtbuild(*cc, "-c", "m.pcm", "-o", "m.o", cwd=folder)
        usdtbuild(*cc, "-fmodule-file=m=m.pcm", "-c", "user.cc", "-o", "user.o", cwd=folder)
    else:
        usdtbuild(*cc, "-x", "c++", "-c", "m.cppm", "-o", "m.o", cwd=folder)
        usdtbuild(*cc, "-c", "user.cc", "-o", "user.o", cwd=folder)
    run(words[0], "user.o", "m.o", "-o", "modules", cwd=folder)
    run("./modules", cwd=folder)
    assert b"branch\tapp\n" in (folder / "user.o").read_bytes()  # of an object that has no description
    found = run("readelf", "-nW", "modules", cwd=folder).stdout
    assert {"one", "reals"} <= set(re.findall(r"Name: (\w+)", found))


@pytest.mark.parametrize("compiler", ["gcc", "clang", "g++"])
def test_precompiled_header(compiler: str, folder: Path, run: Any, need: Any, usdtbuild: Any, tmp_path: Path) -> None:
    need(compiler)
    (tmp_path / "all.h").write_text((folder / "app.h").read_text())
    language = ["-x", "c++-header" if compiler == "g++" else "c-header"]
    run(compiler, "-O2", *language, "all.h", "-o", "all.h.pch" if compiler == "clang" else "all.h.gch", cwd=tmp_path)
    used = ["-include-pch", "all.h.pch"] if compiler == "clang" else ["-include", "all.h", "-Winvalid-pch", "-Werror"]
    (tmp_path / "main.c").write_text('int main(void) { APP_ONE(1); APP_TEXT("x", 2); return 0; }\n')
    usdtbuild("cc", "--", compiler, "-O2", *used, "-c", "main.c", "-o", "main.o", cwd=tmp_path)
    run("gcc", "main.o", "-o", "program", cwd=tmp_path)
    run("./program", cwd=tmp_path)
    assert run("readelf", "-nW", "program", cwd=tmp_path).stdout.count("Provider: app") == 2


@pytest.mark.parametrize("line", ["gcc -flto", "gcc -flto -ffat-lto-objects", "clang -flto", "clang -flto=thin"])
def test_intermediate_code_names_the_stub(line: str, folder: Path, run: Any, need: Any, usdtbuild: Any) -> None:
    """It holds the branch as text, compressed or packed: without the name such an object would have no probes."""
    words = line.split()
    need(words[0])
    _, printed = build(run, usdtbuild, folder, line + " -O2" + (" -fuse-ld=lld" if "clang" in line else ""))
    assert run("readelf", "-nW", folder / "program").stdout.count("Provider: app") > 8
    assert printed == build(run, usdtbuild, folder, words[0] + " -O2", CALLS)[1]


# --- where a call must be one -----------------------------------------------------------------------------------


def test_an_object_that_missed_its_step_does_not_link(folder: Path, run: Any) -> None:
    """The stub is hidden, so a library isn't linked either."""
    for compiler in ("gcc", "g++"):
        language = "c" if compiler == "gcc" else "c++"
        run(compiler, "-O2", "-fPIC", "-x", language, "-c", "main.c", "-o", "raw.o", cwd=folder)
        for way in (["-shared"], []):
            done = run(compiler, *way, "raw.o", "-o", "raw", cwd=folder, code=1)
            assert "__dtrace_app___" in done.stderr


def test_a_nop_of_five_bytes_wants_calls(folder: Path, run: Any, usdtbuild: Any, tmp_path: Path) -> None:
    """The kernel makes a call of it, which writes below the stack pointer."""
    run("gcc", "-O2", "-c", "main.c", "-o", tmp_path / "main.o", cwd=folder)
    before = (tmp_path / "main.o").read_bytes()
    done = usdtbuild("instrument", "--nop=nop5", "main.o", "-o", "out.o", cwd=tmp_path, code=1)
    assert "compile it with -DUSDT_PROBES_BY_CALL" in done.stderr
    assert (tmp_path / "main.o").read_bytes() == before
    assert not (tmp_path / "out.o").exists()
    usdtbuild("cc", "--nop=nop5", "--", "gcc", "-O2", "-c", folder / "main.c", "-o", "main.o", cwd=tmp_path)
    text = run("objdump", "-d", "main.o", cwd=tmp_path).stdout
    assert "0f 1f 44 00 00" in text
    run("gcc", "-O2", CALLS, "-c", "main.c", "-o", tmp_path / "calls.o", cwd=folder)
    usdtbuild("instrument", "--nop=nop5", "calls.o", "-o", "out.o", cwd=tmp_path)


def test_functions_of_an_object_can_not_stand_in_for_branches(
    folder: Path, run: Any, usdtbuild: Any, tmp_path: Path
) -> None:
    """`dtrace -G` defines what objects call; a branch that says nothing of a call must not come back from anywhere."""
    (tmp_path / "app.d").write_text(PROVIDER)
    run("gcc", "-O2", "-c", "main.c", "-o", tmp_path / "main.o", cwd=folder)
    usdtbuild("install-dtrace", tmp_path / "bin")
    program = [tmp_path / "bin/dtrace", "-G", "-s", "app.d", "main.o", "-o", "app.o"]
    done = run(*program, cwd=tmp_path, code=1)
    assert "main.o: its probes are branches" in done.stderr
    assert not (tmp_path / "app.o").exists()
    run(*program, "--in-place", cwd=tmp_path)
    run("gcc", "main.o", "app.o", "-o", "program", cwd=tmp_path)
    run("./program", cwd=tmp_path)
