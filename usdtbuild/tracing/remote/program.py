"""The program that a stub holds: what it has loaded, what is armed in it, and what each of its stops means.

It runs or stands. `look` takes a stop, after which it stands; `go_on` lets it run; `leave` puts everything back.
"""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING

from ...errors import InputError
from ...machines import facts_of
from ..model import COUNT, Event
from .files import Files
from .modules import Modules
from .plt_slots import PltSlots
from .post_fixup import PostFixup
from .sites import Sites
from .stub import INTERRUPTED

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..job import Job
    from .stub import Stop, Stub

# Seconds after which an interrupt that hasn't come is lost: gdbserver sends it to the program's process group, which a
# program that it attached to needs not lead.
_LOST = 3.0


class Program:
    """One program. Its methods raise TracerError when the stub is gone."""

    def __init__(self, stub: Stub, wish: Job, sysroot: str) -> None:
        """Find out what it is; it stands. Raises InputError, TracerError."""
        self.stub, self.wish = stub, wish
        self.counts: dict[int, int] = {}
        self.events: list[Event] = []
        self.exited: int | None = None
        self.running = False
        self.pid = thread_number(stub.first.thread)
        self._owed: list[int] = []
        self.files = Files(stub, sysroot, wish.argv[0] if wish.argv else "")
        image = self.files.program
        facts = facts_of(image.machine)
        if facts is None:
            raise InputError(image.path, f"is for a machine that isn't known here ({image.machine_name})")
        stub.learn(facts.stopped, word=image.address_size, little=image.little)
        self.files.locate()
        self.sites = Sites(stub, facts.stopped, wish.string_size)
        self.slots = PltSlots(stub, self.sites)
        self.modules = Modules(stub, wish.wanted, self.files, self.sites, self.slots)
        say = self.modules.refuse
        self._fixups = PostFixup(stub, self.sites, self.slots, self._pass, self.look, self._owed.append, say)

    # -- what happens ------------------------------------------------------------------------------------------------

    def go_on(self) -> None:
        """Let the standing program run, with a signal that it is owed."""
        self.running = True
        self.stub.start(self._owed.pop(0) if self._owed else 0)

    def look(self, stop: Stop, *, own_traps: bool = True) -> bool:
        """Take what a stop tells, and step past its breakpoint; return whether there is a program left to go on.

        `own_traps`: a trap that is none of ours is the program's, which gets it.
        """
        self.exited, self.running = stop.exited, False
        if stop.exited is not None:
            return False
        if self._fixups.swallows(stop):
            return True
        if stop.forked:
            self._let_child_go(stop)
        if stop.unshared:
            self.stub.turn_to(stop.thread)
            self.sites.put_in()
            self.slots.lead_back()
        if stop.event:
            return True
        address = self.hit(stop)
        if not address:
            if own_traps or not stop.trapped:
                self._owed.append(stop.signal)
            return True
        registers = self.stub.registers(stop.thread)
        if self.slots.runs_through(address, registers):
            return self._pass(stop.thread, address)
        now, tid = time.monotonic_ns(), thread_number(stop.thread)
        seen = [*self.sites.returned(address, registers), *self.sites.hits(address, registers)]
        self.sites.expect(address, registers)
        for number, values in seen:
            self.counts[number] = self.counts.get(number, 0) + 1
            if self.wish.what != COUNT:
                self.events.append(Event(now, self.pid, tid or self.pid, number, values))
        self.modules.reached(address)
        return self._pass_on(stop.thread, address)

    def _pass_on(self, thread: str, address: int) -> bool:
        """Let a thread go on from a breakpoint; return whether there is a program left."""
        if address in self.slots.by_entry:
            lives = self._fixups.enter(thread, address)
            self.exited = self._fixups.exited if self._fixups.exited is not None else self.exited
            return lives
        lives = self._pass(thread, address)
        if lives and address in self._fixups.stores:
            self._fixups.stored(thread)
        return lives

    def hit(self, stop: Stop) -> int:
        """Return which of our breakpoints a stop is for; 0 for none."""
        if not stop.trapped:
            return 0
        address = self.stub.counter(self.stub.registers(stop.thread))
        return address if address in self.sites.kinds else 0

    def _let_child_go(self, stop: Stop) -> None:
        """Let go of a child, which has copies of the breakpoints and of raised semaphores: they must go first.

        A child of vfork has no copies but the memory itself, so everything is out until it has become another program;
        other threads of the program are not seen meanwhile.
        """
        self.stub.turn_to(stop.forked)
        self.slots.restore()
        self.sites.take_out(keep_semaphores=stop.shares)
        self.stub.let_go(stop.forked)
        self.stub.turn_to(stop.thread)
        if stop.shares:
            self.slots.restore()
            self.sites.take_out(keep_semaphores=True)

    def _pass(self, thread: str, address: int) -> bool:
        """Let a thread execute the instruction under a breakpoint; return whether there is a program left.

        The breakpoint is out for this one step, in which no other thread runs, so that none can pass it unseen.
        """
        kind = self.sites.kinds.get(address)
        if kind is None:  # its library went away
            return True
        self.stub.remove(address, kind)
        while True:
            stop = self.stub.step(thread)
            if stop is None:
                continue
            if stop.exited is not None:
                self.exited = stop.exited
                return False
            if stop.trapped:
                break
            # A signal came first. It waits until the step is done: a handler that ran before the instruction would
            # return to it, and the hit would be counted again.
            if not stop.event:
                self._owed.append(stop.signal)
        self.stub.insert(address, kind)
        return True

    # -- the end -----------------------------------------------------------------------------------------------------

    def leave(self, ask: Callable[[], None], tell: Callable[[str], None], *, by_trap: bool) -> None:
        """Stop the program if it runs, put everything back, and let it go. Raises TracerError.

        `ask` asks for the stop, which comes as a trap (it always does), or as an interrupt. Where an interrupt is
        lost, the next hit is a stop as well: nothing else in the program minds breakpoints, so there is time until
        then, and `tell` says what is waited for.
        """
        self._fixups.leaving = True
        if self.running:
            ask()
        deadline, told = time.monotonic() + _LOST, False
        while self.running:
            stop = self.stub.wait(0.1)
            lost = time.monotonic() > deadline
            if stop is None:
                if lost and not told:
                    told = True
                    tell(f"{self.stub.link.name} doesn't stop the program; the trace ends with its next hit")
                continue
            if self._fixups.swallows(stop):
                self.stub.start()
                continue
            asked = stop.trapped if by_trap else stop.signal in {0, INTERRUPTED}
            if asked and not stop.event and stop.exited is None and not self.hit(stop):
                self.running = False
                break
            # Something else was first. What was asked for is still to come, and must not be left behind: it would end
            # a program that nobody holds.
            hit = self.hit(stop)
            if not self.look(stop, own_traps=False):
                return
            if lost and hit and not by_trap:
                break
            self.go_on()
        self.stub.turn_to(self.stub.first.thread)
        self.slots.restore()
        self.sites.take_out()
        self.stub.let_go(self.stub.first.thread)


def thread_number(thread: str) -> int:
    """Return the number of a thread: `1f` or `p12.1f`, in hexadecimal; 0 where it isn't said."""
    with contextlib.suppress(ValueError):
        return int(thread.rpartition(".")[2], 16)
    return 0
