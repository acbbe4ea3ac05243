"""x86-64, as System V's psABI has it: Linux, the BSDs and illumos on PCs and servers since 2003.

Instructions are 1 to 15 bytes long and start anywhere. A call to a function in reach is `e8` and a 32-bit distance
from the end of the instruction; a jump is `e9`, a conditional one `0f 80`...`0f 8f`. With -fno-plt compilers call
through a slot of the global offset table: `ff 15` (call) and `ff 25` (jump). The first six integer arguments are in
rdi, rsi, rdx, rcx, r8 and r9, the others on the stack in 8-byte slots: at a call the seventh is at 0(%rsp), and after
the call instruction, or where a tail call has already popped the frame, at 8(%rsp), above the return address. The
result is in eax. A call may change the flags and rax, rcx, rdx, rsi, rdi, r8-r11. x32 is the same machine with 32-bit
pointers, in a 32-bit ELF file: only the relocation for an address differs.

ABI: https://gitlab.com/x86-psABIs/x86-64-ABI, 3.2.3 (parameters), 4.4 (relocation types).

A reference is taken for a branch only where its relocation is PC-relative with addend -4, so that the four bytes end
the instruction, and the byte before it is one of the opcodes above. That can't be mistaken: before a RIP-relative
operand there stands a ModRM byte, which is 05, 0d, 15, ... 3d and none of these opcodes.
"""

from __future__ import annotations

from ...options import CLASSIC, NOP5, NOP10, SAFE
from ..calls import PlaceRelocation, ProbeCalls, Replacement, StandIn, StubRelocation, signed
from ..numbers import EM_X86_64
from .code import CODE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Container, Iterator

    from ..calling import Calling
    from ..facts import Facts, Seeker, Verdict
    from ..stubs import Branch, CodeSpan, FileCode, LibraryCalls

# Relocation types (psABI table 4.9).
R_NONE, R_64, R_PC32, R_PLT32, R_GOTPCREL, R_32, R_PC64, R_GOTPCRELX = 0, 1, 2, 4, 9, 10, 24, 41
_DIRECT, _THROUGH_GOT = frozenset((R_PLT32, R_PC32)), frozenset((R_GOTPCRELX, R_GOTPCREL))
# A breakpoint, and what fills code that nobody may run into (Intel's manual, volume 2, "INT n/INTO/INT3").
INT3 = b"\xcc"
_LANDING_PAD, _RETURN = CODE["landing_pad"][0], CODE["return"][0]

_TAILS = frozenset(("tail", "got_tail"))

# Eight bytes at -8(%rsp) as an operand: REX.W, opcode, ModRM (any register, SIB and byte follow), then these two. The
# opcodes are mov and the comparisons with a register or a constant. In 29,900 calls of clang 14 and 19, -O0 to -Oz, it
# was always the mov, and began 3 to 18 bytes behind the call: reloads of -O0 and scheduled instructions come first.
_BELOW_STACK, _READS, _NEAR = b"\x24\xf8", frozenset((0x8B, 0x3B, 0x39, 0x81, 0x83)), 64

# 64-, 32- and 16-bit names of the argument registers, as GNU as spells them. The 8-bit ones are left out on purpose:
# not every reader of SDT notes knows them, and the size before the @ already says how much counts.
_REGISTERS = {
    8: ("rdi", "rsi", "rdx", "rcx", "r8", "r9"),
    4: ("edi", "esi", "edx", "ecx", "r8d", "r9d"),
}


def machine(*, is64: bool, little: bool, flags: int) -> ProbeCalls:
    """Return x86-64, or x32 for a 32-bit object; the other parameters only exist for other machines."""
    return ProbeCalls(
        name="x86-64" if is64 else "x32", none=R_NONE, absolute=R_64 if is64 else R_32,
        replace=replace, stub=stub, operands=_operands,
        pc_relative=(PlaceRelocation(R_PC64 if is64 else R_PC32, 0, 0),), pc_relative_bits=64 if is64 else 32,
        absolute32=R_32 if is64 else None, asking_stub=asking_stub if is64 else None, asking_operand="8@%rdi",
        branched=6, red_zone=True, checks_return=_returned_address_is_read,
    )  # fmt: skip


