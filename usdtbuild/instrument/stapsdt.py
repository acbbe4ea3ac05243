"""The writer of SystemTap's SDT notes: `.note.stapsdt`, and the section `.stapsdt.base` that readers count from."""

from __future__ import annotations

from ..elf import layout as elf
from ..elf.relocations import RelocationForm, RepeatedRelocations
from ..formats import stapsdt
from . import dropped
from .context import Context, RecordedPlace, operand_text
from .semaphores import semaphore
from .sites import NoteForm, StubSymbol, semaphore_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from struct import Struct

    from ..elf.layout import SectionIndex


def write(
    context: Context, section: SectionIndex, places: Sequence[RecordedPlace], group: int, own: int, keep: int
) -> Sequence[int]:
    """Append one `.note.stapsdt` for the sites of `section`, if it has any; return a label on each note."""
    places = [place for place in places if not place.stub.enabled]
    if not places:
        return []
    data, starts = bytearray(), []
    rows: list[tuple[RelocationForm, int, tuple[int, ...], int]] = []
    relaxes, chains, base, zero = context.machine.relaxes, context.machine.chains, 0, 0
    code = 0 if relaxes else context.alias(section, group)
    in_place = None if context.editor.uses_rela else context.source.layout.u32.pack_into
    pc = stapsdt.HEADER_SIZE
    for stub, offset, tail, _ in places:
        addend = offset
        if relaxes:
            code, addend = context.place(section, offset, group)
        note, relocations, voids, name = context.notes.get((stub.name, tail)) or _form(context, stub, tail)
        if voids and chains:
            zero = zero or context.zero_symbol()
        base = base or context.base_symbol or _base(context)
        start = len(data)
        starts.append(start)
        data += note
        if in_place:
            in_place(data, start + pc, addend)
        symbols = (code, zero, base, context.semaphores.get(name) or semaphore(context, name), 0)
        rows.append((relocations, start, symbols, addend))
    notes = context.editor.add_section(
        stapsdt.SECTION, elf.SHT_NOTE, elf.SHF_LINK_ORDER, bytes(data),
        align=4, link=section, relocations=RepeatedRelocations(rows), group=group,
    )  # fmt: skip
    return context.editor.add_labels(notes, starts)


def _form(context: Context, stub: StubSymbol, tail: bool) -> NoteForm:
    """Return the form of a probe's notes, made once for all objects of a machine that know the same providers."""
    # SystemTap's readers know a probe by the name in its source, `req__done`, where DTrace's say `req-done`;
    # perf 6.1 shows no event at all of a file that has a note with a dash.
    machine, size = context.machine, context.address_size
    operands = operand_text(context.source.path, machine, size, stub.provider, stub.probe, tail=tail)
    little = context.source.layout.little
    fields = stapsdt.Note(0, 0, 0, stub.provider, stub.probe.written, operands)
    note = stapsdt.encode(fields, size, little=little)
    owner = dropped.void_if_dropped(machine, note, little=little)
    rela = context.editor.uses_rela
    if not rela:
        note = _with_values(note, owner, context.source.layout.u32)
    which = {dropped.CODE: 0, dropped.ZERO: 1, dropped.NO_SYMBOL: -1}
    rows = [(at, type_, which[symbol], value) for at, type_, symbol, value in owner]
    rows += [(at, machine.absolute, symbol, 0) for at, symbol in zip(stapsdt.fields(size), (0, 2, 3))]
    relocations = RelocationForm(rows, len(owner), context.source.layout, context.source.machine, rela=rela)
    form = NoteForm(note, relocations, bool(owner), semaphore_name(stub.provider, stub.probe))
    context.notes[stub.name, tail] = form
    return form


def _with_values(note: bytes, owner: list[dropped.Owner], word: Struct) -> bytes:
    """Return a note with the values of its owner's relocations, which carry none, in the words that they change."""
    changed = bytearray(note)
    for at, _, _, value in owner:
        word.pack_into(changed, at, word.unpack_from(changed, at)[0] + value & 0xFFFFFFFF)
    return bytes(changed)


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
