"""What a tracer sees: the reader agrees with readelf and with the linker, on every kind of file and machine."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from usdtbuild.elf.image import Image
from usdtbuild.errors import InputError
from usdtbuild.formats import operands as operand_words
from usdtbuild.inspection import probes as inspect
from usdtbuild.model import FLOAT, INTEGER, POINTER, Argument, CType, Probe, Provider
from usdtbuild.provider import describe


def look(path: Path) -> inspect.Inspection:
    return inspect.inspect(Image(path.read_bytes(), str(path)))


def sites(path: Path) -> list[inspect.SeenSite]:
    return [site for probe in look(path).probes for site in probe.sites]


SHAPES = {
    "PIE": ("-pie", "-fPIE"),
    "executable": ("-no-pie", "-fno-pie"),
    "static": ("-static",),
    "static PIE": ("-static-pie", "-fPIE"),
    "shared library": ("-shared", "-fPIC"),
    "stripped": ("-s",),
    "debug info": ("-g",),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_records_are_those_that_readelf_shows(shape: str, sdt_program: Any, readelf: Any) -> None:
    path = sdt_program(*SHAPES[shape])
    ours = sorted(
        (probe.provider, probe.name, site.location.address, site.record.written_base,
         site.record.written_semaphore, site.operands.strip())
        for probe in look(path).probes for site in probe.sites
    )  # fmt: skip
    theirs = [note for note in readelf(path).notes if note[0] == "app"]
    assert [row for row in ours if row[0] == "app"] == sorted(theirs)
    assert len(theirs) == 3


@pytest.mark.parametrize(
    ("shape", "kind"),
    [("PIE", "PIE executable"), ("executable", "executable"), ("static", "executable"),
     ("static PIE", "PIE executable"), ("shared library", "shared library"), ("stripped", "PIE executable")],
)  # fmt: skip
def test_a_file_is_called_what_a_user_calls_it(shape: str, kind: str, sdt_program: Any) -> None:
    assert look(sdt_program(*SHAPES[shape])).kind == kind


@pytest.mark.parametrize("shape", ["PIE", "executable", "shared library"])
def test_sites_are_in_the_functions_that_call_the_probes(shape: str, sdt_program: Any) -> None:
    found = {site.operands: site.function for site in sites(sdt_program(*SHAPES[shape]))}
    names = {function.name.partition(".")[0] for function in found.values() if function}
    assert names == {"work", "inner"}


def test_a_stripped_program_has_sites_without_functions(sdt_program: Any) -> None:
    assert {site.function for site in sites(sdt_program("-s"))} == {None}


def test_a_stripped_library_names_its_exported_functions(sdt_program: Any) -> None:
    names = {site.function.name for site in sites(sdt_program("-shared", "-fPIC", "-s")) if site.function}
    assert names == {"work"}


def test_semaphores_are_found_in_the_file(sdt_program: Any) -> None:
    probes = {probe.name: probe.sites for probe in look(sdt_program()).probes}
    semaphore = probes["guarded"][0].semaphore
    assert semaphore is not None
    assert semaphore.backed is True
    assert semaphore.location.section == ".probes"


def test_an_object_shows_the_sites_where_the_linker_puts_them(sdt_program: Any, run: Any, tmp_path: Path) -> None:
    """Function and offset are the same in an object, read through its relocations, and in the linked file."""
    made = sdt_program("-c", "-ffunction-sections")
    linked = tmp_path / "linked.so"
    run("gcc", "-shared", made, "-o", linked)
    in_object = sorted((s.function.name, s.function.offset, s.operands) for s in sites(made) if s.function)
    assert in_object == sorted((s.function.name, s.function.offset, s.operands) for s in sites(linked) if s.function)
    assert len(in_object) == 3
    assert all(site.location.section.startswith(".text.") for site in sites(made))


def test_an_object_s_semaphores_are_named(sdt_program: Any) -> None:
    named = {site.semaphore.location.symbol for site in sites(sdt_program("-c")) if site.semaphore}
    assert named == {"app_guarded_semaphore", "app_start_semaphore"}


def test_an_object_linked_with_r_shows_the_same_sites(sdt_program: Any, run: Any, tmp_path: Path) -> None:
    merged = tmp_path / "merged.o"
    run("ld", "-r", sdt_program("-c"), "-o", merged)
    assert [site.operands for site in sites(merged)] == [site.operands for site in sites(sdt_program("-c"))]
    assert {site.location.section for site in sites(merged)} == {".text"}


def test_a_file_without_records_has_no_probes(tmp_path: Path, compiled: Any) -> None:
    compiled(tmp_path, "empty.c", "int main(void) { return 0; }\n")
    assert look(tmp_path / "empty").probes == ()


# -- other machines ----------------------------------------------------------------------------------------------------

FOREIGN = {
    "i386-linux-gnu": ("i386", ".4byte", "-4@%eax 4@8(%esp)", True),
    "aarch64-linux-gnu": ("aarch64", ".8byte", "-4@x0 8@[sp, 8]", True),
    "armv7-linux-gnueabi": ("arm", ".4byte", "-4@r0 4@[sp, #4]", True),
    "powerpc64-linux-gnu": ("ppc64", ".8byte", "-4@3 8@8(1)", False),
    "powerpc64le-linux-gnu": ("ppc64", ".8byte", "-4@3 8@8(1)", True),
    "mips-linux-gnu": ("mips", ".4byte", "-4@$4", False),
    "riscv64-linux-gnu": ("riscv", ".8byte", "8@a0 8@-8(s0)", True),
    "x86_64-linux-gnu": ("x86-64", ".8byte", "8@%rdi", True),
}


def foreign_source(note: Any, operands: str, address: str) -> str:
    return f"""
 .section .text.here,"ax",%progbits
 .globl _start
 .type _start,%function
