"""Tracers of others as engines of a trace: gdb, which holds a process, and bpftrace, to which the kernel reports hits.

What is traced is found by `selection` as for our own engines, and what these tools print becomes the same events.
`gdb` is a session with the script that runs inside it, `gdb_script`; `bpftrace` watches files for the worker, which
follows the processes, and `watching` is what it is told to do. `values` makes values of the bits that either reads.
(`backends/` drives the same two for a project's own tests.)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...errors import UsageError

if TYPE_CHECKING:
    from ..job import Job


def refuse_what_it_cannot(wish: Job) -> None:
    """Raise UsageError for what neither gdb nor bpftrace is asked to do."""
    wanted = wish.wanted
    if wanted.functions:
        raise UsageError(f"the engine {wish.engine} sees probes only, no functions; --engine patch, trap or inside do")
    if wanted.calls or wanted.returns:
        raise UsageError(
            f"the engine {wish.engine} sees probes only, no calls of library functions; --engine patch or trap do"
        )
