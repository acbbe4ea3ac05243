"""What stands at a patchable entry: NOPs, landing pads, and whether a patch can be written over them safely.

A page for a newcomer. `-fpatchable-function-entry=N,M` puts N NOPs at a function, M of them before its symbol:

    table entry -> nop ... nop      M NOPs, the padding: room for a jump that reaches anywhere
         symbol -> endbr64, bti c   a landing pad, where branch protection wants one
                   nop nop          N-M NOPs: one short jump into the padding, written while the program runs
                   push %rbp ...    the function

With M = 0 the table entry is the first NOP, which stands after the landing pad. The bytes are facts of the machines
(`machines.facts.Entries`); no file is read here.
"""

from __future__ import annotations

from ..machines import facts_of
from ..machines.facts import Entries
from ..text import plural

# What the second byte of x86's short jump means to a thread that stands between two one-byte NOPs while the entry is
# patched: it is run as an instruction of its own. Only these three do nothing a function's start could notice.
HARMLESS_SECOND_BYTES = {0xF5: "cmc", 0xF8: "clc", 0xF9: "stc"}
_HARMFUL = {
    0xF0: "a lock prefix", 0xF1: "int1", 0xF2: "a repne prefix", 0xF3: "a rep prefix", 0xF4: "hlt",
    0xF6: "the start of a longer instruction", 0xF7: "the start of a longer instruction",
}  # fmt: skip


def machine_for(number: int, is64: bool, little: bool) -> Entries | None:
    """Return what entries look like on ELF machine `number`, or None where that is not known."""
    known = facts_of(number)
    return known.entries(is64, little) if known else None


def has_long_nops(machine: Entries) -> bool:
    """Whether one NOP may have any of many lengths, so that a patch may fall into one (x86)."""
    return bool(machine.long_nops)


def landing_pad(machine: Entries, code: bytes, at: int = 0) -> tuple[int, str]:
    """Return length and name of the landing pad at `code[at:]`, (0, "") if none stands there."""
    for form, name in machine.pads:
        if code.startswith(form, at):
            return len(form), name
    return 0, ""


def second_byte_hazard(padding: int, landing: int) -> str:
    """Say what the displacement byte of x86's short jump from an entry to its padding would do to a thread between two
    NOPs; empty if nothing."""
    value = -(2 + landing + padding) & 0xFF
    if value in HARMLESS_SECOND_BYTES and padding + landing + 2 <= 128:
        return ""
    return f"{value:02x}, {_HARMFUL.get(value, 'another instruction')}"


def long_nop_hazard(first: int) -> str:
    """Say what a patch of x86 would do half-written over a first NOP of `first` bytes; empty if nothing.

    The second byte is written first. Behind `90` or `66` it is an instruction of its own; behind the `0f` of a longer
    NOP it is an opcode: `0f f9 00` is `psubw (%rax),%mm0`, which reads wherever rax points.
    """
    if first <= 2:
        return ""
    return f"the entry's first NOP has {first} bytes: between the patch's two stores it is another instruction"


def too_small(machine: Entries, padding: int, entry: int) -> str:
    """Say why `padding` bytes before and `entry` bytes at the entry can't be patched; empty if they can."""
    if not machine.ways:
        return "two NOPs of 2 bytes are not one instruction, and no single store can replace them safely"
    for way in machine.ways:
        if padding >= way.padding and entry >= way.entry:
            return ""
    needs = ", or ".join(way.what for way in machine.ways)
    return f"{plural(padding, 'byte')} of padding and {entry} at the entry are too little: {machine.name} needs {needs}"
