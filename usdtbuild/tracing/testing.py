"""A tracer as a test has it: a whole run, or what fires while the body of a `with` runs, as hits with Python values.

Nothing here knows pytest, or which engine it is: the plugin is this module's user (docs/pytest.md).
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

from ..errors import InputError, UsdtError
from ..inspection.targets import Loaded, files
from .begin import python_running
from .errors import TracerError
from .follower import Follower
from .job import Job
from .model import MISSING, PROBE, Event, Target, Unreadable, Value
from .selection import Wanted, targets_in
from .tracer import Tracer, choose

_PR_SET_PTRACER, _ANY = 0x59616D61, ctypes.c_ulong(-1)


# -- probes and hits -------------------------------------------------------------------------------------------------


class Unread:
    """Stands for an argument that a tracer had no way to read; equal to nothing else."""

    def __repr__(self) -> str:
        return "<not read>"


UNREAD = Unread()


class Hit(NamedTuple):
    """One firing of a probe. `args` are its arguments: int, float for doubles and floats, str for C strings.

    A string is None where the pointer is NULL, and the address, an int, where it can't be read.
    """

    provider: str
    probe: str
    args: tuple[Any, ...]
    names: tuple[str, ...]

    @property
    def named(self) -> dict[str, Any]:
        """The arguments by the names that the provider file gives them."""
        return {name: value for name, value in zip(self.names, self.args) if name}


class UnknownProbeError(LookupError):
    """A test asks for hits of a probe that wasn't watched."""


class Hits:
    """The hits of one traced run in the order in which they came, and by probe: `hits["app:done"][0].args`."""

    def __init__(self, probes: Sequence[Target]) -> None:
        self._probes = tuple(probes)
        self._hits: list[Hit] = []

    def extend(self, hits: Sequence[Hit]) -> None:
        """Add what a tracer saw."""
        self._hits.extend(hits)

    def __iter__(self) -> Iterator[Hit]:
        return iter(self._hits)

    def __len__(self) -> int:
        return len(self._hits)

    def __getitem__(self, name: str) -> list[Hit]:
        """Return the hits of one probe, named `provider:probe` or `probe`, with `__` or `-`.

        The list is empty if it was watched and never fired. Raises UnknownProbeError if it wasn't watched.
        """
        wanted = find(self._probes, name)
        if not wanted:
            watched = ", ".join(probe.title for probe in self._probes)
            raise UnknownProbeError(f"{name} was not watched; these were: {watched or 'none'}")
        names = {(probe.provider, probe.name) for probe in wanted}
        return [hit for hit in self._hits if (hit.provider, hit.probe) in names]

    def count(self, name: str) -> int:
        """Return how often a probe fired."""
        return len(self[name])

    def __repr__(self) -> str:
        shown = (f"{hit.provider}:{hit.probe}({', '.join(map(repr, hit.args))})" for hit in self._hits[:20])
        more = f", and {len(self) - 20} more" if len(self) > 20 else ""
        return f"<{len(self)} hits: {', '.join(shown)}{more}>" if self._hits else "<no hits>"


def find(probes: Sequence[Target], name: str) -> list[Target]:
    """Return the probes that a name means: `provider:probe`, or `probe` alone; `-` is as good as `__`."""
    provider, _, probe = name.rpartition(":")
    probe = probe.replace("-", "__")
    return [one for one in probes if one.name.replace("-", "__") == probe and provider in ("", one.provider)]


def probes_of(binary: str, names: Sequence[str]) -> list[Target]:
    """Return the named probes of a file, or all of them. Raises InputError."""
    (image,) = list(files(binary, lambda error: None))
    if image.is_object:
        raise InputError(binary, "is an object: what can be traced is the program or library it is linked into")
    there = list(targets_in(Loaded(image, 0), Wanted()))
    if not there:
        cure = "is it built with its probes? `usdtbuild verify` on it says more"
        raise InputError(binary, "has no probes that a tracer on Linux sees", cure)
    chosen = [one for one in there if not names]
    for name in names:
        found = find(there, name)
        if not found:
            raise InputError(binary, f"has no probe {name}; it has {', '.join(one.title for one in there)}")
        chosen += [one for one in found if one not in chosen]
    return chosen


