"""What a NOP is on x86-64: `functions` and `trace` say the same, and a disassembler agrees."""

from __future__ import annotations

from itertools import product

import capstone
import pytest

from usdtbuild.functions.nops import machine_for, nop_at
from usdtbuild.machines.numbers import EM_X86_64
from usdtbuild.tracing.patch.forms import form_of, nop_length

MODRM = {0x00: b"", 0x40: b"\x08", 0x44: b"\x00\x08", 0x80: b"\0\2\0\0", 0x84: b"\x00\x00\x02\x00\x00"}
PREFIXES = [
    bytes(one)
    for count in range(5)
    for one in product(b"\x66\x2e", repeat=count)
] + [b"\x66" * n for n in range(5, 13)] + [b"\x66" * 5 + b"\x2e\x66"]  # fmt: skip
NOPS = [
    *(b"\x66" * n + b"\x90" for n in range(15)),
    *(prefix + b"\x0f\x1f" + bytes([modrm]) + rest for prefix in PREFIXES for modrm, rest in MODRM.items()),
]


@pytest.mark.parametrize("code", [nop for nop in NOPS if len(nop) <= 15], ids=bytes.hex)
def test_functions_and_trace_take_the_same(code: bytes) -> None:
    machine = machine_for(EM_X86_64, is64=True, little=True)
    assert machine is not None
    assert nop_at(machine, code + bytes(16), 0) == len(code)
    found = nop_length(code + bytes(16))
    assert found is not None
    assert found[0] == len(code)
    assert form_of(code + bytes(16)) is not None
    [read] = capstone.Cs(capstone.CS_ARCH_X86, capstone.CS_MODE_64).disasm_lite(code, 0)
    assert (read[1], read[2]) == (len(code), "nop")


@pytest.mark.parametrize("code", [nop for nop in NOPS if len(nop) <= 15], ids=bytes.hex)
def test_a_free_byte_leaves_a_nop_of_the_same_length(code: bytes) -> None:
    found = nop_length(code + bytes(16))
    assert found is not None
    for at, value in product(found[1], (0x00, 0x05, 0x25, 0xCC, 0xFF)):
        changed = code[:at] + bytes([value]) + code[at + 1 :]
        decoder = capstone.Cs(capstone.CS_ARCH_X86, capstone.CS_MODE_64)
        assert [(one[1], one[2]) for one in decoder.disasm_lite(changed, 0)] == [(len(code), "nop")]


@pytest.mark.parametrize("code", [b"\xc3", b"\x0f\x1e\xfa", b"\x0f\x1f\xc8", b"\x66" * 15 + b"\x90", b"\x66", b""])
def test_what_is_none(code: bytes) -> None:
    assert nop_length(code + b"\xcc" * 16) is None
