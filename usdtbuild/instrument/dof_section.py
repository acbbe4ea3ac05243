"""The writer of DOF: `.SUNW_dof`, which the registration or the system's loader hands to DTrace."""

from __future__ import annotations

from collections.abc import Sequence

from ..elf import layout as elf
from ..elf.edit import NewRelocation
from ..elf.layout import SectionIndex
from ..errors import UsdtError
from ..formats.dof.encode import with_trailer
from . import dof as dof_records
from .context import Context, RecordedPlace

SECTION = ".SUNW_dof"


def write(
    context: Context, section: SectionIndex, places: Sequence[RecordedPlace], group: int, own: int, keep: int
) -> list[int]:
    """Append a `.SUNW_dof` for the sites of `section`; return a label on each site's entry.

    `keep` is a symbol that must stay as long as the DOF does.
    """
    is_oracle = context.dof_system == "oracle"
    members = [
        (one.stub, (is_oracle and one.asks) or one.offset, context.function(section, one.stub, one.offset))
        for one in places
    ]
    little = context.source.layout.little
    described = dof_records.describe(
        context.source.path, members, context.providers, context.dof_system, context.address_size, little
    )
    encoded = described.encoded
    dof_section = context.editor.next_section
    starts = {(i, j): context.place(section, f.start, group) for i, row in enumerate(described.functions)
              for j, f in enumerate(row)}  # fmt: skip
    relocations = []
    for field in encoded.addresses:
        relocations += _address(context, dof_section, field.offset, *starts[field.provider, field.probe])
    data = bytearray(encoded.data)
    if context.machine.relaxes:
        for site in encoded.offsets:
            function = described.functions[site.provider][site.probe]
            value = int.from_bytes(data[site.offset : site.offset + 4], "little" if little else "big")
            data[site.offset : site.offset + 4] = bytes(4)
            label = context.editor.add_label(section, function.start + value)
            add, subtract = context.machine.difference or (0, 0)
            relocations.append(NewRelocation(site.offset, add, label, 0))
            relocations.append(NewRelocation(site.offset, subtract, starts[site.provider, site.probe][0], 0))
    if keep:
        relocations.append(NewRelocation(len(data), context.machine.none, keep, 0))
    # Without SHF_LINK_ORDER: a loaded section goes with its group anyway. The registration's mark has no such flag,
    # and would stand in another section (mold), or before all DOF, where gdb looks for one (bfd).
    flags = elf.SHF_ALLOC
    if context.dof_system == "oracle":  # lld refuses, and bfd warns of, absolute addresses in a read-only section
        flags |= elf.SHF_WRITE
    context.editor.add_section(
        SECTION, elf.SHT_SUNW_DOF, flags, with_trailer(bytes(data), little=little),
        align=8, relocations=relocations, group=group,
    )  # fmt: skip
    entries = {(field.provider, field.probe): field.offset for field in encoded.addresses}
    return [context.editor.add_label(dof_section, entries[number]) for number in described.places]


def _address(context: Context, section: SectionIndex, offset: int, symbol: int, addend: int) -> list[NewRelocation]:
    """Return the relocations that fill a DOF address field, 8 bytes in any class, with a function's address.

    For FreeBSD it is the distance from the field, which needs no dynamic relocation; elsewhere the address itself.
    """
    if context.options.target_os != "freebsd":
        low = 0 if context.address_size == 8 or context.source.layout.little else 4
        return [NewRelocation(offset + low, context.machine.absolute, symbol, addend)]
    if not context.machine.pc_relative:
        raise UsdtError(f"{context.source.path}: DOF can't be written for {context.machine.name} on FreeBSD")
    place = context.editor.add_label(section, offset) if any(r.place for r in context.machine.pc_relative) else 0
    return [
        NewRelocation(offset + r.offset, r.type, place, r.addend)
        if r.place
        else NewRelocation(offset + r.offset, r.type, symbol, addend + r.addend)
        for r in context.machine.pc_relative
    ]
