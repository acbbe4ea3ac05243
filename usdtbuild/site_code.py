"""What instruction stands at a site: one that tracers and the program can do without, or something else?

x86 is decoded, because its NOPs have a dozen forms; elsewhere a table of bytes is enough, since instructions have a
fixed size. The table's rows are those of the machines' architecture manuals; tests check them with capstone. Nothing
here knows ELF.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from .formats.operands import EM_386, EM_AARCH64, EM_ARM, EM_LOONGARCH, EM_PPC, EM_PPC64, EM_RISCV, EM_S390, EM_X86_64

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

# The longest x86 instruction; other machines need less.
LONGEST = 15
EM_SPARC, EM_MIPS, EM_SPARC32PLUS, EM_SPARCV9 = 2, 8, 18, 43

# SPARC returns by %i7 (`ret`), by %o7 (`retl`), or by the register that a function without a window has saved %o7 in.
_SPARC = {"01000000": "nop", "81c7e008": "ret", "81c3e008": "retl"}
for _number in {*range(1, 31)} - {14, 15, 30}:  # not by the pointers to stack and frame
    _SPARC[f"{0x81C02008 | _number << 14:08x}"] = f"jmp %{'goli'[_number // 8]}{_number % 8}+8"
# machine -> instructions that may stand at a site, as a big-endian number's hexadecimal digits, with their mnemonics
_QUIET: dict[int, dict[str, str]] = {
    EM_AARCH64: {"d503201f": "nop", "d65f03c0": "ret"},
    EM_ARM: {
        "e1a00000": "mov r0, r0", "e320f000": "nop", "e12fff1e": "bx lr", "e1a0f00e": "mov pc, lr",
        "bf00": "nop (Thumb)", "46c0": "mov r8, r8 (Thumb)", "4770": "bx lr (Thumb)", "f3af8000": "nop.w (Thumb)",
    },
    EM_PPC: {"60000000": "nop", "4e800020": "blr"},
    EM_PPC64: {"60000000": "nop", "4e800020": "blr"},
    EM_S390: {
        "0700": "nopr %r0", "0707": "nopr %r7", "47000000": "nop 0", "c00400000000": "jgnop .", "07fe": "br %r14",
    },
    EM_RISCV: {"00000013": "nop", "0001": "c.nop", "00008067": "ret", "8082": "c.ret"},
    EM_LOONGARCH: {"03400000": "nop", "4c000020": "ret"},
    EM_SPARC: _SPARC,
    EM_SPARC32PLUS: _SPARC,
    EM_SPARCV9: _SPARC,
    EM_MIPS: {"00000000": "nop", "03e00008": "jr ra", "03e00009": "jalr zero, ra (release 6)"},
}  # fmt: skip
# The same for what clears a function's result, where a call has room for nothing else: DTrace sets the result there.
_CLEARS: dict[int, dict[str, str]] = {
    EM_AARCH64: {"52800000": "mov w0, #0"},
    EM_ARM: {"e3a00000": "mov r0, #0", "f04f0000": "mov.w r0, #0 (Thumb)", "2000": "movs r0, #0 (Thumb)"},
    EM_PPC: {"38600000": "li r3, 0"},
    EM_PPC64: {"38600000": "li r3, 0"},
    EM_LOONGARCH: {"00150004": "or $a0, $zero, $zero"},
    EM_SPARC: {"90102000": "mov 0, %o0"},
    EM_SPARC32PLUS: {"90102000": "mov 0, %o0"},
    EM_SPARCV9: {"90102000": "mov 0, %o0"},
    EM_MIPS: {"00001025": "move $v0, $zero"},
}  # fmt: skip
# x86 prefixes with which kernels up to 6.18 take no uprobe (arch/x86/kernel/uprobes.c, is_prefix_bad)
_REFUSED_PREFIXES = {0x26: "ES", 0x2E: "CS", 0x36: "SS", 0x3E: "DS", 0xF0: "LOCK"}
_OTHER_PREFIXES = {0x64, 0x65, 0x66, 0x67, 0xF2, 0xF3, *range(0x40, 0x50)}


class Instruction(NamedTuple):
    """What stands at a site. `quiet`: a NOP or a return. `refused`: why the kernel takes no probe there ('' if so)."""

    text: str
    quiet: bool
    refused: str = ""


def at_site(code: bytes, machine: int, *, little: bool, asks: bool = False) -> Instruction | None:
    """Return the instruction at the start of `code`; None for a machine that isn't known here.

    `asks`: the site is one where DTrace answers whether a probe is enabled, which may be what answers no.
    """
    if machine in {EM_386, EM_X86_64}:
        return _x86(code, is64=machine == EM_X86_64)  # x32 has 4-byte addresses and runs 64-bit code
    table = _QUIET.get(machine)
    if table is None:
        return None
    # AArch64 and RISC-V code is little-endian in big-endian objects too; ARM's is big-endian only before BE8.
    orders = [True] if machine in {EM_AARCH64, EM_RISCV} else [little, not little] if machine == EM_ARM else [little]
    if asks:
        table = {**table, **_CLEARS.get(machine, {})}
    for digits, mnemonic in table.items():
        if any(code.startswith(_in_order(digits, order, machine)) for order in orders):
            return Instruction(mnemonic, True)
    return Instruction(f"bytes {code[:4].hex(' ')}", False)


def _in_order(digits: str, little: bool, machine: int) -> bytes:
    raw = bytes.fromhex(digits)
    if not little:
        return raw
    # A 32-bit Thumb instruction is two halves, each in byte order.
    if machine == EM_ARM and digits in {"f3af8000", "f04f0000"}:
        return raw[1::-1] + raw[:1:-1]
    return raw[::-1]


@cache
def _decoder(is64: bool) -> tuple[Callable[..., Iterator[Any]], frozenset[int]]:
    """Return what decodes x86 code, and the numbers of its quiet instructions; loading capstone takes a while."""
    import capstone
    from capstone import x86_const

    decoder = capstone.Cs(capstone.CS_ARCH_X86, capstone.CS_MODE_64 if is64 else capstone.CS_MODE_32)
    return decoder.disasm, frozenset((x86_const.X86_INS_NOP, x86_const.X86_INS_RET))


def _x86(code: bytes, *, is64: bool) -> Instruction:
    disassemble, quiet = _decoder(is64)
    decoded = next(disassemble(code[:LONGEST], 0, 1), None)
    if decoded is None:
        return Instruction(f"bytes {code[:4].hex(' ')}, which are no instruction" if code else "nothing", False)
    text = f"{decoded.mnemonic} {decoded.op_str}".strip()
    return Instruction(text, decoded.id in quiet, _refused(bytes(decoded.bytes)))


def _refused(code: bytes) -> str:
    for byte in code:
        if byte in _REFUSED_PREFIXES:
            return f"it has the prefix {byte:#04x} ({_REFUSED_PREFIXES[byte]})"
        if byte not in _OTHER_PREFIXES:
            break
    return ""
