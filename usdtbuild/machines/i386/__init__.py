"""i386: the 32-bit PC, as System V's psABI for it has it; all x86 before 2003, and 32-bit programs since.

Branches are those of x86-64 (`e8`, `e9`, `0f 80`...), since both are one instruction set. What differs: relocations
carry no addend of their own (SHT_REL), so it is the four bytes that are relocated; there is no addressing relative to
the instruction pointer, so the way to the global offset table is a register, `ff 90`...`ff 97` (call) and `ff a0`...
`ff a7` (jump) with a 32-bit displacement; and every argument is on the stack, in 4-byte slots: at a call the first is
at 0(%esp), behind a return address at 4(%esp). The result is in eax; a call may change eax, ecx, edx and the flags.

ABI: https://gitlab.com/x86-psABIs/i386-ABI, 2.2.3 (parameters), table 4.9 (relocation types).
"""

from __future__ import annotations

from ...options import CLASSIC
from .. import x86_64
from ..arguments import Convention, spell
from ..calls import PlaceRelocation, ProbeCalls, Replacement, StandIn, StubRelocation
from ..numbers import EM_386, EM_X86_64
from .code import CODE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Container, Iterator

    from ..facts import Facts
    from ..stubs import Branch, CodeSpan, FileCode, LibraryCalls

# Relocation types.
R_NONE, R_32, R_PC32, R_GOT32, R_PLT32, R_GOT32X = 0, 1, 2, 3, 4, 43

_LANDING_PAD = CODE["landing_pad"][0]

_ESP = Convention((), "{}(%esp)", "0(%esp)", 0, 4)
_AT_CALL, _BEHIND_RETURN_ADDRESS = _ESP, _ESP._replace(stack=4)


def machine(*, is64: bool, little: bool, flags: int) -> ProbeCalls:
    """Return i386; the parameters only exist for machines that come in several kinds."""
    return ProbeCalls(
        name="i386", none=R_NONE, absolute=R_32, replace=_replace, stub=_stub, operands=_operands,
        pc_relative=(PlaceRelocation(R_PC32, 0, 0),), pc_relative_bits=32,
        branched=0, wide_registers=False,
    )  # fmt: skip


def _replace(
    code: memoryview, offset: int, type_: int, addend: int | None, enabled: bool, nop: str
) -> Replacement | None:
    if offset < 1 or offset + 4 > len(code):
        return None
    if addend is None:
        addend = int.from_bytes(code[offset : offset + 4], "little", signed=True)
    if type_ in {R_PC32, R_PLT32}:
        direct = x86_64.R_PLT32 if type_ == R_PLT32 else x86_64.R_PC32
        found = x86_64.replace(code, offset, direct, addend, enabled, nop)
    elif type_ in {R_GOT32X, R_GOT32} and addend == 0 and offset >= 2 and code[offset - 2] == 0xFF:
        # ModRM: 10 010 rm is a call through memory at rm + disp32, 10 100 rm a jump; rm 4 would be a SIB byte.
        modrm = code[offset - 1]
        form = {0x90: "got_call", 0xA0: "got_tail"}.get(modrm & 0xF8) if modrm & 7 != 4 else None
        found = x86_64.from_table(form, offset - 2, enabled, nop) if form else None
    else:
        found = None
    if found and enabled and nop == CLASSIC:
        return _with_short_xor(code, found)
    return found


def _with_short_xor(code: memoryview, found: Replacement) -> Replacement:
    """Return the classic is-enabled form without REX prefix; a conditional jump has no classic form of its own."""
    if len(found.code) == 6 and code[found.start] == 0x0F:
        return found
    form = ("got_" if len(found.code) == 6 else "") + ("tail" if found.tail else "call")
    classic, site = CODE[f"enabled_{form}_classic"]
    return found._replace(code=classic, site=found.start + site)


def _stub(enabled: bool, semaphore: bool, nop: str) -> StandIn:
    """See `Calls.stub`.

    The semaphore's address is found by a call to the next instruction, which processors with a shadow stack take for
    no call; an absolute address would need a text relocation in a shared library.
    """
    if not (enabled and semaphore):
        return x86_64.stub(enabled, semaphore, nop, _LANDING_PAD)
    code, place = CODE["read_semaphore"]
    body = _LANDING_PAD + code
    # The displacement counts from the pop, 4 bytes before it.
    relocation = StubRelocation(len(_LANDING_PAD) + place, R_PC32, 4)
    end, _ = CODE["return" if nop == CLASSIC else "nop_return"]
    return StandIn(body + end, len(body), 16, (relocation,))


def _operands(arguments: tuple[tuple[int, bool], ...], tail: bool) -> tuple[str | None, ...]:
    """See `Calls.operands`: `-4@0(%esp)`, `8@4(%esp)`."""
    return spell(_BEHIND_RETURN_ADDRESS if tail else _AT_CALL, arguments)


# -- facts ------------------------------------------------------------------------------------------------------------


