"""Look for known vulnerabilities of the packages that tools/locked lists: `make audit`.

Asks the services that pip-audit knows, about exactly what is locked. A vulnerability that is known is an error. Where
no service can be reached that is said, and is none. It is not part of the product.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

LOCKED = Path(__file__).resolve().parent / "locked"
# Of the tools that the tests build samples with, the oldest that are supported are installed because they are old.
LISTS = ("demo", "test", "wheelhouse")


def main() -> int:
    """Look; return the exit code."""
    code = 0
    for name in LISTS:
        words = ["-r", str(LOCKED / f"{name}.txt"), "--require-hashes", "--disable-pip", "--progress-spinner", "off"]
        command = [sys.executable, "-m", "pip_audit", *words, "--timeout", "10", "--format", "json"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        looked_at, found = read(done.stdout)
        for package, version, problem in found:
            print(f"tools/locked/{name}.txt: {package} {version}: {problem}")
        if looked_at:
            print(f"tools/locked/{name}.txt: {looked_at} packages looked at, {len(found)} known vulnerabilities")
        else:
            print(f"tools/locked/{name}.txt: not looked at, because no service that knows vulnerabilities was reached")
        code |= bool(found)
    return code


def read(said: str) -> tuple[int, list[tuple[str, str, str]]]:
    """Return how many packages a service knew, and package, version and vulnerability of each that is known."""
    try:
        packages = [one for one in json.loads(said)["dependencies"] if "skip_reason" not in one]
    except (ValueError, KeyError):
        return 0, []
    return len(packages), [
        (one["name"], one["version"], f"{problem['id']}, fixed in {', '.join(problem['fix_versions']) or 'no version'}")
        for one in packages
        for problem in one["vulns"]
    ]


if __name__ == "__main__":
    sys.exit(main())
