"""ARM, 32 bits, as AAPCS has it: A32 and Thumb; Raspberry Pi OS and Debian's armhf and armel, and microcontrollers.

Two instruction sets, and one object may hold both. A32 instructions are one 32-bit word whose top four bits are a
condition (`e` is always); `bl` calls, `b` jumps, with the distance in their low 24 bits. Thumb instructions are one or
two 16-bit halves; `bl` and `b.w` have two, with the distance spread over both. In Thumb an `it` instruction makes up to
four instructions after it conditional. Which set a branch is in, its relocation type says. A Thumb function's symbol
has bit 0 set; addresses of sites have not.

Relocations carry no addend of their own (SHT_REL): it is in the distance bits, and is -8 (A32) or -4 (Thumb), since
the program counter runs ahead. Other values are no call to the stub itself, and are left alone.

Arguments are in r0...r3, the others on the stack in 4-byte slots from [sp] on; one of eight bytes takes two slots
beginning with an even one. The return address is in lr. The result is in r0.

A conditional branch (`blne`, `bne`, a `bl` in an `it` block) can't become one conditional NOP: a breakpoint on it
would stop whatever the condition. It stays, and goes to the stub. Only Thumb's conditional jump is long enough to
become a jump around a return.

ABI: https://github.com/ARM-software/abi-aa, aapcs32 6.5 (parameters), aaelf32 5.6 (relocation types).
"""

from __future__ import annotations

from ..arguments import Convention, spell
from ..calls import PlaceRelocation, ProbeCalls, Replacement, StandIn, StubRelocation, signed, word, words
from ..numbers import EM_ARM

TYPE_CHECKING = False
if TYPE_CHECKING:
    import re
    from collections.abc import Iterator

    from ..facts import Facts
    from ..stubs import Branch, CodeSpan, FileCode, LibraryCalls

# Relocation types (aaelf32 5.6).
R_NONE, R_PC24, R_ABS32, R_REL32, R_THM_CALL, R_PLT32, R_CALL, R_JUMP24, R_THM_JUMP24 = 0, 1, 2, 3, 10, 27, 28, 29, 30
R_THM_JUMP19 = 51
_ARM_BRANCHES = {R_PC24, R_PLT32, R_CALL, R_JUMP24}

# A32 words.
_BL, _B = 0xEBFFFFFE, 0xEAFFFFFE  # bl .; b .: distance -8
_NOP = 0xE1A00000  # mov r0, r0
_RETURN = 0xE12FFF1E  # bx lr
_CLEAR = 0xE3A00000  # mov r0, #0
_SEMAPHORE_A32 = (
    0xE59F000C,  # ldr r0, [pc, #12]: the word behind this code
    0xE08F0000,  # add r0, pc, r0: pc is this instruction + 8
    0xE1D000B0,  # ldrh r0, [r0]
    _NOP,
    _RETURN,
)

# Thumb halves. These NOPs exist on every processor with Thumb, the ones that are named `nop` only since ARMv6T2.
_T_NOP = 0x46C0  # mov r8, r8
_T_RETURN = 0x4770  # bx lr
_T_CLEAR = 0x2000  # movs r0, #0
_T_CLEAR_WIDE = (0xF04F, 0x0000)  # mov.w r0, #0
_SEMAPHORE_THUMB = (
    0x4802,  # ldr r0, [pc, #8]: the word behind this code
    0x4478,  # add r0, pc: pc is this instruction + 4
    0x8800,  # ldrh r0, [r0]
    _T_NOP,
    _T_RETURN,
    _T_NOP,  # fills up to a word
)

_CONVENTION = Convention(("r0", "r1", "r2", "r3"), "[sp, #{}]", "[sp]", -4 * 4, 4, even_registers=True)


