"""`usdtbuild calls` on every machine, by every linker: each stub, with the right name, also of stripped files.

The truth is the linkers' own: files are linked with --emit-relocs, so that beside each call stands the name of what it
calls, and a disassembler says where the call goes. MIPS' calls load a slot, and readelf knows which.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from elftools.elf.elffile import ELFFile

from .conftest import HERE, TARGETS, Build, find, of_llvm

# What needs no other library to be linked; ld's -q keeps the relocations.
LIBRARY = """int own_data = 5;
int own_one(int value) { return value; }
int own_two(const char *text, int value) { return *text + value; }
int own_three(int value) { return value; }
int own_four(int value) { return value; }
"""
IFUNC = {"x86-64", "i386", "aarch64", "arm", "ppc32", "ppc64", "ppc64le", "power10", "s390x"}
BRANCH = re.compile(r"CALL|PLT|JUMP|REL24|PC24|PC32|DISP30|JAL|DBL|B26")
NAMES = [name for name in TARGETS if "mips" not in name]
FUNCTIONS = {"own_one", "own_two", "own_three", "own_four"}
# What may have a stub besides: its own functions in a library, the IFUNC, what needs not be there.
OTHERS = {"tail", "tail_of_tail", "chosen", "choose", "missing"}
KINDS = ("pie", "nopie", "shared")
# lld writes no entries of SPARC's own kind, which the dynamic linker would change, and slots beside them.
UNUSABLE = {("sparc64", "lld"), ("sparc", "lld")}
MODES = {"lazy": ("-z", "lazy"), "now": ("-z", "now")}


class Linked(NamedTuple):
    """A file that calls a library, and how it was made."""

    path: Path
    title: str


def objdump(shop: Any) -> list[str]:
    """Return a disassembler for the target: binutils', else LLVM's newest."""
    known = find(f"{shop.target.prefix}objdump") if shop.target.prefix or shop.name == "x86-64" else None
    if known:
        return [known]
    versions = of_llvm("llvm-objdump")
    if not versions:
        pytest.skip(f"nothing that disassembles {shop.name} is installed")
    return [versions[max(versions)]]


class Special(NamedTuple):
    """A form of stubs that is asked for: of which machine, by what options, and how readelf shows that it is there."""

    machine: str
    linkers: str
    compile: str
    link: str
    shows: str


# What asks for another form of stubs or of relocations than the usual one.
SPECIAL = {
    "bti": Special("aarch64", "bfd lld", "-mbranch-protection=bti", "-z force-bti", "AARCH64_BTI_PLT"),
    "pac": Special("aarch64", "bfd lld", "-mbranch-protection=pac-ret", "-z pac-plt", "AARCH64_PAC_PLT"),
    "bti and pac": Special(
        "aarch64", "bfd lld", "-mbranch-protection=standard", "-z force-bti -z pac-plt", "AARCH64_PAC_PLT"
    ),
    "ibt": Special("x86-64", "bfd", "-fcf-protection", "-z ibtplt", r"\.plt\.sec"),
    "ibt, lld": Special("x86-64", "lld", "-fcf-protection", "-z force-ibt", r"\.plt\.sec"),
    "retpolines": Special("x86-64", "lld", "", "-z retpolineplt", "JMPREL"),
    "bss plt": Special("ppc32", "bfd", "", "--bss-plt", r"\.plt +NOBITS.* [WAX]*X"),
    "secure plt": Special("ppc32", "bfd", "", "--secure-plt", "PPC_GOT"),
    "packed": Special("x86-64", "bfd", "", "-z pack-relative-relocs", "RELR"),
    "packed i386": Special("i386", "bfd", "", "-z pack-relative-relocs", "RELR"),
    "relr": Special("x86-64", "lld mold", "", "--pack-dyn-relocs=relr", "RELR"),
    "relr aarch64": Special("aarch64", "lld mold", "", "--pack-dyn-relocs=relr", "RELR"),
    "relr arm": Special("arm", "lld mold", "", "--pack-dyn-relocs=relr", "RELR"),
    "relr riscv64": Special("riscv64", "lld mold", "", "--pack-dyn-relocs=relr", "RELR"),
    "relr ppc64le": Special("ppc64le", "lld mold", "", "--pack-dyn-relocs=relr", "RELR"),
}


def links(
    shop: Any, compilers: list[str], linkers: list[str], kinds: tuple[str, ...], special: Special | None = None
) -> list[Linked]:
    """Link the program and a library in some ways; what a linker can't link without our help isn't looked at."""
    asked, more = (special.compile, special.link.split()) if special else ("", [])
    (shop.folder / "calls.c").write_text((HERE / "calls.c").read_text())
    (shop.folder / "library.c").write_text(LIBRARY)
    found = []
    for compiler in compilers:
        relax = " -mno-relax" if "riscv" in shop.name else f" {asked}"
        library = shop.compile(Build(compiler, f"-O1 -fPIC{relax}"), "library.c")
        defines = ["IFUNC"] if shop.name in IFUNC and compiler == "gcc" else []
        for linker in linkers:
            if (shop.name, linker) in UNUSABLE:
                continue
            command = [*shop.linker(linker), *shop.target.options]
            shared = shop.folder / f"lib{compiler}-{linker}.so"
            try:
                shop.call(*command, *more, "-shared", "-soname", shared.name, library, "-o", shared)
            except pytest.fail.Exception:
                continue
            for kind, flags, how in (
                (KINDS[0], "-fPIE", ["-pie", "--dynamic-linker", "/none"]),
                (KINDS[1], "-fno-pic", ["--dynamic-linker", "/none"]),
                (KINDS[2], "-fPIC", ["-shared"]),
            ):
                if not any(name.startswith(kind) for name in kinds):
                    continue
                code = shop.compile(Build(compiler, f"-O2 {flags}{relax}"), "calls.c", *defines)
                for mode, options in MODES.items():
                    if f"{kind}-{mode}" not in kinds:
                        continue
                    path = shop.folder / f"calls-{compiler}-{linker}-{kind}-{mode}"
                    try:
                        shop.call(*command, *more, *how, *options, "-q", "-e", "_start", code, shared, "-o", path)
                    except pytest.fail.Exception:
                        continue
                    found.append(Linked(path, path.name))
    return found


def listed(shop: Any, paths: list[Path]) -> list[dict[str, Any]]:
    """Return what the command says of files, in their order."""
    files: list[dict[str, Any]] = json.loads(shop.call(*shop.usdtbuild, "calls", "--json", "--sites", *paths))["files"]
    assert [file["path"] for file in files] == [str(path) for path in paths]
    return files


def without_names(shop: Any, path: Path) -> Path:
    """Return a copy without symbols, section headers and the names that only they give."""
    found = shop.folder / f"{path.name}.bare"
    # binutils 2.40 for riscv can't write again what lld has linked.
    prefix = "llvm-" if "-lld-" in path.name else shop.target.prefix
    strip = find(f"{prefix}strip") if prefix or shop.name == "x86-64" else None
    if strip:
        shop.call(strip, path, "-o", found)
    else:
        found.write_bytes(path.read_bytes())
    data = bytearray(found.read_bytes())
    start, size = ((0x28, 8), (0x20, 4))[data[4] == 1]
    data[start : start + size] = bytes(size)
    at = 0x3A if data[4] == 2 else 0x2E
    data[at : at + 6] = data[at : at + 2] + bytes(4)
    found.write_bytes(data)
    return found


def branches(shop: Any, path: Path) -> dict[int, int]:
    """Return where each branch goes, by the disassembler."""
    text = shop.call(*objdump(shop), "-d", "--no-show-raw-insn", path)
    found, waiting, before = {}, None, ""
    for line in text.splitlines():
        match = re.match(r"\s*([0-9a-f]+):\s+(.*)$", line)
        if not match:
            continue
        address = int(match[1], 16)
        if far := re.match(r"jirl\s+\S+, \S+, (-?\d+)$", match[2]):  # of a pair, whose first has the relocation
            pair = re.match(r"pcaddu18i\s+\S+, (-?\d+)$", before)
            if pair:
                found[address - 4] = address - 4 + (int(pair[1]) << 18) + int(far[1])
        before = match[2]
        target = re.search(r"(?:^|[\s,])(?:0x)?(-?[0-9a-f]+) <", match[2])
        if target:
            relative = shop.name == "loongarch64"  # LLVM shows its distances, in decimal digits
            found[address] = address + int(target[1]) if relative else int(target[1], 16)
            if waiting is not None:
                found[waiting] = found[address]
        waiting = address if match[2].startswith("auipc") else None  # its jalr says where to
    return found


def truth(shop: Any, path: Path) -> dict[int, set[str]]:
    """Return what is called at each address that a relocated branch goes to, as far as another file may have it."""
    goes = branches(shop, path)
    found: dict[int, set[str]] = {}
    with path.open("rb") as file:
        elf: Any = ELFFile(file)
        machine = elf["e_machine"]
        for section in elf.iter_sections():
            if section["sh_type"] not in ("SHT_REL", "SHT_RELA") or ".text" not in section.name:
                continue
            symbols = elf.get_section(section["sh_link"])
            for relocation in section.iter_relocations():
                name = symbols.get_symbol(relocation["r_info_sym"]).name.split("@")[0]
                place = next((relocation["r_offset"] - back for back in (0, 1, 2) if
                              relocation["r_offset"] - back in goes), None)  # fmt: skip
                if place is not None and name in FUNCTIONS and BRANCH.search(kind_of(machine, relocation)):
                    found.setdefault(goes[place], set()).add(name)
    return found


def behind_veneers(path: Path, addresses: set[int], machine: str) -> dict[int, int | str]:
    """Return where the ARM code goes that Thumb code may branch to: bx pc, nop, and a branch or a long jump.

    Those of lld and mold are of many forms, and say in their names whose they are.
    """
    found: dict[int, int | str] = {}
    with path.open("rb") as file:
        elf: Any = ELFFile(file)
        for symbol in elf.get_section_by_name(".symtab").iter_symbols():
            name = re.search(r"Thunk_(\w+)|^(\w+)\$thunk", symbol.name)
            if name and symbol["st_value"] & ~1 in addresses:
                found[symbol["st_value"] & ~1] = name[1] or name[2]
        for segment in elf.iter_segments("PT_LOAD") if machine.startswith("thumb") else ():
            start, data = segment["p_vaddr"], segment.data()
            for address in addresses:
                code = data[address - start : address - start + 16] if start <= address else b""
                first, second, third = (int.from_bytes(code[at : at + 4], "little") for at in (4, 8, 12))
                if first == 0xE59FC000 and second in (0xE08CF00F, 0xE08FF00C):  # ldr ip, [pc]; add pc, ip, pc
                    found[address] = address + 16 + third & 0xFFFFFFFF
                elif first >> 24 == 0xEA:  # b
                    distance = (first & 0xFFFFFF) - (first >> 23 & 1) * 0x1000000
                    found[address] = address + 4 + 8 + 4 * distance
    return found


def kind_of(machine: str, relocation: Any) -> str:
    """Return the name of a relocation's type, as pyelftools spells it; for machines that it doesn't know a branch's."""
    from elftools.elf import enums

    tables = {
        "EM_X86_64": "X64", "EM_386": "i386", "EM_AARCH64": "AARCH64", "EM_ARM": "ARM", "EM_PPC": "PPC",
        "EM_PPC64": "PPC64", "EM_S390": "S390X",
    }  # fmt: skip
    table = getattr(enums, f"ENUM_RELOC_TYPE_{tables.get(machine, '-')}", None)
    if table is None or relocation.entry.r_info_type not in table.values():
        return "CALL"
    return next((name for name, number in table.items() if number == relocation["r_info_type"]), "")


