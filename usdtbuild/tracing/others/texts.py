"""Strings that bpftrace shows as empty: they are, or their address can't be read, or their page wasn't at hand.

The kernel reads only what is in memory when a probe fires. A page of constants that the program hasn't touched yet
isn't; what it holds stands in the file. A page that the program has written to is, so there an empty string is one.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

from ...errors import InputError
from ...inspection.process import Mapping, mapped_file, open_mapped
from ..maps import PAGE, areas, end_of
from ..model import MISSING, Unreadable

if TYPE_CHECKING:
    from ..maps import Area
    from ..model import Value

_STALE = 0.1  # seconds


class Texts:
    """Makes values of strings; remembers what processes had mapped, for those that have ended by now."""

    def __init__(self, longest: int) -> None:
        """`longest`: at most so many bytes of a string are wanted."""
        self._longest = longest
        self._mapped: dict[int, list[Area]] = {}
        self._learned: dict[int, float] = {}

    def learn(self, pid: int) -> bool:
        """Look at what a process has mapped; return whether it is there."""
        now = time.monotonic()
        if now - self._learned.get(pid, -1.0) < _STALE:
            return True
        try:
            self._mapped[pid] = areas(pid) or self._mapped.get(pid, [])
        except OSError:
            return False
        self._learned[pid] = now
        return True

    def value(self, pid: int, address: int, text: bytes) -> Value:
        """Return the value of a string at an address of a process, of which bpftrace said `text`."""
        if text or not address:
            return text[: self._longest] if address else None
        there = self.learn(pid)
        if not PAGE <= address < end_of(self._mapped.get(pid, [])):
            return Unreadable(address)
        area = next((one for one in self._mapped.get(pid, ()) if one.start <= address < one.end), None)
        if area is None:
            return Unreadable(address) if there else MISSING
        if "w" in area.flags or not area.inode:
            return b""
        return _constant(pid, area, address, self._longest)


def _constant(pid: int, area: Area, address: int, longest: int) -> Value:
    """Return a string that stands in a file."""
    mapping = Mapping(area.start, area.end, False, area.offset, area.inode, area.device)
    try:
        with open_mapped(pid, mapped_file(pid, area.name, [mapping])) as opened:
            return os.pread(opened.descriptor, longest, area.offset + address - area.start).partition(b"\0")[0]
    except (InputError, OSError):
        return MISSING
