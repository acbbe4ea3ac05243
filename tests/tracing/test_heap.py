"""Texts in the heap are read without a system call; what it was before it got shorter is not read at all."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.started import Started, tracing

from .conftest import built_with_probes

PROVIDER = "provider heap { probe text(string name); };\n"

# From when on `blind`, every page that is tried is one that can't be read.
BLIND = r"""
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "heap.h"
__attribute__((noipa)) static void hit(const char *name) { HEAP_TEXT(name); }
static void blind(void)
{
    struct sock_filter steps[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_rt_sigprocmask, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EFAULT),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog filter = {4, steps};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter)) exit(9);
}
int main(int count, char **words)
{
    char *mapped = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    char *first = strdup("in the heap"), *far = malloc(100000), *long_one;
    strcpy(mapped, "elsewhere");
    strcpy(far + 99000, "far in the heap");
    if (count > 1) printf("%d\n", (int)getpid()), fflush(stdout), getchar();
    long_one = memset(malloc(100000), 'x', 9000);  /* of memory that the heap got after it was armed */
    strcpy(long_one + 8192 - ((unsigned long)long_one & 4095), "beyond");
    hit(mapped);
    blind();
    hit(first), hit(far + 99000), hit(long_one + 8192 - ((unsigned long)long_one & 4095) - 4), hit(mapped);
    return words[0] == 0;
}
"""

KNOWN = ["in the heap", "far in the heap", "xxxxbeyond"]


def texts(lines: str) -> list[str]:
    found = [json.loads(line)["args"]["name"] for line in lines.splitlines()]
    return [one if isinstance(one, str) else next(iter(one)) for one in found]


@pytest.fixture(scope="module", params=["", "-static", "-no-pie"])
def blind(run: Any, tmp_path_factory: Any, request: Any) -> Path:
    options = "-O2", *([request.param] if request.param else [])
    return built_with_probes(run, tmp_path_factory.mktemp("heap"), "heap", PROVIDER, BLIND, *options)


def test_no_page_of_the_heap_is_tried(blind: Path, usdtbuild: Any, tmp_path: Path) -> None:
    usdtbuild("trace", "-P", "heap:*", "-o", tmp_path / "x.jsonl", "--", blind)
    assert texts((tmp_path / "x.jsonl").read_text()) == ["elsewhere", *KNOWN, "unreadable"]


def test_nor_is_one_where_texts_are_compared_and_are_keys(blind: Path, usdtbuild: Any) -> None:
    words = "--json", "-P", "heap:*", "--filter", 'name != "nothing"', "--by", "name"
    rows = json.loads(usdtbuild("trace", *words, "--", blind).stdout)["rows"]
    assert sorted(row["key"] for row in rows) == sorted(f'"{text}"' for text in ["elsewhere", *KNOWN])


def test_the_heap_of_a_process_that_runs_already(blind: Path, tmp_path: Path) -> None:
    with Started(blind, "wait") as process:
        tracer = tracing("-P", "heap:*", "-o", tmp_path / "x.jsonl", "-p", process.line().strip())
        process.end("\n")
        _, errors = tracer.communicate(timeout=60)
    assert (process.returncode, tracer.returncode) == (0, 0), errors
    assert texts((tmp_path / "x.jsonl").read_text()) == ["elsewhere", *KNOWN, "unreadable"]


SHORTER = r"""
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "heap.h"
__attribute__((noipa)) static void hit(const char *name) { HEAP_TEXT(name); }
int main(void)
{
    hit(strdup("it begins"));
    for (int i = 0; i < 300; i++) {
        char *more = sbrk(65536 + 24);
        strcpy(more + 65000, "for a while");
        memcpy(more + 65536 + 24 - 5, "tail", 5);
        hit(more + 65000), hit(more + 65536 + 24 - 5);
        sbrk(-65536 - 24);
        hit(more + 65000), hit(more + 65536 + 24 - 5), hit(more + 200000);
    }
    for (int i = 0; i < 300; i++) {
        char *blocks[40], *last;
        for (int j = 0; j < 40; j++) last = blocks[j] = malloc(100000);
        strcpy(last + 50000, "of malloc");
        hit(last + 50000);
        for (int j = 0; j < 40; j++) free(blocks[j]);
        malloc_trim(0);
        hit(last + 50000);
    }
    return 0;
}
"""


@pytest.mark.parametrize("more", [(), ("--filter", 'name != "x"'), ("--filter", 'not name =~ "*x"')])
def test_what_the_heap_no_longer_has_is_not_read(
    run: Any, usdtbuild: Any, tmp_path: Path, more: tuple[str, ...]
) -> None:
    program = built_with_probes(run, tmp_path, "heap", PROVIDER, SHORTER)
    done = usdtbuild("trace", "--json", "-P", "heap:*", "--by", "name", *more, "--", program)
    rows = {row["key"]: row["hits"] for row in json.loads(done.stdout)["rows"]}
    gone = sum(rows.pop(key) for key in [key for key in rows if not key.startswith('"')])
    assert rows == {'"it begins"': 1, '"for a while"': 300, '"tail"': 300, '"of malloc"': 300}
    assert gone == (0 if more else 4 * 300)
