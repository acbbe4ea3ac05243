"""`usdtbuild verify`: each thing that can be wrong is found where it is, and not found where it isn't.

`SOUND` is a file nothing is wrong with; every test of a finding changes one thing of it.
"""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from usdtbuild.elf.image import Image
from usdtbuild.model import FLOAT, INTEGER, POINTER, Argument, CType, Probe, Provider
from usdtbuild.provider import describe
from usdtbuild.verify import NAMES, verify
from usdtbuild.verify.report import SEVERITIES, Finding

DOCUMENTATION = Path(__file__).parents[2] / "docs/commands/verify.md"


def findings(path: Path, expected: dict[str, Provider] | None = None) -> dict[str, Finding]:
    found = {}
    for finding in verify(Image(path.read_bytes(), str(path)), expected).findings:
        assert finding.check in NAMES
        assert finding.severity in SEVERITIES
        found[finding.check] = finding
    return found


def only(path: Path, check: str, severity: str, expected: dict[str, Provider] | None = None) -> Finding:
    """Return the one finding of a file."""
    found = findings(path, expected)
    assert set(found) == {check}
    assert found[check].severity == severity
    return found[check]


# -- nothing is wrong --------------------------------------------------------------------------------------------------


def test_a_sound_file_has_no_findings(program: Any, note: Any, semaphore_section: str) -> None:
    path = program(
        note("-4@%edi 8@%rsi", semaphore="sem"), note("", probe="p1", site=".Lsite1"), semaphore_section,
        sites=("nop", "nopl 0(%rax)"),
    )  # fmt: skip
    assert findings(path) == {}


@pytest.mark.parametrize("flags", [(), ("-no-pie", "-fno-pie"), ("-static",), ("-static-pie", "-fPIE"),
                                   ("-shared", "-fPIC"), ("-s",), ("-g",)])  # fmt: skip
def test_what_sys_sdt_h_makes_with_bfd_is_sound_but_for_its_operands(flags: tuple[str, ...], sdt_program: Any) -> None:
    allowed = {"argument-mismatch", "operand"} | ({"perf-offset"} if "-static" in flags else set())
    assert set(findings(sdt_program(*flags))) <= allowed | {"argument-mismatch"}


def test_an_object_of_sys_sdt_h_has_no_errors(sdt_program: Any) -> None:
    assert "error" not in {finding.severity for finding in findings(sdt_program("-c")).values()}


# -- was it built right? -----------------------------------------------------------------------------------------------

CALLS = "extern void {name}(int);\nvoid f(int n) {{ {name}(n); }}\n"


@pytest.mark.parametrize("form", ["object", "library"])
@pytest.mark.parametrize("stub", ["__dtrace_app___req__done", "__dtraceenabled_app___req__done"])
def test_calls_that_never_became_sites(stub: str, form: str, tmp_path: Path, run: Any) -> None:
    (tmp_path / "f.c").write_text(CALLS.format(name=stub))
    run("gcc", "-fPIC", *(["-c"] if form == "object" else ["-shared"]), "f.c", "-o", "out", cwd=tmp_path)
    finding = only(tmp_path / "out", "not-processed", "error")
    assert [place.probe for place in finding.places] == ["app:req__done"]


def test_a_stripped_library_shows_them_too(tmp_path: Path, compiled: Any) -> None:
    compiled(tmp_path, "f.c", CALLS.format(name="__dtrace_app___go"), "-fPIC", "-shared", "-s", to="out")
    only(tmp_path / "out", "not-processed", "error")


def test_a_probe_declared_in_cplusplus_without_extern_c(tmp_path: Path, compiled: Any) -> None:
    compiled(tmp_path, "f.cc", CALLS.format(name="__dtrace_app___go"), "-c", cc="g++")
    assert "extern" in only(tmp_path / "f.o", "not-processed", "error").what


@pytest.mark.parametrize("form", ["object", "library"])
def test_weak_leftovers_are_no_finding_unless_something_calls_them(form: str, tmp_path: Path, run: Any) -> None:
    weak = ' .weak __dtrace_app___go\n .hidden __dtrace_app___go\n .section .note.GNU-stack,"",@progbits\n'
    (tmp_path / "idle.s").write_text(" .text\n.Lplace: nop\n .reloc .Lplace, R_X86_64_NONE, __dtrace_app___go\n" + weak)
    (tmp_path / "used.s").write_text(" .text\n call __dtrace_app___go\n" + weak)
    option = "-c" if form == "object" else "-shared"
    for name in ("idle", "used"):
        run("gcc", option, f"{name}.s", "-o", name, cwd=tmp_path)
    assert "not-processed" not in findings(tmp_path / "idle")
    if form == "object":
        only(tmp_path / "used", "not-processed", "error")


@pytest.mark.parametrize("linker", ["bfd", "gold", "lld", "mold"])
def test_what_linkers_make_of_leftovers_is_no_finding(linker: str, program: Any, note: Any, need: Any) -> None:
    need(f"ld.{linker}")
    weak = " .weak __dtrace_app___go\n .hidden __dtrace_app___go\n .reloc .Lsite0, R_X86_64_NONE, __dtrace_app___go\n"
    assert "not-processed" not in findings(program(note(), "\n .text\n" + weak, linker=linker))


