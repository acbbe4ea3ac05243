"""Where jumps of x86-64 lead: mirrors, at the distances that their bytes allow, on pages of their own.

A site of a few bytes of NOPs can become a jump only to where the bytes behind it say, so memory is mapped there.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from ...machines.x86_64 import INT3
from ..maps import PAGE
from .forms import JUMP, JUMP_SIZE, Form, behind_leads, leads, leads_of, steps_of

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from ..maps import Room


_USED = b"\1"


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
        self._used: dict[int, bytearray] = {}  # by page, which of its bytes are given out
        self._astray: set[int] = set()  # the bytes of jumps that would be at `astray`
        self._hint: dict[tuple[bytes, tuple[int, ...]], bytes] = {}

    def place(self, address: int, form: Form, near: Sequence[int]) -> Placed | None:
        """Return where a site's mirror is to be, and the four bytes that lead there; None if there is no room.

        `near` are those of the four bytes, by index, that may become somebody's breakpoint while the jump is there.
        """
        old = self.earlier.get(address)
        if old is not None:
            tail = struct.pack("<i", old - address - 5)
            same = all(tail[i] == form.tail[i] or i in form.free for i in range(4))
            spans = [(address + first, address + last)
                     for first, last in _needs(form, tail, near)]  # fmt: skip
            # A journal may outlive the pages of another trace that its mirrors are on.
            if same and spans and all(any(a <= first and last <= b for a, b in self.kept) for first, last in spans):
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

    def place_for_any(self, address: int, form: Form, near: Collection[int], behind: Sequence[int]) -> Placed | None:
        """Return as `place`, for breakpoints at all of `behind` too, which nobody knows to be wanted.

        Where there is no memory for these, nothing may be there that can be executed: a thread that is led there
        faults, and who traces it lets it go on (`astray`). None where it would not fault.
        """
        all_near = tuple(sorted({*near, *behind}) if near else behind)
        placed = self.place(address, form, all_near)
        if placed is not None:
            return placed
        placed = self.place(address, form, tuple(sorted(near)))
        if placed is None:
            return None
        own = [placed.mirror, *leads_of(address, placed.tail, placed.near)]
        astray = {*leads_of(address, placed.tail, all_near)}.difference(own)
        if any(self._is_taken(one, one + JUMP_SIZE) or _is_in(one, self.code) for one in astray):
            return None
        self._astray.update(*(range(one, one + JUMP_SIZE) for one in astray))
        self.astray.update({one & (1 << 64) - 1: placed.mirror for one in astray})
        return placed

    def _take(
        self, address: int, form: Form, tail: bytes, near: Sequence[int], *, near_heap: bool = False
    ) -> bool:  # fmt: skip
        """Take what the four bytes behind a site need, if it is free."""
        spans = _needs(form, tail, near)
        for start, end in spans:
            if self._is_taken(address + start, address + end, near_heap=near_heap):
                return False
        for start, end in spans:
            for page in (address + start & -PAGE, address + end - 1 & -PAGE):
                if page not in self.pages:
                    self.pages[page], self._used[page] = bytearray(INT3 * PAGE), bytearray(PAGE)
                    self.room.take(page, page + PAGE)
            _write(self._used, address + start, _USED * (end - start))
        return bool(spans)

    def _is_taken(self, start: int, end: int, *, near_heap: bool | None = None) -> bool:
        """Whether any byte between two addresses is given out, or where a jump may be led astray; or is on a page that
        can't be had, `near_heap` or farther away, unless it is None."""
        page = start & -PAGE
        used = self._used.get(page)
        if used is not None and end <= page + PAGE and not self._astray:  # nearly always
            return used.find(_USED, start - page, end - page) >= 0
        while page < end:
            used = self._used.get(page)
            if used is not None:
                if used.find(_USED, max(start - page, 0), end - page) >= 0:
                    return True
            elif near_heap is not None and not self.room.is_free(page, page + PAGE, near_heap=near_heap):
                return True
            page += PAGE
        return bool(self._astray) and not self._astray.isdisjoint(range(start, end))

    def write(self, mirror: int, data: bytes) -> None:
        """Write into pages that were given out."""
        _write(self.pages, mirror, data)


def _is_in(address: int, ranges: Sequence[tuple[int, int]]) -> bool:
    return any(start <= address < end for start, end in ranges)


def _write(pages: Mapping[int, bytearray], address: int, data: bytes) -> None:
    at = address % PAGE
    if at + len(data) <= PAGE:
        pages[address - at][at : at + len(data)] = data
        return
    pages[address - at][at:] = data[: PAGE - at]
    _write(pages, address - at + PAGE, data[PAGE - at :])


def _needs(form: Form, tail: bytes, near: Sequence[int]) -> tuple[tuple[int, int], ...]:
    """See `_needed`."""
    return _needed(tail, tuple(near), form.behind[-1:], form.was)


@lru_cache(maxsize=4096)  # sites that are alike have the same bytes
def _needed(tail: bytes, near: tuple[int, ...], behind: bytes, was: bytes) -> tuple[tuple[int, int], ...]:
    """Return what a site needs where these four bytes may lead, counted from the site: where the mirror begins and
    ends, and others like it; none if two of these overlap. `behind` is the last byte of a jump or call behind the
    site's NOP."""
    steps = steps_of(0, tail, near, was)
    found = [leads(0, tail), *leads_of(0, tail, near, was)]
    found += [behind_leads(0, bytes([JUMP]) + tail + behind)] if behind else []
    spans = sorted([*((one, one + JUMP_SIZE) for one in found), *((one, one + 1) for one in steps)])
    return tuple(spans) if all(one[1] <= other[0] for one, other in pairwise(spans)) else ()
