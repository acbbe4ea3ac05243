"""Branches that go where a patch will be: into an entry's padding, or between its NOPs.

The whole code is looked at, not only the function and the one before it. A first pass knows only what relative branches
look like in bytes and where they would go; it is quick and takes too much for a branch. Where something it found goes
to an address that matters, capstone disassembles the function it is in, and what isn't an instruction there, or is no
branch, is dropped. In an object, the branches that the linker will still fill in are read from the relocations.
"""

from __future__ import annotations

import functools
import re
import sys
from array import array
from bisect import bisect_right
from struct import unpack_from
from typing import TYPE_CHECKING, NamedTuple

import capstone

from ..elf import layout as L
from . import machines as M
from .symbols import FUNCTION_TYPES, mapping_symbols

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from .entry import Starts
    from .image import Image, Span

# Farthest back that a disassembly starts to find out whether an address is the start of an instruction.
_REACH = 1 << 16


class Jump(NamedTuple):
    """A branch: where it stands, where it goes, and the instruction."""

    source: int
    target: int
    text: str


def find_jumps(image: Image, starts: Starts, targets: Collection[int]) -> dict[int, Jump]:
    """Return, for each of `targets` that a branch goes to, one such branch: the one at the lowest address."""
    found: dict[int, Jump] = {}
    if not targets:
        return found
    jumps, relocated = _through_relocations(image, targets) if image.relocatable else ([], frozenset())
    grouped = _by_function(image, starts, targets, relocated)
    if grouped:
        kinds = _Kinds(image)
        for start in sorted(grouped):
            jumps += _instructions(image, starts, start, grouped[start], kinds)
    for jump in jumps:
        if jump.target not in found or jump.source < found[jump.target].source:
            found[jump.target] = jump
    return found


def _by_function(
    image: Image, starts: Starts, targets: Collection[int], relocated: frozenset[int]
) -> dict[int, list[tuple[int, int]]]:
    """Return what looks like a branch to one of `targets`, by where a disassembly of its function starts."""
    grouped: dict[int, list[tuple[int, int]]] = {}
    for span in image.code:
        for source, target, field in _candidates(image, span, targets):
            if field not in relocated:
                around = starts.around(source)
                start = around.address if around else span.start
                grouped.setdefault(max(start, source - _REACH, span.start), []).append((source, target))
    return grouped


def _instructions(
    image: Image, starts: Starts, start: int, candidates: list[tuple[int, int]], kinds: _Kinds
) -> list[Jump]:
    """Return the branches among `candidates`, all of one function that is read from `start` on."""
    candidates = [(source, target) for source, target in candidates if kinds.at(source) != "d"]
    if not candidates:
        return []
    around = starts.around(start)
    thumb = (kinds.at(candidates[0][0]) or "t" * bool(around and around.thumb)) == "t"
    return _confirm(image, start, candidates, thumb)


# -- what branches look like -----------------------------------------------------------------------------------------

_X86_BRANCH = re.compile(rb"[\x70-\x7f\xe0-\xe3\xe8\xe9\xeb]|\x0f(?=[\x80-\x8f])|\xc7(?=\xf8)", re.DOTALL)
_X86_PREFIXES = 3  # of a branch: 67, 66, a hint, bnd


def _candidates(image: Image, span: Span, targets: Collection[int]) -> Iterator[tuple[int, int, int]]:
    """Yield address, target and the address of the changeable bytes of what looks like a branch to one of `targets`."""
    code = bytes(image.data[span.offset : span.offset + span.end - span.start])
    if image.machine in (M.EM_X86_64, M.EM_386):
        yield from _x86(code, span.start, targets, 0xFFFFFFFF if image.machine == M.EM_386 else ~0)
    elif image.machine == M.EM_AARCH64:
        yield from _words(code, span.start, targets, True, _aarch64)
    elif image.machine in (M.EM_PPC, M.EM_PPC64):
        yield from _words(code, span.start, targets, image.layout.little, _power)
    elif image.machine == M.EM_ARM:
        yield from _words(code, span.start, targets, True, _arm)
        yield from _halfwords(code, span.start, targets, True, _thumb)
    elif image.machine == M.EM_RISCV:
        yield from _halfwords(code, span.start, targets, True, _riscv)
    elif image.machine == M.EM_S390:
        yield from _halfwords(code, span.start, targets, False, _s390)


