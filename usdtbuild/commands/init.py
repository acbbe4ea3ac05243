"""`usdtbuild init`: a new project with probes, made from one of the samples."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from ..errors import UsageError
from ..new_project import SAMPLES, check_name, name_of_folder, plan, write
from . import checked
from .say import echo


@click.command(name="init", short_help="Write a new project with probes for a build system.")
@click.argument("kind", metavar="|".join(SAMPLES), type=click.Choice(list(SAMPLES)))
@click.argument("named", metavar="DIR", callback=checked.text)
@click.option("--name", metavar="NAME", help="What the project and its provider are called; by default as the folder.")
def command(kind: str, named: str, name: str | None) -> int:
    """Write a small, complete project with probes into DIR, which must be new or empty.

    It builds as it is: its README.md says how, and how to see the probes fire.
    """
    folder = Path(named)
    chosen = name_of_folder(folder) if name is None else name
    try:
        check_name(chosen, kind)
    except ValueError as error:
        where = f"--name {name}" if name is not None else str(folder)
        cure = "" if name is not None else "; name the project with --name"
        raise UsageError(f"{where}: {error}{cure}") from None
    written = write(plan(kind, chosen), folder)
    _say(folder, chosen, written, name is not None)
    return 0


def _say(folder: Path, name: str, written: Sequence[str], given: bool) -> None:
    providers = ", ".join(path for path in written if path.endswith(".d"))
    called = name if given or name == folder.resolve().name else f"{name} (--name gives it another name)"
    echo(f"{folder}: the project is called {called}; its probes are in {providers}")
    for path in written:
        echo(f"    {path}")
    echo(f"Next: {folder / 'README.md'} has the commands that build it and show its probes.")
