"""SPARC, 64 bits (V9) and 32 bits (V8, V8+): Sun's, Oracle's and Fujitsu's machines, big-endian.

Every instruction is one 32-bit word. A call is `call`, with the distance in words in 30 bits; a tail call is a `call`
too. What is peculiar is the delay slot: the instruction behind a branch is executed before the branch's target, so it
often holds the last step of preparing arguments. A site must come after it, and so a call's delay instruction moves to
the call's own place, with its relocation, and the NOP behind it.

The other peculiarity are register windows: `save` turns the caller's %o0...%o7 into %i0...%i7, `restore` turns them
back. A tail call either has `restore` in its delay slot, in a function that has a window of its own, or, in one that
hasn't, puts a return address it had saved elsewhere back into %o7 there.

Arguments are in %o0...%o5, the others on the stack, where the registers have homes: 64-bit slots counted from
%sp+2047+128, 32-bit ones from %sp+68. The stack pointer of 64-bit code is 2047 too low on purpose. With 32 bits an
argument of eight bytes takes two slots, wherever it begins. The return address is %o7+8, the result in %o0.

ABI: "SPARC Compliance Definition 2.4", 3 and appendix (64 bits); "System V ABI SPARC Processor Supplement" 3.
"""

from __future__ import annotations

from ..arguments import Convention, spell
from ..calls import PlaceRelocation, ProbeCalls, Replacement, StandIn, StubRelocation, signed, word, words
from ..numbers import EM_SPARC, EM_SPARC32PLUS, EM_SPARCV9

TYPE_CHECKING = False
if TYPE_CHECKING:
    import re

    from ..facts import Facts
    from ..stubs import FileCode, LibraryCalls

# Relocation types. Addresses in notes are aligned to four bytes only, hence the unaligned ones.
R_NONE, R_DISP32, R_WDISP30, R_PC10, R_PC22, R_WPLT30, R_UA32, R_DISP64, R_UA64 = 0, 6, 7, 16, 17, 18, 23, 46, 54

# Instruction words.
_CALL = 0x40000000
_NOP = 0x01000000  # sethi 0, %g0
_CLEAR = 0x90102000  # or %g0, 0, %o0
_RET = 0x81C7E008  # jmpl %i7 + 8, %g0
_RETL = 0x81C3E008  # jmpl %o7 + 8, %g0
_JUMP_BACK = 0x81C02008  # jmpl %g0 + 8, %g0; the register that holds the return address goes into bits 14-18
_SEMAPHORE = (
    0x8210000F,  # or %g0, %o7, %g1
    0x40000002,  # call .+8: %o7 becomes the address of this instruction
    0x11000000,  # sethi %pc22(semaphore + 4), %o0
    0x90122000,  # or %o0, %pc10(semaphore + 8), %o0
    0x913A2000,  # sra %o0, 0, %o0: extends the sign, in 64-bit registers
    0xD012000F,  # lduh [%o0 + %o7], %o0
    _NOP,
    0x81C06008,  # jmpl %g1 + 8, %g0
    _NOP,
)
_O7 = 15

_REGISTERS = tuple(f"%o{i}" for i in range(6))
_V9 = Convention(_REGISTERS, "[%sp+{}]", "[%sp]", 2047 + 128, 8, big=True)
_V8 = Convention(_REGISTERS, "[%sp+{}]", "[%sp]", 68, 4, big=True)


def machine(*, is64: bool, little: bool, flags: int) -> ProbeCalls:
    """Return SPARC with registers of 64 or 32 bits; the other parameters change nothing here."""
    convention = _V9 if is64 else _V8
    # Before a tail call's `restore` the arguments are still in the registers of the function's own window.
    own_window = convention._replace(registers=tuple(f"%i{i}" for i in range(6)), memory="[%fp+{}]", at_zero="[%fp]")
    return ProbeCalls(
        name="sparc64" if is64 else "sparc", none=R_NONE, absolute=R_UA64 if is64 else R_UA32,
        absolute32=R_UA32 if is64 else None, replace=_replace, stub=_stub,
        operands=lambda arguments, tail: spell(own_window if tail else convention, arguments),
        pc_relative=(PlaceRelocation(R_DISP64, 0, 0) if is64 else PlaceRelocation(R_DISP32, 4, 4),),
        pc_relative_bits=64 if is64 else 32,
    )  # fmt: skip


