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

from ..arguments import Convention, spell
from ..calls import PlaceRelocation, ProbeCalls, Replacement, StandIn, StubRelocation, signed, word, words
from ..numbers import EM_RISCV

TYPE_CHECKING = False
if TYPE_CHECKING:
    import re
    from collections.abc import Iterator

    from ..facts import Facts
    from ..stubs import Branch, CodeSpan, FileCode, LibraryCalls

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


def machine(*, is64: bool, little: bool, flags: int) -> ProbeCalls:
    """Return RISC-V with registers of 64 or 32 bits; byte order and flags change nothing here."""
    slot = 8 if is64 else 4
    convention = Convention(_REGISTERS, "{}(sp)", "0(sp)", -8 * slot, slot, even_stack=True)
    return ProbeCalls(
        name="riscv64" if is64 else "riscv32", none=R_NONE, absolute=R_64 if is64 else R_32,
        absolute32=R_32 if is64 else None, replace=_replace, stub=_stub,
        operands=lambda arguments, tail: spell(convention, arguments),
        pc_relative=(PlaceRelocation(R_ADD64, 0, 0), PlaceRelocation(R_SUB64, 0, 0, place=True)),
        relaxes=True, difference=(R_ADD32, R_SUB32), branched=8, wide_registers=is64,
    )  # fmt: skip


def _replace(
    code: memoryview, offset: int, type_: int, addend: int | None, enabled: bool, nop: str
) -> Replacement | None:
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


def _stub(enabled: bool, semaphore: bool, nop: str) -> StandIn:
    if not enabled:
        return _make_stub()
    if not semaphore:
        return _make_stub(_CLEAR)
    relocations = (StubRelocation(0, R_PCREL_HI20, 0), StubRelocation(4, R_PCREL_LO12_I, 0, label=0))
    return _make_stub(_AUIPC_A0, _LHU_A0, relocations=relocations)


def _make_stub(*body: int, relocations: tuple[StubRelocation, ...] = ()) -> StandIn:
    return StandIn(words(True, *body, _NOP, _RETURN), 4 * len(body), 4, relocations, (("$x", 0),))


# -- facts ------------------------------------------------------------------------------------------------------------


def _atomic(code: bytes, address: int, little: bool) -> tuple[int, ...]:
    """See `Stopped.atomic`. RISC-V unprivileged ISA 8.2: LR and SC, of words and doublewords."""
    from ..exclusive import Exclusive
    from .steps import branch

    forms = Exclusive(
        ((0xF9F0607F, 0x1000202F),), ((0xF800607F, 0x1800202F),), lambda value: branch(value & 0xFFFF, value >> 16),
        lambda half: 4 if half & 3 == 3 else 2,
    )  # fmt: skip
    return forms.ends(code, address, True)


def facts() -> dict[int, Facts]:
    """Return what is known beside probe calls, by machine number. Only who asks for it pays for it."""
    from ..facts import Branches, Entries, Facts, Operands, Passing, Relocations, Scheme, Stopped
    from .steps import branch

    names = r"(?:ra|sp|gp|tp|a[0-7]|s\d|s1[01]|t[0-6])"
    written = Operands(
        r"(?:[astfx]\d{1,2}|f[ast]\d{1,2}|ra|sp|gp|tp|zero)",
        r"(?P<front>NUMBER)?\((?P<base>REG)(?:,(?P<index>REG))?\)",
        readable={"libbpf": rf"{names}|-?\d+\({names}\)|-?\d+"},
    )  # fmt: skip
    entries = Entries(
        "riscv64", 2, ((b"\x01\0", "c.nop"), (words(True, 0x13), "nop")), (), (2, 4), (5, 4),
        (Scheme(8, 2, "eight bytes of padding for auipc and jalr, two at the entry for a c.j to them"),), 0,
        lambda macros, little: "__riscv" in macros and macros.get("__riscv_xlen") == "64", "qemu-riscv64", ("riscv64",),
        unit=lambda macros: 2 if "__riscv_compressed" in macros else 4,
    )  # fmt: skip
    entries_32 = entries._replace(name="riscv32", told_by=lambda macros, little: False, emulator="", hosts=())
    by_number = (
        "zero", "ra", "sp", "gp", "tp", "t0", "t1", "t2", "fp", "s1", *(f"a{n}" for n in range(8)),
        *(f"s{n}" for n in range(2, 12)), *(f"t{n}" for n in range(3, 7)),
    )  # fmt: skip
    return {
        EM_RISCV: Facts(
            "riscv", 2, written,
            # R_RISCV_BRANCH, JAL, CALL, CALL_PLT, RVC_BRANCH, RVC_JUMP
            Relocations(3, R_64, 57, R_32, {16: 0, 17: 0, 18: 0, 19: 0, 44: 0, 45: 0}, {R_ADD32: 1, R_SUB32: -1}),
            quiet={"00000013": "nop", "0001": "c.nop", "00008067": "ret", "8082": "c.ret"},
            code_orders=lambda little: (True,),
            length=lambda code, at: 4 if code[at] & 3 == 3 else 2,
            disassembler=lambda is64, little, thumb: (
                ("CS_ARCH_RISCV",), ("CS_MODE_RISCV64" if is64 else "CS_MODE_RISCV32",), ("CS_MODE_RISCVC",)),
            mapping_symbols=True, branches=(Branches(2, branch, True),),
            entries=lambda is64, little: (entries if is64 else entries_32) if little else None, pairs=True,
            # psABI, "Integer Calling Convention"
            passing=Passing(tuple(f"a{n}" for n in range(8)), results=("a0", "")),
            stopped=Stopped(
                spelled={"s0": "fp", **{f"x{n}": name for n, name in enumerate(by_number)}},
                zero=frozenset({"zero", "x0"}), trap=lambda code: 4 if code[:1] and code[0] & 3 == 3 else 2,
                stack="sp", link="ra", atomic=_atomic,
            ),
        )
    }  # fmt: skip


