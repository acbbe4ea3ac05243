"""What takes a branch's place on each machine, as a disassembler reads it."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest


class Case(NamedTuple):
    """A branch with the relocation on it, and what it becomes.

    `before` is the code in hexadecimal; `place` the offset of the relocation in it. `addend` is None for SHT_REL.
    `after` is the disassembly of the whole code once patched, `site` the recorded offset, `tail` as in Replacement.
    """

    machine: str
    what: str
    before: str
    place: int
    type: int
    addend: int | None
    enabled: bool
    after: str
    site: int
    tail: bool = False


CALL, TAIL = False, True
CASES = (
    # -- i386; the bytes are x86-64's, whose own cases are those of every NOP style below ------------------------------
    Case("i386", "call", "e8 fcffffff", 1, 2, None, False, "nop; nopl (%eax)", 0),
    Case("i386", "call PLT", "e8 fcffffff", 1, 4, None, False, "nop; nopl (%eax)", 0),
    Case("i386", "jump", "e9 fcffffff", 1, 2, None, False, "nop; retl; nopl (%eax)", 0, TAIL),
    Case("i386", "jne", "0f85 fcffffff", 2, 2, None, False, "je 6; nop; retl; nop", 2, TAIL),
    Case("i386", "call *stub@GOT(%ebx)", "ff93 00000000", 2, 43, None, False, "nop; nopl (%eax, %eax)", 0),
    Case("i386", "jmp *stub@GOT(%ecx)", "ffa1 00000000", 2, 3, None, False, "nop; retl; nopl (%eax)", 0, TAIL),
    Case("i386", "is-enabled", "e8 fcffffff", 1, 2, None, True, "xorl %eax, %eax; nopl (%eax)", 2),
    Case("i386", "is-enabled jump", "e9 fcffffff", 1, 2, None, True, "xorl %eax, %eax; nop; retl; nop", 2, TAIL),
    # -- aarch64 -----------------------------------------------------------------------------------------------------
    Case("aarch64", "bl", "00000094", 0, 283, 0, False, "nop", 0),
    Case("aarch64", "b", "00000014", 0, 282, 0, False, "ret", 0, TAIL),
    Case("aarch64", "is-enabled", "00000094", 0, 283, 0, True, "mov w0, #0", 0),
    Case("aarch64_be", "bl: code is little-endian", "00000094", 0, 283, 0, False, "nop", 0),
    Case("aarch64 ilp32", "bl", "00000094", 0, 21, 0, False, "nop", 0),
    Case("aarch64 ilp32", "b", "00000014", 0, 20, 0, False, "ret", 0, TAIL),
    # -- ARM ---------------------------------------------------------------------------------------------------------
    Case("arm", "bl", "feffffeb", 0, 28, None, False, "mov r0, r0", 0),
    Case("arm", "bl, old relocation", "feffffeb", 0, 1, None, False, "mov r0, r0", 0),
    Case("arm", "bl PLT", "feffffeb", 0, 27, None, False, "mov r0, r0", 0),
    Case("arm", "b", "feffffea", 0, 29, None, False, "bx lr", 0, TAIL),
    Case("arm", "is-enabled", "feffffeb", 0, 28, None, True, "mov r0, #0", 0),
    Case("armeb", "bl", "ebfffffe", 0, 28, None, False, "mov r0, r0", 0),
    Case("thumb", "bl", "fff7feff", 0, 10, None, False, "mov r8, r8; mov r8, r8", 0),
    Case("thumb", "b.w", "fff7febf", 0, 30, None, False, "bx lr; mov r8, r8", 0, TAIL),
    Case("thumb", "beq.w", "3ff4feaf", 0, 51, None, False, "bne #4; bx lr", 2, TAIL),
    Case("thumb", "ble.w", "7ff7feaf", 0, 51, None, False, "bgt #4; bx lr", 2, TAIL),
    Case("thumb", "is-enabled", "fff7feff", 0, 10, None, True, "mov.w r0, #0", 0),
    Case("thumb", "is-enabled b.w", "fff7febf", 0, 30, None, True, "movs r0, #0; bx lr", 0, TAIL),
    Case("thumb", "bl behind an it block", "08bf 0120 fff7feff", 4, 10, None, False,
         "it eq; moveq r0, #1; mov r8, r8; mov r8, r8", 4),
    # -- PowerPC -----------------------------------------------------------------------------------------------------
    Case("ppc32", "bl", "48000001", 0, 10, 0, False, "nop", 0),
    Case("ppc32", "bl, hidden", "48000001", 0, 23, 0, False, "nop", 0),
    Case("ppc32", "bl PLT, -fPIC", "48000001", 0, 18, 0x8000, False, "nop", 0),
    Case("ppc32", "b", "48000000", 0, 10, 0, False, "blr", 0, TAIL),
    Case("ppc32", "is-enabled", "48000001", 0, 10, 0, True, "li r3, 0", 0),
    Case("ppc64", "bl, TOC slot kept", "48000001 60000000", 0, 10, 0, False, "nop; nop", 0),
    Case("ppc64le", "bl", "01000048 00000060", 0, 10, 0, False, "nop; nop", 0),
    Case("ppc64le", "bl, power10", "01000048", 0, 116, 0, False, "nop", 0),
    Case("ppc64le", "b, power10", "00000048", 0, 116, 0, False, "blr", 0, TAIL),
    Case("ppc64le", "is-enabled", "01000048", 0, 116, 0, True, "li r3, 0", 0),
    # -- s390x -------------------------------------------------------------------------------------------------------
    Case("s390x", "brasl", "c0e500000000", 2, 20, 2, False, "brcl 0, 0", 0),
    Case("s390x", "jg", "c0f400000000", 2, 20, 2, False, "bc 0, 0; br %r14", 0, TAIL),
    Case("s390x", "jgh", "c02400000000", 2, 19, 2, False, "jnh 6; br %r14", 4, TAIL),
    Case("s390x", "is-enabled", "c0e500000000", 2, 20, 2, True, "lghi %r2, 0; bcr 0, %r0", 4),
    Case("s390x", "is-enabled jg", "c0f400000000", 2, 20, 2, True, "lghi %r2, 0; br %r14", 4, TAIL),
    # -- RISC-V ------------------------------------------------------------------------------------------------------
    Case("riscv64", "call", "97000000 e7800000", 0, 19, 0, False, "nop; nop", 0),
    Case("riscv64", "call, old relocation", "97000000 e7800000", 0, 18, 0, False, "nop; nop", 0),
    Case("riscv64", "tail", "17030000 67000300", 0, 19, 0, False, "nop; ret", 0, TAIL),
    Case("riscv64", "is-enabled", "97000000 e7800000", 0, 19, 0, True, "mv a0, zero; nop", 4),
    Case("riscv64", "is-enabled tail", "17030000 67000300", 0, 19, 0, True, "mv a0, zero; ret", 4, TAIL),
    Case("riscv32", "call", "97000000 e7800000", 0, 19, 0, False, "nop; nop", 0),
    # -- SPARC -------------------------------------------------------------------------------------------------------
    Case("sparc64", "call; nop", "40000000 01000000", 0, 18, 0, False, "nop; nop", 4),
    Case("sparc64", "call; mov 5, %o0", "40000000 90102005", 0, 7, 0, False, "mov 5, %o0; nop", 4),
    Case("sparc64", "call; ldsw", "40000000 d047a7f7", 0, 18, 0, False, "ldsw [%fp+0x7f7], %o0; nop", 4),
    Case("sparc64", "call; restore", "40000000 81e80000", 0, 18, 0, False, "ret; restore", 0, TAIL),
    Case("sparc64", "call; mov %g1, %o7", "40000000 9e100001", 0, 18, 0, False, "jmp %g1+8; mov %g1, %o7", 0),
    Case("sparc64", "gcc's spelling of it", "40000000 9e104000", 0, 18, 0, False, "jmp %g1+8; or %g1, %g0, %o7", 0),
    Case("sparc64", "is-enabled", "40000000 d027a7fb", 0, 18, 0, True, "st %o0, [%fp+0x7fb]; mov 0, %o0", 4),
    Case("sparc", "call; nop", "40000000 01000000", 0, 7, 0, False, "nop; nop", 4),
    # -- MIPS --------------------------------------------------------------------------------------------------------
    Case("mips", "jal; nop", "0c000000 00000000", 0, 4, None, False, "nop; nop", 4),
    Case("mips", "jal; li $a0, 5", "0c000000 24040005", 0, 4, None, False, "addiu $a0, $zero, 5; nop", 4),
    Case("mips", "jalr $25", "0320f809 8fa40020", 0, 37, None, False, "lw $a0, 0x20($sp); nop", 4),
    Case("mips", "j; nop", "08000000 00000000", 0, 4, None, False, "jr $ra; nop", 0, TAIL),
    Case("mips", "jr $25; nop", "03200008 00000000", 0, 37, None, False, "jr $ra; nop", 0, TAIL),
    Case("mips", "is-enabled", "0c000000 24040005", 0, 4, None, True, "addiu $a0, $zero, 5; move $v0, $zero", 4),
    Case("mipsel", "jal; nop", "0000000c 00000000", 0, 4, None, False, "nop; nop", 4),
    Case("mips64el", "jalr $25", "09f82003 2028a000", 0, 37, 0, False, "add $a1, $a1, $zero; nop", 4),
    Case("mips r6", "jr $25; nop", "09002003 00000000", 0, 37, None, False, "jr $ra; nop", 0, TAIL),
    # -- LoongArch ---------------------------------------------------------------------------------------------------
    Case("loongarch64", "bl", "00000054", 0, 66, 0, False, "nop", 0),
    Case("loongarch64", "b", "00000050", 0, 66, 0, False, "ret", 0, TAIL),
    Case("loongarch64", "call36", "0100001e 2100004c", 0, 110, 0, False, "nop; nop", 0),
    Case("loongarch64", "tail36", "1400001e 8002004c", 0, 110, 0, False, "nop; ret", 0, TAIL),
    Case("loongarch64", "is-enabled", "00000054", 0, 66, 0, True, "move $a0, $zero", 0),
    Case("loongarch64", "is-enabled call36", "0100001e 2100004c", 0, 110, 0, True, "move $a0, $zero; nop", 4),
    Case("loongarch64", "is-enabled tail36", "1400001e 8002004c", 0, 110, 0, True, "move $a0, $zero; ret", 4, TAIL),
)  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.machine} {case.what}")
def test_branch_becomes_what_the_table_says(case: Any, machine: Any, disassemble: Any) -> None:
    code = bytearray.fromhex(case.before)
    found = machine(case.machine).replace(memoryview(code), case.place, case.type, case.addend, case.enabled, "safe")
    assert found is not None
    code[found.start : found.start + len(found.code)] = found.code
    assert disassemble(case.machine, bytes(code)) == case.after
    assert (found.site, found.tail) == (case.site, case.tail)


# keystone's architecture and mode of each machine. It has no RISC-V and no LoongArch; of x86 it encodes long NOPs
# wrongly, and test_x86_64.py assembles the other rows.
KEYSTONE = {
    "aarch64": "ARM64 LITTLE_ENDIAN", "aarch64_be": "ARM64 LITTLE_ENDIAN", "aarch64 ilp32": "ARM64 LITTLE_ENDIAN",
    "arm": "ARM ARM", "armeb": "ARM ARM BIG_ENDIAN", "thumb": "ARM THUMB", "ppc32": "PPC PPC32 BIG_ENDIAN",
    "ppc64": "PPC PPC64 BIG_ENDIAN", "ppc64le": "PPC PPC64", "s390x": "SYSTEMZ BIG_ENDIAN",
    "sparc64": "SPARC SPARC64 BIG_ENDIAN", "sparc": "SPARC SPARC32 BIG_ENDIAN", "mips": "MIPS MIPS32 BIG_ENDIAN",
    "mipsel": "MIPS MIPS32", "mips64": "MIPS MIPS64 BIG_ENDIAN", "mips64el": "MIPS MIPS64",
}  # fmt: skip


@pytest.mark.parametrize(
    "case", [case for case in CASES if case.machine in KEYSTONE], ids=lambda case: f"{case.machine} {case.what}"
)
def test_what_the_disassembler_says_assembles_to_the_same_bytes(case: Any, machine: Any) -> None:
    keystone = pytest.importorskip("keystone")
    text = case.after
    if case.machine.startswith("ppc"):
        text = text.replace("r3", "3")  # registers are bare numbers
    if case.machine.startswith("mips"):
        text = ".set noreorder; " + text
    text = text.replace("bc 0, 0", ".4byte 0x47000000")  # a mnemonic that keystone lacks
    architecture, *modes = KEYSTONE[case.machine].split()
    mode = sum(getattr(keystone, f"KS_MODE_{word}") for word in modes)
    found = machine(case.machine).replace(
        memoryview(bytes.fromhex(case.before)), case.place, case.type, case.addend, case.enabled, "safe"
    )
    code = bytearray.fromhex(case.before)
    code[found.start : found.start + len(found.code)] = found.code
    made, _ = keystone.Ks(getattr(keystone, f"KS_ARCH_{architecture}"), mode).asm(text)
    assert bytes(made) == bytes(code)


def test_every_machine_has_rows(kinds: Any) -> None:
    """x32 and x86-64 have theirs in test_x86_64.py; the others of one family share a table and differ in byte order."""
    tested = {case.machine for case in CASES}
    assert set(kinds) - tested == {"x86-64", "x32", "mips64", "mips n32"}
    assert tested - set(KEYSTONE) == {"i386", "riscv64", "riscv32", "loongarch64", "mips r6"}


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.machine} {case.what}")
def test_neither_start_nor_end_of_a_section_matters(case: Any, machine: Any) -> None:
    """Other code around it changes nothing, and code cut short is no branch."""
    choose = machine(case.machine)
    arguments = (case.type, case.addend, case.enabled, "safe")
    code = bytes.fromhex(case.before)
    alone = choose.replace(memoryview(code), case.place, *arguments)
    around = bytes(16) + code + bytes(16)
    moved = choose.replace(memoryview(around), case.place + 16, *arguments)
    assert moved.code == alone.code
    assert (moved.start - 16, moved.site - 16) == (alone.start, alone.site)
    assert choose.replace(memoryview(code)[: case.place + 3], case.place, *arguments) is None


REFUSED = (
    # No branch to the stub's first byte, or one whose condition a site would not see: these go to a stub.
    Case("i386", "call with another distance", "e8 00000000", 1, 2, None, False, "", 0),
    Case("i386", "call through a SIB byte", "ff94 00000000", 2, 43, None, False, "", 0),
    Case("i386", "lea", "8d83 00000000", 2, 9, None, False, "", 0),
    Case("aarch64", "is-enabled b: two instructions don't fit", "00000014", 0, 282, 0, True, "", 0),
    Case("aarch64", "bl stub+4", "00000094", 0, 283, 4, False, "", 0),
    Case("aarch64", "adrp", "00000090", 0, 275, 0, False, "", 0),
    Case("arm", "blne", "feffff1b", 0, 29, None, False, "", 0),
    Case("arm", "bne", "feffff1a", 0, 29, None, False, "", 0),
    Case("arm", "bl elsewhere", "ffffffeb", 0, 28, None, False, "", 0),
    Case("thumb", "bleq in an it block", "08bf fff7feff", 2, 10, None, False, "", 0),
    Case("thumb", "beq.w at an it block's end", "04bf 0120 fff7febf", 4, 30, None, False, "", 0),
    Case("thumb", "blxne behind a wide instruction", "1cbf 4ff00100 fff7feff", 6, 10, None, False, "", 0),
    Case("thumb", "is-enabled beq.w", "3ff4feaf", 0, 51, None, True, "", 0),
    Case("ppc32", "bl stub+4", "48000001", 0, 10, 4, False, "", 0),
    Case("ppc32", "beq", "41820000", 0, 11, 0, False, "", 0),
    Case("ppc64le", "is-enabled b", "00000048", 0, 116, 0, True, "", 0),
    Case("s390x", "larl", "c02000000000", 2, 19, 2, False, "", 0),
    Case("s390x", "brasl %r1", "c01500000000", 2, 19, 2, False, "", 0),
    Case("s390x", "is-enabled jgh", "c02400000000", 2, 19, 2, True, "", 0),
    Case("riscv64", "call t0", "97020000 e7820200", 0, 19, 0, False, "", 0),
    Case("riscv64", "pair of two registers", "97000000 e7000300", 0, 19, 0, False, "", 0),
    Case("sparc64", "restore that computes an argument", "40000000 91e82005", 0, 18, 0, False, "", 0),
    Case("sparc64", "delay slot reads %o7", "40000000 9002000f", 0, 18, 0, False, "", 0),
    Case("sparc64", "delay slot branches", "40000000 10800004", 0, 18, 0, False, "", 0),
    Case("sparc64", "is-enabled tail call", "40000000 81e80000", 0, 18, 0, True, "", 0),
    Case("mips", "j with a busy delay slot", "08000000 24040005", 0, 4, None, False, "", 0),
    Case("mips", "jr $25 that pops the frame", "03200008 27bd0020", 0, 37, None, False, "", 0),
    Case("mips", "delay slot reads $31", "0c000000 03e02025", 0, 4, None, False, "", 0),
    Case("mips", "lw $25, the load that stays", "8f990000 00000000", 0, 9, None, False, "", 0),
    Case("loongarch64", "is-enabled b", "00000050", 0, 66, 0, True, "", 0),
    Case("loongarch64", "pair of two registers", "0100001e 2102004c", 0, 110, 0, False, "", 0),
)  # fmt: skip


@pytest.mark.parametrize("case", REFUSED, ids=lambda case: f"{case.machine} {case.what}")
def test_everything_else_is_left_to_a_stub(case: Any, machine: Any) -> None:
    code = memoryview(bytes.fromhex(case.before))
    found = machine(case.machine).replace(code, case.place, case.type, case.addend, case.enabled, "safe")
    assert found is None


@pytest.mark.parametrize("name", ["sparc64", "mips", "mips64el"])
def test_instruction_from_a_delay_slot_takes_its_relocation_along(name: Any, machine: Any, kinds: Any) -> None:
    before = {"sparc64": "40000000 90122000", "mips": "0c000000 24840000", "mips64el": "0000000c 00008464"}[name]
    type_, addend = {"sparc64": (18, 0), "mips": (4, None), "mips64el": (4, 0)}[name]
    code = memoryview(bytes(8) + bytes.fromhex(before))
    found = machine(name).replace(code, 8, type_, addend, False, "safe")
    assert found.moved_relocations == ((12, 8),)
    assert found.code[:4] == bytes(code[12:16])


@pytest.mark.parametrize("name", ["riscv64", "loongarch64"])
def test_mark_for_relaxation_is_neutralised_with_the_call(name: Any, machine: Any) -> None:
    code = {"riscv64": "97000000 e7800000", "loongarch64": "0100001e 2100004c"}[name]
    found = machine(name).replace(memoryview(bytes.fromhex(code)), 0, {"riscv64": 19}.get(name, 110), 0, False, "safe")
    assert found.extra_relocations == (0,)
