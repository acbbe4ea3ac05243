"""Trampolines that add up what a hit's arguments say: only hits that pass a predicate, by the value of an argument, and
sums.

What a trampoline must leave as it was is told in `code`. It saves registers as a record's trampoline does, loads
operands into the machine's first register, and compares there. Where a machine can compare all operands of a predicate
as they are, nothing is saved. Memory that the program itself might never follow is tried before it is read; a
comparison of what can't be read is false.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, NamedTuple

from ...formats.operands import CONSTANT, REGISTER
from ...machines.templates import Code
from .. import clock
from ..maps import NONE_KNOWN, Known
from ..model import Around
from ..predicates import (
    BEGIN,
    END,
    PROCESS,
    THREAD,
    TIME,
    Compare,
    Joined,
    NotHereError,
    Text,
    lower,
    numbers_only,
    side_of,
    tallies,
    wrapped,
)
from ..selection import is_meant
from . import tables

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable, Mapping, Sequence

    from ...formats.operands import Operand, OperandPlace
    from ...machines.templates import Template
    from ..measures import Measure
    from ..model import Site, Target
    from ..plan import Plan
    from ..predicates import Predicate, Tally
    from .code import Back, Keeping, Routines
    from .shards import Shards

_NUMBERS = {THREAD: "own_thread", PROCESS: "own_process"}
_OPPOSITES = {"==": "!=", "!=": "==", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}


class Words(NamedTuple):
    """What a machine's code needs besides its templates.

    `way` is behind the name of a template of which there are several. `conditions` are those of a jump by sign, for
    signed and for unsigned numbers. `load_register` loads a register into the first one, `address` the address of a
    memory operand and says how that is read (see `code`). `as_it_is` returns the template that compares an operand with
    a constant and changes nothing but flags, '' if there is none. `fill` is what stands between routines.
    `copy` is the template that copies texts. `comparison_size` are the most bytes of a comparison, `size` those around
    all. The program's own stack pointer is `saved` bytes above ours behind `save_all`; `held` of them are registers,
    and a time that is held has `pushed`.
    """

    templates: Mapping[str, Template]
    way: str
    conditions: Mapping[str, tuple[str, str]]
    go_on: Callable[[Code, Back], None]
    load_register: Callable[[Code, OperandPlace], bool]
    address: Callable[[Code, OperandPlace], str]
    as_it_is: Callable[[Operand, int], str]
    numbers: Mapping[str, int]
    fill: bytes
    copy: str
    comparison_size: int
    size: int
    saved: int
    held: int = 0
    pushed: int = 0

    def named(self, template: str) -> str:
        """Return the name of a template, of which there may be several."""
        return template if template in self.templates else f"{template}_{self.way}"

    def most(self, plan: Plan, target: Target, operands: Sequence[Operand]) -> int:
        """Return how many bytes a site's trampoline takes at most."""
        predicate, found = asked(plan, target, operands)
        parts = len(_comparisons(predicate)) + sum(2 + max(1, len(one.keys)) + len(one.pair_keys) for one in found)
        if self.held and any(one.side for one in found):
            parts *= 2  # written for threads with a shard, and for others
        return self.size + self.comparison_size * parts

    def around(self, plan: Plan, target: Target, operands: Sequence[Operand]) -> int:
        """Return how many bytes a recording trampoline has at most to let only hits through that pass, and to look
        whether one is what is waited for."""
        gate = self.most(plan, target, operands) if plan.where is not None else 0
        until = awaited(plan, target, operands)
        return gate + (self.size + self.comparison_size * len(_comparisons(until)) if plan.until is not None else 0)


class Action(NamedTuple):
    """What a trampoline does: if the predicate is true it counts the hit, and adds it up, each tally in a table.

    A hit of a pair is counted in any case, and what the predicate says is kept with it; `pairs` is where. With `shards`
    a thread adds to its own, if it has one. `pushed`: the program's own stack pointer is so much further up than ours,
    before anything is saved; `around` is the function around, `is_apart`: an end is in another one than begins. Where
    begins wait in another engine's memory, `there` is what routines end with that find them.
    """

    predicate: Predicate
    operands: tuple[Operand, ...]
    counter: int
    tallies: Sequence[tuple[Tally, int]] = ()
    pairs: int = 0
    shards: Shards | None = None
    pushed: int = 0
    around: Around = Around()
    is_apart: bool = False
    there: str | None = None


