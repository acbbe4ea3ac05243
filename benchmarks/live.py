"""What a hit costs when a program watches itself (usdt_live.h), beside XRay, uftrace and LTTng-UST where they are.

One process for each way of watching; each times its own loop of calls and prints nanoseconds a pass, over the loop that
isn't watched. All run in turns, and the best of each counts. One atomic addition is measured beside them: what a
count that all threads share costs at least. Targets: a count 3 ns, a handler 6, entry and exit 12; and 10,000 functions
or sites on in 1 ms, without the reading of the file, which is shown beside it.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from common import PACKAGE, USDTBUILD, have, report, run, under_lttng, workspace

LIVE = PACKAGE / "runtime" / "live"
PASSES = 50_000
FUNCTIONS = 10_000
PROVIDER = "provider bench { probe tick(int i, long n); probe begin(int i); probe end(int i); };\n"
LOOP = """
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
__attribute__((noinline)) long work(long i);
static double one(void)
{
	struct timespec a, b;
	long i, sum = 0;
	clock_gettime(CLOCK_MONOTONIC, &a);
	for (i = 0; i < PASSES; i++) sum += work(i);
	clock_gettime(CLOCK_MONOTONIC, &b);
	if (sum == 42) puts("");
	return ((b.tv_sec - a.tv_sec) * 1e9 + (b.tv_nsec - a.tv_nsec)) / PASSES;
}
static double best(void)
{
	double least = 1e9, now;
	int i;
	for (i = 0; i < 200; i++) if ((now = one()) < least) least = now;
	return least;
}
"""
PROBES = (
    LOOP
    + """
#include "bench.h"
#include "usdt_live.h"
__attribute__((noinline)) long work(long i) { BENCH_TICK((int)i, i); return i; }
static long taken;
static USDT_LIVE_FAST_HANDLER void fast(const usdt_live_hit *hit, void *data)
{
	(void)data;
	taken += (long)usdt_live_argument(hit, 1);
}
static void any(const usdt_live_hit *hit, void *data) { fast(hit, data); }
int main(void)
{
	printf("off %.2f\\n", best());
	usdt_live_probe_on("*", NULL, NULL);
	printf("count %.2f\\n", best());
	usdt_live_probe_on_with("*", fast, NULL, USDT_LIVE_FAST);
	printf("fast %.2f\\n", best());
	usdt_live_probe_off("*");
	usdt_live_probe_on("*", any, NULL);
	printf("any %.2f\\n", best());
	usdt_live_probe_off("*");
	printf("again %.2f\\n", best());
	return 0;
}
"""
)
ENTRIES = (
    LOOP
    + """
#include "usdt_live.h"
__attribute__((noinline)) long work(long i) { __asm__ volatile("" : "+r"(i)); return i; }
static long taken;
static USDT_LIVE_FAST_HANDLER void enter(const usdt_live_hit *hit, void *data)
{
	(void)data;
	taken += (long)usdt_live_argument(hit, 0);
}
static USDT_LIVE_FAST_HANDLER void leave(const usdt_live_return *ret, void *data)
{
	(void)data;
	taken += (long)ret->value;
}
int main(void)
{
	printf("off %.2f\\n", best());
	usdt_live_function_on("work", NULL, NULL, NULL);
	printf("count %.2f\\n", best());
	usdt_live_function_on_with("work", enter, NULL, NULL, USDT_LIVE_FAST, 0);
	printf("enter %.2f\\n", best());
	usdt_live_function_off("*");
	usdt_live_function_on_with("work", enter, leave, NULL, USDT_LIVE_FAST, 0);
	printf("both %.2f\\n", best());
	usdt_live_function_off("*");
	usdt_live_function_on("work", enter, leave, NULL);
	printf("any %.2f\\n", best());
	return 0;
}
"""
)
MANY = """
#include <stdio.h>
#include "usdt_live.h"
int main(void)
{
	usdt_live_statistics s;
	int i;
	for (i = 0; i < 3; i++) {
		if (SWITCH_ON != FUNCTIONS) return 1;
		usdt_live_get_statistics(&s);
		printf("%s %.3f\\n", i ? "again" : "first", (double)(s.nanoseconds - s.reading_nanoseconds) / 1e6);
		if (!i) printf("reading %.3f\\n", (double)s.reading_nanoseconds / 1e6);
		usdt_live_function_off("*");
		usdt_live_probe_off("*");
	}
	return 0;
}
"""
# What is switched, by program: functions, and probes.
SWITCH = {
    "many": 'usdt_live_function_on("g_*", NULL, NULL, NULL)',
    "sites": 'usdt_live_probe_on("bench:tick", NULL, NULL)',
}
# Traced by the engines inside and patch.
EVALUATED = (
    LOOP
    + """
