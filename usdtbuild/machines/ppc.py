"""PowerPC: 32 bits (System V), 64 bits big-endian (ELFv1) and little-endian (ELFv2); IBM's servers and older Macs.

Every instruction is one 32-bit word in the object's byte order. A call is `bl`, a jump `b`, with the distance in the
middle 24 bits. Arguments are in r3...r10, the others on the stack, counted from r1, where a frame begins with a link
area: 32-bit slots from 8(r1) on, 64-bit slots from 112(r1) (ELFv1) or 96(r1) (ELFv2) on. With 32 bits an argument of
eight bytes takes a pair of registers that begins with an odd one. A call leaves its return address in the link register
and nothing on the stack, so the places are the same at a call and behind it. The result is in r3.

What is peculiar: 64-bit code finds its data through r2, the table of contents (TOC). A call that may leave the module
is followed by a `nop`, where the linker may put a load of r2; it stays. With ELFv1 a function's symbol is not its code
but a descriptor in the section `.opd`: code address, TOC, 0. Power10 needs no r2, and its calls say so in their
relocation (NOTOC). Operands name registers by bare numbers, as gcc prints them: `8@3` is r3.

ABI: "System V ABI PowerPC Processor Supplement" 3-19; "64-bit PowerPC ELF ABI Supplement" 3.2 (ELFv1);
"64-Bit ELF V2 ABI Specification" 2.2.3 (parameters), 3.5 (relocation types).
"""

from __future__ import annotations

from ..record import NamedTuple
from .arguments import Convention, spell
from .calls import Calls, PlaceRelocation, Replacement, Stub, StubRelocation, signed, word, word_order, words
from .numbers import EM_PPC, EM_PPC64

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .facts import Facts

# Instruction words.
_BL, _B = 0x48000001, 0x48000000
_NOP = 0x60000000  # ori r0, r0, 0
_RETURN = 0x4E800020  # blr
_CLEAR = 0x38600000  # li r3, 0
# Reads a semaphore by its distance from the code: an address would need the TOC, which not every caller has set up,
# or a text relocation. Processors know this form of `bcl` and leave their prediction of returns alone.
_SEMAPHORE = (
    0x7C0802A6,  # mflr r0
    0x429F0005,  # bcl 20, 31, .+4
    0x7C6802A6,  # mflr r3: the address of this instruction
    0x7C0803A6,  # mtlr r0
    0x3C630000,  # addis r3, r3, (semaphore - 8)@ha
    0xA0630000,  # lhz r3, (semaphore - 8)@l(r3)
)

# Relocation types; those of the 32-bit and the 64-bit ABI agree where they are needed here, but for the absolute one.
R_NONE, R_ADDR32, R_REL24, R_PLTREL24, R_LOCAL24PC, R_REL32 = 0, 1, 10, 18, 23, 26
R_ADDR64, R_REL64, R_TOC, R_REL24_NOTOC, R_REL24_P9NOTOC = 38, 44, 51, 116, 124
R_REL16_LO, R_REL16_HA = 250, 252
# PLTREL24's addend says where -fPIC code has its part of the global offset table, not that the target is elsewhere.
_PIC_ADDEND = 0x8000

EF_ABI, ELF_V2 = 3, 2  # e_flags of 64-bit objects


class _Kind(NamedTuple):
    """What one of the three ABIs has for itself."""

    name: str
    absolute: int
    branches: frozenset[int]
    convention: Convention


_REGISTERS = tuple(str(number) for number in range(3, 11))
_SYSTEM_V = Convention(_REGISTERS, "{}(1)", "0(1)", 8 - 8 * 4, 4, big=True, even_registers=True)
_BRANCHES_64 = frozenset((R_REL24, R_REL24_NOTOC, R_REL24_P9NOTOC))
_PPC32 = _Kind("ppc32", R_ADDR32, frozenset((R_REL24, R_PLTREL24, R_LOCAL24PC)), _SYSTEM_V)
_ELF_V1 = _Kind("ppc64", R_ADDR64, _BRANCHES_64, Convention(_REGISTERS, "{}(1)", "0(1)", 48, 8, big=True))
_ELF_V2 = _Kind("ppc64 elfv2", R_ADDR64, _BRANCHES_64, Convention(_REGISTERS, "{}(1)", "0(1)", 32, 8))


