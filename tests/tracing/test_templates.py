"""Machine code templates: the tables hold what the assembly makes, and filling them is checked."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import capstone
import pytest

from usdtbuild.tracing.templates import KINDS, Code, Hole, Template
from usdtbuild.tracing.templates.x86_64 import TEMPLATES

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tools"))
import templates as tool  # noqa: E402 - tools is no package


def present() -> list[tuple[str, tuple[str, ...]]]:
    found = [(machine, one) for machine in tool.MACHINES for one in tool.MACHINES[machine].assemblers]
    return [(machine, one) for machine, one in found if shutil.which(one[0])]


@pytest.mark.parametrize(("machine", "assembler"), present(), ids=lambda one: str(one[0] if len(one[0]) > 1 else one))
def test_the_table_is_what_the_assembly_makes(machine: str, assembler: tuple[str, ...]) -> None:
    made, kept = tool.assemble(machine, assembler), TEMPLATES
    assert list(made) == list(kept)
    for name, template in kept.items():
        # Assemblers are free in how they encode an instruction, so those of others may be longer.
        assert instructions(made[name]) == instructions(template), name
        assert [hole[1:] for hole in made[name].holes] == [hole[1:] for hole in template.holes], name
        if assembler[0].endswith("as"):
            assert made[name] == template


def instructions(template: Template) -> list[tuple[str, str]]:
    decoder = capstone.Cs(capstone.CS_ARCH_X86, capstone.CS_MODE_64)
    code = template.code[: template.labels.get("code_ends", len(template.code))]
    decoded = list(decoder.disasm(code, 0))
    assert sum(one.size for one in decoded) == len(code)
    return [
        (one.mnemonic, "" if one.mnemonic.startswith(("j", "call")) or "rip" in one.op_str else one.op_str)
        for one in decoded
    ]


def test_the_tool_says_when_a_table_is_old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    if not shutil.which("x86_64-linux-gnu-as"):
        pytest.skip("no GNU as for x86-64")
    subprocess.run([sys.executable, ROOT / "tools/templates.py", "--check"], check=True)
    shutil.copy(tool.FOLDER / "x86_64.S", tmp_path)
    (tmp_path / "x86_64.py").write_text("TEMPLATES = {}\n")
    monkeypatch.setattr(tool, "FOLDER", tmp_path)
    assert tool.main(["--check"]) == 1
    assert "run tools/templates.py" in capsys.readouterr().err


@pytest.mark.parametrize("target", ["rax", "rcx", "rdx"])
def test_every_register_is_loaded_as_it_was_at_the_site(target: str) -> None:
    # `record_begin` pushes these, the last one lowest, 128 bytes below the program's stack pointer.
    saved = {"rdi": "[rsp]", "rsi": "[rsp + 8]", "rdx": "[rsp + 0x10]", "rcx": "[rsp + 0x18]", "rax": "[rsp + 0x20]"}
    for name in (
        *("rax", "rbx", "rcx", "rdx", "rsi", "rdi", "rbp", "rsp"), *(f"r{number}" for number in range(8, 16)),
    ):  # fmt: skip
        ((mnemonic, operands),) = instructions(TEMPLATES[f"load_{target}_from_{name}"])
        source = operands.removeprefix(f"{target}, ").removeprefix("qword ptr ")
        assert (mnemonic, source) == (("lea", "[rsp + 0xa8]") if name == "rsp" else ("mov", saved.get(name, name))), (
            name
        )


VALUES = {
    "64": (0, 1 << 64), "32": (0, 1 << 32), "signed 32": (-(1 << 31), 1 << 31), "8": (0, 256),
    "distance": (0x10000 + 4 - (1 << 31), 0x10000 + 4 + (1 << 31)),
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_a_number_has_room_or_is_refused(kind: str) -> None:
    first, end = VALUES[kind]
    templates = {"one": Template(b"\0" * 8, (Hole(0, kind, "number", -4 if kind == "distance" else 0),))}
    for value in (first, end - 1):
        made = Code(templates, 0x10000)
        made.add("one", number=value)
        made.packed()
    for value in (first - 1, end):
        with pytest.raises(OverflowError, match="number"):
            Code(templates, 0x10000).add("one", number=value)


def test_a_hole_that_nothing_is_known_of_is_an_error() -> None:
    made = Code(TEMPLATES)
    made.add("record_begin", site=1)
    with pytest.raises(KeyError, match="claim"):
        made.packed()
