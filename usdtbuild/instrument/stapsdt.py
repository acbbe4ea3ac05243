"""The writer of SystemTap's SDT notes: `.note.stapsdt`, and the section `.stapsdt.base` that readers count from."""

from __future__ import annotations

from ..elf import layout as elf
from ..elf.edit import NewRelocation
from ..formats import stapsdt
from . import dropped
from .context import operand_text
from .semaphores import semaphore

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..elf.layout import SectionIndex
    from .context import Context, Place
    from .sites import StubSymbol


def write(
    context: Context, section: SectionIndex, places: Sequence[Place], group: int, own: int, keep: int
) -> list[int]:
    """Append one `.note.stapsdt` for the sites of `section`, if it has any; return a label on each note."""
    del own, keep
    places = [place for place in places if not place.stub.enabled]
    if not places:
        return []
    data = bytearray()
    relocations: list[NewRelocation] = []
    starts = []
    fields = stapsdt.fields(context.address_size)
    pc_field, base_field, semaphore_field = fields
    absolute, make = context.machine.absolute, NewRelocation._make
    for stub, offset, tail, _ in places:
        code, addend = context.place(section, offset, group)
        start = len(data)
        starts.append(start)
        note, owner = _note(context, stub, tail)
        data += note
        if owner:
            symbols = (code, context.zero_symbol(), 0)
            relocations += [make((start + at, type_, symbols[which], value)) for at, type_, which, value in owner]
        relocations += (
            make((start + pc_field, absolute, code, addend)),
            make((start + base_field, absolute, context.base_symbol or _base(context), 0)),
            make((start + semaphore_field, absolute, semaphore(context, stub), 0)),
        )
    notes = context.editor.add_section(
        stapsdt.SECTION, elf.SHT_NOTE, elf.SHF_LINK_ORDER, bytes(data),
        align=4, link=section, relocations=relocations, group=group,
    )  # fmt: skip
    return [context.editor.add_label(notes, start) for start in starts]


def _note(context: Context, stub: StubSymbol, tail: bool) -> tuple[bytes, list[dropped.Owner]]:
    """Return a note whose addresses are still 0, and what takes it back; all objects of a machine have the same."""
    key = (stub.name, tail)
    found = context.notes.get(key)
    if found is None:
        # SystemTap's readers know a probe by the name in its source, `req__done`, where DTrace's say `req-done`;
        # perf 6.1 shows no event at all of a file that has a note with a dash.
        operands = operand_text(
            context.source.path, context.machine, context.address_size, stub.provider, stub.probe, tail=tail
        )
        little = context.source.layout.little
        fields = stapsdt.Note(0, 0, 0, stub.provider, stub.probe.stub, operands)
        note = stapsdt.encode(fields, context.address_size, little=little)
        context.notes[key] = found = (note, dropped.void_if_dropped(context.machine, note, little=little))
    return found


def _base(context: Context) -> int:
    """Return the symbol of `.stapsdt.base`, whose address tells readers how far a prelinked file was moved.

    The section is retained (SHF_GNU_RETAIN) because a file without it shows no probe to gdb and perf, and shared
    with objects that use SystemTap's header by the same group signature. It goes with the code (SHF_EXECINSTR)
    because perf takes every site's distance between address and place in the file from it (docs/linkers.md).
    """
    if not context.base_symbol:
        context.base_symbol = context.symbol(stapsdt.BASE_SYMBOL)
    if not context.base_symbol:
        context.editor.set_osabi_gnu()
        section = context.editor.section_after(1)
        context.base_symbol = context.editor.add_global(stapsdt.BASE_SYMBOL, elf.STB_WEAK, section, 0, 1)
        # The signature's name is what SystemTap's header gives it; a section symbol in its place crashes mold -r.
        group = context.editor.add_group(context.editor.add_label(section, 0, stapsdt.BASE_SECTION))
        flags = elf.SHF_ALLOC | elf.SHF_EXECINSTR | elf.SHF_GNU_RETAIN
        context.editor.add_section(stapsdt.BASE_SECTION, elf.SHT_PROGBITS, flags, b"\0", align=1, group=group)
    return context.base_symbol
