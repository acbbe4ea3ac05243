"""The tags of PT_DYNAMIC, and how they are read. Source: gABI, chapter 5."""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import layout
from .relocations import words

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ..files import Data
    from .headers import Segment

DT_NEEDED, DT_PLTRELSZ, DT_HASH, DT_STRTAB, DT_SYMTAB, DT_RELA, DT_RELASZ, DT_STRSZ = 1, 2, 4, 5, 6, 7, 8, 10
DT_SONAME, DT_REL, DT_RELSZ, DT_PLTREL, DT_JMPREL = 14, 17, 18, 20, 23
DT_RELRSZ, DT_RELR = 35, 36
DT_GNU_HASH, DT_VERSYM, DT_FLAGS_1, DT_VERDEF, DT_VERDEFNUM = 0x6FFFFEF5, 0x6FFFFFF0, 0x6FFFFFFB, 0x6FFFFFFC, 0x6FFFFFFD
DT_VERNEED, DT_VERNEEDNUM = 0x6FFFFFFE, 0x6FFFFFFF
DF_1_PIE = 0x08000000


def read_tags(data: Data, segments: Iterable[Segment], records: layout.Layout) -> Iterator[tuple[int, int]]:
    """Yield the tags and values of PT_DYNAMIC up to DT_NULL; none for a file without it."""
    for segment in segments:
        if segment.type == layout.PT_DYNAMIC:
            raw = bytes(data[segment.offset : segment.offset + segment.file_size])
            values = words(raw, records.address_size, records)
            for tag, value in zip(values[::2], values[1::2]):
                if tag == 0:
                    break
                yield tag, value
