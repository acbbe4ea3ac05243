"""Stubs: a reference that is no plain branch keeps working, because the object defines what it refers to.

A stub's body is a site itself. It stands in a COMDAT group of its own, so that any number of objects may define it.
"""

from __future__ import annotations

from ..elf import layout as elf
from ..elf.edit import NewRelocation, NewRelocations
from ..elf.object import find_symbols
from ..errors import UsdtError
from ..provider import describe
from .context import Context, RecordedPlace, SiteReport
from .records import write_records
from .semaphores import semaphore
from .sites import StubSymbol, semaphore_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ..elf.layout import SectionIndex, SymbolIndex
    from ..machines.calls import StandIn


def define(context: Context, symbol: SymbolIndex) -> None:
    """Define a stub that is referred to by more than branches, by its `symbol`."""
    stub = context.found.stubs[symbol]
    code, name = _code(context, stub), f".text.{describe.plain_name(stub.name)}"
    group = context.editor.add_group(symbol)
    context.unique_names[group] = stub.name
    section = context.editor.next_section
    relocations = []
    for r in code.relocations:
        if r.label is None:
            target = semaphore(context, semaphore_name(stub.provider, stub.probe))
        else:
            target = context.editor.add_label(section, r.label)
        relocations.append(NewRelocation(r.offset, r.type, target, r.addend))
    loaded = context.options.formats != ("stapsdt",)
    recorded = not stub.enabled or loaded
    tied = recorded and (loaded or context.options.site_table)
    if tied:
        relocations.append(NewRelocation(code.site, context.machine.none, 0, 0))  # against its record, see below
    columns = NewRelocations(relocations)
    context.editor.add_section(
        name, elf.SHT_PROGBITS, elf.SHF_ALLOC | elf.SHF_EXECINSTR, code.code,
        align=code.align, relocations=columns, group=group,
    )  # fmt: skip
    for kind, offset in code.mapping:
        context.editor.add_label(section, offset, kind)
    entry, value = (section, code.entry) if context.machine.descriptor is None else _describe_function(context, section)
    context.editor.change_symbol(symbol, elf.STB_WEAK, elf.STT_FUNC, entry, value, len(code.code))
    if not recorded:
        return  # it reads the semaphore, and nobody patches it
    labels = write_records(context, section, [RecordedPlace(stub, code.site, code.tail, code.asks)], group)
    if tied:
        columns.symbols[-1] = labels[0]
    context.reports.append(SiteReport(stub.provider, stub.probe.written, stub.enabled, name, code.site, True))


def _code(context: Context, stub: StubSymbol) -> StandIn:
    """Return the code of a stub. Raises UsdtError where the machine has none that the formats' readers can use."""
    if stub.enabled and context.asks:
        if context.machine.asking_stub is None:
            raise UsdtError(
                f"{context.source.path}: {stub.name}() asks whether a probe is enabled, which Oracle's DTrace can't "
                f"answer on {context.machine.name}; leave USDT_ENABLED_BY_CALL undefined and add stapsdt to --formats"
            )
        return context.machine.asking_stub(context.by_semaphore, context.options.nop)
    make = context.machine.thumb_stub if context.machine.thumb_stub and _is_thumb(context) else context.machine.stub
    return make(stub.enabled, context.by_semaphore, context.options.nop)


def _is_thumb(context: Context) -> bool:
    """Whether the object's mapping symbols say that it has Thumb code and no A32 (aaelf32, "Mapping symbols")."""
    found = {name[:2] for name in find_symbols(context.source, (b"$a", b"$t")).values()}
    return found == {"$t"}


def _describe_function(context: Context, section: SectionIndex) -> tuple[SectionIndex, int]:
    """Add the descriptor of the function in `section`, which its symbol stands for with ELFv1; return its place.

    It has the code's address, the module's TOC and an environment pointer that C doesn't use. Linkers look for
    descriptors in one section of an object only, so it goes to the end of the one that the compiler made.
    """
    assert context.machine.descriptor is not None
    address, toc = context.machine.descriptor
    code = context.editor.add_section_symbol(section)  # mold takes no other kind of symbol here
    relocations = [NewRelocation(0, address, code, 0), NewRelocation(8, toc, 0, 0)]
    if not context.descriptors:
        context.descriptors = next(iter(context.source.sections_named(elf.DESCRIPTORS)), elf.SectionIndex(0))
    if context.descriptors:
        return context.descriptors, context.editor.extend_section(context.descriptors, bytes(24), relocations)
    flags = elf.SHF_ALLOC | elf.SHF_WRITE
    context.descriptors = context.editor.add_section(
        elf.DESCRIPTORS, elf.SHT_PROGBITS, flags, bytes(24), align=8, relocations=relocations
    )
    return context.descriptors, 0
