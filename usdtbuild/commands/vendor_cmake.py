"""`usdtbuild vendor-cmake`: puts the CMake file into a project with which it builds without usdtbuild, too."""

from __future__ import annotations

import click

from ..folders import folder as folder_of
from .vendoring import put

NAME = "USDTBuildOptional.cmake"


@click.command(name="vendor-cmake", short_help="Put a CMake file into a project that makes usdtbuild optional.")
@click.argument("folder", metavar="[DIR]", default="cmake")
def command(folder: str) -> None:
    """Put USDTBuildOptional.cmake into DIR; CMakeLists.txt includes it in place of find_package(USDTBuild).

    Where usdtbuild isn't installed, the project then builds without probes. A copy of an earlier version is replaced,
    so run this again after an update; anything else that stands there is left alone, with an error.
    """
    put(folder_of("cmake") / NAME, folder, "optional: include() this in place of find_package(USDTBuild)")
