"""Numbers of targets: one that is seen again, in another process or another image, keeps the one it has."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .model import Target


class Numbering:
    """The targets of a trace, numbered in the order in which they came."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[object, ...], int] = {}

    def take(self, targets: Sequence[Target]) -> tuple[list[Target], list[Target]]:
        """Return targets with their numbers, and those of them that are new."""
        numbered, new = [], []
        for target in targets:
            key = (target.kind, target.provider, target.name, target.module.path, target.arguments)
            is_new = key not in self._numbers
            one = target._replace(number=self._numbers.setdefault(key, len(self._numbers)))
            numbered.append(one)
            if is_new:
                new.append(one)
        return numbered, new
