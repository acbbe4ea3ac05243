"""Reads the D provider language: a provider file's text becomes `model.Provider` records, or a list of diagnostics.

The grammar is what DTrace's own compiler takes, and what real files contain besides (docs/provider-language.md lists
both). The way of a file is `parse`: the lexer cuts it into tokens, the grammar reads its declarations, and their
meaning is found when the whole file is known. What is wrong is noted on the way, and everything found is reported
together. Nothing here knows the header or ELF.
"""

from __future__ import annotations

import os

from ..errors import InputError, Told
from ..files import refuse_pipe_of_others
from ..limits import PROVIDER_FILE
from .diagnostics import Diagnostic, ParseError, Reports, TooManyProblems, diagnostics
from .grammar import FileReader
from .lexer import scan
from .meaning import Meaning
from .types import Resolver

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from ..model import Provider
    from .grammar import Unfit

__all__ = ["Diagnostic", "ParseError", "parse", "parse_bytes", "parse_file", "read_file"]


def parse(
    text: str, path: str, warn: Callable[[Diagnostic], None] | None = None, unfit: Unfit | None = None
) -> tuple[Provider, ...]:
    """Return the providers of a file in the order in which they are declared. Raises ParseError.

    With `warn`, what SystemTap's `dtrace` takes and DTrace doesn't is no error: `warn` is told of it. `unfit` says why
    a name that is a provider's can't be taken here.
    """
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    found = scan(text)
    resolver, reports = Resolver(), Reports(found, forgiving=warn is not None)
    reader = FileReader(text, found, resolver, reports, unfit)
    try:
        reader.file()
        providers = Meaning(resolver, reports).providers(reader.providers, found.pragmas)
        if not reader.providers and not reports.problems:
            from . import cures  # only for mistakes

            reports.tolerate(0, cures.NO_PROVIDER, "nothing is declared")
    except TooManyProblems:
        providers = ()
    if warn:
        for warning in diagnostics(reports.warnings, "warning", found, text, path):
            warn(warning)
    if reports.problems:
        raise ParseError(diagnostics(reports.problems, "error", found, text, path))
    return providers


def parse_bytes(
    data: bytes, path: str, warn: Callable[[Diagnostic], None] | None = None, unfit: Unfit | None = None
) -> tuple[Provider, ...]:
    """Like `parse`, for a file's content. Only comments can hold bytes that aren't ASCII. Raises ParseError."""
    return parse(data.decode("utf-8-sig", "replace"), path, warn, unfit)


def parse_file(path: str) -> tuple[Provider, ...]:
    """Like `parse`, for a file, which must not need the C preprocessor. Raises ParseError, InputError."""
    return parse_bytes(read_file(path), path)


def _opened(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)


def _check_kind(descriptor: int, path: str) -> None:
    """Raise InputError for what may never end."""
    status = os.fstat(descriptor)
    refuse_pipe_of_others(status, path)
    kind = status.st_mode & 0o170000
    if kind == 0o010000:
        import select  # only where it is needed

        os.set_blocking(descriptor, True)
        select.select([descriptor], [], [])  # until somebody writes; before that, reading would find its end
    elif kind in (0o020000, 0o060000) and not os.isatty(descriptor):
        raise InputError(path, "is a device, not a file")


def read_file(path: str) -> bytes:
    """Return a provider file's content. Raises InputError."""
    with Told(path), open(path, "rb", opener=_opened) as file:
        _check_kind(file.fileno(), path)
        data = file.read(PROVIDER_FILE + 1)
    check_content(data, path)
    return data


def check_content(data: bytes, path: str) -> None:
    """Raise InputError for what can be no provider file."""
    if len(data) > PROVIDER_FILE:
        raise InputError(path, f"has more than {PROVIDER_FILE >> 20} MB, which no provider file needs")
    place = data.find(b"\0")
    if place >= 0:
        cure = "give a provider file (.d), which is text in UTF-8"
        raise InputError(path, f"is no text: byte {place} is a NUL", cure)
