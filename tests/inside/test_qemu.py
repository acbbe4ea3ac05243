"""The live runtime on other machines, under qemu: with threads where there is a protocol, else that it says so."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).resolve().parent
RUNTIME = HERE.parent.parent / "usdtbuild" / "runtime" / "live"
NONE = r"""
#include <stdio.h>
#include "usdt_live.h"
int main(void)
{
	int probes = usdt_live_probe_on("*", NULL, NULL), functions = usdt_live_function_on("*", NULL, NULL, NULL);
	puts(usdt_live_error(probes));
	return probes != USDT_LIVE_BAD_MACHINE || functions != probes || usdt_live_probe_off("*") != probes;
}
"""


@pytest.fixture
def qemu(run: Any, runtime: Any, usdtbuild: Any, need: Any, tmp_path: Path) -> Any:
    """Compile a program of this folder for a machine, with the runtime, and run it: `qemu("aarch64", source, ...)`."""

    def build_and_run(machine: str, triple: str, source: Path, flags: tuple[str, ...], *words: Any) -> str:
        compiler, emulator = need(f"{triple}-gcc"), need(f"qemu-{machine}")
        for provider in HERE.glob("*.d"):
            usdtbuild("header", provider, "-o", tmp_path / f"{provider.stem}.h")
        objects = runtime(compiler, "-O2", *flags)
        compile_ = (compiler, "-O2", *flags, "-I", tmp_path, "-I", RUNTIME, "-c", source, "-o", tmp_path / "program.o")
        usdtbuild("cc", "--", *compile_)
        link = [flag for flag in flags if flag != "-fpatchable-function-entry=1,0"]
        run(compiler, *link, "-static", tmp_path / "program.o", *objects, "-lpthread", "-o", tmp_path / "program")
        return str(run(emulator, tmp_path / "program", *words).stdout)

    return build_and_run


@pytest.mark.parametrize("protection", ["none", "standard"])
def test_aarch64_sites_are_switched_under_threads(protection: str, qemu: Any) -> None:
    flags = (f"-mbranch-protection={protection}",)
    out = qemu("aarch64", "aarch64-linux-gnu", HERE / "stress_probes.c", flags, 40, 4)
    found = {name: int(value) for name, value in re.findall(r"([a-z-]+) (\d+)", out)}
    assert (found["wrong-results"], found["wrong-arguments"], found["failed"]) == (0, 0, 0)
    assert found["counted"] == 6400
    assert found["handled"] > 100


@pytest.mark.parametrize("protection", ["none", "standard"])
def test_aarch64_functions_are_switched_under_threads(
    protection: str, run: Any, runtime: Any, need: Any, tmp_path: Path
) -> None:
    compiler, emulator = need("aarch64-linux-gnu-gcc"), need("qemu-aarch64")
    flags = (f"-mbranch-protection={protection}",)
    lines = [f"__attribute__((noinline)) long g_{i}(long x) {{ return x * 3 + {i}; }}\n" for i in range(300)]
    table = ",".join(f"g_{i}" for i in range(300))
    (tmp_path / "many.c").write_text("".join(lines) + f"long (*const functions[])(long) = {{{table}}};\n")
    run(compiler, "-O1", *flags, "-fpatchable-function-entry=1,0", "-c", tmp_path / "many.c", "-o", tmp_path / "many.o")
    options = ("-O2", *flags, "-DFUNCTIONS=300", "-DWITH_LEAVE=0", "-I", RUNTIME)
    objects = runtime(compiler, "-O2", *flags)
    sources = HERE / "many_functions.c", tmp_path / "many.o"
    run(compiler, *options, "-static", *sources, *objects, "-lpthread", "-o", tmp_path / "many")
    out = run(emulator, tmp_path / "many", 40, 3).stdout
    found = {name: int(value) for name, value in re.findall(r"(\w+) (\d+)", out)}
    assert (found["wrong"], found["failed"], found["counted"]) == (0, 0, 300)
    assert found["entered"] > 100


@pytest.mark.parametrize(
    ("machine", "triple"),
    [("riscv64", "riscv64-linux-gnu"), ("s390x", "s390x-linux-gnu"), ("arm", "arm-linux-gnueabihf")],
)
def test_machines_without_a_protocol_say_so(machine: str, triple: str, qemu: Any, tmp_path: Path) -> None:
    source = tmp_path / "none.c"
    source.write_text(NONE)
    assert qemu(machine, triple, source, ()) == "nothing can be switched on this machine\n"
