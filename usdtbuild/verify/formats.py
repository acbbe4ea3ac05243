"""DTrace's records in a file, DOF and `.note.usdt`: would their readers take them, and do all formats say the same?

The checks of `verify` for files with records of more than SDT notes; `verify` imports this module for those only.
Sites are compared by provider, probe and place, arguments by number, size and sign, and by C type where a record has
types. Names are compared as DTrace spells them (`req-done`). Nothing here knows how the file was made.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..errors import UsdtError
from ..formats import stapsdt, usdt_note
from ..formats.dof import layout as dof_layout
from ..formats.dof.check import REJECTED, check, made_for
from ..formats.dof.decode import split
from ..formats.operands import parse
from ..inspection.records import dof_sections, loaded_content
from ..model import dashed
from ..options import FORMATS, RECORDS
from ..record import NamedTuple
from ..text import plural
from .report import ERROR, WARNING, FoundAt, Gathered, note_place, points_to_code, section_place, site_place
from .sites import is_quiet

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ..elf.sections import ImageSection
    from ..inspection.records import Record
    from .report import Finding, Subject

# Those that DTrace's parser knows; it passes over the last two.
_OWNERS = {usdt_note.SITE_OWNER, usdt_note.PROVIDER_OWNER, usdt_note.VERSION_OWNER, b"utsn\0"}
_REBUILD = "compile all objects with the same --formats, and link them again"


class _Key(NamedTuple):
    """What a site is, whichever format tells of it: where it is, and what for."""

    provider: str
    probe: str
    section: int
    place: int
    is_enabled: bool


def findings(subject: Subject) -> Iterator[Finding]:
    """Yield everything that is wrong with DTrace's records, or in which formats differ."""
    others = [record for record in _records(subject) if record.format != "stapsdt"]
    yield from _places(subject, others)
    yield from _usdt_refused(subject)
    yield from _dof_refused(subject)
    yield from _unregistered(subject)
    yield from _missing(subject)
    yield from _arguments(subject)
    yield from _declarations(subject)
    yield from _unanswered(subject)


def _records(subject: Subject) -> Iterable[Record]:
    return (site.record for probe in subject.seen.probes for site in probe.sites)


def _name(record: Record) -> tuple[str, str]:
    return record.provider, dashed(record.probe)


def _key(record: Record) -> _Key:
    where = record.site
    return _Key(*_name(record), where.section_number, where.address or where.offset, record.is_enabled)


# -- each format by itself ---------------------------------------------------------------------------------------------


def _places(subject: Subject, records: Iterable[Record]) -> Iterator[Finding]:
    """Sites that are no code, or no NOP: what `verify` asks of SDT notes."""
    gone = Gathered("ghost", ERROR, "link without --gc-sections and --icf, or with bfd or lld")
    other = Gathered("site-code", WARNING, "the record's address may be wrong: link the file again")
    for record in records:
        if not points_to_code(subject.image, record):
            place = note_place(record)._replace(address=record.site.address)
            gone.add(f"a record of {RECORDS[record.format].title} points to no code", place)
        elif not is_quiet(subject, record):
            other.add(f"a site of {RECORDS[record.format].title} holds no NOP", site_place(subject, record))
    yield from gone
    yield from other


def _usdt_refused(subject: Subject) -> Iterator[Finding]:
    """What makes Oracle's DTrace refuse all of a file's `.note.usdt`: its parser stops at the first error."""
    if subject.image.is_object:
        return
    cure = "compile everything that includes the header again, and link with one usdtbuild's objects only"
    gathered = Gathered("usdt-refused", ERROR, cure)
    sections = [section for section in subject.image.sections_named(usdt_note.SECTION) if section.size]
    if len(sections) > 1:
        gathered.add("there are two sections of that name, and DTrace reads one", section_place(sections[1]))
    declared: dict[str, dict[str, int]] = {}
    sites: list[tuple[usdt_note.SiteNote, FoundAt]] = []
    for section in sections:
        for offset, owner, note in _usdt_notes(subject, bytes(subject.image.content(section))):
            place = section_place(section, offset)._replace(where=f"{section.name}+{offset:#x}", address=None)
            if owner not in _OWNERS:
                gathered.add("a note of an owner that DTrace doesn't know is among the records", place)
            elif isinstance(note, usdt_note.ProviderNote):
                if note.name in declared:
                    gathered.add(f"provider {note.name} is declared twice", place)
                declared[note.name] = {probe.name: len(probe.native) for probe in note.probes}
            elif note is not None:
                sites.append((note, place._replace(probe=f"{note.provider}:{note.probe}")))
    _usdt_sites(subject, gathered, declared, sites)
    for finding in gathered:
        yield finding._replace(what=f"Oracle's DTrace refuses the .note.usdt of the whole file: {finding.what}")


