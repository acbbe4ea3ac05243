"""Checks of semaphores: can a tracer increment them, does the program see it, and is each probe's own?"""

from __future__ import annotations

from collections.abc import Iterator

from ..elf import layout as elf
from ..elf.image import Segment
from ..formats import stapsdt
from ..inspection import probes as look
from ..inspection import tracers
from ..inspection.records import Location, Record
from ..machines import facts_of
from .report import ERROR, WARNING, Finding, FoundAt, Gathered, Subject, name_of, site_place

_PAGE = 4096


def _semaphore_place(subject: Subject, record: Record) -> FoundAt:
    where = record.semaphore
    assert where is not None
    address = None if subject.image.is_object else where.address
    return FoundAt(name_of(record), where.text(subject.image.is_object), address, where.section, where.offset)


def _semaphores(subject: Subject) -> dict[Location, list[Record]]:
    found: dict[Location, list[Record]] = {}
    for record in subject.notes:
        if record.semaphore is not None and (record.semaphore.section or not subject.image.is_object):
            found.setdefault(record.semaphore, []).append(record)
    return found


def _semaphore_addresses(subject: Subject) -> Iterator[Finding]:
    """Alignment, and whether two probes share a semaphore."""
    odd = Gathered("semaphore-alignment", ERROR, "align it to 2; the kernel takes no other")
    shared = Gathered("semaphore-shared", WARNING, "give each probe a semaphore of its own")
    for where, records in _semaphores(subject).items():
        offset = where.offset if subject.image.is_object else subject.image.file_offset(where.address)
        if (offset if offset is not None else where.address) % 2:
            odd.add(
                "a semaphore isn't aligned to 2: no tracer can attach to its probe",
                _semaphore_place(subject, records[0]),
            )
        for record in records[1:]:
            if name_of(record) != name_of(records[0]):
                what = f"{name_of(record)} and {name_of(records[0])} share a semaphore: tracing one enables the other"
                shared.add(what, _semaphore_place(subject, record))
    yield from odd
    yield from shared


def _semaphore_backing(subject: Subject) -> Iterator[Finding]:
    """Whether the kernel can increment the semaphores, and increments the right copy."""
    if subject.image.is_object:
        return
    for where, records in _semaphores(subject).items():
        place = _semaphore_place(subject, records[0])
        trouble = _backing_trouble(subject, where.address)
        if trouble:
            check, what, cure = trouble
            yield Finding(check, ERROR, what, (place,), cure)
            continue
        yield from _shared_pages(subject, where.address, place)
        probes = next(iter(subject.image.sections_named(stapsdt.SEMAPHORE_SECTION)), None)
        looks = tracers.semaphore_offset(records[0].written_semaphore, probes)
        if looks != subject.image.file_offset(where.address):
            what = "the semaphore isn't in a section named .probes: bpftrace, bcc and perf increment something else"
            yield Finding("semaphore-section", ERROR, what, (place,), "put it into a section named .probes")


def _backing_trouble(subject: Subject, address: int) -> tuple[str, str, str] | None:
    """Return (check, what, cure) where the kernel can't increment a semaphore at all."""
    image = subject.image
    own = "put it into a section of its own, `.probes`, that is writable and has contents (not .bss)"
    if not look.is_backed(image, address):
        segment = image.segment_at(address)
        if segment is not None and not segment.flags & elf.PF_W:
            return "semaphore-read-only", "the semaphore is in a read-only segment, so it never changes", own
        what = "the semaphore has no bytes in the file: the kernel can't increment it, or the loader clears it again"
        return "semaphore-unbacked", what, own
    for segment in image.segments:
        start, stop = segment.address & -_PAGE, segment.address + segment.memory_size & -_PAGE
        if segment.type == elf.PT_GNU_RELRO and start <= address < stop:
            what = "the semaphore becomes read-only when the program starts (RELRO): attaching later never enables it"
            return "semaphore-relro", what, own
    return None


