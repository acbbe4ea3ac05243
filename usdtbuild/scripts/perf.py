"""Scripts for perf, as shell scripts: it records hits, or counts them, and compares numbers."""

from __future__ import annotations

from ..tracing.model import Target
from .wish import CannotSayError, Wish, Words, heading, is_whole, unreadable


def write(wish: Wish) -> str:
    """Return a script."""
    if wish.by or wish.of or wish.latency:
        raise CannotSayError("perf counts hits or records them: --by, --sum, --histogram and --latency need another")
    events = [f"sdt_{target.provider}:{target.name}" for target in wish.targets]
    lines = ["#!/bin/sh", *heading(wish, "# ", "Run it as root: sh FILE -p PID, sh FILE COMMAND ARGS..., or sh FILE -a"
             " for all processes. A string is its address; arg1 is a probe's first argument.", "The program stays in"
             " perf's cache: perf buildid-cache --remove PROGRAM takes it out."),
             "set -e", f"perf buildid-cache --add '{wish.program}'"]  # fmt: skip
    # Of this program only: others in the cache may have probes of these names.
    lines += [f"perf probe -x '{wish.program}' --add '{event}'" for event in events]
    made = [event.replace("__", "_*") for event in events]  # newer versions name the event with one
    deleted = " ".join(f"--del '{event}'" for event in made)
    lines.append(f'trap "perf probe --quiet {deleted}" EXIT')
    chosen = []
    for target, event in zip(wish.targets, made):
        test = _WORDS.test(wish, target)
        chosen.append(f"-e '{event}'" + (f" --filter '{test}'" if test else ""))
    if wish.counts:
        lines.append(f'perf stat {" ".join(chosen)} "$@"')
    else:
        lines += [f'perf record -q -o perf.data {" ".join(chosen)} "$@"', "perf script -i perf.data"]
    return "\n".join(lines) + "\n"


def _number(target: Target, index: int) -> str:
    if not is_whole(target, index):
        raise unreadable("perf", target, index)
    return f"arg{index + 1}"


def _refuse(*_: object) -> str:
    raise CannotSayError("perf's filters compare numbers, not strings")


_WORDS = Words("perf", _number, _refuse, _refuse, "", "", _refuse, masks=False)
