"""What stands at a patchable entry on each machine: NOPs, landing pads, and the smallest N,M that is safe to patch.

A page for a newcomer. `-fpatchable-function-entry=N,M` puts N NOPs at a function, M of them before its symbol:

    table entry -> nop ... nop      M NOPs, the padding: room for a jump that reaches anywhere
         symbol -> endbr64, bti c   a landing pad, where branch protection wants one
                   nop nop          N-M NOPs: one short jump into the padding, written while the program runs
                   push %rbp ...    the function

With M = 0 the table entry is the first NOP, which stands after the landing pad. Tables only: no file is read here.
NOP bytes are in file order; the sources are the compilers' output, checked with capstone in the tests.
"""

from __future__ import annotations

import re
from typing import NamedTuple

EM_386, EM_PPC, EM_PPC64, EM_S390, EM_ARM, EM_X86_64, EM_AARCH64, EM_RISCV = 3, 20, 21, 22, 40, 62, 183, 243

# What the second byte of x86's short jump means to a thread that stands between two one-byte NOPs while the entry is
# patched: it is run as an instruction of its own. Only these three do nothing a function's start could notice.
HARMLESS_SECOND_BYTES = {0xF5: "cmc", 0xF8: "clc", 0xF9: "stc"}
_HARMFUL = {
    0xF0: "a lock prefix", 0xF1: "int1", 0xF2: "a repne prefix", 0xF3: "a rep prefix", 0xF4: "hlt",
    0xF6: "the start of a longer instruction", 0xF7: "the start of a longer instruction",
}  # fmt: skip


class Scheme(NamedTuple):
    """One way to patch an entry: at least `padding` bytes before it, and `entry` bytes of NOPs in it."""

    padding: int
    entry: int
    what: str


class Machine(NamedTuple):
    """What a checker must know about one instruction set."""

    name: str
    align: int  # every instruction starts at a multiple of this
    nops: tuple[tuple[bytes, str], ...]  # fixed forms and names; x86's long NOPs are in X86_NOP
    pads: tuple[tuple[bytes, str], ...]  # landing pads
    units: tuple[int, ...]  # bytes in the compiler's one NOP, the usual first
    scheme: tuple[int, int]  # the smallest N,M that can be patched safely, as the flags command gives it
    ways: tuple[Scheme, ...]  # what any other N,M has to have room for
    prologue: int = 0  # bytes a patch of an ordinary prologue needs; 0: not known here


# 66* 90, and 0f 1f /0 in its lengths (Intel SDM volume 2, NOP, table 4-12). gas and LLVM put 66 and 2e before it, and
# clang's entries have a displacement, of 8 or 512, which makes no difference to a NOP.
X86_NOP = re.compile(
    rb"\x66{0,14}\x90|[\x66\x2e]{0,12}\x0f\x1f(?:\x00|\x40.|\x44..|\x80.{4}|\x84.{5})", re.DOTALL
)
_X86_WAY = (Scheme(5, 2, "five bytes of padding for jmp rel32, two at the entry for a short jump to it"),)
_X86 = Machine(
    "x86-64", 1, ((b"\x90", "nop"),), ((bytes.fromhex("f30f1efa"), "endbr64"),), (1,), (7, 5), _X86_WAY, 5
)  # fmt: skip
_I386 = _X86._replace(name="i386", pads=((bytes.fromhex("f30f1efb"), "endbr32"),))

