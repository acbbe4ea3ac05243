"""gdb and bpftrace as engines: hits are exact, processes stay unharmed, and what the two can't do is said."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.started import ready, wait_for

from .conftest import PROBES, built_with_probes, check_arguments, parse
from .test_engines import ALL, Running, code_of, watch

MODULE = (sys.executable, "-m", "usdtbuild")
ENGINES = ["gdb", pytest.param("bpftrace", marks=pytest.mark.live)]


@pytest.fixture
def tool(request: pytest.FixtureRequest, need: Callable[[str], str]) -> str:
    """The engine of this test, where it can be used."""
    name: str = request.getfixturevalue("engine")
    if name == "bpftrace":
        request.getfixturevalue("bpftrace")
    else:
        need("gdb")
    return name


@pytest.fixture
def seen_by(tool: str, run: Any, traced: Any) -> Callable[..., Any]:
    """Trace with the engine of this test: gdb without any privilege, bpftrace as root."""

    def trace(*arguments: Any, **more: Any) -> Any:
        if tool == "gdb":
            return traced("--engine", tool, *arguments, **more)
        done = run(*MODULE, "trace", "--engine", tool, *arguments, **more)
        return parse(done.stdout, done.stderr)

    return trace


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("shape", ["pie", "static", "shared"])
def test_every_hit_with_its_arguments(scene: Any, seen_by: Any, shape: str, engine: str) -> None:
    program = scene(shape)
    seen = seen_by(*ALL, "--", program, 14, 2, cwd=program.parent)
    check_arguments(seen.hits, 14, 2)
    assert seen.output == ["wrong=0 guarded=28"]
    assert not seen.errors


@pytest.mark.parametrize("engine", ENGINES)
def test_library_that_is_closed_and_opened_again(scene: Any, seen_by: Any, engine: str) -> None:
    host = scene("dlopen")
    seen = seen_by(*ALL, "--", host, 10, 2, cwd=host.parent)
    assert seen.count() == {f"scene:{name}": 40 for name in PROBES}
    assert seen.output == ["wrong=0 guarded=20"] * 2


@pytest.mark.parametrize("engine", ENGINES)
def test_choice_of_probes_and_hits(scene: Any, seen_by: Any, tmp_path: Path, engine: str) -> None:
    """-P, -x, --module and --filter as with the other engines; one output for all."""
    program, host = scene("pie"), scene("shared")
    tmp_path.chmod(0o777)
    words = "-P", "scene:[ilt]*", "-x", "text", "-o", tmp_path / "hits.jsonl", "--", program, 5
    seen_by(*words)
    hits = [json.loads(line) for line in (tmp_path / "hits.jsonl").read_text().splitlines()]
    names = Counter(hit["probe"] for hit in hits if "probe" in hit)
    assert names == {"scene:ints": 5, "scene:last": 5}
    seen = seen_by("-P", "last", "--filter", "round > 2 and sum == 3", "--", program, 7)
    assert sorted(int(values["round"]) for _, values in seen.hits) == [3, 4, 5, 6]
    assert not seen_by(*ALL, "--module", "nothing", "--", host, 2, cwd=host.parent, code=1).hits


@pytest.mark.parametrize("engine", ENGINES)
def test_counts_are_exact(scene: Any, tool: str, run: Any, engine: str) -> None:
    rounds = 20_000 if engine == "bpftrace" else 50
    done = run(*MODULE, "trace", "--engine", tool, "--count", *ALL, "--", scene("pie"), rounds, 2)
    rows = re.findall(r"^ *([0-9]+)  (\S+:\S+)", done.stdout, re.MULTILINE)
    assert {name: int(number) for number, name in rows} == {f"scene:{name}": 2 * rounds for name in PROBES}
    assert f"wrong=0 guarded={2 * rounds}" in done.stdout


@pytest.mark.parametrize("engine", ENGINES)
def test_running_process_attached_and_let_go(scene: Any, tool: str, engine: str) -> None:
    """By Ctrl-C, by --duration, when the tracer is killed, and at the end; byte for byte as it was."""
    running = Running(scene("pie"), 20, 2)
    pid = running.process.pid
    before = code_of(pid)
    tracer = watch(pid, "--count", "--engine", tool)
    wait_for(lambda: code_of(pid) != before)  # gdb may still step past a breakpoint, for which it takes all of them out
    output, errors = tracer.interrupt()
    assert tracer.returncode == 0, errors
    assert output == "(6 without a hit)\n"
    assert code_of(pid) == before
    done = subprocess.run(
        [*MODULE, "trace", *ALL, "--engine", tool, "--duration", "0.3", "-p", str(pid)], check=True, timeout=60
    )
    assert done.returncode == 0
    assert code_of(pid) == before
    tracer = watch(pid, "--engine", tool)
    tracer.kill()
    tracer.communicate()
    wait_for(lambda: code_of(pid) == before)
    tracer = watch(pid, "--count", "--engine", tool)
    assert running.end() == "wrong=0 guarded=40\n"
    output, errors = tracer.communicate(timeout=60)
    assert sorted(output.split()) == sorted([word for name in PROBES for word in ("40", f"scene:{name}")])


@pytest.mark.parametrize("engine", ENGINES)
def test_limit_lets_the_program_run_on(scene: Any, tool: str, engine: str) -> None:
    running = Running(scene("pie"), 300, 1)
    tracer = watch(running.process.pid, "-x", "guarded", "--limit", "3", "--engine", tool)
    assert running.end() in {f"wrong=0 guarded={number}\n" for number in range(301)}
    output, errors = tracer.communicate(timeout=60)
    assert tracer.returncode == 0, errors
    assert len(parse(output).hits) == 3


@pytest.mark.live
def test_bpftrace_follows_programs_that_the_program_starts(scene: Any, bpftrace: str, run: Any) -> None:
    """Those of others aren't counted, though bpftrace sees them too: one runs all the while."""
    program = scene("pie")
    script = f"{program} 10; ({program} 10 2); exec {program} 10 3"
    other = subprocess.Popen(["sh", "-c", f"while {program} 5 >/dev/null; do :; done"], start_new_session=True)
    try:
        words = [*MODULE, "trace", "--engine", "bpftrace", "--count", "-P", "scene:last"]
        done = run(*words, "--", "sh", "-c", script)
        assert "60  scene:last" in done.stdout
        done = run(*words, "--no-children", "--", "sh", "-c", script)
        assert "30  scene:last" in done.stdout
        seen = parse(run(*MODULE, "trace", "--engine", "bpftrace", *ALL, "--", "sh", "-c", script).stdout)
        assert seen.count()["scene:last"] == 60
    finally:
        os.killpg(other.pid, signal.SIGKILL)
        other.wait()


