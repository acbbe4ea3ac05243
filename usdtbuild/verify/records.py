"""Checks of the SDT notes as such: their sections, what keeps them beside their code, and the base they count from."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator

from ..elf import layout as elf
from ..elf.image import Image
from ..elf.sections import ImageSection
from ..errors import InputError, UsdtError
from ..formats import stapsdt
from ..inspection import records as readers
from ..inspection.records import Record
from ..limits import NOTES
from .report import ERROR, NOTE, WARNING, Finding, FoundAt, Gathered, Subject, note_place, section_place, site_place
from .sites import is_quiet

_SHF_LINK_ORDER, _SHF_GROUP = 0x80, 0x200
# Where compilers put parts of many functions together: a linker keeps or drops these as a whole.
_SHARED_CODE = {".text.unlikely", ".text.hot", ".text.startup", ".text.exit"}


def read_notes(image: Image) -> tuple[list[Record], Gathered]:
    """Return the SDT notes, and a finding for each section of them that can't be read."""
    found: list[Record] = []
    damage = Gathered("notes-damaged", ERROR, "link the file again; a tool that rewrote it may have damaged it")
    room = readers.Room()
    for section in image.sections_named(stapsdt.SECTION):
        notes, trouble = _attempt(room.limited, readers.read_notes(image, section))
        found += notes
        if trouble:
            damage.add(f"the records can't be read: {trouble}", section_place(section))
        if room.is_full:
            break
    return found, damage


def read_others(image: Image, damage: Gathered) -> list[Record]:
    """Return the records of other formats, which tracers of other systems read."""
    found: list[Record] = []
    for reader in readers.READERS:
        if reader.format != "stapsdt":
            records, trouble = _attempt(readers.records, image, reader)
            found += records
            if trouble:
                damage.add(f"the records can't be read: {trouble}")
    return found


def _attempt(read: Callable[..., Iterable[Record]], *arguments: object) -> tuple[list[Record], str]:
    """Return what `read` gives, or nothing and the reason."""
    try:
        return list(read(*arguments)), ""
    except InputError as error:
        return [], error.what
    except UsdtError as error:
        return [], str(error)


def _note_sections(subject: Subject) -> Iterator[Finding]:
    """What readers ask of the section `.note.stapsdt` itself."""
    image = subject.image
    sections = [section for section in image.sections_named(stapsdt.SECTION) if section.size]
    cure = "use no linker script and no objcopy option that changes it; it is SHT_NOTE, not loaded, aligned to 4"
    gathered = Gathered("note-section", ERROR, cure)
    for section in sections:
        place = section_place(section)
        if section.type != elf.SHT_NOTE:
            gathered.add("the section of the records isn't of type SHT_NOTE: perf, bcc and libbpf pass it over", place)
        if section.align > 4:
            gathered.add(f"the records are aligned to {section.align}: readers built on elfutils misread them", place)
        if section.loaded and not image.is_object:
            gathered.add("the section of the records is loaded: perf passes it over", place, severity=WARNING)
    if len(sections) > 1 and not image.is_object:
        what = f"there are {len(sections)} sections of records: perf and libbpf read only the first"
        for section in sections:
            gathered.add(what, section_place(section))
    yield from gathered


def _foreign_notes(subject: Subject) -> Iterator[Finding]:
    """Notes of other kinds among the records: most readers pass over them, two don't."""
    cure = "take them out: let the linker drop unused records (bfd, lld), or link without --gc-sections"
    gathered = Gathered("foreign-note", WARNING, cure)
    if not subject.notes:
        yield from _only_foreign(subject)
        return
    for section, offset, owner, type_ in _walk_notes(subject.image) if not subject.image.is_object else ():
        if owner == stapsdt.OWNER[:-1] and type_ == stapsdt.TYPE:
            continue  # our own separators, and notes of code that was dropped: all readers pass over them
        if owner != stapsdt.OWNER:
            what = "a note of another owner is among the records: libbpf refuses every probe"
            gathered.add(what, _note_at(section, offset))
        elif type_ != stapsdt.TYPE:
            what = "a note of another type is among the records: libbpf refuses every probe, perf those after it"
            gathered.add(what, _note_at(section, offset))
    yield from gathered


