"""The check for sites that the kernel turns into calls, in functions whose data such a call would overwrite."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..machines import facts_of
from .report import ERROR, Finding, Gathered, site_place
from .sites import code_at

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .report import Subject

_MOST = 1 << 12  # bytes of a function that are read behind a site


def _red_zone(subject: Subject) -> Iterator[Finding]:
    """Sites that are a NOP of five bytes, in functions that keep data below the stack pointer."""
    image = subject.image
    known = facts_of(image.machine)
    if known is None or known.overwritten is None:
        return
    cure = "compile with -DUSDT_PROBES_BY_CALL (usdtbuild cc --nop=nop5 does), or write NOPs with --nop=safe"
    gathered = Gathered("red-zone", ERROR, cure)
    what = (
        "the kernel makes a call of a site's NOP of five bytes, and that overwrites data which the function keeps "
        "below the stack pointer: the program goes wrong while it is traced"
    )
    for record in subject.notes:
        where = record.site
        value = where.offset if image.is_object else where.address
        function = image.function_at(value, where.section_number)
        if function is None:
            continue
        code = code_at(image, where.section_number, value - function.offset, function.offset + _MOST)
        if known.overwritten(code, function.offset):
            gathered.add(what, site_place(subject, record))
    yield from gathered


CHECKS = (_red_zone,)
