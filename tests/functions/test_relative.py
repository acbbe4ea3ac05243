"""`--patchable-table=relative`: the same entries without dynamic relocations, kept and dropped with their functions."""

from __future__ import annotations

import contextlib
import re
from typing import Any

import pytest

from .conftest import agree

PAIR = "-fpatchable-function-entry=7,5"
RELATIVE = "--patchable-table=relative"
LINKERS = {"bfd": "ld.bfd", "gold": "ld.gold", "lld": "ld.lld", "mold": "ld.mold"}


def sections(run: Any, path: Any) -> str:
    """Return readelf's list of a file's sections."""
    return str(run("readelf", "-SW", path).stdout)


def relative_relocations(run: Any, path: Any) -> int:
    """Return how many dynamic relocations a file has that cost time at its start."""
    return len(re.findall(r"^[0-9a-f]{8,16} .*R_\w+_RELATIVE", run("readelf", "-rW", path).stdout, re.MULTILINE))


@pytest.fixture(scope="module")
def compiled(usdtbuild: Any, tmp_path_factory: Any) -> Any:
    """Compile to an object with a relative table: `compiled(compiler, source, *options)`."""
    made: dict[tuple[Any, ...], Any] = {}

    def make(compiler: str, source: Any, *options: str) -> Any:
        key = (compiler, source, options)
        if key not in made:
            made[key] = tmp_path_factory.mktemp("relative") / "program.o"
            usdtbuild("cc", RELATIVE, "--", compiler, *options, PAIR, "-c", source, "-o", made[key])
        return made[key]

    return make


@pytest.mark.parametrize("options", ["-O0", "-O2 -fcf-protection", "-Os -ffunction-sections -fPIC", "-O2 -g -fno-pie"])
def test_objects_have_the_same_entries(
    cc: str, options: str, program_c: Any, compiled: Any, oracle: Any, by_name: Any, run: Any
) -> None:
    built = compiled(cc, program_c, *options.split())
    agree(by_name(built), oracle(cc, program_c, *options.split(), PAIR))
    listed = sections(run, built)
    assert ".usdtbuild.functions" in listed
    assert "__patchable_function_entries" not in re.sub(r"\S+__patchable_function_entries +NULL.*", "", listed)


@pytest.mark.parametrize("gc", [False, True], ids=["all", "gc-sections"])
@pytest.mark.parametrize(
    "order", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["program first", "program last"]
)
def test_exactly_the_live_entries_are_linked(
    cc: str, linker: str, gc: bool, order: bool, program_c: Any, compiled: Any, oracle: Any, by_name: Any,
    functions: Any, run: Any, tmp_path: Any,
) -> None:  # fmt: skip
    words = ["-O2", "-fPIE", "-ffunction-sections", "-DHOSTED"]
    built = compiled(cc, program_c, *words)
    program = tmp_path / "program"
    more = tmp_path / "more.c"
    more.write_text("int unrelated(int x) { return x; }\n")
    others = [compiled(cc, more, "-O2", "-fPIE", "-ffunction-sections")]
    inputs = [*others, built] if order else [built, *others]
    run(cc, "-pie", f"-fuse-ld={linker}", *["-Wl,--gc-sections"] * gc, *inputs, "-o", program)
    run(program)
    names = set(re.findall(r" [TtWi] (\S+)$", run("nm", program).stdout, re.MULTILINE))
    expected = {**oracle(cc, program_c, *words, PAIR), **oracle(cc, more, "-O2", "-fPIE", PAIR)}
    if gc:
        assert "used_by_nobody" not in names
        assert "unrelated" not in names
    agree(by_name(program), {name: nops for name, nops in expected.items() if name in names})
    (table,) = functions(program)["tables"]
    assert table["section"] == ".usdtbuild.functions"
    assert table["dynamic_relocations"] == 0
    assert table["entries"] == len([name for name in expected if name in names])


