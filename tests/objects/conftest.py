"""Compiling, instrumenting and linking small programs, and an oracle that says where their probe sites must be.

The oracle is a second link of the same objects, not instrumented, with every stub defined as a real function. There
each probe is a call that the disassembler finds: function, offset in it, and which stub it reaches. The instrumented
link must have exactly these places as records. Both files are read with pyelftools and capstone, not with our own
reader.

What a record is depends on its format: `READERS` has one function a format that turns a finished file into `Record`s,
and everything below works on these.
"""

from __future__ import annotations

import io
import re
import struct
import subprocess
import sys
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import capstone
import pytest
from elftools.elf.elffile import ELFFile
from elftools.elf.relocation import RelocationSection, RelrRelocationSection
from elftools.elf.sections import SymbolTableSection

from usdtbuild.instrument.main import Instrumented, Options, instrument_file
from usdtbuild.provider.describe import plain_name

SAMPLES = Path(__file__).resolve().parent / "samples"
STUB, ENABLED = "__dtrace_", "__dtraceenabled_"
# The sections that instrumenting adds to a program, with the flags that they may have.
OUR_SECTIONS = {".note.stapsdt": 0, ".stapsdt.base": 6, ".probes": 3, ".usdtbuild.provider": 0}
OUR_SECTIONS.update({".SUNW_dof": 2, ".note.usdt": 0, ".rodata": 2})
# with --emit-relocs
OUR_SECTIONS.update({".rela.note.stapsdt": 0, ".rela.probes": 0, ".rela.SUNW_dof": 0, ".rela.note.usdt": 0})
FORMATS = ("stapsdt", "dof", "usdt")
OURS = ("app", "sample")
PROVIDER = """
provider app {
    probe start();
    probe req(int fd, char *name);
    probe req__done(int fd, char *name, long bytes);
    probe wide(int a, char *b, uint8_t c, int64_t d, short e, int f, int g, uint64_t h);
};
"""


# --- records, one reader a format -----------------------------------------------------------------------------


class Record(NamedTuple):
    """A probe that a tracer sees in a file: `address` is where it would put its breakpoint."""

    provider: str
    probe: str
    address: int
    semaphore: int = 0
    arguments: str = ""
    function: str = ""  # as the record itself says, where it does


def read_stapsdt(binary: Binary) -> list[Record]:
    """Return the records in `.note.stapsdt`, as the tracers' sources read them."""
    found = []
    for section in binary.elf.iter_sections():
        if section.name != ".note.stapsdt":
            continue
        data, offset = section.data(), 0
        while offset < len(data):
            name_size, size, type_ = struct.unpack_from("<III", data, offset)
            owner = data[offset + 12 : offset + 12 + name_size]
            start = offset + 12 + (name_size + 3 & ~3)
            offset = start + (size + 3 & ~3)
            assert offset <= len(data), "a note runs out of its section"
            if owner == b"stapsdt\0" and type_ == 3:
                pc, base, semaphore = struct.unpack_from("<QQQ", data, start)
                provider, probe, arguments, end = data[start + 24 : start + size].decode().split("\0")
                assert end == ""
                shift = binary.section(".stapsdt.base")["sh_addr"] - base
                found.append(Record(provider, probe, pc + shift, semaphore and semaphore + shift, arguments))
    return found


