"""What other programs may use of usdtbuild: read a file's probes, check them, compile a provider file, and trace.

`usdtbuild` names it all (docs/api.md); everything else is private. What goes wrong is an exception whose text is the
command line's message.
"""

from __future__ import annotations

import contextlib
import io
import math
import os
import shlex
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

from .errors import InputError, UsageError, UsdtError
from .limits import TARGETS
from .provider.diagnostics import ParseError
from .tracing.errors import TracerError
from .tracing.model import MISSING, RANGES, Frame, Report, Target, Value
from .tracing.model import Unreadable as Unread
from .tracing.outputs.choose import All, Wishes, tables
from .tracing.outputs.rows import Row

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from .model import Provider
    from .provider.enumerators import Values
    from .tracing.absent import Absent
    from .tracing.follower import Follower
    from .tracing.job import Job
    from .tracing.sieve import Sieve
    from .verify.report import Finding as Found
    from .verify.report import Verified

__all__ = ["Argument", "Counts", "Finding", "Frame", "Hit", "InputError", "ParseError", "Probe", "Row", "Trace",
           "TracerError", "Unreadable", "UsageError", "UsdtError", "check", "compile_provider", "probes",
           "trace"]  # fmt: skip


_KINDS: dict[type, str] = {int: "whole number", float: "number", str: "string"}

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


