"""A trace beside others and beside what is odd: another tracer at the same site, another trace of the process, files of
another mount namespace, arguments behind pointers that lead nowhere; and entries of functions, which have none."""

from __future__ import annotations

import os
import platform
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.started import Started, code_of, ready, wait_for
from usdtbuild.tracing.running import status_field
from usdtbuild.tracing.tracees import WORKER, _described

from .conftest import check_arguments, parse
from .test_engines import Running, watch

ENGINES = pytest.mark.parametrize("engine", ["patch", "trap"])
# Members behind pointers, as a compiler has them where it needs them for nothing else: at -O2 gcc's records name memory
# behind a register, and the program itself never follows the pointer.
WILD = r"""
#include <stdio.h>
#include <sys/sdt.h>
struct item { int id; const char *name; struct item *next; };
__attribute__((noinline)) static void look(struct item *item, long index) {
    __asm__ volatile("1: nop\n"
        ".pushsection .note.stapsdt,\"?\",\"note\"\n .balign 4\n .4byte 992f-991f, 994f-993f, 3\n"
        "991: .asciz \"stapsdt\"\n992: .balign 4\n993: .8byte 1b\n .8byte _.stapsdt.base\n .8byte 0\n"
        " .asciz \"wild\"\n .asciz \"item\"\n"
        " .asciz \"-4@(%%rdi) 8@8(%%rdi) 8@(%%rdi,%%rsi,8) -4@%%esi\"\n994: .balign 4\n"
        ".popsection\n" : : "D"(item), "S"(index) : "memory");
}
int main(void) {
    struct item whole = {7, "seven", 0};
    DTRACE_PROBE(wild, begin);
    look(&whole, 1);
    look((struct item *)8, 2);
    look(0, 3);
    look((struct item *)0x123456789abcdef0UL, 4);
    puts("unharmed");
    return 0;
}
"""
# gold makes one function of two, and keeps the record of each.
FOLDED = """
#include <stdlib.h>
#include "app.h"
__attribute__((noinline)) int one(int n) { APP_GO(n); return n * 3 + 1; }
__attribute__((noinline)) int two(int n) { APP_GO(n); return n * 3 + 1; }
int main(int count, char **words) { return one(count) + two(atoi(words[1])) > 100; }
"""
FUNCTIONS = r"""
#include <stdio.h>
int depth;
__attribute__((noinline, patchable_function_entry(7, 5))) int patchable(int n)
{ return n ? patchable(n - 1) + 1 : depth; }
__attribute__((noinline)) int plain(int n) { __asm__ volatile("" : "+r"(n)); return n + depth; }
int main(void) {
    int sum = 0;
    for (int i = 0; i < 20; i++) sum += patchable(2) + plain(i);
    printf("%d\n", sum);
    return 0;
}
"""
# Probes of a single NOP with nothing between them; one before a call through a register, which returns three bytes
# behind it; and one before a call through a slot, whose distance begins three bytes behind it.
CLOSE = r"""
#include <stdio.h>
#include <sys/sdt.h>
#include <unistd.h>
static int called;
__attribute__((noipa)) static void back(void) { called++; __asm__ volatile(""); }
__attribute__((noipa)) static void through(void (*where)(void)) {
    for (int i = 0; i < 20; i++) { DTRACE_PROBE(close, register); where(); }
}
int main(void) {
    for (int i = 0; i < 5; i++) {
        DTRACE_PROBE(close, one);
        DTRACE_PROBE(close, two);
        DTRACE_PROBE(close, three);
        __asm__ volatile("" : : : "memory");
    }
    through(back);
    for (int i = 0; i < 7; i++) { DTRACE_PROBE(close, slot); (void)!getppid(); }
    printf("%d\n", called);
    return 0;
}
"""
# A probe right behind another one, a function right behind the return of another one, and a probe right before a jump,
# whose bytes lead into the program itself; 500 times for each line that comes.
BEHIND = r"""
#include <stdio.h>
#include <sys/sdt.h>
static long sum;
__attribute__((noipa, patchable_function_entry(7, 5))) int inner(int n) { return n + 1; }
__attribute__((noipa)) int next(int n) { return n + 2; }
__attribute__((noipa)) void both(long n) {
    DTRACE_PROBE(behind, one);
    DTRACE_PROBE1(behind, two, n);
    __asm__ volatile("first: movslq %%edi, %%rdi\n second: add %%rdi, %1\n .type first, @function\n"
        " .type second, @function\n .size first, 3\n .size second, 7" : "+D"(n), "+m"(sum));
}
__attribute__((noipa)) void hop(void) {
    DTRACE_PROBE(behind, three);
#ifdef __x86_64__
    __asm__ volatile("jumped: {disp32} jmp landed\n .skip 16, 0xcc\n landed: nop\n"
        " .type jumped, @function\n .size jumped, 5");
#endif
}
int main(void) {
    char line[8];
    puts("ready");
    fflush(stdout);
    while (fgets(line, sizeof line, stdin)) {
        for (int i = 0; i < 500; i++) { both(inner(i)); sum += next(i); hop(); }
        printf("%ld\n", sum);
        fflush(stdout);
    }
    return 0;
}
"""
# Each function's padding, or its entry, is right behind the return of the one before. Where PAD is a number, so many
# bytes are between them.
CROWDED = r"""
#define CROWDED(name) \
    __attribute__((noinline)) void name(void) { \
        __asm__ volatile("push %rbp; mov %rsp, %rbp; pop %rbp; .fill 57, 1, 0x90"); \
    } \
    __asm__(".skip " PAD ", 0x90");
CROWDED(zero)
CROWDED(one)
CROWDED(two)
__asm__(".fill 16, 1, 0x90"); /* room for the last one's return */
int main(void) {
    zero();
    one();
    two();
    return 0;
}
"""


