"""Sequences that reserve memory and store into it: who steps through one instruction by instruction never gets out.

User mode emulation does not show that, it compares values; a kernel does. So what is checked here is what is known of
such sequences, by what an assembler makes of them; tools/powerpc.py traces first calls of threads on a PowerPC kernel.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from elftools.elf.elffile import ELFFile

from usdtbuild.machines import facts_of

SEQUENCES = """
plain:
1:  {load} 5, 0, 3
    {store} 7, 0, 3
    bne- 1b
leaves:
2:  {load} 5, 0, 3
    cmpw 5, 4
    bne- 3f
    {store} 7, 0, 3
    bne- 2b
    isync
3:  blr
"""


@pytest.mark.parametrize("prefix", ["powerpc64le-linux-gnu", "powerpc64-linux-gnu", "powerpc-linux-gnu"])
@pytest.mark.parametrize(
    ("load", "store"),
    [
        ("lwarx", "stwcx."),
        ("ldarx", "stdcx."),
        ("lbarx", "stbcx."),
        ("lharx", "sthcx."),
    ],
)
def test_where_a_sequence_has_ended(prefix: str, load: str, store: str, run: Any, need: Any, tmp_path: Path) -> None:
    assembler = need(f"{prefix}-as")
    (tmp_path / "code.s").write_text(SEQUENCES.format(load=load, store=store))
    options = ["-many", *(["-a64"] if "64" in prefix else [])]
    run(assembler, *options, "code.s", "-o", "code.o", cwd=tmp_path)
    with (tmp_path / "code.o").open("rb") as file:
        elf = ELFFile(file)
        code = elf.get_section_by_name(".text").data()
        facts = facts_of({"EM_PPC": 20, "EM_PPC64": 21}[elf["e_machine"]])
        little = elf.little_endian
    assert facts is not None
    atomic = facts.stopped.atomic
    assert atomic is not None
    at = 0x10000
    found = {offset: atomic(code[offset:], at + offset, little) for offset in range(0, len(code), 4)}
    assert {offset: ends for offset, ends in found.items() if ends} == {0: (at + 8,), 12: (at + 28, at + 36)}
    # As much of it as there is: the end isn't known.
    assert atomic(code[:4], at, little) == atomic(b"", at, little) == ()
