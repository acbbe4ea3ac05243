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
from collections import Counter
from collections.abc import Iterator

from ..files import close_all_but
from .errors import TracerError
from .hosts import HOST
from .maps import Memory
from .patch.changes import clear_left, put_back_left
from .running import running
from .tracees import Tracees

_RECORD = struct.Struct("<IIQ8s")  # process, what, address, bytes
_OVER, _PROCESS, _GONE, _TRAP, _SEMAPHORE, _DOWN = range(6)
_ROOM = 1 << 20  # bytes of the pipe
_PATIENCE = 5.0  # how long it may take until the kernel has let go of what a killed worker traced, in seconds


class Keeper:
    """The worker's side; says nothing until it is started."""

    _sink = -1

    def start(self, held: int) -> None:
        """Fork it; this process has no other threads yet. It alone has the descriptor `held` from then on, whose end
        the front waits for. Raises OSError."""
        source, self._sink = os.pipe()
        if not os.fork():
            try:
                _keep(source, held)
            finally:
                os._exit(0)
        for number in {source, held} - {-1}:
            os.close(number)
        with contextlib.suppress(OSError):  # the limit of a user may be less
            fcntl.fcntl(self._sink, fcntl.F_SETPIPE_SZ, _ROOM)

    def process(self, pid: int, family: int) -> None:
        """Say that a process is about to be changed, and of which family it is: what stood at a breakpoint's address is
        the same in all of them."""
        one = running(pid)
        self._say(pid, _PROCESS, family, struct.pack("<Q", one.started if one is not None else 0))

    def gone(self, pid: int) -> None:
        """Say that a process has ended: its number may soon be another's."""
        self._say(pid, _GONE)

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


class _Said:
    """What the worker has said, each place once."""

    def __init__(self) -> None:
        self.processes: dict[int, int] = {}  # and their families
        self.started: dict[int, int] = {}  # when, which tells them from later ones of the same number
        self.breakpoints: dict[tuple[int, int], bytes] = {}  # by family and address
        self.semaphores: Counter[tuple[int, int]] = Counter()
        self.is_over = True  # as long as nothing has begun

    def hear(self, pid: int, what: int, address: int, before: bytes) -> None:
        self.is_over = what == _OVER
        if what == _PROCESS:
            self.processes[pid], self.started[pid] = address, int.from_bytes(before, "little")
        elif what == _GONE:
            self.processes.pop(pid, None)
        elif what == _TRAP and pid in self.processes:
            self.breakpoints[self.processes[pid], address] = before
        elif what in {_SEMAPHORE, _DOWN}:
            self.semaphores[pid, address] += 1 if what == _SEMAPHORE else -1


def _keep(source: int, held: int) -> None:
    """Wait for the worker's end. Nothing else of the worker's stays open here, whose ends others wait for."""
    null = os.open(os.devnull, os.O_RDWR)
    close_all_but({null, source, held})
    for number in {0, 1, 2} - {source, held}:
        os.dup2(null, number)
    said, left = _Said(), b""
    while piece := os.read(source, _ROOM):
        left += piece
        whole = len(left) // _RECORD.size * _RECORD.size
        for record in _RECORD.iter_unpack(left[:whole]):
            said.hear(*record)
        left = left[whole:]
    pids = [] if said.is_over else sorted(said.processes)
    deadline = time.monotonic() + _PATIENCE
    while pids and time.monotonic() < deadline:  # the kernel may not have let go of all of them yet
        pids = [pid for pid in pids if not _is_put_back(pid, said)]
        time.sleep(0.001)
    for pid in said.processes if not said.is_over else ():  # only now: those that were forked share their journals
        with contextlib.suppress(OSError), contextlib.closing(Memory(pid)) as memory:
            clear_left(pid, memory)


def _is_put_back(pid: int, said: _Said) -> bool:
    """Put back what a killed worker has changed in a process; return whether nothing is left to be done there."""
    one, tracees = running(pid), Tracees()
    if one is None or one.started != said.started[pid]:
        return True
    try:
        tracees.seize(pid)
    except TracerError:
        return False
    with contextlib.suppress(OSError, TracerError):
        _put_back(tracees, pid, said)
    return True


def _put_back(tracees: Tracees, pid: int, said: _Said) -> None:
    """Do so in a process that is seized. Raises TracerError, OSError."""
    trap = HOST.traps.instruction
    with _standing(tracees, pid), contextlib.closing(Memory(pid)) as memory:
        # A process that was forked has those of the other; only a trap goes.
        for (family, address), before in said.breakpoints.items():
            if family == said.processes[pid] and memory.read(address, len(trap)) == trap:
                memory.write(address, before[: len(trap)])
        for (_, address), count in ((one, count) for one, count in said.semaphores.items() if one[0] == pid):
            value = memory.word(address, 2)
            if value and count > 0:
                memory.write(address, struct.pack("<H", value - 1))
        put_back_left(tracees, pid, memory)


@contextlib.contextmanager
def _standing(tracees: Tracees, pid: int) -> Iterator[None]:
    """Let a seized process stand in the body of the `with`, and go afterwards. Raises TracerError, OSError."""
    try:
        with tracees.standing(pid):
            yield
    finally:
        tracees.stop(pid)
        tracees.detach(pid)
        tracees.detach_late()
