"""From options to outputs: which module shows what, which ending of a file's name means which format.

Files appear whole when all is over, or not at all. A new output is a module and a row here.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import os
from pathlib import Path, PurePath
from typing import IO, TYPE_CHECKING, Any, NamedTuple

from ...ending import StandardOutputError
from ...errors import InputError, Told, UsageError
from ..call_report import REPORT, report_json
from ..measures import CALLS, Measure, Tables
from ..stops import said_of
from . import COUNTS, EVENTS, KEYS, Output, Table, first_lacking, needs_of
from .histogram import histogram_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ...outputs import Outputs
    from ..filters import Filter
    from ..model import Event, Report, Target, Totals
    from .calls import Show

_CHARACTERS, _BYTES, _FOLDER = range(3)  # how a format is written; to a folder several files of bytes


class Format(NamedTuple):
    """A format of files: the module here that writes it, its class, what it is, and how it is written."""

    module: str
    name: str
    what: str
    how: int = _CHARACTERS


ENDINGS = {
    ".jsonl": Format("jsonl", "JsonLines", "one JSON object a hit"),
    ".csv": Format("csv_", "Csv", "a table"),
    ".json": Format("trace_events", "TraceEvents", "for Perfetto and chrome://tracing"),
    ".folded": Format("folded", "Folded", "stacks for flame graph tools"),
    ".svg": Format("flame", "Flame", "a flame graph"),
    ".html": Format("html", "Html", "a timeline"),
    ".parquet": Format("parquet", "Parquet", "a table for DuckDB and pandas", _BYTES),
    ".pb.gz": Format("pprof", "Pprof", "a profile for pprof", _BYTES),
    ".ctf": Format("ctf", "Ctf", "a folder for babeltrace2 and Trace Compass", _FOLDER),
}
_CANT = "can't be written"
_TEXT_FILE = {"mode": "w", "encoding": "utf-8", "errors": "backslashreplace", "newline": ""}
TEXT = ("", ".txt", ".log", ".out")  # what would be printed otherwise
_OWN_TIMES, _TIMES = (
    (".svg", ".folded", ".pb.gz"),
    (".html", ".json", ".ctf"),
)  # those that show how long something took
_OF_CALLS = (".html", ".json", *_OWN_TIMES)  # those that show calls with what they called
_COUNTS = (".json", ".jsonl", ".csv")  # what --count is written to for programs


def ending_of(name: str) -> str:
    """Return the ending of a file's name that says its format."""
    return next((one for one in ENDINGS if PurePath(name).name.endswith(one)), PurePath(name).suffix)


class Wishes(NamedTuple):
    """What the command line asks for. `heading` says what is traced; `top`: rows of tables, 0 for their own number;
    `live`: the terminal is ours alone, so tables may be kept up to date on it. `folded`: which probes without a hit
    are one line, those of libraries or all. `where` is the filter; outputs get what has passed it, but pairs alone get
    all, and apply it themselves. `every`: tables come again and again, and with `json` as lines for programs, or, if
    `screen`, on a terminal as one screen. `prometheus` is where they are served meanwhile; `otlp` where spans are sent,
    and what the program is called there. `normalize`: strings that are keys, or in lines, are shown without their
    literals. `several`: lines say of which process they are. `slower`: each pair that takes so many seconds is
    shown, with so many hits that its thread had `before`, and no table. `calls` shows the tree of calls.
    `stacks`: hits have their call stacks. `alone`: pairs are found where hits come, if nothing else is in the way.
    """

    counting: bool = False
    histogram: str = ""
    by: str = ""
    sum: str = ""
    latency: tuple[str, str] | None = None
    key: str = ""
    top: int = 0
    files: tuple[str, ...] = ()
    heading: str = ""
    live: bool = False
    folded: str = ""
    where: Filter | None = None
    every: bool = False
    json: bool = False
    screen: bool = False
    prometheus: tuple[str, int] | None = None
    normalize: bool = False
    otlp: tuple[str, str] | None = None
    several: bool = False
    slower: float = 0.0
    before: int = 0
    calls: Show | None = None
    stacks: bool = False
    alone: bool = False

    @property
    def tells_sums(self) -> bool:
        """Whether hits or sums are told by key, or a sum of all, and not only distributions or pairs."""
        return bool(self.sum or (self.by and not self.latency and not self.histogram))

    @property
    def only_pairs(self) -> bool:
        """Whether nothing is shown but how long it takes from one probe to another, and how often what was hit."""
        others = self.histogram or self.sum or self.otlp
        endings = (*TEXT, *_COUNTS) if self.counting else TEXT
        return bool(self.latency) and not others and all(ending_of(name) in endings for name in self.files)


