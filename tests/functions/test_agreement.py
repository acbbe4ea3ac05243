"""`usdtbuild functions` against the compiler's assembly, entry by entry: gcc and clang, C and C++, on x86-64."""

from __future__ import annotations

import re
from typing import Any

import pytest

PAIR = "-fpatchable-function-entry=7,5"
VARIANTS = [
    "-O0",
    "-O1 -fPIC",
    "-O2",
    "-O2 -fcf-protection",
    "-O3 -fno-pie",
    "-Os -ffunction-sections",
    "-O2 -g -ffunction-sections -fcf-protection -fPIC",
]
NO_ENTRY = {"no-entry", "no-table", "cold-part"}


def agree(rows: dict[str, Any], expected: dict[str, Any], hotpatchable: bool = True) -> None:
    """Assert that the same functions have entries, with the same NOPs."""
    listed = {name: row for name, row in rows.items() if row["reason"] not in NO_ENTRY}
    primary = {name for name, row in listed.items() if row["symbol"] == name}
    assert set(expected) <= set(listed)
    # What is listed beyond the table's labels are other names of the same functions.
    for name in primary - set(expected):
        assert set(listed[name]["aliases"]) & set(expected), f"{name} has no entry in the assembly"
    for name, (padding, nops) in expected.items():
        row = listed[name]
        assert (row["padding"], row["nops"]) == (padding, nops), name
        assert row["hotpatchable"] == hotpatchable, (name, row)


@pytest.mark.parametrize("options", VARIANTS)
def test_c_objects_agree_with_the_assembly(
    cc: str, options: str, program_c: Any, oracle: Any, by_name: Any, run: Any, tmp_path: Any
) -> None:
    words = [*options.split(), PAIR, "-DIFUNC"]
    built = tmp_path / "program.o"
    run(cc, *words, "-c", program_c, "-o", built)
    expected = oracle(cc, program_c, *words)
    assert {"leaf", "local", "resolve_chosen", "at_start", "main", "weak_one"} <= set(expected)
    assert "left_out" not in expected
    rows = by_name(built)
    agree(rows, expected)
    assert rows["left_out"]["reason"] == "no-entry"
    assert rows["another_name"] is rows["leaf"]


@pytest.mark.parametrize("options", VARIANTS)
def test_cxx_objects_agree_with_the_assembly(
    cxx: str, options: str, program_cc: Any, oracle: Any, by_name: Any, run: Any, tmp_path: Any
) -> None:
    words = [*options.split(), PAIR]
    built = tmp_path / "program.o"
    run(cxx, *words, "-c", program_cc, "-o", built)
    expected = oracle(cxx, program_cc, *words)
    rows = by_name(built)
    assert any(name.startswith("_ZTv") for name in rows), "no thunks: the sample is of no use"
    assert {"_Z6sharedi", "main"} <= set(expected)
    assert any(name.startswith("_Z5twiceIiET_S0_") for name in expected)  # a template; gcc makes a clone of it
    agree(rows, expected)


@pytest.mark.parametrize("pair", ["1,0", "2,1", "3,3", "5,0", "9,4", "16,14", "40,20"])
def test_other_pairs_agree_with_the_assembly(
    cc: str, pair: str, program_c: Any, oracle: Any, by_name: Any, run: Any, tmp_path: Any
) -> None:
    built = tmp_path / "program.o"
    words = ["-O2", "-fcf-protection", f"-fpatchable-function-entry={pair}"]
    run(cc, *words, "-c", program_c, "-o", built)
    rows = by_name(built, "--patchable", pair)
    n, m = map(int, pair.split(","))
    expected = oracle(cc, program_c, *words)
    assert expected["leaf"] == (m, n - m)
    agree(rows, expected, hotpatchable=False)
    assert rows["leaf"]["reason"] in {"too-small", "hlt", "entry-not-nops"}


LINKS = [
    "-O2 -pie -fPIE",
    "-O2 -fcf-protection -no-pie -fno-pie",
    "-O1 -static -fno-pie",
    "-O2 -static-pie -fPIE",
    "-O2 -shared -fPIC",
    "-O2 -fPIE -pie -ffunction-sections -Wl,--gc-sections",
]
# With --gc-sections, gold drops the table (tested below).
SOUND = ["bfd", "lld", "mold"]


