"""Archives (`.a`): where in the file each member is, or which file a thin archive's member is.

The common format with GNU's and BSD's ways to write long names, and GNU's thin archives, which hold names only. Source:
ar(5) of FreeBSD, and binutils' `include/aout/ar.h`. Reads no member; a damaged archive raises InputError.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import InputError
from ..record import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..files import Data

MAGIC, THIN_MAGIC = b"!<arch>\n", b"!<thin>\n"
_HEADER_SIZE = 60
_END_OF_HEADER = b"`\n"
_TABLES = {b"/", b"/SYM64/", b"__.SYMDEF", b"__.SYMDEF SORTED", b"__.SYMDEF_64"}


class Member(NamedTuple):
    """One member: its name, and its bytes' place in the archive; in a thin archive `file` holds them instead."""

    name: str
    offset: int
    size: int
    file: str = ""


def is_archive(start: bytes) -> bool:
    """Tell from a file's first eight bytes whether it is an archive."""
    return start[:8] in {MAGIC, THIN_MAGIC}


def members(data: Data, path: str) -> Iterator[Member]:
    """Yield the members of an archive, symbol and name tables left out. Raises InputError."""
    thin = data[:8] == THIN_MAGIC
    long_names = b""
    offset = len(MAGIC)
    while offset < len(data):
        header = bytes(data[offset : offset + _HEADER_SIZE])
        if len(header) < _HEADER_SIZE or header[58:60] != _END_OF_HEADER:
            raise InputError(path, f"the archive is damaged at offset {offset:#x}", "make it again")
        field, size = header[:16].rstrip(b" "), _decimal(header[48:58], path, offset)
        offset += _HEADER_SIZE
        if field == b"//":
            long_names = bytes(data[offset : offset + size])
        inside = not thin or field in _TABLES or field == b"//"
        if inside and offset + size > len(data):
            raise InputError(path, f"the archive ends inside the member at offset {offset:#x}", "make it again")
        if field != b"//" and field not in _TABLES:
            member = _member(data, field, long_names, offset, size)
            if member is None:
                raise InputError(path, f"the member at offset {offset:#x} has a damaged name", "make it again")
            if thin:
                member = member._replace(file=str(Path(path).parent / member.name))
            if member.name.encode("utf-8", "surrogateescape") not in _TABLES:
                yield member
        if inside:
            offset += size + size % 2


def _decimal(field: bytes, path: str, offset: int) -> int:
    digits = field.strip()
    if not digits.isdigit():
        raise InputError(path, f"the archive is damaged at offset {offset:#x}: no size", "make it again")
    return int(digits)


def _member(data: Data, field: bytes, long_names: bytes, offset: int, size: int) -> Member | None:
    """Return the member, with a name that the header, GNU's table or (BSD) the member's first bytes hold."""
    if field.startswith(b"#1/") and field[3:].isdigit():
        length = int(field[3:])
        if length > size:
            return None
        name = bytes(data[offset : offset + length]).rstrip(b"\0")
        return Member(_text(name), offset + length, size - length)
    if field.startswith(b"/") and field[1:].isdigit():
        start = int(field[1:])
        end = long_names.find(b"\n", start)
        if start >= len(long_names) or end < 0:
            return None
        return Member(_text(long_names[start:end].rstrip(b"/")), offset, size)
    return Member(_text(field[:-1] if field.endswith(b"/") else field), offset, size)


def _text(name: bytes) -> str:
    return name.decode("utf-8", "surrogateescape")
