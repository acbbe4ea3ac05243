"""Reads a DOF: bytes in, records out. Everything is checked against the bytes at hand before it is read.

What makes a DOF readable is checked here; what would make a consumer refuse or ignore it is `check`'s business.
"""

from __future__ import annotations

import re
from mmap import MADV_DONTNEED, mmap
from typing import TYPE_CHECKING, NamedTuple

from ...model import Attribute, Attributes
from . import layout
from .types import Dof, DofError, DofProbe, DofProvider

if TYPE_CHECKING:
    from ...files import Data

_PIECE = 16 << 20
_NOT_ZERO = re.compile(rb"[^\0]")


class Header(NamedTuple):
    """The fields of a DOF's header that matter; `size` is loadsz."""

    version: int
    address_size: int
    little: bool
    section_count: int
    section_offset: int
    section_size: int
    size: int


class Section(NamedTuple):
    """One section header."""

    type: int
    align: int
    flags: int
    entsize: int
    offset: int
    size: int


def size_of(data: Data, offset: int = 0) -> int:
    """Return how many bytes the DOF at `offset` takes. Raises DofError."""
    return read_header(data[offset : offset + layout.HEADER_SIZE], len(data) - offset).size


def split(data: Data) -> list[tuple[int, bytes]]:
    """Return (offset, bytes) of each DOF in a section's content, where a linker has put them in a row.

    Between them may stand our trailers, the runtime's mark (a trailer of size 0), and a linker's padding of zeros.
    Raises DofError where something else does.
    """
    found = []
    place = 0
    while place < len(data):
        if data[place : place + 4] == layout.TRAILER_MAGIC:
            place += layout.TRAILER_SIZE
        elif data[place] == 0:
            place = _behind_zeros(data, place)
        else:
            try:
                size = size_of(data, place)
            except DofError as error:
                raise DofError(f"at offset {place:#x}: {error}") from None
            if size > layout.MAX_SIZE_ORACLE:
                raise DofError(f"at offset {place:#x}: {size} bytes of DOF are more than any consumer takes")
            found.append((place, bytes(data[place : place + size])))
            place += size + -size % 8
    return found


def _behind_zeros(data: Data, place: int) -> int:
    """Return where the next byte that isn't 0 is. Read in pieces: what is looked at of a mapping stays in memory."""
    while place < len(data):
        filled = _NOT_ZERO.search(bytes(data[place : place + _PIECE]))
        if filled:
            return place + filled.start()
        place += _PIECE
        if isinstance(data, mmap):
            data.madvise(MADV_DONTNEED)
    return len(data)


def read_header(data: bytes, available: int) -> Header:
    """Read and check the header, of whose DOF `available` bytes are there. Raises DofError."""
    if len(data) < layout.HEADER_SIZE:
        raise DofError(f"{len(data)} bytes are less than a DOF header's {layout.HEADER_SIZE}")
    if data[:4] != layout.MAGIC:
        raise DofError(f"begins with {data[:4].hex()}, and a DOF begins with 7f444f46")
    if data[4] not in (1, 2) or data[5] not in (1, 2) or data[6] not in layout.PROVIDER_SIZES:
        raise DofError(f"model {data[4]}, encoding {data[5]}, version {data[6]}: one of them is unknown")
    little = data[5] == layout.ENCODING_LSB
    _, hdrsize, secsize, secnum, secoff, loadsz, filesz, _ = layout.structs(little).header.unpack_from(data, 16)
    if hdrsize != layout.HEADER_SIZE or secsize < layout.SECTION_SIZE:
        raise DofError(f"header of {hdrsize} bytes and section headers of {secsize}")
    if not layout.HEADER_SIZE <= loadsz <= min(filesz, available):
        raise DofError(f"loadable size {loadsz:#x}, file size {filesz:#x}, and {available:#x} bytes are there")
    if secoff + secnum * secsize > loadsz:
        raise DofError(f"{secnum} section headers at offset {secoff:#x} run out of its {loadsz:#x} bytes")
    return Header(data[6], 8 if data[4] == layout.MODEL_LP64 else 4, little, secnum, secoff, secsize, loadsz)


def read_sections(data: bytes, header: Header) -> list[Section]:
    """Return the section headers, each checked to lie within the DOF. Raises DofError."""
    unpack = layout.structs(header.little).section
    sections = []
    for index in range(header.section_count):
        section = Section(*unpack.unpack_from(data, header.section_offset + index * header.section_size))
        if section.flags & layout.FLAG_LOAD and section.offset + section.size > header.size:
            raise DofError(
                f"section {index} at offset {section.offset:#x} runs out of the DOF's {header.size:#x} bytes"
            )
        sections.append(section)
    return sections


def decode(data: bytes) -> Dof:
    """Return what the DOF at the start of `data` says. Raises DofError."""
    return decode_with_places(data)[0]


def decode_with_places(data: bytes) -> tuple[Dof, tuple[tuple[int, ...], ...]]:
    """Return what the DOF at the start of `data` says, and where in it each probe's address stands, as nested."""
    header = read_header(data[: layout.HEADER_SIZE], len(data))
    reader = _Reader(data, header)
    read = [reader.provider(index) for index, section in enumerate(reader.sections) if section.type == layout.PROVIDER]
    providers = tuple(provider for provider, _ in read)
    dof = Dof(header.version, header.address_size, header.little, reader.relocation(), providers)
    return dof, tuple(places for _, places in read)


