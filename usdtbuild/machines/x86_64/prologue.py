"""What the copy of an ordinary prologue's instruction needs, on x86: see functions/explain.py."""

from __future__ import annotations

import re

from ..facts import Verdict

_RELATIVE = re.compile(r"\[[re]ip([^\]]*)\]")
_TARGET = re.compile(r"(-?0x[0-9a-f]+|-?\d+)$")
_TERMINAL = frozenset({"ret", "retf", "jmp", "ud2", "hlt", "int3", "iretq", "iretd"})
_COUNTED = frozenset({"loop", "loope", "loopne", "jcxz", "jecxz", "jrcxz"})


def judge(at: int, length: int, mnemonic: str, operands: str) -> Verdict:
    """Say what an instruction that a patch covers means for its copy."""
    bare = mnemonic.rsplit(maxsplit=1)[-1]
    if bare in _COUNTED:
        return Verdict(against=f"{mnemonic} at {at:#x} reaches 127 bytes only, and has no longer form")
    if bare == "call":
        return Verdict(against=f"call in the first bytes, at {at:#x}: its return address would be the copy's")
    if bare.startswith("ret"):
        return Verdict(ends=True)
    target = _TARGET.search(operands)
    if bare.startswith("j") and target and "[" not in operands:
        goal = int(target.group(1), 0)
        return Verdict(fix=f"branch to {goal:#x}: give the copy its 32-bit form", ends=bare == "jmp")
    relative = _RELATIVE.search(operands)
    if relative:
        distance = int(relative.group(1).replace(" ", "") or "0", 0)
        goal = at + length + distance
        return Verdict(f"PC-relative operand {goal:#x}: correct the copy's displacement", relative_to=goal)
    return Verdict(ends=bare in _TERMINAL)
