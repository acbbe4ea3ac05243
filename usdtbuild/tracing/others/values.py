"""Values of arguments from the bits that a tool has read, as the site's operands and the declared types say."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from ..model import FLOAT

if TYPE_CHECKING:
    from ...formats.operands import Operand
    from ..model import Argument


def number(argument: Argument, operand: Operand, bits: int) -> int | float:
    """Return what the low bits of a number stand for; those above the operand's size don't matter."""
    size = operand.size or 8
    bits &= (1 << 8 * size) - 1
    if (argument.kind == FLOAT or operand.floating) and size in (4, 8):
        value: float = struct.unpack("<f" if size == 4 else "<d", bits.to_bytes(size, "little"))[0]
        return value
    return bits - (1 << 8 * size) if operand.signed and bits >> 8 * size - 1 else bits
