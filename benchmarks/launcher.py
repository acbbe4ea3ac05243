"""CPU time that the launcher adds to a compile, beside what Python itself costs here.

A file without probes is what nearly every file of a project is; one with seven shows what completing an object costs.
The unit that other machines can be compared in is the start of an empty `python -I -S`.
"""

from __future__ import annotations

import os
import sys

from common import PACKAGE, USDTBUILD, in_turns, report, run, workspace
from instrument import PROVIDER, SEVEN

PLAIN = '#include <stdio.h>\nint work(int x) { printf("%d\\n", x); return x * 3; }\n'
PYTHON = [os.path.realpath(sys.executable), "-I", "-S"]
# command -> title, and the most empty Pythons that may be added
COMMANDS = {
    "-c plain.c -o x.o": ("without probes", "1.5"),
    "-c seven.c -o x.o": ("with 7 probes", "2.5"),
    "-shared -fPIC plain.c -o x.so": ("and linked, without probes", ""),
    "-shared plain.o -o x.so": ("linked only", ""),
}


def main() -> None:
    """Measure and print."""
    with workspace() as folder:
        (folder / "app.d").write_text(PROVIDER)
        (folder / "seven.c").write_text(SEVEN)
        (folder / "plain.c").write_text(PLAIN)
        run([USDTBUILD, "header", "--formats=dof", "app.d", "-o", "app.h"], folder)
        rows = []
        run(["gcc", "-O2", "-g", "-fPIC", "-c", "plain.c"], folder)
        for line, (title, most) in COMMANDS.items():
            compile_ = ["gcc", "-O2", "-g", *line.split()]
            ours = [*PYTHON, str(PACKAGE / "launcher.py"), "--", *compile_]
            commands = {"bare": compile_, "empty": [*PYTHON, "-c", "pass"], "ours": ours}
            seconds = in_turns(commands, folder, rounds=60)
            added = seconds["ours"] - seconds["bare"]
            row = (seconds["bare"] * 1000, seconds["ours"] * 1000, added * 1000)
            rows.append((title, *(f"{each:.1f} ms" for each in row), f"{added / seconds['empty']:.2f}", most))
        columns = ("file", "gcc", "usdtbuild cc", "added", "in empty Pythons", "target")
        report("usdtbuild cc over bare gcc", columns, rows)


if __name__ == "__main__":
    main()
