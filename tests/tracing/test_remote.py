"""Programs that a gdb server holds: gdbserver's, and those under an emulator; both of this machine, so that all runs.

What the other machines say is in tests/machines/test_trace.py.
"""

from __future__ import annotations

import re
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.started import Started, wait_for

from .conftest import SOURCES, check_arguments, parse

TRACE = (sys.executable, "-m", "usdtbuild", "trace")
# Fires until its input ends, then says what its semaphore is, and ends.
TICKS = r"""
#include "scene.h"
#include <poll.h>
#include <stdio.h>
int main(int argc, char **argv) {
    (void)argv;
    struct pollfd input = {0, POLLIN | POLLHUP, 0};
    for (int i = 0; !poll(&input, 1, argc > 1 ? 0 : 1); i++) SCENE_LAST(i, 1);
    for (int i = 0; i < 50; i++) SCENE_LAST(i, 2);
    printf("enabled=%d\n", !!SCENE_GUARDED_ENABLED());
    return 4;
}
"""


@pytest.fixture
def emulated(need: Any) -> str:
    """The emulator of this machine's own programs."""
    return str(need("qemu-x86_64"))


@pytest.fixture(scope="session")
def small(tmp_path_factory: pytest.TempPathFactory, run: Any) -> Callable[[str], Path]:
    """Build one of the programs above."""
    folder = tmp_path_factory.mktemp("small")
    shutil.copy(SOURCES / "scene.d", folder)
    run(sys.executable, "-m", "usdtbuild", "header", "--formats=dof", "scene.d", "-o", "scene.h", cwd=folder)

    def build(source: str) -> Path:
        assert source is TICKS
        if not (folder / "ticks").exists():
            (folder / "ticks.c").write_text(source)
            run(sys.executable, "-m", "usdtbuild", "cc", "--", "gcc", "-O2", "-c", "ticks.c", cwd=folder)
            run("gcc", "ticks.o", "-o", "ticks", cwd=folder)
        return folder / "ticks"

    return build


def test_every_argument_through_gdbserver(scene: Any, run: Any, served: Any) -> None:
    """Threads too: a breakpoint is stepped over while the others stand, and none is missed."""
    where, server = served(scene("pie"), 7, 3)
    done = run(*TRACE, "--remote", where, "--module", "scene")
    assert "wrong=0 guarded=21" in server.communicate(timeout=60)[0]
    check_arguments(parse(done.stdout).hits, 7, 3)


@pytest.mark.parametrize("shape", ["exe", "static", "static-pie", "stripped"])
def test_every_argument_under_an_emulator(scene: Any, run: Any, emulated: str, shape: str) -> None:
    done = run(*TRACE, "--emulator", emulated, "-P", "scene:*", "--", scene(shape), 7)  # not the C library's own
    seen = parse(done.stdout)
    assert seen.output == ["wrong=0 guarded=7"]
    check_arguments(seen.hits, 7)


@pytest.mark.parametrize("by", ["gdbserver", "emulator"])
def test_library_that_is_closed_and_opened_again(scene: Any, run: Any, served: Any, emulated: str, by: str) -> None:
    host = scene("dlopen")
    if by == "gdbserver":
        where, _ = served(host, 5, cwd=host.parent)
        done = run(*TRACE, "--remote", where, "--module", "libscene.so", cwd=host.parent)
    else:
        done = run(*TRACE, "--emulator", emulated, "--module", "libscene.so", "--", host, 5, cwd=host.parent)
    check_arguments(parse(done.stdout).hits, 5, 2)


@pytest.mark.parametrize("by", ["gdbserver", "emulator"])
def test_program_goes_on_when_the_trace_has_seen_enough(
    small: Any, run: Any, served: Any, emulated: str, by: str, tmp_path: Path
) -> None:
    """Breakpoints are out and the semaphore is back, so that it can fire on, and says so."""
    program = small(TICKS)
    if by == "gdbserver":
        where, server = served(program)
        done = run(*TRACE, "--remote", where, "-P", "scene:*", "--limit", 3)
        assert server.communicate(timeout=60)[0] == "enabled=0\n"
    else:
        said = tmp_path / "said"
        line = '"$@" <"$0.pipe" >"$0"'
        subprocess.run(["mkfifo", f"{said}.pipe"], check=True)
        words = [*TRACE, "--emulator", emulated, "-P", "scene:*", "--limit", "3", "-o", f"{said}.jsonl", "--", program]
        tracer = subprocess.Popen(["sh", "-c", line, str(said), *map(str, words)])
        with Path(f"{said}.pipe").open("w"):  # the program's input, which ends when the trace has
            assert tracer.wait(60) == 0
        done = Path(f"{said}.jsonl").read_text().splitlines()
        assert len(done) == 3
        wait_for_text(said, "enabled=0\n")
        return
    assert len(parse(done.stdout).hits) == 3


