"""Headers under real compilers: every language version, every warning, every way in which a header is included."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from usdtbuild.provider import describe, header
from usdtbuild.provider.parser import parse

MakeHeader = Callable[..., Path]
Need = Callable[[str], str]

PROVIDER = """
typedef struct { int fd; } anonymous_t;
typedef struct conn conn_t;
typedef void (*handler_t)(int, char *);
provider app {
  probe none();
  probe plain(int a, char *b, const char *const c, unsigned d, conn_t *e, struct conn *f, void *g, handler_t h);
  probe req__done(string s, bool b, long long ll, double d, char **argv, int x[4], anonymous_t *t,
    void (*cb)(conn_t *, int));
  probe small(char a, signed char b, unsigned char c, short d, unsigned short e, int8_t f, uint8_t g, int16_t h,
    uint16_t i);
  probe wide(long a, unsigned long b, uint64_t c, int64_t d, size_t e, ssize_t f, uintptr_t g, off_t h, float i);
  probe targets(uint8_t *a, uint64_t *b, size_t *c, long long *d, double *e, bool *f, volatile int *g, enum color h);
  probe keywords(struct class *k, union either *u, struct namespace *n, int class);
};
provider other { probe error(int code); probe exit(); };
"""

# Everything a program may do with a macro. C and C++ in one text; `inline` functions are for C99 and C++.
PROGRAM = """
#ifdef __cplusplus
#include <cstddef>
#else
#include <stddef.h>
#endif
#include "app.h"
#include "app.h"
struct conn { int fd; };
union either { int i; float f; };
enum color { RED, GREEN };
int use(int argc, char **argv);
static void callback(struct conn *c, int n) { c->fd = n; }
static void handler(int n, char *text) { text[0] = n > 0 ? 'a' : 'b'; }
int use(int argc, char **argv)
{
	const char *text = "abc";
	char buffer[4] = "abc";
	struct conn thing;
	const struct conn *pointer = &thing;
	const unsigned char bytes[3] = {1, 2, 3};
	int numbers[4] = {1, 2, 3, 4};
	const double real = 1.5;
	const float single = 1.5f;
	const size_t size = 4;
	volatile int port = 1;
	const union either *either = NULL;
	int on;
	thing.fd = 1;
	APP_NONE();
	if (APP_PLAIN_ENABLED()) APP_PLAIN(argc, buffer, text, 3u, &thing, pointer, argv, handler);
	APP_PLAIN(1, NULL, NULL, 3u, NULL, NULL, NULL, 0);
	APP_REQ_DONE(text, argc > 1, argc, real, argv, numbers, bytes, callback);
	APP_REQ_DONE(buffer, argv, 1 + 1, 2.0, NULL, numbers + 1, text, NULL);
	APP_SMALL('a', 1, 2, 3, 4, 5, 6, 7, 8);
	APP_WIDE(1, 2ul, 3u, -4, size, -1, 0u, 9, single);
	APP_TARGETS(bytes, NULL, &size, NULL, &real, argv, &port, GREEN);
	APP_KEYWORDS(pointer, either, NULL, 1);
	for (on = 0; on < 3; on++) OTHER_EXIT();
	if (argc > 2) OTHER_ERROR(1); else OTHER_EXIT();
	argc > 1 ? APP_NONE() : OTHER_EXIT();
	if APP_NONE_ENABLED() { APP_NONE(); }
	while (APP_NONE_ENABLED() && argc--) OTHER_ERROR(argc);
	on = APP_NONE_ENABLED() || !OTHER_EXIT_ENABLED();
	return on + APP_SMALL_ENABLED() + (OTHER_ERROR_ENABLED() ? 1 : 2);
}
#ifndef WITHOUT_INLINE
inline int inlined(double x);
inline int inlined(double x) { APP_REQ_DONE("", 1, 2, x, NULL, NULL, NULL, 0); return APP_NONE_ENABLED(); }
#endif
#ifdef __cplusplus
template <class T> int twice(T x) { APP_REQ_DONE("", true, 2, x, NULL, NULL, NULL, 0); return APP_NONE_ENABLED(); }
int (*instance)(double) = twice<double>;
struct method { int field; int call() const { OTHER_ERROR(field); return 0; } };
int (method::*member)() const = &method::call;
#endif
"""

WARNINGS = """
    -Wall -Wextra -Werror -pedantic -Wconversion -Wsign-conversion -Wfloat-conversion -Wredundant-decls -Wundef
    -Wcast-qual -Wshadow -Wwrite-strings -Wunused -Wformat=2 -Wmissing-declarations