def test_objects_of_link_time_optimisation(tmp_path: Path, run: Any) -> None:
    (tmp_path / "with.c").write_text(CALLS.format(name="__dtrace_app___go"))
    (tmp_path / "without.c").write_text("int f(void) { return 1; }\n")
    for name in ("with", "without"):
        run("gcc", "-flto", "-fno-fat-lto-objects", "-c", f"{name}.c", cwd=tmp_path)
    assert "lto-object" in findings(tmp_path / "with.o")
    only(tmp_path / "without.o", "lto-object", "note")


LATER = "holds intermediate code only (LTO): its probes show when it is linked [lto-object]"


@pytest.mark.parametrize("compiler", ["gcc", "clang"])
def test_probes_of_a_header_in_intermediate_code_show_when_it_is_linked(
    compiler: str, tmp_path: Path, run: Any, usdtbuild: Any, need: Any, header_of: Any
) -> None:
    header_of(tmp_path, "app.d", "provider app { probe go(int x); };\n")
    (tmp_path / "main.c").write_text('#include "app.h"\nint main(void) { APP_GO(1); return 0; }\n')
    run(need(compiler), "-O2", "-flto", "-c", "main.c", cwd=tmp_path)
    run("ar", "rc", "lib.a", "main.o", cwd=tmp_path)
    for target in ("main.o", "lib.a"):
        done = usdtbuild("verify", "--strict", "--provider", "app.d", target, cwd=tmp_path)
        assert f"{target}: note: {LATER}\n" in done.stdout
        assert "no-site" not in done.stdout
    said = ", but intermediate code (LTO): its probes show when it is linked\n"
    assert usdtbuild("list", "lib.a", cwd=tmp_path).stderr == f"usdtbuild: lib.a: no probes found{said}"
    run("gcc", "-x", "c", "/dev/null", "-shared", "-o", "lib.so", cwd=tmp_path)
    assert "[no-site]" in usdtbuild("verify", "--provider", "app.d", "lib.so", "lib.a", code=1, cwd=tmp_path).stdout


def test_machine_code_beside_intermediate_code_is_judged(tmp_path: Path, run: Any, header_of: Any) -> None:
    header_of(tmp_path, "app.d", "provider app { probe go(int x); };\n")
    (tmp_path / "main.c").write_text('#include "app.h"\nint main(void) { APP_GO(1); return 0; }\n')
    run("gcc", "-flto", "-ffat-lto-objects", "-c", "main.c", cwd=tmp_path)
    assert findings(tmp_path / "main.o") == {}


def test_fat_objects_with_records_and_intermediate_code(program: Any, note: Any) -> None:
    code = '\n .section .gnu.lto_main,"e",@progbits\n .asciz "__dtrace_app___go"\n'
    only(program(note(), code, flags=("-c",)), "lto-object", "error")
    assert findings(program(note(), flags=("-c",))) == {}


def test_records_that_were_stripped_away(program: Any, note: Any, semaphore_section: str, run: Any, need: Any) -> None:
    path = program(note(semaphore="sem"), semaphore_section)
    run(need("llvm-strip"), "-s", path)
    finding = only(path, "notes-stripped", "error")
    assert {place.section for place in finding.places} == {".stapsdt.base", ".probes"}
    kept = program(note(semaphore="sem"), semaphore_section)
    run("strip", "-s", kept)
    assert findings(kept) == {}


def test_records_that_went_missing_though_the_file_is_not_stripped(program: Any, note: Any, run: Any) -> None:
    path = program(note())
    run("objcopy", "-R", ".note.stapsdt", path)
    only(path, "notes-missing", "warning")


def test_a_file_without_any_probe(tmp_path: Path, run: Any, compiled: Any) -> None:
    compiled(tmp_path, "f.c", "int main(void) { return 0; }\n", to="program")
    run("gcc", "-c", "f.c", "-o", "object", cwd=tmp_path)
    assert "USDT_DISABLE" in only(tmp_path / "program", "no-probes", "warning").cure
    assert findings(tmp_path / "object") == {}


def test_a_file_without_section_headers(program: Any, note: Any, tmp_path: Path) -> None:
    data = bytearray(program(note()).read_bytes())
    data[40:48] = bytes(8)  # e_shoff
    data[58:64] = bytes(6)  # e_shentsize, e_shnum, e_shstrndx
    (tmp_path / "bare").write_bytes(data)
    only(tmp_path / "bare", "no-section-headers", "error")


def test_a_split_debug_file(program: Any, note: Any, tmp_path: Path, run: Any) -> None:
    run("objcopy", "--only-keep-debug", program(note()), tmp_path / "debug")
    only(tmp_path / "debug", "debug-file", "error")


# -- the section of the records ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("section", "severity", "what"),
    [
        ('.note.stapsdt,"a","note"', "warning", "is loaded"),
        ('.note.stapsdt,"","progbits"', "error", "SHT_NOTE"),
    ],
)
def test_the_section_of_the_records_must_be_as_readers_want_it(
    section: str, severity: str, what: str, program: Any, note: Any
) -> None:
    path = program(note(section=section), flags=("-no-pie",))
    assert what in only(path, "note-section", severity).what


def test_records_that_are_aligned_to_eight(program: Any, note: Any) -> None:
    path = program(note("8@%rsi", probe="p0000"), '\n .pushsection .note.stapsdt,"","note"\n .balign 8\n .popsection\n')
    assert "aligned to 8" in findings(path)["note-section"].what


