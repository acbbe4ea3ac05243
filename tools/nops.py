"""Write usdtbuild/runtime/live/nops.h, what a NOP and a landing pad are, from the machines' facts.

python3 tools/nops.py          write it
python3 tools/nops.py --check  compare; exit code 1 if it isn't what the facts say
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from usdtbuild.machines import all_entries
from usdtbuild.machines.facts import LongNop
from usdtbuild.machines.nops import LONGEST_NOP

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from usdtbuild.machines.facts import Entries

TABLE = Path(__file__).resolve().parent.parent / "usdtbuild/runtime/live/nops.h"
# What the C compiler defines where the runtime has a protocol, and whose facts count there.
MACHINES = {
    "defined(__x86_64__)": ("x86-64",),
    "defined(__aarch64__)": ("aarch64",),
    "defined(__riscv)": ("riscv64",),
    "defined(__s390x__)": ("s390x",),
    "LIVE_PPC64": ("ppc64le",),
    "LIVE_ARM": ("thumb", "arm"),
}
HEAD = """/* NOPs and landing pads, made by tools/nops.py from usdtbuild/machines: change that, and run the tool. */

"""


def _rows(forms: Sequence[LongNop]) -> Iterator[str]:
    for prefixes, most, code, more in forms:
        both = prefixes * 2 if len(prefixes) == 1 else prefixes
        before, given = (", ".join(f"0x{byte:02x}" for byte in part) or "0" for part in (both, code))
        yield f"\t{{{{{before}}}, {most}, {{{given}}}, {len(code)}, {more}}},\n"


def _forms(named: Sequence[tuple[bytes, str]]) -> list[LongNop]:
    return [LongNop(b"", 0, code, 0) for code, _ in named]


def table() -> str:
    """Return the header's text."""
    known = {one.name: one for one in all_entries()}

    def rows(one: Entries, pads: bool) -> str:
        # What signs the return address is no place where only indirect calls come by.
        marks = [(code, name) for code, name in one.pads if not name.startswith("pac")]
        return "".join(_rows(_forms(marks) if pads else one.long_nops or _forms(one.nops)))

    text = HEAD + f"enum {{ LIVE_LONGEST_NOP = {LONGEST_NOP} }};\n\n/* clang-format off */\n"
    for pads in (False, True):
        text += f"static const live_nop live_{'pads' if pads else 'nops'}[] = {{\n"
        for number, (condition, names) in enumerate(MACHINES.items()):
            found = "".join(rows(known[name], pads) for name in names)
            text += f"#{'elif' if number else 'if'} {condition}\n{found}"
        text += "#endif\n\t{{0}, 0, {0}, 0, 0}\n};\n" + ("/* clang-format on */\n" if pads else "\n")
    return text


def main(arguments: list[str]) -> int:
    """Write the table, or compare it."""
    if arguments != ["--check"]:
        TABLE.write_text(table())
    elif TABLE.read_text() != table():
        print(f"{TABLE} is not what the machines' facts say: run tools/nops.py", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
