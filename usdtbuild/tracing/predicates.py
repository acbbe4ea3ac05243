"""Filters as machines can evaluate them where the hit happens: comparisons of integers, joined.

`lower` turns a filter into a tree of comparisons for one site: negations are gone, each comparison has its signedness,
and what is true or false whatever the values are is folded. It gives the same answers as `filters`; what it can't
express (strings, floating point) it refuses with a reason, and the tracer then evaluates the filter on records.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from ..formats.operands import CONSTANT, MEMORY, REGISTER
from . import measures
from .arguments import is_floating
from .filters import OPPOSITES, Comparison, argument_index
from .model import FLOAT, STRING
from .selection import is_meant

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..formats.operands import Operand
    from .filters import Filter, FilterOperand, Tree
    from .measures import Measure
    from .model import Target

_SWAPPED = {"==": "==", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_SIZES = (1, 2, 4, 8)
_HALF = 4  # bytes of each of two keys, at most


class NotHereError(Exception):
    """A filter can't be evaluated where the hit happens; the text says why."""


class Compare(NamedTuple):
    """An operand of the site, by its index, compared with a constant or with the operand `other`. False if one of them
    can't be read. `signed` says how; a constant is in the operand's own range."""

    operand: int
    sign: str
    constant: int = 0
    other: int | None = None
    signed: bool = False


class Joined(NamedTuple):
    """Predicates of which all (`and`) or any (`or`) must be true; at least two, none of them known beforehand."""

    word: str
    parts: tuple[Predicate, ...]


# What is True or False passes each hit, or none.
Predicate = bool | Compare | Joined


def lower(wanted: Filter, target: Target, operands: Sequence[Operand]) -> Predicate:
    """Return a filter as a predicate of the operands of one of the target's sites. Raises NotHereError.

    The filter must have been compiled for the target, which checks it.
    """
    return _Lowering(target, operands).tree(wanted.tree, negated=False)


class Tally(NamedTuple):
    """A measure at a site: the index of the operand that is the key (None: no key; `THREAD`, `PROCESS`: their number),
    and of that which is added up (None: hits are only counted). `second` is another key, beside the first.

    Of a pair, `side` says which hit it is, and `tested` whether the filter can be answered there.
    """

    measure: Measure
    key: int | None
    of: int | None
    side: str = ""
    tested: bool = True
    second: int | None = None

    def signs(self, operands: Sequence[Operand]) -> tuple[bool, bool, bool | None]:
        """Return whether the key and the value are signed, and the second key, None where there is none."""
        key, of, second = (number is not None and number >= 0 and operands[number].signed
                           for number in (self.key, self.of, self.second))  # fmt: skip
        return key, of, second if self.second is not None else None


THREAD, PROCESS = -1, -2
BEGIN, END = "begin", "end"
_OWN = {measures.THREAD: THREAD, measures.PROCESS: PROCESS}


def tallies(wanted: Sequence[Measure], target: Target, operands: Sequence[Operand]) -> list[Tally]:
    """Return measures at a site of a target, those of which it has the arguments. Raises NotHereError."""
    lowering, found = _Lowering(target, operands), []
    for measure in wanted:
        side = side_of(measure, target)
        if measure.pair and not side:
            continue
        by = lowering.keys(measure.by, is_pair=bool(side))
        of = lowering.measured(measure.of)
        if (None in by and not side) or (measure.of and of is None):
            continue
        key, second = (*by, None, None)[:2]
        if not isinstance(measure.step, int) or measure.step >= 1 << 63:
            raise NotHereError("steps are no integers")
        found.append(Tally(measure, key, of, side, second=second))
    return found


def side_of(measure: Measure, target: Target) -> str:
    """Return which hit of a pair a target's is; '' for neither."""
    sides = zip((BEGIN, END), measure.pair or ())
    return next((side for side, pattern in sides if is_meant(target, pattern)), "")


def value_range(operand: Operand) -> tuple[int, int]:
    """Return the least and the greatest integer that an operand can be."""
    bits = 8 * (operand.size or 8)
    return (-(1 << bits - 1), (1 << bits - 1) - 1) if operand.signed else (0, (1 << bits) - 1)


