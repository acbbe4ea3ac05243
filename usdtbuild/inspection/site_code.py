"""What instruction stands at a site: one that tracers and the program can do without, or something else?

x86 is decoded, because its NOPs have a dozen forms; elsewhere a table of bytes is enough, since instructions have a
fixed size. The table's rows are those of the machines' architecture manuals; tests check them with capstone. Nothing
here knows ELF.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import cache
from typing import Any

from ..machines import facts_of
from ..record import NamedTuple

# The longest x86 instruction; other machines need less.
LONGEST = 15
# x86 prefixes with which kernels up to 6.18 take no uprobe (arch/x86/kernel/uprobes.c, is_prefix_bad)
_REFUSED_PREFIXES = {0x26: "ES", 0x2E: "CS", 0x36: "SS", 0x3E: "DS", 0xF0: "LOCK"}
_OTHER_PREFIXES = {0x64, 0x65, 0x66, 0x67, 0xF2, 0xF3, *range(0x40, 0x50)}


class SiteInstruction(NamedTuple):
    """What stands at a site. `quiet`: a NOP or a return. `refused`: why the kernel takes no probe there ('' if so).

    `valid`: whether the bytes are an instruction at all, as far as that is known.
    """

    text: str
    quiet: bool
    refused: str = ""
    valid: bool = True


def at_site(code: bytes, machine: int, *, little: bool, asks: bool = False) -> SiteInstruction | None:
    """Return the instruction at the start of `code`; None for a machine that isn't known here.

    `asks`: the site is one where DTrace answers whether a probe is enabled, which may be what answers no.
    """
    known = facts_of(machine)
    if known is None:
        return None
    if known.decoded:
        return _x86(code, machine)
    orders = known.code_orders(little)
    table = {**known.quiet, **known.clears} if asks else known.quiet
    for digits, mnemonic in table.items():
        if any(code.startswith(_in_order(digits, order, digits in known.halves)) for order in orders):
            return SiteInstruction(mnemonic, True)
    return SiteInstruction(f"bytes {code[:4].hex(' ')}", False, valid=_is_instruction(code, machine, orders[0]))


def _is_instruction(code: bytes, machine: int, little: bool) -> bool:
    """Whether a disassembler knows an instruction at the start of `code`; where there is none for the machine, true."""
    from ..machines.disassembly import instructions  # loading capstone takes a while

    known = facts_of(machine)
    if known is None or known.disassembler is None:
        return True
    forms = (False, True) if known.thumb else (False,)
    found = [next(instructions(machine, code[:8], little=little, thumb=thumb, at_once=1), None) for thumb in forms]
    return any(one is not None and one[2] != ".byte" for one in found)


def misaligned(address: int, machine: int) -> bool:
    """Whether no instruction of a machine can begin at an address."""
    known = facts_of(machine)
    return known is not None and address % known.align != 0


def inside_others(code: bytes, machine: int, offsets: Iterable[int]) -> dict[int, str]:
    """Return those of `offsets` that lie inside an instruction, with that instruction; `code` begins with one.

    Read from there on up to the first bytes that are none, since what follows may be data. Machines whose instructions
    all have one length have nothing to read, and Thumb code has data between.
    """
    wanted = sorted(offsets)
    found: dict[int, str] = {}
    at = 0
    for start, size, text in _instructions(code, machine):
        while at < len(wanted) and wanted[at] < start + size:
            if wanted[at] > start:
                found[wanted[at]] = text
            at += 1
        if at == len(wanted):
            break
    return found


def _instructions(code: bytes, machine: int) -> Iterator[tuple[int, int, str]]:
    """Yield offset, length and text of the instructions of a function, on machines where lengths differ."""
    known = facts_of(machine)
    if known and known.decoded:
        from ..machines.disassembly import instructions

        for start, size, mnemonic, operands in instructions(machine, code):
            if mnemonic == ".byte":
                break
            yield start, size, f"{mnemonic} {operands}".strip()
    elif known and known.length:
        at = 0
        while at + 2 <= len(code):
            size = known.length(code, at)
            yield at, size, f"bytes {code[at : at + size].hex(' ')}"
            at += size


def _in_order(digits: str, little: bool, halves: bool) -> bytes:
    raw = bytes.fromhex(digits)
    if not little:
        return raw
    # A 32-bit Thumb instruction is two halves, each in byte order.
    if halves:
        return raw[1::-1] + raw[:1:-1]
    return raw[::-1]


@cache
def _decoder(machine: int) -> tuple[Callable[..., Iterator[Any]], frozenset[int]]:
    """Return what decodes x86 code, and the numbers of its quiet instructions; loading capstone takes a while."""
    from capstone import x86_const

    from ..machines.disassembly import new_disassembler

    decoder = new_disassembler(machine, is64=True, little=True)
    return decoder.disasm, frozenset((x86_const.X86_INS_NOP, x86_const.X86_INS_RET))


def _x86(code: bytes, machine: int) -> SiteInstruction:
    disassemble, quiet = _decoder(machine)
    decoded = next(disassemble(code[:LONGEST], 0, 1), None)
    if decoded is None:
        return SiteInstruction(f"bytes {code[:4].hex(' ')}" if code else "nothing", False, valid=False)
    text = f"{decoded.mnemonic} {decoded.op_str}".strip()
    return SiteInstruction(text, decoded.id in quiet, _refused(bytes(decoded.bytes)))


def _refused(code: bytes) -> str:
    for byte in code:
        if byte in _REFUSED_PREFIXES:
            return f"it has the prefix {byte:#04x} ({_REFUSED_PREFIXES[byte]})"
        if byte not in _OTHER_PREFIXES:
            break
    return ""