def machine(*, is64: bool, little: bool, flags: int) -> ProbeCalls:
    """Return ARM in either byte order. In big-endian objects instructions are too; the linker turns them for BE8."""
    convention = _CONVENTION._replace(big=not little)

    def replace(
        code: memoryview, offset: int, type_: int, addend: int | None, enabled: bool, nop: str
    ) -> Replacement | None:
        if addend is not None or offset + 4 > len(code):
            return None
        if type_ in _ARM_BRANCHES:
            return _replace_a32(word(code, offset, little), offset, little, enabled)
        if type_ in {R_THM_CALL, R_THM_JUMP24, R_THM_JUMP19}:
            return _replace_thumb(code, offset, little, enabled)
        return None

    def stub(enabled: bool, semaphore: bool, nop: str) -> StandIn:
        return _stub_a32(enabled, semaphore, little)

    def thumb_stub(enabled: bool, semaphore: bool, nop: str) -> StandIn:
        return _stub_thumb(enabled, semaphore, little)

    return ProbeCalls(
        name="arm", none=R_NONE, absolute=R_ABS32, replace=replace, stub=stub, thumb_stub=thumb_stub,
        operands=lambda arguments, tail: spell(convention, arguments),
        pc_relative=(PlaceRelocation(R_REL32, 0 if little else 4, 0 if little else 4),), pc_relative_bits=32,
        branched=4, wide_registers=False, conditional_calls=frozenset((R_THM_CALL,)),
    )  # fmt: skip


def _replace_a32(instruction: int, offset: int, little: bool, enabled: bool) -> Replacement | None:
    if instruction == _BL:
        return Replacement(offset, words(little, _CLEAR if enabled else _NOP), offset, False)
    if instruction == _B and not enabled:
        return Replacement(offset, words(little, _RETURN), offset, True)
    return None


def _replace_thumb(code: memoryview, offset: int, little: bool, enabled: bool) -> Replacement | None:
    first, second = _half(code, offset, little), _half(code, offset + 2, little)
    if (first, second) == (0xF7FF, 0xFFFE) and not _may_be_in_it_block(code, offset, little):  # bl .
        halves = _T_CLEAR_WIDE if enabled else (_T_NOP, _T_NOP)
        return Replacement(offset, _halves(little, *halves), offset, False)
    if (first, second) == (0xF7FF, 0xBFFE) and not _may_be_in_it_block(code, offset, little):  # b.w .
        if enabled:
            return Replacement(offset, _halves(little, _T_CLEAR, _T_RETURN), offset, True)
        return Replacement(offset, _halves(little, _T_RETURN, _T_NOP), offset, True)
    condition = first >> 6 & 15
    if first & 0xFC3F == 0xF43F and second == 0xAFFE and condition < 14 and not enabled:  # b<condition>.w .
        around = 0xD000 | (condition ^ 1) << 8  # b<opposite> .+4
        return Replacement(offset, _halves(little, around, _T_RETURN), offset + 2, True)
    return None


def _may_be_in_it_block(code: memoryview, offset: int, little: bool) -> bool:
    """Whether an `it` instruction may make the instruction at `offset` conditional.

    Thumb can't be decoded backwards. But an `it` stands at most three instructions before, and decoding from a real one
    leads exactly to `offset`; so of all halves before that look like an `it`, only those count that do. What is none,
    but looks like it, costs a stub instead of a NOP.
    """
    for start in range(max(offset - 14, offset & 1), offset, 2):
        half = _half(code, start, little)
        if half & 0xFF00 != 0xBF00 or half & 15 == 0:
            continue
        length = 4 - ((half & -half & 15).bit_length() - 1)  # the mask's lowest set bit ends the block
        position = start + 2
        for _ in range(length):
            if position == offset:
                return True
            position += 4 if _half(code, position, little) >= 0xE800 else 2
    return False


def _half(code: memoryview, offset: int, little: bool) -> int:
    return int.from_bytes(code[offset : offset + 2], "little" if little else "big")


def _halves(little: bool, *values: int) -> bytes:
    return b"".join(value.to_bytes(2, "little" if little else "big") for value in values)


def _stub_a32(enabled: bool, semaphore: bool, little: bool) -> StandIn:
    mapping = (("$a", 0),)
    if not enabled:
        return StandIn(words(little, _NOP, _RETURN), 0, 4, (), mapping)
    if not semaphore:
        return StandIn(words(little, _CLEAR, _NOP, _RETURN), 4, 4, (), mapping)
    # The word at 20 is the distance from the pc that `add` sees, 4 + 8, to the semaphore.
    code = words(little, *_SEMAPHORE_A32, 0)
    return StandIn(code, 12, 4, (StubRelocation(20, R_REL32, 20 - 12),), (*mapping, ("$d", 20)))