def check(
    path: str | os.PathLike[str], providers: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] = ()
) -> list[Finding]:
    """Return what keeps the probes of a file, archive or folder from working; all probes of `providers` must be there.

    Raises InputError.
    """
    from .inspection.targets import files
    from .provider.files import read_providers
    from .verify import missing_everywhere, verify

    names = [os.fspath(one) for one in _each("--provider", providers)]
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
    Arguments are int, float, bytes for strings, None for a NULL string, and Unreadable. If the trace has `stack=N`,
    `stack` has a Frame for each call that the hit is in, the innermost first.
    """

    __slots__ = ("_names", "args", "pid", "probe", "stack", "tid", "time")

    def __init__(self, time: int, pid: int, tid: int, probe: str, args: tuple[Any, ...], names: Sequence[str],
                 stack: tuple[Frame, ...] = ()) -> None:  # fmt: skip
        self.time, self.pid, self.tid, self.probe, self.args, self._names = time, pid, tid, probe, args, names
        self.stack = stack

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
    """How often each probe or function was hit, those that weren't too; or how often each key came, as the command
    line shows it. `lost` hits are not known to pass a filter; `others` are those of keys that were too many to keep.
    """

    counts: dict[str, int]
    lost: int
    others: int = 0


class Asked(NamedTuple):
    """What a trace was asked for: for the command line, which shows it in its own ways."""

    job: Job
    sieve: Sieve | None
    limit: int | None
    heading: str


class Trace:
    """A trace: use it in a `with`, and iterate over it for its hits; or ask for what they add up to, which traces to
    the end. `trace` makes it. It is for one run.

    Afterwards `lost` are hits that came too fast to be seen, `exit_code` is how a program ended that was started here
    (negative: the signal), `refusals` says what was not traced and why, `warnings` what else is worth knowing. `pid` is
    the process.
    """

    def __init__(self, asked: Asked) -> None:
        self.asked = asked
        self._follower: Follower | None = None
        self._has_begun = False
        self._wanted = asked.job.wanted
        self._absent: list[Absent] = []
        self.pid = self.lost = 0
        self.exit_code: int | None = None
        self.refusals: list[str] = []
        self.warnings: list[str] = []

    def __enter__(self) -> Trace:
        self._begin(Wishes())
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def stop(self) -> None:
        """End the trace; hits that were seen still come."""
        if self._follower is not None:
            self._follower.tracer.stop()

    def __iter__(self) -> Iterator[Hit]:
        """Yield hits, oldest first, until the program ends or it is enough. Raises UsdtError."""
        follower = self._follower
        if follower is None:
            raise UsageError("the trace has not begun, or is over: use it in a `with`")
        names: list[tuple[str, tuple[str, ...]]] = []
        offset = follower.tracer.report().wall_offset
        for batch in follower.batches():
            names += map(_names, follower.tracer.targets[len(names) :])
            for event in batch:
                title, arguments = names[event.target]
                values = tuple(map(_plain, event.values))
                yield Hit(event.time + offset, event.pid, event.tid, title, values, arguments, event.stack)
        self._check_matched(follower.report())

    def count(self, by: str = "") -> Counts:
        """Return how often each target was hit, or, with `by`, how often each value of an argument came: "status", or
        several of thread, process, probe, stack and arguments, joined by commas.

        Hits are only counted, or where a filter is asked for evaluated, in the program itself where the engine can do
        that. Raises UsdtError.
        """
        report, rows = self._added_up(Wishes(counting=not by, by=by))
        found = dict.fromkeys((target.title for target in report.targets), 0) if not by else {}
        for title, count in _counted(report) if not by else ((row.key or "", row.hits) for row in rows):
            found[title] = found.get(title, 0) + count
        others = sum(row.hits for row in rows if row.key is None)
        return Counts(found, self.lost if by or self.asked.sieve is not None else 0, others)

    def sum(self, of: str, by: str = "") -> list[Row]:
        """Return sum, mean and extremes of an argument, for each probe that has it; with `by` for each key, the
        greatest sum first. Raises UsdtError."""
        return self._added_up(Wishes(sum=of, by=by))[1]

    def histogram(self, of: str, by: str = "", step: float = 0) -> list[Row]:
        """Return how the values of an argument are distributed: quantiles, and `buckets`, of the width `step`, or
        bounded by powers of two. Raises UsdtError."""
        return self._added_up(Wishes(histogram=f"{of},{step}" if step else of, by=by))[1]

    def latency(self, begin: str, end: str, by: str = "", key: str = "") -> list[Row]:
        """Return how long it takes from one probe to another, in nanoseconds. A pair are hits of one thread, or of one
        value of the argument `key`. Raises UsdtError."""
        return self._added_up(Wishes(latency=(begin, end), by=by, key=key))[1]

    # -- one run ---------------------------------------------------------------------------------------------------

    def _begin(self, wishes: Wishes) -> None:
        from .tracing.absent import absent
        from .tracing.follower import Follower, planned
        from .tracing.tracer import choose

        if self._has_begun:
            raise UsageError("this trace has begun already; each is for one run")
        self._has_begun = True
        job, wishes, sieve = planned(self.asked.job, wishes, self.asked.sieve)
        self._tables = tables(wishes, io.StringIO())
        tracer = choose(job)
        self._follower = Follower(tracer, All(self._tables), sieve, self.asked.limit)
        try:
            self._follower.start()
        except BaseException:
            self._follower = None
            tracer.close()
            raise
        self.pid = tracer.pid
        self._wanted, self._absent = tracer.wish.wanted, absent(tracer.wish, tracer.targets, tracer.pid)
        self._follower.go()

    def _added_up(self, wishes: Wishes) -> tuple[Report, list[Row]]:
        """Trace to the end; return how it was, and what the tables say."""
        _check_kinds(
            ("--by", wishes.by, str), ("--key", wishes.key, str), ("--sum", wishes.sum, str),
            ("--histogram", wishes.histogram, str), *(("--latency", one, str) for one in wishes.latency or ()),
        )  # fmt: skip
        self._begin(wishes)
        assert self._follower is not None
        try:
            for _ in self._follower.batches():
                pass
            report = self._follower.finish()
            self._check_matched(report)
            return report, [row for table in self._tables for row in table.rows(report)]
        finally:
            self._end()

    def _check_matched(self, report: Report) -> None:
        if not report.targets and (never := self._never_matched(report)):
            raise TracerError("\n".join(never))
        if self._follower is not None:
            self._follower.check()

    def _never_matched(self, report: Report) -> list[str]:
        if not self._absent:
            return []
        from .tracing.absent import still

        return [*map(str, still(self._absent, self._wanted, report))]

    def _end(self) -> None:
        if self._follower is None:
            return
        follower, self._follower = self._follower, None
        with contextlib.closing(follower.tracer) as tracer:
            tracer.stop()
            with contextlib.suppress(UsdtError):
                for _ in tracer.batches(0.05):  # what comes until everything is put back
                    pass
            report = follower.report()
            self.lost, self.exit_code = sum(report.lost), report.exit_code
            self.refusals = [str(one) for one in report.refusals]
            self.warnings = [*self._never_matched(report), *tracer.damage, *tracer.warnings]


def _counted(report: Report) -> Iterator[tuple[str, int]]:
    return ((target.title, count) for target, count in zip(report.targets, report.counts))


def _names(target: Target) -> tuple[str, tuple[str, ...]]:
    return target.title, tuple(one.name or f"arg{i}" for i, one in enumerate(target.arguments))


def _plain(value: Value) -> Any:
    if value is MISSING:
        return Unreadable(None)
    return Unreadable(int(value)) if isinstance(value, Unread) else value


def trace(
    *,
    pid: int | Sequence[int] | None = None,
    running: bool = False,
    exes: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] = (),
    command: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] = (),
    probes: Sequence[str] = (),
    functions: Sequence[str] = (),
    calls: Sequence[str] = (),
    exclude: Sequence[str] = (),
    modules: Sequence[str] = (),
    returns: bool = False,
    min_size: int = 0,
    mangled: bool = False,
    members: int = 1,
    where: str | None = None,
    duration: float = math.inf,
    limit: int | None = None,
    engine: str = "auto",
    trap: bool = False,
    children: bool = True,
    string_size: int = 64,
    buffer: int = 32,
    providers: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] = (),
    show_as: Sequence[str] = (),
    remote: str = "",
    emulator: str = "",
    sysroot: str = "",
    stack: int = 0,
    cwd: str | os.PathLike[str] = "",
    env: Mapping[str, str] | None = None,
) -> Trace:
    """Return a trace of processes that run, of a command that will be started, or of a program that a gdb server holds;
    each option is the command line's; one string or path is a list of one. `running` is --children: those that `pid`
    has already, too.

    Without `probes`, `functions` and `calls` all probes are traced. Raises UsageError, whose text names the command
    line's options, and InputError.
    """
    from .tracing.filters import Filter
    from .tracing.job import Job
    from .tracing.retyped import parsed
    from .tracing.selection import Wanted
    from .tracing.sieve import Sieve

    pids = () if pid is None else _listed(pid)
    _check_kinds(
        *(("-p", one, int) for one in pids), ("--limit", limit or 0, int), ("--duration", duration, float),
        ("--filter", "" if where is None else where, str), ("--engine", engine, str), ("--remote", remote, str),
        ("--emulator", emulator, str),
    )  # fmt: skip
    argv = tuple(map(os.fspath, _each("command", command)))
    words = _emulator(remote, emulator, sysroot)
    programs = tuple(os.path.abspath(path) for path in _each("--exe", exes))  # noqa: PTH100 - links may lead elsewhere later
    heading = _heading(pids, programs, argv, remote, words)
    if len(set(pids)) < len(pids) or len(pids) > TARGETS:
        raise UsageError(f"-p: each process can be named once, and {TARGETS} of them at most")
    if running and not children:
        raise UsageError("--children and --no-children contradict each other: leave one of them out")
    if running and not (pids or programs):
        raise UsageError("--children is about children that processes (-p PID) have already")
    if not duration > 0 or (limit is not None and limit < 1):
        raise UsageError("--duration and --limit must be more than 0")
    numbers = {"string_size": string_size, "buffer": buffer, "stack": stack, "min_size": min_size, "members": members}
    for name, number in numbers.items():
        least, most = RANGES[name]
        if not isinstance(number, int) or not least <= number <= most:
            what = f"{number!r} is no whole number from {least} to {most}"
            raise UsageError(f"--{name.replace('_', '-')}: {what}")
    is_open = not (probes or functions or calls)
    sieve = None if where is None else Sieve(Filter(where, string_size), is_open=is_open)
    if returns and not functions and not calls:
        raise UsageError("--returns is about functions and calls of library functions: say which, -F GLOB or -L GLOB")
    read = [_read(path) for path in _each("--provider", providers)]
    declared = tuple(provider for found, _ in read for provider in found)
    enumerators = tuple(one for _, found in read for one in found.items())
    patterns = (_each("-P", probes), _each("-F", functions), _each("-x", exclude),
                _with_absolute(_each("--module", modules)))  # fmt: skip
    library_calls = _each("-L", calls)
    for option, given in zip(("-P", "-F", "-x", "--module", "-L"), (*patterns, library_calls)):
        if "" in given:
            raise UsageError(f"{option}: the pattern is empty; say what it is to match (* matches all)")
    wanted = Wanted(*patterns, declared, library_calls, returns, min_size, mangled=mangled, members=members,
                    shown_as=tuple(map(parsed, _each("--as", show_as))), enumerators=enumerators)  # fmt: skip
    job = Job(wanted, engine=engine, pids=pids, running=running, exes=programs, argv=argv,
              cwd=os.fspath(*_each("cwd", cwd)) or os.getcwd(),  # noqa: PTH109
              env=dict(os.environ if env is None else env), remote=remote, emulator=words, sysroot=sysroot,
              string_size=string_size, buffer_size=buffer << 20, trap_functions=trap, children=children,
              duration=duration, hold=True, stack=stack, enough=limit or 0)  # fmt: skip
    return Trace(Asked(job, sieve, limit, heading))


def _check_kinds(*options: tuple[str, object, type]) -> None:
    for option, given, kind in options:
        if not isinstance(given, (int, float) if kind is float else kind):
            raise UsageError(f"{option}: {given!r} is no {_KINDS[kind]}")


def _listed(several: Any) -> tuple[Any, ...]:
    is_one = isinstance(several, (str, os.PathLike)) or not isinstance(several, Iterable)
    return (several,) if is_one else tuple(several)


def _each(option: str, several: str | os.PathLike[str] | Sequence[str | os.PathLike[str]]) -> tuple[Any, ...]:
    found = _listed(several)
    for one in found:
        if not isinstance(one, (str, os.PathLike)):
            raise UsageError(f"{option}: {one!r} is neither a string nor a path")
    return found


def _with_absolute(modules: tuple[str, ...]) -> tuple[str, ...]:
    relative = (one for one in modules if "/" in one and not one.startswith(("/", "*")))
    return (*modules, *map(os.path.abspath, relative))


def _read(path: str | os.PathLike[str]) -> tuple[Sequence[Provider], dict[str, Values]]:
    """Read a provider file as `declared` does. Raises ParseError and InputError."""
    from .provider.enumerators import declared
    from .provider.parser import read_file

    name = os.fspath(path)
    return declared(read_file(name), name)


def _heading(
    pids: tuple[int, ...], exes: tuple[str, ...], argv: tuple[str, ...], remote: str, emulator: tuple[str, ...]
) -> str:
    """Return what is traced, for people. Raises UsageError where that isn't one thing."""
    from .tracing.running import named

    given = f"-p {pids[0]}" if pids else f"--exe {exes[0]}" if exes else ""
    if remote and given:
        raise UsageError(f"{given} is of this machine, and --remote names a program that a stub holds already")
    if given and argv:
        raise UsageError(f"both a process ({given}) and a command ({argv[0]}) are given: leave one of them out")
    if not remote and not given and not argv:
        raise UsageError("say what to trace: a process (-p PID), a program that runs (--exe PATH), or a command"
                         " (-- COMMAND ARGS...)")  # fmt: skip
    if argv and not argv[0]:
        raise UsageError("the command's name is empty; say what to run: -- COMMAND ARGS...")
    if emulator and given:
        raise UsageError("an emulator runs a command (-- COMMAND ARGS...), not a process")
    return shlex.join(argv) or remote or ", ".join([named(pids)] * bool(pids) + [*exes])


def _emulator(remote: str, emulator: str, sysroot: str) -> tuple[str, ...]:
    """Return the emulator's words. Raises UsageError for what doesn't go together."""
    if sysroot and not remote and not emulator:
        raise UsageError("--sysroot: say which program, --remote HOST:PORT, or --emulator COMMAND -- PROGRAM ARGS...")
    if remote and emulator:
        raise UsageError("--remote names a program that runs already, and --emulator starts one: give one of them")
    try:
        return tuple(shlex.split(emulator))
    except ValueError as error:
        raise UsageError(f"--emulator: {str(error).lower()}") from None
