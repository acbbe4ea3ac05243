"""What the tests of function entries share: compiling the sample programs, and the compiler's assembly as the oracle.

`entries_of` reads what the compiler wrote with -S: which functions its table names, how many bytes of NOPs stand before
each, and how many at the entry. It knows nothing of ELF, so that it can't be wrong in the same way as what is tested.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

SOURCES = Path(__file__).parent / "sources"

# The bytes of clang's long NOPs, by their assembly (Intel SDM volume 2, NOP, table 4-12).
LONG_NOPS = {
    "xchgw %ax, %ax": 2, "nopl (%rax)": 3, "nopl 8(%rax)": 4, "nopl 8(%rax,%rax)": 5, "nopw 8(%rax,%rax)": 6,
    "nopl 512(%rax)": 7, "nopl 512(%rax,%rax)": 8, "nopw 512(%rax,%rax)": 9, "nopw %cs:512(%rax,%rax)": 10,
    "nopl (%eax)": 3,
}  # fmt: skip
# LLVM writes the prefixes that make a NOP longer than ten bytes as data before it.
NOPS = {"nop": None, "nopr\t%r0": 2, "nopr %r0": 2, ".byte 102": 1, **LONG_NOPS}
LANDING_PADS = {"endbr64", "endbr32", "hint 34", "hint #34", "bti c", "hint 25", "hint #25", "paciasp"}
WORD = re.compile(r"\.(?:quad|8byte|xword|long|4byte|word|dword)\s+(\S+)$")
FUNCTION = re.compile(r"\.type\s+(\S+?)\s*,\s*[@%]function")
ALIGNMENT = re.compile(r"\.(?:p2align|align|balign)\b")


class Expected(NamedTuple):
    """Bytes of NOPs before a function and at its entry, as the assembly says."""

    padding: int
    nops: int


def entries_of(assembly: str, nop: int, thumb_assembler: bool = False) -> dict[str, Expected]:
    """Return function -> its NOPs, of every function that the assembly's table names. `nop` is the bytes of one NOP."""
    functions = set(FUNCTION.findall(assembly))
    streams: dict[str, list[tuple[str, Any]]] = {}
    section, previous, table = ".text", ".text", []
    width = nop if not thumb_assembler else 2
    for raw in assembly.splitlines():
        line = re.split(r"\s*(?:// |@ |# |##)", raw, maxsplit=1)[0].strip()
        if not line or line.startswith("#"):
            continue
        if line.startswith((".section", ".text", ".data", ".bss", ".previous", ".pushsection", ".popsection")):
            name = re.match(r"\.(?:push)?section\s+([^,\s]+)", line)
            back = line.startswith((".prev", ".pop"))
            now = previous if back else name.group(1).strip('"') if name else line.split()[0]
            section, previous = now, section
            continue
        if line in (".thumb", ".arm", ".code\t16", ".code\t32"):
            width = 2 if line in (".thumb", ".code\t16") else 4
            continue
        if section == "__patchable_function_entries":
            word = WORD.match(line)
            if word:
                table.append(word.group(1))
            continue
        stream = streams.setdefault(section, [])
        label = re.match(r"([^\s:]+):$", line)
        if label:
            text = label.group(1)
            # ppc64's first ABI: `f` is a descriptor in .opd, and the code is called `.L.f`
            stream.append(("label", text[3:] if text.startswith(".L.") and text[3:] in functions else text))
        elif re.sub(r"\s+", " ", line) in NOPS or line in NOPS:
            size = NOPS.get(re.sub(r"\s+", " ", line), NOPS.get(line))
            stream.append(("nop", width if size is None else size))
        elif ALIGNMENT.match(line):
            stream.append(("align", line))
        elif not line.startswith("."):
            stream.append(("code", re.sub(r"\s+", " ", line)))
    places = {
        text: (name, at) for name, items in streams.items() for at, (kind, text) in enumerate(items) if kind == "label"
    }
    found = {}
    for place in table:
        section, at = places[place]
        function, expected = _one_entry(streams[section], at, functions)
        assert function not in found, f"{function} has two entries"
        found[function] = expected
    return found


def _one_entry(stream: list[tuple[str, Any]], at: int, functions: set[str]) -> tuple[str, Expected]:
    """Return the function that the table's label at `at` belongs to, and its NOPs."""
    padding, place = 0, at
    while stream[place][0] in ("label", "nop") and not (stream[place][0] == "label" and stream[place][1] in functions):
        padding += stream[place][1] if stream[place][0] == "nop" else 0
        place += 1
    if stream[place][0] == "label":
        function = stream[place][1]
        place += 1
        while stream[place][0] == "label" or stream[place] in [("code", pad) for pad in LANDING_PADS]:
            place += 1
    else:  # M = 0 behind a landing pad: the function's label comes first, and what was counted is at the entry
        place, padding = at, 0
        function = next(text for kind, text in reversed(stream[:at]) if kind == "label" and text in functions)
    nops = 0
    while place < len(stream) and stream[place][0] in ("label", "nop"):
        nops += stream[place][1] if stream[place][0] == "nop" else 0
        place += 1
    return function, Expected(padding, nops)


