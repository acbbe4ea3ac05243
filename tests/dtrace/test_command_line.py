"""Every command line that real builds were seen to use, and what the tool says where one is wrong."""

from __future__ import annotations

import os
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest

from usdtbuild.dtrace import read
from usdtbuild.errors import UsageError

BARE = "BEGIN{}"


def links(run: Any, folder: Path, *objects: str) -> None:
    """The program of the folder links with these objects, and runs."""
    run("gcc", "-O2", "main.c", *objects, "-o", "program", cwd=folder)
    run("./program", cwd=folder)


# The lines as they were logged in builds; OBJ is main.o, and the program links with what -o names if that is an object.
HEADERS = [
    "-C -h -s app.d -o out.h",
    "-h -xnolibs -s app.d -o out.h",
    "-x nolibs -h -s app.d -o out.h",
    "-h -sapp.d -oout.h",
    "-Chs app.d -o out.h",
    "-o out.h -s app.d -h",
    "-s app.d -o out.h -C -h",
    "-k -Z -h -I . -I.. -D A -DB=1 -U C -UD -s app.d -o out.h",
    "-32 -h -s app.d -o out.h",
    "-m64 --no-pyparsing --types -h -s app.d -o out.h",
    "-xnolibs -Zkh -o out.h -s app.d",
]
OBJECTS = [
    "-C -G -s app.d main.o -o out.o",
    "-x nolibs -G -s app.d -o out.o",
    "-G -s app.d -o out.o",
    "-G -s app.d -o out.o main.o",
    "main.o -G -s app.d -o out.o",
    "-G main.o -o out.o -s app.d",
    "-s app.d -o out.o main.o -G",
    "-64 -G -s app.d -o out.o main.o",
    "-m64 -G -s app.d -o out.o",
    "-G -s app.d -fPIC -DPIC -o out.o",
    "-G -fpic -DPIC -g -O2 -s app.d -o out.o main.o",
    "-G -s app.d -o out.o not-there-yet.o",
    "-Gs app.d -oout.o -- main.o",
    "-xlazyload=1 -kZG -s app.d -o out.o main.o",
]


@pytest.mark.parametrize("line", HEADERS)
def test_header_command_lines(line: str, app: Path, dtrace: Any, run: Any) -> None:
    dtrace(*line.split(), cwd=app)
    (app / "out.h").rename(app / "app.h")
    links(run, app)


@pytest.mark.parametrize("line", OBJECTS)
def test_object_command_lines(line: str, app: Path, dtrace: Any, run: Any, notes: Any) -> None:
    run("gcc", "-O2", "-c", "main.c", cwd=app)
    done = dtrace(*line.split(), cwd=app)
    assert done.stdout == done.stderr == ""
    run("gcc", "main.o", "out.o", "-o", "program", cwd=app)
    run("./program", cwd=app)
    assert len(notes(app / "program")) == 3


def test_default_output_is_in_the_working_directory(app: Path, dtrace: Any) -> None:
    work = app / "build"
    work.mkdir()
    dtrace("-h", "-s", "../app.d", cwd=work)
    dtrace("-G", "-s", app / "app.d", cwd=work)
    assert sorted(path.name for path in work.iterdir()) == ["app.h", "app.o"]
    assert sorted(path.name for path in app.iterdir()) == ["app.d", "app.h", "build", "main.c"]


def test_libtool_lines(app: Path, dtrace: Any, run: Any) -> None:
    (app / ".libs").mkdir()
    dtrace("-G", "-s", app / "app.d", "-fPIC", "-DPIC", "-o", ".libs/probes.o", cwd=app)
    dtrace("-G", "-s", app / "app.d", "-o", "probes.o", cwd=app)
    run("gcc", "-fPIC", "-shared", "main.c", ".libs/probes.o", "-o", "lib.so", cwd=app)
    links(run, app, "probes.o")


