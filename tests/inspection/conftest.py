"""Binaries with every defect a tracer can trip over, made from a few lines of assembly.

`program(...)` builds an executable whose `main` has sites `.Lsite0`, `.Lsite1`, ...; each `note(...)` is one record.
What a test doesn't say is as `sys/sdt.h` would write it, so that a test shows the one thing that is different.
"""

from __future__ import annotations

import itertools
import os
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

BASE = """
 .pushsection .stapsdt.base,"aG","progbits",.stapsdt.base,comdat
 .weak _.stapsdt.base
 .hidden _.stapsdt.base
_.stapsdt.base: .space 1
 .size _.stapsdt.base,1
 .popsection
"""
SEMAPHORE = """
 .section .probes,"aw",@progbits
 .balign 2
 .type sem,@object
 .size sem,2
sem: .2byte 0
"""
_NUMBERS = itertools.count()


def note(
    operands: str = "-4@%edi",
    *,
    site: str = ".Lsite0",
    base: str = "_.stapsdt.base",
    semaphore: str = "0",
    provider: str = "pv",
    probe: str = "p0",
    owner: str = "stapsdt",
    kind: int = 3,
    owner_size: int = 0,
    section: str = '.note.stapsdt,"","note"',
    address: str = ".8byte",
) -> str:
    """Return the assembly of one SDT note."""
    n = next(_NUMBERS)
    size = owner_size or f".Lname_end{n}-.Lname{n}"
    return f"""
 .pushsection {section}
 .balign 4
 .4byte {size}, .Lend{n}-.Ldesc{n}, {kind}
.Lname{n}: .asciz "{owner}"
.Lname_end{n}: .balign 4
.Ldesc{n}: {address} {site}, {base}, {semaphore}
 .asciz "{provider}"
 .asciz "{probe}"
 .asciz "{operands}"
.Lend{n}: .balign 4
 .popsection
"""


def main_function(sites: tuple[str, ...]) -> str:
    """Return a program that passes its sites in turn and ends with 0; the registers hold 5 (di) and 7 (si)."""
    body = "\n".join(f" mov $5,%edi\n mov $7,%esi\n.Lsite{i}: {code}" for i, code in enumerate(sites))
    return f"""
 .text
 .globl main
 .type main,@function
main:
 push %rbp
 mov %rsp,%rbp
 movl $9,-4(%rbp)
{body}
 xor %eax,%eax
 pop %rbp
 ret
 .size main,.-main
"""


@pytest.fixture(name="note")
def _note() -> Callable[..., str]:
    """The assembly of one SDT note."""
    return note


@pytest.fixture
def semaphore_section() -> str:
    """A semaphore `sem`, as sys/sdt.h defines one."""
    return SEMAPHORE


@pytest.fixture
def program(tmp_path: Path, run: Any) -> Callable[..., Path]:
    """Build an executable (or with `flags` something else) from notes and more assembly."""

    def build(
        *parts: str,
        sites: tuple[str, ...] = ("nop",),
        base: str = BASE,
        flags: tuple[str, ...] = (),
        linker: str = "bfd",
        name: str = "",
        compiler: str = "gcc",
    ) -> Path:
        target = tmp_path / (name or f"program{next(_NUMBERS)}")
        source = target.with_name(target.name + ".s")
        source.write_text(main_function(sites) + "".join(parts) + base + '\n .section .note.GNU-stack,"",@progbits\n')
        run(compiler, source, "-o", target, *([] if "-c" in flags else [f"-fuse-ld={linker}"]), *flags)
        return target

    return build


@pytest.fixture
def foreign(tmp_path: Path, run: Any, need: Callable[[str], str]) -> Callable[..., Path]:
    """Assemble, and unless told otherwise link, for another machine; clang and lld know them all.

    Code that doesn't say so is that of `_start`; the section that records count from is added.
    """

    def build(target: str, source: str, *, link: tuple[str, ...] | None = ()) -> Path:
        assembly, made, linked = (tmp_path / f"{target}.{suffix}" for suffix in ("s", "o", "bin"))
        start = "" if "_start:" in source else " .text\n .globl _start\n_start:\n"
        base = '\n .section .stapsdt.base,"a",%progbits\n_.stapsdt.base: .byte 0\n'
        assembly.write_text(start + source + base)
        run(need("clang"), f"--target={target}", "-c", assembly, "-o", made)
        if link is None:
            return made
        run(need("ld.lld"), *link, made, "-o", linked)
        return linked

    return build


SDT_PROGRAM = r"""
#define _SDT_HAS_SEMAPHORES 1
#include <sys/sdt.h>
#include <stdio.h>
#include <dlfcn.h>
__extension__ unsigned short app_guarded_semaphore __attribute__((section(".probes"), visibility("hidden")));
__extension__ unsigned short app_start_semaphore __attribute__((section(".probes"), visibility("hidden")));
struct pair { long first; short second; };
__attribute__((noinline)) int work(int number, const char *text, struct pair *pair)
{
    STAP_PROBE3(app, start, number, text, pair->second);
    if (app_guarded_semaphore)
        STAP_PROBE2(app, guarded, (unsigned char)number, pair->first);
    return number + 1;
}
static __attribute__((noinline)) int inner(int number) { STAP_PROBE1(app, start, number); return number; }
#ifdef MAIN
int main(int argc, char **argv)
{
    struct pair pair = { 1, 2 };
    if (argc > 1 && !dlopen(argv[1], RTLD_NOW)) { puts(dlerror()); return 1; }
    int done = work(argc, argv[0], &pair) + inner(argc);
    puts("ready");
    fflush(stdout);
    return getchar() == 'q' ? 0 : done;
}
#else
int module(int number) { struct pair pair = { 1, 2 }; return work(number, "", &pair) + inner(number); }
#endif
"""


