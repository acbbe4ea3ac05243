"""The instructions that may stand at a site: each table row is disassembled by capstone."""

from __future__ import annotations

import capstone
import pytest

from usdtbuild.inspection import site_code
from usdtbuild.machines import facts_of, known_numbers
from usdtbuild.machines.facts import Facts
from usdtbuild.machines.numbers import (
    EM_AARCH64,
    EM_ARM,
    EM_LOONGARCH,
    EM_MIPS,
    EM_PPC,
    EM_PPC64,
    EM_RISCV,
    EM_S390,
    EM_SPARC,
    EM_SPARC32PLUS,
    EM_SPARCV9,
    EM_X86_64,
)

LITTLE, BIG = capstone.CS_MODE_LITTLE_ENDIAN, capstone.CS_MODE_BIG_ENDIAN
MACHINES = {
    EM_AARCH64: (capstone.CS_ARCH_ARM64, LITTLE),
    EM_ARM: (capstone.CS_ARCH_ARM, LITTLE),
    EM_PPC: (capstone.CS_ARCH_PPC, capstone.CS_MODE_32 | BIG),
    EM_PPC64: (capstone.CS_ARCH_PPC, capstone.CS_MODE_64 | BIG),
    EM_S390: (capstone.CS_ARCH_SYSZ, BIG),
    EM_RISCV: (capstone.CS_ARCH_RISCV, capstone.CS_MODE_RISCV64 | capstone.CS_MODE_RISCVC),
    EM_SPARC: (capstone.CS_ARCH_SPARC, BIG),
    EM_SPARC32PLUS: (capstone.CS_ARCH_SPARC, capstone.CS_MODE_V9 | BIG),
    EM_SPARCV9: (capstone.CS_ARCH_SPARC, capstone.CS_MODE_V9 | BIG),
    EM_MIPS: (capstone.CS_ARCH_MIPS, capstone.CS_MODE_MIPS32 | BIG),
}
# capstone's words for some rows differ from the manuals'
SAME = {
    "nopr %r0": "bcr 0, %r0",
    "nopr %r7": "bcr 0, %r7",
    "nop 0": "bc 0, 0",
    "jgnop .": "brcl 0, 0",
    "jr ra": "jr $ra",
    "jalr zero, ra (release 6)": "jr $ra",
}


def known_facts(machine: int) -> Facts:
    known = facts_of(machine)
    assert known is not None
    return known


@pytest.mark.parametrize("machine", MACHINES)
def test_the_tables_say_what_the_bytes_mean(machine: int) -> None:
    arch, mode = MACHINES[machine]
    known = known_facts(machine)
    clears = known.clears
    for digits, mnemonic in (*known.quiet.items(), *clears.items()):
        thumb = "Thumb" in mnemonic
        decoder = capstone.Cs(arch, capstone.CS_MODE_THUMB if thumb else mode)
        if "release 6" in mnemonic:
            decoder.mode = capstone.CS_MODE_MIPS32R6 | BIG
        code = site_code._in_order(digits, mode == LITTLE or machine == EM_RISCV, digits in known.halves)
        (decoded,) = list(decoder.disasm(code, 0))
        expected = mnemonic.replace(" (Thumb)", "")
        shown = f"{decoded.mnemonic} {decoded.op_str}".strip()
        assert shown.replace("c.jr ra", "c.ret") in {expected, SAME.get(expected), expected.removesuffix(".w")}
        found = site_code.at_site(code, machine, little=mode == LITTLE, asks=digits in clears)
        assert found == site_code.SiteInstruction(mnemonic, True)
    for digits in clears:  # only there is that no sign of a wrong address
        code = site_code._in_order(digits, mode == LITTLE, digits in known.halves)
        wrong = site_code.at_site(code, machine, little=mode == LITTLE)
        assert wrong is not None
        assert not wrong.quiet


def test_every_table_but_loongarch_s_is_checked() -> None:
    """capstone 5 doesn't know LoongArch; `03400000` is `andi $zero, $zero, 0`, `4c000020` `jirl $zero, $ra, 0`."""
    assert {number for number in known_numbers() if known_facts(number).quiet} == {*MACHINES, EM_LOONGARCH}
    assert known_facts(EM_LOONGARCH).quiet == {"03400000": "nop", "4c000020": "ret"}


def test_other_instructions_are_not_quiet() -> None:
    for machine in (*MACHINES, EM_LOONGARCH):
        found = site_code.at_site(b"\x12\x34\x56\x78" * 4, machine, little=True)
        assert found is not None
        assert not found.quiet


def test_an_unknown_machine_is_not_judged() -> None:
    assert site_code.at_site(bytes(16), 9999, little=True) is None


@pytest.mark.parametrize("code", [b"", b"\x66", b"\x0f", b"\x66\x2e\x0f\x1f\x84"])
def test_a_site_at_the_end_of_its_segment_is_no_instruction(code: bytes) -> None:
    found = site_code.at_site(code, EM_X86_64, little=True)
    assert found is not None
    assert not found.quiet


@pytest.mark.parametrize(
    ("code", "site"),
    [
        ("670fb94005 90", 5),  # ud1l 5(%eax),%eax: clang's trap for -ftrapv and -fsanitize-trap
        ("670fb900 0f1f440000", 4),
        ("0fb90511223344 90", 7),  # ud1 0x44332211(%rip),%eax
        ("0fb9042511223344 90", 8),  # ud1 0x44332211,%eax
        ("0fff84c811223344 90", 8),  # ud0 0x44332211(%rax,%rcx,8),%eax
        ("0fb9c0 90", 3),
        ("670fb94005" * 300 + "90", 1500),
        ("eb067632 48b80000 90", 8),  # clang 14, -fsanitize=function: a jump over what begins the function
        ("f30f1efa eb067632 48b80000 90", 12),
    ],
)
def test_what_stands_before_a_site_does_not_put_the_disassembler_out_of_step(code: str, site: int) -> None:
    content = bytes.fromhex(code) + bytes.fromhex("c3") * 20
    assert site_code.inside_others(content, EM_X86_64, [site]) == {}
    assert site_code.inside_others(content, EM_X86_64, [site - 1]).keys() == {site - 1}
