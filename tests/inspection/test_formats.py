"""`verify` and `list` on files with records of all formats: sound ones, and ones in which a few bytes were changed."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from elftools.elf.elffile import ELFFile

APP_D = "provider app { probe req__done(int fd, char *name); probe start(); probe idle(unsigned); };\n"
MAIN_C = r"""
#include "app.h"
__attribute__((noinline)) int work(int n) { if (APP_IDLE_ENABLED()) APP_IDLE(n); APP_REQ_DONE(n, "x"); return n; }
int main(int argc, char **argv) { (void)argv; APP_START(); return work(argc) - 1; }
"""
ALL = "stapsdt,dof,usdt"


class Binary(NamedTuple):
    """A file in which single places are changed."""

    path: Path
    data: bytearray
    sections: dict[str, tuple[int, int]]  # name -> (offset in the file, size)

    def place(self, section: str, text: bytes, skip: int = 0) -> int:
        """Return where in the file `text` stands in a section, behind `skip` others."""
        start, size = self.sections[section]
        place = self.data.index(text, start, start + size)
        for _ in range(skip):
            place = self.data.index(text, place + 1, start + size)
        return place

    def change(self, section: str, old: bytes, new: bytes, skip: int = 0) -> None:
        place = self.place(section, old, skip)
        assert len(old) == len(new)
        self.data[place : place + len(old)] = new

    def number(self, place: int, layout: str, change: int) -> None:
        (old,) = struct.unpack_from(layout, self.data, place)
        struct.pack_into(layout, self.data, place, old + change)


def opened(path: Path) -> Binary:
    with path.open("rb") as file:
        sections = {s.name: (s["sh_offset"], s["sh_size"]) for s in ELFFile(file).iter_sections()}
    return Binary(path, bytearray(path.read_bytes()), sections)


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory, run: Any, usdtbuild: Any) -> Callable[..., Path]:
    """Build the program: with which formats, which compiler's words, and what is linked to it."""
    folder = tmp_path_factory.mktemp("formats")
    (folder / "app.d").write_text(APP_D)
    (folder / "main.c").write_text(MAIN_C)
    usdtbuild("header", "--formats=dof", folder / "app.d", "-o", folder / "app.h")
    include = usdtbuild("--include-dir").stdout.strip()
    run("gcc", "-O1", "-c", Path(include, "usdt_dof_register.c"), "-o", folder / "register.o")
    made: list[Any] = []

    def make(
        formats: str = ALL, *flags: str, source: str = "", more: tuple[Path, ...] = (), link: bool = True, os: str = ""
    ) -> Path:
        made.append(folder / f"{len(made)}")
        text, target = made[-1].with_suffix(".c"), made[-1].with_suffix(".o")
        text.write_text(source or MAIN_C)
        words = ["--formats", formats, *(["--target-os", os] if os else []), "--", "gcc", "-O2", *flags]
        usdtbuild("cc", *words, f"-I{folder}", "-c", text, "-o", target)
        if not link:
            return target
        run("gcc", "-no-pie", target, *more, folder / "register.o", "-o", made[-1])
        return made[-1]

    return make


@pytest.fixture(scope="module")
def sound(build: Callable[..., Path]) -> Path:
    return build(ALL, "-DUSDT_ENABLED_BY_CALL")


@pytest.fixture
def broken(sound: Path, tmp_path: Path) -> Binary:
    return opened(sound)._replace(path=tmp_path / "broken")


def verified(usdtbuild: Any, binary: Binary | Path) -> dict[str, list[str]]:
    """Return what `verify` finds: check -> sentences."""
    if isinstance(binary, Binary):
        binary.path.write_bytes(binary.data)
        binary = binary.path
    (file,) = json.loads(usdtbuild("verify", "--json", binary, code=None).stdout)["files"]
    found: dict[str, list[str]] = {}
    for finding in file["findings"]:
        found.setdefault(finding["check"], []).append(finding["what"])
    return found


def test_a_probe_in_three_formats_is_counted_once(build: Any, usdtbuild: Any) -> None:
    path = build(ALL, source='#include "app.h"\nint main(void) { APP_REQ_DONE(1, "x"); APP_REQ_DONE(2, ""); }\n')
    assert usdtbuild("list", path).stdout.splitlines()[0].endswith(": 1 probe, 2 sites, in 3 formats")
    assert ": 1 probe, 2 sites: " in usdtbuild("verify", path, code=None).stdout.splitlines()[-1]


