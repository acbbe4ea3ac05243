"""s390x: IBM's mainframes in 64-bit mode (z/Architecture), big-endian.

Instructions are 2, 4 or 6 bytes long, at even addresses; distances are counted in halves (2 bytes) from the
instruction's first byte. A call is `brasl %r14`, a jump `jg`, a conditional jump `jgXX`: six bytes, `c0 X4` or X5 and a
32-bit distance; since the relocation stands at the distance, two bytes into the instruction, its addend is 2.
Arguments are in r2...r6, the others on the stack in 8-byte slots from 160(%r15) on; the return address is in r14. The
result is in r2. Arguments and results shorter than a register are extended to 64 bits.

ABI: https://github.com/IBM/s390x-abi, 1.2.3 (parameters), 2.5 (relocation types).
"""

from __future__ import annotations

from ..arguments import Convention, spell
from ..calls import PlaceRelocation, ProbeCalls, Replacement, StandIn, StubRelocation, signed
from ..numbers import EM_S390
from .code import CODE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..facts import Facts
    from ..stubs import Branch, CodeSpan, FileCode, LibraryCalls

# Relocation types.
R_NONE, R_32, R_PC32DBL, R_PLT32DBL, R_64, R_PC64 = 0, 4, 19, 20, 22, 23

_REGISTERS = ("%r2", "%r3", "%r4", "%r5", "%r6")
_CONVENTION = Convention(_REGISTERS, "{}(%r15)", "0(%r15)", 160 - 5 * 8, 8, big=True)


def machine(*, is64: bool, little: bool, flags: int) -> ProbeCalls:
    """Return s390x; the parameters only exist for machines that come in several kinds."""
    return ProbeCalls(
        name="s390x", none=R_NONE, absolute=R_64, absolute32=R_32, replace=_replace, stub=_stub,
        operands=lambda arguments, tail: spell(_CONVENTION, arguments), pc_relative=(PlaceRelocation(R_PC64, 0, 0),),
        branched=5,
    )  # fmt: skip


def _replace(
    code: memoryview, offset: int, type_: int, addend: int | None, enabled: bool, nop: str
) -> Replacement | None:
    start = offset - 2
    if type_ not in {R_PC32DBL, R_PLT32DBL} or addend != 2 or start < 0 or offset + 4 > len(code):
        return None
    if code[start] != 0xC0:
        return None
    opcode, condition = code[start + 1], code[start + 1] >> 4
    if opcode == 0xE5:  # brasl %r14
        bytes_, site = CODE["enabled_call" if enabled else "probe_call"]
        return Replacement(start, bytes_, start + site, False)
    if opcode == 0xF4:  # jg
        bytes_, site = CODE["enabled_tail" if enabled else "probe_tail"]
        return Replacement(start, bytes_, start + site, True)
    if opcode & 15 == 4 and condition and not enabled:
        # A jump around the return, on the opposite condition: a conditional return would be a site that is passed
        # whatever the condition.
        around = bytes((0xA7, (condition ^ 15) << 4 | 4, 0, 3))  # jXX .+6
        return Replacement(start, around + CODE["return"][0], start + 4, True)
    return None


def _stub(enabled: bool, semaphore: bool, nop: str) -> StandIn:
    body, place = CODE["read_semaphore" if semaphore else "no"] if enabled else (b"", 0)
    relocations = (StubRelocation(place, R_PC32DBL, 2),) if enabled and semaphore else ()
    return StandIn(body + CODE["nop"][0] + CODE["return"][0], len(body), 16, relocations)


# -- facts ------------------------------------------------------------------------------------------------------------


def _branch(half: int, following: int) -> int | None:
    """z/Architecture Principles of Operation 7 (BRC, BRAS, BRCT: a7 and 84, 85), with 16 bits of halfwords."""
    if half >> 8 == 0xA7 and half & 15 in (4, 5, 6, 7):
        return signed(following, 16) * 2
    if half >> 8 in (0x84, 0x85, 0xEC):
        return signed(following, 16) * 2
    return None


