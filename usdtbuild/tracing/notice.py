"""How a process tells us that libraries have come or gone: by a jump in its dynamic linker, to a trampoline that stops.

The jump is one of the patch engine's, in the place of the `ret` of an empty function (`loader`). Its trampoline sends
its own thread SIGURG. A thread that is traced stops for it, whatever it does about the signal, and we take the signal
away. If all that traces it is killed, the signal is ignored, which is its default, so unlike a breakpoint the jump may
stay for ever: whoever traces the process next finds it in the journal. The same holds for a thread that has stopped
already, or was in the trampoline: it gets a signal that ends nobody. A program that handles SIGURG then sees one more
of them for each library.

A thread that blocks SIGURG would get the signal later, so it sets a flag instead, at which we look from time to time.
"""

from __future__ import annotations

import struct

from ..functions.entry import all_nops
from ..functions.nops import machine_for
from . import ptrace
from .hosts import HOST
from .loader import Loader
from .model import COUNT, LIBRARIES, Module, Site, Target
from .patch.engine import PatchEngine
from .patch.machine import here
from .plan import Plan

_ALIGNED = 16  # where the next function begins behind the padding of the last


def plan_for(loader: Loader, number: int) -> Plan:
    """Return what is asked of the patch engine, with the number that the target goes by."""
    unused = loader.code[1 : _ALIGNED - loader.hook % _ALIGNED]  # behind a `ret` that is one byte
    machine = machine_for(HOST.number, is64=True, little=True)
    is_padding = machine is not None and len(unused) >= 4 and all_nops(machine, unused)
    site = Site(loader.hook, 0, (), unused=4 if is_padding else 0)
    return Plan(COUNT, (Target(number, LIBRARIES, "", LIBRARIES, Module("", 0, "", HOST.number), (), (site,)),))


class Notice:
    """One such jump, of a process and of those that it has forked."""

    def __init__(self, engine: PatchEngine) -> None:
        assert engine.layout is not None
        self.engine = engine
        trampoline, labels = engine.layout.parts[0].address, here().TOLD
        self._told, self._on = trampoline + labels["told"], trampoline + labels["on"]

    def is_given(self, tid: int) -> bool:
        """Whether a thread has stopped to tell. Raises OSError."""
        return bool(ptrace.registers(tid)[ptrace.PC] == self._told)

    def take(self, tid: int) -> None:
        """Let a thread that has told stand behind that, so that any other signal is its own. Raises OSError."""
        registers = ptrace.registers(tid)
        registers[ptrace.PC] = self._on
        ptrace.set_registers(tid, registers)

    def take_flag(self) -> bool:
        """Return whether some thread has told without stopping, since the last time."""
        if self.engine.shared is None:
            return False
        data, at = self.engine.shared.data, self.engine.counter_at(0)
        (is_set,) = struct.unpack_from("<I", data, at)
        if is_set:  # before anybody looks, so who sets it meanwhile is seen the next time
            struct.pack_into("<I", data, at, 0)
        return bool(is_set)
