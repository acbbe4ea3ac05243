"""What a compiler builds for, and the error that says why patchable entries can't be had there."""

from __future__ import annotations

from ..errors import UsdtError
from ..machines.facts import Entries as Machine
from ..record import NamedTuple


class FlagsError(UsdtError):
    """The option can't be used with this compiler, machine, pair or other options; the text says why."""


class CompilerTarget(NamedTuple):
    """What a compiler with its options builds for. `unit` is the bytes of its one NOP."""

    command: tuple[str, ...]
    options: tuple[str, ...]
    language: str  # c or c++
    name: str  # the compiler and its version, for messages
    machine: Machine
    unit: int
    landing_pads: bool  # whether functions may start with one