@pytest.fixture(scope="session")
def oracle(run: Callable[..., Any]) -> Callable[..., dict[str, Expected]]:
    """Compile to assembly and return what it says: `oracle(compiler, source, *options, nop=1)`."""

    def compile_and_read(compiler: str, source: Path, *options: str, nop: int = 1) -> dict[str, Expected]:
        done = run(*compiler.split(), *options, "-S", source, "-o", "-")
        return entries_of(done.stdout, nop, "-Wa,-mthumb" in options)

    return compile_and_read


@pytest.fixture(scope="session")
def functions(usdtbuild: Callable[..., Any]) -> Callable[..., dict[str, Any]]:
    """Return the JSON that `usdtbuild functions` prints about one file."""

    def list_functions(target: Any, *options: Any) -> dict[str, Any]:
        done = usdtbuild("functions", "--json", target, *options)
        files = json.loads(done.stdout)["files"]
        assert len(files) == 1
        return dict(files[0])

    return list_functions


@pytest.fixture(scope="session")
def by_name(functions: Callable[..., dict[str, Any]]) -> Callable[..., dict[str, Any]]:
    """Return name -> row of `usdtbuild functions`, aliases too; nameless rows under their address."""

    def rows_by_name(target: Any, *options: Any) -> dict[str, Any]:
        rows: dict[str, Any] = {}
        for row in functions(target, *options)["functions"]:
            for name in [row["symbol"] or hex(row["address"]), *row["aliases"]]:
                rows[name] = row
        return rows

    return rows_by_name


NO_ENTRY = {"no-entry", "no-table", "cold-part"}


def agree(rows: dict[str, Any], expected: dict[str, Any], hotpatchable: bool = True) -> None:
    """Assert that the same functions have entries, with the same NOPs."""
    listed = {name: row for name, row in rows.items() if row["reason"] not in NO_ENTRY}
    primary = {name for name, row in listed.items() if row["symbol"] == name}
    assert set(expected) <= set(listed)
    # What is listed beyond the table's labels are other names of the same functions.
    for name in primary - set(expected):
        assert set(listed[name]["aliases"]) & set(expected), f"{name} has no entry in the assembly"
    for name, (padding, nops) in expected.items():
        row = listed[name]
        assert (row["padding"], row["nops"]) == (padding, nops), name
        assert row["hotpatchable"] == hotpatchable, (name, row)


@pytest.fixture
def agreement(run: Any, oracle: Any, by_name: Any, tmp_path: Path) -> Callable[..., Any]:
    """Compile a source, and assert that `usdtbuild functions` agrees with the assembly: `agreement(cc, source, words)`.

    `link` are words that say what is made of it, program.o with `-c` and else program. With `alive`, entries of
    functions that aren't there are not expected. Returns the rows, and what was expected.
    """

    def compare(
        compiler: str, source: Path, words: list[str], *link: str, nop: int = 1, pair: str = "",
        hotpatchable: bool = True, alive: bool = False,
    ) -> tuple[dict[str, Any], dict[str, Expected]]:  # fmt: skip
        built = tmp_path / ("program.o" if "-c" in link else "program")
        run(*compiler.split(), *words, *link, source, "-o", built)
        rows = by_name(built, *(["--patchable", pair] if pair else []))
        expected = oracle(compiler, source, *words, nop=nop)
        if alive:
            names = set(re.findall(r"\S+$", run("nm", built).stdout, re.MULTILINE))
            expected = {name: nops for name, nops in expected.items() if name in names}
        agree(rows, expected, hotpatchable)
        return rows, expected

    return compare


@pytest.fixture(scope="session")
def program_c() -> Path:
    """The sample program in C."""
    return SOURCES / "program.c"


@pytest.fixture(scope="session")
def program_cc() -> Path:
    """The sample program in C++."""
    return SOURCES / "program.cc"


# Three sound functions, so that 7,5 is what most entries have. `%s` is where a wrong one goes, between two of them.
PROGRAM = """
  .macro entry label
  .pushsection __patchable_function_entries,"awo",@progbits,.text
  .balign 8
  .quad \\label
  .popsection
  .endm
  .macro padding count
  .rept \\count
  nop
  .endr
  .endm
  .macro function name, padding, entry
  .p2align 4
  entry .Lentry_\\name
.Lentry_\\name:
  padding \\padding
  .globl \\name
  .type \\name, @function
\\name:
  padding \\entry
  .endm
  .macro finish name
  ret
  .size \\name, . - \\name
  .endm
  .text
  function first 5 2
  mov $1, %%eax
  finish first
%s
  .p2align 4
  function second 5 2
  mov $2, %%eax
  jmp first
  .size second, . - second
  function third 5 2
  mov $3, %%eax
  finish third
  .globl _start
_start:
  ret
  .section .note.GNU-stack,"",@progbits
"""

SOUND = ["first", "second", "third"]


@pytest.fixture(scope="module")
def build(run: Any, need: Any, tmp_path_factory: Any) -> Any:
    """Assemble and link a wrong function with the sound ones: `build(text)`, `build(text, linked=False)`."""

    def assemble(wrong: str, linked: bool = True, options: tuple[str, ...] = ("-static",)) -> Any:
        folder = tmp_path_factory.mktemp("wrong")
        source, built, program = folder / "wrong.s", folder / "wrong.o", folder / "wrong"
        source.write_text(PROGRAM % wrong)
        run(need("gcc"), "-c", source, "-o", built)
        if not linked:
            return built
        run(need("gcc"), "-nostdlib", *options, built, "-o", program)
        return program

    return assemble
