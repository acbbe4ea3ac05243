"""Records that are wrong in ways a tracer doesn't notice until it breaks the program, or never fires."""

from __future__ import annotations

import json
import re
import struct
from pathlib import Path
from typing import Any

import pytest

from usdtbuild.model import Provider

from .test_verify import INT, description, findings, only, provider

# -- in the middle of an instruction -----------------------------------------------------------------------------------


@pytest.mark.parametrize("flags", [(), ("-c",)], ids=["program", "object"])
@pytest.mark.parametrize(
    ("code", "distance"),
    [
        ("mov $0x90909090,%ecx", 1),  # a byte of the constant looks like a NOP
        ("mov $0x90909090,%ecx", 4),
        (".byte 0x0f,0x1f,0x44,0x00,0x90", 4),  # the end of a five-byte NOP
        ("mov $0xc3,%eax", 1),  # looks like a return
    ],
)
def test_a_record_in_the_middle_of_an_instruction_is_an_error(
    code: str, distance: int, flags: tuple[str, ...], program: Any, note: Any
) -> None:
    assert findings(program(note(), sites=("nop", code), flags=flags)) == {}
    path = program(note(site=f".Lsite1+{distance}"), sites=("nop", code), flags=flags)
    finding = only(path, "site-code", "error")
    assert "in the middle of an instruction (`" in finding.what
    assert finding.places[0].function.startswith("main+")


def test_data_before_a_site_says_nothing_about_it(program: Any, note: Any) -> None:
    """What can't be read as code from the function's start to the site isn't judged."""
    table = "jmp 1f\n .byte 6, 6, 0xb8\n1: nop"
    source = program(note(site="1b"), "", sites=(table,))
    assert findings(source) == {}


CROSSED = {
    "aarch64-linux-gnu": ("nop\n nop", 2, "no address of one"),
    "powerpc64le-linux-gnu": ("nop\n nop", 1, "no address of one"),
    "riscv64-linux-gnu": (".option norvc\n .4byte 0x00010113\n nop", 2, "bytes 13 01 01 00"),
    "s390x-linux-gnu": (".byte 0xc0,0x19,0x07,0x00,0x07,0x00", 2, "bytes c0 19 07 00 07 00"),
}


@pytest.mark.parametrize("target", CROSSED)
def test_records_in_the_middle_of_other_machines_instructions(target: str, foreign: Any, note: Any) -> None:
    code, distance, shown = CROSSED[target]
    for away, expected in ((0, False), (distance, True)):
        sized = f" .type _start, %function\n.Lcode: {code}\n .size _start, .-_start\n "
        source = sized + note("", site=f".Lcode+{away}")
        found = findings(foreign(target, source, link=() if "s390x" not in target else None))
        middle = "in the middle of an instruction" in getattr(found.get("site-code"), "what", "")
        assert middle == expected
        assert not middle or shown in found["site-code"].what


# -- at bytes that are no instruction, and at others than ours ---------------------------------------------------------


@pytest.mark.parametrize("flags", [(), ("-c",)], ids=["program", "object"])
def test_a_record_at_bytes_that_are_no_instruction_is_an_error(flags: tuple[str, ...], program: Any, note: Any) -> None:
    finding = only(program(note(), sites=(".byte 0x06",), flags=flags), "site-code", "error")
    assert "no instruction, but bytes 06" in finding.what


@pytest.mark.parametrize(
    ("target", "words"),
    [("aarch64-linux-gnu", "0xffffffff"), ("powerpc64-linux-gnu", "0x00000000"), ("riscv64-linux-gnu", "0x0000ffff")],
)
def test_bytes_that_are_no_instruction_of_other_machines(target: str, words: str, foreign: Any, note: Any) -> None:
    finding = findings(foreign(target, f".Lsite0: .4byte {words}\n {note('')}"))["site-code"]
    assert (finding.severity, "no instruction" in finding.what) == ("error", True)


def test_anything_but_a_nop_is_an_error_in_a_file_with_our_description(program: Any, note: Any) -> None:
    code = ("xor %eax,%eax",)
    only(program(note(), sites=code), "site-code", "warning")
    only(program(note(), description(provider(INT)), sites=code), "site-code", "error")
    other = findings(program(note(), description(provider(INT, name="other")), sites=code))
    assert other["site-code"].severity == "warning"


# -- semaphores that no record names -----------------------------------------------------------------------------------

SEMAPHORES = """
 .section .probes,"aw",@progbits
 .balign 4096
 .type pv_p0_semaphore,@object
 .size pv_p0_semaphore,2
pv_p0_semaphore: .2byte 0
other: .2byte 0
"""


