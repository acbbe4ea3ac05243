"""Will the probes of a finished binary work? Every way that is known in which they don't, one check each.

A check is a row of `CHECKS`: a function from a `Subject`, one opened file with its records, to `Finding`s. Each finding
says what is wrong, where, and what cures it; docs/commands/verify.md lists them all. What tracers do with a record is
known to `tracers`, what a file holds to `inspect`; nothing here reads ELF or knows how the file was made.

Severities: an error means that a probe is missing, never fires, or breaks something; a warning, that one tracer or one
way of using it is left out; a note, that nothing is wrong but someone may want to know.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Callable, NamedTuple

from . import inspect as look
from . import readers, site_code, tracers
from .elf.image import PF_W, PF_X
from .errors import InputError, UsdtError
from .formats import stapsdt
from .formats.operands import parse
from .provider import describe
from .provider.model import FLOAT, INTEGER

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from .elf.image import Image, Section, Segment
    from .elf.symbols import Symbol
    from .formats.operands import Operand
    from .inspect import Inspection
    from .provider.model import Argument as Declared
    from .provider.model import Provider
    from .readers import Location, Record

ERROR, WARNING, NOTE = "error", "warning", "note"
SEVERITIES = (ERROR, WARNING, NOTE)
_SHF_LINK_ORDER, _SHF_GROUP = 0x80, 0x200
_PAGE = 4096
# Kernels of these machines are also built with pages of 64 KiB (16 KiB on LoongArch).
_BIG_PAGES = {"aarch64": 65536, "ppc64": 65536, "ppc": 65536, "mips": 65536, "loongarch": 16384, "sparc64": 8192}
# Machines whose 32-bit ABI passes an argument of eight bytes in a pair of registers.
_PAIRS = {"arm", "mips", "ppc", "riscv", "sparc"}
_STUB = re.compile(r"(?P<mangled>_Z\w*?)?__dtrace(?:enabled)?_(?P<provider>\w+?)___(?P<probe>\w+)")
# Where compilers put parts of many functions together: a linker keeps or drops these as a whole.
_SHARED_CODE = {".text.unlikely", ".text.hot", ".text.startup", ".text.exit"}
_C_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_INSTRUMENT = "build it with `usdtbuild cc` as the compiler, or pass its objects through `usdtbuild instrument`"


class Place(NamedTuple):
    """Where something was found: the probe, and an address of the file or a section and offset of an object."""

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
    places: tuple[Place, ...]
    cure: str


class Report(NamedTuple):
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


class Subject(NamedTuple):
    """What the checks look at: a file, what tracers see in it, and its SDT notes.

    `expected` are providers that the user says the file must have (`--provider`).
    """

    image: Image
    seen: Inspection
    notes: tuple[Record, ...]
    base: Section | None
    expected: dict[str, Provider]

    def declared(self, provider: str) -> Provider | None:
        """Return a provider's declaration: the user's, else the one in the file."""
        if provider in self.expected:
            return self.expected[provider]
        found = self.seen.providers.get(provider)
        return found[0] if found else None


def verify(image: Image, expected: dict[str, Provider] | None = None) -> Report:
    """Run every check on a file. Raises InputError for a file that can't be read at all."""
    notes, damage = _read_notes(image)
    others = _read_others(image, damage)
    seen = look.summarise(image, [*notes, *others])
    base = next(iter(image.sections_named(stapsdt.BASE_SECTION)), None)
    subject = Subject(image, seen, tuple(notes), base, expected or {})
    findings = list(damage)
    unusable = list(_unusable(subject))
    findings += unusable
    if not unusable:
        for check in CHECKS:
            findings += check(subject)
        if any(probe.format != "stapsdt" for probe in seen.probes):
            from . import verify_formats

            findings += verify_formats.findings(subject)
        findings += _entries(image)
    if _has_entries(image) or any(finding.severity == ERROR for finding in findings):
        # The file was made for something else, or the errors say why there are no probes.
        findings = [finding for finding in findings if finding.check != "no-probes"]
    findings.sort(key=lambda finding: SEVERITIES.index(finding.severity))
    names = frozenset((probe.provider, probe.name.replace("__", "-")) for probe in seen.probes)
    return Report(image.path, image.kind, len(seen.probes), seen.site_count, tuple(findings), names)


