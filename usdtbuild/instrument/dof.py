"""Which DOF describes the sites of one text section: the step between sites and `formats.dof`.

Knows which function each site is in, which system wants which flavour, and nothing of how sections are written.
"""

from __future__ import annotations

from binascii import crc32
from bisect import bisect_right
from collections.abc import Sequence

from ..elf import layout as elf
from ..elf.layout import SectionIndex, SymbolIndex
from ..elf.object import ElfObject
from ..errors import InputError, UsdtError
from ..formats.dof import layout
from ..formats.dof.encode import encode
from ..formats.dof.types import Dof, DofError, DofProbe, DofProvider, Encoded
from ..machines import facts_of
from ..model import Probe, Provider, unfit_for_dtrace
from ..record import NamedTuple
from .sites import StubSymbol

# How each system's loader finishes an address: FreeBSD adds the field's own place to a distance, which costs no
# dynamic relocation; the others add the module's load address.
RELOCATIONS = {"freebsd": layout.DOFREL, "illumos": layout.SETX, "oracle": layout.SETX}

_RANK = {elf.STB_GLOBAL: 0, elf.STB_WEAK: 1, elf.STB_LOCAL: 2}
_FUNCTION_TYPES = {elf.STT_FUNC, elf.STT_GNU_IFUNC}


class DofFunction(NamedTuple):
    """A function of one text section: offset, size in bytes (0 if unknown), and name."""

    start: int
    size: int
    name: str


class FunctionTable:
    """The functions of some text sections, found once for an object."""

    def __init__(self, source: ElfObject, sections: set[SectionIndex]) -> None:
        """Collect the functions in `sections`. At one address a global symbol counts more than a weak or local one."""
        best: dict[
            tuple[SectionIndex, int], tuple[int, int, SymbolIndex]
        ] = {}  # (section, start) -> (rank, size, symbol)
        described = _descriptors(source)
        known = facts_of(source.machine)
        marks_thumb = known is not None and known.thumb is not None
        for index in source.symbol_indexes(1):
            symbol = source.symbol(index)
            if symbol.type not in _FUNCTION_TYPES:
                continue
            start = symbol.value & ~1 if marks_thumb else symbol.value
            key = described.get((symbol.section, start), (symbol.section, start))
            rank = (_RANK.get(symbol.binding, 3), symbol.size, index)
            if key[0] in sections and (key not in best or rank[0] < best[key][0]):
                best[key] = rank
        self._functions: dict[SectionIndex, list[DofFunction]] = {section: [] for section in sections}
        for (section, start), (_, size, index) in sorted(best.items()):
            self._functions[section].append(DofFunction(start, size, source.symbol_name(index)))
        self._source = source

    def at(self, section: SectionIndex, offset: int) -> DofFunction:
        """Return the function that holds `offset`; one that begins the section and has its name, if there is none."""
        found = self._functions.get(section, [])
        place = bisect_right(found, (offset, 1 << 64, ""))
        while place:
            function = found[place - 1]
            if not function.size or offset < function.start + function.size:
                return function
            place -= 1
        return DofFunction(0, 0, self._source.section_name(section).lstrip(".") or "text")


def _descriptors(source: ElfObject) -> dict[tuple[SectionIndex, int], tuple[SectionIndex, int]]:
    """Return, for ppc64 ELFv1, where the code of each function descriptor is, both as (section, offset)."""
    found: dict[tuple[SectionIndex, int], tuple[SectionIndex, int]] = {}
    known = facts_of(source.machine)
    type_ = known.descriptors if known else 0
    tables = source.sections_named(elf.DESCRIPTORS) if type_ else []
    for index in source.relocation_sections() if tables else ():
        section = SectionIndex(source.sections[index].info)
        if section in tables:
            for entry in range(source.sections[index].size // source.layout.rela.size):
                reference = source.relocation(index, entry)
                if reference.type == type_:
                    code = source.symbol(reference.symbol)
                    found[section, reference.offset] = code.section, code.value + (reference.addend or 0)
    return found


class Described(NamedTuple):
    """A DOF, and which function each of its probes is in, by provider and probe number."""

    encoded: Encoded
    functions: tuple[tuple[DofFunction, ...], ...]
    places: tuple[tuple[int, int], ...]  # of each site given: its provider's and probe's number


def describe(
    path: str,
    members: Sequence[tuple[StubSymbol, int, DofFunction]],
    providers: dict[str, Provider],
    system: str,
    address_size: int,
    little: bool,
) -> Described:
    """Return the DOF for sites given as (stub, offset in the section, function).

    `path` is what errors call the object. Raises UsdtError where a limit of the format is broken.
    """
    order: dict[str, dict[tuple[str, DofFunction], tuple[Probe, set[int], set[int]]]] = {}
    for stub, offset, function in members:
        probes = order.setdefault(stub.provider, {})
        _, sites, enabled = probes.setdefault((stub.probe.written, function), (stub.probe, set(), set()))
        (enabled if stub.enabled else sites).add(offset - function.start)
    made = []
    for name, probes in order.items():
        check_name(path, name)
        longest = layout.MAX_FUNCTION if system == "freebsd" else layout.MAX_FUNCTION_ELSEWHERE
        entries = [_entry(probe, function, s, e, longest) for (_, function), (probe, s, e) in probes.items()]
        made.append(DofProvider(name, providers[name].attributes, tuple(entries)))
    has_enabled = any(probe.enabled_offsets for provider in made for probe in provider.probes)
    # Oracle's is-enabled sites are those of version 3; version 1 would do without any, but gdb reads version 2 only.
    version = 3 if has_enabled and system == "oracle" else 2
    dof = Dof(version, address_size, little, RELOCATIONS[system], tuple(made))
    try:
        encoded = encode(dof)
    except DofError as error:
        raise UsdtError(f"{path}: {error}") from None
    numbers = {(name, key): (i, j) for i, (name, probes) in enumerate(order.items()) for j, key in enumerate(probes)}
    return Described(
        encoded,
        tuple(tuple(function for _, function in probes) for probes in order.values()),
        tuple(numbers[stub.provider, (stub.probe.written, function)] for stub, _, function in members),
    )


def check_name(path: str, provider: str) -> None:
    """Raise InputError for a provider's name that DTrace can't show. Readers of SDT notes can."""
    if reason := unfit_for_dtrace(provider):
        raise InputError(path, reason)


def _entry(probe: Probe, function: DofFunction, sites: set[int], enabled: set[int], longest: int) -> DofProbe:
    native = native_types(probe)
    translated, mapping = translated_types(probe)
    name = shortened(function.name, longest)
    return DofProbe(name, probe.name, native, translated, mapping, tuple(sorted(sites)), tuple(sorted(enabled)))


def native_types(probe: Probe) -> tuple[str, ...]:
    """Return the C types of a probe's arguments as the program passes them."""
    return tuple(argument.type.spelling for argument in probe.arguments)


def translated_types(probe: Probe) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """Return the types that consumers see, and the native argument that each comes from: the same, if none are said."""
    if probe.translated is None:
        return native_types(probe), tuple(range(len(probe.arguments)))
    return tuple(item.type for item in probe.translated), tuple(item.native for item in probe.translated)


def shortened(name: str, longest: int) -> str:
    """Return a function's name of at most `longest` bytes: systems drop the probes of others, or the whole DOF.

    C++ functions have such names. Nobody looks a function up by the name in a DOF, so its beginning and a checksum do.
    """
    encoded = layout.encode_text(name)
    if len(encoded) <= longest:
        return name
    return encoded[: longest - 9].decode("utf-8", "ignore") + f"~{crc32(encoded):08x}"
