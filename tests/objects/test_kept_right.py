"""Single facts of instrumented objects that links and runs seldom depend on, and users' programs sometimes do."""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import Any

import pytest
from elftools.elf.elffile import ELFFile

from usdtbuild import machines
from usdtbuild.errors import UsdtError
from usdtbuild.instrument.main import Options, instrument_file
from usdtbuild.provider.parser import parse_file

ENABLED = 'int main(void) { if (APP_REQ_ENABLED()) APP_REQ(1, "x"); return 0; }'


@pytest.mark.parametrize(("formats", "in_place"), [(("dof",), True), (("stapsdt", "dof"), False)])
def test_freebsds_is_enabled_call_is_patched_only_without_a_semaphore(
    bench: Any, formats: tuple[str, ...], in_place: bool
) -> None:
    """With SDT notes too, SystemTap's tracers increment a semaphore, which a NOP in the call's place wouldn't read."""
    plain = bench.compile("gcc", ENABLED, "-O1", "-DUSDT_ENABLED_BY_CALL")
    _, report = bench.instrument_report(plain, Options(formats=formats, target_os="freebsd"))
    assert [site.in_stub for site in report.sites if site.enabled] == [not in_place]


def test_a_provider_is_declared_where_its_notes_are(bench: Any, linker: str) -> None:
    """DTrace refuses a site of a provider that isn't declared, so --gc-sections must keep the declaration with it."""
    call = 'void __attribute__((noinline)) {0}(void) {{ APP_REQ(1, "x"); }}\n'
    # Without unwind tables nothing else keeps anything of the first object, whose declaration is the one that counts.
    flags = ("-O1", "-ffunction-sections", "-fno-asynchronous-unwind-tables")
    one = bench.compile("gcc", call.format("one") + "int main(void) { one(); return 0; }", *flags)
    two = bench.compile("gcc", call.format("two"), *flags)
    objects = [bench.instrument(path, Options(formats=("usdt",))) for path in (two, one)]
    program = bench.link(f"-fuse-ld={linker}", "-Wl,--gc-sections", *objects)
    elf: Any = ELFFile(io.BytesIO(program.read_bytes()))
    notes = elf.get_section_by_name(".note.usdt").data()
    assert notes.count(b"prov\0") == 1
    assert notes.count(b"usdt\0") >= 1


def test_semaphores_are_aligned_for_the_kernel_and_one_of_them_to_a_page(bench: Any) -> None:
    """Kernels increment a counter at an even place only."""
    odd = 'char odd __attribute__((section(".probes"))) = 1;'
    plain = bench.compile("gcc", f"{odd} int main(void) {{ return APP_REQ_ENABLED() + APP_START_ENABLED(); }}", "-O1")
    path = bench.instrument(plain)
    elf: Any = ELFFile(io.BytesIO(path.read_bytes()))
    aligned = [s["sh_addralign"] for s in elf.iter_sections() if s.name == ".probes" and s["sh_flags"] & 0x200]
    assert sorted(aligned) == [2, 2, 4096]
    program = bench.link(path)
    table: Any = ELFFile(io.BytesIO(program.read_bytes())).get_section_by_name(".symtab")
    places = [s["st_value"] for s in table.iter_symbols() if s.name.endswith("_semaphore")]
    assert len(places) == 2
    assert all(place % 2 == 0 for place in places)


def test_a_linker_is_not_asked_to_relax_a_site(bench: Any, need: Any) -> None:
    """RISC-V: R_RISCV_RELAX on what is no call any more lets a linker delete bytes of it."""
    compiler = need("riscv64-linux-gnu-gcc")
    plain = bench.compile(compiler, 'int work(int n) { APP_REQ(n, "x"); APP_START(); return n + 1; }', "-O1")
    assert "R_RISCV_RELAX" in bench.run("readelf", "-rW", plain).stdout
    path, report = bench.instrument_report(plain)
    elf: Any = ELFFile(io.BytesIO(path.read_bytes()))
    code = elf.get_section_by_name(".rela.text")
    types = [(r["r_offset"], r["r_info_type"]) for r in code.iter_relocations()]
    places = {site.offset for site in report.sites}
    at_sites = [type_ for offset, type_ in types if offset in places]
    assert len(places) == 2
    assert set(at_sites) == {0}  # R_RISCV_NONE
    assert len(at_sites) == 4


def test_riscv32_pads_the_stack_before_a_long_long(bench: Any, need: Any) -> None:
    """Nine ints fill the registers and a slot; what has eight bytes begins at an even one."""
    need("clang")
    nine = ", ".join(f"int a{i}" for i in range(9))
    source = bench.write("nine.c", f"long long last({nine}, long long z) {{ return z; }}")
    words = ["--target=riscv32-linux-gnu", "-march=rv32gc", "-mabi=ilp32d", "-O1", "-S", "-o", "-"]
    text = bench.run("clang", *words, source)
    low = re.search(r"lw\s+a0, (\d+)\(sp\)", text.stdout)
    assert low is not None, text.stdout
    machine = machines.for_object(243, is64=False, little=True, flags=0, path="")
    found = machine.operands(((4, True),) * 9 + ((8, True), (4, True)), False)
    assert found[8] == "-4@0(sp)"
    assert found[9] == f"-8@{low[1]}(sp)"
    assert found[10] == f"-4@{int(low[1]) + 8}(sp)"


def test_a_relocation_at_the_end_of_a_section_is_an_error(bench: Any, tmp_path: Path) -> None:
    """The first byte behind the section's last is none of it."""
    text = ".text\ncall __dtrace_app___start\nnop\n"
    plain = bench.compile("gcc", text, suffix=".s")
    data = bytearray(plain.read_bytes())
    elf: Any = ELFFile(io.BytesIO(bytes(data)))
    code, table = elf.get_section_by_name(".text"), elf.get_section_by_name(".rela.text")
    options = Options(providers=tuple(parse_file(str(bench.folder / "app.d"))))
    for place, fits in ((code["sh_size"] - 1, True), (code["sh_size"], False)):
        data[table["sh_offset"] : table["sh_offset"] + 8] = place.to_bytes(8, "little")
        plain.write_bytes(data)
        if fits:
            instrument_file(str(plain), str(tmp_path / "out.o"), options)
        else:
            with pytest.raises(UsdtError, match="lies outside section"):
                instrument_file(str(plain), str(tmp_path / "none.o"), options)
            assert not (tmp_path / "none.o").exists()