@pytest.mark.parametrize("how", ["-shared -fPIC", "-static -fno-pie", "-static-pie -fPIE", "-no-pie -fno-pie"])
def test_every_kind_of_link_resolves_the_table(
    cc: str, linker: str, how: str, program_c: Any, compiled: Any, oracle: Any, by_name: Any, run: Any, tmp_path: Any
) -> None:
    if (linker, how.partition(" ")[0]) == ("gold", "-static-pie"):
        pytest.skip("gold can't link static PIEs")
    words = ["-O2", "-DHOSTED", how.split()[1]]
    built, program = compiled(cc, program_c, *words), tmp_path / "program"
    run(cc, how.split(maxsplit=1)[0], f"-fuse-ld={linker}", built, "-o", program)
    agree(by_name(program), oracle(cc, program_c, *words, PAIR))


def test_a_partial_link_keeps_the_table(
    cc: str, linker: str, program_c: Any, compiled: Any, oracle: Any, by_name: Any, run: Any, tmp_path: Any
) -> None:
    words = ["-O2", "-fPIE", "-ffunction-sections", "-DHOSTED"]
    built, joined, program = compiled(cc, program_c, *words), tmp_path / "joined.o", tmp_path / "program"
    run(LINKERS[linker], "-r", built, "-o", joined)
    run(cc, "-pie", "-fuse-ld=lld", "-Wl,--gc-sections", joined, "-o", program)
    run(program)
    rows = by_name(program)
    expected = oracle(cc, program_c, *words, PAIR)
    agree(rows, {name: nops for name, nops in expected.items() if name in rows})


def test_objects_that_share_inline_functions_keep_all_entries(
    cxx: str, linker: str, compiled: Any, by_name: Any, run: Any, tmp_path: Any
) -> None:
    """Where gcc 12's own table doesn't link, or loses entries."""
    objects = []
    for name in ("one", "two"):
        source = tmp_path / f"{name}.cc"
        source.write_text("inline int shared(int x) { return x * 2; }\n"
                          f"int {name}(int x) {{ return shared(x) + 1; }}\n")  # fmt: skip
        objects.append(compiled(cxx, source, "-O2", "-fPIC", "-fno-inline"))
    library = tmp_path / "library.so"
    run(cxx, "-shared", f"-fuse-ld={linker}", *objects, "-o", library)
    rows = by_name(library)
    assert [rows[name]["hotpatchable"] for name in ("_Z3onei", "_Z3twoi", "_Z6sharedi")] == [True] * 3
    assert sum(row["hotpatchable"] for row in rows.values()) == 3


def test_cxx_programs_have_the_same_entries(
    cxx: str, linker: str, program_cc: Any, compiled: Any, oracle: Any, by_name: Any, run: Any, tmp_path: Any
) -> None:
    words = ["-O2", "-fPIE"]
    built, program = compiled(cxx, program_cc, *words), tmp_path / "program"
    run(cxx, "-pie", f"-fuse-ld={linker}", built, "-o", program)
    run(program)
    agree(by_name(program), oracle(cxx, program_cc, *words, PAIR))


def test_compiling_and_linking_in_one_go_has_the_table(
    cc: str, usdtbuild: Any, functions: Any, run: Any, program_c: Any, tmp_path: Any
) -> None:
    program = tmp_path / "program"
    usdtbuild("cc", RELATIVE, "--", cc, "-O2", PAIR, "-DHOSTED", "-pie", "-fPIE", program_c, "-o", program)
    run(program)
    (table,) = functions(program)["tables"]
    assert (table["section"], table["dynamic_relocations"]) == (".usdtbuild.functions", 0)
    assert table["entries"] == functions(program)["totals"]["hotpatchable"] > 10


def test_the_relocations_are_gone(
    cc: str, usdtbuild: Any, functions: Any, run: Any, program_c: Any, tmp_path: Any
) -> None:
    counts = {}
    for table in ("absolute", "relative"):
        program = tmp_path / table
        words = ["-O2", "-fPIE", "-pie", "-DHOSTED", PAIR]
        usdtbuild("cc", f"--patchable-table={table}", "--", cc, *words, program_c, "-o", program)
        counts[table] = relative_relocations(run, program)
    entries = functions(tmp_path / "relative")["totals"]["hotpatchable"]
    assert counts["absolute"] - counts["relative"] == entries
    bare = tmp_path / "bare"
    run(cc, "-O2", "-fPIE", "-pie", "-DHOSTED", program_c, "-o", bare)
    assert relative_relocations(run, bare) == counts["relative"]


