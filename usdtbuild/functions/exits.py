"""Where a function returns: all its `ret` instructions, if it can be told that it returns by nothing else.

A function is read as its compiler wrote it, one instruction behind the other from its first to its last byte, and its
cold part too. It is told if every branch goes to one of these instructions: then whoever returns does so by one of the
`ret`s that were seen, and nobody else gets to one. It isn't told where there is a jump to another function (a tail
call), a jump through a register or memory (which may be one), data among the code, or a `ret` that is used as a jump.
Only for machines whose code capstone takes apart for us anyway (`facts.returns`).

Who finds out otherwise when a function has been left wants to know its `ret`s, though it may also jump to others
(`partly`). Where a jump may go anywhere, they are told if all of them are reached without it or by a `switch`'s table:
what else looks like one might be data.
"""

from __future__ import annotations

import re
import struct
from bisect import bisect_right
from collections.abc import Iterator, Sequence

from ..elf.space import AddressSpace
from ..machines import facts_of
from ..machines.facts import Entries
from ..machines.nops import nop_at
from ..record import NamedTuple
from .entry import Start, Starts
from .report import Function

_RELATIVE = re.compile(r"\[rip ([+-]) (\w+)\]")
_LARGEST = 1 << 14  # bytes of a table
_LONGEST = 1 << 20  # bytes of a function that are read
_PADDING = 16  # bytes behind a `ret` that are looked at
_COLD = ".cold"
_RETURNS = frozenset({"ret", "retf", "retfq", "iret", "iretd", "iretq", "sysret", "sysretq", "sysexit"})
_LEAVES = frozenset({"jmp", "ud2", "hlt", "int3", "call"})  # a call at the end never comes back
_BRANCHES = ("j", "loop")


class Exit(NamedTuple):
    """One `ret`: its address, and how many bytes behind it are padding between functions, which nobody runs."""

    address: int
    unused: int


class Ends(NamedTuple):
    """Where a function returns, and other functions' code that it jumps to, which returns in its place."""

    exits: tuple[Exit, ...]
    leads: tuple[int, ...] = ()


class Exits:
    """Finds the exits of the functions of one file."""

    def __init__(
        self, space: AddressSpace, starts: Starts, machine: Entries | None, functions: Sequence[Function]
    ) -> None:
        """`functions` are those of the report, whose paddings are theirs."""
        self.space, self.starts, self._machine = space, starts, machine
        facts = facts_of(space.machine)
        self.plain, self._filler = (facts.returns, facts.filler) if facts is not None else (b"", b"")
        self._known = bool(self.plain) and machine is not None and not space.relocatable
        self._begins = sorted((one.entry or one.address) - one.padding for one in functions)

    def of(self, function: Function, *, partly: bool = False) -> Ends | str:
        """Return where a function returns, or why that can't be told. Addresses are those of the file. `partly`: it may
        end by jumps, too."""
        if not self._known:
            return "returns can't be told on this machine"
        entry = function.entry or function.address
        start = self.starts.around(entry)
        if start is None or not start.size or entry - start.address >= start.size:
            return "the file doesn't say where it ends"
        reader = _Reader(self, start, partly=partly)
        exits = (Exit(at, self._unused(at + len(self.plain))) for at in reader.returns)
        return reader.reason or Ends(tuple(exits), tuple(sorted(reader.leads)))

    def _unused(self, address: int) -> int:
        """Return how many bytes from an address on are neither a function's nor its room for a patch."""
        around = self.starts.around(address - len(self.plain))
        if around is None or around.address + around.size != address:
            return 0
        following = bisect_right(self._begins, address - 1)
        after = self.starts.at_or_after(address)
        ends = [address + _PADDING, *self._begins[following : following + 1], *([after.address] if after else [])]
        code = self.space.read(address, max(0, min(ends) - address))
        at = 0
        assert self._machine is not None
        while at < len(code):
            length = 1 if code.startswith(self._filler, at) else nop_at(self._machine, code, at)
            if not length:
                break
            at += length
        return min(at, len(code))


