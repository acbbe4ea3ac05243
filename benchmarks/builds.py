"""CPU time of a real project's build with the launcher before every compile and link, over the same build without.

    python benchmarks/builds.py              measure
    python benchmarks/builds.py --build DIR    only build, to DIR/plain and DIR/probed

busybox is 566 small C files, which is what a launcher shows most in; three of them get a probe. Both builds are of the
same configured sources; the one without has a header of `usdtbuild header --none`. What a whole build takes differs by
more than a hundredth from one run to the next, and so does what its folders take, so the runs are measured one by one:
each that the build makes (compiles, links, and some hundred questions for options) is written down and made again,
without, with, and without once more, in turns; of each the least of all rounds counts. What make, shells and ar take
besides is the same in both. The last column is the ratio of the same measured twice: how far the other can be trusted.
Sources come from Debian (tools/sources.py).
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from common import PACKAGE, USDTBUILD, cpu_seconds, have, report, run, workspace

from projects import unpack

LAUNCHER = [os.path.realpath(sys.executable), "-I", "-S", str(PACKAGE / "launcher.py"), "--"]
ROUNDS = 3
AT_ONCE = 2
MAKE = ["env", "KCONFIG_NOTIMESTAMP=1", "make"]  # the same configuration makes the same objects
ALL = [*MAKE, f"-j{AT_ONCE}", "SKIP_STRIP=y"]
# A compiler that writes down how it is called: where, with what, and the source, if it is one that a script of the
# build has made in the working folder and will remove.
SCRIBE = """\
import json, os, sys
made = [word for word in sys.argv[3:] if word.endswith(".c") and "/" not in word]
texts = {name: open(name).read() for name in made if name.startswith("tmp.")}
line = json.dumps([os.getcwd(), sys.argv[2:], texts]) + "\\n"
log = os.open(sys.argv[1], os.O_WRONLY | os.O_APPEND)
os.write(log, line.encode())
os.execvp(sys.argv[2], sys.argv[2:])
"""
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


def prepare(folder: Path) -> None:
    """Configure busybox twice, with a header that does nothing and with ours."""
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
        header = folder / name / "include" / "box.h"
        run([USDTBUILD, "header", "--formats=dof", *options, "box.d", "-o", header], folder)
    shutil.rmtree(top)


class Call(NamedTuple):
    """A run of the compiler: the folder below the project's, the command, and texts of files that must be there."""

    folder: str
    words: list[str]
    texts: dict[str, str]

    @property
    def alone(self) -> bool:
        """Whether others that run at the same time could write the same file: a link, which the build tries often."""
        return "-c" not in self.words and "/dev/null" not in self.words


def calls_of(folder: Path) -> list[Call]:
    """Build the project without probes; return the runs of the compiler in their order."""
    (folder / "scribe.py").write_text(SCRIBE)
    (log := folder / "calls").touch()
    run([*ALL, f"CC={sys.executable} -I -S {folder / 'scribe.py'} {log} gcc"], folder / "plain")
    found = [json.loads(line) for line in log.read_text().splitlines()]
    return [Call(os.path.relpath(where, folder / "plain"), words, texts) for where, words, texts in found]


def spent(call: Call, top: Path, before: list[str]) -> tuple[float, int]:
    """Run a command behind the words `before`; return its user and system CPU seconds, and its exit status."""
    where = top / call.folder
    for name, text in call.texts.items():
        (where / name).write_text(text)
    quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    # wait4() takes the place of wait(), and is the only one that says what this one child used.
    child = subprocess.Popen([*before, *call.words], cwd=where, **quiet)  # type: ignore[call-overload]
    _, child.returncode, used = os.wait4(child.pid, 0)
    for name in call.texts:
        (where / name).unlink()
    return used.ru_utime + used.ru_stime, child.returncode


def least(call: Call, folder: Path, ways: dict[str, list[str]], rounds: int) -> dict[str, float]:
    """Make a run of the compiler each way in turns; return the least CPU seconds of each."""
    best = dict.fromkeys(ways, float("inf"))
    statuses = set()
    for at in range(rounds):
        for name in sorted(ways, reverse=bool(at % 2)):  # whoever comes first finds colder caches
            seconds, status = spent(call, folder / name.partition(" ")[0], ways[name])
            statuses.add(status)
            best[name] = min(best[name], seconds)
    if len(statuses) > 1:
        sys.exit(f"{' '.join(call.words)}: exit statuses {statuses}")
    return best


def measured(folder: Path, ways: dict[str, list[str]]) -> dict[str, float]:
    """Return the CPU seconds of all runs of the compiler, by way."""
    calls = calls_of(folder)
    with ThreadPoolExecutor(AT_ONCE) as pool:
        found = list(pool.map(lambda call: least(call, folder, ways, ROUNDS), [c for c in calls if not c.alone]))
    found += [least(call, folder, ways, ROUNDS) for call in calls if call.alone]
    return {name: sum(best[name] for best in found) for name in ways}


def main() -> None:
    """Build, and say what it cost unless told not to."""
    kept = Path(sys.argv[2]).resolve() if sys.argv[1:2] == ["--build"] else None
    for name in ("make", "gcc"):
        if not have(name):
            sys.exit(f"{name} is not installed")
    with workspace() as temporary:
        folder = kept or temporary
        try:
            prepare(folder)
        except LookupError as problem:
            sys.exit(f"busybox: not measured: {problem}" if kept else print(f"busybox: not measured: {problem}"))
        run([*ALL, f"CC={' '.join(LAUNCHER)} gcc"], folder / "probed")
        if kept:
            run(ALL, folder / "plain")
            return
        whole = cpu_seconds(ALL, folder / "plain")
        run([*MAKE, "clean"], folder / "plain")
        best = measured(folder, {"plain": [], "probed": LAUNCHER, "plain again": []})
        files = len([path for path in (folder / "probed").rglob("*.o") if path.with_suffix(".c").exists()])
    more = {name: seconds - best["plain"] for name, seconds in best.items()}
    ratios = [f"{(whole + more[name]) / whole:.4f}" for name in ("probed", "plain again")]
    row = (f"busybox, {files} files", f"{whole:.1f} s", f"{best['plain']:.1f} s", f"{more['probed']:+.2f} s", *ratios)
    title = "A build with the launcher on every file and probes in three"
    report(title, ("build", "without", "of that gcc", "with", "ratio", "without, twice"), [row])


if __name__ == "__main__":
    main()