@pytest.fixture(scope="module")
def functions(tmp_path_factory: pytest.TempPathFactory, compiled: Any) -> Path:
    folder = tmp_path_factory.mktemp("functions")
    return compiled(folder, "functions.c", FUNCTIONS, "-O1", "-fno-optimize-sibling-calls")


@pytest.fixture(scope="module")
def behind(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest, compiled: Any) -> Path:
    folder = tmp_path_factory.mktemp("behind")
    folder.chmod(0o755)
    shape = getattr(request, "param", "-pie")
    options = ["-O2", "-falign-functions=1", "-fno-toplevel-reorder", "-fcf-protection=none", f"-f{shape[1:]}", shape]
    return compiled(folder, "behind.c", BEHIND, *options)


@ENGINES
def test_entries_of_functions_that_can_be_patched(functions: Path, traced: Any, engine: str) -> None:
    """Recursive calls among them: 20 of three each."""
    done = traced("-v", "--engine", engine, "-F", "patchable", "--count", "--", functions)
    assert re.search(r"^ *60  patchable$", "\n".join(done.output), re.MULTILINE), done
    assert f"traced with {engine}" in done.errors
    assert "230" in done.output


def test_entries_of_other_functions_only_by_breakpoints(functions: Path, traced: Any) -> None:
    refused = traced("-v", "-F", "plain", "--count", "--", functions)
    assert re.search(
        r"not traced: plain at 0x\w+: .* is no NOP .*; --trap watches it .* microseconds or more a hit", refused.errors
    )
    done = traced("-v", "-F", "plain", "-F", "patchable", "--trap", "--count", "--", functions)
    found = {name: int(count) for count, name in re.findall(r"^ *(\d+)  (\w+)$", "\n".join(done.output), re.MULTILINE)}
    assert (found.get("plain"), found.get("patchable")) == (20, 60), done
    assert "230" in done.output


@ENGINES
def test_memory_operands_behind_wild_pointers(run: Any, traced: Any, tmp_path: Path, engine: str) -> None:
    if not any(Path(folder, "sys/sdt.h").exists() for folder in ("/usr/include", "/usr/include/x86_64-linux-gnu")):
        pytest.skip("sys/sdt.h is not installed")
    (tmp_path / "wild.c").write_text(WILD)
    (tmp_path / "wild.d").write_text("provider wild { probe item(int id, char *name, long other, int index); };")
    run("gcc", "-O2", "wild.c", "-o", "wild", cwd=tmp_path)
    tmp_path.chmod(0o755)
    words = ("--engine", engine, "-P", "wild:item", "--provider", tmp_path / "wild.d", "--", tmp_path / "wild")
    seen = traced(*words)
    assert seen.output == ["unharmed"]
    values = [hit for _, hit in seen.hits]
    assert [hit["index"] for hit in values] == ["1", "2", "3", "4"]
    assert (values[0]["id"], values[0]["name"]) == ("7", '"seven"')
    assert [(hit["id"], hit["name"], hit["other"]) for hit in values[1:]] == [("?", "?", "?")] * 3