def _replace(
    code: memoryview, offset: int, type_: int, addend: int | None, enabled: bool, nop: str
) -> Replacement | None:
    """See `Calls.replace`; `tail` stands for a tail call whose arguments are in %i0...%i5."""
    if type_ not in {R_WDISP30, R_WPLT30} or addend or offset + 8 > len(code):
        return None
    delay = word(code, offset + 4, little=False)
    if word(code, offset, little=False) != _CALL:
        return None
    if delay & 0xC1F80000 == 0x81E80000:  # restore
        if enabled or _destination(delay):  # the result, or an argument that the restore itself computes
            return None
        return Replacement(offset, words(False, _RET, delay), offset, True)
    saved = _saved_return_address(delay)
    if saved:
        if enabled:
            return None
        return Replacement(offset, words(False, _JUMP_BACK | saved << 14, delay), offset, False)
    if not _may_move(delay):
        return None
    moved = words(False, delay, _CLEAR if enabled else _NOP)
    return Replacement(offset, moved, offset + 4, False, moved_relocations=((offset + 4, offset),))


def _destination(instruction: int) -> int:
    return instruction >> 25 & 31


def _saved_return_address(instruction: int) -> int:
    """Return the register that `or` copies to %o7, or 0; compilers write it as the first or the second operand."""
    if instruction & 0xFFF82000 != 0x80100000 | _O7 << 25:
        return 0
    first, second = instruction >> 14 & 31, instruction & 31
    return first | second if 0 in {first, second} else 0


def _may_move(instruction: int) -> bool:
    """Whether a delay instruction does the same before the call: is no branch, and doesn't touch %o7."""
    form = instruction >> 30
    if form == 0:  # sethi; everything else of this form is a branch or a trap
        return instruction >> 22 & 7 == 4 and _destination(instruction) != _O7
    if form == 1 or (form == 2 and instruction >> 19 & 63 >= 0x38):  # call; jmpl, return, trap, save, restore
        return False
    used = {_destination(instruction), instruction >> 14 & 31}
    if not instruction & 1 << 13:  # a second register, not an immediate value
        used.add(instruction & 31)
    return _O7 not in used


def _stub(enabled: bool, semaphore: bool, nop: str) -> StandIn:
    """See `Calls.stub`. A stub has no window of its own, so its arguments are in %o0...%o5."""
    if not enabled:
        return StandIn(words(False, _NOP, _RETL, _NOP), 0, 4, tail=False)
    if not semaphore:
        return StandIn(words(False, _CLEAR, _NOP, _RETL, _NOP), 4, 4, tail=False)
    # %o7 is the stub + 4, the two parts are counted from the instructions at +8 and +12.
    relocations = (StubRelocation(8, R_PC22, 4), StubRelocation(12, R_PC10, 8))
    return StandIn(words(False, *_SEMAPHORE), 24, 4, relocations, tail=False)


# -- facts ------------------------------------------------------------------------------------------------------------


