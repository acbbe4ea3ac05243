"""What a NOP is: `functions`, `trace` and usdt_live.h's runtime say the same, and on x86-64 a disassembler agrees."""

from __future__ import annotations

import ctypes
import os
import random
import runpy
from itertools import product
from pathlib import Path
from typing import Any

import capstone
import pytest

from usdtbuild.functions.nops import machine_for
from usdtbuild.machines.nops import nop_at
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


ROOT = Path(__file__).resolve().parent.parent.parent
LIVE = ROOT / "usdtbuild" / "runtime" / "live"


def test_the_runtime_s_table_is_what_the_facts_say() -> None:
    tool = runpy.run_path(str(ROOT / "tools" / "nops.py"))
    assert (LIVE / "nops.h").read_text() == tool["table"]()


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="NOPs of x86-64")
def test_the_runtime_takes_the_same(tmp_path: Path, compiled: Any) -> None:
    """The same bytes, and as many of them, also where they end within a NOP, and among others."""
    function = "unsigned nop(const unsigned char *at, size_t left) { return live_machine_nop(at, left); }"
    words = ("-shared", "-fPIC", "-ffunction-sections", "-Wl,--gc-sections", "-I", LIVE)
    compiled(tmp_path, "nop.c", f'#include "machines.c"\n{function}\n', *words, to="nop.so")
    theirs = ctypes.CDLL(str(tmp_path / "nop.so")).nop
    theirs.argtypes = [ctypes.c_char_p, ctypes.c_size_t]
    machine = machine_for(EM_X86_64, is64=True, little=True)
    assert machine is not None
    choose = random.Random(1)
    among = bytes([0x66, 0x2E, 0x0F, 0x1F, 0x90, 0x00, 0x40, 0x44, 0x80, 0x84, 0xCC])
    wild = [bytes(choose.choices(among, k=20)) for _ in range(20000)]
    cut = [nop[:size] for nop in NOPS for size in range(len(nop) + 1)]
    for code in [*NOPS, *cut, *wild]:
        assert theirs(code, len(code)) == nop_at(machine, code, 0), code.hex()
