"""Which NOP stands at a place in code, by what a machine's `Entries` say."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache

from .facts import Entries, LongNop

LONGEST_NOP = 15  # bytes of an instruction of x86


def _compiled(forms: tuple[LongNop, ...]) -> re.Pattern[bytes]:
    escaped = (b"[%s]{0,%d}%s.{%d}" % (re.escape(p), most, re.escape(code), more) for p, most, code, more in forms)
    return re.compile(b"|".join(escaped), re.DOTALL)


def nop_at(entries: Entries, code: bytes, at: int) -> int:
    """Return the length of the NOP at `code[at:]`, 0 if none stands there."""
    return nops_of(entries)(code, at)


@cache
def nops_of(entries: Entries) -> Callable[[bytes, int], int]:
    """Return what `nop_at` does of a machine, for who asks often."""

    def long(code: bytes, at: int) -> int:
        found = match(code, at)
        length = found.end() - at if found else 0
        return length if length <= LONGEST_NOP else 0

    def plain(code: bytes, at: int) -> int:
        return next((len(form) for form, _ in entries.nops if code.startswith(form, at)), 0)

    match = _compiled(entries.long_nops).match
    return long if entries.long_nops else plain
