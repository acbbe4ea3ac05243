"""Does x86-64 code keep data below its stack pointer? There a call overwrites eight bytes, and a kernel may make one.

From Linux 6.18 on (7.2 no longer), a uprobe on a NOP of exactly five bytes becomes a `call`, which pushes a return
address. Where the data of a function that calls nothing lies below the stack pointer (the red zone), it is lost. Only
this machine has both. The code is read by a disassembler, straight on from the function's beginning, as compilers
write it.
"""

from __future__ import annotations

import re

from ..disassembly import instructions
from ..numbers import EM_X86_64
from .code import CODE

NOP5 = CODE["nop5"][0]
_MEMORY = re.compile(r"\[(rsp|rbp)(?: \+ r\w+(?:\*\d)?)?(?: ([+-]) (0x[0-9a-f]+|\d+))?\]")
_STEP = re.compile(r"rsp, (0x[0-9a-f]+|\d+)$")
_WORD = 8


def uses_red_zone(code: bytes, site: int) -> bool:
    """Whether a function uses the stack below the lowest place that its stack pointer comes to.

    `code` begins with it, `site` is the offset of a site; the function ends at the first return behind that.
    """
    depth = lowest = frame = used = 0  # all in bytes below the stack pointer at the function's entry
    for offset, _, mnemonic, operands in instructions(EM_X86_64, code):
        step = _STEP.match(operands)
        if mnemonic == "push":
            depth += _WORD
        elif mnemonic == "pop":
            depth -= _WORD
        elif step and mnemonic in ("sub", "add"):
            depth += int(step[1], 0) * (1 if mnemonic == "sub" else -1)
        elif mnemonic == "mov" and operands == "rbp, rsp":
            frame = depth
        elif mnemonic.startswith("ret") and offset > site:
            break
        lowest = max(lowest, depth)
        for base, sign, number in _MEMORY.findall(operands) if mnemonic != "lea" else ():
            below = int(number or "0", 0) * (1 if sign == "-" else -1)
            if base == "rsp" and below > 0:
                used = max(used, depth + below)
            elif base == "rbp" and frame:
                used = max(used, frame + below)
    return used > lowest
