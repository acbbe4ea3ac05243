"""Copying files of ours into a project: what the vendor commands share. A copy of ours is replaced, nothing else is."""

from __future__ import annotations

from pathlib import Path

from ..errors import InputError
from ..files import write_whole
from ..outputs import Outputs
from .say import echo


def put(source: Path, folder: str, ours: str) -> None:
    """Copy the one file of a vendor command into a folder, and print its path. Raises InputError, as `check` does."""
    target = Path(folder, source.name)
    check(target, ours)
    with Outputs() as outputs:
        copy(outputs, source, target)
    echo(str(target))


def check(path: Path, ours: str) -> None:
    """Raise InputError if there is a file that isn't a copy of ours, which has the text `ours` in it."""
    try:
        foreign = path.exists() and not (path.is_file() and ours in path.read_text(errors="replace"))
    except OSError as error:
        raise InputError(str(path), f"can't be read: {(error.strerror or str(error)).lower()}") from None
    if foreign:
        raise InputError(str(path), "is there and isn't a copy of ours", "move it away, or choose another folder")


def copy(outputs: Outputs, source: Path, target: Path) -> None:
    """Copy a file, and make the folders above it; one that is right already is left alone. Raises InputError."""
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(str(target.parent), f"can't be made: {(error.strerror or str(error)).lower()}") from None
    content = source.read_bytes()
    # Build systems configure anew when a file has a new time.
    if not target.is_file() or target.read_bytes() != content:
        write_whole(outputs.stage(str(target)), content)
