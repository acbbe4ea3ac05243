"""The address space of a process: what is mapped where, where there is room, and its memory, to read and to write.

`process` knows the files behind mappings; here addresses are all that counts.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import mmap
import os
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from ..inspection.process import MapsLine, maps_lines
from .hosts import HOST
from .model import Cut

PAGE = mmap.PAGESIZE  # 4,096, on aarch64 up to 65,536
# Lowest address that may be mapped (vm.mmap_min_addr is 65,536 or less).
_LOWEST = 0x10000
# The stack grows downwards and the heap upwards, and neither may find us in its way.
_ROOM_OF_STACK, _ROOM_OF_HEAP = 64 << 20, 256 << 20
_PIECE = 64 << 10  # bytes that a window has
# What is left to the heap where all else fails; a C library's allocator whose heap can't grow takes memory elsewhere.
_LEAST_OF_HEAP = 16 << 20
# The kernel puts what asks for no address close to the end of the address space, from the top down, and programs far
# below (`Space.libraries`); so far below the lowest of it nothing comes soon.
_APART = 64 << 30

Area = MapsLine


class Known(NamedTuple):
    """Memory that a trampoline can read without trying for as long as it is run: so many bytes from an address on; and
    the heap, which begins at an address, and ends where the word at another one says. There is such a word, and nothing
    below where it says, where the heap isn't known, too."""

    known_from: int = 0
    known_size: int = 0
    heap: int = (1 << 64) - 1
    heap_end: int = 0


NONE_KNOWN = Known()


def unwritable(mapped: Sequence[Area], address: int) -> tuple[int, int]:
    """Return where what is mapped of a file around an address, to be read and not to be written to, begins and how many
    bytes it has; (0, 0) if nothing is."""
    start, before = 0, Area(0, 0, "", "")
    for area in mapped:
        if area.flags[:2] != "r-" or not area.inode:
            continue
        if (before.end, before.inode, before.device) != (area.start, area.inode, area.device):
            if start <= address < before.end:
                break
            start = area.start
        before = area
    return (start, before.end - start) if start <= address < before.end else (0, 0)


def areas(pid: int) -> list[Area]:
    """Return what a process has mapped, by address. Raises OSError."""
    return list(maps_lines(Path(f"/proc/{pid}/maps").read_bytes()))


def spare_addresses(pid: int) -> int | None:
    """Return how many bytes of address space a process may still take (RLIMIT_AS); None where there is no limit."""
    with contextlib.suppress(OSError, ValueError):
        limits = Path(f"/proc/{pid}/limits").read_text("ascii")
        most = next(line.split()[3] for line in limits.splitlines() if line.startswith("Max address space"))
        if most != "unlimited":
            return int(most) - int(Path(f"/proc/{pid}/statm").read_text("ascii").split()[0]) * PAGE
    return None


def has_ended(pid: int) -> bool:
    """Whether a process has no memory any more. Raises OSError for what is no matter of the process."""
    try:
        return not areas(pid)
    except (ProcessLookupError, FileNotFoundError):
        return True


def far_from_code(mapped: list[Area], ours: str) -> int:
    """Return an address far from the program and from its libraries, whose neighbourhood is for trampolines.

    `ours` begins the names of areas that an earlier trace has left: the next one goes beside them.
    """
    end = end_of(mapped)
    lowest = (end + PAGE) // 16 * HOST.space.libraries
    libraries = [a.start for a in mapped if a.start >= lowest and not a.name.startswith(ours)]
    return min(libraries, default=end) - _APART


def end_of(mapped: list[Area]) -> int:
    """Return the end of the address space that these areas are in."""
    return HOST.space.end(mapped[-1].end if mapped else 0)


def page_start(address: int) -> int:
    """Return the start of the page that holds an address."""
    return address & -PAGE


class _Ranges:
    """Ranges of addresses that are taken, and those that come to be."""

    def __init__(self, taken: Iterable[tuple[int, int]]) -> None:
        self.starts: list[int] = []
        self.ends: list[int] = []
        for start, end in sorted(taken):
            if self.ends and start <= self.ends[-1]:
                self.ends[-1] = max(self.ends[-1], end)
            else:
                self.starts.append(start)
                self.ends.append(end)

    def is_free(self, start: int, end: int) -> bool:
        at = bisect_right(self.starts, start) - 1
        if at >= 0 and self.ends[at] > start:
            return False
        return at + 1 >= len(self.starts) or self.starts[at + 1] >= end

    def take(self, start: int, end: int) -> None:
        at = bisect_right(self.starts, start)
        self.starts.insert(at, start)
        self.ends.insert(at, end)


