"""Interrupts: how a server is asked to stop its program, and how the program comes to know nothing of it.

gdbserver sends SIGINT to the program's process group, so each process of the group gets one, and each tells of it by a
stop of its own. Until then it waits in the kernel, and would end a process that nobody holds any more.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping

from .files import read_through
from .process import Process
from .server import INTERRUPTED, Server, Stop, process_of, thread_number

_LATEST = 30.0  # seconds in which one is taken for what was asked for, however busy the machine is
_SIGINT = 1 << 1  # in the sets of signals in /proc


class Interrupts:
    """The interrupts of one program. `asked`: processes that may have been sent one, and until when it may come."""

    def __init__(self, server: Server, processes: Mapping[str, Process]) -> None:
        self.server, self._processes = server, processes
        self.asked: dict[str, float] = {}

    def ask(self) -> None:
        """Ask for a stop."""
        self.server.link.interrupt()
        self.asked = dict.fromkeys(self._processes, time.monotonic() + _LATEST)

    def swallow(self, stop: Stop) -> bool:
        """Whether a stop is an interrupt that was asked for here, and means nothing to the program."""
        name = stop.process if stop.process in self._processes else next(iter(self._processes), "")
        if stop.exited is not None or stop.event or stop.signal not in {0, INTERRUPTED} or name not in self.asked:
            return False
        return self.asked.pop(name) >= time.monotonic()

    def wait_for(self, process: Process) -> bool:
        """Whether one waits for a standing process in the kernel; a thread of it takes it as soon as it runs."""
        if not process.name:
            return False
        process.turn()
        if not self._signals(f"/proc/{process.pid}/status", "ShdPnd") & _SIGINT:
            return False
        threads = [one for one in self.server.threads() if process_of(one) == process.name]
        files = [f"/proc/{process.pid}/task/{thread_number(one)}/status" for one in threads]
        return any(not self._signals(file, "SigBlk") & _SIGINT for file in files)

    def _signals(self, path: str, field: str) -> int:
        """Return a set of signals of a file in /proc, as the server's system has it; none where it can't be read."""
        for line in (read_through(self.server, path) or b"").decode("utf-8", "replace").split("\n"):
            if line.startswith(f"{field}:"):
                with contextlib.suppress(ValueError):
                    return int(line.partition(":")[2], 16)
        return 0
