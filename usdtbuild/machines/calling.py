"""Where functions get their arguments and leave their results: the vocabulary of the machines' calling conventions.

A machine's own module (`x86_64.calling`, `aarch64.calling`) holds its convention as one table. Here is what goes in,
types as far as a convention looks at them, and what comes out, places. Nothing here knows debug information.
"""

from __future__ import annotations

from ..record import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

# What a part of a type is: an integer or pointer; a floating-point number, or one of x87.
INTEGER, FLOAT, X87 = "integer", "float", "x87"


class Part(NamedTuple):
    """One scalar of a type: where it is in it, in bytes, how large, and what it is."""

    offset: int
    size: int
    kind: str


class Shape(NamedTuple):
    """What a convention must know of a type. `parts` are its scalars, all of them if it has at most MOST bytes.

    `by_address`: C++ passes a copy's address, because copies or destructors are functions (Itanium C++ ABI, 3.1.1).
    """

    size: int
    align: int
    parts: tuple[Part, ...]
    by_address: bool = False


MOST = 64  # no convention looks into larger ones


class Piece(NamedTuple):
    """Bytes of a value, from an offset in it on: in a register, or (register '') on the stack, so far above the stack
    pointer as it is at the function's entry."""

    offset: int
    size: int
    register: str
    distance: int = 0


class Place(NamedTuple):
    """Where a value is: its pieces, or the one piece that holds its `address`."""

    pieces: tuple[Piece, ...]
    address: bool = False


class Calling(NamedTuple):
    """A machine's convention for C and C++ on Linux.

    `arguments` returns the places of arguments, given their shapes and the result's (None: there is none); behind a
    shape that isn't known (None) nothing has a place. `result` returns that of a result, once the function has
    returned. `registers` are names by DWARF's numbers, of those in which arguments are. `stack` is the stack pointer's
    name, and `frame` how far the canonical frame address is above it at the entry.

    `kept` are the registers that a function leaves as they were, by DWARF's numbers, the stack pointer, the frame
    pointer (`framed`) and that of the return address (`back`; where there is none, it is only DWARF's number) among
    them. `bits` is how many bits of a return address are one.
    """

    arguments: Callable[[Sequence[Shape | None], Shape | None], list[Place | None]]
    result: Callable[[Shape], Place | None]
    registers: Mapping[int, str]
    stack: str
    frame: int
    kept: Mapping[int, str]
    framed: int
    back: int
    bits: int = 64


def aligned(number: int, to: int) -> int:
    """Return the first multiple from a number on."""
    return -(-number // to) * to
