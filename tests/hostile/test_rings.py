"""A traced program writes into the memory through which its hits come."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from usdtbuild.tracing.patch.rings import shape_for

STRING_SIZE = 64
SLOT = shape_for([1], [1], STRING_SIZE, 1 << 20).slot
MODES = ("head", "back", "site", "process", "thread", "time", "length", "cut", "rest")
DAMAGED = r"the program has damaged its buffers: \d+ records were dropped"


@pytest.fixture
def forger(built: Any, attacker: Any) -> Any:
    program = built("ring_forger", f"-DSLOT={SLOT}")

    def start(mode: str) -> str:
        return attacker(program, mode).stdout.readline().strip()

    return start


@pytest.mark.parametrize("mode", MODES)
def test_damage_is_dropped_counted_and_told(mode: str, forger: Any, command: Any, tmp_path: Path) -> None:
    pid, output = forger(mode), tmp_path / "hits.jsonl"
    # A head that goes back does no damage before records have been taken.
    said = command("trace", "-p", pid, "--duration", "4" if mode == "back" else "1", "-o", output)
    assert said.code == 0, said
    assert re.search(DAMAGED, said.err), said.err
    assert "faster than they could be read" not in said.err
    assert said.memory < 300 << 20
    for line in output.read_text().splitlines():
        assert len(line) < 1000
        assert f'"pid": {pid}' in line or f'"pid":{pid}' in line, line


def test_no_process_passes_for_another_that_is_traced(built: Any, attacker: Any, command: Any, tmp_path: Path) -> None:
    program = built("ring_forger", f"-DSLOT={SLOT}")
    honest = attacker(program, "quiet").stdout.readline().strip()
    forging = attacker(program, "process", honest).stdout.readline().strip()
    words = "-p", honest, "-p", forging, "-P", "text", "--duration", "1", "-o", tmp_path / "hits.jsonl"
    said = command("trace", *words, timeout=60)
    assert re.search(DAMAGED, said.err), said.err


@pytest.mark.parametrize("options", [["--count"], ["--by", "arg0"], ["--histogram", "number"]])
@pytest.mark.parametrize("mode", ["many", "fewer"])
def test_counters_that_can_t_be_are_told(mode: str, options: list[str], forger: Any, command: Any) -> None:
    said = command("trace", "-p", forger(mode), "-P", "tick", *options, "--duration", "1", timeout=30)
    assert "the program has damaged its counters" in said.err, said
    assert said.code == 0


# What is added up -> what of it is forged, so that nothing is told which the hits, the clock or the rest can't be.
FORGED = {
    ("-P", "tick", "--sum", "number"): ("", "sum", "negative", "extremes", "count"),
    ("-P", "tick", "--sum", "number", "--by", "number"): ("sum", "negative", "extremes", "count"),
    ("-P", "tick", "--histogram", "number"): ("", "sum", "negative", "extremes", "more", "fewer", "elsewhere"),
    ("--latency", "tick", "text"): ("", "sum", "negative", "extremes", "count", "long", "ends", "open"),
}


@pytest.mark.parametrize(
    ("options", "mode"),
    [pytest.param(words, mode, id="".join((*words, mode)))
     for words, modes in FORGED.items() for mode in modes],
)  # fmt: skip
def test_what_doesn_t_fit_together_is_told(
    options: tuple[str, ...], mode: str, built: Any, attacker: Any, command: Any
) -> None:
    pid = attacker(built("table_forger"), mode or "nothing").stdout.readline().strip()
    said = command("trace", "-p", pid, *options, "--duration", "1", timeout=30)
    assert said.code == 0, said
    damaged = "the program has damaged its counters" in said.err
    assert damaged == bool(mode), said


@pytest.mark.parametrize(
    ("name", "mode", "options"),
    [("table_forger", "sum", ("-P", "tick", "--sum", "number")), ("ring_forger", "length", ())],
)
def test_quiet_scripts_hear_of_damage(
    name: str, mode: str, options: tuple[str, ...], built: Any, attacker: Any, command: Any
) -> None:
    pid = attacker(built(name, f"-DSLOT={SLOT}"), mode).stdout.readline().strip()
    said = command("trace", "-p", pid, "-q", "--require-hits", "--duration", "1", *options, timeout=30)
    assert said.code == 4, said
    assert "the program has damaged its " in said.err


@pytest.mark.parametrize(
    "options", [*FORGED, ("--by", "thread"), ("--latency", "tick", "text", "--by", "number")], ids="".join
)
def test_threads_that_are_killed_amid_hits_have_damaged_nothing(
    options: tuple[str, ...], built: Any, command: Any
) -> None:
    said = command("trace", *options, "--", built("many_hits", "-pthread"), timeout=60)
    assert said.code == 0, said
    assert "damaged" not in said.err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_who_reads_damaged_rings_still_hears_signals(number: int, forger: Any, tmp_path: Path) -> None:
    pid = forger("head")
    words = [sys.executable, "-m", "usdtbuild", "trace", "-p", pid, "-o", str(tmp_path / "hits.jsonl")]
    process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        deadline = time.monotonic() + 20
        while not Path(f"/proc/{pid}/maps").read_text().count("memfd:usdtbuild"):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        time.sleep(0.5)  # the forger has found its rings by then, and if not, the test is only weaker
        process.send_signal(number)
        process.communicate(timeout=20)
        children = subprocess.run(["pgrep", "-P", str(process.pid)], capture_output=True, text=True, check=False)
        assert children.stdout == ""
    finally:
        process.kill()
        process.wait()
