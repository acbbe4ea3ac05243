"""10,000 functions with patchable entries: the time to list them, and what their table costs at every start; and what a
call costs whose time is taken.

The same program four times: without entries, with the compiler's table, with its relocations packed (RELR), and with
the relative table. Counted are the dynamic relocations and the instructions of a start to the end of main, which does
nothing; by the processor (`perf stat`) where it lets us, else by valgrind's callgrind, which counts the same each time.

Calls are those of a loop, in CPU time of the program, which it takes itself: added up by `trace --report`, recorded by
uftrace, and by clang's XRay in its two modes, where these are.
"""

from __future__ import annotations

import json
import re
import shutil
import statistics
import subprocess
import sys
import time
from typing import TYPE_CHECKING

from common import USDTBUILD, have, in_turns, report, run, workspace

if TYPE_CHECKING:
    from pathlib import Path

FUNCTIONS = 10_000
FILES = 20
PAIR = "-fpatchable-function-entry=7,5"
ROUNDS = 41
CALLS = "2000000"
LOOP = r"""
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
__attribute__((noinline)) int leaf(int n) { __asm__ volatile(""); return n; }
int main(int argc, char **argv) {
    long calls = atol(argv[argc - 1]);
    clock_t before = clock();
    int sum = 0;
    for (long i = 0; i < calls; i++) sum += leaf(i);
    printf("took %.2f\n", 1e9 * (clock() - before) / CLOCKS_PER_SEC / calls);
    return sum == 1;
}
"""

# Of the size that functions of real programs have: a call, two branches, a loop.
_FUNCTION = """\
__attribute__((noinline)) int function_number_{0}(int a, int b) {{
  int sum = {0};
  if (a > {1}) sum += function_number_{2}(b, a - 1);
  for (int i = 0; i < (b & 3); i++) sum = sum * 5 + a;
  return sum;
}}
"""


def objects(folder: Path) -> dict[str, list[str]]:
    """Write the program and compile it without entries, with them, and with the relative table."""
    made: dict[str, list[str]] = {"bare": [], "absolute": [], "relative": []}
    each = FUNCTIONS // FILES
    for number in range(FILES):
        first = number * each
        parts = [f"int function_number_{(first - 1) % FUNCTIONS}(int a, int b);\n"]
        parts += [_FUNCTION.format(i, i % 97, (i - 1) % FUNCTIONS) for i in range(first, first + each)]
        if not number:
            parts.append("int main(int c, char **v) { (void)v; return c > 90 ? function_number_7(c, c) : 0; }\n")
        (folder / "part.c").write_text("".join(parts))
        for name, options in (("bare", []), ("absolute", [PAIR])):
            made[name].append(f"{name}{number}.o")
            run(["gcc", "-O1", "-fPIE", *options, "-c", "part.c", "-o", made[name][-1]], folder)
        made["relative"].append(f"relative{number}.o")
        source = made["absolute"][-1]
        run([USDTBUILD, "instrument", "--patchable-table=relative", source, "-o", made["relative"][-1]], folder)
    run(["ld", "-r", *made["absolute"], "-o", "whole.o"], folder)
    return made


def instructions(program: Path, folder: Path) -> tuple[int, str]:
    """Return how many instructions one start takes in user space, and who counted."""
    if shutil.which("perf"):
        done = subprocess.run(
            ["perf", "stat", "-x,", "-e", "instructions:u", program], capture_output=True, text=True, check=False
        )
        if found := re.match(r"(\d+),", done.stderr.strip().splitlines()[-1]):
            return int(found[1]), "perf"
    done = subprocess.run(
        ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", program],
        capture_output=True, text=True, check=True, cwd=folder,
    )  # fmt: skip
    return int(re.search(r"Collected : (\d+)", done.stderr)[1]), "callgrind"  # type: ignore[index]


