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

from ...record import NamedTuple
from ..arguments import Convention, spell
from ..calls import PlaceRelocation, ProbeCalls, Replacement, StandIn, StubRelocation, signed, word, word_order, words
from ..numbers import EM_PPC, EM_PPC64

TYPE_CHECKING = False
if TYPE_CHECKING:
    import re
    from collections.abc import Callable, Iterator, Sequence

    from ..facts import Facts
    from ..stubs import Branch, CodeSpan, FileCode, Form, Lazy, LibraryCalls

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


def machine(*, is64: bool, little: bool, flags: int) -> ProbeCalls:
    """Return the PowerPC whose ABI the object's class, byte order and flags say."""
    kind = _PPC32
    if is64:
        kind = _ELF_V2 if little or flags & EF_ABI == ELF_V2 else _ELF_V1
    convention = kind.convention._replace(big=not little)

    def replace(
        code: memoryview, offset: int, type_: int, addend: int | None, enabled: bool, nop: str
    ) -> Replacement | None:
        wanted = {0, None, _PIC_ADDEND} if type_ == R_PLTREL24 else {0, None}
        if type_ not in kind.branches or addend not in wanted or offset + 4 > len(code):
            return None
        instruction = word(code, offset, little)
        if instruction == _BL:
            return Replacement(offset, words(little, _CLEAR if enabled else _NOP), offset, False)
        if instruction == _B and not enabled:
            return Replacement(offset, words(little, _RETURN), offset, True)
        return None

    def stub(enabled: bool, semaphore: bool, nop: str) -> StandIn:
        if not enabled:
            return StandIn(words(little, _NOP, _RETURN), 0, 4)
        if not semaphore:
            return StandIn(words(little, _CLEAR, _NOP, _RETURN), 4, 4)
        half = 0 if little else 2  # where in an instruction the 16 bits are that the relocations fill
        relocations = (
            StubRelocation(16 + half, R_REL16_HA, 16 + half - 8),
            StubRelocation(20 + half, R_REL16_LO, 20 + half - 8),
        )
        return StandIn(words(little, *_SEMAPHORE, _NOP, _RETURN), 24, 4, relocations)

    return ProbeCalls(
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


def _atomic(code: bytes, address: int, little: bool) -> tuple[int, ...]:
    """See `Stopped.atomic`. Power ISA 4.6: opcode 31, l[bhwdq]arx and st[bhwdq]cx."""
    from ..exclusive import Exclusive

    loads = tuple((0xFC0007FE, 31 << 26 | number << 1) for number in (20, 52, 84, 116, 276))
    stores = tuple((0xFC0007FE, 31 << 26 | number << 1) for number in (150, 182, 214, 694, 726))
    return Exclusive(loads, stores, _branch).ends(code, address, little)


def facts() -> dict[int, Facts]:
    """Return what is known beside probe calls, by machine number. Only who asks for it pays for it."""
    from ..facts import Branches, Entries, Facts, Operands, Passing, Relocations, Scheme, Stopped

    names = r"(?:%r)?(?:[12]?\d|3[01])"
    written = Operands(
        r"(?:%?[rf]?\d{1,2})", r"(?P<front>NUMBER)\((?P<base>REG)\)", r"i(?P<constant>NUMBER)"
    )  # fmt: skip
    bcc_reads = {"bcc": rf"{names}|-?\d+\({names}\)|{names},{names}|i-?\d+"}
    entries = Entries(
        "ppc32", 4, ((words(False, 0x60000000), "nop"),), (), (4,), (1, 0),
        (Scheme(0, 4, "one b at the entry, which reaches 32 MB"),), 0,
        lambda macros, little: ("__powerpc__" in macros or "__PPC__" in macros) and "__powerpc64__" not in macros,
        "qemu-ppc", ("ppc", "ppc64"),
    )  # fmt: skip
    entries_64 = entries._replace(
        name="ppc64", told_by=lambda macros, little: "__powerpc64__" in macros and not little,
        emulator="qemu-ppc64", hosts=("ppc64",), relaxed=4,  # an addis that the linker found to be needless
    )  # fmt: skip
    entries_64le = entries_64._replace(
        name="ppc64le", nops=((words(True, 0x60000000), "nop"),), emulator="qemu-ppc64le", hosts=("ppc64le",),
        told_by=lambda macros, little: "__powerpc64__" in macros and little, cure="; gcc can from version 13 on",
    )  # fmt: skip
    ppc = Facts(
        "ppc", 4, written, Relocations(22, R_ADDR32, R_REL32, branches={10: 0, 11: 0, 18: 0}),  # REL24, REL14, PLTREL24
        quiet={"60000000": "nop", "4e800020": "blr"}, clears={"38600000": "li r3, 0"},
        disassembler=lambda is64, little, thumb: (("CS_ARCH_PPC",), ("CS_MODE_32",), (word_order(little),)),
        branches=(Branches(4, _branch),), entries=lambda is64, little: entries, pairs=True, page=65536,
        passing=Passing(tuple(f"%r{n}" for n in range(3, 11)), results=("%r3", "")),  # the same in all three ABIs
        stopped=Stopped(spelled={str(n): f"r{n}" for n in range(32)}, stack="r1", link="lr", atomic=_atomic),
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


# -- calls into libraries ---------------------------------------------------------------------------------------------
#
# 32 bits: with the older "BSS PLT" the dynamic linker writes code to where the relocation points; DT_PPC_GOT says that
# a file has the newer "secure PLT", whose stubs load a slot, of an address or by r30, which is another in each object
# that was linked. 64 bits: stubs count from r2, the TOC, of which large programs have several; with Power10 from the
# program counter. ABI: 32-bit supplement, "Procedure Linkage Table"; ELFv1 3.5.11; ELFv2 3.7.2; stubs as in binutils'
# bfd/elf64-ppc.c (`build_plt_stub`), gold, lld and mold write them.

_DT_PLTGOT, _DT_PPC_GOT = 3, 0x70000000
_MTCTR_R11, _MTCTR_R12, _BCTR = 0x7D6903A6, 0x7D8903A6, 0x4E800420
_BCL, _BL_NEXT = 0x429F0005, 0x48000005  # bcl 20, 31, .+4; bl .+4
_SEARCHED = 24  # words behind the one that takes the program counter, in which r30 is made of it


def stubs(code: FileCode) -> LibraryCalls:
    """Return what library calls look like."""
    from ..stubs import Lazy, LibraryCalls, branches

    def sites(span: CodeSpan) -> Iterator[Branch]:
        return branches(span, code.little, _BL, _B, 0xFC000003)

    # R_PPC(64)_JMP_SLOT; GLOB_DAT and ADDR64; JMP_IREL and IRELATIVE
    if code.is64:
        second = code.little or code.flags & EF_ABI == ELF_V2
        bases = _from_prologues if second else _from_descriptors
        return LibraryCalls(
            21, (20, 38), (247, 248), _forms_64(code), sites, _inline_calls(code, bases), lambda: bases(code),
            lazy=_lazy_64(code, second=second),
        )  # fmt: skip
    if code.tags and _DT_PPC_GOT not in code.tags:  # BSS PLT
        made = _from_program_counter
        return LibraryCalls(21, (20,), (248,), _forms_32(code), sites, bases=lambda: made(code), in_place=1 << 32)
    # A slot holds the address of its PLT entry in the file, too; the second word of the GOT is the resolver's. The last
    # PLT entries are NOPs, which run into the next: whose turn it is r11 says, as it does to the resolver.
    table = code.tags.get(_DT_PPC_GOT, 0)  # a static program has none, and nothing that is bound lazily
    lazy = Lazy(lambda number, slot: code.pointer(slot) or 0, table + 4, ((0, "pc"), (0, "r11"))) if table else None
    return LibraryCalls(
        21, (20,), (248,), _forms_32(code), sites, _inline_calls(code, _from_program_counter),
        lambda: _from_program_counter(code), lazy=lazy,
    )  # fmt: skip


def _lazy_64(code: FileCode, *, second: bool) -> Lazy | None:
    """Return where PLT entries are: binutils' bfd/elf64-ppc.c (`ppc64_elf_build_stubs`), glibc's dl-machine.h."""
    from ..stubs import Lazy

    if _DT_PPC_GOT not in code.tags or _DT_PLTGOT not in code.tags:  # the number is DT_PPC64_GLINK's here
        return None
    first, resolver = code.tags[_DT_PPC_GOT] + 32, code.tags[_DT_PLTGOT]
    if second:  # one branch each; a function finds its own address in r12
        return Lazy(lambda number, slot: first + 4 * number, resolver, ((0, "pc"), (0, "r12")))

    def entry(number: int, slot: int) -> int:
        # li r0 and a branch; from 32,768 on lis and ori. A slot is a descriptor: code, TOC, environment.
        return first + 8 * min(number, 0x8000) + 12 * max(number - 0x8000, 0)

    return Lazy(entry, resolver, ((0, "pc"), (1, "r2"), (2, "r11")))


def _forms_32(code: FileCode) -> tuple[Form, ...]:
    from ..stubs import Form, Word, low16, pattern, word

    little = code.little
    end = (Word(_MTCTR_R11), Word(_BCTR))
    # lis r11, hi; lwz r11, lo(r11)
    fixed = pattern(little, Word(0x3D600000, 0xFFFF0000), Word(0x816B0000, 0xFFFF0000), *end)
    # lwz r11, distance(r30); or addis r11, r30, hi; lwz r11, lo(r11)
    near = pattern(little, Word(0x817E0000, 0xFFFF0000), *end)
    far = pattern(little, Word(0x3D7E0000, 0xFFFF0000), Word(0x816B0000, 0xFFFF0000), *end)

    def two(match: re.Match[bytes], address: int, base: int) -> int:
        return (base + (word(match, 1, little) << 16) + low16(word(match, 2, little))) & 0xFFFFFFFF

    def one(match: re.Match[bytes], address: int, base: int) -> int:
        return (base + low16(word(match, 1, little))) & 0xFFFFFFFF

    return (
        Form(fixed, lambda match, address, base: two(match, address, 0)),
        Form(near, one, based=True),
        Form(far, two, based=True),
    )


def _forms_64(code: FileCode) -> tuple[Form, ...]:
    from ..stubs import Form, Word, low16, pattern, word

    little = code.little
    saved = (Word(0xF8410018, optional=True), Word(0xF8410028))  # std r2, 24(r1) or 40(r1)
    # Between mtctr and bctr ELFv1 loads r2 and r11; for threads that bind lazily, depending on what r12 was.
    between = (
        Word(0xE8420000, 0xFFFF0000, optional=True), Word(0xE84B0000, 0xFFFF0000), Word(0xE84C0000, 0xFFFF0000),
        Word(0xE9620000, 0xFFFF0000), Word(0xE96B0000, 0xFFFF0000), Word(0xE96C0000, 0xFFFF0000),
        Word(0x396B0000, 0xFFFF0000), Word(0x38420000, 0xFFFF0000),  # addi r11 or r2: its words lie 32 KB apart
        Word(0x7D8B6278), Word(0x7C425A14), Word(0x7D6B5A78), Word(0x7C426214), Word(0x28220000), Word(0x7D826278),
    )  # fmt: skip  # ld r2/r11; xor r11,r12,r12; add r2,r2,r11; ...; cmpldi r2,0
    end = (Word(_BCTR), Word(0x4CE20420), Word(0x4CC20420))  # bctr; bnectr
    by_toc = pattern(
        little, saved,
        (Word(0x3D620000, 0xFFFF0000, optional=True), Word(0x3D820000, 0xFFFF0000)),  # addis r11 or r12, r2, hi
        (Word(0x396B0000, 0xFFFF0000, optional=True), Word(0x398C0000, 0xFFFF0000), Word(0x39620000, 0xFFFF0000)),
        (Word(0xE84C0008, optional=True), Word(0xE84B0008)),  # ld r2, 8(r12), before r12 goes (mold)
        (Word(0xE9820000, 0xFFFF0003), Word(0xE98B0000, 0xFFFF0003), Word(0xE98C0000, 0xFFFF0003)),  # ld r12, lo()
        between, between, Word(_MTCTR_R12), between, between, between, between, end,
    )  # fmt: skip
    # mold's, for slots that hold a descriptor's address: ld r12, lo(); ld r2, 8(r12); ld r12, 0(r12)
    by_descriptor = pattern(
        little, saved, (Word(0x3D820000, 0xFFFF0000, optional=True),),
        (Word(0xE98C0000, 0xFFFF0003), Word(0xE9820000, 0xFFFF0003)), Word(0xE84C0008), Word(0xE98C0000),
        Word(_MTCTR_R12), Word(_BCTR),
    )  # fmt: skip
    # pld r12, distance(pc)
    by_pc = pattern(little, Word(0x04100000, 0xFFFC0000), Word(0xE5800000, 0xFFFF0000), Word(_MTCTR_R12), Word(_BCTR))
    # mflr r12; bcl; mflr r11; mtlr r12; addis r12, r11, hi; ld r12, lo(r12 or r11): for callers without a TOC
    by_lr = pattern(
        little, saved, Word(0x7D8802A6), Word(_BCL), Word(0x7D6802A6), Word(0x7D8803A6),
        Word(0x3D8B0000, 0xFFFF0000, optional=True),
        (Word(0xE98B0000, 0xFFFF0003), Word(0xE98C0000, 0xFFFF0003)), Word(_MTCTR_R12), Word(_BCTR),
    )  # fmt: skip

    def from_toc(match: re.Match[bytes], address: int, base: int) -> int:
        low = low16(word(match, 3, little)) + low16(word(match, 5, little))
        return base + signed(word(match, 2, little) << 16 & 0xFFFFFFFF, 32) + low

    def from_got(match: re.Match[bytes], address: int, base: int) -> int:
        return base + signed(word(match, 2, little) << 16 & 0xFFFFFFFF, 32) + low16(word(match, 3, little))

    def from_pc(match: re.Match[bytes], address: int, base: int) -> int:
        return address + signed((word(match, 1, little) & 0x3FFFF) << 16 | word(match, 2, little) & 0xFFFF, 34)

    def from_lr(match: re.Match[bytes], address: int, base: int) -> int:
        place = address + match.start(4) - match.start()
        return place + signed(word(match, 6, little) << 16 & 0xFFFFFFFF, 32) + low16(word(match, 7, little))

    return (
        Form(by_toc, from_toc, based=True), Form(by_descriptor, from_got, based=True), Form(by_pc, from_pc),
        Form(by_lr, from_lr),
    )  # fmt: skip


def _from_program_counter(code: FileCode) -> list[tuple[int, int]]:
    """Return what r30 is behind each place that makes it: bcl or bl to the next instruction, mflr, then additions.

    Stubs for code of -fpic count from what DT_PPC_GOT says.
    """
    from ..stubs import low16, units

    found = [(0, code.tags[_DT_PPC_GOT])] if _DT_PPC_GOT in code.tags else []
    for span in code.spans:
        words_ = units(span, 4, code.little)
        for at, value in enumerate(words_):
            if value not in {_BCL, _BL_NEXT}:
                continue
            place = span.address + 4 * at + 4
            known: dict[int, int] = {}  # register -> its value
            for step in words_[at + 1 : at + _SEARCHED]:
                target, source, opcode = step >> 21 & 31, step >> 16 & 31, step >> 26
                if step & 0xFC1FFFFF == 0x7C0802A6:  # mflr
                    known[target] = place
                elif opcode == 15 and source in known:  # addis
                    known[target] = known[source] + (low16(step) << 16)
                elif opcode == 14 and source in known:  # addi
                    known[target] = known[source] + low16(step)
                elif opcode == 32 and source in known:  # lwz: clang keeps the distance before the function
                    known[target] = code.pointer(known[source] + low16(step)) or 0
                elif step & 0xFC0007FF == 0x7C000214 and {source, step >> 11 & 31} <= set(known):  # add
                    known[target] = (known[source] + known[step >> 11 & 31]) & 0xFFFFFFFF
                if target == 30 and opcode in {14, 31} and known.get(30, place) != place:
                    break
            if known.get(30, place) != place:
                found.append((place, known[30] & 0xFFFFFFFF))
    return sorted(found)


def _from_prologues(code: FileCode) -> list[tuple[int, int]]:
    """Return what r2 is in ELFv2's functions: made of r12, their address, or of an address; addis or lis, addi."""
    from ..stubs import low16, units

    found = []
    for span in code.spans:
        words_ = units(span, 4, code.little)
        for at, value in enumerate(words_[:-1]):
            if value >> 16 in {0x3C4C, 0x3C40} and words_[at + 1] >> 16 == 0x3842:
                place = span.address + 4 * at
                base = place if value >> 16 == 0x3C4C else 0
                found.append((place, base + (low16(value) << 16) + low16(words_[at + 1])))
    return sorted(found)


def _from_descriptors(code: FileCode) -> list[tuple[int, int]]:
    """Return what r2 is in ELFv1's functions: their descriptors are code, TOC and 0, one behind the other."""
    starts = [code.entry, code.tags.get(12, 0), code.tags.get(13, 0)]  # DT_INIT, DT_FINI
    for array, size in ((25, 27), (26, 28), (32, 33)):  # DT_INIT_ARRAY, DT_FINI_ARRAY, DT_PREINIT_ARRAY
        count = min(code.tags.get(size, 0) // 8, 1 << 16)
        starts += [code.pointer(code.tags.get(array, 0) + 8 * at) or 0 for at in range(count)]
    found: dict[int, int] = {}

    def take(address: int) -> bool:
        entry, toc = code.pointer(address), code.pointer(address + 8)
        if not entry or not toc or entry % 4 or toc % 4 or not code.executable(entry) or code.executable(toc):
            return False
        found[entry] = toc
        return True

    seen: set[int] = set()
    for start in starts:
        for step in (24, -24):
            at = start
            while at and (at not in seen or at == start) and take(at):
                seen.add(at)
                at += step
    return sorted(found.items())


# -- calls that load a slot themselves --------------------------------------------------------------------------------
#
# gcc's -fno-plt and -mlongcall: ELFv2 and the secure PLT load a slot of the PLT (the relocations R_PPC(64)_PLTSEQ and
# PLT16 mark it), ELFv1 a word that holds a descriptor's address. The compiler puts other instructions between these,
# and takes the high part out of loops, so that it is looked for backwards from `mtctr`. What isn't found that way may
# be there all the same.

_MTCTR, _BCTRL = 0x7C0903A6, 0x4E800421
_FROM_LOAD, _TO_BRANCH, _HIGH_PART = 48, 16, 512  # words that may lie between
# Opcodes that write the register in bits 6 to 10, and those that write the one in bits 11 to 15. Power ISA, appendix.
_WRITES_FIRST = frozenset((7, 8, 12, 13, 14, 15, 32, 33, 34, 35, 40, 41, 42, 43, 46, 58))
_WRITES_SECOND = frozenset((20, 21, 23, 24, 25, 26, 27, 28, 29, 30))
# Of opcode 31: comparisons, stores, caches and mtspr write none; logical instructions and shifts write the second.
_WRITES_NONE = frozenset((0, 4, 32, 54, 86, 149, 150, 151, 214, 215, 246, 278, 407, 467, 470, 598, 662, 854, 918, 982))
_LOGICAL = frozenset(
    (24, 26, 27, 28, 58, 60, 124, 284, 316, 412, 444, 476, 536, 539, 792, 794, 824, 826, 922, 954, 986)
)
_VOLATILE = frozenset((0, *range(3, 13)))


def _inline_calls(
    code: FileCode, bases: Callable[[FileCode], list[tuple[int, int]]]
) -> Callable[[CodeSpan], Iterator[Branch]]:
    """Return a function that yields the calls in a span which load a slot themselves: their branches to CTR."""
    from bisect import bisect_right

    from ..stubs import CALL, JUMP, Branch, units

    known: list[tuple[int, int]] = []

    def sites(span: CodeSpan) -> Iterator[Branch]:
        if not known:
            known.extend([(0, 0), *bases(code)])
        words_ = units(span, 4, code.little)
        for at, value in enumerate(words_):
            if value & 0xFC1FFFFF != _MTCTR:
                continue
            end = next((n for n in range(at + 1, min(at + _TO_BRANCH, len(words_))) if words_[n] | 1 == _BCTRL), 0)
            base = known[bisect_right(known, (span.address + 4 * at, 1 << 64)) - 1][1]
            slot = _loaded(words_, at, value >> 21 & 31, base, code) if end else None
            if slot is not None:
                yield Branch(span.address + 4 * end, slot, CALL if words_[end] == _BCTRL else JUMP, slot=True)

    return sites


def _loaded(words_: Sequence[int], at: int, register: int, base: int, code: FileCode) -> int | None:
    """Return the address that the register before instruction `at` was loaded from; None where that isn't known."""
    from ..stubs import low16

    found = _writer(words_, at, register, _FROM_LOAD)
    if found is None or words_[found] >> 26 != (58 if code.is64 else 32) or (code.is64 and words_[found] & 3):
        return None
    pointer, distance = words_[found] >> 16 & 31, low16(words_[found])
    address = _value(words_, found, pointer, base, code)
    if address is None and code.is64 and not distance:  # ELFv1: of a descriptor
        return _loaded(words_, found, pointer, base, code)
    return None if address is None else address + distance & ((1 << (64 if code.is64 else 32)) - 1)


def _value(words_: Sequence[int], at: int, register: int, base: int, code: FileCode) -> int | None:
    """Return a register's value before instruction `at`, if it is made of the base or of constants."""
    from ..stubs import low16

    if register == (2 if code.is64 else 30):
        return base
    found = _writer(words_, at, register, _HIGH_PART)
    if found is None or words_[found] >> 26 not in {14, 15}:
        return None
    source, number = words_[found] >> 16 & 31, low16(words_[found]) << (16 if words_[found] >> 26 == 15 else 0)
    before = _value(words_, found, source, base, code) if source else 0
    return None if before is None else before + number


def _writer(words_: Sequence[int], at: int, register: int, most: int) -> int | None:
    """Return which instruction before `at` has written a register, one behind the other; None if none surely has."""
    for found in range(at - 1, max(at - most, 0) - 1, -1):
        value = words_[found]
        opcode, first, second = value >> 26, value >> 21 & 31, value >> 16 & 31
        if opcode in {16, 18, 19}:
            if value & 1 and register in _VOLATILE:  # a call
                return None
            continue
        if opcode == 31:
            which = value >> 1 & 0x3FF
            written = -1 if which in _WRITES_NONE else second if which in _LOGICAL else first
        else:
            written = first if opcode in _WRITES_FIRST else second if opcode in _WRITES_SECOND else -1
        if written == register:
            return found
    return None
