"""Run `make` in bare Debians: a new system for each release, with Python 3, make and git, and nothing else.

    python3 tools/distributions.py                   make demo test, in Debian 12, 13 and testing
    python3 tools/distributions.py 13                in this release only
    python3 tools/distributions.py 13 --make check   another target, in this release

Each system is made by debootstrap, gets a clone of the commit that is checked out, and goes away at the end. The last
line of each target's output is repeated at the end of the run. Where no system can be made (no root, no debootstrap, a
mirror that does not answer), this is said, and is no failure. It is not part of the product.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
RELEASES = {"12": "bookworm", "13": "trixie", "testing": "testing"}
BARE = "python3,make,git,ca-certificates"
UNSAFE = "DPKG_FORCE=unsafe-io"  # what is installed there needn't outlive a power failure
_TIMEOUT = 124  # what timeout(1) exits with
# The system is the root of a mount namespace of its own, not a chroot: there, no further namespaces could be made. The
# namespace ends with its last process, and takes its mounts along.
INSIDE = """
cd "$0"
mount --bind . .
cd "$0"
mount -t proc proc proc
mount --rbind /sys sys
mount --rbind /dev dev
mkdir -p .host
pivot_root . .host
umount -l /.host
cd /src
exec "$@"
"""


def main(arguments: list[str]) -> int:
    """Run the targets in each release; return 1 if one of them failed."""
    parser = argparse.ArgumentParser(description="Run make in bare Debians.")
    parser.add_argument("release", nargs="*", choices=[[], *RELEASES], help=f"{', '.join(RELEASES)}; all by default")
    parser.add_argument("--make", nargs="+", default=["demo", "test"], metavar="TARGET", help="default: demo test")
    parser.add_argument("--minutes", type=float, default=240, help="for each target (%(default)s)")
    parser.add_argument("--mirror", default="http://deb.debian.org/debian", help="default: %(default)s")
    chosen = parser.parse_args(arguments)
    told, failed = [], False
    for release in chosen.release or RELEASES:
        problem = why_not(chosen.mirror, RELEASES[release])
        if problem:
            told.append(f"Debian {release}: left out: {problem}")
            continue
        with tempfile.TemporaryDirectory(prefix="usdtbuild-debian-", ignore_cleanup_errors=True) as folder:
            Path(folder).chmod(0o755)  # tests become other users, who must reach what is in it
            for line, code in in_system(Path(folder), release, chosen):
                told.append(f"Debian {release}: {line}")
                failed = failed or code != 0
    print(*told, sep="\n")
    return int(failed)


def why_not(mirror: str, suite: str) -> str:
    """Return why no system of a release can be made here, or ''."""
    missing = [name for name in ("debootstrap", "unshare", "pivot_root") if not shutil.which(name)]
    if os.geteuid() != 0 or missing:
        return f"{missing[0]} is not installed" if missing else "only root can make a system"
    try:
        with urllib.request.urlopen(f"{mirror}/dists/{suite}/Release", timeout=30):
            return ""
    except (OSError, ValueError) as problem:
        return f"{mirror} does not answer: {problem}"


def in_system(folder: Path, release: str, chosen: argparse.Namespace) -> list[tuple[str, int]]:
    """Make a system and run targets there; return a line and an exit code for each."""
    # What it mounts there it leaves when it is ended; so it has mounts of its own, too. A mirror may stop answering.
    patient = ("timeout", "--kill-after=10", f"{chosen.minutes}m", "unshare", "--mount")
    debootstrap = (*patient, "env", UNSAFE, "debootstrap", "--variant=minbase", f"--include={BARE}")
    made = run(*debootstrap, RELEASES[release], folder, chosen.mirror)
    if made.returncode:
        last = "took too long" if made.returncode == _TIMEOUT else made.stdout.strip().splitlines()[-1]
        return [(f"left out: debootstrap: {last}", 0)]
    shutil.copy("/etc/resolv.conf", folder / "etc/resolv.conf")
    kept = {name: value for name, value in os.environ.items() if name.lower().endswith("_proxy")}
    certificates = os.environ.get("SSL_CERT_FILE", "")
    if Path(certificates).is_file():  # of a proxy that opens what passes through it
        shutil.copy(certificates, folder / "etc/ssl/certs/host.crt")
        kept |= dict.fromkeys(("SSL_CERT_FILE", "PIP_CERT"), "/etc/ssl/certs/host.crt")
    cloned = run("git", "-c", "safe.directory=*", "clone", "-q", "--no-local", ROOT, folder / "src")
    if cloned.returncode:
        return [(f"git clone: {cloned.stdout.strip()}", 1)]
    path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    environment = {"PATH": path, "HOME": "/root", "LC_ALL": "C.UTF-8", **dict([UNSAFE.split("=")]), **kept}
    outcomes = []
    for target in chosen.make:
        print(f"== Debian {release}: make {target}", flush=True)
        started, last = time.monotonic(), ""
        words = ["unshare", "--mount", "sh", "-euc", INSIDE, str(folder), "make", target]
        with subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            errors="replace", env=environment, start_new_session=True,
        ) as process:  # fmt: skip
            patience = threading.Timer(60 * chosen.minutes, os.killpg, (process.pid, signal.SIGKILL))
            patience.start()
            try:
                for line in process.stdout or ():
                    print(line, end="", flush=True)
                    last = line.strip() or last
            except KeyboardInterrupt:
                os.killpg(process.pid, signal.SIGTERM)
                raise
            finally:
                patience.cancel()
        took = time.monotonic() - started
        if process.returncode == -signal.SIGKILL and took >= 60 * chosen.minutes:
            last = "took too long"
        # What the target itself installs comes from the mirror, too.
        problem = process.returncode and why_not(chosen.mirror, RELEASES[release])
        why = f"left out: {problem}" if problem else f"{last} ({took:.0f} s)"
        outcomes.append((f"make {target}: {why}", 0 if problem else process.returncode))
        if process.returncode:
            break
    return outcomes


def run(*command: object) -> subprocess.CompletedProcess[str]:
    """Run a command; return its exit code and all that it printed."""
    words = [str(word) for word in command]
    output = subprocess.STDOUT
    return subprocess.run(words, stdout=subprocess.PIPE, stderr=output, text=True, errors="replace", check=False)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
