"""Breakpoints of one process: armed, hit, stepped over, taken out; and what a hit's arguments are.

A NOP needs no step: the thread goes on behind it. Other instructions are put back for one step, while every other
thread of the process stands, because one that ran past would not be seen. What a forked process inherits is a copy of
the breakpoints with a copy of this object.
"""

from __future__ import annotations

import contextlib
import struct
from typing import TYPE_CHECKING, NamedTuple

from .. import ptrace
from ..maps import Memory
from ..model import Refusal
from ..patch.forms import nop_length
from .operands import is_float_register, reader

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..model import Plan, Site, Target, Value
    from ..tracees import Thread, Tracees
    from .operands import Reader

TRAP = b"\xcc"
RETURN = -1
_ENDBR64 = b"\xf3\x0f\x1e\xfa"


class Breakpoint(NamedTuple):
    """One armed place. `skip`: bytes of a NOP to go on behind, RETURN for a return, 0 where the instruction must be
    stepped. `floats`: a reader needs the registers of floating-point numbers."""

    target: int
    before: bytes
    skip: int
    readers: tuple[Reader, ...]
    floats: bool = False


class Breakpoints:
    """All breakpoints of one process."""

    name = "trap"

    def __init__(
        self, pid: int, armed: dict[int, Breakpoint] | None = None, semaphores: dict[int, int] | None = None
    ) -> None:
        self.pid = pid
        self.memory = Memory(pid)
        self.armed: dict[int, Breakpoint] = dict(armed or {})
        self.semaphores: dict[int, int] = dict(semaphores or {})
        self._gone: set[int] = set()  # where breakpoints were, for threads that report one late

    def copy_for(self, pid: int) -> Breakpoints:
        """Return the same for a process that was forked from this one."""
        return Breakpoints(pid, self.armed, self.semaphores)

    def arm(self, plan: Plan, sites: Sequence[tuple[Target, Site]]) -> list[Refusal]:
        """Arm sites of the stopped process; return what can't be armed."""
        refusals = []
        for target, site in sites:
            if site.address in self.armed:
                refusals.append(Refusal(target.title, "another probe is at the same place", "", site.address))
                continue
            before = self.memory.read(site.address, 16)
            if not before or before[:1] == TRAP:
                reason = "a breakpoint is there already: another tracer (perf, bpftrace, gdb) watches it"
                refusals.append(Refusal(target.title, reason if before else "its code can't be read", "", site.address))
                continue
            readers = tuple(
                reader(argument, operand, plan.string_size)
                for argument, operand in zip(target.arguments, site.operands)
            )
            with contextlib.suppress(OSError):
                self.memory.write(site.address, TRAP)
                floats = any(map(is_float_register, site.operands))
                self.armed[site.address] = Breakpoint(target.number, before[:1], _skip(before), readers, floats)
                if site.semaphore and site.semaphore not in self.semaphores:
                    self.semaphores[site.semaphore] = 1
                    self._add(site.semaphore, 1)
                continue
            refusals.append(Refusal(target.title, "its code can't be written", "", site.address))
        return refusals

    def arm_hook(self, address: int, number: int) -> None:
        """Put a breakpoint at a place that is no target; it goes by a number of its own."""
        before = self.memory.read(address, 16)
        if address not in self.armed and before and before[:1] != TRAP:
            with contextlib.suppress(OSError):
                self.memory.write(address, TRAP)
                self.armed[address] = Breakpoint(number, before[:1], _skip(before), ())

    def was_here(self, tid: int) -> bool:
        """Whether a thread reports a breakpoint that is gone; it then goes on with the instruction that was there."""
        registers = ptrace.registers(tid)
        address = registers[ptrace.RIP] - 1
        if address not in self._gone:
            return False
        registers[ptrace.RIP] = address
        ptrace.set_registers(tid, registers)
        return True

    def forget(self, start: int, end: int) -> None:
        """A library that was between two addresses is gone, and its breakpoints with it."""
        for address in [one for one in self.armed if start <= one < end]:
            del self.armed[address]
            self._gone.add(address)
        for address in [one for one in self.semaphores if start <= one < end]:
            del self.semaphores[address]

    def hit(self, tid: int) -> tuple[int, Breakpoint, tuple[Value, ...]] | None:
        """Return what a thread that stopped with SIGTRAP has hit: the address, the breakpoint, the arguments.

        None if it is the program's own trap. The thread's instruction pointer is still behind the trap.
        """
        registers = ptrace.registers(tid)
        address = registers[ptrace.RIP] - 1
        found = self.armed.get(address)
        if found is None:
            return None
        memory = self.memory
        known = [*registers, *ptrace.float_registers(tid)] if found.floats else registers
        values = tuple([read(known, memory) for read in found.readers])
        if found.skip == RETURN:
            registers[ptrace.RIP] = memory.word(registers[ptrace.RSP]) or 0
            registers[ptrace.RSP] += 8
            ptrace.set_registers(tid, registers)
        elif found.skip:
            registers[ptrace.RIP] = address + found.skip
            ptrace.set_registers(tid, registers)
        return address, found, values

    def step(self, tracees: Tracees, thread: Thread, address: int) -> ptrace.Stop | None:
        """Execute the instruction under a breakpoint; returns what happened instead of the step, None if it did."""
        found = self.armed[address]
        registers = ptrace.registers(thread.tid)
        registers[ptrace.RIP] = address
        ptrace.set_registers(thread.tid, registers)
        first = self.memory.read(address, 1)
        with tracees.standing(thread.pid):
            self.memory.write(address, found.before)
            try:
                ptrace.call(ptrace.SINGLESTEP, thread.tid)
                stop = ptrace.wait(thread.tid)
            finally:
                with contextlib.suppress(OSError):
                    self.memory.write(address, first)
        stepped = stop is not None and stop.exited is None and not stop.event and stop.signal == 5
        return None if stepped else stop

    def disarm(self, *, keep_semaphores: bool = False) -> None:
        """Take all out of the stopped process. What has changed meanwhile stays; a process that only shares the memory
        of another keeps the semaphores, which the other one counts down."""
        for address, found in self.armed.items():
            with contextlib.suppress(OSError):
                if self.memory.read(address, 1) == TRAP:
                    self.memory.write(address, found.before)
        for address in () if keep_semaphores else tuple(self.semaphores):
            self._add(address, -1)
        self._gone.update(self.armed)
        self.armed, self.semaphores = {}, {}

    def _add(self, address: int, change: int) -> None:
        value = self.memory.word(address, 2)
        if value is not None and value + change >= 0:
            with contextlib.suppress(OSError):
                self.memory.write(address, struct.pack("<H", value + change & 0xFFFF))

    def close(self) -> None:
        """Close the process' memory."""
        self.memory.close()


def _skip(code: bytes) -> int:
    """Return the length of the NOP that code starts with, 0 if it starts with none."""
    if code[:4] == _ENDBR64:
        return 4
    if code[:1] == b"\xc3":
        return RETURN
    nop = nop_length(code)
    return nop[0] if nop is not None else 0
