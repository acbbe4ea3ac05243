"""Checks of arguments: can every reader parse them, do sites agree, and do they fit the declared types?"""

from __future__ import annotations

from collections.abc import Iterator

from ..elf.image import Image
from ..formats import stapsdt
from ..formats.operands import CONSTANT, Operand, parse
from ..inspection import probes as look
from ..inspection import tracers
from ..machines import facts_of
from ..model import FLOAT, INTEGER
from ..model import Argument as Declared
from ..provider import describe
from ..text import plural
from .report import ERROR, NOTE, WARNING, Finding, Gathered, Subject, site_place

_CONSTANT = "none, if your tracer isn't perf; else pass the value of a volatile variable"


def _operands(subject: Subject) -> Iterator[Finding]:
    """Operands that some tracer doesn't understand."""
    cure = (
        "declare the argument in a provider file: usdtbuild passes it where every tracer can read it"
        " (but for -DUSDT_OPERANDS_IN_MEMORY)"
    )
    gathered = Gathered("operand", WARNING, cure)
    known: dict[tuple[str, bool], list[tuple[str, str, str]]] = {}
    for record in subject.notes:
        key = record.operands, subject.declared(record.provider) is not None
        if key not in known:
            known[key] = list(_operand_troubles(*key, subject.image.machine))
        for what, severity, other_cure in known[key]:
            gathered.add(what, site_place(subject, record), severity=severity, cure=other_cure)
    yield from gathered


def _operand_troubles(text: str, ours: bool, machine: int) -> Iterator[tuple[str, str, str]]:
    """Yield (what, severity, a cure of its own or '') for each operand of a note that some tracer doesn't understand.

    Constants of probes that are `ours` are meant to be in the note, although perf leaves them out.
    """
    for index, operand in enumerate(parse(text, machine)):
        if ours and operand.place.kind == CONSTANT:
            continue
        troubles = tracers.operand_troubles(operand, machine)
        if troubles:
            what = f"argument {index} is given as `{operand.text[:60]}`: {', '.join(t.effect for t in troubles)}"
            severity = NOTE if all(trouble.mild for trouble in troubles) else WARNING
            yield what, severity, _CONSTANT if operand.place.kind == CONSTANT else ""


# Headers of `dtrace -h` and sys/sdt.h record an argument as the call has it.
_ONE_TYPE = "none, if your tracers read each site's own size; else cast the argument to one type in every call"


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
            what = "sites of one probe give the same argument different sizes or signs"
            mixed.add(what, first, severity=NOTE, cure=_ONE_TYPE)
        if len({site.operands for site in probe.sites}) > tracers.LIBBPF_SPECS:
            what = f"a probe has more than {tracers.LIBBPF_SPECS} different argument strings, libbpf's limit"
            specs.add(what, first)
    yield from many
    yield from mixed
    yield from specs


def _declared_types(subject: Subject) -> Iterator[Finding]:
    """Operands against the declared C types, from the user's provider file or from the file's own description."""
    cure = "include the current header everywhere, and compile again"
    passed = describe.marked(look.description_text(subject.image), describe.PASSED)
    for probe in subject.seen.probes:
        provider = subject.declared(probe.provider)
        if provider is None:
            continue
        severity = ERROR if probe.provider in subject.expected else WARNING
        declared = subject.declared_probe(probe.provider, probe.name)
        gathered = Gathered("declared-type", severity, cure)
        unknown = Gathered("undeclared-probe", WARNING, "declare it in the provider file, or correct its name")
        for site in probe.sites:
            if declared is None:
                what = f"the provider file of {probe.provider} declares no such probe"
                unknown.add(what, site_place(subject, site.record))
                continue
            if site.record.is_enabled:
                continue  # asks, and passes nothing
            actual = [argument.operand for argument in site.arguments]
            halves = {index for index, _ in _halves(declared.arguments, actual, subject.image)}
            size, as_passed = subject.image.address_size, probe.provider in passed
            for what in _type_troubles(declared.arguments, actual, size, halves, as_passed):
                gathered.add(what, site_place(subject, site.record))
        yield from gathered
        yield from unknown


def _half_arguments(subject: Subject) -> Iterator[Finding]:
    """Arguments of eight bytes in two registers, or one and the stack: an operand can name only one place."""
    cure = "pass a pointer to it, or each half as an argument of its own"
    gathered = Gathered("half-argument", WARNING, cure)
    for probe in subject.seen.probes:
        found = subject.declared_probe(probe.provider, probe.name)
        declared = found.arguments if found is not None else ()
        for site in probe.sites:
            for index, argument in _halves(declared, [a.operand for a in site.arguments], subject.image):
                shown = f"{argument.type.spelling} {argument.name}".strip()
                what = f"tracers see only the low 32 bits of argument {index} ({shown}), which is passed in two parts"
                gathered.add(what, site_place(subject, site.record))
    yield from gathered


def _halves(declared: tuple[Declared, ...], operands: list[Operand], image: Image) -> Iterator[tuple[int, Declared]]:
    """Yield the arguments that are in two places, with their indices; the size of their operands says so."""
    known = facts_of(image.machine)
    if image.address_size == 8 or known is None or not known.pairs:
        return
    for index, (argument, operand) in enumerate(zip(declared, operands)):
        if operand.size == 4 and argument.type.size(4) == 8:
            yield index, argument


def _type_troubles(
    declared: tuple[Declared, ...], operands: list[Operand], address_size: int, halves: set[int], as_passed: bool
) -> Iterator[str]:
    """Yield what doesn't fit; with `as_passed` integers may be wider than declared and of either sign."""
    expected = min(len(declared), stapsdt.MAX_ARGUMENTS) if len(operands) <= stapsdt.MAX_ARGUMENTS else len(declared)
    if len(operands) != expected:
        yield f"a site has {plural(len(operands), 'argument')}, and its declaration {len(declared)}"
        return
    for index, (argument, operand) in enumerate(zip(declared, operands)):
        size = argument.type.size(address_size)
        shown = f"argument {index} ({f'{argument.type.spelling} {argument.name}'.strip()})"
        if index in halves:
            continue
        if as_passed and argument.type.kind == INTEGER and operand.size >= size:
            continue
        if operand.size and operand.size != size:
            yield f"{shown} has {size} bytes, and the record says {operand.size} (`{operand.text}`)"
        elif operand.size > 1 and argument.type.kind == INTEGER and argument.type.signed != operand.signed:
            is_signed = "signed" if argument.type.signed else "unsigned"
            yield f"{shown} is {is_signed}, and the record says otherwise (`{operand.text}`)"
        elif operand.floating and argument.type.kind != FLOAT:
            yield f"{shown} is no floating-point number, and the record says it is (`{operand.text}`)"


CHECKS = (_operands, _argument_counts, _declared_types, _half_arguments)