_start:
 nop
.Lsite0: nop
 .size _start,.-_start
 .section .probes,"aw",%progbits
sem: .2byte 0
{note(operands, semaphore="sem", address=address)}"""


@pytest.mark.parametrize("target", FOREIGN)
def test_objects_and_binaries_of_every_machine_are_read(target: str, foreign: Any, note: Any) -> None:
    machine, address, operands, little = FOREIGN[target]
    source = foreign_source(note, operands, address)
    for link in (None, ()):
        found = look(foreign(target, source, link=link))
        assert (found.machine, found.little, found.address_size) == (machine, little, int(address[1]))
        (probe,) = found.probes
        (site,) = probe.sites
        assert site.function is not None
        assert site.function.name == "_start"
        assert [a.operand.text for a in site.arguments] == operand_words.split(operands)
        assert site.semaphore is not None
        assert site.semaphore.location.section == ".probes"
        assert site.location.section == (".text.here" if link is None else ".text")


def test_a_machine_nobody_knows_is_read_as_far_as_possible(foreign: Any, note: Any) -> None:
    path = foreign("aarch64-linux-gnu", foreign_source(note, "8@x0", ".8byte"))
    data = bytearray(path.read_bytes())
    data[18:20] = b"\xee\xee"
    found = inspect.inspect(Image(bytes(data), "odd"))
    assert found.machine == "machine 61166"
    assert found.probes[0].sites[0].operands == "8@x0"


# -- symbols -----------------------------------------------------------------------------------------------------------


def test_of_several_names_at_one_address_the_global_one_is_shown(program: Any, note: Any) -> None:
    path = program(note(), "\n .type alias,@function\n .set alias,main\n .size alias,20\n")
    function = sites(path)[0].function
    assert function
    assert function.name == "main"


def test_a_site_behind_the_end_of_every_function_belongs_to_none(program: Any, note: Any) -> None:
    after = "\n .text\n .balign 64\n.Lafter: nop\n"
    assert sites(program(note(site=".Lafter"), after))[0].function is None


def test_a_short_symbol_inside_a_function_does_not_hide_it(program: Any, note: Any) -> None:
    inside = "\n .type entry,@function\n .set entry,main+1\n .size entry,1\n"
    found = sites(program(note(), inside))[0].function
    assert found is not None
    assert found.name == "main"


@pytest.mark.slow
def test_more_sections_than_sixteen_bits_can_count(note: Any, tmp_path: Path, run: Any, need: Any) -> None:
    one = ' .section .text.f{0},"ax",@progbits\n .globl f{0}\n .type f{0},@function\nf{0}: nop\n .size f{0},1\n'
    many = "".join(one.format(number) for number in range(66000))
    source = tmp_path / "many.s"
    source.write_text(many + note(site="f65999") + ' .section .stapsdt.base,"a"\n_.stapsdt.base: .byte 0\n')
    run(need("clang"), "-c", source, "-o", tmp_path / "many.o")
    (site,) = sites(tmp_path / "many.o")
    assert (site.location.section, site.location.offset) == (".text.f65999", 0)
    assert site.function is not None
    assert site.function.name == "f65999"


# -- types and names ---------------------------------------------------------------------------------------------------

INT = CType("int", INTEGER, True, 4, 4)
TEXT = CType("char *", POINTER, False, 8, 4, True)
DOUBLE = CType("double", FLOAT, True, 8, 8)
DESCRIBED = Provider("pv", (Probe("req__done", (Argument(INT, "fd"), Argument(TEXT, "path"), Argument(DOUBLE, ""))),))


def description(provider: Provider) -> str:
    lines = describe.encode(provider).splitlines()
    strings = "".join(' .ascii "' + line.replace("\t", "\\t") + '\\n"\n' for line in lines)
    return f'\n .pushsection {describe.SECTION},"",@progbits\n{strings} .popsection\n'


@pytest.mark.parametrize("spelling", ["req__done", "req-done"])
def test_arguments_get_their_declared_types_and_names(spelling: str, program: Any, note: Any) -> None:
    path = program(note("-4@%edi 8@%rsi 8@%rdx 8@%rcx", probe=spelling), description(DESCRIBED))
    (site,) = sites(path)
    shown = [(argument.type, argument.name) for argument in site.arguments]
    assert shown == [("int", "fd"), ("char *", "path"), ("double", ""), ("", "")]
    assert look(path).providers["pv"][0] == DESCRIBED


def test_a_damaged_description_costs_the_types_and_nothing_else(program: Any, note: Any) -> None:
    found = look(program(note(), '\n .pushsection .usdtbuild.provider,"",@progbits\n .ascii "junk\\n"\n .popsection\n'))
    assert found.providers == {}
    assert "junk" in found.problem
    assert len(found.probes) == 1


# -- addresses ---------------------------------------------------------------------------------------------------------


def test_a_file_that_was_moved_after_linking_shows_corrected_addresses(
    program: Any, note: Any, semaphore_section: str
) -> None:
    """The record's own base tells how far: prelink moves sections, and leaves records that aren't loaded."""
    plain = sites(program(note(semaphore="sem"), semaphore_section))[0]
    moved = sites(program(note(semaphore="sem-16", base="_.stapsdt.base-16", site=".Lsite0-16"), semaphore_section))[0]
    assert plain.semaphore is not None
    assert moved.semaphore is not None
    assert moved.location.address == moved.record.written_site + 16
    assert moved.function == plain.function
    assert moved.semaphore.location.section == ".probes"


def test_sites_are_sorted_by_address(program: Any, note: Any) -> None:
    path = program(note(site=".Lsite2"), note(site=".Lsite0"), note(site=".Lsite1"), sites=("nop",) * 3)
    addresses = [site.location.address for site in sites(path)]
    assert addresses == sorted(addresses)
    assert len(addresses) == 3


def test_damaged_records_are_an_error_that_names_the_section(program: Any, note: Any) -> None:
    path = program(note(), '\n .pushsection .note.stapsdt,"","note"\n .4byte 8, 4000, 3\n .popsection\n')
    with pytest.raises(InputError, match=r"section \.note\.stapsdt: note at offset"):
        look(path)


def test_core_dumps_are_refused_by_name(program: Any, note: Any) -> None:
    data = bytearray(program(note()).read_bytes())
    data[16:18] = b"\4\0"
    with pytest.raises(InputError, match="is a core dump"):
        Image(bytes(data), "core")


def test_a_split_debug_file_is_called_so(sdt_program: Any, run: Any, tmp_path: Path) -> None:
    run("objcopy", "--only-keep-debug", sdt_program("-g"), tmp_path / "app.debug")
    found = look(tmp_path / "app.debug")
    assert found.kind == "debug file"
    assert {probe.name for probe in found.probes} == {"start", "guarded"}


# -- gdb sees the same -------------------------------------------------------------------------------------------------


@pytest.mark.live("gdb")
@pytest.mark.parametrize("shape", ["PIE", "executable", "shared library"])
def test_gdb_shows_the_same_sites(shape: str, sdt_program: Any, run: Callable[..., Any], gdb: str) -> None:
    path = sdt_program(*SHAPES[shape])
    shown = run(gdb, "-nx", "-batch", "-ex", "info probes stap app", path).stdout
    theirs = {tuple(line.split()[1:4]) for line in shown.splitlines() if line.startswith("stap")}
    ours = {(probe.provider, probe.name, f"{site.location.address:#018x}")
            for probe in look(path).probes for site in probe.sites if probe.provider == "app"}  # fmt: skip
    assert ours == theirs
