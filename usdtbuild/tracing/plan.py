"""What is asked of an engine that works on one process."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..record import NamedTuple

if TYPE_CHECKING:
    from .filters import Filter
    from .measures import Measure
    from .model import Target


class Plan(NamedTuple):
    """What is asked of an engine: COUNT or RECORD, of which targets, with strings of at most `string_size` bytes.

    `buffer_size` is how many bytes each ring of an engine that has rings may hold. `returns`: returns are watched too,
    so breakpoints may come where calls return to. `where`: only hits that pass it are counted or recorded. `measures`:
    what is added up of them, too. `pairs`: where in the process begins of pairs wait already, 0 if nowhere.
    """

    what: str
    targets: tuple[Target, ...]
    string_size: int = 64
    buffer_size: int = 4 << 20
    returns: bool = False
    where: Filter | None = None
    measures: tuple[Measure, ...] = ()
    pairs: int = 0

    @property
    def evaluates(self) -> bool:
        """Whether a hit's arguments decide what is counted."""
        return self.where is not None or bool(self.measures)