@pytest.fixture(scope="session")
def sdt_program(tmp_path_factory: pytest.TempPathFactory, run: Any) -> Callable[..., Path]:
    """Build a program, or with `-shared` a module, that uses SystemTap's sys/sdt.h, with semaphores."""
    if not any(Path(folder, "sys/sdt.h").exists() for folder in _include_folders()):
        pytest.skip("sys/sdt.h is not installed (systemtap-sdt-dev)")
    made: dict[tuple[str, ...], Path] = {}

    def build(*flags: str) -> Path:
        if flags not in made:
            folder = tmp_path_factory.mktemp("sdt")
            source = folder / "app.c"
            source.write_text(SDT_PROGRAM)
            what = () if {"-shared", "-c"} & set(flags) else ("-DMAIN",)
            made[flags] = folder / ("app.o" if "-c" in flags else "app")
            run("gcc", "-O2", *what, source, "-o", made[flags], *flags)
        return made[flags]

    return build


def _include_folders() -> list[Path]:
    return [Path("/usr/include"), Path("/usr/local/include"), *Path("/usr/include").glob("*-linux-gnu*")]


_READELF_NOTE = re.compile(
    r"Provider: (.*)\n\s*Name: (.*)\n\s*Location: (\w+), Base: (\w+), Semaphore: (\w+)\n\s*Arguments:(.*)"
)


class Readelf:
    """What `readelf -nW` says of the SDT notes of a file, each as (provider, name, pc, base, semaphore, arguments)."""

    def __init__(self, text: str) -> None:
        self.notes: list[tuple[str, str, int, int, int, str]] = []
        for provider, name, pc, base, semaphore, arguments in _READELF_NOTE.findall(text):
            self.notes.append((provider, name, int(pc, 16), int(base, 16), int(semaphore, 16), arguments.strip()))


@pytest.fixture
def readelf(run: Any) -> Callable[[Path], Readelf]:
    """Return binutils' view of a file's SDT notes."""
    return lambda path: Readelf(run("readelf", "-nW", path).stdout)


@pytest.fixture(scope="session")
def other_user(run: Any, need: Callable[[str], str]) -> tuple[str, ...]:
    """A command prefix that runs as a user without rights who can import this checkout; skips where there is none."""
    if os.geteuid() != 0:
        pytest.skip("only root may become another user")
    prefix = (need("setpriv"), "--reuid=65534", "--regid=65534", "--clear-groups")
    if run(*prefix, sys.executable, "-c", "import usdtbuild.cli", code=None, cwd="/").returncode:
        pytest.skip("another user can't read this checkout")
    return prefix


class PerfProbes:
    """Adds probes of files to perf's events, and takes them away again.

    perf adds no event of a name that any other event has, whatever its provider: names are unique, too.
    """

    def __init__(self, perf: str, folder: Path, run: Any) -> None:
        self.perf, self.folder, self.run = perf, folder, run
        self.providers: list[str] = []
        self.said = ""  # what perf said last

    def provider(self) -> str:
        """Return a provider's name that no other test has; names of its probes must begin with it."""
        self.providers.append(f"v{os.getpid()}x{next(_NUMBERS)}")
        return self.providers[-1]

    def add(self, path: Path, probe: str) -> str:
        """Let perf add a probe of the last provider; return the event's definition, '' if perf can't."""
        options = (self.perf, "--buildid-dir", self.folder / self.providers[-1])
        self.run(*options, "buildid-cache", "--add", path, code=None)
        self.said = self.run(*options, "probe", f"sdt_{self.providers[-1]}:{probe}", code=None).stderr
        return next((line for line in self._events() if f"sdt_{self.providers[-1]}/{probe} " in line), "")

    def _events(self) -> list[str]:
        lines = Path("/sys/kernel/tracing/uprobe_events").read_text().splitlines()
        return [line for line in lines if any(f"sdt_{provider}/" in line for provider in self.providers)]

    def remove(self) -> None:
        """Take away what was added; another perf at work may make that fail for a moment."""
        for _ in range(20):
            if not self._events():
                return
            for provider in self.providers:
                self.run(self.perf, "probe", "-d", f"sdt_{provider}:*", code=None)
        raise AssertionError(f"perf's events can't be removed: {self._events()}")


@pytest.fixture
def perf_probes(perf: str, tmp_path: Path, run: Any) -> Iterator[PerfProbes]:
    """Probes for perf, gone after the test."""
    probes = PerfProbes(perf, tmp_path, run)
    try:
        yield probes
    finally:
        probes.remove()
