"""Building and running the corpus for every machine: targets, the reference build, links, runs under qemu-user, gdb.

A target is a machine in one of its kinds (instruction set, ABI, byte order), with the compilers and linkers that know
it. Nothing here needs a C library of the target: platform.c makes its own system calls. For each target there is one
reference build, in which the stubs are functions that print their arguments: what it prints is what a tracer must see
at the sites of the instrumented builds, one after the other, and the rest is what they must compute.
"""

from __future__ import annotations

import functools
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import capstone
import pytest
from elftools.elf.elffile import ELFFile

# For a corpus whose probes are calls that may be made.
BY_CALL = "USDT_PROBES_BY_CALL"
HERE = Path(__file__).parent
USDTBUILD = (sys.executable, "-m", "usdtbuild")


class Target(NamedTuple):
    """One kind of machine.

    `gcc` and `clang` are how to compile for it, as a command line, or '' where that compiler doesn't know it. `qemu`
    is how to run it, '' where qemu's user mode can't. `prefix` is that of its GNU tools, `linkers` those that know the
    machine, `emulation` what GNU linkers take for -m, `options` what else they need. `no_pic` is what compiles for
    fixed addresses. `libgcc` says whether gcc's own library is there in this kind of code, `gdb` whether gdb knows the
    machine, `sdt` whether it reads SDT operands there. `llvm19` are LLVM's programs that don't know it before 19.
    `mnemonics` are what stands at a site, as `capstone`, named by its constants, or else LLVM's objdump calls it.
    """

    gcc: str
    clang: str
    qemu: str
    prefix: str
    linkers: tuple[str, ...]
    emulation: str = ""
    options: tuple[str, ...] = ()
    no_pic: str = "-fno-pic"
    libgcc: bool = True
    gdb: bool = True
    sdt: bool = False
    llvm19: str = ""
    capstone: str = ""
    mnemonics: str = "nop"