class _Passing(Output):
    """Hands everything on, by `_each`, as far as an output needs it."""

    def _each(self, do: Callable[[Output], None]) -> None:
        raise NotImplementedError

    def start(self, targets: Sequence[Target]) -> None:
        found: list[Output] = []

        def start(output: Output) -> None:
            output.start(targets)
            found.append(output)

        self._each(start)
        self.lacking = first_lacking(found)

    def events(self, events: Sequence[Event]) -> None:
        self._each(lambda output: output.events(events) if output.needs != COUNTS else None)

    def tables(self, tables: Tables, passed: Mapping[int, int]) -> None:
        self._each(lambda output: output.tables(tables, passed) if output.needs == KEYS else None)

    def counts(self, totals: Totals) -> None:
        self._each(lambda output: output.counts(totals))

    def interval(self, report: Report, tables: Tables) -> None:
        self._each(lambda output: output.interval(report, tables))


class All(_Passing):
    """Several outputs as one, for use in a `with`. What a user must be told at first is in `notes`, too.

    If it `goes_on` where standard output can't be written, the other outputs have what was seen, and `broken` says why.
    """

    def __init__(self, outputs: Sequence[Output] = (), *, goes_on: bool = False) -> None:
        self._outputs, self._goes_on = outputs, goes_on
        self._broken: dict[Output, StandardOutputError] = {}
        self.needs, self.values = needs_of(outputs), any(output.values for output in outputs)
        self.passing = all(output.passing for output in outputs)
        self.is_live = any(output.is_live for output in outputs)
        self.notes = [note for output in outputs for note in output.notes]

    def __enter__(self) -> All:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _each(self, do: Callable[[Output], None]) -> None:
        for output in self._outputs:
            if output in self._broken:
                continue
            try:
                do(output)
            except StandardOutputError as error:
                if not self._goes_on:
                    raise
                self._broken[output] = error

    def finish(self, report: Report) -> None:
        """Finish all."""
        self._each(lambda output: output.finish(report))
        self.notes = [note for output in self._outputs for note in output.notes]
        self.has_failed = any(output.has_failed for output in self._outputs)

    def close(self) -> None:
        """Close all."""
        self._each(lambda output: output.close())

    def broken(self) -> StandardOutputError | None:
        """Return what has become of standard output."""
        return next(iter(self._broken.values()), None)


class _InFile(_Passing):
    """An output that writes to a file, or to a folder; that the disk is full is an InputError with the file's name."""

    def __init__(self, name: str, files: Outputs, make: Callable[[Any], Output]) -> None:
        self._name, self._files = name, files
        self._streams: list[IO[Any]] = []
        how = ENDINGS[ending_of(name)].how if ending_of(name) in ENDINGS else _CHARACTERS
        if how == _FOLDER:
            files.folder(name)
            self._check_folder()
        self._output = make(self._part if how == _FOLDER else self._opened(name, how))
        self.needs, self.values = self._output.needs, self._output.values

    def _check_folder(self) -> None:
        """Raise InputError where the folder has files that this trace would be mixed with, or would replace."""
        from .ctf import others  # the one format that is a folder

        with Told(self._name, _CANT):
            other = others(Path(self._name))
        if other:
            raise InputError(self._name, f"{_CANT}: the folder has files of others ({other})",
                             "name a new folder, or one of an earlier trace")  # fmt: skip

    def _part(self, name: str) -> IO[bytes]:
        return self._opened(f"{self._name.rstrip('/')}/{name}", _FOLDER)

    def _opened(self, name: str, how: int) -> IO[Any]:
        options: dict[str, Any] = {"mode": "wb"} if how else _TEXT_FILE
        self._streams.append(open(self._files.open(name), **options))  # noqa: SIM115, PTH123
        return self._streams[-1]

    def _each(self, do: Callable[[Output], None]) -> None:
        with Told(self._name, _CANT):
            do(self._output)

    def finish(self, report: Report) -> None:
        def finished(output: Output) -> None:
            output.finish(report)
            for stream in self._streams:
                stream.flush()

        self._each(finished)
        notes = [*self._output.notes]
        if report.stops is not None and ending_of(self._name) in _OWN_TIMES and not getattr(self._output, "calls", 0):
            notes.append(said_of(report.stops))
        elif report.stops is not None and ending_of(self._name) in _TIMES and self.needs == EVENTS:
            notes.append("the times include stops at breakpoints; --latency and .svg subtract them")
        self.notes = [f"{self._name}: {note}" for note in notes]

    def close(self) -> None:
        self._output.close()
        for stream in self._streams:
            with contextlib.suppress(OSError):  # what couldn't be written has been said
                stream.close()


