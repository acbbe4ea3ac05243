"""Cost of a probe while nobody looks: ours and sys/sdt.h in the same loops and functions, against no probe.

Each variant of a case is the same C function in its own translation unit. One program calls them in turns and keeps
the best of many short runs of each, in CPU time; valgrind counts the instructions of a pass, which are the same each
time, and the size of the function is its bytes of code. Targets: never more instructions than sys/sdt.h and the moves
into argument registers, at most 0.05 ns above it, and no more bytes.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
from typing import TYPE_CHECKING, NamedTuple

from common import PACKAGE, USDTBUILD, report, run, workspace

if TYPE_CHECKING:
    from pathlib import Path

PROVIDER = """\
provider bench {
  probe tick(); probe value(uint64_t x); probe two(int a, int b); probe text(char *s); probe gated(uint64_t x);
};
"""
FLAGS = ["-O2", "-fno-tree-vectorize", "-falign-loops=64", "-falign-functions=64"]
MOST = 0.05  # ns above sys/sdt.h


class Variant(NamedTuple):
    """What stands for each probe, what is included before, and how the launcher is called (None: not at all)."""

    probes: dict[str, str]
    include: str = '#include "bench.h"'
    launcher: tuple[str, ...] | None = ()
    flags: tuple[str, ...] = ()


_SDT_INCLUDE = """\
#include <sys/sdt.h>
static unsigned short bench_gated_semaphore __attribute__((section(".probes"), used));
#define SDT_ENABLED __builtin_expect(*(volatile unsigned short *)&bench_gated_semaphore, 0)"""
_OURS = {
    "TICK": "BENCH_TICK()", "VALUE(x)": "BENCH_VALUE(x)", "TWO(a, b)": "BENCH_TWO(a, b)", "TEXT(s)": "BENCH_TEXT(s)",
    "GATED(x)": "do { if (BENCH_GATED_ENABLED()) BENCH_GATED(x); } while (0)",
}  # fmt: skip
_SDT = {
    "TICK": "DTRACE_PROBE(bench, tick)", "VALUE(x)": "DTRACE_PROBE1(bench, value, x)",
    "TWO(a, b)": "DTRACE_PROBE2(bench, two, a, b)", "TEXT(s)": "DTRACE_PROBE1(bench, text, s)",
    "GATED(x)": "do { if (SDT_ENABLED) DTRACE_PROBE1(bench, gated, x); } while (0)",
}  # fmt: skip
_BRANCH = '#include "branch.h"'  # the header of formats that are written after the compiler
VARIANTS = {
    "none": Variant(dict.fromkeys(_OURS, "(void)0"), "", None),
    "sdt": Variant(_SDT, _SDT_INCLUDE, None),
    "header": Variant(_OURS, launcher=None),
    "completed": Variant(_OURS, _BRANCH),
    "calls": Variant(_OURS, _BRANCH, flags=("-DUSDT_PROBES_BY_CALL",)),
    "nop5": Variant(_OURS, _BRANCH, launcher=("--nop=nop5",)),
}
# case -> (moves into argument registers in a pass, the function's body); N passes, `n` says how many.
CASES = {
    "one cycle": (0, 'while (n) { __asm__ volatile("" : "+r"(n)); TICK; n--; } return n;'),
    "xorshift": (1, "uint64_t x = 88172645463325252u; for (; n; n--) { x ^= x << 13; x ^= x >> 7; x ^= x << 17; "
                    "VALUE(x); } return x;"),
    "xorshift, gated": (0, "uint64_t x = 88172645463325252u; for (; n; n--) { x ^= x << 13; x ^= x >> 7; "
                           "x ^= x << 17; GATED(x); } return x;"),
    "eight doubles": (0, "double a = 1, b = 2, c = 3, d = 4, e = 5, f = 6, g = 7, h = 8; for (; n; n--) { "
                         "a += 1.5; b += a; c -= 2.5; d += c; e += 3.5; f += e; g -= 4.5; h += g; TICK; } "
                         "return (uint64_t)(a + b + c + d + e + f + g + h);"),
    "ten integers": (1, "uint64_t a = n, b = 2, c = 3, d = 4, e = 5, f = 6, g = 7, h = 8, i = 9; for (; n; n--) { "
                        "a += b; b ^= a; c += b; d ^= c; e += d; f ^= e; g += f; h ^= g; i += h; VALUE(i); } "
                        "return a + b + c + d + e + f + g + h + i;"),
    "leaf function": (2, "uint64_t s = 0; for (; n; n--) s += leaf((int)n, (int)s); return s;"),
    "leaf, pointer": (1, "uint64_t s = 0; for (; n; n--) s += (uint64_t)named((int)n, text); return s;"),
    "small inlined": (2, "int s = 0; for (; n; n--) s = small(s, (int)n); return (uint64_t)s;"),
}  # fmt: skip
SOURCE = """\
#include <stdint.h>
{include}
{macros}
static char text[] = "text";
__attribute__((noinline)) static int leaf(int a, int b) {{ int kept = a * 3; TWO(a, b); return kept ^ b; }}
__attribute__((noinline)) static int named(int a, char *s) {{ int kept = a * 3; TEXT(s); return kept ^ s[0]; }}
static inline int small(int a, int b) {{ int sum = a + b; if (sum & 64) sum ^= b; TWO(a, b); return sum; }}
uint64_t {name}(uint64_t n);
uint64_t {name}(uint64_t n) {{ (void)text; (void)leaf; (void)named; (void)small; {body} }}
"""
MAIN = """\
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
typedef uint64_t loop(uint64_t);
%s
static struct { const char *name; loop *run; } loops[] = { %s };
static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return t.tv_sec * 1e9 + t.tv_nsec;
}
enum { COUNT = sizeof loops / sizeof *loops, N = 400000, ROUNDS = 150 };
int main(int argc, char **argv)
{
    double best[COUNT];
    if (argc > 2) /* one loop, so many times, for valgrind */
        return (int)(loops[atoi(argv[1])].run(strtoul(argv[2], 0, 10)) & 1) & 0;
    for (int i = 0; i < COUNT; i++) best[i] = 1e30;
    for (int round = 0; round < ROUNDS; round++)
        for (int i = 0; i < COUNT; i++) {
            double start = now(); volatile uint64_t sink = loops[i].run(N); (void)sink;
            double took = (now() - start) / N;
            if (took < best[i]) best[i] = took;
        }
    printf("{");
    for (int i = 0; i < COUNT; i++) printf("%%s\\"%%s\\": %%.4f", i ? ", " : "", loops[i].name, best[i]);
    printf("}\\n");
    return 0;
}
"""


