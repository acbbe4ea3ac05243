"""Checks of sites: is there code, is it a NOP, and where does each tracer believe that it is?"""

from __future__ import annotations

from collections.abc import Iterator

from ..elf.image import Image
from ..inspection import site_code, tracers
from ..inspection.records import Location, Record
from ..machines import facts_of
from .report import ERROR, WARNING, Finding, Gathered, Subject, name_of, note_place, site_place

_BEHIND = 1 << 12  # bytes of a function that are read behind a site


def _ghosts(subject: Subject) -> Iterator[Finding]:
    """Records of code that isn't there."""
    cure = (
        "link without --gc-sections and --icf, or with bfd or lld, which drop the records of instrumented objects "
        "with their functions"
    )
    gathered = Gathered("ghost", ERROR, cure)
    what = "a record points to no code, as its function was dropped: libbpf and perf refuse the probe for it"
    for record in subject.ghosts:
        gathered.add(what, note_place(record)._replace(address=record.written_site))
    yield from gathered


def _instruction(subject: Subject, record: Record) -> site_code.SiteInstruction | None:
    image, where = subject.image, record.site
    start = where.offset if image.is_object else where.address
    code = code_at(image, where.section_number, start, site_code.LONGEST)
    return site_code.at_site(code, image.machine, little=image.little, asks=record.is_enabled)


def code_at(image: Image, section: int, start: int, size: int) -> bytes:
    """Return up to `size` bytes at an address, or in an object at an offset of a section."""
    if image.is_object:
        return bytes(image.content(image.sections[section])[start : start + size])
    return image.bytes_at(start, size)


def is_quiet(subject: Subject, record: Record) -> bool:
    """Whether a NOP or a return stands at a record's site, as far as the machine is known."""
    instruction = _instruction(subject, record)
    return instruction is None or instruction.quiet


def _site_code(subject: Subject) -> Iterator[Finding]:
    """What stands at the sites: a NOP or a return, unless the address is wrong."""
    cure = "if the instruction doesn't belong there, the record's address is wrong: link the file again"
    other = Gathered("site-code", WARNING, cure)
    refused = Gathered("site-refused", ERROR, "build with --nop=safe, or put a one-byte NOP there")
    moved = "the record's address is wrong, or what stood there was overwritten: build the file again"
    split = _inside_others(subject)
    for record in subject.usable:
        instruction = _instruction(subject, record)
        if record.site in split:
            what = f"a site is in the middle of an instruction ({split[record.site]}): a tracer breaks the program"
            other.add(what, site_place(subject, record), severity=ERROR, cure=moved)
        elif instruction is None:
            continue
        elif instruction.refused:
            what = f"the kernel takes no probe on `{instruction.text}`: {instruction.refused}"
            refused.add(what, site_place(subject, record))
        elif not instruction.valid:
            what = f"a site holds no instruction, but {instruction.text}"
            other.add(what, site_place(subject, record), severity=ERROR, cure=moved)
        elif not instruction.quiet:
            # What usdtbuild made holds a NOP or a return at every site; others may put a record anywhere.
            ours = record.provider in subject.seen.providers
            what = f"a site holds no NOP, but `{instruction.text}`"
            place = site_place(subject, record)
            other.add(what, place, severity=ERROR if ours else WARNING, cure=moved if ours else "")
    yield from refused
    yield from other


def _inside_others(subject: Subject) -> dict[Location, str]:
    image = subject.image
    found: dict[Location, str] = {}
    by_function: dict[tuple[int, int], list[Location]] = {}
    for where in {record.site for record in subject.usable}:
        value = where.offset if image.is_object else where.address
        if site_code.misaligned(value, image.machine):
            found[where] = "no address of one"
            continue
        function = image.function_at(value, where.section_number)
        if function is not None:
            section = where.section_number if image.is_object else 0
            by_function.setdefault((section, value - function.offset), []).append(where)
    for (section, start), sites in by_function.items():
        offsets = {(site.offset if image.is_object else site.address) - start: site for site in sites}
        code = code_at(image, section, start, max(offsets) + site_code.LONGEST)
        for offset, text in site_code.inside_others(code, image.machine, offsets).items():
            found[offsets[offset]] = f"`{text}`"
    return found


_ONCE = "link each object once, don't instrument twice, and don't let gold or mold fold functions (--icf=all)"


def _same_place(subject: Subject) -> Iterator[Finding]:
    """Two records of one address: of one probe, or of two."""
    twice = Gathered("duplicate-site", ERROR, _ONCE)
    folded = Gathered("folded-sites", WARNING, "link without --icf=all, or with --icf=safe")
    seen: dict[tuple[str, str, int, int], dict[str, str]] = {}
    for record in subject.usable:
        where = record.site
        others = seen.setdefault(
            (record.format, where.section, where.section_number, where.address or where.offset), {}
        )
        if name_of(record) in others:
            what = "one probe has two records of one address, and libbpf counts each hit twice"
            if others[name_of(record)] == record.operands and record is subject.notes[-1]:
                what += "; these are alike and the last of the file, for which perf shows none of its probes"
            twice.add(what, site_place(subject, record))
        elif others:
            what = f"{name_of(record)} and {next(iter(others))} share an address: each fires for the other"
            folded.add(what, site_place(subject, record))
        others.setdefault(name_of(record), record.operands)
    yield from twice
    yield from folded


def _perf_offsets(subject: Subject) -> Iterator[Finding]:
    """Where perf looks for a site, which depends on `.stapsdt.base` and not on the site's own segment."""
    image = subject.image
    if image.is_object:
        return
    cure = "link with -Wl,-z,separate-loadable-segments (lld, mold) or -Wl,-z,separate-code; other tracers don't mind"
    gathered = Gathered("perf-offset", WARNING, cure)
    for record in subject.usable:
        right = image.file_offset(record.site.address)
        looks = tracers.perf_site_offset(record.written_site, record.written_base, subject.base)
        if right != looks and (subject.base is None or record.written_base):
            gathered.add(
                "perf places its probe at the wrong offset of the file, and it never fires", site_place(subject, record)
            )
    yield from gathered


def _build_id(subject: Subject) -> Iterator[Finding]:
    if subject.image.is_object or not subject.notes:
        return
    size = len(subject.image.build_id)
    if size < tracers.PERF_BUILD_ID:
        what = f"perf finds probes by build-id, and this one has {size} bytes" if size else (
            "perf finds probes by build-id, and the file has none")  # fmt: skip
        yield Finding("build-id", WARNING, what, (), "link with -Wl,--build-id=sha1")


def _red_zone(subject: Subject) -> Iterator[Finding]:
    """Sites that are a NOP of five bytes, in functions that keep data below the stack pointer."""
    image = subject.image
    known = facts_of(image.machine)
    if known is None or known.overwritten is None:
        return
    cure = "compile with -DUSDT_PROBES_BY_CALL (usdtbuild cc --nop=nop5 does), or write NOPs with --nop=safe"
    gathered = Gathered("red-zone", ERROR, cure)
    what = (
        "the kernel makes a call of a site's NOP of five bytes, and that overwrites data which the function keeps "
        "below the stack pointer: the program goes wrong while it is traced"
    )
    for record in subject.notes:
        where = record.site
        value = where.offset if image.is_object else where.address
        function = image.function_at(value, where.section_number)
        if function is None:
            continue
        code = code_at(image, where.section_number, value - function.offset, function.offset + _BEHIND)
        if known.overwritten(code, function.offset):
            gathered.add(what, site_place(subject, record))
    yield from gathered


CHECKS = (_ghosts, _site_code, _same_place, _perf_offsets, _build_id, _red_zone)
