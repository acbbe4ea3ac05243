"""aarch64: 64-bit Arm, as AAPCS64 has it: phones, Raspberry Pis, Apple's and the clouds' servers, since 2013.

Every instruction is one 32-bit word, and the words are little-endian even in a big-endian object. A call is `bl`, a
jump `b`, each with the distance in words in its low 26 bits. The linker fills these, so in an object they are 0 and
the relocation has the target. Arguments are in x0...x7, the others on the stack in 8-byte slots from [sp] on; a call
puts the return address into x30, not on the stack, so stack arguments are at the same place at a call and behind it.
The result is in w0. An address that may be called through a pointer starts with `bti c` where branch targets are
protected, and elsewhere that word is a NOP.

ILP32 is the same machine with 32-bit pointers, in a 32-bit ELF file with relocation numbers of its own.

ABI: https://github.com/ARM-software/abi-aa, aapcs64 6.8.2 (parameters), aaelf64 5.7 (relocation types).
"""

from __future__ import annotations

from ...record import NamedTuple
from ..arguments import Convention, spell
from ..calls import PlaceRelocation, ProbeCalls, Replacement, StandIn, StubRelocation, signed, word, words
from ..numbers import EM_AARCH64

TYPE_CHECKING = False
if TYPE_CHECKING:
    import re
    from collections.abc import Callable, Iterator

    from ..calling import Calling
    from ..facts import Facts, Verdict
    from ..stubs import Branch, CodeSpan, FileCode, LibraryCalls
    from ..values import Step

# Instruction words.
_BL, _B = 0x94000000, 0x14000000  # bl 0; b 0
_NOP = 0xD503201F
_RET = 0xD65F03C0
_CLEAR = 0x52800000  # mov w0, #0
_BTI = 0xD503245F  # bti c
_ADRP = 0x90000000  # adrp x0, semaphore
_LDRH = 0x79400000  # ldrh w0, [x0, #:lo12:semaphore]
_PUSH, _POP = 0xF81F0FE0, 0xF84107E0  # str x0, [sp, #-16]!; ldr x0, [sp], #16
_POINT = 0x910003E0  # mov x0, sp


class _Types(NamedTuple):
    """Relocation types (aaelf64 5.7), which ILP32 numbers differently."""

    none: int
    absolute: int
    absolute32: int | None
    prel64: int
    call: int
    jump: int
    page: int
    load16: int


_LP64 = _Types(none=0, absolute=257, absolute32=258, prel64=260, call=283, jump=282, page=275, load16=284)
_ILP32 = _Types(none=0, absolute=1, absolute32=None, prel64=3, call=21, jump=20, page=11, load16=14)  # no PREL64

_REGISTERS = tuple(f"x{i}" for i in range(8))


def machine(*, is64: bool, little: bool, flags: int) -> ProbeCalls:
    """Return aarch64 in one of its two data models and byte orders; `flags` say nothing."""
    types = _LP64 if is64 else _ILP32
    # Slots have 8 bytes in either data model; slot 8 is the first on the stack.
    convention = Convention(_REGISTERS, "[sp, {}]", "[sp]", -8 * 8, 8, big=not little)

    def replace(
        code: memoryview, offset: int, type_: int, addend: int | None, enabled: bool, nop: str
    ) -> Replacement | None:
        if addend or offset + 4 > len(code):
            return None
        instruction = word(code, offset, little=True)
        if type_ == types.call and instruction == _BL:
            return Replacement(offset, words(True, _CLEAR if enabled else _NOP), offset, False)
        if type_ == types.jump and instruction == _B and not enabled:
            return Replacement(offset, words(True, _RET), offset, True)
        return None

    load = (StubRelocation(4, types.page, 0), StubRelocation(8, types.load16, 0))

    def stub(enabled: bool, semaphore: bool, nop: str) -> StandIn:
        if not enabled:
            return _make_stub(words(True, _BTI))
        if not semaphore:
            return _make_stub(words(True, _BTI, _CLEAR))
        return _make_stub(words(True, _BTI, _ADRP, _LDRH), load)

    def asking_stub(semaphore: bool, nop: str) -> StandIn:
        answer = words(True, _BTI, _ADRP, _LDRH) if semaphore else words(True, _BTI, _CLEAR)
        asking = answer + words(True, _PUSH, _POINT)
        made = _make_stub(asking + words(True, _NOP, _POP), load if semaphore else ())
        return made._replace(asks=len(asking))

    return ProbeCalls(
        name="aarch64" if is64 else "aarch64 ilp32", none=types.none, absolute=types.absolute,
        absolute32=types.absolute32, chains=True, replace=replace, stub=stub,
        operands=lambda arguments, tail: spell(convention, arguments),
        pc_relative=(PlaceRelocation(types.prel64, 0 if is64 or little else 4, 0 if is64 or little else 4),),
        pc_relative_bits=64 if is64 else 32, asking_stub=asking_stub if is64 else None, asking_operand="8@x0",
        branched=8,
    )  # fmt: skip


