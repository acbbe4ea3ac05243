"""What a tracer has changed in a process, written down in the process' own memory before it is changed.

Whoever traces the process next, after a tracer that was killed, reads it and puts everything back (`engine`). It is the
start of the shared file: a header, and one entry for each site and each semaphore.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from ...limits import JOURNAL_ENTRIES, JOURNAL_PARTS
from ...record import NamedTuple
from ..model import NAME
from ..running import stat_fields
from .forms import JUMP_SIZE, behind_leads, leads, leads_of, steps_of
from .forms import PADDED as ENTRY_SIZE

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from mmap import mmap

    from ..maps import Area, Memory

_MAGIC = b"usdtbld2"
# Magic, process of the tracer, entries, when that process started; then places: of the rings, of the cell with the
# process' number, bytes of the control pages behind the journal, parts.
_HEADER = struct.Struct("<8sIIQQQII")
_PART = struct.Struct("<QII")  # behind the entries
_ENTRY = struct.Struct("<QQ8s8sQ")
START = 64
ARMED, SEMAPHORE, DISTANCE, WORD, PADDED, NEAR, JOINED = 1, 2, 4, 8, 16, 32, 512


class Entry(NamedTuple):
    """One change: `address`, the bytes before and after, and for a site the address of its mirror.

    `flags`: ARMED while it is in force; SEMAPHORE, where `before` and `after` are values of two bytes; DISTANCE, where
    they are distances of four bytes (`slots`), which only change while all threads stand; WORD, where
    they are one instruction of four bytes. PADDED, where they are two bytes at `address`, and behind them five at
    `mirror`, which is the padding of a function's entry. From NEAR on there is a bit for each of a jump's four last
    bytes: with those as somebody's breakpoints it leads to memory of ours, too; where such a byte is another one before
    and after, it is another site's, whose jump begins there. JOINED, where a jump or call is right
    behind a NOP, which leads there as well.
    """

    address: int
    mirror: int
    before: bytes
    after: bytes
    flags: int

    def leads(self) -> tuple[int, ...]:
        """Return where in our memory its jump leads, whatever breakpoints there are."""
        if self.flags & PADDED:
            return (leads(self.mirror, self.after[ENTRY_SIZE + 1 : ENTRY_SIZE + JUMP_SIZE]),)
        if self.flags < NEAR:
            return (self.mirror,)
        was, tail = self.before[1:JUMP_SIZE], self.after[1:JUMP_SIZE]
        behind = (behind_leads(self.address, self.after),) if self.flags & JOINED else ()
        steps = steps_of(self.address, tail, self.near, was)
        return self.mirror, *leads_of(self.address, tail, self.near, was), *behind, *steps

    @property
    def near(self) -> list[int]:
        """Which of a jump's four last bytes may be somebody's breakpoints."""
        return [index for index in range(JUMP_SIZE - 1) if self.flags & NEAR << index]


class Places(NamedTuple):
    """Where a trace has put what isn't in its journal's own neighbourhood, so that a later one can use it again.

    `parts` are trampolines: at which address, bytes of code, and of counters behind it. 0 is nowhere.
    """

    rings: int
    pid_cell: int
    control_size: int
    parts: tuple[tuple[int, int, int], ...]


def size(entries: int, parts: int) -> int:
    """Return how many bytes a journal takes."""
    return START + entries * _ENTRY.size + parts * _PART.size


def start_time(pid: int) -> int:
    """Return when a process started, in clock ticks since the machine did (proc(5), field 22); 0 if there is none, or
    nothing of it but that nobody has asked how it ended (field 3)."""
    try:
        fields = stat_fields(pid)
    except OSError:
        return 0
    return 0 if fields[0] in {b"Z", b"X"} else int(fields[19])


def packed(owner: int, entries: Sequence[Entry], places: Places) -> bytes:
    """Return a journal as it stands at the start of a shared file."""
    rings, cell, control, parts = places
    header = _HEADER.pack(_MAGIC, owner, len(entries), start_time(owner), rings, cell, control, len(parts))
    changes = [_ENTRY.pack(*entry) for entry in entries]
    return b"".join([header.ljust(START, b"\0"), *changes, *(_PART.pack(*part) for part in parts)])


def set_entry(data: mmap, index: int, entry: Entry) -> None:
    """Change one entry."""
    _ENTRY.pack_into(data, START + index * _ENTRY.size, *entry)


class Entries:
    """The entries of a journal that was found, made one at a time: there may be a million, forged ones."""

    def __init__(self, raw: bytes) -> None:
        self._raw = raw

    def __len__(self) -> int:
        return len(self._raw) // _ENTRY.size

    def __iter__(self) -> Iterator[Entry]:
        return map(Entry._make, _ENTRY.iter_unpack(self._raw))


class Found(NamedTuple):
    """A journal that was found in a process; `owner` is the tracer's process, 0 if it is gone."""

    address: int
    owner: int
    entries: Entries
    places: Places


def find(mapped: Sequence[Area], memory: Memory) -> list[Found]:
    """Return the journals in a process, with no more entries than `JOURNAL_ENTRIES` in all of them."""
    found, most = [], JOURNAL_ENTRIES
    for area in mapped:
        if area.name.startswith(f"/memfd:{NAME}") and area.offset == 0 and "w" in area.flags:
            header = memory.read(area.start, _HEADER.size)
            if len(header) < _HEADER.size or header[:8] != _MAGIC:
                continue
            _, owner, count, started, rings, cell, control, parts = _HEADER.unpack(header)
            if count + parts > most or parts > JOURNAL_PARTS or size(count, parts) > area.end - area.start:
                continue  # no journal of ours: the process can write there
            raw = memory.read(area.start + START, size(count, parts) - START)
            if len(raw) != size(count, parts) - START:
                continue
            most -= count + parts
            places = Places(rings, cell, control, tuple(_PART.iter_unpack(raw[count * _ENTRY.size :])))
            alive = started and start_time(owner) == started
            entries = Entries(raw[: count * _ENTRY.size])
            found.append(Found(area.start, owner if alive else 0, entries, places))
    return found


def clear(memory: Memory, found: Found) -> None:
    """Mark everything in a found journal as undone. Raises OSError."""
    for index, entry in enumerate(found.entries):
        if entry.flags & ARMED:
            cleared = _ENTRY.pack(*entry._replace(flags=entry.flags & ~ARMED))
            memory.write(found.address + START + index * _ENTRY.size, cleared)
