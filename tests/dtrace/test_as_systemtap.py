"""The drop-in beside SystemTap's `dtrace`: what builds with that one builds here, and records show the same values."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest

# What SystemTap's program takes and DTrace's language doesn't have.
LENIENT = """\
#define handle long
struct astruct { int a; int b; };
provider tst1 {
  probe one(short arg1, struct astruct node);
  probe two(handle x, zoneid_t z, mach_port_t m, unsigned int w);
};
#pragma D attributes Evolving / Evolving / Common provider tst1 provider
"""
PROGRAM = """\
%s
struct astruct { int a; int b; };
int main(int argc, char **argv)
{
	struct astruct node;
	(void)argv;
	node.a = argc + 40;
	node.b = 42;
	TST1_ONE(argc, node);
	TST1_TWO(argv, argc, (unsigned char)argc, -100LL);
	return 0;
}
"""


def test_what_systemtap_takes_is_taken_with_a_warning(
    tmp_path: Path, dtrace: Any, run: Any, usdtbuild: Any, systemtap: str
) -> None:
    (tmp_path / "a.d").write_text(LENIENT)
    for mode in (["-h", "-o", "theirs.h"], ["-G", "-o", "theirs.o"]):
        run(systemtap, *mode, "-s", "a.d", cwd=tmp_path)
    expected = {
        1: "'#define' is for the C preprocessor", 4: "passed by value",
        5: "unknown type 'handle'", 7: "read as Evolving/Evolving/Common",
    }  # fmt: skip
    for mode in (["-h", "-o", "a.h"], ["-G", "-o", "a.o"]):
        said = dtrace(*mode, "-s", "a.d", cwd=tmp_path).stderr
        warnings = dict(re.findall(r"^a\.d:(\d+):\d+: warning: (.*)$", said, re.MULTILINE))
        assert list(map(int, warnings)) == list(expected)
        assert "unknown type 'handle'" in said
        assert all(text in said for text in expected.values())
    strict = usdtbuild("header", "--formats=dof", "a.d", "-o", "strict.h", cwd=tmp_path, code=1).stderr
    assert [int(line) for line in re.findall(r"^a\.d:(\d+):\d+: error", strict, re.MULTILINE)] == [1, 3, 4, 5, 5, 5, 7]
    assert not (tmp_path / "strict.h").exists()


@pytest.mark.parametrize("line", ["gcc -O2 -Wall -Wextra -Werror", "clang -O0", "g++ -O2 -x c++", "clang++ -O2 -x c++"])
def test_such_a_program_shows_its_values(line: str, tmp_path: Path, dtrace: Any, run: Any, need: Any, gdb: str) -> None:
    words = line.split()
    need(words[0])
    (tmp_path / "a.d").write_text(LENIENT)
    dtrace("-h", "-s", "a.d", cwd=tmp_path)
    (tmp_path / "main.c").write_text(PROGRAM % '#include "a.h"')
    run(*words, "-g", "main.c", "-o", "program", cwd=tmp_path)
    script = [
        "break -probe-stap tst1:one", "break -probe-stap tst1:two", "run",
        'printf "%d %d %d\\n", $_probe_arg0, ((int *)$_probe_arg1)[0], ((int *)$_probe_arg1)[1]', "continue",
        'printf "%d %d %ld\\n", $_probe_arg1, $_probe_arg2, $_probe_arg3',
    ]  # fmt: skip
    (tmp_path / "script").write_text("\n".join(script) + "\n")
    lines = run(gdb, "-nx", "-batch", "-x", "script", "program", cwd=tmp_path).stdout.splitlines()
    assert "1 41 42" in lines
    assert "1 1 -100" in lines


def test_by_call_such_a_file_is_taken_too(tmp_path: Path, dtrace: Any, run: Any, made: Any) -> None:
    (tmp_path / "a.d").write_text(LENIENT)
    dtrace("-h", "-s", "a.d", cwd=tmp_path)
    (tmp_path / "main.c").write_text(PROGRAM.replace("argv,", "(long)argv,") % '#include "a.h"')
    for flags in (["-DUSDT_PROBES_BY_CALL"], ["-DUSDT_DISABLED"]):
        run("gcc", "-O2", "-Wall", "-Wextra", "-Werror", *flags, "-c", "main.c", cwd=tmp_path)
        dtrace("-G", "-s", "a.d", "main.o", "-o", "a.o", cwd=tmp_path)
        found = [note.what for note in made(tmp_path, "gcc", "main.o", "a.o")]
        assert found == [("tst1", "one", "-2@%edi 8@%rsi"), ("tst1", "two", "-8@%rdi -8@%rsi -8@%rdx 4@%ecx")] * (
            "BY_CALL" in flags[0]
        )


def test_a_provider_that_ends_in_a_digit_is_an_error_where_dtrace_would_read_it(
    tmp_path: Path, dtrace: Any, run: Any, need: Any
) -> None:
    """DTrace puts the process number behind the name."""
    (tmp_path / "a.d").write_text("provider tst1 { probe one(int); };\n")
    dtrace("-h", "-s", "a.d", cwd=tmp_path)
    (tmp_path / "main.c").write_text('#include "a.h"\nvoid f(int x);\nvoid f(int x) { TST1_ONE(x); }\n')
    run(need("clang"), "--target=x86_64-unknown-freebsd", "-c", "main.c", cwd=tmp_path)
    done = dtrace("-G", "-s", "a.d", "main.o", "-o", "a.o", cwd=tmp_path, code=1)
    assert "provider name 'tst1' ends in a digit" in done.stderr
    assert not (tmp_path / "a.o").exists()


def test_flags_that_go_on_in_the_next_line(app: Path, dtrace: Any, run: Any, systemtap: str) -> None:
    """As make exports a variable with a backslash at the line's end."""
    environment = {**os.environ, "CFLAGS": '-DA=\\"5.5\\" \\\n -DB \n -DC'}
    for program in (systemtap, None):
        words = ["-G", "-s", "app.d", "-o", "app.o"]
        (run(program, *words, cwd=app, env=environment) if program else dtrace(*words, cwd=app, env=environment))
        assert (app / "app.o").stat().st_size
        (app / "app.o").unlink()
    (app / "c.d").write_text("#ifdef C\nprovider c { probe x(); };\n#endif\n")
    dtrace("-h", "-C", "-s", "c.d", cwd=app, env=environment)
    assert "C_X(" in (app / "c.h").read_text()


