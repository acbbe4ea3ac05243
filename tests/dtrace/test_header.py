"""The header alone: its macros are complete probes before any -G, after any sed, in any program."""

from __future__ import annotations

import json
import re
import shutil
import struct
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from .conftest import APP, COMPLETE_SITES, MAIN

COMPILERS = [
    "gcc -O0 -g", "gcc -O2 -std=c89 -pedantic -Wall -Wextra -Wshadow -Werror", "gcc -O3 -fPIE -pie", "gcc -Os -no-pie",
    "gcc -O2 -flto", "gcc -O1 -fno-inline -fsanitize=undefined", "gcc -O2 -masm=intel", "gcc -O2 -static",
    "clang -O0", "clang -O2 -std=c99 -pedantic -Wall -Wextra -Werror", "clang -O2 -flto -fuse-ld=lld",
    "clang -O2 -fno-integrated-as", "g++ -x c++ -O2 -std=c++98 -pedantic -Wall -Wextra -Werror",
    "g++ -x c++ -O2 -std=c++20 -Wall -Wextra -Werror", "clang++ -x c++ -O1 -std=c++17 -Wall -Wextra -Werror",
]  # fmt: skip


@pytest.mark.parametrize("line", COMPILERS)
def test_header_alone(line: str, app: Path, need: Any, made: Any) -> None:
    words = line.split()
    need(words[0])
    found = made(app, *words, "main.c")
    assert sorted(note.sizes for note in found) == sorted(COMPLETE_SITES)
    assert [bool(note.semaphore) for note in found] == [note.name == "req__done" for note in found]
    assert len({note.base for note in found}) == 1
    assert all(note.base and note.location for note in found)


def test_it_asks_for_no_executable_stack(app: Path, run: Any) -> None:
    run("gcc", "-O2", "main.c", "-o", "program", cwd=app)
    assert re.search(r"GNU_STACK .* RW +0x", run("readelf", "-lW", "program", cwd=app).stdout)


def test_verify_finds_nothing(app: Path, run: Any, usdtbuild: Any, linker: str) -> None:
    run("gcc", "-O2", f"-fuse-ld={linker}", "-Wl,-z,separate-loadable-segments,--build-id=sha1" if linker in (
        "lld", "mold") else "-Wl,--build-id=sha1", "main.c", "-o", "program", cwd=app)  # fmt: skip
    assert "nothing found" in usdtbuild("verify", "program", cwd=app).stdout


def test_no_header_of_systemtap_is_needed(app: Path) -> None:
    assert "#include" not in (app / "app.h").read_text()


THEIRS, OURS = "#include <sys/sdt.h>\n", '#include "app.h"\n'


@pytest.mark.parametrize("order", [THEIRS + OURS, OURS + THEIRS])
def test_beside_systemtaps_header(order: str, app: Path, run: Any, notes: Any) -> None:
    if not Path("/usr/include/x86_64-linux-gnu/sys/sdt.h").exists():
        pytest.skip("sys/sdt.h is not installed (systemtap-sdt-dev)")
    text = MAIN.replace(OURS, order).replace("return 0;", "STAP_PROBE1(theirs, probe, argc);\n\treturn 0;")
    (app / "main.c").write_text(text)
    run("gcc", "-O2", "-Wall", "-Werror", "main.c", "-o", "program", cwd=app)
    found = notes(app / "program")
    assert [note.name for note in found] == ["idle", "req__done", "req__start", "probe"]
    assert len({note.base for note in found}) == 1


# --- values -----------------------------------------------------------------------------------------------------

TYPES = ["int", "char *", "unsigned char", "short", "int64_t", "unsigned int", "long", "int8_t", "uint16_t", "char *",
         "uint64_t", "size_t"]  # fmt: skip
VALUES = ["-1", '"one"', "200", "-3", "-(int64_t)4 << 40", "4000000000u", "-6L", "-7", "65000", '"nine"',
          "(uint64_t)10 << 60", "11"]  # fmt: skip
SHOWN = ["-1", '"one"', "200", "-3", str(-4 << 40), "4000000000", "-6", "-7", "65000", '"nine"',
         str(10 << 60 & (1 << 64) - 1), "11"]  # fmt: skip


