"""Texts and several arguments as keys, and filters of all types: equal to what programs count themselves."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.started import Started
from usdtbuild.tracing.filters import Filter
from usdtbuild.tracing.model import FLOAT, INTEGER, PROBE, STRING, Argument, Module, Target, Value
from usdtbuild.tracing.outputs.values import value_text

TRACE = sys.executable, "-m", "usdtbuild", "trace"


@pytest.fixture
def build(tmp_path: Path, compiled: Any, header_of: Any) -> Callable[[str, str], Path]:
    """Build a program with a provider, in a folder that everybody can read."""
    tmp_path.chmod(0o755)

    def make(provider: str, source: str) -> Path:
        header_of(tmp_path, "keys.d", provider)
        return compiled(tmp_path, "program.c", source, "-O2", "-pthread")

    return make


# -- random programs ---------------------------------------------------------------------------------------------------

TYPES = {
    "int8_t": (INTEGER, 1, True), "uint16_t": (INTEGER, 2, False), "int32_t": (INTEGER, 4, True),
    "uint64_t": (INTEGER, 8, False), "int64_t": (INTEGER, 8, True), "double": (FLOAT, 8, False),
    "float": (FLOAT, 4, False), "char *": (STRING, 8, False),
}  # fmt: skip
NAMES = ("SELECT 1", "select", "se", "", "x" * 31, "x" * 32, "x" * 70, "caf\u00e9", None)
ROUNDS, THREADS = 20_000, 3


class Made:
    """A random program: its probe's arguments and hits, a filter, keys, and what is added up."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.types = [*self.random.choices(list(TYPES), k=4), "char *", "int32_t"]
        self.random.shuffle(self.types)
        self.hits = [tuple(self.value(one) for one in self.types) for _ in range(50)]
        names = "abcdef"
        arguments = [Argument(name, one, *TYPES[one][1:], TYPES[one][0]) for name, one in zip(names, self.types)]
        self.target = Target(0, PROBE, "keys", "hit", Module("", 0, "", 62), tuple(arguments), ())
        may_be_keys = [name for name, one in zip(names, self.types) if TYPES[one][0] != FLOAT]
        self.by = self.random.sample(may_be_keys, self.random.randrange(1, 3))
        self.of = self.random.choice([name for name, one in zip(names, self.types) if TYPES[one][0] == INTEGER])
        self.filter = self.expression()

    def value(self, kind: str) -> Value:
        what, size, signed = TYPES[kind]
        if what == STRING:
            name = self.random.choice(NAMES)
            return None if name is None else name.encode()
        if what == FLOAT:
            return self.random.choice((0.0, -1.5, 0.25, 1024.0, -0.5))
        low, bits = (-(1 << 8 * size - 1), 8 * size) if signed else (0, 8 * size)
        near = self.random.choice((0, 1, 2, 3, low, low + (1 << bits) - 1, low + self.random.getrandbits(bits)))
        return near if near <= low + (1 << bits) - 1 else 0

    def expression(self, depth: int = 0) -> str:
        if depth < 2 and self.random.random() < 0.5:
            first, second = self.expression(depth + 1), self.expression(depth + 1)
            return self.random.choice((f"({first}) and ({second})", f"({first}) or ({second})", f"not ({first})"))
        index = self.random.randrange(6)
        name, value = "abcdef"[index], self.random.choice(self.hits)[index]
        if TYPES[self.types[index]][0] == STRING:
            literal = f'"{value.decode()}"' if isinstance(value, bytes) else "NULL"
            pattern = f'"{literal[1:3]}*"' if value else '"*"'
            if len(literal) > 65 or self.random.random() < 0.4:
                return f"{name} =~ {pattern}"
            return f"{name} {self.random.choice(('==', '!='))} {literal}"
        return f"{name} {self.random.choice(('==', '!=', '<', '<=', '>', '>='))} {value!r}"

    @property
    def provider(self) -> str:
        arguments = ", ".join(f"{one} {name}" for one, name in zip(self.types, "abcdef"))
        return f"provider keys {{ probe hit({arguments}); }};\n"

    @property
    def source(self) -> str:
        fields = "".join(f"    {one} {name};\n" for one, name in zip(self.types, "abcdef"))
        rows = ",\n".join("    {" + ", ".join(map(self._literal, hit, self.types)) + "}" for hit in self.hits)
        arguments = ", ".join(f"row->{name}" for name in "abcdef")
        return PROGRAM.replace("FIELDS", fields).replace("ROWS", rows).replace("ARGUMENTS", arguments)

    @staticmethod
    def _literal(value: Value, kind: str) -> str:
        if TYPES[kind][0] == STRING:
            return json.dumps(value.decode(), ensure_ascii=False) if isinstance(value, bytes) else "0"
        if kind == "int64_t" and value == -(1 << 63):
            return "(-0x7fffffffffffffff - 1)"
        return str(value) + "u" * (kind == "uint64_t")

    def expected(self) -> dict[str, tuple[int, int]]:
        """Return hits and sums by key."""
        passes, found = Filter(self.filter).compile(self.target), dict[str, tuple[int, int]]()
        for values in self.hits:
            named = dict(zip("abcdef", values))
            if passes(values):
                cut = {name: self._text(name, value) for name, value in named.items()}
                key = ", ".join(cut[name] for name in self.by)
                count, total = found.get(key, (0, 0))
                of: Any = named[self.of]
                found[key] = count + 1, total + of
        times = ROUNDS // 50 * THREADS
        return {key: (times * count, times * total) for key, (count, total) in found.items()}

    def _text(self, name: str, value: Value) -> str:
        text = value_text(self.target.arguments["abcdef".index(name)], value)
        return f'"{value[:64].decode()}"...' if isinstance(value, bytes) and len(value) >= 64 else text


