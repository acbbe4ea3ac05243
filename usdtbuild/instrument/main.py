"""An object's way from input to output, top to bottom: read, find the sites, patch them, write the records.

What is a site is `sites`' business, what bytes replace it `arch`'s, how a record looks `formats`', and how an object
grows `elf.write`'s. This module decides which of these go together and where records live: beside the code they
describe, in its COMDAT group if it has one, tied to it so that a linker keeps or drops both
(reference/call-sites.md, "What must hold").

It knows no command line. The input is never modified; the output appears complete or not at all.
"""

from __future__ import annotations

import sys
from binascii import crc32
from typing import TYPE_CHECKING, Literal, NamedTuple

from .. import machines
from ..elf import layout as L
from ..elf.foreign import BITCODE
from ..elf.object import ElfObject
from ..elf.write import ABSOLUTE, NewRelocation, ObjectEditor
from ..errors import UsdtError
from ..files import open_input, write_edited
from ..formats import stapsdt
from ..machines.calls import SAFE
from ..provider import describe
from ..provider.model import Probe, Provider
from . import sites

if TYPE_CHECKING:
    from collections.abc import Sequence
    from mmap import mmap
    from typing import Union

    from ..formats.usdt_note import SiteNote, UsdtNote
    from ..machines.calls import Calls, Stub
    from .dof import Function, FunctionTable
    from .sites import Site, StubSymbol

    Data = Union[bytes, mmap]

# One hidden symbol whose section makes the linked `.probes` begin on a page of its own (see _Writer._anchor).
ANCHOR_SYMBOL = "usdtbuild.probes.page"
_PAGE = 4096
# Where ppc64 ELFv1 has its function descriptors.
_DESCRIPTORS = ".opd"
_DIGEST = "usdtbuild."  # how names begin that come from the object's content
_DOF_SECTION, _USDT_SECTION = ".SUNW_dof", ".note.usdt"


class Options(NamedTuple):
    """What a caller may choose. `providers` are known besides those that the object itself describes.

    `formats` are the records to write; none means what the tracers of the target system read. `target_os` is one of
    SYSTEMS, or '' for what the object says of itself. `keep_calls` leaves calls as they are, and defines their stubs.
    """

    nop: str = SAFE
    formats: tuple[str, ...] = ()
    providers: tuple[Provider, ...] = ()
    lto: str = "error"
    target_os: str = ""
    keep_calls: bool = False


# System -> the records its tracers read. The objects of FreeBSD and illumos name their system (EI_OSABI).
SYSTEMS = {"linux": ("stapsdt",), "freebsd": ("dof",), "illumos": ("dof",), "oracle": ("dof",)}
FORMATS = ("stapsdt", "dof", "usdt")
_SYSTEM_OF = {L.ELFOSABI_FREEBSD: "freebsd", L.ELFOSABI_SOLARIS: "illumos"}

# The same by the beginning of `sys.platform`.
_SYSTEM_OF_HOST = {"freebsd": "freebsd", "sunos": "illumos"}


class SiteReport(NamedTuple):
    """One site as it was written: its probe, where it is in the object, and whether it stands in a stub."""

    provider: str
    probe: str
    enabled: bool
    section: str
    offset: int
    in_stub: bool


class Report(NamedTuple):
    """What happened to an object. With `changed` false nothing was written, for the `reason` given."""

    changed: bool
    sites: tuple[SiteReport, ...] = ()
    reason: str = ""


class LtoObjectError(UsdtError):
    """The object holds no machine code yet, so its probes can't be found."""


_NO_MACHINE_CODE = "which holds no machine code to put probes into"


def mentions_probes(data: Data) -> bool:
    """Return whether an object file's bytes hold the name of a stub or of a semaphore of ours."""
    if data.find(b"__dtrace") >= 0:
        return True
    return data.find(b"_semaphore") >= 0 and data.find(describe.SECTION.encode()) >= 0


DEFAULTS = Options()


def instrument_file(source: str, target: str, options: Options = DEFAULTS) -> Report:
    """Instrument the object `source` and write the result to `target`.

    `target` may be `source`: it is replaced at once, by renaming. Where there is nothing to do, nothing is written.
    Raises UsdtError for anything wrong with the object; then `target` is as it was.
    """
    with open_input(source) as data:
        patches, tail, report = instrument(data.view, source, options)
        if report.changed:
            write_edited(data, patches, tail, target)
    return report