def test_two_sections_of_records_in_one_binary(program: Any, note: Any, run: Any) -> None:
    path = program(note(), note(probe="p1", site=".Lsite1", section='.note.extra,"","note"'), sites=("nop", "nop"))
    assert findings(path) == {}
    run("objcopy", "--rename-section", ".note.extra=.note.stapsdt", path)
    assert "there are 2 sections" in only(path, "note-section", "error").what


@pytest.mark.parametrize(
    ("more", "what"), [({"kind": 2}, "of another type"), ({"owner": "stopsdt"}, "of another owner")]
)
def test_other_notes_among_the_records(more: dict[str, Any], what: str, program: Any, note: Any) -> None:
    finding = only(program(note(), note(probe="p1", **more)), "foreign-note", "warning")
    assert what in finding.what
    assert finding.places[0].section == ".note.stapsdt"
    assert finding.places[0].offset > 0


def test_notes_that_every_reader_passes_over_are_no_finding(program: Any, note: Any) -> None:
    """What a linker makes of the record of code that it dropped: an owner that is a byte short, another provider."""
    assert findings(program(note(owner_size=7, site="0", provider="ov"), note())) == {}


@pytest.mark.parametrize("broken", [".4byte 8, 4000, 3", '.4byte 8, 8, 3\n .asciz "stapsdt"\n .8byte 1', ".4byte 1"])
def test_records_that_cannot_be_read(broken: str, program: Any, note: Any) -> None:
    path = program(note(), f'\n .pushsection .note.stapsdt,"","note"\n .balign 4\n {broken}\n .popsection\n')
    assert findings(path)["notes-damaged"].severity == "error"


def test_records_that_nothing_ties_to_their_function(program: Any, note: Any) -> None:
    function = '\n .section .text.dead,"ax",@progbits\n.Ldead: nop\n'
    free = program(note(site=".Ldead"), function, flags=("-c",))
    only(free, "untied-records", "note")
    tied = program(note(site=".Ldead", section='.note.stapsdt,"o","note",.text.dead'), function, flags=("-c",))
    assert findings(tied) == {}


# -- the base ----------------------------------------------------------------------------------------------------------


def test_a_missing_base(program: Any, note: Any) -> None:
    only(program(note(base="0"), base=""), "base-missing", "error")


def test_a_base_of_zero(program: Any, note: Any) -> None:
    only(program(note(base="0")), "base-wrong", "error")


def test_a_base_that_was_moved_with_the_code_is_a_warning(program: Any, note: Any) -> None:
    assert "-0x10" in only(program(note(base="_.stapsdt.base+16", site=".Lsite0+16")), "base-wrong", "warning").what


def test_a_base_that_was_moved_alone_is_an_error(program: Any, note: Any) -> None:
    found = findings(program(note(base="_.stapsdt.base+2")))
    assert found["base-wrong"].severity == "error"


def test_an_object_s_base_without_relocation(program: Any, note: Any) -> None:
    only(program(note(base="0"), flags=("-c",)), "base-wrong", "error")


# -- sites -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("site", ["0", "1", "datum", "0x7fff0000"])
def test_records_of_code_that_is_not_there(site: str, program: Any, note: Any) -> None:
    path = program(note(), note(site=site, probe="gone"), "\n .data\ndatum: .long 1\n")
    finding = only(path, "ghost", "error")
    assert [place.probe for place in finding.places] == ["pv:gone"]


@pytest.mark.parametrize("linker", ["bfd", "lld", "mold"])
def test_ghosts_that_a_linker_really_leaves(linker: str, program: Any, note: Any, need: Any) -> None:
    """sys/sdt.h's plain notes and --gc-sections: bfd keeps the function, gold refuses, lld and mold leave a ghost."""
    need(f"ld.{linker}")
    dead = '\n .section .text.dead,"ax",@progbits\n.Ldead: nop\n'
    path = program(note(), note(probe="dead", site=".Ldead"), dead, flags=("-Wl,--gc-sections",), linker=linker)
    assert ("ghost" in findings(path)) == (linker != "bfd")


def test_an_object_s_record_without_a_place(program: Any, note: Any) -> None:
    datum = "\n .data\ndatum: .long 1\n"
    assert set(findings(program(note(site="0"), flags=("-c",)))) == {"ghost"}
    assert set(findings(program(note(site="datum"), datum, flags=("-c",)))) == {"ghost"}


@pytest.mark.parametrize(
    "code",
    ["nop", ".byte 0x90", ".byte 0x66,0x90", ".byte 0x0f,0x1f,0", ".byte 0x0f,0x1f,0x40,0", ".byte 0x0f,0x1f,0x44,0,0",
     ".byte 0x66,0x0f,0x1f,0x44,0,0", ".byte 0x0f,0x1f,0x80,0,0,0,0", ".byte 0x0f,0x1f,0x84,0,0,0,0,0"],
)  # fmt: skip
def test_every_nop_is_a_site(code: str, program: Any, note: Any) -> None:
    # A kernel makes a call of this one, and the function that the site is in has no frame.
    dangerous = {"red-zone"} if code == ".byte 0x0f,0x1f,0x44,0,0" else set()
    assert set(findings(program(note(), sites=(code,)))) == dangerous


