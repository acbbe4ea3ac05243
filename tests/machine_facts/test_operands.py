"""Where each machine's arguments are, by its ABI, as SDT notes spell it."""

from __future__ import annotations

from typing import Any

import pytest

INT, WIDE, UWIDE, BYTE, UBYTE, SHORT = (4, True), (8, True), (8, False), (1, True), (1, False), (2, True)

CASES = (
    # machine, arguments, behind a jump, operands
    ("x86-64", (INT, UWIDE, UBYTE), False, "-4@%edi 8@%rsi 1@%edx"),
    ("x86-64", (INT,) * 8, False, "-4@%edi -4@%esi -4@%edx -4@%ecx -4@%r8d -4@%r9d -4@0(%rsp) -4@8(%rsp)"),
    ("x86-64", (INT,) * 7, True, "-4@%edi -4@%esi -4@%edx -4@%ecx -4@%r8d -4@%r9d -4@8(%rsp)"),
    ("i386", (INT, WIDE, UBYTE), False, "-4@0(%esp) -8@4(%esp) 1@12(%esp)"),
    ("i386", (INT, WIDE), True, "-4@4(%esp) -8@8(%esp)"),
    ("aarch64", (INT, UWIDE), False, "-4@x0 8@x1"),
    ("aarch64", (INT,) * 10, False, " ".join(f"-4@x{i}" for i in range(8)) + " -4@[sp] -4@[sp, 8]"),
    ("aarch64_be", (INT,) * 8 + (BYTE, WIDE), False, " ".join(f"-4@x{i}" for i in range(8)) + " -1@[sp, 7] -8@[sp, 8]"),
    ("arm", (INT, INT, WIDE), False, "-4@r0 -4@r1 -4@r2"),  # a pair: its low half
    ("arm", (INT, WIDE, INT), False, "-4@r0 -4@r2 -4@[sp]"),  # r1 is left out
    ("arm", (INT, INT, INT, WIDE, INT), False, "-4@r0 -4@r1 -4@r2 -8@[sp] -4@[sp, #8]"),  # and r3 stays empty
    ("arm", (INT,) * 5 + (WIDE,), False, "-4@r0 -4@r1 -4@r2 -4@r3 -4@[sp] -8@[sp, #8]"),
    ("armeb", (WIDE, INT, INT, BYTE), False, "-4@r1 -4@r2 -4@r3 -1@[sp, #3]"),
    ("ppc32", (INT, WIDE, INT), False, "-4@3 -4@6 -4@7"),  # r5 and r6, high half first
    ("ppc32", (INT,) * 7 + (WIDE, INT), False, "-4@3 -4@4 -4@5 -4@6 -4@7 -4@8 -4@9 -8@8(1) -4@16(1)"),
    ("ppc64", (INT,) * 8 + (INT, WIDE), False, " ".join(f"-4@{i}" for i in range(3, 11)) + " -4@116(1) -8@120(1)"),
    ("ppc64le", (INT,) * 8 + (INT, WIDE), False, " ".join(f"-4@{i}" for i in range(3, 11)) + " -4@96(1) -8@104(1)"),
    ("s390x", (INT,) * 5 + (INT, UBYTE, WIDE), False,
     "-4@%r2 -4@%r3 -4@%r4 -4@%r5 -4@%r6 -4@164(%r15) 1@175(%r15) -8@176(%r15)"),
    ("riscv64", (INT,) * 9, False, " ".join(f"-4@a{i}" for i in range(8)) + " -4@0(sp)"),
    ("riscv32", (INT, WIDE, INT), False, "-4@a0 -4@a1 -4@a3"),
    ("riscv32", (INT,) * 7 + (WIDE, INT, WIDE), False,  # a7 and 0(sp), 4(sp), then 8(sp)
     " ".join(f"-4@a{i}" for i in range(7)) + " -4@a7 -4@4(sp) -8@8(sp)"),
    ("sparc64", (INT,) * 6 + (INT, WIDE), False,
     " ".join(f"-4@%o{i}" for i in range(6)) + " -4@[%sp+2227] -8@[%sp+2231]"),
    ("sparc64", (INT,) * 6 + (INT,), True, " ".join(f"-4@%i{i}" for i in range(6)) + " -4@[%fp+2227]"),
    ("sparc", (WIDE, INT, WIDE, WIDE, INT), False, "-4@%o1 -4@%o2 -4@%o4 -4@[%sp+92] -4@[%sp+96]"),
    ("mips", (INT, WIDE, INT), False, "-4@$4 -4@$7 -4@16($sp)"),
    ("mipsel", (INT, WIDE, SHORT), False, "-4@$4 -4@$6 -2@16($sp)"),
    ("mips", (INT,) * 4 + (SHORT, WIDE), False, "-4@$4 -4@$5 -4@$6 -4@$7 -2@18($sp) -8@24($sp)"),
    ("mips64", (INT,) * 8 + (INT, WIDE), False, " ".join(f"-4@${i}" for i in range(4, 12)) + " -4@4($sp) -8@8($sp)"),
    ("mips n32", (WIDE,) * 8 + (INT,), False, " ".join(f"-8@${i}" for i in range(4, 12)) + " -4@0($sp)"),
    ("loongarch64", (INT,) * 10, False, " ".join(f"-4@$r{i}" for i in range(4, 12)) + " -4@[$r3] -4@[$r3, 8]"),
)  # fmt: skip


@pytest.mark.parametrize(("name", "arguments", "tail", "expected"), CASES)
def test_arguments_are_where_the_abi_puts_them(
    name: Any, arguments: Any, tail: Any, expected: Any, machine: Any
) -> None:
    assert " ".join(machine(name).operands(arguments, tail)) == expected


def test_an_operand_is_never_wider_than_its_argument(machine: Any, kinds: Any) -> None:
    """One that is narrower shows the low bytes and says so by its size; a wider one would show another argument."""
    arguments = (BYTE, WIDE, INT, UWIDE, UBYTE, SHORT, WIDE, INT, UWIDE, WIDE, INT, WIDE)
    for name in kinds:
        operands = machine(name).operands(arguments, False)
        assert len(operands) == len(arguments)
        for (size, signed), operand in zip(arguments, operands):
            shown = int(operand.split("@")[0])
            assert (shown < 0) == signed
            assert abs(shown) in ({size} if size < 8 else {4, 8})


def test_unsupported_machines_are_refused_by_a_list_of_the_others() -> None:
    from usdtbuild import machines

    with pytest.raises(machines.UnsupportedMachineError) as error:
        machines.for_object(247, is64=True, little=True, flags=0, path="bpf.o")
    text = str(error.value)
    assert text.startswith("bpf.o: is for ELF machine 247 (64-bit), which is not supported; supported are ")
    for name in ("x86-64", "i386", "aarch64", "arm", "ppc64", "s390x", "riscv32", "sparc64", "mips n64", "loongarch64"):
        assert name in text
    assert "-DUSDT_DISABLED" in text
    with pytest.raises(machines.UnsupportedMachineError):
        machines.for_object(22, is64=False, little=False, flags=0, path="s390.o")  # 31-bit
    for number, is64, little in ((243, True, False), (2, False, True), (20, False, True)):
        with pytest.raises(machines.UnsupportedMachineError, match=f"{'little' if little else 'big'}-endian"):
            machines.for_object(number, is64=is64, little=little, flags=0, path="other-order.o")
