"""Finding probe sites: which references in an object are probe calls, and what each of them becomes.

Reads an object and the machine's tables; writes nothing. `find` is the step between the ELF reader and
`instrument`, which does with the sites what the record formats ask for.
"""

from __future__ import annotations

from ..elf import layout as elf
from ..elf.layout import SectionIndex, SymbolIndex
from ..elf.object import ElfObject, Reference, find_symbols
from ..errors import UsdtError
from ..options import NOP5
from ..provider import describe
from ..record import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Container

    from ..elf.relocations import RelocationForm
    from ..machines.calls import ProbeCalls, Replacement
    from ..model import Probe, Provider

PROBE_PREFIX = "__dtrace_"
ENABLED_PREFIX = "__dtraceenabled_"
SEMAPHORE_SUFFIX = "_semaphore"


class UndescribedProbeError(UsdtError):
    """A stub's provider or probe is not described in the object, so its arguments are unknown."""


class MangledStubError(UsdtError):
    """A stub was declared in C++ without `extern "C"`."""


class StubSymbol(NamedTuple):
    """The name of undefined symbols that stand for a probe (or, with `enabled`, for its is-enabled test)."""

    name: str
    provider: str
    probe: Probe
    enabled: bool


class PatchedReference(NamedTuple):
    """A reference that becomes a probe site: where it is, what it calls, and what replaces it."""

    stub: StubSymbol
    section: SectionIndex
    reference: Reference
    replacement: Replacement


class FoundProbes(NamedTuple):
    """Everything of an object that concerns probes.

    `sites` are direct branches, `indirect` the stubs with a reference that no branch is: these must be defined.
    `stubs` are all undefined stubs, `leftover` those of them that a linker would still report. `semaphores` maps the
    name of each semaphore that is in the symbol table to its index, `undefined_semaphores` are those that
    no object has defined yet.
    """

    stubs: dict[SymbolIndex, StubSymbol]
    sites: list[PatchedReference]
    indirect: set[SymbolIndex]
    leftover: set[SymbolIndex]
    semaphores: dict[str, SymbolIndex]
    undefined_semaphores: list[str]

    def __bool__(self) -> bool:
        return bool(self.sites or self.indirect or self.leftover or self.undefined_semaphores)


class NoteForm(NamedTuple):
    """What the notes of a probe have in common in all objects of a machine.

    The `note` has no addresses yet; its relocations are against the code, a symbol whose value is 0 (where `voids` says
    that the note takes itself back), the base and the semaphore, whose name is here.
    """

    note: bytes
    relocations: RelocationForm
    voids: bool
    semaphore: str


class Known:
    """What the names of stubs and semaphores mean, by the `providers` that are known of an object.

    `branches` are the providers whose header wrote branches in inline assembly. Objects that know the same providers
    share one of these, and what was found out about a name for one of them holds for all.
    """

    def __init__(self, providers: dict[str, Provider], branches: frozenset[str]) -> None:
        self.providers, self.branches = providers, branches
        self.semaphores = {semaphore_name(p.name, probe).encode() for p in providers.values() for probe in p.probes}
        self.notes: dict[object, dict[tuple[str, bool], NoteForm]] = {}  # what `stapsdt` made, by kind of machine
        self.stubs: dict[str, StubSymbol] = {}  # what was found out about names so far
        self._fitting: dict[tuple[int, bool, int], dict[str, bool]] = {}  # by kind of machine

    def stub(self, source: ElfObject, name: str) -> StubSymbol:
        """Say which probe a stub's name means. Raises UndescribedProbeError."""
        if name not in self.stubs:
            self.stubs[name] = identify(source, name, self.providers)
        return self.stubs[name]

    def branched(
        self, source: ElfObject, machine: ProbeCalls, stubs: dict[SymbolIndex, StubSymbol]
    ) -> set[SymbolIndex]:
        """Return which stubs the code only branches to, in inline assembly that says nothing of a call: its header has.

        The compiler has no other references to them, and must not find any: they are never called.
        """
        if not self.branches:
            return set()
        kind = (machine.branched, machine.wide_registers, source.layout.address_size)
        fitting = self._fitting.setdefault(kind, {})
        found = set()
        for symbol, stub in stubs.items():
            name = stub[0]
            if name not in fitting:
                fitting[name] = _is_branch(stub, self.branches, *kind)
            if fitting[name]:
                found.add(symbol)
        return found


