"""The stubs of each machine, as a disassembler reads them, and assembled again where keystone is right."""

from __future__ import annotations

from typing import Any

import pytest

# Machine -> what the three stubs are: of a probe, of an is-enabled test that reads a semaphore, of one that doesn't.
# Distances to the semaphore are 0 here: the linker fills them. The semaphore stub ends before its literals.
# capstone 5 takes ppc's `bcl 20, 31, .+4` (429f0005) for `bdnzl`.
STUBS = {
    "x86-64": ("endbr64; nop; retq", "endbr64; movzwl (%rip), %eax; nop; retq", "endbr64; xorl %eax, %eax; nop; retq"),
    "i386": (
        "endbr32; nop; retl", "endbr32; calll 9; popl %ecx; movzwl (%ecx), %eax; nop; retl",
        "endbr32; xorl %eax, %eax; nop; retl",
    ),
    "aarch64": (
        "bti c; nop; ret", "bti c; adrp x0, #0; ldrh w0, [x0]; nop; ret", "bti c; mov w0, #0; nop; ret",
    ),
    "arm": (
        "mov r0, r0; bx lr", "ldr r0, [pc, #0xc]; add r0, pc, r0; ldrh r0, [r0]; mov r0, r0; bx lr",
        "mov r0, #0; mov r0, r0; bx lr",
    ),
    "ppc32": (
        "nop; blr", "mflr r0; bdnzl 8; mflr r3; mtlr r0; addis r3, r3, 0; lhz r3, 0(r3); nop; blr",
        "li r3, 0; nop; blr",
    ),
    "s390x": (
        "bcr 0, %r0; br %r14", "larl %r1, 0; llgh %r2, 0(%r1); bcr 0, %r0; br %r14",
        "lghi %r2, 0; bcr 0, %r0; br %r14",
    ),
    "riscv64": ("nop; ret", "auipc a0, 0; lhu a0, 0(a0); nop; ret", "mv a0, zero; nop; ret"),
    "sparc64": (
        "nop; retl; nop",
        "mov %o7, %g1; call 0xc; sethi 0, %o0; or %o0, 0, %o0; sra %o0, 0, %o0; lduh [%o0+%o7], %o0; nop; "
        "jmp %g1+8; nop",
        "mov 0, %o0; nop; retl; nop",
    ),
    "mips": (
        "nop; jr $ra; nop",
        "move $t8, $ra; bal 0xc; nop; lw $v0, 0x1c($ra); nop; addu $v0, $v0, $ra; lhu $v0, ($v0); nop; jr $t8; nop",
        "move $v0, $zero; nop; jr $ra; nop",
    ),
    "mips64": (
        "nop; jr $ra; nop",
        "move $t8, $ra; bal 0xc; nop; lw $v0, 0x1c($ra); nop; daddu $v0, $v0, $ra; lhu $v0, ($v0); nop; jr $t8; nop",
        "move $v0, $zero; nop; jr $ra; nop",
    ),
    "loongarch64": ("nop; ret", "pcalau12i $a0, 0; ld.hu $a0, $a0, 0; nop; ret", "move $a0, $zero; nop; ret"),
}  # fmt: skip
SAME = {
    "ppc64": "ppc32", "ppc64le": "ppc32", "armeb": "arm", "riscv32": "riscv64", "sparc": "sparc64", "mipsel": "mips",
    "mips64el": "mips64", "mips n32": "mips64", "aarch64_be": "aarch64", "aarch64 ilp32": "aarch64", "x32": "x86-64",
}  # fmt: skip
ALL = {**STUBS, **{name: STUBS[like] for name, like in SAME.items()}}
WAYS = {"probe": (False, False), "semaphore": (True, True), "no semaphore": (True, False)}


def literals(stub: Any) -> Any:
    """Where the words begin that are no code."""
    return min((offset for name, offset in stub.mapping if name == "$d"), default=len(stub.code))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", ALL)
def test_stub_is_what_it_should_be(name: Any, way: Any, machine: Any, disassemble: Any) -> None:
    stub = machine(name).stub(*WAYS[way], "safe")
    end = 40 if name.startswith("mips") and way == "semaphore" else literals(stub)
    assert disassemble(name, stub.code[:end]) == ALL[name][list(WAYS).index(way)]
    assert stub.entry == 0


# Machine -> the is-enabled stubs that hand DTrace a pointer to the answer: with a semaphore, and without one.
ASKING = {
    "x86-64": (
        "endbr64; movzwl (%rip), %eax; pushq %rax; movq %rsp, %rdi; nop; popq %rax; nop; retq",
        "endbr64; xorl %eax, %eax; pushq %rax; movq %rsp, %rdi; nop; popq %rax; nop; retq",
    ),
    "aarch64": (
        "bti c; adrp x0, #0; ldrh w0, [x0]; str x0, [sp, #-0x10]!; mov x0, sp; nop; ldr x0, [sp], #0x10; nop; ret",
        "bti c; mov w0, #0; str x0, [sp, #-0x10]!; mov x0, sp; nop; ldr x0, [sp], #0x10; nop; ret",
    ),
}