@pytest.mark.parametrize("mode", ["-h", "-G"])
def test_file_without_a_provider(mode: str, tmp_path: Path, dtrace: Any, run: Any) -> None:
    (tmp_path / "conftest.d").write_text(BARE)
    done = dtrace(mode, "-s", "conftest.d", "-o", "conftest.out", cwd=tmp_path)
    assert done.stderr.startswith("conftest.d:1:1: warning: no provider is in this file")
    if mode == "-G":
        (tmp_path / "main.c").write_text("int main(void) { return 0; }\n")
        (tmp_path / "conftest.out").rename(tmp_path / "conftest.o")
        links(run, tmp_path, "conftest.o")


@pytest.mark.parametrize("compiler", ["gcc", "gcc -m64 -O2", "'gcc' -DSPACE='a b'", "clang -target x86_64-linux-gnu"])
def test_environment_with_several_words(compiler: str, app: Path, dtrace: Any, run: Any, need: Any) -> None:
    need(compiler.split(maxsplit=1)[0].strip("'"))
    environment = {**os.environ, "CC": compiler, "CFLAGS": "-O2 -g -flto -DX='y z'", "CPPFLAGS": f"-I{app} -DNAME=path"}
    (app / "cpp.d").write_text('#include "types.h"\nprovider app { probe req__start(number fd, char *NAME); };\n')
    (app / "types.h").write_text("#define number int\n")
    dtrace("-C", "-h", "-s", "cpp.d", "-o", "cpp.h", cwd=app, env=environment)
    assert "__dtrace_app___req__start(int, " in (app / "cpp.h").read_text()
    dtrace("-C", "-G", "-s", "cpp.d", "-o", "cpp.o", cwd=app, env=environment)
    links(run, app, "cpp.o")


def test_own_preprocessor(app: Path, dtrace: Any) -> None:
    (app / "cpp.d").write_text("provider app { probe one(TYPE a); };\n")
    (app / "own cpp").write_text('#!/bin/sh\nexec gcc -E -DTYPE=long "$@"\n')
    (app / "own cpp").chmod(0o755)
    environment = {**os.environ, "CPP": f"'{app}/own cpp' -DUNUSED", "CC": "/no/such/compiler"}
    dtrace("-C", "-h", "-s", "cpp.d", cwd=app, env=environment)
    assert "long usdt_arg0" in (app / "cpp.h").read_text()


def test_several_files(tmp_path: Path, dtrace: Any, run: Any) -> None:
    for name in ("one", "two"):
        (tmp_path / f"{name}.d").write_text(f"provider {name} {{ probe a(int); }};\n")
    dtrace("-h", "-s", "one.d", "-s", "two.d", "-o", "both.h", cwd=tmp_path)
    (tmp_path / "main.c").write_text('#include "both.h"\nint main(void) { ONE_A(1); TWO_A(2); return 0; }\n')
    dtrace("-G", "-s", "one.d", "-stwo.d", "-o", "both.o", cwd=tmp_path)
    links(run, tmp_path, "both.o")


def test_files_that_disagree(tmp_path: Path, dtrace: Any) -> None:
    (tmp_path / "one.d").write_text("provider app { probe a(int); };\n")
    (tmp_path / "two.d").write_text("provider app { probe a(char *); };\n")
    done = dtrace("-h", "-s", "one.d", "-s", "two.d", "-o", "x.h", cwd=tmp_path, code=1)
    assert done.stderr == "dtrace: two.d: provider app differs from the one in one.d\n"
    dtrace("-h", "-s", "one.d", "-s", "one.d", "-o", "x.h", cwd=tmp_path)


@pytest.mark.parametrize("more", [[], ["-C"]])
def test_standard_input(more: list[str], app: Path, dtrace: Any, run: Any) -> None:
    text = (app / "app.d").read_text()
    dtrace("-h", *more, "-s", "/dev/stdin", "-o", "app.h", cwd=app, input=text)
    dtrace("-G", *more, "-s", "/dev/stdin", "-o", "app.o", cwd=app, input=text)
    links(run, app, "app.o")


