"""`usdtbuild list`, as users run it: tables, JSON, filters, folders, archives, and what it says to wrong input."""

from __future__ import annotations

import json
import os
import pty
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from usdtbuild.commands.table import wrap
from usdtbuild.inspection.demangle import shortened
from usdtbuild.text import elide

NO_SUCH_PROCESS = "999999999"


def listed(usdtbuild: Any, *arguments: Any) -> list[dict[str, Any]]:
    document = json.loads(usdtbuild("list", "--json", *arguments).stdout)
    assert document["format"] == "usdtbuild-list"
    assert document["version"] == 1
    return document["files"]


# -- text --------------------------------------------------------------------------------------------------------------


def test_the_table_shows_each_site_on_a_line(usdtbuild: Any, program: Any, note: Any, semaphore_section: str) -> None:
    path = program(
        note("-4@%edi 8@-8(%rbp)", semaphore="sem"),
        note("-4@%edi 8@-8(%rbp)", site=".Lsite1", semaphore="sem"),
        note("", probe="plain", site=".Lsite1"),
        semaphore_section,
        sites=("nop", "nop"),
    )
    title, header, *rows = usdtbuild("list", path).stdout.splitlines()
    assert title == f"{path}: PIE executable, x86-64: 2 probes, 3 sites"
    assert header.split() == ["PROBE", "NO.", "SITE", "FUNCTION", "ARGUMENTS", "SEMAPHORE"]
    first = r"pv:p0 +1/2 +0x\w+ +main\+0x\w+ +int32_t %edi, uint64_t -8\(%rbp\) +0x\w+"
    assert re.fullmatch(f" *{first} *", rows[0])
    assert re.fullmatch(" *" + first.replace("1/2", "2/2") + " *", rows[1])
    assert re.fullmatch(r" *pv:plain +1/1 +0x\w+ +main\+0x\w+", rows[2])


def test_nothing_is_cut_off_or_wrapped_in_a_pipe(usdtbuild: Any, program: Any, note: Any) -> None:
    operands = " ".join(["-4@-123456(%rbp,%rcx,8)"] * 12)
    path = program(note(operands, probe="p" * 60, provider="v" * 50))
    lines = usdtbuild("list", path, env=dict(os.environ, COLUMNS="40")).stdout.splitlines()
    assert len(lines) == 3
    assert lines[2].count("-123456(%rbp,%rcx,8)") == 12
    assert "\x1b" not in lines[2]


def test_on_a_terminal_the_table_is_drawn_in_colour(program: Any, note: Any) -> None:
    path = program(note("-4@%edi"))
    shown = in_terminal(sys.executable, "-m", "usdtbuild", "list", str(path))
    assert "\x1b[" in shown
    assert re.search(r"pv:p0.*1/1.*0x\w+.*int32_t %edi", shown)


LONG_NAME = "_ZN5space6nested5ThingINS0_5OtherEE" + "17with_a_long_name_a" * 3 + "Ev"


@pytest.mark.parametrize("columns", [60, 80, 100, 132])
def test_on_a_terminal_probe_and_site_stay_whole_and_functions_lose_their_middle(
    columns: int, program: Any, note: Any, semaphore_section: str
) -> None:
    function = f"\n .text\n .type {LONG_NAME},@function\n{LONG_NAME}: nop\n ret\n .size {LONG_NAME},.-{LONG_NAME}\n"
    operands = "-4@%edi 8@%rsi -8@16(%rsp) 1@%dl 4@%ecx -2@%r8w"
    parts = [note("-4@%edi", probe="request__with_a_long_name"), semaphore_section]
    path = program(note(operands, site=LONG_NAME, semaphore="sem"), *parts, function, sites=("nop",))
    shown = in_terminal(sys.executable, "-m", "usdtbuild", "list", "--no-demangle", str(path), columns=columns)
    lines = [re.sub("\x1b\\[[0-9;]*m", "", line) for line in shown.splitlines()[1:]]
    assert max(map(len, lines)) <= columns, lines
    for probe in ("pv:p0", "pv:request__with_a_long_name"):
        (line,) = [line for line in lines if line.startswith(f"{probe} ")]
        assert re.match(rf"{probe} +1/1 +0x[0-9a-f]+", line)
    text = " ".join(" ".join(lines).split())
    assert "\N{HORIZONTAL ELLIPSIS}" in text
    assert "_ZN5sp" in text
    assert "+0x0" in text  # the end of the function's name is there, too
    for operand in ("%edi", "%rsi", "16(%rsp)", "%dl", "%ecx", "%r8w"):
        assert operand in text
    everything = in_terminal(
        sys.executable, "-m", "usdtbuild", "list", "--no-demangle", "--wide", str(path), columns=columns
    )
    assert f"{LONG_NAME}+0x0" in everything
    assert any(all(word in line for word in (LONG_NAME, "pv:p0", "%edi", "%r8w")) for line in everything.splitlines())


