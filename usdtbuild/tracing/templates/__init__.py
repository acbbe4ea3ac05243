"""Machine code put together from templates, which an assembler has made and no assembler is needed for any more.

A template is a piece of machine code with holes: numbers and distances that are only known when a program is traced.
`x86_64.S` is their source; `tools/templates.py` writes `x86_64.py` from it, the bytes of each template and where its
holes are. Here they are placed one behind the other and filled. It is the technique that is known as copy-and-patch.

What the templates do is told where they are used: `patch`, `hosts`.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping


class Hole(NamedTuple):
    """A place in a template's code that a number goes into: `name` says which. `addend` is added to it."""

    offset: int
    kind: str
    name: str
    addend: int


class Template(NamedTuple):
    """Machine code with holes; `labels` are the places in it that have a name, by their offset."""

    code: bytes
    holes: tuple[Hole, ...] = ()
    labels: Mapping[str, int] = {}


# How a number stands in the code, and whether it is the distance from there.
KINDS = {
    "64": (struct.Struct("<Q"), False),
    "32": (struct.Struct("<I"), False),
    "signed 32": (struct.Struct("<i"), False),
    "8": (struct.Struct("<B"), False),
    "distance": (struct.Struct("<i"), True),
}


class Code:
    """Code that is to stand at an address, made from templates.

    `here` is the address of what is added next. Holes are filled by the values given to `add`; those that are not are
    filled at the end, by labels of this code and by what `packed` is given.
    """

    def __init__(self, templates: Mapping[str, Template], at: int = 0) -> None:
        """Begin with nothing."""
        self._templates, self._at = templates, at
        self._code = bytearray()
        self._open: list[tuple[int, Hole]] = []
        self._labels: dict[str, int] = {}

    @property
    def here(self) -> int:
        """The address behind what was added so far."""
        return self._at + len(self._code)

    def add(self, name: str, **values: int) -> None:
        """Append a template, with numbers for its holes. Raises OverflowError if one has no room there."""
        code = self._code
        start = len(code)
        template = self._templates[name]
        code += template.code
        for hole in template.holes:
            value = values.get(hole.name)
            if value is None:
                self._open.append((start, hole))
            else:
                self._fill(start, hole, value)

    def label(self, name: str) -> None:
        """Give the next address a name, for holes."""
        self._labels[name] = self.here

    def pad(self, filling: bytes, size: int) -> None:
        """Append copies of an instruction up to the next multiple of a size."""
        self._code += filling * (-len(self._code) % size // len(filling))

    def packed(self, **values: int) -> bytes:
        """Return the code, all holes filled. Raises KeyError for one that nothing is known of."""
        known = {**self._labels, **values}
        for start, hole in self._open:
            self._fill(start, hole, known[hole.name])
        self._open.clear()
        return bytes(self._code)

    def _fill(self, start: int, hole: Hole, value: int) -> None:
        offset, kind, name, addend = hole
        number, is_distance = KINDS[kind]
        offset += start
        try:
            number.pack_into(self._code, offset, value + addend - (self._at + offset if is_distance else 0))
        except struct.error:
            raise OverflowError(f"{name} = {value:#x} has no room in a hole of kind {kind}") from None