def _x86(code: bytes, base: int, targets: Collection[int], mask: int) -> Iterator[tuple[int, int, int]]:
    """Intel SDM volume 2: Jcc 70-7f and 0f 80-8f, LOOP and JCXZ e0-e3, CALL e8, JMP e9 and eb, XBEGIN c7 f8."""
    end = len(code)
    for match in _X86_BRANCH.finditer(code):
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


def _signed(value: int, bits: int) -> int:
    return value - (1 << bits) if value >> (bits - 1) & 1 else value


def _aarch64(word: int) -> int | None:
    """Arm ARM C4.1.66: B and BL, B.cond, CBZ and CBNZ, TBZ and TBNZ."""
    if word & 0x7C000000 == 0x14000000:
        return _signed(word & 0x3FFFFFF, 26) * 4
    if word & 0xFF000000 == 0x54000000 or word & 0x7E000000 == 0x34000000:
        return _signed(word >> 5 & 0x7FFFF, 19) * 4
    if word & 0x7E000000 == 0x36000000:
        return _signed(word >> 5 & 0x3FFF, 14) * 4
    return None


def _power(word: int) -> int | None:
    """Power ISA 2.4: b and bl (opcode 18), bc (16), relative ones (AA = 0)."""
    if word & 0xFC000002 == 0x48000000:
        return _signed(word & 0x3FFFFFC, 26)
    if word & 0xFC000002 == 0x40000000:
        return _signed(word & 0xFFFC, 16)
    return None


def _arm(word: int) -> int | None:
    """Arm ARM A8.8.18, A8.8.25: B, BL and BLX with 24 bits; the program counter is two instructions ahead."""
    if word & 0x0E000000 == 0x0A000000:
        return _signed(word & 0xFFFFFF, 24) * 4 + 8
    return None


def _thumb(half: int, following: int) -> int | None:
    """Arm ARM A8.8.18 (B, T1-T4), A8.8.25 (BL), A8.8.29 (CBZ)."""
    if half & 0xF000 == 0xD000 and half & 0x0F00 < 0x0E00:
        return _signed(half & 0xFF, 8) * 2 + 4
    if half & 0xF800 == 0xE000:
        return _signed(half & 0x7FF, 11) * 2 + 4
    if half & 0xF500 == 0xB100:
        return ((half >> 9 & 1) << 6 | (half >> 3 & 31) << 1) + 4
    if half & 0xF800 == 0xF000 and following & 0x8000:
        sign, j1, j2 = half >> 10 & 1, following >> 13 & 1, following >> 11 & 1
        if following & 0x5000 == 0:
            if half >> 6 & 15 >= 14:
                return None
            high = sign << 20 | j2 << 19 | j1 << 18 | (half & 0x3F) << 12
            return _signed(high | (following & 0x7FF) << 1, 21) + 4
        high = sign << 24 | (1 ^ j1 ^ sign) << 23 | (1 ^ j2 ^ sign) << 22 | (half & 0x3FF) << 12
        return _signed(high | (following & 0x7FF) << 1, 25) + 4
    return None


def _riscv(half: int, following: int) -> int | None:
    """RISC-V unprivileged ISA 2.5 (JAL, branches) and 16.4 (c.j, c.beqz, c.bnez)."""
    if half & 3 == 3:
        word = half | following << 16
        if word & 0x7F == 0x6F:
            value = (word >> 31) << 20 | (word >> 12 & 0xFF) << 12 | (word >> 20 & 1) << 11 | (word >> 21 & 0x3FF) << 1
            return _signed(value, 21)
        if word & 0x7F == 0x63:
            value = (word >> 31) << 12 | (word >> 7 & 1) << 11 | (word >> 25 & 0x3F) << 5 | (word >> 8 & 15) << 1
            return _signed(value, 13)
        return None
    if half & 0xE003 == 0xA001:
        value = (
            (half >> 12 & 1) << 11 | (half >> 8 & 1) << 10 | (half >> 9 & 3) << 8 | (half >> 6 & 1) << 7
            | (half >> 7 & 1) << 6 | (half >> 2 & 1) << 5 | (half >> 11 & 1) << 4 | (half >> 3 & 7) << 1
        )  # fmt: skip
        return _signed(value, 12)
    if half & 0xC003 == 0xC001:
        value = (
            (half >> 12 & 1) << 8 | (half >> 5 & 3) << 6 | (half >> 2 & 1) << 5
            | (half >> 10 & 3) << 3 | (half >> 3 & 3) << 1
        )  # fmt: skip
        return _signed(value, 9)
    return None