PROGRAM = r"""
#include "keys.h"
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
static const struct row {
FIELDS} rows[] = {
ROWS};
static void *work(void *unused) {
    for (int i = 0; i < 20000; i++) {
        const struct row *row = &rows[i % 50];
        KEYS_HIT(ARGUMENTS);
    }
    return unused;
}
int main(void) {
    pthread_t made[3];
    for (int i = 0; i < 3; i++) pthread_create(&made[i], 0, work, 0);
    for (int i = 0; i < 3; i++) pthread_join(made[i], 0);
    return 0;
}
"""


@pytest.mark.parametrize("seed", [*range(3), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(3, 20))])
def test_sums_of_random_programs_are_those_that_they_must_be(
    seed: int, build: Any, run: Any, unprivileged: list[str]
) -> None:
    made = Made(seed)
    program = build(made.provider, made.source)
    words = *unprivileged, *TRACE, "-v", "--json", "--by", ",".join(made.by), "--sum", made.of, "--filter", made.filter
    done = run(*words, "--", program)
    rows = json.loads(done.stdout)["rows"]
    assert {row["key"]: (row["hits"], row["sum"]) for row in rows} == made.expected(), (made.filter, made.provider)
    assert "lost" not in done.stderr
    assert "after the hit" not in done.stderr


# -- many keys, threads that come and go, processes, and a handler that hits while its thread is within a hit ----------

BUSY = r"""
#include "keys.h"
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>
/* Behind each probe is room for a jump. */
#define ROOM __asm__ volatile("nop; nop; nop; nop")
static void __attribute__((noipa)) BEGIN(char *name, int number) { KEYS_BEGIN(name, number); ROOM; }
static void __attribute__((noipa)) END(int status) { KEYS_END(status); ROOM; }
static long *sums;
static int keys;
static void hit(int number) {
    char name[32];
    snprintf(name, sizeof name, "/page/%d", number % keys);
    BEGIN(name, number);
    END(number % 3);
    __atomic_add_fetch(&sums[0], 1, __ATOMIC_RELAXED);
    __atomic_add_fetch(&sums[1], number, __ATOMIC_RELAXED);
}
static void on_signal(int number) { hit(number); }
static void *work(void *start) {
    for (int i = 0; i < 5000; i++) hit((int)(long)start + i);
    return 0;
}
int main(int argc, char **argv) {
    keys = atoi(argv[1]);
    sums = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    puts("begun");
    fflush(stdout);
    int killed = argc > 2 ? fork() : 1;
    if (!killed) for (int i = 0;; i++) { BEGIN("a child that is killed", i); END(0); }
    int child = fork();
    struct itimerval often = {{0, 300}, {0, 300}};
    signal(SIGALRM, on_signal);
    setitimer(ITIMER_REAL, &often, 0);
    for (int round = 0; round < 4; round++) {
        pthread_t made[4];
        for (long i = 0; i < 4; i++) pthread_create(&made[i], 0, work, (void *)(2500 * i));
        for (int i = 0; i < 4; i++) pthread_join(made[i], 0);
    }
    signal(SIGALRM, SIG_IGN);
    if (!child) _exit(0);
    waitpid(child, 0, 0);
    if (argc > 2) kill(killed, SIGKILL);
    if (argc > 2) waitpid(killed, 0, 0);
    printf("own %ld %ld\n", sums[0], sums[1]);
    return 0;
}
"""
BUSY_PROVIDER = "provider keys { probe begin(char *name, int number); probe end(int status); };\n"


