"""What x86's instructions do to registers and the stack, as far as a value is followed that was loaded from a slot.

capstone takes them apart; what they do is told by their names, in Intel's spelling. An instruction that isn't known
here writes its first operand. To forget too much is to miss a call, to forget too little is to look at one in vain.

Encodings: Intel's manual, volume 2.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

# A register's number (-1: none), or a place on the stack: the stack or frame pointer's, and the distance from it.
Place = int | tuple[int, int]

_NAMES = ("ax", "cx", "dx", "bx", "sp", "bp", "si", "di")
SP, BP = 4, 5
# Which write no register though their first operand is one; and which write others than that.
_QUIET = frozenset({"cmp", "test", "bt", "nop", "out", "wrfsbase", "wrgsbase", "incsspd", "incsspq"})
_OTHERS = {
    "cdq": 4, "cqo": 4, "cwd": 4, "cbw": 1, "cwde": 1, "cdqe": 1, "mul": 5, "div": 5, "idiv": 5, "cpuid": 15,
    "rdtsc": 5, "rdtscp": 7, "xgetbv": 5, "rdpmc": 5, "syscall": 0b0000100000000011, "lahf": 1, "leave": 0b110000,
    "sysenter": 0xFF, "popal": 0xFF, "int": 1, "xlatb": 1,
}  # fmt: skip
_STRINGS = re.compile(r"(?:rep\w* )?(movs|stos|lods|scas|cmps|ins|outs)[bwdq]?$")
_MEMORY = re.compile(r"(?:\w+ ptr )?\[([re](?:sp|bp))(?: ([+-]) (0x[0-9a-f]+|\d+))?\]$")
_NUMBER = re.compile(r"(0x[0-9a-f]+|\d+)$")

# What an instruction does, beside what it writes.
PLAIN, COPY, MAYBE, SWAP, STEP, CALL, JUMP, BRANCH, END = range(9)
_BRANCHES = {"call": CALL, "jmp": JUMP}


class Effect(NamedTuple):
    """What one instruction does: it writes the registers of the mask `writes`, and is of one of the kinds above.

    COPY: `to` gets what is at `source`; MAYBE: it gets it or not; SWAP: both ways. STEP: the stack pointer moves by
    `number`. CALL, JUMP, BRANCH: it goes to `number`, or (-1) to what `source` holds, written `text`. END: no way
    leads on.
    """

    kind: int
    writes: int = 0
    to: Place = -1
    source: Place = -1
    number: int = -1
    text: str = ""


def register(name: str) -> int:
    """Return the number of the register that a name means, or means a part of; -1 if it is none."""
    if name[:1] == "r" and name[1:].rstrip("dwb").isdigit():
        return int(name[1:].rstrip("dwb"))
    if len(name) == 3 and name[0] in "re" and name[1:] in _NAMES:
        return _NAMES.index(name[1:])
    if name in _NAMES:
        return _NAMES.index(name)
    if len(name) == 2 and name[1] in "lh" and name[0] in "acdb":
        return "acdb".index(name[0])
    return _NAMES.index(name[:2]) if len(name) == 3 and name[2] == "l" and name[:2] in _NAMES else -1


def _place(operand: str, word: int) -> Place:
    """Return a whole register, or a place that is counted from the stack or frame pointer; -1 for what is neither."""
    memory = _MEMORY.match(operand)
    if memory:
        distance = int(memory[3] or "0", 0)
        return register(memory[1]), -distance if memory[2] == "-" else distance
    whole = operand[:1] == "r" and operand[-1:] not in "dwb" if word == 8 else operand[:1] == "e"
    return register(operand) if whole else -1


def _mask(register: int) -> int:
    return 1 << register if register >= 0 else 0


@lru_cache(maxsize=1 << 16)
def effect(mnemonic: str, operands: str, word: int) -> Effect:
    """Return what an instruction does, as capstone writes it."""
    bare = mnemonic.rpartition(" ")[2]
    if bare in _BRANCHES or bare[0] == "j" or bare.startswith("loop"):
        return _branch(_BRANCHES.get(bare, BRANCH), operands, word)._replace(writes=2 if bare[0] == "l" else 0)
    if bare.startswith(("ret", "iret", "ud", "hlt", "int3", ".")):
        return Effect(END)
    if bare.startswith("push"):
        return Effect(STEP, number=-word)
    if bare in {"pop", "popfq", "popfd"}:
        return Effect(STEP, _mask(register(operands)), number=word)
    if _STRINGS.match(mnemonic) and "xmm" not in operands:
        return Effect(PLAIN, 1 << 6 | 1 << 7 | 3)
    return Effect(PLAIN) if bare in _QUIET else _written(bare, operands, word)


def _written(bare: str, operands: str, word: int) -> Effect:
    parts = operands.split(", ", 1)
    first = _mask(register(parts[0]))
    if len(parts) == 2:
        return _of_two(bare, parts, first, word)
    if bare in _OTHERS or bare == "imul":  # of a product or quotient the one operand is read
        return Effect(PLAIN, _OTHERS.get(bare, 5))
    return Effect(PLAIN, first | (5 if bare.startswith("cmpxchg") else 0))


def _of_two(bare: str, parts: list[str], first: int, word: int) -> Effect:
    to, source = _place(parts[0], word), _place(parts[1], word)
    if bare in {"add", "sub"} and to == SP and _NUMBER.match(parts[1]):
        return Effect(STEP, number=int(parts[1], 0) * (1 if bare == "add" else -1))
    if bare == "lea" and to == SP and isinstance(source, tuple) and source[0] == SP:
        return Effect(STEP, number=source[1])
    if bare == "mov":
        return Effect(COPY, first, to, source) if to != -1 else Effect(PLAIN, first)
    if bare.startswith("cmov"):
        return Effect(MAYBE, 0, to, source) if to != -1 else Effect(PLAIN, first)
    if bare == "xchg":
        both = first | _mask(register(parts[1]))
        return Effect(SWAP, 0, to, source) if -1 not in (to, source) else Effect(PLAIN, both)
    if bare in {"xadd", "mulx"}:
        first |= _mask(register(parts[1].split(", ")[0]))
    elif bare == "cmpxchg":
        first |= 1
    return Effect(PLAIN, first)


def _branch(kind: int, operands: str, word: int) -> Effect:
    if _NUMBER.match(operands):
        return Effect(kind, number=int(operands, 0))
    return Effect(kind, source=_place(operands, word), text=operands)


def name(number: int, word: int) -> str:
    """Return what a whole register is called, in a machine with addresses of `word` bytes."""
    if number >= len(_NAMES):
        return f"r{number}"
    return ("r" if word == 8 else "e") + _NAMES[number]
