"""`usdtbuild header`, from a request to the files it writes. The command line's two ways in both end here.

Everything is read and made before anything is written, so an error leaves no file behind, and a stamp is touched last.
A header that would not change is not written: its date decides what a build compiles again.
"""

# Importing pathlib would cost more than parsing.
# ruff: noqa: PTH113, PTH119, PTH123, PTH202

from __future__ import annotations

import os
import sys

from .. import files
from ..errors import InputError, Told, UsageError
from ..model import unfit_for_dtrace
from ..options import BY_HEADER, FORMATS, one_of
from ..outputs import Outputs
from ..record import NamedTuple
from . import complete, header
from .parser import parse_bytes, read_file

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from ..model import Provider


class HeaderRequest(NamedTuple):
    """What one run of `usdtbuild header` shall do; '' for a file that isn't wanted.

    `output` may be `-` for the standard output. `preprocess` is None without -C, else returns a file's text
    behind the C preprocessor, with its comments or without.
    `only` names the providers to take from the file; empty for all. `formats` are the records that probes shall have:
    the header writes those of `options.BY_HEADER` itself, and for any other one, objects must be completed. With
    `check` nothing is written: the files must be there, as they would be written.
    """

    source: str
    output: str = ""
    none: bool = False
    documentation: str = ""
    stamp: str = ""
    depfile: str = ""
    preprocess: Callable[[str, bool], bytes] | None = None
    only: tuple[str, ...] = ()
    formats: tuple[str, ...] = BY_HEADER
    check: bool = False


def generate(request: HeaderRequest) -> None:
    """Write the header and whatever else is asked for. Raises UsdtError."""
    output = request.output or _default_output(request.source)
    _check_outputs(request, output)
    data, dependencies = _read(request)
    by_itself = not request.none and all(word in BY_HEADER for word in request.formats)

    def unfit(name: str) -> str:
        ours = not request.only or name in request.only
        return unfit_for_dtrace(name) if ours and not (by_itself or request.none) else ""

    providers = parse_bytes(data, "<stdin>" if request.source == "-" else request.source, unfit=unfit)
    if request.only:
        providers = _choose(providers, request)
    text = complete.write(providers) if by_itself else header.write(providers, request.none)
    documentation = _documentation(request, providers)
    if request.check:
        from .check import check

        for path, wanted in ((output, text), (request.documentation, documentation)):
            if path:
                check(path, wanted, request.source)
        return
    with Outputs() as outputs:
        if output != "-":
            _write(outputs, output, text, keep=True)
        if request.documentation:
            _write(outputs, request.documentation, documentation, keep=True)
        if request.depfile:
            rule = _dependency_rule(request.stamp or output, dependencies)
            _write(outputs, request.depfile, rule, keep=False)
        if output == "-":
            sys.stdout.buffer.write(text.encode())
            sys.stdout.flush()
    if request.stamp:
        _touch(request.stamp)


def read_formats(text: str) -> tuple[str, ...]:
    """Return the formats that a list such as `stapsdt,dof` names. Raises UsageError."""
    names = tuple(text.split(","))
    unknown = [name for name in names if name not in FORMATS]
    if unknown:
        raise UsageError(f"--formats: {unknown[0]!r} is no record format; take {one_of(FORMATS)}, with commas between")
    return names


def _default_output(source: str) -> str:
    """Return `app.h` for `some/where/app.d`: in the working directory, as `dtrace -h` has it."""
    base = os.path.basename(source) if source != "-" else "stdin"
    return base.removesuffix(".d") + ".h"


def _check_outputs(request: HeaderRequest, output: str) -> None:
    """Refuse to write two things to one file, or over the source. Raises UsageError."""
    if "-" in (request.documentation, request.stamp, request.depfile):
        raise UsageError("only the header can go to the standard output, with -o -")
    if request.check and (output == "-" or request.depfile or request.stamp):
        raise UsageError("--check compares with a file, and writes nothing: leave out -o -, --stamp and --depfile")
    if request.depfile and output == "-" and not request.stamp:
        raise UsageError("--depfile says what a file depends on; name that file with -o or --stamp")
    wanted = [request.source, output, request.documentation, request.stamp, request.depfile]
    paths = [path for path in wanted if path and path != "-"]
    real = [os.path.realpath(path) for path in paths]
    for index, path in enumerate(paths):
        if real[index] in real[:index]:
            raise UsageError(f"{path} is named twice: each file that is read or written needs a name of its own")
    if output.endswith(".d"):
        right = f"usdtbuild header {output} -o {request.source}"
        raise UsageError(f"-o {output}: the header is written there, and that is a provider file's name; {right}?")


def _read(request: HeaderRequest) -> tuple[bytes, list[str]]:
    if request.preprocess is not None:
        if request.source == "-":
            raise UsageError("-C reads a file, not the standard input")
        data = request.preprocess(request.source, bool(request.documentation))
        included = [path for path in _included_files(data) if path != request.source]
        return data, [request.source, *included]
    if request.source == "-":
        return sys.stdin.buffer.read(), []
    return read_file(request.source), [request.source]


def _included_files(output: bytes) -> list[str]:
    """Return the files that a preprocessor's line markers name, each once, in order."""
    found: dict[str, None] = {}
    for line in output.decode("utf-8", "replace").split("\n"):
        if line.startswith(("# ", "#line ")):
            name = line.partition('"')[2].rpartition('"')[0].replace("\\\\", "\\").replace('\\"', '"')
            # <built-in>, <command-line>, and the compiler's working directory (it ends in two slashes).
            if name and not name.startswith("<") and not name.endswith("//"):
                found[name] = None
    return list(found)


def _choose(providers: tuple[Provider, ...], request: HeaderRequest) -> tuple[Provider, ...]:
    """Return the providers that were asked for, in the file's order. Raises InputError if one isn't there."""
    there = [provider.name for provider in providers]
    for name in request.only:
        if name not in there:
            raise InputError(request.source, f"no provider {name} in this file; it has {', '.join(there) or 'none'}")
    return tuple(provider for provider in providers if provider.name in request.only)


def _documentation(request: HeaderRequest, providers: tuple[Provider, ...]) -> str:
    if not request.documentation:
        return ""
    from .documentation import write

    return write(providers)


def _dependency_rule(target: str, dependencies: list[str]) -> str:
    """Return the rule for Make and Ninja that says what the header was made from."""
    words = [word.replace("$", "$$").replace("#", "\\#").replace(" ", "\\ ") for word in (target, *dependencies)]
    return f"{words[0]}: " + " \\\n  ".join(words[1:]) + "\n"


def _write(outputs: Outputs, path: str, text: str, keep: bool) -> None:
    """Prepare a file; with `keep`, leave one alone that has this content. Raises InputError."""
    content = text.encode()
    staged = outputs.stage(path)
    if keep and os.path.isfile(path) and os.path.getsize(path) == len(content) and _holds(path, content):
        return
    files.write_whole(staged, content)


def _holds(path: str, content: bytes) -> bool:
    try:
        with open(path, "rb") as file:
            return file.read() == content
    except OSError:
        return False


def _touch(path: str) -> None:
    with Told(path, "can't be written"), open(path, "ab"):
        os.utime(path)
