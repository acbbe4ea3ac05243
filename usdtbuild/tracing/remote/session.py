"""A trace of a program that a gdb stub holds, with the face of `tracing.session.Session`.

One thread of one process does it all: it waits for the stub to say that the program has stopped, and lets it go on.
"""

from __future__ import annotations

import contextlib
import subprocess
import time
from typing import TYPE_CHECKING, Any

from ...errors import UsdtError
from ..errors import TracerError
from ..model import Refusal, Report, Totals
from .emulator import Emulator
from .packets import connect
from .program import Program
from .stub import Stub

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from ..job import Job
    from ..model import Event, Target

_BATCH = 500  # events at once
_NONE = (
    "holds no program that runs. `gdbserver --multi` waits to be told one, which is not done here: "
    "start it as `gdbserver HOST:PORT PROGRAM`, or with `--attach PID`"
)
_THREADED = "the program has started threads; QEMU's stub may hang once they have hits; --count doesn't need it"


class Remote:
    """A trace through a stub. `batches` gives what it sees; `report` says how it was."""

    def __init__(self, wish: Job, tell: Callable[[str], None] = lambda _: None) -> None:
        """`tell` is how a user learns of what takes long."""
        self.wish, self._tell = wish, tell
        self.engines: tuple[str, ...] = ("remote",)
        self.pid = 0
        self.stood_still = 0.0  # all the time at which it looks at a hit, which nobody adds up
        self.started = self.finished = time.monotonic_ns()
        self.exit_code: int | None = None
        self._emulator: Emulator | None = None
        self._stub: Stub | None = None
        self._program: Program | None = None
        self._stopped = self._over = False
        self._own_threads = 0  # of the emulator's, before the program has begun
        self._threaded = False

    def start(self, stdin: Any = None, stdout: Any = None, stderr: Any = None) -> None:
        """Connect, and arm what is there; the program goes on. Raises UsdtError."""
        wish = self.wish
        if wish.emulator:
            streams = {"stdin": stdin, "stdout": stdout, "stderr": stderr}
            self._emulator = Emulator(wish.emulator, wish.argv, wish.cwd, wish.env, wish.sysroot, streams)
        link = self._emulator.link if self._emulator else connect(wish.remote)
        self._stub = Stub(link)
        if self._stub.first.exited is not None:
            raise TracerError(f"{link.name} {_NONE}")
        self._program = program = Program(self._stub, wish, wish.sysroot or prefix_of(wish.emulator))
        if self._emulator is not None:
            program.main.pid = self._emulator.process.pid
            self._own_threads = self._emulator.threads()
        self.pid = program.main.pid
        self.started = time.monotonic_ns()
        program.go_on()

    def batches(self, timeout: float = 0.1) -> Iterator[Sequence[Event]]:
        """Yield events, oldest first, as they come, until the program ends or the trace is stopped."""
        program, stub = self._program, self._stub
        assert program is not None
        assert stub is not None
        until = time.monotonic() + timeout
        lost: TracerError | None = None
        while not self._over:
            try:
                stop = stub.wait(max(0.0, until - time.monotonic()))
                if stop is not None:
                    if program.look(stop):
                        program.go_on()
                    else:
                        self._ended(program.exited)
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
        """Wait for the end of an emulator whose stub is gone: somebody has ended it, or it became another program."""
        while not self._stopped:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.exit_code = emulator.process.wait(timeout)
                break
            yield []
        if self.exit_code is None or self.exit_code >= 0:
            why = "it became another program, which the emulator's stub doesn't follow"
            program.found.refuse([Refusal(program.main.files.program.path, why)])

    def _look_for_threads(self) -> None:
        """Say so if the program has started threads under an emulator, before that hangs."""
        if self._emulator is None or self._threaded:
            return
        if self._emulator.threads() > self._own_threads > 0:
            self._threaded = True
            self._tell(_THREADED)

    def _leave(self, program: Program) -> None:
        self._over = True
        emulator = self._emulator
        program.leave(emulator.interrupt if emulator else None, self._tell)
        if program.exited is not None:
            self._ended(program.exited)

    def _ended(self, code: int | None) -> None:
        self._over = True
        self.exit_code = self._emulator.ended() if self._emulator is not None else code

    def stop(self) -> None:
        """Ask for the end: everything is put back, and the program goes on without us."""
        self._stopped = True

    def kill(self) -> None:
        """End the program that was started, with SIGKILL."""
        if self._emulator is not None:
            self._emulator.kill()

    @property
    def targets(self) -> list[Target]:
        """What is traced, so far."""
        return self._program.found.targets if self._program else []

    @property
    def refusals(self) -> list[Refusal]:
        """What is not traced, so far."""
        return self._program.found.refusals if self._program else []

    @property
    def totals(self) -> Totals:
        """Hits so far, by target; none are ever lost."""
        return Totals(dict(self._program.counts) if self._program else {}, {})

    def report(self) -> Report:
        """Return how the trace was."""
        totals = self.totals
        code = self.exit_code if self.wish.emulator else None
        looked_up = self._program is not None and self._program.found.looked_up
        counts = tuple(totals.counts.get(target.number, 0) for target in self.targets)
        return Report(
            tuple(self.targets), counts, (0,) * len(counts), tuple(self.refusals), self.engines, self.started,
            self.finished, time.time_ns() - time.monotonic_ns(), {}, code, looked_up,
        )  # fmt: skip

    def close(self) -> None:
        """Let go; what a trace that failed has left in the program is put back, if the stub is still there."""
        if self._stub is not None:
            if self._program is not None and not self._over:
                with contextlib.suppress(UsdtError):
                    self._leave(self._program)
            self._stub.link.close()
            self._stub = None
        if self._emulator is not None and self._program is None:  # it has not begun
            self._emulator.kill()

    def __enter__(self) -> Remote:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def prefix_of(emulator: Sequence[str]) -> str:
    """Return where an emulator's own options say that the program's libraries are."""
    for word, following in zip(emulator, [*emulator[1:], ""]):
        if word == "-L":
            return following
    return ""
