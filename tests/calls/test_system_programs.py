"""Every number that `usdtbuild calls` shows of the system's own programs, held to readelf's and objdump's reading."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from usdtbuild.elf.image import Image
from usdtbuild.functions.calls.read import read_calls

from ..conftest import find_tool

pytestmark = pytest.mark.skipif(os.uname().machine != "x86_64", reason="is about x86-64's own forms")
RELOCATION = re.compile(
    r"^(?P<slot>[0-9a-f]+) +\w+ +R_X86_64_(?P<type>JUMP_SLO|GLOB_DAT|IRELATIV)\w* +(?P<rest>.*)$", re.M
)
JUMP = re.compile(r"^ *([0-9a-f]+):\s+(?:notrack )?(?:bnd )?jmp +\*.*# (?:0x)?([0-9a-f]+)\b", re.M)
LEAD = 10  # what may stand before a stub's jump: endbr64, bnd, or mold's mov
CHUNK = 100


class Slot(NamedTuple):
    """A relocation of a slot, as readelf shows it: its kind, and whose it is (an IFUNC's resolver has no name)."""

    type: str
    name: str
    version: str | None
    defined: bool


def sample(step: int) -> list[str]:
    """Return some of the system's programs, every `step`th."""
    found = sorted(path for path in Path("/usr/bin").iterdir() if path.is_file() and not path.is_symlink())
    elf = []
    for path in found:
        if os.access(path, os.R_OK):
            with path.open("rb") as file:
                elf += [str(path)] if file.read(4) == b"\x7fELF" else []
    return elf[::step]


def run(*words: Any) -> str:
    return subprocess.run([str(word) for word in words], capture_output=True, text=True, check=False).stdout


def slots(path: str) -> dict[int, Slot]:
    found = {}
    for match in RELOCATION.finditer(run(find_tool("readelf"), "-rW", path)):
        fields = match["rest"].split()
        title = fields[1] if match["type"] != "IRELATIV" and len(fields) > 1 else ""
        name, _, version = title.partition("@")
        defined = match["type"] == "IRELATIV" or fields[0].strip("0") != ""
        found[int(match["slot"], 16)] = Slot(match["type"], name, version.lstrip("@") or None, defined)
    return found


def jumps(path: str) -> tuple[dict[int, int], list[range]]:
    """Return the jumps through slots in the sections that hold stubs, place -> slot, and where these sections are."""
    names = (".plt", ".plt.sec", ".plt.got", ".iplt")
    sections = []
    for line in run(find_tool("readelf"), "-SW", path).splitlines():
        fields = line.replace("[ ", "[").split()
        if len(fields) > 5 and fields[1] in names:
            sections.append(range(int(fields[3], 16), int(fields[3], 16) + int(fields[5], 16)))
    words = [word for name in names for word in ("-j", name)]
    text = run(find_tool("objdump"), "-d", "--no-show-raw-insn", *words, path) if sections else ""
    return {int(place, 16): int(slot, 16) for place, slot in JUMP.findall(text)}, sections


def disagreements(path: str, file: dict[str, Any] | None) -> list[str]:
    """Return what isn't so, as texts."""
    known, calls = slots(path), {int(call["slot"], 16): call for call in file["calls"]} if file else {}
    found = [
        f"{slot:#x} {one.name} isn't listed"
        for slot, one in known.items()
        if one.type == "JUMP_SLO" and slot not in calls
    ]
    for slot, call in calls.items():
        one = known.get(slot)
        if one is None:
            found.append(f"{slot:#x} {call['name']} is no slot")
        elif one.name and (one.name, one.version) != (call["name"], call["version"]):
            found.append(f"{slot:#x} is {one.name}@{one.version}, not {call['name']}@{call['version']}")
        elif not (call["stubs"] or call["sites"] or one.type in {"JUMP_SLO", "GLOB_DAT"}):
            found.append(f"{slot:#x} {call['name']} has neither stub nor site")
        elif (call["kind"] == "lazy") != (one.type == "JUMP_SLO" and file is not None and file["binding"] == "lazy"):
            found.append(f"{slot:#x} {call['name']} is {call['kind']}")
    places, sections = jumps(path)
    stubs = {int(stub, 16): slot for slot, call in calls.items() for stub in call["stubs"]}
    ours = {stub: slot for stub, slot in stubs.items() if any(stub in section for section in sections)}
    table = {place: slot for place, slot in places.items() if slot in known}
    for place, slot in table.items():
        near = [stub for stub in range(place - LEAD, place + 1) if ours.get(stub) == slot]
        found += [] if near else [f"{place:#x} jumps through {slot:#x} and isn't listed"]
    if len(ours) != len(table):
        found.append(f"{len(ours)} stubs in the linker's sections, and {len(table)} jumps")
    return found


@pytest.mark.parametrize("step", [40, pytest.param(1, marks=pytest.mark.slow)])
def test_the_systems_programs_agree_with_their_relocations(step: int, usdtbuild: Any) -> None:
    paths, wrong = sample(step), {}
    for start in range(0, len(paths), CHUNK):
        part = paths[start : start + CHUNK]
        done = usdtbuild("calls", "--json", "--no-demangle", *part, code=None, timeout=600)
        assert "Traceback" not in done.stderr
        files = {file["path"]: file for file in json.loads(done.stdout)["files"]}
        for path in part:
            found = disagreements(path, files.get(path))
            if found:
                wrong[path] = found[:5]
    assert wrong == {}


@pytest.mark.parametrize("path", ["/lib/x86_64-linux-gnu/libc.so.6", sys.executable, "/bin/bash"])
def test_sites_of_chosen_functions_are_those_that_all_would_have(path: str) -> None:
    if not Path(path).exists():
        pytest.skip(f"there is no {path}")
    image = Image(Path(path).read_bytes(), path)
    every = {call.slot: call for call in read_calls(image).calls}
    chosen = {*sorted(slot for slot, call in every.items() if call.sites)[::2]} or {*list(every)[::3]}
    found = {call.slot: call for call in read_calls(image, wants=lambda _: chosen).calls}
    assert chosen
    assert {slot: found[slot] for slot in chosen} == {slot: every[slot] for slot in chosen}
    assert not any(call.sites for slot, call in found.items() if slot not in chosen)
