"""Start a program so that it can be seized before its first instruction."""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

_PYTHON_IGNORES = (signal.SIGPIPE, signal.SIGXFSZ)


class Spawned:
    """A child that waits, before its exec, until it is told to `go`."""

    def __init__(
        self, argv: Sequence[str], cwd: str, env: Mapping[str, str], group: int, mask: set[int],
        before: Callable[[], object] = int, deaf: Iterable[int] = (),
    ) -> None:  # fmt: skip
        """Fork it; it keeps our standard streams. `group` is its process group, `mask` the signals it blocks.

        `before` is called in it, before it waits. `deaf` are signals that we ignore, and that it shall not ignore.
        """
        self.name, self._folder = argv[0], cwd or "."
        go, self._go = os.pipe()
        self._failure, failure = os.pipe()
        before_fork = signal.pthread_sigmask(signal.SIG_BLOCK, deaf)  # until it doesn't ignore them any more
        self.pid = os.fork()
        if self.pid:
            signal.pthread_sigmask(signal.SIG_SETMASK, before_fork)
        else:
            try:
                os.close(self._go)
                before()
                self._become(argv, cwd, env, group, mask, (*_PYTHON_IGNORES, *deaf), go)
            except OSError as error:
                os.write(failure, str(error.errno).encode("ascii"))
            finally:
                os._exit(127)
        os.close(go)
        os.close(failure)

    @staticmethod
    def _become(
        argv: Sequence[str], cwd: str, env: Mapping[str, str], group: int, mask: set[int], usual: Iterable[int], go: int
    ) -> None:
        if group:
            with contextlib.suppress(OSError):  # the group may have ended
                os.setpgid(0, group)
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