def _stub_thumb(enabled: bool, semaphore: bool, little: bool) -> StandIn:
    mapping = (("$t", 0),)
    if not enabled:
        return StandIn(_halves(little, _T_NOP, _T_RETURN), 0, 4, (), mapping, entry=1)
    if not semaphore:
        return StandIn(_halves(little, _T_CLEAR, _T_NOP, _T_RETURN), 2, 4, (), mapping, entry=1)
    code = _halves(little, *_SEMAPHORE_THUMB) + words(little, 0)  # as above: `add` at 2 sees pc 6
    return StandIn(code, 6, 4, (StubRelocation(12, R_REL32, 12 - 6),), (*mapping, ("$d", 12)), entry=1)


# -- facts ------------------------------------------------------------------------------------------------------------


def branch(instruction: int) -> int | None:
    """Arm ARM A8.8.18, A8.8.25: B, BL and BLX with 24 bits; the program counter is two instructions ahead."""
    if instruction & 0x0E000000 == 0x0A000000:
        return signed(instruction & 0xFFFFFF, 24) * 4 + 8
    return None


def _atomic(code: bytes, address: int, little: bool) -> tuple[int, ...]:
    """See `Stopped.atomic`. Arm ARM A8.8.75: LDREX, LDAEX, STREX, STLEX. In Thumb code nothing but NOPs is stepped."""
    from ..exclusive import Exclusive

    return Exclusive(((0x0F900EF0, 0x01900E90),), ((0x0F900EF0, 0x01800E90),), branch).ends(code, address, little)


_THUMB_NOPS = {"nop": (0xBF00,), "mov r8, r8": (0x46C0,), "nop.w": (0xF3AF, 0x8000)}


def facts() -> dict[int, Facts]:
    """Return what is known beside probe calls, by machine number. Only who asks for it pays for it."""
    from ..facts import Branches, Entries, Facts, Operands, Passing, Relocations, Scheme, Stopped
    from .steps import thumb_branch

    names = r"(?:r\d|r10|fp|ip|sp|lr|pc)"
    written = Operands(
        r"(?:[rsdq]\d{1,2}|fp|ip|sp|lr|pc|sl|sb)", r"\[(?P<base>REG)(?:, ?#?(?P<front>NUMBER))?\]",
        r"#(?P<constant>NUMBER)", {"libbpf": rf"{names}|\[{names}\]|\[{names}, ?#-?\d+\]|#-?\d+"},
    )  # fmt: skip
    entries = Entries(
        "arm", 4, ((words(True, 0xE320F000), "nop"), (words(True, 0xE1A00000), "mov r0, r0")), (), (4,), (1, 0),
        (Scheme(0, 4, "one b at the entry, which reaches 32 MB"),), 0,
        lambda macros, little: "__arm__" in macros and "__thumb__" not in macros and little, "qemu-arm", ("armv7l",),
    )  # fmt: skip
    thumb_entries = Entries(
        "thumb", 2,
        tuple((_halves(True, *code), name) for name, code in _THUMB_NOPS.items()),
        (), (2, 4), (3, 2),
        (Scheme(4, 2, "four bytes of padding for b.w, one narrow b to it"),), 0,
        lambda macros, little: "__arm__" in macros and "__thumb__" in macros and little, "qemu-arm", ("armv7l",),
        (), entries.nops,
    )  # fmt: skip
    # R_ARM_PC24, THM_CALL, PLT32, CALL, JUMP24, THM_JUMP24, THM_JUMP19, THM_JUMP11, THM_JUMP8
    (short_nop, _), (move, _), (thumb_wide, _) = thumb_entries.nops
    thumb_short = {short_nop, move, _halves(True, 0x4770)}  # bx lr
    branch_types = (1, 10, 27, 28, 29, 30, 51, 102, 103)
    return {
        EM_ARM: Facts(
            "arm", 2, written, Relocations(23, R_ABS32, R_REL32, branches=dict.fromkeys(branch_types, 0)),
            quiet={
                "e1a00000": "mov r0, r0", "e320f000": "nop", "e12fff1e": "bx lr", "e1a0f00e": "mov pc, lr",
                "bf00": "nop (Thumb)", "46c0": "mov r8, r8 (Thumb)", "4770": "bx lr (Thumb)",
                "f3af8000": "nop.w (Thumb)",
            },
            clears={"e3a00000": "mov r0, #0", "f04f0000": "mov.w r0, #0 (Thumb)", "2000": "movs r0, #0 (Thumb)"},
            halves=frozenset({"f3af8000", "f04f0000"}),
            code_orders=lambda little: (little, not little),  # big-endian only before BE8
            disassembler=lambda is64, little, thumb: (
                ("CS_ARCH_ARM",), ("CS_MODE_THUMB" if thumb else "CS_MODE_ARM",)),
            mapping_symbols=True, branches=(Branches(4, branch, True), Branches(2, thumb_branch, True)),
            entries=lambda is64, little: entries if little else None, thumb=thumb_entries, pairs=True,
            passing=Passing(tuple(f"r{n}" for n in range(4)), results=("r0", "")),  # AAPCS32, 6.5
            stopped=Stopped(
                spelled={"fp": "r11", "ip": "r12", "sl": "r10", "sb": "r9", "r13": "sp", "r14": "lr", "r15": "pc"},
                # 2 and 3 are gdb's kinds for Thumb's instructions of 2 and of 4 bytes; the NOPs tell which it is.
                trap=lambda code: 2 if code[:2] in thumb_short else 3 if code[:4] == thumb_wide else 4,
                # `pop {.., pc}` leaves lr alone; behind the address up to four arguments may have been stored.
                stack="sp", link="lr", thumb=1, below=5, atomic=_atomic,
            ),
        )
    }  # fmt: skip