def _has_entries(image: Image) -> bool:
    """Whether the file has a table of patchable function entries."""
    from .functions.table import RELATIVE, STANDARD

    return any(image.sections_named(name) for name in (STANDARD, RELATIVE))


def _entries(image: Image) -> list[Finding]:
    """Return what is wrong with patchable function entries, where the file has a table of them."""
    if not _has_entries(image):
        return []
    from .patchable import verify_entries

    return verify_entries(image.path, image.data)


def missing_everywhere(reports: Iterable[Report], expected: dict[str, Provider], path: str) -> Report | None:
    """Return a report on the provider file itself: probes of it that none of the files has a site of."""
    present = {name for report in reports for name in report.names}
    missing = [
        Place(f"{provider.name}:{probe.stub}", "no site", None, "", 0)
        for provider in expected.values()
        for probe in provider.probes
        if (provider.name, probe.name) not in present
    ]
    if not missing:
        return None
    cure = "call them, or take them out of the provider file; an optimiser also drops calls that can't be reached"
    what = "declared, and nowhere called"
    return Report(path, "provider file", 0, 0, (Finding("no-site", ERROR, what, tuple(missing), cure),))


# -- helpers -----------------------------------------------------------------------------------------------------------


class Gathered:
    """Findings in the making: equal ones become one with several places, in the order they were first seen."""

    def __init__(self, check: str, severity: str, cure: str) -> None:
        self.check, self.severity, self.cure = check, severity, cure
        self.found: dict[tuple[str, str, str], list[Place]] = {}

    def add(self, what: str, place: Place | None = None, *, severity: str = "", cure: str = "") -> None:
        """Add a place to the finding that says `what`, or begin it."""
        places = self.found.setdefault((what, severity or self.severity, cure or self.cure), [])
        if place is not None and place not in places[-1:]:
            places.append(place)

    def __iter__(self) -> Iterator[Finding]:
        for (what, severity, cure), places in self.found.items():
            yield Finding(self.check, severity, what, tuple(places), cure)


def _read_notes(image: Image) -> tuple[list[Record], Gathered]:
    """Return the SDT notes, and a finding for each section of them that can't be read."""
    found: list[Record] = []
    damage = Gathered("notes-damaged", ERROR, "link the file again; a tool that rewrote it may have damaged it")
    for section in image.sections_named(stapsdt.SECTION):
        notes, trouble = _attempt(readers.read_notes, image, section)
        found += notes
        if trouble:
            damage.add(f"the records can't be read: {trouble}", section_place(section))
    return found, damage


def _read_others(image: Image, damage: Gathered) -> list[Record]:
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


def section_place(section: Section, offset: int = 0) -> Place:
    """Return a place in a section."""
    name = section.name or f"section {section.number}"
    return Place("", name, section.address + offset if section.loaded else None, section.name, offset)


def _name(record: Record) -> str:
    return f"{record.provider}:{record.probe}"


def site_place(subject: Subject, record: Record) -> Place:
    """Return the place of a record's site."""
    image, where = subject.image, record.site
    address = None if image.is_object else where.address
    function = image.function_at(where.offset if image.is_object else where.address, where.section_number)
    shown = f"{function.name}+{function.offset:#x}" if function else ""
    return Place(_name(record), where.text(image.is_object), address, where.section, where.offset, shown)


def note_place(record: Record) -> Place:
    """Return the place of a record itself."""
    where = record.place
    return Place(_name(record), where.text(True), None, where.section, where.offset)


def _semaphore_place(subject: Subject, record: Record) -> Place:
    where = record.semaphore
    assert where is not None
    address = None if subject.image.is_object else where.address
    return Place(_name(record), where.text(subject.image.is_object), address, where.section, where.offset)


# -- files that can't have working probes at all -----------------------------------------------------------------------


