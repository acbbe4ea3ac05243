"""An object's way from input to output, top to bottom: read, find the sites, patch them, write the records.

What is a site is `sites`' business, what bytes replace it `machines`', how a record looks `formats`', which records go
where `records`', and how an object grows `elf.edit`'s. Records live beside the code they describe, in its COMDAT group
if it has one, tied to it so that a linker keeps or drops both.

It knows no command line. The input is never modified; the output appears complete or not at all.
"""

from __future__ import annotations

from .. import machines
from ..elf.foreign import BITCODE
from ..elf.intermediate import NO_MACHINE_CODE, LtoObjectError, refuse_slim_lto
from ..elf.layout import SectionIndex
from ..elf.object import ElfObject, Reference
from ..errors import UsdtError
from ..files import open_input, write_edited
from ..provider import describe
from ..record import NamedTuple
from . import semaphores, sites, stubs
from .context import Context, RecordedPlace, SiteReport
from .records import refuse_complete, write_records
from .target import DEFAULTS, Options, known_providers, with_target

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..files import Data
    from .sites import PatchedReference

__all__ = ["Instrumented", "Options", "SiteReport", "define", "instrument", "instrument_file", "mentions_probes"]

_RECORDS = (".note.stapsdt", ".SUNW_dof", ".note.usdt")


class Instrumented(NamedTuple):
    """What happened to an object. With `changed` false nothing was written, for the `reason` given."""

    changed: bool
    rows: tuple[tuple[str, str, bool, str, int, bool], ...] = ()  # the fields of `sites`, of which few are asked for
    reason: str = ""

    @property
    def sites(self) -> tuple[SiteReport, ...]:
        """Every site as it was written."""
        return tuple(map(SiteReport._make, self.rows))


def mentions_probes(data: Data) -> bool:
    """Return whether an object file's bytes hold the name of a stub or of a semaphore of ours."""
    if data.find(b"__dtrace") >= 0:
        return True
    return data.find(b"_semaphore") >= 0 and data.find(describe.SECTION.encode()) >= 0


def instrument_file(source: str, target: str, options: Options = DEFAULTS, *, staged: bool = False) -> Instrumented:
    """Instrument the object `source` and write the result to `target`.

    `target` may be `source`: it is replaced at once, by renaming. With `staged` it is the name of a file that isn't
    there, and that nobody else knows (`files.write_edited`). Where there is nothing to do, nothing is written.
    Raises UsdtError for anything wrong with the object; then `target` is as it was.
    """
    with open_input(source) as data:
        patches, tail, report = instrument(data.view, source, options)
        if report.changed:
            write_edited(data, patches, tail, target, staged=staged)
    return report


def instrument(
    data: Data, path: str, options: Options = DEFAULTS
) -> tuple[list[tuple[int, bytes]], bytes | bytearray, Instrumented]:
    """Return (bytes to overwrite, bytes to append, report) for the object file content `data`.

    `path` is what errors call it. Raises UsdtError.
    """
    source = None if bytes(data[:4]) in BITCODE else ElfObject(data, path)
    if not mentions_probes(data):
        return [], b"", Instrumented(False, reason="no probe calls")
    if source is None:
        raise LtoObjectError(f"{path}: is LLVM bitcode, {NO_MACHINE_CODE}; compile this file with -fno-lto")
    fat_ir = refuse_slim_lto(source)
    machine = machines.for_object(
        source.machine, is64=source.layout.is64, little=source.layout.little, flags=source.flags, path=path
    )
    known = known_providers(source, options)
    options = with_target(source, options)
    refuse_complete(source, options, known.providers)
    # FreeBSD's and illumos' tracers change what an is-enabled site returns; no other can.
    patch_enabled = options.formats == ("dof",) and options.target_os in {"freebsd", "illumos"}
    found = sites.find(source, machine, known, options.nop, patch_enabled=patch_enabled, keep_calls=options.keep_calls)
    if not found:
        return [], b"", Instrumented(False, reason=_why_nothing(source, found))
    _refuse_idle_semaphores(found, options, path)
    context = Context(source, machine, options, found, known)
    report = _edit(context)
    for index in fat_ir:  # or the linker plugin would use it instead of our code
        context.editor.drop_section(index)
    patches, tail = context.editor.finish()
    return patches, tail, report


