"""Pairs of hits that took long, each as soon as its end has come, with what its thread hit before; nothing is kept."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Sequence
from typing import IO, Any

from ..model import Event, Report, Target
from . import EVENTS
from .bars import duration
from .latency import Latency
from .lines import Lines

_MOST_THREADS = 10_000  # whose last hits are known: of more, those that were hit last


class Slow(Latency):
    """Pairs as `Latency` finds them; of those that took at least `least` nanoseconds, the two hits are shown, and the
    `before` last others of the end's thread, in the order of their times."""

    def __init__(self, stream: IO[str], begin: str, end: str, key: str, least: int, before: int, **more: Any) -> None:
        super().__init__(stream, begin, end, key, **more)
        self.needs = EVENTS
        self._lines_of, self._least, self._before = Lines(stream), least, before
        self._history: OrderedDict[int, deque[Event]] = OrderedDict()  # by thread
        self._pairs = self._slow = 0

    def start(self, targets: Sequence[Target]) -> None:
        """Find the two probes and the key."""
        super().start(targets)
        self._lines_of.start(targets)

    def events(self, events: Sequence[Event]) -> None:
        """Pair them."""
        if events and self._lines_of.began is None:
            self._lines_of.began = events[0].time
        for event in events:
            super().events((event,))
            if self._before:
                self._remember(event)

    def _remember(self, event: Event) -> None:
        history = self._history.get(event.tid)
        if history is None:
            history = self._history[event.tid] = deque(maxlen=self._before + 1)  # the begin may be among them
            if len(self._history) > _MOST_THREADS:
                self._history.popitem(last=False)
        else:
            self._history.move_to_end(event.tid)
        history.append(event)

    def found(self, lasted: int, begin: Event, end: Event) -> None:
        """Show a pair if it took long."""
        self._pairs += 1
        if lasted < self._least:
            return
        self._slow += 1
        hits = list(self._history.get(end.tid, ()))  # in order, though times that were read apart may go back a bit
        if not any(one is begin for one in hits):
            hits = sorted([begin, *hits[len(hits) - self._before :]], key=lambda one: one.time)
        self._stream.write(f"{duration(lasted)} from {self._begin} to {self._end}, thread {end.tid}:\n")
        self._lines_of.events([*hits, end])

    def finish(self, report: Report) -> None:
        """Say how many there were."""
        which = f"{self._slow} of {self._pairs} pair{'s' * (self._pairs != 1)}"
        self._stream.write(f"{self._begin} to {self._end}: {which} took {duration(self._least)} or longer\n")
        self.finish_pairs(report)
