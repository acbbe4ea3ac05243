"""What will a tracer see? Probes, sites, arguments and semaphores of a finished binary, or of an object.

Each record format has one reader, a row of `READERS`: a function from an `Image` to `Record`s. Everything after that
is common: records become sites, sites of one name become a probe, and the provider's description, where the file still
carries it (`provider.describe`), gives arguments their C types and names. Nothing here knows how the file was made,
and nothing is judged: what is wrong with a record is `verify`'s business.

Addresses are those of the file. In a relocatable object, which has none yet, they are section and offset, read through
the records' relocations.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Callable, NamedTuple

from .elf.image import PF_W, Function
from .formats import operands, stapsdt
from .formats.operands import Operand
from .provider import describe

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .elf.image import Image, Relocation, Section
    from .provider.model import Argument as Declared
    from .provider.model import Probe as DeclaredProbe
    from .provider.model import Provider


# machine -> relocation type -> what it does to a 32-bit word: R_RISCV_ADD32/SUB32, R_LARCH_ADD32/SUB32
_DIFFERENCES = {operands.EM_RISCV: {35: 1, 39: -1}, operands.EM_LOONGARCH: {50: 1, 55: -1}}


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
    `semaphore` is None where the record has none.
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


class Argument(NamedTuple):
    """One argument of a site: how the record spells it, and its C type and name where the file still knows them."""

    operand: Operand
    type: str
    name: str


class Semaphore(NamedTuple):
    """A probe's semaphore. `backed`: it lies in a writable part of the program that comes from the file, as the kernel
    wants it (None in an object). `value` is what it holds in a running process, where that can be read."""

    location: Location
    backed: bool | None
    value: int | None = None


class Site(NamedTuple):
    """One place in the code where a probe fires. `runtime_address` is set for a running process only."""

    location: Location
    function: Function | None
    operands: str
    arguments: tuple[Argument, ...]
    semaphore: Semaphore | None
    record: Record
    runtime_address: int | None = None


class Probe(NamedTuple):
    """All sites of one probe in one format, by address."""

    provider: str
    name: str
    format: str
    sites: tuple[Site, ...]


class Inspection(NamedTuple):
    """What one file shows to tracers; `providers` are those that the file itself describes.

    `problem` says what of the description can't be read. `pid` and `load_bias`, what the loader added to the file's
    addresses, are set for a running process only.
    """

    path: str
    kind: str
    machine: str
    address_size: int
    little: bool
    build_id: str
    probes: tuple[Probe, ...]
    providers: dict[str, tuple[Provider, str]]
    problem: str = ""
    pid: int | None = None
    load_bias: int | None = None

    @property
    def in_object(self) -> bool:
        """Whether places are sections and offsets."""
        return self.kind == "object"

    @property
    def site_count(self) -> int:
        """Sites of all probes together."""
        return sum(len(probe.sites) for probe in self.probes)


def inspect(image: Image) -> Inspection:
    """Return what tracers see in a file. Raises InputError where records or the file are damaged."""
    return summarise(image, [record for reader in READERS for record in _records(image, reader)])


def _records(image: Image, reader: Reader) -> list[Record]:
    try:
        return list(reader.read(image))
    except stapsdt.NoteError as error:
        raise image.error(f"section {reader.section}: {error}") from None


def summarise(image: Image, records: list[Record]) -> Inspection:
    """Return the records of a file as probes and sites, with the types that the file's own description gives."""
    providers, problem = description(image)
    grouped: dict[tuple[str, str, str], list[Site]] = {}
    for record in records:
        declared = find_declared(providers, record.provider, record.probe)
        site = _site(image, record, declared)
        grouped.setdefault((record.provider, record.probe, record.format), []).append(site)
    probes = []
    for (provider, name, format_), sites in sorted(grouped.items()):
        sites.sort(key=lambda site: (site.location.section_number, site.location.address, site.location.offset))
        probes.append(Probe(provider, name, format_, tuple(sites)))
    return Inspection(
        image.path, image.kind, image.machine_name, image.address_size, image.little, image.build_id.hex(),
        tuple(probes), providers, problem,
    )  # fmt: skip


def _site(image: Image, record: Record, declared: DeclaredProbe | None) -> Site:
    where = record.site
    function = image.function_at(where.offset if image.is_object else where.address, where.section_number)
    semaphore = None
    if record.semaphore is not None:
        semaphore = Semaphore(record.semaphore, None if image.is_object else is_backed(image, record.semaphore.address))
    parsed = operands.parse(record.operands, image.machine)
    known = declared.arguments if declared is not None else ()
    arguments = tuple(
        _argument(operand, known[index] if index < len(known) else None) for index, operand in enumerate(parsed)
    )
    return Site(where, function, record.operands, arguments, semaphore, record)


