"""The edges of what is refused: every branch that can go into an entry, and NOPs that are one too many."""

from __future__ import annotations

from typing import Any

import pytest

from usdtbuild.functions.entry import LONGEST_PADDING, Starts, measure
from usdtbuild.functions.nops import machine_for
from usdtbuild.functions.symbols import FunctionSymbol
from usdtbuild.functions.table import TableEntry
from usdtbuild.machines.numbers import EM_AARCH64

from .conftest import SOUND


@pytest.mark.parametrize("linked", [True, False], ids=["linked", "object"])
@pytest.mark.parametrize("branch", ["loop", "loope", "loopne", "jrcxz", "jecxz", "je", "jmp"])
@pytest.mark.parametrize(("distance", "reason"), [(1, "jump-into-entry"), (-1, "jump-into-padding")])
def test_every_short_branch_into_an_entry_is_found(
    build: Any, by_name: Any, branch: str, distance: int, reason: str, linked: bool
) -> None:
    # `wrong` is a global symbol, so the object leaves the distance of one byte to the linker (R_X86_64_PC8).
    text = f"function wrong 5 2\n dec %eax\n {branch} wrong{distance:+d}\n finish wrong"
    rows = by_name(build(text, linked))
    assert rows["wrong"]["reason"] == reason
    assert all(rows[name]["hotpatchable"] for name in SOUND)


@pytest.mark.parametrize("linked", [True, False], ids=["linked", "object"])
@pytest.mark.parametrize(("distance", "reason"), [(-6, None), (-5, "jump-into-padding"), (-1, "jump-into-padding"),
                                                  (0, None), (1, "jump-into-entry"), (2, None)])  # fmt: skip
def test_the_padding_begins_with_its_first_byte_and_the_entry_ends_with_its_last(
    build: Any, by_name: Any, distance: int, reason: str | None, linked: bool
) -> None:
    rows = by_name(build(f"function wrong 5 2\n dec %eax\n jne wrong{distance:+d}\n finish wrong", linked))
    assert rows["wrong"]["reason"] == reason


@pytest.mark.parametrize(("nops", "more", "reason"), [
    (1, "", None), (5, "", "entry-long"), (9, "", None), (2, "", "entry-long"),
    (2, "nopl 512(%rax)", None), (2, "nopl 512(%rax,%rax)", "entry-long"),
])  # fmt: skip
def test_only_nops_up_to_a_multiple_of_eight_align_a_loop(
    build: Any, by_name: Any, nops: int, more: str, reason: Any
) -> None:
    # The function stands at 16n + 5, and its entry has two NOPs: one more ends at 16n + 8, five more at 16n + 12.
    text = f"function wrong 5 2\n padding {nops}\n {more}\nhead: dec %eax\n jne head\n finish wrong"
    assert by_name(build(text))["wrong"]["reason"] == reason


ONE_MORE = {
    "arm": ("arm-linux-gnueabihf-gcc", ["-marm"], "entry-long"),
    "ppc32": ("powerpc-linux-gnu-gcc", [], "entry-long"),
    "aarch64": ("aarch64-linux-gnu-gcc", [], None),  # what a linker makes of an adrp that it found needless
    "ppc64": ("powerpc64-linux-gnu-gcc", [], None),
}


@pytest.mark.parametrize("machine", list(ONE_MORE))
def test_one_nop_more_is_taken_only_where_linkers_make_them(
    run: Any, need: Any, by_name: Any, tmp_path: Any, machine: str
) -> None:
    compiler, options, reason = ONE_MORE[machine]
    names = ("one", "two", "three")
    source, built, program = tmp_path / "f.c", tmp_path / "f.o", tmp_path / "f"
    plain = "".join(f"int {name}(int x); int {name}(int x) {{ return x * 3; }}\n" for name in names)
    more = 'int more(int x); int more(int x) { __asm__ volatile ("nop"); return x * 3; }\nint _start(void);\n'
    source.write_text(f"{plain}{more}int _start(void) {{ return one(1) + more(2); }}\n")
    words = ["-O1", "-fno-inline", "-fno-pie", "-fpatchable-function-entry=1,0", *options]
    run(need(compiler), *words, "-c", source, "-o", built)
    run(need(compiler), *words, "-nostdlib", "-static", built, "-o", program)
    rows = by_name(program)
    assert all(rows[name]["hotpatchable"] for name in names), rows
    assert rows["more"]["reason"] == reason
    assert by_name(built)["more"]["reason"] == "entry-long"  # no linker has been at work


def test_every_entry_of_a_long_packed_table_is_read(run: Any, need: Any, functions: Any, tmp_path: Any) -> None:
    # 200 entries need more than three bitmaps of 63 words each.
    need("ld.lld")
    source, program = tmp_path / "many.c", tmp_path / "many"
    source.write_text("".join(f"int f{n}(int x);\nint f{n}(int x) {{ return x * {n}; }}\n" for n in range(200)))
    words = ["-O1", "-fPIC", "-shared", "-nostdlib", "-fpatchable-function-entry=7,5"]
    run(need("gcc"), *words, "-fuse-ld=lld", "-Wl,--pack-dyn-relocs=relr", source, "-o", program)
    assert ".relr.dyn" in run("readelf", "-SW", program).stdout
    found = functions(program)
    assert [(table["entries"], table["dynamic_relocations"]) for table in found["tables"]] == [(200, 200)]
    assert found["totals"]["hotpatchable"] == 200


@pytest.mark.parametrize(("more", "problem"), [(0, ""), (4, "not-a-function")])
def test_the_longest_padding_is_taken_and_none_longer(more: int, problem: str) -> None:
    aarch64 = machine_for(EM_AARCH64, True, True)
    assert aarch64 is not None
    start = LONGEST_PADDING + more
    starts = Starts([FunctionSymbol(start, 8, "f", 0, "symtab")], ())
    code = bytes.fromhex("1f2003d5") * (start // 4 + 2)
    found = measure(TableEntry(0, 0, 0), aarch64, starts, lambda at, size: code[at : at + size], complete=True)
    assert found.problem == problem
    assert found.padding == (0 if problem else start)
