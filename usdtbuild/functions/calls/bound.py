"""What the slots of a running process hold now: the function of which library, or nothing yet."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

from ...inspection.process import MappedFile, ProcessMemory
from ...record import NamedTuple
from .model import Call, CallReport


class SlotContent(NamedTuple):
    """What a slot holds: the address, and the file that it is in with the address' offset in it.

    `unresolved`: the slot still leads to the dynamic linker, because the function was never called. `value` is None
    where the process's memory can't be read.
    """

    value: int | None
    path: str = ""
    offset: int = 0
    unresolved: bool = False


class MappedFiles:
    """The files of a process, by address."""

    def __init__(self, files: Sequence[MappedFile]) -> None:
        self._ranges = sorted(
            (mapping.start, mapping.end, mapping.offset, file.path) for file in files for mapping in file.mappings
        )
        self._starts = [start for start, _, _, _ in self._ranges]

    def find(self, address: int) -> tuple[str, int] | None:
        """Return the file that is mapped at an address, and the offset in it."""
        at = bisect_right(self._starts, address) - 1
        if at < 0 or address >= self._ranges[at][1]:
            return None
        start, _, offset, path = self._ranges[at]
        return path, address - start + offset


def held(report: CallReport, call: Call, bias: int, memory: ProcessMemory, places: MappedFiles) -> SlotContent:
    """Return what a call's slot holds in a process that has the file loaded at `bias`."""
    raw = memory.read(call.slot + bias, report.address_size)
    if raw is None:
        return SlotContent(None)
    value = int.from_bytes(raw, "little" if report.little else "big")
    found = places.find(value)
    if found is None:
        return SlotContent(value, unresolved=value == 0)
    path, offset = found
    return SlotContent(value, path, offset, unresolved=call.kind == "lazy" and path == report.path)