# -- calls into libraries ---------------------------------------------------------------------------------------------


def stubs(code: FileCode) -> LibraryCalls:
    """Return what library calls look like: ip becomes the slot's address, in steps of 8 bits or by a word behind.

    A stub that Thumb code may branch to begins with `bx pc; nop` in Thumb; ARM code enters behind it. Code is
    little-endian in big-endian files with BE8. Source: AAELF32, "PLT", and the linkers' output.
    """
    from ..stubs import Form, LibraryCalls, Word, pattern, word

    little = code.little or bool(code.flags & 0x00800000)  # EF_ARM_BE8

    def immediate(instruction: int) -> int:
        value, turn = instruction & 0xFF, (instruction >> 8 & 15) * 2
        return (value >> turn | value << (32 - turn)) & 0xFFFFFFFF

    def in_steps(match: re.Match[bytes], address: int, base: int) -> int:
        pc = address + match.start(2) - match.start() + 8
        added = sum(immediate(word(match, group, little)) for group in (2, 3, 4, 5))
        last = word(match, 6, little)
        return (pc + added + (last & 0xFFF) * (1 if last >> 23 & 1 else -1)) & 0xFFFFFFFF

    def by_word(match: re.Match[bytes], address: int, base: int) -> int:
        pc = address + match.start(3) - match.start() + 8
        return (pc + word(match, 5, little)) & 0xFFFFFFFF

    def entries(match: re.Match[bytes]) -> tuple[int, ...]:
        return (4,) if match[1] else ()

    # bx pc, and a nop that is never run: mov r8, r8, or (lld) a branch to itself. As the bytes of one word.
    thumb = (Word(0x46C04778 if little else 0x477846C0, optional=True), Word(0xE7FD4778 if little else 0x4778E7FD))
    add = Word(0xE28CC000, 0xFFFFF000, optional=True)  # add ip, ip, #
    steps = pattern(little, thumb, Word(0xE28FC000, 0xFFFFF000), add, add, add, Word(0xE53CF000, 0xFF7FF000))
    words_ = pattern(
        little, thumb,
        Word(0xE59FC004),  # ldr ip, [pc, #4]
        (Word(0xE08CC00F), Word(0xE08FC00C)),  # add ip, ip, pc
        Word(0xE59CF000),  # ldr pc, [ip]
        Word(0, 0),
    )  # fmt: skip
    forms = (Form(steps, in_steps, 4, entries=entries), Form(words_, by_word, 4, entries=entries))

    def sites(span: CodeSpan) -> Iterator[Branch]:
        yield from _arm_sites(span, little)
        yield from _thumb_sites(span, little)

    # R_ARM_JUMP_SLOT; GLOB_DAT; IRELATIVE
    return LibraryCalls(22, (21,), (160,), forms, sites, lambda span: _slot_sites(span, code, little))


