"""The worker's part of `--lossless`, where threads wait for room: who must not wait, and for how long they did.

The waiting itself is a system call (futex) in the program, in pieces of a millisecond; see `claim_waiting` in the
templates. A seccomp filter may end a program for it. Programs that have a filter aren't patched at all; one that gets a
filter later is told so within some milliseconds by a word in its rings.
"""

from __future__ import annotations

import time
from collections.abc import Iterable

from . import clock
from .patch.engine import PatchEngine
from .patch.rings import Rings
from .running import status_field


class Waiting:
    """What is known of threads that wait."""

    def __init__(self, patience: float) -> None:
        self._patience, self._since = patience, time.monotonic()
        self._is_filtered = False

    def look(self, pids: Iterable[int], engines: Iterable[tuple[int, PatchEngine]]) -> None:
        """Let nobody wait from now on, if one of these processes has a filter of system calls."""
        if not self._patience:
            return
        self._is_filtered |= any(status_field(pid, "Seccomp") not in {"", "0"} for pid in pids)
        for _, one in engines if self._is_filtered else ():
            if isinstance(one.rings, Rings):
                one.rings.nobody_waits = True

    def notes(self, engines: Iterable[tuple[int, PatchEngine]], threads: int) -> list[str]:
        """Return what a user must know at the end, of a program that had so many threads."""
        if not self._patience:
            return []
        found, lost = list[str](), False
        waited = 0
        for _, one in engines:
            waited, lost = waited + one.waited, lost or any(one.totals().lost.values())
        # The program may have written anything there.
        seconds = min(waited / clock.rate(), threads * (time.monotonic() - self._since))
        if seconds:
            found.append(f"threads have waited for {seconds:.3g} s in all until their hits were read (--lossless)")
        if self._is_filtered:
            found.append(
                "warning: the program has got a seccomp filter, which may end it for waiting, so it didn't wait"
            )
        elif lost:
            found.append(f"warning: nothing was read for {self._patience:g} s, so threads went on without (--lossless)")
        return found