def replace(
    code: memoryview, offset: int, type_: int, addend: int | None, enabled: bool, nop: str
) -> Replacement | None:
    """See `Calls.replace`."""
    if addend != -4 or offset < 1 or offset + 4 > len(code):
        return None
    before = code[offset - 1]
    if type_ in _DIRECT:
        if before == 0xE8:
            return from_table("call", offset - 1, enabled, nop)
        if before == 0xE9:
            return from_table("tail", offset - 1, enabled, nop)
        if offset >= 2 and code[offset - 2] == 0x0F and before & 0xF0 == 0x80:
            rest, site = CODE["enabled_conditional" if enabled else "probe_conditional"]
            opposite = bytes((0x70 | before & 0x0F ^ 1, 4))
            return Replacement(offset - 2, opposite + rest, offset - 2 + site, True)
    elif type_ in _THROUGH_GOT and offset >= 2 and code[offset - 2] == 0xFF:
        if before == 0x15:
            return from_table("got_call", offset - 2, enabled, nop)
        if before == 0x25:
            return from_table("got_tail", offset - 2, enabled, nop)
    return None


def _returned_address_is_read(code: memoryview, end: int) -> bool:
    """Whether the code behind a call, which ends at `end`, reads what the call must have left below the stack pointer.

    Clang's -mspeculative-load-hardening does: it compares the eight bytes at -8(%rsp) with the address behind the call,
    and where they differ takes the call for a mispredicted one and makes the stack pointer useless (LLVM,
    X86SpeculativeLoadHardening::tracePredStateThroughCall). Such a call must stay one. Nothing else reads there so
    soon, since any call may have overwritten it; a function behind, that does so by chance, costs a stub, not a fault.
    """
    near = bytes(code[end : end + _NEAR])
    at = near.find(_BELOW_STACK)
    while at >= 0:
        if at >= 3 and near[at - 3] & 0xF8 == 0x48 and near[at - 2] in _READS and near[at - 1] & 0xC7 == 0x44:
            return True
        at = near.find(_BELOW_STACK, at + 1)
    return False


def from_table(form: str, start: int, enabled: bool, nop: str) -> Replacement:
    """Return the replacement of one form of branch, whose instruction begins at `start`."""
    code, site = CODE[f"{'enabled' if enabled else 'probe'}_{form}_{SAFE if nop == NOP10 else nop}"]
    return Replacement._make((start, code, start + site, form in _TAILS, (), ()))


def stub(enabled: bool, semaphore: bool, nop: str, landing: bytes = _LANDING_PAD) -> StandIn:
    """See `Calls.stub`. Each begins with a landing pad, since its address may be called through a pointer."""
    place = b"" if nop == CLASSIC else _nop(nop)  # the classic site is the ret itself
    body, relocations = _answer(landing, semaphore) if enabled else (landing, ())
    return StandIn(body + place + _RETURN, len(body), 16, relocations)


def _nop(nop: str) -> bytes:
    return CODE["nop5" if nop == NOP5 else "nop"][0]


def _answer(landing: bytes, semaphore: bool) -> tuple[bytes, tuple[StubRelocation, ...]]:
    if not semaphore:
        return landing + CODE["no"][0], ()
    code, place = CODE["read_semaphore"]
    return landing + code, (StubRelocation(len(landing) + place, R_PC32, -4),)


def asking_stub(semaphore: bool, nop: str) -> StandIn:
    """See `Calls.asking_stub`: the answer's word is on the stack while the tracer is asked."""
    body, relocations = _answer(_LANDING_PAD, semaphore)
    asks = body + CODE["ask"][0]
    answered = asks + _nop(nop) + CODE["answer"][0]
    return StandIn(answered + _nop(nop) + _RETURN, len(answered), 16, relocations, asks=len(asks))


def _operands(arguments: tuple[tuple[int, bool], ...], tail: bool) -> tuple[str | None, ...]:
    """See `Calls.operands`: `-4@%edi`, `8@%rsi`, `2@8(%rsp)`."""
    found = []
    for index, (size, is_signed) in enumerate(arguments):
        prefix = f"-{size}" if is_signed else f"{size}"
        if index < 6:
            found.append(f"{prefix}@%{_REGISTERS[8 if size == 8 else 4][index]}")
        else:
            found.append(f"{prefix}@{8 * (index - 6) + (8 if tail else 0)}(%rsp)")
    return tuple(found)


# -- facts ------------------------------------------------------------------------------------------------------------