def facts() -> dict[int, Facts]:
    """Return what is known beside probe calls, by machine number. Only who asks for it pays for it."""
    from ..facts import Facts, Operands, Relocations, Stopped

    # A return is by %i7 (`ret`), by %o7 (`retl`), or by the register that a function without a window has saved %o7
    # in: any
    # but the pointers to stack and frame.
    quiet = {f"{_NOP:08x}": "nop", f"{_RET:08x}": "ret", f"{_RETL:08x}": "retl"}
    quiet.update(
        (f"{_JUMP_BACK | number << 14:08x}", f"jmp %{'goli'[number // 8]}{number % 8}+8")
        for number in range(1, 31) if number not in {14, 15, 30}
    )  # fmt: skip
    integers = tuple(f"{kind}{n}" for kind in "goli" for n in range(8))
    singles = tuple(f"f{n}" for n in range(32))
    sparc = Facts(
        "sparc", 4, Operands(r"%(?:[goli][0-7]|sp|fp)", r"\[(?P<base>REG)(?P<front>[-+][0-9]{1,20})?\]"), Relocations(),
        quiet=quiet, clears={f"{_CLEAR:08x}": "mov 0, %o0"}, pairs=True,
        stopped=Stopped(
            spelled={"sp": "o6", "fp": "i6"}, zero=frozenset({"g0"}),
            # gdb's orders (gdb/sparc-tdep.c, sparc64-tdep.c, and qemu's gdb server, which describes none)
            layouts=(
                tuple((name, 4) for name in (*integers, *singles, "y", "psr", "wim", "tbr", "pc", "npc", "fsr", "csr")),
                (
                    *((name, 8) for name in integers), *((name, 4) for name in singles),
                    *((f"f{n}", 8) for n in range(32, 64, 2)),
                    *((name, 8) for name in ("pc", "npc", "state", "fsr", "fprs", "y")),
                ),
            ),
        ),
    )  # fmt: skip
    return {EM_SPARC: sparc, EM_SPARC32PLUS: sparc, EM_SPARCV9: sparc._replace(name="sparc64", pairs=False, page=8192)}


# -- calls into libraries ---------------------------------------------------------------------------------------------

# Beyond as many entries of the table, 4 reserved ones among them, there are blocks of code and of pointers (160 each),
# and the relocation names the pointer: a slot like other machines'.
_IN_PLACE = 32768 - 4


def stubs(code: FileCode) -> LibraryCalls:
    """Return what library calls look like: the dynamic linker writes the jump into the entry that is called.

    The table is code that can be written, and the relocation names the entry (SPARC Compliance Definition, P.6).
    """
    from ..stubs import Form, LibraryCalls, Word, branches, pattern, word

    # mold's, for slots that are filled at the start: the distance stands behind the code.
    near = pattern(
        False,
        Word(0x8A10000F),  # mov %o7, %g5
        Word(0x40000002),  # call .+8
        Word(0xC25BE014),  # ldx [%o7 + 0x14], %g1
        Word(0xC25BC001),  # ldx [%o7 + %g1], %g1
        Word(0x81C04000),  # jmp %g1
        Word(0x9E100005),  # mov %g5, %o7
        Word(0, 0),
        Word(0, 0),
    )

    # Of the entries in blocks: the pointer holds the distance of the function from the call.
    far = pattern(
        False,
        Word(0x8A10000F),  # mov %o7, %g5
        Word(0x40000002),  # call .+8
        Word(_NOP),
        Word(0xC25BE000, 0xFFFFE000),  # ldx [%o7 + pointer], %g1
        Word(0x83C3C001),  # jmpl %o7 + %g1, %g1
        Word(0x9E100005),  # mov %g5, %o7
    )

    def slot(match: re.Match[bytes], address: int, base: int) -> int:
        return (address + 4 + (word(match, 7, False) << 32) + word(match, 8, False)) & 0xFFFFFFFFFFFFFFFF

    def far_slot(match: re.Match[bytes], address: int, base: int) -> int:
        return address + 4 + signed(word(match, 4, False) & 0x1FFF, 13)

    # R_SPARC_JMP_SLOT; GLOB_DAT; JMP_IREL and IRELATIVE. The branch is call.
    forms = (Form(near, slot), Form(far, far_slot))
    return LibraryCalls(
        21, (20,), (248, 249), forms, lambda span: branches(span, False, 0x40000000, -1, 0xC0000000),
        in_place=_IN_PLACE if code.is64 else 1 << 32,
    )  # fmt: skip