#include "bench.h"
#ifdef PAIR
__attribute__((noinline)) long work(long i) { BENCH_BEGIN((int)i); BENCH_END((int)i); return i; }
#else
__attribute__((noinline)) long work(long i) { BENCH_TICK((int)(i % 100), i); return i; }
#endif
int main(void) { printf("hit %.2f\\n", best()); return 0; }
"""
)
# What is wished; the last compares what no program of the library can, so that hits are recorded for the tracer.
WISHES = {
    "count": ("--count",), "filter rejects": ("--count", "--filter", "n < 0"),
    "filter passes": ("--count", "--filter", "n >= 0"), "sum by key": ("--by", "i", "--sum", "n"),
    "histogram": ("--histogram", "n"), "pair": ("--latency", "bench:begin", "bench:end"),
    "recorded": ("--count", "--filter", "i != process"),
}  # fmt: skip
PLAIN = (
    LOOP
    + """
#ifdef ADD
static long cell;
__attribute__((noinline)) long work(long i) { __atomic_fetch_add(&cell, 1, __ATOMIC_RELAXED); return i; }
#else
__attribute__((noinline)) long work(long i) { __asm__ volatile("" : "+r"(i)); return i; }
#endif
int main(void) { printf("plain %.2f\\n", best()); return 0; }
"""
)
XRAY = (
    """
#include <xray/xray_interface.h>
extern "C" {
"""
    + LOOP
    + """
[[clang::xray_always_instrument]] __attribute__((noinline)) long work(long i)
{
	__asm__ volatile("" : "+r"(i));
	return i;
}
}
static long taken;
[[clang::xray_never_instrument]] static void handler(int32_t id, XRayEntryType type) { taken += id + type; }
int main(void)
{
	__xray_set_handler(handler);
	__xray_patch();
	printf("both %.2f\\n", best());
	return 0;
}
"""
)
LTTNG_H = """
#undef LTTNG_UST_TRACEPOINT_PROVIDER
#define LTTNG_UST_TRACEPOINT_PROVIDER bench
#undef LTTNG_UST_TRACEPOINT_INCLUDE
#define LTTNG_UST_TRACEPOINT_INCLUDE "./lttng_tick.h"
#if !defined(LTTNG_TICK_H) || defined(LTTNG_UST_TRACEPOINT_HEADER_MULTI_READ)
#define LTTNG_TICK_H
#include <lttng/tracepoint.h>
LTTNG_UST_TRACEPOINT_EVENT(bench, tick, LTTNG_UST_TP_ARGS(int, i, long, n),
	LTTNG_UST_TP_FIELDS(lttng_ust_field_integer(int, i, i) lttng_ust_field_integer(long, n, n)))
#endif
#include <lttng/tracepoint-event.h>
"""
LTTNG = (
    """
#define LTTNG_UST_TRACEPOINT_CREATE_PROBES
#define LTTNG_UST_TRACEPOINT_DEFINE
#include "lttng_tick.h"
"""
    + LOOP
    + """
