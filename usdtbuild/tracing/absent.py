"""Patterns that match nothing of a program: which they are, and which names that it has were perhaps meant.

It looks at files anew, and only if there is such a pattern: what is traced doesn't say what else there is.
"""

from __future__ import annotations

import contextlib
import difflib
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from ..errors import InputError, UsdtError
from ..inspection.demangle import all_spellings, demangle_if_possible, template_name, without_parameters
from ..inspection.targets import Loaded
from ..text import one_line
from .job import Job
from .model import CALL, ENTER, PROBE, Module, Refusal, Report, Target
from .selection import CALL_RULE, FUNCTION_RULE, PROBE_RULE, Wanted, called, matches, of_file, spellings

_KINDS = {PROBE_RULE: PROBE, FUNCTION_RULE: ENTER, CALL_RULE: CALL}
_WORDS = {PROBE_RULE: "probes", FUNCTION_RULE: "functions", CALL_RULE: "library calls"}
_CLOSE = 3  # names that were perhaps meant
_FEW, _LONG = 10, 120  # names that are told, and their characters


class AbsentError(UsdtError):
    """Nothing that is traced has a name that something must have."""

    def __init__(self, message: str, pattern: str = "") -> None:
        super().__init__(message)
        self.pattern = pattern


class Absent(NamedTuple):
    """A pattern that nothing matches (`rule` is the letter of its option), and the names that there are instead, and
    those of C++ functions without parameters; `option` is what stands before the pattern, if not that letter.
    `of_files` is what was asked for if that was all of some files, or with `without` all probes."""

    rule: str
    pattern: str
    names: tuple[str, ...]
    others: tuple[str, ...] = ()
    option: str = ""
    of_files: str = ""
    cure: str = ""  # what to write instead, if that is known
    without: tuple[str, ...] = ()  # patterns of -x, if it is these that leave out all that matches

    @property
    def asked(self) -> str:
        """What was asked for, as on the command line."""
        return self.of_files or f"{self.option or f'-{self.rule} '}{self.pattern}"

    @property
    def near(self) -> list[str]:
        """Names that were perhaps meant."""
        meant = {name: name for name in (*self.others, *self.names)}
        if ":" not in self.pattern:
            meant = {name.rpartition(":")[2]: name for name in meant}
        close = difflib.get_close_matches(self.pattern, meant, _CLOSE)
        near = close if self.rule == PROBE_RULE else [*dict.fromkeys(meant[text] for text in close)]
        templates = (without_parameters(name) for name in self.names if self.rule == FUNCTION_RULE and "<" in name)
        return [*dict.fromkeys(one for one in templates if template_name(one) == self.pattern), *near][:_CLOSE]

    @property
    def was(self) -> str:
        """What there is to say when the trace has ended."""
        return str(self) if self.without else f"nothing has matched {self.asked}"

    def __str__(self) -> str:
        if self.without:
            return f"-x {' -x '.join(self.without)} leaves out all {self.of_files or f'that {self.asked} matches'}"
        text, near = f"nothing matches {self.asked}", self.near
        if self.cure:
            return f"{text}; {self.cure}"
        if near:
            text += f"; did you mean {' or '.join(map(one_line, near))}?"
        left = len(self.names) - _FEW
        if not self.names:
            return f"{text}; there are no {_WORDS[self.rule]}{' in such files' if self.of_files else ''}"
        if near and (left > 0 or len(near) >= len(self.names)):
            return text
        few = (name if len(name) <= _LONG else f"{name[: _LONG - 3]}..." for name in self.names[:_FEW])
        there = f"there are {', '.join(map(one_line, few))}" + (f" and {left} more" if left > 0 else "")
        return f"{text} T{there[1:]}" if near else f"{text}; {there}"


def unmatched(wanted: Wanted, targets: Sequence[Target], refused: Sequence[Refusal] = ()) -> list[tuple[str, str]]:
    """Return the patterns that match no target by the name that it is shown with, nor what was refused; functions may
    have others. Where only -x and --module say what to trace, that is all probes."""
    also = [_called(one) for one in refused]
    named = {rule: [*also, *(called(one) for one in targets if one.kind == _KINDS[rule])] for rule in _KINDS}
    takes_probes = wanted.is_open and not targets
    every = [(PROBE_RULE, "*")] if takes_probes and (wanted.exclude or wanted.modules) else []
    return [
        (rule, pattern)
        for rule, pattern in (*wanted.ordered, *every)
        if rule in _KINDS and not any(matches(names, of_file(pattern)[1]) for names in named[rule])
    ]


def _called(refused: Refusal) -> tuple[str, ...]:
    return spellings(*refused.what.split(":", 1)) if ":" in refused.what else (refused.what,)


def refused_as(pattern: str, refused: Sequence[Refusal]) -> list[Refusal]:
    """Return what of that was refused which a pattern means."""
    return [one for one in refused if matches(_called(one), pattern)]


def still(missing: Sequence[Absent], wanted: Wanted, report: Report) -> list[Absent]:
    """Return those of the patterns that matched nothing when a trace began that match nothing at its end."""
    left = unmatched(wanted, report.targets, report.refusals) if missing else []
    return [one for one in missing if (one.rule, one.pattern) in left]


