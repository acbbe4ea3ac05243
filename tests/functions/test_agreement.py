"""`usdtbuild functions` against the compiler's assembly, entry by entry: gcc and clang, C and C++, on x86-64."""

from __future__ import annotations

from typing import Any

import pytest

from .conftest import agree, entries_of

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


@pytest.mark.parametrize("options", VARIANTS)
def test_c_objects_agree_with_the_assembly(cc: str, options: str, program_c: Any, agreement: Any) -> None:
    rows, expected = agreement(cc, program_c, [*options.split(), PAIR, "-DIFUNC"], "-c")
    assert {"leaf", "local", "resolve_chosen", "at_start", "main", "weak_one"} <= set(expected)
    assert "left_out" not in expected
    assert rows["left_out"]["reason"] == "no-entry"
    assert rows["another_name"] is rows["leaf"]


@pytest.mark.parametrize("options", VARIANTS)
def test_cxx_objects_agree_with_the_assembly(cxx: str, options: str, program_cc: Any, agreement: Any) -> None:
    rows, expected = agreement(cxx, program_cc, [*options.split(), PAIR], "-c")
    assert any(name.startswith("_ZTv") for name in rows), "no thunks: the sample is of no use"
    assert {"_Z6sharedi", "main"} <= set(expected)
    assert any(name.startswith("_Z5twiceIiET_S0_") for name in expected)  # a template; gcc makes a clone of it


@pytest.mark.parametrize("pair", ["1,0", "2,1", "3,3", "5,0", "9,4", "16,14", "40,20"])
def test_other_pairs_agree_with_the_assembly(cc: str, pair: str, program_c: Any, agreement: Any) -> None:
    words = ["-O2", "-fcf-protection", f"-fpatchable-function-entry={pair}"]
    rows, expected = agreement(cc, program_c, words, "-c", pair=pair, hotpatchable=False)
    n, m = map(int, pair.split(","))
    assert expected["leaf"] == (m, n - m)
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
    cc: str, name: str, options: str, program_c: Any, need: Any, agreement: Any
) -> None:
    need(f"ld.{name}")
    link = [word for word in options.split() if word.startswith(("-Wl,", "-pie", "-no-pie", "-static", "-shared"))]
    words = [word for word in options.split() if word not in link]
    collects = "-Wl,--gc-sections" in link
    _, expected = agreement(cc, program_c, [*words, PAIR, "-DHOSTED"], *link, f"-fuse-ld={name}", alive=collects)
    assert "main" in expected


@pytest.mark.parametrize("options", ["-O2 -fPIE -pie", "-O2 -fPIC -shared", "-O1 -fcf-protection -fno-pie -no-pie"])
def test_linked_cxx_files_agree_with_the_assembly(
    cxx: str, linker: str, options: str, program_cc: Any, agreement: Any
) -> None:
    *words, link = options.split()
    agreement(cxx, program_cc, [*words, PAIR], link, f"-fuse-ld={linker}")


def test_gold_keeps_the_table_when_it_keeps_everything(cc: str, program_c: Any, need: Any, agreement: Any) -> None:
    need("ld.gold")
    agreement(cc, program_c, ["-O2", "-fPIE", "-ffunction-sections", PAIR, "-DHOSTED"], "-pie", "-fuse-ld=gold")


RELR = [
    ("bfd", "-Wl,-z,pack-relative-relocs"),
    ("lld", "-Wl,--pack-dyn-relocs=relr"),
    ("mold", "-Wl,--pack-dyn-relocs=relr"),
]


@pytest.mark.parametrize(("name", "option"), RELR)
def test_relr_is_read(
    cc: str, name: str, option: str, program_c: Any, functions: Any, run: Any, need: Any, tmp_path: Any, agreement: Any
) -> None:
    need(f"ld.{name}")
    words = ["-O2", "-fPIE", PAIR, "-DHOSTED"]
    _, expected = agreement(cc, program_c, words, "-pie", f"-fuse-ld={name}", option)
    assert ".relr.dyn" in run("readelf", "-SW", tmp_path / "program").stdout
    (table,) = functions(tmp_path / "program")["tables"]
    assert table["dynamic_relocations"] == len(expected)


def test_gold_drops_the_table_and_it_is_said(
    cc: str, program_c: Any, by_name: Any, run: Any, need: Any, tmp_path: Any
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
