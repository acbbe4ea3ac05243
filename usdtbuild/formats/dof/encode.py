"""Writes a DOF: records in, bytes out, in the order that `dtrace -G` uses. Limits are enforced before that.

Nothing of the build host goes in (no COMMENTS, no UTSNAME): the same records give the same bytes.
"""

from __future__ import annotations

from typing import NamedTuple

from . import layout
from .types import AddressField, Dof, DofError, DofProbe, DofProvider, Encoded, OffsetField


class _Section(NamedTuple):
    type: int
    align: int
    entsize: int
    data: bytes


class _Strings:
    """A string table in which each text stands once, except where several must follow one another."""

    def __init__(self) -> None:
        self.data = bytearray(b"\0")
        self._places: dict[bytes, int] = {b"": 0}

    def add(self, text: str) -> int:
        return self.add_list((text,))

    def add_list(self, texts: tuple[str, ...]) -> int:
        """Add texts that stand one behind the other; return where the first does (0 for none)."""
        packed = b"\0".join(layout.encode_text(text) for text in texts)
        if not texts:
            return 0
        if packed not in self._places:
            self._places[packed] = len(self.data)
            self.data += packed + b"\0"
        return self._places[packed]


def encode(dof: Dof) -> Encoded:
    """Return the bytes of `dof` and where its addresses and offsets stand. Raises DofError on a broken limit."""
    _enforce_limits(dof)
    structs = layout.structs(dof.little)
    strings = _Strings()
    sections = [_Section(layout.STRTAB, 1, 0, b"")]
    fields: list[tuple[int, int, list[OffsetField]]] = []  # of each provider: index of PROBES, and its offset fields
    for number, provider in enumerate(dof.providers):
        first = len(sections)
        made, offsets = _provider_sections(dof, structs, strings, provider, number, first)
        sections += made
        fields.append((first, number, offsets))
    places, size = _places(sections)
    # The string table comes last, and ends the DOF on a multiple of eight so that linkers can put DOFs in a row.
    table = bytes(strings.data) + bytes(-(size + len(strings.data)) % 8)
    sections[0] = sections[0]._replace(data=table)
    places[0] = size
    data = _assemble(dof, structs, sections, places, size + len(table))
    if len(data) >= layout.MAX_SIZE:
        raise DofError(
            f"DOF of {len(data)} bytes; consumers take less than {layout.MAX_SIZE}: use fewer probes in one object"
        )
    addresses = tuple(
        AddressField(places[first] + index * layout.PROBE_SIZE, number, index)
        for first, number, _ in fields
        for index in range(len(dof.providers[number].probes))
    )
    offsets_found = tuple(
        field._replace(offset=field.offset + places[first + (3 if field.enabled else 2)])
        for first, _, found in fields
        for field in found
    )
    return Encoded(data, addresses, offsets_found)


def with_trailer(data: bytes, *, little: bool) -> bytes:
    """Return an encoded DOF as it stands in an object's section: followed by its size, for the runtime."""
    return data + layout.TRAILER_MAGIC + layout.structs(little).u32.pack(len(data))


def _places(sections: list[_Section]) -> tuple[list[int], int]:
    """Return the file offset of each section's data but the string table's, and where that may begin."""
    position = layout.HEADER_SIZE + layout.SECTION_SIZE * len(sections)
    places = [0]
    for section in sections[1:]:
        position += -position % section.align
        places.append(position)
        position += len(section.data)
    return places, position


def _assemble(dof: Dof, structs: layout.Structs, sections: list[_Section], places: list[int], size: int) -> bytes:
    ident = bytearray(16)
    ident[:4] = layout.MAGIC
    ident[4] = layout.MODEL_LP64 if dof.address_size == 8 else layout.MODEL_ILP32
    ident[5] = layout.ENCODING_LSB if dof.little else layout.ENCODING_MSB
    ident[6:10] = bytes((dof.version, layout.DIF_VERSION, layout.INTEGER_REGISTERS, layout.TUPLE_REGISTERS))
    out = bytearray(size)
    out[:16] = ident
    structs.header.pack_into(
        out, 16, 0, layout.HEADER_SIZE, layout.SECTION_SIZE, len(sections), layout.HEADER_SIZE, size, size, 0
    )
    for index, (section, place) in enumerate(zip(sections, places)):
        header = (section.type, section.align, layout.FLAG_LOAD, section.entsize, place, len(section.data))
        structs.section.pack_into(out, layout.HEADER_SIZE + index * layout.SECTION_SIZE, *header)
        out[place : place + len(section.data)] = section.data
    return bytes(out)