def rows_of(text: str) -> tuple[list[dict[str, Any]], list[int]]:
    """Return the rows of the last line of --json, and what the program says itself."""
    lines = text.splitlines()
    own = next(list(map(int, line.split()[1:])) for line in lines if line.startswith("own"))
    return json.loads(next(line for line in reversed(lines) if line.startswith("{")))["rows"], own


@pytest.mark.parametrize("keys", [100, 12_000])
def test_sums_by_text_are_exact_over_threads_processes_and_signals_and_in_a_full_table(
    keys: int, build: Any, run: Any, unprivileged: list[str]
) -> None:
    program = build(BUSY_PROVIDER, BUSY)
    words = *unprivileged, *TRACE, "-v", "--json", "-P", "keys:begin", "--by", "name", "--sum", "number"
    done = run(*words, "--", program, keys)
    rows, (hits, total) = rows_of(done.stdout)
    assert sum(row["hits"] for row in rows) == hits
    assert sum(row["sum"] for row in rows) == total
    # A thread's own table has room for 4,096, and there are 34 threads.
    assert len([row for row in rows if row["key"] is not None]) in ((100,) if keys == 100 else range(3900, keys + 1))
    assert any(row["key"] is None for row in rows) == (keys > 4096)
    assert "lost" not in done.stderr
    assert "after the hit" not in done.stderr
    # Where the table is full, hits of the child that is killed would be among all others.
    done = run(*words[:-4], "--by", "name", "--sum", "number", "--", program, min(keys, 3000), "killed")
    rows, (hits, total) = rows_of(done.stdout)
    of_killed = [row for row in rows if row["key"] == '"a child that is killed"']
    assert sum(row["hits"] for row in rows) - sum(row["hits"] for row in of_killed) in range(hits, hits + 1)
    assert "damaged" not in done.stderr


def test_times_by_text_are_those_of_all_pairs(build: Any, run: Any, unprivileged: list[str]) -> None:
    program = build(BUSY_PROVIDER, BUSY)
    words = *unprivileged, *TRACE, "-v", "--json", "--latency", "keys:begin", "keys:end", "--by", "name"
    done = run(*words, "--", program, 50)
    rows, (hits, _) = rows_of(done.stdout)
    assert sum(row["pairs"] for row in rows) == hits
    assert {row["key"] for row in rows} == {f'"/page/{number}"' for number in range(50)}
    done = run(*words, "--filter", "number < 1000", "--", program, 12_000)
    rows, _ = rows_of(done.stdout)
    assert sum(row["pairs"] for row in rows) >= 2 * 4 * 1000
    assert any(row["key"] is None for row in rows)  # 256 have room
    assert "after the hit" not in done.stderr


LATE = r"""
#include "keys.h"
#include <dlfcn.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>
#define ROOM __asm__ volatile("nop; nop; nop; nop")
static void __attribute__((noipa)) BEGIN(char *name, int number) { KEYS_BEGIN(name, number); ROOM; }
void __attribute__((noipa)) END(int status) { KEYS_END(status); ROOM; }
int main(int argc, char **argv) {
    void *library = argc > 1 ? dlopen(argv[1], RTLD_NOW) : 0;
    void (*end)(int) = (void (*)(int))dlsym(library, "END");
    char name[32];
    fork();
    for (int i = 0; i < 30000; i++) { snprintf(name, sizeof name, "/page/%d", i % 3); BEGIN(name, i); end(0); }
    while (wait(0) > 0) {}
    return 0;
}
"""