@ENGINES
def test_second_trace_of_a_process_says_that_there_is_one(scene: Any, engine: str) -> None:
    """It changes nothing, and the first one goes on to the end."""
    running = Running(scene("pie"), 20, 2)
    first = watch(running.process.pid, "--count", "--engine", engine)
    words = [sys.executable, "-m", "usdtbuild", "trace", "--count", "-p", str(running.process.pid)]
    second = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert second.returncode == 1
    said = rf"process {running.process.pid} is traced already, by process \d+ of user \w+, which has run for \d+ s: .*"
    assert re.search(rf"{said} trace .*; one tracer can", second.stderr)
    assert running.end() == "wrong=0 guarded=40\n"
    output, errors = first.communicate(timeout=60)
    assert first.returncode == 0, errors
    assert "40  scene:last" in output


def test_what_is_left_of_a_killed_trace_is_not_taken_for_who_adopted_it() -> None:
    starts = "import subprocess, sys; print(subprocess.Popen(sys.argv[1:], stdout=-3, stderr=-3).pid)"
    named = "import sys, time; open('/proc/self/comm', 'w').write(sys.argv[1]); time.sleep(60)"
    worker = [sys.executable, "-c", named, WORKER]
    started = subprocess.run([sys.executable, "-c", starts, *worker], capture_output=True, text=True, check=True)
    pid = int(started.stdout)
    try:
        if status_field(pid, "PPid") != "1":
            pytest.skip("orphans are adopted by another process than the first")
        wait_for(lambda: status_field(pid, "Name") == WORKER)
        assert _described(pid).startswith("what is left of a trace that was killed (process ")
    finally:
        os.kill(pid, signal.SIGKILL)


@pytest.mark.live
@ENGINES
def test_site_that_bpftrace_watches_is_left_to_it(scene: Any, bpftrace: str, engine: str) -> None:
    """It is named as not traced, the others are traced, and bpftrace counts its own to the last."""
    program = scene("pie")
    running = Running(program, 30, 2)
    # Not by -p, with which bpftrace 0.27 counts each hit twice.
    script = f"usdt:{program}:scene:last /pid == {running.process.pid}/ {{ @hits = count(); }}"
    with Started(bpftrace, "-e", script, stdin=None, stderr=subprocess.PIPE) as other:
        wait_for(lambda: _has_breakpoint(running.process.pid, program, "last") or other.poll() is not None)
        assert other.poll() is None, other.communicate()
        tracer = watch(running.process.pid, "--count", "--engine", engine)
        assert running.end() == "wrong=0 guarded=60\n"
        output, errors = tracer.communicate(timeout=60)
        counted, _ = other.interrupt()
    assert "@hits: 60" in counted
    assert re.search(r"not traced: scene:last at 0x[0-9a-f]+: a breakpoint is there already", errors)
    assert "60  scene:text" in output
    assert "60  scene:last" not in output


def test_what_we_have_mapped_is_no_file_that_could_not_be_looked_at(scene: Any, traced: Any) -> None:
    """Libraries come while it is there, and who has no rights can't open it."""
    program = scene("dlopen")
    run_it = f"cd {program.parent} && exec ./{program.name} 5"
    seen = traced("-v", "--count", "-P", "scene:*", "--", "sh", "-c", run_it)
    assert "10  scene:last" in map(str.strip, seen.output)
    assert "not traced" not in seen.errors
    assert "traced with patch;" in seen.errors


def test_two_records_of_a_probe_at_one_address_are_one_site(
    counted: Any, run: Any, need: Any, tmp_path: Path, compiled: Any, header_of: Any
) -> None:
    need("ld.gold")
    header_of(tmp_path, "app.d", "provider app { probe go(int); };\n")
    options = ("-O2", "-ffunction-sections", "-fno-ipa-icf", "-fuse-ld=gold", "-Wl,--icf=all")
    compiled(tmp_path, "folded.c", FOLDED, *options)
    assert run("readelf", "-n", tmp_path / "folded").stdout.count("Name: go") == 2
    tmp_path.chmod(0o755)
    for engine in ("auto", "patch", "trap"):
        counts, printed = counted("-v", "--engine", engine, "-P", "app:*", "--", tmp_path / "folded", "3")
        assert counts == {"app:go": 2}
        assert "not traced" not in printed


