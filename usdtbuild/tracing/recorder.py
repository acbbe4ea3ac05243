"""The worker's part of a flight recorder: hits stay in their rings until they are asked for."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from . import clock
from .job import Raw
from .last import Last, Until
from .patch.engine import PatchEngine
from .patch.kept import Kept, Piece, latest
from .spool import Writer

Numbered = Sequence[tuple[int, PatchEngine]]

_EVER = (1 << 64) - 1
_PORTION = 4 << 20  # bytes that are handed over at once


class Recorder:
    """Takes the last hits out of all rings. `is_asked`: somebody wants them now."""

    def __init__(self, last: Last, until: Until | None) -> None:
        self.last, self.until = last, until
        self.is_asked = False
        self._waiting: deque[tuple[int, bytes]] = deque()  # of which rings records are, and their bytes
        self._stopped = 0  # when what is waited for came, on the clock of records
        self._missing = ""
        self._over: list[Piece] = []  # of rings that are gone
        self._begun = clock.now()

    def empty(
        self, engines: Numbered, in_use: set[PatchEngine], spool: Writer, tell: Callable[[Raw], None], *, final: bool
    ) -> None:
        """Write the last hits to the spool, as far as there is room, if they are asked for, and tell of them.

        The rings of engines that aren't in use go when this is over.
        """
        self._stopped = self._stopped or min((at for _, one in engines if (at := _stopped(one))), default=0)
        for number, engine in engines if not final else ():
            if engine not in in_use and (found := self._pieces(number, engine)):
                self._over = self._last([*self._over, *found])
        if self.is_asked or final:
            self._take(engines, is_over=final)
        while self._waiting and spool.write(self._waiting[0][1]):
            number, raw = self._waiting.popleft()
            tell(Raw(number, len(raw)))

    @property
    def has_come(self) -> bool:
        """Whether the hit that is waited for has come."""
        return bool(self._stopped)

    def notes(self) -> list[str]:
        """Return what a user must know at the end."""
        found = [self._missing] if self._missing else []
        never = self.until is not None and not self.has_come
        return [*found, f"no hit was what --until waits for: {self.until}"] if never else found

    def _take(self, engines: Numbered, *, is_over: bool) -> None:
        self.is_asked = False
        for one in self._last(self._read(engines) if is_over or self._stopped else self._at_once(engines)):
            size = max(1, _PORTION // one.slot) * one.slot
            self._waiting += ((one.number, one.raw[at : at + size]) for at in range(0, len(one.raw), size))

    def _read(self, engines: Numbered) -> list[Piece]:
        found = self._over + [piece for number, engine in engines for piece in self._pieces(number, engine)]
        self._over = []
        return found

    def _at_once(self, engines: Numbered) -> list[Piece]:
        """Return records up to now, though rings are read one after the other, and those that are read last have newer
        ones. What comes meanwhile is left for the next time. Where that is so much that older ones may be gone, they
        are read again while nothing is recorded, unless a hit is waited for, which must not be missed."""
        kept = [(one.rings, one.layout) for _, one in engines if isinstance(one.rings, Kept)]
        before, (now, _) = [rings.heads() for rings, _ in kept], self._now()
        found = self._read(engines)
        if all(self._are_there(rings, heads) for (rings, _), heads in zip(kept, before)):
            self._over = [later for one in found if (later := one.between(now + 1, _EVER)).raw]
            return [one.between(0, now) for one in found]
        switches = [rings for rings, layout in kept if layout is not None and layout.stop and self.until is None]
        for rings in switches:
            rings.hold(on=True)
        found += self._read(engines) if switches else []
        for rings in switches:
            rings.hold(on=False)
        return found

    def _are_there(self, rings: Kept, before: Sequence[int]) -> bool:
        """Whether of each ring what had come then was read, as far as it may be wanted."""
        most = self.last.most(rings.shape.slot) or rings.shape.slots // 2
        return all(now - then <= most for now, then in zip(rings.heads(), before))

    def _pieces(self, number: int, engine: PatchEngine) -> list[Piece]:
        rings = engine.rings
        if not isinstance(rings, Kept):
            return []
        slot = rings.shape.slot
        found = [Piece(number, slot, raw) for raw in rings.take(2 * self.last.most(slot))]
        now, rate = self._now()
        if self.last.seconds and rings.covered > now - int(self.last.seconds * rate):
            kept = max(0.0, (now - rings.covered) / rate)
            what = f"warning: hits came so fast that only those of the last {kept:.3g} s were kept"
            self._missing = f"{what}; --buffer makes more room"
        if rings.overwritten:
            self._missing = f"warning: {rings.overwritten} hits were overwritten while they were read"
        return found

    def _now(self) -> tuple[int, float]:
        ticks, rate = clock.since(self._begun)
        return ticks, rate * 1e9

    def _last(self, pieces: list[Piece]) -> list[Piece]:
        """Return of records the last ones, none after the one that was waited for."""
        now, rate = self._now()
        # The program may have written anything there.
        until = self._stopped if self._begun[0] <= self._stopped <= now else 0
        end = until or _EVER
        since = max(0, (until or now) - int(self.last.seconds * rate)) if self.last.seconds else 0
        pieces = [one.between(since, end) for one in pieces] if since or until else pieces
        most = self.last.most(max((one.slot for one in pieces), default=1))
        return latest(pieces, most) if most else pieces


def _stopped(engine: PatchEngine) -> int:
    """Return the time of the hit that was waited for, 0 if it hasn't come."""
    return engine.rings.stopped() if isinstance(engine.rings, Kept) else 0
