"""Start a program: at once, or so that it can be seized before its first instruction."""

from __future__ import annotations

import contextlib
import os
import signal
import time
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import IO

from ..errors import InputError, Told

_PYTHON_IGNORES = (signal.SIGPIPE, signal.SIGXFSZ)


class Spawned:
    """A child that waits, before its exec, until it is told to `go`. Every program that a trace starts is one."""

    def __init__(
        self, argv: Sequence[str], cwd: str, env: Mapping[str, str] | None, *, mask: set[int] | None = None,
        before: Callable[[], object] = int, deaf: Iterable[int] = (), streams: Sequence[IO[bytes] | None] = (),
    ) -> None:  # fmt: skip
        """Fork it. `env` is its environment, by default ours; `streams` its standard streams, None for each of ours.

        `mask` are the signals that it blocks (by default those that we block). `before` is called in it, before it
        waits. `deaf` are signals that we ignore, and that it shall not ignore. Raises InputError.
        """
        self.name, self._folder = argv[0], cwd or "."
        self.returncode: int | None = None
        go, self._go = os.pipe()
        self._failure, failure = os.pipe()
        before_fork = signal.pthread_sigmask(signal.SIG_BLOCK, deaf)  # until it doesn't ignore them any more
        blocked = {int(one) for one in before_fork} if mask is None else mask
        try:
            with warnings.catch_warnings(), Told(self.name, "can't be started"):
                # A fork beside other threads: the child only makes system calls, and execs.
                warnings.simplefilter("ignore", DeprecationWarning)
                self.pid = os.fork()
        except InputError:
            signal.pthread_sigmask(signal.SIG_SETMASK, before_fork)
            for one in (go, self._go, self._failure, failure):
                os.close(one)
            raise
        if self.pid:
            signal.pthread_sigmask(signal.SIG_SETMASK, before_fork)
        else:
            try:
                os.close(self._go)
                for number, stream in enumerate(streams):
                    if stream is not None:
                        os.dup2(stream.fileno(), number)
                before()
                environment = os.environ if env is None else env
                self._become(argv, cwd, environment, blocked, (*_PYTHON_IGNORES, *deaf), go)
            except OSError as error:
                os.write(failure, str(error.errno).encode("ascii"))
            finally:
                os._exit(127)
        os.close(go)
        os.close(failure)

    @staticmethod
    def _become(
        argv: Sequence[str], cwd: str, env: Mapping[str, str], mask: set[int], usual: Iterable[int], go: int
    ) -> None:
        for number in usual:  # what is ignored would stay so over the exec
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        if not os.read(go, 1):  # nobody will tell us any more
            os._exit(127)
        os.chdir(cwd or ".")
        os.execvpe(argv[0], list(argv), dict(env))

    def go(self) -> None:
        """Let it go on to its exec."""
        os.write(self._go, b"g")
        os.close(self._go)

    def check(self) -> None:
        """Raise InputError if it could not be executed."""
        said = os.read(self._failure, 16)
        os.close(self._failure)
        if said:
            here = "/" not in self.name and Path(self._folder, self.name).is_file()
            cure = f"it is in this folder, and not in PATH: ./{self.name}" if here else ""
            raise InputError(self.name, f"can't be run: {os.strerror(int(said)).lower()}", cure)

    def begin(self) -> Spawned:
        """Let it go, and return it once it is executed. Raises InputError if it can't be."""
        self.go()
        try:
            self.check()
        except InputError:
            self.wait()
            raise
        return self

    # -- its end, where nobody else waits for it ----------------------------------------------------------------------

    def poll(self) -> int | None:
        """Return how it has ended, negative for a signal; None if it hasn't."""
        if self.returncode is None:
            with contextlib.suppress(ChildProcessError):
                pid, status = os.waitpid(self.pid, os.WNOHANG)
                self.returncode = os.waitstatus_to_exitcode(status) if pid else None
        return self.returncode

    def wait(self, timeout: float = float("inf")) -> int | None:
        """Wait for its end, at most `timeout` seconds; return what `poll` does."""
        deadline, pause = time.monotonic() + timeout, 0.0005
        while self.poll() is None and (left := deadline - time.monotonic()) > 0:
            time.sleep(min(pause, left))
            pause = min(2 * pause, 0.02)
        return self.returncode

    def kill(self) -> None:
        """End it, with SIGKILL, if it hasn't ended."""
        if self.poll() is None:
            os.kill(self.pid, signal.SIGKILL)