def check(shop: Any, linked: Linked, file: dict[str, Any], bare: dict[str, Any]) -> int:
    """Hold one file's calls to the truth; return how many stubs it has."""
    stubs: dict[Any, str] = {int(stub, 16): call["name"] for call in file["calls"] for stub in call["stubs"]}
    wanted = truth(shop, linked.path)
    through = behind_veneers(linked.path, set(wanted) - set(stubs), shop.name)
    seen = {address: {stubs.get(through.get(address, address)), through.get(address)} for address in wanted}
    wrong = {hex(address): (names, seen[address]) for address, names in wanted.items() if not names & seen[address]}
    assert not wrong, f"{shop.name} {linked.title}: {wrong}"
    called = {name for names in wanted.values() for name in names}
    # mold leaves the symbol out of some relocations.
    unknown = {name for name in stubs.values() if name not in called} - OTHERS
    assert not unknown or "-mold-" in linked.title, f"{shop.name} {linked.title}: {unknown}"
    assert {"own_two", "own_three", "own_four"} <= called, f"{shop.name} {linked.title}: {called}"
    assert file["binding"] == linked.title.rpartition("-")[2]
    # GNU ld leaves RISC-V's table among the variables, where only section headers tell slots that have no stub.
    ours, theirs = ([call for call in found["calls"] if call["stubs"] or "riscv" not in shop.name]
                    for found in (file, bare))  # fmt: skip
    for one, other in zip(ours, theirs):
        assert {**one, "name": 0, "demangled": 0} == {**other, "name": 0, "demangled": 0}
        assert one["name"] == other["name"] or one["kind"] == "ifunc"
    assert len(ours) == len(theirs)
    return len(stubs)