# -- calls into libraries ---------------------------------------------------------------------------------------------


def stubs(code: FileCode) -> LibraryCalls:
    """Return what library calls look like: t3 is what the slot holds (psABI, "Procedure Linkage Table")."""
    from ..stubs import Form, LibraryCalls, Word, pattern, word

    form = pattern(
        True,
        Word(0x00000E17, 0x00000FFF),  # auipc t3, hi
        Word(0x000E3E03 if code.is64 else 0x000E2E03, 0x000FFFFF),  # ld or lw t3, lo(t3)
        Word(0x000E0367),  # jalr t1, t3
    )

    def slot(match: re.Match[bytes], address: int, base: int) -> int:
        high, low = word(match, 1, True), word(match, 2, True)
        return (address + signed(high & 0xFFFFF000, 32) + signed(low >> 20, 12)) & (
            0xFFFFFFFFFFFFFFFF if code.is64 else 0xFFFFFFFF
        )

    # R_RISCV_JUMP_SLOT; none that is only for slots, R_RISCV_64 and R_RISCV_32 are; IRELATIVE
    return LibraryCalls(
        5, (-1, 2 if code.is64 else 1), (58,), (Form(form, slot, 4),), _sites, lambda span: _slot_sites(span, code.is64)
    )


def _sites(span: CodeSpan) -> Iterator[Branch]:
    """Yield jal, and auipc with jalr behind it, from code in units of two bytes."""
    from ..stubs import CALL, JUMP, Branch, units

    halves = units(span, 2, True)
    last = len(halves) - 1
    for at, half in enumerate(halves):
        if half & 0x7F == 0x6F and at < last:  # jal
            value = half | halves[at + 1] << 16
            distance = (value >> 31) << 20 | (value >> 12 & 0xFF) << 12 | (value >> 20 & 1) << 11
            target = span.address + 2 * at + signed(distance | (value >> 21 & 0x3FF) << 1, 21)
            yield Branch(span.address + 2 * at, target, CALL if value >> 7 & 31 in {1, 5} else JUMP)
        elif half & 0x7F == 0x17 and at + 3 <= last and halves[at + 2] & 0x707F == 0x67:  # auipc, jalr
            high, low = half | halves[at + 1] << 16, halves[at + 2] | halves[at + 3] << 16
            if high >> 7 & 31 == low >> 15 & 31:
                target = span.address + 2 * at + signed(high & 0xFFFFF000, 32) + signed(low >> 20, 12)
                yield Branch(span.address + 2 * at, target, CALL if low >> 7 & 31 in {1, 5} else JUMP)


# What gcc's -mno-plt makes of calls (-fno-plt changes nothing, nor does clang 19 by it): auipc, ld, jalr; the loads
# often stand before a loop.
_KEPT, _STACK = 1 << 2 | 3 << 8 | 0x3FF << 18, 1 << 2 | 1 << 8  # sp, s0 to s11; sp, s0


def _slot_sites(span: CodeSpan, is64: bool) -> Iterator[Branch]:
    from ..stubs import CALL, JUMP, Branch, units
    from ..values import Halves, Way, slot_of
    from .steps import steps

    halves, start, step = units(span, 2, True), span.address, steps(is64)
    like = Way(lambda number: step(number, 0), 0, lambda number: number, _KEPT, _STACK, bits=64 if is64 else 32)
    code = Halves(halves, start, lambda half: 2 if half & 3 == 3 else 1, step, like)
    last = len(halves) - 1
    for at, half in enumerate(halves):
        if half & 0xE07F == 0x8002 and half & 0x0F80:  # c.jr, c.jalr
            register, link = half >> 7 & 31, half >> 12 & 1
        elif half & 0x7FFF in {0x0067, 0x00E7} and at < last and halves[at + 1] < 16:  # jalr zero or ra, 0(register)
            register, link = halves[at + 1] << 1 | half >> 15, half >> 7 & 1
        else:
            continue
        slot = slot_of(code, at, register) if link or register not in {0, 1, 5} else None
        if slot is not None:
            yield Branch(start + 2 * at, slot, CALL if link else JUMP, slot=True)