""".split()  # noqa: SIM905 - words are easier to read than quotes
C_WARNINGS = """
    -Wmissing-prototypes -Wstrict-prototypes -Wold-style-definition -Wbad-function-cast -Wnested-externs
""".split()  # noqa: SIM905 - words are easier to read than quotes
CPP_WARNINGS = ["-Wold-style-cast", "-Wnon-virtual-dtor", "-Woverloaded-virtual"]
# How a header may be meant: on, off by a switch, made without probes, on with calls instead of semaphores.
MODES = {"on": [], "off": ["-DUSDT_DISABLED"], "none": [], "calls": ["-DUSDT_ENABLED_BY_CALL"]}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for each mode with its header, and the program."""
    path = tmp_path_factory.mktemp("headers")
    providers = parse(PROVIDER, "app.d")
    for mode in MODES:
        (path / mode).mkdir()
        (path / mode / "app.h").write_text(header.write(providers, mode == "none"))
    (path / "program.c").write_text(PROGRAM)
    (path / "program.cc").write_text(PROGRAM)
    return path


def compile_in(folder: Path, mode: str, *command: str) -> Path:
    """Compile with the header of a mode; the test fails with the compiler's words."""
    output = folder / f"{mode}.o"
    words = [*command, "-I", str(folder / mode), *MODES[mode], "-c", "-o", str(output)]
    done = subprocess.run(words, capture_output=True, text=True, check=False, cwd=folder)
    if done.returncode:
        pytest.fail(f"{' '.join(words)}\n{done.stderr}", pytrace=False)
    return output


def undefined(path: Path) -> set[str]:
    """Return the names that an object refers to."""
    return set(subprocess.run(["nm", "-u", "-j", path], capture_output=True, text=True, check=True).stdout.split())


def described(path: Path) -> str:
    """Return the text of a file's description section, however many sections of that name it has."""
    command = ["readelf", "-W", "-S", str(path)]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split("\n")
    data = path.read_bytes()
    text = b""
    for line in lines:
        words = line.partition("]")[2].split()
        if words[:1] == [describe.SECTION]:
            start, size = int(words[3], 16), int(words[4], 16)
            text += data[start : start + size]
    return text.decode()


# --- languages and warnings -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("standard", ["c89", "gnu89", "c99", "c11", "c17"])
@pytest.mark.parametrize("optimisation", ["-O0", "-O2"])
def test_c(folder: Path, cc: str, standard: str, optimisation: str) -> None:
    without_inline = ["-DWITHOUT_INLINE"] if standard.endswith("89") else []
    for mode in MODES:
        output = compile_in(
            folder, mode, cc, f"-std={standard}", optimisation, *WARNINGS, *C_WARNINGS, *without_inline, "program.c"
        )
        assert not any(name.startswith("usdtbuild") for name in undefined(output))


@pytest.mark.parametrize("standard", ["c++98", "c++11", "c++17", "c++20"])
@pytest.mark.parametrize("optimisation", ["-O0", "-O2"])
def test_cpp(folder: Path, cxx: str, standard: str, optimisation: str) -> None:
    for mode in MODES:
        output = compile_in(folder, mode, cxx, f"-std={standard}", optimisation, *WARNINGS, *CPP_WARNINGS, "program.cc")
        assert not any(name.startswith(("usdtbuild", "_Z")) for name in undefined(output))


