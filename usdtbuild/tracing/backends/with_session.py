"""Our own tracer for a project's tests: jumps where they are possible, else breakpoints, without root.

`session` does the work; here its events become hits, and a started program's streams go through files.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

from ...errors import UsdtError
from .. import hosts, job
from ..errors import TracerError
from ..selection import Wanted
from ..session import Session
from . import Finished
from .hits import Hit, Traced, make_hit
from .with_gdb import permission

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ..model import Event, Value
    from . import Command

_STRING_SIZE, _BUFFER = 1024, 64 << 20


def _why_not() -> str:
    """Return why hits can't be seen in this way here, or '' if they can."""
    if not sys.platform.startswith("linux"):
        return f"our own tracer is for Linux, and this is {sys.platform}"
    if hosts.why_not():
        return hosts.why_not()
    with contextlib.suppress(OSError, ValueError):
        if int(Path("/proc/sys/kernel/yama/ptrace_scope").read_text("ascii")) > 1:
            return "kernel.yama.ptrace_scope forbids tracing"
    return ""


class Engine:
    """One engine of the session, as a backend."""

    def __init__(self, engine: str) -> None:
        self._engine = engine

    def why_not(self, probes: Sequence[Traced] = ()) -> str:
        """Return why it can't be used here, or '' if it can, which is the same for all `probes`."""
        return _why_not()

    def run(self, command: Command, binary: str, probes: Sequence[Traced]) -> tuple[Finished, list[Hit]]:
        """Run a program; return how it ended, and the hits. Raises UsdtError and subprocess.TimeoutExpired."""
        argv, cwd, env = tuple(command.argv), command.cwd or str(Path.cwd()), dict(command.env)
        wish = self._wish(binary, probes)._replace(argv=argv, cwd=cwd, env=env)
        with tempfile.TemporaryDirectory(prefix="usdtbuild-") as name, Session(wish) as session:
            folder = Path(name)
            (folder / "stdin").write_text(command.stdin, encoding="utf-8", errors="surrogateescape")
            with contextlib.ExitStack() as stack:
                modes = (("stdin", "rb"), ("stdout", "wb"), ("stderr", "wb"))
                session.start(*(stack.enter_context((folder / stream).open(mode)) for stream, mode in modes))
            events: list[Event] = []
            deadline = time.monotonic() + command.timeout
            expired = False
            for batch in session.batches(0.1):
                events += batch
                if time.monotonic() > deadline and not expired:
                    expired = True
                    session.kill()
            if expired:
                raise subprocess.TimeoutExpired(list(argv), command.timeout)
            code = session.report().exit_code
            texts = [(folder / stream).read_text("utf-8", "surrogateescape") for stream in ("stdout", "stderr")]
            return Finished(code if code is not None else 0, *texts), _hits(session, events, probes)

    @contextlib.contextmanager
    def attached(self, pid: int, binary: str, probes: Sequence[Traced]) -> Iterator[list[Hit]]:
        """Watch a process while the body of the `with` runs; the list is filled at its end. Raises UsdtError."""
        hits: list[Hit] = []
        events: list[Event] = []
        failures: list[UsdtError] = []
        with permission(pid), Session(self._wish(binary, probes)._replace(pid=pid)) as session:
            session.start()

            def take() -> None:
                # Meanwhile: the worker would stand still once nobody took what it says.
                try:
                    for batch in session.batches(0.1):
                        events.extend(batch)
                except UsdtError as error:
                    failures.append(error)

            taker = threading.Thread(target=take, name="usdtbuild-hits", daemon=True)
            taker.start()
            try:
                yield hits
            finally:
                session.stop()
                taker.join()
            if failures:
                raise failures[0]
            hits += _hits(session, events, probes)

    def _wish(self, binary: str, probes: Sequence[Traced]) -> job.Job:
        names = tuple(probe.name for probe in probes)
        wanted = Wanted(probes=names, modules=(os.path.realpath(binary),))
        return job.Job(wanted, engine=self._engine, string_size=_STRING_SIZE, buffer_size=_BUFFER)


def _hits(session: Session, events: Sequence[Event], probes: Sequence[Traced]) -> list[Hit]:
    """Return events as hits. Raises TracerError if not every hit was seen."""
    report = session.report()
    if any(report.lost):
        raise TracerError("hits came faster than they could be read; fire fewer, or use tracer='trap'")
    if report.refusals:
        raise TracerError(f"not traced: {report.refusals[0]}")
    by_name = {probe.name: probe for probe in probes}
    wanted = [by_name.get(target.title) for target in session.targets]
    found = []
    for event in events:
        traced = wanted[event.target]
        if traced is not None:
            found.append(make_hit(traced, [_raw(value) for value in event.values]))
    return found


def _raw(value: Value) -> int | str | float | None:
    """Return a value as `make_hit` takes it: text for bytes."""
    return value.decode("utf-8", "surrogateescape") if isinstance(value, bytes) else value
