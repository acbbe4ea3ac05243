"""Numbers of processes and threads in a container, and here: a process writes those that it knows itself by.

The kernel gives a process a number in each PID namespace from its own out to the first (pid_namespaces(7)).
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence

from .model import Event
from .running import status_field

_AGAIN = 0.01  # seconds between two looks at the threads of processes, at least


def number_inside(number: int) -> int:
    """Return what a process or thread here is told when it asks for its number."""
    words = status_field(number, "NSpid").split()
    return int(words[-1]) if words else number


class Family(dict[int, int]):
    """The processes of a family by what they write, with their numbers here; and what is known of their threads."""

    def __init__(self) -> None:
        super().__init__()
        self._threads: dict[tuple[int, int], int] = {}
        self._again = 0.0
        self._is_inside = False

    def __setitem__(self, inside: int, pid: int) -> None:
        super().__setitem__(inside, pid)
        self._is_inside |= inside != pid

    def here(self, events: Sequence[Event]) -> Sequence[Event]:
        """Return hits of these processes with the numbers here. A thread that has ended too soon keeps its own."""
        if not self._is_inside:
            return events
        threads = {(self[event.pid], event.tid) for event in events}
        if not threads <= self._threads.keys() and time.monotonic() >= self._again:
            self._look({pid for pid, _ in threads})
        first = {(self[inside], inside): self[inside] for inside in {event.pid for event in events}}
        known = {**self._threads, **first}
        return [event._replace(pid=pid, tid=known.get((pid, event.tid), event.tid))
                for event in events for pid in [self[event.pid]]]  # fmt: skip

    def _look(self, pids: set[int]) -> None:
        """Learn which threads processes have now; the program may write any number, so not at once again."""
        self._threads = {one: tid for one, tid in self._threads.items() if one[0] in pids}
        for pid in pids:
            try:
                tids = [int(name) for name in os.listdir(f"/proc/{pid}/task")]  # noqa: PTH208
            except OSError:
                continue
            self._threads |= {(pid, number_inside(tid)): tid for tid in tids}
        self._again = time.monotonic() + _AGAIN
