"""What happens at the PLT entries that slots are led to (`plt_slots`), and where the dynamic linker fills slots.

A thread stops at a PLT entry. Is the slot's function known, it goes on there: the program counter is set, and the
registers that the ABI wants; nothing is stepped over or taken out. Else it goes on to the dynamic linker, which looks
for the function and fills the slot. The first time the thread is stepped until the slot changes, which tells where
the instruction is that fills slots. From then on a breakpoint is at that instruction: the thread that stops there
executes it, alone, and the slot is led back before any other thread runs. So no call can come by a slot while it is
filled, and no thread runs alone for more than that one instruction, which waits for nothing. (ltrace's breakpoint is
behind the instruction, and other threads have to stand from the PLT entry on: the dynamic linker may wait for a lock
that one of them has.) Only the first time a thread is alone all the way; if it has to wait for another there, all are
let go, and the next call is stepped instead. So is the next one if a slot was filled by another instruction, as the
dynamic linker has one for itself where calls are audited.

Threads that make the same first call at once all pass the instruction, one after the other, and each finds the slot
led to its PLT entry and leads it back. Recursion, and resolvers of IFUNCs or signal handlers that make first calls of
their own, stop at other PLT entries, or at this one again: what a thread is waiting for is a list.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..model import Refusal
from .server import TRAP, Stop

if TYPE_CHECKING:
    from .holder import Stepped
    from .plt_slots import _Slot

_MOST_STEPS = 1_000_000  # of one search for a symbol: 700 in glibc where the first library has it
_PATIENCE, _FOR_EVER = 5.0, 3600.0  # seconds that one instruction may take: of several threads, of the only one
_WAITED = "its first call had to wait for another thread: calls may be missing until the next first call"


class PostFixup:
    """The PLT entries of one process."""

    def __init__(self, process: Stepped) -> None:
        self._process, self._program = process, process.program
        self.server, self.sites, self.slots = process.server, process.sites, process.slots
        self.stores: set[int] = set()  # where instructions are that fill slots
        self._learned = False  # whether all of them are known, as far as anybody has seen
        self._pending: dict[str, list[_Slot]] = {}  # what each thread waits for, the newest last
        self.leaving = False  # the trap that was asked for must not be taken for a step's, and nothing is seen any more

    def enter(self, thread: str, entry: int) -> bool:
        """Let a thread go on that has stopped at a PLT entry; return whether the process is still there."""
        if self._sweep(thread):
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

    def stored(self, thread: str) -> None:
        """A thread has executed the instruction that fills slots: lead back what it has filled."""
        self._sweep(thread)

    def _sweep(self, thread: str) -> bool:
        """Lead back what has been filled of the slots that a thread waits for; return whether any was."""
        pending = self._pending.pop(thread, [])
        waiting = [slot for slot in pending if not self.slots.resolved(slot)]
        if waiting:
            self._pending[thread] = waiting
        return len(waiting) < len(pending)

    def _learn(self, thread: str, slot: _Slot) -> bool:
        """Step a thread until its slot is filled; return whether the process is still there."""
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
                self._sweep(thread)
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
