"""`usdtbuild vendor-meson`: puts the Meson subproject into a project, so that meson.build can name it."""

from __future__ import annotations

from pathlib import Path

import click

from ..errors import InputError, UsageError
from ..files import write_whole
from ..folders import folder as folder_of

SOURCE = folder_of("meson")
FILES = ("meson.build", "meson_options.txt", "dependency/meson.build")
WRAP = "usdtbuild.wrap"


@click.command(name="vendor-meson", short_help="Put the Meson subproject into a project.")
@click.argument("folder", metavar="DIR", default="subprojects")
@click.option("--wrap/--no-wrap", default=True, help="Also DIR/usdtbuild.wrap, for dependency('usdtbuild') alone.")
def command(folder: str, wrap: bool) -> None:
    """Put the subproject into DIR/usdtbuild; DIR is the project's subprojects folder.

    What it holds is a few lines of Meson that call the installed usdtbuild. Copies of an earlier version are replaced,
    so run this again after an update; anything else that stands there is left alone, with an error.
    """
    target = Path(folder)
    if target.name != "subprojects" and (target / "meson.build").exists():
        raise UsageError(f"vendor-meson: {folder} is a project; give its subprojects folder, {folder}/subprojects")
    own = target / "usdtbuild"
    _check(own / "meson.build", "project(\n  'usdtbuild'")
    _check(target / WRAP, "usdt_dep")
    for name in FILES:
        _copy(SOURCE / name, own / name)
    if wrap:
        _copy(SOURCE / WRAP, target / WRAP)
    click.echo(str(own))


def _check(path: Path, ours: str) -> None:
    """Raise InputError if there is a file that isn't a copy of ours."""
    try:
        foreign = path.exists() and ours not in path.read_text(errors="replace")
    except OSError as error:
        raise InputError(str(path), f"can't be read: {(error.strerror or str(error)).lower()}") from None
    if foreign:
        raise InputError(str(path), "is there and isn't a copy of ours", "move it away, or choose another folder")


def _copy(source: Path, target: Path) -> None:
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(str(target.parent), f"can't be made: {(error.strerror or str(error)).lower()}") from None
    content = source.read_bytes()
    if not target.is_file() or target.read_bytes() != content:  # Meson configures anew when a file has a new time
        write_whole(str(target), content)
