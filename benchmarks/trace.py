"""What a hit costs under `usdtbuild trace`, beside peers; and how long a program stands still.

One program times its own loops, so that start-up and attaching don't count: a probe with six integers, and one with a
string, in bursts of 5,000 of which the fastest counts; with `patch` also the mean of all of them. Peers count
(bpftrace, perf, gdb) or record (LTTng-UST, uftrace at the entry of a function with the same arguments) in the same run,
where they are installed. It times a `pwrite` of 64 bytes to a memfd, too, which is what a tracer would need at least
that copied a string by a system call. The second table says how many records were kept of a program that hits at a
given rate, for two seconds, also while others keep the processors busy, the case where we might lose. The third arms a
program of many sites. bpftrace and perf need root.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from typing import TYPE_CHECKING

from common import USDTBUILD, have, report, run, under_lttng, workspace

if TYPE_CHECKING:
    from pathlib import Path
    from typing import Callable

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
LTTNG_H = """
#undef LTTNG_UST_TRACEPOINT_PROVIDER
#define LTTNG_UST_TRACEPOINT_PROVIDER bench
#undef LTTNG_UST_TRACEPOINT_INCLUDE
#define LTTNG_UST_TRACEPOINT_INCLUDE "./lttng_bench.h"
#if !defined(LTTNG_BENCH_H) || defined(LTTNG_UST_TRACEPOINT_HEADER_MULTI_READ)
#define LTTNG_BENCH_H
#include <lttng/tracepoint.h>
LTTNG_UST_TRACEPOINT_EVENT(bench, six, LTTNG_UST_TP_ARGS(int, a, int, b, int, c, int, d, int, e, int, f),
	LTTNG_UST_TP_FIELDS(
		lttng_ust_field_integer(int, a, a) lttng_ust_field_integer(int, b, b) lttng_ust_field_integer(int, c, c)
		lttng_ust_field_integer(int, d, d) lttng_ust_field_integer(int, e, e) lttng_ust_field_integer(int, f, f)))
LTTNG_UST_TRACEPOINT_EVENT(bench, text, LTTNG_UST_TP_ARGS(char *, what),
	LTTNG_UST_TP_FIELDS(lttng_ust_field_string(what, what)))
#endif
#include <lttng/tracepoint-event.h>
"""
# What stands in the source for our header.
LTTNG = """
#define LTTNG_UST_TRACEPOINT_CREATE_PROBES
#define LTTNG_UST_TRACEPOINT_DEFINE
#include "lttng_bench.h"
#define BENCH_SIX(a, b, c, d, e, f) lttng_ust_tracepoint(bench, six, a, b, c, d, e, f)
#define BENCH_TEXT(what) lttng_ust_tracepoint(bench, text, what)
"""
UFTRACE = """
__attribute__((noinline)) void six(int a, int b, int c, int d, int e, int f) {
    __asm__ volatile("" : : "r"(a), "r"(b), "r"(c), "r"(d), "r"(e), "r"(f));
}
__attribute__((noinline)) void text_(char *what) { __asm__ volatile("" : : "r"(what)); }
#define BENCH_SIX(a, b, c, d, e, f) six(a, b, c, d, e, f)
#define BENCH_TEXT(what) text_(what)
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


def variants(folder: Path, hits: int) -> dict[str, Callable[[], str]]:
    """Return what is measured: what it is called -> a function that returns what the program printed."""

    def words(*command: str) -> Callable[[], str]:
        return lambda: run(command, folder)

    trace = [USDTBUILD, "trace", "-o", os.devnull, "-P", "bench:*", "--buffer", "256"]
    found = {
        "not traced": words("./bench", str(10 * hits)),
        "patch --count": words(*trace, "--count", "--", "./bench", str(10 * hits)),
        "patch": words(*trace, "--", "./bench", str(hits)),
        "trap --count": words(*trace, "--engine", "trap", "--count", "--", "./bench", str(hits // 100)),
    }
    if have("bpftrace") and not os.geteuid():
        count = SCRIPT.format(six="@a = count();", text="@b = count();")
        found["bpftrace count()"] = words("bpftrace", "-e", count, "-c", f"./bench {hits}")
    if have("perf") and not os.geteuid():
        found["perf stat"] = lambda: under_perf(folder, hits)
    if have("gdb"):
        commands = [word for name in ("six", "text") for word in ("-ex", f"break -probe-stap bench:{name}")]
        stop = ["-ex", "ignore 1 1000000", "-ex", "ignore 2 1000000", "-ex", "run"]
        found["gdb, ignored breakpoint"] = words("gdb", "-nx", "-batch", *commands, *stop, "--args", "./bench", "200")
    if (folder / "lttng").exists():
        found["LTTng-UST, a record"] = lambda: under_lttng(folder, "bench:*", "./lttng", str(hits))
    if (folder / "uftraced").exists():
        asked = ["-A", "six@" + ",".join(f"arg{i}/i32" for i in range(1, 7)), "-A", "text_@arg1/s"]
        found["uftrace record"] = words(
            "uftrace", "record", "--no-libcall", *asked, "-d", "data", "./uftraced", str(hits)
        )
    return found


def under_perf(folder: Path, hits: int) -> str:
    """Run the program while perf counts its hits, by events that are removed again."""
    events = ["sdt_bench:six", "sdt_bench:text"]
    run(["perf", "buildid-cache", "--add", "./bench"], folder)
    try:
        try:
            for event in events:
                run(["perf", "probe", "-q", event], folder)
            return run(["perf", "stat", "-e", ",".join(events), "./bench", str(hits)], folder)
        finally:
            run(["perf", "probe", "-q", "-d", "sdt_bench:*"], folder)
    finally:
        run(["perf", "buildid-cache", "--remove", "./bench"], folder)


def build_peers(folder: Path) -> None:
    """Build what peers need instead of our probes, where they are installed."""
    (folder / "lttng_bench.h").write_text(LTTNG_H)
    needs = {"lttng": (LTTNG, ["-I.", "-llttng-ust", "-ldl"]), "uftraced": (UFTRACE, ["-pg"])}
    for name, (head, options) in needs.items():
        if have(name.replace("traced", "trace")):
            (folder / f"{name}.c").write_text(SOURCE.replace('#include "bench.h"', head))
            # One that isn't there to be built with is left out of the table.
            command = ["gcc", "-O2", f"{name}.c", *options, "-o", name]
            subprocess.run(command, cwd=folder, capture_output=True, check=False)


def hits(folder: Path) -> None:
    """Measure what a hit costs."""
    (folder / "bench.d").write_text(PROVIDER)
    (folder / "bench.c").write_text(SOURCE)
    run([USDTBUILD, "header", "bench.d", "-o", "bench.h"], folder)
    run([USDTBUILD, "cc", "--", "gcc", "-O2", "-c", "bench.c"], folder)
    run(["gcc", "bench.o", "-o", "bench"], folder)
    build_peers(folder)
    best: dict[str, dict[str, float]] = {}
    for _ in range(3):
        for name, measure in variants(folder, 100_000).items():
            for what, value in times(measure()).items():
                kept = best.setdefault(name, {})
                kept[what] = min(value, kept.get(what, value))
    base = best["not traced"]
    rows = [[name, *(f"{got[what] - base[what]:,.1f}" for what in ("six", "text"))] for name, got in best.items()]
    cold = (f"{best['patch']['all' + what] - base[what]:,.1f}" for what in ("six", "text"))
    rows.insert(3, ["patch, of all hits", *cold])
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