def _unusable(subject: Subject) -> Iterator[Finding]:
    """Yield what makes every other check pointless."""
    image = subject.image
    if not image.sections:
        what = "has no section headers, and tracers find probes by them"
        cure = "don't run sstrip or `strip --strip-section-headers` on it; plain `strip` keeps what tracers need"
        yield Finding("no-section-headers", ERROR, what, (), cure)
    elif image.is_debug_file:
        what = "is a split debug file: the code that tracers attach to is in another file"
        yield Finding("debug-file", ERROR, what, (), "verify the stripped binary that belongs to it")


# -- was it built right? -----------------------------------------------------------------------------------------------


def _stubs(subject: Subject) -> Iterator[Finding]:
    """Undefined probe stubs: nobody has turned the calls into sites."""
    gathered = Gathered("not-processed", ERROR, _INSTRUMENT)
    for symbol in _undefined_stubs(subject.image):
        match = _STUB.search(symbol.name)
        if match is None:
            continue
        place = Place(f"{match['provider']}:{match['probe']}", symbol.name, None, "", 0)
        if match["mangled"]:
            cure = "include the header that `usdtbuild header` made instead of declaring the probe by hand"
            gathered.add('calls probes that were declared without extern "C"', place, cure=cure)
        else:
            gathered.add("calls probes that nobody has turned into sites", place)
    yield from gathered


def calls_stubs(image: Image) -> bool:
    """Tell whether a file still calls probes that were not turned into sites."""
    return any(True for _ in _undefined_stubs(image))


def _undefined_stubs(image: Image) -> Iterator[Symbol]:
    used: set[int] | None = None
    kind = "SHT_SYMTAB" if image.has_symbols("SHT_SYMTAB") else "SHT_DYNSYM"
    for number, symbol in image.symbols_with(kind, b"__dtrace"):
        if symbol.section:
            continue
        if symbol.binding == 1:  # instrumenting leaves weak ones behind, and mold makes local ones of these
            yield symbol
        elif image.is_object and symbol.binding == 2:
            used = _called_symbols(image) if used is None else used
            if number in used:
                yield symbol


def _called_symbols(image: Image) -> set[int]:
    """Return the numbers of the symbols that an object's code still refers to."""
    return {
        relocation.symbol
        for section in image.sections
        if section.executable
        for relocation in image.relocations(section)
        if relocation.type
    }


def _intermediate_code(subject: Subject) -> Iterator[Finding]:
    """Objects for link-time optimisation: what is in them isn't what is linked."""
    image = subject.image
    code = [s for s in image.sections if s.name.startswith(".gnu.lto_") or s.type == 0x6FFF4C0C]
    code = [s for s in code if s.size and s.type != "SHT_NULL"]
    if not image.is_object or not code:
        return
    slim = any(symbol.name == "__gnu_lto_slim" for _, symbol in image.symbols_with("SHT_SYMTAB", b"__gnu_lto"))
    cure = "compile this file with -fno-lto; `usdtbuild cc` does that by itself for files with probes"
    if slim and image.data.find(b"__dtrace") >= 0:
        what = "holds no machine code yet (slim LTO), so its probe calls can't have become sites"
        yield Finding("lto-object", ERROR, what, (section_place(code[0]),), cure)
    elif not slim and subject.notes:
        what = "also holds intermediate code, which a linker plugin prefers to the code with the sites"
        yield Finding("lto-object", ERROR, what, (section_place(code[0]),), cure)


def _stripped(subject: Subject) -> Iterator[Finding]:
    """No records, though something else shows that there were some."""
    image = subject.image
    if subject.seen.probes or image.is_object or image.sections_named(stapsdt.SECTION):
        return
    traces = [
        section
        for name in (stapsdt.BASE_SECTION, stapsdt.SEMAPHORE_SECTION)
        for section in image.sections_named(name)
        if section.size
    ]
    if not traces:
        return
    if not image.has_symbols("SHT_SYMTAB"):
        what = "the records of its probes were stripped away"
        cure = "strip it with binutils' strip, or `llvm-strip --keep-section=.note.stapsdt`"
        yield Finding("notes-stripped", ERROR, what, tuple(map(section_place, traces)), cure)
        return
    what = "holds traces of probes, and no probe: the linker dropped them all, or a tool removed the records"
    cure = "see whether the functions with probes are used at all, and whether objcopy ran on it"
    yield Finding("notes-missing", WARNING, what, tuple(map(section_place, traces)), cure)