Function = tuple[str, int]  # in which file, and where in that


def functions_of_begins(measures: Iterable[Measure], sites: Iterable[tuple[Target, Site]]) -> set[Function]:
    """Return the functions around sites that are begins of pairs. An end in one of them has the same frame as its
    begin."""
    pairs = [measure for measure in measures if measure.pair]
    return {_function(target, site) for target, site in sites if any(side_of(one, target) == BEGIN for one in pairs)}


def is_apart(begins: Container[Function], target: Target, site: Site) -> bool:
    """Whether no begin is in the function around a site, as far as anybody knows; nobody knows of which a part is."""
    return not site.around.function or not (site.around.is_part or _function(target, site) in begins)


def _function(target: Target, site: Site) -> Function:
    return target.module.path, site.around.function


def asked(plan: Plan, target: Target, operands: Sequence[Operand]) -> tuple[Predicate, list[Tally]]:
    """Return a plan's predicate for a site of a target, and what is added up there. Raises NotHereError."""
    found = tallies(plan.measures, target, operands, plan.string_size, plan.pair_width, whole=plan.whole,
                    apart=plan.apart)  # fmt: skip
    where = plan.where
    if where is not None and any(one.side for one in found) and not where.is_for(target):
        where = where.part_for(target)
        if where is None or not _is_split(plan):
            return False, [one._replace(tested=False) for one in found]
        found = [one._replace(partly=True) for one in found]
    return lower(where, target, operands, apart=plan.apart) if where is not None else True, found


def _is_split(plan: Plan) -> bool:
    """Whether no hit of a pair can answer the whole filter, as far as targets are known."""
    sides = [one for one in plan.targets if any(measure.pair and side_of(measure, one) for measure in plan.measures)]
    return plan.where is not None and not any(map(plan.where.is_for, sides))


def check(plan: Plan, target: Target) -> None:
    """Raise NotHereError if what a plan asks of a target can't be evaluated where it is hit."""
    found = [(asked(plan, target, site.operands)[1], site.operands) for site in target.sites]
    if len({tuple(one.signs(operands) for one in tallies) for tallies, operands in found}) > 1:
        raise NotHereError("an argument is signed at some places only")


def awaited(plan: Plan, target: Target, operands: Sequence[Operand]) -> Predicate:
    """Return whether a hit at a site of a target is what is waited for. Where that can't be told, none is."""
    if plan.until is None or not is_meant(target, plan.until.pattern):
        return False
    test = plan.until.test
    if test is None:
        return True
    with contextlib.suppress(NotHereError):
        return numbers_only(lower(test, target, operands)) if test.is_for(target) else False
    return False


def ending(words: Words) -> Callable[[Code, Keeping], None]:
    """Return what tests whether a record is what is waited for; see `code.Keeping.end`."""
    return lambda made, keeping: _Tests(words, made, keeping.operands).branch(keeping.until, "holds", "kept", "holds")


ROUTINES_SIZE = 8192  # at most
# What templates and routines end with that are for a thread's own shard, and for the one that it has in another engine.
OWN, THERE = "_own", "_there"
_KEY_ROOM = 288  # bytes on the stack for a key of several words
_SHARD_ROOM = 16  # above that, for where a thread's shard is
_PLACES = {"table", "keys"}  # holes for addresses that are in each shard


