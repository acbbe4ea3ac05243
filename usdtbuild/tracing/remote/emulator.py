"""Start a program under an emulator of user programs (`qemu-aarch64 -g`), so that it waits for us."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import IO

from ...errors import InputError, UsageError, UsdtError, reason
from ..errors import TracerError
from ..job import Job
from ..spawn import Spawned
from .packets import Link, connect

_PATIENCE = 30.0  # seconds for an emulator to listen


def environment(wish: Job) -> dict[str, str]:
    """Return what the job's emulator is started with. Raises UsageError if there is no such emulator."""
    if shutil.which(wish.emulator[0]) is None:
        raise UsageError(f"there is no emulator {wish.emulator[0]!r}; install it (qemu-user)")
    found = dict(wish.env if wish.env is not None else os.environ)
    if wish.sysroot:
        found.setdefault("QEMU_LD_PREFIX", wish.sysroot)
    return found


def not_begun(wish: Job, code: int) -> UsdtError:
    """Return why an emulator has ended before its program began: it may have said nothing itself."""
    program = wish.argv[0]
    try:
        descriptor = os.open(Path(wish.cwd, program), os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            os.read(descriptor, 1)  # folders can be opened
        finally:
            os.close(descriptor)
    except OSError as error:
        found = shutil.which(program) if "/" not in program else None
        cure = f"emulators don't look in PATH: {found}" if found else ""
        return InputError(program, f"can't be run: {reason(error)}", cure)
    why = "that is no program of its machine, or its dynamic linker isn't found (-L DIR)"
    return TracerError(f"{wish.emulator[0]} ended before {program} began (exit code {code}): {why}")


class Emulator:
    """A program under an emulator, which waits at its first instruction."""

    def __init__(self, wish: Job, streams: Sequence[IO[bytes] | None]) -> None:
        """Start it. Raises UsageError, TracerError."""
        env = environment(wish)
        # A private folder: nobody else can listen in our name, or connect before us.
        folder = Path(tempfile.mkdtemp(prefix="usdtbuild-"))
        words = [*wish.emulator, "-g", str(folder / "server"), *wish.argv]
        try:
            self.process = Spawned(words, wish.cwd, env, streams=streams).begin()
            self.link = self._connect(folder / "server", wish)
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def _connect(self, socket: Path, wish: Job) -> Link:
        name = wish.emulator[0]
        deadline = time.monotonic() + _PATIENCE
        while self.process.poll() is None and time.monotonic() < deadline:
            with contextlib.suppress(TracerError):
                link = connect(str(socket))
                link.name = name
                return link
            time.sleep(0.002)
        code = self.process.poll()
        if code is None:
            self.kill()
            raise TracerError(f"{name} doesn't listen for gdb; is it an emulator of user programs (qemu-user)?")
        raise not_begun(wish, code)

    def threads(self) -> int:
        """Return how many threads the emulator has: those of the program, and what it needs itself."""
        with contextlib.suppress(OSError):
            return len(list(Path(f"/proc/{self.process.pid}/task").iterdir()))
        return 0

    def interrupt(self) -> None:
        """Make the program stop: a signal that arrives is what an emulator tells its server about first.

        It is the one that nothing else sends to a program which must not be disturbed, and it is never passed on.
        """
        if self.process.poll() is None:
            os.kill(self.process.pid, signal.SIGTRAP)

    def ended(self) -> int | None:
        """Return how it ended, after its program has: the exit code, negative for a signal."""
        return self.process.wait(_PATIENCE)

    def kill(self) -> None:
        """End it, with SIGKILL."""
        self.process.kill()
        self.process.wait()


def prefix_of(emulator: Sequence[str]) -> str:
    """Return where an emulator's own options say that the program's libraries are."""
    for word, following in zip(emulator, [*emulator[1:], ""]):
        if word == "-L":
            return following
    return ""
