"""How often each target was hit: a table at the end, kept up to date meanwhile on a terminal."""

from __future__ import annotations

from typing import IO, TYPE_CHECKING

from . import COUNTS
from .values import plain_text, title

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..engine import Totals
    from ..model import Event, Report, Target


class Count:
    """Writes the table to a stream."""

    needs = COUNTS

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream

    def start(self, targets: Sequence[Target]) -> None:
        """Nothing to write yet."""

    def events(self, events: Sequence[Event]) -> None:
        """Nothing: engines count."""

    def counts(self, totals: Totals) -> None:
        """Nothing before the end."""

    def finish(self, report: Report) -> None:
        """Write the table, the most hits first."""
        rows = sorted(zip(report.counts, report.targets), key=lambda row: (-row[0], row[1].title))
        width = max((len(str(count)) for count, _ in rows), default=1)
        several = len({target.module.path for target in report.targets}) > 1
        for count, target in rows:
            where = f"  ({plain_text(target.module.path)})" if several else ""
            self._stream.write(f"{count:>{width}}  {title(target)}{where}\n")
        self._stream.flush()