@pytest.mark.live("gdb")
@pytest.mark.parametrize("made", ["dtrace -h", "header"])
@pytest.mark.parametrize("line", ["gcc -O0", "gcc -O2 -fPIE -pie", "clang -O0", "clang -O2", "g++ -x c++ -O2"])
def test_no_to_twelve_arguments_arrive(
    line: str, made: str, tmp_path: Path, dtrace: Any, usdtbuild: Any, run: Any, need: Any, gdb: str
) -> None:
    words = line.split()
    need(words[0])
    probes = "".join(f"  probe p{n}({', '.join(TYPES[:n])});\n" for n in range(13))
    (tmp_path / "count.d").write_text(f"provider count {{\n{probes}}};\n")
    if made == "header":
        usdtbuild("header", "count.d", cwd=tmp_path)
    else:
        dtrace("-h", "-s", "count.d", cwd=tmp_path)
    calls = "".join(f"\tCOUNT_P{n}({', '.join(f'v{i}' for i in range(n))});\n" for n in range(13))
    locals_ = "".join(
        f"\t{'const ' if '*' in t else ''}{t} v{i} = argc ? {v} : 0;\n" for i, (t, v) in enumerate(zip(TYPES, VALUES))
    )
    (tmp_path / "main.c").write_text(
        f'#include <stddef.h>\n#include <stdint.h>\n#include "count.h"\nint main(int argc, char **argv)\n'
        f"{{\n{locals_}\t(void)argv;\n{calls}\treturn 0;\n}}\n"
    )
    run(*words, "-w", "main.c", "-o", "program", cwd=tmp_path)
    script = ["set breakpoint pending off", *(f"break -probe-stap count:p{n}" for n in range(13)), "run"]
    for n in range(13):
        script.append('printf "argc %d\\n", $_probe_argc')
        script += [
            f'printf "{"%s" if "*" in TYPES[i] else "%ld" if SHOWN[i][0] == "-" else "%lu"}\\n", '
            f"{'(char *)' if '*' in TYPES[i] else ''}$_probe_arg{i}"
            for i in range(n)
        ]
        script.append("continue")
    (tmp_path / "script").write_text("\n".join(script) + "\n")
    done = run(gdb, "-nx", "-batch", "-x", "script", "program", cwd=tmp_path)
    lines = done.stdout.splitlines()
    for n in range(13):
        start = lines.index(f"argc {n}")
        assert lines[start + 1 : start + 1 + n] == [shown.strip('"') for shown in SHOWN[:n]]


def test_values_are_computed_before_the_first_register_is_set(tmp_path: Path, dtrace: Any, run: Any, gdb: str) -> None:
    """Calls and divisions among the arguments use the same registers."""
    (tmp_path / "app.d").write_text("provider app { probe six(long, long, long, long, long, long, long); };\n")
    dtrace("-h", "-s", "app.d", cwd=tmp_path)
    (tmp_path / "main.c").write_text("""\
#include "app.h"
static long __attribute__((noinline)) twice(long value) { __asm__ volatile("" : "+r"(value)); return 2 * value; }
int main(int argc, char **argv)
{
	long value = argc + 99;
	(void)argv;
	APP_SIX(value / 7, twice(value), value % 7, value << argc, twice(twice(value)), value * value / (argc + 2), (long)
		((double)value / 8));
	return 0;
}
""")
    for words in (["gcc", "-O2"], ["gcc", "-O0"], ["clang", "-O2"]):
        run(*words, "-w", "main.c", "-o", "program", cwd=tmp_path)
        show = 'printf "%ld %ld %ld %ld %ld %ld %ld\\n", ' + ", ".join(f"$_probe_arg{i}" for i in range(7))
        done = run(gdb, "-nx", "-batch", "-ex", "break -probe-stap app:six", "-ex", "run", "-ex", show, "program",
                   cwd=tmp_path)  # fmt: skip
        assert done.stdout.splitlines()[-1] == "14 200 2 200 400 3333 12"


def test_calls_of_the_compilers_own_library_change_no_register_that_is_set(
    tmp_path: Path, dtrace: Any, run: Any, need: Any, need_c_library: Any, notes: Any
) -> None:
    """On aarch64 arithmetic of `long double` is a call, which may use every register that a probe's arguments have."""
    compiler, emulator, gdb = need("aarch64-linux-gnu-gcc"), need("qemu-aarch64"), need("gdb-multiarch")
    need_c_library(compiler, "-static")
    (tmp_path / "app.d").write_text("provider app { probe four(long, long, long, long); };\n")
    dtrace("-h", "-s", "app.d", cwd=tmp_path)
    (tmp_path / "main.c").write_text("""\
#include "app.h"
int main(int argc, char **argv)
{
	long value = argc + 99;
	long double large = value;
	(void)argv;
	APP_FOUR(value + 1, (long)(large / 8), value + 3, (long)(large * 3));
	return 0;
}
""")
    for level in ("-O0", "-O2"):
        run(compiler, level, "-w", "-static", "main.c", "-o", "program", cwd=tmp_path)
        (note,) = notes(tmp_path / "program")
        registers = re.fullmatch(r"-8@(x\d+) -8@(x\d+) -8@(x\d+) -8@(x\d+)", note.arguments)
        assert registers, note.arguments
        socket = Path(tempfile.mkdtemp(prefix="usdtbuild-", dir="/tmp")) / "qemu"  # pytest's folder may be too long
        with subprocess.Popen([emulator, "-g", socket, tmp_path / "program"]) as running:
            try:
                while not socket.exists():
                    assert running.poll() is None
                    time.sleep(0.01)
                words = ["-ex", f"target remote {socket}", "-ex", f"break *{note.location}", "-ex", "continue"]
                show = f'printf "%ld %ld %ld %ld\\n", {", ".join(f"${name}" for name in registers.groups())}'
                done = run(gdb, "-nx", "-batch", *words, "-ex", show, tmp_path / "program")
            finally:
                running.kill()
        shutil.rmtree(socket.parent)
        assert done.stdout.splitlines()[-1] == "101 12 103 300", level


