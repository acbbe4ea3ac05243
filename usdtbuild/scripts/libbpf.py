"""Programs for libbpf, in C: one file that is compiled twice, for the kernel and for who loads it there."""

from __future__ import annotations

from ..tracing.filters import argument_index
from ..tracing.model import STRING, Target
from ..tracing.predicates import BEGIN, END
from .wish import Wish, Words, heading, is_whole, label, literal, unreadable

_MOST = 12  # arguments that libbpf reads
_KERNEL = """\
#if defined(__bpf__) /* --- in the kernel --- */
#include <stdbool.h>
#include <linux/bpf.h>
#include <linux/ptrace.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include <bpf/usdt.bpf.h>

char LICENSE[] SEC("license") = "GPL";

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 20);
} hits SEC(".maps");
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 10240);
	__type(key, struct key);
	__type(value, struct sums);
} added SEC(".maps");
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 10240);
	__type(key, __u32);
	__type(value, struct began);
} begins SEC(".maps");
static const struct sums nothing;
static const struct key no_key;
__u64 lost;

static __always_inline void text(char *to, long address)
{
	if (bpf_probe_read_user_str(to, TEXT, (const void *)address) < 0) {
		to[0] = '?';
		to[1] = 0;
	}
}

static __always_inline int same(long address, const char *wanted, int length)
{
	char found[TEXT] = {};

	if (bpf_probe_read_user_str(found, TEXT, (const void *)address) < 0)
		return 0;
	for (int i = 0; i < length && i < TEXT; i++)
		if (found[i] != wanted[i])
			return 0;
	return 1;
}

static __always_inline void add(const struct key *key, __s64 value)
{
	struct sums *sums = bpf_map_lookup_elem(&added, key);
	int class = 0;

	if (!sums) {
		bpf_map_update_elem(&added, key, &nothing, BPF_NOEXIST);
		sums = bpf_map_lookup_elem(&added, key);
	}
	if (!sums) {
		__sync_fetch_and_add(&lost, 1);
		return;
	}
	__sync_fetch_and_add(&sums->count, 1);
	__sync_fetch_and_add(&sums->sum, value);
	for (__u64 rest = value < 0 ? 0 : value; rest && class < 63; rest >>= 1)
		class++;
	__sync_fetch_and_add(&sums->classes[class & 63], 1);
}
"""
_LOADER = """\
#else /* --- who loads it, and prints --- */
#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include "watch.skel.h"

static volatile sig_atomic_t stopped;

static void stop(int number)
{
	(void)number;
	stopped = 1;
}

static int show(void *unused, void *data, size_t size)
{
	const struct hit *hit = data;

	(void)unused, (void)size;
	printf("%u/%u ", hit->pid, hit->tid);
	switch (hit->target) {
{shown}	}
	return 0;
}

static void show_sums(int map)
{
	struct key key, *before = 0;
	struct sums sums;

	for (; !bpf_map_get_next_key(map, before, &key); before = &key) {
		if (bpf_map_lookup_elem(map, &key, &sums))
			continue;
{rows}	}
}

int main(int count, char **words)
{
	int pid = count > 1 ? atoi(words[1]) : -1, failed = 0;
	struct watch *watch = watch__open_and_load();
	struct ring_buffer *ring;

	if (!watch)
		return 1;
{attached}	ring = ring_buffer__new(bpf_map__fd(watch->maps.hits), show, 0, 0);
	if (failed || !ring)
		return 1;
	signal(SIGINT, stop);
	signal(SIGTERM, stop);
	fprintf(stderr, "watching\\n");
	while (!stopped) {
		ring_buffer__poll(ring, 100);
		fflush(stdout);
	}
	ring_buffer__consume(ring);
	show_sums(bpf_map__fd(watch->maps.added));
	if (watch->bss->lost)
		fprintf(stderr, "%llu hits had no room\\n", (unsigned long long)watch->bss->lost);
	watch__destroy(watch);
	return 0;
}
#endif
"""