def _hits(tracer: Tracer, events: Sequence[Event]) -> list[Hit]:
    """Return events as hits. Raises TracerError if not every hit was seen."""
    report = tracer.report()
    if any(report.lost):
        raise TracerError("hits came faster than they could be read; fire fewer, or use tracer='trap'")
    if report.refusals:
        raise TracerError(f"not traced: {report.refusals[0]}")
    probes = {one.number: (one, tuple(argument.name for argument in one.arguments)) for one in report.targets
              if one.kind == PROBE}  # fmt: skip
    found = []
    for event in events:
        probe, names = probes[event.target]
        found.append(Hit(probe.provider, probe.name, tuple(map(_plain, event.values)), names))
    return found


def _plain(value: Value) -> Any:
    if value is MISSING:
        return UNREAD
    if isinstance(value, bytes):
        return value.decode("utf-8", "surrogateescape")
    return int(value) if isinstance(value, Unreadable) else value


# -- a command -------------------------------------------------------------------------------------------------------


class Finished(NamedTuple):
    """How a program ended, and what it wrote. `returncode` is negative for the signal that ended it."""

    returncode: int
    stdout: str
    stderr: str


def run(tracer: Tracer, stdin: str, timeout: float) -> tuple[Finished, list[Hit]]:
    """Run a tracer's command; return how it ended, and the hits. Raises UsdtError and subprocess.TimeoutExpired."""
    with tempfile.TemporaryDirectory(prefix="usdtbuild-") as name, tracer:
        folder = Path(name)
        (folder / "stdin").write_text(stdin, encoding="utf-8", errors="surrogateescape")
        follower = Follower(tracer)
        with contextlib.ExitStack() as stack:
            modes = (("stdin", "rb"), ("stdout", "wb"), ("stderr", "wb"))
            follower.start(*(stack.enter_context((folder / stream).open(mode)) for stream, mode in modes))
        follower.go()
        events: list[Event] = []
        deadline, expired = time.monotonic() + timeout, False
        for batch in follower.batches():
            events += batch
            if time.monotonic() > deadline and not expired:
                expired = True
                tracer.kill()
        if expired:
            raise subprocess.TimeoutExpired(list(tracer.wish.argv), timeout)
        code = tracer.report().exit_code
        texts = [(folder / stream).read_text("utf-8", "surrogateescape") for stream in ("stdout", "stderr")]
        return Finished(code if code is not None else 0, *texts), _hits(tracer, events)


# -- a process -------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def attached(wish: Job) -> Iterator[list[Hit]]:
    """Watch a process while the body of the `with` runs; the list is filled at its end. Raises TracerError.

    The tracer works in a process of its own: some hold the process that they trace, and that may be this one.
    """
    hits: list[Hit] = []
    ours, theirs = socket.socketpair()
    with _permission(*wish.pids), Connection(ours.detach()) as link:
        words = [*python_running("testing"), str(theirs.fileno())]
        helper = subprocess.Popen(words, stdin=subprocess.DEVNULL, pass_fds=[theirs.fileno()], start_new_session=True)
        theirs.close()
        try:
            link.send(wish)
            _answer(link)
            try:
                yield hits
            finally:
                with contextlib.suppress(OSError):  # it has ended; `_answer` finds that out
                    link.send("stop")
                hits += _answer(link)
        finally:
            link.close()
            helper.wait()


def _answer(link: Connection) -> list[Hit]:
    """Return what the helper says. Raises TracerError."""
    try:
        said: list[Hit] | str = link.recv()
    except (EOFError, OSError):
        raise TracerError("the process that traces has ended unexpectedly") from None
    if isinstance(said, str):
        raise TracerError(said)
    return said


def main(arguments: Sequence[str]) -> None:
    """Be the helper: get a job, say when it has begun, and at its end the hits; or, as text, what went wrong."""
    with Connection(int(arguments[0])) as link, contextlib.suppress(EOFError, OSError):
        try:
            with choose(link.recv()) as tracer:
                follower = Follower(tracer)
                follower.start()
                follower.go()
                link.send([])
                events: list[Event] = []
                stopped = False
                for batch in follower.batches(0.02):
                    events += batch
                    if not stopped and link.poll():
                        stopped = True
                        tracer.stop()
                link.send(_hits(tracer, events))
        except UsdtError as error:
            link.send(str(error))


@contextlib.contextmanager
def _permission(pid: int = 0) -> Iterator[None]:
    """While the body runs, let any process of ours attach to this process; for others nothing can be done here."""
    if pid != os.getpid():
        yield
        return
    libc = ctypes.CDLL(None)
    libc.prctl(_PR_SET_PTRACER, _ANY, 0, 0, 0)
    try:
        yield
    finally:
        libc.prctl(_PR_SET_PTRACER, 0, 0, 0, 0)