COMBINATIONS = ("stapsdt", "dof", "usdt", "stapsdt,dof", "stapsdt,usdt", "dof,usdt", ALL)


@pytest.mark.parametrize(
    ("formats", "os"),
    [(formats, os) for formats in COMBINATIONS for os in ("linux", "freebsd")] + [(ALL, "illumos"), (ALL, "oracle")],
)
def test_every_combination_is_sound(formats: str, os: str, build: Any, usdtbuild: Any, run: Any) -> None:
    """Each combination holds exactly what was asked for, on every target system, and the program runs."""
    program = build(formats, "-DUSDT_ENABLED_BY_CALL", os=os)
    assert verified(usdtbuild, program) == {}
    assert run(program).returncode == 0
    (file,) = json.loads(usdtbuild("list", "--json", program).stdout)["files"]
    assert {probe["format"] for probe in file["probes"]} == set(formats.split(","))
    places: dict[str, list[tuple[str, str]]] = {}
    for probe in file["probes"]:
        places.setdefault(probe["format"], []).extend(
            (probe["name"].replace("__", "-"), site["address"]) for site in probe["sites"] if not site["is_enabled"]
        )
    expected = sorted(next(iter(places.values())))
    assert len(expected) == 3
    assert all(sorted(each) == expected for each in places.values())
    enabled = {probe["format"] for probe in file["probes"] if any(site["is_enabled"] for site in probe["sites"])}
    assert enabled == set(formats.split(",")) - {"stapsdt"}


MACHINES = ("aarch64", "arm", "i686", "powerpc", "powerpc64", "powerpc64le", "riscv64", "s390x", "sparc64")


@pytest.mark.parametrize("machine", MACHINES)
def test_other_machines_formats_agree(
    machine: str, build: Any, usdtbuild: Any, run: Any, need: Any, need_c_library: Any
) -> None:
    compiler = need(f"{machine}-linux-gnu{'eabihf' if machine == 'arm' else ''}-gcc")
    need_c_library(compiler, "-static")
    body = 'void f(int n) { APP_START(); APP_REQ_DONE(n, "x"); }\nint main(void) { f(1); return 0; }\n'
    source = '#include "app.h"\n' + body
    text = build(ALL, source=source, link=False).with_suffix(".c")
    target, program = text.with_suffix(f".{machine}.o"), text.with_suffix(f".{machine}")
    words = (compiler, "-O1", "-ffunction-sections", "-c", text, "-o", target)
    usdtbuild("cc", "--formats", ALL, "--target-os", "freebsd", "--", *words)
    run(compiler, "-static", "-Wl,--gc-sections", target, "-o", program)
    assert set(verified(usdtbuild, program)) <= {"dof-unregistered", "no-site"}
    (file,) = json.loads(usdtbuild("list", "--json", program).stdout)["files"]
    assert sorted((p["format"], len(p["sites"])) for p in file["probes"]) == [
        (format_, 1) for format_ in sorted(ALL.split(",")) for _ in range(2)
    ]
    (file,) = json.loads(usdtbuild("list", "--json", target).stdout)["files"]
    places = [(p["name"].replace("__", "-"), p["sites"][0]["section"], p["sites"][0]["offset"]) for p in file["probes"]]
    assert len(places) == 6
    assert len(set(places)) == 2


@pytest.mark.parametrize(("formats", "os"), [("stapsdt", "linux"), ("dof", "freebsd"), ("dof", "illumos")])
def test_defaults_follow_the_target_system(formats: str, os: str, build: Any, usdtbuild: Any, tmp_path: Path) -> None:
    plain = tmp_path / "plain.o"
    source = build(ALL, "-DUSDT_ENABLED_BY_CALL", link=False).with_suffix(".c")
    usdtbuild("header", "--formats=dof", source.with_name("app.d"), "-o", tmp_path / "app.h")
    words = ("gcc", f"-I{tmp_path}", "-DUSDT_ENABLED_BY_CALL", "-c", source, "-o", plain)
    usdtbuild("cc", "--target-os", os, "--", *words)
    (file,) = json.loads(usdtbuild("list", "--json", plain).stdout)["files"]
    assert {probe["format"] for probe in file["probes"]} == {formats}


# --- one format has what another lacks ------------------------------------------------------------------------


