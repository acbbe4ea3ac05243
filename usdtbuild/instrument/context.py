"""What every part of one instrumented object shares: the object, its editor, and the symbols that records count from.

A `Context` is made for one object and used once. It knows places in code and the names that may stand for them; which
records are written is known to `records`, and what is in one to the writers.
"""

from __future__ import annotations

from ..elf import layout as elf
from ..elf.edit import ABSOLUTE, ObjectEditor
from ..elf.layout import SectionIndex, SymbolIndex
from ..elf.object import ElfObject, find_symbols
from ..errors import UsdtError
from ..formats import stapsdt
from ..provider import describe
from ..record import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Container

    from ..machines.calls import ProbeCalls
    from ..model import Probe
    from .dof import DofFunction, FunctionTable
    from .sites import FoundProbes, Known, NoteForm, StubSymbol
    from .target import Options

_DIGEST = "usdtbuild."  # how names begin that come from the object's content


class SiteReport(NamedTuple):
    """One site as it was written: its probe, where it is in the object, and whether it stands in a stub."""

    provider: str
    probe: str
    enabled: bool
    section: str
    offset: int
    in_stub: bool


class RecordedPlace(NamedTuple):
    """A site to record, by its offset in its section. `asks`: where an is-enabled stub of Oracle's kind asks, or 0."""

    stub: StubSymbol
    offset: int
    tail: bool
    asks: int = 0


class Context:
    """One object on its way: what was found in it, and what has been added to it so far."""

    def __init__(
        self, source: ElfObject, machine: ProbeCalls, options: Options, found: FoundProbes, known: Known
    ) -> None:
        self.source, self.machine, self.options, self.found = source, machine, options, found
        self.known, self.providers = known, known.providers
        self.editor = ObjectEditor(source)
        self.groups = source.groups()
        self.address_size = source.layout.address_size
        self.by_semaphore = "stapsdt" in options.formats
        # Oracle's DTrace writes its answer to where an argument points; others change the value that is returned.
        self.dof_system = "oracle" if options.target_os == "linux" else options.target_os
        # What `stapsdt` has made for other objects of this machine: its notes, and what takes them back.
        types = (machine.none, machine.absolute, machine.absolute32, machine.chains)
        kind = (source.machine, machine.operands, types, self.address_size, source.layout.little, self.editor.uses_rela)
        self.notes: dict[tuple[str, bool], NoteForm] = known.notes.setdefault(kind, {})
        self.asks = "usdt" in options.formats or ("dof" in options.formats and self.dof_system == "oracle")
        self.reports: list[tuple[str, str, bool, str, int, bool]] = []  # the fields of `SiteReport`
        self.semaphores: dict[str, int] = dict(found.semaphores)  # name -> symbol or handle
        self.alias_counts: dict[str, int] = {}
        strings = source.sections[source.sections[source.symtab].link]
        end = strings.offset + strings.size
        # Whether an instrumented object was joined to a plain one.
        self.has_aliases = source.data.find(b".usdt0\0", strings.offset, end) >= 0
        self.unique_names: dict[int, str] = {}  # group (0 for none) -> prefix of its aliases' names
        self.aliases: dict[SectionIndex, int] = {}  # text section -> the symbol at its start
        self.kept: set[SectionIndex] | None = None  # sections that linkers keep whatever happens
        self._functions: FunctionTable | None = None
        self.declarations: dict[str, int] = {}  # provider -> the symbol of its note in `.note.usdt`
        self.base_symbol = 0
        self.sites_anchor = 0  # the first chunk of the loaded table
        self.anchor = 0
        self.descriptors = elf.SectionIndex(0)  # the section of function descriptors
        self.zero = 0

    def place(self, section: SectionIndex, offset: int, group: int) -> tuple[int, int]:
        """Return a symbol and an addend that together mean a place in code.

        Where linkers delete code, that is a symbol of its own and not a distance (RISC-V, LoongArch).
        """
        if self.machine.relaxes:
            return self.editor.add_label(section, offset), 0
        return self.alias(section, group), offset

    def function(self, section: SectionIndex, stub: StubSymbol, offset: int) -> DofFunction:
        """Return the function that a site is in; a stub that this object defines is one itself."""
        from .dof import DofFunction, FunctionTable

        if section >= self.source.section_count:
            return DofFunction(0, 0, describe.plain_name(stub.name))
        if self._functions is None:
            self._functions = FunctionTable(self.source, {site.section for site in self.found.sites})
        return self._functions.at(section, offset)

    def alias(self, section: SectionIndex, group: int) -> int:
        """Return a symbol at the start of a text section, for records to count from.

        The section's own symbol would do, but for gold, which refuses a link in which a record points to a local
        symbol of a function that --gc-sections dropped, and takes a global one. A global alias needs a name that no
        other object has: in a COMDAT group the group's signature gives one, elsewhere any symbol that only this
        object may define, or, in an object that has none, a digest of the whole. Without type and size, and at the
        function's own address, it is what debuggers and symbolizers never prefer to the function (a label at the site
        they would).

        An object that needs the digest may be linked twice, as every object with nothing but local functions may. Its
        code that no linker drops is named by local labels, for each copy its own. What is left can only be reached
        through weak definitions and groups, where the first copy wins: in the second it never runs, so that a weak
        alias may count it from the first.

        llvm-objcopy turns GCC's groups of destructors into ones that aren't COMDAT, so that every object's copy stays.
        The checksum of the code keeps a copy's records from counting from the start of another.
        """
        if section not in self.aliases:
            code = self.source.content(section) if section < self.source.section_count else b""
            self.aliases[section] = self.new_alias(section, group, code, section)
        return self.aliases[section]

    def new_alias(self, section: SectionIndex, group: int, content: bytes | memoryview, code: SectionIndex) -> int:
        """Return a new symbol at the start of `section`, which linkers keep or drop together with that of `code`."""
        prefix = self._unique_name(group)
        count = self.alias_counts.get(prefix, 0)
        while self.has_aliases and self.symbol(f"{prefix}.usdt{count}"):
            count += 1
        self.alias_counts[prefix] = count + 1
        if not group:
            name = f"{prefix}.usdt{count}"
            if prefix.startswith(_DIGEST) and code in self._always_kept():
                return self.editor.add_label(section, 0, name)
            return self.editor.add_global(
                name, elf.STB_WEAK if prefix.startswith(_DIGEST) else elf.STB_GLOBAL, section, 0
            )
        from binascii import crc32  # a library of its own, which only code in groups needs

        return self.editor.add_global(f"{prefix}.usdt{count}.{crc32(content):08x}", elf.STB_WEAK, section, 0)

    def _unique_name(self, group: int) -> str:
        if group not in self.unique_names:
            section = self.source.sections[group]
            symbol = SymbolIndex(section.info) if group else first_strong_definition(self.source, self.groups)
            self.unique_names[group] = (self.source.symbol_name(symbol) if symbol else "") or self._digest()
        return self.unique_names[group]

    def _digest(self) -> str:
        from hashlib import blake2b

        return f"{_DIGEST}{blake2b(self.source.data, digest_size=8).hexdigest()}"

    def _always_kept(self) -> set[SectionIndex]:
        if self.kept is None:
            self.kept = always_kept(self.source, self.groups)
        return self.kept

    def symbol(self, name: str) -> SymbolIndex:
        """Return the index of an existing symbol called `name`, or 0."""
        for index, found in find_symbols(self.source, (name.encode() + b"\0",)).items():
            if found == name and self.source.symbol(index).binding != elf.STB_LOCAL:
                return index
        return SymbolIndex(0)

    def zero_symbol(self) -> int:
        """Return a symbol whose value is 0, for relocations that are to write a plain number."""
        if self.machine.chains and not self.zero:
            self.zero = self.editor.add_label(ABSOLUTE, 0)
        return self.zero