# --- widths and signs -------------------------------------------------------------------------------------------

DECLARED = ["int8_t", "uint8_t", "short", "unsigned short", "int", "unsigned int", "long", "unsigned long", "int64_t",
            "uint64_t", "size_t"]  # fmt: skip
PASSED = {
    "signed char": -100, "unsigned char": 200, "short": -30000, "unsigned short": 60000, "int": -100,
    "unsigned": 1 << 31, "long long": -(1 << 40), "unsigned long long": 1 << 63, "enum color": 2,
    "const volatile int": -7,
}  # fmt: skip


def _types_program(header: str, bit_fields: bool) -> str:
    calls = ""
    for d in range(len(DECLARED)):
        calls += "".join(f"\tTYPES_P{d}(v{index}, v{index});\n" for index in range(len(PASSED)))
        calls += f"\tTYPES_P{d}(bits.low, bits.high);\n" if bit_fields else ""
    values = "".join(
        f"\t{name} v{index} = ({name})(argc ? {value}{'u' if value > 0 else ''}LL : 0);\n"
        for index, (name, value) in enumerate(PASSED.items())
    )
    return f"""\
{header}
enum color {{ RED, GREEN, BLUE }};
static struct {{ signed low : 3; unsigned high : 9; }} bits = {{ -2, 300 }};
int main(int argc, char **argv)
{{
{values}	(void)argv;
	(void)bits;
{calls}	return 0;
}}
"""


@pytest.fixture(scope="module")
def types(tmp_path_factory: pytest.TempPathFactory, dtrace: Any, run: Any, systemtap: str) -> Path:
    """A provider of all types, as a header of each program; the arguments are in a register, and beyond them."""
    folder = tmp_path_factory.mktemp("types")
    eleven = ", ".join(["int"] * 5)
    probes = "".join(f"  probe p{d}({name} a, {name} b);\n" for d, name in enumerate(DECLARED))
    probes += f"  probe many({eleven}, short a, short b);\n"
    (folder / "types.d").write_text(f"provider types {{\n{probes}}};\n")
    dtrace("-h", "-s", "types.d", "-o", "ours.h", cwd=folder)
    run(systemtap, "-h", "-s", "types.d", "-o", "theirs.h", cwd=folder)
    run(systemtap, "-G", "-s", "types.d", "-o", "theirs.o", cwd=folder)
    return folder