def test_what_fits_is_not_cut(program: Any, note: Any) -> None:
    path = program(note("-4@%edi"))
    shown = in_terminal(sys.executable, "-m", "usdtbuild", "list", str(path), columns=80, NO_COLOR="1")
    assert shown.splitlines()[1].split() == ["PROBE", "NO.", "SITE", "FUNCTION", "ARGUMENTS"]
    assert re.search(r"^pv:p0  1/1  0x\w+  main\+0x\w+  int32_t %edi$", shown.splitlines()[2])
    assert "\x1b[" not in shown


@pytest.mark.parametrize(
    ("text", "width", "expected"),
    [("abcdefghij", 10, "abcdefghij"), ("abcdefghij", 9, "abcd\N{HORIZONTAL ELLIPSIS}ghij"),
     ("abcdefghij", 4, "ab\N{HORIZONTAL ELLIPSIS}j")],
)  # fmt: skip
def test_elision_keeps_both_ends(text: str, width: int, expected: str) -> None:
    assert elide(text, width) == expected


@pytest.mark.parametrize(("text", "width", "expected"), [
    ("int work<std::vector<int, std::allocator<int> > >(std::vector<int> const&)", 60,
     "int work<std::vector<…> >(std::vector<…> const&)"),
    ("int work<std::vector<int, std::allocator<int> > >(std::vector<int> const&)", 40, "work<std::vector<…> >(…)"),
    ("main::{lambda(int, std::vector<int>)#1}::operator()(int, std::vector<int>) const", 50,
     "main::{lambda(…)#1}::operator()(…) const"),
    ("bool operator< <int>(A<int> const&, A<int> const&)", 30, "operator< <int>(…)"),
    ("std::_Vector_base<int, std::allocator<int> >::~_Vector_base()", 40, "std::_Vector_base<…>::~_Vector_base()"),
    ("shop::Basket::operator->(long) const", 33, "shop::Basket::operator->(…) const"),
    ("a>>>)))" * 9, 12, "a>>>))…>>)))"),
])  # fmt: skip
def test_names_lose_what_is_deepest_in_them(text: str, width: int, expected: str) -> None:
    assert shortened(text, 200) == text
    assert shortened(text, width) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [("", [""]), ("int a, int b", ["int a,", "int b"]), ("abcdefghijk", ["abcdefgh", "ijk"]),
     ("int number %edi", ["int", "number", "%edi"])],
)  # fmt: skip
def test_arguments_are_broken_where_they_end(text: str, expected: list[str]) -> None:
    assert wrap(text, 8) == expected


def in_terminal(*command: str, columns: int = 120, errors: bool = False, **variables: str) -> str:
    """Run a command with its output, `errors` too, on a terminal of its own, and return what it wrote there."""
    ours, theirs = pty.openpty()
    environment = dict(os.environ, TERM="xterm-256color", COLUMNS=str(columns))
    environment.pop("NO_COLOR", None)
    environment.update(variables)
    process = subprocess.Popen(
        command, stdout=theirs, stderr=theirs if errors else None, stdin=subprocess.DEVNULL, env=environment
    )
    os.close(theirs)
    output = b""
    try:
        while chunk := os.read(ours, 4096):
            output += chunk
    except OSError:  # the other end is closed: Linux reports it as an error
        pass
    os.close(ours)
    assert process.wait(60) == 0, output
    return output.decode()