def _nothing(subject: Subject) -> Iterator[Finding]:
    """No sign of any probe in a file that was given to be verified."""
    image, seen = subject.image, subject.seen
    found = seen.probes or seen.providers or image.is_object or image.kind.startswith("ELF file")
    marks = (stapsdt.SECTION, stapsdt.BASE_SECTION, stapsdt.SEMAPHORE_SECTION)
    if not found and not any(image.sections_named(name) for name in marks):
        what = "has no probes"
        yield Finding("no-probes", WARNING, what, (), "see that the probe calls are compiled in, and " + _INSTRUMENT)


# -- the section of the records ----------------------------------------------------------------------------------------


def _note_sections(subject: Subject) -> Iterator[Finding]:
    """What readers ask of the section `.note.stapsdt` itself."""
    image = subject.image
    sections = [section for section in image.sections_named(stapsdt.SECTION) if section.size]
    cure = "use no linker script and no objcopy option that changes it; it is SHT_NOTE, not loaded, aligned to 4"
    gathered = Gathered("note-section", ERROR, cure)
    for section in sections:
        place = section_place(section)
        if section.type != "SHT_NOTE":
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
    for section in subject.image.sections_named(stapsdt.SECTION) if not subject.image.is_object else ():
        for offset, owner, type_ in _walk_notes(subject.image, section):
            place = section_place(section, offset)._replace(where=f"{section.name}+{offset:#x}", address=None)
            if owner == stapsdt.OWNER[:-1] and type_ == stapsdt.TYPE:
                continue  # our own separators, and notes of code that was dropped: all readers pass over them
            if owner != stapsdt.OWNER:
                gathered.add("a note of another owner is among the records: libbpf refuses every probe", place)
            elif type_ != stapsdt.TYPE:
                what = "a note of another type is among the records: libbpf refuses every probe, perf those behind it"
                gathered.add(what, place)
    yield from gathered


def _walk_notes(image: Image, section: Section) -> Iterator[tuple[int, bytes, int]]:
    """Yield (offset, owner, type) of each note of a section, up to the first damaged one."""
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


# -- the base ----------------------------------------------------------------------------------------------------------


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


# -- sites -------------------------------------------------------------------------------------------------------------


def _ghosts(subject: Subject) -> Iterator[Finding]:
    """Records of code that isn't there."""
    cure = (
        "link without --gc-sections and --icf, or with bfd or lld, which drop the records of instrumented objects "
        "with their functions"
    )
    gathered = Gathered("ghost", ERROR, cure)
    what = "a record points to no code, as its function was dropped: libbpf and perf refuse the probe for it"
    for record in _usable_or_not(subject, usable=False):
        gathered.add(what, note_place(record)._replace(address=record.written_site))
    yield from gathered


def _usable_or_not(subject: Subject, usable: bool = True) -> Iterator[Record]:
    """Yield the notes whose site is code of this file (or, with `usable` false, the others)."""
    for record in subject.notes:
        if points_to_code(subject.image, record) is usable:
            yield record


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


def _instruction(subject: Subject, record: Record) -> site_code.Instruction | None:
    image = subject.image
    if image.is_object:
        content = image.content(image.sections[record.site.section_number])
        code = bytes(content[record.site.offset : record.site.offset + site_code.LONGEST])
    else:
        code = image.bytes_at(record.site.address, site_code.LONGEST)
    return site_code.at_site(code, image.machine, little=image.little, asks=record.is_enabled)


def is_quiet(subject: Subject, record: Record) -> bool:
    """Whether a NOP or a return stands at a record's site, as far as the machine is known."""
    instruction = _instruction(subject, record)
    return instruction is None or instruction.quiet


