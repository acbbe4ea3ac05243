"""Cost of a hit under bpftrace and perf: ours (safe and nop5) against sys/sdt.h. Needs root and uprobes.

The traced program times its own loop, so start-up and attaching don't count. The variants run in turns, and the best of
each counts.
"""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

from common import PACKAGE, USDTBUILD, have, report, run, workspace

if TYPE_CHECKING:
    from pathlib import Path

HITS = 100_000
PROVIDER = "provider bench{tag} {{ probe tick(int i); }};\n"
SOURCE = """\
#include <stdio.h>
#include <time.h>
{include}
int main(void)
{{
    struct timespec a, b;
    int i;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &a);
    for (i = 0; i < {hits}; i++) {{ {probe} }}
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &b);
    printf("ns %.1f\\n", ((b.tv_sec - a.tv_sec) * 1e9 + (b.tv_nsec - a.tv_nsec)) / {hits});
    return 0;
}}
"""


def build(folder: Path) -> dict[str, str]:
    """Build one program a variant; return variant -> provider name."""
    providers = {}
    for name in ("sdt", "safe", "nop5"):
        tag = f"{name}_{os.getpid()}x"
        providers[name] = f"bench{tag}"
        if name == "sdt":
            include, probe, launcher = "#include <sys/sdt.h>", f"DTRACE_PROBE1(bench{tag}, tick, i);", []
        else:
            (folder / f"{name}.d").write_text(PROVIDER.format(tag=tag))
            run([USDTBUILD, "header", "--formats=dof", f"{name}.d", "-o", f"{name}.h"], folder)
            include, probe = f'#include "{name}.h"', f"BENCH{tag.upper()}_TICK(i);"
            launcher = [sys.executable, PACKAGE / "launcher.py", f"--nop={name}", "--"]
        (folder / f"{name}.c").write_text(SOURCE.format(include=include, probe=probe, hits=HITS))
        run([*launcher, "gcc", "-O2", "-c", f"{name}.c", "-o", f"{name}.o"], folder)
        run(["gcc", "-no-pie", f"{name}.o", "-o", name], folder)
    return providers


def under_bpftrace(folder: Path, name: str, provider: str) -> float:
    """Return ns a hit while bpftrace counts the hits in a map."""
    script = f"usdt:./{name}:{provider}:tick {{ @hits = count(); }}"
    out = run(["bpftrace", "-e", script, "-c", f"./{name}"], folder)
    if f"@hits: {HITS}" not in out:
        sys.exit(f"bpftrace saw other than {HITS} hits of {name}:\n{out}")
    return float(out.split("ns ")[1].split()[0])


def under_perf(folder: Path, name: str, provider: str) -> float:
    """Return ns a hit while `perf stat` counts the hits. The event is removed again."""
    event = f"sdt_{provider}:tick"
    run(["perf", "buildid-cache", "--add", f"./{name}"], folder)
    try:
        run(["perf", "probe", "-q", event], folder)
        try:
            out = subprocess.run(
                ["perf", "stat", "-e", event, f"./{name}"], cwd=folder, capture_output=True, text=True, check=True
            )
        finally:
            run(["perf", "probe", "-q", "-d", event], folder)
    finally:
        run(["perf", "buildid-cache", "--remove", f"./{name}"], folder)
    return float(out.stdout.split("ns ")[1].split()[0])


def main() -> None:
    """Measure and print."""
    if os.geteuid() or not have("bpftrace"):
        sys.exit("needs root and bpftrace")
    tracers = {"bpftrace": under_bpftrace}
    if have("perf"):
        tracers["perf stat"] = under_perf
    with workspace() as folder:
        providers = build(folder)
        rows = []
        for tracer, measure in tracers.items():
            best = dict.fromkeys(providers, float("inf"))
            for _ in range(7):
                for name, provider in providers.items():
                    best[name] = min(best[name], measure(folder, name, provider))
            for name, value in best.items():
                rows.append((tracer, name, f"{value:.0f} ns", f"{best['sdt'] / value:.2f}"))
        header = ("tracer", "variant", "a hit", "sdt / this")
        report("A hit (target: nop5 1.2 times cheaper, safe never dearer)", header, rows)


if __name__ == "__main__":
    main()