@pytest.mark.live
@pytest.mark.parametrize(
    "line", ["", "header", "-G -s app.d -o app.o", "-C -G -s app.d -o app.o gone.o", "-G -s app.d -o app.o main.o"]
)
def test_bpftrace_sees_values_and_semaphores(
    line: str, app: Path, dtrace: Any, usdtbuild: Any, run: Any, trace: Callable[..., list[str]]
) -> None:
    """Without -G, with the header of `usdtbuild header`, and with a -G that sees no objects, as in GLib, or all."""
    if line == "header":
        usdtbuild("header", "app.d", cwd=app)
    run("gcc", "-O2", "-c", "main.c", cwd=app)
    if line.startswith("-"):
        dtrace(*line.split(), cwd=app)
    run("gcc", "main.o", *(["app.o"] if line.startswith("-") else []), "-o", "program", cwd=app)
    script = "\n".join(
        f'usdt:{app}/program:app:{name} {{ printf("{name} %d %d\\n", {first}, {third}); }}'
        for name, first, third in (("req__start", "arg0", "0"), ("req__done", "arg0", "arg2"), ("idle", "0", "0"))
    )
    assert sorted(trace(script, app / "program")) == ["idle 0 0", "req__done 1 1234", "req__start 42 0"]


# --- is-enabled -------------------------------------------------------------------------------------------------

FORMS = """\
#include "app.h"
static int pass(int x) { return x; }
static int give(void) { return APP_REQ_DONE_ENABLED(); }
int main(int argc, char **argv)
{
	int count = 0, i, a[2] = { 0, 10 };
	(void)argv;
	app_req__done_semaphore = (unsigned short)(argc > 1);
	if (APP_REQ_DONE_ENABLED()) count += 1;
	if (!APP_REQ_DONE_ENABLED()) count += 2;
	count += APP_REQ_DONE_ENABLED() ? 4 : 8;
	if (argc && APP_REQ_DONE_ENABLED()) count += 16;
	if (argc == 77 || APP_REQ_DONE_ENABLED()) count += 32;
	count += pass(APP_REQ_DONE_ENABLED()) * 64;
	count += give() * 128;
	count += (APP_REQ_DONE_ENABLED() != 0) * 256;
	for (i = 0; APP_REQ_DONE_ENABLED() && i < 3; i++) count += 512;
	do { count += 2048; } while (APP_REQ_DONE_ENABLED() && count < 9000);
	switch (APP_REQ_DONE_ENABLED()) { case 0: count += 100000; break; default: count += 200000; }
	count += a[APP_REQ_DONE_ENABLED()] * 100000;
	count += (APP_IDLE_ENABLED(), APP_REQ_DONE_ENABLED()) ? 2000000 : 0;
	while (APP_REQ_DONE_ENABLED()) { count += 4000000; break; }
	return (APP_REQ_DONE_ENABLED() ? count != %d : count != %d) || app_idle_semaphore;
}
"""
ON = 1 + 4 + 16 + 32 + 64 + 128 + 256 + 3 * 512 + 4 * 2048 + 200000 + 1000000 + 2000000 + 4000000
OFF = 2 + 8 + 2048 + 100000