_AARCH64 = Machine(
    "aarch64", 4,
    ((bytes.fromhex("1f2003d5"), "nop"),),
    (
        (bytes.fromhex("5f2403d5"), "bti c"), (bytes.fromhex("9f2403d5"), "bti j"),
        (bytes.fromhex("df2403d5"), "bti jc"), (bytes.fromhex("1f2403d5"), "bti"),
        (bytes.fromhex("3f2303d5"), "paciasp"), (bytes.fromhex("7f2303d5"), "pacibsp"),
    ),
    (4,), (1, 0),
    (Scheme(0, 4, "one b at the entry, which reaches 128 MB"),), 4,
)  # fmt: skip
_RISCV = Machine(
    "riscv64", 2, ((bytes.fromhex("0100"), "c.nop"), (bytes.fromhex("13000000"), "nop")), (), (2, 4), (5, 4),
    (Scheme(8, 2, "eight bytes of padding for auipc and jalr, one c.j to them"),),
)  # fmt: skip
_ARM = Machine(
    "arm", 4, ((bytes.fromhex("00f020e3"), "nop"), (bytes.fromhex("0000a0e1"), "mov r0, r0")), (), (4,), (1, 0),
    (Scheme(0, 4, "one b at the entry, which reaches 32 MB"),),
)  # fmt: skip
_THUMB = Machine(
    "thumb", 2,
    ((bytes.fromhex("00bf"), "nop"), (bytes.fromhex("c046"), "mov r8, r8"), (bytes.fromhex("aff30080"), "nop.w")),
    (), (2, 4), (3, 2),
    (Scheme(4, 2, "four bytes of padding for b.w, one narrow b to it"),),
)  # fmt: skip
_POWER = (Scheme(0, 4, "one b at the entry, which reaches 32 MB"),)
_PPC = Machine("ppc32", 4, ((bytes.fromhex("60000000"), "nop"),), (), (4,), (1, 0), _POWER)
_PPC64 = _PPC._replace(name="ppc64")
_PPC64LE = Machine("ppc64le", 4, ((bytes.fromhex("00000060"), "nop"),), (), (4,), (1, 0), _POWER)
# A table entry's two halfwords are two instructions, which no single store can replace safely; -mhotpatch=4,2 makes
# them one four-byte instruction, and writes no table.
_S390X = Machine(
    "s390x", 2,
    (
        (bytes.fromhex("0700"), "nopr"), (bytes.fromhex("0707"), "nopr"),
        (bytes.fromhex("47000000"), "nop"), (bytes.fromhex("c00400000000"), "jgnop"),
    ),
    (), (2,), (4, 2), (),
)  # fmt: skip

S390_HOTPATCH_ENTRY = bytes.fromhex("47000000")
S390_HOTPATCH_PADDING = bytes.fromhex("0700" * 4)


def machine_for(number: int, is64: bool, little: bool) -> Machine | None:
    """Return the table of ELF machine `number`, or None where entries are not known."""
    if number == EM_X86_64:
        return _X86
    if number == EM_PPC64:
        return _PPC64LE if little else _PPC64
    if number == EM_RISCV:
        return _RISCV if is64 else _RISCV._replace(name="riscv32")
    if number == EM_S390:
        return _S390X if is64 else None
    found = {EM_386: _I386, EM_AARCH64: _AARCH64, EM_ARM: _ARM, EM_PPC: _PPC}.get(number)
    return found if little or number == EM_PPC else None


def thumb() -> Machine:
    """Return the table of ARM's Thumb code, which shares its ELF machine number with ARM code."""
    return _THUMB


BY_NAME = {
    m.name: m for m in (_X86, _I386, _AARCH64, _RISCV, _ARM, _THUMB, _PPC, _PPC64, _PPC64LE, _S390X)
}  # fmt: skip


def is_x86(machine: Machine) -> bool:
    """Whether NOPs have x86's many lengths."""
    return machine.align == 1


def nop_at(machine: Machine, code: bytes, at: int) -> int:
    """Return the length of the NOP at `code[at:]`, 0 if none stands there."""
    if is_x86(machine):
        found = X86_NOP.match(code, at)
        return len(found.group()) if found and found.end() - at <= 15 else 0
    for form, _ in machine.nops:
        if code.startswith(form, at):
            return len(form)
    return 0


def landing_pad(machine: Machine, code: bytes, at: int = 0) -> tuple[int, str]:
    """Return length and name of the landing pad at `code[at:]`, (0, "") if none stands there."""
    for form, name in machine.pads:
        if code.startswith(form, at):
            return len(form), name
    return 0, ""


def second_byte(padding: int, landing: int) -> int:
    """Return the displacement byte of x86's short jump from an entry to the start of its padding."""
    return -(2 + landing + padding) & 0xFF


def second_byte_hazard(padding: int, landing: int) -> str:
    """Say what the displacement byte would do to a thread between two NOPs; empty if nothing."""
    value = second_byte(padding, landing)
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


def too_small(machine: Machine, padding: int, entry: int) -> str:
    """Say why `padding` bytes before and `entry` bytes at the entry can't be patched; empty if they can."""
    if not machine.ways:
        return "two NOPs of 2 bytes are not one instruction, and no single store can replace them safely"
    if any(padding >= way.padding and entry >= way.entry for way in machine.ways):
        return ""
    needs = ", or ".join(way.what for way in machine.ways)
    return f"{in_bytes(padding)} of padding and {entry} at the entry are too little: {machine.name} needs {needs}"


def in_bytes(count: int) -> str:
    """Return a number of bytes in words."""
    return f"{count} byte{'s' * (count != 1)}"
