"""Returns of watched calls: which are expected, and who has just returned.

A call that is hit gets a breakpoint at the address that it will return to, in the caller's code, for as long as anybody
is expected there. Who returns is told from others that come by, other threads and outer calls of a recursion, by the
stack pointer: behind the return it is right above where the return address was, and no two calls that are under way
have that in common, except a function and one that it has jumped to in its place; these return at once.

Behind a return the word below the stack pointer (with a link register: that one) is the address that was returned to:
nothing has run since that could have written there. Where an exception was caught the code often goes on at the same
place with the same stack pointer, but it has called the C++ library meanwhile, whose return address is there then, or
in a link register that of the frame which goes on.

A call that never returns (longjmp, an exception, the end of its thread) leaves what was expected. The breakpoint then
stays too, and whoever comes by goes on; a new call in the same place of the stack takes the old one's place. A process
that was forked inherits all of it with its stack; one that shares its parent's memory (vfork) leaves breakpoints alone.
"""

from __future__ import annotations

from ...record import NamedTuple
from .. import ptrace
from ..hosts import HOST
from ..maps import Area, Memory, areas
from ..model import Value
from ..patch import slots
from .operands import Reader, Registers

_ELF = b"\x7fELF"
_CALL = 8  # bytes of the longest direct call
_LINK = HOST.registers.link
_ADDRESS = (1 << 48) - 1  # what is an address in a link register that may be signed


class Wanted(NamedTuple):
    """What is told of a return: the target's number, and how its result is read; `floats` as in a breakpoint.

    `site` is where the call was seen that returns; a call instruction there has `size` bytes, if that is known.
    """

    target: int
    readers: tuple[Reader, ...]
    floats: bool
    site: int = 0
    size: int = 0


class Expected(NamedTuple):
    """Where a call returns to, and the stack pointer by then."""

    address: int
    stack: int


class Returns:
    """The returns that are expected in one process."""

    def __init__(self, pid: int, memory: Memory, inherited: Returns | None = None) -> None:
        self.pid, self.memory = pid, memory
        self.shares_memory = False
        self._waiting: dict[Expected, tuple[Wanted, ...]] = {}
        self._places: dict[int, int] = {}  # address -> how many are expected there
        # Breakpoints that were there: address -> byte. A process that is just being forked may still have them.
        self.before: dict[int, bytes] = {}
        self._mapped: list[Area] = []
        if inherited is not None:
            self._waiting = dict(inherited._waiting)  # noqa: SLF001
            self._places = dict(inherited._places)  # noqa: SLF001
            self.before = dict(inherited.before)

    def expect(self, site: int, instruction: bytes, registers: Registers, wanted: Wanted) -> int | None:
        """Expect the return of the call at a site; return where a breakpoint must be, None if nowhere.

        `instruction` is what stands at the site, as far as the breakpoint hides it.
        """
        if self.shares_memory:
            return None
        found, calls = self._comes_back(site, instruction, registers, wanted.size)
        if not self._is_code(found.address):
            return None
        before = self._waiting.get(found, ())
        if before and (calls or any(one.site == site for one in before) or self._is_called(site, found.address)):
            before = ()  # the calls that were expected here never came back
        else:
            self._places[found.address] = self._places.get(found.address, 0) + (not before)
        self._waiting[found] = (*before, wanted._replace(site=site))
        return found.address

    def _comes_back(self, site: int, instruction: bytes, registers: Registers, size: int) -> tuple[Expected, bool]:
        """Return where the call at a site returns to, and whether the site is the call instruction itself."""
        stack = registers[ptrace.SP]
        if _LINK:
            calls = HOST.traps.calls(instruction)
            link = registers[ptrace.INDEX[_LINK]] & _ADDRESS
            return Expected(site + calls if calls else link, stack), bool(calls)
        if size:
            return Expected(site + size, stack), True
        # Where the breakpoint is now, a call instruction has ff; what begins otherwise is none.
        load = slots.load_of(self.memory.read(site + 1, slots.LONGEST - 1).rjust(slots.LONGEST, b"\xff"), site)
        if load is not None and load.is_call:
            return Expected(load.counts_from, stack), True
        return Expected(self.memory.word(stack) or 0, stack + 8), False

    def _is_called(self, site: int, back: int) -> bool:
        """Whether the instruction before the return address is a call of this very site."""
        return HOST.traps.called(self.memory.read(back - _CALL, _CALL).rjust(_CALL, b"\0"), back) == site

    def _is_code(self, address: int) -> bool:
        """Whether an address is in the code of a program or library. Other code, a JIT compiler's, may be moved or
        written anew, breakpoint and all; it may lie in a file, too, if in none that begins like a program."""
        for _ in range(2):
            for area in self._mapped:
                if area.start <= address < area.end:
                    return area.flags == "r-xp" and area.inode != 0 and self._is_of_a_program(area)
            self._mapped = areas(self.pid)
        return False

    def _is_of_a_program(self, area: Area) -> bool:
        key = area.name, area.inode
        begins = [one.start for one in self._mapped if (one.name, one.inode) == key and not one.offset]
        return any(self.memory.read(start, len(_ELF)) == _ELF for start in begins)

    def take(self, address: int, registers: Registers, tid: int) -> list[tuple[int, tuple[Value, ...]]]:
        """Return who has returned to an address, the innermost first, with their results."""
        found = self._waiting.pop(Expected(address, registers[ptrace.SP]), ())
        if not found:
            return []
        self._places[address] -= 1
        if self._came_from(registers) != address:
            return []
        floats = any(one.floats for one in found)
        known = [*registers, *ptrace.float_registers(tid)] if floats else registers
        return [(one.target, tuple([read(known, self.memory) for read in one.readers])) for one in reversed(found)]

    def _came_from(self, registers: Registers) -> int | None:
        if _LINK:
            return registers[ptrace.INDEX[_LINK]] & _ADDRESS
        return self.memory.word(registers[ptrace.SP] - 8)

    def is_expected(self, address: int) -> bool:
        """Whether anybody is expected at an address, or its breakpoint must stay for another reason."""
        return self.shares_memory or self._places.get(address, 0) > 0

    def forget(self, start: int, end: int) -> None:
        """A library that was between two addresses is gone."""
        self._mapped = []
        self._waiting = {one: wanted for one, wanted in self._waiting.items() if not start <= one.address < end}
        for known in (self._places, self.before):
            for address in [one for one in known if start <= one < end]:
                del known[address]