def start_times(programs: dict[str, Path]) -> dict[str, float]:
    """Start the programs in turns; return the median microseconds of each, from the spawn to the end."""
    taken: dict[str, list[float]] = {name: [] for name in programs}
    for _ in range(ROUNDS):
        for name, program in programs.items():
            before = time.perf_counter()
            subprocess.run([program], check=True)
            taken[name].append(1e6 * (time.perf_counter() - before))
    return {name: statistics.median(values) for name, values in taken.items()}


def calls(folder: Path) -> None:
    """Measure what a call of a function costs whose time is taken."""
    (folder / "loop.c").write_text(LOOP)
    run(["gcc", "-O2", PAIR, "loop.c", "-o", "loop"], folder)
    commands = {
        "not traced": ["./loop"],
        "trace --report": [USDTBUILD, "trace", "--report", "-F", "leaf", "--", "./loop"],
    }
    if have("uftrace"):
        run(["gcc", "-O2", "-pg", "loop.c", "-o", "loop_pg"], folder)
        commands["uftrace record"] = ["uftrace", "record", "-F", "leaf", "-d", "calls", "./loop_pg"]
    words = ["clang", "-O2", "-fxray-instrument", "-fxray-instruction-threshold=1", "loop.c", "-o", "loop_xray"]
    if have("clang") and not subprocess.run(words, cwd=folder, capture_output=True, check=False).returncode:
        for mode in ("basic", "fdr"):
            options = f"XRAY_OPTIONS=patch_premain=true xray_mode=xray-{mode} verbosity=0"
            commands[f"XRay, {mode}"] = ["env", options, "./loop_xray"]
    best: dict[str, float] = {}
    for _ in range(5):
        for name, command in commands.items():
            took = float(re.findall(r"^took ([0-9.]+)$", run([*command, CALLS], folder), re.MULTILINE)[0])
            best[name] = min(took, best.get(name, took))
    rows = [[name, f"{took - best['not traced']:,.1f}"] for name, took in best.items()]
    report("ns a call whose time is taken, over the untraced one", ("", ""), rows)


def main() -> None:
    """Build, list, count, and print."""
    with workspace() as folder:
        calls(folder)
        made = objects(folder)
        programs = {name: folder / name for name in ("bare", "absolute", "packed", "relative")}
        for name, inputs in made.items():
            run(["gcc", "-pie", *inputs, "-o", name], folder)
        run(["gcc", "-pie", "-Wl,-z,pack-relative-relocs", *made["absolute"], "-o", "packed"], folder)
        rows = []
        times = start_times(programs)
        for name, program in programs.items():
            found = json.loads(run([USDTBUILD, "functions", "--json", "--totals", name], folder))["files"][0]
            count, by = instructions(program, folder)
            rows.append([
                name, str(found["totals"]["hotpatchable"]),
                str(sum(table["dynamic_relocations"] for table in found["tables"])),
                f"{program.stat().st_size:,}", f"{count:,}", by, f"{times[name]:.0f}",
            ])  # fmt: skip
        report(
            "Start-up of a PIE with 10,000 functions",
            ["table", "hotpatchable", "relocations", "file bytes", "instructions", "counted by", "µs"],
            rows,
        )
        commands = {
            "text": [USDTBUILD, "functions", "absolute"],
            "JSON": [USDTBUILD, "functions", "--json", "absolute"],
            "relative table": [USDTBUILD, "functions", "relative"],
            "object": [USDTBUILD, "functions", "whole.o"],
            "--explain": [USDTBUILD, "functions", "--explain", "bare"],
            "writing the table": [USDTBUILD, "instrument", "--patchable-table=relative", "whole.o", "-o", "x.o"],
        }
        best = in_turns(commands, folder, rounds=5)
        report(
            "usdtbuild on 10,000 functions, CPU seconds (at most 1.5 wanted)", ["command", "s"],
            [[name, f"{seconds:.2f}"] for name, seconds in best.items()],
        )  # fmt: skip
        if best["text"] > 1.5:
            sys.exit("listing took longer than 1.5 s")


if __name__ == "__main__":
    main()