@pytest.mark.live
def test_bpftrace_reports_what_it_lost(scene: Any, bpftrace: str, run: Any, tmp_path: Path) -> None:
    """What is written and what is said to be lost is all that there was."""
    hits = tmp_path / "hits"  # apart from the program's own line, which can stand amid a hit's
    words = [*MODULE, "trace", "--engine", "bpftrace", "--buffer", "1", "-P", "scene:ints", "-P", "scene:eight"]
    done = run(*words, "-o", f"{hits}.jsonl", "--", scene("pie"), 150_000, 2)
    seen = len(hits.with_suffix(".jsonl").read_text().splitlines())
    lost = re.search(r"warning: ([0-9]+) of ([0-9]+) hits were lost", done.stderr)
    assert seen + (int(lost[1]) if lost else 0) == 600_000
    assert lost is None or int(lost[2]) == 600_000


@pytest.mark.parametrize("engine", ["gdb", "bpftrace"])
@pytest.mark.parametrize(
    ("options", "cure"),
    [(("-F", "*"), "patch, trap or inside"), (("-L", "malloc"), "patch or trap"), (("-L", "*", "--returns"), "trap")],
)
def test_what_they_cannot_do_is_one_error(engine: str, options: tuple[str, ...], cure: str, tmp_path: Path) -> None:
    words = [*MODULE, "trace", "--engine", engine, *options, "--", "touch", str(tmp_path / "ran")]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
    assert engine in done.stderr
    assert cure in done.stderr
    assert not (tmp_path / "ran").exists()


def test_missing_tool_is_one_error(tmp_path: Path) -> None:
    for engine, words in (("gdb", "gdb is not installed"), ("bpftrace", "bpftrace")):
        command = [*MODULE, "trace", "--engine", engine, "--", "/usr/bin/touch", str(tmp_path / "ran")]
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=60, env={**os.environ, "PATH": str(tmp_path)}
        )
        assert done.returncode != 0
        assert f"the engine {engine} can't be used" in done.stderr
        assert words in done.stderr
        assert len(done.stderr.splitlines()) == 1
    assert not (tmp_path / "ran").exists()


