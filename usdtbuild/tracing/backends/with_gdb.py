"""Drive gdb: run a program under it, or let it attach to a process that runs, and collect the hits.

No root is needed to run a program. To attach, Linux may want the permission of the process (Yama's ptrace_scope), which
the process we are in gives. Each hit stops the process for about a millisecond.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import TracerError
from ..tools import names
from . import Finished
from .hits import Hit, Traced, make_hit

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from . import Command

_SCRIPT = Path(__file__).with_name("inside_gdb.py")
_PR_SET_PTRACER, _ANY = 0x59616D61, ctypes.c_ulong(-1)
_JOB = "USDTBUILD_GDB_JOB"
_STREAMS = (("<", "stdin"), (">", "stdout"), ("2>", "stderr"))
_PYTHON_OF_GDB = "python import sys; assert sys.version_info >= (3, 6)"


def why_not(probes: Sequence[Traced] = ()) -> str:
    """Return why gdb can't be used here, or for these probes; '' if it can."""
    for probe in probes:
        if reason := names.why_not(probe.name):
            return reason
    gdb = shutil.which("gdb")
    if gdb is None:
        return "gdb is not installed"
    asked = [gdb, "-nx", "-batch", "-ex", _PYTHON_OF_GDB, "-ex", "python print('yes')"]
    said = subprocess.run(asked, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
    return "" if "yes" in said.stdout else f"{gdb} was built without Python 3"


def run(command: Command, binary: str, probes: Sequence[Traced]) -> tuple[Finished, list[Hit]]:
    """Run a program under gdb; return how it ended, and the hits. Raises TracerError and subprocess.TimeoutExpired."""
    with tempfile.TemporaryDirectory(prefix="usdtbuild-") as name:
        folder = Path(name)
        (folder / "stdin").write_text(command.stdin, encoding="utf-8", errors="surrogateescape")
        (folder / "script").write_text(_script(folder, command), encoding="utf-8", errors="surrogateescape")
        job = {**_job(folder, binary, probes), "script": str(folder / "script")}
        gdb = _start(folder, job, command.cwd, command.env)
        try:
            said = gdb.communicate(timeout=command.timeout)[0]
        except subprocess.TimeoutExpired:
            raise subprocess.TimeoutExpired(list(command.argv), command.timeout) from None
        finally:
            _end(gdb)
        hits, last = _read(folder, probes, said)
        if last.get("exited") is None:
            raise TracerError(f"gdb didn't see {command.argv[0]} end: {said.strip()[-1000:]}")
        texts = [(folder / stream).read_text("utf-8", "surrogateescape") for stream in ("stdout", "stderr")]
        return Finished(int(last["exited"]), *texts), hits


@contextlib.contextmanager
def attached(pid: int, binary: str, probes: Sequence[Traced]) -> Iterator[list[Hit]]:
    """Let gdb watch a process while the body of the `with` runs; the list is filled at its end. Raises TracerError."""
    hits: list[Hit] = []
    with tempfile.TemporaryDirectory(prefix="usdtbuild-") as name:
        folder = Path(name)
        job = {**_job(folder, binary, probes), "pid": pid, "ready": str(folder / "ready")}
        with permission(pid):
            gdb = _start(folder, job, None, os.environ)
            try:
                _wait_for(folder, gdb)
                try:
                    yield hits
                finally:
                    # However the body ended: gdb must take its breakpoints out of the process again.
                    if gdb.poll() is None:
                        os.kill(pid, signal.SIGURG)
                    said = gdb.communicate()[0]
            finally:
                _end(gdb)
        seen, last = _read(folder, probes, said)
        if "exited" not in last and "detached" not in last:
            raise TracerError(f"gdb could not watch process {pid}: {said.strip()[-1000:]}")
        hits += seen


def _is_not_for_gdb(name: str) -> bool:
    """Whether a variable changes what gdb, or the Python inside it, is; the traced program gets it nevertheless."""
    return re.fullmatch(r"(PYTHON|LD_)\w*|LINES|COLUMNS", name) is not None


def _script(folder: Path, command: Command) -> str:
    """Return a shell script that becomes the program; gdb follows it there. The program may be a script itself."""
    # gdb adds these two to the environment.
    lines = [f"unset {name}" for name in ("LINES", "COLUMNS", _JOB) if name not in command.env]
    lines += [f"export {name}={shlex.quote(value)}" for name, value in command.env.items() if _is_not_for_gdb(name)]
    streams = " ".join(f"{sign} {shlex.quote(str(folder / name))}" for sign, name in _STREAMS)
    return "\n".join([*lines, f"exec {' '.join(map(shlex.quote, command.argv))} {streams}\n"])


def _job(folder: Path, binary: str, probes: Sequence[Traced]) -> dict[str, Any]:
    wanted = [{"name": probe.name, "strings": [field.is_string for field in probe.fields]} for probe in probes]
    return {"probes": wanted, "binary": os.path.realpath(binary), "hits": str(folder / "hits")}


def _start(folder: Path, job: dict[str, Any], cwd: str | None, env: Mapping[str, str]) -> subprocess.Popen[str]:
    (folder / "job").write_text(json.dumps(job), encoding="utf-8")
    quiet = [word for setting in ("auto-load no", "debuginfod enabled off") for word in ("-iex", f"set {setting}")]
    return subprocess.Popen(
        [shutil.which("gdb") or "gdb", "-nx", "-batch", *quiet, "-x", str(_SCRIPT)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="surrogateescape",
        cwd=cwd,
        env={
            **{name: value for name, value in env.items() if not _is_not_for_gdb(name)},
            _JOB: str(folder / "job"),
        },
    )


def _end(gdb: subprocess.Popen[str]) -> None:
    """End gdb, and with it the program that it started."""
    if gdb.poll() is None:
        gdb.kill()
    gdb.wait()
    if gdb.stdout is not None:
        gdb.stdout.close()


@contextlib.contextmanager
def permission(pid: int) -> Iterator[None]:
    """While the body runs, let any process of ours attach to this process; for others nothing can be done here."""
    if pid != os.getpid():
        yield
        return
    libc = ctypes.CDLL(None)
    libc.prctl(_PR_SET_PTRACER, _ANY, 0, 0, 0)
    try:
        yield
    finally:
        libc.prctl(_PR_SET_PTRACER, 0, 0, 0, 0)


def _wait_for(folder: Path, gdb: subprocess.Popen[str]) -> None:
    """Wait until gdb has placed its breakpoints. Raises TracerError if it ends instead.

    gdb stops the process it attaches to, which may be this one, so that there is no sense in looking at the clock.
    """
    while not (folder / "ready").exists():
        if gdb.poll() is not None:
            said = gdb.communicate()[0]
            _read(folder, (), said)
            raise TracerError(f"gdb ended before it could trace: {said.strip()[-1000:]}")
        time.sleep(0.01)


def _read(folder: Path, probes: Sequence[Traced], said: str) -> tuple[list[Hit], dict[str, Any]]:
    """Return the hits that gdb wrote down, and its last words. Raises TracerError."""
    path = folder / "hits"
    lines = path.read_text("utf-8", "surrogateescape").splitlines() if path.exists() else []
    found = [json.loads(line) for line in lines]
    if not found or not isinstance(found[-1], dict):
        raise TracerError(f"gdb ended too early: {said.strip()[-1000:]}")
    last: dict[str, Any] = found.pop()
    if "error" in last:
        hint = ""
        if "ptrace" in last["error"].lower() or "not permitted" in last["error"].lower():
            hint = (
                "; is a debugger attached already, does the container lack --cap-add=SYS_PTRACE, or is"
                " /proc/sys/kernel/yama/ptrace_scope above 0?"
            )
        raise TracerError(f"gdb: {last['error'].strip().rstrip('.')}{hint}")
    return [make_hit(probes[index], values) for index, values in found], last
