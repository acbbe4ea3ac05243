"""Arguments and results of functions as values of hits: what there is to read, and the operands that name it.

From debug information (`inspection.signatures`) come types and places. Here each becomes arguments of a target: a
number is one, a structure one for each of its members, called as in C (`p.x`, `this->n`). What nobody can read is
there, too, with the value `?`. All of it is a text of JSON that a child without rights has made, or that was kept from
an earlier trace; `parsed` is where it is checked.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from ..elf.image import Image
from ..errors import InputError
from ..formats.operands import MEMORY, OTHER, REGISTER, Operand, OperandPlace
from ..inspection import types
from ..inspection.signatures import Parameter, Signature, Wanted
from ..inspection.types import Member, Type
from ..machines import facts_of
from ..machines.calling import Calling, Place
from .model import FLOAT, INTEGER, POINTER, STRING, Argument

MOST = 31  # values of a hit: a record has a bit for each that says it couldn't be read
_MEMBERS = 12  # of a structure
_NAME, _VALUES = 200, 256  # characters of a name, names of values
_KINDS = {INTEGER, POINTER, FLOAT, STRING}
_NOWHERE = OperandPlace(OTHER, "?")


class Typed(NamedTuple):
    """A function's arguments and its results with their operands; a result that is None is not known."""

    arguments: tuple[tuple[Argument, Operand], ...]
    result: tuple[tuple[Argument, Operand], ...]


def signatures_of(
    image: Image, wanted: Mapping[int, Wanted], members: int, seconds: float, most: int, other: bytes = b""
) -> tuple[str, str]:
    """Return what debug information says of the functions at these addresses of a file, as text for `parsed`, and why
    some are not known, '' if nobody says. Takes so many seconds of CPU time, and reads `most` bytes, at most."""
    from ..elf.space import AddressSpace
    from ..functions.symbols import LOCAL, read_symbols
    from ..inspection.dwarf import debug_data, opened, why_unread
    from ..inspection.signatures import signatures

    def is_local(address: int) -> bool:
        if not ranks:
            for one in read_symbols(AddressSpace(image)).symbols:
                ranks[one.address] = min(one.rank, ranks.get(one.address, one.rank))
        return ranks.get(address, LOCAL) == LOCAL

    ranks: dict[int, int] = {}
    facts = facts_of(image.machine)
    if facts is None or facts.calling is None or not image.is64 or not image.layout.little:
        return "{}", ""
    data = debug_data(image, other=other)
    if data is None:
        return "{}", "what the server sent is none of this file's" if other else ""
    calling, found, until = facts.calling(), dict[int, Any](), time.process_time() + seconds
    trouble = ""
    try:
        for address, signature in signatures(opened(data, most), wanted, is_local, calling, until):
            found[address] = _written(signature, calling, members) if signature is not None else None
    except Exception as error:  # pyelftools raises anything on damaged input
        trouble = why_unread(error)
    if time.process_time() > until:
        trouble = f"it takes more than {seconds:.0f} s to read its debug information"
    return json.dumps(found, separators=(",", ":")), trouble


# -- values ------------------------------------------------------------------------------------------------------------


class _At(NamedTuple):
    """Where a value is: at `place` from an offset on, or in memory that the register `base` leads to."""

    place: Place | None = None
    offset: int = 0
    base: str = ""

    def moved(self, by: int) -> _At:
        return self._replace(offset=self.offset + by)


