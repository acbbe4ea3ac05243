"""RISC-V, 64 and 32 bits, as the RISC-V ELF psABI has it: boards and microcontrollers.

Instructions are 32-bit words, always little-endian, or with the C extension also 16-bit halves, so code is aligned to
two bytes only. A call in an object is a pair: `auipc ra` and `jalr ra`, a tail call `auipc t1` and `jr t1`, which hold
the distance's upper and lower part. One relocation (CALL_PLT, formerly CALL) on the `auipc` stands for both, and
usually a second one at the same place (RELAX) allows the linker to make one short jump of the pair.

That is what is peculiar: linkers delete bytes (relaxation), so distances within a section aren't known before the link.
An address in code must be a symbol of its own, which the linker moves along, and a distance a pair of relocations.

Arguments are in a0...a7, the others on the stack in slots of a register's size from 0(sp) on. With 32 bits an argument
of eight bytes takes two slots, which may be a7 and the first on the stack; on the stack it begins with an even one. The
return address is in ra, the result in a0.

ABI: https://github.com/riscv-non-isa/riscv-elf-psabi-doc, "Procedure calling convention", "Relocations".
"""

from __future__ import annotations

from .arguments import Convention, spell
from .machine import Machine, PlaceRelocation, Replacement, Stub, StubRelocation, word, words

# Relocation types.
R_NONE, R_32, R_64, R_CALL, R_CALL_PLT, R_PCREL_HI20, R_PCREL_LO12_I = 0, 1, 2, 18, 19, 23, 24
R_ADD32, R_ADD64, R_SUB32, R_SUB64, R_RELAX = 35, 36, 39, 40, 51

# Instruction words.
_NOP = 0x00000013  # addi zero, zero, 0
_RETURN = 0x00008067  # jalr zero, 0(ra)
_CLEAR = 0x00000513  # addi a0, zero, 0
_AUIPC_A0 = 0x00000517  # auipc a0, %pcrel_hi(semaphore)
_LHU_A0 = 0x00055503  # lhu a0, %pcrel_lo(auipc)(a0)

_REGISTERS = tuple(f"a{i}" for i in range(8))


def machine(*, is64: bool, little: bool, flags: int) -> Machine:
    """Return RISC-V with registers of 64 or 32 bits; byte order and flags change nothing here."""
    del little, flags
    slot = 8 if is64 else 4
    convention = Convention(_REGISTERS, "{}(sp)", "0(sp)", -8 * slot, slot, even_stack=True)
    return Machine(
        name="riscv64" if is64 else "riscv32", none=R_NONE, absolute=R_64 if is64 else R_32,
        absolute32=R_32 if is64 else None, replace=_replace, stub=_stub,
        operands=lambda arguments, tail: spell(convention, arguments),
        pc_relative=(PlaceRelocation(R_ADD64, 0, 0), PlaceRelocation(R_SUB64, 0, 0, place=True)),
        relaxes=True, difference=(R_ADD32, R_SUB32),
    )  # fmt: skip


def _replace(
    code: memoryview, offset: int, type_: int, addend: int | None, enabled: bool, nop: str
) -> Replacement | None:
    """See `Machine.replace`."""
    del nop
    if type_ not in {R_CALL, R_CALL_PLT} or addend or offset + 8 > len(code):
        return None
    auipc, jalr = word(code, offset, little=True), word(code, offset + 4, little=True)
    register = auipc >> 7 & 31
    if auipc != 0x00000017 | register << 7 or jalr & ~(31 << 7) != 0x00000067 | register << 15:
        return None
    link = jalr >> 7 & 31  # the register that takes the return address: ra at a call, none at a jump
    if link not in {0, 1}:
        return None
    code_words = words(True, _CLEAR if enabled else _NOP, _NOP if link else _RETURN)
    return Replacement(offset, code_words, offset + 4 * enabled, link == 0, (offset,))


def _stub(enabled: bool, semaphore: bool, nop: str) -> Stub:
    """See `Machine.stub`."""
    del nop
    if not enabled:
        return _make_stub()
    if not semaphore:
        return _make_stub(_CLEAR)
    relocations = (StubRelocation(0, R_PCREL_HI20, 0), StubRelocation(4, R_PCREL_LO12_I, 0, label=0))
    return _make_stub(_AUIPC_A0, _LHU_A0, relocations=relocations)


def _make_stub(*body: int, relocations: tuple[StubRelocation, ...] = ()) -> Stub:
    return Stub(words(True, *body, _NOP, _RETURN), 4 * len(body), 4, relocations, (("$x", 0),))
