"""JSON of any size, printed piece by piece: as records and one text it takes a hundred times the input's size."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from .say import echo

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

# Raised when a field changes its meaning or goes away; a new field doesn't raise it. See docs/json.md.
VERSION = 1
_PIECE = 1 << 16  # characters that are printed at once


def headed(command: str, record: dict[str, Any]) -> dict[str, Any]:
    """Return what a command prints as JSON: which format that is, and its version, before all else."""
    return {"format": f"usdtbuild-{command}", "version": VERSION, **record}


def with_list(record: dict[str, Any], name: str, items: Iterable[Iterable[str]]) -> Iterator[str]:
    """Yield a record as `json.dumps` does, with one more field that is a list, of which each item comes in pieces."""
    yield json.dumps(record, indent=2)[: -len("\n}")] + f',\n  "{name}": ['
    end = "]\n}"
    for number, item in enumerate(items):
        yield ",\n    " if number else "\n    "
        yield from (piece.replace("\n", "\n    ") for piece in item)
        end = "\n  ]\n}"
    yield end


def dumped(records: Iterable[dict[str, Any]]) -> Iterator[tuple[str]]:
    """Yield each record as an item of `with_list`."""
    return ((json.dumps(record, indent=2),) for record in records)


def print_pieces(pieces: Iterable[str]) -> None:
    """Print a text that comes in pieces, and a newline."""
    kept: list[str] = []
    size = 0
    for piece in pieces:
        kept.append(piece)
        size += len(piece)
        if size >= _PIECE:
            echo("".join(kept), nl=False)
            kept, size = [], 0
    echo("".join(kept))
