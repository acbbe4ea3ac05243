"""System V x86-64: how types are classified, and where each class is passed (psABI, 3.2.3).

An argument of at most two eightbytes goes into registers, an eightbyte each, if there are enough for all of it: integer
registers for those with an integer in them, SSE registers for those with floating-point numbers only. Everything else
is on the stack. A result that would be on the stack is written where the caller says, by a pointer that is the first
argument, and that comes back in rax.
"""

from __future__ import annotations

from ..calling import FLOAT, X87, Calling, Piece, Place, Shape, aligned

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence


_INTEGERS = ("rdi", "rsi", "rdx", "rcx", "r8", "r9")
_FLOATS = tuple(f"xmm{number}" for number in range(8))
_RESULTS, _FLOAT_RESULTS = ("rax", "rdx"), ("xmm0", "xmm1")
_DWARF = {  # psABI, figure 3.36
    5: "rdi", 4: "rsi", 1: "rdx", 2: "rcx", 8: "r8", 9: "r9",
    **{17 + number: name for number, name in enumerate(_FLOATS)},
}  # fmt: skip
_EIGHT = 8
_INTEGER, _SSE, _MEMORY = "INTEGER", "SSE", "MEMORY"


def _classes(shape: Shape) -> tuple[str, ...]:
    """Return the class of each eightbyte of a type, '' where it holds nothing; (_MEMORY,) if it isn't passed in
    registers."""
    if shape.size > 2 * _EIGHT or any(part.kind == X87 or part.offset % part.size for part in shape.parts):
        return (_MEMORY,)
    found = [""] * (aligned(shape.size, _EIGHT) // _EIGHT)
    for part in shape.parts:
        first = part.offset // _EIGHT
        if part.kind != FLOAT:
            for number in range(first, aligned(part.offset + part.size, _EIGHT) // _EIGHT):
                found[number] = _INTEGER
        elif not found[first]:  # the upper half of __float128 is in the same register
            found[first] = _SSE
    return tuple(found)


def _arguments(shapes: Sequence[Shape | None], result: Shape | None) -> list[Place | None]:
    given = _returned(result) if result is not None else ()
    integers, floats, stack = list(_INTEGERS), list(_FLOATS), _EIGHT
    if given == (_MEMORY,):
        del integers[0]
    found: list[Place | None] = []
    lost = False
    for shape in shapes:
        if lost or shape is None:
            lost = True
            found.append(None)
            continue
        held = (_INTEGER,) if shape.by_address else _classes(shape)
        size, align = (_EIGHT, _EIGHT) if shape.by_address else (shape.size, max(shape.align, _EIGHT))
        if held == (_MEMORY,) or held.count(_INTEGER) > len(integers) or held.count(_SSE) > len(floats):
            stack = _EIGHT + aligned(stack - _EIGHT, align)
            # How these are aligned there, compilers don't agree about.
            lost = align > 2 * _EIGHT or (held != (_MEMORY,) and align > _EIGHT)
            found.append(None if lost else Place((Piece(0, size, "", stack),), shape.by_address))
            stack += aligned(size, _EIGHT)
        else:
            found.append(Place(_pieces(held, size, integers, floats), shape.by_address))
    return found


def _pieces(held: Sequence[str], size: int, integers: list[str], floats: list[str]) -> tuple[Piece, ...]:
    """Return the pieces of a value in registers, which are taken from the lists."""
    return tuple(
        Piece(at * _EIGHT, min(_EIGHT, size - at * _EIGHT), (integers if one == _INTEGER else floats).pop(0))
        for at, one in enumerate(held)
        if one
    )


def _returned(shape: Shape) -> tuple[str, ...]:
    """Return the classes of a result: (X87,) for one in st0, (_MEMORY,) for one that is in memory of the caller's."""
    if shape.by_address:
        return (_MEMORY,)
    alone = shape.size <= 2 * _EIGHT and {part.kind for part in shape.parts} == {X87}
    return (X87,) if alone else _classes(shape)


def _result(shape: Shape) -> Place | None:
    held = _returned(shape)
    if held == (X87,):
        return None
    if held == (_MEMORY,):
        return Place((Piece(0, _EIGHT, _RESULTS[0]),), address=True)
    return Place(_pieces(held, shape.size, list(_RESULTS), list(_FLOAT_RESULTS)))


_KEPT = {3: "rbx", 6: "rbp", 7: "rsp", **{number: f"r{number}" for number in range(12, 16)}}
CALLING = Calling(_arguments, _result, _DWARF, "rsp", _EIGHT, _KEPT, 6, 16)