def test_a_return_is_a_site(program: Any, note: Any) -> None:
    assert findings(program(note(site=".Lend"), "\n .text\n.Lend: ret\n")) == {}


@pytest.mark.parametrize("code", ["xor %eax,%eax", "call main", "endbr64", "int3"])
@pytest.mark.parametrize("flags", [(), ("-c",)])
def test_other_instructions_at_a_site_are_a_warning(code: str, flags: tuple[str, ...], program: Any, note: Any) -> None:
    finding = only(program(note(), sites=(code,), flags=flags), "site-code", "warning")
    assert finding.places[0].function.startswith("main+")


@pytest.mark.parametrize("code", ["cs nopw 0(%rax,%rax)", ".byte 0x3e,0x90", "lock addl $0,(%rsp)"])
def test_instructions_that_the_kernel_refuses(code: str, program: Any, note: Any) -> None:
    assert "prefix" in findings(program(note(), sites=(code,)))["site-refused"].what


FOREIGN_CODE = {
    "aarch64-linux-gnu": ("nop", "ret", "mov x0, x1"),
    "armv7-linux-gnueabi": ("mov r0, r0", "bx lr", "add r0, r0, r1"),
    "powerpc64le-linux-gnu": ("nop", "blr", "li 3, 0"),
    "powerpc64-linux-gnu": ("nop", "blr", "li 3, 0"),
    "riscv64-linux-gnu": ("nop", "ret", "li a0, 1"),
    "i386-linux-gnu": ("nop", "ret", "xor %eax, %eax"),
    "mips-linux-gnu": ("nop", "jr $ra", "addiu $4, $4, 1"),
}


@pytest.mark.parametrize("target", FOREIGN_CODE)
def test_sites_of_other_machines(target: str, foreign: Any, note: Any) -> None:
    nop, ret, other = FOREIGN_CODE[target]
    address = ".8byte" if "64" in target else ".4byte"
    for code, quiet in ((nop, True), (ret, True), (other, False)):
        order = " .set noreorder\n" if "mips" in target else ""
        found = findings(foreign(target, f"{order}.Lsite0: {code}\n {nop}\n {note('', address=address)}"))
        assert ("site-code" in found) != quiet, code
        assert "ghost" not in found


def test_one_probe_twice_at_one_address(program: Any, note: Any) -> None:
    assert "shows none of its probes" in only(program(note(), note()), "duplicate-site", "error").what
    path = program(note(), note(), note(probe="last", site=".Lsite1"), sites=("nop", "nop"))
    assert "shows none" not in only(path, "duplicate-site", "error").what
    assert findings(program(note(), note(site=".Lsite1"), sites=("nop", "nop"))) == {}


def test_one_probe_twice_in_an_object(program: Any, note: Any) -> None:
    assert "--icf=all" in only(program(note(), note(), flags=("-c",)), "duplicate-site", "error").cure


def test_two_probes_at_one_address(program: Any, note: Any) -> None:
    assert "pv:p1 and pv:p0" in only(program(note(), note(probe="p1")), "folded-sites", "warning").what


# -- perf --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("linker", "flags", "found"),
    [
        ("bfd", (), False),
        ("bfd", ("-no-pie",), False),
        ("gold", (), False),
        ("lld", (), True),
        ("lld", ("-no-pie",), True),
        ("lld", ("-Wl,-z,separate-loadable-segments",), False),
        ("lld", ("-Wl,-z,separate-code",), False),
        ("mold", (), True),
        ("mold", ("-Wl,-z,separate-loadable-segments",), False),
    ],
)
def test_where_perf_looks(linker: str, flags: tuple[str, ...], found: bool, program: Any, note: Any, need: Any) -> None:
    need(f"ld.{linker}")
    path = program(note(), flags=("-Wl,--build-id=sha1", *flags), linker=linker)
    assert ("perf-offset" in findings(path)) == found


def test_a_base_beside_the_code_makes_perf_look_right(program: Any, note: Any, need: Any) -> None:
    need("ld.lld")
    base = '\n .section .stapsdt.base,"axG",@progbits,.stapsdt.base,comdat\n_.stapsdt.base: .byte 0\n'
    assert findings(program(note(), base=base, flags=("-Wl,--build-id=sha1",), linker="lld")) == {}


@pytest.mark.parametrize(
    ("option", "found"), [("none", True), ("0x0123456789abcdef", True), ("sha1", False), ("md5", False)]
)
def test_build_ids(option: str, found: bool, program: Any, note: Any) -> None:
    path = program(note(), flags=(f"-Wl,--build-id={option}",))
    assert ("build-id" in findings(path)) == found


# -- semaphores --------------------------------------------------------------------------------------------------------

