"""The operands of SDT notes: what gcc and clang write on each machine, taken apart."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from usdtbuild.formats import operands
from usdtbuild.formats.operands import CONSTANT, MEMORY, OTHER, REGISTER

X86, AARCH64, ARM, PPC64, S390, RISCV = 62, 183, 40, 21, 22, 243


@pytest.mark.parametrize(
    ("text", "size", "signed", "floating"),
    [
        ("-4@%edi", 4, True, False),
        ("8@%rsi", 8, False, False),
        ("1@%al", 1, False, False),
        ("8f@%xmm0", 8, False, True),
        ("16@%xmm0", 16, False, False),
        ("%eax", 0, False, False),
        ("x@%eax", 0, False, False),
    ],
)
def test_size_and_sign(text: str, size: int, signed: bool, floating: bool) -> None:
    operand = operands.parse_one(text, X86)
    assert (operand.size, operand.signed, operand.floating) == (size, signed, floating)


@pytest.mark.parametrize(
    ("machine", "text", "register"),
    [
        (X86, "8@%r15", "r15"),
        (AARCH64, "-4@x0", "x0"),
        (AARCH64, "8@sp", "sp"),
        (ARM, "-4@r10", "r10"),
        (PPC64, "8@3", "3"),
        (S390, "8@%r2", "r2"),
        (RISCV, "8@a0", "a0"),
    ],
)
def test_registers(machine: int, text: str, register: str) -> None:
    place = operands.parse_one(text, machine).place
    assert (place.kind, place.register) == (REGISTER, register)


@pytest.mark.parametrize(
    ("machine", "text", "base", "displacement", "symbol", "index", "scale"),
    [
        (X86, "4@(%rsp)", "rsp", 0, "", "", 1),
        (X86, "-4@-20(%rbp)", "rbp", -20, "", "", 1),
        (X86, "4@0x10(%rsp)", "rsp", 16, "", "", 1),
        (X86, "4@8(%rax,%rcx,4)", "rax", 8, "", "rcx", 4),
        (X86, "4@(%rax,%rcx)", "rax", 0, "", "rcx", 1),
        (X86, "4@count(%rip)", "rip", 0, "count", "", 1),
        (X86, "4@count+4(%rip)", "rip", 4, "count", "", 1),
        (X86, "4@4+count(%rip)", "rip", 4, "count", "", 1),
        (AARCH64, "8@[sp, 16]", "sp", 16, "", "", 1),
        (AARCH64, "8@[x3]", "x3", 0, "", "", 1),
        (ARM, "4@[fp, #-8]", "fp", -8, "", "", 1),
        (PPC64, "8@-16(1)", "1", -16, "", "", 1),
        (S390, "4@164(%r15)", "r15", 164, "", "", 1),
        (RISCV, "8@-88(s0)", "s0", -88, "", "", 1),
    ],
)
def test_memory(machine: int, text: str, base: str, displacement: int, symbol: str, index: str, scale: int) -> None:
    place = operands.parse_one(text, machine).place
    assert place.kind == MEMORY
    found = (place.base, place.displacement, place.symbol, place.index_register, place.scale)
    assert found == (base, displacement, symbol, index, scale)


@pytest.mark.parametrize(
    ("machine", "text", "value"),
    [
        (X86, "4@$71", 71),
        (X86, "8@$-1", -1),
        (AARCH64, "4@5", 5),
        (ARM, "4@#5", 5),
        (PPC64, "4@i5", 5),
        (S390, "4@71", 71),
    ],
)
def test_constants(machine: int, text: str, value: int) -> None:
    place = operands.parse_one(text, machine).place
    assert (place.kind, place.displacement) == (CONSTANT, value)


@pytest.mark.parametrize("text", ["4@glob", "8@$glob", "4@%fs:0(%rax)", "4@-4+8(%rbp)", "4@%eax,", "@%eax", "4@"])
def test_what_no_assembler_writes_is_kept_as_text(text: str) -> None:
    operand = operands.parse_one(text, X86)
    assert operand.text == text
    assert operand.place.kind == OTHER


def test_a_blank_inside_brackets_does_not_separate_operands() -> None:
    assert operands.split("8@[sp, 8]  -4@x0\t4@(%rax, %rcx)") == ["8@[sp, 8]", "-4@x0", "4@(%rax, %rcx)"]


def test_an_unknown_machine_has_operands_without_places() -> None:
    assert operands.parse_one("8@%whatever", 9999).place.kind == OTHER


@given(st.text(max_size=60), st.sampled_from([X86, AARCH64, ARM, PPC64, S390, RISCV, 258, 20, 3, 0]))
def test_no_text_makes_the_parser_raise(text: str, machine: int) -> None:
    for operand in operands.parse(text, machine):
        assert operand.size >= 0


@given(
    st.text("-0123456789f@%$#()[],.+xrspi abcd\t", max_size=80),
    st.sampled_from([X86, AARCH64, ARM, PPC64, S390, RISCV]),
)
def test_no_text_of_the_format_s_own_letters_makes_the_parser_raise(text: str, machine: int) -> None:
    assert len(operands.parse(text, machine)) <= 255


@pytest.mark.parametrize("text", ["8@%edi ", "(", "[x]", "a", "9", "-", "8@-8(%rbp"])
def test_a_megabyte_of_nonsense_takes_no_time(text: str) -> None:
    began = time.process_time()
    assert len(operands.parse(text * (1 << 20), X86)) <= 255
    assert time.process_time() - began < 5
