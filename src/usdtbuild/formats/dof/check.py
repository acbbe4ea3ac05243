"""Would a consumer take this DOF? Applies what FreeBSD, illumos and Oracle DTrace (to 2.0.2) check before loading one.

The list is that of docs/formats/dof.md. Each finding says whether the consumer rejects the whole DOF or only ignores
something in it, because the second is what nobody is told about.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from . import layout as L
from .decode import Header, Section, decode, read_header, read_sections
from .types import DofError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .types import Dof, DofProbe

PLATFORMS = ("freebsd", "illumos", "oracle")
REJECTED, IGNORED = "rejected", "ignored"


class Finding(NamedTuple):
    """One thing that a consumer will not take. `effect` is REJECTED (the whole DOF) or IGNORED (this part of it)."""

    effect: str
    what: str


def check(data: bytes, platform: str) -> list[Finding]:
    """Return what `platform` would reject or ignore in the DOF at the start of `data`; an empty list means nothing."""
    try:
        header = read_header(data[: L.HEADER_SIZE], len(data))
        sections = read_sections(data, header)
        dof = decode(data)
    except DofError as error:
        return [Finding(REJECTED, str(error))]
    return [
        *_header(data, header, platform),
        *_sections(data, header, sections),
        *_relocations(data, header, sections, platform),
        *_providers(dof, platform),
    ]


def _header(data: bytes, header: Header, platform: str) -> Iterator[Finding]:
    fields = L.structs(header.little).header.unpack_from(data, 16)
    expected = (L.DIF_VERSION, L.INTEGER_REGISTERS, L.TUPLE_REGISTERS)
    if tuple(data[7:8]) != expected[:1] or data[8] > L.INTEGER_REGISTERS or data[9] > L.TUPLE_REGISTERS:
        yield Finding(REJECTED, f"DIF version {data[7]}, registers {data[8]} and {data[9]}; expected {expected}")
    if any(data[10:16]):
        yield Finding(REJECTED, "bytes 10 to 15 of the header are not zero")
    if fields[0]:
        yield Finding(REJECTED, f"header flags {fields[0]:#x} are not zero")
    if header.section_size % 8 or header.section_offset % 8:
        where = f"{header.section_size} bytes at {header.section_offset:#x}"
        yield Finding(REJECTED, f"section headers of {where} are not aligned to 8")
    limit = 256 << 20 if platform == "oracle" else L.MAX_SIZE
    if header.size >= limit:
        yield Finding(REJECTED, f"{header.size} bytes are not less than {limit}")
    if header.version == 3 and platform != "oracle":
        yield Finding(REJECTED, "version 3 is Oracle's own")


def _sections(data: bytes, header: Header, sections: list[Section]) -> Iterator[Finding]:
    for index, section in enumerate(sections):
        name = f"section {index} ({L.NAMES.get(section.type, section.type)})"
        if section.type in {L.STRTAB, L.RELTAB, L.URELHDR, L.PROVIDER, L.PROBES, L.PRARGS, L.PROFFS, L.PRENOFFS}:
            if not section.flags & L.FLAG_LOAD:
                yield Finding(REJECTED, f"{name} is not loaded")
                continue
        elif not section.flags & L.FLAG_LOAD:
            continue
        if section.align == 0 or section.align & (section.align - 1):
            yield Finding(REJECTED, f"{name}: alignment {section.align} is no power of two")
        elif section.offset % section.align:
            yield Finding(REJECTED, f"{name}: offset {section.offset:#x} is no multiple of {section.align}")
        if section.type == L.STRTAB and (not section.size or data[section.offset + section.size - 1]):
            yield Finding(REJECTED, f"{name} does not end with a NUL")
        if section.type == L.PROVIDER and section.align % 4:
            yield Finding(REJECTED, f"{name}: alignment {section.align} is no multiple of 4")
        if section.type == L.PROBES and not section.size:
            yield Finding(REJECTED, f"{name} is empty: a provider without probes")
        if section.type == L.PROBES and (section.entsize % 8 or section.entsize > max(section.size, L.PROBE_SIZE)):
            yield Finding(REJECTED, f"{name}: entries of {section.entsize} bytes")


def _relocations(data: bytes, header: Header, sections: list[Section], platform: str) -> Iterator[Finding]:
    structs = L.structs(header.little)
    for index, section in enumerate(sections):
        if section.type != L.URELHDR or not section.flags & L.FLAG_LOAD:
            continue
        if section.size < L.URELHDR_SIZE or section.align != 4:
            yield Finding(REJECTED, f"section {index} (URELHDR) has {section.size} bytes, aligned to {section.align}")
            continue
        links = structs.urelhdr.unpack_from(data, section.offset)
        if any(link >= len(sections) for link in links) or sections[links[1]].type != L.RELTAB:
            yield Finding(REJECTED, f"section {index} (URELHDR) refers to sections {links} that don't fit")
            continue
        if sections[links[0]].type != L.STRTAB:
            yield Finding(REJECTED, f"section {index} (URELHDR): section {links[0]} is no string table")
            continue
        yield from _relocation_table(data, structs, sections, links, platform)


def _relocation_table(
    data: bytes, structs: L.Structs, sections: list[Section], links: tuple[int, ...], platform: str
) -> Iterator[Finding]:
    strings, table, target = (sections[link] for link in links)
    if table.entsize < L.RELOCATION_SIZE or table.align != 8:
        yield Finding(REJECTED, f"relocations of {table.entsize} bytes, aligned to {table.align}")
        return
    for place in range(0, table.size - L.RELOCATION_SIZE + 1, table.entsize):
        name, type_, offset, _ = structs.relocation.unpack_from(data, table.offset + place)
        if name >= strings.size:
            yield Finding(REJECTED, f"relocation {place // table.entsize}: its name is outside the string table")
        if type_ not in (0, L.SETX, L.DOFREL):
            yield Finding(REJECTED, f"relocation {place // table.entsize}: type {type_} is unknown")
        elif type_ == L.DOFREL and platform != "freebsd":
            yield Finding(REJECTED, f"relocation {place // table.entsize}: only FreeBSD knows DOFREL")
        if offset + 8 > target.size or offset % 8:
            yield Finding(REJECTED, f"relocation {place // table.entsize}: {offset:#x} is no place in its section")


def _providers(dof: Dof, platform: str) -> Iterator[Finding]:
    if not dof.providers:
        yield Finding(IGNORED, "it has no provider")
    for provider in dof.providers:
        if len(provider.name) > 63:
            yield Finding(REJECTED, f"provider name of {len(provider.name)} characters")
        elif not provider.name or provider.name == "pid" or len(provider.name) > L.MAX_PROVIDER:
            yield Finding(IGNORED, f"no provider comes of the name {provider.name!r}")
        for probe in provider.probes:
            for finding in _probe(probe, dof.version, platform):
                yield finding._replace(what=f"{provider.name}:{probe.name} in {probe.function[:40]}: {finding.what}")


def _probe(probe: DofProbe, version: int, platform: str) -> Iterator[Finding]:
    oracle = platform == "oracle"
    longest = L.MAX_FUNCTION_ORACLE if oracle else L.MAX_FUNCTION
    if len(probe.function.encode()) > longest:
        yield Finding(REJECTED if oracle else IGNORED, f"a function name of more than {longest} characters")
    if len(probe.name) > L.MAX_PROBE:
        yield Finding(REJECTED, f"a probe name of more than {L.MAX_PROBE} characters")
    if not probe.offsets and (not probe.enabled_offsets or (oracle and version < 3)):
        yield Finding(REJECTED, "it has no site")
    for offsets, kind in ((probe.offsets, "site"), (probe.enabled_offsets, "is-enabled site")):
        if len(set(offsets)) < len(offsets):
            yield Finding(REJECTED if oracle else IGNORED, f"two {kind}s at one offset")
    if any(index >= len(probe.native) for index in probe.mapping):
        yield Finding(REJECTED, "a translated argument comes from none of the native ones")
    if any(len(text) > L.MAX_TYPE for text in probe.native + probe.translated):
        yield Finding(REJECTED, f"a type of more than {L.MAX_TYPE} characters")