def test_an_object_that_was_built_with_other_formats(build: Any, usdtbuild: Any) -> None:
    source = '#include "app.h"\nvoid other(int n) { APP_REQ_DONE(n, "y"); }\n'
    other = build("stapsdt", source=source, link=False)
    found = verified(usdtbuild, build(ALL, "-DUSDT_ENABLED_BY_CALL", more=(other,)))
    assert found == {
        "formats-differ": [f"a site of the probe is in SDT notes and not in {other}" for other in ("DOF", ".note.usdt")]
    }


def test_a_probe_that_only_one_format_has(broken: Binary, usdtbuild: Any) -> None:
    broken.change(".note.stapsdt", b"start\0", b"stert\0")
    found = verified(usdtbuild, broken)["formats-differ"]
    assert "a probe is in SDT notes and not in DOF" in found
    assert "a probe is in DOF and not in SDT notes" in found
    assert "a probe is in .note.usdt and not in SDT notes" in found


def test_a_site_at_another_address_in_dof(broken: Binary, usdtbuild: Any) -> None:
    """One offset of a DOF is moved by a byte, into the middle of the NOP's neighbour."""
    start = broken.place(".SUNW_dof", b"\x7fDOF")
    sections = [struct.unpack_from("<IIIIQQ", broken.data, start + 64 + 32 * i) for i in range(6)]
    offsets = next(offset for type_, _, _, _, offset, _ in sections if type_ == 18)
    broken.number(start + offsets, "<I", 7)
    found = verified(usdtbuild, broken)
    assert any("is in SDT notes and not in DOF" in what for what in found["formats-differ"])
    assert any("is in DOF and not in .note.usdt" in what for what in found["formats-differ"])


def test_a_function_of_a_dof_that_is_not_there(broken: Binary, usdtbuild: Any) -> None:
    start = broken.place(".SUNW_dof", b"\x7fDOF")
    sections = [struct.unpack_from("<IIIIQQ", broken.data, start + 64 + 32 * i) for i in range(6)]
    probes = next(offset for type_, _, _, _, offset, _ in sections if type_ == 16)
    struct.pack_into("<Q", broken.data, start + probes, 0)
    assert verified(usdtbuild, broken)["ghost"] == ["a record of DOF points to no code"]


def test_a_site_of_oracles_notes_that_is_not_there(broken: Binary, usdtbuild: Any) -> None:
    place = broken.place(".note.usdt", b"app\0req__done\0")
    broken.data[place - 16 : place - 8] = bytes(8)
    found = verified(usdtbuild, broken)
    assert found["ghost"] == ["a record of .note.usdt points to no code"]
    assert any("is in SDT notes and not in .note.usdt" in what for what in found["formats-differ"])


# --- they have it, and say different things -------------------------------------------------------------------


def test_another_number_of_arguments(broken: Binary, usdtbuild: Any) -> None:
    broken.change(".note.stapsdt", b"-4@%edi 8@%rsi\0", b"-4@%edi\0\0\0\0\0\0\0\0")
    found = verified(usdtbuild, broken)
    assert found["formats-differ"] == [
        f"a site has 1 argument in SDT notes and 2 in {other}" for other in (".note.usdt", "DOF")
    ]
    assert "declared-type" in found


def test_an_argument_of_another_size(broken: Binary, usdtbuild: Any) -> None:
    broken.change(".note.usdt", b"-4@%edi 8@%rsi", b"-8@%rdi 8@%rsi")
    assert verified(usdtbuild, broken)["formats-differ"] == [
        "argument 0 of a site is `-4@%edi` in SDT notes and `-8@%rdi` in .note.usdt"
    ]


@pytest.mark.parametrize(
    ("section", "old", "new"), [(".SUNW_dof", b"\0int\0", b"\0ent\0"), (".note.usdt", b"\2int\0", b"\2ent\0")]
)
def test_another_type(section: str, old: bytes, new: bytes, broken: Binary, usdtbuild: Any) -> None:
    start, size = broken.sections[section]
    broken.data[start : start + size] = broken.data[start : start + size].replace(old, new)
    found = verified(usdtbuild, broken)["formats-differ"]
    assert found == [
        f"a probe takes ({'ent' if 'dof' in section else 'int'}, char *) in DOF and "
        f"({'int' if 'dof' in section else 'ent'}, char *) in .note.usdt"
    ]


