"""CPU time that the launcher adds to a compile, by each of its doors, beside what Python itself costs here.

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
# command -> title, and the most that each door may add: milliseconds through the native one, empty Pythons through both
COMMANDS = {
    "-c plain.c -o x.o": ("without probes", {"native": "1.5 ms", "Python": "1.5 Pythons"}),
    "-c seven.c -o x.o": ("with 7 probes", {"native": "2.5 Pythons", "Python": "2.5 Pythons"}),
    "-shared -fPIC plain.c -o x.so": ("and linked, without probes", {"native": "", "Python": ""}),
    "-shared plain.o -o x.so": ("linked only", {"native": "", "Python": ""}),
}


def main() -> None:
    """Measure and print."""
    with workspace() as folder:
        (folder / "app.d").write_text(PROVIDER)
        (folder / "seven.c").write_text(SEVEN)
        (folder / "plain.c").write_text(PLAIN)
        run([USDTBUILD, "header", "--formats=dof", "app.d", "-o", "app.h"], folder)
        launcher = PACKAGE / "launcher.py"
        doors = {
            "native": run([*PYTHON, launcher, "--native", "door"], folder).splitlines(),
            "Python": [*PYTHON, str(launcher)],
        }
        rows = []
        run(["gcc", "-O2", "-g", "-fPIC", "-c", "plain.c"], folder)
        for line, (title, most) in COMMANDS.items():
            compile_ = ["gcc", "-O2", "-g", *line.split()]
            commands = {name: [*words, "--", *compile_] for name, words in doors.items()}
            seconds = in_turns({"bare": compile_, "empty": [*PYTHON, "-c", "pass"], **commands}, folder, rounds=60)
            for name in doors:
                added = seconds[name] - seconds["bare"]
                row = (seconds["bare"] * 1000, seconds[name] * 1000, added * 1000)
                pythons = f"{added / seconds['empty']:.2f}"
                rows.append((f"{title}, {name}", *(f"{each:.1f} ms" for each in row), pythons, most[name]))
        columns = ("file and door", "gcc", "usdtbuild cc", "added", "in empty Pythons", "target")
        report("usdtbuild cc over bare gcc", columns, rows)


if __name__ == "__main__":
    main()