def _site_code(subject: Subject) -> Iterator[Finding]:
    """What stands at the sites: a NOP or a return, unless the address is wrong."""
    other = Gathered(
        "site-code",
        WARNING,
        "if the instruction doesn't belong there, the record's address is wrong: link the file again",
    )
    refused = Gathered("site-refused", ERROR, "build with --nop=safe, or put a one-byte NOP there")
    for record in _usable_or_not(subject):
        instruction = _instruction(subject, record)
        if instruction is None:
            continue
        if instruction.refused:
            what = f"the kernel takes no probe on `{instruction.text}`: {instruction.refused}"
            refused.add(what, site_place(subject, record))
        elif not instruction.quiet:
            other.add(f"a site holds no NOP, but `{instruction.text}`", site_place(subject, record))
    yield from refused
    yield from other


def _same_place(subject: Subject) -> Iterator[Finding]:
    """Two records of one address: of one probe, or of two."""
    twice = Gathered("duplicate-site", ERROR, "link each object once, and don't instrument twice")
    folded = Gathered("folded-sites", WARNING, "link without --icf=all, or with --icf=safe")
    seen: dict[tuple[str, str, int, int], dict[str, str]] = {}
    for record in _usable_or_not(subject):
        where = record.site
        others = seen.setdefault(
            (record.format, where.section, where.section_number, where.address or where.offset), {}
        )
        place = site_place(subject, record)
        if _name(record) in others:
            what = "one probe has two records of one address, and libbpf counts each hit twice"
            if others[_name(record)] == record.operands and record is subject.notes[-1]:
                what += "; these are alike and the last of the file, for which perf shows none of its probes"
            twice.add(what, place)
        elif others:
            folded.add(f"{_name(record)} and {next(iter(others))} share an address: each fires for the other", place)
        others.setdefault(_name(record), record.operands)
    yield from twice
    yield from folded


def _perf_offsets(subject: Subject) -> Iterator[Finding]:
    """Where perf looks for a site, which depends on `.stapsdt.base` and not on the site's own segment."""
    image = subject.image
    if image.is_object:
        return
    cure = "link with -Wl,-z,separate-loadable-segments (lld, mold) or -Wl,-z,separate-code; other tracers don't mind"
    gathered = Gathered("perf-offset", WARNING, cure)
    for record in _usable_or_not(subject):
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


# -- semaphores --------------------------------------------------------------------------------------------------------


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
            if _name(record) != _name(records[0]):
                what = f"{_name(record)} and {_name(records[0])} share a semaphore: tracing one enables the other"
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
        if segment is not None and not segment.flags & PF_W:
            return "semaphore-read-only", "the semaphore is in a read-only segment, so it never changes", own
        what = "the semaphore has no bytes in the file: the kernel can't increment it, or the loader clears it again"
        return "semaphore-unbacked", what, own
    for segment in image.segments:
        start, stop = segment.address & -_PAGE, segment.address + segment.memory_size & -_PAGE
        if segment.type == "PT_GNU_RELRO" and start <= address < stop:
            what = "the semaphore becomes read-only when the program starts (RELRO): attaching later never enables it"
            return "semaphore-relro", what, own
    return None


def _shared_pages(subject: Subject, address: int, place: Place) -> Iterator[Finding]:
    """A file page that is mapped twice as writable: a tracer that starts first increments the first mapping."""
    image = subject.image
    own, offset = image.segment_at(address), image.file_offset(address)
    if own is None or offset is None:
        return
    cure = (
        "align the section .probes to the page (4096; usdtbuild does), or link with -Wl,-z,separate-loadable-segments"
    )
    for page, severity in ((_PAGE, ERROR), (_BIG_PAGES.get(image.machine_name, 0), WARNING)):
        other = next((s for s in image.loads if page and _shares(s, own, offset, page)), None)
        if other is None:
            continue
        where = "RELRO" if any(s.type == "PT_GNU_RELRO" and s.offset == other.offset for s in image.segments) else (
            f"the segment at {other.address:#x}")  # fmt: skip
        kernels = "" if severity == ERROR else f" where pages have {page >> 10} KiB"
        what = (
            f"the semaphore shares a page of the file with {where}: a tracer that starts first never fires it{kernels}"
        )
        yield Finding("semaphore-page", severity, what, (place,), cure)
        return


