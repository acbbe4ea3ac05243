"""A small recorded trace: two threads of a server, with every kind of argument and every kind of trouble in it."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

from usdtbuild.tracing.model import (
    FLOAT,
    INTEGER,
    MISSING,
    POINTER,
    PROBE,
    STRING,
    Argument,
    Event,
    Module,
    Report,
    Target,
    Unreadable,
)  # fmt: skip

NUMBER = Argument("id", "int", 4, True, INTEGER)
PATH = Argument("path", "char *", 8, False, STRING)
STATUS = Argument("status", "int", 4, True, INTEGER)
WHERE = Argument("where", "void *", 8, False, POINTER)
RATIO = Argument("ratio", "double", 8, False, FLOAT)
SERVER = Module("/opt/server", 0, "", 62)
WILD = b"</script><script>alert(1)</script>\xff\x1b[31m\n,\"';=]]>"


def target(number: int, name: str, *arguments: Argument, provider: str = "server", kind: str = PROBE) -> Target:
    return Target(number, kind, provider, name, SERVER, arguments, ())


TARGETS = (
    target(0, "request__start", NUMBER, PATH),
    target(1, "request__done", NUMBER, STATUS),
    target(2, "query__begin", Argument("", "", 8, False, INTEGER)),
    target(3, "query__end"),
    target(4, "mark", WHERE, RATIO, PATH),
)
EVENTS = tuple(
    Event(1_000_000_000 + time, 10, tid, number, values)
    for time, tid, number, values in (
        (0, 10, 0, (1, b"/a")),
        (1_000, 10, 2, (1 << 60,)),
        (1_500, 11, 1, (9, 500)),  # its begin was before the trace
        (2_000, 11, 0, (2, WILD)),
        (3_500, 10, 3, ()),
        (4_000, 10, 4, (0x7F00, float("nan"), None)),
        (5_000, 10, 1, (1, 200)),
        (6_000, 11, 2, (7,)),
        (7_000, 11, 1, (2, 404)),  # while the query goes on
        (7_500, 11, 3, ()),
        (8_000, 10, 0, (3, Unreadable(0x10))),
        (9_000, 10, 4, (0, 0.25, MISSING)),
    )
)
REPORT = Report(
    TARGETS, (3, 2, 2, 2, 2), (1, 0, 0, 0, 0), (), ("patch",), 999_999_000, 1_000_010_000,
    1_790_000_000_000_000_000, {10: "server", 11: "worker\x1b[0m"},
)  # fmt: skip


def written(make: Callable[..., Any], *more: Any, events: Any = EVENTS, targets: Any = TARGETS, **named: Any) -> str:
    """What an output writes of a trace, which comes in batches of two hits."""
    stream = io.StringIO()
    output = make(stream, *more, **named)
    output.start(targets)
    for i in range(0, len(events), 2):
        output.events(events[i : i + 2])
    output.finish(REPORT)
    return stream.getvalue()
