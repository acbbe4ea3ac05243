"""Returns of watched calls in a program that a server holds: which are expected, and who has just returned.

Behind a call that is hit a breakpoint stands where it returns to, for as long as somebody is expected there. Who
returns is told by the stack pointer, which is then what it was before the call: recursion and threads are told apart. A
function that jumps to another in its place returns with it.

A call that never returns (longjmp, an exception) leaves what was expected: the same function, called again at the same
place of the stack, takes its place. Where an exception was caught the code often goes on at the same place with the
same stack pointer. Behind a return the link register, or a word below the stack pointer (`Stopped.below`), is the
address that was returned to; behind a `catch` it is one in the C++ library or behind a call of it.

What is no address in a known file's code isn't expected: a part of a function that is entered by a jump (GCC's `.cold`)
has anything where a return address would be, and a breakpoint in data would change it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from ...elf.layout import PF_W, PF_X, SHF_WRITE
from ...inspection.targets import Loaded
from ...machines.facts import Stopped
from .arguments import Watched
from .registers import Registers
from .server import Server


class _Expected(NamedTuple):
    address: int
    stack: int


def _code(loaded: Loaded) -> Iterator[tuple[int, int]]:
    """Yield addresses and sizes of a file's code: by its sections, since a segment may have constants, too."""
    image = loaded.image
    sections = [one for one in image.sections if one.loaded and one.executable and not one.flags & SHF_WRITE]
    parts = [(one.address, one.size) for one in sections]
    if not image.sections:
        executable = [one for one in image.loads if one.flags & (PF_X | PF_W) == PF_X]
        parts = [(one.address, one.memory_size) for one in executable]
    for address, size in parts:
        yield (address + loaded.bias) & (1 << 8 * image.address_size) - 1, size


class Returns:
    """The returns that are expected in one program."""

    def __init__(self, server: Server, stopped: Stopped) -> None:
        self.server, self.stopped = server, stopped
        self._waiting: dict[_Expected, tuple[Watched, ...]] = {}
        self._places: dict[int, int] = {}  # address -> how many are expected there
        self._code: list[tuple[int, int]] = []

    def know(self, files: Iterable[Loaded]) -> None:
        """Take the files that are loaded now: calls come from their code only."""
        self._code = [part for one in files for part in _code(one)]

    def copy(self) -> Returns:
        """Return those of a forked process, which has inherited all calls that are under way with its stack."""
        copy = Returns(self.server, self.stopped)
        copy._waiting, copy._places = dict(self._waiting), dict(self._places)
        copy._code = self._code
        return copy

    def expect(self, watched: Watched, registers: Registers, behind: int) -> tuple[int, bool] | None:
        """Expect the return of a call; return where a breakpoint must be and whether in Thumb code, None if nowhere.

        `behind` is the address behind a call instruction that is next, 0 where the function is next.
        """
        stack = registers.get(self.stopped.stack)
        if stack is None:
            return None
        address: int | None = behind
        if not behind and self.stopped.link:
            address = registers.get(self.stopped.link)
        elif not behind:
            address = self.server.number(stack)
            stack += self.server.word
        if not address:
            return None
        thumb = bool(address & self.stopped.thumb)
        found = _Expected(address & ~self.stopped.thumb, stack)
        if not any(start <= found.address < start + size for start, size in self._code):
            return None
        before = self._waiting.get(found, ())
        stale = next((at for at, one in enumerate(before) if one.target == watched.target), len(before))
        self._places[found.address] = self._places.get(found.address, 0) + (not before)
        self._waiting[found] = (*before[:stale], watched)
        return found.address, thumb

    def take(self, address: int, registers: Registers) -> tuple[Watched, ...]:
        """Return who has returned to an address, the innermost first."""
        stack = registers.get(self.stopped.stack)
        if stack is None:
            return ()
        found = self._waiting.pop(_Expected(address, stack), ())
        if not found:
            return ()
        self._places[address] -= 1
        return found[::-1] if self._came_from(address, stack, registers) else ()

    def _came_from(self, address: int, stack: int, registers: Registers) -> bool:
        """Whether a return has just led to an address: nothing has run since that could have written it over."""
        word = self.server.word
        known = [registers.get(self.stopped.link)] if self.stopped.link else []
        known += [self.server.number(stack - place * word) for place in range(1, self.stopped.below + 1)]
        return any(one is not None and one & ~self.stopped.thumb == address for one in known)

    def is_expected(self, address: int) -> bool:
        """Whether anybody is expected at an address."""
        return self._places.get(address, 0) > 0

    def forget(self, start: int, end: int) -> None:
        """A library that was between two addresses is gone."""
        self._waiting = {one: who for one, who in self._waiting.items() if not start <= one.address < end}
        self._places = {address: count for address, count in self._places.items() if not start <= address < end}
