"""Where jumps of x86-64 lead: mirrors, at the distances that their bytes allow, on pages of their own.

A site of a few bytes of NOPs can become a jump only to where the bytes behind it say, so memory is mapped there.
"""

from __future__ import annotations

import struct
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

from ...machines.x86_64 import INT3
from ..maps import PAGE, page_start
from .forms import JUMP_SIZE, Form, behind_leads, leads, leads_of, steps_of

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from ..maps import Room


class Placed(NamedTuple):
    """Where a site's mirror is, and the four bytes that lead there. `near` are those of them, by index, with which as
    somebody's breakpoints the jump leads to places of ours, too. So does the jump or call behind a NOP, if that changes
    with it."""

    mirror: int
    tail: bytes
    near: tuple[int, ...]


class Mirrors:
    """Pages with mirrors, as they are given out."""

    def __init__(
        self, room: Room, earlier: Mapping[int, int], kept: Sequence[tuple[int, int]] = (),
        code: Sequence[tuple[int, int]] = (),
    ) -> None:  # fmt: skip
        """`earlier` are mirrors of earlier traces of the process, by site, which stand on pages that it has: `kept`.
        `code` is where it has any."""
        self.room, self.earlier, self.kept, self.code = room, earlier, kept, code
        self.astray: dict[int, int] = {}  # where breakpoints may lead a jump, without a page of ours -> its mirror
        self.pages: dict[int, bytearray] = {}
        self.taken: set[int] = set()
        self._hint: dict[tuple[bytes, tuple[int, ...]], bytes] = {}

    def place(self, address: int, form: Form, near: Sequence[int]) -> Placed | None:
        """Return where a site's mirror is to be, and the four bytes that lead there; None if there is no room.

        `near` are those of the four bytes, by index, that may become somebody's breakpoint while the jump is there.
        """
        old = self.earlier.get(address)
        if old is not None:
            tail = struct.pack("<i", old - address - 5)
            same = all(tail[i] == form.tail[i] or i in form.free for i in range(4))
            places = _places(address, form, tail, near)
            # A journal may outlive the pages of another trace that its mirrors are on.
            if same and all(any(start <= one[0] and one[-1] < end for start, end in self.kept) for one in places):
                return Placed(old, tail, tuple(near))
        kind = (form.tail, form.free)
        hint = self._hint.get(kind)
        if hint is not None and self._take(address, form, hint, near):
            return Placed(leads(address, hint), hint, tuple(near))
        for near_heap in (False, True):
            for distance, tail in form.distances():
                if self._take(address, form, tail, near, near_heap=near_heap):
                    self._hint[kind] = tail
                    return Placed(address + 5 + distance, tail, tuple(near))
        return None

    def place_for_any(self, address: int, form: Form, near: Collection[int], behind: Collection[int]) -> Placed | None:
        """Return as `place`, for breakpoints at all of `behind` too, which nobody knows to be wanted.

        Where there is no memory for these, nothing may be there that can be executed: a thread that is led there
        faults, and who traces it lets it go on (`astray`). None where it would not fault.
        """
        placed = self.place(address, form, sorted({*near, *behind}))
        if placed is not None:
            return placed
        placed = self.place(address, form, sorted(near))
        if placed is None:
            return None
        own = [placed.mirror, *leads_of(address, placed.tail, placed.near)]
        astray = {*leads_of(address, placed.tail, sorted({*near, *behind}))}.difference(own)
        taken = {byte for one in astray for byte in range(one, one + 5)}
        if not self.taken.isdisjoint(taken) or any(start <= one < end for start, end in self.code for one in astray):
            return None
        self.taken |= taken
        self.astray.update({one & (1 << 64) - 1: placed.mirror for one in astray})
        return placed

    def _take(
        self, address: int, form: Form, tail: bytes, near: Sequence[int], *, near_heap: bool = False
    ) -> bool:  # fmt: skip
        """Take what the four bytes behind a site need, if it is free."""
        bytes_ = list(chain.from_iterable(_places(address, form, tail, near)))
        if len({*bytes_}) < len(bytes_) or not self.taken.isdisjoint(bytes_):
            return False
        pages = {page_start(byte) for byte in bytes_}
        if any(
            page not in self.pages and not self.room.is_free(page, page + PAGE, near_heap=near_heap) for page in pages
        ):
            return False
        self.taken.update(bytes_)
        for page in pages - self.pages.keys():
            self.pages[page] = bytearray(INT3 * PAGE)
            self.room.take(page, page + PAGE)
        return True

    def write(self, mirror: int, data: bytes) -> None:
        """Write into pages that were given out."""
        for offset, byte in enumerate(data):
            self.pages[page_start(mirror + offset)][(mirror + offset) % PAGE] = byte


def _places(address: int, form: Form, tail: bytes, near: Sequence[int]) -> list[range]:
    """Return what a site needs where these four bytes may lead: the mirror, and others like it."""
    behind = (behind_leads(address, b"\xe9" + tail + form.behind[-1:]),) if form.behind else ()
    steps = steps_of(address, tail, near, form.was)
    found = leads(address, tail), *leads_of(address, tail, near, form.was), *behind
    return [*(range(one, one + JUMP_SIZE) for one in found), *(range(one, one + 1) for one in steps)]