def test_an_end_in_a_library_that_is_opened_later_finds_the_text_of_its_begin(
    build: Any, run: Any, unprivileged: list[str], tmp_path: Path
) -> None:
    program = build(BUSY_PROVIDER, LATE)
    run("gcc", "-shared", "-fPIC", "-O2", "program.c", "-o", "library.so", cwd=tmp_path)
    words = *unprivileged, *TRACE, "-v", "--json", "--latency", "keys:begin", "keys:end", "--by", "name"
    done = run(*words, "--", program, tmp_path / "library.so")
    rows = json.loads(done.stdout)["rows"]
    pairs = {row["key"]: row["pairs"] for row in rows}
    assert pairs == {f'"/page/{number}"': 20_000 for number in range(3)}, done.stdout + done.stderr
    assert "after the hit" not in done.stderr


TWO_LIBRARIES = r"""
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
int main(int argc, char **argv) {
    void (*begin)(char *, int) = (void (*)(char *, int))dlsym(dlopen(argv[1], RTLD_NOW), "begin");
    begin("early", 1);
    void (*end)(int) = (void (*)(int))dlsym(dlopen(argv[2], RTLD_NOW), "end");
    char name[32];
    end(0);
    for (int i = 0; i < atoi(argv[3]); i++) { snprintf(name, sizeof name, "/page/%d", i % 3); begin(name, i); end(i); }
    return argc != 4;
}
"""
BEGINNING = "void begin(char *name, int number) { KEYS_BEGIN(name, number); }\n"
ENDING = "void end(int status) { KEYS_END(status); }\n"


@pytest.fixture
def two_libraries(build: Any, run: Any, tmp_path: Path) -> list[Any]:
    """A program and the libraries that it loads: one has only begins, one only ends."""
    program, libraries = build(BUSY_PROVIDER, TWO_LIBRARIES), []
    for name, text in (("begins", BEGINNING), ("ends", ENDING)):
        (tmp_path / f"{name}.c").write_text(f'#include "keys.h"\n{text}')
        libraries.append(tmp_path / f"{name}.so")
        run("gcc", "-shared", "-fPIC", "-O2", f"{name}.c", "-o", libraries[-1], cwd=tmp_path)
    return ["--", program, *libraries]


