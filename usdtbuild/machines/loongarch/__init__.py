"""LoongArch, 64 bits: Loongson's processors since 2021, little-endian.

Every instruction is one 32-bit word. A call is `bl`, a jump `b`, with the distance in words in 26 bits, or with
-mcmodel=medium a pair `pcaddu18i` and `jirl`, for which one relocation (CALL36) stands, and usually a second one at the
same place (RELAX), which allows the linker to shorten the pair. As on RISC-V, linkers delete bytes, so an address in
code must be a symbol of its own, and a distance a pair of relocations.

Arguments are in $a0...$a7, which are $r4...$r11, the others on the stack in 8-byte slots from $sp ($r3) on. The return
address is in $ra ($r1), the result in $a0.

ABI: https://github.com/loongson/la-abi-specs, lapcs (parameters), laelf (relocation types).
"""

from __future__ import annotations

from ..arguments import Convention, spell
from ..calls import PlaceRelocation, ProbeCalls, Replacement, StandIn, StubRelocation, signed, word, words
from ..numbers import EM_LOONGARCH

TYPE_CHECKING = False
if TYPE_CHECKING:
    import re
    from collections.abc import Iterator

    from ..facts import Facts
    from ..stubs import Branch, CodeSpan, FileCode, LibraryCalls

# Relocation types.
R_NONE, R_32, R_64, R_ADD32, R_SUB32, R_B26, R_PCALA_HI20, R_PCALA_LO12 = 0, 1, 2, 50, 55, 66, 71, 72
R_RELAX, R_64_PCREL, R_CALL36 = 100, 109, 110

# Instruction words.
_BL, _B = 0x54000000, 0x50000000
_PCADDU18I, _JIRL = 0x1E000000, 0x4C000000  # register in bits 0-4; link in bits 0-4, base in bits 5-9
_NOP = 0x03400000  # andi $zero, $zero, 0
_RETURN = 0x4C000020  # jirl $zero, $ra, 0
_CLEAR = 0x00150004  # or $a0, $zero, $zero
_PCALAU12I = 0x1A000004  # pcalau12i $a0, %pc_hi20(semaphore)
_LD_HU = 0x2A400084  # ld.hu $a0, $a0, %pc_lo12(semaphore)

_CONVENTION = Convention(tuple(f"$r{i}" for i in range(4, 12)), "[$r3, {}]", "[$r3]", -8 * 8, 8)


def machine(*, is64: bool, little: bool, flags: int) -> ProbeCalls:
    """Return LoongArch; the parameters only exist for machines that come in several kinds."""
    return ProbeCalls(
        name="loongarch64", none=R_NONE, absolute=R_64, absolute32=R_32, replace=_replace, stub=_stub,
        operands=lambda arguments, tail: spell(_CONVENTION, arguments),
        pc_relative=(PlaceRelocation(R_64_PCREL, 0, 0),), relaxes=True, difference=(R_ADD32, R_SUB32), branched=8,
    )  # fmt: skip


def _replace(
    code: memoryview, offset: int, type_: int, addend: int | None, enabled: bool, nop: str
) -> Replacement | None:
    if addend or offset + 4 > len(code):
        return None
    instruction = word(code, offset, little=True)
    if type_ == R_B26 and instruction == _BL:
        return Replacement(offset, words(True, _CLEAR if enabled else _NOP), offset, False)
    if type_ == R_B26 and instruction == _B and not enabled:
        return Replacement(offset, words(True, _RETURN), offset, True)
    if type_ == R_CALL36 and offset + 8 <= len(code):
        return _replace_pair(instruction, word(code, offset + 4, little=True), offset, enabled)
    return None


def _replace_pair(first: int, second: int, offset: int, enabled: bool) -> Replacement | None:
    register = first & 31
    link = second & 31  # the register that takes the return address: $ra at a call, none at a jump
    if first != _PCADDU18I | register or second != _JIRL | register << 5 | link or link not in {0, 1}:
        return None
    code = words(True, _CLEAR if enabled else _NOP, _NOP if link else _RETURN)
    return Replacement(offset, code, offset + 4 * enabled, link == 0, (offset,))


def _stub(enabled: bool, semaphore: bool, nop: str) -> StandIn:
    if not enabled:
        return _make_stub()
    if not semaphore:
        return _make_stub(_CLEAR)
    relocations = (StubRelocation(0, R_PCALA_HI20, 0), StubRelocation(4, R_PCALA_LO12, 0))
    return _make_stub(_PCALAU12I, _LD_HU, relocations=relocations)


def _make_stub(*body: int, relocations: tuple[StubRelocation, ...] = ()) -> StandIn:
    return StandIn(words(True, *body, _NOP, _RETURN), 4 * len(body), 4, relocations)


# -- facts ------------------------------------------------------------------------------------------------------------


def branch(instruction: int) -> int | None:
    """LoongArch volume 1, 2.2.7: beqz and bnez, bceqz and bcnez, b, beq to bgeu."""
    near, opcode = instruction >> 10 & 0xFFFF, instruction >> 26
    if opcode in {16, 17, 18}:
        return signed(near | (instruction & 0x1F) << 16, 21) * 4
    if opcode == 20:
        return signed(near | (instruction & 0x3FF) << 16, 26) * 4
    return signed(near, 16) * 4 if 22 <= opcode <= 27 else None