ALL = ("bfd", "gold", "lld", "mold")
TARGETS = {
    "x86-64": Target(
        "gcc", "clang --target=x86_64-linux-gnu", "qemu-x86_64", "", ALL, "elf_x86_64", sdt=True, capstone="X86 64",
    ),
    "i386": Target(
        "i686-linux-gnu-gcc", "clang --target=i686-linux-gnu", "qemu-i386", "i686-linux-gnu-", ALL, "elf_i386",
        sdt=True, capstone="X86 32",
    ),
    "x32": Target(
        "x86_64-linux-gnux32-gcc", "clang --target=x86_64-linux-gnux32", "", "x86_64-linux-gnux32-",
        ("bfd", "gold", "lld"), "elf32_x86_64", capstone="X86 64",
    ),
    "aarch64": Target(
        "aarch64-linux-gnu-gcc", "clang --target=aarch64-linux-gnu", "qemu-aarch64", "aarch64-linux-gnu-", ALL,
        "aarch64linux", sdt=True, capstone="ARM64 ARM", mnemonics="nop ret",
    ),
    "aarch64_be": Target(
        "aarch64-linux-gnu-gcc -mbig-endian", "clang --target=aarch64_be-linux-gnu", "qemu-aarch64_be",
        "aarch64-linux-gnu-", ("bfd", "lld"), "aarch64linuxb", libgcc=False, sdt=True, llvm19="ld.lld",
        capstone="ARM64 ARM", mnemonics="nop ret",
    ),
    "aarch64 ilp32": Target(
        "aarch64-linux-gnu-gcc -mabi=ilp32", "", "", "aarch64-linux-gnu-", ("bfd",), "aarch64linux32", libgcc=False,
        capstone="ARM64 ARM", mnemonics="nop ret",
    ),
    "arm": Target(
        "arm-linux-gnueabi-gcc -marm", "clang --target=armv5-linux-gnueabi -marm", "qemu-arm", "arm-linux-gnueabi-",
        ALL, "armelf_linux_eabi", sdt=True, capstone="ARM ARM", mnemonics="mov bx",
    ),
    "thumb-2": Target(
        "arm-linux-gnueabihf-gcc -mthumb", "clang --target=armv7-linux-gnueabihf -mthumb", "qemu-arm",
        "arm-linux-gnueabihf-", ALL, "armelf_linux_eabi", sdt=True, capstone="ARM THUMB", mnemonics="mov bx",
    ),
    "thumb-1": Target(
        "arm-linux-gnueabi-gcc -mthumb -march=armv5te", "clang --target=armv5te-linux-gnueabi -mthumb", "qemu-arm",
        "arm-linux-gnueabi-", ALL, "armelf_linux_eabi", sdt=True, capstone="ARM THUMB", mnemonics="mov bx",
    ),
    "armeb": Target(
        "arm-linux-gnueabihf-gcc -marm -mbig-endian", "clang --target=armebv7-linux-gnueabihf", "qemu-armeb",
        "arm-linux-gnueabihf-", ("bfd",), "armelfb_linux_eabi", ("--be8",), libgcc=False, sdt=True,
        capstone="ARM ARM", mnemonics="mov bx",
    ),
    "ppc32": Target(
        "powerpc-linux-gnu-gcc", "clang --target=powerpc-linux-gnu", "qemu-ppc", "powerpc-linux-gnu-",
        ("bfd", "gold", "lld"), "elf32ppclinux", sdt=True, capstone="PPC 32 BIG_ENDIAN", mnemonics="nop blr",
    ),
    "ppc64": Target(
        "powerpc64-linux-gnu-gcc", "clang --target=powerpc64-linux-gnu", "qemu-ppc64", "powerpc64-linux-gnu-",
        ("bfd", "gold", "mold"), "elf64ppc", sdt=True, capstone="PPC 64 BIG_ENDIAN", mnemonics="nop blr",
    ),
    "ppc64 elfv2": Target(
        "powerpc64-linux-gnu-gcc -mabi=elfv2", "clang --target=powerpc64-linux-gnu -mabi=elfv2", "qemu-ppc64",
        "powerpc64-linux-gnu-", ("bfd", "lld"), "elf64ppc", libgcc=False, sdt=True, capstone="PPC 64 BIG_ENDIAN",
        mnemonics="nop blr",
    ),
    "ppc64le": Target(
        "powerpc64le-linux-gnu-gcc", "clang --target=powerpc64le-linux-gnu", "qemu-ppc64le",
        "powerpc64le-linux-gnu-", ALL, "elf64lppc", sdt=True, capstone="PPC 64", mnemonics="nop blr",
    ),
    "power10": Target(
        "powerpc64le-linux-gnu-gcc -mcpu=power10", "clang --target=powerpc64le-linux-gnu -mcpu=pwr10",
        "qemu-ppc64le -cpu power10", "powerpc64le-linux-gnu-", ("bfd", "gold", "lld"), "elf64lppc", sdt=True,
        capstone="PPC 64", mnemonics="nop blr",
    ),
    "s390x": Target(
        "s390x-linux-gnu-gcc", "clang --target=s390x-linux-gnu", "qemu-s390x", "s390x-linux-gnu-", ALL, "elf64_s390",
        sdt=True, llvm19="ld.lld", capstone="SYSZ BIG_ENDIAN", mnemonics="brcl bc bcr br",
    ),
    "riscv64": Target(
        "riscv64-linux-gnu-gcc", "clang --target=riscv64-linux-gnu", "qemu-riscv64", "riscv64-linux-gnu-",
        ("bfd", "lld", "mold"), "elf64lriscv", capstone="RISCV RISCV64 RISCVC",
    ),
    "riscv32": Target(
        "riscv64-linux-gnu-gcc -march=rv32gc -mabi=ilp32d", "clang --target=riscv32-linux-gnu -march=rv32gc",
        "qemu-riscv32", "riscv64-linux-gnu-", ("bfd", "lld", "mold"), "elf32lriscv", libgcc=False,
        capstone="RISCV RISCV32 RISCVC",
    ),
    "sparc64": Target(
        "sparc64-linux-gnu-gcc", "clang --target=sparc64-linux-gnu", "qemu-sparc64", "sparc64-linux-gnu-", ALL,
        "elf64_sparc", llvm19="ld.lld", capstone="SPARC V9 BIG_ENDIAN", mnemonics="nop ret jmp",
    ),
    "sparc": Target(
        "sparc64-linux-gnu-gcc -m32 -mcpu=v8", "clang --target=sparc-linux-gnu", "qemu-sparc", "sparc64-linux-gnu-",
        ("bfd",), "elf32_sparc", libgcc=False, capstone="SPARC BIG_ENDIAN", mnemonics="nop ret jmp",
    ),
    "mips": Target(
        "mips-linux-gnu-gcc", "clang --target=mips-linux-gnu", "qemu-mips", "mips-linux-gnu-",
        ("bfd", "gold", "lld"), "elf32btsmip", no_pic="-fno-pic -mno-abicalls -G0",
        capstone="MIPS MIPS32 BIG_ENDIAN", mnemonics="nop jr",
    ),
    "mipsel": Target(
        "mipsel-linux-gnu-gcc", "clang --target=mipsel-linux-gnu", "qemu-mipsel", "mipsel-linux-gnu-",
        ("bfd", "gold", "lld"), "elf32ltsmip", no_pic="-fno-pic -mno-abicalls -G0", capstone="MIPS MIPS32",
        mnemonics="nop jr",
    ),
    "mips r6": Target(
        "", "clang --target=mipsel-linux-gnu -mips32r6", "qemu-mipsel -cpu mips32r6-generic", "mipsel-linux-gnu-",
        ("bfd", "lld"), "elf32ltsmip", no_pic="-fno-pic -mno-abicalls -G0", libgcc=False, capstone="MIPS MIPS32R6",
        mnemonics="nop jr",
    ),
    "mips64": Target(
        "mips64-linux-gnuabi64-gcc", "clang --target=mips64-linux-gnuabi64", "qemu-mips64", "mips64-linux-gnuabi64-",
        ("bfd", "lld"), "elf64btsmip", no_pic="-fno-pic -mno-abicalls -G0", capstone="MIPS MIPS64 BIG_ENDIAN",
        mnemonics="nop jr",
    ),
    "mips64el": Target(
        "mips64el-linux-gnuabi64-gcc", "clang --target=mips64el-linux-gnuabi64", "qemu-mips64el",
        "mips64el-linux-gnuabi64-", ("bfd", "lld"), "elf64ltsmip", no_pic="-fno-pic -mno-abicalls -G0",
        capstone="MIPS MIPS64", mnemonics="nop jr",
    ),
    "mips n32": Target(
        "mips64el-linux-gnuabi64-gcc -mabi=n32", "clang --target=mips64el-linux-gnuabin32", "qemu-mipsn32el",
        "mips64el-linux-gnuabi64-", ("bfd", "lld"), "elf32ltsmipn32", no_pic="-fno-pic -mno-abicalls -G0",
        libgcc=False, capstone="MIPS MIPS64", mnemonics="nop jr",
    ),
    "loongarch64": Target(
        "", "clang --target=loongarch64-linux-gnu", "qemu-loongarch64", "", ("lld",), gdb=False,
        llvm19="clang ld.lld llvm-objdump", mnemonics="nop ret",
    ),
}  # fmt: skip


