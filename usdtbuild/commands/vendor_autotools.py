"""`usdtbuild vendor-autotools`: puts the Autoconf macro into a project, so that configure.ac can name it."""

from __future__ import annotations

import click

from ..folders import folder as folder_of
from .vendoring import put

NAME = "usdtbuild.m4"


@click.command(name="vendor-autotools", short_help="Put the Autoconf macro USDT_PROBES into a project.")
@click.argument("folder", metavar="[DIR]", default="m4")
def command(folder: str) -> None:
    """Put usdtbuild.m4, with the macro USDT_PROBES, into DIR, which AC_CONFIG_MACRO_DIRS names.

    Where usdtbuild isn't installed, the project then builds without probes. A copy of an earlier version is replaced,
    so run this again after an update; anything else that stands there is left alone, with an error.
    """
    put(folder_of("vendored") / NAME, folder, "USDT_PROBES, probes in a project with Autoconf")
