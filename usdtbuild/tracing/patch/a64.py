"""A64, the instruction set of aarch64, as stubs need it: one word each, and code of them with labels.

Encodings: Arm ARM, C6.2. Registers are numbers; 31 is the stack pointer or the register that is 0, as the instruction
has it.
"""

from __future__ import annotations

import struct

SP = ZERO = 31
NOP, RET, SVC = 0xD503201F, 0xD65F03C0, 0xD4000001
BRANCH, BRANCH_AND_LINK = 0x14000000, 0x94000000
EQUAL, NOT_EQUAL, GREATER_OR_EQUAL = 0, 1, 10
# Special registers, as `mrs` and `msr` name them: op0 to op2.
NZCV, TPIDR, TICKS, TAG_CHECKS_OFF = 0x1B4200, 0x1BD040, 0x1BE040, 0x1B42E0
_REACH = 1 << 27


def reaches(source: int, target: int) -> bool:
    """Whether a branch at one address gets to another: 128 MB."""
    return -_REACH <= target - source < _REACH and not target & 3


def branch(source: int, target: int, opcode: int = BRANCH) -> int:
    """Return `b target` or `bl target`, to stand at an address. Raises OverflowError if that is too far."""
    if not reaches(source, target):
        raise OverflowError(f"{target:#x} is too far from {source:#x}")
    return opcode | (target - source >> 2 & 0x3FFFFFF)


