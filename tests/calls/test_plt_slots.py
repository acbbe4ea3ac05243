"""PowerPC programs whose code loads slots itself, or whose stubs are written at run time: every call is seen, once.

gcc's -fno-plt loads slots on ppc64le and ppc; on ppc64 assembly does it, in a way that no pattern knows. The truth is
the program's source, and what it prints. How slots hold what they hold when a tracer comes is up to `Held`: a stub's
client that lets the program run to its middle, fills slots by hand, and then hands the connection over.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import select
import shutil
import socket
import struct
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from elftools.elf.elffile import ELFFile

HERE = Path(__file__).parent
SIGUSR1 = 30  # as the gdb remote protocol counts


class Machine(NamedTuple):
    """A machine: its compiler's prefix, its emulator, options that make calls load slots, and the call by hand."""

    prefix: str
    emulator: str
    options: tuple[str, ...] = ()
    assembly: str = ""
    frame: int = 0  # where r2 is kept


_BY_HAND = """
\tmflr 0
\tstd 0,16(1)
\tstdu 1,-112(1)
\tstd 2,{frame}(1)
\taddis 10,2,{name}@plt@ha
\taddi 10,10,{name}@plt@l
\tli 12,0
\tldx 12,10,12
{toc}\tmtctr 12
\tbctrl
\tld 2,{frame}(1)
\taddi 1,1,112
\tld 0,16(1)
\tmtlr 0
\tblr
"""
_V1 = """
\t.section ".opd","aw"
\t.align 3
\t.globl call_{name}
\t.type call_{name},@function
call_{name}: .quad .Lcall_{name},.TOC.@tocbase,0
\t.text
.Lcall_{name}:
"""
_V2 = """
\t.text
\t.globl call_{name}
\t.type call_{name},@function
call_{name}:
0:\taddis 2,12,.TOC.-0b@ha
\taddi 2,2,.TOC.-0b@l
\t.localentry call_{name},.-call_{name}
"""
MACHINES = {
    "ppc64": Machine("powerpc64-linux-gnu", "qemu-ppc64", (), _V1 + _BY_HAND, 40),
    "ppc64le": Machine("powerpc64le-linux-gnu", "qemu-ppc64le", ("-fno-plt",), _V2 + _BY_HAND, 24),
    "ppc": Machine("powerpc-linux-gnu", "qemu-ppc", ("-msecure-plt", "-fno-plt")),
    "ppc bss": Machine("powerpc-linux-gnu", "qemu-ppc", ("-mbss-plt", "-Wl,--bss-plt")),
}
WITH_WORDS = [name for name in MACHINES if name != "ppc bss"]  # their slots are words


def expected(times: int = 3, *, library: bool = True) -> list[str]:
    """What `all` of the program calls, as lines of a trace; with `library` also what the library itself calls."""
    found = []
    for first, count in ((100, 5), (200, times)):
        for n in range(first, first + count):
            found += [f"own_early arg1={n:#x}", f"own_filled arg1={n:#x}", f"own_late arg1={n:#x}"]
        again = [f"own_{name} arg1={n:#x}" for n in (2, 1, 0) for name in ("turn", "again")] if library else []
        others = [f"own_{name} arg1={first:#x}" for name in ("late", "early")] if library else []
        found += ["own_again arg1=0x3", *again, f"own_outer arg1={first:#x}", *others]
    return found


EARLY = ["own_early arg1=0x1", "own_early arg1=0x2"]


