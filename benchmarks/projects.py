"""What disabled probes cost whole programs: CPython, and snappy with probes in its innermost loops.

    python benchmarks/projects.py                       measure both
    python benchmarks/projects.py snappy --build DIR    only build, in DIR, a program for each variant: snappy-header

CPython has probes of its own, most of them behind is-enabled tests, one of which is run for each instruction of its
interpreter; its build makes the header with `dtrace -h`. snappy has none: they are put where its compressor finds a
match or emits a literal, and where its decompressor takes a tag, so that they are passed every dozen instructions.
The variants are no probes, sys/sdt.h, the header (CPython's is made by `dtrace -h`, under DTrace's names), and objects
that are completed after the compiler, whose probes are branches, or calls (-DUSDT_PROBES_BY_CALL). Valgrind counts the
instructions of a run, which are the same each time; ratios are to no probes. Sources come from Debian
(tools/sources.py).
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import NamedTuple

from common import PACKAGE, USDTBUILD, have, in_turns, report, run, workspace

SOURCES = PACKAGE.parent / "tools" / "sources.py"
LAUNCHER = f"{sys.executable} {PACKAGE / 'launcher.py'} --"
CALLS = "-DUSDT_PROBES_BY_CALL"
JOBS = "-j2"


class Built(NamedTuple):
    """A program of one variant: its file, and a command that does the workload, if a number of times is put behind."""

    program: Path
    command: list[str | Path]


def file_name(project: str, variant: str) -> str:
    """Return what a variant's program is called."""
    return f"{project}-{variant.replace(', ', '-').replace(' -', '-')}"


def unpack(name: str, folder: Path) -> Path:
    """Fetch a source package, unpack it in `folder`, and return the folder that came out.

    Raises LookupError, with apt's reason, where the package can't be had.
    """
    archive = subprocess.run([sys.executable, SOURCES, name], capture_output=True, text=True, check=False)
    if archive.returncode:
        raise LookupError(archive.stderr.strip())
    with tarfile.open(archive.stdout.strip()) as file:
        top = file.getnames()[0].split("/")[0]
        file.extractall(folder)
    return folder / top


# --- CPython ----------------------------------------------------------------------------------------------------

WORK = """\
import sys
def fib(n): return n if n < 2 else fib(n - 1) + fib(n - 2)
class Sum:
    def __init__(self, value): self.value = value
    def plus(self, other): return Sum(self.value + other.value)
for _ in range(int(sys.argv[1])):
    total, counts = Sum(0), {}
    for i in range(20000):
        total = total.plus(Sum(i))
        counts[str(i % 100)] = counts.get(str(i % 100), 0) + i
print(fib(18), total.value, sum(counts.values()), sorted(word[::-1] for word in "a few words to sort".split()))
"""
# variant -> (what writes the header, options of the compiler, through the launcher?, with the object of `dtrace -G`?)
PYTHONS = {
    "none": ("", "", False, False),
    "sdt": ("dtrace", "", False, True),
    "dtrace -h": ("ours", "", False, True),
    "dtrace -h, calls": ("ours", CALLS, False, True),
    "completed": ("header", "", True, False),
    "completed, calls": ("header", CALLS, True, False),
}
# The objects that have probes (DTRACE_DEPS, and who else includes pydtrace.h); only these differ between variants.
PROBED = ("Python/ceval.o", "Python/import.o", "Python/sysmodule.o", "Modules/gcmodule.o")
HEADER = Path("Include", "pydtrace_probes.h")


def build_python(folder: Path, variants: list[str]) -> dict[str, Built]:
    """Build the interpreter of CPython, once whole with our `dtrace`, then what differs for each variant."""
    top = unpack("python3.11", folder)
    run([USDTBUILD, "install-dtrace", folder / "ours"], folder)
    configure = ["env", f"PATH={folder / 'ours'}:{os.environ['PATH']}", "./configure", "--with-dtrace", "CFLAGS=-O2"]
    run(configure, top)
    run(["make", JOBS, "python"], top)
    (folder / "work.py").write_text(WORK)
    config = (top / "pyconfig.h").read_text()
    built = {}
    for variant in variants:
        _variant_of_python(folder, top, config, variant)
        program = folder / file_name("python", variant)
        shutil.copy(top / "python", program)
        environment = [f"PYTHONPATH={top / 'Lib'}", "PYTHONHASHSEED=0", "PYTHONDONTWRITEBYTECODE=1"]
        built[variant] = Built(program, ["env", *environment, program, "-S", "-s", folder / "work.py"])
    return built


