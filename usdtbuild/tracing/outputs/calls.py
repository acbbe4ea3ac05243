"""Tables of functions: how often and for how long each was called, and by whom; from hits that `frames` has put in
order. How they are printed is the matter of `call_report`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from ..call_report import without_time
from ..call_tree import CallTree, merged
from ..frames import LEFT
from ..model import EXIT, Event, Report, Target
from . import EVENTS, Output
from .bars import Distribution
from .values import first_of_each, function_names

Show = Callable[[CallTree, Report], bool]

_MOST = 1 << 18  # ways through the program


class _Way:
    __slots__ = ("below", "name", "own", "times", "total", "unseen")

    def __init__(self, name: int) -> None:
        self.name = name
        self.times = self.total = self.own = self.unseen = 0
        self.below: dict[int, _Way] = {}


class CallTables(Output):
    """Adds them up, and lets the tree be shown at the end, which says whether it is as it should be."""

    needs = EVENTS
    values = False

    def __init__(self, show: Show, *, told: bool = True) -> None:
        """`told`: what the tree lacks is in `notes`."""
        self._show, self._told = show, told
        self._root = _Way(-1)
        self._spreads: dict[int, Distribution] = {}
        self._first: list[int] = []
        self._ends: list[bool] = []
        self._open: dict[tuple[int, int], list[tuple[_Way | None, int, int]]] = {}  # ways, since when, below them
        self._ways = self._lost = 0

    def start(self, targets: Sequence[Target]) -> None:
        """Learn which functions there are."""
        self._targets = targets
        self._first = first_of_each(targets, [one.shown for one in targets])
        self._ends = [one.kind == EXIT for one in targets]

    def events(self, events: Sequence[Event]) -> None:
        """Take calls and their ends."""
        for event in events:
            calls = self._open.get((event.pid, event.tid))
            if calls is None:
                calls = self._open[event.pid, event.tid] = []
            if not self._ends[event.target]:
                way = self._below(calls[-1][0] if calls else self._root, self._first[event.target])
                if way is not None:
                    way.times += 1
                calls.append((way, event.own, 0))
            elif calls:
                way, since, below = calls.pop()
                took = event.own - since
                if event.frame == LEFT:
                    took = below
                if way is not None and event.frame == LEFT:
                    way.unseen += 1
                elif way is not None:
                    spread = self._spreads.get(way.name)
                    if spread is None:
                        spread = self._spreads[way.name] = Distribution()
                    spread.add(took)
                    way.total += took
                    way.own += max(0, took - below)
                if calls:
                    around, began, others = calls[-1]
                    calls[-1] = around, began, others + took

    def _below(self, caller: _Way | None, name: int) -> _Way | None:
        """Return a function's way below another's; None if there is no room for it."""
        found = caller.below.get(name) if caller is not None else None
        if found is None and caller is not None and self._ways < _MOST:
            self._ways += 1
            found = caller.below[name] = _Way(name)
        self._lost += found is None
        return found

    def finish(self, report: Report) -> None:
        """Show the tree."""
        shown = function_names(self._targets)
        spreads = {shown[name]: spread for name, spread in self._spreads.items()}
        roots = merged(self._root.below.values(), lambda ways: [one for way in ways for one in way.below.values()],
                       lambda way: (shown[way.name], way.times, way.total, way.own, way.unseen))  # fmt: skip
        tree = CallTree(roots, self._lost, spreads=spreads, exact=not any(report.lost))
        self.has_failed = not self._show(tree, report)
        self.notes = list(self._notes(report, tree)) if self._told else ()

    def _notes(self, report: Report, tree: CallTree) -> Iterator[str]:
        if any(report.lost):
            yield ("warning: hits were lost, so calls are missing from the tables, and times may be of two calls;"
                   " --lossless or --buffer helps, or -F with fewer functions")  # fmt: skip
        yield from without_time(tree)
        if self._lost:
            yield f"warning: there was no room for {self._lost} ways through the program"
