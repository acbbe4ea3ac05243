"""Records of probes in finished binaries and objects: one reader a format, and one kind of record for all.

A reader is a function from an `Image` to `Record`s, and a row of `READERS`: a new format is one of each. What is in a
record's bytes is known to `formats`; here are its places: which section, which relocation, which address.

Addresses are those of the file. In a relocatable object, which has none yet, they are section and offset, read through
the records' relocations.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Literal

from ..elf import layout as elf
from ..elf.image import Image
from ..elf.relocations import Relocation
from ..elf.sections import ImageSection
from ..errors import InputError, UsdtError
from ..formats import stapsdt
from ..limits import ARGUMENTS, NOTES
from ..machines import facts_of
from ..record import NamedTuple

_USDT_NOTES = ".note.usdt"


class Location(NamedTuple):
    """A place in a file: a run-time address, and the section and offset it falls into.

    In an object `address` is 0 and section and offset are all there is; a reference to something that another object
    defines has a `symbol` instead. `section` is '' where no section holds the address.
    """

    address: int
    section: str = ""
    offset: int = 0
    symbol: str = ""
    section_number: int = 0

    def text(self, in_object: bool) -> str:
        """Return the place as a user writes it: `0x1139`, or `.text+0x19`, or a symbol."""
        if not in_object:
            return f"{self.address:#x}"
        if self.section:
            return f"{self.section}+{self.offset:#x}"
        return self.symbol or "nowhere"


class Record(NamedTuple):
    """One record of a tracer format: one site, as it stands in the file.

    `written_site`, `written_base` and `written_semaphore` are the numbers in the record; `site` and `semaphore` are
    where readers look, after they have corrected for a moved base or an object's relocations. `base` is None and
    `semaphore` is None where the record has none. Formats without operands give `types`, the arguments' C types.
    `is_enabled` sites don't fire the probe, but ask whether it is traced.
    """

    format: str
    provider: str
    probe: str
    operands: str
    site: Location
    base: Location | None
    semaphore: Location | None
    place: Location
    written_site: int
    written_base: int
    written_semaphore: int
    types: tuple[str, ...] = ()
    is_enabled: bool = False


class RecordReader(NamedTuple):
    """One record format: its name, its section's name (for messages), and the function that reads it.

    `read` raises InputError, or for records that can't be taken apart another UsdtError.
    """

    format: str
    section: str
    read: Callable[[Image], Iterator[Record]]


def _read_stapsdt(image: Image) -> Iterator[Record]:
    for section in image.sections_named(stapsdt.SECTION):
        yield from read_notes(image, section)


def read_notes(image: Image, section: ImageSection) -> Iterator[Record]:
    """Yield the SDT notes of one section. Raises InputError and NoteError."""
    content = bytes(image.content(section))
    if image.is_object:
        content = _with_differences(image, section, content)
    notes = stapsdt.decode_with_offsets(content, image.address_size, little=image.little)
    if image.is_object:
        yield from _object_notes(image, section, notes)
        return
    base = next(iter(image.sections_named(stapsdt.BASE_SECTION)), None)
    base_at = Location(base.address, base.name) if base is not None else None
    semaphores: dict[int, Location | None] = {-1: None}  # which sites share; -1: there is none
    for offset, note in notes:
        # Readers add how far .stapsdt.base was moved; libbpf skips a note whose own base is 0, and so do we.
        shift = base.address - note.base if base is not None and note.base else 0
        semaphore = _wrap(image, note.semaphore + shift) if note.semaphore else -1
        if semaphore not in semaphores:
            semaphores[semaphore] = locate(image, semaphore)
        yield Record(
            "stapsdt", note.provider, note.name, note.arguments, locate(image, _wrap(image, note.pc + shift)),
            base_at, semaphores[semaphore],
            Location(0, section.name, offset, "", section.number), note.pc, note.base, note.semaphore,
        )  # fmt: skip


def _object_notes(image: Image, section: ImageSection, notes: list[tuple[int, stapsdt.Note]]) -> Iterator[Record]:
    """Yield an object's notes: their addresses are 0, or an addend, until the linker applies the relocations."""
    relocations = _by_offset(image, section)
    fields = stapsdt.fields(image.address_size)
    for offset, note in notes:
        site, base, semaphore = (
            _resolve(image, relocations.get(offset + field), written)
            for field, written in zip(fields, (note.pc, note.base, note.semaphore))
        )
        yield Record(
            "stapsdt", note.provider, note.name, note.arguments, site or Location(0), base, semaphore,
            Location(0, section.name, offset, section_number=section.number), note.pc, note.base, note.semaphore,
        )  # fmt: skip