def facts() -> dict[int, Facts]:
    """Return what is known beside probe calls, by machine number. Only who asks for it pays for it."""
    from ..facts import Entries, Facts, LongNop, Operands, Passing, Relocations, Scheme, Stopped

    written = Operands(
        r"%[a-zA-Z][a-zA-Z0-9]*",
        r"(?:(?P<front>NUMBER)(?=[+(]))?(?:\+?(?P<symbol>NAME)(?P<back>[-+][0-9]{1,20})?)?"
        r"\((?P<base>REG)?(?:,(?P<index>REG)(?:,(?P<scale>[0-9]))?)?\)",
        r"\$(?P<constant>NUMBER)",
    )
    # 66* 90, and 0f 1f /0 in its lengths (Intel SDM volume 2, NOP, table 4-12). gas and LLVM put 66 and 2e before it,
    # and clang's entries have a displacement, of 8 or 512, which makes no difference to a NOP.
    behind_modrm = {0x00: 0, 0x40: 1, 0x44: 2, 0x80: 4, 0x84: 5}
    nopl = (LongNop(b"\x66\x2e", 12, bytes([0x0F, 0x1F, modrm]), more) for modrm, more in behind_modrm.items())
    long_nops = (LongNop(b"\x66", 14, b"\x90", 0), *nopl)
    entries = Entries(
        "x86-64", 1, ((b"\x90", "nop"),), ((_LANDING_PAD, "endbr64"),), (1,), (7, 5),
        (Scheme(5, 2, "five bytes of padding for jmp rel32, two at the entry for a short jump to it"),), 5,
        lambda macros, little: "__x86_64__" in macros, "qemu-x86_64", ("x86_64",), long_nops,
        judge=_judge,
    )  # fmt: skip
    # psABI 3.2.3
    passing = Passing(
        ("%rdi", "%rsi", "%rdx", "%rcx", "%r8", "%r9"), tuple(f"%xmm{number}" for number in range(8)),
        "{}(%rsp)", 8, 8, ("%rax", "%xmm0"),
    )  # fmt: skip
    return {
        EM_X86_64: Facts(
            "x86-64", 1, written, Relocations(8, R_64, R_PC32, branches={R_PC32: 4, R_PLT32: 4, 15: 1}),
            decoded=True, disassembler=lambda is64, little, thumb: (("CS_ARCH_X86",), ("CS_MODE_64",)),
            entries=lambda is64, little: entries,
            branches_of_bytes=_branches, prefixes=3,  # 67, 66, a hint, bnd
            returns=_RETURN, filler=INT3, passing=passing, calling=_calling, overwritten=_overwritten,
            stopped=Stopped(
                "rip", parts("r"), {f"{letter}h": f"r{letter}x" for letter in "abcd"}, trap=lambda code: len(INT3),
                stack="rsp", call=6, below=1,
            ),
        )
    }  # fmt: skip


def _branches() -> Seeker:
    from .branches import found

    return found


def _calling() -> Calling:
    from .calling import CALLING

    return CALLING


def _judge(at: int, length: int, mnemonic: str, operands: str) -> Verdict:
    from .prologue import judge

    return judge(at, length, mnemonic, operands)


def _overwritten(code: bytes, site: int) -> bool:
    from .red_zone import NOP5, uses_red_zone  # loading capstone takes a while

    return code[site : site + len(NOP5)] == NOP5 and uses_red_zone(code, site)


def parts(full: str) -> dict[str, str]:
    """Return registers' parts, by name, and the register of which each is the low end; `full` is r or e."""
    found: dict[str, str] = {}
    for name in ("ax", "bx", "cx", "dx", "si", "di", "bp", "sp"):
        low = name[0] + "l" if name[1] == "x" else name + "l"
        found |= dict.fromkeys((f"e{name}", name, low), full + name)
    for number in range(8, 16):
        found |= dict.fromkeys((f"r{number}d", f"r{number}w", f"r{number}b"), f"r{number}")
    return found


# -- calls into libraries ---------------------------------------------------------------------------------------------

