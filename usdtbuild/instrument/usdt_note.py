"""The writer of Oracle's notes: `.note.usdt`, the functions' names that it refers to, and a note for each provider."""

from __future__ import annotations

from collections.abc import Sequence

from ..elf import layout as elf
from ..elf.edit import NewRelocation
from ..elf.layout import SectionIndex
from ..errors import UsdtError
from ..formats import usdt_note
from ..formats.usdt_note import SiteNote, UsdtNote, UsdtNoteError, encode
from ..model import Provider
from .context import Context, RecordedPlace, operands_of
from .dof import check_name, native_types, shortened, translated_types
from .dropped import hide_if_dropped


def write(
    context: Context, section: SectionIndex, places: Sequence[RecordedPlace], group: int, own: int, keep: int
) -> list[int]:
    """Append one `.note.usdt` for the sites of `section`; return for each the label of its function's name.

    `own` is the group that the code itself is in, or 0.
    """
    names, alias, offsets = _function_names(context, section, places, group, own)
    data = bytearray()
    relocations: list[NewRelocation] = []
    low = 0 if context.address_size == 8 or context.source.layout.little else 4  # the low word of an eight-byte field
    for place, name in zip(places, offsets):
        code, addend = context.place(section, place.asks or place.offset, group)
        start = len(data) + low
        data += _encoded(context, _note(context, place))
        relocations += (
            NewRelocation(start + usdt_note.PC_FIELD, context.machine.absolute, code, addend),
            NewRelocation(start + usdt_note.FUNCTION_FIELD, context.machine.absolute, alias, name),
        )
    code, _ = context.place(section, 0, group)
    guard = hide_if_dropped(context, len(data), code)
    if guard is not None:
        data[:0] = guard[0]
        relocations = guard[1] + [r._replace(offset=r.offset + len(guard[0])) for r in relocations]
    # Keeps the providers' notes with those of their sites; at the end, where nothing else is relocated.
    kept = dict.fromkeys(_declaration(context, place.stub.provider) for place in places)
    relocations += [NewRelocation(len(data) - 4, context.machine.none, symbol, 0) for symbol in kept]
    context.editor.add_section(
        usdt_note.SECTION, elf.SHT_NOTE, 0, bytes(data),
        align=4, link=section, relocations=relocations, group=group,
    )  # fmt: skip
    return [context.editor.add_label(names, offset) for offset in offsets]


def _note(context: Context, place: RecordedPlace) -> SiteNote:
    """Return the note of a site. Its number of arguments must be the declared one, so none are left out."""
    stub = place.stub
    if stub.enabled:
        operands: tuple[str, ...] = (context.machine.asking_operand,)
    else:
        operands = operands_of(
            context.source.path, context.machine, context.address_size, stub.provider, stub.probe, tail=place.tail
        )
    # A blank ends an operand.
    operands = tuple(operand.replace(" ", "") for operand in operands)
    return SiteNote(0, 0, stub.provider, stub.probe.written, operands, stub.enabled)


def _encoded(context: Context, note: UsdtNote) -> bytes:
    try:
        return encode(note, little=context.source.layout.little)
    except UsdtNoteError as error:
        raise UsdtError(f"{context.source.path}: {error}") from None


def _function_names(
    context: Context, section: SectionIndex, places: Sequence[RecordedPlace], group: int, own: int
) -> tuple[SectionIndex, int, list[int]]:
    """Append the names of the functions that the sites are in.

    Return their section, the symbol at its start, and the offset of each site's name. DTrace wants them in the
    loaded section `.rodata`. Notes refer to them by a symbol of their own, for the reason that `Context.alias` gives.
    """
    found: dict[str, int] = {}
    data = bytearray()
    offsets = []
    for place in places:
        name = shortened(context.function(section, place.stub, place.offset).name, usdt_note.MAX_FUNCTION)
        if name not in found:
            found[name] = len(data)
            data += name.encode("utf-8", "surrogateescape") + b"\0"
        offsets.append(found[name])
    index = context.editor.add_section(
        usdt_note.NAMES_SECTION, elf.SHT_PROGBITS, elf.SHF_ALLOC, bytes(data), align=1, group=group
    )
    return index, context.new_alias(index, own, bytes(data), section), offsets


def _declaration(context: Context, provider: str) -> int:
    """Return the symbol of a provider's note, which a module must have once: it is in a group of that name."""
    if provider not in context.declarations:
        name = f"usdtbuild.prov.{provider}"
        symbol = context.symbol(name)
        context.declarations[provider] = symbol or _declare(context, name, context.providers[provider])
    return context.declarations[provider]


def _declare(context: Context, name: str, provider: Provider) -> int:
    check_name(context.source.path, provider.name)
    probes = []
    for probe in provider.probes:
        translated, mapping = translated_types(probe)
        probes.append(usdt_note.NotedProbe(probe.name, native_types(probe), tuple(zip(translated, mapping))))
    data = _encoded(context, usdt_note.ProviderNote(provider.name, provider.attributes, tuple(probes)))
    symbol = context.editor.add_global(name, elf.STB_WEAK, context.editor.section_after(1), 0)
    context.editor.add_section(
        usdt_note.SECTION, elf.SHT_NOTE, 0, data, align=4, group=context.editor.add_group(symbol)
    )
    return symbol
