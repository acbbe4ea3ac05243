"""Functions that a linker dropped leave nothing that a tracer could see.

bfd and lld drop the notes with the functions. gold and mold keep them, and the notes' owner tells every reader that
they are none of its business.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from usdtbuild.instrument.main import Options

SOURCE = """
int dead_first(int number) { APP_REQ(number, "dead"); return number; }
int main(void) { APP_START(); APP_REQ_DONE(1, "live", 2); return 0; }
int dead_last(int number) { APP_WIDE(1, "2", 3, 4, 5, 6, number, 8); APP_START(); return number; }
"""
LIVE = ["req__done", "start"]


class Program(NamedTuple):
    linker: str
    path: Path


@pytest.fixture(scope="module", params=["bfd", "gold", "lld", "mold"])
def program(request: pytest.FixtureRequest, session_bench: Any, need: Any) -> Program:
    """A program of each linker in which two of three functions with probes were dropped."""
    need(f"ld.{request.param}")
    plain = session_bench.compile("gcc", SOURCE, "-O2", "-ffunction-sections")
    path = session_bench.link(
        f"-fuse-ld={request.param}", "-Wl,--gc-sections,--build-id=sha1", session_bench.instrument(plain)
    )
    return Program(request.param, path)


def test_the_rest_is_there(program: Program, check: Any) -> None:
    assert sorted(record.probe for record in check.binary(program.path).records()) == LIVE


@pytest.mark.parametrize("linker", ["bfd", "gold", "lld", "mold"])
@pytest.mark.parametrize("os", ["freebsd", "oracle"])
def test_every_format_forgets_them(
    linker: str, os: str, session_bench: Any, check: Any, need: Any, usdtbuild: Any
) -> None:
    """The reader of Oracle's notes in `check` fails for any note at which DTrace would refuse the file."""
    need(f"ld.{linker}")
    plain = session_bench.compile("gcc", SOURCE, "-O2", "-ffunction-sections", "-DUSDT_ENABLED_BY_CALL")
    made = session_bench.instrument(plain, Options(formats=check.formats, target_os=os))
    path = session_bench.link(f"-fuse-ld={linker}", "-no-pie", "-Wl,--gc-sections,--build-id=sha1", made)
    for format_ in check.formats:
        assert sorted(record.probe for record in check.binary(path).records(format_)) == LIVE
    checks = json.loads(usdtbuild("verify", "--json", path).stdout)["files"][0]["findings"]
    assert {each["check"] for each in checks} <= {"dof-unregistered", "perf-offset", "foreign-note", "no-site"}


@pytest.mark.parametrize("program", ["gold", "mold"], indirect=True)
def test_this_linker_keeps_the_notes(program: Program, run: Any) -> None:
    """Without these notes the tests below would show nothing: three sites were dropped."""
    shown = run("readelf", "-n", program.path).stdout
    assert len(re.findall("^ *rtapsdt ", shown, re.MULTILINE)) == 3
    assert len(re.findall("^ *stapsdt ", shown, re.MULTILINE)) == 2


def test_usdtbuild_list_passes_over_them(program: Program, usdtbuild: Any) -> None:
    shown = usdtbuild("list", program.path).stdout
    assert "req__done" in shown
    assert "wide" not in shown


def test_verify_is_content(program: Program, usdtbuild: Any) -> None:
    usdtbuild("verify", program.path)


@pytest.mark.live("gdb")
def test_gdb_passes_over_them(program: Program, gdb: str, run: Any) -> None:
    shown = run(gdb, "-batch", "-ex", f"info probes stap . . {program.path}", program.path).stdout
    assert sorted(re.findall(r"^stap +app +(\w+)", shown, re.MULTILINE)) == LIVE


@pytest.mark.live
def test_bpftrace_passes_over_them(program: Program, bpftrace: str, run: Any) -> None:
    shown = run(bpftrace, "-l", f"usdt:{program.path}:*").stdout
    assert sorted(line.rpartition(":")[2] for line in shown.split()) == LIVE


@pytest.mark.live
def test_bcc_passes_over_them(program: Program, run: Any, need: Any) -> None:
    shown = run(need("tplist-bpfcc"), "-l", program.path).stdout
    assert sorted(re.findall(r"app:(\w+)", shown)) == LIVE


@pytest.mark.live
def test_perf_passes_over_them_and_reads_on(program: Program, perf: str, run: Any) -> None:
    """perf 6.1 loses all probes of a file with a note at a bad address, and those behind a note of another type."""
    run(perf, "buildid-cache", "--add", program.path)
    try:
        shown = run(perf, "list", "sdt").stdout
    finally:
        run(perf, "buildid-cache", "--remove", program.path)
    assert sorted(set(re.findall(r"sdt_app:(\w+)", shown))) == LIVE