SEMAPHORES: dict[str, tuple[str, str]] = {
    ".probes, 2 aligned": ('.section .probes,"aw",@progbits\n .balign 2\nsem: .2byte 0', ""),
    "odd": ('.section .probes,"aw",@progbits\n .balign 2\n .byte 0\nsem: .2byte 0', "semaphore-alignment"),
    ".bss": ('.section .probes,"aw",@nobits\n .balign 2\nsem: .skip 2', "semaphore-unbacked"),
    "far in .bss": ('.section .probes,"aw",@nobits\n .skip 20000\nsem: .skip 2', "semaphore-unbacked"),
    "constant": ('.section .probes,"a",@progbits\n .balign 2\nsem: .2byte 0', "semaphore-read-only"),
    "in .data": (".data\n .balign 2\nsem: .2byte 0", "semaphore-section"),
    "RELRO": ('.section .data.rel.ro,"aw",@progbits\n .balign 2\nsem: .2byte 0', "semaphore-relro"),
    "begins as 1": ('.section .probes,"aw",@progbits\n .balign 2\nsem: .2byte 1', "semaphore-value"),
}  # fmt: skip


@pytest.mark.parametrize("case", SEMAPHORES)
def test_where_a_semaphore_is(case: str, program: Any, note: Any) -> None:
    section, check = SEMAPHORES[case]
    found = findings(program(note(semaphore="sem"), f"\n {section}\n"))
    assert set(found) == ({check} if check else set())
    if check:
        assert found[check].places[0].probe == "pv:p0"


def test_a_semaphore_outside_every_segment(program: Any, note: Any) -> None:
    only(program(note(semaphore="0x7fff0000")), "semaphore-unbacked", "error")


@pytest.mark.parametrize(
    ("linker", "align", "flags", "found"),
    [
        ("bfd", 2, (), False),
        ("gold", 2, (), False),
        ("lld", 2, (), True),
        ("mold", 2, (), True),
        ("lld", 4096, (), False),
        ("mold", 4096, (), False),
        ("lld", 2, ("-Wl,-z,separate-loadable-segments",), False),
        ("lld", 2, ("-Wl,-z,norelro",), False),
    ],
)
def test_pages_that_are_mapped_twice(
    linker: str, align: int, flags: tuple[str, ...], found: bool, program: Any, note: Any, need: Any
) -> None:
    need(f"ld.{linker}")
    section = f'\n .section .probes,"aw",@progbits\n .balign {align}\nsem: .2byte 0\n'
    path = program(note(semaphore="sem"), section, linker=linker, flags=flags)
    assert ("semaphore-page" in findings(path)) == found


def test_pages_of_sixty_four_kibibytes(foreign: Any, note: Any) -> None:
    """4096 is enough for most kernels of AArch64, and not for those with large pages."""
    source = f"""
.Lsite0: nop
 {note("", semaphore="sem")}
 .section .data.rel.ro,"aw",%progbits
 .8byte _start
 .section .probes,"aw",%progbits
 .balign 4096
sem: .2byte 0
"""
    finding = findings(foreign("aarch64-linux-gnu", source, link=("-pie", "-z", "relro")))["semaphore-page"]
    assert finding.severity == "warning"
    assert "64 KiB" in finding.what


def test_two_probes_with_one_semaphore(program: Any, note: Any, semaphore_section: str) -> None:
    notes = note(semaphore="sem"), note(probe="p1", site=".Lsite1", semaphore="sem")
    only(program(*notes, semaphore_section, sites=("nop", "nop")), "semaphore-shared", "warning")


def test_one_probe_with_two_semaphores(program: Any, note: Any, semaphore_section: str) -> None:
    notes = note(semaphore="sem"), note(site=".Lsite1")
    finding = only(program(*notes, semaphore_section, sites=("nop", "nop")), "semaphore-mixed", "warning")
    assert "none" in finding.what


def test_an_exported_semaphore_of_a_library(program: Any, note: Any) -> None:
    section = '\n .globl a_semaphore\n .section .probes,"aw",@progbits\n .balign 2\n .type a_semaphore,@object\n' \
              " .size a_semaphore,2\na_semaphore:\nsem: .2byte 0\n"  # fmt: skip
    only(program(note(semaphore="sem"), section, flags=("-shared",)), "semaphore-exported", "warning")
    # A program's own comes first in the search for the name, so no other takes its place.
    assert findings(program(note(semaphore="sem", provider="a", probe="a"), section, flags=("-rdynamic",))) == {}
    hidden = section.replace(".globl", ".hidden a_semaphore\n .globl")
    assert findings(program(note(semaphore="sem"), hidden, flags=("-shared",))) == {}


def test_an_object_s_semaphores(program: Any, note: Any) -> None:
    for case, check in (("odd", "semaphore-alignment"), ("begins as 1", "semaphore-value"), (".probes, 2 aligned", "")):
        path = program(note(semaphore="sem"), f"\n {SEMAPHORES[case][0]}\n", flags=("-c",))
        assert set(findings(path)) == ({check} if check else set())


# -- arguments ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "operands", ["-4@%edi 8@%rsi 1@%edx 2@%ecx -4@%r9d 8@%r8", "4@0(%rsp) 8@8(%rsp) -4@-20(%rbp)", ""]
)
def test_operands_that_every_tracer_reads(operands: str, program: Any, note: Any) -> None:
    assert findings(program(note(operands))) == {}


