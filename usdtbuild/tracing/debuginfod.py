"""Debug information from a debuginfod server (elfutils), which is asked only if the user names one.

The server is believed nothing: a child without rights listens to it, for so long and to so much, and what it sends is
taken only if it has the file's build id (`elf.debug_files`). It isn't kept; what is read of it is (`typed`).
"""

from __future__ import annotations

import http.client
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from functools import partial

from ..apart import apart
from ..errors import InputError
from ..limits import ANSWER, DEBUG_MEMORY, DOWNLOAD_SECONDS
from ..rights import User

_SILENT = 5.0  # seconds that a server may say nothing
_PIECE = 1 << 18
_MOST = ANSWER - (1 << 10)


def downloaded(urls: tuple[str, ...], build_id: str, user: User | None) -> bytes:
    """Return what the first of some servers that has it sends as the debug information of a build id. Raises
    InputError."""
    first, *others = urls
    try:
        found: bytes = apart(user, partial(_fetch, first, build_id), (int(DOWNLOAD_SECONDS), DEBUG_MEMORY))
    except InputError:
        if not others:
            raise
        return downloaded(tuple(others), build_id, user)
    return found


def _fetch(url: str, build_id: str, opened: Callable[[], None] | None) -> bytes:
    if opened is not None:
        opened()
    until, data = time.monotonic() + DOWNLOAD_SECONDS, bytearray()
    try:
        with urllib.request.urlopen(f"{url}/buildid/{build_id}/debuginfo", timeout=_SILENT) as answer:  # noqa: S310
            while piece := answer.read1(_PIECE):
                data += piece
                if len(data) > _MOST:
                    raise InputError(url, f"sends more than {_MOST >> 20} MB")
                if time.monotonic() > until:
                    raise InputError(url, f"takes longer than {DOWNLOAD_SECONDS:.0f} s")
    except urllib.error.HTTPError as error:
        what = "has no debug information of it" if error.code == http.client.NOT_FOUND else f"answers {error.code}"
        raise InputError(url, what) from None
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise InputError(url, f"can't be asked: {getattr(error, 'reason', error)}") from None
    if not data:
        raise InputError(url, "sends nothing")
    return bytes(data)