def instrument(data: Data, path: str, options: Options = DEFAULTS) -> tuple[list[tuple[int, bytes]], bytes, Report]:
    """Return (bytes to overwrite, bytes to append, report) for the object file content `data`.

    `path` is what errors call it. Raises UsdtError.
    """
    source = None if bytes(data[:4]) in BITCODE else ElfObject(data, path)
    if not mentions_probes(data):
        return [], b"", Report(False, reason="no probe calls")
    if source is None:
        raise LtoObjectError(f"{path}: is LLVM bitcode, {_NO_MACHINE_CODE}; compile this file with -fno-lto")
    fat_ir = _refuse_slim_lto(source)
    machine = machines.for_object(
        source.machine, is64=source.layout.is64, little=source.layout.little, flags=source.flags, path=path
    )
    providers = known_providers(source, options)
    options = _with_target(source, options)
    # FreeBSD's and illumos' tracers change what an is-enabled site returns; no other can.
    patch_enabled = options.formats == ("dof",) and options.target_os in {"freebsd", "illumos"}
    found = sites.find(
        source, machine, providers, options.nop, patch_enabled=patch_enabled, keep_calls=options.keep_calls
    )
    if not found:
        return [], b"", Report(False, reason=_why_nothing(source, found))
    _refuse_idle_semaphores(found, options, path)
    writer = _Writer(source, machine, options, found, providers)
    report = writer.run()
    writer.drop_intermediate_code(fat_ir)
    patches, tail = writer.editor.finish()
    return patches, tail, report


def define(
    data: Data, path: str, semaphores: Sequence[str], options: Options
) -> tuple[list[tuple[int, bytes]], bytes]:
    """Return (patches, tail) that make an object define the stubs it refers to, and these semaphores.

    It needs no code of its own: this is how an object is made that others are linked with. The providers are those of
    `options`. Raises UsdtError.
    """
    source = ElfObject(data, path)
    machine = machines.for_object(
        source.machine, is64=source.layout.is64, little=source.layout.little, flags=source.flags, path=path
    )
    providers = known_providers(source, options)
    options = _with_target(source, options)
    found = sites.find(source, machine, providers, options.nop, patch_enabled=False)
    wanted = found._replace(indirect=set(found.stubs), undefined_semaphores=list(semaphores))
    writer = _Writer(source, machine, options, wanted, providers)
    writer.run()
    return writer.editor.finish()


def system_of(osabi: int) -> str:
    """Return the system that an object is for, by its EI_OSABI, or, where that says nothing, the one this runs on.

    GNU's assembler says nothing when it writes for illumos, or for FreeBSD on other machines than x86.
    """
    if osabi != L.ELFOSABI_NONE:
        return _SYSTEM_OF.get(osabi, "linux")
    return next((system for name, system in _SYSTEM_OF_HOST.items() if sys.platform.startswith(name)), "linux")


def _with_target(source: ElfObject, options: Options) -> Options:
    """Return the options with target system and formats filled in. Raises UsdtError on what doesn't go together."""
    system = options.target_os or system_of(source.osabi)
    if system not in SYSTEMS:
        raise UsdtError(f"target system {system} is unknown; there are {', '.join(SYSTEMS)}")
    formats = options.formats or SYSTEMS[system]
    unknown = [name for name in formats if name not in FORMATS]
    if unknown:
        raise UsdtError(f"{unknown[0]} is no record format; there are {', '.join(FORMATS)}")
    return options._replace(formats=tuple(name for name in FORMATS if name in formats), target_os=system)


def _refuse_idle_semaphores(found: sites.Found, options: Options, path: str) -> None:
    """Raise where code tests a semaphore that nobody will ever increment: only readers of SDT notes do."""
    if found.undefined_semaphores and "stapsdt" not in options.formats:
        raise UsdtError(
            f"{path}: tests {found.undefined_semaphores[0]}, which no reader of {' or '.join(options.formats)} "
            "increments, so that probe would never be enabled; compile with -DUSDT_ENABLED_BY_CALL, or add stapsdt "
            "to --formats"
        )


def _why_nothing(source: ElfObject, found: sites.Found) -> str:
    if any(source.sections_named(name) for name in (stapsdt.SECTION, _DOF_SECTION, _USDT_SECTION)):
        return "already instrumented"
    return "its probes are declared, but never called" if found.stubs else "no probe calls"


def known_providers(source: ElfObject, options: Options) -> dict[str, Provider]:
    """Return provider name -> provider, those that the object describes and those of the options. Raises UsdtError."""
    try:
        described = describe.decode(sites.description(source))
    except describe.DescriptionError as error:
        raise UsdtError(f"{source.path}: section {describe.SECTION}: {error}; make the header again") from None
    providers = {name: provider for name, (provider, _) in described.items()}
    if options.providers:
        from ..provider.join import join_all

        providers, _ = join_all([*providers.values(), *options.providers])
    return providers


def _refuse_slim_lto(source: ElfObject) -> list[int]:
    """Return the sections with intermediate code of a fat LTO object; raise LtoObjectError for a slim one."""
    names = source.sections[source.shstrndx]
    has_gcc = source.data.find(b".gnu.lto_", names.offset, names.offset + names.size) >= 0
    code = [i for i, s in enumerate(source.sections) if s.type == L.SHT_LLVM_LTO]
    if has_gcc:
        code += [i for i in range(1, len(source.sections)) if source.section_name(i).startswith(".gnu.lto_")]
        if source.find_symbols((b"__gnu_lto_slim\0",)):
            raise LtoObjectError(
                f"{source.path}: is a slim LTO object, {_NO_MACHINE_CODE}; compile this file with -fno-lto, or with "
                "-ffat-lto-objects"
            )
    return code


