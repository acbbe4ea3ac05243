"""Returns of watched calls in a program that a stub holds: which are expected, and who has just returned.

Behind a call that is hit a breakpoint stands where it returns to, for as long as somebody is expected there. Who
returns is told by the stack pointer, which is then what it was before the call: recursion and threads are told apart. A
function that jumps to another in its place returns with it.

A call that never returns (longjmp, an exception) leaves what was expected: the same function, called again at the same
place of the stack, takes its place.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from ...machines.facts import Stopped
    from .registers import Registers
    from .sites import Watched
    from .stub import Stub


class _Expected(NamedTuple):
    """Where a call returns to, and the stack pointer by then."""

    address: int
    stack: int


class Returns:
    """The returns that are expected in one program."""

    def __init__(self, stub: Stub, stopped: Stopped) -> None:
        self.stub, self.stopped = stub, stopped
        self._waiting: dict[_Expected, tuple[Watched, ...]] = {}
        self._places: dict[int, int] = {}  # address -> how many are expected there

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
            address = self.stub.number(stack)
            stack += self.stub.word
        if not address:
            return None
        thumb = bool(address & self.stopped.thumb)
        found = _Expected(address & ~self.stopped.thumb, stack)
        before = self._waiting.get(found, ())
        stale = next((at for at, one in enumerate(before) if one.target == watched.target), len(before))
        self._places[found.address] = self._places.get(found.address, 0) + (not before)
        self._waiting[found] = (*before[:stale], watched)
        return found.address, thumb

    def take(self, address: int, registers: Registers) -> tuple[Watched, ...]:
        """Return who has returned to an address, the innermost first."""
        stack = registers.get(self.stopped.stack)
        found = self._waiting.pop(_Expected(address, stack), ()) if stack is not None else ()
        if found:
            self._places[address] -= 1
        return found[::-1]

    def is_expected(self, address: int) -> bool:
        """Whether anybody is expected at an address."""
        return self._places.get(address, 0) > 0

    def forget(self, start: int, end: int) -> None:
        """A library that was between two addresses is gone."""
        self._waiting = {one: who for one, who in self._waiting.items() if not start <= one.address < end}
        self._places = {address: count for address, count in self._places.items() if not start <= address < end}
