"""Strings that bpftrace shows as empty: they are, or their address can't be read, or their page wasn't at hand.

The kernel reads only what is in memory when a probe fires. A page of constants that the program hasn't touched yet
isn't; what it holds stands in the file. That is read only where the same part of the same file was mapped there before
the hit and after it; what can't be known so is said to be missing rather than guessed.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence

from ...errors import InputError
from ...inspection.process import mapped_file, open_mapped
from ..maps import PAGE, Area, areas, end_of
from ..model import MISSING, Unreadable, Value, string

_KEPT = 16  # looks at one process that are remembered
_MODULE = "x"  # a file with code stays mapped until the dynamic linker says so, which is when it is looked at again


class Texts:
    """Makes values of strings; remembers what processes had mapped, and when that was looked up."""

    def __init__(self, longest: int) -> None:
        self._longest = longest
        self._looks: dict[int, list[tuple[int, list[Area]]]] = {}

    def learn(self, pid: int) -> bool:
        """Look at what a process has mapped; return whether it is there."""
        looks = self._looks.setdefault(pid, [])
        try:
            mapped = areas(pid)
        except OSError:
            return False
        if mapped:
            looks.append((time.monotonic_ns(), mapped))
            del looks[:-_KEPT]
        return bool(mapped)

    def value(self, pid: int, address: int, text: bytes, when: int, kept: int) -> Value:
        """Return the value of a string at an address of a process, of which bpftrace, which keeps so many bytes of
        one, said `text` at a time."""
        if not address:
            return None
        if text:
            return string(text[: self._longest], min(self._longest, kept))
        there = bool(self._looks.get(pid) and self._looks[pid][-1][0] > when) or self.learn(pid)
        looks = self._looks[pid]
        before = next((mapped for at, mapped in reversed(looks) if at <= when), None)
        if before is None:
            return MISSING
        after = looks[-1][1]
        one, other = _area(before, address), _area(after, address)
        if not PAGE <= address < end_of(after) or (there and one is None and other is None):
            return Unreadable(address)
        if one is None or other is None or _part(one) != _part(other) or not (there or _is_module(other, after)):
            return MISSING
        return self._unseen(pid, other, address)

    def _unseen(self, pid: int, area: Area, address: int) -> Value:
        """Return a string that the kernel didn't have at hand, or an empty one."""
        if "r" not in area.flags:
            return Unreadable(address)
        if not area.inode:
            return b""
        stored = _stored(pid, area, address, self._longest)
        # Where the program may have written, only the file's empty string is one in any case.
        return stored if "w" not in area.flags or stored == b"" else MISSING


def _area(mapped: Sequence[Area] | None, address: int) -> Area | None:
    return next((one for one in mapped or () if one.start <= address < one.end), None)


def _part(area: Area) -> tuple[object, ...]:
    """Return what must be the same for an address to mean the same: the file, and where it lies in it."""
    return area.inode, area.device, area.offset - area.start if area.inode else 0, area.flags


def _is_module(area: Area, mapped: Sequence[Area]) -> bool:
    return any(_MODULE in one.flags and (one.inode, one.device) == (area.inode, area.device) for one in mapped)


def _stored(pid: int, area: Area, address: int, longest: int) -> Value:
    size = min(longest, area.end - address)
    try:
        with open_mapped(pid, mapped_file(pid, area.name, [area])) as opened:
            raw, end, _ = os.pread(opened.descriptor, size, area.offset + address - area.start).partition(b"\0")
    except (InputError, OSError):
        return MISSING
    return raw if end else string(raw, longest)