def test_header_to_standard_output(app: Path, dtrace: Any) -> None:
    assert "#define\tAPP_IDLE() \\\n" in dtrace("-h", "-s", "app.d", "-o", "/dev/stdout", cwd=app).stdout


def test_the_last_mode_counts(app: Path, dtrace: Any) -> None:
    done = dtrace("-h", "-G", "-s", "app.d", "-o", "x.o", cwd=app)
    assert done.stderr == "dtrace: warning: both -h and -G are given; the last, -G, counts\n"
    assert (app / "x.o").read_bytes()[:4] == b"\x7fELF"


def test_version_and_help(dtrace: Any) -> None:
    assert dtrace("-V").stdout.startswith("dtrace: usdtbuild ")
    assert "-G" in dtrace("--help").stdout


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("", "give -h to make a header or -G"),
        ("-s app.d", "give -h to make a header or -G"),
        ("-h", "-h needs a provider file"),
        ("-h -s", "option -s needs a value"),
        ("-h -s app.d main.o", "-h takes no objects"),
        ("-h -s app.d -o a -o b", "-o is given 2 times"),
        ("-h -s app.d -o app.d", "both read and written"),
        ("-32 -64 -G -s app.d", "contradict"),
        ("-G --in-place -s app.d", "--in-place is for -G with objects"),
        ("-n syscall:::entry", "is for tracing"),
        ("-h -s app.d --no-such", "unknown option --no-such"),
        ("-h -s app.d -R", "unknown option -R"),
    ],
)
def test_wrong_use(line: str, message: str, app: Path, dtrace: Any) -> None:
    before = sorted(app.iterdir())
    done = dtrace(*line.split(), cwd=app, code=2)
    assert done.stderr.startswith("dtrace: ")
    assert message in done.stderr.splitlines()[0]
    assert "usage: dtrace -h" in done.stderr
    assert sorted(app.iterdir()) == before


@pytest.mark.parametrize(("line", "path"), [("-G -s app.d app.o", "app.o"), ("-h -s app.d -s app.h", "app.h")])
def test_the_default_output_is_no_input(line: str, path: str, app: Path, dtrace: Any) -> None:
    (app / path).write_text("ours")
    done = dtrace(*line.split(), cwd=app, code=2)
    assert done.stderr.startswith(f"dtrace: {path} is both read and written (-o)\n")
    assert (app / path).read_text() == "ours"


