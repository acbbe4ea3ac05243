"""The operands of SDT notes: `-4@%edi 8@8(%rsp)` taken apart into sizes, signs and places.

An operand is `[-]SIZE@PLACE`: a minus sign means signed, SIZE is in bytes (with `f` behind it for floating point), and
PLACE is what the machine's assembler writes for a register, a memory operand or a constant. Source: SystemTap's
`sys/sdt.h` and its wiki page "UserSpaceProbeImplementation"; the places, per machine, from what gcc and clang print.

This module understands every operand it can and judges none; which tracer reads which is `usdtbuild.tracers`. Writing
operands is the machines' business (`usdtbuild.arch`).
"""

from __future__ import annotations

import re
from functools import lru_cache
from itertools import islice
from typing import NamedTuple

REGISTER, MEMORY, CONSTANT, OTHER = "register", "memory", "constant", "other"

EM_SPARC, EM_386, EM_MIPS, EM_SPARC32PLUS, EM_PPC, EM_PPC64, EM_S390, EM_ARM = 2, 3, 8, 18, 20, 21, 22, 40
EM_SPARCV9, EM_X86_64, EM_AARCH64, EM_RISCV, EM_LOONGARCH = 43, 62, 183, 243, 258


class Place(NamedTuple):
    """Where an argument is. `kind` says which of the other fields mean something.

    REGISTER: `register`. MEMORY: `base`, `index_register` and `symbol` ('' where absent), `scale` and `displacement` in
    bytes. CONSTANT: `displacement` is the value. OTHER: none of them, the text is all there is.
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
    place: Place


_MOST = 255
_WORD = re.compile(r"(?:[^\s\[(]|\[[^\]]*\]?|\([^)]*\)?)+")
_PREFIX = re.compile(r"(-?)([0-9]{1,4})(f?)@(.+)", re.DOTALL)
_NUMBER = r"[-+]?(?:0[xX][0-9a-fA-F]{1,16}|[0-9]{1,20})"
_NAME = r"[A-Za-z_.][\w.@$]*"


class _Grammar(NamedTuple):
    """The three forms of one machine, with the groups that `Place` has fields for."""

    register: re.Pattern[str]
    memory: re.Pattern[str]
    constant: re.Pattern[str]


def _grammar(register: str, memory: str, constant: str) -> _Grammar:
    expanded = (
        text.replace("NUMBER", _NUMBER).replace("NAME", _NAME).replace("REG", register)
        for text in ("(?P<register>REG)", memory, constant)
    )
    return _Grammar(*(re.compile(text, re.ASCII) for text in expanded))


_X86 = _grammar(
    r"%[a-zA-Z][a-zA-Z0-9]*",
    r"(?:(?P<front>NUMBER)(?=[+(]))?(?:\+?(?P<symbol>NAME)(?P<back>[-+][0-9]{1,20})?)?"
    r"\((?P<base>REG)?(?:,(?P<index>REG)(?:,(?P<scale>[0-9]))?)?\)",
    r"\$(?P<constant>NUMBER)",
)
_BRACKETS = r"\[(?P<base>REG)(?:, ?#?(?P<front>NUMBER))?\]"
_PARENTHESES = r"(?P<front>NUMBER)?\((?P<base>REG)(?:,(?P<index>REG))?\)"
_SPARC = _grammar(r"%(?:[goli][0-7]|sp|fp)", r"\[(?P<base>REG)(?P<front>[-+][0-9]{1,20})?\]", r"(?P<constant>NUMBER)")
_GRAMMARS = {
    EM_SPARC: _SPARC,
    EM_SPARC32PLUS: _SPARC,
    EM_SPARCV9: _SPARC,
    EM_MIPS: _grammar(r"\$\w+", r"(?P<front>NUMBER)?\((?P<base>REG)\)", r"(?P<constant>NUMBER)"),
    EM_386: _X86,
    EM_X86_64: _X86,
    EM_AARCH64: _grammar(r"(?:[xwbhsdqv]\d{1,2}|w?sp|[xw]zr)", _BRACKETS, r"(?P<constant>NUMBER)"),
    EM_ARM: _grammar(r"(?:[rsdq]\d{1,2}|fp|ip|sp|lr|pc|sl|sb)", _BRACKETS, r"#(?P<constant>NUMBER)"),
    EM_PPC: _grammar(r"(?:%?[rf]?\d{1,2})", r"(?P<front>NUMBER)\((?P<base>REG)\)", r"i(?P<constant>NUMBER)"),
    EM_PPC64: _grammar(r"(?:%?[rf]?\d{1,2})", r"(?P<front>NUMBER)\((?P<base>REG)\)", r"i(?P<constant>NUMBER)"),
    EM_S390: _grammar(r"%[rfav]\d{1,2}", _PARENTHESES, r"(?P<constant>NUMBER)"),
    EM_RISCV: _grammar(r"(?:[astfx]\d{1,2}|f[ast]\d{1,2}|ra|sp|gp|tp|zero)", _PARENTHESES, r"(?P<constant>NUMBER)"),
    # gcc prints `$r3,16`, and bcc reads `[$r3, 16]`.
    EM_LOONGARCH: _grammar(
        r"\$\w+", r"(?P<open>\[)?(?P<base>REG)(?:, ?(?P<front>NUMBER))?(?(open)\])", r"(?P<constant>NUMBER)"
    ),
}


@lru_cache(maxsize=1024)
def parse(text: str, machine: int) -> tuple[Operand, ...]:
    """Return the operands of a note's argument string, for ELF machine number `machine`; never raises.

    Of a damaged note with more than 255 operands, which no format and no tracer has room for, the rest is cut off.
    """
    return tuple(parse_one(word, machine) for word in split(text))


def split(text: str) -> list[str]:
    """Return the operands' texts. They are separated by blanks, but `[sp, 8]` is one place with a blank inside."""
    return [found.group() for found in islice(_WORD.finditer(text), _MOST)]


def parse_one(text: str, machine: int) -> Operand:
    """Return one operand."""
    prefix = _PREFIX.fullmatch(text)
    if prefix is None:
        return Operand(text, 0, False, False, _place(text, machine))
    sign, size, floating, place = prefix.groups()
    return Operand(text, int(size), sign == "-", floating == "f", _place(place, machine))


def _place(text: str, machine: int) -> Place:
    grammar = _GRAMMARS.get(machine)
    if grammar is None:
        return Place(OTHER, text)
    found = grammar.register.fullmatch(text)
    if found:
        return Place(REGISTER, text, register=found["register"].lstrip("%"))
    found = grammar.constant.fullmatch(text)
    if found:
        return Place(CONSTANT, text, displacement=_number(found["constant"]))
    found = grammar.memory.fullmatch(text)
    if found is None:
        return Place(OTHER, text)
    groups = found.groupdict(default="")
    return Place(
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