def test_a_program_that_hits_all_the_time_goes_on(small: Any, emulated: str, tmp_path: Path) -> None:
    """The trap that stops it often comes while a breakpoint is stepped past, and must be told from the step's own."""
    said, words = tmp_path / "said", ("-P", "scene:*", "--duration", "0.5", "-o", tmp_path / "hits.jsonl")
    with said.open("w") as output:
        command = [*TRACE, "--emulator", emulated, *words, "--", small(TICKS), "quickly"]
        tracer = Started(*command, stdout=output, stderr=subprocess.PIPE)
        errors = tracer.said()  # the program has the pipe, too
        assert tracer.wait(60) == 0
        assert not tracer.communicate()[1]  # at the end of its input it ends
    assert re.fullmatch(r"usdtbuild: \S+ \(process \d+\) runs on, and isn't traced any more\n", errors)
    wait_for_text(said, "enabled=0\n")


def test_program_that_gdbserver_has_attached_to(small: Any, run: Any, served: Any) -> None:
    """It leads no process group, so that gdbserver's interrupts don't reach it: it is let go at a hit, unharmed."""
    with Started(small(TICKS)) as program:
        where, server = served(program.pid, options=("--once", "--attach"))
        done = run(*TRACE, "--remote", where, "-P", "scene:*", "--limit", 3)
        assert len(parse(done.stdout).hits) == 3
        assert server.wait(60) == 0
        assert program.end() == "enabled=0\n"
        assert program.returncode == 4


def wait_for_text(path: Path, text: str) -> None:
    """Wait until a program that nobody waits for any more has written its last words."""
    wait_for(lambda: path.read_text() == text)


def test_exit_code_is_the_programs(small: Any, emulated: str) -> None:
    words = [*TRACE, "--emulator", emulated, "-P", "scene:*", "--count", "--", str(small(TICKS))]
    done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 4, done
    assert "scene:last" in done.stdout


BECOMES = """
#include <stdlib.h>
#include <unistd.h>
int main(void) { srand(1); srand(2); execl("/bin/sh", "sh", "-c", "echo another; exit 6", (char *)0); return 1; }
"""


def test_program_under_an_emulator_that_becomes_another(emulated: str, tmp_path: Path, compiled: Any) -> None:
    """The emulator is gone then, and its server with it; what was seen is shown, and how the program ends."""
    compiled(tmp_path, "becomes.c", BECOMES, "-O1", "-fno-builtin")
    words = [*TRACE, "-v", "--emulator", emulated, "--module", "becomes", "-L", "srand", "--", "./becomes"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout.count("srand seed="), "another\n" in done.stdout) == (6, 2, True), done
    assert "it became another program" in done.stderr


def test_server_that_is_killed_midway(small: Any, served: Any) -> None:
    """What was seen before is shown, and one error says why there isn't more."""
    where, server = served(small(TICKS))
    with Started(*TRACE, "--remote", where, "-P", "scene:*", stdin=None, stderr=subprocess.PIPE) as tracer:
        first = tracer.line()
        server.kill()
        rest, said = tracer.communicate()
    assert tracer.returncode == 1
    assert "scene:last round=0 sum=1" in first
    assert [int(round_) for round_ in re.findall(r"round=(\d+)", first + rest)] == list(
        range((first + rest).count("\n"))
    )
    assert re.fullmatch(r"usdtbuild: localhost:\d+ has closed the connection(: .*)?\n", said), said