@pytest.fixture(scope="module")
def built(run: Any, tmp_path_factory: pytest.TempPathFactory, cross: Any) -> Any:
    """Return a function that builds the program for a machine, with options for the linker, beside its library."""

    def make(name: str, *options: str, by_hand: bool = True) -> Path:
        machine, folder = MACHINES[name], tmp_path_factory.mktemp("slots")
        compiler = [cross(machine.prefix, machine.emulator), "-O1", "-w", *machine.options]
        sources = [HERE / "slots.c"]
        if machine.assembly and by_hand:
            toc = "\tld 2,8(10)\n" if name == "ppc64" else ""
            text = "".join(
                machine.assembly.format(name=f"own_{one}", frame=machine.frame, toc=toc)
                for one in ("early", "filled", "late")
            )
            (folder / "by_hand.s").write_text(text + '\t.section .note.GNU-stack,"",@progbits\n')
            sources += [folder / "by_hand.s"]
            compiler.append("-DBY_HAND")
        library = [*compiler, "-shared", "-fPIC", "-Wl,-soname,libown.so", HERE / "slots_library.c"]
        run(*library, "-o", "libown.so", cwd=folder)
        rest = ["libown.so", "-Wl,-rpath,$ORIGIN", *options, "-o", "program"]
        run(*compiler, "-Wl,-z,lazy", *sources, *rest, cwd=folder)
        return folder / "program"

    return make


def calls_in(output: str) -> list[str]:
    """Return the calls of the library in a trace's lines, without times and other registers."""
    return re.findall(r"(own_\w+ arg1=\w+)", output)


def trace(usdtbuild: Any, name: str, program: Path, *options: Any, env: Any = None) -> Any:
    machine = MACHINES[name]
    words = ["trace", "--emulator", machine.emulator, "--sysroot", f"/usr/{machine.prefix}", "-v", "-L", "own_*"]
    return usdtbuild(*words, *options, "--", program, env=env)


def printed(name: str, program: Path, *arguments: str) -> list[str]:
    """Return the lines that the program prints by itself."""
    machine = MACHINES[name]
    words: list[str | Path] = [machine.emulator, "-L", f"/usr/{machine.prefix}", program, *arguments]
    return subprocess.run(words, capture_output=True, text=True, check=True, timeout=60).stdout.split()


def without_section_headers(path: Path) -> None:
    data = bytearray(path.read_bytes())
    start, size, count = (0x28, 8, 0x3A) if data[4] == 2 else (0x20, 4, 0x2E)
    data[start : start + size] = bytes(size)
    data[count : count + 6] = bytes(6)
    path.write_bytes(data)


