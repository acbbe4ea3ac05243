"""The writer of SystemTap's SDT notes: `.note.stapsdt`, and the section `.stapsdt.base` that readers count from."""

from __future__ import annotations

from ..elf import layout as elf
from ..elf.edit import NewRelocation
from ..formats import stapsdt
from .context import operand_text
from .dropped import void_if_dropped
from .semaphores import semaphore

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..elf.layout import SectionIndex
    from ..provider.model import Probe
    from .context import Context, Place
    from .sites import StubSymbol

_MOST_NOTES = 4096
_notes: dict[tuple[str, Probe, bool, object, int, bool], bytes] = {}  # the latest that were made


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
    for stub, offset, tail, _ in places:
        code, addend = context.place(section, offset, group)
        start = len(data)
        starts.append(start)
        data += _note(context, stub, tail)
        relocations += void_if_dropped(context, data, start, code)
        absolute = context.machine.absolute
        relocations += (
            NewRelocation(start + fields.pc, absolute, code, addend),
            NewRelocation(start + fields.base, absolute, _base(context), 0),
            NewRelocation(start + fields.semaphore, absolute, semaphore(context, stub), 0),
        )
    notes = context.editor.add_section(
        stapsdt.SECTION, elf.SHT_NOTE, elf.SHF_LINK_ORDER, bytes(data),
        align=4, link=section, relocations=relocations, group=group,
    )  # fmt: skip
    return [context.editor.add_label(notes, start) for start in starts]


def _note(context: Context, stub: StubSymbol, tail: bool) -> bytes:
    """Return a note whose addresses are still 0; the sites of a probe have the same, in all objects of a machine."""
    little = context.source.layout.little
    key = (stub.provider, stub.probe, tail, context.machine.operands, context.address_size, little)
    if key not in _notes:
        # SystemTap's readers know a probe by the name in its source, `req__done`, where DTrace's say `req-done`;
        # perf 6.1 shows no event at all of a file that has a note with a dash.
        operands = operand_text(
            context.source.path, context.machine, context.address_size, stub.provider, stub.probe, tail=tail
        )
        if len(_notes) >= _MOST_NOTES:
            _notes.clear()
        note = stapsdt.Note(0, 0, 0, stub.provider, stub.probe.stub, operands)
        _notes[key] = stapsdt.encode(note, context.address_size, little=little)
    return _notes[key]


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