def read_usdt(binary: Binary) -> list[Record]:
    """Return the sites in `.note.usdt`, by the rules for which Oracle's parser would refuse the whole file."""
    declared: dict[tuple[str, str], int] = {}  # provider and probe -> number of arguments
    sites = []
    notes = binary.elf.get_section_by_name(".note.usdt")
    data, offset = notes.data() if notes else b"", 0
    while offset < len(data):
        name_size, size, type_ = struct.unpack_from("<III", data, offset)
        owner = data[offset + 12 : data.index(b"\0", offset + 12)]
        start = offset + 12 + (name_size + 3 & ~3)
        offset = start + (size + 3 & ~3)
        assert offset <= len(data), "a note runs out of its section"
        if owner == b"prov":
            for key, count in _declared_probes(data[start : start + size]):
                assert key not in declared, f"{key} is declared twice"
                declared[key] = count
        elif owner == b"usdt":
            sites.append(_usdt_site(binary, data[start : start + size], type_))
        else:
            assert owner == b"dver", f"a note of {owner!r} among the records"
    assert len({(record, type_) for record, _, type_ in sites}) == len(sites), "two notes of one site"
    for record, count, type_ in sites:
        expected = declared[record.provider, record.probe.replace("__", "-")]
        assert count == (1 if type_ == 2 else expected), f"{record} has {count} arguments, and {expected} are declared"
    return [record for record, _, type_ in sites if type_ == 1]


def _usdt_site(binary: Binary, description: bytes, type_: int) -> tuple[Record, int, int]:
    pc, function = struct.unpack_from("<QQ", description)
    provider, probe, rest = description[16:].split(b"\0", 2)
    arguments = rest[1:].removesuffix(b"\0").decode()
    assert rest[0] == len(arguments.split())
    names = binary.section(".rodata")
    place = function - names["sh_addr"]
    assert 0 <= place < names["sh_size"], f"{function:#x} is no place in .rodata"
    name = names.data()[place:].partition(b"\0")[0].decode()
    return Record(provider.decode(), probe.decode(), pc, 0, arguments, name), rest[0], type_


def _declared_probes(description: bytes) -> Iterator[tuple[tuple[str, str], int]]:
    """Yield (provider, probe) and the number of native arguments of a provider's note."""
    provider = description.partition(b"\0")[0]
    place = (len(provider) + 4 & ~3) + 20
    (count,) = struct.unpack_from("<I", description, place)
    place += 4
    for _ in range(count):
        place += -place % 4
        probe = description[place:].partition(b"\0")[0]
        place += len(probe) + 1
        native = description[place]
        place += 1
        for _ in range(native):
            place = description.index(b"\0", place) + 1
        translated = description[place]
        place += 1
        for _ in range(translated):
            place = description.index(b"\0", place) + 2
        assert place <= len(description)
        yield (provider.decode(), probe.decode()), native


def read_dof(binary: Binary) -> list[Record]:
    """Return the sites in every DOF, each behind the one before, as FreeBSD and illumos would relocate it."""
    section = binary.elf.get_section_by_name(".SUNW_dof")
    data, start = binary.loaded(section) if section else b"", 0
    found: list[Record] = []
    while start < len(data):
        if data[start : start + 4] == b"\x7fDOF":
            (size,) = struct.unpack_from("<Q", data, start + 40)
            found += _dof_sites(data[start : start + size], section["sh_addr"] + start)
            start += size
            assert struct.unpack_from("<4sI", data, start) == (b"UDOF", size)
        else:
            assert data[start : start + 4] in (b"UDOF", bytes(4)), f"{data[start : start + 4]!r} between two DOFs"
        start += 8
    return found


