"""Scripts for other tracers: programs in their languages that watch probes, with the arguments' names and types.

A script is text for people: it says what it does, and can be changed. Each language has a module here with a function
that writes one for a `Wish`; what it has no way to say it refuses (`CannotSayError`).
"""

from __future__ import annotations

from collections.abc import Callable

from . import bpftrace, dtrace, gdb, libbpf, perf, stap
from .wish import Wish

LANGUAGES: dict[str, Callable[[Wish], str]] = {
    "bpftrace": bpftrace.write,
    "libbpf": libbpf.write,
    "stap": stap.write,
    "perf": perf.write,
    "gdb": gdb.write,
    "dtrace": dtrace.write,
}
