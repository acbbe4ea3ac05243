"""A note that names any address as its probe's semaphore: nothing is counted there."""

from __future__ import annotations

from typing import Any

import pytest

REFUSED = "semaphore outside the"
# What the note says -> an expression of the assembler. The program isn't position-independent.
WRONG = {"constants": "constant", "code": "main", "nowhere": "0x10000", "half": "_end-1", "odd": "data+1", "huge": "-2"}


@pytest.mark.parametrize("engine", ["patch", "trap", "inside"])
@pytest.mark.parametrize("where", WRONG)
def test_only_writable_data_of_the_same_file_is_counted(where: str, engine: str, forged: Any, command: Any) -> None:
    program = forged(b"tick", WRONG[where])
    said = command("trace", "-P", "victim:*", "--engine", engine, "--", program, "300", timeout=30)
    assert REFUSED in said.err, said
    assert "victim:tick  " not in said.out


@pytest.mark.parametrize("engine", ["patch", "trap"])
def test_ordinary_semaphores_are_counted(engine: str, forged: Any, command: Any) -> None:
    said = command("trace", "-P", "victim:*", "--engine", engine, "--", forged(b"tick", "data"), "300")
    assert REFUSED not in said.err, said
    assert said.out.count("victim:tick") >= 3, said
