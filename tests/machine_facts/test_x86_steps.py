"""What x86's instructions write, as calls by a register are followed: capstone's own account of it is the truth."""

from __future__ import annotations

import random

import capstone
import pytest

from usdtbuild.machines.x86_64 import steps as x86_steps

# What capstone is wrong or overcautious about (`test` writes nothing; what is extended is read), and instructions that
# no compiler writes.
UNUSUAL = {"test", "cdq", "cqo", "rdmsr", "getsec", "salc", "xsha1", "xsha256", "xcryptcfb", "montmul"}
# These take one operand for all that they may change; and nothing has to be known of system registers.
CAUTIOUS = {"mul", "imul", "div", "idiv", "cmpxchg", "xlatb", "lldt", "ltr", "verr", "verw", "lmsw"}
STRINGS = ("movs", "stos", "lods", "scas", "cmps", "ins", "outs")
LEAVES = ("ret", "iret", "ud", "hlt", "int", "sys", "call")
STACK_POINTER = 1 << x86_steps.SP


def instructions(bits: int) -> list[capstone.CsInsn]:
    """Return many instructions: bytes by chance, often with what begins the longer ones."""
    decoder = capstone.Cs(capstone.CS_ARCH_X86, capstone.CS_MODE_64 if bits == 64 else capstone.CS_MODE_32)
    decoder.detail = True
    chance, found = random.Random(5), []
    for _ in range(8_000):
        code = chance.randbytes(15)
        code = b"\x0f" + code if chance.random() < 0.4 else code
        code = bytes([0x48 | chance.randrange(8)]) + code if chance.random() < 0.5 else code
        found += list(decoder.disasm(code[:15], 0x1000, 1))
    return found


@pytest.mark.parametrize("bits", [64, 32])
def test_what_instructions_write_is_what_capstone_says(bits: int) -> None:
    seen = set()
    for one in instructions(bits):
        bare = one.mnemonic.split()[-1]
        if bare.startswith(LEAVES):
            continue
        written = 0
        for number in one.regs_access()[1]:
            register = x86_steps.register(one.reg_name(number))
            written |= 1 << register if register >= 0 else 0
        effect = x86_steps.effect(one.mnemonic, one.op_str, bits // 8)
        ours = effect.writes
        places = (effect.to, effect.source) if effect.kind == x86_steps.SWAP else (effect.to,)
        ours |= sum(1 << place for place in places if isinstance(place, int) and place >= 0)
        text = f"{one.mnemonic} {one.op_str}"
        assert not written & ~ours & ~STACK_POINTER or bare in UNUSUAL, text
        assert not ours & ~written & ~STACK_POINTER or bare in CAUTIOUS or bare.startswith(STRINGS), text
        seen.add(bare)
    assert len(seen) > 150
