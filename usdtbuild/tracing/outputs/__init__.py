"""Ways to show a trace: one module each, all with the methods of `Output`.

A session calls `start` once, `events` with each batch (an Output that needs `EVENTS`), `counts` about ten times a
second (one that needs `COUNTS`, and where nothing needs events the engine only counts), `finish` once. One that needs
`KEYS` is satisfied with what hits add up to (`measures`): `tables` tells it before the end, of those hits that did not
come as events.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ...ending import StandardOutputError
from ...errors import UsdtError
from ..measures import Tables
from ..model import Event, Report, Target, Totals
from .rows import Row
from .values import argument_names, title

EVENTS, KEYS, COUNTS = "events", "keys", "counts"


class Output:
    """One way to show a trace. What says nothing here needn't be said by a format."""

    needs: str
    values: bool = True  # whether it shows hits' arguments
    passing: bool = False  # whether it is lines that go by on a terminal
    is_live: bool = False  # whether it keeps a table on a terminal, among which nothing else may be written
    notes: Sequence[str] = ()  # what a user must be told when it is finished
    has_failed: bool = False  # whether something could not be shown then, of which `notes` say more
    lacking: UsdtError | None = None  # why nothing can be shown of all that has come since the begin
    _targets: Sequence[Target] = ()

    def start(self, targets: Sequence[Target]) -> None:
        """Begin; `targets[i].number == i`. Called again with a longer list when targets come while the trace runs.

        Raises UsdtError where what is to be shown makes no sense with what is there at the begin."""
        self._targets = targets

    def events(self, events: Sequence[Event]) -> None:
        """Take new events, filtered already, oldest first within a batch."""

    def counts(self, totals: Totals) -> None:
        """Take the hits so far."""

    def tables(self, tables: Tables, passed: Mapping[int, int]) -> None:
        """Take what hits have added up to, and how many there were of each of these targets."""

    def interval(self, report: Report, tables: Tables) -> None:
        """Take what has come in an interval (`every`)."""

    def finish(self, report: Report) -> None:
        """End: write what is written at the end."""

    def close(self) -> None:
        """Let go of everything; also where it was not finished."""

    def broken(self) -> StandardOutputError | None:
        """Return why nothing more can be printed, where files are to get what was seen all the same."""
        return None


class Hits(Output):
    """An output that shows hits one by one: by the number of a target what it and its arguments are called."""

    needs = EVENTS
    _titles: Sequence[str] = ()
    _names: Sequence[tuple[str, ...]] = ()

    def start(self, targets: Sequence[Target]) -> None:
        """Learn the targets."""
        super().start(targets)
        self._titles = [title(one) for one in targets]
        self._names = [argument_names(one) for one in targets]


class Table(Output):
    """An output that can show its hits more than once."""

    _has_begun = False

    def start(self, targets: Sequence[Target]) -> None:
        """Find in targets what is to be shown. Those that come later end nothing: others may come that have it."""
        is_first, self._has_begun = not self._has_begun, True
        self._targets, self.lacking = targets, None
        try:
            self.find(targets, strict=is_first)
        except UsdtError as error:
            if is_first:
                raise
            self.lacking = error

    def find(self, targets: Sequence[Target], *, strict: bool) -> None:
        """Find in targets what is to be shown. Raises UsdtError if none has it; if `strict`, also where one of them
        makes no sense, else such targets are left out."""

    def renew(self) -> None:
        """Forget what was shown; from now on it is of an interval of the trace, not of all."""

    def rows(self, report: Report) -> Sequence[Row]:
        """Return what it shows, as numbers."""
        raise NotImplementedError

    def unpaired(self) -> dict[str, int]:
        """Return how many hits it has not paired, by why; nothing where none are."""
        return {}

    def odd(self) -> dict[str, int]:
        """Return how many values belong to no row because they are infinite or NaN, by the name of the table."""
        return {}


def first_lacking(outputs: Iterable[Output]) -> UsdtError | None:
    """Return why one of the outputs can show nothing, None if all can."""
    return next((one.lacking for one in outputs if one.lacking is not None), None)


class Several(Output):
    """What hands on to some tables what they need to know."""

    def __init__(self, tables: Sequence[Table]) -> None:
        self._tables, self.needs = tables, needs_of(tables)

    def start(self, targets: Sequence[Target]) -> None:
        """Hand the targets on."""
        for one in self._tables:
            one.start(targets)
        self.lacking = first_lacking(self._tables)

    def events(self, events: Sequence[Event]) -> None:
        """Hand hits on."""
        for one in self._tables:
            if one.needs != COUNTS:
                one.events(events)

    def tables(self, tables: Tables, passed: Mapping[int, int]) -> None:
        """Take what all hits have added up to."""
        for one in self._tables:
            if one.needs == KEYS:
                one.tables(tables, passed)


def needs_of(outputs: Sequence[Output]) -> str:
    """Return what is needed to satisfy all of some outputs."""
    needs = {output.needs for output in outputs}
    return next((one for one in (EVENTS, KEYS) if one in needs), COUNTS)