def test_an_instrumented_function_leaves_no_reference_behind(folder: Path, cc: str) -> None:
    """With -finstrument-functions and coverage an inline function would need a body somewhere."""
    for mode in MODES:
        for options in (["-finstrument-functions"], ["--coverage"], ["-fPIC", "-fsanitize=undefined"], ["-fno-inline"]):
            output = compile_in(folder, mode, cc, "-O1", *options, "program.c")
            assert not any(name.startswith("usdtbuild") for name in undefined(output))


def test_what_the_object_refers_to(folder: Path, cc: str) -> None:
    names = {mode: undefined(compile_in(folder, mode, cc, "-O2", "program.c")) for mode in MODES}
    assert "app_plain_semaphore" in names["on"]
    assert f"__dtrace_app___req__done{describe.DEFINED_BY}" in names["on"] & names["calls"]
    assert f"__dtraceenabled_app___plain{describe.DEFINED_BY}" in names["calls"] - names["on"]
    assert not any("app_" in name and "semaphore" in name for name in names["calls"])
    for mode in ("off", "none"):
        assert not any("dtrace" in name or "semaphore" in name for name in names[mode])
        assert not (folder / f"{mode}.o").read_bytes().count(b"__dtrace")


# What a program that nobody completed refers to -> how the probe is written there, what asks for that form, and what
# linkers say. On machines without branches the first is a call, too.
FORGOTTEN = {
    "branch": ("OTHER_ERROR(n);", [], "__dtrace_other___error"),
    "call": ("OTHER_ERROR(n);", ["-DUSDT_PROBES_BY_CALL"], "__dtrace_other___error"),
    "more arguments than registers": (
        "APP_SMALL('a', 1, 2, 3, 4, 5, 6, 7, n);", [], "__dtrace_app___small",
    ),
    "is-enabled call": (
        "if (APP_NONE_ENABLED()) return 1;", ["-DUSDT_ENABLED_BY_CALL"], "__dtraceenabled_app___none",
    ),
}  # fmt: skip


@pytest.mark.parametrize("shared", [False, True], ids=["program", "shared library"])
@pytest.mark.parametrize("form", FORGOTTEN)
def test_linker_of_an_object_that_was_not_completed_says_what_would_have(
    folder: Path, cc: str, linker: str, form: str, shared: bool
) -> None:
    """The undefined symbol names `usdtbuild cc` and what stands for it in CMake and Meson."""
    statement, options, stub = FORGOTTEN[form]
    text = f'#include "app.h"\nint main(int n, char **v) {{ (void)v; {statement} return n; }}\n'
    (folder / "forgotten.c").write_text(text)
    language = ["-x", "c++"] if shared else []  # both languages, each once
    words = [cc, "-I", "on", "-O1", "-fPIC", *options, *language, "forgotten.c"]
    macros = subprocess.run([*words, "-E", "-dM"], cwd=folder, capture_output=True, text=True, check=True).stdout
    branch = form == "branch" and "#define USDTBUILD_PASSED" in macros
    words += ["-o", "forgotten", f"-fuse-ld={linker}", *(["-shared"] if shared else [])]
    if not branch and linker == "mold":
        words.append("-Wl,-z,defs")  # mold 2 says nothing of what a compiler's call refers to in a shared library
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode
    said = done.stdout + done.stderr
    ending = describe.MADE_BY if branch else describe.DEFINED_BY
    # mold 2 says of a library's branch that it "can not be used", and in which section.
    assert re.search(rf"(undefined|relocation) .*\b{stub}{ending}\b", said), said
    assert "main" in said or "(.text" in said
    assert not (folder / "forgotten").exists()


