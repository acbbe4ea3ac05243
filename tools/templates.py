"""Write the tables of machine code templates, usdtbuild/tracing/templates/*.py, from their assembly.

    python3 tools/templates.py          assemble and write
    python3 tools/templates.py --check  assemble and compare; exit code 1 if a table is not what it should be

Needs GNU as for the machine. The relocations of the object are the holes of the templates.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from elftools.elf.elffile import ELFFile

from usdtbuild.tracing.templates import Hole, Template

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

FOLDER = Path(__file__).resolve().parent.parent / "usdtbuild/tracing/templates"
HEAD = '''"""Machine code templates, made by tools/templates.py from {source}: change that, and run the tool."""

# fmt: off
from . import Hole, Template

TEMPLATES = {{
'''


class Machine(NamedTuple):
    """How a machine's templates are assembled, and which relocations are which kinds of holes."""

    assemblers: tuple[tuple[str, ...], ...]
    kinds: dict[int, str]


MACHINES = {
    "x86_64": Machine(
        (("x86_64-linux-gnu-as",), ("clang", "-c", "-target", "x86_64-linux-gnu", "-x", "assembler")),
        # R_X86_64_64, _PC32, _PLT32, _32, _32S, _16, _8
        {1: "64", 2: "distance", 4: "distance", 10: "32", 11: "signed 32", 12: "16", 14: "8"},
    ),
    "aarch64": Machine(
        (("aarch64-linux-gnu-as",), ("clang", "-c", "-target", "aarch64-linux-gnu", "-x", "assembler")),
        # R_AARCH64_MOVW_UABS_..., _ADR_PREL_PG_HI21, _ADD_ABS_LO12_NC, _CONDBR19, _JUMP26, _CALL26, _LDST64_ABS_LO12_NC
        {
            263: "movw_uabs_g0",
            264: "movw_uabs_g0_nc",
            265: "movw_uabs_g1",
            266: "movw_uabs_g1_nc",
            268: "movw_uabs_g2_nc",
            269: "movw_uabs_g3",
            275: "adr_prel_pg_hi21",
            277: "add_abs_lo12",
            280: "condbr19",
            282: "jump26",
            283: "jump26",
            286: "ldst64_abs_lo12",
        },
    ),
}


def assemble(machine: str, assembler: Sequence[str]) -> dict[str, Template]:
    """Return the templates of a machine, assembled anew."""
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder, "made.o")
        subprocess.run([*assembler, "-o", made, FOLDER / f"{machine}.S"], check=True)
        with made.open("rb") as file:
            return dict(_templates(ELFFile(file), MACHINES[machine].kinds))


def _templates(elf: ELFFile, kinds: dict[int, str]) -> Iterator[tuple[str, Template]]:
    """Yield what the object has: templates are symbols with a size; their labels stand before a dot in a name."""
    symbols = list(elf.get_section_by_name(".symtab").iter_symbols())
    text = elf.get_section_by_name(".text")
    names = {symbol["st_value"]: symbol.name for symbol in symbols if symbol["st_size"]}
    sizes = {symbol.name: symbol["st_size"] for symbol in symbols if symbol["st_size"]}
    holes = []
    for entry in elf.get_section_by_name(".rela.text").iter_relocations():
        hole = Hole(
            entry["r_offset"], kinds[entry["r_info_type"]], symbols[entry["r_info_sym"]].name, entry["r_addend"]
        )
        holes.append(hole)
    for start, name in sorted(names.items()):
        end = start + sizes[name]
        own = sorted(hole._replace(offset=hole.offset - start) for hole in holes if start <= hole.offset < end)
        labels = {
            symbol.name.partition(".")[2]: symbol["st_value"] - start
            for symbol in symbols
            if symbol.name.startswith(f"{name}.")
        }
        yield name, Template(text.data()[start:end], tuple(own), dict(sorted(labels.items(), key=lambda one: one[1])))


def table(machine: str) -> str:
    """Return the text of a machine's table."""
    lines = [HEAD.format(source=f"{machine}.S")]
    assembler = next(one for one in MACHINES[machine].assemblers if shutil.which(one[0]))
    for name, (code, holes, labels) in assemble(machine, assembler).items():
        pieces = [code[at : at + 24] for at in range(0, len(code), 24)]
        text = "\n        ".join('b"' + "".join(f"\\x{byte:02x}" for byte in piece) + '"' for piece in pieces)
        parts = [text]
        if holes or labels:
            places = [f'Hole({offset}, "{kind}", "{hole}", {addend})' for offset, kind, hole, addend in holes]
            parts.append("(" + "".join(f"{place},\n         " for place in places).rstrip() + ")")
        if labels:
            parts.append("{" + ", ".join(f'"{label}": {offset}' for label, offset in labels.items()) + "}")
        if parts == [text] and len(code) <= 16:
            lines.append(f'    "{name}": Template({text}),\n')
            continue
        lines.append(f'    "{name}": Template(\n        ' + ",\n        ".join(parts) + "),\n")
    return "".join(lines) + "}\n"


def main(arguments: list[str]) -> int:
    """Write the tables, or compare them."""
    wrong = []
    for machine in MACHINES:
        path = FOLDER / f"{machine}.py"
        made = table(machine)
        if arguments != ["--check"]:
            path.write_text(made)
        elif path.read_text() != made:
            wrong.append(path)
    for path in wrong:
        print(f"{path} is not what its assembly makes: run tools/templates.py", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
