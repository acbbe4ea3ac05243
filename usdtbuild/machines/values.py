"""Where a register's value comes from: calls that load a slot themselves are told by going back from the branch.

A machine says what each instruction does, as a `Step`; `loaded` goes back over the steps, from a branch by a register
to the load of a slot's word and on to what made the slot's address: constants, the program counter, literals in the
code, a register that stands for the global offset table. Where code can't be reached from above, because a jump or
return ends there, it goes on at a branch that leads there. Not a decompiler: where two ways lead to an instruction, the
one from above counts, and what isn't simple is None.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence

from ..record import NamedTuple

# What an instruction does. Of the first five `register` is what is written.
CONSTANT = 1  # register = first
SUM = 2  # register = register `first` + the number `second`
SUMS = 3  # register = register `first` + register `second`
LOAD = 4  # register = word at register `first` (-1: none) + the number `second`
LOADS = 5  # register = word at register `first` + register `second`
STORE = 6  # word at register `first` + the number `second` = register; writes none
OTHER = 7  # writes the registers whose bits are set in `first`, nobody knows what
CALL = 8  # what a function may change is changed behind it
JUMP = 9  # goes to the address `first` (-1: nobody knows) and nowhere else
BRANCH = 10  # may go to the address `first`; of this and the two before it `second` says that no instruction is delayed
CONSTANT_HIGH = 11  # register = first + its own low `second` bits

FAR = 256  # instructions in which a value's origin is looked for; compilers put more between only in very long loops
_DEEP = 12  # steps of one value
_LED = 12  # branches that are followed for one value


class Step(NamedTuple):
    """What an instruction does, as far as addresses go: one of the kinds above."""

    kind: int
    register: int = -1
    first: int = 0
    second: int = 0


NOTHING = Step(OTHER)
_CONTROL = frozenset((CALL, JUMP, BRANCH))


class Way(NamedTuple):
    """Code that can be gone back through.

    `step(number)` is what instruction `number` does, from 0 to `instructions` - 1, `address_of(number)` where it is.
    Calls leave the registers of the mask `kept`. Places of the stack are counted from the registers of the mask
    `stack`. `known` are registers whose values are known wherever they are asked for. `literal` returns a word that
    stands in the code, None where there is none. With `delayed` the instruction behind a branch is run before it.
    Addresses have `bits` bits.
    """

    step: Callable[[int], Step]
    instructions: int
    address_of: Callable[[int], int]
    kept: int
    stack: int
    literal: Callable[[int], int | None] = lambda address: None
    known: Mapping[int, int] = {}
    delayed: int = 0
    bits: int = 64


def words_way(words: Sequence[int], start: int, step: Callable[[int, int], Step], kept: int, stack: int) -> Way:
    """Return the way through instructions of one word each, the first at `start`; `step` gets one and its address."""
    known: dict[int, Step] = {}

    def cached(number: int) -> Step:
        found = known.get(number)
        if found is None:
            found = known[number] = step(words[number], start + 4 * number)
        return found

    return Way(cached, len(words), lambda number: start + 4 * number, kept, stack)


class Form(NamedTuple):
    """One row of a machine's table: instructions whose bits `mask` are `value`, and what they do at an address."""

    mask: int
    value: int
    step: Callable[[int, int], Step]


def decoder(*forms: Form) -> Callable[[int, int], Step]:
    """Return what looks an instruction up: what the first form that fits says, else that nothing is known to change."""

    def decode(value: int, address: int) -> Step:
        for mask, wanted, step in forms:
            if value & mask == wanted:
                return step(value, address)
        return NOTHING

    return decode


def always(kind: int) -> Callable[[int, int], Step]:
    """Return what says that instructions are of a kind, whatever else stands in them; where a jump goes isn't known."""
    step = Step(kind, -1, -1 if kind == JUMP else 0)
    return lambda value, address: step


def unsure(mask: int, *places: int) -> Callable[[int, int], Step]:
    """Return what says that instructions write the registers whose numbers stand in these places, nobody knows what."""
    return lambda value, address: Step(OTHER, -1, sum({1 << (value >> place & mask) for place in places}))


class Halves:
    """Code in units of two bytes, of which an instruction has one or more.

    `length(unit)` is how many units the instruction has that begins with a unit; `step` gets those as one number, the
    first unit as its highest, and the instruction's address.
    """

    def __init__(
        self,
        units: Sequence[int],
        start: int,
        length: Callable[[int], int],
        step: Callable[[int, int], Step],
        like: Way,
    ) -> None:
        self._units, self._start, self._length, self._step, self._like = units, start, length, step, like
        self._known: dict[int, Step] = {}

    def way_to(self, at: int) -> tuple[Way, int] | None:
        """Return the way around the instruction at unit `at`, and its number there; None where code doesn't lead there.

        Where instructions begin can't be told backwards, so it begins far enough before for any error to have ended.
        """
        for early in range(3):
            places = self._places(max(at - 2 * FAR - early, 0), min(at + 2 * FAR, len(self._units)))
            number = bisect_left(places, at)
            if number < len(places) and places[number] == at:
                way = self._like._replace(
                    step=lambda number, places=places: self._at(places[number]), instructions=len(places),  # type: ignore[misc]
                    address_of=lambda number, places=places: self._start + 2 * places[number],  # type: ignore[misc]
                )  # fmt: skip
                return way, number
        return None

    def _places(self, first: int, last: int) -> list[int]:
        units, length, found = self._units, self._length, []
        while first < last:
            found.append(first)
            first += length(units[first])
        return found

    def _at(self, place: int) -> Step:
        if place not in self._known:
            value = 0
            for unit in self._units[place : place + self._length(self._units[place])]:
                value = value << 16 | unit
            self._known[place] = self._step(value, self._start + 2 * place)
        return self._known[place]