def machine(*, is64: bool, little: bool, flags: int) -> Calls:
    """Return the PowerPC whose ABI the object's class, byte order and flags say."""
    kind = _PPC32
    if is64:
        kind = _ELF_V2 if little or flags & EF_ABI == ELF_V2 else _ELF_V1
    convention = kind.convention._replace(big=not little)

    def replace(
        code: memoryview, offset: int, type_: int, addend: int | None, enabled: bool, nop: str
    ) -> Replacement | None:
        del nop
        wanted = {0, None, _PIC_ADDEND} if type_ == R_PLTREL24 else {0, None}
        if type_ not in kind.branches or addend not in wanted or offset + 4 > len(code):
            return None
        instruction = word(code, offset, little)
        if instruction == _BL:
            return Replacement(offset, words(little, _CLEAR if enabled else _NOP), offset, False)
        if instruction == _B and not enabled:
            return Replacement(offset, words(little, _RETURN), offset, True)
        return None

    def stub(enabled: bool, semaphore: bool, nop: str) -> Stub:
        del nop
        if not enabled:
            return Stub(words(little, _NOP, _RETURN), 0, 4)
        if not semaphore:
            return Stub(words(little, _CLEAR, _NOP, _RETURN), 4, 4)
        half = 0 if little else 2  # where in an instruction the 16 bits are that the relocations fill
        relocations = (
            StubRelocation(16 + half, R_REL16_HA, 16 + half - 8),
            StubRelocation(20 + half, R_REL16_LO, 20 + half - 8),
        )
        return Stub(words(little, *_SEMAPHORE, _NOP, _RETURN), 24, 4, relocations)

    return Calls(
        name=kind.name, none=R_NONE, absolute=kind.absolute, replace=replace, stub=stub,
        operands=lambda arguments, tail: spell(convention, arguments),
        pc_relative=(PlaceRelocation(R_REL64, 0, 0) if is64 else PlaceRelocation(R_REL32, 4, 4),),
        absolute32=R_ADDR32 if is64 else None, pc_relative_bits=64 if is64 else 32,
        descriptor=(R_ADDR64, R_TOC) if kind is _ELF_V1 else None, branched=8 if is64 else -1,
    )  # fmt: skip


# -- facts ------------------------------------------------------------------------------------------------------------

def _branch(instruction: int) -> int | None:
    """Power ISA 2.4: b and bl (opcode 18), bc (16), relative ones (AA = 0)."""
    if instruction & 0xFC000002 == 0x48000000:
        return signed(instruction & 0x3FFFFFC, 26)
    if instruction & 0xFC000002 == 0x40000000:
        return signed(instruction & 0xFFFC, 16)
    return None


def facts() -> dict[int, Facts]:
    """Return what is known beside probe calls, by machine number. Only who asks for it pays for it."""
    from .facts import Branches, Entries, Facts, Operands, Relocations, Scheme

    names = r"(?:%r)?(?:[12]?\d|3[01])"
    written = Operands(
        r"(?:%?[rf]?\d{1,2})", r"(?P<front>NUMBER)\((?P<base>REG)\)", r"i(?P<constant>NUMBER)"
    )  # fmt: skip
    bcc_reads = {"bcc": rf"{names}|-?\d+\({names}\)|{names},{names}|i-?\d+"}
    entries = Entries(
        "ppc32", 4, ((bytes.fromhex("60000000"), "nop"),), (), (4,), (1, 0),
        (Scheme(0, 4, "one b at the entry, which reaches 32 MB"),), 0,
        lambda macros, little: ("__powerpc__" in macros or "__PPC__" in macros) and "__powerpc64__" not in macros,
        "qemu-ppc", ("ppc", "ppc64"),
    )  # fmt: skip
    entries_64 = entries._replace(
        name="ppc64", told_by=lambda macros, little: "__powerpc64__" in macros and not little,
        emulator="qemu-ppc64", hosts=("ppc64",),
    )  # fmt: skip
    entries_64le = entries._replace(
        name="ppc64le", nops=((bytes.fromhex("00000060"), "nop"),), emulator="qemu-ppc64le", hosts=("ppc64le",),
        told_by=lambda macros, little: "__powerpc64__" in macros and little,
    )  # fmt: skip
    ppc = Facts(
        "ppc", 4, written, Relocations(22, R_ADDR32, R_REL32, branches={10: 0, 11: 0, 18: 0}),  # REL24, REL14, PLTREL24
        quiet={"60000000": "nop", "4e800020": "blr"}, clears={"38600000": "li r3, 0"},
        disassembler=lambda is64, little, thumb: (("CS_ARCH_PPC",), ("CS_MODE_32",), (word_order(little),)),
        branches=(Branches(4, _branch),), entries=lambda is64, little: entries, pairs=True, page=65536,
    )  # fmt: skip
    return {
        EM_PPC: ppc,
        EM_PPC64: ppc._replace(
            name="ppc64", operands=written._replace(readable=bcc_reads), pairs=False,
            # REL24, REL14, REL24_NOTOC
            relocations=Relocations(22, R_ADDR64, R_REL32, branches={10: 0, 11: 0, 116: 0}),
            disassembler=lambda is64, little, thumb: (("CS_ARCH_PPC",), ("CS_MODE_64",), (word_order(little),)),
            entries=lambda is64, little: entries_64le if little else entries_64, descriptors=R_ADDR64,
        ),
    }  # fmt: skip
