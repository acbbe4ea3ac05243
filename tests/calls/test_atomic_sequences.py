"""Sequences that reserve memory and store into it: who steps through one instruction by instruction never gets out.

User mode emulation does not show that, it compares values; a kernel does. So what is checked here is what is known of
such sequences, by what an assembler makes of them; tools/powerpc.py traces first calls of threads on a PowerPC kernel.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from elftools.elf.elffile import ELFFile

from usdtbuild.machines import facts_of

SEQUENCES = """
plain:
1:  {load} 5, 0, 3
    {store} 7, 0, 3
    bne- 1b
leaves:
2:  {load} 5, 0, 3
    cmpw 5, 4
    bne- 3f
    {store} 7, 0, 3
    bne- 2b
    isync
3:  blr
"""


@pytest.mark.parametrize("prefix", ["powerpc64le-linux-gnu", "powerpc64-linux-gnu", "powerpc-linux-gnu"])
@pytest.mark.parametrize(
    ("load", "store"),
    [
        ("lwarx", "stwcx."),
        ("ldarx", "stdcx."),
        ("lbarx", "stbcx."),
        ("lharx", "sthcx."),
    ],
)
def test_where_a_sequence_has_ended(prefix: str, load: str, store: str, run: Any, need: Any, tmp_path: Path) -> None:
    assembler = need(f"{prefix}-as")
    (tmp_path / "code.s").write_text(SEQUENCES.format(load=load, store=store))
    options = ["-many", *(["-a64"] if "64" in prefix else [])]
    run(assembler, *options, "code.s", "-o", "code.o", cwd=tmp_path)
    with (tmp_path / "code.o").open("rb") as file:
        elf: Any = ELFFile(file)
        code = elf.get_section_by_name(".text").data()
        facts = facts_of({"EM_PPC": 20, "EM_PPC64": 21}[elf["e_machine"]])
        little = elf.little_endian
    assert facts is not None
    atomic = facts.stopped.atomic
    assert atomic is not None
    at = 0x10000
    found = {offset: atomic(code[offset:], at + offset, little) for offset in range(0, len(code), 4)}
    assert {offset: ends for offset, ends in found.items() if ends} == {0: (at + 8,), 12: (at + 28, at + 36)}
    # As much of it as there is: the end isn't known.
    assert atomic(code[:4], at, little) == atomic(b"", at, little) == ()


# What compilers write for an exchange that compares: the sequence, and what it leaves by.
OTHERS: dict[str, tuple[str, str, str, dict[int, Any]]] = {
    "aarch64": ("aarch64-linux-gnu-as", "", """
1:  ldaxr w5, [x3]
    cmp w5, w4
    b.ne 3f
    stlxr w6, w7, [x3]
    cbnz w6, 1b
    nop
3:  ret
    .arch armv8.1-a
    casp x0, x1, x2, x3, [x4]
    ldxp x0, x1, [x2]
    stxp w4, x0, x1, [x2]
    ret
""", {0: (16, 24), 32: (40,)}),
    "arm": ("arm-linux-gnueabihf-as", "-march=armv7-a", """
1:  ldrex r5, [r3]
    cmp r5, r4
    bne 3f
    strex r6, r7, [r3]
    cmp r6, #0
    bne 1b
3:  bx lr
    ldrexd r0, r1, [r2]
    strexd r4, r0, r1, [r2]
    bx lr
""", {0: (16, 24), 28: (36,)}),
    "riscv64": ("riscv64-linux-gnu-as", "-march=rv64gc", """
1:  lr.w.aqrl a5, (a3)
    .option push
    .option norvc
    bne a5, a4, 3f
    .option pop
    sc.w a6, a7, (a3)
    bnez a6, 1b
3:  ret
2:  lr.d a5, (a3)
    c.bnez a5, 4f
    sc.d a6, a7, (a3)
4:  ret
""", {0: (12, 16), 18: (28,)}),
    "mips": ("mips-linux-gnu-as", "-mips32r2 -O0", """
    .set noreorder
    ll $5, 0($3)
    bne $5, $4, 3f
    nop
    sc $7, 0($3)
    beqz $7, .-16
    nop
    nop
3:  jr $31
    nop
""", {0: (16, 28)}),
    "mips r6": ("mipsisa32r6-linux-gnu-as", "-mips32r6", """
    .set noreorder
    ll $5, 0($3)
    sc $7, 0($3)
    nop
""", {0: (8,)}),
}  # fmt: skip
MACHINES = {"aarch64": 183, "arm": 40, "riscv64": 243, "mips": 8, "mips r6": 8}


@pytest.mark.parametrize("name", OTHERS)
def test_where_a_sequence_of_another_machine_has_ended(name: str, run: Any, need: Any, tmp_path: Path) -> None:
    assembler, options, text, ends = OTHERS[name]
    tool = need(assembler if name != "mips r6" or shutil.which(assembler) else "mips-linux-gnu-as")
    (tmp_path / "code.s").write_text(text)
    run(tool, *options.split(), "code.s", "-o", "code.o", cwd=tmp_path)
    with (tmp_path / "code.o").open("rb") as file:
        elf: Any = ELFFile(file)
        code, little = elf.get_section_by_name(".text").data(), elf.little_endian
    facts = facts_of(MACHINES[name])
    assert facts is not None
    atomic = facts.stopped.atomic
    assert atomic is not None
    at = 0x10000
    step = 2 if name == "riscv64" else 4
    found = {offset: atomic(code[offset:], at + offset, little) for offset in range(0, len(code), step)}
    assert {offset: one for offset, one in found.items() if one} == {
        offset: tuple(at + end for end in one) for offset, one in ends.items()
    }
