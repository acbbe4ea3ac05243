"""What can go wrong while tracing, beyond wrong input."""

from __future__ import annotations

from ..errors import UsdtError


class TracerError(UsdtError):
    """A tracer doesn't do its work here; the message says what happened and what helps."""


class FrontGoneError(Exception):
    """The front has ended, and with it what the trace was for."""


class ProgramGoneError(TracerError):
    """The process has called exec meanwhile: what was to be done to its program needn't be done any more."""

    def __init__(self, pid: int) -> None:
        super().__init__(f"process {pid} has become another program")


class RoomTakenError(TracerError):
    """The process has itself mapped something where we wanted to; it can be tried again at another place."""