@pytest.mark.parametrize(
    ("operand", "severity", "who"),
    [
        ("4@$71", "note", "perf"),
        ("1@%ah", "warning", "libbpf"),
        ("1@%r9b", "warning", "gdb"),
        ("8f@%xmm0", "warning", "gdb"),
        ("16@%rax", "warning", "perf shows no probe of the file"),
        ("4@count(%rip)", "warning", "bpftrace"),
        ("4@(%rax,%rcx,4)", "warning", "libbpf before 1.7"),
        ("4@0x10(%rsp)", "warning", "gdb"),
        ("%eax", "warning", "libbpf"),
    ],
)
def test_operands_that_some_tracer_does_not_read(
    operand: str, severity: str, who: str, program: Any, note: Any
) -> None:
    finding = only(program(note(f"-4@%edi {operand}")), "operand", severity)
    assert finding.what.startswith(f"argument 1 is given as `{operand}`")
    assert who in finding.what
    assert ("provider file" in finding.cure) == ("$" not in operand)


@pytest.mark.parametrize(
    ("target", "good", "bad"),
    [
        ("aarch64-linux-gnu", "-4@x0 8@[sp, 8] 8@sp", "4@w1"),
        ("armv7-linux-gnueabi", "-4@r0 4@[sp, #4]", "8@d0"),
        ("riscv64-linux-gnu", "8@a0 8@-8(s0)", "8@fa0"),
        ("powerpc64le-linux-gnu", "8@3 8@8(1)", "8@f1"),
    ],
)
def test_operands_of_other_machines(target: str, good: str, bad: str, foreign: Any, note: Any) -> None:
    for operands, found in ((good, False), (bad, True)):
        record = note(operands, address=".8byte" if "64" in target else ".4byte")
        assert ("operand" in findings(foreign(target, f".Lsite0: nop\n{record}"))) == found


@pytest.mark.parametrize(("count", "found"), [(12, False), (13, True)])
def test_more_than_twelve_arguments(count: int, found: bool, program: Any, note: Any) -> None:
    path = program(note(" ".join(["-4@%edi"] * count)))
    assert ("many-arguments" in findings(path)) == found


def test_sites_that_disagree_about_their_arguments(program: Any, note: Any) -> None:
    two = ("nop", "nop")
    counts = only(
        program(note("-4@%edi"), note("-4@%edi 8@%rsi", site=".Lsite1"), sites=two), "argument-mismatch", "warning"
    )
    assert "1 and 2 arguments" in counts.what
    sizes = only(program(note("-4@%edi"), note("8@%rdi", site=".Lsite1"), sites=two), "argument-mismatch", "note")
    assert "cast the argument" in sizes.cure  # the header isn't to blame: that of `dtrace -h` records what calls pass
    assert findings(program(note("-4@%edi"), note("-4@%esi", site=".Lsite1"), sites=two)) == {}


def test_more_argument_strings_than_libbpf_takes(program: Any, note: Any) -> None:
    count = 257
    notes = [note(f"-4@{4 * i}(%rsp)", site=f".Lsite{i}") for i in range(count)]
    only(program(*notes, sites=("nop",) * count), "many-specs", "warning")
    assert findings(program(*notes[1:], sites=("nop",) * count)) == {}


# -- names -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("names", "found"),
    [
        ({"probe": "p" * 63, "provider": "v" * 59}, ""),
        ({"probe": "p" * 64}, "64 letters"),
        ({"provider": "v" * 60}, "60 letters"),
        ({"probe": "req-done"}, "no C identifier"),
        ({"provider": "a.b"}, "no C identifier"),
        ({"probe": ""}, "no name"),
    ],
)
def test_names(names: dict[str, str], found: str, program: Any, note: Any) -> None:
    path = program(note(**names))
    if found:
        assert found in only(path, "name", "warning" if "no name" not in found else "error").what
    else:
        assert findings(path) == {}


# -- descriptions and provider files -----------------------------------------------------------------------------------

INT = CType("int", INTEGER, True, 4, 4)
LONG = CType("unsigned long", INTEGER, False, 8, 4)
TEXT = CType("char *", POINTER, False, 8, 4, True)
DOUBLE = CType("double", FLOAT, True, 8, 8)


def provider(*types: CType, name: str = "pv", probe: str = "p0") -> Provider:
    return Provider(name, (Probe(probe, tuple(Argument(ctype, "a") for ctype in types)),))


def description(*providers: Provider) -> str:
    text = "".join(describe.encode(one) for one in providers)
    strings = "".join(' .ascii "' + line.replace("\t", "\\t") + '\\n"\n' for line in text.splitlines())
    return f'\n .pushsection {describe.SECTION},"",@progbits\n{strings} .popsection\n'


TYPES: dict[str, tuple[tuple[CType, ...], str, str]] = {
    "all fit": ((INT, TEXT, DOUBLE, LONG), "-4@%edi 8@%rsi 8@%rdx 8@%rcx", ""),
    "a double in its own register": ((DOUBLE,), "8f@%xmm0", ""),
    "a size": ((INT,), "-8@%rdi", "has 4 bytes, and the record says 8"),
    "a sign": ((LONG,), "-8@%rdi", "is unsigned, and the record says otherwise"),
    "a count": ((INT, INT), "-4@%edi", "a site has 1 argument, and its declaration 2"),
    "a float": ((LONG,), "8f@%xmm0", "is no floating-point number"),
    "a pointer's sign is nobody's business": ((TEXT,), "-8@%rdi", ""),
    "more than twelve are not described": ((INT,) * 14, " ".join(["-4@%edi"] * 12), ""),
}