def test_a_closed_pipe_is_no_traceback(program: Any, note: Any, run: Any) -> None:
    path = program(*(note(probe=f"p{i}") for i in range(300)))
    command = f'"{sys.executable}" -m usdtbuild list "{path}" | head -1'
    done = run("sh", "-c", command)
    assert done.stderr == ""
    assert "300 probes" in done.stdout


def test_cplusplus_functions_are_shown_as_they_were_written(
    usdtbuild: Any, program: Any, note: Any, need: Callable[[str], str]
) -> None:
    need("c++filt")
    code = (
        "\n .text\n .type _ZN5space4workEi,@function\n_ZN5space4workEi: nop\n.Lthere: nop\n .size _ZN5space4workEi,2\n"
    )
    path = program(note(site=".Lthere"), code)
    assert "space::work(int)+0x1" in usdtbuild("list", path).stdout
    assert "_ZN5space4workEi+0x1" in usdtbuild("list", "--no-demangle", path).stdout
    (file,) = listed(usdtbuild, path)
    function = file["probes"][0]["sites"][0]["function"]
    assert function == {"name": "_ZN5space4workEi", "demangled": "space::work(int)", "offset": "0x1"}


# -- JSON --------------------------------------------------------------------------------------------------------------


def test_the_documented_fields_are_there(usdtbuild: Any, program: Any, note: Any, semaphore_section: str) -> None:
    path = program(note("-4@%edi 8f@%xmm0 8@$-1 4@4(%rax,%rcx,8) %edx", semaphore="sem"), semaphore_section)
    (file,) = listed(usdtbuild, path)
    assert {key: file[key] for key in ("path", "kind", "machine", "address_size", "byte_order", "providers")} == {
        "path": str(path), "kind": "PIE executable", "machine": "x86-64", "address_size": 8, "byte_order": "little",
        "providers": [],
    }  # fmt: skip
    assert re.fullmatch(r"[0-9a-f]{40}", file["build_id"])
    (probe,) = file["probes"]
    assert (probe["provider"], probe["name"], probe["format"]) == ("pv", "p0", "stapsdt")
    (site,) = probe["sites"]
    assert site["section"] == ".text"
    assert site["function"]["name"] == "main"
    assert int(site["address"], 16) > int(site["offset"], 16)
    assert site["operands"] == "-4@%edi 8f@%xmm0 8@$-1 4@4(%rax,%rcx,8) %edx"
    first, second, third, fourth, fifth = site["arguments"]
    assert first == {
        "size": 4, "signed": True, "floating": False, "type": None, "name": None,
        "place": {"kind": "register", "text": "%edi", "register": "edi"},
    }  # fmt: skip
    assert (second["floating"], second["size"]) == (True, 8)
    assert third["place"] == {"kind": "constant", "text": "$-1", "value": -1}
    assert fourth["place"] == {
        "kind": "memory", "text": "4(%rax,%rcx,8)", "base": "rax", "displacement": 4, "index": "rcx", "scale": 8,
    }  # fmt: skip
    assert fifth["size"] is None
    semaphore = site["semaphore"]
    assert semaphore.keys() == {"address", "section", "offset", "symbol", "backed"}
    assert (semaphore["section"], semaphore["backed"]) == (".probes", True)


def test_an_object_s_places_are_sections_and_offsets(usdtbuild: Any, program: Any, note: Any) -> None:
    path = program(note(semaphore="elsewhere_semaphore"), flags=("-c",))
    (file,) = listed(usdtbuild, path)
    (site,) = file["probes"][0]["sites"]
    assert (site["address"], site["section"]) == (None, ".text")
    semaphore = site["semaphore"]
    assert (semaphore["address"], semaphore["symbol"]) == (None, "elsewhere_semaphore")
    assert re.search(r"pv:p0 +1/1 +\.text\+0x\w+ +main\+0x\w+ .* elsewhere_semaphore", usdtbuild("list", path).stdout)