class Room:
    """The free ranges of an address space; what is taken here is not given again."""

    def __init__(self, mapped: list[Area]) -> None:
        self._highest = end_of(mapped)
        self._wide, self._narrow = (_Ranges(_with_growth(mapped, heap)) for heap in (_ROOM_OF_HEAP, _LEAST_OF_HEAP))

    def is_free(self, start: int, end: int, *, near_heap: bool = False) -> bool:
        """Whether nothing is between two addresses, nor comes there soon; `near_heap`: except for the heap."""
        if start < _LOWEST or end > self._highest:
            return False
        return (self._narrow if near_heap else self._wide).is_free(start, end)

    def take(self, start: int, end: int) -> None:
        """Mark a free range as taken."""
        self._wide.take(start, end)
        self._narrow.take(start, end)

    def find(self, size: int, near: int, reach: int) -> int | None:
        """Return where `size` bytes are free, the nearest place to `near` no farther than `reach`; None if nowhere."""
        best: int | None = None
        for start, end in self._gaps():
            if end - start < size + 2 * PAGE:
                continue
            place = min(max(page_start(near), start + PAGE), end - size - PAGE)
            if abs(place - near) <= reach and (best is None or abs(place - near) < abs(best - near)):
                best = place
        return best

    def _gaps(self) -> Iterator[tuple[int, int]]:
        last = _LOWEST
        for start, end in zip(self._wide.starts, self._wide.ends):
            if start > last:
                yield last, min(start, self._highest)
            last = max(last, end)
            if last >= self._highest:
                return
        if last < self._highest:
            yield last, self._highest


def _with_growth(mapped: list[Area], heap: int) -> Iterator[tuple[int, int]]:
    """Yield what is mapped, with room for what grows; `heap` bytes of it are the heap's."""
    for area in mapped:
        start = area.start - (_ROOM_OF_STACK if area.name == "[stack]" else 0)
        yield start, area.end + (heap if area.name == "[heap]" else 0)


_libc = ctypes.CDLL(None, use_errno=True)


class _Vector(ctypes.Structure):
    _fields_ = (("base", ctypes.c_void_p), ("size", ctypes.c_size_t))


class Memory:
    """The memory of a process, to be read and written whatever the protection of its pages (`/proc/PID/mem`)."""

    def __init__(self, pid: int) -> None:
        """Open it. Raises OSError: the right to trace the process is needed."""
        self._descriptor, self._pid = os.open(f"/proc/{pid}/mem", os.O_RDWR | os.O_CLOEXEC), pid

    def close(self) -> None:
        """Close it; may be called twice."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def read(self, address: int, size: int) -> bytes:
        """Return `size` bytes, or fewer where memory ends; none where there is none."""
        try:
            return os.pread(self._descriptor, size, address)
        except (OSError, OverflowError, ValueError):
            return b""

    def word(self, address: int, size: int = 8) -> int | None:
        """Return a little-endian number; None where it can't be read."""
        data = self.read(address, size)
        return int.from_bytes(data, "little") if len(data) == size else None

    def text(self, address: int, longest: int) -> bytes | None:
        """Return the string at an address, at most `longest` bytes of it, Cut where it goes on in memory that can't be
        read; None where nothing of it can.

        What the process itself may not read is nothing here either, as in code that runs in it (`patch`).
        """
        found = b""
        while len(found) < longest:
            size = min(longest - len(found), PAGE - (address + len(found)) % PAGE)
            piece = self._allowed(address + len(found), size)
            if not piece:
                return Cut(found) if found else None
            end = piece.find(b"\0")
            if end >= 0:
                return found + piece[:end]
            found += piece
        return found

    def _allowed(self, address: int, size: int) -> bytes:
        """Return what `read` does, and nothing of pages that the process may not read."""
        if not 0 <= address < 1 << 64:
            return b""
        into = ctypes.create_string_buffer(size)
        here, there = _Vector(ctypes.addressof(into), size), _Vector(address, size)
        got: int = _libc.process_vm_readv(self._pid, ctypes.byref(here), 1, ctypes.byref(there), 1, 0)
        if got >= 0:
            return into.raw[:got]
        refused = ctypes.get_errno() != errno.EFAULT  # as for a process that has other rights by now
        return self.read(address, size) if refused else b""

    def write(self, address: int, data: bytes) -> None:
        """Write bytes. Raises OSError: ProcessLookupError where the process has ended."""
        written = os.pwrite(self._descriptor, data, address)
        if data and not written:  # where memory is that can't be written, it says EIO
            raise ProcessLookupError(errno.ESRCH, os.strerror(errno.ESRCH))
        if written != len(data):
            raise OSError(0, f"only a part of {len(data)} bytes could be written at {address:#x}")

    def write_code(self, address: int, data: bytes) -> None:
        """Write as `write` does, but what lies on one page at once: the kernel takes 4,096 bytes after the other, and a
        kill may come between."""
        first = -address % PAGE
        for one in (slice(0, first), slice(first, None)):
            if data[one]:
                self.write(address + one.start, data[one])


class Window:
    """For who reads many places of a memory, one behind the other: they are read in pieces, and don't change then."""

    def __init__(self, memory: Memory) -> None:
        self._memory, self._start, self._data = memory, 0, b""

    def read(self, address: int, size: int) -> bytes:
        """Return as `Memory.read`."""
        at = address - self._start
        if at < 0 or at + size > len(self._data):
            self._start = address & -PAGE
            self._data, at = self._memory.read(self._start, _PIECE), address - self._start
        found = self._data[at : at + size]
        return found if len(found) == size else self._memory.read(address, size)
