"""CPU time of a real project's build with the launcher before every compile and link, over the same build without.

    python benchmarks/builds.py              measure
    python benchmarks/builds.py --build DIR    only build, to DIR/plain and DIR/probed

busybox is 566 small C files, which is what a launcher shows most in; three of them get a probe. Both builds are of the
same configured sources; the one without has a header of `usdtbuild header --none`. The launcher is the native door, as
`make CC="$(usdtbuild cc --native build) -- gcc"` uses it. Both are built in turns folder by folder, and of each folder
the least of all rounds counts: a busy machine makes every compile take longer, by more than the difference, and what a
whole build takes differs by a hundredth from one idle run to the next. Each make asks the compiler for its options,
some fifty times, before it builds anything; of all folders but the last, what a make that has nothing to do takes is
taken off again, as a build of the whole asks once. Sources come from Debian (tools/sources.py).
"""

from __future__ import annotations

import resource
import shutil
import sys
from pathlib import Path

from common import USDTBUILD, have, report, run, workspace

from projects import unpack

ROUNDS = 3
JOBS = "-j2"
LAST = "all"
MAKE = ["env", "KCONFIG_NOTIMESTAMP=1", "make"]  # the same configuration makes the same objects
PROVIDER = "provider box { probe echoed(long bytes); probe said_true(void); probe named(const char *path); };\n"
# file -> a line, and what is put before it
EDITS = {
    "coreutils/echo.c": (
        "\terr = full_write(STDOUT_FILENO, buffer, out - buffer) != out - buffer;\n",
        "\tBOX_ECHOED(out - buffer);\n",
    ),
    "coreutils/true.c": ("\treturn EXIT_SUCCESS;\n", "\tBOX_SAID_TRUE();\n"),
    "coreutils/dirname.c": ("\tputs(dirname(single_argv(argv)));\n", "\tBOX_NAMED(argv[1]);\n"),
}


def prepare(folder: Path) -> dict[str, list[str]]:
    """Configure busybox twice, with a header that does nothing and with ours; return what CC is for each."""
    top = unpack("busybox", folder)
    for name, (line, probe) in EDITS.items():
        text = (top / name).read_text()
        if text.count(line) != 1:
            sys.exit(f"{top / name}: this version has no place for {probe.strip()}")
        include = '#include "libbb.h"\n'
        text = text.replace(include, include + '#include "box.h"\n').replace(line, probe + line)
        (top / name).write_text(text)
    (folder / "box.d").write_text(PROVIDER)
    run([*MAKE, "defconfig"], top)
    run([*MAKE, "silentoldconfig", "include/autoconf.h"], top)
    for name, options in (("plain", ["--none"]), ("probed", [])):
        shutil.copytree(top, folder / name, symlinks=True)
        run([USDTBUILD, "header", *options, "box.d", "-o", folder / name / "include" / "box.h"], folder)
    shutil.rmtree(top)
    door = run([USDTBUILD, "cc", "--native", "door"], folder).strip()
    return {"plain": [], "probed": [f"CC={door} -- gcc"]}


def folders(top: Path) -> list[str]:
    """Return the targets that build a folder each, and last the one that builds what is left: the program."""
    return [*sorted(f"{kbuild.parent.name}/" for kbuild in top.glob("*/Kbuild")), LAST]


def build(top: Path, target: str, words: list[str]) -> float:
    """Build a target; return user and system CPU seconds."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    run([*MAKE, JOBS, "SKIP_STRIP=y", *words, target], top)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def least(folder: Path, ways: dict[str, list[str]], rounds: int) -> dict[str, float]:
    """Build everything in turns from the beginning; return the sum of each folder's least CPU seconds."""
    best: dict[tuple[str, str, bool], float] = {}
    for at in range(rounds):
        for name in ways:
            run([*MAKE, "clean"], folder / name)
        for target in folders(folder / "plain"):
            for name in sorted(ways, reverse=bool(at % 2)):  # whoever comes first finds colder caches
                for idle in (False, True):
                    spent = build(folder / name, target, ways[name])
                    best[name, target, idle] = min(best.get((name, target, idle), spent), spent)
    sums = dict.fromkeys(ways, 0.0)
    for (name, target, idle), spent in best.items():
        if not idle:
            sums[name] += spent
        elif target != LAST:
            sums[name] -= spent
    return sums


def main() -> None:
    """Build, and say what it cost unless told not to."""
    kept = Path(sys.argv[2]).resolve() if sys.argv[1:2] == ["--build"] else None
    for name in ("make", "gcc"):
        if not have(name):
            sys.exit(f"{name} is not installed")
    with workspace() as temporary:
        folder = kept or temporary
        try:
            ways = prepare(folder)
        except LookupError as problem:
            sys.exit(f"busybox: not measured: {problem}" if kept else print(f"busybox: not measured: {problem}"))
        best = least(folder, ways, 1 if kept else ROUNDS)
        files = len([path for path in (folder / "probed").rglob("*.o") if path.with_suffix(".c").exists()])
    row = (f"busybox, {files} files", f"{best['plain']:.1f} s", f"{best['probed']:.1f} s")
    title = "A build with the launcher on every file and probes in three (target: 1.01)"
    report(title, ("build", "without", "with", "ratio"), [(*row, f"{best['probed'] / best['plain']:.3f}")])


if __name__ == "__main__":
    main()