def check_all(shop: Any, compilers: list[str], kinds: tuple[str, ...], special: Special | None = None) -> list[Linked]:
    linkers = [name for name in shop.linkers() if special is None or name in special.linkers.split()]
    made = links(shop, compilers, linkers, kinds, special)
    if not made:
        pytest.skip(f"no compiler and linker for {shop.name} is installed (make test-all installs them)")
    if not find(f"{shop.target.prefix}objdump") and not all(truth(shop, linked.path) for linked in made):
        pytest.skip(f"no disassembler here says where {shop.name}'s branches go (make test-all installs one)")
    files = listed(shop, [linked.path for linked in made])
    bare = listed(shop, [without_names(shop, linked.path) for linked in made])
    assert sum(check(shop, *each) for each in zip(made, files, bare)) >= 4 * len(made)
    return made


@pytest.mark.parametrize("name", NAMES)
def test_stubs_of_the_usual_programs(name: str, workshop: Any) -> None:
    shop = workshop(name)
    check_all(shop, shop.compilers()[:1], ("pie-lazy",))


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_stubs_of_all_kinds_of_files(name: str, workshop: Any) -> None:
    shop = workshop(name)
    check_all(shop, shop.compilers(), tuple(f"{kind}-{mode}" for kind in KINDS for mode in MODES))


