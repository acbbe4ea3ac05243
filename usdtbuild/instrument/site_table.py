"""The writer of the loaded table of sites: `.usdtbuild.sites`, and the note that leads to it, one in a module."""

from __future__ import annotations

from ..elf import layout as elf
from ..elf.edit import NewRelocation
from ..errors import UsdtError
from ..formats import site_table
from ..formats.site_table import TableRow
from ..machines import facts_of
from ..provider.describe import arguments_text
from .context import Context, RecordedPlace, operand_text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..elf.layout import SectionIndex
    from ..model import Probe

# The chunk without entries that the note leads to, and all others keep: hidden, and the same in every object.
ANCHOR_SYMBOL = "usdtbuild.sites"


def write(
    context: Context, section: SectionIndex, places: Sequence[RecordedPlace], group: int, own: int, keep: int
) -> list[int]:
    """Append a chunk for the sites of `section`; return a label on it for each. `keep` is as `dof_section.write` says.

    It is kept and dropped like any loaded data: the code refers to it, by the relocation that its call has left.
    """
    kept = [keep] if keep else []
    entries, targets = [], []
    for place in places:
        stub = place.stub
        if stub.enabled:
            continue
        path = context.source.path
        operands = operand_text(path, context.machine, context.address_size, stub.provider, stub.probe, tail=place.tail)
        entries.append(TableRow(0, stub.provider, stub.probe.written, operands, arguments_text(stub.probe)))
        targets.append(context.place(section, place.offset, group))
    index = _chunk(context, entries, targets, group, [_anchor(context), *kept])
    return [context.editor.add_label(index, 0)] * len(places)


def add_semaphore(context: Context, provider: str, probe: Probe, symbol: int, group: int) -> int:
    """Append the chunk that says where a probe's semaphore is; return a label on it, which must keep it."""
    entry = TableRow(0, provider, probe.written, is_semaphore=True)
    index = _chunk(context, [entry], [(symbol, 0)], group, [_anchor(context)])
    return context.editor.add_label(index, 0)


def _chunk(
    context: Context, entries: Sequence[TableRow], targets: Sequence[tuple[int, int]], group: int, kept: Sequence[int]
) -> SectionIndex:
    """Append a chunk whose entries' places are `targets`, symbols and addends; return its section."""
    data = site_table.encode(entries, little=context.source.layout.little)
    distance = _distance(context)
    relocations = [
        NewRelocation(site_table.FIRST + site_table.ENTRY * i, distance, symbol, addend)
        for i, (symbol, addend) in enumerate(targets)
    ]
    relocations += [NewRelocation(len(data) - 4, context.machine.none, symbol, 0) for symbol in kept]
    return context.editor.add_section(
        site_table.SECTION, elf.SHT_PROGBITS, elf.SHF_ALLOC, data, align=4, relocations=relocations, group=group
    )


def _distance(context: Context) -> int:
    """Return the type of a relocation that writes a distance of 32 bits. Raises UsdtError."""
    known = facts_of(context.source.machine)
    if known is None or known.relocations.pc32 < 0:
        raise UsdtError(
            f"{context.source.path}: a table of sites can't be written for {context.machine.name}, because how "
            "its objects write a distance of 32 bits isn't known; leave --site-table away"
        )
    return known.relocations.pc32


def _anchor(context: Context) -> int:
    """Return the symbol of the first chunk, made if no object joined to this one has brought it."""
    if not context.sites_anchor:
        context.sites_anchor = context.symbol(ANCHOR_SYMBOL)
    if not context.sites_anchor:
        little = context.source.layout.little
        chunk = context.editor.section_after(1)
        note = context.editor.section_after(3)  # group, chunk, and the chunk's relocations
        symbol = context.sites_anchor = context.editor.add_global(ANCHOR_SYMBOL, elf.STB_WEAK, chunk, 0)
        group = context.editor.add_group(symbol)
        to_note = NewRelocation(0, context.machine.none, context.editor.add_label(note, 0), 0)
        context.editor.add_section(
            site_table.SECTION, elf.SHT_PROGBITS, elf.SHF_ALLOC, site_table.encode((), little=little),
            align=4, relocations=[to_note], group=group,
        )  # fmt: skip
        to_chunk = NewRelocation(site_table.NOTE_FIELD, _distance(context), symbol, 0)
        context.editor.add_section(
            site_table.NOTE_SECTION, elf.SHT_NOTE, elf.SHF_ALLOC, site_table.encode_note(little=little),
            align=4, relocations=[to_chunk], group=group,
        )  # fmt: skip
    return context.sites_anchor