@pytest.mark.parametrize("filter_", [(), ("--filter", "number >= 0 and status >= 0")])
@pytest.mark.parametrize("engine", ["patch", "trap"])
def test_begins_in_one_library_and_ends_in_one_that_comes_later(
    engine: str, filter_: tuple[str, ...], two_libraries: list[Any], run: Any, unprivileged: list[str]
) -> None:
    """There is nothing that ends when the first one comes, and its memory is read before the other's at the end."""
    words = *unprivileged, *TRACE, "--engine", engine, "--json", "--latency", "keys:begin", "keys:end", "--by", "name"
    calls = 30_000 if engine == "patch" else 300
    for _ in range(3 if engine == "patch" else 1):  # the engines take turns in being the first that is read
        done = run(*words, *filter_, *two_libraries, calls)
        pairs = {row["key"]: row["pairs"] for row in json.loads(done.stdout)["rows"]}
        assert pairs == {'"early"': 1, **{f'"/page/{number}"': calls // 3 for number in range(3)}}, done.stdout


@pytest.mark.parametrize(("options", "shown", "said"), [
    ("--count|--filter|status < 20", r"^21  keys:end", "not traced: keys:begin: keys:begin has no argument status"),
    ("--filter|status < 20", r"(?:keys:end status=\d+.*\n.*){21}", "not traced: keys:begin: keys:begin has no "),
    ("--count|--by|status", r"^ +2 .*  0\n", ""),
    ("--by|status", r"^ +2 .*  0\n", ""),
    ("--count|--sum|status", r"^keys:end status: 301 hits, sum 44850,", ""),
    ("--histogram|status", r"\[128, 256\) +128 ", ""),
    ("--last|2|--until|keys:end status > 20", r"keys:begin .*\n.*keys:end status=21\n\Z", ""),
    ("--slower|0.000000001|--latency|begin|end", r"^begin to end: 301 of 301 pairs", ""),
])  # fmt: skip
def test_what_the_first_library_lacks_may_be_in_one_that_comes_later(
    options: str, shown: str, said: str, two_libraries: list[Any], run: Any, unprivileged: list[str]
) -> None:
    """The program was ended when the first one came."""
    done = run(*unprivileged, *TRACE, *options.split("|"), "-P", "keys:*", *two_libraries, 300)
    assert re.search(shown, done.stdout, re.MULTILINE), done.stdout
    assert said in done.stderr


WITH_NUMBER = '    printf("%d\\n", (int)getpid()), fflush(stdout);\n    end(0);'


@pytest.mark.parametrize("pause", ["", "usleep(1000);"])
def test_what_a_signal_asks_for_is_of_one_moment(
    pause: str, two_libraries: list[Any], build: Any, unprivileged: list[str]
) -> None:
    """Each library has its own rings, which are read one after the other. Where there is time, nothing is left out."""
    text = TWO_LIBRARIES.replace("end(i); }", f"end(i); {pause} }}").replace("    end(0);", WITH_NUMBER)
    program = build(BUSY_PROVIDER, f"#include <unistd.h>\n{text}")
    words = *unprivileged, sys.executable, "-um", *TRACE[2:], "-P", "keys:*", "--last", 4000 if pause else 200
    command = program, *two_libraries[2:], 500 if pause else 1_000_000_000
    with Started(*words, "--", *command) as trace:
        pid = int(trace.line())
        for _ in range(10):
            time.sleep(0.05)
            trace.send_signal(signal.SIGUSR1)
            places = [] if pause else [place_of(trace.line()) for _ in range(200)]
            assert not places or places == [*range(places[0], places[0] + 200)]
        if not pause:
            os.kill(pid, signal.SIGKILL)
        places = [place_of(line) for line in trace.end().splitlines()]
        assert not pause or places[2:] == [*range(1000)]


def place_of(line: str) -> int:
    found = re.search("(number|status)=([0-9]+)", line)
    assert found is not None, line
    return 2 * int(found[2]) + (found[1] == "status")


@pytest.mark.parametrize(("options", "code", "said"), [
    ("--filter|nosuch > 1", 2, "--filter: keys:end has no argument nosuch; it has status"),
    ("--count|--filter|nosuch > 1", 2, "--filter: keys:end has no argument nosuch; it has status"),
    ("--by|nosuch", 2, "--by: keys:begin has no argument nosuch; it has name, number, and none of the other 1 has it"),
    ("--sum|name|--count", 2, "--sum: name"),
    ("--latency|keys:begin|keys:nosuch", 1, "nothing matches --latency keys:nosuch; did you mean keys:end?"),
    ("--last|2|--until|keys:nosuch", 1, "no hit was what --until waits for: keys:nosuch"),
])  # fmt: skip
def test_what_no_library_has_is_said_when_the_program_has_ended(
    options: str, code: int, said: str, two_libraries: list[Any], run: Any, unprivileged: list[str], tmp_path: Path
) -> None:
    shell = 'trap "" TERM; shift 0; "$@"; echo "has ended by itself: $?" >&2'
    command = "--", "sh", "-c", shell, "sh", *two_libraries[1:], 300
    done = run(*unprivileged, *TRACE, *options.split("|"), "-P", "keys:*", *command, code=code)
    assert f"usdtbuild: {said}" in done.stderr
    assert "has ended by itself: 0" in done.stderr


GONE = r"""
#include "keys.h"
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
static void hit(char *name) { KEYS_BEGIN(name, 0); }
static char own[8192] __attribute__((aligned(4096))) = "a page of its own";
int main(int argc, char **argv) {
    char stack[4096];
    strcpy(stack + 77, "on the stack");
    for (int i = 0; i < 1000; i++) {
        char *page = mmap(0, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        strcpy(page + 100, "for a while");
        memcpy(page + 4092, "tail of it", 11);
        hit(page + 100), hit(page + 4092), hit("a literal"), hit(stack + 77), hit(own);
        munmap(page + 4096, 4096);
        hit(page + 4092);
        munmap(page, 4096);
        hit(page + 100), hit(page + 4092);
        mprotect(own, 4096, PROT_NONE);
        hit(own);
        mprotect(own, 4096, PROT_READ | PROT_WRITE);
        if (i % 50) continue;
        void *library = dlopen(argv[1], RTLD_NOW);
        char *text = dlsym(library, "text");
        hit(text);
        dlclose(library);
        hit(text);
    }
    puts("own 0 0");
    return argc - argc;
}
"""


def test_memory_that_is_gone_at_the_next_hit_is_not_read(
    build: Any, run: Any, unprivileged: list[str], tmp_path: Path, compiled: Any
) -> None:
    program = build(BUSY_PROVIDER, GONE)
    compiled(tmp_path, "library.c", 'const char text[] = "of a library";\n', "-shared", "-fPIC")
    words = *unprivileged, *TRACE, "--json", "-P", "keys:begin", "--by", "name"
    for more in ((), ("--filter", 'name != "x"'), ("--filter", 'not name =~ "*x"')):  # texts are compared, and recorded
        rows, _ = rows_of(run(*words, *more, "--", program, tmp_path / "library.so").stdout)
        texts = {row["key"]: row["hits"] for row in rows if row["key"].startswith('"')}
        assert texts == {'"for a while"': 1000, '"tail of it"': 1000, '"tail"...': 1000, '"a literal"': 1000,
                         '"on the stack"': 1000, '"a page of its own"': 1000, '"of a library"': 20}  # fmt: skip
        assert sum(row["hits"] for row in rows) - sum(texts.values()) == (0 if more else 3020)


SQL = r"""
#include "keys.h"
#include <stdio.h>
static void __attribute__((noipa)) done(int rows) { KEYS_END(rows); }
int main(void) {
    char query[400];
    for (int i = 0; i < 3000; i++) {
        const char *pad = "a_column_with_a_long_name, another_column_with_a_long_name";
        if (i % 3) snprintf(query, sizeof query, "SELECT %s FROM t WHERE id = %d AND b IN (%d, 'x%d')", pad, i, i, i);
        else snprintf(query, sizeof query, "UPDATE t SET b = b + %d WHERE id = %d", i - 20, i);
        KEYS_BEGIN(query, i);
        done(i % 3);
    }
    return 0;
}
"""


def test_statements_that_differ_in_their_literals_are_one_key(build: Any, run: Any, unprivileged: list[str]) -> None:
    program = build(BUSY_PROVIDER, SQL)
    select = '"SELECT a_column_with_a_long_name, another_column_with_a_long_name FROM t WHERE id = ? AND b IN (?)"'
    update = '"UPDATE t SET b = b + ? WHERE id = ?"'
    words = *unprivileged, *TRACE, "-v", "--json", "--normalize", "--by", "name"
    done = run(*words, "-P", "keys:begin", "--filter", 'name =~ "*1*"', "--", program)
    hits = {row["key"]: row["hits"] for row in json.loads(done.stdout)["rows"]}
    ones = [i for i in range(3000) if "1" in f"{i} {'' if i % 3 else i - 20}"]
    assert hits == {select: sum(i % 3 > 0 for i in ones), update: sum(i % 3 == 0 for i in ones)}
    assert "keys:begin: arguments are evaluated after the hit" in done.stderr
    done = run(*words, "--latency", "keys:begin", "keys:end", "--", program)
    assert {row["key"]: row["pairs"] for row in json.loads(done.stdout)["rows"]} == {select: 2000, update: 1000}
    done = run(*unprivileged, *TRACE, "--normalize", "-P", "keys:begin", "--limit", 1, "--", program)
    assert f"keys:begin name={update} number=0\n" in done.stdout


def test_a_tracer_that_is_killed_leaves_a_program_whose_texts_are_keys_unharmed(
    build: Any, run: Any, unprivileged: list[str]
) -> None:
    program = build(BUSY_PROVIDER, BUSY)
    killer = (
        "import subprocess, sys, time\n"
        "one = subprocess.Popen(sys.argv[1:], stdout=subprocess.PIPE, text=True)\n"
        "assert one.stdout.readline() == 'begun\\n'\n"
        "time.sleep(0.02)\n"
        "one.kill()\n"
        "print(one.stdout.read())\n"
    )
    words = *unprivileged, sys.executable, "-c", killer, *TRACE, "-P", "keys:begin", "--by", "name", "--", program, 5
    assert "own" in run(*words).stdout