def _usdt_sites(
    subject: Subject,
    gathered: Gathered,
    declared: dict[str, dict[str, int]],
    sites: Iterable[tuple[usdt_note.SiteNote, FoundAt]],
) -> None:
    names = next(iter(subject.image.sections_named(usdt_note.NAMES_SECTION)), None)
    seen: set[tuple[str, str, int]] = set()
    for note, place in sites:
        if names is None or not names.address <= note.function < names.address + names.size:
            gathered.add(f"a function's name isn't in {usdt_note.NAMES_SECTION}", place)
        key = (note.provider, note.probe, note.pc)
        if key in seen:
            gathered.add("one site has two notes", place)
        seen.add(key)
        expected = declared.get(note.provider, {}).get(dashed(note.probe))
        count = len(note.arguments)
        if note.provider not in declared:
            gathered.add(f"nothing declares provider {note.provider}", place)
        elif expected is None:
            gathered.add(f"the declaration of provider {note.provider} lacks a probe that has a site", place)
        elif count != expected and not (note.enabled and count == 1):
            gathered.add(f"a site has {plural(count, 'argument')}, and its declaration {expected}", place)


def _usdt_notes(subject: Subject, content: bytes) -> Iterator[tuple[int, bytes, usdt_note.UsdtNote | None]]:
    """Yield (offset, owner, note) of each note that can be read; `verify` has told of others already."""
    offset = 0
    while offset + 12 <= len(content):
        name_size, size = (subject.image.layout.u32.unpack_from(content, offset + at)[0] for at in (0, 4))
        stop = offset + 12 + (name_size + 3 & ~3) + (size + 3 & ~3)
        try:
            found = usdt_note.decode(content[offset:stop], little=subject.image.little)
        except UsdtError:
            found = []
        yield offset, content[offset + 12 : offset + 12 + min(name_size, 64)], found[0] if found else None
        offset = stop


def _dof_refused(subject: Subject) -> Iterator[Finding]:
    """What the systems for which a DOF was made would reject in it, or ignore."""
    gathered = Gathered("dof-refused", ERROR, "`usdtbuild dof check` says more; compile and link the file again")
    for section, offset, data in _dofs(subject):
        place = section_place(section, offset)
        for platform in made_for(data):
            for finding in check(data, platform):
                if finding.effect == REJECTED:
                    gathered.add(f"DTrace on {platform} rejects a DOF: {finding.what}", place)
                else:
                    gathered.add(f"DTrace on {platform} ignores in a DOF: {finding.what}", place, severity=WARNING)
    yield from gathered


def _dofs(subject: Subject) -> Iterator[tuple[ImageSection, int, bytes]]:
    for section in dof_sections(subject.image):
        try:
            pieces = split(loaded_content(subject.image, section))
        except UsdtError:
            continue  # `verify` tells of records that can't be read
        for offset, data in pieces:
            yield section, offset, data


def _unregistered(subject: Subject) -> Iterator[Finding]:
    """DOF of ours, and nothing that tells the kernel of it when the program starts."""
    if subject.image.is_object:
        return
    for section in dof_sections(subject.image):
        content = bytes(subject.image.content(section))
        # The registration's own mark is a trailer with nothing before it.
        if dof_layout.TRAILER_MAGIC in content and dof_layout.TRAILER_MAGIC + bytes(4) not in content:
            what = "nothing registers the DOF when the program starts, so DTrace sees none of its probes (gdb does)"
            cure = "link with usdt_dof_register.c, which `usdtbuild --include-dir` has"
            gathered = Gathered("dof-unregistered", WARNING, cure)
            gathered.add(what, section_place(section))
            yield from gathered


# -- formats against each other ----------------------------------------------------------------------------------------


def _by_format(subject: Subject) -> dict[str, dict[_Key, Record]]:
    """Return the sites of each format. A provider that only one format knows is none of the others' business."""
    found: dict[str, dict[_Key, Record]] = {}
    for record in _records(subject):
        found.setdefault(record.format, {}).setdefault(_key(record), record)
    return found


def _missing(subject: Subject) -> Iterator[Finding]:
    """Probes and sites that one format has and another hasn't."""
    gathered = Gathered("formats-differ", ERROR, _REBUILD)
    found = _by_format(subject)
    providers = {format_: {key.provider for key in keys} for format_, keys in found.items()}
    for format_ in FORMATS:
        for other in FORMATS:
            if other == format_ or other not in found or format_ not in found:
                continue
            names = {key[:2] for key in found[other]}
            for key, record in found[format_].items():
                # SDT tracers ask a semaphore whether a probe is enabled, and have no such sites.
                if key in found[other] or key.provider not in providers[other] or key.is_enabled:
                    continue
                what = "a site of the probe" if key[:2] in names else "a probe"
                place = site_place(subject, record)
                gathered.add(f"{what} is in {RECORDS[format_].title} and not in {RECORDS[other].title}", place)
    yield from gathered


