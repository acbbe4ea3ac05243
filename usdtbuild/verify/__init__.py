"""Will the probes of a finished binary work? Every way that is known in which they don't, one check each.

A check is a row of `CHECKS`: a function from a `Subject`, one opened file with its records, to `Finding`s. Each finding
says what is wrong, where, and what cures it; docs/commands/verify.md lists them all. What tracers do with a record is
known to `inspection.tracers`, what a file holds to `inspect`; nothing here reads ELF or knows how the file was made.

Severities: an error means that a probe is missing, never fires, or breaks something; a warning, that one tracer or one
way of using it is left out; a note, that nothing is wrong but someone may want to know.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ..elf.image import Image
from ..formats import stapsdt
from ..inspection import probes as look
from ..inspection.probes import Inspection
from ..model import Provider, dashed
from . import arguments, building, names, records, semaphores, site_table, sites
from .building import LATER
from .report import ERROR, SEVERITIES, Finding, FoundAt, Subject, Verified

CHECKS: tuple[Callable[[Subject], Iterable[Finding]], ...] = (
    *building.CHECKS,
    *records.CHECKS,
    *sites.CHECKS,
    *semaphores.CHECKS,
    *arguments.CHECKS,
    *names.CHECKS,
    *site_table.CHECKS,
)


def verify(image: Image, expected: dict[str, Provider] | None = None) -> Verified:
    """Run every check on a file. Raises InputError for a file that can't be read at all."""
    notes, damage = records.read_notes(image)
    others = records.read_others(image, damage)
    seen = look.summarise(image, [*notes, *others])
    base = next(iter(image.sections_named(stapsdt.BASE_SECTION)), None)
    subject = Subject(image, seen, tuple(notes), base, expected or {})
    findings = list(damage)
    unusable = list(building.unusable(subject))
    findings += unusable
    if not unusable:
        for check in CHECKS:
            findings += check(subject)
        if any(probe.format != "stapsdt" for probe in seen.probes):
            from . import formats

            findings += formats.findings(subject)
        findings += _entries(image, seen)
    if _has_entries(image) or any(finding.severity == ERROR for finding in findings):
        # The file was made for something else, or the errors say why there are no probes.
        findings = [finding for finding in findings if finding.check != "no-probes"]
    findings.sort(key=lambda finding: SEVERITIES.index(finding.severity))
    present = frozenset((probe.provider, dashed(probe.name)) for probe in seen.probes)
    return Verified(image.path, image.kind, seen.probe_count, seen.site_count, tuple(findings), present)


def _has_entries(image: Image) -> bool:
    from ..functions.table import RELATIVE, STANDARD

    return any(image.sections_named(name) for name in (STANDARD, RELATIVE))


def _entries(image: Image, seen: Inspection) -> list[Finding]:
    if not _has_entries(image):
        return []
    from .entries import verify_entries

    return verify_entries(image, lambda: look.site_places(image.is_object, seen))


def missing_everywhere(reports: Iterable[Verified], expected: dict[str, Provider], path: str) -> Verified | None:
    """Return a report on the provider file itself: probes of it that none of the files has a site of.

    There is none where only objects were given of which some will have their probes when they are linked.
    """
    reports = list(reports)
    is_linked = any(report.kind.endswith(("executable", "library")) for report in reports)
    if not is_linked and any(one._replace(places=()) == LATER for report in reports for one in report.findings):
        return None
    present = {name for report in reports for name in report.names}
    missing = [
        FoundAt(f"{provider.name}:{probe.written}", "", None, "", 0)
        for provider in expected.values()
        for probe in provider.probes
        if (provider.name, probe.name) not in present
    ]
    if not missing:
        return None
    cure = "call them, or take them out of the provider file; an optimiser also drops calls that can't be reached"
    what = "declared, and nowhere called"
    return Verified(path, "provider file", 0, 0, (Finding("no-site", ERROR, what, tuple(missing), cure),))


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
    "note-section": "the section of the records isn't as readers expect it",
    "notes-damaged": "records that can't be read",
    "notes-missing": "traces of probes, and no records",
    "notes-stripped": "records that were stripped away",
    "operand": "an operand that some tracer doesn't understand",
    "perf-offset": "perf places its probe elsewhere",
    "red-zone": "a NOP that the kernel makes a call of, above data below the stack pointer",
    "semaphore-alignment": "a semaphore at an odd offset",
    "semaphore-exported": "a semaphore that other modules can replace",
    "semaphore-mixed": "sites of one probe with different semaphores",
    "semaphore-page": "a semaphore on a page that is mapped twice",
    "semaphore-read-only": "a semaphore that can't be written",
    "semaphore-relro": "a semaphore that becomes read-only",
    "semaphore-section": "a semaphore outside the section .probes",
    "semaphore-shared": "probes that share a semaphore",
    "semaphore-unbacked": "a semaphore that isn't in the file",
    "semaphore-unnamed": "a record that doesn't name its probe's semaphore",
    "semaphore-value": "a semaphore that doesn't begin as 0",
    "site-code": "a site that holds no NOP",
    "site-refused": "a site where the kernel takes no probe",
    "site-table": "the loaded table of sites doesn't say what the records say",
    "site-table-damaged": "a loaded table of sites that can't be read, or found",
    "undeclared-probe": "a probe that its provider doesn't declare",
    "untied-records": "records that outlive their function",
    "usdt-refused": "notes because of which Oracle's DTrace refuses the file",
}
