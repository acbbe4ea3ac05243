"""Programs and traces that run while a test talks to them, and what they have in memory."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, Any

from usdtbuild.tracing.maps import Memory, areas

TRACE = sys.executable, "-m", "usdtbuild", "trace"


class Started(subprocess.Popen[str]):
    """A process whose input and output are pipes, for `with`, at whose end it is waited for, or killed on a failure."""

    def __init__(self, *words: object, **more: Any) -> None:
        super().__init__([*map(str, words)], **{"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, **more}, text=True)

    def __exit__(self, kind: object, value: object, traceback: object) -> None:
        if kind:
            self.kill()
        super().__exit__(None, None, None)

    def line(self) -> str:
        """Its next line."""
        return _line(self.stdout)

    def said(self) -> str:
        """The next line of its errors."""
        return _line(self.stderr)

    def tell(self, line: str = "") -> None:
        """Give it a line."""
        assert self.stdin is not None
        self.stdin.write(f"{line}\n")
        self.stdin.flush()

    def end(self, given: str | None = None, timeout: float = 60) -> str:
        """Give it the last of its input, if there is any; return the rest of its output when it has ended."""
        return self.communicate(given, timeout=timeout)[0]

    def interrupt(self) -> tuple[str, str]:
        """End it as Ctrl-C does; return the rest of what it printed."""
        self.send_signal(signal.SIGINT)
        return self.communicate(timeout=60)


def _line(pipe: IO[str] | None) -> str:
    """Read no more than a line: `communicate` doesn't see what a file object has read ahead."""
    assert pipe is not None
    line = b""
    while not line.endswith(b"\n") and (byte := os.read(pipe.fileno(), 1)):
        line += byte
    return line.decode()


def ready(*words: object, **more: Any) -> Started:
    """Start a program, and wait until it says that it is ready."""
    process = Started(*words, **more)
    if process.line().rstrip("\n") not in {"ready", f"ready {words[0]}"}:
        process.kill()
        raise AssertionError(f"{words[0]} is not ready: {process.communicate()}")
    return process


def tracing(*words: object, before: Sequence[str] = (), **more: Any) -> Started:
    """Start `usdtbuild trace -v` of a process, and wait until it says that it traces that."""
    trace = Started(*before, *TRACE, "-v", *words, **{"stdin": None, "stderr": subprocess.PIPE, **more})
    said = trace.said()
    if "tracing process" not in said:
        trace.kill()
        raise AssertionError(said + str(trace.communicate()))
    return trace


def wait_for(condition: Callable[[], object], what: str = "", seconds: float = 60) -> None:
    """Wait until something is so."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.01)


def children_of(pid: int) -> list[int]:
    """Return the processes that a process' first thread has started."""
    return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def code_of(pid: int, program: object) -> bytes:
    """Return the code of a program's own file, as a process has it now."""
    with contextlib.closing(Memory(pid)) as memory:
        code = [one for one in areas(pid) if one.name == str(program) and "x" in one.flags]
        if not code:
            raise FileNotFoundError(f"process {pid} has not mapped {program}")
        return b"".join(memory.read(one.start, one.end - one.start) for one in code)
