"""What will a tracer see? Probes, sites, arguments and semaphores of a finished binary, or of an object.

`records` finds the records, in whatever format; here they become sites, sites of one name become a probe, and the
provider's description, where the file still carries it (`provider.describe`), gives arguments their C types and names.
Nothing here knows how the file was made, and nothing is judged: what is wrong with a record is `verify`'s business.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..elf.layout import PF_W
from ..formats import operands
from ..formats.operands import OTHER, Operand, OperandPlace
from ..model import Probe as DeclaredProbe
from ..model import Provider, dashed
from ..provider import describe
from ..record import NamedTuple
from .records import READERS, Location, Record, by_section, records

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..elf.image import FunctionAt, Image
    from .source_lines import Frame

    # What sites pass, by probe and what their records say of it, which many sites have in common.
    _Passed = dict[tuple[str, str, str, tuple[str, ...], bool], tuple["SeenArgument", ...]]


# An argument of a format that leaves the place to the ABI.
_NO_OPERAND = Operand("", 0, False, False, OperandPlace(OTHER, ""))


class SeenArgument(NamedTuple):
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


class SeenSite(NamedTuple):
    """One place in the code where a probe fires. `runtime_address` is set for a running process only.

    `source` is what the debug information says of it, if it was asked: the innermost line first.
    """

    location: Location
    function: FunctionAt | None
    operands: str
    arguments: tuple[SeenArgument, ...]
    semaphore: Semaphore | None
    record: Record
    runtime_address: int | None = None
    source: tuple[Frame, ...] | None = None


class SeenProbe(NamedTuple):
    """All sites of one probe in one format, by address."""

    provider: str
    name: str
    format: str
    sites: tuple[SeenSite, ...]


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
    probes: tuple[SeenProbe, ...]
    providers: dict[str, tuple[Provider, str]]
    problem: str = ""
    pid: int | None = None
    load_bias: int | None = None

    @property
    def in_object(self) -> bool:
        """Whether places are sections and offsets."""
        return self.kind == "object"

    @property
    def probe_count(self) -> int:
        """How many probes there are, each counted once however many formats it is recorded in."""
        return len({(probe.provider, dashed(probe.name)) for probe in self.probes})

    @property
    def site_count(self) -> int:
        """How many sites all probes have together, each counted once however many formats it is recorded in."""
        places = {
            (probe.provider, dashed(probe.name), where.section_number, where.address or where.offset)
            for probe in self.probes
            for where in (site.location for site in probe.sites)
        }
        return len(places)


def inspect(image: Image) -> Inspection:
    """Return what tracers see in a file. Raises InputError where records or the file are damaged."""
    return summarise(image, [record for reader in READERS for record in records(image, reader)])


def summarise(image: Image, found: Sequence[Record]) -> Inspection:
    """Return the records of a file as probes and sites, with the types that the file's own description gives."""
    providers, problem = description(image)
    grouped: dict[tuple[str, str, str], list[SeenSite]] = {}
    by_name = {name: declarations(provider) for name, (provider, _) in providers.items()}
    semaphores: dict[Location, Semaphore] = {}  # which sites share
    passed: _Passed = {}
    for record in found:
        where = record.semaphore
        if where is not None and where not in semaphores:
            semaphores[where] = Semaphore(where, None if image.is_object else is_backed(image, where.address))
        declared = None
        if not record.is_enabled and record.provider in by_name:
            declared = by_name[record.provider].get(dashed(record.probe))
        site = _site(image, record, declared, semaphores[where] if where is not None else None, passed)
        grouped.setdefault((record.provider, record.probe, record.format), []).append(site)
    probes = []
    for (provider, name, format_), sites in sorted(grouped.items()):
        sites.sort(key=lambda site: (site.location.section_number, site.location.address, site.location.offset))
        probes.append(SeenProbe(provider, name, format_, tuple(sites)))
    return Inspection(
        image.path, image.kind, image.machine_name, image.address_size, image.little, image.build_id.hex(),
        tuple(probes), providers, problem,
    )  # fmt: skip


def _site(
    image: Image, record: Record, declared: DeclaredProbe | None, semaphore: Semaphore | None, passed: _Passed
) -> SeenSite:
    where = record.site
    function = image.function_at(where.offset if image.is_object else where.address, where.section_number)
    what = record.provider, record.probe, record.operands, record.types, record.is_enabled
    arguments = passed.get(what)
    if arguments is None:
        arguments = passed[what] = _arguments(image, record, declared)
    return SeenSite(where, function, record.operands, arguments, semaphore, record)


def _arguments(image: Image, record: Record, declared: DeclaredProbe | None) -> tuple[SeenArgument, ...]:
    parsed = operands.parse(record.operands, image.machine) or (_NO_OPERAND,) * len(record.types)
    if record.is_enabled:
        parsed = ()  # it passes no argument of the probe, and what it passes is between it and the tracer
    known = declared.arguments if declared is not None else ()
    types = (*record.types, *("",) * len(parsed))
    return tuple([
        SeenArgument(operand, known[index].type.spelling, known[index].name) if index < len(known)
        else SeenArgument(operand, types[index], "") for index, operand in enumerate(parsed)
    ])  # fmt: skip


def is_backed(image: Image, address: int) -> bool:
    """Whether the two bytes at an address lie in a writable segment and in the file."""
    segment = image.segment_at(address)
    inside = segment is not None and address + 2 <= segment.address + segment.file_size
    return bool(segment and segment.flags & PF_W and inside)


def site_places(in_object: bool, seen: Inspection) -> dict[int, list[int]]:
    """Return the places of all sites: in an object the offsets by section number, else the addresses, under 0."""
    return by_section((site.location for probe in seen.probes for site in probe.sites), in_object, {})


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


def declarations(provider: Provider) -> dict[str, DeclaredProbe]:
    """Return a provider's probes by the names that DTrace shows (`req-done`), for whoever looks for many of them."""
    found: dict[str, DeclaredProbe] = {}
    for declared in provider.probes:
        found.setdefault(declared.name, declared)
    return found


def find_declared(providers: dict[str, tuple[Provider, str]], provider: str, probe: str) -> DeclaredProbe | None:
    """Return the declaration of a probe, whichever way its name is spelled (`req-done`, `req__done`)."""
    found = providers.get(provider)
    wanted = dashed(probe)
    return next((declared for declared in found[0].probes if declared.name == wanted), None) if found else None
