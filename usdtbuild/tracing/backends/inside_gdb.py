"""The script that gdb runs: break at probes, write down each hit, go on. It imports nothing of usdtbuild.

gdb's own Python runs it, whichever version that is. The path of a JSON file with the job comes in the environment
variable USDTBUILD_GDB_JOB: `probes` (names, and which of their arguments are strings), `binary` (the file whose hits
count), `hits` (where to write them, a JSON line each), and either `script`, a shell script that becomes the program,
or `pid` with `ready`, the file that is made when the process may go on.
"""

from __future__ import annotations

import json
import os
import traceback
from pathlib import Path
from typing import IO, Any

import gdb

# Its default is to be ignored, and nobody sends it by accident: the traced process raises it when it is done.
LAST_SIGNAL = "SIGURG"


def main() -> None:
    """Do the job; what goes wrong is written down too, as the last line."""
    job = json.loads(Path(os.environ["USDTBUILD_GDB_JOB"]).read_text(encoding="utf-8"))
    with Path(job["hits"]).open("w", encoding="utf-8", errors="surrogateescape") as output:
        try:
            last = work(job, output)
        except gdb.error as error:
            last = {"error": str(error)}
        except Exception:  # the test that waits for us must learn what happened
            last = {"error": traceback.format_exc()}
        output.write(json.dumps(last) + "\n")


def work(job: dict[str, Any], output: IO[str]) -> dict[str, Any]:
    """Trace until the process ends, or says that it is done; return how it ended."""
    for setting in ("confirm off", "pagination off", "breakpoint pending on", "print thread-events off"):
        gdb.execute(f"set {setting}")
    gdb.execute("handle all nostop noprint pass", to_string=True)
    stops: list[Any] = []
    gdb.events.stop.connect(stops.append)
    breakpoints: dict[int, int] = {}
    first = "continue"
    if "pid" in job:
        gdb.execute(f"handle {LAST_SIGNAL} stop print nopass", to_string=True)
        gdb.execute(f"attach {job['pid']}", to_string=True)
    else:
        prepare_program(job["script"])
        first = "run"
    for index, probe in enumerate(job["probes"]):
        gdb.execute(f"break -probe-stap {probe['name']}", to_string=True)
        breakpoints[gdb.breakpoints()[-1].number] = index
    if "ready" in job:
        Path(job["ready"]).touch()
    gdb.execute(first, to_string=True)
    while gdb.selected_inferior().pid:
        stop = stops[-1] if stops else None
        if isinstance(stop, gdb.BreakpointEvent):
            for breakpoint_ in stop.breakpoints:
                if breakpoint_.number in breakpoints:
                    write_hit(job, breakpoints[breakpoint_.number], output)
        elif isinstance(stop, gdb.SignalEvent) and stop.stop_signal == LAST_SIGNAL and "pid" in job:
            gdb.execute("detach", to_string=True)
            return {"detached": True}
        stops.clear()
        gdb.execute("continue", to_string=True)
    code, number = gdb.convenience_variable("_exitcode"), gdb.convenience_variable("_exitsignal")
    return {"exited": -int(number) if number is not None else int(code) if code is not None else None}


def prepare_program(script: str) -> None:
    """Load the shell that becomes the program; a script can hold arguments that gdb's commands can't."""
    gdb.execute("file /bin/sh", to_string=True)
    for command in ("startup-with-shell off", f"args {script}", "disable-randomization off"):
        gdb.execute(f"set {command}", to_string=True)


def write_hit(job: dict[str, Any], index: int, output: IO[str]) -> None:
    """Write down one hit, unless another file has a probe of that name too."""
    space = gdb.current_progspace()
    path = space.solib_name(gdb.selected_frame().pc()) or space.filename
    if not path or str(Path(path).resolve()) != job["binary"]:
        return
    values = [read(position, text) for position, text in enumerate(job["probes"][index]["strings"])]
    output.write(json.dumps([index, values]) + "\n")


def read(position: int, is_text: bool) -> Any:
    """Return an argument's bits as a number, or the text it points to."""
    value = int(gdb.parse_and_eval(f"(unsigned long)$_probe_arg{position}"))
    if not is_text:
        return value
    if not value:
        return None
    try:
        return gdb.parse_and_eval(f"(char *)$_probe_arg{position}").string("utf-8", "surrogateescape")
    except gdb.MemoryError:
        return value


main()
