"""How commands print: all of it through `text.shown`, but for the colours that they add themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import click

from ..errors import UsdtError
from ..text import shown

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rich.console import Console
    from rich.table import Table

Result = TypeVar("Result")


def echo(text: str = "", *, err: bool = False, nl: bool = True, styled: bool = False) -> None:
    """Print a text to standard output or error. `styled`: its parts have been through `style` or `shown` already."""
    click.echo(text if styled else shown(text), err=err, nl=nl)


class Troubles:
    """Says on standard error what can't be read, and knows whether there was something."""

    any = False

    def __call__(self, error: UsdtError) -> None:
        """Say one."""
        self.any = True
        complain(error)

    def all_of(self, found: Iterable[Result]) -> list[Result] | None:
        """Return all that comes; None, with what is wrong on standard error, where not all of it can."""
        try:
            return list(found)
        except UsdtError as error:
            self(error)
            return None


def remark(text: str, *, always: bool = False) -> None:
    """Print a message for people to standard error, unless the command's --quiet is given; `always`: also then."""
    if always or not is_quiet():
        echo(f"usdtbuild: {text}", err=True)


def is_quiet() -> bool:
    """Whether the command's --quiet is given."""
    context = click.get_current_context(silent=True)
    return context is not None and bool(context.params.get("quiet"))


def complain(error: UsdtError) -> None:
    """Print what has gone wrong to standard error, where the command goes on."""
    echo(error.told, err=True)


def raw(data: bytes) -> None:
    """Write what is no text for people but for another program, such as a diff."""
    click.echo(data, nl=False)


def print_table(console: Console, table: Table) -> None:
    """Print a table. rich fills its columns up, the last one too, which `diff` and editors show."""
    if console.is_terminal:
        console.print(table)
        return
    with console.capture() as captured:
        console.print(table)
    echo("\n".join(line.rstrip(" ") for line in captured.get().split("\n")), nl=False)


def style(text: str, **how: Any) -> str:
    """Return a text in colour, for `echo(..., styled=True)`."""
    return click.style(shown(text), **how)
