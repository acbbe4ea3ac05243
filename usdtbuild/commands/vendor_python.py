"""`usdtbuild vendor-python`: puts a build backend into a Python project with which it builds without usdtbuild, too."""

from __future__ import annotations

from pathlib import Path

import click

from ..folders import folder as folder_of
from ..outputs import Outputs
from .say import echo
from .vendoring import check, copy

NAME = "usdt_backend.py"


@click.command(name="vendor-python", short_help="Put a build backend that makes usdtbuild optional into a project.")
@click.argument("folder", metavar="[DIR]", default="tools")
def command(folder: str) -> None:
    """Put usdt_backend.py into DIR; pyproject.toml names it as build-backend, and DIR in backend-path.

    It hands on to setuptools, meson-python or scikit-build-core. Where usdtbuild isn't installed or USDTBUILD_DISABLED
    is set, the project then builds without probes and needs no usdtbuild. Copies of an earlier version are replaced, so
    run this again after an update; anything else that stands there is left alone, with an error.
    """
    target, header = Path(folder, NAME), Path(folder, "usdt_none_header.py")
    check(target, "optional: a build backend in front of the project's own")
    check(header, "Write the header of a provider file whose probes do nothing")
    with Outputs() as outputs:
        copy(outputs, folder_of("vendored") / NAME, target)
        copy(outputs, folder_of("meson") / "none_header.py", header)
    echo(f"{target}\n{header}")
