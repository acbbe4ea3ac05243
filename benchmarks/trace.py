"""What a hit costs under `usdtbuild trace`, beside peers; and how long a program stands still.

One program times its own loops, so that start-up and attaching don't count: a probe with six integers, and one with a
string, in the heap and where its page has to be tried, in bursts of 5,000 of which the fastest counts; with `patch`
also the mean of all of them, and that of two threads that hit one probe at the same time: where they share what they
count in, each waits for the other. Peers count (bpftrace, perf, gdb) or record (LTTng-UST, uftrace at the entry of a
function with the same arguments) in the same run, where they are installed. It times a `pwrite` of 64 bytes to a memfd,
too, which is what a tracer would need at least that copied a string by a system call. The second table says how many
records were kept of a program that hits at a given rate, for two seconds, also while others keep the processors busy,
the case where we might lose; the third what peers keep of it, on one thread. The fourth is for functions with their
returns. The last ones arm programs of many sites, as they start and while they run, and say how long a whole attaching
takes, of which the program may run most. bpftrace and perf need root.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

from common import USDTBUILD, have, report, run, under_lttng, workspace

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

PROVIDER = """provider bench {
    probe six(int a, int b, int c, int d, int e, int f); probe text(char *what);
    probe open(long id); probe close(long id);
};
"""
# What both programs that time themselves do it with: nanoseconds of the process.
CLOCK = r"""
#define _GNU_SOURCE
#include <time.h>
static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}
"""
SOURCE = r"""
#include "bench.h"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
static void *at_once(void *number) {
    for (int i = 0; i < *(int *)number; i++) BENCH_SIX(i % 100, i, i, i, i, i);
    return 0;
}
static double two(int n) {  /* threads that hit one probe at the same time */
    pthread_t threads[2];
    double start = now();
    for (int i = 0; i < 2; i++) if (pthread_create(threads + i, 0, at_once, &n)) exit(1);
    for (int i = 0; i < 2; i++) pthread_join(threads[i], 0);
    return (now() - start) / n / 2;
}
int main(int argc, char **argv) {
    int n = argc > 1 ? atoi(argv[1]) : 1000;
    int file = memfd_create("bench", 0);
    char *text = strdup("a text of some length"), *tried;
    int burst = n < 5000 ? n : 5000;
    double start, spent, sum = 0, best = 1e9;
    if (argc > 2 && !strcmp(argv[2], "two")) return !printf("six %.1f\n", two(n));
    tried = strcpy(mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), text);
    for (int done = 0; done < n; done += burst) {
        start = now();
        for (int i = 0; i < burst; i++) {
#ifdef BENCH_OPEN
            if (argc > 2) {
                BENCH_OPEN(done + i);
                BENCH_CLOSE(done + i);
                continue;
            }
#endif
            BENCH_SIX(i % 100, i, i, i, i, i);
            BENCH_TEXT(text);
        }
        spent = (now() - start) / burst;
        if (spent < best) best = spent;
        if (burst < n) usleep(10000);
    }
    printf("pair %.1f\n", best);
    best = 1e9;
    for (int done = 0; done < n; done += burst) {
        start = now();
        for (int i = 0; i < burst; i++) { BENCH_SIX(i % 100, i, i, i, i, i); }
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
    for (int done = 0; done < n; done += burst) {
        start = now();
        for (int i = 0; i < burst; i++) { BENCH_TEXT(tried); }
        spent = (now() - start) / burst;
        if (spent < best) best = spent;
        if (burst < n) usleep(10000);
    }
    printf("tried %.1f\n", best);
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
# What peers that are compiled in have instead of our header, and are built with.
PEERS = {"lttng": (LTTNG, ["-I.", "-llttng-ust", "-ldl"]), "uftraced": (UFTRACE, ["-pg"])}
FUNCTION = r"""
#include <stdio.h>
#include <stdlib.h>
__attribute__((noipa)) int leaf(int n) { return n + 1; }
int main(int argc, char **argv) {
    int n = argc > 1 ? atoi(argv[1]) : 1000;
    double best = 1e9;
    for (int k = 0; k < 20; k++) {
        double start = now();
        int x = 0;
        for (int i = 0; i < n; i++) x = leaf(x);
        double spent = (now() - start) / n;
        if (spent < best) best = spent;
    }
    printf("leaf %.1f\n", best);
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
# One that rejects each hit and one that lets each pass compare a register; the last compares two, and saves some.
FILTERS = {"rejects": "a < -1", "passes": "a >= 0", "of two": "a > b"}
ADDED_UP = {"by 100 keys": ["--by", "a"], "sum": ["--sum", "b"], "sum by 100 keys": ["--sum", "b", "--by", "a"],
            "histogram": ["--histogram", "b"], "by thread": ["--by", "thread"]}  # fmt: skip
BPFTRACE = {"by 100 keys": "@[arg0] = count();", "sum by 100 keys": "@[arg0] = sum(arg1);",
            "histogram": "@ = hist(arg1);"}  # fmt: skip
TEXTS = {"filter by a string": ["--count", "--filter", 'what == "a text of some length"'],
         "by a string": ["--by", "what"]}  # fmt: skip
# From six to text; here a hit of one alone has no meaning.
# What the engine bpftrace makes of such options.
OURS = {"filter rejects": ["--count", "--filter", "a < -1"], "sum by 100 keys": ["--sum", "b", "--by", "a"],
        "histogram": ["--histogram", "b"]}  # fmt: skip
PAIRS = {"pairs": [], "pairs by 100 keys": ["--by", "a"]}
TWO = ", two threads"
BPFTRACE_PAIRS = """
usdt:./bench:bench:six { @begun[tid] = nsecs; }
usdt:./bench:bench:text /@begun[tid]/ { @ = hist(nsecs - @begun[tid]); delete(@begun[tid]); }"""
MANY = 100_000_000
SCRIPT = "usdt:./bench:bench:six {{ {six} }} usdt:./bench:bench:text {{ {text} }}"


def times(output: str) -> dict[str, float]:
    """Return what the program has measured, in nanoseconds."""
    found = re.findall(r"^((?:all)?six|(?:all)?text|tried|pwrite|pair) ([0-9.]+)$", output, re.MULTILINE)
    return {name: float(number) for name, number in found}


def variants(folder: Path, hits: int) -> dict[str, Callable[[], str]]:
    """Return what is measured: what it is called -> a function that returns what the program printed."""

    def words(*command: str) -> Callable[[], str]:
        return lambda: run(command, folder)

    to = [USDTBUILD, "trace", "-o", os.devnull, "--buffer", "256"]
    trace = [*to, "-P", "bench:six", "-P", "bench:text"]
    found = {
        "not traced": words("./bench", str(10 * hits)),
        "patch --count": words(*trace, "--count", "--", "./bench", str(10 * hits)),
        **{
            f"patch, filter {name}": words(
                *trace, "-x", "*:text", "--count", "--filter", text, "--", "./bench", str(10 * hits)
            )
            for name, text in FILTERS.items()
        },
        **{
            f"patch, {name}": words(*trace, "-x", "*:text", *options, "--", "./bench", str(10 * hits))
            for name, options in ADDED_UP.items()
        },
        f"patch --count{TWO}": words(*trace, "--count", "--", "./bench", str(100 * hits), "two"),
        f"patch, histogram{TWO}": words(
            *trace, "-x", "*:text", *ADDED_UP["histogram"], "--", "./bench", str(100 * hits), "two"
        ),
        **{
            f"patch, {name}": words(*trace, "--latency", "six", "text", *options, "--", "./bench", str(10 * hits))
            for name, options in PAIRS.items()
        },
        "patch, pairs by id": words(
            *to, "--latency", "open", "close", "--key", "id", "--", "./bench", str(10 * hits), "id"
        ),
        **{
            f"patch, {name}": words(*trace, "-x", "*:six", *options, "--", "./bench", str(10 * hits))
            for name, options in TEXTS.items()
        },
        "patch": words(*trace, "--", "./bench", str(hits)),
        "patch, --lossless": words(*trace, "--lossless", "--", "./bench", str(hits)),
        "patch, --latency --slower pairs": words(
            *trace, "--latency", "six", "text", "--slower", "1ms", "--", "./bench", str(hits)
        ),
        "patch, the last 1,000": words(*trace, "--last", "1000", "--", "./bench", str(10 * hits)),
        "patch, the last 1,000 until": words(
            *trace, "--last", "1000", "--until", "bench:six a < -1", "--", "./bench", str(10 * hits)
        ),
        "patch, the last 20 with stacks": words(
            *trace, "-x", "*:text", "--stack", "--last", "20", "-o", "x.jsonl", "--", "./bench", str(hits)
        ),
        "trap --count": words(*trace, "--engine", "trap", "--count", "--", "./bench", str(hits // 100)),
    }
    if have("bpftrace") and not os.geteuid():
        count = SCRIPT.format(six="@a = count();", text="@b = count();")
        found["bpftrace count()"] = words("bpftrace", "-e", count, "-c", f"./bench {hits}")
        found[f"bpftrace count(){TWO}"] = words("bpftrace", "-e", count, "-c", f"./bench {10 * hits} two")
        reject = "usdt:./bench:bench:six / arg0 < -1 / { @a = count(); }"
        found["bpftrace, filter rejects"] = words("bpftrace", "-e", reject, "-c", f"./bench {hits}")
        for name, action in BPFTRACE.items():
            script = f"usdt:./bench:bench:six {{ {action} }}"
            found[f"bpftrace, {name}"] = words("bpftrace", "-e", script, "-c", f"./bench {hits}")
        script = "usdt:./bench:bench:text { @[str(arg0)] = count(); }"
        found["bpftrace, by a string"] = words("bpftrace", "-e", script, "-c", f"./bench {hits}")
        found["bpftrace, pairs"] = words("bpftrace", "-e", BPFTRACE_PAIRS, "-c", f"./bench {hits}")
        by_id = re.sub("six", "open", re.sub("text", "close", BPFTRACE_PAIRS.replace("tid", "arg0")))
        found["bpftrace, pairs by id"] = words("bpftrace", "-e", by_id, "-c", f"./bench {hits} id")
        ours = [*trace, "--engine", "bpftrace"]
        for name, options in OURS.items():
            found[f"engine bpftrace, {name}"] = words(*ours, "-x", "*:text", *options, "--", "./bench", str(hits))
        pairs = words(*ours, "--latency", "six", "text", "--", "./bench", str(hits))
        found["engine bpftrace, pairs"] = pairs
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
    for name, (head, options) in PEERS.items():
        if have(name.replace("traced", "trace")):
            (folder / f"{name}.c").write_text(CLOCK + SOURCE.replace('#include "bench.h"', head))
            # One that isn't there to be built with is left out of the table.
            command = ["gcc", "-O2", f"{name}.c", *options, "-o", name]
            subprocess.run(command, cwd=folder, capture_output=True, check=False)


def hits(folder: Path) -> None:
    """Measure what a hit costs."""
    (folder / "bench.d").write_text(PROVIDER)
    (folder / "bench.c").write_text(CLOCK + SOURCE)
    run([USDTBUILD, "header", "--formats=dof", "bench.d", "-o", "bench.h"], folder)
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
    rows = [
        [name, *(f"{got[what] - base[what]:,.1f}" if what in got and (what == "pair" or "pairs" not in name) else ""
                 for what in ("six", "text", "tried", "pair"))]
        for name, got in best.items()
    ]  # fmt: skip
    cold = (f"{best['patch']['all' + what] - base[what]:,.1f}" for what in ("six", "text"))
    rows.insert([name for name, *_ in rows].index("patch") + 1, ["patch, of all hits", *cold, "", ""])
    rows.append(["pwrite of 64 bytes", "", "", "", f"{min(got.get('pwrite', 1e9) for got in best.values()):,.1f}"])
    report("ns a hit, over the untraced probe", ("", "six integers", "a string", "one that is tried", "both"), rows)


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
                words = f"{USDTBUILD} trace -P 'bench:*' -o /dev/null -- ./paced {threads} {rate} {hits} 2>&1"
                lost = re.findall(r"([0-9]+) of ([0-9]+) hits were lost", run(["sh", "-c", words], folder))
                row.append(f"{100 - 100 * int(lost[0][0]) / hits:.2f} %" if lost else "all")
            rows.append(row)
    finally:
        for one in others:
            one.kill()
            one.wait()
    report(f"records kept, {load} others busy", ("hits a second", "one thread", "four threads"), rows)


def lost(folder: Path) -> None:
    """Measure how many hits are lost of 100 million, as fast as a program can, where they are only added up."""
    wanted = {f"filter {name}": ["--count", "--filter", FILTERS[name]] for name in ("rejects", "passes")}
    wanted |= {"sum by thread": ["--sum", "b", "--by", "thread"], "histogram": ["--histogram", "a"]}
    rows = []
    for name, options in wanted.items():
        row = [name]
        for threads in (1, 8):
            words = [USDTBUILD, "trace", "-P", "bench:*", "--json", *options, "--", "./paced", str(threads), "0"]
            said = json.loads(run([*words, str(MANY)], folder).splitlines()[-1])
            expected = 0 if name.endswith("rejects") else MANY
            row.append(f"{expected - said['counts'].get('bench:six', 0) + said['lost']:,}")
        rows.append(row)
    report(f"hits lost of {MANY:,}", ("patch", "one thread", "eight threads"), rows)


def peers_keep(folder: Path) -> None:
    """Measure what peers keep of the same program's hits, one second at each rate."""
    for name, (head, options) in PEERS.items():
        (folder / f"paced_{name}.c").write_text(PACED.replace('#include "bench.h"', head))
        command = ["gcc", "-O2", f"paced_{name}.c", *options, "-lpthread", "-o", f"paced_{name}"]
        subprocess.run(command, cwd=folder, capture_output=True, check=False)
    rows = []
    for rate in (500_000, 1_000_000, 2_000_000):
        row = [f"{rate:,}"]
        for keep in (_bpftrace_keeps, _perf_keeps, _lttng_keeps, _uftrace_keeps):
            found = keep(folder, ["1", str(rate), str(rate)])
            row.append("-" if found is None else f"{100 * min(found, rate) / rate:.1f} %")
        rows.append(row)
    names = ("hits a second", "bpftrace, printf", "perf record", "LTTng-UST", "uftrace record")
    report("records that peers keep, one thread", names, rows)


def _bpftrace_keeps(folder: Path, words: list[str]) -> int | None:
    if not have("bpftrace") or os.geteuid():
        return None
    script = 'usdt:./paced:bench:six { printf("h %d\\n", arg0); }'
    return run(["bpftrace", "-e", script, "-c", f"./paced {' '.join(words)}"], folder).count("\nh ")


def _perf_keeps(folder: Path, words: list[str]) -> int | None:
    if not have("perf") or os.geteuid():
        return None
    run(["perf", "buildid-cache", "--add", "./paced"], folder)
    try:
        try:
            run(["perf", "probe", "-q", "sdt_bench:six"], folder)
            run(["perf", "record", "-q", "-o", "perf.data", "-e", "sdt_bench:six", "./paced", *words], folder)
            return run(["perf", "script", "-i", "perf.data", "-F", "event"], folder).count("\n")
        finally:
            run(["perf", "probe", "-q", "-d", "sdt_bench:*"], folder)
    finally:
        run(["perf", "buildid-cache", "--remove", "./paced"], folder)


def _lttng_keeps(folder: Path, words: list[str]) -> int | None:
    if not (folder / "paced_lttng").exists() or not have("babeltrace2"):
        return None
    subprocess.run(["rm", "-rf", folder / "trace"], check=True)
    under_lttng(folder, "bench:*", "./paced_lttng", *words)
    return run(["babeltrace2", "trace"], folder).count("bench:six")


def _uftrace_keeps(folder: Path, words: list[str]) -> int | None:
    if not (folder / "paced_uftraced").exists():
        return None
    run(["uftrace", "record", "--no-libcall", "-d", "kept", "./paced_uftraced", *words], folder)
    calls = re.findall(r"([0-9]+)  six$", run(["uftrace", "report", "-d", "kept"], folder), re.MULTILINE)
    return int(calls[0]) if calls else 0


def functions(folder: Path) -> None:
    """Measure what a call of a function with its return costs."""
    (folder / "leaf.c").write_text(CLOCK + FUNCTION)
    run(["gcc", "-O2", "-fpatchable-function-entry=7,5", "leaf.c", "-o", "leaf"], folder)
    trace = [USDTBUILD, "trace", "-o", os.devnull, "-F", "leaf", "--returns"]
    commands = {
        "not traced": ["./leaf", "1000000"],
        "patch --count": [*trace, "--count", "--", "./leaf", "1000000"],
        "patch": [*trace, "--", "./leaf", "5000"],
        "trap --count": [*trace, "--count", "--engine", "trap", "--", "./leaf", "100"],
    }
    if have("uftrace"):
        run(["gcc", "-O2", "-pg", "leaf.c", "-o", "leaf_pg"], folder)
        commands["uftrace record"] = ["uftrace", "record", "-F", "leaf", "-d", "leaves", "./leaf_pg", "5000"]
    best: dict[str, float] = {}
    for _ in range(3):
        for name, command in commands.items():
            took = float(re.findall(r"^leaf ([0-9.]+)$", run(command, folder), re.MULTILINE)[0])
            best[name] = min(took, best.get(name, took))
    base = best["not traced"]
    rows = [[name, f"{took - base:,.1f}"] for name, took in best.items()]
    report("ns a call with its return, over the untraced one", ("", ""), rows)


def attaching(folder: Path) -> None:
    """Measure how long it takes to attach to a program of many sites, and to let it go; while the first it stands for a
    part.

    The kernel takes minutes for ten thousand uprobes, which nobody wants to wait for.
    """
    rows = []
    for sites in (10, 1_000, 10_000):
        with subprocess.Popen([folder / f"many{sites}"]) as program:
            try:
                rows.append(
                    [f"{sites:,}", *_attached(folder, f"./many{sites}", str(program.pid), uprobes=sites < 10_000)]
                )
            finally:
                program.kill()
    names = ("sites", "trace -p", "letting go", "it stands", "bpftrace", "perf probe", "gdb (it stands)")
    report("how long attaching takes, of peers with letting go, ms", names, rows)


def _attached(folder: Path, program: str, pid: str, *, uprobes: bool) -> list[str]:
    times = [_attach(folder, pid) for _ in range(3)]
    took, left, still = zip(*times)
    root = uprobes and not os.geteuid()
    script = f"usdt:{program}:bench:six {{ @a = count(); }} BEGIN {{ exit(); }}"
    perf = f"perf buildid-cache --add {program} && perf probe -q sdt_bench:six; perf probe -q -d 'sdt_bench:*';"
    perf += f" perf buildid-cache --remove {program}"
    return [
        f"{min(took):,.0f}",
        f"{min(left):,.0f}",
        f"{min(still):.1f} to {max(still):.1f}",
        _peer(folder, root, "env", "BPFTRACE_MAX_PROBES=65536", "bpftrace", "-p", pid, "-e", script),
        _peer(folder, root and have("perf"), "sh", "-c", perf),
        _peer(folder, True, "gdb", "-nx", "-batch", "-p", pid, "-ex", "break -probe-stap bench:six", "-ex", "detach"),
    ]


def _peer(folder: Path, can: bool, *words: str) -> str:
    """Return the milliseconds that a command takes, once; what isn't there or fails has none."""
    started = time.monotonic()
    if not can or not have(words[0]):
        return "-"
    done = subprocess.run(words, cwd=folder, capture_output=True, check=False)
    return f"{1000 * (time.monotonic() - started):,.0f}" if not done.returncode else "-"


def _attach(folder: Path, pid: str) -> tuple[float, float, float]:
    """Attach, and end that at once; return how many milliseconds it took until all was armed, from there to the end of
    the command, and how long the program stood."""
    words = [USDTBUILD, "trace", "-v", "--count", "-P", "bench:*", "-p", pid]
    started, said = time.monotonic(), ""
    with subprocess.Popen(words, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as trace:
        assert trace.stderr is not None
        while "tracing process" not in said:
            said = trace.stderr.readline() or sys.exit("trace has ended")
        armed = time.monotonic()
        trace.send_signal(signal.SIGINT)
        said = trace.stderr.read()
    ended = time.monotonic()
    stood = float(re.findall(r"stood still for ([0-9.]+) ms", said)[0])
    return 1000 * (armed - started), 1000 * (ended - armed), stood


def standing(folder: Path) -> None:
    """Measure how long a program of many sites stands still."""
    rows = []
    for sites in (10, 1_000, 10_000):
        body = "".join(f"BENCH_SIX({i}, 1, 2, 3, 4, 5);\n" for i in range(sites))
        head = '#include "bench.h"\n#include <unistd.h>\nint main(int argc, char **argv) {\n'
        (folder / "many.c").write_text(f"{head}{body}if (argc < 2) pause();\nreturn 0; }}\n")
        run([USDTBUILD, "cc", "--", "gcc", "-O1", "-c", "many.c"], folder)
        run(["gcc", "many.o", "-o", f"many{sites}"], folder)
        stood = []
        for _ in range(3):
            said = run(["sh", "-c", f"{USDTBUILD} trace -v --count -P 'bench:*' -- ./many{sites} once 2>&1"], folder)
            stood.append(float(re.findall(r"stood still for ([0-9.]+) ms", said)[0]))
        rows.append([f"{sites:,}", f"{min(stood):.1f}", f"{max(stood):.1f}"])
    report("how long a program stands still to be armed, ms", ("sites", "least", "most"), rows)


def main() -> None:
    """Measure and print."""
    with workspace() as folder:
        hits(folder)
        for load in (0, 2 * (os.cpu_count() or 1)):
            kept(folder, load)
        lost(folder)
        peers_keep(folder)
        functions(folder)
        standing(folder)
        attaching(folder)


if __name__ == "__main__":
    main()
