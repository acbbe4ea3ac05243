"""Checks of the loaded table of sites (`--site-table`): does a program that reads it learn what the file's notes say?

A program reads the table where its file is gone, so nobody notices then that it is wrong. Objects' tables have no
addresses yet, and aren't looked at. What is in the table is known to `formats.site_table`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from ..elf import layout as elf
from ..elf.image import Image
from ..elf.sections import ImageSection
from ..formats import site_table
from ..formats.site_table import NOTE_FIELD, SiteTableError, TableRow
from ..inspection.records import Record
from ..provider.describe import arguments_text
from .report import ERROR, WARNING, Finding, FoundAt, Gathered, Subject, name_of, section_place, site_place

_AGAIN = "link the file again; a tool that rewrote it may have damaged it"


def _table(subject: Subject) -> Iterator[Finding]:
    image = subject.image
    sections = [section for section in image.sections_named(site_table.SECTION) if section.size]
    if image.is_object or not sections:
        return
    damage = Gathered("site-table-damaged", ERROR, _AGAIN)
    entries: list[TableRow] = []
    for section in sections:
        try:
            entries += site_table.decode(bytes(image.content(section)), section.address, little=image.little)
        except SiteTableError as error:
            damage.add(f"the table of sites can't be read: {error}", section_place(section))
        if section.flags & (elf.SHF_ALLOC | elf.SHF_WRITE) != elf.SHF_ALLOC:
            damage.add("the table of sites isn't in read-only memory", section_place(section))
    if len(sections) > 1:
        damage.add(
            "the table of sites is in several sections, of which a program finds one", section_place(sections[1])
        )
    if not any(damage):
        _way_in(image, sections[0], damage)
    yield from damage
    if not any(damage) and subject.notes:
        yield from _compared(subject, entries)


def _way_in(image: Image, table: ImageSection, damage: Gathered) -> None:
    """Look for the note that a program finds the table by: in a segment of notes, and leading to a chunk."""
    cure = "link with a linker script that keeps .note.usdtbuild in a PT_NOTE segment"
    notes = [section for section in image.sections_named(site_table.NOTE_SECTION) if section.size]
    segments = [segment for segment in image.segments if segment.type == elf.PT_NOTE]
    if not notes:
        damage.add("the note that leads to the table of sites is missing: no program finds it", cure=cure)
    for note in notes:
        last = note.address + note.size
        if not any(s.address <= note.address and last <= s.address + s.memory_size for s in segments):
            damage.add(
                "the note that leads to the table of sites is in no segment of notes", section_place(note), cure=cure
            )
            continue
        order: Literal["little", "big"] = "little" if image.little else "big"
        field = bytes(image.content(note))[NOTE_FIELD : NOTE_FIELD + 4]
        target = note.address + NOTE_FIELD + int.from_bytes(field, order, signed=True) - table.address
        head = bytes(image.content(table))[max(target, 0) :][:4]
        if target < 0 or head != site_table.HEAD.to_bytes(4, order):
            damage.add("the note that leads to the table of sites leads elsewhere", section_place(note))


def _compared(subject: Subject, entries: list[TableRow]) -> Iterator[Finding]:
    gathered = Gathered("site-table", ERROR, _AGAIN)
    rebuild = "compile all objects with --site-table, or none"
    noted: dict[tuple[str, int], Record] = {
        (name_of(record), record.site.address): record for record in subject.usable if not record.is_enabled
    }
    listed = {(f"{entry.provider}:{entry.name}", entry.place): entry for entry in entries if not entry.is_semaphore}
    for key, record in noted.items():
        entry, place = listed.get(key), site_place(subject, record)
        if entry is None:
            what = "a site that the table of sites lacks: a program that can't read its file doesn't know it"
            gathered.add(what, place, severity=WARNING, cure=rebuild)
            continue
        if entry.operands != record.operands:
            gathered.add(f"the table of sites has other operands than the record: {entry.operands or 'none'}", place)
        declared = subject.seen.providers.get(record.provider)
        probe = subject.declared_probe(record.provider, record.probe) if declared else None
        if declared and record.provider not in subject.expected and probe and arguments_text(probe) != entry.arguments:
            gathered.add("the table of sites has other arguments than the description of the provider", place)
    for key in listed.keys() - noted.keys():
        gathered.add("the table of sites has a site that no record has", FoundAt(key[0], f"{key[1]:#x}", key[1], "", 0))
    yield from _semaphores(subject, entries, gathered)


def _semaphores(subject: Subject, entries: list[TableRow], gathered: Gathered) -> Iterator[Finding]:
    listed: dict[str, set[int]] = {}
    for entry in entries:
        if entry.is_semaphore:
            listed.setdefault(f"{entry.provider}:{entry.name}", set()).add(entry.place)
    sites = {(f"{entry.provider}:{entry.name}", entry.place) for entry in entries if not entry.is_semaphore}
    for record in subject.usable:
        if (name_of(record), record.site.address) not in sites:
            continue
        known = {record.semaphore.address} if record.semaphore is not None else set()
        if listed.get(name_of(record), set()) != known:
            what = (
                "the table of sites has another semaphore than the record: the probe is switched on, and isn't enabled"
            )
            gathered.add(what, site_place(subject, record))
    yield from gathered


CHECKS = (_table,)
