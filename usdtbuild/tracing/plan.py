"""What is asked of an engine that works on one process."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from ..record import NamedTuple
from . import clock
from .filters import Filter
from .job import Cut, Job
from .last import Last, Until
from .measures import Measure
from .model import STACK, STRING, Target
from .own_returns import seen_alone
from .patch.code import Shape
from .patch.shards import Shards


class Plan(NamedTuple):
    """What is asked of an engine: COUNT or RECORD, of which targets, with strings of at most `string_size` bytes.

    `buffer_size` is how many bytes each ring of an engine that has rings may hold. `returns`: returns are watched too,
    so breakpoints may come where calls return to. `where`: only hits that pass it are counted or recorded. `measures`:
    what is added up of them, too. `pairs`: where in the process begins of pairs wait already, 0 if nowhere,
    `pair_shards`: the shards of threads there, and `pair_width`: how many bytes the words of their keys may take, 0
    where a key is one number. `whole`: texts are no keys before the tracer has changed them. `last`: rings keep the
    last hits, up to what is waited for (`until`); `stop`: where it is said that it has come, 0 if here. `patience`: for
    so many seconds a thread waits for room while nothing is read. `apart`: threads and processes have other numbers
    where they run. `cut`: which calls are recorded; then `pairs` is where threads remember what is open. `least`: so
    many ticks calls last at least, or aren't recorded, 0 if that isn't known there. `enough`: so many hits are read, 0:
    all.
    """

    what: str
    targets: tuple[Target, ...]
    string_size: int = 64
    buffer_size: int = 4 << 20
    returns: bool = False
    where: Filter | None = None
    measures: tuple[Measure, ...] = ()
    pairs: int = 0
    pair_shards: Shards | None = None
    pair_width: int = 0
    stop: int = 0
    whole: bool = False
    last: Last | None = None
    until: Until | None = None
    patience: float = 0.0
    apart: bool = False
    cut: Cut | None = None
    least: int = 0
    enough: int = 0

    @classmethod
    def of(cls, wish: Job, targets: Sequence[Target]) -> Plan:
        """Return what a job asks for of targets, without evaluating anything."""
        breaks = wish.wanted.returns and not wish.wanted.frames
        asked = seen_alone(targets) if wish.wanted.frames else tuple(targets)
        return cls(wish.what, asked, wish.string_size, wish.buffer_size, breaks,
                   last=wish.last, until=wish.until, patience=wish.patience,
                   cut=wish.cut if wish.wanted.frames else None,
                   least=_ticks(wish.cut.least) if wish.is_late else 0, enough=wish.enough)  # fmt: skip

    @property
    def keeps(self) -> bool:
        """Whether rings keep the last hits."""
        return self.last is not None

    @property
    def stack(self) -> int:
        """How many bytes of the stack a hit brings."""
        return max((one.size for target in self.targets for one in target.arguments if one.kind == STACK), default=0)

    def shaped(self, shape: Shape) -> Shape:
        """Return how rings of a shape are used."""
        return shape._replace(keeps=self.keeps, patience=int(self.patience * clock.rate()) if self.patience else 0)

    def ring_size(self, slot: int) -> int:
        """Return how many bytes each ring should have, whose records have `slot` bytes."""
        return self.last.ring_size(slot, self.buffer_size) if self.last is not None else self.buffer_size

    @property
    def evaluates(self) -> bool:
        """Whether a hit's arguments decide what is counted."""
        return self.where is not None or bool(self.measures)

    @property
    def takes_texts(self) -> bool:
        """Whether an argument is one that is read where it points to."""
        return any(one.kind == STRING for target in self.targets for one in target.arguments)


@lru_cache(maxsize=1)
def _ticks(time: int) -> int:
    """Return some ticks less of the processor's clock than nanoseconds are for sure: the tracer measures once more."""
    return max(1, time * clock.rate() * 49 // (50 * 10**9))
