"""Watch a process, and be killed before the first thing that is done to it; then before the second, and so on.

`python -m tests.tracing.dying PID count|record [FIRST]` uses the patch engine itself, in a child for each time. Prints
how many were killed, when one has come to the end.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import sys
import time
from typing import Any

from usdtbuild.tracing import ptrace
from usdtbuild.tracing.maps import Memory
from usdtbuild.tracing.patch.engine import PatchEngine
from usdtbuild.tracing.patch.injection import Shared
from usdtbuild.tracing.plan import Plan
from usdtbuild.tracing.selection import Wanted, select
from usdtbuild.tracing.tracees import Tracees

_MOST = 1000


class Steps:
    """Counts what is done, and ends this process instead of the last."""

    def __init__(self, last: int) -> None:
        self.left = last

    def before(self, function: Any) -> Any:
        """Return a function that is one step."""

        def step(*arguments: Any, **more: Any) -> Any:
            if not self.left:
                os.kill(os.getpid(), signal.SIGKILL)
            self.left -= 1
            return function(*arguments, **more)

        return step


def watch(pid: int, what: str, last: int) -> None:
    """Watch a process once, and let go; killed before the step `last`."""
    steps = Steps(last)
    targets = select(pid, Wanted(probes=("stress:*",))).targets
    for holder, name in (
        (ptrace, "call"), (ptrace, "wait"), (Memory, "write"), (os, "pwrite"), (os, "open"), (os, "ftruncate"),
        (fcntl, "flock"), (time, "sleep"), (Shared, "close_there"),
    ):  # fmt: skip
        setattr(holder, name, steps.before(getattr(holder, name)))
    tracees = Tracees()
    tracees.seize(pid)
    engine = PatchEngine(tracees, pid, Plan(what, targets, 8, 1 << 16))
    refused = engine.attach()
    if refused:
        raise SystemExit(f"refused: {refused[0]}")
    with tracees.standing(pid):
        engine.detach()
    tracees.stop(pid)
    tracees.detach(pid)


def main(pid: int, what: str, first: int = 0) -> None:
    """Be killed at each step from the first on."""
    for last in range(first, _MOST):
        child = os.fork()
        if not child:
            status = 1
            with contextlib.suppress(BrokenPipeError):
                try:
                    watch(pid, what, last)
                    status = 0
                except SystemExit as end:
                    print(end, flush=True)
            os._exit(status)
        status = os.waitpid(child, 0)[1]
        if status != signal.SIGKILL:
            print(f"killed={last - first} status={status}")
            return
        time.sleep(0.002)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], *map(int, sys.argv[3:]))
