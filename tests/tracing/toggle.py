"""Watch a stressed process and let go of it, all the while: `toggle.py PID KIND count|record [BUFFER [TIMES]]`.

KIND is a key of KINDS. It uses the patch engine itself, which arms in milliseconds where the command needs its
start-up. Prints how often it switched, how many hits it saw, and how many of those that it recorded had wrong
arguments: when it has done so TIMES times (probes: whether it has seen any or not), or once the process has ended.
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterator
from typing import Any

from usdtbuild.errors import UsdtError
from usdtbuild.tracing.maps import Memory, areas
from usdtbuild.tracing.own_returns import in_place, seen_alone
from usdtbuild.tracing.patch.engine import PatchEngine
from usdtbuild.tracing.patch.forms import Form
from usdtbuild.tracing.patch.injection import NAME_IN_MAPS
from usdtbuild.tracing.patch.rings import Decoder
from usdtbuild.tracing.plan import Plan
from usdtbuild.tracing.selection import Wanted, select
from usdtbuild.tracing.tracees import Tracees

TEXT = b"stress"
WORD = (1 << 64) - 1
MOST = 10_000  # records of one watch that are looked at


def right_probe(_: str, values: tuple[Any, ...]) -> bool:
    """Whether a probe of tracing/sources/stress.c has the arguments that it was fired with."""
    place, n, *rest = values
    return rest == [3 * n, ~n, TEXT[place % 6 :]]


def right_call(_: str, values: tuple[Any, ...]) -> bool:
    """Whether a call of calls/stress.c has its arguments, which nobody says the types of."""
    n, *rest = map(int, values[:3])
    return rest == [3 * n & WORD, ~n & WORD]


def right_return(name: str, values: tuple[Any, ...]) -> bool:
    """Whether a function of tracing/sources/returns.c, switches.c or adjacent.c, whose number is in its name, has
    returned what it returns."""
    return not values or int(values[0]) % 64 == int(name[len("inner") :], 8) % 64


KINDS = {
    "returns": (Wanted(functions=("inner*",), returns=True), right_return),
    "ends": (Wanted(functions=("inner*", "outer*"), returns=True, frames=True), right_return),
    "probes": (Wanted(probes=("stress:*",)), right_probe),
    "calls": (Wanted(calls=("work_*",)), right_call),
}


def code_of(pid: int) -> list[bytes]:
    """Return the code of a process that is in files, as it is now."""
    with contextlib.closing(Memory(pid)) as memory:
        code = [one for one in areas(pid) if "x" in one.flags and one.inode and not one.name.startswith(NAME_IN_MAPS)]
        return [memory.read(one.start, one.end - one.start) for one in code]


def toggled(pid: int, kind: str, what: str, buffer: int) -> Iterator[tuple[int, int]]:
    """Watch and let go each time the next is asked for; yields hits, and how many of them were wrong.

    Ends when the process has, or when it has no room for more. `buffer` is the size of a ring.
    """
    wanted, is_right = KINDS[kind]
    targets = select(pid, wanted).targets
    if wanted.frames:
        targets = seen_alone(targets)
        assert sum(len(one.sites) for one in targets) == 64 * (2 + 5)  # entries, and all the returns of each
    elif wanted.returns:
        targets, trapped, reasons = in_place(targets)
        assert not trapped, reasons
    toggles, full = 0, False
    text = code_of(pid)
    while not full:
        tracees = Tracees()
        tracees.seize(pid)
        engine = PatchEngine(tracees, pid, Plan(what, targets, 8, buffer))
        refused = engine.attach()
        # What is left behind for threads that may stand in it fills up the little room that a program at a fixed
        # address may have before its heap.
        full = toggles > 20 and any("no free memory" in each.reason for each in refused)
        if refused and not full and not areas(pid):
            return  # it has ended between being found and being read
        if refused and not full and not wanted.returns:  # which stay as they are where jumps would find no memory
            raise SystemExit(f"refused: {refused[0]}")
        assert engine.layout is not None
        tracees.stop(pid)
        tracees.detach(pid)  # its signals would wait for us
        if wanted.returns and toggles % 2:
            with contextlib.closing(Memory(pid)) as memory:
                for spot in engine.layout.spots:  # as if somebody's breakpoints had come and gone at entries
                    if isinstance(spot.form, Form) and not spot.form.returns:
                        memory.write(spot.site.address, spot.before[:1])
        raw = bytearray()
        for _ in range(5):
            time.sleep(0.001)  # let it run, also where many others want the processor
            engine.collect(raw.extend)
        tracees.seize(pid)
        with tracees.standing(pid):
            engine.detach()
            assert code_of(pid) == text
        engine.collect(raw.extend)
        tracees.stop(pid)
        tracees.detach(pid)
        toggles += 1
        hits, bad = sum(engine.totals().counts.values()), 0
        if what == "record":
            decoder = Decoder(engine.shape, engine.layout.specs)
            for event in decoder.events(bytes(raw[: MOST * engine.shape.slot]), int):
                hits += 1
                bad += not is_right(targets[event.target].name, event.values)
        engine.close()
        yield hits, bad


def main(pid: int, kind: str, what: str, buffer: int = 1 << 16, times: int = 0) -> None:
    """Toggle until the process has ended, or so many times."""
    toggles = hits = bad = 0
    try:
        for more, worse in toggled(pid, kind, what, buffer):
            toggles, hits, bad = toggles + 1, hits + more, bad + worse
            if times and toggles >= times and (hits or kind == "probes"):
                break
    except (UsdtError, OSError):  # it may have ended before it was read
        if kind != "probes":
            raise  # that process waits for us
    print(f"toggles={toggles} hits={hits} bad={bad}")


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], sys.argv[3], *map(int, sys.argv[4:]))
