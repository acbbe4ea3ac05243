"""Lengths of usual x86-64 instructions are those that capstone finds, whatever the bytes."""

from __future__ import annotations

import random

import capstone
import pytest

from usdtbuild.machines.x86_64.lengths import _KNOWN, usual_length

DECODER = capstone.Cs(capstone.CS_ARCH_X86, capstone.CS_MODE_64)


def length_of(code: bytes) -> int:
    return next((length for _, length, _, _ in DECODER.disasm_lite(code, 0, 1)), 0)


@pytest.mark.parametrize("rex", [b"", b"\x41", b"\x44", b"\x48", b"\x4f"])
def test_lengths_are_capstones(rex: bytes) -> None:
    """For each ModRM byte, and some SIB bytes."""
    numbers = random.Random(7)
    told = 0
    for opcode in (*range(0x100), *range(0x0F00, 0x1000)):
        first = bytes([opcode]) if opcode < 0x100 else opcode.to_bytes(2, "big")
        for modrm in range(256):
            code = rex + first + bytes([modrm]) + numbers.randbytes(14)
            found = usual_length(code)
            if found:
                told += 1
                assert found == length_of(code), code.hex()
    assert told > len(_KNOWN) * 128


def test_code_that_ends_too_early_has_no_length() -> None:
    assert usual_length(b"") == usual_length(b"\x90" * 11) == 0
    assert usual_length(b"\x90" * 12) == 1
