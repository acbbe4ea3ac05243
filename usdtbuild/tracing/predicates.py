"""Filters and measures as machines can evaluate them where the hit happens: comparisons, joined, and keys.

`lower` turns a filter into a tree of comparisons for one site: negations are gone, each comparison has its signedness,
and what is true or false whatever the values are is folded. It gives the same answers as `filters`; what it can't
express (patterns within texts, two floating-point numbers) it refuses with a reason, and the tracer then evaluates the
filter on records. A floating-point number is compared as a signed integer of the same order (`_order`).
"""

from __future__ import annotations

import math
import struct
from typing import TYPE_CHECKING, NamedTuple

from ..formats.operands import CONSTANT, MEMORY, REGISTER, Operand, OperandPlace
from . import measures
from .arguments import is_floating
from .filters import OPPOSITES, Comparison, argument_index, is_time, with_moments, with_values
from .model import FLOAT, STRING
from .selection import is_meant

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .filters import Filter, FilterOperand, Tree
    from .measures import Measure
    from .model import Target

_SWAPPED = {"==": "==", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_SIZES = (1, 2, 4, 8)
_HALF = 4  # bytes of each of two keys that are one number, at most
WIDEST = 256  # bytes of the words of several keys, or of a text, at most
_LONGEST = 64  # bytes of a text that others are compared with, at most
_GLOBS = b"*?["


class NotHereError(Exception):
    """A filter can't be evaluated where the hit happens; the text says why."""


class Compare(NamedTuple):
    """An operand of the site, by its index, or of it the bits of `mask` if that isn't 0, compared with a constant or
    with the operand `other`. False if one of them can't be read. `signed` says how; a constant is in the operand's own
    range. `floating`: the operand is a floating-point number, and the constant stands for one; a NaN is unequal to it,
    and no other comparison is true. The operand may be the number of the thread or the process, or the TIME, in
    nanoseconds of CLOCK_MONOTONIC."""

    operand: int
    sign: str
    constant: int = 0
    other: int | None = None
    signed: bool = False
    floating: bool = False
    mask: int = 0


class Text(NamedTuple):
    """Whether the text that an operand points to begins with these bytes (`==`) or not (`!=`), of which the last may be
    the NUL that ends it. False if it can't be read; NULL begins with nothing."""

    operand: int
    sign: str
    start: bytes


class Joined(NamedTuple):
    """Predicates of which all (`and`) or any (`or`) must be true; at least two, none of them known beforehand."""

    word: str
    parts: tuple[Predicate, ...]


# What is True or False passes each hit, or none.
Predicate = bool | Compare | Text | Joined


def lower(wanted: Filter, target: Target, operands: Sequence[Operand], *, apart: bool = False) -> Predicate:
    """Return a filter as a predicate of the operands of one of the target's sites. Raises NotHereError.

    The filter must have been compiled for the target, which checks it. `apart`: as in `Plan`.
    """
    return _Lowering(target, operands, wanted.begun, apart=apart).tree(wanted.tree, negated=False)


def numbers_only(predicate: Predicate) -> Predicate:
    """Return a predicate that compares nothing but numbers of its site. Raises NotHereError if it does."""
    if isinstance(predicate, Joined):
        return predicate._replace(parts=tuple(map(numbers_only, predicate.parts)))
    if isinstance(predicate, Text) or (isinstance(predicate, Compare) and predicate.operand < 0):
        raise NotHereError("a string, thread, process or time is asked for")
    return predicate


class Tally(NamedTuple):
    """A measure at a site: the indices of the operands that are the keys (`THREAD`, `PROCESS`: their number), and of
    that which is added up (None: hits are only counted). `width`: how many bytes the words of the keys may take, 0
    where they are one number; `texts` are those of the keys that are texts.

    Of a pair, `side` says which hit it is, and `tested` whether the filter can be answered there; `partly`: only some
    of its conditions can, and the other hit answers the others. Its keys are none where it hasn't got them all.
    `pair_keys` are those that its hits are told apart by, none where the thread is.
    """

    measure: Measure
    keys: tuple[int, ...]
    of: int | None
    side: str = ""
    tested: bool = True
    width: int = 0
    texts: frozenset[int] = frozenset()
    pair_keys: tuple[int, ...] = ()
    partly: bool = False

    @property
    def key(self) -> int | None:
        """The first key."""
        return self.keys[0] if self.keys else None

    @property
    def second(self) -> int | None:
        """The second one."""
        return self.keys[1] if len(self.keys) > 1 else None

    def signs(self, operands: Sequence[Operand]) -> tuple[bool, bool, bool | None]:
        """Return whether the key and the value are signed, and the second key, None where there is none."""
        first, second, of = (number is not None and number >= 0 and operands[number].signed
                             for number in (self.key, self.second, self.of))  # fmt: skip
        if self.width:
            return False, of, None
        return first, of, second if len(self.keys) > 1 else None


THREAD, PROCESS, TIME = -1, -2, -3
BEGIN, END = "begin", "end"
_OWN = {measures.THREAD: THREAD, measures.PROCESS: PROCESS}
_NUMBER = Operand("", 4, False, False, OperandPlace(REGISTER, ""))  # of a thread or process
_MOMENT = _NUMBER._replace(size=8)


def tallies(
    wanted: Sequence[Measure], target: Target, operands: Sequence[Operand], string_size: int = 64, pair_width: int = 0,
    *, whole: bool = False, apart: bool = False,
) -> list[Tally]:  # fmt: skip
    """Return measures at a site of a target, those of which it has the arguments. Raises NotHereError.

    Keys of pairs take `pair_width` bytes (`Tally`) at all sites. `whole`: texts are no keys before they are changed.
    `apart`: as in `Plan`.
    """
    lowering, found = _Lowering(target, operands, apart=apart), []
    for measure in wanted:
        side = side_of(measure, target)
        if measure.pair and not side:
            continue
        if measures.CALLS in measure.by.split(",") and argument_index(target, measures.CALLS) < 0:
            raise NotHereError("call stacks are made of records")
        keys = lowering.keys(measure.by, is_pair=bool(side))
        pair_keys = lowering.keys(measure.key, is_pair=bool(side))
        if pair_keys is None:
            continue
        of = lowering.measured(measure.of)
        if (keys is None and not side) or (measure.of and of is None):
            continue
        if not isinstance(measure.step, int) or measure.step >= 1 << 63:
            raise NotHereError("steps are no integers")
        texts, needed = lowering.width(keys or (), string_size, is_pair=bool(side))
        if side and keys and (bool(needed) != bool(pair_width) or needed > pair_width):
            raise NotHereError(f"{measure.by} has another type elsewhere")
        needed = pair_width if side else needed
        if whole and (texts or needed > WIDEST):
            raise NotHereError("--normalize changes whole strings")
        also_texts, more = lowering.width(pair_keys, string_size, is_pair=True)
        if whole and also_texts:
            raise NotHereError("--normalize changes whole strings")
        if more > WIDEST:
            raise NotHereError(f"{measure.key} may take more than {WIDEST} bytes")
        if needed > WIDEST:
            raise NotHereError(f"{measure.by} may take more than {WIDEST} bytes")
        found.append(Tally(measure, keys or (), of, side, width=needed, texts=texts | also_texts,
                           pair_keys=pair_keys))  # fmt: skip
    return found


def pair_width(wanted: Sequence[Measure], targets: Sequence[Target], string_size: int) -> int:
    """Return how many bytes the keys of pairs take at all sites of targets, 0 where they are one number."""
    found = [0]
    for target in targets:
        for measure in wanted:
            names = measure.by.split(",") if measure.by and side_of(measure, target) else []
            places = [_OWN.get(name, -3) if (index := argument_index(target, name)) < 0 else index for name in names]
            if -3 not in places:
                found.append(_Lowering(target, ()).width(places, string_size, is_pair=True)[1])
    return max(found)


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
    begun: int = 0
    apart: bool = False

    def own(self, name: str) -> int | None:
        """Return what stands for a number that every hit has. Raises NotHereError where it isn't the one here."""
        if self.apart and name in _OWN:
            raise NotHereError(f"{name} is another number where the process runs")
        return _OWN.get(name)

    def tree(self, tree: Tree, *, negated: bool) -> Predicate:
        if isinstance(tree, Comparison):
            return self.comparison(tree, OPPOSITES[tree.sign] if negated else tree.sign)
        if tree.word == "not":
            return self.tree(tree.parts[0], negated=not negated)
        word = tree.word if not negated else {"and": "or", "or": "and"}[tree.word]
        return _joined(word, [self.tree(part, negated=negated) for part in tree.parts])

    def comparison(self, tree: Comparison, sign: str) -> Predicate:
        tree = with_moments(with_values(tree, self.target), self.target, self.begun)
        left, right = self.position(tree.left), self.position(tree.right)
        for one, other in ((left, tree.right), (right, tree.left)):
            if one is not None and one >= 0 and self.target.arguments[one].kind == STRING:
                return self.of_text(one, sign, other)
        if left is None:
            left, right, sign, literal = right, None, _SWAPPED[sign], tree.left.literal
        else:
            literal = tree.right.literal
        assert left is not None  # one side of a comparison is an argument
        if right is not None:
            return self.of_two(left, sign, right)
        assert not isinstance(literal, bytes)  # the filter was checked
        if self.is_floating(left):
            return self.with_number(left, sign, literal or 0)
        if not isinstance(literal, float):
            constant = literal or 0
        elif math.isinf(literal):
            constant = (1 << 65) * (1 if literal > 0 else -1)
        elif literal.is_integer():
            constant = int(literal)
        elif sign in {"==", "!="}:
            constant = 1 << 65  # no integer is equal to it
        else:
            sign, constant = {"<": "<=", ">=": ">"}.get(sign, sign), math.floor(literal)
        return self.with_constant(left, sign, constant, tree.left.mask or tree.right.mask)

    def position(self, operand: FilterOperand) -> int | None:
        if not operand.name:
            return None
        index = argument_index(self.target, operand.name)
        if index < 0:
            return TIME if is_time(operand, self.target) else self.own(operand.name)
        self.check(index, operand.name, filtered=True)
        return index

    def of_text(self, index: int, sign: str, other: FilterOperand) -> Predicate:
        name, literal = f"{self.target.arguments[index].name or index} is a string, ", other.literal
        if other.name or sign not in {"==", "!=", "=~", "!~"}:
            raise NotHereError(f"{name}and compared with {other.name or 'what is less or greater'}")
        if self.is_missing(index):
            return False
        if literal is None:
            return self.with_constant(index, sign, 0)
        assert isinstance(literal, bytes)
        start = literal + b"\0"
        if sign in {"=~", "!~"}:
            sign = "==" if sign == "=~" else "!="
            start = literal[:-1] if literal.endswith(b"*") else start
            if any(one in _GLOBS for one in start):
                raise NotHereError(f"{name}and the pattern is more than how it begins")
        if len(start) > _LONGEST or 0 in start[:-1]:
            raise NotHereError(f"{name}and what it is compared with has more than {_LONGEST} bytes, or a NUL")
        return Text(index, sign, start)

    def with_number(self, index: int, sign: str, number: float) -> Predicate:
        if self.is_missing(index):
            return False
        if self.operands[index].place.kind == CONSTANT:
            raise NotHereError("a floating-point number is a constant")
        size = self.operands[index].size or 8
        low, high = _around(number, size)
        if sign in {"==", "!="}:
            constant = _order(low, size) if low == high else _ABOVE_ALL
        else:
            constant = _order(low if sign in {"<=", ">"} else high, size)
        return Compare(index, sign, constant, signed=True, floating=True)

    def is_floating(self, index: int) -> bool:
        there = 0 <= index < len(self.operands)
        return there and is_floating(self.target.arguments[index], self.operands[index])

    def measured(self, name: str, *, text: bool = False) -> int | None:
        """Return which operand an argument is, which may be a `text`; None if there is none of this name."""
        index = argument_index(self.target, name) if name else -1
        if index < 0:
            return None
        if not text or self.target.arguments[index].kind != STRING:
            self.check(index, name)
        if self.is_missing(index):
            raise NotHereError(f"{name} is nowhere where it could be read")
        return index

    def keys(self, by: str, *, is_pair: bool) -> tuple[int, ...] | None:
        """Return which operands the keys are that tell hits of this target apart, None if it hasn't got them all.

        The target itself is none of them: it has a table of its own. Raises NotHereError.
        """
        names = by.split(",") if by else []
        if is_pair and measures.PROBE in names:
            raise NotHereError("pairs are of two probes")
        names = [one for one in names if one != measures.PROBE or argument_index(self.target, one) >= 0]
        found = [self.own(one) if (index := self.measured(one, text=True)) is None else index for one in names]
        return None if None in found else tuple(index for index in found if index is not None)

    def width(self, keys: Sequence[int], string_size: int, *, is_pair: bool) -> tuple[frozenset[int], int]:
        """Return which keys are texts, and how many bytes the words of all take at most, 0 if they are one number.

        In front is a word that says what they are; a number has one word, a text its length and its bytes.
        """
        arguments = self.target.arguments
        texts = frozenset(one for one in keys if one >= 0 and arguments[one].kind == STRING)
        size = {one: self.operands[one].size or 8 for one in keys if 0 <= one < len(self.operands)}
        halves = len(keys) == 2 and bool(size) and all(one <= _HALF for one in size.values())
        if not texts and (len(keys) < 2 or (halves and not is_pair)):
            return texts, 0
        return texts, 8 + 8 * len(keys) + -(-string_size // 8) * 8 * sum(one in texts for one in keys)

    def check(self, index: int, name: str, *, filtered: bool = False) -> None:
        """Refuse what is no integer, or if it is `filtered`, nothing that can be compared with a constant."""
        argument = self.target.arguments[index]
        if argument.kind == STRING and not filtered:
            raise NotHereError(f"{name} is a string")
        if index < len(self.operands):
            found = self.operands[index]
            floating = is_floating(argument, found)
            if argument.kind == FLOAT and not floating:
                raise NotHereError(f"{name} is a floating-point number of {found.size} bytes")
            if floating and not filtered:
                raise NotHereError(f"{name} is a floating-point number")
            if (found.size or 8) not in _SIZES:
                raise NotHereError(f"{name} has {found.size} bytes")

    def is_missing(self, index: int) -> bool:
        """Whether a site says nothing of an argument that could be read: then no comparison with it is true."""
        known = {CONSTANT, MEMORY, REGISTER}
        return index >= len(self.operands) or (index >= 0 and self.operands[index].place.kind not in known)

    def with_constant(self, index: int, sign: str, constant: int, mask: int = 0) -> Predicate:
        if self.is_missing(index):
            return False
        operand = self.operands[index] if index >= 0 else _MOMENT if index == TIME else _NUMBER
        least, greatest = value_range(operand)
        if operand.place.kind == CONSTANT:
            value = wrapped(operand.place.displacement, operand)
            return _compared(value & mask if mask else value, sign, constant)
        first, last = (0, mask) if mask else (least, greatest)
        if not first <= constant <= last:
            always = _compared(first, sign, constant)
            # What lies in memory that can't be read isn't compared with anything.
            return Compare(index, ">=", least, signed=operand.signed) if always else False
        return Compare(index, sign, constant, signed=operand.signed and not mask, mask=mask)

    def of_two(self, left: int, sign: str, right: int) -> Predicate:
        if self.is_missing(left) or self.is_missing(right):
            return False
        if min(left, right) < 0 or self.is_floating(left) or self.is_floating(right):
            raise NotHereError("only two integers of the probe are compared with each other")
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


_ABOVE_ALL = (1 << 63) - 1  # greater than what any floating-point number becomes


def _around(number: float, size: int) -> tuple[float, float]:
    """Return the greatest floating-point number of a size that isn't above a number, and the least not below."""
    try:
        near = float(number) if size == 8 else struct.unpack("<f", struct.pack("<f", number))[0]
    except OverflowError:
        near = math.copysign(math.inf, number)
    if near == number:
        return near, near
    bits = _order(near, size) + (1 if near < number else -1)
    other = _number(bits, size)
    return (near, other) if near < number else (other, near)


def _order(number: float, size: int) -> int:
    """Return a floating-point number's bits as a signed integer of the same order; +0 and -0 are the same."""
    bits = int.from_bytes(struct.pack("<d" if size == 8 else "<f", number or 0.0), "little", signed=True)
    return bits if bits >= 0 else bits ^ (1 << 8 * size - 1) - 1


def _number(order: int, size: int) -> float:
    bits = order if order >= 0 else order ^ (1 << 8 * size - 1) - 1
    found: float = struct.unpack("<d" if size == 8 else "<f", bits.to_bytes(size, "little", signed=True))[0]
    return found


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
