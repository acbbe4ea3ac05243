"""`usdtbuild top`: the busiest probes, keys and latencies, as a live screen; a view of what `trace --every` tells."""

from __future__ import annotations

import os
import sys
from typing import Any

import click

from . import checked, trace

# Options of `trace` that say nothing to a screen, with what each is when it isn't given. Those that `trace` gets in
# another way are about calls, which have no screen.
LEFT_OUT: dict[str, Any] = {
    "count": False, "histogram": None, "report": False, "graph": None, "limit": None, "outputs": (), "as_json": False,
    "sort": None, "diff": None,
    "require_hits": False, "remote": "", "emulator": "", "sysroot": "", "top": None, "last": None, "awaited": None,
    "lossless": None, "slower": None, "before": None,
    "verbose": False, "prometheus": None, "otlp": None,
}  # fmt: skip
_EVERY = click.Option(["--every"], metavar="TIME", callback=checked.interval, default="1s", show_default=True,
                      help="Draw each time that so long has passed.")  # fmt: skip


def _run(**options: Any) -> None:
    """See which probes of a program are hit most often, as it runs; with rates, and the values of --by and --latency.

    Keys sort by name (n), count (c), rate (r), total (t), mean (m); q ends it, and the totals are printed. Where
    standard output is no terminal, or one that only prints (TERM=dumb), the tables are printed after each interval.
    """
    assert trace.command.callback is not None
    screen = sys.stdout.isatty() and os.environ.get("TERM", "dumb") not in {"", "dumb", "unknown"}
    trace.command.callback(**options, **LEFT_OUT, screen=screen)


command = trace.Ordered(
    name="top",
    short_help="See which probes, keys and latencies of a program are the busiest.",
    help=_run.__doc__,
    callback=_run,
    context_settings={"allow_interspersed_args": False},
    params=[
        _EVERY if one.name == "every" else one
        for one in trace.command.params
        if one.name not in LEFT_OUT and one.expose_value
    ],
)
