"""`usdtbuild add`: a first probe for a project that exists, proved in a copy of it; as a diff, or written."""

from __future__ import annotations

import contextlib
from os.path import normpath
from pathlib import Path

import click

from ..adding.builds import KINDS, find_kind
from ..adding.changes import ProjectFiles
from ..adding.plan import ProbePlan, Wish, plan
from ..adding.scratch import ignored
from ..adding.undo import undo as find_undo
from ..errors import InputError, Told, UsageError
from ..files import write_whole
from ..new_project import check_provider_name, name_of_folder
from ..outputs import Outputs
from .progress import progress
from .say import echo, raw

_MOST_OTHERS = 8


@click.command(name="add", short_help="Put a first probe into a project that exists.")
@click.argument("folder", metavar="[DIR]", default=".", type=click.Path(path_type=Path))
@click.option("--write", is_flag=True, help="Make the changes; without it they are only shown.")
@click.option("--undo", is_flag=True, help="Take back what --write wrote, if it is still as it was written.")
@click.option("--for", "kind", type=click.Choice(KINDS), help="The build system, where there is more than one.")
@click.option("--target", metavar="NAME", default="", help="The program or library that gets the probe.")
@click.option("--source", metavar="FILE", default="", help="The source that gets the probe, relative to DIR.")
@click.option("--name", metavar="NAME", help="What the provider is called; by default as the folder.")
@click.option(
    "--option",
    "options",
    metavar="WORD",
    multiple=True,
    help="A word for cmake, meson setup, configure, make, or pip's --config-settings, such as -DTESTS=OFF; repeatable.",
)
def command(
    folder: Path,
    write: bool,
    undo: bool,
    kind: str | None,
    target: str,
    source: str,
    name: str | None,
    options: tuple[str, ...],
) -> None:
    """Put a first probe into the project in DIR, by default the working directory.

    Builds the project in a scratch copy, as you would: this runs the project's own code. Finds a place for the probe in
    the program that people run, and proves that the copy builds with it, without usdtbuild, and that the probe is in
    the program. Prints the changes as a unified diff: a provider file, the header made from it, and a source that
    fires the probe. With --write the changes are made, all or none.
    """
    if not folder.is_dir():
        raise InputError(str(folder), "is no folder", "give the folder of the project")
    if undo:
        if write or kind or target or source or name or options:
            raise UsageError("--undo takes no other option")
        _change(folder, find_undo(folder))
        return
    chosen = name_of_folder(folder) if name is None else name
    try:
        check_provider_name(chosen)
    except ValueError as error:
        where, cure = ("--name " + name, "") if name is not None else (str(folder), "; name the provider with --name")
        raise UsageError(f"{where}: {error}{cure}") from None
    wish = Wish(chosen, target, source and normpath(source), options)
    with progress("Building a copy:") as tick:
        found = plan(folder, find_kind(folder, kind), wish, tick)
    if write:
        _change(folder, found.changes)
    else:
        raw(found.changes.diff().encode("utf-8", "surrogateescape"))
    _say(folder, f"{chosen}:{found.probe}", found, write)


def _change(folder: Path, changes: ProjectFiles) -> None:
    _write(changes)
    for path, text in changes.changed().items():
        echo(f"{'removed' if text is None else 'new    ' if changes.is_new(path) else 'changed'} {folder / path}")


def _say(folder: Path, probe: str, found: ProbePlan, written: bool) -> None:
    echo(f"{found.kind} builds {found.product.why()}; the probe {probe} is in {found.source}.", err=True)
    echo(f"Proved in a copy: it builds without usdtbuild, and the probe is in {found.product.name}.", err=True)
    if found.others:
        names = ", ".join(each.name for each in found.others[:_MOST_OTHERS])
        echo(f"Other choices: --target {names}{', ...' if len(found.others) > _MOST_OTHERS else ''}", err=True)
    for path in ignored(folder, found.new):
        echo(f"Git ignores {path}; git add --force adds it.", err=True)
    if not written:
        echo("Nothing is written yet: usdtbuild add --write does it, and patch -p1 takes the diff.", err=True)
    else:
        echo("Next: build as you always do; then usdtbuild list shows the probe. --undo takes it back.", err=True)


def _write(changes: ProjectFiles) -> None:
    """Write all files or none. Raises InputError."""
    with Outputs() as outputs:
        for path, text in changes.changed().items():
            if text is None:
                continue
            target = changes.root / path
            outputs.folder(str(target.parent), deep=True)
            write_whole(outputs.stage(str(target)), text.encode("utf-8", "surrogateescape"))
    for path in (path for path, text in changes.changed().items() if text is None):
        target = changes.root / path
        with Told(target, "can't be removed"):
            target.unlink()
        with contextlib.suppress(OSError):  # the folder of ours, if nothing else is in it
            if target.parent.name == "probes":
                target.parent.rmdir()
