"""`usdtbuild add`: first probes for a project that exists, as a diff, or written."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..adding.plan import KINDS, find_kind, plan
from ..errors import InputError, UsageError
from ..files import write_whole
from ..new_project import check_provider_name, name_of_folder
from ..outputs import Outputs
from .say import echo, raw

if TYPE_CHECKING:
    from ..adding.changes import ProjectFiles
    from ..adding.plan import ProbePlan

_NEXT = {
    "cmake": "cmake -S . -B build && cmake --build build",
    "meson": "meson setup build && meson compile -C build",
    "make": "make clean; make",
    **dict.fromkeys(("setuptools", "scikit-build-core", "meson-python"), "python3 -m pip install ."),
}


@click.command(name="add", short_help="Put a first probe into a project that exists.")
@click.argument("folder", metavar="[DIR]", default=".", type=click.Path(path_type=Path))
@click.option("--write", is_flag=True, help="Make the changes; without it they are only shown.")
@click.option("--for", "kind", type=click.Choice(KINDS), help="The build system, where there is more than one.")
@click.option("--target", metavar="NAME", help="The target that gets the probe; by default the likeliest program.")
@click.option("--name", metavar="NAME", help="What the provider is called; by default as the folder.")
def command(folder: Path, write: bool, kind: str | None, target: str | None, name: str | None) -> None:
    """Put a first probe into the project in DIR, by default the working directory.

    Looks at what builds it, and prints what is to be changed as a unified diff: a provider file, the build files, and a
    source that fires the probe. With --write the changes are made, all or none.
    """
    if not folder.is_dir():
        raise InputError(str(folder), "is no folder", "give the folder of the project")
    chosen = name_of_folder(folder).rstrip("0123456789_") if name is None else name
    try:
        check_provider_name(chosen)
    except ValueError as error:
        where, cure = ("--name " + name, "") if name is not None else (str(folder), "; name the provider with --name")
        raise UsageError(f"{where}: {error}{cure}") from None
    found = plan(folder, kind or find_kind(folder), chosen, target)
    if write:
        _write(found.changes)
        for path in found.changes.changed():
            echo(f"{'new    ' if found.changes.is_new(path) else 'changed'} {folder / path}")
    else:
        raw(found.changes.diff().encode("utf-8", "surrogateescape"))
    _say(found, write)


def _say(found: ProbePlan, written: bool) -> None:
    """Tell, beside the diff, what was found and what to do next."""
    where = f"{found.kind}, target {found.target}" if found.target else found.kind
    echo(f"{where}: the probe {found.name}:{found.probe} in {found.source}", err=True)
    if not written:
        echo("Nothing is written yet: usdtbuild add --write does it, and patch -p1 takes the diff.", err=True)
    else:
        echo(f"Next: {_NEXT[found.kind]}; then usdtbuild list shows the probe in what was built.", err=True)


def _write(changes: ProjectFiles) -> None:
    """Write all files or none. Raises InputError."""
    made: list[Path] = []
    try:
        with Outputs() as outputs:
            for path, text in changes.changed().items():
                target = changes.root / path
                _make_parents(target.parent, made)
                staged = outputs.stage(str(target))
                write_whole(staged, text.encode("utf-8", "surrogateescape"))
    except BaseException:
        for parent in reversed(made):
            with contextlib.suppress(OSError):
                parent.rmdir()
        raise


def _make_parents(folder: Path, made: list[Path]) -> None:
    if folder.is_dir():
        return
    _make_parents(folder.parent, made)
    try:
        folder.mkdir()
    except OSError as error:
        raise InputError(str(folder), f"can't be made: {(error.strerror or str(error)).lower()}") from None
    made.append(folder)
