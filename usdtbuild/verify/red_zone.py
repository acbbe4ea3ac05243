"""The check for sites that the kernel turns into calls, in functions whose data such a call would overwrite."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..machines import red_zone
from .report import ERROR, Finding, Gathered, site_place

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .report import Subject

_MOST = 1 << 12  # bytes of a function that are read behind a site


def _red_zone(subject: Subject) -> Iterator[Finding]:
    """Sites that are a NOP of five bytes, in functions that keep data below the stack pointer."""
    image = subject.image
    if image.machine != red_zone.MACHINE:
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
        section = where.section_number if image.is_object else 0
        if _bytes(subject, section, value, len(red_zone.NOP5)) != red_zone.NOP5:
            continue
        function = image.function_at(value, where.section_number)
        if function is None:
            continue
        code = _bytes(subject, section, value - function.offset, function.offset + _MOST)
        if red_zone.uses_red_zone(code, function.offset):
            gathered.add(what, site_place(subject, record))
    yield from gathered


def _bytes(subject: Subject, section: int, start: int, size: int) -> bytes:
    image = subject.image
    if image.is_object:
        return bytes(image.content(image.sections[section])[start : start + size])
    return image.bytes_at(start, size)


CHECKS = (_red_zone,)
