"""Calls by a register that was loaded from a slot some code before: found in the file, and traced.

The truth: the source says which function calls what, and the library counts its own calls.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ..conftest import COMPILERS

pytestmark = pytest.mark.skipif(os.uname().machine != "x86_64", reason="is about x86-64's own forms")
# Calls by a pointer that came as an argument: of 4 threads, 3 times, with 5 and 4 calls. No slot is loaded for them.
BY_POINTER = {"own_one": 4 * 3 * 5, "own_two": 0, "own_three": 4 * 3 * 4}
LIBRARY = r"""
#include <stdio.h>
static long ones, twos, threes;
int own_one(int v) { __sync_fetch_and_add(&ones, 1); return v & 7; }
int own_two(const char *text, int v) { __sync_fetch_and_add(&twos, 1); return text[0] + (v & 31); }
int own_three(int v) { __sync_fetch_and_add(&threes, 1); return (v & 15) + 3; }
__attribute__((destructor)) static void end(void) {
    printf("own_one %ld own_two %ld own_three %ld\n", ones, twos, threes);
}
"""
# What compilers make of it: loads before a loop with a jump table in it; a register that lives on in a catch; one call
# of two functions; a register that the program has from elsewhere.
PROGRAM = r"""
#include <pthread.h>
#include <stdexcept>
#include <string>
extern "C" { int own_one(int); int own_two(const char *, int); int own_three(int); }
__attribute__((noinline)) int table(const int *p, int n) {
    int sum = 0;
    for (int i = 0; i < n; i++)
        switch (p[i]) {
        case 0: sum += own_one(i); own_one(sum); break;
        case 1: sum += own_three(i); break;
        case 2: sum -= own_one(sum); break;
        case 3: sum += own_two("x", sum); // and on
        case 4: sum *= own_one(3); break;
        case 5: sum /= 7; sum += own_one(2); break;
        case 6: sum ^= 3; break;
        default: own_one(9);
        }
    return sum;
}
__attribute__((noinline)) int caught(int n) {
    std::string text;
    int sum = 0;
    for (int i = 0; i < n; i++) {
        try {
            sum += own_one(i);
            if (i % 7 == 3)
                throw std::runtime_error("x");
            sum += own_one(sum);
        } catch (std::exception &) {
            sum += own_one(5);
            sum -= own_one(6);
        }
        text += "abc";
    }
    return sum + own_one(text.size());
}
__attribute__((noinline)) int choice(int c, int n) {
    return (c ? own_one : own_three)(n) + (c > 3 ? own_three : own_one)(n + 1);
}
__attribute__((noinline)) int handed(int (*f)(int), int n) {
    int sum = 0;
    while (n--)
        sum += f(n) + own_three(n) + own_three(sum);
    return sum;
}
int (*volatile one)(int) = own_one, (*volatile three)(int) = own_three; // else a compiler specialises `handed` for each
static void *work(void *) {
    int values[64];
    for (int i = 0; i < 64; i++) values[i] = i % 8;
    for (int i = 0; i < 3; i++) {
        table(values, 64), caught(20), choice(i, 1), choice(7, 2), handed(one, 5), handed(three, 4);
    }
    return 0;
}
int main() {
    pthread_t threads[4];
    for (auto &one : threads) pthread_create(&one, 0, work, 0);
    for (auto &one : threads) pthread_join(one, 0);
}
"""


@pytest.fixture(scope="session")
def made(run: Any, need: Any, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Build the program by a compiler."""
    folder = tmp_path_factory.mktemp("loaded")
    (folder / "library.c").write_text(LIBRARY)
    (folder / "program.cc").write_text(PROGRAM)
    run("gcc", "-O1", "-shared", "-fPIC", "library.c", "-Wl,-soname,libown.so", "-o", "libown.so", cwd=folder)

    def make(cc: str) -> Path:
        path = folder / cc
        if not path.exists():
            words = (need(COMPILERS[cc]), "-O2", "-fPIC", "-fno-plt", "-fcf-protection=none")
            run(*words, "program.cc", "libown.so", "-Wl,-rpath,$ORIGIN", "-pthread", "-o", path, cwd=folder)
        return path

    return make


def seen(done: Any) -> tuple[dict[str, int], dict[str, int]]:
    """Return what the library has counted of calls through slots, and what the trace has."""
    ours = {name: int(count) for count, name in re.findall(r"^ *(\d+)  (own_\w+(?::return)?)$", done.stdout, re.M)}
    return through_slots(done.stdout), ours


def through_slots(output: str) -> dict[str, int]:
    return {name: int(count) - BY_POINTER[name] for name, count in re.findall(r"(own_\w+) (\d+)", output)}


@pytest.mark.parametrize("cc", COMPILERS)
def test_every_call_is_counted(cc: str, made: Any, usdtbuild: Any) -> None:
    path = made(cc)
    theirs, ours = seen(usdtbuild("trace", "-L", "own_*", "--count", "--", path))
    assert ours == theirs
    assert min(theirs.values()) > 20


@pytest.mark.parametrize("cc", COMPILERS)
def test_every_return_is_seen(cc: str, made: Any, usdtbuild: Any) -> None:
    theirs, ours = seen(usdtbuild("trace", "-L", "own_*", "--returns", "--count", "--", made(cc)))
    assert ours == {f"{name}{end}": count for name, count in theirs.items() for end in ("", ":return")}


