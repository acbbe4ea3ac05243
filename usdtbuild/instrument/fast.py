"""The quick way into `usdtbuild instrument` for the plain command lines of build rules.

Importing the command line's libraries would double what an object costs, so the entry point asks here first. Whatever
is not a plain `OBJECT...` with `-o FILE` or `--output-dir DIR` is left to the command line proper
(`usdtbuild.commands.instrument`), help and usage errors included; both end in `several.run`.
"""

from __future__ import annotations

import sys

from ..errors import UsdtError
from ..text import shown
from .several import InstrumentRequest, run

_OUTPUTS = {"-o": "output", "--output": "output", "--output-dir": "output_dir"}


def main(arguments: list[str]) -> int | None:
    """Run `usdtbuild instrument` with these arguments and return the exit code, or None to leave it to others."""
    request = read(arguments)
    if request is None:
        return None
    try:
        run(request)
    except UsdtError as error:
        sys.stderr.write(shown(f"{error.told}\n"))
        return error.exit_code
    return 0


def read(arguments: list[str]) -> InstrumentRequest | None:
    """Return what a plain command line asks for, or None for one that isn't plain."""
    objects: list[str] = []
    values: dict[str, str] = {}
    words = iter(arguments)
    for word in words:
        name = _OUTPUTS.get(word)
        if name is None:
            if not word or word.startswith("-"):
                return None
            objects.append(word)
            continue
        value = next(words, "")
        if name in values or not value or value.startswith("-"):
            return None
        values[name] = value
    return (
        InstrumentRequest(tuple(objects), values.get("output", ""), values.get("output_dir", "")) if objects else None
    )
