"""A tracer that may have little: what it then can't do it says, and does without where there is another way."""

from __future__ import annotations

import errno
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from usdtbuild.tracing import tracees

PROGRAM = """\
#include "app.h"
int main(void) {
    for (int i = 0; i < 100; i++) APP_GO(i);
    return 0;
}
"""


@pytest.fixture(scope="module")
def limited(usdtbuild: Any, run: Any, need: Any, tmp_path_factory: Any, header_of: Any) -> Any:
    """Trace with files of at most so many KB, or as much of something else: `limited(64, "--count")`."""
    folder = Path(tmp_path_factory.mktemp("limited"))
    header_of(folder, "app.d", "provider app { probe go(int i); };\n", "--formats=dof")
    (folder / "main.c").write_text(PROGRAM)
    usdtbuild("cc", "--", need("gcc"), "-O2", "-c", "main.c", "-o", "main.o", cwd=folder)
    run("gcc", "main.o", "-o", "program", cwd=folder)

    def trace(size: int, *words: str, of: str = "fsize") -> subprocess.CompletedProcess[str]:
        # Python would leave half of what it compiles in its cache.
        environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
        limit = [need("prlimit"), f"--{of}={size << 10}"]
        words = (sys.executable, "-m", "usdtbuild", "trace", "-P", "app:*", *words)  # a C library may have probes, too
        pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        return subprocess.run(
            [*limit, *words], text=True, env=environment, cwd=folder, timeout=120, check=False, **pipes
        )

    return trace


def test_without_memory_to_share_breakpoints_take_over(limited: Any) -> None:
    done = limited(64, "-v", "--", "./program")
    assert (done.returncode, done.stdout.count("app:go")) == (0, 100)
    assert "traced with trap" in done.stderr


def test_without_memory_to_share_jumps_are_refused_with_the_reason(limited: Any) -> None:
    done = limited(64, "--engine", "patch", "--", "./program")
    assert "not traced: app:go" in done.stderr
    assert "can't be shared" in done.stderr
    assert "file too large" in done.stderr


def test_with_little_address_space_buffers_are_smaller(limited: Any) -> None:
    """Sixteen of the usual size would take more of it than there is."""
    done = limited(1 << 20, "-v", "--", "./program", of="as")
    assert (done.returncode, done.stdout.count("app:go")) == (0, 100), done.stderr
    assert "traced with patch" in done.stderr
    assert "address space is limited (ulimit -v), so buffers have" in done.stderr
    quiet = limited(1 << 20, "--", "./program", of="as")
    assert (quiet.returncode, quiet.stdout.count("app:go"), quiet.stderr) == (0, 100, "")
    assert "address space" not in limited(1 << 20, "-v", "--count", "--", "./program", of="as").stderr  # no buffers


def test_what_is_lost_is_counted_and_said(scene: Any, usdtbuild: Any, tmp_path: Path) -> None:
    """A program that does nothing but hit is faster than any reader; what is kept and what is lost is all."""
    words = ("--buffer", 1, "-P", "scene:last", "-P", "scene:eight", "-o", tmp_path / "hits.jsonl", "-v")
    done = usdtbuild("trace", "--engine", "patch", *words, "--", scene("pie"), 400_000, 1)
    total = re.search(r"warning: (\d+) of 800000 hits were lost, because .*; --buffer makes more room", done.stderr)
    assert total, done.stderr
    each = re.findall(r"lost: (\d+) of 400000 hits of (\S+)", done.stderr)
    assert sorted(name for _, name in each) == ["scene:eight", "scene:last"]
    assert sum(int(number) for number, _ in each) == int(total[1]) > 0
    kept = (tmp_path / "hits.jsonl").read_text().splitlines()
    assert len(kept) == 800_000 - int(total[1]) > 0


def test_what_is_lost_is_said_under_quiet_too(scene: Any, usdtbuild: Any, tmp_path: Path) -> None:
    """A script would take what is there for all that there was."""
    words = ("--engine", "patch", "--buffer", 1, "-P", "scene:eight", "-o", tmp_path / "hits.jsonl", "-q")
    said = usdtbuild("trace", *words, "--", scene("pie"), 800_000, 1).stderr
    assert re.fullmatch(r"usdtbuild: warning: \d+ of 800000 hits were lost, because .*\n", said)


@pytest.mark.parametrize(
    ("scope", "owner", "said"),
    [
        ("1", None, "ptrace_scope is 1; start it with `usdtbuild trace -- COMMAND`, trace as root, or ask for `sysctl"
         " kernel.yama.ptrace_scope=0`"),
        ("2", None, "ptrace_scope is 2, which forbids tracing; ask for `sysctl kernel.yama.ptrace_scope=0`"),
        ("0", None, "the container lacks --cap-add=SYS_PTRACE"),
        (None, None, "the container lacks --cap-add=SYS_PTRACE"),
        ("1", "4711", "belongs to another user (4711); trace it as that user, as root, or with the"
         " capabilities CAP_SYS_PTRACE and CAP_DAC_OVERRIDE"),
    ],
)  # fmt: skip
def test_who_may_not_trace_a_process_hears_what_helps(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, scope: str | None, owner: str | None, said: str
) -> None:
    if scope is not None:
        (tmp_path / "ptrace_scope").write_text(scope + "\n")
    monkeypatch.setattr(tracees, "Path", lambda path: tmp_path / path.rpartition("/")[2])
    fields = {"Uid": f"{owner or 1000} 0 0 0", "TracerPid": "0"}
    monkeypatch.setattr(tracees, "status_field", lambda _, field: fields[field])
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert said in str(tracees.not_allowed(1, OSError(errno.EPERM, "no")))
