"""Damaged files: whatever is changed or missing, the answer is a result or one line, soon, and in little memory."""

from __future__ import annotations

import resource
import struct
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from usdtbuild.elf.image import Image
from usdtbuild.errors import UsdtError
from usdtbuild.inspection.probes import inspect
from usdtbuild.verify import verify

SETTINGS = settings(
    max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
EDGES = st.sampled_from([0, 1, 0x7F, 0x80, 0xFF])
CHANGES = st.lists(st.tuples(st.floats(0, 1), st.one_of(EDGES, st.integers(0, 255))), min_size=1, max_size=40)


@pytest.fixture(params=["executable", "object", "32-bit object", "big-endian"])
def sample(request: pytest.FixtureRequest, program: Any, note: Any, foreign: Any, semaphore_section: str) -> bytes:
    """The bytes of a small file with probes and semaphores."""
    if request.param in {"executable", "object"}:
        flags = ("-c",) if request.param == "object" else ("-nostdlib", "-Wl,-e,main")
        notes = note("-4@%edi 8@-8(%rbp)", semaphore="sem") + note("8f@%xmm0", probe="p1")
        return bytes(program(notes, semaphore_section, flags=flags).read_bytes())
    target, address = ("i386-linux-gnu", ".4byte") if "32" in request.param else ("powerpc64-linux-gnu", ".8byte")
    source = f".Lsite0: nop\n{note('', address=address)}"
    return bytes(foreign(target, source, link=None if "32" in request.param else ()).read_bytes())


@pytest.fixture(scope="module", params=["library", "object"])
def all_formats(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, run: Any, usdtbuild: Any
) -> bytes:
    """The bytes of a small file with SDT notes, DOF and Oracle's notes, addresses of DOF in the loader's hands."""
    folder = tmp_path_factory.mktemp("all")
    (folder / "app.d").write_text("provider app { probe req__done(int fd, char *name); probe start(); };\n")
    body = 'if (APP_START_ENABLED()) APP_START(); APP_REQ_DONE(1, "x"); return 0;'
    (folder / "main.c").write_text(f'#include "app.h"\nint main(void) {{ {body} }}\n')
    usdtbuild("header", "--formats=dof", folder / "app.d", "-o", folder / "app.h")
    flags = ("-O1", "-fPIC", "-fno-asynchronous-unwind-tables", "-DUSDT_ENABLED_BY_CALL")
    words = ("gcc", *flags, "-c", folder / "main.c", "-o", folder / "main.o")
    usdtbuild("cc", "--formats", "stapsdt,dof,usdt", "--", *words)
    if request.param == "object":
        return (folder / "main.o").read_bytes()
    run("gcc", "-nostdlib", "-shared", "-fuse-ld=lld", folder / "main.o", "-o", folder / "main")
    return (folder / "main").read_bytes()


def test_every_byte_of_every_format_s_records(all_formats: bytes) -> None:
    data = bytearray(all_formats)
    outcomes: Counter[str] = Counter()
    names = {".note.usdt", ".SUNW_dof", ".rela.SUNW_dof", ".rela.note.usdt", ".rela.dyn"}
    sections = [section for section in Image(all_formats, "it").sections if section.name in names]
    assert len(sections) >= 3
    # The room in a guard is passed over by every reader, so a few of its bytes are enough.
    for section in sections:
        for place in range(section.offset, section.offset + section.size):
            old = data[place]
            if old == 0 and not any(data[place - 12 : place + 12]) and place % 16:
                continue
            data[place] = (0, 0xFF, old ^ 1, old ^ 0x80)[place % 4] if old else 0xFF >> place % 8
            outcomes[look(bytes(data))] += 1
            data[place] = old
    # Damaged records are findings; what belongs to no record changes nothing.
    unchanged = outcomes.pop(look(all_formats))
    assert min(unchanged, sum(outcomes.values())) > 50, (unchanged, outcomes)
    assert len(outcomes) > 5, outcomes


def look(data: bytes) -> str:
    """Look at a file in every way; only our own errors may come of it. Return what became of it."""
    began = time.process_time()
    shown, report = done(inspect, data), done(verify, data)
    assert time.process_time() - began < 2
    if shown is None or report is None:
        return "refused"
    return " ".join(sorted({finding.check for finding in report.findings}))


def done(way: Callable[[Image], Any], data: bytes) -> Any:
    """What a way of looking makes of a file; None if it refuses it."""
    try:
        return way(Image(data, "damaged"))
    except UsdtError as error:
        complaint = str(error)
    assert complaint.startswith("damaged: ")
    assert "\n" not in complaint
    return None


@SETTINGS
@given(changes=CHANGES)
def test_changed_bytes_anywhere(sample: bytes, changes: list[tuple[float, int]]) -> None:
    data = bytearray(sample)
    for place, value in changes:
        data[min(int(place * len(data)), len(data) - 1)] = value
    look(bytes(data))


def test_some_changes_are_refused_and_some_are_not(sample: bytes) -> None:
    """And a part of a file is not taken for the file."""
    outcomes = Counter(
        look(sample[:place] + bytes([value]) + sample[place + 1 :])
        for place in (*range(64), *range(len(sample) - 128, len(sample)))
        for value in (0, 0xFF)
    )
    refused = outcomes.pop("refused", 0)
    assert min(refused, sum(outcomes.values())) > 10, (refused, outcomes)
    for length in range(0, len(sample), len(sample) // 50 + 1):
        assert look(sample[:length]) == "refused", length


@SETTINGS
@given(changes=CHANGES)
def test_changed_bytes_in_the_headers(sample: bytes, changes: list[tuple[float, int]]) -> None:
    """The ELF header and the section headers, where every byte matters."""
    data = bytearray(sample)
    wide, order = sample[4] == 2, "<" if sample[5] == 1 else ">"
    (start,) = struct.unpack_from(order + ("Q" if wide else "I"), sample, 40 if wide else 32)
    places = [*range(4, 64), *range(start, len(data))]
    for place, value in changes:
        data[places[min(int(place * len(places)), len(places) - 1)]] = value
    look(bytes(data))


@settings(parent=SETTINGS, max_examples=100)
@given(keep=st.floats(0, 1))
def test_files_cut_short_anywhere(sample: bytes, keep: float) -> None:
    look(sample[: int(keep * len(sample))])


@settings(max_examples=200)
@given(data=st.binary(max_size=400))
def test_any_bytes_behind_the_magic(data: bytes) -> None:
    look(b"\x7fELF\2\1\1\0" + data)


HUGE = {
    "section count": (60, "<H", 0xFFFF),
    "section count in the first header": (60, "<H", 0),
    "segment count": (56, "<H", 0xFFFF),
    "section table far away": (40, "<Q", 1 << 62),
    "segment table far away": (32, "<Q", 1 << 62),
}


@pytest.mark.parametrize("case", HUGE)
def test_huge_numbers_in_the_header_cost_nothing(case: str, program: Any, note: Any) -> None:
    offset, form, value = HUGE[case]
    data = bytearray(program(note()).read_bytes())
    struct.pack_into(form, data, offset, value)
    if case.endswith("first header"):
        (start,) = struct.unpack_from("<Q", data, 40)
        struct.pack_into("<Q", data, start + 32, 1 << 60)  # sh_size
    check_cost(bytes(data))


@pytest.mark.parametrize(
    "name", [".note.stapsdt", ".symtab", ".strtab", ".dynsym", ".dynamic", ".usdtbuild.provider", ".probes"]
)
@pytest.mark.parametrize("field", ["size", "offset", "link", "info", "entsize"])
def test_huge_numbers_in_a_section_header_cost_nothing(name: str, field: str, program: Any, note: Any) -> None:
    extra = '\n .section .usdtbuild.provider,"",@progbits\n .ascii "x"\n .section .probes,"aw"\n .byte 0\n .text\n'
    data = bytearray(program(note(), extra).read_bytes())
    section = next(section for section in Image(bytes(data), "it").sections if section.name == name)
    (start,) = struct.unpack_from("<Q", data, 40)
    at, form = {
        "size": (32, "<Q"),
        "offset": (24, "<Q"),
        "link": (40, "<I"),
        "info": (44, "<I"),
        "entsize": (56, "<Q"),
    }[field]
    for value in ((1 << (63 if form == "<Q" else 31)) + 1, (1 << (64 if form == "<Q" else 32)) - 1, 0, 1):
        struct.pack_into(form, data, start + 64 * section.number + at, value)
        check_cost(bytes(data))


def check_cost(data: bytes) -> None:
    before, began = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
    look(data)
    assert time.process_time() - began < 2
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000  # KiB


def test_a_name_without_end_is_no_name(program: Any, note: Any) -> None:
    """Section names must end inside their table."""
    data = bytearray(program(note()).read_bytes())
    image = Image(bytes(data), "it")
    names = next(section for section in image.sections if section.name == ".shstrtab")
    data[names.offset + names.size - 1] = 0x41
    look(bytes(data))


def test_a_symbol_table_that_is_its_own_string_table(program: Any, note: Any) -> None:
    data = bytearray(program(note()).read_bytes())
    image = Image(bytes(data), "it")
    symbols = next(section for section in image.sections if section.name == ".symtab")
    (start,) = struct.unpack_from("<Q", data, 40)
    struct.pack_into("<I", data, start + 64 * symbols.number + 40, symbols.number)
    look(bytes(data))
