"""Calls of programs of other machines under qemu: exact, with arguments, from stripped files too."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

# name -> the compiler's prefix, and the emulator
MACHINES = {
    "aarch64": ("aarch64-linux-gnu", "qemu-aarch64"), "arm": ("arm-linux-gnueabihf", "qemu-arm"),
    "i386": ("i686-linux-gnu", "qemu-i386"), "ppc": ("powerpc-linux-gnu", "qemu-ppc"),
    "ppc64": ("powerpc64-linux-gnu", "qemu-ppc64"), "ppc64le": ("powerpc64le-linux-gnu", "qemu-ppc64le"),
    "riscv64": ("riscv64-linux-gnu", "qemu-riscv64"), "s390x": ("s390x-linux-gnu", "qemu-s390x"),
}  # fmt: skip
FORMS = {"lazy": ("-Wl,-z,lazy", "-s"), "now": ("-Wl,-z,now", "-s"), "exe": ("-no-pie", "-fno-pie", "-s")}
SOURCE = r"""
#include <stdlib.h>
#include <string.h>
int main(int argc, char **argv)
{
	for (int i = 0; i < 40; i++) srand(1000 + i);
	setenv("CALLS", "a text", -1);
	return strncmp(getenv("CALLS"), "another", 2) == 0;
}
"""


@pytest.mark.parametrize("form", ["lazy", *(pytest.param(one, marks=pytest.mark.slow) for one in ("now", "exe"))])
@pytest.mark.parametrize("machine", MACHINES)
def test_calls_under_an_emulator(machine: str, form: str, need: Any, run: Any, usdtbuild: Any, tmp_path: Path) -> None:
    prefix, emulator = MACHINES[machine]
    need(emulator)
    if not shutil.which(f"{prefix}-gcc") or not Path(f"/usr/{prefix}").is_dir():
        pytest.skip(f"no {prefix}-gcc with its libraries is installed")
    (tmp_path / "main.c").write_text(SOURCE)
    run(f"{prefix}-gcc", "-O1", "-fno-builtin", *FORMS[form], "main.c", "-o", "main", cwd=tmp_path)
    words = ["trace", "--emulator", emulator, "--sysroot", f"/usr/{prefix}", "--module", "main", "-L", "*"]
    done = usdtbuild(*words, "--", tmp_path / "main")
    shown = [line[21:] for line in done.stdout.splitlines()]
    assert [line for line in shown if line.startswith("srand")] == [f"srand seed={1000 + i}" for i in range(40)]
    assert [line for line in shown if line.startswith(("setenv", "getenv", "strncmp"))] == [
        'setenv name="CALLS" value="a text" overwrite=-1', 'getenv name="CALLS"',
        'strncmp s1="a text" s2="another" n=2',
    ]  # fmt: skip