@pytest.mark.parametrize("form", SPECIAL)
def test_stubs_of_forms_that_are_asked_for(form: str, workshop: Any) -> None:
    special = SPECIAL[form]
    shop = workshop(special.machine)
    readelf = find(f"{shop.target.prefix}readelf") or find("readelf")
    for linked in check_all(shop, shop.compilers()[:1], ("pie-lazy", "nopie-now", "shared-lazy"), special):
        if special.shows != "RELR" or "nopie" not in linked.title:  # at fixed addresses nothing is relative
            assert re.search(special.shows, shop.call(readelf, "-dSW", linked.path)), linked.title


@pytest.mark.parametrize("name", [name for name in TARGETS if "mips" in name])
def test_slots_and_first_call_stubs_of_mips(name: str, workshop: Any) -> None:
    """Against readelf's reading of the global offset table: the slot, and what it holds until the first call."""
    shop = workshop(name)
    made = links(shop, shop.compilers()[:1], shop.linkers(), ("pie-lazy", "shared-lazy"))
    if not made or not find(f"{shop.target.prefix}readelf"):
        pytest.skip(f"no compiler and linker for {name} is installed (make test-all installs them)")
    stubs = 0
    for linked, file in zip(made, listed(shop, [linked.path for linked in made])):
        calls = {call["name"]: call for call in file["calls"]}
        seen = 0
        for line in shop.call(find(f"{shop.target.prefix}readelf"), "-AW", linked.path).splitlines():
            fields = line.split()
            if len(fields) == 7 and fields[4:6] == ["FUNC", "UND"] and fields[6] in FUNCTIONS:
                slot, _, initial, value = fields[:4]
                call = calls[fields[6]]
                assert int(call["slot"], 16) == int(slot, 16)
                assert [int(stub, 16) for stub in call["stubs"]] == [int(value, 16)] * bool(int(value, 16))
                assert int(initial, 16) == int(value, 16)
                stubs += len(call["stubs"])
                seen += 1
        assert seen == len(FUNCTIONS), linked.title
        assert file["first_call_only"]
    assert stubs or "bfd" not in {linked.title.split("-")[2] for linked in made}


