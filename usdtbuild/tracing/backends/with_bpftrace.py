"""Drive bpftrace: watch a file's probes while a program runs or the body of a `with` does, and collect the hits.

Needs root and a kernel with uprobes. A hit costs about a microsecond, which makes it the tracer for code that fires
often. bpftrace watches the file, in all processes; the hits of others than the one that is asked for are left out.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import TracerError
from ..tools import names, watching
from . import Finished
from .hits import Field, Hit, Traced, make_hit

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from . import Command

# In seconds; attaching to a hundred probes takes one.
_PATIENCE = 60


def why_not(probes: Sequence[Traced] = ()) -> str:
    """Return why bpftrace can't be used here, or for these probes; '' if it can."""
    many = next((probe.name for probe in probes if not all(map(_expression, range(255), probe.fields))), "")
    named = watching.MOST_ARGUMENTS
    why = f"bpftrace names {named} arguments, and {many} has more, in different places" if many else ""
    named_badly = next((reason for probe in probes if (reason := names.why_not(probe.name))), "")
    return watching.missing() or why or named_badly


def _expression(position: int, field: Field) -> str:
    return watching.expression(position, field.stack)


def run(command: Command, binary: str, probes: Sequence[Traced]) -> tuple[Finished, list[Hit]]:
    """Run a program while bpftrace watches; return how it ended, and the hits.

    Raises TracerError and subprocess.TimeoutExpired.
    """
    with _watching(binary, probes) as tracer:
        program = subprocess.Popen(
            list(command.argv), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            errors="surrogateescape", cwd=command.cwd, env=command.env,
        )  # fmt: skip
        with program:
            try:
                texts = program.communicate(command.stdin, timeout=command.timeout)
            finally:
                program.kill()
        hits = tracer.finish(program.pid)
    return Finished(program.returncode, *texts), hits


@contextlib.contextmanager
def attached(pid: int, binary: str, probes: Sequence[Traced]) -> Iterator[list[Hit]]:
    """Watch a process while the body of the `with` runs; the list is filled at its end. Raises TracerError."""
    hits: list[Hit] = []
    with _watching(binary, probes) as tracer:
        yield hits
        hits += tracer.finish(pid)


class _Tracer:
    """A bpftrace that is watching, and what it has said so far."""

    def __init__(self, process: subprocess.Popen[str], probes: Sequence[Traced], output: Path) -> None:
        self.process, self.probes, self.output = process, probes, output

    def wait_for_ticks(self, count: int) -> None:
        """Wait until it has been heard of so many times more. Raises TracerError."""
        goal, deadline = self._ticks() + count, time.monotonic() + _PATIENCE
        while self._ticks() < goal:
            if self.process.poll() is not None:
                raise TracerError(f"bpftrace ended before it could trace: {self.errors()}")
            if time.monotonic() > deadline:
                raise TracerError(f"bpftrace took too long: {self.errors()}")
            time.sleep(0.02)

    def _ticks(self) -> int:
        return self.output.read_bytes().count(b'"tick"')

    def errors(self) -> str:
        """Return the end of what it complained of."""
        return self.output.with_name("errors").read_text("utf-8", "replace").strip()[-1000:]

    def finish(self, pid: int) -> list[Hit]:
        """Let it end; return the hits of one process. Raises TracerError if it lost some."""
        # It prints several times a second what the kernel has collected, and drops the rest when it is interrupted.
        self.wait_for_ticks(3)
        self.process.terminate()
        self.process.wait()
        hits = []
        for line in self.output.read_text("utf-8", "surrogateescape").splitlines():
            record = watching.decode(line)
            if record.get("type") == "lost_events":
                raise TracerError("bpftrace lost hits, because they came too fast; fire fewer, or use tracer='gdb'")
            if record.get("type") != "printf" or record["data"] == "tick":
                continue
            numbers, *strings = record["data"].split(watching.SEPARATOR)
            process, index, *values = map(int, numbers.split())
            if index < 0:
                if process != self.process.pid:
                    raise TracerError("bpftrace can't tell processes apart in a container of its own process numbers")
            elif process == pid:
                hits.append(make_hit(self.probes[index], _merge(self.probes[index], values, strings)))
        return hits


def _merge(probe: Traced, values: Sequence[int], strings: Sequence[str]) -> list[int | str | float | None]:
    """Return the arguments in order: numbers, and for pointers to strings the strings."""
    texts = iter(strings)
    merged: list[int | str | float | None] = []
    for field, value in zip(probe.fields, values):
        text = next(texts, "") if field.is_string else None
        # Of an address that can't be read bpftrace makes an empty string too; it can't be told from an empty one.
        merged.append((text if value else None) if field.is_string else value)
    return merged


@contextlib.contextmanager
def _watching(binary: str, probes: Sequence[Traced]) -> Iterator[_Tracer]:
    """Start bpftrace and wait until all its probes are in place. Raises TracerError."""
    with tempfile.TemporaryDirectory(prefix="usdtbuild-") as name:
        folder = Path(name)
        # bpftrace's language has no way to write every path.
        (folder / "binary").symlink_to(os.path.realpath(binary))
        output = folder / "output"
        most = max((sum(field.is_string for field in probe.fields) for probe in probes), default=0)
        length = str(min(watching.LONGEST, watching.ALL_STRINGS // max(1, most)))
        words = [watching.find() or "bpftrace", "-f", "json", "-B", "none", "-e", _script(folder / "binary", probes)]
        with output.open("wb") as stdout, (folder / "errors").open("wb") as stderr:
            process = subprocess.Popen(
                words, stdin=subprocess.DEVNULL, stdout=stdout, stderr=stderr, text=True,
                env={**os.environ, "BPFTRACE_STRLEN": length, "BPFTRACE_MAX_STRLEN": length},
            )  # fmt: skip
        try:
            tracer = _Tracer(process, probes, output)
            tracer.wait_for_ticks(1)
            yield tracer
        finally:
            process.kill()
            process.wait()


def _script(binary: Path, probes: Sequence[Traced]) -> str:
    """Return a program that prints for each hit the process, the probe's index, its numbers, and its strings."""
    lines = [f'BEGIN {{ printf("%d -1{watching.SEPARATOR}", pid); }}']
    for index, probe in enumerate(probes):
        numbers = "".join(" %lu" for _ in probe.fields)
        expressions = list(map(_expression, range(255), probe.fields))
        strings = [f"str({text})" for text, field in zip(expressions, probe.fields) if field.is_string]
        pattern = f"%d {index}{numbers}" + "".join(f"{watching.SEPARATOR}%s" for _ in strings)
        values = ", ".join(["pid", *expressions, *strings])
        lines.append(f'usdt:{binary}:{probe.name} {{ printf("{pattern}", {values}); }}')
    # Attached last, so that its first tick says that all is in place.
    lines.append('interval:ms:50 { printf("tick"); }')
    return "\n".join(lines)
