"""Instructions that are copied to another place do the same there, says capstone, whatever the bytes."""

from __future__ import annotations

import random

import capstone
import pytest
from capstone import x86

from usdtbuild.machines.x86_64.moving import moved

DECODER = capstone.Cs(capstone.CS_ARCH_X86, capstone.CS_MODE_64)
DECODER.detail = True
# What jumps, calls, returns, traps, or has rights.
ELSEWHERE = {capstone.CS_GRP_JUMP, capstone.CS_GRP_CALL, capstone.CS_GRP_RET, capstone.CS_GRP_INT, capstone.CS_GRP_IRET,
             capstone.CS_GRP_PRIVILEGE, capstone.CS_GRP_BRANCH_RELATIVE}  # fmt: skip
NO_INDEX = {x86.X86_REG_INVALID, x86.X86_REG_RIZ}
RAISES = {x86.X86_INS_DIV, x86.X86_INS_IDIV, x86.X86_INS_INT3, x86.X86_INS_PUSH, x86.X86_INS_POP, x86.X86_INS_LEAVE}


def is_at_home_anywhere(one: capstone.CsInsn) -> bool:
    memory = [operand.mem for operand in one.operands if operand.type == x86.X86_OP_MEM]
    if one.id == x86.X86_INS_LEA:
        return memory[0].base != x86.X86_REG_RIP
    on_stack = all(place.base == x86.X86_REG_RSP and place.index in NO_INDEX and not place.segment for place in memory)
    return on_stack and not ELSEWHERE.intersection(one.groups) and one.id not in RAISES


@pytest.mark.parametrize("rex", [b"", b"\x41", b"\x42", b"\x44", b"\x48", b"\x4f"])
def test_what_is_copied_does_the_same_elsewhere(rex: bytes) -> None:
    """For each ModRM byte, and some SIB bytes."""
    numbers = random.Random(7)
    told = 0
    for opcode in (*range(0x100), *range(0x0F00, 0x1000)):
        first = bytes([opcode]) if opcode < 0x100 else opcode.to_bytes(2, "big")
        for modrm in range(256):
            sib = numbers.choice((0x24, 0x24, numbers.randrange(256)))
            code = rex + first + bytes([modrm, sib]) + numbers.randbytes(26)
            found = moved(code, 4)
            if found is None:
                continue
            copies, length = found
            told += 1
            whole = list(DECODER.disasm(code[:length], 0))
            assert sum(one.size for one in whole) == length >= 4, code.hex()
            kept = [one for one in whole if one.id != x86.X86_INS_NOP]
            assert b"".join(bytes(one.bytes) for one in kept) == copies, code.hex()
            assert all(map(is_at_home_anywhere, kept)), code.hex()
    assert told > 1000


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("4883c001", ("4883c001", 4)),  # add $1, %rax
        ("0f1f4000", ("", 4)),  # a NOP of four bytes
        ("904889c7", ("4889c7", 4)),  # nop; mov %rax, %rdi
        ("488b442408", ("488b442408", 5)),  # mov 8(%rsp), %rax
        ("498b442408", None),  # mov 8(%r12), %rax
        ("4a8b042408", None),  # mov (%rsp,%r12), %rax
        ("488b4508", None),  # mov 8(%rbp), %rax
        ("488d0508000000", None),  # lea 8(%rip), %rax
        ("488d4708", ("488d4708", 4)),  # lea 8(%rdi), %rax
        ("89d8ebfe", None),  # mov %ebx, %eax; jmp
        ("89d8e800000000", None),  # mov %ebx, %eax; call
        ("89d8cc9090", None),  # mov %ebx, %eax; int3
        ("31c0f7f1", None),  # xor %eax, %eax; div %ecx
        ("31c05dc3", None),  # xor %eax, %eax; pop %rbp
    ],
)
def test_usual_instructions(code: str, expected: tuple[str, int] | None) -> None:
    found = moved(bytes.fromhex(code) + b"\x90" * 16, 4)
    assert found == (expected and (bytes.fromhex(expected[0]), expected[1]))


def test_code_that_ends_too_early_is_not_copied() -> None:
    assert moved(b"\x48\x83\xc0\x01", 4) is None
