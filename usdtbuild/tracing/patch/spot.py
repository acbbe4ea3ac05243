"""A site that changes, and how: as a jump (`forms`), by its padding, by its slot's distance, or as one word."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...record import NamedTuple
from .forms import PADDED, Form, Padded

if TYPE_CHECKING:
    from ..model import Site, Target
    from .code import Behind, Instruction
    from .slots import Load


class Word(NamedTuple):
    """One aligned instruction of `length` bytes that becomes a branch. Its trampoline goes on with `back`, else behind
    it; `returns`: the instruction is a return instead. `links`: it is a call, and so is the branch."""

    changed_at: int
    length: int
    returns: bool
    back: Instruction | None
    links: bool


class Spot(NamedTuple):
    """A site that changes: from which bytes, to which, and where its mirror is if it becomes a jump, else 0.

    Of an entry that is `Padded` the mirror is its padding; the bytes are the entry's, and behind them the padding's.
    `near` as in `mirrors.Placed`. `back` is where the trampoline goes on, if that isn't right behind the site.
    """

    target: Target
    site: Site
    form: Form | Load | Word | Padded
    before: bytes
    after: bytes
    mirror: int
    near: tuple[int, ...] = ()
    back: Behind | None = None

    @property
    def changed_at(self) -> int:
        """The address of the bytes that change."""
        return self.site.address if isinstance(self.form, Form | Padded) else self.form.changed_at

    @property
    def changes(self) -> tuple[tuple[int, bytes, bytes], ...]:
        """What changes: addresses in ascending order, each with the bytes before and after."""
        if isinstance(self.form, Form) and not self.form.was:  # most
            return ((self.site.address, self.before, self.after),)
        if not isinstance(self.form, Padded):
            before = self.before
            if isinstance(self.form, Form):
                # Of an entry's jump behind a return the first byte is there before the return changes.
                before = bytes(self.after[at] if at - 1 in self.near else byte for at, byte in enumerate(before))
            return ((self.changed_at, before, self.after),)
        padding = (self.mirror, self.before[PADDED:], self.after[PADDED:])
        return (padding, (self.changed_at, self.before[:PADDED], self.after[:PADDED]))

    @property
    def extent(self) -> tuple[int, int]:
        """Where the first byte that changes is, and where the last one ends."""
        return self.changes[0][0], self.changed_at + (PADDED if isinstance(self.form, Padded) else len(self.before))