@pytest.mark.parametrize("form", ["lazy", "bare", pytest.param("fixed", marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", MACHINES)
def test_every_call_is_seen(name: str, form: str, built: Any, usdtbuild: Any) -> None:
    """Recursion and calls between libraries too; from files that hold nothing but what they need to run."""
    options = {"bare": ("-s",), "fixed": ("-no-pie", "-fno-pie")}.get(form, ())
    program = built(name, *options)
    if form == "bare":
        without_section_headers(program)
        without_section_headers(program.with_name("libown.so"))
    wanted = printed(name, program)
    done = trace(usdtbuild, name, program)
    assert calls_in(done.stdout) == EARLY + expected(), done.stderr
    assert [line for line in done.stdout.splitlines() if line.isdigit()] == wanted


@pytest.mark.parametrize("name", WITH_WORDS)
def test_what_is_bound_at_the_start_is_looked_for_in_the_code(name: str, built: Any, usdtbuild: Any) -> None:
    """By the file or by the environment: PLT entries must not be run then, since nobody told them where to ask."""
    program = built(name, by_hand=False)
    options = ("-fno-plt",) if name == "ppc64" else ()  # its words are descriptors' addresses, bound in any case
    for path in (program, built(name, "-Wl,-z,now", *options, by_hand=False)):
        environment = {**os.environ, "LD_BIND_NOW": "1"} if path == program else None
        done = trace(usdtbuild, name, path, "--module", "program", env=environment)
        assert "not traced" not in done.stderr
        assert calls_in(done.stdout) == EARLY + expected(library=False), done.stderr


@pytest.mark.parametrize("name", [name for name in MACHINES if MACHINES[name].assembly])
def test_what_no_pattern_knows_and_is_bound_at_the_start_is_said(name: str, built: Any, usdtbuild: Any) -> None:
    done = trace(usdtbuild, name, built(name, "-Wl,-z,now"), "--module", "program")
    refused = re.findall(r"not traced: (own_\w+): its calls were bound at the start", done.stderr)
    assert sorted(refused) == ["own_early", "own_filled", "own_late"]
    assert {one.split()[0] for one in calls_in(done.stdout)} == {"own_again", "own_outer"}


LOADER = r"""
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
int main(int argc, char **argv)
{
	void *library = dlopen(argv[1], strcmp(argv[2], "now") ? RTLD_LAZY : RTLD_NOW);
	if (!library)
		return puts(dlerror());
	int sum = ((int (*)(int))dlsym(library, "own_outer"))(50) + ((int (*)(int))dlsym(library, "own_again"))(2);
	dlclose(library);
	printf("%d\n", sum);
	return 0;
}
"""


@pytest.mark.parametrize("mode", ["lazy", "now"])
@pytest.mark.parametrize("name", ["ppc64le", "ppc", "ppc bss"])
def test_library_that_is_opened_later(name: str, mode: str, built: Any, run: Any, usdtbuild: Any) -> None:
    """It is relocated only when the dynamic linker has told of it: its own first code says when."""
    library = built(name).with_name("libown.so")
    (library.parent / "loader.c").write_text(LOADER)
    run(f"{MACHINES[name].prefix}-gcc", "-w", "loader.c", "-o", "loader", cwd=library.parent)
    machine = MACHINES[name]
    words = ["trace", "--emulator", machine.emulator, "--sysroot", f"/usr/{machine.prefix}", "-v", "-L", "own_*"]
    done = usdtbuild(*words, "--", library.parent / "loader", library, mode)
    inner = [f"own_{one} arg1={n:#x}" for n in (1, 0) for one in ("turn", "again")]
    assert calls_in(done.stdout) == ["own_late arg1=0x32", "own_early arg1=0x32", *inner], done.stderr
    assert [line for line in done.stdout.splitlines() if line.isdigit()] == [str(47 + 51 * 7 + 5)]


@pytest.mark.parametrize("name", ["ppc64le", "ppc"])
def test_call_sites_are_those_that_the_compiler_marks(name: str, built: Any, run: Any, usdtbuild: Any) -> None:
    """R_PPC(64)_PLTCALL stands at each branch, with the function's name, where the linker keeps relocations."""
    program = built(name, "-Wl,-q", by_hand=False)
    marked = re.findall(
        r"^([0-9a-f]+) .* R_PPC(?:64)?_PLTCALL +[0-9a-f]+ +(\w+)",
        run(f"{MACHINES[name].prefix}-readelf", "-rW", program).stdout, re.MULTILINE,
    )  # fmt: skip
    (file,) = json.loads(usdtbuild("calls", "--json", program).stdout)["files"]
    sites = {
        int(site["address"], 16): call["name"]
        for call in file["calls"] for site in call["sites"] if site["through"] == "slot"
    }  # fmt: skip
    truth = {int(address, 16): function for address, function in marked}
    assert len(truth) >= 10
    assert {address: sites.get(address) for address in truth} == truth


@pytest.mark.parametrize("name", MACHINES)
def test_program_goes_on_when_the_trace_has_seen_enough(name: str, built: Any, usdtbuild: Any) -> None:
    """It is let go while slots that nobody has called yet still lead to their PLT entries."""
    program = built(name, "-s")
    done = trace(usdtbuild, name, program, "--limit", "2")
    assert calls_in(done.stdout)[:2] == EARLY, done.stderr
    assert [line for line in done.stdout.splitlines() if line.isdigit()] == printed(name, program)


class Held:
    """A program under an emulator that has run to its middle; its stub is handed over to the next who connects.

    In between and when the tracer detaches, memory can be read and written.
    """

    def __init__(self, name: str, program: Path, times: str) -> None:
        machine = MACHINES[name]
        self.folder = Path(tempfile.mkdtemp(prefix="usdtbuild-", dir="/tmp"))  # names of sockets are short
        self.path = self.folder / "tracer"
        stub = self.folder / "stub"
        words: list[str | Path] = [machine.emulator, "-L", f"/usr/{machine.prefix}", "-g", stub, program, times, "held"]
        self.stub = socket.socket(socket.AF_UNIX)
        self.process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
        self.little, self.word = name == "ppc64le", 4 if name.startswith("ppc ") or name == "ppc" else 8
        self.unread = b""
        self.at_detach: Any = lambda: None
        self.listener = socket.socket(socket.AF_UNIX)
        self.thread = threading.Thread(target=self._serve)

    def run(self) -> None:
        """Let the program run to its middle."""
        self.stub = self._connect()
        self.listener.bind(str(self.path))
        self.listener.listen()
        assert self.ask("qSupported").startswith("PacketSize")
        while not (said := self.ask("c")).startswith(f"T{SIGUSR1:02x}"):
            assert said.startswith("T05"), said
        self.thread.start()

    def _connect(self) -> socket.socket:
        self.stub.close()
        for _ in range(3000):
            connection = socket.socket(socket.AF_UNIX)
            with contextlib.suppress(OSError):
                connection.connect(str(self.folder / "stub"))
                connection.settimeout(60)
                return connection
            connection.close()
            assert self.process.poll() is None
            time.sleep(0.01)
        pytest.fail("the emulator doesn't listen")

    def ask(self, text: str) -> str:
        self.stub.sendall(f"${text}#{sum(text.encode()) & 255:02x}".encode())
        while True:
            while (found := re.search(rb"\$([^#]*)#..", self.unread)) is None:
                piece = self.stub.recv(65536)
                assert piece
                self.unread += piece
            self.unread = self.unread[found.end() :]
            self.stub.sendall(b"+")
            if text == "c" or not re.match(rb"T\w\w", found[1]):  # a stop that is told twice, which an interrupt does
                return found[1].decode()

    def read(self, address: int, count: int = 1) -> tuple[int, ...]:
        raw = bytes.fromhex(self.ask(f"m{address:x},{count * self.word:x}"))
        return struct.unpack(f"{'<' if self.little else '>'}{count}{'Q' if self.word == 8 else 'I'}", raw)

    def write(self, address: int, *words: int) -> None:
        raw = struct.pack(f"{'<' if self.little else '>'}{len(words)}{'Q' if self.word == 8 else 'I'}", *words)
        assert self.ask(f"M{address:x},{len(raw):x}:{raw.hex()}") == "OK"

    def _serve(self) -> None:
        """Pass on what both say; when the tracer lets go, look first."""
        tracer, _ = self.listener.accept()
        with tracer:
            while ready := select.select([tracer, self.stub], [], [], 60)[0]:
                for one in ready:
                    other = self.stub if one is tracer else tracer
                    piece = b""
                    with contextlib.suppress(OSError):
                        piece = one.recv(65536)
                    if not piece:
                        with contextlib.suppress(OSError):
                            self.stub.shutdown(socket.SHUT_RDWR)  # or it waits to be told of the program's end
                        return
                    detach = re.search(rb"\$D[;#]", piece) if one is tracer else None
                    if detach:
                        self.stub.sendall(piece[: detach.start()])  # the acknowledgement of what was said before
                        piece = piece[detach.start() :]
                        self.at_detach()
                    with contextlib.suppress(OSError):
                        other.sendall(piece)

    def output(self) -> list[str]:
        """Wait for the program's end; return what it printed."""
        return self.process.communicate(timeout=120)[0].split()

    def close(self) -> None:
        self.process.kill()
        self.process.communicate()
        if self.thread.is_alive():
            with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as nobody:
                nobody.connect(str(self.path))  # it may still wait for a tracer
            self.thread.join(90)
        self.stub.close()
        self.listener.close()
        shutil.rmtree(self.folder)


class Layout:
    """Where the slots of a program at a fixed address are, and what its library's functions make of them."""

    def __init__(self, name: str, program: Path, usdtbuild: Any) -> None:
        (file,) = json.loads(usdtbuild("calls", "--json", program).stdout)["files"]
        self.slots = {call["name"]: int(call["slot"], 16) for call in file["calls"] if call["kind"] == "lazy"}
        self.code, self.words = {}, 3 if name == "ppc64" else 1
        with program.with_name("libown.so").open("rb") as opened:
            elf: Any = ELFFile(opened)
            symbols = {one.name: one["st_value"] for one in elf.get_section_by_name(".dynsym").iter_symbols()}
            dynamic = elf.get_section_by_name(".rela.dyn").iter_relocations()
            relative = {one["r_offset"]: one["r_addend"] for one in dynamic}
        for function in [one for one in self.slots if symbols.get(one)]:
            value = symbols[function]
            self.code[function] = relative[value] if name == "ppc64" else value  # a descriptor's first word

    def filled(self, held: Held, function: str) -> tuple[int, ...]:
        """Return what a function's slot holds once it is filled, by what own_early's does."""
        code, *rest = held.read(self.slots["own_early"], self.words)
        return (code - self.code["own_early"] + self.code[function], *rest)


@pytest.fixture
def held(built: Any) -> Iterator[Any]:
    """Return a function that holds a program in its middle."""
    made: list[Held] = []

    def make(name: str, times: str) -> tuple[Held, Path]:
        program = built(name, "-no-pie", "-fno-pie")
        made.append(Held(name, program, times))
        made[-1].run()
        return made[-1], program

    yield make
    for one in made:
        if one.folder.exists():
            one.close()


def attach(usdtbuild: Any, name: str, held: Held, program: Path, *options: Any) -> Any:
    words = ["trace", "--remote", held.path, "--sysroot", f"/usr/{MACHINES[name].prefix}", "-v", "-L", "own_*"]
    return usdtbuild(*words, *options, "--", program)


@pytest.mark.parametrize("name", WITH_WORDS)
def test_slots_are_in_every_state_when_the_tracer_comes(name: str, held: Any, usdtbuild: Any) -> None:
    """One filled by a call, one as a prelinked file has it, one that nobody has called yet: all calls are seen."""
    program_held, program = held(name, "3")
    layout = Layout(name, program, usdtbuild)
    early, late = (program_held.read(layout.slots[one])[0] for one in ("own_early", "own_late"))
    assert early != late
    program_held.write(layout.slots["own_filled"], *layout.filled(program_held, "own_filled"))
    done = attach(usdtbuild, name, program_held, program)
    assert calls_in(done.stdout) == expected(), done.stderr
    assert program_held.output() == printed(name, program)


def test_slot_that_is_filled_in_the_file(held: Any, usdtbuild: Any) -> None:
    """A prelinked file, made by hand. On ppc64 the slots wouldn't stay: glibc leads all to their PLT entries first."""
    program_held, program = held("ppc", "3")
    layout = Layout("ppc", program, usdtbuild)
    (address,) = layout.filled(program_held, "own_filled")
    program_held.close()
    with program.open("rb") as file:
        at = next(ELFFile(file).address_offsets(layout.slots["own_filled"]))
    data, wanted = bytearray(program.read_bytes()), printed("ppc", program)
    data[at : at + 4] = address.to_bytes(4, "big")
    program.write_bytes(data)
    words = [MACHINES["ppc"].emulator, "-L", f"/usr/{MACHINES['ppc'].prefix}", program]
    if subprocess.run(words, capture_output=True, text=True, check=False, timeout=60).stdout.split() != wanted:
        pytest.skip("this emulator puts libraries elsewhere each time")
    done = trace(usdtbuild, "ppc", program)
    assert calls_in(done.stdout) == EARLY + expected(), done.stderr
    assert [line for line in done.stdout.splitlines() if line.isdigit()] == wanted


@pytest.mark.parametrize("name", WITH_WORDS)
def test_slots_hold_what_they_would_when_the_tracer_has_gone(name: str, held: Any, usdtbuild: Any) -> None:
    times = "300000"
    program_held, program = held(name, times)
    layout, seen = Layout(name, program, usdtbuild), {}
    names = ("own_early", "own_filled", "own_late")
    wanted = {one: layout.filled(program_held, one) for one in names}

    def look() -> None:
        seen.update({one: program_held.read(layout.slots[one], layout.words) for one in names})

    program_held.at_detach = look
    done = attach(usdtbuild, name, program_held, program, "--limit", "40")
    assert calls_in(done.stdout)[:15] == expected()[:15], done.stderr
    assert seen == wanted
    assert program_held.output() == printed(name, program, times)
