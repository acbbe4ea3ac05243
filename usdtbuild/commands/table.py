"""The table of `usdtbuild list` on a terminal: what identifies a site stays whole, what only describes it gives way.

Probe, number, site and semaphore are never cut or wrapped. A function that is too long is shortened; arguments go on
below, in their own column. Where even that has no room, they stand in lines of their own. Knows columns and widths
only; nothing of probes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..inspection.demangle import shortened
from ..record import NamedTuple

_GAP = 2
_LEAST = 18  # characters of a function or of arguments that still say something


class Column(NamedTuple):
    """A column: its heading, how it is drawn, and what it does where there is no room: stay, elide or wrap."""

    heading: str
    style: str
    narrow: str = "stay"


def wrap(text: str, width: int) -> list[str]:
    """Return `text` in lines of at most `width` characters, broken behind commas and blanks where there are any."""
    lines: list[str] = []
    while len(text) > width:
        cut = max(text.rfind(", ", 0, width) + 1, 0) or text.rfind(" ", 0, width + 1)
        cut = cut if cut > 0 else width
        lines.append(text[:cut].rstrip())
        text = text[cut:].lstrip()
    return [*lines, text] if text or not lines else lines


def draw(columns: Sequence[Column], rows: Sequence[Sequence[str]], width: int) -> Iterator[list[tuple[str, str]]]:
    """Yield the lines of a table for a terminal of `width` characters, each as (text, style) pieces.

    A column without content is left out.
    """
    used = [at for at in range(len(columns)) if any(row[at] for row in rows)]
    columns, rows = [columns[at] for at in used], [[row[at] for at in used] for row in rows]
    widths = [max(len(c.heading), *(len(row[at]) for row in rows)) for at, c in enumerate(columns)]
    soft = [at for at, column in enumerate(columns) if column.narrow != "stay"]
    room = width - sum(widths[at] for at in range(len(columns)) if at not in soft) - _GAP * (len(columns) - 1)
    if sum(widths[at] for at in soft) > room:
        if room < _LEAST * len(soft):
            yield from _stacked(columns, rows, widths, width)
            return
        _shrink(widths, soft, room)
    yield [(column.heading.ljust(size + _GAP), column.style) for column, size in zip(columns, widths)]
    for row in rows:
        yield from _row(columns, row, widths)


def _shrink(widths: list[int], soft: Sequence[int], room: int) -> None:
    """Divide `room` among the soft columns: who needs less than its part leaves the rest to the others."""
    left = list(soft)
    while left:
        part = room // len(left)
        small = [at for at in left if widths[at] <= part]
        if not small:
            for number, at in enumerate(left):
                widths[at] = part + (number < room % len(left))
            return
        for at in small:
            room -= widths[at]
            left.remove(at)


def _row(columns: Sequence[Column], row: Sequence[str], widths: Sequence[int]) -> Iterator[list[tuple[str, str]]]:
    cells = [
        wrap(text, size) if column.narrow == "wrap" else [shortened(text, size)]
        for column, text, size in zip(columns, row, widths)
    ]
    for number in range(max(map(len, cells))):
        yield [
            ((cell[number] if number < len(cell) else "").ljust(size + _GAP), column.style)
            for column, cell, size in zip(columns, cells, widths)
        ]


def _stacked(
    columns: Sequence[Column], rows: Sequence[Sequence[str]], widths: Sequence[int], width: int
) -> Iterator[list[tuple[str, str]]]:
    """Yield what stays on a line of its own, and the rest indented below it."""
    whole = [at for at, column in enumerate(columns) if column.narrow == "stay"]
    yield [(columns[at].heading.ljust(widths[at] + _GAP), columns[at].style) for at in whole]
    indent = " " * (2 * _GAP)
    for row in rows:
        yield [(row[at].ljust(widths[at] + _GAP), columns[at].style) for at in whole]
        for column, text in zip(columns, row):
            room = max(width - len(indent), _LEAST)
            if column.narrow == "wrap" and text:
                yield from ([(indent, ""), (line, column.style)] for line in wrap(text, room))
            elif column.narrow == "elide" and text:
                yield [(indent, ""), (shortened(text, room), column.style)]
