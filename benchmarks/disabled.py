"""Cost of a probe while nobody looks: ours and sys/sdt.h in the same loops, against no probe.

Each variant is the same C function in its own translation unit; one program calls them in turns and keeps the best of
many short runs of each, in CPU time.
"""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

from common import PACKAGE, USDTBUILD, report, run, workspace

if TYPE_CHECKING:
    from pathlib import Path

PROVIDER = "provider bench { probe tick(); probe value(uint64_t x); probe gated(uint64_t x); };\n"

# variant -> (what stands for the probe without arguments, with one, and behind its is-enabled test)
VARIANTS = {
    "none": ("", "", ""),
    "sdt": (
        "DTRACE_PROBE(bench, tick);",
        "DTRACE_PROBE1(bench, value, x);",
        "if (SDT_ENABLED) DTRACE_PROBE1(bench, gated, x);",
    ),
    "safe": ("BENCH_TICK();", "BENCH_VALUE(x);", "if (BENCH_GATED_ENABLED()) BENCH_GATED(x);"),
    "nop5": ("BENCH_TICK();", "BENCH_VALUE(x);", "if (BENCH_GATED_ENABLED()) BENCH_GATED(x);"),
    "classic": ("BENCH_TICK();", "BENCH_VALUE(x);", "if (BENCH_GATED_ENABLED()) BENCH_GATED(x);"),
}
SOURCE = """\
#include <stdint.h>
{include}
uint64_t {name}_cycle(uint64_t n)
{{
    while (n) {{ __asm__ volatile("" : "+r"(n)); {tick} n--; }}
    return n;
}}
uint64_t {name}_xorshift(uint64_t n)
{{
    uint64_t x = 88172645463325252u;
    for (; n; n--) {{ x ^= x << 13; x ^= x >> 7; x ^= x << 17; {value} }}
    return x;
}}
uint64_t {name}_gated(uint64_t n)
{{
    uint64_t x = 88172645463325252u;
    for (; n; n--) {{ x ^= x << 13; x ^= x >> 7; x ^= x << 17; {gated} }}
    return x;
}}
"""
SDT_INCLUDE = """\
#include <sys/sdt.h>
#define _SDT_HAS_SEMAPHORES 1
static unsigned short bench_gated_semaphore __attribute__((section(".probes"), used));
#define SDT_ENABLED __builtin_expect(*(volatile unsigned short *)&bench_gated_semaphore, 0)
"""
MAIN_HEAD = """\
#include <stdint.h>
#include <stdio.h>
#include <time.h>
typedef uint64_t loop(uint64_t);
static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return t.tv_sec * 1e9 + t.tv_nsec;
}
"""
MAIN_TAIL = """\
enum { COUNT = sizeof loops / sizeof *loops, N = 2000000, ROUNDS = 300 };
int main(void)
{
    double best[COUNT];
    for (int i = 0; i < COUNT; i++) best[i] = 1e30;
    for (int round = 0; round < ROUNDS; round++)
        for (int i = 0; i < COUNT; i++) {
            double start = now(); volatile uint64_t sink = loops[i].run(N); (void)sink;
            double took = (now() - start) / N;
            if (took < best[i]) best[i] = took;
        }
    printf("{");
    for (int i = 0; i < COUNT; i++) printf("%s\\"%s\\": %.4f", i ? ", " : "", loops[i].name, best[i]);
    printf("}\\n");
    return 0;
}
"""


def build(folder: Path) -> None:
    """Compile every variant and link the program."""
    (folder / "bench.d").write_text(PROVIDER)
    run([USDTBUILD, "header", "bench.d", "-o", "bench.h"], folder)
    flags = ["-O2", "-falign-loops=64", "-falign-functions=64"]
    main = MAIN_HEAD
    table = []
    for name, (tick, value, gated) in VARIANTS.items():
        include = {"none": "", "sdt": SDT_INCLUDE}.get(name, '#include "bench.h"')
        (folder / f"{name}.c").write_text(
            SOURCE.format(name=name, include=include, tick=tick, value=value, gated=gated)
        )
        launcher = [sys.executable, PACKAGE / "launcher.py", f"--nop={name}", "--"] if "bench.h" in include else []
        run([*launcher, "gcc", *flags, "-c", f"{name}.c", "-o", f"{name}.o"], folder)
        for kind in ("cycle", "xorshift", "gated"):
            main += f"loop {name}_{kind};\n"
            table.append(f'{{"{name}_{kind}", {name}_{kind}}}')
    main += "static struct { const char *name; loop *run; } loops[] = {" + ", ".join(table) + "};\n" + MAIN_TAIL
    (folder / "main.c").write_text(main)
    run(["gcc", "-O2", "main.c", *[f"{name}.o" for name in VARIANTS], "-o", "bench"], folder)


def main() -> None:
    """Measure and print."""
    with workspace() as folder:
        build(folder)
        found = json.loads(run([folder / "bench"], folder))
    rows = []
    for name in VARIANTS:
        row = [name]
        for kind in ("cycle", "xorshift", "gated"):
            value = found[f"{name}_{kind}"]
            row += [f"{value:.3f}", f"{value - found[f'none_{kind}']:+.3f}", f"{value - found[f'sdt_{kind}']:+.3f}"]
        rows.append(row)
    header = ["variant"]
    for kind in ("one-cycle loop", "xorshift", "gated xorshift"):
        header += [f"{kind}, ns", "over none", "over sdt"]
    report("A disabled probe (target: at most 0.05 ns over sys/sdt.h)", header, rows)


if __name__ == "__main__":
    main()
