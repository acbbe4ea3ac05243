"""Runs many cases of a fuzzer in one forked child, within bounds: what ends the child is told with the case's name.

A target has two functions: `make(source)` gives an input, a few bytes that are changed ones of its corpus, and
`use(content)` hands it to the product. Corpora are in corpus/NAME: inputs that found something, or that lead far.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import resource
import signal
import traceback
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from .conftest import KEPT, MEMORY, SECONDS, Case

CORPUS = Path(__file__).resolve().parent / "corpus"
BATCH = 100
# Of processor time, and by the clock: what waits for ever takes none, and a busy machine is no failure.
TIMERS = (signal.ITIMER_PROF, signal.SIGPROF, SECONDS), (signal.ITIMER_REAL, signal.SIGALRM, 12 * SECONDS)


class Failed(NamedTuple):
    """A case that failed: its input, and why."""

    name: str
    content: bytes
    why: str


class TookTooLongError(BaseException):
    """No error that anybody catches."""


def corpus(name: str) -> dict[str, bytes]:
    """Return the kept inputs of a target, by file name."""
    return {path.name: path.read_bytes() for path in sorted((CORPUS / name).iterdir())}


def hold(name: str, cases: Iterator[Case], make: Callable[[Any], bytes], use: Callable[[bytes], object]) -> None:
    """Run the kept inputs of a target, then its cases; fail with the first that does what none may do."""
    kept = corpus(name)
    assert kept
    _batch([(f"{name}/{file}", partial(bytes, content)) for file, content in kept.items()], use)
    while batch := list(islice(cases, BATCH)):
        _batch([(case.name, partial(make, case.source)) for case in batch], use)


def _batch(inputs: list[tuple[str, Callable[[], bytes]]], use: Callable[[bytes], object]) -> None:
    source, sink = os.pipe()
    pid = os.fork()
    if not pid:
        with contextlib.suppress(BaseException):
            os.close(source)
            with os.fdopen(sink, "wb") as file:
                _all(inputs, use, file)
            os._exit(0)
        os._exit(1)
    os.close(sink)
    with os.fdopen(source, "rb") as file:
        last = Failed("", b"", "")
        for _ in range(len(inputs) + 1):
            try:
                last = pickle.load(file)
            except EOFError:
                break
            if last.why:
                break
    _, status = os.waitpid(pid, 0)
    why = last.why or (f"it ended with {os.waitstatus_to_exitcode(status)}" if status else "")
    if why:
        KEPT.mkdir(parents=True, exist_ok=True)
        path = KEPT / last.name.replace(" ", "-").replace("/", "-")
        path.write_bytes(last.content)
        pytest.fail(f"{last.name}: {why}\n{path}", pytrace=False)


def _all(inputs: list[tuple[str, Callable[[], bytes]]], use: Callable[[bytes], object], file: Any) -> None:
    for name, make in inputs:
        failed = _one(name, make(), use, file)
        if failed:
            pickle.dump(failed, file)
            return


def _one(name: str, content: bytes, use: Callable[[bytes], object], file: Any) -> Failed | None:
    """Use one input; say before which it is, since it may end us."""
    pickle.dump(Failed(name, content, ""), file)
    file.flush()
    now = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (now + MEMORY, resource.RLIM_INFINITY))
    for timer, number, seconds in TIMERS:
        signal.signal(number, _too_long)
        signal.setitimer(timer, seconds)
    try:
        use(content)
    except BaseException:
        return Failed(name, content, traceback.format_exc()[-3000:])
    finally:
        for timer, _, _ in TIMERS:
            signal.setitimer(timer, 0)
    return None


def _too_long(*_: object) -> None:
    raise TookTooLongError