def define(
    data: Data, path: str, semaphores: Sequence[str], options: Options
) -> tuple[list[tuple[int, bytes]], bytes | bytearray]:
    """Return (patches, tail) that make an object define the stubs it refers to, and these semaphores.

    It needs no code of its own: this is how an object is made that others are linked with. The providers are those of
    `options`. Raises UsdtError.
    """
    source = ElfObject(data, path)
    machine = machines.for_object(
        source.machine, is64=source.layout.is64, little=source.layout.little, flags=source.flags, path=path
    )
    known = known_providers(source, options)
    options = with_target(source, options)
    found = sites.find(source, machine, known, options.nop, patch_enabled=False)
    wanted = found._replace(indirect=set(found.stubs), undefined_semaphores=list(semaphores))
    context = Context(source, machine, options, wanted, known)
    _edit(context)
    return context.editor.finish()


def _edit(context: Context) -> Instrumented:
    """Turn what `sites.find` found into edits, in the order in which they depend on each other."""
    semaphores.define_all(context)
    by_section: dict[SectionIndex, list[PatchedReference]] = {}
    for site in context.found.sites:
        section = site[1]
        if section in by_section:
            by_section[section].append(site)
        else:
            by_section[section] = [site]
    for section, members in by_section.items():
        _record_section(context, section, members)
    for index in sorted(context.found.indirect):
        stubs.define(context, index)
    # The one form of a leftover that every linker takes in every mode (docs/linkers.md).
    context.editor.leave_undefined(context.found.leftover - context.found.indirect)
    return Instrumented(True, tuple(context.reports))


def _record_section(context: Context, section: SectionIndex, members: Sequence[PatchedReference]) -> None:
    """Write the records of one text section's sites, and tie each neutralised relocation to its record."""
    make, name = RecordedPlace._make, context.source.section_name(section)
    places, patches, references, others = [], [], [], []
    for number, (stub, _, reference, (start, code, at, tail, moved, extra)) in enumerate(members):
        places.append(make((stub, at, tail, 0)))
        patches.append((start, code))
        references.append(reference)
        if moved or extra:
            others.append(number)
        _, provider, probe, enabled = stub
        context.reports.append((provider, probe.written, enabled, name, at, False))
    context.editor.patch_all(section, patches)
    labels = write_records(context, section, places, context.groups.get(section, SectionIndex(0)))
    for number in others:
        references[number] = _move_others(context, members[number], labels[number])
    context.editor.tie(references, context.machine.none, labels)


def _move_others(context: Context, site: PatchedReference, label: int) -> Reference:
    """Deal with further relocations of a site's instructions; return the site's own, at its offset from now on."""
    reference = site.reference
    for old, new in site.replacement.moved_relocations:
        for moved in context.source.relocations_at(reference.relocations, old):
            context.editor.move(moved, new)
        # The neutralised one makes room: n32 takes relocations at one offset for steps of a single one.
        reference = reference._replace(offset=old)
    for offset in site.replacement.extra_relocations:  # marks for the linker's relaxation, which are neutralised, too
        for entry in context.source.relocations_at(site.reference.relocations, offset):
            if entry.entry != site.reference.entry:
                context.editor.retarget(entry, context.machine.none, label)
    return reference


def _refuse_idle_semaphores(found: sites.FoundProbes, options: Options, path: str) -> None:
    """Raise where code tests a semaphore that nobody will ever increment: only readers of SDT notes do."""
    if found.undefined_semaphores and "stapsdt" not in options.formats:
        raise UsdtError(
            f"{path}: tests {found.undefined_semaphores[0]}, which no reader of {' or '.join(options.formats)} "
            "increments, so that probe would never be enabled; compile with -DUSDT_ENABLED_BY_CALL, or add stapsdt "
            "to --formats"
        )


def _why_nothing(source: ElfObject, found: sites.FoundProbes) -> str:
    if any(source.sections_named(name) for name in _RECORDS):
        return "already instrumented"
    return "its probes are declared, but never called" if found.stubs else "no probe calls"
