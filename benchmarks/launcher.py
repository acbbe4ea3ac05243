"""CPU time that the launcher adds to a compile, for a file without and one with probes."""

from __future__ import annotations

import sys

from common import PACKAGE, USDTBUILD, in_turns, report, run, workspace
from instrument import PROVIDER, SEVEN

PLAIN = '#include <stdio.h>\nint work(int x) { printf("%d\\n", x); return x * 3; }\n'


def main() -> None:
    """Measure and print."""
    launcher = [sys.executable, "-I", "-S", PACKAGE / "launcher.py", "--"]
    with workspace() as folder:
        (folder / "app.d").write_text(PROVIDER)
        (folder / "seven.c").write_text(SEVEN)
        (folder / "plain.c").write_text(PLAIN)
        run([USDTBUILD, "header", "app.d", "-o", "app.h"], folder)
        rows = []
        for source, title, target in (("plain.c", "without probes", "10 ms"), ("seven.c", "with 7 probes", "")):
            compile_ = ["gcc", "-O2", "-g", "-c", source, "-o", "x.o"]
            seconds = in_turns({"bare": compile_, "launched": [*launcher, *compile_]}, folder, rounds=25)
            bare, launched = seconds["bare"], seconds["launched"]
            added = f"{(launched - bare) * 1000:.1f} ms"
            rows.append((title, f"{bare * 1000:.1f} ms", f"{launched * 1000:.1f} ms", added, target))
        report("usdtbuild cc over bare gcc", ("file", "gcc", "usdtbuild cc", "added", "target"), rows)


if __name__ == "__main__":
    main()
