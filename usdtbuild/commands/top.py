"""`usdtbuild top`: the busiest probes, keys and latencies, as a live screen; a view of what `trace --every` tells."""

from __future__ import annotations

import os
import sys
from typing import Any

import click

from . import checked
from .trace import trace
from .trace_options import ARGUMENT, OPTIONS, Command

_EVERY = click.Option(["--every"], metavar="TIME", callback=checked.interval, default="1s", show_default=True,
                      help="Draw each time that so long has passed.")  # fmt: skip


def _run(**options: Any) -> None:
    """See which probes of a program are hit most often, as it runs; with rates, and the values of --by and --latency.

    Keys sort by name (n), count (c), rate (r), total (t), mean (m); q ends it, and the totals are printed. Where
    standard output is no terminal, or one that only prints (TERM=dumb), the tables are printed after each interval.
    """
    screen = sys.stdout.isatty() and os.environ.get("TERM", "dumb") not in {"", "dumb", "unknown"}
    trace(screen=screen, **options)


command = Command(
    name="top",
    short_help="See which probes, keys and latencies of a program are the busiest.",
    help=_run.__doc__,
    callback=_run,
    context_settings={"allow_interspersed_args": False},
    params=[*(_EVERY if one.name == _EVERY.name else one for one in OPTIONS if one.on_screen), ARGUMENT],
)
