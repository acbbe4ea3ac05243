"""CPU time of the drop-in `dtrace`: -h on fifty and on 2,000 probes, against SystemTap's, and -G over 733 objects.

And what it costs a compiler to include the header of 2,000 probes in a file that uses one of them.

733 is what PostgreSQL's build hands to one -G. SystemTap's -G reads no objects, so it does less; it is shown all the
same.
"""

from __future__ import annotations

import sys
from pathlib import Path

from common import have, in_turns, report, run, workspace

DTRACE = str(Path(sys.executable).with_name("usdtbuild-dtrace"))
OBJECTS = 733
MAIN = '#include "app.h"\nint work(int x) { APP_BEGIN__WORK(x); APP_DONE(x, "name"); return x + 1; }\n'

BY_CALL = "-DUSDT_PROBES_BY_CALL"
KINDS = {"inline": [], "calls": [BY_CALL], "calls, fat LTO": [BY_CALL, "-flto", "-ffat-lto-objects"]}


def provider(probes: int) -> str:
    """Return a provider file of so many probes with four arguments each."""
    lines = "".join(f"  probe p{number}__x(int a, char *b, uint64_t c, char *d);\n" for number in range(probes))
    return f"provider many {{\n{lines}}};\n"


def headers(folder: Path) -> list[tuple[str, str, str, str]]:
    """Measure -h; return rows of the report."""
    rows = []
    for probes, rounds in ((50, 15), (2000, 5)):
        (folder / "many.d").write_text(provider(probes))
        commands = {"ours": [DTRACE, "-h", "-s", "many.d", "-o", "ours.h"]}
        if have("dtrace"):
            commands["theirs"] = ["dtrace", "-h", "-s", "many.d", "-o", "theirs.h"]
        rows.append(row(f"dtrace -h, {probes:,} probes", in_turns(commands, folder, rounds)))
    return rows


def includes(folder: Path) -> list[tuple[str, str, str, str]]:
    """Measure the compilation of a file that includes the two headers of 2,000 probes that `headers` left."""
    rows = []
    for whose in ("ours", "theirs"):
        (folder / f"{whose}.c").write_text(f'#include "{whose}.h"\nvoid f(int x) {{ MANY_P7_X(x, "b", 1, "d"); }}\n')
    for compiler in filter(have, ("gcc", "clang")):
        commands = {
            whose: [compiler, "-O2", "-c", f"{whose}.c", "-o", f"{whose}.o"]
            for whose in ("ours", "theirs") if (folder / f"{whose}.h").exists()
        }  # fmt: skip
        rows.append(row(f"{compiler}, header of 2,000 probes", in_turns(commands, folder, 5)))
    return rows


def objects(folder: Path) -> list[tuple[str, str, str, str]]:
    """Measure -G over objects whose probes are inline assembly, calls, and calls in objects with LTO code too."""
    (folder / "app.d").write_text("provider app { probe begin__work(int x); probe done(int x, char *name); };\n")
    (folder / "main.c").write_text(MAIN)
    run([DTRACE, "-h", "-s", "app.d", "-o", "app.h"], folder)
    names = [f"o{number}.o" for number in range(OBJECTS)]
    rows = []
    for what, flags in KINDS.items():
        run(["gcc", "-O2", "-g", *flags, "-c", "main.c"], folder)
        for name in names:
            (folder / name).write_bytes((folder / "main.o").read_bytes())
        commands = {"ours": [DTRACE, "-G", "-s", "app.d", *names, "-o", "ours.o"]}
        if have("dtrace"):
            commands["theirs"] = ["dtrace", "-G", "-s", "app.d", *names, "-o", "theirs.o"]
        rows.append(row(f"dtrace -G, {OBJECTS} objects ({what})", in_turns(commands, folder, 5)))
    return rows


def row(what: str, seconds: dict[str, float]) -> tuple[str, str, str, str]:
    """Return one row: what was run, our time, SystemTap's, and their ratio."""
    ours, theirs = seconds["ours"], seconds.get("theirs")
    shown = (f"{theirs * 1000:.0f} ms", f"{ours / theirs:.2f}") if theirs else ("not installed", "–")
    return what, f"{ours * 1000:.0f} ms", *shown


def main() -> None:
    """Measure and print."""
    with workspace() as folder:
        rows = headers(folder) + includes(folder) + objects(folder)
    title = "Drop-in dtrace (targets: -h of 50 probes at most 0.5 of SystemTap's; -G over 733 objects at most 1.5 s)"
    report(title, ("command", "ours", "SystemTap's", "ours / theirs"), rows)


if __name__ == "__main__":
    main()