@pytest.mark.parametrize("words", ["gcc -O2", "gcc -O0", "clang -O2", "g++ -x c++ -O2", "gcc -O3 -flto"])
@pytest.mark.parametrize("by_call", [False, True])
def test_is_enabled_in_every_form(
    words: str, by_call: bool, app: Path, dtrace: Any, run: Any, need: Any, made: Any
) -> None:
    line = words.split()
    need(line[0])
    text = FORMS % (ON, OFF)
    if by_call:
        line = [word for word in line if word != "-flto"]
        line.append("-DUSDT_PROBES_BY_CALL")
        declaration = 'extern volatile unsigned short {} __attribute__((visibility("hidden")));\n'
        extern = "".join(declaration.format(f"app_{name}_semaphore") for name in ("req__done", "idle"))
        wrapped = f'#ifdef __cplusplus\nextern "C" {{\n#endif\n{extern}#ifdef __cplusplus\n}}\n#endif\n'
        text = text.replace('#include "app.h"\n', f'#include "app.h"\n{wrapped}')
    (app / "main.c").write_text(text)
    run(*line, "-c", "main.c", "-o", "main.o", cwd=app)
    objects = ["main.o"]
    if by_call:
        dtrace("-G", "-s", "app.d", "main.o", "-o", "app.o", cwd=app)
        objects.append("app.o")
    driver = [word for word in line if word not in ("-x", "c++")]
    made(app, *driver, *objects)
    run("./program", "on", cwd=app)


def test_probes_that_nobody_calls_leave_nothing(app: Path, run: Any) -> None:
    """Headers are included where few of their probes are used."""
    (app / "main.c").write_text('#include "app.h"\nint main(void) { return 0; }\n')
    for words in (["gcc", "-O0"], ["clang", "-O0"], ["g++", "-x", "c++", "-O0"]):
        run(*words, "-c", "main.c", "-o", "main.o", cwd=app)
        assert not re.search(r"dtrace|stapsdt|semaphore", run("readelf", "-sSW", "main.o", cwd=app).stdout)


STRICT = ["-Wall", "-Wextra", "-Wshadow", "-Wconversion", "-pedantic", "-Werror"]


@pytest.mark.parametrize(
    "words", ["gcc -std=c89", "gcc -std=c17", "clang -std=c89", "g++ -std=c++98 -x c++", "clang++ -std=c++20 -x c++"]
)
def test_is_enabled_warns_of_nothing(words: str, app: Path, need: Any, made: Any) -> None:
    """Also as a statement, on the left of a comma, and in another probe's argument."""
    line = words.split()
    need(line[0])
    (app / "main.c").write_text("""\
#include "app.h"
int main(void)
{
	APP_IDLE_ENABLED();
	(void)APP_IDLE_ENABLED();
	if (APP_IDLE_ENABLED() == APP_REQ_DONE_ENABLED())
		APP_REQ_START(APP_IDLE_ENABLED(), (APP_IDLE_ENABLED(), "x"));
	return 0;
}
""")
    for level in ("-O0", "-O2"):
        made(app, *line, *STRICT, level, "main.c")


def test_only_is_enabled_sites(app: Path, run: Any, dtrace: Any, made: Any) -> None:
    (app / "main.c").write_text('#include "app.h"\nint main(void) { return APP_IDLE_ENABLED(); }\n')
    assert made(app, "gcc", "-O2", "main.c") == []
    run("gcc", "-O2", "-DUSDT_PROBES_BY_CALL", "-c", "main.c", cwd=app)
    dtrace("-G", "-s", "app.d", "main.o", "-o", "app.o", cwd=app)
    made(app, "gcc", "main.o", "app.o")


# --- sed --------------------------------------------------------------------------------------------------------

SEDS = {
    "cpython": ("python", ["sed", "-e", "s/PYTHON_/PyDTrace_/"], "PyDTrace"),
    "postgresql": ("postgresql", ["sed", "-e", "s/POSTGRESQL_/TRACE_POSTGRESQL_/g"], "TRACE_POSTGRESQL"),
    "mariadb": ("mysql", ["sed", "-e", r"/const/!s/char \*/const char */g"], "MYSQL"),
    "memcached": (
        "memcached",
        ["sed", "-e", r"s,void \*,const void \*,", "-e", r"s,char \*,const char \*,g"],
        "MEMCACHED",
    ),
    "php": ("php", ["sed", "-e", "s,PHP_,DTRACE_,g"], "DTRACE"),
    "berkeley db": (
        "bdb",
        ["sed", "-e", "/^#define[ \t]*BDB_[A-Z_]*(.*)/y/ABCDEFGHIJKLMNOPQRSTUVWXYZ/abcdefghijklmnopqrstuvwxyz/"],
        "bdb",
    ),
    "tabs": ("app", ["tr", "\\t", " "], "APP"),
    "all enabled": ("app", ["sed", "-e", "s/#define[ \t]*APP_/#define OUR_/"], "OUR"),
}


