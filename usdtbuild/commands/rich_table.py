"""How tables of rich's come out: with no blanks at the ends of lines for who isn't a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .say import echo

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table


def print_table(console: Console, table: Table) -> None:
    """Print a table. rich fills its columns up, the last one too, which `diff` and editors show."""
    if console.is_terminal:
        console.print(table)
        return
    with console.capture() as captured:
        console.print(table)
    echo("\n".join(line.rstrip(" ") for line in captured.get().split("\n")), nl=False)
