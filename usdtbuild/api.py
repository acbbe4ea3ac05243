"""What other programs may use of usdtbuild: read a file's probes, check them, compile a provider file, and trace.

`usdtbuild` names it all (docs/api.md); everything else is private. What goes wrong is an exception whose text is the
command line's message.
"""

from __future__ import annotations

import contextlib
import math
import os
import time
from typing import TYPE_CHECKING, Any, NamedTuple

from .errors import InputError, UsageError, UsdtError
from .tracing.errors import TracerError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from .tracing.filters import Filter
    from .tracing.job import Job
    from .tracing.model import Event, Target, Value
    from .tracing.sieve import Sieve
    from .tracing.tracer import Tracer
    from .verify import Finding as Found
    from .verify import Verified

__all__ = ["Argument", "Counts", "Finding", "Hit", "InputError", "Probe", "Trace", "TracerError", "Unreadable",
           "UsageError", "UsdtError", "check", "compile_provider", "probes", "trace"]  # fmt: skip


# -- files -------------------------------------------------------------------------------------------------------------


class Argument(NamedTuple):
    """An argument of a probe: its name and C type, '' where the file doesn't say; its size in bytes, 0 if unknown."""

    name: str
    type: str
    size: int
    signed: bool


class Probe(NamedTuple):
    """A probe of a file in one format (stapsdt, dof, usdt), with its sites' addresses in the file."""

    provider: str
    name: str
    format: str
    arguments: tuple[Argument, ...]
    sites: tuple[int, ...]
    file: str


class Finding(NamedTuple):
    """What is wrong with a file's probes: how `usdtbuild verify` calls it, its severity (error, warning, note), what it
    is, what helps ('' if nothing), and which probes ("provider:name") it is about."""

    name: str
    severity: str
    what: str
    cure: str
    file: str
    probes: tuple[str, ...]


def probes(path: str | os.PathLike[str]) -> list[Probe]:
    """Return the probes of a program, library, object, archive or folder. Raises InputError."""
    from .inspection.probes import inspect
    from .inspection.targets import files

    found = []
    for image in files(os.fspath(path), _raise):
        for probe in inspect(image).probes:
            longest = max((site.arguments for site in probe.sites), key=len)
            arguments = tuple(Argument(one.name, one.type, one.operand.size, one.operand.signed) for one in longest)
            places = (site.location for site in probe.sites)
            sites = tuple(place.offset if image.is_object else place.address for place in places)
            found.append(Probe(probe.provider, probe.name, probe.format, arguments, sites, image.path))
    return found


def check(path: str | os.PathLike[str], providers: Sequence[str | os.PathLike[str]] = ()) -> list[Finding]:
    """Return what keeps the probes of a file, archive or folder from working; all probes of `providers` must be there.

    Raises InputError.
    """
    from .inspection.targets import files
    from .provider.files import read_providers
    from .verify import missing_everywhere, verify

    names = [os.fspath(one) for one in providers]
    expected = read_providers(names)
    reports: list[Verified] = [verify(image, expected) for image in files(os.fspath(path), _raise)]
    missing = missing_everywhere(reports, expected, ", ".join(names)) if expected else None
    return [
        Finding(one.check, one.severity, one.what, one.cure, report.path, _probes(one))
        for report in [*reports, *([missing] if missing else [])]
        for one in report.findings
    ]


def _probes(finding: Found) -> tuple[str, ...]:
    return tuple(dict.fromkeys(place.probe for place in finding.places if place.probe))


def compile_provider(
    source: str | os.PathLike[str], output: str | os.PathLike[str], formats: Sequence[str] = ("stapsdt",)
) -> None:
    """Write the header of a provider file, as `usdtbuild header` does. Raises UsdtError."""
    from .provider.generate import HeaderRequest, generate, read_formats

    generate(HeaderRequest(os.fspath(source), os.fspath(output), formats=read_formats(",".join(formats))))


def _raise(error: InputError) -> None:
    raise error