class Event(NamedTuple):
    """A probe that fired: its name and its arguments, as unsigned 64-bit numbers, or a text."""

    probe: str
    values: tuple[int | str, ...]


class Site(NamedTuple):
    """One record of a linked program: probe, address, operands taken apart, address of the semaphore or 0."""

    probe: str
    address: int
    operands: tuple[Any, ...]
    semaphore: int


class Build(NamedTuple):
    """One way to compile the corpus: which compiler, with which flags."""

    compiler: str
    flags: str

    @property
    def stem(self) -> str:
        """A file name."""
        return re.sub(r"[^\w.]+", "-", f"{self.compiler}-{self.flags}").strip("-")


def find(*names: str) -> str | None:
    """Return the first of some programs that is installed."""
    return next((path for path in map(shutil.which, names) if path), None)


@functools.cache
def compiles(*command: str) -> bool:
    """Tell whether a compiler knows the machine that its options name: clang may have been built without it."""
    with tempfile.TemporaryDirectory() as folder:
        words = [*command, "-x", "c", "-c", "-", "-o", f"{folder}/nothing.o"]
        return subprocess.run(words, input=b"int nothing;\n", capture_output=True, check=False).returncode == 0


@functools.cache
def of_llvm(name: str) -> dict[int, str]:
    """Return major version -> path of each of LLVM's programs of this name that is installed and runs."""
    found = {}
    for command in (name, *(f"{name}-{version}" for version in range(14, 30))):
        path = shutil.which(command)
        if not path:
            continue
        said = subprocess.run([path, "--version"], capture_output=True, text=True, check=False).stdout
        if version := re.search(r"(?:version|LLD) (\d+)\.", said):
            found[int(version[1])] = path
    return found