def _shared_pages(subject: Subject, address: int, place: FoundAt) -> Iterator[Finding]:
    """A file page that is mapped twice as writable: a tracer that starts first increments the first mapping."""
    image = subject.image
    own, offset = image.segment_at(address), image.file_offset(address)
    if own is None or offset is None:
        return
    cure = (
        "align the section .probes to the page (4096; usdtbuild does), or link with -Wl,-z,separate-loadable-segments"
    )
    known = facts_of(image.machine)
    for page, severity in ((_PAGE, ERROR), (known.page if known else 0, WARNING)):
        other = next((s for s in image.loads if page and _shares(s, own, offset, page)), None)
        if other is None:
            continue
        where = "RELRO" if any(s.type == elf.PT_GNU_RELRO and s.offset == other.offset for s in image.segments) else (
            f"the segment at {other.address:#x}")  # fmt: skip
        kernels = "" if severity == ERROR else f" where pages have {page >> 10} KiB"
        what = (
            f"the semaphore shares a page of the file with {where}: a tracer that starts first never fires it{kernels}"
        )
        yield Finding("semaphore-page", severity, what, (place,), cure)
        return


def _shares(other: Segment, own: Segment, offset: int, page: int) -> bool:
    """Whether another writable segment that is mapped earlier has the page of the file that `offset` is on."""
    if other is own or not other.flags & elf.PF_W or not other.file_size or other.address > own.address:
        return False
    return other.offset & -page <= offset < (other.offset + other.file_size + page - 1) & -page


def _semaphore_values(subject: Subject) -> Iterator[Finding]:
    """What stands in the file where a semaphore begins, and whether other modules can take its place."""
    image = subject.image
    gathered = Gathered("semaphore-value", WARNING, "let it begin as 0")
    for where, records in _semaphores(subject).items():
        if image.is_object:
            content = image.content(image.sections[where.section_number])
            value = bytes(content[where.offset : where.offset + 2])
        else:
            value = image.bytes_at(where.address, 2) if look.is_backed(image, where.address) else b""
        if any(value):
            what = "the semaphore doesn't begin as 0, so the probe is enabled from the start"
            gathered.add(what, _semaphore_place(subject, records[0]))
    yield from gathered
    if image.kind != "shared library":
        return
    exported = Gathered("semaphore-exported", WARNING, 'declare it __attribute__((visibility("hidden")))')
    addresses = {where.address: records[0] for where, records in _semaphores(subject).items()}
    for _, symbol in image.symbols_with(elf.SHT_DYNSYM, b"_semaphore"):
        if symbol.section and symbol.value in addresses and symbol.visibility == 0:
            what = "the semaphore is exported: another module's of the same name takes its place at run time"
            exported.add(what, _semaphore_place(subject, addresses[symbol.value]))
    yield from exported


def _semaphore_agreement(subject: Subject) -> Iterator[Finding]:
    """Sites of one probe with different semaphores: tracers take the first they find."""
    if subject.image.is_object:
        return
    cure = "use one header for all files that call the probe, and compile them all again"
    gathered = Gathered("semaphore-mixed", WARNING, cure)
    for probe in subject.seen.probes:
        if probe.format != "stapsdt":
            continue
        places = {site.semaphore.location.address if site.semaphore else 0 for site in probe.sites}
        if len(places) > 1:
            shown = ", ".join(f"{address:#x}" if address else "none" for address in sorted(places))
            what = f"the sites of one probe have different semaphores ({shown}), and bpftrace and bcc know only one"
            gathered.add(what, site_place(subject, probe.sites[0].record))
    yield from gathered


def _named_semaphores(subject: Subject) -> Iterator[Finding]:
    """Records that don't name the semaphore that the file has for their probe, as PROVIDER_PROBE_semaphore."""
    image = subject.image
    cure = "compile everything that calls the probe again, with the header that its semaphore is from"
    gathered = Gathered("semaphore-unnamed", ERROR, cure)
    kind = elf.SHT_SYMTAB if image.has_symbols(elf.SHT_SYMTAB) else elf.SHT_DYNSYM
    there: dict[str, set[tuple[int, int]]] = {}
    for _, symbol in image.symbols_with(kind, b"_semaphore"):
        if symbol.section:
            there.setdefault(symbol.name, set()).add((symbol.section if image.is_object else 0, symbol.value))
    for record in subject.notes:
        name = f"{record.provider}_{record.probe}_semaphore"
        where = record.semaphore
        if name not in there or (where is not None and where.symbol == name):
            continue
        names = 0 if where is None else where.offset if image.is_object else where.address
        if where is None or (where.section_number if image.is_object else 0, names) not in there[name]:
            shown = "no semaphore" if where is None else f"a semaphore at {where.text(image.is_object)}"
            what = f"a record names {shown}, and the file has {name}: tracers never enable the probe"
            gathered.add(what, site_place(subject, record))
    yield from gathered


CHECKS = (_semaphore_addresses, _semaphore_backing, _semaphore_values, _semaphore_agreement, _named_semaphores)