def test_another_build_than_the_one_that_runs(scene: Any, run: Any, served: Any, small: Any) -> None:
    """Its addresses would be those of other code: nothing is armed, and it says why."""
    where, server = served(scene("pie"), 1)
    done = run(*TRACE, "-v", "--remote", where, "-P", "scene:*", "--", small(TICKS))
    assert "is another build" in done.stderr
    assert "wrong=0 guarded=0" in server.communicate(timeout=60)[0]


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("--remote", "localhost:1"), 1, "can't be reached"),
        (("--remote", "nonsense"), 1, "is no HOST:PORT"),
        (("--emulator", "qemu-of-no-machine", "--", "true"), 2, "there is no emulator"),
        (("--emulator", "false", "--", "/bin/true"), 1, "ended before /bin/true began"),
        (("--emulator", "'", "--", "true"), 2, "--emulator: no closing quotation"),
        (("--engine", "remote", "--", "true"), 2, "say which program"),
        (("--remote", ":1", "--emulator", "x", "--", "true"), 2, "give one of them"),
        (("--remote", ":1", "--engine", "trap"), 2, "leave out --engine"),
        (("--remote", ":1", "-p", "1"), 2, "is of this machine, and --remote names"),
        (("--emulator", "x", "-p", "1"), 2, "not a process"),
        (("--sysroot", "/", "-p", "1"), 2, "say which program"),
    ],
)
def test_wrong_command_lines(words: tuple[str, ...], code: int, said: str) -> None:
    done = subprocess.run([*TRACE, *words], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, said in done.stderr) == (code, True), done
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("counting", [(), ("--count",)])
def test_a_program_that_an_emulator_cannot_run_is_named(
    counting: tuple[str, ...], usdtbuild: Any, emulated: str, tmp_path: Path
) -> None:
    """As without an emulator: the file, why, and the same exit code, whether the server is asked or the plugin."""
    (tmp_path / "text").write_text("no program\n")

    def said(program: Any, *emulator: str) -> str:
        done = usdtbuild("trace", *counting, *emulator, "--", program, cwd=tmp_path, code=1)
        lines: list[str] = done.stderr.splitlines()
        assert [line for line in lines[:-1] if "was built without plugins" not in line] == []
        return lines[-1]

    here = ("--emulator", emulated)
    assert said("./nosuch", *here) == said("./nosuch") == "usdtbuild: ./nosuch: can't be run: no such file or directory"
    assert said(tmp_path, *here) == f"usdtbuild: {tmp_path}: can't be run: is a directory"
    in_path = said("env", *here)
    assert "env: can't be run: no such file or directory; emulators don't look in PATH: " in in_path
    assert "ended before ./text began (exit code" in said("./text", *here)


def serve_once(answers: dict[bytes, bytes], default: bytes = b"") -> tuple[str, threading.Thread]:
    """A server that answers packets from a table, to be what no real one should be."""
    listening = socket.create_server(("localhost", 0))

    def serve() -> None:
        with listening, listening.accept()[0] as connection:
            received = b""
            while piece := connection.recv(4096):
                received += piece
                while found := re.search(rb"\$([^#]*)#..", received):
                    received = received[found.end() :]
                    text = answers.get(found[1].split(b":")[0], default)
                    connection.sendall(b"+$" + text + b"#%02x" % (sum(text) & 255))

    thread = threading.Thread(target=serve)
    thread.start()
    return f"localhost:{listening.getsockname()[1]}", thread


@pytest.mark.parametrize(
    ("answers", "said"),
    [
        ({}, "where it should say why the program stopped"),
        ({b"?": b"W00"}, "holds no program that runs"),
        ({b"?": b"T05"}, "doesn't say which program"),
        ({b"?": b"S05", b"g": b"00000000"}, "doesn't say which program"),
    ],
)
def test_servers_that_say_too_little(answers: dict[bytes, bytes], said: str) -> None:
    where, thread = serve_once(answers)
    done = subprocess.run([*TRACE, "--remote", where], capture_output=True, text=True, timeout=60, check=False)
    thread.join(30)
    assert (done.returncode, said in done.stderr) == (1, True), done
    assert "Traceback" not in done.stderr


def test_a_server_that_waits_for_a_program_says_how_to_start_it(served: Any) -> None:
    words = [*TRACE, "-L", "puts", "--remote", served(options=("--multi",))[0]]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert "gdbserver --multi" in done.stderr
    assert "--attach PID" in done.stderr


@pytest.mark.parametrize(
    ("registers", "said"),
    [
        (b"l<target><reg name='rip' bitsize='64'", "can't be read"),
        (b"l<!DOCTYPE t [<!ENTITY a 'b'>]><target>&a;</target>", "can't be read"),
        (b"l<target><reg name='rip' bitsize='many'/></target>", "can't be read"),
        (b"l<target/>", "doesn't say which registers"),
    ],
)
def test_registers_that_are_described_wrongly(scene: Any, registers: bytes, said: str) -> None:
    answers = {b"?": b"S05", b"g": b"00" * 8, b"qSupported": b"qXfer:features:read+", b"qXfer": registers}
    where, thread = serve_once(answers)
    words = [*TRACE, "--remote", where, "--", str(scene("pie"))]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    thread.join(30)
    assert (done.returncode, said in done.stderr) == (1, True), done
    assert "Traceback" not in done.stderr
