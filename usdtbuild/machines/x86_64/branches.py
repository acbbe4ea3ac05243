"""What looks like a direct branch in x86's code, whose instructions begin anywhere (64 and 32 bits)."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator

_BRANCH = re.compile(rb"[\x70-\x7f\xe0-\xe3\xe8\xe9\xeb]|\x0f(?=[\x80-\x8f])|\xc7(?=\xf8)", re.DOTALL)


def found(code: bytes, base: int, targets: Collection[int], mask: int) -> Iterator[tuple[int, int, int]]:
    """Yield address, target and the address of the changeable bytes; see `Facts.branches_of_bytes`.

    Intel SDM volume 2: Jcc 70-7f and 0f 80-8f, LOOP and JCXZ e0-e3, CALL e8, JMP e9 and eb, XBEGIN c7 f8.
    """
    end = len(code)
    for match in _BRANCH.finditer(code):
        at = match.start()
        opcode = code[at]
        if 0x70 <= opcode < 0x80 or opcode == 0xEB or 0xE0 <= opcode <= 0xE3:
            if at + 2 > end:
                continue
            distance = code[at + 1]
            target = base + at + 2 + (distance if distance < 0x80 else distance - 0x100)
            if target in targets:
                yield base + at, target, base + at + 1
            continue
        if opcode in (0x0F, 0xC7):
            at += 1
        if at + 5 > end:
            continue
        target = (base + at + 5 + int.from_bytes(code[at + 1 : at + 5], "little", signed=True)) & mask
        if target in targets:
            yield base + match.start(), target, base + at + 1
