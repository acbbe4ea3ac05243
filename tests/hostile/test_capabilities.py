"""Which capabilities suffice to trace a program of another user, as docs/security.md says."""

from __future__ import annotations

import subprocess
from typing import Any

import pytest

OTHER = "1234"


@pytest.fixture
def limited(everybodys: Any) -> Any:
    """Run usdtbuild as a user who has some capabilities and nothing else."""

    def run(capabilities: str, *words: str) -> subprocess.CompletedProcess[str]:
        sets = [f"--{name}=-all{capabilities}" for name in ("inh-caps", "ambient-caps", "bounding-set")]
        user = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", *sets]
        return subprocess.run(
            [*user, everybodys.path, "-m", "usdtbuild", *words], env=everybodys.environment, cwd="/",
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


@pytest.mark.parametrize("engine", ["patch", "trap", "auto"])
def test_tracing_another_user_s_process_takes_two(engine: str, pid: str, limited: Any) -> None:
    words = ("trace", "-p", pid, "--engine", engine, "--count", "--duration", "0.3")
    done = limited(",+sys_ptrace,+dac_override", *words)
    assert "victim:tick" in done.stdout, done.stderr
    assert done.returncode == 0


@pytest.mark.parametrize("capabilities", ["", ",+sys_ptrace", ",+sys_ptrace,+dac_read_search", ",+dac_override"])
def test_with_less_one_clear_error_says_so(capabilities: str, pid: str, limited: Any) -> None:
    done = limited(capabilities, "trace", "-p", pid, "--count", "--duration", "0.3")
    assert done.returncode == 1, done
    assert "Traceback" not in done.stderr
    assert done.stderr.count("\n") == 1, done.stderr
    assert "root" in done.stderr


def test_a_program_of_one_s_own_takes_none(limited: Any, forged: Any) -> None:
    done = limited("", "trace", "--count", "--", str(forged(b"tick")), "100")
    assert "100  victim:tick" in done.stdout, done.stderr


def test_bpftrace_says_which_it_lacks(limited: Any, forged: Any) -> None:
    done = limited("", "trace", "--engine", "bpftrace", "--", str(forged(b"tick")), "10")
    assert "CAP_BPF and CAP_PERFMON" in done.stderr, done.stderr
