"""Which capabilities suffice to trace a program of another user, as docs/security.md says."""

from __future__ import annotations

import os
import subprocess
from typing import Any

import pytest

OTHER, NOBODY = "1234", 65534


@pytest.fixture
def limited(everybodys: Any) -> Any:
    """Run usdtbuild as a user who has some capabilities and nothing else."""

    def run(capabilities: str, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
        sets = [f"--{name}=-all{capabilities}" for name in ("inh-caps", "ambient-caps", "bounding-set")]
        user = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", *sets]
        return subprocess.run(
            [*user, everybodys.path, "-m", "usdtbuild", *words], env={**everybodys.environment, **more}, cwd="/",
            capture_output=True, text=True, timeout=60, check=False, stdin=subprocess.DEVNULL,
        )  # fmt: skip

    return run


@pytest.fixture
def pid(forged: Any) -> Any:
    words = ["setpriv", "--reuid", OTHER, "--regid", OTHER, "--clear-groups", str(forged(b"tick"))]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
        process.kill()


# A line of docs/security.md each: a command that looks at another user's process, what suffices, what is shown.
LOOKING = {
    "list": ((",+sys_ptrace",), "victim:tick"),
    "calls": ((",+sys_ptrace",), "usleep"),
    "functions": ((",+sys_ptrace", ",+dac_read_search"), "ELF executable"),
}


@pytest.mark.parametrize("name", LOOKING)
def test_looking_at_another_user_s_process(name: str, pid: str, limited: Any) -> None:
    capabilities, shown = LOOKING[name]
    done = limited("".join(capabilities), name, pid)
    assert done.returncode == 0, done.stderr
    assert shown in done.stdout
    assert "can't be read" not in done.stdout
    less = limited("", name, pid)
    assert (less.returncode, less.stdout) == (1, "")
    assert "permission denied" in less.stderr


@pytest.mark.parametrize("name", ["list", "verify", "functions", "calls"])
def test_looking_at_files_takes_none(name: str, forged: Any, limited: Any) -> None:
    done = limited("", name, str(forged(b"tick")))
    assert done.returncode in (0, 1), done.stderr
    assert "forged" in done.stdout, done.stderr


def test_the_front_gives_capabilities_up(pid: str, limited: Any, folder: Any) -> None:
    """Of two rights it has none, so a file can't be written where its user may not."""
    closed = folder / "closed"
    closed.mkdir(0o755)
    words = ("trace", "-p", pid, "--count", "--duration", "0.3", "-o", str(closed / "out.txt"))
    done = limited(",+sys_ptrace,+dac_override", *words)
    assert done.returncode == 1, done
    assert "permission denied" in done.stderr
    assert list(closed.iterdir()) == []


@pytest.mark.parametrize("engine", ["patch", "trap", "auto"])
def test_tracing_another_user_s_process_takes_two(engine: str, pid: str, limited: Any) -> None:
    words = ("trace", "-p", pid, "--engine", engine, "--count", "--duration", "0.3")
    done = limited(",+sys_ptrace,+dac_override", *words)
    assert "victim:tick" in done.stdout, done.stderr
    assert done.returncode == 0


LESS = ["", ",+sys_ptrace", ",+sys_ptrace,+dac_read_search", ",+dac_override"]


@pytest.mark.parametrize(
    ("engine", "capabilities"),
    [*(("auto", less) for less in LESS), *(("gdb", less) for less in (*LESS, ",+sys_ptrace,+dac_override"))],
)
def test_with_less_one_clear_error_says_so(engine: str, capabilities: str, pid: str, limited: Any) -> None:
    done = limited(capabilities, "trace", "-p", pid, "--engine", engine, "--count", "--duration", "0.3")
    assert done.returncode == 1, done
    assert "Traceback" not in done.stderr
    assert done.stderr.count("\n") == 1, done.stderr
    assert "root" in done.stderr


@pytest.mark.parametrize("engine", ["auto", "patch", "trap", "gdb", "inside"])
def test_a_program_of_one_s_own_takes_none(engine: str, limited: Any, built: Any, folder: Any) -> None:
    cache = folder.parent / "cache"  # of what the engine inside compiles
    cache.mkdir(0o700)
    os.chown(cache, NOBODY, NOBODY)
    words = ("trace", "--engine", engine, "--count", "--", str(built("victim")))
    done = limited("", *words, XDG_CACHE_HOME=str(cache))
    assert "1  victim:tick" in done.stdout, done.stderr


def test_a_gdb_server_takes_none(limited: Any) -> None:
    assert "can't be reached" in limited("", "trace", "--remote", "127.0.0.1:1", "--count").stderr


def test_bpftrace_says_which_it_lacks(limited: Any, forged: Any) -> None:
    done = limited("", "trace", "--engine", "bpftrace", "--", str(forged(b"tick")), "10")
    assert "CAP_BPF and CAP_PERFMON" in done.stderr, done.stderr
