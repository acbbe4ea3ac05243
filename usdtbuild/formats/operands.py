"""The operands of SDT notes: `-4@%edi 8@8(%rsp)` taken apart into sizes, signs and places.

An operand is `[-]SIZE@PLACE`: a minus sign means signed, SIZE is in bytes (with `f` behind it for floating point), and
PLACE is what the machine's assembler writes for a register, a memory operand or a constant. Source: SystemTap's
`sys/sdt.h` and its wiki page "UserSpaceProbeImplementation"; the places, per machine, from what gcc and clang print.

This module understands every operand it can and judges none; which tracer reads which is `inspection.tracers`. Writing
operands is the machines' business (`usdtbuild.machines`).
"""

from __future__ import annotations

import re
from functools import cache, lru_cache
from itertools import islice

from ..machines import facts_of
from ..record import NamedTuple

REGISTER, MEMORY, CONSTANT, OTHER = "register", "memory", "constant", "other"


class OperandPlace(NamedTuple):
    """Where an argument is. `kind` says which of the other fields mean something.

    REGISTER: `register`, and `displacement`, how many bits up in it the argument begins (0 in all records). MEMORY:
    `base`, `index_register` and `symbol` ('' where absent), `scale` and `displacement` in bytes. CONSTANT:
    `displacement` is the value. OTHER: none of them, the text is all there is.
    """

    kind: str
    text: str
    register: str = ""
    base: str = ""
    index_register: str = ""
    scale: int = 1
    symbol: str = ""
    displacement: int = 0


class Operand(NamedTuple):
    """One argument of a note. `size` is in bytes, 0 where the note gives none that can be read."""

    text: str
    size: int
    signed: bool
    floating: bool
    place: OperandPlace


_MOST = 255
_WORD = re.compile(r"(?:[^\s\[(]|\[[^\]]*\]?|\([^)]*\)?)+")
_PREFIX = re.compile(r"(-?)([0-9]{1,4})(f?)@(.+)", re.DOTALL)
_NUMBER = r"[-+]?(?:0[xX][0-9a-fA-F]{1,16}|[0-9]{1,20})"
_NAME = r"[A-Za-z_.][\w.@$]*"


class _Grammar(NamedTuple):
    """The three forms of one machine, with the groups that `OperandPlace` has fields for."""

    register: re.Pattern[str]
    memory: re.Pattern[str]
    constant: re.Pattern[str]


@cache
def _grammar_of(machine: int) -> _Grammar | None:
    known = facts_of(machine)
    if known is None:
        return None
    expanded = (
        text.replace("NUMBER", _NUMBER).replace("NAME", _NAME).replace("REG", known.operands.register)
        for text in ("(?P<register>REG)", known.operands.memory, known.operands.constant)
    )
    return _Grammar(*(re.compile(text, re.ASCII) for text in expanded))


@lru_cache(maxsize=1024)
def parse(text: str, machine: int) -> tuple[Operand, ...]:
    """Return the operands of a note's argument string, for ELF machine number `machine`; never raises.

    Of a damaged note with more than 255 operands, which no format and no tracer has room for, the rest is cut off.
    """
    return tuple(parse_one(word, machine) for word in split(text))


def split(text: str) -> list[str]:
    """Return the operands' texts. They are separated by blanks, but `[sp, 8]` is one place with a blank inside."""
    return [found.group() for found in islice(_WORD.finditer(text), _MOST)]


@lru_cache(maxsize=1024)
def parse_one(text: str, machine: int) -> Operand:
    """Return one operand."""
    prefix = _PREFIX.fullmatch(text)
    if prefix is None:
        return Operand(text, 0, False, False, _place(text, machine))
    sign, size, floating, place = prefix.groups()
    return Operand(text, int(size), sign == "-", floating == "f", _place(place, machine))


def _place(text: str, machine: int) -> OperandPlace:
    grammar = _grammar_of(machine)
    if grammar is None:
        return OperandPlace(OTHER, text)
    found = grammar.register.fullmatch(text)
    if found:
        return OperandPlace(REGISTER, text, register=found["register"].lstrip("%"))
    found = grammar.constant.fullmatch(text)
    if found:
        return OperandPlace(CONSTANT, text, displacement=_number(found["constant"]))
    found = grammar.memory.fullmatch(text)
    if found is None:
        return OperandPlace(OTHER, text)
    groups = found.groupdict(default="")
    return OperandPlace(
        MEMORY,
        text,
        base=groups["base"].lstrip("%"),
        index_register=groups.get("index", "").lstrip("%"),
        scale=int(groups.get("scale") or 1),
        symbol=groups.get("symbol", ""),
        displacement=_number(groups["front"]) + _number(groups.get("back", "")),
    )


def _number(text: str) -> int:
    if not text:
        return 0
    return int(text, 16) if "x" in text.lower() else int(text)