def semaphore_name(provider: str, probe: Probe) -> str:
    """Return the name of a probe's semaphore, as SystemTap's `dtrace -h` spells it."""
    return f"{provider}_{probe.written}{SEMAPHORE_SUFFIX}"


def described(source: ElfObject) -> tuple[bytes, ...]:
    """Return the bytes of the object's provider description sections."""
    return tuple([bytes(source.content(i)) for i in source.sections_named(describe.SECTION)])


def description(source: ElfObject) -> str:
    """Return the text of the object's provider description sections."""
    return "".join(str(piece, "utf-8", "replace") for piece in described(source))


def find(
    source: ElfObject, machine: ProbeCalls, known: Known, nop: str, *, patch_enabled: bool, keep_calls: bool = False
) -> FoundProbes:
    """Find the stubs, sites and semaphores of an object.

    `patch_enabled` says whether an is-enabled call may become a NOP, which it
    may not where a semaphore decides; with `keep_calls` only tail calls become sites. Raises UndescribedProbeError,
    MangledStubError, ElfError.
    """
    semaphores, met = known.semaphores, known.stubs
    names = find_symbols(source, (b"__dtrace",), semaphores, SEMAPHORE_SUFFIX.encode())
    stubs: dict[SymbolIndex, StubSymbol] = {}
    leftover: set[SymbolIndex] = set()
    found_semaphores: dict[str, SymbolIndex] = {}
    undefined: list[str] = []
    for index, name in names.items():
        _, info, _, section, _, _, reserved = source.symbol_fields(index)
        binding, is_undefined = info >> 4, not section and not reserved
        if name not in met and name.endswith(SEMAPHORE_SUFFIX) and name.encode() in semaphores:
            if binding != elf.STB_LOCAL:
                found_semaphores[name] = index
                # A weak undefined one is a note's own reference, which this module wrote earlier.
                if is_undefined and binding != elf.STB_WEAK:
                    undefined.append(name)
        elif is_undefined and (name in met or name.startswith((PROBE_PREFIX, ENABLED_PREFIX))):
            stubs[index] = known.stub(source, name)
            if binding != elf.STB_WEAK:
                leftover.add(index)
    _refuse_mangled(source)
    places, indirect, conditional = _classify(source, machine, stubs, nop, patch_enabled)
    branches = known.branched(source, machine, stubs)
    if branches and machine.red_zone and nop == NOP5:
        _refuse_calls(source, {stubs[symbol].name for symbol in branches})
    if branches & conditional:
        raise UsdtError(
            f"{source.path}: a branch to {stubs[min(branches & conditional)].name} in Thumb code can't be replaced; "
            "compile the file with -DUSDT_PROBES_BY_CALL"
        )
    kept = [site for site in places if site[2][4] not in branches and _stays(source, machine, site, keep_calls)]
    if kept:
        indirect |= {site.reference.symbol for site in kept}
        places = [site for site in places if site not in kept]
    return FoundProbes(stubs, places, indirect, leftover, found_semaphores, undefined)


def _is_branch(stub: StubSymbol, providers: Container[str], most: int, wide_registers: bool, address_size: int) -> bool:
    """Whether the header branches to a stub: one of these providers', whose arguments fit the registers for it."""
    if stub.enabled or stub.provider not in providers or len(stub.probe.arguments) > most:
        return False
    return wide_registers or all(argument.type.size(address_size) <= 4 for argument in stub.probe.arguments)


def _refuse_calls(source: ElfObject, names: set[str]) -> None:
    """Raise UsdtError: the kernel would make calls of NOPs, in code that expects none."""
    raise UsdtError(
        f"{source.path}: --nop=nop5 makes a NOP that the kernel replaces by a call, and code around {min(names)} "
        "isn't compiled for one; compile it with -DUSDT_PROBES_BY_CALL (usdtbuild cc --nop=nop5 does so by itself)"
    )


def _stays(source: ElfObject, machine: ProbeCalls, site: PatchedReference, keep_calls: bool) -> bool:
    """Whether a site must stay a call to its stub, because the code behind it finds out whether it was one."""
    if site.replacement.tail:
        return False
    end = site.replacement.start + len(site.replacement.code)
    checks = machine.checks_return
    return keep_calls or (checks is not None and checks(source.content(site.section), end))