class _Values:
    def __init__(self, calling: Calling, members: int) -> None:
        self._calling, self._deepest = calling, members

    def of(self, one: Parameter) -> Iterator[tuple[Argument, Operand]]:
        if one.type is None or one.place is None:
            yield _unknown(one.name, one.type)
        elif one.place.address:
            register = one.place.pieces[0].register
            at = _At(base=register) if register else _At()
            yield from self._value(one.name, one.type, at, self._deepest)
        else:
            yield from self._value(one.name, one.type, _At(one.place), self._deepest)

    def _value(self, name: str, type_: Type, at: _At, depth: int) -> Iterator[tuple[Argument, Operand]]:
        if type_.kind in {types.NUMBER, types.REAL}:
            yield self._scalar(name, type_, at)
        elif type_.kind == types.TEXT:
            yield self._made(Argument(name, type_.spelled, 8, False, STRING), at)
        elif type_.kind == types.POINTER:
            yield from self._pointer(name, type_, at, depth)
        elif type_.kind == types.REFERENCE:
            yield from self._reference(name, type_, at, depth)
        else:
            found = list(self._members(name + ".", type_, at, depth))
            yield from found or [_unknown(name, type_)]

    def _scalar(self, name: str, type_: Type, at: _At) -> tuple[Argument, Operand]:
        if type_.kind == types.REAL:
            return self._made(Argument(name, type_.spelled, type_.size, True, FLOAT), at)
        return self._made(Argument(name, type_.spelled, type_.size, type_.signed, INTEGER, type_.names), at)

    def _pointer(self, name: str, type_: Type, at: _At, depth: int) -> Iterator[tuple[Argument, Operand]]:
        target = type_.target
        is_text = target is not None and target.is_character
        yield self._made(Argument(name, type_.spelled, 8, False, STRING if is_text else POINTER), at)
        led = self._led(at)
        if target is not None and led is not None and target.kind == types.STRUCTURE:
            yield from self._members(name + "->", target, led, depth)

    def _reference(self, name: str, type_: Type, at: _At, depth: int) -> Iterator[tuple[Argument, Operand]]:
        target, led = type_.target, self._led(at)
        if target is not None and target.kind in {types.NUMBER, types.REAL, types.TEXT, types.POINTER}:
            yield from self._value(name, target, led or _At(), 0)
        else:
            known = target is not None and led is not None and target.kind == types.STRUCTURE
            found = list(self._members(name + ".", target, led, depth)) if known and target and led else []
            yield from found or [self._made(Argument(name, type_.spelled, 8, False, POINTER), at)]

    def _led(self, at: _At) -> _At | None:
        """Return where a pointer leads to; None where it isn't in a register itself."""
        found = self._place(at, 8)
        return _At(base=found.register) if found.kind == REGISTER and not found.displacement else None

    def _members(self, prefix: str, type_: Type, at: _At, depth: int) -> Iterator[tuple[Argument, Operand]]:
        if depth <= 0 or type_.kind not in {types.STRUCTURE, types.VIEW}:
            return
        try:
            members = type_.members
        except types.StrangeError:
            return
        for member in members[:_MEMBERS]:
            yield from self._member(prefix, type_, member, at.moved(member.offset), depth)

    def _member(
        self, prefix: str, owner: Type, member: Member, at: _At, depth: int
    ) -> Iterator[tuple[Argument, Operand]]:
        type_, name = member.type, prefix + member.name
        if not member.name:  # a base, or members of a nameless structure: they are the structure's own
            yield from self._members(prefix, type_, at, depth)
        elif member.name.startswith("_vptr"):
            return
        elif member.bits:
            yield _unknown(name, type_)
        elif type_.kind in {types.NUMBER, types.REAL}:
            yield self._scalar(name, type_, at)
        elif type_.kind == types.TEXT:
            yield self._made(Argument(name, type_.spelled, 8, False, STRING), at)
        elif type_.kind in {types.POINTER, types.REFERENCE}:
            target = type_.target
            # The text of a string_view is no longer than its length says, and nothing ends it.
            is_text = target is not None and target.is_character and owner.kind != types.VIEW
            is_text = is_text and type_.kind == types.POINTER
            yield self._made(Argument(name, type_.spelled, 8, False, STRING if is_text else POINTER), at)
        else:
            yield from self._members(name + ".", type_, at, depth - 1)

    def _made(self, argument: Argument, at: _At) -> tuple[Argument, Operand]:
        size, floating = argument.size, argument.kind == FLOAT
        return argument, Operand("", size, argument.signed and not floating, floating, self._place(at, size))

    def _place(self, at: _At, size: int) -> OperandPlace:
        if at.base:
            return _memory(at.base, at.offset)
        for piece in at.place.pieces if at.place is not None else ():
            within = at.offset - piece.offset
            if 0 <= within <= piece.size - size:
                if piece.register:
                    return OperandPlace(REGISTER, piece.register, piece.register, displacement=8 * within)
                return _memory(self._calling.stack, piece.distance + within)
        return _NOWHERE


