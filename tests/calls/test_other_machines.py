"""Calls of programs of other machines under qemu: exact, with arguments, from stripped files too."""

from __future__ import annotations

import re
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
def test_calls_under_an_emulator(machine: str, form: str, run: Any, usdtbuild: Any, tmp_path: Path, cross: Any) -> None:
    prefix, emulator = MACHINES[machine]
    (tmp_path / "main.c").write_text(SOURCE)
    run(cross(prefix, emulator), "-O1", "-fno-builtin", *FORMS[form], "main.c", "-o", "main", cwd=tmp_path)
    words = ["trace", "--emulator", emulator, "--sysroot", f"/usr/{prefix}", "--module", "main", "-L", "*"]
    done = usdtbuild(*words, "--", tmp_path / "main")
    shown = [line[21:] for line in done.stdout.splitlines()]
    assert [line for line in shown if line.startswith("srand")] == [f"srand seed={1000 + i}" for i in range(40)]
    assert [line for line in shown if line.startswith(("setenv", "getenv", "strncmp"))] == [
        'setenv name="CALLS" value="a text" overwrite=-1', 'getenv name="CALLS"',
        'strncmp s1="a text" s2="another" n=2',
    ]  # fmt: skip


# name -> the compiler's prefix, the emulator, and what makes calls load their slot themselves
SLOT_MACHINES = {
    "aarch64": ("aarch64-linux-gnu", "qemu-aarch64", "-fno-plt"),
    "arm": ("arm-linux-gnueabihf", "qemu-arm", "-marm -mlong-calls"),
    "thumb": ("arm-linux-gnueabihf", "qemu-arm", "-mthumb -mlong-calls"),
    "riscv64": ("riscv64-linux-gnu", "qemu-riscv64", "-mno-plt"),
    "mips": ("mips-linux-gnu", "qemu-mips", ""), "mips64el": ("mips64el-linux-gnuabi64", "qemu-mips64el", ""),
}  # fmt: skip
LOOP = r"""
#include <stdlib.h>
int main(int argc, char **argv)
{
	int sum = 0;
	for (int i = 0; i < 30; i++) {
		sum += abs(i - 10);
		if (i % 3 == 0) srand(sum);
	}
	return getenv("nothing of this name") != 0;
}
"""


@pytest.mark.parametrize("machine", SLOT_MACHINES)
def test_calls_that_load_their_slot_are_counted(
    machine: str, run: Any, usdtbuild: Any, tmp_path: Path, cross: Any
) -> None:
    prefix, emulator, options = SLOT_MACHINES[machine]
    (tmp_path / "main.c").write_text(LOOP)
    words = [cross(prefix, emulator), "-O1", "-fno-builtin", "-fPIE", "-pie", *options.split()]
    run(*words, "main.c", "-o", "main", cwd=tmp_path)
    words = ["trace", "--count", "--emulator", emulator, "--sysroot", f"/usr/{prefix}", "--module", "main"]
    done = usdtbuild(*words, "-L", "abs", "-L", "srand", "-L", "getenv", "--", tmp_path / "main")
    found = {name: int(number) for number, name in re.findall(r"^ *(\d+)  (\w+)", done.stdout, re.MULTILINE)}
    assert found == {"abs": 30, "srand": 10, "getenv": 1}


@pytest.mark.parametrize("options", [[], ["--count"]])
def test_thumb_entries_of_stubs_are_counted_once(
    options: list[str], run: Any, usdtbuild: Any, tmp_path: Path, cross: Any
) -> None:
    """Thumb code of ARMv4T enters a stub by `bx pc`, four bytes before the entry of ARM code, and so passes both."""
    cross("arm-linux-gnueabi", "qemu-arm")
    (tmp_path / "main.c").write_text(SOURCE)
    gcc = ["arm-linux-gnueabi-gcc", "-O1", "-fno-builtin", "-mthumb", "-march=armv4t", "-Wl,-z,lazy"]
    run(*gcc, "main.c", "-o", "main", cwd=tmp_path)
    words = [
        "trace",
        "--emulator",
        "qemu-arm",
        "--sysroot",
        "/usr/arm-linux-gnueabi",
        "--module",
        "main",
        "-L",
        "srand",
    ]
    done = usdtbuild(*words, *options, "--", tmp_path / "main")
    assert done.stdout.split() == ["40", "srand"] if options else done.stdout.count("srand seed=") == 40