def _make_stub(body: bytes, relocations: tuple[StubRelocation, ...] = ()) -> StandIn:
    return StandIn(body + words(True, _NOP, _RET), len(body), 4, relocations, (("$x", 0),))


# -- facts ------------------------------------------------------------------------------------------------------------


def _branch(instruction: int) -> int | None:
    """Arm ARM C4.1.66: B and BL, B.cond, CBZ and CBNZ, TBZ and TBNZ."""
    if instruction & 0x7C000000 == 0x14000000:
        return signed(instruction & 0x3FFFFFF, 26) * 4
    if instruction & 0xFF000000 == 0x54000000 or instruction & 0x7E000000 == 0x34000000:
        return signed(instruction >> 5 & 0x7FFFF, 19) * 4
    if instruction & 0x7E000000 == 0x36000000:
        return signed(instruction >> 5 & 0x3FFF, 14) * 4
    return None


def _atomic(code: bytes, address: int, little: bool) -> tuple[int, ...]:
    """See `Stopped.atomic`. Arm ARM C6.2: LDXR, LDAXR, STXR, STLXR; LDXP and STXP have bit 31, unlike CASP."""
    from ..exclusive import Exclusive

    del little  # code is little-endian in any case
    one, two = (0x3FE00000, 0x08400000), (0xBFE00000, 0x88600000)
    stores = (0x3FE00000, 0x08000000), (0xBFE00000, 0x88200000)
    return Exclusive((one, two), stores, _branch).ends(code, address, True)