def facts() -> dict[int, Facts]:
    """Return what is known beside probe calls, by machine number. Only who asks for it pays for it."""
    from ..facts import Branches, Entries, Facts, Operands, Passing, Relocations, Stopped

    names = r"%r(?:\d|1[0-5])"
    written = Operands(
        r"%[rfav]\d{1,2}", r"(?P<front>NUMBER)?\((?P<base>REG)(?:,(?P<index>REG))?\)",
        readable={"libbpf": rf"{names}|-?\d+\({names}\)|-?\d+",
                  "bcc": rf"{names}|(?:-?\d+)?\({names}(?:,{names})?\)|-?\d+"},
    )  # fmt: skip
    # A table entry's two halfwords are two instructions, which no single store can replace safely; -mhotpatch=4,2 makes
    # them one four-byte instruction, and writes no table.
    entries = Entries(
        "s390x", 2,
        (
            (b"\x07\x00", "nopr"), (b"\x07\x07", "nopr"),
            (b"\x47\0\0\0", "nop"), (b"\xc0\x04\0\0\0\0", "jgnop"),
        ),
        (), (2,), (4, 2), (), 0, lambda macros, little: "__s390x__" in macros, "qemu-s390x", ("s390x",),
    )  # fmt: skip
    return {
        EM_S390: Facts(
            # R_390_PC16DBL, PLT16DBL, PC32DBL, PLT32DBL
            "s390", 2, written, Relocations(12, R_64, 5, branches={16: -2, 17: -2, 19: -2, 20: -2}),
            quiet={
                "0700": "nopr %r0", "0707": "nopr %r7", "47000000": "nop 0", "c00400000000": "jgnop .",
                "07fe": "br %r14",
            },
            length=lambda code, at: (2, 4, 4, 6)[code[at] >> 6],
            disassembler=lambda is64, little, thumb: (("CS_ARCH_SYSZ", "CS_ARCH_SYSTEMZ"), ("CS_MODE_BIG_ENDIAN",)),
            branches=(Branches(2, _branch, False),), entries=lambda is64, little: entries if is64 else None,
            hotpatch=(b"\x07\x00" * 4, b"\x47\0\0\0"),
            passing=Passing(tuple(f"%r{n}" for n in range(2, 7)), results=("%r2", "")),  # ELF ABI, 1.2.2
            stopped=Stopped("pswa", trap=lambda code: 2, stack="r15", link="r14"),
        )
    }  # fmt: skip


# -- calls into libraries ---------------------------------------------------------------------------------------------


def stubs(code: FileCode) -> LibraryCalls:
    """Return what library calls look like: r1 is the slot's address, then what it holds (ELF ABI supplement, PLT)."""
    import re

    from ..stubs import Form, LibraryCalls

    # larl %r1, slot; lg %r1, 0(%r1); mold's lgfi %r0, number; br %r1; and behind it GNU ld's lazy part, whose jump in
    # static programs leads to the first stub: basr %r1, %r0; lgf %r1, 12(%r1); jg
    form = re.compile(
        rb"\xc0\x10(.{4})\xe3\x10\x10\x00\x00\x04(?:\xc0\x01.{4})?\x07\xf1(?:\x0d\x10\xe3\x10\x10\x0c\x00\x14\xc0\xf4.{4})?",
        re.DOTALL,
    )

    def slot(match: re.Match[bytes], address: int, base: int) -> int:
        return address + 2 * signed(int.from_bytes(match[1], "big"), 32)

    # R_390_JMP_SLOT; GLOB_DAT; IRELATIVE
    return LibraryCalls(11, (10,), (61,), (Form(form, slot, 2),), _sites)


def _sites(span: CodeSpan) -> Iterator[Branch]:
    """Yield brasl and brcl with 32 bits of halfwords, bras and brc with 16."""
    import re

    from ..stubs import CALL, JUMP, Branch

    for match in re.finditer(rb"\xc0(?=([\x04-\xf5])(.{4}))", span.code, re.DOTALL):
        if not match.start() & 1 and match[1][0] & 15 in {4, 5}:
            at = span.address + match.start()
            kind = CALL if match[1][0] & 15 == 5 else JUMP
            yield Branch(at, at + 2 * signed(int.from_bytes(match[2], "big"), 32), kind)
