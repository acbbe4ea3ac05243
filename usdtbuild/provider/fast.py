"""The quick way into `usdtbuild header` for the plain command lines that builds use.

Importing the command line's libraries would double the command's time, so the entry point asks here first. Whatever is
not a plain `FILE`, `-o FILE`, `--none`, `--check`, `--formats LIST`, `--stamp FILE`, `--depfile FILE` or `--doc FILE`
is left to the command line proper (`usdtbuild.commands.header`), help and usage errors included; both end in
`generate.generate`.
"""

from __future__ import annotations

import sys

from ..errors import UsdtError
from ..text import shown
from .generate import HeaderRequest, generate, read_formats

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_WITH_VALUE = {
    "-o": "output", "--output": "output", "--stamp": "stamp", "--depfile": "depfile", "--doc": "documentation",
    "--formats": "formats",
}  # fmt: skip


def main(arguments: list[str]) -> int | None:
    """Run `usdtbuild header` with these arguments and return the exit code, or None to leave it to others."""
    try:
        request = read(arguments)
        if request is None:
            return None
        generate(request)
    except UsdtError as error:
        sys.stderr.write(shown(f"{error.told}\n"))
        return error.exit_code
    return 0


def read(arguments: list[str]) -> HeaderRequest | None:
    """Return what a plain command line asks for, or None for one that isn't plain."""
    values: dict[str, Any] = {}
    flags = {"--none": False, "--check": False}
    words = iter(arguments)
    for word in words:
        if word in flags:
            flags[word] = True
            continue
        name, value = "source", word
        if word.startswith("--formats="):
            name, value = "formats", word[10:]
        elif word in _WITH_VALUE:
            name, value = _WITH_VALUE[word], next(words, "")
        # Any other option, the standard input and output, and what makes no sense need the proper command line.
        if name in values or not value or value.startswith("-"):
            return None
        values[name] = value
    if "source" not in values:
        return None
    if "formats" in values:
        values["formats"] = read_formats(values["formats"])
    return HeaderRequest(none=flags["--none"], check=flags["--check"], **values)