def routines(
    words: Words, at: int, pid_cell: int, tid_offset: int | None, string_size: int = 64, known: Known = NONE_KNOWN,
    shards: Shards | None = None, waiting: Shards | None = None,
) -> tuple[bytes, Routines]:  # fmt: skip
    """Return the routines that trampolines need which try hits and add them up; see `code.routines`. `waiting` are the
    shards of threads where begins of pairs wait."""
    made, calls = Code(words.templates, at), {}
    alone = ["probe", "begins", "count_in_cell", "hash_words"]
    alone += (f"{what}_{bits}" for what in ("find", "find_wide") for bits in (8, 12))
    alone += (f"{what}_{sign}" for what in ("tally", "count_class", "divide") for sign in ("signed", "unsigned"))
    if shards is not None:
        alone += ["find_shard", *(name + OWN for name in alone)]
    thread = "thread_by_call" if tid_offset is None else "thread_at_offset"
    parts = {**{name: (name,) for name in alone if words.named(name) in words.templates},
             "own_process": ("claim_process", "own_process"), "own_thread": (thread, "own_thread")}  # fmt: skip
    holes = {"tid_offset": tid_offset or 0, **(shards.holes() if shards is not None else {}), "pid_cell": pid_cell}
    for name, templates in parts.items():
        calls[name] = made.here
        for template in templates:
            made.add(words.named(template), **holes, **known._asdict())
        made.pad(words.fill, 16)
    calls["copy"] = made.here
    made.add(words.copy, string_size=string_size, **known._asdict())
    made.pad(words.fill, 16)
    alone = ["begin_pair", "end_pair", "begin_keyed"]
    chosen = {name: name for name in (*alone, "end_keyed", "add_text")}
    if waiting is not None:  # who ends may not know which thread has begun
        holes |= waiting.holes()
        chosen |= {**{name + OWN: name + OWN for name in alone}, "end_keyed": "end_keyed" + OWN}
        if waiting is not shards:
            chosen |= {"find_shard" + THERE: "find_shard"}
            chosen |= {name + THERE: name.split("_")[1] + THERE for name in alone}
    for name, template in chosen.items():
        calls[name] = made.here
        common, own = (calls.get(name.removesuffix(THERE) + way, 0) for way in ("", OWN))
        made.add(words.named(template), **holes, **calls, common_way=common, own_way=own)
        made.pad(words.fill, 16)
    return made.packed(**words.numbers), calls


def trampoline(words: Words, at: int, action: Action, calls: Routines, back: Back) -> bytes:
    """Return a trampoline that does something and goes `back`."""
    made, predicate = Code(words.templates, at), action.predicate
    is_pair = any(tally.side for tally, _ in action.tallies)
    is_tested = not is_pair and predicate is not True
    if is_tested and isinstance(predicate, bool):
        words.go_on(made, back)
        return made.packed()
    writer = _Sums(words, made, action)
    writer.plain = not action.tallies and all(map(writer.is_plain, _comparisons(predicate)))
    if not writer.plain:
        writer.save()
    if is_tested:
        writer.branch(predicate, "pass", "skip", "pass")
        made.label("pass")
    if writer.plain:
        writer.count(back)
    else:
        writer.add_up(back, is_pair=is_pair)
    if is_tested:
        made.label("skip")
        if not writer.plain:
            writer.restore()
        words.go_on(made, back)
    writer.behind()
    above = words.saved + writer.room
    is_end = any(tally.side == END for tally, _ in action.tallies)
    frame = action.around.offset + (is_end and action.is_apart)  # no begin's is odd
    return made.packed(**calls, above=above, frame=frame, by_frame=action.around.by_frame,
                       place=above + action.pushed + frame)  # fmt: skip


def gate(words: Words, at: int, action: Action, calls: Routines, back: Back) -> bytes:
    """Return what stands before a trampoline that is for hits only of which the predicate is true; others go `back`."""
    made, predicate = Code(words.templates, at), action.predicate
    if isinstance(predicate, bool):
        if not predicate:
            words.go_on(made, back)
        return made.packed()
    made.add("save_all")
    writer = _Tests(words, made, action.operands)
    writer.branch(predicate, "pass", "skip", "skip")
    made.label("skip")
    made.add("restore_all")
    words.go_on(made, back)
    writer.behind()
    made.label("pass")
    made.add("restore_all")
    return made.packed(**calls, above=words.saved)


def _comparisons(predicate: Predicate) -> list[Compare | Text]:
    if isinstance(predicate, Joined):
        return [one for part in predicate.parts for one in _comparisons(part)]
    return [] if isinstance(predicate, bool) else [predicate]


