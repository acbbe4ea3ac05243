"""Points that are on while a breakpoint of others comes and goes over them: their counts stay, and they come back."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.started import Started

pytestmark = pytest.mark.usefixtures("native")


@pytest.mark.parametrize("compiler", ["gcc", "clang"])
@pytest.mark.parametrize(("probes", "others"), [("server:tick", 0), ("server:*", 1)], ids=["alone", "with others"])
def test_a_point_comes_back_with_its_count_when_a_breakpoint_is_gone(
    compiler: str, probes: str, others: int, build: Any, need: Any
) -> None:
    need(compiler)
    lines = ["on", "fire", "break", "refresh", "clear", "fire", "break", "off", "clear", "on", "fire"]
    lines += ["break", "on", "clear", "on", "fire", "off"]
    program = build("paused.c", compiler)
    given = "\n".join(lines) + "\n"
    out = subprocess.run([program, probes, "work"], input=given, capture_output=True, text=True, check=True).stdout
    on, paused = 2 + others, "off taken"
    assert out.splitlines() == [
        f"on {on}: on - 0 on - 0 {on}",
        f"fire 100: on - 100 on - 100 {on}",
        f"break 0: {paused} 100 {paused} 100 {others}",
        f"refresh 0: {paused} 100 {paused} 100 {others}",
        f"clear 0: on - 100 on - 100 {on}",
        f"fire 100: on - 200 on - 200 {on}",
        f"break 0: {paused} 200 {paused} 200 {others}",
        f"off {on}: off - 200 off - 200 0",
        "clear 0: off - 200 off - 200 0",
        f"on {on}: on - 200 on - 200 {on}",
        f"fire 100: on - 300 on - 300 {on}",
        f"break 0: {paused} 300 {paused} 300 {others}",
        f"on {others}: {paused} 300 {paused} 300 {others}",
        f"clear 0: on - 300 on - 300 {on}",
        f"on {on}: on - 300 on - 300 {on}",
        f"fire 100: on - 400 on - 400 {on}",
        f"off {on}: off - 400 off - 400 0",
    ]


def change(events: Path, line: str) -> None:
    """Write a line to the kernel's list of uprobes, which can't be sought in."""
    file = os.open(events, os.O_WRONLY | os.O_APPEND)
    try:
        os.write(file, line.encode())
    finally:
        os.close(file)


@pytest.mark.live
@pytest.mark.parametrize("probes", ["server:tick", "server:*"])
def test_a_point_comes_back_with_its_count_when_a_uprobe_is_gone(probes: str, build: Any, run: Any) -> None:
    program = build("paused.c")
    events = Path("/sys/kernel/tracing/uprobe_events")
    if not events.exists():
        events = Path("/sys/kernel/debug/tracing/uprobe_events")
    notes = run("readelf", "-n", program).stdout
    place = next(
        int(at, 16) for name, at in re.findall(r"Name: (\S+)\s+Location: 0x([0-9a-f]+)", notes) if name == "tick"
    )
    text = run("readelf", "-lW", program).stdout
    segment = re.search(r"LOAD +0x([0-9a-f]+) 0x([0-9a-f]+) \S+ \S+ \S+ R E", text)
    assert segment is not None
    place += int(segment.group(1), 16) - int(segment.group(2), 16)
    group = f"usdtpaused{os.getpid()}"
    enable = events.parent / "events" / group / "enable"
    with Started(program, probes, "nothing") as process:

        def tell(line: str) -> str:
            process.tell(line)
            return process.line().split(": ")[1].split(" off - 0 ")[0]

        assert tell("on") == "on - 0"
        assert tell("fire") == "on - 100"
        for i in range(3):
            change(events, f"p:{group}/tick {program}:{place:#x}\n")
            try:
                enable.write_text("1")
                assert tell("fire") == f"off taken {100 + 100 * i}"
            finally:
                if enable.exists():
                    enable.write_text("0")
                change(events, f"-:{group}/tick\n")
            assert tell("refresh") == f"on - {100 + 100 * i}"
            assert tell("fire") == f"on - {200 + 100 * i}"
        process.end()
