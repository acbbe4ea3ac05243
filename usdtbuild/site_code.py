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
    from collections.abc import Callable, Iterable, Iterator

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


# Addresses of instructions are multiples of this; MIPS has a compressed form, too.
_ALIGNED = {
    EM_AARCH64: 4, EM_PPC: 4, EM_PPC64: 4, EM_LOONGARCH: 4, EM_SPARC: 4, EM_SPARC32PLUS: 4, EM_SPARCV9: 4,
    EM_ARM: 2, EM_RISCV: 2, EM_S390: 2, EM_MIPS: 2,
}  # fmt: skip


class Instruction(NamedTuple):
    """What stands at a site. `quiet`: a NOP or a return. `refused`: why the kernel takes no probe there ('' if so).

    `valid`: whether the bytes are an instruction at all, as far as that is known.
    """

    text: str
    quiet: bool
    refused: str = ""
    valid: bool = True


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
    return Instruction(f"bytes {code[:4].hex(' ')}", False, valid=_is_instruction(code, machine, orders[0]))


def _is_instruction(code: bytes, machine: int, little: bool) -> bool:
    """Whether a disassembler knows an instruction at the start of `code`; where there is none for the machine, true."""
    from .functions.jumps import disassembler  # loading capstone takes a while

    forms = (False, True) if machine == EM_ARM else (False,)
    try:
        decoders = [disassembler(machine, machine != EM_PPC, little, thumb) for thumb in forms]
    except KeyError:
        return True
    found = [next(decoder.disasm_lite(code[:8], 0), None) for decoder in decoders]
    return any(one is not None and one[2] != ".byte" for one in found)


def misaligned(address: int, machine: int) -> bool:
    """Whether no instruction of a machine can begin at an address."""
    return address % _ALIGNED.get(machine, 1) != 0


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
    if machine in {EM_386, EM_X86_64}:
        import capstone

        mode = capstone.CS_MODE_64 if machine == EM_X86_64 else capstone.CS_MODE_32
        for start, size, mnemonic, operands in capstone.Cs(capstone.CS_ARCH_X86, mode).disasm_lite(code, 0):
            yield start, size, f"{mnemonic} {operands}".strip()
    elif machine in {EM_RISCV, EM_S390}:
        at = 0
        while at + 2 <= len(code):
            # RISC-V: the low bits of the first halfword; z/Architecture: the high bits of the first byte
            size = (4 if code[at] & 3 == 3 else 2) if machine == EM_RISCV else (2, 4, 4, 6)[code[at] >> 6]
            yield at, size, f"bytes {code[at : at + size].hex(' ')}"
            at += size


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
        return Instruction(f"bytes {code[:4].hex(' ')}" if code else "nothing", False, valid=False)
    text = f"{decoded.mnemonic} {decoded.op_str}".strip()
    return Instruction(text, decoded.id in quiet, _refused(bytes(decoded.bytes)))


def _refused(code: bytes) -> str:
    for byte in code:
        if byte in _REFUSED_PREFIXES:
            return f"it has the prefix {byte:#04x} ({_REFUSED_PREFIXES[byte]})"
        if byte not in _OTHER_PREFIXES:
            break
    return ""
