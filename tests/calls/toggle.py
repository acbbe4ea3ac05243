"""Watch a process' calls and let go of them: `toggle.py PID count|record TIMES`, or more often until any were seen.

It uses the patch engine itself, which arms in milliseconds where the command needs its start-up. Prints how often it
switched, how many calls it saw, and how many of those that it recorded had wrong arguments.
"""

from __future__ import annotations

import sys
import time

from usdtbuild.tracing.model import Plan
from usdtbuild.tracing.patch.engine import PatchEngine
from usdtbuild.tracing.patch.rings import Decoder
from usdtbuild.tracing.selection import Wanted, select
from usdtbuild.tracing.tracees import Tracees

_WORD = (1 << 64) - 1


def main(pid: int, what: str, times: int) -> None:
    """Toggle so many times."""
    targets = select(pid, Wanted(calls=("work_*",))).targets
    toggles = hits = bad = 0
    while toggles < times or not hits:
        tracees = Tracees()
        tracees.seize(pid)
        engine = PatchEngine(tracees, pid, Plan(what, targets, 8, 1 << 16))
        refused = engine.attach()
        # What is left behind for threads that may stand in it fills up the little room that a program at a fixed
        # address may have before its heap.
        full = toggles > 20 and any("no free memory" in each.reason for each in refused)
        if refused and not full:
            raise SystemExit(f"refused: {refused[0]}")
        raw: list[bytes] = []
        for _ in range(5):
            time.sleep(0.001)  # let it run, also where many others want the processor
            engine.collect(raw.append)
        with tracees.standing(pid):
            engine.detach()
        engine.collect(raw.append)
        tracees.stop(pid)
        tracees.detach(pid)
        toggles += 1
        hits += sum(engine.totals().counts.values())
        if what == "record":
            assert engine.layout is not None
            decoder = Decoder(engine.shape, engine.layout.specs)
            for event in (one for piece in raw for one in decoder.events(piece, int)):
                n, thrice, inverse = (int(value) for value in event.values[:3])  # type: ignore[arg-type]
                hits += 1
                bad += (thrice, inverse) != (3 * n & _WORD, ~n & _WORD)
        engine.close()
        if full:
            break
    print(f"toggles={toggles} hits={hits} bad={bad}")


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