# What stands before the jump: endbr64 (IBT), bnd (MPX, and bfd's IBT). And behind it: the lazy part (push number; jmp
# to the header), or filler up to the next multiple of 8. mold puts the slot's number into r11d instead.
_LEAD = rb"(?:\xf3\x0f\x1e\xfa)?\xf2?"
STUB_END = rb"(?=\x68.{4}\xe9|\x66\x90|\x66\x0f\x1f|\x0f\x1f|\xcc|\x90|\x00|\x0f\x0b|$)"
# mold's lazy entries put the slot's number into r11. Since version 2.34 they begin without endbr64 and end in int3.
_NUMBERED = rb"(?:\xf3\x0f\x1e\xfa\x41\xbb.{4}\xff\x25(.{4})|\x41\xbb.{4}\xff\x25(.{4})\xcc{4})"
# lld's -z retpolineplt: mov slot(%rip),%r11, then call and jmp, or only jmp with -z now, into the header's thunk.
_RETPOLINE = rb"\x4c\x8b\x1d(.{4})(?:\xe8.{4}\xe9.{4}\x68.{4}\xe9|\xe9.{4}\xcc)"


def stubs(code: FileCode) -> LibraryCalls:
    """Return what library calls look like. The stub is a jump through the slot; psABI, 5.2."""
    import re

    from ..stubs import Form, Lazy, LibraryCalls

    def slot(match: re.Match[bytes], address: int, base: int) -> int:
        group = match.lastindex or 1
        return address + match.end(group) - match.start() + signed(int.from_bytes(match[group], "little"), 32)

    forms = (
        Form(
            re.compile(_LEAD + rb"\xff\x25(.{4})" + STUB_END, re.DOTALL), slot, 8, sure=b"\xff\x25", reach=(5, 4, 1, 0)
        ),
        Form(re.compile(_NUMBERED, re.DOTALL), slot, 16, sure=b"\xff\x25", reach=(10, 6)),
        Form(re.compile(_RETPOLINE, re.DOTALL), slot, 16),
    )
    table = code.tags.get(3, 0)  # DT_PLTGOT: the dynamic segment, the dynamic linker's own pointer, its function
    lazy = Lazy(lambda number, slot: code.pointer(slot) or 0, table + 16, ((0, "rip"),))
    # R_X86_64_JUMP_SLOT; GLOB_DAT; IRELATIVE
    return LibraryCalls(
        7, (6,), (37,), forms, sites, _slot_sites, lazy=lazy if table and code.is64 else None,
        carried=lambda slots: _carried(code, slots),
    )  # fmt: skip


def _carried(code: FileCode, slots: Container[int]) -> Iterator[Branch]:
    """Yield calls by a register that was loaded from a slot: mov or cmov slot(%rip),%register."""
    import re

    from .loads import Loads, SlotLoad

    pattern = rb"([\x48\x4c])(?:\x8b|\x0f[\x40-\x4f])([\x05\x0d\x15\x1d\x25\x2d\x35\x3d])(.{4})"
    loads = []
    for span in code.spans:
        for match in re.finditer(pattern, span.code, re.DOTALL):
            behind = span.address + match.end()
            slot = behind + int.from_bytes(match[3], "little", signed=True)
            if slot in slots:
                loads.append(SlotLoad(behind, match[2][0] >> 3 | (match[1][0] & 4) << 1, slot))
    return Loads(code, EM_X86_64).sites(loads)


def _slot_sites(span: CodeSpan) -> Iterator[Branch]:
    """Yield calls and jumps through a slot, which -fno-plt makes of a call: ff 15 and ff 25, RIP-relative."""
    import re

    from ..stubs import CALL, JUMP, Branch

    for match in re.finditer(rb"\xff(?=[\x15\x25](.{4}))", span.code, re.DOTALL):
        at, kind = match.start(), CALL if span.code[match.start() + 1] == 0x15 else JUMP
        distance = signed(int.from_bytes(match[1], "little"), 32)
        yield Branch(span.address + at, span.address + at + 6 + distance, kind, slot=True)


def sites(span: CodeSpan) -> Iterator[Branch]:
    """Yield direct calls and jumps. Bytes may look like one in the middle of another instruction."""
    import re

    from ..stubs import CALL, JUMP, Branch

    for match in re.finditer(rb"(?:[\xe8\xe9]|\x0f[\x80-\x8f])(?=(.{4}))", span.code, re.DOTALL):
        at = span.address + match.start()
        kind = CALL if match[0] == b"\xe8" else JUMP
        yield Branch(at, at + len(match[0]) + 4 + signed(int.from_bytes(match[1], "little"), 32), kind)