@pytest.mark.parametrize(
    "text", ["provider app { probe a(long double x); };", "provider 1 {", f"provider {'p' * 64} {{}};"]
)
def test_wrong_provider_file(text: str, tmp_path: Path, dtrace: Any) -> None:
    (tmp_path / "app.d").write_text(text)
    for mode, output in (("-h", "app.h"), ("-G", "app.o")):
        done = dtrace(mode, "-s", "app.d", "-o", output, cwd=tmp_path, code=1)
        assert done.stderr.startswith("app.d:1:")
        assert not (tmp_path / output).exists()


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({"CFLAGS": "-DX='unclosed"}, "CFLAGS can't be split into words"),
        ({"CC": "/no/such/compiler"}, "can't run the compiler /no/such/compiler"),
        ({"CC": "gcc -no-such-option"}, "exit code 1"),
    ],
)
def test_corrupt_environment(variables: dict[str, str], message: str, app: Path, dtrace: Any, run: Any) -> None:
    environment = {**os.environ, **variables}
    done = dtrace("-G", "-s", "app.d", "-o", "out.o", cwd=app, env=environment, code=1)
    assert done.stderr.startswith("dtrace: ")
    assert message in done.stderr
    assert not (app / "out.o").exists()
    # What needs no compiler doesn't care.
    dtrace("-h", "-s", "app.d", cwd=app, env=environment)
    run("gcc", "-c", "main.c", cwd=app)
    dtrace("-G", "-s", "app.d", "-o", "out.o", "main.o", cwd=app, env=environment)


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({"CPPFLAGS": "'"}, "CPPFLAGS can't be split into words"),
        ({"CPP": "/no/such/cpp -E"}, "can't run the C preprocessor /no/such/cpp: no such file or directory"),
        ({"CPP": "false"}, "the C preprocessor failed (exit code 1): false -x c app.d"),
        ({"CC": "''"}, "can't run the C preprocessor "),
        ({"CPPFLAGS": "-include /no/such.h"}, "the C preprocessor failed (exit code 1): "),
        ({"CFLAGS": b"\xff\xfe"}, "the C preprocessor failed (exit code 1): "),
        ({"PATH": "/no/such"}, "set CC or CPP"),
    ],
)
@pytest.mark.parametrize("mode", ["h", "G"])
def test_corrupt_environment_of_the_preprocessor(
    mode: str, variables: dict[str, Any], message: str, app: Path, program: Path
) -> None:
    """Told in words, with nothing written; bytes that are no text, too, get to the compiler and back."""
    environment = {**os.environ, **variables}
    words = [str(program), "-C", f"-{mode}", "-s", "app.d", "-o", "out"]
    done = subprocess.run(words, cwd=app, env=environment, capture_output=True, check=False)
    said = done.stderr.decode("utf-8", "backslashreplace")
    assert done.returncode == 1
    assert said.startswith("dtrace: ")
    assert message in said
    assert "Traceback" not in said
    assert not (app / "out").exists()
    plain = [str(program), f"-{mode}", "-s", "app.d", "-o", "out"]
    if mode == "h" or "CPP" in "".join(variables):  # without -C, -h needs no compiler and -G no preprocessor
        subprocess.run(plain, cwd=app, env=environment, check=True)


def test_the_users_python_environment_has_no_effect(app: Path, dtrace: Any) -> None:
    (app / "struct.py").write_text("raise SystemExit(99)\n")
    (app / "usdtbuild").mkdir()
    variables = {"PYTHONPATH": str(app), "PYTHONHOME": "/nowhere", "PYTHONSTARTUP": "x", "TMPDIR": "/no"}
    environment = {**os.environ, **variables}
    dtrace("-h", "-s", "app.d", cwd=app, env=environment)


def test_read_only_working_directory_spaces_and_utf8(tmp_path: Path, dtrace: Any, run: Any) -> None:
    source, output, work = tmp_path / "quelle ä", tmp_path / "ziel $(x) ö", tmp_path / "read only"
    for folder in (source, output, work):
        folder.mkdir()
    (source / "my app.d").write_text("provider app { probe req__start(int, char *); };\n")
    work.chmod(0o555)
    # The tests may run as root, whom permissions don't stop; files that appear there are seen below.
    dtrace("-h", "-C", "-s", source / "my app.d", "-o", output / "my app.h", cwd=work)
    dtrace("-G", "-C", "-s", source / "my app.d", "-o", output / "my app.o", cwd=work)
    assert not list(work.iterdir())
    assert [path.name for path in source.iterdir()] == ["my app.d"]
    assert sorted(path.name for path in output.iterdir()) == ["my app.h", "my app.o"]
    (output / "main.c").write_text('#include "my app.h"\nint main(void) { APP_REQ_START(1, ""); return 0; }\n')
    links(run, output, "my app.o")


