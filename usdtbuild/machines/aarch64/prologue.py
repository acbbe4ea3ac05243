"""What the copy of an ordinary prologue's instruction needs, on aarch64: see functions/explain.py."""

from __future__ import annotations

import re

from ..facts import Verdict

_TARGET = re.compile(r"#?(-?0x[0-9a-f]+|-?\d+)$")
_TERMINAL = frozenset({"ret", "retaa", "retab", "br", "b", "braa", "brab", "udf", "brk"})


def judge(at: int, length: int, mnemonic: str, operands: str) -> Verdict:
    """Say what an instruction that a patch covers means for its copy."""
    target = _TARGET.search(operands)
    if mnemonic in ("adr", "adrp") and target:
        goal = int(target.group(1), 0)
        return Verdict(fix=f"PC-relative address {goal:#x}: give the copy the whole address")
    if mnemonic.startswith("ldr") and target and "[" not in operands:
        return Verdict(against=f"literal load at {at:#x}: the literal is out of a copy's reach")
    if mnemonic in ("bl", "blr") or mnemonic.startswith("blra"):
        return Verdict(against=f"call in the first bytes, at {at:#x}: its return address would be the copy's")
    if mnemonic == "b" or mnemonic.startswith(("b.", "cbz", "cbnz", "tbz", "tbnz")):
        return Verdict(against=f"branch at {at:#x}: {mnemonic} may be out of a copy's reach")
    return Verdict(ends=mnemonic in _TERMINAL)
