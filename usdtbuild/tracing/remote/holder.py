"""What a program is to its processes, and a process to what happens at its PLT entries."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ..job import Job
    from ..model import Value
    from .modules import Found
    from .plt_slots import PltSlots
    from .server import Server, Stop
    from .sites import Sites


class Holder(Protocol):
    """A program, as its processes see it. `asked`: the trap that is asked for at the end is still to come."""

    server: Server
    wish: Job
    found: Found
    asked: bool

    def see(self, process: Stepped, thread: str, seen: Iterable[tuple[int, tuple[Value, ...]]]) -> None:
        """Take the hits of a thread: numbers of targets, and arguments."""

    def owe(self, stop: Stop) -> None:
        """Keep a signal until its thread goes on."""

    def hear(self, stop: Stop) -> Stepped | None:
        """Take the news that a process has started another or become another program; return what it is now."""

    def ask_to_stop(self) -> None:
        """Ask for a stop of whatever runs."""


class Stepped(Protocol):
    """A process, as those see it who let its threads execute single instructions."""

    program: Holder
    server: Server
    sites: Sites
    slots: PltSlots
    pid: int
    exited: int | None

    def look(self, stop: Stop) -> bool:
        """Take a stop of one of its threads, and step past its breakpoint; return whether it is still there."""

    def step_past(self, thread: str, address: int) -> bool:
        """Let a thread execute the instruction under a breakpoint; return whether the process is still there."""

    def step(self, thread: str, address: int, patience: float) -> Stop | None:
        """Let one thread execute the instruction at an address, or the sequence that begins there."""

    def ended(self, stop: Stop) -> None:
        """It is not there any more."""