@pytest.mark.parametrize("semaphore", [True, False])
@pytest.mark.parametrize("name", ASKING)
def test_asking_stub_is_what_it_should_be(name: Any, semaphore: Any, machine: Any, disassemble: Any) -> None:
    """Its first site has the pointer, its second, behind which only the return is left, the answer."""
    stub = machine(name).asking_stub(semaphore, "safe")
    assert disassemble(name, stub.code) == ASKING[name][not semaphore]
    assert disassemble(name, stub.code[stub.asks :]).startswith("nop; " + {"x86-64": "popq"}.get(name, "ldr"))
    assert disassemble(name, stub.code[stub.site :]) in {"nop; ret", "nop; retq"}
    assert bool(stub.relocations) is semaphore


def test_other_machines_have_no_asking_stub(machine: Any) -> None:
    assert {name for name in ALL if machine(name).asking_stub} == {"x86-64", "aarch64", "aarch64_be"}


@pytest.mark.parametrize("way", WAYS)
def test_thumb_stub_is_thumb(way: Any, machine: Any, disassemble: Any) -> None:
    stub = machine("thumb").thumb_stub(*WAYS[way], "safe")
    expected = {
        "probe": "mov r8, r8; bx lr",
        "semaphore": "ldr r0, [pc, #8]; add r0, pc; ldrh r0, [r0]; mov r8, r8; bx lr; mov r8, r8",
        "no semaphore": "movs r0, #0; mov r8, r8; bx lr",
    }[way]
    assert disassemble("thumb", stub.code[: literals(stub)]) == expected
    assert stub.entry == 1
    assert ("$t", 0) in stub.mapping


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", ALL)
def test_site_of_a_stub_is_its_nop(name: Any, way: Any, machine: Any, disassemble: Any) -> None:
    """Where an is-enabled test is answered, the site comes after the answer, so that a tracer may change it."""
    stub = machine(name).stub(*WAYS[way], "safe")
    size = {"x86-64": 1, "x32": 1, "i386": 1, "s390x": 2}.get(name, 4)
    text = disassemble(name, stub.code[stub.site : stub.site + size])
    assert text in {"nop", "mov r0, r0", "bcr 0, %r0"}


@pytest.mark.parametrize("name", ALL)
def test_only_a_semaphore_needs_relocations(name: Any, machine: Any) -> None:
    choose = machine(name)
    assert not choose.stub(False, True, "safe").relocations
    assert not choose.stub(True, False, "safe").relocations
    stub = choose.stub(True, True, "safe")
    assert stub.relocations
    assert all(relocation.offset < len(stub.code) for relocation in stub.relocations)


# keystone's architecture and mode, and the words of the probe's stub as it is told to assemble them. It has no RISC-V
# and no LoongArch, and knows no `jgnop` of s390x (it assembles the distance from the instruction's end).
ASSEMBLED = {
    "aarch64": ("ARM64", "LITTLE_ENDIAN", "bti c; nop; ret"),
    "arm": ("ARM", "ARM", "mov r0, r0; bx lr"),
    "ppc64": ("PPC", "PPC64 BIG_ENDIAN", "nop; blr"),
    "s390x": ("SYSTEMZ", "BIG_ENDIAN", "bcr 0, %r0; br %r14"),
    "sparc": ("SPARC", "SPARC32 BIG_ENDIAN", "nop; retl; nop"),
    "mips": ("MIPS", "MIPS32 BIG_ENDIAN", "nop; jr $ra; nop"),
    "mips64el": ("MIPS", "MIPS64 LITTLE_ENDIAN", "nop; jr $ra; nop"),
    "x86-64": ("X86", "64", "endbr64; nop; ret"),
    "i386": ("X86", "32", "endbr32; nop; ret"),
}


@pytest.mark.parametrize("name", ASSEMBLED)
def test_probe_stub_assembles_to_itself(name: Any, machine: Any) -> None:
    keystone = pytest.importorskip("keystone")
    architecture, modes, text = ASSEMBLED[name]
    mode = sum(getattr(keystone, f"KS_MODE_{word}") for word in modes.split())
    stub = machine(name).stub(False, False, "safe")
    younger = {"bti c": ".4byte 0xd503245f", "endbr64": ".4byte 0xfa1e0ff3", "endbr32": ".4byte 0xfb1e0ff3"}
    for instruction, data in younger.items():  # than keystone
        text = text.replace(instruction, data)
    assembler = keystone.Ks(getattr(keystone, f"KS_ARCH_{architecture}"), mode)
    if name.startswith("mips"):
        text = ".set noreorder; " + text
    assert bytes(assembler.asm(text)[0]) == stub.code
