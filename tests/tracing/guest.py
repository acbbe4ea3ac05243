"""What the engines must do on a machine, seen from inside of such a one (`tools/guest.py`): a line for each check.

Programs lie beside it: those of `sources`, in the shapes that test_guest.py builds.
"""

from __future__ import annotations

import contextlib
import random
import re
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from toggle import KINDS  # type: ignore[import-not-found] # it stands beside this file in the guest

from usdtbuild.tracing.errors import TracerError
from usdtbuild.tracing.hosts import HOST
from usdtbuild.tracing.maps import Memory, areas
from usdtbuild.tracing.model import COUNT, Target
from usdtbuild.tracing.patch.engine import PatchEngine
from usdtbuild.tracing.patch.journal import ARMED, find
from usdtbuild.tracing.patch.rings import Decoder
from usdtbuild.tracing.plan import Plan
from usdtbuild.tracing.selection import Wanted, select
from usdtbuild.tracing.tracees import Tracees

TRACE = (sys.executable, "-m", "usdtbuild", "trace", "-v")
NAMES = ("eight", "guarded", "ints", "last", "text", "wide")
PATCHES = bool(HOST.kernel.loop)  # whether the patch engine is for this machine
ENGINES = ("patch", "trap") if PATCHES else ("trap",)
CHECKS: list[Callable[[], None]] = []


def check(function: Callable[[], None]) -> Callable[[], None]:
    """Mark what is to be checked."""
    CHECKS.append(function)
    return function


def check_patches(function: Callable[[], None]) -> Callable[[], None]:
    """Mark what is to be checked where the patch engine is."""
    return check(function) if PATCHES else function


