"""Fetch the source package of a project of others from Debian; print the path of its original archive.

    python3 tools/sources.py python3.11

The tests and benchmarks that build projects of others call it. What was fetched stays in `.cache/sources`, so each
package is fetched once; one process fetches at a time. apt gets a list of sources of our own, so the system's lists
stay as they are. Exit code 1, with apt's reason, where there is no such package or no network.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from pathlib import Path

CACHE = Path(__file__).resolve().parent.parent / ".cache" / "sources"
TIMEOUT = 600  # seconds


def kept(name: str) -> list[Path]:
    """Return the archive that was fetched before, if one was."""
    return sorted((CACHE / name).glob("*.orig.tar.*"))


def fetch(name: str) -> str:
    """Fetch a package's archive; return why that can't be done, or nothing."""
    if not shutil.which("apt-get"):
        return "source packages come from apt, which this system hasn't got"
    release = dict(line.split("=", 1) for line in Path("/etc/os-release").read_text().splitlines() if "=" in line)
    folder = CACHE / name
    lists = folder / "lists"
    (lists / "partial").mkdir(parents=True, exist_ok=True)
    codename = release.get("VERSION_CODENAME", "stable").strip('" ')
    (folder / "sources.list").write_text(f"deb-src http://deb.debian.org/debian {codename} main\n")
    apt = ["apt-get", "-q", "-o", f"Dir::Etc::sourcelist={folder}/sources.list", "-o",
           "Dir::Etc::sourceparts=/dev/null", "-o", f"Dir::State::lists={lists}"]  # fmt: skip
    said = ""
    try:
        for words in (["update"], ["source", "--download-only", "--tar-only", name]):
            done = subprocess.run(
                [*apt, *words], cwd=folder, capture_output=True, text=True, timeout=TIMEOUT, check=False
            )
            said += done.stderr
    except subprocess.TimeoutExpired:
        return f"apt took more than {TIMEOUT} seconds"
    finally:
        shutil.rmtree(lists)
    if kept(name):
        return ""
    lines = [line for line in said.splitlines() if line[:2] in ("E:", "W:")]
    return f"apt has no source package {name}: {' '.join(lines) or 'it says nothing'}"


def main() -> None:
    """Fetch what the command line names."""
    if len(sys.argv) != 2 or os.sep in sys.argv[1]:
        sys.exit("sources.py PACKAGE")
    name = sys.argv[1]
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        problem = "" if kept(name) else fetch(name)
    if problem:
        sys.exit(problem)
    print(kept(name)[0])


if __name__ == "__main__":
    main()