def test_many_at_once(app: Path, program: Path, run: Any) -> None:
    """Parallel runs in one folder, some of them with one output: each file is whole, and nothing else is left."""
    run("gcc", "-c", "main.c", cwd=app)
    lines = [f"-{mode} -s app.d -o out{number % 3}.{mode}" for mode in "hG" for number in range(12)]

    def one(line: str) -> int:
        more = ["main.o"] if "-G" in line else []
        return subprocess.run([program, *line.split(), *more], cwd=app, check=False).returncode

    with ThreadPoolExecutor(6) as pool:
        assert set(pool.map(one, lines)) == {0}
    assert len({(app / f"out{number}.G").read_bytes() for number in range(3)}) == 1
    assert len({(app / f"out{number}.h").read_text().replace(f"OUT{number}", "") for number in range(3)}) == 1
    outputs = {f"out{number}.{mode}" for mode in "hG" for number in range(3)}
    assert {path.name for path in app.iterdir()} == {"app.d", "app.h", "main.c", "main.o"} | outputs


def test_output_that_cannot_be_written(app: Path, dtrace: Any) -> None:
    done = dtrace("-h", "-s", "app.d", "-o", "no/such/folder/app.h", cwd=app, code=1)
    assert done.stderr.startswith("dtrace: no/such/folder/app.h: can't be written: ")


def test_outputs_are_written_again(app: Path, dtrace: Any) -> None:
    """Make takes a target that is older than its source for out of date, so an equal one must be written, too."""
    os.utime(app / "app.h", (1, 1))
    dtrace("-h", "-s", "app.d", cwd=app)
    assert (app / "app.h").stat().st_mtime > 1


@pytest.mark.parametrize(
    ("line", "definitions"), [("-DX -hs a.d -Iinc", ("-DX", "-Iinc")), ("-h -s a.d -U Y -D Z=1", ("-UY", "-DZ=1"))]
)
def test_definitions_keep_their_order(line: str, definitions: tuple[str, ...]) -> None:
    assert read(line.split()).definitions == definitions


def test_value_that_looks_like_an_option() -> None:
    assert read(["-h", "-s", "-odd.d"]).sources == ("-odd.d",)
    with pytest.raises(UsageError):
        read(["-h", "-s", ""])


# --- install-dtrace ---------------------------------------------------------------------------------------------


def test_install_refuses_a_foreign_program(tmp_path: Path, usdtbuild: Any) -> None:
    (tmp_path / "dtrace").write_text("#!/bin/sh\n")
    done = usdtbuild("install-dtrace", tmp_path, code=1)
    assert "isn't ours" in done.stderr
    assert (tmp_path / "dtrace").read_text() == "#!/bin/sh\n"
    usdtbuild("install-dtrace", "--force", tmp_path)
    usdtbuild("install-dtrace", tmp_path)
    assert os.access(tmp_path / "dtrace", os.X_OK)


def test_wheel_installs_the_program(wheel: Path) -> None:
    with ZipFile(wheel) as archive:
        points = next(name for name in archive.namelist() if name.endswith("entry_points.txt"))
        assert "\nusdtbuild-dtrace = usdtbuild.dtrace:main\n" in archive.read(points).decode()


def test_found_through_path(program: Path, app: Path, run: Any) -> None:
    environment = {**os.environ, "PATH": f"{program.parent}:{os.environ['PATH']}"}
    (app / "Makefile").write_text("app.h: app.d\n\tdtrace -h -s app.d -o $@.tmp && mv $@.tmp $@\n")
    (app / "app.h").unlink()
    run("make", "app.h", cwd=app, env=environment)
    links(run, app)


@pytest.mark.parametrize("words", ["-h -s app.d -o /dev/stdout", "-V", "--help"])
def test_a_reader_that_went_away_is_an_error(words: str, app: Path, program: Path) -> None:
    """A build must not go on as if the header had been written; and nobody wants a traceback."""
    read_end, write_end = os.pipe()
    os.close(read_end)
    with os.fdopen(write_end, "wb") as pipe:
        done = subprocess.run([program, *words.split()], cwd=app, stdout=pipe, stderr=subprocess.PIPE, check=False)
    assert done.returncode != 0
    assert b"Traceback" not in done.stderr