def _arm_sites(span: CodeSpan, little: bool) -> Iterator[Branch]:
    from ..stubs import CALL, JUMP, Branch, units

    for at, value in enumerate(units(span, 4, little)):
        if value >> 25 & 7 == 5:  # b, bl, blx
            place = span.address + 4 * at
            half = value >> 23 & 2 if value >> 28 == 15 else 0
            kind = CALL if value >> 24 & 1 or value >> 28 == 15 else JUMP
            yield Branch(place, place + 8 + signed(value & 0xFFFFFF, 24) * 4 + half, kind)


def _thumb_sites(span: CodeSpan, little: bool) -> Iterator[Branch]:
    """Yield bl and blx (armv7-m ARM, A7.7.18), and b.w, from code that may be ARM code as well."""
    from ..stubs import CALL, JUMP, Branch, units

    halves = units(span, 2, little)
    for at in range(len(halves) - 1):
        if halves[at] >> 11 != 0b11110:
            continue
        half, following = halves[at], halves[at + 1]
        if following & 0xC000 == 0xC000 or following & 0xD000 == 0x9000:
            sign = half >> 10 & 1
            high = (~(following >> 13 ^ sign) & 1) << 23 | (~(following >> 11 ^ sign) & 1) << 22 | sign << 24
            distance = signed(high | (half & 0x3FF) << 12 | (following & 0x7FF) << 1, 25)
            place = span.address + 2 * at
            target = place + 4 + distance
            if following & 0xD000 == 0xC000:
                target &= ~3  # blx
            yield Branch(place, target, JUMP if following & 0xD000 == 0x9000 else CALL)


# Position-independent code that is compiled with -mlong-calls: a literal leads from the program counter to the global
# offset table, another has the slot's distance in it, or one leads to the slot itself; ldr, and blx. (gcc 12 and
# clang 19 take -fno-plt here, and it changes nothing.)
_KEPT, _STACK = 0xFF0 | 1 << 13, 1 << 7 | 1 << 11 | 1 << 13  # r4 to r11, sp; fp of either kind of code, sp


def _slot_sites(span: CodeSpan, code: FileCode, little: bool) -> Iterator[Branch]:
    """Yield the calls and jumps by a register that was loaded from a slot. Code is taken for ARM's and for Thumb's."""
    from ..stubs import CALL, JUMP, Branch, units
    from ..values import Halves, loaded, slot_of, words_way
    from .steps import steps, thumb_steps

    words_, halves, start = units(span, 4, little), units(span, 2, little), span.address
    way = words_way(words_, start, steps(), _KEPT, _STACK)
    way = way._replace(bits=32, literal=lambda address: code.pointer(address) if code.executable(address) else None)
    for at, value in enumerate(words_):
        if value & 0x0FFFFFD0 == 0x012FFF10 and value >> 28 != 15 and value & 15 < 14:  # bx, blx
            slot = loaded(way, at, value & 15)
            if slot is not None:
                yield Branch(start + 4 * at, slot, CALL if value & 0x20 else JUMP, slot=True)
    thumb = Halves(halves, start, lambda half: 2 if half >= 0xE800 else 1, thumb_steps(), way)
    for at, half in enumerate(halves):
        if half & 0xFF07 == 0x4700 and half >> 3 & 15 < 14:  # bx, blx
            slot = slot_of(thumb, at, half >> 3 & 15)
            if slot is not None:
                yield Branch(start + 2 * at, slot, CALL if half & 0x80 else JUMP, slot=True)