def facts() -> dict[int, Facts]:
    """Return what is known beside probe calls, by machine number. Only who asks for it pays for it."""
    from ..facts import Branches, Entries, Facts, Operands, Passing, Relocations, Scheme, Stopped

    names = r"(?:x(?:[12]?\d|30)|sp)"
    understood = rf"{names}|\[{names}\]|\[{names}, ?-?\d+\]|-?\d+"
    written = Operands(
        r"(?:[xwbhsdqv]\d{1,2}|w?sp|[xw]zr)", r"\[(?P<base>REG)(?:, ?#?(?P<front>NUMBER))?\]",
        readable={"libbpf": understood, "bcc": understood, "perf": rf"{names}|\[sp\]|\[sp, ?-?\d+\]"},
    )  # fmt: skip
    entries = Entries(
        "aarch64", 4,
        ((words(True, 0xD503201F), "nop"),),
        (
            (words(True, 0xD503245F), "bti c"), (words(True, 0xD503249F), "bti j"),
            (words(True, 0xD50324DF), "bti jc"), (words(True, 0xD503241F), "bti"),
            (words(True, 0xD503233F), "paciasp"), (words(True, 0xD503237F), "pacibsp"),
        ),
        (4,), (1, 0),
        (Scheme(0, 4, "one b at the entry, which reaches 128 MB"),), 4,
        lambda macros, little: "__aarch64__" in macros, "qemu-aarch64", ("aarch64",),
        relaxed=4, judge=_judge,  # an adrp that the linker found to be needless often comes first
    )  # fmt: skip
    return {
        EM_AARCH64: Facts(
            # R_AARCH64_TSTBR14, CONDBR19, JUMP26, CALL26
            "aarch64", 4, written, Relocations(1027, 257, 261, branches={279: 0, 280: 0, 282: 0, 283: 0}),
            quiet={"d503201f": "nop", "d65f03c0": "ret"}, clears={"52800000": "mov w0, #0"},
            code_orders=lambda little: (True,),
            disassembler=lambda is64, little, thumb: (("CS_ARCH_ARM64", "CS_ARCH_AARCH64"), ("CS_MODE_ARM",)),
            mapping_symbols=True, branches=(Branches(4, _branch, True),),
            entries=lambda is64, little: entries if little else None, page=65536,
            passing=Passing(tuple(f"x{n}" for n in range(8)), results=("x0", "")), calling=_calling,  # AAPCS64, 6.8.2
            stopped=Stopped(
                spelled={
                    "wsp": "sp", **{f"w{n}": f"x{n}" for n in range(31)},
                    **{f"{size}{n}": f"v{n}" for size in "bhsdq" for n in range(32)},
                },
                zero=frozenset({"xzr", "wzr"}), stack="sp", link="x30", atomic=_atomic,
            ),
        )
    }  # fmt: skip


def _calling() -> Calling:
    from .calling import CALLING

    return CALLING


def _judge(at: int, length: int, mnemonic: str, operands: str) -> Verdict:
    from .prologue import judge

    return judge(at, length, mnemonic, operands)


# -- calls into libraries ---------------------------------------------------------------------------------------------


def stubs(code: FileCode) -> LibraryCalls:
    """Return what library calls look like: x16 is the slot's page, x17 what the slot holds (AAELF64, PLT).

    With branch protection `bti c` stands before it, and `autia1716` or `braa` at its end.
    """
    from ..stubs import Form, LibraryCalls, Word, branches, pattern, word

    load, scale = (0xF9400211, 8) if code.is64 else (0xB9400211, 4)
    form = pattern(
        True,
        Word(0xD503245F, optional=True),  # bti c
        Word(0x90000010, 0x9F00001F),  # adrp x16, page
        Word(load, 0xFFC003FF),  # ldr x17, [x16, #]
        Word(0x11000210, 0x7FC003FF, optional=True),  # add x16, x16, # (ILP32: w16)
        Word(0xD503219F, optional=True),  # autia1716
        (Word(0xD61F0220), Word(0xD71F0A30)),  # br x17; braa x17, x16
    )

    def slot(match: re.Match[bytes], address: int, base: int) -> int:
        page = _page(word(match, 2, True), address + match.start(2) - match.start())
        return page + (word(match, 3, True) >> 10 & 0xFFF) * scale

    # R_AARCH64_JUMP_SLOT; GLOB_DAT; IRELATIVE, and ILP32's
    numbers = (1026, (1025,), (1032,)) if code.is64 else (182, (181,), (188,))
    return LibraryCalls(
        *numbers, (Form(form, slot),), lambda span: branches(span, True, 0x94000000, 0x14000000, 0xFC000000),
        lambda span: _slot_sites(span, code.is64),
    )  # fmt: skip


# -fno-plt: adrp, ldr, blr; the loads often stand before a loop.
_BLR, _BR = 0xD63F0000, 0xD61F0000  # the register in bits 5 to 9, as `ret` has it
_BY_REGISTER = 0xFFFFFC1F
_KEPT, _STACK = 0x3FF << 19 | 1 << 29 | 1 << 31, 1 << 29 | 1 << 31  # x19 to x28, x29, sp; x29, sp


