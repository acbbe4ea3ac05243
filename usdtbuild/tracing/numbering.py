"""Numbers of targets: one that is seen again, in another process or another image, keeps the one it has."""

from __future__ import annotations

from collections.abc import Sequence

from .model import As, Target
from .retyped import retyped


class Numbering:
    """The targets of a trace, numbered in the order in which they came, with the types that a user gives arguments."""

    def __init__(self, shown_as: Sequence[As]) -> None:
        self._shown_as = shown_as
        self._numbers: dict[tuple[object, ...], int] = {}

    def take(self, targets: Sequence[Target]) -> tuple[list[Target], list[Target]]:
        """Return targets with their numbers, and those of them that are new."""
        numbered, new = [], []
        for target in (retyped(one, self._shown_as) for one in targets):
            key = (target.kind, target.provider, target.name, target.module.path, target.arguments)
            is_new = key not in self._numbers
            one = target._replace(number=self._numbers.setdefault(key, len(self._numbers)))
            numbered.append(one)
            if is_new:
                new.append(one)
        return numbered, new