def test_two_runs_print_the_same(usdtbuild: Any, sdt_program: Any) -> None:
    path = sdt_program()
    assert usdtbuild("list", "--json", path).stdout == usdtbuild("list", "--json", path).stdout


# -- filters -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("patterns", "names"),
    [
        (["app:*"], {"req__start", "req__done"}),
        (["*:req__d*"], {"req__done"}),
        (["req-d*"], {"req__done"}),
        (["other:"], {"tick"}),
        ([":tick"], {"tick"}),
        (["tick", "app:req__start"], {"tick", "req__start"}),
        (["[ab]pp:req__?tart"], {"req__start"}),
    ],
)
def test_filters(patterns: list[str], names: set[str], usdtbuild: Any, program: Any, note: Any) -> None:
    path = program(
        note(provider="app", probe="req__start"), note(provider="app", probe="req__done"),
        note(provider="other", probe="tick"),
    )  # fmt: skip
    options = [word for pattern in patterns for word in ("-p", pattern)]
    (file,) = listed(usdtbuild, path, *options)
    assert {probe["name"] for probe in file["probes"]} == names


def test_a_filter_that_nothing_matches_is_said(usdtbuild: Any, program: Any, note: Any) -> None:
    path = program(note())
    done = usdtbuild("list", path, "-p", "nothing:*")
    assert done.stdout == ""
    assert done.stderr == f"usdtbuild: {path}: no probe matches nothing:*\n"


# -- folders and archives ----------------------------------------------------------------------------------------------


@pytest.fixture
def tree(tmp_path: Path, program: Any, note: Any, run: Any) -> Path:
    """A folder with a program, a copy, links to both, an archive, scripts, and a file that was cut short."""
    folder = tmp_path / "tree"
    (folder / "sub").mkdir(parents=True)
    built = program(note(probe="inside"))
    shutil.copy(built, folder / "a program")
    shutil.copy(built, folder / "sub/copy")
    (folder / "link").symlink_to("a program")
    (folder / "dangling").symlink_to("nowhere")
    (folder / "loop").symlink_to(".")
    os.link(folder / "a program", folder / "hard")
    (folder / "script").write_text("#!/bin/sh\n")
    (folder / "text").write_text("x" * 1000)
    (folder / "cut").write_bytes(built.read_bytes()[:3000])
    (folder / "cut-4").write_bytes(built.read_bytes()[:4])
    (folder / "cut-40").write_bytes(built.read_bytes()[:40])
    os.mkfifo(folder / "pipe")
    run("ar", "rc", folder / "lib.a", program(note(probe="member"), flags=("-c",), name="member.o"))
    return folder


def test_a_folder_is_walked_and_every_file_is_read_once(tree: Path, usdtbuild: Any) -> None:
    done = usdtbuild("list", "--json", tree, code=1)
    paths = [file["path"] for file in json.loads(done.stdout)["files"]]
    assert paths == [str(tree / "a program"), f"{tree / 'lib.a'}(member.o)", str(tree / "sub/copy")]
    complaints = done.stderr.splitlines()
    assert complaints[0].startswith(f"usdtbuild: {tree / 'cut'}: the section headers at offset")
    for name, complaint in zip(("cut-4", "cut-40"), complaints[1:], strict=True):
        assert complaint.startswith(f"usdtbuild: {tree / name}: the file ends inside the ELF header")
    verified = usdtbuild("verify", "--json", tree, code=1)
    assert not json.loads(verified.stdout)["passed"]
    assert verified.stderr == done.stderr
    usdtbuild("calls", tree, code=1)