def _page(adrp: int, address: int) -> int:
    """Return what `adrp` at an address makes: a page, counted from its own."""
    return (address & ~0xFFF) + (signed((adrp >> 5 & 0x7FFFF) << 2 | adrp >> 29 & 3, 21) << 12)


def _slot_sites(span: CodeSpan, is64: bool) -> Iterator[Branch]:
    from ..stubs import CALL, JUMP, Branch, units
    from ..values import loaded, words_way

    code, start = units(span, 4, True), span.address
    way = words_way(code, start, _steps(is64), _KEPT, _STACK)
    for at, value in enumerate(code):
        if value & 0xFFDFFC1F == _BR:
            slot = loaded(way, at, value >> 5 & 31)
            if slot is not None:
                yield Branch(start + 4 * at, slot, CALL if value & _BY_REGISTER == _BLR else JUMP, True)


def _steps(is64: bool) -> Callable[[int, int], Step]:
    """Return what says what an instruction does (Arm ARM for A-profile, C4.1). 31 is sp in what is named here."""
    from ..values import BRANCH, CALL, CONSTANT, JUMP, LOAD, OTHER, STORE, SUM, Form, Step, always, decoder

    scale = 8 if is64 else 4

    def where(value: int) -> tuple[int, int]:
        return value & 31, value >> 5 & 31

    def memory(kind: int) -> Callable[[int, int], Step]:
        return lambda value, address: Step(kind, *where(value), (value >> 10 & 0xFFF) * scale)

    def pair(value: int, address: int) -> Step:  # ldp: two registers, and with a change of the place a third
        changed = 1 << (value >> 5 & 31) if value & 0x00800000 else 0
        return Step(OTHER, -1, 1 << (value & 31) | 1 << (value >> 10 & 31) | changed & ~(1 << 31))

    def led(kind: int, low: int, bits: int) -> Callable[[int, int], Step]:
        return lambda value, address: Step(kind, -1, address + 4 * signed(value >> low & (1 << bits) - 1, bits))

    def added(value: int, address: int) -> Step:
        number = (value >> 10 & 0xFFF) << (12 if value >> 22 & 1 else 0)
        return Step(SUM, *where(value), -number if value >> 30 & 1 else number)

    return decoder(
        Form(0x9F000000, 0x90000000, lambda value, address: Step(CONSTANT, value & 31, _page(value, address))),  # adrp
        Form(0xFFC00000, 0xF9400000 if is64 else 0xB9400000, memory(LOAD)),  # ldr
        Form(0xFFC00000, 0xF9000000 if is64 else 0xB9000000, memory(STORE)),  # str
        Form(0x3F800000, 0x11000000, added),  # add, sub of a number; sp is changed by prologues only
        Form(0x7FE0FFE0, 0x2A0003E0, lambda value, address: Step(SUM, value & 31, value >> 16 & 31)),  # mov
        Form(0xFC000000, 0x94000000, always(CALL)), Form(0xFC000000, 0x14000000, led(JUMP, 0, 26)),  # bl, b
        Form(0xFFFFFC1F, _BLR, always(CALL)), Form(0xFEFFF000, 0xD63F0000, always(CALL)),  # blr; blraa and its like
        Form(0xFE000000, 0xD6000000, always(JUMP)),  # br, ret
        Form(0xFF000010, 0x54000000, led(BRANCH, 5, 19)), Form(0x7E000000, 0x34000000, led(BRANCH, 5, 19)),  # b.; cbz
        Form(0x7E000000, 0x36000000, led(BRANCH, 5, 14)),  # tbz, tbnz
        Form(0x3A400000, 0x28400000, pair), Form(0x3A400000, 0x28000000, always(OTHER)),  # ldp; stp
        Form(0x3B200C00, 0x38000000, always(OTHER)),  # str with a distance that isn't scaled, or changes its register
        Form(0x3B400000, 0x39000000, always(OTHER)),  # str of other sizes
        Form(0, 0, lambda value, address: Step(OTHER, -1, 1 << (value & 31) & ~(1 << 31))),
    )  # fmt: skip
