"""Processes that run on this machine: those that others have started, and those that run a program.

A number says which process is meant only for as long as that runs; with the time at which it was started, for good.
What runs a program is found by looking at all processes again and again, by the file's device and inode: a name says
nothing, and behind a path may be a newer file later. Who may not trace a process can't see which program it runs.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Container, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from .errors import TracerError

_PAUSE = 0.1  # seconds between two looks, more where a look takes long: a twentieth of a processor at most
_SHARE = 20
_KERNEL_THREAD = 0x200000  # PF_KTHREAD, <linux/sched.h>


class Running(NamedTuple):
    """A process; `started` is in ticks of the kernel's clock. `is_root`: the trace is about it."""

    pid: int
    started: int
    parent: int = 0
    is_root: bool = False

    def is_there(self) -> bool:
        """Whether it runs still, and not another with its number."""
        found = running(self.pid)
        return found is not None and found.started == self.started


def named(pids: Sequence[int]) -> str:
    """Return what processes are called, for people."""
    return f"process{'es' if len(pids) > 1 else ''} {', '.join(map(str, pids))}"


def running(pid: int) -> Running | None:
    """Return a process, None if there is none, or if it has ended."""
    with contextlib.suppress(OSError):
        state, parent, *fields = stat_fields(pid)[:20]
        if state != b"Z" or int(fields[15]) > 1:  # a first thread may end before the others
            return Running(pid, int(fields[17]), int(parent))
    return None


def checked(pid: int) -> Running:
    """Return a process that runs a program. Raises TracerError, which says what it is otherwise."""
    if (found := running(pid)) is None:
        if status_field(pid, "State")[:1] == "Z":
            parent = status_field(pid, "PPid")
            raise TracerError(f"process {pid} has ended, and waits for its parent ({parent}) to collect it")
        raise TracerError(f"there is no process {pid}")
    with contextlib.suppress(OSError, IndexError):
        if int(stat_fields(pid)[6]) & _KERNEL_THREAD:
            what = "is a thread of the kernel, which nobody can trace; name a program's process"
            raise TracerError(f"process {pid} {what}")
    return found


def stat_fields(pid: int) -> list[bytes]:
    """Return the fields of /proc/PID/stat from the state on, which stands behind the name. Raises OSError."""
    return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()


def status_field(pid: int, field: str) -> str:
    """Return a field of /proc/PID/status, '' where there is none."""
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_bytes().decode("utf-8", "replace").split("\n"):
            if line.startswith(field + ":"):
                return line.partition(":")[2].strip()
    return ""


def numbers() -> Iterator[int]:
    """Yield the numbers of all processes."""
    return (int(name) for name in os.listdir("/proc") if name.isdecimal())  # noqa: PTH208


def descendants(of: Container[int]) -> list[Running]:
    """Return the processes that some have started, and that those have."""
    there = {one.pid: one for one in map(running, numbers()) if one is not None}
    found = []
    for one in there.values():
        seen, at = {one.pid}, one.parent
        while at not in of and at in there and at not in seen:
            seen.add(at)
            at = there[at].parent
        if at in of:
            found.append(one)
    return sorted(found)


class Programs:
    """Files of programs, and what runs them."""

    def __init__(self, paths: Sequence[str]) -> None:
        self._paths = paths
        self._files: dict[str, tuple[int, int]] = {}
        self.next = time.monotonic() if paths else float("inf")  # when to look again

    def look(self) -> list[Running]:
        """Return the processes that run one of them now."""
        began = time.monotonic()
        for path in self._paths:
            with contextlib.suppress(OSError):  # while it is replaced it may be missing
                self._files[path] = _file(path)
        files = set(self._files.values())
        found = [one for pid in numbers() if _runs(pid, files) and (one := running(pid)) is not None]
        now = time.monotonic()
        self.next = now + max(_PAUSE, _SHARE * (now - began))
        return sorted(one._replace(is_root=True) for one in found)

    def runs(self, pid: int) -> bool:
        """Whether a process runs one of them."""
        return _runs(pid, self._files.values())


def _runs(pid: int, files: Container[tuple[int, int]]) -> bool:
    with contextlib.suppress(OSError):
        return _file(f"/proc/{pid}/exe") in files
    return False


def _file(path: str) -> tuple[int, int]:
    status = os.stat(path)  # noqa: PTH116
    return status.st_dev, status.st_ino