class _Tests:
    """Writes what tries a hit."""

    def __init__(self, words: Words, made: Code, operands: Sequence[Operand]) -> None:
        self.words, self.made, self.operands, self.plain = words, made, operands, False
        self._labels = 0
        self._literals: dict[str, bytes] = {}

    def is_plain(self, one: Compare | Text) -> bool:
        """Whether a comparison needs no register."""
        if isinstance(one, Text) or one.operand < 0 or one.other is not None or one.floating or one.mask:
            return False
        return bool(self.words.as_it_is(self.operands[one.operand], one.constant))

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
        assert not isinstance(predicate, bool)
        if self._compare(predicate, true, false):
            sign, target = (predicate.sign, true) if behind == false else (_OPPOSITES[predicate.sign], false)
            is_unsigned = isinstance(predicate, Compare) and not predicate.signed
            self.made.add(f"jump_{self.words.conditions[sign][is_unsigned]}", target=target)
        elif behind != false:
            self.made.add("jump", target=false)

    def _compare(self, compare: Compare | Text, true: str, unreadable: str) -> bool:
        """Compare, or go to one of the labels; False if there is no way to read an operand."""
        if isinstance(compare, Text):
            if not self.load(compare.operand, unreadable):
                return False
            name = f"literal {len(self._literals)}"
            self._literals[name] = compare.start
            self.made.add("text_begins", literal=name, size=len(compare.start), unreadable=unreadable)
            return True
        if self.plain:
            operand = self.operands[compare.operand]
            size = operand.size or 8
            constant = compare.constant if size == 8 else compare.constant & (1 << 8 * size) - 1
            self.made.add(self.words.as_it_is(operand, compare.constant), constant=constant)
            return True
        if not self.load(compare.operand, unreadable):
            return False
        if compare.floating:
            not_a_number = true if compare.sign == "!=" else unreadable
            self.made.add(f"order_{self.operands[compare.operand].size or 8}", not_a_number=not_a_number)
        if compare.mask:
            self.made.add("masked", mask=compare.mask)
        if compare.other is None:
            constant = clock.ticks_at(compare.constant) if compare.operand == TIME else compare.constant
            self.made.add("compare_constant", constant=constant & 0xFFFFFFFFFFFFFFFF)
            return True
        self.made.add("keep_first")
        if not self.load(compare.other, unreadable):
            return False
        self.made.add("compare_two")
        return True

    def load(self, index: int, unreadable: str) -> bool:
        """Load an operand into the first register, as a number of 64 bits; False if there is no way."""
        if index in _NUMBERS:
            self.made.add("number_key", number=_NUMBERS[index])
            return True
        if index == TIME:
            self.made.add("moment")
            return True
        operand = self.operands[index]
        size, sign = operand.size or 8, "signed" if operand.signed else "unsigned"
        if operand.place.kind == CONSTANT:
            self.made.add("constant", value=wrapped(operand.place.displacement, operand) & 0xFFFFFFFFFFFFFFFF)
            return True
        if operand.place.kind == REGISTER:
            if not self.words.load_register(self.made, operand.place):
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

    def behind(self) -> None:
        """Put down what texts are compared with, where nobody gets to as code."""
        for name, one in self._literals.items():
            self.made.label(name)
            self.made.append(one)
            self.made.pad(self.words.fill[:1], 8)


