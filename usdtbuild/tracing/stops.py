"""What breakpoints take from a program's time beyond what the tracer sees of it.

A thread that hits a breakpoint stands from the trap until it runs again. The worker sees most of that; the rest, on the
way to the worker and back, is measured once with a child that only traps.
"""

from __future__ import annotations

import os
import signal
import struct
import time

from .model import Stops

_TIMES, _WARM = 60, 10
_PATIENCE = 1.0  # seconds for one stop


def measure() -> tuple[int, int]:
    """Return what a stop takes beyond what its tracer sees, and how much that varies, in nanoseconds; SIGCHLD must be
    blocked. Raises OSError."""
    from . import ptrace

    told, tells = os.pipe()
    waits, goes = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.close(goes)
            if os.read(waits, 1):
                os.write(tells, struct.pack(f"={_TIMES}q", *_trap()))
        finally:
            os._exit(0)
    os.close(tells)
    os.close(waits)
    seen = []
    try:
        ptrace.call(ptrace.SEIZE, child)
        os.write(goes, b"g")
        deadline = time.monotonic() + _PATIENCE
        while time.monotonic() < deadline:
            signal.sigtimedwait({signal.SIGCHLD}, _PATIENCE)
            stop = ptrace.look(child, os.WNOHANG)
            began = time.monotonic_ns()
            if stop is not None and stop.exited is not None:
                child = 0  # nobody has this number any more
                break
            if stop is not None:
                seen.append(time.monotonic_ns() - began)
                ptrace.call(ptrace.CONT, child)
        else:
            return 0, 0
        raw = os.read(told, 8 * _TIMES)
    finally:
        os.close(told)
        os.close(goes)
        if child:
            _end(child)
    took = struct.unpack(f"={len(raw) // 8}q", raw)
    costs = sorted(whole - part for whole, part in list(zip(took, seen))[_WARM:])
    if not costs:
        return 0, 0
    return max(0, costs[len(costs) // 2]), costs[len(costs) * 9 // 10] - costs[len(costs) // 10]


def _trap() -> list[int]:
    """Trap so many times; return how long each took, less what it takes without."""
    own, took = os.getpid(), []
    usual = 1 << 62
    for _ in range(_TIMES):
        began = time.monotonic_ns()
        os.kill(own, 0)
        usual = min(usual, time.monotonic_ns() - began)
    for _ in range(_TIMES):
        began = time.monotonic_ns()
        os.kill(own, signal.SIGTRAP)
        took.append(time.monotonic_ns() - began - usual)
    return took


def _end(child: int) -> None:
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)


def said_of(stops: Stops) -> str:
    """Return what a user must know of durations where breakpoints stopped the program."""
    if not stops.cost:
        return "(each hit stopped the program, and the durations include that)"
    good = -(-(stops.cost + stops.spread) // 1000)  # caches are cold after a stop, so all of its cost is in doubt
    return f"(without the time of stops at breakpoints; accurate to {good} us for each stop, less on a busy machine)"
