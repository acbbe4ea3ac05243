"""What the worker is to those who arm and follow processes for it: whom they tell, and ask to hold still."""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

from . import job


class Owner(Protocol):
    """The worker, as those see it that it has made."""

    @property
    def roots(self) -> Collection[int]:
        """The processes that the trace is about, also those that have ended."""

    def tell(self, message: job.Message) -> None:
        """Say something to the front, once there is time."""

    def hold(self) -> None:
        """Everything is armed: wait until the program may begin, if somebody has asked for that."""

    def expect_stops(self) -> None:
        """Breakpoints come."""

    def hit(self, pid: int, tid: int, target: int, values: tuple[object, ...]) -> None:
        """Take a hit of a breakpoint."""