def absent(wish: Job, targets: Sequence[Target], pid: int, pair: Sequence[str] = ()) -> list[Absent]:
    """Return the patterns that match nothing of a process, or of the program that it was, if it has ended; nor of
    the others that the trace is about. `pair` are the names of `--latency` where nothing else says what to trace.

    Of a command, -x alone may leave out what its libraries have, which may be there or not yet: that is none.
    """
    found, wanted = [], wish.wanted
    where = f"--module {' '.join(wanted.modules)}" if wanted.modules else ""
    options = {wish.cut.begin: "--from ", wish.cut.end: "--until ", **dict.fromkeys(pair, "--latency ")}
    is_of_calls = wish.tree and wanted.is_open
    for rule, pattern in unmatched(wanted, targets) if not is_of_calls else ():
        names: dict[str, Sequence[str]] = {}  # the program's names stand before those of its libraries
        others = set[str]()
        for image in _images(wish, wish.pids or (pid,)):
            with contextlib.suppress(InputError):
                for title, more in sorted(_names(image, rule)):
                    names[title] = more
                    others.update(more)
        all_of_files = pattern == "*" and not names
        of_files = where if all_of_files else ""
        is_there = matches((*names, *others), of_file(pattern)[1])
        is_seen = any(one.kind == _KINDS[rule] for one in targets)
        if is_there and not is_seen and wanted.exclude and not _takes(wanted, rule, names):
            if wish.argv and wanted.is_open:
                continue
            every = f"probes{' of ' * bool(where)}{where}" if wanted.is_open else ""
            found.append(Absent(rule, pattern, (), of_files=every, without=wanted.exclude))
        elif not is_there and (names or not is_seen) and (of_files or not wanted.is_open):
            short = tuple(sorted(filter(_is_short, others)))
            option = options.get(pattern, "") if pattern else ""
            cure = _cure(wish, wish.pids or (pid,), pattern) if pattern in pair else ""
            found.append(Absent(rule, pattern, tuple(names), short, option, of_files, cure))
    return found


def _takes(wanted: Wanted, rule: str, names: Mapping[str, Sequence[str]]) -> bool:
    """Whether any of these is wanted; all that each is called stands beside it. Names of `FILE!PATTERN` may be."""
    if any(of_file(pattern)[0] is not None for _, pattern in wanted.ordered):
        return True
    if rule == PROBE_RULE:
        return any(wanted.takes_probe(*title.split(":", 1)) for title in names)
    takes = wanted.takes_function if rule == FUNCTION_RULE else wanted.takes_call
    return any(map(takes, names.values()))


def _cure(wish: Job, pids: Sequence[int], pattern: str) -> str:
    """Return how functions or library calls are paired, if some are called as a name of `--latency` that no probe has:
    the program's functions, what is called, and libraries' functions."""
    images, name = list(_images(wish, pids)), pattern.removesuffix(":return")
    looks = ((FUNCTION_RULE, images[:1]), (CALL_RULE, images), (FUNCTION_RULE, images[1:]))
    for rule, files in looks:
        for image in files:
            with contextlib.suppress(InputError):
                if any(matches((title, *more), name) for title, more in _names(image, rule)):
                    return f"there are {_WORDS[rule]} of this name: give -{rule} {shlex.quote(name)} --returns, too"
    return ""


def _is_short(name: str) -> bool:
    return "::" in name and not name.endswith(")")


def _images(wish: Job, pids: Sequence[int]) -> Iterator[Loaded]:
    """Yield the files of processes of this machine that are of interest; of one that has ended its program's."""
    from ..inspection.targets import Loaded, files, loaded

    mapped: list[Loaded] = []
    for pid in () if wish.remote or wish.emulator else pids:
        with contextlib.suppress(InputError, OSError):
            there = {one.image.path for one in mapped}
            mapped += [one for one in loaded(pid, lambda error: None) if one.image.path not in there]
    if not mapped and (wish.argv or wish.exes):
        with contextlib.suppress(InputError, OSError):
            mapped = [Loaded(image, 0) for image in files(wish.program or wish.exes[0], lambda error: None)]
    yield from (one for one in mapped if wish.wanted.takes_module(one.image.path))


def _names(one: Loaded, rule: str) -> Iterator[tuple[str, Sequence[str]]]:
    if rule == PROBE_RULE:
        from ..inspection.probes import inspect

        for probe in inspect(one.image).probes:
            yield f"{probe.provider}:{probe.name}", spellings(probe.provider, probe.name)
    elif rule == FUNCTION_RULE:
        from ..functions.read import FunctionReader

        functions = FunctionReader(one.image).report.functions
        written = demangle_if_possible(name for function in functions for name in function.names)
        for function in functions:
            yield written.get(function.name, function.name), all_spellings(function.names, written)
    else:
        from .library_calls import call_targets

        taken: list[Sequence[str]] = []

        def note(names: Sequence[str]) -> bool:
            taken.append(names)
            return False

        list(call_targets(one, Module(one.image.path, one.bias, "", one.image.machine), note, 0))
        written = demangle_if_possible(names[0] for names in taken)
        yield from ((written.get(names[0], names[0]), names) for names in taken)
