"""Branches that go where a patch will be: into an entry's padding, or between its NOPs.

The whole code is looked at, not only the function and the one before it. A first pass knows only what relative branches
look like in bytes and where they would go; it is quick and takes too much for a branch. Where something it found goes
to an address that matters, capstone disassembles the function it is in, and what isn't an instruction there, or is no
branch, is dropped. In an object, the branches that the linker will still fill in are read from the relocations.
"""

from __future__ import annotations

import re
import sys
from array import array
from bisect import bisect_right
from struct import unpack_from
from typing import TYPE_CHECKING, Any

from ..elf import layout as elf
from ..machines import facts_of
from ..machines.disassembly import instructions
from ..record import NamedTuple
from .symbols import FUNCTION_TYPES, mapping_symbols

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from ..elf.space import AddressSpace, Span
    from .entry import Starts

# Farthest back that a disassembly starts to find out whether an address is the start of an instruction.
_REACH = 1 << 16


class Jump(NamedTuple):
    """A branch: where it stands, where it goes, and the instruction."""

    source: int
    target: int
    text: str


def find_jumps(
    space: AddressSpace, starts: Starts, targets: Collection[int], harmless: Callable[[Jump], bool] = lambda jump: False
) -> dict[int, Jump]:
    """Return, for each of `targets` that a branch goes to which isn't `harmless`, the one at the lowest address."""
    found: dict[int, Jump] = {}
    if not targets:
        return found
    jumps, relocated = _through_relocations(space, targets) if space.relocatable else ([], frozenset())
    grouped = _by_function(space, starts, targets, relocated)
    if grouped:
        kinds = _Kinds(space)
        for start in sorted(grouped):
            jumps += _instructions(space, starts, start, grouped[start], kinds)
    for jump in jumps:
        first = found.get(jump.target)
        if (first is None or jump.source < first.source) and not harmless(jump):
            found[jump.target] = jump
    return found


def _by_function(
    space: AddressSpace, starts: Starts, targets: Collection[int], relocated: frozenset[int]
) -> dict[int, list[tuple[int, int]]]:
    """Return what looks like a branch to one of `targets`, by where a disassembly of its function starts."""
    grouped: dict[int, list[tuple[int, int]]] = {}
    for span in space.code:
        for source, target, field in _candidates(space, span, targets):
            if field not in relocated:
                around = starts.around(source)
                start = around.address if around else span.start
                grouped.setdefault(max(start, source - _REACH, span.start), []).append((source, target))
    return grouped


def _instructions(
    space: AddressSpace, starts: Starts, start: int, candidates: list[tuple[int, int]], kinds: _Kinds
) -> list[Jump]:
    """Return the branches among `candidates`, all of one function that is read from `start` on."""
    candidates = [(source, target) for source, target in candidates if kinds.at(source) != "d"]
    if not candidates:
        return []
    around = starts.around(start)
    thumb = (kinds.at(candidates[0][0]) or "t" * bool(around and around.thumb)) == "t"
    return _confirm(space, start, candidates, thumb)


# -- what branches look like -----------------------------------------------------------------------------------------


def _candidates(space: AddressSpace, span: Span, targets: Collection[int]) -> Iterator[tuple[int, int, int]]:
    """Yield address, target and the address of the changeable bytes of what looks like a branch to one of `targets`."""
    code = bytes(space.data[span.offset : span.offset + span.end - span.start])
    known = facts_of(space.machine)
    if known is None:
        return
    if known.branches_of_bytes is not None:
        yield from known.branches_of_bytes()(code, span.start, targets, ~0 if space.layout.is64 else 0xFFFFFFFF)
    for branches in known.branches:
        little = space.layout.little if branches.little is None else branches.little
        look: Any = _words if branches.unit == 4 else _halfwords
        yield from look(code, span.start, targets, little, branches.decode)


def _words(
    code: bytes, base: int, targets: Collection[int], little: bool, decode: _Decode1
) -> Iterator[tuple[int, int, int]]:
    words = array("I")
    skip = -base % 4
    words.frombytes(code[skip : skip + (len(code) - skip & ~3)])
    if little != (sys.byteorder == "little"):
        words.byteswap()
    place = base + skip
    for word in words:
        distance = decode(word)
        if distance is not None and place + distance in targets:
            yield place, place + distance, place
        place += 4


def _halfwords(
    code: bytes, base: int, targets: Collection[int], little: bool, decode: _Decode2
) -> Iterator[tuple[int, int, int]]:
    halves = array("H")
    skip = base % 2
    halves.frombytes(code[skip : skip + (len(code) - skip & ~1)])
    if little != (sys.byteorder == "little"):
        halves.byteswap()
    place = base + skip
    following = iter(halves)
    next(following, 0)
    for half in halves:
        distance = decode(half, next(following, 0))
        if distance is not None and place + distance in targets:
            yield place, place + distance, place
        place += 2