def test_only_what_gets_a_breakpoint_is_in_the_way_of_a_jump(behind: Path, traced: Any) -> None:
    """And of a function that can't be patched its entry is named beside its return."""
    wanted = ("--count", "-F", "inner", "-F", "next", "--returns", "-v")
    seen = traced(*wanted, "--engine", "patch", "--", behind, input="\n")
    counted = {"500  inner", "500  inner:return"}
    assert counted <= set(map(str.strip, seen.output))
    assert not re.search(r"inner\S* at", seen.errors)
    assert re.search(r"not traced: next at 0x[0-9a-f]+: its returns can't be watched in place", seen.errors)
    assert re.search(r"not traced: next:return at 0x[0-9a-f]+: its returns can't be watched in place", seen.errors)
    seen = traced(*wanted, "--", behind, input="\n")
    assert counted | {"500  next", "500  next:return"} <= set(map(str.strip, seen.output))


@pytest.mark.skipif(platform.machine() != "x86_64", reason="elsewhere a site is one instruction, and reads nothing")
@pytest.mark.parametrize(
    ("entries", "pad", "shape", "left"),
    [
        ("7,5", 0, "-pie", []),
        ("7,5", 0, "-no-pie", []),
        ("7,5", 3, "-pie", []),
        ("7,5", 3, "-no-pie", ["one", "zero"]),  # where that leads is no address; the entry comes first
        ("5", 0, "-pie", []),
        ("5", 2, "-pie", []),
    ],
)
def test_a_return_that_is_right_before_an_entry_is_seen_and_so_is_the_entry(
    traced: Any, tmp_path: Path, entries: str, pad: int, shape: str, left: list[str], compiled: Any
) -> None:
    options = ["-O2", "-falign-functions=1", "-fno-toplevel-reorder", "-fcf-protection=none", f"-f{shape[1:]}", shape]
    own = [f"-fpatchable-function-entry={entries}", f'-DPAD="{pad}"']
    compiled(tmp_path, "crowded.c", CROWDED, *options, *own)
    names = [word for name in ("zero", "one", "two") for word in ("-F", name)]
    seen = traced("-v", "--graph", *names, "--engine", "patch", "--", tmp_path / "crowded")
    assert [line.split()[-2:] for line in seen.output[1:]] == [["1", "zero"], ["1", "one"], ["1", "two"]], seen
    assert sorted(re.findall(r"not traced: (\S+)", seen.errors)) == [f"{name}:return" for name in left]


@pytest.mark.live
@pytest.mark.parametrize(
    ("behind", "ours", "counted", "theirs"),
    [
        ("-pie", ("-P", "behind:one"), "behind:one", "usdt:{}:behind:two"),
        ("-pie", ("-F", "inner", "--returns"), "inner:return", "uprobe:{}:next"),
        ("-pie", ("-P", "behind:two"), "behind:two", "uprobe:{}:first"),  # the first instruction behind a single NOP
        ("-pie", ("-P", "behind:two"), "behind:two", "uprobe:{}:second"),  # the second, at the jump's last byte
        ("-pie", ("-P", "behind:three"), "behind:three", "uprobe:{}:jumped"),  # which changes with it
        ("-no-pie", ("-P", "behind:two"), "behind:two", "uprobe:{}:second"),  # leads out of the address space
    ],
    indirect=["behind"],
)
def test_somebody_else_comes_to_what_is_within_a_jump(
    behind: Path, bpftrace: str, ours: tuple[str, ...], counted: str, theirs: str
) -> None:
    """The kernel's breakpoint changes where the jump leads; both see every hit, and the program gets what it had."""
    program = ready(behind)
    code = code_of(program.pid, behind)
    tracer = watch(program.pid, "--count", "--engine", "patch", *ours)
    armed = code_of(program.pid, behind)
    other = _counting(bpftrace, theirs.format(behind), program.pid)
    try:
        _wait_until_in_place(other)
        assert code_of(program.pid, behind) != armed
        outputs = []
        for step in range(3):
            program.tell()
            outputs.append(program.line())
            if step == 0:
                output, errors = tracer.interrupt()
            elif step == 1:
                said, _ = other.interrupt()
    finally:
        other.kill()
        tracer.kill()
    assert outputs == ["251000\n", "502000\n", "753000\n"]
    assert f"500  {counted}\n" in output
    assert "not traced" not in errors
    assert "@hits: 1000" in said
    assert code_of(program.pid, behind) == code
    program.communicate(timeout=60)
    assert program.returncode == 0


