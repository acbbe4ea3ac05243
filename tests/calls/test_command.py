"""`usdtbuild calls` on the machine's own programs: names, libraries, kinds, call sites, processes, wrong input."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.started import ready

from ..conftest import COMPILERS, LINKERS

pytestmark = pytest.mark.skipif(os.uname().machine != "x86_64", reason="is about x86-64's own forms")
# What changes the stubs: IBT, -fno-plt, retpolines, addresses in RELR, binding at the start, no PIC.
FORMS = {
    "plain": (), "now": ("-Wl,-z,now",), "lazy": ("-Wl,-z,lazy",), "no-pie": ("-fno-pie", "-no-pie"),
    "ibt": ("-fcf-protection=full", "-Wl,-z,ibtplt"), "no-plt": ("-fno-plt",), "ifunc": ("-DIFUNC",),
    "relr": ("-Wl,-z,pack-relative-relocs",), "retpoline": ("-Wl,-z,retpolineplt",),
}  # fmt: skip
FUNCTIONS = {"puts", "printf", "own_two", "fflush"}
_CALL = re.compile(r"^\s*([0-9a-f]+):.*\b(?:call|jmp)\s+(\*0x[0-9a-f]+\(%rip\).*# )?([0-9a-f]+)\b")


def truth(run: Any, path: Path) -> tuple[dict[int, set[int]], dict[int, str]]:
    """Return slot -> call sites of it (objdump's reading of the program's own code), and slot -> name (readelf's)."""
    names = {}
    for line in run("readelf", "-rW", path).stdout.splitlines():
        fields = line.split()
        if len(fields) > 4 and fields[2] in {"R_X86_64_JUMP_SLOT", "R_X86_64_JUMP_SLO", "R_X86_64_GLOB_DAT"}:
            names[int(fields[0], 16)] = fields[4].split("@")[0]
    return names_and_sites(run, path, names), names


def names_and_sites(run: Any, path: Path, names: dict[int, str]) -> dict[int, set[int]]:
    """Return slot -> where code goes through it: jumps of stubs, and -fno-plt calls."""
    found: dict[int, set[int]] = {}
    for line in run("objdump", "-d", "--no-show-raw-insn", path).stdout.splitlines():
        match = _CALL.match(line)
        if match and match[2] and int(match[3], 16) in names:
            found.setdefault(int(match[3], 16), set()).add(int(match[1], 16))
    return found


@pytest.mark.parametrize("linker", LINKERS)
@pytest.mark.parametrize("form", FORMS)
def test_every_way_through_a_slot_is_found(
    form: str, linker: str, build: Any, run: Any, calls_of: Any, need: Any, tmp_path: Path
) -> None:
    need(LINKERS[linker])
    path = build(*FORMS[form], f"-fuse-ld={linker}", code=None)
    sites, names = truth(run, path)
    found = calls_of(path, "--sites")
    for slot, places in sites.items():
        call = found[names[slot]]
        assert int(call["slot"], 16) == slot
        # A stub begins with endbr64, bnd or mold's mov, up to 10 bytes before its jump.
        stubs = {int(stub, 16) for stub in call["stubs"]}
        own = {int(site["address"], 16) for site in call["sites"] if site["through"] == "slot"}
        assert all(place in own or stubs & set(range(place - 10, place + 1)) for place in places)
        assert len(stubs) + len(own) == len(places)
    assert set(found) >= FUNCTIONS
    assert all(found[name]["stubs"] or found[name]["sites"] for name in FUNCTIONS)
    if form == "now":
        assert {call["kind"] for call in found.values()} == {"bound"}
    if form == "ifunc":
        assert [call["name"] for call in found.values() if call["kind"] == "ifunc"] in (["chosen"], ["choose"])
    shutil.copy(path, tmp_path / "bare")
    run("strip", tmp_path / "bare")
    data = bytearray((tmp_path / "bare").read_bytes())
    data[0x28:0x30] = bytes(8)
    data[0x3C:0x40] = bytes(4)
    (tmp_path / "bare").write_bytes(data)
    bare = calls_of(tmp_path / "bare", "--sites")
    for name, call in found.items():
        if call["kind"] != "ifunc":
            library = call["library"] if call["version"] else bare[name]["library"]
            assert bare[name] == {**call, "library": library}


@pytest.mark.parametrize("cc", COMPILERS)
def test_clang_and_gcc_call_through_slots_alike(cc: str, build: Any, calls_of: Any, need: Any) -> None:
    found = calls_of(build("-fno-plt", cc=need(cc)), "--sites")
    through = [site for site in found["puts"]["sites"] if site["through"] == "slot"]
    assert len(through) == 1
    assert found["puts"]["stubs"] == []


def test_names_have_versions_and_libraries(build: Any, usdtbuild: Any, calls_of: Any) -> None:
    found = calls_of(build())
    assert found["puts"]["version"].startswith("GLIBC_2.")
    assert found["puts"]["library"].startswith("libc.so")
    assert (found["own_two"]["version"], found["own_two"]["library"]) == (None, "libown.so")
    assert (found["missing"]["library"], found["missing"]["weak"]) == (None, True)
    text = usdtbuild("calls", build(), "-l", "libown*").stdout
    assert "own_two" in text
    assert "puts" not in text


def test_a_function_whose_address_is_a_stub_says_so(build: Any, calls_of: Any, run: Any) -> None:
    path = build("-fno-pie", "-no-pie", "-Wl,-z,lazy")
    symbols = map(str.split, run("readelf", "-W", "--dyn-syms", path).stdout.splitlines())
    values = {row[7].split("@")[0]: int(row[1], 16) for row in symbols if len(row) > 7 and row[6] == "UND"}
    found = calls_of(path)
    assert values["own_two"] == 0
    assert found["own_two"]["canonical"] is None
    for name, call in found.items():
        if values.get(name):
            assert call["canonical"] == f"{values[name]:#x}"
            assert call["canonical"] in call["stubs"]


@pytest.mark.parametrize("form", ["-static-pie", "-static"])
def test_a_static_program_has_its_ifuncs(form: str, run: Any, calls_of: Any, tmp_path: Path) -> None:
    source, path = tmp_path / "main.c", tmp_path / "main"
    source.write_text("#include <string.h>\nint main(int c, char **v) { return (int)strlen(v[c - 1]); }\n")
    if run("gcc", "-O1", "-fno-builtin", form, source, "-o", path, code=None).returncode:
        pytest.skip("no static C library is installed")
    found = calls_of(path)
    assert found["strlen"]["kind"] == "ifunc"
    assert found["strlen"]["stubs"]
    if form == "-static":
        slots = re.findall(r"^(\w+) .*_IRELATIV", run("readelf", "-rW", path).stdout, re.MULTILINE)
        assert {int(call["slot"], 16) for call in found.values()} == {int(slot, 16) for slot in slots}


def test_call_sites_are_shown(build: Any, usdtbuild: Any, run: Any) -> None:
    path = build()
    text = usdtbuild("calls", "--sites", "-p", "own_two", path).stdout
    (place,) = re.findall(r"(0x[0-9a-f]+) call", text)
    line = run("objdump", "-d", "--no-show-raw-insn", f"--start-address={place}",
               f"--stop-address={int(place, 16) + 5}", path).stdout.splitlines()[-1]  # fmt: skip
    assert "own_two@plt" in line


def test_a_process_says_what_its_slots_hold(build: Any, usdtbuild: Any) -> None:
    with ready(build("-Wl,-z,lazy")) as process:
        answer = json.loads(usdtbuild("calls", "--json", process.pid).stdout)
        process.kill()
    files = {Path(file["path"]).name: file for file in answer["files"]}
    program = files[build("-Wl,-z,lazy").name]
    assert program["process"]["pid"] == process.pid
    holds = {call["name"]: call["holds"] for call in program["calls"]}
    assert holds["puts"]["resolved"]
    assert "libc" in holds["puts"]["path"]
    assert not holds["printf"]["resolved"]
    assert holds["own_one"]["path"].endswith("libown.so")
    assert any("libown" in name for name in files)


def test_wrong_input_is_one_line(usdtbuild: Any, build: Any, tmp_path: Path, compiled: Any) -> None:
    (tmp_path / "nothing").write_text("nothing")
    compiled(tmp_path, "empty.c", "int main(void) { return 0; }\n", "-c")
    for name, code, words in (
        ("nothing", 1, "is no ELF file"), ("missing", 1, "no such file"), ("empty.o", 0, "is an object"),
    ):  # fmt: skip
        done = usdtbuild("calls", tmp_path / name, code=code)
        assert words in done.stderr.lower() or "not an elf" in done.stderr.lower()
        assert done.stderr.count("\n") == 1
        assert done.stdout == ""
    done = usdtbuild("calls", "-p", "nonsense", build())
    assert "no call matches nonsense" in done.stderr
    assert done.stdout == ""


def test_damage_is_an_error_and_no_traceback(build: Any, run: Any, tmp_path: Path) -> None:
    """Every byte of the dynamic segment changed in turn, a few at a time."""
    whole = build().read_bytes()
    line = next(line for line in run("readelf", "-lW", build()).stdout.splitlines() if "DYNAMIC" in line).split()
    start, size = int(line[1], 16), int(line[4], 16)
    names = []
    for number, at in enumerate(range(start, start + size, 8)):
        for value in (0xFF, 0x00, 0x7F):
            data = bytearray(whole)
            data[at : at + 6] = bytes([value]) * 6
            names.append(tmp_path / f"{number}-{value}")
            names[-1].write_bytes(data)
    words = [sys.executable, "-m", "usdtbuild", "calls", "--sites", *map(str, names)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode in (0, 1)
    assert "Traceback" not in done.stderr
    assert all(text.startswith("usdtbuild: ") for text in done.stderr.splitlines())