@pytest.mark.parametrize("flags", [(), ("-c",), ("-shared", "-fPIC")], ids=["program", "object", "library"])
def test_a_record_must_name_its_probes_semaphore(flags: tuple[str, ...], program: Any, note: Any) -> None:
    assert findings(program(note(semaphore="pv_p0_semaphore"), SEMAPHORES, flags=flags)) == {}
    finding = only(program(note(), SEMAPHORES, flags=flags), "semaphore-unnamed", "error")
    assert "names no semaphore, and the file has pv_p0_semaphore" in finding.what
    finding = only(program(note(semaphore="other"), SEMAPHORES, flags=flags), "semaphore-unnamed", "error")
    assert "names a semaphore at " in finding.what
    assert findings(program(note(probe="p1"), SEMAPHORES, flags=flags)) == {}


def test_a_semaphore_of_another_object_is_none_of_this_one(program: Any, note: Any) -> None:
    weak = "\n .weak pv_p0_semaphore\n .hidden pv_p0_semaphore\n"
    assert findings(program(note(semaphore="pv_p0_semaphore"), weak, flags=("-c",))) == {}


# -- foreign records ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("flags", [(), ("-c",)], ids=["program", "object"])
@pytest.mark.parametrize("more", [{"kind": 2}, {"owner": "stopsdt"}])
def test_no_record_of_ours_among_the_records_is_an_error(
    more: dict[str, Any], flags: tuple[str, ...], program: Any, note: Any
) -> None:
    finding = only(program(note(**more), note(probe="p1", **more), flags=flags), "foreign-note", "error")
    assert len(finding.places) == 2


# -- the command -------------------------------------------------------------------------------------------------------


def verified(usdtbuild: Any, *words: Any, code: int = 0) -> list[dict[str, Any]]:
    files = json.loads(usdtbuild("verify", "--json", *words, code=code).stdout)["files"]
    return [dict(file) for file in files]


def test_an_archive_or_folder_without_probes_says_so(usdtbuild: Any, run: Any, tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / f"{name}.c").write_text(f"int {name}(void) {{ return 1; }}\n")
        run("gcc", "-c", f"{name}.c", cwd=tmp_path)
    run("ar", "cr", "lib.a", "a.o", "b.o", cwd=tmp_path)
    for target, kind in ((tmp_path / "lib.a", "archive"), (tmp_path, "folder")):
        (file,) = verified(usdtbuild, target)
        assert (file["path"], file["kind"]) == (str(target), kind)
        assert [(f["check"], f["severity"]) for f in file["findings"]] == [("no-probes", "warning")]
        assert "none of its files has a probe [no-probes]" in usdtbuild("verify", target).stdout
        usdtbuild("verify", "--strict", target, code=1)
        usdtbuild("verify", "--strict", "--ignore", "no-probes", target)


@pytest.mark.parametrize("name", ["entry-", "entry-nothing", "entry-entry-long", "entry-no-table"])
def test_entry_findings_that_there_are_not_cannot_be_ignored(
    usdtbuild: Any, program: Any, note: Any, name: str
) -> None:
    done = usdtbuild("verify", "--ignore", name, program(note()), code=2)
    assert f"--ignore {name}: there is no such finding" in done.stderr
    assert "entry-long-nop" in done.stderr
    assert done.stdout == ""


def test_every_entry_finding_can_be_ignored(usdtbuild: Any, program: Any, note: Any) -> None:
    from usdtbuild.functions.entry import REASONS
    from usdtbuild.functions.report import HARMLESS, WARNINGS

    codes = [code for code in (*REASONS, *WARNINGS) if code not in HARMLESS]
    words = [word for code in codes for word in ("--ignore", "entry-" + code.removeprefix("entry-"))]
    assert len(codes) > 20
    usdtbuild("verify", *words, program(note()))


def test_an_ignored_entry_finding_is_left_out(usdtbuild: Any, run: Any, need: Any, tmp_path: Path) -> None:
    (tmp_path / "f.c").write_text("int f(int x) { return x; }\n")
    run(need("clang"), "-O1", "-fpatchable-function-entry=8,5", "-c", "f.c", "-o", "f.o", cwd=tmp_path)
    (file,) = verified(usdtbuild, tmp_path / "f.o", code=1)
    assert [finding["check"] for finding in file["findings"]] == ["entry-long-nop"]
    (file,) = verified(usdtbuild, "--ignore", "entry-long-nop", tmp_path / "f.o")
    assert file["findings"] == []


def test_providers_of_a_file_are_told_apart(program: Any, note: Any) -> None:
    two = description(provider(INT), Provider("another", ()))
    assert findings(program(note(), two)) == {}


# -- the edges of what is refused --------------------------------------------------------------------------------------