def identify(source: ElfObject, name: str, providers: dict[str, Provider]) -> StubSymbol:
    """Say which probe a stub's name means: `__dtrace_PROVIDER___PROBE`, and how headers end it (`describe.plain_name`).

    Raises UndescribedProbeError.
    """
    enabled = name.startswith(ENABLED_PREFIX)
    rest = describe.plain_name(name[len(ENABLED_PREFIX if enabled else PROBE_PREFIX) :])
    fitting = [p for p in providers.values() if rest.startswith(p.name + "___")]
    for provider in sorted(fitting, key=lambda p: -len(p.name)):
        stub = rest[len(provider.name) + 3 :]
        for probe in provider.probes:
            if stub == probe.written:
                return StubSymbol(name, provider.name, probe, enabled)
    provider_name, _, stub = rest.partition("___")
    if fitting:
        what = f"provider {provider_name} has no probe {stub}, which {name} calls for"
        cure = "the header is older or newer than the provider file; make it again and compile this file again"
    else:
        what = f"nothing in it describes provider {provider_name}, which {name} calls for"
        cure = "include a header made by `usdtbuild header`, or name the provider file with --provider"
    raise UndescribedProbeError(f"{source.path}: {what}; {cure}")


def _refuse_mangled(source: ElfObject) -> None:
    """Raise where a stub went through C++ name mangling: nothing would ever define or patch it."""
    if not source.symtab:
        return
    table = source.sections[source.sections[source.symtab].link]
    end = table.offset + table.size
    if source.data.find(b"\0_Z", table.offset, end) < 0:
        return
    position = source.data.find(b"__dtrace", table.offset, end)
    while position >= 0:
        start = source.data.rfind(b"\0", table.offset, position) + 1
        name = bytes(source.data[start : source.data.find(b"\0", position, end)])
        is_ours = name.startswith(b"_Z") and b"___" in name
        if is_ours and any(source.symbol(i).is_undefined for i in find_symbols(source, (name,))):
            raise MangledStubError(
                f'{source.path}: {name.decode("utf-8", "replace")} is a probe declared without extern "C"; '
                "include the header that `usdtbuild header` made instead of declaring the probe by hand"
            )
        position = source.data.find(b"__dtrace", position + 1, end)


def _classify(
    source: ElfObject, machine: ProbeCalls, stubs: dict[SymbolIndex, StubSymbol], nop: str, patch_enabled: bool
) -> tuple[list[PatchedReference], set[SymbolIndex], set[SymbolIndex]]:
    """Return the sites, the stubs with another reference, and of these the ones with a call that may be conditional."""
    sites: list[PatchedReference] = []
    indirect: set[SymbolIndex] = set()
    conditional: set[SymbolIndex] = set()
    if not stubs:
        return sites, indirect, conditional
    current, target, flags, size, code = -1, SectionIndex(0), 0, 0, memoryview(b"")
    none, replace, in_order, last = machine.none, machine.replace, True, -1
    for reference in source.references({*stubs}):
        relocations, _, offset, type_, symbol, addend = reference
        if type_ == none:
            continue
        if relocations != current:
            before = target
            current, target = relocations, SectionIndex(source.sections[relocations].info)
            in_order, last = in_order and before < target, -1
            flags, size, code = source.sections[target].flags, source.sections[target].size, source.content(target)
        if not flags & elf.SHF_ALLOC:
            continue  # debug information and the like: reads as 0 once the stub is gone
        if offset >= size:
            raise source.error(f"relocation at {offset:#x} lies outside section {target}")
        stub = stubs[symbol]
        replacement = None
        if flags & elf.SHF_EXECINSTR and (patch_enabled or not stub.enabled):
            replacement = replace(code, offset, type_, addend, stub.enabled, nop)
        if replacement is None:
            indirect.add(symbol)
            if type_ in machine.conditional_calls:
                conditional.add(symbol)
        else:
            sites.append(PatchedReference._make((stub, target, reference, replacement)))
            at = replacement[2]
            in_order, last = in_order and last <= at, at
    if not in_order:  # compilers write them in order, and sorting costs more than looking
        sites.sort(key=lambda site: (site[1], site[3].site))
    return sites, indirect, conditional


__all__ = ["FoundProbes", "PatchedReference", "StubSymbol", "description", "find", "semaphore_name"]
