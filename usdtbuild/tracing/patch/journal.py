"""What a tracer has changed in a process, written down in the process' own memory before it is changed.

Whoever traces the process next, after a tracer that was killed, reads it and puts everything back (`engine`). It is the
start of the shared file: a header, and one entry for each site and each semaphore.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from .injection import NAME

if TYPE_CHECKING:
    from collections.abc import Sequence
    from mmap import mmap

    from ..maps import Area, Memory

_MAGIC = b"usdtbld1"
_HEADER = struct.Struct("<8sIIQ")  # magic, process of the tracer, entries, when that process started
_ENTRY = struct.Struct("<QQ8s8sQ")
START = 64
ARMED, SEMAPHORE, DISTANCE = 1, 2, 4


class Entry(NamedTuple):
    """One change: `address`, the bytes before and after, and for a site the address of its mirror.

    `flags`: ARMED while it is in force; SEMAPHORE, where `before` and `after` are values of two bytes; DISTANCE, where
    they are distances of four bytes (`slots`), which only change while all threads stand.
    """

    address: int
    mirror: int
    before: bytes
    after: bytes
    flags: int


def size(entries: int) -> int:
    """Return how many bytes a journal takes."""
    return START + entries * _ENTRY.size


def start_time(pid: int) -> int:
    """Return when a process started, in clock ticks since the machine did; 0 if there is none (proc(5), field 22)."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace")
    except OSError:
        return 0
    return int(text.rpartition(")")[2].split()[19])


def packed(owner: int, entries: Sequence[Entry]) -> bytes:
    """Return a journal as it stands at the start of a shared file."""
    header = _HEADER.pack(_MAGIC, owner, len(entries), start_time(owner)).ljust(START, b"\0")
    return header + b"".join([_ENTRY.pack(*entry) for entry in entries])


def set_entry(data: mmap, index: int, entry: Entry) -> None:
    """Change one entry."""
    _ENTRY.pack_into(data, START + index * _ENTRY.size, *entry)


class Found(NamedTuple):
    """A journal that was found in a process; `owner` is the tracer's process, 0 if it is gone."""

    address: int
    owner: int
    entries: tuple[Entry, ...]


def find(mapped: Sequence[Area], memory: Memory) -> list[Found]:
    """Return the journals in a process."""
    found = []
    for area in mapped:
        if area.name.startswith(f"/memfd:{NAME}") and area.offset == 0 and "w" in area.flags:
            header = memory.read(area.start, _HEADER.size)
            if len(header) < _HEADER.size or header[:8] != _MAGIC:
                continue
            _, owner, count, started = _HEADER.unpack(header)
            raw = memory.read(area.start + START, min(count * _ENTRY.size, area.end - area.start - START))
            whole = len(raw) // _ENTRY.size * _ENTRY.size
            entries = tuple(Entry(*fields) for fields in _ENTRY.iter_unpack(raw[:whole]))
            alive = started and start_time(owner) == started
            found.append(Found(area.start, owner if alive else 0, entries))
    return found


def clear(memory: Memory, found: Found) -> None:
    """Mark everything in a found journal as undone. Raises OSError."""
    for index, entry in enumerate(found.entries):
        if entry.flags & ARMED:
            cleared = _ENTRY.pack(*entry._replace(flags=entry.flags & ~ARMED))
            memory.write(found.address + START + index * _ENTRY.size, cleared)