def slot_of(code: Halves, at: int, register: int) -> int | None:
    """Return what `loaded` does, before the instruction at unit `at`."""
    found = code.way_to(at)
    return loaded(*found, register) if found is not None else None


class _Value(NamedTuple):
    """A number, or (`word`) what the word at this address holds."""

    number: int
    word: bool


def loaded(way: Way, at: int, register: int) -> int | None:
    """Return the address of the word that a register holds before instruction `at`; None where that isn't sure."""
    found = _value(way, at, register, _DEEP)
    return found.number if found is not None and found.word else None


def _value(way: Way, at: int, register: int, depth: int) -> _Value | None:
    if register in way.known:
        return _Value(way.known[register], word=False)
    found = _writer(way, at, register) if depth else -1
    if found < 0:
        return None
    step = way.step(found)
    if step.kind == CONSTANT:
        return _Value(step.first, word=False)
    if step.kind == CONSTANT_HIGH:
        low = _number(way, found, register, depth)
        return None if low is None else _Value((low & (1 << step.second) - 1) + step.first, word=False)
    if step.kind == SUM and not step.second:
        return _value(way, found, step.first, depth - 1)
    stored = _stored(way, found, step) if step.kind == LOAD else -1
    if stored >= 0:
        return _value(way, stored, way.step(stored).register, depth - 1)
    return _sum(way, found, step, depth)


def _sum(way: Way, at: int, step: Step, depth: int) -> _Value | None:
    first = _number(way, at, step.first, depth)
    second = _number(way, at, step.second, depth) if first is not None and step.kind in {SUMS, LOADS} else step.second
    if first is None or second is None:
        return None
    return _Value((first + second) & ((1 << way.bits) - 1), step.kind in {LOAD, LOADS})


def _number(way: Way, at: int, register: int, depth: int) -> int | None:
    """Return a register's value before instruction `at`, if it is known, as a literal's is; 0 for no register (-1)."""
    if register < 0:
        return 0
    found = _value(way, at, register, depth - 1)
    if found is None:
        return None
    return way.literal(found.number) if found.word else found.number


def _writer(way: Way, at: int, register: int) -> int:
    """Return which instruction before `at` has written a register; -1 if that isn't sure."""
    return _walk(way, at - 1, register, -1, set())


def _walk(way: Way, number: int, register: int, came: int, followed: set[int]) -> int:
    """Go back from an instruction to the one that has written a register; -1 if that isn't sure.

    `came` is the branch that was followed last: what is behind it isn't where the walk comes from. Each is `followed`
    once: a loop's end leads to its beginning. One that leads to nothing is left for the next: it may be no instruction
    at all, where the code lies behind tables of the file.
    """
    kept, first, last = way.kept >> register & 1, max(number + 1 - FAR, 0), number
    while number >= first:
        step = way.step(number)
        control = step if not way.delayed or (step.kind in _CONTROL and step.second) else NOTHING
        if control is NOTHING and way.delayed and number:
            before = way.step(number - 1)
            control = before if before.kind in _CONTROL and not before.second else NOTHING
        if control.kind == JUMP and came not in {number, number - way.delayed}:
            sources = _sources(way, number + 1, last + 1, followed)
            for source in sources:
                if source not in followed and len(followed) < _LED:
                    followed.add(source)
                    behind = source + way.delayed * (not way.step(source).second)
                    found = _walk(way, behind, register, source, followed)
                    if found >= 0:
                        return found
            if sources or not kept or control.first == -1:
                return -1
        elif control.kind == CALL and not kept:
            return -1
        if step.kind <= LOADS or step.kind == CONSTANT_HIGH:
            if step.register == register:
                return number
        elif step.kind == OTHER and step.first >> register & 1:
            return -1
        number -= 1
    return -1


def _sources(way: Way, number: int, last: int, but: set[int]) -> list[int]:
    """Return branches to instructions that can't be reached from above: first those to the first, and the nearest."""
    start, stop = way.address_of(number), way.address_of(min(last, way.instructions - 1))
    found = []
    for place in range(max(number - FAR, 0), min(last + FAR, way.instructions)):
        step = way.step(place)
        if step.kind in {JUMP, BRANCH} and start <= step.first <= stop and place not in but:
            found.append((step.first, abs(place - number), place))
    return [place for _, _, place in sorted(found)]


def _stored(way: Way, at: int, load: Step) -> int:
    """Return which instruction before `at` has stored what is loaded from a place of the stack; -1 if none has."""
    if load.first < 0 or not way.stack >> load.first & 1:
        return -1
    for number in range(at - 1, max(at - 4 * FAR, 0) - 1, -1):
        step = way.step(number)
        if step.kind == STORE and (step.first, step.second) == (load.first, load.second):
            return number
        if step.kind == JUMP and step.first == -1:
            return -1
    return -1