def _s390(half: int, following: int) -> int | None:
    """z/Architecture Principles of Operation 7 (BRC, BRAS, BRCT: a7 and 84, 85), with 16 bits of halfwords."""
    if half >> 8 == 0xA7 and half & 15 in (4, 5, 6, 7):
        return _signed(following, 16) * 2
    if half >> 8 in (0x84, 0x85, 0xEC):
        return _signed(following, 16) * 2
    return None


def _words(
    code: bytes, base: int, targets: Collection[int], little: bool, decode: _Decode1
) -> Iterator[tuple[int, int, int]]:
    words = array("I")
    skip = -base % 4
    words.frombytes(code[skip : skip + (len(code) - skip & ~3)])
    if little != (sys.byteorder == "little"):
        words.byteswap()
    place = base + skip
    for word in words:
        distance = decode(word)
        if distance is not None and place + distance in targets:
            yield place, place + distance, place
        place += 4


def _halfwords(
    code: bytes, base: int, targets: Collection[int], little: bool, decode: _Decode2
) -> Iterator[tuple[int, int, int]]:
    halves = array("H")
    skip = base % 2
    halves.frombytes(code[skip : skip + (len(code) - skip & ~1)])
    if little != (sys.byteorder == "little"):
        halves.byteswap()
    place = base + skip
    following = iter(halves)
    next(following, 0)
    for half in halves:
        distance = decode(half, next(following, 0))
        if distance is not None and place + distance in targets:
            yield place, place + distance, place
        place += 2


# -- which of them are branches --------------------------------------------------------------------------------------


@functools.cache
def disassembler(machine: int, is64: bool, little: bool, thumb: bool = False) -> capstone.Cs:
    """Return a disassembler for ELF machine number `machine`, which skips what it doesn't know."""
    # capstone 6 calls two machines by other names than 5.
    arm64 = getattr(capstone, "CS_ARCH_ARM64", None) or capstone.CS_ARCH_AARCH64
    system_z = getattr(capstone, "CS_ARCH_SYSZ", None) or capstone.CS_ARCH_SYSTEMZ
    order = capstone.CS_MODE_LITTLE_ENDIAN if little else capstone.CS_MODE_BIG_ENDIAN
    power = capstone.CS_MODE_64 if is64 else capstone.CS_MODE_32
    found = {
        M.EM_X86_64: (capstone.CS_ARCH_X86, capstone.CS_MODE_64),
        M.EM_386: (capstone.CS_ARCH_X86, capstone.CS_MODE_32),
        M.EM_AARCH64: (arm64, capstone.CS_MODE_ARM),
        M.EM_ARM: (capstone.CS_ARCH_ARM, capstone.CS_MODE_THUMB if thumb else capstone.CS_MODE_ARM),
        M.EM_RISCV: (
            capstone.CS_ARCH_RISCV,
            (capstone.CS_MODE_RISCV64 if is64 else capstone.CS_MODE_RISCV32) | capstone.CS_MODE_RISCVC,
        ),
        M.EM_PPC64: (capstone.CS_ARCH_PPC, power | order),
        M.EM_PPC: (capstone.CS_ARCH_PPC, power | order),
        M.EM_S390: (system_z, capstone.CS_MODE_BIG_ENDIAN),
    }[machine]
    decoder = capstone.Cs(*found)
    decoder.skipdata = True
    return decoder


class _Kinds:
    """Which bytes between instructions are data, where the assembler said so."""

    def __init__(self, image: Image) -> None:
        known = image.machine in (M.EM_ARM, M.EM_AARCH64, M.EM_RISCV)
        self._addresses, self._kinds = mapping_symbols(image) if known else ([], [])

    def at(self, address: int) -> str:
        """Return a, t or x for instructions, d for data, "" where nothing is said."""
        index = bisect_right(self._addresses, address) - 1
        return self._kinds[index] if index >= 0 else ""