def operand_text(
    path: str, machine: Calls, address_size: int, provider: str, probe: Probe, *, tail: bool
) -> str:
    """Return how SDT notes say where a probe's arguments are, the first twelve. Raises UsdtError where they can't."""
    return " ".join(
        operands_of(path, machine, address_size, provider, probe, tail=tail, most=stapsdt.MAX_ARGUMENTS)
    )


def operands_of(
    path: str, machine: Calls, address_size: int, provider: str, probe: Probe, *, tail: bool, most: int | None = None
) -> tuple[str, ...]:
    """Return where a probe's arguments are, one operand each, of at most `most`. Raises UsdtError."""
    arguments = probe.arguments[:most]
    types = tuple((a.type.size(address_size), a.type.signed and a.type.kind != "float") for a in arguments)
    operands = machine.operands(types, tail)
    for argument, operand in zip(arguments, operands):
        if operand is None:
            raise UsdtError(
                f"{path}: argument {argument.name or argument.type.spelling} of probe {provider}:{probe.stub} can't be "
                f"described to tracers on {machine.name}; pass a pointer to it, or a type no wider than a register"
            )
    return tuple(operand for operand in operands if operand)


class _Place(NamedTuple):
    """A site to record, by its offset in its section. `asks`: where an is-enabled stub of Oracle's kind asks, or 0."""

    stub: StubSymbol
    offset: int
    tail: bool
    asks: int = 0