# -- hits --------------------------------------------------------------------------------------------------------------


class Unreadable(NamedTuple):
    """Stands for an argument that can't be read; `address` is that of a string, None if there is none."""

    address: int | None


class Hit:
    """A hit: `time` (nanoseconds since 1970), `pid`, `tid`, `probe` ("provider:name", or a function), `args`.

    `hit["bytes"]` is the argument of this name, and so is `hit.bytes` unless a hit has something else of that name.
    Arguments are int, float, bytes for strings, None for a NULL string, and Unreadable.
    """

    __slots__ = ("_names", "args", "pid", "probe", "tid", "time")

    def __init__(self, time: int, pid: int, tid: int, probe: str, args: tuple[Any, ...], names: Sequence[str]) -> None:
        self.time, self.pid, self.tid, self.probe, self.args, self._names = time, pid, tid, probe, args, names

    @property
    def named(self) -> dict[str, Any]:
        """The arguments by name; those without a name are arg0, arg1 and so on."""
        return dict(zip(self._names, self.args))

    def __getitem__(self, name: str) -> Any:
        return self.named[name]

    def __getattr__(self, name: str) -> Any:
        if name not in self._names:
            raise AttributeError(f"{self.probe} has no argument {name}; it has {', '.join(self._names) or 'none'}")
        return self.named[name]

    def __repr__(self) -> str:
        return f"<{self.probe} {', '.join(f'{name}={value!r}' for name, value in self.named.items())}>"


class Counts(NamedTuple):
    """How often each probe or function was hit, those that weren't too; `lost` hits are not known to pass a filter."""

    counts: dict[str, int]
    lost: int


class Trace:
    """A trace: use it in a `with`, and iterate over it for its hits; or ask for `count`. `trace` makes it.

    Afterwards `lost` are hits that came too fast to be seen, `exit_code` is how a program ended that was started here
    (negative: the signal), and `refusals` says what was not traced and why.
    """

    def __init__(self, job: Job, passing: Sieve | None, limit: int | None) -> None:
        self._job, self._passing, self._limit = job, passing, limit
        self._tracer: Tracer | None = None
        self.lost = 0
        self.exit_code: int | None = None
        self.refusals: list[str] = []

    def __enter__(self) -> Trace:
        self._begin(self._job.passing(self._filter()))
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def stop(self) -> None:
        """End the trace; hits that were seen still come."""
        if self._tracer is not None:
            self._tracer.stop()

    def __iter__(self) -> Iterator[Hit]:
        """Yield hits, oldest first, until the program ends or it is enough. Raises UsdtError."""
        names: list[tuple[str, tuple[str, ...]]] = []
        offset = time.time_ns() - time.monotonic_ns()
        seen = 0
        for batch in self._batches():
            assert self._tracer is not None
            names += map(_names, self._tracer.targets[len(names) :])
            for event in batch:
                title, arguments = names[event.target]
                yield Hit(event.time + offset, event.pid, event.tid, title, tuple(map(_plain, event.values)), arguments)
                seen += 1
                if seen == self._limit:
                    self.stop()
                    return

    def count(self) -> Counts:
        """Trace to the end, and return how often each target was hit: only counted, or where a filter is asked for
        evaluated, in the program itself where the engine can do that. Raises UsdtError."""
        if self._tracer is None:
            self._begin(self._job.adding_up(self._filter()))
        try:
            for _ in self._batches():
                pass
            assert self._tracer is not None
            report = self._tracer.report()
            counts = report.counts if self._passing is None else self._passing.counts(self._tracer.passed)
            found = dict.fromkeys((target.title for target in report.targets), 0)
            for target, count in zip(report.targets, counts):
                found[target.title] += count
            return Counts(found, sum(report.lost) if self._passing is not None else 0)
        finally:
            self._end()

    # -- one run ---------------------------------------------------------------------------------------------------

    def _filter(self) -> Filter | None:
        return self._passing.filter if self._passing is not None else None

    def _begin(self, job: Job) -> None:
        from .tracing.tracer import choose

        if self._tracer is not None:
            raise UsageError("this trace has begun already; each is for one run")
        tracer = choose(job)
        try:
            tracer.start()
            self._tracer = tracer
            if self._passing is not None:
                self._passing.start(tracer.targets)
        except BaseException:
            if job.argv:
                tracer.kill()
            tracer.close()
            self._tracer = None
            raise
        tracer.go()
        self._until = time.monotonic() + self._job.duration

    def _batches(self) -> Iterator[Sequence[Event]]:
        """Yield hits that pass."""
        if self._tracer is None:
            raise UsageError("the trace has not begun, or is over: use it in a `with`")
        for batch in self._tracer.batches(min(0.05, max(0.001, self._until - time.monotonic()))):
            if self._passing is not None:
                self._passing.start(self._tracer.targets)
            yield batch if self._passing is None else self._passing.take(batch)
            if time.monotonic() >= self._until:
                self._tracer.stop()

    def _end(self) -> None:
        if self._tracer is None:
            return
        tracer, self._tracer = self._tracer, None
        with contextlib.closing(tracer):
            tracer.stop()
            with contextlib.suppress(UsdtError):
                for _ in tracer.batches(0.05):  # what comes until everything is put back
                    pass
            report = tracer.report()
            self.lost, self.exit_code = sum(report.lost), report.exit_code
            self.refusals = [str(one) for one in report.refusals]


