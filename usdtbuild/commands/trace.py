"""`usdtbuild trace`: see probes and functions of a running program, with their arguments."""

from __future__ import annotations

import math
import os
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from ..errors import UsageError
from ..text import one_line
from ..tracing.call_report import REPORT
from .follow import Until, end, run
from .trace_options import ARGUMENT, CUT, JOB, LAST, OPTIONS, TRACE, WISHES, Command, clashing, fields, given, rules

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..tracing.last import Until as Awaited

_WHOLE = 512  # bytes of a string that is normalized
_SERVED = 1.0  # seconds: what is served is so old at most


def trace(argv: tuple[str, ...], *, screen: bool = False, **values: Any) -> None:
    """See a program's probes fire, from its start or while it runs, without root.

    Without -P and -F all probes of the program and of its libraries are traced, until it ends or you press Ctrl-C.
    """
    from .. import api, rights
    from ..tracing.outputs.choose import Wishes

    said = given({**values, "argv": argv})
    if "quiet" in said and "verbose" in said:
        raise UsageError("--quiet and --verbose contradict each other: leave one of them out")
    if "diff" in said:
        from .trace_calls import compare

        end(compare(said))
    if "normalize" in said:
        said.setdefault("string_size", _WHOLE)
    asked = api.trace(command=argv, children="no_children" not in said, **fields(TRACE, said)).asked
    job = asked.job
    again = said.keys() & {"every", "json", "prometheus"}
    counting = "count" in said or bool(again and not said.keys() & {"histogram", "by", "sum", "latency"})
    wishes = Wishes(counting, heading=asked.heading[:200], live=not argv, every=bool(again - {"prometheus"}),
                    otlp=(said["otlp"], _service(job.pids, job.exes, argv)) if "otlp" in said else None, screen=screen,
                    folded=_folded(said), several=job.several, **fields(WISHES, said))  # fmt: skip
    whose = rights.chosen(said.get("user", ""))
    os.environ.update(whose.environment() if whose is not None and "user" in said else {})
    job = job._replace(wanted=job.wanted._replace(order=rules()),
                       every=said.get("every", _SERVED if "prometheus" in said else math.inf), silent=screen,
                       until=_until(said), user=whose, env={**os.environ}, as_user="user" in said,
                       **fields(JOB, said))  # fmt: skip
    asked = asked._replace(job=job)
    if said.keys() & {"report", "graph", "sort"} or any(one.endswith(REPORT) for one in wishes.files):
        from .trace_calls import add_up

        end(add_up(asked, wishes, said))
    end(run(asked, wishes, Until("verbose" in said, "require_hits" in said)))


command = Command(
    name="trace",
    short_help="See probes and functions of a program fire, with their arguments.",
    help=trace.__doc__,
    callback=trace,
    context_settings={"allow_interspersed_args": False},
    params=[*OPTIONS, ARGUMENT],
)


def _until(said: Mapping[str, Any]) -> Awaited | None:
    """Return what ends a trace that keeps the last hits, None if nothing does. Raises UsageError for what doesn't go
    together."""
    from ..tracing.last import until

    if "last" in said and (other := clashing(LAST, said)):
        raise UsageError(f"--last keeps the last hits one by one, and doesn't go with {other}")
    if said.keys() >= {"last", "returns", "where"}:
        raise UsageError("--last keeps hits that pass at once, and --filter tests returns later: leave one of them out")
    adds_up = bool(said.keys() & {"report", "graph"})
    if fields(CUT, said) and not adds_up:
        raise UsageError("--depth, --min-time, --below, --not-below and --from choose the calls of --report and"
                         " --graph: give one of those")  # fmt: skip
    if "awaited" not in said or adds_up:
        return None
    if "last" not in said:
        raise UsageError("--until says when --last writes what it has kept: say how much, --last N, SIZE or TIME")
    return until(said["awaited"])


def _service(pids: tuple[int, ...], exes: tuple[str, ...], argv: tuple[str, ...]) -> str:
    """Return what a program is called where many are watched."""
    from ..tracing.session import thread_name

    path = (*argv, *exes)[:1]
    return one_line(PurePath(path[0]).name if path else thread_name((*pids, 0)[0])) or "program"


def _folded(said: Mapping[str, Any]) -> str:
    """Return which rows of 0 are one line: libraries' where nothing is chosen, all where names were only patterns."""
    patterns = [one for name in ("probes", "functions", "calls") for one in said.get(name, ())]
    if not patterns:
        return "" if said.keys() & {"exclude", "modules"} else "libraries"
    return "all" if all(set(one) & set("*?[") for one in patterns) else ""