def traced(*words: str) -> tuple[list[str], str]:
    """Run the command; return its lines, and what it said beside them."""
    done = subprocess.run([*TRACE, *words], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done
    return done.stdout.splitlines(), done.stderr


def counts_are(lines: list[str], each: int) -> None:
    """Check a table of all probes of scene.d, and that nothing changed for the program."""
    found = dict(line.split()[::-1] for line in lines if " scene:" in line)
    assert found == {f"scene:{name}": str(each) for name in NAMES}, lines
    assert f"wrong=0 guarded={each}" in lines, lines


@check_patches
def patch_counts_all_hits_of_threads() -> None:
    for program in ("scene", "scene-exe", "scene-static"):
        lines, errors = traced("--engine", "patch", "--count", "--", f"./{program}", "500", "4")
        counts_are(lines, 2000)
        assert "traced with patch;" in errors, errors


@check
def trap_counts_all_hits_of_threads() -> None:
    for program in ("scene", "scene-exe", "scene-static"):
        lines, errors = traced("--engine", "trap", "--count", "--", f"./{program}", "10", "4")
        counts_are(lines, 40)
        assert "traced with trap" in errors, errors


@check
def engines_see_the_same_arguments() -> None:
    seen = {}
    for engine in ENGINES:
        lines, _ = traced("--engine", engine, "--", "./scene", "7")
        hits = [line for line in lines if " scene:" in line]
        # Without times and threads, and without the one pointer into the program.
        seen[engine] = [re.sub(r" e=0x[0-9a-f]+", "", re.sub(r"^ *\S+ +\d+ ", "", hit)) for hit in hits]
    assert all(found == seen["trap"] for found in seen.values()), seen
    assert len(seen["trap"]) == 42
    text = "\n".join(seen["trap"])
    for wanted in (
        "scene:ints a=-6 b=6 c=-6 d=6 e=-6 f=6", "scene:wide a=-3 b=3298534883328 c=0.75 d=1.5",
        'scene:text what="hello" length=5', "scene:text what=NULL length=-1", "scene:text what=0x10 length=-1",
        "scene:text what=0x123456789abcdef length=-1", "scene:eight a=6 b=2 c=3 d=4 e=5 f=6 g=-7 h=51539607552",
    ):  # fmt: skip
        assert wanted in text, (wanted, text)


def watched(pid: int, targets: tuple[Target, ...], what: str) -> tuple[int, list[tuple[Any, ...]]]:
    """Arm a process, let it run by itself for a while, and put all back; return hits that were counted or lost, and the
    arguments of those that were recorded."""
    engine = PatchEngine(Tracees(), pid, Plan(what, targets, 8, 1 << 16))
    engine.tracees.seize(pid)
    refused = engine.attach()
    assert not refused, refused[0]
    engine.tracees.stop(pid)
    engine.tracees.detach(pid)
    raw = bytearray()
    for _ in range(5):
        time.sleep(0.01)
        engine.collect(raw.extend)
    engine.tracees.seize(pid)
    with engine.tracees.standing(pid):
        engine.detach()
    engine.collect(raw.extend)
    engine.tracees.stop(pid)
    engine.tracees.detach(pid)
    assert engine.layout is not None
    values = [event.values for event in Decoder(engine.shape, engine.layout.specs).events(bytes(raw), int)]
    totals = engine.totals()
    engine.close()
    return sum(totals.counts.values()) + sum(totals.lost.values()), values


def toggle(program: str, kind: str, what: str, times: int) -> None:
    """Watch a stressed program and let go, so often and until it was seen; its results and arguments are right."""
    wanted, is_right = KINDS[kind][0], KINDS[kind][-1]
    pipe = subprocess.PIPE
    with subprocess.Popen(
        [f"./{program}", *(["25"] if kind == "probes" else []), "2"], stdin=pipe, stdout=pipe, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        targets = select(process.pid, wanted).targets
        hits = turns = 0
        with contextlib.suppress(TracerError):  # "has ended"
            while turns < times or not hits:
                more, values = watched(process.pid, targets, what)
                hits, turns = hits + more + len(values), turns + 1
                assert all(is_right("", one) for one in values)
        output, _ = process.communicate("\n", timeout=120)
    print(f"  {program} {what}: {turns} turns, {hits} hits, {output.strip()}")
    assert re.fullmatch(r"wrong=0 passes=\d+ signals=1\n", output), (process.returncode, output)
    assert hits


@check_patches
def probes_come_and_go_under_threads_and_signals() -> None:
    for what in ("count", "record"):
        toggle("stress", "probes", what, 20)


@check_patches
def calls_come_and_go_under_threads_and_signals() -> None:
    for program in ("calls-lazy", "calls-now", "calls-no-plt", "calls-protected"):
        for what in ("count", "record"):
            toggle(program, "calls", what, 8)


@check
def a_killed_tracer_leaves_a_program_that_runs_on() -> None:
    """The process that traces sees that the command was killed, and puts everything back."""
    chance = random.Random(7)
    with subprocess.Popen(["./scene", "1000000000000", "2"], stdout=subprocess.PIPE, text=True) as process:
        targets = select(process.pid, Wanted()).targets
        sites = [site for target in targets for site in target.sites]
        plain = Path("scene").read_bytes()
        memory = Memory(process.pid)
        armed = 0
        for number in range(6):
            words = [*TRACE, "--engine", ENGINES[0], "--count", "-p", str(process.pid)]
            tracer = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
            assert tracer.stderr is not None
            if number % 2:
                tracer.stderr.readline()  # all is armed
            time.sleep(chance.uniform(0, 2 if number % 2 else 10))
            tracer.kill()
            armed += sum(memory.read(one.address, 4) != plain[one.file_address :][:4] for one in sites)
            tracer.stderr.read()  # until the process that traces has gone, too
            tracer.wait()
            assert process.poll() is None
            left = [entry for one in find(areas(process.pid), memory) for entry in one.entries if entry.flags & ARMED]
            assert not left
            assert [memory.read(one.address, 4) for one in sites] == [plain[one.file_address :][:4] for one in sites]
            assert [memory.word(one.semaphore, 2) for one in sites if one.semaphore] == [0]
        process.kill()
    print(f"  {armed} sites were armed when it was killed")


@check_patches
def a_nap_is_as_long_as_it_would_be() -> None:
    """A system call that is interrupted goes on with what is left of its time."""
    with subprocess.Popen(["./naps", "12"], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        targets = select(process.pid, Wanted()).targets
        for _ in range(4):
            time.sleep(2)
            tracees = Tracees()
            tracees.seize(process.pid)
            engine = PatchEngine(tracees, process.pid, Plan(COUNT, targets))
            assert not engine.attach()
            with tracees.standing(process.pid):
                engine.detach()
            tracees.stop(process.pid)
            tracees.detach(process.pid)
        took = int(process.communicate()[0])
    print(f"  12 s took {took} ms")
    assert 12000 <= took < 18000  # begun anew at the last time it would be 20 s


@check_patches
def returns_are_seen_with_results() -> None:
    for program in ("calls-lazy", "calls-no-plt"):
        with subprocess.Popen(
            [f"./{program}", "2"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as process:
            assert process.stdout is not None
            process.stdout.readline()
            lines, errors = traced("-L", "work_3", "--returns", "--limit", "40", "-p", str(process.pid))
            output, _ = process.communicate("\n", timeout=120)
        assert "traced with trap" in errors, errors
        assert re.fullmatch(r"wrong=0 passes=\d+ signals=1\n", output), output
        calls: dict[str, list[int]] = {}
        right = 0
        for line in lines:
            thread, name, *values = line.split()[1:]
            numbers = [int(value.partition("=")[2], 16) for value in values]
            if name == "work_3":
                calls.setdefault(thread, []).append(numbers[0])
            elif name == "work_3:return" and calls.get(thread):
                n = calls[thread].pop()
                assert numbers[0] == (n * 3 + 3 * n + ~n) & (1 << 64) - 1, (n, line)
                right += 1
        print(f"  {program}: {right} right results")
        assert right >= 10, lines


@check_patches
def functions_with_a_nop_are_patched() -> None:
    with subprocess.Popen(["./calls-lazy", "2"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        which = ("-p", str(process.pid))
        lines, errors = traced("--engine", "patch", "-F", "work_*", "--count", "--duration", "2", *which)
        output, _ = process.communicate("\n", timeout=120)
    assert re.fullmatch(r"wrong=0 passes=\d+ signals=1\n", output), output
    assert "traced with patch;" in errors, errors
    found = dict(line.split()[::-1] for line in lines if " work_" in line)
    assert sorted(found) == ["work_0", "work_1", "work_2", "work_3"], lines
    assert all(int(count) for count in found.values()), lines


@check
def functions_return_with_results() -> None:
    lines, errors = traced("--engine", "trap", "-F", "leaf*", "--returns", "--", "./scene", "7", "2")
    assert "traced with trap" in errors, errors
    assert sum(" leaf" in line and ":return" not in line for line in lines) == 14, lines
    results = sorted(int(found[1], 0) for line in lines if (found := re.search(r":return result=(\S+)", line)))
    assert results == sorted(2 * [28 * number + 56 + 2 * (number + 7) for number in range(7)]), lines


@check
def functions_are_stepped_into() -> None:
    """Not one hit more for a sequence that had to begin anew: the thread executes it as one step. And jumps lead on."""
    names = ("add", "compare", "minus", "hop", "through")
    wanted = [word for name in names for word in ("-F", name)]
    lines, errors = traced("--engine", "trap", *wanted, "--count", "--", "./exclusive")
    assert "traced with trap" in errors, errors
    hits = {"100  add", "20  compare", "10  minus", "10  hop", "10  through"}
    assert lines[0] == "sum=100 right=20", lines
    assert {line.strip() for line in lines[1:]} == hits, lines


@check_patches
def what_cannot_be_patched_is_told() -> None:
    lines, errors = traced("--engine", "patch", "-F", "work", "--count", "--", "./scene", "1")
    assert "is no NOP" in errors, (lines, errors)


def main() -> int:
    """Run all checks, or those that are named."""
    failed = 0
    for one in CHECKS:
        if sys.argv[1:] and one.__name__ not in sys.argv[1:]:
            continue
        began = time.monotonic()
        try:
            one()
        except BaseException:
            failed += 1
            print(f"FAILED {one.__name__}")
            traceback.print_exc(file=sys.stdout)
        else:
            print(f"ok {one.__name__} ({time.monotonic() - began:.0f} s)")
    return min(failed, 1)


if __name__ == "__main__":
    sys.exit(main())