def test_lto_objects_are_compiled_again(
    cc: str, usdtbuild: Any, functions: Any, run: Any, program_c: Any, tmp_path: Any
) -> None:
    built = tmp_path / "a.o"
    for lto in ("-flto", "-flto -ffat-lto-objects"):
        usdtbuild("cc", RELATIVE, "--", cc, "-O2", *lto.split(), PAIR, "-c", program_c, "-o", built)
        assert functions(built)["totals"]["hotpatchable"] > 10
        assert ".gnu.lto" not in sections(run, built)
    words = ["-O2", "-flto", PAIR, "-c", program_c, "-o", built]
    done = usdtbuild("cc", RELATIVE, "--lto=error", "--", cc, *words, code=1)
    assert "compile" in done.stderr
    assert "-fno-lto" in done.stderr
    assert not built.exists()


def test_objects_without_entries_come_out_as_they_are(
    cc: str, usdtbuild: Any, run: Any, program_c: Any, tmp_path: Any
) -> None:
    plain, ours = tmp_path / "plain.o", tmp_path / "ours.o"
    run(cc, "-O2", "-c", program_c, "-o", plain)
    usdtbuild("cc", RELATIVE, "--", cc, "-O2", "-c", program_c, "-o", ours)
    source = tmp_path / "a.c"
    source.write_text("int x;\n")
    run(cc, "-O2", PAIR, "-c", source, "-o", plain)
    usdtbuild("cc", RELATIVE, "--", cc, "-O2", PAIR, "-c", source, "-o", ours)
    assert plain.read_bytes() == ours.read_bytes()


def test_instrument_writes_the_table_too_and_only_once(
    cc: str, usdtbuild: Any, functions: Any, run: Any, program_c: Any, tmp_path: Any
) -> None:
    built, once, twice = tmp_path / "a.o", tmp_path / "b.o", tmp_path / "c.o"
    run(cc, "-O2", PAIR, "-c", program_c, "-o", built)
    before = built.read_bytes()
    usdtbuild("instrument", RELATIVE, built, "-o", once)
    assert built.read_bytes() == before
    usdtbuild("instrument", RELATIVE, once, "-o", twice)
    assert once.read_bytes() == twice.read_bytes()
    assert functions(once)["functions"] == functions(built)["functions"]


def test_probes_and_the_table_go_together(
    cc: str, usdtbuild: Any, functions: Any, run: Any, tmp_path: Any, linker: str
) -> None:
    provider, header, source = tmp_path / "app.d", tmp_path / "app.h", tmp_path / "a.c"
    provider.write_text("provider app { probe done(int); };\n")
    usdtbuild("header", "--formats=dof", provider, "-o", header)
    source.write_text('#include "app.h"\nint main(int c, char **v) { (void)v; APP_DONE(c); return 0; }\n'
                      "int idle(int x) { return x; }\n")  # fmt: skip
    built, program = tmp_path / "a.o", tmp_path / "a"
    usdtbuild("cc", RELATIVE, "--", cc, "-O2", "-ffunction-sections", PAIR, "-c", source, "-o", built)
    run(cc, f"-fuse-ld={linker}", "-Wl,--gc-sections", built, "-o", program)
    run(program)
    assert "stapsdt" in run("readelf", "-nW", program).stdout
    found = functions(program)
    assert [row["symbol"] for row in found["functions"] if row["hotpatchable"]] == ["main"]
    assert found["tables"][0]["section"] == ".usdtbuild.functions"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (".pushsection __patchable_function_entries\n.byte 1\n.popsection", "which is no multiple of 8"),
        (".pushsection __patchable_function_entries\n.quad 0\n.popsection", "entries and"),
        (".pushsection __patchable_function_entries\n.quad elsewhere\n.popsection", "isn't code of this object"),
    ],
)
def test_tables_that_are_not_understood_are_refused(
    usdtbuild: Any, run: Any, need: Any, tmp_path: Any, change: str, words: str
) -> None:
    source, built, target = tmp_path / "a.s", tmp_path / "a.o", tmp_path / "b.o"
    source.write_text(
        '.section __patchable_function_entries,"aw",@progbits\n.quad f\n.text\n.type f, @function\n'
        f"f: nop\nret\n.size f, . - f\n{change}\n"
    )
    run(need("gcc"), "-c", source, "-o", built)
    done = usdtbuild("instrument", RELATIVE, built, "-o", target, code=1)
    assert words in done.stderr
    assert done.stderr.count("\n") == 1
    assert not target.exists()