def write(wish: Wish) -> str:
    """Return a program."""
    numbers = max((len(target.arguments) for target in wish.targets), default=0)
    head = [
        "/*",
        *heading(wish, " * ", "Build it (clang, bpftool, libbpf 1.0 or newer), and run it as root:",
                 "    clang -O2 -g -target bpf -D__TARGET_ARCH_x86 -I/usr/include/x86_64-linux-gnu"
                 " -c FILE.c -o watch.bpf.o",
                 "    bpftool gen skeleton watch.bpf.o name watch > watch.skel.h",
                 "    cc -O2 FILE.c -o watch -lbpf", "    ./watch [PID]"),
        " */",
        "#include <linux/types.h>",
        "",
        "#define TEXT 64 /* bytes of a string, at most */",
        "struct hit {",
        "\t__u32 target, pid, tid;",
        f"\t__s64 numbers[{numbers or 1}];",
        f"\tchar texts[{_texts(wish) or 1}][TEXT];",
        "};",
        "struct key {",
        "\t__u64 target;",
        f"\t__s64 numbers[{len(wish.by) or 1}];",
        f"\tchar texts[{len(wish.by) or 1}][TEXT];",
        "};",
        "struct sums { __u64 count, classes[64]; __s64 sum; };",
        "struct began { __u64 time; struct key key; };",
        "",
    ]  # fmt: skip
    lines = [*head, *_KERNEL.splitlines()]
    shown, rows, attached = [], [], []
    for number, target in enumerate(wish.targets):
        lines += _function(wish, target, number)
        shown += _printed(target, number)
        if not (wish.prints or wish.side(target) == BEGIN):
            rows += _row(wish, target, number)
        attached += [
            f"\twatch->links.hit_{number} = bpf_program__attach_usdt(watch->progs.hit_{number}, pid,",
            f'\t\t{literal(wish.program.encode())}, "{target.provider}", "{target.name}", 0);',
            f"\tfailed |= !watch->links.hit_{number};",
        ]
    loader = _LOADER
    for name, found in (("shown", shown), ("rows", rows), ("attached", attached)):
        loader = loader.replace(f"{{{name}}}", "".join(f"{line}\n" for line in found))
    return "\n".join([*lines, *loader.splitlines()]) + "\n"


def _texts(wish: Wish) -> int:
    return max((sum(one.kind == STRING for one in target.arguments) for target in wish.targets), default=0)


def _function(wish: Wish, target: Target, number: int) -> list[str]:
    side = wish.side(target)
    names = "".join(f", long a{index}" for index in range(min(_MOST, len(target.arguments))))
    lines = ["", 'SEC("usdt")', f"int BPF_USDT(hit_{number}{names}) /* {target.title} */", "{"]
    if not wish.prints:
        lines.append("\tstruct key key = no_key;")
    if side:
        lines += ["\t__u32 tid = bpf_get_current_pid_tgid();"]
    if side == BEGIN:
        lines.append("\tstruct began began = {};")
    if side == END:
        lines += ["\tstruct began *began = bpf_map_lookup_elem(&begins, &tid);"]
    lines.append("")
    test = _WORDS.test(wish, target)
    lines += [f"\tif (!({test}))", "\t\treturn 0;"] if test else []
    if side == END:
        lines += ["\tif (!began)", "\t\treturn 0;"]
    return [*lines, *(f"\t{line}" for line in _action(wish, target, number, side)), "\treturn 0;", "}"]


def _action(wish: Wish, target: Target, number: int, side: str) -> list[str]:
    keys = [line for place, name in enumerate(wish.by) for line in _key(wish, target, place, name)]
    if side == BEGIN:
        return ["began.time = bpf_ktime_get_ns();", *keys, "began.key = key;",
                "bpf_map_update_elem(&begins, &tid, &began, BPF_ANY);"]  # fmt: skip
    if side == END:
        kept = ["key = began->key;"] if wish.kept else []
        return [*kept, *keys, f"key.target = {number};", "add(&key, bpf_ktime_get_ns() - began->time);",
                "bpf_map_delete_elem(&begins, &tid);"]  # fmt: skip
    if not wish.prints:
        value = _number(target, argument_index(target, wish.of)) if wish.of else "0"
        return [f"key.target = {number};", *keys, f"add(&key, {value});"]
    lines = [
        "struct hit *hit = bpf_ringbuf_reserve(&hits, sizeof *hit, 0);",
        "if (!hit) {",
        "\t__sync_fetch_and_add(&lost, 1);",
        "\treturn 0;",
        "}",
        f"hit->target = {number};",
        "hit->pid = bpf_get_current_pid_tgid() >> 32;",
        "hit->tid = bpf_get_current_pid_tgid();",
    ]
    texts = 0
    for index, one in enumerate(target.arguments):
        lines.append(f"hit->numbers[{index}] = {_number(target, index)};")
        if one.kind == STRING:
            lines.append(f"text(hit->texts[{texts}], a{index});")
            texts += 1
    return [*lines, "bpf_ringbuf_submit(hit, 0);"]