def _names(target: Target) -> tuple[str, tuple[str, ...]]:
    return target.title, tuple(one.name or f"arg{i}" for i, one in enumerate(target.arguments))


def _plain(value: Value) -> Any:
    from .tracing.model import MISSING
    from .tracing.model import Unreadable as Unread

    if value is MISSING:
        return Unreadable(None)
    return Unreadable(int(value)) if isinstance(value, Unread) else value


def trace(
    *,
    pid: int = 0,
    command: Sequence[str | os.PathLike[str]] = (),
    probes: Sequence[str] = (),
    functions: Sequence[str] = (),
    calls: Sequence[str] = (),
    exclude: Sequence[str] = (),
    modules: Sequence[str] = (),
    returns: bool = False,
    where: str | None = None,
    duration: float = math.inf,
    limit: int | None = None,
    engine: str = "auto",
    children: bool = True,
    string_size: int = 64,
    providers: Sequence[str | os.PathLike[str]] = (),
    cwd: str | os.PathLike[str] = "",
    env: Mapping[str, str] | None = None,
) -> Trace:
    """Return a trace of a process that runs, or of a command that will be started; each option is the command line's.

    Without `probes`, `functions` and `calls` all probes are traced. Raises UsdtError.
    """
    from .provider.parser import parse_file
    from .tracing.filters import Filter
    from .tracing.job import Job
    from .tracing.selection import Wanted
    from .tracing.sieve import Sieve

    if bool(pid) == bool(command):
        raise UsageError("say what to trace: either a process (pid=) or a command (command=[...])")
    if not duration > 0 or (limit is not None and limit < 1):
        raise UsageError("duration= and limit= must be more than 0")
    if returns and not functions and not calls:
        raise UsageError("returns= is about functions and calls of library functions: say which")
    declared = tuple(provider for path in providers for provider in parse_file(os.fspath(path)))
    patterns = (tuple(probes), tuple(functions), tuple(exclude), tuple(modules))
    wanted = Wanted(*patterns, declared, tuple(calls), returns)
    argv = tuple(os.fspath(word) for word in command)
    job = Job(wanted, engine=engine, pid=pid, argv=argv, cwd=os.fspath(cwd) or os.getcwd(),  # noqa: PTH109
              env=dict(os.environ if env is None else env), children=children, string_size=string_size,
              duration=duration, hold=True)  # fmt: skip
    return Trace(job, None if where is None else Sieve(Filter(where, string_size)), limit)
