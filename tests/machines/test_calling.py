"""Calling conventions: where arguments and results are, as the psABIs say."""

from __future__ import annotations

import pytest

from usdtbuild.machines import facts_of
from usdtbuild.machines.calling import FLOAT, INTEGER, X87, Part, Place, Shape
from usdtbuild.machines.numbers import EM_AARCH64, EM_X86_64


def scalar(size: int, kind: str = INTEGER) -> Shape:
    return Shape(size, size, (Part(0, size, kind),))


def structure(size: int, *parts: tuple[int, int, str], by_address: bool = False) -> Shape:
    return Shape(size, max((part[1] for part in parts), default=1), tuple(Part(*part) for part in parts), by_address)


INT, LONG, WIDE, REAL, SMALL_REAL = scalar(4), scalar(8), scalar(16), scalar(8, FLOAT), scalar(4, FLOAT)
X87_REAL = scalar(16, X87)
TWO = structure(8, (0, 4, INTEGER), (4, 4, INTEGER))
MIXED = structure(16, (0, 8, FLOAT), (8, 4, INTEGER))
THREE = structure(24, (0, 8, INTEGER), (8, 8, INTEGER), (16, 8, INTEGER))
FLOATS = structure(16, *((4 * at, 4, FLOAT) for at in range(4)))
PACKED = structure(5, (0, 1, INTEGER), (1, 4, INTEGER))
OWNED = structure(4, (0, 4, INTEGER), by_address=True)
EMPTY = structure(1)


def said(place: Place | None) -> str:
    """Return a place in one word: registers, distances from the stack pointer, `*` before what is an address."""
    if place is None:
        return "?"
    return "*" * place.address + "+".join(piece.register or str(piece.distance) for piece in place.pieces)


@pytest.mark.parametrize(
    ("machine", "shapes", "result", "places"),
    [
        (EM_X86_64, [INT, LONG, REAL, TWO, SMALL_REAL], None, "rdi rsi xmm0 rdx xmm1"),
        (EM_X86_64, [LONG, INT], THREE, "rsi rdx"),
        (EM_X86_64, [LONG], X87_REAL, "rdi"),
        (EM_X86_64, [LONG], OWNED, "rsi"),
        (EM_X86_64, [MIXED, MIXED, FLOATS, OWNED], None, "xmm0+rdi xmm1+rsi xmm2+xmm3 *rdx"),
        (EM_X86_64, [THREE, INT, X87_REAL, PACKED, INT], None, "8 rdi 40 56 rsi"),
        (EM_X86_64, [INT] * 5 + [WIDE, INT, INT], None, "rdi rsi rdx rcx r8 ? ? ?"),
        (EM_X86_64, [INT] * 5 + [structure(16, (0, 8, INTEGER), (8, 8, INTEGER)), INT, INT], None,
         "rdi rsi rdx rcx r8 8 r9 24"),
        (EM_X86_64, [REAL] * 9 + [EMPTY, INT], None, "xmm0 xmm1 xmm2 xmm3 xmm4 xmm5 xmm6 xmm7 8  rdi"),
        (EM_X86_64, [INT, None, INT], None, "rdi ? ?"),
        (EM_AARCH64, [INT, REAL, TWO, MIXED, THREE], THREE, "x0 v0 x1 x2+x3 *x4"),
        (EM_AARCH64, [INT, WIDE, FLOATS, OWNED, EMPTY], None, "x0 x2+x3 v0+v1+v2+v3 *x4 x5"),
        (EM_AARCH64, [LONG] * 7 + [MIXED, INT, SMALL_REAL], None, "x0 x1 x2 x3 x4 x5 x6 0 16 v0"),
        (EM_AARCH64, [REAL] * 6 + [FLOATS, REAL], None, "v0 v1 v2 v3 v4 v5 0 16"),
    ],
)  # fmt: skip
def test_arguments(machine: int, shapes: list[Shape | None], result: Shape | None, places: str) -> None:
    facts = facts_of(machine)
    assert facts is not None
    assert facts.calling is not None
    assert [said(place) for place in facts.calling().arguments(shapes, result)] == places.split(" ")


@pytest.mark.parametrize(
    ("machine", "shape", "place"),
    [
        (EM_X86_64, INT, "rax"), (EM_X86_64, REAL, "xmm0"), (EM_X86_64, MIXED, "xmm0+rax"), (EM_X86_64, THREE, "*rax"),
        (EM_X86_64, WIDE, "rax+rdx"), (EM_X86_64, X87_REAL, "?"), (EM_X86_64, OWNED, "*rax"),
        (EM_X86_64, FLOATS, "xmm0+xmm1"), (EM_X86_64, PACKED, "*rax"), (EM_AARCH64, LONG, "x0"),
        (EM_AARCH64, FLOATS, "v0+v1+v2+v3"), (EM_AARCH64, THREE, "?"), (EM_AARCH64, OWNED, "?"),
    ],
)  # fmt: skip
def test_results(machine: int, shape: Shape, place: str) -> None:
    facts = facts_of(machine)
    assert facts is not None
    assert facts.calling is not None
    assert said(facts.calling().result(shape)) == place