def _variant_of_python(folder: Path, top: Path, config: str, variant: str) -> None:
    """Write the variant's header in place of the build's, and make the objects with probes and the program again."""
    maker, flags, launched, with_object = PYTHONS[variant]
    defined = "#define WITH_DTRACE 1"
    if defined not in config:
        sys.exit("CPython's configure found no way to have probes")
    provider = top / "Include" / "pydtrace.d"
    classic = ["-h", "-s", provider, "-o", folder / "probes.h"]
    if maker == "ours":
        maker = str(folder / "ours" / "dtrace")
    if with_object:
        run([maker, *classic], folder)
    elif maker == "header":
        run([USDTBUILD, "header", "--formats=dof", provider, "-o", folder / "probes.h"], folder)
    if maker:  # as CPython's Makefile does it
        _replace(top / HEADER, re.sub("PYTHON_", "PyDTrace_", (folder / "probes.h").read_text()))
    _replace(top / "pyconfig.h", config if maker else config.replace(defined, "/* no probes */"))
    for name in (*PROBED, "Python/pydtrace.o", "python"):
        (top / name).unlink(missing_ok=True)
    # What an older form of the program made is right for the new one: the interpreter's frozen modules.
    kept = [word for name in (HEADER, "_bootstrap_python", "Programs/_freeze_module") for word in ("-o", name)]
    compiler = [f"CC={LAUNCHER} gcc"] if launched else []
    objects = [f"DTRACE={maker}"] if with_object else ["DTRACE_OBJS="]
    run(["make", JOBS, *kept, f"CFLAGS=-O2 {flags}", *compiler, *objects, "python"], top)


def _replace(path: Path, text: str) -> None:
    """Write a file, and leave its date as it is: make shall not compile everything again."""
    before = path.stat()
    path.write_text(text)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


# --- snappy -----------------------------------------------------------------------------------------------------

PROVIDER = """\
provider codec {
    probe literal(size_t length);
    probe match(size_t offset, size_t length);
    probe tag(size_t type, size_t length);
};
"""
# What is put behind which line of snappy.cc
EDITS = {
    "              *op = LITERAL | (i << 2);\n": "              CODEC_LITERAL(i + 1);\n",
    "      assert(next_emit + 16 <= ip_end);\n": "      CODEC_LITERAL(ip - next_emit);\n",
    "  // Emit the remaining bytes as a literal\n  if (ip < ip_end) {\n": "    CODEC_LITERAL(ip_end - ip);\n",
    "        size_t offset = base - candidate;\n": "        CODEC_MATCH(offset, matched);\n",
    "        size_t len = len_min_offset & 0xFF;\n": "        CODEC_TAG(tag_type, len);\n",
}
PROBES = """\
#if defined(COUNTED) /* says what tracers should see */
extern unsigned long codec_counts[6];
#define CODEC_COUNT(i, value) (codec_counts[i]++, codec_counts[i + 1] += (value))
#define CODEC_LITERAL(length) CODEC_COUNT(0, length)
#define CODEC_MATCH(offset, length) CODEC_COUNT(2, length)
#define CODEC_TAG(type, length) CODEC_COUNT(4, length)
#elif defined(SYSTEMTAP)
#include <sys/sdt.h>
#define CODEC_LITERAL(length) DTRACE_PROBE1(codec, literal, length)
#define CODEC_MATCH(offset, length) DTRACE_PROBE2(codec, match, offset, length)
#define CODEC_TAG(type, length) DTRACE_PROBE2(codec, tag, type, length)
#elif defined(BRANCH)
#include "branch.h"
#else
#include "codec.h"
#endif
"""
MAIN = """\
#include <cstdio>
#include <cstdlib>
#include <string>
#include "snappy.h"
unsigned long codec_counts[6];
int main(int, char **argv)
{
    static const char *const words[] = {"probe", "site", "record", "loop", "register", "a", "of", "the", "0x17", "\\n"};
    std::string text, packed, again;
    unsigned number = 1;
    while (text.size() < 200000) {
        number = number * 1103515245 + 12345;
        (text += words[(number >> 16) % 10]) += ' ';
    }
    for (int left = std::atoi(argv[1]); left; left--) {
        snappy::Compress(text.data(), text.size(), &packed);
        if (!snappy::Uncompress(packed.data(), packed.size(), &again) || again != text) return 1;
    }
    std::printf("%zu %zu\\n", text.size(), packed.size());
    for (int i = 0; codec_counts[0] && i < 6; i++) std::printf("%lu ", codec_counts[i]);
    return 0;
}
"""
# variant -> (options of the compiler, through the launcher?)
SNAPPIES = {
    "none": ("-DUSDT_DISABLED", False),
    "sdt": ("-DSYSTEMTAP", False),
    "header": ("", False),
    "completed": ("-DBRANCH", True),
    "completed, calls": (f"-DBRANCH {CALLS}", True),
    "counted": ("-DCOUNTED", False),
}