def pair(load: bool, first: int, second: int, base: int, offset: int) -> int:
    """Return `stp` or `ldp first, second, [base, #offset]`."""
    return 0xA9000000 | load << 22 | (offset // 8 & 0x7F) << 15 | second << 10 | base << 5 | first


def push(first: int, second: int, size: int) -> int:
    """Return `stp first, second, [sp, #-size]!`."""
    return 0xA9800000 | (-size // 8 & 0x7F) << 15 | second << 10 | SP << 5 | first


def pop(first: int, second: int, size: int) -> int:
    """Return `ldp first, second, [sp], #size`."""
    return 0xA8C00000 | (size // 8 & 0x7F) << 15 | second << 10 | SP << 5 | first


def access(opcode: int, register: int, base: int, offset: int = 0, size: int = 8) -> int:
    """Return a load or store of `size` bytes, with an offset that is not negative and a multiple of it."""
    if offset % size or not 0 <= offset // size < 4096:
        raise OverflowError(f"offset {offset}")
    return opcode | offset // size << 10 | base << 5 | register


STORE, LOAD, STORE4, LOAD4, STORE1, LOAD1 = 0xF9000000, 0xF9400000, 0xB9000000, 0xB9400000, 0x39000000, 0x39400000
# size and sign -> the load that extends to 64 bits
LOADS = {
    (1, True): 0x39800000, (1, False): LOAD1, (2, True): 0x79800000, (2, False): 0x79400000,
    (4, True): 0xB9800000, (4, False): LOAD4, (8, True): LOAD, (8, False): LOAD,
}  # fmt: skip


def next_byte(register: int, base: int) -> int:
    """Return `ldrb register, [base], #1`."""
    return 0x38401400 | base << 5 | register


def move(target: int, source: int) -> int:
    """Return `mov target, source`, of registers that are not the stack pointer."""
    return 0xAA0003E0 | source << 16 | target


def add(target: int, source: int, number: int) -> int:
    """Return `add` or `sub target, source, #number`; the number has 12 bits, or 12 bits and 12 zeros behind them."""
    opcode, size = (0xD1000000, -number) if number < 0 else (0x91000000, number)
    if size >> 12 and not size & 0xFFF:
        opcode, size = opcode | 1 << 22, size >> 12
    if size >> 12:
        raise OverflowError(f"number {number}")
    return opcode | size << 10 | source << 5 | target


def add_register(target: int, first: int, second: int) -> int:
    """Return `add target, first, second`."""
    return 0x8B000000 | second << 16 | first << 5 | target


def subtract(target: int, first: int, second: int) -> int:
    """Return `sub target, first, second`."""
    return 0xCB000000 | second << 16 | first << 5 | target


def compare(first: int, second: int) -> int:
    """Return `cmp first, second`."""
    return 0xEB00001F | second << 16 | first << 5


def compare_negative(first: int, number: int) -> int:
    """Return `cmn first, #number`: equal if the register is -number."""
    return 0xB100001F | number << 10 | first << 5


def low_bits(target: int, source: int, count: int) -> int:
    """Return `ubfx target, source, #0, #count`."""
    return 0xD3400000 | (count - 1) << 10 | source << 5 | target


def shift_left(target: int, source: int, count: int) -> int:
    """Return `lsl target, source, #count`."""
    return 0xD3400000 | (64 - count & 63) << 16 | (63 - count) << 10 | source << 5 | target


def aligned(target: int, source: int) -> int:
    """Return `and target, source, #-8`."""
    return 0x927DF000 | source << 5 | target


def multiply_add(target: int, first: int, second: int, plus: int) -> int:
    """Return `madd target, first, second, plus`."""
    return 0x9B000000 | second << 16 | plus << 10 | first << 5 | target


def either(target: int, first: int, second: int) -> int:
    """Return `orr wtarget, wfirst, wsecond`."""
    return 0x2A000000 | second << 16 | first << 5 | target


def read_special(register: int, special: int) -> int:
    """Return `mrs register, special`."""
    return 0xD5200000 | special | register


def write_special(special: int, register: int) -> int:
    """Return `msr special, register`."""
    return 0xD5000000 | special | register


TAG_CHECKS_OFF_NOW = 0xD503419F  # msr tco, #1


def exclusive(load: bool, register: int, base: int, status: int = 31, *, ordered: bool) -> int:
    """Return `ldxr register, [base]` or `stxr wstatus, register, [base]`; `ordered`: with acquire or release."""
    return 0xC8007C00 | load << 22 | (31 if load else status) << 16 | ordered << 15 | base << 5 | register


def store_release(register: int, base: int) -> int:
    """Return `stlr register, [base]`."""
    return 0xC89FFC00 | base << 5 | register


def add_atomic(register: int, base: int) -> int:
    """Return `stadd register, [base]` (FEAT_LSE)."""
    return 0xF820001F | register << 16 | base << 5


def swap_atomic(expected: int, register: int, base: int) -> int:
    """Return `casal expected, register, [base]` (FEAT_LSE)."""
    return 0xC8E0FC00 | expected << 16 | base << 5 | register


def from_float(target: int, source: int) -> int:
    """Return `fmov xtarget, dsource`."""
    return 0x9E660000 | source << 5 | target


def number(register: int, value: int) -> list[int]:
    """Return the instructions that load a number of 64 bits."""
    value &= (1 << 64) - 1
    parts = [(value >> 16 * index & 0xFFFF, index) for index in range(4)]
    used = [part for part in parts if part[0]] or parts[:1]
    return [(0xD2800000 if one == used[0] else 0xF2800000) | one[1] << 21 | one[0] << 5 | register for one in used]


class Code:
    """Code that stands at an address, with labels for branches inside of it."""

    def __init__(self, at: int) -> None:
        self.start = at
        self._words: list[int] = []
        self._labels: dict[str, int] = {}
        self._branches: list[tuple[int, str]] = []

    @property
    def here(self) -> int:
        """The address of the next instruction."""
        return self.start + 4 * len(self._words)

    def add(self, *words: int) -> None:
        """Append instructions."""
        self._words += words

    def label(self, name: str) -> None:
        """Call the next instruction something."""
        self._labels[name] = len(self._words)

    def go(self, name: str, opcode: int = BRANCH) -> None:
        """Append a branch to a label: `b`, or what `when` and `zero` return."""
        self._branches.append((len(self._words), name))
        self._words.append(opcode)

    def call(self, address: int) -> None:
        """Append `bl address`."""
        self.add(branch(self.here, address, BRANCH_AND_LINK))

    def address(self, register: int, value: int) -> None:
        """Append what loads an address within 4 GB: `adrp`, `add`."""
        pages = (value >> 12) - (self.here >> 12)
        if not -(1 << 20) <= pages < 1 << 20:
            raise OverflowError(f"{value:#x} is too far from {self.here:#x}")
        self.add(0x90000000 | (pages & 3) << 29 | (pages >> 2 & 0x7FFFF) << 5 | register)
        self.add(add(register, register, value & 0xFFF))

    def settle(self, *names: str) -> None:
        """Let branches so far go to these labels, as they are now; later labels of the same names are others."""
        left = []
        for at, name in self._branches:
            if name not in names:
                left.append((at, name))
                continue
            distance = self._labels[name] - at
            is_long = self._words[at] & 0x7C000000 == BRANCH
            self._words[at] |= distance & 0x3FFFFFF if is_long else (distance & 0x7FFFF) << 5
        self._branches = left

    def packed(self) -> bytes:
        """Return the code."""
        self.settle(*self._labels)
        return struct.pack(f"<{len(self._words)}I", *self._words)


def when(condition: int) -> int:
    """Return `b.condition`."""
    return 0x54000000 | condition


def zero(register: int, *, wanted: bool = True) -> int:
    """Return `cbz register`; not `wanted`: `cbnz register`."""
    return 0xB4000000 | (not wanted) << 24 | register
