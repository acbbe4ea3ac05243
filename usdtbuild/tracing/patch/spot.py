"""A site that changes, and how: as a jump (`forms`), by the distance of its slot (`slots`), or as one word."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from .forms import Form

if TYPE_CHECKING:
    from ..model import Site, Target
    from .code import Instruction
    from .slots import Load


class Word(NamedTuple):
    """One aligned instruction of `length` bytes that becomes a branch. Its stub goes on with `back`, else behind it;
    `returns`: the instruction is a return instead. `links`: it is a call, and so is the branch."""

    changed_at: int
    length: int
    returns: bool
    back: Instruction | None
    links: bool


class Spot(NamedTuple):
    """A site that changes: from which bytes, to which, and where its mirror is if it becomes a jump, else 0."""

    target: Target
    site: Site
    form: Form | Load | Word
    before: bytes
    after: bytes
    mirror: int

    @property
    def changed_at(self) -> int:
        """The address of the bytes that change."""
        return self.site.address if isinstance(self.form, Form) else self.form.changed_at