@pytest.mark.parametrize("name", list(SEDS))
@pytest.mark.parametrize("by_call", [False, True])
def test_header_survives_what_projects_do_to_it(
    name: str, by_call: bool, tmp_path: Path, dtrace: Any, run: Any, made: Any
) -> None:
    provider, command, prefix = SEDS[name]
    (tmp_path / "p.d").write_text(
        f"provider {provider} {{ probe function__entry(const char *, char *name, int line); "
        "probe raw(void *p, struct s *s); probe gone(); };\n"
    )
    dtrace("-h", "-C", "-s", "p.d", "-o", "p.h.tmp", cwd=tmp_path)
    changed = run(*command, cwd=tmp_path, input=(tmp_path / "p.h.tmp").read_text()).stdout
    assert (changed == (tmp_path / "p.h.tmp").read_text()) == (name in ("mariadb", "memcached"))
    (tmp_path / "p.h").write_text(changed)
    names = [f"{prefix}_{probe}" for probe in ("FUNCTION_ENTRY", "RAW", "GONE", "FUNCTION_ENTRY_ENABLED")]
    entry, raw, gone, enabled = (word.lower() if prefix == "bdb" else word for word in names)
    (tmp_path / "main.c").write_text(f"""\
#include "p.h"
int main(int argc, char **argv)
{{
	const char *constant = "x";
	const void *pointer = argv;
	if ({enabled}())
		{entry}(constant, argv[0], argc);
	{raw}(pointer, (const struct s *)pointer);
	{gone}();
	return 0;
}}
""")
    more = ["-DUSDT_PROBES_BY_CALL"] if by_call else []
    for words in (["g++", "-x", "c++", "-O2"], ["gcc", "-O2", "-std=c99", "-pedantic"]):
        run(*words, *more, "-Wall", "-Wextra", "-Werror", "-c", "main.c", "-o", "main.o", cwd=tmp_path)
    objects = ["main.o"]
    if by_call:
        dtrace("-G", "-s", "p.d", "main.o", "-o", "p.o", cwd=tmp_path)
        objects.append("p.o")
    assert [(note.provider, note.name) for note in made(tmp_path, "gcc", *objects)] == [
        (provider, "function__entry"), (provider, "gone"), (provider, "raw")
    ]  # fmt: skip


# --- programs ---------------------------------------------------------------------------------------------------


def test_installed_header_compiles_elsewhere(app: Path, run: Any, notes: Any, tmp_path: Path) -> None:
    include = tmp_path / "usr" / "include" / "pkg"
    include.mkdir(parents=True)
    (app / "app.h").rename(include / "app.h")
    run("gcc", "-O2", "-Wall", "-Wsystem-headers", "-Werror", "-isystem", include, "main.c", "-o", "program", cwd=app)
    assert len(notes(app / "program")) == 3


def test_static_and_inline_functions_and_templates(app: Path, linker: str, made: Any) -> None:
    """Code that several objects share has its sites once, and code that is dropped takes its notes along."""
    (app / "shared.h").write_text("""\
#include "app.h"
static void local(int x) { APP_REQ_START(x, "local"); }
template <typename T> void shared(T x) { if (APP_REQ_DONE_ENABLED()) APP_REQ_DONE(1, "shared", x); }
struct thing { void method(int x) { APP_REQ_DONE(x, "method", 2); } };
""")
    (app / "one.cc").write_text(
        '#include "shared.h"\nvoid two();\nint main() { local(1); shared(1L); thing().method(1); two(); }\n'
    )
    (app / "two.cc").write_text('#include "shared.h"\nvoid two() { local(2); shared(2L); thing().method(2); }\n')
    found = made(app, "g++", "-O0", f"-fuse-ld={linker}", "one.cc", "two.cc")
    assert [note.name for note in found] == ["req__done", "req__done", "req__start", "req__start"]
    assert len({note.semaphore for note in found[:2]}) == 1


@pytest.mark.parametrize("linker", ["bfd", "lld"])
def test_dropped_functions_leave_no_notes(app: Path, run: Any, need: Any, linker: str, made: Any) -> None:
    need(f"ld.{linker}")
    (app / "main.c").write_text(MAIN + 'void dead(void) { APP_REQ_START(1, "dead"); APP_IDLE(); }\n')
    words = ["gcc", "-O2", "-ffunction-sections", "-Wl,--gc-sections", f"-fuse-ld={linker}"]
    assert sorted(note.sizes for note in made(app, *words, "main.c")) == sorted(COMPLETE_SITES)
    assert "dead" not in run("nm", "program", cwd=app).stdout


DEAD = """\
{include}
void dead(int x) {{ {one}; {two}; }}
void live(int x) {{ {two}; }}
int main(int argc, char **argv) {{ (void)argv; live(argc); return 0; }}
"""


