"""What stands beside an entry's NOPs and isn't the entry's: a probe's NOP, `paciasp`, and data that is no code."""

from __future__ import annotations

import json
from typing import Any

import pytest

from .conftest import PROGRAM, SOUND

PROBES = "provider app { probe hit(int number); };\n"
# `first` ends with its probe, and is nothing else; with a stack aligned to 8 bytes `bare` calls it at once, too.
SOURCE = """
#include "app.h"
void first(int number);
int bare(int number);
int plain(int number);
void first(int number) { APP_HIT(number); }
int bare(int number) { APP_HIT(number); return 3; }
int plain(int number) { return number + 1; }
void _start(void);
void _start(void) { bare(2); for (;;) first(plain(1)); }
"""
BEGINNINGS = {
    "classic": ("gcc", "7,5", "classic", ["-mpreferred-stack-boundary=3"]),  # one-byte NOPs behind one-byte NOPs
    "safe": ("gcc", "7,5", "safe", ["-mpreferred-stack-boundary=3"]),
    "long": ("clang", "7,5", "nop5", []),  # a long NOP behind the entry's
    "i386": ("i686-linux-gnu-gcc", "7,5", "safe", ["-mregparm=3"]),
    "aarch64": ("aarch64-linux-gnu-gcc", "1,0", "safe", []),
    "aarch64-far": ("aarch64-linux-gnu-gcc", "5,4", "safe", ["-mbranch-protection=standard"]),
    "riscv64": ("riscv64-linux-gnu-gcc", "5,4", "safe", []),
    "ppc64": ("powerpc64-linux-gnu-gcc", "1,0", "safe", []),
}


@pytest.fixture(scope="module", params=list(BEGINNINGS))
def probed(request: Any, usdtbuild: Any, run: Any, need: Any, tmp_path_factory: Any) -> Any:
    """Functions that begin with a probe, for one machine: an object and a program."""
    compiler, pair, nop, options = BEGINNINGS[request.param]
    folder = tmp_path_factory.mktemp("probed")
    (folder / "app.d").write_text(PROBES)
    (folder / "main.c").write_text(SOURCE)
    usdtbuild("header", "--formats=dof", "app.d", "-o", "app.h", cwd=folder)
    words = [need(compiler), "-O2", "-fno-inline", "-fno-pie", f"-fpatchable-function-entry={pair}", *options]
    usdtbuild("cc", f"--nop={nop}", "--", *words, "-c", "main.c", "-o", "main.o", cwd=folder)
    run(*words, "-nostdlib", "-static", "-Wl,--build-id=sha1", "main.o", "-o", "main", cwd=folder)
    return folder


@pytest.mark.parametrize("name", ["main", "main.o"])
def test_a_probe_at_a_functions_beginning_is_not_the_entrys(
    probed: Any, by_name: Any, usdtbuild: Any, name: str
) -> None:
    rows = by_name(probed / name)
    for function in ("first", "bare", "plain"):
        assert rows[function]["hotpatchable"], rows[function]
        assert rows[function]["nops"] == rows["plain"]["nops"]
    done = usdtbuild("verify", "--json", probed / name)
    (file,) = json.loads(done.stdout)["files"]
    assert file["sites"] == 2
    assert not [finding for finding in file["findings"] if finding["check"].startswith("entry-")]


# -- data --------------------------------------------------------------------------------------------------------------


def test_data_in_an_executable_segment_is_no_code(run: Any, need: Any, by_name: Any, tmp_path: Any) -> None:
    # -z noseparate-code loads constants with the code; these are the bytes of a jump into a function's padding.
    source, built, program = tmp_path / "data.s", tmp_path / "data.o", tmp_path / "data"
    data = "function wrong 5 2\n finish wrong\n .section .rodata\n jmp wrong - 2\n .byte 0xc3\n .text"
    source.write_text(PROGRAM % data)
    run(need("gcc"), "-c", source, "-o", built)
    run(need("gcc"), "-nostdlib", "-static", "-Wl,-z,noseparate-code", built, "-o", program)
    segments = run("readelf", "-lW", program).stdout
    assert any(".text" in line and ".rodata" in line for line in segments.splitlines()), segments
    rows = by_name(program)
    for name in [*SOUND, "wrong"]:
        assert rows[name]["hotpatchable"], rows[name]


# -- pointer authentication --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("protection", ["standard", "pac-ret", "bti", "pac-ret+leaf"])
@pytest.mark.parametrize("pair", ["1,0", "5,4"])
@pytest.mark.parametrize("compiler", ["aarch64-linux-gnu-gcc", "clang"])
def test_paciasp_behind_the_nops_of_a_stripped_file_is_no_landing_pad(
    run: Any, need: Any, functions: Any, by_name: Any, tmp_path: Any, compiler: str, pair: str, protection: str
) -> None:
    source, program = tmp_path / "pac.c", tmp_path / "pac"
    source.write_text(
        "int leaf(int x); int calls(int x); void _start(void);\n"
        "__attribute__((noinline)) int leaf(int x) { return x * 7; }\n"
        "__attribute__((noinline)) int calls(int x) { return leaf(x) + leaf(x + 1); }\n"
        "void _start(void) { for (;;) calls(leaf(3)); }\n"
    )
    target = ["--target=aarch64-linux-gnu", "-fuse-ld=lld"] if compiler == "clang" else []
    if target:
        need("ld.lld")
    words = [f"-fpatchable-function-entry={pair}", f"-mbranch-protection={protection}", "-fno-pie"]
    run(need(compiler), *target, "-O2", *words, "-nostdlib", "-static", source, "-o", program)
    with_names = [row for row in by_name(program).values() if row["hotpatchable"]]
    assert len(with_names) == 3
    run(need("aarch64-linux-gnu-strip"), program)
    # Without BTI nothing marks the end of padding.
    given = ["--patchable", pair] if protection.startswith("pac-ret") and pair == "5,4" else []
    found = functions(program, *given)
    assert [row["reason"] for row in found["functions"]] == [None] * 3, found["functions"]
    assert {(row["padding"], row["nops"]) for row in found["functions"]} == {
        (row["padding"], row["nops"]) for row in with_names
    }
