"""A progress line on stderr for commands that look at many files: on a terminal, and only where it takes long."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_PATIENCE = 0.5  # seconds until anything is shown


@contextlib.contextmanager
def progress(verb: str) -> Iterator[Callable[[str], None]]:
    """Give a function that is to be called with the name of each file; the line disappears at the end."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    line = TextColumn("{task.description}", markup=False)
    bar = Progress(SpinnerColumn(), line, TimeElapsedColumn(), console=Console(stderr=True), transient=True)
    task = bar.add_task(verb, total=None)
    started, count, running = time.monotonic(), 0, False

    def tick(path: str) -> None:
        nonlocal count, running
        count += 1
        if not running and time.monotonic() - started > _PATIENCE:
            running = True
            bar.start()
        if running:
            bar.update(task, description=f"{verb} {count} files: {path[-60:]}")

    try:
        yield tick
    finally:
        if running:
            bar.stop()
