"""What sites of the header cost beside those of sys/sdt.h: sites, instructions and bytes, and the time to compile."""

from __future__ import annotations

import sys
from pathlib import Path

from common import USDTBUILD, have, in_turns, report, run, workspace

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from tests.provider.test_complete import HERE, SHAPES, cost, shapes  # what the tests compare, too

FILES = 40  # of one function with probes each: compilers start up as often for both headers


def main() -> None:
    """Measure and print."""
    with workspace() as folder:
        shapes(folder, lambda source, header: run([USDTBUILD, "header", source, "-o", header], folder) and None)
        rows = []
        for line in SHAPES:
            if have(line.split()[0]):
                ours, theirs = (cost(line.split(), header, folder) for header in ("ours.h", "theirs.h"))
                same = cost([*line.split(), "-DUSDT_OPERANDS_IN_MEMORY"], "ours.h", folder)
                rows.append((line, *(f"{a} / {b} / {c}" for a, b, c in zip(ours, same, theirs))))
        head = ("compiler", "sites", "instructions", "bytes", "operands in memory")
        report("Shapes of code: header / with -DUSDT_OPERANDS_IN_MEMORY / sys/sdt.h (target: not more)", head, rows)

        (folder / "small.c").write_text(
            "#include SHAPES\nint f(int, const char *);\nint f(int a, const char *s) { SHAPES_2(a, s); return a; }\n"
        )
        rows = []
        for compiler in filter(have, ("gcc", "clang")):
            commands = {
                header: [compiler, "-O2", f'-DSHAPES="{header}"', "-c", *[source] * FILES]
                for header in ("ours.h", "theirs.h")
                for source in ["small.c"]
            }
            seconds = in_turns(commands, folder)
            rows.append((compiler, f"{seconds['ours.h'] / seconds['theirs.h']:.3f}"))
        report(
            "Time to compile a file with a probe, header / sys/sdt.h (target: at most 1.02)",
            ("compiler", "ratio"),
            rows,
        )
        print(f"The shapes are in {HERE / 'shapes.c'}")


if __name__ == "__main__":
    main()