@pytest.mark.parametrize("form", FORGOTTEN)
def test_the_same_object_completed_links_and_has_its_probe(folder: Path, cc: str, usdtbuild: Any, form: str) -> None:
    """Whatever the symbol was called, the probe is called what it is."""
    statement, options, _ = FORGOTTEN[form]
    (folder / "completed.c").write_text(
        f'#include "app.h"\nint main(void) {{ int n = 7; {statement} OTHER_EXIT(); return 0; }}\n'
    )
    usdtbuild("cc", "--", cc, "-I", "on", "-O1", *options, "completed.c", "-o", "completed", cwd=folder)
    fired = usdtbuild("trace", "--", "./completed", cwd=folder).stdout
    assert "other:exit" in fired
    assert ("other:error" in fired) == ("OTHER_ERROR" in statement)
    assert ("app:small" in fired) == ("APP_SMALL" in statement)
    usdtbuild("verify", "completed", cwd=folder)


@pytest.mark.parametrize(
    "options", [["-DUSDT_PROBES_BY_CALL", "-DUSDT_PLAIN_NAMES"], ["-U__linux__"]], ids=["asked for", "another system"]
)
def test_names_are_dtraces_for_who_completes_objects_by_them(folder: Path, cc: str, options: list[str]) -> None:
    """FreeBSD's and illumos' `dtrace -G` look for probes by the names of the functions that objects refer to."""
    text = "void f(int n);\nvoid f(int n) { OTHER_ERROR(n); APP_SMALL('a', 1, 2, 3, 4, 5, 6, 7, n); }\n"
    (folder / "plain.c").write_text(f'#include "app.h"\n{text}')
    subprocess.run([cc, "-I", "on", "-O1", *options, "-c", "plain.c"], cwd=folder, check=True)
    assert undefined(folder / "plain.o") == {"__dtrace_other___error", "__dtrace_app___small"}


def test_stubs_and_semaphores_are_hidden(folder: Path, cc: str) -> None:
    output = compile_in(folder, "on", cc, "-O2", "-fPIC", "program.c")
    table = subprocess.run(["readelf", "-W", "-s", output], capture_output=True, text=True, check=True).stdout
    lines = [line.split() for line in table.split("\n") if "dtrace" in line or "semaphore" in line]
    assert lines
    assert {words[5] for words in lines} == {"HIDDEN"}


def test_other_compilers_need_nothing_of_gnu(folder: Path, cc: str) -> None:
    """Without __GNUC__ the switched-off header must be ISO C, or what Microsoft's compiler takes."""
    hidden = ["-U__GNUC__", "-U__INT64_TYPE__", "-U__UINT64_TYPE__", "-U__SIZE_TYPE__", "-U__INTPTR_TYPE__"]
    microsoft = ["-D_MSC_VER=1930", "-D_WIN64", "-D__int64=long long", "-U__linux__", "-D_WIN32"]
    program = folder / "iso.c"
    text = PROGRAM.replace("#include <stddef.h>", "#define NULL ((void *)0)\ntypedef SIZE size_t;")
    program.write_text(text)
    hidden += ["-DWITHOUT_INLINE"]
    for mode in ("off", "none"):
        compile_in(folder, mode, cc, "-std=c99", "-pedantic-errors", *hidden, "-DSIZE=unsigned long", "iso.c")
        compile_in(
            folder, mode, cc, "-std=gnu11", "-Dtypeof=x", *hidden, *microsoft, "-DSIZE=unsigned __int64", "iso.c"
        )


def test_platforms_without_probes_say_so(folder: Path, need: Need) -> None:
    clang = need("clang")
    program = folder / "alien.c"
    program.write_text('#include "app.h"\nint f(int x) { OTHER_ERROR(x); return OTHER_ERROR_ENABLED(); }\n')
    for target in ("x86_64-pc-windows-msvc", "x86_64-apple-darwin", "x86_64-w64-mingw32"):
        for mode in ("off", "none"):
            compile_in(folder, mode, clang, f"--target={target}", "-Wall", "-Werror", "alien.c")
        command = [clang, f"--target={target}", "-fsyntax-only", "-I", str(folder / "on"), "alien.c"]
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder)
        assert done.returncode
        assert "no probes on this platform: compile with -DUSDT_DISABLED" in done.stderr


