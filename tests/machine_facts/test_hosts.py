"""What the trap engine asks of a machine's record: where instructions lead, which are calls, NOPs, traps.

The codes are what GNU as makes; LoongArch's are those of its manual. tests/tracing/test_guest.py runs the engines.
"""

from __future__ import annotations

from importlib import import_module

import pytest

from usdtbuild.machines import facts_of
from usdtbuild.machines.host import RETURN, Host

HOSTS: dict[str, Host] = {
    name: import_module(f"usdtbuild.machines.{name}.host").HOST for name in ("x86_64", "aarch64", "riscv", "loongarch")
}
AT = 0x10000
REGISTERS = {"a5": 0x2001, "t0": 0x3000, "r15": 0x2000, "r12": 0x3000}
BEHIND_4, BEHIND_2 = AT + 4, AT + 2


def code(digits: str) -> bytes:
    """Return code given as numbers, as disassemblers show them."""
    return b"".join(bytes.fromhex(word)[::-1] for word in digits.split())


@pytest.mark.parametrize(
    ("machine", "digits", "leads"),
    [
        ("riscv", "04b50063", {BEHIND_4, AT + 64}),  # beq a0, a1
        ("riscv", "03c000ef", {BEHIND_4, AT + 60}),  # jal ra
        ("riscv", "008780e7", {0x2008}),  # jalr 8(a5): the lowest bit doesn't count
        ("riscv", "00028067", {0x3000}),  # jr t0
        ("riscv", "00000073", set()),  # ecall
        ("riscv", "c0002573", {BEHIND_4}),  # csrr
        ("riscv", "d165", {BEHIND_2, AT - 32}),  # c.beqz
        ("riscv", "bff9", {BEHIND_2, AT - 34}),  # c.j
        ("riscv", "8782", {0x2000}),  # c.jr a5
        ("riscv", "9782", {0x2000}),  # c.jalr a5
        ("riscv", "0505", {BEHIND_2}),  # c.addi
        ("riscv", "0000", set()),
        ("loongarch", "40004080", {BEHIND_4, AT + 64}),  # beqz $a0
        ("loongarch", "58004085", {BEHIND_4, AT + 64}),  # beq $a0, $a1
        ("loongarch", "50004000", {BEHIND_4, AT + 64}),  # b
        ("loongarch", "54004000", {BEHIND_4, AT + 64}),  # bl
        ("loongarch", "48004000", {BEHIND_4, AT + 64}),  # bceqz $fcc0
        ("loongarch", "4c0009e1", {0x2008}),  # jirl $ra, $t3, 8
        ("loongarch", "4c000180", {0x3000}),  # jr $t0
        ("loongarch", "002b0000", set()),  # syscall
        ("loongarch", "02c00484", {BEHIND_4}),  # addi.d
    ],
)
def test_where_an_instruction_leads(machine: str, digits: str, leads: set[int]) -> None:
    """A breakpoint where it never comes is put back; one that is missing would lose the thread."""
    found = HOSTS[machine].traps.leads
    assert found is not None
    behind = {BEHIND_4, BEHIND_2} if leads else set()
    assert leads <= set(found(code(digits), AT, REGISTERS)) <= leads | behind


@pytest.mark.parametrize(
    ("machine", "digits", "size", "target"),
    [
        ("x86_64", "90 90 90 e8 00000010", 0, AT + 16),
        ("aarch64", "d503201f 94000010", 0, AT - 4 + 64),  # bl
        ("riscv", "00000013 03c000ef", 0, AT - 4 + 60),  # jal ra
        ("riscv", "00001097 010080e7", 0, AT - 8 + 0x1010),  # auipc ra; jalr ra, 16(ra)
        ("riscv", "00000013 00078067", 0, None),
        ("loongarch", "03400000 54004000", 0, AT - 4 + 64),  # bl
        ("loongarch", "1e000021 4c004021", 0, AT - 8 + (1 << 18) + 64),  # pcaddu18i $ra; jirl $ra, $ra, 64
        ("aarch64", "d63f0020 d503201f", 4, None),  # blr x1
        ("riscv", "000780e7 00000013", 4, None),  # jalr a5
        ("riscv", "9782 0001 00000013", 2, None),  # c.jalr a5
        ("loongarch", "4c0001e1 03400000", 4, None),  # jirl $ra, $t3
        ("loongarch", "4c0001e0 03400000", 0, None),  # jr $t3
    ],
)
def test_calls_are_told(machine: str, digits: str, size: int, target: int | None) -> None:
    """A direct call before an address, and one through a register at the beginning."""
    raw = code(digits)
    assert HOSTS[machine].traps.called(raw, AT) == target
    assert HOSTS[machine].traps.calls(raw) == size


@pytest.mark.parametrize("machine", HOSTS)
def test_a_trap_is_one_and_skips_nothing(machine: str) -> None:
    host = HOSTS[machine]
    trap = host.traps.instruction.ljust(16, b"\0")
    assert host.traps.stands(trap)
    assert not host.traps.skip(trap)
    facts = facts_of(host.number)
    assert facts is not None
    for digits, name in facts.quiet.items():
        quiet = bytes.fromhex(digits)[::-1].ljust(16, b"\0")
        assert not host.traps.stands(quiet)
        assert host.traps.skip(quiet) == (RETURN if name.endswith("ret") else len(digits) // 2), name


@pytest.mark.parametrize("machine", HOSTS)
def test_registers_have_one_place_each(machine: str) -> None:
    registers = HOSTS[machine].registers
    assert len(set(registers.names)) == len(registers.names)
    for name in (registers.counter, registers.stack, registers.result, *filter(None, [registers.link])):
        assert name in registers.names
    assert len(registers.floats) == len(registers.float_places)
    assert max(registers.float_places) < registers.float_words
    facts = facts_of(HOSTS[machine].number)
    assert facts is not None
    if facts.passing:
        for place in facts.passing.integers:
            assert registers.part(place.lstrip("%")) is not None