def test_a_thin_archive_is_read_from_anywhere(tree: Path, tmp_path: Path, run: Any, usdtbuild: Any) -> None:
    run("ar", "rcT", "thin.a", "member.o", cwd=tmp_path)
    (file,) = listed(usdtbuild, tmp_path / "thin.a")
    assert file["path"] == f"{tmp_path / 'thin.a'}(member.o)"
    assert file["probes"][0]["name"] == "member"
    (tmp_path / "member.o").unlink()
    assert "no such file" in usdtbuild("list", tmp_path / "thin.a", code=1).stderr


def test_a_long_walk_shows_its_progress_on_a_terminal(tmp_path: Path, program: Any, note: Any) -> None:
    built = program(note())
    folder = tmp_path / "many"
    folder.mkdir()
    for number in range(150):
        shutil.copy(built, folder / f"copy{number}")
    shown = in_terminal(sys.executable, "-c", SLOWLY, "list", "-p", "copy149", str(folder), errors=True)
    assert re.search(r"Looked at \d+ files: ", shown)


# Looking takes a fraction of a millisecond a file; here as long as it would on a slow disk.
SLOWLY = """
import sys, time
from usdtbuild import cli
from usdtbuild.inspection import targets
image = targets.Image
targets.Image = lambda *arguments: (time.sleep(0.01), image(*arguments))[1]
sys.exit(cli.main())
"""


# -- what isn't there --------------------------------------------------------------------------------------------------


def test_no_probes_is_no_error_but_is_said(usdtbuild: Any, tmp_path: Path, compiled: Any) -> None:
    compiled(tmp_path, "none.c", "int main(void) { return 0; }\n")
    done = usdtbuild("list", tmp_path / "none")
    assert done.stdout == ""
    assert done.stderr == f"usdtbuild: {tmp_path / 'none'}: no probes found\n"
    (file,) = listed(usdtbuild, tmp_path / "none")
    assert file["probes"] == []


def test_a_file_whose_records_were_stripped_away_is_told_of(usdtbuild: Any, program: Any, note: Any, run: Any) -> None:
    path = program(note())
    run("objcopy", "-R", ".note.stapsdt", path)
    said = ", but traces of some: the linker or a tool such as strip removed their records; "
    said += f"'usdtbuild verify {path}' says more\n"
    assert usdtbuild("list", path).stderr == f"usdtbuild: {path}: no probes found{said}"


def test_object_that_was_not_instrumented_is_told_of(
    usdtbuild: Any, tmp_path: Path, compiled: Any, header_of: Any
) -> None:
    header_of(tmp_path, "app.d", "provider app { probe go(int x); };\n", "--formats=dof")
    compiled(tmp_path, "main.c", '#include "app.h"\nint main(void) { APP_GO(1); return 0; }\n', "-c")
    said = ", but calls that nobody has turned into sites; 'usdtbuild verify main.o' names them\n"
    assert usdtbuild("list", "main.o", cwd=tmp_path).stderr == f"usdtbuild: main.o: no probes found{said}"
    usdtbuild("instrument", "main.o", "-o", "done.o", cwd=tmp_path)
    assert usdtbuild("list", "done.o", cwd=tmp_path).stderr == ""


