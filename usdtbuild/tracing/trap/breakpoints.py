"""Breakpoints of one process: armed, hit, stepped over, taken out; and what a hit's arguments are.

A NOP needs no step: the thread goes on behind it. Other instructions are put back for one step, while every other
thread of the process stands, because one that ran past would not be seen. A sequence that reserves memory for a store
is one step, too (`machines.exclusive`): stopped within, a function that begins with one would begin anew for ever.

What a forked process inherits is a copy of the breakpoints with a copy of this object.
"""

from __future__ import annotations

import contextlib
import ctypes
import signal
import struct
from collections.abc import Callable, Sequence

from ...machines import facts_of
from ...machines.host import RETURN
from ...record import NamedTuple
from .. import ptrace
from ..hosts import HOST
from ..keeper import KEEPER
from ..maps import Memory
from ..model import EXIT, TAKEN, Held, Refusal, Site, Target, Value
from ..model import RETURN as RETURNS
from ..plan import Plan
from ..tracees import Thread, Tracees
from .operands import Reader, holds, is_float_register, reader
from .returns import Returns, Wanted

Registers = ctypes.Array[ctypes.c_ulonglong]

AGAIN = -2  # beside RETURN
RETURNED = -2  # the target number of a breakpoint that is only there because somebody returns to it
TRAP, _BEHIND = HOST.traps.instruction, HOST.traps.behind
_SIZE = len(TRAP)
_SEQUENCE = 64  # bytes of code in which a sequence that reserves memory has ended
_ALL_SIGNALS = (1 << 64) - 1
# Those that an instruction itself can cause, the step's own among them: blocked, they would end the program.
_FROM_INSTRUCTIONS = sum(
    1 << number - 1 for number in (signal.SIGTRAP, signal.SIGSEGV, signal.SIGBUS, signal.SIGILL, signal.SIGFPE)
)


class Breakpoint(NamedTuple):
    """One armed place. `skip`: bytes of a NOP to go on behind, RETURN for a return, 0 where the instruction must be
    stepped. `floats`: a reader needs the registers of floating-point numbers. A call by a register is one of the target
    if what is `held` there `meant` it, else one of `others`, or of nobody's."""

    target: int
    before: bytes
    skip: int
    readers: tuple[Reader, ...]
    floats: bool = False
    returns: Wanted | None = None
    held: Held | None = None
    meant: Callable[[Registers, Memory], bool] = lambda registers, memory: True
    others: tuple[Breakpoint, ...] = ()
    title: str = ""

    def meets(self, registers: Registers, memory: Memory) -> list[Breakpoint]:
        """Return what is hit of all that is armed there."""
        return [one for one in (self, *self.others) if one.meant(registers, memory)]


class Hit(NamedTuple):
    """What a thread has run into: where, and which targets with which values; `skip` is as in a breakpoint."""

    address: int
    target: int
    skip: int
    seen: list[tuple[int, tuple[Value, ...]]]