def test_bpftrace_without_root_is_one_error(unprivileged: list[str], tmp_path: Path) -> None:
    words = [*unprivileged, *MODULE, "trace", "--engine", "bpftrace", "--", "touch", str(tmp_path / "ran")]
    if os.geteuid() == 0 and "--reuid" not in words:
        pytest.skip("another user may not run this interpreter")
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode != 0
    assert "bpftrace needs root" in done.stderr
    assert not (tmp_path / "ran").exists()


ODD = r"""
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>
#include "odd.h"
static char none[131072] __attribute__((aligned(65536)));
static const char constant[] __attribute__((aligned(65536))) = "constant";
static void *map(int writable, int descriptor)
{
    int flags = MAP_PRIVATE | (descriptor < 0 ? MAP_ANONYMOUS : 0);
    return mmap(0, 4096, writable ? PROT_READ | PROT_WRITE : PROT_READ, flags, descriptor, 0);
}
int main(int count, char **words)
{
    int file = open(words[0], O_RDONLY);
    char *gone = map(1, -1), *seen = map(0, file);
    (void)count;
    munmap(gone, 4096);
    usleep(300000);
    ODD_TEXT(0, "\x1f" "begins oddly");
    ODD_TEXT(1, gone);
    ODD_TEXT(2, none + 65536);
    ODD_TEXT(3, constant);
    ODD_TEXT(4, (char *)3);
    munmap(seen, 4096);
    ODD_TEXT(5, seen);
    usleep(300000);
    mmap(seen, 4096, PROT_READ, MAP_PRIVATE | MAP_FIXED, file, 0);
    ODD_TEXT(6, "0123456789012345678901234567890123456789012345678901234567890123456789");
    usleep(300000);
    return 0;
}
"""


@pytest.mark.live
def test_bpftrace_invents_no_string(run: Any, bpftrace: str, tmp_path: Path) -> None:
    """What it shows as empty is read from a file only where that was mapped there before and after the hit."""
    (tmp_path / "odd.d").write_text("provider odd { probe text(int, char *); };\n")
    (tmp_path / "odd.c").write_text(ODD)
    run(*MODULE, "header", "odd.d", "-o", "odd.h", cwd=tmp_path)
    run(*MODULE, "cc", "--", "gcc", "-O1", "-c", "odd.c", cwd=tmp_path)
    run("gcc", "odd.o", "-o", "odd", cwd=tmp_path)
    run(*MODULE, "trace", "--engine", "bpftrace", "-P", "odd:*", "-o", "odd.jsonl", "--", "./odd", cwd=tmp_path)
    lines = (tmp_path / "odd.jsonl").read_text().splitlines()
    found = [json.loads(line)["args"].get("arg1", "?") for line in lines]
    assert found[0] == "\x1fbegins oddly"
    assert found[2:5] == ["", "constant", {"unreadable": "0x3"}]
    assert found[6] == {"text": "0123456789" * 6 + "0123", "cut": True}
    for guess in (found[1], found[5]):  # "?" where somebody may have mapped something between two looks
        assert guess == "?" or set(guess) == {"unreadable"}


FORKS = r"""
#include <sys/wait.h>
#include <unistd.h>
#include "odd.h"
static const char constant[] __attribute__((aligned(65536))) = "constant";
int main(void)
{
    for (int i = 0; i < 4; i++) {
        if (!fork()) {
            ODD_TEXT(i % 2 ? *(const volatile char *)constant : 0, (char *)constant);
            _exit(0);
        }
        wait(0);
    }
    return 0;
}
"""


@pytest.mark.live
def test_bpftrace_says_how_many_texts_it_could_not_read(run: Any, bpftrace: str, tmp_path: Path) -> None:
    """Half of the processes haven't touched the text's page when they hit; a filter can't know whether these pass."""
    program = built_with_probes(run, tmp_path, "odd", "provider odd { probe text(int, char *); };", FORKS)
    for words, shown in ((("--filter", 'arg1 == "constant"'), "2  odd:text"), (("--by", "arg1"), "?")):
        done = run(*MODULE, "trace", "--engine", "bpftrace", "-P", "odd:*", "--count", *words, "--", program)
        assert shown in done.stdout
        assert "warning: bpftrace could not read a text in 2 hits" in done.stderr
    done = run(*MODULE, "trace", "--engine", "bpftrace", "-P", "odd:*", "--count", "--", program)
    assert (done.stdout, done.stderr) == ("4  odd:text\n", "")