def _argument(operand: Operand, declared: Declared | None) -> Argument:
    if declared is None:
        return Argument(operand, "", "")
    return Argument(operand, declared.type.spelling, declared.name)


def is_backed(image: Image, address: int) -> bool:
    """Whether the two bytes at an address lie in a writable segment and in the file."""
    segment = image.segment_at(address)
    inside = segment is not None and address + 2 <= segment.address + segment.file_size
    return bool(segment and segment.flags & PF_W and inside)


# -- the provider's description ----------------------------------------------------------------------------------------


def description_text(image: Image) -> str:
    """Return the text of all description sections of a file."""
    sections = image.sections_named(describe.SECTION)
    return "".join(str(bytes(image.content(section)), "utf-8", "replace") for section in sections)


def description(image: Image) -> tuple[dict[str, tuple[Provider, str]], str]:
    """Return the providers that a file describes, and what of the description can't be read ('' where all can)."""
    try:
        return describe.decode(description_text(image)), ""
    except describe.DescriptionError as error:
        return {}, f"section {describe.SECTION}: {error}"


def find_declared(providers: dict[str, tuple[Provider, str]], provider: str, probe: str) -> DeclaredProbe | None:
    """Return the declaration of a probe, whichever way its name is spelled (`req-done`, `req__done`)."""
    found = providers.get(provider)
    wanted = probe.replace("__", "-")
    return next((declared for declared in found[0].probes if declared.name == wanted), None) if found else None


# -- readers, one a format ---------------------------------------------------------------------------------------------


class Reader(NamedTuple):
    """One record format: its name, its section's name (for messages), and the function that reads it.

    `read` raises InputError, or NoteError for records that can't be taken apart.
    """

    format: str
    section: str
    read: Callable[[Image], Iterator[Record]]


def _read_stapsdt(image: Image) -> Iterator[Record]:
    """Yield the SDT notes of a file."""
    for section in image.sections_named(stapsdt.SECTION):
        yield from read_notes(image, section)


def read_notes(image: Image, section: Section) -> Iterator[Record]:
    """Yield the SDT notes of one section. Raises InputError and NoteError."""
    content = bytes(image.content(section))
    if image.is_object:
        content = _with_differences(image, section, content)
    notes = stapsdt.decode_with_offsets(content, image.address_size, little=image.little)
    if image.is_object:
        yield from _object_notes(image, section, notes)
        return
    base = next(iter(image.sections_named(stapsdt.BASE_SECTION)), None)
    for offset, note in notes:
        # Readers add how far .stapsdt.base was moved; libbpf skips a note whose own base is 0, and so do we.
        shift = base.address - note.base if base is not None and note.base else 0
        semaphore = locate(image, _wrap(image, note.semaphore + shift)) if note.semaphore else None
        yield Record(
            "stapsdt", note.provider, note.name, note.arguments, locate(image, _wrap(image, note.pc + shift)),
            Location(base.address, base.name) if base is not None else None, semaphore,
            Location(0, section.name, offset, section_number=section.number), note.pc, note.base, note.semaphore,
        )  # fmt: skip


def _object_notes(image: Image, section: Section, notes: list[tuple[int, stapsdt.Note]]) -> Iterator[Record]:
    """Yield an object's notes: their addresses are 0, or an addend, until the linker applies the relocations."""
    relocations = {relocation.offset: relocation for relocation in image.relocations(section) if relocation.type}
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


def _with_differences(image: Image, section: Section, content: bytes) -> bytes:
    """Return an object's notes with their sizes filled in.

    Assemblers for RISC-V and LoongArch leave differences of labels to the linker, which may move code, even those in
    a note: two relocations, one that adds a label's value and one that subtracts another's.
    """
    signs = _DIFFERENCES.get(image.machine)
    if signs is None:
        return content
    filled = bytearray(content)
    for relocation in image.relocations(section):
        symbol = image.symbol(relocation.symbol) if relocation.type in signs else None
        if symbol is not None and symbol.section == section.number and relocation.offset + 4 <= len(filled):
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


READERS: tuple[Reader, ...] = (Reader("stapsdt", stapsdt.SECTION, _read_stapsdt),)