class _Reader:
    """One function: its returns, or the reason why they can't be told."""

    def __init__(self, exits: Exits, start: Start, *, partly: bool) -> None:
        self.reason = ""
        self.returns: list[int] = []
        self.leads: set[int] = set()
        self._exits, self._entry, self._partly = exits, start.address, partly
        self._ways: dict[int, list[int]] = {}  # by instruction, where it leads to; -1: anywhere
        self._bases: set[int] = set()  # addresses that it takes
        self._names = {start.name, *start.aliases}
        self._parts: list[tuple[int, int]] = []
        self._instructions: set[int] = set()
        self._targets: set[int] = set()
        self._add(start)
        at = 0
        while at < len(self._parts) and not self.reason:
            self._read(*self._parts[at])
            at += 1
        wild = self._targets - self._instructions
        if wild and not self.reason:
            self.reason = f"a branch goes between its instructions, to {min(wild):#x}"
        if not self.reason and any(-1 in ways for ways in self._ways.values()) and not self._reaches_all():
            self.reason = "a jump that may go anywhere leads to some of its returns alone"

    def _reaches_all(self) -> bool:
        reached, waiting = set[int](), [self._entry, *(to for base in self._bases for to in self._cases(base))]
        while waiting:
            at = waiting.pop()
            if at not in reached:
                reached.add(at)
                waiting += self._ways.get(at, ())
        return reached.issuperset(self.returns)

    def _cases(self, base: int) -> Iterator[int]:
        """Yield where a `switch` leads, if its table is at an address: distances from there to its cases."""
        table = self._exits.space.read(base, _LARGEST)
        for (distance,) in struct.iter_unpack("<i", table[: len(table) & -4]):
            if base + distance not in self._instructions:
                return
            yield base + distance

    def _add(self, start: Start) -> None:
        self._parts.append((start.address, start.address + start.size))
        inner = self._exits.starts.at_or_after(start.address + 1)
        if start.size > _LONGEST:
            self.reason = "it is too long"
        elif inner is not None and inner.address < start.address + start.size:
            self.reason = f"another function begins within it, at {inner.address:#x}"

    def _read(self, begin: int, end: int) -> None:
        from ..machines.disassembly import instructions  # loading capstone takes a while

        space = self._exits.space
        code = space.read(begin, end - begin)
        before, at = "", begin
        for at, length, mnemonic, operands in instructions(
            space.machine, code, begin, is64=space.layout.is64, little=space.layout.little
        ):
            self._instructions.add(at)
            bare = mnemonic.rsplit(maxsplit=1)[-1]
            self._ways[at] = [at + length] if bare not in _RETURNS | {"jmp"} else []
            if bare in _RETURNS:
                if code[at - begin : at - begin + length] != self._exits.plain or before == "push":
                    self.reason = f"it returns by `{mnemonic} {operands}`".rstrip() + f" at {at:#x}"
                self.returns.append(at)
            elif mnemonic.startswith("."):
                self.reason = f"there is no known instruction at {at:#x}"
            elif bare == "lea" and self._partly and (found := _RELATIVE.search(operands)):
                self._bases.add(at + length + int(f"{found[1]}{found[2]}", 0))
            elif bare.startswith(_BRANCHES):
                self._branch(at, mnemonic, operands)
            elif bare == "call" and _number(operands) in range(self._entry + 1, self._parts[0][1]):
                self.reason = f"it calls into its own middle, at {at:#x}"
            if self.reason:
                return
            before = bare if bare != "nop" else before
        if before not in _LEAVES and before not in _RETURNS:
            self.reason = f"it goes on behind its end, at {at:#x}"

    def _branch(self, at: int, mnemonic: str, operands: str) -> None:
        target = _number(operands)
        self._ways[at].append(target if target is not None else -1)
        if target is None and self._partly:
            return
        if target is None:
            self.reason = f"where `{mnemonic} {operands}` at {at:#x} goes can't be told: to another function, maybe"
            return
        self._targets.add(target)
        if any(begin <= target < end for begin, end in self._parts):
            return
        around = self._exits.starts.around(target)
        if around is not None and target < around.address + around.size:
            wholes = {name.partition(_COLD)[0] for name in (around.name, *around.aliases) if _COLD in name}
            if not wholes.isdisjoint(self._names):
                self._add(around)
                return
        if self._partly:
            self._targets.discard(target)
            self.leads.add(target)
        else:
            self.reason = f"it jumps to another function, at {at:#x}"


def _number(operands: str) -> int | None:
    """Return where a direct branch goes; None for one through a register or memory."""
    try:
        return int(operands, 0)
    except ValueError:
        return None