@pytest.mark.parametrize("compiler", ["gcc", "clang"])
def test_code_is_dropped_at_least_as_well_as_with_systemtaps_header(
    compiler: str, app: Path, run: Any, notes: Any, need: Any, linker: str, usdtbuild: Any
) -> None:
    """A link may fail, keep what is dead, or keep notes of what is gone: never more of it than with sys/sdt.h."""
    if not Path("/usr/include/x86_64-linux-gnu/sys/sdt.h").exists():
        pytest.skip("sys/sdt.h is not installed (systemtap-sdt-dev)")
    ours = ('#include "app.h"', 'APP_REQ_START(x, "a")', "APP_IDLE()")
    theirs = ("#include <sys/sdt.h>", 'STAP_PROBE2(app, req__start, x, "a")', "STAP_PROBE(app, idle)")
    words = [need(compiler), "-O2", "-fno-inline", "-ffunction-sections"]
    link = [f"-fuse-ld={linker}", "-Wl,--gc-sections"]
    outcomes = []
    for name, texts in (("ours", ours), ("theirs", theirs)):
        (app / f"{name}.c").write_text(DEAD.format(**dict(zip(("include", "one", "two"), texts))))
        run(*words, "-c", f"{name}.c", cwd=app)
        failed = run(compiler, *link, f"{name}.o", "-o", name, cwd=app, code=None).returncode != 0
        ghosts = 0 if failed else sum(note.location < 0x400 for note in notes(app / name))
        kept = not failed and " dead" in run("nm", name, cwd=app).stdout
        outcomes.append((failed, ghosts, kept))
    assert outcomes[0] <= outcomes[1]
    # What docs/dtrace.md advises for the linkers that are bad at it.
    usdtbuild("cc", "--", *words, "-DUSDT_PROBES_BY_CALL", "-c", "ours.c", cwd=app)
    run(compiler, *link, "ours.o", "-o", "ours", cwd=app)
    assert [note.what for note in notes(app / "ours")] == [("app", "idle", "")]
    assert not re.search(r" dead$", run("nm", "ours", cwd=app).stdout, re.MULTILINE)


def test_semaphores_have_pages_of_their_own_also_when_sections_are_dropped(
    app: Path, run: Any, linker: str, usdtbuild: Any
) -> None:
    """What begins the page is referred to by every semaphore, so that no linker drops it alone."""
    words = ["gcc", "-O2", "-fdata-sections", "-Wl,--gc-sections", f"-fuse-ld={linker}"]
    run(*words, "main.c", "-o", "program", cwd=app)
    sections = re.findall(r"^ *\[ *\d+\] (\S+) +\S+ +(\w+) \w+ (\w+) .* (\d+)$",
                          run("readelf", "-SW", "program", cwd=app).stdout, re.MULTILINE)  # fmt: skip
    ((_, address, size, alignment),) = [section for section in sections if section[0] == ".probes"]
    assert int(alignment) >= 4096
    assert int(address, 16) % 4096 == 0
    assert int(size, 16) >= 4
    (file,) = json.loads(usdtbuild("verify", "--json", app / "program", code=None).stdout)["files"]
    assert "semaphore-page" not in {finding["check"] for finding in file["findings"]}


@pytest.mark.parametrize("compiler", ["gcc", "clang"])
def test_no_semaphore_is_seen_outside_its_library(compiler: str, app: Path, run: Any, need: Any, linker: str) -> None:
    """Neither one that is tested nor one that only a note names, which nothing but the note makes hidden."""
    (app / "one.c").write_text('#include "app.h"\nint one(int x) { APP_REQ_START(x, "a"); APP_IDLE(); return x; }\n')
    (app / "two.c").write_text('#include "app.h"\nint two(int x) { return APP_REQ_DONE_ENABLED() + x; }\n')
    words = [need(compiler), "-O2", "-fPIC", "-shared", f"-fuse-ld={linker}"]
    run(*words, "one.c", "two.c", "-o", "lib.so", cwd=app)
    shown = run("nm", "-D", "lib.so", cwd=app).stdout
    assert " one" in shown
    assert "semaphore" not in shown
    assert "page" not in shown


def test_archive_and_shared_libraries(app: Path, run: Any, notes: Any) -> None:
    """The same probe in two libraries and in the program: each has its own sites and its own semaphore."""
    for name in ("one", "two"):
        (app / f"{name}.c").write_text(
            f'#include "app.h"\n'
            f'int {name}(void) {{ if (APP_REQ_DONE_ENABLED()) APP_REQ_DONE(1, "{name}", 1); return 0; }}\n'
        )
        run("gcc", "-O2", "-fPIC", "-shared", f"{name}.c", "-o", f"lib{name}.so", cwd=app)
        run("gcc", "-O2", "-c", f"{name}.c", "-o", f"{name}.o", cwd=app)
    run("ar", "rcs", "libboth.a", "one.o", "two.o", cwd=app)
    (app / "main.c").write_text(MAIN.replace("int main", "int one(void); int two(void);\nint main").replace(
        "return 0", "return one() + two()"))  # fmt: skip
    run("gcc", "-O2", "main.c", "-L.", "-lone", "-ltwo", "-Wl,-rpath,.", "-o", "program", cwd=app)
    run("gcc", "-O2", "main.c", "libboth.a", "-o", "static", cwd=app)
    for name, count in (("libone.so", 1), ("libtwo.so", 1), ("program", 3), ("static", 5)):
        found = notes(app / name)
        assert len(found) == count
        assert len({note.semaphore for note in found if note.name == "req__done"}) == 1
        assert "semaphore" not in run("readelf", "--dyn-syms", "-W", name, cwd=app).stdout
    run("./program", cwd=app)
    run("./static", cwd=app)