def _dof_sites(dof: bytes, address: int) -> Iterator[Record]:
    (count,) = struct.unpack_from("<I", dof, 28)
    sections = [struct.unpack_from("<IIIIQQ", dof, 64 + 32 * i) for i in range(count)]
    strings = sections[0][4]

    def text(offset: int) -> str:
        return dof[strings + offset : dof.index(b"\0", strings + offset)].decode()

    kinds = {struct.unpack_from("<I", dof, s[4] + 24 * i + 4)[0] for s in sections if s[0] == 10
             for i in range(s[5] // 24)}  # fmt: skip
    for type_, _, _, _, offset, _ in sections:
        if type_ != 15:
            continue
        _, probes, _, offsets, name = struct.unpack_from("<5I", dof, offset)
        for place in range(sections[probes][4], sections[probes][4] + sections[probes][5], 48):
            field, function, probe = struct.unpack_from("<QII", dof, place)
            first, sites = struct.unpack_from("<I", dof, place + 28)[0], struct.unpack_from("<H", dof, place + 34)[0]
            if kinds == {2}:
                field += address + place
            for i in range(sites):
                distance = struct.unpack_from("<I", dof, sections[offsets][4] + 4 * (first + i))[0]
                where = (field + distance) & 0xFFFFFFFFFFFFFFFF
                yield Record(text(name), text(probe).replace("-", "__"), where, function=text(function))


READERS: dict[str, Callable[[Binary], list[Record]]] = {
    "stapsdt": read_stapsdt, "dof": read_dof, "usdt": read_usdt,
}  # fmt: skip


# --- a finished file ------------------------------------------------------------------------------------------


class Site(NamedTuple):
    """A place in a program: offset `offset` of function `function` is a site of `probe`."""

    function: str
    offset: int
    probe: str


class Binary:
    """A linked file, read with pyelftools and capstone."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.elf: Any = ELFFile(io.BytesIO(path.read_bytes()))

    def section(self, name: str) -> Any:
        found = self.elf.get_section_by_name(name)
        assert found is not None, f"{self.path} has no {name}"
        return found

    def loaded(self, section: Any) -> bytes:
        """Return a section's bytes after the loader's relocations of the R_X86_64_RELATIVE kind."""
        data = bytearray(section.data())
        for table in self.elf.iter_sections():
            if isinstance(table, RelocationSection) and table["sh_flags"] & 2:
                for relocation in table.iter_relocations():
                    place = relocation["r_offset"] - section["sh_addr"]
                    if relocation["r_info_type"] == 8 and 0 <= place <= len(data) - 8:
                        struct.pack_into("<Q", data, place, relocation["r_addend"])
        return bytes(data)

    @cached_property
    def symbols(self) -> list[Any]:
        table = self.elf.get_section_by_name(".symtab")
        return list(table.iter_symbols()) if table else []

    @cached_property
    def functions(self) -> dict[int, list[str]]:
        """Address -> names of the functions there; assembler's functions have neither type nor size, only a name."""
        found: dict[int, list[str]] = {}
        for symbol in self.symbols:
            kind = symbol["st_info"]["type"]
            is_function = kind == "STT_FUNC" or (kind == "STT_NOTYPE" and symbol.name.startswith("untyped_"))
            if is_function and symbol["st_shndx"] != "SHN_UNDEF":
                found.setdefault(symbol["st_value"], []).append(symbol.name)
        return found

    @cached_property
    def function_names(self) -> set[str]:
        return {name for names in self.functions.values() for name in names}

    @cached_property
    def _starts(self) -> list[int]:
        return sorted(self.functions)

    def owner(self, address: int) -> int:
        """Return the start of the function that holds `address`."""
        index = bisect_right(self._starts, address)
        assert index, f"{address:#x} of {self.path} is in no function"
        return self._starts[index - 1]

    @cached_property
    def _code(self) -> list[tuple[int, bytes]]:
        return [(s["sh_addr"], s.data()) for s in self.elf.iter_sections() if s["sh_flags"] & 4 and s["sh_size"]]

    def bytes_from(self, address: int) -> bytes:
        for start, data in self._code:
            if start <= address < start + len(data):
                return data[address - start :]
        raise AssertionError(f"{address:#x} of {self.path} is not in an executable section")

    def instruction(self, address: int) -> str:
        """Return the mnemonic at `address`, after disassembling its function from the start up to there."""
        start = self.owner(address)
        for at, mnemonic, _ in self.disassemble(start):
            if at == address:
                return mnemonic
            assert at < address, f"{address:#x} of {self.path} is in the middle of an instruction"
        raise AssertionError(f"{address:#x} of {self.path} can't be disassembled")

    def sites(self, address: int, probe: str) -> set[Site]:
        start = self.owner(address)
        return {Site(name, address - start, probe) for name in self.functions[start]}

    def calls(self) -> Iterator[tuple[int, str]]:
        """Yield the site and the probe of every direct call of a stub, also of one that can't be reached.

        The site is where the call begins; for a conditional jump it is behind the two-byte one that takes its place.
        """
        stubs = {s["st_value"]: s.name for s in self.symbols if s["st_value"] and re.fullmatch(STUB + r"\w+", s.name)}
        for function in sorted(set(self._callers(stubs))):
            for address, mnemonic, operand in self.disassemble(function):
                if mnemonic.split()[-1][0] in "jc" and operand.startswith("0x") and int(operand, 16) in stubs:
                    conditional = mnemonic.split()[-1] not in ("call", "jmp")
                    yield address + 2 * conditional, plain_name(stubs[int(operand, 16)]).partition("___")[2]

    def _callers(self, stubs: dict[int, str]) -> Iterator[int]:
        """Yield functions with bytes that look like a branch to a stub: disassembling all functions would be slow."""
        for start, data in self._code:
            for opcode in re.finditer(rb"\xe8|\xe9|\x0f[\x80-\x8f]", data):
                end = opcode.end() + 4
                if start + end + int.from_bytes(data[end - 4 : end], "little", signed=True) in stubs:
                    yield self.owner(start + opcode.start())

    def disassemble(self, function: int) -> Iterator[tuple[int, str, str]]:
        """Yield address, mnemonic and operands of each instruction from `function` to where the next one starts."""
        following = bisect_right(self._starts, function)
        size = self._starts[following] - function if following < len(self._starts) else None
        for address, _, mnemonic, operands in _disassembler().disasm_lite(self.bytes_from(function)[:size], function):
            yield address, mnemonic, operands

    @cached_property
    def dynamic_relocations(self) -> Counter[tuple[int, str]]:
        """How often each kind of dynamic relocation occurs, by type and symbol."""
        found: Counter[tuple[int, str]] = Counter()
        for section in self.elf.iter_sections():
            if isinstance(section, RelocationSection) and section["sh_flags"] & 2:
                symbols = self.elf.get_section(section["sh_link"])
                for relocation in section.iter_relocations():
                    index = relocation["r_info_sym"]
                    name = symbols.get_symbol(index).name if isinstance(symbols, SymbolTableSection) else ""
                    found[relocation["r_info_type"], name] += 1
            elif isinstance(section, RelrRelocationSection):
                found[-1, ""] += section.num_relocations()
        return found

    @property
    def dynamic_symbols(self) -> set[str]:
        table = self.elf.get_section_by_name(".dynsym")
        return {symbol.name for symbol in table.iter_symbols()} if table else set()

    @property
    def section_flags(self) -> dict[str, int]:
        """Name -> all flags of the sections so called, but for those that say nothing about memory."""
        found: dict[str, int] = {}
        for section in self.elf.iter_sections():
            found[section.name] = found.get(section.name, 0) | section["sh_flags"] & 7
        return found

    @property
    def segments(self) -> list[int]:
        """The rights of each loaded segment."""
        return [segment["p_flags"] for segment in self.elf.iter_segments("PT_LOAD")]

    def place_in_file(self, address: int) -> int:
        for segment in self.elf.iter_segments("PT_LOAD"):
            if segment["p_vaddr"] <= address < segment["p_vaddr"] + segment["p_filesz"]:
                return int(address - segment["p_vaddr"] + segment["p_offset"])
        raise AssertionError(f"{address:#x} of {self.path} isn't in the file")

    def records(self, format_: str = "stapsdt", *providers: str) -> list[Record]:
        """Return the records of the given providers: a static program also holds those of the C and C++ libraries."""
        return [record for record in READERS[format_](self) if record.provider in (providers or OURS)]


def _disassembler() -> Any:
    return capstone.Cs(capstone.CS_ARCH_X86, capstone.CS_MODE_64)


# --- making them ----------------------------------------------------------------------------------------------


class Bench:
    """A folder to compile, instrument and link in.

    Probes are calls here: programs are linked without probes, too, with stubs that are really called, and compared.
    What headers do by default, a branch that must become a NOP, has `test_branches`.
    """

    calls = ("-DUSDT_PROBES_BY_CALL",)

    def __init__(self, folder: Path, run: Any) -> None:
        self.folder, self._run = folder, run
        self._count = 0

    def run(self, *command: Any, **more: Any) -> Any:
        return self._run(*command, cwd=self.folder, **more)

    def usdtbuild(self, *arguments: Any, **more: Any) -> Any:
        return self.run(sys.executable, "-m", "usdtbuild", *arguments, **more)

    def write(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.write_text(text)
        return path

    def header(self, provider: str = PROVIDER, name: str = "app") -> None:
        self.write(f"{name}.d", provider)
        self.usdtbuild("header", "--formats=dof", f"{name}.d", "-o", f"{name}.h")

    def fresh(self, name: str) -> Path:
        """Return a path that nothing uses yet."""
        self._count += 1
        return self.folder / f"{self._count}-{name}"

    def compile(self, compiler: str, source: str | Path, *flags: str, suffix: str = ".c", **more: Any) -> Path:
        """Compile a file, or a text, with the header `app.h` included; return the object."""
        if isinstance(source, str):
            text, source = source, self.fresh("source" + suffix)
            source.write_text(text if suffix == ".s" else '#include "app.h"\n' + text)
        target = self.fresh(source.stem + ".o")
        self.run(compiler, *self.calls, *flags, f"-I{self.folder}", "-c", source, "-o", target, **more)
        return target

    def instrument(self, source: Path, options: Options | None = None) -> Path:
        """Instrument in this process; a test of the command line itself uses `usdtbuild`."""
        target, _ = self.instrument_report(source, options)
        return target

    def instrument_report(self, source: Path, options: Options | None = None) -> tuple[Path, Instrumented]:
        target = self.fresh("instrumented.o")
        report = instrument_file(str(source), str(target), options or Options())
        assert report.changed, report.reason
        return target, report

    def stubs(self, objects: Iterable[Path]) -> Path:
        """Return an object that defines every stub and semaphore that the objects want: for the link without probes."""
        names = set()
        for path in objects:
            names |= undefined(path)
        lines = ['.section .note.GNU-stack,"",@progbits']
        for name in sorted(n for n in names if n.startswith(("__dtrace_", "__dtraceenabled_"))):
            lines += [f'.section .text.{name},"ax",@progbits', f".globl {name}", f".hidden {name}"]
            lines += [f".type {name},@function", f"{name}:", "xor %eax,%eax", "ret", f".size {name}, .-{name}"]
        for name in sorted(n for n in names if n.endswith("_semaphore")):
            lines += ['.section .probes,"aw",@progbits', f".globl {name}", f".hidden {name}"]
            lines += [f".type {name},@object", f"{name}: .short 0"]
        return self.compile("gcc", "\n".join(lines) + "\n", suffix=".s")

    def link(self, *words: Any, driver: str = "gcc", name: str = "program", **more: Any) -> Path:
        target = self.fresh(name)
        self.run(driver, *words, "-o", target, **more)
        return target

    def output(self, program: Path, *arguments: str) -> str:
        done = subprocess.run([str(program), *arguments], capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, f"{program} ended with {done.returncode}: {done.stderr}"
        return done.stdout


def undefined(path: Path) -> set[str]:
    """Return the names of an object's undefined symbols."""
    table: Any = ELFFile(io.BytesIO(path.read_bytes())).get_section_by_name(".symtab")
    return {s.name for s in table.iter_symbols() if s["st_shndx"] == "SHN_UNDEF"}


# --- the comparison -------------------------------------------------------------------------------------------


def check_records(
    program: Binary, reference: Binary, format_: str = "stapsdt", folded: bool = False, kept: bool = False
) -> list[Record]:
    """Check that the program's records are exactly the calls of the reference; return the records in stubs.

    With `folded` (--icf) functions share addresses, and records are compared by name and offset only. With `kept`
    there are calls that are still calls in the program, of stubs.
    """
    in_stubs = []
    actual: set[Site] = set()
    places: Counter[tuple[int, str]] = Counter()
    for record in program.records(format_):
        mnemonic = program.instruction(record.address)
        assert mnemonic in ("nop", "ret"), f"{record} is at {mnemonic}"
        names = {plain_name(name) for name in program.functions[program.owner(record.address)]}
        # A stripped symbol, or a weak one whose code lost against another object's, names no function of the program.
        if record.function in program.function_names and record.function != "overridden":
            assert record.function in names, f"{record} is in {names}"
        if any(name.startswith(STUB) for name in names):
            assert f"{STUB}{record.provider}___{record.probe}" in names
            in_stubs.append(record)
            continue
        places[record.address, record.probe] += 1
        actual |= program.sites(record.address, record.probe)
    expected: set[Site] = set()
    calls = list(reference.calls())
    for address, probe in calls:
        expected |= reference.sites(address, probe)
    left = list(program.calls())
    assert bool(left) == kept
    calls = calls[len(left) :]
    for address, probe in left:
        expected -= program.sites(address, probe)
    assert actual == expected
    assert max(places.values(), default=1) == 1, "two records say the same"
    if not folded:
        assert len(places) == len(calls)
    return in_stubs


def check_agreement(program: Binary) -> None:
    """Check that all formats have the same sites, and the same arguments as far as they say where these are."""
    found = {format_: sorted(record[:3] for record in program.records(format_)) for format_ in FORMATS}
    assert found["stapsdt"] == found["dof"] == found["usdt"]
    arguments = {record[:3]: record.arguments.split() for record in program.records("usdt")}
    for record in program.records("stapsdt"):
        assert record.arguments.split() == arguments[record[:3]][:12]


def check_nothing_added(program: Binary, reference: Binary) -> None:
    """Check that instrumenting added no dynamic relocation, no dynamic symbol, and no section but its own;
    of these, one byte is executable, in the segment of the code, which is what perf needs.
    """
    assert program.dynamic_relocations == reference.dynamic_relocations
    assert program.dynamic_symbols == reference.dynamic_symbols
    flags = program.section_flags
    for name, allowed in OUR_SECTIONS.items():
        assert flags.get(name, allowed) == allowed, f"{name} has flags {flags[name]}"
    others = {name: each for name, each in flags.items() if name not in OUR_SECTIONS}
    assert others == {name: each for name, each in reference.section_flags.items() if name not in OUR_SECTIONS}
    assert not any(each & 5 == 5 for each in flags.values()), "a section is both writable and executable"
    assert program.segments == reference.segments
    # perf takes the place of every site in the file to be as far from its address as that of this section is.
    base = program.section(".stapsdt.base")
    for record in program.records():
        assert program.place_in_file(record.address) == record.address + base["sh_offset"] - base["sh_addr"]


# --- fixtures -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def session_bench(tmp_path_factory: pytest.TempPathFactory, run: Any) -> Bench:
    """A folder for the whole run, with the headers of the `app` provider and of the samples."""
    bench = Bench(tmp_path_factory.mktemp("bench"), run)
    bench.header()
    bench.header((SAMPLES / "sample.d").read_text(), "sample")
    return bench


@pytest.fixture
def bench(session_bench: Bench, tmp_path: Path, run: Any) -> Bench:
    """A folder for one test, with the header `app.h`."""
    made = Bench(tmp_path, run)
    for name in ("app.d", "app.h"):
        made.write(name, (session_bench.folder / name).read_text())
    return made


class Check(NamedTuple):
    """What tests need of this file, which they can't import."""

    binary: type[Binary]
    record: type[Record]
    records: Callable[..., list[Record]]
    nothing_added: Callable[..., None]
    agreement: Callable[..., None]
    formats: tuple[str, ...]
    samples: Path


@pytest.fixture(scope="session")
def check() -> Check:
    """The comparison of an instrumented program with the oracle."""
    return Check(Binary, Record, check_records, check_nothing_added, check_agreement, FORMATS, SAMPLES)
