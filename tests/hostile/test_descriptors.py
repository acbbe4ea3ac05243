"""A neighbour that shares the traced program's descriptors swaps them while the tracer takes one over."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

ROUNDS = 6
SECRET = b"root's own\n" * 1000


@pytest.mark.parametrize("rounds", [ROUNDS, pytest.param(100, marks=pytest.mark.slow)])
def test_a_swapped_descriptor_is_never_written(
    rounds: int, folder: Path, built: Any, attacker: Any, command: Any
) -> None:
    program = built("descriptor_swap")
    secret = folder.parent / "secret"
    secret.write_bytes(SECRET)
    secret.chmod(0o600)
    told = 0
    for _ in range(rounds):
        process = attacker(program, secret)
        pid = process.stdout.readline().strip()
        said = command("trace", "-p", pid, "-P", "victim:tick", "--count", "--duration", "0.1")
        assert secret.read_bytes() == SECRET, said
        assert said.code in (0, 1), said
        told += "another file" in said.err
        process.kill()
    assert (secret.stat().st_mode & 0o777, secret.stat().st_uid) == (0o600, 0)
