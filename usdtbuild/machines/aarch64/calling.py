"""AAPCS64: where arguments and results are (Procedure Call Standard for the Arm 64-bit Architecture, 6.8.2 and 6.9).

Integers and small structures go into x0 to x7, floating-point numbers and structures of up to four alike of them into
v0 to v7, an element each. Once one didn't fit, no later one of its kind is in registers. Larger structures are passed
by the address of a copy. A large result is written where x8 says, which nobody knows any more after the return.
"""

from __future__ import annotations

from ..calling import FLOAT, MOST, Calling, Piece, Place, Shape, aligned

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence


_EIGHT, _REGISTERS = 8, 8
_MOST_ELEMENTS = 4
_DWARF = {
    **{number: f"x{number}" for number in range(_REGISTERS)},
    **{64 + number: f"v{number}" for number in range(_REGISTERS)},
}


def _elements(shape: Shape) -> int:
    """Return how many floating-point numbers a type is made of, all alike (HFA, 5.10.5.1); 0 for any other type."""
    sizes = {part.size for part in shape.parts}
    if shape.size > MOST or len(sizes) != 1 or any(part.kind != FLOAT for part in shape.parts):
        return 0
    size = sizes.pop()
    places = {part.offset for part in shape.parts}
    count = shape.size // size
    return count if count <= _MOST_ELEMENTS and places == {at * size for at in range(count)} else 0


def _arguments(shapes: Sequence[Shape | None], result: Shape | None) -> list[Place | None]:
    del result  # its address, if it has one, is in x8
    integers = floats = stack = 0
    found: list[Place | None] = []
    lost = False
    for shape in shapes:
        if lost or shape is None:
            lost = True
            found.append(None)
            continue
        elements = 0 if shape.by_address else _elements(shape)
        address = shape.by_address or (not elements and shape.size > 2 * _EIGHT)
        size, align = (_EIGHT, _EIGHT) if address else (shape.size, max(shape.align, _EIGHT))
        if elements and floats + elements <= _REGISTERS:
            found.append(Place(_vector_pieces(elements, size, floats)))
            floats += elements
            continue
        if elements:
            floats = _REGISTERS
        else:
            lost = align > 2 * _EIGHT
            integers = aligned(integers, 2) if align > _EIGHT else integers
            count = aligned(size, _EIGHT) // _EIGHT
            if integers + count <= _REGISTERS:
                found.append(None if lost else Place(_pieces(size, integers), address))
                integers += count
                continue
            integers = _REGISTERS
        lost = lost or align > 2 * _EIGHT
        stack = aligned(stack, align)
        found.append(None if lost else Place((Piece(0, size, "", stack),), address))
        stack += aligned(size, _EIGHT)
    return found


def _pieces(size: int, first: int) -> tuple[Piece, ...]:
    return tuple(Piece(at, min(_EIGHT, size - at), f"x{first + at // _EIGHT}") for at in range(0, size, _EIGHT))


def _vector_pieces(elements: int, size: int, first: int) -> tuple[Piece, ...]:
    each = size // elements
    return tuple(Piece(number * each, each, f"v{first + number}") for number in range(elements))


def _result(shape: Shape) -> Place | None:
    place = _arguments((shape,), None)[0]
    return None if place is None or place.address else place


_KEPT = {**{number: f"x{number}" for number in range(19, 31)}, 31: "sp"}
CALLING = Calling(_arguments, _result, _DWARF, "sp", 0, _KEPT, 29, 30, 48)
