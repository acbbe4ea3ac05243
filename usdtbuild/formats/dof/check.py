"""Would a consumer take this DOF? Applies what FreeBSD, illumos and Oracle DTrace (to 2.0.2) check before loading one.

The list is that of docs/formats/dof.md. Each finding says whether the consumer rejects the whole DOF or only ignores
something in it, because the second is what nobody is told about.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from . import layout
from .decode import Header, Section, decode, read_header, read_sections
from .types import Dof, DofError, DofProbe

PLATFORMS = ("freebsd", "illumos", "oracle")
REJECTED, IGNORED = "rejected", "ignored"


class DofFinding(NamedTuple):
    """One thing that a consumer will not take. `effect` is REJECTED (the whole DOF) or IGNORED (this part of it)."""

    effect: str
    what: str


def check(data: bytes, platform: str) -> list[DofFinding]:
    """Return what `platform` would reject or ignore in the DOF at the start of `data`; an empty list means nothing."""
    try:
        header = read_header(data[: layout.HEADER_SIZE], len(data))
        sections = read_sections(data, header)
        dof = decode(data)
    except DofError as error:
        return [DofFinding(REJECTED, str(error))]
    return [
        *_header(data, header, platform),
        *_sections(data, sections),
        *_relocations(data, header, sections, platform),
        *_providers(dof, platform),
    ]


def made_for(data: bytes) -> tuple[str, ...]:
    """Return the systems whose flavour the DOF at the start of `data` is; all of them where nothing is decisive."""
    try:
        dof = decode(data)
    except DofError:
        return PLATFORMS
    if dof.relocation == layout.DOFREL:
        return ("freebsd",)
    enabled = any(probe.enabled_offsets for provider in dof.providers for probe in provider.probes)
    if dof.version == 3:
        return ("oracle",)
    return ("freebsd", "illumos") if enabled else PLATFORMS


def _reject(what: str) -> DofFinding:
    return DofFinding(REJECTED, what)


def _header(data: bytes, header: Header, platform: str) -> Iterator[DofFinding]:
    fields = layout.structs(header.little).header.unpack_from(data, 16)
    expected = (layout.DIF_VERSION, layout.INTEGER_REGISTERS, layout.TUPLE_REGISTERS)
    if data[7] != layout.DIF_VERSION or data[8] > layout.INTEGER_REGISTERS or data[9] > layout.TUPLE_REGISTERS:
        yield _reject(f"DIF version {data[7]}, registers {data[8]} and {data[9]}; expected {expected}")
    if any(data[10:16]):
        yield _reject("bytes 10 to 15 of the header are not zero")
    if fields[0]:
        yield _reject(f"header flags {fields[0]:#x} are not zero")
    if header.section_size % 8 or header.section_offset % 8:
        where = f"{header.section_size} bytes at {header.section_offset:#x}"
        yield _reject(f"section headers of {where} are not aligned to 8")
    limit = layout.MAX_SIZE_ORACLE if platform == "oracle" else layout.MAX_SIZE
    if header.size >= limit:
        yield _reject(f"{header.size} bytes are not less than {limit}")
    if header.version == 3 and platform != "oracle":
        yield _reject("version 3 is Oracle's own")


def _sections(data: bytes, sections: list[Section]) -> Iterator[DofFinding]:
    for index, section in enumerate(sections):
        name = f"section {index} ({layout.NAMES.get(section.type, section.type)})"
        if not section.flags & layout.FLAG_LOAD:
            if section.type in layout.LOADABLE:
                yield _reject(f"{name} is not loaded")
            continue
        if section.align & (section.align - 1) or not section.align:
            yield _reject(f"{name}: alignment {section.align} is no power of two")
        elif section.offset % section.align:
            yield _reject(f"{name}: offset {section.offset:#x} is no multiple of {section.align}")
        if section.type == layout.STRTAB and (not section.size or data[section.offset + section.size - 1]):
            yield _reject(f"{name} does not end with a NUL")
        if section.type in {layout.PROVIDER, layout.PROFFS, layout.PRENOFFS} and section.offset % 4:
            yield _reject(f"{name}: offset {section.offset:#x} is no multiple of 4")
        if section.type == layout.PROBES:
            if not section.size:
                yield _reject(f"{name} is empty: a provider without probes")
            elif section.entsize % 8 or not layout.PROBE_SIZE <= section.entsize <= section.size:
                yield _reject(f"{name}: {section.size} bytes in entries of {section.entsize}")
            elif section.offset % 8:
                yield _reject(f"{name}: offset {section.offset:#x} is no multiple of 8")


def _relocations(data: bytes, header: Header, sections: list[Section], platform: str) -> Iterator[DofFinding]:
    structs = layout.structs(header.little)

    def is_loaded(index: int, type_: int | None = None) -> bool:
        if index >= len(sections) or not sections[index].flags & layout.FLAG_LOAD:
            return False
        return type_ is None or sections[index].type == type_

    for index, section in enumerate(sections):
        if section.type != layout.URELHDR or not section.flags & layout.FLAG_LOAD:
            continue
        if section.size < layout.URELHDR_SIZE or section.align != 4:
            yield _reject(f"section {index} (URELHDR) has {section.size} bytes, aligned to {section.align}")
            continue
        strings, table, target = structs.urelhdr.unpack_from(data, section.offset)
        if not (is_loaded(strings, layout.STRTAB) and is_loaded(table, layout.RELTAB) and is_loaded(target)):
            links = f"{strings}, {table} and {target}"
            yield _reject(f"section {index} (URELHDR) refers to sections {links}, which don't fit")
            continue
        linked = (sections[strings], sections[table], sections[target])
        yield from _relocation_table(data, structs, linked, platform)


def _relocation_table(
    data: bytes, structs: layout.Structs, linked: tuple[Section, Section, Section], platform: str
) -> Iterator[DofFinding]:
    strings, table, target = linked
    if table.entsize < layout.RELOCATION_SIZE or table.align != 8:
        yield _reject(f"relocations of {table.entsize} bytes, aligned to {table.align}")
        return
    for number in range(table.size // table.entsize):
        place = table.offset + number * table.entsize
        name, type_, offset, _ = structs.relocation.unpack_from(data, place)
        if name >= strings.size:
            yield _reject(f"relocation {number}: its name is outside the string table")
        if type_ not in (0, layout.SETX, layout.DOFREL):
            yield _reject(f"relocation {number}: type {type_} is unknown")
        elif type_ == layout.DOFREL and platform != "freebsd":
            yield _reject(f"relocation {number}: only FreeBSD knows DOFREL")
        if offset + 8 > target.size or (target.offset + offset) % 8:
            yield _reject(f"relocation {number}: {offset:#x} is no place in its section")


def _providers(dof: Dof, platform: str) -> Iterator[DofFinding]:
    if not dof.providers:
        yield DofFinding(IGNORED, "it has no provider")
    for provider in dof.providers:
        size = len(layout.encode_text(provider.name))
        if size > 63:
            yield _reject(f"provider name of {size} bytes")
        elif not provider.name or provider.name == "pid" or size > layout.MAX_PROVIDER:
            yield DofFinding(IGNORED, f"no provider is made for the name {provider.name!r}")
        seen: set[tuple[str, str]] = set()
        for probe in provider.probes:
            where = f"{provider.name}:{probe.name} in {probe.function[:40]}"
            for finding in _probe(probe, dof.version, platform):
                yield finding._replace(what=f"{where}: {finding.what}")
            key = (probe.function, probe.name)
            if key in seen and platform != "oracle":
                yield DofFinding(IGNORED, f"{where}: the same probe and function stand there before")
            seen.add(key)


def _probe(probe: DofProbe, version: int, platform: str) -> Iterator[DofFinding]:
    oracle = platform == "oracle"
    longest = layout.MAX_FUNCTION if platform == "freebsd" else layout.MAX_FUNCTION_ELSEWHERE
    if len(layout.encode_text(probe.function)) > longest:
        yield DofFinding(
            IGNORED if platform == "freebsd" else REJECTED, f"a function name of more than {longest} bytes"
        )
    if len(layout.encode_text(probe.name)) > layout.MAX_PROBE:
        yield _reject(f"a probe name of more than {layout.MAX_PROBE} bytes")
    if not probe.offsets and (not probe.enabled_offsets or (oracle and version < 3)):
        yield _reject("it has no site")
    elif oracle and probe.enabled_offsets and version < 3:
        yield DofFinding(IGNORED, "is-enabled sites, which Oracle's DTrace takes from version 3 on")
    for offsets, kind in ((probe.offsets, "site"), (probe.enabled_offsets, "is-enabled site")):
        if len(set(offsets)) < len(offsets):
            yield DofFinding(REJECTED if oracle else IGNORED, f"two {kind}s at one offset")
    if any(index > len(probe.native) for index in probe.mapping):
        yield _reject("a translated argument comes from none of the native ones")
    elif any(index == len(probe.native) for index in probe.mapping):  # the kernels' comparison is off by one
        yield DofFinding(IGNORED, "a translated argument comes from one behind the last of the native ones")
    if any(len(layout.encode_text(text)) > layout.MAX_TYPE for text in probe.native + probe.translated):
        yield _reject(f"a type of more than {layout.MAX_TYPE} bytes")
