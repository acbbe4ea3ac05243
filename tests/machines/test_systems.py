"""Objects of FreeBSD and illumos, as clang writes them: DOF by default, and its addresses right after every link.

There is neither system here: nothing runs. The records are read by `usdtbuild list`, the code around them by capstone,
the number of probe calls by readelf from the objects as the compiler wrote them.
"""

from __future__ import annotations

import json
import re
import shutil
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import capstone as cs
import pytest
from elftools.elf.elffile import ELFFile

from usdtbuild.provider import describe

HERE = Path(__file__).parent


class System(NamedTuple):
    """A target: EI_OSABI of its objects, the system's name, capstone's machine, and what is at its sites."""

    triple: str
    osabi: int
    name: str
    decoder: tuple[int, int]
    mnemonics: set[str]


X86, NOPS = cs.CS_ARCH_X86, {"nop", "ret"}
SYSTEMS = {
    "freebsd x86-64": System("x86_64-unknown-freebsd13", 9, "freebsd", (X86, cs.CS_MODE_64), NOPS),
    "freebsd i386": System("i386-unknown-freebsd13", 9, "freebsd", (X86, cs.CS_MODE_32), NOPS),
    "freebsd aarch64": System("aarch64-unknown-freebsd13", 9, "freebsd", (cs.CS_ARCH_ARM64, 0), NOPS | {"mov"}),
    "illumos x86-64": System("x86_64-pc-solaris2.11", 6, "illumos", (X86, cs.CS_MODE_64), NOPS),
    "illumos i386": System("i386-pc-solaris2.11", 6, "illumos", (X86, cs.CS_MODE_32), NOPS),
}
# Way of linking -> options of lld. illumos' own linker needs none for addresses in .SUNW_dof.
WAYS = {"static": ("-static",), "pie": ("-pie", "-z", "notext"), "shared": ("-shared", "-z", "notext")}
R_X86_64_PC32, BRANCHES = 2, (0xE8, 0xE9)
CALL = re.compile(
    r"R_(?:X86_64_PLT32|386_PC32|386_PLT32|AARCH64_(?:CALL|JUMP)26)\s.*\b__dtrace_corpus___(\w+?)"
    rf"(?:{describe.MADE_BY})?\b"
)


@pytest.fixture(scope="session")
def sources(tmp_path_factory: Any, usdtbuild: Any) -> Any:
    """A folder with the corpus and its header."""
    folder = tmp_path_factory.mktemp("systems")
    for name in ("corpus.c", "corpus.d", "platform.c"):
        shutil.copy(HERE / name, folder)
    usdtbuild("header", "--formats=dof", "corpus.d", "-o", "corpus.h", cwd=folder)
    return folder


@pytest.fixture(params=SYSTEMS)
def system(request: Any) -> Any:
    """Each system in turn."""
    return SYSTEMS[request.param]


@pytest.fixture
def compiled(system: Any, sources: Any, need: Any, run: Any, usdtbuild: Any) -> Any:
    """Return the object as the compiler wrote it, the one that the launcher wrote, and one without probes."""
    clang = (need("clang"), f"--target={system.triple}", "-ffreestanding", "-O2", "-fPIC", "-w")
    raw, made, rest = (sources / f"{system.triple}.{kind}.o" for kind in ("raw", "made", "rest"))
    if not rest.exists():
        run(*clang, "-c", "corpus.c", "-o", raw, cwd=sources)
        usdtbuild("cc", "--", *clang, "-c", "corpus.c", "-o", made, cwd=sources)
        run(*clang, "-c", "platform.c", "-o", rest, cwd=sources)
    return raw, made, rest


def records(usdtbuild: Any, path: Any) -> Any:
    """Return (probe, is-enabled, function, address) of every record, all of which must be DOF."""
    (file,) = json.loads(usdtbuild("list", "--json", path).stdout)["files"]
    assert {probe["format"] for probe in file["probes"]} == {"dof"}
    return [
        (probe["name"].replace("-", "__"), site["is_enabled"], site["function"]["name"], site["address"])
        for probe in file["probes"] for site in probe["sites"]
    ]  # fmt: skip