def link_many(shop: Any, program: str, library: str, reader: str, *options: str) -> str:
    """Link a program of assembly with a library of it, as `many`, and return the path of binutils' tool `reader`."""
    assembler, linker, tool = (find(f"{shop.target.prefix}{name}") for name in ("as", "ld.bfd", reader))
    if not (assembler and linker and tool):
        pytest.skip(f"binutils for {shop.name} are not installed (make test-all installs them)")
    for name, text in (("many", program), ("them", library)):
        (shop.folder / f"{name}.s").write_text(text)
        shop.call(assembler, f"{name}.s", "-o", f"{name}.o")
    shop.call(linker, "-shared", "them.o", "-o", "libthem.so")
    shop.call(linker, *options, "--dynamic-linker", "/none", "many.o", "libthem.so", "-o", "many")
    return tool


@pytest.mark.slow
def test_more_functions_than_a_branch_of_the_table_reaches(workshop: Any) -> None:
    """ELFv1's entries are longer from 32,768 on; and where a slot's words lie across 32 KB, its stub is another."""
    shop, count = workshop("ppc64"), 36_000
    functions = range(count)
    program = (
        '.section ".opd","aw"\n.globl _start\n_start: .quad .Lstart,.TOC.@tocbase,0\n.text\n.Lstart:\n'
        + "".join(f" bl f{number}\n nop\n" for number in functions)
        + " blr\n"
    )
    library = (
        '.section ".opd","aw"\n'
        + "".join(f".globl f{n}\n.type f{n},@function\nf{n}: .quad .L{n},.TOC.@tocbase,0\n" for n in functions)
        + ".text\n"
        + "".join(f".L{number}: blr\n" for number in functions)
    )
    symbols = shop.call(link_many(shop, program, library, "nm", "-pie"), "many")
    wanted = {int(m[1], 16): m[2] for m in re.finditer(r"^(\w+) . \w+\.plt_call\.(f\d+)$", symbols, re.MULTILINE)}
    assert len(wanted) == count
    for path in (shop.folder / "many", without_names(shop, shop.folder / "many")):
        (file,) = listed(shop, [path])
        assert {int(stub, 16): call["name"] for call in file["calls"] for stub in call["stubs"]} == wanted


@pytest.mark.slow
def test_more_functions_than_have_entries_that_are_written(workshop: Any) -> None:
    """Of SPARC V9's entries from 32,768 on the relocation names a pointer, and its addend says where the code is."""
    shop, count = workshop("sparc64"), 33_000
    functions = range(count)
    program = (
        ".text\n.globl _start\n_start:\n"
        + "".join(f" call f{number}\n nop\n" for number in functions)
        + " retl\n nop\n"
    )
    library = ".text\n" + "".join(f".globl f{n}\n.type f{n},@function\nf{n}: retl\n nop\n" for n in functions)
    relocations = shop.call(link_many(shop, program, library, "readelf"), "-rW", "many")
    wanted = {}
    for place, name, sign, addend in re.findall(
        r"^(\w+) .*JMP_SLOT +\w+ (f\d+) ([-+]) (\w+)$", relocations, re.MULTILINE
    ):
        wanted[int(addend, 16) - 4 if sign == "-" else int(place, 16)] = name
    assert len(wanted) == count
    for path in (shop.folder / "many", without_names(shop, shop.folder / "many")):
        (file,) = listed(shop, [path])
        assert {int(stub, 16): call["name"] for call in file["calls"] for stub in call["stubs"]} == wanted
        assert sum(len(call["sites"]) for call in file["calls"]) == count
