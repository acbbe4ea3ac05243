"""Programs of an unprivileged user that attack a root who traces them, and what root's commands make of them.

The programs run as NOBODY. Root's commands run with a limit on time, and their peak memory is known afterwards.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

SOURCES = Path(__file__).resolve().parent
ROOT = SOURCES.parent.parent
NOBODY = 65534


class Said(NamedTuple):
    """What a command of root's has said, and the most memory it took (bytes)."""

    code: int
    out: str
    err: str
    memory: int


@pytest.fixture(autouse=True)
def _as_root() -> None:
    if os.geteuid():
        pytest.skip("needs root, who is attacked here")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder that every user may use, as /tmp is."""
    for path in (tmp_path, *tmp_path.parents):
        if path.stat().st_uid == os.geteuid() and path != Path("/"):
            path.chmod(path.stat().st_mode | 0o711)
        if path.name.startswith("pytest-of-"):
            break
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o1777)
    return shared


@pytest.fixture
def built(run: Any, tmp_path: Path, folder: Path) -> Callable[..., Path]:
    """Build a C file of this folder that has probes of victim.d; return the program."""
    del folder  # it opens the way to tmp_path

    def build(name: str, *options: str) -> Path:
        module = sys.executable, "-m", "usdtbuild"
        for path in SOURCES.glob("*.[cd]"):
            shutil.copy(path, tmp_path)
        run(*module, "header", "--formats=dof", "victim.d", "-o", "victim.h", cwd=tmp_path)
        run(*module, "cc", "--", "gcc", "-O2", "-Wall", "-Werror", f"{name}.c", *options, "-o", name, cwd=tmp_path)
        return tmp_path / name

    return build


# A program with a note that is written by hand: site, semaphore and all. It hits its site a thousand times a second.
_FORGED = """\
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

long data = 7;
static const long constant = 7;
int main(int count, char **words)
{
  int most = count > 1 ? atoi(words[1]) : 0;
  printf("%d\\n", (int)getpid());
  fflush(stdout);
  for (int i = 0; !most || i < most; i++) {
    __asm__ volatile("990: nop\\n"
      ".pushsection .note.stapsdt,\\"\\",\\"note\\"\\n.balign 4\\n.4byte 992f-991f,994f-993f,3\\n"
      "991: .asciz \\"stapsdt\\"\\n992: .balign 4\\n993: .8byte 990b,_.stapsdt.base,SEMAPHORE\\n"
      ".asciz \\"victim\\"\\n.byte NAME\\n.asciz \\"-4@%0\\"\\n994: .balign 4\\n.popsection\\n"
      ".ifndef _.stapsdt.base\\n.pushsection .stapsdt.base,\\"aG\\",\\"progbits\\",.stapsdt.base,comdat\\n"
      ".weak _.stapsdt.base\\n.hidden _.stapsdt.base\\n_.stapsdt.base: .space 1\\n.popsection\\n.endif"
      : : "r"(i), "m"(data), "m"(constant));
    usleep(1000);
  }
}
"""


@pytest.fixture
def forged(run: Any, tmp_path: Path, folder: Path) -> Callable[..., Path]:
    """Build a program whose note says whatever one likes: `forged(name, semaphore)`, an expression of the assembler."""
    del folder

    def build(name: bytes, semaphore: str = "0") -> Path:
        text = _FORGED.replace("NAME", ",".join(map(str, name + b"\0"))).replace("SEMAPHORE", semaphore)
        (tmp_path / "forged.c").write_text(text)
        run("gcc", "-O2", "-no-pie", "forged.c", "-o", "forged", cwd=tmp_path)
        return tmp_path / "forged"

    return build


@pytest.fixture
def attacker() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Start a program as NOBODY, which is ended afterwards: `attacker(words)`."""
    started: list[subprocess.Popen[str]] = []

    def start(*words: str | Path, **more: Any) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [str(word) for word in words],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True,
            user=NOBODY, group=NOBODY, extra_groups=[], **more,
        )  # fmt: skip
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


# Runs a command in a process that was forked of a small one: what it took at most begins with what its parent has.
_MEASURED = """
import os, sys
pid = os.fork()
if not pid:
    os.execvp(sys.argv[2], sys.argv[2:])
_, status, usage = os.wait4(pid, 0)
os.write(int(sys.argv[1]), b"%d" % usage.ru_maxrss)
code = os.waitstatus_to_exitcode(status)
sys.exit(code if code >= 0 else 128 - code)
"""


class Everybodys(NamedTuple):
    """A Python that every user may run, with the environment in which it finds this checkout."""

    path: str
    environment: dict[str, str]


@pytest.fixture
def everybodys() -> Everybodys:
    """Return /usr/bin/python3, if it is of the version that runs the tests: theirs may be in a folder of root's own."""
    python = shutil.which("python3", path="/usr/bin") or "false"
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    asked = [python, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"]
    if subprocess.run(asked, capture_output=True, text=True, check=False).stdout.strip() != version:
        pytest.skip(f"every user must be able to run this version of Python ({version}) as /usr/bin/python3")
    environment = {
        "HOME": "/nonexistent", "PATH": "/usr/bin:/bin:/usr/sbin", "LC_ALL": "C.UTF-8",
        "PYTHONPATH": f"{ROOT}:{sysconfig.get_path('purelib')}",
    }  # fmt: skip
    as_nobody: dict[str, Any] = {"user": NOBODY, "group": NOBODY, "extra_groups": []}
    line = [python, "-c", "import usdtbuild.cli"]
    if subprocess.run(line, env=environment, cwd="/", capture_output=True, check=False, **as_nobody).returncode:
        pytest.skip("other users may not read this checkout")
    return Everybodys(python, environment)


@pytest.fixture
def command() -> Callable[..., Said]:
    """Run a command line of usdtbuild as root: `command("list", path, timeout=10)`; `memory` limits its data."""

    def execute(
        *words: str | Path, timeout: float = 60, memory: int = 0, python: str = sys.executable, **more: Any
    ) -> Said:
        limit = ["prlimit", f"--as={memory}"] if memory else []
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err, tempfile.TemporaryFile() as most:
            process = subprocess.Popen(
                [sys.executable, "-S", "-c", _MEASURED, str(most.fileno()), *limit,
                 python, "-m", "usdtbuild", *map(str, words)],
                stdin=subprocess.DEVNULL, stdout=out, stderr=err, pass_fds=[most.fileno()], start_new_session=True,
                **more,
            )  # fmt: skip
            try:
                code = process.wait(timeout)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                code = None
            texts = []
            for file in (out, err, most):
                file.seek(0)
                texts.append(file.read().decode("utf-8", "replace"))
        if code is None:
            pytest.fail(f"didn't end within {timeout} s: {texts[0][-2000:]!r} {texts[1][-2000:]!r}")
        said = Said(code, texts[0], texts[1], int(texts[2]) << 10)
        assert "Traceback" not in said.err, said.err
        return said

    return execute
