"""`usdtbuild header --check`: is a header that a project keeps in its repository still what its provider file makes?"""

from __future__ import annotations

import sys

from .._version import __version__
from ..errors import InputError, Told
from ..text import diff, shown

_MOST_LINES = 200  # of a difference; a header that is a different one altogether needn't be shown whole


def check(path: str, wanted: str, source: str) -> None:
    """Print how a file differs from what it should be. Raises InputError if it does."""
    with Told(path, "can't be compared", _cure(source)), open(path, "rb") as file:  # noqa: PTH123 - imports no pathlib
        found = file.read().decode("utf-8", "backslashreplace").replace("\r\n", "\n")  # as Git may check it out
    if found == wanted:
        return
    lines = list(diff(found, wanted, path, f"{path}, made of {source}"))
    rest = len(lines) - _MOST_LINES
    sys.stdout.write(shown("".join(lines[:_MOST_LINES])))
    if rest > 0:
        sys.stdout.write(shown(f"... and {rest} lines more\n"))
    version = found.partition("(usdtbuild ")[2].partition(",")[0]
    if version and version != __version__ and len(version) < 40:
        raise InputError(path, f"was written by usdtbuild {version}, and this is {__version__}", _cure(source))
    raise InputError(path, f"is not what {source} makes", _cure(source))


def _cure(source: str) -> str:
    return f"run usdtbuild header {source} with the same options, but without --check"
