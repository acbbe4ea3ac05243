"""Sites that somebody else has changed while they were armed: perf's, bpftrace's or a debugger's breakpoint.

What comes to an armed site takes its hits, and when it goes the file's own code is there again. Nothing tells of it, so
it is looked for, and said.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from .arming import Process
    from .model import Refusal

_LOOKS = 1.0  # seconds between two looks


class Taken:
    """Looks for such sites from time to time."""

    def __init__(self) -> None:
        self._next = 0.0

    def look(self, processes: Iterable[Process]) -> list[Refusal]:
        """Return those that there are, if it is time to look."""
        if time.monotonic() < self._next:
            return []
        self._next = time.monotonic() + _LOOKS
        return [found for process in processes for found in process.taken()]
