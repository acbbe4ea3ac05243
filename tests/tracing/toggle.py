"""Switch a process' probes on and off: `toggle.py PID count|record [BUFFER [TIMES]]`. Checks what it records.

It uses the patch engine itself, which arms in milliseconds where the command needs its start-up. Prints how often it
switched, how many hits it saw and how many of their arguments were wrong, once the process has ended.
"""

from __future__ import annotations

import sys
import time

from usdtbuild.tracing.errors import TracerError
from usdtbuild.tracing.maps import areas
from usdtbuild.tracing.model import Plan
from usdtbuild.tracing.patch.engine import PatchEngine
from usdtbuild.tracing.patch.rings import Decoder
from usdtbuild.tracing.selection import Wanted, select
from usdtbuild.tracing.tracees import Tracees

TEXT = b"stress"


def main(pid: int, what: str, buffer: int = 1 << 16, times: int = 0) -> None:
    """Toggle until the process has ended, or so many times; `buffer` is the size of a ring."""
    targets = select(pid, Wanted(probes=("stress:*",))).targets
    toggles = hits = bad = 0
    try:
        while True:
            tracees = Tracees()
            tracees.seize(pid)
            engine = PatchEngine(tracees, pid, Plan(what, targets, 8, buffer))
            refused = engine.attach()
            # What is left behind for threads that may stand in it fills up the little room that a program at a fixed
            # address may have before its heap.
            full = toggles > 20 and any("no free memory" in each.reason for each in refused)
            if refused and not full and not areas(pid):
                break  # it has ended between being found and being read
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
                    place, n, thrice, inverse, text = event.values
                    hits += 1
                    bad += (thrice, inverse, text) != (3 * n, ~n, TEXT[place % 6 :])  # type: ignore[operator]
            engine.close()
            if full or toggles == times:
                break
    except (TracerError, OSError):
        pass
    print(f"toggles={toggles} hits={hits} bad={bad}")


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], *map(int, sys.argv[3:]))
