"""gdb, which reads DOF by itself, sees and stops at probes of DOF: ours, and one that was written by hand."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.live("gdb")

BY_HAND = Path(__file__).resolve().parent.parent / "formats" / "by_hand.s"
PROVIDER = """
provider app { probe req__start(int, char *); probe req__done(int); };
#pragma D attributes Evolving/Evolving/Common provider app provider
"""
PROGRAM = """
#include "app.h"
__attribute__((noinline)) int serve(int id, char *s) { APP_REQ_START(id, s); return id + 1; }
__attribute__((noinline)) void finish(int id) { APP_REQ_DONE(id); APP_REQ_DONE(id + 1); }
int main(void) { finish(serve(7, "x")); return 0; }
"""


def ask(run: Any, gdb: str, program: Path, *commands: str) -> str:
    words = [word for command in commands for word in ("-ex", command)]
    environment = {**os.environ, "LC_ALL": "C", "DEBUGINFOD_URLS": ""}
    return str(run(gdb, "-nx", "-batch", *words, program, env=environment).stdout)


def listed(out: str) -> list[tuple[str, str, int]]:
    """Return (provider, probe, address) of each line of `info probes dtrace`."""
    return sorted((p, name, int(at, 16)) for p, name, at in re.findall(r"^dtrace (\S+) +(\S+) +(0x\w+)", out, re.M))


def test_probes_written_by_hand(gdb: str, run: Any, tmp_path: Path) -> None:
    """Shows that the description which the encoder follows is the one that gdb follows."""
    run("as", "--defsym", "RELOCATION=1", BY_HAND, "-o", tmp_path / "hand.o")
    run("gcc", "-no-pie", tmp_path / "hand.o", "-o", tmp_path / "hand")
    out = ask(run, gdb, tmp_path / "hand", "info probes dtrace")
    assert [(p, name) for p, name, _ in listed(out)] == [
        ("hand", "req-done"), ("hand", "req-start"), ("hand", "req-start")
    ]  # fmt: skip


@pytest.fixture
def program(run: Any, usdtbuild: Any, cc: str, tmp_path: Path) -> Path:
    """A program with SDT notes and DOF, whose addresses the linker has filled in (no PIE)."""
    (tmp_path / "app.d").write_text(PROVIDER)
    (tmp_path / "main.c").write_text(PROGRAM)
    usdtbuild("header", "app.d", "-o", "app.h", cwd=tmp_path)
    usdtbuild(
        "cc", "--formats", "stapsdt,dof", "--", cc, "-O1", "-fno-pie", "-c", "main.c", "-o", "main.o", cwd=tmp_path
    )
    run(cc, "-no-pie", "main.o", "-o", "program", cwd=tmp_path)
    return tmp_path / "program"


def test_both_formats_of_one_program_agree_on_every_address(
    gdb: str, program: Path, run: Any, usdtbuild: Any
) -> None:
    dof = listed(ask(run, gdb, program, "info probes dtrace"))
    out = ask(run, gdb, program, "info probes stap")
    found = re.findall(r"^stap (\S+) +(\S+) +(0x\w+)", out, re.M)
    stap = [(provider, name.replace("__", "-"), int(at, 16)) for provider, name, at in found]
    assert dof == sorted(stap)
    assert [name for _, name, _ in dof] == ["req-done", "req-done", "req-start"]
    (told,) = json.loads(usdtbuild("dof", "dump", "--json", program).stdout)
    assert dof == sorted(
        (provider["name"], probe["name"], probe["address"] + offset)
        for provider in told["providers"]
        for probe in provider["probes"]
        for offset in probe["offsets"]
    )


def test_gdb_stops_at_dof_probes(gdb: str, program: Path, run: Any) -> None:
    places = {name: [a for _, n, a in listed(ask(run, gdb, program, "info probes dtrace")) if n == name]
              for name in ("req-start", "req-done")}  # fmt: skip
    out = ask(
        run, gdb, program, "break -probe-dtrace app:req-start", "break -probe-dtrace app:req-done", "run",
        "p (long)$pc", "p $_probe_argc", "continue", "p (long)$pc", "continue", "p (long)$pc", "continue",
    )  # fmt: skip
    printed = [int(value) for value in re.findall(r"^\$\d+ = (\d+)$", out, re.M)]
    assert printed == [places["req-start"][0], 2, *places["req-done"]]
    assert out.rstrip().endswith("exited normally]")