class _Sums(_Tests):
    """Writes what tries a hit and adds it up. If there are shards, adding up is written twice: for threads with one of
    their own, where `_way` is what templates end with and `shard` on the stack says where it is, and for all others."""

    def __init__(self, words: Words, made: Code, action: Action) -> None:
        super().__init__(words, made, action.operands)
        self.action, self._way, self._finds_shard, self._pushed = action, "", False, 0
        self.room = _KEY_ROOM if any(tally.width or tally.pair_keys for tally, _ in action.tallies) else 0
        if action.shards is not None:
            self.room += _SHARD_ROOM

    def save(self) -> None:
        """Save registers, and make room."""
        if self.room:
            self.made.add("make_room", less_room=-self.room)
        self.made.add("save_all")

    def restore(self) -> None:
        """Take all back."""
        self.made.add("restore_all")
        if self.room:
            self.made.add("give_room", room=self.room)

    def count(self, back: Back) -> None:
        """Count a hit, of which nothing is saved, and go on."""
        counter, shards = self.action.counter, self.action.shards
        if shards is None:
            self.made.add(self.words.named("count"), counter=counter)
            self.words.go_on(self.made, back)
            return
        self._add_labelled("count_own", counter=counter + shards.ahead, **shards.holes())
        self.words.go_on(self.made, back)
        self.made.label("unknown")
        self._add_labelled("count_unknown", common=counter)

    def add_up(self, back: Back, *, is_pair: bool) -> None:
        """Add a hit up in its tables, count it, and go on."""
        made, shards, counter = self.made, self.action.shards, self.action.counter
        if shards is not None:
            self._way, self._finds_shard = OWN, True
            self._add_labelled("own_shard", shard=self._shard(), **shards.holes())
            self._add_up_all(is_pair=is_pair)
            made.add("count_in_shard", counter=counter + shards.ahead, shard=self._shard())
            self.restore()
            self.words.go_on(made, back)
            made.label("shared")
            self._way = ""
        self._add_up_all(is_pair=is_pair)
        self.restore()
        made.add(self.words.named("count"), counter=counter)
        self.words.go_on(made, back)

    def _add_up_all(self, *, is_pair: bool) -> None:
        if is_pair:
            self.pair()
            return
        for number, (tally, table) in enumerate(self.action.tallies):
            self.tally(tally, table, self._named(f"tallied {number}"))

    def _named(self, name: str) -> str:
        """Return the name of a label or routine in what is written twice."""
        return name + self._way

    def _shard(self) -> int:
        """Return where on the stack the place of the shard is."""
        return self.words.held + self.room - _SHARD_ROOM + self._pushed

    def _add_labelled(self, name: str, **values: int) -> None:
        """Add a template whose labels others lead to."""
        for label, offset in self.words.templates[name].labels.items():
            self.made.label(label, offset)
        self.made.add(name, **values)

    def _add_cell(self, name: str, **values: int | str) -> None:
        """Add a template that finds or changes a cell, in the thread's shard if it has one."""
        if self._way:
            name += OWN
            values = {key: value + self._ahead() if isinstance(value, int) and key in _PLACES else value
                      for key, value in values.items()}  # fmt: skip
            values["shard"] = self._shard()
        self.made.add(name, **values)

    def _ahead(self) -> int:
        """Return what is added to an address in the shard of the number 0."""
        return self.action.shards.ahead if self._way and self.action.shards is not None else 0

    def tally(self, tally: Tally, table: int, end: str) -> None:
        """Add a hit up in a table, or go to a label, which is behind that, if an operand can't be read."""
        measure, made = tally.measure, self.made
        key_signed, signed = ("signed" if one else "unsigned" for one in tally.signs(self.operands)[:2])
        if not tally.keys:
            self._add_cell("cell", table=table)
        elif tally.width:
            if not self._words_key(tally, end):
                made.label(end)
                return
            self._wide_cell(tally, table)
        else:
            if not self._key(tally, end):
                made.label(end)
                return
            if measure.step:
                made.add("step_key", step=int(measure.step), divide=f"divide_{key_signed}")
            self._add_cell("key_cell", table=table, find=self._named(f"find_{tables.bits(measure)}"))
        if tally.of is None:
            self._add_cell("count_cell")
        elif self.load(tally.of, end):
            self._add_up(measure, table, signed)
        made.label(end)

    def _add_up(self, measure: Measure, table: int, sign: str) -> None:
        """Add a value to its cell; where there are classes, these say how many there were."""
        self.made.add("tally_cell", tally=self._named(f"tally_{sign}"))
        if measure.classes:
            classes = tables.classes_from(measure, table + self._ahead())
            self._add_cell("class_cell", classes=classes, count_class=self._named(f"count_class_{sign}"))
        else:
            self._add_cell("count_cell")

    def _key(self, tally: Tally, unreadable: str) -> bool:
        """Load what is looked up, one key or two; False if there is no way to read an operand.

        The number of a thread or process is loaded first, because that changes what is kept.
        """
        is_below = tally.keys[-1] in _NUMBERS
        first, *then = reversed(tally.keys) if is_below else tally.keys
        if not self.load(first, unreadable):
            return False
        for other in then:
            self.made.add("keep_first")
            if not self.load(other, unreadable):
                return False
            self.made.add("join_below" if is_below else "join_above")
        return True

    def _words_key(self, tally: Tally, unreadable: str, *, is_pair: bool = False) -> bool:
        """Make a key of several words; False if there is no way to read an operand. Hits of a pair may have arguments
        of other signs."""
        self.made.add("key_begin", made_of=0 if is_pair else tables.made_of(tally, self.operands))
        for one in tally.keys:
            if not self.load(one, unreadable):
                return False
            self.made.add("key_text" if one in tally.texts else "key_word")
        return True

    def _wide_cell(self, tally: Tally, table: int) -> None:
        """Find the cell of this key."""
        keys = tables.keys_from(tally.measure, table, tally.width)
        find = self._named(f"find_wide_{tables.bits(tally.measure)}")
        self._add_cell("wide_cell", table=table, keys=keys, stride=tally.width, find=find)

    def pair(self) -> None:
        """Put a begin where its end finds it, or take one, and add up how long that has taken."""
        made, pairs, ((tally, table),) = self.made, self.action.pairs, self.action.tallies
        measure, kind, done = tally.measure, "keyed_" if tally.pair_keys else "", self._named("done")
        if kind and not self._hold_pair_key(tally):
            made.add("jump", target=self._named("unkeyed"))
        self._mark(self.action.predicate, tally)
        if tally.keys:
            self._pair_key(tally, pairs + tables.PAIRS_SIZE)
        made.label(self._named("keyed"))
        there, always = self.action.there, bool(kind) and tally.side == END
        way = "" if always or there is not None else self._way
        routine = f"{tally.side}_{'keyed' if kind else 'pair'}"
        called = {routine: routine + there} if there and not always else {}
        if not kind:
            made.add("place_by_frame" if self.action.around.by_frame else "place_by_stack")
        made.add(f"{tally.side}_of_{kind}pair{way}", pairs=pairs, shard=self._shard(), **called)
        if tally.side == END:
            made.add(f"jump_{self.words.conditions['=='][0]}", target=done)
            made.add("hold_time")
            self._pushed = self.words.pushed
            if tally.width:
                self._add_cell("numbered_cell", table=table, last=tables.last(measure))
            elif measure.by:
                self._add_cell("key_cell", table=table, find=self._named(f"find_{tables.bits(measure)}"))
            else:
                self._add_cell("cell", table=table)
            made.add("held_time")
            self._pushed = 0
            self._add_up(measure, table, "unsigned")
        if kind:
            made.add("jump", target=done)
            made.label(self._named("unkeyed"))
            made.add(self.words.named("count_unkeyed"), pairs=pairs)
        made.label(done)

    def _hold_pair_key(self, tally: Tally) -> bool:
        """Load what the hits of a pair are told apart by, and keep it; False if there is no way to read an operand.

        Texts, and several keys, become one number, which is as good as never the same for others."""
        made, keys = self.made, tally.pair_keys
        if len(keys) == 1 and keys[0] not in tally.texts:
            found = self.load(keys[0], self._named("unkeyed"))
        else:
            found = self._words_key(tally._replace(keys=keys), self._named("unkeyed"), is_pair=True)
            made.add("hashed_key")
        made.add("hold_key")
        return found

    def _mark(self, predicate: Predicate, tally: Tally) -> None:
        """Note what is known of a hit of a pair; one whose key is never asked for goes on to "keyed"."""
        made = self.made
        keyless = tables.KEYLESS if tally.measure.by and not tally.keys else 0
        failed = keyless | tables.FAILED | (tables.TESTED if tally.tested else 0)
        passed = keyless | (0 if tally.partly and tally.side == BEGIN else tables.TESTED)  # the end says the rest
        if not tally.tested and tally.side == BEGIN:
            failed = keyless
        if isinstance(predicate, bool):
            made.add("mark", mark=passed if predicate else failed)
            return
        self.branch(predicate, self._named("pass"), self._named("fail"), self._named("pass"))
        made.label(self._named("pass"))
        made.add("mark", mark=passed)
        made.add("jump", target=self._named("marked"))
        made.label(self._named("fail"))
        has_no_room = bool(tally.width) and tally.tested and tally.side == BEGIN
        made.add("mark", mark=failed | (tables.KEYLESS if has_no_room else 0))
        if has_no_room:
            made.add("jump", target=self._named("keyed"))
        made.label(self._named("marked"))

    def _pair_key(self, tally: Tally, keys: int) -> None:
        """Load the key of a hit of a pair: a number, or where its cell is in the table of keys; or note that it has
        none."""
        made, is_wide = self.made, bool(tally.width)
        keyless = self._named("keyless")
        if is_wide:
            made.add("hold_mark")
        if not (self._words_key(tally, keyless) if is_wide else self.load(tally.keys[0], keyless)):
            made.add("jump", target=self._named("keyless"))
        if is_wide:
            way, self._way = self._way, ""  # keys that wait are those of all threads
            self._wide_cell(tally, keys)
            self._way = way
            made.add("cell_number", table=keys)
            made.add("held_mark")
        made.add("jump", target=self._named("keyed"))
        made.label(self._named("keyless"))
        if is_wide:
            made.add("held_mark")
        made.add("keyless")

    def behind(self) -> None:
        """Put down what only jumps lead to, as well."""
        if self._finds_shard:
            self.made.label("unknown")
            self.made.add("unknown_shard")
        super().behind()
