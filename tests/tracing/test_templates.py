"""Machine code templates: the tables hold what the assembly makes, and filling them is checked."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import capstone
import pytest

from usdtbuild.machines.aarch64 import templates as aarch64
from usdtbuild.machines.i386 import code as i386_code
from usdtbuild.machines.s390x import code as s390x_code
from usdtbuild.machines.templates import KINDS, Code, Hole, Template
from usdtbuild.machines.x86_64 import code as x86_64_code
from usdtbuild.machines.x86_64 import templates as x86_64
from usdtbuild.tracing.patch.code import jump

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tools"))
import templates as tool  # type: ignore[import-not-found] # noqa: E402 - tools is no package

TABLES = {"x86_64": x86_64.TEMPLATES, "aarch64": aarch64.TEMPLATES}
PIECES = {"x86_64 code": x86_64_code.CODE, "i386 code": i386_code.CODE, "s390x code": s390x_code.CODE}
DECODERS = {
    "x86_64": (capstone.CS_ARCH_X86, capstone.CS_MODE_64),
    "aarch64": (capstone.CS_ARCH_ARM64, capstone.CS_MODE_ARM),
}


def present(machines: Iterable[str]) -> list[tuple[str, tuple[str, ...]]]:
    found = [(machine, one) for machine in machines for one in tool.MACHINES[machine].assemblers]
    return [(machine, one) for machine, one in found if shutil.which(one[0])]


def _named(one: str | tuple[str, ...]) -> str:
    return one if isinstance(one, str) else one[0]


@pytest.mark.parametrize(("at", "target"), [(0x1000, 0x2005), (0x7FFF_F000_0000, 0x7FFF_7000_0005), (5, 10)])
def test_a_jump_that_is_made_quickly_is_the_template(at: int, target: int) -> None:
    made = Code(x86_64.TEMPLATES, at)
    made.add("jump", target=target)
    assert jump(at, target) == made.packed()


def test_every_table_is_looked_at() -> None:
    assert {*TABLES, *PIECES} == set(tool.MACHINES)


@pytest.mark.parametrize(("machine", "assembler"), present(PIECES), ids=_named)
def test_the_code_in_objects_is_what_the_assembly_makes(machine: str, assembler: tuple[str, ...]) -> None:
    made = tool.assemble(machine, assembler)
    assert {name: (code, labels["place"]) for name, (code, _, labels) in made.items()} == PIECES[machine]


@pytest.mark.parametrize(("machine", "assembler"), present(TABLES), ids=_named)
def test_the_table_is_what_the_assembly_makes(machine: str, assembler: tuple[str, ...]) -> None:
    made, kept = tool.assemble(machine, assembler), TABLES[machine]
    assert list(made) == list(kept)
    for name, template in kept.items():
        # Assemblers are free in how they encode an instruction, so those of others may be longer.
        assert instructions(made[name], machine) == instructions(template, machine), name
        assert [hole[1:] for hole in made[name].holes] == [hole[1:] for hole in template.holes], name
        if assembler[0].endswith("as"):
            assert made[name] == template


def instructions(template: Template, machine: str = "x86_64") -> list[tuple[str, str]]:
    decoder = capstone.Cs(*DECODERS[machine])
    code = template.code[: template.labels.get("code_ends", len(template.code))]
    decoded = list(decoder.disasm(code, 0))
    assert sum(one.size for one in decoded) == len(code)
    return [
        (one.mnemonic, "" if one.mnemonic.startswith(("j", "call")) or "rip" in one.op_str else one.op_str)
        for one in decoded
    ]


def test_the_tool_says_when_a_table_is_old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    machines = {name: one for name, one in tool.MACHINES.items() if shutil.which(one.assemblers[0][0])}
    monkeypatch.setattr(tool, "MACHINES", machines)
    assert tool.main(["--check"]) == 0
    for machine in machines.values():
        source = tmp_path / machine.source
        source.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(tool.PACKAGE / machine.source, source)
        source.with_suffix(".py").write_text("TEMPLATES = {}\n")
    monkeypatch.setattr(tool, "PACKAGE", tmp_path)
    assert tool.main(["--check"]) == (1 if machines else 0)
    assert capsys.readouterr().err.count("run tools/templates.py") == len(machines)


@pytest.mark.parametrize("target", ["rax", "rcx", "rdx"])
def test_every_register_is_loaded_as_it_was_at_the_site(target: str) -> None:
    # `record_begin` pushes these, the last one lowest, 128 bytes below the program's stack pointer.
    saved = {"rdi": "[rsp]", "rsi": "[rsp + 8]", "rdx": "[rsp + 0x10]", "rcx": "[rsp + 0x18]", "rax": "[rsp + 0x20]"}
    for name in (
        *("rax", "rbx", "rcx", "rdx", "rsi", "rdi", "rbp", "rsp"), *(f"r{number}" for number in range(8, 16)),
    ):  # fmt: skip
        template = x86_64.TEMPLATES[f"load_{target}_from_{name}"]
        ((mnemonic, operands),) = instructions(template)
        source = operands.removeprefix(f"{target}, ").removeprefix("qword ptr ")
        assert (mnemonic, source) == (("lea", "[rsp]") if name == "rsp" else ("mov", saved.get(name, name))), name
        assert [hole.name for hole in template.holes] == ["above"] * (name == "rsp")


# Where the hole is, and behind it: the least and the greatest number that it takes, and how far apart they are.
PLACE = 0x10000
VALUES = {
    "64": (0, (1 << 64) - 1, 1),
    "32": (0, (1 << 32) - 1, 1),
    "signed 32": (-(1 << 31), (1 << 31) - 1, 1),
    "16": (0, 65535, 1),
    "8": (0, 255, 1),
    "distance": (PLACE - (1 << 31), PLACE + (1 << 31) - 1, 1),
    "jump26": (PLACE - (1 << 27), PLACE + (1 << 27) - 4, 4),
    "condbr19": (PLACE - (1 << 20), PLACE + (1 << 20) - 4, 4),
    "adr_prel_pg_hi21": (PLACE - (1 << 32), PLACE + (1 << 32) - 1, 1),
    "ldst64_abs_lo12": (0, 8 * 4095, 8),
    "movw_uabs_g0": (0, (1 << 16) - 1, 1),
    "movw_uabs_g1": (0, (1 << 32) - 1, 1),
    "native 64": (0, (1 << 64) - 1, 1),
    "native 32": (0, (1 << 32) - 1, 1),
    "native jump": (PLACE - (1 << 31), PLACE + (1 << 31) - 1, 1),
    "native distance": (PLACE - (1 << 63), PLACE + (1 << 63) - 1, 1),
    **{f"movw_uabs_g{part}": (-(1 << 63), (1 << 64) - 1, 1) for part in ("3", "0_nc", "1_nc", "2_nc")},
}


def test_every_kind_of_hole_has_its_range_here() -> None:
    assert VALUES.keys() | {"add_abs_lo12"} == KINDS.keys()


@pytest.mark.parametrize("kind", VALUES)
def test_a_number_has_room_or_is_refused(kind: str) -> None:
    least, greatest, step = VALUES[kind]
    templates = {"one": Template(b"\0" * 8, (Hole(0, kind, "number", 0),))}
    for value in (least, greatest):
        Code(templates, PLACE).add("one", number=value)
    for value in (least - step, greatest + step, *([least + 1] if step > 1 else [])):
        with pytest.raises(OverflowError, match="number"):
            Code(templates, PLACE).add("one", number=value)


def test_a_hole_that_nothing_is_known_of_is_an_error() -> None:
    made = Code(x86_64.TEMPLATES)
    made.add("record_begin", site=1)
    with pytest.raises(KeyError, match="claim"):
        made.packed()
