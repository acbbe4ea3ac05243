"""Filters and measures as programs that the library of the engine inside runs where the hit happens.

For `patch.evaluated` they are one more machine: its templates are the instructions of runtime/preload/evaluate.c, and
an address is a place in the file that library and tracer share. So what is evaluated, and how the tables lie there, is
the same as with the engine patch. An instruction has 16 bytes: what it does, an operand of the site, two small numbers,
where to go on instead (from its own place), and a number.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from ..formats.operands import REGISTER, Operand, OperandPlace
from ..machines.templates import Code, Hole, Template
from . import clock
from .filters import FilterError
from .job import Job
from .measures import ALL, Cell, Key, Table, Tables
from .model import COUNT, Site, Target
from .patch import evaluated, layout, tables
from .patch.code import Back
from .patch.evaluated import Action
from .patch.tables import Place
from .plan import Plan
from .predicates import NotHereError, pair_width, side_of

_MOST_ARGUMENTS = 12
_INSTRUCTION = struct.Struct("=BBBBiQ")
_SENT = struct.Struct("=II")  # the number of a point, and the bytes of its program behind that
_ROOM = 1 << 28  # bytes of the file in which is added up; only what is used takes memory

_HOW, _SIZE, _JUMP, _NUMBER = (2, "8"), (3, "8"), (4, "native jump"), (8, "native 64")
_AT, _AS_32 = (8, "native distance"), (4, "native 32")
# The instructions in the order of their numbers: what its holes are called, and where each is.
_INSTRUCTIONS: dict[str, dict[str, tuple[int, str]]] = {
    "end": {}, "count": {"counter": _NUMBER}, "load": {}, "compare": {"constant": _NUMBER},
    "compare_constant": {"constant": _NUMBER}, "keep_first": {}, "compare_two": {}, "jump": {"target": _JUMP},
    "order": {"not_a_number": _JUMP}, "text_begins": {"literal": _AT, "size": _SIZE, "unreadable": _JUMP},
    "join_above": {}, "join_below": {}, "key_begin": {"made_of": _NUMBER}, "key_word": {}, "key_text": {},
    "cell": {"table": _NUMBER}, "key_cell": {"table": _NUMBER, "find": _SIZE}, "keys": {"keys": _NUMBER},
    "wide_cell": {"table": _NUMBER, "find": _SIZE, "stride": _AS_32}, "cell_number": {"table": _NUMBER},
    "numbered_cell": {"table": _NUMBER, "last": _AS_32}, "step_key": {"step": _NUMBER, "divide": _HOW},
    "number_key": {"number": _HOW}, "count_cell": {}, "tally_cell": {"tally": _HOW},
    "class_cell": {"classes": _NUMBER, "count_class": _HOW}, "mark": {"mark": _NUMBER}, "keyless": {}, "hold_mark": {},
    "held_mark": {}, "begin_of_pair": {"by_frame": _HOW, "frame": _AS_32, "pairs": _NUMBER},
    "end_of_pair": {"by_frame": _HOW, "frame": _AS_32, "pairs": _NUMBER},
    "hold_time": {}, "held_time": {}, "moment": {}, "hold_key": {}, "hashed_key": {},
    "begin_of_keyed_pair": {"pairs": _NUMBER}, "end_of_keyed_pair": {"pairs": _NUMBER},
    "count_unkeyed": {"pairs": _NUMBER}, "masked": {"mask": _NUMBER},
}  # fmt: skip
_NUMBERS = {name: number for number, name in enumerate(_INSTRUCTIONS)}
# Which of less (1), equal (2) and greater (4) is true; 8: as signed numbers.
_CONDITIONS = {"e": 2, "ne": 5, "l": 9, "le": 11, "g": 12, "ge": 14, "b": 1, "be": 3, "a": 4, "ae": 6}
# What templates call routines: with how many bits of a number cells are found, and whether numbers are signed.
_ROUTINES = {
    **{f"{what}_{bits}": bits for what in ("find", "find_wide") for bits in (8, 12)},
    **{f"{what}_{sign}": sign == "signed"
       for what in ("divide", "tally", "count_class") for sign in ("signed", "unsigned")},
    "own_process": 0, "own_thread": 1,
}  # fmt: skip


def _template(name: str, operand: int = 0, how: int = 0, size: int = 0) -> Template:
    """Return an instruction; distances are from its own place."""
    places = _INSTRUCTIONS[name].items()
    holes = (Hole(offset, kind, hole, offset if kind in {_JUMP[1], _AT[1]} else 0) for hole, (offset, kind) in places)
    return Template(_INSTRUCTION.pack(_NUMBERS[name], operand, how, size, 0, 0), tuple(holes))


def _both(first: Template, then: Template) -> Template:
    behind = tuple(hole._replace(offset=hole.offset + len(first.code)) for hole in then.holes)
    return Template(first.code + then.code, first.holes + behind)


TEMPLATES: dict[str, Template] = {
    **{name: _template(name) for name in _INSTRUCTIONS},
    **{f"jump_{name}": _template("jump", how=how) for name, how in _CONDITIONS.items()},
    **{f"compare_{size}_{index}": _template("compare", index, 64 - 8 * size)
       for size in (1, 2, 4, 8) for index in range(_MOST_ARGUMENTS)},
    "jump": _template("jump", how=7),
    "passes": _template("end", how=1),
    "order_4": _template("order", size=4), "order_8": _template("order", size=8),
    "wide_cell": _both(_template("keys"), _template("wide_cell")),
    # Operands come with all their bits, and a program has registers of its own.
    **{f"extend_{sign}_{size}": Template(b"") for sign in ("signed", "unsigned") for size in (1, 2, 4)},
    **{name: Template(b"")
       for name in ("save_all", "restore_all", "make_room", "give_room", "place_by_stack", "place_by_frame")},
}  # fmt: skip


def _go_on(made: Code, back: Back) -> None:
    """End a program for a hit that isn't recorded; it may be counted."""
    if isinstance(back, int):
        made.add("count", counter=back)
    made.add("end")