def _with_differences(image: Image, section: ImageSection, content: bytes) -> bytes:
    """Return an object's records with the distances in them filled in.

    Objects for RISC-V and LoongArch leave differences of labels to the linker, which may move code, even those in
    a note, and the offsets of sites in DOF: two relocations, one that adds a label's value and one that subtracts
    another's.
    """
    known = facts_of(image.machine)
    signs = known.relocations.differences if known else {}
    if not signs:
        return content
    filled = bytearray(content)
    for relocation in image.relocations(section):
        symbol = image.symbol(relocation.symbol) if relocation.type in signs else None
        if symbol is not None and symbol.section and relocation.offset + 4 <= len(filled):
            old = image.layout.u32.unpack_from(filled, relocation.offset)[0]
            change = signs[relocation.type] * (symbol.value + (relocation.addend or 0))
            image.layout.u32.pack_into(filled, relocation.offset, old + change & 0xFFFFFFFF)
    return bytes(filled)


def _resolve(image: Image, relocation: Relocation | None, written: int) -> Location | None:
    """Return where an object's relocated address field points; None where nothing relocates it."""
    if relocation is None:
        return None
    symbol = image.symbol(relocation.symbol)
    addend = written if relocation.addend is None else relocation.addend
    if symbol is None:
        return None
    if 0 < symbol.section < len(image.sections):
        home = image.sections[symbol.section]
        return Location(0, home.name, _wrap(image, symbol.value + addend), symbol.name, home.number)
    return Location(0, "", addend, symbol.name)


def locate(image: Image, address: int) -> Location:
    """Return the Location of a run-time address."""
    section = image.section_at(address)
    if section is None:
        return Location(address)
    return Location(address, section.name, address - section.address)


def _wrap(image: Image, address: int) -> int:
    return address & (0xFFFFFFFFFFFFFFFF if image.is64 else 0xFFFFFFFF)


def _read_usdt_notes(image: Image) -> Iterator[Record]:
    """Yield the sites of `.note.usdt`, one note at a time, since only its offset tells which relocation is its own."""
    for section in image.sections_named(_USDT_NOTES):
        from ..formats import usdt_note

        content = bytes(image.content(section))
        relocations = _by_offset(image, section) if image.is_object else {}
        for offset, stop in _note_extents(image, content):
            for note in usdt_note.decode(content[offset:stop], little=image.little):
                if not isinstance(note, usdt_note.SiteNote):
                    continue
                site: Location | None = locate(image, note.pc)
                if image.is_object:
                    field = offset + usdt_note.PC_FIELD  # eight bytes, of which a 32-bit relocation fills the low half
                    site = _resolve(image, relocations.get(field) or relocations.get(field + 4), note.pc)
                yield Record(
                    "usdt", note.provider, note.probe, " ".join(note.arguments), site or Location(0), None, None,
                    Location(0, section.name, offset, section_number=section.number), note.pc, 0, 0,
                    is_enabled=note.enabled,
                )  # fmt: skip


def _note_extents(image: Image, content: bytes) -> Iterator[tuple[int, int]]:
    """Yield (start, end) of each note of a section; a last one that runs out of it gets what there is."""
    offset = 0
    while offset + 12 <= len(content):
        name_size, size = (image.layout.u32.unpack_from(content, offset + at)[0] for at in (0, 4))
        stop = offset + 12 + (name_size + 3 & ~3) + (size + 3 & ~3)
        yield offset, stop
        offset = stop


def _read_dof(image: Image) -> Iterator[Record]:
    """Yield the sites of every DOF in `.SUNW_dof`: linkers put those of the objects one behind the other."""
    for section in dof_sections(image):
        from ..formats.dof import decode, layout

        content = loaded_content(image, section)
        start = content.find(layout.MAGIC)
        while start >= 0:
            size = decode.size_of(content, start)
            yield from _dof_records(image, section, start, content[start : start + size])
            start = content.find(layout.MAGIC, start + size)


def dof_sections(image: Image) -> list[ImageSection]:
    """Return the sections of DOF, by their type or, where a tool has changed that, their name."""
    return [s for s in image.sections if s.type == elf.SHT_SUNW_DOF or s.name == ".SUNW_dof"]