def test_freebsd_asks_by_a_call(folder: Path, need: Need) -> None:
    (folder / "bsd.c").write_text('#include "app.h"\nint f(void);\nint f(void) { return OTHER_ERROR_ENABLED(); }\n')
    output = compile_in(folder, "on", need("clang"), "--target=x86_64-unknown-freebsd", "-O1", "bsd.c")
    assert undefined(output) == {"__dtraceenabled_other___error"}


def test_assembler_sources_may_include_the_header(folder: Path, cc: str) -> None:
    (folder / "start.S").write_text('#include "app.h"\n\t.globl start\nstart:\tnop\n')
    output = compile_in(folder, "on", cc, "start.S")
    assert described(output) == ""


TARGETS = ("aarch64", "armv7", "i686", "mips", "mips64el", "powerpc", "powerpc64le", "riscv64", "s390x", "sparc64")


@pytest.mark.parametrize("target", TARGETS)
def test_other_machines_assemble_the_description(folder: Path, need: Need, target: str) -> None:
    (folder / "tiny.c").write_text(
        '#include "app.h"\nint f(int x, double d);\n'
        "int f(int x, double d)\n{ APP_NONE(); OTHER_ERROR(x); APP_REQ_DONE(0, 1, 2, d, 0, 0, 0, 0); "
        "return APP_NONE_ENABLED(); }\n"
    )
    name = {"armv7": "armv7-linux-gnueabihf"}.get(target, f"{target}-linux-gnu")
    if target == "sparc64":
        need("sparc64-linux-gnu-as")  # clang has no assembler of its own for SPARC up to version 16
    flags = ["-std=c89", *WARNINGS]
    output = compile_in(folder, "on", need("clang"), f"--target={name}", *flags, "-O1", "tiny.c")
    expected = {p.name: (p.bare(), describe.digest(p)) for p in parse(PROVIDER, "app.d")}
    # readelf shows the section where the file has it, in any byte order.
    assert describe.decode(described(output)) == expected


@pytest.mark.parametrize("prefix", ["aarch64-linux-gnu", "arm-linux-gnueabihf", "i686-linux-gnu", "s390x-linux-gnu"])
def test_cross_gcc_assembles_the_description(folder: Path, need: Need, prefix: str) -> None:
    (folder / "tiny2.c").write_text(
        '#include "app.h"\nint f(void);\nint f(void) { APP_NONE(); return APP_NONE_ENABLED(); }\n'
    )
    output = compile_in(folder, "on", need(f"{prefix}-gcc"), "-std=c89", *WARNINGS, "-O1", "tiny2.c")
    assert list(describe.decode(described(output))) == ["app", "other"]


# --- the description --------------------------------------------------------------------------------------------------


def test_an_object_describes_its_providers_once(folder: Path, cc: str) -> None:
    providers = parse(PROVIDER, "app.d")
    text = described(compile_in(folder, "on", cc, "-O2", "program.c"))
    marks = {f"{describe.BRANCH}\t{provider.name}\n" for provider in providers}
    assert "".join(line for line in text.splitlines(keepends=True) if line not in marks) == "".join(
        describe.encode(provider) for provider in providers
    )
    assert describe.marked(text, describe.BRANCH) == {provider.name for provider in providers}
    assert describe.decode(text) == {p.name: (p.bare(), describe.digest(p)) for p in providers}


def test_a_unity_build_describes_its_providers_once(folder: Path, cc: str) -> None:
    (folder / "unity.c").write_text(
        '#include "program.c"\n#define use use2\n#define callback callback2\n#include "app.h"\n'
    )
    text = described(compile_in(folder, "on", cc, "unity.c"))
    assert text.count("provider\t") == 2