def newest_of_llvm(name: str, least: int = 0) -> str | None:
    """Return the newest of LLVM's programs of this name, of a version that is at least `least`; None if there is none.

    A linker isn't expected to know what a newer compiler writes, so that clang is the newest one that has an lld of its
    version or a newer one, as far as there is such a pair.
    """
    versions = [version for version in of_llvm(name) if version >= least]
    if name == "clang":
        newest_linker = max(of_llvm("ld.lld"), default=0)
        versions = [version for version in versions if version <= newest_linker] or versions
    return of_llvm(name)[max(versions)] if versions else None


class Workshop:
    """Everything about one target: where its files lie, and what can be done with them."""

    def __init__(self, name: str, folder: Path) -> None:
        """Make the header and the reference's source in `folder`."""
        self.name, self.target, self.folder = name, TARGETS[name], folder
        folder.mkdir(parents=True, exist_ok=True)
        for source in ("corpus.c", "links.c", "platform.c", "corpus.d"):
            shutil.copy(HERE / source, folder)
        self.call(*USDTBUILD, "header", "--formats=dof", "corpus.d", "-o", "corpus.h")
        (folder / "reference.c").write_text(reference_stubs((folder / "corpus.h").read_text()))

    def call(self, *command: Any, code: int = 0, **more: Any) -> str:
        """Run a command in the target's folder; return its output, or fail with all of it."""
        words = [str(word) for word in command]
        done = subprocess.run(
            words, cwd=self.folder, capture_output=True, text=True, timeout=120, check=False, **more
        )  # fmt: skip
        if done.returncode != code:
            pytest.fail(f"{self.name}: {' '.join(words)}\nexited with {done.returncode}\n{done.stdout}{done.stderr}")
        return done.stdout

    usdtbuild = USDTBUILD

    @property
    def mnemonics(self) -> list[str]:
        """What may stand at a site."""
        return self.target.mnemonics.split()

    @property
    def word(self) -> int:
        """Bytes in an address."""
        header = self.compile(Build(self.compilers()[0], "-O1 -fno-pic"), "platform.c").read_bytes()
        return 8 if header[4] == 2 else 4

    # -- compilers and linkers ---------------------------------------------------------------------------------------

    def compilers(self) -> list[str]:
        """Return which of gcc and clang know the target and are installed."""
        return [name for name in ("gcc", "clang") if self.compiler(name)]

    def compiler(self, name: str) -> list[str]:
        """Return a compiler's command, empty if there is none."""
        words = (self.target.gcc if name == "gcc" else self.target.clang).split()
        if not words:
            return []
        program = self.of_llvm("clang") if name == "clang" else find(words[0])
        # clang has no assembler of its own for SPARC up to version 16, and calls binutils'.
        assembles = "sparc" not in self.name or find(f"{self.target.prefix}as")
        command = [program, *words[1:]] if program and assembles else []
        return command if command and compiles(*command) else []

    def of_llvm(self, name: str) -> str | None:
        """Return the path of one of LLVM's programs, in a version that knows the target."""
        return newest_of_llvm(name, 19 if name in self.target.llvm19.split() else 0)

    def linkers(self) -> list[str]:
        """Return the linkers that know the target and are installed."""
        return [name for name in self.target.linkers if self.linker(name)]

    def own_linkers(self, compiler: str) -> list[str]:
        """Return the linkers that must take what a compiler writes: those that come with it, and are as new."""
        if compiler == "gcc":
            return [name for name in self.linkers() if name == "bfd"]
        versions: dict[str | None, int] = {
            path: number for name in ("clang", "ld.lld") for number, path in of_llvm(name).items()
        }
        pair = [versions.get(path, 0) for path in (self.of_llvm("clang"), self.of_llvm("ld.lld"))]
        return [name for name in self.linkers() if name == "lld" and pair[0] <= pair[1]]

    def linker(self, name: str) -> list[str]:
        """Return a linker's command, empty if there is none."""
        if name in {"lld", "mold"}:
            program = self.of_llvm("ld.lld") if name == "lld" else find("ld.mold")
            return [program] if program else []
        program = find(f"{self.target.prefix}ld.{name}")
        emulation = ["-m", self.target.emulation] if name == "bfd" else []
        return [program, *emulation] if program else []

    def compile(self, build: Build, source: str = "corpus.c", *defines: str) -> Path:
        """Compile a source; return the object. The same twice is compiled once."""
        output = self.folder / f"{build.stem}-{'-'.join((Path(source).stem, *defines))}.o"
        if not output.exists():
            flags = build.flags.replace("-fno-pic", self.target.no_pic).split()
            command = [*self.compiler(build.compiler), "-w", *flags, *(f"-D{name}" for name in defines)]
            self.call(*command, "-c", source, "-o", output)
        return output

    def instrument(self, objects: list[Path], *options: str) -> list[Path]:
        """Instrument objects, all by one command; return the new ones."""
        to = self.folder / "-".join(("instrumented", *options))
        to.mkdir(exist_ok=True)
        self.call(*USDTBUILD, "instrument", *options, "--output-dir", to, *objects)
        return [to / item.name for item in objects]

    def link(self, linker: str, objects: list[Path], name: str, *options: str) -> Path:
        """Link objects to a static program at fixed addresses."""
        output = self.folder / f"{name}.{linker}"
        command = [*self.linker(linker), *([] if linker == "mold" else ["-static"]), *self.target.options]
        self.call(*command, "-e", "_start", *options, *objects, *self.runtime(), "-o", output)
        return output

    def platform(self, build: Build) -> Path:
        """Return platform.c compiled for programs with a build's code."""
        flags = "-O1 -fPIC" if "-fPI" in build.flags else "-O1 -fno-pic"
        return self.compile(Build(build.compiler, flags), "platform.c")

    def try_link(self, linker: str, build: Build, instrumented: Path, name: str) -> Path | None:
        """Link an instrumented corpus; return None where that linker can't link the unprobed one either."""
        try:
            return self.link(linker, [instrumented, self.platform(build)], name)
        except pytest.fail.Exception:
            if not self.takes(linker, build):
                return None
            raise

    def takes(self, linker: str, build: Build) -> bool:
        """Tell whether a linker can link what a compiler writes, without probes."""
        stubs = self.compile(build, "reference.c", BY_CALL, "ENABLED=0")
        objects = [self.compile(build, "corpus.c", BY_CALL), self.platform(build), stubs]
        try:
            self.link(linker, objects, f"{build.stem}-unprobed")
        except pytest.fail.Exception:
            return False
        return True

    def runtime(self) -> list[str]:
        """Return the compiler's own library, for arithmetic that the machine hasn't got."""
        command = self.compiler("gcc")
        if not command or not self.target.libgcc:
            return []
        path = self.call(*command, "-print-libgcc-file-name").strip()
        return [path] if Path(path).exists() and f"{os.sep}usr" in path else []

    # -- what is right -----------------------------------------------------------------------------------------------

    def reference(self, enabled: int) -> tuple[list[Event], str]:
        """Return what must fire, and what must be computed; `enabled` is what is-enabled tests return."""
        compiler = self.compilers()[0]
        build = Build(compiler, "-O1 -fno-pic")
        name = f"reference{enabled}"
        objects = [self.compile(build, "corpus.c", BY_CALL), self.compile(build, "platform.c")]
        objects.append(self.compile(build, "reference.c", BY_CALL, f"ENABLED={enabled}"))
        linker = next((linker for linker in self.linkers() if self.takes(linker, build)), None)
        if linker is None:
            pytest.skip(f"no linker for what {compiler} writes for {self.name} is installed")
        lines = self.run(self.link(linker, objects, name)).splitlines(keepends=True)
        events = [event_of(line[2:].rstrip("\n")) for line in lines if line.startswith("> ")]
        return events, "".join(line for line in lines if not line.startswith("> "))

    def run(self, program: Path) -> str:
        """Run a program under qemu; return what it printed."""
        return self.call(*self.target.qemu.split(), program)

    # -- linked programs ---------------------------------------------------------------------------------------------

    def sites(self, program: Path) -> list[Site]:
        """Return the records of a program, addresses as in the file."""
        from usdtbuild.formats import operands, stapsdt

        with program.open("rb") as file:
            elf: Any = ELFFile(file)
            found = []
            word = elf.elfclass // 8
            base = elf.get_section_by_name(".stapsdt.base")["sh_addr"]
            data = elf.get_section_by_name(".note.stapsdt").data()
            for note in stapsdt.decode(data, word, little=elf.little_endian):
                assert note.base == base, f"{program}: base {note.base:#x}, section at {base:#x}"
                parsed = operands.parse(note.arguments, machine_number(elf))
                found.append(Site(note.name, note.pc, parsed, note.semaphore))
        return found

    def combine(self, linker: str, objects: list[Path], name: str) -> Path:
        """Link objects to one object."""
        output = self.folder / f"{name}.{linker}.o"
        self.call(*self.linker(linker), "-r", *objects, "-o", output)
        return output

    def share(self, linker: str, build: Build, instrumented: Path, name: str) -> Path | None:
        """Link a shared library; return None where that linker can't link one of the unprobed object either."""
        output = self.folder / f"{name}.{linker}.so"
        command = [*self.linker(linker), *self.target.options, "-shared"]
        try:
            self.call(*command, instrumented, "-o", output)
        except pytest.fail.Exception:
            stubs = self.compile(build, "reference.c", BY_CALL, "ENABLED=0")
            try:
                self.call(*command, self.compile(build, "corpus.c", BY_CALL), stubs, "-o", f"{output}.unprobed")
            except pytest.fail.Exception:
                return None
            raise
        return output

    def instructions(self, program: Path, addresses: list[int]) -> list[str]:
        """Return the mnemonic of the instruction at each address of a program."""
        if not self.target.capstone:
            return self.instructions_by_llvm(program, addresses)
        architecture, *modes = self.target.capstone.split()
        mode = sum(getattr(capstone, f"CS_MODE_{word}") for word in modes)
        decoder = capstone.Cs(getattr(capstone, f"CS_ARCH_{architecture}"), mode)
        with program.open("rb") as file:
            segments = [s for s in ELFFile(file).iter_segments("PT_LOAD") if s["p_flags"] & 1]
            found = []
            for address in addresses:
                (segment,) = (s for s in segments if s["p_vaddr"] <= address < s["p_vaddr"] + s["p_filesz"])
                code = segment.data()[address - segment["p_vaddr"] :][:16]
                found.append(next(decoder.disasm(code, address)).mnemonic)
        return found

    def instructions_by_llvm(self, program: Path, addresses: list[int]) -> list[str]:
        """Do the same for machines that capstone doesn't know."""
        objdump = self.of_llvm("llvm-objdump")
        lines = self.call(objdump, "-d", "--no-show-raw-insn", program).splitlines()
        by_address = {}
        for line in lines:
            if found := re.match(r"\s*([0-9a-f]+):\s+(\S+)", line):
                by_address[int(found[1], 16)] = found[2]
        return [by_address[address] for address in addresses]

    def watch(self, program: Path) -> list[tuple[Event, Event | None]]:
        """Run a program with a breakpoint at every site and all semaphores raised; return what fired.

        That is, for each site that was passed, the values by the operands, and by gdb's own reading or None.
        """
        sites = self.sites(program)
        with program.open("rb") as file:
            elf: Any = ELFFile(file)
            word, order = elf.elfclass // 8, "little" if elf.little_endian else "big"
        plan: dict[str, Any] = {
            "remote": str(short_name("qemu")), "seen": f"{program}.seen", "word": word, "order": order,
            "semaphores": sorted({site.semaphore for site in sites} - {0}),
            "sites": [
                {
                    "probe": site.probe, "address": site.address, "text": site.probe == "text",
                    "operands": [operand_for_gdb(operand) for operand in site.operands],
                }
                for site in sites
            ],
        }  # fmt: skip
        socket = Path(plan["remote"])
        emulator = subprocess.Popen(
            [*self.target.qemu.split(), "-g", socket, program], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL
        )
        try:
            wait_for(socket, emulator)
            found = self.watch_with_gdb(program, plan) if self.target.gdb else Remote.watch(plan)
        finally:
            emulator.kill()
            emulator.communicate()
            socket.unlink(missing_ok=True)
            socket.parent.rmdir()
        return [
            (Event(probe, tuple(values)), Event(probe, tuple(own)) if None not in own else None)
            for probe, values, own in found
        ]

    def watch_with_gdb(self, program: Path, plan: dict[str, Any]) -> list[Any]:
        """Let gdb carry out the plan."""
        file, seen = Path(f"{program}.plan"), Path(plan["seen"])
        file.write_text(json.dumps(plan))
        seen.unlink(missing_ok=True)
        self.call(
            "gdb-multiarch", "-q", "-batch", "-nx", "-iex", "set debuginfod enabled off", program,
            "-x", HERE / "watch.py", env=dict(os.environ, WATCH_PLAN=str(file)),
        )  # fmt: skip
        return json.loads(seen.read_text())


