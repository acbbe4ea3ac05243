"""What the classic tool costs, in CPU time of itself and what it starts, beside SystemTap's in the same run."""

from __future__ import annotations

import resource
import subprocess
from pathlib import Path
from statistics import median
from typing import Any

import pytest

OBJECTS = 733  # as many as PostgreSQL's backend hands over


def cpu_seconds(folder: Path, *command: Any) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def test_header_of_fifty_probes_takes_half_of_systemtaps_time(tmp_path: Path, program: Path, systemtap: str) -> None:
    probes = "".join(f"  probe p{number}__x(int a, char *b, uint64_t c, struct x *d);\n" for number in range(50))
    (tmp_path / "fifty.d").write_text(f"provider fifty {{\n{probes}}};\n")
    ours, theirs = [], []
    for _ in range(7):  # alternately, so that what else the machine does hits both
        ours.append(cpu_seconds(tmp_path, program, "-h", "-s", "fifty.d", "-o", "ours.h"))
        theirs.append(cpu_seconds(tmp_path, systemtap, "-h", "-s", "fifty.d", "-o", "theirs.h"))
    print(f"dtrace -h, 50 probes: {median(ours) * 1000:.0f} ms, SystemTap's {median(theirs) * 1000:.0f} ms")
    assert median(ours) <= median(theirs) / 2


BY_CALL = "-DUSDT_PROBES_BY_CALL"


@pytest.mark.parametrize("flags", [[], [BY_CALL], [BY_CALL, "-flto", "-ffat-lto-objects"]])
def test_many_objects(flags: list[str], app: Path, program: Path, run: Any) -> None:
    run("gcc", "-O2", "-g", *flags, "-c", "main.c", cwd=app)
    content = (app / "main.o").read_bytes()
    names = [f"o{number}.o" for number in range(OBJECTS)]
    for name in names:
        (app / name).write_bytes(content)
    seconds = min(cpu_seconds(app, program, "-G", "-s", "app.d", *names, "-o", "app.o") for _ in range(2))
    print(f"dtrace -G, {OBJECTS} objects: {seconds:.2f} s")
    assert seconds <= 1.5
    assert (app / "app.o").stat().st_size
