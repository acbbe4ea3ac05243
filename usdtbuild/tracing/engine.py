"""What every engine does: arm targets in a process, give events and counts, and leave everything as it was.

An engine works on one process and those it forks. The life of one is: `why_not` for each target, `attach` once with
those it takes, then `poll` until the session has had enough or the process is gone, then `detach`. All errors that a
user can cause are UsdtErrors; what one target lacks is a Refusal and stops nothing else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .model import Event, Plan, Refusal, Target


class Progress(NamedTuple):
    """What one poll gave: new events, oldest first, and whether there is a process left that can have more.

    Targets may come while a trace runs (a library that is loaded later): `targets` are those that are new.
    """

    events: Sequence[Event]
    alive: bool
    targets: Sequence[Target] = ()


class Totals(NamedTuple):
    """Hits by the target's number so far, and those of them whose events are lost."""

    counts: dict[int, int]
    lost: dict[int, int]


class Engine(Protocol):
    """One way to see hits."""

    name: str

    def why_not(self, target: Target) -> str:
        """Return why this engine can't trace a target, '' if it can, without touching the process."""

    def attach(self, plan: Plan) -> Sequence[Refusal]:
        """Arm all sites of the plan's targets; return what can't be armed after all. The process runs on afterwards.

        Raises TracerError if nothing can be armed.
        """

    def poll(self, timeout: float) -> Progress:
        """Wait up to `timeout` seconds for events and return them; with COUNT there are none, only life and death."""

    def totals(self) -> Totals:
        """Return the hits so far. Cheap enough to be called ten times a second."""

    def detach(self) -> Sequence[Refusal]:
        """Put every byte and semaphore back, and let go. Returns what was not traced to the end. May be called twice,
        and after the process has ended. `poll` may still be called afterwards, for events that are left."""