def check(wishes: Wishes) -> None:
    """Refuse what can't be meant, before anything is started. Raises UsageError."""
    if wishes.key and not wishes.latency:
        raise UsageError("--key says which hits --latency pairs; give both")
    if wishes.slower and not wishes.latency:
        raise UsageError("--slower says which pairs of --latency are shown one by one; give both")
    if wishes.before and not wishes.slower:
        raise UsageError("--before says how many hits are shown before a slow pair; give --slower, too")
    _check_stacks(wishes)
    tables_too = wishes.counting or wishes.histogram or wishes.sum or wishes.by or wishes.top or wishes.every
    if wishes.slower and (tables_too or wishes.prometheus or wishes.otlp or not wishes.only_pairs):
        raise UsageError("--slower shows slow pairs, and no tables or other files: leave those out")
    if (wishes.every or wishes.prometheus) and any(ending_of(name) not in (*TEXT, *_COUNTS) for name in wishes.files):
        raise UsageError("--every, --json and --prometheus are about tables, and -o NAME.html and others about hits;"
                         " make two traces")  # fmt: skip
    _check_files(wishes)
    if wishes.normalize and (wishes.counting or wishes.histogram or wishes.sum or wishes.latency) and not wishes.by:
        raise UsageError("--normalize is about strings in lines and of --by; these tables show none, so give --by, too")
    for name in wishes.files if wishes.calls else ():
        if ending_of(name) not in _OF_CALLS:
            raise UsageError(f"-o {name}: it shows hits one by one, and --report and --graph calls;"
                             f" {', '.join(_OF_CALLS)} draw those")  # fmt: skip
    if wishes.top and not (wishes.counting or wishes.by or wishes.latency or wishes.calls):
        raise UsageError("--top is about rows of the tables of --count, --by and --latency; ask for one of them")


def _check_files(wishes: Wishes) -> None:
    for name in wishes.files:
        ending = ending_of(name)
        if name == "-":
            raise UsageError("-o -: lines and tables go to standard output without -o, which takes the name of a file")
        if [*map(os.path.realpath, wishes.files)].count(os.path.realpath(name)) > 1:
            raise UsageError(f"-o {name}: two outputs can't have one file")
        if ending not in ENDINGS and ending not in TEXT:
            known = ", ".join(f"{known} ({one.what})" for known, one in ENDINGS.items())
            raise UsageError(f"-o {name}: no format has the ending {ending}; there are {known}, and .txt")
        if wishes.counting and ending not in (*TEXT, *_COUNTS):
            raise UsageError(f"-o {name}: it shows hits one by one, which --count doesn't keep; leave out --count")


def _check_stacks(wishes: Wishes) -> None:
    if not wishes.stacks or CALLS in wishes.by.split(","):
        return
    tables_too = wishes.counting or wishes.histogram or wishes.sum or wishes.by or wishes.latency or wishes.every
    other = next((name for name in wishes.files if ending_of(name) not in (*TEXT, *_OWN_TIMES, ".jsonl")), "")
    if other or tables_too:
        raise UsageError("--stack is shown with hits one by one, with --by stack, and in .jsonl, .svg, .folded and"
                         f" .pb.gz: leave out {f'-o {other}' if other else 'other tables'}")  # fmt: skip


def choose(wishes: Wishes, files: Outputs, stdout: IO[str]) -> All:
    """Return the outputs that were asked for. Raises UsageError and InputError.

    Tables, and lines where nothing else is asked for, go to `stdout`, or to a text file if one is named.
    """
    found = [_InFile(name, files, make) if name else make(stdout) for name, make in _makers(wishes)]
    if wishes.prometheus is not None:
        found.append(_made("prometheus", "Prometheus", wishes.prometheus, tables(wishes, io.StringIO())))
    if wishes.otlp is not None:
        found.append(_made("otlp", "Otlp", *wishes.otlp, wishes.latency, wishes.key))
    return All(found, goes_on=len(found) > 1)


