"""The memory that we share with a traced process: where in the one file each part is, and how it comes to be there.

The file holds, one behind the other: the journal, the rings, for each part of the layout its trampolines and counters,
the mirrored pages, and room for the loop that makes the system calls.
"""

from __future__ import annotations

import contextlib
import errno
import os
from typing import TYPE_CHECKING

from ..errors import RoomTakenError, TracerError
from ..maps import PAGE
from . import journal
from .code import RINGS
from .injection import (
    MADV_DONTNEED,
    MADV_POPULATE_WRITE,
    MADV_WIPEONFORK,
    MADVISE,
    MAP_ANONYMOUS,
    MAP_FIXED,
    MAP_FIXED_NOREPLACE,
    MAP_PRIVATE,
    MAP_SHARED,
    MUNMAP,
    PROT_EXEC,
    PROT_READ,
    PROT_WRITE,
    Call,
    Shared,
    control_size,
    map_call,
    perform,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .injection import Borrowed
    from .layout import Layout, Part
    from .shards import Shards


# A record in memory that the program hasn't touched yet costs 85 ns instead of 16, because each page comes by a fault
# (benchmarks/trace.py). So the first bytes of the rings that are used at once are mapped from the start: at most 8
# rings, for which the program stands still some milliseconds more. We touch them before, because that counts as our
# memory then.
WARM, _MOST_WARM = 1 << 20, 8


class Mapping:
    """Where in the shared file everything is, and the system calls that map it."""

    def __init__(
        self, made: Layout, entries: int, rings_size: int, *, over: bool = False,
        unused: Sequence[tuple[int, int]] = (),
    ) -> None:  # fmt: skip
        """`over`: rings come in the place of those of an earlier trace. What is `unused` goes."""
        self.layout, self.rings_size, self._over, self._unused = made, rings_size, over, unused
        self.journal_size = -(-journal.size(entries, len(made.parts)) // PAGE) * PAGE
        self.rings = self.journal_size
        at = self.rings + rings_size
        self.parts = []
        for part in made.parts:
            self.parts.append(at)
            at += len(part.code) + part.counters
        self.pages = at
        self.ordered = sorted(made.pages)
        at += PAGE * len(self.ordered)
        self.control = at
        self.wipes = False  # whether the kernel forgets what the cell's page says, in a child
        self.control_size = control_size(8 + _MOST_WARM + len(unused) + 2 * len(self.parts) + len(self.ordered))
        self.size = at + self.control_size

    def contents(self) -> list[tuple[int, bytes]]:
        """Return what the file holds behind the rings, and where: trampolines and mirrors. Counters are 0."""
        mirrors = b"".join([self.layout.pages[page] for page in self.ordered])
        return [*((at, part.code) for part, at in zip(self.layout.parts, self.parts)), (self.pages, mirrors)]

    def install(
        self, borrowed: Borrowed, places: tuple[int, int, int], written: bytes, contents: Sequence[tuple[int, bytes]],
        warm: Sequence[int], first: int, *, again: bool,
    ) -> Shared:  # fmt: skip
        """Map everything into the process of a borrowed thread. Raises TracerError.

        `places` are where the rings, the cell of the process' number and the journal go; `written` is what the journal
        says, `contents` what `contents` returned, and `warm` are addresses of the rings that are used at once, of which
        `first` bytes will be ready.
        `again`: an earlier trace has mapped the same there, of which code and cell stay as they are.
        """
        rings_at, pid_cell, journal_at = places
        shared = Shared(borrowed, self.size)
        os.pwrite(shared.file, written, 0)
        calls = [Call(MUNMAP, place) for place in self._unused]  # first, for what comes may take its place
        calls += (self.calls_again if again else self.calls)(shared.descriptor, rings_at, pid_cell, journal_at)
        size = min(WARM, first & -PAGE, self.rings_size // RINGS)
        warm = [ring for ring in warm[:_MOST_WARM] if shared.give(self.rings + ring - rings_at, size)]
        calls += [Call(MADVISE, (ring, size, MADV_POPULATE_WRITE)) for ring in warm]
        try:
            for at, data in contents:
                os.pwrite(shared.file, data, at)
            self._give_counters(shared)
            results = perform(borrowed, shared, self.control, calls, journal_at + self.journal_size,
                              fixed=MAP_FIXED if again else MAP_FIXED_NOREPLACE)  # fmt: skip
            needed = [result for call, result in zip(calls, results) if call.number not in {MADVISE, MUNMAP}]
            self.wipes = results[calls.index(_wiping(pid_cell))] == 0
            failed = next((-result for result in needed if -PAGE < result < 0), 0)
            if failed:
                kind = RoomTakenError if failed == errno.EEXIST else TracerError
                reason = f"can't map the memory that it shares with us: {os.strerror(failed)}"
                raise kind(f"process {borrowed.thread.pid} {reason}")
        except TracerError:
            os.pwrite(shared.file, bytes(journal.START), 0)  # where nothing has changed nothing is to be put back
            with contextlib.suppress(TracerError, OSError):
                shared.close_there(borrowed)
            shared.close()
            raise
        shared.close_there(borrowed)
        return shared

    def _give_counters(self, shared: Shared) -> None:
        """Let memory for counters and tables be there, as ours. Raises TracerError."""
        for part, at in zip(self.layout.parts, self.parts):
            if part.counters and not shared.give(at + len(part.code), part.counters):
                raise TracerError("there is no memory for counters")

    def calls(self, descriptor: int, rings_at: int, pid_cell: int, journal_at: int) -> list[Call]:
        """Return the system calls, in order."""
        text, data = PROT_READ | PROT_EXEC, PROT_READ | PROT_WRITE
        calls = [map_call(journal_at, self.journal_size, data, MAP_SHARED, descriptor, 0)]
        calls.append(map_call(pid_cell, PAGE, data, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0))
        calls.append(_wiping(pid_cell))
        if rings_at:
            flags = MAP_SHARED | (MAP_FIXED if self._over else 0)
            calls.append(map_call(rings_at, self.rings_size, data, flags, descriptor, self.rings))
        for part, at in zip(self.layout.parts, self.parts):
            size = len(part.code)
            calls.append(map_call(part.address, size, text, MAP_PRIVATE, descriptor, at))
            calls.append(map_call(part.address + size, part.counters, data, MAP_SHARED, descriptor, at + size))
        index = 0
        while index < len(self.ordered):
            start = index
            while index + 1 < len(self.ordered) and self.ordered[index + 1] == self.ordered[index] + PAGE:
                index += 1
            index += 1
            size, at = PAGE * (index - start), self.pages + PAGE * start
            calls.append(map_call(self.ordered[start], size, text, MAP_PRIVATE, descriptor, at))
        return calls

    def calls_again(self, descriptor: int, rings_at: int, pid_cell: int, journal_at: int) -> list[Call]:
        """Return the system calls that put new data in the place of an earlier trace's; its cell stays, empty, for who
        has which shard is another matter then."""
        data, flags = PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED
        calls = [map_call(journal_at, self.journal_size, data, flags, descriptor, 0)]
        calls += [_wiping(pid_cell), Call(MADVISE, (pid_cell, PAGE, MADV_DONTNEED))]
        if rings_at:
            calls.append(map_call(rings_at, self.rings_size, data, flags, descriptor, self.rings))
        for part, at in zip(self.layout.parts, self.parts):
            size = len(part.code)
            calls.append(map_call(part.address + size, part.counters, data, flags, descriptor, at + size))
        return calls

    def file_offset(self, address: int) -> int:
        """Return where in the shared file an address among counters is."""
        part, at = self._part(address)
        return at + address - part.address

    def shards(self, address: int) -> Shards | None:
        """Return the shards of what is at an address among counters."""
        return self._part(address)[0].shards

    def _part(self, address: int) -> tuple[Part, int]:
        """Return whose counters an address is among, and where in the file that part is."""
        for part, at in zip(self.layout.parts, self.parts):
            start = part.address + len(part.code)
            if start <= address < start + part.counters:
                return part, at
        raise AssertionError(address)


def _wiping(pid_cell: int) -> Call:
    """Return the call by which a child finds the page of this cell empty."""
    return Call(MADVISE, (pid_cell, PAGE, MADV_WIPEONFORK))
