"""`usdtbuild instrument`: several objects, each to its place, all of them or none. Both ways in end here.

What happens to an object is `main`'s business, what words the command line has `commands.instrument`'s and `fast`'s.
"""

# Importing pathlib would cost as much as ten objects.
# ruff: noqa: PTH112, PTH118, PTH119

from __future__ import annotations

import os

from ..errors import InputError, UsageError
from ..files import open_input, write_edited
from ..outputs import Outputs
from ..record import NamedTuple
from .main import Instrumented, instrument_file
from .target import DEFAULTS, Options

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable


class InstrumentRequest(NamedTuple):
    """What one run shall do; of `output` (a file) and `output_dir` one is given, the other is ''.

    `afterwards` is called for each object with the path of what was written and with the object's own, for messages.
    """

    objects: tuple[str, ...]
    output: str = ""
    output_dir: str = ""
    options: Options = DEFAULTS
    afterwards: Callable[[str, str], object] | None = None


def run(request: InstrumentRequest) -> list[tuple[str, Instrumented]]:
    """Instrument all objects; return what happened to each. Raises UsdtError, and then nothing is written."""
    reports = []
    with Outputs() as outputs:
        for source, target in _pairs(request):
            staged = outputs.stage(target, source=source)
            report = instrument_file(source, staged, request.options, staged=True)
            if not report.changed:
                _copy(source, staged)
            if request.afterwards:
                request.afterwards(staged, source)
            reports.append((source, report))
    return reports


def _pairs(request: InstrumentRequest) -> list[tuple[str, str]]:
    """Return each object and where it goes. Raises InputError and UsageError."""
    objects, output, folder = request.objects, request.output, request.output_dir
    if bool(output) == bool(folder):
        raise UsageError("give either -o FILE, for one object, or --output-dir DIR")
    if output:
        if len(objects) > 1:
            raise UsageError(f"-o takes one object, and there are {len(objects)}; use --output-dir")
        return [(objects[0], output)]
    if not os.path.isdir(folder):
        raise InputError(folder, "is no folder", "make it first (mkdir -p)")
    folder = os.path.join(folder, "")
    pairs = [(path, folder + _name(path)) for path in objects]
    _refuse_repeated(pairs)
    return pairs


def _name(path: str) -> str:
    """Return what a file is called in its folder; `x.o` also of x.o/, so that the message is about that."""
    name = os.path.basename(path)
    return name if name and name != "." else os.path.basename(os.path.normpath(path))


def _refuse_repeated(pairs: list[tuple[str, str]]) -> None:
    seen: dict[str, str] = {}
    for source, target in pairs:
        if target in seen:
            raise UsageError(f"{seen[target]} and {source} would both be written to {target}")
        seen[target] = source


def _copy(source: str, target: str) -> None:
    """Copy an object that needs no change, so that a build rule's output exists."""
    with open_input(source) as data:
        write_edited(data, [], b"", target, staged=True)