__attribute__((noinline)) long work(long i) { lttng_ust_tracepoint(bench, tick, (int)i, i); return i; }
int main(void) { printf("record %.2f\\n", best()); return 0; }
"""
)


def numbers(text: str) -> dict[str, float]:
    """Return the lines `name number` of a program's output."""
    return {name: float(value) for name, value in re.findall(r"^(\w+) ([\d.]+)$", text, re.MULTILINE)}


def build(folder: Path) -> list[str]:
    """Build what can be built here; return the names of the programs."""
    objects = []
    for source in sorted(LIVE.glob("*.c")):
        objects.append(f"{source.stem}.o")
        run(["gcc", "-std=gnu99", "-O2", "-c", source, "-o", objects[-1]], folder)
    (folder / "bench.d").write_text(PROVIDER)
    run([USDTBUILD, "header", "--formats=dof", "bench.d", "-o", "bench.h"], folder)
    table = ",".join(f"g_{i}" for i in range(FUNCTIONS))
    one = "__attribute__((noinline)) long g_{0}(long x) {{ return x * 3 + {0}; }}\n"
    many = "".join(one.format(i) for i in range(FUNCTIONS))
    fired = "".join(one.replace("return", "BENCH_TICK((int)x, x); return").format(i) for i in range(FUNCTIONS))
    texts = {
        "probes": PROBES, "evaluated": EVALUATED, "entries": ENTRIES, "plain": PLAIN, "many": MANY,
        "fired": f'#include "bench.h"\n{fired}long (*const functions[])(long) = {{{table}}};\n',
        "functions": f"{many}long (*const functions[])(long) = {{{table}}};\n",
    }  # fmt: skip
    for name, text in texts.items():
        (folder / f"{name}.c").write_text(text)
    common = [f"-DPASSES={PASSES}", f"-DFUNCTIONS={FUNCTIONS}", "-O2", f"-I{LIVE}"]
    run([USDTBUILD, "cc", "--", "gcc", *common, "-c", "probes.c", "-o", "probes-main.o"], folder)
    run(["gcc", "probes-main.o", *objects, "-lpthread", "-o", "probes"], folder)
    entry = "-fpatchable-function-entry=7,5"
    run(["gcc", *common, entry, "entries.c", *objects, "-lpthread", "-o", "entries"], folder)
    run(["gcc", "-O1", entry, "-c", "functions.c", "-o", "functions.o"], folder)
    run([USDTBUILD, "cc", "--", "gcc", "-O1", "-c", "fired.c", "-o", "fired.o"], folder)
    for name, held in (("many", "functions.o"), ("sites", "fired.o")):
        switch = f"-DSWITCH_ON={SWITCH[name]}"
        run(["gcc", *common, switch, "many.c", held, *objects, "-lpthread", "-o", name], folder)
    for name, options in (("evaluated", ()), ("paired", ("-DPAIR",))):
        words = ["-c", "evaluated.c", "-o", f"{name}.o"]
        run([USDTBUILD, "cc", "--", "gcc", *common, *options, *words], folder)
        run(["gcc", f"{name}.o", "-o", name], folder)
    run(["gcc", *common, "plain.c", "-o", "plain"], folder)
    run(["gcc", *common, "-DADD", "plain.c", "-o", "atomic"], folder)
    run(["gcc", *common, "-pg", "plain.c", "-o", "uftraced"], folder)
    names = ["probes", "entries", "many", "sites", "plain", "atomic"]
    if have("clang++"):
        (folder / "xray.cc").write_text(XRAY)
        words = ["clang++", *common, "-fxray-instrument", "-fxray-instruction-threshold=1", "xray.cc", "-o", "xray"]
        if subprocess.run(words, cwd=folder, capture_output=True, check=False).returncode == 0:
            names.append("xray")
    (folder / "lttng_tick.h").write_text(LTTNG_H)
    (folder / "lttng.c").write_text(LTTNG)
    words = ["gcc", *common, "-I.", "lttng.c", "-llttng-ust", "-ldl", "-o", "lttng"]
    if have("lttng") and subprocess.run(words, cwd=folder, capture_output=True, check=False).returncode == 0:
        names.append("lttng")
    return names


