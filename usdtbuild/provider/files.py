"""Several provider files as what they declare together, for whoever holds binaries to them.

A provider may be declared in parts, in several files; parts that contradict each other are an error here, since nobody
could say which of them a binary is held to. Not for making headers: each file has its own.
"""

from __future__ import annotations

from ..errors import InputError
from .join import join
from .parser import parse, read_file

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..model import Provider


def read_providers(paths: Sequence[str]) -> dict[str, Provider]:
    """Return name -> provider of everything that the files at `paths` declare. Raises InputError and ParseError."""
    providers: dict[str, Provider] = {}
    first: dict[str, str] = {}
    for path in paths:
        for part in parse(_read(path), path):
            known = providers.setdefault(part.name, part)
            first.setdefault(part.name, path)
            providers[part.name], differing = join(known, part)
            if differing:
                what = f"declares {', '.join(differing)} of provider {part.name} otherwise than {first[part.name]}"
                raise InputError(path, what, "give the files of one version of the program")
    return providers


def _read(path: str) -> str:
    try:
        return read_file(path).decode("utf-8", "surrogateescape")
    except ValueError as error:
        raise InputError(path, str(error).lower()) from None
