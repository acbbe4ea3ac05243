"""What a table says, as numbers: for programs that read it (`every`), and for a screen that sorts it (`top`)."""

from __future__ import annotations

import math
import shutil
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import IO, Any, NamedTuple

from ...inspection.demangle import shortened
from ...text import ELLIPSIS

_LEAST = 18  # characters of a name that still say something


class Row(NamedTuple):
    """A row of the table `table`: the hits, or pairs, of a key (`by` is what its keys are, '' for a table of one row).

    `key` is None for all whose key came when the table was full. `total` and `least` to `most` are of the argument
    `of`, or nanoseconds where `is_time`; None where it isn't known. `quantiles` are by names, such as p99;
    `buckets` say how many values are in each class: (low, high, hits); `step` is its width, 0 for powers of two.
    """

    table: str
    key: str | None
    hits: int
    by: str = ""
    of: str = ""
    total: float | None = None
    quantiles: Mapping[str, float] = {}
    most: float | None = None
    is_time: bool = False
    least: float | None = None
    buckets: Sequence[tuple[float, float, int]] = ()
    step: float = 0

    def plus(self, other: Row) -> Row:
        """Return the row of these hits and of later ones, of which alone the quantiles are."""
        total = None if self.total is None or other.total is None else self.total + other.total
        most = None if self.most is None or other.most is None else max(self.most, other.most)
        least = None if self.least is None or other.least is None else min(self.least, other.least)
        buckets = Counter[tuple[float, float]]()
        for low, high, hits in (*self.buckets, *other.buckets):
            buckets[low, high] += hits
        return other._replace(hits=self.hits + other.hits, total=total, most=most, least=least,
                              buckets=[(*bounds, hits) for bounds, hits in sorted(buckets.items())])  # fmt: skip

    @property
    def mean(self) -> float | None:
        """What a hit has on average."""
        return self.total / self.hits if self.total is not None and self.hits else None

    def as_json(self) -> dict[str, Any]:
        """Return it as JSON has it; what isn't known, or is no number, is left out."""
        unit = "_ns" if self.is_time else ""
        numbers = {"sum": self.total, "mean": self.mean, "min": self.least, **self.quantiles, "max": self.most}
        found: dict[str, Any] = {"table": self.table}
        if self.by:
            found |= {"by": self.by, "key": self.key}
        found["pairs" if self.is_time else "hits"] = self.hits
        if not self.is_time and self.total is not None and math.isinf(self.total):
            found["overflow"] = True
        whole = self.is_time or not isinstance(self.total, float)
        for name, number in numbers.items():
            if number is not None and math.isfinite(number):
                found[name + unit] = number if isinstance(number, int) and whole else float(f"{number:.9g}")
        return found


def number_text(value: float) -> str:
    """Return a number with six digits that count, or an integer with all; NaN is one that isn't known."""
    return str(value) if isinstance(value, int) else "?" if math.isnan(value) else f"{value:.6g}"


def rate(hits: float, seconds: float) -> str:
    """Return how many hits a second that is, to three digits at least."""
    found = hits / max(seconds, 1e-9)
    return f"{found:.0f}" if found >= 99.95 or not hits else f"{found:.3g}"


def aligned(columns: Sequence[Sequence[str]], texts: Sequence[str], room: int = 0) -> list[str]:
    """Return the lines of a table: numbers, and what each line is about behind them; with room for so many characters
    (0: any number), names are shortened."""
    widths = [max(map(len, column)) for column in zip(*columns)]
    left = max(_LEAST, room - 2 * len(widths) - sum(widths) - 2) if room else sys.maxsize
    return [
        "  " + "  ".join(f"{one:>{width}}" for one, width in zip(row, widths)) + f"  {_fitting(text, left)}\n"
        for row, text in zip(columns, texts)
    ]


def _fitting(text: str, room: int) -> str:
    """Return a name in so many characters; of the file behind it, which tells it from others, the name stays."""
    name, at, path = text.rpartition(" (/")
    if len(text) <= room or not at:
        return shortened(text, room)
    file = f" ({ELLIPSIS}/{path.rpartition('/')[2]}"
    return shortened(name, max(_LEAST, room - len(file))) + file


def room_of(stream: IO[str]) -> int:
    """Return the characters of a line, if a stream is a terminal; else 0."""
    return shutil.get_terminal_size().columns if stream.isatty() else 0
