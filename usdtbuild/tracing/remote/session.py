"""A trace of a program that a gdb server holds.

One thread of one process does it all: it waits for the server to say that the program has stopped, and lets it go on.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from ...errors import UsdtError
from ..errors import TracerError
from ..job import Job
from ..model import Event, Refusal, Report, Stops, Totals
from ..tracer import Tracer
from .emulator import Emulator, prefix_of
from .packets import Link, connect
from .program import Program
from .server import Server

_BATCH = 500  # events at once
_LEAVING = 30.0  # seconds to leave a program in which the interrupt was lost: with its next hit
_NONE = (
    "holds no program that runs. `gdbserver --multi` waits to be told one, which is not done here: "
    "start it as `gdbserver HOST:PORT PROGRAM`, or with `--attach PID`"
)
_THREADED = "the program has started threads; QEMU's server may hang once they have hits; --count doesn't need it"


def why_not(_: Job) -> str:
    """Return why no server can be used here, '' if one can: whoever asks for it names one."""
    return ""


class Remote(Tracer):
    """A trace through a server."""

    def __init__(self, wish: Job, tell: Callable[[str], None] = lambda _: None) -> None:
        super().__init__(wish, tell)
        self.engines = ("remote",)
        self._emulator: Emulator | None = None
        self._link: Link | None = None
        self._server: Server | None = None
        self._program: Program | None = None
        self._stopped = self._over = False
        self._own_threads = 0  # of the emulator's, before the program has begun
        self._threaded = False

    def start(self, stdin: Any = None, stdout: Any = None, stderr: Any = None) -> None:
        """Connect, and arm what is there; the program goes on. Raises UsdtError."""
        wish = self.wish
        if wish.emulator:
            self._emulator = Emulator(wish, (stdin, stdout, stderr))
        link = self._emulator.link if self._emulator else connect(wish.remote)
        self._link = link
        link.end = time.monotonic() + wish.duration
        self._server = Server(link)
        if self._server.first.exited is not None:
            raise TracerError(f"{link.name} {_NONE}")
        self._program = program = Program(self._server, wish, wish.sysroot or prefix_of(wish.emulator))
        self.targets, self.refusals = program.found.targets, program.found.refusals
        if self._emulator is not None:
            program.main.pid = self._emulator.process.pid
            self._own_threads = self._emulator.threads()
        self.pid = program.main.pid
        self.started = time.monotonic_ns()
        if not self._stopped:
            link.end = time.monotonic() + wish.duration
        program.go_on()

    def batches(self, timeout: float = 0.1) -> Iterator[Sequence[Event]]:
        """Yield events, as `Tracer.batches` says."""
        program, server = self._program, self._server
        assert program is not None
        assert server is not None
        until = time.monotonic() + timeout
        lost: TracerError | None = None
        while not self._over:
            try:
                stop = server.wait(max(0.0, until - time.monotonic()))
                if stop is not None:
                    if program.look(stop):
                        program.go_on()
                    else:
                        self._ended()
                if self._stopped and not self._over:
                    self._leave(program)
            except TracerError as error:
                self._over, lost = True, error
            finally:
                self._look_for_threads()
            if time.monotonic() >= until or len(program.events) >= _BATCH or self._over:
                batch, program.events = program.events, []
                yield batch
                until = time.monotonic() + timeout
        if lost is not None and self._emulator is not None:
            yield from self._go_without(self._emulator, program, timeout)
        elif lost is not None:
            raise lost
        self.finished = time.monotonic_ns()

    def _go_without(self, emulator: Emulator, program: Program, timeout: float) -> Iterator[Sequence[Event]]:
        """Wait for the end of an emulator whose server is gone: somebody has ended it, or it became another program."""
        while not self._stopped:
            self.exit_code = emulator.process.wait(timeout)
            if self.exit_code is not None:
                break
            yield []
        if self.exit_code is None or self.exit_code >= 0:
            why = "it became another program, which the emulator's server doesn't follow"
            program.found.refuse([Refusal(program.main.files.program.path, why)])

    def _look_for_threads(self) -> None:
        """Say so if the program has started threads under an emulator, before that hangs."""
        if self._emulator is None or self._threaded:
            return
        if self._emulator.threads() > self._own_threads > 0:
            self._threaded = True
            self.tell(_THREADED)

    def _leave(self, program: Program) -> None:
        self._over = True
        emulator = self._emulator
        program.leave(emulator.interrupt if emulator else None, self.tell)
        if program.exited is not None:
            self._ended()

    def _ended(self) -> None:
        self._over = True
        self.exit_code = self._emulator.ended() if self._emulator is not None else None

    def stop(self) -> None:
        """Ask for the end: everything is put back, and the program goes on without us."""
        self._stopped = True
        if self._link is not None:
            leaving = _LEAVING if self._program is not None else 0.0  # nothing is armed yet
            self._link.end = min(self._link.end, time.monotonic() + leaving)

    def kill(self) -> None:
        """End the program that was started, with SIGKILL."""
        if self._emulator is not None:
            self._emulator.kill()

    @property
    def totals(self) -> Totals:
        """Hits so far, by target; none are ever lost."""
        return Totals(dict(self._program.counts) if self._program else {}, {})

    def report(self) -> Report:
        """Return how the trace was."""
        self.looked_up = self._program is not None and self._program.found.looked_up
        hits = sum(self.totals.counts.values())
        self.stops = Stops(hits, 0, 0) if hits else None
        return super().report()

    def close(self) -> None:
        """Let go; what a trace that failed has left in the program is put back, if the server is still there."""
        if self._server is not None:
            if self._program is not None and not self._over:
                with contextlib.suppress(UsdtError):
                    self._leave(self._program)
            self._server.link.close()
            self._server = None
        if self._emulator is not None and self._program is None:  # it has not begun
            self._emulator.kill()