def build_snappy(folder: Path, variants: list[str], compiler: str = "g++") -> dict[str, Built]:
    """Put probes into snappy, and build its library by CMake and a program for each variant."""
    top = unpack("snappy", folder)
    _edit(top / "snappy.cc")
    (folder / "codec.d").write_text(PROVIDER)
    (folder / "codec_probes.h").write_text(PROBES)
    (folder / "main.cc").write_text(MAIN)
    run([USDTBUILD, "header", "codec.d", "-o", "codec.h"], folder)
    run([USDTBUILD, "header", "--formats=dof", "codec.d", "-o", "branch.h"], folder)
    built = {}
    for variant in variants:
        flags, launched = SNAPPIES[variant]
        build = folder / "build" / file_name("snappy", variant)
        options = [f"-DCMAKE_CXX_COMPILER={compiler}", "-DCMAKE_BUILD_TYPE=Release",
                   f"-DCMAKE_CXX_FLAGS=-I{folder} {flags}", "-DSNAPPY_BUILD_TESTS=OFF", "-DSNAPPY_BUILD_BENCHMARKS=OFF",
                   *([f"-DCMAKE_CXX_COMPILER_LAUNCHER={LAUNCHER.replace(' ', ';')}"] if launched else [])]  # fmt: skip
        run(["cmake", "-S", top, "-B", build, *options], folder)
        run(["cmake", "--build", build, JOBS, "--target", "snappy"], folder)
        program = folder / file_name("snappy", variant)
        words = [compiler, "-O2", f"-I{top}", f"-I{build}", "main.cc", build / "libsnappy.a", "-o", program]
        run(words, folder)
        built[variant] = Built(program, [program])
    return built


def _edit(path: Path) -> None:
    """Put the probes into the source."""
    text = path.read_text()
    for line, probe in EDITS.items():
        if text.count(line) != 1:
            sys.exit(f"{path}: this version has no place for {probe.strip()}")
        text = text.replace(line, line + probe)
    path.write_text('#include "codec_probes.h"\n' + text)


# --- measuring --------------------------------------------------------------------------------------------------


def instructions(built: Built, folder: Path) -> int:
    """Return how many instructions the second of two workloads takes: what is over the start of the program."""
    counts = []
    for times in ("1", "3"):
        command = [
            "valgrind",
            "--tool=callgrind",
            "--callgrind-out-file=/dev/null",
            "--log-file=log",
            "--trace-children=yes",
        ]
        run([*command, *built.command, times], folder)
        counts.append(int(re.findall(r"Collected : (\d+)", (folder / "log").read_text())[-1]))
    return (counts[1] - counts[0]) // 2


def measure(title: str, built: dict[str, Built], folder: Path, times: int) -> None:
    """Print a table of one project's variants."""
    outputs = {run([*each.command, "1"], folder) for variant, each in built.items() if variant != "counted"}
    if len(outputs) != 1:
        sys.exit(f"{title}: the variants don't print the same: {outputs}")
    counted = {name: instructions(each, folder) for name, each in built.items()}
    seconds = in_turns({name: [*each.command, str(times)] for name, each in built.items()}, folder, rounds=11)
    rows = []
    for name in built:
        ratios = counted[name] / counted["none"], seconds[name] / seconds["none"]
        rows.append(
            (
                name,
                f"{counted[name] / 1e6:.2f} M",
                f"{ratios[0]:.4f}",
                f"{seconds[name] * 1000:.0f} ms",
                f"{ratios[1]:.3f}",
            )
        )
    report(title, ("variant", "instructions", "to none", "CPU", "to none"), rows)


def python(folder: Path, build_only: bool) -> None:
    """Build CPython, and measure unless told not to."""
    built = build_python(folder, [each for each in PYTHONS if each != "sdt" or have("dtrace")])
    if not build_only:
        measure("CPython 3.11, gcc -O2", built, folder, 20)


def snappy(folder: Path, build_only: bool) -> None:
    """Build snappy by each compiler, or by one, and measure unless told not to."""
    if build_only:
        build_snappy(folder, list(SNAPPIES))
        return
    for compiler in filter(have, ("g++", "clang++")):
        own = folder / compiler
        own.mkdir()
        built = build_snappy(own, [each for each in SNAPPIES if each != "counted"], compiler)
        measure(f"snappy, {compiler}", built, own, 500)


def main() -> None:
    """Do what the command line says."""
    words = sys.argv[1:]
    kept = words.pop(words.index("--build") + 1) if "--build" in words else ""
    chosen = [word for word in words if word != "--build"] or ["python", "snappy"]
    for name in ("cmake", "make", "gcc", "g++", *([] if kept else ["valgrind"])):
        if not have(name):
            sys.exit(f"{name} is not installed")
    for name in chosen:
        with workspace() as temporary:
            try:
                {"python": python, "snappy": snappy}[name](Path(kept).resolve() if kept else temporary, bool(kept))
            except LookupError as problem:
                print(f"{name}: not measured: {problem}")
                if kept:
                    sys.exit(1)


if __name__ == "__main__":
    main()