class Remote:
    """A client of qemu's gdb server, for LoongArch, which this gdb doesn't know: does what watch.py does."""

    PC, SP = 33, 3

    def __init__(self, plan: dict[str, Any]) -> None:
        """Connect."""
        import socket

        self.plan = plan
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.connect(plan["remote"])
        self.unread = b""

    def ask(self, command: str) -> str:
        """Send a packet; return the answer."""
        self.socket.sendall(f"${command}#{sum(command.encode()) & 255:02x}".encode())
        while (found := re.search(rb"\$([^#]*)#..", self.unread)) is None:
            received = self.socket.recv(65536)
            if not received:
                return "W00"
            self.unread += received
        self.unread = self.unread[found.end() :]
        self.socket.sendall(b"+")
        return found[1].decode()

    def memory(self, address: int, size: int) -> bytes:
        """Read memory."""
        return bytes.fromhex(self.ask(f"m{address:x},{size:x}"))

    @classmethod
    def watch(cls, plan: dict[str, Any]) -> list[Any]:
        """Carry out a plan; return what fired."""
        remote = cls(plan)
        with remote.socket:
            return remote.run()

    def run(self) -> list[Any]:
        """Put a breakpoint at every site, and read the arguments each time that one is met."""
        by_address = {site["address"]: site for site in self.plan["sites"]}
        for address in self.plan["semaphores"]:
            assert self.ask(f"M{address:x},2:0100") == "OK"
        for address in by_address:
            assert self.ask(f"Z0,{address:x},4") == "OK"
        seen = []
        while not self.ask("c").startswith("W"):
            registers = bytes.fromhex(self.ask("g"))
            values = [int.from_bytes(registers[i : i + 8], "little") for i in range(0, 35 * 8, 8)]
            address = values[self.PC]
            site = by_address[address]
            found: list[Any] = [self.value(values, operand) for operand in site["operands"]]
            if site["text"]:
                found = [self.memory(found[0], 64).split(b"\0")[0].decode()]
            seen.append([site["probe"], found, [None]])
            self.ask(f"z0,{address:x},4")
            self.ask("s")
            self.ask(f"Z0,{address:x},4")
        return seen

    def value(self, registers: list[int], operand: dict[str, Any]) -> int:
        """Return what an operand says, as an unsigned number."""
        size = operand["size"]
        if "register" in operand:
            return registers[int(operand["register"][1:])] & (1 << 8 * size) - 1
        address = registers[int(operand["base"][1:])] + operand["displacement"]
        return int.from_bytes(self.memory(address, size), "little")


