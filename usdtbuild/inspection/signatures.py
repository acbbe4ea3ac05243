"""What functions take and return, and where that is when they are entered, by debug information.

The calling convention says where an argument is; the debug information has to agree, or the place isn't known.
Optimizers change functions that nobody outside can call: they leave arguments out, so that others move, or pass what a
pointer leads to. So an argument counts only if its own location at the entry is in the convention's register, or in
another one for arguments, or in memory of a function that can't have been changed.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from elftools.dwarf.dwarf_expr import DWARFExprParser
from elftools.dwarf.locationlists import LocationParser

from ..machines.calling import Calling, Piece, Place
from ..record import NamedTuple
from .dwarf import forget, low_address, number, origins, ranges, text
from .types import NUMBER, POINTER, REAL, REFERENCE, Type, Types, has, is_cxx, is_known

_INSIDE = {"DW_TAG_namespace", "DW_TAG_module"}
_CHANGED = re.compile(r"\.(?:constprop|isra|part)\b")
_NOT_PASSED = {"__in_chrg", "__vtt_parm"}  # of constructors and destructors: in some of their instances only
_ORIGIN = "DW_AT_abstract_origin"
_NO_CALL = 3  # DW_CC_nocall: calls don't keep to the convention
_MOST = 64  # parameters
# What leaves the low bits of a register as they are.
_LOW_BITS = {"DW_OP_and", "DW_OP_constu", "DW_OP_convert", *(f"DW_OP_const{size}u" for size in (1, 2, 4, 8))}
_WORD = 8


class Wanted(NamedTuple):
    """A function that is asked for: what linkers call it, where its code begins behind the NOPs of its entry, and how
    many parameters its C++ name has, None where it doesn't say."""

    name: str
    body: int
    given: int | None = None


class Parameter(NamedTuple):
    """A parameter; `place` is None where nobody knows where it is."""

    name: str
    type: Type | None
    place: Place | None


class Signature(NamedTuple):
    """What a function takes; `result` is None where it returns nothing."""

    parameters: tuple[Parameter, ...]
    result: Parameter | None


class Location(NamedTuple):
    """What debug information says of a parameter's place at the entry: in `registers`, by the offset of what each holds
    and with how many bytes (0: all); that its address is in the register `address`; `local`: in memory of the function,
    or (`distance`) in the caller's, so far above the canonical frame address; `follows`: there is its address."""

    registers: Mapping[int, tuple[str, int]] = {}
    address: str = ""
    local: bool = False
    distance: int | None = None
    follows: bool = False


def signatures(
    dwarf: Any, wanted: Mapping[int, Wanted], is_local: Callable[[int], bool], calling: Calling, until: float
) -> Iterator[tuple[int, Signature | None]]:
    """Yield the signature of each function at these addresses that debug information knows;
    None where nobody understands it. `is_local` tells of an address whether only its file can call what is there. Ends
    when this process has used so many seconds of CPU time."""
    left = set(wanted)
    for unit in dwarf.iter_CUs():
        if not left or time.process_time() > until:
            return
        top = unit.get_top_DIE()
        covered = ranges(dwarf, unit, top, low_address(top))
        here = left if covered is None else {at for at in left if any(low <= at < high for low, high in covered)}
        if not here:
            continue
        reader = _Reader(dwarf, unit, low_address(top), calling, is_local)
        for address, die in _functions(reader, top, here, until):
            left.discard(address)
            try:
                yield address, reader.signature(die, address, wanted[address])
            except Exception:  # pyelftools raises anything on damaged input
                yield address, None
        forget(unit)


def _functions(reader: _Reader, top: Any, wanted: set[int], until: float) -> Iterator[tuple[int, Any]]:
    """Yield those of the functions of a unit that are entered at one of the addresses: first those that stand at its
    top, then, if some are left, those that stand in types and functions."""
    left = set(wanted)
    for walk in (_at_top(top), reader.unit.iter_DIEs()):
        for die in walk:
            if die.tag == "DW_TAG_subprogram":
                address = reader.entry(die)
                if address in left:
                    left.discard(address)
                    yield address, die
            if not left or time.process_time() > until:
                return


def _at_top(die: Any) -> Iterator[Any]:
    for child in die.iter_children():
        yield child
        if child.tag in _INSIDE:
            yield from _at_top(child)


