"""capstone, set up for a machine, and put right where it is wrong. Import it lazily: loading capstone takes a while."""

from __future__ import annotations

import functools
from collections.abc import Iterator

import capstone

from . import facts_of
from .x86_64.lengths import operand_size

_AT_ONCE = 256  # instructions; capstone decodes all that it is given before it hands out the first
_LONGEST = 15  # bytes in an x86 instruction
_UNDEFINED = {"ud0", "ud1"}
# What Clang before 17 puts at a function's start with -fsanitize=function: a jump over 6 bytes, `v2` first
_SIGNATURE = b"\xeb\x06v2"
_LANDING_PAD = 4  # endbr64, which may come first


def new_disassembler(machine: int, *, is64: bool, little: bool, thumb: bool = False) -> capstone.Cs:
    """Return a disassembler for ELF machine number `machine`. Raises KeyError where capstone isn't used for it."""
    known = facts_of(machine)
    if known is None or known.disassembler is None:
        raise KeyError(machine)
    architecture, *modes = (
        next(getattr(capstone, name) for name in names if hasattr(capstone, name))
        for names in known.disassembler(is64, little, thumb)
    )
    return capstone.Cs(architecture, sum(modes))


@functools.cache
def _shared(machine: int, is64: bool, little: bool, thumb: bool) -> capstone.Cs:
    decoder = new_disassembler(machine, is64=is64, little=little, thumb=thumb)
    decoder.skipdata = True
    return decoder


def instructions(
    machine: int, code: bytes, address: int = 0, *, is64: bool = True, little: bool = True, thumb: bool = False,
    at_once: int = _AT_ONCE,
) -> Iterator[tuple[int, int, str, str]]:  # fmt: skip
    """Yield address, length, mnemonic and operands of the instructions in `code`, whose first byte is at `address`.

    Bytes that are no instruction have a mnemonic that begins with a dot. Whoever wants only a few instructions says so
    with `at_once`, which saves time. Raises KeyError where capstone isn't used for the machine.
    """
    decoder = _shared(machine, is64, little, thumb)
    facts = facts_of(machine)
    x86 = facts is not None and facts.decoded
    at, end = 0, -1
    while end < at < len(code):  # until all is read, or nothing more can be
        end = at
        for place, length, mnemonic, operands in decoder.disasm_lite(
            code[at : at + at_once * _LONGEST], address + at, at_once
        ):
            at = place - address + length
            more = _left_out(code, at - length, length, mnemonic) if x86 else 0
            at += more
            yield place, length + more, mnemonic, operands
            if more:
                break


def _left_out(code: bytes, start: int, length: int, mnemonic: str) -> int:
    """Return how many bytes behind an x86 instruction are part of it, or data of the compiler's that it jumps over.

    capstone ends UD0 and UD1 before their operands; clang's traps of sanitizers and -ftrapv have them.
    """
    if mnemonic in _UNDEFINED:
        return operand_size(code, start + length)
    return 6 if start <= _LANDING_PAD and code.startswith(_SIGNATURE, start) else 0