def written_branches(raw: Any) -> Any:
    """Count branches to stubs that inline assembly writes on x86-64: the opcode of a call or jump, and a distance."""
    with raw.open("rb") as file:
        elf: Any = ELFFile(file)
        found: Counter[str] = Counter()
        for section in elf.iter_sections("SHT_RELA") if elf["e_machine"] == "EM_X86_64" else ():
            code, symbols = elf.get_section(section["sh_info"]).data(), elf.get_section(section["sh_link"])
            for entry in section.iter_relocations():
                name = symbols.get_symbol(entry["r_info_sym"]).name
                known = re.fullmatch(rf"__dtrace_corpus___(\w+?)(?:{describe.MADE_BY})?", name)
                if known and entry["r_info_type"] == R_X86_64_PC32 and code[entry["r_offset"] - 1] in BRANCHES:
                    found[known[1]] += 1
    return found


def test_the_object_says_which_records_it_gets(system: Any, compiled: Any, run: Any, usdtbuild: Any) -> None:
    """Nothing but DOF, in sections that are never written to; every call that the compiler wrote is a site."""
    raw, made, _ = compiled
    calls = Counter(CALL.findall(run("readelf", "-rW", raw).stdout)) + written_branches(raw)
    found = records(usdtbuild, made)
    sites = Counter(probe for probe, asks, _, _ in found if not asks)
    calls["by__pointer"] += 1  # its stub, since its address is taken too
    assert sites == calls
    assert {probe for probe, asks, _, _ in found if asks} == {"one", "stored"}
    with made.open("rb") as file:
        elf: Any = ELFFile(file)
        assert elf.stream.seek(7) == 7
        assert elf.stream.read(1) == bytes([system.osabi])
        names = [section.name for section in elf.iter_sections()]
        assert {".note.stapsdt", ".stapsdt.base", ".probes"}.isdisjoint(names)
        for section in elf.iter_sections():
            if section.name == ".SUNW_dof":
                assert section.header["sh_type"] in {0x6FFFFFF4, "SHT_SUNW_dof"}
                assert section["sh_flags"] & 3 == 2  # loaded, and not writable


@pytest.mark.parametrize("way", WAYS)
def test_addresses_are_right_after_every_link(
    way: Any, system: Any, compiled: Any, need: Any, run: Any, usdtbuild: Any
) -> None:
    _, made, rest = compiled
    program = made.with_suffix(f".{way}")
    run(need("ld.lld"), *WAYS[way], "-e", "_start", made, rest, "-o", program)
    found = records(usdtbuild, program)
    before = Counter(record[:3] for record in records(usdtbuild, made))
    assert Counter(record[:3] for record in found) == before
    decoder = cs.Cs(*system.decoder)
    with program.open("rb") as file:
        elf: Any = ELFFile(file)
        text = elf.get_section_by_name(".text")
        code, start = text.data(), text["sh_addr"]
        functions = {
            symbol.name: (symbol["st_value"], symbol["st_value"] + symbol["st_size"])
            for symbol in elf.get_section_by_name(".symtab").iter_symbols() if symbol["st_info"]["type"] == "STT_FUNC"
        }  # fmt: skip
        dof = elf.get_section_by_name(".SUNW_dof")
        place = range(dof["sh_addr"], dof["sh_addr"] + dof["sh_size"])
        dynamic = [
            relocation["r_offset"]
            for section in map(elf.get_section_by_name, (".rela.dyn", ".rel.dyn")) if section
            for relocation in section.iter_relocations() if relocation["r_offset"] in place
        ]  # fmt: skip
    for probe, asks, function, address in found:
        at = int(address, 16)
        low, high = functions[function]
        assert low <= at < high, (probe, function, address)
        (instruction,) = list(decoder.disasm(code[at - start : at - start + 15], at, count=1))
        assert instruction.mnemonic in system.mnemonics - ({"mov"} if not asks else {"ret"}), (probe, instruction)
    assert len({address for *_, address in found}) == len(found)
    assert bool(dynamic) == (system.name == "illumos" and way != "static")


def sound(usdtbuild: Any, program: Any) -> Any:
    """Whether verify finds nothing but what is left out here: the runtime that registers the DOF."""
    (file,) = json.loads(usdtbuild("verify", "--json", program).stdout)["files"]
    return {finding["check"] for finding in file["findings"]} == {"dof-unregistered"}