class Breakpoints:
    """All breakpoints of one process."""

    name = "trap"

    def __init__(
        self,
        pid: int,
        armed: dict[int, Breakpoint] | None = None,
        semaphores: dict[int, int] | None = None,
        returns: Returns | None = None,
    ) -> None:
        self.pid = pid
        self.memory = Memory(pid)
        self.armed: dict[int, Breakpoint] = dict(armed or {})
        self.semaphores: dict[int, int] = dict(semaphores or {})
        self.returns = Returns(pid, self.memory, returns)
        self.firsts: list[int] = []  # of each that were armed at once, the first that is still there
        self._gone: set[int] = set()  # where breakpoints were, for threads that report one late

    def copy_for(self, pid: int) -> Breakpoints:
        """Return the same for a process that was forked from this one."""
        copy = Breakpoints(pid, self.armed, self.semaphores, self.returns)
        for address in self.semaphores:
            KEEPER.semaphore(pid, address, 1)
        copy.firsts = list(self.firsts)
        return copy

    def arm(
        self, plan: Plan, sites: Sequence[tuple[Target, Site]], before_each: Callable[[], None] = lambda: None
    ) -> list[Refusal]:
        """Arm sites of the stopped process; return what can't be armed. What `before_each` raises ends it."""
        refusals: list[Refusal] = []
        known = len(self.armed)
        for target, site in sites:
            before_each()
            if target.kind in {EXIT, RETURNS}:
                self._arm_return(target, site, plan.string_size)
                continue
            known_there = self.armed.get(site.address)
            if known_there is not None and site.held and known_there.held:
                self.armed[site.address] = _joined(known_there, target, site, plan.string_size)
                continue
            if known_there is not None:
                refusals.append(Refusal(target.title, "another probe is at the same place", "", site.address))
                continue
            before = self.memory.read(site.address, 16)
            if reason := _why_not(before, site.address):
                refusals.append(Refusal(target.title, reason, "", site.address))
                continue
            with contextlib.suppress(OSError):
                KEEPER.breakpoint(self.pid, site.address, before[:_SIZE])
                self.memory.write(site.address, TRAP)
                self.armed[site.address] = _breakpoint(target, site, before, plan.string_size)
                if site.semaphore and site.semaphore not in self.semaphores:
                    self.semaphores[site.semaphore] = 1
                    self._add(site.semaphore, 1)
                continue
            refusals.append(Refusal(target.title, "its code can't be written", "", site.address))
        self.firsts += list(self.armed)[known : known + 1]
        return refusals

    def _arm_return(self, target: Target, site: Site, string_size: int) -> None:
        found = self.armed.get(site.address)
        if found is not None:
            readers = tuple(reader(*one, string_size) for one in zip(target.arguments, site.operands))
            floats = any(map(is_float_register, site.operands))
            wanted = Wanted(target.number, readers, floats, size=site.size if site.calls else 0)
            all_there = [
                one._replace(returns=wanted) if one.held == site.held else one for one in (found, *found.others)
            ]
            self.armed[site.address] = all_there[0]._replace(others=tuple(all_there[1:]))

    def arm_hook(self, address: int, number: int, own: bytes = b"") -> None:
        """Put a breakpoint at a place that is no target; it goes by a number of its own.

        With `own`, what the file has there, a breakpoint that is there already is one that a killed tracer has left.
        """
        before = self.memory.read(address, 16)
        if own and HOST.traps.stands(before):
            before = own
        if address not in self.armed and before and not HOST.traps.stands(before):
            with contextlib.suppress(OSError):
                KEEPER.breakpoint(self.pid, address, before[:_SIZE])
                self.memory.write(address, TRAP)
                self.armed[address] = Breakpoint(number, before[:_SIZE], HOST.traps.skip(before), ())

    def target_at(self, tid: int) -> int | None:
        """Return the target of the breakpoint that a thread has run into; None if it is none of these."""
        found = self.armed.get(ptrace.registers(tid)[ptrace.PC] - _BEHIND)
        return found.target if found is not None else None

    def was_here(self, tid: int) -> bool:
        """Whether a thread reports a breakpoint that is gone; it then goes on with the instruction that was there."""
        registers = ptrace.registers(tid)
        address = registers[ptrace.PC] - _BEHIND
        if address not in self._gone:
            return False
        registers[ptrace.PC] = address
        ptrace.set_registers(tid, registers)
        return True

    def forget(self, start: int, end: int) -> None:
        """A library that was between two addresses is gone, and its breakpoints with it."""
        for address in [one for one in self.armed if start <= one < end]:
            del self.armed[address]
            self._gone.add(address)
        self.firsts = [one for one in self.firsts if not start <= one < end]
        self.returns.forget(start, end)
        for address in [one for one in self.semaphores if start <= one < end]:
            del self.semaphores[address]

    def hit(self, tid: int) -> Hit | None:
        """Return what a thread that stopped with SIGTRAP has hit, and let it stand where it goes on.

        None if it is the program's own trap. The thread's instruction pointer is still behind the trap.
        """
        registers = ptrace.registers(tid)
        address = registers[ptrace.PC] - _BEHIND
        found = self.armed.get(address)
        if found is None:
            left = self.returns.before.get(address)  # of the parent's
            if left is None or self.memory.read(address, _SIZE) != TRAP:
                return None
            return self._out(address, left, registers, tid, [])
        memory = self.memory
        seen = self.returns.take(address, registers, tid)
        if found.target == RETURNED and not self.returns.is_expected(address):
            del self.armed[address]
            self.returns.before[address] = found.before
            return self._out(address, found.before, registers, tid, seen)
        for one in found.meets(registers, memory):
            if one.target >= 0:
                known = [*registers, *ptrace.float_registers(tid)] if one.floats else registers
                seen.append((one.target, tuple([read(known, memory) for read in one.readers])))
            if one.returns is not None:
                self._expect(address, registers, one.returns)
        if found.skip == RETURN:
            _return(registers, memory)
            ptrace.set_registers(tid, registers)
        elif found.skip:
            registers[ptrace.PC] = address + found.skip
            ptrace.set_registers(tid, registers)
        return Hit(address, found.target, found.skip, seen)

    def _out(
        self, address: int, before: bytes, registers: Registers, tid: int, seen: list[tuple[int, tuple[Value, ...]]]
    ) -> Hit:
        """Take a breakpoint out under a thread that has hit it. A single byte changes, and only from a trap to the
        first byte of the instruction that it stood for, so other threads find one or the other (with longer traps they
        stand, because not every instruction may change under threads that run, Arm ARM B2.2.5)."""
        self.memory.write(address, before)
        self._gone.add(address)
        registers[ptrace.PC] = address
        ptrace.set_registers(tid, registers)
        return Hit(address, RETURNED, AGAIN, seen)

    def _expect(self, site: int, registers: Registers, wanted: Wanted) -> None:
        """Put a breakpoint where the call at a site returns to, in one byte like `_out`."""
        address = self.returns.expect(site, self.armed[site].before, registers, wanted)
        if address is not None:
            self.arm_hook(address, RETURNED)

    def step(self, tracees: Tracees, thread: Thread, address: int) -> ptrace.Stop | None:
        """Execute the instruction under a breakpoint; returns what happened instead of the step, None if it did."""
        found = self.armed[address]
        registers = ptrace.registers(thread.tid)
        registers[ptrace.PC] = address
        ptrace.set_registers(thread.tid, registers)
        first = self.memory.read(address, _SIZE)
        mask = ptrace.signal_mask(thread.tid)
        # A signal would be handled before the instruction, which then would be hit once more.
        ptrace.set_signal_mask(thread.tid, mask | ~_FROM_INSTRUCTIONS & _ALL_SIGNALS)
        with tracees.standing(thread.pid):
            self.memory.write(address, found.before)
            try:
                stop = _pass(self.memory, thread.tid, address)
            finally:
                with contextlib.suppress(OSError):
                    self.memory.write(address, first)
        if stop is None or stop.exited is None:
            ptrace.set_signal_mask(thread.tid, mask)
        return stop

    def taken(self) -> list[Refusal]:
        """Return where somebody else's breakpoint has been, and took ours away when it went."""
        found = []
        for address, one in self.armed.items():
            with contextlib.suppress(OSError):
                if one.target >= 0 and self.memory.read(address, _SIZE) not in {b"", TRAP}:
                    found.append(Refusal(one.title, TAKEN, "", address))
        return found

    def disarm(self, *, keep_semaphores: bool = False) -> None:
        """Take all out of the stopped process. What has changed meanwhile stays; a process that only shares the memory
        of another keeps the semaphores, which the other one counts down."""
        for address, found in self.armed.items():
            with contextlib.suppress(OSError):
                if self.memory.read(address, _SIZE) == TRAP:
                    self.memory.write(address, found.before)
        for address in () if keep_semaphores else tuple(self.semaphores):
            self._add(address, -1)
        self._gone.update(self.armed)
        self.armed, self.semaphores = {}, {}

    def _add(self, address: int, change: int) -> None:
        value = self.memory.word(address, 2)
        if value is not None and value + change >= 0:
            KEEPER.semaphore(self.pid, address, change)
            with contextlib.suppress(OSError):
                self.memory.write(address, struct.pack("<H", value + change & 0xFFFF))

    def close(self) -> None:
        """Close the process' memory."""
        self.memory.close()