def _provider_sections(
    dof: Dof, structs: layout.Structs, strings: _Strings, provider: DofProvider, number: int, first: int
) -> tuple[list[_Section], list[OffsetField]]:
    """Return the provider's sections, the first of which will be section number `first`, and its offset fields."""
    name = strings.add(provider.name)
    probes, arguments, offsets, enabled = bytearray(), bytearray(), bytearray(), bytearray()
    relocations = bytearray()
    fields: list[OffsetField] = []
    for index, probe in enumerate(provider.probes):
        for which, table, values in ((False, offsets, probe.offsets), (True, enabled, probe.enabled_offsets)):
            fields += [OffsetField(len(table) + 4 * i, number, index, i, which) for i in range(len(values))]
        function = strings.add(probe.function)
        probes += structs.probe.pack(
            probe.address, function, strings.add(probe.name),
            strings.add_list(probe.native), strings.add_list(probe.translated),
            len(arguments), len(offsets) // 4, len(probe.native), len(probe.translated), len(probe.offsets),
            len(enabled) // 4 if dof.version > 1 else 0, len(probe.enabled_offsets), 0, 0,
        )  # fmt: skip
        arguments += bytes(probe.mapping)
        offsets += b"".join(structs.u32.pack(value) for value in probe.offsets)
        enabled += b"".join(structs.u32.pack(value) for value in probe.enabled_offsets)
        if dof.relocation:
            relocations += structs.relocation.pack(function, dof.relocation, index * layout.PROBE_SIZE, 0)
    sections = [
        _Section(layout.PROBES, 8, layout.PROBE_SIZE, bytes(probes)),
        _Section(layout.PRARGS, 1, 1, bytes(arguments)),
        _Section(layout.PROFFS, 4, 4, bytes(offsets)),
    ]
    attributes = [attribute.encode() for attribute in provider.attributes]
    record = structs.provider.pack(0, first, first + 1, first + 2, name, *attributes)
    if enabled:
        sections.append(_Section(layout.PRENOFFS, 4, 4, bytes(enabled)))
    if dof.version > 1:
        record += structs.u32.pack(first + 3 if enabled else 0)
    sections.append(_Section(layout.PROVIDER, 4, 0, record))
    if relocations:
        sections.append(_Section(layout.RELTAB, 8, layout.RELOCATION_SIZE, bytes(relocations)))
        header = structs.urelhdr.pack(0, first + len(sections) - 1, first)
        sections.append(_Section(layout.URELHDR, 4, 0, header))
    return sections, fields


def _enforce_limits(dof: Dof) -> None:
    """Refuse what a consumer would reject, or drop without a word."""
    for provider in dof.providers:
        if not provider.probes:
            raise DofError(f"provider {provider.name} has no probe in this DOF; consumers reject that")
        if provider.name in {"", "pid"} or _is_long(layout.MAX_PROVIDER, provider.name):
            raise DofError(
                f"provider name {provider.name[:60]!r}: DTrace makes no provider of an empty name, of 'pid' "
                f"or of more than {layout.MAX_PROVIDER} bytes"
            )
        for probe in provider.probes:
            _enforce_probe(dof, provider, probe)


def _enforce_probe(dof: Dof, provider: DofProvider, probe: DofProbe) -> None:
    where = f"probe {provider.name}:{probe.name} in function {probe.function[:60]}"
    function = layout.MAX_FUNCTION if dof.relocation == layout.DOFREL else layout.MAX_FUNCTION_ELSEWHERE
    types, sites = probe.native + probe.translated, probe.offsets + probe.enabled_offsets
    problems = (
        (_is_long(function, probe.function), f"the function's name has more than {function} bytes"),
        (not probe.name or _is_long(layout.MAX_PROBE, probe.name), f"a probe's name has 1 to {layout.MAX_PROBE} bytes"),
        (not sites, "it has no site"),
        (
            max(len(probe.offsets), len(probe.enabled_offsets)) > layout.MAX_OFFSETS,
            f"more than {layout.MAX_OFFSETS} sites",
        ),
        (len(set(probe.offsets)) < len(probe.offsets), "two sites at one address"),
        (len(set(probe.enabled_offsets)) < len(probe.enabled_offsets), "two is-enabled sites at one address"),
        (any(not 0 <= offset < 1 << 32 for offset in sites), "a site outside its function"),
        (
            max(len(probe.native), len(probe.translated)) > layout.MAX_ARGUMENTS,
            f"more than {layout.MAX_ARGUMENTS} arguments",
        ),
        (_is_long(layout.MAX_TYPE, *types), f"a type of more than {layout.MAX_TYPE} bytes"),
        (len(probe.mapping) != len(probe.translated), "each translated argument needs the index of a native one"),
        (
            any(not 0 <= index < len(probe.native) for index in probe.mapping),
            "a translated argument comes from none of the native ones",
        ),
        (dof.version == 1 and bool(probe.enabled_offsets), "DOF version 1 has no is-enabled sites"),
        (any("\0" in text for text in (provider.name, probe.name, probe.function, *types)), "a name with a NUL"),
    )
    for broken, what in problems:
        if broken:
            raise DofError(f"{where}: {what}; DTrace would drop it or reject the whole DOF")


def _is_long(limit: int, *texts: str) -> bool:
    return any(len(layout.encode_text(text)) > limit for text in texts)