class Cost(NamedTuple):
    """ns and instructions of a pass, and bytes of code."""

    time: float
    instructions: float
    size: int


def build(folder: Path, compiler: str) -> list[str]:
    """Compile every variant of every case and link the program; return the functions' names in order."""
    (folder / "bench.d").write_text(PROVIDER)
    run([USDTBUILD, "header", "bench.d", "-o", "bench.h"], folder)
    run([USDTBUILD, "header", "--formats=dof", "bench.d", "-o", "branch.h"], folder)
    names = []
    for variant, (probes, include, launcher, more) in VARIANTS.items():
        macros = "\n".join(f"#define {name} {text}" for name, text in probes.items())
        before = [] if launcher is None else [sys.executable, PACKAGE / "launcher.py", *launcher, "--"]
        for number, (_, body) in enumerate(CASES.values()):
            name = f"{variant}_{number}"
            names.append(name)
            text = SOURCE.format(include=include, macros=macros, name=name, body=body)
            (folder / f"{name}.c").write_text(text)
            run([*before, compiler, *FLAGS, *more, "-c", f"{name}.c", "-o", f"{name}.o"], folder)
    declared = " ".join(f"loop {name};" for name in names)
    table = ", ".join(f'{{"{name}", {name}}}' for name in names)
    (folder / "main.c").write_text(MAIN % (declared, table))
    run([compiler, "-O2", "main.c", *[f"{name}.o" for name in names], "-o", "bench"], folder)
    return names


def measure(folder: Path, compiler: str) -> dict[str, Cost]:
    """Return each function's cost."""
    names = build(folder, compiler)
    times = json.loads(run([folder / "bench"], folder))
    found = {}
    for index, name in enumerate(names):
        counts = []
        for passes in (1000, 3000):
            command = ["valgrind", "--tool=callgrind", "--log-file=log", "--callgrind-out-file=/dev/null"]
            run([*command, folder / "bench", str(index), str(passes)], folder)
            counts.append(int(re.findall(r"Collected : (\d+)", (folder / "log").read_text())[0]))
        sizes = run(["size", "-A", f"{name}.o"], folder)
        size = sum(int(n) for section, n in re.findall(r"^(\S+) +(\d+)", sizes, re.MULTILINE) if section == ".text")
        found[name] = Cost(times[name], (counts[1] - counts[0]) / 2000, size)
    return found


def rows(found: dict[str, Cost], missed: list[str], compiler: str) -> list[list[str]]:
    """Return the table, and note in `missed` where a target isn't met."""
    table = []
    for number, (case, (moves, _)) in enumerate(CASES.items()):
        peer = found[f"sdt_{number}"]
        row = [case]
        for variant in VARIANTS:
            cost = found[f"{variant}_{number}"]
            row.append(f"{cost.time:.2f} / {cost.instructions:.4g} / {cost.size}")
            if variant == "header":
                over = (cost.time - peer.time, cost.instructions - peer.instructions - moves, cost.size - peer.size)
                what = [f"{over[0]:+.2f} ns"] * (over[0] > MOST) + [f"{over[1]:+g} instructions"] * (over[1] > 0.01)
                what += [f"{over[2]:+} bytes"] * (over[2] > 0)
                missed += [f"{compiler}, {case}, {variant}: {', '.join(what)}"] if what else []
        table.append(row)
    return table


def main() -> None:
    """Measure and print."""
    missed: list[str] = []
    for compiler in filter(shutil.which, ("gcc", "clang")):
        with workspace() as folder:
            found = measure(folder, compiler)
        title = f"A disabled probe, {compiler}: ns / instructions of a pass / bytes of code"
        report(title, ["case", *VARIANTS], rows(found, missed, compiler))
    print("Over sys/sdt.h and the moves into argument registers (0.05 ns, 0 instructions, 0 bytes are allowed):")
    print("\n".join(f"  {line}" for line in missed) or "  nowhere")


if __name__ == "__main__":
    main()
