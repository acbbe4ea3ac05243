"""Stubs that count what a hit's arguments say: only hits that pass a predicate, and by the value of an argument.

What a stub must leave as it was is told in `code`. It saves registers as a record's stub does, loads operands into the
machine's first register, and compares there. Where a machine can compare all operands of a predicate as they are,
nothing is saved. Memory that the program itself might never follow is tried before it is read; a comparison of what
can't be read is false.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ...formats.operands import CONSTANT, REGISTER
from ..predicates import Compare, Joined, key_operand, lower, wrapped
from ..templates import Code

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ...formats.operands import Operand, OperandPlace
    from ..model import Target
    from ..plan import Plan
    from ..predicates import Predicate
    from ..templates import Template
    from .code import Back, Routines

_OPPOSITES = {"==": "!=", "!=": "==", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}


class Words(NamedTuple):
    """What a machine's code needs besides its templates.

    `conditions` are those of a jump by sign, for signed and for unsigned numbers; `counting` is a template, too.
    `load_register` loads a register into the first one, `address` the address of a memory operand and says how that is
    read (see `code`). `as_it_is` returns the template that compares an operand with a constant and changes nothing but
    flags, '' if there is none. `comparison_size` are the most bytes of a comparison, `size` those around all.
    """

    templates: Mapping[str, Template]
    conditions: Mapping[str, tuple[str, str]]
    counting: str
    go_on: Callable[[Code, Back], None]
    load_register: Callable[[Code, str], bool]
    address: Callable[[Code, OperandPlace], str]
    as_it_is: Callable[[Operand, int], str]
    comparison_size: int
    size: int

    def most(self, plan: Plan, target: Target, operands: Sequence[Operand]) -> int:
        """Return how many bytes a site's stub takes at most."""
        predicate, key = asked(plan, target, operands)
        return self.size + self.comparison_size * (len(_comparisons(predicate)) + (key is not None))


class Action(NamedTuple):
    """What a stub does: if the predicate is true it counts the operand `key` in a table (None: not), and the hit."""

    predicate: Predicate
    key: int | None
    operands: tuple[Operand, ...]
    counter: int
    table: int = 0


def asked(plan: Plan, target: Target, operands: Sequence[Operand]) -> tuple[Predicate, int | None]:
    """Return a plan's predicate for a site of a target, and which operand is the key. Raises NotHereError."""
    predicate = lower(plan.where, target, operands) if plan.where is not None else True
    return predicate, key_operand(plan.by, target, operands) if plan.by else None


def stub(words: Words, at: int, action: Action, calls: Routines, back: Back) -> bytes:
    """Return a stub that does something and goes `back`."""
    made, predicate, key = Code(words.templates, at), action.predicate, action.key
    if isinstance(predicate, bool) and (key is None or not predicate):
        if predicate:
            made.add(words.counting, counter=action.counter)
        words.go_on(made, back)
        return made.packed()
    plain = key is None and all(
        one.other is None and words.as_it_is(action.operands[one.operand], one.constant)
        for one in _comparisons(predicate)
    )
    writer = _Writer(words, made, action.operands, plain=plain)
    if not plain:
        made.add("save_all")
    if predicate is not True:
        writer.branch(predicate, "pass", "skip", "pass")
    for end in ("pass", "skip") if predicate is not True else ("pass",):
        made.label(end)
        if end == "pass" and key is not None:
            if writer.load(key, "counted"):
                made.add("count_key", table=action.table)
            made.label("counted")
        if not plain:
            made.add("restore_all")
        if end == "pass":
            made.add(words.counting, counter=action.counter)
        words.go_on(made, back)
    return made.packed(**calls._asdict())


def _comparisons(predicate: Predicate) -> list[Compare]:
    if isinstance(predicate, Joined):
        return [one for part in predicate.parts for one in _comparisons(part)]
    return [predicate] if isinstance(predicate, Compare) else []


class _Writer:
    """Writes what tries a hit."""

    def __init__(self, words: Words, made: Code, operands: Sequence[Operand], *, plain: bool) -> None:
        self.words, self.made, self.operands, self.plain = words, made, operands, plain
        self._labels = 0

    def branch(self, predicate: Predicate, true: str, false: str, behind: str) -> None:
        """Go to the label `true` or to `false`; that of them that is `behind` stands right behind."""
        if isinstance(predicate, Joined):
            *first, last = predicate.parts
            for part in first:
                self._labels += 1
                label = f"part {self._labels}"
                ends = (label, false) if predicate.word == "and" else (true, label)
                self.branch(part, *ends, behind=label)
                self.made.label(label)
            self.branch(last, true, false, behind)
            return
        assert isinstance(predicate, Compare)
        if self._compare(predicate, false):
            sign, target = (predicate.sign, true) if behind == false else (_OPPOSITES[predicate.sign], false)
            self.made.add(f"jump_{self.words.conditions[sign][not predicate.signed]}", target=target)
        elif behind != false:
            self.made.add("jump", target=false)

    def _compare(self, compare: Compare, unreadable: str) -> bool:
        """Compare, or go to a label; False if there is no way to read an operand."""
        if self.plain:
            operand = self.operands[compare.operand]
            size = operand.size or 8
            constant = compare.constant if size == 8 else compare.constant & (1 << 8 * size) - 1
            self.made.add(self.words.as_it_is(operand, compare.constant), constant=constant)
            return True
        if not self.load(compare.operand, unreadable):
            return False
        if compare.other is None:
            self.made.add("compare_constant", constant=compare.constant & 0xFFFFFFFFFFFFFFFF)
            return True
        self.made.add("keep_first")
        if not self.load(compare.other, unreadable):
            return False
        self.made.add("compare_two")
        return True

    def load(self, index: int, unreadable: str) -> bool:
        """Load an operand into the first register, as a number of 64 bits; False if there is no way."""
        operand = self.operands[index]
        size, sign = operand.size or 8, "signed" if operand.signed else "unsigned"
        if operand.place.kind == CONSTANT:
            self.made.add("constant", value=wrapped(operand.place.displacement, operand) & 0xFFFFFFFFFFFFFFFF)
            return True
        if operand.place.kind == REGISTER:
            if not self.words.load_register(self.made, operand.place.register):
                return False
            if size < 8:
                self.made.add(f"extend_{sign}_{size}")
            return True
        way = self.words.address(self.made, operand.place)
        if way == "try":
            self.made.add("try_memory", unreadable=unreadable)
        if way:
            self.made.add(f"memory_{sign}_{size}")
        return bool(way)