def _atomic(code: bytes, address: int, little: bool) -> tuple[int, ...]:
    """See `Stopped.atomic`. LoongArch volume 1, 2.2.8: ll.w, ll.d, sc.w, sc.d."""
    from ..exclusive import Exclusive

    return Exclusive(((0xFD000000, 0x20000000),), ((0xFD000000, 0x21000000),), branch).ends(code, address, little)


def facts() -> dict[int, Facts]:
    """Return what is known beside probe calls, by machine number. Only who asks for it pays for it."""
    from ..facts import Facts, Operands, Relocations, Stopped

    names = r"(?:\$r(?:[12]?\d|3[01])|sp)"
    written = Operands(
        # gcc prints `$r3,16`, and bcc reads `[$r3, 16]`.
        r"\$\w+", r"(?P<open>\[)?(?P<base>REG)(?:, ?(?P<front>NUMBER))?(?(open)\])",
        readable={"bcc": rf"{names}|\[{names}\]|\[{names}, ?(?:-?\d+|{names})\]|-?\d+"},
    )  # fmt: skip
    return {
        EM_LOONGARCH: Facts(
            "loongarch", 4, written, Relocations(differences={R_ADD32: 1, R_SUB32: -1}),
            quiet={"03400000": "nop", "4c000020": "ret"}, clears={"00150004": "or $a0, $zero, $zero"}, page=16384,
            # psABI, "Register Convention": $a0 is $r4, $t0 $r12, $s0 $r23.
            stopped=Stopped(
                spelled={
                    **{f"r{n}": f"r{n}" for n in range(32)}, "ra": "r1", "tp": "r2", "sp": "r3", "fp": "r22",
                    "s9": "r22", **{f"a{n}": f"r{n + 4}" for n in range(8)},
                    **{f"t{n}": f"r{n + 12}" for n in range(9)}, **{f"s{n}": f"r{n + 23}" for n in range(9)},
                },
                zero=frozenset({"zero"}), atomic=_atomic,
                # gdb's order; qemu 7.2 names a description that it then doesn't have
                layouts=(tuple((name, 8) for name in (*(f"r{n}" for n in range(32)), "orig_a0", "pc", "badv")),),
            ),
        )
    }  # fmt: skip


# -- calls into libraries ---------------------------------------------------------------------------------------------


def stubs(code: FileCode) -> LibraryCalls:
    """Return what library calls look like: t3 is what the slot holds (ELF psABI, "Procedure Linkage Table")."""
    from ..stubs import CALL, JUMP, Branch, Form, LibraryCalls, Word, pattern, units, word

    form = pattern(
        True,
        Word(0x1C00000F, 0xFE00001F),  # pcaddu12i $t3, hi
        Word(0x28C001EF if code.is64 else 0x288001EF, 0xFFC003FF),  # ld.d or ld.w $t3, $t3, lo
        Word(0x4C0001ED),  # jirl $t1, $t3, 0
    )

    def slot(match: re.Match[bytes], address: int, base: int) -> int:
        high, low = word(match, 1, True) >> 5 & 0xFFFFF, word(match, 2, True) >> 10 & 0xFFF
        return address + (signed(high, 20) << 12) + signed(low, 12)

    def sites(span: CodeSpan) -> list[Branch]:
        found = []
        for at, value in enumerate(units(span, 4, True)):
            if value >> 26 in {0x14, 0x15}:  # b, bl
                distance = signed((value & 0x3FF) << 16 | value >> 10 & 0xFFFF, 26) * 4
                place = span.address + 4 * at
                found.append(Branch(place, place + distance, CALL if value >> 26 == 0x15 else JUMP))
        return found

    # R_LARCH_JUMP_SLOT; none that is only for slots, R_LARCH_64 and _32 are; IRELATIVE
    return LibraryCalls(
        5, (-1, 2 if code.is64 else 1), (12,), (Form(form, slot),), lambda span: iter(sites(span)),
        lambda span: _slot_sites(span, code.is64),
    )  # fmt: skip


# What clang makes of calls with -mcmodel=extreme, and the assembler of `la.global`, which gcc writes for -fno-plt:
# pcalau12i, ld.d, or pcalau12i and the slot's low part in three steps, ldx.d; jirl.
_KEPT = 1 << 3 | 0x3FF << 22  # sp, fp, s0 to s8


def _slot_sites(span: CodeSpan, is64: bool) -> Iterator[Branch]:
    from ..stubs import CALL, JUMP, Branch, units
    from ..values import loaded, words_way
    from .steps import steps

    words_, start = units(span, 4, True), span.address
    way = words_way(words_, start, steps(), _KEPT, 1 << 3 | 1 << 22)._replace(bits=64 if is64 else 32)
    for at, value in enumerate(words_):
        register, link = value >> 5 & 31, value & 31
        if value & 0xFFFFFC00 != _JIRL or link > 1 or (register == 1 and not link):  # `ret` goes to ra
            continue
        slot = loaded(way, at, register)
        if slot is not None:
            yield Branch(start + 4 * at, slot, CALL if link else JUMP, slot=True)