def loaded_content(image: Image, section: ImageSection) -> bytes:
    """Return a section's bytes as the loader leaves them, if the file is loaded where it says.

    Some linkers leave addresses of position-independent files to the loader altogether: the bytes in the file are 0,
    and the address is the addend of a relocation without symbol.
    """
    content = bytearray(image.content(section))
    if image.is_object:
        return _with_differences(image, section, bytes(content))
    size = image.address_size
    for table in image.sections:
        if table.type != elf.SHT_RELA or not table.loaded:
            continue
        packed = image.content(table)
        for place, info, addend in image.layout.rela.iter_unpack(
            packed[: len(packed) // image.layout.rela.size * image.layout.rela.size]
        ):
            start = place - section.address
            if 0 <= start <= len(content) - size and not info >> (32 if image.is64 else 8):
                image.layout.word.pack_into(content, start, _wrap(image, addend))
    return bytes(content)


def _dof_records(image: Image, section: ImageSection, start: int, data: bytes) -> Iterator[Record]:
    from ..formats.dof import decode, merge

    raw, places = decode.decode_with_places(data)
    dof = merge.resolve(data, section.address + start)
    functions = _DofFunctions(image, section) if image.is_object else None
    for provider, fields in zip(dof.providers, places):
        for probe, field in zip(provider.probes, fields):
            function = functions.at(start + field, raw.relocation) if functions else None
            sites = [(offset, False) for offset in probe.offsets] + [(offset, True) for offset in probe.enabled_offsets]
            for offset, is_enabled in sites:
                where = locate(image, _wrap(image, probe.address + offset))
                if function is not None:
                    where = function._replace(offset=function.offset + offset)
                yield Record(
                    "dof", provider.name, probe.name, "", where, None, None,
                    Location(0, section.name, start + field, section_number=section.number),
                    probe.address + offset, 0, 0, probe.native, is_enabled,
                )  # fmt: skip


class _DofFunctions:
    """The functions that the address fields of an object's DOF are relocated to."""

    def __init__(self, image: Image, section: ImageSection) -> None:
        self.image = image
        self.content = image.content(section)
        self.relocations: dict[int, list[Relocation]] = {}
        for relocation in image.relocations(section):
            self.relocations.setdefault(relocation.offset, []).append(relocation)

    def at(self, field: int, relocation_of_dof: int) -> Location:
        """Return the function of the field at an offset of the section.

        Relocations of 32 bits fill the low half of a field, of which a distance is counted from the field's start all
        the same. Machines that take a distance as two relocations name the field itself by the other one.
        """
        from ..formats.dof.layout import DOFREL

        order: Literal["little", "big"] = "little" if self.image.little else "big"
        for half in (0, 4):
            for relocation in self.relocations.get(field + half, ()):
                written = int.from_bytes(self.content[field + half : field + half + 4], order)
                found = _resolve(self.image, relocation, written)
                if found and found.section_number and self.image.sections[found.section_number].executable:
                    excess = half if relocation_of_dof == DOFREL else 0
                    return found._replace(offset=_wrap(self.image, found.offset - excess))
        return Location(0)


def _by_offset(image: Image, section: ImageSection) -> dict[int, Relocation]:
    return {relocation.offset: relocation for relocation in image.relocations(section) if relocation.type}


READERS: tuple[RecordReader, ...] = (
    RecordReader("stapsdt", stapsdt.SECTION, _read_stapsdt),
    RecordReader("dof", ".SUNW_dof", _read_dof),
    RecordReader("usdt", _USDT_NOTES, _read_usdt_notes),
)


class Room:
    """How much more of one format is read of a file: any number of sections may hold the same notes."""

    def __init__(self) -> None:
        self.sites, self.arguments = NOTES, ARGUMENTS

    def limited(self, found: Iterable[Record]) -> Iterator[Record]:
        """Yield the records. Raises UsdtError where there is no more room."""
        for record in found:
            self.sites -= 1
            self.arguments -= max(len(record.types), len(record.operands.split()))
            if self.is_full:
                most = f"{NOTES} notes or {ARGUMENTS} arguments, which is the most that is read"
                raise UsdtError(f"it has more than {most}")
            yield record

    @property
    def is_full(self) -> bool:
        """Whether there was more than is read."""
        return self.sites < 0 or self.arguments < 0


def records(image: Image, reader: RecordReader) -> list[Record]:
    """Return what one reader finds. Raises InputError where a record can't be taken apart, or there are too many."""
    try:
        return list(Room().limited(reader.read(image)))
    except InputError:
        raise
    except UsdtError as error:
        raise image.error(f"section {reader.section}: {error}") from None


def site_places(image: Image) -> dict[int, list[int]]:
    """Return the places of all sites: in an object the offsets by section number, else the addresses, under 0.

    None where records are damaged: that is for whoever reads the probes to say.
    """
    found: dict[int, list[int]] = {}
    try:
        for reader in READERS:
            if reader.format == "stapsdt" and not image.is_object:
                found[0] = _noted(image)
            else:
                by_section([record.site for record in records(image, reader)], image.is_object, found)
    except UsdtError:
        return {}
    return found


def by_section(sites: Iterable[Location], in_object: bool, found: dict[int, list[int]]) -> dict[int, list[int]]:
    """Add the places of `sites` to `found`, as `site_places` has them, and return it."""
    for site in sites:
        section, place = (site.section_number, site.offset) if in_object else (0, site.address)
        found.setdefault(section, []).append(place)
    return found


def _noted(image: Image) -> list[int]:
    """Return the addresses of all SDT notes of a linked file, without the rest of the notes."""
    base = next(iter(image.sections_named(stapsdt.BASE_SECTION)), None)
    found: list[tuple[int, int]] = []
    for section in image.sections_named(stapsdt.SECTION):
        found += stapsdt.places(bytes(image.content(section)), image.address_size, little=image.little)
    if base is None:
        return [pc for pc, _ in found]
    moved, mask = base.address, (1 << 8 * image.address_size) - 1
    return [pc + moved - written & mask if written else pc for pc, written in found]
