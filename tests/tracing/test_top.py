"""`usdtbuild top`: the screen in a terminal, its keys, and the lines of who has no terminal."""

from __future__ import annotations

import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from fcntl import ioctl
from pathlib import Path
from typing import Any

import pytest

from .test_every import program  # noqa: F401  (a fixture)

WORDS = [sys.executable, "-m", "usdtbuild", "top", "--every", "100ms"]
LEAVES = "\x1b[?1049l"  # xterm's control sequences: the normal screen comes back


class Terminal:
    """A command in a terminal of its own, as its user sees it."""

    def __init__(self, words: list[Any], columns: int = 100, kind: str = "xterm") -> None:
        self._ours, theirs = pty.openpty()
        ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        self.before = termios.tcgetattr(theirs)
        self._theirs, self.text = theirs, ""
        self.running = subprocess.Popen(
            ["setsid", "--ctty", *map(str, words)], stdin=theirs, stdout=theirs, stderr=theirs,
            env={**os.environ, "TERM": kind},
        )  # fmt: skip

    def read_until(self, is_there: Callable[[str], object], what: str) -> None:
        """Read on until a screen, since the last time, has what is looked for."""
        self.text, deadline = "", time.monotonic() + 60
        while not is_there(self.text):
            assert time.monotonic() < deadline, f"{what}: {self.text[-2000:]!r}"
            if select.select([self._ours], [], [], 0.1)[0]:
                self.text += os.read(self._ours, 1 << 16).decode()

    def press(self, keys: str) -> None:
        os.write(self._ours, keys.encode())

    def end(self) -> int:
        """Wait for the end, reading what comes; return the exit code, having looked at the terminal's state."""
        while self.running.poll() is None:
            if select.select([self._ours], [], [], 0.1)[0]:
                self.text += os.read(self._ours, 1 << 16).decode()
        while select.select([self._ours], [], [], 0.2)[0]:
            self.text += os.read(self._ours, 1 << 16).decode()
        assert termios.tcgetattr(self._theirs) == self.before
        os.close(self._ours)
        os.close(self._theirs)
        return self.running.returncode


@pytest.fixture
def running(program: Path) -> Iterator[subprocess.Popen[bytes]]:  # noqa: F811
    started = subprocess.Popen([program, "1", "600.0"], stderr=subprocess.DEVNULL)
    yield started
    started.kill()
    started.wait()


def names(text: str) -> list[str]:
    """Return the names of the last whole screen, from the top down."""
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text.rpartition("q quit")[0].rpartition("COUNT")[2])
    return re.findall(r"every:\S+(?: \S+ by \w+: \S+)?", plain)


def test_a_screen_is_sorted_by_keys_and_leaves_the_terminal_as_it_was(running: Any) -> None:
    screen = Terminal([*WORDS, "--sum", "size", "--by", "id", "-P", "every:*", "-p", running.pid])
    screen.read_until(lambda text: len(names(text)) == 10, "three probes, and seven keys of one")
    screen.press("n")
    screen.read_until(lambda text: re.search(r"4mNAME.*q quit", text, re.DOTALL), "that it is sorted by name")
    screen.read_until(lambda text: names(text) and names(text) == sorted(names(text)), "sorted by name")
    screen.press("c")
    screen.read_until(lambda text: "by id" not in "".join(names(text)[:3]) and len(names(text)) == 10, "by count")
    screen.press("t?")
    screen.read_until(lambda text: "by id" in (names(text) or [""])[0], "by total, which probes haven't got")
    screen.press("q")
    assert screen.end() == 0
    assert LEAVES in screen.text
    after = screen.text.rpartition(LEAVES)[2]
    assert re.search(r"total, [0-9.]+ s:\r\nevery:tick size by id: 7 values in [0-9]+ hits", after)
    assert running.poll() is None


def test_a_narrow_screen_shows_names_before_numbers(running: Any) -> None:
    screen = Terminal([*WORDS, "--latency", "start", "done", "--by", "process", "-p", running.pid], columns=40)
    shown = f"{running.pid}"
    screen.read_until(lambda text: shown in text.partition("COUNT")[2].rpartition("q quit")[0], "which process it is")
    screen.read_until(lambda text: "COUNT" in text, "another screen")
    screen.press("9")
    screen.read_until(lambda text: re.search(r"4m *P99.*\d ns", text, re.DOTALL), "that by which it is sorted")
    screen.press("q")
    assert screen.end() == 0


def test_a_dumb_terminal_gets_the_tables_of_each_interval(running: Any) -> None:
    screen = Terminal([*WORDS, "-P", "tick", "-p", running.pid], kind="dumb")
    screen.read_until(lambda text: len(re.findall(r"[0-9.]+ s:\r\n", text)) > 2, "intervals")
    screen.running.send_signal(signal.SIGINT)
    assert screen.end() == 0
    assert "\x1b" not in screen.text


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_leaves_the_terminal_as_it_was_too(number: signal.Signals, running: Any) -> None:
    screen = Terminal([*WORDS, "--latency", "start", "done", "-p", running.pid])
    screen.read_until(lambda text: re.search(r"[0-9] ns.*start to done", text), "pairs")
    screen.running.send_signal(number)
    assert screen.end() == (0 if number == signal.SIGINT else -number)
    assert LEAVES in screen.text
    assert re.search(r"start to done: [1-9][0-9]* pairs", screen.text)


def test_what_a_command_writes_is_not_on_the_screen_and_q_ends_it(program: Path) -> None:  # noqa: F811
    screen = Terminal([*WORDS, "--", "sh", "-c", f"echo lo''st; {program} 1 600.0; echo ne''ver"])
    screen.read_until(lambda text: "every:tick" in names(text), "its probes")
    assert "lost" not in screen.text
    screen.press("q")
    screen.end()
    assert "never" not in screen.text
    assert "runs on" not in screen.text


def test_what_is_wrong_is_said_on_the_normal_screen() -> None:
    screen = Terminal([*WORDS, "-p", 999_999_999])
    assert screen.end() == 1
    assert "there is no process 999999999" in screen.text
    assert "\x1b[?1049h" not in screen.text


def test_lines_stand_for_the_screen_where_there_is_no_terminal(program: Path, run: Any) -> None:  # noqa: F811
    done = run(*WORDS, "-P", "tick", "--", program, 1, "0.5")
    assert len(re.findall(r"^[0-9.]+ s:\n *[0-9]+  +[0-9.]+/s  every:tick$", done.stdout, re.MULTILINE)) > 2
    assert re.search(r"^total, [0-9.]+ s:\n", done.stdout, re.MULTILINE)
    assert "\x1b" not in done.stdout