def test_a_gdb_stub_sees_them_too(made: Any, usdtbuild: Any, served: Any) -> None:
    where, server = served(made("clang"))
    done = usdtbuild("trace", "-L", "own_*", "--returns", "--count", "--remote", where)
    _, ours = seen(done)
    theirs = through_slots(server.communicate()[0])
    assert ours == {f"{name}{end}": count for name, count in theirs.items() for end in ("", ":return")}


def test_jumps_have_no_room_there_and_say_so(made: Any, usdtbuild: Any) -> None:
    done = usdtbuild("trace", "-L", "own_one", "--engine", "patch", "-v", "--count", "--", made("clang"))
    assert "it calls by a register, in two or three bytes" in done.stderr


def test_each_branch_by_a_register_is_listed(made: Any, calls_of: Any, run: Any, tmp_path: Path) -> None:
    path = made("clang")
    found = calls_of(path, "--sites")
    symbols = run("nm", "-S", path).stdout
    places: dict[int, Any] = {}
    for name in ("table", "caught", "choice"):
        start, size = (int(part, 16) for part in re.findall(rf"^(\w+) (\w+) T _Z\d+{name}", symbols, re.M)[0])
        span = (f"--start-address={start}", f"--stop-address={start + size}")
        text = run("objdump", "-d", "--no-show-raw-insn", *span, path).stdout
        places |= {int(at, 16): register for at, register in re.findall(r"^ *(\w+):\s+call +\*(%\w+)$", text, re.M)}
    listed = {
        int(site["address"], 16): site["register"] for call in found.values() for site in call["sites"]
        if site["register"]
    }  # fmt: skip
    assert len(places) > 10
    assert places.items() <= listed.items()
    shutil.copy(path, tmp_path / "bare")
    run("strip", tmp_path / "bare")
    data = bytearray((tmp_path / "bare").read_bytes())
    data[0x28:0x30], data[0x3C:0x40] = bytes(8), bytes(4)
    (tmp_path / "bare").write_bytes(data)
    assert {n: one["sites"] for n, one in calls_of(tmp_path / "bare", "--sites").items()} == {
        name: one["sites"] for name, one in found.items()
    }


ASSEMBLY = """
    .globl _start, _end
    .type own_one, @function
    .type own_two, @function
_start:
    sub ${room}, %{sp}
    {load} %{a}
    mov %{a}, 8(%{sp})
    call other
    push %{d}
    push %{d}
    call *{spilled}(%{sp})
    add ${pushed}, %{sp}
    mov 8(%{sp}), %{si}
    mov %{si}, %{b}
    cmp $3, %{d}
    je 2f
1:  call *%{b}
    xchg %{b}, %{bp}
    jmp *%{bp}
2:  xor %{b}, %{b}
    test %{a}, %{a}
    jne 1b
    movl $1, 8(%{sp})
    call *8(%{sp})
    call *%{si}
    hlt
other: ret
"""


@pytest.mark.parametrize("bits", ["64", "32"])
def test_what_was_loaded_is_followed_over_registers_and_the_stack(
    bits: str, run: Any, usdtbuild: Any, tmp_path: Path
) -> None:
    wide = bits == "64"
    names = {name: ("r" if wide else "e") + full for name, full in
             {"a": "ax", "b": "bx", "d": "dx", "si": "si", "sp": "sp", "bp": "bp"}.items()}  # fmt: skip
    load = "mov own_one@GOTPCREL(%rip)," if wide else "mov own_one@GOT,"
    sizes = {"room": 24, "spilled": 24, "pushed": 16} if wide else {"room": 24, "spilled": 16, "pushed": 8}
    text = ASSEMBLY.format(load=load, **sizes, **names)
    if not wide:  # counted from the table, whose address ecx has
        text = text.replace("mov own_one@GOT,", "mov own_one@GOT(%ecx),")
        text = text.replace("_start:\n", "_start:\n call 9f\n9: pop %ecx\n add $_GLOBAL_OFFSET_TABLE_+(.-9b), %ecx\n")
    (tmp_path / "main.s").write_text(text)
    (tmp_path / "own.s").write_text(".globl own_one\n.type own_one, @function\nown_one: ret\n")
    run("as", f"--{bits}", "main.s", "-o", "main.o", cwd=tmp_path)
    run("as", f"--{bits}", "own.s", "-o", "own.o", cwd=tmp_path)
    emulation = "elf_x86_64" if wide else "elf_i386"
    run("ld", "-m", emulation, "-shared", "own.o", "-o", "libown.so", cwd=tmp_path)
    run("ld", "-m", emulation, "-pie", "--dynamic-linker", "/none", "main.o", "libown.so", "-o", "main", cwd=tmp_path)
    (file,) = json.loads(usdtbuild("calls", "--json", "--sites", tmp_path / "main").stdout)["files"]
    (call,) = file["calls"]
    found = [(site["kind"], site["register"]) for site in call["sites"]]
    assert found == [
        ("call", f"{sizes['spilled']}(%{names['sp']})"), ("call", f"%{names['b']}"), ("jump", f"%{names['bp']}"),
    ] + [("call", "%esi")] * (not wide)  # fmt: skip