def _why_not(code: bytes, address: int) -> str:
    if not code:
        return "its code can't be read"
    if HOST.traps.stands(code):
        return "a breakpoint is there already: another tracer (perf, bpftrace, gdb) watches it"
    if HOST.traps.leads is not None and not HOST.traps.skip(code) and not HOST.traps.leads(code, address, {}):
        return "nobody can say where its first instruction leads, and this kernel executes none alone"
    return ""


def _breakpoint(target: Target, site: Site, before: bytes, string_size: int) -> Breakpoint:
    readers = tuple(reader(*one, string_size) for one in zip(target.arguments, site.operands))
    floats = any(map(is_float_register, site.operands))
    skip = HOST.traps.skip(before)
    found = Breakpoint(target.number, before[:_SIZE], skip, readers, floats, title=target.title)
    return found._replace(held=site.held, meant=holds(site.held)) if site.held is not None else found


def _joined(found: Breakpoint, target: Target, site: Site, string_size: int) -> Breakpoint:
    """Return a breakpoint at a call by a register that may be a call of another target, too."""
    other = _breakpoint(target, site, found.before, string_size)._replace(skip=found.skip)
    return found._replace(others=(*found.others, other))


def _pass(memory: Memory, tid: int, address: int) -> ptrace.Stop | None:
    """Let a thread execute what stands at an address, while all others stand; returns as `_step`."""
    facts, leads = facts_of(HOST.number), HOST.traps.leads
    atomic = facts.stopped.atomic if facts is not None else None
    code = memory.read(address, _SEQUENCE)
    ends = atomic(code, address, True) if atomic is not None else ()
    if not ends and leads is not None:
        ends = leads(code, address, dict(zip(ptrace.NAMES, ptrace.registers(tid))))
    if not ends:
        return _step(tid, address)
    before = {end: found for end in ends if (found := memory.read(end, _SIZE))}
    try:
        for end in before:
            memory.write(end, TRAP)
        return _step(tid, address, ptrace.CONT)
    finally:
        for end, code in before.items():
            with contextlib.suppress(OSError):
                memory.write(end, code)


def _step(tid: int, address: int, how: int = ptrace.SINGLESTEP) -> ptrace.Stop | None:
    """Let a thread execute the instruction at an address; returns what happened instead, None if it did.

    `how`: with CONT, all up to the next breakpoint.
    """
    while True:
        ptrace.call(how, tid)
        stop = ptrace.wait(tid)
        if stop is None or stop.exited is not None:
            return stop
        if stop.event == ptrace.EVENT_STOP and stop.signal == signal.SIGTRAP:
            # An interrupt that was sent when the thread had run into the breakpoint already.
            if ptrace.registers(tid)[ptrace.PC] == address:
                continue
            ptrace.call(ptrace.CONT, tid)  # the step's own stop has to wait behind it
            stop = ptrace.wait(tid)
            if stop is None:
                return stop
        stepped = stop.exited is None and not stop.event and stop.signal == signal.SIGTRAP
        return None if stepped else stop


def _return(registers: Registers, memory: Memory) -> None:
    if HOST.registers.link:
        registers[ptrace.PC] = registers[ptrace.INDEX[HOST.registers.link]]
        return
    registers[ptrace.PC] = memory.word(registers[ptrace.SP]) or 0
    registers[ptrace.SP] += 8