class _Reader:
    def __init__(self, dwarf: Any, unit: Any, base: int, calling: Calling, is_local: Callable[[int], bool]) -> None:
        self._is_local = is_local
        self.dwarf, self.unit, self._base, self._calling = dwarf, unit, base, calling
        self._types = Types()
        self._expressions = DWARFExprParser(unit.structs)
        self._locations = LocationParser(dwarf.location_lists())
        self._is_clang = "clang" in text(unit.get_top_DIE(), "DW_AT_producer")

    def entry(self, die: Any) -> int | None:
        if not has(die, "DW_AT_low_pc", "DW_AT_ranges"):
            return None
        if (given := number(die, "DW_AT_low_pc")) is not None:
            return given
        covered = ranges(self.dwarf, self.unit, die, self._base)
        return covered[0][0] if covered else None

    def signature(self, die: Any, address: int, wanted: Wanted) -> Signature:
        """Return a function's. Raises StrangeError, KeyError."""
        parameters = _parameters(die)
        if all(has(one, _ORIGIN) for one in parameters):  # what was left out of a copy stands behind the others
            parameters.sort(key=lambda one: one.get_DIE_from_attribute(_ORIGIN).offset)
        types = [self._type(one) for one in parameters]
        located = [self._location(one, die, address, wanted.body) for one in parameters]
        result = self._type(die)
        changed = self._said(die, number, "DW_AT_calling_convention") == _NO_CALL
        changed = changed or bool(_CHANGED.search(wanted.name)) or not is_known(die)
        returned = result.shape if result is not None else None
        optimized = has(die, "DW_AT_call_all_calls", "DW_AT_GNU_all_call_sites")
        optimized = optimized or any(one is None or not one.local for one in located)
        known = (result is None or returned is not None) and self._are_all(die, parameters, wanted, optimized)
        shapes = [type_.shape if type_ is not None and known else None for type_ in types]
        places = self._calling.arguments(shapes, returned)
        # Clang changes functions that only their file can call, without another name. Newer versions say so.
        intact = not changed and not (self._is_clang and optimized and self._is_local(address))
        plain = is_cxx(die) or bool(self._said(die, number, "DW_AT_prototyped"))
        found = tuple(
            Parameter(
                str(self._said(one, text, "DW_AT_name")), type_,
                self._agreed(type_, place, at, intact and (plain or type_ is None or type_.kind != REAL)),
            )
            for one, type_, place, at in zip(parameters, types, places, located)
        )  # fmt: skip
        if result is None:
            return Signature(found, None)
        # Where a function may have been changed, a result that nobody uses may have been left out.
        place = self._calling.result(returned) if intact and returned is not None else None
        return Signature(found, Parameter("result", result, place))

    def _are_all(self, die: Any, parameters: Sequence[Any], wanted: Wanted, optimized: bool) -> bool:
        """Whether nothing that a function takes is missing: Clang doesn't name all that are passed by their address."""
        given = len(parameters)
        for one in origins(die):
            if len(_parameters(one)) > given:
                return False
        own = sum(not self._said(one, number, "DW_AT_artificial") for one in parameters)
        if wanted.given is not None:
            return own == wanted.given
        return not (self._is_clang and is_cxx(one)) or optimized

    def _said(self, die: Any, get: Any, key: str) -> Any:
        """Return an attribute of a DIE, or of what it is an instance of."""
        found = None
        for one in origins(die):
            if found := get(one, key):
                break
        return found

    def _type(self, die: Any) -> Type | None:
        typed = next((one for one in origins(die) if has(one, "DW_AT_type")), None)
        return self._types.of(typed) if typed is not None else None

    # -- where parameters are ----------------------------------------------------------------------------------------

    def _agreed(self, type_: Type | None, place: Place | None, at: Location | None, intact: bool) -> Place | None:
        """Return a parameter's place, if convention and debug information agree on it. `intact`: the function can't
        have been changed."""
        if at is None or type_ is None:
            return None
        if at.registers:
            return self._in_registers(type_, place, at, intact)
        if place is None:
            return None
        if at.address:
            return place if place.address and place.pieces[0].register == at.address else None
        if not intact or place.address != at.follows:
            return None
        on_stack = bool(place.pieces) and not place.pieces[0].register
        if at.distance is not None and not at.follows:
            return place if on_stack and place.pieces[0].distance == at.distance + self._calling.frame else None
        return place

    def _in_registers(self, type_: Type, place: Place | None, at: Location, intact: bool) -> Place | None:
        """Return the place of a parameter with parts in registers. These may be others than the convention's, where
        arguments before it were left out."""
        if intact and place is not None and not place.address and all(piece.register for piece in place.pieces):
            said = [piece for piece in place.pieces if at.registers.get(piece.offset, ("",))[0] == piece.register]
            return Place(tuple(said)) if said else None  # with all of the register, though only a part is told of
        scalar = type_.kind in {NUMBER, REAL, POINTER, REFERENCE}
        found = []
        for offset, (register, known) in at.registers.items():
            size = type_.size if scalar or not known else known
            if 0 < size <= _WORD and (not scalar or (register in _FLOATS) == (type_.kind == REAL)):
                found.append(Piece(offset, size, register))
        return Place(tuple(found)) if found else None

    def _location(self, die: Any, function: Any, address: int, body: int) -> Location | None:
        """Return where a parameter is when its function is entered, or behind the NOPs there; None where that isn't
        said."""
        attribute = die.attributes.get("DW_AT_location")
        version = self.unit["version"]
        if attribute is None or not self._locations.attribute_has_location(attribute, version):
            return None
        found: Any = self._locations.parse_from_attribute(attribute, version, die)
        expression = getattr(found, "loc_expr", None)
        if isinstance(found, list):
            base, expression = self._base, None
            for entry in found:
                if hasattr(entry, "base_address"):
                    base = entry.base_address
                elif hasattr(entry, "loc_expr"):
                    shift = 0 if entry.is_absolute else base
                    begin, end = entry.begin_offset + shift, entry.end_offset + shift
                    if begin <= address < end or (address < begin <= body < end):
                        expression = entry.loc_expr
                        break
        return self._meant(expression, function) if expression else None

    def _meant(self, expression: Sequence[int], function: Any) -> Location | None:
        """Return what a location says (DWARF 5, 2.6)."""
        steps = self._expressions.parse_expr(expression)
        names = [step.op_name for step in steps]
        if names == ["DW_OP_entry_value", "DW_OP_stack_value"]:
            steps = steps[0].args[0]
            names = [step.op_name for step in steps]
        first, follows = steps[0], names[1:] == ["DW_OP_deref"]
        if found := dict(self._fragments(steps)):
            return Location(found)
        if names[0] == "DW_OP_fbreg" and (follows or len(names) == 1):
            distance = self._above_frame(first.args[0], function)
            return Location(local=True, distance=distance, follows=follows)
        base = names[0].removeprefix("DW_OP_breg")
        if not base.isdigit():
            return None
        register = self._calling.registers.get(int(base), "")
        if register and names[-1] == "DW_OP_stack_value" and _LOW_BITS.issuperset(names[1:-1]) and not first.args[0]:
            return Location({0: (register, 0)})
        if register and len(names) == 1 and not first.args[0]:
            return Location(address=register)
        return Location(local=True, follows=follows) if not register and (follows or len(names) == 1) else None

    def _fragments(self, steps: Sequence[Any]) -> Iterator[tuple[int, tuple[str, int]]]:
        """Yield the parts of a value that are in registers, by their offsets in it; what is all of it, with size 0."""
        if len(steps) == 1 and (name := self._register(steps[0])):
            yield 0, (name, 0)
        offset, part = 0, list[Any]()
        for step in steps:
            if step.op_name != "DW_OP_piece":
                part.append(step)
                continue
            if len(part) == 1 and (name := self._register(part[0])):
                yield offset, (name, step.args[0])
            offset += step.args[0]
            part.clear()

    def _register(self, step: Any) -> str:
        if step.op_name == "DW_OP_regx":
            return self._calling.registers.get(step.args[0], "")
        suffix = step.op_name.removeprefix("DW_OP_reg")
        return self._calling.registers.get(int(suffix), "") if suffix.isdigit() else ""

    def _above_frame(self, offset: int, function: Any) -> int | None:
        """Return how far above the canonical frame address a place in the frame is; None if it is below, or that isn't
        known."""
        base = function.attributes.get("DW_AT_frame_base")
        found = bytes(base.value) if base is not None and isinstance(base.value, list) else b""
        if found == b"\x56" and self._calling.stack == "rsp":  # rbp, which was pushed behind the return address
            offset -= 16
        elif found != b"\x9c":  # DW_OP_call_frame_cfa
            return None
        return offset if offset >= 0 else None


def _parameters(die: Any) -> list[Any]:
    found = (child for child in die.iter_children() if child.tag == "DW_TAG_formal_parameter")
    return [one for one in islice(found, _MOST) if text(one, "DW_AT_name") not in _NOT_PASSED]


_FLOATS = frozenset((*(f"xmm{number}" for number in range(8)), *(f"v{number}" for number in range(8))))