def evaluated(folder: Path) -> None:
    """Measure and print what a hit costs whose arguments are evaluated where it happens."""
    least: dict[tuple[str, str], float] = {}
    for _ in range(3):
        for wish, words in WISHES.items():
            program = folder / ("paired" if wish == "pair" else "evaluated")
            least["off", wish] = min(numbers(run([program], folder))["hit"], least.get(("off", wish), 1e9))
            for engine in ("inside", "patch"):
                probes = () if wish == "pair" else ("-P", "bench:tick")
                out = run([USDTBUILD, "trace", "-q", "--engine", engine, *probes, *words, "--", program], folder)
                least[engine, wish] = min(numbers(out)["hit"], least.get((engine, wish), 1e9))
    rows = [(wish, *(f"{least[engine, wish] - least['off', wish]:.1f} ns" for engine in ("inside", "patch")))
            for wish in WISHES]  # fmt: skip
    report("A hit that `usdtbuild trace` evaluates, over the untraced one", ("what", "inside", "patch"), rows)


def main() -> None:
    """Measure and print."""
    if os.uname().machine != "x86_64":
        sys.exit("the runtime's protocols for entries and returns are measured on x86-64")
    least: dict[tuple[str, str], float] = {}
    with workspace() as folder:
        names = build(folder)
        for _ in range(3):
            for name in names:
                out = under_lttng(folder, "bench:tick", "./lttng") if name == "lttng" else run([folder / name], folder)
                for key, value in numbers(out).items():
                    least[name, key] = min(value, least.get((name, key), 1e9))
            if have("uftrace"):
                words = ["uftrace", "record", "--no-libcall", "-d", folder / "data", folder / "uftraced"]
                for value in numbers(run(words, folder)).values():
                    least["uftrace", "both"] = min(value, least.get(("uftrace", "both"), 1e9))
        evaluated(folder)
    bare, off = least["plain", "plain"], least["probes", "off"]
    ours = (("probes", "count"), ("probes", "fast"), ("probes", "any"), ("entries", "count"), ("entries", "enter"),
            ("entries", "both"), ("entries", "any"))  # fmt: skip
    titles = {
        ("probes", "count"): "probe: count (target 3)", ("probes", "fast"): "probe: fast handler (target 6)",
        ("probes", "any"): "probe: any handler", ("entries", "count"): "function: count (target 3)",
        ("entries", "enter"): "function: entry, fast handler",
        ("entries", "both"): "function: entry and exit, fast (target 12)",
        ("entries", "any"): "function: entry and exit, any handlers", ("xray", "both"): "clang XRay: entry and exit",
        ("uftrace", "both"): "uftrace record: entry and exit", ("lttng", "record"): "LTTng-UST: record",
    }  # fmt: skip
    rows = [("function without anything", f"{bare:.2f} ns", ""), ("probe, off", f"{off:.2f} ns", "")]
    atomic = least["atomic", "plain"]
    rows.append(("one atomic addition", f"{atomic - bare:.1f} ns", f"{atomic / bare:.1f}"))
    for key in (*ours, ("xray", "both"), ("uftrace", "both"), ("lttng", "record")):
        if key in least:
            base = off if key[0] == "probes" else bare
            rows.append((titles[key], f"{least[key] - base:.1f} ns", f"{least[key] / base:.1f}"))
        else:
            rows.append((titles[key], "not here", ""))
    rows.append(("probe, off again", f"{least['probes', 'again']:.2f} ns", ""))
    report("A hit, over the call that isn't watched", ("what", "cost", "of the bare call"), rows)
    asked = {"reading": "reading the file", "first": "on for the first time (target 1)", "again": "on again"}
    times = [(f"{FUNCTIONS} {kind}: {what}", f"{least[name, key]:.2f} ms")
             for name, kind in (("many", "functions"), ("sites", "probes")) for key, what in asked.items()]  # fmt: skip
    report("Switching", ("what", "time"), times)


if __name__ == "__main__":
    main()
