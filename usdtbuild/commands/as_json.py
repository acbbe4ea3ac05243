"""JSON of any size, printed piece by piece: as records and one text it takes a hundred times the input's size."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from typing import Any

from .say import echo

# Raised when a field changes its meaning or goes away; a new field doesn't raise it. See docs/json.md.
VERSION = 1
# An escaped backslash, a surrogate pair, or a byte as Python has it (PEP 383).
_ESCAPE = re.compile(r"\\\\|\\ud[89ab]..\\ud[c-f]..|\\udc([89a-f].)")
_PIECE = 1 << 16  # characters that are printed at once


def headed(command: str, record: dict[str, Any]) -> dict[str, Any]:
    """Return what a command prints as JSON: which format that is, and its version, before all else."""
    return {"format": f"usdtbuild-{command}", "version": VERSION, **record}


def dumps(record: Any, indent: int | None = 2) -> str:
    """Return a record as JSON. A byte of a path that is no UTF-8 is spelled as in `text.shown`: alone, half of a
    surrogate pair is no character, and many readers refuse it."""
    text = json.dumps(record, indent=indent)
    return _ESCAPE.sub(lambda found: rf"\\x{found[1]}" if found[1] else found[0], text) if r"\udc" in text else text


def with_list(record: dict[str, Any], name: str, items: Iterable[Iterable[str]]) -> Iterator[str]:
    """Yield a record as `dumps` does, with one more field that is a list, of which each item comes in pieces."""
    yield dumps(record)[: -len("\n}")] + f',\n  "{name}": ['
    end = "]\n}"
    for number, item in enumerate(items):
        yield ",\n    " if number else "\n    "
        yield from (piece.replace("\n", "\n    ") for piece in item)
        end = "\n  ]\n}"
    yield end


def dumped(records: Iterable[dict[str, Any]]) -> Iterator[tuple[str]]:
    """Yield each record as an item of `with_list`."""
    return ((dumps(record),) for record in records)


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