def needs(wishes: Wishes) -> tuple[str, bool]:
    """Return what the outputs will need, before any of them is there, and whether they look at arguments. Raises
    UsageError."""
    all_of_them = All([make(io.StringIO()) for _, make in _makers(wishes)])
    return (EVENTS, True) if wishes.otlp else (all_of_them.needs, all_of_them.values)


def measures(wishes: Wishes) -> tuple[Measure, ...]:
    """Return what the tables need of hits, if no output needs more. Raises UsageError."""
    if wishes.latency:
        return (Measure(wishes.by, classes=True, pair=wishes.latency, key=wishes.key),)
    found = [Measure(wishes.by, wishes.sum)] if wishes.tells_sums else []
    return (*found, *([histogram_of(wishes.histogram, wishes.by)] if wishes.histogram else []))


def _makers(wishes: Wishes) -> list[tuple[str, Callable[[IO[str]], Output]]]:
    """Return the names of files ('' for standard output), with what makes the output to each. Raises UsageError."""
    check(wishes)
    texts = [name for name in wishes.files if ending_of(name) in TEXT]
    has_tables = bool(wishes.counting or wishes.histogram or wishes.tells_sums or wishes.latency or wishes.calls)

    def text(stream: IO[str]) -> Output:
        if wishes.screen:
            return _made("top", "Top", stream, lambda: tables(wishes, stream), wishes.heading, alone=wishes.live)
        if wishes.every:
            name = "EveryJson" if wishes.json else "Every"
            return _made("every", name, stream, lambda: tables(wishes, stream))
        lines = {"several": wishes.several, **_show(wishes)}
        return All(tables(wishes, stream) if has_tables else [_made("lines", "Lines", stream, **lines)])

    found = [("", text)] if not texts and (has_tables or not (wishes.files or wishes.otlp)) else []
    reports = [(name, _report_file) for name in wishes.files if wishes.calls and name.endswith(REPORT)]
    others = [name for name in wishes.files if name not in dict(reports)]
    return found + reports + [(name, text if name in texts else _format(ending_of(name), wishes)) for name in others]


def _report_file(stream: IO[str]) -> Output:
    return _made("calls", "CallTables", lambda tree, _: bool(stream.write(report_json(tree))), told=False)


def tables(wishes: Wishes, stream: IO[str]) -> list[Table]:
    """Return the tables that were asked for. Raises UsageError."""
    found: list[Any] = []
    top = {**({"top": wishes.top} if wishes.top else {}), **_show(wishes)}
    if wishes.calls:
        found.append(_made("calls", "CallTables", wishes.calls))
    if wishes.counting:
        found.append(_made("count", "Count", stream, wishes.live, wishes.folded, wishes.top, rates=wishes.every))
    if wishes.histogram:
        found.append(_made("histogram", "Histogram", stream, wishes.histogram, wishes.by, **top))
    if wishes.tells_sums:
        found.append(_made("by", "By", stream, wishes.by, of=wishes.sum, **top))
    if wishes.latency:
        begin, end = wishes.latency
        alone, where = wishes.alone, wishes.where
        if wishes.slower:
            least = round(wishes.slower * 1e9)
            found.append(_made("slow", "Slow", stream, begin, end, wishes.key, least, wishes.before, where=where))
            return found
        found.append(_made("latency", "Latency", stream, begin, end, wishes.key, by=wishes.by, where=where,
                           alone=alone, **top))  # fmt: skip
    return found


def _show(wishes: Wishes) -> dict[str, Any]:
    return {"show": importlib.import_module(".normal", __package__).normal_text} if wishes.normalize else {}


def _format(ending: str, wishes: Wishes) -> Callable[[IO[str]], Output]:
    if wishes.counting:
        return lambda stream: _made("summary", "SummaryFile", stream, ending, tables(wishes, stream))
    module, name, *_ = ENDINGS[ending]
    more: dict[str, Any] = {"heading": wishes.heading} if ending == ".html" else {}
    more |= {"calls": wishes.stacks} if ending in _OWN_TIMES else {}
    return lambda stream: _made(module, name, stream, **more)


def _made(module: str, name: str, *arguments: Any, **more: Any) -> Output:
    made: Output = getattr(importlib.import_module(f".{module}", __package__), name)(*arguments, **more)
    return made