def _arguments(subject: Subject) -> Iterator[Finding]:
    """Arguments of one site that the formats number or describe differently."""
    gathered = Gathered("formats-differ", ERROR, "use one header for all files that call the probe, and " + _REBUILD)
    found = _by_format(subject)
    present = [format_ for format_ in FORMATS if format_ in found]
    for position, first in enumerate(present):
        for second in present[position + 1 :]:
            for key in found[first].keys() & found[second].keys():
                if key.is_enabled:
                    continue
                one, other = found[first][key], found[second][key]
                what = _difference(subject, one, other)
                if what:
                    gathered.add(what, site_place(subject, one))
    # In an order that doesn't come from a set's.
    ordered = [finding._replace(places=tuple(sorted(finding.places))) for finding in gathered]
    yield from sorted(ordered, key=lambda finding: finding.what)


def _difference(subject: Subject, one: Record, other: Record) -> str:
    """Return in what the arguments of two records of one site differ, or ''."""
    machine = subject.image.machine
    counts = [len(record.types) if record.format == "dof" else len(parse(record.operands, machine))
              for record in (one, other)]  # fmt: skip
    cut = stapsdt.MAX_ARGUMENTS
    if one.format == "stapsdt" and counts[0] == cut < counts[1]:
        counts[1] = cut  # more don't go into an SDT note
    names = RECORDS[one.format].title, RECORDS[other.format].title
    if counts[0] != counts[1]:
        return f"a site has {plural(counts[0], 'argument')} in {names[0]} and {counts[1]} in {names[1]}"
    if "dof" in (one.format, other.format):
        return ""
    for index, pair in enumerate(zip(parse(one.operands, machine), parse(other.operands, machine))):
        if pair[0][1:4] != pair[1][1:4] or pair[0].place.text.replace(" ", "") != pair[1].place.text.replace(" ", ""):
            texts = f"`{pair[0].text}` in {names[0]} and `{pair[1].text}` in {names[1]}"
            return f"argument {index} of a site is {texts}"
    return ""


def _declarations(subject: Subject) -> Iterator[Finding]:
    """Types that DOF, `.note.usdt` and the provider's own description give for the arguments of one probe."""
    gathered = Gathered("formats-differ", ERROR, "compile everything that includes the header again")
    image = subject.image
    noted: dict[tuple[str, str], tuple[str, ...]] = {}
    for section in image.sections_named(usdt_note.SECTION):
        for _, _, note in _usdt_notes(subject, bytes(image.content(section))):
            if isinstance(note, usdt_note.ProviderNote):
                noted.update({(note.name, probe.name): probe.native for probe in note.probes})
    described = {
        (provider.name, probe.name): tuple(argument.type.spelling for argument in probe.arguments)
        for provider, _ in subject.seen.providers.values()
        for probe in provider.probes
    }
    in_dof: dict[tuple[str, str], tuple[str, ...]] = {}
    for record in _records(subject):
        if record.format == "dof":
            in_dof.setdefault(_name(record), record.types)
    sources = ((in_dof, "DOF"), (noted, ".note.usdt"), (described, "the provider's description"))
    for name in sorted({*in_dof, *noted}):
        said = [(types[name], where) for types, where in sources if name in types]
        for types, where in said[1:]:
            if types != said[0][0]:
                one, other = (f"({', '.join(each)[:100]})" for each in (said[0][0], types))
                what = f"a probe takes {one} in {said[0][1]} and {other} in {where}"
                gathered.add(what, FoundAt(":".join(name), "its declaration", None, "", 0))
                break
    yield from gathered


def _unanswered(subject: Subject) -> Iterator[Finding]:
    """Probes whose test DTrace can't answer: it knows no semaphores, and there is no is-enabled site."""
    cure = "compile with -DUSDT_ENABLED_BY_CALL: the test then answers SDT tracers and DTrace alike"
    gathered = Gathered("enabled-by-semaphore", WARNING, cure)
    answered = {_name(record) for record in _records(subject) if record.is_enabled}
    by_dtrace = {_name(record) for record in _records(subject) if record.format != "stapsdt"}
    for record in subject.notes:
        name = _name(record)
        if record.semaphore is not None and name in by_dtrace and name not in answered and not subject.image.is_object:
            what = "the program asks a semaphore whether the probe is enabled, and DTrace increments none"
            gathered.add(what, site_place(subject, record))
    yield from gathered