def facts() -> dict[int, Facts]:
    """Return what is known beside probe calls, by machine number. Only who asks for it pays for it."""
    from ..facts import Passing, Relocations, Stopped

    other = x86_64.facts()[EM_X86_64]
    usual = other.entries(True, True)
    assert usual is not None
    entries = usual._replace(
        name="i386", pads=((_LANDING_PAD, "endbr32"),), emulator="qemu-i386", hosts=("i686", "x86_64"),
        told_by=lambda macros, little: "__i386__" in macros,
    )  # fmt: skip
    return {
        EM_386: other._replace(
            name="i386", overwritten=None,
            relocations=Relocations(8, R_32, R_PC32, branches={R_PC32: 4, R_PLT32: 4, 23: 1}),  # R_386_PC8
            passing=Passing((), stack="{}(%esp)", first=4, pushed=4, results=("%eax", "")),  # psABI, 2.2.3
            disassembler=lambda is64, little, thumb: (("CS_ARCH_X86",), ("CS_MODE_32",)),
            entries=lambda is64, little: entries if little else None,
            stopped=Stopped(
                "eip", x86_64.parts("e"), {f"{letter}h": f"e{letter}x" for letter in "abcd"},
                trap=lambda code: len(x86_64.INT3), stack="esp", call=6, below=1,
            ),
        )
    }  # fmt: skip


# -- calls into libraries ---------------------------------------------------------------------------------------------

# Position-independent code begins with a call of a function that returns its return address (clang: of the next
# instruction, which pops it), and add $distance,%reg.
_TAKES_GOT = rb"\xe8.{4}[\x58-\x5f]?(?=(?:\x81[\xc0-\xc3\xc5-\xc7]|\x05)(.{4}))"


def stubs(code: FileCode) -> LibraryCalls:
    """Return what library calls look like: the stub names its slot, or in PIC counts from the GOT's address in ebx."""
    import re

    from ..stubs import Form, LibraryCalls

    lead = rb"(?:\xf3\x0f\x1e\xfb)?\xf2?"  # endbr32, bnd
    numbered = rb"\xb9.{4}"  # mold's: the slot's number goes into ecx; without endbr32 they end in int3

    def slot(match: re.Match[bytes], address: int, base: int) -> int:
        return (base + int.from_bytes(match[1], "little")) & 0xFFFFFFFF

    forms = tuple(
        Form(re.compile(pattern, re.DOTALL), slot, 8, based)
        for jump, based in ((rb"\xff\x25(.{4})", False), (rb"\xff\xa3(.{4})", True))
        for pattern in (
            lead + jump + x86_64.STUB_END,
            rb"\xf3\x0f\x1e\xfb" + numbered + jump,
            numbered + jump + rb"\xcc{4}",
        )
    )
    # R_386_JUMP_SLOT; GLOB_DAT; IRELATIVE
    return LibraryCalls(
        7, (6,), (42,), forms, x86_64.sites, lambda span: _slot_sites(span, {value for _, value in _bases(code)}),
        lambda: _bases(code), carried=lambda slots: _carried(code, slots),
    )  # fmt: skip


def _carried(code: FileCode, slots: Container[int]) -> Iterator[Branch]:
    """Yield calls by a register that was loaded from a slot: mov or cmov slot,%register, or distance(%register)."""
    import re

    from ..x86_64.loads import Loads, SlotLoad

    pattern = rb"(?:\xa1|(?:\x8b|\x0f[\x40-\x4f])([\x05\x0d\x15\x1d\x25\x2d\x35\x3d\x80-\xbf]))(.{4})"
    tables = {value for _, value in _bases(code)}
    loads = []
    for span in code.spans:
        for match in re.finditer(pattern, span.code, re.DOTALL):
            form = match[1][0] if match[1] else 5
            if form >= 0x80 and form & 7 == 4:
                continue
            for base in tables if form >= 0x80 else (0,):
                slot = base + int.from_bytes(match[2], "little") & 0xFFFFFFFF
                if slot in slots:
                    loads.append(SlotLoad(span.address + match.end(), form >> 3 & 7, slot))
    return Loads(code, EM_386).sites(loads)


def _bases(code: FileCode) -> list[tuple[int, int]]:
    """Return where code takes the address of the global offset table, which for most linkers is DT_PLTGOT."""
    import re

    found = [(0, code.tags[3])] if 3 in code.tags else []
    for span in code.spans:
        for match in re.finditer(_TAKES_GOT, span.code, re.DOTALL):
            value = (span.address + match.start() + 5 + int.from_bytes(match[1], "little")) & 0xFFFFFFFF
            if code.pointer(value) is not None and not code.executable(value):
                found.append((span.address + match.start(), value))
    return found


def _slot_sites(span: CodeSpan, tables: set[int]) -> Iterator[Branch]:
    """Yield calls and jumps through a slot, which -fno-plt makes of a call: the slot's address, or GOT and distance."""
    import re

    from ..stubs import CALL, JUMP, Branch

    pattern = rb"\xff(?=[\x15\x25\x90-\x93\x95-\x97\xa0-\xa3\xa5-\xa7](.{4}))"
    for match in re.finditer(pattern, span.code, re.DOTALL):
        form = span.code[match.start() + 1]
        kind = CALL if form & 0x38 == 0x10 else JUMP
        for base in (0,) if form in {0x15, 0x25} else tables:
            target = (base + int.from_bytes(match[1], "little")) & 0xFFFFFFFF
            yield Branch(span.address + match.start(), target, kind, slot=True)