@pytest.mark.parametrize("line", ["gcc -O0", "gcc -O2", "clang -O2", "g++ -O0 -x c++ -std=c++11", "clang++ -O2 -x c++"])
def test_records_have_the_wider_size_and_the_passed_sign(
    line: str, types: Path, run: Any, need: Any, notes: Any
) -> None:
    words = line.split()
    need(words[0])
    found = {}
    for name, more in (("ours", []), ("theirs", ["theirs.o"])):
        (types / f"{name}.c").write_text(_types_program(f'#include "{name}.h"', False))
        run(*words, "-w", "-c", f"{name}.c", "-o", f"{name}-main.o", cwd=types)
        run(words[0], f"{name}-main.o", *more, "-o", name, cwd=types)
        found[name] = sorted((note.location, note.name, note.arguments) for note in notes(types / name))
    assert len(found["ours"]) == len(found["theirs"]) == len(DECLARED) * len(PASSED)
    sizes = dict(zip((f"p{d}" for d in range(len(DECLARED))), (1, 1, 2, 2, 4, 4, 8, 8, 8, 8, 8)))
    for index, ((_, probe, ours), (_, same, theirs)) in enumerate(zip(found["ours"], found["theirs"])):
        assert probe == same
        if "c++" in line and list(PASSED)[index % len(PASSED)].startswith("enum"):
            continue  # sys/sdt.h has all enums of C++ unsigned, also those that may be -1
        for mine, other in zip(ours.split(), theirs.split()):
            passed = int(other.split("@")[0])
            assert mine.split("@")[0] == f"{'-' if passed < 0 else ''}{max(abs(passed), sizes[probe])}"


@pytest.mark.parametrize("line", ["gcc -O0", "gcc -O2", "clang -O2", "g++ -O0 -x c++ -std=c++11", "clang++ -O2 -x c++"])
def test_values_are_those_that_were_passed(line: str, types: Path, run: Any, need: Any, gdb: str) -> None:
    """Whatever the declared type: -100 as an `unsigned int` is -100. Bit-fields, too, of which sys/sdt.h knows none."""
    words = line.split()
    need(words[0])
    (types / "values.c").write_text(_types_program('#include "ours.h"', True))
    run(*words, "-w", "values.c", "-o", "values", cwd=types)
    rounds = len(DECLARED) * (len(PASSED) + 1)
    show = ["set breakpoint pending off", *(f"break -probe-stap types:p{d}" for d in range(len(DECLARED))), "run"]
    show += ['printf "%ld %ld\\n", $_probe_arg0, $_probe_arg1', "continue"] * rounds
    (types / "script").write_text("\n".join(show) + "\n")
    lines = run(gdb, "-nx", "-batch", "-x", "script", "values", cwd=types).stdout.splitlines()
    shown = [tuple(map(int, each.split())) for each in lines if re.fullmatch(r"-?\d+ -?\d+", each)]
    signed = [value - (1 << 64) if value >> 63 == 1 else value for value in PASSED.values()]
    values = [(value, value) for value in signed]
    assert len(shown) == rounds
    for d in range(len(DECLARED)):
        of_one = [tuple(v - (1 << 64) if v >> 63 == 1 else v for v in pair) for pair in shown[d * 11 : d * 11 + 11]]
        assert of_one == [*values, (-2, 300)]


# --- warnings ---------------------------------------------------------------------------------------------------

FREED = """\
#include <stdlib.h>
#include "app.h"
void freed(char *p, int fd);
void freed(char *p, int fd) { free(p); APP_REQ_START(fd, p); APP_REQ_DONE(fd, p, 3); }
void unset(void);
void unset(void) { char buffer[40]; APP_REQ_START(1, buffer); }
"""


@pytest.mark.parametrize("line", ["gcc -O2", "gcc -O0", "gcc -O3 -std=c89 -pedantic", "g++ -O2 -x c++", "clang -O2"])
def test_what_a_probe_points_to_is_not_used(line: str, app: Path, run: Any, need: Any) -> None:
    """A pointer may be shown after free, and a buffer before it is filled; sys/sdt.h brings no warning either."""
    words = line.split()
    need(words[0])
    (app / "freed.c").write_text(FREED)
    done = run(*words, "-Wall", "-Wextra", "-Werror", "-c", "freed.c", cwd=app)
    assert not done.stderr
