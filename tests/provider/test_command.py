"""`usdtbuild header` as users and build systems run it."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from usdtbuild.provider import fast
from usdtbuild.provider.generate import HeaderRequest

TEXT = "/* What it does. */\nprovider app {\n  probe req__done(int fd, char *path);\n};\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "app.d").write_text(TEXT)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_header_goes_where_o_says(folder: Path, usdtbuild: Any) -> None:
    (folder / "made").mkdir()
    done = usdtbuild("header", "app.d", "-o", "made/probes.h")
    assert (done.stdout, done.stderr) == ("", "")
    assert "APP_REQ_DONE" in (folder / "made" / "probes.h").read_text()


@pytest.mark.parametrize(("source", "header"), [("app.d", "app.h"), ("sub/app.d", "app.h"), ("sub/probes", "probes.h")])
def test_without_o_the_header_is_written_here_under_the_providers_name(
    folder: Path, usdtbuild: Any, source: str, header: str
) -> None:
    (folder / "sub").mkdir()
    (folder / source).write_text(TEXT)
    usdtbuild("header", source)
    assert (folder / header).exists()
    assert sorted(path.name for path in (folder / "sub").iterdir()) == ([Path(source).name] if "/" in source else [])


def test_standard_input_and_output(folder: Path, usdtbuild: Any) -> None:
    usdtbuild("header", "app.d", "-o", "stdin.h")
    done = usdtbuild("header", "-", "-o", "-", input=TEXT)
    assert done.stdout == (folder / "stdin.h").read_text()
    assert sorted(path.name for path in folder.iterdir()) == ["app.d", "stdin.h"]


def test_check_tells_whether_a_committed_header_is_up_to_date(folder: Path, usdtbuild: Any) -> None:
    missing = usdtbuild("header", "--check", "app.d", "-o", "app.h", code=1)
    assert "usdtbuild: app.h: can't be compared: no such file or directory" in missing.stderr
    usdtbuild("header", "app.d", "-o", "app.h")
    before = Path("app.h").stat()
    for way in ([], ["--provider", "app"]):
        fresh = usdtbuild("header", "--check", "app.d", "-o", "app.h", *way)
        assert (fresh.stdout, fresh.stderr) == ("", "")
    Path("app.h").write_bytes(Path("app.h").read_bytes().replace(b"\n", b"\r\n"))  # as Git may check it out
    assert usdtbuild("header", "--check", "app.d", "-o", "app.h").stdout == ""
    Path("app.d").write_text(TEXT.replace("int fd", "long fd"))
    stale = usdtbuild("header", "--check", "app.d", "-o", "app.h", code=1)
    assert "-   APP_REQ_DONE(int fd, char *path)\n+   APP_REQ_DONE(long fd, char *path)\n" in stale.stdout
    assert "app.h: is not what app.d makes; run usdtbuild header app.d with the same options" in stale.stderr
    Path("app.h").write_text(Path("app.h").read_text().replace("(usdtbuild ", "(usdtbuild 0.0."))
    other = usdtbuild("header", "--check", "app.d", "-o", "app.h", code=1)
    assert "app.h: was written by usdtbuild 0.0." in other.stderr
    assert Path("app.h").stat().st_mtime >= before.st_mtime
    assert sorted(path.name for path in folder.iterdir()) == ["app.d", "app.h"]


@pytest.mark.parametrize("change", [lambda was: was + b"x\n", lambda was: was + b"x", lambda was: was[:-1]])
def test_patch_takes_the_difference(
    change: Callable[[bytes], bytes], folder: Path, usdtbuild: Any, run: Any, need: Any
) -> None:
    usdtbuild("header", "app.d")
    wanted = Path("app.h").read_bytes()
    Path("app.h").write_bytes(change(wanted))
    Path("by.diff").write_text(usdtbuild("header", "app.d", "--check", code=1).stdout)
    run(need("patch"), "-p0", "-i", "by.diff", cwd=folder)
    assert Path("app.h").read_bytes() == wanted


def test_an_unchanged_header_is_not_written_again(folder: Path, usdtbuild: Any) -> None:
    usdtbuild("header", "app.d", "-o", "app.h")
    os.utime("app.h", (1, 1))
    (folder / "app.d").write_text(TEXT.replace("  probe", "\tprobe"))
    usdtbuild("header", "app.d", "-o", "app.h")
    assert Path("app.h").stat().st_mtime == 1
    (folder / "app.d").write_text(TEXT.replace("int fd", "long fd"))
    usdtbuild("header", "app.d", "-o", "app.h")
    assert Path("app.h").stat().st_mtime > 1


def test_a_stamp_is_touched_every_time(folder: Path, usdtbuild: Any) -> None:
    for _ in range(2):
        usdtbuild("header", "app.d", "-o", "app.h", "--stamp", "app.stamp")
        assert Path("app.stamp").stat().st_mtime > 1
        os.utime("app.stamp", (1, 1))


def test_the_permissions_are_those_of_the_umask(folder: Path, usdtbuild: Any) -> None:
    usdtbuild("header", "app.d", "-o", "app.h", umask=0o027)
    assert stat.S_IMODE(Path("app.h").stat().st_mode) == 0o640


def test_a_device_is_written_to_and_not_replaced(folder: Path, usdtbuild: Any) -> None:
    usdtbuild("header", "app.d", "-o", "/dev/null")
    assert stat.S_ISCHR(Path("/dev/null").stat().st_mode)
    assert "APP_REQ_DONE" in usdtbuild("header", "app.d", "-o", "/dev/stdout").stdout


def test_two_providers_of_one_file_share_a_header(folder: Path, usdtbuild: Any) -> None:
    (folder / "two.d").write_text("provider one { probe a(); };\nprovider two { probe b(); };")
    text = usdtbuild("header", "two.d", "-o", "-").stdout
    assert "#define\tONE_A()" in text
    assert "#define\tTWO_B()" in text


def test_a_file_without_a_provider_makes_no_header(folder: Path, usdtbuild: Any) -> None:
    for text, shown in (("BEGIN{}", ["  BEGIN{}", "  ^"]), ("\nBEGIN{}", []), ("", [])):
        (folder / "none.d").write_text(text)
        said = usdtbuild("header", "none.d", "-o", "none.h", code=1).stderr.splitlines()
        assert said[0].startswith("none.d:1:1: error: no provider is in this file; declare one: provider NAME {")
        assert said[1:] == shown
    assert not (folder / "none.h").exists()


def test_a_header_and_a_provider_file_that_are_swapped_are_told(folder: Path, usdtbuild: Any) -> None:
    before = (folder / "app.d").read_text()
    usdtbuild("header", "app.d", "-o", "app.h")
    done = usdtbuild("header", "app.h", "-o", "app.d", code=2)
    assert "usdtbuild header app.d -o app.h?" in done.stderr
    assert (folder / "app.d").read_text() == before


# --- dependencies -----------------------------------------------------------------------------------------------------


def test_a_depfile_without_the_preprocessor_names_the_source(folder: Path, usdtbuild: Any) -> None:
    usdtbuild("header", "app.d", "-o", "app.h", "--depfile", "app.dep")
    assert (folder / "app.dep").read_text() == "app.h: app.d\n"


def test_a_depfile_names_every_included_file_and_make_understands_it(folder: Path, usdtbuild: Any, need: Any) -> None:
    names = ["plain.h", "with space.h", "dol$lar.h", "hash#.h", "nested.h"]
    for name in names:
        (folder / name).write_text("\n")
    (folder / "plain.h").write_text('#include "nested.h"\n')
    (folder / "app.d").write_text("".join(f'#include "{name}"\n' for name in names[:4]) + TEXT)
    usdtbuild("header", "-C", "app.d", "-o", "app.h", "--stamp", "app.stamp", "--depfile", "app.dep")
    (folder / "Makefile").write_text("app.stamp:\n\t@echo 'rebuilt: $?'\ninclude app.dep\n")
    make = [need("make"), "-s", "app.stamp"]
    assert "rebuilt" not in subprocess.run(make, capture_output=True, text=True, check=True).stdout
    for name in names:
        os.utime("app.stamp")
        later = Path("app.stamp").stat().st_mtime + 10
        os.utime(name, (later, later))
        assert name in subprocess.run(make, capture_output=True, text=True, check=True).stdout
        os.utime(name, (1, 1))


# --- errors -----------------------------------------------------------------------------------------------------------


def test_a_wrong_file_is_reported_as_a_compiler_does_and_nothing_is_written(folder: Path, usdtbuild: Any) -> None:
    (folder / "wrong.d").write_text("provider app {\n  probe a(nonsense x);\n};\n")
    for more in ((), ("-C",)):
        outputs = ("-o", "app.h", "--stamp", "s", "--doc", "d.md", "--depfile", "dep")
        done = usdtbuild("header", "wrong.d", *outputs, *more, code=1)
        assert done.stdout == ""
        assert done.stderr == (
            "wrong.d:2:11: error: unknown type 'nonsense'; declare it in this file (typedef ... nonsense;)\n"
            "    probe a(nonsense x);\n"
            "            ^\n"
        )
        assert sorted(path.name for path in folder.iterdir()) == ["app.d", "wrong.d"]


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["nowhere.d"], 1, "usdtbuild: nowhere.d: no such file or directory"),
        (["."], 1, "usdtbuild: .: is a directory"),
        ([sys.executable, "-o", "app.h"], 1, "is a NUL; give a provider file (.d), which is text"),
        (["app.d", "-o", "nowhere/app.h"], 1, "usdtbuild: nowhere/app.h: can't be written: no such file or directory"),
        (["app.d", "-o", "."], 1, "usdtbuild: .: can't be written: is a directory"),
        (["app.d", "-o", "app.h", "--stamp", "nowhere/s"], 1, "usdtbuild: nowhere/s: can't be written: no such file"),
        (["app.d", "-o", "app.d"], 2, "usdtbuild: app.d is named twice: each file that is read or written needs"),
        (["app.d", "-o", "x", "--doc", "./x"], 2, "usdtbuild: ./x is named twice"),
        (["app.d", "-o", "-", "--depfile", "x"], 2, "--depfile says what a file depends on; name that file"),
        (["app.d", "--doc", "-"], 2, "only the header can go to the standard output, with -o -"),
        (["-", "-C"], 2, "-C reads a file, not the standard input"),
        (["app.d", "-I", "x"], 2, "-I, -D and -U are for the C preprocessor; add -C"),
        (["app.d", "-C", "-DX", "-U", "X"], 2, "macro X is both defined (-D) and undefined (-U)"),
        (["app.d", "--formats", "sdt"], 2, "--formats: 'sdt' is no record format; take stapsdt, dof or usdt, with"),
        (["lz4.d", "--formats", "dof"], 1, "lz4.d:1:10: error: provider name 'lz4' ends in a digit, where DTrace puts"),
        (["lz4.d", "--formats=stapsdt,usdt", "--provider=lz4"], 1, "write SDT notes only (--formats=stapsdt)\n"),
        (["app.d", "--check", "-o", "-"], 2, "--check compares with a file, and writes nothing: leave out -o -"),
        (["app.d", "--check", "--stamp", "x"], 2, "--check compares with a file, and writes nothing: leave out"),
        (["app.d", "--check", "--depfile", "x"], 2, "--check compares with a file, and writes nothing: leave out"),
        (["app.d", "--nonsense"], 2, "No such option"),
        (["app.d", "app.d"], 2, "unexpected extra argument"),
        (["app.d", "-o"], 2, "requires an argument"),
        (["app.d", "-o", ""], 2, "Invalid value for '-o' / '--output': it is empty."),
        (["app.d", "--doc="], 2, "Invalid value for '--doc': it is empty."),
        ([], 2, "Missing argument"),
    ],
)
def test_errors_are_one_clear_line_without_a_traceback(
    folder: Path, usdtbuild: Any, arguments: list[str], code: int, message: str
) -> None:
    (folder / "lz4.d").write_text("provider lz4 { probe frame(int size); };\nprovider app { probe go(); };\n")
    done = usdtbuild("header", *arguments, code=code)
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
    if code == 2:
        assert sorted(path.name for path in folder.iterdir()) == ["app.d", "lz4.d"]


@pytest.mark.parametrize("words", [[], ["--formats=dof", "--none"], ["--formats=dof", "--provider=app"]])
def test_a_name_that_ends_in_a_digit_is_taken_where_no_dtrace_reads_it(
    words: list[str], folder: Path, usdtbuild: Any
) -> None:
    (folder / "lz4.d").write_text("provider lz4 { probe frame(int size); };\nprovider app { probe go(); };\n")
    usdtbuild("header", "lz4.d", *words)
    assert (folder / "lz4.h").exists()


def test_an_unreadable_file(folder: Path, usdtbuild: Any) -> None:
    if os.geteuid() == 0:
        pytest.skip("root may read everything")
    Path("app.d").chmod(0)
    assert "usdtbuild: app.d: permission denied" in usdtbuild("header", "app.d", code=1).stderr


def test_help(usdtbuild: Any) -> None:
    text = usdtbuild("header", "--help").stdout
    words = "-o, --output --formats --check --none --doc --stamp --depfile -C -I -D -U USDT_DISABLED"
    for word in words.replace(", ", ",").split():
        assert word.replace(",", ", ") in text


# --- the quick way ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "request_"),
    [
        (["a.d"], HeaderRequest("a.d")),
        (["a.d", "-o", "a.h"], HeaderRequest("a.d", "a.h")),
        (["-o", "a.h", "--none", "a.d"], HeaderRequest("a.d", "a.h", True)),
        (["a.d", "--output", "a.h", "--stamp", "s"], HeaderRequest("a.d", "a.h", stamp="s")),
        (["--depfile", "d", "--doc", "m", "a.d"], HeaderRequest("a.d", documentation="m", depfile="d")),
        (["--formats", "dof", "a.d"], HeaderRequest("a.d", formats=("dof",))),
        (["a.d", "--check"], HeaderRequest("a.d", check=True)),
        (["a.d", "--formats=stapsdt,usdt"], HeaderRequest("a.d", formats=("stapsdt", "usdt"))),
        (["a.d", "-C"], None), (["a.d", "--help"], None), (["a.d", "b.d"], None), (["a.d", "-o"], None),
        (["a.d", "-o", "-"], None), (["-"], None), ([], None), (["--none"], None),
        (["a.d", "-o", "x", "-o", "y"], None),
        (["a.d", "-oa.h"], None), (["a.d", "--output=a.h"], None), (["a.d", ""], None), (["--", "a.d"], None),
    ],
)  # fmt: skip
def test_plain_command_lines_are_read_without_a_library(arguments: list[str], request_: HeaderRequest | None) -> None:
    assert fast.read(arguments) == request_


FORMS = {  # what is asked for -> whether the header completes its probes
    "": True, "--formats=stapsdt": True,
    "--formats=dof": False, "--formats=stapsdt,dof": False, "--formats=usdt": False,
}  # fmt: skip


@pytest.mark.parametrize("formats", FORMS)
@pytest.mark.parametrize("way", ["", "--provider=app"])  # read without a library, and with one
def test_the_header_completes_probes_unless_another_format_is_asked_for(
    formats: str, way: str, folder: Path, usdtbuild: Any, run: Any
) -> None:
    usdtbuild("header", *filter(None, (formats, way)), "app.d", "-o", "app.h")
    (folder / "main.c").write_text('#include "app.h"\nint main(void) { APP_REQ_DONE(1, 0); return 0; }\n')
    run("gcc", "-O2", "-c", "main.c", "-o", "main.o", cwd=folder)
    sections = run("readelf", "-SW", "main.o", cwd=folder).stdout
    assert (".note.stapsdt" in sections) is FORMS[formats]
    assert ("__dtrace_app___req__done" in run("nm", "main.o", cwd=folder).stdout) is not FORMS[formats]


def test_both_ways_do_the_same(folder: Path, usdtbuild: Any) -> None:
    usdtbuild("header", "app.d", "-o", "app.h", "--doc", "quick.md", "--none")
    quick = (folder / "app.h").read_bytes(), (folder / "quick.md").read_bytes()
    (folder / "app.h").unlink()
    usdtbuild("header", "app.d", "-oapp.h", "--doc=slow.md", "--none")
    assert quick == ((folder / "app.h").read_bytes(), (folder / "slow.md").read_bytes())


def test_a_plain_command_imports_no_library_it_does_not_need(folder: Path) -> None:
    """Builds run the command often, and each of these costs more than the work."""
    command = [sys.executable, "-X", "importtime", "-m", "usdtbuild", "header", "app.d", "-o", "app.h"]
    imports = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    modules = {line.rpartition("|")[2].strip() for line in imports.split("\n") if line.startswith("import time")}
    assert "usdtbuild.provider.parser" in modules
    # What the interpreter itself loads at its start (site packages with .pth files) doesn't count.
    start = subprocess.run(
        [sys.executable, "-X", "importtime", "-c", "pass"], capture_output=True, text=True, check=True
    )
    modules -= {line.rpartition("|")[2].strip() for line in start.stderr.split("\n")}
    assert not modules & {
        "click",
        "rich",
        "dataclasses",
        "pathlib",
        "subprocess",
        "hashlib",
        "tempfile",
        "inspect",
        "json",
    }