FORKERS = r"""
#include <pthread.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>
#include "odd.h"
static volatile int over, died, born;
static void *breed(void *data)
{
    while (!over) {
        int status;
        pid_t child = fork();
        if (!child) {
            ODD_TEXT(1, "child");
            _exit(0);
        }
        if (waitpid(child, &status, 0) != child || status) __atomic_add_fetch(&died, 1, __ATOMIC_SEQ_CST);
        __atomic_add_fetch(&born, 1, __ATOMIC_SEQ_CST);
    }
    return data;
}
int main(void)
{
    pthread_t threads[4];
    for (int i = 0; i < 4; i++) pthread_create(threads + i, 0, breed, 0);
    puts("ready");
    fflush(stdout);
    getchar();
    over = 1;
    for (int i = 0; i < 4; i++) pthread_join(threads[i], 0);
    printf("%d of %s died\n", died, born > 100 ? "many" : "few");
    return 0;
}
"""


def test_no_child_keeps_a_breakpoint_of_gdb(run: Any, need: Any, tmp_path: Path) -> None:
    """Four threads fork when gdb is told to let go: children of which it hasn't heard yet have its breakpoints."""
    need("gdb")
    program = built_with_probes(run, tmp_path, "odd", "provider odd { probe text(int, char *); };", FORKERS)
    with ready(program) as process:
        for _ in range(6):
            words = [*MODULE, "trace", "--engine", "gdb", "-P", "odd:*", "--duration", "0.2", "-p", str(process.pid)]
            subprocess.run(words, check=True, capture_output=True, timeout=60)
        output = process.end("\n")
    assert (process.returncode, output) == (0, "0 of many died\n")


@pytest.mark.live
def test_a_bpftrace_that_is_killed(scene: Any, bpftrace: Any) -> None:
    """Whoever waits for traced processes hears of its end first; the trace says so, and the program runs on."""
    running = Running(scene("pie"), 20, 2)
    tracer = watch(running.process.pid, "--engine", "bpftrace")
    (worker,) = _children(tracer.pid)
    (watcher,) = (one for one in _children(worker) if Path(f"/proc/{one}/comm").read_text() == "bpftrace\n")
    os.kill(watcher, signal.SIGKILL)
    _, errors = tracer.communicate(timeout=60)
    assert (tracer.returncode, "bpftrace has ended" in errors) == (1, True), errors
    assert errors.count("\n") == 1
    assert running.end().startswith("wrong=0 ")


def _children(pid: int) -> list[int]:
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            if int(path.read_text().rpartition(")")[2].split()[1]) == pid:
                found.append(int(path.parent.name))
    return found


# A site at an instruction with a lock prefix, where the kernel sets no uprobe, and one at a NOP.
UNREACHABLE = r"""
#define SITE(name, instruction) __asm__ volatile("990: " instruction "\n" \
    ".pushsection .note.stapsdt,\"?\",\"note\"\n .balign 4\n .4byte 992f-991f, 994f-993f, 3\n" \
    "991: .asciz \"stapsdt\"\n992: .balign 4\n993: .8byte 990b, 0, 0\n" \
    ".asciz \"own\", \"" name "\", \"\"\n994: .balign 4\n.popsection" : : "r"(&word) : "memory")
static int word;
int main(void) {
    for (int i = 0; i < 3; i++) { SITE("locked", "lock incl (%0)"); SITE("plain", "nop"); }
    return word - 3;
}
"""


@pytest.mark.live
def test_a_probe_that_bpftrace_cannot_attach_is_named_and_the_others_are_seen(
    run: Any, bpftrace: str, tmp_path: Path, compiled: Any
) -> None:
    """Older versions of bpftrace end then, and are started again without it; nothing is left in the kernel's list."""
    del bpftrace
    events = Path("/sys/kernel/tracing/uprobe_events")
    before = events.read_text()
    compiled(tmp_path, "own.c", UNREACHABLE, "-O1")
    done = run(*MODULE, "trace", "-v", "--count", "--engine", "bpftrace", "-P", "own:*", "--", "./own", cwd=tmp_path)
    assert re.search(r"^3  own:plain", done.stdout, re.MULTILINE), done
    assert "own:locked: the kernel lets bpftrace attach nothing there" in done.stderr
    assert set(events.read_text().splitlines()) <= set(before.splitlines())