@ENGINES
def test_somebody_else_who_comes_to_an_armed_site_takes_its_hits_which_is_said(
    behind: Path, bpftrace: str, engine: str, tmp_path: Path
) -> None:
    """Also if he is gone, and the program has ended, before the trace does. The count looked like all hits."""
    program, file = ready(behind), tmp_path / "counts.json"
    tracer = watch(program.pid, "--count", "--engine", engine, "-P", "behind:two", "-o", str(file))
    other = _counting(bpftrace, f"usdt:{behind}:behind:two", program.pid)
    try:
        for step in range(3):
            program.tell()
            assert program.line()
            if step == 0:
                _wait_until_in_place(other)
            elif step == 1:
                other.interrupt()
            time.sleep(1.5)
        program.communicate(timeout=60)
        output, errors = tracer.communicate(timeout=60)
    finally:
        other.kill()
        tracer.kill()
        program.kill()
    assert "another tracer took the site meanwhile; its count is not complete" in errors, output + errors
    assert '"exact": false' in file.read_text()


def _counting(bpftrace: str, where: str, pid: int) -> Started:
    """Start a bpftrace that counts a process' hits of a place."""
    script = f'{where} /pid == {pid}/ {{ @hits = count(); }} interval:ms:50 {{ printf("tick\\n"); }}'
    return Started(bpftrace, "-B", "line", "-e", script, stdin=None, stderr=subprocess.PIPE)


def _wait_until_in_place(other: Started) -> None:
    while other.line() not in {"tick\n", ""}:
        pass


def _has_breakpoint(pid: int, program: Path, probe: str) -> bool:
    """Whether a breakpoint is at a probe's first site in a process."""
    from usdtbuild.tracing.selection import Wanted, select

    (target,) = select(pid, Wanted(probes=(f"scene:{probe}",))).targets
    with open(f"/proc/{pid}/mem", "rb") as memory:  # noqa: PTH123
        memory.seek(target.sites[0].address)
        return memory.read(1) == b"\xcc"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may leave the mount namespace")
@ENGINES
def test_program_that_only_its_own_mount_namespace_has(scene: Any, need: Any, tmp_path: Path, engine: str) -> None:
    if subprocess.run([need("unshare"), "--mount", "true"], stderr=subprocess.DEVNULL, check=False).returncode:
        pytest.skip("no mount namespace can be made here (in a chroot, for one)")
    hidden = tmp_path / "hidden"
    hidden.mkdir()
    script = f'mount -t tmpfs none "{hidden}" && cp "{scene("pie")}" "{hidden}/scene" && exec "{hidden}/scene" 5 1 wait'
    words = [need("unshare"), "--mount", "sh", "-c", script]
    with ready(*words) as process:
        assert not (hidden / "scene").exists()
        tracer = watch(process.pid, "--engine", engine)
        assert process.end("\n") == "wrong=0 guarded=5\n"
        check_arguments(parse(tracer.end()).hits, 5)


def test_probes_and_calls_side_by_side(counted: Any, tmp_path: Path, compiled: Any) -> None:
    """A jump is five bytes, which may hold other probes, and what calls and their returns have changed."""
    if not any(Path(folder, "sys/sdt.h").exists() for folder in ("/usr/include", "/usr/include/x86_64-linux-gnu")):
        pytest.skip("sys/sdt.h is not installed")
    compiled(tmp_path, "close.c", CLOSE, "-O2", "-fno-plt")
    fired = {"one": 5, "two": 5, "three": 5, "register": 20, "slot": 7}
    probes = {f"close:{name}": number for name, number in fired.items()}
    for words in ((), ("-L", "getppid"), ("-F", "back", "--returns"), ("-L", "getppid", "--returns")):
        counts, printed = counted("-P", "close:*", *words, "--", tmp_path / "close")
        assert "20" in printed.splitlines()
        assert counts.items() >= probes.items()
        assert "20  back:return" in printed or "back" not in words
    counts, printed = counted("-v", "--engine", "patch", "-P", "close:*", "--", tmp_path / "close")
    assert ("close:one" in counts, "close:two" in counts, counts["close:three"]) == (False, False, 5)
    assert re.findall(r"^ *-  close:(\w+)$", printed, re.MULTILINE) == ["one", "two"]
    assert "close:one" in printed.partition("not traced")[2]
    assert "so close behind it" in printed
