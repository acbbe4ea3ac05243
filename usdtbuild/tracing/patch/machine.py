"""What the patch engine needs of a machine: which sites can change and how, and the code of trampolines.

`x86_64` and `aarch64` are modules that have it; everything else here is the same for both.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from ...machines.numbers import EM_AARCH64
from ..hosts import HOST

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from ..maps import Known, Memory
    from ..model import Refusal
    from ..plan import Plan
    from .code import Back, Choice, Keeping, Routines, Shape, Taken
    from .evaluated import Words
    from .mirrors import Mirrors
    from .shards import Shards
    from .spot import Spot


class Machine(Protocol):
    """A machine's module. Sites whose addresses agree above the low GROUP bits share their trampolines, which are at
    most REACH away from the first of them; FILL is an instruction that nobody may get to. TOLD says where in a
    `tell_trampoline` a thread stops ("told"), and where it goes on then ("on"). SHARDS: whether there is code for
    threads that count on their own (`shards`)."""

    GROUP: int
    REACH: int
    FILL: bytes
    TOLD: Mapping[str, int]
    SHARDS: bool

    def find_spots(
        self, plan: Plan, memory: Memory, mirrors: Mirrors, others: Collection[int]
    ) -> tuple[list[Spot], list[Refusal]]:
        """Return the sites that can be patched, and why the others can't; `others` are to get breakpoints."""

    def place(self, spot: Spot, at: int) -> tuple[Spot, bytes, Back] | str:
        """Return a spot with the bytes that it changes to, what stands before its trampoline if that begins at `at` or
        a little behind it, and where the trampoline goes on; or why not."""

    def why_not_free(self, found: bytes) -> str:
        """Return why bytes that are at a site by now can't be changed."""

    def size(self, plan: Plan, spots: Sequence[Spot]) -> int:
        """Return how many bytes the trampolines of spots need at most, with the routines."""

    def routines(
        self, at: int, shape: Shape, rings: int, pid_cell: int, tid_offset: int | None, known: Known
    ) -> tuple[bytes, Routines]:
        """See `code.routines`."""

    def count_trampoline(
        self, at: int, counter: int, back: Back, shards: Shards | None = None, calls: Routines | None = None
    ) -> bytes:
        """See `code.count_trampoline`."""

    def count_routines(self, at: int, shards: Shards) -> tuple[bytes, Routines]:
        """See `code.count_routines`."""

    def tell_trampoline(self, at: int, flag: int, back: Back) -> bytes:
        """See `code.tell_trampoline`."""

    def words(self) -> Words:
        """Return what code needs that evaluates arguments (`evaluated`)."""

    def record_trampoline(
        self, at: int, site: int, arguments: Sequence[Taken], calls: Routines, lost: int, back: Back,
        keeping: Keeping | None = None, choice: Choice | None = None,
    ) -> bytes:  # fmt: skip
        """See `code.record_trampoline`."""

    def choosing_routines(
        self, at: int, plan: Plan, calls: int, pid_cell: int, tid_offset: int | None, claims: Routines
    ) -> tuple[bytes, Routines]:
        """See `calls.routines`."""


def machine_of(number: int) -> Machine:
    """Return the machine with an ELF number; it must be one of those that `hosts` knows."""
    if number == EM_AARCH64:
        from . import aarch64

        return aarch64
    from . import x86_64

    return x86_64


def here() -> Machine:
    """Return this machine."""
    return machine_of(HOST.number)