def _load(made: Code, place: OperandPlace) -> bool:
    made.append(_template("load", int(place.register)).code)
    return True


def _as_it_is(operand: Operand, constant: int) -> str:
    size = operand.size or 8
    return f"compare_{size}_{operand.place.register}" if size < 8 or constant >= 0 else ""


WORDS = evaluated.Words(
    TEMPLATES, "",
    {"==": ("e", "e"), "!=": ("ne", "ne"), "<": ("l", "b"), "<=": ("le", "be"), ">": ("g", "a"), ">=": ("ge", "ae")},
    _go_on, _load, lambda _, __: "", _as_it_is, {}, b"\0", copy="", comparison_size=0, size=0, saved=0,
)  # fmt: skip


def operand(index: int, size: int, signed: bool) -> Operand:
    """Return an argument as the library has it, which says only how many there are."""
    return Operand("", size, signed, False, OperandPlace(REGISTER, "", str(index)))


def program(action: Action, rejected: int | None = None) -> bytes:
    """Return a program for an action; for records one that counts what it rejects, at a place. Raises NotHereError."""
    try:
        if rejected is None:
            return evaluated.trampoline(WORDS, 0, action, _ROUTINES, None)
        return evaluated.gate(WORDS, 0, action, _ROUTINES, rejected) + TEMPLATES["passes"].code
    except (KeyError, OverflowError) as error:
        raise NotHereError(f"the library has no instruction for it ({error})") from None


class Point(NamedTuple):
    """A place in the program, by its number in the library, and what it is of."""

    number: int
    target: Target
    site: Site


