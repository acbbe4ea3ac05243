"""bpftrace as an engine: the kernel reports hits, and the worker follows the processes that they are of.

A bpftrace watches probes of files, in all processes at once; files that come later get another one. Nothing is
changed in a process by us: breakpoint and semaphore are the kernel's, which takes them out however bpftrace ends.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import secrets
import select
import subprocess
import tempfile
import time
from collections.abc import Callable, Collection, Container, Mapping, Sequence
from pathlib import Path

from ...errors import InputError
from ...inspection.process import mapped_files, open_mapped
from ..arguments import number
from ..errors import TracerError, UnwantedError
from ..job import Job
from ..measures import Tables, added
from ..model import COUNT, MISSING, STRING, Event, Refusal, Target, Totals, Value
from ..plan import Plan
from . import names, watching
from .program import KEYS, Program, attached, expressions, string_length
from .texts import Texts

_STARTING = 180.0  # seconds; attaching to a hundred probes takes one, and a minute on a machine that is very busy
_PATIENCE = 60.0  # seconds, for the last hits
_DRAIN = 5.0  # seconds in which it must say something, until the last hits have come
_QUIET = 2_000_000_000  # nanoseconds after which a processor that says nothing is taken for one that is switched off
_BETWEEN = 100_000_000  # nanoseconds by which a hit may have been counted before it says its time
_PIPE = 1 << 20
_WARNING = re.compile(r"^(?:WARNING: |[^\n:]*:[0-9:-]+: WARNING: [^\n]*\n[^\n]*\n *~)[^\n]*\n?", re.MULTILINE)
_MOST_MISSING = 20  # for each of them bpftrace is started again


class _NotAttachedError(TracerError):
    """One probe can't be attached, which ends older versions of bpftrace."""

    def __init__(self, target: Target) -> None:
        super().__init__(f"bpftrace can't attach {target.title}")
        self.target = target