@pytest.mark.parametrize("case", TYPES)
def test_operands_against_declared_types(case: str, program: Any, note: Any) -> None:
    types, operands, message = TYPES[case]
    path = program(note(operands), description(provider(*types)))
    found, expected = findings(path), findings(path, {"pv": provider(*types)})
    assert ("declared-type" in found) == ("declared-type" in expected) == bool(message)
    if message:
        assert message in found["declared-type"].what
        assert (found["declared-type"].severity, expected["declared-type"].severity) == ("warning", "error")


def test_the_user_s_provider_file_goes_before_the_file_s_own_description(program: Any, note: Any) -> None:
    path = program(note("-4@%edi"), description(provider(INT)))
    assert findings(path) == {}
    only(path, "declared-type", "error", {"pv": provider(LONG)})


def test_a_probe_that_is_not_declared(program: Any, note: Any) -> None:
    path = program(note(), note(probe="other", site=".Lsite1"), sites=("nop", "nop"))
    only(path, "undeclared-probe", "warning", {"pv": provider(INT)})
    assert findings(path, {"another": provider(INT)}) == {}


def test_a_declared_probe_without_a_site_is_a_note(program: Any, note: Any) -> None:
    both = Provider("pv", (Probe("p0", (Argument(INT, ""),)), Probe("never__called", ())))
    finding = only(program(note(), description(both)), "no-site", "note")
    assert [place.probe for place in finding.places] == ["pv:never__called"]
    assert findings(program(note(), description(both), flags=("-c",))) == {}


def test_two_versions_of_one_provider(program: Any, note: Any) -> None:
    path = program(note("-4@%edi"), description(provider(INT), provider(LONG)))
    only(path, "description-conflict", "warning")
    assert findings(program(note("-4@%edi"), description(provider(INT), provider(INT)))) == {}


def test_a_damaged_description(program: Any, note: Any) -> None:
    text = f'\n .pushsection {describe.SECTION},"",@progbits\n .ascii "junk\\n"\n .popsection\n'
    only(program(note(), text), "description", "warning")


# -- the command -------------------------------------------------------------------------------------------------------

APP_D = """
provider pv {
    probe p0(int a);
    probe p1(unsigned long a);
};
"""


def test_a_sound_file_passes_with_one_line(usdtbuild: Any, program: Any, note: Any) -> None:
    path = program(note())
    assert usdtbuild("verify", path).stdout == f"{path}: PIE executable: 1 probe, 1 site: nothing found\n"


def test_an_error_exits_with_1_and_says_where_and_what_cures_it(usdtbuild: Any, program: Any, note: Any) -> None:
    path = program(note(), note(site="0", probe="gone"))
    first, where, cure, summary = usdtbuild("verify", path, code=1).stdout.splitlines()
    assert re.fullmatch(rf"{path}: error: a record points to no code, .*\[ghost\]", first)
    assert re.fullmatch(r"    at \.note\.stapsdt\+0x\w+, probe pv:gone", where)
    assert cure.startswith("    cure: link ")
    assert summary == f"{path}: PIE executable: 2 probes, 2 sites: 1 error"


def test_warnings_pass_unless_strict(usdtbuild: Any, program: Any, note: Any) -> None:
    path = program(note(), sites=("int3",))
    assert usdtbuild("verify", path).stdout.endswith("1 warning\n")
    usdtbuild("verify", "--strict", path, code=1)


def test_notes_pass_even_when_strict(usdtbuild: Any, program: Any, note: Any) -> None:
    assert "1 note" in usdtbuild("verify", "--strict", program(note("4@$7"))).stdout


def test_findings_can_be_left_out(usdtbuild: Any, program: Any, note: Any) -> None:
    path = program(note(), note(site="0", probe="gone"))
    assert "nothing found" in usdtbuild("verify", "--ignore", "ghost", path).stdout
    assert "there is no such finding" in usdtbuild("verify", "--ignore", "ghosts", path, code=2).stderr


def test_many_places_are_counted(usdtbuild: Any, program: Any, note: Any) -> None:
    path = program(*(note(site=f".Lsite{i}") for i in range(9)), sites=("int3",) * 9)
    shown = usdtbuild("verify", path).stdout
    assert shown.count("    at ") == 3
    assert "    and 6 more\n" in shown
    assert len(verified(usdtbuild, path)["files"][0]["findings"][0]["places"]) == 9


def verified(usdtbuild: Any, *arguments: Any, code: int = 0) -> dict[str, Any]:
    document = json.loads(usdtbuild("verify", "--json", *arguments, code=code).stdout)
    assert (document["format"], document["version"]) == ("usdtbuild-verify", 1)
    return document


def test_the_documented_fields_are_there(usdtbuild: Any, program: Any, note: Any) -> None:
    path = program(note(), sites=("int3",))
    document = verified(usdtbuild, path)
    assert document["passed"] is True
    (file,) = document["files"]
    counts = {"probes": 1, "sites": 1, "errors": 0, "warnings": 1, "notes": 0}
    assert {key: file[key] for key in (*counts, "path", "kind")} == {
        **counts,
        "path": str(path),
        "kind": "PIE executable",
    }
    (finding,) = file["findings"]
    assert finding.keys() == {"check", "severity", "what", "cure", "places"}
    (place,) = finding["places"]
    assert place.keys() == {"probe", "address", "section", "offset", "function", "text"}
    assert (place["probe"], place["section"], place["address"]) == ("pv:p0", ".text", place["text"])
    assert verified(usdtbuild, "--strict", path, code=1)["passed"] is False