# -- which of them are branches --------------------------------------------------------------------------------------


class _Kinds:
    """Which bytes between instructions are data, where the assembler said so."""

    def __init__(self, space: AddressSpace) -> None:
        known = facts_of(space.machine)
        self._addresses, self._kinds = mapping_symbols(space) if known and known.mapping_symbols else ([], [])

    def at(self, address: int) -> str:
        """Return a, t or x for instructions, d for data, "" where nothing is said."""
        index = bisect_right(self._addresses, address) - 1
        return self._kinds[index] if index >= 0 else ""


def _confirm(space: AddressSpace, start: int, candidates: list[tuple[int, int]], thumb: bool) -> list[Jump]:
    """Return those of `candidates` (all in one function) that are instructions, when it is read from its start on."""
    last = max(source for source, _ in candidates)
    wanted = dict(candidates)
    found = []
    shift = start - space.place(start).address  # an object's reader knows offsets, not our addresses
    known = facts_of(space.machine)
    prefixes = known.prefixes if known else 0
    layout, code = space.layout, space.read(start, last - start + 16)
    for shown, size, mnemonic, operands in instructions(
        space.machine, code, start - shift, is64=layout.is64, little=layout.little, thumb=thumb
    ):
        address = shown + shift
        found += [
            Jump(address, wanted[place], f"{mnemonic} {operands}".strip())
            for place in range(address, address + min(size, prefixes + 1))
            if place in wanted and _goes_to(operands, shown, wanted[place] - shift)
        ]
        if address >= last:
            break
    return found


_LAST_NUMBER = re.compile(r"(-?)(0x[0-9a-f]+|\d+)$")


def _goes_to(operands: str, source: int, target: int) -> bool:
    """Whether a disassembled instruction's last operand is `target`, absolute, or relative as RISC-V's are printed."""
    match = _LAST_NUMBER.search(operands)
    if match is None:
        return False
    value = int(match.group(2), 0) * (-1 if match.group(1) else 1)
    return target in (value, source + value)


# -- branches of objects ---------------------------------------------------------------------------------------------


def _through_relocations(space: AddressSpace, targets: Collection[int]) -> tuple[list[Jump], frozenset[int]]:
    """Return the branches to `targets` that relocations make, and every address in code that has a relocation."""
    known = facts_of(space.machine)
    kinds = known.relocations.branches if known else {}
    jumps, relocated = [], set()
    for section in space.sections:
        if section.type not in (elf.SHT_RELA, elf.SHT_REL) or section.info >= len(space.sections):
            continue
        code = space.sections[section.info]
        if not code.flags & elf.SHF_EXECINSTR or section.link >= len(space.sections):
            continue
        for offset, kind, symbol, addend in space.relocations(section):
            place = code.address + offset
            relocated.add(place)
            target = _symbol_address(space, section.link, symbol) if kind in kinds else None
            if target is None:
                continue
            target += kinds[kind] + (_addend_in_place(space, place, kinds[kind]) if addend is None else addend)
            if target in targets:
                jumps.append(Jump(place, target, "a relocated branch"))
    return jumps, frozenset(relocated)


def _symbol_address(space: AddressSpace, table: int, number: int) -> int | None:
    address = space.symbol_address(table, number)
    if address is None:
        return None
    known = facts_of(space.machine)
    function = space.symbols(table).infos[number] & 15 in FUNCTION_TYPES
    return address & ~1 if known and known.thumb and function else address


def _addend_in_place(space: AddressSpace, place: int, adjustment: int) -> int:
    """Return the addend that lies in the branch itself (REL machines: i386 and ARM)."""
    known = facts_of(space.machine)
    if known and known.decoded:
        size = 1 if adjustment == 1 else 4
        return int.from_bytes(space.read(place, size), "little", signed=True)
    if known and known.thumb:
        code = space.read(place, 4).ljust(4, b"\0")
        first, second, word = *unpack_from("<HH", code), unpack_from("<I", code)[0]
        words: Any
        halves: Any
        words, halves = (branches.decode for branches in known.branches)
        distance = halves(first, second) if second & 0x8000 and first & 0xF800 == 0xF000 else words(word)
        return distance or 0
    return 0


if TYPE_CHECKING:
    from collections.abc import Callable

    _Decode1 = Callable[[int], "int | None"]
    _Decode2 = Callable[[int, int], "int | None"]