def _shares(other: Segment, own: Segment, offset: int, page: int) -> bool:
    """Whether another writable segment that is mapped earlier has the page of the file that `offset` is on."""
    if other is own or not other.flags & PF_W or not other.file_size or other.address > own.address:
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
    for _, symbol in image.symbols_with("SHT_DYNSYM", b"_semaphore"):
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


# -- arguments ---------------------------------------------------------------------------------------------------------


def _operands(subject: Subject) -> Iterator[Finding]:
    """Operands that some tracer doesn't understand."""
    cure = "declare the argument in a provider file: usdtbuild passes it where every tracer can read it"
    gathered = Gathered("operand", WARNING, cure)
    known: dict[str, list[tuple[str, str]]] = {}
    for record in subject.notes:
        if record.operands not in known:
            known[record.operands] = list(_operand_troubles(record.operands, subject.image.machine))
        for what, severity in known[record.operands]:
            gathered.add(what, site_place(subject, record), severity=severity)
    yield from gathered


def _operand_troubles(text: str, machine: int) -> Iterator[tuple[str, str]]:
    """Yield (what, severity) for each operand of a note that some tracer doesn't understand."""
    for index, operand in enumerate(parse(text, machine)):
        troubles = tracers.operand_troubles(operand, machine)
        if troubles:
            what = f"argument {index} is given as `{operand.text[:60]}`: {', '.join(t.effect for t in troubles)}"
            yield what, NOTE if all(trouble.mild for trouble in troubles) else WARNING


def _argument_counts(subject: Subject) -> Iterator[Finding]:
    """More arguments than libbpf takes, and sites of one probe that disagree."""
    many = Gathered("many-arguments", WARNING, f"describe at most {tracers.LIBBPF_ARGUMENTS}; usdtbuild does")
    mixed = Gathered("argument-mismatch", WARNING, "use one header for all files that call the probe")
    specs = Gathered("many-specs", WARNING, "declare the probe in a provider file, so that all its sites are alike")
    for probe in subject.seen.probes:
        if probe.format != "stapsdt":
            continue
        first = site_place(subject, probe.sites[0].record)
        counts = {len(site.arguments) for site in probe.sites}
        if max(counts) > tracers.LIBBPF_ARGUMENTS:
            what = f"a probe has {max(counts)} arguments, and libbpf refuses more than {tracers.LIBBPF_ARGUMENTS}"
            many.add(what, first)
        if len(counts) > 1:
            shown = " and ".join(map(str, sorted(counts)))
            mixed.add(
                f"sites of one probe have {shown} arguments: perf keeps one layout, bcc reads past the end", first
            )
        elif len({tuple((a.operand.size, a.operand.signed) for a in site.arguments) for site in probe.sites}) > 1:
            mixed.add("sites of one probe give the same argument different sizes or signs", first, severity=NOTE)
        if len({site.operands for site in probe.sites}) > tracers.LIBBPF_SPECS:
            what = f"a probe has more than {tracers.LIBBPF_SPECS} different argument strings, libbpf's limit"
            specs.add(what, first)
    yield from many
    yield from mixed
    yield from specs


def _declared_types(subject: Subject) -> Iterator[Finding]:
    """Operands against the declared C types, from the user's provider file or from the file's own description."""
    cure = "include the current header everywhere, and compile again"
    for probe in subject.seen.probes:
        provider = subject.declared(probe.provider)
        if provider is None:
            continue
        severity = ERROR if probe.provider in subject.expected else WARNING
        declared = next((d for d in provider.probes if d.name == probe.name.replace("__", "-")), None)
        gathered = Gathered("declared-type", severity, cure)
        unknown = Gathered("undeclared-probe", WARNING, "declare it in the provider file, or correct its name")
        for site in probe.sites:
            place = site_place(subject, site.record)
            if declared is None:
                unknown.add(f"the provider file of {probe.provider} declares no such probe", place)
                continue
            if site.record.is_enabled:
                continue  # asks, and passes nothing
            actual = [argument.operand for argument in site.arguments]
            halves = {index for index, _ in _halves(declared.arguments, actual, subject.image)}
            for what in _type_troubles(declared.arguments, actual, subject.image.address_size, halves):
                gathered.add(what, place)
        yield from gathered
        yield from unknown