def _confirm(image: Image, start: int, candidates: list[tuple[int, int]], thumb: bool) -> list[Jump]:
    """Return those of `candidates` (all in one function) that are instructions, when it is read from its start on."""
    last = max(source for source, _ in candidates)
    wanted = dict(candidates)
    found = []
    decoder = disassembler(image.machine, image.layout.is64, image.layout.little, thumb)
    shift = start - image.place(start).address  # an object's reader knows offsets, not our addresses
    prefixes = _X86_PREFIXES if image.machine in (M.EM_X86_64, M.EM_386) else 0
    for shown, size, mnemonic, operands in decoder.disasm_lite(image.read(start, last - start + 16), start - shift):
        address = shown + shift
        found += [
            Jump(address, wanted[place], f"{mnemonic} {operands}".strip())
            for place in range(address, address + min(size, prefixes + 1))
            if place in wanted and _goes_to(operands, shown, wanted[place] - shift)
        ]
        if address >= last:
            break
    return found


_LAST_NUMBER = re.compile(r"(-?)(0x[0-9a-f]+|\d+)$")


def _goes_to(operands: str, source: int, target: int) -> bool:
    """Whether a disassembled instruction's last operand is `target`, absolute, or relative as RISC-V's are printed."""
    match = _LAST_NUMBER.search(operands)
    if match is None:
        return False
    value = int(match.group(2), 0) * (-1 if match.group(1) else 1)
    return target in (value, source + value)


# -- branches of objects ---------------------------------------------------------------------------------------------

# machine -> relocation type -> what to add to symbol + addend to get the branch's target (ELF psABIs)
_BRANCHES: dict[int, dict[int, int]] = {
    M.EM_X86_64: {2: 4, 4: 4, 15: 1},
    M.EM_386: {2: 4, 4: 4, 23: 1},
    M.EM_AARCH64: {279: 0, 280: 0, 282: 0, 283: 0},
    M.EM_RISCV: {16: 0, 17: 0, 18: 0, 19: 0, 44: 0, 45: 0},
    M.EM_PPC64: {10: 0, 11: 0, 116: 0},
    M.EM_PPC: {10: 0, 11: 0, 18: 0},
    M.EM_S390: {16: -2, 17: -2, 19: -2, 20: -2},
    M.EM_ARM: {1: 0, 10: 0, 27: 0, 28: 0, 29: 0, 30: 0, 51: 0, 102: 0, 103: 0},
}


def _through_relocations(image: Image, targets: Collection[int]) -> tuple[list[Jump], frozenset[int]]:
    """Return the branches to `targets` that relocations make, and every address in code that has a relocation."""
    kinds = _BRANCHES.get(image.machine, {})
    jumps, relocated = [], set()
    for section in image.sections:
        if section.type not in (L.SHT_RELA, L.SHT_REL) or section.info >= len(image.sections):
            continue
        code = image.sections[section.info]
        if not code.flags & L.SHF_EXECINSTR or section.link >= len(image.sections):
            continue
        for offset, kind, symbol, addend in image.relocations(section):
            place = code.address + offset
            relocated.add(place)
            target = _symbol_address(image, section.link, symbol) if kind in kinds else None
            if target is None:
                continue
            target += kinds[kind] + (_addend_in_place(image, place, kinds[kind]) if addend is None else addend)
            if target in targets:
                jumps.append(Jump(place, target, "a relocated branch"))
    return jumps, frozenset(relocated)


def _symbol_address(image: Image, table: int, number: int) -> int | None:
    address = image.symbol_address(table, number)
    if address is None:
        return None
    thumb = image.machine == M.EM_ARM and image.symbols(table).infos[number] & 15 in FUNCTION_TYPES and address & 1
    return address - thumb


def _addend_in_place(image: Image, place: int, adjustment: int) -> int:
    """Return the addend that lies in the branch itself (REL machines: i386 and ARM)."""
    if image.machine == M.EM_386:
        size = 1 if adjustment == 1 else 4
        return int.from_bytes(image.read(place, size), "little", signed=True)
    if image.machine == M.EM_ARM:
        code = image.read(place, 4).ljust(4, b"\0")
        first, second, word = *unpack_from("<HH", code), unpack_from("<I", code)[0]
        distance = _thumb(first, second) if second & 0x8000 and first & 0xF800 == 0xF000 else _arm(word)
        return distance or 0
    return 0


if TYPE_CHECKING:
    from typing import Callable

    _Decode1 = Callable[[int], "int | None"]
    _Decode2 = Callable[[int, int], "int | None"]
