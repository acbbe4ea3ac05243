"""One process that a server holds: its files, what is armed in it, and what happens where it stops at our breakpoints.

A forked process has copies of everything. One that shares its parent's memory (vfork) has what its parent has, and
what is asked about this memory is asked of the parent: the server remembers of each process which breakpoints it has.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from ...errors import InputError
from ...machines import facts_of
from ..job import Job
from ..model import Refusal, Value
from .files import Files
from .modules import Found, Modules
from .plt_slots import PltSlots, _Slot
from .registers import Registers
from .server import TRAP, Machine, Server, Stop, process_of, thread_number
from .sites import Sites

_SEQUENCE = 64  # bytes of code in which one that reserves memory has ended
_MOST_STEPS = 1_000_000  # of one search for a symbol: 700 in glibc where the first library has it
_PATIENCE, _FOR_EVER = 5.0, 3600.0  # seconds that one instruction may take: of several threads, of the only one
_WAITED = "its first call had to wait for another thread: calls may be missing until the next first call"


class Holder(Protocol):
    """A program, as its processes see it. `asked`: the trap that is asked for at the end is still to come."""

    server: Server
    wish: Job
    found: Found
    asked: bool

    def see(self, process: Process, thread: str, seen: Iterable[tuple[int, tuple[Value, ...]]]) -> None:
        """Take the hits of a thread: numbers of targets, and arguments."""

    def owe(self, stop: Stop) -> None:
        """Keep a signal until its thread goes on."""

    def hear(self, stop: Stop) -> Process | None:
        """Take the news that a process has started another or become another program; return what it is now."""

    def ask_to_stop(self) -> None:
        """Ask for a stop of whatever runs."""


class Process:
    """One process. Without `arm` or `forked` nothing is armed in it. Its methods raise TracerError."""

    def __init__(self, program: Holder, thread: str) -> None:
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
        self.server.turn_to(owner._thread, self._machine)  # noqa: SLF001

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
            self._fixups.sweep(thread)
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

    def step(self, thread: str, address: int, patience: float = _FOR_EVER) -> Stop | None:
        """Let one thread execute the instruction at an address, or the sequence that begins there: as `Server.step`.

        A function may begin with one, on any machine that has them, and `PostFixup` goes through code that has them.
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


class PostFixup:
    """What happens at the PLT entries that slots are led to (`plt_slots`), and where the dynamic linker fills them.

    A thread stops at a PLT entry. Is the slot's function known, it goes on there: the program counter is set, and the
    registers that the ABI wants; nothing is stepped over or taken out. Else it goes on to the dynamic linker, which
    looks for the function and fills the slot. The first time the thread is stepped until the slot changes, which tells
    where the instruction is that fills slots. From then on a breakpoint is at that instruction: the thread that stops
    there executes it, alone, and the slot is led back before any other thread runs. So no call can come by a slot while
    it is filled, and no thread runs alone for more than that one instruction, which waits for nothing. (ltrace's
    breakpoint is behind the instruction, and other threads have to stand from the PLT entry on: the dynamic linker may
    wait for a lock that one of them has.) Only the first time a thread is alone all the way; if it has to wait for
    another there, all are let go, and the next call is stepped instead. So is the next one if a slot was filled by
    another instruction, as the dynamic linker has one for itself where calls are audited.

    Threads that make the same first call at once all pass the instruction, one after the other, and each finds the slot
    led to its PLT entry and leads it back. Recursion, and resolvers of IFUNCs or signal handlers that make first calls
    of their own, stop at other PLT entries, or at this one again: what a thread is waiting for is a list.
    """

    def __init__(self, process: Process) -> None:
        self._process, self._program = process, process.program
        self.server, self.sites, self.slots = process.server, process.sites, process.slots
        self.stores: set[int] = set()  # where instructions are that fill slots
        self._learned = False  # whether all of them are known, as far as anybody has seen
        self._pending: dict[str, list[_Slot]] = {}  # what each thread waits for, the newest last
        self.leaving = False  # the trap that was asked for must not be taken for a step's, and nothing is seen any more

    def enter(self, thread: str, entry: int) -> bool:
        """Let a thread go on that has stopped at a PLT entry; return whether the process is still there."""
        if self.sweep(thread):
            self._learned = False
        slot = self.slots.by_entry[entry]
        if slot.words is None:
            self.slots.resolved(slot)
        if slot.words is not None:
            self.server.set_registers(thread, slot.loaded())
            return True
        if not self._process.step_past(thread, entry):
            return False
        self._pending.setdefault(thread, []).append(slot)
        return self._learned or self.leaving or self._learn(thread, slot)

    def sweep(self, thread: str) -> bool:
        """Lead back what has been filled of the slots that a thread waits for; return whether any was."""
        pending = self._pending.pop(thread, [])
        waiting = [slot for slot in pending if not self.slots.resolved(slot)]
        if waiting:
            self._pending[thread] = waiting
        return len(waiting) < len(pending)

    def _learn(self, thread: str, slot: _Slot) -> bool:
        patience = _PATIENCE if len(self.server.threads()) > 1 else _FOR_EVER
        for _ in range(_MOST_STEPS):
            before = self.server.counter(self.server.registers(thread))
            if before in self.sites.kinds:
                if not self._process.look(Stop(TRAP, thread)):
                    return False
                if slot not in self._pending.get(thread, ()):  # by an instruction that is known after all
                    self._learned = True
                if self._learned:  # or a call within was first
                    return True
                continue
            stop = self._process.step(thread, before, patience)
            if stop is None:
                self._program.found.refuse([Refusal(slot.target.title, _WAITED)])
                return self._interrupt()
            if stop.exited is not None:
                self._process.ended(stop)
                return False
            if not stop.trapped:
                if not stop.event:
                    self._program.owe(stop)
                elif self._program.hear(stop) is not self._process:
                    return True
            elif self.slots.resolved(slot):
                self.sweep(thread)
                if self.sites.hook(before):
                    self.stores.add(before)
                    self._learned = True
                return True
        return True

    def _interrupt(self) -> bool:
        """The thread waits for another: ask for the end of its step; return whether the process is still there.

        What is asked for may come later, to another thread: gdbserver stops all to send it, which ends the step.
        """
        self._program.ask_to_stop()
        stop = None
        while stop is None:
            stop = self.server.wait(1.0)
        if stop.exited is not None:
            self._process.ended(stop)
        elif stop.event:
            self._program.hear(stop)
        elif not stop.trapped:
            self._program.owe(stop)
        return self._process.exited is None