def short_name(suffix: str) -> Path:
    """Return a name for a socket, in a new folder: pytest's folders may be longer than the 107 bytes it can have."""
    return Path(tempfile.mkdtemp(prefix="usdtbuild-", dir="/tmp")) / suffix


def machine_number(elf: ELFFile) -> int:
    """Return e_machine as a number, which pyelftools turns into a name where it knows one."""
    elf.stream.seek(18)
    return int.from_bytes(elf.stream.read(2), "little" if elf.little_endian else "big")


def operand_for_gdb(operand: Any) -> dict[str, Any]:
    """Return an operand as watch.py takes it, with gdb's names of registers."""

    def name(register: str) -> str:
        bare = register.lstrip("$")
        return f"r{bare}" if bare.isdigit() else bare

    place = operand.place
    assert place.kind in {"register", "memory"}, operand
    if place.kind == "register":
        return {"size": operand.size, "register": name(place.register)}
    return {"size": operand.size, "base": name(place.base), "displacement": place.displacement}


def wait_for(socket: Path, emulator: subprocess.Popen[bytes]) -> None:
    """Wait until qemu listens."""
    import time

    for _ in range(6000):
        if socket.exists():
            return
        assert emulator.poll() is None, "qemu ended"
        time.sleep(0.01)
    pytest.fail("qemu doesn't listen")


