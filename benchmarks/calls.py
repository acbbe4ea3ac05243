"""What a watched call of a library function costs, and how many of the calls made are seen: ours, ltrace, uftrace.

One program, which times its own loop of calls to a library's small function, built in the ways that change its calls:
through a lazy stub, through IBT's second stub, and with -fno-plt through no stub at all. All tools run in turns, and
the best of each counts. Target: a counted call at most 8 ns above the call itself.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from typing import TYPE_CHECKING

from common import USDTBUILD, have, report, run, workspace

if TYPE_CHECKING:
    from pathlib import Path

LIBRARY = "int work(int n) { return n + 1; }\n"
SOURCE = r"""
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
int work(int n);
static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}
int main(int argc, char **argv) {
    int n = atoi(argv[1]);
    double best = 1e12;
    for (int k = 0; k < 4; k++) {
        double start = now();
        for (int i = 0; i < n; i++) work(i);
        double took = (now() - start) / n;
        if (took < best) best = took;
    }
    fprintf(stderr, "took %.2f\n", best);
    return 0;
}
"""
FORMS = {
    "lazy stub": ("-Wl,-z,lazy",), "IBT": ("-fcf-protection=full", "-Wl,-z,ibtplt", "-Wl,-z,lazy"),
    "-fno-plt": ("-fno-plt",),
}  # fmt: skip
ROUNDS = 4  # loops of one run of the program


def variants(folder: Path) -> dict[str, tuple[list[str], list[str], int]]:
    """Return tool -> what runs the program, what prints what was seen (if it doesn't itself), and calls in a loop."""
    trace = [USDTBUILD, "trace", "-L", "work"]
    found: dict[str, tuple[list[str], list[str], int]] = {
        "not traced": ([], [], 5_000_000),
        "usdtbuild, --count": ([*trace, "--count", "--"], [], 5_000_000),
        "usdtbuild, every call": ([*trace, "--buffer", "64", "-o", str(folder / "calls.csv"), "--"], [], 50_000),
        "usdtbuild, breakpoints": ([*trace, "--engine", "trap", "--count", "--"], [], 2_000),
        "usdtbuild, with returns": ([*trace, "--returns", "--count", "--"], [], 1_000),
    }
    if have("ltrace"):
        found["ltrace -c"] = (["ltrace", "-c", "-e", "work"], [], 1_000)
    if have("uftrace"):
        data = str(folder / "uftrace.data")
        found["uftrace record"] = (
            ["uftrace", "record", "--force", "-d", data], ["uftrace", "report", "-d", data], 100_000,
        )  # fmt: skip
    return found


def seen(tool: str, output: str, folder: Path) -> int:
    """Return how many calls a tool tells of."""
    if tool == "usdtbuild, every call":
        return (folder / "calls.csv").read_text().count("work")
    if tool == "ltrace -c":
        pattern = r"([0-9]+) work$"
    elif tool == "uftrace record":
        pattern = r"([0-9]+)  work$"
    else:
        pattern = r"^ *([0-9]+)  work\b(?!:)"
    found = re.search(pattern, output, re.MULTILINE)
    return int(found[1]) if found else 0


def main() -> None:
    """Measure and print."""
    if os.uname().machine != "x86_64":
        sys.exit("calls are patched on x86-64")
    with workspace() as folder:
        (folder / "work.c").write_text(LIBRARY)
        (folder / "main.c").write_text(SOURCE)
        run(["gcc", "-O2", "-shared", "-fPIC", "work.c", "-o", "libwork.so"], folder)
        rows = []
        for form, options in FORMS.items():
            run(["gcc", "-O1", *options, "main.c", "./libwork.so", "-o", "main"], folder)
            best: dict[str, float] = {}
            counts: dict[str, str] = {}
            for _ in range(3):
                for tool, (words, shows, calls) in variants(folder).items():
                    done = subprocess.run(
                        [*words, "./main", str(calls)], cwd=folder, capture_output=True, text=True, check=False
                    )
                    took = re.search(r"took ([0-9.]+)", done.stderr + done.stdout)
                    if took is None:
                        sys.exit(f"{tool}: {done.stderr}")
                    best[tool] = min(float(took[1]), best.get(tool, 1e12))
                    text = run(shows, folder) if shows else done.stdout + done.stderr
                    counts[tool] = f"{seen(tool, text, folder):,} of {ROUNDS * calls:,}" if words else ""
            base = best["not traced"]
            rows += [[f"{form}: {tool}", f"{took - base:,.1f}", counts[tool]] for tool, took in best.items()]
        report("ns a call, over the untraced call; calls seen", ("", "ns", "seen of made"), rows)


if __name__ == "__main__":
    main()