def test_several_headers_in_one_file(app: Path, dtrace: Any, usdtbuild: Any, run: Any, notes: Any) -> None:
    (app / "b.d").write_text("provider b { probe x(int, int, int, int, int, int, int); };\n"
                             "provider c { probe x(double, float, bool); };\n")  # fmt: skip
    dtrace("-h", "-s", "b.d", cwd=app)
    (app / "all.d").write_text(APP)
    usdtbuild("header", "--formats=dof", "all.d", cwd=app)  # not the classic one, of the same provider
    (app / "main.c").write_text(MAIN.replace('#include "app.h"', '#include "app.h"\n#include "all.h"\n#include "b.h"')
                                .replace("return 0", "B_X(1,2,3,4,5,6,7); C_X(1.5, 2.5f, argc); return 0"))  # fmt: skip
    run("gcc", "-O2", "-Wall", "-Werror", "main.c", "-o", "program", cwd=app)
    found = [note.what for note in notes(app / "program")]
    assert ("b", "x", "-4@$1 -4@$2 -4@$3 -4@$4 -4@$5 -4@$6 -4@$7") in found
    bits = struct.unpack("<q", struct.pack("<d", 1.5)) + struct.unpack("<i", struct.pack("<f", 2.5))
    (operands,) = (what[2] for what in found if what[0] == "c")
    assert re.fullmatch(rf"8@\${bits[0]} 4@\${bits[1]} 1@%r\w+", operands)
    assert len(found) == 5


@pytest.mark.parametrize("by_call", [False, True])
def test_under_the_launcher(
    by_call: bool, app: Path, usdtbuild: Any, run: Any, notes: Any, dtrace: Any, made: Any
) -> None:
    """Complete probes stay; calls are completed; a plain header in the same file works, too."""
    (app / "other.d").write_text("provider other { probe x(int); };\n")
    usdtbuild("header", "--formats=dof", "other.d", cwd=app)
    (app / "main.c").write_text(MAIN.replace('#include "app.h"', '#include "app.h"\n#include "other.h"').replace(
        "return 0;", "if (OTHER_X_ENABLED())\n\t\tOTHER_X(argc);\n\treturn 0;"))  # fmt: skip
    more = ["-DUSDT_PROBES_BY_CALL"] if by_call else []
    usdtbuild("cc", "--", "gcc", "-O2", *more, "-c", "main.c", cwd=app)
    found = made(app, "gcc", "main.o")
    assert ("other", "x", "-4@%edi") in [note.what for note in found]
    assert sorted(note.sizes for note in found) == sorted(
        [*([(p, n, "-4 8 8") if n == "req__done" else (p, n, a) for p, n, a in COMPLETE_SITES] if by_call
           else COMPLETE_SITES), ("other", "x", "-4")])  # fmt: skip
    assert len({note.semaphore for note in found if note.semaphore}) == 2
    assert "nothing found" in usdtbuild("verify", "program", cwd=app).stdout
    dtrace("-G", "-s", "app.d", "main.o", "-o", "app.o", cwd=app)  # and -G has nothing left to do
    run("gcc", "main.o", "app.o", "-o", "program", cwd=app)
    assert len(notes(app / "program")) == 4


def test_partial_link_and_strip(app: Path, run: Any, notes: Any) -> None:
    run("gcc", "-O2", "-ffunction-sections", "-c", "main.c", cwd=app)
    run("ld", "-r", "main.o", "-o", "whole.o", cwd=app)
    run("gcc", "whole.o", "-o", "program", cwd=app)
    run("strip", "-s", "program", cwd=app)
    assert sorted(note.sizes for note in notes(app / "program")) == sorted(COMPLETE_SITES)


