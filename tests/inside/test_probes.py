"""Probes that a program switches on and off by itself, under load: no result, argument or count may be wrong."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.usefixtures("native")


def numbers(out: str) -> dict[str, int]:
    return {name: int(value) for name, value in re.findall(r"([a-z-]+) (\d+)", out)}


@pytest.mark.parametrize("way", ["header", "post-processed"])
@pytest.mark.parametrize("compiler", ["gcc", "clang"])
def test_sites_at_all_offsets_of_a_cache_line_are_switched_under_threads_signals_and_forks(
    compiler: str, way: str, build: Any, run: Any, need: Any
) -> None:
    need(compiler)
    flags = ("-O2", *["-DUSDT_LIVE"] * (way == "header"))
    found = numbers(run(build("stress_probes.c", compiler, flags=flags), 300, 6, "forks").stdout)
    assert (found["wrong-results"], found["wrong-arguments"], found["failed"]) == (0, 0, 0)
    assert found["counted"] == 12800
    assert found["handled"] > 1000
    assert found["children"] >= 15


@pytest.mark.parametrize("compiler", ["gcc", "clang"])
def test_vector_registers_are_kept_at_their_whole_width(compiler: str, build: Any, run: Any, need: Any) -> None:
    need(compiler)
    out = run(build("vectors.c", compiler, flags=("-O1",))).stdout
    assert out.startswith("16")
    assert out.endswith(" right\n")


@pytest.mark.parametrize("compiler", ["gcc", "clang"])
@pytest.mark.parametrize("level", ["-O0", "-O2"])
def test_arguments_on_the_stack_are_read(compiler: str, level: str, build: Any, run: Any, need: Any) -> None:
    need(compiler)
    assert run(build("many_arguments.c", compiler, flags=(level,))).stdout == "seen 1 right 1\n"


@pytest.mark.parametrize("compiler", ["gcc", "clang"])
@pytest.mark.parametrize("level", ["-O0", "-O2"])
def test_constants_of_every_width_are_given(compiler: str, level: str, build: Any, run: Any, need: Any) -> None:
    need(compiler)
    assert run(build("constants.c", compiler, flags=(level, "-DUSDT_LIVE"))).stdout == "counted 4\n"


@pytest.mark.slow
@pytest.mark.parametrize("compiler", ["gcc", "clang"])
def test_sites_are_switched_for_long(compiler: str, build: Any, run: Any, need: Any) -> None:
    need(compiler)
    found = numbers(run(build("stress_probes.c", compiler), 30000, 6, "forks").stdout)
    assert (found["wrong-results"], found["wrong-arguments"], found["failed"]) == (0, 0, 0)


@pytest.mark.parametrize(
    "link",
    [("-static-pie",), ("-static", "-no-pie"), ("-pie", "-fuse-ld=lld"), ("-no-pie", "-fuse-ld=mold")],
    ids=["static-pie", "static", "lld", "mold"],
)
def test_programs_of_all_kinds(link: tuple[str, ...], build: Any, run: Any, need: Any) -> None:
    need({"lld": "ld.lld", "mold": "mold"}.get(link[-1].rsplit("=", 1)[-1], "gcc"))
    flags = ("-O2", "-fno-pie" if "-no-pie" in link else "-fPIE")
    found = numbers(run(build("stress_probes.c", "gcc", *link, flags=flags, runtime_flags=flags), 50, 2).stdout)
    assert found["counted"] == 12800


def change(events: Path, lines: list[str]) -> None:
    """Write lines to the kernel's list of uprobes, one at a time."""
    file = os.open(events, os.O_WRONLY | os.O_APPEND)
    try:
        for line in lines:
            os.write(file, line.encode())
    finally:
        os.close(file)


@pytest.mark.live
def test_kernel_uprobes_come_and_go_at_the_same_sites(build: Any, run: Any) -> None:
    """A breakpoint that the kernel puts over a live site makes the hook pause; the program goes on, and stays right."""
    program = build("stress_probes.c")
    events = Path("/sys/kernel/tracing/uprobe_events")
    if not events.exists():
        events = Path("/sys/kernel/debug/tracing/uprobe_events")
    sites = run("readelf", "-n", program).stdout
    places = [int(at, 16) for at in re.findall(r"Location: 0x([0-9a-f]+)", sites)]
    text = run("readelf", "-lW", program).stdout
    segment = re.search(r"LOAD +0x([0-9a-f]+) 0x([0-9a-f]+) \S+ \S+ \S+ R E", text)
    assert segment is not None
    move = int(segment.group(1), 16) - int(segment.group(2), 16)
    group = f"usdtlive{os.getpid()}"
    process = subprocess.Popen([str(program), "4000", "3", "others"], stdout=subprocess.PIPE, text=True)
    try:
        rounds = 0
        while process.poll() is None:
            lines = [f"p:{group}/s{i} {program}:{place + move:#x}\n" for i, place in enumerate(places[::32])]
            change(events, lines)
            enable = events.parent / "events" / group / "enable"
            enable.write_text("1")
            enable.write_text("0")
            change(events, [f"-:{group}/s{i}\n" for i in range(len(lines))])
            rounds += 1
        out = process.communicate()[0]
    finally:
        process.kill()
        process.wait()
    found = numbers(out)
    assert process.returncode == 0
    # The last count may lack sites that the kernel has just put back; results and arguments may not be wrong.
    assert (found["wrong-results"], found["wrong-arguments"], found["failed"]) == (0, 0, 0)
    assert rounds > 1


@pytest.mark.parametrize("compiler", ["gcc", "musl-gcc"])
def test_switching_works_before_main_in_signal_handlers_and_in_children(
    compiler: str, build: Any, run: Any, need: Any
) -> None:
    """A handler that interrupts the switching of its own thread is told so, instead of waiting for ever."""
    need(compiler)
    out = run(build("moments.c", compiler), 300, timeout=120).stdout
    assert out == "early 1 hits 1 signals 1 children 30 other 0 wrong 0\n"
