"""From what the processor's clock says to nanoseconds of CLOCK_MONOTONIC: by looking at both again and again."""

from __future__ import annotations

import time
from functools import lru_cache
from pathlib import Path

from . import hosts
from .native import ticks

_SOURCE = Path("/sys/devices/system/clocksource/clocksource0/current_clocksource")


@lru_cache(maxsize=1)
def rate() -> int:
    """Return how many ticks that clock has in a second, to a hundredth: measured, which takes ten milliseconds."""
    first, before = now()
    time.sleep(0.01)
    ticks_then, at = now()
    found = (ticks_then - first) * 10**9 // (at - before)
    step: int = 10 ** max(0, len(str(found)) - 3)
    return max(1, found // step * step)


def is_kernels() -> bool:
    """Whether that clock is the kernel's, too: then all processors agree, and it doesn't stop."""
    try:
        return hosts.HOST.ticks != b"" and _SOURCE.read_text("ascii").strip() == "tsc"
    except OSError:
        return False


def ticks_at(moment: int) -> int:
    """Return what that clock says at a moment of CLOCK_MONOTONIC, some microseconds wrong for each second away."""
    first, before, then, at = _two()
    return min(max(0, first + (moment - before) * (then - first) // (at - before)), (1 << 64) - 1)


@lru_cache(maxsize=1)
def _two() -> tuple[int, int, int, int]:
    first = now()
    time.sleep(0.02)
    return (*first, *now())


def since(begun: tuple[int, int]) -> tuple[int, float]:
    """Return what that clock says, and how many ticks it has had in each nanosecond since an earlier `now`."""
    (ticks_then, at), (first, before) = now(), begun
    return ticks_then, (ticks_then - first) / max(1, at - before)


def now() -> tuple[int, int]:
    """Return the time as that clock and as CLOCK_MONOTONIC have it, taken as close together as can be; that clock is
    CLOCK_MONOTONIC where we have no other."""
    if hosts.why_not() or not hosts.HOST.ticks:
        return (time.monotonic_ns(),) * 2
    read = ticks()
    best = (1 << 62, 0, 0)
    for _ in range(5):
        before = time.monotonic_ns()
        then = read()
        after = time.monotonic_ns()
        best = min(best, (after - before, then, (before + after) // 2))
    return best[1], best[2]
