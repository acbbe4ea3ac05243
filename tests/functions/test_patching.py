"""A program that patches itself byte by byte: what is called hotpatchable survives it, what is refused doesn't.

`sources/patcher.c` calls its function in each state that another thread could meet it in. Whether a form of entry
holds is so a fact of this processor, not an opinion, and `usdtbuild functions` must say the same.
"""

from __future__ import annotations

import platform
import re
from pathlib import Path
from typing import Any

import pytest

SOURCE = Path(__file__).parent / "sources" / "patcher.c"
STATES = ["bare", "padding", "half", "patched", "half-restored"]

pytestmark = pytest.mark.skipif(platform.machine() != "x86_64", reason="the patcher is written for x86-64")


@pytest.fixture
def patched(run: Any, by_name: Any, tmp_path: Any) -> Any:
    """Build the patcher and let it run: `patched(compiler, pair, *options, times=0)`, its row and what it printed."""

    def build_and_run(compiler: str, pair: str, *options: str, times: int = 0) -> Any:
        built = tmp_path / "patcher"
        flag = f"-fpatchable-function-entry={pair}"
        run(compiler, "-O1", "-fno-pie", "-no-pie", "-pthread", flag, *options, SOURCE, "-o", built)
        row = by_name(built)["target"]
        first = re.findall(r"NOPs? of (\d+) byte", row["form"])[0]
        landing = 4 if "endbr64" in row["form"] else 0
        done = run(built, landing, row["nops"], first, times, code=None)
        lines = re.findall(r"^(\S+) (\S+) (-?\d+)$", done.stdout, re.MULTILINE)
        assert {state for state, _, _ in lines} >= set(STATES), done
        return row, [(state, place, int(signal)) for state, place, signal in lines]

    return build_and_run


@pytest.mark.parametrize("protection", ["none", "branch"])
@pytest.mark.parametrize("pair", ["7,5", "8,5", "9,5", "12,5"])
def test_entries_of_one_byte_nops_bear_half_a_patch(patched: Any, need: Any, pair: str, protection: str) -> None:
    row, lines = patched(need("gcc"), pair, f"-fcf-protection={protection}", times=300)
    assert row["hotpatchable"], row
    assert {place for _, place, _ in lines} == {"symbol", "second", "wrong"}
    assert not any(number for _, _, number in lines), lines


@pytest.mark.parametrize("protection", ["none", "branch"])
def test_an_entry_of_one_nop_of_two_bytes_bears_half_a_patch(patched: Any, need: Any, protection: str) -> None:
    row, lines = patched(need("clang"), "7,5", f"-fcf-protection={protection}", times=300)
    assert row["hotpatchable"], row
    assert row["form"].endswith("1 NOP of 2 bytes (xchg %ax,%ax)")
    assert not any(number for _, _, number in lines), lines


@pytest.mark.parametrize("protection", ["none", "branch"])
@pytest.mark.parametrize("pair", ["8,5", "9,5", "10,5", "11,5", "12,5"])
def test_an_entry_of_one_long_nop_is_refused_and_crashes(patched: Any, need: Any, pair: str, protection: str) -> None:
    row, lines = patched(need("clang"), pair, f"-fcf-protection={protection}")
    assert row["reason"] == "long-nop"
    n, m = map(int, pair.split(","))
    assert f"first NOP has {n - m} bytes" in row["detail"]
    crashed = {state for state, _, signal in lines if signal > 0}
    assert crashed == {"half", "half-restored"}, lines


@pytest.mark.parametrize("pair", ["8,5", "9,5", "12,5"])
def test_flags_refuses_a_pair_that_becomes_one_long_nop(usdtbuild: Any, need: Any, pair: str) -> None:
    done = usdtbuild("flags", "--patchable", pair, "--compiler", need("clang"), code=1)
    assert f"-fpatchable-function-entry={pair} can't be patched safely: " in done.stderr
    assert "the entry's first NOP has" in done.stderr
    assert done.stderr.endswith("use 7,5\n")
    assert "miscompiles" not in done.stderr
    assert done.stdout == ""
    done = usdtbuild("flags", "--patchable", pair, "--compiler", need("gcc"))
    assert done.stdout == f"-fpatchable-function-entry={pair}\n"
