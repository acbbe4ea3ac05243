"""What a hit costs under `usdtbuild trace`, side by side with bpftrace and gdb; and how long a program stands still.

One program times its own loops, so that start-up and attaching don't count: a probe with six integers, and one with a
string, in bursts of 5,000 of which the fastest counts; with `patch` also all of them, each into memory that is new.
The same run times a `pwrite` of 64 bytes to a memfd, which is what a tracer would need at least that copied a string by
a system call. The second table says how many records were kept of a program that hits at a given rate, for two seconds,
also while others keep the processors busy, the case where we might lose. The third arms a program of many sites.
bpftrace needs root.
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

PROVIDER = "provider bench { probe six(int a, int b, int c, int d, int e, int f); probe text(char *what); };\n"
SOURCE = r"""
#define _GNU_SOURCE
#include "bench.h"
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>
static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}
int main(int argc, char **argv) {
    int n = argc > 1 ? atoi(argv[1]) : 1000;
    int file = memfd_create("bench", 0);
    char text[65] = "a text of some length";
    int burst = n < 5000 ? n : 5000;
    double start, spent, sum = 0, best = 1e9;
    for (int done = 0; done < n; done += burst) {
        start = now();
        for (int i = 0; i < burst; i++) { BENCH_SIX(i, i, i, i, i, i); }
        spent = (now() - start) / burst;
        sum += spent * burst / n;
        if (spent < best) best = spent;
        if (burst < n) usleep(10000);
    }
    printf("six %.1f\nallsix %.1f\n", best, sum);
    best = 1e9, sum = 0;
    for (int done = 0; done < n; done += burst) {
        start = now();
        for (int i = 0; i < burst; i++) { BENCH_TEXT(text); }
        spent = (now() - start) / burst;
        sum += spent * burst / n;
        if (spent < best) best = spent;
        if (burst < n) usleep(10000);
    }
    printf("text %.1f\nalltext %.1f\n", best, sum);
    best = 1e9;
    for (int k = 0; k < 5; k++) {
        start = now();
        for (int i = 0; i < 20000; i++) (void)!pwrite(file, text, 64, 0);
        if ((now() - start) / 20000 < best) best = (now() - start) / 20000;
    }
    printf("pwrite %.1f\n", best);
    return 0;
}
"""
PACED = r"""
#include "bench.h"
#include <pthread.h>
#include <stdlib.h>
#include <time.h>
static double rate;
static long hits;
static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}
static void *work(void *nothing) {
    double start = now();
    for (long done = 0; done < hits;) {
        long due = rate > 0 ? (long)((now() - start) * rate) : hits;
        if (due <= done) {
            struct timespec pause = {0, 500000};
            nanosleep(&pause, 0);
        }
        for (; done < due && done < hits; done++) { BENCH_SIX((int)done, 1, 2, 3, 4, 5); }
    }
    return nothing;
}
int main(int argc, char **argv) {
    int threads = argc > 3 ? atoi(argv[1]) : 1;
    pthread_t thread[16];
    rate = argc > 3 ? atof(argv[2]) / threads : 0;
    hits = argc > 3 ? atol(argv[3]) / threads : 1000;
    for (int i = 0; i < threads; i++) pthread_create(&thread[i], 0, work, 0);
    for (int i = 0; i < threads; i++) pthread_join(thread[i], 0);
    return 0;
}
"""
SCRIPT = "usdt:./bench:bench:six {{ {six} }} usdt:./bench:bench:text {{ {text} }}"


def times(output: str) -> dict[str, float]:
    """Return what the program has measured, in nanoseconds."""
    return {
        name: float(number)
        for name, number in re.findall(r"^((?:all)?six|(?:all)?text|pwrite) ([0-9.]+)$", output, re.MULTILINE)
    }


def variants(hits: int) -> dict[str, list[str]]:
    """Return the commands: what it is called -> words."""
    trace = [USDTBUILD, "trace", "-o", os.devnull, "-P", "bench:*", "--buffer", "256"]
    found = {
        "not traced": ["./bench", str(10 * hits)],
        "patch --count": [*trace, "--count", "--", "./bench", str(10 * hits)],
        "patch": [*trace, "--", "./bench", str(hits)],
        "trap --count": [*trace, "--engine", "trap", "--count", "--", "./bench", str(hits // 100)],
    }
    if have("bpftrace") and not os.geteuid():
        count = SCRIPT.format(six="@a = count();", text="@b = count();")
        found["bpftrace count()"] = ["bpftrace", "-e", count, "-c", f"./bench {hits}"]
    if have("gdb"):
        commands = [word for name in ("six", "text") for word in ("-ex", f"break -probe-stap bench:{name}")]
        stop = ["-ex", "ignore 1 1000000", "-ex", "ignore 2 1000000", "-ex", "run"]
        found["gdb, ignored breakpoint"] = ["gdb", "-nx", "-batch", *commands, *stop, "--args", "./bench", "200"]
    return found


def hits(folder: Path) -> None:
    """Measure what a hit costs."""
    (folder / "bench.d").write_text(PROVIDER)
    (folder / "bench.c").write_text(SOURCE)
    run([USDTBUILD, "header", "bench.d", "-o", "bench.h"], folder)
    run([USDTBUILD, "cc", "--", "gcc", "-O2", "-c", "bench.c"], folder)
    run(["gcc", "bench.o", "-o", "bench"], folder)
    best: dict[str, dict[str, float]] = {}
    for _ in range(3):
        for name, words in variants(100_000).items():
            for what, value in times(run(words, folder)).items():
                kept = best.setdefault(name, {})
                kept[what] = min(value, kept.get(what, value))
    base = best["not traced"]
    rows = [[name, *(f"{got[what] - base[what]:,.1f}" for what in ("six", "text"))] for name, got in best.items()]
    cold = (f"{best['patch']['all' + what] - base[what]:,.1f}" for what in ("six", "text"))
    rows.insert(3, ["patch, into memory never used before", *cold])
    rows.append(["pwrite of 64 bytes", "", f"{min(got['pwrite'] for got in best.values()):,.1f}"])
    report("ns a hit, over the untraced probe", ("", "six integers", "a string"), rows)


def kept(folder: Path, load: int) -> None:
    """Measure how many records are kept, while so many others want the processors all the time."""
    (folder / "paced.c").write_text(PACED)
    run([USDTBUILD, "cc", "--", "gcc", "-O2", "-c", "paced.c"], folder)
    run(["gcc", "paced.o", "-lpthread", "-o", "paced"], folder)
    rows = []
    others = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(load)]
    try:
        for rate in (500_000, 1_000_000, 2_000_000, 0):
            row = [f"{rate:,}" if rate else "as fast as it can"]
            for threads in (1, 4):
                hits = 2 * rate or 4_000_000
                words = f"{USDTBUILD} trace -P 'bench:*' --by a --top 1 -- ./paced {threads} {rate} {hits} 2>&1"
                lost = re.findall(r"([0-9]+) of ([0-9]+) hits were lost", run(["sh", "-c", words], folder))
                row.append(f"{100 - 100 * int(lost[0][0]) / hits:.2f} %" if lost else "all")
            rows.append(row)
    finally:
        for one in others:
            one.kill()
            one.wait()
    report(f"records kept, {load} others busy", ("hits a second", "one thread", "four threads"), rows)


def standing(folder: Path) -> None:
    """Measure how long a program of many sites stands still."""
    rows = []
    for sites in (10, 1_000, 10_000):
        body = "".join(f"BENCH_SIX({i}, 1, 2, 3, 4, 5);\n" for i in range(sites))
        (folder / "many.c").write_text(f'#include "bench.h"\nint main(void) {{\n{body}return 0; }}\n')
        run([USDTBUILD, "cc", "--", "gcc", "-O1", "-c", "many.c"], folder)
        run(["gcc", "many.o", "-o", "many"], folder)
        stood = []
        for _ in range(3):
            said = run(["sh", "-c", f"{USDTBUILD} trace -v --count -P 'bench:*' -- ./many 2>&1"], folder)
            stood.append(float(re.findall(r"stood still for ([0-9.]+) ms", said)[0]))
        rows.append([f"{sites:,}", f"{min(stood):.1f}", f"{max(stood):.1f}"])
    report("how long a program stands still to be armed, ms", ("sites", "least", "most"), rows)


def main() -> None:
    """Measure and print."""
    with workspace() as folder:
        hits(folder)
        for load in (0, 2 * (os.cpu_count() or 1)):
            kept(folder, load)
        standing(folder)


if __name__ == "__main__":
    main()
