"""One section of an opened file: its header's fields, its name, and its bytes."""

from __future__ import annotations

from ..record import NamedTuple
from . import layout
from .headers import Headers


class ImageSection(NamedTuple):
    """One section of an opened file: its header's fields, with its number and the name itself."""

    number: int
    name: str
    type: int
    flags: int
    address: int
    offset: int
    size: int
    link: int
    info: int
    align: int
    entsize: int

    @property
    def loaded(self) -> bool:
        """Whether the section is part of the running program."""
        return bool(self.flags & layout.SHF_ALLOC)

    @property
    def executable(self) -> bool:
        """Whether the section holds code."""
        return bool(self.flags & layout.SHF_EXECINSTR)


def content_of(section: ImageSection, headers: Headers) -> memoryview:
    """Return the bytes of a section, without copying; none for NOBITS. Raises InputError."""
    if section.type in {layout.SHT_NOBITS, layout.SHT_NULL}:
        return memoryview(b"")
    headers.within(section.offset, section.size, f"section {section.name or section.number}")
    return memoryview(headers.data)[section.offset : section.offset + section.size]