class _Lowering(NamedTuple):
    target: Target
    operands: Sequence[Operand]

    def tree(self, tree: Tree, *, negated: bool) -> Predicate:
        if isinstance(tree, Comparison):
            return self.comparison(tree, OPPOSITES[tree.sign] if negated else tree.sign)
        if tree.word == "not":
            return self.tree(tree.parts[0], negated=not negated)
        word = tree.word if not negated else {"and": "or", "or": "and"}[tree.word]
        return _joined(word, [self.tree(part, negated=negated) for part in tree.parts])

    def comparison(self, tree: Comparison, sign: str) -> Predicate:
        left, right = self.position(tree.left), self.position(tree.right)
        if sign not in _SWAPPED:
            raise NotHereError("patterns are for strings")
        if left is None:
            left, right, sign, literal = right, None, _SWAPPED[sign], tree.left.literal
        else:
            literal = tree.right.literal
        assert left is not None  # one side of a comparison is an argument
        if right is not None:
            return self.of_two(left, sign, right)
        if isinstance(literal, bytes):
            raise NotHereError("strings are compared by the tracer")
        if not isinstance(literal, float):
            return self.with_constant(left, sign, literal or 0)
        if math.isinf(literal):
            return self.with_constant(left, sign, (1 << 65) * (1 if literal > 0 else -1))
        if literal.is_integer():
            return self.with_constant(left, sign, int(literal))
        if sign in {"==", "!="}:
            return self.with_constant(left, sign, 1 << 65)  # no integer is equal to it
        return self.with_constant(left, {"<": "<=", ">=": ">"}.get(sign, sign), math.floor(literal))

    def position(self, operand: FilterOperand) -> int | None:
        """Return which operand an argument is; None for a literal."""
        if not operand.name:
            return None
        index = argument_index(self.target, operand.name)
        self.check(index, operand.name)
        return index

    def measured(self, name: str) -> int | None:
        """Return which operand an argument is; None if there is none of this name."""
        index = argument_index(self.target, name) if name else -1
        if index < 0:
            return None
        self.check(index, name)
        if self.is_missing(index):
            raise NotHereError(f"{name} is nowhere where it could be read")
        return index

    def keys(self, by: str, *, is_pair: bool) -> list[int | None]:
        """Return which operands the keys are that tell hits of this target apart, None for those that it hasn't got.

        The target itself is none of them: it has a table of its own. Raises NotHereError.
        """
        names = by.split(",") if by else []
        if not is_pair:
            names = [one for one in names if one != measures.PROBE or argument_index(self.target, one) >= 0]
        found = [_OWN.get(name) if (index := self.measured(name)) is None else index for name in names]
        if is_pair and (len(names) > 1 or measures.PROBE in names):
            raise NotHereError("pairs are told apart by one argument only")
        wide = any(index is not None and index >= 0 and (self.operands[index].size or 8) > _HALF for index in found)
        own = sum(index is not None and index < 0 for index in found)
        if len(names) > 2 or (len(names) == 2 and (wide or own > 1)):
            raise NotHereError(f"{by} don't fit into one key of eight bytes")
        return found

    def check(self, index: int, name: str) -> None:
        """Refuse what is no integer."""
        argument = self.target.arguments[index]
        if argument.kind == STRING:
            raise NotHereError(f"{name} is a string")
        if index < len(self.operands):
            found = self.operands[index]
            if argument.kind == FLOAT or is_floating(argument, found):
                raise NotHereError(f"{name} is a floating-point number")
            if (found.size or 8) not in _SIZES:
                raise NotHereError(f"{name} has {found.size} bytes")

    def is_missing(self, index: int) -> bool:
        """Whether a site says nothing of an argument that could be read: then no comparison with it is true."""
        return index >= len(self.operands) or self.operands[index].place.kind not in {CONSTANT, MEMORY, REGISTER}

    def with_constant(self, index: int, sign: str, constant: int) -> Predicate:
        if self.is_missing(index):
            return False
        operand = self.operands[index]
        least, greatest = value_range(operand)
        if operand.place.kind == CONSTANT:
            return _compared(wrapped(operand.place.displacement, operand), sign, constant)
        if not least <= constant <= greatest:
            always = _compared(least, sign, constant)
            # What lies in memory that can't be read isn't compared with anything.
            return Compare(index, ">=", least, signed=operand.signed) if always else False
        return Compare(index, sign, constant, signed=operand.signed)

    def of_two(self, left: int, sign: str, right: int) -> Predicate:
        if self.is_missing(left) or self.is_missing(right):
            return False
        one, other = self.operands[left], self.operands[right]
        if other.place.kind == CONSTANT:
            return self.with_constant(left, sign, wrapped(other.place.displacement, other))
        if one.place.kind == CONSTANT:
            return self.with_constant(right, _SWAPPED[sign], wrapped(one.place.displacement, one))
        (least, greatest), (other_least, other_greatest) = value_range(one), value_range(other)
        if min(least, other_least) < 0 and max(greatest, other_greatest) >= 1 << 63:
            raise NotHereError("a signed number is compared with an unsigned one of 8 bytes")
        return Compare(left, sign, other=right, signed=min(least, other_least) < 0)


def wrapped(value: int, operand: Operand) -> int:
    """Return a number as an operand of its size and sign holds it."""
    least, greatest = value_range(operand)
    value &= (1 << 8 * (operand.size or 8)) - 1
    return value if value <= greatest else value + 2 * least


def _compared(one: int, sign: str, other: int) -> bool:
    return {"==": one == other, "!=": one != other, "<": one < other, "<=": one <= other, ">": one > other,
            ">=": one >= other}[sign]  # fmt: skip


def _joined(word: str, parts: Sequence[Predicate]) -> Predicate:
    deciding = word == "or"  # the value of a part that decides
    left = tuple(part for part in parts if not isinstance(part, bool))
    if deciding in [part for part in parts if isinstance(part, bool)]:
        return deciding
    if len(left) < 2:
        return left[0] if left else not deciding
    return Joined(word, left)
