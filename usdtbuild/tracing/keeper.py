"""The process that puts back what the worker has changed, if the worker is killed (`kill -9`, no memory left).

It is forked of the worker before anything is changed, so it has the right to. The worker tells it of each process, and
of each breakpoint and semaphore before it writes one, through a pipe, which holds what was said also when the worker
is gone; what jumps have changed stands in the processes' own memory (`patch.journal`). It never touches a process while
the worker lives, and ends with it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import struct
import time
from typing import TYPE_CHECKING

from .errors import TracerError
from .hosts import HOST
from .maps import Memory
from .patch.changes import clean_up
from .tracees import Tracees

if TYPE_CHECKING:
    from collections.abc import Iterator

_RECORD = struct.Struct("<IIQ8s")  # process, what, address, bytes
_OVER, _PROCESS, _TRAP, _SEMAPHORE, _DOWN = range(5)
_ROOM = 1 << 20  # bytes of the pipe
_PATIENCE = 5.0  # how long it may take until the kernel has let go of what a killed worker traced, in seconds


class Keeper:
    """The worker's side; says nothing until it is started."""

    _sink = -1

    def start(self) -> None:
        """Fork it; this process has no other threads yet. Raises OSError."""
        source, self._sink = os.pipe()
        if not os.fork():
            try:
                _keep(source)
            finally:
                os._exit(0)
        os.close(source)
        with contextlib.suppress(OSError):  # the limit of a user may be less
            fcntl.fcntl(self._sink, fcntl.F_SETPIPE_SZ, _ROOM)

    def process(self, pid: int) -> None:
        """Say that a process is about to be changed."""
        self._say(pid, _PROCESS)

    def breakpoint(self, pid: int, address: int, before: bytes) -> None:
        """Say that a breakpoint will stand at an address of a process, and what stands there now."""
        self._say(pid, _TRAP, address, before)

    def semaphore(self, pid: int, address: int, change: int) -> None:
        """Say that a semaphore of a process will be counted up, or down again."""
        self._say(pid, _SEMAPHORE if change > 0 else _DOWN, address)

    def end(self) -> None:
        """Say that all is put back."""
        self._say(0, _OVER)

    def _say(self, pid: int, what: int, address: int = 0, before: bytes = b"") -> None:
        if self._sink >= 0:
            with contextlib.suppress(OSError):  # it was killed; it isn't needed while we live
                os.write(self._sink, _RECORD.pack(pid, what, address, before))


KEEPER = Keeper()


def _keep(source: int) -> None:
    """Wait for the worker's end. Nothing of the worker's stays open here, whose ends others wait for."""
    null = os.open(os.devnull, os.O_RDWR)
    for number in range(3):
        os.dup2(null, number)
    os.dup2(source, 3)
    os.closerange(4, os.sysconf("SC_OPEN_MAX"))
    said = b""
    while piece := os.read(3, _ROOM):
        said += piece
    records = list(_RECORD.iter_unpack(said[: len(said) // _RECORD.size * _RECORD.size]))
    if records and records[-1][1] != _OVER:
        for pid in dict.fromkeys(pid for pid, what, _, _ in records if what == _PROCESS):
            with contextlib.suppress(OSError, TracerError):
                _put_back(pid, records)


def _put_back(pid: int, records: list[tuple[int, int, int, bytes]]) -> None:
    """Put back what a killed worker has changed in a process. Raises TracerError, OSError."""
    trap = HOST.traps.instruction
    tracees = Tracees()
    with _seized(tracees, pid), contextlib.closing(Memory(pid)) as memory:
        # Of a process that was forked, what the other has: an address says enough, because only a trap goes.
        for address, before in {at: before for _, what, at, before in records if what == _TRAP}.items():
            if memory.read(address, len(trap)) == trap:
                memory.write(address, before[: len(trap)])
        up = [at for one, what, at, _ in records if (one, what) == (pid, _SEMAPHORE)]
        for _, _, address, _ in (record for record in records if record[:2] == (pid, _DOWN)):
            up.remove(address)
        for address in up:
            memory.write(address, struct.pack("<H", max(0, (memory.word(address, 2) or 0) - 1)))
        clean_up(tracees, pid, memory)


@contextlib.contextmanager
def _seized(tracees: Tracees, pid: int) -> Iterator[None]:
    """Let a process stand in the body of the `with`. Raises TracerError, OSError."""
    deadline = time.monotonic() + _PATIENCE
    while True:
        try:
            tracees.seize(pid)
            break
        except TracerError:
            if not os.path.exists(f"/proc/{pid}") or time.monotonic() > deadline:  # noqa: PTH110
                raise
            time.sleep(0.001)
    try:
        with tracees.standing(pid):
            yield
    finally:
        tracees.stop(pid)
        tracees.detach(pid)
        tracees.detach_late()
