"""Write the tables of machine code from their assembly: usdtbuild/machines/*/templates.py and code.py.

    python3 tools/templates.py          assemble and write
    python3 tools/templates.py --check  assemble and compare; exit code 1 if a table is not what it should be

Needs GNU as for the machine, or clang. The relocations of a template's object are its holes. The code that goes into
objects has none: each of its pieces has one place instead, of a site or of a displacement.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from elftools.elf.elffile import ELFFile

from usdtbuild.machines.templates import Hole, Template

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

PACKAGE = Path(__file__).resolve().parent.parent / "usdtbuild"
INCLUDED = PACKAGE / "machines"
HEAD = '''"""Machine code templates, made by tools/templates.py from {source}: change that, and run the tool."""

# fmt: off
from ..templates import Hole, Template

TEMPLATES = {{
'''
CODE_HEAD = '''"""Machine code, made by tools/templates.py from {source}: change that, and run the tool."""

# (bytes, offset of a place in them)
# fmt: off
CODE = {{
'''


class Machine(NamedTuple):
    """Where a machine's assembly is, how it is assembled, and which relocations are which kinds of holes."""

    source: str
    assemblers: tuple[tuple[str, ...], ...]
    kinds: dict[int, str]


def _assemblers(triple: str, *options: str) -> tuple[tuple[str, ...], ...]:
    return (f"{triple}-as", *options), ("clang", "-c", "-target", triple, "-x", "assembler")


X86_64 = _assemblers("x86_64-linux-gnu")
MACHINES = {
    "x86_64": Machine(
        "machines/x86_64/templates.S",
        X86_64,
        # R_X86_64_64, _PC32, _PLT32, _32, _32S, _16, _8
        {1: "64", 2: "distance", 4: "distance", 10: "32", 11: "signed 32", 12: "16", 14: "8"},
    ),
    "aarch64": Machine(
        "machines/aarch64/templates.S",
        _assemblers("aarch64-linux-gnu"),
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
    "x86_64 code": Machine("machines/x86_64/code.S", X86_64, {}),
    "i386 code": Machine("machines/i386/code.S", _assemblers("i386-linux-gnu"), {}),
    "s390x code": Machine("machines/s390x/code.S", _assemblers("s390x-linux-gnu"), {}),
}


def assemble(machine: str, assembler: Sequence[str]) -> dict[str, Template]:
    """Return the templates of a machine, assembled anew."""
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder, "made.o")
        words = [*assembler, "-I", INCLUDED, "-o", made, PACKAGE / MACHINES[machine].source]
        subprocess.run(words, check=True)
        with made.open("rb") as file:
            return dict(_templates(ELFFile(file), MACHINES[machine].kinds))


def _templates(elf: ELFFile, kinds: dict[int, str]) -> Iterator[tuple[str, Template]]:
    """Yield what the object has: templates are symbols with a size; their labels stand before a dot in a name."""
    symbols = list(elf.get_section_by_name(".symtab").iter_symbols())
    text = elf.get_section_by_name(".text")
    wholes = [symbol for symbol in symbols if symbol["st_size"] and "." not in symbol.name]
    names = {symbol["st_value"]: symbol.name for symbol in wholes}
    sizes = {symbol.name: symbol["st_size"] for symbol in wholes}
    holes = []
    relocations = elf.get_section_by_name(".rela.text")
    for entry in relocations.iter_relocations() if relocations else ():
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
    source = MACHINES[machine].source.rpartition("/")[2]
    assembler = next(one for one in MACHINES[machine].assemblers if shutil.which(one[0]))
    made = assemble(machine, assembler)
    if not MACHINES[machine].kinds:
        rows = (f'    "{name}": ({_literal(code)}, {labels["place"]}),\n' for name, (code, _, labels) in made.items())
        return CODE_HEAD.format(source=source) + "".join(rows) + "}\n"
    lines = [HEAD.format(source=source)]
    for name, (code, holes, labels) in made.items():
        text = "\n        ".join(_literal(code[at : at + 24]) for at in range(0, len(code), 24))
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


def _literal(code: bytes) -> str:
    return 'b"' + "".join(f"\\x{byte:02x}" for byte in code) + '"'


def main(arguments: list[str]) -> int:
    """Write the tables, or compare them."""
    wrong = []
    for machine, (source, *_) in MACHINES.items():
        path = (PACKAGE / source).with_suffix(".py")
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