def test_a_provider_file_is_held_against_the_binaries(usdtbuild: Any, program: Any, note: Any, tmp_path: Path) -> None:
    (tmp_path / "app.d").write_text(APP_D)
    first, second = program(note()), program(note("8@%rdi", probe="p1"))
    option = f"--provider={tmp_path / 'app.d'}"
    missing = usdtbuild("verify", option, first, code=1).stdout
    assert "app.d: error: declared, and nowhere called [no-site]\n    probe pv:p1\n" in missing
    assert "error" not in usdtbuild("verify", option, first, second).stdout
    wrong = program(note("-8@%rdi"), note("8@%rdi", probe="p1", site=".Lsite1"), sites=("nop", "nop"))
    assert "argument 0 (int a) has 4 bytes, and the record says 8" in usdtbuild("verify", option, wrong, code=1).stdout


def test_a_wrong_provider_file_is_shown_with_its_line(usdtbuild: Any, program: Any, note: Any, tmp_path: Path) -> None:
    """As `usdtbuild header` shows it, so that an editor finds each mistake."""
    (tmp_path / "bad.d").write_text("provider x {\n probe p(nonsense_t *);\n probe q(foo_t);\n};\n")
    said = usdtbuild("header", tmp_path / "bad.d", code=1).stderr
    for command in ("verify", "script bpftrace", "trace -p 1", "instrument"):
        words = [*command.split(), f"--provider={tmp_path / 'bad.d'}", *[program(note())] * ("-p" not in command)]
        assert usdtbuild(*words, code=1).stderr == said
    assert [line.partition(" ")[0] for line in said.splitlines()[::3]] == [
        f"{tmp_path / 'bad.d'}:2:10:",
        f"{tmp_path / 'bad.d'}:3:10:",
    ]
    done = usdtbuild("verify", f"--provider={tmp_path / 'none.d'}", program(note()), code=1)
    assert "none.d: no such file" in done.stderr


def test_a_folder_is_verified_without_what_has_no_probes(
    usdtbuild: Any, program: Any, note: Any, tmp_path: Path, run: Any
) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    shutil.copy(program(note()), folder / "with")
    (tmp_path / "f.c").write_text("int main(void) { return 0; }\n")
    run("gcc", tmp_path / "f.c", "-o", folder / "without")
    document = verified(usdtbuild, folder)
    assert [file["path"] for file in document["files"]] == [str(folder / "with")]


def test_an_archive_s_members_are_verified(usdtbuild: Any, program: Any, note: Any, tmp_path: Path, run: Any) -> None:
    program(note(base="0"), flags=("-c",), name="member.o")
    run("ar", "rc", "lib.a", "member.o", cwd=tmp_path)
    document = verified(usdtbuild, tmp_path / "lib.a", code=1)
    assert document["files"][0]["path"].endswith("lib.a(member.o)")


# -- documentation -----------------------------------------------------------------------------------------------------


def test_every_finding_is_documented() -> None:
    rows = re.findall(r"^\| `([a-z][a-z-]+)` \| [a-z]+[;: |]", DOCUMENTATION.read_text(), re.MULTILINE)
    assert sorted(rows) == sorted(NAMES)


# --- data below the stack pointer -------------------------------------------------------------------------------

LEAVES = """
int leaf(int x) { volatile int kept[8]; for (int i = 0; i < 8; i++) kept[i] = x; SITE; return kept[x & 7]; }
int main(int argc, char **argv) { (void)argv; return leaf(argc) - argc; }
"""
SITE = (
    '__asm__ volatile(".Lsite: .byte %s\\n .pushsection .note.stapsdt,\\"\\",\\"note\\"\\n .balign 4\\n'
    ' .4byte 8,1f-2f,3\\n .asciz \\"stapsdt\\"\\n2: .8byte .Lsite,0,0\\n'
    ' .asciz \\"pv\\"\\n .asciz \\"p0\\"\\n .asciz \\"\\"\\n'
    '1: .balign 4\\n .popsection\\n .globl site")'
)


@pytest.mark.parametrize(
    "flags", ["-O0", "-O2", "-O2 -mno-red-zone", "-O0 -mno-red-zone", "-O1 -fno-omit-frame-pointer"]
)
@pytest.mark.parametrize("compiler", ["gcc", "clang"])
def test_a_nop_of_five_bytes_above_data_below_the_stack_pointer(
    compiler: str, flags: str, need: Any, usdtbuild: Any, tmp_path: Path, compiled: Any
) -> None:
    """What the kernel makes a call of; with a NOP of one byte, or a frame, all is well."""
    need(compiler)
    for nop, harmful in (("0x0f,0x1f,0x44,0,0", True), ("0x90", False)):
        text = f"#define SITE {SITE % nop}\n{LEAVES}"
        compiled(tmp_path, "leaf.c", text, *flags.split(), "-fno-inline", "-fno-pie", "-no-pie", cc=compiler)
        found = usdtbuild("verify", "leaf", cwd=tmp_path, code=None).stdout
        assert ("[red-zone]" in found) == (harmful and "-mno-red-zone" not in flags), found