def _memory(base: str, displacement: int) -> OperandPlace:
    return OperandPlace(MEMORY, f"{displacement}({base})", base=base, displacement=displacement)


def _unknown(name: str, type_: Type | None) -> tuple[Argument, Operand]:
    argument = Argument(name, type_.spelled if type_ is not None else "?", 8, False, INTEGER)
    return argument, Operand("", 8, False, False, _NOWHERE)


# -- as text -----------------------------------------------------------------------------------------------------------


def _written(signature: Signature, calling: Calling, members: int) -> list[list[Any]]:
    values = _Values(calling, members)
    taken = [list(values.of(one)) for one in signature.parameters]
    # Where there are too many values, each parameter that isn't one stands for itself.
    while sum(map(len, taken)) > MOST and any(len(one) > 1 for one in taken):
        longest = max(range(len(taken)), key=lambda at: len(taken[at]))
        taken[longest] = taken[longest][: max(1, len(taken[longest]) // 2)]
    result = list(values.of(signature.result))[:MOST] if signature.result is not None else []
    return [[_plain(*one) for many in taken for one in many][:MOST], [_plain(*one) for one in result]]


def _plain(argument: Argument, operand: Operand) -> list[Any]:
    place = operand.place
    return [
        argument.name[:_NAME], argument.type[:_NAME], argument.size, argument.signed, argument.kind,
        argument.values[:_VALUES],
        operand.size, operand.signed, operand.floating, place.kind, place.register or place.base, place.displacement,
    ]  # fmt: skip


def parsed(text: str) -> dict[int, Typed | None]:
    """Return signatures by address, None for functions of which nobody knows one. Raises InputError.

    Nothing of it is believed: who has read the debug information may have been taken over by what stands there.
    """
    try:
        found = json.loads(text)
        return {int(address): _typed(one) if one is not None else None for address, one in found.items()}
    except (ValueError, TypeError, AttributeError, RecursionError):
        raise InputError("signatures", "are damaged") from None


def _typed(one: Any) -> Typed:
    arguments, result = one
    return Typed(tuple(map(_value, arguments[:MOST])), tuple(map(_value, result[:MOST])))


def _value(one: list[Any]) -> tuple[Argument, Operand]:
    name, type_, size, signed, kind, values, read, minus, floating, where, register, distance = one
    texts = [name, type_, kind, where, register, *(text for _, text in values)]
    numbers = [size, read, distance, *(number for number, _ in values)]
    if not all(isinstance(text, str) and len(text) <= _NAME for text in texts) or kind not in _KINDS:
        raise ValueError
    if not all(isinstance(number, int) and abs(number) < 1 << 64 for number in numbers):
        raise ValueError
    if size not in {1, 2, 4, 8} or read not in {1, 2, 4, 8} or where not in {REGISTER, MEMORY, OTHER}:
        raise ValueError
    if where == REGISTER:
        if distance not in range(0, 64, 8) or not register.isalnum():
            raise ValueError
        place = OperandPlace(REGISTER, register, register, displacement=distance)
    elif where == MEMORY:
        if abs(distance) >= 1 << 31 or not register.isalnum():
            raise ValueError
        place = _memory(register, distance)
    else:
        place = _NOWHERE
    known = tuple((number, text) for number, text in values[:_VALUES])
    argument = Argument(name, type_, size, bool(signed), kind, known)
    return argument, Operand("", read, bool(minus), bool(floating), place)