@pytest.mark.parametrize("options", LINKS)
@pytest.mark.parametrize("name", SOUND)
def test_linked_files_agree_with_the_assembly(
    cc: str, name: str, options: str, program_c: Any, oracle: Any, by_name: Any, run: Any, need: Any, tmp_path: Any
) -> None:
    need({"bfd": "ld.bfd", "lld": "ld.lld", "mold": "ld.mold"}[name])
    words = [*options.split(), PAIR, "-DHOSTED"]
    built = tmp_path / "program"
    run(cc, *words, f"-fuse-ld={name}", program_c, "-o", built)
    rows = by_name(built)
    expected = oracle(cc, program_c, *[w for w in words if not w.startswith(("-Wl,", "-pie", "-static", "-shared"))])
    if "--gc-sections" in options:
        alive = set(re.findall(r"\S+$", run("nm", built).stdout, re.MULTILINE))
        expected = {name: nops for name, nops in expected.items() if name in alive}
        assert "main" in expected
    agree(rows, expected)


@pytest.mark.parametrize("options", ["-O2 -fPIE -pie", "-O2 -fPIC -shared", "-O1 -fcf-protection -fno-pie -no-pie"])
def test_linked_cxx_files_agree_with_the_assembly(
    cxx: str, linker: str, options: str, program_cc: Any, oracle: Any, by_name: Any, run: Any, tmp_path: Any
) -> None:
    words = [*options.split(), PAIR]
    built = tmp_path / "program"
    run(cxx, *words, f"-fuse-ld={linker}", program_cc, "-o", built)
    agree(by_name(built), oracle(cxx, program_cc, *[w for w in words if w not in ("-pie", "-no-pie", "-shared")]))


def test_gold_keeps_the_table_when_it_keeps_everything(
    cc: str, program_c: Any, oracle: Any, by_name: Any, run: Any, need: Any, tmp_path: Any
) -> None:
    need("ld.gold")
    words = ["-O2", "-fPIE", "-ffunction-sections", PAIR, "-DHOSTED"]
    built = tmp_path / "program"
    run(cc, *words, "-pie", "-fuse-ld=gold", program_c, "-o", built)
    agree(by_name(built), oracle(cc, program_c, *words))


RELR = [
    ("bfd", "-Wl,-z,pack-relative-relocs"),
    ("lld", "-Wl,--pack-dyn-relocs=relr"),
    ("mold", "-Wl,--pack-dyn-relocs=relr"),
]


@pytest.mark.parametrize(("name", "option"), RELR)
def test_relr_is_read(
    cc: str, name: str, option: str, program_c: Any, oracle: Any, by_name: Any, functions: Any, run: Any, need: Any,
    tmp_path: Any,
) -> None:  # fmt: skip
    need({"bfd": "ld.bfd", "lld": "ld.lld", "mold": "ld.mold"}[name])
    words = ["-O2", "-fPIE", PAIR, "-DHOSTED"]
    built = tmp_path / "program"
    run(cc, *words, "-pie", f"-fuse-ld={name}", option, program_c, "-o", built)
    sections = run("readelf", "-SW", built).stdout
    assert ".relr.dyn" in sections
    expected = oracle(cc, program_c, *words)
    agree(by_name(built), expected)
    (table,) = functions(built)["tables"]
    assert table["dynamic_relocations"] == len(expected)


def test_gold_drops_the_table_and_it_is_said(
    cc: str, program_c: Any, oracle: Any, by_name: Any, run: Any, need: Any, tmp_path: Any
) -> None:
    need("ld.gold")
    built = tmp_path / "program"
    words = ["-O2", "-fPIE", "-ffunction-sections", PAIR, "-DHOSTED"]
    run(cc, *words, "-pie", "-fuse-ld=gold", "-Wl,--gc-sections", program_c, "-o", built)
    rows = by_name(built)
    assert rows["leaf"]["reason"] == rows["main"]["reason"] == "lost-entry"
    assert not any(row["hotpatchable"] for row in rows.values())


def test_lto_agrees_with_the_assembly_of_the_link(
    cc: str, program_c: Any, by_name: Any, run: Any, need: Any, tmp_path: Any
) -> None:
    from .conftest import entries_of

    built = tmp_path / "program"
    words = ["-O2", "-fPIE", "-flto", PAIR, "-DHOSTED"]
    if cc.endswith("clang"):
        need("ld.lld")
        run(cc, *words, "-pie", "-fuse-ld=lld", program_c, "-o", built, cwd=tmp_path)
        run(cc, *words, "-pie", "-fuse-ld=lld", "-Wl,--lto-emit-asm", program_c, "-o", "program.s", cwd=tmp_path)
        (assembly,) = tmp_path.glob("program*.s*")
    else:
        run(cc, *words, "-pie", "-save-temps", program_c, "-o", built, cwd=tmp_path)
        (assembly,) = tmp_path.glob("*.ltrans0.ltrans.s")
    expected = entries_of(assembly.read_text(), 1)
    assert "main" in expected
    agree(by_name(built), expected)