def _half_arguments(subject: Subject) -> Iterator[Finding]:
    """Arguments of eight bytes in two registers, or one and the stack: an operand can name only one place."""
    cure = "pass a pointer to it, or each half as an argument of its own"
    gathered = Gathered("half-argument", WARNING, cure)
    for probe in subject.seen.probes:
        provider = subject.declared(probe.provider)
        found = (d.arguments for d in provider.probes if d.name == probe.name.replace("__", "-")) if provider else ()
        declared = next(iter(found), ())
        for site in probe.sites:
            for index, argument in _halves(declared, [a.operand for a in site.arguments], subject.image):
                shown = f"{argument.type.spelling} {argument.name}".strip()
                what = f"tracers see only the low 32 bits of argument {index} ({shown}), which is passed in two parts"
                gathered.add(what, site_place(subject, site.record))
    yield from gathered


def _halves(
    declared: tuple[Declared, ...], operands: list[Operand], image: Image
) -> Iterator[tuple[int, Declared]]:
    """Yield the arguments that are in two places, with their indices; the size of their operands says so."""
    if image.address_size == 8 or image.machine_name not in _PAIRS:
        return
    for index, (argument, operand) in enumerate(zip(declared, operands)):
        if operand.size == 4 and argument.type.size(4) == 8:
            yield index, argument


def _type_troubles(
    declared: tuple[Declared, ...], operands: list[Operand], address_size: int, halves: set[int]
) -> Iterator[str]:
    expected = min(len(declared), stapsdt.MAX_ARGUMENTS) if len(operands) <= stapsdt.MAX_ARGUMENTS else len(declared)
    if len(operands) != expected:
        yield f"a site has {len(operands)} arguments, and {len(declared)} are declared"
        return
    for index, (argument, operand) in enumerate(zip(declared, operands)):
        size = argument.type.size(address_size)
        shown = f"argument {index} ({f'{argument.type.spelling} {argument.name}'.strip()})"
        if index in halves:
            continue
        if operand.size and operand.size != size:
            yield f"{shown} has {size} bytes, and the record says {operand.size} (`{operand.text}`)"
        elif operand.size and argument.type.kind == INTEGER and argument.type.signed != operand.signed:
            is_signed = "signed" if argument.type.signed else "unsigned"
            yield f"{shown} is {is_signed}, and the record says otherwise (`{operand.text}`)"
        elif operand.floating and argument.type.kind != FLOAT:
            yield f"{shown} is no floating-point number, and the record says it is (`{operand.text}`)"


# -- names and descriptions --------------------------------------------------------------------------------------------


def _names(subject: Subject) -> Iterator[Finding]:
    """Names that perf, or the kernel's trace events behind it, can't take."""
    gathered = Gathered("name", WARNING, "use letters, digits and underscores, and shorter names")
    for probe in subject.seen.probes:
        if probe.format != "stapsdt":
            continue
        place = site_place(subject, probe.sites[0].record)
        if not probe.name or not probe.provider:
            gathered.add("a provider or probe has no name: libbpf refuses the file", place, severity=ERROR)
            continue
        for word, text, limit in (
            ("provider", probe.provider, tracers.PERF_PROVIDER_NAME),
            ("probe", probe.name, tracers.PERF_PROBE_NAME),
        ):
            if not _C_NAME.fullmatch(text):
                gathered.add(
                    f"perf can add no probe of the file: the {word}'s name `{text[:80]}` is no C identifier", place
                )
            elif len(text) > limit:
                gathered.add(f"the {word}'s name has {len(text)} letters, and perf takes {limit}", place)
    yield from gathered


