"""`usdtbuild trace --call`: calls of library functions are counted exactly, through stubs and without."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.skipif(os.uname().machine != "x86_64", reason="the engines are for x86-64")
SOURCE = """
#include <stdlib.h>
int main(int argc, char **argv)
{
	long sum = 0;
	for (int i = 0; i < 50; i++) {
		srand(0x123400 + i);
		sum += rand() + rand();
	}
	return sum == 0;
}
"""
FORMS = [
    ("-Wl,-z,lazy",), ("-Wl,-z,now",), ("-fno-plt",), ("-fcf-protection=full", "-Wl,-z,ibtplt"), ("-no-pie", "-s"),
]  # fmt: skip


@pytest.fixture(params=FORMS, ids=" ".join)
def program(request: Any, run: Any, tmp_path: Path) -> Path:
    """The program, called as its folder's `main`."""
    (tmp_path / "main.c").write_text(SOURCE)
    run("gcc", "-O1", *request.param, "main.c", "-o", "main", cwd=tmp_path)
    return tmp_path / "main"


def test_calls_are_counted_exactly(program: Path, usdtbuild: Any) -> None:
    done = usdtbuild("trace", "--count", "-L", "*rand", "--module", "main", "--", program)
    counts = {name: int(number) for number, name in re.findall(r"(\d+)\s+(s?rand)\b", done.stdout)}
    assert counts == {"srand": 50, "rand": 100}, done.stdout + done.stderr


def test_calls_are_shown_with_their_registers(program: Path, usdtbuild: Any) -> None:
    done = usdtbuild("trace", "-L", "srand@*", "--module", "main", "--", program)
    lines = [line for line in done.stdout.splitlines() if "srand" in line]
    assert len(lines) == 50
    for number, line in enumerate(lines):
        assert f"arg1={0x123400 + number:#x}" in line
