"""What probes cost when a library is loaded: relocations and instructions of the dynamic linker, for 1,000 sites.

A program that does nothing is linked with a library of 1,000 functions of one probe each. Valgrind counts the
instructions from the first of the dynamic linker to the last of the program, which is the same number in each run. The
peer is the scheme of the classic tools: a record that holds each function's absolute address.
"""

from __future__ import annotations

import re
import subprocess
import sys
from typing import TYPE_CHECKING, NamedTuple

from common import PACKAGE, USDTBUILD, have, report, run, workspace

if TYPE_CHECKING:
    from pathlib import Path

SITES = 1000
PROVIDER = "provider bench { probe tick(int n); };\n"
SOURCE = "".join(f"int f{i}(int n) {{ TICK(n); return n + {i}; }}\n" for i in range(SITES))
OURS = '#include "bench.h"\n#define TICK(n) BENCH_TICK(n)\n'
SDT = "#include <sys/sdt.h>\n#define TICK(n) DTRACE_PROBE1(bench, tick, n)\n"
MAIN = "int main(void) { return 0; }\n"


class Variant(NamedTuple):
    """One way to have probes: what it is called, the beginning of the source, and options for the launcher."""

    name: str
    title: str
    head: str
    options: tuple[str, ...] | None


VARIANTS = (
    Variant("none", "no probes", "#define TICK(n) (void)(n)\n", None),
    Variant("sdt", "sys/sdt.h", SDT, None),
    Variant("header", "the header", OURS.replace("bench.h", "whole.h"), None),
    Variant("stapsdt", "SDT notes", OURS, ()),
    Variant("usdt", "notes for Oracle's DTrace", OURS, ("--formats=usdt", "--target-os=oracle")),
    Variant("dof", "DOF, addresses as distances", OURS, ("--formats=dof", "--target-os=freebsd")),
    Variant("all", "all three", OURS, ("--formats=stapsdt,usdt,dof", "--target-os=freebsd")),
    Variant("absolute", "DOF, absolute addresses", OURS, ("--formats=dof", "--target-os=oracle")),
)


def build(variant: Variant, folder: Path) -> Path:
    """Make the library and the program of a variant in a folder of its own; return the program.

    All names are equally long, because the dynamic linker's work depends on that.
    """
    (folder / "bench.c").write_text(variant.head + SOURCE)
    (folder / "main.c").write_text(MAIN)
    compile_: list[str | Path] = ["gcc", "-O2", "-fPIC", "-I..", "-c", "bench.c", "-o", "bench.o"]
    if variant.options is not None:
        compile_ = [sys.executable, PACKAGE / "launcher.py", *variant.options, "--", *compile_]
    run(compile_, folder)
    run(["gcc", "-shared", "bench.o", "-o", "libbench.so"], folder)
    run(["gcc", "main.c", "-Wl,--no-as-needed", "-L.", "-lbench", f"-Wl,-rpath,{folder}", "-o", "bench"], folder)
    return folder / "bench"


def relocations(program: Path) -> int:
    """Return how many dynamic relocations the library of a program has."""
    shown = run(["readelf", "-rW", "libbench.so"], program.parent)
    return len(re.findall(r"^[0-9a-f]{12,}", shown, re.MULTILINE))


def instructions(program: Path) -> int:
    """Return how many instructions a run takes, its start and end included."""
    command = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", str(program)]
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    return int(re.findall(r"Collected : (\d+)", shown)[0])


def main() -> None:
    """Measure and print."""
    if not have("valgrind"):
        sys.exit("valgrind is not installed")
    rows = []
    with workspace() as folder:
        (folder / "bench.d").write_text(PROVIDER)
        run([USDTBUILD, "header", "bench.d", "-o", "whole.h"], folder)
        run([USDTBUILD, "header", "--formats=dof", "bench.d", "-o", "bench.h"], folder)
        found = {}
        for number, variant in enumerate(VARIANTS):
            own = folder / str(number)
            own.mkdir()
            program = build(variant, own)
            found[variant.name] = relocations(program), instructions(program)
    none, peer = found["none"], found["absolute"]
    for variant in VARIANTS:
        count, taken = found[variant.name]
        share = (taken - none[1]) / (peer[1] - none[1])
        rows.append(
            (variant.title, f"{count - none[0]:+d}", f"{(count - none[0]) / SITES:.2f}", f"{taken - none[1]:+d}",
             f"{(taken - none[1]) / SITES:.1f}", f"{share:.2f}")
        )  # fmt: skip
    header = ("records", "relocations", "a site", "instructions", "a site", "of the absolute scheme's")
    report(f"Loading a library with {SITES} sites in as many functions (target: no relocation)", header, rows)


if __name__ == "__main__":
    main()
