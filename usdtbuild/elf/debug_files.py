"""Separate debug files: what was stripped from a file, and lies beside it or in a folder of the system's."""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import TYPE_CHECKING

from ..apart import open_binary
from ..errors import InputError
from .image import Image
from .space import FUNCTIONS, AddressSpace

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..files import Data

DEBUG_FOLDER = "/usr/lib/debug"


def _debug_link(image: Image) -> tuple[str, int] | None:
    for section in image.sections_named(".gnu_debuglink"):
        data = bytes(image.content(section))
        end = data.find(b"\0")
        at = -(-(end + 1) // 4) * 4
        if end > 0 and at + 4 <= len(data):
            return data[:end].decode("utf-8", "surrogateescape"), image.layout.u32.unpack_from(data, at)[0]
    return None


def _candidates(image: Image, folder: str) -> list[tuple[Path, int | None]]:
    """Return where a debug file may be, as gdb looks for it (its manual, Separate Debug Files), with its CRC."""
    found: list[tuple[Path, int | None]] = []
    identity = image.build_id.hex()
    if identity:
        found.append((Path(folder, ".build-id", identity[:2], identity[2:] + ".debug"), None))
    link = _debug_link(image)
    if link:
        beside = Path(image.path).resolve().parent
        places = (beside, beside / ".debug", Path(folder, *beside.parts[1:]))
        found += [(place / Path(link[0]).name, link[1]) for place in places]
    return found


def debug_files(image: Image, folder: str = DEBUG_FOLDER) -> Iterator[AddressSpace]:
    """Yield the file's own separate debug files; one with another build id or CRC is not its own."""
    for path, crc in _candidates(image, folder):
        if path.resolve() == Path(image.path).resolve():
            continue
        try:
            opened = open_binary(str(path))
            if opened is None:
                continue
            with opened:
                debug = debug_file(image, opened.view, str(path), crc)
        except InputError:
            continue
        if debug is not None:
            yield debug


def debug_file(image: Image, content: Data, path: str, crc: int | None = None) -> AddressSpace | None:
    """Return a content as a file's own separate debug file, if it is that. Raises InputError."""
    debug = AddressSpace(Image(content, path, FUNCTIONS), debug_file=True)
    mine, other = image.build_id, debug.file.build_id
    same = mine == other if mine and other else crc is not None and zlib.crc32(debug.data) == crc
    return debug if same and debug.machine == image.machine else None