def test_a_linked_program_describes_its_providers_once(folder: Path, cc: str, linker: str) -> None:
    """The description is COMDAT, so every linker keeps one of many equal ones."""
    main = '#include "app.h"\nint other(void);\nint main(void) { if (APP_NONE_ENABLED()) return 1; return other(); }\n'
    (folder / "main.c").write_text(main.replace("APP_NONE_ENABLED()", "0"))
    (folder / "other.c").write_text('#include "app.h"\nint other(void);\nint other(void) { return 0; }\n')
    for options in (["-O2"], ["-O2", "-ffunction-sections", "-Wl,--gc-sections"]):
        program = folder / "linked"
        command = [cc, *options, f"-fuse-ld={linker}", "-I", "on", "main.c", "other.c", "-o", str(program)]
        subprocess.run(command, check=True, capture_output=True, cwd=folder)
        text = described(program)
        assert text.count("provider\t1\tapp\t") == 1
        assert describe.conflicts(text) == {}
        assert list(describe.decode(text)) == ["app", "other"]


def test_link_time_optimisation_keeps_the_description(folder: Path, need: Need) -> None:
    (folder / "lto.c").write_text('#include "app.h"\nint main(void) { return 0; }\n')
    program = folder / "lto"
    command = [need("gcc"), "-O2", "-flto", "-I", "on", "lto.c", "-o", str(program)]
    subprocess.run(command, check=True, capture_output=True, cwd=folder)
    assert list(describe.decode(described(program))) == ["app", "other"]


@pytest.mark.parametrize("compiler", ["gcc", "clang"])
def test_a_precompiled_header_keeps_the_description(folder: Path, need: Need, compiler: str) -> None:
    path = need(compiler)
    (folder / "pch").mkdir(exist_ok=True)
    (folder / "pch" / "app.h").write_text((folder / "on" / "app.h").read_text())
    (folder / "pch.c").write_text("int f(void);\nint f(void) { APP_NONE(); return 0; }\n")
    if compiler == "gcc":
        subprocess.run([path, "-x", "c-header", "app.h"], check=True, cwd=folder / "pch")
        use = ["-Winvalid-pch", "-Werror", "-include", "pch/app.h"]
    else:
        subprocess.run([path, "-x", "c-header", "app.h", "-o", "app.pch"], check=True, cwd=folder / "pch")
        use = ["-include-pch", "pch/app.pch"]
    subprocess.run([path, *use, "-c", "pch.c", "-o", "pch.o"], check=True, cwd=folder)
    assert list(describe.decode(described(folder / "pch.o"))) == ["app", "other"]


# --- several headers --------------------------------------------------------------------------------------------------