@pytest.mark.parametrize("way", WAYS)
def test_verify_and_dtrace_accept_the_program(
    way: Any, system: Any, compiled: Any, need: Any, run: Any, usdtbuild: Any
) -> None:
    _, made, rest = compiled
    program = made.with_suffix(f".{way}.sound")
    run(need("ld.lld"), *WAYS[way], "-e", "_start", made, rest, "-o", program)
    assert sound(usdtbuild, program)
    checked = usdtbuild("dof", "check", "--platform", system.name, program).stdout.splitlines()
    assert checked
    assert all(line.endswith(f"{system.name}: accepted") for line in checked)


@pytest.mark.parametrize("linker", ["ld.bfd", "ld.mold"])
@pytest.mark.parametrize("name", ["freebsd x86-64", "illumos x86-64"])
def test_other_linkers_take_the_objects(
    name: Any, linker: Any, sources: Any, need: Any, run: Any, usdtbuild: Any
) -> None:
    clang = (need("clang"), f"--target={SYSTEMS[name].triple}", "-ffreestanding", "-O2", "-fPIC", "-w")
    made, program = (sources / f"{linker}-{SYSTEMS[name].triple}{suffix}" for suffix in (".o", ""))
    rest = made.with_suffix(".rest.o")
    usdtbuild("cc", "--", *clang, "-c", "corpus.c", "-o", made, cwd=sources)
    run(*clang, "-c", "platform.c", "-o", rest, cwd=sources)
    run(need(linker), "-static", "-e", "_start", made, rest, "-o", program)
    assert {record[:3] for record in records(usdtbuild, program)} == {record[:3] for record in records(usdtbuild, made)}
    assert sound(usdtbuild, program)


@pytest.mark.parametrize(("host", "kind"), [("linux", "stapsdt"), ("sunos5", "dof"), ("freebsd14", "dof")])
def test_an_object_that_names_no_system_is_one_of_the_host(
    host: Any, kind: Any, sources: Any, need: Any, run: Any, monkeypatch: Any, usdtbuild: Any
) -> None:
    """GNU's assembler for illumos leaves EI_OSABI 0; an object that names Linux or FreeBSD is for that anywhere."""
    from usdtbuild.instrument.main import instrument_file

    flags = ("-O2", "-w", "-DUSDT_ENABLED_BY_CALL")
    run(need("gcc"), *flags, "-c", "corpus.c", "-o", "host.o", cwd=sources)
    run(need("clang"), *flags, "--target=x86_64-unknown-freebsd13", "-ffreestanding", "-c", "corpus.c", "-o", "bsd.o",
        cwd=sources)  # fmt: skip
    content = bytearray((sources / "host.o").read_bytes())
    content[7] = 3  # ELFOSABI_GNU
    (sources / "gnu.o").write_bytes(content)
    monkeypatch.setattr("sys.platform", host)
    wanted = {"host.o": kind, "gnu.o": "stapsdt", "bsd.o": "dof"}
    for name, expected in wanted.items():
        instrument_file(str(sources / name), str(sources / f"made-{name}"))
        (file,) = json.loads(usdtbuild("list", "--json", sources / f"made-{name}").stdout)["files"]
        assert {probe["format"] for probe in file["probes"]} == {expected}


@pytest.mark.parametrize("target", ["hexagon", "avr"])
def test_a_machine_without_probes_is_refused_with_those_that_have_them(
    target: Any, sources: Any, need: Any, run: Any, usdtbuild: Any
) -> None:
    source, made = sources / f"{target}.c", sources / f"{target}.o"
    source.write_text('#include "corpus.h"\nint f(int x);\nint f(int x) { CORPUS_ONE(x); return x; }\n')
    clang = (need("clang"), f"--target={target}", "-ffreestanding", "-c", source, "-o", made)
    if target not in run(clang[0], "--print-targets").stdout:
        pytest.skip(f"this clang doesn't know {target}")
    error = usdtbuild("cc", "--", *clang, cwd=sources, code=1).stderr
    (line,) = (line for line in error.splitlines() if not line.startswith("clang: warning"))
    assert "is not supported; supported are aarch64, " in line
    assert not made.exists()
    usdtbuild("cc", "--", *clang, "-DUSDT_DISABLED", cwd=sources)
    assert made.exists()
