"""A progress line on stderr for commands that take long: on a terminal, and only when it does take long."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator

from ..text import one_line

_PATIENCE = 0.5  # seconds until anything is shown


@contextlib.contextmanager
def progress(verb: str, of: str = "") -> Iterator[Callable[[str], None]]:
    """Give a function that is to be called with what is done now; the line disappears at the end.

    With `of`, what each call names is one of these, and they are counted.
    """
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    line = TextColumn("{task.description}", markup=False)
    bar = Progress(SpinnerColumn(), line, TimeElapsedColumn(), console=Console(stderr=True), transient=True)
    task = bar.add_task(verb, total=None)
    started, count, running = time.monotonic(), 0, False

    def tick(now: str) -> None:
        nonlocal count, running
        count += 1
        if not running and time.monotonic() - started > _PATIENCE:
            running = True
            bar.start()
        if running:
            counted = f"{verb} {count} {of}:" if of else verb
            bar.update(task, description=f"{counted} {one_line(now)[-60:]}")

    try:
        yield tick
    finally:
        if running:
            bar.stop()