def check(tmp_path: Path, source: str, *command: str, code: int = 0) -> str:
    (tmp_path / "main.c").write_text(source)
    words = [*command, *WARNINGS, "-c", "main.c", "-o", "main.o"]
    done = subprocess.run(words, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert (done.returncode != 0) == (code != 0), done.stderr
    return done.stderr


def test_two_headers_may_name_the_same_struct(make_header: MakeHeader, tmp_path: Path, cc: str) -> None:
    make_header("provider a { probe x(struct conn *c, double d, uint64_t n, void (*f)(void)); };", "a")
    make_header("provider b { probe x(struct conn *c, double d, uint64_t n, void (*f)(void)); };", "b")
    source = '#include "a.h"\n#include "b.h"\nvoid f(struct conn *c);\n'
    source += "void f(struct conn *c) { A_X(c, 1.0, 2u, 0); B_X(c, 1.0, 2u, 0); }\n"
    for options in ([], ["-DUSDT_DISABLED"], ["-x", "c++"], ["-std=c89"]):
        check(tmp_path, source, cc, *options)


def test_two_headers_may_hold_the_same_provider(make_header: MakeHeader, tmp_path: Path, cc: str) -> None:
    text = "provider a { probe x(int i); };"
    make_header(text, "a")
    make_header(text, "again")
    check(tmp_path, '#include "a.h"\n#include "again.h"\nvoid f(void);\nvoid f(void) { A_X(1); }\n', cc)
    assert described(tmp_path / "main.o").count("provider\t") == 1


def test_two_headers_that_contradict_each_other_do_not_compile(
    make_header: MakeHeader, tmp_path: Path, cc: str
) -> None:
    make_header("provider a { probe x(int i); };", "a")
    make_header("provider a { probe x(long i); };", "again")
    message = check(tmp_path, '#include "a.h"\n#include "again.h"\nextern int x;\n', cc, code=1)
    assert "two headers describe provider a differently; make both from the same provider file" in message


def test_real_files_compile(real_file: Path, tmp_path: Path, usdtbuild: Any, need: Need) -> None:
    """The macro names are as `dtrace -h` makes them, and calling all of them with 0 compiles."""
    options = ["-C"] if real_file.stem == "postgresql" else []
    usdtbuild("header", *options, real_file, "-o", tmp_path / "probes.h")
    text = (tmp_path / "probes.h").read_text()
    for_c = text.partition("#else /* __ASSEMBLER__ */")[0]
    macros = [line.split("\t")[1].removesuffix(" \\") for line in for_c.split("\n") if line.startswith("#define\t")]
    calls = [f"{macro.partition('(')[0]}({', '.join(['0'] * macro.count('arg'))});" for macro in macros if "(" in macro]
    body = "\n".join(dict.fromkeys(calls)).replace("ENABLED();", "ENABLED() ? (void)1 : (void)0;")
    assert len(calls) > 1
    source = f'#include "probes.h"\nvoid f(void);\nvoid f(void) {{\n{body}\n}}\n'
    for command in ([need("gcc"), "-std=c89"], [need("clang"), "-std=c11"], [need("g++"), "-x", "c++", "-std=c++98"]):
        for off in ([], ["-DUSDT_DISABLED"]):
            check(tmp_path, source, *command, *off, "-Wno-zero-as-null-pointer-constant")


@pytest.mark.parametrize(
    ("name", "script", "macro"),
    [
        ("cpython", "s/PYTHON_/PyDTrace_/", "PyDTrace_FUNCTION_ENTRY(0, 0, 1)"),
        (
            "cpython",
            "s/(char \\*/(const char */g; s/, char \\*/, const char */g; s/PYTHON_/PyDTrace_/g",
            "PyDTrace_LINE(0, 0, 1)",
        ),
        ("mysql", "s/MYSQL_/TRACE_MYSQL_/g", "TRACE_MYSQL_CONNECTION_DONE(1, 2)"),
    ],
)
def test_headers_that_a_project_edits_with_sed_still_compile(
    tmp_path: Path, usdtbuild: Any, cc: str, name: str, script: str, macro: str
) -> None:
    source = Path(__file__).parent / "files" / f"{name}.d"
    usdtbuild("header", "--formats=dof", source, "-o", tmp_path / "made.h")
    with (tmp_path / "probes.h").open("w") as edited:
        subprocess.run(["sed", "-e", script, tmp_path / "made.h"], stdout=edited, check=True)
    enabled = f"{macro.partition('(')[0]}_ENABLED()"
    program = f'#include "probes.h"\nvoid f(void);\nvoid f(void) {{ if ({enabled}) {macro}; }}\n'
    for off in ([], ["-DUSDT_DISABLED"], ["-x", "c++"]):
        check(tmp_path, program, cc, *off)


@pytest.mark.parametrize("none", [False, True])
def test_assembler_sources_are_told_that_they_cannot_fire(none: bool, usdtbuild: Any, run: Any, tmp_path: Path) -> None:
    (tmp_path / "app.d").write_text("provider app { probe go(int x); };\n")
    usdtbuild("header", "--formats=dof", "app.d", *(["--none"] if none else []), cwd=tmp_path)
    (tmp_path / "with.S").write_text('#include "app.h"\n\tAPP_GO(1)\n')
    (tmp_path / "without.S").write_text('#include "app.h"\n\tnop\n')
    run("gcc", "-c", "without.S", cwd=tmp_path)
    said = run("gcc", "-c", "with.S", cwd=tmp_path, code=0 if none else 1).stderr
    assert ("with.S:2: Error: probes fire from C and C++: call a C function that fires this one" in said) is not none
