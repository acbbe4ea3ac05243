"""What checking a file yields, and what a check looks at: findings in places of a file, and its records.

Only these records and their helpers; the checks are in the modules beside.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

from ..elf.image import Image
from ..elf.layout import PF_X
from ..elf.sections import ImageSection
from ..inspection.probes import Inspection, declarations
from ..inspection.records import Record
from ..model import Probe, Provider, dashed
from ..record import NamedTuple

ERROR, WARNING, NOTE = "error", "warning", "note"
SEVERITIES = (ERROR, WARNING, NOTE)


class FoundAt(NamedTuple):
    """Where something was found: the probe, and an address of the file or a section and offset of an object; `where`
    is '' for a probe without a site."""

    probe: str
    where: str
    address: int | None
    section: str
    offset: int
    function: str = ""


class Finding(NamedTuple):
    """One thing that is wrong, in all the places where it is; `check` is its name in the documentation."""

    check: str
    severity: str
    what: str
    places: tuple[FoundAt, ...]
    cure: str


class Verified(NamedTuple):
    """All findings of one file; `names` are the provider and name of each probe that it has."""

    path: str
    kind: str
    probes: int
    sites: int
    findings: tuple[Finding, ...]
    names: frozenset[tuple[str, str]] = frozenset()

    def count(self, severity: str) -> int:
        """Return how many findings have a severity."""
        return sum(finding.severity == severity for finding in self.findings)


class Subject:
    """What the checks look at: a file, what tracers see in it, and its SDT notes.

    `expected` are providers that the user says the file must have (`--provider`).
    """

    def __init__(
        self,
        image: Image,
        seen: Inspection,
        notes: tuple[Record, ...],
        base: ImageSection | None,
        expected: dict[str, Provider],
    ) -> None:
        self.image, self.seen, self.notes, self.base, self.expected = image, seen, notes, base, expected
        self._declarations: dict[str, dict[str, Probe]] = {}

    @cached_property
    def usable(self) -> list[Record]:
        """The notes whose site is code of this file."""
        return [record for record in self.notes if points_to_code(self.image, record)]

    @cached_property
    def ghosts(self) -> list[Record]:
        """The other notes."""
        usable = set(map(id, self.usable))
        return [record for record in self.notes if id(record) not in usable]

    def declared_probe(self, provider: str, probe: str) -> Probe | None:
        """Return a probe's declaration, whichever way its name is spelled; None for a provider without one, too."""
        if provider not in self._declarations:
            declared = self.declared(provider)
            self._declarations[provider] = declarations(declared) if declared else {}
        return self._declarations[provider].get(dashed(probe))

    def declared(self, provider: str) -> Provider | None:
        """Return a provider's declaration: the user's, else the one in the file."""
        if provider in self.expected:
            return self.expected[provider]
        found = self.seen.providers.get(provider)
        return found[0] if found else None


class Gathered:
    """Findings in the making: equal ones become one with several places, in the order they were first seen."""

    def __init__(self, check: str, severity: str, cure: str) -> None:
        self.check, self.severity, self.cure = check, severity, cure
        self.found: dict[tuple[str, str, str], list[FoundAt]] = {}

    def add(self, what: str, place: FoundAt | None = None, *, severity: str = "", cure: str = "") -> None:
        """Add a place to the finding that says `what`, or begin it."""
        places = self.found.setdefault((what, severity or self.severity, cure or self.cure), [])
        if place is not None and place not in places[-1:]:
            places.append(place)

    def __iter__(self) -> Iterator[Finding]:
        for (what, severity, cure), places in self.found.items():
            yield Finding(self.check, severity, what, tuple(places), cure)


def section_place(section: ImageSection, offset: int = 0) -> FoundAt:
    """Return a place in a section."""
    name = section.name or f"section {section.number}"
    return FoundAt("", name, section.address + offset if section.loaded else None, section.name, offset)


def name_of(record: Record) -> str:
    """Return what a record's probe is called in findings."""
    return f"{record.provider}:{record.probe}"


def site_place(subject: Subject, record: Record) -> FoundAt:
    """Return the place of a record's site."""
    image, where = subject.image, record.site
    address = None if image.is_object else where.address
    function = image.function_at(where.offset if image.is_object else where.address, where.section_number)
    shown = f"{function.name}+{function.offset:#x}" if function else ""
    return FoundAt(name_of(record), where.text(image.is_object), address, where.section, where.offset, shown)


def points_to_code(image: Image, record: Record) -> bool:
    """Whether a record's site is code of this file."""
    if image.is_object:
        section = image.sections[record.site.section_number] if record.site.section else None
        return section is not None and section.executable and record.site.offset < section.size
    if record.written_site in {0, 1}:  # what linkers write in place of a dropped function
        return False
    segment = image.segment_at(record.site.address)
    inside = segment is not None and record.site.address < segment.address + segment.file_size
    return bool(segment and segment.flags & PF_X and inside)


def note_place(record: Record) -> FoundAt:
    """Return the place of a record itself."""
    where = record.place
    return FoundAt(name_of(record), where.text(True), None, where.section, where.offset)