class _Writer:
    """Turns what `sites.find` found into edits: one use, one object."""

    def __init__(
        self, source: ElfObject, machine: Calls, options: Options, found: sites.Found, providers: dict[str, Provider]
    ) -> None:
        self.source, self.machine, self.options, self.found = source, machine, options, found
        self.providers = providers
        self.editor = ObjectEditor(source)
        self.groups = source.groups()
        self.address_size = source.layout.address_size
        self.by_semaphore = "stapsdt" in options.formats
        # Oracle's DTrace writes its answer to where an argument points; others change the value that is returned.
        self.dof_system = "oracle" if options.target_os == "linux" else options.target_os
        self.asks = "usdt" in options.formats or ("dof" in options.formats and self.dof_system == "oracle")
        self.reports: list[SiteReport] = []
        self.semaphores = dict(found.semaphores)  # name -> symbol or handle
        self.alias_counts: dict[str, int] = {}
        self.has_aliases = source.data.find(b".usdt0\0") >= 0  # an instrumented object was joined to a plain one
        self.unique_names: dict[int, str] = {}  # group (0 for none) -> prefix of its aliases' names
        self.aliases: dict[int, int] = {}  # text section -> the symbol at its start
        self.kept: set[int] | None = None  # sections that linkers keep whatever happens
        self._functions: FunctionTable | None = None
        self.declarations: dict[str, int] = {}  # provider -> the symbol of its note in `.note.usdt`
        self.base_symbol = 0
        self.anchor = 0
        self.descriptors = 0
        self.zero = 0

    def run(self) -> Report:
        self._define_semaphores()
        by_section: dict[int, list[Site]] = {}
        for site in self.found.sites:
            self.editor.patch(site.section, site.replacement.start, site.replacement.code)
            by_section.setdefault(site.section, []).append(site)
        for section, members in by_section.items():
            self._record_section(section, members)
        for index in sorted(self.found.indirect):
            self._define_stub(self.found.stubs[index])
        for index in sorted(self.found.leftover - self.found.indirect):
            # The one form of a leftover that every linker takes in every mode (call-sites.md, item 5).
            self.editor.change_symbol(index, L.STB_WEAK, L.STT_NOTYPE)
        return Report(True, tuple(self.reports))

    def drop_intermediate_code(self, sections: Sequence[int]) -> None:
        """Neutralise sections with intermediate code, or the linker plugin would use it instead of our code."""
        for index in sections:
            self.editor.drop_section(index)

    # -- records -----------------------------------------------------------------------------------------------------

    def _record_section(self, section: int, members: Sequence[Site]) -> None:
        """Write the records of one text section's sites, and tie each neutralised relocation to its record."""
        places = [_Place(site.stub, site.replacement.site, site.replacement.tail) for site in members]
        labels = self._records(section, places, self.groups.get(section, 0))
        for site, label in zip(members, labels):
            reference = site.reference
            for old, new in site.replacement.moved_relocations:
                for moved in self.source.relocations_at(reference.relocations, old):
                    self.editor.move(moved, new)
                # The neutralised one makes room: n32 takes relocations at one offset for steps of a single one.
                reference = reference._replace(offset=old)
            self.editor.retarget(reference, self.machine.none, label)
            for offset in site.replacement.extra_relocations:
                self._neutralise(site, offset, label)
            self.reports.append(
                SiteReport(
                    site.stub.provider, site.stub.probe.stub, site.stub.enabled,
                    self.source.section_name(section), site.replacement.site, False,
                )
            )  # fmt: skip

    def _neutralise(self, site: Site, offset: int, label: int) -> None:
        """Neutralise a further relocation of the same instruction (linker relaxation marks)."""
        for entry in self.source.relocations_at(site.reference.relocations, offset):
            if entry.entry != site.reference.entry:
                self.editor.retarget(entry, self.machine.none, label)

    def _records(self, section: int, places: Sequence[_Place], group: int) -> list[int]:
        """Append the records of the sites of `section` in every format; return a label on a record of each site.

        Record sections are linked to the code (SHF_LINK_ORDER) and members of its group, so that bfd and lld drop them
        with the code (for notes in gold and mold see `_void_if_dropped`); the labels are what the neutralised
        relocations point to, so that a record is kept with the code. Only of loaded sections do linkers ask whether
        anything refers to them, so a label on DOF or on functions' names comes before one on a note.
        """
        own = group
        if not group:  # a group of its own, not COMDAT: bfd's -r would put all record sections into one
            group = self.editor.add_group(self._alias(section, 0), 0)
        labels: list[int] = []
        names = 0
        if "stapsdt" in self.options.formats:
            labels = self._notes(section, [place for place in places if not place.stub.enabled], group)
        if "usdt" in self.options.formats:
            labels = self._usdt_notes(section, places, group, own)
            names = labels[0]
        if "dof" in self.options.formats:
            labels = self._dof(section, places, group, keep=names)
        return labels

    def _notes(self, section: int, places: Sequence[_Place], group: int) -> list[int]:
        """Append one `.note.stapsdt` for the sites of `section`, if it has any; return a label on each note."""
        if not places:
            return []
        data = bytearray()
        relocations: list[NewRelocation] = []
        starts = []
        fields = stapsdt.fields(self.address_size)
        for stub, offset, tail, _ in places:
            code, addend = self._place(section, offset, group)
            start = len(data)
            starts.append(start)
            # SystemTap's readers know a probe by the name in its source, `req__done`, where DTrace's say `req-done`;
            # perf 6.1 shows no event at all of a file that has a note with a dash.
            operands = operand_text(
                self.source.path, self.machine, self.address_size, stub.provider, stub.probe, tail=tail
            )
            note = stapsdt.Note(0, 0, 0, stub.provider, stub.probe.stub, operands)
            data += stapsdt.encode(note, self.address_size, little=self.source.layout.little)
            relocations += self._void_if_dropped(data, start, code)
            absolute = self.machine.absolute
            relocations += (
                NewRelocation(start + fields.pc, absolute, code, addend),
                NewRelocation(start + fields.base, absolute, self._base(), 0),
                NewRelocation(start + fields.semaphore, absolute, self._semaphore_reference(stub), 0),
            )
        notes = self.editor.add_section(
            stapsdt.SECTION, L.SHT_NOTE, L.SHF_LINK_ORDER, bytes(data),
            align=4, link=section, relocations=relocations, group=group,
        )  # fmt: skip
        return [self.editor.add_label(notes, start) for start in starts]

    def _place(self, section: int, offset: int, group: int) -> tuple[int, int]:
        """Return a symbol and an addend that together mean a place in code.

        Where linkers delete code, that is a symbol of its own and not a distance (RISC-V, LoongArch).
        """
        if self.machine.relaxes:
            return self.editor.add_label(section, offset), 0
        return self._alias(section, group), offset

    def _usdt_notes(self, section: int, places: Sequence[_Place], group: int, own: int) -> list[int]:
        """Append one `.note.usdt` for the sites of `section`; return for each the label of its function's name.

        `own` is the group that the code itself is in, or 0.
        """
        from ..formats import usdt_note  # only who asks for it pays for it

        names, alias, offsets = self._function_names(section, places, group, own)
        data = bytearray()
        relocations: list[NewRelocation] = []
        low = 0 if self.address_size == 8 or self.source.layout.little else 4  # the low word of an eight-byte field
        for place, name in zip(places, offsets):
            code, addend = self._place(section, place.asks or place.offset, group)
            start = len(data) + low
            data += self._encoded(self._usdt_note(place))
            relocations += (
                NewRelocation(start + usdt_note.PC_FIELD, self.machine.absolute, code, addend),
                NewRelocation(start + usdt_note.FUNCTION_FIELD, self.machine.absolute, alias, name),
            )
        code, _ = self._place(section, 0, group)
        guard = self._hide_if_dropped(len(data), code)
        if guard is not None:
            data[:0] = guard[0]
            relocations = guard[1] + [r._replace(offset=r.offset + len(guard[0])) for r in relocations]
        # Keeps the providers' notes with those of their sites; at the end, where nothing else is relocated.
        kept = dict.fromkeys(self._declaration(place.stub.provider) for place in places)
        relocations += [NewRelocation(len(data) - 4, self.machine.none, symbol, 0) for symbol in kept]
        self.editor.add_section(
            usdt_note.SECTION, L.SHT_NOTE, 0, bytes(data),
            align=4, link=section, relocations=relocations, group=group,
        )  # fmt: skip
        return [self.editor.add_label(names, offset) for offset in offsets]

    def _usdt_note(self, place: _Place) -> SiteNote:
        """Return the note of a site. Its number of arguments must be the declared one, so none are left out."""
        from ..formats.usdt_note import SiteNote

        stub = place.stub
        if stub.enabled:
            operands: tuple[str, ...] = (self.machine.asking_operand,)
        else:
            operands = operands_of(
                self.source.path, self.machine, self.address_size, stub.provider, stub.probe, tail=place.tail
            )
        # A blank ends an operand.
        operands = tuple(operand.replace(" ", "") for operand in operands)
        return SiteNote(0, 0, stub.provider, stub.probe.stub, operands, stub.enabled)

    def _encoded(self, note: UsdtNote) -> bytes:
        from ..formats.usdt_note import UsdtNoteError, encode

        try:
            return encode(note, little=self.source.layout.little)
        except UsdtNoteError as error:
            raise UsdtError(f"{self.source.path}: {error}") from None

    def _function_names(
        self, section: int, places: Sequence[_Place], group: int, own: int
    ) -> tuple[int, int, list[int]]:
        """Append the names of the functions that the sites are in.

        Return their section, the symbol at its start, and the offset of each site's name. DTrace wants them in the
        loaded section `.rodata`. Notes refer to them by a symbol of their own, for the reason that `_alias` gives.
        """
        from ..formats import usdt_note
        from .dof import shortened

        found: dict[str, int] = {}
        data = bytearray()
        offsets = []
        for place in places:
            name = shortened(self._function(section, place.stub, place.offset).name, usdt_note.MAX_FUNCTION)
            if name not in found:
                found[name] = len(data)
                data += name.encode("utf-8", "surrogateescape") + b"\0"
            offsets.append(found[name])
        index = self.editor.add_section(
            usdt_note.NAMES_SECTION, L.SHT_PROGBITS, L.SHF_ALLOC, bytes(data), align=1, group=group
        )
        return index, self._new_alias(index, own, bytes(data), section), offsets

    def _declaration(self, provider: str) -> int:
        """Return the symbol of a provider's note, which a module must have once: it is in a group of that name."""
        if provider not in self.declarations:
            name = f"usdtbuild.prov.{provider}"
            symbol = self._symbol(name)
            self.declarations[provider] = symbol or self._declare(name, self.providers[provider])
        return self.declarations[provider]

    def _declare(self, name: str, provider: Provider) -> int:
        from ..formats import usdt_note
        from .dof import native_types, translated_types

        probes = []
        for probe in provider.probes:
            translated, mapping = translated_types(probe)
            probes.append(usdt_note.DeclaredProbe(probe.name, native_types(probe), tuple(zip(translated, mapping))))
        data = self._encoded(usdt_note.ProviderNote(provider.name, provider.attributes, tuple(probes)))
        symbol = self.editor.add_global(name, L.STB_WEAK, self.editor.next_section + 1, 0)
        self.editor.add_section(
            usdt_note.SECTION, L.SHT_NOTE, 0, data, align=4, group=self.editor.add_group(symbol)
        )
        return symbol

    def _hide_if_dropped(self, size: int, code: int) -> tuple[bytes, list[NewRelocation]] | None:
        """Return bytes to put before `size` bytes of notes, with relocations, so that they vanish with their code.

        See `_void_if_dropped` for why, and `usdt_note.guard` for how.
        """
        from ..formats import usdt_note

        type32 = self.machine.absolute32
        if type32 is None:
            return None
        order: Literal["little", "big"] = "little" if self.source.layout.little else "big"
        guard = usdt_note.guard(size, little=order == "little")
        relocations = [NewRelocation(guard.word, self.machine.absolute, code, guard.addend)]
        if self.machine.chains:
            relocations.append(NewRelocation(guard.word, self.machine.none, 0, 0))
        for offset in guard.again:
            value = int.from_bytes(guard.data[offset : offset + 4], order)
            relocations.append(NewRelocation(offset, type32, self._zero(), value))
        return guard.data, relocations

    def _dof(self, section: int, places: Sequence[_Place], group: int, keep: int = 0) -> list[int]:
        """Append a `.SUNW_dof` for the sites of `section`; return a label on each site's entry.

        `keep` is a symbol that must stay as long as the DOF does.
        """
        from . import dof as dof_records  # only who asks for DOF pays for it

        def offset_of(place: _Place) -> int:
            return place.asks if place.asks and self.dof_system == "oracle" else place.offset

        members = [
            (place.stub, offset_of(place), self._function(section, place.stub, place.offset)) for place in places
        ]
        little = self.source.layout.little
        described = dof_records.describe(
            self.source.path, members, self.providers, self.dof_system, self.address_size, little
        )
        encoded = described.encoded
        dof_section = self.editor.next_section
        starts = {(i, j): self._place(section, f.start, group) for i, row in enumerate(described.functions)
                  for j, f in enumerate(row)}  # fmt: skip
        relocations = []
        for field in encoded.addresses:
            relocations += self._dof_address(dof_section, field.offset, *starts[field.provider, field.probe])
        data = bytearray(encoded.data)
        if self.machine.relaxes:
            for site in encoded.offsets:
                function = described.functions[site.provider][site.probe]
                value = int.from_bytes(data[site.offset : site.offset + 4], "little" if little else "big")
                data[site.offset : site.offset + 4] = bytes(4)
                label = self.editor.add_label(section, function.start + value)
                add, subtract = self.machine.difference or (0, 0)
                relocations.append(NewRelocation(site.offset, add, label, 0))
                relocations.append(NewRelocation(site.offset, subtract, starts[site.provider, site.probe][0], 0))
        if keep:
            relocations.append(NewRelocation(len(data), self.machine.none, keep, 0))
        data += dof_records.TRAILER + len(encoded.data).to_bytes(4, "little" if little else "big")
        # Without SHF_LINK_ORDER: a loaded section goes with its group anyway. The registration's mark has no such flag,
        # and would stand in another section (mold), or before all DOF, where gdb looks for one (bfd).
        flags = L.SHF_ALLOC
        if self.dof_system == "oracle":  # lld refuses, and bfd warns of, absolute addresses in a read-only section
            flags |= L.SHF_WRITE
        self.editor.add_section(
            _DOF_SECTION, L.SHT_SUNW_DOF, flags, bytes(data),
            align=8, relocations=relocations, group=group,
        )  # fmt: skip
        entries = {(field.provider, field.probe): field.offset for field in encoded.addresses}
        return [self.editor.add_label(dof_section, entries[number]) for number in described.places]

    def _function(self, section: int, stub: StubSymbol, offset: int) -> Function:
        """Return the function that a site is in; a stub that this object defines is one itself."""
        from .dof import Function, FunctionTable

        if section >= len(self.source.sections):
            return Function(0, 0, stub.name)
        if self._functions is None:
            self._functions = FunctionTable(self.source, {site.section for site in self.found.sites})
        return self._functions.at(section, offset)

    def _dof_address(self, section: int, offset: int, symbol: int, addend: int) -> list[NewRelocation]:
        """Return the relocations that fill a DOF address field, 8 bytes in any class, with a function's address.

        For FreeBSD it is the distance from the field, which needs no dynamic relocation; elsewhere the address itself.
        """
        if self.options.target_os != "freebsd":
            low = 0 if self.address_size == 8 or self.source.layout.little else 4
            return [NewRelocation(offset + low, self.machine.absolute, symbol, addend)]
        if not self.machine.pc_relative:
            raise UsdtError(f"{self.source.path}: DOF can't be written for {self.machine.name} on FreeBSD")
        place = self.editor.add_label(section, offset) if any(r.place for r in self.machine.pc_relative) else 0
        return [
            NewRelocation(offset + r.offset, r.type, place, r.addend)
            if r.place
            else NewRelocation(offset + r.offset, r.type, symbol, addend + r.addend)
            for r in self.machine.pc_relative
        ]

    def _void_if_dropped(self, data: bytearray, start: int, code: int) -> list[NewRelocation]:
        """Return relocations that give a note another owner if the linker drops the code that it describes.

        gold and mold keep notes that aren't loaded, whatever becomes of the code; the code's symbol is 0 then. A note
        at a small address spoils the whole file for perf and the probe for libbpf, while notes of other owners are
        passed over by every reader. (Of another type they aren't: perf stops reading there.) So the address is added
        to `'s' << 56`, less one, in an eight-byte word whose top byte is the first letter of the owner: any address
        from 1 on carries into it, 0 doesn't, and the owner is "rtapsdt". The seven bytes that this spoils are then
        written again, by relocations without a symbol. They come after it in file order and in the order of offsets,
        because bfd sorts relocations (stably) when it links with -r.
        """
        type32, type64 = self.machine.absolute32, self.machine.absolute
        if type32 is None:
            return []
        header = bytes(data[start : start + stapsdt.HEADER_SIZE])
        owner = stapsdt.HEADER_SIZE - len(stapsdt.OWNER)
        order: Literal["little", "big"] = "little" if self.source.layout.little else "big"
        word, again = (owner - 7, (owner - 7, owner - 4)) if order == "little" else (owner, (owner + 1, owner + 4))
        test = NewRelocation(start + word, type64, code, (stapsdt.OWNER[0] << 56) - 1)
        values = [(offset, int.from_bytes(header[offset : offset + 4], order)) for offset in again]
        again32 = [NewRelocation(start + offset, type32, self._zero(), value) for offset, value in values]
        end = [NewRelocation(test.offset, self.machine.none, 0, 0)] if self.machine.chains else []
        return [test, *end, *again32]

    def _zero(self) -> int:
        """Return a symbol whose value is 0, for relocations that are to write a plain number."""
        if self.machine.chains and not self.zero:
            self.zero = self.editor.add_label(ABSOLUTE, 0)
        return self.zero

    def _alias(self, section: int, group: int) -> int:
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
            code = self.source.content(section) if section < len(self.source.sections) else b""
            self.aliases[section] = self._new_alias(section, group, code, section)
        return self.aliases[section]

    def _new_alias(self, section: int, group: int, content: bytes | memoryview, code: int) -> int:
        """Return a new symbol at the start of `section`, which linkers keep or drop together with that of `code`."""
        prefix = self._unique_name(group)
        count = self.alias_counts.get(prefix, 0)
        while self.has_aliases and self._symbol(f"{prefix}.usdt{count}"):
            count += 1
        self.alias_counts[prefix] = count + 1
        if not group:
            name = f"{prefix}.usdt{count}"
            if prefix.startswith(_DIGEST) and code in self._always_kept():
                return self.editor.add_label(section, 0, name)
            return self.editor.add_global(name, L.STB_WEAK if prefix.startswith(_DIGEST) else L.STB_GLOBAL, section, 0)
        return self.editor.add_global(f"{prefix}.usdt{count}.{crc32(content):08x}", L.STB_WEAK, section, 0)

    def _unique_name(self, group: int) -> str:
        if group not in self.unique_names:
            get_unique = self.source.first_strong_definition
            symbol = self.source.sections[group].info if group else get_unique(self.groups)
            self.unique_names[group] = (self.source.symbol_name(symbol) if symbol else "") or self._digest()
        return self.unique_names[group]

    def _digest(self) -> str:
        from hashlib import blake2b

        return f"{_DIGEST}{blake2b(self.source.data, digest_size=8).hexdigest()}"

    def _always_kept(self) -> set[int]:
        if self.kept is None:
            self.kept = self.source.always_kept(self.groups)
        return self.kept

    def _symbol(self, name: str) -> int:
        """Return the index of an existing symbol called `name`, or 0."""
        for index, found in self.source.find_symbols((name.encode() + b"\0",)).items():
            if found == name and self.source.symbol(index).binding != L.STB_LOCAL:
                return index
        return 0

    def _base(self) -> int:
        """Return the symbol of `.stapsdt.base`, whose address tells readers how far a prelinked file was moved.

        The section is retained (SHF_GNU_RETAIN) because a file without it shows no probe to gdb and perf, and shared
        with objects that use SystemTap's header by the same group signature. It goes with the code (SHF_EXECINSTR)
        because perf takes every site's distance between address and place in the file from it (docs/linkers.md).
        """
        if not self.base_symbol:
            self.base_symbol = self._symbol(stapsdt.BASE_SYMBOL)
        if not self.base_symbol:
            self.editor.set_osabi_gnu()
            section = self.editor.next_section + 1
            self.base_symbol = self.editor.add_global(stapsdt.BASE_SYMBOL, L.STB_WEAK, section, 0, 1)
            # The signature's name is what SystemTap's header gives it; a section symbol in its place crashes mold -r.
            group = self.editor.add_group(self.editor.add_label(section, 0, stapsdt.BASE_SECTION))
            flags = L.SHF_ALLOC | L.SHF_EXECINSTR | L.SHF_GNU_RETAIN
            self.editor.add_section(stapsdt.BASE_SECTION, L.SHT_PROGBITS, flags, b"\0", align=1, group=group)
        return self.base_symbol

    # -- semaphores --------------------------------------------------------------------------------------------------

    def _define_semaphores(self) -> None:
        """Define every semaphore that this object's code or stubs read, each in a group that objects can share."""
        wanted = set(self.found.undefined_semaphores)
        for index in self.found.indirect if self.by_semaphore else ():
            stub = self.found.stubs[index]
            name = sites.semaphore_name(stub.provider, stub.probe)
            if stub.enabled and name not in self.found.semaphores:
                wanted.add(name)
        for name in sorted(wanted):
            self._define_semaphore(name)

    def _define_semaphore(self, name: str) -> None:
        tie = NewRelocation(0, self.machine.none, self._anchor(), 0)
        section = self.editor.next_section + 1
        if name in self.found.semaphores:
            symbol = self.found.semaphores[name]
            self.editor.change_symbol(symbol, L.STB_WEAK, L.STT_OBJECT, section, 0, 2)
        else:
            symbol = self.editor.add_global(name, L.STB_WEAK, section, 0, 2, L.STT_OBJECT)
        self.semaphores[name] = symbol
        self.editor.add_section(
            stapsdt.SEMAPHORE_SECTION, L.SHT_PROGBITS, L.SHF_ALLOC | L.SHF_WRITE, b"\0\0",
            align=2, relocations=[tie], group=self.editor.add_group(symbol),
        )  # fmt: skip

    def _anchor(self) -> int:
        """Return a symbol whose section aligns the linked `.probes` to a page; every semaphore refers to it.

        Without it lld and mold put the semaphores on a file page that RELRO has too, and a tracer that starts before
        the program increments the other mapping's copy (reference/sdt-notes.md). One anchor aligns them all.
        """
        if not self.anchor:
            self.anchor = self._symbol(ANCHOR_SYMBOL)  # the header of the classic tool brings one
        if not self.anchor:
            section = self.editor.next_section + 1
            self.anchor = self.editor.add_global(ANCHOR_SYMBOL, L.STB_WEAK, section, 0, 2, L.STT_OBJECT)
            group = self.editor.add_group(self.anchor)
            self.editor.add_section(
                stapsdt.SEMAPHORE_SECTION, L.SHT_PROGBITS, L.SHF_ALLOC | L.SHF_WRITE, b"\0\0", align=_PAGE, group=group
            )
        return self.anchor

    def _semaphore_reference(self, stub: StubSymbol) -> int:
        """Return the semaphore's symbol; a weak undefined one if this object doesn't read it.

        Where no object of the program tests whether the probe is enabled, the reference stays 0 and the probe has no
        semaphore. Where one does, all sites of the module show the semaphore, whichever object they are in.
        """
        name = sites.semaphore_name(stub.provider, stub.probe)
        if name not in self.semaphores:
            self.semaphores[name] = self.editor.add_global(name, L.STB_WEAK)
        return self.semaphores[name]

    # -- stubs -------------------------------------------------------------------------------------------------------

    def _define_stub(self, stub: StubSymbol) -> None:
        """Define a stub that is referred to by more than branches; its body is then a site itself.

        It stands in a COMDAT group of its own, so that any number of objects may define it.
        """
        code = self._stub_code(stub)
        group = self.editor.add_group(stub.symbol)
        self.unique_names[group] = stub.name
        section = self.editor.next_section
        relocations = []
        for r in code.relocations:
            symbol = self._semaphore_reference(stub) if r.label is None else self.editor.add_label(section, r.label)
            relocations.append(NewRelocation(r.offset, r.type, symbol, r.addend))
        recorded = not stub.enabled or self.options.formats != ("stapsdt",)
        tied = recorded and self.options.formats != ("stapsdt",)
        if tied:
            relocations.append(NewRelocation(code.site, self.machine.none, 0, 0))  # against its record, see below
        self.editor.add_section(
            f".text.{stub.name}", L.SHT_PROGBITS, L.SHF_ALLOC | L.SHF_EXECINSTR, code.code,
            align=code.align, relocations=relocations, group=group,
        )  # fmt: skip
        for name, offset in code.mapping:
            self.editor.add_label(section, offset, name)
        entry, value = (section, code.entry) if self.machine.descriptor is None else self._describe_function(section)
        self.editor.change_symbol(stub.symbol, L.STB_WEAK, L.STT_FUNC, entry, value, len(code.code))
        if not recorded:
            return  # it reads the semaphore, and nobody patches it
        labels = self._records(section, [_Place(stub, code.site, code.tail, code.asks)], group)
        if tied:
            relocations[-1] = relocations[-1]._replace(symbol=labels[0])
        self.reports.append(
            SiteReport(stub.provider, stub.probe.stub, stub.enabled, f".text.{stub.name}", code.site, True)
        )

    def _stub_code(self, stub: StubSymbol) -> Stub:
        """Return the code of a stub. Raises UsdtError where the machine has none that the formats' readers can use."""
        if stub.enabled and self.asks:
            if self.machine.asking_stub is None:
                raise UsdtError(
                    f"{self.source.path}: {stub.name}() asks whether a probe is enabled, which Oracle's DTrace can't "
                    f"answer on {self.machine.name}; leave USDT_ENABLED_BY_CALL undefined and add stapsdt to --formats"
                )
            return self.machine.asking_stub(self.by_semaphore, self.options.nop)
        make = self.machine.thumb_stub if self.machine.thumb_stub and self._is_thumb() else self.machine.stub
        return make(stub.enabled, self.by_semaphore, self.options.nop)

    def _is_thumb(self) -> bool:
        """Whether the object's mapping symbols say that it has Thumb code and no A32 (aaelf32, "Mapping symbols")."""
        found = {name[:2] for name in self.source.find_symbols((b"$a", b"$t")).values()}
        return found == {"$t"}

    def _describe_function(self, section: int) -> tuple[int, int]:
        """Add the descriptor of the function in `section`, which its symbol stands for with ELFv1; return its place.

        It has the code's address, the module's TOC and an environment pointer that C doesn't use. Linkers look for
        descriptors in one section of an object only, so it goes to the end of the one that the compiler made.
        """
        assert self.machine.descriptor is not None
        address, toc = self.machine.descriptor
        code = self.editor.add_section_symbol(section)  # mold takes no other kind of symbol here
        relocations = [NewRelocation(0, address, code, 0), NewRelocation(8, toc, 0, 0)]
        if not self.descriptors:
            self.descriptors = next(iter(self.source.sections_named(_DESCRIPTORS)), 0)
        if self.descriptors:
            return self.descriptors, self.editor.extend_section(self.descriptors, bytes(24), relocations)
        flags = L.SHF_ALLOC | L.SHF_WRITE
        self.descriptors = self.editor.add_section(
            _DESCRIPTORS, L.SHT_PROGBITS, flags, bytes(24), align=8, relocations=relocations
        )
        return self.descriptors, 0