WRONG: dict[str, tuple[Callable[[Path], object], str]] = {
    "text": (lambda p: p.write_text("hello, world" * 9), "is not an ELF file"),
    "script": (lambda p: p.write_text("#!/bin/sh\n"), "is a script; give the binary it runs"),
    "empty": (lambda p: p.write_bytes(b""), "is empty"),
    "bitcode": (lambda p: p.write_bytes(b"BC\xc0\xde" + bytes(60)), "is LLVM bitcode"),
    "PE": (lambda p: p.write_bytes(b"MZ" + bytes(60)), "is a Windows (PE) file"),
    "magic alone": (lambda p: p.write_bytes(b"\x7fELF"), "the file ends inside the ELF header"),
    "short header": (lambda p: p.write_bytes(b"\x7fELF\2\1\1" + bytes(20)), "the file ends inside the ELF header"),
    "bad class": (lambda p: p.write_bytes(b"\x7fELF\7\1\1" + bytes(90)), "ELF class 7, byte order 1"),
    "no such file": (lambda p: None, "no such file or directory"),
    "empty folder": (lambda p: p.mkdir(), "is a folder without ELF files"),
    "archive without objects": (lambda p: p.write_bytes(b"!<arch>\n"), "is an archive without ELF objects"),
    "pipe": (os.mkfifo, "is empty"),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_input_is_one_clear_line(case: str, tmp_path: Path, usdtbuild: Any) -> None:
    make, message = WRONG[case]
    path = tmp_path / "input"
    make(path)
    for command in ("list", "verify") if case != "bitcode" else ("list",):  # of which `verify` says what to verify
        done = usdtbuild(command, path, code=1)
        assert done.stdout == ""
        (line,) = done.stderr.splitlines()
        assert line.startswith(f"usdtbuild: {path}: ")
        assert message in line


def test_a_file_that_was_cut_short_is_said_to_be(usdtbuild: Any, program: Any, note: Any, tmp_path: Path) -> None:
    (tmp_path / "cut").write_bytes(program(note()).read_bytes()[:-100])
    (line,) = usdtbuild("list", tmp_path / "cut", code=1).stderr.splitlines()
    assert re.search(r"the section headers at offset 0x\w+ with 0x\w+ bytes end after the file's 0x\w+ bytes", line)


def test_an_unreadable_file_is_said_to_be(run: Any, other_user: tuple[str, ...]) -> None:
    folder = Path(f"/tmp/usdtbuild-closed-{os.getpid()}")  # pytest's own folders are closed to others
    folder.mkdir(mode=0o755)
    try:
        (folder / "closed").write_bytes(b"\x7fELF" + bytes(100))
        (folder / "folder").mkdir()
        for path in folder.iterdir():
            path.chmod(0)
            for command in ("list", "verify"):
                done = run(*other_user, sys.executable, "-m", "usdtbuild", command, path, code=1, cwd="/")
                assert (done.stdout, done.stderr) == ("", f"usdtbuild: {path}: permission denied\n")
    finally:
        shutil.rmtree(folder)


def test_of_several_targets_the_readable_ones_are_shown(
    usdtbuild: Any, program: Any, note: Any, tmp_path: Path
) -> None:
    path = program(note())
    done = usdtbuild("list", tmp_path / "missing", path, code=1)
    assert f"{tmp_path / 'missing'}: no such file" in done.stderr
    assert "pv:p0" in done.stdout


def test_a_name_with_strange_letters_is_printed(usdtbuild: Any, program: Any, note: Any, tmp_path: Path) -> None:
    odd = tmp_path / "odd \u00e9 [bold] name"
    shutil.copy(program(note()), odd)
    assert str(odd) in usdtbuild("list", odd).stdout
    assert "odd \u00e9 [bold] name" in in_terminal(sys.executable, "-m", "usdtbuild", "list", str(odd)).replace(
        "\r\n", ""
    )


@pytest.mark.parametrize("arguments", [[], ["--unknown", "x"], ["-p"]])
def test_a_wrong_command_line_exits_with_2(arguments: list[str], usdtbuild: Any) -> None:
    assert usdtbuild("list", *arguments, code=2).stderr


def test_a_number_without_such_a_process_is_an_error(usdtbuild: Any) -> None:
    done = usdtbuild("list", NO_SUCH_PROCESS, code=1)
    expected = "there is no such process; a file of this name is given as ./999999999"
    assert done.stderr == f"usdtbuild: process {NO_SUCH_PROCESS}: {expected}\n"


def test_a_file_named_like_a_number_is_given_with_its_folder(
    usdtbuild: Any, program: Any, note: Any, tmp_path: Path
) -> None:
    shutil.copy(program(note()), tmp_path / NO_SUCH_PROCESS)
    assert "pv:p0" in usdtbuild("list", f"./{NO_SUCH_PROCESS}", cwd=tmp_path).stdout