def test_more_arguments_than_an_sdt_note_has_room_for_are_no_difference(build: Any, usdtbuild: Any) -> None:
    source = '#include "many.h"\nint main(void) { MANY_P(1,2,3,4,5,6,7,8,9,10,11,12,13,14); return 0; }\n'
    folder = build("stapsdt", link=False).parent
    (folder / "many.d").write_text(f"provider many {{ probe p({','.join(['int'] * 14)}); }};\n")
    usdtbuild("header", "--formats=dof", folder / "many.d", "-o", folder / "many.h")
    assert verified(usdtbuild, build(ALL, source=source)) == {}


# --- what DTrace refuses --------------------------------------------------------------------------------------

REFUSED = "Oracle's DTrace refuses the .note.usdt of the whole file: "
CHANGES = {
    "a site has 1 argument, and its declaration 2": (b"\x02-4@%edi 8@%rsi\0", b"\x01-4@%edi\0\0\0\0\0\0\0\0"),
    "nothing declares provider app": (b"prov\0\0\0\0app\0", b"prov\0\0\0\0spp\0"),
    "the declaration of provider app lacks a probe that has a site": (b"req-done\0", b"req-dune\0"),
    "a note of an owner that DTrace doesn't know is among the records": (b"usdt\0", b"vsdt\0"),
}


@pytest.mark.parametrize("what", CHANGES)
def test_notes_that_oracles_dtrace_refuses(what: str, broken: Binary, usdtbuild: Any) -> None:
    broken.change(".note.usdt", *CHANGES[what])
    assert REFUSED + what in verified(usdtbuild, broken)["usdt-refused"]


def test_a_function_s_name_in_another_section(broken: Binary, usdtbuild: Any) -> None:
    place = broken.place(".note.usdt", b"app\0req__done\0")
    broken.number(place - 8, "<Q", 0x100000)
    assert verified(usdtbuild, broken)["usdt-refused"] == [REFUSED + "a function's name isn't in .rodata"]


def test_two_notes_of_one_site(build: Any, usdtbuild: Any, tmp_path: Path) -> None:
    source = '#include "app.h"\nint main(void) { APP_START(); APP_START(); return 0; }\n'
    broken = opened(build("usdt", source=source))._replace(path=tmp_path / "broken")
    first, second = (broken.place(".note.usdt", b"app\0start\0", skip) for skip in (0, 1))
    broken.data[second - 16 : second - 8] = broken.data[first - 16 : first - 8]
    assert verified(usdtbuild, broken)["usdt-refused"] == [REFUSED + "one site has two notes"]


def test_dof_that_systems_reject(broken: Binary, usdtbuild: Any) -> None:
    place = broken.place(".SUNW_dof", b"\x7fDOF")
    broken.data[place + 16] = 1  # header flags
    found = verified(usdtbuild, broken)["dof-refused"]
    assert any(what.endswith("rejects a DOF: header flags 0x1 are not zero") for what in found)


def test_dof_that_nothing_registers(build: Any, run: Any, usdtbuild: Any, tmp_path: Path) -> None:
    run("gcc", "-no-pie", build(ALL, "-DUSDT_ENABLED_BY_CALL", link=False), "-o", tmp_path / "program")
    assert list(verified(usdtbuild, tmp_path / "program")) == ["dof-unregistered"]


@pytest.fixture
def asks_semaphore(build: Any, run: Any, tmp_path: Path) -> Path:
    """An object that asks a semaphore whether a probe is enabled, as the compiler made it; `usdtbuild cc` makes none
    such for DTrace."""
    source = build(ALL, link=False).with_suffix(".c")
    run("gcc", "-O2", f"-I{source.parent}", "-c", source, "-o", tmp_path / "x.o")
    return tmp_path / "x.o"


def test_a_test_that_dtrace_cannot_answer(asks_semaphore: Path, build: Any, run: Any, usdtbuild: Any) -> None:
    done, program = asks_semaphore.with_name("done.o"), asks_semaphore.with_name("program")
    usdtbuild("instrument", "--formats", ALL, asks_semaphore, "-o", done)
    run("gcc", "-no-pie", done, build(ALL, link=False).with_name("register.o"), "-o", program)
    assert list(verified(usdtbuild, program)) == ["enabled-by-semaphore"]
    assert verified(usdtbuild, build("stapsdt")) == {}


def test_a_test_that_nobody_could_answer_is_refused(asks_semaphore: Path, usdtbuild: Any) -> None:
    done = asks_semaphore.with_name("done.o")
    shown = usdtbuild("instrument", "--formats", "dof,usdt", asks_semaphore, "-o", done, code=1).stderr
    assert "tests app_idle_semaphore, which no reader of dof or usdt increments" in shown
    assert not done.exists()