class _Reader:
    """One DOF being read: gives strings, table entries and providers, or raises DofError."""

    def __init__(self, data: bytes, header: Header) -> None:
        self.data, self.header = data, header
        self.structs = layout.structs(header.little)
        self.sections = read_sections(data, header)
        # Records may share strings and table entries, but what they say in all is bounded, or a few hundred kilobytes
        # could ask for gigabytes.
        self.budget = 64 * header.size

    def spend(self, amount: int) -> None:
        self.budget -= amount
        if self.budget < 0:
            raise DofError("its records refer to far more strings and offsets than it holds")

    def section(self, index: int, type_: int, what: str, entsize: int = 0) -> Section:
        if index >= len(self.sections) or self.sections[index].type != type_:
            raise DofError(f"{what} is said to be section {index}, which is no {layout.NAMES[type_]} section")
        section = self.sections[index]
        if not section.flags & layout.FLAG_LOAD:
            raise DofError(f"section {index} ({layout.NAMES[type_]}) is not loaded")
        if entsize and section.entsize != entsize:
            raise DofError(
                f"section {index} ({layout.NAMES[type_]}) has entries of {section.entsize} bytes, not {entsize}"
            )
        return section

    def strings(self, table: Section, offset: int, count: int) -> tuple[str, ...]:
        found = []
        for _ in range(count):
            if offset >= table.size:
                raise DofError(f"string at {offset:#x} lies outside the string table of {table.size:#x} bytes")
            start = table.offset + offset
            end = self.data.find(b"\0", start, table.offset + table.size)
            if end < 0:
                raise DofError(f"string at {offset:#x} of the string table has no end")
            self.spend(end - start + 1)
            found.append(self.data[start:end].decode("utf-8", "surrogateescape"))
            offset += end - start + 1
        return tuple(found)

    def numbers(self, table: Section, first: int, count: int, what: str) -> tuple[int, ...]:
        if (first + count) * table.entsize > table.size:
            raise DofError(
                f"{count} {what} from number {first} run out of their table of {table.size // table.entsize}"
            )
        self.spend(4 * count)
        start = table.offset + first * table.entsize
        if table.entsize == 1:
            return tuple(self.data[start : start + count])
        return tuple(self.structs.u32.unpack_from(self.data, start + 4 * i)[0] for i in range(count))

    def provider(self, index: int) -> tuple[DofProvider, tuple[int, ...]]:
        size = layout.PROVIDER_SIZES[self.header.version]
        section = self.section(index, layout.PROVIDER, "the provider")
        if section.size < size:
            raise DofError(f"section {index} (PROVIDER) has {section.size} bytes, and needs {size}")
        fields = self.structs.provider.unpack_from(self.data, section.offset)
        strtab = self.section(fields[0], layout.STRTAB, "the string table")
        probes = self.section(fields[1], layout.PROBES, "the probe table")
        arguments = self.section(fields[2], layout.PRARGS, "the argument table", 1)
        offsets = self.section(fields[3], layout.PROFFS, "the offset table", 4)
        enabled = None
        if self.header.version > 1:
            link = self.structs.u32.unpack_from(self.data, section.offset + 40)[0]
            enabled = self.section(link, layout.PRENOFFS, "the is-enabled offset table", 4) if link else None
        if probes.entsize < layout.PROBE_SIZE:
            raise DofError(f"section {fields[1]} (PROBES) has entries of {probes.entsize} bytes")
        places = range(probes.offset, probes.offset + probes.size - layout.PROBE_SIZE + 1, probes.entsize)
        found = tuple(self.probe(place, strtab, arguments, offsets, enabled) for place in places)
        attributes = Attributes(*(Attribute(w >> 24, w >> 16 & 0xFF, w >> 8 & 0xFF) for w in fields[5:10]))
        return DofProvider(self.strings(strtab, fields[4], 1)[0], attributes, found), tuple(places)

    def probe(
        self, place: int, strtab: Section, arguments: Section, offsets: Section, enabled: Section | None
    ) -> DofProbe:
        fields = self.structs.probe.unpack_from(self.data, place)
        address, function, name, nargv, xargv, argidx, offidx, nargc, xargc, noffs, enoffidx, nenoffs = fields[:12]
        if self.header.version > 1 and enabled is None and (nenoffs or enoffidx):
            raise DofError("a probe has is-enabled sites, and there is no table of them")
        return DofProbe(
            self.strings(strtab, function, 1)[0],
            self.strings(strtab, name, 1)[0],
            self.strings(strtab, nargv, nargc),
            self.strings(strtab, xargv, xargc),
            self.numbers(arguments, argidx, xargc, "translated arguments"),
            self.numbers(offsets, offidx, noffs, "offsets"),
            self.numbers(enabled, enoffidx, nenoffs, "is-enabled offsets") if enabled else (),
            address,
        )

    def relocation(self) -> int:
        """Return the type that all DOF relocations have, or 0 where there are none."""
        types = {
            self.structs.relocation.unpack_from(self.data, section.offset + place)[1]
            for section in self.sections
            if section.type == layout.RELTAB
            and section.flags & layout.FLAG_LOAD
            and section.entsize >= layout.RELOCATION_SIZE
            for place in range(0, section.size - layout.RELOCATION_SIZE + 1, section.entsize)
        }
        types.discard(0)  # does nothing
        if len(types) > 1:
            raise DofError(f"relocations of several types: {', '.join(map(str, sorted(types)))}")
        return types.pop() if types else 0
