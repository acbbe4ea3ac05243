"""What the benchmarks share: measuring commands in turns, and printing what came out."""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

USDTBUILD = str(Path(sys.executable).with_name("usdtbuild"))
PACKAGE = Path(__file__).resolve().parent.parent / "usdtbuild"
# What is installed has its bytecode; a variable of whoever develops it must not have it compiled on each start.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)


@contextmanager
def workspace(*, in_memory: bool = False) -> Iterator[Path]:
    """Give a private folder that is removed at the end; in memory, if that is wanted and there is such a place.

    On a disk, thousands of new files cost what was deleted there in the seconds before: ext4 looks whether the number
    that a file gets has been free for long enough, which may take longer than the work that is measured.
    """
    place = "/dev/shm" if in_memory and os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="usdtbuild-bench-", dir=place) as name:
        yield Path(name)


def run(command: Sequence[str | Path], folder: Path) -> str:
    """Run a command in `folder`, and return its output; stop with its messages if it fails."""
    result = subprocess.run([str(word) for word in command], cwd=folder, capture_output=True, text=True, check=False)
    if result.returncode:
        sys.exit(f"{' '.join(map(str, command))}: exit code {result.returncode}\n{result.stdout}{result.stderr}")
    return result.stdout


def cpu_seconds(command: Sequence[str | Path], folder: Path) -> float:
    """Return user and system CPU seconds that one run of a command takes, its children included."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    run(command, folder)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def in_turns(
    commands: dict[str, Sequence[str | Path]], folder: Path, rounds: int = 15, before: Callable[[], None] | None = None
) -> dict[str, float]:
    """Run the commands in turns, each round after a call of `before`; return the least CPU seconds of each."""
    best = dict.fromkeys(commands, float("inf"))
    for _ in range(rounds):
        if before:
            before()
        for name, command in commands.items():
            best[name] = min(best[name], cpu_seconds(command, folder))
    return best


def report(title: str, header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table."""
    table = Table(title=title, title_justify="left")
    for index, name in enumerate(header):
        table.add_column(name, justify="left" if index == 0 else "right")
    for row in rows:
        table.add_row(*row)
    Console(width=None if sys.stdout.isatty() else 120).print(table)


def have(program: str) -> bool:
    """Return whether a program is on PATH."""
    return shutil.which(program) is not None


def under_lttng(folder: Path, events: str, *command: str) -> str:
    """Run a program in a session of LTTng-UST, under a daemon of its own; '' where there can be none."""
    environment = {**os.environ, "LTTNG_HOME": str(folder), "HOME": str(folder)}

    def lttng(*words: str) -> bool:
        done = subprocess.run(
            ["lttng", "--no-sessiond", *words], cwd=folder, env=environment, capture_output=True, check=False
        )
        return done.returncode == 0

    with subprocess.Popen(["lttng-sessiond", "--no-kernel"], env=environment, stderr=subprocess.DEVNULL) as daemon:
        try:
            for _ in range(100):
                if lttng("create", "bench", f"--output={folder / 'trace'}"):
                    break
                time.sleep(0.1)
            else:
                return ""
            lttng("enable-event", "--userspace", events)
            lttng("start")
            out = subprocess.run(
                command, cwd=folder, env=environment, capture_output=True, text=True, check=True
            ).stdout
            lttng("destroy", "bench")
            return out
        finally:
            daemon.terminate()