class Watcher:
    """One bpftrace, and what it has said."""

    def __init__(
        self, plan: Plan, targets: Sequence[Target], files: Sequence[int], every: float, guard: str,
        in_time: Callable[[], object],
    ) -> None:  # fmt: skip
        """Start it, and wait until all probes are in place. Raises TracerError, and what `in_time` does.

        `files` are descriptors of the targets' files, which it closes; `every` and `guard` are as in `Program.text`.
        """
        self.targets, self.program = targets, Program(plan, targets)
        self.expressions = [expressions(one) for one in targets]
        self.hits: list[str] = []
        self.separator = "\x1f" + secrets.token_hex(8)  # nobody can know it, and put it into a string
        self.maps: dict[str, dict[str, int]] = {}
        self._coming: dict[str, dict[str, int]] = {}
        self.dropped = 0
        self._heard: dict[int, int] = {}  # processor -> time up to which all its hits are here
        self._counted_at = 0  # the time of the last word that maps follow, and of the last maps
        self.counted = 0
        self._rest = b""
        self._what = plan.what
        self._folder = tempfile.TemporaryDirectory(prefix="usdtbuild-")
        folder = Path(self._folder.name)
        # bpftrace's language has no way to write every path, and some files have none, or not the one they had.
        paths = {file: folder / f"f{file}" for file in files}
        for file, path in paths.items():
            path.symlink_to(f"/proc/{os.getpid()}/fd/{file}")
        self._files = list(paths)
        self._errors = folder / "errors"
        self.longest = string_length(targets, plan.string_size) - 1  # without the NUL
        length = str(self.longest + 1)
        pages = max(64, plan.buffer_size // 8 // 4096)  # for each processor, in memory that can't be swapped
        settings = {  # by their old names and their new ones
            "BPFTRACE_STRLEN": length, "BPFTRACE_MAX_STRLEN": length,
            "BPFTRACE_MAP_KEYS_MAX": str(KEYS), "BPFTRACE_MAX_MAP_KEYS": str(KEYS),
            "BPFTRACE_PERF_RB_PAGES": str(1 << pages.bit_length() - 1), "BPFTRACE_MAX_PROBES": "65536",
        }  # fmt: skip
        probes = [attached(paths[file], target) for file, target in zip(files, targets)]
        script = self.program.text(probes, guard, self.separator, every)
        (folder / "script").write_text("\n".join([*watching.settings(), script]), encoding="utf-8")
        # By lines, because without a buffer bpftrace 0.27 writes a few bytes at a time, and is too slow for its hits.
        words = [watching.find() or "bpftrace", "-f", "json", "-B", "line", str(folder / "script")]
        with self._errors.open("wb") as errors:
            self.process = subprocess.Popen(
                words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors, env={**os.environ, **settings}
            )
        assert self.process.stdout is not None
        self._output = self.process.stdout.fileno()
        os.set_blocking(self._output, False)
        with contextlib.suppress(OSError):
            fcntl.fcntl(self._output, 1031, _PIPE)  # F_SETPIPE_SZ, <linux/fcntl.h>
        named = list(zip(probes, targets))
        deadline = time.monotonic() + _STARTING
        try:
            while not self.counted:  # it reads what probes have said once all are attached
                if time.monotonic() > deadline:
                    raise TracerError(f"bpftrace took too long: {self._said()}")
                in_time()  # it may say much before that
                self._listen()
        except (TracerError, UnwantedError):
            said = self._errors.read_text("utf-8", "replace")
            self.close()
            for line in re.findall("^ERROR: Error attaching probe: (.*)$", said, re.MULTILINE):
                for name, target in named:
                    if line.partition(",")[0] == name:
                        raise _NotAttachedError(target) from None
            raise
        said = self._errors.read_text("utf-8", "replace")
        self.missing = [target for name, target in named if f"Unable to attach probe: {name}." in said]

    def _listen(self) -> bool:
        """Take what it prints within a moment; return whether that was something. Raises TracerError."""
        said = bool(select.select([self._output], [], [], 0.1)[0])
        self.read()
        return said

    def _said(self) -> str:
        # Newer ones warn of settings' old names, of limits, and of lines in the program, which is no reason to end.
        said = _WARNING.sub("", self._errors.read_text("utf-8", "replace"))
        return said.strip()[-1000:] or "it said nothing"

    def read(self) -> None:
        """Take what it has printed, a pipe full at most: it may print faster than it is heard. Raises TracerError if it
        has ended."""
        left = _PIPE
        while left > 0:
            try:
                raw = os.read(self._output, left)
            except BlockingIOError:
                return
            if not raw:
                raise TracerError(f"bpftrace has ended: {self._said()}")
            left -= len(raw)
            *lines, self._rest = (self._rest + raw).split(b"\n")
            for line in lines:
                self._take(line.decode("utf-8", "surrogateescape"))

    def _take(self, line: str) -> None:
        record = watching.decode(line)
        kind, data = record.get("type"), record.get("data", "")
        if kind == "printf":
            if data.startswith("h "):
                self.hits.append(data)
                return
            word, *numbers = data.split()
            if word == "t":
                self._heard[int(numbers[0])] = int(numbers[1])
            elif word == "m":
                self._counted_at = int(numbers[0])
            elif word == "e":
                self.maps, self._coming, self.counted = self._coming, {}, self._counted_at
        elif kind == "map":
            for name, values in data.items():  # large numbers are texts for bpftrace 0.27
                self._coming[name] = {keys: int(value) for keys, value in values.items()}
        elif kind == "lost_events":
            self.dropped += int(data["events"])

    def safe(self) -> int:
        """Return a time up to which all hits are here."""
        if self._what == COUNT:
            return 1 << 63
        latest = max(self._heard.values(), default=0)
        if len(self._heard) < (os.cpu_count() or 1):
            return latest - _QUIET
        return min(one for one in self._heard.values() if latest - one < _QUIET)

    def drain(self, until: int) -> None:
        """Wait until all hits up to a time are here, the counts of them, and all hits that are counted. Raises
        TracerError."""
        self._wait_for(lambda: min(self.safe(), self.counted) >= until)
        maps, seen = self.maps, time.monotonic_ns()
        self._wait_for(lambda: self.safe() >= seen + _BETWEEN)
        self.maps = maps

    def _wait_for(self, reached: Callable[[], bool]) -> None:
        begun = heard = time.monotonic()
        while not reached():
            now = time.monotonic()
            if now > min(heard + _DRAIN, begun + _PATIENCE):
                raise TracerError(f"bpftrace says nothing any more: {self._said()}")
            heard = now if self._listen() else heard  # it prints large tables for seconds

    def close(self) -> None:
        """End it; the kernel takes its probes out."""
        self.process.kill()
        with contextlib.suppress(OSError):
            self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()
        for file in self._files:
            os.close(file)
        self._files = []
        self._folder.cleanup()
        watching.forget_events(self.process.pid)


class Kernel:
    """All of a trace by bpftrace."""

    name = "bpftrace"

    def __init__(
        self, wish: Job, processes: Container[int], roots: Collection[int], in_time: Callable[[], object] = int
    ) -> None:
        """`processes` are all that ever were of the trace; `roots` are those that it is about. `in_time` raises an
        error when it is too late to begin."""
        self._in_time = in_time
        self._wish = wish
        self._processes: Container[int] = processes if wish.children else roots
        only = 0 if wish.children or wish.several else next(iter(roots or wish.pids))
        # To look at the kernel's types takes half a second, for which --duration of a process has no time.
        tests = f"pid == {only}" if only else "", watching.of_tracees() if wish.argv else ""
        self._guard = " && ".join(filter(None, tests))
        self._watchers: list[Watcher] = []
        self._watched: set[int] = set()
        self._texts = Texts(wish.string_size)
        self._recorded: dict[int, int] = {}
        self._unread_texts = 0  # hits that have one
        self._until, self._drained = 1 << 63, False
        self._totals: Totals | None = None  # once it is over
        self._tables: Tables = {}

    def arm(self, pid: int, plan: Plan) -> list[Refusal]:
        """Watch what isn't watched yet of a process; return what can't be. Raises TracerError."""
        self._texts.learn(pid)
        new = [one for one in plan.targets if one.number not in self._watched]
        self._watched.update(one.number for one in new)
        judged = [(one, names.why_not(f"{one.provider}:{one.name}") or self._unread(one)) for one in new]
        refusals = [Refusal(one.title, why) for one, why in judged if why]
        new = [one for one, why in judged if not why]
        opened: dict[str, int] = {}
        for file in mapped_files(pid) if new else ():
            if any(one.module.path == file.path for one in new):
                try:
                    with open_mapped(pid, file) as one:
                        opened[file.path] = os.dup(one.descriptor)
                except (InputError, OSError) as error:
                    refusals.append(Refusal(file.path, str(error)))
        try:
            missing = self._watch(plan, [one for one in new if one.module.path in opened], opened)
        finally:
            for file_ in opened.values():
                os.close(file_)
        return refusals + [Refusal(one.title, "the kernel lets bpftrace attach nothing there") for one in missing]

    def _unread(self, target: Target) -> str:
        """Return why a filter can't be answered, '' if it can: hits would fail it that may pass."""
        if self._wish.where is None:
            return ""
        texts = expressions(target)
        lacking = [target.arguments[at].name or f"arg{at}" for at in sorted(self._wish.where.asks(target))
                   if not texts[at]]  # fmt: skip
        which = ", ".join(lacking)
        return f"bpftrace can't read {which}, which --filter asks for; another engine can" if which else ""

    def _watch(self, plan: Plan, targets: list[Target], opened: Mapping[str, int]) -> list[Target]:
        """Start a bpftrace for targets in open files; return those that it can't attach. Raises TracerError."""
        missing: list[Target] = []
        while targets:
            files = {path: os.dup(opened[path]) for path in {one.module.path for one in targets}}
            try:
                descriptors = [files[one.module.path] for one in targets]
                watcher = Watcher(plan, targets, descriptors, self._wish.every, self._guard, self._in_time)
            except _NotAttachedError as error:
                missing.append(error.target)
                if len(missing) > _MOST_MISSING:
                    raise
                targets = [one for one in targets if one is not error.target]
                continue
            self._watchers.append(watcher)
            return missing + watcher.missing
        return missing

    def take(self) -> tuple[list[Event], int]:
        """Return what was hit since the last time, and the time up to which that is all. Raises TracerError."""
        events = []
        for one in self._watchers:
            if not self._drained:
                one.read()
            hits, one.hits = one.hits, []
            for hit in hits:
                event = self._event(one, hit)
                if event is not None:
                    self._recorded[event.target] = self._recorded.get(event.target, 0) + 1
                    if event.time <= self._until:
                        events.append(event)
        return events, min((one.safe() for one in self._watchers), default=1 << 63)

    def _event(self, watcher: Watcher, hit: str) -> Event | None:
        head, *texts = hit.split(watcher.separator)
        _, index, when, pid, tid, *raw = map(_integer, head.split())
        if pid not in self._processes:
            return None
        target = watcher.targets[index]
        values: list[Value] = []
        for text, argument, bits, *operands in zip(
            watcher.expressions[index], target.arguments, raw, *(site.operands for site in target.sites)
        ):
            if not text:
                values.append(MISSING)
            elif argument.kind == STRING:
                found = texts.pop(0).encode("utf-8", "surrogateescape") if texts else b""
                values.append(self._texts.value(pid, bits, found, when, watcher.longest))
            else:
                values.append(number(argument, operands[0], bits))
        is_unread = any(one is MISSING and text for one, text in zip(values, watcher.expressions[index]))
        self._unread_texts += is_unread and when <= self._until
        return Event(when, pid, tid, target.number, tuple(values))

    def totals(self) -> Totals:
        """Return hits so far, and those of them that came too fast for bpftrace, by target."""
        if self._totals is not None:
            return self._totals
        counts, lost = Totals({}, {})
        for one in self._watchers:
            found = one.program.hits(one.maps, self._processes)
            if one.program.plan.what == COUNT:
                counts.update(found)
            elif one.dropped or self._drained:
                # The kernel counts at another moment than it prints, so until all is here only what is known to be lost
                # is called that. bpftrace 0.27 doesn't say that it has lost hits while more come than it can print.
                lost.update({key: max(0, count - self._recorded.get(key, 0)) for key, count in found.items()})
        return Totals(counts, lost)

    def notes(self) -> list[str]:
        """Return what a user must know at the end."""
        if not self._unread_texts:
            return []
        number = f"{self._unread_texts} hit{'s' * (self._unread_texts > 1)}"
        return [f"warning: bpftrace could not read a text in {number}, mostly because the program had not touched its"
                " page yet: it is shown as ?, and passes no filter; without --engine bpftrace it is read"]  # fmt: skip

    def tables(self) -> Tables:
        """Return what hits have added up to so far."""
        if self._totals is None:
            self._tables = {}
            for one in self._watchers:
                added(self._tables, one.program.tables(one.maps, self._processes))
        return self._tables

    def finish(self, until: int) -> list[Event]:
        """End the trace with what was hit up to a time, CLOCK_MONOTONIC in ns; return what wasn't taken yet."""
        self._until = until
        try:
            for one in self._watchers:
                one.drain(until)
            self._drained = True
            events, _ = self.take()
            self._totals, _ = self.totals(), self.tables()
            return events
        finally:
            self.close()

    def close(self) -> None:
        """End all of it."""
        while self._watchers:
            self._watchers.pop().close()


def _integer(word: str) -> int:
    return int(word) if word.isdigit() else 0
