"""Calls by a register on x86: where it goes what was loaded from a slot, until a call or jump goes there, too.

With -fno-plt compilers take a slot's load out of a loop: `mov slot(%rip), %r14`, and some code later `call *%r14`. The
other machines' way, back from the branch (`values`), has no place to begin here: instructions have many lengths. But
forward from a load each instruction begins where the one before ends. So all ways that lead on from a load are gone,
as long as a register or a place on the stack may hold what was loaded: both ways of a conditional jump, every way of a
jump through a table, to the landing pad of a call that throws. What is found *may* be a call through the slot, since
another way may lead to the same branch with something else: `(wrong ? puts : abort)()` has one call and two slots. Who
counts calls looks at what the register holds when it is called (`place`).

i386 is the same, with the slot's address as a number, or counted from a register that has the table's address.

Encodings: Intel's manual, volume 2; what a function may change: psABI, figure 3.4 (x86-64), 2.2.1 (i386).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import NamedTuple

from ..stubs import CALL, JUMP, Branch, FileCode
from . import steps as x86
from .landing_pads import LandingPads
from .steps import Effect, Place

# What a called function may change: rax, rcx, rdx, rsi, rdi, r8 to r11; of i386 eax, ecx, edx.
_CHANGED = {8: 0b0000111111000111, 4: 0b111}
_MOST = 1 << 13  # steps that are made for one load; functions have fewer instructions, but for a few generated ones
_DEEP = 1 << 14  # bytes of a function's stack, at most: what seems to be farther away was misunderstood
_AT_ONCE = 24  # instructions that are taken apart at once
_TABLE = 1024  # entries of a jump table
_NEAR, _FAR = 2048, 1 << 20  # bytes before a jump in which its table is named, and that it may jump
# test %rax,%rax; je; call or jmp *%rax: a function that may be missing (crti.o's _init, crtbegin.o)
_AX, _KNOWN = 0, re.compile(rb"\x48\x85\xc0\x74.(\xff[\xd0\xe0])", re.DOTALL)
_INDEXED = re.compile(r"\[(?:(?P<base>\w+) \+ )?\w+\*(?P<scale>[48])(?P<distance> [+-] (?:0x)?[0-9a-f]+)?\]")
_COMPARED = re.compile(r"cmp .*, (0x[0-9a-f]+|\d+)$")
_LOOK_BACK = 40  # instructions before a jump through a table in which its address and size are looked for


class SlotLoad(NamedTuple):
    """An instruction that loads a slot's word, or may (cmov): the address behind it, the register, the slot."""

    behind: int
    register: int
    slot: int


class _State(NamedTuple):
    """Where the slot's word may be: registers, as a mask, and places on the stack."""

    registers: int
    stack: frozenset[tuple[int, int]] = frozenset()

    def holds(self, place: Place) -> bool:
        return place in self.stack if isinstance(place, tuple) else place >= 0 and bool(self.registers >> place & 1)

    def without(self, registers: int) -> _State:
        stack = self.stack
        if stack and registers & (1 << x86.SP | 1 << x86.BP):
            stack = frozenset(one for one in stack if not registers >> one[0] & 1)
        return _State(self.registers & ~registers, stack)

    def put(self, place: Place, there: bool) -> _State:
        if isinstance(place, tuple):
            return self._replace(stack=self.stack | {place} if there else self.stack - {place})
        changed = self.without(1 << place)
        return changed._replace(registers=changed.registers | there << place)

    def moved(self, step: int) -> _State:
        """Return the same with the stack pointer so many bytes farther up."""
        if not self.stack:
            return self
        places = ((base, at - step if base == x86.SP else at) for base, at in self.stack)
        return self._replace(stack=frozenset(one for one in places if abs(one[1]) < _DEEP))


