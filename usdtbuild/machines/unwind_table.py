"""The search table of .eh_frame_hdr, which leads to the unwind record of a function (Linux Standard Base, 10.6.2).

It is loaded with the program: neither strip nor missing section headers take it away.
"""

from __future__ import annotations

import struct

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

_HEAD, _ENTRY = 12, 8


def search_table(read: Callable[[int, int], bytes], header: int) -> tuple[list[int], list[int]]:
    """Return where functions begin, sorted, and where their records are; nothing for a damaged table.

    `read` returns what a little-endian file has at an address, or less; `header` is where .eh_frame_hdr is, 0: nowhere.
    """
    raw = read(header + _HEAD, _ENTRY * _entries(read, header))
    numbers = struct.unpack_from(f"<{len(raw) // 8 * 2}i", raw)
    pairs = sorted((header + a, header + b) for a, b in zip(numbers[::2], numbers[1::2]))
    return [start for start, _ in pairs], [record for _, record in pairs]


def function_around(read: Callable[[int, int], bytes], header: int, address: int) -> int:
    """Return where the function around an address begins, 0 where nobody knows; arguments as for `search_table`."""
    low, high, found = 0, _entries(read, header), 0
    while low < high:
        middle = (low + high) // 2
        raw = read(header + _HEAD + _ENTRY * middle, 4)
        start = header + int.from_bytes(raw, "little", signed=True)
        if len(raw) == 4 and start <= address:
            low, found = middle + 1, start
        else:
            high = middle
    return found


def _entries(read: Callable[[int, int], bytes], header: int) -> int:
    head = read(header, _HEAD) if header else b""
    # version 1, pointer (any), count udata4, table datarel sdata4: the one form that linkers write
    if len(head) < _HEAD or head[0] != 1 or head[2:4] != b"\x03\x3b":
        return 0
    count: int = struct.unpack_from("<I", head, 8)[0]
    return count
