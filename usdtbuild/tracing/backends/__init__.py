"""Ways to see the probes of one program fire in a test: one module each, all with the same three functions.

`choose` picks the probes and a backend for them, `hits` is what comes out; `with_session` is our own tracer, `with_gdb`
and `with_bpftrace` drive one each. Nothing here knows pytest: the plugin is this room's user (docs/pytest.md).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from contextlib import AbstractContextManager

    from .hits import Hit, Traced


class Command(NamedTuple):
    """A program to run: its words, what it reads, where, with which variables, and how many seconds it may take."""

    argv: Sequence[str]
    stdin: str
    cwd: str | None
    env: Mapping[str, str]
    timeout: float


class Finished(NamedTuple):
    """How a program ended, and what it wrote. `returncode` is negative for the signal that ended it."""

    returncode: int
    stdout: str
    stderr: str


class Backend(Protocol):
    """One way to see hits; a module is one too."""

    def why_not(self, probes: Sequence[Traced] = ()) -> str:
        """Return why it can't be used here, or for these probes; '' if it can."""

    def run(self, command: Command, binary: str, probes: Sequence[Traced]) -> tuple[Finished, list[Hit]]:
        """Run a program; return how it ended, and the hits of the probes of `binary` in it.

        Raises TracerError and subprocess.TimeoutExpired.
        """

    def attached(self, pid: int, binary: str, probes: Sequence[Traced]) -> AbstractContextManager[list[Hit]]:
        """Watch a process while the body of a `with` runs; the list is filled at its end. Raises TracerError."""
