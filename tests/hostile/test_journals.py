"""Journals in a process that no tracer has left there."""

from __future__ import annotations

from typing import Any

import pytest


@pytest.mark.parametrize("entries", [10, 1 << 20, 100_000_000])
def test_forged_journals_cost_neither_memory_nor_time(entries: int, built: Any, attacker: Any, command: Any) -> None:
    process = attacker(built("journal_forger"), str(entries), "0")
    pid = process.stdout.readline().strip()
    time = "9" if entries == 1 << 20 else "3"  # with 2 s more it is for arming, too, also on a busy machine
    said = command("trace", "-p", pid, "--count", "--duration", time, timeout=100)
    assert said.code == 0, said
    assert "victim:tick" in said.out
    assert said.memory < 300 << 20, said.memory >> 20


def test_a_forged_journal_of_what_can_t_be_written_ends_nothing(built: Any, attacker: Any, command: Any) -> None:
    process = attacker(built("journal_forger"), "2", "1")
    said = command("trace", "-p", process.stdout.readline().strip(), "--count", "--duration", "3")
    assert said.code == 0, said
    assert "victim:tick" in said.out