class Loads:
    """Follows what was loaded in one file."""

    def __init__(self, code: FileCode, machine: int) -> None:
        self._code, self._machine = code, machine
        self._word = 8 if code.is64 else 4
        self._pads = LandingPads(code.read, code.unwind, self._word)
        self._known: dict[int, tuple[int, Effect, str]] = {}  # address -> length, effect, text
        self._tables: dict[int, tuple[int, ...]] = {}

    def sites(self, loads: Iterable[SlotLoad]) -> Iterator[Branch]:
        """Yield the calls and jumps to where loads may lead, each once for each slot."""
        seen: set[tuple[int, int]] = set()
        for load in loads:
            for site in self._follow(load):
                if (site.address, site.target) not in seen:
                    seen.add((site.address, site.target))
                    yield site

    def _follow(self, load: SlotLoad) -> Iterator[Branch]:
        known = _KNOWN.match(self._code.read(load.behind, 8)) if load.register == _AX and self._word == 8 else None
        if known:  # what every program begins and ends with, and needs no disassembler for
            at, kind = load.behind + known.start(1), CALL if known[1] == b"\xff\xd0" else JUMP
            yield Branch(at, load.slot, kind, slot=True, place="%rax", size=2)
            return
        waiting = [(load.behind, _State(1 << load.register))]
        met: dict[int, _State] = {}
        ways: dict[int, int] = {}  # where each instruction was come to from
        for _ in range(_MOST):
            if not waiting:
                return
            address, state = waiting.pop()
            before = met.get(address)
            if before is not None:
                state = _State(before.registers | state.registers, before.stack | state.stack)
                if state == before:
                    continue
            found = self._at(address)
            if found is None:
                continue
            met[address] = state
            length, effect, _ = found
            if effect.kind in {x86.CALL, x86.JUMP} and state.holds(effect.source):
                kind = CALL if effect.kind == x86.CALL else JUMP
                yield Branch(
                    address, load.slot, kind, slot=True, place=_spelled(effect.source, self._word), size=length
                )
            for target, after in self._ways(address, address + length, effect, state, ways):
                if after.registers or after.stack:
                    ways.setdefault(target, address)
                    waiting.append((target, after))

    def _ways(
        self, address: int, behind: int, effect: Effect, state: _State, ways: dict[int, int]
    ) -> Iterator[tuple[int, _State]]:
        after = state.without(effect.writes)
        if effect.kind == x86.CALL:
            if effect.number == behind:  # whose return address is taken
                yield behind, after.moved(-self._word)
                return
            after = after.without(_CHANGED[self._word])
            pad = self._pads.of(address)
            if pad:
                yield pad, after
        elif effect.kind == x86.JUMP:
            targets: tuple[int, ...] = (effect.number,) if effect.number >= 0 else ()
            if not targets and not state.holds(effect.source):
                targets = self._table(address, effect, ways)
            yield from ((target, after) for target in targets)
            return
        elif effect.kind == x86.BRANCH and effect.number >= 0:
            yield effect.number, after
        elif effect.kind == x86.COPY:
            after = after.put(effect.to, state.holds(effect.source))
        elif effect.kind == x86.MAYBE and state.holds(effect.source):
            after = after.put(effect.to, True)
        elif effect.kind == x86.SWAP:
            after = after.put(effect.to, state.holds(effect.source)).put(effect.source, state.holds(effect.to))
        elif effect.kind == x86.STEP:
            after = after.moved(effect.number)
        if effect.kind != x86.END:
            yield behind, after

    # -- instructions ------------------------------------------------------------------------------------------------

    def _at(self, address: int) -> tuple[int, Effect, str] | None:
        found = self._known.get(address)
        if found is None:
            from ..disassembly import instructions  # loading capstone takes a while

            is64, part = self._code.is64, self._bytes(address)
            there = instructions(self._machine, part, address, is64=is64, at_once=_AT_ONCE)
            for at, length, mnemonic, operands in islice(there, _AT_ONCE):
                if at in self._known:
                    break
                effect = x86.effect(mnemonic, operands, self._word)
                self._known[at] = length, effect, f"{mnemonic} {operands}"
            found = self._known.get(address)
        return found

    def _bytes(self, address: int) -> bytes:
        for span in self._code.spans:
            if span.address <= address < span.address + len(span.code):
                return span.code[address - span.address :][: 15 * _AT_ONCE]
        return b""

    # -- jump tables -------------------------------------------------------------------------------------------------

    def _table(self, address: int, effect: Effect, ways: dict[int, int]) -> tuple[int, ...]:
        """Return where a jump by a register or through memory may lead, if it is that of a `switch`."""
        if address not in self._tables:
            lines = self._lines_before(address, ways)
            found = next((one for line in (effect.text, *lines) if (one := _INDEXED.search(line))), None)
            self._tables[address] = self._entries(address, found, lines) if found else ()
        return self._tables[address]

    def _lines_before(self, address: int, ways: dict[int, int]) -> list[str]:
        lines: list[str] = []
        while address in ways and len(lines) < _LOOK_BACK:
            address = ways[address]
            lines.append(self._known[address][2].replace("rip", f"{address + self._known[address][0]:#x}"))
        return lines

    def _entries(self, address: int, table: re.Match[str], lines: list[str]) -> tuple[int, ...]:
        """Return the entries of a table: addresses, or distances of 32 bits from the register that it is counted from.

        As many as the comparison before the jump says.
        """
        mask, size = (1 << 8 * self._word) - 1, int(table["scale"])
        base = self._base(address, table["base"], lines) if table["base"] else 0
        if base is None or size not in {4, self._word}:
            return ()
        start = base + int((table["distance"] or "0").replace(" ", "").replace("+", ""), 0)
        last = next((int(one[1], 0) for line in lines if (one := _COMPARED.match(line))), _TABLE - 1)
        raw = self._code.read(start & mask, size * min(last + 1, _TABLE))
        found = []
        for at in range(0, len(raw) - size + 1, size):
            target = int.from_bytes(raw[at : at + size], "little", signed=bool(base)) + base & mask
            if abs(target - address) > _FAR:
                break
            found.append(target)
        return tuple(dict.fromkeys(found))

    def _base(self, address: int, register: str, lines: list[str]) -> int | None:
        """Return what a register holds that a table is counted from: what `lea` has put there, or the table of slots.

        The `lea` may be before the load, out of a loop: then it is the nearest one.
        """
        for line in lines:
            found = re.match(rf"lea {register}, \[(0x[0-9a-f]+) ([+-]) (0x[0-9a-f]+)\]", line)
            if found:
                return int(found[1], 0) + int(found[2] + found[3], 0)
        if self._word == 4:
            return self._code.tags.get(3)  # DT_PLTGOT
        number = x86.register(register)
        lea = bytes((0x4C if number > 7 else 0x48, 0x8D, (number & 7) << 3 | 5))
        near = self._code.read(address - _NEAR, _NEAR)
        at = near.rfind(lea, 0, _NEAR - 4)
        return (
            address - _NEAR + at + 7 + int.from_bytes(near[at + 3 : at + 7], "little", signed=True) if at >= 0 else None
        )


def _spelled(place: Place, word: int) -> str:
    """Return a place as records have it: `%r14`, `16(%rsp)`."""
    register, distance = place if isinstance(place, tuple) else (place, None)
    return f"%{x86.name(register, word)}" if distance is None else f"{distance}(%{x86.name(register, word)})"
