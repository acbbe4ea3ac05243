"""What can go wrong while tracing, beyond wrong input."""

from __future__ import annotations

from ..errors import UsdtError

# What tracing another user's process takes.
RIGHTS = "root, or with the capabilities CAP_SYS_PTRACE and CAP_DAC_OVERRIDE"


def told(error: Exception) -> str:
    """Return what an error says, with what helps where the kernel lets us trace a process, but not open its files."""
    if isinstance(error, PermissionError):
        return f"{error.filename or 'the process'}: permission denied; run it as {RIGHTS}"
    return str(error)


class TracerError(UsdtError):
    """A tracer doesn't do its work here; the message says what happened and what helps."""


class UnwantedError(Exception):
    """Nobody wants the trace any more: the front has ended, or has asked for the end before all was armed."""


class LateError(TracerError):
    """Arming isn't done by the time at which the trace has to end."""

    def __init__(self, armed: int = 0, places: int = 0) -> None:
        so_far = f"{armed} of {places} places were armed" if places else "probes were still being looked up"
        super().__init__(
            f"--duration and 2 s more were over before everything was armed: {so_far}, and all was put back; choose"
            " fewer probes, or files (--module), or a longer --duration"
        )


class ProgramGoneError(TracerError):
    """The process has called exec meanwhile: what was to be done to its program needn't be done any more."""

    def __init__(self, pid: int) -> None:
        super().__init__(f"process {pid} has become another program")


class RoomTakenError(TracerError):
    """The process has itself mapped something where we wanted to; it can be tried again at another place."""
