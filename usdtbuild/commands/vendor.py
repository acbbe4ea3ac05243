"""`usdtbuild vendor`: copies files of ours into a project, for its build to name. Only copies of ours are replaced.

A copy's last line has a checksum of the others, which shows whether somebody has edited it, whichever version wrote it.

A Python project needs none: its table [tool.usdtbuild] is read by nobody where usdtbuild isn't installed.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import NamedTuple

import click

from ..errors import InputError, Told, UsageError
from ..files import write_whole
from ..folders import folder as folder_of
from ..outputs import Outputs
from .say import echo


class Kind(NamedTuple):
    """What is copied for a build system: where to if nothing is said; ours -> its path there."""

    folder: str
    files: dict[str, str]


KINDS = {
    "cmake": Kind("cmake", {"cmake/USDTBuild.cmake": "USDTBuild.cmake"}),
    "meson": Kind(
        "subprojects",
        {
            **{f"meson/{name}": f"usdtbuild/{name}" for name in ("meson.build", "meson_options.txt")},
            "meson/dependency/meson.build": "usdtbuild/dependency/meson.build",
            **{f"meson/live/{name}": f"usdtbuild-live/{name}" for name in ("meson.build", "meson_options.txt")},
            **{f"meson/{name}": name for name in ("usdtbuild.wrap", "usdtbuild-live.wrap")},
        },
    ),
    "autotools": Kind("m4", {"vendored/usdtbuild.m4": "usdtbuild.m4"}),
}


def files_of(kind: str) -> dict[str, bytes]:
    """Return what is copied for a build system, by the path that it gets below the folder."""
    found = {}
    for ours, path in KINDS[kind].files.items():
        room, _, name = ours.partition("/")
        found[path] = signed((folder_of(room) / name).read_text(encoding="utf-8")).encode()
    return found


def signed(text: str) -> str:
    """Return a text with the line that tells whether it was edited later."""
    checksum = hashlib.sha256(text.encode()).hexdigest()[:16]
    return f"{text}# usdtbuild vendor wrote this, and replaces it while it is unchanged: checksum {checksum}\n"


@click.command(name="vendor", short_help="Put files of usdtbuild into a project.")
@click.argument("kind", metavar="|".join(KINDS), type=click.Choice(list(KINDS)))
@click.argument("folder", metavar="[DIR]", default="")
def command(kind: str, folder: str) -> None:
    """Put the files for a build system into DIR of a project.

    \b
      cmake       USDTBuild.cmake, in place of find_package(USDTBuild): with committed
                  headers, the project builds where usdtbuild isn't installed
      meson       the subprojects usdtbuild, for other formats than SDT notes, and
                  usdtbuild-live, the runtime
      autotools   usdtbuild.m4, with the macro USDT_PROBES

    DIR is cmake, subprojects or m4 by default. A copy of an earlier version is replaced, so run this again after an
    update; a copy that was edited, and any other file, is left alone, with an error.
    """
    target = Path(folder or KINDS[kind].folder)
    if kind == "meson" and target.name != "subprojects" and (target / "meson.build").exists():
        raise UsageError(f"vendor meson: {folder} is a project; give its subprojects folder, {folder}/subprojects")
    files = files_of(kind)
    for path in files:
        _check(target / path)
    with Outputs() as outputs:
        for path, content in files.items():
            _copy(outputs, content, target / path)
    echo("\n".join(str(target / path) for path in files))


def _check(path: Path) -> None:
    """Raise InputError if there is a file that isn't a copy as we wrote it."""
    with Told(path, "can't be read"):
        if not path.exists():
            return
        text = path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""
    if text != signed("".join(text.splitlines(keepends=True)[:-1])):
        cure = "move it away, or choose another folder"
        raise InputError(str(path), "is there and isn't a copy as usdtbuild wrote it", cure)


def _copy(outputs: Outputs, content: bytes, target: Path) -> None:
    """Write a file, and make the folders above it; one that is right already is left alone. Raises InputError."""
    outputs.folder(str(target.parent), deep=True)
    # Build systems configure anew when a file has a new time.
    if not target.is_file() or target.read_bytes() != content:
        write_whole(outputs.stage(str(target)), content)
