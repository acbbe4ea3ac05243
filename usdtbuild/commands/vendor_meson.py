"""`usdtbuild vendor-meson`: puts the Meson subproject into a project, so that meson.build can name it."""

from __future__ import annotations

from pathlib import Path

import click

from ..errors import UsageError
from ..folders import folder as folder_of
from ..outputs import Outputs
from .say import echo
from .vendoring import check, copy

SOURCE = folder_of("meson")
FILES = ("meson.build", "meson_options.txt", "dependency/meson.build", "none_header.py")
WRAP = "usdtbuild.wrap"


@click.command(name="vendor-meson", short_help="Put the Meson subproject into a project.")
@click.argument("folder", metavar="[DIR]", default="subprojects")
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
    check(own / "meson.build", "project(\n  'usdtbuild'")
    check(target / WRAP, "usdt_dep")
    with Outputs() as outputs:
        for name in FILES:
            copy(outputs, SOURCE / name, own / name)
        if wrap:
            copy(outputs, SOURCE / WRAP, target / WRAP)
    echo(str(own))
