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
def program(run: Any, usdtbuild: Any, cc: str, tmp_path: Path, header_of: Any) -> Path:
    """A program with SDT notes and DOF, whose addresses the linker has filled in (no PIE)."""
    header_of(tmp_path, "app.d", PROVIDER, "--formats=dof")
    (tmp_path / "main.c").write_text(PROGRAM)
    usdtbuild(
        "cc", "--formats", "stapsdt,dof", "--", cc, "-O1", "-fno-pie", "-c", "main.c", "-o", "main.o", cwd=tmp_path
    )
    run(cc, "-no-pie", "main.o", "-o", "program", cwd=tmp_path)
    return tmp_path / "program"


def test_both_formats_of_one_program_agree_on_every_address(gdb: str, program: Path, run: Any, usdtbuild: Any) -> None:
    dof = listed(ask(run, gdb, program, "info probes dtrace"))
    out = ask(run, gdb, program, "info probes stap")
    found = re.findall(r"^stap (\S+) +(\S+) +(0x\w+)", out, re.M)
    stap = [(provider, name.replace("__", "-"), int(at, 16)) for provider, name, at in found]
    assert dof == sorted(stap)
    assert [name for _, name, _ in dof] == ["req-done", "req-done", "req-start"]
    (told,) = json.loads(usdtbuild("dof", "dump", "--json", program).stdout)["tables"]
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


TESTS = """
#include <stdio.h>
#include "app.h"
int main(void) { for (int i = 0; i < 3; i++) printf("%d", APP_REQ_DONE_ENABLED()); puts(""); return 0; }
"""


def enabled_sites(usdtbuild: Any, program: Path) -> dict[str, int]:
    (file,) = json.loads(usdtbuild("list", "--json", program).stdout)["files"]
    return {
        probe["format"]: int(site["address"], 16)
        for probe in file["probes"]
        for site in probe["sites"]
        if site["is_enabled"]
    }


@pytest.mark.parametrize("formats", ["stapsdt,dof,usdt", "dof,usdt"])
@pytest.mark.parametrize(("system", "answer"), [("oracle", "*(int *) $rdi = 1"), ("freebsd", "$rax = 1")])
def test_what_dtrace_answers_is_what_the_program_gets(
    formats: str, system: str, answer: str, gdb: str, run: Any, usdtbuild: Any, cc: str, tmp_path: Path, header_of: Any
) -> None:
    """gdb does at the second of three is-enabled sites what each DTrace does at all of them."""
    header_of(tmp_path, "app.d", PROVIDER, "--formats=dof")
    (tmp_path / "main.c").write_text(TESTS)
    words = (cc, "-O1", "-fno-pie", "-DUSDT_ENABLED_BY_CALL", "-c", "main.c", "-o", "main.o")
    usdtbuild("cc", "--formats", formats, "--target-os", system, "--", *words, cwd=tmp_path)
    run(cc, "-no-pie", "main.o", "-o", "program", cwd=tmp_path)
    assert run(tmp_path / "program").stdout == "000\n"
    sites = enabled_sites(usdtbuild, tmp_path / "program")
    assert set(sites) == set(formats.split(",")) - {"stapsdt"}
    assert (sites["dof"] == sites["usdt"]) == (system == "oracle")
    commands = (f"break *{sites['dof']:#x}", "run", "continue", f"set var {answer}", "continue", "continue")
    assert "010\n" in ask(run, gdb, tmp_path / "program", *commands)


@pytest.mark.parametrize("enabled", [0, 1])
def test_a_semaphore_is_answered_by_the_same_test(
    enabled: int, gdb: str, run: Any, usdtbuild: Any, cc: str, tmp_path: Path, header_of: Any
) -> None:
    header_of(tmp_path, "app.d", PROVIDER, "--formats=dof")
    (tmp_path / "main.c").write_text(TESTS)
    words = (cc, "-O1", "-fno-pie", "-DUSDT_ENABLED_BY_CALL", "-c", "main.c", "-o", "main.o")
    usdtbuild("cc", "--formats", "stapsdt,dof,usdt", "--", *words, cwd=tmp_path)
    run(cc, "-no-pie", "main.o", "-o", "program", cwd=tmp_path)
    name = "*(unsigned short *) &app_req__done_semaphore"
    out = ask(run, gdb, tmp_path / "program", "break main", "run", f"set var {name} = {enabled}", "continue")
    assert f"{enabled}" * 3 + "\n" in out