class Programs:
    """What is evaluated in a program, and what it adds up to."""

    def __init__(self, wish: Job, folder: Path, note: Callable[[str], None], warn: Callable[[str], None]) -> None:
        """Make the files that the library opens; `note` takes what is of interest with -v, `warn` with none."""
        self._plan = Plan(
            wish.what, (), wish.string_size, where=wish.where, measures=wish.measures, whole=wish.normalize
        )
        self._note, self._warn = note, warn
        self._sent = (folder / "programs").open("wb", buffering=0)
        with (folder / "tables").open("w+b") as file:
            file.truncate(_ROOM)
            self._file = os.dup(file.fileno())
        self._used = 64  # a place of 0 is none
        self._places: list[Place] = []
        self._begun = clock.now()
        self._no_pairs = False
        self._begins = set[evaluated.Function]()
        self._counters: list[tuple[int, list[int]]] = []  # where some are, and of which points

    def answer(self, points: Sequence[Point]) -> None:
        """Write programs for new points, as far as they can be evaluated where they are hit."""
        targets = {one.target.number: one.target for one in points}
        sites = ((one.target, one.site) for one in points)
        self._begins |= evaluated.functions_of_begins(self._plan.measures, sites)
        sided = {number: one for number, one in targets.items() if self._has_side(one)}
        self._plan = self._plan._replace(targets=(*self._plan.targets, *sided.values()))
        here = {number for number, one in targets.items() if number not in sided and self._is_here(one, self._plan)}
        self._answer([one for one in points if one.target.number in here])
        if sided and not self._no_pairs:
            width = self._plan.pair_width if self._plan.pairs else pair_width(
                self._plan.measures, list(sided.values()), self._plan.string_size)  # fmt: skip
            plan = self._plan._replace(pair_width=width)
            self._no_pairs = not all(self._is_here(one, plan) for one in sided.values())
            if self._no_pairs:
                self._note("pairs are found after the hit: arguments are")
                if self._plan.pairs:
                    self._warn("warning: some begins and ends are in different files, and can't be paired")
                return
            self._plan = plan
            self._answer([one for one in points if one.target.number in sided])

    def _has_side(self, target: Target) -> bool:
        return any(side_of(measure, target) for measure in self._plan.measures)

    def _is_here(self, target: Target, plan: Plan) -> bool:
        try:
            if plan.where is not None and not self._has_side(target):
                plan.where.compile(target)
            evaluated.check(plan, target)
        except NotHereError as error:
            self._note(f"{target.title}: arguments are evaluated after the hit: {error}")
            return False
        except FilterError:
            return False  # said by the front
        return True

    def _answer(self, points: Sequence[Point]) -> None:
        if not points:
            return
        own, waiting, size = layout.tables_of(self._plan, [(one.target, one.site) for one in points])
        start = self._used
        try:
            if start + size > _ROOM - 64:
                raise OSError
            os.posix_fallocate(self._file, start, size)  # a program that writes where there is no room on a disk dies
        except OSError:
            self._note("there is no room to evaluate more where it is hit")
            return
        self._used = start + size
        if not self._plan.pairs and self._has_side(points[0].target):
            self._plan = self._plan._replace(pairs=start + waiting)
        self._places += [one._replace(address=start + one.address) for one in own]
        numbers: list[int] = []
        for one in points:
            places = {place.measure: start + place.address for place in own if place.target == one.target.number}
            predicate, found = evaluated.asked(self._plan, one.target, one.site.operands)
            to = [(tally, places.get(tally.measure, 0)) for tally in found]
            counter = start + 8 * len(numbers)
            apart = evaluated.is_apart(self._begins, one.target, one.site)
            action = evaluated.Action(predicate, one.site.operands, counter, to, self._plan.pairs,
                                      around=one.site.around, is_apart=apart)  # fmt: skip
            try:
                made = program(action, None if self._plan.what == COUNT else counter)
            except NotHereError as error:
                self._note(f"{one.target.title}: arguments are evaluated after the hit: {error}")
                continue
            self._sent.write(_SENT.pack(one.number, len(made)) + made)
            numbers.append(one.number)
        self._counters.append((start, numbers))

    def _read(self, at: int, size: int) -> bytes:
        """Return what is in the file, which the program may have cut off."""
        return tables.Memory(self._file)[at : at + size]

    def counts(self) -> dict[int, int]:
        """Return how many hits have passed, or with records how many have not, by the numbers of points."""
        found: dict[int, int] = {}
        for start, numbers in self._counters:
            found.update(zip(numbers, struct.unpack(f"={len(numbers)}Q", self._read(start, 8 * len(numbers)))))
        return found

    def tables(self) -> Tables:
        """Return what was added up so far."""
        found: Tables = {}
        for place in self._places:
            measure, key = place.measure, (place.target, place.measure)
            keys: Sequence[Key] = ()
            if place.width and measure.pair:
                at, size = self._plan.pairs + tables.PAIRS_SIZE, tables.keys_size(measure, place.width)
                keys = tables.read_keys(self._read(at, size), 0, place)
            data = tables.Memory(self._file, place.address)
            found[key] = found.get(key, Table({}, Cell())).plus(tables.read(data, 0, place, keys))
        for measure in self._plan.measures if self._plan.pairs else ():
            unpaired = tables.read_pairs(self._read(self._plan.pairs, tables.PAIRS_SIZE), 0, keyed=bool(measure.key))
            found[ALL, measure] = Table({}, Cell(), unpaired, clock.since(self._begun)[1])
        return found

    def close(self) -> None:
        """Let go of the files."""
        self._sent.close()
        os.close(self._file)