def first_strong_definition(source: ElfObject, grouped: Container[SectionIndex]) -> SymbolIndex:
    """Return the first symbol that no other object of a link may define too, or 0 if there is none.

    That is a global, not weak definition in a section that is in none of the `grouped` sections.
    """
    for index in source.symbol_indexes(source.sections[source.symtab].info):
        _, info, _, section, _, _, _ = source.symbol_fields(index)
        if info >> 4 == elf.STB_GLOBAL and 0 < section < source.section_count and section not in grouped:
            return index
    return SymbolIndex(0)


def always_kept(source: ElfObject, grouped: Container[SectionIndex]) -> set[SectionIndex]:
    """Return the sections that run at start and end, and all that these refer to by local symbols, and so on.

    Linkers keep these, `--gc-sections` or not. What is in one of the `grouped` sections may be another object's.
    """
    applied: dict[int, list[SectionIndex]] = {}
    for index in source.relocation_sections():
        applied.setdefault(source.sections[index].info, []).append(index)
    pending = [i for i, s in source.numbered() if s.type in elf.RUN_BY_LOADER or _is_run_by_name(source, i)]
    kept: set[SectionIndex] = set()
    while pending:
        section = pending.pop()
        if section in kept or section in grouped:
            continue
        kept.add(section)
        for index in applied.get(section, ()):
            for number in set(source.relocation_symbols(index)):
                symbol = source.symbol(number)
                if symbol.binding == elf.STB_LOCAL and 0 < symbol.section < source.section_count:
                    pending.append(symbol.section)
    return kept


def _is_run_by_name(source: ElfObject, section: SectionIndex) -> bool:
    name = source.section_name(section)
    return name in {".init", ".fini"} or name.startswith((".ctors", ".dtors", ".init_array", ".fini_array"))


def operand_text(path: str, machine: ProbeCalls, address_size: int, provider: str, probe: Probe, *, tail: bool) -> str:
    """Return how SDT notes say where a probe's arguments are, the first twelve. Raises UsdtError where they can't."""
    return " ".join(operands_of(path, machine, address_size, provider, probe, tail=tail, most=stapsdt.MAX_ARGUMENTS))


def operands_of(
    path: str,
    machine: ProbeCalls,
    address_size: int,
    provider: str,
    probe: Probe,
    *,
    tail: bool,
    most: int | None = None,
) -> tuple[str, ...]:
    """Return where a probe's arguments are, one operand each, of at most `most`. Raises UsdtError."""
    arguments = probe.arguments[:most]
    types = tuple((a.type.size(address_size), a.type.signed and a.type.kind != "float") for a in arguments)
    operands = machine.operands(types, tail)
    for argument, operand in zip(arguments, operands):
        if operand is None:
            raise UsdtError(
                f"{path}: argument {argument.name or argument.type.spelling} of probe {provider}:{probe.written} can't "
                f"be described to tracers on {machine.name}; pass a pointer to it, or a type no wider than a register"
            )
    return tuple(operand for operand in operands if operand)
