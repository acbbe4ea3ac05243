"""CPU time and memory of instrumenting: many small objects, and large ones of which each has much of something else.

With the folder around another version's package (`instrument.py DIR`, a checkout's), the many objects are instrumented
by both in turns, each with objects that were compiled with its own header.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from common import PACKAGE, USDTBUILD, cpu_seconds, in_turns, report, run, workspace

if TYPE_CHECKING:
    from typing import TextIO

PROVIDER = "provider app {\n" + "".join(f"  probe req{i}(int fd, char *name);\n" for i in range(7)) + "};\n"
SEVEN = (
    '#include "app.h"\nint work(int x, const char *s)\n{\n'
    + "".join(f"    APP_REQ{i}(x, s); x = x * 3 + {i};\n" for i in range(7))
    + "    return x;\n}\n"
)


def many_objects(folder: Path, count: int) -> list[str]:
    """Make `count` objects with seven sites each."""
    run(["gcc", "-O2", "-g", "-c", "seven.c", "-o", "seven.o"], folder)
    (folder / "many").mkdir()
    names = [f"many/object{i}.o" for i in range(count)]
    for name in names:
        shutil.copyfile(folder / "seven.o", folder / name)
    (folder / "out").mkdir()
    return names


def large_object(folder: Path) -> None:
    """Make an object of about 50 MB, most of it debug information, with seven sites."""
    structs = "".join(
        f"struct s{i} {{ int a{i}; long b{i}; struct s{i} *next{i}; char c{i}[{i % 64 + 1}]; }};\n"
        f"int f{i}(struct s{i} *p, int n) {{ int k{i} = n; for (int j = 0; j < n; j++) k{i} += p->c{i}[0] + j;"
        f" return k{i}; }}\n"
        for i in range(60000)
    )
    (folder / "large.c").write_text(SEVEN + structs)
    run(["gcc", "-O0", "-g3", "-c", "large.c", "-o", "large.o"], folder)


def million_symbols(folder: Path) -> None:
    """Make an object with a million symbols, a million relocations and one site."""
    run(["gcc", "-S", "-O2", "seven.c", "-o", "million.s"], folder)
    with (folder / "million.s").open("a") as file:
        file.write("\t.data\n")
        for i in range(1_000_000):
            file.write(f"\t.globl s{i}\ns{i}:\t.quad s{i * 7 % 1_000_000}\n")
    run(["as", "million.s", "-o", "million.o"], folder)


def many_sites(folder: Path) -> None:
    """Make an object with 10,000 sites in one function."""
    with with_probes(folder, "sites.s") as file:
        file.write("\t.text\nmany:\n")
        for i in range(10_000):
            file.write(f"\tmovl ${i}, %edi\n\tcall __dtrace_app___req{i % 7}@PLT\n")
    run(["as", "sites.s", "-o", "sites.o"], folder)


def many_groups(folder: Path) -> None:
    """Make an object of 106 MiB as C++ templates give it: 50,000 COMDAT groups, each of code with a site, and data."""
    with with_probes(folder, "groups.s") as file:
        for i in range(50_000):
            name = f"_Z4funcILi{i}EEvv"
            file.write(
                f'\t.section .text.{name},"axG",@progbits,{name},comdat\n\t.weak {name}\n\t.type {name},@function\n'
                f"{name}:\n\tcall __dtrace_app___req{i % 7}@PLT\n\tret\n\t.fill 1400,1,0x90\n\t.size {name},.-{name}\n"
                f'\t.section .rodata.{name},"aG",@progbits,{name},comdat\n\t.quad {name}\n\t.fill 300,1,1\n'
            )
    run(["as", "groups.s", "-o", "groups.o"], folder)


def with_probes(folder: Path, name: str) -> TextIO:
    """Return an assembler source to append to, which describes the probes and has a site of each."""
    run(["gcc", "-S", "-O2", "seven.c", "-o", name], folder)
    return (folder / name).open("a")


def against(other: str) -> None:
    """Instrument the many objects by this version and by the one whose package is in `other`, and print the ratio.

    The outputs are new in each round, as on the first build: an old one costs a link, so that it can come back.
    What the start takes is what one object does.
    """
    with workspace(in_memory=True) as folder:

        def remove_outputs() -> None:
            for title in ("this", "that"):
                shutil.rmtree(folder / title / "out")
                (folder / title / "out").mkdir()

        seconds = in_turns(_of_both(folder, other), folder, 15, remove_outputs)
    net = {title: seconds[title] - seconds[f"{title}, start"] for title in ("this", "that")}
    rows = [
        (title, f"{seconds[title]:.2f} s", f"{seconds[title] / seconds['that']:.2f}",
         f"{value:.2f} s", f"{value / net['that']:.2f}")
        for title, value in net.items()
    ]  # fmt: skip
    header = ("version", "CPU, command", "ratio", "CPU less start-up", "ratio")
    report("1,000 objects x 7 sites (target: at most half of 0.1.0's)", header, rows)


def _of_both(folder: Path, other: str) -> dict[str, list[str]]:
    """Make the objects for this version and the other; return the commands that instrument them, or only one."""
    commands = {}
    for title, root in {"this": str(PACKAGE.parent), "that": other}.items():
        own = folder / title
        own.mkdir()
        ours = ["env", f"--chdir={own}", f"PYTHONPATH={root}", sys.executable, "-m", "usdtbuild"]
        (own / "app.d").write_text(PROVIDER)
        (own / "seven.c").write_text(SEVEN)
        run([*ours, "header", "--formats=dof", "app.d", "-o", "app.h"], own)
        names = many_objects(own, 1000)
        commands[title] = [*ours, "instrument", *names, "--output-dir", "out"]
        commands[f"{title}, start"] = [*ours, "instrument", names[0], "-o", "one.o"]
    return commands


def memory_of(folder: Path, name: str) -> int:
    """Return the peak memory in MiB of instrumenting one object in a fresh process."""
    code = (
        "import resource, sys; from usdtbuild.instrument.main import instrument_file;"
        f"instrument_file({name!r}, 'x.o'); print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)"
    )
    out = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, check=True)
    return int(out.stdout) // 1024


def main() -> None:
    """Measure and print."""
    others = sys.argv[1:]
    for other in others:
        if not (Path(other) / "usdtbuild").is_dir():  # Python would find this version's in its place
            sys.exit(f"{other}: there is no folder usdtbuild in it")
    with workspace() as folder:
        (folder / "app.d").write_text(PROVIDER)
        (folder / "seven.c").write_text(SEVEN)
        run([USDTBUILD, "header", "--formats=dof", "app.d", "-o", "app.h"], folder)
        names = many_objects(folder, 1000)
        large_object(folder)
        million_symbols(folder)
        many_sites(folder)
        many_groups(folder)
        start = min(cpu_seconds([USDTBUILD, "instrument", names[0], "-o", "one.o"], folder) for _ in range(5))
        rows = []
        cases = {
            "1,000 objects x 7 sites": ([*names], ["--output-dir", "out"], "1.0 s"),
            "one object with debug information": (["large.o"], ["-o", "y.o"], ""),
            "one object with a million symbols": (["million.o"], ["-o", "z.o"], "0.4 s"),
            "one object with 10,000 sites": (["sites.o"], ["-o", "z.o"], ""),
            "one object with 50,000 groups": (["groups.o"], ["-o", "z.o"], ""),
        }
        for title, (inputs, output, target) in cases.items():
            seconds = min(cpu_seconds([USDTBUILD, "instrument", *inputs, *output], folder) for _ in range(3))
            size = sum((folder / name).stat().st_size for name in inputs) / 2**20
            memory = f"{memory_of(folder, inputs[0])} MiB" if len(inputs) == 1 else ""
            rows.append((title, f"{size:.0f} MiB", f"{seconds:.2f} s", f"{seconds - start:.2f} s", memory, target))
        header = ("input", "size", "CPU, command", "CPU less start-up", "peak memory", "target")
        report(f"usdtbuild instrument ({PACKAGE.name})", header, rows)
    for other in others:
        against(other)


if __name__ == "__main__":
    main()