def test_two_thousand_probes(tmp_path: Path, dtrace: Any, run: Any, made: Any) -> None:
    probes = "".join(f"  probe p{number}__x(int, char *);\n" for number in range(2000))
    (tmp_path / "big.d").write_text(f"provider big {{\n{probes}}};\n")
    dtrace("-h", "-s", "big.d", cwd=tmp_path)
    calls = "".join(f"\tBIG_P{number}_X(argc, argv[0]);\n" for number in range(2000))
    (tmp_path / "main.c").write_text(f'#include "big.h"\nint main(int argc, char **argv)\n{{\n{calls}\treturn 0;\n}}\n')
    run("gcc", "-O1", "-c", "main.c", cwd=tmp_path)
    dtrace("-G", "-s", "big.d", "main.o", "-o", "big.o", cwd=tmp_path)
    assert len({note.name for note in made(tmp_path, "gcc", "main.o", "big.o")}) == 2000


def test_disabled(app: Path, made: Any) -> None:
    (app / "main.c").write_text(MAIN.replace("APP_REQ_START(argc + 41", "APP_REQ_START(argc++").replace(
        "return 0", "return argc - 1"))  # fmt: skip
    for words in (["gcc"], ["g++", "-x", "c++"]):
        assert made(app, *words, "-O2", "-Wall", "-Wextra", "-Werror", "-DUSDT_DISABLED", "main.c") == []


def test_const_is_accepted_and_wrong_types_are_not(app: Path, run: Any) -> None:
    (app / "wrong.c").write_text('#include "app.h"\nvoid f(const char *s) { APP_REQ_START(s, 1); }\n')
    for words in (["gcc", "-Werror"], ["g++", "-x", "c++"]):
        done = run(*words, "-c", "wrong.c", "-o", "/dev/null", cwd=app, code=1)
        assert "APP_REQ_START" in done.stderr


def test_old_assembler(app: Path, run: Any, notes: Any) -> None:
    """Without sections that are linked to others, which assemblers before 2.35 don't know."""
    run("gcc", "-O2", "-DUSDT_LINKED_SECTIONS=0", "main.c", "-o", "program", cwd=app)
    assert sorted(note.sizes for note in notes(app / "program")) == sorted(COMPLETE_SITES)


# --- other machines ---------------------------------------------------------------------------------------------

SIZES = ("-4", "{}", "{}", "-8", "-4", "-4", "-{}", "-4")  # {}: of an address
# Machine -> an address' size, and the pattern of an operand, in which {} is the offset of a cell.
MACHINES = {
    "i686-linux-gnu": (4, r"{}\(%eax\)"),
    "x86_64-linux-gnux32": (4, r"(%r\w\w?|\$\d)"),
    "aarch64-linux-gnu": (8, r"(x\d+|\d)"),
    "arm-linux-gnueabihf": (4, r"\[r\d, #{}\]"),
    "riscv64-linux-gnu": (8, r"([ast]\d+|\d)"),
    "s390x-linux-gnu": (8, r"(%r\d+|\d)"),
    "powerpc64le-linux-gnu": (8, r"(\d+|i\d)"),
    "powerpc64-linux-gnu": (8, r"(\d+|i\d)"),
}
# No row of its own: calls, which -G completes.
SPARC = "-4@%o0 8@%o1 8@%o2 -8@%o3 1@%o4 -2@%o5 -8@[%sp+2223] -4@[%sp+2235]"


@pytest.mark.parametrize("machine", [*MACHINES, "sparc64-linux-gnu"])
def test_other_machines(
    machine: str, tmp_path: Path, dtrace: Any, run: Any, need: Any, need_c_library: Any, notes: Any
) -> None:
    compiler = need(f"{machine}-gcc-12")
    need_c_library(compiler)
    (tmp_path / "app.d").write_text(
        "provider app { probe all(int, char *, size_t, int64_t, uint8_t, short, long, int); probe none(); };\n"
    )
    dtrace("-h", "-s", "app.d", cwd=tmp_path)
    (tmp_path / "main.c").write_text("""\
#include "app.h"
int main(int argc, char **argv)
{
	if (APP_ALL_ENABLED())
		APP_ALL(argc, argv[0], sizeof argc, 1, 2, 3, 4, 5);
	APP_NONE();
	return 0;
}
""")
    for flags in (["-O0"], ["-O2", "-fPIC"]):
        run(compiler, *flags, "-Wall", "-Werror", "-c", "main.c", cwd=tmp_path)
        dtrace("-G", "-s", "app.d", "main.o", "-o", "app.o", cwd=tmp_path)
        run(compiler, "main.o", "app.o", "-o", "program", cwd=tmp_path)
        found = notes(tmp_path / "program")
        assert [note.what[:2] for note in found] == [("app", "all"), ("app", "none")]
        operands = re.escape(SPARC)
        if machine in MACHINES:
            word, operand = MACHINES[machine]
            operands = " ".join(f"{size.format(word)}@{operand.format(8 * i)}" for i, size in enumerate(SIZES))
        assert re.fullmatch(operands, found[0].arguments), found[0]
        assert found[0].semaphore