def _descriptions(subject: Subject) -> Iterator[Finding]:
    """The provider's description that the file carries, if it does: is it whole, and one, and used?"""
    section = next(iter(subject.image.sections_named(describe.SECTION)), None)
    if section is None:
        return
    place = section_place(section)
    if subject.seen.problem:
        what = f"the description of its providers can't be read ({subject.seen.problem})"
        yield Finding("description", WARNING, what, (place,), "make the headers again, all with one usdtbuild")
        return
    for name in describe.conflicts(look.description_text(subject.image)):
        what = f"holds two versions of provider {name}: some objects were compiled with an older header"
        yield Finding(
            "description-conflict", WARNING, what, (place,), "compile everything that includes the header again"
        )
    if subject.image.is_object:  # which object calls which probe is nobody's business
        return
    gathered = Gathered("no-site", NOTE, "nothing needs to be done if another file of the program calls it")
    present = {(probe.provider, probe.name.replace("__", "-")) for probe in subject.seen.probes}
    for name, (provider, _) in subject.seen.providers.items():
        for probe in provider.probes:
            if (name, probe.name) not in present and name not in subject.expected:
                gathered.add(
                    "declared, and not called in this file", Place(f"{name}:{probe.stub}", "no site", None, "", 0)
                )
    yield from gathered


# Every finding's name, and what it is about; docs/commands/verify.md says more of each.
NAMES = {
    "argument-mismatch": "sites of one probe disagree about its arguments",
    "base-missing": "there is no .stapsdt.base",
    "base-wrong": "records and .stapsdt.base disagree",
    "build-id": "no build-id that perf takes",
    "debug-file": "a split debug file",
    "declared-type": "operands that don't fit the declared C types",
    "description": "the provider's description is damaged",
    "description-conflict": "objects were built with two versions of one provider",
    "dof-refused": "DOF that a system rejects, or ignores in part",
    "dof-unregistered": "DOF that nobody tells the kernel of",
    "duplicate-site": "two records of one probe at one address",
    "enabled-by-semaphore": "a test that DTrace can't answer",
    "folded-sites": "two probes at one address",
    "foreign-note": "notes of other kinds among the records",
    "formats-differ": "SDT notes, DOF and .note.usdt disagree",
    "ghost": "records of code that was dropped",
    "half-argument": "an argument of which tracers see one half",
    "lto-object": "intermediate code instead of, or beside, machine code",
    "many-arguments": "more than twelve arguments",
    "many-specs": "more argument strings than libbpf takes",
    "name": "names that perf doesn't take",
    "no-probes": "no probe in the file",
    "no-section-headers": "no section headers",
    "no-site": "declared, and not called",
    "not-processed": "probe calls that never became sites",
    "note-section": "the section of the records isn't as readers want it",
    "notes-damaged": "records that can't be read",
    "notes-missing": "traces of probes, and no records",
    "notes-stripped": "records that were stripped away",
    "operand": "an operand that some tracer doesn't understand",
    "perf-offset": "perf places its probe elsewhere",
    "semaphore-alignment": "a semaphore at an odd offset",
    "semaphore-exported": "a semaphore that other modules can replace",
    "semaphore-mixed": "sites of one probe with different semaphores",
    "semaphore-page": "a semaphore on a page that is mapped twice",
    "semaphore-read-only": "a semaphore that can't be written",
    "semaphore-relro": "a semaphore that becomes read-only",
    "semaphore-section": "a semaphore outside the section .probes",
    "semaphore-shared": "probes that share a semaphore",
    "semaphore-unbacked": "a semaphore that isn't in the file",
    "semaphore-value": "a semaphore that doesn't begin as 0",
    "site-code": "a site that holds no NOP",
    "site-refused": "a site where the kernel takes no probe",
    "undeclared-probe": "a probe that its provider doesn't declare",
    "untied-records": "records that outlive their function",
    "usdt-refused": "notes because of which Oracle's DTrace refuses the file",
}

CHECKS: tuple[Callable[[Subject], Iterable[Finding]], ...] = (
    _stubs,
    _intermediate_code,
    _stripped,
    _nothing,
    _note_sections,
    _foreign_notes,
    _untied,
    _base,
    _ghosts,
    _site_code,
    _same_place,
    _perf_offsets,
    _build_id,
    _semaphore_addresses,
    _semaphore_backing,
    _semaphore_values,
    _semaphore_agreement,
    _operands,
    _argument_counts,
    _declared_types,
    _half_arguments,
    _names,
    _descriptions,
)