def _only_foreign(subject: Subject) -> Iterator[Finding]:
    """No note among the records is one: whoever wrote them, tracers see nothing."""
    gathered = Gathered("foreign-note", ERROR, "build the file again; a tool that rewrote it may have damaged it")
    for section, offset, owner, type_ in _walk_notes(subject.image):
        if owner == stapsdt.OWNER and type_ == stapsdt.TYPE:
            return  # one that can't be read, which is said
        if owner != stapsdt.OWNER[:-1] or type_ != stapsdt.TYPE:
            what = "none of the records is of the owner stapsdt and type 3, so tracers see no probe"
            gathered.add(what, _note_at(section, offset))
    yield from gathered


def _note_at(section: ImageSection, offset: int) -> FoundAt:
    return section_place(section, offset)._replace(where=f"{section.name}+{offset:#x}", address=None)


def _walk_notes(image: Image) -> Iterator[tuple[ImageSection, int, bytes, int]]:
    """Yield (section, offset, owner, type) of each note among the records, up to the first damaged one of a section,
    and as many as are read."""
    sections = image.sections_named(stapsdt.SECTION)
    found = ((section, *note) for section in sections for note in _notes_of(image, section))
    return itertools.islice(found, NOTES)


def _notes_of(image: Image, section: ImageSection) -> Iterator[tuple[int, bytes, int]]:
    content = bytes(image.content(section)) if section.offset + section.size <= len(image.data) else b""
    offset = 0
    while offset + 12 <= len(content):
        name_size, size, type_ = (image.layout.u32.unpack_from(content, offset + at)[0] for at in (0, 4, 8))
        if offset + 12 + name_size + size > len(content):
            return
        yield offset, content[offset + 12 : offset + 12 + name_size], type_
        offset += 12 + (name_size + 3 & ~3) + (size + 3 & ~3)


def _untied(subject: Subject) -> Iterator[Finding]:
    """Records of an object that a linker can't drop together with their function."""
    image = subject.image
    if not image.is_object:
        return
    cure = "instrumented objects tie records to code; for sys/sdt.h, link without --gc-sections"
    gathered = Gathered("untied-records", NOTE, cure)
    for record in subject.notes:
        own = image.sections[record.place.section_number]
        code = image.sections[record.site.section_number]
        own_section = code.name.startswith(".text.") and code.name not in _SHARED_CODE
        if own_section and not own.flags & (_SHF_LINK_ORDER | _SHF_GROUP):
            what = "with --gc-sections these records keep dead functions alive, or outlive them as ghosts"
            gathered.add(what, site_place(subject, record))
    yield from gathered


def _base(subject: Subject) -> Iterator[Finding]:
    """`.stapsdt.base`, from which readers learn how far a file was moved since it was linked."""
    notes, base, in_object = subject.notes, subject.base, subject.image.is_object
    if not notes:
        return
    if base is None and not (in_object and any(record.base is not None for record in notes)):
        what = "the section .stapsdt.base is missing: gdb shows no probe, and no reader can follow a moved file"
        cure = "add `.stapsdt.base` as sys/sdt.h does, and KEEP it in a linker script"
        yield Finding("base-missing", ERROR, what, (), cure)
        return
    gathered = Gathered("base-wrong", ERROR, "link it again; if prelink or another tool rewrote it, undo that")
    for record in notes:
        if in_object:
            if record.base is None:
                gathered.add("a record's base has no relocation to .stapsdt.base", note_place(record))
        elif base is not None and record.written_base == 0 and record.written_site != 0:
            what = "the base of a record is 0: gdb and perf look for the site in the wrong place"
            gathered.add(what, note_place(record))
        elif base is not None and record.written_base not in {0, base.address}:
            what = f".stapsdt.base lies {base.address - record.written_base:+#x} from where the records say"
            moved = is_quiet(subject, record)
            gathered.add(what, note_place(record), severity=WARNING if moved else ERROR)
    yield from gathered


CHECKS = (_note_sections, _foreign_notes, _untied, _base)
