"""One process that a server holds: its files, what is armed in it, and what happens where it stops at our breakpoints.

A forked process has copies of everything. One that shares its parent's memory (vfork) has what its parent has, and
what is asked about this memory is asked of the parent: the server remembers of each process which breakpoints it has.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...errors import InputError
from ...machines import facts_of
from .files import Files
from .modules import Modules
from .plt_slots import PltSlots
from .post_fixup import PostFixup
from .server import Machine, process_of, thread_number
from .sites import Sites

if TYPE_CHECKING:
    from .holder import Holder
    from .registers import Registers
    from .server import Stop


_SEQUENCE = 64  # bytes of code in which one that reserves memory has ended


class Process:
    """One process. Without `arm` or `forked` nothing is armed in it. Its methods raise TracerError."""

    def __init__(self, program: Holder, thread: str) -> None:
        """`thread` is what the server calls one of its threads."""
        self.program, self.server = program, program.server
        self.name = process_of(thread)
        self.pid = int(self.name, 16) if self.name else thread_number(thread)
        self.armed = False
        self.counted = True
        self.parent: Process | None = None  # whose memory it shares
        self.exited: int | None = None
        # Any thread of it, since the one that it began with may have ended.
        self._thread = f"p{self.name}.0" if self.name else thread
        self._machine = Machine()
        self._code: dict[int, bytes] = {}  # what was read to be stepped through; libraries that go take it with them

    def arm(self, path: str, sysroot: str) -> None:
        """Find out what it is and arm it; it stands. Raises InputError.

        `path` is its file here, '' where the server has to say, and `sysroot` the folder that is its root.
        """
        server, wish, found = self.server, self.program.wish, self.program.found
        self.turn()
        self.files = Files(server, sysroot, path)
        image = self.files.program
        facts = facts_of(image.machine)
        if facts is None:
            raise InputError(image.path, f"is for a machine that isn't known here ({image.machine_name})")
        self._machine = server.learn(facts.stopped, word=image.address_size, little=image.little)
        self.files.locate()
        self.sites = Sites(server, facts.stopped, wish.string_size)
        self.slots = PltSlots(server, self.sites)
        self.modules = Modules(found, wish.wanted, self.files, self.sites, self.slots)
        self._fixups = PostFixup(self)
        self.armed = True
        self.modules.arm()

    def forked(self, thread: str, *, shares: bool) -> Process:
        """Return the process that it has just started, whose memory is a copy of its own, or `shares` that."""
        child = Process(self.program, thread)
        child.armed, child.counted, child._machine = self.armed, self.counted, self._machine
        if not self.armed:
            return child
        child.files = self.files
        child.parent = (self.parent or self) if shares else None
        child.sites = self.sites if shares else self.sites.copy()
        child.slots = self.slots if shares else self.slots.copy(child.sites)
        child.modules = self.modules if shares else self.modules.copy(child.sites, child.slots)
        child._fixups = self._fixups if shares else PostFixup(child)
        return child

    def turn(self) -> None:
        """Mean this process, or rather its memory, with what the server is asked from now on."""
        owner = self.parent if self.parent is not None and self.parent.exited is None else self
        self.server.turn_to(owner._thread, self._machine)

    # -- what happens ------------------------------------------------------------------------------------------------

    def hit(self, stop: Stop) -> int:
        """Return which of our breakpoints a stop is for; 0 for none."""
        found = self._trapped(stop)
        return found[0] if found is not None and found[0] in self.sites.kinds else 0

    def _trapped(self, stop: Stop) -> tuple[int, Registers] | None:
        """Return where a thread has stopped by a trap, and its registers; None for another stop."""
        if not stop.trapped or not self.armed:
            return None
        self.turn()
        registers = self.server.registers(stop.thread)
        return self.server.counter(registers), registers

    def look(self, stop: Stop, *, own_traps: bool = True) -> bool:
        """Take a stop of one of its threads, and step past its breakpoint; return whether it is still there.

        `own_traps`: a trap that is none of ours is the process' own, which gets it.
        """
        found = self._trapped(stop)
        if found is None or found[0] not in self.sites.kinds:
            # A thread that has run into a breakpoint is told of later if others have, too; that may be gone by then.
            late = found is not None and found[0] in self.sites.gone
            if not late and (own_traps or not stop.trapped):
                self.program.owe(stop)
            return True
        address, registers = found
        self.turn()
        if self.slots.runs_through(address, registers):
            return self.step_past(stop.thread, address)
        # Who has this memory for a moment only neither returns in it nor makes others seem to.
        seen = list(self.sites.hits(address, registers))
        if self.parent is None:
            seen = [*self.sites.returned(address, registers), *seen]
            self.sites.expect(address, registers)
        if self.counted:
            self.program.see(self, stop.thread, seen)
        if self.modules.reached(address):
            self._code.clear()
        return self._pass_on(stop.thread, address)

    def _pass_on(self, thread: str, address: int) -> bool:
        """Let a thread go on from a breakpoint; return whether the process is still there."""
        if address in self.slots.by_entry:
            return self._fixups.enter(thread, address)
        lives = self.step_past(thread, address)
        if lives and address in self._fixups.stores:
            self._fixups.stored(thread)
        return lives

    def step_past(self, thread: str, address: int) -> bool:
        """Let a thread execute the instruction under a breakpoint; return whether the process is still there.

        The breakpoint is out for this one step, in which no other thread runs, so that none can pass it unseen.
        """
        kind = self.sites.kinds.get(address)
        if kind is None:  # its library went away
            return True
        self.turn()
        self.server.remove(address, kind)
        while True:
            stop = self.step(thread, address)
            if stop is None:
                continue
            if stop.exited is not None:
                self.ended(stop)
                return False
            if stop.trapped:
                if self.program.asked and self.server.counter(self.server.registers(thread)) == address:
                    self.program.asked = False
                    continue
                break
            # A signal came first. It waits until the step is done: a handler that ran before the instruction would
            # return to it, and the hit would be counted again.
            if not stop.event:
                self.program.owe(stop)
            elif self.program.hear(stop) is not self:  # the instruction was a system call
                return True
        self.turn()
        self.server.insert(address, kind)
        return True

    def step(self, thread: str, address: int, patience: float = 3600.0) -> Stop | None:
        """Let one thread execute the instruction at an address, or the sequence that begins there: as `Server.step`.

        A function may begin with one, on any machine that has them, and `post_fixup` goes through code that has them.
        """
        atomic = self.sites.stopped.atomic
        if atomic is None:
            return self.server.step(thread, patience)
        code = self._code.get(address) or self.server.read(address, _SEQUENCE)
        self._code[address] = code
        ends = [one for one in atomic(code, address, self._machine.little) if one not in self.sites.kinds]
        if not ends:
            return self.server.step(thread, patience)
        self.turn()
        kinds = {end: self.sites.stopped.trap(self.server.read(end, 8)) for end in ends}
        for end, kind in kinds.items():
            self.server.insert(end, kind)
        stop = None
        while stop is None:  # it waits for nobody
            stop = self.server.step(thread, how="c")
        if stop.exited is None:
            self.turn()
            for end, kind in kinds.items():
                self.server.remove(end, kind)
        return stop

    def ended(self, stop: Stop) -> None:
        """It is not there any more."""
        self.exited = stop.exited

    # -- the end -----------------------------------------------------------------------------------------------------

    def leave_alone(self) -> None:
        """The trace is about to end: what stops it now may mean that."""
        if self.armed:
            self._fixups.leaving = True

    def put_back(self) -> None:
        """Put everything back in the standing process, unless it is another one's memory."""
        if self.armed and self.parent is None:
            self.turn()
            self.slots.restore()
            self.sites.take_out()
        self.armed = False

    def let_go(self) -> None:
        """Detach from it; it goes on without the server."""
        self.turn()
        self.server.let_go(self._thread)