def _key(wish: Wish, target: Target, place: int, name: str) -> list[str]:
    index = argument_index(target, name)
    if index >= 0 and target.arguments[index].kind == STRING:
        return [f"text(key.texts[{place}], {_number(target, index)});"]
    own = {"thread": "(__u32)bpf_get_current_pid_tgid()", "process": "bpf_get_current_pid_tgid() >> 32"}
    if index < 0 and name not in own:
        return []  # the probe, which each key has
    if index < 0 and place in wish.kept:
        return []
    return [f"key.numbers[{place}] = {own[name] if index < 0 else _number(target, index)};"]


def _printed(target: Target, number: int) -> list[str]:
    words, values, texts = [target.title], [], 0
    for index, one in enumerate(target.arguments):
        if one.kind == STRING:
            words.append(f"{label(one, index)}=%s")
            values.append(f"hit->texts[{texts}]")
            texts += 1
        else:
            words.append(f"{label(one, index)}={'%lld' if one.signed else '%llu'}")
            values.append(f"({'' if one.signed else 'unsigned '}long long)hit->numbers[{index}]")
    return [f"\tcase {number}:", f"\t\tprintf(\"{' '.join(words)}\\n\"{''.join(f', {one}' for one in values)});",
            "\t\tbreak;"]  # fmt: skip


def _row(wish: Wish, target: Target, number: int) -> list[str]:
    words, values = [], []
    for place, name in enumerate(wish.by):
        sides = [one for one in wish.targets if wish.side(one) and argument_index(one, name) >= 0] or [target]
        found = [(one, argument_index(one, name)) for one in (target, *sides)]
        is_text = any(index >= 0 and one.arguments[index].kind == STRING for one, index in found)
        if name == "probe" and found[0][1] < 0:
            words.append(target.title)
        else:
            words.append("%s" if is_text else "%lld")
            values.append(f"key.texts[{place}]" if is_text else f"(long long)key.numbers[{place}]")
    words = words or [target.title]
    names = "".join(f", {one}" for one in values)
    lines = [f"\t\tif (key.target == {number}) {{"]
    text = " ".join(words)
    if wish.sum_of:
        lines.append(f'\t\t\tprintf("{text}: sum %lld, mean %.1f\\n"{names}, (long long)sums.sum,'
                     " (double)sums.sum / sums.count);")  # fmt: skip
    else:
        lines.append(f'\t\t\tprintf("%llu  {text}\\n", (unsigned long long)sums.count{names});')
    if wish.histogram or wish.latency:
        lines += ["\t\t\tfor (int i = 0; i < 64; i++)", "\t\t\t\tif (sums.classes[i])",
                  '\t\t\t\t\tprintf("    [%llu, %llu)  %llu\\n", 1ULL << i >> 1, 1ULL << i,'
                  " (unsigned long long)sums.classes[i]);"]  # fmt: skip
    return [*lines, "\t\t}"]


def _number(target: Target, index: int) -> str:
    one = target.arguments[index]
    if index >= _MOST or not is_whole(target, index):
        raise unreadable("libbpf", target, index)
    if one.kind == STRING or one.size >= 8:
        return f"(__u64)a{index}" if not one.signed else f"a{index}"
    return f"(__{'s' if one.signed else 'u'}{8 * one.size})a{index}"


_WORDS = Words(
    "libbpf", _number, lambda target, index: f"a{index}",
    lambda text, wanted, length: f"same({text}, {wanted}, {length})", "", "",
    lambda text, wanted: f"same({text}, {wanted}, sizeof {wanted})",
    unsigned="ull",
)  # fmt: skip
