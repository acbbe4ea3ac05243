"""Runs command lines of `usdtbuild` and of the drop-in `dtrace`, each in a forked child, within bounds.

Started as a program by the fuzzers: it imports the product once, and for each line of JSON on its standard input runs a
command and answers with a line: exit code, signal, processor time, memory and what was printed. A fork costs a
hundredth of a new interpreter. The bounds are the kernel's: memory by RLIMIT_AS, processor time by RLIMIT_CPU.
"""

from __future__ import annotations

import importlib
import io
import json
import os
import resource
import signal
import sys
import time
from pathlib import Path
from typing import Any

MEMORY, SECONDS = 500 << 20, 5
MODULES = {"usdtbuild": "usdtbuild.__main__", "dtrace": "usdtbuild.dtrace"}
HANG = 120  # seconds by the clock: nothing that waits for ever may hold up the tests


def run(job: dict[str, Any]) -> dict[str, Any]:
    """Run one command in a child; return what became of it."""
    said = Path(job["cwd"]) / ".said"
    pid = os.fork()
    if not pid:
        child(job, said)
    deadline = time.monotonic() + HANG
    while True:
        ended, status, usage = os.wait4(pid, os.WNOHANG)
        if ended:
            break
        if time.monotonic() > deadline:
            os.kill(pid, signal.SIGKILL)
        time.sleep(0.001)
    out, err = (Path(f"{said}.{which}") for which in ("out", "err"))
    answer = {
        "code": os.waitstatus_to_exitcode(status), "seconds": usage.ru_utime + usage.ru_stime,
        "memory": usage.ru_maxrss << 10, "out": out.read_text("utf-8", "replace"),
        "err": err.read_text("utf-8", "replace"),
    }  # fmt: skip
    out.unlink()
    err.unlink()
    return answer


def child(job: dict[str, Any], said: Path) -> None:
    """Be the command: never returns."""
    code = 99
    try:
        os.chdir(job["cwd"])
        for number, mode, path in ((0, os.O_RDONLY, "/dev/null"), (1, os.O_CREAT | os.O_WRONLY, f"{said}.out"),
                                   (2, os.O_CREAT | os.O_WRONLY, f"{said}.err")):  # fmt: skip
            file = os.open(path, mode, 0o600)
            os.dup2(file, number)
            os.close(file)
        sys.stdout, sys.stderr = (io.TextIOWrapper(io.FileIO(number, "w", closefd=False)) for number in (1, 2))
        now = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (now + MEMORY, now + MEMORY))
        resource.setrlimit(resource.RLIMIT_CPU, (2 * SECONDS, 2 * SECONDS))
        program, *arguments = job["command"]
        sys.argv = [program, *arguments]
        code = importlib.import_module(MODULES[program]).main()
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code or 0)


def main() -> None:
    """Answer until the standard input ends."""
    from usdtbuild.cli import COMMANDS

    for module, _ in COMMANDS.values():
        importlib.import_module(f"usdtbuild.commands.{module}")
    for module in ("__main__", "dtrace", "provider.fast", "provider.header", "provider.parser", "verify"):
        importlib.import_module(f"usdtbuild.{module}")
    for line in sys.stdin:
        print(json.dumps(run(json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
