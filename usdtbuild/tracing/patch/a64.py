"""A64, the instruction set of aarch64: what sites change to, one word each. Encodings: Arm ARM, C6.2."""

from __future__ import annotations

NOP, RET = 0xD503201F, 0xD65F03C0
BRANCH, BRANCH_AND_LINK = 0x14000000, 0x94000000
_REACH = 1 << 27


def reaches(source: int, target: int) -> bool:
    """Whether a branch at one address gets to another: 128 MB."""
    return -_REACH <= target - source < _REACH and not target & 3


def branch(source: int, target: int, opcode: int = BRANCH) -> int:
    """Return `b target` or `bl target`, to stand at an address. Raises OverflowError if that is too far."""
    if not reaches(source, target):
        raise OverflowError(f"{target:#x} is too far from {source:#x}")
    return opcode | (target - source >> 2 & 0x3FFFFFF)
