"""Which capabilities suffice to trace a program of another user, as docs/security.md says."""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
OTHER = "1234"


@pytest.fixture
def limited() -> Any:
    """Run usdtbuild as a user who has some capabilities and nothing else."""
    python = shutil.which("python3", path="/usr/bin") or ""
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    asked = [python or "false", "-c", "import sys; print('%d.%d' % sys.version_info[:2])"]
    if subprocess.run(asked, capture_output=True, text=True, check=False).stdout.strip() != version:
        pytest.skip(f"every user must be able to run this version of Python ({version}) as /usr/bin/python3")

    def run(capabilities: str, *words: str) -> subprocess.CompletedProcess[str]:
        sets = [f"--{name}=-all{capabilities}" for name in ("inh-caps", "ambient-caps", "bounding-set")]
        user = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", *sets]
        environment = {
            "HOME": "/nonexistent", "PATH": "/usr/bin:/bin:/usr/sbin",
            "PYTHONPATH": f"{ROOT}:{sysconfig.get_path('purelib')}",
        }  # fmt: skip
        command = [*user, python, "-m", "usdtbuild", *words]
        done = subprocess.run(
            command, env=environment, cwd="/", capture_output=True, text=True, timeout=60, check=False,
            stdin=subprocess.DEVNULL,
        )  # fmt: skip
        if "No module named" in done.stderr:
            pytest.skip("other users may not read this checkout")
        return done

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
