"""Names in a binary's notes that are programs in another tool's language, or commands of a terminal."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from usdtbuild.tracing.others.names import why_not

MARK = "interval_ran"


@pytest.fixture
def renamed(forged: Any) -> Any:
    return lambda name: forged(name.encode("latin-1"))


@pytest.mark.live
def test_a_name_that_is_a_program_is_not_run_by_bpftrace(
    renamed: Any, attacker: Any, command: Any, folder: Path
) -> None:
    proof = folder / MARK
    program = renamed(f'tick {{ }} interval:ms:100 {{ printf("{MARK}\\n"); exit(); }} uprobe:x:y')
    pid = attacker(program).stdout.readline().strip()
    said = command("trace", "-p", pid, "--engine", "bpftrace", "-P", "victim:*", "--duration", "1")
    assert MARK not in said.out.replace("not traced", "")
    assert "bpftrace and gdb take only letters" in said.err, said
    assert not proof.exists()


def test_a_name_that_is_a_command_is_not_run_by_gdb(renamed: Any, attacker: Any, command: Any) -> None:
    if not shutil.which("gdb"):
        pytest.skip("gdb is not installed")
    program = renamed("tick if $_shell")
    pid = attacker(program).stdout.readline().strip()
    said = command("trace", "-p", pid, "--engine", "gdb", "-P", "victim:*", "--duration", "1")
    assert "bpftrace and gdb take only letters" in said.err, said


@pytest.mark.parametrize("title", ["app:go", "libstdcxx:catch", "ruby:method-entry", "a.b:c_1", "rtld:lll_lock_wait"])
def test_ordinary_names_pass(title: str) -> None:
    assert why_not(title) == ""


@pytest.mark.parametrize(
    "title", ["a:", ":b", "a:b:c", "a:b c", "a:b\n", "a:b{", "a:-function", "a:b*", "a:b;c", "a:b\xe9", "a:b\0", "a"]
)
def test_others_do_not(title: str) -> None:
    assert why_not(title)


ESCAPES = "tick\x1b]0;owned\x07\x1b[31m"


@pytest.mark.parametrize("words", [("list",), ("list", "--json"), ("verify",), ("calls",), ("functions", "--all")])
def test_no_command_prints_a_terminal_s_commands(words: tuple[str, ...], renamed: Any, command: Any) -> None:
    program = renamed(ESCAPES)
    said = command(*words, program)
    for text in (said.out, said.err):
        assert "\x1b" not in text
        assert "\x07" not in text


@pytest.mark.parametrize("words", [("list",), ("list", "--wide"), ("verify",), ("functions",), ("calls",)])
def test_a_name_does_not_forge_lines(words: tuple[str, ...], renamed: Any, command: Any) -> None:
    said = command(*words, renamed("tick\n\tforged:line"))
    assert not any(line.lstrip().startswith("forged:") for line in (said.out + said.err).split("\n"))
    assert "\t" not in said.out


def test_trace_prints_no_terminal_s_commands(renamed: Any, attacker: Any, command: Any, folder: Path) -> None:
    program = renamed(ESCAPES)
    named = folder.parent / "odd\x1b[31mname"
    shutil.copy(program, named)
    pid = attacker(named).stdout.readline().strip()
    for more in ((), ("--count",), ("--engine", "gdb"), ("-v",)):
        said = command("trace", "-p", pid, "--duration", "0.3", *more)
        assert "\x1b" not in said.out + said.err, more
    for words in (("list", pid), ("list", named), ("verify", named), ("functions", pid), ("calls", pid)):
        said = command(*words)
        assert "\x1b" not in said.out + said.err, words


@pytest.mark.parametrize("name", ["list", "verify", "functions", "calls", "instrument", "header"])
def test_a_path_does_not_forge_lines(name: str, command: Any, forged: Any, tmp_path: Path) -> None:
    path = tmp_path / "a\nusdtbuild: all fine\tq"
    path.write_bytes(forged(b"tick").read_bytes() if name == "functions" else b"x")
    said = command(name, path, *(("-o", tmp_path / "x") if name in ("instrument", "header") else ()))
    assert "all fine" in said.out + said.err
    assert "\nusdtbuild: all fine" not in said.out + said.err
    assert "\t" not in said.err


@pytest.mark.parametrize("words", [("list",), ("verify",), ("functions",), ("calls",), ("instrument", "-o", "x"),
                                   ("header", "-o", "x"), ("verify", "/bin/true", "--provider"),
                                   ("trace", "--count", "--provider")])  # fmt: skip
def test_a_pipe_of_another_user_is_not_waited_for(words: tuple[str, ...], command: Any, folder: Path) -> None:
    pipe = folder / "pipe"
    os.mkfifo(pipe, 0o666)
    os.chown(pipe, 65534, 65534)
    holder = os.open(pipe, os.O_RDWR)
    try:
        said = command(*words, pipe, *(("--", "/bin/true") if words[0] == "trace" else ()), timeout=20, cwd=folder)
    finally:
        os.close(holder)
    assert (said.code, "pipe of another user" in said.err) == (1, True), said
