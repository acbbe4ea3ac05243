"""What a flight recorder keeps, the last hits, and what it waits for."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from ..errors import UsageError
from .filters import Filter
from .model import Target
from .selection import is_meant

_LEAST, MOST = 1 << 20, 1 << 30  # bytes of a ring
_SPARE = 4  # for one record that is kept, a ring has room for more: some are written while others are read


class Last(NamedTuple):
    """How much is kept: so many hits, so many bytes of them, or so many seconds; one of the three."""

    hits: int = 0
    size: int = 0
    seconds: float = 0.0

    def ring_size(self, slot: int, buffer_size: int) -> int:
        """Return how many bytes each ring should have, whose records have `slot` bytes."""
        return buffer_size if self.seconds else min(max(_SPARE * self.most(slot) * slot, _LEAST), MOST)

    def most(self, slot: int) -> int:
        """Return how many records of so many bytes are kept, 0 if that depends on their time."""
        return self.hits or -(-self.size // slot)


class Until(NamedTuple):
    """What ends a trace: the first hit of a probe of which a test is true, any if there is none."""

    pattern: str
    test: Filter | None

    def __str__(self) -> str:
        return f"{self.pattern} {self.test.text}" if self.test is not None else self.pattern

    def check(self, targets: Sequence[Target]) -> None:
        """Raise UsageError if no target is meant, or the test can't be answered where one is hit."""
        meant = [target for target in targets if is_meant(target, self.pattern)]
        if not meant:
            raise UsageError(f"--until: there is no probe {self.pattern}; usdtbuild list FILE shows those of a file")
        for target in meant if self.test is not None else ():
            check_in_place(self.test, target, numbers_only=True)


def check_in_place(test: Filter | None, target: Target, *, numbers_only: bool = False) -> None:
    """Raise UsageError if a test can't be answered where a target is hit, by `numbers_only` perhaps."""
    from . import predicates

    if test is None:
        return
    test.compile(target)
    try:
        for site in target.sites:
            found = predicates.lower(test, target, site.operands)
            if numbers_only:
                predicates.numbers_only(found)
    except predicates.NotHereError as error:
        raise UsageError(f"{test.option}: with --last, tests are made where the hit happens, and not this one: {error}"
                         ) from None  # fmt: skip


def until(text: str) -> Until:
    """Read a probe's name or pattern, with a test behind it or without one. Raises UsageError."""
    found = re.fullmatch(r"\s*(\S+)(?:\s+(\S.*))?", text, re.DOTALL)
    if found is None:
        raise UsageError("--until: say which probe, and which of its hits: 'app:request-done code > 0'")
    return Until(found[1], Filter(found[2], option="--until") if found[2] else None)
