"""Machine code put together from templates, which an assembler has made and no assembler is needed for any more.

A template is a piece of machine code with holes: numbers and distances that are only known when a program is traced.
A machine's `templates.S` is their source. `tools/templates.py` writes its `templates.py` from it: the bytes of each
template, and where its holes are. Here they are placed one behind the other and filled. The technique is known as
copy-and-patch.

What the templates do is told where they are used: `tracing.patch`, and the machine's `host`.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from ..record import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    # Fills a hole of code at an offset with a value; the hole is at an address.
    Fill = Callable[[bytearray, int, int, int], None]


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


def _bytes(format_: str, *, is_distance: bool = False) -> Fill:
    number = struct.Struct(format_)

    def fill(code: bytearray, offset: int, value: int, place: int) -> None:
        number.pack_into(code, offset, value - place if is_distance else value)

    return fill


def _field(bits: int, position: int, divided: int = 0, *, is_distance: bool = False) -> Fill:
    """Return how a number, or the distance to it, fills bits of a word, divided by a power of two."""
    first, end = (-1 << bits - 1, 1 << bits - 1) if is_distance else (0, 1 << bits)

    def fill(code: bytearray, offset: int, value: int, place: int) -> None:
        number = value - place if is_distance else value
        if number & (1 << divided) - 1 or not first <= number >> divided < end:
            raise OverflowError
        _set_bits(code, offset, (number >> divided & (1 << bits) - 1) << position)

    return fill


def _part(index: int, most: int = 64) -> Fill:
    """Return how 16 bits of a number of at most `most` bits fill a `movz` or `movk`; signed ones of 64 bits may be."""

    def fill(code: bytearray, offset: int, value: int, _: int) -> None:
        if not -1 << 63 <= value < 1 << most or (value < 0 and most < 64):
            raise OverflowError
        _set_bits(code, offset, (value >> 16 * index & 0xFFFF) << 5)

    return fill


def _page(code: bytearray, offset: int, value: int, place: int) -> None:
    """Fill an `adrp`: the distance in pages of 4 KB."""
    pages = (value >> 12) - (place >> 12)
    if not -1 << 20 <= pages < 1 << 20:
        raise OverflowError
    _set_bits(code, offset, (pages & 3) << 29 | (pages >> 2 & 0x7FFFF) << 5)


def _in_page(code: bytearray, offset: int, value: int, _: int) -> None:
    """Fill an `add` behind an `adrp`."""
    _set_bits(code, offset, (value & 0xFFF) << 10)


def _set_bits(code: bytearray, offset: int, bits: int) -> None:
    _WORD.pack_into(code, offset, _WORD.unpack_from(code, offset)[0] | bits)


_WORD = struct.Struct("<I")
# How a number stands in the code. Distances are from the hole to an address; on aarch64 the names are those of the
# relocations (ELF for the Arm 64-bit Architecture, 5.7), the ranges those of what the number is used for.
KINDS: dict[str, Fill] = {
    "64": _bytes("<Q"),
    "32": _bytes("<I"),
    "signed 32": _bytes("<i"),
    "16": _bytes("<H"),
    "8": _bytes("<B"),
    "distance": _bytes("<i", is_distance=True),
    "jump26": _field(26, 0, 2, is_distance=True),
    "condbr19": _field(19, 5, 2, is_distance=True),
    "adr_prel_pg_hi21": _page,
    "add_abs_lo12": _in_page,
    "ldst64_abs_lo12": _field(12, 10, 3),
    "movw_uabs_g0": _part(0, 16),
    "movw_uabs_g1": _part(1, 32),
    "movw_uabs_g3": _part(3),
    "movw_uabs_g0_nc": _part(0),
    "movw_uabs_g1_nc": _part(1),
    "movw_uabs_g2_nc": _part(2),
    # Of programs that the runtime runs (`tracing.programs`), in the byte order of this machine.
    "native 64": _bytes("=Q"),
    "native 32": _bytes("=I"),
    "native jump": _bytes("=i", is_distance=True),
    "native distance": _bytes("=q", is_distance=True),
}


class Code:
    """Code that is to stand at an address, made from templates.

    `here` is the address of what is added next. Holes are filled by the values given to `add`; those that are not are
    filled at the end, by labels of this code and by what `packed` is given.
    """

    def __init__(self, templates: Mapping[str, Template], at: int = 0) -> None:
        self._templates, self._at = templates, at
        self._code = bytearray()
        self._open: list[tuple[int, Hole]] = []
        self._labels: dict[str, int] = {}

    @property
    def here(self) -> int:
        """The address behind what was added so far."""
        return self._at + len(self._code)

    def add(self, name: str, **values: int | str) -> None:
        """Append a template, with numbers for its holes, or names of labels that come later. Raises OverflowError for a
        number that has no room there."""
        self.put(self._templates[name], **values)

    def put(self, template: Template, **values: int | str) -> None:
        """Append a template, as `add`."""
        code = self._code
        start = len(code)
        code += template.code
        for hole in template.holes:
            value = values.get(hole.name)
            if value is None:
                self._open.append((start, hole))
            elif isinstance(value, str):
                self._open.append((start, hole._replace(name=value)))
            else:
                self._fill(start, hole, value)

    def append(self, code: bytes) -> None:
        """Append code that has no holes."""
        self._code += code

    def label(self, name: str, behind: int = 0) -> None:
        """Give the next address a name, for holes, or one that is so far behind it."""
        self._labels[name] = self.here + behind

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
        _fill(self._code, self._at, start, hole, value)


def filled(template: Template, at: int, **values: int) -> bytes:
    """Return one template's code, to stand at an address, its holes filled. Raises as `Code` does."""
    code = bytearray(template.code)
    for hole in template.holes:
        _fill(code, at, 0, hole, values[hole.name])
    return bytes(code)


def with_filled(template: Template, **values: int) -> Template:
    """Return a template in which some holes are filled: with numbers, or with distances to places in it."""
    code = bytearray(template.code)
    for hole in template.holes:
        if hole.name in values:
            _fill(code, 0, 0, hole, values[hole.name])
    return template._replace(code=bytes(code), holes=tuple(hole for hole in template.holes if hole.name not in values))


def joined(first: Template, second: Template) -> Template:
    """Return two templates, one behind the other, as one without labels."""
    size = len(first.code)
    behind = (hole._replace(offset=size + hole.offset) for hole in second.holes)
    return Template(first.code + second.code, (*first.holes, *behind))


def _fill(code: bytearray, at: int, start: int, hole: Hole, value: int) -> None:
    offset, kind, name, addend = hole
    offset += start
    try:
        KINDS[kind](code, offset, value + addend, at + offset)
    except (struct.error, OverflowError):
        raise OverflowError(f"{name} = {value:#x} has no room in a hole of kind {kind}") from None
