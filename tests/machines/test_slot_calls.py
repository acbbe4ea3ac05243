"""Calls that load a slot themselves, where no stub is: on every machine whose compilers write such code.

The truth: the source says which functions of the library each of its functions calls, and a disassembler how many
branches by a register there are.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from elftools.elf.elffile import ELFFile

from .conftest import HERE, Build
from .test_calls import LIBRARY, listed, objdump, without_names

# What each function of slot_calls.c calls.
CALLED = {
    "once": {"own_one"}, "last": {"own_one"}, "either": {"own_two", "own_three"}, "sometimes": {"own_four"},
    "often": {"own_three"}, "mixed": {"own_one", "own_two", "own_three", "own_four"},
    "many": {"own_one", "own_two", "own_three"}, "weak": {"missing"},
}  # fmt: skip


class Way(NamedTuple):
    """How such calls are asked for: of which compilers, by which options; what a branch by a register looks like."""

    compilers: tuple[str, ...]
    options: str
    branch: str


MIPS = Way(
    ("gcc", "clang"), "", r"\bj(al)?rc?\s+(?!\$?(?:ra|31)\b)[$\w]"
)  # position-independent code has no other calls
ARM = Way(("gcc",), "-mlong-calls", r"\bb(l)?x\s+(?!lr)\w")  # clang loads addresses that need text relocations
RISCV = Way(("gcc",), "-mno-plt", r"\bj(al)?r\s+(?!ra)\w")
# Branches through memory have the slot in the instruction; gcc loads it before only where it chooses between two.
X86 = Way(("clang", "gcc"), "-fno-plt", r"\b(call|jmp)\s+\*%")
WAYS = {
    "x86-64": X86, "i386": X86._replace(compilers=("gcc",)),
    "arm": ARM, "thumb-1": ARM, "thumb-2": ARM, "riscv64": RISCV, "riscv32": RISCV,
    "aarch64": Way(("gcc", "clang"), "-fno-plt", r"\b(br|blr)\s"),
    "loongarch64": Way(("clang",), "-mcmodel=extreme", r"\bjirl\s+\$ra|\bjr\s"),
    "mips": MIPS, "mipsel": MIPS, "mips r6": MIPS, "mips64": MIPS, "mips64el": MIPS, "mips n32": MIPS,
}  # fmt: skip


def functions(path: Path) -> tuple[list[int], list[str]]:
    """Return where the program's functions begin, and their names."""
    with path.open("rb") as file:
        elf: Any = ELFFile(file)
        symbols = elf.get_section_by_name(".symtab").iter_symbols()
        found = sorted(
            (symbol["st_value"] & ~1 if symbol["st_value"] & 1 else symbol["st_value"], symbol.name)
            for symbol in symbols
            if symbol["st_info"]["type"] == "STT_FUNC" and symbol["st_shndx"] != "SHN_UNDEF"
        )
    return [address for address, _ in found], [name for _, name in found]


def branches(shop: Any, path: Path, looks: str) -> list[int]:
    """Return where branches by a register are; not those of the linker's own stubs."""
    found, ours = [], False
    for line in shop.call(*objdump(shop), "-d", "--no-show-raw-insn", path).splitlines():
        section = re.match(r"Disassembly of section (\S+):", line)
        if section:
            ours = section[1] == ".text"
        match = re.match(r"\s*([0-9a-f]+):\s+(.*)$", line)
        if ours and match and re.search(looks, match[2]):
            found.append(int(match[1], 16))
    return found


def link(shop: Any, compiler: str, linker: str, level: str) -> Path | None:
    """Link the program and its library; None where this linker can't."""
    command = [*shop.linker(linker), *shop.target.options]
    relax = " -mno-relax" if "riscv" in shop.name else ""
    (shop.folder / "slot_calls.c").write_text((HERE / "slot_calls.c").read_text())
    (shop.folder / "library.c").write_text(LIBRARY)
    library = shop.compile(Build(compiler, f"-O1 -fPIC{relax}"), "library.c")
    code = shop.compile(Build(compiler, f"{level} -fPIC{relax} {WAYS[shop.name].options}"), "slot_calls.c")
    shared = shop.folder / f"libslots-{compiler}-{linker}.so"
    path: Path = shop.folder / f"slots-{compiler}-{linker}{level}"
    try:
        shop.call(*command, "-shared", "-soname", shared.name, library, "-o", shared)
        shop.call(*command, "-pie", "--dynamic-linker", "/none", "-e", "_start", code, shared, "-o", path)
    except pytest.fail.Exception:
        return None
    return path


def check(shop: Any, path: Path, file: dict[str, Any], bare: dict[str, Any]) -> None:
    starts, names = functions(path)
    sites = {
        int(site["address"], 16): call["name"] for call in file["calls"] for site in call["sites"]
        if site["through"] == "slot"
    }  # fmt: skip
    # A jump at the end of a function, as the last thing before padding, is what a stub is.
    stubs = {int(stub, 16): call["name"] for call in file["calls"] for stub in call["stubs"]}
    sites |= {address: name for address, name in stubs.items() if shop.name in {"x86-64", "i386"}}
    called: dict[str, set[str]] = {}
    for address, name in sites.items():
        called.setdefault(names[bisect_right(starts, address) - 1], set()).add(name)
    # mold gives a function that may be missing no slot in a program.
    wanted = {name: names for name, names in CALLED.items() if name != "weak" or "-mold-" not in path.name}
    assert {name: called.get(name) for name in wanted} == wanted, f"{shop.name} {path.name}"
    assert "by_pointer" not in called, f"{shop.name} {path.name}"
    places = [
        place
        for place in branches(shop, path, WAYS[shop.name].branch)
        if names[bisect_right(starts, place) - 1] in wanted
    ]
    missed = [hex(place) for place in places if place not in sites]
    assert not missed, f"{shop.name} {path.name}: {missed}"
    assert places or (shop.name in {"x86-64", "i386"} and "-gcc-" in path.name) or path.name.endswith("-O0")
    without = {call["slot"]: call["sites"] for call in bare["calls"]}
    for call in file["calls"]:
        # GNU ld leaves RISC-V's table among the variables, where only section headers tell it.
        assert without.get(call["slot"], []) in ([] if "riscv" in shop.name else call["sites"], call["sites"])


def ignores_the_option(shop: Any, compiler: str, path: Path) -> bool:
    """Whether the compiler has called stubs all the same, as Clang 14 does on aarch64."""
    return compiler == "clang" and shop.name == "aarch64" and bool(branches(shop, path, r"\bbl\s"))


def check_all(shop: Any, levels: tuple[str, ...], least: int = 1) -> None:
    compilers = [name for name in WAYS[shop.name].compilers if name in shop.compilers()]
    made = [
        path for compiler in compilers[:least] for linker in shop.linkers() for level in levels
        if (path := link(shop, compiler, linker, level)) and not ignores_the_option(shop, compiler, path)
    ]  # fmt: skip
    if not made:
        pytest.skip(f"no compiler and linker for {shop.name} is installed (make test-all installs them)")
    for path, file, bare in zip(made, listed(shop, made), listed(shop, [without_names(shop, path) for path in made])):
        check(shop, path, file, bare)


@pytest.mark.parametrize("name", WAYS)
def test_calls_that_load_their_slot(name: str, workshop: Any) -> None:
    check_all(workshop(name), ("-O2",))


@pytest.mark.slow
@pytest.mark.parametrize("name", WAYS)
def test_calls_that_load_their_slot_by_every_compiler(name: str, workshop: Any) -> None:
    check_all(workshop(name), ("-O0", "-O1", "-O2", "-Os"), 2)