def test_damaged_objects_are_refused_and_nothing_else(cc: str, run: Any, program_c: Any, tmp_path: Any) -> None:
    from usdtbuild.errors import UsdtError
    from usdtbuild.functions.relative import convert

    built = tmp_path / "a.o"
    run(cc, "-O2", "-ffunction-sections", PAIR, "-c", program_c, "-o", built)
    data = built.read_bytes()
    headers = int.from_bytes(data[0x28:0x30], "little")
    places = [*range(16, 64), *range(headers, len(data), 11)]
    converted = 0
    for place in places:
        for value in (0x00, 0x7F, 0xFF):
            damaged = data[:place] + bytes([value]) + data[place + 1 :]
            with contextlib.suppress(UsdtError):
                convert(damaged, "a.o")
                converted += 1
    assert 0 < converted < 3 * len(places)


CROSS = {
    "aarch64-linux-gnu-gcc": ("1,0", 4), "riscv64-linux-gnu-gcc": ("5,4", 2), "arm-linux-gnueabihf-gcc": ("3,2", 2),
    "powerpc64le-linux-gnu-gcc": ("2,0", 4), "s390x-linux-gnu-gcc": ("4,2", 2), "i686-linux-gnu-gcc": ("7,5", 1),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("compiler", list(CROSS))
def test_other_machines_have_the_same_entries(
    compiler: str, usdtbuild: Any, need: Any, run: Any, functions: Any, tmp_path: Any
) -> None:
    """Two functions, one of them dropped: what is linked is the other's entry, at the right place (relaxation too)."""
    need(compiler)
    pair, _ = CROSS[compiler]
    source = tmp_path / "a.c"
    source.write_text(
        "int far_away(int);\n__attribute__((noinline)) int alive(int x) { return far_away(x) + 1; }\n"
        "__attribute__((noinline)) int dead(int x) { return x * 3; }\n"
        "__attribute__((noinline)) int far_away(int x) { return x - 7; }\n"
        "int start(void) { return alive(3) + far_away(4); }\n"
    )
    words = ["-O2", "-fPIC", "-ffunction-sections", f"-fpatchable-function-entry={pair}"]
    built, plain = tmp_path / "a.o", tmp_path / "b.o"
    run(compiler, *words, "-c", source, "-o", plain)
    usdtbuild("instrument", RELATIVE, plain, "-o", built)
    entries = {}
    for name, file in (("standard", plain), ("relative", built)):
        program = tmp_path / name
        # bfd drops the compiler's table as a whole if the object's first function is dropped.
        options = ["-Wl,--gc-sections"] * (name == "relative")
        run(compiler, "-pie", "-nostdlib", *options, "-Wl,-e,start", file, "-o", program)
        found = functions(program, "--patchable", pair)
        rows = [row for row in found["functions"] if row["padding"] + row["nops"]]
        entries[name] = {row["symbol"]: (row["padding"], row["nops"], row["reason"]) for row in rows}
        entries[name].pop("dead", None)
    assert set(entries["relative"]) == {"alive", "far_away", "start"}
    assert entries["relative"] == entries["standard"]
    assert "dead" not in {row["symbol"] for row in found["functions"]}
    assert relative_relocations(run, tmp_path / "relative") == 0