def event_of(line: str) -> Event:
    """Take a line of the reference's output apart: name, and hexadecimal numbers or a text."""
    name, *values = line.split(" ")
    if name == "text":
        return Event(name, (" ".join(values),))
    return Event(name, tuple(int(value, 16) for value in values))


def reference_stubs(header: str) -> str:
    """Return C for stubs that print their arguments, made from the header's declarations."""
    lines = ['#include "corpus.h"', "void text(const char *what);", "void put_number(long long value);"]
    for name, parameters in re.findall(r"^extern void __dtrace_corpus___(\w+)\(([^;]*?)\)", header, re.MULTILINE):
        types = [] if parameters == "void" else [part.strip() for part in parameters.split(",")]
        declared = ", ".join(f"{type_} a{i}" for i, type_ in enumerate(types)) or "void"
        body = f'text("> {name}");'
        for i, type_ in enumerate(types):
            number = f"(long long)({'unsigned long' if '*' in type_ else type_})a{i}"
            body += ' text(" "); text(a0);' if name == "text" else f" put_number({number});"
        lines.append(f'USDTBUILD_STUB void __dtrace_corpus___{name}({declared}) {{ {body} text("\\n"); }}')
        lines.append(f"USDTBUILD_STUB int __dtraceenabled_corpus___{name}(void) {{ return ENABLED; }}")
        lines.append(f"volatile unsigned short corpus_{name}_semaphore = ENABLED;")
    return "\n".join(lines) + "\n"


@pytest.fixture(scope="session")
def workshop(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Return a target's workshop: `workshop("s390x")`. Skips where there is no compiler, linker or emulator for it."""
    made: dict[str, Workshop] = {}

    def make(name: str) -> Workshop:
        target = TARGETS[name]
        if name not in made:
            made[name] = Workshop(name, tmp_path_factory.mktemp("machines") / name.replace(" ", "-"))
        shop = made[name]
        if not shop.compilers() or not shop.linkers():
            pytest.skip(f"no compiler or no linker for {name} is installed (make test-all installs them)")
        if not target.capstone and not shop.of_llvm("llvm-objdump"):
            pytest.skip(f"no disassembler for {name} is installed (make test-all installs llvm-objdump-19)")
        if target.qemu and not find(target.qemu.split()[0]):
            pytest.skip(f"{target.qemu.split()[0]} is not installed (make test-all installs it)")
        return shop

    return make


@pytest.fixture(scope="session")
def build_of() -> Any:
    """Return a Build: `build_of("gcc", "-O2 -fPIC")`."""
    return Build