@pytest.mark.parametrize("address", [0, 1])
def test_addresses_that_linkers_write_for_dropped_code_are_ghosts_though_code_is_mapped_there(
    address: int, program: Any, note: Any, run: Any
) -> None:
    path = program(note(), note(site=str(address), probe="gone"), flags=("-Wl,-z,noseparate-code",))
    first = next(line for line in run("readelf", "-lW", path).stdout.splitlines() if " LOAD " in f" {line} ")
    assert " R E " in first
    assert int(first.split()[2], 16) == 0
    finding = findings(path)["ghost"]
    assert [place.probe for place in finding.places] == ["pv:gone"]


PT_LOAD, PT_GNU_STACK, PT_GNU_RELRO, READ_WRITE = 1, 0x6474E551, 0x6474E552, 6


def change_segment(path: Path, kind: int, *fields: int) -> None:
    """Overwrite the program header of a type with type, flags, offset, address and size, of a 64-bit file."""
    data = bytearray(path.read_bytes())
    start, count = struct.unpack_from("<Q", data, 32)[0], struct.unpack_from("<H", data, 56)[0]
    places = [start + 56 * number for number in range(count)]
    (at,) = [place for place in places if struct.unpack_from("<I", data, place)[0] == kind]
    new, flags, offset, address, size = fields
    struct.pack_into("<IIQQQQQQ", data, at, new, flags, offset, address, address, size, size, 4096)
    path.write_bytes(data)


def page_of_semaphore(path: Path, run: Any) -> tuple[int, int]:
    """Return address and file offset of the section .probes."""
    text = run("readelf", "-SW", path).stdout
    address, offset = re.findall(r"\.probes +PROGBITS +(\w+) (\w+)", text)[0]
    return int(address, 16), int(offset, 16)


@pytest.mark.parametrize(
    ("start", "size", "found"),
    [(-4096, 4096, False), (-4096, 8191, False), (-4096, 8192, True), (0, 4096, True), (0, 4095, False),
     (4096, 4096, False)],
)  # fmt: skip
def test_relro_covers_whole_pages_up_to_its_end(
    start: int, size: int, found: bool, program: Any, note: Any, run: Any
) -> None:
    path = program(note(semaphore="pv_p0_semaphore"), SEMAPHORES)
    address, offset = page_of_semaphore(path, run)
    assert address % 4096 == 0
    change_segment(path, PT_GNU_RELRO, PT_GNU_RELRO, 4, offset + start, address + start, size)
    assert ("semaphore-relro" in findings(path)) == found


@pytest.mark.parametrize(("away", "found"), [(-0x100000, True), (0x100000, False)], ids=["earlier", "later"])
def test_only_an_earlier_mapping_of_the_semaphores_page_takes_what_a_tracer_writes(
    away: int, found: bool, program: Any, note: Any, run: Any
) -> None:
    path = program(note(semaphore="pv_p0_semaphore"), SEMAPHORES, flags=("-no-pie", "-static"))
    address, offset = page_of_semaphore(path, run)
    assert "semaphore-page" not in findings(path)
    change_segment(path, PT_GNU_STACK, PT_LOAD, READ_WRITE, offset + 64, address + away + 64, 16)
    assert ("semaphore-page" in findings(path)) == found


def test_a_mistake_in_a_provider_file_is_a_document_too(
    usdtbuild: Any, program: Any, note: Any, tmp_path: Path
) -> None:
    (tmp_path / "twice.d").write_text("provider pv { probe p0(); probe p0(int); };")
    done = usdtbuild("verify", "--json", program(note()), "--provider", tmp_path / "twice.d", code=1)
    assert json.loads(done.stdout) == {"format": "usdtbuild-verify", "version": 1, "passed": False, "files": []}
    assert "twice.d:1:33: error: probe 'p0' is declared twice in provider pv" in done.stderr


def test_a_provider_declared_twice_is_one(usdtbuild: Any, program: Any, note: Any, tmp_path: Path) -> None:
    path = program(note("-4@%edi"))
    for name, text in (("one.d", "probe p0(int);"), ("two.d", "probe p0(int); probe never(int);")):
        (tmp_path / name).write_text(f"provider pv {{ {text} }};")
    one, two = tmp_path / "one.d", tmp_path / "two.d"
    usdtbuild("verify", "--strict", path, "--provider", one, "--provider", one)
    for first, second in ((one, two), (two, one)):  # whichever comes last, both count
        done = usdtbuild("verify", path, "--provider", first, "--provider", second, code=1)
        assert done.stdout.count("pv:never") == 1
    assert findings(program(note("-4@%edi"), description(provider(INT), provider(INT)))) == {}
